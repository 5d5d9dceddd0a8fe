"""The architecture, and the number of useful operations of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """A small version of the paper's model (post-norm, ReLU, sinusoidal positions, shared embeddings)."""

    d_model: int = 256
    d_ff: int = 1024
    n_heads: int = 4
    layers: int = 3  # of the encoder, and the same number of the decoder
    vocab_size: int = 8_000
    max_length: int = 256
    dropout: float = 0.1  # of embeddings and sub-layer outputs
    attention_dropout: float = 0.0  # of attention weights
    label_smoothing: float = 0.1
    batch_tokens: int = 2_048  # target tokens, including padding


def useful_operations(shape: Shape, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> int:
    """Count the floating-point operations of a training step on these sentences, forward and backward.

    Only matrix products at tokens count, not at padding. A weight takes 2 operations for each token (multiply and
    add), and the two gradients of the product cost the same again: 6 operations for each weight and token. A query
    and a key cost 2·D multiply-adds in each layer: D for the score and D for the weighted sum of values.
    """
    D, F, V = shape.d_model, shape.d_ff, shape.vocab_size
    feed_forward = 2 * D * F
    at_source = shape.layers * (4 * D * D + feed_forward)  # query, key, value, output
    at_source += shape.layers * 2 * D * D  # keys and values of cross-attention are computed at source tokens
    at_target = shape.layers * (4 * D * D + 2 * D * D + feed_forward)  # self-attention; cross-attention's query, output
    at_target += V * D  # logits; an embedding lookup is not a product
    weights = at_source * sum(source_lengths) + at_target * sum(target_lengths)
    pairs = sum(
        s * s + t * s + t * (t + 1) // 2  # encoder; cross-attention; causal self-attention
        for s, t in zip(source_lengths, target_lengths, strict=True)
    )
    return 6 * (weights + shape.layers * pairs * 2 * D)
