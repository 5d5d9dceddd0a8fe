"""Which examples a model can be scored on. Training checks this before its first step. No torch here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cutaway.config import Config
from cutaway.data.prepare import PreparedData, filter_examples
from cutaway.data.tasks import TASKS, Encoding, encode_words, load_split
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import DataError

# task -> number of input tokens of each example
LENGTHS: dict[str, Callable[[Tokenizer, Sequence[Any]], list[int]]] = {
    "translation": lambda t, pairs: [len(ids) + 1 for ids in t.encode_batch([pair.source for pair in pairs])],
    "classification": lambda t, examples: [len(ids) + 2 for ids in t.encode_batch([e.text for e in examples])],
    "tagging": lambda t, examples: [len(row.ids) for row in encode_words(t, [e.words for e in examples])],
}


def fit_to_model(
    config: Config, tokenizer: Tokenizer | None, examples: Sequence[Any]
) -> tuple[Sequence[Any], dict[str, int]]:
    """The examples that can be scored, and how many are too long for the model: {"cut": n} or {"left_out": n}."""
    task = config.model.task
    if task not in LENGTHS or tokenizer is None:
        return examples, {}
    lengths = LENGTHS[task](tokenizer, examples)
    kept = [example for example, length in zip(examples, lengths, strict=True) if length <= config.longest_text]
    if len(kept) == len(examples):
        return examples, {}
    count = len(examples) - len(kept)
    if config.long_texts == "cut":
        return examples, {"cut": count}
    if config.long_texts == "skip" and kept:
        return kept, {"left_out": count}
    another = ["cut"] * (task != "translation") + ["skip"] * bool(kept)
    raise DataError(
        f"{count:,} of {len(examples):,} examples are longer than the {config.longest_text:,} tokens that this model "
        f"reads. The longest has {max(lengths):,}. Shorten them, or train with a larger model.max_length"
        + (f", or with data.too_long = {' or '.join(map(repr, another))}." if another else ".")
    )


def check_scorable(config: Config, prepared: PreparedData, split: str = "test") -> list[str]:
    """Refuse a split that cannot be scored, before the training starts. Return notes on the scores."""
    task = config.model.task
    examples = load_split(config.data, task, split)
    tokenizer = Tokenizer.from_json(prepared.tokenizer, prepared.roles) if prepared.tokenizer else None
    kept, counts = fit_to_model(config, tokenizer, examples)
    if task == "translation":  # raises an error if no pair is left for the perplexity
        filter_examples(TASKS[task].encode(kept, Encoding(tokenizer)), config.longest_text)
    if task == "image_classification":
        check_image_sizes(config, split, examples)
    return [*notes_on_lengths(config, split, examples, counts), *notes_on_labels(task, prepared, split, examples)]


def check_image_sizes(config: Config, split: str, images: Sequence[Any]) -> None:
    side, channels = config.model.image_size, config.model.channels
    others = {image.pixels.shape for image in images} - {(channels, side, side)}
    if others:
        raise DataError(
            f"the {split} images are {list(others.pop())}, but this model reads {[channels, side, side]}. Scale them "
            "to that size first."
        )


def notes_on_lengths(config: Config, split: str, examples: Sequence[Any], counts: dict[str, int]) -> list[str]:
    how = {"cut": "They will be truncated or split", "left_out": "They will be left out of the scores"}
    return [
        f"{count:,} of {len(examples):,} {split} examples are longer than the {config.longest_text:,} tokens that this "
        f"model reads. {how[what]}."
        for what, count in counts.items()
    ]


def notes_on_labels(task: str, prepared: PreparedData, split: str, examples: Sequence[Any]) -> list[str]:
    known = set(prepared.labels)
    unseen = [example for example in examples if not known >= set(TASKS[task].labels(example))]
    if not unseen:
        return []
    unknown = sorted({label for example in unseen for label in TASKS[task].labels(example)} - known)
    names = ", ".join(map(repr, unknown[:5])) + (" and others" if len(unknown) > 5 else "")
    return [
        f"{len(unseen):,} of {len(examples):,} {split} examples have labels that the training data does not have "
        f"({names}). They will count as wrong."
    ]
