"""The connections of a server: how many there may be, and how long one may keep its place without a request.

uvicorn bounds requests, but not connections that never send a whole one. Here
- a connection beyond the limit takes the place of the one that has been idle longest, so that a server still answers
  when idle connections hold all places;
- headers and body have to arrive in time;
- a request that gives its length in two ways is refused: a proxy in front may read another request than we do;
- what is logged again and again is logged once a minute.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
import time
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from cutaway.serve.limits import Limits

log = logging.getLogger("cutaway.serve")
LOGGERS = ("asyncio", "uvicorn.error", "cutaway.serve")
A_WHILE = 60.0  # seconds in which the same is logged once
LARGEST_HEADERS = 1 << 16  # bytes
ACCEPTED_AT_ONCE = 8  # connections; only then are those beyond the limit closed
QUEUE = 1_024  # connections that wait in the system until they are accepted
SLACK = 5.0  # seconds: the application may answer first that a body did not arrive
NO_PLACE = b'{"error":"all connections are in use. Ask again later."}'
FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\ncontent-type: application/json\r\n"
FULL += b"content-length: %d\r\n\r\n%s" % (len(NO_PLACE), NO_PLACE)


class StrictConnection(h11.Connection):
    """HTTP, without what two servers may read in two ways."""

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding in one request")
        return event


class BoundedProtocol(H11Protocol):
    """One connection. `idle` holds those of its server that wait for a request, the longest idle first."""

    def __init__(self, limits: Limits, idle: dict[BoundedProtocol, None], **given: Any):
        super().__init__(**given)
        self.conn = StrictConnection(h11.SERVER, LARGEST_HEADERS)
        self.limits, self.idle = limits, idle
        self.phase: tuple[str, Any] = ("", None)
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.note_phase()
        if len(self.connections) > self.limits.connections:
            self.make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.leave()

    def handle_events(self) -> None:
        super().handle_events()
        self.note_phase()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.note_phase()

    def note_phase(self) -> None:
        """Waiting for headers, for the rest of the body, or for the answer: whoever is late is cut off."""
        cycle = self.cycle
        is_idle = cycle is None or cycle.response_complete
        phase = "headers" if is_idle else "body" if cycle.more_body else "answer"
        if (phase, cycle) == self.phase or self not in self.connections:
            return
        self.leave()
        self.phase = phase, cycle
        if is_idle:
            self.idle[self] = None
        if phase != "answer":
            seconds = self.limits.upload_seconds + (0 if is_idle else SLACK)
            self.timer = self.loop.call_later(seconds, self.transport.abort)

    def leave(self) -> None:
        self.idle.pop(self, None)
        if self.timer:
            self.timer.cancel()
            self.timer = None

    def make_room(self) -> None:
        """Close what has been idle longest: this connection, if requests of all others are being answered."""
        log.warning(
            "more than %d connections: the longest idle ones are closed. (See --max-connections and ulimit -n.)",
            self.limits.connections,
        )
        longest = next(iter(self.idle))
        if longest is self:
            self.transport.write(FULL)
            self.transport.close()
        else:
            longest.transport.abort()
        longest.connections.discard(longest)
        longest.leave()


class OnceInAWhile(logging.Filter):
    """Lets a record pass if the same was not logged a short while ago."""

    def __init__(self) -> None:
        super().__init__()
        self.last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        key = f"{record.name} {record.getMessage()} {record.exc_info[1] if record.exc_info else ''}"
        self.last = {key: when for key, when in self.last.items() if now - when < A_WHILE}
        if key in self.last:
            return False
        self.last[key] = now
        return True


class BoundedServer(uvicorn.Server):
    """uvicorn with these bounds."""

    def __init__(self, app: ASGIApp, limits: Limits):
        protocol: Any = functools.partial(BoundedProtocol, limits, {})
        # "auto" would take other libraries, if they are there: nobody speaks websockets here, and h11 is what is tested
        config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", ws="none", http=protocol,
                                timeout_graceful_shutdown=5, server_header=False, backlog=ACCEPTED_AT_ONCE)  # fmt: skip
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        for name in LOGGERS:
            logger = logging.getLogger(name)
            if not any(isinstance(there, OnceInAWhile) for there in logger.filters):
                logger.addFilter(OnceInAWhile())
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(QUEUE)  # asyncio has one number for the queue and for how many it accepts at once
