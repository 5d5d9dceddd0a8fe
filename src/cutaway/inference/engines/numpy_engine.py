"""The NumPy engine: runs a run folder with the NumPy twin."""

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
from cutaway.runs.base import find_adapter_base, model_shapes
from cutaway.runs.merge import merge_weights, require_lora
from cutaway.runs.weights import check_sizes, read_metadata
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
    """Translators and text generators. Attention stores its whole [Q,K] matrix, so texts should not be very long."""

    def __init__(self, model: Model):
        self.model = model

    @classmethod
    def load(cls, run: RunFolder, config: Config, weights: Path, device: str = "cpu", dtype: str = "float32") -> Self:
        if device not in ("auto", "cpu"):
            raise ConfigError(f"engine 'numpy' runs on the CPU, not on device {device!r}. Use engine 'torch'.")
        if dtype not in ("float32", "float64"):
            raise ConfigError(f"engine 'numpy' computes in float32 or float64, not in {dtype!r}. Use engine 'torch'.")
        return cls(load_model(run, config, weights, dtype))

    def translate(self, sources: Rows, search: Search) -> list[list[Hypothesis]]:
        search.check(has_source=True)
        start = Start.of([[search.bos]] * len(sources), search.prefixes, is_history=False)
        stepper = TranslationStepper(self.model, *pad(sources), search.needs_source_weights)  # type: ignore[arg-type]
        return run_search(stepper, start, search, [len(source) for source in sources])

    def generate(self, prompts: Rows, search: Search) -> list[list[Hypothesis]]:
        search.check(has_source=False)
        start = Start.of(prompts, search.prefixes, is_history=True)
        return run_search(TextStepper(self.model, np.array(start.prompts)), start, search)  # type: ignore[arg-type]


def load_model(run: RunFolder, config: Config, weights: Path, dtype: str = "float32") -> Model:
    """Load a trained model as a twin model. A LoRA adapter is merged into its base."""
    if config.finetune.is_adapter:
        require_lora(config.finetune, "engine 'numpy'", "Use engine 'torch'.")
    check_sizes(config.model, model_shapes(run, config, weights), str(weights))
    model, tensors = build_model(config.model), read_arrays(run.read_weights(weights), str(weights))
    if config.finetune.is_adapter:
        base = find_adapter_base(weights, config.finetune, run)
        tensors = merge_weights(
            read_arrays(base.read(), str(base.run.weights)), tensors, read_metadata(weights), config.finetune
        )
    model.load(tensors, dtype, str(weights))
    return model


# safetensors type -> NumPy type. NumPy has no bfloat16, so it is read as the upper half of a float32.
DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "uint16"}


def read_arrays(content: bytes, where: str) -> dict[str, Array]:
    """The tensors of a safetensors file."""
    found = {}
    for name, entry in safetensors.deserialize(content):
        if entry["dtype"] not in DTYPES:
            raise RunError(
                f"{name} in {where} has the type {entry['dtype']}; engine 'numpy' reads {', '.join(DTYPES)}. "
                "Use engine 'torch'."
            )
        array = np.frombuffer(entry["data"], DTYPES[entry["dtype"]]).reshape(entry["shape"])
        found[name] = (array.astype(np.uint32) << 16).view(np.float32) if entry["dtype"] == "BF16" else array
    return found


def run_search(
    stepper: Stepper, start: Start, search: Search, source_lengths: Sequence[int] = ()
) -> list[list[Hypothesis]]:
    """Run the search with the requested strategy."""
    if search.on_step:
        raise ConfigError("engine 'numpy' does not support a step callback. Use engine 'torch'.")
    lengths = source_lengths or [0] * len(search.limits)
    tasks = [
        SearchTask(limit, start.forced[text], Rules(search, start, text), search, lengths[text])
        for text, limit in enumerate(search.limits)
    ]
    searches: list[TextSearch]
    if search.decode.strategy == "beam":
        searches = [Beam(task) for task in tasks]
    elif search.decode.strategy == "sample":
        searches = [SamplingSearch(task, generator) for task, generator in zip(tasks, search.generators(), strict=True)]
    else:
        searches = [GreedySearch(task) for task in tasks]
    return run_searches(stepper, start.first, searches, search.should_continue)


def weights_to_bytes(model: Model) -> bytes:
    """The weights in the safetensors format and in float32, as PyTorch models are saved."""
    return safetensors.numpy.save({n: np.ascontiguousarray(p.value, np.float32) for n, p in model.parameters().items()})
