"""A LoRA run as an ordinary one: what was learned is added into the weights of the base. No torch here."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from cutaway.config import Config, FinetuneConfig
from cutaway.errors import RunError
from cutaway.runs import RunFolder
from cutaway.runs.base import base_of
from cutaway.runs.files import replacing_folder
from cutaway.runs.folder import RUN_FILES, check_target
from cutaway.runs.recipe import is_run
from cutaway.runs.weights import metadata_of, sealed

Arrays = Mapping[str, NDArray[Any]]
DOWN, UP = ".down", ".up"  # how the names of a LoRALinear's own matrices end


def can_merge(finetune: FinetuneConfig) -> bool:
    """Whether an adapter can become a part of plain weights."""
    return finetune.method == "lora"


def require_lora(finetune: FinetuneConfig, what: str, remedy: str) -> None:
    if not can_merge(finetune):
        raise RunError(
            f"{what} needs plain weights. What finetune.method = {finetune.method!r} learned are vectors that stand "
            f"beside them, which no plain model has; only LoRA's matrices can be merged. {remedy}"
        )


def merged(
    base: Arrays, adapter: Arrays, about: Mapping[str, str], finetune: FinetuneConfig
) -> dict[str, NDArray[Any]]:
    """The weights of a base with an adapter in them: W + α/r · up · down, in double precision; all else as it is."""
    has_new_head = about.get("head") == "new"
    result = {name: value for name, value in base.items() if not (has_new_head and name.startswith("head."))}
    result |= {name: value for name, value in adapter.items() if not name.endswith((DOWN, UP))}
    for name, down in adapter.items():  # last: a weight may have been trained itself, and have matrices beside it
        if name.endswith(DOWN):
            part = name.removesuffix(DOWN)
            added = finetune.alpha / finetune.rank * (adapter[part + UP].astype("float64") @ down.astype("float64"))
            result[f"{part}.weight"] = result[f"{part}.weight"] + added
    return result


def merge_run(run: str | Path, folder: str | Path, overwrite: bool = False) -> Path:
    """Write a LoRA run as one that needs no base: config, tokenizer, labels and all weights."""
    source, target = RunFolder(run).require(), Path(folder)
    config = source.read_config()
    if not config.finetune.is_adapter:
        raise RunError(
            f"{source} is no adapter (finetune.method = {config.finetune.method!r}): it has all its weights."
        )
    require_lora(config.finetune, f"a copy of {source} without its base", "Keep the run and its base.")
    check_target(target, overwrite, is_run, RUN_FILES.__contains__)
    base = base_of(source.weights, config.finetune, source)
    for needed in (source.path, base.run.path):
        if target.exists() and target.samefile(needed):
            raise RunError(f"{target} is what this is made of, so it is not replaced. Name another folder.")
    of_base, adapter = (safetensors.numpy.load(content) for content in (base.read(), source.read_weights()))
    weights = merged(of_base, adapter, metadata_of(source.weights), config.finetune)
    weights = {name: np.asarray(value, of_base.get(name, value).dtype) for name, value in weights.items()}
    with replacing_folder(target) as temporary:
        place = RunFolder(temporary)
        place.model.write_bytes(sealed(safetensors.numpy.save(weights)))
        for name in ("tokenizer", "tokenizer_roles", "labels", "data", "metrics", "scores"):
            if getattr(source, name).is_file():
                shutil.copyfile(getattr(source, name), getattr(place, name))
        place.write_config(without_base(config))
    return target


def without_base(config: Config) -> Config:
    return dataclasses.replace(config, finetune=FinetuneConfig())
