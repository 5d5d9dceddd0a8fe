"""Checkpoints: everything that must be saved so that a stopped run goes on as if it had never stopped.

There is no state of chance among it: what is drawn at a step follows from the seed and the step (Trainer.seed_dropout).
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
from cutaway.runs.weights import metadata_of, read_sealed, sealed
from cutaway.train.ema import Ema

MODEL, OPTIMIZER, EMA, STATE = "model.safetensors", "optimizer.safetensors", "ema.safetensors", "state.json"
ADAPTER = "adapter.safetensors"  # instead of the model, where all else is in a base that stays as it is
About = Mapping[str, str]  # what the header of an adapter says: which base it is for (runs/base.py)


@dataclass(frozen=True)
class Everything:
    """All tensors of a training by name, whole, wherever they were."""

    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    slow: dict[str, Tensor]  # the weights that follow slowly, if there are any, and how long they have
    adapter: About | None = None

    @property
    def files(self) -> dict[str, bytes]:
        """What a checkpoint is made of."""
        others = {
            name: in_file(tensors) for name, tensors in ((OPTIMIZER, self.optimizer), (EMA, self.slow)) if tensors
        }
        return {name_of(self.adapter): in_file(self.model, self.adapter), **others}

    @property
    def kept(self) -> bytes:
        """The weights that the run would be known by now."""
        return in_file({name: self.slow.get(name, weight) for name, weight in self.model.items()}, self.adapter)


def in_file(tensors: dict[str, Tensor], adapter: About | None = None) -> bytes:
    return sealed(safetensors.torch.save(tensors, dict(adapter) if adapter else None))


def name_of(adapter: About | None) -> str:
    return MODEL if adapter is None else ADAPTER


def weights_of(model: nn.Module, adapter: About | None) -> dict[str, nn.Parameter]:
    """What a run keeps of its model: all, or the adapter alone."""
    return dict(model.named_parameters()) if adapter is None else trainable_parameters(model)


def gathered(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ema: Ema | None,
    whole: Callable[[Tensor], Tensor] = lambda tensor: tensor,
    adapter: About | None = None,
) -> Everything:
    """`whole` puts together what is spread over several processes; all of them have to call this."""

    def all_of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: whole(tensor.detach()).contiguous() for name, tensor in tensors.items()}

    return Everything(
        model=all_of(weights_of(model, adapter)),
        optimizer=all_of(optimizer_tensors(model, optimizer)),
        slow=all_of(ema.state()) if ema else {},
        adapter=adapter,
    )


def save(run: RunFolder, everything: Everything, state: dict[str, Any], is_best: bool, keep: int) -> None:
    """Write checkpoints/step_N whole or not at all; then let `latest` (and `best`) name it."""
    folder = run.checkpoint(state["step"])
    run.prune_checkpoints(max(1, keep - 1))  # room for the new one: the disk may be nearly full
    with replacing_folder(folder) as temporary:
        for name, content in everything.files.items():
            (temporary / name).write_bytes(content)
        write_sealed_json(temporary / STATE, state)
    if is_best or not run.weights.is_file():
        write_bytes(run.path / name_of(everything.adapter), everything.kept)
    if is_best:
        run.set_pointer("best", folder)
    run.set_pointer("latest", folder)
    run.prune_checkpoints(keep)


def load_latest(
    run: RunFolder,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ema: Ema | None,
    adapter: About | None = None,
) -> dict[str, Any]:
    """Put the latest checkpoint into model and optimizer; what else it knew comes back.

    If it is damaged, the one before it is taken, with a warning.
    """
    require_checkpoint(run)
    folders = run.saved()[::-1]
    for i, folder in enumerate(folders):
        try:
            return load(folder, model, optimizer, ema, adapter)
        except OtherBase:
            raise
        except (RunError, OSError, ValueError, KeyError) as error:
            if i + 1 == len(folders):
                raise
            warnings.warn(
                f"the checkpoint {folder} cannot be used: {error} Going on from {folders[i + 1].name}, the one before.",
                CutawayWarning,
                stacklevel=2,
            )
    raise AssertionError("unreachable")


def load(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ema: Ema | None,
    adapter: About | None = None,
) -> dict[str, Any]:
    """Everything is read, and checked, before anything is changed."""
    state = read_sealed_json(folder / STATE)
    file = folder / name_of(adapter)
    weights, saved = safetensors.torch.load(read_sealed(file, True)), read_sealed(folder / OPTIMIZER, True)
    slow = read_sealed(folder / EMA, True) if ema else b""
    if adapter is not None:
        require_same_base(metadata_of(file), adapter, file)
    copy_tensors(weights_of(model, adapter), weights, str(file))
    load_optimizer(model, optimizer, safetensors.torch.load(saved))
    if ema:
        ema.load(safetensors.torch.load(slow))
    return state


class OtherBase(RunError):
    """An adapter that goes with other weights than those that are there: an older checkpoint would not, either."""


def require_same_base(saved: About, adapter: About, file: Path) -> None:
    if saved.get("base") != adapter["base"]:
        raise OtherBase(
            f"{file} goes on from a base whose weights have the checksum {saved.get('base', '')[:12]}; those of the "
            f"base have {adapter['base'][:12]} now. What an adapter has learned so far means nothing beside other "
            f"weights. Restore the base to resume. {ANOTHER_FOLDER}"
        )


def mean_weights(folders: Sequence[Path], adapter: About | None = None) -> dict[str, Tensor]:
    """Of the model, over several checkpoints."""
    checkpoints = [safetensors.torch.load(read_sealed(folder / name_of(adapter), True)) for folder in folders]
    return {
        name: torch.stack([weights[name].double() for weights in checkpoints]).mean(dim=0).to(first.dtype)
        for name, first in checkpoints[0].items()
    }


def keep(run: RunFolder, weights: dict[str, Tensor], adapter: About | None = None) -> None:
    """These are the weights that the run is known by."""
    write_bytes(run.path / name_of(adapter), in_file(weights, adapter))


def save_snapshot(run: RunFolder, everything: Everything, step: int) -> None:
    write_bytes(run.snapshot(step), everything.kept)


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state by parameter name: "encoder.layers.0....weight/exp_avg" and so on."""
    return {
        f"{name}/{key}": torch.as_tensor(value)
        for name, parameter in trainable_parameters(model).items()
        for key, value in optimizer.state[parameter].items()
    }


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, saved: dict[str, Tensor]) -> None:
    # The optimizer has no state before its first step, so there is nothing to copy into: it is put there.
    for name, parameter in trainable_parameters(model).items():
        entries = {key.split("/")[1]: value for key, value in saved.items() if key.split("/")[0] == name}
        if entries:  # an expert that no token has asked yet has none
            # a fused optimizer keeps its step counter beside the parameter, so all of it moves to the device
            optimizer.state[parameter] = {
                key: distribute_like(parameter, value) if value.shape == parameter.shape else value.to(parameter.device)
                for key, value in entries.items()
            }
