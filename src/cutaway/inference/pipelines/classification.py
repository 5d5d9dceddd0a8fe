"""Pipelines that label: a text or image (Classifier), or each word (Tagger)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from cutaway.data.filtering import cut_ids, word_parts
from cutaway.data.image_input import pixels_of, split_images
from cutaway.data.tasks import encode_words, word_splitter
from cutaway.errors import CutawayWarning
from cutaway.inference.pipelines.base import Pipeline, batch_by_length, raise_too_long, require_list


class Prediction(NamedTuple):
    label: str
    probability: float


class Classifier(Pipeline):
    """A trained encoder that assigns a label to a text or an image."""

    tasks = ("classification", "image_classification")

    def classify(self, examples: Any, batch_size: int = 64) -> list[Prediction]:
        """The most probable label of each text or image, and its probability.

        Images are an array [N,H,W] or [N,C,H,W] of bytes or of fractions from 0 to 1; or a list of arrays, Pillow
        images and paths (data/image_input.py). A single image is accepted too.

        If a text is too long, only its start is read, with a warning; or it raises an error (data.too_long).
        """
        inputs, is_cut = self.read(examples)
        if any(is_cut):
            warnings.warn(
                f"{sum(is_cut):,} of {len(is_cut):,} texts are longer than the {self.config.longest_text:,} tokens "
                "that this model reads, so only their starts were classified. read() returns which.",
                CutawayWarning,
                stacklevel=2,
            )
        best = [max(zip(row, self.labels, strict=True)) for row in self.score(inputs, batch_size)]
        return [Prediction(label, probability) for probability, label in best]

    def probabilities(self, examples: Any, batch_size: int = 64) -> list[list[float]]:
        """The probability of every label for each text or image, in the order of `labels`."""
        return self.score(self.read(examples)[0], batch_size)

    def read(self, examples: Any) -> tuple[Sequence[Any], list[bool]]:
        """The ids of each text, cut to the model's context, and whether it was cut. Images are returned unchanged."""
        if self.config.model.family == "vision":
            images = split_images(examples, self.config.model)
            return images, [False] * len(images)
        require_list(examples)
        tokenizer, max_tokens = self.tokenizer, self.config.longest_text
        rows = [[tokenizer.bos, *ids, tokenizer.eos] for ids in tokenizer.encode_batch(examples)]
        is_long = [len(row) > max_tokens for row in rows]
        if self.config.long_texts != "cut" and any(is_long):
            number = is_long.index(True)
            raise_too_long(examples[number], len(rows[number]), max_tokens)
        return [cut_ids(row, max_tokens) for row in rows], is_long

    def score(self, inputs: Sequence[Any], batch_size: int = 64) -> list[list[float]]:
        """The probability of every label, for the output of `read`."""
        if self.config.model.family == "vision":
            batches = (inputs[start : start + batch_size] for start in range(0, len(inputs), batch_size))
            model = self.config.model
            return [
                p for batch in batches for p in self.engine.image_probabilities([pixels_of(i, model) for i in batch])
            ]
        results: list[list[float]] = [[] for _ in inputs]
        for indices in batch_by_length(inputs, batch_size):
            for index, p in zip(indices, self.engine.probabilities([inputs[i] for i in indices]), strict=True):
                results[index] = p
        return results


class SentencePart(NamedTuple):
    """A part of a sentence that the model reads at once, and the words whose tags it gives."""

    sentence: int
    words: range
    ids: list[int]
    first: list[int]  # index in `ids` of the first token of each word


class Tagger(Pipeline):
    """A trained encoder that assigns a tag to every word."""

    tasks = ("tagging",)

    def words(self, text: str) -> list[str]:
        """Split a text into words, as in the training data."""
        return word_splitter(self.config.data)(text)

    def tag(self, sentences: Sequence[Sequence[str]], batch_size: int = 64) -> list[list[str]]:
        """Tag each word of each sentence, a list of words.

        A sentence that is too long is read in overlapping parts, or raises an error (data.too_long).
        """
        for sentence in (sentences, *sentences):
            require_list(sentence, "a list of sentences, each a list of words")
        return self.label(self.parts(sentences), len(sentences), batch_size)

    def parts(self, sentences: Sequence[Sequence[str]]) -> list[SentencePart]:
        """Cut sentences that are too long into overlapping parts.

        A word gets its tag from the part where it is farther from the edge, because the model has more context there.
        """
        max_tokens, found = self.config.longest_text, list[SentencePart]()
        for number, row in enumerate(encode_words(self.tokenizer, sentences)):
            if not row.first:
                continue
            if len(row.ids) > max_tokens and self.config.long_texts != "cut":
                raise_too_long(" ".join(sentences[number]), len(row.ids), max_tokens)
            parts = word_parts(row.first, len(row.ids) - 1, max_tokens, overlap=max_tokens // 4)
            middles = [(before.words.stop + after.words.start) // 2 for before, after in pairwise(parts)]
            for part, words in zip(parts, pairwise([0, *middles, len(row.first)]), strict=True):
                ids = [row.ids[0], *row.ids[part.start : part.stop], row.ids[-1]]
                first = [row.first[word] - part.start + 1 for word in range(*words)]
                found.append(SentencePart(number, range(*words), ids, first))
        return found

    def label(self, parts: Sequence[SentencePart], sentences: int, batch_size: int = 64) -> list[list[str]]:
        """Tag the parts, and join the tags of each sentence."""
        part_tags: list[list[str]] = [[] for _ in parts]
        for indices in batch_by_length([part.ids for part in parts], batch_size):
            for index, tags in zip(indices, self.engine.tags([parts[i].ids for i in indices]), strict=True):
                part_tags[index] = [self.labels[tags[position]] for position in parts[index].first]
        results: list[list[str]] = [[] for _ in range(sentences)]
        for part, tags in zip(parts, part_tags, strict=True):
            results[part.sentence] += tags
        return results


class MaskedModel(Pipeline):
    """A trained masked language model. It can be evaluated and inspected."""

    tasks = ("masked_language_model",)
