"""Scores of classes and of spans: accuracy, and the F-score of spans marked by BIO tags."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
