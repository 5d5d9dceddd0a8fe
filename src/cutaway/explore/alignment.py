"""Word alignment from cross-attention: the alignment error rate of each head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from cutaway.data.batching import collate_pairs
from cutaway.data.tasks import Encoding, encode_pairs
from cutaway.explore.trace import KINDS
from cutaway.inference.pipelines import Translator
from cutaway.metrics.alignment import Links, alignment_error_rate, links_from_attention, words_of_tokens
from cutaway.nn.recording import record_activations


class WordAlignedPair(Protocol):
    """A sentence pair with its word alignment, such as those of tinyworld."""

    @property
    def source(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def source_words(self) -> tuple[str, ...]: ...
    @property
    def target_words(self) -> tuple[str, ...]: ...
    @property
    def alignment(self) -> tuple[tuple[int, int], ...]: ...


class Head(NamedTuple):
    layer: int
    head: int


def has_alignments(pairs: Sequence[object]) -> bool:
    return bool(pairs) and hasattr(pairs[0], "alignment")


class TokenWords(NamedTuple):
    """Which word each token of a pair belongs to."""

    source: list[int | None]
    target: list[int | None]


@torch.no_grad()
def alignment_by_head(
    translator: Translator, pairs: Sequence[WordAlignedPair], batch_size: int = 64
) -> dict[Head, float]:
    """The alignment error rate of every cross-attention head on these pairs. The decoder reads the correct targets."""
    found: dict[Head, list[Links]] = {}
    for start in range(0, len(pairs), batch_size):
        batch = pairs[start : start + batch_size]
        words = [words_of(translator, pair) for pair in batch]
        for layer, weights_BHTS in enumerate(cross_attention(translator, batch)):
            for head in range(weights_BHTS.shape[1]):
                links = [links_of(weights_BHTS[b, head], words[b]) for b in range(len(batch))]
                found.setdefault(Head(layer, head), []).extend(links)
    gold = [pair.alignment for pair in pairs]
    return {head: alignment_error_rate(links, gold) for head, links in found.items()}


def best_head(translator: Translator, pairs: Sequence[WordAlignedPair], max_pairs: int = 300) -> Head:
    """The head with the lowest error rate.

    Measure it on other pairs than those it was chosen on: the best of many heads is partly luck.
    """
    by_head = alignment_by_head(translator, pairs[:max_pairs])
    return min(by_head, key=lambda head: by_head[head])


def cross_attention(translator: Translator, pairs: Sequence[WordAlignedPair]) -> list[NDArray[np.float64]]:
    """The cross-attention weights [B, H, T, S] of each layer, with the correct targets as decoder input."""
    encoded = encode_pairs(pairs, Encoding(translator.tokenizer))
    batch = collate_pairs(encoded, translator.tokenizer).to(translator.device)
    with record_activations(translator.model, KINDS["cross"].format("*")) as seen:
        translator.model(batch.source, batch.target_in, batch.source_mask, batch.target_mask)
    return [seen[KINDS["cross"].format(layer)].cpu().double().numpy() for layer in range(len(seen))]


def words_of(translator: Translator, pair: WordAlignedPair) -> TokenWords:
    spans = translator.tokenizer.spans
    source = words_of_tokens(pair.source, pair.source_words, spans(pair.source))
    return TokenWords([*source, None], words_of_tokens(pair.target, pair.target_words, spans(pair.target)))


def links_of(weights_TS: NDArray[np.float64], words: TokenWords) -> Links:
    """The alignment links of one head. Row t has the weights with which token t was predicted.

    Rows and columns after the words (</s> and padding) are dropped.
    """
    return links_from_attention(weights_TS[: len(words.target), : len(words.source)], *words)


def crossings(alignment: Sequence[tuple[int, int]]) -> int:
    """The number of pairs of links that cross; 0 if both sentences have the same word order."""
    return sum((s1 - s2) * (t1 - t2) < 0 for i, (s1, t1) in enumerate(alignment) for s2, t2 in alignment[:i])


def gold_cells(words: TokenWords, alignment: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The cells (target token, source token) whose words are aligned."""
    links = set(alignment)
    return [
        (t, s)
        for t, target in enumerate(words.target)
        for s, source in enumerate(words.source)
        if (source, target) in links
    ]
