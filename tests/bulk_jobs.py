"""Jobs without a model, for tests of the runner. A separate module, because workers import it by name."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from cutaway.bulk.journal import NoHeader, NpyHeader
from cutaway.errors import DataError, RunError


@dataclass(frozen=True)
class Backwards:
    """Each line with its number, backwards. The line `kill` kills its worker, and `too long` fails."""

    seconds: float = 0.0  # per batch
    setting: str = ""
    log: str = ""  # a file that lists every batch processed

    header = NoHeader()
    can_skip = True
    skips_by_default = False
    result_bytes = 100

    def load(self):
        return self.work

    def token_counter(self):
        return lambda texts: [len(text) + 1 for text in texts]

    def description(self):
        return {"setting": self.setting}

    def default_workers(self, lines, characters):
        return 0

    def placeholder(self, failed):
        return b"\n"

    def work(self, texts, numbers):
        time.sleep(self.seconds)
        if self.log:
            with Path(self.log).open("a") as file:
                file.write(f"{os.getpid()} {numbers[0]}\n")
        return [self.one(text, number) for text, number in zip(texts, numbers, strict=True)]

    def one(self, text, number):
        if text == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if text == "too long":
            raise DataError("the text is too long.")
        return f"{number} {text[::-1]}\n".encode()


@dataclass(frozen=True)
class Lengths(Backwards):
    """A row of two numbers for each line."""

    header = NpyHeader()
    can_skip = False

    def one(self, text, number):
        import numpy as np

        return np.array([number, len(text)], "<f4").tobytes()


LARGE = 8_000  # bytes


@dataclass(frozen=True)
class Large(Backwards):
    """A large result for each line."""

    result_bytes = LARGE

    def one(self, text, number):
        return b"x" * LARGE  # zeros would take no memory


@dataclass(frozen=True)
class Unloadable(Backwards):
    def load(self):
        raise RunError("there is no such run.")


@dataclass(frozen=True)
class Unskippable(Backwards):
    can_skip = False
