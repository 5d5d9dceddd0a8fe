"""Examples that are made from arrays when they are accessed. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.integer[Any]]
Lengths = NDArray[np.int64]  # [N, K]: row i is the `lengths` of example i
Example = TypeVar("Example")


class LazyExamples(Sequence[Example], Generic[Example]):
    """A sequence that makes example number i on access, and knows the lengths of all examples."""

    def __len__(self) -> int:
        raise NotImplementedError

    def example(self, number: int) -> Example:
        raise NotImplementedError

    def all_lengths(self) -> Lengths:
        """`example.lengths` of all examples, without making them."""
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self.example(i) for i in range(*index.indices(len(self)))]
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"there is no example {index}: there are {len(self)}")
        return self.example(number)


def smallest_type(largest: int) -> Any:
    """The smallest type of integer that holds 0 ... largest."""
    return np.min_scalar_type(max(0, largest))


def lengths_of(examples: Sequence[Any]) -> Lengths:
    """`example.lengths` of all examples, [N, K]."""
    if isinstance(examples, LazyExamples):
        return examples.all_lengths()
    return np.array([example.lengths for example in examples], dtype=np.int64)
