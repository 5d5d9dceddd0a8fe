"""What each task needs of the data: which corpora and files it reads, and how examples become ids. No torch here.

task                    files in the recipe                        an example becomes
translation             two parallel texts                         source and target ids
language_model          texts                                      pieces of one long row of ids
masked_language_model   texts                                      the same; tokens are hidden in each batch anew
classification          TSV or JSONL: a text and its label         <s> ids </s> and the number of the label
tagging                 CoNLL: a word and its tag a line           <s> ids </s> and a tag where a word begins
image_classification    none (a built-in corpus)                   pixels and the number of the label
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cutaway.config import DataConfig
from cutaway.data.builtin import SentencePair, Words, find_corpus
from cutaway.data.corpus import read_pairs, read_texts
from cutaway.data.examples import Labelled, Picture, Tagged
from cutaway.data.labels import read_labels, read_tags
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import DataError

NO_TAG = -1  # at a token that is no first token of a word: the model is not asked about it


class EncodedPair(NamedTuple):
    source: list[int]
    target: list[int]

    @property
    def lengths(self) -> tuple[int, ...]:
        return len(self.target) + 1, len(self.source) + 1  # <s> or </s> comes on top


class EncodedPiece(NamedTuple):
    """A piece of a long text, and the token that comes after it."""

    ids: list[int]

    @property
    def lengths(self) -> tuple[int, ...]:
        return (len(self.ids) - 1,)


class EncodedText(NamedTuple):
    ids: list[int]

    @property
    def lengths(self) -> tuple[int, ...]:
        return (len(self.ids),)


class EncodedLabelled(NamedTuple):
    ids: list[int]
    label: int

    @property
    def lengths(self) -> tuple[int, ...]:
        return (len(self.ids),)


class EncodedTagged(NamedTuple):
    ids: list[int]
    tags: list[int]  # one for each id; NO_TAG where none is asked for

    @property
    def lengths(self) -> tuple[int, ...]:
        return (len(self.ids),)


class EncodedPicture(NamedTuple):
    pixels: NDArray[np.float32]
    label: int

    @property
    def lengths(self) -> tuple[int, ...]:
        return (1,)  # a batch of images is counted in images


Encoded = EncodedPair | EncodedPiece | EncodedText | EncodedLabelled | EncodedTagged | EncodedPicture


@dataclass(frozen=True)
class Encoding:
    """All that turning examples into ids needs to know."""

    tokenizer: Tokenizer | None
    labels: Sequence[str] = ()
    max_tokens: int = 0

    @property
    def words(self) -> Tokenizer:
        assert self.tokenizer is not None, "only images come without a tokenizer"
        return self.tokenizer

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.labels)}

    def number(self, label: str) -> int:
        try:
            return self.numbers[label]
        except KeyError:
            raise DataError(
                f"the label {label!r} does not occur in the training data, whose labels are: "
                f"{', '.join(self.labels[:20])}{', ...' if len(self.labels) > 20 else ''}."
            ) from None


@dataclass(frozen=True)
class Task:
    kind: str  # of built-in corpus
    files: str  # what data.train must name
    read: Callable[..., Sequence[Any]]
    texts: Callable[[Any], Iterable[str]]  # what of an example the tokenizer learns from
    encode: Callable[[Sequence[Any], Encoding], Sequence[Encoded]]
    labels: Callable[[Any], Iterable[str]] = lambda example: ()  # what of an example is a class
    has_mask: bool = False  # whether the tokenizer needs a <mask>


def encode_pairs(pairs: Sequence[SentencePair], encoding: Encoding) -> list[EncodedPair]:
    sources = encoding.words.encode_batch([pair.source for pair in pairs])
    targets = encoding.words.encode_batch([pair.target for pair in pairs])
    return [EncodedPair(s, t) for s, t in zip(sources, targets, strict=True)]


def encode_pieces(texts: Sequence[str], encoding: Encoding) -> list[EncodedPiece]:
    """<s> text </s> <s> text </s> ... in pieces of max_tokens, each with the token that comes after it.

    Every token but the very first is asked for once; the last piece may be shorter.
    """
    tokenizer, piece = encoding.words, encoding.max_tokens
    row = [i for ids in tokenizer.encode_batch(texts) for i in (tokenizer.bos, *ids, tokenizer.eos)]
    return [EncodedPiece(row[start : start + piece + 1]) for start in range(0, len(row) - 1, piece)]


def encode_masked(texts: Sequence[str], encoding: Encoding) -> list[EncodedText]:
    """<s> piece </s>: each text cut into pieces that fit into max_tokens."""
    tokenizer, room = encoding.words, encoding.max_tokens - 2
    rows = tokenizer.encode_batch(texts)
    pieces = (ids[start : start + room] for ids in rows for start in range(0, len(ids), room))
    return [EncodedText([tokenizer.bos, *piece, tokenizer.eos]) for piece in pieces]


def encode_labelled(examples: Sequence[Labelled], encoding: Encoding) -> list[EncodedLabelled]:
    tokenizer = encoding.words
    rows = tokenizer.encode_batch([example.text for example in examples])
    return [
        EncodedLabelled([tokenizer.bos, *ids, tokenizer.eos] if ids else [], encoding.number(example.label))
        for ids, example in zip(rows, examples, strict=True)
    ]


def encode_tagged(examples: Sequence[Tagged], encoding: Encoding) -> list[EncodedTagged]:
    """A word may be several tokens; the first of them carries its tag."""
    pieces = encode_words(encoding.words, [example.words for example in examples])
    return [
        EncodedTagged(row.ids, place_tags(row, [encoding.number(tag) for tag in example.tags]))
        for row, example in zip(pieces, examples, strict=True)
    ]


class EncodedWords(NamedTuple):
    ids: list[int]
    first: list[int]  # for each word, where in `ids` it begins


def encode_words(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]]) -> list[EncodedWords]:
    """<s> ids </s> of sentences that are cut into words already. Each different word is encoded once."""
    different = sorted({word for words in sentences for word in words})
    nothing = [tokenizer.eos if tokenizer.unk is None else tokenizer.unk]  # a word of which nothing is left
    ids_of = {word: ids or nothing for word, ids in zip(different, tokenizer.encode_batch(different), strict=True)}
    result = []
    for words in sentences:
        ids, first = [tokenizer.bos], []
        for word in words:
            first.append(len(ids))
            ids.extend(ids_of[word])
        result.append(EncodedWords([*ids, tokenizer.eos], first))
    return result


def place_tags(row: EncodedWords, tags: Sequence[int]) -> list[int]:
    placed = [NO_TAG] * len(row.ids)
    for place, tag in zip(row.first, tags, strict=True):
        placed[place] = tag
    return placed


def encode_pictures(examples: Sequence[Picture], encoding: Encoding) -> list[EncodedPicture]:
    return [EncodedPicture(example.pixels, encoding.number(example.label)) for example in examples]


def no_image_files(*paths: Path) -> Sequence[Picture]:
    raise DataError('images are read from a built-in corpus only: set data.corpus = "digits".')


TASKS: dict[str, Task] = {
    "translation": Task(
        "pairs", "two parallel files", read_pairs, lambda pair: (pair.source, pair.target), encode_pairs
    ),
    "language_model": Task("texts", "text files", read_texts, lambda text: (text,), encode_pieces),
    "masked_language_model": Task(
        "texts", "text files", read_texts, lambda text: (text,), encode_masked, has_mask=True
    ),
    "classification": Task(
        "labels",
        "a file of texts with labels",
        read_labels,
        lambda example: (example.text,),
        encode_labelled,
        labels=lambda example: (example.label,),
    ),
    "tagging": Task(
        "tags",
        "a file of words with tags",
        read_tags,
        lambda example: example.words,
        encode_tagged,
        labels=lambda example: example.tags,
    ),
    "image_classification": Task(
        "images", "image files", no_image_files, lambda picture: (), encode_pictures, labels=lambda p: (p.label,)
    ),
}


def load_split(config: DataConfig, task: str, split: str, seed: int = 0) -> Sequence[Any]:
    """The examples of one split ("train", "valid", "test"; tinyworld has "unseen" too)."""
    if config.corpus:
        corpus, wanted = find_corpus(config.corpus), TASKS[task].kind
        if corpus.kind != wanted:
            raise DataError(
                f"the corpus {config.corpus!r} is made of {corpus.kind}, and the task {task!r} needs {wanted}. "
                "Choose another data.corpus, or the model.family and model.head that go with this one."
            )
        return corpus.load(split, config.size if split == "train" else config.heldout_size, seed)
    files = getattr(config, split, ())
    if not files:
        raise DataError(
            f"the recipe names no {split} data. Set data.corpus to a built-in corpus, or data.{split} to "
            f"{TASKS[task].files}."
        )
    return TASKS[task].read(*(Path(config.root) / file for file in files))


def words_of(config: DataConfig) -> Words:
    """How the texts of a recipe's corpus are cut into words: a built-in one may have its own way."""
    return find_corpus(config.corpus).words if config.corpus else str.split


def has_split(config: DataConfig, split: str) -> bool:
    return bool(config.corpus or getattr(config, split))


def labels_of(task: str, examples: Sequence[Any]) -> list[str]:
    """The different classes of the training data, in alphabetical order: a class's number is its place here."""
    return sorted(set(chain.from_iterable(TASKS[task].labels(example) for example in examples)))
