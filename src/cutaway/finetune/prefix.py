"""Prefix tuning: learned keys and values before those of the text, in each attention (Li & Liang 2021).

    keys of the text          with a prefix of two
      a b c d                 · · a b c d
    a ■                       ■ ■ ■                 The mask of the text does not apply to the prefix: every query
    b ■ ■                     ■ ■ ■ ■               may attend to it. The prefix has no position, so it is not
    c ■ ■ ■                   ■ ■ ■ ■ ■             rotated, and distances to it get no bias.
    d ■ ■ ■ ■                 ■ ■ ■ ■ ■ ■

The cache contains only the text. Each step adds the prefix, so decoding with a cache needs no special case.
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

DEFAULT_MODULES = ("*_attention",)  # all attention modules


class PrefixedAttention(MultiHeadAttention):
    """An attention module with P learned keys and values [G,P,E].

    Its probes see only the weights of the text. The rest of each row belongs to the prefix.
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
        **others: Any,
    ) -> Tensor:
        """Put the prefix before the keys and values of the text, with a bias of 0."""
        position_arguments: dict[str, Any] = dict(others)
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
    """A rule that applies to the text only. Keys at positions below 0, the prefix, are always allowed."""

    rule: MaskRule

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return self.rule.allows(query, key) | (key < 0)

    def reaches(self, first: int, last: int, key: Tensor) -> Tensor:
        return self.rule.reaches(first, last, key) | (key < 0)

    def allows_all(self, queries: Span, keys: Span) -> bool:
        return self.rule.allows_all(queries, Span(0, keys.stop))


def widen_mask(mask: Mask | Tensor | None, length: int) -> Mask | Tensor | None:
    """The mask with `length` more keys at the start, which every query may attend to."""
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
    """Add a prefix to each attention that `target_modules` matches. Return their names.

    The prefix starts as the keys and values of a random text, because the model can already use such vectors.
    """
    chosen = match_names(
        finetune.target_modules or DEFAULT_MODULES, find_modules(model, MultiHeadAttention), "finetune.target_modules"
    )
    initial = keys_and_values(model, finetune.prompt_length)
    for name in chosen:
        attention = model.get_submodule(name)
        assert isinstance(attention, MultiHeadAttention)
        if isinstance(attention, LinearAttention):
            raise ConfigError(f"{name} is linear attention, which has no keys for a prefix. Use lora or prompt.")
        replace_module(model, name, PrefixedAttention(attention, initial[f"{name}.k"], initial[f"{name}.v"]))
    return chosen


@torch.no_grad()
def keys_and_values(model: nn.Module, length: int) -> Mapping[str, Tensor]:
    """The keys and values of each attention for a random text of this length: [G,length,E]"""
    was_training = model.training
    with record_activations(model.eval(), "*_attention.k", "*_attention.v") as recorded:
        model(*sample_inputs(model, length))
    model.train(was_training)
    return {name: x_BGKE[0, :, torch.arange(length) % x_BGKE.size(2)].clone() for name, x_BGKE in recorded.items()}
