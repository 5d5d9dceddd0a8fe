"""Pipeline that returns a vector for a text."""

from __future__ import annotations

from collections.abc import Sequence

from cutaway.errors import ConfigError, did_you_mean
from cutaway.inference.pipelines.base import Pipeline, batch_by_length, raise_too_long, require_list

EMBED_POOLINGS = ("mean", "cls", "max")


class Embedder(Pipeline):
    """Map texts to vectors, so that texts of similar meaning have similar directions.

    A sentence encoder was trained for this. For any other model, the inputs of its head are pooled.
    """

    tasks = ("embedding", "masked_language_model", "classification", "tagging", "language_model", "translation")

    def embed(
        self,
        texts: Sequence[str],
        pooling: str = "auto",
        normalize: bool = True,
        cut: bool = False,
        batch_size: int = 64,
        prompt: str | None = None,
    ) -> list[list[float]]:
        """A vector for each text.

        pooling     "mean" or "max" over tokens, or the first token ("cls"); "auto": as in the model's head, else "mean"
        normalize   scale vectors to length 1, so that a dot product is a cosine
        cut         use the start of a text that is too long, instead of raising an error
        prompt      name of the run's prompt to put before each text; None: the run's default; "": none
        """
        require_list(texts)
        before = self.config.data.prompt_text(prompt)
        texts = [before + text for text in texts] if before else texts
        rows = [self.cut(row) for row in self.input_ids(texts)] if cut else self.input_ids(texts)
        self.check(texts, rows)
        results: list[list[float]] = [[] for _ in rows]
        for indices in batch_by_length(rows, batch_size):
            found = self.engine.vectors([rows[i] for i in indices], self.pooling(pooling), normalize)
            for index, vector in zip(indices, found, strict=True):
                results[index] = vector
        return results

    def pooling(self, name: str) -> str:
        if name not in ("auto", *EMBED_POOLINGS):
            raise ConfigError(f"unknown pooling {name!r}. {did_you_mean(name, ('auto', *EMBED_POOLINGS))}")
        generates = self.config.model.family in ("decoder", "encoder_decoder")
        if name == "cls" and generates:
            raise ConfigError(
                f"pooling 'cls' needs a first token that was trained for it; model.family = "
                f"{self.config.model.family!r} has none. Use 'mean'."
            )
        if name == "auto":
            return "head" if self.config.model.head == "vectors" else "mean"
        return name

    def input_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, with its special tokens."""
        tokenizer, encoded = self.tokenizer, self.tokenizer.encode_batch(texts)
        if self.config.model.family == "decoder":
            return [tokenizer.add_bos(ids) for ids in encoded]
        if self.config.model.family == "encoder_decoder":
            return [[*ids, tokenizer.eos] for ids in encoded]
        return [[tokenizer.bos, *ids, tokenizer.eos] for ids in encoded]

    @property
    def max_tokens(self) -> int:
        """Longest text in tokens; for a sentence encoder, the length that it was trained for."""
        config = self.config
        return (
            min(config.longest_text, config.data.max_tokens) if config.model.head == "vectors" else config.longest_text
        )

    def cut(self, row: list[int]) -> list[int]:
        """Cut a row that is too long; the end token stays."""
        if len(row) <= self.max_tokens:
            return row
        return (
            row[: self.max_tokens] if self.config.model.family == "decoder" else [*row[: self.max_tokens - 1], row[-1]]
        )

    def check(self, texts: Sequence[str], rows: Sequence[Sequence[int]]) -> None:
        for text, row in zip(texts, rows, strict=True):
            if len(row) > self.max_tokens:
                remedy = "Split it and embed each part, or embed only its start (--cut, or cut=True)."
                raise_too_long(text, len(row), self.max_tokens, remedy)
