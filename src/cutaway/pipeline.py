"""Text in, text out: a trained run put to work. `load` is the one way back from a run folder.

translator = Translator.load("runs/demo")
translator.translate(["The small cat sleeps."])
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from cutaway.config import Config, DecodeConfig
from cutaway.data.batching import length_mask, pad
from cutaway.data.tasks import encode_words, words_of
from cutaway.data.tokenizer import Tokenizer
from cutaway.decode.beam import beam_search
from cutaway.decode.filters import Filter, temperature, top_k, top_p
from cutaway.decode.search import Hypothesis, greedy, sample
from cutaway.decode.stepper import Stepper, TextStepper, TranslationStepper
from cutaway.errors import DataError, RunError
from cutaway.models.build import build_model
from cutaway.models.device import choose_device
from cutaway.models.weights import load_weights
from cutaway.runs import RunFolder, read_sealed

EXTRA_LENGTH = 50  # a translation may have this many tokens more than its source (the paper, section 6.1)
GENERATED_LENGTH = 200  # tokens that a text generator writes if nobody says how many


class Pipeline:
    """A trained model with its tokenizer and labels. Each kind below does one of the tasks with it."""

    tasks: ClassVar[tuple[str, ...]] = ()

    def __init__(self, model: Any, tokenizer: Tokenizer | None, config: Config, labels: Sequence[str] = ()):
        self.model, self.config, self.labels = model, config, tuple(labels)
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, run: str | Path, device: str = "auto", weights: Path | None = None) -> Self:
        """Read a run folder; `weights` may name a snapshot or a checkpoint's weights instead of the best ones."""
        folder = RunFolder(run).require()
        config = folder.read_config()
        if config.model.task not in cls.tasks:
            raise RunError(wrong_task(run, config.model.task, cls.tasks))
        model = build_model(config.model)
        path = weights or folder.weights
        load_weights(model, read_sealed(path), str(path))
        tokenizer = None if config.model.family == "vision" else load_tokenizer(folder, config)
        labels = json.loads(folder.labels.read_text(encoding="utf-8")) if folder.labels.is_file() else ()
        return cls(model.to(choose_device(device)).eval(), tokenizer, config, labels)

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            raise RunError("this run reads images: it has no tokenizer.")
        return self._tokenizer

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device


def load_tokenizer(folder: RunFolder, config: Config) -> Tokenizer:
    tokenizer = Tokenizer.open(folder.tokenizer)
    if tokenizer.vocab_size != config.model.vocab_size:
        raise RunError(
            f"{folder.tokenizer} has {tokenizer.vocab_size} tokens, the model {config.model.vocab_size}: it is not "
            "the tokenizer that this model was trained with. Restore it."
        )
    return tokenizer


# task -> the command that puts it to work
COMMANDS = {
    "translation": "translate",
    "language_model": "generate",
    "classification": "classify",
    "image_classification": "classify",
    "tagging": "tag",
    "masked_language_model": "evaluate",
}


def wrong_task(run: str | Path, task: str, wanted: Sequence[str]) -> str:
    return (
        f"the run {str(run)!r} was trained for {task.replace('_', ' ')}, and this needs one trained for "
        f"{' or '.join(wanted).replace('_', ' ')}. Use it with: cutaway {COMMANDS[task]} {run}"
    )


def load_pipeline(run: str | Path, device: str = "auto") -> Pipeline:
    """Whatever this run was trained for, ready for it."""
    task = RunFolder(run).require().read_config().model.task
    return next(kind for kind in KINDS if task in kind.tasks).load(run, device)


class Writer(Pipeline):
    """What translators and text generators share: a search over the tokens of a text."""

    def search(
        self,
        stepper: Stepper,
        first: Tensor,
        limits: list[int],
        decode: DecodeConfig,
        n_best: int,
        generator: torch.Generator,
    ) -> list[list[Hypothesis]]:
        eos = self.tokenizer.eos
        if decode.strategy == "beam":
            return beam_search(stepper, first, limits, eos, decode.beam_size, decode.length_penalty, n_best)
        if decode.strategy == "sample":
            return [[h] for h in sample(stepper, first, limits, eos, filters_of(decode), generator)]
        return [[h] for h in greedy(stepper, first, limits, eos)]

    def generator(self, decode: DecodeConfig) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(decode.seed)


class Translator(Writer):
    """A trained encoder-decoder."""

    tasks = ("translation",)

    def translate(self, texts: Sequence[str], decode: DecodeConfig | None = None) -> list[str]:
        """Translate each text; the order stays. An empty text has an empty translation."""
        found = self.hypotheses(texts, decode)
        return [self.tokenizer.decode(best[0].tokens) if best else "" for best in found]

    def hypotheses(
        self, texts: Sequence[str], decode: DecodeConfig | None = None, n_best: int = 1
    ) -> list[list[Hypothesis]]:
        """What the search found for each text, best first (none for an empty text)."""
        results: list[list[Hypothesis]] = [[] for _ in texts]
        for indices, found in self.decoded(texts, decode, n_best):
            for index, hypotheses in zip(indices, found, strict=True):
                results[index] = hypotheses
        return results

    @torch.inference_mode()
    def decoded(
        self, texts: Sequence[str], decode: DecodeConfig | None = None, n_best: int = 1
    ) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        """Batches of texts of like length, each with its hypotheses, as they get ready."""
        decode = decode or self.config.decode
        encoded = self.tokenizer.encode_batch(texts)
        generator = self.generator(decode)
        for indices in by_length(encoded, decode.batch_size):
            rows = [[*encoded[i], self.tokenizer.eos] for i in indices]
            first = torch.full((len(rows),), self.tokenizer.bos, device=self.device)
            limits = [self.longest_output(len(encoded[i]), decode) for i in indices]
            stepper = TranslationStepper(self.model, *padded(self, rows))
            yield indices, self.search(stepper, first, limits, decode, n_best, generator)

    def longest_output(self, source_length: int, decode: DecodeConfig) -> int:
        """A limit of each text's own, so that a translation does not depend on the batch that it is in."""
        return min(decode.max_length or source_length + EXTRA_LENGTH, self.config.model.max_length)


