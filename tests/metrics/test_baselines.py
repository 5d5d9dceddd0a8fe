import math
import sys
import time
from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from untrained import untrained_pipeline

from cutaway.data.examples import LabelledImage, LabelledText
from cutaway.errors import DataError, MissingExtra
from cutaway.metrics.baselines import (
    Bigram,
    bag_of_words,
    most_frequent_tags,
    nearest_neighbour,
    small_mlp,
    word_for_word,
    words_and_marks,
    words_and_pairs,
)


def tagged(text):
    words, tags = zip(*(pair.split("/") for pair in text.split()), strict=True)
    return SimpleNamespace(words=words, tags=tags)


def test_most_frequent_tags():
    train = [tagged("the/D run/N is/V"), tagged("they/P run/V a/D run/N")]
    assert most_frequent_tags(train, [["run", "the", "fox"], []]) == [["N", "D", "D"], []]
    assert most_frequent_tags([tagged("a/Y a/X")], [["a"]]) == [["X"]]  # ties: the first by name
    with pytest.raises(DataError, match="no tagged words"):
        most_frequent_tags([], [["a"]])


def test_bag_of_words():
    texts = [f"{word} number {i}" for i in range(20) for word in ("good", "bad")]
    labels = ["+", "-"] * 20
    assert bag_of_words(texts, labels, ["what a good day", "a bad one"]) == ["+", "-"]
    letters = bag_of_words(["aab", "bba"] * 9, ["a", "b"] * 9, ["aaaa", "bb", "baa"], split=list)
    assert letters == ["a", "b", "a"]


def test_bag_of_words_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(MissingExtra, match=r"needs scikit-learn.*cutaway\[data\]"):
        bag_of_words(["a"], ["b"], ["c"])


def test_words_and_pairs_uses_the_order_of_words():
    """The label is the order of two words, which bigrams show and word counts do not."""
    fillers = [f"w{i}" for i in range(9)]
    texts = [f"{fillers[i % 9]} {pair} {fillers[i * 5 % 9]}" for i in range(40) for pair in ("a b", "b a")]
    labels, new = ["ab", "ba"] * 40, ["w3 a b w1 w1", "b a w7 w2"]
    assert words_and_pairs(texts, labels, new) == ["ab", "ba"]
    assert words_and_pairs(["A, b!"], ["only"], ["c", "d"]) == ["only", "only"]
    assert words_and_marks("Don't stop!") == ["don", "'", "t", "stop", "!"]


def test_small_mlp_learns_the_parity_of_two_pixels():
    """All other pixels are noise, so the nearest neighbour does not help."""
    draw = np.random.default_rng(0)
    pixels = draw.random((700, 1, 5, 5))
    pixels[:, 0, 0, :2] = draw.integers(0, 2, (700, 2))
    labels = [str(int(a != b)) for a, b in pixels[:, 0, 0, :2]]

    def correct(method):
        found = method(pixels[:600], labels[:600], pixels[600:])
        return sum(f == g for f, g in zip(found, labels[600:], strict=True))

    assert correct(small_mlp) > 90
    assert correct(small_mlp) == correct(small_mlp)
    assert small_mlp(pixels[:6], ["a", "b", "c", "d", "e", "a"], pixels[:1])  # too few for early stopping


def test_large_data_is_used_in_part_with_a_note(monkeypatch):
    from cutaway.inference import evaluation

    made = untrained_pipeline("encoder", head="classes")
    examples = [LabelledText(f"{word} {i}", word) for i in range(60) for word in ("good", "bad")]
    assert evaluation.tfidf_baseline(made, examples, examples).note == ""
    monkeypatch.setattr(evaluation, "MAX_CHARACTERS", 300)
    found = evaluation.tfidf_baseline(made, examples, examples)
    assert found.note == "TF-IDF regression: learned from 40 of the 120 training examples, to save time."
    assert found.figures == {"accuracy": 1.0, "macro_f1": 1.0}


def test_image_baseline_without_scikit_learn(monkeypatch):
    from cutaway.inference import evaluation

    examples = [LabelledImage(np.full((1, 2, 2), i % 2, np.float32), str(i % 2)) for i in range(8)]
    assert evaluation.pixel_baseline(None, examples, examples).name == "small MLP"
    monkeypatch.setattr(evaluation, "find_spec", lambda name: None)
    assert evaluation.pixel_baseline(None, examples, examples).name == "nearest neighbour"


# ---- Bigram --------------------------------------------------------------------------------------------------

VOCAB = 6
corpora = st.lists(st.lists(st.integers(0, VOCAB - 1), max_size=12), min_size=1).filter(any)


