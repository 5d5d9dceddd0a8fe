"""The PyTorch engine: a model with its weights on a device, and the searches of decode/."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from cutaway.config import Config
from cutaway.data.batching import length_mask, pad
from cutaway.decode.alignment import Coverage
from cutaway.decode.beam import beam_search
from cutaway.decode.filters import build_filters
from cutaway.decode.rules import RuledStepper, TokenHistory, build_rules
from cutaway.decode.sampling import greedy, sample
from cutaway.decode.stepper import Stepper, TextStepper
from cutaway.errors import ConfigError, DataError
from cutaway.finetune.adapt import load_with_adapter
from cutaway.inference.fast.prepare import prepare_model, share_memories
from cutaway.inference.fast.stepper import FastTranslationStepper
from cutaway.models.build import build_model
from cutaway.models.device import choose_device
from cutaway.models.weights import load_weights
from cutaway.nn.heads import FirstPool, MaxPool, MeanPool
from cutaway.runs import RunFolder
from cutaway.runs.base import model_shapes
from cutaway.runs.weights import check_sizes
from cutaway.search.request import Hypothesis, Rows, Search, Start

PAD = 0  # any id works, because padding is masked
EMBED_POOLS = {"mean": MeanPool(), "cls": FirstPool(), "max": MaxPool()}


class TorchEngine:
    """All model families and architectures."""

    def __init__(self, model: Any):
        self.model = model.eval()

    @classmethod
    def load(cls, run: RunFolder, config: Config, weights: Path, device: str, dtype: str) -> Self:
        check_sizes(config.model, model_shapes(run, config, weights), str(weights))
        int8 = dtype == "int8"
        with default_dtype(torch.float32 if int8 else getattr(torch, dtype)):
            model = build_model(config.model)
        if config.finetune.is_adapter:
            load_with_adapter(model, config.finetune, weights, run)
        else:
            load_weights(model, run.read_weights(weights), str(weights))
        target_device = choose_device(device, dtype)
        if int8 and target_device.type != "cpu":
            raise ConfigError(
                f"dtype 'int8' needs the CPU; the device is {target_device}. Use device 'cpu' or dtype 'float32'."
            )
        model.to(target_device)
        if target_device.type == "cpu":
            prepare_model(model, int8)
        else:
            share_memories(model)
        return cls(model)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @torch.inference_mode()
    def translate(self, sources: Rows, search: Search) -> list[list[Hypothesis]]:
        search.check(has_source=True)
        start = Start.of([[search.bos]] * len(sources), search.prefixes, is_history=False)
        stepper = FastTranslationStepper(self.model, *self.pad_rows(sources), search.needs_source_weights)
        coverage = None
        if search.needs_source_weights:
            beta = search.decode.coverage_penalty if search.has_coverage else 0.0
            coverage = Coverage([len(source) for source in sources], search.with_alignment, beta)
        return run_search(stepper, start, search, self.device, coverage)

    @torch.inference_mode()
    def generate(self, prompts: Rows, search: Search) -> list[list[Hypothesis]]:
        search.check(has_source=False)
        start = Start.of(prompts, search.prefixes, is_history=True)
        stepper = TextStepper(self.model, torch.tensor(start.prompts, device=self.device))
        return run_search(stepper, start, search, self.device)

    @torch.inference_mode()
    def probabilities(self, rows: Rows) -> list[list[float]]:
        """For a classifier: the probability of each class, for each text."""
        p_BC: list[list[float]] = require_finite(self.model(*self.pad_rows(rows)).softmax(dim=-1)).tolist()
        return p_BC

    @torch.inference_mode()
    def image_probabilities(self, images: Sequence[Any]) -> list[list[float]]:
        batch = torch.stack([torch.as_tensor(image) for image in images])
        precision = next(self.model.parameters()).dtype
        p_BC: list[list[float]] = require_finite(self.model(batch.to(self.device, precision)).softmax(dim=-1)).tolist()
        return p_BC

    @torch.inference_mode()
    def tags(self, rows: Rows) -> list[list[int]]:
        """For a tagger: the most probable tag of each token."""
        best_BT: list[list[int]] = require_finite(self.model(*self.pad_rows(rows))).argmax(dim=-1).tolist()
        return best_BT

    @torch.inference_mode()
    def vectors(self, rows: Rows, pooling: str, normalize: bool) -> list[list[float]]:
        """One vector for each text: the pooled output of the last layer. pooling "head": as in the model's head."""
        ids, mask = self.pad_rows(rows)
        x_BTD = self.model.encode(ids, mask) if hasattr(self.model, "encode") else self.model.decode(ids, mask)
        pool = self.model.head.pool if pooling == "head" else EMBED_POOLS[pooling]
        x_BD = require_finite(pool(x_BTD, mask))
        found: list[list[float]] = (F.normalize(x_BD, dim=-1) if normalize else x_BD).tolist()
        return found

    def pad_rows(self, rows: Rows) -> tuple[Tensor, Tensor | None]:
        """Pad rows of ids. -> ids [B,T], mask [B,T] (True at tokens; None: no padding, which is faster)"""
        ids, lengths = pad(rows, PAD).to(self.device), [len(row) for row in rows]
        return ids, None if min(lengths) == max(lengths) else length_mask(lengths).to(self.device)


def require_finite(x: Tensor) -> Tensor:
    if not x.isfinite().all():
        raise DataError(
            "the model's output is not finite. The training diverged or the weights are damaged. Use an earlier "
            "checkpoint."
        )
    return x


def run_search(
    stepper: Stepper, start: Start, search: Search, device: torch.device | None = None, coverage: Coverage | None = None
) -> list[list[Hypothesis]]:
    """Run the search with the requested strategy."""
    decode, limits, eos, forced = search.decode, search.limits, search.eos, start.forced if any(start.forced) else ()
    first = torch.tensor(start.first, device=device)
    if search.has_rules:
        stepper = RuledStepper(stepper, build_rules(search), TokenHistory(start, first.device))
    if decode.strategy == "beam":
        size, alpha, n_best = decode.beam_size, decode.length_penalty, search.n_best
        return beam_search(
            stepper, first, limits, eos, size, alpha, n_best, search.on_step, forced, coverage, search.should_continue
        )
    if decode.strategy == "sample":
        filters, generators = build_filters(decode), search.generators()
        texts = sample(
            stepper, first, limits, eos, filters, generators, forced, search.on_token, coverage, search.should_continue
        )
    else:
        texts = greedy(stepper, first, limits, eos, forced, search.on_token, coverage, search.should_continue)
    return [[text] for text in texts]


DTYPE_LOCK = threading.Lock()


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Set torch's default dtype while a model is built, so that its constant tables have this precision.

    The default is global to the process, so a lock serializes threads that load models.
    """
    with DTYPE_LOCK:
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            yield
        finally:
            torch.set_default_dtype(before)
