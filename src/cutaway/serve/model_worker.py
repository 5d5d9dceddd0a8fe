"""One thread for each run: it loads the model, owns it, and works on what waits. Nobody else touches the model."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from cutaway.errors import CutawayError
from cutaway.serve.limits import Limits
from cutaway.serve.metrics import SECONDS, SIZES, Metrics
from cutaway.serve.queue import Job, Ticket, Waiting, from_thread
from cutaway.serve.refusals import Refusal
from cutaway.serve.served_model import RunToServe, Served
from cutaway.serve.writing import Written

log = logging.getLogger("cutaway.serve")
FAILED = "something went wrong inside the server while it worked on this text. Its log says what."


class Worker:
    """`on_loaded` is called in the worker's thread, with None or with why the model could not be loaded."""

    def __init__(
        self,
        run: RunToServe,
        limits: Limits,
        metrics: Metrics,
        on_loaded: Callable[[BaseException | None], None] = lambda trouble: None,
    ):
        self.run, self.limits, self.metrics, self.on_loaded = run, limits, metrics, on_loaded
        self.waiting = Waiting(limits)
        self.served: Served | None = None
        self.thread = threading.Thread(target=self.live, name=f"model {run.name}", daemon=True)
        metrics.gauge("cutaway_texts_waiting", lambda: len(self.waiting), model=run.name)

    def start(self) -> None:
        self.thread.start()

    @property
    def is_ready(self) -> bool:
        return self.served is not None and self.thread.is_alive()

    def put(self, jobs: Sequence[Job]) -> None:
        """From the event loop. All of them are taken, or none."""
        self.waiting.put(jobs)

    def give_up(self, ticket: Ticket) -> None:
        """From the event loop: nobody waits for this any more."""
        ticket.is_given_up = True
        if ticket.missing:
            self.waiting.forget(ticket)
            self.metrics.count("cutaway_texts_given_up_total", ticket.missing, model=self.run.name)

    def stop(self) -> None:
        self.waiting.close()

    def live(self) -> None:
        try:
            served = self.run.load()
            served.warm_up()
            self.served = served
        except BaseException as error:
            self.on_loaded(error)
            return
        self.on_loaded(None)
        try:
            while jobs := self.waiting.take():
                self.work(jobs)
        finally:  # whatever ends the thread: nobody is left waiting
            gone = Refusal(503, "the model has ended: nothing works on this any more.", retry_after=10)
            settle([(job, gone) for job in self.waiting.close()])

    def work(self, jobs: list[Job]) -> None:
        jobs = [job for job in jobs if job.ticket.is_wanted()]
        if not jobs:
            return
        began = time.monotonic()
        outcomes = self.outcomes(jobs)
        self.metrics.observe("cutaway_batch_texts", len(jobs), SIZES, model=self.run.name)
        self.metrics.observe("cutaway_batch_seconds", time.monotonic() - began, SECONDS, model=self.run.name)
        settle(list(zip(jobs, outcomes, strict=True)))

    def outcomes(self, jobs: Sequence[Job]) -> list[Any]:
        """A result or an exception for each. If a batch fails, each is tried alone: one text does not fail others."""
        assert self.served is not None
        try:
            results = list(self.served.work(jobs))
            self.count_tokens(jobs, results)
            return results
        except Exception as error:
            if len(jobs) == 1:
                return [told(error)]
            if not isinstance(error, CutawayError):
                log.warning("a batch of %d failed; each of its texts is tried alone", len(jobs), exc_info=error)
        return [outcome for job in jobs for outcome in self.outcomes([job])]

    def count_tokens(self, jobs: Sequence[Job], results: Sequence[Any]) -> None:
        read = sum(job.tokens for job in jobs)
        self.metrics.count("cutaway_tokens_total", read, model=self.run.name, kind="read")
        written = sum(len(version.tokens) for one in results if isinstance(one, Written) for version in one.versions)
        if written:
            self.metrics.count("cutaway_tokens_total", written, model=self.run.name, kind="written")


def told(error: Exception) -> Exception:
    """A mistake in the request is its own explanation; anything else is ours, and belongs into the log."""
    if isinstance(error, CutawayError):
        return error
    log.error("a batch failed", exc_info=error)
    return Refusal(500, FAILED)


def settle(outcomes: Sequence[tuple[Job, Any]]) -> None:
    """Hand the results over to the event loop, all at once: waking it up takes longer than the rest."""
    if outcomes:
        from_thread(outcomes[0][0].ticket.loop, hand_over, outcomes)


def hand_over(outcomes: Sequence[tuple[Job, Any]]) -> None:
    for job, outcome in outcomes:
        job.ticket.settle(job.index, outcome)
