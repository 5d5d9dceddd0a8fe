"""Checkpoints: everything that a stopped training needs to continue as if it had never stopped.

They hold no state of random generators: random numbers depend on the seed and the step only (Trainer.seed_dropout).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from cutaway.errors import CutawayWarning, RunError
from cutaway.models.weights import copy_tensors, distribute_like, trainable_parameters
from cutaway.runs import RunFolder
from cutaway.runs.files import read_sealed_json, replacing_folder, write_bytes, write_sealed_json
from cutaway.runs.resuming import ANOTHER_FOLDER, require_checkpoint
from cutaway.runs.weights import read_metadata, read_sealed, seal_weights
from cutaway.train.ema import Ema

MODEL, OPTIMIZER, EMA, STATE = "model.safetensors", "optimizer.safetensors", "ema.safetensors", "state.json"
ADAPTER = "adapter.safetensors"  # instead of the model, if its base is not changed
AdapterMetadata = Mapping[str, str]  # the header of an adapter's file, which identifies its base (runs/base.py)


@dataclass(frozen=True)
class TrainingTensors:
    """All tensors of a training by name. None is sharded."""

    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    ema: dict[str, Tensor]  # averaged weights and the number of their steps; empty without EMA
    adapter: AdapterMetadata | None = None

    @property
    def files(self) -> dict[str, bytes]:
        """The weights files of a checkpoint."""
        others = {
            name: to_bytes(tensors) for name, tensors in ((OPTIMIZER, self.optimizer), (EMA, self.ema)) if tensors
        }
        return {weights_name(self.adapter): to_bytes(self.model, self.adapter), **others}

    @property
    def weights_to_use(self) -> bytes:
        """The weights to use after the training: averaged ones, if there are any."""
        return to_bytes({name: self.ema.get(name, weight) for name, weight in self.model.items()}, self.adapter)


def to_bytes(tensors: dict[str, Tensor], adapter: AdapterMetadata | None = None) -> bytes:
    return seal_weights(safetensors.torch.save(tensors, dict(adapter) if adapter else None))


def weights_name(adapter: AdapterMetadata | None) -> str:
    return MODEL if adapter is None else ADAPTER


def saved_parameters(model: nn.Module, adapter: AdapterMetadata | None) -> dict[str, nn.Parameter]:
    """The parameters that a checkpoint holds: all, or only the adapter's."""
    return dict(model.named_parameters()) if adapter is None else trainable_parameters(model)


def collect_tensors(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ema: Ema | None,
    full_tensor: Callable[[Tensor], Tensor] = lambda tensor: tensor,
    adapter: AdapterMetadata | None = None,
) -> TrainingTensors:
    """Collect all tensors of a training. `full_tensor` collects shards, so all processes must call this."""

    def collect(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: full_tensor(tensor.detach()).contiguous() for name, tensor in tensors.items()}

    return TrainingTensors(
        model=collect(saved_parameters(model, adapter)),
        optimizer=collect(optimizer_tensors(model, optimizer)),
        ema=collect(ema.state()) if ema else {},
        adapter=adapter,
    )


def save(run: RunFolder, tensors: TrainingTensors, state: dict[str, Any], is_best: bool, keep: int) -> None:
    """Write checkpoints/step_N atomically. Then update the pointers `latest` and, if it is the best, `best`."""
    folder = run.checkpoint(state["step"])
    run.prune_checkpoints(max(1, keep - 1))  # before writing: the disk may be nearly full
    with replacing_folder(folder) as temporary:
        for name, content in tensors.files.items():
            (temporary / name).write_bytes(content)
        write_sealed_json(temporary / STATE, state)
    if is_best or not run.weights.is_file():
        write_bytes(run.path / weights_name(tensors.adapter), tensors.weights_to_use)
    if is_best:
        run.set_pointer("best", folder)
    run.set_pointer("latest", folder)
    run.prune_checkpoints(keep)


