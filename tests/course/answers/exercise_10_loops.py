"""Exercise 10 with loops, symbol by symbol: slow, but right."""

import numpy as np


def count_pairs(split_words):
    counts = {}
    for symbols, count in split_words:
        for i in range(len(symbols) - 1):
            pair = symbols[i], symbols[i + 1]
            if pair not in counts:
                counts[pair] = 0
            counts[pair] += count
    return counts


def merge_pair(symbols, pair):
    merged, i = list(symbols), 0
    while i < len(merged) - 1:
        if merged[i] == pair[0] and merged[i + 1] == pair[1]:
            merged[i : i + 2] = [merged[i] + merged[i + 1]]
        i += 1
    return merged


def learn_merges(words, n_merges):
    split_words = []
    for word in words:
        symbols = list(word)
        symbols.append("</w>")
        split_words.append([symbols, words[word]])
    merges = []
    for _ in range(n_merges):
        best, most = None, 0
        for pair, count in sorted(count_pairs(split_words).items()):
            if count > most:
                best, most = pair, count
        if best is None:
            return merges
        merges.append(list(best))
        for entry in split_words:
            entry[0] = merge_pair(entry[0], best)
    return merges


def apply_merges(word, merges):
    tokens = list(word)
    tokens.append("</w>")
    for left, right in merges:
        i = 0
        while i < len(tokens) - 1:
            if tokens[i] == left and tokens[i + 1] == right:
                tokens[i] = left + right
                del tokens[i + 1]
            i += 1
    return tokens


def encode(text, merges, vocabulary, unknown):
    ids = []
    for word in text.split():
        for token in apply_merges(word, merges):
            if token in vocabulary:
                ids.append(vocabulary[token])
            else:
                ids.append(unknown)
    return np.array(ids, dtype=int)


def decode(ids, tokens):
    words, word = [], ""
    for i in ids:
        word += tokens[i]
        if word.endswith("</w>"):
            words.append(word[:-4])
            word = ""
    if word:
        words.append(word)
    return " ".join(words)


def pad_batch(texts, pad):
    longest = 0
    for text in texts:
        if len(text) > longest:
            longest = len(text)
    rows = []
    for text in texts:
        rows.append(list(text) + [pad] * (longest - len(text)))
    return rows


def make_batches(lengths, budget):
    left = list(range(len(lengths)))
    batches = []
    while left:
        i = min(left, key=lambda i: (lengths[i], i))
        left.remove(i)
        if batches and (len(batches[-1]) + 1) * lengths[i] <= budget:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches
