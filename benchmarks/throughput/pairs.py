"""The sentence pairs that all contestants read, in the batches that Cutaway makes of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cutaway.config import DataConfig
from cutaway.data.prepare import PreparedData, prepare
from cutaway.data.tokenizer import Tokenizer

from .shape import Shape

if TYPE_CHECKING:  # torch must not be loaded before a process has set its threads
    from cutaway.data.batching import BatchStream

SEED = 1


def read_pairs(folder: Path | None, languages: str, shape: Shape, size: int) -> PreparedData:
    """Multi30k's files, or others that are named like them; without a folder, the built-in tinyworld."""
    if folder is None:
        small = prepare(DataConfig(corpus="tinyworld:en-fr", size=size, heldout_size=1), "translation")
        return replace(small, tokenizer=filled_up(small.tokenizer, shape.vocab_size))
    source, _, target = languages.partition("-")
    files = (f"train.{source}", f"train.{target}")
    longest = shape.max_length - 1  # </s> takes a place, too
    config = DataConfig(root=str(folder), train=files, vocab_size=shape.vocab_size, max_tokens=longest)
    return prepare(config, "translation")


def filled_up(tokenizer: str, vocab_size: int) -> str:
    """A tokenizer.json with tokens that no text has: a small world has fewer words than the architecture asks for."""
    parts = json.loads(tokenizer)
    vocabulary = parts["model"]["vocab"]
    vocabulary |= {f"<unused {i}>": i for i in range(len(vocabulary), vocab_size)}
    return json.dumps(parts)


def batches_of(prepared: PreparedData, shape: Shape) -> BatchStream:
    from cutaway.data.batching import BatchStream

    return BatchStream(prepared.train, "translation", tokenizer_of(prepared), shape.batch_tokens, SEED)


def tokenizer_of(prepared: PreparedData) -> Tokenizer:
    return Tokenizer.from_json(prepared.tokenizer, prepared.roles)
