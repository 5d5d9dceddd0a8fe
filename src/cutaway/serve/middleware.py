"""Middleware for every request: access, host names, size limits, error responses, metrics and the access log.

Plain ASGI, so that streams pass through unchanged, and a body is read once, up to its limit.
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
from cutaway.serve.errors import CLIENT_CLOSED_REQUEST, ApiError, error_response
from cutaway.serve.limits import Limits
from cutaway.serve.metrics import SECONDS, Metrics

log = logging.getLogger("cutaway.serve")
access = logging.getLogger("cutaway.access")
OPEN_PATHS = ("/health", "/ready")  # need no token, for monitoring
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
    """Who may send requests. `hosts`: the accepted host names, empty for any; they protect a local server against DNS
    rebinding. `origins`: the pages of other sites that may send requests."""

    token: str = ""
    hosts: frozenset[str] = frozenset()
    origins: tuple[str, ...] = ()

    def allows_origin(self, headers: Headers, method: str, path: str) -> bool:
        """Whether a cross-site request is allowed: from an allowed origin, or a link to one of our pages."""
        if "*" in self.origins or headers.get("origin") in self.origins:
            return True
        return method == "GET" and path in PAGES and headers.get("sec-fetch-mode") == "navigate"


def parse_origins(given: Sequence[str]) -> tuple[str, ...]:
    """Normalise origins as browsers send them: no path, no trailing slash."""
    found = tuple(origin.strip().rstrip("/").lower() for origin in given)
    for origin in found:
        if origin != "*" and not ORIGIN.fullmatch(origin):
            raise ConfigError(
                f"--allow-origin {origin!r} is not an origin. Give a scheme, a host name and an optional port, as in "
                "https://example.org:8000; or * for all origins."
            )
    return found


@dataclass
class ServerStatus:
    """Why the server rejects work at the moment. Two threads write it, each to its own field."""

    loading: str = "the models are being loaded"
    stopping: str = ""
    paths: frozenset[str] = frozenset()  # the known paths; the metrics count all others as one
    model_paths: frozenset[str] = frozenset()  # the paths that run a model

    @property
    def unavailable_reason(self) -> str:
        """Empty: the server accepts work."""
        return self.stopping or self.loading


class RequestMiddleware:
    """Checks a request, reads its body, turns errors into responses, and counts."""

    def __init__(self, app: ASGIApp, access: Access, limits: Limits, metrics: Metrics, status: ServerStatus):
        self.app, self.access, self.limits, self.metrics, self.status = app, access, limits, metrics, status
        metrics.gauge("cutaway_requests_in_flight", lambda: metrics.in_flight)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sender = ResponseSender(send)
        started = time.monotonic()
        self.metrics.in_flight += 1
        try:
            await self.handle(scope, receive, sender)
        finally:
            self.metrics.in_flight -= 1
            self.count(scope, sender.status, time.monotonic() - started)

    async def handle(self, scope: Scope, receive: Receive, sender: ResponseSender) -> None:
        try:
            self.check(scope)
            await self.app(scope, replay(await self.body(scope, receive), receive), sender)
        except ApiError as error:
            await error_response(scope["path"], error)(scope, receive, sender)
        except Exception as error:
            log.error("a request failed", exc_info=error)
            if not sender.status:
                internal = ApiError(500, "internal server error. See the server's log.")
                await error_response(scope["path"], internal)(scope, receive, sender)

    def check(self, scope: Scope) -> None:
        """Check the headers, before the body is read."""
        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        name = PORT.sub("", headers.get("host", "")).lower()
        if self.access.hosts and name not in self.access.hosts:
            known = " or ".join(sorted(self.access.hosts))
            raise ApiError(421, f"the host name {name[:100]!r} is not accepted. Use {known}.")
        if headers.get("sec-fetch-site") == "cross-site" and not self.access.allows_origin(headers, method, path):
            raise ApiError(
                403, "this server rejects requests from pages of other sites. Allow one with --allow-origin."
            )
        if path not in (*OPEN_PATHS, *PAGES):
            self.check_token(headers)
        if method == "POST" and path in self.status.model_paths:
            check_content_type(headers)
            if self.status.unavailable_reason:
                raise ApiError(503, f"{self.status.unavailable_reason}. Retry later.", retry_after=5)

    def check_token(self, headers: Headers) -> None:
        if not self.access.token:
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # headers are decoded as Latin-1, so a byte of a UTF-8 letter can look like a space: strip only ASCII spaces
        is_right = hmac.compare_digest(given.strip(" \t").encode("latin-1"), self.access.token.encode())
        if scheme.lower() != "bearer" or not is_right:
            reason = "wrong token" if given else "no token was given"
            raise ApiError(401, f"{reason}. Send the header: Authorization: Bearer TOKEN")

    async def body(self, scope: Scope, receive: Receive) -> bytes:
        """Read the whole body. Raise if it is too large or arrives too slowly."""
        length = Headers(scope=scope).get("content-length", "")
        if length.isdecimal() and int(length) > self.limits.body:
            raise too_large_error(self.limits)
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.limits.upload_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ApiError(CLIENT_CLOSED_REQUEST, "the client disconnected.")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self.limits.body:
                        raise too_large_error(self.limits)
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise ApiError(
                408, f"the request did not arrive within {self.limits.upload_seconds:g} seconds. Send it again."
            ) from None

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        path = scope["path"] if scope["path"] in (*self.status.paths, *OPEN_PATHS, *PAGES) else "other"
        self.metrics.count("cutaway_requests_total", path=path, status=str(status or CLIENT_CLOSED_REQUEST))
        self.metrics.observe("cutaway_request_seconds", seconds, SECONDS, path=path)
        access.info(
            "%s %s %s %.1f ms",
            scope["method"],
            ascii(scope["path"])[1:-1],
            status or CLIENT_CLOSED_REQUEST,
            1000 * seconds,
        )


class ResponseSender:
    """Sends a response with our default headers, and remembers its status."""

    def __init__(self, send: Send):
        self.send, self.status = send, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            present = {name.lower() for name, _ in message.get("headers", [])}
            extra = [(n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in present]
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await self.send(message)


def too_large_error(limits: Limits) -> ApiError:
    return ApiError(413, f"the request is larger than {limits.body:,} bytes. Send less.")


def check_content_type(headers: Headers) -> None:
    """Require JSON: a page of another site can send other content types without a CORS preflight."""
    given = headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != "application/json" and not given.endswith("+json"):
        raise ApiError(415, f"the content type is {given!r}. Send application/json (with curl: --json).")


def replay(body: bytes, receive: Receive) -> Receive:
    """A receive function that returns this body first, then the messages that follow."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again
