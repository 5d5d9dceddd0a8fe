"""The alignment error rate of attention.

A word alignment is a set of links (source word, target word). Attention defines one, too: each target word is linked
to the source word that it attends to most, if that is a word and not the end of the sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Links = frozenset[tuple[int, int]]
Span = tuple[int, int]


def alignment_error_rate(
    found: Sequence[Iterable[tuple[int, int]]], gold: Sequence[Iterable[tuple[int, int]]]
) -> float:
    """AER = 1 - 2·|found ∩ gold| / (|found| + |gold|), over a whole corpus (Och & Ney 2003, all gold links are "sure").

    0: the same links; 1: no link in common.
    """
    pairs = [(set(f), set(g)) for f, g in zip(found, gold, strict=True)]
    total = sum(len(f) + len(g) for f, g in pairs)
    return 1.0 - 2.0 * sum(len(f & g) for f, g in pairs) / total if total else 0.0


def links_from_attention(
    weights_TS: NDArray[np.floating], source_words: Sequence[int | None], target_words: Sequence[int | None]
) -> Links:
    """Turn attention between tokens into links between words.

    Row t of `weights` [T, S] is the attention of target token t. `source_words` and `target_words` give the word of
    each token (None for tokens such as </s>). The weights of a word's tokens are summed; the largest sum is the link.
    """
    no_word = 1 + max((w for w in source_words if w is not None), default=-1)  # a last column for tokens without a word
    source = [no_word if w is None else w for w in source_words]
    targets = [(t, w) for t, w in enumerate(target_words) if w is not None]
    table = np.zeros((1 + max((w for _, w in targets), default=-1), no_word + 1))
    for t, word in targets:
        np.add.at(table[word], source, weights_TS[t])
    return frozenset((int(s), t) for t, s in enumerate(table.argmax(axis=1)) if s != no_word)


def words_of_tokens(text: str, words: Sequence[str], token_spans: Sequence[Span]) -> list[int | None]:
    """The word of each token, by their positions in the text."""
    word_spans, start = [], 0
    for word in words:
        start = text.index(word, start)
        word_spans.append((start, start + len(word)))
        start += len(word)
    return [_find_overlap(span, word_spans) for span in token_spans]


def _find_overlap(span: Span, word_spans: Sequence[Span]) -> int | None:
    for i, (start, end) in enumerate(word_spans):
        if span[0] < end and start < span[1]:
            return i
    return None
