"""Wait for the results of a request, whole or as a stream, and watch whether the client disconnects."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cutaway.errors import CutawayError
from cutaway.serve.errors import CLIENT_CLOSED_REQUEST, ApiError, error_body
from cutaway.serve.limits import Limits
from cutaway.serve.model_worker import ModelWorker
from cutaway.serve.queue import PendingRequest, TextJob

STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx must not buffer the stream
]
MakeJobs = Callable[[PendingRequest], Sequence[TextJob]]


async def wait_for_results(request: HttpRequest, worker: ModelWorker, texts: int, jobs: MakeJobs) -> list[Any]:
    """Return the results of all jobs. A disconnect or a timeout cancels the unfinished ones."""
    pending = PendingRequest(texts, worker.limits.seconds)
    worker.submit(jobs(pending))
    watch = asyncio.create_task(wait_for_disconnect(request.receive))
    try:
        waits: set[asyncio.Future[Any]] = {pending.future, watch}
        await asyncio.wait(waits, timeout=worker.limits.seconds, return_when=asyncio.FIRST_COMPLETED)
        if pending.future.done():
            return pending.future.result()
        raise client_left_error() if watch.done() else timeout_error(worker.limits)
    finally:
        watch.cancel()
        worker.cancel(pending)


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client closes the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def client_left_error() -> ApiError:
    return ApiError(CLIENT_CLOSED_REQUEST, "the client disconnected.")


def timeout_error(limits: Limits) -> ApiError:
    return ApiError(503, f"no result within {limits.seconds:g} seconds. Send less, or retry later.", retry_after=5)


class ResultEvents:
    """The events of a stream: (index, piece of text) and (index, final result)."""

    def __init__(self, worker: ModelWorker, texts: int, jobs: MakeJobs):
        self.worker, self.unfinished = worker, texts
        self.pending = PendingRequest(texts, worker.limits.seconds, is_stream=True)
        worker.submit(jobs(self.pending))

    async def next(self) -> tuple[int, Any]:
        assert self.pending.events is not None
        try:
            async with asyncio.timeout(self.pending.deadline - time.monotonic()):
                index, event = await self.pending.events.get()
        except TimeoutError:
            raise timeout_error(self.worker.limits) from None
        if isinstance(event, BaseException):
            raise event
        if not isinstance(event, str):
            self.unfinished -= 1
        return index, event

    async def __aiter__(self) -> AsyncIterator[tuple[int, Any]]:
        while self.unfinished:
            yield await self.next()

    def close(self) -> None:
        self.worker.cancel(self.pending)


class EventStream(Response):
    """A response of server-sent events, each a line of JSON, with [DONE] at the end.

    `to_values` turns an event into JSON values. `start` waits for the first event before the headers are sent, so that
    an early error still gets its own status.
    """

    def __init__(
        self, path: str, events: ResultEvents, to_values: Callable[[int, Any], Iterable[Any]], last: Callable[[], Any]
    ):
        super().__init__()
        self.path, self.events, self.to_values, self.last = path, events, to_values, last
        self.first_event: tuple[int, Any] | None = None

    async def start(self, request: HttpRequest) -> EventStream:
        watch = asyncio.create_task(wait_for_disconnect(request.receive))
        first = asyncio.create_task(self.events.next())
        try:
            await asyncio.wait({watch, first}, return_when=asyncio.FIRST_COMPLETED)
            if not first.done():
                raise client_left_error()
            self.first_event = first.result()
            return self
        except BaseException:
            self.events.close()
            raise
        finally:
            watch.cancel()
            first.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self.send_events(send))
        watch = asyncio.create_task(wait_for_disconnect(receive))
        try:
            await asyncio.wait({sending, watch}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.events.close()
            watch.cancel()
            if not sending.done():
                sending.cancel()
        if not sending.cancelled() and sending.done() and (error := sending.exception()):
            raise error

    async def send_events(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        try:
            async for body in self.encode_events():
                async with asyncio.timeout(self.events.worker.limits.stalled_seconds):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
        except TimeoutError:  # the client does not read: leave the response incomplete
            return
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})

    async def encode_events(self) -> AsyncIterator[bytes]:
        try:
            assert self.first_event is not None
            for value in self.to_values(*self.first_event):
                yield sse_event(value)
            async for index, event in self.events:
                for value in self.to_values(index, event):
                    yield sse_event(value)
            if (value := self.last()) is not None:
                yield sse_event(value)
        except CutawayError as error:  # the status was sent already, so the error is an event
            status = error.status if isinstance(error, ApiError) else 400
            yield sse_event(error_body(self.path, status, str(error)))


def sse_event(value: Any) -> bytes:
    return f"data: {json.dumps(value, separators=(',', ':'))}\n\n".encode()
