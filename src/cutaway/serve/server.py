"""The server itself: it listens at once, loads its models meanwhile, and ends in good order.

the first SIGTERM or Ctrl-C   nothing new is taken (503); what was accepted is finished; exit code 0, also while loading
the second                    the end, at once
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

GRACE = 30.0  # seconds for what was accepted
ARRIVING = 0.2  # seconds in which requests that were sent before the signal are still told something
MOVING = 2.0  # seconds for workers to notice that nobody waits any more
GONE = 130  # the exit code of who is told twice


class GracefulServer(BoundedServer):
    """`say` tells the user what happens; `on_ready` is called once, when all models have been loaded."""

    def __init__(self, app: ASGIApp, app_state: AppState, on_ready: Callable[[], None], say: Callable[[str], None]):
        super().__init__(app, app_state.limits)
        self.app_state, self.on_ready, self.say = app_state, on_ready, say
        self.ending: float | None = None  # since when
        self.was_ready = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.ending is not None:
            self.say("Ended at once.")
            os._exit(GONE)  # a worker may be deep inside a model: there is nothing to wait for
        self.ending = time.monotonic()
        self.app_state.state.ending = "the server is ending"
        if busy := self.app_state.metrics.in_flight:
            many = "1 request is" if busy == 1 else f"{busy} requests are"
            self.say(f"Ending: {many} being answered. Once more ends at once.")

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if not self.was_ready and not self.app_state.problem:
            self.was_ready = True
            self.on_ready()
        if self.is_done or self.app_state.trouble:
            return True
        return await super().on_tick(counter)

    @property
    def is_done(self) -> bool:
        if self.ending is None:
            return False
        seconds = time.monotonic() - self.ending
        return seconds > GRACE or (not self.app_state.metrics.in_flight and seconds > ARRIVING)


def serve(
    app: ASGIApp,
    app_state: AppState,
    listening: socket.socket,
    begin: Callable[[], None],
    on_ready: Callable[[], None],
    say: Callable[[str], None],
) -> None:
    """Until a signal ends it. A model that cannot be loaded ends it too. `begin` is called when signals are heard."""
    server = GracefulServer(app, app_state, on_ready, say)
    with server.capture_signals():
        begin()
        server.run(sockets=[listening])
        has_ended = app_state.stop(GRACE if app_state.trouble else MOVING)
    if app_state.trouble:
        raise app_state.trouble
    say("The server has ended.")
    if not has_ended:  # Python cannot end in good order beside a thread that is inside a model: it would abort
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
