"""A text in, its translation out."""

from __future__ import annotations

from collections.abc import Sequence

from cutaway.config import DecodeConfig
from cutaway.inference.pipelines.writer import Writer
from cutaway.search.request import Hypothesis, Rows, Search, Wish
from cutaway.search.streaming import Pieces

EXTRA_LENGTH = 50  # a translation may have this many tokens more than its source (the paper, section 6.1)


class Translator(Writer):
    """A trained encoder-decoder."""

    tasks = ("translation",)

    def translate(
        self,
        texts: Sequence[str],
        decode: DecodeConfig | None = None,
        first: int = 0,
        prefix: str = "",
        choices: Sequence[str] | None = None,
        stop: Sequence[str] = (),
    ) -> list[str]:
        """Translate each text; the order stays. An empty text has an empty translation. The rest as in `answers`."""
        return self.answers(texts, decode, first, prefix, choices, stop)

    def text_of(self, wish: Wish, hypothesis: Hypothesis) -> str:
        return self.tokenizer.decode([*self.prefixes([wish])[0], *hypothesis.tokens])

    def pieces(self, wish: Wish) -> Pieces:
        return Pieces(self.tokenizer, (), self.prefixes([wish])[0])

    def rows(self, wishes: Sequence[Wish]) -> list[list[int]]:
        encoded = self.tokenizer.encode_batch([wish.text if wish.text.strip() else "" for wish in wishes])
        return [[*ids, self.tokenizer.eos] if ids else [] for ids in encoded]

    def searched(self, rows: Rows, search: Search) -> list[list[Hypothesis]]:
        found: list[list[Hypothesis]] = self.engine.translate(rows, search)
        return found

    def goes_on(self, wish: Wish) -> bool:
        return False

    def room(self, row: Sequence[int]) -> int:
        return self.config.longest_text

    def usual_length(self, row: Sequence[int]) -> int:
        return len(row) - 1 + EXTRA_LENGTH  # </s> is no part of a source's length

    def no_room(self, row: Sequence[int], prefix: Sequence[int]) -> str:
        return (
            f"the prefix has {len(prefix)} tokens, and this model has positions for {self.config.longest_text}: there "
            "is no room to go on. Shorten it."
        )
