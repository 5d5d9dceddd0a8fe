"""Activation patching: run one text with a value of another text, and see how much of the other's margin comes back.

    share = (margin with the patch - margin of this text) / (margin of the other text - margin of this text)

1 means that this value alone carries the difference, 0 that it does not matter here. Both texts need equally many
tokens. The decoder of a translator reads the same target tokens in both runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import torch
from torch import Tensor

from cutaway.errors import ConfigError, DataError, nearest
from cutaway.explore.ablation import AblationTarget, ablation_targets
from cutaway.explore.causes.margin import Margin
from cutaway.explore.causes.tables import html_table
from cutaway.explore.lens import stream_probes
from cutaway.explore.traced_example import TracedExample, prepare_example
from cutaway.explore.variants import Edit, Variant, replace_head, replace_row, run_variants
from cutaway.inference.pipelines import GenerationPipeline, Pipeline
from cutaway.nn.recording import edit_activations, record_activations

MIN_DIFFERENCE = 1e-3  # nats


@dataclass(frozen=True)
class PositionGrid:
    """Shares by depth of a stack's residual stream and by token. A row is "embedding" or a layer."""

    stack: str  # "encoder" or "decoder"
    rows: list[str]
    tokens: list[str]  # of this text
    others: list[str]  # of the other text
    shares: list[list[float]]
    token_p: list[list[float]]  # the probability of the margin's token with each patch
    rival_p: list[list[float]]

    @property
    def columns(self) -> list[str]:
        return [a if a == b else f"{a}→{b}" for a, b in zip(self.tokens, self.others, strict=True)]

    @property
    def header(self) -> list[str]:
        return [f"{self.stack}: share restored", *self.rows]

    def rows_of_cells(self) -> list[list[str]]:
        """A row of cells for each token."""
        shares = zip(*self.shares, strict=True)
        return [[token, *map(percent, column)] for token, column in zip(self.columns, shares, strict=True)]


@dataclass(frozen=True)
class PatchedPart:
    """A head or sub-layer, and the share that its whole output restores."""

    id: str
    title: str
    kind: str  # "head" or "sublayer"
    stack: str
    layer: int
    part: str
    head: int | None
    share: float


@dataclass(frozen=True)
class Patching:
    """The margin of both texts, and the share that each patch restores: by position, and by head or sub-layer."""

    margin: float
    other_margin: float
    grids: list[PositionGrid]
    parts: list[PatchedPart]

    @property
    def best(self) -> tuple[str, str, int, float]:
        """(stack, row, position, share) of the largest share after a layer, without the layer that the head reads.

        After that layer, the predicting position has everything. It counts only if there is no other layer.
        """
        rows = [
            (grid.stack, row, shares)
            for grid in self.grids
            for row, shares in zip(grid.rows, grid.shares, strict=True)
            if row != "embedding"
        ]
        cells = ((stack, row, t, share) for stack, row, shares in rows[:-1] or rows for t, share in enumerate(shares))
        return max(cells, key=lambda cell: cell[3])

    @property
    def sentence(self) -> str:
        """The margins, and the position and head that carry most of their difference."""
        stack, row, t, share = self.best
        grid = next(grid for grid in self.grids if grid.stack == stack)
        head = max((part for part in self.parts if part.kind == "head"), key=lambda part: part.share)
        return (
            f"The other input has the margin {self.other_margin:+.2f} instead of {self.margin:+.2f}. One vector of the "
            f"other input restores {share:.0%} of the difference: that of “{grid.others[t]}” after {stack} {row}. "
            f"One head restores {head.share:.0%}: {head.title}."
        )

    def share_of(self, id: str) -> float:
        return next(part.share for part in self.parts if part.id == id)

    def as_json(self) -> dict[str, Any]:
        lists = {name: [vars(each) for each in getattr(self, name)] for name in ("grids", "parts")}
        return {**vars(self), **lists, "sentence": self.sentence}

    def _repr_html_(self) -> str:
        """For notebooks: the sentence, and the shares of each stack and of the parts."""
        tables = [html_table(grid.header, grid.rows_of_cells()) for grid in self.grids]
        parts = ([part.title, percent(part.share)] for part in self.parts)
        tables.append(html_table(["head or sub-layer", "share restored"], parts))
        return f"<p>{escape(self.sentence)}</p>{''.join(tables)}"


@dataclass(frozen=True)
class PatchedPath:
    """The share that moves directly from one part to a later one."""

    sender: str  # titles
    receiver: str
    share: float

    @property
    def sentence(self) -> str:
        return f"{percent(self.share)} of the difference moves directly from {self.sender} to {self.receiver}."

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "sentence": self.sentence}


