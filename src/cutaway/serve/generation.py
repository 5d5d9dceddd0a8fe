"""Generate a batch of texts for several requests, with streaming, stop strings and cancellation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from cutaway.config import DecodeConfig
from cutaway.inference.pipelines import GenerationPipeline
from cutaway.search.request import Hypothesis, Request
from cutaway.search.streaming import OutputStream, StopStrings, cut_at_stop
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
    token_log_probs: list[float]
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


def generate(pipeline: GenerationPipeline, jobs: Sequence[TextJob]) -> list[GenerationResult]:
    """Generate the texts of all jobs in one batch. Their settings are equal."""
    decode, n_best, choices = jobs[0].settings
    outputs = [IncrementalText(pipeline, job) for job in jobs]
    streams = decode.strategy != "beam"  # beam search has no text before its end
    requests = [
        replace(
            job.content.request, on_token=output.on_token if streams else None, should_continue=job.pending.is_active
        )
        for job, output in zip(jobs, outputs, strict=True)
    ]
    found = pipeline.search(requests, decode, n_best, choices=choices or None)
    return [output.finish(hypotheses) for output, hypotheses in zip(outputs, found, strict=True)]


class IncrementalText:
    """A text during generation: sends each piece as soon as it is final."""

    def __init__(self, pipeline: GenerationPipeline, job: TextJob):
        self.pipeline, self.job = pipeline, job
        content: GenerationInput = job.content
        self.request, self.stop, self.stops = content.request, content.stop, StopStrings(content.stop)
        self.needs_text = job.pending.events is not None or bool(content.stop)
        self.pieces: OutputStream | None = None
        self.text = ""  # final, so it may be sent

    def on_token(self, token: int, log_prob: float) -> bool:
        """Called by the search for each new token. False: stop."""
        if not self.job.pending.is_active():  # checked here too, because engine ct2 never calls `should_continue`
            return False
        if not self.needs_text:
            return True
        if self.pieces is None:
            self.pieces = self.pipeline.output_stream(self.request)
            self.send_new_text(self.stops.add(self.pieces.prefix_text))
        self.send_new_text(self.stops.add(self.pieces.add(token)))
        return not self.stops.is_over

    def send_new_text(self, piece: str) -> None:
        """Send the new part of the text. After a failed batch the text is generated again, so a part may be sent."""
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
        whole = self.pipeline.output_text(self.request, found)
        text = cut_at_stop(whole, self.stop)
        return GeneratedText(
            text=text,
            tokens=list(found.tokens),
            token_log_probs=list(found.token_log_probs),
            log_probability=found.log_probability,
            score=found.score,
            finished=found.finished,
            is_stopped=len(text) < len(whole),
        )
