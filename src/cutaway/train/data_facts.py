"""What the doctor wants to know of the data of a run: counts and shares, no examples. No torch here."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from cutaway.config import Config
from cutaway.data.encoded import NO_TAG, Encoded
from cutaway.data.order import batches_by_tokens
from cutaway.data.prepare import PreparedData, prepare
from cutaway.data.tasks import TASKS, has_split, load_split, stream_split
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import DataError
from cutaway.runs import RunFolder
from cutaway.train.observed import DataFacts, Overlap

ENOUGH = 20_000  # examples by which padding and unknown tokens are judged
HIDDEN = 0.15  # of the tokens that a masked language model is asked for


def facts_about(run: RunFolder, config: Config) -> DataFacts:
    """Read the data of a run again. It takes as long as the start of its training."""
    task = config.model.task
    prepared = prepare(config.data, task, run.tokenizer if run.tokenizer.is_file() else None)
    valid = prepared.valid
    references = held_out(config, "test") or held_out(config, "valid") if task == "translation" else []
    written = [pair.target for pair in references]
    return DataFacts(
        train_examples=len(prepared.train),
        left_out=sum(n for why, n in prepared.left_out.items() if not why.endswith("for validation")),
        valid_examples=len(valid),
        valid_answers=round(sum(map(len, map(answers_of, valid))) * (HIDDEN if task == MASKED else 1)),
        padding=padding_of(prepared.train[:ENOUGH], config.data.batch_tokens),
        unknown=unknown_share(prepared, valid or prepared.train),
        overlaps=overlaps_of(config),
        majority=majority_of(valid, prepared.labels),
        answer_entropy=entropy(chain.from_iterable(map(answers_of, prepared.train[:ENOUGH]))),
        lower_cased=share(written, lambda text: text == text.lower()),
        tokenized=share(written, lambda text: any(mark in f"{text} " for mark in (" . ", " , ", " ? ", " ! "))),
        subwords=share(written, lambda text: "@@ " in text or "▁" in text),
        is_other_data=fingerprint_then(run) not in (None, prepared.fingerprint),
    )


MASKED = "masked_language_model"


def answers_of(example: Encoded) -> Sequence[int]:
    """What a model is asked for."""
    row: Any = example
    if hasattr(row, "target"):
        return [*row.target, -1]  # </s> comes on top
    if hasattr(row, "label"):
        return [row.label]
    if hasattr(row, "tags"):
        return [tag for tag in row.tags if tag != NO_TAG]
    return list(row.ids)


def padding_of(examples: Sequence[Encoded], budget: int) -> float | None:
    """The share of all places in the batches of an epoch that hold no token."""
    if not examples or hasattr(examples[0], "pixels"):
        return None
    tokens = places = 0
    for batch in batches_by_tokens(examples, budget, seed=0, epoch=0):
        for side in zip(*(examples[i].lengths for i in batch), strict=True):
            tokens += sum(side)
            places += len(side) * max(side)
    return 1 - tokens / places


def unknown_share(prepared: PreparedData, examples: Sequence[Encoded]) -> float | None:
    if not prepared.tokenizer or not examples:
        return None
    unknown = Tokenizer.from_json(prepared.tokenizer, prepared.roles).unk
    rows: list[Any] = list(examples[:ENOUGH])
    ids = list(chain.from_iterable([*row.source, *row.target] if hasattr(row, "target") else row.ids for row in rows))
    return ids.count(unknown) / len(ids) if unknown is not None and ids else None


def overlaps_of(config: Config) -> dict[str, Overlap]:
    """Held-out examples that training has seen, whatever their case and white space."""
    task = config.model.task
    splits = {split: list(held_out(config, split)) for split in ("valid", "test")}
    if not any(splits.values()):
        return {}
    seen = {key_of(task, example) for example in examples_of(config, "train")}
    return {
        split: Overlap(sum(key_of(task, example) in seen for example in examples), len(examples))
        for split, examples in splits.items()
        if examples
    }


def held_out(config: Config, split: str) -> Iterable[Any]:
    """The examples of a split; none if the recipe has none, or its files are gone."""
    try:
        return list(examples_of(config, split)) if has_split(config.data, split) else ()
    except DataError:
        return ()


def examples_of(config: Config, split: str) -> Iterable[Any]:
    """One after the other where that can be: a file may be larger than the memory."""
    task = config.model.task
    if config.data.corpus or TASKS[task].kind == "texts":
        return load_split(config.data, task, split)
    return stream_split(config.data, task, split)


def key_of(task: str, example: Any) -> int:
    """Alike for examples that ask for the same."""
    if hasattr(example, "pixels"):
        return hash(example.pixels.tobytes())
    return hash(tuple(" ".join(text.casefold().split()) for text in TASKS[task].texts(example)))


def majority_of(valid: Sequence[Encoded], labels: Sequence[str]) -> tuple[str, float] | None:
    if not labels or not valid:
        return None
    counts = Counter(chain.from_iterable(map(answers_of, valid)))
    label, count = counts.most_common(1)[0]
    return labels[label], count / counts.total()


def entropy(answers: Iterable[int]) -> float | None:
    counts = Counter(answers)
    total = counts.total()
    return -sum(n / total * math.log(n / total) for n in counts.values()) if total else None


def share(texts: Sequence[str], holds: Any) -> float | None:
    """Of the texts that have letters in them, those for which it holds."""
    lettered = [text for text in texts if any(map(str.isalpha, text))]
    return sum(map(holds, lettered)) / len(lettered) if lettered else None


def fingerprint_then(run: RunFolder) -> str | None:
    try:
        return str(json.loads(run.data.read_text(encoding="utf-8"))["fingerprint"])
    except (OSError, ValueError, KeyError):
        return None
