"""State that all routes share: workers, limits, metrics and server status."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from cutaway.serve.limits import Limits
from cutaway.serve.loaded_model import ServedRun
from cutaway.serve.metrics import Metrics
from cutaway.serve.middleware import ServerStatus
from cutaway.serve.model_worker import ModelWorker

# HTTP status -> its description in the OpenAPI document
STATUS_DESCRIPTIONS = {
    400: "A setting does not fit the model or another setting.",
    401: "No token, or a wrong token.",
    403: "The page's origin is not allowed.",
    404: "Unknown model.",
    408: "The request took too long to arrive.",
    413: "The request is too large.",
    415: "The request is not JSON.",
    421: "The host name is not accepted.",
    422: "The request is invalid or exceeds a limit.",
    429: "The queue is full; see Retry-After.",
    500: "Internal server error.",
    503: "Loading, shutting down, or timed out; see Retry-After.",
}


@dataclass
class AppState:
    """The state of one server."""

    workers: list[ModelWorker] = field(default_factory=list)
    limits: Limits = field(default_factory=Limits)
    metrics: Metrics = field(default_factory=Metrics)
    status: ServerStatus = field(default_factory=ServerStatus)
    load_error: BaseException | None = None  # of a model
    started: int = field(default_factory=lambda: int(time.time()))

    def start(self, runs: list[ServedRun]) -> None:
        """Start a worker for each run. The models load in parallel; requests are accepted when all are loaded."""
        self.workers = [ModelWorker(run, self.limits, self.metrics, self.on_loaded) for run in runs]
        for worker in self.workers:
            worker.start()

    def on_loaded(self, error: BaseException | None) -> None:
        """Called in a worker's thread."""
        self.load_error = self.load_error or error
        if all(worker.model for worker in self.workers):
            self.status.loading = ""

    @property
    def not_ready_reason(self) -> str:
        """Why the server is not ready. Empty: it is ready."""
        stopped = [worker.run.name for worker in self.workers if not worker.is_ready]
        return self.status.unavailable_reason or (f"not running: {', '.join(stopped)}" if stopped else "")

    def stop(self, seconds: float) -> bool:
        """Stop all workers. False if one is still inside a model, or loading it, after this many seconds."""
        deadline = time.monotonic() + seconds
        for worker in self.workers:
            worker.stop()
        for worker in self.workers:
            worker.thread.join(max(0.0, deadline - time.monotonic()))
        return not any(worker.thread.is_alive() for worker in self.workers)
