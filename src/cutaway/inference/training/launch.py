"""Several processes on this machine for one training. No torch here: they are started before it is imported.

On a CPU, one process a core does not wait for the others at every single operation, as the threads of one process do;
but all have to meet once a step, and half a batch takes more than half the time of a whole one. With large batches, and
beside other programs, processes are faster; with small batches threads are (docs/log.md). The processes
find each other through the same environment as under torchrun (train/environment.py).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO

from cutaway.config import Config
from cutaway.runs import RunFolder
from cutaway.system.processes import handling_stop_signals
from cutaway.train.environment import cores, in_a_team

# A smaller share of a batch is not worth a process.
SMALLEST_SHARE = {"image_classification": 64, "other": 1024}  # images; tokens


def processes_for(config: Config) -> int:
    """How many processes to train with here: `train.processes`, or as many as pay."""
    if in_a_team() or not is_surely_cpu(config.train.device):
        return 1
    smallest = SMALLEST_SHARE.get(config.model.task, SMALLEST_SHARE["other"])
    return config.train.processes or max(1, min(cores(), config.data.batch_tokens // smallest))


def is_surely_cpu(device: str) -> bool:
    """Told without importing torch, which takes seconds."""
    if device != "auto":
        return device.startswith("cpu")
    try:
        built_for_cpu = "+cpu" in version("torch")
    except PackageNotFoundError:
        return False
    linux_without_gpu = sys.platform == "linux" and not any(Path("/dev").glob("nvidia[0-9]*"))
    return built_for_cpu or linux_without_gpu or sys.platform == "darwin"


@contextmanager
def team_of(count: int, config: Config, run: RunFolder, resume: bool = False) -> Iterator[None]:
    """While the block runs, this process is the first of `count` that train `config` into `run` together."""
    if count == 1:
        yield
        return
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
    }
    before = dict(os.environ)
    os.environ.update(shared, RANK="0", LOCAL_RANK="0")
    MEMBERS.extend(Member(rank, config, run, resume) for rank in range(1, count))
    try:
        yield
    except BaseException:
        for member in MEMBERS:
            member.process.kill()
        raise
    finally:
        for member in MEMBERS:
            member.end()
        MEMBERS.clear()
        os.environ.clear()
        os.environ.update(before)


class Member:
    """One of the other processes, `python -m cutaway.inference.training.worker RUN`.

    The configuration is on its standard input.
    """

    def __init__(self, rank: int, config: Config, run: RunFolder, resume: bool):
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `end`)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cutaway.inference.training.worker", str(run), *(["--resume"] if resume else [])],
            env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self.errors,
        )
        assert self.process.stdin is not None  # it stays open: when it ends, so does the process
        self.process.stdin.write(config.to_json().replace("\n", " ").encode() + b"\n")
        self.process.stdin.flush()

    def last_words(self) -> str:
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace").strip()

    def end(self) -> None:
        try:
            self.process.wait(timeout=5)  # at the end of a training it leaves by itself
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.errors.close()


MEMBERS: list[Member] = []  # the processes that this one has started


@contextmanager
def watching_members() -> Iterator[None]:
    """While processes look for each other, nothing tells the leader that one of them will never come: this does.

    Torch waits without listening to Python, so signals that stop this process do it at once meanwhile.
    """
    found = threading.Event()

    def watch() -> None:
        while not found.wait(0.2):
            for member in MEMBERS:
                if member.process.poll() not in (None, 0) and not found.wait(1):
                    print(f"error: a process of the team could not start:\n{member.last_words()}", file=sys.stderr)
                    os._exit(1)  # nothing has been written yet, and torch would wait for half an hour

    threading.Thread(target=watch, daemon=True).start()
    try:
        with handling_stop_signals(signal.SIG_DFL):
            yield
    finally:
        found.set()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
