"""An array in shared memory, in which the processes of one machine compute a mean.

    rank 0 writes   g₀ g₀ g₀ g₀ g₀ g₀
    rank 1 writes   g₁ g₁ g₁ g₁ g₁ g₁
    result          └ rank 0 ┘└ rank 1 ┘      each process averages some columns of all rows; then all read the result

torch's gloo sends gradients through sockets, which copies them four times and takes CPU time from the backward pass.
Here each process writes each number once and reads it once.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

Broadcast = Callable[[str], str]  # returns the text of rank 0 in every process
SHARED_MEMORY = Path("/dev/shm")  # Linux: a file system in memory


class SharedArray:
    """An array with one row for each process, and one row for the result. All processes must call each method."""

    def __init__(
        self, rows: int, columns: int, dtype: torch.dtype, rank: int, broadcast: Broadcast, barrier: Callable[[], None]
    ):
        self.rank, self.barrier, self.count = rank, barrier, rows
        with _new_file((rows + 1) * columns * dtype.itemsize) if rank == 0 else nullcontext("") as created:
            path = broadcast(created)
            if not path:
                raise OSError("there is not enough shared memory")
            array = torch.from_file(path, shared=True, size=(rows + 1) * columns, dtype=dtype).view(rows + 1, columns)
            barrier()
        self.rows, self.own_row, self.result = array[:-1], array[rank], array[-1]

    def mean(self) -> Tensor:
        """The mean of all rows, with the same bits in every process. Read it before the next call."""
        self.barrier()
        columns = self.own_slice(self.result.numel())
        torch.mean(self.rows[:, columns], dim=0, out=self.result[columns])
        self.barrier()
        return self.result

    def fill_rows(self, shape: torch.Size, compute: Callable[[slice], Tensor]) -> Tensor:
        """A tensor of this shape. Each process computes some of its rows."""
        self.barrier()  # until no process reads the last result
        result = self.result[: shape.numel()].view(shape)
        own = self.own_slice(shape[0])
        if own.start < own.stop:
            result[own] = compute(own)
        self.barrier()
        return result.clone()

    def own_slice(self, length: int) -> slice:
        """This process's part of `length` items."""
        return slice(length * self.rank // self.count, length * (self.rank + 1) // self.count)


@contextmanager
def _new_file(size: int) -> Iterator[str]:
    """The path of a new file with `size` allocated bytes; "" if there is not enough space.

    The file is removed after the block. Its memory is freed when the last process that uses it ends.
    """
    with ExitStack() as opened:
        if SHARED_MEMORY.is_dir():  # the file has no name, so killed processes leave nothing behind
            file: IO[bytes] = opened.enter_context(tempfile.TemporaryFile(dir=SHARED_MEMORY))
            path = f"/proc/{os.getpid()}/fd/{file.fileno()}"
        else:
            file = opened.enter_context(tempfile.NamedTemporaryFile(prefix="cutaway-", delete=False))
            path = file.name
            opened.callback(_remove, path)
        try:
            # Without this, a full disk would crash the process at the first write.
            _allocate(file.fileno(), size)
        except OSError:
            path = ""
        yield path


def _allocate(handle: int, size: int) -> None:
    os.posix_fallocate(handle, 0, size) if hasattr(os, "posix_fallocate") else os.truncate(handle, size)


def _remove(path: str) -> None:
    with suppress(OSError):  # Windows does not remove an open file
        os.unlink(path)
