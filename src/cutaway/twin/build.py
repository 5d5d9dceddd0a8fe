"""Build a model from a configuration. One table for each setting: its value -> the module."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from cutaway.config import ModelConfig
from cutaway.errors import ConfigError
from cutaway.twin import ops
from cutaway.twin.attention import MultiHeadAttention
from cutaway.twin.basics import (
    FeedForward,
    GatedFeedForward,
    InputEmbedding,
    LanguageHead,
    LayerNorm,
    Norm,
    RMSNorm,
    TokenEmbedding,
)
from cutaway.twin.layers import Layer, ParallelLayer, PostNorm, PreNorm, SandwichNorm, Stack
from cutaway.twin.model import DecoderOnly, EncoderDecoder, MaskRule, Model, strided, window
from cutaway.twin.modules import Parameter
from cutaway.twin.positions import (
    AlibiPosition,
    LearnedPosition,
    Position,
    RelativeBiasPosition,
    RelativePosition,
    RopeDivisor,
    RotaryPosition,
    SinusoidalPosition,
    linear_divisor,
    llama3_divisor,
)

RULES: dict[str, Callable[[ModelConfig], tuple[MaskRule, ...]]] = {
    "full": lambda c: (),
    "window": lambda c: (window(c.attention_window),),
    "sparse": lambda c: (strided(c.attention_window),),
}
ROPE_DIVISORS: dict[str, Callable[[ModelConfig], RopeDivisor | None]] = {
    "none": lambda c: None,
    "linear": lambda c: linear_divisor(c.rope_factor),
    "llama3": lambda c: llama3_divisor(
        c.rope_factor, c.rope_low_freq_factor, c.rope_high_freq_factor, c.rope_original_length
    ),
}
# the second argument is True for decoders, which attend only to earlier positions
POSITIONS: dict[str, Callable[[ModelConfig, bool], Position]] = {
    "sinusoidal": lambda c, causal: SinusoidalPosition(c.d_model, c.max_length),
    "learned": lambda c, causal: LearnedPosition(c.d_model, c.max_length),
    "rope": lambda c, causal: RotaryPosition(c.head_width, c.max_length, c.rope_base, ROPE_DIVISORS[c.rope_scaling](c)),
    "alibi": lambda c, causal: AlibiPosition(c.n_heads),
    "relative_bias": lambda c, causal: RelativeBiasPosition(c.n_heads, c.relative_buckets, c.relative_distance, causal),
    "relative": lambda c, causal: RelativePosition(c.head_width, c.relative_clip),
    "none": lambda c, causal: Position(),
}
NORMS: dict[str, type[LayerNorm] | type[RMSNorm]] = {"layer": LayerNorm, "rms": RMSNorm}
NORM_PLACEMENTS: dict[str, type[PreNorm] | type[PostNorm]] = {
    "post": PostNorm,
    "pre": PreNorm,
    "sandwich": SandwichNorm,
}
FEED_FORWARDS: dict[str, tuple[type[FeedForward] | type[GatedFeedForward], ops.Op]] = {
    "relu": (FeedForward, ops.relu),
    "gelu": (FeedForward, ops.gelu),
    "gelu_tanh": (FeedForward, ops.gelu_tanh),
    "silu": (FeedForward, ops.silu),
    "relu2": (FeedForward, ops.relu_squared),
    "swiglu": (GatedFeedForward, ops.silu),
    "geglu": (GatedFeedForward, ops.gelu),
    "geglu_tanh": (GatedFeedForward, ops.gelu_tanh),
}


def build_model(config: ModelConfig) -> Model:
    """Build a model with all matrices zero. Load weights with `load`, or initialize them with `xavier`."""
    check_model_config(config)
    return FAMILIES[config.family](config)


def encoder_decoder(config: ModelConfig) -> EncoderDecoder:
    source = token_embedding(config)
    target = source if config.embeddings in ("shared", "inputs") else token_embedding(config)
    source_scheme, target_scheme = POSITIONS[config.position](config, False), POSITIONS[config.position](config, True)
    return EncoderDecoder(
        source_embedding=input_embedding(config, source, source_scheme),
        target_embedding=input_embedding(config, target, target_scheme),
        encoder=stack(config, config.encoder_layers, source_scheme, causal=False, with_cross_attention=False),
        decoder=stack(config, config.decoder_layers, target_scheme, causal=True, with_cross_attention=True),
        head=language_head(config, target),
        rules=RULES[config.attention](config),
    )


def decoder_only(config: ModelConfig) -> DecoderOnly:
    tokens, scheme = token_embedding(config), POSITIONS[config.position](config, True)
    return DecoderOnly(
        embedding=input_embedding(config, tokens, scheme),
        decoder=stack(config, config.decoder_layers, scheme, causal=True, with_cross_attention=False),
        head=language_head(config, tokens),
        rules=RULES[config.attention](config),
    )


FAMILIES: dict[str, Callable[[ModelConfig], Model]] = {
    "encoder_decoder": encoder_decoder,
    "decoder": decoder_only,
}


def token_embedding(config: ModelConfig) -> TokenEmbedding:
    return TokenEmbedding(config.vocab_size, config.d_model, scaled=config.embedding_scale == "sqrt_d")


def input_embedding(config: ModelConfig, tokens: TokenEmbedding, scheme: Position) -> InputEmbedding:
    embedding_norm = norm(config) if config.embedding_norm else None
    input_position = Position() if scheme.per_layer else scheme
    return InputEmbedding(tokens, input_position, config.max_length, config.dropout, embedding_norm)


def language_head(config: ModelConfig, tokens: TokenEmbedding) -> LanguageHead:
    shared = config.embeddings in ("shared", "tied")
    weight = tokens.weight if shared else Parameter(config.vocab_size, config.d_model)
    return LanguageHead(weight, Parameter(config.vocab_size) if config.output_bias else None)


def stack(config: ModelConfig, n_layers: int, scheme: Position, causal: bool, with_cross_attention: bool) -> Stack:
    """Layers that share one position module, or have one each if `per_layer` is set."""
    layers = []
    for _ in range(n_layers):
        layer_scheme = POSITIONS[config.position](config, causal) if scheme.per_layer else scheme
        layers.append(BLOCKS[config.block](config, layer_scheme, with_cross_attention))
    has_normed_output = NORM_PLACEMENTS[config.norm_placement].has_normed_output
    return Stack(layers, None if has_normed_output else norm(config))


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
    head_norm = partial(NORMS[config.norm], config.head_width, config.norm_epsilon)
    return MultiHeadAttention(
        config.d_model,
        config.n_heads,
        config.kv_heads,
        config.head_width,
        config.bias,
        position=scheme,
        head_norm=head_norm if config.qk_norm else None,
        cap=config.attention_softcap,
        dropout=config.attention_dropout,
    )


def feed_forward(config: ModelConfig) -> FeedForward | GatedFeedForward:
    kind, activation = FEED_FORWARDS[config.feed_forward]
    return kind(config.d_model, config.d_ff, activation, config.bias)


def residual(config: ModelConfig) -> PreNorm | PostNorm:
    return NORM_PLACEMENTS[config.norm_placement](partial(norm, config), config.dropout)


def norm(config: ModelConfig) -> Norm:
    return NORMS[config.norm](config.d_model, config.norm_epsilon)


# setting -> the values that the twin supports
SUPPORTED: dict[str, Iterable[str]] = {
    "family": FAMILIES,
    "attention": RULES,
    "position": POSITIONS,
    "norm": NORMS,
    "norm_placement": NORM_PLACEMENTS,
    "block": BLOCKS,
    "feed_forward": FEED_FORWARDS,
}


def check_model_config(config: ModelConfig) -> None:
    """Raise an error for a setting that the twin does not support."""
    for name, supported in SUPPORTED.items():
        if (value := getattr(config, name)) not in supported:
            raise ConfigError(
                f"engine 'numpy' does not support model.{name} = {value!r}; it supports {', '.join(supported)}. "
                "Use engine 'torch'."
            )
    for name in ("experts", "cross_attention"):
        if value := getattr(config, name):
            raise ConfigError(f"engine 'numpy' does not support model.{name} = {value!r}. Use engine 'torch'.")
