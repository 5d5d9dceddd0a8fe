"""The explorer over HTTP: the page in explore/page/ and its JSON API.

It is made for one user on one machine. It accepts only local host names (against DNS rebinding), limits the size of
requests, and forbids the page to load anything from other hosts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, Field

from cutaway import __version__
from cutaway.errors import CutawayError
from cutaway.explore.causes.attribution import METHODS
from cutaway.explore.explorer import CHARACTERS, Explorer, ExplorerRequest
from cutaway.explore.live import describe_run, stored_run, stored_snapshot
from cutaway.explore.values import dumps
from cutaway.explore.web_export import WEIGHTS

PAGE = (Path(__file__).parents[1] / "explore" / "page").resolve()  # follows symbolic links
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# every file that is served: the path of a request never reaches the file system
FILES = {file.relative_to(PAGE).as_posix(): file for file in PAGE.rglob("*.*") if file.suffix in TYPES}
MAX_BODY = 1 << 20
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class ExplorerBody(BaseModel):
    """A text, and the changes to the model that reads it."""

    # larger than the explorer's own limit, so that a long text gets the explorer's message
    text: str = Field(max_length=10 * CHARACTERS, examples=["The small cat sleeps."])
    run: int = Field(0, ge=0)
    snapshot: int | None = Field(None, ge=0)
    target: str | None = Field(None, max_length=CHARACTERS)
    prefix: list[int] | None = Field(None, max_length=10_000)
    off: list[str] | None = Field(None, max_length=10_000)
    hidden: list[int] | None = Field(None, max_length=10_000)

    def to_request(self) -> ExplorerRequest:
        lists = self.prefix or (), self.off or (), self.hidden or ()
        return ExplorerRequest(self.text, self.run, self.snapshot, self.target, *lists)


class BeamBody(ExplorerBody):
    beam_size: int = Field(4, ge=1, le=16)
    length_penalty: float = Field(0.6, ge=0, le=5)


class PartBody(ExplorerBody):
    name: str = Field(max_length=200)


class MarginBody(ExplorerBody):
    """What is explained: at this prediction, why this token and not its rival? Both are ids."""

    step: int | None = Field(None, ge=0, le=100_000)
    token: int | None = Field(None, ge=0, le=10_000_000)
    rival: int | None = Field(None, ge=0, le=10_000_000)

    def margin(self) -> tuple[int | None, int | None, int | None]:
        return self.step, self.token, self.rival


class WhyBody(MarginBody):
    methods: list[Literal[tuple(METHODS)]] = Field(list(METHODS), max_length=len(METHODS))  # type: ignore[valid-type]


class PatchingBody(MarginBody):
    other: str = Field(max_length=10 * CHARACTERS)


class PatchedBody(ExplorerBody):
    other: str = Field(max_length=10 * CHARACTERS)
    place: str = Field(max_length=200)
    position: int | None = Field(None, ge=0, le=100_000)
    step: int | None = Field(None, ge=0, le=100_000)


class ScoreBody(ExplorerBody):
    sentences: int = Field(100, ge=1, le=2000)


def explorer_app(explorer: Explorer, hosts: Iterable[str] = ("127.0.0.1", "localhost")) -> FastAPI:
    """Build the application. `hosts`: the accepted host names; empty: any."""
    app = FastAPI(title="Cutaway explorer", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    allowed = frozenset(hosts)

    @app.middleware("http")
    async def guard(request: Request, call_next: Any) -> Response:
        rejection = reject(request, allowed)
        response: Response = rejection or await call_next(request)
        response.headers.update(HEADERS)
        return response

    @app.exception_handler(CutawayError)
    async def on_known_error(request: Request, error: CutawayError) -> Response:
        return JSONResponse({"error": str(error)}, status_code=400)

    @app.exception_handler(RequestValidationError)
    async def on_invalid_request(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(place) for place in first["loc"] if place != "body") or "the request"
        return JSONResponse({"error": f"{where}: {first['msg']}."}, status_code=422)

    @app.get("/api/info")
    def info() -> Response:
        return answer(explorer.info())

    @app.post("/api/trace")
    def trace(body: ExplorerBody) -> Response:
        return answer(explorer.trace(body.to_request()))

    @app.post("/api/beam")
    def beam(body: BeamBody) -> Response:
        return answer(explorer.beam(body.to_request(), body.beam_size, body.length_penalty))

    @app.post("/api/part")
    def part(body: PartBody) -> Response:
        return answer(explorer.part(body.to_request(), body.name))

    @app.post("/api/ablations")
    def ablations(body: ExplorerBody) -> Response:
        return answer(explorer.ablations(body.to_request()))

    @app.post("/api/why")
    def why(body: WhyBody) -> Response:
        return answer(explorer.why(body.to_request(), *body.margin(), body.methods))

    @app.post("/api/patching")
    def patching(body: PatchingBody) -> Response:
        return answer(explorer.patching(body.to_request(), body.other, *body.margin()))

    @app.post("/api/patched")
    def patched(body: PatchedBody) -> Response:
        return answer(explorer.patched(body.to_request(), body.other, body.place, body.position, body.step))

    @app.post("/api/snapshots")
    def snapshots(body: ExplorerBody) -> Response:
        return lines(explorer.snapshots(body.to_request()))

    @app.post("/api/score")
    def score(body: ScoreBody) -> Response:
        return lines(explorer.score(body.to_request(), body.sentences))

    @app.get("/api/heads")
    def heads(run: int = 0) -> Response:
        return answer(explorer.heads(run))

    @app.get("/api/live")
    def live(run: int = 0) -> Response:
        return answer(describe_run(explorer, run, stored_run(explorer, run)))

    @app.get("/api/weights")
    def weights(run: int = 0, snapshot: int | None = None) -> Response:
        content = (
            stored_run(explorer, run).files[WEIGHTS] if snapshot is None else stored_snapshot(explorer, run, snapshot)
        )
        return Response(content, media_type="application/octet-stream")

    @app.get("/{path:path}")
    def page(path: str) -> Response:
        file = FILES.get(path or "index.html")
        if file is None:
            return JSONResponse({"error": f"there is no path /{path[:100]}."}, status_code=404)
        return FileResponse(file, media_type=TYPES[file.suffix])

    return app


def reject(request: Request, allowed: frozenset[str]) -> Response | None:
    """Reject another host name, a cross-site request, or a body that is too large or has no length."""
    host = request.headers.get("host", "").rpartition(":")[0] or request.headers.get("host", "")
    if allowed and host not in allowed:
        names = " or ".join(sorted(allowed))
        return JSONResponse({"error": f"the host name {host!r} is not accepted. Use {names}."}, status_code=421)
    if request.headers.get("sec-fetch-site") == "cross-site":
        return JSONResponse({"error": "the explorer rejects requests from pages of other sites."}, status_code=403)
    length = request.headers.get("content-length", "0" if request.method == "GET" else "")
    if not length.isdecimal() or "transfer-encoding" in request.headers:
        return JSONResponse({"error": "the request has no Content-Length. Send one."}, status_code=411)
    if int(length) > MAX_BODY:
        return JSONResponse({"error": f"the request is larger than {MAX_BODY:,} bytes. Send less."}, status_code=413)
    return None


def answer(value: Any) -> Response:
    return Response(dumps(value), media_type="application/json")


def lines(values: Iterator[Any]) -> Response:
    """Stream one JSON line for each value. The first is awaited here, so that an early error still gets its status."""
    first = next(values)

    def generate() -> Iterator[str]:
        yield dumps(first) + "\n"
        try:
            for value in values:
                yield dumps(value) + "\n"
        except CutawayError as error:  # the status was sent already
            yield dumps({"error": str(error)}) + "\n"

    return StreamingResponse(generate(), media_type="application/x-ndjson")
