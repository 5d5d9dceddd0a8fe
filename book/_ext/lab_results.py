"""The directive `lab`: the measured result of an experiment of the lab, from book/results/lab/NAME.json.

    ```{lab} no-mask
    :folded:      optional: only question and expectation, and the result after a click
    ```

The build fails if the experiment has no result, or if its variants, settings or seeds have changed since the result.
"""

from __future__ import annotations

import json
from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from cutaway.course.experiment import Experiment, find_experiment, read_experiment
from cutaway.course.verdict import METRICS, PowerLaw
from cutaway.errors import CutawayError
from cutaway.explore import lab_figures

RESULTS = Path(__file__).parents[1] / "results" / "lab"
AGAIN = "Run: cutaway lab {0}, then: python book/results/collect.py"


def read_results(name: str) -> dict[str, Any]:
    """The results of an experiment. LookupError if there are none, or if they are of other settings."""
    try:
        experiment = read_experiment(find_experiment(name))
    except CutawayError as error:
        raise LookupError(str(error)) from None
    file = RESULTS / f"{name}.json"
    if not file.is_file():
        raise LookupError(f"The experiment {name!r} has no result in book/results/lab. {AGAIN.format(name)}")
    results: dict[str, Any] = json.loads(file.read_text("utf-8"))
    if difference := find_difference(experiment, results):
        message = f"{file.name} has other {difference} than experiments/{name}.toml. {AGAIN.format(name)}"
        raise LookupError(message)
    return results


def find_difference(experiment: Experiment, results: dict[str, Any]) -> str:
    """What a result and the experiment do not have in common, or ""."""
    variants = [[v.name, list(v.ablations), v.settings] for v in experiment.variants]
    pairs = {
        "seeds": (list(experiment.seeds), results["seeds"]),
        "settings": (experiment.settings, results.get("set")),
        "variants": (variants, [[v["name"], v["ablations"], v["set"]] for v in results["variants"]]),
    }
    return next((name for name, (wanted, found) in pairs.items() if wanted != found), "")


def draw_results(results: dict[str, Any]) -> Any:
    """The values of all seeds in the first metric of the verdict, or the fitted scaling law."""
    if scaling := results["scaling"]:
        law = PowerLaw(**scaling["law"])
        points: dict[int, dict[float, float]] = {}
        for run in (run for variant in results["variants"] for run in variant["runs"]):
            size = run["parameters_without_embeddings"]
            points.setdefault(run["seed"], {})[size] = run["measures"]["cross-entropy"]
        formula = f"{law.floor:.3g} + {law.factor:.3g} · N^-{law.exponent:.3f}"
        return lab_figures.scaling_law(points, law, law.floor, formula)
    metric = METRICS[results["judge_by"][0]]
    values = {variant["name"]: metric_values(variant, metric.name) for variant in results["variants"]}
    ranges = {
        one["variant"]: (one["difference"]["low"], one["difference"]["high"])
        for one in results["comparisons"]
        if one["measure"] == metric.name and one["difference"]
    }
    return lab_figures.final_values(values, ranges, metric.name, in_per_cent=metric.is_fraction)


def metric_values(variant: dict[str, Any], metric: str) -> list[float]:
    """The values of the seeds that did not diverge."""
    return [run["measures"][metric] for run in variant["runs"] if not run["diverged_at"]]


def picture(results: dict[str, Any]) -> nodes.image:
    """The figure as SVG inside the page."""
    svg = BytesIO()
    draw_results(results).savefig(svg, format="svg", metadata={"Date": None})
    address = "data:image/svg+xml;base64," + b64encode(svg.getvalue()).decode()
    return nodes.image(
        "", uri=address, alt=f"Figure: {results['title']}. The table below has the numbers.", width="100%"
    )


def result_table(results: dict[str, Any]) -> nodes.table:
    """A row for each variant: parameters, and the mean and range over the seeds for each metric of the verdict."""
    names = results["judge_by"]
    findings = {(one["variant"], one["measure"]): one["finding"] for one in results["comparisons"]}
    head = ["variant", "parameters"]
    for name in names:
        head += [f"{name}: mean (range)", *([] if results["scaling"] else ["compared with the first"])]
    rows = []
    for i, variant in enumerate(results["variants"]):
        row = [variant["name"], f"{variant['runs'][0]['parameters']:,}"]
        for name in names:
            found = "" if i == 0 else findings.get((variant["name"], name), "")
            row += [mean_and_range(variant, name), *([] if results["scaling"] else [found])]
        rows.append(row)
    return make_table(head, rows)


def mean_and_range(variant: dict[str, Any], name: str) -> str:
    values, metric = metric_values(variant, name), METRICS[name]
    if not values:
        return "diverged"
    lost = len(variant["runs"]) - len(values)
    text = f"{metric.format(float(np.mean(values)))} ({metric.format_range(min(values), max(values))})"
    return text + f", {lost} diverged" * bool(lost)


def make_table(head: list[str], rows: list[list[str]]) -> nodes.table:
    def row(cells: list[str]) -> nodes.row:
        return nodes.row("", *(nodes.entry("", nodes.paragraph("", cell)) for cell in cells))

    columns = [nodes.colspec(colwidth=1) for _ in head]
    body = nodes.tbody("", *map(row, rows))
    group = nodes.tgroup("", *columns, nodes.thead("", row(head)), body, cols=len(head))
    return nodes.table("", group, classes=["colwidths-auto"])


def paragraph(text: str, label: str = "") -> nodes.paragraph:
    """A paragraph; `code` between backticks."""
    parts: list[nodes.Node] = [nodes.strong("", label), nodes.Text(" ")] if label else []
    for i, part in enumerate(text.split("`")):
        parts.append(nodes.literal("", part) if i % 2 else nodes.Text(part))
    return nodes.paragraph("", "", *parts)


class LabDirective(SphinxDirective):
    """Question, expectation, figure, numbers and verdict of an experiment."""

    required_arguments = 1
    option_spec = {"folded": directives.flag}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        try:
            results = read_results(name)
        except LookupError as error:
            raise self.error(str(error)) from None
        self.env.note_dependency(str(RESULTS / f"{name}.json"))
        self.env.note_dependency(str(find_experiment(name)))
        machine = results["machine"]
        note = (
            f"Measured on {results['date']} ({machine['cpu']}, {machine['cores']} cores, torch {machine['torch']}) by "
            f"`cutaway lab {name}`; seeds {', '.join(map(str, results['seeds']))}."
        )
        question = [
            paragraph(results["question"], "Experiment:"),
            paragraph(" ".join(results["theory"].split()), "Expected before the training:"),
        ]
        answer = [
            picture(results),
            result_table(results),
            *(paragraph(sentence, "Verdict:" if i == 0 else "") for i, sentence in enumerate(results["verdict"])),
            paragraph(note),
        ]
        if "folded" in self.options:
            start = '<details class="lab-result"><summary>What we measured</summary>'
            answer = [nodes.raw("", start, format="html"), *answer, nodes.raw("", "</details>", format="html")]
        return [nodes.container("", *question, *answer, classes=["lab"])]


def setup_lab(app: Sphinx) -> None:
    app.add_directive("lab", LabDirective)
