"""The processes that train one model together, each on its share of every batch.

    torchrun --nproc-per-node 4 -m cutaway train RECIPE        sets the environment that `join_team` reads

A batch is the same whatever the number of processes: it is dealt out, each computes its part, and what comes out is
added up. So the result does not depend on how many there are, but for rounding and for what dropout draws.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.config import TrainConfig
from cutaway.errors import ConfigError
from cutaway.models.layers import has_experts, layers_of


class Team:
    """A team of one: nothing to agree upon.

    The gradients of several are *averaged* by torch. The parts of a batch are to be added up, so each process computes
    with `size` times its loss.
    """

    rank, size = 0, 1

    @property
    def is_leader(self) -> bool:
        """Whether this process is the one that writes and speaks for all."""
        return self.rank == 0

    def total(self, *numbers: float) -> list[float]:
        """Each number, added up over all processes."""
        return list(numbers)

    def together(self, model: nn.Module) -> nn.Module:
        """The model to compute with: its gradients are added up over all processes."""
        return model

    def adding_up(self, model: nn.Module, is_last: bool) -> AbstractContextManager[Any]:
        """Around each part of a batch: gradients travel with the last part alone."""
        return nullcontext()

    def whole(self, tensor: Tensor) -> Tensor:
        """A weight, or what an optimizer keeps of it, as it would be with a single process."""
        return tensor

    def leave(self) -> None:
        """When all is done."""


class Several(Team):
    """Processes that were started by torchrun, or by something that sets the same environment."""

    def __init__(self, device: torch.device):
        import torch.distributed as dist

        self.dist, self.device = dist, device
        if not dist.is_initialized():
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def total(self, *numbers: float) -> list[float]:
        sums = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        self.dist.all_reduce(sums)
        return [float(value) for value in sums]

    def leave(self) -> None:
        self.dist.destroy_process_group()


class Replicas(Several):
    """Every process holds the whole model (torch's DistributedDataParallel)."""

    def together(self, model: nn.Module) -> nn.Module:
        from torch.nn.parallel import DistributedDataParallel

        ids = [self.device.index] if self.device.type == "cuda" else None
        # an expert that no token asks has no part in the loss
        return DistributedDataParallel(model, device_ids=ids, find_unused_parameters=has_experts(model))

    def adding_up(self, model: nn.Module, is_last: bool) -> AbstractContextManager[Any]:
        return nullcontext() if is_last else model.no_sync()  # type: ignore[operator]


class Shards(Several):
    """Every process holds a share of every weight, and borrows the rest while it computes (torch's FSDP2)."""

    def together(self, model: nn.Module) -> nn.Module:
        from torch.distributed.fsdp import fully_shard

        for layer in layers_of(model):
            fully_shard(layer)
        fully_shard(model)
        return model

    def adding_up(self, model: nn.Module, is_last: bool) -> AbstractContextManager[Any]:
        model.set_requires_gradient_sync(is_last)  # type: ignore[operator]
        return nullcontext()

    def whole(self, tensor: Tensor) -> Tensor:
        return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def in_a_team() -> bool:
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def join_team(config: TrainConfig, device: torch.device) -> Team:
    if not in_a_team():
        return Team()
    if config.parallel == "shards" and config.optimizer == "muon":
        raise ConfigError(
            "train.parallel = 'shards' and train.optimizer = 'muon' cannot go together: Muon needs whole matrices. "
            "Use parallel = 'replicas', or optimizer = 'adamw'."
        )
    return (Shards if config.parallel == "shards" else Replicas)(device)
