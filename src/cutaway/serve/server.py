"""The server process: listen, load the models, shut down gracefully.

first SIGTERM or Ctrl-C   reject new work (503), finish accepted requests, exit code 0; also while loading
second                    exit at once, code 130
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType

from starlette.types import ASGIApp

from cutaway.serve.connections import BoundedServer
from cutaway.serve.state import AppState

SHUTDOWN_SECONDS = 30.0  # for accepted requests
DRAIN_SECONDS = 0.2  # requests sent just before the signal still get a response
WORKER_STOP_SECONDS = 2.0  # for workers to notice that all requests are cancelled
FORCED_EXIT_CODE = 130  # after a second signal


class GracefulServer(BoundedServer):
    """uvicorn with a graceful shutdown. `report` prints a message; `on_ready` is called when all models are loaded."""

    def __init__(self, app: ASGIApp, app_state: AppState, on_ready: Callable[[], None], report: Callable[[str], None]):
        super().__init__(app, app_state.limits)
        self.app_state, self.on_ready, self.report = app_state, on_ready, report
        self.stopping_since: float | None = None
        self.was_ready = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.stopping_since is not None:
            self.report("Stopped at once.")
            os._exit(FORCED_EXIT_CODE)  # a worker thread inside a model cannot be interrupted
        self.stopping_since = time.monotonic()
        self.app_state.status.stopping = "the server is shutting down"
        if busy := self.app_state.metrics.in_flight:
            count = "1 request is" if busy == 1 else f"{busy} requests are"
            self.report(f"Shutting down: {count} in progress. Press Ctrl-C again to stop at once.")

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn ten times a second. True: stop."""
        if not self.was_ready and not self.app_state.not_ready_reason:
            self.was_ready = True
            self.on_ready()
        if self.is_done or self.app_state.load_error:
            return True
        return await super().on_tick(counter)

    @property
    def is_done(self) -> bool:
        if self.stopping_since is None:
            return False
        seconds = time.monotonic() - self.stopping_since
        return seconds > SHUTDOWN_SECONDS or (not self.app_state.metrics.in_flight and seconds > DRAIN_SECONDS)


def serve(
    app: ASGIApp,
    app_state: AppState,
    listening: socket.socket,
    on_listening: Callable[[], None],
    on_ready: Callable[[], None],
    report: Callable[[str], None],
) -> None:
    """Run until a signal, or until a model fails to load. `on_listening` is called once signals are handled."""
    server = GracefulServer(app, app_state, on_ready, report)
    with server.capture_signals():
        on_listening()
        server.run(sockets=[listening])
        has_stopped = app_state.stop(SHUTDOWN_SECONDS if app_state.load_error else WORKER_STOP_SECONDS)
    if app_state.load_error:
        raise app_state.load_error
    report("The server has stopped.")
    if not has_stopped:  # Python would abort if it exits while a thread is inside PyTorch
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
