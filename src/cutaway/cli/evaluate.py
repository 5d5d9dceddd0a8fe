"""cutaway evaluate RUN"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.console import err, out, print_json, say
from cutaway.cli.texts import Device, Strategy
from cutaway.config import Config, DecodeConfig, check_files, with_given
from cutaway.errors import ConfigError, CutawayError, DataError
from cutaway.runs import RunFolder
from cutaway.runs.files import write_json
from cutaway.runs.summary import read_scores

if TYPE_CHECKING:
    from cutaway.data.prepare import PreparedData
    from cutaway.inference.evaluation import Baseline
    from cutaway.inference.pipelines import Pipeline


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/demo.")],
    split: Annotated[str, typer.Option(help="valid or test; tinyworld has unseen too.")] = "test",
    data: Annotated[
        list[Path] | None,
        typer.Option(help="Files instead: one, or to translate two: --data SOURCE --data REFERENCE.", metavar="FILE"),
    ] = None,
    strategy: Strategy = None,
    limit: Annotated[int | None, typer.Option(help="Only the first so many examples.")] = None,
    baseline: Annotated[bool, typer.Option(help="Print what a simple method achieves, beside it.")] = True,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="BLEU of lower-cased text.")] = False,
    tokenize: Annotated[
        str, typer.Option(help="How BLEU cuts text into words: 13a, intl, char, none; or moses-de, as older papers.")
    ] = "13a",
    device: Device = "auto",
    json: Annotated[bool, typer.Option("--json", help="Numbers for programs.")] = False,
) -> None:
    """Score a run by what it was trained for: BLEU and chrF, perplexity, accuracy, span F1.

    Of classifiers and taggers also precision, recall and F1 of each class, and what is taken for what.

    Examples:  cutaway evaluate runs/demo

               cutaway evaluate runs/demo --data test.en --data test.fr --json

               cutaway evaluate runs/demo --lowercase --tokenize moses-fr

               cutaway evaluate runs/python-tagger --split valid
    """
    from cutaway.inference.pipelines import load_pipeline

    pipeline = load_pipeline(run, device)
    if limit is not None and limit < 1:
        raise ConfigError(f"--limit {limit} leaves nothing to score. Give at least 1.")
    examples = load_examples(pipeline, split, data)[:limit]
    decode = with_given(pipeline.config.decode, strategy=strategy)
    if strategy and not hasattr(pipeline, "translate"):
        raise ConfigError(f"--strategy {strategy} has no effect: {run} translates nothing. Leave it out.")
    of_bleu = {"lowercase": lowercase, "tokenize": tokenize} if hasattr(pipeline, "translate") else {}
    usual = not lowercase and tokenize == "13a"
    if not (of_bleu or usual):
        raise ConfigError(f"--lowercase and --tokenize have no effect: {run} translates nothing. Leave them out.")
    numbers, simple = scored(pipeline, examples, decode, baseline, **of_bleu)
    if not data and limit is None and usual:
        keep_scores(RunFolder(run), split, len(examples), numbers)
    where = " ".join(map(str, data)) if data else split
    if json:
        note = {"note": simple.note} if simple and simple.note else {}
        beside = {"baseline": {"name": simple.name, **simple.figures, **note}} if simple else {}
        print_json({"run": str(run), "data": where, "examples": len(examples), **numbers, **beside})
    else:
        out.print(f"{len(examples):,} examples: {where}{told_of_long(numbers, pipeline.config.model.task)}")
        print_table(numbers, simple)
        if "classes" in numbers:
            from cutaway.cli.class_tables import print_classes, print_confusion

            print_classes(numbers.get("spans", numbers["classes"]), "span" if "spans" in numbers else "class")
            print_confusion(**numbers["confusion"])


def check_evaluation(config: Config, prepared: PreparedData) -> None:
    """Before a training: refuse what could not be scored after it."""
    from cutaway.data.scorable import check_scorable
    from cutaway.metrics.scores import require_sacrebleu

    if config.model.task == "translation":
        require_sacrebleu("--evaluate")
    try:
        notes = check_scorable(config, prepared)
    except CutawayError as error:
        raise DataError(
            f"--evaluate could not score this model when it is trained: {error} Or leave --evaluate out."
        ) from None
    for note in notes:
        say(f"Note: {note}")


def keep_scores(run: RunFolder, split: str, examples: int, numbers: dict[str, Any]) -> None:
    """Into scores.json, for `cutaway runs` and the report; those of the test data have no prefix."""
    best, prefix = run.pointer("best"), "" if split == "test" else f"{split}_"
    kept = {f"{prefix}{name}": value for name, value in {"examples": examples, **numbers}.items()}
    try:
        write_json(run.scores, {**read_scores(run), **kept, **({"checkpoint": best.name} if best else {})})
    except OSError as error:  # a run that may be read only
        say(f"Note: the scores are not kept: {error}")


def load_examples(pipeline: Pipeline, split: str, data: Sequence[Path] | None) -> Sequence[Any]:
    from cutaway.data.tasks import TASKS, has_split, load_split

    config, task = pipeline.config, pipeline.config.model.task
    if not data:
        if not has_split(config.data, split) and split in ("valid", "test"):
            others = [name for name in ("valid", "test") if has_split(config.data, name)]
            instead = f", or --split {others[0]}" if others else ""
            raise DataError(
                f"this run names no {split} data to be scored on. Give {TASKS[task].files}: --data FILE{instead}."
            )
        return load_split(config.data, task, split)
    given = tuple(map(str, data))
    check_files(dataclasses.replace(config.data, test=given), "test", task)
    return TASKS[task].read(*data)


def scored(
    pipeline: Pipeline, examples: Sequence[Any], decode: DecodeConfig, baseline: bool = True, **of_bleu: Any
) -> tuple[dict[str, Any], Baseline | None]:
    """The figures of a run, and those of a simple method."""
    from cutaway.data.tasks import has_split
    from cutaway.inference import evaluation as measure

    with err.status(f"scoring {len(examples):,} examples ..."):
        numbers = measure.evaluate_run(pipeline, examples, decode, **of_bleu)
        numbers |= alignment(pipeline, examples)
        if not (baseline and has_split(pipeline.config.data, "train")):  # imported: nobody knows what it has read
            return numbers, None
        try:
            return numbers, measure.baseline(pipeline, examples)
        except (CutawayError, OSError) as error:  # training data that is gone, a library that is not installed
            say(f"Note: no baseline: {error}")
            return numbers, None


def alignment(pipeline: Any, examples: Sequence[Any]) -> dict[str, Any]:
    """Where the gold alignment is known: how far the best head of the cross-attention agrees with it."""
    from cutaway.data.tasks import load_split
    from cutaway.explore.alignment import alignment_by_head, best_head, has_alignments

    if not has_alignments(examples):
        return {}
    best = best_head(pipeline, load_split(pipeline.config.data, "translation", "valid"))
    return {"alignment_error_rate": alignment_by_head(pipeline, examples)[best], "alignment_head": list(best)}


def told_of_long(numbers: dict[str, Any], task: str) -> str:
    """How many examples are too long, and what became of them."""
    if left_out := numbers.get("left_out"):
        return f" ({left_out:,} too long for the model, left out)"
    how = "read in parts" if task == "tagging" else "only the beginning read"
    return f" ({numbers['cut']:,} too long for the model, {how})" if numbers.get("cut") else ""


NAMES = {"bleu": "BLEU", "chrf": "chrF", "span_f1": "span F1", "macro_f1": "F1, mean of classes"}
SHARES = ("exact_match", "accuracy", "macro_f1", "span_f1", "alignment_error_rate")  # 0 to 1, shown in per cent


def print_table(numbers: dict[str, Any], simple: Baseline | None) -> None:
    """Each figure, what a simple method has there, and what one must know to compare it."""
    out.print(f"{'':22}{'this run':>10}" + (f"{simple.name:>20}" if simple else ""))
    for name, value in numbers.items():
        if isinstance(value, float):
            beside = f"{shown(name, simple.figures[name]):>20}" if simple and name in simple.figures else ""
            note = numbers.get(f"{name}_signature", "")
            if name == "alignment_error_rate":
                note = "the best head: layer {}, head {}".format(*numbers["alignment_head"])
            out.print(f"{NAMES.get(name, name.replace('_', ' ')):22}{shown(name, value):>10}{beside}   {note}".rstrip())
    if simple and simple.note:
        say(f"Note: {simple.note}")


def shown(name: str, value: float) -> str:
    return f"{value:.1%}" if name in SHARES else f"{value:.3f}" if name == "bits_per_character" else f"{value:.2f}"
