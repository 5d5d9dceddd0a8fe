"""Who works: processes of one thread each, or this one.

On a CPU that is faster than one process with many threads: a step of a search is too little work to be shared out.
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

from cutaway.bulk.windows import Batch, Refused
from cutaway.errors import DataError, WorkFailed
from cutaway.system.processes import PATIENCE, ignore_stop_signals

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
AT_HAND = 2  # batches that a worker has: the one that it is at, and the next


Result = bytes | Refused
Work = Callable[[Sequence[str], Sequence[int]], list[bytes]]  # texts, their numbers -> what is written for each


class Loads(Protocol):
    """What workers are sent: they make the work of it themselves, with all that it takes."""

    def load(self) -> Work: ...


class WorkerPool(Protocol):
    """Whoever works: takes batches while there is room, and gives back results, of whichever batch is ready."""

    @property
    def has_room(self) -> bool: ...

    @property
    def is_busy(self) -> bool: ...

    def give(self, batch: Batch) -> None: ...

    def take(self) -> tuple[Batch, list[Result]]: ...


def done(work: Work, batch: Batch) -> list[Result]:
    """What comes of a batch. One line that cannot be worked does not take the others with it; and a batch that is too
    much for the memory is halved."""
    try:
        return list(work(batch.texts, batch.numbers))
    except DataError as error:
        if len(batch.texts) == 1:
            return [Refused(batch.numbers[0], str(error))]
        parts = [Batch([number], [text]) for number, text in zip(batch.numbers, batch.texts, strict=True)]
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        if len(batch.texts) == 1:
            return [Refused(batch.numbers[0], "there is not enough memory for this line.")]
        half = len(batch.texts) // 2
        parts = [
            Batch(batch.numbers[:half], batch.texts[:half]),
            Batch(batch.numbers[half:], batch.texts[half:]),
        ]
    return [result for part in parts for result in done(work, part)]


def is_out_of_memory(error: Exception) -> bool:
    """Torch says so in words alone, other ones on a GPU than on a CPU."""
    return isinstance(error, MemoryError) or any(
        words in str(error) for words in ("out of memory", "can't allocate memory", "bad_alloc")
    )


class Here:
    """This process, at one batch."""

    def __init__(self, job: Loads):
        self.work = job.load()
        self.batch: Batch | None = None

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

    def give(self, batch: Batch) -> None:
        self.batch = batch

    def take(self) -> tuple[Batch, list[Result]]:
        assert self.batch
        batch, self.batch = self.batch, None
        return batch, done(self.work, batch)


@dataclass
class Worker:
    process: Any
    pipe: Connection
    batches: deque[Batch]


class Crew:
    """Other processes. When this one ends, however that happens, their pipes end and so do they."""

    def __init__(self, job: Loads, size: int):
        self.job, self.size = job, size
        self.workers: list[Worker] = []

    def __enter__(self) -> Self:
        try:
            with environment(ONE_THREAD), interrupts_waiting():
                for _ in range(self.size):
                    self.workers.append(self.started())
        except OSError as error:
            self.end()
            raise WorkFailed(
                f"worker process {len(self.workers) + 1} of {self.size} cannot be started: {error.strerror}. Use fewer "
                "workers (--workers)."
            ) from None
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def started(self) -> Worker:
        context = get_context("spawn")  # a fork of a process with threads, such as torch's, may stand still for ever
        ours, theirs = context.Pipe()
        process = context.Process(target=labour, args=(theirs, self.job), daemon=True)
        process.start()
        theirs.close()
        return Worker(process, ours, deque())

    @property
    def has_room(self) -> bool:
        return any(len(worker.batches) < AT_HAND for worker in self.workers)

    @property
    def is_busy(self) -> bool:
        return any(worker.batches for worker in self.workers)

    def give(self, batch: Batch) -> None:
        worker = min(self.workers, key=lambda worker: len(worker.batches))
        try:
            worker.pipe.send(batch)
        except OSError:
            self.raise_worker_died(worker)
        worker.batches.append(batch)

    def take(self) -> tuple[Batch, list[Result]]:
        pipe = wait([worker.pipe for worker in self.workers])[0]  # one that died speaks too: its pipe has ended
        worker = next(worker for worker in self.workers if worker.pipe is pipe)
        try:
            said = worker.pipe.recv()
        except (EOFError, OSError):
            self.raise_worker_died(worker)
        if isinstance(said, Exception):
            raise said
        self.workers.append(self.workers.pop(self.workers.index(worker)))  # the others are heard first, next time
        return worker.batches.popleft(), said

    def raise_worker_died(self, worker: Worker) -> NoReturn:
        worker.process.join(PATIENCE)
        code = worker.process.exitcode
        killed = " It was killed, perhaps for want of memory." if code == -9 else ""
        raise WorkFailed(
            f"a worker process has ended (exit code {code}).{killed} Use fewer workers, or smaller batches. (In a "
            'script of your own, begin the work below `if __name__ == "__main__":`.)'
        )

    def end(self) -> None:
        for worker in self.workers:
            worker.pipe.close()
            worker.process.terminate()
        for worker in self.workers:
            worker.process.join(PATIENCE)
            if worker.process.is_alive():  # deep in a library, where it hears nothing
                worker.process.kill()
                worker.process.join()


def labour(pipe: Connection, job: Loads) -> None:
    """The life of a worker."""
    ignore_stop_signals()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the parent sends it
    waiting: Queue[Batch] = Queue()
    threading.Thread(target=listen, args=(pipe, waiting), daemon=True).start()
    try:
        work = job.load()
        while True:
            pipe.send(done(work, waiting.get()))
    except (BrokenPipeError, ConnectionResetError):
        return  # nobody listens any more
    except Exception as error:
        error.add_note(traceback.format_exc())
        pipe.send(error)


def listen(pipe: Connection, waiting: Queue[Batch]) -> None:
    """Take what comes at any time, for two who both wait to be heard would wait for ever; and leave with the parent."""
    try:
        while True:
            waiting.put(pipe.recv())
    except (EOFError, OSError):
        os._exit(1)


@contextmanager
def environment(changes: dict[str, str]) -> Iterator[None]:
    """What processes that are started meanwhile find in their environment: libraries read it when they are loaded."""
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
def interrupts_waiting() -> Iterator[None]:
    """Ctrl-C reaches the whole family. Processes that are started meanwhile never hear it; we do, afterwards."""
    if not hasattr(signal, "pthread_sigmask") or threading.current_thread() is not threading.main_thread():
        yield
        return
    resource_tracker.ensure_running()  # a process too, which would lift our mask when it is started
    heard: list[int] = []
    # the mask is for those who inherit it; another thread of ours may still be told, and so we only take note
    handler = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
        if heard:
            signal.raise_signal(signal.SIGINT)
