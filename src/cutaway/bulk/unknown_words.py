"""Words outside the vocabulary. The model reads all of them as the same <unk> token."""

from __future__ import annotations

from collections.abc import Sequence

from cutaway.data.tokenizer import Tokenizer

MAX_EXAMPLES = 5


class UnknownWords:
    """The number of lines with unknown words, and the first such words."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.lines, self.words = 0, list[str]()

    def add(self, text: str, ids: Sequence[int] | None = None) -> None:
        unk = self.tokenizer.unk
        if unk is None or unk not in (self.tokenizer.encode(text) if ids is None else ids):
            return
        self.lines += 1
        if len(self.words) < MAX_EXAMPLES:
            self.words = list(dict.fromkeys([*self.words, *self.tokenizer.unknown(text)]))[:MAX_EXAMPLES]
