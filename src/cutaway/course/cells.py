"""Read a lesson as a list of cells. A lesson is a script in the percent format of editors and jupytext:

# %% [markdown]
# Prose, in Markdown, behind comment signs.

# %%
print("code")
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from cutaway.errors import DataError

CELL_MARK = re.compile(r"# %%(?: \[(?P<kind>markdown)\])?\s*$")


class Cell(NamedTuple):
    kind: str  # "markdown" or "code"
    text: str
    line: int  # 0-based line of the file where the text starts


def read_cells(path: Path) -> list[Cell]:
    """Return all cells of a script. Text before the first cell mark is an error."""
    cells: list[Cell] = []
    kind, start, lines = "", 0, path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate([*lines, "# %%"]):
        mark = CELL_MARK.match(line)
        if not mark:
            continue
        cell = make_cell(kind, lines[start:number], start)
        if cell and not kind:
            raise DataError(f"{path}: found text before the first cell. Start the file with `# %% [markdown]`.")
        cells += [cell] if cell else []
        kind, start = mark["kind"] or "code", number + 1
    return cells


def make_cell(kind: str, lines: list[str], start: int) -> Cell | None:
    """Strip empty lines around a cell; None if nothing is left."""
    while lines and not lines[0].strip():
        lines, start = lines[1:], start + 1
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    if kind == "markdown":
        lines = [line.removeprefix("#").removeprefix(" ") for line in lines]
    return Cell(kind, "\n".join(lines), start) if lines else None


def find_title(cells: list[Cell]) -> str:
    """Return the first heading."""
    heading = re.search(r"^# (.+)$", cells[0].text, re.MULTILINE) if cells else None
    return heading[1].strip() if heading else "?"


def to_notebook(cells: list[Cell]) -> str:
    """Convert cells to a Jupyter notebook without outputs."""
    entries: list[dict[str, Any]] = []
    for i, cell in enumerate(cells):
        source = cell.text.splitlines(keepends=True)
        entries.append({"cell_type": cell.kind, "id": f"cell-{i}", "metadata": {}, "source": source})
        if cell.kind == "code":
            entries[-1] |= {"execution_count": None, "outputs": []}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": entries, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
