"""Example inputs for the explorer, and the gold alignments of tinyworld's sentences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from cutaway.data.tasks import has_split, load_split, stream_split
from cutaway.errors import CutawayError, DataError
from cutaway.explore.alignment import gold_cells, has_alignments, words_of
from cutaway.inference.pipelines import Pipeline, Translator

SHOWN = 12
MAX_CHARACTERS = 160  # longer texts are no examples

NO_IMAGES = (
    "this run has no images: it was imported, or its data files are missing. "
    "Restore the files, or fine-tune it on your images and explore that run."
)

# For models without data, such as imported ones.
ENGLISH_SENTENCES = (
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
    """Some held-out texts, or images for an image classifier. None if the data files are missing.

    A run without data, such as imported weights, gets English sentences.
    """
    if not has_data(pipeline):
        return [] if pipeline.config.model.family == "vision" else list(ENGLISH_SENTENCES[:shown])
    data, task = pipeline.config.data, pipeline.config.model.task
    for split in ("test", "valid"):
        try:
            if has_split(data, split):
                examples = islice(stream_split(data, task, split), 40 * shown)
                return select_examples([display_form(pipeline, example) for example in examples], shown)
        except (CutawayError, OSError):
            continue
    return []


def has_data(pipeline: Pipeline) -> bool:
    """Whether the run has a data setting. Imported weights have none."""
    return any(has_split(pipeline.config.data, split) for split in ("train", "valid", "test"))


def plain_examples(pipeline: Pipeline) -> Sequence[str]:
    """English sentences, for a run without data."""
    if pipeline.config.model.family == "vision":
        raise DataError(NO_IMAGES)
    return ENGLISH_SENTENCES


def display_form(pipeline: Pipeline, example: Any) -> Any:
    """The text of an example, as a user would type it; an image stays as it is."""
    task = pipeline.config.model.task
    if task == "image_classification":
        return example
    if task == "translation":
        return example.source
    if task == "tagging":
        return " ".join(example.words)
    if task == "classification":
        return example.text
    lines = [line for line in example.text.splitlines() if 12 <= len(line.strip()) <= MAX_CHARACTERS]
    return lines[len(lines) // 2].strip() if lines else example.text[:MAX_CHARACTERS]


def select_examples(examples: Sequence[Any], shown: int) -> list[Any]:
    """The first distinct texts that are not empty and not too long."""
    kept: list[Any] = []
    for example in examples:
        is_image = not isinstance(example, str)
        if is_image or (example.strip() and len(example) <= MAX_CHARACTERS and example not in kept):
            kept.append(example)
    return kept[:shown]


def image_example(examples: Sequence[Any], number: str) -> Any:
    """The image example with this number."""
    if not examples:
        raise DataError(NO_IMAGES)
    if not number.isdecimal() or len(number) > 6 or int(number) >= len(examples):
        raise DataError(f"there is no image {number[:20]!r}. Choose one from 0 to {len(examples) - 1}.")
    return examples[int(number)]


class GoldAlignments:
    """The sentence pairs with a gold alignment in the run's data, by source sentence."""

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
        """Reference, gold alignment and syntax of a sentence. The alignment is known if the translation is correct."""
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
        is_correct = target.strip() == pair.target
        return {
            "reference": pair.target,
            "gold": gold_cells(words, pair.alignment) if is_correct else None,
            "syntax": syntax,
            "words": {"source": words.source, "target": [*words.target, None] if is_correct else None},
        }
