"""The data of each task: which files it reads, and how examples are encoded. No torch here.

task                    files in the recipe (docs/data.md)         encoded example
translation             two parallel files, or pairs               source and target ids
language_model          texts                                      chunks of one long row of ids
masked_language_model   texts                                      the same; each batch masks random tokens
classification          TSV or JSONL: a text and its label         <s> ids </s> and the number of the label
tagging                 CoNLL: a word and its tag in each line     <s> ids </s> and a tag at the start of each word
image_classification    .npz: images and labels                    pixels and the number of the label
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cutaway.config import DataConfig
from cutaway.data.builtin import SentencePair, WordSplitter, find_corpus
from cutaway.data.chunks import MaskedTextChunks, TextChunks
from cutaway.data.corpus import TextPart, read_pairs, read_texts, stream_pairs, stream_texts, whole_texts
from cutaway.data.encoded import (
    NO_TAG,
    Encoded,
    EncodedImage,
    EncodedLabelledText,
    EncodedPair,
    EncodedTaggedText,
)
from cutaway.data.examples import LabelledImage, LabelledText, TaggedText
from cutaway.data.holdout import find_split_point, take_split
from cutaway.data.images import read_images
from cutaway.data.jsonl import File, as_file
from cutaway.data.labels import read_labels, read_tags, stream_labels, stream_tags
from cutaway.data.lazy import smallest_type
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError, DataError


@dataclass(frozen=True)
class Encoding:
    """What the encode functions need: the tokenizer, the labels and the maximum length."""

    tokenizer: Tokenizer | None
    labels: Sequence[str] = ()
    max_tokens: int = 0

    @property
    def text_tokenizer(self) -> Tokenizer:
        assert self.tokenizer is not None, "only image tasks have no tokenizer"
        return self.tokenizer

    @cached_property
    def label_ids(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.labels)}

    def label_id(self, label: str) -> int:
        try:
            return self.label_ids[label]
        except KeyError:
            raise DataError(
                f"the label {label!r} does not occur in the training data. Its labels are: "
                f"{', '.join(self.labels[:20])}{', ...' if len(self.labels) > 20 else ''}."
            ) from None


@dataclass(frozen=True)
class Task:
    kind: str  # kind of examples: pairs, texts, labels, tags or images
    files: str  # description of the files for data.train
    read: Callable[..., Sequence[Any]]  # read files into a list of examples
    stream: Callable[..., Iterator[Any]]  # read files one example at a time
    texts: Callable[[Any], Iterable[str]]  # the texts of an example, for training a tokenizer
    encode: Callable[[Sequence[Any], Encoding], Sequence[Encoded]]
    labels: Callable[[Any], Iterable[str]] = lambda example: ()  # the labels of an example
    has_mask: bool = False  # whether the tokenizer needs a <mask>


def encode_pairs(pairs: Sequence[SentencePair], encoding: Encoding) -> list[EncodedPair]:
    sources = encoding.text_tokenizer.encode_batch([pair.source for pair in pairs])
    targets = encoding.text_tokenizer.for_target.encode_batch([pair.target for pair in pairs])
    return [EncodedPair(s, t) for s, t in zip(sources, targets, strict=True)]


def encode_chunked_texts(texts: Sequence[str], encoding: Encoding) -> TextChunks:
    """<s> text </s> <s> text </s> ... in chunks of max_tokens, each with the token after it.

    Every token except the very first is a target once. The last chunk may be shorter. (An imported tokenizer may add no
    <s>.)
    """
    tokenizer = encoding.text_tokenizer
    rows = [[*tokenizer.add_bos(ids), tokenizer.eos] for ids in tokenizer.encode_batch(texts)]
    return TextChunks(concatenate_ids(rows, tokenizer), encoding.max_tokens)


def encode_masked(texts: Sequence[str], encoding: Encoding) -> MaskedTextChunks:
    """<s> chunk </s>: each text is divided into chunks that fit into max_tokens."""
    tokenizer = encoding.text_tokenizer
    rows = tokenizer.encode_batch(texts)
    starts = np.cumsum([0, *map(len, rows)])
    return MaskedTextChunks(
        concatenate_ids(rows, tokenizer), starts, inner_length(encoding.max_tokens), bos_and_eos(tokenizer)
    )


def concatenate_ids(rows: Iterable[Sequence[int]], tokenizer: Tokenizer) -> Any:
    dtype = smallest_type(tokenizer.vocab_size - 1)
    return np.concatenate([np.zeros(0, dtype), *(np.array(row, dtype) for row in rows)])


def inner_length(max_tokens: int) -> int:
    if max_tokens < 3:
        raise ConfigError(f"data.max_tokens = {max_tokens} leaves no room between <s> and </s>. Set it to 3 or more.")
    return max_tokens - 2


def bos_and_eos(tokenizer: Tokenizer) -> tuple[int, int]:
    return tokenizer.bos, tokenizer.eos


def encode_labelled(examples: Sequence[LabelledText], encoding: Encoding) -> list[EncodedLabelledText]:
    tokenizer = encoding.text_tokenizer
    rows = tokenizer.encode_batch([example.text for example in examples])
    return [
        EncodedLabelledText([tokenizer.bos, *ids, tokenizer.eos] if ids else [], encoding.label_id(example.label))
        for ids, example in zip(rows, examples, strict=True)
    ]


def encode_tagged(examples: Sequence[TaggedText], encoding: Encoding) -> list[EncodedTaggedText]:
    """The tag of a word is at its first token."""
    rows = encode_words(encoding.text_tokenizer, [example.words for example in examples])
    return [
        EncodedTaggedText(row.ids, place_tags(row, [encoding.label_id(tag) for tag in example.tags]))
        for row, example in zip(rows, examples, strict=True)
    ]


class EncodedWords(NamedTuple):
    ids: list[int]
    first: list[int]  # the position in `ids` of the first token of each word


def encode_words(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]]) -> list[EncodedWords]:
    """<s> ids </s> of sentences that are lists of words. Each distinct word is encoded once."""
    distinct = sorted({word for words in sentences for word in words})
    fallback = [tokenizer.eos if tokenizer.unk is None else tokenizer.unk]  # for a word without tokens
    ids_of = {word: ids or fallback for word, ids in zip(distinct, tokenizer.encode_batch(distinct), strict=True)}
    result = []
    for words in sentences:
        ids, first = [tokenizer.bos], []
        for word in words:
            first.append(len(ids))
            ids.extend(ids_of[word])
        result.append(EncodedWords([*ids, tokenizer.eos], first))
    return result


def place_tags(row: EncodedWords, tags: Sequence[int]) -> list[int]:
    """One tag for each token: the tag of a word at its first token, NO_TAG elsewhere."""
    token_tags = [NO_TAG] * len(row.ids)
    for position, tag in zip(row.first, tags, strict=True):
        token_tags[position] = tag
    return token_tags


def encode_images(examples: Sequence[LabelledImage], encoding: Encoding) -> list[EncodedImage]:
    return [EncodedImage(example.pixels, encoding.label_id(example.label)) for example in examples]


class Tasks(dict[str, Task]):
    """Tasks by name."""

    def __missing__(self, task: str) -> Task:
        raise ConfigError(
            f"a model for {task.replace('_', ' ')} cannot be trained or scored, because it has no target. "
            'Fine-tune it for another task, for example with model.head = "classes".'
        )


TASKS = Tasks(
    {
        "translation": Task(
            "pairs",
            "two parallel files, or one of pairs",
            read_pairs,
            stream_pairs,
            lambda pair: (pair.source, pair.target),
            encode_pairs,
        ),
        "language_model": Task(
            "texts", "text files", read_texts, stream_texts, lambda text: (text,), encode_chunked_texts
        ),
        "masked_language_model": Task(
            "texts", "text files", read_texts, stream_texts, lambda text: (text,), encode_masked, has_mask=True
        ),
        "classification": Task(
            "labels",
            "a file of texts with labels",
            read_labels,
            stream_labels,
            lambda example: (example.text,),
            encode_labelled,
            labels=lambda example: (example.label,),
        ),
        "tagging": Task(
            "tags",
            "a file of words with tags",
            read_tags,
            stream_tags,
            lambda example: example.words,
            encode_tagged,
            labels=lambda example: example.tags,
        ),
        "image_classification": Task(
            "images",
            "a file of images with labels",
            lambda path, columns=(): read_images(path),
            lambda path, columns=(): iter(read_images(path)),
            lambda image: (),
            encode_images,
            labels=lambda image: (image.label,),
        ),
    }
)


def load_split(config: DataConfig, task: str, split: str, seed: int = 0) -> Sequence[Any]:
    """The examples of one split ("train", "valid", "test"; tinyworld also has "unseen")."""
    if config.corpus:
        corpus, kind = find_corpus(config.corpus), TASKS[task].kind
        if corpus.kind != kind:
            raise DataError(
                f"the corpus {config.corpus!r} contains {corpus.kind}, but the task {task!r} needs {kind}. "
                "Choose another data.corpus, or another model.family and model.head."
            )
        return corpus.load(split, config.size if split == "train" else config.heldout_size, seed)
    if config.valid_share and split in ("train", "valid"):
        examples: Iterator[Any] = stream_split(config, task, split)
        return whole_texts(examples) if TASKS[task].kind == "texts" else list(examples)
    return TASKS[task].read(*files_of(config, task, split), columns=config.columns)


def stream_split(config: DataConfig, task: str, split: str) -> Iterator[Any]:
    """`load_split`, one example at a time. Texts come as `TextPart`, because one may be larger than the memory."""
    if config.corpus:
        examples = load_split(config, task, split)
        return (TextPart(e, True, True) for e in examples) if TASKS[task].kind == "texts" else iter(examples)

    def stream_files(split: str) -> Iterator[Any]:
        return TASKS[task].stream(*files_of(config, task, split), columns=config.columns)

    if not config.valid_share or split not in ("train", "valid"):
        return stream_files(split)
    return take_split(find_split_point(stream_files("train"), config.valid_share), stream_files("train"), split)


def files_of(config: DataConfig, task: str, split: str) -> list[File]:
    files = getattr(config, split, ())
    if not files:
        raise DataError(
            f"the recipe has no {split} data. Set data.corpus to a built-in corpus, or data.{split} to "
            f"{TASKS[task].files}."
        )
    return [as_file(file, split, config.root) for file in files]


def word_splitter(config: DataConfig) -> WordSplitter:
    """The function that splits texts of this corpus into words. A built-in corpus may have its own."""
    return find_corpus(config.corpus).split_words if config.corpus else str.split


def has_split(config: DataConfig, split: str) -> bool:
    return bool(config.corpus or getattr(config, split) or (split == "valid" and config.valid_share))


def labels_of(task: str, examples: Sequence[Any]) -> list[str]:
    """The distinct labels of the training data, sorted. The number of a label is its index in this list."""
    return sorted(set(chain.from_iterable(TASKS[task].labels(example) for example in examples)))


def known_labels(tokenizer_file: Path | None) -> list[str]:
    """The labels of the run with this tokenizer, in the order of its output head, or an empty list."""
    file = tokenizer_file.with_name("labels.json") if tokenizer_file else None
    return list(json.loads(file.read_text(encoding="utf-8"))) if file and file.is_file() else []


def order_labels(labels: Sequence[str], tokenizer_file: Path | None) -> list[str]:
    """The labels of the base or resumed run if it has all labels of the data, else the labels of the data."""
    known = known_labels(tokenizer_file)
    return known if labels and set(labels) <= set(known) else list(labels)
