"""The page that every training leaves behind: curves, samples as they developed, settings, what deserves attention."""

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

OF_LANGUAGE = ("translation", "language_model", "masked_language_model")  # tasks of which a perplexity says something
SHOWN = 8  # validations whose samples are shown
LONGEST = 160  # characters of a text that is laid open
LAID_OPEN = 2
MOST_CLASSES = 40  # whose scores are shown
LONGEST_LABEL = 20  # characters of its name in a drawing


class FindingLike(Protocol):
    """What a doctor finds."""

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
    """Write report.html. `findings`, `in_order`, `not_known` are what a doctor said (`cutaway.diagnose.doctor`)."""
    config, history, summary = run.read_config(), History.of(run.read_metrics()), summarize(run)
    report = HtmlReport(summary.name, lead(summary))
    report.numbers(number_cards(summary))
    if history.steps:  # imported weights have no training to speak of
        report.heading("What deserves attention")
        for finding in findings:
            report.finding(finding.severity, finding.title, finding.evidence, finding.remedy)
        if not findings:
            report.text("Nothing of what could be looked at." if not_known else "Nothing.")
        if in_order:
            report.details(f"{len(in_order)} things were looked at and are in order", "\n".join(in_order))
        if not_known:
            report.details("What is not known", "\n".join(not_known))
        report.heading("How it learned")
        report.drawings(charts(history, config))
    add_samples(report, history)
    add_explorer(report, run, history)
    add_scores(report, summary)
    add_settings(report, run, config)
    report.heading("Go on")
    evaluate = (
        f"cutaway doctor {run}\ncutaway evaluate {run}" if history.steps else f"cutaway evaluate {run} --data FILE"
    )
    report.code(f"cutaway explore {run}\n{evaluate}\ncutaway runs {run.path.parent}")
    return report.write(run.report)


def lead(summary: RunSummary) -> str:
    task = summary.task.replace("_", " ")
    if summary.state == "weights only":
        return f"{task.capitalize()}: weights that were imported, and not trained here."
    return (
        f"{task.capitalize()} on {summary.corpus}: {summary.steps:,} steps in {duration(summary.seconds)}, "
        f"{summary.told_state}. {time.strftime('%Y-%m-%d %H:%M', time.localtime(summary.when))}"
    )


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def number_cards(summary: RunSummary) -> list[tuple[str, str]]:
    cards = []
    if summary.valid_loss is not None:
        cards.append(
            (f"{summary.valid_loss:.3f}", f"validation loss; the weights of step {summary.best_step:,} are kept")
        )
        if summary.task in OF_LANGUAGE:
            cards.append((f"{perplexity(summary.valid_loss):,.2f}", "validation perplexity"))
    if summary.valid_accuracy is not None:
        what = "of the next tokens guessed right" if summary.task in OF_LANGUAGE else "validation accuracy"
        cards.append((f"{summary.valid_accuracy:.1%}", what))
    if summary.valid_bleu is not None:
        cards.append((f"{summary.valid_bleu:.1f}", "validation BLEU, greedy"))
    if "bleu" in summary.scores:
        cards.append((f"{summary.scores['bleu']:.1f}", "BLEU on the test data"))
    if summary.parameters:
        cards.append((f"{summary.parameters / 1e6:.2f} M", "parameters"))
    if summary.tokens_per_second:
        unit = "examples" if "classification" in summary.task else "tokens"
        cards.append((f"{summary.tokens_per_second:,.0f}", f"{unit} a second"))
    return cards


def charts(history: History, config: Config) -> list[tuple[str, str]]:
    """(svg, caption); a curve with nothing in it is left out."""
    loss = "Loss: cross-entropy a token, in nats, without label smoothing"
    lines = [
        ChartLine("training", history.curve("nll")),
        ChartLine("validation", history.curve("valid_loss"), "b", dots=True),
    ]
    drawn = [(line_chart(lines, loss, logarithmic=True), loss)] if any(line.points for line in lines) else []
    clip = config.train.clip_norm or None
    of_fields = (
        ("valid_accuracy", "Validation accuracy", "b", True, None),
        ("valid_bleu", "Validation BLEU, greedy", "b", True, None),
        ("lr", f"Learning rate: {config.train.schedule}", "c", False, None),
        ("gradient_norm", "Gradient norm" + (", and where it is clipped (dashed)" if clip else ""), "a", False, clip),
    )
    for name, caption, style, dots, level in of_fields:
        if points := history.curve(name):
            drawn.append((line_chart([ChartLine(name, points, style, dots)], caption, level=level), caption))
    if speeds := history.speeds():
        caption = "Answers (tokens, labels, tags) a second, validations included"
        drawn.append((line_chart([ChartLine("speed", speeds, "c")], caption, level=0), caption))
    return drawn


