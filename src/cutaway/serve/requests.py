"""From a request to jobs: choose the model, merge the settings, check the texts, make one job for each."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from cutaway.config import DecodeConfig, with_given
from cutaway.errors import did_you_mean
from cutaway.search.choices import config_for_choices
from cutaway.search.request import Request
from cutaway.serve.errors import ApiError
from cutaway.serve.generation import GenerationInput, batch_settings
from cutaway.serve.limits import Limits
from cutaway.serve.loaded_model import LoadedModel, TraceInput
from cutaway.serve.model_worker import ModelWorker
from cutaway.serve.queue import PendingRequest, TextJob
from cutaway.serve.responses import MakeJobs

Prepared = TypeVar("Prepared")
INLINE_CHARACTERS = 2_000  # up to here, tokenizing in the event loop is faster than in a thread
# setting -> the only strategy that uses it
ONLY_FOR = {
    **dict.fromkeys(("beam_size", "length_penalty", "coverage_penalty"), "beam"),
    **dict.fromkeys(("temperature", "top_k", "top_p", "min_p", "seed"), "sample"),
}


def choose_model(workers: Sequence[ModelWorker], name: str | None, *abilities: str) -> tuple[ModelWorker, LoadedModel]:
    """Return the worker with this name; without a name, the first with one of these abilities."""
    able = [w for w in workers if w.model and any(one in w.model.abilities for one in abilities)]
    wanted = " or ".join(abilities)
    if name is None:
        if not able:
            raise ApiError(404, f"no served model can {wanted}. GET /models lists what each can do.", "model")
        worker = able[0]
    else:
        by_name = {worker.run.name: worker for worker in workers}
        if name not in by_name:
            raise unknown_model_error(name, by_name)
        worker = by_name[name]
    if worker.model is None or not worker.is_ready:
        raise ApiError(503, f"the worker of model {worker.run.name!r} has stopped. Retry later.", retry_after=10)
    if worker not in able:
        raise ApiError(
            400, f"the model {worker.run.name!r} cannot {wanted}. It can: {', '.join(worker.model.abilities)}.", "model"
        )
    return worker, worker.model


def unknown_model_error(name: str, known: Iterable[str]) -> ApiError:
    return ApiError(404, f"unknown model {name[:100]!r}. {did_you_mean(name[:100], known)}", "model")


async def prepare(characters: int, make: Callable[[], Prepared]) -> Prepared:
    """Call `make`; in another thread if the text is long, so that tokenizing does not block the event loop."""
    return make() if characters <= INLINE_CHARACTERS else await asyncio.to_thread(make)


def check_texts(given: str | Sequence[str], limits: Limits) -> list[str]:
    texts = [given] if isinstance(given, str) else list(given)
    if not texts:
        raise ApiError(422, "the list of texts is empty. Give at least one.", "text")
    if len(texts) > limits.texts:
        raise ApiError(
            422,
            f"the request has {len(texts):,} texts; the limit is {limits.texts:,}. Send several requests.",
            "text",
        )
    return texts


def merge_decode_settings(
    model: LoadedModel,
    given: Mapping[str, Any],
    n_best: int,
    limits: Limits,
    length: str = "max_length",
    choices: Sequence[str] = (),
) -> DecodeConfig:
    """Merge the run's decode settings with those of the request. A setting without effect raises.

    `length`: what this API calls max_length.
    """
    own = model.config.decode if "strategy" in given else config_for_choices(model.config.decode, choices)
    decode = apply_settings(own, tuple(given.items()))
    for name in given:
        reader = ONLY_FOR.get(name, decode.strategy)
        if reader != decode.strategy:
            what = f"{name} has no effect on strategy {decode.strategy!r}. Set strategy {reader!r}, or leave it out."
            raise ApiError(400, what, name)
    if given.get("max_length", 0) > limits.new_tokens:  # the run's own max_length is cut instead
        raise ApiError(
            422, f"{length} = {decode.max_length:,} is too large. The limit is {limits.new_tokens:,} tokens.", length
        )
    if decode.max_length and decode.min_length > decode.max_length:
        raise ApiError(
            400,
            f"min_length = {decode.min_length} is more than {length} = {decode.max_length}. Lower it.",
            "min_length",
        )
    if n_best > 1 and (decode.strategy != "beam" or decode.beam_size < n_best):
        raise ApiError(
            400,
            f"n_best = {n_best} needs strategy 'beam' and a beam_size of at least {n_best}. The request has strategy "
            f"{decode.strategy!r} and beam_size {decode.beam_size}.",
            "n_best",
        )
    return decode


@lru_cache(256)
def apply_settings(decode: DecodeConfig, given: tuple[tuple[str, Any], ...]) -> DecodeConfig:
    changed: DecodeConfig = with_given(decode, **dict(given))
    return changed


def make_generation_jobs(
    model: LoadedModel,
    texts: Sequence[str],
    decode: DecodeConfig,
    limits: Limits,
    n_best: int = 1,
    prefix: str = "",
    stop: Sequence[str] = (),
    samples: int = 1,
    choices: Sequence[str] = (),
) -> tuple[MakeJobs, list[int]]:
    """Make `samples` jobs for each text, which differ only in their random numbers. Also return each text's tokens."""
    ability = "translate" if "translate" in model.abilities else "generate"
    tokens = [model.check_length(text, ability, limits) for text in texts]
    check_prefix_length(model, tokens, prefix, ability, limits)
    settings = batch_settings(decode, limits.batch_size), n_best, tuple(choices)
    longest = [min(decode.max_length or model.default_length(count), limits.new_tokens) for count in tokens]
    width = decode.beam_size if decode.strategy == "beam" else 1

    def jobs(pending: PendingRequest) -> list[TextJob]:
        return [
            TextJob(
                pending=pending,
                index=(position := samples * place + sample),
                kind="generate",
                settings=settings,
                content=GenerationInput(
                    Request(text, prefix, position, decode.seed, longest[place]),
                    tuple(stop),
                ),
                tokens=tokens[place],
                new_tokens=min(longest[place], model.config.longest_text),
                width=width,
            )
            for place, text in enumerate(texts)
            for sample in range(samples)
        ]

    return jobs, tokens


def check_prefix_length(model: LoadedModel, tokens: Sequence[int], prefix: str, ability: str, limits: Limits) -> None:
    """Raise if text and prefix fill all positions of the model."""
    given = model.check_length(prefix, "prefix", limits) if prefix else 0
    before = given + (max(tokens) if ability == "generate" else 0)
    if before > model.config.longest_text:
        raise ApiError(
            422,
            f"text and prefix have {before} tokens; the model {model.name!r} has {model.config.longest_text} "
            "positions, so there is no room to continue. Shorten them.",
            "prefix",
        )


def add_prompt(model: LoadedModel, texts: Sequence[str], prompt: str | None = None) -> list[str]:
    """Put the model's prompt of this name before each text. Its tokens count."""
    before = model.config.data.prompt_text(prompt)
    return [before + text for text in texts]


def make_reading_jobs(
    model: LoadedModel, kind: str, texts: Sequence[str], settings: Any, limits: Limits, cut: bool = False
) -> tuple[MakeJobs, list[int]]:
    """Make jobs for texts that are classified, tagged or embedded. Also return each text's tokens."""
    tokens = [model.check_length(text, kind, limits, cut) for text in texts]

    def jobs(pending: PendingRequest) -> list[TextJob]:
        return [
            TextJob(pending, i, kind, settings, text, n) for i, (text, n) in enumerate(zip(texts, tokens, strict=True))
        ]

    return jobs, tokens


def make_trace_jobs(model: LoadedModel, text: str, target: str | None, limits: Limits) -> MakeJobs:
    tokens = model.check_length(text, "trace", limits)
    if target is not None and len(target) > limits.characters:
        raise ApiError(
            422, f"the target has {len(target):,} characters; the limit is {limits.characters:,}. Shorten it.", "target"
        )
    return lambda pending: [TextJob(pending, 0, "trace", None, TraceInput(text, target), tokens)]


def finite_or_none(value: float) -> float | None:
    """None for NaN and infinity, which JSON does not have."""
    return value if math.isfinite(value) else None
