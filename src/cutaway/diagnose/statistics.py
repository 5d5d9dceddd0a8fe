"""Streaming statistics of examples, for `inspect.py`: a few numbers for each example, never the texts."""

from __future__ import annotations

import hashlib
import random
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.data.corpus import TextPart
from cutaway.data.tasks import TASKS

SAMPLES = 3  # examples to show
SNIPPET = 200  # characters to show of a long text
LONG_LINE = 20  # characters: shorter lines repeat naturally, so they are not compared
LONGEST_CARRY = 100_000  # characters after which a line without an end counts as a line

Numbers = NDArray[np.uint64]


class ExampleStatistics:
    """Counts, samples, and a 64-bit hash of each example, which finds duplicates."""

    def __init__(self, task: str, known_labels: Set[str] | None = None):
        """Examples with labels outside `known_labels` are counted and dropped. None: keep all."""
        self.task, self.known_labels = TASKS[task], known_labels
        self.examples = self.characters = self.words = self.same_sides = 0
        self.labels: Counter[str] = Counter()
        self.unseen: Counter[str] = Counter()
        self.dropped = 0
        self._exact, self._alike, self._answers = array("Q"), array("Q"), array("Q")
        self._texts, self._text = array("Q"), new_digest()  # hashes of whole texts, which arrive in parts
        self.samples: list[Any] = []
        self._rng, self._carry = random.Random(0), ""

    def observe(self, examples: Iterable[Any]) -> Iterator[Any]:
        """Count each example, then yield it."""
        for example in examples:
            if isinstance(example, TextPart):
                self.add_part(example)
            else:
                self.add_example(example)
            if self.known_labels is not None and not self.known_labels >= set(self.task.labels(example)):
                self.dropped += 1
                continue
            self.add_texts((example.text,) if isinstance(example, TextPart) else self.task.texts(example))
            yield example

    def add_example(self, example: Any) -> None:
        texts = tuple(self.task.texts(example))
        self.sample(example, self.examples)
        self.examples += 1
        labels = tuple(self.task.labels(example))
        self.labels.update(labels)
        if self.known_labels is not None:
            self.unseen.update(label for label in labels if label not in self.known_labels)
        if self.task.kind == "images":
            self.compare(example.pixels.tobytes(), example.pixels.tobytes(), labels)
            return
        self.same_sides += self.task.kind == "pairs" and texts[0] == texts[-1]
        self.compare("\t".join(texts).encode(), "\t".join(map(simplify, texts)).encode(), labels)

    def add_part(self, part: TextPart) -> None:
        if part.text.strip():
            self.sample(part, len(self._exact))
        self.examples += part.is_last
        # without spaces, because a part may end in the middle of a word
        self._text.update("".join(part.text.casefold().split()).encode())
        if part.is_last:
            self._texts.append(to_integer(self._text))
            self._text = new_digest()
        *lines, self._carry = (self._carry + part.text).split("\n")
        if part.is_last or len(self._carry) > LONGEST_CARRY:
            lines.append(self._carry)
            self._carry = ""
        for line in lines:
            if len(line.strip()) >= LONG_LINE:
                self.compare(line.encode(), simplify(line).encode(), ())

    def add_texts(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.characters += len(text)
            self.words += len(text.split())

    def compare(self, content: bytes, simple: bytes, labels: tuple[str, ...]) -> None:
        self._exact.append(hash_bytes(content))
        self._alike.append(hash_bytes(simple))
        if self.task.kind in ("labels", "images"):
            self._answers.append(hash_bytes(content + b"\0" + labels[0].encode()))

    def sample(self, example: Any, count: int) -> None:
        """Reservoir sampling: every example so far is kept with the same probability."""
        if len(self.samples) < SAMPLES:
            self.samples.append(example)
        elif (index := self._rng.randrange(count + 1)) < SAMPLES:
            self.samples[index] = example

    @property
    def exact(self) -> Numbers:
        return np.frombuffer(self._exact, np.uint64)

    @property
    def alike(self) -> Numbers:
        return np.frombuffer(self._alike, np.uint64)

    @property
    def whole(self) -> Numbers:
        """Hashes of whole examples, ignoring case and white space. For texts, `alike` holds lines instead."""
        return np.frombuffer(self._texts, np.uint64) if self.task.kind == "texts" else self.alike

    @property
    def duplicates(self) -> int:
        return len(self.exact) - len(np.unique(self.exact))

    @property
    def contradictions(self) -> int:
        """The number of inputs with more than one label."""
        answered = (
            np.unique(np.stack([self.exact, np.frombuffer(self._answers, np.uint64)]), axis=1)
            if self._answers
            else None
        )
        return 0 if answered is None else int((np.unique(answered[0], return_counts=True)[1] > 1).sum())


def simplify(text: str) -> str:
    return " ".join(text.casefold().split())


def hash_bytes(content: bytes) -> int:
    return to_integer(new_digest(content))


def new_digest(content: bytes = b"") -> hashlib.blake2b:
    return hashlib.blake2b(content, digest_size=8)


def to_integer(digest: hashlib.blake2b) -> int:
    return int.from_bytes(digest.digest(), "little")


def texts_to_show(task: str, example: Any) -> list[str]:
    if isinstance(example, TextPart):
        start = example.text.find("\n", 0, len(example.text) // 2) + 1  # start at a line start if there is one
        return [example.text[start : start + SNIPPET].strip()]
    if TASKS[task].kind == "tags":
        return [" ".join(f"{word}/{tag}" for word, tag in zip(example.words, example.tags, strict=True))]
    return [*TASKS[task].texts(example), *(f"label: {label}" for label in TASKS[task].labels(example))]
