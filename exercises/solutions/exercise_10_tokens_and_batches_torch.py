"""A solution of exercise 10, in PyTorch. Pairs have ranks here, and batches are slices of the sorted texts."""

from itertools import pairwise

import torch
from torch.nn.utils.rnn import pad_sequence


def count_pairs(split_words):
    counts = {}
    for symbols, count in split_words:
        # The pairs of one word at a time: they do not reach into the next word.
        # mistakes: pairs-across-words
        for pair in pairwise(symbols):
            # mistakes: counts-ignored, counts-overwritten
            counts[pair] = counts.get(pair, 0) + count
    return counts


def merge_pair(symbols, pair):
    left, right = pair
    merged = []
    is_used = False
    for i, symbol in enumerate(symbols):
        # The right symbol of a pair was merged one step before.
        # mistakes: right-symbol-kept, symbol-used-twice
        if is_used:
            is_used = False
            continue
        # mistakes: last-symbol-lost
        is_used = symbol == left and i + 1 < len(symbols) and symbols[i + 1] == right
        merged.append(left + right if is_used else symbol)
    return merged


def learn_merges(words, n_merges):
    # Keys are the words, values their symbols; the counts stay in `words`.
    # mistakes: no-end-mark, end-mark-split, end-mark-glued
    symbols = {word: [*word, "</w>"] for word in words}
    merges = []
    while len(merges) < n_merges:
        counts = count_pairs([(symbols[word], count) for word, count in words.items()])
        if not counts:
            break
        # First the largest count, then the smallest of the pairs that have it.
        # mistakes: ties-broken, ties-largest, rarest-pair
        most = max(counts.values())
        best = min(pair for pair, count in counts.items() if count == most)
        # mistakes: merged-strings
        merges.append(best)
        # mistakes: words-not-updated
        symbols = {word: merge_pair(parts, best) for word, parts in symbols.items()}
    return merges


def apply_merges(word, merges):
    # The rank of a pair is its place in the list. As long as there is a pair with a rank, merge the lowest rank.
    # mistakes: merges-reversed, leftmost-first, longest-first
    ranks = {tuple(pair): rank for rank, pair in reversed(list(enumerate(merges)))}
    tokens = [*word, "</w>"]
    while found := [pair for pair in pairwise(tokens) if pair in ranks]:
        tokens = merge_pair(tokens, min(found, key=ranks.__getitem__))
    return tokens


def encode(text, merges, vocabulary, unknown):
    # One flat list: first over the words, then over the tokens of each word.
    # mistakes: text-not-split, split-at-one-space, list-for-each-word
    tokens = [token for word in text.split() for token in apply_merges(word, merges)]
    # get returns its second argument only if the token is missing, so id 0 stays 0.
    # mistakes: zero-is-unknown, unknown-ignored, unknown-dropped
    return [vocabulary.get(token, unknown) for token in tokens]


def decode(ids, tokens):
    text = ""
    for i in ids:
        token = tokens[i]
        # removesuffix removes the whole mark; rstrip would remove single characters, also the w of "low".
        # mistakes: characters-stripped
        text += token.removesuffix("</w>") + " " if token.endswith("</w>") else token
    # mistakes: space-at-end
    return text.strip()


def pad_batch(texts, pad):
    # A type, because an empty list has none.
    rows = [torch.tensor(text, dtype=torch.long) for text in texts]
    # pad_sequence returns [T, B] unless it is told otherwise, and pads with 0.
    # mistakes: batch-transposed, pad-ignored
    return pad_sequence(rows, batch_first=True, padding_value=pad)


def make_batches(lengths, budget):
    # mistakes: not-sorted, longest-first, places-returned
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    batches, start = [], 0
    while start < len(order):
        end = start + 1
        # Take one more text as long as n texts, each padded to the length of the last one, fit.
        # mistakes: padding-not-counted, longest-not-updated, budget-not-reached
        while end < len(order) and (end + 1 - start) * lengths[order[end]] <= budget:
            end += 1
        # mistakes: text-lost
        batches.append(order[start:end])
        start = end
    return batches
