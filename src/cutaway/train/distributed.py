"""Data-parallel training: several processes train one model, each on its part of every batch.

    torchrun --nproc-per-node 4 -m cutaway train RECIPE        sets the environment that `join_process_group` reads

A batch does not depend on the number of processes. It is split, each process computes its part, and the gradients are
summed. So the result is the same for any number of processes, except for rounding and the random numbers of dropout.
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
from cutaway.train.environment import LAUNCHER, cores, is_distributed
from cutaway.train.precision import choose_precision
from cutaway.train.shared_memory import SharedArray

TIMEOUT = timedelta(hours=2)  # long, because a process may first prepare a large corpus


class ProcessGroup:
    """A group of one process, in which nothing has to be exchanged. The subclasses connect several processes.

    torch *averages* gradients over processes, but the parts of a batch must be summed. So each process multiplies its
    loss by `size`.
    """

    rank, size = 0, 1

    def __init__(self, device: torch.device):
        self.device = device

    @property
    def is_main_process(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def all_reduce(self, *numbers: float) -> list[float]:
        """Sum each number over all processes."""
        return list(numbers)

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the module to call in training. Its gradients are averaged over all processes."""
        return model

    def sync_gradients(self, model: nn.Module, is_last: bool) -> AbstractContextManager[Any]:
        """A context for each micro-batch. Gradients are exchanged after the last one only."""
        return nullcontext()

    def map_rows(self, function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """Compute function(rows), where `function` treats each row separately. Processes may share the rows."""
        return function(rows)

    def full_tensor(self, tensor: Tensor) -> Tensor:
        """Return the whole of a weight, or of its optimizer state, that may be sharded."""
        return tensor

    def unshard(self, model: nn.Module) -> AbstractContextManager[Any]:
        """A context in which parts of the model can be called separately, as in decoding."""
        return nullcontext()

    def barrier(self) -> None:
        """Wait until all processes have reached this call."""

    def require_same(self, text: str, what: str) -> None:
        """Raise an error if `text` differs between processes."""

    def close(self) -> None:
        """Leave the group at the end of the training."""


class DistributedGroup(ProcessGroup):
    """Processes started by torchrun, or by another program that sets the same environment."""

    def __init__(self, device: torch.device, while_connecting: AbstractContextManager[Any]):
        import torch.distributed as dist

        super().__init__(device)
        self.dist = dist
        if "TORCHELASTIC_RUN_ID" in os.environ:
            stop_with_launcher(LAUNCHER)  # if torchrun dies: save and stop
        if not dist.is_initialized():
            with while_connecting:
                store, rank, size = rendezvous()
                backend = "nccl" if device.type == "cuda" else "gloo"
                dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.threads = torch.get_num_threads()
        torch.set_num_threads(max(1, cores() // int(os.environ.get("LOCAL_WORLD_SIZE", self.size))))

    def all_reduce(self, *numbers: float) -> list[float]:
        sums = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        self.dist.all_reduce(sums)
        return [float(value) for value in sums]

    def barrier(self) -> None:
        self.dist.barrier()

    def broadcast(self, text: str) -> str:
        """Return the main process's `text` in every process."""
        buffer = torch.zeros(512, dtype=torch.uint8)
        if self.is_main_process:
            buffer[: len(text.encode())] = torch.tensor(list(text.encode()), dtype=torch.uint8)
        self.dist.broadcast(buffer, src=0)
        return bytes(buffer.tolist()).rstrip(b"\0").decode()

    def require_same(self, text: str, what: str) -> None:
        checksum = zlib.crc32(text.encode())
        if self.all_reduce(checksum)[0] != checksum * self.size:
            raise RunError(f"the processes of this training do not read the same {what}. Give all the same files.")

    def close(self) -> None:
        if self.dist.is_initialized():
            self.dist.destroy_process_group()
            torch.set_num_threads(self.threads)


class DataParallelGroup(DistributedGroup):
    """Each process has the whole model (torch's DistributedDataParallel)."""

    def wrap(self, model: nn.Module) -> nn.Module:
        from torch.nn.parallel import DistributedDataParallel

        ids = [self.device.index] if self.device.type == "cuda" else None
        # an expert without tokens is not part of the loss
        return DistributedDataParallel(model, device_ids=ids, find_unused_parameters=has_experts(model))

    def sync_gradients(self, model: nn.Module, is_last: bool) -> AbstractContextManager[Any]:
        return nullcontext() if is_last else model.no_sync()  # type: ignore[operator]


class SharedMemoryGroup(DataParallelGroup):
    """Data parallel on the cores of one machine. Gradients are averaged in shared memory (train/shared_memory.py)."""

    array: SharedArray | None = None

    def wrap(self, model: nn.Module) -> nn.Module:
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.sizes = [weight.numel() for weight in self.weights]
        columns = sum(self.sizes) + len(self.sizes)  # all gradients; then, for each weight, whether it has a gradient
        dtype = self.weights[0].dtype
        try:
            self.array = SharedArray(self.size, columns, dtype, self.rank, self.broadcast, self.barrier)
        except OSError:  # a container may have little shared memory
            return super().wrap(model)
        return model

    def sync_gradients(self, model: nn.Module, is_last: bool) -> AbstractContextManager[Any]:
        if self.array is None:
            return super().sync_gradients(model, is_last)
        return self.average_gradients(self.array) if is_last else nullcontext()

    @contextmanager
    def average_gradients(self, array: SharedArray) -> Iterator[None]:
        """After the block, replace the gradient of each weight by its mean over all processes."""
        yield
        count = sum(self.sizes)
        gradients = [torch.zeros_like(w) if w.grad is None else w.grad for w in self.weights]
        torch.cat([gradient.flatten() for gradient in gradients], out=array.own_row[:count])
        array.own_row[count:] = torch.tensor([w.grad is not None for w in self.weights])
        mean = array.mean().clone()  # a copy: each process clips its gradients itself
        pieces, has_gradient = mean[:count].split(self.sizes), mean[count:].tolist()
        for weight, piece, has in zip(self.weights, pieces, has_gradient, strict=True):
            weight.grad = piece.view_as(weight) if has else None  # None: an expert without tokens in any process

    def map_rows(self, function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        if self.array is None or rows.numel() > self.array.result.numel():
            return function(rows)
        return self.array.fill_rows(rows.shape, lambda own: function(rows[own]))


class ShardedGroup(DistributedGroup):
    """Each process has a shard of every weight, and collects the others to compute a layer (torch's FSDP2)."""

    def wrap(self, model: nn.Module) -> nn.Module:
        from torch.distributed.fsdp import fully_shard

        for layer in get_layers(model):
            fully_shard(layer)
        self.root: Any = fully_shard(model)
        return model

    def sync_gradients(self, model: nn.Module, is_last: bool) -> AbstractContextManager[Any]:
        model.set_requires_gradient_sync(is_last)  # type: ignore[operator]
        return nullcontext()

    @contextmanager
    def unshard(self, model: nn.Module) -> Iterator[None]:
        self.root.unshard()
        try:
            yield
        finally:
            self.root.reshard()

    def full_tensor(self, tensor: Tensor) -> Tensor:
        return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def rendezvous() -> tuple[Any, int, int]:
    """Return the store through which the processes exchange addresses, this process's rank and the number of processes.

    After a restart, torchrun's store still has the addresses of the processes that died. So the main process creates an
    id for this attempt and uses it as a prefix for all keys. The others send their own id to the main process, and
    wait until it has accepted them.
    """
    import torch.distributed as dist

    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        require_torchrun(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    store, rank, size = next(dist.rendezvous("env://", timeout=TIMEOUT))
    own_id = uuid.uuid4().hex
    if rank == 0:
        store.set("cutaway/main", own_id)
        for other_rank in range(1, size):
            other_id = store.get(f"{own_id}/joining/{other_rank}").decode()
            store.set(f"{own_id}/accepted/{other_id}", "")
        return dist.PrefixStore(own_id, store), rank, size
    deadline = time.monotonic() + TIMEOUT.total_seconds()
    while time.monotonic() < deadline:
        main_id = store.get("cutaway/main").decode()  # may be from an earlier attempt, and then never answers
        store.set(f"{main_id}/joining/{rank}", own_id)
        if store.check([f"{main_id}/accepted/{own_id}"]):
            return dist.PrefixStore(main_id, store), rank, size
        time.sleep(0.02)
    raise TrainingFailed(f"process {rank} of this training waited {TIMEOUT} for process 0. Start all processes again.")


def require_torchrun(host: str, port: int) -> None:
    """Raise an error if torchrun does not answer. If it died before we could watch it, we would wait for hours."""
    try:
        socket.create_connection((host, port), timeout=60).close()
    except OSError as error:
        raise TrainingFailed(f"torchrun does not answer at {host}:{port} ({error}). Start it again.") from None


def join_process_group(
    config: TrainConfig,
    while_connecting: AbstractContextManager[Any] = nullcontext(),  # noqa: B008
) -> ProcessGroup:
    """Connect this process to the others, as the environment that torchrun sets describes them.

    On GPUs, each process has one device. `while_connecting` is a context that is active until all are connected.
    """
    device = choose_device(config.device, config.precision)
    choose_precision(config.precision, device)  # an impossible one is an error before the model is built
    if not is_distributed():
        return ProcessGroup(device)
    if device.type == "mps":
        if config.device != "auto":
            raise ConfigError(
                f"train.device = {config.device!r} and several processes cannot be combined: PyTorch cannot exchange "
                'gradients between MPS devices. Use device = "cpu", or one process.'
            )
        device = torch.device("cpu")
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if config.parallel == "fsdp" and config.optimizer == "muon":
        raise ConfigError(
            "train.parallel = 'fsdp' and train.optimizer = 'muon' cannot be combined: Muon needs whole matrices. "
            "Use parallel = 'ddp', or optimizer = 'adamw'."
        )
    if config.parallel == "auto":
        is_one_machine = os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]
        group = SharedMemoryGroup if is_one_machine and device.type == "cpu" else DataParallelGroup
        return group(device, while_connecting)
    return (ShardedGroup if config.parallel == "fsdp" else DataParallelGroup)(device, while_connecting)
