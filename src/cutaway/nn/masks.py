"""Masks: who may attend to whom.

One meaning everywhere: **True = may attend**. Masks are joined with `&`.

A matrix for a text of 16,000 tokens would have 256 million entries, so a `Mask` keeps *rules* and spells out only
the rows that are asked for. A rule looks at positions alone:

    Causal()              Window(2)             Window(2) & Causal()  Strided(2) & Causal()

      a b c d e             a b c d e             a b c d e             a b c d e
    a ■ · · · ·           a ■ ■ · · ·           a ■ · · · ·           a ■ · · · ·
    b ■ ■ · · ·           b ■ ■ ■ · ·           b ■ ■ · · ·           b ■ ■ · · ·
    c ■ ■ ■ · ·           c · ■ ■ ■ ·           c · ■ ■ · ·           c ■ ■ ■ · ·
    d ■ ■ ■ ■ ·           d · · ■ ■ ■           d · · ■ ■ ·           d · ■ ■ ■ ·
    e ■ ■ ■ ■ ■           e · · · ■ ■           e · · · ■ ■           e ■ · ■ ■ ■

Rows are queries, columns are keys. Explicit positions make a cached step right by construction: when e is written
with the keys of a to d in a cache, its mask is the last row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor


class Rule(Protocol):
    """What may be seen, by position alone."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        """Positions [Q,1] and [1,K] -> [Q,K] of bool."""
        ...

    def reaches(self, first: int, last: int, key: Tensor) -> Tensor:
        """Which keys [K] some query from `first` to `last` may attend to: all others need not be looked at."""
        ...

    def forbids_nothing(self, queries: range, keys: range) -> bool:
        """Whether the rule makes no difference here, as causality makes none to the last query alone."""
        ...


@dataclass(frozen=True)
class Causal:
    """A query may attend to itself and to what came before it: key ≤ query."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return key <= query

    def reaches(self, first: int, last: int, key: Tensor) -> Tensor:
        return key <= last

    def forbids_nothing(self, queries: range, keys: range) -> bool:
        return keys[-1] <= queries[0]


@dataclass(frozen=True)
class Window:
    """Only what is near: |query - key| < width (Longformer, Beltagy et al. 2020; with `Causal`, Mistral's window)."""

    width: int

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return (query - key).abs() < self.width

    def reaches(self, first: int, last: int, key: Tensor) -> Tensor:
        return (key > first - self.width) & (key < last + self.width)

    def forbids_nothing(self, queries: range, keys: range) -> bool:
        return max(queries[-1] - keys[0], keys[-1] - queries[0]) < self.width


@dataclass(frozen=True)
class Strided:
    """What is near, and every width-th token beyond: |query - key| < width or (query - key) mod width = 0.

    The Sparse Transformer's strided pattern (Child et al. 2019, section 4.2, its two heads taken together). With a
    width of about sqrt(n) a query looks at about 2·sqrt(n) keys, and any token reaches any other in two layers.
    """

    width: int

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        distance = query - key
        return (distance.abs() < self.width) | (distance % self.width == 0)

    def reaches(self, first: int, last: int, key: Tensor) -> Tensor:
        return Window(self.width).reaches(first, last, key) | ((key - first) % self.width <= last - first)

    def forbids_nothing(self, queries: range, keys: range) -> bool:
        nearest, farthest = queries[0] - keys[-1], queries[-1] - keys[0]
        if nearest == farthest:
            return abs(nearest) < self.width or nearest % self.width == 0
        return self.width == 1 or max(-nearest, farthest) <= self.width


@dataclass(frozen=True)
class Mask:
    """Queries and keys by their positions, the rules that must all allow a pair, and which keys are tokens.

    is_token [B, K] is False at padding, which nobody may attend to; None: there is no padding.
    """

    queries: range
    keys: range
    rules: tuple[Rule, ...] = ()
    is_token: Tensor | None = None

    def __and__(self, rule: Rule) -> Mask:
        return replace(self, rules=(*self.rules, rule))

    def __str__(self) -> str:
        """A row a query, ■ where it may attend; of a batch, the first text."""
        allowed = self.dense(torch.device("cpu"))
        matrix = torch.ones(len(self.queries), len(self.keys), dtype=torch.bool)
        if allowed is not None:
            matrix = matrix & (allowed[0, 0] if allowed.dim() == 4 else allowed)
        return "\n".join(" ".join("■" if may else "·" for may in row) for row in matrix.tolist())

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        return f"<pre>{self}</pre>"

    @property
    def binding(self) -> tuple[Rule, ...]:
        """The rules that make a difference."""
        return tuple(rule for rule in self.rules if not rule.forbids_nothing(self.queries, self.keys))

    def block(self, start: int, end: int) -> Mask:
        """The same for some of the queries."""
        return replace(self, queries=self.queries[start:end])

    def reach(self, device: torch.device) -> Tensor | None:
        """Indices of the keys that any of the queries may attend to; None: all."""
        key = as_tensor(self.keys, device)
        reached = None
        for rule in self.binding:
            allowed = rule.reaches(self.queries[0], self.queries[-1], key)
            reached = allowed if reached is None else reached & allowed
        return None if reached is None else reached.nonzero()[:, 0]

    def dense(self, device: torch.device, chosen: Tensor | None = None) -> Tensor | None:
        """Spelled out: broadcastable to [B, H, Q, K]; only the `chosen` keys, if given. None: all is allowed."""
        query, key = as_tensor(self.queries, device)[:, None], as_tensor(self.keys, device)[None, :]
        key = key if chosen is None else key[:, chosen]
        matrix: Tensor | None = None
        for rule in self.binding:
            matrix = rule.allows(query, key) if matrix is None else matrix & rule.allows(query, key)
        if self.is_token is not None:
            tokens = padding_mask(self.is_token if chosen is None else self.is_token[:, chosen])
            matrix = tokens if matrix is None else matrix & tokens
        return matrix


def padding_mask(is_token: Tensor) -> Tensor:
    """Every query may attend to every key that is a token and not padding. [B, K] -> [B, 1, 1, K]."""
    return is_token[:, None, None, :]


def causal_mask(length: int) -> Tensor:
    """Causality spelled out for a whole text. -> [length, length]"""
    position = torch.arange(length)
    return Causal().allows(position[:, None], position[None, :])


def as_tensor(positions: range, device: torch.device) -> Tensor:
    return torch.arange(positions.start, positions.stop, positions.step, device=device)
