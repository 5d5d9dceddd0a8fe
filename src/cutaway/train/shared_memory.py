"""A table of numbers in memory that several processes of one machine share: to add up without sending.

    rank 0 writes   g₀ g₀ g₀ g₀ g₀ g₀
    rank 1 writes   g₁ g₁ g₁ g₁ g₁ g₁
    together        └ rank 0 ┘└ rank 1 ┘      each adds up one stretch of all rows; then all read the whole

Gradients sent through sockets, as torch's gloo does, are copied four times and take both processors' time from the
backward pass; here each number is written once and read once by each.
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

Tell = Callable[[str], str]  # what the first process says, as all hear it
SHARED_MEMORY = Path("/dev/shm")  # Linux: a disk in memory


class Table:
    """`rows` rows, one for each process, and one for what they make of them together."""

    def __init__(self, rows: int, columns: int, dtype: torch.dtype, rank: int, tell: Tell, wait: Callable[[], None]):
        self.rank, self.wait, self.count = rank, wait, rows
        with _new_file((rows + 1) * columns * dtype.itemsize) if rank == 0 else nullcontext("") as mine:
            path = tell(mine)
            if not path:
                raise OSError("no room for a table that all processes can read")
            cells = torch.from_file(path, shared=True, size=(rows + 1) * columns, dtype=dtype).view(rows + 1, columns)
            wait()
        self.rows, self.mine, self.together = cells[:-1], cells[rank], cells[-1]

    def mean(self) -> Tensor:
        """Of the rows that all have written: the same to the bit for everybody. To be read before the next wait."""
        self.wait()
        stretch = self.stretch(self.together.numel())
        torch.mean(self.rows[:, stretch], dim=0, out=self.together[stretch])
        self.wait()
        return self.together

    def filled(self, shape: torch.Size, fill: Callable[[slice], Tensor]) -> Tensor:
        """An array of this shape, of which each process has filled in a stretch of rows."""
        self.wait()  # until nobody reads what was here before
        cells = self.together[: shape.numel()].view(shape)
        mine = self.stretch(shape[0])
        if mine.start < mine.stop:
            cells[mine] = fill(mine)
        self.wait()
        return cells.clone()

    def stretch(self, length: int) -> slice:
        """What of so many falls to this process."""
        return slice(length * self.rank // self.count, length * (self.rank + 1) // self.count)


@contextmanager
def _new_file(size: int) -> Iterator[str]:
    """The path of a file of this size, with room for all of it; "" if there is no such room.

    It is gone after the block, but the memory stays as long as a process uses it, and no longer, whatever happens.
    """
    with ExitStack() as opened:
        if SHARED_MEMORY.is_dir():  # the file has no name: nothing is left of it when its processes are killed
            file: IO[bytes] = opened.enter_context(tempfile.TemporaryFile(dir=SHARED_MEMORY))
            path = f"/proc/{os.getpid()}/fd/{file.fileno()}"
        else:
            file = opened.enter_context(tempfile.NamedTemporaryFile(prefix="cutaway-", delete=False))
            path = file.name
            opened.callback(_remove, path)
        try:
            # Without this, a full disk would show when a number is written, as a crash of the process.
            _allocate(file.fileno(), size)
        except OSError:
            path = ""
        yield path


def _allocate(handle: int, size: int) -> None:
    os.posix_fallocate(handle, 0, size) if hasattr(os, "posix_fallocate") else os.truncate(handle, size)


def _remove(path: str) -> None:
    with suppress(OSError):  # Windows keeps it until nobody uses it
        os.unlink(path)
