"""Several jobs at once, in processes that take one after the other. No torch here.

A process is spoken to in lines of JSON: a job goes in, news of it come out, the last of them {"event": "done", ...}.
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

News = dict[str, Any]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def run_jobs(module: str, jobs: Sequence[str], workers: int, logs: Path, tell: Callable[[int, News], None]) -> None:
    """Have `python -m module` do all jobs, in `workers` processes at a time.

    `tell` is called in this thread, with the number of a job and the news of it. A process that dies takes only its own
    job with it, whose result then is {"failed": why}.
    """
    logs.mkdir(parents=True, exist_ok=True)  # here, where an error is seen: not in a thread
    waiting: Queue[tuple[int, str]] = Queue()
    news: Queue[tuple[int, News]] = Queue()
    for numbered in enumerate(jobs):
        waiting.put(numbered)
    crew = [Worker(module, logs / f"worker-{i + 1}.log") for i in range(min(workers, len(jobs)))]
    for worker in crew:
        threading.Thread(target=worker.work, args=(waiting, news), daemon=True).start()
    unfinished = len(jobs)
    try:
        while unfinished:
            number, message = news.get()
            unfinished -= message["event"] == "done"
            tell(number, message)
    finally:  # all is done, or somebody pressed Ctrl-C
        for worker in crew:
            worker.end()


class Worker:
    """A process that is started for its first job, and again should it die."""

    def __init__(self, module: str, log: Path):
        self.module, self.log = module, log
        self.process: subprocess.Popen[str] | None = None
        self.is_over = False

    def work(self, waiting: Queue[tuple[int, str]], news: Queue[tuple[int, News]]) -> None:
        while not self.is_over:
            try:
                number, job = waiting.get_nowait()
            except Empty:
                return
            for message in self.news_of(job):
                news.put((number, message))

    def news_of(self, job: str) -> Iterator[News]:
        process = self.process = self.process or self.started()
        if self.is_over:  # told to end while it was being started
            process.kill()
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(job + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it died meanwhile; then it says no more either
        for line in process.stdout:
            if not line.endswith("\n"):
                break  # it died in the middle of a line
            message = json.loads(line)
            yield message
            if message["event"] == "done":
                return
        self.process = None
        yield {"event": "done", "result": {"failed": f"crashed (exit code {process.wait()}): {self.last_words()}"}}

    def started(self) -> subprocess.Popen[str]:
        with self.log.open("w", encoding="utf-8") as log:
            return subprocess.Popen(
                [sys.executable, "-m", self.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **ONE_THREAD},
                encoding="utf-8",
            )

    def last_words(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it left no message"

    def end(self) -> None:
        self.is_over = True
        process = self.process
        if process is not None:
            process.kill()  # whatever it has finished is written; what it has not will be trained anew
            process.wait()