def percent(share: float) -> str:
    return f"{round(share, 2) + 0.0:.0%}"  # + 0.0: no "-0%"


def patch_all(model: Any, example: TracedExample, other: TracedExample, margin: Margin) -> Patching:
    """Patch every position of every layer, and every head and sub-layer, one at a time."""
    check_same_lengths(example, other)
    last = max(term.step for term in margin.terms)
    example, other = example.until(last), other.until(last)
    streams = {stack: stream_probes(model, stack) for stack in ("encoder", "decoder") if hasattr(model, stack)}
    targets = ablation_targets(model)
    names = {name for rows in streams.values() for name in rows.values()} | {each.probe for each in targets.values()}
    values = recorded(model, other, names)
    cells: list[Variant] = [
        {name: replace_row(t, values[name][t])}
        for rows in streams.values()
        for name in rows.values()
        for t in range(len(values[name]))
    ]
    parts = [patch_of(target, values) for target in targets.values()]
    found_B3 = run_variants(model, example, [{}, *cells, *parts], lambda logits: margin_and_p(margin, logits))
    (this, *patched), *p = found_B3.T.tolist()
    that = run_variants(model, other, [{}], margin.of).item()
    if abs(that - this) < MIN_DIFFERENCE:
        raise DataError(f"both texts have the margin {this:.3f}, so there is no difference to explain.")
    token_p, rival_p = (iter(values[1:]) for values in p)
    shares = iter((value - this) / (that - this) for value in patched)
    grids = [
        PositionGrid(
            stack,
            list(rows),
            tokens_of(example, stack),
            tokens_of(other, stack),
            *(
                [[next(numbers) for _ in values[name]] for name in rows.values()]
                for numbers in (shares, token_p, rival_p)
            ),
        )
        for stack, rows in streams.items()
    ]
    fields = ("id", "title", "kind", "stack", "layer", "part", "head")
    found = [
        PatchedPart(**{name: getattr(each, name) for name in fields}, share=next(shares)) for each in targets.values()
    ]
    return Patching(this, that, grids, found)


def margin_and_p(margin: Margin, logits_BNV: Tensor) -> Tensor:
    """The margin, and the probabilities of token and rival of its first term: [B,3]. Without a rival: of all others."""
    term = margin.terms[0]
    p_BV = logits_BNV[:, term.step].softmax(-1)
    token_p = p_BV[:, term.token]
    return torch.stack([margin.of(logits_BNV), token_p, 1 - token_p if term.rival is None else p_BV[:, term.rival]], 1)


def path_patch(
    model: Any, example: TracedExample, other: TracedExample, margin: Margin, sender: str, receiver: str
) -> PatchedPath:
    """The share of the margin's difference that moves from one part directly to a later part (Wang et al. 2023).

    First run: the sender has its value of the other text, all other parts keep theirs of this text, and the receiver
    computes its value. Second run: only the receiver has that value.
    """
    check_same_lengths(example, other)
    targets = ablation_targets(model)
    for part in (sender, receiver):
        if part not in targets:
            raise ConfigError(f"this model has no part {part!r}. {nearest(part, targets)}")
    start, end = targets[sender], targets[receiver]
    if any(target.part == "block" for target in targets.values()):
        raise ConfigError("the sub-layers of parallel layers are one sum, so no path leads from one to the other.")
    names = {each.probe for each in targets.values()}
    here, there = recorded(model, example, names), recorded(model, other, names)
    frozen = {name: frozen_value(name, here, there, start, end) for name in names}
    edits = {name: edit for name, edit in frozen.items() if edit is not None}
    with record_activations(model, end.probe) as seen:
        run_variants(model, example, [edits])
    values = {end.probe: seen[end.probe][0]}
    this, patched = run_variants(model, example, [{}, patch_of(end, values)], margin.of).tolist()
    that = run_variants(model, other, [{}], margin.of).item()
    if abs(that - this) < MIN_DIFFERENCE:
        raise DataError(f"both texts have the margin {this:.3f}, so there is no difference to explain.")
    return PatchedPath(start.title, end.title, (patched - this) / (that - this))


def frozen_value(
    name: str, here: dict[str, Tensor], there: dict[str, Tensor], sender: AblationTarget, receiver: AblationTarget
) -> Any:
    """An edit for the first run: this text's value, with the sender's of the other text; None where values may change.

    Sub-layers of attention are not frozen as a whole, because their heads are.
    """
    if name.endswith("_attention_residual.update") and name not in (sender.probe, receiver.probe):
        return None
    if name == receiver.probe and receiver.head is None:
        return None
    value = here[name].clone()
    if name == sender.probe:
        value = replace_head(sender.head, there[name] if sender.head is None else there[name][sender.head])(value)
    if name != receiver.probe:
        return lambda computed: value

    def keep_receiver(computed: Tensor) -> Tensor:
        return replace_head(receiver.head, computed[receiver.head])(value)

    return keep_receiver


