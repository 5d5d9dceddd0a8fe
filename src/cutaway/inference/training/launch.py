"""Start several worker processes on this machine for one training. No torch here: they start before it is imported.

The threads of one process synchronize at every operation; processes synchronize once a step. But half a batch takes
more than half the time of a whole batch. So processes are faster for large batches and next to other programs, and
threads for small batches (docs/log.md). The processes find each other through the environment variables of torchrun
(train/environment.py).
"""

from __future__ import annotations

import os
import platform
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
from cutaway.train.environment import cores, is_distributed

# Smallest part of a batch for which another process is faster, in images or tokens.
MIN_SHARE = {"image_classification": 64, "other": 1024}


def choose_process_count(config: Config) -> int:
    """The number of processes: `train.processes`, or as many as make the training faster."""
    if is_distributed() or not is_cpu(config.train.device):
        return 1
    smallest = MIN_SHARE.get(config.model.task, MIN_SHARE["other"])
    return config.train.processes or max(1, min(cores(), config.data.batch_tokens // smallest))


def is_cpu(device: str) -> bool:
    """Whether the training certainly runs on the CPU. Decided without importing torch, which takes seconds."""
    if device != "auto":
        return device.startswith("cpu")
    try:
        built_for_cpu = "+cpu" in version("torch")
    except PackageNotFoundError:
        return False
    linux_without_gpu = sys.platform == "linux" and not any(Path("/dev").glob("nvidia[0-9]*"))
    mac_without_mps = sys.platform == "darwin" and platform.machine() != "arm64"
    return built_for_cpu or linux_without_gpu or mac_without_mps


@contextmanager
def worker_processes(count: int, config: Config, run: RunFolder, resume: bool = False) -> Iterator[None]:
    """Start `count` - 1 workers that train `config` into `run` together with this process, the main process."""
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
    WORKERS.extend(TrainingWorker(rank, config, run, resume) for rank in range(1, count))
    try:
        yield
    except BaseException:
        for worker in WORKERS:
            worker.process.kill()
        raise
    finally:
        for worker in WORKERS:
            worker.end()
        WORKERS.clear()
        os.environ.clear()
        os.environ.update(before)


class TrainingWorker:
    """A worker process: `python -m cutaway.inference.training.worker RUN`, with the configuration on standard input."""

    def __init__(self, rank: int, config: Config, run: RunFolder, resume: bool):
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `end`)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cutaway.inference.training.worker", str(run), *(["--resume"] if resume else [])],
            env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self.errors,
        )
        assert self.process.stdin is not None  # it stays open: the worker ends when it is closed
        self.process.stdin.write(config.to_json().replace("\n", " ").encode() + b"\n")
        self.process.stdin.flush()

    def error_output(self) -> str:
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace").strip()

    def end(self) -> None:
        try:
            self.process.wait(timeout=5)  # at the end of a training, the worker exits
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.errors.close()


WORKERS: list[TrainingWorker] = []  # started by this process


@contextmanager
def watch_workers() -> Iterator[None]:
    """Inside the block, where the processes connect to each other, end this process if a worker fails to start.

    Torch blocks while it connects, and Python handles no signals. So stop signals get their default handler, which ends
    the process at once.
    """
    connected = threading.Event()

    def watch() -> None:
        while not connected.wait(0.2):
            for worker in WORKERS:
                if worker.process.poll() not in (None, 0) and not connected.wait(1):
                    print(f"error: a training process could not start:\n{worker.error_output()}", file=sys.stderr)
                    os._exit(1)  # nothing has been written yet, and torch would wait for half an hour

    threading.Thread(target=watch, daemon=True).start()
    try:
        with handling_stop_signals(signal.SIG_DFL):
            yield
    finally:
        connected.set()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
