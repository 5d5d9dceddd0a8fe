"""From text to ids: read a corpus, make its tokenizer, encode, leave out what does not fit. No torch here.

So that it can be done in another process while this one is still busy importing torch (`cli/ahead.py`).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cutaway.config import DataConfig
from cutaway.data.builtin import SentencePair
from cutaway.data.collector import collector_paused
from cutaway.data.corpus import has_split, load_pairs
from cutaway.data.tokenizer import Tokenizer, make_tokenizer
from cutaway.errors import DataError


class EncodedPair(NamedTuple):
    source: list[int]
    target: list[int]


@dataclass(frozen=True)
class PreparedData:
    """All that training needs of a corpus."""

    tokenizer: str  # as tokenizer.json
    roles: dict[str, str]  # which of its tokens is pad, bos, eos, unk
    train: list[EncodedPair]
    valid: list[EncodedPair]
    pairs: int  # read for training, misfits included
    left_out: dict[str, int]  # why -> how many
    fingerprint: str


def prepare(config: DataConfig, tokenizer_file: Path | None = None) -> PreparedData:
    """Prepare a corpus; with a `tokenizer_file`, such as that of a run to be resumed, no tokenizer is trained."""
    with collector_paused():
        pairs = load_pairs(config, "train")
        valid = load_pairs(config, "valid") if has_split(config, "valid") else ()
        if tokenizer_file:
            tokenizer = Tokenizer.open(tokenizer_file)
        else:
            tokenizer = make_tokenizer(config, (text for pair in pairs for text in (pair.source, pair.target)))
        train, left_out = without_misfits(encode_pairs(tokenizer, pairs), config.max_tokens)
        held_out, left_out_too = (
            without_misfits(encode_pairs(tokenizer, valid), config.max_tokens) if valid else ([], {})
        )
        return PreparedData(
            tokenizer=tokenizer.to_json(),
            roles=tokenizer.roles,
            train=train,
            valid=held_out,
            pairs=len(pairs),
            left_out=left_out | {f"{why} for validation": n for why, n in left_out_too.items()},
            fingerprint=fingerprint(pairs),
        )


def encode_pairs(tokenizer: Tokenizer, pairs: Sequence[SentencePair]) -> list[EncodedPair]:
    sources = tokenizer.encode_batch([pair.source for pair in pairs])
    targets = tokenizer.encode_batch([pair.target for pair in pairs])
    return [EncodedPair(s, t) for s, t in zip(sources, targets, strict=True)]


def without_misfits(pairs: Sequence[EncodedPair], max_tokens: int) -> tuple[list[EncodedPair], dict[str, int]]:
    """Leave out pairs with an empty side or a longer one than `max_tokens`, and say how many of each."""
    kept: list[EncodedPair] = []
    left_out = {"empty": 0, "too long": 0}
    for pair in pairs:
        if not pair.source or not pair.target:
            left_out["empty"] += 1
        elif max(len(pair.source), len(pair.target)) + 1 > max_tokens:  # one more for </s>
            left_out["too long"] += 1
        else:
            kept.append(pair)
    if not kept:
        raise DataError(
            f"no pair is left: of {len(pairs)}, {left_out['empty']} have an empty side and "
            f"{left_out['too long']} are longer than data.max_tokens = {max_tokens}. Raise it, or look at the files."
        )
    return kept, {why: n for why, n in left_out.items() if n}


def fingerprint(pairs: Sequence[SentencePair]) -> str:
    """Changes whenever a training text does."""
    value = 0
    for pair in pairs:
        value = zlib.crc32(f"{pair.source}\t{pair.target}\n".encode(), value)
    return f"{value:08x}"