def add_samples(report: HtmlReport, history: History) -> None:
    """Each held-out text, and what the model made of it at each validation."""
    rows = [row for row in history.validations if row.get("samples")]
    if not rows:
        return
    report.heading("What it wrote, and when")
    shown = evenly(rows, SHOWN)
    for number, last in enumerate(shown[-1]["samples"]):
        with_it = [row for row in shown if number < len(row["samples"])]
        said = [(row["step"], row["samples"][number]["written"]) for row in with_it]
        report.development(last["given"], said, last["right"])


def evenly(rows: Sequence[Any], count: int) -> list[Any]:
    """The first, the last, and some between."""
    if len(rows) <= count:
        return list(rows)
    return [rows[round(i * (len(rows) - 1) / (count - 1))] for i in range(count)]


def add_explorer(report: HtmlReport, run: RunFolder, history: History) -> None:
    """Some texts laid open: where the model looked, what it considered, how it learned them."""
    try:
        from cutaway.explore.explorer import Explorer
        from cutaway.explore.export import record_for_report
    except ImportError:  # a run of the NumPy twin, where there is no torch
        return
    if not run.weights.is_file():
        return
    report.heading("Look inside")
    texts = [s["given"] for row in history.validations[-1:] for s in row.get("samples", []) if s["right"]]
    short = [text for text in texts if len(text) <= LONGEST]
    try:
        report.explorer(record_for_report(Explorer([run.path], "cpu"), short[:LAID_OPEN]))
    except (CutawayError, OSError) as error:  # of data that is gone, a report without pictures is still a report
        report.text(f"Nothing could be recorded: {error}")


def add_scores(report: HtmlReport, summary: RunSummary) -> None:
    if summary.scores:
        report.heading("Scores")
        single = {name: value for name, value in summary.scores.items() if not isinstance(value, dict)}
        report.table(("", ""), [(name.replace("_", " "), shown(value)) for name, value in single.items()])
        add_classes(report, summary.scores)


def add_classes(report: HtmlReport, scores: dict[str, Any]) -> None:
    """What each class was taken for, and its scores; of a great many classes, the worst."""
    confusion = Confusion.read(scores)
    if confusion is None:
        return
    if len(confusion.labels) <= MOST_CLASSES:
        names = [label[:LONGEST_LABEL] for label in confusion.labels]
        what = "Rows: the class of an example. Columns: the class that it was given. The fuller, the more of its row."
        report.drawing(attention_chart(confusion.shares, names, names, "What is taken for what"), what)
    worst = sorted(confusion.scores().items(), key=lambda row: (row[1].f1, row[0]))[:MOST_CLASSES]
    rows = [(label, *map(percent, score[:3]), f"{score.support:,}") for label, score in worst]
    report.table(("class, worst first", "precision", "recall", "F1", "examples"), rows)


def percent(share: float) -> str:
    return f"{share:.1%}"


def shown(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def add_settings(report: HtmlReport, run: RunFolder, config: Config) -> None:
    report.heading("Settings")
    report.text("What differs from the defaults, which for the model are the paper's base model:")
    differing = [(name, written(value), written(default)) for name, value, default in not_defaults(config)]
    report.table(("setting", "here", "default"), differing)
    report.details("The whole recipe, as it was used", run.config.read_text(encoding="utf-8"))


def not_defaults(config: Config) -> list[tuple[str, Any, Any]]:
    """(setting, value, default)"""
    here, defaults = dataclasses.asdict(config), dataclasses.asdict(Config())
    return [
        (f"{table}.{name}", value, defaults[table][name])
        for table, settings in here.items()
        for name, value in settings.items()
        if value != defaults[table][name]
    ]


def written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
