"""How what was written is printed: the text alone, columns with tabs between them, or JSON.

plain            text
scores           score  text
n_best           line  score  text          so many lines for each text; lines are counted from 1
align            ...  text  0-0 1-2         words of the source and of the text, counted from 0
json             {"line": 1, "text": ..., "score": ..., "tokens": ..., ...}
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cutaway.bulk.windows import Refused
from cutaway.errors import ConfigError
from cutaway.inference.pipelines import TextGenerator, Writer
from cutaway.search.request import Hypothesis, Wish
from cutaway.search.streaming import ended

NOTHING = Hypothesis([], 0.0, 0.0, True)  # an empty text has an empty translation


@dataclass(frozen=True)
class Form:
    n_best: int = 1
    scores: bool = False
    align: bool = False
    json: bool = False

    def __post_init__(self) -> None:
        if self.n_best < 1:
            raise ConfigError(f"n_best = {self.n_best} leaves no text to print. Give at least 1.")
        if self.json and self.scores:
            raise ConfigError("JSON holds the scores anyway. Leave out one of --json and --scores.")

    def printed(
        self, writer: Writer, wish: Wish, found: Sequence[Hypothesis], stops: Sequence[str], one_line: bool
    ) -> str:
        """All that is printed for one text, with the ends of its lines."""
        versions = [self.version(writer, wish, hypothesis, stops) for hypothesis in found or [NOTHING]]
        if self.json:
            return json.dumps(self.told(writer, wish, versions, bool(found)), ensure_ascii=False) + "\n"
        if self.n_best > 1 and not found:
            return ""
        return "".join(self.line(wish, version, one_line) + "\n" for version in versions)

    def refused(self, refused: Refused) -> str:
        """What stands for a text that could not be worked."""
        if self.json:
            return json_of_refused(refused)
        return "" if self.n_best > 1 else "\n"

    @property
    def token_bytes(self) -> int:
        """About how much is printed for a token; in JSON, its text and its log-probability too."""
        return (40 if self.json else 5) * self.n_best

    def version(self, writer: Writer, wish: Wish, found: Hypothesis, stops: Sequence[str]) -> Version:
        new = ended(writer.text_of(wish, found), stops)
        text = wish.text + new if isinstance(writer, TextGenerator) else new
        tokens = writer.tokenizer.tokens(found.tokens) if self.json else []
        return Version(text, found, tokens, word_pairs(writer, wish, found) if self.align and found.alignment else [])

    def line(self, wish: Wish, version: Version, one_line: bool) -> str:
        columns = [str(wish.number + 1)] if self.n_best > 1 else []
        columns += [f"{version.hypothesis.score:.4f}"] if self.scores or self.n_best > 1 else []
        if not columns and not self.align:
            return on_one_line(version.text) if one_line else version.text
        columns += [on_one_line(version.text).replace("\t", " ")]
        columns += [" ".join(f"{i}-{j}" for i, j in version.pairs)] if self.align else []
        return "\t".join(columns)

    def told(self, writer: Writer, wish: Wish, versions: Sequence[Version], has_any: bool) -> dict[str, Any]:
        first = {"line": wish.number + 1, **versions[0].told(self.align)}
        if unknown := writer.tokenizer.unknown(wish.text):
            first["unknown"] = unknown
        if self.n_best == 1:
            return first
        return {**first, "n_best": [version.told(self.align) for version in versions] if has_any else []}


@dataclass(frozen=True)
class Version:
    """A text that was found, ready to be printed."""

    text: str
    hypothesis: Hypothesis
    tokens: list[str]
    pairs: list[tuple[int, int]]

    def told(self, align: bool) -> dict[str, Any]:
        found = self.hypothesis
        told: dict[str, Any] = {
            "text": self.text,
            "score": found.score,
            "log_probability": found.log_probability,
            "finished": found.finished,
            "tokens": self.tokens,
            "log_probabilities": found.gains,
        }
        return {**told, "alignment": self.pairs} if align else told


def json_of_refused(refused: Refused) -> str:
    return json.dumps({"line": refused.number + 1, "error": refused.why}, ensure_ascii=False) + "\n"


def on_one_line(text: str) -> str:
    """A line in, a line out: a result that holds a line break must not shift those that follow."""
    return " ".join(text.splitlines())


def word_pairs(writer: Writer, wish: Wish, found: Hypothesis) -> list[tuple[int, int]]:
    """For each token that was written, the word that it belongs to and the word of the source that the model looked at
    most: (source, text), as in the Pharaoh format. Words are what stands between white space."""
    text, pieces, spans = writer.text_of(wish, found), writer.pieces(wish), writer.tokenizer.spans(wish.text)
    place, pairs = len(pieces.begun), set()
    for token, looked in zip(found.tokens, found.alignment or (), strict=False):
        source = max(range(len(spans)), key=lambda i: looked[i])  # without </s>, which stands behind them
        piece = pieces.add(token)
        start = place + len(piece) - len(piece.lstrip())
        pairs.add((word_at(wish.text, spans[source][0]), word_at(text, start)))
        place += len(piece)
    return sorted(pairs, key=lambda pair: (pair[1], pair[0]))


def word_at(text: str, place: int) -> int:
    """The number of the word that stands there, or ends there."""
    return max(0, len(text[: place + 1].split()) - 1)