def load_latest(
    run: RunFolder,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ema: Ema | None,
    adapter: AdapterMetadata | None = None,
) -> dict[str, Any]:
    """Load the latest checkpoint into model and optimizer, and return its state.json.

    If it is damaged, load the one before it, with a warning.
    """
    require_checkpoint(run)
    folders = run.list_checkpoints()[::-1]
    for i, folder in enumerate(folders):
        try:
            return load(folder, model, optimizer, ema, adapter)
        except BaseMismatch:
            raise
        except (RunError, OSError, ValueError, KeyError) as error:
            if i + 1 == len(folders):
                raise
            warnings.warn(
                f"the checkpoint {folder} cannot be used: {error} Resuming from the one before, {folders[i + 1].name}.",
                CutawayWarning,
                stacklevel=2,
            )
    raise AssertionError("unreachable")


def load(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ema: Ema | None,
    adapter: AdapterMetadata | None = None,
) -> dict[str, Any]:
    """Load one checkpoint. All files are read and checked before anything is changed."""
    state = read_sealed_json(folder / STATE)
    file = folder / weights_name(adapter)
    weights, optimizer_bytes = safetensors.torch.load(read_sealed(file, True)), read_sealed(folder / OPTIMIZER, True)
    ema_bytes = read_sealed(folder / EMA, True) if ema else b""
    if adapter is not None:
        require_same_base(read_metadata(file), adapter, file)
    copy_tensors(saved_parameters(model, adapter), weights, str(file))
    load_optimizer(model, optimizer, safetensors.torch.load(optimizer_bytes))
    if ema:
        ema.load(safetensors.torch.load(ema_bytes))
    return state


class BaseMismatch(RunError):
    """The base of an adapter has other weights than before. Earlier checkpoints have the same problem."""


def require_same_base(saved: AdapterMetadata, adapter: AdapterMetadata, file: Path) -> None:
    if saved.get("base") != adapter["base"]:
        raise BaseMismatch(
            f"{file} belongs to a base whose weights have the checksum {saved.get('base', '')[:12]}, but the weights "
            f"of the base now have {adapter['base'][:12]}. An adapter is useless with other weights. Restore the base "
            f"to resume. {ANOTHER_FOLDER}"
        )


def mean_weights(folders: Sequence[Path], adapter: AdapterMetadata | None = None) -> dict[str, Tensor]:
    """The mean of the model's weights over several checkpoints."""
    checkpoints = [safetensors.torch.load(read_sealed(folder / weights_name(adapter), True)) for folder in folders]
    return {
        name: torch.stack([weights[name].double() for weights in checkpoints]).mean(dim=0).to(first.dtype)
        for name, first in checkpoints[0].items()
    }


def save_weights(run: RunFolder, weights: dict[str, Tensor], adapter: AdapterMetadata | None = None) -> None:
    """Write the run's weights file."""
    write_bytes(run.path / weights_name(adapter), to_bytes(weights, adapter))


def save_snapshot(run: RunFolder, tensors: TrainingTensors, step: int) -> None:
    write_bytes(run.snapshot(step), tensors.weights_to_use)


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state by parameter name, such as "encoder.layers.0....weight/exp_avg"."""
    return {
        f"{name}/{key}": torch.as_tensor(value)
        for name, parameter in trainable_parameters(model).items()
        for key, value in optimizer.state[parameter].items()
    }


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, saved: dict[str, Tensor]) -> None:
    # Before its first step an optimizer has no state to copy into, so we assign it.
    for name, parameter in trainable_parameters(model).items():
        entries = {key.split("/")[1]: value for key, value in saved.items() if key.split("/")[0] == name}
        if entries:  # an expert that has had no tokens yet has no state
            # a fused optimizer has its step counter on the parameter's device
            optimizer.state[parameter] = {
                key: distribute_like(parameter, value) if value.shape == parameter.shape else value.to(parameter.device)
                for key, value in entries.items()
            }
