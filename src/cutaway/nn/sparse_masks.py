"""Mask rules that allow only some of the keys, for long texts. Rows are queries, columns are keys:

    Causal()       SlidingWindow(2)    SlidingWindow(2) & Causal()    Strided(2) & Causal()

      a b c d e      a b c d e           a b c d e                      a b c d e
    a ■ · · · ·    a ■ ■ · · ·         a ■ · · · ·                    a ■ · · · ·
    b ■ ■ · · ·    b ■ ■ ■ · ·         b ■ ■ · · ·                    b ■ ■ · · ·
    c ■ ■ ■ · ·    c · ■ ■ ■ ·         c · ■ ■ · ·                    c ■ ■ ■ · ·
    d ■ ■ ■ ■ ·    d · · ■ ■ ■         d · · ■ ■ ·                    d · ■ ■ ■ ·
    e ■ ■ ■ ■ ■    e · · · ■ ■         e · · · ■ ■                    e ■ · ■ ■ ■

`&` combines rules: all of them must allow a pair.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from cutaway.nn.masks import Span, is_statically_true


@dataclass(frozen=True)
class SlidingWindow:
    """Near tokens only: |query - key| < width (Longformer, Beltagy et al. 2020; with `Causal`, Mistral's window)."""

    width: int

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return (query - key).abs() < self.width

    def reaches(self, first: int, last: int, key: Tensor) -> Tensor:
        return (key > first - self.width) & (key < last + self.width)

    def allows_all(self, queries: Span, keys: Span) -> bool:
        behind, ahead = queries.stop - 1 - keys.start, keys.stop - 1 - queries.start
        return is_statically_true(behind < self.width) and is_statically_true(ahead < self.width)


@dataclass(frozen=True)
class Strided:
    """Near tokens and every width-th token: |query - key| < width or (query - key) mod width = 0.

    The strided pattern of the Sparse Transformer (Child et al. 2019, section 4.2, its two heads combined). With a width
    of about sqrt(n), a query attends to about 2·sqrt(n) keys, and two layers connect any two tokens.
    """

    width: int

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        distance = query - key
        return (distance.abs() < self.width) | (distance % self.width == 0)

    def reaches(self, first: int, last: int, key: Tensor) -> Tensor:
        return SlidingWindow(self.width).reaches(first, last, key) | ((key - first) % self.width <= last - first)

    def allows_all(self, queries: Span, keys: Span) -> bool:
        nearest, farthest = queries.start - keys.stop + 1, queries.stop - 1 - keys.start
        if is_statically_true(nearest == farthest):
            return is_statically_true(abs(nearest) < self.width) or is_statically_true(nearest % self.width == 0)
        return self.width == 1 or (
            is_statically_true(-nearest <= self.width) and is_statically_true(farthest <= self.width)
        )
