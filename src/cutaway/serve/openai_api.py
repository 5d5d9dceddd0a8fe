"""OpenAI-compatible routes: /v1/completions and /v1/embeddings."""

from __future__ import annotations

import asyncio
import base64
import secrets
import time
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from fastapi import APIRouter
from fastapi import Request as HttpRequest
from fastapi.responses import Response

from cutaway.data.tokenizer import Tokenizer
from cutaway.search.streaming import TextStream
from cutaway.serve import openai_schemas as s
from cutaway.serve.errors import ApiError, json_response
from cutaway.serve.generation import GeneratedText, GenerationResult
from cutaway.serve.limits import Limits
from cutaway.serve.loaded_model import LoadedModel
from cutaway.serve.requests import (
    add_prompt,
    check_texts,
    choose_model,
    finite_or_none,
    make_generation_jobs,
    make_reading_jobs,
    merge_decode_settings,
    prepare,
)
from cutaway.serve.responses import EventStream, ResultEvents, wait_for_results
from cutaway.serve.schemas import STREAM_RESPONSE
from cutaway.serve.state import STATUS_DESCRIPTIONS, AppState

# unsupported field -> the values that change nothing, which are accepted
NO_EFFECT: dict[str, tuple[Any, ...]] = {
    "suffix": (None, ""),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "logit_bias": (None, {}),
}
ADVICE = {
    "suffix": "These models only continue a text.",
    "presence_penalty": "Use repetition_penalty.",
    "frequency_penalty": "Use repetition_penalty.",
    "logit_bias": "Leave it out.",
}
TINY_TOP_P = 1e-9  # keeps only the likeliest token
GREEDY_BELOW = 0.01  # temperatures below this mean greedy search
NEUTRAL_SAMPLING = {"temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0}  # values that change nothing
EXTRA_SETTINGS = (
    "strategy",
    "beam_size",
    "length_penalty",
    "coverage_penalty",
    "repetition_penalty",
    "no_repeat_ngram",
    "min_length",
)


def openai_router(app_state: AppState) -> APIRouter:
    error_schemas = {n: {"model": s.OpenAIErrorResponse, "description": m} for n, m in STATUS_DESCRIPTIONS.items()}
    router = APIRouter(prefix="/v1", tags=["OpenAI-compatible"], responses=error_schemas)  # type: ignore[arg-type]

    @router.post("/completions", summary="Generate texts (OpenAI-compatible)", response_model=s.CompletionResponse,
                 responses=STREAM_RESPONSE)  # fmt: skip
    async def completions(request: HttpRequest, body: s.CompletionRequest) -> Any:
        return await create_completion(app_state, request, body)

    @router.post("/embeddings", summary="Embed texts (OpenAI-compatible)", response_model=s.EmbeddingResponse)
    async def embeddings(request: HttpRequest, body: s.EmbeddingRequest) -> Response:
        return await create_embeddings(app_state, request, body)

    return router


async def create_completion(app_state: AppState, request: HttpRequest, body: s.CompletionRequest) -> Any:
    worker, model = choose_model(app_state.workers, body.model, "generate", "translate")
    check_supported(body, model)
    texts = check_texts(await read_prompts(model, body.prompt, "prompt", app_state.limits), app_state.limits)
    n = body.n or 1
    samples = max(n, body.best_of or 1)
    if len(texts) * samples > app_state.limits.texts:
        raise ApiError(
            422,
            f"{len(texts)} prompts times {samples} are more than {app_state.limits.texts} texts. Send fewer.",
            "n",
        )
    decode = merge_decode_settings(model, read_settings(body, model), 1, app_state.limits, "max_tokens")
    check_n_and_logprobs(body, decode.strategy)
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    jobs, tokens = await prepare(
        sum(map(len, texts)),
        lambda: make_generation_jobs(model, texts, decode, app_state.limits, stop=stop, samples=samples),
    )
    builder = CompletionBuilder(body, model, texts, sum(tokens))
    if body.stream:
        events = ResultEvents(worker, len(texts) * samples, jobs)
        return await EventStream(request.url.path, events, builder.chunks, builder.usage_chunk).start(request)
    found = await wait_for_results(request, worker, len(texts) * samples, jobs)
    if body.logprobs is None:
        return json_response(builder.response(found, n, samples))
    return json_response(await asyncio.to_thread(builder.response, found, n, samples))  # decodes every token


def check_supported(body: s.CompletionRequest, model: LoadedModel) -> None:
    for name, neutral in NO_EFFECT.items():
        if getattr(body, name) not in neutral:
            raise ApiError(400, f"{name} is not supported. {ADVICE[name]}", name)
    if body.echo and "translate" in model.abilities:
        raise ApiError(400, f"echo needs a language model, and {model.name!r} is a translator. Leave it out.", "echo")
    if body.logprobs is not None and (body.echo or body.stream):
        other = "echo" if body.echo else "stream"
        raise ApiError(400, f"logprobs cannot be combined with {other}. Leave one of them out.", "logprobs")
    if body.best_of is not None and body.best_of < (body.n or 1):
        raise ApiError(400, f"best_of = {body.best_of} is less than n = {body.n or 1}. Raise it.", "best_of")
    if (body.best_of or 1) > 1 and body.stream:
        raise ApiError(400, f"best_of = {body.best_of} cannot be streamed. Leave out best_of or stream.", "best_of")
    if body.stream_options and not body.stream:
        raise ApiError(400, "stream_options needs stream = true. Leave it out, or add stream.", "stream_options")


def read_settings(body: s.CompletionRequest, model: LoadedModel) -> dict[str, Any]:
    """Translate OpenAI's settings into ours.

    temperature 0 means greedy, any other sampling setting means sampling, none the run's own strategy.
    """
    given = {name: value for name in EXTRA_SETTINGS if (value := getattr(body, name)) is not None}
    sampling = {name: value for name in NEUTRAL_SAMPLING if (value := getattr(body, name)) is not None}
    wants_several = max(body.n or 1, body.best_of or 1) > 1
    is_greedy = body.temperature is not None and body.temperature < GREEDY_BELOW
    if "strategy" not in given and (sampling or wants_several) and "beam_size" not in given:
        given["strategy"] = "greedy" if is_greedy else "sample"
        sampling = {} if is_greedy else sampling
    if given.get("strategy", model.config.decode.strategy) == "sample":
        if is_greedy:
            raise ApiError(400, "temperature 0 cannot sample. Leave out the strategy, or use 'greedy'.", "temperature")
        if body.top_p == 0:  # in OpenAI's API: only the likeliest token
            sampling["top_p"] = TINY_TOP_P
        seed = secrets.randbits(48) if body.seed is None else body.seed % 2**63  # OpenAI's seeds may be negative
        given |= {**sampling, "seed": seed}
    else:  # many clients always send neutral values: drop these, and let the others raise
        given |= {name: value for name, value in sampling.items() if value != NEUTRAL_SAMPLING[name]}
        if is_greedy:
            given.pop("temperature", None)
    if body.max_tokens is not None:
        given["max_length"] = body.max_tokens
    return given


def check_n_and_logprobs(body: s.CompletionRequest, strategy: str) -> None:
    if (body.n or 1) > 1 and strategy != "sample":
        raise ApiError(
            400,
            f"n = {body.n} needs sampling: strategy {strategy!r} always gives the same text. Add a temperature.",
            "n",
        )
    if (body.logprobs or 0) > (strategy == "greedy"):
        raise ApiError(
            400,
            f"logprobs = {body.logprobs} is too large: only generated tokens have log-probabilities. Use 0, or 1 with "
            "temperature 0.",
            "logprobs",
        )


async def read_prompts(model: LoadedModel, given: Any, param: str, limits: Limits) -> list[str]:
    """Return the prompts as texts. Token ids are decoded."""
    if isinstance(given, str):
        return [given]
    if all(isinstance(one, str) for one in given):
        return list(given)
    rows = [given] if isinstance(given[0], int) else given
    if len(rows) > limits.texts or max(map(len, rows)) > limits.characters:
        most = f"{limits.texts:,} prompts of {limits.characters:,} tokens"
        raise ApiError(422, f"the request exceeds the limit of {most}. Send less.", param)
    size = model.tokenizer.vocab_size
    for id in (id for row in rows for id in row):
        if id >= size:
            raise ApiError(400, f"{id} is not a token id. The vocabulary of {model.name!r} has {size:,} tokens.", param)
    return await prepare(sum(map(len, rows)), lambda: [model.tokenizer.decode(row) for row in rows])


class CompletionBuilder:
    """Builds OpenAI's response, whole or as the chunks of a stream."""

    def __init__(self, body: s.CompletionRequest, model: LoadedModel, texts: Sequence[str], tokens: int):
        self.body, self.model, self.texts, self.prompt_tokens = body, model, texts, tokens
        self.started: set[int] = set()
        self.completion_tokens = 0
        self.common_fields = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model.name,
        }

    def response(self, found: Sequence[GenerationResult], n: int, samples: int) -> dict[str, Any]:
        choices = []
        for place, text in enumerate(self.texts):
            versions = [one.versions[0] for one in found[samples * place : samples * (place + 1)]]
            self.completion_tokens += sum(len(version.tokens) for version in versions)
            best = sorted(versions, key=mean_log_probability, reverse=True) if samples > n else versions
            choices += [self.choice(version, text, n * place + i) for i, version in enumerate(best[:n])]
        return {**self.common_fields, "choices": choices, "usage": self.usage()}

    def choice(self, version: GeneratedText, prompt: str, index: int) -> dict[str, Any]:
        return {
            "text": (prompt if self.body.echo else "") + version.text,
            "index": index,
            "logprobs": None if self.body.logprobs is None else self.logprobs(version, prompt),
            "finish_reason": version.reason,
        }

    def logprobs(self, version: GeneratedText, prompt: str) -> dict[str, Any]:
        """List each token with its log-probability and the text it adds. Joined, the tokens are the text."""
        before = self.model.tokenizer.encode(prompt) if "generate" in self.model.abilities else []
        tokens = token_texts(self.model.tokenizer, version.tokens, before)
        offsets = list(accumulate(map(len, tokens), initial=0))[:-1]
        length = len(version.text)
        kept = [i for i, offset in enumerate(offsets) if offset < length or not version.is_stopped]
        tokens = [token[: length - offset] for token, offset in zip(tokens, offsets, strict=True)]
        values = version.token_log_probs  # empty if the engine does not return them
        log_probs = [finite_or_none(values[i]) if values else None for i in kept]
        top = [{tokens[i]: log_p} for i, log_p in zip(kept, log_probs, strict=True)] if self.body.logprobs else None
        return {
            "tokens": [tokens[i] for i in kept],
            "token_logprobs": log_probs,
            "top_logprobs": top,
            "text_offset": [offsets[i] for i in kept],
        }

    def chunks(self, index: int, event: Any) -> Iterable[s.Chunk]:
        """Turn an event into a chunk: a piece of text, or the end of a text."""
        if isinstance(event, GenerationResult):
            self.completion_tokens += len(event.versions[0].tokens)
            yield self.chunk(self.echoed_prompt(index), index, event.versions[0].reason)
        else:
            yield self.chunk(self.echoed_prompt(index) + event, index, None)

    def echoed_prompt(self, index: int) -> str:
        """The prompt, before the first piece of a text, if `echo` is set."""
        if not self.body.echo or index in self.started:
            return ""
        self.started.add(index)
        return self.texts[index // (self.body.n or 1)]

    def chunk(self, text: str, index: int, reason: str | None) -> s.Chunk:
        choice = {"text": text, "index": index, "logprobs": None, "finish_reason": reason}
        return {**self.common_fields, "choices": [choice], **({"usage": None} if self.includes_usage else {})}

    @property
    def includes_usage(self) -> bool:
        return self.body.stream_options is not None and self.body.stream_options.include_usage

    def usage_chunk(self) -> s.Chunk | None:
        return {**self.common_fields, "choices": [], "usage": self.usage()} if self.includes_usage else None

    def usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }


