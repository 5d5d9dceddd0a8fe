"""The queue of texts that wait for a model, and the choice of the next batch."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from cutaway.serve.errors import ApiError
from cutaway.serve.limits import Limits


class PendingRequest:
    """A request that waits for its results, in order, or for the first error.

    Created and completed in the event loop. The worker only calls `is_active` and `send_text`.
    """

    def __init__(self, texts: int, seconds: float = math.inf, is_stream: bool = False):
        self.loop = asyncio.get_running_loop()
        self.deadline = time.monotonic() + seconds
        self.is_cancelled = False
        self.results: list[Any] = [None] * texts
        self.remaining = texts
        self.future: asyncio.Future[list[Any]] = self.loop.create_future()
        self.events: asyncio.Queue[tuple[int, Any]] | None = asyncio.Queue() if is_stream else None
        self.sent = [""] * texts  # streams: the text sent so far; only the worker writes it

    def is_active(self) -> bool:
        """Whether the client still waits: neither disconnected nor timed out. Safe from any thread."""
        return not self.is_cancelled and time.monotonic() < self.deadline

    def set_outcome(self, index: int, outcome: Any) -> None:
        """Store a text's result or exception. Ignored if the request is no longer active. Called in the event loop."""
        self.remaining -= 1
        if self.future.done() or not self.is_active():
            return
        if self.events is not None:
            self.events.put_nowait((index, outcome))
        self.results[index] = outcome
        if isinstance(outcome, BaseException) and self.events is None:
            self.future.set_exception(outcome)
        elif not self.remaining:
            self.future.set_result(self.results)

    def send_text(self, index: int, piece: str) -> None:
        """Send the next piece of a text to a stream. Called by the worker; it never blocks."""
        if self.events is not None:
            self.sent[index] += piece
            call_in_loop(self.loop, self.events.put_nowait, (index, piece))


@dataclass(eq=False)
class TextJob:
    """One text of a request. Jobs of the same kind with equal settings can share a batch."""

    pending: PendingRequest
    index: int  # among the texts of its request
    kind: str  # a key of loaded_model.HANDLERS
    settings: Any  # hashable
    content: Any
    tokens: int  # input tokens
    new_tokens: int = 0  # most output tokens
    width: int = 1  # sequences per text: the beam size

    @property
    def key(self) -> Hashable:
        return self.kind, self.settings


class JobQueue:
    """First in, first out. The oldest job decides the kind of the next batch; later jobs of that kind may join it."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self.jobs: deque[TextJob] = deque()
        self.changed = threading.Condition()
        self.is_closed = False

    def __len__(self) -> int:
        return len(self.jobs)

    def put(self, jobs: Sequence[TextJob]) -> None:
        with self.changed:
            if self.is_closed:
                raise ApiError(503, "the model's worker has stopped. Retry later.", retry_after=10)
            if len(self.jobs) + len(jobs) > self.limits.waiting:
                raise ApiError(
                    429,
                    f"the queue holds {len(self.jobs)} of at most {self.limits.waiting} texts, so {len(jobs)} more do "
                    "not fit. Retry later.",
                    retry_after=1,
                )
            self.jobs.extend(jobs)
            self.changed.notify()

    def take(self) -> list[TextJob]:
        """Wait for the next batch. Empty: the queue is closed."""
        with self.changed:
            self.changed.wait_for(lambda: self.jobs or self.is_closed)
            if not self.jobs:
                return []
            taken = first_batch(self.jobs, self.limits)
            taken_ids = set(map(id, taken))
            self.jobs = deque(job for job in self.jobs if id(job) not in taken_ids)
            return taken

    def remove(self, pending: PendingRequest) -> int:
        """Remove the jobs of a cancelled request. Return how many."""
        with self.changed:
            before = len(self.jobs)
            self.jobs = deque(job for job in self.jobs if job.pending is not pending)
            return before - len(self.jobs)

    def close(self) -> list[TextJob]:
        """Close the queue. Return the jobs that were still waiting."""
        with self.changed:
            self.is_closed = True
            left, self.jobs = list(self.jobs), deque()
            self.changed.notify_all()
            return left


def first_batch(jobs: Sequence[TextJob], limits: Limits) -> list[TextJob]:
    """Take the first job and later jobs with the same key, up to the limits of a batch. At least one is taken.

    size = texts · beam size · (longest input + longest output), in tokens
    """
    taken: list[TextJob] = []
    read = written = 0
    for job in jobs:
        if job.key != jobs[0].key:
            continue
        read, written = max(read, job.tokens), max(written, job.new_tokens)
        size = (len(taken) + 1) * job.width * (read + written)
        if taken and (len(taken) == limits.batch_size or size > limits.batch_tokens):
            break
        taken.append(job)
    return taken


def call_in_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., Any], *arguments: Any) -> None:
    """Schedule a call in the event loop from another thread. Do nothing if the loop is closed."""
    try:
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:
        if not loop.is_closed():
            raise
