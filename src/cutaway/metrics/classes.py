"""Scores of classes and spans: accuracy, precision, recall, F-score and confusion matrix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cutaway.errors import DataError

Span = tuple[int, int, str]  # first word, last word + 1, label


@dataclass(frozen=True)
class SpanScore:
    """Precision: the share of predicted spans that are correct. Recall: the share of gold spans found. 0 to 1."""

    precision: float
    recall: float
    f1: float


def accuracy(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """The share of correct predictions; 0 to 1."""
    _check_lengths("classes", predicted, gold)
    if not gold:
        raise DataError("there are no examples. Accuracy needs at least one.")
    return sum(p == g for p, g in zip(predicted, gold, strict=True)) / len(gold)


class ClassScore(NamedTuple):
    """The scores of one label, from 0 to 1. Precision: the share of its predictions that are correct. Recall: the share
    of its examples that were predicted. F1: their harmonic mean. Support: the number of examples with the label."""

    precision: float
    recall: float
    f1: float
    support: int

    @classmethod
    def of(cls, correct: int, predicted: int, gold: int) -> ClassScore:
        """The scores from counts. Division by zero gives 0, as in scikit-learn."""
        f1 = 2 * correct / (predicted + gold) if predicted + gold else 0.0
        return cls(correct / predicted if predicted else 0.0, correct / gold if gold else 0.0, f1, gold)


@dataclass(frozen=True)
class Confusion:
    """A confusion matrix: counts[i, j] examples of class i were predicted as class j. Classes are sorted by name."""

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
        """The confusion matrix in a scores.json; None if it has none that is valid."""
        try:
            labels = [str(label) for label in scores["confusion"]["labels"]]
            counts = np.array(scores["confusion"]["counts"], np.int64)
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        return cls(labels, counts) if labels and counts.shape == (len(labels),) * 2 and counts.min() >= 0 else None

    @property
    def shares(self) -> NDArray[np.float64]:
        """counts as fractions of each class."""
        return self.counts / np.maximum(1, self.counts.sum(axis=1, keepdims=True))

    def scores(self) -> dict[str, ClassScore]:
        correct = np.diag(self.counts).tolist()
        predicted, gold = self.counts.sum(axis=0).tolist(), self.counts.sum(axis=1).tolist()
        rows = zip(self.labels, correct, predicted, gold, strict=True)
        return {label: ClassScore.of(*numbers) for label, *numbers in rows}


def span_scores(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> dict[str, ClassScore]:
    """The scores of each label. A span is correct if its start, end and label are."""
    _check_lengths("sequences", predicted, gold)
    correct, found, wanted = Counter[str](), Counter[str](), Counter[str]()
    for p, g in zip(predicted, gold, strict=True):
        p_spans, g_spans = set(spans_of(p)), set(spans_of(g))
        for counts, spans in ((correct, p_spans & g_spans), (found, p_spans), (wanted, g_spans)):
            counts.update(label for _, _, label in spans)
    return {label: ClassScore.of(correct[label], found[label], wanted[label]) for label in sorted({*found, *wanted})}


def has_spans(tags: Iterable[str]) -> bool:
    """Whether tags mark spans: all are O, B-x or I-x, and at least one is B-x."""
    tags = set(tags)
    return any(tag.startswith("B-") for tag in tags) and all(_split(tag) is not None for tag in tags)


def spans_of(tags: Sequence[str]) -> list[Span]:
    """BIO tags -> spans. An I-x that does not follow a span of x starts a new span, as in conlleval."""
    spans: list[Span] = []
    current: tuple[int, str] | None = None
    for i, tag in enumerate([*tags, "O"]):
        mark, label = _parse_tag(tag, i)
        if current and not (mark == "I" and label == current[1]):
            spans.append((current[0], i, current[1]))
            current = None
        if mark != "O" and not current:
            current = i, label
    return spans


def span_f1(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> SpanScore:
    """The scores over all sequences. A span is correct if its start, end and label are."""
    _check_lengths("sequences", predicted, gold)
    correct = found = wanted = 0
    for number, (p, g) in enumerate(zip(predicted, gold, strict=True), 1):
        _check_lengths(f"tags of sequence {number}", p, g)
        p_spans, g_spans = set(spans_of(p)), set(spans_of(g))
        correct, found, wanted = correct + len(p_spans & g_spans), found + len(p_spans), wanted + len(g_spans)
    precision = correct / found if found else 0.0
    recall = correct / wanted if wanted else 0.0
    return SpanScore(precision, recall, 2 * correct / (found + wanted) if found + wanted else 0.0)


def _split(tag: str) -> tuple[str, str] | None:
    mark, _, label = tag.partition("-")
    return (mark, label) if tag == "O" or (mark in ("B", "I") and label) else None


def _parse_tag(tag: str, position: int) -> tuple[str, str]:
    parts = _split(tag)
    if parts is None:
        raise DataError(f"tag {position + 1} is {tag!r}. Spans need BIO tags: 'O', or 'B-x' and 'I-x' with a label x.")
    return parts


def _check_lengths(what: str, predicted: Sequence[object], gold: Sequence[object]) -> None:
    if len(predicted) != len(gold):
        raise DataError(
            f"{len(predicted)} predicted {what} cannot be compared with {len(gold)} gold {what}. "
            "Give the same number of both."
        )
