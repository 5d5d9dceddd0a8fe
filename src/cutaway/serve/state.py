"""What all routes share: the models' workers, the bounds, what is counted, and whether work is taken."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from cutaway.serve.limits import Limits
from cutaway.serve.metrics import Metrics
from cutaway.serve.middleware import State
from cutaway.serve.model_worker import Worker
from cutaway.serve.served_model import RunToServe

# what each status means, for the OpenAPI document
TROUBLE = {
    400: "A setting that does not fit the model, or another setting.",
    401: "No token, or a wrong one.",
    403: "A page elsewhere that may not ask.",
    404: "No such model.",
    408: "The request took too long to arrive.",
    413: "The request is too large.",
    415: "The request is not JSON.",
    421: "The server does not answer to this name.",
    422: "A request that cannot be understood, or is beyond a limit.",
    429: "Too much is waiting; see Retry-After.",
    500: "A mistake of the server's.",
    503: "Starting, ending, or too slow; see Retry-After.",
}


@dataclass
class AppState:
    workers: list[Worker] = field(default_factory=list)
    limits: Limits = field(default_factory=Limits)
    metrics: Metrics = field(default_factory=Metrics)
    state: State = field(default_factory=State)
    trouble: BaseException | None = None  # why a model could not be loaded
    started: int = field(default_factory=lambda: int(time.time()))

    def start(self, runs: list[RunToServe]) -> None:
        """A worker for each run. They load their models side by side, and work is taken when all have."""
        self.workers = [Worker(run, self.limits, self.metrics, self.loaded) for run in runs]
        for worker in self.workers:
            worker.start()

    def loaded(self, trouble: BaseException | None) -> None:
        """From a worker's thread."""
        self.trouble = self.trouble or trouble
        if all(worker.served for worker in self.workers):
            self.state.loading = ""

    @property
    def problem(self) -> str:
        """Why it is not ready; empty: it is."""
        dead = [worker.run.name for worker in self.workers if not worker.is_ready]
        return self.state.closed or (f"not running: {', '.join(dead)}" if dead else "")

    def stop(self, seconds: float) -> bool:
        """Whether all workers have ended within that time: one may be deep inside a model, or still be loading it."""
        ends = time.monotonic() + seconds
        for worker in self.workers:
            worker.stop()
        for worker in self.workers:
            worker.thread.join(max(0.0, ends - time.monotonic()))
        return not any(worker.thread.is_alive() for worker in self.workers)
