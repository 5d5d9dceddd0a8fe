"""Run jobs in a pool of worker processes. Does not import torch.

A worker reads jobs and writes messages as lines of JSON. The last message of a job is {"event": "done", ...}.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import Empty, Queue
from typing import Any

Message = dict[str, Any]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def run_jobs(
    module: str, jobs: Sequence[str], workers: int, logs: Path, on_message: Callable[[int, Message], None]
) -> None:
    """Run all jobs with `python -m module`, in at most `workers` processes at a time.

    `on_message` is called in this thread with the index of a job and a message. If a process dies, only its current job
    fails, with the result {"failed": why}.
    """
    logs.mkdir(parents=True, exist_ok=True)  # not in a thread, where an error would be lost
    waiting: Queue[tuple[int, str]] = Queue()
    messages: Queue[tuple[int, Message]] = Queue()
    for numbered in enumerate(jobs):
        waiting.put(numbered)
    pool = [TrialWorker(module, logs / f"worker-{i + 1}.log") for i in range(min(workers, len(jobs)))]
    for worker in pool:
        threading.Thread(target=worker.run, args=(waiting, messages), daemon=True).start()
    unfinished = len(jobs)
    try:
        while unfinished:
            number, message = messages.get()
            unfinished -= message["event"] == "done"
            on_message(number, message)
    finally:  # all jobs are done, or Ctrl-C
        for worker in pool:
            worker.stop()


class TrialWorker:
    """A worker process, started for its first job and restarted if it dies."""

    def __init__(self, module: str, log: Path):
        self.module, self.log = module, log
        self.process: subprocess.Popen[str] | None = None
        self.is_stopped = False

    def run(self, waiting: Queue[tuple[int, str]], messages: Queue[tuple[int, Message]]) -> None:
        while not self.is_stopped:
            try:
                number, job = waiting.get_nowait()
            except Empty:
                return
            for message in self.run_job(job):
                messages.put((number, message))

    def run_job(self, job: str) -> Iterator[Message]:
        process = self.process = self.process or self.start_process()
        if self.is_stopped:  # stopped while the process was starting
            process.kill()
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(job + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # the process died; reading from it ends too
        for line in process.stdout:
            if not line.endswith("\n"):
                break  # the process died while writing
            message = json.loads(line)
            yield message
            if message["event"] == "done":
                return
        self.process = None
        yield {"event": "done", "result": {"failed": f"crashed (exit code {process.wait()}): {self.last_log_line()}"}}

    def start_process(self) -> subprocess.Popen[str]:
        with self.log.open("w", encoding="utf-8") as log:
            return subprocess.Popen(
                [sys.executable, "-m", self.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **ONE_THREAD},
                encoding="utf-8",
            )

    def last_log_line(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "no message"

    def stop(self) -> None:
        self.is_stopped = True
        process = self.process
        if process is not None:
            process.kill()  # finished trainings are saved; an unfinished one starts over next time
            process.wait()
