"""What is in a corpus, and what is wrong with it. No torch here.

`inspect_data(config.data, config.model.task)` reads every split once, learns the tokenizer that training would learn
(or takes that of a run), and counts. It keeps a few numbers for each example, never the texts, so a corpus may be
larger than the memory. The doctor reads the same report (diagnose/data_facts.py).
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
from cutaway.data.chunks import MaskedPieces, Pieces
from cutaway.data.encoded import NO_TAG
from cutaway.data.lazy import Lengths
from cutaway.data.memmap import LAYOUTS, TEXT
from cutaway.data.parallel_encoding import Chunk, Encoder, cores, encode_chunks, in_chunks
from cutaway.data.prepared import Tell, nobody
from cutaway.data.sampler import batches_of_lengths
from cutaway.data.store import IN_MEMORY, Meter, learn, size_of_corpus
from cutaway.data.tasks import TASKS, has_split, load_split, room_between, stream_split
from cutaway.data.tokenizer import Tokenizer
from cutaway.diagnose.statistics import Look, texts_to_show

SHOWN = 40  # tokens of a sample
UNSEEN = "with labels that training never saw"
ASKED = {"translation": "target", "classification": "label", "tagging": "tags"}  # column of the answers; else TEXT
UNEVEN = 3  # times that one side of a pair may be as long as the other, and then is


@dataclass(frozen=True)
class Sample:
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
    """In tokens; for pairs, of the longer side. What is too long is in it, what is empty is not."""

    median: int
    most: int  # 95 of 100 are not longer
    nearly_all: int  # 999 of 1,000 are not longer
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
    """What a model is asked for in the examples that are kept: labels, tags, or tokens (of texts: all of them)."""

    count: int
    entropy: float  # nats: the loss of one who knows how frequent each answer is, and no more
    majority: tuple[str, float] | None  # the most frequent label or tag, and its share

    @classmethod
    def of(cls, counts: NDArray[np.int64], labels: Sequence[str]) -> AnswerReport | None:
        """Of how often each answer occurs, and what it is called (tokens: no names)."""
        total = int(counts.sum())
        if not total:
            return None
        shares = counts / total
        some = shares[shares > 0]
        most = int(shares.argmax())
        return cls(total, float((some * -np.log(some)).sum()), (labels[most], float(shares[most])) if labels else None)


@dataclass(frozen=True)
class Overlap:
    """Of the `compared` examples of a split (of texts: lines), so many stand in the training data, too."""

    exact: int
    alike: int  # ignoring case and white space
    compared: int
    whole: int  # of whole examples (of texts: not lines), ignoring case and white space


@dataclass(frozen=True)
class SplitReport:
    """Shares go from 0 to 1. None: there is nothing of the kind."""

    examples: int
    left_out: dict[str, int]
    cut: int  # too long, and not read to their end (taggers: read in parts)
    in_batches: int  # examples that are kept, or the pieces that texts are cut into: what batches are made of
    fingerprint: str  # changes whenever an example does; of the training data, it is that of a run's data.json
    tokens: int  # of what is kept
    tokens_read: int  # as characters and words: of the text of all that was read, but for labels that are not known
    characters: int
    words: int
    unknown: float | None  # share of the tokens that are not in the vocabulary
    lengths: LengthReport | None
    padding: float | None  # share of the places in batches that hold no token
    answers: AnswerReport | None
    labels: dict[str, int]  # of all that was read; the most frequent first
    unseen_labels: dict[str, int]
    compared: int  # examples, or lines of texts, that were looked at for copies
    duplicates: int  # ... that are copies of an earlier one
    contradictions: int  # inputs that occur with more than one label
    same_sides: int  # pairs of a text and itself
    uneven: int  # pairs of which one side is more than three times as long as the other
    overlap: Overlap | None  # with the training data
    samples: list[Sample]

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
    kind: str  # of what it is made: pairs, texts, labels, tags or images
    tokenizer: str  # its scheme; empty for images
    vocab_size: int
    wanted_vocab_size: int  # 0: none was
    max_tokens: int
    splits: dict[str, SplitReport]

    @property
    def findings(self) -> list[str]:
        """What deserves attention, a sentence each."""
        from cutaway.diagnose.findings import findings_of  # which reads reports, and so imports this file

        return findings_of(self)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "findings": self.findings}


def inspect_data(config: DataConfig, task: str, tell: Tell = nobody, tokenizer_file: Path | None = None) -> DataReport:
    """Read a corpus and say what is in it. `tell` is called now and then: what is being done, how much of it is.

    With a `tokenizer_file`, such as that of a run, no tokenizer is trained.
    """
    tokenizer, labels = (None, []) if TASKS[task].kind == "images" else learn(config, task, tokenizer_file, tell)
    reports: dict[str, SplitReport] = {}
    train: Look | None = None
    for split in ("train", "valid", "test"):
        if split == "train" or has_split(config, split):
            look = Look(task, None if train is None else set(train.labels) or None)
            tally = Tally(config, split, task, tokenizer, labels, look, tell)
            if not look.examples or not (look.characters or tokenizer is None):
                load_split(config, task, split)  # says what is wrong with files that hold nothing
            reports[split] = report_of(look, tally, train)
            train = train or look
    return DataReport(
        task=task,
        kind=TASKS[task].kind,
        tokenizer=config.tokenizer if tokenizer else "",
        vocab_size=tokenizer.vocab_size if tokenizer else 0,
        wanted_vocab_size=config.vocab_size if tokenizer and config.tokenizer in ("bpe", "word", "char") else 0,
        max_tokens=config.max_tokens,
        splits=reports,
    )


class Tally:
    """What one split comes to when it is encoded."""

    def __init__(
        self,
        config: DataConfig,
        split: str,
        task: str,
        tokenizer: Tokenizer | None,
        labels: Sequence[str],
        look: Look,
        tell: Tell,
    ):
        self.config, self.task, self.tokenizer, self.labels = config, task, tokenizer, labels
        different = max(len(labels), tokenizer.vocab_size if tokenizer else 0)
        self.asked = np.zeros(different, np.int64)  # how often a model is asked for each token, label or tag
        self.tokens = self.tokens_read = self.unknown = self.uneven = 0
        self.left_out: Counter[str] = Counter()
        self.cut: Counter[str] = Counter()
        self.lengths: list[NDArray[np.int64]] = []  # of all that are not empty; of texts: where each ends
        self.kept: list[Lengths] = []  # of those that training would see, but for texts
        named = split if getattr(config, split) else "train"
        meter = Meter(f"reading the {split} data", size_of_corpus(config, task, (named,)), tell)
        chunks = in_chunks(look.passing(stream_split(config, task, split)), meter)
        for chunk in encoded(chunks, config, task, tokenizer, labels):
            self.add(chunk)
        self.fingerprint = f"{meter.checksum:08x}"
        if look.stopped:
            self.left_out[UNSEEN] = look.stopped
        if tokenizer is None:  # images: all are kept whose labels are known, and their answers are these
            known = look.labels - look.unseen
            self.labels, self.asked = list(known), np.array(list(known.values()), np.int64)
            self.kept.append(np.ones((known.total(), 1), np.int64))

    def add(self, chunk: Chunk) -> None:
        assert self.tokenizer is not None
        for name, (values, _) in chunk.columns.items():
            if name not in ("tags", "label"):
                self.unknown += int((values == self.tokenizer.unk).sum()) if self.tokenizer.unk is not None else 0
                self.tokens += len(values)
        self.asked += np.bincount(asked_for(self.task, chunk, self.tokenizer), minlength=len(self.asked))
        self.left_out.update(chunk.left_out)
        self.cut.update(chunk.cut)
        self.tokens_read += chunk.text_tokens
        if chunk.ends is not None:
            lengths = chunk.columns[TEXT][1]
            self.lengths.append((self.tokens - lengths.sum() + np.cumsum(lengths))[chunk.ends])
            return
        self.lengths.append(chunk.lengths)
        lengths_NK = np.stack([chunk.columns[name][1] + more for name, more in LAYOUTS[self.task].lengths], axis=1)
        self.kept.append(lengths_NK)
        if self.task == "translation":
            self.uneven += int((lengths_NK.max(axis=1) - 1 > UNEVEN * (lengths_NK.min(axis=1) - 1)).sum())

    def all_lengths(self) -> NDArray[np.int64]:
        lengths = np.concatenate(self.lengths or [np.zeros(0, np.int64)])
        return lengths if self.task in LAYOUTS else np.diff(lengths, prepend=0)

    @cached_property
    def kept_lengths(self) -> Lengths:
        """Texts are cut into pieces; which are as long as they can be, but for the last of each."""
        if TASKS[self.task].kind != "texts":
            return np.concatenate(self.kept) if self.kept else np.zeros((0, 1), np.int64)
        nothing = np.broadcast_to(np.uint8(0), (self.tokens,))  # only its length counts
        if self.task == "language_model":
            return Pieces(nothing, self.config.max_tokens).all_lengths()
        ends = np.cumsum(np.append(0, self.all_lengths()))
        return MaskedPieces(nothing, ends, room_between(self.config.max_tokens), (0, 0)).all_lengths()

    def padding(self) -> float | None:
        lengths_NK = self.kept_lengths
        if self.tokenizer is None or not len(lengths_NK):
            return None
        order = batches_of_lengths(lengths_NK, self.config.batch_tokens, seed=0, epoch=0)
        longest_BK = np.maximum.reduceat(lengths_NK[order.indices], order.bounds[:-1])
        places = int((longest_BK * np.diff(order.bounds)[:, None]).sum())
        return 1 - int(lengths_NK.sum()) / places


def encoded(
    chunks: Iterator[list[Any]], config: DataConfig, task: str, tokenizer: Tokenizer | None, labels: Sequence[str]
) -> Iterator[Chunk]:
    if tokenizer is None:  # images: they only have to pass
        for _ in chunks:
            pass
        return
    too_long = config.long_texts(task)
    encoder = Encoder(task, tokenizer.to_json(), tokenizer.roles, tuple(labels), config.max_tokens, too_long)
    workers = cores() if size_of_corpus(config, task, ("train", "valid", "test")) > IN_MEMORY else 1
    yield from encode_chunks(encoder, chunks, workers)


def asked_for(task: str, chunk: Chunk, tokenizer: Tokenizer) -> NDArray[np.int32]:
    values, lengths = chunk.columns[ASKED.get(task, TEXT)]
    if task == "translation":
        return np.append(values, np.full(len(lengths), tokenizer.eos, np.int32))  # </s> comes on top
    return values[values != NO_TAG]


def report_of(look: Look, tally: Tally, train: Look | None) -> SplitReport:
    tokenizer = tally.tokenizer
    return SplitReport(
        examples=look.examples,
        left_out=dict(tally.left_out),
        cut=tally.cut.total(),
        in_batches=len(tally.kept_lengths),
        fingerprint=tally.fingerprint,
        tokens=tally.tokens,
        tokens_read=tally.tokens_read,
        characters=look.characters,
        words=look.words,
        unknown=tally.unknown / tally.tokens if tokenizer and tokenizer.unk is not None and tally.tokens else None,
        lengths=LengthReport.of(tally.all_lengths()),
        padding=tally.padding(),
        answers=AnswerReport.of(tally.asked, tally.labels),
        labels=dict(look.labels.most_common()),
        unseen_labels=dict(look.unseen.most_common()),
        compared=len(look.exact),
        duplicates=look.duplicates,
        contradictions=look.contradictions,
        same_sides=look.same_sides,
        uneven=tally.uneven,
        overlap=overlap(look, train) if train else None,
        samples=[sample_of(tally.task, example, tokenizer) for example in look.samples],
    )


def overlap(look: Look, train: Look) -> Overlap:
    pairs = ((look.exact, train.exact), (look.alike, train.alike), (look.whole, train.whole))
    exact, alike, whole = (int(np.isin(ours, theirs).sum()) for ours, theirs in pairs)
    return Overlap(exact, alike, len(look.exact), whole)


def sample_of(task: str, example: Any, tokenizer: Tokenizer | None) -> Sample:
    texts = texts_to_show(task, example)
    if tokenizer is None:
        return Sample(texts, [])
    if TASKS[task].kind == "tags":
        inputs = [" ".join(example.words)]
    else:
        inputs = [text for text in texts if not text.startswith("label: ")]
    return Sample(texts, [tokenizer.tokens(tokenizer.encode(text)[:SHOWN]) for text in inputs])