def mean_log_probability(version: GeneratedText) -> float:
    """Mean log-probability per token, so that long texts are not penalised."""
    return version.log_probability / (len(version.tokens) + version.finished or 1)


def token_texts(tokenizer: Tokenizer, ids: Sequence[int], before: Sequence[int]) -> list[str]:
    """The text that each token adds. A character of several tokens belongs to its last one."""
    stream = TextStream(tokenizer, before)
    found = [stream.add(id) for id in ids]
    return [*found[:-1], found[-1] + stream.end()] if found else []


async def create_embeddings(app_state: AppState, request: HttpRequest, body: s.EmbeddingRequest) -> Response:
    worker, model = choose_model(app_state.workers, body.model, "embed")
    width = model.config.model.d_model
    if body.dimensions not in (None, width):
        raise ApiError(
            400,
            f"dimensions = {body.dimensions} is not supported. The vectors of {model.name!r} have {width}.",
            "dimensions",
        )
    texts = add_prompt(
        model, check_texts(await read_prompts(model, body.input, "input", app_state.limits), app_state.limits)
    )
    settings = "auto", True, False
    jobs, tokens = await prepare(
        sum(map(len, texts)), lambda: make_reading_jobs(model, "embed", texts, settings, app_state.limits)
    )
    found = await wait_for_results(request, worker, len(texts), jobs)
    encode = to_base64 if body.encoding_format == "base64" else to_floats
    return json_response(
        {
            "object": "list",
            "data": [{"object": "embedding", "index": i, "embedding": encode(v)} for i, v in enumerate(found)],
            "model": model.name,
            "usage": {"prompt_tokens": sum(tokens), "total_tokens": sum(tokens)},
        }
    )


def to_floats(vector: Sequence[float]) -> list[float | None]:
    return list(map(finite_or_none, vector))


def to_base64(vector: Sequence[float]) -> str:
    return base64.b64encode(np.asarray(vector, "<f4").tobytes()).decode()
