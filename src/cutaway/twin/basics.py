"""Operations with parameters: linear, norms, feed-forward, embedding, output head."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from cutaway.errors import DataError
from cutaway.twin import ops
from cutaway.twin.modules import Dropout, ForwardResult, Module, Parameter, Probe
from cutaway.twin.ops import Array, Op, identity
from cutaway.twin.positions import Position


class Linear(Module):
    """y = x Wᵀ + b"""

    def __init__(self, d_in: int, d_out: int, bias: bool = True):
        self.weight = Parameter(d_out, d_in)
        self.bias = Parameter(d_out) if bias else None

    def __call__(self, x: Array) -> ForwardResult:
        y, back = ops.linear(x, self.weight.value, self.bias.value if self.bias else None)

        def backward(dy: Array) -> Array:
            dx, d_weight, d_bias = back(dy)
            self.weight.add(d_weight)
            if self.bias:
                self.bias.add(d_bias)
            return dx

        return y, backward


class LayerNorm(Module):
    def __init__(self, width: int, epsilon: float):
        self.epsilon = epsilon
        self.weight, self.bias = Parameter(width, fill=1.0), Parameter(width)

    def __call__(self, x: Array) -> ForwardResult:
        y, back = ops.layer_norm(x, self.weight.value, self.bias.value, self.epsilon)

        def backward(dy: Array) -> Array:
            dx, d_weight, d_bias = back(dy)
            self.weight.add(d_weight)
            self.bias.add(d_bias)
            return dx

        return y, backward


class RMSNorm(Module):
    def __init__(self, width: int, epsilon: float):
        self.epsilon = epsilon
        self.weight = Parameter(width, fill=1.0)

    def __call__(self, x: Array) -> ForwardResult:
        y, back = ops.rms_norm(x, self.weight.value, self.epsilon)

        def backward(dy: Array) -> Array:
            dx, d_weight = back(dy)
            self.weight.add(d_weight)
            return dx

        return y, backward


Norm = LayerNorm | RMSNorm
MakeNorm = Callable[[], Norm]


class FeedForward(Module):
    """FFN(x) = activation(x W₁ + b₁) W₂ + b₂    [B,T,D] -> [B,T,F] -> [B,T,D]"""

    def __init__(self, d_model: int, d_ff: int, activation: Op, bias: bool):
        self.expand, self.contract = Linear(d_model, d_ff, bias), Linear(d_ff, d_model, bias)
        self.activation = activation
        self.hidden = Probe()

    def __call__(self, x: Array) -> ForwardResult:
        expanded, back_expand = self.expand(x)
        active, back_activation = self.activation(expanded)
        hidden, back_hidden = self.hidden(active)
        y, back_contract = self.contract(hidden)
        return y, lambda dy: back_expand(back_activation(back_hidden(back_contract(dy))))


class GatedFeedForward(Module):
    """FFN(x) = (activation(x W) ⊙ x V) W₂    The product rule: each factor's gradient is dy times the other factor."""

    def __init__(self, d_model: int, d_ff: int, activation: Op, bias: bool):
        self.gate, self.expand = Linear(d_model, d_ff, bias), Linear(d_model, d_ff, bias)
        self.contract = Linear(d_ff, d_model, bias)
        self.activation = activation
        self.hidden = Probe()

    def __call__(self, x: Array) -> ForwardResult:
        gate, back_gate = self.gate(x)
        gate, back_activation = self.activation(gate)
        expanded, back_expand = self.expand(x)
        hidden, back_hidden = self.hidden(gate * expanded)
        y, back_contract = self.contract(hidden)

        def backward(dy: Array) -> Array:
            d_hidden = back_hidden(back_contract(dy))
            dx: Array = back_gate(back_activation(d_hidden * expanded)) + back_expand(d_hidden * gate)
            return dx

        return y, backward


class TokenEmbedding(Module):
    """W[ids] · scale"""

    def __init__(self, vocab_size: int, d_model: int, scaled: bool):
        self.weight = Parameter(vocab_size, d_model)
        self.scale = math.sqrt(d_model) if scaled else 1.0

    def __call__(self, ids: Array) -> ForwardResult:
        y, back = ops.embedding(ids, self.weight.value)
        return y * self.scale, lambda dy: self.weight.add(back(dy * self.scale))


class InputEmbedding(Module):
    """dropout(norm(position.embed(tokens)))    ids [B,T] -> [B,T,D]; ids have no gradient"""

    def __init__(self, tokens: TokenEmbedding, position: Position, max_length: int, dropout: float, norm: Norm | None):
        self.tokens, self.position, self.norm, self.max_length = tokens, position, norm, max_length
        self.dropout = Dropout(dropout)
        self.embedded = Probe()

    def __call__(self, ids: Array, start: int = 0) -> ForwardResult:
        self.check(start + ids.shape[1])
        x, back_tokens = self.tokens(ids)
        x, back_position = self.position.embed(x, np.arange(start, start + ids.shape[1]))
        x, back_norm = self.norm(x) if self.norm else (x, identity)
        x, back_dropout = self.dropout(x)
        x, back_embedded = self.embedded(x)
        return x, lambda dx: back_tokens(back_position(back_norm(back_dropout(back_embedded(dx)))))

    def check(self, length: int) -> None:
        if length > self.max_length:
            raise DataError(
                f"the text has {length} tokens; this model has positions for {self.max_length}. "
                "Shorten it, or train with a larger model.max_length."
            )


class LanguageHead(Module):
    """logits = x Wᵀ + b    [B,T,D] -> [B,T,V]    If W is also the embedding matrix, the two gradients add up."""

    def __init__(self, weight: Parameter, bias: Parameter | None = None):
        self.weight, self.bias = weight, bias
        self.logits = Probe()

    def __call__(self, x: Array) -> ForwardResult:
        y, back = ops.linear(x, self.weight.value, self.bias.value if self.bias else None)
        y, back_logits = self.logits(y)

        def backward(dy: Array) -> Array:
            dx, d_weight, d_bias = back(back_logits(dy))
            self.weight.add(d_weight)
            if self.bias:
                self.bias.add(d_bias)
            return dx

        return y, backward
