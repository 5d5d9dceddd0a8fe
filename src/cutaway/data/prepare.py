"""From text to ids: read a corpus, make its tokenizer, encode, leave out what does not fit. No torch here.

So that it can be done in another process while this one is still busy importing torch (`cli/ahead.py`).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutaway.config import DataConfig
from cutaway.data.collector import collector_paused
from cutaway.data.tasks import TASKS, Encoded, Encoding, has_split, labels_of, load_split
from cutaway.data.tokenizer import Tokenizer, make_tokenizer
from cutaway.errors import DataError


@dataclass(frozen=True)
class PreparedData:
    """All that training needs of a corpus."""

    tokenizer: str  # as tokenizer.json; empty for images
    roles: dict[str, str]  # which of its tokens is pad, bos, eos, unk
    labels: list[str]  # of a classifier or tagger
    train: list[Encoded]
    valid: list[Encoded]
    examples: int  # read for training, misfits included
    left_out: dict[str, int]  # why -> how many
    fingerprint: str


def prepare(config: DataConfig, task: str, tokenizer_file: Path | None = None) -> PreparedData:
    """Prepare a corpus; with a `tokenizer_file`, such as that of a run to be resumed, no tokenizer is trained."""
    with collector_paused():
        examples = load_split(config, task, "train")
        valid = load_split(config, task, "valid") if has_split(config, "valid") else ()
        tokenizer = tokenizer_for(config, task, examples, tokenizer_file)
        encoding = Encoding(tokenizer, labels_of(task, examples), config.max_tokens)
        train, left_out = without_misfits(TASKS[task].encode(examples, encoding), config.max_tokens)
        held_out, left_out_too = (
            without_misfits(TASKS[task].encode(valid, encoding), config.max_tokens) if valid else ([], {})
        )
        return PreparedData(
            tokenizer=tokenizer.to_json() if tokenizer else "",
            roles=tokenizer.roles if tokenizer else {},
            labels=list(encoding.labels),
            train=train,
            valid=held_out,
            examples=len(examples),
            left_out=left_out | {f"{why} for validation": n for why, n in left_out_too.items()},
            fingerprint=fingerprint(examples),
        )


def tokenizer_for(
    config: DataConfig, task: str, examples: Sequence[Any], tokenizer_file: Path | None
) -> Tokenizer | None:
    if TASKS[task].kind == "images":
        return None
    if tokenizer_file:
        return Tokenizer.open(tokenizer_file)
    texts = (text for example in examples for text in TASKS[task].texts(example))
    return make_tokenizer(config, texts, has_mask=TASKS[task].has_mask)


def without_misfits(examples: Sequence[Encoded], max_tokens: int) -> tuple[list[Encoded], dict[str, int]]:
    """Leave out examples that are empty or longer than `max_tokens`, and say how many of each."""
    kept: list[Encoded] = []
    left_out = {"empty": 0, "too long": 0}
    for example in examples:
        if is_empty(example):
            left_out["empty"] += 1
        elif max(example.lengths) > max_tokens:
            left_out["too long"] += 1
        else:
            kept.append(example)
    if not kept:
        raise DataError(
            f"no example is left: of {len(examples)}, {left_out['empty']} are empty (on one side) and "
            f"{left_out['too long']} are longer than data.max_tokens = {max_tokens}. Raise it, or look at the files."
        )
    return kept, {why: n for why, n in left_out.items() if n}


def is_empty(example: Encoded) -> bool:
    """Any of its rows of ids has nothing in it."""
    return any(isinstance(part, list) and not part for part in example)


def fingerprint(examples: Sequence[Any]) -> str:
    """Changes whenever a training example does."""
    value = 0
    for example in examples:
        value = zlib.crc32(as_bytes(example), value)
    return f"{value:08x}"


def as_bytes(example: Any) -> bytes:
    if isinstance(example, str):
        return example.encode() + b"\n"
    if hasattr(example, "source"):  # tinyworld's pairs compute more than these two when asked
        return f"{example.source}\t{example.target}\n".encode()
    return b"\t".join(part.tobytes() if hasattr(part, "tobytes") else str(part).encode() for part in example) + b"\n"
