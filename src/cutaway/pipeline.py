"""Text in, text out: a trained run put to work. `load` is the one way back from a run folder.

translator = Translator.load("runs/demo")
translator.translate(["The small cat sleeps."])

What happens between the texts and their tokens is here; what happens between tokens is an engine's work.
No torch here: a translator on the NumPy engine never imports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from cutaway.config import Config, DecodeConfig
from cutaway.data.tasks import encode_words, words_of
from cutaway.data.tokenizer import Tokenizer
from cutaway.decode.request import Hypothesis, Search
from cutaway.engines import load_engine
from cutaway.errors import ConfigError, DataError, RunError, did_you_mean
from cutaway.runs import RunFolder

EXTRA_LENGTH = 50  # a translation may have this many tokens more than its source (the paper, section 6.1)
GENERATED_LENGTH = 200  # tokens that a text generator writes if nobody says how many


class Pipeline:
    """A trained model on an engine, its tokenizer and labels. Each kind below does one of the tasks with it."""

    tasks: ClassVar[tuple[str, ...]] = ()
    engines: ClassVar[tuple[str, ...]] = ("torch",)  # that can do it

    def __init__(self, engine: Any, tokenizer: Tokenizer | None, config: Config, labels: Sequence[str] = ()):
        self.engine, self.config, self.labels = engine, config, tuple(labels)
        self._tokenizer = tokenizer

    @classmethod
    def load(
        cls,
        run: str | Path,
        device: str = "auto",
        weights: Path | None = None,
        engine: str = "auto",
        dtype: str = "float32",
    ) -> Self:
        """Read a run folder; `weights` may name a snapshot or a checkpoint's weights instead of the best ones."""
        folder = RunFolder(run).require()
        config = folder.read_config()
        if config.model.task not in cls.tasks:
            raise RunError(wrong_task(run, config.model.task, cls.tasks))
        loaded = load_engine(engine, cls.engines, folder, config, weights or folder.weights, device, dtype)
        tokenizer = None if config.model.family == "vision" else load_tokenizer(folder, config)
        return cls(loaded, tokenizer, config, folder.read_labels())

    @property
    def model(self) -> Any:
        return self.engine.model

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            raise RunError("this run reads images: it has no tokenizer.")
        return self._tokenizer

    @property
    def device(self) -> Any:
        """Where the model is, for those who give it tensors."""
        if not hasattr(self.engine, "device"):
            raise RunError('this needs the PyTorch model. Load the run with engine="torch".')
        return self.engine.device


def load_tokenizer(folder: RunFolder, config: Config) -> Tokenizer:
    tokenizer = Tokenizer.open(folder.tokenizer)
    unused = config.model.vocab_size - tokenizer.vocab_size
    # a model from elsewhere may have rows that no token uses: T5's vocabulary was rounded up to a multiple of 128
    if unused < 0 or (unused and config.data.tokenizer != "file"):
        raise RunError(
            f"{folder.tokenizer} has {tokenizer.vocab_size} tokens, the model {config.model.vocab_size}: it is not "
            "the tokenizer that this model was trained with. Restore it."
        )
    return tokenizer


# task -> the command that puts it to work
COMMANDS = {
    "translation": "translate",
    "language_model": "generate",
    "classification": "classify",
    "image_classification": "classify",
    "tagging": "tag",
    "masked_language_model": "evaluate",
    "embedding": "embed",
}


def wrong_task(run: str | Path, task: str, wanted: Sequence[str]) -> str:
    return (
        f"the run {str(run)!r} was trained for {task.replace('_', ' ')}, and this needs one trained for "
        f"{' or '.join(wanted).replace('_', ' ')}. Use it with: cutaway {COMMANDS[task]} {run}"
    )


def load_pipeline(run: str | Path, device: str = "auto") -> Pipeline:
    """Whatever this run was trained for, ready for it."""
    task = RunFolder(run).require().read_config().model.task
    return next(kind for kind in KINDS if task in kind.tasks).load(run, device)


