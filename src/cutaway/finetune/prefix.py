"""Prefix tuning: learned keys and values before those of the text, in every attention (Li & Liang 2021).

    keys of the text          with a prefix of two
      a b c d                 · · a b c d
    a ■                       ■ ■ ■                 all may look at the prefix, whatever the mask says of the text;
    b ■ ■                     ■ ■ ■ ■               it stands at no position: it is not turned, and no distance
    c ■ ■ ■                   ■ ■ ■ ■ ■             to it counts
    d ■ ■ ■ ■                 ■ ■ ■ ■ ■ ■

The cache holds the text alone, and the prefix is put before it at each step, so writing with a cache is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.config import FinetuneConfig
from cutaway.errors import ConfigError
from cutaway.finetune.patterns import find_modules, match_names, replace_module
from cutaway.finetune.text_probe import TextProbe
from cutaway.models.parts import copy_module_state
from cutaway.models.samples import sample_inputs
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.linear_attention import LinearAttention
from cutaway.nn.masks import Mask, MaskRule, Span
from cutaway.nn.recording import record_activations

DEFAULT_PARTS = ("*_attention",)  # all there are


class PrefixedAttention(MultiHeadAttention):
    """An attention with all its parts, and P keys and values [G,P,E] that it learns.

    Who watches it sees the weights of the text alone; the rest of each row is the prefix's.
    """

    def __init__(self, attention: MultiHeadAttention, keys: Tensor, values: Tensor):
        copy_module_state(self, attention)
        self.prefix_keys, self.prefix_values = nn.Parameter(keys), nn.Parameter(values)
        self.scores, self.weights = TextProbe(columns=self.length), TextProbe(columns=self.length)

    @property
    def length(self) -> int:
        return self.prefix_keys.size(1)

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | Tensor | None,
        bias: Tensor | None = None,
        relative_values: Callable[[Tensor], Tensor] | None = None,
        **none: Any,
    ) -> Tensor:
        """The prefix goes before the keys and values of the text. No distance to it counts."""
        position_arguments: dict[str, Any] = dict(none)
        if bias is not None:
            position_arguments["bias"] = F.pad(bias, (self.length, 0))
        if relative_values is not None:
            position_arguments["relative_values"] = lambda weights: relative_values(weights[..., self.length :])
        k, v = (
            torch.cat([prefix_GPE.expand(x.size(0), -1, -1, -1).to(x.dtype), x], dim=2)
            for prefix_GPE, x in ((self.prefix_keys, k), (self.prefix_values, v))
        )
        return super().attend(q, k, v, widen_mask(mask, self.length), **position_arguments)


@dataclass(frozen=True)
class TextRule:
    """A rule that holds for keys of the text; what stands before it, at positions below 0, may always be seen."""

    rule: MaskRule

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return self.rule.allows(query, key) | (key < 0)

    def reaches(self, first: int, last: int, key: Tensor) -> Tensor:
        return self.rule.reaches(first, last, key) | (key < 0)

    def allows_all(self, queries: Span, keys: Span) -> bool:
        return self.rule.allows_all(queries, Span(0, keys.stop))


def widen_mask(mask: Mask | Tensor | None, length: int) -> Mask | Tensor | None:
    """The same, with so many keys before the others that everybody may see."""
    if mask is None:
        return None
    if not isinstance(mask, Mask):
        return prepend_true(mask, length)
    return replace(
        mask,
        keys=Span(-length, mask.keys.stop),
        rules=tuple(TextRule(rule) for rule in mask.rules),
        is_token=None if mask.is_token is None else prepend_true(mask.is_token, length),
    )


def prepend_true(mask: Tensor, length: int) -> Tensor:
    """[..., K] -> [..., length + K]"""
    return torch.cat([mask.new_ones(*mask.shape[:-1], length), mask], dim=-1)


def add_prefix(model: nn.Module, finetune: FinetuneConfig) -> list[str]:
    """Give each attention that is named a prefix. -> their names

    It begins with the keys and values of some text, drawn by chance: vectors that the model knows what to do with.
    """
    chosen = match_names(
        finetune.target_modules or DEFAULT_PARTS, find_modules(model, MultiHeadAttention), "finetune.target_modules"
    )
    begins = keys_and_values(model, finetune.prompt_length)
    for name in chosen:
        attention = model.get_submodule(name)
        assert isinstance(attention, MultiHeadAttention)
        if isinstance(attention, LinearAttention):
            raise ConfigError(f"{name} is linear attention, which keeps sums and no keys. Use lora or prompt tuning.")
        replace_module(model, name, PrefixedAttention(attention, begins[f"{name}.k"], begins[f"{name}.v"]))
    return chosen


@torch.no_grad()
def keys_and_values(model: nn.Module, length: int) -> Mapping[str, Tensor]:
    """Of every attention, while the model reads something of this length: [G,length,E]"""
    was_training = model.training
    with record_activations(model.eval(), "*_attention.k", "*_attention.v") as seen:
        model(*sample_inputs(model, length))
    model.train(was_training)
    return {name: x_BGKE[0, :, torch.arange(length) % x_BGKE.size(2)].clone() for name, x_BGKE in seen.items()}
