"""The PyTorch engine: a built model with its weights, on some device, and the searches of decode/."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from cutaway.config import Config, DecodeConfig
from cutaway.data.batching import length_mask, pad
from cutaway.decode.beam import beam_search
from cutaway.decode.filters import Filter, temperature, top_k, top_p
from cutaway.decode.request import Hypothesis, Rows, Search
from cutaway.decode.search import greedy, sample
from cutaway.decode.stepper import Stepper, TextStepper, TranslationStepper, Without
from cutaway.finetune.adapt import load_adapted
from cutaway.models.build import build_model
from cutaway.models.device import choose_device
from cutaway.models.weights import load_weights
from cutaway.nn.heads import FirstPool, MaxPool, MeanPool
from cutaway.runs import RunFolder, read_sealed

PAD = 0  # any id will do: nobody may attend to padding
EMBED_POOLS = {"mean": MeanPool(), "cls": FirstPool(), "max": MaxPool()}


class TorchEngine:
    """Every family and every choice of architecture."""

    def __init__(self, model: Any):
        self.model = model.eval()

    @classmethod
    def load(cls, run: RunFolder, config: Config, weights: Path, device: str, dtype: str) -> Self:
        with default_dtype(getattr(torch, dtype)):
            model = build_model(config.model)
        if config.finetune.is_adapter:
            load_adapted(model, config.finetune, weights, run)
        else:
            load_weights(model, read_sealed(weights), str(weights))
        return cls(model.to(choose_device(device)))

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @torch.inference_mode()
    def translate(self, sources: Rows, search: Search) -> list[list[Hypothesis]]:
        first = torch.full((len(sources),), search.bos, device=self.device)
        return found(*led(TranslationStepper(self.model, *self.padded(sources)), first, search))

    @torch.inference_mode()
    def go_on(self, prompts: Rows, search: Search) -> list[list[Hypothesis]]:
        ids = torch.tensor(prompts, device=self.device)
        return found(*led(TextStepper(self.model, ids), ids[:, -1], search))

    @torch.inference_mode()
    def probabilities(self, rows: Rows) -> list[list[float]]:
        """Of a classifier: for each text how likely each class is."""
        p_BC: list[list[float]] = self.model(*self.padded(rows)).softmax(dim=-1).tolist()
        return p_BC

    @torch.inference_mode()
    def image_probabilities(self, images: Sequence[Any]) -> list[list[float]]:
        batch = torch.stack([torch.as_tensor(image) for image in images])
        precision = next(self.model.parameters()).dtype
        p_BC: list[list[float]] = self.model(batch.to(self.device, precision)).softmax(dim=-1).tolist()
        return p_BC

    @torch.inference_mode()
    def tags(self, rows: Rows) -> list[list[int]]:
        """Of a tagger: for each token its likeliest tag."""
        best_BT: list[list[int]] = self.model(*self.padded(rows)).argmax(dim=-1).tolist()
        return best_BT

    @torch.inference_mode()
    def vectors(self, rows: Rows, pooling: str, normalize: bool) -> list[list[float]]:
        """A vector for each text: of its tokens as the head would read them, pooled; "head": by the model's own."""
        ids, mask = self.padded(rows)
        x_BTD = self.model.encode(ids, mask) if hasattr(self.model, "encode") else self.model.decode(ids, mask)
        pool = self.model.head.pool if pooling == "head" else EMBED_POOLS[pooling]
        x_BD = pool(x_BTD, mask)
        found: list[list[float]] = (F.normalize(x_BD, dim=-1) if normalize else x_BD).tolist()
        return found

    def padded(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Rows of ids as one rectangle, and where its tokens are."""
        return pad(rows, PAD).to(self.device), length_mask([len(row) for row in rows]).to(self.device)


def led(stepper: Stepper, first: Tensor, search: Search) -> tuple[Stepper, Tensor, Search]:
    """The search after the prefix that it was given: what the model itself would have written there is not asked."""
    for token in search.prefix:
        stepper.step(first)
        first = torch.full_like(first, token)
    return stepper, first, search._replace(limits=[limit - len(search.prefix) for limit in search.limits])


def found(stepper: Stepper, first: Tensor, search: Search) -> list[list[Hypothesis]]:
    """What the strategy that was asked for finds, after the prefix if there is one."""
    decode, limits, eos = search.decode, search.limits, search.eos
    if decode.suppress:
        stepper = Without(stepper, decode.suppress)
    if decode.strategy == "beam":
        size, alpha = decode.beam_size, decode.length_penalty
        return beam_search(stepper, first, limits, eos, size, alpha, search.n_best, search.watch)
    if decode.strategy == "sample":
        return [[text] for text in sample(stepper, first, limits, eos, filters_of(decode), search.draws())]
    return [[text] for text in greedy(stepper, first, limits, eos)]


def filters_of(decode: DecodeConfig) -> list[Filter]:
    filters: list[Filter] = []
    if decode.temperature != 1:
        filters.append(temperature(decode.temperature))
    if decode.top_k:
        filters.append(top_k(decode.top_k))
    if decode.top_p < 1:
        filters.append(top_p(decode.top_p))
    return filters


BUILDING = threading.Lock()


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """While a model is built, so that its tables, the sinusoids for instance, are computed in this precision.

    Torch has one default for the whole process: threads that load models take turns.
    """
    with BUILDING:
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            yield
        finally:
            torch.set_default_dtype(before)
