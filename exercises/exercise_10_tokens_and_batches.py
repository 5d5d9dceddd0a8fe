"""Exercise 10. Tokens and batches      ("Neural Machine Translation of Rare Words with Subword Units"; the paper, 5.1)

    "low lower"  ──split──▶  l o w </w>  l o w e r </w>  ──merges──▶  low</w>  low er</w>  ──ids──▶  [2, 0, 3]

    texts of different lengths  ──make_batches──▶  batches of similar length  ──pad_batch──▶  [B, T]

A model reads ids of tokens, many texts at a time. This exercise turns texts into ids with byte-pair encoding (BPE),
turns ids into texts, and puts texts of different lengths into batches.

Replace each `raise NotImplementedError` and check yourself as often as you like:

    cutaway check 10            which parts are right, and what is wrong with the others
    cutaway check 10 --watch    the same again each time you save this file
    cutaway check 10 --hint     a stronger hint

Most functions need only lists, dicts and texts. pad_batch returns a NumPy array. If you prefer PyTorch, write
`import torch` instead and return a tensor.
"""

import numpy as np


def count_pairs(split_words):
    """Count how often each pair of neighbouring symbols occurs.

    split_words: a list of (symbols, count): the symbols of a word, and how often the word occurs
                 [(["l", "o", "w"], 5), (["l", "o", "t"], 2)]

    -> a dict from (left, right) to a count
                 {("l", "o"): 7, ("o", "w"): 5, ("o", "t"): 2}

    Every place counts: ["a", "a", "a"] contains the pair ("a", "a") twice. Pairs that do not occur are not in the dict.
    """
    raise NotImplementedError


def merge_pair(symbols, pair):
    """Replace every occurrence of a pair by one symbol, from left to right.

    symbols: a list of texts    ["b", "a", "n", "a", "n", "a"]
    pair: (left, right)         ("a", "n")

    -> a new list               ["b", "an", "an", "a"]

    A symbol is merged only once: ["a", "a", "a"] with the pair ("a", "a") becomes ["aa", "a"].
    """
    raise NotImplementedError


def learn_merges(words, n_merges):
    """Learn which pairs to merge: byte-pair encoding.

    words: a dict from word to count: how often each word occurs    {"low": 5, "lot": 2}
    n_merges: how many merges to learn

    -> the list of merged pairs, in the order in which they are learned: [("l", "o"), ("lo", "w"), ...]

    At the start, a word is the list of its letters, followed by the symbol "</w>" (end of the word). Then, n_merges
    times: count all pairs, choose the pair that occurs most often, and merge it in all words.

    If several pairs occur equally often, choose the smallest, as Python compares pairs: ("a", "z") < ("b", "a").
    Stop early only if no pair is left, because every word is a single symbol. A pair that occurs once is still a pair.
    """
    raise NotImplementedError


def apply_merges(word, merges):
    """Split a word into tokens.

    word: a text without spaces          "lower"
    merges: pairs, as learn_merges returns them: the first was learned first
                                         [("l", "o"), ("lo", "w"), ("r", "</w>")]

    -> the list of tokens                ["low", "e", "r</w>"]

    Start with the letters and "</w>", as in learn_merges. Merge the pair that was learned first wherever it occurs,
    then the second, and so on. The order matters: "abc" with [("b", "c"), ("a", "b")] becomes ["a", "bc", "</w>"].
    """
    raise NotImplementedError


def encode(text, merges, vocabulary, unknown):
    """Turn a text into ids.

    text: words with white space (spaces, line ends) between them; there may be several spaces in a row
    merges: as apply_merges takes them
    vocabulary: a dict from token to id; ids begin with 0
    unknown: the id for a token that is not in the vocabulary

    -> a list of ids, one for each token of each word

    With the vocabulary {"low": 0, "e": 1, "r</w>": 2}, the tokens ["low", "o", "r</w>"] become [0, unknown, 2].
    """
    raise NotImplementedError


def decode(ids, tokens):
    """Turn ids into a text: the opposite of encode.

    ids: a list of ids
    tokens: a list; tokens[id] is the token with this id

    -> a text with one space between two words, and none at its end

    The tokens ["low", "er</w>", "low</w>"] become "lower low". The last word may be unfinished, without "</w>": the
    tokens ["low</w>", "lo"] become "low lo". No id gives the text "".
    """
    raise NotImplementedError


def pad_batch(texts, pad):
    """Put texts of different lengths into one array.

    texts: B lists of ids; a list may be empty
    pad: the id that fills the rest of a row

    -> [B, T], T is the length of the longest text; all padding stands on the right

    pad_batch([[5, 6, 7], [8]], 0) is [[5, 6, 7], [8, 0, 0]].
    """
    raise NotImplementedError


def make_batches(lengths, budget):
    """Group texts of similar length, so that little of a batch is padding.

    lengths: the number of tokens of each text
    budget: how many places a batch may have. With padding it has (number of texts) · (longest text) places.

    -> a list of batches; a batch is a list of indices of texts

    Take the texts from the shortest to the longest. Texts of the same length keep their order: np.argsort needs
    kind="stable" for this, torch.argsort stable=True. Add a text to the current batch if the batch then has at most
    `budget` places. Otherwise a new batch begins with this text. A text that is longer than the budget gets a batch of
    its own. No batch is empty.

    make_batches([2, 5, 2, 4], 8) is [[0, 2], [3], [1]]: 2 · 2 = 4 places, 1 · 4 = 4 places, 1 · 5 = 5 places.
    """
    raise NotImplementedError
