"""What a request asks for, made ready for a worker: which model, how to search, one job for each text."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from cutaway.config import DecodeConfig, with_given
from cutaway.errors import did_you_mean
from cutaway.search.choices import for_choices
from cutaway.search.request import Wish
from cutaway.serve.limits import Limits
from cutaway.serve.model_worker import Worker
from cutaway.serve.queue import Job, Ticket
from cutaway.serve.refusals import Refusal
from cutaway.serve.responses import MakeJobs
from cutaway.serve.served_model import Looking, Served
from cutaway.serve.writing import Writing, shared_settings

Made = TypeVar("Made")
AT_ONCE = 2_000  # characters that are turned into tokens in the event loop: it takes less than a thread does
# setting -> the only strategy that reads it
READ_BY = {
    **dict.fromkeys(("beam_size", "length_penalty", "coverage_penalty"), "beam"),
    **dict.fromkeys(("temperature", "top_k", "top_p", "min_p", "seed"), "sample"),
}


def chosen(workers: Sequence[Worker], model: str | None, *abilities: str) -> tuple[Worker, Served]:
    """The worker of that name; with no name, the first that can do one of these."""
    able = [w for w in workers if w.served and any(one in w.served.abilities for one in abilities)]
    wanted = " or ".join(abilities)
    if model is None:
        if not able:
            raise Refusal(404, f"none of the models here can {wanted}. GET /models tells what they can do.", "model")
        worker = able[0]
    else:
        by_name = {worker.run.name: worker for worker in workers}
        if model not in by_name:
            raise no_model(model, by_name)
        worker = by_name[model]
    if worker.served is None or not worker.is_ready:
        raise Refusal(503, f"the model {worker.run.name!r} has ended. Ask again later.", retry_after=10)
    if worker not in able:
        can = ", ".join(worker.served.abilities)
        raise Refusal(400, f"the model {worker.run.name!r} cannot {wanted}. It can: {can}.", "model")
    return worker, worker.served


def no_model(name: str, known: Iterable[str]) -> Refusal:
    return Refusal(404, f"there is no model {name[:100]!r} here. {did_you_mean(name[:100], known)}", "model")


async def aside(characters: int, prepare: Callable[[], Made]) -> Made:
    """What `prepare` makes of so many characters. Many of them are counted in another thread: others are waiting."""
    return prepare() if characters <= AT_ONCE else await asyncio.to_thread(prepare)


def texts_of(given: str | Sequence[str], limits: Limits) -> list[str]:
    texts = [given] if isinstance(given, str) else list(given)
    if not texts:
        raise Refusal(422, "the list of texts is empty. Give at least one.", "text")
    if len(texts) > limits.texts:
        raise Refusal(
            422,
            f"there are {len(texts):,} texts, and a request may have {limits.texts:,}. Send several requests.",
            "text",
        )
    return texts


def decode_of(
    served: Served,
    given: Mapping[str, Any],
    n_best: int,
    limits: Limits,
    length: str = "max_length",
    choices: Sequence[str] = (),
) -> DecodeConfig:
    """The run's way of searching, with what the request gives on top. What nothing would read is refused. `length`:
    what the greatest length is called there."""
    own = served.config.decode if "strategy" in given else for_choices(served.config.decode, choices)
    decode = with_settings(own, tuple(given.items()))
    for name in given:
        reader = READ_BY.get(name, decode.strategy)
        if reader != decode.strategy:
            what = f"{name} has no effect on strategy {decode.strategy!r}. Add strategy {reader!r}, or leave it out."
            raise Refusal(400, what, name)
    if given.get("max_length", 0) > limits.new_tokens:  # the run's own is cut to it
        raise Refusal(
            422, f"{length} = {decode.max_length:,} tokens were asked for, and {limits.new_tokens:,} may be.", length
        )
    if decode.max_length and decode.min_length > decode.max_length:
        raise Refusal(
            400, f"min_length = {decode.min_length} is more than {length} = {decode.max_length}.", "min_length"
        )
    if n_best > 1 and (decode.strategy != "beam" or decode.beam_size < n_best):
        raise Refusal(
            400,
            f"n_best = {n_best} needs strategy 'beam' with a beam_size of at least {n_best}; it is "
            f"{decode.strategy!r} with {decode.beam_size}.",
            "n_best",
        )
    return decode


@lru_cache(256)
def with_settings(decode: DecodeConfig, given: tuple[tuple[str, Any], ...]) -> DecodeConfig:
    changed: DecodeConfig = with_given(decode, **dict(given))
    return changed


def to_write(
    served: Served,
    texts: Sequence[str],
    decode: DecodeConfig,
    limits: Limits,
    n_best: int = 1,
    prefix: str = "",
    stop: Sequence[str] = (),
    times: int = 1,
    choices: Sequence[str] = (),
) -> tuple[MakeJobs, list[int]]:
    """Jobs for each text, `times` of them, that differ in their chance alone; and how many tokens each text has."""
    ability = "translate" if "translate" in served.abilities else "generate"
    tokens = [served.tokens_of(text, ability, limits) for text in texts]
    check_room(served, tokens, prefix, ability, limits)
    settings = shared_settings(decode, limits.batch_size), n_best, tuple(choices)
    longest = [min(decode.max_length or served.usual_length(count), limits.new_tokens) for count in tokens]
    width = decode.beam_size if decode.strategy == "beam" else 1

    def jobs(ticket: Ticket) -> list[Job]:
        return [
            Job(
                ticket=ticket,
                index=(number := times * place + time),
                kind="write",
                settings=settings,
                content=Writing(
                    Wish(text, prefix, number, decode.seed, longest[place]),
                    tuple(stop),
                ),
                tokens=tokens[place],
                new_tokens=min(longest[place], served.config.longest_text),
                width=width,
            )
            for place, text in enumerate(texts)
            for time in range(times)
        ]

    return jobs, tokens


def check_room(served: Served, tokens: Sequence[int], prefix: str, ability: str, limits: Limits) -> None:
    """Whether there is room for something to be written after what is given."""
    given = served.tokens_of(prefix, "prefix", limits) if prefix else 0
    before = given + (max(tokens) if ability == "generate" else 0)
    if before > served.config.longest_text:
        raise Refusal(
            422,
            f"the text and its prefix have {before} tokens, and the model {served.name!r} has positions for "
            f"{served.config.longest_text}: there is no room to go on. Shorten them.",
            "prefix",
        )


def prompted(served: Served, texts: Sequence[str], prompt: str | None = None) -> list[str]:
    """Texts to make vectors of, after the model's prompt of that name: its tokens count as any others."""
    before = served.config.data.prompt_text(prompt)
    return [before + text for text in texts]


def alike(
    served: Served, kind: str, texts: Sequence[str], settings: Any, limits: Limits, cut: bool = False
) -> tuple[MakeJobs, list[int]]:
    """Jobs for texts that are only read."""
    tokens = [served.tokens_of(text, kind, limits, cut) for text in texts]

    def jobs(ticket: Ticket) -> list[Job]:
        return [Job(ticket, i, kind, settings, text, n) for i, (text, n) in enumerate(zip(texts, tokens, strict=True))]

    return jobs, tokens


def to_look(served: Served, text: str, target: str | None, limits: Limits) -> MakeJobs:
    tokens = served.tokens_of(text, "trace", limits)
    if target is not None and len(target) > limits.characters:
        raise Refusal(
            422, f"the target has {len(target):,} characters, and the server takes {limits.characters:,}.", "target"
        )
    return lambda ticket: [Job(ticket, 0, "trace", None, Looking(text, target), tokens)]


def number(value: float) -> float | None:
    """JSON has no NaN and no infinity."""
    return value if math.isfinite(value) else None
