"""The masks that a model uses, recorded at the calls of its attention layers, and a description of them."""

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

ATTENTION_NAME = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.(self|cross)_attention$")
TITLES = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Cross-attention, from the decoder to the encoder's memory",
}
MAX_LABEL = 14  # characters of a token before a row


@dataclass(frozen=True)
class AttentionCall:
    """One call of an attention layer: its name, and the mask that it received."""

    name: str  # such as encoder.layers.0.self_attention
    mask: Mask | Tensor | None
    shape: tuple[int, int, int]  # B, Q, K
    device: torch.device
    prompt: tuple[int, int] = (0, 0)  # queries and keys of a learned prompt, in front of the text

    @property
    def kind(self) -> str:
        """ "encoder", "decoder" or "cross", as in a Trace."""
        stack, _, side = self.name_parts.groups()
        return "cross" if side == "cross" else str(stack)

    @property
    def layer(self) -> int:
        return int(self.name_parts.group(2))

    @property
    def name_parts(self) -> re.Match[str]:
        found = ATTENTION_NAME.match(self.name)
        assert found, f"{self.name} is not an attention of a layer"
        return found

    def allowed(self) -> Tensor:
        """The mask as a matrix, without a learned prompt; True = may attend. -> [B, Q, K]"""
        queries, keys = self.prompt
        return self.dense_mask()[:, queries:, keys:]

    def dense_mask(self) -> Tensor:
        dense = self.mask.dense(self.device) if isinstance(self.mask, Mask) else self.mask
        if dense is None:
            return torch.ones(self.shape, dtype=torch.bool, device=self.device)
        while dense.dim() < 4:
            dense = dense[None]
        return dense.any(dim=1).expand(self.shape)  # allowed for any head

    @property
    def rules(self) -> tuple[MaskRule, ...]:
        return self.mask.rules if isinstance(self.mask, Mask) else ()

    @property
    def active_rules(self) -> tuple[MaskRule, ...]:
        """The rules that mask something for these lengths."""
        return self.mask.active_rules if isinstance(self.mask, Mask) else ()


@contextmanager
def record_masks(model: nn.Module) -> Iterator[list[AttentionCall]]:
    """Record one `AttentionCall` for each attention layer that runs inside the `with` statement, in order."""
    calls: list[AttentionCall] = []

    def hook_for(name: str) -> Any:
        def hook(attention: MultiHeadAttention, positional: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            arguments = inspect.signature(attention.forward).bind(*positional, **keywords).arguments
            x, memory = arguments["x"], arguments.get("memory")
            keys = x if memory is None else memory
            shape, probe = (x.size(0), x.size(1), keys.size(1)), attention.weights
            # a prompt adds rows and columns to the mask; a prefix does not
            hidden = probe.hidden if isinstance(probe, TextProbe) and 2 in probe.hidden else {}
            prompt = hidden.get(2, 0), hidden.get(3, 0)
            calls.append(AttentionCall(name, arguments.get("mask"), shape, x.device, prompt))

        return hook

    attentions = {name: part for name, part in model.named_modules() if isinstance(part, MultiHeadAttention)}
    hooks = [part.register_forward_pre_hook(hook_for(name), with_kwargs=True) for name, part in attentions.items()]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def describe_masks(calls: Sequence[AttentionCall]) -> dict[str, str]:
    """Kind of attention -> its mask in one or two sentences."""
    sentences: dict[str, str] = {}
    for kind in dict.fromkeys(call.kind for call in calls):
        same_kind = [call for call in calls if call.kind == kind]
        if len({call.rules for call in same_kind}) == 1:
            sentences[kind] = describe_mask(same_kind[0])
        else:
            sentences[kind] = " ".join(f"Layer {call.layer}: {describe_mask(call)}" for call in same_kind)
    return sentences


def describe_mask(call: AttentionCall) -> str:
    if not call.rules:
        keys = "token of the memory" if call.kind == "cross" else "token, before and after it"
        return f"Every token attends to every {keys}."
    sentences = " ".join(describe_rule(rule) for rule in call.rules)
    inactive = [rule for rule in call.rules if rule not in call.active_rules]
    if inactive and not all(isinstance(rule, Causal) for rule in inactive):
        sentences += " This text is so short that this masks nothing."
    return sentences


def describe_rule(rule: MaskRule) -> str:
    if isinstance(rule, Causal):
        return "Causal: a token attends to itself and to earlier tokens, never to later ones."
    if isinstance(rule, SlidingWindow):
        return f"Window: a token attends to tokens that are fewer than {rule.width} positions away."
    if isinstance(rule, Strided):
        return (
            f"Strided: a token attends to tokens that are fewer than {rule.width} positions away, "
            f"and to every {rule.width}th token beyond."
        )
    return f"Rule: {rule}."


@dataclass(frozen=True)
class MaskView:
    """The mask of one kind of attention, with its tokens: rows are queries, columns are keys."""

    kind: str
    layers: int
    words: str
    rows: list[str]
    columns: list[str]  # with padding at the end
    allowed: NDArray[np.bool_]  # [Q, K]

    @property
    def title(self) -> str:
        return f"{TITLES[self.kind]} ({self.layers} {'layer' if self.layers == 1 else 'layers'})"

    def text_lines(self) -> list[str]:
        """The mask as text: ■ is allowed, · is masked. Columns are numbered; a last line names those without a row."""
        width = len(str(len(self.columns) - 1)) + 1
        names = [f"{number:>{width - 1}} {name[:MAX_LABEL]}" for number, name in enumerate(self.rows)]
        margin = max(map(len, names)) + 1
        lines = [" " * margin + "".join(f"{number:>{width}}" for number in range(len(self.columns)))]
        for name, line in zip(names, self.allowed, strict=True):
            lines.append(name.ljust(margin) + "".join(("■" if allowed else "·").rjust(width) for allowed in line))
        first = 0 if self.kind == "cross" else len(self.rows)
        columns = [f"{number} {self.columns[number]}" for number in range(first, len(self.columns))]
        return [*lines, f"columns: {', '.join(columns)}"] if columns else lines

    def as_json(self) -> dict[str, Any]:
        fields = {key: getattr(self, key) for key in ("kind", "layers", "words", "rows", "columns")}
        return {**fields, "allowed": self.allowed.astype(int).tolist()}


@torch.no_grad()
def mask_views(pipeline: Pipeline, example: EncodedExample | Any) -> list[MaskView]:
    """The masks for one encoded text, or one image, in a batch with a longer text."""
    with record_masks(pipeline.model) as calls:
        pipeline.model(*padded_batch(pipeline, example).arguments)
    views = []
    for kind, words in describe_masks(calls).items():
        same_kind = [call for call in calls if call.kind == kind]
        rows, columns = labels_of(pipeline, example if isinstance(example, EncodedExample) else None, kind)
        allowed_QK = same_kind[0].allowed()[0, : len(rows)].cpu().numpy()
        padding = ["<pad>"] * (allowed_QK.shape[1] - len(columns))
        views.append(MaskView(kind, len(same_kind), words, rows, columns + padding, allowed_QK))
    return views
