"""Statistics of each attention head over many examples, compared with chance.

A statistic is the mean over all queries of all examples, without padding.

    entropy       -Σ w log w, in nats; chance is log n for n allowed keys
    distance      Σ w |query - key|, in tokens                                                       self-attention
    previous      weight on the token before                                                         self-attention
    next          weight on the token after                                                          self-attention
    itself        weight on the token itself                                                         self-attention
    first         weight on the first token: <s>, a class token, or the first source token
    last          weight on the last token of the encoder's input: </s>                              text
    punctuation   weight on tokens that are only punctuation and symbols                             text
    rare          weight on the rarest tokens, which together make up a tenth of all                 text
    same          weight on the same token at another position                                       self-attention
    continuation  weight on the token after the same token at another position: an induction head (Olsson et al. 2022)
    syntax        weight on the syntactic head of the query's word                                   if known
    alignment     weight on the source words that the target word translates                         cross-attention

Chance is the value for equal attention to all allowed keys. A share counts only queries with a choice: at least one
allowed key matches and at least one does not. The masks are recorded at the calls of the attention layers.
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

MIN_GAIN = 1 / 3  # a head has a role if its best share has at least this gain ...
MIN_COUNTED = 0.5  # ... over at least this share of the queries
MIN_EVENNESS = 0.9  # a head without a role is uniform above this share of the maximum entropy

# statistic -> the name of the role, and where the weight goes
ROLES = {
    "previous": ("previous token", "to the token before"),
    "next": ("next token", "to the token after"),
    "itself": ("current token", "to the token itself"),
    "first": ("first token", "to the first token"),
    "last": ("last token", "to the last token"),
    "punctuation": ("punctuation", "to punctuation"),
    "rare": ("rare tokens", "to rare tokens"),
    "same": ("same token", "to the same token at another position"),
    "continuation": ("induction", "to the token after an earlier occurrence of the same token"),
    "syntax": ("syntactic parent", "to the word that it depends on in the syntax tree"),
    "alignment": ("word alignment", "to the words that are being translated"),
}
NO_ROLE, UNIFORM = "no clear role", "uniform"


@dataclass(frozen=True)
class Statistic:
    """A mean over queries, its value by chance, and the share of the queries that it counts."""

    value: float
    chance: float
    counted: float = 1.0

    @property
    def gain(self) -> float:
        """0 for chance, 1 if all weight matches."""
        return (self.value - self.chance) / (1 - self.chance) if self.chance < 1 else 0.0


@dataclass(frozen=True)
class HeadStatistics:
    """The statistics of one head, and its role.

    The role is that of the share with the greatest gain, if the gain is at least MIN_GAIN and the share counts at least
    MIN_COUNTED of the queries. Otherwise "uniform" if the evenness is at least MIN_EVENNESS, else "no clear role".
    """

    kind: str  # "encoder", "decoder" or "cross"
    layer: int
    head: int
    name: str  # such as encoder.layers.0.self_attention
    statistics: dict[str, Statistic]
    agreement: float | None = None  # 1 - alignment error rate

    @property
    def best(self) -> str | None:
        """The share with the greatest gain."""
        shares = {n: m for n, m in self.statistics.items() if n in ROLES and m.counted >= MIN_COUNTED}
        return max(shares, key=lambda name: shares[name].gain, default=None)

    @property
    def evenness(self) -> float:
        """The entropy as a share of the maximum."""
        entropy = self.statistics.get("entropy")  # missing if no query had a choice
        return entropy.value / entropy.chance if entropy and entropy.chance else 0.0

    @property
    def role(self) -> str:
        if self.best is not None and self.statistics[self.best].gain >= MIN_GAIN:
            return ROLES[self.best][0]
        return UNIFORM if self.evenness >= MIN_EVENNESS else NO_ROLE

    @property
    def share(self) -> float:
        """The share of the weight behind the role; for a uniform head its evenness."""
        return self.evenness if self.best is None or self.role == UNIFORM else self.statistics[self.best].value

    @property
    def explanation(self) -> str:
        if self.role == UNIFORM or self.best is None:
            return f"Almost equal attention to all tokens: its entropy is {self.evenness:.0%} of the maximum."
        measure, target = self.statistics[self.best], ROLES[self.best][1]
        share = f"{measure.value:.0%} of its weight goes {target}; by chance it would be {measure.chance:.0%}."
        return share if self.role != NO_ROLE else f"No pattern stands out. The strongest: {share}"

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
        cells.append("" if measure is None else format_statistic(name, measure.value))
    row = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f'<tr title="{escape(head.explanation)}">{row}</tr>'


def format_statistic(name: str, value: float) -> str:
    return f"{value:.2f}" if name in ("entropy", "distance") else f"{value:.0%}"


@torch.no_grad()
def head_statistics(pipeline: Pipeline, examples: Sequence[Any], batch_size: int = 64, longest: int = 256) -> HeadTable:
    """The statistics of every head over the first `longest` tokens of each example.

    A translator's decoder reads the reference translations; for a text without one, the model's own translation.
    """
    examples = list(examples)  # it may be an array of images
    sums: dict[str, StatisticSums] = {}
    for inputs, patterns in batches(pipeline, examples, batch_size, longest):
        with record_activations(pipeline.model, "*_attention.weights") as seen, record_masks(pipeline.model) as calls:
            pipeline.model(*inputs.arguments)
        for call in calls:
            is_query = inputs.is_token[SIDES[call.kind][0]]
            total = sums.setdefault(call.name, StatisticSums(call))
            total.add(seen[f"{call.name}.weights"], call.allowed(), is_query, patterns[call.kind])
    is_aligned = bool(sums) and has_alignments(examples)
    rates = alignment_by_head(pipeline, examples, batch_size) if is_aligned else {}  # type: ignore[arg-type]
    in_order = sorted(sums.values(), key=lambda total: list(SIDES).index(total.call.kind))
    return HeadTable(head for total in in_order for head in total.heads(rates))


@dataclass
class StatisticSums:
    """Sums over the queries of one attention layer, by statistic: values [H], chance, and number of queries."""

    call: AttentionCall
    values: dict[str, Tensor] = field(default_factory=dict)
    chances: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    queries: int = 0

    def add(
        self, weights_BHQK: Tensor, allowed_BQK: Tensor, is_query_BQ: Tensor, patterns: Mapping[str, Tensor]
    ) -> None:
        n_BQ = allowed_BQK.sum(dim=-1)
        even_BQK = allowed_BQK / n_BQ.clamp(min=1)[..., None]
        has_choice = is_query_BQ & (n_BQ > 1)
        self.queries += int(has_choice.sum())
        self.add_sums("entropy", torch.special.entr(weights_BHQK).sum(-1), n_BQ.clamp(min=1).log(), has_choice)
        if self.call.kind != "cross":
            distance_BQK = distances(allowed_BQK)
            values, chance = weight_on(weights_BHQK, distance_BQK), (even_BQK * distance_BQK).sum(-1)
            self.add_sums("distance", values, chance, has_choice)
        for name, pattern in patterns.items():
            matches_BQK = pattern & allowed_BQK
            n_matches_BQ = matches_BQK.sum(dim=-1)
            counts = is_query_BQ & (n_matches_BQ > 0) & (n_matches_BQ < n_BQ)
            self.add_sums(name, weight_on(weights_BHQK, matches_BQK), (even_BQK * matches_BQK).sum(-1), counts)

    def add_sums(self, name: str, value_BHQ: Tensor, chance_BQ: Tensor, counts_BQ: Tensor) -> None:
        """Add one statistic over the queries that count."""
        value_BHQ, chance_BQ, counts_BQ = value_BHQ.cpu(), chance_BQ.cpu(), counts_BQ.cpu()  # MPS has no float64
        self.values[name] = self.values.get(name, 0) + (value_BHQ.double() * counts_BQ[:, None]).sum(dim=(0, 2))
        self.chances[name] = self.chances.get(name, 0.0) + float((chance_BQ.double() * counts_BQ).sum())
        self.counts[name] = self.counts.get(name, 0) + int(counts_BQ.sum())

    def heads(self, error_rates: Mapping[Head, float]) -> list[HeadStatistics]:
        kind, layer = self.call.kind, self.call.layer
        rates = error_rates if kind == "cross" else {}
        return [
            HeadStatistics(
                kind,
                layer,
                head,
                self.call.name,
                {name: self.mean(name, head) for name, count in self.counts.items() if count},
                1 - rates[Head(layer, head)] if rates else None,
            )
            for head in range(len(self.values["entropy"]))
        ]

    def mean(self, name: str, head: int) -> Statistic:
        count = self.counts[name]
        return Statistic(float(self.values[name][head]) / count, self.chances[name] / count, count / self.queries)


def weight_on(weights_BHQK: Tensor, value_BQK: Tensor) -> Tensor:
    """Σ over keys of weight · value -> [B, H, Q]"""
    return torch.einsum("bhqk,bqk->bhq", weights_BHQK, value_BQK.to(weights_BHQK.dtype))


def distances(allowed_BQK: Tensor) -> Tensor:
    query, key = (torch.arange(n, device=allowed_BQK.device) for n in allowed_BQK.shape[1:])
    return (query[:, None] - key[None, :]).abs().expand_as(allowed_BQK)
