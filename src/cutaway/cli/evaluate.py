"""cutaway evaluate RUN"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.console import err, out, print_json, say
from cutaway.cli.options import Device, Json, Run, Strategy
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
    run: Run,
    split: Annotated[str, typer.Option(help="valid or test; tinyworld also has unseen.")] = "test",
    data: Annotated[
        list[Path] | None,
        typer.Option(help="Files instead of a split. Translation: --data SOURCE --data TARGET.", metavar="FILE"),
    ] = None,
    strategy: Strategy = None,
    limit: Annotated[int | None, typer.Option(help="Only the first N examples.", metavar="N")] = None,
    baseline: Annotated[bool, typer.Option(help="Also score a simple baseline. Default: on.")] = True,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="BLEU: lower-case the texts first.")] = False,
    tokenize: Annotated[
        str, typer.Option(help="BLEU tokenizer: 13a, intl, char, none; moses-fr as in older papers.", metavar="NAME")
    ] = "13a",
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Score a run: BLEU and chrF, perplexity, accuracy or span F1.

    Examples:  cutaway evaluate runs/demo
               cutaway evaluate runs/demo --data test.en --data test.fr --json
               cutaway evaluate runs/demo --lowercase --tokenize moses-fr
               cutaway evaluate runs/python-tagger --split valid

    For classifiers and taggers, also prints the scores of each class and the confusion matrix.
    """
    from cutaway.inference.pipelines import load_pipeline

    pipeline = load_pipeline(run, device)
    if limit is not None and limit < 1:
        raise ConfigError(f"--limit {limit} leaves nothing to score. Give at least 1.")
    examples = load_examples(pipeline, split, data)[:limit]
    decode = with_given(pipeline.config.decode, strategy=strategy)
    is_translator = hasattr(pipeline, "translate")
    if strategy and not is_translator:
        raise ConfigError(f"--strategy {strategy} has no effect: {run} is not a translation model. Leave it out.")
    is_standard_bleu = not lowercase and tokenize == "13a"
    if not (is_translator or is_standard_bleu):
        option = "--lowercase" if lowercase else "--tokenize"
        raise ConfigError(f"{option} has no effect: {run} is not a translation model. Leave it out.")
    bleu_options = {"lowercase": lowercase, "tokenize": tokenize} if is_translator else {}
    numbers, simple = compute_scores(pipeline, examples, decode, baseline, **bleu_options)
    if not data and limit is None and is_standard_bleu:
        save_scores(RunFolder(run), split, len(examples), numbers)
    source = " ".join(map(str, data)) if data else split
    if json:
        note = {"note": simple.note} if simple and simple.note else {}
        baseline_scores = {"baseline": {"name": simple.name, **simple.figures, **note}} if simple else {}
        print_json({"run": str(run), "data": source, "examples": len(examples), **numbers, **baseline_scores})
    else:
        out.print(f"{len(examples):,} examples: {source}{describe_long(numbers, pipeline.config.model.task)}")
        print_scores(numbers, simple)
        if "classes" in numbers:
            from cutaway.cli.class_tables import print_classes, print_confusion

            print_classes(numbers.get("spans", numbers["classes"]), "span" if "spans" in numbers else "class")
            print_confusion(**numbers["confusion"])


def check_evaluation(config: Config, prepared: PreparedData) -> None:
    """Before training with --evaluate: raise an error if the trained model could not be scored."""
    from cutaway.data.scorable import check_scorable
    from cutaway.metrics.scores import require_sacrebleu

    if config.model.task == "translation":
        require_sacrebleu("--evaluate")
    try:
        notes = check_scorable(config, prepared)
    except CutawayError as error:
        raise DataError(f"--evaluate would fail after the training: {error} Or leave --evaluate out.") from None
    for note in notes:
        say(f"Note: {note}")


def save_scores(run: RunFolder, split: str, examples: int, numbers: dict[str, Any]) -> None:
    """Update scores.json for `cutaway runs` and the report. Scores on the test data have no prefix."""
    best, prefix = run.pointer("best"), "" if split == "test" else f"{split}_"
    scores = {f"{prefix}{name}": value for name, value in {"examples": examples, **numbers}.items()}
    try:
        write_json(run.scores, {**read_scores(run), **scores, **({"checkpoint": best.name} if best else {})})
    except OSError as error:  # for example, a read-only folder
        say(f"Note: the scores were not saved: {error}")


