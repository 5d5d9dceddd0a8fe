"""Scores class by class, and what is taken for what, as tables that stay short however many classes there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cutaway.cli.console import out

MOST_ROWS = 24  # classes; of more, the worst are shown
MATRIX = 8  # classes whose matrix is shown
WORST = 10  # confusions that are shown, the most frequent ones
WIDTH = 20


def print_classes(scores: Mapping[str, Mapping[str, Any]], what: str) -> None:
    rows = list(scores.items())
    if len(rows) > MOST_ROWS:
        rows = sorted(rows, key=lambda row: (row[1]["f1"], row[0]))[:MOST_ROWS]
    printed(f"\n{what:{WIDTH}}{'precision':>10}{'recall':>10}{'F1':>10}{'examples':>12}")
    for label, score in rows:
        shares = "".join(f"{score[name]:>10.1%}" for name in ("precision", "recall", "f1"))
        printed(f"{short(label):{WIDTH}}{shares}{score['support']:>12,}")
    if len(rows) < len(scores):
        printed(f"The {len(rows)} with the lowest F1; --json prints all {len(scores):,}.")


def print_confusion(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> None:
    """Of few classes the matrix: a row for each, a column for what it was given. Of more, the worst confusions."""
    if len(labels) <= MATRIX:
        printed(f"\n{'given:':{WIDTH}}" + "".join(f"{short(label, 10):>11}" for label in labels))
        for label, row in zip(labels, counts, strict=True):
            printed(f"{short(label):{WIDTH}}" + "".join(f"{count:>11,}" for count in row))
        return
    table = np.array(counts)
    totals = table.sum(axis=1)
    np.fill_diagonal(table, 0)
    worst = [divmod(int(place), len(labels)) for place in np.argsort(-table, axis=None, kind="stable")[:WORST]]
    worst = [(i, j) for i, j in worst if table[i, j]]
    if worst:
        printed("\nMost frequent confusions (--json prints the matrix):")
    for i, j in worst:
        share = f"{table[i, j] / totals[i]:.1%} of {short(labels[i])}"
        printed(f"{short(labels[i]):{WIDTH}} given as {short(labels[j]):{WIDTH}}{table[i, j]:>8,}   {share}")


def printed(line: str) -> None:
    out.print(line, markup=False, highlight=False, soft_wrap=True)


def short(label: str, width: int = WIDTH - 1) -> str:
    label = " ".join(label.split()) or repr(label)
    return label if len(label) <= width else label[: width - 1] + "…"
