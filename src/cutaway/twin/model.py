"""The encoder-decoder and the decoder-only model, and their attention masks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cutaway.twin.attention import KVCache
from cutaway.twin.basics import InputEmbedding, LanguageHead
from cutaway.twin.layers import Stack, StackInputs
from cutaway.twin.modules import ForwardResult, Module, Variable
from cutaway.twin.ops import Array

MaskRule = Callable[[Array, Array], Array]  # positions of queries [Q,1] and keys [K] -> may attend [Q,K]


def causal(query: Array, key: Array) -> Array:
    return key <= query


def window(width: int) -> MaskRule:
    return lambda query, key: np.abs(query - key) < width


def strided(width: int) -> MaskRule:
    return lambda query, key: (np.abs(query - key) < width) | ((query - key) % width == 0)


def attention_mask(
    start: int, end: int, keys: int, rules: tuple[MaskRule, ...], is_token: Array | None
) -> Array | None:
    """The mask of the queries at positions start to end - 1, broadcastable to [B,1,Q,K]. True = may attend.

    None: every query may attend to every key. The last position alone needs no causal mask, so decoding needs none.
    """
    rules = tuple(rule for rule in rules if not (rule is causal and keys - 1 <= start))
    mask = padding_mask(is_token)
    for rule in rules:
        allowed = rule(np.arange(start, end)[:, None], np.arange(keys))
        mask = allowed if mask is None else mask & allowed
    return mask


def padding_mask(is_token: Array | None) -> Array | None:
    """[B,K] -> [B,1,1,K]: no query may attend to padding."""
    return None if is_token is None else is_token[:, None, None, :]


class EncoderDecoder(Module):
    """p(target | source).    Token masks [B,S] and [B,T] are True at tokens, False at padding; None: no padding."""

    def __init__(
        self,
        source_embedding: InputEmbedding,
        target_embedding: InputEmbedding,
        encoder: Stack,
        decoder: Stack,
        head: LanguageHead,
        rules: tuple[MaskRule, ...] = (),
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
    ) -> ForwardResult:
        """source [B,S], target_in [B,T] -> logits [B,T,V].    backward(d_logits) adds to all parameter gradients"""
        encoded, back_encode = self.encode(source, source_mask)
        memory = Variable(encoded)  # every decoder layer reads the memory and adds to its gradient
        x, back_decode = self.decode(target_in, memory, source_mask, target_mask)
        logits, back_head = self.head(x)

        def backward(d_logits: Array) -> None:
            memory.gradient = None
            back_decode(back_head(d_logits))
            back_encode(memory.gradient)  # type: ignore[arg-type]

        return logits, backward

    def encode(self, source: Array, source_mask: Array | None = None, forward_only: bool = False) -> ForwardResult:
        """source [B,S] -> memory [B,S,D]. `forward_only`: no backward pass, which needs less RAM."""
        x, back_embed = self.source_embedding(source)
        length = source.shape[1]
        mask = attention_mask(0, length, length, self.rules, source_mask)
        memory, back_encoder = self.encoder(x, StackInputs(mask, forward_only=forward_only))
        return memory, lambda d_memory: back_embed(back_encoder(d_memory))

    def decode(
        self,
        target_in: Array,
        memory: Variable,
        source_mask: Array | None = None,
        target_mask: Array | None = None,
        cache: KVCache | None = None,
    ) -> ForwardResult:
        """target_in [B,T], memory [B,S,D] -> x [B,T,D]. With a cache, target_in holds only the new tokens."""
        start = cache.length if cache else 0
        end = start + target_in.shape[1]
        mask = attention_mask(start, end, end, (causal, *self.rules), target_mask)
        x, back_embed = self.target_embedding(target_in, start)
        x, back_decoder = self.decoder(
            x, StackInputs(mask, memory, padding_mask(source_mask), cache, forward_only=cache is not None)
        )
        if cache:
            cache.length = end
        return x, lambda dx: back_embed(back_decoder(dx))

    def new_cache(self) -> KVCache:
        return KVCache(len(self.decoder.layers))


class DecoderOnly(Module):
    """p(text): a decoder without cross-attention."""

    def __init__(self, embedding: InputEmbedding, decoder: Stack, head: LanguageHead, rules: tuple[MaskRule, ...] = ()):
        self.embedding, self.decoder, self.head = embedding, decoder, head
        self.rules = rules

    def __call__(self, ids: Array, mask: Array | None = None) -> ForwardResult:
        """ids [B,T] -> logits [B,T,V].    backward(d_logits) adds to all parameter gradients"""
        x, back_decode = self.decode(ids, mask)
        logits, back_head = self.head(x)
        return logits, lambda d_logits: back_decode(back_head(d_logits))

    def decode(self, ids: Array, mask: Array | None = None, cache: KVCache | None = None) -> ForwardResult:
        """ids [B,T] -> x [B,T,D]. With a cache, ids holds only the new tokens."""
        start = cache.length if cache else 0
        end = start + ids.shape[1]
        x, back_embed = self.embedding(ids, start)
        mask = attention_mask(start, end, end, (causal, *self.rules), mask)
        x, back_decoder = self.decoder(x, StackInputs(mask, cache=cache, forward_only=cache is not None))
        if cache:
            cache.length = end
        return x, lambda dx: back_embed(back_decoder(dx))

    def new_cache(self) -> KVCache:
        return KVCache(len(self.decoder.layers))


Model = EncoderDecoder | DecoderOnly
