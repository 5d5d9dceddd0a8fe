"""What is done with the lines of a file, task by task. A job is data: it is sent to workers, who load the run."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from cutaway.bulk.formats import Form, json_of_refused
from cutaway.bulk.journal import Array, Description, Layout, Plain
from cutaway.bulk.unknown import Unknown
from cutaway.bulk.windows import Refused
from cutaway.bulk.work import BATCH_TOKENS, Report, Tell, carry_out
from cutaway.bulk.workers import Work
from cutaway.config import Config, DecodeConfig
from cutaway.data.builtin import Words
from cutaway.data.tasks import encode_words, words_of
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError, did_you_mean
from cutaway.inference.pipelines import (
    GENERATED_LENGTH,
    Classifier,
    Embedder,
    Pipeline,
    Tagger,
    TextGenerator,
    Translator,
    Writer,
    load_tokenizer,
)
from cutaway.runs import RunFolder
from cutaway.runs.weights import identity_of
from cutaway.search.request import Wish
from cutaway.system.machine import cores, free_memory

PROCESS = 500_000_000  # bytes that a worker takes before it has a model


class Sizer:
    """How many tokens texts have in a batch, what of them is not in the vocabulary, and how many are too long."""

    def __init__(self, tokenizer: Tokenizer, more: int, room: int, words: Words | None = None):
        """`more`: tokens that a text has in a batch beside its own; `room`: that the model reads at once; `words`: how
        a text is cut into words, if they are encoded one by one."""
        self.tokenizer, self.more, self.room, self.words = tokenizer, more, room, words
        self.unknown, self.long = Unknown(tokenizer), 0

    def __call__(self, texts: Sequence[str]) -> list[int]:
        rows = self.rows(texts)
        for text, ids in zip(texts, rows, strict=True):
            self.unknown.note(text, ids)
        sizes = [len(ids) + self.more for ids in rows]
        self.long += sum(size > self.room for size in sizes)
        return sizes

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        if not self.words:
            return self.tokenizer.encode_batch(texts)
        return [row.ids[1:-1] for row in encode_words(self.tokenizer, [self.words(text) for text in texts])]


@dataclass(frozen=True)
class RunJob:
    """What all have in common: a run, and what it is run by."""

    run: str
    engine: str = "auto"
    device: str = "auto"
    dtype: str = "float32"

    kind: ClassVar[type[Pipeline]] = Pipeline
    can_skip: ClassVar[bool] = True
    how_long_ones_are_read: ClassVar[str] = ""  # as data.too_long = "cut" says it, if the task has such a thing
    worth: ClassVar[float] = 5e11  # characters x bytes of weights: from here on, workers are worth their start

    @property
    def layout(self) -> Layout:
        return Plain()

    @property
    def line_bytes(self) -> int:
        return 1_000

    def instead_of(self, refused: Refused) -> bytes:
        return b"\n"

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.run).require()

    @property
    def config(self) -> Config:
        return self.folder.read_config()

    def load(self) -> Work:
        return partial(self.work, self.pipeline())

    def pipeline(self) -> Any:
        return self.kind.load(self.run, self.device, engine=self.engine, dtype=self.dtype)

    def work(self, pipeline: Any, texts: Sequence[Any], numbers: Sequence[int]) -> list[bytes]:
        return [f"{line}\n".encode() for line in self.lines(pipeline, texts, numbers)]

    def lines(self, pipeline: Any, texts: Sequence[Any], numbers: Sequence[int]) -> list[str]:
        raise NotImplementedError

    @property
    def skips(self) -> bool:
        """Whether lines that cannot be worked are skipped, even if nobody asks for it."""
        return bool(self.how_long_ones_are_read) and self.config.long_texts == "skip"

    @property
    def words(self) -> Words | None:
        return None

    def sizer(self) -> Sizer:
        tokenizer, config = load_tokenizer(self.folder, self.config), self.config
        return Sizer(tokenizer, self.more_tokens(), config.longest_text, self.words)

    def told_of_long(self, count: int) -> str:
        """What is said of so many texts that were too long; nothing, if the model does not cut texts."""
        if not count or not self.how_long_ones_are_read or self.config.long_texts != "cut":
            return ""
        many = "1 text is" if count == 1 else f"{count:,} texts are"
        room = f"{many} longer than the {self.config.longest_text:,} tokens that this model reads at once"
        return f"{room}: {self.how_long_ones_are_read}"

    def more_tokens(self) -> int:
        """That a text has in a batch, beside its own."""
        return 2

    def description(self) -> Description:
        """All settings but where the run is and where it is worked; and which weights it has."""
        told = asdict(self)
        told |= told.pop("decode", {}) | told.pop("form", {})
        told["engine"] = self.kind.engine_for(self.engine)
        del told["run"], told["device"]
        told.pop("batch_size", None)
        weights = {"weights": identity_of(self.folder.weights)}
        return json.loads(json.dumps({"task": type(self).__name__.lower(), **weights, **told}))

    def default_workers(self, lines: int, characters: int) -> int:
        weights = self.folder.weights.stat().st_size
        if self.is_on_gpu() or characters * weights < self.worth:
            return 0
        room = free_memory()
        fitting = cores() if room is None else room // (PROCESS + 4 * weights)
        return max(1, min(cores(), fitting, lines // 8))

    def is_on_gpu(self) -> bool:
        """As far as can be said without loading a library for it."""
        if self.engine == "numpy" or self.device == "cpu":
            return False
        return self.device != "auto" or Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi") is not None


@dataclass(frozen=True)
class Writing(RunJob):
    """Translate, or go on with a text.

    prefix    what every answer begins with
    choices   the answer is one of these
    stops     a text ends before the first of these
    form      how an answer is printed
    lines_in  each text is a line, and so is what is made of it
    """

    decode: DecodeConfig = field(default_factory=DecodeConfig)
    prefix: str = ""
    choices: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    form: Form = field(default_factory=Form)
    lines_in: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "decode", self.decode.for_task(self.kind.tasks[0]))
        n_best, decode = self.form.n_best, self.decode
        if n_best > 1 and decode.strategy != "beam":
            raise ConfigError(f"n_best = {n_best}: strategy {decode.strategy!r} finds one text. Use beam search.")
        if n_best > 1 and n_best > decode.beam_size:
            raise ConfigError(f"n_best = {n_best} is more than beam_size = {decode.beam_size} finds. Raise beam_size.")

    @property
    def line_bytes(self) -> int:
        return (self.decode.max_length or GENERATED_LENGTH) * self.form.token_bytes

    def instead_of(self, refused: Refused) -> bytes:
        return self.form.refused(refused).encode()

    def work(self, writer: Writer, texts: Sequence[str], numbers: Sequence[int]) -> list[bytes]:
        wishes = [self.wish(writer, text, number) for text, number in zip(texts, numbers, strict=True)]
        decode = replace(self.decode, batch_size=max(1, len(texts)))
        found = writer.written(wishes, decode, self.form.n_best, None, self.form.align, self.choices or None)
        printed = (
            self.form.printed(writer, wish, hypotheses, self.stops, self.lines_in)
            for wish, hypotheses in zip(wishes, found, strict=True)
        )
        return [text.encode() for text in printed]

    def wish(self, writer: Writer, text: str, number: int) -> Wish:
        wish = Wish(text, self.prefix, number)
        if not self.stops or self.decode.strategy == "beam":  # which knows its text only in the end
            return wish
        return replace(wish, heard=writer.until(wish, self.stops))


@dataclass(frozen=True)
class Translating(Writing):
    kind = Translator


@dataclass(frozen=True)
class Generating(Writing):
    kind = TextGenerator

    def more_tokens(self) -> int:
        """What is written stands in memory beside what was given."""
        return self.decode.max_length or GENERATED_LENGTH


@dataclass(frozen=True)
class Classifying(RunJob):
    """Label, tab, probability; `top` of them. Or JSON."""

    top: int = 1
    json: bool = False

    kind = Classifier
    how_long_ones_are_read = "of such a text, the beginning alone was classified."
    worth = 5e12

    def __post_init__(self) -> None:
        if self.top < 1:
            raise ConfigError(f"top = {self.top} leaves no label to print. Give at least 1.")

    def lines(self, classifier: Classifier, texts: Sequence[Any], numbers: Sequence[int]) -> list[str]:
        inputs, is_cut = classifier.read(texts)
        rows = classifier.score(inputs, max(1, len(texts)))
        best = [sorted(zip(row, classifier.labels, strict=True), reverse=True)[: self.top] for row in rows]
        if self.json:
            return [json_of_labels(*row) for row in zip(numbers, best, is_cut, strict=True)]
        return ["\t".join(f"{label}\t{probability:.4f}" for probability, label in row) for row in best]

    def instead_of(self, refused: Refused) -> bytes:
        return json_of_refused(refused).encode() if self.json else b"\n"


def json_of_labels(number: int, best: Sequence[tuple[float, str]], is_cut: bool) -> str:
    labels = [{"label": label, "probability": probability} for probability, label in best]
    told = {"line": number + 1, **labels[0], "labels": labels}
    return json.dumps({**told, "cut": True} if is_cut else told, ensure_ascii=False)


@dataclass(frozen=True)
class Tagging(RunJob):
    """A line for each word: word, tab, tag; and a blank line. Or JSON."""

    json: bool = False

    kind = Tagger
    how_long_ones_are_read = "such a text was tagged in parts that overlap."
    worth = 5e12

    @property
    def words(self) -> Words | None:
        return words_of(self.config.data)

    def lines(self, tagger: Tagger, texts: Sequence[str], numbers: Sequence[int]) -> list[str]:
        words = [tagger.words(text) for text in texts]
        parts = tagger.parts(words)
        tags = tagger.label(parts, len(words), max(1, len(words)))
        if not self.json:
            return list(map(table, words, tags))
        counts = Counter(part.sentence for part in parts)
        rows = [{"line": n + 1, "words": w, "tags": t} for n, w, t in zip(numbers, words, tags, strict=True)]
        rows = [{**row, "parts": counts[i]} if counts[i] > 1 else row for i, row in enumerate(rows)]
        return [json.dumps(row, ensure_ascii=False) for row in rows]

    def instead_of(self, refused: Refused) -> bytes:
        return json_of_refused(refused).encode() if self.json else b"\n"


def table(words: Sequence[str], tags: Sequence[str]) -> str:
    """A line each; a word that is a line break is written as such."""
    return "".join(f"{word.encode('unicode_escape').decode() if word.isspace() else word}\t{tag}\n"
                   for word, tag in zip(words, tags, strict=True))  # fmt: skip


@dataclass(frozen=True)
class Embedding(RunJob):
    """A vector for each text: a row of an array, or a line of JSON."""

    pooling: str = "auto"
    normalize: bool = True
    cut: bool = False
    as_array: bool = False
    prompt: str | None = None

    kind = Embedder
    can_skip = False
    worth = 5e12

    def __post_init__(self) -> None:
        if self.prompt:
            self.config.data.prompt_text(self.prompt)  # refused at once, if there is no such

    @property
    def layout(self) -> Layout:
        return Array() if self.as_array else Plain()

    @property
    def line_bytes(self) -> int:
        return self.config.model.d_model * (4 if self.as_array else 22)  # a number, and what stands around it

    def work(self, embedder: Embedder, texts: Sequence[str], numbers: Sequence[int]) -> list[bytes]:
        import numpy as np

        vectors = embedder.embed(texts, self.pooling, self.normalize, self.cut, max(1, len(texts)), self.prompt)
        if self.as_array:
            return [np.array(vector, "<f4").tobytes() for vector in vectors]
        return [json.dumps(vector).encode() + b"\n" for vector in vectors]


# task -> what is done with a line
JOBS: dict[str, type[RunJob]] = {
    "translation": Translating,
    "language_model": Generating,
    "classification": Classifying,
    "tagging": Tagging,
    "embedding": Embedding,
    "masked_language_model": Embedding,
}


def job_for(run: str | Path, task: str | None = None, **settings: Any) -> RunJob:
    """What a run was trained for, or another of JOBS that it can do, such as "embedding"."""
    config = RunFolder(run).require().read_config()
    task = task or config.model.task
    if task not in JOBS:
        raise ConfigError(f"task {task!r} is not for the lines of a file. {did_you_mean(task, JOBS)}")
    known = [setting.name for setting in fields(JOBS[task])]
    for name in settings.keys() - known:
        raise ConfigError(f"unknown setting {name!r} of task {task!r}. {did_you_mean(name, known)}")
    if "decode" in known:
        settings["decode"] = settings.get("decode") or config.decode
    return JOBS[task](str(run), **settings)


def work_file(
    run: str | Path,
    source: str | Path,
    out: str | Path,
    task: str | None = None,
    workers: int | None = None,
    batch_tokens: int = BATCH_TOKENS,
    fresh: bool = False,
    skip_errors: bool = False,
    tell: Tell | None = None,
    **settings: Any,
) -> Report:
    """Translate, continue, classify, tag or embed every line of a file, whatever the run was trained for.

        work_file("runs/demo", "in.txt", "out.txt", workers=8, engine="ct2", decode=DecodeConfig(beam_size=2))

    `settings` are those of the job: engine, device, dtype for all; decode, prefix, choices, stops, form of what is
    written; top of labels; pooling, normalize, cut, prompt of vectors (to a .npy file: as an array). The rest is that
    of `carry_out`.
    """
    if Path(out).suffix == ".npy" and "as_array" not in settings:
        settings["as_array"] = True
    job = job_for(run, task, **settings)
    return carry_out(job, source, out, workers, batch_tokens, fresh, skip_errors, tell)
