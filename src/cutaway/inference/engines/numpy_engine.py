"""A run folder put to work on the twin: the NumPy engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
import safetensors
import safetensors.numpy

from cutaway.config import Config
from cutaway.errors import ConfigError, RunError
from cutaway.runs import RunFolder
from cutaway.runs.base import base_of, shapes_of_model
from cutaway.runs.merge import merged, require_lora
from cutaway.runs.weights import check_sizes, metadata_of
from cutaway.search.request import Hypothesis, Rows, Search, Start
from cutaway.twin.batch import pad
from cutaway.twin.beam import Beam
from cutaway.twin.build import build_model
from cutaway.twin.model import Model
from cutaway.twin.ops import Array
from cutaway.twin.rules import Rules
from cutaway.twin.search import GreedySearch, SamplingSearch, SearchTask, TextSearch, run_searches
from cutaway.twin.stepper import Stepper, TextStepper, TranslationStepper


class NumpyEngine:
    """Translators and text generators. Attention spells out its matrices: for texts of moderate length."""

    def __init__(self, model: Model):
        self.model = model

    @classmethod
    def load(cls, run: RunFolder, config: Config, weights: Path, device: str = "cpu", dtype: str = "float32") -> Self:
        if device not in ("auto", "cpu"):
            raise ConfigError(f"engine 'numpy' runs on the CPU, not on device {device!r}. Use engine 'torch' for that.")
        if dtype not in ("float32", "float64"):
            raise ConfigError(f"engine 'numpy' computes in float32 or float64, not in {dtype!r}. Use engine 'torch'.")
        return cls(load_model(run, config, weights, dtype))

    def translate(self, sources: Rows, search: Search) -> list[list[Hypothesis]]:
        search.check(has_source=True)
        start = Start.of([[search.bos]] * len(sources), search.prefixes, is_history=False)
        stepper = TranslationStepper(self.model, *pad(sources), search.is_looking)  # type: ignore[arg-type]
        return run_search(stepper, start, search, [len(source) for source in sources])

    def generate(self, prompts: Rows, search: Search) -> list[list[Hypothesis]]:
        search.check(has_source=False)
        start = Start.of(prompts, search.prefixes, is_history=True)
        return run_search(TextStepper(self.model, np.array(start.prompts)), start, search)  # type: ignore[arg-type]


def load_model(run: RunFolder, config: Config, weights: Path, dtype: str = "float32") -> Model:
    """The twin of a trained model. What LoRA has learned is added into the weights of its base."""
    if config.finetune.is_adapter:
        require_lora(config.finetune, "engine 'numpy'", "Use engine 'torch'.")
    check_sizes(config.model, shapes_of_model(run, config, weights), str(weights))
    model, tensors = build_model(config.model), arrays(run.read_weights(weights), str(weights))
    if config.finetune.is_adapter:
        base = base_of(weights, config.finetune, run)
        tensors = merged(arrays(base.read(), str(base.run.weights)), tensors, metadata_of(weights), config.finetune)
    model.load(tensors, dtype, str(weights))
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


def run_search(
    stepper: Stepper, start: Start, search: Search, source_lengths: Sequence[int] = ()
) -> list[list[Hypothesis]]:
    """What the strategy that was asked for writes."""
    if search.watch:
        raise ConfigError('the NumPy engine cannot be watched. Load the run with engine="torch".')
    lengths = source_lengths or [0] * len(search.limits)
    tasks = [
        SearchTask(limit, start.forced[text], Rules(search, start, text), search, lengths[text])
        for text, limit in enumerate(search.limits)
    ]
    writers: list[TextSearch]
    if search.decode.strategy == "beam":
        writers = [Beam(task) for task in tasks]
    elif search.decode.strategy == "sample":
        writers = [SamplingSearch(task, draw) for task, draw in zip(tasks, search.draws(), strict=True)]
    else:
        writers = [GreedySearch(task) for task in tasks]
    return run_searches(stepper, start.first, writers, search.wanted)


def weights_to_bytes(model: Model) -> bytes:
    """In the safetensors format, in single precision, as the PyTorch models are saved."""
    return safetensors.numpy.save({n: np.ascontiguousarray(p.value, np.float32) for n, p in model.parameters().items()})
