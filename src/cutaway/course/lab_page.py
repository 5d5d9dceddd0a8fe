"""The page of an experiment: question, theory, verdict; then curves, attention, numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cutaway.course.experiment import Variant
from cutaway.course.lab import Results, Trial, losses_by_size
from cutaway.course.verdict import METRICS, Comparison, Metric
from cutaway.explore import lab_figures
from cutaway.explore.figures import save
from cutaway.explore.report import HtmlReport
from cutaway.explore.trace import Trace

MAX_ATTENTION_FIGURES = 4  # arms whose attention is drawn


def write_page(results: Results, out: Path) -> Path:
    experiment = results.experiment
    report = HtmlReport(experiment.title, experiment.question)
    report.heading("What theory says")
    report.text(
        experiment.theory,
        "Theory and seeds stand in the experiment's file, and are fixed before anything is trained."
        + (f" Changed for this run: {', '.join(experiment.overrides)}." if experiment.overrides else ""),
    )
    report.heading("Verdict")
    report.text(*results.verdict)
    if len(experiment.variants) > 2 and not results.scaling:
        report.table(VERDICT_HEAD, verdict_rows(results))
    add_curves(report, results, out / "figures")
    add_attention(report, results, out / "figures")
    add_texts(report, results)
    add_numbers(report, results)
    report.details("The experiment, as it was run", experiment.text)
    return report.write(out / "index.html")


VERDICT_HEAD = ("arm", "measure", "mean", "difference", "95 % interval", "what it shows")


def verdict_rows(results: Results) -> list[list[str]]:
    return [*baseline_rows(results), *(verdict_row(comparison) for comparison in results.comparisons)]


def baseline_rows(results: Results) -> list[list[str]]:
    """The arm that the others are held against."""
    first = results.experiment.variants[0]
    values = {name: numbers(results.trials_of(first), name) for name in results.experiment.judge_by}
    return [
        [first.name, name, METRICS[name].format(sum(found) / len(found)), "", "", "beside which the others stand"]
        for name, found in values.items()
        if found
    ]


def verdict_row(comparison: Comparison) -> list[str]:
    metric, difference = comparison.metric, comparison.difference
    if difference is None:
        return [comparison.variant, metric.name, "—", "—", "—", comparison.finding]
    mean = sum(theirs for _, theirs in comparison.pairs.values()) / len(comparison.pairs)
    return [
        comparison.variant,
        metric.name,
        metric.format(mean),
        metric.format_difference(difference.mean, difference.high) + metric.unit,
        metric.format_range(difference.low, difference.high) + metric.unit,
        comparison.finding,
    ]


def add_curves(report: HtmlReport, results: Results, figures: Path) -> None:
    experiment = results.experiment
    if results.scaling:
        report.heading("The law")
        report.figure(
            save(scaling_figure(results), figures / "scaling.png"), "Each dot is a model; the line is the law."
        )
    report.heading("How they learned")
    curves = {
        variant.name: [
            [(point["step"], point["cross-entropy"]) for point in (trial.result or {}).get("curve", [])]
            for trial in results.trials_of(variant)
        ]
        for variant in experiment.variants
    }
    drawn = lab_figures.learning_curves(curves, "validation cross-entropy, nats a token")
    report.figure(save(drawn, figures / "curves.png"), "Cross-entropy on validation data while they learned.")
    if results.scaling:
        return
    for name in experiment.judge_by:
        drawn = finals_figure(results, METRICS[name])
        caption = (
            f"{name}: {METRICS[name].what}, at the last step. On the right, where the true mean difference lies, "
            "seed by seed; an interval that crosses the line shows no difference."
        )
        report.figure(save(drawn, figures / f"{name.replace(' ', '-')}.png"), caption)


def finals_figure(results: Results, metric: Metric) -> object:
    values = {variant.name: numbers(results.trials_of(variant), metric.name) for variant in results.experiment.variants}
    differences = {
        one.variant: (one.difference.low, one.difference.high)
        for one in results.comparisons
        if one.metric == metric and one.difference
    }
    return lab_figures.final_values(values, differences, metric.name, in_per_cent=metric.is_fraction)


def numbers(trials: Sequence[Trial], metric: str) -> list[float]:
    return [value for value in (trial.value(metric) for trial in trials) if isinstance(value, float)]


def scaling_figure(results: Results) -> object:
    assert results.scaling is not None
    law = results.scaling.law
    said = f"{law.floor:.3g} + {law.factor:.3g} · N^-{law.exponent:.3f}"
    return lab_figures.scaling_law(losses_by_size(results.trials), law, law.floor, said)


def add_attention(report: HtmlReport, results: Results, figures: Path) -> None:
    experiment = results.experiment
    traces = {trial.variant.name: trace for trial in results.trials if (trace := read_trace(trial))}
    if experiment.look == "none" or not traces:
        return
    report.heading("Where they look")
    chosen = dict(list(traces.items())[:MAX_ATTENTION_FIGURES])
    drawn = lab_figures.attention_side_by_side(chosen, experiment.look)
    left_out = "" if len(chosen) == len(traces) else f" The first {len(chosen)} arms."
    report.figure(
        save(drawn, figures / "attention.png"),
        f"The last layer on one held-out text, with the right target given, seed {experiment.seeds[0]}.{left_out} "
        "Rows look at columns; bright means attended to.",
    )


def read_trace(trial: Trial) -> Trace | None:
    file = trial.folder / "trace.json"
    return Trace.from_json(file.read_text(encoding="utf-8")) if file.is_file() else None


def add_texts(report: HtmlReport, results: Results) -> None:
    """What the arms write by themselves, from the same held-out sources."""
    written = {trial.variant.name: (trial.result or {}).get("written", []) for trial in results.first_seed_trials}
    written = {variant: texts for variant, texts in written.items() if texts}
    if not written:
        return
    report.heading("What they write")
    shown = list(written)[:MAX_ATTENTION_FIGURES]
    rows = zip(*(written[variant] for variant in shown), strict=True)
    report.table(
        ("source", "right", *shown),
        [[row[0]["source"], row[0]["reference"], *(one["written"] for one in row)] for row in rows],
    )


def add_numbers(report: HtmlReport, results: Results) -> None:
    report.heading("All numbers")
    names = [
        name
        for name in METRICS
        if any(numbers(results.trials_of(variant), name) for variant in results.experiment.variants)
    ]
    rows = [row for variant in results.experiment.variants for row in number_rows(results, variant, names)]
    report.table(("arm", "seed", *names, "parameters", "seconds"), rows)
    report.text("; ".join(f"{name}: {METRICS[name].what}" for name in names) + ".")
    report.text(
        f"{len(results.trials)} trainings took {results.seconds / 60:.1f} minutes of work together, each on one core. "
        "Numbers are those of the weights at the last step. The arms had the same data in the same order and, where "
        "shapes agree, the same weights to begin with."
    )


def number_rows(results: Results, variant: Variant, names: Sequence[str]) -> list[list[str]]:
    return [
        [
            variant.name,
            str(trial.seed),
            *(METRICS[name].format(v) if isinstance(v := trial.value(name), float) else v for name in names),
            f"{(trial.result or {}).get('parameters', 0):,}",
            f"{(trial.result or {}).get('seconds', 0):.0f}",
        ]
        for trial in results.trials_of(variant)
    ]
