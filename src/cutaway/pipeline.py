"""Text in, text out: a trained run put to work. `load` is the one way back from a run folder.

translator = Translator.load("runs/demo")
translator.translate(["The small cat sleeps."])

What happens between the texts and their tokens is here; what happens between tokens is an engine's work.
No torch here: a translator on the NumPy engine never imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from cutaway.config import Config, DecodeConfig
from cutaway.data.tasks import encode_words, words_of
from cutaway.data.tokenizer import Tokenizer
from cutaway.decode.constraints import OneOf
from cutaway.decode.request import BEAM_IS_DEAF, Allowed, Heard, Hypothesis, Rows, Search, Wanted, Wish
from cutaway.decode.streaming import Pieces, Stops, ended, from_thread
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

    engines = ("torch", "numpy", "ct2")
    spread: ClassVar[int | None] = None  # by how many tokens the rows of a batch may differ in length

    def written(
        self,
        wishes: Sequence[Wish],
        decode: DecodeConfig | None = None,
        n_best: int = 1,
        allowed: Allowed | None = None,
        aligned: bool = False,
    ) -> list[list[Hypothesis]]:
        """What the search found for each wish, best first (none, if there is nothing to translate).

        Wishes of like length go together in a batch; the order stays, and a wish's answer does not depend on its
        company. `allowed` is asked by the place of a wish among `wishes`; `aligned` is for translations.
        """
        decode = decode or self.config.decode
        self.check_tokens(decode.suppress)
        rows, prefixes = self.rows(wishes), self.prefixes(wishes)
        results: list[list[Hypothesis]] = [[] for _ in wishes]
        for indices in by_length(rows, decode.batch_size, self.spread):
            chosen = [wishes[i] for i in indices]
            search = Search(
                decode=decode,
                limits=[self.limit(rows[i], prefixes[i], wishes[i], decode, allowed) for i in indices],
                numbers=[wish.number for wish in chosen],
                bos=self.tokenizer.bos,
                eos=self.tokenizer.eos,
                n_best=n_best,
                prefixes=[prefixes[i] for i in indices] if any(prefixes[i] for i in indices) else (),
                seeds=[decode.seed if wish.seed is None else wish.seed for wish in chosen],
                allowed=asked_by_place(allowed, indices),
                heard=heard_by(chosen),
                wanted=wanted_by(chosen),
                aligned=aligned,
            )
            for index, found in zip(indices, self.searched([rows[i] for i in indices], search), strict=True):
                results[index] = found
        return results

    def hypotheses(
        self,
        texts: Sequence[str],
        decode: DecodeConfig | None = None,
        n_best: int = 1,
        first: int = 0,
        choices: Sequence[str] | None = None,
        aligned: bool = False,
    ) -> list[list[Hypothesis]]:
        """What the search found for each text, best first (none for an empty text to translate); `tokens` are the new
        ones alone. `first` and `choices` as in `answers`."""
        wishes = [Wish(text, number=first + i) for i, text in enumerate(texts)]
        return self.written(wishes, decode, n_best, self.one_of(choices), aligned)

    def answers(
        self,
        texts: Sequence[str],
        decode: DecodeConfig | None = None,
        first: int = 0,
        prefix: str = "",
        choices: Sequence[str] | None = None,
        stop: Sequence[str] = (),
    ) -> list[str]:
        """The best answer to each text, in their order.

        What is drawn in sampling follows from the seed and a text's number; `first` is that of the first text.
        prefix    what each answer begins with, whatever the model thinks of it
        choices   each answer is exactly one of these
        stop      an answer ends before the first of these strings
        """
        decode = decode or self.config.decode
        wishes = [Wish(text, prefix, first + i) for i, text in enumerate(texts)]
        if stop and decode.strategy != "beam":  # a beam cannot be ended by what one of its texts says
            wishes = [replace(wish, heard=self.until(wish, stop)) for wish in wishes]
        found = self.written(wishes, decode, allowed=self.one_of(choices))
        return [
            ended(self.text_of(wish, best[0]), stop) if best else "" for wish, best in zip(wishes, found, strict=True)
        ]

    def stream(
        self,
        text: str,
        decode: DecodeConfig | None = None,
        prefix: str = "",
        stop: Sequence[str] = (),
        choices: Sequence[str] | None = None,
        number: int = 0,
    ) -> Iterator[str]:
        """The answer in pieces, as it is written; together they are exactly the answer. Greedily or by sampling:
        without `decode`, as the run is set, and greedily if that is beam search.

        Another thread does the work. Closing the iterator ends it.
        """
        if decode is None:
            decode = self.config.decode
            decode = replace(decode, strategy="greedy") if decode.strategy == "beam" else decode
        if decode.strategy == "beam":
            raise ConfigError(BEAM_IS_DEAF)
        wish, allowed = Wish(text, prefix, number), self.one_of(choices)
        pieces = self.pieces(wish)

        def work(say: Callable[[str], bool]) -> None:
            stops = Stops(stop)

            def heard(token: int, log_p: float) -> bool:
                return say(stops.add(pieces.add(token))) and not stops.is_over

            if self.rows([wish])[0]:  # nothing to translate has no translation, not even a prefix
                say(stops.add(pieces.begun))
            if self.written([replace(wish, heard=heard)], decode, allowed=allowed)[0]:
                say(stops.add(pieces.end()) + stops.end())

        return from_thread(work)

    def until(self, wish: Wish, stop: Sequence[str]) -> Callable[[int, float], bool]:
        """To be shown the tokens of an answer: whether it is to go on, for none of the stop strings has come."""
        pieces, stops = self.pieces(wish), Stops(stop)
        stops.add(pieces.begun)

        def heard(token: int, log_p: float) -> bool:
            stops.add(pieces.add(token))
            return not stops.is_over

        return heard

    def one_of(self, choices: Sequence[str] | None) -> OneOf | None:
        """Answers are one of these texts."""
        if choices is None:
            return None
        tokenizer = self.tokenizer.for_target
        encoded = tokenizer.encode_batch(choices)
        for choice, ids in zip(choices, encoded, strict=True):
            if tokenizer.unk is not None and tokenizer.unk in ids:
                raise DataError(
                    f"the choice {choice!r} cannot be written: {tokenizer.unknown(choice)} is not in the vocabulary. "
                    "Leave it out, or put it in words that the model knows."
                )
        return OneOf(encoded, self.tokenizer.eos)

    def limit(
        self,
        row: Sequence[int],
        prefix: Sequence[int],
        wish: Wish,
        decode: DecodeConfig,
        allowed: Allowed | None = None,
    ) -> int:
        """How many tokens may be written for this wish, </s> counted: a limit of each text's own, so that an answer
        does not depend on the batch that it is in. Of choices, the longest is let through."""
        room = self.room(row) - len(prefix)
        if room < 1:
            raise DataError(self.no_room(row, prefix))
        if isinstance(allowed, OneOf):
            needed = allowed.longest - len(prefix)
            if needed > room:
                raise DataError(
                    f"the longest choice takes {needed} tokens more, and there is room for {room}. Shorten it."
                )
            return max(needed, 1)
        return min(wish.max_length or decode.max_length or self.usual_length(row), room)

    def check_tokens(self, ids: Sequence[int]) -> None:
        if wrong := [id for id in ids if id >= self.config.model.vocab_size]:
            raise ConfigError(
                f"decode.suppress names the token {wrong[0]}, and this model has those from 0 to "
                f"{self.config.model.vocab_size - 1}. Take it out."
            )

    def prefixes(self, wishes: Sequence[Wish]) -> list[list[int]]:
        """What each answer is made to begin with."""
        if not any(wish.prefix for wish in wishes):
            return [[] for _ in wishes]
        return self.tokenizer.for_target.encode_batch([wish.prefix for wish in wishes])

    # what a translator and a text generator do in their own way

    def rows(self, wishes: Sequence[Wish]) -> list[list[int]]:
        """What the model is given for each wish; nothing for a wish that needs no model."""
        raise NotImplementedError

    def searched(self, rows: Rows, search: Search) -> list[list[Hypothesis]]:
        raise NotImplementedError

    def room(self, row: Sequence[int]) -> int:
        """How many tokens the model has positions for, prefix and </s> counted."""
        raise NotImplementedError

    def usual_length(self, row: Sequence[int]) -> int:
        """How many tokens may be written if nobody says how many."""
        raise NotImplementedError

    def no_room(self, row: Sequence[int], prefix: Sequence[int]) -> str:
        raise NotImplementedError

    def text_of(self, wish: Wish, hypothesis: Hypothesis) -> str:
        """The answer's text, its prefix included."""
        raise NotImplementedError

    def pieces(self, wish: Wish) -> Pieces:
        """Shown the tokens of an answer one by one, gives `text_of` it, piece by piece."""
        raise NotImplementedError