class Writer(Pipeline):
    """What translators and text generators share: a search over the tokens of a text."""

    engines = ("torch", "numpy")

    def search(
        self, decode: DecodeConfig, limits: Sequence[int], indices: Sequence[int], n_best: int, first: int
    ) -> Search:
        numbers = [first + index for index in indices]
        return Search(decode, limits, numbers, self.tokenizer.bos, self.tokenizer.eos, n_best)


class Translator(Writer):
    """A trained encoder-decoder."""

    tasks = ("translation",)

    def translate(self, texts: Sequence[str], decode: DecodeConfig | None = None, first: int = 0) -> list[str]:
        """Translate each text; the order stays. An empty text has an empty translation.

        What is drawn in sampling follows from the seed and a text's number; `first` is that of the first text.
        """
        found = self.hypotheses(texts, decode, first=first)
        return [self.tokenizer.decode(best[0].tokens) if best else "" for best in found]

    def hypotheses(
        self, texts: Sequence[str], decode: DecodeConfig | None = None, n_best: int = 1, first: int = 0
    ) -> list[list[Hypothesis]]:
        """What the search found for each text, best first (none for an empty text)."""
        results: list[list[Hypothesis]] = [[] for _ in texts]
        for indices, found in self.decoded(texts, decode, n_best, first):
            for index, hypotheses in zip(indices, found, strict=True):
                results[index] = hypotheses
        return results

    def decoded(
        self, texts: Sequence[str], decode: DecodeConfig | None = None, n_best: int = 1, first: int = 0
    ) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        """Batches of texts of like length, each with its hypotheses, as they get ready."""
        decode = decode or self.config.decode
        encoded = self.tokenizer.encode_batch([text if text.strip() else "" for text in texts])
        for indices in by_length(encoded, decode.batch_size):
            rows = [[*encoded[i], self.tokenizer.eos] for i in indices]
            limits = [self.longest_output(len(encoded[i]), decode) for i in indices]
            yield indices, self.engine.translate(rows, self.search(decode, limits, indices, n_best, first))

    def longest_output(self, source_length: int, decode: DecodeConfig) -> int:
        """A limit of each text's own, so that a translation does not depend on the batch that it is in."""
        return min(decode.max_length or source_length + EXTRA_LENGTH, self.config.longest_text)


class TextGenerator(Writer):
    """A trained decoder: goes on with what you begin."""

    tasks = ("language_model",)

    def generate(self, prompts: Sequence[str], decode: DecodeConfig | None = None, first: int = 0) -> list[str]:
        """Each prompt with what comes after it. An empty prompt begins a new text. `first` as in `translate`."""
        return [
            prompt + self.continuation(prompt, found[0].tokens)
            for prompt, found in zip(prompts, self.hypotheses(prompts, decode, first=first), strict=True)
        ]

    def continuation(self, prompt: str, tokens: Sequence[int]) -> str:
        """The text of `tokens` after `prompt`: decoded together, for a character may be cut in two between tokens."""
        ids = self.tokenizer.encode(prompt)
        return self.tokenizer.decode([*ids, *tokens])[len(self.tokenizer.decode(ids)) :]

    def hypotheses(
        self, prompts: Sequence[str], decode: DecodeConfig | None = None, n_best: int = 1, first: int = 0
    ) -> list[list[Hypothesis]]:
        """What the search found for each prompt, best first; `tokens` are the new ones alone."""
        decode = decode or self.config.decode
        rows = [self.tokenizer.begun(ids) for ids in self.tokenizer.encode_batch(prompts)]
        results: list[list[Hypothesis]] = [[] for _ in prompts]
        for indices in by_length(rows, decode.batch_size, alike=True):
            prompts_alike = [rows[i] for i in indices]
            limits = [self.longest_output(len(row), decode) for row in prompts_alike]
            found = self.engine.go_on(prompts_alike, self.search(decode, limits, indices, n_best, first))
            for index, hypotheses in zip(indices, found, strict=True):
                results[index] = hypotheses
        return results

    def longest_output(self, prompt_length: int, decode: DecodeConfig) -> int:
        room = self.config.longest_text - prompt_length + 1  # the last token is written, but never read
        if room < 1:
            raise DataError(
                f"the prompt has {prompt_length} tokens, and this model has positions for "
                f"{self.config.longest_text}: there is no room to go on. Shorten it."
            )
        return min(decode.max_length or GENERATED_LENGTH, room)


