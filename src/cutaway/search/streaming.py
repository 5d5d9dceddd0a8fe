"""Text during generation: which part of it is final, and where it stops. No torch here.

One token is not always a piece of text. A character can be split between two tokens, and its first half decodes to
something else. So a stream returns only text that no later token can change. All pieces together are exactly the
decoded text.
"""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any, Protocol

REPLACEMENT = "\ufffd"  # decoders return it for bytes that are not a character, or not yet
BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")  # SentencePiece's name of a token for a single byte


class TokenDecoder(Protocol):
    """The part of a tokenizer that streaming needs."""

    backend: Any
    roles: dict[str, str]
    unk: int | None

    @property
    def special_ids(self) -> Set[int | None]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


class TextStream:
    """Tokens in, text out: `add` returns the text that became final, `end` the rest.

    All pieces together are decode(before + tokens) without its first len(decode(before)) characters.
    """

    def __init__(self, tokenizer: TokenDecoder, before: Sequence[int] = ()):
        self.tokenizer, self.tokens = tokenizer, list(before)
        self.n_returned = len(tokenizer.decode(self.tokens))  # characters
        self.hidden = tokenizer.special_ids - {tokenizer.unk}

    def add(self, token: int) -> str:
        self.tokens.append(token)
        if self.is_byte(token) or token in self.hidden:
            return ""  # the next byte can change how the whole run of bytes decodes
        return self.new_part(self.final_part(self.tokenizer.decode(self.tokens)))

    def end(self) -> str:
        return self.new_part(self.tokenizer.decode(self.tokens))

    def new_part(self, text: str) -> str:
        piece = text[self.n_returned :]
        self.n_returned += len(piece)
        return piece

    def is_byte(self, token: int) -> bool:
        return BYTE_TOKEN.fullmatch(self.tokenizer.backend.id_to_token(token) or "") is not None

    def final_part(self, text: str) -> str:
        """The text without an incomplete character, or an incomplete name of the unknown token, at its end."""
        text = text.rstrip(REPLACEMENT)
        if self.tokenizer.unk is None:
            return text
        return text[: len(text) - partial_match(text, self.tokenizer.roles["unk"])]


class OutputStream(TextStream):
    """The stream of a generated text. `prefix_text`: the text of its prefix, known before the first token."""

    def __init__(self, tokenizer: TokenDecoder, before: Sequence[int], prefix: Sequence[int]):
        super().__init__(tokenizer, before)
        self.prefix_text = "".join([self.add(token) for token in prefix])


class StopStrings:
    """End a text before the first stop string, and never return a part of one.

    The first stop string is the one that is complete first, reading character by character. If two end at the same
    character, the longer one counts.
    """

    def __init__(self, stops: Sequence[str]):
        self.stops = [stop for stop in stops if stop]
        self.held_back = ""
        self.is_over = False

    def add(self, piece: str) -> str:
        """Return the text that is final now. After a stop string, this is empty."""
        if self.is_over:
            return ""
        self.held_back += piece
        if (place := find_stop(self.held_back, self.stops)) is not None:
            self.is_over = True
            return self.held_back[:place]
        cut = len(self.held_back) - max((partial_match(self.held_back, stop) for stop in self.stops), default=0)
        final, self.held_back = self.held_back[:cut], self.held_back[cut:]
        return final

    def end(self) -> str:
        return "" if self.is_over else self.held_back


def find_stop(text: str, stops: Sequence[str]) -> int | None:
    """The index where the first complete stop string starts."""
    places = [(text.find(stop), len(stop)) for stop in stops if stop]
    found = [(place + length, place) for place, length in places if place >= 0]
    return min(found)[1] if found else None


def cut_at_stop(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop string; without one, the whole text."""
    return text[: find_stop(text, stops)]


def partial_match(text: str, name: str) -> int:
    """The length of the longest proper prefix of `name` that `text` ends with."""
    return next((n for n in range(min(len(name) - 1, len(text)), 0, -1) if text.endswith(name[:n])), 0)


def stream_from_thread(work: Callable[[Callable[[str], bool]], None]) -> Iterator[str]:
    """Run work(send) in a thread and yield the pieces that it sends.

    `send` returns False when the consumer has closed the stream; then `work` should return.
    """
    sent: queue.SimpleQueue[str | BaseException | None] = queue.SimpleQueue()
    closed = threading.Event()

    def send(piece: str) -> bool:
        if piece:
            sent.put(piece)
        return not closed.is_set()

    def run() -> None:
        try:
            work(send)
            sent.put(None)
        except BaseException as error:  # raised again in the consumer's thread
            sent.put(error)

    def pieces() -> Iterator[str]:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            while (piece := sent.get()) is not None:
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            closed.set()
            thread.join()  # takes at most one step of the model

    return pieces()
