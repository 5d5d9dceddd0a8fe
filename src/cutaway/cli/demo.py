"""cutaway demo: train a translator, translate, draw, report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from cutaway.cli.console import clock, command, err, out, say
from cutaway.cli.options import Set
from cutaway.cli.recipes import find_recipe
from cutaway.cli.summary import summarize_training
from cutaway.cli.train import make_training, run_training
from cutaway.config import Config
from cutaway.errors import ConfigError, CutawayError, DataError, MissingExtra
from cutaway.inference.training.launch import choose_process_count, worker_processes
from cutaway.runs import RunFolder
from cutaway.runs.files import write_json
from cutaway.runs.recipe import read_recipe

if TYPE_CHECKING:
    from cutaway.data.builtin.tinyworld import AlignedPair
    from cutaway.data.prepare import PreparedData
    from cutaway.explore.alignment import Head
    from cutaway.inference.evaluation import Evaluation
    from cutaway.inference.pipelines import Translator
    from cutaway.train.schedules import Schedule

SHOWN = 8  # translations printed


@dataclass(frozen=True)
class DemoResults:
    test: Sequence[AlignedPair]
    unseen: Sequence[AlignedPair]
    on_test: Evaluation
    on_unseen: Evaluation
    best_head: Head
    alignment_error_rate: float


def demo(
    run: Annotated[
        Path, typer.Option(help="The run folder. An earlier demo in it is replaced.", metavar="FOLDER")
    ] = Path("runs/demo"),
    set: Set = None,
) -> None:
    """Train a small translator in two minutes and look inside it.

    Example:  cutaway demo

    The translator learns French from 16,000 generated English sentences. The report shows its translations and its
    attention.
    """
    started = time.monotonic()
    config = read_recipe(find_recipe("demo"), set or ())
    folder = RunFolder(run)
    say("Cutaway: training a Transformer to translate English into French on this machine.", "bold")

    resume_command = command(
        "train", "demo", "--resume", "--run", run, *(word for setting in set or () for word in ("--set", setting))
    )
    with worker_processes(choose_process_count(config), config, folder):
        training, progress = make_training(config, folder, check=partial(check_demo, config))
        run_training(training, progress, resume_command)
    try:
        results, scores, report = evaluate_demo(folder, training.trainer.schedule, started)
    except BaseException:
        say("The run is trained and saved, but its evaluation failed.")
        summarize_training(folder)
        raise
    print_results(results, scores)
    say(f"\nTook {clock(scores['seconds'])}. Open the report: {report}", "bold")
    say("\nThree things to try next:")
    say("  " + command("explore", run) + "         look inside it in the browser")
    say("  " + command("translate", run, "The small cat sleeps under the table."))
    say("  " + command("train", "tinyworld-en-de") + "         the same sentences in German")


def check_demo(config: Config, prepared: PreparedData) -> None:
    """Before the training: raise an error if the demo could not be scored or drawn after it."""
    from cutaway.data.scorable import check_scorable
    from cutaway.data.tasks import load_split
    from cutaway.explore.alignment import has_alignments
    from cutaway.metrics.scores import require_sacrebleu

    require_sacrebleu("the demo")
    if not find_spec("matplotlib"):
        raise MissingExtra("matplotlib", "show", what="the demo")
    if config.model.task != "translation" or not has_alignments(load_split(config.data, "translation", "test")):
        raise ConfigError(
            "the demo needs a translator for tinyworld, which has word alignments; these settings are for something "
            f"else. Train with your own recipe instead:  {command('train', 'RECIPE', '--evaluate')}"
        )
    try:
        for split in ("test", "unseen"):
            check_scorable(config, prepared, split)
    except CutawayError as error:
        raise DataError(f"the demo could not score this model after the training: {error}") from None


def evaluate_demo(folder: RunFolder, schedule: Schedule, started: float) -> tuple[DemoResults, dict[str, Any], Path]:
    """Translate, score and draw. Returns the results, their scores and the report."""
    from cutaway.cli.demo_report import write_demo_report
    from cutaway.inference.pipelines import Translator

    translator = Translator.load(folder.path)
    with err.status("translating held-out sentences and drawing the attention ..."):
        results = translate_splits(translator)
        scores = compute_scores(results)
        report = write_demo_report(translator, results, folder, schedule, scores)
        scores["seconds"] = round(time.monotonic() - started, 1)
        best = folder.pointer("best")
        write_json(folder.scores, scores | ({"checkpoint": best.name} if best else {}))
    return results, scores, report


def translate_splits(translator: Translator) -> DemoResults:
    from cutaway.data.scorable import fit_to_model
    from cutaway.data.tasks import load_split
    from cutaway.explore.alignment import alignment_by_head, best_head
    from cutaway.inference.evaluation import evaluate_pairs

    data, decode = translator.config.data, translator.config.decode
    splits = (load_split(data, "translation", split) for split in ("test", "unseen", "valid"))
    test, unseen, valid = (fit_to_model(translator.config, translator.tokenizer, pairs)[0] for pairs in splits)
    best = best_head(translator, valid)
    return DemoResults(
        test=test,
        unseen=unseen,
        on_test=evaluate_pairs(translator, test, decode),
        on_unseen=evaluate_pairs(translator, unseen, decode),
        best_head=best,
        alignment_error_rate=alignment_by_head(translator, test)[best],
    )


def compute_scores(results: DemoResults) -> dict[str, Any]:
    return {
        "bleu": round(results.on_test.bleu, 2),
        "chrf": round(results.on_test.chrf, 2),
        "exact_match": round(results.on_test.exact_match, 4),
        "perplexity": round(results.on_test.perplexity, 4),
        "alignment_error_rate": round(results.alignment_error_rate, 4),
        "alignment_head": list(results.best_head),
        "unseen_bleu": round(results.on_unseen.bleu, 2),
        "unseen_exact_match": round(results.on_unseen.exact_match, 4),
        "sentences": results.on_test.sentences,
        "bleu_signature": results.on_test.bleu_signature,
    }


def print_results(results: DemoResults, scores: dict[str, Any]) -> None:
    """Translations beside their references, then the scores."""
    table = Table(title="Held-out sentences", title_justify="left", box=None, pad_edge=False, expand=False)
    for heading in ("", "English", "translation", "reference, where it differs"):
        table.add_column(heading, overflow="fold")
    for pair, translation in zip(results.test[:SHOWN], results.on_test.translations, strict=False):
        is_correct = translation == pair.target
        reference = "" if is_correct else pair.target
        table.add_row("✓" if is_correct else "✗", *map(escape, (pair.source, translation, reference)))
    out.print()
    out.print(table)
    layer, head = results.best_head
    out.print()
    out.print(f"BLEU                  {scores['bleu']:6.2f}    on {scores['sentences']:,} held-out sentences")
    out.print(f"exact match           {scores['exact_match']:6.1%}")
    out.print(
        f"exact match, unseen   {scores['unseen_exact_match']:6.1%}    word combinations that were not in training"
    )
    out.print(
        f"alignment error rate  {scores['alignment_error_rate']:6.1%}    "
        f"best cross-attention head: layer {layer}, head {head}"
    )
