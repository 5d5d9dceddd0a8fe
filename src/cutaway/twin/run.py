"""A run folder put to work on the twin: the NumPy engine."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
import safetensors.numpy

from cutaway.config import ModelConfig
from cutaway.decode.request import Hypothesis, Rows, Search
from cutaway.errors import ConfigError
from cutaway.runs import check_fit, read_sealed
from cutaway.twin.batch import padded
from cutaway.twin.model import Model, build_model
from cutaway.twin.search import Beam, Line, Sample, Stepper, TextStepper, TranslationStepper, Writer, write


class NumpyEngine:
    """Translators and text generators, in memory that the weights and little else need."""

    def __init__(self, model: Model):
        self.model = model

    @classmethod
    def load(cls, config: ModelConfig, weights: Path, device: str = "cpu", dtype: str = "float32") -> Self:
        if device not in ("auto", "cpu"):
            raise ConfigError(f"engine 'numpy' runs on the CPU, not on device {device!r}. Use engine 'torch' for that.")
        return cls(load_model(config, weights, dtype))

    def translate(self, sources: Rows, search: Search) -> list[list[Hypothesis]]:
        ids, mask = padded(sources)
        return written(TranslationStepper(self.model, ids, mask), [search.bos] * len(ids), search)  # type: ignore[arg-type]

    def go_on(self, prompts: Rows, search: Search) -> list[list[Hypothesis]]:
        return written(TextStepper(self.model, np.array(prompts)), [row[-1] for row in prompts], search)  # type: ignore[arg-type]


def load_model(config: ModelConfig, weights: Path, dtype: str = "float32") -> Model:
    """The twin of a trained model."""
    model = build_model(config)
    saved = safetensors.numpy.load(read_sealed(weights))
    shapes = {name: parameter.value.shape for name, parameter in model.parameters().items()}
    check_fit(shapes, {name: array.shape for name, array in saved.items()}, str(weights))
    model.load(saved)
    model.to(dtype)
    return model


def written(stepper: Stepper, first: list[int], search: Search) -> list[list[Hypothesis]]:
    """What the strategy that was asked for writes."""
    decode, eos = search.decode, search.eos
    writers: list[Writer]
    if decode.strategy == "beam":
        size, alpha = decode.beam_size, decode.length_penalty
        writers = [Beam(limit, eos, size, alpha, search.n_best) for limit in search.limits]
    elif decode.strategy == "sample":
        draws = search.draws()
        writers = [Sample(limit, eos, decode, draw) for limit, draw in zip(search.limits, draws, strict=True)]
    else:
        writers = [Line(limit, eos) for limit in search.limits]
    return write(stepper, first, writers)


def weights_to_bytes(model: Model) -> bytes:
    """In the safetensors format, in single precision, as the PyTorch models are saved."""
    return safetensors.numpy.save({n: np.ascontiguousarray(p.value, np.float32) for n, p in model.parameters().items()})
