"""Prompt tuning: learned vectors before the embedded text, like additional tokens (Lester et al. 2021).

    p₀ p₁ p₂ x₀ x₁ x₂ x₃  ──▶  layer 1  ──▶ ... ──▶  layer N  ──▶  · · · y₀ y₁ y₂ y₃
    └ learned ┘└─ text ─┘                                          └ removed

All layers process the prompt like tokens, so one matrix [P,D] can change the task of a model. At the input, the text
keeps its positions, and the output has the length of the text. With a cache, the prompt is read once, before the first
token.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from cutaway.config import FinetuneConfig
from cutaway.errors import DataError
from cutaway.finetune.patterns import find_modules, match_names, replace_module
from cutaway.finetune.prefix import prepend_true
from cutaway.finetune.text_probe import PROMPT_ROWS, TextProbe
from cutaway.models.samples import sample_ids
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.cache import KVCache
from cutaway.nn.embedding import InputEmbedding
from cutaway.nn.experts import Experts
from cutaway.nn.feedforward import FeedForward
from cutaway.nn.gated_feedforward import GatedFeedForward
from cutaway.nn.layers import Stack
from cutaway.nn.masks import Mask, Span
from cutaway.nn.positions import Position
from cutaway.nn.residual import Residual

EMBEDDINGS = {"encoder": ("source_embedding", "embedding"), "decoder": ("target_embedding", "embedding")}


class PromptedStack(Stack):
    """A stack with a prompt [P,D] before its input. Its probes see only the text, not the prompt."""

    def __init__(self, stack: Stack, prompt: Tensor):
        nn.Module.__init__(self)
        self.layers, self.norm = stack.layers, stack.norm
        self.prompt = nn.Parameter(prompt)
        hide_prompt(self, self.length)

    @property
    def length(self) -> int:
        return self.prompt.size(0)

    def forward(
        self,
        x: Tensor,
        mask: Mask | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        if cache and not isinstance(cache, PromptedCache):
            raise DataError("this model has a learned prompt and got a KVCache without one. Use model.new_cache().")
        in_cache = cache.n_keys if cache else 0
        added = 0 if in_cache else self.length  # in later steps the prompt is in the cache
        if added:
            x = torch.cat([self.prompt.expand(x.size(0), -1, -1).to(x.dtype), x], dim=1)
        self.check_length(in_cache + x.size(1))
        masks = self.shift_mask(mask, added), memory, self.shift_mask(memory_mask, added, shift_keys=False)
        before = PROMPT_ROWS.set(added)
        try:
            return super().forward(x, *masks, cache)[:, added:]
        finally:
            PROMPT_ROWS.reset(before)

    def new_cache(self, padding: Tensor | None = None) -> KVCache:
        if padding is not None:
            raise DataError(
                "a model with a learned prompt does not support padding on the left. Use texts of the same length."
            )
        return PromptedCache(self.length, len(self.layers))

    def shift_mask(self, mask: Mask | None, added: int, shift_keys: bool = True) -> Mask | None:
        """Shift the text by the length of the prompt. `added`: prompt rows among the queries. Keys of a memory stay."""
        if mask is None:
            return None
        queries = Span(mask.queries.start + self.length - added, mask.queries.stop + self.length)
        if not shift_keys:
            return replace(mask, queries=queries)
        is_token = None if mask.is_token is None else prepend_true(mask.is_token, self.length)
        return replace(mask, queries=queries, keys=Span(0, mask.keys.stop + self.length), is_token=is_token)

    def check_length(self, length: int) -> None:
        """Raise an error if prompt and text exceed the table of a rotary position scheme. Others have no limit."""
        position = next((part for part in self.modules() if isinstance(part, Position)), None)
        if position is not None and type(position).rotate is not Position.rotate and length > position.max_length:
            raise DataError(
                f"the text has {length - self.length} tokens and the learned prompt {self.length}; this model has "
                f"{position.max_length} positions. Shorten the text."
            )


class PromptedCache(KVCache):
    """A cache that starts with the prompt. `length` is the length of the text without it."""

    def __init__(self, prompt_length: int, n_layers: int):
        super().__init__(n_layers)
        self.prompt_length = prompt_length

    @property
    def n_keys(self) -> int:
        return self.length + self.prompt_length if self.length else 0


def hide_prompt(stack: Stack, length: int) -> None:
    """Replace the probes by ones that see only the text."""
    for name, part in list(stack.named_modules()):
        if isinstance(part, MultiHeadAttention):
            is_cross = name.endswith("cross_attention")
            for probe in ("q", "heads") if is_cross else ("q", "k", "v", "heads"):
                setattr(part, probe, TextProbe(rows=2))
            part.scores, part.weights = (TextProbe(rows=2, columns=0 if is_cross else length) for _ in range(2))
        elif isinstance(part, Residual):
            part.update, part.stream = TextProbe(rows=1), TextProbe(rows=1)
        elif isinstance(part, Experts):
            part.router = TextProbe(rows=1)
        elif isinstance(part, FeedForward | GatedFeedForward) and ".experts." not in name:
            part.hidden = TextProbe(rows=1)


def add_prompt(model: nn.Module, finetune: FinetuneConfig) -> list[str]:
    """Add a prompt to the encoder, or to the decoder of a decoder-only model. Return the names of the stacks."""
    stacks = find_modules(model, Stack)
    default = ("encoder",) if "encoder" in stacks else ("decoder",)
    chosen = match_names(finetune.target_modules or default, stacks, "finetune.target_modules")
    for name in chosen:
        stack = model.get_submodule(name)
        assert isinstance(stack, Stack)
        replace_module(model, name, PromptedStack(stack, initial_prompt(model, name, finetune.prompt_length)))
    return chosen


@torch.no_grad()
def initial_prompt(model: nn.Module, stack: str, length: int) -> Tensor:
    """The initial prompt [P,D]: the embeddings of random tokens; for images, noise."""
    embedding = next(getattr(model, name) for name in EMBEDDINGS[stack] if hasattr(model, name))
    if not isinstance(embedding, InputEmbedding):
        return 0.02 * torch.randn(length, embedding.project.out_features).to(embedding.project.weight)
    was_training = embedding.training
    # P texts of one token, so all have position 0
    ids = torch.cat([sample_ids(embedding.eval(), 1) for _ in range(length)])
    vectors_PD: Tensor = embedding(ids)[:, 0]
    embedding.train(was_training)
    return vectors_PD.clone()
