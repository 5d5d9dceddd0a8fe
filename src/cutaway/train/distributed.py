"""The processes that train one model together, each on its share of every batch.

    torchrun --nproc-per-node 4 -m cutaway train RECIPE        sets the environment that `join_team` reads

A batch is the same whatever the number of processes: it is dealt out, each computes its part, and what comes out is
added up. So the result does not depend on how many there are, but for rounding and for what dropout draws.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.config import TrainConfig
from cutaway.errors import ConfigError, RunError, TrainingFailed
from cutaway.models.device import choose_device
from cutaway.models.parts import get_layers, has_experts
from cutaway.system.processes import stop_with_launcher
from cutaway.train.environment import LAUNCHER, cores, in_a_team
from cutaway.train.shared_memory import Table

PATIENCE = timedelta(hours=2)  # with a process that says nothing, such as one that prepares a large corpus


class Team:
    """A team of one: nothing to agree upon.

    The gradients of several are *averaged* by torch. The parts of a batch are to be added up, so each process computes
    with `size` times its loss.
    """

    rank, size = 0, 1

    def __init__(self, device: torch.device):
        self.device = device

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

    def divided(self, function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """function(rows), which works on each row by itself: where that pays, every process does some of them."""
        return function(rows)

    def whole(self, tensor: Tensor) -> Tensor:
        """A weight, or what an optimizer keeps of it, as it would be with a single process."""
        return tensor

    def open(self, model: nn.Module) -> AbstractContextManager[Any]:
        """While the block runs, parts of the model can be called one by one, as when it writes."""
        return nullcontext()

    def wait(self) -> None:
        """Until all have come so far."""

    def require_same(self, text: str, what: str) -> None:
        """All must have read the same, or they would train on something that none of them has seen."""

    def leave(self) -> None:
        """When all is done."""


class Several(Team):
    """Processes that were started by torchrun, or by something that sets the same environment."""

    def __init__(self, device: torch.device, meeting: AbstractContextManager[Any]):
        import torch.distributed as dist

        super().__init__(device)
        self.dist = dist
        if "TORCHELASTIC_RUN_ID" in os.environ:
            stop_with_launcher(LAUNCHER)  # when torchrun is gone: save, and stop
        if not dist.is_initialized():
            with meeting:
                store, rank, size = meet()
                backend = "nccl" if device.type == "cuda" else "gloo"
                dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.threads = torch.get_num_threads()
        torch.set_num_threads(max(1, cores() // int(os.environ.get("LOCAL_WORLD_SIZE", self.size))))

    def total(self, *numbers: float) -> list[float]:
        sums = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        self.dist.all_reduce(sums)
        return [float(value) for value in sums]

    def wait(self) -> None:
        self.dist.barrier()

    def tell(self, text: str) -> str:
        """To all: what the leader says."""
        letters = torch.zeros(512, dtype=torch.uint8)
        if self.is_leader:
            letters[: len(text.encode())] = torch.tensor(list(text.encode()), dtype=torch.uint8)
        self.dist.broadcast(letters, src=0)
        return bytes(letters.tolist()).rstrip(b"\0").decode()

    def require_same(self, text: str, what: str) -> None:
        mine = zlib.crc32(text.encode())
        if self.total(mine)[0] != mine * self.size:
            raise RunError(f"the processes of this training do not see the same {what}. Give all the same files.")

    def leave(self) -> None:
        if self.dist.is_initialized():
            self.dist.destroy_process_group()
            torch.set_num_threads(self.threads)


class Replicas(Several):
    """Every process holds the whole model (torch's DistributedDataParallel)."""

    def together(self, model: nn.Module) -> nn.Module:
        from torch.nn.parallel import DistributedDataParallel

        ids = [self.device.index] if self.device.type == "cuda" else None
        # an expert that no token asks has no part in the loss
        return DistributedDataParallel(model, device_ids=ids, find_unused_parameters=has_experts(model))

    def adding_up(self, model: nn.Module, is_last: bool) -> AbstractContextManager[Any]:
        return nullcontext() if is_last else model.no_sync()  # type: ignore[operator]


class Neighbours(Replicas):
    """Replicas on the cores of one machine: their gradients meet in memory that all share (train/shared_memory.py)."""

    table: Table | None = None

    def together(self, model: nn.Module) -> nn.Module:
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.sizes = [weight.numel() for weight in self.weights]
        columns = sum(self.sizes) + len(self.sizes)  # a gradient for each number; for each weight, whether it has one
        try:
            self.table = Table(self.size, columns, self.weights[0].dtype, self.rank, self.tell, self.wait)
        except OSError:  # a container may have little of such memory
            return super().together(model)
        return model

    def adding_up(self, model: nn.Module, is_last: bool) -> AbstractContextManager[Any]:
        if self.table is None:
            return super().adding_up(model, is_last)
        return self.meeting(self.table) if is_last else nullcontext()

    @contextmanager
    def meeting(self, table: Table) -> Iterator[None]:
        """After the block, every weight has the gradient that all have found for it, each in its part of the batch."""
        yield
        numbers = sum(self.sizes)
        gradients = [torch.zeros_like(w) if w.grad is None else w.grad for w in self.weights]
        torch.cat([gradient.flatten() for gradient in gradients], out=table.mine[:numbers])
        table.mine[numbers:] = torch.tensor([w.grad is not None for w in self.weights])
        found = table.mean().clone()  # the table is for all; what follows, such as clipping, each does for itself
        pieces, has_one = found[:numbers].split(self.sizes), found[numbers:].tolist()
        for weight, piece, has in zip(self.weights, pieces, has_one, strict=True):
            weight.grad = piece.view_as(weight) if has else None  # an expert that no token asked has none

    def divided(self, function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        if self.table is None or rows.numel() > self.table.together.numel():
            return function(rows)
        return self.table.filled(rows.shape, lambda mine: function(rows[mine]))


class Shards(Several):
    """Every process holds a share of every weight, and borrows the rest while it computes (torch's FSDP2)."""

    def together(self, model: nn.Module) -> nn.Module:
        from torch.distributed.fsdp import fully_shard

        for layer in get_layers(model):
            fully_shard(layer)
        self.root: Any = fully_shard(model)
        return model

    def adding_up(self, model: nn.Module, is_last: bool) -> AbstractContextManager[Any]:
        model.set_requires_gradient_sync(is_last)  # type: ignore[operator]
        return nullcontext()

    @contextmanager
    def open(self, model: nn.Module) -> Iterator[None]:
        self.root.unshard()
        try:
            yield
        finally:
            self.root.reshard()

    def whole(self, tensor: Tensor) -> Tensor:
        return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def meet() -> tuple[Any, int, int]:
    """The store through which the processes of a training find each other, this process's rank, how many there are.

    After a restart, torchrun's store still holds the addresses of the processes that are gone. So the leader chooses a
    new name for this try, under which nothing has been stored yet, and welcomes those who ask it by that name.
    """
    import torch.distributed as dist

    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":  # torchrun has it ready before it starts us
        require_torchrun(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    store, rank, size = next(dist.rendezvous("env://", timeout=PATIENCE))
    me = uuid.uuid4().hex
    if rank == 0:
        store.set("cutaway/leader", me)
        for other in range(1, size):
            guest = store.get(f"{me}/guest/{other}").decode()
            store.set(f"{me}/welcome/{guest}", "")
        return dist.PrefixStore(me, store), rank, size
    ends = time.monotonic() + PATIENCE.total_seconds()
    while time.monotonic() < ends:
        leader = store.get("cutaway/leader").decode()  # perhaps that of an earlier try, who does not answer any more
        store.set(f"{leader}/guest/{rank}", me)
        if store.check([f"{leader}/welcome/{me}"]):
            return dist.PrefixStore(leader, store), rank, size
        time.sleep(0.02)
    raise TrainingFailed(f"process {rank} of this training has waited {PATIENCE} for the first one. Start all again.")


def require_torchrun(host: str, port: int) -> None:
    """Nobody tells a process that torchrun died before it looked who had started it: it would wait for hours."""
    try:
        socket.create_connection((host, port), timeout=60).close()
    except OSError as error:
        raise TrainingFailed(f"torchrun does not answer at {host}:{port} ({error}). Start it again.") from None


def join_team(config: TrainConfig, meeting: AbstractContextManager[Any] = nullcontext()) -> Team:  # noqa: B008
    """The team of this process, by the environment that torchrun sets. On GPUs, each process has one of its own.

    `meeting` is entered while the processes look for each other.
    """
    device = choose_device(config.device)
    if not in_a_team():
        return Team(device)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if config.parallel == "fsdp" and config.optimizer == "muon":
        raise ConfigError(
            "train.parallel = 'fsdp' and train.optimizer = 'muon' cannot go together: Muon needs whole matrices. "
            "Use parallel = 'ddp', or optimizer = 'adamw'."
        )
    if config.parallel == "auto":
        all_here = os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]
        return (Neighbours if all_here and device.type == "cpu" else Replicas)(device, meeting)
    return (Shards if config.parallel == "fsdp" else Replicas)(device, meeting)