def load_examples(pipeline: Pipeline, split: str, data: Sequence[Path] | None) -> Sequence[Any]:
    from cutaway.data.tasks import TASKS, has_split, load_split

    config, task = pipeline.config, pipeline.config.model.task
    if not data:
        if not has_split(config.data, split) and split in ("valid", "test"):
            others = [name for name in ("valid", "test") if has_split(config.data, name)]
            instead = f", or --split {others[0]}" if others else ""
            raise DataError(f"this run has no {split} data. Give {TASKS[task].files}: --data FILE{instead}.")
        return load_split(config.data, task, split)
    given = tuple(map(str, data))
    check_files(dataclasses.replace(config.data, test=given), "test", task)
    return TASKS[task].read(*data)


def compute_scores(
    pipeline: Pipeline, examples: Sequence[Any], decode: DecodeConfig, baseline: bool = True, **bleu_options: Any
) -> tuple[dict[str, Any], Baseline | None]:
    """The scores of a run, and of a simple baseline."""
    from cutaway.data.tasks import has_split
    from cutaway.inference import evaluation

    with err.status(f"scoring {len(examples):,} examples ..."):
        numbers = evaluation.evaluate_run(pipeline, examples, decode, **bleu_options)
        numbers |= alignment_scores(pipeline, examples)
        if not (baseline and has_split(pipeline.config.data, "train")):  # an imported run has no training data
            return numbers, None
        try:
            return numbers, evaluation.baseline(pipeline, examples)
        except (CutawayError, OSError) as error:  # missing training data or a missing library
            say(f"Note: no baseline: {error}")
            return numbers, None


def alignment_scores(pipeline: Any, examples: Sequence[Any]) -> dict[str, Any]:
    """The alignment error rate of the best cross-attention head, if the examples have gold alignments."""
    from cutaway.data.tasks import load_split
    from cutaway.explore.alignment import alignment_by_head, best_head, has_alignments

    if not has_alignments(examples):
        return {}
    best = best_head(pipeline, load_split(pipeline.config.data, "translation", "valid"))
    return {"alignment_error_rate": alignment_by_head(pipeline, examples)[best], "alignment_head": list(best)}


def describe_long(numbers: dict[str, Any], task: str) -> str:
    """How many examples are too long, and what was done with them."""
    if left_out := numbers.get("left_out"):
        return f" ({left_out:,} too long for the model, left out)"
    how = "read in chunks" if task == "tagging" else "only the beginning read"
    return f" ({numbers['cut']:,} too long for the model, {how})" if numbers.get("cut") else ""


NAMES = {"bleu": "BLEU", "chrf": "chrF", "span_f1": "span F1", "macro_f1": "F1, mean of classes"}
PERCENTAGES = ("exact_match", "accuracy", "macro_f1", "span_f1", "alignment_error_rate")


def print_scores(numbers: dict[str, Any], simple: Baseline | None) -> None:
    """A row for each score, beside the baseline's. Then the signatures that make BLEU and chrF comparable."""
    out.print(f"{'':22}{'this run':>10}" + (f"{simple.name:>20}" if simple else ""))
    for name, value in numbers.items():
        if isinstance(value, float):
            other = f"{format_score(name, simple.figures[name]):>20}" if simple and name in simple.figures else ""
            note = ""
            if name == "alignment_error_rate":
                note = "best head: layer {}, head {}".format(*numbers["alignment_head"])
            out.print(f"{display_name(name):22}{format_score(name, value):>10}{other}   {note}".rstrip())
    for name in numbers:
        if signature := numbers.get(f"{name}_signature"):
            out.print(f"{display_name(name)} signature: {signature}")
    if simple and simple.note:
        say(f"Note: {simple.note}")


def display_name(score: str) -> str:
    return NAMES.get(score, score.replace("_", " "))


def format_score(name: str, value: float) -> str:
    if name in PERCENTAGES:
        return f"{value:.1%}"
    return f"{value:.3f}" if name == "bits_per_character" else f"{value:.2f}"
