"""From a configuration to a model: the only file that knows both sides.

One table for each axis of choice: the name in the configuration -> what makes that part. The tests iterate these
tables, so a new row is tested the moment it stands here.
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import nn

from cutaway.config import ModelConfig
from cutaway.errors import ConfigError
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.models.init import xavier
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.embedding import InputEmbedding, TokenEmbedding
from cutaway.nn.feedforward import FeedForward
from cutaway.nn.heads import LanguageHead
from cutaway.nn.kernels import AttentionKernel, attend_exact, attend_fused
from cutaway.nn.layers import Decoder, DecoderLayer, Encoder, EncoderLayer
from cutaway.nn.norms import LayerNorm
from cutaway.nn.positions import LearnedPosition, Position, SinusoidalPosition
from cutaway.nn.residual import PostNorm, PreNorm, Residual

KERNELS: dict[str, AttentionKernel] = {"fused": attend_fused, "exact": attend_exact}

POSITIONS: dict[str, Callable[[ModelConfig], Position]] = {
    "sinusoidal": lambda c: SinusoidalPosition(c.d_model, c.max_length),
    "learned": lambda c: LearnedPosition(c.d_model, c.max_length),
}

NORMS: dict[str, Callable[[ModelConfig], nn.Module]] = {
    "layer": lambda c: LayerNorm(c.d_model, c.norm_epsilon),
}

NORM_PLACEMENTS: dict[str, type[Residual]] = {"post": PostNorm, "pre": PreNorm}

FEED_FORWARDS: dict[str, Callable[[ModelConfig], FeedForward]] = {
    "relu": lambda c: FeedForward(c.d_model, c.d_ff, F.relu),
    "gelu": lambda c: FeedForward(c.d_model, c.d_ff, F.gelu),
}


def build_model(config: ModelConfig) -> EncoderDecoder:
    """A new model with fresh weights. Seed torch first if they should be the same each time."""
    if config.vocab_size < 1:
        raise ConfigError(
            "model.vocab_size is not set. Give it the size of the tokenizer, as in ModelConfig(vocab_size=8000)."
        )
    model = FAMILIES[config.family](config)
    xavier(model)
    return model


def encoder_decoder(config: ModelConfig) -> EncoderDecoder:
    source = TokenEmbedding(config.vocab_size, config.d_model)
    target = source if config.embeddings == "shared" else TokenEmbedding(config.vocab_size, config.d_model)
    shared = None if config.embeddings == "separate" else target.weight
    return EncoderDecoder(
        source_embedding=InputEmbedding(source, POSITIONS[config.position](config), config.dropout),
        target_embedding=InputEmbedding(target, POSITIONS[config.position](config), config.dropout),
        encoder=Encoder([encoder_layer(config) for _ in range(config.encoder_layers)], final_norm(config)),
        decoder=Decoder([decoder_layer(config) for _ in range(config.decoder_layers)], final_norm(config)),
        head=LanguageHead(config.vocab_size, config.d_model, shared),
    )


def encoder_layer(config: ModelConfig) -> EncoderLayer:
    return EncoderLayer(
        self_attention=attention(config),
        self_attention_residual=residual(config),
        feed_forward=FEED_FORWARDS[config.feed_forward](config),
        feed_forward_residual=residual(config),
    )


def decoder_layer(config: ModelConfig) -> DecoderLayer:
    return DecoderLayer(
        self_attention=attention(config),
        self_attention_residual=residual(config),
        cross_attention=attention(config),
        cross_attention_residual=residual(config),
        feed_forward=FEED_FORWARDS[config.feed_forward](config),
        feed_forward_residual=residual(config),
    )


def attention(config: ModelConfig) -> MultiHeadAttention:
    return MultiHeadAttention(
        config.d_model, config.n_heads, KERNELS[config.attention_kernel], config.attention_dropout
    )


def residual(config: ModelConfig) -> Residual:
    return NORM_PLACEMENTS[config.norm_placement](NORMS[config.norm](config), config.dropout)


def final_norm(config: ModelConfig) -> nn.Module:
    """A stack that does not end normed needs a norm at its end."""
    ends_normed = NORM_PLACEMENTS[config.norm_placement].ends_normed
    return nn.Identity() if ends_normed else NORMS[config.norm](config)


def count_parameters(model: nn.Module) -> int:
    """How many numbers training may change; a shared matrix counts once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


FAMILIES: dict[str, Callable[[ModelConfig], EncoderDecoder]] = {"encoder_decoder": encoder_decoder}
