"""Scores of each class, and the confusion matrix. The tables stay short however many classes there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cutaway.cli.console import out

MAX_ROWS = 24  # with more classes, the ones with the lowest F1 are printed
MAX_MATRIX = 8  # with more classes, the most frequent confusions are printed
MAX_CONFUSIONS = 10
WIDTH = 20  # of a label
CELL, MIN_CELL = 11, 6  # width of a cell of the matrix


def print_classes(scores: Mapping[str, Mapping[str, Any]], kind: str) -> None:
    rows = list(scores.items())
    if len(rows) > MAX_ROWS:
        rows = sorted(rows, key=lambda row: (row[1]["f1"], row[0]))[:MAX_ROWS]
    print_line(f"\n{kind:{WIDTH}}{'precision':>10}{'recall':>10}{'F1':>10}{'examples':>12}")
    for label, score in rows:
        shares = "".join(f"{score[name]:>10.1%}" for name in ("precision", "recall", "f1"))
        print_line(f"{shorten(label):{WIDTH}}{shares}{score['support']:>12,}")
    if len(rows) < len(scores):
        print_line(f"The {len(rows)} with the lowest F1; --json prints all {len(scores):,}.")


def print_confusion(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> None:
    """For few classes the matrix, with a row for each true label. For more, the most frequent confusions."""
    cell = min(CELL, (out.width - WIDTH) // len(labels))
    if len(labels) <= MAX_MATRIX and cell >= MIN_CELL:
        print_line(f"\n{'predicted:':{WIDTH}}" + "".join(f"{shorten(label, cell - 1):>{cell}}" for label in labels))
        for label, row in zip(labels, counts, strict=True):
            print_line(f"{shorten(label):{WIDTH}}" + "".join(f"{count:>{cell},}" for count in row))
        return
    table = np.array(counts)
    totals = table.sum(axis=1)
    np.fill_diagonal(table, 0)
    worst = [divmod(int(i), len(labels)) for i in np.argsort(-table, axis=None, kind="stable")[:MAX_CONFUSIONS]]
    worst = [(i, j) for i, j in worst if table[i, j]]
    if worst:
        print_line("\nMost frequent confusions (--json prints the matrix):")
    for i, j in worst:
        share = f"{table[i, j] / totals[i]:.1%}"
        print_line(f"{shorten(labels[i]):{WIDTH}} predicted as {shorten(labels[j]):{WIDTH}}{table[i, j]:>8,}{share:>8}")


def print_line(line: str) -> None:
    out.print(line, markup=False, highlight=False, soft_wrap=True)


def shorten(label: str, width: int = WIDTH - 1) -> str:
    label = " ".join(label.split()) or repr(label)
    return label if len(label) <= width else label[: width - 1] + "…"
