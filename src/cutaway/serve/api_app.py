"""The JSON API: translate, generate, classify, tag, embed and trace; and the OpenAI-compatible routes.

request ─▶ middleware.py ─▶ route: choose model and settings ─▶ job queue ─▶ model worker, in batches
                                       response ◀── PendingRequest ◀──────────────┘
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi import Request as HttpRequest
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from cutaway import __version__
from cutaway.errors import CutawayError, did_you_mean
from cutaway.serve import openai_schemas as openai
from cutaway.serve import schemas as s
from cutaway.serve.docs_page import POLICY, docs_page, resolve_ref
from cutaway.serve.errors import OPENAI_PREFIX, ApiError, error_response, json_response
from cutaway.serve.generation import GeneratedText, GenerationResult
from cutaway.serve.loaded_model import ABILITIES, LoadedModel, ServedRun
from cutaway.serve.middleware import Access, RequestMiddleware
from cutaway.serve.model_worker import ModelWorker
from cutaway.serve.openai_api import openai_router
from cutaway.serve.requests import (
    add_prompt,
    check_texts,
    choose_model,
    finite_or_none,
    make_generation_jobs,
    make_reading_jobs,
    make_trace_jobs,
    merge_decode_settings,
    prepare,
    unknown_model_error,
)
from cutaway.serve.responses import EventStream, ResultEvents, wait_for_results
from cutaway.serve.state import STATUS_DESCRIPTIONS, AppState

DESCRIPTION = """Trained runs over HTTP. Texts from waiting requests share a batch.
Errors are JSON: what was given, what was expected, and what to do."""


def api_app(app_state: AppState, access: Access) -> ASGIApp:
    """Build the application, wrapped in its middleware."""
    app = FastAPI(
        title="Cutaway", version=__version__, description=DESCRIPTION, docs_url=None, redoc_url=None, lifespan=None
    )
    error_schemas = {
        status: {"model": s.ErrorResponse, "description": meaning} for status, meaning in STATUS_DESCRIPTIONS.items()
    }
    app.include_router(model_router(app_state), responses=error_schemas)  # type: ignore[arg-type]
    app.include_router(openai_router(app_state))
    app.include_router(monitoring_router(app_state))
    add_pages(app)
    add_handlers(app)
    paths = add_model_names(app.openapi(), [worker.run for worker in app_state.workers])["paths"]
    app_state.status.paths = frozenset(paths)
    app_state.status.model_paths = frozenset(path for path, methods in paths.items() if "post" in methods)
    application: ASGIApp = RequestMiddleware(app, access, app_state.limits, app_state.metrics, app_state.status)
    if access.origins:
        application = CORSMiddleware(
            application, allow_origins=access.origins, allow_methods=["GET", "POST"], allow_headers=["*"]
        )
    return application


def add_model_names(document: dict[str, Any], runs: Sequence[ServedRun]) -> dict[str, Any]:
    """Add the served models' names to the OpenAPI document. Drop 422 below /v1, where it is sent as 400 (errors.py)."""
    generators = [run.name for run in runs if not {"generate", "translate"}.isdisjoint(ABILITIES[run.task])]
    for path, methods in document["paths"].items():
        for operation in methods.values() if path.startswith(OPENAI_PREFIX) else ():
            operation["responses"].pop("422", None)
    for schema in document["components"]["schemas"].values():
        field = schema.get("properties", {}).get("model", {})
        for option in field.get("anyOf", [field]):
            if option.get("type") == "string" and runs:
                option["enum"] = [run.name for run in runs]
        candidates = generators if "prompt" in schema.get("properties", {}) else [run.name for run in runs]
        if "examples" in schema and candidates:
            schema["examples"] = [with_model(example, candidates) for example in schema["examples"]]
    return document


def with_model(example: dict[str, Any], candidates: Sequence[str]) -> dict[str, Any]:
    """Return the example; if it names a model that is not a candidate, name the first candidate instead."""
    return example if example.get("model", candidates[0]) in candidates else {**example, "model": candidates[0]}


