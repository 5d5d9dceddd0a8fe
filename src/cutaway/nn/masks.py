"""Masks: which query may attend to which key. **True = may attend.** `&` combines masks.

The matrix for a text of 16,000 tokens would have 256 million entries. So a `Mask` stores *rules* and computes only the
rows that are needed. A rule depends only on positions (sparse_masks.py has more rules):

    Causal()    a ■ · · ·
                b ■ ■ · ·
                c ■ ■ ■ ·
                d ■ ■ ■ ■

Rows are queries, columns are keys. Because positions are explicit, a cached step needs no special case: if the keys of
a to c are in a cache, the mask of d is the last row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from cutaway.errors import ConfigError


@dataclass(frozen=True)
class Span:
    """Consecutive positions start, ..., stop - 1.

    Like `range`, but start and stop may be symbolic sizes (torch.SymInt), which exporting a model needs.
    """

    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    def tensor(self, device: torch.device) -> Tensor:
        return torch.arange(self.start, self.stop, device=device)


def as_span(positions: Span | range) -> Span:
    """A Span from a range, which is easier to write."""
    if isinstance(positions, Span):
        return positions
    if positions.step != 1:
        raise ConfigError(
            f"the positions of a mask must be consecutive; {positions} has a step of {positions.step}. Use step 1."
        )
    return Span(positions.start, positions.stop)


def is_statically_true(condition: bool | torch.SymBool) -> bool:
    """Whether the condition holds. With symbolic sizes: whether it holds for all sizes."""
    if isinstance(condition, bool):
        return condition
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(condition)


class MaskRule(Protocol):
    """Which query may attend to which key, by their positions."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        """Positions [Q,1] and [1,K] -> [Q,K] of bool."""

    def reaches(self, first: int, last: int, key: Tensor) -> Tensor:
        """Which keys [K] at least one query from `first` to `last` may attend to."""

    def allows_all(self, queries: Span, keys: Span) -> bool:
        """Whether the rule allows every pair. Example: `Causal` for the last query only."""


@dataclass(frozen=True)
class Causal:
    """A query may attend to its own position and earlier ones: key ≤ query."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return key <= query

    def reaches(self, first: int, last: int, key: Tensor) -> Tensor:
        return key <= last

    def allows_all(self, queries: Span, keys: Span) -> bool:
        return is_statically_true(keys.stop - 1 <= queries.start)


@dataclass(frozen=True)
class Mask:
    """The positions of queries and keys, the rules (all must allow a pair), and which keys are tokens.

    is_token [B,K] is False at padding, which no query may attend to; None: no padding. Positions can also be ranges.
    """

    queries: Span
    keys: Span
    rules: tuple[MaskRule, ...] = ()
    is_token: Tensor | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "queries", as_span(self.queries))
        object.__setattr__(self, "keys", as_span(self.keys))

    def __and__(self, rule: MaskRule) -> Mask:
        return replace(self, rules=(*self.rules, rule))

    def __str__(self) -> str:
        """One row per query, ■ = may attend. For a batch, the first text."""
        allowed = self.dense(torch.device("cpu"))
        matrix = torch.ones(self.queries.size, self.keys.size, dtype=torch.bool)
        if allowed is not None:
            matrix = matrix & (allowed[0, 0] if allowed.dim() == 4 else allowed)
        return "\n".join(" ".join("■" if may else "·" for may in row) for row in matrix.tolist())

    def _repr_html_(self) -> str:
        """For notebooks."""
        return f"<pre>{self}</pre>"

    @property
    def active_rules(self) -> tuple[MaskRule, ...]:
        """The rules that forbid at least one pair. With symbolic sizes: that might forbid one."""
        return tuple(rule for rule in self.rules if not rule.allows_all(self.queries, self.keys))

    def dense(self, device: torch.device, chosen: Tensor | None = None) -> Tensor | None:
        """The matrix, broadcastable to [B, H, Q, K]; None: all pairs are allowed. `chosen`: indices of keys."""
        matrix: Tensor | None = None
        if rules := self.active_rules:  # a cached step has none, and then positions are not needed
            query, key = self.queries.tensor(device)[:, None], self.keys.tensor(device)[None, :]
            key = key if chosen is None else key[:, chosen]
            for rule in rules:
                matrix = rule.allows(query, key) if matrix is None else matrix & rule.allows(query, key)
        if self.is_token is not None:
            tokens = padding_mask(self.is_token if chosen is None else self.is_token[:, chosen])
            matrix = tokens if matrix is None else matrix & tokens
        return matrix


def padding_mask(is_token: Tensor) -> Tensor:
    """Every query may attend to every key that is a token, not padding. [B, K] -> [B, 1, 1, K]."""
    return is_token[:, None, None, :]


def causal_mask(length: int) -> Tensor:
    """The causal mask of a whole text as a matrix. -> [length, length]"""
    position = torch.arange(length)
    return Causal().allows(position[:, None], position[None, :])
