"""Encoded examples as memory-mapped arrays on the disk.

train.ids.bin            the ids of all examples, concatenated, in the smallest integer type that fits
train.ids.starts.bin     the start of each example, and the end of the last: int64
train.label.bin          a number for each example
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.data.encoded import EncodedLabelledText, EncodedPair, EncodedTaggedText
from cutaway.data.lazy import LazyExamples, Lengths, smallest_type


@dataclass(frozen=True)
class ColumnLayout:
    """Which fields of an encoded example are lists of numbers, and which are single numbers."""

    make: Any
    rows: tuple[str, ...]  # fields that are lists
    numbers: tuple[str, ...]  # fields that are single numbers
    lengths: tuple[tuple[str, int], ...]  # the `lengths` of an example: (field, number of special tokens to add)


LAYOUTS = {
    "translation": ColumnLayout(EncodedPair, ("source", "target"), (), (("target", 1), ("source", 1))),
    "classification": ColumnLayout(EncodedLabelledText, ("ids",), ("label",), (("ids", 0),)),
    "tagging": ColumnLayout(EncodedTaggedText, ("ids", "tags"), (), (("ids", 0),)),
}
TEXT = "text"  # the only column of a corpus of texts; each row is a text


class MappedArray(np.memmap):
    """A memory-mapped array. It is pickled as the name of its file."""

    def __reduce__(self) -> Any:
        if self.filename is None or self.nbytes != os.path.getsize(self.filename):  # a slice is pickled as an array
            return np.asarray(self).__reduce__()
        return open_memmap, (Path(self.filename), self.dtype.str)


def open_memmap(path: Path, dtype: str) -> NDArray[Any]:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.zeros(0, dtype)
    return MappedArray(path, dtype=dtype, mode="r")


class StoredExamples(LazyExamples[Any]):
    """The examples of a split, made from its columns."""

    def __init__(self, task: str, rows: dict[str, RaggedArray], numbers: dict[str, NDArray[Any]]):
        self.task, self.rows, self.numbers = task, rows, numbers

    def __len__(self) -> int:
        return len(next(iter(self.rows.values())))

    def example(self, number: int) -> Any:
        fields: dict[str, Any] = {name: rows[number] for name, rows in self.rows.items()}
        return LAYOUTS[self.task].make(**fields, **{name: int(n[number]) for name, n in self.numbers.items()})

    def all_lengths(self) -> Lengths:
        return np.stack([self.rows[name].lengths + more for name, more in LAYOUTS[self.task].lengths], axis=1)


class RaggedArray:
    """Rows of different lengths, concatenated."""

    def __init__(self, values: NDArray[Any], starts: NDArray[np.int64]):
        self.values, self.starts = values, starts
        self.plain = np.asarray(values), np.asarray(starts)  # views; np.memmap is slow to index

    def __reduce__(self) -> Any:
        return RaggedArray, (self.values, self.starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, number: int) -> list[int]:
        values, starts = self.plain
        return values[starts[number] : starts[number + 1]].tolist()

    @property
    def lengths(self) -> NDArray[np.int64]:
        starts = self.plain[1]
        return starts[1:] - starts[:-1]


def column_types(task: str, vocab_size: int, labels: int) -> dict[str, str]:
    """column -> the smallest type that fits."""
    ids, classes = smallest_type(vocab_size - 1).str, smallest_type(labels - 1).str
    if task not in LAYOUTS:
        return {TEXT: ids}
    special = {"tags": np.min_scalar_type(-max(1, labels)).str, "label": classes}  # NO_TAG is negative
    return {name: special.get(name, ids) for name in (*LAYOUTS[task].rows, *LAYOUTS[task].numbers)}


class ColumnWriter:
    """Appends to the columns of a split, and computes checksums."""

    def __init__(self, folder: Path, split: str, types: dict[str, str], rows: Iterable[str]):
        self.types, self.rows = types, set(rows)
        self.files = {name: ArrayFile(folder / f"{split}.{name}.bin") for name in types}
        self.starts = {name: ArrayFile(folder / f"{split}.{name}.starts.bin") for name in self.rows}
        self.written = dict.fromkeys(self.rows, 0)
        for name in self.rows:
            self.starts[name].append(np.zeros(1, np.int64))

    def append(self, name: str, values: NDArray[Any]) -> None:
        self.files[name].append(values.astype(self.types[name]))

    def end_rows(self, name: str, lengths: NDArray[np.int64], ends: NDArray[np.bool_] | None = None) -> None:
        """Record the lengths of the last rows. Where `ends` is False, the next row continues this one."""
        positions = self.written[name] + np.cumsum(lengths, dtype=np.int64)
        self.written[name] += int(lengths.sum())
        self.starts[name].append(positions if ends is None else positions[ends])

    def close(self) -> dict[str, tuple[int, int]]:
        """Close the files. Return file -> (size, checksum)."""
        return {file.path.name: file.close() for file in (*self.files.values(), *self.starts.values())}


class ArrayFile:
    def __init__(self, path: Path):
        self.path, self.file = path, path.open("wb")
        self.size, self.checksum = 0, 0

    def append(self, values: NDArray[Any]) -> None:
        data = np.ascontiguousarray(values).data.cast("B") if values.size else b""
        self.file.write(data)
        self.size += len(data)
        self.checksum = zlib.crc32(data, self.checksum)

    def close(self) -> tuple[int, int]:
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        return self.size, self.checksum


def file_checksum(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            value = zlib.crc32(block, value)
    return value


def to_columns(task: str, examples: Sequence[Any]) -> dict[str, tuple[NDArray[Any], NDArray[np.int64]]]:
    """field -> (values, lengths). The lengths of a column of single numbers are empty."""
    layout = LAYOUTS[task]
    columns = {}
    for name in layout.rows:
        rows = [getattr(example, name) for example in examples]
        values = np.array([i for row in rows for i in row], dtype=np.int32)
        columns[name] = values, np.array([len(row) for row in rows], dtype=np.int64)
    for name in layout.numbers:
        values = np.array([getattr(example, name) for example in examples], dtype=np.int32)
        columns[name] = values, np.zeros(0, np.int64)
    return columns