def asked_by_place(allowed: Allowed | None, indices: Sequence[int]) -> Allowed | None:
    """An engine knows rows of a batch; who is asked knows the places of a call."""
    if allowed is None or isinstance(allowed, OneOf):
        return allowed
    return lambda row, tokens: allowed(indices[row], tokens)


def heard_by(wishes: Sequence[Wish]) -> Heard | None:
    if all(wish.heard is None for wish in wishes):
        return None

    def heard(row: int, token: int, log_p: float) -> bool:
        listener = wishes[row].heard
        return listener is None or listener(token, log_p)

    return heard


def wanted_by(wishes: Sequence[Wish]) -> Wanted | None:
    if all(wish.wanted is None for wish in wishes):
        return None

    def wanted(row: int) -> bool:
        ask = wishes[row].wanted
        return ask is None or ask()

    return wanted


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

    def room(self, row: Sequence[int]) -> int:
        return self.config.longest_text

    def usual_length(self, row: Sequence[int]) -> int:
        return len(row) - 1 + EXTRA_LENGTH  # </s> is no part of a source's length

    def no_room(self, row: Sequence[int], prefix: Sequence[int]) -> str:
        return (
            f"the prefix has {len(prefix)} tokens, and this model has positions for {self.config.longest_text}: there "
            "is no room to go on. Shorten it."
        )


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


def by_length(rows: Rows, batch_size: int, spread: int | None = None) -> Iterator[list[int]]:
    """Which rows go together: of about the same length, at most `spread` apart if given; empty ones not at all."""
    order = sorted((i for i in range(len(rows)) if rows[i]), key=lambda i: len(rows[i]))
    batch: list[int] = []
    for i in order:
        is_far = batch and spread is not None and len(rows[i]) - len(rows[batch[0]]) > spread
        if len(batch) == batch_size or is_far:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
