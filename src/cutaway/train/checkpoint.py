"""Checkpoints: everything that must be saved so that a stopped run goes on as if it had never stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from cutaway.errors import RunError
from cutaway.models.weights import load_weights, weights_to_bytes
from cutaway.runs import RunFolder, read_sealed, replacing_folder, sealed, write_bytes, write_json

MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"


def save(
    run: RunFolder,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    is_best: bool,
    keep: int,
) -> None:
    """Write checkpoints/step_N whole or not at all; then let `latest` (and `best`) name it."""
    folder = run.checkpoint(state["step"])
    weights = sealed(weights_to_bytes(model))
    with replacing_folder(folder) as temporary:
        (temporary / MODEL).write_bytes(weights)
        (temporary / OPTIMIZER).write_bytes(
            sealed(safetensors.torch.save({**optimizer_tensors(model, optimizer), **random_states()}))
        )
        write_json(temporary / STATE, state)
    if is_best or not run.weights.is_file():
        write_bytes(run.weights, weights)
    if is_best:
        run.set_pointer("best", folder)
    run.set_pointer("latest", folder)
    run.prune_checkpoints(keep)


def load_latest(run: RunFolder, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Put the latest checkpoint into model, optimizer and random generators; what else it knew comes back."""
    folder = run.pointer("latest")
    if folder is None:
        raise RunError(
            f"there is no checkpoint to resume from in {str(run)!r}. Train without --resume to begin a new run."
        )
    load_weights(model, read_sealed(folder / MODEL), str(folder / MODEL))
    load_optimizer(model, optimizer, folder / OPTIMIZER)
    return dict(json.loads((folder / STATE).read_text(encoding="utf-8")))


def save_snapshot(run: RunFolder, model: nn.Module, step: int) -> None:
    write_bytes(run.snapshot(step), sealed(weights_to_bytes(model)))


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state by parameter name: "encoder.layers.0....weight/exp_avg" and so on."""
    return {
        f"{name}/{key}": torch.as_tensor(value)
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, path: Path) -> None:
    saved = safetensors.torch.load(read_sealed(path))
    random = {name: saved.pop(name) for name in list(saved) if name.startswith("random/")}
    # The optimizer has no state before its first step, so there is nothing to copy into: it is put there.
    for name, parameter in model.named_parameters():
        entries = {key.split("/")[1]: value for key, value in saved.items() if key.split("/")[0] == name}
        if entries:  # an expert that no token has asked yet has none
            # a fused optimizer keeps its step counter beside the parameter, so all of it moves to the device
            optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in entries.items()}
    set_random_states(random)


def random_states() -> dict[str, Tensor]:
    """The states of torch's generators, which draw the dropout masks."""
    states = {"random/cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["random/cuda"] = torch.cuda.get_rng_state()
    return states


def set_random_states(states: dict[str, Tensor]) -> None:
    torch.set_rng_state(states["random/cpu"])
    if torch.cuda.is_available() and "random/cuda" in states:
        torch.cuda.set_rng_state(states["random/cuda"])
