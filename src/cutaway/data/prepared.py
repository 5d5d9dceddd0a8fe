"""All that training needs of a corpus, and how one knows it again. No torch here."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cutaway.data.corpus import TextPart
from cutaway.data.encoded import Encoded

ProgressCallback = Callable[[str, float], None]  # what is being done, and how much of it is: from 0 to 1


def ignore_progress(what: str, done: float) -> None:
    """For those who do not want to be told."""


@dataclass(frozen=True)
class PreparedData:
    """All that training needs of a corpus."""

    tokenizer: str  # as tokenizer.json; empty for images
    roles: dict[str, str]  # which of its tokens is pad, bos, eos, unk
    labels: list[str]  # of a classifier or tagger
    train: Sequence[Encoded]
    valid: Sequence[Encoded]
    examples: int  # read for training, misfits included
    left_out: dict[str, int]  # why -> how many
    fingerprint: str
    cut: dict[str, int] = field(default_factory=dict)  # the same of those that are not read to their end


def fingerprint(examples: Iterable[Any]) -> str:
    """Changes whenever a training example does."""
    value = 0
    for example in examples:
        value = zlib.crc32(as_bytes(example), value)
    return f"{value:08x}"


def as_bytes(example: Any) -> bytes:
    if isinstance(example, str):
        return example.encode() + b"\n"
    if isinstance(example, TextPart):
        return example.text.encode() + b"\n" * example.is_last
    if hasattr(example, "source"):  # tinyworld's pairs compute more than these two when asked
        return f"{example.source}\t{example.target}\n".encode()
    return b"\t".join(part.tobytes() if hasattr(part, "tobytes") else str(part).encode() for part in example) + b"\n"


def merge_counts(train: Mapping[str, int], valid: Mapping[str, int]) -> dict[str, int]:
    return dict(train) | {f"{why} for validation": n for why, n in valid.items()}
