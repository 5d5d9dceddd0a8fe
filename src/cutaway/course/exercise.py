"""Exercises for the grader: parts, test cases, and known mistakes.

Each part has a NumPy reference implementation. Each known mistake is a switch of that reference:

    attention(q, k, v, mask)                             the right answer
    attention(q, k, v, mask, wrong={"no-scale"})         the answer without the division

So the grader recognises a mistake from its output, independent of the learner's code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Switches = frozenset[str]
NO_MISTAKES: Switches = frozenset()


@dataclass(frozen=True)
class Mistake:
    """A mistake that can be recognised from the output."""

    name: str
    message: str  # what is wrong, as a sentence about the learner's code
    hint: str  # where to look
    strong_hint: str  # says more, but not the solution
    ways: tuple[str, ...] = ()  # switches that all produce this mistake; empty: the name is the switch
    shows_as_nan: bool = False  # nan or inf in the output is evidence for it

    @property
    def switches(self) -> tuple[str, ...]:
        return self.ways or (self.name,)


@dataclass(frozen=True, eq=False)
class Case:
    """One test case: arguments for a function."""

    description: str  # in words: "two queries, three keys, with a mask"
    arguments: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Property:
    """A statement that is true of every right answer, such as "the weights of a query sum to 1".

    The grader reports the first that fails, if no known mistake explains the results. `check` gets the result of each
    case and returns what is wrong, as a sentence with the numbers, or None. It need not expect other shapes or types:
    if it raises, it counts as passed.
    """

    name: str
    cases: tuple[Case, ...]  # as small as possible; all their arguments are of the part's function
    check: Callable[..., str | None]


@dataclass(frozen=True, eq=False)
class ExercisePart:
    """A function that the learner implements."""

    name: str
    arguments: tuple[str, ...]
    returns: tuple[str, ...]  # names of the returned values; several: a tuple
    reference: Callable[..., Any]  # (*arguments, wrong=...) -> what the function should return
    cases: Sequence[Case]  # smallest first: the first that fails is printed
    mistakes: Sequence[Mistake]
    # Switches for choices that the exercise leaves open, such as -inf or -1e9 under a mask. They are combined with
    # mistakes, because a choice can change what a mistake looks like.
    free_choices: tuple[str, ...] = ()
    properties: Sequence[Property] = ()  # the most telling first
    hint: str = ""  # for wrong answers that no known mistake explains
    strong_hint: str = ""
    thought: str = ""  # the line of thought that leads to the solution: a paragraph, for `cutaway check N --think`

    @property
    def all_cases(self) -> tuple[Case, ...]:
        """The cases whose results are compared, then those of the properties."""
        return (*self.cases, *(case for each in self.properties for case in each.cases))

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join(self.arguments)})"


@dataclass(frozen=True)
class Exercise:
    number: int
    name: str
    title: str
    parts: tuple[ExercisePart, ...]

    @property
    def file(self) -> str:
        return f"exercise_{self.number:02d}_{self.name}.py"
