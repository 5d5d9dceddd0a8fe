"""Text in, text out: a trained run put to work. `Translator.load` is the one way back from a run folder.

translator = Translator.load("runs/demo")
translator.translate(["The small cat sleeps."])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from cutaway.config import Config, DecodeConfig
from cutaway.data.batching import length_mask, pad
from cutaway.data.tokenizer import Tokenizer
from cutaway.decode.beam import beam_search
from cutaway.decode.filters import Filter, temperature, top_k, top_p
from cutaway.decode.search import Hypothesis, greedy, sample
from cutaway.decode.stepper import Stepper, TranslationStepper
from cutaway.errors import RunError
from cutaway.models.build import build_model
from cutaway.models.device import choose_device
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.models.weights import load_weights
from cutaway.runs import RunFolder, read_sealed

EXTRA_LENGTH = 50  # a translation may have this many tokens more than its source (the paper, section 6.1)


class Translator:
    """A trained encoder-decoder with its tokenizer."""

    def __init__(self, model: EncoderDecoder, tokenizer: Tokenizer, config: Config):
        self.model, self.tokenizer, self.config = model, tokenizer, config

    @classmethod
    def load(cls, run: str | Path, device: str = "auto", weights: Path | None = None) -> Translator:
        """Read a run folder; `weights` may name a snapshot or a checkpoint's weights instead of the best ones."""
        folder = RunFolder(run).require()
        config = folder.read_config()
        model = build_model(config.model)
        path = weights or folder.weights
        load_weights(model, read_sealed(path), str(path))
        tokenizer = Tokenizer.open(folder.tokenizer)
        if tokenizer.vocab_size != config.model.vocab_size:
            raise RunError(
                f"{folder.tokenizer} has {tokenizer.vocab_size} tokens, the model {config.model.vocab_size}: it is not "
                "the tokenizer that this model was trained with. Restore it."
            )
        return cls(model.to(choose_device(device)).eval(), tokenizer, config)

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
        order = sorted((i for i in range(len(texts)) if encoded[i]), key=lambda i: len(encoded[i]))
        generator = torch.Generator(self.device).manual_seed(decode.seed)
        for start in range(0, len(order), decode.batch_size):
            indices = order[start : start + decode.batch_size]
            rows = [[*encoded[i], self.tokenizer.eos] for i in indices]
            stepper = TranslationStepper(
                self.model,
                pad(rows, self.tokenizer.pad).to(self.device),
                length_mask([len(row) for row in rows]).to(self.device),
            )
            limits = [self.longest_output(len(encoded[i]), decode) for i in indices]
            yield indices, self.search(stepper, limits, decode, n_best, generator)

    def search(
        self,
        stepper: Stepper,
        limits: list[int],
        decode: DecodeConfig,
        n_best: int,
        generator: torch.Generator,
    ) -> list[list[Hypothesis]]:
        bos, eos, device = self.tokenizer.bos, self.tokenizer.eos, str(self.device)
        if decode.strategy == "beam":
            size, alpha = decode.beam_size, decode.length_penalty
            return beam_search(stepper, limits, bos, eos, size, alpha, n_best, device)
        if decode.strategy == "sample":
            return [[h] for h in sample(stepper, limits, bos, eos, filters_of(decode), generator, device)]
        return [[h] for h in greedy(stepper, limits, bos, eos, device)]

    def longest_output(self, source_length: int, decode: DecodeConfig) -> int:
        """A limit of each text's own, so that a translation does not depend on the batch that it is in."""
        return min(decode.max_length or source_length + EXTRA_LENGTH, self.config.model.max_length)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device


def filters_of(decode: DecodeConfig) -> list[Filter]:
    filters: list[Filter] = []
    if decode.temperature != 1:
        filters.append(temperature(decode.temperature))
    if decode.top_k:
        filters.append(top_k(decode.top_k))
    if decode.top_p < 1:
        filters.append(top_p(decode.top_p))
    return filters
