"""What is explained: by how much the model prefers one token to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cutaway.errors import DataError, nearest
from cutaway.explore.traced_example import TracedExample
from cutaway.inference.pipelines import Pipeline


@dataclass(frozen=True)
class Term:
    """At prediction `step`: logit(token) - logit(rival); without a rival, the log-probability of the token.

    With a rival, the difference of the logits is also the difference of the log-probabilities.
    """

    step: int
    token: int
    rival: int | None = None


@dataclass(frozen=True)
class Margin:
    """A sum of terms, in nats."""

    terms: tuple[Term, ...]

    @classmethod
    def single(cls, step: int, token: int, rival: int | None = None) -> Margin:
        return cls((Term(step, token, rival),))

    def of(self, logits_BNV: Tensor) -> Tensor:
        """[B,N,V] -> [B]"""
        total = logits_BNV.new_zeros(logits_BNV.size(0))
        for term in self.terms:
            logits_BV = logits_BNV[:, term.step]
            against = logits_BV.logsumexp(-1) if term.rival is None else logits_BV[:, term.rival]
            total = total + logits_BV[:, term.token] - against
        return total


def find_margin(
    pipeline: Pipeline,
    example: TracedExample,
    token: str | int | Sequence[str | int] | None = None,
    rival: str | int | Sequence[str | int] | None = None,
    step: int | Sequence[int] | None = None,
) -> Margin:
    """The margin of an output token over its rival. Lists give a sum over several tokens.

    token  a token of the output, by name or id. Default: the token at `step`, or the one with the smallest margin.
    rival  another token. Default: the most probable other token at that step.
    step   the number of the prediction, from 0. Needed if the output has the token several times.
    """
    if not example.answers:
        raise DataError("this model makes no predictions, so there is no token to explain.")
    with torch.no_grad():
        logits_NV = example.logits(pipeline.model)
    terms = tuple(find_term(pipeline, example, logits_NV, *given) for given in together(token, rival, step))
    if len({term.step for term in terms}) < len(terms):
        raise DataError("two of the tokens are at the same step. Give their steps too.")
    return Margin(terms)


def together(*given: Any) -> Iterator[tuple[Any, ...]]:
    """Tokens, rivals and steps, each one or several or none -> (token, rival, step) of each term."""
    lists = [[] if each is None else [each] if isinstance(each, str | int) else list(each) for each in given]
    count = max(1, *map(len, lists))
    if any(len(each) not in (0, count) for each in lists):
        tokens, rivals, steps = map(len, lists)
        raise DataError(f"there are {tokens} tokens, {rivals} rivals and {steps} steps. Give equally many, or none.")
    return zip(*(each or [None] * count for each in lists), strict=True)


def find_term(
    pipeline: Pipeline,
    example: TracedExample,
    logits_NV: Tensor,
    token: str | int | None,
    rival: str | int | None,
    step: int | None,
) -> Term:
    steps = range(example.prompt, len(example.answers))
    if step is not None and step not in steps:
        raise DataError(f"there is no step {step}. The output has the steps {steps.start} to {steps.stop - 1}.")
    if step is None:
        step = closest_step(logits_NV, example, steps) if token is None else step_of(example, token, steps)
    chosen = example.answers[step] if token is None else token_id(example, token, logits_NV.size(-1))
    if rival is not None:
        against = token_id(example, rival, logits_NV.size(-1))
    else:
        against = next(id for id in logits_NV[step].topk(2).indices.tolist() if id != chosen)
    if against == chosen:
        raise DataError(f"token and rival are both {example.names([chosen])[0]!r}. Give two different tokens.")
    return Term(step, chosen, against)


def closest_step(logits_NV: Tensor, example: TracedExample, steps: Sequence[int]) -> int:
    """The step whose answer is least certain; not the end of a text, if there is another."""
    log_p = example.log_p(logits_NV)
    is_end = example.finished and len(steps) > 1 and example.task in ("translation", "language_model")
    return min(steps[:-1] if is_end else steps, key=lambda step: log_p[step])


def step_of(example: TracedExample, token: str | int, steps: Sequence[int]) -> int:
    names = [bare(name) for name in example.names(example.answers)]
    if isinstance(token, int):
        found = [step for step in steps if example.answers[step] == token]
    else:
        found = [step for step in steps if names[step] == bare(token)]
    if not found:
        output = " ".join(names[step] for step in steps)
        name = f"token {token}" if isinstance(token, int) else repr(token)
        raise DataError(f"{name} is not in the output: {output}. For another token, give its step.")
    return found[0]


def token_id(example: TracedExample, token: str | int, vocab_size: int) -> int:
    """The id of a token or label, by its name; without the mark of a space if that is clear."""
    if isinstance(token, int):
        if not 0 <= token < vocab_size:
            raise DataError(f"the model has no token with the id {token}. Ids go from 0 to {vocab_size - 1}.")
        return token
    names = example.names(range(vocab_size))
    for same in (lambda name: name == token, lambda name: bare(name) == bare(token)):
        found = [id for id, name in enumerate(names) if same(name)]
        if found:
            return found[0]
    near = nearest(token, map(bare, names))
    raise DataError(f"the model has no token {token!r}. {near}A word can be several tokens: give one of them.")


def bare(name: str) -> str:
    """A token without the mark of the space before it."""
    return name.strip().lstrip("␣▁Ġ") or name
