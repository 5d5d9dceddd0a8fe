"""A text in, labels out: one for all of it, or one for each word."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from cutaway.data.filtering import cut_ids, word_parts
from cutaway.data.image_input import pixels_of, split_images
from cutaway.data.tasks import encode_words, words_of
from cutaway.errors import CutawayWarning
from cutaway.inference.pipelines.base import Pipeline, by_length, refuse_long, refuse_text


class Prediction(NamedTuple):
    label: str
    probability: float


class Classifier(Pipeline):
    """A trained encoder that gives a text, or an image, one of its labels."""

    tasks = ("classification", "image_classification")

    def classify(self, examples: Any, batch_size: int = 64) -> list[Prediction]:
        """The likeliest label of each text, or of each image, and how likely it is.

        Images are an array [N,H,W] or [N,C,H,W] of bytes or of fractions from 0 to 1; or a list of arrays, Pillow
        images and paths (data/image_input.py). A single one will do, too.

        Of a text that is too long the beginning is read, and a warning says so; or the text is refused (data.too_long).
        """
        inputs, is_cut = self.read(examples)
        if any(is_cut):
            warnings.warn(
                f"{sum(is_cut):,} of {len(is_cut):,} texts are longer than the {self.config.longest_text:,} tokens "
                "that this model reads: only their beginnings were classified. read() tells which.",
                CutawayWarning,
                stacklevel=2,
            )
        best = [max(zip(row, self.labels, strict=True)) for row in self.score(inputs, batch_size)]
        return [Prediction(label, probability) for probability, label in best]

    def probabilities(self, examples: Any, batch_size: int = 64) -> list[list[float]]:
        """For each text or image the probability of every label, in the order of `labels`."""
        return self.score(self.read(examples)[0], batch_size)

    def read(self, examples: Any) -> tuple[Sequence[Any], list[bool]]:
        """The ids of each text, as many as the model reads, and whether there are more. Images as they are."""
        if self.config.model.family == "vision":
            images = split_images(examples, self.config.model)
            return images, [False] * len(images)
        refuse_text(examples)
        tokenizer, room = self.tokenizer, self.config.longest_text
        rows = [[tokenizer.bos, *ids, tokenizer.eos] for ids in tokenizer.encode_batch(examples)]
        is_long = [len(row) > room for row in rows]
        if self.config.long_texts != "cut" and any(is_long):
            number = is_long.index(True)
            refuse_long(examples[number], len(rows[number]), room)
        return [cut_ids(row, room) for row in rows], is_long

    def score(self, inputs: Sequence[Any], batch_size: int = 64) -> list[list[float]]:
        """The probability of every label, of ids or images that were read."""
        if self.config.model.family == "vision":
            batches = (inputs[start : start + batch_size] for start in range(0, len(inputs), batch_size))
            model = self.config.model
            return [
                p for batch in batches for p in self.engine.image_probabilities([pixels_of(i, model) for i in batch])
            ]
        results: list[list[float]] = [[] for _ in inputs]
        for indices in by_length(inputs, batch_size):
            for index, p in zip(indices, self.engine.probabilities([inputs[i] for i in indices]), strict=True):
                results[index] = p
        return results


class SentencePart(NamedTuple):
    """What the model reads at once, and the words that get their tags from it."""

    sentence: int
    words: range
    ids: list[int]
    first: list[int]  # where in `ids` each of the words begins


class Tagger(Pipeline):
    """A trained encoder that gives every word of a text a tag."""

    tasks = ("tagging",)

    def words(self, text: str) -> list[str]:
        """A text cut into words in the way of the data that the tagger was trained on."""
        return words_of(self.config.data)(text)

    def tag(self, sentences: Sequence[Sequence[str]], batch_size: int = 64) -> list[list[str]]:
        """For each sentence, cut into words, a tag for each word.

        A sentence that is too long is read in parts that overlap, or refused (data.too_long).
        """
        for sentence in (sentences, *sentences):
            refuse_text(sentence, "a list of sentences, each a list of words,")
        return self.label(self.parts(sentences), len(sentences), batch_size)

    def parts(self, sentences: Sequence[Sequence[str]]) -> list[SentencePart]:
        """One for each sentence that has words, and more if it is too long. A word gets its tag from the part in which
        it is farther from an edge, for what is beyond the edge cannot be seen."""
        room, found = self.config.longest_text, list[SentencePart]()
        for number, row in enumerate(encode_words(self.tokenizer, sentences)):
            if not row.first:
                continue
            if len(row.ids) > room and self.config.long_texts != "cut":
                refuse_long(" ".join(sentences[number]), len(row.ids), room)
            parts = word_parts(row.first, len(row.ids) - 1, room, overlap=room // 4)
            middles = [(before.words.stop + after.words.start) // 2 for before, after in pairwise(parts)]
            for part, words in zip(parts, pairwise([0, *middles, len(row.first)]), strict=True):
                ids = [row.ids[0], *row.ids[part.start : part.stop], row.ids[-1]]
                first = [row.first[word] - part.start + 1 for word in range(*words)]
                found.append(SentencePart(number, range(*words), ids, first))
        return found

    def label(self, parts: Sequence[SentencePart], sentences: int, batch_size: int = 64) -> list[list[str]]:
        """The tags of so many sentences, of the parts that they were read in."""
        of_part: list[list[str]] = [[] for _ in parts]
        for indices in by_length([part.ids for part in parts], batch_size):
            for index, tags in zip(indices, self.engine.tags([parts[i].ids for i in indices]), strict=True):
                of_part[index] = [self.labels[tags[place]] for place in parts[index].first]
        results: list[list[str]] = [[] for _ in range(sentences)]
        for part, tags in zip(parts, of_part, strict=True):
            results[part.sentence] += tags
        return results


class MaskedModel(Pipeline):
    """A trained masked language model: it can be measured, and looked into."""

    tasks = ("masked_language_model",)
