"""What an exercise is to the grader: parts, examples to try them on, and the mistakes that people make.

A part comes with a reference in NumPy that can also be wrong, on purpose: each known mistake is a switch in it.

    attention(q, k, v, mask)                             the right answer
    attention(q, k, v, mask, wrong={"no-scale"})         what somebody gets who forgot to divide

So the grader knows what a mistake looks like from outside, whatever the code that made it looks like.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Wrong = frozenset[str]
RIGHT: Wrong = frozenset()


@dataclass(frozen=True)
class Mistake:
    """A mistake that can be told from outside."""

    name: str
    says: str  # what is wrong, as a sentence about the learner's code
    hint: str  # where to look
    stronger: str  # nearly there; still not the solution
    ways: tuple[str, ...] = ()  # the switches, each of which is this mistake made in another way; none: its name
    shows_as_nan: bool = False  # numbers that are not finite are its mark, and prove it

    @property
    def switches(self) -> tuple[str, ...]:
        return self.ways or (self.name,)


@dataclass(frozen=True, eq=False)
class Case:
    """One example to try a function on."""

    what: str  # in words: "two queries, three keys, with a mask"
    arguments: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Part:
    """A function that the learner writes."""

    name: str
    arguments: tuple[str, ...]
    returns: tuple[str, ...]  # names for what comes back; more than one: a tuple
    reference: Callable[..., Any]  # (*arguments, wrong=...) -> what the function should return
    cases: Sequence[Case]  # the smallest first: the first that shows a mistake is the one that is shown
    mistakes: Sequence[Mistake]
    # Switches for what the exercise leaves open, such as -inf or -1e9 under a mask: combined with mistakes, where a
    # free choice makes the same mistake look different.
    free: tuple[str, ...] = ()

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join(self.arguments)})"


@dataclass(frozen=True)
class Exercise:
    number: int
    name: str
    title: str
    parts: tuple[Part, ...]

    @property
    def file(self) -> str:
        return f"exercise_{self.number:02d}_{self.name}.py"
