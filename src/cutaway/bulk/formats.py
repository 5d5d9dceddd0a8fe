"""Output formats of translations and generated texts: the text alone, columns separated by tabs, or JSON.

plain            text
scores           score  text
n_best           line  score  text          n_best lines for each text; line numbers start at 1
align            ...  text  0-0 1-2         word of the source - word of the text, from 0
json             {"line": 1, "text": ..., "score": ..., "tokens": ..., ...}
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cutaway.bulk.windows import FailedLine
from cutaway.errors import ConfigError
from cutaway.inference.pipelines import GenerationPipeline, TextGenerator
from cutaway.search.request import Hypothesis, Request
from cutaway.search.streaming import cut_at_stop

EMPTY = Hypothesis([], 0.0, 0.0, True)  # an empty text has an empty translation


@dataclass(frozen=True)
class OutputFormat:
    n_best: int = 1
    scores: bool = False
    align: bool = False
    json: bool = False

    def __post_init__(self) -> None:
        if self.n_best < 1:
            raise ConfigError(f"n_best = {self.n_best} prints no text. Give at least 1.")
        if self.json and self.scores:
            raise ConfigError("JSON includes the scores. Leave out --json or --scores.")

    def format_result(
        self,
        pipeline: GenerationPipeline,
        request: Request,
        found: Sequence[Hypothesis],
        stops: Sequence[str],
        one_line: bool,
    ) -> str:
        """The output for one text, with its line ends."""
        texts = [self.decode_text(pipeline, request, hypothesis, stops) for hypothesis in found or [EMPTY]]
        if self.json:
            return json.dumps(self.to_dict(pipeline, request, texts, bool(found)), ensure_ascii=False) + "\n"
        if self.n_best > 1 and not found:
            return ""
        return "".join(self.line(request, text, one_line) + "\n" for text in texts)

    def format_failure(self, failed: FailedLine) -> str:
        """The output for a failed line."""
        if self.json:
            return failure_to_json(failed)
        return "" if self.n_best > 1 else "\n"

    @property
    def token_bytes(self) -> int:
        """Approximate output per token; in JSON, with its text and its log-probability."""
        return (40 if self.json else 5) * self.n_best

    def decode_text(
        self, pipeline: GenerationPipeline, request: Request, found: Hypothesis, stops: Sequence[str]
    ) -> DecodedText:
        new = cut_at_stop(pipeline.output_text(request, found), stops)
        text = request.text + new if isinstance(pipeline, TextGenerator) else new
        tokens = pipeline.tokenizer.tokens(found.tokens) if self.json else []
        return DecodedText(
            text, found, tokens, word_pairs(pipeline, request, found) if self.align and found.alignment else []
        )

    def line(self, request: Request, decoded: DecodedText, one_line: bool) -> str:
        columns = [str(request.number + 1)] if self.n_best > 1 else []
        columns += [f"{decoded.hypothesis.score:.4f}"] if self.scores or self.n_best > 1 else []
        if not columns and not self.align:
            return join_lines(decoded.text) if one_line else decoded.text
        columns += [join_lines(decoded.text).replace("\t", " ")]
        columns += [" ".join(f"{i}-{j}" for i, j in decoded.pairs)] if self.align else []
        return "\t".join(columns)

    def to_dict(
        self, pipeline: GenerationPipeline, request: Request, texts: Sequence[DecodedText], has_any: bool
    ) -> dict[str, Any]:
        first = {"line": request.number + 1, **texts[0].to_dict(self.align)}
        if unknown := pipeline.tokenizer.unknown(request.text):
            first["unknown"] = unknown
        if self.n_best == 1:
            return first
        return {**first, "n_best": [text.to_dict(self.align) for text in texts] if has_any else []}


@dataclass(frozen=True)
class DecodedText:
    """A hypothesis with its text, tokens and word alignment."""

    text: str
    hypothesis: Hypothesis
    tokens: list[str]
    pairs: list[tuple[int, int]]

    def to_dict(self, align: bool) -> dict[str, Any]:
        found = self.hypothesis
        row: dict[str, Any] = {
            "text": self.text,
            "score": found.score,
            "log_probability": found.log_probability,
            "finished": found.finished,
            "tokens": self.tokens,
            "log_probabilities": found.token_log_probs,
        }
        return {**row, "alignment": self.pairs} if align else row


def failure_to_json(failed: FailedLine) -> str:
    return json.dumps({"line": failed.number + 1, "error": failed.reason}, ensure_ascii=False) + "\n"


def join_lines(text: str) -> str:
    """Replace line breaks with spaces, so that each input line has one output line."""
    return " ".join(text.splitlines())


def word_pairs(pipeline: GenerationPipeline, request: Request, found: Hypothesis) -> list[tuple[int, int]]:
    """Pairs (source word, text word) in the Pharaoh format: for each generated token, its word and the source word
    with the largest attention weight. Words are separated by white space."""
    text, pieces, spans = (
        pipeline.output_text(request, found),
        pipeline.output_stream(request),
        pipeline.tokenizer.spans(request.text),
    )
    position, pairs = len(pieces.prefix_text), set()
    for token, weights in zip(found.tokens, found.alignment or (), strict=False):
        source = max(range(len(spans)), key=lambda i: weights[i])  # without </s>, the last
        piece = pieces.add(token)
        start = position + len(piece) - len(piece.lstrip())
        pairs.add((word_index(request.text, spans[source][0]), word_index(text, start)))
        position += len(piece)
    return sorted(pairs, key=lambda pair: (pair[1], pair[0]))


def word_index(text: str, position: int) -> int:
    """Index of the word at this position, or ending there."""
    return max(0, len(text[: position + 1].split()) - 1)
