"""The explorer over HTTP: the page of show/page/, and a small JSON API behind it.

It is made for one person on one machine: it answers to the names of this machine alone (so that no foreign page can
reach it through a name of its own), takes no large bodies, and lets the page load nothing from anywhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, Field

from cutaway import __version__
from cutaway.errors import CutawayError
from cutaway.explore.explorer import CHARACTERS, Asked, Explorer
from cutaway.explore.values import dumps

PAGE = (Path(__file__).parents[1] / "explore" / "page").resolve()  # whatever links lead to the package
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# all that is served: no path of a request ever reaches the disk
FILES = {file.relative_to(PAGE).as_posix(): file for file in PAGE.rglob("*.*") if file.suffix in TYPES}
LARGEST_BODY = 1 << 20
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class TextAsked(BaseModel):
    """A text, and what is changed about the model that reads it."""

    # a little more than is taken, so that what is too long gets its own sentence
    text: str = Field(max_length=10 * CHARACTERS, examples=["The small cat sleeps."])
    run: int = Field(0, ge=0)
    snapshot: int | None = Field(None, ge=0)
    target: str | None = Field(None, max_length=CHARACTERS)
    prefix: list[int] | None = Field(None, max_length=10_000)
    off: list[str] | None = Field(None, max_length=10_000)
    hidden: list[int] | None = Field(None, max_length=10_000)

    def asked(self) -> Asked:
        lists = self.prefix or (), self.off or (), self.hidden or ()
        return Asked(self.text, self.run, self.snapshot, self.target, *lists)


class BeamAsked(TextAsked):
    beam_size: int = Field(4, ge=1, le=16)
    length_penalty: float = Field(0.6, ge=0, le=5)


class PartAsked(TextAsked):
    name: str = Field(max_length=200)


class ScoreAsked(TextAsked):
    sentences: int = Field(100, ge=1, le=2000)


def explorer_app(explorer: Explorer, hosts: Iterable[str] = ("127.0.0.1", "localhost")) -> FastAPI:
    """The application; `hosts` are the names that it answers to, none for any."""
    app = FastAPI(title="Cutaway explorer", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    allowed = frozenset(hosts)

    @app.middleware("http")
    async def guard(request: Request, call_next: Any) -> Response:
        refusal = refused(request, allowed)
        response: Response = refusal or await call_next(request)
        response.headers.update(HEADERS)
        return response

    @app.exception_handler(CutawayError)
    async def mistake(request: Request, error: CutawayError) -> Response:
        return JSONResponse({"error": str(error)}, status_code=400)

    @app.exception_handler(RequestValidationError)
    async def misunderstood(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(place) for place in first["loc"] if place != "body") or "the request"
        return JSONResponse({"error": f"{where}: {first['msg']}."}, status_code=422)

    @app.get("/api/info")
    def info() -> Response:
        return answer(explorer.info())

    @app.post("/api/trace")
    def trace(body: TextAsked) -> Response:
        return answer(explorer.trace(body.asked()))

    @app.post("/api/beam")
    def beam(body: BeamAsked) -> Response:
        return answer(explorer.beam(body.asked(), body.beam_size, body.length_penalty))

    @app.post("/api/part")
    def part(body: PartAsked) -> Response:
        return answer(explorer.part(body.asked(), body.name))

    @app.post("/api/ablations")
    def ablations(body: TextAsked) -> Response:
        return answer(explorer.ablations(body.asked()))

    @app.post("/api/snapshots")
    def snapshots(body: TextAsked) -> Response:
        return lines(explorer.snapshots(body.asked()))

    @app.post("/api/score")
    def score(body: ScoreAsked) -> Response:
        return lines(explorer.score(body.asked(), body.sentences))

    @app.get("/api/heads")
    def heads(run: int = 0) -> Response:
        return answer(explorer.heads(run))

    @app.get("/{path:path}")
    def page(path: str) -> Response:
        file = FILES.get(path or "index.html")
        if file is None:
            return JSONResponse({"error": f"there is nothing at /{path[:100]}."}, status_code=404)
        return FileResponse(file, media_type=TYPES[file.suffix])

    return app


def refused(request: Request, allowed: frozenset[str]) -> Response | None:
    """What is not for us: another name than this machine's, or a body that is too large to be a question."""
    host = request.headers.get("host", "").rpartition(":")[0] or request.headers.get("host", "")
    if allowed and host not in allowed:
        names = " or ".join(sorted(allowed))
        return JSONResponse({"error": f"the explorer answers to {names}, not to {host!r}."}, status_code=421)
    if request.headers.get("sec-fetch-site") == "cross-site":
        return JSONResponse({"error": "the explorer does not answer to other pages."}, status_code=403)
    length = request.headers.get("content-length", "0" if request.method == "GET" else "")
    if not length.isdecimal() or "transfer-encoding" in request.headers:
        return JSONResponse({"error": "the request does not say how long it is."}, status_code=411)
    if int(length) > LARGEST_BODY:
        return JSONResponse({"error": f"the request is larger than {LARGEST_BODY:,} bytes."}, status_code=413)
    return None


def answer(value: Any) -> Response:
    return Response(dumps(value), media_type="application/json")


def lines(values: Iterator[Any]) -> Response:
    """A line a value, as they come. The first is waited for, so that a mistake is told as one."""
    first = next(values)

    def told() -> Iterator[str]:
        yield dumps(first) + "\n"
        try:
            for value in values:
                yield dumps(value) + "\n"
        except CutawayError as error:  # too late for a status: the line says it
            yield dumps({"error": str(error)}) + "\n"

    return StreamingResponse(told(), media_type="application/x-ndjson")
