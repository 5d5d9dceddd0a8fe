"""What all contestants have to do, and how many useful operations a batch of it is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """The paper's layers (post-norm, ReLU, sinusoidal positions), made small; one matrix for all embeddings."""

    d_model: int = 256
    d_ff: int = 1024
    n_heads: int = 4
    layers: int = 3  # of the encoder, and as many of the decoder
    vocab_size: int = 8_000
    max_length: int = 256
    dropout: float = 0.1  # on embeddings and on what each sub-layer gives
    attention_dropout: float = 0.0  # on attention weights
    label_smoothing: float = 0.1
    batch_tokens: int = 2_048  # of the target, padding included


def useful_operations(shape: Shape, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> int:
    """Floating-point operations that one training step on these sentences needs, forward and backward.

    Only matrix products count, and only at tokens: what is computed at padding is no use to anybody. A weight is
    multiplied and added once for each token (2 operations), and its product has two gradients of the same cost each:
    6 operations a weight and token. A query and a key that may see each other cost 2·D multiply-adds a layer, D for
    the score and D for the weighted sum of values.
    """
    D, F, V = shape.d_model, shape.d_ff, shape.vocab_size
    feed_forward = 2 * D * F
    at_source = shape.layers * (4 * D * D + feed_forward)  # query, key, value, output
    at_source += shape.layers * 2 * D * D  # keys and values of cross-attention stand at source tokens
    at_target = shape.layers * (4 * D * D + 2 * D * D + feed_forward)  # self-attention; cross-attention's query, output
    at_target += V * D  # logits; looking an embedding up is no product
    weights = at_source * sum(source_lengths) + at_target * sum(target_lengths)
    pairs = sum(
        s * s + t * s + t * (t + 1) // 2  # encoder; cross-attention; decoder, which sees no future
        for s, t in zip(source_lengths, target_lengths, strict=True)
    )
    return 6 * (weights + shape.layers * pairs * 2 * D)
