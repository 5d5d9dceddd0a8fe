"""Which masks a model really uses: seen where they are handed to attention, not worked out from a configuration."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cutaway.explore.inputs import EncodedExample, labels_of, padded_batch
from cutaway.finetune.text_probe import TextProbe
from cutaway.inference.pipelines import Pipeline
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.masks import Causal, Mask, MaskRule
from cutaway.nn.sparse_masks import SlidingWindow, Strided

PLACE = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.(self|cross)_attention$")
WHO = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Cross-attention, from the decoder to the encoder's memory",
}
LONGEST_NAME = 14  # letters of a token that stand before a row


@dataclass(frozen=True)
class AttentionCall:
    """One attention at work: its place in the model, and the mask that it was given."""

    name: str  # such as encoder.layers.0.self_attention
    mask: Mask | Tensor | None
    shape: tuple[int, int, int]  # B, Q, K
    device: torch.device
    before: tuple[int, int] = (0, 0)  # queries and keys that stand before the text: a learned prompt

    @property
    def kind(self) -> str:
        """ "encoder", "decoder" or "cross", as in a Trace."""
        stack, _, how = self.place.groups()
        return "cross" if how == "cross" else str(stack)

    @property
    def layer(self) -> int:
        return int(self.place.group(2))

    @property
    def place(self) -> re.Match[str]:
        found = PLACE.match(self.name)
        assert found, f"{self.name} is no attention of a stack"
        return found

    def allowed(self) -> Tensor:
        """Spelled out for the text, True = may attend. -> [B, Q, K]"""
        queries, keys = self.before
        return self.everything()[:, queries:, keys:]

    def everything(self) -> Tensor:
        dense = self.mask.dense(self.device) if isinstance(self.mask, Mask) else self.mask
        if dense is None:
            return torch.ones(self.shape, dtype=torch.bool, device=self.device)
        while dense.dim() < 4:
            dense = dense[None]
        return dense.any(dim=1).expand(self.shape)  # what any head may see

    @property
    def rules(self) -> tuple[MaskRule, ...]:
        return self.mask.rules if isinstance(self.mask, Mask) else ()

    @property
    def active_rules(self) -> tuple[MaskRule, ...]:
        """The rules that forbid something here."""
        return self.mask.active_rules if isinstance(self.mask, Mask) else ()


@contextmanager
def record_masks(model: nn.Module) -> Iterator[list[AttentionCall]]:
    """A list that holds, after a forward in the block, one Call for each attention, in the order of their work."""
    calls: list[AttentionCall] = []

    def hook_for(name: str) -> Any:
        def note(attention: MultiHeadAttention, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            describe_mask = inspect.signature(attention.forward).bind(*given, **named).arguments
            x, memory = describe_mask["x"], describe_mask.get("memory")
            keys = x if memory is None else memory
            shape, probe = (x.size(0), x.size(1), keys.size(1)), attention.weights
            # of a prompt, rows and columns; a prefix is added inside of attention
            hidden = probe.hidden if isinstance(probe, TextProbe) and 2 in probe.hidden else {}
            calls.append(
                AttentionCall(name, describe_mask.get("mask"), shape, x.device, (hidden.get(2, 0), hidden.get(3, 0)))
            )

        return note

    attentions = {name: part for name, part in model.named_modules() if isinstance(part, MultiHeadAttention)}
    hooks = [part.register_forward_pre_hook(hook_for(name), with_kwargs=True) for name, part in attentions.items()]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def describe_masks(calls: Sequence[AttentionCall]) -> dict[str, str]:
    """Kind of attention -> who may attend to whom there, in a sentence or two."""
    said: dict[str, str] = {}
    for kind in dict.fromkeys(call.kind for call in calls):
        of_kind = [call for call in calls if call.kind == kind]
        different = {call.rules: call for call in of_kind}
        if len(different) == 1:
            said[kind] = describe_mask(of_kind[0])
        else:
            said[kind] = " ".join(f"Layer {call.layer}: {describe_mask(call)}" for call in of_kind)
    return said


def describe_mask(call: AttentionCall) -> str:
    """The rules of one attention."""
    if not call.rules:
        looked_at = "token of the memory" if call.kind == "cross" else "other, before and after it"
        return f"Every token may look at every {looked_at}."
    said = " ".join(describe_rule(rule) for rule in call.rules)
    idle = [rule for rule in call.rules if rule not in call.active_rules]
    if idle and not all(isinstance(rule, Causal) for rule in idle):
        said += " In a text as short as this one that forbids nothing."
    return said


def describe_rule(rule: MaskRule) -> str:
    if isinstance(rule, Causal):
        return "A token may look at itself and at what came before it, never at what comes after."
    if isinstance(rule, SlidingWindow):
        return f"Only what is near: fewer than {rule.width} places away (a window of width {rule.width})."
    if isinstance(rule, Strided):
        return (
            f"Only what is fewer than {rule.width} places away, and beyond that every {rule.width}th token (strided)."
        )
    return f"And the rule {rule} must allow it."


@dataclass(frozen=True)
class MaskView:
    """Who may attend to whom in one kind of attention, with the names of the tokens: rows look at columns."""

    kind: str
    layers: int
    words: str
    rows: list[str]
    columns: list[str]  # padding at their end
    allowed: NDArray[np.bool_]  # [Q, K]

    @property
    def title(self) -> str:
        return f"{WHO[self.kind]} ({self.layers} {'layer' if self.layers == 1 else 'layers'})"

    def text_lines(self) -> list[str]:
        """The picture in letters: ■ may be looked at, · may not. Columns have the numbers of rows, or names below."""
        width = len(str(len(self.columns) - 1)) + 1
        names = [f"{number:>{width - 1}} {name[:LONGEST_NAME]}" for number, name in enumerate(self.rows)]
        margin = max(map(len, names)) + 1
        lines = [" " * margin + "".join(f"{number:>{width}}" for number in range(len(self.columns)))]
        for name, line in zip(names, self.allowed, strict=True):
            lines.append(name.ljust(margin) + "".join(("■" if may else "·").rjust(width) for may in line))
        first_new = 0 if self.kind == "cross" else len(self.rows)
        named = [f"{number} {self.columns[number]}" for number in range(first_new, len(self.columns))]
        return [*lines, f"columns: {', '.join(named)}"] if named else lines

    def as_json(self) -> dict[str, Any]:
        describe_mask = {key: getattr(self, key) for key in ("kind", "layers", "words", "rows", "columns")}
        return {**describe_mask, "allowed": self.allowed.astype(int).tolist()}


@torch.no_grad()
def mask_views(pipeline: Pipeline, example: EncodedExample | Any) -> list[MaskView]:
    """The masks that are used for one text, as a Row, or one picture, while a longer text is in the batch."""
    with record_masks(pipeline.model) as calls:
        pipeline.model(*padded_batch(pipeline, example).arguments)
    said, views = describe_masks(calls), []
    for kind, words in said.items():
        of_kind = [call for call in calls if call.kind == kind]
        rows, columns = labels_of(pipeline, example if isinstance(example, EncodedExample) else None, kind)
        allowed_QK = of_kind[0].allowed()[0, : len(rows)].cpu().numpy()
        padding = ["<pad>"] * (allowed_QK.shape[1] - len(columns))
        views.append(MaskView(kind, len(of_kind), words, rows, columns + padding, allowed_QK))
    return views
