"""Scores of classes and of spans: accuracy, precision, recall and F-score, and what is taken for what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cutaway.errors import DataError

Span = tuple[int, int, str]  # first word, one beyond the last, label


@dataclass(frozen=True)
class SpanScore:
    """Precision: the share of the spans found that are right. Recall: of the right ones, the share found. 0 to 1."""

    precision: float
    recall: float
    f1: float


def accuracy(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """The share of examples with the right class; 0 to 1."""
    _check_lengths("classes", predicted, gold)
    if not gold:
        raise DataError("there is no example to score: accuracy needs at least one.")
    return sum(p == g for p, g in zip(predicted, gold, strict=True)) / len(gold)


class ClassScore(NamedTuple):
    """Precision: of the answers with this label, the share that is right. Recall: of the examples that have it, the
    share that got it. F1: their harmonic mean. All from 0 to 1; support: how many examples have the label."""

    precision: float
    recall: float
    f1: float
    support: int

    @classmethod
    def of(cls, right: int, found: int, wanted: int) -> ClassScore:
        """What there is nothing of counts as 0, as in scikit-learn."""
        f1 = 2 * right / (found + wanted) if found + wanted else 0.0
        return cls(right / found if found else 0.0, right / wanted if wanted else 0.0, f1, wanted)


@dataclass(frozen=True)
class Confusion:
    """What is taken for what: counts[i, j] examples of class i were given class j. All classes that occur, by name."""

    labels: list[str]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, predicted: Sequence[str], gold: Sequence[str]) -> Confusion:
        _check_lengths("classes", predicted, gold)
        labels = sorted({*predicted, *gold})
        number = {label: i for i, label in enumerate(labels)}
        cells = [number[g] * len(labels) + number[p] for p, g in zip(predicted, gold, strict=True)]
        counts = np.bincount(np.array(cells, np.int64), minlength=len(labels) ** 2)
        return cls(labels, counts.reshape(len(labels), len(labels)))

    @classmethod
    def read(cls, scores: Mapping[str, Any]) -> Confusion | None:
        """That of a scores.json, if it has one that can be read."""
        try:
            labels = [str(label) for label in scores["confusion"]["labels"]]
            counts = np.array(scores["confusion"]["counts"], np.int64)
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        return cls(labels, counts) if labels and counts.shape == (len(labels),) * 2 and counts.min() >= 0 else None

    @property
    def shares(self) -> NDArray[np.float64]:
        """Of each class, which share was given which."""
        return self.counts / np.maximum(1, self.counts.sum(axis=1, keepdims=True))

    def scores(self) -> dict[str, ClassScore]:
        right, found, wanted = np.diag(self.counts).tolist(), self.counts.sum(0).tolist(), self.counts.sum(1).tolist()
        rows = zip(self.labels, right, found, wanted, strict=True)
        return {label: ClassScore.of(*numbers) for label, *numbers in rows}


def span_scores(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> dict[str, ClassScore]:
    """For each label of spans: a span is right if its start, its end and its label are."""
    _check_lengths("sequences", predicted, gold)
    right, found, wanted = Counter[str](), Counter[str](), Counter[str]()
    for p, g in zip(predicted, gold, strict=True):
        p_spans, g_spans = set(spans_of(p)), set(spans_of(g))
        for counts, spans in ((right, p_spans & g_spans), (found, p_spans), (wanted, g_spans)):
            counts.update(label for _, _, label in spans)
    return {label: ClassScore.of(right[label], found[label], wanted[label]) for label in sorted({*found, *wanted})}


def has_spans(tags: Iterable[str]) -> bool:
    """Whether a set of tags marks spans: nothing but O, B-x and I-x, and at least one that begins a span."""
    tags = set(tags)
    return any(tag.startswith("B-") for tag in tags) and all(_split(tag) is not None for tag in tags)


def spans_of(tags: Sequence[str]) -> list[Span]:
    """BIO tags -> spans. An I-x that follows no x begins a span, as in conlleval."""
    spans: list[Span] = []
    opened: tuple[int, str] | None = None
    for i, tag in enumerate([*tags, "O"]):
        mark, label = _parts(tag, i)
        if opened and not (mark == "I" and label == opened[1]):
            spans.append((opened[0], i, opened[1]))
            opened = None
        if mark != "O" and not opened:
            opened = i, label
    return spans


def span_f1(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> SpanScore:
    """Over all sequences together: a span is right if its start, its end and its label are."""
    _check_lengths("sequences", predicted, gold)
    right = found = wanted = 0
    for number, (p, g) in enumerate(zip(predicted, gold, strict=True), 1):
        _check_lengths(f"tags of sequence {number}", p, g)
        p_spans, g_spans = set(spans_of(p)), set(spans_of(g))
        right, found, wanted = right + len(p_spans & g_spans), found + len(p_spans), wanted + len(g_spans)
    precision = right / found if found else 0.0
    recall = right / wanted if wanted else 0.0
    return SpanScore(precision, recall, 2 * right / (found + wanted) if found + wanted else 0.0)


def _split(tag: str) -> tuple[str, str] | None:
    mark, _, label = tag.partition("-")
    return (mark, label) if tag == "O" or (mark in ("B", "I") and label) else None


def _parts(tag: str, place: int) -> tuple[str, str]:
    parts = _split(tag)
    if parts is None:
        raise DataError(f"tag {place + 1} is {tag!r}. Spans need BIO tags: 'O', or 'B-x' and 'I-x' with a label x.")
    return parts


def _check_lengths(what: str, predicted: Sequence[object], gold: Sequence[object]) -> None:
    if len(predicted) != len(gold):
        raise DataError(
            f"{len(predicted)} predicted {what} cannot be scored against {len(gold)} gold ones: "
            "there must be one for one."
        )
