"""The encoder-decoder and the decoder alone, and what builds them from a configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from cutaway.config import ModelConfig
from cutaway.errors import ConfigError
from cutaway.twin import ops
from cutaway.twin.attention import Cache, MultiHeadAttention
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
from cutaway.twin.layers import Layer, ParallelLayer, PostNorm, PreNorm, SandwichNorm, Sight, Stack
from cutaway.twin.ops import Array
from cutaway.twin.parts import Called, Parameter, Part, Variable
from cutaway.twin.positions import (
    AlibiPosition,
    LearnedPosition,
    Position,
    RelativeBiasPosition,
    RelativePosition,
    RotaryPosition,
    SinusoidalPosition,
)

Rule = Callable[[Array, Array], Array]  # positions of queries [Q,1] and keys [K] -> may attend [Q,K]


def causal(query: Array, key: Array) -> Array:
    return key <= query


def window(width: int) -> Rule:
    return lambda query, key: np.abs(query - key) < width


def strided(width: int) -> Rule:
    return lambda query, key: (np.abs(query - key) < width) | ((query - key) % width == 0)


def who_may_attend(start: int, end: int, keys: int, rules: tuple[Rule, ...], is_token: Array | None) -> Array | None:
    """The mask of queries at the positions start to end, broadcastable to [B,1,Q,K]; True = may attend.

    None: all may attend to all. A single last query is not held back by causality, so writing needs no mask.
    """
    rules = tuple(rule for rule in rules if not (rule is causal and keys - 1 <= start))
    mask = padding_mask(is_token)
    for rule in rules:
        allowed = rule(np.arange(start, end)[:, None], np.arange(keys))
        mask = allowed if mask is None else mask & allowed
    return mask


def padding_mask(is_token: Array | None) -> Array | None:
    """[B,K] -> [B,1,1,K]: nobody may attend to padding."""
    return None if is_token is None else is_token[:, None, None, :]


class EncoderDecoder(Part):
    """p(target | source).    Token masks [B,S] and [B,T] are True at tokens, False at padding; None: no padding."""

    def __init__(
        self,
        source_embedding: InputEmbedding,
        target_embedding: InputEmbedding,
        encoder: Stack,
        decoder: Stack,
        head: LanguageHead,
        rules: tuple[Rule, ...] = (),
    ):
        self.source_embedding, self.target_embedding = source_embedding, target_embedding
        self.encoder, self.decoder, self.head = encoder, decoder, head
        self.rules = rules

    def __call__(
        self,
        source: Array,
        target_in: Array,
        source_mask: Array | None = None,
        target_mask: Array | None = None,
    ) -> Called:
        """source [B,S], target_in [B,T] -> logits [B,T,V].    backward(d_logits): every parameter gets its gradient"""
        memory, back_encode = self.encode(source, source_mask)
        read_often = Variable(memory)  # every decoder layer reads the memory, and sends a gradient back to it
        x, back_decode = self.decode(target_in, read_often, source_mask, target_mask)
        logits, back_head = self.head(x)

        def backward(d_logits: Array) -> None:
            back_decode(back_head(d_logits))
            back_encode(read_often.gradient)  # type: ignore[arg-type]

        return logits, backward

    def encode(self, source: Array, source_mask: Array | None = None) -> Called:
        """source [B,S] -> memory [B,S,D]"""
        x, back_embed = self.source_embedding(source)
        length = source.shape[1]
        memory, back_encoder = self.encoder(x, Sight(who_may_attend(0, length, length, self.rules, source_mask)))
        return memory, lambda d_memory: back_embed(back_encoder(d_memory))

    def decode(
        self,
        target_in: Array,
        memory: Variable,
        source_mask: Array | None = None,
        target_mask: Array | None = None,
        cache: Cache | None = None,
    ) -> Called:
        """target_in [B,T], memory [B,S,D] -> x [B,T,D]. With a cache, target_in is only what is new."""
        start = cache.length if cache else 0
        end = start + target_in.shape[1]
        mask = who_may_attend(start, end, end, (causal, *self.rules), target_mask)
        x, back_embed = self.target_embedding(target_in, start)
        x, back_decoder = self.decoder(x, Sight(mask, memory, padding_mask(source_mask), cache))
        if cache:
            cache.length = end
        return x, lambda dx: back_embed(back_decoder(dx))

    def new_cache(self) -> Cache:
        return Cache(len(self.decoder.layers))


class DecoderOnly(Part):
    """p(text): a decoder that looks at nothing but what it has read."""

    def __init__(self, embedding: InputEmbedding, decoder: Stack, head: LanguageHead, rules: tuple[Rule, ...] = ()):
        self.embedding, self.decoder, self.head = embedding, decoder, head
        self.rules = rules

    def __call__(self, ids: Array, mask: Array | None = None) -> Called:
        """ids [B,T] -> logits [B,T,V].    backward(d_logits): every parameter gets its gradient"""
        x, back_decode = self.decode(ids, mask)
        logits, back_head = self.head(x)
        return logits, lambda d_logits: back_decode(back_head(d_logits))

    def decode(self, ids: Array, mask: Array | None = None, cache: Cache | None = None) -> Called:
        """ids [B,T] -> x [B,T,D]. With a cache, ids are only what is new."""
        start = cache.length if cache else 0
        end = start + ids.shape[1]
        x, back_embed = self.embedding(ids, start)
        x, back_decoder = self.decoder(
            x, Sight(who_may_attend(start, end, end, (causal, *self.rules), mask), cache=cache)
        )
        if cache:
            cache.length = end
        return x, lambda dx: back_embed(back_decoder(dx))

    def new_cache(self) -> Cache:
        return Cache(len(self.decoder.layers))


Model = EncoderDecoder | DecoderOnly

# One table for each axis of choice, as in models/build.py: the name in the configuration -> what makes that part.
RULES: dict[str, Callable[[ModelConfig], tuple[Rule, ...]]] = {
    "full": lambda c: (),
    "window": lambda c: (window(c.attention_window),),
    "sparse": lambda c: (strided(c.attention_window),),
}
POSITIONS: dict[str, Callable[[ModelConfig, bool], Position]] = {
    "sinusoidal": lambda c, causal: SinusoidalPosition(c.d_model, c.max_length),
    "learned": lambda c, causal: LearnedPosition(c.d_model, c.max_length),
    "rope": lambda c, causal: RotaryPosition(c.head_width, c.max_length, c.rope_base),
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
    "relu2": (FeedForward, ops.relu_squared),
    "swiglu": (GatedFeedForward, ops.silu),
    "geglu": (GatedFeedForward, ops.gelu),
}


def build_model(config: ModelConfig) -> Model:
    """A model whose matrices are all zero: give it weights with `load`, or with `xavier` for a new one."""
    refuse_unsupported(config)
    return FAMILIES[config.family](config)


def encoder_decoder(config: ModelConfig) -> EncoderDecoder:
    source = token_embedding(config)
    target = source if config.embeddings == "shared" else token_embedding(config)
    source_order, target_order = POSITIONS[config.position](config, False), POSITIONS[config.position](config, True)
    return EncoderDecoder(
        source_embedding=input_embedding(config, source, source_order),
        target_embedding=input_embedding(config, target, target_order),
        encoder=stack(config, config.encoder_layers, source_order, causal=False, crossing=False),
        decoder=stack(config, config.decoder_layers, target_order, causal=True, crossing=True),
        head=language_head(config, target),
        rules=RULES[config.attention](config),
    )


def decoder_only(config: ModelConfig) -> DecoderOnly:
    tokens, order = token_embedding(config), POSITIONS[config.position](config, True)
    return DecoderOnly(
        embedding=input_embedding(config, tokens, order),
        decoder=stack(config, config.decoder_layers, order, causal=True, crossing=False),
        head=language_head(config, tokens),
        rules=RULES[config.attention](config),
    )


FAMILIES: dict[str, Callable[[ModelConfig], Model]] = {
    "encoder_decoder": encoder_decoder,
    "decoder": decoder_only,
}


def token_embedding(config: ModelConfig) -> TokenEmbedding:
    return TokenEmbedding(config.vocab_size, config.d_model, scaled=config.embedding_scale == "sqrt_d")


def input_embedding(config: ModelConfig, tokens: TokenEmbedding, order: Position) -> InputEmbedding:
    embedding_norm = norm(config) if config.embedding_norm else None
    at_the_input = Position() if order.per_layer else order
    return InputEmbedding(tokens, at_the_input, config.max_length, config.dropout, embedding_norm)


def language_head(config: ModelConfig, tokens: TokenEmbedding) -> LanguageHead:
    separate = config.embeddings == "separate"
    return LanguageHead(Parameter(config.vocab_size, config.d_model) if separate else tokens.weight)


def stack(config: ModelConfig, n_layers: int, order: Position, causal: bool, crossing: bool) -> Stack:
    """Layers that share one position scheme, or have one each where the scheme asks for it."""
    orders = [POSITIONS[config.position](config, causal) if order.per_layer else order for _ in range(n_layers)]
    ends_normed = NORM_PLACEMENTS[config.norm_placement].ends_normed
    return Stack(
        [BLOCKS[config.block](config, order, crossing) for order in orders],
        None if ends_normed else norm(config),
    )


def sequential_layer(config: ModelConfig, order: Position, crossing: bool) -> Layer:
    return Layer(
        self_attention=attention(config, order),
        self_attention_residual=residual(config),
        cross_attention=attention(config) if crossing else None,
        cross_attention_residual=residual(config) if crossing else None,
        feed_forward=feed_forward(config),
        feed_forward_residual=residual(config),
    )


def parallel_layer(config: ModelConfig, order: Position, crossing: bool) -> ParallelLayer:
    return ParallelLayer(
        self_attention=attention(config, order),
        cross_attention=attention(config) if crossing else None,
        feed_forward=feed_forward(config),
        residual=residual(config),
    )


BLOCKS: dict[str, Callable[[ModelConfig, Position, bool], Layer | ParallelLayer]] = {
    "sequential": sequential_layer,
    "parallel": parallel_layer,
}


def attention(config: ModelConfig, order: Position | None = None) -> MultiHeadAttention:
    head_norm = partial(NORMS[config.norm], config.head_width, config.norm_epsilon)
    return MultiHeadAttention(
        config.d_model,
        config.n_heads,
        config.kv_heads,
        config.head_width,
        config.bias,
        position=order,
        head_norm=head_norm if config.qk_norm else None,
        cap=config.attention_cap,
        dropout=config.attention_dropout,
    )


def feed_forward(config: ModelConfig) -> FeedForward | GatedFeedForward:
    kind, activation = FEED_FORWARDS[config.feed_forward]
    return kind(config.d_model, config.d_ff, activation, config.bias)


def residual(config: ModelConfig) -> PreNorm | PostNorm:
    return NORM_PLACEMENTS[config.norm_placement](partial(norm, config), config.dropout)


def norm(config: ModelConfig) -> Norm:
    return NORMS[config.norm](config.d_model, config.norm_epsilon)


# every axis of choice, with what the twin knows of it
KNOWN: dict[str, Iterable[str]] = {
    "family": FAMILIES,
    "attention": RULES,
    "position": POSITIONS,
    "norm": NORMS,
    "norm_placement": NORM_PLACEMENTS,
    "block": BLOCKS,
    "feed_forward": FEED_FORWARDS,
}


def refuse_unsupported(config: ModelConfig) -> None:
    """What the twin does not have is named, beside what it has."""
    for name, known in KNOWN.items():
        if (value := getattr(config, name)) not in known:
            raise ConfigError(
                f"engine 'numpy' has no model.{name} = {value!r}; it knows {', '.join(known)}. Use engine 'torch'."
            )
    for name in ("experts", "cross_attention"):
        if value := getattr(config, name):
            raise ConfigError(f"engine 'numpy' has no model.{name} = {value!r}. Use engine 'torch'.")
