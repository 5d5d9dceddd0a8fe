"""Baselines: counting, nearest neighbours, word-for-word translation, and small classifiers of scikit-learn."""

from __future__ import annotations

import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cutaway.errors import DataError, MissingExtra


class TaggedWords(Protocol):
    @property
    def words(self) -> Sequence[str]: ...
    @property
    def tags(self) -> Sequence[str]: ...


class AlignedWords(Protocol):
    @property
    def source_words(self) -> Sequence[str]: ...
    @property
    def target_words(self) -> Sequence[str]: ...
    @property
    def alignment(self) -> Iterable[tuple[int, int]]: ...  # (source word, target word)


def most_frequent_tags(train: Iterable[TaggedWords], words_list: Iterable[Sequence[str]]) -> list[list[str]]:
    """Tag each word with its most frequent tag in training, and a new word with the most frequent tag of all."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for example in train:
        for word, tag in zip(example.words, example.tags, strict=True):
            counts[word][tag] += 1
    if not counts:
        raise DataError("there are no tagged words in the training examples. Give at least one.")
    best = {word: _most_frequent(tags) for word, tags in counts.items()}
    overall = _most_frequent(sum(counts.values(), Counter()))
    return [[best.get(word, overall) for word in words] for words in words_list]


def _most_frequent(counts: Counter[str]) -> str:
    return min(counts, key=lambda key: (-counts[key], key))  # ties: the first by name


def bag_of_words(
    train_texts: Sequence[str],
    train_labels: Sequence[str],
    texts: Sequence[str],
    split: Callable[[str], list[str]] = str.split,
) -> list[str]:
    """Logistic regression on word counts, which ignores the order of words."""
    try:
        from sklearn.feature_extraction.text import CountVectorizer
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        raise MissingExtra("scikit-learn", "data") from None
    vectorizer = CountVectorizer(analyzer=split)
    model = LogisticRegression(max_iter=1_000)
    model.fit(vectorizer.fit_transform(train_texts), list(train_labels))
    return [str(label) for label in model.predict(vectorizer.transform(texts))]


def words_and_marks(text: str) -> list[str]:
    """Split a text into lower-case words and punctuation marks."""
    return re.findall(r"\w+|[^\w\s]", text.lower())


MOST_WEIGHTS = 2_000_000  # classes × features; beyond it, the rarest features are left out


def words_and_pairs(
    train_texts: Sequence[str],
    train_labels: Sequence[str],
    texts: Sequence[str],
    split: Callable[[str], list[str]] = words_and_marks,
) -> list[str]:
    """Logistic regression on TF-IDF of words and word bigrams. A strong baseline on little data."""
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        raise MissingExtra("scikit-learn", "data") from None
    classes = set(train_labels)
    if len(classes) == 1:
        return [*classes] * len(texts)
    vectorizer = TfidfVectorizer(
        tokenizer=split, token_pattern=None, lowercase=False, ngram_range=(1, 2), sublinear_tf=True,
        max_features=max(1_000, MOST_WEIGHTS // len(classes)), dtype=np.float32,
    )  # fmt: skip
    model = LogisticRegression(C=10, max_iter=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not fully converged, which hardly matters
        model.fit(vectorizer.fit_transform(train_texts), list(train_labels))
    return [str(label) for label in model.predict(vectorizer.transform(texts))]


def small_mlp(
    train_pixels: NDArray[np.floating], train_labels: Sequence[str], pixels: NDArray[np.floating]
) -> list[str]:
    """A feed-forward network with two hidden layers of 256 units that reads all pixels: no patches, no attention."""
    try:
        from sklearn.neural_network import MLPClassifier
    except ImportError:
        raise MissingExtra("scikit-learn", "data") from None
    train_ND = np.asarray(train_pixels, np.float32).reshape(len(train_pixels), -1)
    mean, scale = train_ND.mean(axis=0), train_ND.std() + 1e-6
    counts = Counter(train_labels)
    can_validate = min(counts.values()) > 1 and len(train_labels) >= 10 * len(counts)  # early stopping splits by class
    model = MLPClassifier(
        (256, 256), alpha=0.01, early_stopping=can_validate, n_iter_no_change=5, max_iter=60, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit((train_ND - mean) / scale, list(train_labels))
    pixels_MD = np.asarray(pixels, np.float32).reshape(len(pixels), -1)
    return [str(label) for label in model.predict((pixels_MD - mean) / scale)]


class Bigram:
    """A bigram model: it predicts a token from the one before it, with the smoothing of Witten & Bell (1991).

        p(t | s) = (c(s, t) + d(s)·p(t)) / (c(s) + d(s))        p(t) = (c(t) + 1) / (N + V)

    c are counts in the training data. d(s) is the number of different tokens that followed s: the more, the more
    likely is a new one. p(t | s) is positive, and its sum over t is 1.
    """

    def __init__(self, sequences_of_ids: Iterable[ArrayLike], vocab_size: int):
        sequences = [np.asarray(ids, dtype=np.int64) for ids in sequences_of_ids]
        if not any(len(ids) for ids in sequences):
            raise DataError("there are no tokens. A bigram model needs at least one.")
        tokens = np.concatenate(sequences)
        if tokens.min() < 0 or tokens.max() >= vocab_size:
            raise DataError(f"ids are from {tokens.min()} to {tokens.max()}. Expected 0 to {vocab_size - 1}.")
        self.vocab_size = vocab_size
        counts = np.bincount(tokens, minlength=vocab_size)
        self.unigram = (counts + 1) / (counts.sum() + vocab_size)
        pairs = np.concatenate([ids[:-1] * vocab_size + ids[1:] for ids in sequences])
        self.pairs, self.counts = np.unique(pairs, return_counts=True)  # the pair (s, t) is the number s·V + t
        self.followed = np.bincount(self.pairs // vocab_size, weights=self.counts, minlength=vocab_size)
        self.different = np.bincount(self.pairs // vocab_size, minlength=vocab_size)

    def nll(self, previous: NDArray[np.integer], tokens: NDArray[np.integer]) -> NDArray[np.float64]:
        """-ln p(token | previous), for arrays of the same shape."""
        pairs = np.asarray(previous, dtype=np.int64) * self.vocab_size + tokens
        return -np.log(self._smoothed(self._count(pairs), previous, tokens))

    def best(self, previous: NDArray[np.integer]) -> NDArray[np.int64]:
        """The most likely token after each of `previous`."""
        return self._best_after[np.asarray(previous, dtype=np.int64)]

    def _count(self, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        if not len(self.pairs):
            return np.zeros(pairs.shape, dtype=np.int64)
        index = np.searchsorted(self.pairs, pairs).clip(max=len(self.pairs) - 1)
        return np.where(self.pairs[index] == pairs, self.counts[index], 0)

    def _smoothed(
        self, counts: NDArray[np.integer], previous: NDArray[np.integer], tokens: NDArray[np.integer]
    ) -> NDArray[np.float64]:
        followed, different = self.followed[previous], self.different[previous]
        is_known = followed > 0  # without a following token in training: p(t)
        mixed = (counts + different * self.unigram[tokens]) / np.where(is_known, followed + different, 1)
        return np.where(is_known, mixed, self.unigram[tokens])

    @cached_property
    def _best_after(self) -> NDArray[np.int64]:
        """For each token the most likely next one: of a pair in the training data, or the most frequent token."""
        table = np.full(self.vocab_size, self.unigram.argmax())
        first, second = np.divmod(self.pairs, self.vocab_size)
        ascending = np.lexsort((-second, self._smoothed(self.counts, first, second), first))
        table[first[ascending]] = second[ascending]  # the last assignment is the most likely
        every = np.arange(self.vocab_size)
        common = np.full(self.vocab_size, self.unigram.argmax())
        return np.where(self.nll(every, common) < self.nll(every, table), common, table)


def nearest_neighbour(
    train_pixels: NDArray[np.floating],
    train_labels: Sequence[str],
    pixels: NDArray[np.floating],
    batch_size: int = 256,
) -> list[str]:
    """Give each image [M, ...] the label of the nearest training image [N, ...] (Euclidean distance)."""
    train_ND = np.asarray(train_pixels, dtype=np.float64).reshape(len(train_pixels), -1)
    if len(train_ND) != len(train_labels) or not len(train_ND):
        raise DataError(
            f"{len(train_ND)} images have {len(train_labels)} labels. Give one label for each, and at least one image."
        )
    pixels_MD = np.asarray(pixels, dtype=np.float64).reshape(len(pixels), train_ND.shape[1])
    squares_N = (train_ND**2).sum(axis=1)
    nearest: list[int] = []
    for start in range(0, len(pixels_MD), batch_size):
        # |a - b|² = |a|² - 2·a·b + |b|², and |a|² is the same for all b
        nearest += (squares_N - 2 * pixels_MD[start : start + batch_size] @ train_ND.T).argmin(axis=1).tolist()
    return [train_labels[i] for i in nearest]


def word_for_word(train: Iterable[AlignedWords], sources: Iterable[Sequence[str]]) -> list[str]:
    """Replace each word by the one that it was aligned with most often. Drop words that were never aligned.

    A word that is aligned with several words of a sentence, as "is" with "il y a", counts each of them.
    """
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for pair in train:
        for source, target in pair.alignment:
            counts[pair.source_words[source]][pair.target_words[target]] += 1
    best = {word: _most_frequent(partners) for word, partners in counts.items()}
    sources = list(sources)
    if any(isinstance(words, str) for words in sources):
        raise DataError("word_for_word got a text instead of a list of words. Give the source_words of each pair.")
    return [_join(best[word] for word in words if word in best) for words in sources]


def _join(words: Iterable[str]) -> str:
    text = " ".join(words)
    for mark in (".", ",", "?", "!"):
        text = text.replace(f" {mark}", mark)
    return text
