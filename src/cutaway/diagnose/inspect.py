"""Statistics of a corpus, for `cutaway data inspect`. No torch here.

`inspect_data(config.data, config.model.task)` reads every split once, trains the tokenizer that training would use
(or opens the tokenizer of a run), and counts. It stores a few numbers for each example, never the texts, so a corpus
can be larger than memory. `cutaway doctor` uses the same report (diagnose/data_facts.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.config import DataConfig
from cutaway.data.chunks import MaskedTextChunks, TextChunks
from cutaway.data.encoded import NO_TAG
from cutaway.data.lazy import Lengths
from cutaway.data.memmap import LAYOUTS, TEXT
from cutaway.data.parallel_encoding import EncodedGroup, Encoder, cores, encode_groups, group_examples
from cutaway.data.prepared import ProgressCallback, ignore_progress
from cutaway.data.sampler import batches_from_lengths
from cutaway.data.store import IN_MEMORY, ReadProgress, learn_tokenizer, size_of_corpus
from cutaway.data.tasks import TASKS, has_split, inner_length, load_split, stream_split
from cutaway.data.tokenizer import Tokenizer
from cutaway.diagnose.statistics import ExampleStatistics, texts_to_show

SHOWN = 40  # tokens to show of a sample
UNSEEN = "with labels that training never saw"
ANSWERS = {"translation": "target", "classification": "label", "tagging": "tags"}  # column of the answers; else TEXT
UNEVEN = 3  # a pair is uneven if one side is more than this many times longer than the other


@dataclass(frozen=True)
class SampleReport:
    """An example, as text and as tokens."""

    texts: list[str]
    tokens: list[list[str]]


@dataclass(frozen=True)
class LengthBin:
    low: int
    high: int
    examples: int


@dataclass(frozen=True)
class LengthReport:
    """Lengths in tokens (for pairs: of the longer side), including examples that are too long, excluding empty ones."""

    median: int
    most: int  # 95th percentile
    nearly_all: int  # 99.9th percentile
    longest: int
    bins: list[LengthBin]

    @classmethod
    def of(cls, lengths: NDArray[np.int64]) -> LengthReport | None:
        if not len(lengths):
            return None
        longest = int(lengths.max())
        edges = [0, *(2**n for n in range(longest.bit_length()) if 2**n < longest), longest]
        counts = np.histogram(lengths, [edge + 0.5 for edge in edges])[0].tolist()
        bins = [LengthBin(low + 1, high, n) for (low, high), n in zip(pairwise(edges), counts, strict=True)]
        first = next(number for number, one in enumerate(bins) if one.examples)
        median, most, nearly_all = np.percentile(lengths, [50, 95, 99.9], method="inverted_cdf")
        return cls(int(median), int(most), int(nearly_all), longest, bins[first:])


@dataclass(frozen=True)
class AnswerReport:
    """The answers that a model must predict in the kept examples: labels, tags or tokens (for texts: all tokens)."""

    count: int
    entropy: float  # nats: the loss of a model that has learned only answer frequencies
    majority: tuple[str, float] | None  # the most frequent label or tag, and its share

    @classmethod
    def of(cls, counts: NDArray[np.int64], labels: Sequence[str]) -> AnswerReport | None:
        """Summarize the count of each answer. `labels` are the names of the answers; tokens have none."""
        total = int(counts.sum())
        if not total:
            return None
        shares = counts / total
        some = shares[shares > 0]
        most = int(shares.argmax())
        return cls(total, float((some * -np.log(some)).sum()), (labels[most], float(shares[most])) if labels else None)


@dataclass(frozen=True)
class OverlapReport:
    """How many of the `compared` examples of a split (for texts: lines) also occur in the training data."""

    exact: int
    alike: int  # ignoring case and white space
    compared: int
    whole: int  # whole examples (for texts: not lines), ignoring case and white space


@dataclass(frozen=True)
class SplitReport:
    """Statistics of one split. Shares are fractions from 0 to 1. None: does not apply."""

    examples: int
    left_out: dict[str, int]
    cut: int  # examples that are too long and truncated (taggers: split)
    in_batches: int  # kept examples, or the chunks that texts are split into: what batches are made of
    fingerprint: str  # checksum of the examples; for the training data, equal to the one in a run's data.json
    tokens: int  # in the kept examples
    tokens_read: int  # in all examples that were read, except those with unknown labels; so are characters and words
    characters: int
    words: int
    unknown: float | None  # share of the tokens that are not in the vocabulary
    lengths: LengthReport | None
    padding: float | None  # share of padding in the batches
    answers: AnswerReport | None
    labels: dict[str, int]  # of all examples that were read; the most frequent first
    unseen_labels: dict[str, int]
    compared: int  # examples (for texts: lines) that were searched for duplicates
    duplicates: int  # copies of an earlier one
    contradictions: int  # inputs that occur with more than one label
    same_sides: int  # pairs with the same text on both sides
    uneven: int  # pairs with one side more than three times as long as the other
    overlap: OverlapReport | None  # with the training data
    samples: list[SampleReport]

    @property
    def kept(self) -> int:
        return self.examples - sum(self.left_out.values())

    @property
    def characters_per_token(self) -> float | None:
        return self.characters / self.tokens_read if self.tokens_read else None

    @property
    def tokens_per_word(self) -> float | None:
        return self.tokens_read / self.words if self.words else None


@dataclass(frozen=True)
class DataReport:
    task: str
    kind: str  # of examples: pairs, texts, labels, tags or images
    tokenizer: str  # its scheme; empty for images
    vocab_size: int
    wanted_vocab_size: int  # data.vocab_size; 0 if the tokenizer does not use it
    max_tokens: int
    splits: dict[str, SplitReport]

    @property
    def findings(self) -> list[str]:
        """Possible problems, each as a short paragraph."""
        from cutaway.diagnose.findings import corpus_findings  # which reads reports, and so imports this file

        return corpus_findings(self)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        return {**asdict(self), "findings": self.findings}


def inspect_data(
    config: DataConfig, task: str, on_progress: ProgressCallback = ignore_progress, tokenizer_file: Path | None = None
) -> DataReport:
    """Read a corpus and count. `on_progress(task, fraction)` is called from time to time.

    With a `tokenizer_file`, such as the one in a run folder, no tokenizer is trained.
    """
    tokenizer, labels = (
        (None, []) if TASKS[task].kind == "images" else learn_tokenizer(config, task, tokenizer_file, on_progress)
    )
    reports: dict[str, SplitReport] = {}
    train: ExampleStatistics | None = None
    for split in ("train", "valid", "test"):
        if split == "train" or has_split(config, split):
            statistics = ExampleStatistics(task, None if train is None else set(train.labels) or None)
            token_statistics = TokenStatistics(config, split, task, tokenizer, labels, statistics, on_progress)
            if not statistics.examples or not (statistics.characters or tokenizer is None):
                load_split(config, task, split)  # raises an error that names the empty files
            reports[split] = report_of(statistics, token_statistics, train)
            train = train or statistics
    return DataReport(
        task=task,
        kind=TASKS[task].kind,
        tokenizer=config.tokenizer if tokenizer else "",
        vocab_size=tokenizer.vocab_size if tokenizer else 0,
        wanted_vocab_size=config.vocab_size if tokenizer and config.tokenizer in ("bpe", "word", "char") else 0,
        max_tokens=config.max_tokens,
        splits=reports,
    )


class TokenStatistics:
    """Statistics of one split after encoding."""

    def __init__(
        self,
        config: DataConfig,
        split: str,
        task: str,
        tokenizer: Tokenizer | None,
        labels: Sequence[str],
        statistics: ExampleStatistics,
        on_progress: ProgressCallback,
    ):
        self.config, self.task, self.tokenizer, self.labels = config, task, tokenizer, labels
        kinds = max(len(labels), tokenizer.vocab_size if tokenizer else 0)
        self.answer_counts = np.zeros(kinds, np.int64)  # how often each token, label or tag is an answer
        self.tokens = self.tokens_read = self.unknown = self.uneven = 0
        self.left_out: Counter[str] = Counter()
        self.cut: Counter[str] = Counter()
        self.lengths: list[NDArray[np.int64]] = []  # of all non-empty examples; for texts: where each text ends
        self.kept: list[Lengths] = []  # of the kept examples, except texts
        named = split if getattr(config, split) else "train"
        meter = ReadProgress(f"reading the {split} data", size_of_corpus(config, task, (named,)), on_progress)
        groups = group_examples(statistics.observe(stream_split(config, task, split)), meter)
        for group in encode_examples(groups, config, task, tokenizer, labels):
            self.add(group)
        self.fingerprint = f"{meter.checksum:08x}"
        if statistics.dropped:
            self.left_out[UNSEEN] = statistics.dropped
        if tokenizer is None:  # images with known labels are kept; the labels are the answers
            known = statistics.labels - statistics.unseen
            self.labels, self.answer_counts = list(known), np.array(list(known.values()), np.int64)
            self.kept.append(np.ones((known.total(), 1), np.int64))

    def add(self, group: EncodedGroup) -> None:
        assert self.tokenizer is not None
        for name, (values, _) in group.columns.items():
            if name not in ("tags", "label"):
                self.unknown += int((values == self.tokenizer.unk).sum()) if self.tokenizer.unk is not None else 0
                self.tokens += len(values)
        self.answer_counts += np.bincount(
            answers_of(self.task, group, self.tokenizer), minlength=len(self.answer_counts)
        )
        self.left_out.update(group.left_out)
        self.cut.update(group.cut)
        self.tokens_read += group.text_tokens
        if group.ends is not None:
            lengths = group.columns[TEXT][1]
            self.lengths.append((self.tokens - lengths.sum() + np.cumsum(lengths))[group.ends])
            return
        self.lengths.append(group.lengths)
        lengths_NK = np.stack([group.columns[name][1] + more for name, more in LAYOUTS[self.task].lengths], axis=1)
        self.kept.append(lengths_NK)
        if self.task == "translation":
            self.uneven += int((lengths_NK.max(axis=1) - 1 > UNEVEN * (lengths_NK.min(axis=1) - 1)).sum())

    def all_lengths(self) -> NDArray[np.int64]:
        lengths = np.concatenate(self.lengths or [np.zeros(0, np.int64)])
        return lengths if self.task in LAYOUTS else np.diff(lengths, prepend=0)

    @cached_property
    def kept_lengths(self) -> Lengths:
        """The lengths of the kept examples. Texts are split into chunks; all but the last have full length."""
        if TASKS[self.task].kind != "texts":
            return np.concatenate(self.kept) if self.kept else np.zeros((0, 1), np.int64)
        nothing = np.broadcast_to(np.uint8(0), (self.tokens,))  # only the length matters
        if self.task == "language_model":
            return TextChunks(nothing, self.config.max_tokens).all_lengths()
        ends = np.cumsum(np.append(0, self.all_lengths()))
        return MaskedTextChunks(nothing, ends, inner_length(self.config.max_tokens), (0, 0)).all_lengths()

    def padding(self) -> float | None:
        lengths_NK = self.kept_lengths
        if self.tokenizer is None or not len(lengths_NK):
            return None
        order = batches_from_lengths(lengths_NK, self.config.batch_tokens, seed=0, epoch=0)
        longest_BK = np.maximum.reduceat(lengths_NK[order.indices], order.bounds[:-1])
        positions = int((longest_BK * np.diff(order.bounds)[:, None]).sum())
        return 1 - int(lengths_NK.sum()) / positions


def encode_examples(
    groups: Iterator[list[Any]], config: DataConfig, task: str, tokenizer: Tokenizer | None, labels: Sequence[str]
) -> Iterator[EncodedGroup]:
    if tokenizer is None:  # images need no encoding, but must be counted
        for _ in groups:
            pass
        return
    too_long = config.long_texts(task)
    encoder = Encoder(task, tokenizer.to_json(), tokenizer.roles, tuple(labels), config.max_tokens, too_long)
    workers = cores() if size_of_corpus(config, task, ("train", "valid", "test")) > IN_MEMORY else 1
    yield from encode_groups(encoder, groups, workers)


def answers_of(task: str, group: EncodedGroup, tokenizer: Tokenizer) -> NDArray[np.int32]:
    values, lengths = group.columns[ANSWERS.get(task, TEXT)]
    if task == "translation":
        return np.append(values, np.full(len(lengths), tokenizer.eos, np.int32))  # each target also ends in </s>
    return values[values != NO_TAG]


def report_of(
    statistics: ExampleStatistics, token_statistics: TokenStatistics, train: ExampleStatistics | None
) -> SplitReport:
    tokenizer = token_statistics.tokenizer
    return SplitReport(
        examples=statistics.examples,
        left_out=dict(token_statistics.left_out),
        cut=token_statistics.cut.total(),
        in_batches=len(token_statistics.kept_lengths),
        fingerprint=token_statistics.fingerprint,
        tokens=token_statistics.tokens,
        tokens_read=token_statistics.tokens_read,
        characters=statistics.characters,
        words=statistics.words,
        unknown=token_statistics.unknown / token_statistics.tokens
        if tokenizer and tokenizer.unk is not None and token_statistics.tokens
        else None,
        lengths=LengthReport.of(token_statistics.all_lengths()),
        padding=token_statistics.padding(),
        answers=AnswerReport.of(token_statistics.answer_counts, token_statistics.labels),
        labels=dict(statistics.labels.most_common()),
        unseen_labels=dict(statistics.unseen.most_common()),
        compared=len(statistics.exact),
        duplicates=statistics.duplicates,
        contradictions=statistics.contradictions,
        same_sides=statistics.same_sides,
        uneven=token_statistics.uneven,
        overlap=overlap(statistics, train) if train else None,
        samples=[sample_of(token_statistics.task, example, tokenizer) for example in statistics.samples],
    )


def overlap(statistics: ExampleStatistics, train: ExampleStatistics) -> OverlapReport:
    pairs = ((statistics.exact, train.exact), (statistics.alike, train.alike), (statistics.whole, train.whole))
    exact, alike, whole = (int(np.isin(own, other).sum()) for own, other in pairs)
    return OverlapReport(exact, alike, len(statistics.exact), whole)


def sample_of(task: str, example: Any, tokenizer: Tokenizer | None) -> SampleReport:
    texts = texts_to_show(task, example)
    if tokenizer is None:
        return SampleReport(texts, [])
    if TASKS[task].kind == "tags":
        inputs = [" ".join(example.words)]
    else:
        inputs = [text for text in texts if not text.startswith("label: ")]
    return SampleReport(texts, [tokenizer.tokens(tokenizer.encode(text)[:SHOWN]) for text in inputs])
