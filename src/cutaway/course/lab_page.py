"""The page of an experiment: question, theory, verdict; then curves, attention, numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cutaway.course.experiment import Arm
from cutaway.course.lab import Results, Trial, losses_by_size
from cutaway.course.verdict import MEASURES, Comparison, Measure
from cutaway.explore import lab_figures
from cutaway.explore.figures import save
from cutaway.explore.report import Report
from cutaway.explore.trace import Trace

SHOWN_SIDE_BY_SIDE = 4  # arms whose attention is drawn


def write_page(results: Results, out: Path) -> Path:
    experiment = results.experiment
    report = Report(experiment.title, experiment.question)
    report.heading("What theory says")
    report.text(
        experiment.theory,
        "Theory and seeds stand in the experiment's file, and are fixed before anything is trained."
        + (f" Changed for this run: {', '.join(experiment.overrides)}." if experiment.overrides else ""),
    )
    report.heading("Verdict")
    report.text(*results.verdict)
    if len(experiment.arms) > 2 and not results.scaling:
        report.table(VERDICT_HEAD, verdict_rows(results))
    add_curves(report, results, out / "figures")
    add_attention(report, results, out / "figures")
    add_texts(report, results)
    add_numbers(report, results)
    report.details("The experiment, as it was run", experiment.text)
    return report.write(out / "index.html")


VERDICT_HEAD = ("arm", "measure", "mean", "difference", "95 % interval", "what it shows")


def verdict_rows(results: Results) -> list[list[str]]:
    return [*first_rows(results), *(verdict_row(comparison) for comparison in results.comparisons)]


def first_rows(results: Results) -> list[list[str]]:
    """The arm that the others are held against."""
    first = results.experiment.arms[0]
    values = {name: numbers(results.of(first), name) for name in results.experiment.judge_by}
    return [
        [first.name, name, MEASURES[name].shown(sum(found) / len(found)), "", "", "beside which the others stand"]
        for name, found in values.items()
        if found
    ]


def verdict_row(comparison: Comparison) -> list[str]:
    measure, difference = comparison.measure, comparison.difference
    if difference is None:
        return [comparison.arm, measure.name, "—", "—", "—", comparison.finding]
    mean = sum(theirs for _, theirs in comparison.pairs.values()) / len(comparison.pairs)
    return [
        comparison.arm,
        measure.name,
        measure.shown(mean),
        measure.shown_difference(difference.mean, difference.high) + measure.unit,
        measure.shown_range(difference.low, difference.high) + measure.unit,
        comparison.finding,
    ]


def add_curves(report: Report, results: Results, figures: Path) -> None:
    experiment = results.experiment
    if results.scaling:
        report.heading("The law")
        report.figure(
            save(scaling_figure(results), figures / "scaling.png"), "Each dot is a model; the line is the law."
        )
    report.heading("How they learned")
    curves = {
        arm.name: [
            [(point["step"], point["cross-entropy"]) for point in (trial.result or {}).get("curve", [])]
            for trial in results.of(arm)
        ]
        for arm in experiment.arms
    }
    drawn = lab_figures.learning_curves(curves, "validation cross-entropy, nats a token")
    report.figure(save(drawn, figures / "curves.png"), "Cross-entropy on validation data while they learned.")
    if results.scaling:
        return
    for name in experiment.judge_by:
        drawn = finals_figure(results, MEASURES[name])
        caption = (
            f"{name}: {MEASURES[name].what}, at the last step. On the right, where the true mean difference lies, "
            "seed by seed; an interval that crosses the line shows no difference."
        )
        report.figure(save(drawn, figures / f"{name.replace(' ', '-')}.png"), caption)


def finals_figure(results: Results, measure: Measure) -> object:
    values = {arm.name: numbers(results.of(arm), measure.name) for arm in results.experiment.arms}
    differences = {
        one.arm: (one.difference.low, one.difference.high)
        for one in results.comparisons
        if one.measure == measure and one.difference
    }
    return lab_figures.final_values(values, differences, measure.name, in_per_cent=measure.is_share)


def numbers(trials: Sequence[Trial], measure: str) -> list[float]:
    return [value for value in (trial.value(measure) for trial in trials) if isinstance(value, float)]


def scaling_figure(results: Results) -> object:
    assert results.scaling is not None
    law = results.scaling.law
    said = f"{law.floor:.3g} + {law.factor:.3g} · N^-{law.exponent:.3f}"
    return lab_figures.scaling_law(losses_by_size(results.trials), law, law.floor, said)


def add_attention(report: Report, results: Results, figures: Path) -> None:
    experiment = results.experiment
    traces = {trial.arm.name: trace for trial in results.trials if (trace := trace_of(trial))}
    if experiment.look == "none" or not traces:
        return
    report.heading("Where they look")
    chosen = dict(list(traces.items())[:SHOWN_SIDE_BY_SIDE])
    drawn = lab_figures.attention_side_by_side(chosen, experiment.look)
    left_out = "" if len(chosen) == len(traces) else f" The first {len(chosen)} arms."
    report.figure(
        save(drawn, figures / "attention.png"),
        f"The last layer on one held-out text, with the right target given, seed {experiment.seeds[0]}.{left_out} "
        "Rows look at columns; bright means attended to.",
    )


def trace_of(trial: Trial) -> Trace | None:
    file = trial.folder / "trace.json"
    return Trace.from_json(file.read_text(encoding="utf-8")) if file.is_file() else None


def add_texts(report: Report, results: Results) -> None:
    """What the arms write by themselves, from the same held-out sources."""
    written = {trial.arm.name: (trial.result or {}).get("written", []) for trial in results.of_first_seed}
    written = {arm: texts for arm, texts in written.items() if texts}
    if not written:
        return
    report.heading("What they write")
    shown = list(written)[:SHOWN_SIDE_BY_SIDE]
    rows = zip(*(written[arm] for arm in shown), strict=True)
    report.table(
        ("source", "right", *shown),
        [[row[0]["source"], row[0]["reference"], *(one["written"] for one in row)] for row in rows],
    )


def add_numbers(report: Report, results: Results) -> None:
    report.heading("All numbers")
    names = [name for name in MEASURES if any(numbers(results.of(arm), name) for arm in results.experiment.arms)]
    rows = [row for arm in results.experiment.arms for row in number_rows(results, arm, names)]
    report.table(("arm", "seed", *names, "parameters", "seconds"), rows)
    report.text("; ".join(f"{name}: {MEASURES[name].what}" for name in names) + ".")
    report.text(
        f"{len(results.trials)} trainings took {results.seconds / 60:.1f} minutes of work together, each on one core. "
        "Numbers are those of the weights at the last step. The arms had the same data in the same order and, where "
        "shapes agree, the same weights to begin with."
    )


def number_rows(results: Results, arm: Arm, names: Sequence[str]) -> list[list[str]]:
    return [
        [
            arm.name,
            str(trial.seed),
            *(MEASURES[name].shown(v) if isinstance(v := trial.value(name), float) else v for name in names),
            f"{(trial.result or {}).get('parameters', 0):,}",
            f"{(trial.result or {}).get('seconds', 0):.0f}",
        ]
        for trial in results.of(arm)
    ]
