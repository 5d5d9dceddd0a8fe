"""A layer of the encoder or decoder, and a stack of them: figure 1 of the paper.

The way back through a chain of steps takes them in the opposite order; through a sum it takes both ways, and adds up
what they bring.
"""

from __future__ import annotations

from typing import NamedTuple

from cutaway.twin.attention import Cache, MultiHeadAttention
from cutaway.twin.basics import FeedForward, GatedFeedForward, MakeNorm, Norm
from cutaway.twin.modules import Dropout, ForwardResult, Module, Probe, Variable
from cutaway.twin.ops import Array, Backward, Op, identity

AnyFeedForward = FeedForward | GatedFeedForward


class Residual(Module):
    """x plus what a sub-layer makes of it. A sum sends its gradient back unchanged along both ways."""

    ends_normed = False

    def __init__(self, make_norm: MakeNorm, dropout: float):
        self.norm = make_norm()
        self.dropout = Dropout(dropout)
        self.update, self.stream = Probe(), Probe()

    def __call__(self, x: Array, sublayer: Op) -> ForwardResult:
        raise NotImplementedError

    def apply_sublayer(self, x: Array, sublayer: Op) -> ForwardResult:
        """dropout(sublayer(x)), seen by the probe `update`"""
        y, back_sublayer = sublayer(x)
        y, back_update = self.update(y)
        y, back_dropout = self.dropout(y)
        return y, lambda dy: back_sublayer(back_update(back_dropout(dy)))


class PostNorm(Residual):
    """norm(x + dropout(f(x)))"""

    ends_normed = True

    def __call__(self, x: Array, sublayer: Op) -> ForwardResult:
        y, back_update = self.apply_sublayer(x, sublayer)
        y, back_norm = self.norm(x + y)
        y, back_stream = self.stream(y)

        def backward(dy: Array) -> Array:
            d_sum = back_norm(back_stream(dy))
            return d_sum + back_update(d_sum)

        return y, backward


class PreNorm(Residual):
    """x + dropout(f(norm(x)))"""

    def __call__(self, x: Array, sublayer: Op) -> ForwardResult:
        normed, back_norm = self.norm(x)
        y, back_update = self.apply_sublayer(normed, sublayer)
        y, back_stream = self.stream(x + y)

        def backward(dy: Array) -> Array:
            dy = back_stream(dy)
            return dy + back_norm(back_update(dy))

        return y, backward


class SandwichNorm(PreNorm):
    """x + dropout(norm₂(f(norm(x)))): the second norm belongs to the sub-layer, and the rest is pre-norm."""

    def __init__(self, make_norm: MakeNorm, dropout: float):
        super().__init__(make_norm, dropout)
        self.norm_after = make_norm()

    def __call__(self, x: Array, sublayer: Op) -> ForwardResult:
        def normed_after(x: Array) -> ForwardResult:
            y, back_sublayer = sublayer(x)
            y, back_norm = self.norm_after(y)
            return y, lambda dy: back_sublayer(back_norm(dy))

        return super().__call__(x, normed_after)


class StackInputs(NamedTuple):
    """What the layers of a stack may see: of x itself, of the memory, and of what they have read before."""

    mask: Array | None = None  # broadcastable to [B,1,Q,K], True = may attend; None: everything
    memory: Variable | None = None  # [B,S,D]
    memory_mask: Array | None = None
    cache: Cache | None = None
    forward_only: bool = False  # nobody will go back, so nothing need be kept for it


class Layer(Module):
    """Look around, look at the memory (if there is cross-attention), then think; with a residual for each."""

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        self_attention_residual: Residual,
        cross_attention: MultiHeadAttention | None,
        cross_attention_residual: Residual | None,
        feed_forward: AnyFeedForward,
        feed_forward_residual: Residual,
    ):
        self.self_attention, self.self_attention_residual = self_attention, self_attention_residual
        self.cross_attention, self.cross_attention_residual = cross_attention, cross_attention_residual
        self.feed_forward, self.feed_forward_residual = feed_forward, feed_forward_residual

    def __call__(self, x: Array, inputs: StackInputs, index: int) -> ForwardResult:
        x, back_self = self.self_attention_residual(x, self_attend(self.self_attention, inputs, index))
        back_cross: Backward = identity
        if self.cross_attention and self.cross_attention_residual:
            x, back_cross = self.cross_attention_residual(x, cross_attend(self.cross_attention, inputs, index))
        x, back_think = self.feed_forward_residual(x, self.feed_forward)
        return x, lambda dx: back_self(back_cross(back_think(dx)))


class ParallelLayer(Module):
    """All at the same time: x + attention(norm(x)) + feed_forward(norm(x))"""

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        cross_attention: MultiHeadAttention | None,
        feed_forward: AnyFeedForward,
        residual: Residual,
    ):
        self.self_attention, self.cross_attention = self_attention, cross_attention
        self.feed_forward, self.residual = feed_forward, residual

    def __call__(self, x: Array, inputs: StackInputs, index: int) -> ForwardResult:
        steps: list[Op] = [self_attend(self.self_attention, inputs, index), self.feed_forward]
        if self.cross_attention:
            steps.append(cross_attend(self.cross_attention, inputs, index))

        def all_at_once(x: Array) -> ForwardResult:
            done = [step(x) for step in steps]
            return sum(y for y, _ in done), lambda dy: sum(back(dy) for _, back in done)  # type: ignore[return-value]

        return self.residual(x, all_at_once)


def self_attend(attention: MultiHeadAttention, inputs: StackInputs, index: int) -> Op:
    """Self-attention as a function of x alone."""
    if inputs.cache is None:
        return lambda x: attention.self_attend(x, inputs.mask)
    own, start = inputs.cache.own[index], inputs.cache.length
    return lambda x: attention.self_attend(x, inputs.mask, own, start)


def cross_attend(attention: MultiHeadAttention, inputs: StackInputs, index: int) -> Op:
    """Cross-attention as a function of x alone."""
    assert inputs.memory is not None  # whoever has cross-attention has a memory
    memory, crossed = inputs.memory, inputs.cache.crossed[index] if inputs.cache else None
    return lambda x: attention.cross_attend(x, memory, inputs.memory_mask, crossed)


class Stack(Module):
    """Layers, and the norm that ends a stack whose layers do not end normed."""

    def __init__(self, layers: list[Layer | ParallelLayer], norm: Norm | None):
        self.layers, self.norm = layers, norm

    def __call__(self, x: Array, inputs: StackInputs) -> ForwardResult:
        backs = []
        for index, layer in enumerate(self.layers):
            x, back = layer(x, inputs, index)
            if not inputs.forward_only:
                backs.append(back)  # and with it all that the layer has computed
        x, back_norm = self.norm(x) if self.norm else (x, identity)

        def backward(dx: Array) -> Array:
            if inputs.forward_only:
                raise RuntimeError("nothing was kept for the way back: this forward was for writing text.")
            dx = back_norm(dx)
            for back in reversed(backs):
                dx = back(dx)
            return dx

        return x, backward
