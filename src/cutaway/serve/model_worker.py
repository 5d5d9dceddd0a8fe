"""One thread for each run. It loads the model and processes the queue. No other thread uses the model."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from cutaway.errors import CutawayError
from cutaway.serve.errors import ApiError
from cutaway.serve.generation import GenerationResult
from cutaway.serve.limits import Limits
from cutaway.serve.loaded_model import LoadedModel, ServedRun
from cutaway.serve.metrics import SECONDS, SIZES, Metrics
from cutaway.serve.queue import JobQueue, PendingRequest, TextJob, call_in_loop

log = logging.getLogger("cutaway.serve")
INTERNAL_ERROR = "internal server error while processing this text. See the server's log."


class ModelWorker:
    """The thread that owns one model. It calls `on_loaded` with None, or with the error that prevented loading."""

    def __init__(
        self,
        run: ServedRun,
        limits: Limits,
        metrics: Metrics,
        on_loaded: Callable[[BaseException | None], None] = lambda error: None,
    ):
        self.run, self.limits, self.metrics, self.on_loaded = run, limits, metrics, on_loaded
        self.queue = JobQueue(limits)
        self.model: LoadedModel | None = None
        self.thread = threading.Thread(target=self.run_loop, name=f"model {run.name}", daemon=True)
        metrics.gauge("cutaway_texts_waiting", lambda: len(self.queue), model=run.name)

    def start(self) -> None:
        self.thread.start()

    @property
    def is_ready(self) -> bool:
        return self.model is not None and self.thread.is_alive()

    def submit(self, jobs: Sequence[TextJob]) -> None:
        """Queue all jobs, or none of them. Called in the event loop."""
        self.queue.put(jobs)

    def cancel(self, pending: PendingRequest) -> None:
        """Drop the unfinished jobs of a request. Called in the event loop."""
        pending.is_cancelled = True
        if pending.remaining:
            self.queue.remove(pending)
            self.metrics.count("cutaway_texts_given_up_total", pending.remaining, model=self.run.name)

    def stop(self) -> None:
        self.queue.close()

    def run_loop(self) -> None:
        try:
            model = self.run.load()
            model.warm_up()
            self.model = model
        except BaseException as error:
            self.on_loaded(error)
            return
        self.on_loaded(None)
        try:
            while jobs := self.queue.take():
                self.process(jobs)
        finally:  # no request may wait for a thread that has ended
            stopped = ApiError(503, "the model's worker has stopped. Retry later.", retry_after=10)
            deliver([(job, stopped) for job in self.queue.close()])

    def process(self, jobs: list[TextJob]) -> None:
        jobs = [job for job in jobs if job.pending.is_active()]
        if not jobs:
            return
        started = time.monotonic()
        outcomes = self.run_batch(jobs)
        self.metrics.observe("cutaway_batch_texts", len(jobs), SIZES, model=self.run.name)
        self.metrics.observe("cutaway_batch_seconds", time.monotonic() - started, SECONDS, model=self.run.name)
        deliver(list(zip(jobs, outcomes, strict=True)))

    def run_batch(self, jobs: Sequence[TextJob]) -> list[Any]:
        """Return a result or an exception for each job. If a batch fails, retry each job alone."""
        assert self.model is not None
        try:
            results = list(self.model.run(jobs))
            self.count_tokens(jobs, results)
            return results
        except Exception as error:
            if len(jobs) == 1:
                return [to_api_error(error)]
            if not isinstance(error, CutawayError):
                log.warning("a batch of %d texts failed; retrying each text alone", len(jobs), exc_info=error)
        return [outcome for job in jobs for outcome in self.run_batch([job])]

    def count_tokens(self, jobs: Sequence[TextJob], results: Sequence[Any]) -> None:
        read = sum(job.tokens for job in jobs)
        self.metrics.count("cutaway_tokens_total", read, model=self.run.name, kind="read")
        written = sum(
            len(version.tokens) for one in results if isinstance(one, GenerationResult) for version in one.versions
        )
        if written:
            self.metrics.count("cutaway_tokens_total", written, model=self.run.name, kind="written")


def to_api_error(error: Exception) -> Exception:
    """Return a user's error as it is. Log any other, and return an internal server error."""
    if isinstance(error, CutawayError):
        return error
    log.error("a batch failed", exc_info=error)
    return ApiError(500, INTERNAL_ERROR)


def deliver(outcomes: Sequence[tuple[TextJob, Any]]) -> None:
    """Send all outcomes to the event loop in one call, because waking it up is slow."""
    if outcomes:
        call_in_loop(outcomes[0][0].pending.loop, set_outcomes, outcomes)


def set_outcomes(outcomes: Sequence[tuple[TextJob, Any]]) -> None:
    for job, outcome in outcomes:
        job.pending.set_outcome(job.index, outcome)
