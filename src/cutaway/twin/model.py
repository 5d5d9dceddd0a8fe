"""The encoder-decoder and the decoder alone, and the masks that say who may attend to whom."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cutaway.twin.attention import Cache
from cutaway.twin.basics import InputEmbedding, LanguageHead
from cutaway.twin.layers import Stack, StackInputs
from cutaway.twin.modules import ForwardResult, Module, Variable
from cutaway.twin.ops import Array

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


class EncoderDecoder(Module):
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
    ) -> ForwardResult:
        """source [B,S], target_in [B,T] -> logits [B,T,V].    backward(d_logits): every parameter gets its gradient"""
        memory, back_encode = self.encode(source, source_mask)
        read_often = Variable(memory)  # every decoder layer reads the memory, and sends a gradient back to it
        x, back_decode = self.decode(target_in, read_often, source_mask, target_mask)
        logits, back_head = self.head(x)

        def backward(d_logits: Array) -> None:
            read_often.gradient = None
            back_decode(back_head(d_logits))
            back_encode(read_often.gradient)  # type: ignore[arg-type]

        return logits, backward

    def encode(self, source: Array, source_mask: Array | None = None, forward_only: bool = False) -> ForwardResult:
        """source [B,S] -> memory [B,S,D]. Whoever goes one way alone, and not back, needs less memory."""
        x, back_embed = self.source_embedding(source)
        length = source.shape[1]
        mask = who_may_attend(0, length, length, self.rules, source_mask)
        memory, back_encoder = self.encoder(x, StackInputs(mask, forward_only=forward_only))
        return memory, lambda d_memory: back_embed(back_encoder(d_memory))

    def decode(
        self,
        target_in: Array,
        memory: Variable,
        source_mask: Array | None = None,
        target_mask: Array | None = None,
        cache: Cache | None = None,
    ) -> ForwardResult:
        """target_in [B,T], memory [B,S,D] -> x [B,T,D]. With a cache, target_in is only what is new."""
        start = cache.length if cache else 0
        end = start + target_in.shape[1]
        mask = who_may_attend(start, end, end, (causal, *self.rules), target_mask)
        x, back_embed = self.target_embedding(target_in, start)
        x, back_decoder = self.decoder(
            x, StackInputs(mask, memory, padding_mask(source_mask), cache, forward_only=cache is not None)
        )
        if cache:
            cache.length = end
        return x, lambda dx: back_embed(back_decoder(dx))

    def new_cache(self) -> Cache:
        return Cache(len(self.decoder.layers))


class DecoderOnly(Module):
    """p(text): a decoder that looks at nothing but what it has read."""

    def __init__(self, embedding: InputEmbedding, decoder: Stack, head: LanguageHead, rules: tuple[Rule, ...] = ()):
        self.embedding, self.decoder, self.head = embedding, decoder, head
        self.rules = rules

    def __call__(self, ids: Array, mask: Array | None = None) -> ForwardResult:
        """ids [B,T] -> logits [B,T,V].    backward(d_logits): every parameter gets its gradient"""
        x, back_decode = self.decode(ids, mask)
        logits, back_head = self.head(x)
        return logits, lambda d_logits: back_decode(back_head(d_logits))

    def decode(self, ids: Array, mask: Array | None = None, cache: Cache | None = None) -> ForwardResult:
        """ids [B,T] -> x [B,T,D]. With a cache, ids are only what is new."""
        start = cache.length if cache else 0
        end = start + ids.shape[1]
        x, back_embed = self.embedding(ids, start)
        mask = who_may_attend(start, end, end, (causal, *self.rules), mask)
        x, back_decoder = self.decoder(x, StackInputs(mask, cache=cache, forward_only=cache is not None))
        if cache:
            cache.length = end
        return x, lambda dx: back_embed(back_decoder(dx))

    def new_cache(self) -> Cache:
        return Cache(len(self.decoder.layers))


Model = EncoderDecoder | DecoderOnly
