"""Texts that wait for their model, and how some of them become a batch."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from cutaway.serve.limits import Limits
from cutaway.serve.refusals import Refusal


class Ticket:
    """What a request holds while it waits: its results, in order, or what went wrong first.

    Made in the event loop and settled there. The worker only asks whether it is wanted.
    """

    def __init__(self, texts: int, seconds: float = math.inf, is_stream: bool = False):
        self.loop = asyncio.get_running_loop()
        self.ends = time.monotonic() + seconds  # what comes later comes too late
        self.is_given_up = False
        self.results: list[Any] = [None] * texts
        self.missing = texts
        self.future: asyncio.Future[list[Any]] = self.loop.create_future()
        self.events: asyncio.Queue[tuple[int, Any]] | None = asyncio.Queue() if is_stream else None
        self.told = [""] * texts  # of a stream, what is known of each text so far; the worker's

    def is_wanted(self) -> bool:
        """From any thread: whether somebody waits for this, and will be told."""
        return not self.is_given_up and time.monotonic() < self.ends

    def settle(self, index: int, outcome: Any) -> None:
        """In the event loop: a text's result, or an exception. What was not wanted to its end is no result."""
        self.missing -= 1
        if self.future.done() or not self.is_wanted():
            return
        if self.events is not None:
            self.events.put_nowait((index, outcome))
        self.results[index] = outcome
        if isinstance(outcome, BaseException) and self.events is None:
            self.future.set_exception(outcome)
        elif not self.missing:
            self.future.set_result(self.results)

    def tell(self, index: int, piece: str) -> None:
        """From the worker: some more of a text. The queue is as long as a text at most, so nobody has to wait."""
        if self.events is not None:
            self.told[index] += piece
            from_thread(self.loop, self.events.put_nowait, (index, piece))


@dataclass(eq=False)
class Job:
    """A text of a request. Jobs of the same kind with equal settings can share a batch."""

    ticket: Ticket
    index: int  # among the texts of its request
    kind: str  # a row of served.WORK
    settings: Any  # hashable
    content: Any
    tokens: int  # that are read
    new_tokens: int = 0  # that may be written
    width: int = 1  # versions of it that are worked on side by side, as in a beam

    @property
    def key(self) -> Hashable:
        return self.kind, self.settings


class Waiting:
    """First come, first served: the oldest job decides what the next batch is like, and others like it come along."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self.jobs: deque[Job] = deque()
        self.changed = threading.Condition()
        self.is_closed = False

    def __len__(self) -> int:
        return len(self.jobs)

    def put(self, jobs: Sequence[Job]) -> None:
        with self.changed:
            if self.is_closed:
                raise Refusal(503, "the model has ended: nothing works on this any more.", retry_after=10)
            if len(self.jobs) + len(jobs) > self.limits.waiting:
                raise Refusal(
                    429,
                    f"{len(self.jobs)} texts are waiting, and {self.limits.waiting} may: there is no room for "
                    f"{len(jobs)} more. Ask again later.",
                    retry_after=1,
                )
            self.jobs.extend(jobs)
            self.changed.notify()

    def take(self) -> list[Job]:
        """The next batch, as soon as there is one; none when all is over."""
        with self.changed:
            self.changed.wait_for(lambda: self.jobs or self.is_closed)
            if not self.jobs:
                return []
            taken = first_batch(self.jobs, self.limits)
            chosen = set(map(id, taken))
            self.jobs = deque(job for job in self.jobs if id(job) not in chosen)
            return taken

    def forget(self, ticket: Ticket) -> int:
        """Take away what nobody wants any more; how many texts that was."""
        with self.changed:
            before = len(self.jobs)
            self.jobs = deque(job for job in self.jobs if job.ticket is not ticket)
            return before - len(self.jobs)

    def close(self) -> list[Job]:
        """Take nothing more; what was still waiting is handed back."""
        with self.changed:
            self.is_closed = True
            left, self.jobs = list(self.jobs), deque()
            self.changed.notify_all()
            return left


def first_batch(jobs: Sequence[Job], limits: Limits) -> list[Job]:
    """The first job and those like it, in order, as long as all of them are not too much: what each of them may become,
    as often as a beam holds it, padded to the longest. One is always taken."""
    taken: list[Job] = []
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


def from_thread(loop: asyncio.AbstractEventLoop, call: Callable[..., Any], *arguments: Any) -> None:
    """Have something done in the event loop; if that has ended, nobody waits for it."""
    try:
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:
        if not loop.is_closed():
            raise
