"""The report of the demo: translations, attention, learning curves, and the explorer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.explore import figures
from cutaway.explore.alignment import crossings, gold_cells, words_of
from cutaway.explore.explorer import Explorer
from cutaway.explore.recording import record_for_report
from cutaway.explore.report import HtmlReport
from cutaway.explore.trace import trace_translation
from cutaway.inference.pipelines import Translator
from cutaway.models.build import count_parameters
from cutaway.runs import RunFolder
from cutaway.train.schedules import Schedule

if TYPE_CHECKING:
    from cutaway.cli.demo import DemoResults
    from cutaway.data.builtin.tinyworld import AlignedPair
    from cutaway.inference.evaluation import Evaluation


def write_demo_report(
    translator: Translator, results: DemoResults, run: RunFolder, schedule: Schedule, scores: dict[str, Any]
) -> Path:
    images = draw_figures(translator, results, run, schedule)
    example = choose_example(results)
    layer, head = results.best_head
    report = HtmlReport(
        "A Transformer that learned some French",
        f"It started with random weights and was trained on {translator.config.data.size:,} generated sentence pairs. "
        "All numbers on this page are measured on held-out sentences.",
    )
    report.numbers(number_cards(translator, scores))

    report.heading("Translations")
    tested = list_translations(results.test, results.on_test)
    report.translations(tested[:12])
    report.heading("Wrong translations")
    wrong = [row for row in tested if row[1] != row[2]]
    report.text(f"{len(wrong):,} of {len(tested):,} held-out sentences. The first:" if wrong else "None.")
    report.translations(wrong[:8])
    report.heading("New combinations")
    report.text(
        "Every word of these sentences was in the training data, but one pair of words (an adjective with its noun, or "
        "a verb with its object) never occurred together. A model that learned rules translates them; a model that "
        "memorized phrases does not."
    )
    report.translations(list_translations(results.unseen, results.on_unseen)[:8])

    report.heading("Cross-attention")
    report.figure(
        images["alignment"],
        f"“{example.source}” Each row is a French word as it is generated, each column an English word; dark means a "
        "high attention weight. Orange frames mark the gold alignment, which comes from the grammar that generated the "
        f"sentence. Of all heads, this one (layer {layer}, head {head}) agrees best with it: its alignment error rate "
        f"is {results.alignment_error_rate:.1%}. Alignments were not part of the training.",
    )
    report.figure(images["cross"], "All heads of the cross-attention, for the same sentence.")
    report.figure(images["encoder"], "The encoder's self-attention: each English word reads from the others.")
    report.figure(
        images["decoder"],
        "The decoder's self-attention. The upper right is empty: a word cannot attend to later words.",
    )

    report.heading("Explore it")
    report.text("Every layer and head, the candidates for each word, and the same sentence at earlier training steps:")
    report.explorer(record_for_report(Explorer([run.path]), [example.source, *(row[0] for row in wrong[:1])]))

    report.heading("Training")
    report.figure(images["loss"], "Cross-entropy per token, on a logarithmic scale.")
    report.figure(images["schedule"], "The learning rate of the paper's equation 3.")
    if "positions" in images:
        report.figure(
            images["positions"],
            "The sinusoids that encode positions: each position has its own pattern, and near positions are similar.",
        )

    report.heading("Next steps")
    report.code(
        f'cutaway explore {run}\ncutaway translate {run} "{example.source}"\ncutaway evaluate {run} --split unseen\n'
        "cutaway train tinyworld-en-de"
    )
    report.details("All settings of this run", run.config.read_text(encoding="utf-8"))
    return report.write(run.report)


def list_translations(pairs: Sequence[AlignedPair], evaluation: Evaluation) -> list[tuple[str, str, str]]:
    """(source, translation, reference)"""
    return [(pair.source, t, pair.target) for pair, t in zip(pairs, evaluation.translations, strict=True)]


def number_cards(translator: Translator, scores: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (f"{scores['bleu']:.1f}", f"BLEU on {scores['sentences']:,} held-out sentences"),
        (f"{scores['exact_match']:.1%}", "translated exactly right"),
        (f"{scores['unseen_exact_match']:.1%}", "exactly right for new combinations of words"),
        (f"{scores['alignment_error_rate']:.1%}", "alignment error rate of the best attention head"),
        (f"{count_parameters(translator.model) / 1e6:.2f} M", "parameters"),
    ]


def draw_figures(translator: Translator, results: DemoResults, run: RunFolder, schedule: Schedule) -> dict[str, Path]:
    example = choose_example(results)
    trace = trace_translation(translator, example.source, example.target)
    gold = gold_cells(words_of(translator, example), example.alignment)
    position: Any = translator.model.source_embedding.position
    layer, head = results.best_head
    drawings = {
        "alignment": figures.attention_heatmap(trace, "cross", layer, head, gold),
        "cross": figures.attention_grid(trace, "cross"),
        "encoder": figures.attention_grid(trace, "encoder"),
        "decoder": figures.attention_grid(trace, "decoder"),
        "loss": figures.loss_curve(run.read_metrics()),
        "schedule": figures.schedule_curve(schedule, translator.config.train.steps),
    }
    if translator.config.model.position == "sinusoidal":
        drawings["positions"] = figures.positional_encodings(position.table.detach().cpu().numpy())
    return {name: figures.save(figure, run.figures / f"{name}.png") for name, figure in drawings.items()}


def choose_example(results: DemoResults) -> AlignedPair:
    """A correctly translated sentence of medium length, with as many crossing alignments as possible."""
    correct = [p for p, t in zip(results.test, results.on_test.translations, strict=True) if t == p.target]
    candidates = [p for p in correct if 6 <= len(p.source_words) <= 11] or correct or list(results.test)
    return max(candidates, key=lambda pair: crossings(pair.alignment))