class Prediction(NamedTuple):
    label: str
    probability: float


class Classifier(Pipeline):
    """A trained encoder that gives a text, or an image, one of its labels."""

    tasks = ("classification", "image_classification")

    def classify(self, examples: Sequence[Any], batch_size: int = 64) -> list[Prediction]:
        """The likeliest label of each text, or of each image [C,H,W], and how likely it is."""
        best = [max(zip(row, self.labels, strict=True)) for row in self.probabilities(examples, batch_size)]
        return [Prediction(label, probability) for probability, label in best]

    def probabilities(self, examples: Sequence[Any], batch_size: int = 64) -> list[list[float]]:
        """For each text or image the probability of every label, in the order of `labels`."""
        if self.config.model.family == "vision":
            return self.of_images(examples, batch_size)
        tokenizer = self.tokenizer
        rows = [[tokenizer.bos, *ids, tokenizer.eos] for ids in tokenizer.encode_batch(examples)]
        results: list[list[float]] = [[] for _ in rows]
        for indices in by_length(rows, batch_size):
            for index, p in zip(indices, self.engine.probabilities([rows[i] for i in indices]), strict=True):
                results[index] = p
        return results

    def of_images(self, images: Sequence[Any], batch_size: int) -> list[list[float]]:
        results: list[list[float]] = []
        for start in range(0, len(images), batch_size):
            results.extend(self.engine.image_probabilities(images[start : start + batch_size]))
        return results


class Tagger(Pipeline):
    """A trained encoder that gives every word of a text a tag."""

    tasks = ("tagging",)

    def words(self, text: str) -> list[str]:
        """A text cut into words in the way of the data that the tagger was trained on."""
        return words_of(self.config.data)(text)

    @property
    def reads_code(self) -> bool:
        """Whether its texts go over several lines."""
        return self.config.data.corpus.startswith("python")

    def tag(self, sentences: Sequence[Sequence[str]], batch_size: int = 64) -> list[list[str]]:
        """For each sentence, cut into words, a tag for each word."""
        encoded = encode_words(self.tokenizer, sentences)
        results: list[list[str]] = [[] for _ in sentences]
        for indices in by_length([row.ids for row in encoded], batch_size):
            for index, tags in zip(indices, self.engine.tags([encoded[i].ids for i in indices]), strict=True):
                results[index] = [self.labels[tags[place]] for place in encoded[index].first]
        return results


class MaskedModel(Pipeline):
    """A trained masked language model: it can be measured, and looked into."""

    tasks = ("masked_language_model",)


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
    ) -> list[list[float]]:
        """A vector for each text. `pooling`: "mean" or "max" of its tokens, or the first of them ("cls"); "auto": as
        the model was made for, and the mean if it was made for something else. `normalize`: of length 1, so that a dot
        product is a cosine. `cut`: of a text that is too long, the beginning stands for all of it."""
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
                shown = text if len(text) <= 40 else text[:40] + "..."
                raise DataError(
                    f"the text {shown!r} has {len(row):,} tokens, and this model takes {self.room:,}. Cut it into "
                    "parts and embed each; or let its beginning stand for all of it (--cut, or cut=True)."
                )


EMBED_POOLINGS = ("mean", "cls", "max")
KINDS: tuple[type[Pipeline], ...] = (Translator, TextGenerator, Classifier, Tagger, MaskedModel, Embedder)


def by_length(rows: Sequence[Sequence[int]], batch_size: int, alike: bool = False) -> Iterator[list[int]]:
    """Which rows go together: of about the same length, or of exactly the same if `alike`; empty ones not at all."""
    order = sorted((i for i in range(len(rows)) if rows[i]), key=lambda i: len(rows[i]))
    batch: list[int] = []
    for i in order:
        if batch and (len(batch) == batch_size or (alike and len(rows[i]) != len(rows[batch[0]]))):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
