"""Texts that a model writes for several requests at once: each is told as it grows, ended at its stops, given up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from cutaway.config import DecodeConfig
from cutaway.inference.pipelines import Writer
from cutaway.search.request import Hypothesis, Wish
from cutaway.search.streaming import Pieces, Stops, ended
from cutaway.serve.queue import Job


@dataclass(frozen=True)
class Writing:
    """What is to be written. `stop`: what ends the text, and is no part of it."""

    wish: Wish
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Version:
    """A text that was found, and what is known of it. `is_stopped`: it was ended by one of its stops."""

    text: str
    tokens: list[int]
    gains: list[float]
    log_probability: float
    score: float
    finished: bool
    is_stopped: bool = False

    @property
    def reason(self) -> str:
        """Why it ended there: "stop", or "length" if it was cut off."""
        return "stop" if self.finished or self.is_stopped else "length"


@dataclass(frozen=True)
class Written:
    """The answer to a Writing: the best version first."""

    versions: list[Version] = field(default_factory=list)


NOTHING = Version("", [], [], 0.0, 0.0, True)  # an empty text has an empty translation


@lru_cache(256)  # requests are often alike, and a configuration checks itself each time that it is made
def shared_settings(decode: DecodeConfig, batch_size: int) -> DecodeConfig:
    """The settings without what each text has for itself, so that more texts can share a batch."""
    return replace(decode, seed=0, max_length=0, batch_size=batch_size)


def write(writer: Writer, jobs: Sequence[Job]) -> list[Written]:
    """All these jobs in one go. Their settings are equal: that is why they are together."""
    decode, n_best, choices = jobs[0].settings
    tellings = [Telling(writer, job) for job in jobs]
    hears = decode.strategy != "beam"  # a beam search has no text before it has ended
    wishes = [
        replace(job.content.wish, heard=telling.heard if hears else None, wanted=job.ticket.is_wanted)
        for job, telling in zip(jobs, tellings, strict=True)
    ]
    found = writer.written(wishes, decode, n_best, choices=choices or None)
    return [telling.ended(hypotheses) for telling, hypotheses in zip(tellings, found, strict=True)]


class Telling:
    """A text while it is written: what of it may be told already."""

    def __init__(self, writer: Writer, job: Job):
        self.writer, self.job = writer, job
        writing: Writing = job.content
        self.wish, self.stop, self.stops = writing.wish, writing.stop, Stops(writing.stop)
        self.listens = job.ticket.events is not None or bool(writing.stop)
        self.pieces: Pieces | None = None
        self.text = ""  # that may be told

    def heard(self, token: int, gain: float) -> bool:
        """In the midst of the search: whether it is worth going on."""
        if not self.job.ticket.is_wanted():  # (asked here too: engine ct2 hears, but does not ask)
            return False
        if not self.listens:
            return True
        if self.pieces is None:
            self.pieces = self.writer.pieces(self.wish)
            self.tell(self.stops.add(self.pieces.begun))
        self.tell(self.stops.add(self.pieces.add(token)))
        return not self.stops.is_over

    def tell(self, piece: str) -> None:
        """What is new of it. A text that is written anew, because its batch failed, was told in part before."""
        self.text += piece
        ticket, index = self.job.ticket, self.job.index
        told = ticket.told[index]
        if not (self.text.startswith(told) or told.startswith(self.text)):
            raise RuntimeError("written anew, the text became another one than the one that was told already")
        if len(self.text) > len(told):
            ticket.tell(index, self.text[len(told) :])

    def ended(self, hypotheses: Sequence[Hypothesis]) -> Written:
        versions = [self.version(hypothesis) for hypothesis in hypotheses] or [NOTHING]
        self.tell(versions[0].text[len(self.text) :])  # what was held back; of a beam search, all
        return Written(versions)

    def version(self, found: Hypothesis) -> Version:
        whole = self.writer.text_of(self.wish, found)
        text = ended(whole, self.stop)
        return Version(
            text=text,
            tokens=list(found.tokens),
            gains=list(found.gains),
            log_probability=found.log_probability,
            score=found.score,
            finished=found.finished,
            is_stopped=len(text) < len(whole),
        )
