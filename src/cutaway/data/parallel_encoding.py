"""Examples to ids in several processes at once, a chunk at a time, in order. No torch here."""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.data.corpus import TextPart
from cutaway.data.filtering import drop_or_truncate
from cutaway.data.memmap import LAYOUTS, TEXT, to_columns
from cutaway.data.tasks import TASKS, Encoding
from cutaway.data.tokenizer import Tokenizer
from cutaway.system.processes import end_with_parent, ignore_stop_signals

GROUP_BYTES = 1_000_000  # bytes of text that are encoded together
Column = tuple[NDArray[Any], NDArray[np.int64]]


@dataclass(frozen=True)
class EncodedGroup:
    """Encoded examples as columns, without the misfits."""

    columns: dict[str, Column]
    examples: int  # read, misfits included
    left_out: Mapping[str, int]
    lengths: NDArray[np.int64]  # of all that are not empty, as they were read
    text_tokens: int  # of all that was read, misfits included, without <s> and </s>
    cut: Mapping[str, int] = field(default_factory=dict)  # not read to their end: why -> how many
    ends: NDArray[np.bool_] | None = None  # of parts of texts: whether a text ends with it


@dataclass(frozen=True)
class Encoder:
    """All that another process needs to turn examples into ids."""

    task: str
    tokenizer: str
    roles: dict[str, str]
    labels: tuple[str, ...]
    max_tokens: int
    too_long: str
    encoding: Encoding = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        tokenizer = Tokenizer.from_json(self.tokenizer, self.roles)
        object.__setattr__(self, "encoding", Encoding(tokenizer, self.labels, self.max_tokens))

    def __reduce__(self) -> Any:
        return Encoder, (self.task, self.tokenizer, self.roles, self.labels, self.max_tokens, self.too_long)

    def __call__(self, examples: list[Any]) -> EncodedGroup:
        if self.task not in LAYOUTS:
            return self.encode_parts(examples)
        encoded = TASKS[self.task].encode(examples, self.encoding)
        fitted = drop_or_truncate(encoded, self.max_tokens, self.too_long)
        columns, read = to_columns(self.task, fitted.kept), text_tokens(self.task, encoded)
        return EncodedGroup(columns, len(examples), fitted.left_out, fitted.lengths, read, fitted.cut)

    def encode_parts(self, parts: list[TextPart]) -> EncodedGroup:
        """Texts are cut into pieces when they are read, so nothing is left out here."""
        tokenizer = self.encoding.text_tokenizer
        rows: list[list[int]] = []
        for is_first, some in groupby(parts, lambda part: part.is_first):
            rows += tokenizer.encode_batch([part.text for part in some], continues=not is_first)
        in_texts = sum(map(len, rows))
        if self.task == "language_model":
            bos = [tokenizer.bos] if tokenizer.adds_bos else []
            around = [(bos * part.is_first, [tokenizer.eos] * part.is_last) for part in parts]
            rows = [[*bos, *ids, *eos] for (bos, eos), ids in zip(around, rows, strict=True)]
        lengths = np.array([len(row) for row in rows], np.int64)
        values = np.array([i for row in rows for i in row], np.int32)
        ends = np.array([part.is_last for part in parts], bool)
        return EncodedGroup({TEXT: (values, lengths)}, int(ends.sum()), {}, lengths, in_texts, ends=ends)


def text_tokens(task: str, encoded: Sequence[Any]) -> int:
    names = [name for name in LAYOUTS[task].rows if name != "tags"]
    around = 0 if task == "translation" else 2  # <s> and </s>, which a pair gets in its batch
    return sum(max(0, len(getattr(example, name)) - around) for example in encoded for name in names)


def group_examples(examples: Iterable[Any], size_of: Callable[[Any], int]) -> Iterator[list[Any]]:
    """Examples that have about CHUNK bytes together."""
    chunk: list[Any] = []
    size = 0
    for example in examples:
        chunk.append(example)
        size += size_of(example) + 50  # and a little for each, so that a million empty lines are not one chunk
        if size >= GROUP_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def encode_groups(encoder: Encoder, chunks: Iterable[list[Any]], workers: int = 0) -> Iterator[EncodedGroup]:
    """Each chunk encoded, in the order in which they come; with one worker in this process."""
    workers = workers or cores()
    if workers == 1:
        yield from map(encoder, chunks)
        return
    with worker_pool(encoder, workers) as pool:
        under_way: deque[Any] = deque()
        for chunk in chunks:
            under_way.append(pool.submit(_encode, chunk))
            if len(under_way) > workers + 1:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def worker_pool(encoder: Encoder, workers: int) -> Iterator[ProcessPoolExecutor]:
    #
    context = get_context("fork" if sys.platform == "linux" else "spawn")
    threads = os.environ.get(THREADS)
    os.environ[THREADS] = "false"  # of the tokenizers library: the processes are our threads, and it dislikes forks
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(encoder,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        if threads is None:
            del os.environ[THREADS]
        else:
            os.environ[THREADS] = threads


THREADS = "TOKENIZERS_PARALLELISM"
_encoder: Encoder


def _start_worker(encoder: Encoder) -> None:
    """In a worker process: what it needs for every chunk."""
    global _encoder
    _encoder = encoder
    ignore_stop_signals()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()


def _encode(examples: list[Any]) -> EncodedGroup:
    return _encoder(examples)
