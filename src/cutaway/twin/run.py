"""A run folder put to work on the twin: the NumPy engine."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
import safetensors
import safetensors.numpy

from cutaway.config import Config, ModelConfig
from cutaway.decode.request import Hypothesis, Rows, Search
from cutaway.errors import ConfigError, RunError
from cutaway.finetune.base import base_of
from cutaway.finetune.merge import merged, require_lora
from cutaway.runs import RunFolder, metadata_of, read_sealed
from cutaway.twin.batch import padded
from cutaway.twin.build import build_model
from cutaway.twin.model import Model
from cutaway.twin.ops import Array
from cutaway.twin.search import Beam, Line, Sample, Stepper, TextStepper, TranslationStepper, Without, Writer, write


class NumpyEngine:
    """Translators and text generators. Attention spells out its matrices: for texts of moderate length."""

    def __init__(self, model: Model):
        self.model = model

    @classmethod
    def load(cls, run: RunFolder, config: Config, weights: Path, device: str = "cpu", dtype: str = "float32") -> Self:
        if device not in ("auto", "cpu"):
            raise ConfigError(f"engine 'numpy' runs on the CPU, not on device {device!r}. Use engine 'torch' for that.")
        if config.finetune.is_adapter:
            return cls(load_adapted(run, config, weights, dtype))
        return cls(load_model(config.model, weights, dtype))

    def translate(self, sources: Rows, search: Search) -> list[list[Hypothesis]]:
        ids, mask = padded(sources)
        return written(TranslationStepper(self.model, ids, mask), [search.bos] * len(ids), search)  # type: ignore[arg-type]

    def go_on(self, prompts: Rows, search: Search) -> list[list[Hypothesis]]:
        return written(TextStepper(self.model, np.array(prompts)), [row[-1] for row in prompts], search)  # type: ignore[arg-type]


def load_model(config: ModelConfig, weights: Path, dtype: str = "float32") -> Model:
    """The twin of a trained model."""
    model = build_model(config)
    model.load(arrays(read_sealed(weights), str(weights)), dtype, str(weights))
    return model


def load_adapted(run: RunFolder, config: Config, weights: Path, dtype: str = "float32") -> Model:
    """The twin of a model that LoRA has changed: what was learned is added into the weights of the base."""
    require_lora(config.finetune, "engine 'numpy'", "Use engine 'torch'.")
    base, model = base_of(weights, config.finetune, run), build_model(config.model)
    of_base, adapter = arrays(base.read(), str(base.run.weights)), arrays(read_sealed(weights), str(weights))
    model.load(merged(of_base, adapter, metadata_of(weights), config.finetune), dtype, str(weights))
    return model


# names of the safetensors format -> NumPy's; bfloat16, which NumPy lacks, is the upper half of a float32
DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "uint16"}


def arrays(content: bytes, where: str) -> dict[str, Array]:
    """The tensors of a safetensors file."""
    found = {}
    for name, entry in safetensors.deserialize(content):
        if entry["dtype"] not in DTYPES:
            raise RunError(
                f"{name} in {where} is of type {entry['dtype']}; engine 'numpy' reads {', '.join(DTYPES)}. "
                "Use engine 'torch'."
            )
        array = np.frombuffer(entry["data"], DTYPES[entry["dtype"]]).reshape(entry["shape"])
        found[name] = (array.astype(np.uint32) << 16).view(np.float32) if entry["dtype"] == "BF16" else array
    return found


def written(stepper: Stepper, first: list[int], search: Search) -> list[list[Hypothesis]]:
    """What the strategy that was asked for writes."""
    if search.prefix or search.watch:
        raise ConfigError('the NumPy engine can be neither led nor watched. Load the run with engine="torch".')
    decode, eos = search.decode, search.eos
    if decode.suppress:
        stepper = Without(stepper, decode.suppress)
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
