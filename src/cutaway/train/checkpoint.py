"""Checkpoints: everything that must be saved so that a stopped run goes on as if it had never stopped.

There is no state of chance among it: what is drawn at a step follows from the seed and the step (Trainer.seed_dropout).
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from cutaway.errors import RunError
from cutaway.models.weights import kept_like, load_weights
from cutaway.runs import CHECKSUM, RunFolder, read_sealed, replacing_folder, sealed, write_bytes, write_json
from cutaway.train.ema import Ema

MODEL, OPTIMIZER, EMA, STATE = "model.safetensors", "optimizer.safetensors", "ema.safetensors", "state.json"


@dataclass(frozen=True)
class Everything:
    """All tensors of a training by name, whole, wherever they were."""

    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    slow: dict[str, Tensor]  # the weights that follow slowly, if there are any, and how long they have

    @property
    def kept(self) -> bytes:
        """The weights that the run would be known by now."""
        weights = {name: self.slow[name] for name in self.model} if self.slow else self.model
        return sealed(safetensors.torch.save(weights))


def gathered(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ema: Ema | None,
    whole: Callable[[Tensor], Tensor] = lambda tensor: tensor,
) -> Everything:
    """`whole` puts together what is spread over several processes; all of them have to call this."""

    def all_of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: whole(tensor.detach()).contiguous() for name, tensor in tensors.items()}

    return Everything(
        model=all_of(dict(model.named_parameters())),
        optimizer=all_of(optimizer_tensors(model, optimizer)),
        slow=all_of(ema.state()) if ema else {},
    )


def save(run: RunFolder, everything: Everything, state: dict[str, Any], is_best: bool, keep: int) -> None:
    """Write checkpoints/step_N whole or not at all; then let `latest` (and `best`) name it."""
    folder = run.checkpoint(state["step"])
    files = {MODEL: everything.model, OPTIMIZER: everything.optimizer, EMA: everything.slow}
    run.prune_checkpoints(max(1, keep - 1))  # room for the new one: the disk may be nearly full
    with replacing_folder(folder) as temporary:
        for name, tensors in files.items():
            if tensors:
                (temporary / name).write_bytes(sealed(safetensors.torch.save(tensors)))
        write_json(temporary / STATE, {**state, CHECKSUM: checksum(state)})
    if is_best or not run.weights.is_file():
        write_bytes(run.weights, everything.kept)
    if is_best:
        run.set_pointer("best", folder)
    run.set_pointer("latest", folder)
    run.prune_checkpoints(keep)


def load_latest(run: RunFolder, model: nn.Module, optimizer: torch.optim.Optimizer, ema: Ema | None) -> dict[str, Any]:
    """Put the latest checkpoint into model and optimizer; what else it knew comes back.

    If it is damaged, the one before it is taken, with a warning.
    """
    folders = newest_first(run)
    if not folders:
        raise RunError(
            f"there is no checkpoint to resume from in {str(run)!r}. Train without --resume to begin a new run."
        )
    for i, folder in enumerate(folders):
        try:
            return load(folder, model, optimizer, ema)
        except (RunError, OSError, ValueError, KeyError) as error:
            if i + 1 == len(folders):
                raise
            warnings.warn(
                f"the checkpoint {folder} cannot be used: {error} Going on from {folders[i + 1].name}, the one before.",
                stacklevel=2,
            )
    raise AssertionError("unreachable")


def newest_first(run: RunFolder) -> list[Path]:
    return sorted(run.checkpoints.glob("step_*[0-9]"), key=lambda p: int(p.name.split("_")[1]), reverse=True)


def load(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, ema: Ema | None) -> dict[str, Any]:
    """Everything is read, and checked, before anything is changed."""
    state = dict(json.loads((folder / STATE).read_text(encoding="utf-8")))
    if state.pop(CHECKSUM, None) != checksum(state):
        raise RunError(f"{folder / STATE} is damaged: its checksum differs from the one it was written with.")
    weights, saved = read_sealed(folder / MODEL), read_sealed(folder / OPTIMIZER)
    slow = read_sealed(folder / EMA) if ema else b""
    load_weights(model, weights, str(folder / MODEL))
    load_optimizer(model, optimizer, safetensors.torch.load(saved))
    if ema:
        ema.load(safetensors.torch.load(slow))
    return state


def checksum(state: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def mean_weights(folders: Sequence[Path]) -> dict[str, Tensor]:
    """Of the model, over several checkpoints."""
    checkpoints = [safetensors.torch.load(read_sealed(folder / MODEL)) for folder in folders]
    return {
        name: torch.stack([weights[name].double() for weights in checkpoints]).mean(dim=0).to(first.dtype)
        for name, first in checkpoints[0].items()
    }


def keep(run: RunFolder, weights: dict[str, Tensor]) -> None:
    """These are the weights that the run is known by."""
    write_bytes(run.weights, sealed(safetensors.torch.save(weights)))


def save_snapshot(run: RunFolder, everything: Everything, step: int) -> None:
    write_bytes(run.snapshot(step), everything.kept)


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state by parameter name: "encoder.layers.0....weight/exp_avg" and so on."""
    return {
        f"{name}/{key}": torch.as_tensor(value)
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, saved: dict[str, Tensor]) -> None:
    # The optimizer has no state before its first step, so there is nothing to copy into: it is put there.
    for name, parameter in model.named_parameters():
        entries = {key.split("/")[1]: value for key, value in saved.items() if key.split("/")[0] == name}
        if entries:  # an expert that no token has asked yet has none
            # a fused optimizer keeps its step counter beside the parameter, so all of it moves to the device
            optimizer.state[parameter] = {
                key: kept_like(parameter, value) if value.shape == parameter.shape else value.to(parameter.device)
                for key, value in entries.items()
            }
