"""Generate a batch of texts for several requests, with streaming, stop strings and cancellation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from cutaway.config import DecodeConfig
from cutaway.inference.pipelines import GenerationPipeline
from cutaway.search.request import Hypothesis, Request
from cutaway.search.streaming import Pieces, Stops, ended
from cutaway.serve.queue import TextJob


@dataclass(frozen=True)
class GenerationInput:
    """The input of a generation job. `stop`: strings that end the text; they are not part of it."""

    request: Request
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class GeneratedText:
    """A generated text and its statistics. `is_stopped`: a stop string ended it."""

    text: str
    tokens: list[int]
    gains: list[float]
    log_probability: float
    score: float
    finished: bool
    is_stopped: bool = False

    @property
    def reason(self) -> str:
        """Why the text ended: "stop", or "length" if it was cut off."""
        return "stop" if self.finished or self.is_stopped else "length"


@dataclass(frozen=True)
class GenerationResult:
    """The result of a generation job: the best version first."""

    versions: list[GeneratedText] = field(default_factory=list)


EMPTY_TEXT = GeneratedText("", [], [], 0.0, 0.0, True)  # an empty text has an empty translation


@lru_cache(256)  # requests often repeat, and each new config is validated
def batch_settings(decode: DecodeConfig, batch_size: int) -> DecodeConfig:
    """Reset the settings that each text has of its own, so that more texts can share a batch."""
    return replace(decode, seed=0, max_length=0, batch_size=batch_size)


def generate(writer: GenerationPipeline, jobs: Sequence[TextJob]) -> list[GenerationResult]:
    """Generate the texts of all jobs in one batch. Their settings are equal."""
    decode, n_best, choices = jobs[0].settings
    outputs = [IncrementalText(writer, job) for job in jobs]
    streams = decode.strategy != "beam"  # beam search has no text before its end
    requests = [
        replace(job.content.request, heard=output.heard if streams else None, wanted=job.pending.is_active)
        for job, output in zip(jobs, outputs, strict=True)
    ]
    found = writer.search(requests, decode, n_best, choices=choices or None)
    return [output.finish(hypotheses) for output, hypotheses in zip(outputs, found, strict=True)]


class IncrementalText:
    """A text during generation: sends each piece as soon as it is final."""

    def __init__(self, writer: GenerationPipeline, job: TextJob):
        self.writer, self.job = writer, job
        content: GenerationInput = job.content
        self.request, self.stop, self.stops = content.request, content.stop, Stops(content.stop)
        self.needs_text = job.pending.events is not None or bool(content.stop)
        self.pieces: Pieces | None = None
        self.text = ""  # final, so it may be sent

    def heard(self, token: int, gain: float) -> bool:
        """In the midst of the search: whether it is worth going on."""
        if not self.job.pending.is_active():  # (asked here too: engine ct2 hears, but does not ask)
            return False
        if not self.needs_text:
            return True
        if self.pieces is None:
            self.pieces = self.writer.pieces(self.request)
            self.send_new_text(self.stops.add(self.pieces.begun))
        self.send_new_text(self.stops.add(self.pieces.add(token)))
        return not self.stops.is_over

    def send_new_text(self, piece: str) -> None:
        """Send the new part of the text. After a failed batch the text is generated again, so a part was sent before."""
        self.text += piece
        pending, index = self.job.pending, self.job.index
        sent = pending.sent[index]
        if not (self.text.startswith(sent) or sent.startswith(self.text)):
            raise RuntimeError("the second attempt generated a text that differs from the part that was already sent")
        if len(self.text) > len(sent):
            pending.send_text(index, self.text[len(sent) :])

    def finish(self, hypotheses: Sequence[Hypothesis]) -> GenerationResult:
        versions = [self.version(hypothesis) for hypothesis in hypotheses] or [EMPTY_TEXT]
        self.send_new_text(versions[0].text[len(self.text) :])  # the part held back; for beam search, the whole text
        return GenerationResult(versions)

    def version(self, found: Hypothesis) -> GeneratedText:
        whole = self.writer.text_of(self.request, found)
        text = ended(whole, self.stop)
        return GeneratedText(
            text=text,
            tokens=list(found.tokens),
            gains=list(found.gains),
            log_probability=found.log_probability,
            score=found.score,
            finished=found.finished,
            is_stopped=len(text) < len(whole),
        )
