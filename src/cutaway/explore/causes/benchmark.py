"""Which explanations are true? Attribution methods, measured on tinyworld, whose grammar knows every cause.

"La plage" has "la" because "beach" is feminine in French, not because of "the". So a true explanation of "la" against
"le" names "beach". For each word of a correct translation with a known cause (data/builtin/tinyworld/causes.py), the
margin is logit(word) - logit(the form it would have otherwise), and every method ranks the words of the source:

    top         how often its strongest word is a cause
    precision   average precision: the area under the precision-recall curve of its ranking
    deletion    mean share of the margin that is left while the words are hidden, strongest first: low if faithful
    insertion   the same while they are shown, strongest first: high if faithful

Chance and the aligned word are measured beside them. Heads are ranked by their effect and by their direct contribution.
In that order, the first eight are switched off (deletion), or all are switched on again after all were off (insertion).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from cutaway.data.builtin.tinyworld import AlignedPair
from cutaway.data.builtin.tinyworld.causes import Cause, causes
from cutaway.explore.ablation import ablation_targets
from cutaway.explore.alignment import words_of
from cutaway.explore.causes.attribution import METHODS, embedded_inputs
from cutaway.explore.causes.direct import direct_contributions
from cutaway.explore.causes.effects import margins_without, without
from cutaway.explore.causes.grammar import require_tinyworld
from cutaway.explore.causes.margin import Margin
from cutaway.explore.causes.tables import html_table
from cutaway.explore.traced_example import TracedExample, prepare_example
from cutaway.explore.variants import Edit, Variant, replace_row, run_variants
from cutaway.inference.pipelines import Pipeline, Translator

CHANCE, ALIGNED = "chance", "aligned word"
BY_EFFECT, BY_CONTRIBUTION = "heads by effect", "heads by direct contribution"
RANDOM_HEADS = "heads in random order"
HEADS = 8  # that are switched off one after the other
TIES = 20  # random orders of equal scores
OnProgress = Callable[[int, int], None]


class Question(NamedTuple):
    """One word with a known cause: its margin, the causes, and for each source token the word that it belongs to."""

    example: TracedExample
    margin: Margin
    feature: str
    causes: frozenset[int]
    aligned: frozenset[int]
    words: list[int | None]

    @property
    def n_words(self) -> int:
        return 1 + max(word for word in self.words if word is not None)


@dataclass
class Scores:
    """The results of one method, a number or a curve for each question."""

    top: list[float] = field(default_factory=list)
    precision: list[float] = field(default_factory=list)
    deletion: list[list[float]] = field(default_factory=list)
    insertion: list[list[float]] = field(default_factory=list)

    def means(self) -> dict[str, float]:
        return {
            name: float(np.mean([np.mean(value) for value in values])) for name, values in vars(self).items() if values
        }

    def curves(self) -> dict[str, list[float]]:
        """The mean curves: the share of the margin after 0, 10, ... 100 % of the steps."""
        names = [name for name in ("deletion", "insertion") if getattr(self, name)]
        return {name: np.mean([at_tenths(curve) for curve in getattr(self, name)], axis=0).tolist() for name in names}


def at_tenths(curve: Sequence[float]) -> list[float]:
    """The values of a curve of any length at 0, 10, ... 100 % of its length."""
    found: list[float] = np.interp(np.linspace(0, 1, 11), np.linspace(0, 1, len(curve)), curve).tolist()
    return found


@dataclass(frozen=True)
class Benchmark:
    """The result: method -> scores, and the feature of each question."""

    scores: dict[str, Scores]
    features: list[str]
    skipped: int  # words that the model does not predict correctly

    def means(self) -> dict[str, dict[str, float]]:
        return {method: scores.means() for method, scores in self.scores.items()}

    def top_by_feature(self) -> dict[str, dict[str, float]]:
        """Feature -> method -> how often the strongest word is a cause."""
        found: dict[str, dict[str, float]] = {}
        for feature in sorted(set(self.features)):
            rows = [i for i, each in enumerate(self.features) if each == feature]
            found[feature] = {
                method: float(np.mean([scores.top[i] for i in rows]))
                for method, scores in self.scores.items()
                if scores.top
            }
        return found

    def as_json(self) -> dict[str, Any]:
        counts = {feature: self.features.count(feature) for feature in sorted(set(self.features))}
        return {
            "predictions": len(self.features),
            "skipped": self.skipped,
            "methods": self.means(),
            "features": counts,
            "top_by_feature": self.top_by_feature(),
            "curves": {method: scores.curves() for method, scores in self.scores.items()},
        }

    def tables(self) -> list[tuple[list[str], list[list[str]]]]:
        """(header, rows) of two tables: the means, and how often the strongest word is a cause by feature."""
        means, features = self.means(), self.top_by_feature()
        columns = ("top", "precision", "deletion", "insertion")
        rows = [
            [plain(name), *(f"{row[each]:.1%}" if each in row else "" for each in columns)]
            for name, row in means.items()
        ]
        methods = next(iter(features.values()), {})
        header = ["top word is a cause", *(f"{name} ({self.features.count(name)})" for name in features)]
        by_feature = [[plain(name), *(f"{by[name]:.0%}" for by in features.values())] for name in methods]
        return [
            (["method", "top word is a cause", "average precision", "deletion", "insertion"], rows),
            (header, by_feature),
        ]

    def _repr_html_(self) -> str:
        return "".join(html_table(header, rows) for header, rows in self.tables())


def plain(name: str) -> str:
    return name.replace("_", " ")


def benchmark(
    pipeline: Pipeline,
    pairs: Sequence[AlignedPair],
    predictions: int = 300,
    seed: int = 0,
    on_progress: OnProgress = lambda done, total: None,
) -> Benchmark:
    """Measure every method on this many predictions, drawn at random from the words of `pairs`."""
    translator, direction = require_tinyworld(pipeline)
    draw = random.Random(seed)
    known = [(pair, cause) for pair in pairs for cause in causes(direction, pair)]
    draw.shuffle(known)
    scores: dict[str, Scores] = {name: Scores() for name in (CHANCE, ALIGNED, *METHODS)}
    scores |= {name: Scores() for name in (BY_EFFECT, BY_CONTRIBUTION, RANDOM_HEADS)}
    features: list[str] = []
    skipped = 0
    for pair, cause in known:
        if len(features) == predictions:
            break
        question = ask(translator, pair, cause)
        if question is None:
            skipped += 1
            continue
        features.append(question.feature)
        score_words(translator.model, question, scores, draw)
        score_heads(translator.model, question, scores, draw)
        on_progress(len(features), min(predictions, len(known)))
    return Benchmark(scores, features, skipped)


def ask(translator: Translator, pair: AlignedPair, cause: Cause) -> Question | None:
    """The question of one cause. None if the model predicts another word, or has no token for the rival."""
    example = prepare_example(translator, pair.source, pair.target)
    tokenizer = translator.tokenizer.for_target
    rivals = tokenizer.encode(with_word(pair, cause.target, cause.rival))
    step = next((i for i, (a, b) in enumerate(zip(example.answers, rivals, strict=False)) if a != b), None)
    if step is None or rivals[step] == tokenizer.unk:
        return None
    margin = Margin.single(step, example.answers[step], rivals[step])
    with torch.no_grad():
        if example.logits(translator.model)[step].argmax() != example.answers[step]:
            return None
    aligned = frozenset(s for s, t in pair.alignment if t == cause.target)
    words = words_of(translator, pair).source
    return Question(example.until(step), margin, cause.feature, frozenset(cause.sources), aligned, words)


def with_word(pair: AlignedPair, index: int, word: str) -> str:
    """The target with another word. A word that ends with an apostrophe has no space after it."""
    start = end = 0
    for each in pair.target_words[: index + 1]:
        start = pair.target.index(each, end)
        end = start + len(each)
    before, after = pair.target[:start], pair.target[end:].lstrip(" ")
    space = "" if word.endswith("'") or after[:1] in (".", ",", "?", "!") else " "
    return before + word + space + after


def score_words(model: Any, question: Question, scores: dict[str, Scores], draw: random.Random) -> None:
    count = question.n_words
    ranked = {
        name: by_word(method(model, question.example, question.margin).source, question.words)
        for name, method in METHODS.items()
    }
    ranked[ALIGNED] = [float(word in question.aligned) for word in range(count)]
    ranked[CHANCE] = [0.0] * count
    for method, values in ranked.items():
        orders = [strongest_first(values, draw) for _ in range(1 if method in METHODS else TIES)]
        scores[method].top.append(float(np.mean([order[0] in question.causes for order in orders])))
        scores[method].precision.append(float(np.mean([average_precision(order, question.causes) for order in orders])))
        scores[method].deletion.append(hiding_curve(model, question, orders[0]))
        scores[method].insertion.append(hiding_curve(model, question, orders[0], inserted=True))


def by_word(values: Sequence[float], words: Sequence[int | None]) -> list[float]:
    """The sum over the tokens of each word."""
    sums = [0.0] * (1 + max(word for word in words if word is not None))
    for value, word in zip(values, words, strict=True):
        if word is not None:
            sums[word] += value
    return sums


def strongest_first(values: Sequence[float], draw: random.Random) -> list[int]:
    """The order of the values, largest first; equal ones in random order."""
    return sorted(range(len(values)), key=lambda i: (-values[i], draw.random()))


def average_precision(order: Iterable[int], wanted: frozenset[int]) -> float:
    """The mean, over the wanted words, of the precision at their rank."""
    found, total = 0, 0.0
    for rank, word in enumerate(order, start=1):
        if word in wanted:
            found += 1
            total += found / rank
    return total / len(wanted)


def hiding_curve(model: Any, question: Question, order: Sequence[int], inserted: bool = False) -> list[float]:
    """The share of the margin while the words are hidden (or shown) one after the other, between 0 and 1."""
    [source, *_] = embedded_inputs(model, question.example)
    states = [set(order[:n]) for n in range(len(order) + 1)]
    hidden = [set(order) - state for state in states] if inserted else states
    variants: list[Variant] = [{source.probe: hide_words(question, words, source.without)} for words in hidden]
    return shares(run_variants(model, question.example, variants, question.margin.of))


def hide_words(question: Question, words: set[int], without: torch.Tensor) -> Edit:
    def edit(value: torch.Tensor) -> torch.Tensor:
        for t, word in enumerate(question.words):
            if word in words:
                value = replace_row(t, without[t])(value)
        return value

    return edit


def shares(margins: torch.Tensor) -> list[float]:
    """The margins relative to that of the whole text, which is the largest of both ends. Kept between 0 and 1."""
    whole = max(margins[0].item(), margins[-1].item(), 1e-6)
    found: list[float] = (margins / whole).clamp(0, 1).tolist()
    return found


def score_heads(model: Any, question: Question, scores: dict[str, Scores], draw: random.Random) -> None:
    """Switch heads off, and on again, in several orders. Those of the encoder have a direct contribution of 0."""
    heads = [id for id, target in ablation_targets(model).items() if target.head is not None]
    margins = margins_without(model, question.example, question.margin)
    direct = direct_contributions(model, question.example, question.margin)
    for name, values in (
        (BY_EFFECT, [-margins[id] for id in heads]),
        (BY_CONTRIBUTION, [direct.get(id, 0.0) for id in heads]),
        (RANDOM_HEADS, [0.0] * len(heads)),
    ):
        order = [heads[i] for i in strongest_first(values, draw)]
        off = [together(model, order[:n]) for n in range(min(HEADS, len(order)) + 1)]
        on = [together(model, order[n:]) for n in range(len(order) + 1)]
        scores[name].deletion.append(shares(run_variants(model, question.example, off, question.margin.of)))
        scores[name].insertion.append(shares(run_variants(model, question.example, on, question.margin.of)))


def together(model: Any, ids: Iterable[str]) -> Variant:
    """All these heads switched off."""
    targets = ablation_targets(model)
    edits: dict[str, list[Edit]] = {}
    for id in ids:
        for probe, edit in without(targets[id], None).items():
            edits.setdefault(probe, []).append(edit)
    return {probe: in_turn(each) for probe, each in edits.items()}


def in_turn(edits: Sequence[Edit]) -> Edit:
    def edit(value: torch.Tensor) -> torch.Tensor:
        for each in edits:
            value = each(value)
        return value

    return edit
