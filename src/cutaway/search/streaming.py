"""Text while it is being written: what of it is certain, and where it is to stop. No torch here.

A token is not a piece of text. A character may be cut in two between tokens, and what stands for half a character
turns into another one when the rest arrives. So a stream shows what no further token can change, and waits with the
rest; what it has shown in the end is exactly what decoding all tokens gives.
"""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any, Protocol

HALF = "\ufffd"  # what a decoder shows for bytes that are no character, or not yet
BYTE = re.compile(r"<0x[0-9A-F]{2}>")  # how SentencePiece names a byte that is no part of any token


class Decodes(Protocol):
    """What of a tokenizer is needed."""

    backend: Any
    roles: dict[str, str]
    unk: int | None

    @property
    def special_ids(self) -> Set[int | None]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


class TextStream:
    """Tokens in, text out: `add` gives the text that has become certain, `end` the rest.

    All that was given together is decode(before + tokens) from where decode(before) ends.
    """

    def __init__(self, tokenizer: Decodes, before: Sequence[int] = ()):
        self.tokenizer, self.tokens = tokenizer, list(before)
        self.shown = len(tokenizer.decode(self.tokens))
        self.unseen = tokenizer.special_ids - {tokenizer.unk}

    def add(self, token: int) -> str:
        self.tokens.append(token)
        if self.is_byte(token) or token in self.unseen:
            return ""  # of a run of bytes, each can still turn all of them into something else
        return self.new(self.certain(self.tokenizer.decode(self.tokens)))

    def end(self) -> str:
        return self.new(self.tokenizer.decode(self.tokens))

    def new(self, text: str) -> str:
        piece = text[self.shown :]
        self.shown += len(piece)
        return piece

    def is_byte(self, token: int) -> bool:
        return BYTE.fullmatch(self.tokenizer.backend.id_to_token(token) or "") is not None

    def certain(self, text: str) -> str:
        """Without the half of a character, or of the unknown word's name (which is shown as a sign), at its end."""
        text = text.rstrip(HALF)
        if self.tokenizer.unk is None:
            return text
        return text[: len(text) - overlap(text, self.tokenizer.roles["unk"])]


class Pieces(TextStream):
    """The text of an answer as it is written: what it begins with is there before its first token is."""

    def __init__(self, tokenizer: Decodes, before: Sequence[int], prefix: Sequence[int]):
        super().__init__(tokenizer, before)
        self.begun = "".join([self.add(token) for token in prefix])


class Stops:
    """Ends a text before the first stop string, and never shows a part of one.

    The first is the one that is complete first, read character by character; of two that end in the same place, the
    longer one.
    """

    def __init__(self, stops: Sequence[str]):
        self.stops = [stop for stop in stops if stop]
        self.waiting = ""
        self.is_over = False

    def add(self, piece: str) -> str:
        """The text that may be shown now. Nothing comes after a stop."""
        if self.is_over:
            return ""
        self.waiting += piece
        if (place := first_stop(self.waiting, self.stops)) is not None:
            self.is_over = True
            return self.waiting[:place]
        held = max((overlap(self.waiting, stop) for stop in self.stops), default=0)
        cut = len(self.waiting) - held
        shown, self.waiting = self.waiting[:cut], self.waiting[cut:]
        return shown

    def end(self) -> str:
        return "" if self.is_over else self.waiting


def first_stop(text: str, stops: Sequence[str]) -> int | None:
    """Where the stop string begins that is complete first."""
    places = [(text.find(stop), len(stop)) for stop in stops if stop]
    found = [(place + length, place) for place, length in places if place >= 0]
    return min(found)[1] if found else None


def ended(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop string; all of it, if there is none."""
    return text[: first_stop(text, stops)]


def overlap(text: str, name: str) -> int:
    """How much of the beginning of `name`, but not all of it, stands at the end of `text`."""
    return next((n for n in range(min(len(name) - 1, len(text)), 0, -1) if text.endswith(name[:n])), 0)


def from_thread(work: Callable[[Callable[[str], bool]], None]) -> Iterator[str]:
    """What `work`, in a thread of its own, says. It is told whether anybody listens still, and is to end if not."""
    said: queue.SimpleQueue[str | BaseException | None] = queue.SimpleQueue()
    closed = threading.Event()

    def say(piece: str) -> bool:
        if piece:
            said.put(piece)
        return not closed.is_set()

    def run() -> None:
        try:
            work(say)
            said.put(None)
        except BaseException as error:  # whatever it is, who reads the text is to know
            said.put(error)

    def pieces() -> Iterator[str]:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            while (piece := said.get()) is not None:
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            closed.set()
            thread.join()  # at most one step of the model from here

    return pieces()
