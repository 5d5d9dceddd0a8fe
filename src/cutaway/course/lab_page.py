"""The HTML page of an experiment: question, theory, verdict, learning curves, attention, texts and numbers."""

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

MAX_COLUMNS = 4  # variants in the attention figure and in the table of texts


def write_page(results: Results, out: Path) -> Path:
    experiment = results.experiment
    report = HtmlReport(experiment.title, experiment.question)
    report.heading("What theory says")
    report.text(
        experiment.theory,
        "Theory and seeds are in the experiment's file, so they were fixed before the training."
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


VERDICT_HEAD = ("variant", "metric", "mean", "difference", "95 % interval", "finding")


def verdict_rows(results: Results) -> list[list[str]]:
    return [*baseline_rows(results), *(verdict_row(comparison) for comparison in results.comparisons)]


def baseline_rows(results: Results) -> list[list[str]]:
    first = results.experiment.variants[0]
    values = {name: numbers(results.trials_of(first), name) for name in results.experiment.judge_by}
    return [
        [first.name, name, METRICS[name].format(sum(found) / len(found)), "", "", "baseline"]
        for name, found in values.items()
        if found
    ]


def verdict_row(comparison: Comparison) -> list[str]:
    metric, difference = comparison.metric, comparison.difference
    if difference is None:
        return [comparison.variant, metric.name, "—", "—", "—", comparison.finding]
    mean = sum(value for _, value in comparison.pairs.values()) / len(comparison.pairs)
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
        report.heading("Scaling law")
        report.figure(
            save(scaling_figure(results), figures / "scaling.png"), "Each dot is a model; the line is the fitted law."
        )
    report.heading("Learning curves")
    curves = {
        variant.name: [
            [(point["step"], point["cross-entropy"]) for point in (trial.result or {}).get("curve", [])]
            for trial in results.trials_of(variant)
        ]
        for variant in experiment.variants
    }
    figure = lab_figures.learning_curves(curves, "validation cross-entropy, nats per token")
    report.figure(save(figure, figures / "curves.png"), "Cross-entropy on validation data during training.")
    if results.scaling:
        return
    for name in experiment.judge_by:
        figure = finals_figure(results, METRICS[name])
        caption = (
            f"{name}: {METRICS[name].what}, at the last step. Right: the 95 % interval of the difference from the "
            "baseline. An interval that crosses 0 shows no difference."
        )
        report.figure(save(figure, figures / f"{name.replace(' ', '-')}.png"), caption)


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
    formula = f"{law.floor:.3g} + {law.factor:.3g} · N^-{law.exponent:.3f}"
    return lab_figures.scaling_law(losses_by_size(results.trials), law, law.floor, formula)


def add_attention(report: HtmlReport, results: Results, figures: Path) -> None:
    experiment = results.experiment
    traces = {trial.variant.name: trace for trial in results.trials if (trace := read_trace(trial))}
    if experiment.attention == "none" or not traces:
        return
    report.heading("Attention")
    chosen = dict(list(traces.items())[:MAX_COLUMNS])
    figure = lab_figures.attention_side_by_side(chosen, experiment.attention)
    left_out = "" if len(chosen) == len(traces) else f" Only the first {len(chosen)} variants."
    report.figure(
        save(figure, figures / "attention.png"),
        f"Attention weights of the last layer for one held-out text with its reference, seed {experiment.seeds[0]}."
        f"{left_out} Rows are queries, columns are keys; dark is a high weight.",
    )


def read_trace(trial: Trial) -> Trace | None:
    file = trial.folder / "trace.json"
    return Trace.from_json(file.read_text(encoding="utf-8")) if file.is_file() else None


def add_texts(report: HtmlReport, results: Results) -> None:
    """Add a table of texts that the variants decoded from the same held-out sources."""
    written = {trial.variant.name: (trial.result or {}).get("written", []) for trial in results.first_seed_trials}
    written = {variant: texts for variant, texts in written.items() if texts}
    if not written:
        return
    report.heading("Decoded texts")
    columns = list(written)[:MAX_COLUMNS]
    rows = zip(*(written[variant] for variant in columns), strict=True)
    report.table(
        ("source", "reference", *columns),
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
    report.table(("variant", "seed", *names, "parameters", "seconds"), rows)
    report.text("; ".join(f"{name}: {METRICS[name].what}" for name in names) + ".")
    report.text(
        f"{len(results.trials)} trainings took {results.seconds / 60:.1f} minutes in total, each on one core. "
        "All values are for the weights of the last step. All variants had the same data in the same order and, where "
        "shapes agree, the same initial weights."
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
