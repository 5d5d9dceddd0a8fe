"""Words that a model does not know. It reads them all as one and the same, and answers as if it understood."""

from __future__ import annotations

from collections.abc import Sequence

from cutaway.data.tokenizer import Tokenizer

FEW = 5


class Unknown:
    """How many lines have any, and the first of them."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.lines, self.words = 0, list[str]()

    def note(self, text: str, ids: Sequence[int] | None = None) -> None:
        unk = self.tokenizer.unk
        if unk is None or unk not in (self.tokenizer.encode(text) if ids is None else ids):
            return
        self.lines += 1
        if len(self.words) < FEW:
            self.words = list(dict.fromkeys([*self.words, *self.tokenizer.unknown(text)]))[:FEW]
