"""Read a lesson (a script with `# %%` cells) as a notebook for the book.

A cell that draws a figure calls `save(figure, "name")`. Its code is folded, and the figure gets an alternative text.
As in the terminal, a page shows what a lesson prints and draws, but not the value of a cell's last expression.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import jupytext
from nbformat.v4 import new_code_cell

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
PRINT_ONLY = 'get_ipython().ast_node_interactivity = "none"'
PROMPTS = {"code_prompt_show": "Show the code of this figure", "code_prompt_hide": "Hide the code of this figure"}


def read_lesson(text: str) -> Any:
    notebook = jupytext.reads(text, fmt="py:percent")
    notebook.metadata["kernelspec"] = KERNEL
    heading = ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            heading = ([heading, *re.findall(r"^#+ (.+)$", cell.source, re.MULTILINE)])[-1]
        elif draws_figure(cell.source):
            alt = ". ".join(figure_titles(cell.source)) or heading
            cell.metadata["tags"] = [*cell.metadata.get("tags", []), "hide-input"]
            cell.metadata["mystnb"] = PROMPTS | {"image": {"alt": f"Figure: {alt}"}}
    notebook.cells.insert(1, new_code_cell(PRINT_ONLY, id="print-only", metadata={"tags": ["remove-cell"]}))
    return notebook


def draws_figure(code: str) -> bool:
    """Whether a statement of a cell is `save(...)`."""
    return any(isinstance(node, ast.Expr) and called_name(node.value) == "save" for node in ast.parse(code).body)


def figure_titles(code: str) -> list[str]:
    """The titles of a figure and its panels, as far as they are plain strings."""
    calls = [node for node in ast.walk(ast.parse(code)) if called_name(node) in ("suptitle", "set_title")]
    calls.sort(key=lambda node: (called_name(node) != "suptitle", node.lineno))
    texts = [node.args[0].value for node in calls if node.args and isinstance(node.args[0], ast.Constant)]
    return [" ".join(str(text).split()) for text in texts]


def called_name(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
