"""Limits on connections: how many may be open, and how long one may stay idle.

uvicorn limits requests, but not connections that never send a complete request. Here:
- a connection beyond the limit replaces the one that has been idle longest, so idle clients cannot block the server;
- headers and body have a timeout;
- a request with two length headers is rejected, because a proxy could read it differently (request smuggling);
- a repeated log message is logged once a minute.
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
REPEAT_SECONDS = 60.0  # seconds during which the same message is logged once
MAX_HEADER_BYTES = 1 << 16
ACCEPT_BATCH = 8  # connections accepted per event loop step; the limit is enforced between steps
BACKLOG = 1_024  # connections that the operating system queues until they are accepted
BODY_GRACE = 5.0  # seconds more than the application's own body timeout, so that it can send 408 first
FULL_BODY = b'{"error":"all connections are in use. Retry later."}'
FULL_RESPONSE = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\ncontent-type: application/json\r\n"
)
FULL_RESPONSE += b"content-length: %d\r\n\r\n%s" % (len(FULL_BODY), FULL_BODY)


class StrictConnection(h11.Connection):
    """An h11 connection that rejects ambiguous requests."""

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding in one request")
        return event


class BoundedProtocol(H11Protocol):
    """One connection. `idle`: the server's connections that wait for a request, longest idle first."""

    def __init__(self, limits: Limits, idle: dict[BoundedProtocol, None], **given: Any):
        super().__init__(**given)
        self.conn = StrictConnection(h11.SERVER, MAX_HEADER_BYTES)
        self.limits, self.idle = limits, idle
        self.phase: tuple[str, Any] = ("", None)
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.update_phase()
        if len(self.connections) > self.limits.connections:
            self.close_longest_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.clear_phase()

    def handle_events(self) -> None:
        super().handle_events()
        self.update_phase()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.update_phase()

    def update_phase(self) -> None:
        """Update the phase (headers, body, answer) and restart its timer. A late client is disconnected."""
        cycle = self.cycle
        is_idle = cycle is None or cycle.response_complete  # type: ignore[redundant-expr]
        phase = "headers" if is_idle else "body" if cycle.more_body else "answer"
        if (phase, cycle) == self.phase or self not in self.connections:
            return
        self.clear_phase()
        self.phase = phase, cycle
        if is_idle:
            self.idle[self] = None
        if phase != "answer":
            seconds = self.limits.upload_seconds + (0 if is_idle else BODY_GRACE)
            self.timer = self.loop.call_later(seconds, self.transport.abort)

    def clear_phase(self) -> None:
        self.idle.pop(self, None)
        if self.timer:
            self.timer.cancel()
            self.timer = None

    def close_longest_idle(self) -> None:
        """Close the longest idle connection. If all others are busy, that is this one."""
        log.warning(
            "more than %d connections: closing the longest idle ones. (See --max-connections and ulimit -n.)",
            self.limits.connections,
        )
        longest = next(iter(self.idle))
        if longest is self:
            self.transport.write(FULL_RESPONSE)
            self.transport.close()
        else:
            longest.transport.abort()
        longest.connections.discard(longest)
        longest.clear_phase()


class RepeatFilter(logging.Filter):
    """Drop a log record if the same message was logged less than a minute ago."""

    def __init__(self) -> None:
        super().__init__()
        self.last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        key = f"{record.name} {record.getMessage()} {record.exc_info[1] if record.exc_info else ''}"
        self.last = {key: when for key, when in self.last.items() if now - when < REPEAT_SECONDS}
        if key in self.last:
            return False
        self.last[key] = now
        return True


class BoundedServer(uvicorn.Server):
    """uvicorn with these limits."""

    def __init__(self, app: ASGIApp, limits: Limits):
        protocol: Any = functools.partial(BoundedProtocol, limits, {})
        # "auto" would pick other installed libraries; only h11 is tested, and there are no websockets
        config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", ws="none", http=protocol,
                                timeout_graceful_shutdown=5, server_header=False, backlog=ACCEPT_BATCH)  # fmt: skip
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        for name in LOGGERS:
            logger = logging.getLogger(name)
            if not any(isinstance(existing, RepeatFilter) for existing in logger.filters):
                logger.addFilter(RepeatFilter())
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(BACKLOG)  # asyncio uses `backlog` also as the number of connections it accepts at once
