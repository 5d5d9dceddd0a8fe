"""The report.html of a run: findings, training curves, samples, the recorded explorer, scores and settings."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from cutaway.config import Config
from cutaway.errors import CutawayError
from cutaway.explore.charts import ChartLine, attention_chart, line_chart
from cutaway.explore.report import HtmlReport
from cutaway.metrics.classes import Confusion
from cutaway.metrics.scores import perplexity
from cutaway.runs import RunFolder
from cutaway.runs.summary import History, RunSummary, summarize

TOKEN_TASKS = ("translation", "language_model", "masked_language_model")  # tasks with a perplexity
MAX_VALIDATIONS = 8  # validations whose samples are shown
EXPLORER_TEXTS = 2  # texts in the recorded explorer
MAX_CHARACTERS = 160  # length of such a text
MAX_CLASSES = 40  # classes with scores
MAX_LABEL = 20  # characters of a label in a chart


class FindingLike(Protocol):
    """A finding of `cutaway.diagnose.doctor`."""

    @property
    def severity(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def evidence(self) -> str: ...
    @property
    def remedy(self) -> str: ...


def write_run_report(
    run: RunFolder, findings: Sequence[FindingLike], in_order: Sequence[str] = (), not_known: Sequence[str] = ()
) -> Path:
    """Write report.html. `findings`, `in_order`, `not_known`: the diagnosis of the run (`cutaway.diagnose.doctor`)."""
    config, history, summary = run.read_config(), History.of(run.read_metrics()), summarize(run)
    report = HtmlReport(summary.name, lead(summary))
    report.numbers(number_cards(summary))
    if history.steps:  # not for imported weights
        report.heading("Findings")
        for finding in findings:
            report.finding(finding.severity, finding.title, finding.evidence, finding.remedy)
        if not findings:
            report.text("No problem was found. Some checks could not run." if not_known else "No problem was found.")
        if in_order:
            report.details(f"{len(in_order)} checks passed", "\n".join(in_order))
        if not_known:
            report.details("Checks that could not run", "\n".join(not_known))
        report.heading("Training curves")
        report.charts(charts(history, config))
    add_samples(report, history)
    add_explorer(report, run, history)
    add_scores(report, summary)
    add_settings(report, run, config)
    report.heading("Next commands")
    evaluate = (
        f"cutaway doctor {run}\ncutaway evaluate {run}" if history.steps else f"cutaway evaluate {run} --data FILE"
    )
    report.code(f"cutaway explore {run}\n{evaluate}\ncutaway runs {run.path.parent}")
    return report.write(run.report)


def lead(summary: RunSummary) -> str:
    task = summary.task.replace("_", " ")
    if summary.state == "weights only":
        return f"{task.capitalize()}: imported weights, not trained here."
    return (
        f"{task.capitalize()} on {summary.corpus}: {summary.steps:,} steps in {duration(summary.seconds)}, "
        f"{summary.state_text}. {time.strftime('%Y-%m-%d %H:%M', time.localtime(summary.when))}"
    )


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def number_cards(summary: RunSummary) -> list[tuple[str, str]]:
    cards = []
    if summary.valid_loss is not None:
        cards.append(
            (f"{summary.valid_loss:.3f}", f"validation loss of the best weights, from step {summary.best_step:,}")
        )
        if summary.task in TOKEN_TASKS:
            cards.append((f"{perplexity(summary.valid_loss):,.2f}", "validation perplexity"))
    if summary.valid_accuracy is not None:
        what = "of the tokens predicted correctly" if summary.task in TOKEN_TASKS else "validation accuracy"
        cards.append((f"{summary.valid_accuracy:.1%}", what))
    if summary.valid_bleu is not None:
        cards.append((f"{summary.valid_bleu:.1f}", "validation BLEU, greedy decoding"))
    if "bleu" in summary.scores:
        cards.append((f"{summary.scores['bleu']:.1f}", "BLEU on the test data"))
    if summary.parameters:
        cards.append((f"{summary.parameters / 1e6:.2f} M", "parameters"))
    if summary.tokens_per_second:
        unit = "examples" if "classification" in summary.task else "tokens"
        cards.append((f"{summary.tokens_per_second:,.0f}", f"{unit} per second"))
    return cards


def charts(history: History, config: Config) -> list[tuple[str, str]]:
    """(svg, caption) for each curve that has points."""
    loss = "Loss: cross-entropy per token in nats, without label smoothing"
    lines = [
        ChartLine("training", history.curve("nll")),
        ChartLine("validation", history.curve("valid_loss"), "b", dots=True),
    ]
    found = [(line_chart(lines, loss, logarithmic=True), loss)] if any(line.points for line in lines) else []
    clip = config.train.clip_norm or None
    fields = (
        ("valid_accuracy", "Validation accuracy", "b", True, None),
        ("valid_bleu", "Validation BLEU, greedy decoding", "b", True, None),
        ("lr", f"Learning rate: {config.train.schedule}", "c", False, None),
        ("gradient_norm", "Gradient norm" + ("; dashed: the clipping limit" if clip else ""), "a", False, clip),
    )
    for name, caption, style, dots, level in fields:
        if points := history.curve(name):
            found.append((line_chart([ChartLine(name, points, style, dots)], caption, level=level), caption))
    if speeds := history.speeds():
        caption = "Speed: predictions (tokens, labels or tags) per second, with the time for validation"
        found.append((line_chart([ChartLine("speed", speeds, "c")], caption, level=0), caption))
    return found


def add_samples(report: HtmlReport, history: History) -> None:
    """The output for each held-out sample at each validation."""
    rows = [row for row in history.validations if row.get("samples")]
    if not rows:
        return
    report.heading("Sample outputs during the training")
    rows = pick_evenly(rows, MAX_VALIDATIONS)
    for number, last in enumerate(rows[-1]["samples"]):
        outputs = [(row["step"], row["samples"][number]["written"]) for row in rows if number < len(row["samples"])]
        report.sample_history(last["given"], outputs, last["right"])


def pick_evenly(rows: Sequence[Any], count: int) -> list[Any]:
    """At most `count` rows at equal distances, with the first and the last."""
    if len(rows) <= count:
        return list(rows)
    return [rows[round(i * (len(rows) - 1) / (count - 1))] for i in range(count)]


def add_explorer(report: HtmlReport, run: RunFolder, history: History) -> None:
    """The recorded explorer with short sample texts."""
    try:
        from cutaway.explore.explorer import Explorer
        from cutaway.explore.recording import record_for_report
    except ImportError:  # a run of the NumPy twin, where there is no torch
        return
    if not run.weights.is_file():
        return
    report.heading("Inside the model")
    texts = [s["given"] for row in history.validations[-1:] for s in row.get("samples", []) if s["right"]]
    short = [text for text in texts if len(text) <= MAX_CHARACTERS]
    try:
        report.explorer(record_for_report(Explorer([run.path], "cpu"), short[:EXPLORER_TEXTS]))
    except (CutawayError, OSError) as error:  # for example, the data files are missing
        report.text(f"The explorer could not be recorded: {error}")


def add_scores(report: HtmlReport, summary: RunSummary) -> None:
    if summary.scores:
        report.heading("Scores")
        single = {name: value for name, value in summary.scores.items() if not isinstance(value, dict)}
        report.table(("", ""), [(name.replace("_", " "), format_value(value)) for name, value in single.items()])
        add_classes(report, summary.scores)


def add_classes(report: HtmlReport, scores: dict[str, Any]) -> None:
    """The confusion matrix and the scores of each class, worst first; at most MAX_CLASSES."""
    confusion = Confusion.read(scores)
    if confusion is None:
        return
    if len(confusion.labels) <= MAX_CLASSES:
        names = [label[:MAX_LABEL] for label in confusion.labels]
        caption = "Confusion matrix. Rows: true class; columns: predicted class. The stronger the colour, the more."
        report.chart(attention_chart(confusion.shares, names, names, "Confusion matrix"), caption)
    worst = sorted(confusion.scores().items(), key=lambda row: (row[1].f1, row[0]))[:MAX_CLASSES]
    rows = [(label, *(f"{share:.1%}" for share in score[:3]), f"{score.support:,}") for label, score in worst]
    report.table(("class, worst first", "precision", "recall", "F1", "examples"), rows)


def format_value(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def add_settings(report: HtmlReport, run: RunFolder, config: Config) -> None:
    report.heading("Settings")
    report.text("Settings that differ from the defaults. The default model is the paper's base model.")
    rows = [(name, to_json(value), to_json(default)) for name, value, default in changed_settings(config)]
    report.table(("setting", "here", "default"), rows)
    report.details("All settings of this run", run.config.read_text(encoding="utf-8"))


def changed_settings(config: Config) -> list[tuple[str, Any, Any]]:
    """(setting, value, default) of each setting that differs from its default."""
    here, defaults = dataclasses.asdict(config), dataclasses.asdict(Config())
    return [
        (f"{table}.{name}", value, defaults[table][name])
        for table, settings in here.items()
        for name, value in settings.items()
        if value != defaults[table][name]
    ]


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
