"""The references of exercise 10 against the tokenizers library, PyTorch, and exhaustive search."""

import json
import random
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.nn.utils.rnn import pad_sequence

from cutaway.course.exercises.tokens_and_batches import (
    END,
    EXERCISE,
    apply_merges,
    count_pairs,
    decode,
    encode,
    make_batches,
    merge_pair,
    pad_batch,
)
from cutaway.course.exercises.tokens_and_batches import learn_merges as learn
from cutaway.course.feedback import explain_solution
from cutaway.system.resources import shipped_folder

MARK = "·"  # the end of a word for the tokenizers library: one character
TIES = ("ties-largest", "ties-first-seen", "ties-last-seen")


def random_word(rng, letters="abcd", longest=8):
    return "".join(rng.choices(letters, k=rng.randint(1, longest)))


def random_words(rng, n=60, **options):
    return {random_word(rng, **options): rng.randint(1, 60) for _ in range(n)}


def with_end(symbol):
    return symbol.replace(MARK, END)


def train_library(words, n_merges):
    """Return the trained tokenizer. It splits at white space only."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    alphabet = {letter for word in words for letter in word} | {MARK}
    trainer = trainers.BpeTrainer(vocab_size=len(alphabet) + n_merges, min_frequency=0, show_progress=False)
    tokenizer.train_from_iterator([" ".join([word + MARK] * count) for word, count in words.items()], trainer)
    return tokenizer


def library_merges(tokenizer):
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [tuple(map(with_end, pair)) for pair in merges]


def has_ties(words, n_merges):
    """Check whether the rule for equal counts decides anything."""
    merges = learn(words, n_merges)
    return any(learn(words, n_merges, wrong=frozenset([tie])) != merges for tie in TIES)


def merges_without_ties(rng, n_merges, **options):
    words = random_words(rng, **options)
    while has_ties(words, n_merges):
        words = random_words(rng, **options)
    return words


@pytest.mark.parametrize("seed", range(6))
def test_learn_merges_equals_the_tokenizers_library(seed):
    words = merges_without_ties(random.Random(seed), 12)
    merges = learn(words, 12)
    assert len(merges) == 12
    assert merges == library_merges(train_library(words, 12))


@pytest.mark.parametrize("seed", range(4))
def test_apply_merges_and_encode_equal_the_tokenizers_library(seed):
    rng = random.Random(seed)
    words = random_words(rng, n=40)
    merges = learn(words, 30)
    tokens = ["<unk>", *"abcd", END, *dict.fromkeys(left + right for left, right in merges)]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    library = Tokenizer(
        models.BPE(
            {token.replace(END, MARK): i for token, i in vocabulary.items()},
            [(left.replace(END, MARK), right.replace(END, MARK)) for left, right in merges],
            unk_token="<unk>",
        )
    )
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    for _ in range(100):
        word = random_word(rng, longest=12)
        assert apply_merges(word, merges) == list(map(with_end, library.encode(word + MARK).tokens))
    for _ in range(20):
        text = [random_word(rng, letters="abcdx") for _ in range(5)]
        ids = encode("  ".join(text) + "\n", merges, vocabulary, 0)
        assert ids == library.encode(" ".join(word + MARK for word in text)).ids


@pytest.mark.parametrize("seed", range(4))
def test_decode_inverts_encode(seed):
    rng = random.Random(seed)
    merges = learn(random_words(rng, n=30), 20)
    tokens = [*"abcd", END, *dict.fromkeys(left + right for left, right in merges)]
    for _ in range(50):
        text = " ".join(random_word(rng) for _ in range(rng.randint(0, 6)))
        assert decode(encode(text, merges, {token: i for i, token in enumerate(tokens)}, 99), tokens) == text


@pytest.mark.parametrize("style", ["", "_torch"])
def test_the_solutions_name_mistakes_that_exist(style):
    source = (shipped_folder("exercises") / "solutions" / f"exercise_10_tokens_and_batches{style}.py").read_text(
        "utf-8"
    )
    assert "# mistakes:" not in explain_solution(EXERCISE, source)


def test_the_words_of_the_paper():
    """Algorithm 1 of the paper has these words and counts. e s is the first of three pairs that occur 9 times."""
    merges = learn({"low": 5, "lower": 2, "newest": 6, "widest": 3}, 10)
    assert merges[:5] == [("e", "s"), ("es", "t"), ("est", END), ("l", "o"), ("lo", "w")]


def test_every_merge_is_the_most_frequent_pair():
    rng = random.Random(0)
    words = random_words(rng, n=30, letters="ab", longest=6)
    texts = {word: [*word, END] for word in words}
    for left, right in learn(words, 200):
        pairs = [pair for word, symbols in texts.items() for pair in pairwise(symbols) for _ in range(words[word])]
        most = max(map(pairs.count, set(pairs)))
        assert (left, right) == min(pair for pair in set(pairs) if pairs.count(pair) == most)
        texts = {word: merge_pair(symbols, (left, right)) for word, symbols in texts.items()}
        assert all("".join(symbols) == word + END for word, symbols in texts.items())
    assert all(len(symbols) == 1 for symbols in texts.values())


def test_count_pairs_equals_a_count_of_all_places():
    rng = random.Random(0)
    split_words = [(list(word), count) for word, count in random_words(rng, letters="ab").items()]
    counts = count_pairs(split_words)
    for left in "ab":
        for right in "ab":
            places = [
                n
                for symbols, n in split_words
                for i in range(1, len(symbols))
                if symbols[i - 1 : i + 1] == [left, right]
            ]
            assert counts.get((left, right), 0) == sum(places)


def test_merge_pair_equals_a_replacement_if_symbols_are_single_letters():
    rng = random.Random(0)
    for _ in range(200):
        word = random_word(rng, letters="ab", longest=12)
        for pair in (("a", "b"), ("a", "a")):
            merged = merge_pair(list(word), pair)
            assert "".join(s if len(s) == 1 else "X" for s in merged) == word.replace("".join(pair), "X")


def test_pad_batch_equals_pad_sequence():
    rng = random.Random(0)
    for n in (1, 2, 5):
        texts = [[rng.randrange(9) for _ in range(rng.randint(0, 6))] for _ in range(n)]
        rows = [torch.tensor(text, dtype=torch.long) for text in texts]
        assert np.array_equal(pad_batch(texts, 9), pad_sequence(rows, batch_first=True, padding_value=9).numpy())


@pytest.mark.parametrize("seed", range(5))
def test_make_batches_equals_exhaustive_search(seed):
    """Of all ways to cut the sorted texts into allowed batches: the first batch as large as possible, then the second, ..."""
    rng = random.Random(seed)
    for _ in range(20):
        lengths = [rng.randint(1, 9) for _ in range(rng.randint(1, 8))]
        budget = rng.randint(4, 30)
        order = np.argsort(lengths, kind="stable").tolist()
        allowed = []
        for n_cuts in range(len(order)):
            for cuts in combinations(range(1, len(order)), n_cuts):
                batches = [order[i:j] for i, j in pairwise([0, *cuts, len(order)])]
                if all(len(b) == 1 or len(b) * max(lengths[i] for i in b) <= budget for b in batches):
                    allowed.append(batches)
        assert make_batches(lengths, budget) == max(allowed, key=lambda batches: list(map(len, batches)))
        assert len(make_batches(lengths, budget)) == min(map(len, allowed))
