"""Build a model from a configuration. No other file knows both.

One table for each setting: its value -> a function that makes the part. The tests iterate over these tables, so they
pick up a new row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import nn
from torch.nn import LayerNorm, RMSNorm

from cutaway.config import ModelConfig
from cutaway.errors import ConfigError
from cutaway.models.decoder import DecoderOnly
from cutaway.models.encoder import EncoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.models.init import gpt2, xavier
from cutaway.models.vision import VisionTransformer
from cutaway.nn.activations import gelu_tanh, relu_squared
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.embedding import InputEmbedding, LanguageHead, TokenEmbedding
from cutaway.nn.experts import Experts
from cutaway.nn.feedforward import FeedForward
from cutaway.nn.gated_feedforward import GatedFeedForward
from cutaway.nn.heads import (
    AttentionPool,
    ClassHead,
    FirstPool,
    FirstTanhPool,
    MaskedLanguageHead,
    MaxPool,
    MeanPool,
    TagHead,
    VectorHead,
)
from cutaway.nn.kernels import AttentionKernel, attend_exact, attend_fused
from cutaway.nn.layers import Layer, Stack
from cutaway.nn.learned_positions import LearnedPosition
from cutaway.nn.linear_attention import LinearAttention
from cutaway.nn.masks import MaskRule
from cutaway.nn.parallel_layer import ParallelLayer
from cutaway.nn.patches import PatchEmbedding
from cutaway.nn.positions import Position, SinusoidalPosition
from cutaway.nn.relative_positions import AlibiPosition, RelativeBiasPosition, RelativePosition
from cutaway.nn.residual import PostNorm, PreNorm, Residual
from cutaway.nn.rotary import RopeScaling, RotaryPosition, linear_scaling, llama3_scaling
from cutaway.nn.sandwich_norm import SandwichNorm
from cutaway.nn.sparse_masks import SlidingWindow, Strided

Model = EncoderDecoder | EncoderOnly | DecoderOnly | VisionTransformer

KERNELS: dict[str, AttentionKernel] = {"fused": attend_fused, "exact": attend_exact}

# the module, and the mask rules for self-attention
ATTENTIONS: dict[str, tuple[type[MultiHeadAttention], Callable[[ModelConfig], tuple[MaskRule, ...]]]] = {
    "full": (MultiHeadAttention, lambda c: ()),
    "window": (MultiHeadAttention, lambda c: (SlidingWindow(c.attention_window),)),
    "sparse": (MultiHeadAttention, lambda c: (Strided(c.attention_window),)),
    "linear": (LinearAttention, lambda c: ()),
}

ROPE_SCALINGS: dict[str, Callable[[ModelConfig], RopeScaling | None]] = {
    "none": lambda c: None,
    "linear": lambda c: linear_scaling(c.rope_factor),
    "llama3": lambda c: llama3_scaling(
        c.rope_factor, c.rope_low_freq_factor, c.rope_high_freq_factor, c.rope_original_length
    ),
}

# the second argument: whether it is for a causal decoder
POSITIONS: dict[str, Callable[[ModelConfig, bool], Position]] = {
    "sinusoidal": lambda c, causal: SinusoidalPosition(c.d_model, c.n_positions),
    "learned": lambda c, causal: LearnedPosition(c.d_model, c.n_positions),
    "rope": lambda c, causal: RotaryPosition(
        c.head_width, c.n_positions, c.rope_base, ROPE_SCALINGS[c.rope_scaling](c)
    ),
    "alibi": lambda c, causal: AlibiPosition(c.n_heads, c.n_positions),
    "relative_bias": lambda c, causal: RelativeBiasPosition(
        c.n_heads, c.n_positions, c.relative_buckets, c.relative_distance, causal
    ),
    "relative": lambda c, causal: RelativePosition(c.head_width, c.n_positions, c.relative_clip),
    "none": lambda c, causal: Position(c.n_positions),
}

NORMS: dict[str, Callable[[int, float], nn.Module]] = {"layer": LayerNorm, "rms": RMSNorm}

NORM_PLACEMENTS: dict[str, type[Residual]] = {"post": PostNorm, "pre": PreNorm, "sandwich": SandwichNorm}

FEED_FORWARDS: dict[str, Callable[[ModelConfig], nn.Module]] = {
    "relu": lambda c: FeedForward(c.d_model, c.d_ff, F.relu, c.bias),
    "gelu": lambda c: FeedForward(c.d_model, c.d_ff, F.gelu, c.bias),
    "gelu_tanh": lambda c: FeedForward(c.d_model, c.d_ff, gelu_tanh, c.bias),
    "silu": lambda c: FeedForward(c.d_model, c.d_ff, F.silu, c.bias),
    "relu2": lambda c: FeedForward(c.d_model, c.d_ff, relu_squared, c.bias),
    "swiglu": lambda c: GatedFeedForward(c.d_model, c.d_ff, F.silu, c.bias),
    "geglu": lambda c: GatedFeedForward(c.d_model, c.d_ff, F.gelu, c.bias),
    "geglu_tanh": lambda c: GatedFeedForward(c.d_model, c.d_ff, gelu_tanh, c.bias),
}

POOLINGS: dict[str, Callable[[ModelConfig], nn.Module]] = {
    "cls": lambda c: FirstPool(),
    "cls_tanh": lambda c: FirstTanhPool(c.d_model),
    "mean": lambda c: MeanPool(),
    "max": lambda c: MaxPool(),
    "attention": lambda c: AttentionPool(c.d_model),
}


INITS: dict[str, Callable[[nn.Module], None]] = {"xavier": xavier, "gpt2": gpt2}


def build_model(config: ModelConfig) -> Model:
    """Build a model with random weights. For reproducible weights, call torch.manual_seed first."""
    if config.vocab_size < 1 and config.family != "vision":
        raise ConfigError(
            "model.vocab_size is not set. Set it to the size of the tokenizer, as in ModelConfig(vocab_size=8000)."
        )
    if config.n_classes < 1 and config.head in ("classes", "tags"):
        raise ConfigError("model.n_classes is not set. Set it to the number of labels, as in ModelConfig(n_classes=2).")
    model = FAMILIES[config.family](config)
    INITS[config.init](model)
    return model


def encoder_decoder(config: ModelConfig) -> EncoderDecoder:
    source = token_embedding(config)
    target = source if config.embeddings in ("shared", "inputs") else token_embedding(config)
    source_position, target_position = position(config), position(config, causal=True)
    return EncoderDecoder(
        source_embedding=input_embedding(config, source, source_position),
        target_embedding=input_embedding(config, target, target_position),
        encoder=stack(config, config.encoder_layers, source_position),
        decoder=stack(config, config.decoder_layers, target_position, causal=True, with_cross_attention=True),
        head=language_head(config, target),
        rules=rules(config),
    )


def decoder_only(config: ModelConfig) -> DecoderOnly:
    tokens, scheme = token_embedding(config), position(config, causal=True)
    return DecoderOnly(
        embedding=input_embedding(config, tokens, scheme),
        decoder=stack(config, config.decoder_layers, scheme, causal=True, with_cross_attention=config.cross_attention),
        head=language_head(config, tokens),
        rules=rules(config),
    )


def encoder_only(config: ModelConfig) -> EncoderOnly:
    tokens, scheme = token_embedding(config), position(config)
    return EncoderOnly(
        embedding=input_embedding(config, tokens, scheme),
        encoder=stack(config, config.encoder_layers, scheme),
        head=HEADS[config.head](config, tokens),
        rules=rules(config),
    )


def vision(config: ModelConfig) -> VisionTransformer:
    scheme = position(config)
    return VisionTransformer(
        embedding=PatchEmbedding(
            image_size=config.image_size,
            patch_size=config.patch_size,
            channels=config.channels,
            d_model=config.d_model,
            position=input_position(scheme),
            dropout=config.dropout,
            class_token=config.pooling == "cls",
        ),
        encoder=stack(config, config.encoder_layers, scheme),
        head=class_head(config),
        rules=rules(config),
    )


FAMILIES: dict[str, Callable[[ModelConfig], Model]] = {
    "encoder_decoder": encoder_decoder,
    "encoder": encoder_only,
    "decoder": decoder_only,
    "vision": vision,
}


def class_head(config: ModelConfig) -> ClassHead:
    return ClassHead(POOLINGS[config.pooling](config), config.n_classes, config.d_model, config.dropout)


# the heads of an encoder-only model
HEADS: dict[str, Callable[[ModelConfig, TokenEmbedding], nn.Module]] = {
    "language": lambda c, tokens: MaskedLanguageHead(c.vocab_size, c.d_model, norm(c), shared_matrix(c, tokens)),
    "tags": lambda c, tokens: TagHead(c.n_classes, c.d_model, c.dropout),
    "classes": lambda c, tokens: class_head(c),
    "vectors": lambda c, tokens: VectorHead(POOLINGS[c.pooling](c)),
}


def token_embedding(config: ModelConfig) -> TokenEmbedding:
    return TokenEmbedding(config.vocab_size, config.d_model, scaled=config.embedding_scale == "sqrt_d")


def shared_matrix(config: ModelConfig, tokens: TokenEmbedding) -> nn.Parameter | None:
    return tokens.weight if config.embeddings in ("shared", "tied") else None


def language_head(config: ModelConfig, tokens: TokenEmbedding) -> LanguageHead:
    return LanguageHead(config.vocab_size, config.d_model, shared_matrix(config, tokens), config.output_bias)


def input_embedding(config: ModelConfig, tokens: TokenEmbedding, scheme: Position) -> InputEmbedding:
    return InputEmbedding(
        tokens,
        input_position(scheme),
        config.dropout,
        norm=norm(config) if config.embedding_norm else None,
        segments=TokenEmbedding(config.segments, config.d_model, scaled=False) if config.segments else None,
    )


def position(config: ModelConfig, causal: bool = False) -> Position:
    return POSITIONS[config.position](config, causal)


def input_position(scheme: Position) -> Position:
    """The scheme for the input. A scheme with one instance per layer does nothing there."""
    return Position(scheme.max_length) if scheme.per_layer else scheme


def rules(config: ModelConfig) -> tuple[MaskRule, ...]:
    return ATTENTIONS[config.attention][1](config)


def stack(
    config: ModelConfig, n_layers: int, scheme: Position, causal: bool = False, with_cross_attention: bool = False
) -> Stack:
    """Layers that share one position scheme, or have one each if it is `per_layer`."""
    schemes = [position(config, causal) if scheme.per_layer else scheme for _ in range(n_layers)]
    has_normed_output = NORM_PLACEMENTS[config.norm_placement].has_normed_output
    return Stack(
        [BLOCKS[config.block](config, scheme, with_cross_attention) for scheme in schemes],
        nn.Identity() if has_normed_output else norm(config),
    )


def sequential_layer(config: ModelConfig, scheme: Position, with_cross_attention: bool) -> Layer:
    return Layer(
        self_attention=attention(config, scheme),
        self_attention_residual=residual(config),
        cross_attention=attention(config) if with_cross_attention else None,
        cross_attention_residual=residual(config) if with_cross_attention else None,
        feed_forward=feed_forward(config),
        feed_forward_residual=residual(config),
    )


def parallel_layer(config: ModelConfig, scheme: Position, with_cross_attention: bool) -> ParallelLayer:
    return ParallelLayer(
        self_attention=attention(config, scheme),
        cross_attention=attention(config) if with_cross_attention else None,
        feed_forward=feed_forward(config),
        residual=residual(config),
    )


BLOCKS: dict[str, Callable[[ModelConfig, Position, bool], Layer | ParallelLayer]] = {
    "sequential": sequential_layer,
    "parallel": parallel_layer,
}


def attention(config: ModelConfig, scheme: Position | None = None) -> MultiHeadAttention:
    """Self-attention with a position scheme, or cross-attention without one."""
    head_norm = partial(NORMS[config.norm], config.head_width, config.norm_epsilon)
    return ATTENTIONS[config.attention][0](
        config.d_model,
        config.n_heads,
        kernel=KERNELS[config.attention_kernel],
        dropout=config.attention_dropout,
        n_kv_heads=config.kv_heads,
        d_head=config.head_width,
        bias=config.bias,
        position=scheme,
        head_norm=head_norm if config.qk_norm else None,
        cap=config.attention_softcap,
    )


def feed_forward(config: ModelConfig) -> nn.Module:
    if not config.experts:
        return FEED_FORWARDS[config.feed_forward](config)
    experts = [FEED_FORWARDS[config.feed_forward](config) for _ in range(config.experts)]
    return Experts(experts, config.d_model, config.experts_per_token, config.expert_capacity)


def residual(config: ModelConfig) -> Residual:
    return NORM_PLACEMENTS[config.norm_placement](partial(norm, config), config.dropout)


def norm(config: ModelConfig) -> nn.Module:
    return NORMS[config.norm](config.d_model, config.norm_epsilon)


def count_parameters(model: nn.Module) -> int:
    """The number of trainable parameters; a shared matrix counts once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
