"""Prompt tuning: learned vectors before the embedded text, read as if they were words (Lester et al. 2021).

    p₀ p₁ p₂ x₀ x₁ x₂ x₃  ──▶  layer 1  ──▶ ... ──▶  layer N  ──▶  · · · y₀ y₁ y₂ y₃
    └ learned ┘└─ text ─┘                                          └ cut off

All layers work on them like on tokens, so that a single matrix [P,D] can turn a model to something else. The text does
not know: at the input its positions are those that it had, and what comes out is as long as it is. With a cache the
prompt is read once, before the first token.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from cutaway.config import FinetuneConfig
from cutaway.errors import DataError
from cutaway.finetune.patterns import matching, parts_of, put
from cutaway.finetune.prefix import with_true
from cutaway.finetune.text_probe import TextProbe
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
    """A stack with all its layers, and a prompt [P,D] before whatever it reads.

    Who watches its probes sees the text alone: the prompt's rows and columns are not shown.
    """

    def __init__(self, stack: Stack, prompt: Tensor):
        nn.Module.__init__(self)
        self.layers, self.norm = stack.layers, stack.norm
        self.prompt = nn.Parameter(prompt)
        # what the probes do not show: rows of x, rows of attention, and of its scores columns besides
        self.hidden: tuple[dict[int, int], ...] = ({1: 0}, {2: 0}, {2: 0, 3: self.length})
        hide_prompt(self, *self.hidden)

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
        in_cache = cache.layers[0].self_attention.length if cache else 0
        added = 0 if in_cache else self.length  # later steps find the prompt in the cache
        if added:
            x = torch.cat([self.prompt.expand(x.size(0), -1, -1).to(x.dtype), x], dim=1)
        self.check(in_cache + x.size(1))
        for axis, hidden in ((1, self.hidden[0]), (2, self.hidden[1]), (2, self.hidden[2])):
            hidden[axis] = added
        x = super().forward(x, self.moved(mask, added), memory, self.moved(memory_mask, added, of_text=False), cache)
        return x[:, added:]

    def new_cache(self, padding: Tensor | None = None) -> KVCache:
        return PromptedCache(self.length, len(self.layers), padding)

    def moved(self, mask: Mask | None, added: int, of_text: bool = True) -> Mask | None:
        """The mask with the text behind the prompt; `added` rows of that are among the queries. A memory stays."""
        if mask is None:
            return None
        queries = Span(mask.queries.start + self.length - added, mask.queries.stop + self.length)
        if not of_text:
            return replace(mask, queries=queries)
        is_token = None if mask.is_token is None else with_true(mask.is_token, self.length)
        return replace(mask, queries=queries, keys=Span(0, mask.keys.stop + self.length), is_token=is_token)

    def check(self, length: int) -> None:
        """Most schemes go on beyond the last position, or have nothing to do here; a rotation has a table."""
        position = next((part for part in self.modules() if isinstance(part, Position)), None)
        if position is not None and type(position).rotate is not Position.rotate and length > position.max_length:
            raise DataError(
                f"the text has {length - self.length} tokens, and {self.length} more stand before it, which were "
                f"learned; this model has positions for {position.max_length} in all. Shorten the text."
            )


class PromptedCache(KVCache):
    """A cache whose first places are the prompt's: its lengths are those of the text."""

    def __init__(self, prompt_length: int, n_layers: int, padding: Tensor | None = None):
        super().__init__(n_layers, padding)
        self.prompt_length = prompt_length

    @property
    def length(self) -> int:
        return max(super().length - self.prompt_length, 0)


def hide_prompt(stack: Stack, rows: dict[int, int], queries: dict[int, int], scores: dict[int, int]) -> None:
    """Replace the probes that see positions by some that show the text alone."""
    for name, part in list(stack.named_modules()):
        hidden: dict[str, dict[int, int]] = {}
        if isinstance(part, MultiHeadAttention):
            of_memory = name.endswith("cross_attention")
            hidden = dict.fromkeys(("q", "heads") if of_memory else ("q", "k", "v", "heads"), queries)
            hidden |= dict.fromkeys(("scores", "weights"), queries if of_memory else scores)
        elif isinstance(part, Residual):
            hidden = {"update": rows, "stream": rows}
        elif isinstance(part, Experts):
            hidden = {"router": rows}
        elif isinstance(part, FeedForward | GatedFeedForward) and ".experts." not in name:
            hidden = {"hidden": rows}
        for probe, places in hidden.items():
            setattr(part, probe, TextProbe(places))


def add_prompt(model: nn.Module, finetune: FinetuneConfig) -> list[str]:
    """Put a prompt before what a stack reads: the decoder of a decoder, else the encoder. -> the names of the stacks"""
    stacks = parts_of(model, Stack)
    usual = ("encoder",) if "encoder" in stacks else ("decoder",)
    chosen = matching(finetune.parts or usual, stacks, "finetune.parts")
    for name in chosen:
        stack = model.get_submodule(name)
        assert isinstance(stack, Stack)
        put(model, name, PromptedStack(stack, some_vectors(model, name, finetune.length)))
    return chosen


@torch.no_grad()
def some_vectors(model: nn.Module, stack: str, length: int) -> Tensor:
    """What a prompt begins with [P,D]: embedded tokens, drawn by chance; for images, noise."""
    embedding = next(getattr(model, name) for name in EMBEDDINGS[stack] if hasattr(model, name))
    if not isinstance(embedding, InputEmbedding):
        return 0.02 * torch.randn(length, embedding.project.out_features).to(embedding.project.weight)
    was_training = embedding.training
    ids = torch.cat([sample_ids(embedding.eval(), 1) for _ in range(length)])  # a text of one token each: no position
    vectors_PD: Tensor = embedding(ids)[:, 0]
    embedding.train(was_training)
    return vectors_PD.clone()
