"""Merge a LoRA run with its base: its matrices are added to the weights of the base. No torch here."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from cutaway.config import FinetuneConfig
from cutaway.errors import RunError
from cutaway.runs import RunFolder
from cutaway.runs.base import find_adapter_base
from cutaway.runs.files import replacing_folder
from cutaway.runs.folder import RUN_FILES, check_target
from cutaway.runs.recipe import is_run
from cutaway.runs.weights import read_metadata, seal_weights

Arrays = Mapping[str, NDArray[Any]]
DOWN, UP = ".down", ".up"  # the ends of the names of LoRA's matrices


def can_merge(finetune: FinetuneConfig) -> bool:
    """Whether an adapter can be merged into the weights of its base."""
    return finetune.method == "lora"


def require_lora(finetune: FinetuneConfig, what: str, remedy: str) -> None:
    if not can_merge(finetune):
        raise RunError(
            f"{what} needs one set of weights, and finetune.method = {finetune.method!r} adds vectors that cannot be "
            f"merged into the weights of the base. Only method = 'lora' can be merged. {remedy}"
        )


def merge_weights(
    base: Arrays, adapter: Arrays, metadata: Mapping[str, str], finetune: FinetuneConfig
) -> dict[str, NDArray[Any]]:
    """Add a LoRA adapter to the weights of its base: W + α/r · up · down, in double precision."""
    has_new_head = metadata.get("head") == "new"
    result = {name: value for name, value in base.items() if not (has_new_head and name.startswith("head."))}
    result |= {name: value for name, value in adapter.items() if not name.endswith((DOWN, UP))}
    for name, down in adapter.items():  # last: a weight in also_train may have LoRA matrices, too
        if name.endswith(DOWN):
            module = name.removesuffix(DOWN)
            added = finetune.alpha / finetune.rank * (adapter[module + UP].astype("float64") @ down.astype("float64"))
            result[f"{module}.weight"] = result[f"{module}.weight"] + added
    return result


def merge_run(run: str | Path, folder: str | Path, overwrite: bool = False) -> Path:
    """Write a LoRA run, merged with its base, into a new run folder that needs no base."""
    source, target = RunFolder(run).require(), Path(folder)
    config = source.read_config()
    if not config.finetune.is_adapter:
        raise RunError(
            f"{source} is not an adapter (finetune.method = {config.finetune.method!r}). It needs no merging."
        )
    require_lora(config.finetune, f"merging {source}", "Keep the run and its base.")
    check_target(target, overwrite, is_run, RUN_FILES.__contains__)
    base = find_adapter_base(source.weights, config.finetune, source)
    for needed in (source.path, base.run.path):
        if target.exists() and target.samefile(needed):
            raise RunError(f"{target} is one of the runs to merge, so it is not replaced. Name another folder.")
    base_weights, adapter = (safetensors.numpy.load(content) for content in (base.read(), source.read_weights()))
    weights = merge_weights(base_weights, adapter, read_metadata(source.weights), config.finetune)
    weights = {name: np.asarray(value, base_weights.get(name, value).dtype) for name, value in weights.items()}
    with replacing_folder(target) as temporary:
        merged = RunFolder(temporary)
        merged.model.write_bytes(seal_weights(safetensors.numpy.save(weights)))
        for name in ("tokenizer", "tokenizer_roles", "labels", "data", "metrics", "scores"):
            if getattr(source, name).is_file():
                shutil.copyfile(getattr(source, name), getattr(merged, name))
        merged.write_config(dataclasses.replace(config, finetune=FinetuneConfig()))
    return target
