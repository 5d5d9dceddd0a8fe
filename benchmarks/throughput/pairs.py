"""The sentence pairs for all implementations, in Cutaway's batches."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cutaway.config import DataConfig
from cutaway.data.prepare import PreparedData, prepare
from cutaway.data.tokenizer import Tokenizer

from .shape import Shape

if TYPE_CHECKING:  # torch must be imported after the number of threads is set
    from cutaway.data.batching import BatchStream

SEED = 1


def read_pairs(folder: Path | None, languages: str, shape: Shape, size: int) -> PreparedData:
    """Read files named as in Multi30k; without a folder, the built-in tinyworld."""
    if folder is None:
        small = prepare(DataConfig(corpus="tinyworld:en-fr", size=size, heldout_size=1), "translation")
        return replace(small, tokenizer=pad_vocabulary(small.tokenizer, shape.vocab_size))
    source, _, target = languages.partition("-")
    files = (f"train.{source}", f"train.{target}")
    longest = shape.max_length - 1  # one position is for </s>
    config = DataConfig(root=str(folder), train=files, vocab_size=shape.vocab_size, max_tokens=longest)
    return prepare(config, "translation")


def pad_vocabulary(tokenizer: str, vocab_size: int) -> str:
    """Add unused tokens to a tokenizer.json up to the vocabulary size of the architecture."""
    parts = json.loads(tokenizer)
    vocabulary = parts["model"]["vocab"]
    vocabulary |= {f"<unused {i}>": i for i in range(len(vocabulary), vocab_size)}
    return json.dumps(parts)


def batches_of(prepared: PreparedData, shape: Shape) -> BatchStream:
    from cutaway.data.batching import BatchStream

    return BatchStream(prepared.train, "translation", tokenizer_of(prepared), shape.batch_tokens, SEED)


def tokenizer_of(prepared: PreparedData) -> Tokenizer:
    return Tokenizer.from_json(prepared.tokenizer, prepared.roles)
