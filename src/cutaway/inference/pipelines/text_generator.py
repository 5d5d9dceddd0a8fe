"""Pipeline that continues a prompt."""

from __future__ import annotations

from collections.abc import Sequence

from cutaway.config import DecodeConfig
from cutaway.inference.pipelines.generation import GenerationPipeline
from cutaway.search.request import Hypothesis, Request, Rows, Search
from cutaway.search.streaming import OutputStream

GENERATED_LENGTH = 200  # default number of new tokens


class TextGenerator(GenerationPipeline):
    """A trained decoder that continues prompts."""

    tasks = ("language_model",)
    # One forward pass reads the prompts of a batch up to the length of the shortest. The rest of longer prompts is read
    # token by token, while shorter ones already generate. So very different lengths waste steps.
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
        """Each prompt with its continuation. An empty prompt starts a new text. Other arguments as in `answers`."""
        after = self.answers(prompts, decode, first, prefix, choices, stop)
        return [prompt + text for prompt, text in zip(prompts, after, strict=True)]

    def continuation(self, prompt: str, tokens: Sequence[int]) -> str:
        """The text of `tokens` after `prompt`. Both are decoded together, because a character can span two tokens."""
        ids = self.tokenizer.encode(prompt)
        return self.tokenizer.decode([*ids, *tokens])[len(self.tokenizer.decode(ids)) :]

    def output_text(self, request: Request, hypothesis: Hypothesis) -> str:
        return self.continuation(request.text, [*self.prefixes([request])[0], *hypothesis.tokens])

    def output_stream(self, request: Request) -> OutputStream:
        return OutputStream(self.tokenizer, self.tokenizer.encode(request.text), self.prefixes([request])[0])

    def input_ids(self, requests: Sequence[Request]) -> list[list[int]]:
        return [
            self.tokenizer.add_bos(ids) for ids in self.tokenizer.encode_batch([request.text for request in requests])
        ]

    def run_search(self, rows: Rows, search: Search) -> list[list[Hypothesis]]:
        found: list[list[Hypothesis]] = self.engine.generate(rows, search)
        return found

    def continues_text(self, request: Request) -> bool:
        return bool(request.text)

    def max_new_tokens(self, row: Sequence[int]) -> int:
        return self.config.longest_text - len(row) + 1  # the last token is generated, but never read

    def default_length(self, row: Sequence[int]) -> int:
        return GENERATED_LENGTH

    def no_room_message(self, row: Sequence[int], prefix: Sequence[int]) -> str:
        prefix_part = f" and the prefix {len(prefix)}" if prefix else ""
        return (
            f"the prompt has {len(row)} tokens{prefix_part}, and this model has positions for "
            f"{self.config.longest_text}: no positions are left. Shorten it."
        )
