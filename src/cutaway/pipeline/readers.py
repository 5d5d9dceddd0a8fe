"""A text in, labels out: one for all of it, or one for each word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cutaway.data.tasks import encode_words, words_of
from cutaway.pipeline.base import Pipeline, by_length


class Prediction(NamedTuple):
    label: str
    probability: float


class Classifier(Pipeline):
    """A trained encoder that gives a text, or an image, one of its labels."""

    tasks = ("classification", "image_classification")

    def classify(self, examples: Sequence[Any], batch_size: int = 64) -> list[Prediction]:
        """The likeliest label of each text, or of each image [C,H,W], and how likely it is."""
        best = [max(zip(row, self.labels, strict=True)) for row in self.probabilities(examples, batch_size)]
        return [Prediction(label, probability) for probability, label in best]

    def probabilities(self, examples: Sequence[Any], batch_size: int = 64) -> list[list[float]]:
        """For each text or image the probability of every label, in the order of `labels`."""
        if self.config.model.family == "vision":
            return self.of_images(examples, batch_size)
        tokenizer = self.tokenizer
        rows = [[tokenizer.bos, *ids, tokenizer.eos] for ids in tokenizer.encode_batch(examples)]
        results: list[list[float]] = [[] for _ in rows]
        for indices in by_length(rows, batch_size):
            for index, p in zip(indices, self.engine.probabilities([rows[i] for i in indices]), strict=True):
                results[index] = p
        return results

    def of_images(self, images: Sequence[Any], batch_size: int) -> list[list[float]]:
        results: list[list[float]] = []
        for start in range(0, len(images), batch_size):
            results.extend(self.engine.image_probabilities(images[start : start + batch_size]))
        return results


class Tagger(Pipeline):
    """A trained encoder that gives every word of a text a tag."""

    tasks = ("tagging",)

    def words(self, text: str) -> list[str]:
        """A text cut into words in the way of the data that the tagger was trained on."""
        return words_of(self.config.data)(text)

    @property
    def reads_code(self) -> bool:
        """Whether its texts go over several lines."""
        return self.config.data.corpus.startswith("python")

    def tag(self, sentences: Sequence[Sequence[str]], batch_size: int = 64) -> list[list[str]]:
        """For each sentence, cut into words, a tag for each word."""
        encoded = encode_words(self.tokenizer, sentences)
        results: list[list[str]] = [[] for _ in sentences]
        for indices in by_length([row.ids for row in encoded], batch_size):
            for index, tags in zip(indices, self.engine.tags([encoded[i].ids for i in indices]), strict=True):
                results[index] = [self.labels[tags[place]] for place in encoded[index].first]
        return results


class MaskedModel(Pipeline):
    """A trained masked language model: it can be measured, and looked into."""

    tasks = ("masked_language_model",)
