"""A layer of the encoder or decoder, and a stack of them: figure 1 of the paper.

The backward pass runs the steps of a chain in reverse order. The gradient of a sum goes to both terms.
"""

from __future__ import annotations

from typing import NamedTuple

from cutaway.twin.attention import KVCache, MultiHeadAttention
from cutaway.twin.basics import FeedForward, GatedFeedForward, MakeNorm, Norm
from cutaway.twin.modules import Dropout, ForwardResult, Module, Probe, Variable
from cutaway.twin.ops import Array, Backward, Op, identity

AnyFeedForward = FeedForward | GatedFeedForward


class Residual(Module):
    """x + f(x) for a sub-layer f. Probes: `update` is the output of f, `stream` the output of the residual."""

    has_normed_output = False

    def __init__(self, make_norm: MakeNorm, dropout: float):
        self.norm = make_norm()
        self.dropout = Dropout(dropout)
        self.update, self.stream = Probe(), Probe()

    def __call__(self, x: Array, sublayer: Op) -> ForwardResult:
        raise NotImplementedError

    def apply_sublayer(self, x: Array, sublayer: Op) -> ForwardResult:
        """dropout(sublayer(x)), with the probe `update` before the dropout"""
        y, back_sublayer = sublayer(x)
        y, back_update = self.update(y)
        y, back_dropout = self.dropout(y)
        return y, lambda dy: back_sublayer(back_update(back_dropout(dy)))


class PostNorm(Residual):
    """norm(x + dropout(f(x)))"""

    has_normed_output = True

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
    """x + dropout(norm₂(f(norm(x)))): pre-norm around the sub-layer norm₂(f(·))"""

    def __init__(self, make_norm: MakeNorm, dropout: float):
        super().__init__(make_norm, dropout)
        self.norm_after = make_norm()

    def __call__(self, x: Array, sublayer: Op) -> ForwardResult:
        def sublayer_and_norm(x: Array) -> ForwardResult:
            y, back_sublayer = sublayer(x)
            y, back_norm = self.norm_after(y)
            return y, lambda dy: back_sublayer(back_norm(dy))

        return super().__call__(x, sublayer_and_norm)


class StackInputs(NamedTuple):
    """Inputs that all layers of a stack share."""

    mask: Array | None = None  # broadcastable to [B,1,Q,K], True = may attend; None: everything
    memory: Variable | None = None  # [B,S,D]
    memory_mask: Array | None = None
    cache: KVCache | None = None
    forward_only: bool = False  # no backward pass, so intermediate values are not kept


class Layer(Module):
    """Self-attention, cross-attention if there is a memory, feed-forward; each inside a residual connection."""

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
        x, back_feed_forward = self.feed_forward_residual(x, self.feed_forward)
        return x, lambda dx: back_self(back_cross(back_feed_forward(dx)))


class ParallelLayer(Module):
    """x + attention(norm(x)) + feed_forward(norm(x))"""

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
        sublayers: list[Op] = [self_attend(self.self_attention, inputs, index), self.feed_forward]
        if self.cross_attention:
            sublayers.append(cross_attend(self.cross_attention, inputs, index))

        def sum_of_sublayers(x: Array) -> ForwardResult:
            results = [sublayer(x) for sublayer in sublayers]
            y = sum(y for y, _ in results)
            return y, lambda dy: sum(back(dy) for _, back in results)  # type: ignore[return-value]

        return self.residual(x, sum_of_sublayers)


def self_attend(attention: MultiHeadAttention, inputs: StackInputs, index: int) -> Op:
    """Self-attention as a function of x alone."""
    if inputs.cache is None:
        return lambda x: attention.self_attend(x, inputs.mask)
    cache, start = inputs.cache.self_attention[index], inputs.cache.length
    return lambda x: attention.self_attend(x, inputs.mask, cache, start)


def cross_attend(attention: MultiHeadAttention, inputs: StackInputs, index: int) -> Op:
    """Cross-attention as a function of x alone."""
    assert inputs.memory is not None, "cross-attention needs a memory"
    memory, cache = inputs.memory, inputs.cache.cross_attention[index] if inputs.cache else None
    return lambda x: attention.cross_attend(x, memory, inputs.memory_mask, cache)


class Stack(Module):
    """N layers, and a last norm if the layers do not end with one (pre-norm)."""

    def __init__(self, layers: list[Layer | ParallelLayer], norm: Norm | None):
        self.layers, self.norm = layers, norm

    def __call__(self, x: Array, inputs: StackInputs) -> ForwardResult:
        backs = []
        for index, layer in enumerate(self.layers):
            x, back = layer(x, inputs, index)
            if not inputs.forward_only:
                backs.append(back)  # the closure keeps the values that the layer computed
        x, back_norm = self.norm(x) if self.norm else (x, identity)

        def backward(dx: Array) -> Array:
            if inputs.forward_only:
                raise RuntimeError("backward after a forward pass with forward_only=True. Run it without forward_only.")
            dx = back_norm(dx)
            for back in reversed(backs):
                dx = back(dx)
            return dx

        return x, backward
