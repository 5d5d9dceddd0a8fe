"""Sentences to begin with, and what is known about them: of tinyworld's, who translates whom."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from cutaway.data.tasks import has_split, load_split, stream_split
from cutaway.errors import CutawayError, DataError
from cutaway.explore.alignment import gold_cells, has_alignments, words_of
from cutaway.inference.pipelines import Pipeline, Translator

SHOWN = 12
LONGEST = 160  # characters of a text that one can look at

NO_IMAGES = (
    "this run has no pictures at hand: it was imported, or its files are gone. Restore them; or fine-tune it on "
    "pictures of yours, and look into that run."
)

# For a model that came without data: what can be said to any that reads English.
PLAIN = (
    "The keys to the old house are on the table.",
    "She gave him a book because he liked reading.",
    "It rained all day, so we stayed at home and played cards.",
    "The bank raised its interest rates again.",
    "They sat on the bank of the river and watched the boats.",
    "When Anna met Maria, she was carrying a large umbrella.",
    "The committee has not decided yet whether to accept the offer.",
    "Two plus two is four, and four times four is sixteen.",
    "The cat that the dog chased climbed up the tree.",
    "Nobody knows how the fire began, but it ended quickly.",
    "Paris is the capital of France, and Rome is the capital of Italy.",
    "Please close the window before you leave the room.",
)


def example_texts(pipeline: Pipeline, shown: int = SHOWN) -> list[Any]:
    """Some held-out texts (of a classifier of images: the pictures), none if the data is no longer there.

    A run that never had data, because its weights came from elsewhere, gets plain sentences.
    """
    if not has_data(pipeline):
        return [] if pipeline.config.model.family == "vision" else list(PLAIN[:shown])
    data, task = pipeline.config.data, pipeline.config.model.task
    for split in ("test", "valid"):
        try:
            if has_split(data, split):
                examples = islice(stream_split(data, task, split), 40 * shown)
                return spread([display_form(pipeline, example) for example in examples], shown)
        except (CutawayError, OSError):
            continue
    return []


def has_data(pipeline: Pipeline) -> bool:
    """Whether the run says what it was trained on. Imported weights do not."""
    return any(has_split(pipeline.config.data, split) for split in ("train", "valid", "test"))


def plain_examples(pipeline: Pipeline) -> Sequence[str]:
    """For a run that names no data."""
    if pipeline.config.model.family == "vision":
        raise DataError(NO_IMAGES)
    return PLAIN


def display_form(pipeline: Pipeline, example: Any) -> Any:
    """What of an example can be typed, or the picture itself."""
    task = pipeline.config.model.task
    if task == "image_classification":
        return example
    if task == "translation":
        return example.source
    if task == "tagging":
        return " ".join(example.words)
    if task == "classification":
        return example.text
    lines = [line for line in example.text.splitlines() if 12 <= len(line.strip()) <= LONGEST]
    return lines[len(lines) // 2].strip() if lines else example.text[:LONGEST]


def spread(examples: Sequence[Any], shown: int) -> list[Any]:
    """Different ones that are not too long."""
    kept: list[Any] = []
    for example in examples:
        is_picture = not isinstance(example, str)
        if is_picture or (example.strip() and len(example) <= LONGEST and example not in kept):
            kept.append(example)
    return kept[:shown]


def image_example(examples: Sequence[Any], number: str) -> Any:
    """The example of that number."""
    if not examples:
        raise DataError(NO_IMAGES)
    if not number.isdecimal() or len(number) > 6 or int(number) >= len(examples):
        raise DataError(f"there is no picture {number[:20]!r}. Choose one from 0 to {len(examples) - 1}.")
    return examples[int(number)]


class GoldAlignments:
    """The sentence pairs of the run's data that know their alignment, by their source."""

    def __init__(self, pipeline: Pipeline):
        self.pairs: dict[str, Any] = {}
        data = pipeline.config.data
        if not isinstance(pipeline, Translator) or not data.corpus.startswith("tinyworld"):
            return
        for split in ("test", "unseen", "valid"):
            pairs = load_split(data, "translation", split)
            if has_alignments(pairs):
                self.pairs |= {pair.source: pair for pair in pairs}

    def of(self, translator: Any, source: str, target: str) -> dict[str, Any]:
        """What is known about a sentence and this translation of it."""
        pair = self.pairs.get(source.strip())
        if pair is None:
            return {"reference": None, "gold": None, "syntax": None, "words": None}
        words = words_of(translator, pair)
        head_of = dict(enumerate(pair.source_heads))
        syntax = [
            (q, k)
            for q, word in enumerate(words.source)
            for k, other in enumerate(words.source)
            if word is not None and other is not None and head_of.get(word) == other
        ]
        is_right = target.strip() == pair.target
        return {
            "reference": pair.target,
            "gold": gold_cells(words, pair.alignment) if is_right else None,
            "syntax": syntax,
            "words": {"source": words.source, "target": [*words.target, None] if is_right else None},
        }
