"""What the cells of the book share. Importing it seeds torch, sets one thread, and draws figures as SVG."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from IPython.display import Markdown
from matplotlib_inline.backend_inline import set_matplotlib_formats

from cutaway import RunFolder

NUMBER = re.compile(r"[-−+]?[\d,.]+(e[-+]?\d+)?( ?%)?|")  # or empty

set_matplotlib_formats("svg")
torch.manual_seed(0)
torch.set_num_threads(1)


def table(head: Sequence[Any], rows: Iterable[Sequence[Any]]) -> Markdown:
    """A Markdown table. Columns of numbers are aligned at the right."""
    lines = [[str(cell) for cell in row] for row in rows]
    columns = zip(*lines, strict=True)
    rule = ["---:" if all(map(NUMBER.fullmatch, column)) else "---" for column in columns] or ["---"] * len(head)
    return Markdown("\n".join("| " + " | ".join(map(str, line)) + " |" for line in (head, rule, *lines)))


def shape(tensor: torch.Tensor) -> str:
    """The shape of a tensor, as in the text: [2,4,512]."""
    return "[" + ",".join(map(str, tensor.shape)) + "]"


def demo_run() -> RunFolder:
    """The run of the English-French translator that `make demo` trains."""
    folder = Path(__file__).parents[1] / "runs" / "demo"
    if not (folder / "scores.json").is_file():
        raise FileNotFoundError("This page shows the translator of the demo. runs/demo is not there. Run: make demo")
    return RunFolder(folder)


def finding(experiment: str, variant: str, measure: str = "cross-entropy") -> str:
    """What the lab found for a variant, compared with the first one: "better", "worse", "no difference shown" ..."""
    results = json.loads((Path(__file__).parent / "results/lab" / f"{experiment}.json").read_text("utf-8"))
    pairs = {(one["variant"], one["measure"]): one["finding"] for one in results["comparisons"]}
    return str(pairs[variant, measure])
