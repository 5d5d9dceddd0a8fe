"""A beginning in, the whole text out."""

from __future__ import annotations

from collections.abc import Sequence

from cutaway.config import DecodeConfig
from cutaway.inference.pipelines.writer import Writer
from cutaway.search.request import Hypothesis, Rows, Search, Wish
from cutaway.search.streaming import Pieces

GENERATED_LENGTH = 200  # tokens that a text generator writes if nobody says how many


class TextGenerator(Writer):
    """A trained decoder: goes on with what you begin."""

    tasks = ("language_model",)
    # Prompts of a batch are read at once as far as the shortest goes; then the longer ones are read token by token, in
    # steps that write for the shorter ones. So a batch of unlike prompts costs steps that write for few rows only.
    spread = 16

    def generate(
        self,
        prompts: Sequence[str],
        decode: DecodeConfig | None = None,
        first: int = 0,
        prefix: str = "",
        choices: Sequence[str] | None = None,
        stop: Sequence[str] = (),
    ) -> list[str]:
        """Each prompt with what comes after it. An empty prompt begins a new text. The rest as in `answers`."""
        after = self.answers(prompts, decode, first, prefix, choices, stop)
        return [prompt + text for prompt, text in zip(prompts, after, strict=True)]

    def continuation(self, prompt: str, tokens: Sequence[int]) -> str:
        """The text of `tokens` after `prompt`: decoded together, for a character may be cut in two between tokens."""
        ids = self.tokenizer.encode(prompt)
        return self.tokenizer.decode([*ids, *tokens])[len(self.tokenizer.decode(ids)) :]

    def text_of(self, wish: Wish, hypothesis: Hypothesis) -> str:
        return self.continuation(wish.text, [*self.prefixes([wish])[0], *hypothesis.tokens])

    def pieces(self, wish: Wish) -> Pieces:
        return Pieces(self.tokenizer, self.tokenizer.encode(wish.text), self.prefixes([wish])[0])

    def rows(self, wishes: Sequence[Wish]) -> list[list[int]]:
        return [self.tokenizer.begun(ids) for ids in self.tokenizer.encode_batch([wish.text for wish in wishes])]

    def searched(self, rows: Rows, search: Search) -> list[list[Hypothesis]]:
        found: list[list[Hypothesis]] = self.engine.go_on(rows, search)
        return found

    def goes_on(self, wish: Wish) -> bool:
        return bool(wish.text)

    def room(self, row: Sequence[int]) -> int:
        return self.config.longest_text - len(row) + 1  # the last token is written, but never read

    def usual_length(self, row: Sequence[int]) -> int:
        return GENERATED_LENGTH

    def no_room(self, row: Sequence[int], prefix: Sequence[int]) -> str:
        given = f" and the prefix {len(prefix)}" if prefix else ""
        return (
            f"the prompt has {len(row)} tokens{given}, and this model has positions for {self.config.longest_text}: "
            "there is no room to go on. Shorten it."
        )
