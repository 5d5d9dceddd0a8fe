"""Generated texts for each validation, and BLEU if it selects the best checkpoint."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from torch import nn

from cutaway.config import Config, DecodeConfig
from cutaway.data.tasks import Encoded
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError
from cutaway.inference.engines.torch_engine import TorchEngine
from cutaway.inference.pipelines import TextGenerator, Translator
from cutaway.metrics.scores import bleu, require_sacrebleu
from cutaway.train.observers import Sample, ValidationResult

MAX_NEW_TOKENS = 60  # of a sample of a text generator
PROMPT_TOKENS = 16


class ValidationSamples:
    """Add generated texts and BLEU to a validation result.

    Translations use greedy search, which is fast. A language model samples if decode.strategy is "sample", with
    decode.seed, so all validations use the same random numbers, and the random numbers of the training do not change.
    """

    def __init__(self, config: Config, tokenizer: Tokenizer | None, valid: Sequence[Encoded]):
        self.config, self.tokenizer = config, tokenizer
        self.count, self.needs_bleu = config.train.samples, config.train.best_by == "bleu"
        self.valid: Sequence[Any] = valid
        task = config.model.task
        if self.needs_bleu and (task != "translation" or not valid):
            raise ConfigError(
                f"train.best_by = 'bleu' needs a translation task and validation data; this recipe is for "
                f"{task.replace('_', ' ')}. Use best_by = 'loss'."
            )
        if self.needs_bleu:
            require_sacrebleu("train.best_by = 'bleu'")

    def __call__(self, model: nn.Module, result: ValidationResult) -> ValidationResult:
        task = self.config.model.task
        if not math.isfinite(result.nll):  # the model has diverged
            return result._replace(bleu=0.0 if self.needs_bleu else None)
        if task == "translation":
            return self.add_translations(model, result)
        if task == "language_model" and self.count and self.valid:
            return result._replace(samples=tuple(self.generate_continuations(model)))
        return result

    def add_translations(self, model: nn.Module, result: ValidationResult) -> ValidationResult:
        assert self.tokenizer is not None
        chosen = self.valid if self.needs_bleu else self.valid[: self.count]
        if not chosen:
            return result
        sources, references = ([self.tokenizer.decode(pair[i]) for pair in chosen] for i in (0, 1))
        translator = Translator(TorchEngine(model), self.tokenizer, self.config)
        translations = translator.translate(sources, DecodeConfig(strategy="greedy"))
        samples = [Sample(*row) for row in zip(sources, translations, references, strict=True)][: self.count]
        score = bleu(translations, references).value if self.needs_bleu else None
        return result._replace(bleu=score, samples=tuple(samples))

    def generate_continuations(self, model: nn.Module) -> list[Sample]:
        assert self.tokenizer is not None
        prompts = [self.tokenizer.decode(chunk.ids[:PROMPT_TOKENS]) for chunk in self.valid[: self.count]]
        generator = TextGenerator(TorchEngine(model), self.tokenizer, self.config)
        longest = min(MAX_NEW_TOKENS, self.config.longest_text - PROMPT_TOKENS)
        strategy: Any = "sample" if self.config.decode.strategy == "sample" else "greedy"
        decode = dataclasses.replace(self.config.decode, strategy=strategy, min_length=0, max_length=max(1, longest))
        texts = generator.generate(prompts, decode)
        return [Sample(prompt, text[len(prompt) :], "") for prompt, text in zip(prompts, texts, strict=True)]
