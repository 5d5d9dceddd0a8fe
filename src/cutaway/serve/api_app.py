"""The API for other programs: translate, generate, classify, tag, embed and trace over HTTP; and OpenAI's dialect.

a request ─▶ guard.py ─▶ a route: which model, which settings ─▶ jobs that wait ─▶ the model's worker, in batches
                                               the answer ◀── a ticket ◀──────────────────┘
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from cutaway import __version__
from cutaway.errors import CutawayError, did_you_mean
from cutaway.serve import openai_schemas as openai
from cutaway.serve import schemas as s
from cutaway.serve.docs_page import POLICY, docs_page, resolved
from cutaway.serve.middleware import Access, Guard
from cutaway.serve.model_worker import Worker
from cutaway.serve.openai_api import openai_router
from cutaway.serve.refusals import OPENAI, Refusal, json_response, refused
from cutaway.serve.requests import (
    alike,
    aside,
    chosen,
    decode_of,
    no_model,
    number,
    prompted,
    texts_of,
    to_look,
    to_write,
)
from cutaway.serve.responses import Events, EventStream, answers
from cutaway.serve.served_model import ABILITIES, RunToServe, Served
from cutaway.serve.state import TROUBLE, AppState
from cutaway.serve.writing import Version, Written

ABOUT = """Trained runs over HTTP. Texts of requests that wait at the same time are worked on together.
What is wrong with a request is told in JSON: what was given, what was expected, and what to do."""


def api_app(app_state: AppState, access: Access) -> ASGIApp:
    """The whole application, its guard around it."""
    app = FastAPI(title="Cutaway", version=__version__, description=ABOUT, docs_url=None, redoc_url=None, lifespan=None)
    problems = {status: {"model": s.Problem, "description": meaning} for status, meaning in TROUBLE.items()}
    app.include_router(work_router(app_state), responses=problems)  # type: ignore[arg-type]
    app.include_router(openai_router(app_state))
    app.include_router(watching_router(app_state))
    add_pages(app)
    add_handlers(app)
    paths = named(app.openapi(), [worker.run for worker in app_state.workers])["paths"]
    app_state.state.paths = frozenset(paths)
    app_state.state.work = frozenset(path for path, methods in paths.items() if "post" in methods)
    guarded: ASGIApp = Guard(app, access, app_state.limits, app_state.metrics, app_state.state)
    if access.origins:
        guarded = CORSMiddleware(
            guarded, allow_origins=access.origins, allow_methods=["GET", "POST"], allow_headers=["*"]
        )
    return guarded


def named(document: dict[str, Any], runs: Sequence[RunToServe]) -> dict[str, Any]:
    """The OpenAPI document, which now says which models there are; and that below /v1, 422 is 400 (refusals.py)."""
    writers = [run.name for run in runs if not {"generate", "translate"}.isdisjoint(ABILITIES[run.task])]
    for path, methods in document["paths"].items():
        for operation in methods.values() if path.startswith(OPENAI) else ():
            operation["responses"].pop("422", None)
    for schema in document["components"]["schemas"].values():
        field = schema.get("properties", {}).get("model", {})
        for one in field.get("anyOf", [field]):
            if one.get("type") == "string" and runs:
                one["enum"] = [run.name for run in runs]
        able = writers if "prompt" in schema.get("properties", {}) else [run.name for run in runs]
        if "examples" in schema and able:
            schema["examples"] = [with_model(example, able) for example in schema["examples"]]
    return document


def with_model(example: dict[str, Any], able: Sequence[str]) -> dict[str, Any]:
    """The example, for one of these models if it names any."""
    return example if example.get("model", able[0]) in able else {**example, "model": able[0]}


def work_router(app_state: AppState) -> APIRouter:
    """What models do."""
    router = APIRouter(tags=["models at work"])
    limits = app_state.limits

    @router.post("/translate", summary="Translate texts", response_model=s.Written, responses=s.OR_A_STREAM)
    async def translate(request: Request, body: s.TranslateRequest) -> Any:
        return await write(request, body, "translate")

    @router.post("/generate", summary="Go on with texts", response_model=s.Written, responses=s.OR_A_STREAM)
    async def generate(request: Request, body: s.GenerateRequest) -> Any:
        return await write(request, body, "generate")

    async def write(request: Request, body: s.TranslateRequest | s.GenerateRequest, ability: str) -> Any:
        worker, served = chosen(app_state.workers, body.model, ability)
        texts = texts_of(body.text, limits)
        decode = decode_of(served, body.given(), body.n_best, limits, choices=body.choices)
        jobs, _ = await aside(
            characters([*texts, *body.choices, body.prefix]),
            lambda: to_write(served, texts, decode, limits, body.n_best, body.prefix, body.stop, choices=body.choices),
        )
        if body.stream:
            stream = EventStream(request.url.path, Events(worker, len(texts), jobs), streamed, lambda: None)
            return await stream.begin(request)
        found = await answers(request, worker, len(texts), jobs)
        notes = await aside(characters(texts), lambda: [unknown(served, text) for text in texts])
        results = [{**written(one), **note} for one, note in zip(found, notes, strict=True)]
        return json_response({"model": served.name, "results": results})

    async def read(
        request: Request, body: s.ClassifyRequest | s.TagRequest | s.EmbedRequest, ability: str
    ) -> tuple[str, list[Any]]:
        worker, served = chosen(app_state.workers, body.model, ability)
        texts = texts_of(body.text, limits)
        settings, cut = None, False
        if isinstance(body, s.EmbedRequest):
            served.embedder.pooling(body.pooling)  # refused at once, if it is not for this model
            settings, cut = (body.pooling, body.normalize, body.cut), body.cut
            texts = prompted(served, texts, body.prompt)
        jobs, _ = await aside(characters(texts), lambda: alike(served, ability, texts, settings, limits, cut))
        return served.name, await answers(request, worker, len(texts), jobs)

    @router.post("/classify", summary="Give texts their labels", response_model=s.Classified)
    async def classify(request: Request, body: s.ClassifyRequest) -> Response:
        name, found = await read(request, body, "classify")
        return json_response({"model": name, "results": [labelled(row[: body.top], is_cut) for row, is_cut in found]})

    @router.post("/tag", summary="Give the words of texts their tags", response_model=s.Tagged)
    async def tag(request: Request, body: s.TagRequest) -> Response:
        name, found = await read(request, body, "tag")
        return json_response({"model": name, "results": [tagged(*one) for one in found]})

    @router.post("/embed", summary="Make vectors of texts", response_model=s.Embedded)
    async def embed(request: Request, body: s.EmbedRequest) -> Response:
        name, found = await read(request, body, "embed")
        return json_response({"model": name, "results": [{"vector": list(map(number, v))} for v in found]})

    @router.post(
        "/trace", summary="Look inside: attention, and what else was considered", response_model=dict[str, Any]
    )
    async def trace(request: Request, body: s.TraceRequest) -> Response:
        worker, served = chosen(app_state.workers, body.model, "trace")
        jobs = await aside(len(body.text), lambda: to_look(served, body.text, body.target, limits))
        [found] = await answers(request, worker, 1, jobs)
        return Response(found.encode("utf-8", "replace"), media_type="application/json")

    return router


def streamed(index: int, event: Any) -> Iterable[Any]:
    """A piece of a text; or, at its end, all that is known of it but the text."""
    if isinstance(event, str):
        return [{"index": index, "text": event}]
    best, *others = map(version, event.versions)
    del best["text"]
    return [{"index": index, **best, **({"others": others} if others else {})}]


def characters(texts: Sequence[str]) -> int:
    return sum(map(len, texts))


def written(found: Written) -> dict[str, Any]:
    best, *others = map(version, found.versions)
    return {**best, "others": others}


def unknown(served: Served, text: str) -> dict[str, list[str]]:
    """A word that a translator does not know is translated all the same, as something else: so it is told."""
    words = served.tokenizer.unknown(text) if "translate" in served.abilities else []
    return {"unknown": words} if words else {}


def version(found: Version) -> dict[str, Any]:
    return {
        "text": found.text,
        "finished": found.finished,
        "reason": found.reason,
        "tokens": len(found.tokens),
        "log_probability": number(found.log_probability),
        "score": number(found.score),
    }


def labelled(row: list[tuple[str, float]], is_cut: bool) -> dict[str, Any]:
    labels = [{"label": label, "probability": number(p)} for label, p in row]
    return {**labels[0], "labels": labels, **({"cut": True} if is_cut else {})}


def tagged(words: list[str], tags: list[str], parts: int) -> dict[str, Any]:
    return {"words": words, "tags": tags, **({"parts": parts} if parts > 1 else {})}


def watching_router(app_state: AppState) -> APIRouter:
    """What people and programs ask that watch over a server."""
    router = APIRouter(tags=["the server itself"])
    refusals = {status: {"model": s.Problem, "description": TROUBLE[status]} for status in (401, 403, 421)}

    def models() -> Response:
        return json_response({"object": "list", "data": [card(app_state, worker) for worker in app_state.workers]})

    for path in ("/models", "/v1/models"):
        router.get(path, summary="Which runs are served, and what they can do", response_model=s.ModelList,
                   responses=refusals)(models)  # type: ignore[arg-type]  # fmt: skip

    unknown = {**refusals, 404: {"model": openai.OpenAIProblem, "description": TROUBLE[404]}}

    @router.get("/v1/models/{name}", summary="One of them", response_model=s.ModelCard,
                responses=unknown)  # type: ignore[arg-type]  # fmt: skip
    async def model(name: str) -> Response:
        by_name = {worker.run.name: worker for worker in app_state.workers}
        if name not in by_name:
            raise no_model(name, by_name)
        return json_response(card(app_state, by_name[name]))

    @router.get("/health", summary="Whether the server is alive", response_model=s.Health)
    async def health() -> Response:
        return json_response({"status": "alive"})

    @router.get("/ready", summary="Whether it takes work", response_model=s.Health,
                responses={503: {"model": s.Problem, "description": "Not yet, or no more."}})  # fmt: skip
    async def ready() -> Response:
        if app_state.problem:
            return refused("/ready", Refusal(503, f"{app_state.problem}.", retry_after=5))
        return json_response({"status": "ready", "models": {w.run.name: w.run.task for w in app_state.workers}})

    @router.get("/metrics", summary="Counts and times, as Prometheus reads them", response_class=PlainTextResponse,
                responses=refusals)  # type: ignore[arg-type]  # fmt: skip
    async def metrics() -> Response:
        return Response(app_state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def card(app_state: AppState, worker: Worker) -> dict[str, Any]:
    config = worker.run.config
    return {
        "id": worker.run.name,
        "object": "model",
        "created": app_state.started,
        "owned_by": "cutaway",
        "task": worker.run.task,
        "can": list(worker.served.abilities) if worker.served else [],
        "engine": worker.served.engine if worker.served else worker.run.engine,
        "longest_text": config.longest_text,
        "decoding": {name: getattr(config.decode, name) for name in s.Decoding.model_fields},
    }


def add_pages(app: FastAPI) -> None:
    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        page = docs_page(app.openapi(), str(request.base_url).rstrip("/"))
        return HTMLResponse(page, headers={"content-security-policy": POLICY})

    @app.get("/", include_in_schema=False)
    async def front() -> Response:
        return Response(status_code=307, headers={"Location": "/docs"})


def add_handlers(app: FastAPI) -> None:
    """Whatever goes wrong is told in the same shape."""

    @app.exception_handler(CutawayError)
    async def mistake(request: Request, error: CutawayError) -> Response:
        refusal = error if isinstance(error, Refusal) else Refusal(400, str(error))
        return refused(request.url.path, refusal)

    @app.exception_handler(RequestValidationError)
    async def misunderstood(request: Request, error: RequestValidationError) -> Response:
        return refused(request.url.path, explained(error.errors(), fields_of(request.url.path)))

    def fields_of(path: str) -> list[str]:
        """What a request to this path may hold."""
        body = app.openapi()["paths"].get(path, {}).get("post", {}).get("requestBody")
        return (
            list(resolved(body["content"]["application/json"]["schema"], app.openapi())["properties"]) if body else []
        )

    @app.exception_handler(Exception)
    async def ours(request: Request, error: Exception) -> Response:
        return refused(request.url.path, Refusal(500, "something went wrong inside the server. Its log says what."))

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        path = request.url.path
        messages = {
            404: f"there is nothing at {path[:100]}. GET /docs tells what there is.",
            405: f"{request.method} is not for {path[:100]}. GET /docs tells what is.",
        }
        refusal = Refusal(error.status_code, messages.get(error.status_code, str(error.detail)))
        return refused(path, refusal, dict(error.headers or {}))


def explained(errors: Sequence[Mapping[str, Any]], fields: Sequence[str]) -> Refusal:
    """What pydantic found, in our words: where, what is wrong, what is there instead.

    Of a field that can be several things, it tells what is wrong with it as each of them: the deepest got furthest.
    """
    error = max((e for e in errors if e["loc"][:2] == errors[0]["loc"][:2]), key=lambda e: len(e["loc"]))
    names = [str(place) for n, place in enumerate(error["loc"]) if n == 1 or (n and isinstance(place, int))]
    if error["type"] == "json_invalid":
        return Refusal(422, f"the request is not JSON: {error['ctx']['error']}, at character {names[0]}.")
    if not names:
        return Refusal(422, f"the request: {error['msg']}. Send an object with some of: {', '.join(fields)}.")
    if error["type"] == "extra_forbidden" and len(error["loc"]) == 2:
        return Refusal(422, f"there is no {names[0][:100]!r} here. {did_you_mean(names[0], fields)}", names[0][:100])
    return Refusal(422, f"{'.'.join(names)}: {error['msg']}.", names[0])
