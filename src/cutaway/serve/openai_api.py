"""OpenAI's dialect of the same: /v1/completions and /v1/embeddings, for clients that were written for it."""

from __future__ import annotations

import asyncio
import base64
import secrets
import time
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response

from cutaway.data.tokenizer import Tokenizer
from cutaway.search.streaming import TextStream
from cutaway.serve import openai_schemas as s
from cutaway.serve.limits import Limits
from cutaway.serve.refusals import Refusal, json_response
from cutaway.serve.requests import alike, aside, chosen, decode_of, number, prompted, texts_of, to_write
from cutaway.serve.responses import Events, EventStream, answers
from cutaway.serve.schemas import OR_A_STREAM
from cutaway.serve.served_model import Served
from cutaway.serve.state import TROUBLE, AppState
from cutaway.serve.writing import Version, Written

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "suffix": (None, ""),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "logit_bias": (None, {}),
}
INSTEAD = {
    "suffix": "These models write on, not in between.",
    "presence_penalty": "Use repetition_penalty.",
    "frequency_penalty": "Use repetition_penalty.",
    "logit_bias": "Leave it out.",
}
LEAST = 1e-9  # a share of the probability that no token but the likeliest is in
COLD = 0.01  # a temperature below is greedy search
HARMLESS = {"temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0}  # settings of drawing that change nothing
OF_DRAWING = tuple(HARMLESS)
OURS = (
    "strategy",
    "beam_size",
    "length_penalty",
    "coverage_penalty",
    "repetition_penalty",
    "no_repeat_ngram",
    "min_length",
)


def openai_router(app_state: AppState) -> APIRouter:
    problems = {n: {"model": s.OpenAIProblem, "description": m} for n, m in TROUBLE.items()}
    router = APIRouter(prefix="/v1", tags=["OpenAI's dialect"], responses=problems)  # type: ignore[arg-type]

    @router.post("/completions", summary="Write, asked in OpenAI's way", response_model=s.Completion,
                 responses=OR_A_STREAM)  # fmt: skip
    async def completions(request: Request, body: s.CompletionRequest) -> Any:
        return await completed(app_state, request, body)

    @router.post("/embeddings", summary="Make vectors, asked in OpenAI's way", response_model=s.Embeddings)
    async def embeddings(request: Request, body: s.EmbeddingRequest) -> Response:
        return await embedded(app_state, request, body)

    return router


async def completed(app_state: AppState, request: Request, body: s.CompletionRequest) -> Any:
    worker, served = chosen(app_state.workers, body.model, "generate", "translate")
    refuse_unknown(body, served)
    texts = texts_of(await prompts_of(served, body.prompt, "prompt", app_state.limits), app_state.limits)
    n = body.n or 1
    times = max(n, body.best_of or 1)
    if len(texts) * times > app_state.limits.texts:
        raise Refusal(422, f"{len(texts)} prompts {times} times are more than {app_state.limits.texts} texts.", "n")
    decode = decode_of(served, settings_of(body, served), 1, app_state.limits, "max_tokens")
    check_choices(body, decode.strategy)
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    jobs, tokens = await aside(
        sum(map(len, texts)), lambda: to_write(served, texts, decode, app_state.limits, stop=stop, times=times)
    )
    telling = Telling(body, served, texts, sum(tokens))
    if body.stream:
        events = Events(worker, len(texts) * times, jobs)
        return await EventStream(request.url.path, events, telling.chunks, telling.last).begin(request)
    found = await answers(request, worker, len(texts) * times, jobs)
    if body.logprobs is None:
        return json_response(telling.whole(found, n, times))
    return json_response(await asyncio.to_thread(telling.whole, found, n, times))  # decodes every token


def refuse_unknown(body: s.CompletionRequest, served: Served) -> None:
    for name, neutral in NEUTRAL.items():
        if getattr(body, name) not in neutral:
            raise Refusal(400, f"{name} is not supported here. {INSTEAD[name]}", name)
    if body.echo and "translate" in served.abilities:
        raise Refusal(400, f"echo is for texts that go on, and {served.name!r} translates. Leave it out.", "echo")
    if body.logprobs is not None and (body.echo or body.stream):
        other = "echo" if body.echo else "stream"
        raise Refusal(400, f"logprobs and {other} do not go together here. Leave one of them out.", "logprobs")
    if body.best_of is not None and body.best_of < (body.n or 1):
        raise Refusal(400, f"best_of = {body.best_of} must be at least n = {body.n or 1}.", "best_of")
    if (body.best_of or 1) > 1 and body.stream:
        raise Refusal(400, f"best_of = {body.best_of} is known only in the end, so it cannot be streamed.", "best_of")
    if body.stream_options and not body.stream:
        raise Refusal(400, "stream_options is only for stream = true.", "stream_options")


def settings_of(body: s.CompletionRequest, served: Served) -> dict[str, Any]:
    """Their way to say it: temperature 0 is greedy, any other draws; nothing said is the run's own way."""
    given = {name: value for name in OURS if (value := getattr(body, name)) is not None}
    drawing = {name: value for name in OF_DRAWING if (value := getattr(body, name)) is not None}
    several = max(body.n or 1, body.best_of or 1) > 1
    is_cold = body.temperature is not None and body.temperature < COLD
    if "strategy" not in given and (drawing or several) and "beam_size" not in given:
        given["strategy"] = "greedy" if is_cold else "sample"
        drawing = {} if is_cold else drawing
    if given.get("strategy", served.config.decode.strategy) == "sample":
        if is_cold:
            raise Refusal(400, "temperature 0 draws nothing. Leave out the strategy, or use 'greedy'.", "temperature")
        if body.top_p == 0:  # OpenAI's way to ask for the likeliest alone
            drawing["top_p"] = LEAST
        seed = secrets.randbits(48) if body.seed is None else body.seed % 2**63  # theirs may be negative
        given |= {**drawing, "seed": seed}
    else:  # what draws nothing is refused there, unless it changes nothing: many clients send it always
        given |= {name: value for name, value in drawing.items() if value != HARMLESS[name]}
        if is_cold:
            given.pop("temperature", None)
    if body.max_tokens is not None:
        given["max_length"] = body.max_tokens
    return given


def check_choices(body: s.CompletionRequest, strategy: str) -> None:
    if (body.n or 1) > 1 and strategy != "sample":
        raise Refusal(400, f"n = {body.n}, but {strategy} would write the same text each time. Add a temperature.", "n")
    if (body.logprobs or 0) > (strategy == "greedy"):
        raise Refusal(
            400,
            f"logprobs = {body.logprobs}: only those of the tokens that were written are known. Use 0; or 1 with "
            "temperature 0, where they are the likeliest.",
            "logprobs",
        )


async def prompts_of(served: Served, given: Any, param: str, limits: Limits) -> list[str]:
    """Texts, or the ids of their tokens: these are decoded, and read again as text."""
    if isinstance(given, str):
        return [given]
    if all(isinstance(one, str) for one in given):
        return list(given)
    rows = [given] if isinstance(given[0], int) else given
    if len(rows) > limits.texts or max(map(len, rows)) > limits.characters:
        most = f"{limits.texts:,} prompts of {limits.characters:,} tokens"
        raise Refusal(422, f"these are more than the {most} that a request may have. Send less.", param)
    size = served.tokenizer.vocab_size
    for id in (id for row in rows for id in row):
        if id >= size:
            raise Refusal(400, f"{id} is no token: the vocabulary of {served.name!r} has {size:,}.", param)
    return await aside(sum(map(len, rows)), lambda: [served.tokenizer.decode(row) for row in rows])


class Telling:
    """What is found, in OpenAI's words: as a whole, or as chunks of a stream."""

    def __init__(self, body: s.CompletionRequest, served: Served, texts: Sequence[str], tokens: int):
        self.body, self.served, self.texts, self.read = body, served, texts, tokens
        self.begun: set[int] = set()
        self.written = 0
        self.head = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": served.name,
        }

    def whole(self, found: Sequence[Written], n: int, times: int) -> dict[str, Any]:
        choices = []
        for place, text in enumerate(self.texts):
            versions = [one.versions[0] for one in found[times * place : times * (place + 1)]]
            self.written += sum(len(version.tokens) for version in versions)
            best = sorted(versions, key=likelihood, reverse=True) if times > n else versions
            choices += [self.choice(version, text, n * place + i) for i, version in enumerate(best[:n])]
        return {**self.head, "choices": choices, "usage": self.usage()}

    def choice(self, version: Version, prompt: str, index: int) -> dict[str, Any]:
        return {
            "text": (prompt if self.body.echo else "") + version.text,
            "index": index,
            "logprobs": None if self.body.logprobs is None else self.logprobs(version, prompt),
            "finish_reason": version.reason,
        }

    def logprobs(self, version: Version, prompt: str) -> dict[str, Any]:
        """Of each token, what it adds to the text: together they are the text."""
        goes_on = "generate" in self.served.abilities
        before = self.served.tokenizer.encode(prompt) if goes_on else []
        tokens = pieces_of(self.served.tokenizer, version.tokens, before)
        offsets = list(accumulate(map(len, tokens), initial=0))[:-1]
        length = len(version.text)
        kept = [i for i, offset in enumerate(offsets) if offset < length or not version.is_stopped]
        tokens = [token[: length - offset] for token, offset in zip(tokens, offsets, strict=True)]
        gains = [number(version.gains[i]) if version.gains else None for i in kept]  # not every engine knows them
        top = [{tokens[i]: gain} for i, gain in zip(kept, gains, strict=True)] if self.body.logprobs else None
        return {
            "tokens": [tokens[i] for i in kept],
            "token_logprobs": gains,
            "top_logprobs": top,
            "text_offset": [offsets[i] for i in kept],
        }

    def chunks(self, index: int, event: Any) -> Iterable[s.Chunk]:
        """A piece of a text, or its end."""
        if isinstance(event, Written):
            self.written += len(event.versions[0].tokens)
            yield self.chunk(self.first(index), index, event.versions[0].reason)
        else:
            yield self.chunk(self.first(index) + event, index, None)

    def first(self, index: int) -> str:
        """The prompt before the first piece, if it is to be repeated."""
        if not self.body.echo or index in self.begun:
            return ""
        self.begun.add(index)
        return self.texts[index // (self.body.n or 1)]

    def chunk(self, text: str, index: int, reason: str | None) -> s.Chunk:
        choice = {"text": text, "index": index, "logprobs": None, "finish_reason": reason}
        return {**self.head, "choices": [choice], **({"usage": None} if self.tells_usage else {})}

    @property
    def tells_usage(self) -> bool:
        return self.body.stream_options is not None and self.body.stream_options.include_usage

    def last(self) -> s.Chunk | None:
        return {**self.head, "choices": [], "usage": self.usage()} if self.tells_usage else None

    def usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.read,
            "completion_tokens": self.written,
            "total_tokens": self.read + self.written,
        }


