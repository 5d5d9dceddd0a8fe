"""Pipeline that translates."""

from __future__ import annotations

from collections.abc import Sequence

from cutaway.config import DecodeConfig
from cutaway.inference.pipelines.generation import GenerationPipeline
from cutaway.search.request import Hypothesis, Request, Rows, Search
from cutaway.search.streaming import OutputStream

EXTRA_LENGTH = 50  # a translation may have this many tokens more than its source (the paper, section 6.1)


class Translator(GenerationPipeline):
    """A trained encoder-decoder that translates texts."""

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
        """Translate each text, in order. An empty text has an empty translation. Other arguments as in `answers`."""
        return self.answers(texts, decode, first, prefix, choices, stop)

    def output_text(self, request: Request, hypothesis: Hypothesis) -> str:
        return self.tokenizer.decode([*self.prefixes([request])[0], *hypothesis.tokens])

    def output_stream(self, request: Request) -> OutputStream:
        return OutputStream(self.tokenizer, (), self.prefixes([request])[0])

    def input_ids(self, requests: Sequence[Request]) -> list[list[int]]:
        encoded = self.tokenizer.encode_batch([request.text if request.text.strip() else "" for request in requests])
        return [[*ids, self.tokenizer.eos] if ids else [] for ids in encoded]

    def run_search(self, rows: Rows, search: Search) -> list[list[Hypothesis]]:
        found: list[list[Hypothesis]] = self.engine.translate(rows, search)
        return found

    def continues_text(self, request: Request) -> bool:
        return False

    def max_new_tokens(self, row: Sequence[int]) -> int:
        return self.config.longest_text

    def default_length(self, row: Sequence[int]) -> int:
        return len(row) - 1 + EXTRA_LENGTH  # without </s>

    def no_room_message(self, row: Sequence[int], prefix: Sequence[int]) -> str:
        return (
            f"the prefix has {len(prefix)} tokens, and this model has positions for {self.config.longest_text}: no "
            "positions are left. Shorten it."
        )
