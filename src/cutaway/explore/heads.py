"""What does each attention head do? Counted over many examples, and set beside what chance would give.

A statistic is a mean over queries: over the tokens that look (padding never counts), in all examples.

    entropy       how spread the weights are, in nats: -Σ w log w. Chance: log n, where n keys may be attended to
    distance      how far it looks, in tokens: Σ w |query - key|                                     self-attention
    previous      the weight on the token before                                                     self-attention
    next          ... on the token after                                                             self-attention
    itself        ... on the token itself                                                            self-attention
    first         ... on the first token: <s>, a class token, or the first word of a source
    last          ... on the last token of what an encoder read: </s>                                text
    punctuation   ... on tokens of nothing but punctuation and symbols                               text
    rare          ... on rare tokens: of the rarest kinds that together are a tenth of all tokens on that side of the
                  examples, or a little more, for kinds that are equally rare go together            text
    same          ... on the same token at another place                                             self-attention
    continuation  ... on what came after the same token at another place: an induction head (Olsson et al. 2022)
    syntax        ... on the syntactic head of the word that looks                                   where it is known
    alignment     ... on the words that the word being written translates                            cross-attention

Chance is what even attention to all allowed keys would give. A share is counted over the queries that have a choice:
some allowed key is meant and some is not. What a mask allows is seen where the model hands it to attention.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import torch
from torch import Tensor

from cutaway.explore.alignment import Head, alignment_by_head, has_alignments
from cutaway.explore.head_patterns import batches
from cutaway.explore.inputs import SIDES
from cutaway.explore.masks import AttentionCall, record_masks
from cutaway.inference.pipelines import Pipeline
from cutaway.nn.recording import record_activations

CONVINCING = 1 / 3  # of the way from chance to always: what a share must reach to give a head its role
OFTEN = 0.5  # of the queries must have the choice, or a share says little about the head
SPREAD = 0.9  # of the greatest possible entropy: above it, a head without a role looks everywhere

# statistic -> the role that it stands for, and what then gets the weight
ROLES = {
    "previous": ("previous token", "to the token before"),
    "next": ("next token", "to the token after"),
    "itself": ("itself", "to the token itself"),
    "first": ("first token", "to the first token"),
    "last": ("end of text", "to the last token"),
    "punctuation": ("punctuation", "to punctuation"),
    "rare": ("rare words", "to rare words"),
    "same": ("same token", "to the same token elsewhere"),
    "continuation": ("continuation", "to what came after the same token elsewhere"),
    "syntax": ("syntactic head", "to the word's syntactic head"),
    "alignment": ("translation", "to the words that are being translated"),
}
MANY, EVERYWHERE = "many things at once", "spread out"


@dataclass(frozen=True)
class Statistic:
    """A mean over queries, what chance would give, and how many of the queries it is a mean of, as a share."""

    value: float
    chance: float
    counted: float = 1.0

    @property
    def gain(self) -> float:
        """How far from chance (0) to always (1) a share is."""
        return (self.value - self.chance) / (1 - self.chance) if self.chance < 1 else 0.0


@dataclass(frozen=True)
class HeadStatistics:
    """One head: what was counted, and what it seems to do.

    `role` is that of the share with the greatest gain, if this reaches CONVINCING and concerns at least OFTEN of the
    queries; else "spread out" if the entropy is above SPREAD of the greatest possible, else "many things at once".
    """

    kind: str  # "encoder", "decoder" or "cross"
    layer: int
    head: int
    name: str  # of the attention, such as encoder.layers.0.self_attention
    statistics: dict[str, Statistic]
    agreement: float | None = None  # with the gold alignment: 1 - its error rate

    @property
    def best(self) -> str | None:
        """The share with the greatest gain."""
        shares = {n: m for n, m in self.statistics.items() if n in ROLES and m.counted >= OFTEN}
        return max(shares, key=lambda name: shares[name].gain, default=None)

    @property
    def evenness(self) -> float:
        """The entropy as a share of the greatest possible."""
        entropy = self.statistics.get("entropy")  # none, if no query ever had a choice
        return entropy.value / entropy.chance if entropy and entropy.chance else 0.0

    @property
    def role(self) -> str:
        if self.best is not None and self.statistics[self.best].gain >= CONVINCING:
            return ROLES[self.best][0]
        return EVERYWHERE if self.evenness >= SPREAD else MANY

    @property
    def share(self) -> float:
        """What the role rests on: a share of the weight, or of a head that is spread out its evenness."""
        return self.evenness if self.best is None or self.role == EVERYWHERE else self.statistics[self.best].value

    @property
    def explanation(self) -> str:
        if self.role == EVERYWHERE or self.best is None:
            return f"Its entropy is {self.evenness:.0%} of the greatest possible: it looks at everything almost alike."
        measure, whom = self.statistics[self.best], ROLES[self.best][1]
        said = f"{measure.value:.0%} of its weight goes {whom}; attention to all alike would give {measure.chance:.0%}."
        return said if self.role != MANY else f"Nothing stands out. The most: {said}"

    def as_json(self) -> dict[str, Any]:
        values = {name: round(measure.value, 5) for name, measure in self.statistics.items()}
        if self.agreement is not None:
            values["agreement"] = round(self.agreement, 5)
        return {
            **{key: getattr(self, key) for key in ("kind", "layer", "head", "name", "role")},
            "share": round(self.share, 5),
            "explanation": self.explanation,
            "statistics": values,
            "chance": {name: round(measure.chance, 5) for name, measure in self.statistics.items()},
            "counted": {name: round(measure.counted, 5) for name, measure in self.statistics.items()},
        }


class HeadTable(list[HeadStatistics]):
    """The statistics of all heads; a notebook shows a table."""

    def as_json(self) -> list[dict[str, Any]]:
        return [head.as_json() for head in self]

    def _repr_html_(self) -> str:
        names = list(dict.fromkeys(name for head in self for name in head.statistics))
        top = "".join(f"<th>{escape(name)}</th>" for name in ("head", "role", *names))
        return f"<table><tr>{top}</tr>{''.join(_html_row(head, names) for head in self)}</table>"


def _html_row(head: HeadStatistics, names: Sequence[str]) -> str:
    cells = [f"{head.kind} {head.layer}.{head.head}", head.role]
    for name in names:
        measure = head.statistics.get(name)
        cells.append("" if measure is None else shown(name, measure.value))
    row = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f'<tr title="{escape(head.explanation)}">{row}</tr>'


def shown(name: str, value: float) -> str:
    return f"{value:.2f}" if name in ("entropy", "distance") else f"{value:.0%}"


@torch.no_grad()
def head_statistics(pipeline: Pipeline, examples: Sequence[Any], batch_size: int = 64, longest: int = 256) -> HeadTable:
    """The statistics of every head over these examples, of each the first `longest` tokens.

    A translator is led through the right targets; a text alone, without its translation, through the model's own.
    """
    examples = list(examples)  # an array of images, say, is neither true nor false
    tallies: dict[str, StatisticSums] = {}
    for inputs, patterns in batches(pipeline, examples, batch_size, longest):
        with record_activations(pipeline.model, "*_attention.weights") as seen, record_masks(pipeline.model) as calls:
            pipeline.model(*inputs.arguments)
        for call in calls:
            looking = inputs.is_token[SIDES[call.kind][0]]
            tally = tallies.setdefault(call.name, StatisticSums(call))
            tally.add(seen[f"{call.name}.weights"], call.allowed(), looking, patterns[call.kind])
    known = bool(tallies) and has_alignments(examples)
    rates = alignment_by_head(pipeline, examples, batch_size) if known else {}  # type: ignore[arg-type]
    in_order = sorted(tallies.values(), key=lambda tally: list(SIDES).index(tally.call.kind))
    return HeadTable(head for tally in in_order for head in tally.heads(rates))


@dataclass
class StatisticSums:
    """Sums over queries of one attention. Keys: statistics; values: of each head [H], of chance, and how many."""

    call: AttentionCall
    values: dict[str, Tensor] = field(default_factory=dict)
    chances: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    queries: int = 0

    def add(
        self, weights_BHQK: Tensor, allowed_BQK: Tensor, looking_BQ: Tensor, patterns: Mapping[str, Tensor]
    ) -> None:
        n_BQ = allowed_BQK.sum(dim=-1)
        even_BQK = allowed_BQK / n_BQ.clamp(min=1)[..., None]
        has_choice = looking_BQ & (n_BQ > 1)
        self.queries += int(has_choice.sum())
        self.note("entropy", torch.special.entr(weights_BHQK).sum(-1), n_BQ.clamp(min=1).log(), has_choice)
        if self.call.kind != "cross":
            apart_BQK = distances(allowed_BQK)
            self.note("distance", weight_on(weights_BHQK, apart_BQK), (even_BQK * apart_BQK).sum(-1), has_choice)
        for name, fact in patterns.items():
            meant_BQK = fact & allowed_BQK
            n_meant_BQ = meant_BQK.sum(dim=-1)
            asked = looking_BQ & (n_meant_BQ > 0) & (n_meant_BQ < n_BQ)
            self.note(name, weight_on(weights_BHQK, meant_BQK), (even_BQK * meant_BQK).sum(-1), asked)

    def note(self, name: str, value_BHQ: Tensor, chance_BQ: Tensor, asked_BQ: Tensor) -> None:
        self.values[name] = self.values.get(name, 0) + (value_BHQ.double() * asked_BQ[:, None]).sum(dim=(0, 2))
        self.chances[name] = self.chances.get(name, 0.0) + float((chance_BQ.double() * asked_BQ).sum())
        self.counts[name] = self.counts.get(name, 0) + int(asked_BQ.sum())

    def heads(self, error_rates: Mapping[Head, float]) -> list[HeadStatistics]:
        kind, layer = self.call.kind, self.call.layer
        rates = error_rates if kind == "cross" else {}
        return [
            HeadStatistics(
                kind,
                layer,
                head,
                self.call.name,
                {name: self.measure(name, head) for name, count in self.counts.items() if count},
                1 - rates[Head(layer, head)] if rates else None,
            )
            for head in range(len(self.values["entropy"]))
        ]

    def measure(self, name: str, head: int) -> Statistic:
        count = self.counts[name]
        return Statistic(float(self.values[name][head]) / count, self.chances[name] / count, count / self.queries)


def weight_on(weights_BHQK: Tensor, what_BQK: Tensor) -> Tensor:
    """Σ over keys of weight · what -> [B, H, Q]"""
    return torch.einsum("bhqk,bqk->bhq", weights_BHQK, what_BQK.to(weights_BHQK.dtype))


def distances(allowed_BQK: Tensor) -> Tensor:
    query, key = (torch.arange(n, device=allowed_BQK.device) for n in allowed_BQK.shape[1:])
    return (query[:, None] - key[None, :]).abs().expand_as(allowed_BQK)