def model_router(app_state: AppState) -> APIRouter:
    """The routes that run a model."""
    router = APIRouter(tags=["models"])
    limits = app_state.limits

    @router.post("/translate", summary="Translate texts", response_model=s.TextResponse, responses=s.STREAM_RESPONSE)
    async def translate(request: HttpRequest, body: s.TranslateRequest) -> Any:
        return await generate_texts(request, body, "translate")

    @router.post("/generate", summary="Continue texts", response_model=s.TextResponse, responses=s.STREAM_RESPONSE)
    async def generate(request: HttpRequest, body: s.GenerateRequest) -> Any:
        return await generate_texts(request, body, "generate")

    async def generate_texts(request: HttpRequest, body: s.TranslateRequest | s.GenerateRequest, ability: str) -> Any:
        worker, model = choose_model(app_state.workers, body.model, ability)
        texts = check_texts(body.text, limits)
        decode = merge_decode_settings(model, body.given(), body.n_best, limits, choices=body.choices)
        jobs, _ = await prepare(
            count_characters([*texts, *body.choices, body.prefix]),
            lambda: make_generation_jobs(
                model, texts, decode, limits, body.n_best, body.prefix, body.stop, choices=body.choices
            ),
        )
        if body.stream:
            stream = EventStream(request.url.path, ResultEvents(worker, len(texts), jobs), stream_values, lambda: None)
            return await stream.start(request)
        found = await wait_for_results(request, worker, len(texts), jobs)
        notes = await prepare(count_characters(texts), lambda: [unknown_words(model, text) for text in texts])
        results = [{**text_result(one), **note} for one, note in zip(found, notes, strict=True)]
        return json_response({"model": model.name, "results": results})

    async def read_texts(
        request: HttpRequest, body: s.ClassifyRequest | s.TagRequest | s.EmbedRequest, ability: str
    ) -> tuple[str, list[Any]]:
        worker, model = choose_model(app_state.workers, body.model, ability)
        texts = check_texts(body.text, limits)
        settings, cut = None, False
        if isinstance(body, s.EmbedRequest):
            model.embedder.pooling(body.pooling)  # raises if this model does not support it
            settings, cut = (body.pooling, body.normalize, body.cut), body.cut
            texts = add_prompt(model, texts, body.prompt)
        jobs, _ = await prepare(
            count_characters(texts), lambda: make_reading_jobs(model, ability, texts, settings, limits, cut)
        )
        return model.name, await wait_for_results(request, worker, len(texts), jobs)

    @router.post("/classify", summary="Classify texts", response_model=s.ClassifyResponse)
    async def classify(request: HttpRequest, body: s.ClassifyRequest) -> Response:
        name, results = await read_texts(request, body, "classify")
        return json_response(
            {"model": name, "results": [classify_result(row[: body.top], is_cut) for row, is_cut in results]}
        )

    @router.post("/tag", summary="Tag the words of texts", response_model=s.TagResponse)
    async def tag(request: HttpRequest, body: s.TagRequest) -> Response:
        name, results = await read_texts(request, body, "tag")
        return json_response({"model": name, "results": [tag_result(*one) for one in results]})

    @router.post("/embed", summary="Embed texts as vectors", response_model=s.EmbedResponse)
    async def embed(request: HttpRequest, body: s.EmbedRequest) -> Response:
        name, results = await read_texts(request, body, "embed")
        return json_response({"model": name, "results": [{"vector": list(map(finite_or_none, v))} for v in results]})

    @router.post(
        "/trace",
        summary="Trace one text through the model: attention weights and candidate tokens",
        response_model=dict[str, Any],
    )
    async def trace(request: HttpRequest, body: s.TraceRequest) -> Response:
        worker, model = choose_model(app_state.workers, body.model, "trace")
        jobs = await prepare(len(body.text), lambda: make_trace_jobs(model, body.text, body.target, limits))
        [trace_json] = await wait_for_results(request, worker, 1, jobs)
        return Response(trace_json.encode("utf-8", "replace"), media_type="application/json")

    return router


def stream_values(index: int, event: Any) -> Iterable[Any]:
    """Turn an event into JSON values: a piece of text, or the final result without its text."""
    if isinstance(event, str):
        return [{"index": index, "text": event}]
    best, *others = map(text_version, event.versions)
    del best["text"]
    return [{"index": index, **best, **({"others": others} if others else {})}]


def count_characters(texts: Sequence[str]) -> int:
    return sum(map(len, texts))


def text_result(result: GenerationResult) -> dict[str, Any]:
    best, *others = map(text_version, result.versions)
    return {**best, "others": others}


def unknown_words(model: LoadedModel, text: str) -> dict[str, list[str]]:
    """Report source words that are not in a translator's vocabulary: it translates them as something else."""
    words = model.tokenizer.unknown(text) if "translate" in model.abilities else []
    return {"unknown": words} if words else {}


def text_version(version: GeneratedText) -> dict[str, Any]:
    return {
        "text": version.text,
        "finished": version.finished,
        "reason": version.reason,
        "tokens": len(version.tokens),
        "log_probability": finite_or_none(version.log_probability),
        "score": finite_or_none(version.score),
    }


def classify_result(row: list[tuple[str, float]], is_cut: bool) -> dict[str, Any]:
    labels = [{"label": label, "probability": finite_or_none(p)} for label, p in row]
    return {**labels[0], "labels": labels, **({"cut": True} if is_cut else {})}


def tag_result(words: list[str], tags: list[str], parts: int) -> dict[str, Any]:
    return {"words": words, "tags": tags, **({"parts": parts} if parts > 1 else {})}


