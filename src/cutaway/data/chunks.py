"""Examples to ids in several processes at once, a chunk at a time, in order. No torch here."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.data.corpus import TextPart
from cutaway.data.misfits import sort_out
from cutaway.data.stored import LAYOUTS, TEXT, columns_of
from cutaway.data.tasks import TASKS, Encoding
from cutaway.data.tokenizer import Tokenizer

CHUNK = 1_000_000  # bytes of text that are encoded together
Column = tuple[NDArray[Any], NDArray[np.int64]]


@dataclass(frozen=True)
class Chunk:
    """Encoded examples as columns, without the misfits."""

    columns: dict[str, Column]
    examples: int  # read, misfits included
    left_out: Counter[str]
    lengths: NDArray[np.int64]  # of all that are not empty, those that are too long included
    ends: NDArray[np.bool_] | None = None  # of parts of texts: whether a text ends with it


@dataclass(frozen=True)
class Encoder:
    """All that another process needs to turn examples into ids."""

    task: str
    tokenizer: str
    roles: dict[str, str]
    labels: tuple[str, ...]
    max_tokens: int
    encoding: Encoding = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        tokenizer = Tokenizer.from_json(self.tokenizer, self.roles)
        object.__setattr__(self, "encoding", Encoding(tokenizer, self.labels, self.max_tokens))

    def __reduce__(self) -> Any:
        return Encoder, (self.task, self.tokenizer, self.roles, self.labels, self.max_tokens)

    def __call__(self, examples: list[Any]) -> Chunk:
        if self.task not in LAYOUTS:
            return self.encode_parts(examples)
        encoded = TASKS[self.task].encode(examples, self.encoding)
        kept, left_out, lengths = sort_out(encoded, self.max_tokens)
        return Chunk(columns_of(self.task, kept), len(examples), left_out, lengths)

    def encode_parts(self, parts: list[TextPart]) -> Chunk:
        """Texts are cut into pieces when they are read, so nothing is left out here."""
        tokenizer = self.encoding.words
        rows = tokenizer.encode_batch([part.text for part in parts])
        if self.task == "language_model":
            bos = [tokenizer.bos] if tokenizer.begins else []
            around = [(bos * part.is_first, [tokenizer.eos] * part.is_last) for part in parts]
            rows = [[*bos, *ids, *eos] for (bos, eos), ids in zip(around, rows, strict=True)]
        lengths = np.array([len(row) for row in rows], np.int64)
        values = np.array([i for row in rows for i in row], np.int32)
        ends = np.array([part.is_last for part in parts], bool)
        return Chunk({TEXT: (values, lengths)}, int(ends.sum()), Counter(), lengths, ends)


def in_chunks(examples: Iterable[Any], size_of: Callable[[Any], int]) -> Iterator[list[Any]]:
    """Examples that have about CHUNK bytes together."""
    chunk: list[Any] = []
    size = 0
    for example in examples:
        chunk.append(example)
        size += size_of(example) + 50  # and a little for each, so that a million empty lines are not one chunk
        if size >= CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def encode_chunks(encoder: Encoder, chunks: Iterable[list[Any]], workers: int = 0) -> Iterator[Chunk]:
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
    # As cli/ahead.py: a fork is instant where there is one, and a script need not guard itself against being imported.
    context = get_context("fork" if sys.platform == "linux" else "spawn")
    threads = os.environ.get(THREADS)
    os.environ[THREADS] = "false"  # of the tokenizers library: the processes are our threads, and it dislikes forks
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(encoder,))
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


def _begin(encoder: Encoder) -> None:
    """In a worker process: what it needs for every chunk."""
    global _encoder
    _encoder = encoder
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()


def _leave_with(parent: int) -> None:
    """A parent that was killed cannot tell its workers to go."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _encode(examples: list[Any]) -> Chunk:
    return _encoder(examples)
