"""Report a cell that fails with one sentence: page, line, error. MyST-NB alone names only the page."""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

COLOURS = re.compile(r"\x1b\[[\d;]*m")
CELL = re.compile(r"executing the following cell:\n-+\n(.*?)\n-{10,}\n", re.DOTALL)
logger = logging.getLogger(__name__)


def describe_failure(page: str, traceback: str) -> tuple[int, str]:
    """The line of the page at which a cell failed, and a sentence about the error."""
    text = COLOURS.sub("", traceback).strip()
    error = text.splitlines()[-1].strip().rstrip(":")
    found = CELL.search(text)
    if not found:  # a timeout, or a kernel that died
        return 1, f"a cell fails: {error}"
    cell = found[1].splitlines()
    inside = re.findall(r"^Cell In\[\d+\], line (\d+)", text, re.MULTILINE)
    number = int(inside[-1]) if inside and int(inside[-1]) <= len(cell) else 1
    before, _, rest = page.partition(found[1])
    line = before.count("\n") + number if rest or found[1] in page else 1
    return line, (
        f"this cell fails: {error} at `{cell[number - 1].strip()}`. If the code is right, correct the cell and the "
        "text around it."
    )


def report_failures(app: Sphinx, env: BuildEnvironment) -> None:
    for docname, data in env.nb_metadata.items():
        result = data.get("exec_data") or {}
        if not result.get("succeeded", True):
            page = Path(env.doc2path(docname)).read_text("utf-8")
            line, sentence = describe_failure(page, result.get("traceback") or result["error"])
            logger.warning("%s", sentence, location=(docname, line), type="book", subtype="cell")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("env-updated", report_failures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