def slow_table(sequences):
    """p(t | s) with dictionaries, by Witten & Bell's formula."""
    unigram = Counter(t for ids in sequences for t in ids)
    total = sum(unigram.values())
    after = {s: Counter() for s in range(VOCAB)}
    for ids in sequences:
        for s, t in pairwise(ids):
            after[s][t] += 1
    p = {t: (unigram[t] + 1) / (total + VOCAB) for t in range(VOCAB)}

    def mixed(s, t):
        count, kinds = sum(after[s].values()), len(after[s])
        return (after[s][t] + kinds * p[t]) / (count + kinds) if count else p[t]

    return np.array([[mixed(s, t) for t in range(VOCAB)] for s in range(VOCAB)])


@given(corpora)
def test_bigram_against_dictionaries(sequences):
    model = Bigram(sequences, VOCAB)
    previous, tokens = np.divmod(np.arange(VOCAB**2).reshape(VOCAB, VOCAB), VOCAB)
    table = np.exp(-model.nll(previous, tokens))
    assert np.allclose(table, slow_table(sequences), rtol=1e-12)
    assert np.allclose(table.sum(axis=1), 1)
    assert table.min() > 0
    best = model.best(np.arange(VOCAB))
    assert np.allclose(table[np.arange(VOCAB), best], table.max(axis=1))


def test_bigram_does_not_count_across_sequences():
    model = Bigram([[0, 1], [0, 1], [], [2]], 3)
    assert model.best(np.array([0]))[0] == 1
    # nothing follows 1, so p is the unigram probability (c + 1) / (5 + 3)
    assert np.exp(-model.nll(np.array([1, 1, 1]), np.array([0, 1, 2]))) == pytest.approx([3 / 8, 3 / 8, 2 / 8])


def test_bigram_is_fast_enough_and_learns():
    draw = np.random.default_rng(0)
    ids = draw.integers(0, 4_000, 1_000_000)
    ids[1::2] = ids[::2] * 7 % 4_000  # every second token depends on the one before
    started = time.perf_counter()
    model = Bigram([ids[:900_000]], 4_000)
    nll = model.nll(ids[900_000:-1], ids[900_001:])
    assert time.perf_counter() - started < 5
    assert nll[::2].mean() < 1.5 < math.log(4_000) - 1 < nll[1::2].mean()
    assert np.array_equal(model.best(np.arange(4_000)), np.arange(4_000) * 7 % 4_000)


def test_bigram_errors():
    with pytest.raises(DataError, match="needs at least one"):
        Bigram([[]], 3)
    with pytest.raises(DataError, match="ids are from 1 to 5. Expected 0 to 3"):
        Bigram([[1, 5]], 4)


# ---- Images and translations ---------------------------------------------------------------------------------


def test_nearest_neighbour_against_scikit_learn():
    from sklearn.neighbors import KNeighborsClassifier

    draw = np.random.default_rng(0)
    train, test = draw.random((300, 1, 3, 2)), draw.random((70, 1, 3, 2))
    labels = [str(label) for label in draw.integers(0, 4, 300)]
    oracle = KNeighborsClassifier(1).fit(train.reshape(300, -1), labels)
    assert nearest_neighbour(train, labels, test, batch_size=32) == list(oracle.predict(test.reshape(70, -1)))
    with pytest.raises(DataError, match="300 images have 2 labels"):
        nearest_neighbour(train, ["a", "b"], test)


def aligned(source, target, links):
    return SimpleNamespace(source_words=source.split(), target_words=target.split(), alignment=links)


def test_word_for_word():
    train = [
        aligned("the red cat .", "le chat rouge .", [(0, 0), (1, 2), (2, 1), (3, 3)]),
        aligned("the cat does sleep !", "la chatte dort !", [(0, 0), (1, 1), (3, 2), (4, 3)]),
        aligned("the cat", "le chat", [(0, 0), (1, 1)]),
    ]
    assert word_for_word(train, [["the", "red", "cat", "does", "sleep", "."], ["the", "dog", "!"], []]) == [
        "le rouge chat dort.", "le!", "",
    ]  # fmt: skip
    with pytest.raises(DataError, match="got a text instead of a list of words"):
        word_for_word(train, ["the cat"])


def test_word_for_word_on_tinyworld():
    from cutaway.data.builtin.tinyworld import tinyworld

    pairs = tinyworld(size=300)
    translations = word_for_word(pairs, [pair.source_words for pair in pairs])
    known = {word for pair in pairs for word in pair.target_words}
    assert all(text.endswith(pair.target[-1]) for text, pair in zip(translations, pairs, strict=True))
    assert {word.rstrip(".,?!") for text in translations for word in text.split()} <= {w.rstrip(".,?!") for w in known}