class TextGenerator(Writer):
    """A trained decoder: goes on with what you begin."""

    tasks = ("language_model",)

    def generate(self, prompts: Sequence[str], decode: DecodeConfig | None = None) -> list[str]:
        """Each prompt with what comes after it. An empty prompt begins a new text."""
        return [
            prompt + self.continuation(prompt, found[0].tokens)
            for prompt, found in zip(prompts, self.hypotheses(prompts, decode), strict=True)
        ]

    def continuation(self, prompt: str, tokens: Sequence[int]) -> str:
        """The text of `tokens` after `prompt`: decoded together, for a character may be cut in two between tokens."""
        ids = self.tokenizer.encode(prompt)
        return self.tokenizer.decode([*ids, *tokens])[len(self.tokenizer.decode(ids)) :]

    @torch.inference_mode()
    def hypotheses(
        self, prompts: Sequence[str], decode: DecodeConfig | None = None, n_best: int = 1
    ) -> list[list[Hypothesis]]:
        """What the search found for each prompt, best first; `tokens` are the new ones alone."""
        decode = decode or self.config.decode
        rows = [[self.tokenizer.bos, *ids] for ids in self.tokenizer.encode_batch(prompts)]
        results: list[list[Hypothesis]] = [[] for _ in prompts]
        generator = self.generator(decode)
        for indices in by_length(rows, decode.batch_size, alike=True):
            ids = torch.tensor([rows[i] for i in indices], device=self.device)
            limits = [self.longest_output(ids.size(1), decode)] * len(indices)
            stepper = TextStepper(self.model, ids)
            found = self.search(stepper, ids[:, -1], limits, decode, n_best, generator)
            for index, hypotheses in zip(indices, found, strict=True):
                results[index] = hypotheses
        return results

    def longest_output(self, prompt_length: int, decode: DecodeConfig) -> int:
        room = self.config.model.max_length - prompt_length + 1  # the last token is written, but never read
        if room < 1:
            raise DataError(
                f"the prompt has {prompt_length} tokens, and this model has positions for "
                f"{self.config.model.max_length}: there is no room to go on. Shorten it."
            )
        return min(decode.max_length or GENERATED_LENGTH, room)


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

    @torch.inference_mode()
    def probabilities(self, examples: Sequence[Any], batch_size: int = 64) -> list[list[float]]:
        """For each text or image the probability of every label, in the order of `labels`."""
        if self.config.model.family == "vision":
            return self.of_images(examples, batch_size)
        tokenizer = self.tokenizer
        rows = [[tokenizer.bos, *ids, tokenizer.eos] for ids in tokenizer.encode_batch(examples)]
        results: list[list[float]] = [[] for _ in rows]
        for indices in by_length(rows, batch_size):
            logits = self.model(*padded(self, [rows[i] for i in indices]))
            for index, p in zip(indices, logits.softmax(dim=-1).tolist(), strict=True):
                results[index] = p
        return results

    def of_images(self, images: Sequence[Any], batch_size: int) -> list[list[float]]:
        results: list[list[float]] = []
        for start in range(0, len(images), batch_size):
            batch = torch.stack([torch.as_tensor(image) for image in images[start : start + batch_size]])
            logits = self.model(batch.to(self.device, torch.get_default_dtype()))
            results.extend(logits.softmax(dim=-1).tolist())
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

    @torch.inference_mode()
    def tag(self, sentences: Sequence[Sequence[str]], batch_size: int = 64) -> list[list[str]]:
        """For each sentence, cut into words, a tag for each word."""
        encoded = encode_words(self.tokenizer, sentences)
        results: list[list[str]] = [[] for _ in sentences]
        for indices in by_length([row.ids for row in encoded], batch_size):
            best_BT = self.model(*padded(self, [encoded[i].ids for i in indices])).argmax(dim=-1).tolist()
            for index, tags in zip(indices, best_BT, strict=True):
                results[index] = [self.labels[tags[place]] for place in encoded[index].first]
        return results


class MaskedModel(Pipeline):
    """A trained masked language model: it can be measured, and looked into."""

    tasks = ("masked_language_model",)


KINDS: tuple[type[Pipeline], ...] = (Translator, TextGenerator, Classifier, Tagger, MaskedModel)


def padded(pipeline: Pipeline, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Rows of ids as one rectangle, and where its tokens are, on the model's device."""
    ids, mask = pad(rows, pipeline.tokenizer.pad), length_mask([len(row) for row in rows])
    return ids.to(pipeline.device), mask.to(pipeline.device)


def by_length(rows: Sequence[Sequence[int]], batch_size: int, alike: bool = False) -> Iterator[list[int]]:
    """Which rows go together: of about the same length, or of exactly the same if `alike`; empty ones not at all."""
    order = sorted((i for i in range(len(rows)) if rows[i]), key=lambda i: len(rows[i]))
    batch: list[int] = []
    for i in order:
        if batch and (len(batch) == batch_size or (alike and len(rows[i]) != len(rows[batch[0]]))):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def filters_of(decode: DecodeConfig) -> list[Filter]:
    filters: list[Filter] = []
    if decode.temperature != 1:
        filters.append(temperature(decode.temperature))
    if decode.top_k:
        filters.append(top_k(decode.top_k))
    if decode.top_p < 1:
        filters.append(top_p(decode.top_p))
    return filters
