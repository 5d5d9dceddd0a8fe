"""Each contestant in processes of its own, which work when it is their turn and sleep on a pipe when it is not.

So no contestant's threads, memory or garbage collector disturbs another's turn. What all processes inherit:

    GOMP_SPINCOUNT, KMP_BLOCKTIME   OpenMP threads wait for the next loop awake for a millisecond or so, then sleep.
                                    Forever awake (OMP_WAIT_POLICY=active) they would steal the turns of the others;
                                    asleep at once (passive), they would be slow to wake hundreds of times a step.

No torch here: a process says how many threads it has before it loads it.
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
# name -> what makes it, in contestants.py
CONTESTANTS = {
    REFERENCE: "torch_transformer",
    "Marian": "marian",
    "x-transformers": "x_transformers",
    "JoeyNMT": "joeynmt",
    "Cutaway": "Cutaway",
}
PACKAGES = {"Marian": "transformers", "x-transformers": "x-transformers", "JoeyNMT": "joeynmt"}
PEAK = "matrix product"

REST = 0.3  # seconds after a turn, until its threads have fallen asleep
PATIENCE = 600.0  # seconds until a process that says nothing is given up
MATRIX, PRODUCTS = 2_048, 12  # the peak: the best of so many products of square matrices

Answer = dict[str, Any]


def set_waiting(environment: Any) -> None:
    """To be called before any process is started."""
    environment.pop("OMP_WAIT_POLICY", None)
    environment.update(GOMP_SPINCOUNT="300000", KMP_BLOCKTIME="1", TOKENIZERS_PARALLELISM="false")


@dataclass(frozen=True)
class Entry:
    """A contestant, and how many processes of how many threads it has."""

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
    """Why a contestant does not take part."""


class Player:
    """The processes of one entry, as this process sees them."""

    def __init__(self, entry: Entry, shape: Shape, prepared: PreparedData):
        self.entry = entry
        spawn, port = get_context("spawn"), free_port()
        self.lines: list[Connection] = []
        self.processes = []
        for rank in range(entry.processes):
            here, there = spawn.Pipe()
            work = multiply_in_turns if entry.name == PEAK else train_in_turns
            process = spawn.Process(target=work, args=(there, entry, shape, prepared, rank, port), daemon=True)
            process.start()
            there.close()
            self.lines.append(here)
            self.processes.append(process)

    def ready(self) -> Answer:
        """Wait until it is built: its number of parameters. `Skipped` if it cannot be."""
        return self.answers()[0]

    def turn(self, steps: int) -> Answer:
        """Let it work, and wait. What several processes do together is over when the last of them is done."""
        for line in self.lines:
            line.send(steps)
        answers = self.answers()
        time.sleep(REST)
        seconds, work = max(answer["seconds"] for answer in answers), sum(answer["cpu_seconds"] for answer in answers)
        return answers[0] | {"seconds": seconds, "cpu_seconds": work}

    def answers(self) -> list[Answer]:
        answers = []
        for line in self.lines:
            try:
                answer = line.recv() if line.poll(PATIENCE) else {"skipped": f"said nothing for {PATIENCE:.0f} seconds"}
            except EOFError:
                answer = {"skipped": "its process ended without a word; was there enough memory?"}
            if "skipped" in answer:
                raise Skipped(answer["skipped"])
            answers.append(answer)
        return answers

    def leave(self) -> None:
        for line in self.lines:
            line.close()  # the end of the line is the end of the work
        for process in self.processes:
            process.join(5)
            if process.is_alive():
                process.terminate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def join_in(entry: Entry, rank: int, port: int) -> None:
    """In a new process, before torch: as many threads as the entry says, and what torchrun would set."""
    os.environ.update(OMP_NUM_THREADS=str(entry.threads), MKL_NUM_THREADS=str(entry.threads))
    if entry.processes > 1:
        team: Mapping[str, object] = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "WORLD_SIZE": entry.processes,
            "RANK": rank,
            "LOCAL_RANK": rank,
            "LOCAL_WORLD_SIZE": entry.processes,
        }
        os.environ.update({name: str(value) for name, value in team.items()})
    import torch

    torch.set_num_threads(entry.threads)
    torch.manual_seed(SEED)


def train_in_turns(line: Connection, entry: Entry, shape: Shape, prepared: PreparedData, rank: int, port: int) -> None:
    """The life of a contestant's process: build, then train whenever asked."""
    try:
        join_in(entry, rank, port)
        from . import contestants

        contestant = getattr(contestants, CONTESTANTS[entry.name])(shape, prepared)
        batches = batches_of(prepared, shape)
        line.send({"parameters": contestant.parameters})
        while True:
            line.send(train_some(contestant, batches, line.recv(), shape))
    except EOFError:
        return
    except ImportError as error:
        line.send({"skipped": f"{error}. Install {PACKAGES.get(entry.name, 'it')} as benchmarks/requirements.txt says"})
    except Exception as error:
        line.send({"skipped": f"{type(error).__name__}: {error}\n{traceback.format_exc()}"})


def train_some(contestant: Any, batches: Any, steps: int, shape: Shape) -> Answer:
    """The time includes what makes a batch of encoded pairs; to count operations is no part of it."""
    done, loss = [], 0.0
    before, worked_before = time.perf_counter(), time.process_time()
    for _ in range(steps):
        batch = next(batches)
        loss += contestant.step(batch) / steps
        done.append(batch)
    seconds, worked = time.perf_counter() - before, time.process_time() - worked_before
    operations = sum(
        useful_operations(shape, batch.source_mask.sum(dim=1).tolist(), batch.target_mask.sum(dim=1).tolist())
        for batch in done
    )
    tokens = sum(batch.tokens for batch in done)
    return {"seconds": seconds, "cpu_seconds": worked, "tokens": tokens, "operations": operations, "loss": loss}


def multiply_in_turns(
    line: Connection, entry: Entry, shape: Shape, prepared: PreparedData, rank: int, port: int
) -> None:
    """What the machine can do at best: large products of float32 matrices, and nothing else."""
    join_in(entry, rank, port)
    import torch

    a, b = torch.randn(MATRIX, MATRIX), torch.randn(MATRIX, MATRIX)
    out = torch.empty(MATRIX, MATRIX)
    line.send({"parameters": 0})
    try:
        while line.recv():
            best, worked_before = float("inf"), time.process_time()
            for _ in range(PRODUCTS):
                before = time.perf_counter()
                torch.mm(a, b, out=out)
                best = min(best, time.perf_counter() - before)
            worked = (time.process_time() - worked_before) / PRODUCTS
            line.send({"seconds": best, "cpu_seconds": worked, "tokens": 0, "operations": 2 * MATRIX**3, "loss": 0.0})
    except EOFError:
        return
