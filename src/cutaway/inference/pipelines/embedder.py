"""A text in, a vector out."""

from __future__ import annotations

from collections.abc import Sequence

from cutaway.errors import ConfigError, did_you_mean
from cutaway.inference.pipelines.base import Pipeline, by_length, refuse_long, refuse_text

EMBED_POOLINGS = ("mean", "cls", "max")


class Embedder(Pipeline):
    """A model that reads texts, as vectors to compare them by: those of like meaning lie in like directions.

    A sentence encoder was trained for that. Of any other model, the vectors that its head would have read are pooled.
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
        """A vector for each text. `pooling`: "mean" or "max" of its tokens, or the first of them ("cls"); "auto": as
        the model was made for, and the mean if it was made for something else. `normalize`: of length 1, so that a dot
        product is a cosine. `cut`: of a text that is too long, the beginning stands for all of it. `prompt`: the name
        of what is put before each text, of those that the run has; None: as the run says; "": nothing."""
        refuse_text(texts)
        before = self.config.data.prompt_text(prompt)
        texts = [before + text for text in texts] if before else texts
        rows = [self.cut(row) for row in self.rows(texts)] if cut else self.rows(texts)
        self.check(texts, rows)
        results: list[list[float]] = [[] for _ in rows]
        for indices in by_length(rows, batch_size):
            found = self.engine.vectors([rows[i] for i in indices], self.pooling(pooling), normalize)
            for index, vector in zip(indices, found, strict=True):
                results[index] = vector
        return results

    def pooling(self, asked: str) -> str:
        if asked not in ("auto", *EMBED_POOLINGS):
            raise ConfigError(f"there is no pooling {asked!r}. {did_you_mean(asked, ('auto', *EMBED_POOLINGS))}")
        is_writer = self.config.model.family in ("decoder", "encoder_decoder")
        if asked == "cls" and is_writer:
            raise ConfigError(
                "pooling 'cls' takes the first token for the whole, and a model of family "
                f"{self.config.model.family!r} has none that was trained for it. Use 'mean'."
            )
        if asked == "auto":
            return "head" if self.config.model.head == "vectors" else "mean"
        return asked

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, with what stands around a text that this model reads."""
        tokenizer, encoded = self.tokenizer, self.tokenizer.encode_batch(texts)
        if self.config.model.family == "decoder":
            return [tokenizer.begun(ids) for ids in encoded]
        if self.config.model.family == "encoder_decoder":
            return [[*ids, tokenizer.eos] for ids in encoded]
        return [[tokenizer.bos, *ids, tokenizer.eos] for ids in encoded]

    @property
    def room(self) -> int:
        """How long a text may be: of a sentence encoder, as long as those that it was made for."""
        config = self.config
        return (
            min(config.longest_text, config.data.max_tokens) if config.model.head == "vectors" else config.longest_text
        )

    def cut(self, row: list[int]) -> list[int]:
        """The beginning of a row that is too long; what ends a text still ends it."""
        if len(row) <= self.room:
            return row
        return row[: self.room] if self.config.model.family == "decoder" else [*row[: self.room - 1], row[-1]]

    def check(self, texts: Sequence[str], rows: Sequence[Sequence[int]]) -> None:
        for text, row in zip(texts, rows, strict=True):
            if len(row) > self.room:
                remedy = (
                    "Cut it into parts and embed each; or let its beginning stand for all of it (--cut, or cut=True)."
                )
                refuse_long(text, len(row), self.room, remedy)
