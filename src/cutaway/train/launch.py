"""Several processes on this machine for one training. No torch here: they are started before it is imported.

On a CPU, one process a core does not wait for the others at every single operation, as the threads of one process do;
but all have to meet once a step, and half a batch takes more than half the time of a whole one. With large batches, and
beside other programs, processes are faster; with small batches threads are (docs/log.md). The processes
find each other through the same environment as under torchrun (train/team.py).
"""

from __future__ import annotations

import os
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

# A smaller share of a batch is not worth a process.
SMALLEST_SHARE = {"image_classification": 64, "other": 1024}  # images; tokens


def in_a_team() -> bool:
    """Whether this process was started as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_leader() -> bool:
    """Whether this process is the one that writes and speaks for all."""
    return os.environ.get("RANK", "0") == "0"


def is_first_here() -> bool:
    """Whether this process is the first one on its machine."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


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


def cores() -> int:
    """Cores that this process may use. Hardware threads of one core count once; a container may allow fewer, and so
    may the user, with OMP_NUM_THREADS."""
    wished = os.environ.get("OMP_NUM_THREADS", "")
    return min(usable_cores(), max(1, int(wished))) if wished.isdecimal() else usable_cores()


def usable_cores() -> int:
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    usable = os.sched_getaffinity(0)
    siblings = {_text(f"/sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list") or str(n) for n in usable}
    quota, _, period = _text("/sys/fs/cgroup/cpu.max").partition(" ")
    allowed = max(1, int(quota) // int(period)) if quota.isdecimal() and period.isdecimal() else len(siblings)
    return min(len(siblings), allowed)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""


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
    """One of the other processes: `python -m cutaway.train.member RUN`; the configuration is on its standard input."""

    def __init__(self, rank: int, config: Config, run: RunFolder, resume: bool):
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `end`)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cutaway.train.member", str(run), *(["--resume"] if resume else [])],
            env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self.errors,
        )
        assert self.process.stdin is not None
        with self.process.stdin as pipe:
            pipe.write(config.to_json().encode())

    def last_words(self) -> str:
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace").strip()

    def end(self) -> None:
        try:
            self.process.wait(timeout=5)  # at the end of a training it leaves by itself
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()


MEMBERS: list[Member] = []  # the processes that this one has started


@contextmanager
def watching_members() -> Iterator[None]:
    """While processes look for each other, nothing tells the leader that one of them will never come: this does."""
    found = threading.Event()

    def watch() -> None:
        while not found.wait(0.2):
            for member in MEMBERS:
                if member.process.poll() not in (None, 0) and not found.wait(1):
                    print(f"error: a process of the team could not start:\n{member.last_words()}", file=sys.stderr)
                    os._exit(1)  # nothing has been written yet, and torch would wait for half an hour

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        found.set()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
