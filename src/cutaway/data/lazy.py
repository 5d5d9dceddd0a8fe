"""Examples that are not kept as objects: they are made of arrays when somebody asks for one of them. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.integer[Any]]
Lengths = NDArray[np.int64]  # [N, K]: the row of example i is its `lengths`
Example = TypeVar("Example")


class LazyExamples(Sequence[Example], Generic[Example]):
    """A sequence that knows how to make example number i, and how long all of them are."""

    def __len__(self) -> int:
        raise NotImplementedError

    def example(self, number: int) -> Example:
        raise NotImplementedError

    def all_lengths(self) -> Lengths:
        """What `example.lengths` is for each of them, without making them."""
        raise NotImplementedError

    @overload
    def __getitem__(self, place: int) -> Example: ...
    @overload
    def __getitem__(self, place: slice) -> list[Example]: ...
    def __getitem__(self, place: int | slice) -> Example | list[Example]:
        if isinstance(place, slice):
            return [self.example(i) for i in range(*place.indices(len(self)))]
        number = place + len(self) if place < 0 else place
        if not 0 <= number < len(self):
            raise IndexError(f"there is no example {place}: there are {len(self)}")
        return self.example(number)


def smallest_type(largest: int) -> Any:
    """The smallest type of integer that holds 0 ... largest."""
    return np.min_scalar_type(max(0, largest))


def lengths_of(examples: Sequence[Any]) -> Lengths:
    """[N, K]: what `example.lengths` is for each of them."""
    if isinstance(examples, LazyExamples):
        return examples.all_lengths()
    return np.array([example.lengths for example in examples], dtype=np.int64)
