"""What stands before every request: who may ask, by which name, how much; and what is counted and told in the end.

Plain ASGI, so that streams pass through as they are, and a body is read once, up to its limit.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cutaway.errors import ConfigError
from cutaway.serve.limits import Limits
from cutaway.serve.metrics import SECONDS, Metrics
from cutaway.serve.refusals import LEFT, Refusal, refused

log = logging.getLogger("cutaway.serve")
access = logging.getLogger("cutaway.access")
OPEN = ("/health", "/ready")  # for whoever watches over the server, with no token
PAGES = ("/", "/docs", "/openapi.json")
PORT = re.compile(r":\d*$")
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s]+")
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
}


@dataclass(frozen=True)
class Access:
    """Who may ask. `hosts`: the names that the server answers to, none for any; so a foreign page cannot reach a
    server on this machine through a name of its own. `origins`: pages elsewhere that may ask."""

    token: str = ""
    hosts: frozenset[str] = frozenset()
    origins: tuple[str, ...] = ()

    def lets_in(self, headers: Headers, method: str, path: str) -> bool:
        """Whether a browser may ask on behalf of a page elsewhere. To follow a link to a page of ours is no asking."""
        if "*" in self.origins or headers.get("origin") in self.origins:
            return True
        return method == "GET" and path in PAGES and headers.get("sec-fetch-mode") == "navigate"


def origins_of(given: Sequence[str]) -> tuple[str, ...]:
    """As browsers write them: with no path, not even a slash."""
    found = tuple(origin.strip().rstrip("/").lower() for origin in given)
    for origin in found:
        if origin != "*" and not ORIGIN.fullmatch(origin):
            raise ConfigError(
                f"--allow-origin {origin!r} is no origin. Give a scheme, a name and perhaps a port, as in "
                "https://example.org:8000; or * for all pages."
            )
    return found


@dataclass
class State:
    """Why no work is taken at the moment. Two threads tell it, each in a field of its own."""

    loading: str = "the models are being loaded"
    ending: str = ""
    paths: frozenset[str] = frozenset()  # that are known: others are counted as one
    work: frozenset[str] = frozenset()  # those of them that ask a model

    @property
    def closed(self) -> str:
        """Empty: work is taken."""
        return self.ending or self.loading


class Guard:
    def __init__(self, app: ASGIApp, access: Access, limits: Limits, metrics: Metrics, state: State):
        self.app, self.access, self.limits, self.metrics, self.state = app, access, limits, metrics, state
        metrics.gauge("cutaway_requests_in_flight", lambda: metrics.in_flight)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        told = Told(send)
        began = time.monotonic()
        self.metrics.in_flight += 1
        try:
            await self.guarded(scope, receive, told)
        finally:
            self.metrics.in_flight -= 1
            self.count(scope, told.status, time.monotonic() - began)

    async def guarded(self, scope: Scope, receive: Receive, told: Told) -> None:
        try:
            self.check(scope)
            await self.app(scope, replay(await self.body(scope, receive), receive), told)
        except Refusal as refusal:
            await refused(scope["path"], refusal)(scope, receive, told)
        except Exception as error:
            log.error("a request failed", exc_info=error)
            if not told.status:
                trouble = Refusal(500, "something went wrong inside the server. Its log says what.")
                await refused(scope["path"], trouble)(scope, receive, told)

    def check(self, scope: Scope) -> None:
        """Before anything is read."""
        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        name = PORT.sub("", headers.get("host", "")).lower()
        if self.access.hosts and name not in self.access.hosts:
            known = " or ".join(sorted(self.access.hosts))
            raise Refusal(421, f"this server answers to {known}, not to {name[:100]!r}.")
        if headers.get("sec-fetch-site") == "cross-site" and not self.access.lets_in(headers, method, path):
            raise Refusal(403, "this server does not answer to pages of others (see --allow-origin).")
        if path not in (*OPEN, *PAGES):
            self.check_token(headers)
        if method == "POST" and path in self.state.work:
            check_type(headers)
            if self.state.closed:
                raise Refusal(503, f"{self.state.closed}. Ask again later.", retry_after=5)

    def check_token(self, headers: Headers) -> None:
        if not self.access.token:
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # headers were read as Latin-1, whatever they were written in; so what looks like a space may be half a letter
        is_right = hmac.compare_digest(given.strip(" \t").encode("latin-1"), self.access.token.encode())
        if scheme.lower() != "bearer" or not is_right:
            was = "a token that is not this server's was given" if given else "no token was given"
            raise Refusal(401, f"{was}. Send it as a header, as in: Authorization: Bearer TOKEN")

    async def body(self, scope: Scope, receive: Receive) -> bytes:
        """All of the request, unless it is too much, or takes too long to arrive."""
        length = Headers(scope=scope).get("content-length", "")
        if length.isdecimal() and int(length) > self.limits.body:
            raise too_large(self.limits)
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.limits.upload_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refusal(LEFT, "the client has left.")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self.limits.body:
                        raise too_large(self.limits)
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise Refusal(408, f"the request did not arrive within {self.limits.upload_seconds:g} seconds.") from None

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        path = scope["path"] if scope["path"] in (*self.state.paths, *OPEN, *PAGES) else "other"
        self.metrics.count("cutaway_requests_total", path=path, status=str(status or LEFT))
        self.metrics.observe("cutaway_request_seconds", seconds, SECONDS, path=path)
        access.info("%s %s %s %.1f ms", scope["method"], ascii(scope["path"])[1:-1], status or LEFT, 1000 * seconds)


class Told:
    """Sends on, with the headers that every answer has; remembers the status."""

    def __init__(self, send: Send):
        self.send, self.status = send, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            present = {name.lower() for name, _ in message.get("headers", [])}
            extra = [(n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in present]
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await self.send(message)


def too_large(limits: Limits) -> Refusal:
    return Refusal(413, f"the request is larger than the {limits.body:,} bytes that this server takes. Send less.")


def check_type(headers: Headers) -> None:
    """JSON by name: a page elsewhere can make a browser send other types with nobody asking it first."""
    given = headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != "application/json" and not given.endswith("+json"):
        raise Refusal(
            415, f"the request is of type {given!r}; send application/json (with curl: --json, or -H with the type)."
        )


def replay(body: bytes, receive: Receive) -> Receive:
    """The body once more, and then what comes after it."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again
