"""The page that the demo leaves behind: what it learned, and what is inside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.explore import figures
from cutaway.explore.alignment import crossings, gold_cells, words_of
from cutaway.explore.explorer import Explorer
from cutaway.explore.export import record_for_report
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


LAID_OPEN = 2  # sentences: one that is right, and one that is not


def write_demo_report(
    translator: Translator, results: DemoResults, run: RunFolder, schedule: Schedule, scores: dict[str, Any]
) -> Path:
    drawn = draw_figures(translator, results, run, schedule)
    example = telling_example(results)
    layer, head = results.best_head
    report = HtmlReport(
        "A Transformer that learned some French",
        f"It began with random numbers and read {translator.config.data.size:,} sentence pairs from a small world. "
        "Everything on this page was measured on sentences that it had never seen.",
    )
    report.numbers(number_cards(translator, scores))

    report.heading("What it translates")
    tested = translations_of(results.test, results.on_test)
    report.translations(tested[:12])
    report.heading("What it gets wrong")
    wrong = [row for row in tested if row[1] != row[2]]
    report.text(f"{len(wrong):,} of {len(tested):,} held-out sentences. The first of them:" if wrong else "Nothing.")
    report.translations(wrong[:8])
    report.heading("New combinations")
    report.text(
        "In these sentences, every word is known, but some pair of words that belong together (an adjective with its "
        "noun, a verb with its object) never occurred together in training. Whether a model gets them right shows "
        "whether it learned rules or learned phrases by heart."
    )
    report.translations(translations_of(results.unseen, results.on_unseen)[:8])

    report.heading("Where it looks while it writes")
    report.figure(
        drawn["alignment"],
        f"“{example.source}” Each row is a French word while it is being written, each column an English one; bright "
        f"means attended to. Orange frames mark the word that it really translates: the grammar that made the sentence "
        f"knows. Of all heads, this one (layer {layer}, head {head}) agrees best: its alignment error rate is "
        f"{results.alignment_error_rate:.1%}. Nobody told it about alignments.",
    )
    report.figure(drawn["cross"], "All heads of the cross-attention, for the same sentence. They divide the work.")
    report.figure(drawn["encoder"], "The encoder's self-attention: English words gathering what they need to know.")
    report.figure(
        drawn["decoder"],
        "The decoder's self-attention. The upper right is empty: a word cannot look at what is not yet written.",
    )

    report.heading("Look for yourself")
    report.text(
        "Every layer and head, what else it considered at each word, and the same sentence while it was learning:"
    )
    shown = [example.source, *(source for source, translation, reference in tested if translation != reference)]
    report.explorer(record_for_report(Explorer([run.path]), shown[:LAID_OPEN]))

    report.heading("How it learned")
    report.figure(drawn["loss"], "Cross-entropy a token over the training, on a logarithmic scale.")
    report.figure(drawn["schedule"], "The learning rate of the paper's equation 3.")
    if "positions" in drawn:
        report.figure(
            drawn["positions"],
            "The sinusoids that tell the model where a word stands: each position has its own pattern, and near ones "
            "are alike.",
        )

    report.heading("Go on")
    report.code(
        f'cutaway explore {run}\ncutaway translate {run} "{example.source}"\ncutaway evaluate {run} --split unseen\n'
        "cutaway train tinyworld-en-de"
    )
    report.details("The whole recipe, as it was used", run.config.read_text(encoding="utf-8"))
    return report.write(run.report)


def translations_of(pairs: Sequence[AlignedPair], evaluation: Evaluation) -> list[tuple[str, str, str]]:
    """(source, translation, reference)"""
    return [(pair.source, t, pair.target) for pair, t in zip(pairs, evaluation.translations, strict=True)]


def number_cards(translator: Translator, scores: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (f"{scores['bleu']:.1f}", f"BLEU on {scores['sentences']:,} held-out sentences"),
        (f"{scores['exact_match']:.1%}", "translated exactly right"),
        (f"{scores['unseen_exact_match']:.1%}", "exactly right where words are combined in a new way"),
        (f"{scores['alignment_error_rate']:.1%}", "alignment error rate of the best attention head"),
        (f"{count_parameters(translator.model) / 1e6:.2f} M", "parameters"),
    ]


def draw_figures(translator: Translator, results: DemoResults, run: RunFolder, schedule: Schedule) -> dict[str, Path]:
    example = telling_example(results)
    trace = trace_translation(translator, example.source, example.target)
    gold = gold_cells(words_of(translator, example), example.alignment)
    position: Any = translator.model.source_embedding.position
    layer, head = results.best_head
    drawn = {
        "alignment": figures.attention_heatmap(trace, "cross", layer, head, gold),
        "cross": figures.attention_grid(trace, "cross"),
        "encoder": figures.attention_grid(trace, "encoder"),
        "decoder": figures.attention_grid(trace, "decoder"),
        "loss": figures.loss_curve(run.read_metrics()),
        "schedule": figures.schedule_curve(schedule, translator.config.train.steps),
    }
    if translator.config.model.position == "sinusoidal":
        drawn["positions"] = figures.positional_encodings(position.table.detach().cpu().numpy())
    return {name: figures.save(figure, run.figures / f"{name}.png") for name, figure in drawn.items()}


def telling_example(results: DemoResults) -> AlignedPair:
    """A sentence of good length, rightly translated, in which the most words change places."""
    right = [p for p, t in zip(results.test, results.on_test.translations, strict=True) if t == p.target]
    short = [p for p in right if 6 <= len(p.source_words) <= 11] or right or list(results.test)
    return max(short, key=lambda pair: crossings(pair.alignment))
