"""From a request to its answer: its texts wait as jobs, and somebody watches whether the client is still there."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cutaway.errors import CutawayError
from cutaway.serve.limits import Limits
from cutaway.serve.model_worker import Worker
from cutaway.serve.queue import Job, Ticket
from cutaway.serve.refusals import LEFT, Refusal, problem

STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx passes the pieces on as they come
]
MakeJobs = Callable[[Ticket], Sequence[Job]]


async def answers(request: Request, worker: Worker, texts: int, jobs: MakeJobs) -> list[Any]:
    """The results of all jobs. A client that has left, and time that is over, give up what is not done yet."""
    ticket = Ticket(texts, worker.limits.seconds)
    worker.put(jobs(ticket))
    watch = asyncio.create_task(left(request.receive))
    try:
        waits: set[asyncio.Future[Any]] = {ticket.future, watch}
        await asyncio.wait(waits, timeout=worker.limits.seconds, return_when=asyncio.FIRST_COMPLETED)
        if ticket.future.done():
            return ticket.future.result()
        raise gone() if watch.done() else too_slow(worker.limits)
    finally:
        watch.cancel()
        worker.give_up(ticket)


async def left(receive: Receive) -> None:
    """Comes back when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def gone() -> Refusal:
    return Refusal(LEFT, "the client has left.")


def too_slow(limits: Limits) -> Refusal:
    return Refusal(
        503, f"there was no answer within {limits.seconds:g} seconds. Ask for less, or later.", retry_after=5
    )


class Events:
    """What is told of the texts of a request while they are written: (index, a piece) and (index, its result)."""

    def __init__(self, worker: Worker, texts: int, jobs: MakeJobs):
        self.worker, self.open = worker, texts
        self.ticket = Ticket(texts, worker.limits.seconds, is_stream=True)
        worker.put(jobs(self.ticket))

    async def next(self) -> tuple[int, Any]:
        assert self.ticket.events is not None
        try:
            async with asyncio.timeout(self.ticket.ends - time.monotonic()):
                index, event = await self.ticket.events.get()
        except TimeoutError:
            raise too_slow(self.worker.limits) from None
        if isinstance(event, BaseException):
            raise event
        if not isinstance(event, str):
            self.open -= 1
        return index, event

    async def __aiter__(self) -> AsyncIterator[tuple[int, Any]]:
        while self.open:
            yield await self.next()

    def close(self) -> None:
        self.worker.give_up(self.ticket)


class EventStream(Response):
    """An ASGI answer: server-sent events, each a line of JSON, and [DONE] at the end.

    `shown` makes of an event what is sent. The first event is waited for before anything is sent (`begin`), so that
    what goes wrong until then still has a status of its own.
    """

    def __init__(self, path: str, events: Events, shown: Callable[[int, Any], Iterable[Any]], last: Callable[[], Any]):
        super().__init__()
        self.path, self.events, self.shown, self.last = path, events, shown, last
        self.begun: tuple[int, Any] | None = None

    async def begin(self, request: Request) -> EventStream:
        watch = asyncio.create_task(left(request.receive))
        first = asyncio.create_task(self.events.next())
        try:
            await asyncio.wait({watch, first}, return_when=asyncio.FIRST_COMPLETED)
            if not first.done():
                raise gone()
            self.begun = first.result()
            return self
        except BaseException:
            self.events.close()
            raise
        finally:
            watch.cancel()
            first.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writing = asyncio.create_task(self.write(send))
        watch = asyncio.create_task(left(receive))
        try:
            await asyncio.wait({writing, watch}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.events.close()
            watch.cancel()
            if not writing.done():
                writing.cancel()
        if not writing.cancelled() and writing.done() and (error := writing.exception()):
            raise error

    async def write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        try:
            async for body in self.pieces():
                async with asyncio.timeout(self.events.worker.limits.stalled_seconds):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
        except TimeoutError:  # a reader that does not read: the connection is left as it is, cut short
            return
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            assert self.begun is not None
            for value in self.shown(*self.begun):
                yield line(value)
            async for index, event in self.events:
                for value in self.shown(index, event):
                    yield line(value)
            if (value := self.last()) is not None:
                yield line(value)
        except CutawayError as error:  # too late for a status: an event says it
            status = error.status if isinstance(error, Refusal) else 400
            yield line(problem(self.path, status, str(error)))


def line(value: Any) -> bytes:
    return f"data: {json.dumps(value, separators=(',', ':'))}\n\n".encode()
