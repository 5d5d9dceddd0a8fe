"""Worker pools: processes of one thread each, or the current process.

On a CPU, many processes are faster than many threads: one decoding step is too little work to split.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from queue import Queue
from typing import Any, NoReturn, Protocol, Self

from cutaway.bulk.windows import FailedLine, LineBatch
from cutaway.errors import BulkFailed, DataError
from cutaway.system.processes import CLEANUP_SECONDS, ignore_stop_signals

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
BATCHES_PER_WORKER = 2  # the batch in progress, and the next

Result = bytes | FailedLine
LineProcessor = Callable[[Sequence[str], Sequence[int]], list[bytes]]  # texts, line numbers -> output of each


class Loadable(Protocol):
    """Picklable job that a worker loads into a function."""

    def load(self) -> LineProcessor: ...


class WorkerPool(Protocol):
    """Accepts batches while there is room, and returns results in the order in which batches finish."""

    @property
    def has_room(self) -> bool: ...

    @property
    def is_busy(self) -> bool: ...

    def submit(self, batch: LineBatch) -> None: ...

    def next_result(self) -> tuple[LineBatch, list[Result]]: ...


def process_batch(work: LineProcessor, batch: LineBatch) -> list[Result]:
    """Process a batch. After a DataError, process its lines one by one; out of memory, process it in halves."""
    try:
        return list(work(batch.texts, batch.numbers))
    except DataError as error:
        if len(batch.texts) == 1:
            return [FailedLine(batch.numbers[0], str(error))]
        parts = [LineBatch([number], [text]) for number, text in zip(batch.numbers, batch.texts, strict=True)]
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        if len(batch.texts) == 1:
            return [FailedLine(batch.numbers[0], "there is not enough memory for this line.")]
        half = len(batch.texts) // 2
        parts = [
            LineBatch(batch.numbers[:half], batch.texts[:half]),
            LineBatch(batch.numbers[half:], batch.texts[half:]),
        ]
    return [result for part in parts for result in process_batch(work, part)]


def is_out_of_memory(error: Exception) -> bool:
    """Recognize torch's errors by their text, which differs between GPU and CPU."""
    return isinstance(error, MemoryError) or any(
        words in str(error) for words in ("out of memory", "can't allocate memory", "bad_alloc")
    )


class InProcessPool:
    """Run one batch at a time in the current process."""

    def __init__(self, job: Loadable):
        self.work = job.load()
        self.batch: LineBatch | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def has_room(self) -> bool:
        return self.batch is None

    @property
    def is_busy(self) -> bool:
        return self.batch is not None

    def submit(self, batch: LineBatch) -> None:
        self.batch = batch

    def next_result(self) -> tuple[LineBatch, list[Result]]:
        assert self.batch
        batch, self.batch = self.batch, None
        return batch, process_batch(self.work, batch)


@dataclass
class WorkerProcess:
    process: Any
    pipe: Connection
    batches: deque[LineBatch]


class ProcessPool:
    """Worker processes. They exit when their pipe closes, so they never outlive this process."""

    def __init__(self, job: Loadable, size: int):
        self.job, self.size = job, size
        self.workers: list[WorkerProcess] = []

    def __enter__(self) -> Self:
        try:
            with set_environment(ONE_THREAD), defer_interrupts():
                for _ in range(self.size):
                    self.workers.append(self.start_worker())
        except OSError as error:
            self.stop()
            raise BulkFailed(
                f"worker process {len(self.workers) + 1} of {self.size} cannot start: {error.strerror}. Use fewer "
                "workers (--workers)."
            ) from None
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start_worker(self) -> WorkerProcess:
        context = get_context("spawn")  # a fork of a process with threads, such as torch's, can deadlock
        ours, theirs = context.Pipe()
        process = context.Process(target=run_worker, args=(theirs, self.job), daemon=True)
        process.start()
        theirs.close()
        return WorkerProcess(process, ours, deque())

    @property
    def has_room(self) -> bool:
        return any(len(worker.batches) < BATCHES_PER_WORKER for worker in self.workers)

    @property
    def is_busy(self) -> bool:
        return any(worker.batches for worker in self.workers)

    def submit(self, batch: LineBatch) -> None:
        worker = min(self.workers, key=lambda worker: len(worker.batches))
        try:
            worker.pipe.send(batch)
        except OSError:
            self.raise_worker_died(worker)
        worker.batches.append(batch)

    def next_result(self) -> tuple[LineBatch, list[Result]]:
        pipe = wait([worker.pipe for worker in self.workers])[0]  # the pipe of a dead worker is ready too
        worker = next(worker for worker in self.workers if worker.pipe is pipe)
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            self.raise_worker_died(worker)
        if isinstance(message, Exception):
            raise message
        self.workers.append(self.workers.pop(self.workers.index(worker)))  # serve the others first next time
        return worker.batches.popleft(), message

    def raise_worker_died(self, worker: WorkerProcess) -> NoReturn:
        worker.process.join(CLEANUP_SECONDS)
        code = worker.process.exitcode
        killed = " It was killed, perhaps because memory ran out." if code == -9 else ""
        raise BulkFailed(
            f"a worker process exited with code {code}.{killed} Use fewer workers or smaller batches. (In a script "
            'of your own, start the work below `if __name__ == "__main__":`.)'
        )

    def stop(self) -> None:
        for worker in self.workers:
            worker.pipe.close()
            worker.process.terminate()
        for worker in self.workers:
            worker.process.join(CLEANUP_SECONDS)
            if worker.process.is_alive():  # inside a library that ignores signals
                worker.process.kill()
                worker.process.join()


def run_worker(pipe: Connection, job: Loadable) -> None:
    """Main function of a worker process."""
    ignore_stop_signals()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the parent sends it
    queue: Queue[LineBatch] = Queue()
    threading.Thread(target=receive_batches, args=(pipe, queue), daemon=True).start()
    try:
        work = job.load()
        while True:
            pipe.send(process_batch(work, queue.get()))
    except (BrokenPipeError, ConnectionResetError):
        return  # the parent is gone
    except Exception as error:
        error.add_note(traceback.format_exc())
        pipe.send(error)


def receive_batches(pipe: Connection, queue: Queue[LineBatch]) -> None:
    """Read the pipe in a thread of its own, or both ends could deadlock in send. Exit with the parent."""
    try:
        while True:
            queue.put(pipe.recv())
    except (EOFError, OSError):
        os._exit(1)


@contextmanager
def set_environment(changes: dict[str, str]) -> Iterator[None]:
    """Set environment variables for processes started meanwhile. Libraries read them when they are loaded."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Defer Ctrl-C until the end of the context. Processes started meanwhile inherit a mask that blocks it."""
    if not hasattr(signal, "pthread_sigmask") or threading.current_thread() is not threading.main_thread():
        yield
        return
    resource_tracker.ensure_running()  # a process too; starting it would unblock the signal
    received: list[int] = []
    # the mask is for child processes; another thread of this one can still receive the signal, so only record it
    handler = signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
        if received:
            signal.raise_signal(signal.SIGINT)
