"""What a validation shows beside its loss: a few texts that the model writes, and BLEU if the best is chosen by it."""

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
from cutaway.train.observers import Measured, Sample

LONGEST = 60  # tokens that a text generator writes at each validation
PROMPT = 16  # of how many it is given


class Look:
    """Writes with the model as it is. Translations are greedy, which is quick. A language model whose run draws texts
    draws here too, with the seed of its [decode]: the same chance at each validation, and apart from the training's."""

    def __init__(self, config: Config, tokenizer: Tokenizer | None, valid: Sequence[Encoded]):
        self.config, self.tokenizer = config, tokenizer
        self.count, self.by_bleu = config.train.samples, config.train.best_by == "bleu"
        self.valid: Sequence[Any] = valid
        task = config.model.task
        if self.by_bleu and (task != "translation" or not valid):
            raise ConfigError(
                f"train.best_by = 'bleu' needs a translator and validation data; this recipe is for "
                f"{task.replace('_', ' ')}. Use best_by = 'loss'."
            )
        if self.by_bleu:
            require_sacrebleu("train.best_by = 'bleu'")

    def __call__(self, model: nn.Module, measured: Measured) -> Measured:
        task = self.config.model.task
        if not math.isfinite(measured.nll):  # a model that has diverged writes nothing
            return measured._replace(bleu=0.0 if self.by_bleu else None)
        if task == "translation":
            return self.translations(model, measured)
        if task == "language_model" and self.count and self.valid:
            return measured._replace(samples=tuple(self.continuations(model)))
        return measured

    def translations(self, model: nn.Module, measured: Measured) -> Measured:
        assert self.tokenizer is not None
        chosen = self.valid if self.by_bleu else self.valid[: self.count]
        if not chosen:
            return measured
        sources, references = ([self.tokenizer.decode(pair[i]) for pair in chosen] for i in (0, 1))
        translator = Translator(TorchEngine(model), self.tokenizer, self.config)
        written = translator.translate(sources, DecodeConfig(strategy="greedy"))
        samples = [Sample(*row) for row in zip(sources, written, references, strict=True)][: self.count]
        score = bleu(written, references).value if self.by_bleu else None
        return measured._replace(bleu=score, samples=tuple(samples))

    def continuations(self, model: nn.Module) -> list[Sample]:
        assert self.tokenizer is not None
        prompts = [self.tokenizer.decode(piece.ids[:PROMPT]) for piece in self.valid[: self.count]]
        generator = TextGenerator(TorchEngine(model), self.tokenizer, self.config)
        longest = min(LONGEST, self.config.longest_text - PROMPT)
        strategy: Any = "sample" if self.config.decode.strategy == "sample" else "greedy"
        decode = dataclasses.replace(self.config.decode, strategy=strategy, min_length=0, max_length=max(1, longest))
        texts = generator.generate(prompts, decode)
        return [Sample(prompt, text[len(prompt) :], "") for prompt, text in zip(prompts, texts, strict=True)]
