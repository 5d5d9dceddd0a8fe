"""Worker processes for each implementation. They work in turns and sleep on a pipe between them.

So the threads, memory and garbage collector of one implementation do not disturb another. All processes inherit:

    GOMP_SPINCOUNT, KMP_BLOCKTIME   OpenMP threads spin for about a millisecond, then sleep. With OMP_WAIT_POLICY=active
                                    they would spin forever and slow down the others. With passive they would sleep at
                                    once, and wake up slowly hundreds of times per step.

No torch here: a process sets its number of threads before it imports torch.
"""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from cutaway.data.prepare import PreparedData

from .pairs import SEED, batches_of
from .shape import Shape, useful_operations

REFERENCE = "nn.Transformer"
# name -> class or function in implementations.py
IMPLEMENTATIONS = {
    REFERENCE: "torch_transformer",
    "Marian": "marian",
    "x-transformers": "x_transformers",
    "JoeyNMT": "joeynmt",
    "Cutaway": "Cutaway",
}
PACKAGES = {"Marian": "transformers", "x-transformers": "x-transformers", "JoeyNMT": "joeynmt"}
PEAK = "matrix product"

REST = 0.3  # seconds after a turn until idle threads sleep
TIMEOUT = 600.0  # seconds
MATRIX, PRODUCTS = 2_048, 12  # the peak is the fastest of 12 products of 2,048 × 2,048 matrices

Result = dict[str, Any]


def set_openmp_waiting(environment: Any) -> None:
    """Set how OpenMP threads wait. Call this before any process is started."""
    environment.pop("OMP_WAIT_POLICY", None)
    environment.update(GOMP_SPINCOUNT="300000", KMP_BLOCKTIME="1", TOKENIZERS_PARALLELISM="false")


@dataclass(frozen=True)
class Entry:
    """An implementation with its number of processes and threads."""

    name: str
    processes: int
    threads: int

    @property
    def label(self) -> str:
        return f"{self.name}, {self.layout}"

    @property
    def layout(self) -> str:
        if self.processes == 1:
            return f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return f"{self.processes} processes"


class Skipped(Exception):
    """An implementation cannot be measured; the message says why."""


class Workers:
    """The worker processes of one entry."""

    def __init__(self, entry: Entry, shape: Shape, prepared: PreparedData):
        self.entry = entry
        spawn, port = get_context("spawn"), free_port()
        self.pipes: list[Connection] = []
        self.processes = []
        for rank in range(entry.processes):
            here, there = spawn.Pipe()
            work = multiply_in_turns if entry.name == PEAK else train_in_turns
            process = spawn.Process(target=work, args=(there, entry, shape, prepared, rank, port), daemon=True)
            process.start()
            there.close()
            self.pipes.append(here)
            self.processes.append(process)

    def wait_until_built(self) -> Result:
        """Return its number of parameters; raise `Skipped` if it cannot be built."""
        return self.receive()[0]

    def turn(self, steps: int) -> Result:
        """Run some steps. With several processes, the time is that of the slowest."""
        for pipe in self.pipes:
            pipe.send(steps)
        results = self.receive()
        time.sleep(REST)
        seconds, work = max(result["seconds"] for result in results), sum(result["cpu_seconds"] for result in results)
        return results[0] | {"seconds": seconds, "cpu_seconds": work}

    def receive(self) -> list[Result]:
        results = []
        for pipe in self.pipes:
            try:
                result = pipe.recv() if pipe.poll(TIMEOUT) else {"skipped": f"no result after {TIMEOUT:.0f} seconds"}
            except EOFError:
                result = {"skipped": "its process ended without an error message. Is there enough memory?"}
            if "skipped" in result:
                raise Skipped(result["skipped"])
            results.append(result)
        return results

    def stop(self) -> None:
        for pipe in self.pipes:
            pipe.close()  # the process ends when its pipe is closed
        for process in self.processes:
            process.join(5)
            if process.is_alive():
                process.terminate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def configure_process(entry: Entry, rank: int, port: int) -> None:
    """Set the number of threads and the variables of torchrun, before torch is imported."""
    os.environ.update(OMP_NUM_THREADS=str(entry.threads), MKL_NUM_THREADS=str(entry.threads))
    if entry.processes > 1:
        variables: Mapping[str, object] = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "WORLD_SIZE": entry.processes,
            "RANK": rank,
            "LOCAL_RANK": rank,
            "LOCAL_WORLD_SIZE": entry.processes,
        }
        os.environ.update({name: str(value) for name, value in variables.items()})
    import torch

    torch.set_num_threads(entry.threads)
    torch.manual_seed(SEED)


def train_in_turns(pipe: Connection, entry: Entry, shape: Shape, prepared: PreparedData, rank: int, port: int) -> None:
    """Build an implementation, then train it for as many steps as the pipe requests."""
    try:
        configure_process(entry, rank, port)
        from . import implementations

        implementation = getattr(implementations, IMPLEMENTATIONS[entry.name])(shape, prepared)
        batches = batches_of(prepared, shape)
        pipe.send({"parameters": implementation.parameters})
        while True:
            pipe.send(train_some(implementation, batches, pipe.recv(), shape))
    except EOFError:
        return
    except ImportError as error:
        pipe.send({"skipped": f"{error}. Install it: pip install --no-deps -r benchmarks/requirements.txt"})
    except Exception as error:
        pipe.send({"skipped": f"{type(error).__name__}: {error}\n{traceback.format_exc()}"})


def train_some(implementation: Any, batches: Any, steps: int, shape: Shape) -> Result:
    """Train and measure. The time includes making batches of encoded pairs, but not counting operations."""
    done, loss = [], 0.0
    before, worked_before = time.perf_counter(), time.process_time()
    for _ in range(steps):
        batch = next(batches)
        loss += implementation.step(batch) / steps
        done.append(batch)
    seconds, worked = time.perf_counter() - before, time.process_time() - worked_before
    operations = sum(
        useful_operations(shape, batch.source_mask.sum(dim=1).tolist(), batch.target_mask.sum(dim=1).tolist())
        for batch in done
    )
    tokens = sum(batch.tokens for batch in done)
    return {"seconds": seconds, "cpu_seconds": worked, "tokens": tokens, "operations": operations, "loss": loss}


def multiply_in_turns(
    pipe: Connection, entry: Entry, shape: Shape, prepared: PreparedData, rank: int, port: int
) -> None:
    """Measure the peak of the machine: products of large float32 matrices."""
    configure_process(entry, rank, port)
    import torch

    a, b = torch.randn(MATRIX, MATRIX), torch.randn(MATRIX, MATRIX)
    out = torch.empty(MATRIX, MATRIX)
    pipe.send({"parameters": 0})
    try:
        while pipe.recv():
            best, worked_before = float("inf"), time.process_time()
            for _ in range(PRODUCTS):
                before = time.perf_counter()
                torch.mm(a, b, out=out)
                best = min(best, time.perf_counter() - before)
            worked = (time.process_time() - worked_before) / PRODUCTS
            pipe.send({"seconds": best, "cpu_seconds": worked, "tokens": 0, "operations": 2 * MATRIX**3, "loss": 0.0})
    except EOFError:
        return
