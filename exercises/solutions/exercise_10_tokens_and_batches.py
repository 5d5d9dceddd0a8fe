"""A solution of exercise 10, in NumPy. There are other ways to write it that are just as right."""

from collections import Counter
from itertools import pairwise

import numpy as np

END = "</w>"


def count_pairs(split_words):
    counts = Counter()
    for symbols, count in split_words:
        # pairwise gives all neighbours of this word: (s0, s1), (s1, s2), ...
        # mistakes: pairs-across-words, every-second-pair
        for pair in pairwise(symbols):
            # The word occurs `count` times, and so does each of its pairs.
            # mistakes: counts-ignored, counts-overwritten
            counts[pair] += count
    return dict(counts)


def merge_pair(symbols, pair):
    merged, i = [], 0
    # A while loop, because the step is 1 or 2.
    while i < len(symbols):
        # At the last symbol, this slice has one element only and is not equal to the pair.
        # mistakes: last-symbol-lost
        if tuple(symbols[i : i + 2]) == tuple(pair):
            merged.append(pair[0] + pair[1])
            # Both symbols are used up.
            # mistakes: right-symbol-kept, symbol-used-twice
            i += 2
        else:
            merged.append(symbols[i])
            i += 1
    return merged


def learn_merges(words, n_merges):
    # mistakes: no-end-mark, end-mark-split, end-mark-glued
    split_words = [([*word, END], count) for word, count in words.items()]
    merges = []
    for _ in range(n_merges):
        # The merges change the pairs, so they are counted again each time.
        # mistakes: counted-once
        counts = count_pairs(split_words)
        if not counts:
            break
        # min of (-count, pair): the largest count; for equal counts, the smallest pair.
        # mistakes: ties-broken, ties-largest, rarest-pair
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        # mistakes: merged-strings
        merges.append(best)
        # mistakes: words-not-updated
        split_words = [(merge_pair(symbols, best), count) for symbols, count in split_words]
    return merges


def apply_merges(word, merges):
    tokens = [*word, END]
    # The order of learning, not the order of the letters or of the lengths.
    # mistakes: merges-reversed, leftmost-first, longest-first
    for pair in merges:
        tokens = merge_pair(tokens, pair)
    return tokens


def encode(text, merges, vocabulary, unknown):
    ids = []
    # split() without an argument splits at all white space, several spaces in a row included.
    # mistakes: text-not-split, split-at-one-space
    for word in text.split():
        tokens = apply_merges(word, merges)
        # The second argument of get is used only if the token is missing, so id 0 stays 0.
        # mistakes: zero-is-unknown, unknown-ignored, unknown-dropped
        ids.extend(vocabulary.get(token, unknown) for token in tokens)
    return ids


def decode(ids, tokens):
    text = "".join(tokens[i] for i in ids)
    # Each "</w>" becomes a space; the space after the last word goes.
    # mistakes: mark-kept, no-spaces, space-at-end
    return text.replace(END, " ").rstrip()


def pad_batch(texts, pad):
    longest = max(len(text) for text in texts)
    # Begin with padding everywhere, then write the texts over it.
    # mistakes: pad-ignored
    batch = np.full((len(texts), longest), pad)
    for row, text in zip(batch, texts, strict=True):
        # mistakes: padded-on-the-left
        row[: len(text)] = text
    return batch


def make_batches(lengths, budget):
    batches, batch = [], []
    # sorted() keeps the order of equal entries.
    # mistakes: not-sorted, longest-first, places-returned
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        # The texts are sorted, so the new text is the longest of its batch.
        # mistakes: padding-not-counted, longest-not-updated, budget-not-reached
        if batch and (len(batch) + 1) * lengths[i] > budget:
            batches.append(batch)
            # The new batch begins with the text that did not fit.
            # mistakes: text-lost
            batch = []
        batch.append(i)
    # The last batch is not yet in the list. Without texts there is none.
    # mistakes: last-batch-lost, empty-batch
    return [*batches, batch] if batch else batches
