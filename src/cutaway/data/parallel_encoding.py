"""Encode groups of examples in several worker processes, in order. No torch here."""

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

GROUP_BYTES = 1_000_000  # bytes of text in a group
Column = tuple[NDArray[Any], NDArray[np.int64]]


@dataclass(frozen=True)
class EncodedGroup:
    """Encoded examples as columns, without skipped ones."""

    columns: dict[str, Column]
    examples: int  # number of examples read, skipped ones included
    left_out: Mapping[str, int]  # reason -> number of skipped examples
    lengths: NDArray[np.int64]  # original lengths of all examples that are not empty
    text_tokens: int  # tokens of all examples, skipped ones included, without <s> and </s>
    cut: Mapping[str, int] = field(default_factory=dict)  # reason -> number of truncated or split examples
    ends: NDArray[np.bool_] | None = None  # for parts of texts: whether the part is the last of its text


@dataclass(frozen=True)
class Encoder:
    """Examples to ids. It can be sent to a worker process."""

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
        filtered = drop_or_truncate(encoded, self.max_tokens, self.too_long)
        columns, tokens = to_columns(self.task, filtered.kept), text_tokens(self.task, encoded)
        return EncodedGroup(columns, len(examples), filtered.left_out, filtered.lengths, tokens, filtered.cut)

    def encode_parts(self, parts: list[TextPart]) -> EncodedGroup:
        """Encode parts of texts. Nothing is skipped: texts are divided into chunks when they are opened."""
        tokenizer = self.encoding.text_tokenizer
        rows: list[list[int]] = []
        for is_first, run in groupby(parts, lambda part: part.is_first):
            rows += tokenizer.encode_batch([part.text for part in run], continues=not is_first)
        tokens = sum(map(len, rows))
        if self.task == "language_model":
            bos = [tokenizer.bos] if tokenizer.adds_bos else []
            around = [(bos * part.is_first, [tokenizer.eos] * part.is_last) for part in parts]
            rows = [[*bos, *ids, *eos] for (bos, eos), ids in zip(around, rows, strict=True)]
        lengths = np.array([len(row) for row in rows], np.int64)
        values = np.array([i for row in rows for i in row], np.int32)
        ends = np.array([part.is_last for part in parts], bool)
        return EncodedGroup({TEXT: (values, lengths)}, int(ends.sum()), {}, lengths, tokens, ends=ends)


def text_tokens(task: str, encoded: Sequence[Any]) -> int:
    names = [name for name in LAYOUTS[task].rows if name != "tags"]
    special = 0 if task == "translation" else 2  # <s> and </s>; pairs get them later, in their batch
    return sum(max(0, len(getattr(example, name)) - special) for example in encoded for name in names)


def group_examples(examples: Iterable[Any], size_of: Callable[[Any], int]) -> Iterator[list[Any]]:
    """Groups of examples with about GROUP_BYTES each."""
    group: list[Any] = []
    size = 0
    for example in examples:
        group.append(example)
        size += size_of(example) + 50  # an overhead for each, so that a million empty lines are not one group
        if size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def encode_groups(encoder: Encoder, groups: Iterable[list[Any]], workers: int = 0) -> Iterator[EncodedGroup]:
    """Encode each group, in order. With one worker, encode in this process."""
    workers = workers or cores()
    if workers == 1:
        yield from map(encoder, groups)
        return
    with worker_pool(encoder, workers) as pool:
        pending: deque[Any] = deque()
        for group in groups:
            pending.append(pool.submit(_encode, group))
            if len(pending) > workers + 1:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def worker_pool(encoder: Encoder, workers: int) -> Iterator[ProcessPoolExecutor]:
    context = get_context("fork" if sys.platform == "linux" else "spawn")
    before = os.environ.get(PARALLELISM)
    os.environ[PARALLELISM] = "false"  # one thread in each worker; the tokenizers library warns about fork otherwise
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(encoder,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        if before is None:
            del os.environ[PARALLELISM]
        else:
            os.environ[PARALLELISM] = before


PARALLELISM = "TOKENIZERS_PARALLELISM"  # environment variable of the tokenizers library
_encoder: Encoder  # in a worker process


def _start_worker(encoder: Encoder) -> None:
    """Initialize a worker process."""
    global _encoder
    _encoder = encoder
    ignore_stop_signals()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()


def _encode(examples: list[Any]) -> EncodedGroup:
    return _encoder(examples)