def monitoring_router(app_state: AppState) -> APIRouter:
    """The routes that describe and monitor the server."""
    router = APIRouter(tags=["server"])
    error_schemas = {
        status: {"model": s.ErrorResponse, "description": STATUS_DESCRIPTIONS[status]} for status in (401, 403, 421)
    }

    def models() -> Response:
        return json_response(
            {"object": "list", "data": [model_card(app_state, worker) for worker in app_state.workers]}
        )

    for path in ("/models", "/v1/models"):
        router.get(path, summary="List the served models and what they can do", response_model=s.ModelList,
                   responses=error_schemas)(models)  # type: ignore[arg-type]  # fmt: skip

    with_not_found = {
        **error_schemas,
        404: {"model": openai.OpenAIErrorResponse, "description": STATUS_DESCRIPTIONS[404]},
    }

    @router.get("/v1/models/{name}", summary="Describe one model", response_model=s.ModelCard,
                responses=with_not_found)  # type: ignore[arg-type]  # fmt: skip
    async def model(name: str) -> Response:
        by_name = {worker.run.name: worker for worker in app_state.workers}
        if name not in by_name:
            raise unknown_model_error(name, by_name)
        return json_response(model_card(app_state, by_name[name]))

    @router.get("/health", summary="Report that the process is alive", response_model=s.Health)
    async def health() -> Response:
        return json_response({"status": "alive"})

    @router.get("/ready", summary="Report whether the server accepts work", response_model=s.Health,
                responses={503: {"model": s.ErrorResponse, "description": "Loading or shutting down."}})  # fmt: skip
    async def ready() -> Response:
        if app_state.not_ready_reason:
            return error_response("/ready", ApiError(503, f"{app_state.not_ready_reason}.", retry_after=5))
        return json_response({"status": "ready", "models": {w.run.name: w.run.task for w in app_state.workers}})

    @router.get("/metrics", summary="Metrics in Prometheus text format", response_class=PlainTextResponse,
                responses=error_schemas)  # type: ignore[arg-type]  # fmt: skip
    async def metrics() -> Response:
        return Response(app_state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def model_card(app_state: AppState, worker: ModelWorker) -> dict[str, Any]:
    config = worker.run.config
    return {
        "id": worker.run.name,
        "object": "model",
        "created": app_state.started,
        "owned_by": "cutaway",
        "task": worker.run.task,
        "can": list(worker.model.abilities) if worker.model else [],
        "engine": worker.model.engine if worker.model else worker.run.engine,
        "longest_text": config.longest_text,
        "decoding": {name: getattr(config.decode, name) for name in s.Decoding.model_fields},
    }


def add_pages(app: FastAPI) -> None:
    @app.get("/docs", include_in_schema=False)
    async def docs(request: HttpRequest) -> Response:
        page = docs_page(app.openapi(), str(request.base_url).rstrip("/"))
        return HTMLResponse(page, headers={"content-security-policy": POLICY})

    @app.get("/", include_in_schema=False)
    async def front() -> Response:
        return Response(status_code=307, headers={"Location": "/docs"})


def add_handlers(app: FastAPI) -> None:
    """Send every error in the same JSON shape."""

    @app.exception_handler(CutawayError)
    async def on_known_error(request: HttpRequest, error: CutawayError) -> Response:
        api_error = error if isinstance(error, ApiError) else ApiError(400, str(error))
        return error_response(request.url.path, api_error)

    @app.exception_handler(RequestValidationError)
    async def on_invalid_request(request: HttpRequest, error: RequestValidationError) -> Response:
        return error_response(request.url.path, describe_validation_error(error.errors(), fields_of(request.url.path)))

    def fields_of(path: str) -> list[str]:
        """List the fields that a request to this path may have."""
        body = app.openapi()["paths"].get(path, {}).get("post", {}).get("requestBody")
        return (
            list(resolve_ref(body["content"]["application/json"]["schema"], app.openapi())["properties"])
            if body
            else []
        )

    @app.exception_handler(Exception)
    async def on_unexpected_error(request: HttpRequest, error: Exception) -> Response:
        return error_response(request.url.path, ApiError(500, "internal server error. See the server's log."))

    @app.exception_handler(HTTPException)
    async def on_http_error(request: HttpRequest, error: HTTPException) -> Response:
        path = request.url.path
        messages = {
            404: f"there is no path {path[:100]}. GET /docs lists all paths.",
            405: f"{path[:100]} does not accept {request.method}. GET /docs lists the methods.",
        }
        api_error = ApiError(error.status_code, messages.get(error.status_code, str(error.detail)))
        return error_response(path, api_error, dict(error.headers or {}))


def describe_validation_error(errors: Sequence[Mapping[str, Any]], fields: Sequence[str]) -> ApiError:
    """Turn pydantic's errors into one sentence: the field, what is wrong, what was expected.

    For a field of a union type, pydantic reports one error for each member. Report the one with the deepest location.
    """
    error = max((e for e in errors if e["loc"][:2] == errors[0]["loc"][:2]), key=lambda e: len(e["loc"]))
    names = [str(place) for n, place in enumerate(error["loc"]) if n == 1 or (n and isinstance(place, int))]
    if error["type"] == "json_invalid":
        return ApiError(
            422, f"the request is not JSON: {error['ctx']['error']}, at character {names[0]}. Send a JSON object."
        )
    if not names:
        return ApiError(
            422, f"the request: {error['msg']}. Send a JSON object with some of these fields: {', '.join(fields)}."
        )
    if error["type"] == "extra_forbidden" and len(error["loc"]) == 2:
        return ApiError(422, f"unknown field {names[0][:100]!r}. {did_you_mean(names[0], fields)}", names[0][:100])
    return ApiError(422, f"{'.'.join(names)}: {error['msg']}.", names[0])