def likelihood(version: Version) -> float:
    """A token, on average: long texts are not less likely for being long."""
    return version.log_probability / (len(version.tokens) + version.finished or 1)


def pieces_of(tokenizer: Tokenizer, ids: Sequence[int], before: Sequence[int]) -> list[str]:
    """What each token adds to the text that is certain. A character that is cut in two belongs to its last token."""
    stream = TextStream(tokenizer, before)
    found = [stream.add(id) for id in ids]
    return [*found[:-1], found[-1] + stream.end()] if found else []


async def embedded(app_state: AppState, request: Request, body: s.EmbeddingRequest) -> Response:
    worker, served = chosen(app_state.workers, body.model, "embed")
    width = served.config.model.d_model
    if body.dimensions not in (None, width):
        raise Refusal(
            400, f"dimensions = {body.dimensions}, but the vectors of {served.name!r} have {width}.", "dimensions"
        )
    texts = prompted(
        served, texts_of(await prompts_of(served, body.input, "input", app_state.limits), app_state.limits)
    )
    settings = "auto", True, False
    jobs, tokens = await aside(sum(map(len, texts)), lambda: alike(served, "embed", texts, settings, app_state.limits))
    found = await answers(request, worker, len(texts), jobs)
    show = in_base64 if body.encoding_format == "base64" else numbers
    return json_response(
        {
            "object": "list",
            "data": [{"object": "embedding", "index": i, "embedding": show(v)} for i, v in enumerate(found)],
            "model": served.name,
            "usage": {"prompt_tokens": sum(tokens), "total_tokens": sum(tokens)},
        }
    )


def numbers(vector: Sequence[float]) -> list[float | None]:
    return list(map(number, vector))


def in_base64(vector: Sequence[float]) -> str:
    return base64.b64encode(np.asarray(vector, "<f4").tobytes()).decode()
