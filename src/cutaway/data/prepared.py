"""A prepared corpus: the input of a training. No torch here."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cutaway.data.corpus import TextPart
from cutaway.data.encoded import Encoded

ProgressCallback = Callable[[str, float], None]  # the current task, and its progress from 0 to 1


def ignore_progress(what: str, done: float) -> None:
    """A progress callback that does nothing."""


@dataclass(frozen=True)
class PreparedData:
    """A tokenizer, labels and encoded examples."""

    tokenizer: str  # the text of tokenizer.json; empty for images
    roles: dict[str, str]  # pad, bos, eos, unk -> token
    labels: list[str]  # of a classifier or tagger
    train: Sequence[Encoded]
    valid: Sequence[Encoded]
    examples: int  # training examples read, skipped ones included
    left_out: dict[str, int]  # reason -> number of skipped examples
    fingerprint: str
    cut: dict[str, int] = field(default_factory=dict)  # reason -> number of truncated examples


def fingerprint(examples: Iterable[Any]) -> str:
    """A checksum of the training examples."""
    value = 0
    for example in examples:
        value = zlib.crc32(as_bytes(example), value)
    return f"{value:08x}"


def as_bytes(example: Any) -> bytes:
    if isinstance(example, str):
        return example.encode() + b"\n"
    if isinstance(example, TextPart):
        return example.text.encode() + b"\n" * example.is_last
    if hasattr(example, "source"):  # pairs of tinyworld have more fields
        return f"{example.source}\t{example.target}\n".encode()
    return b"\t".join(part.tobytes() if hasattr(part, "tobytes") else str(part).encode() for part in example) + b"\n"


def merge_counts(train: Mapping[str, int], valid: Mapping[str, int]) -> dict[str, int]:
    return dict(train) | {f"{why} for validation": n for why, n in valid.items()}