def patch_of(target: AblationTarget, values: dict[str, Tensor]) -> Variant:
    value = values[target.probe]
    return {target.probe: replace_head(target.head, value if target.head is None else value[target.head])}


@torch.no_grad()
def patched_output(
    pipeline: Pipeline, content: Any, example: TracedExample, other: TracedExample, place: str, position: int | None
) -> str:
    """What the model itself answers to this text with one value of the other one.

    place  a part by id; with a position, "encoder layer 0": the row of a grid, for the vector of that token
    """
    model = pipeline.model
    probe, head = place_of(model, place, position)
    [value] = recorded(model, other, {probe}).values()
    if position is not None and not 0 <= position < len(value):
        raise DataError(f"there is no token {position}. Its numbers go from 0 to {len(value) - 1}.")
    edit = replace_in_turn(value, head, position, is_whole=probe.startswith(("encoder", "source")))
    with edit_activations(model, {probe: edit}):
        return prepare_example(pipeline, content, hidden=example.hidden).output


def place_of(model: Any, place: str, position: int | None) -> tuple[str, int | None]:
    """The probe of this place, and the number of the head."""
    if position is None:
        targets = ablation_targets(model)
        if place not in targets:
            raise ConfigError(f"this model has no part {place!r}. {nearest(place, targets)}".rstrip())
        return targets[place].probe, targets[place].head
    stacks = [stack for stack in ("encoder", "decoder") if hasattr(model, stack)]
    rows = {f"{stack} {row}": probe for stack in stacks for row, probe in stream_probes(model, stack).items()}
    if place not in rows:
        raise ConfigError(f"this model has no residual stream {place!r}. {nearest(place, rows)}".rstrip())
    return rows[place], None


def replace_in_turn(value: Tensor, head: int | None, position: int | None, is_whole: bool) -> Edit:
    """An edit that replaces a value [..., T, X], or one position of it, in a model that may read the text in pieces.

    A search with a cache gives a decoder one position after the other, so each call continues where the last one ended.
    """
    start = 0

    def edit(computed: Tensor) -> Tensor:
        nonlocal start
        first, end = start, start + computed.size(-2)
        start = 0 if is_whole else end
        places = [t for t in range(first, min(end, value.size(-2))) if position in (None, t)]
        at: Any = ([t - first for t in places],) if value.dim() == 2 else (head, [t - first for t in places])
        changed = computed.clone()
        changed[(slice(None), *at)] = value[places] if head is None else value[head, places]
        return changed

    return edit


@torch.no_grad()
def recorded(model: Any, example: TracedExample, names: set[str]) -> dict[str, Tensor]:
    """The values of these probes, without the batch axis."""
    with record_activations(model, *names) as seen:
        model(*example.inputs)
    return {name: value[0] for name, value in seen.items()}


def tokens_of(example: TracedExample, stack: str) -> list[str]:
    return example.target_in if stack == "decoder" else example.source


def prepare_other(pipeline: Pipeline, example: TracedExample, content: Any) -> TracedExample:
    """Another text, for which the decoder reads the output of the first one."""
    if not isinstance(pipeline, GenerationPipeline):
        return prepare_example(pipeline, content, hidden=example.hidden)
    other = prepare_example(pipeline, content, target="")
    if other.source:
        inputs: tuple[Tensor, ...] = (other.inputs[0], example.inputs[1])
        return replace(other, inputs=inputs, target_in=example.target_in, answers=example.answers)
    last_11 = torch.tensor([other.answers[-1:]]).to(other.inputs[0])  # of the prompt; the output comes after it
    ids_1T = torch.cat([other.inputs[0], last_11, example.inputs[0][:, example.prompt + 1 :]], dim=1)
    return replace(other, inputs=(ids_1T,), target_in=other.names(ids_1T[0].tolist()), answers=example.answers)


def check_same_lengths(example: TracedExample, other: TracedExample) -> None:
    lengths: Sequence[tuple[int, int]] = [
        (len(a[0]), len(b[0])) for a, b in zip(example.inputs, other.inputs, strict=True)
    ]
    for this, that in lengths:
        if this != that:
            raise DataError(
                f"the texts have {this} and {that} tokens. Patching compares position by position: change a word "
                "into one with as many tokens."
            )
    if example.places != other.places:
        raise DataError(
            "the predictions of both texts are at other positions. Change a word into one with as many tokens."
        )
