"""What is done with the lines of a file, task by task. A job is data: it is sent to workers, who load the run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from cutaway.bulk.crew import Work
from cutaway.bulk.form import Form, json_of_refused
from cutaway.bulk.machine import cores, free_memory
from cutaway.bulk.part import Array, Description, Layout, Plain
from cutaway.bulk.unknown import Unknown
from cutaway.bulk.windows import Refused
from cutaway.bulk.work import BATCH_TOKENS, Report, Tell, carry_out
from cutaway.config import Config, DecodeConfig
from cutaway.data.tokenizer import Tokenizer
from cutaway.decode.request import Wish
from cutaway.errors import ConfigError, did_you_mean
from cutaway.pipeline import (
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
from cutaway.runs import RunFolder, identity_of

PROCESS = 500_000_000  # bytes that a worker takes before it has a model


class Sizer:
    """How many tokens texts have in a batch, and what of them is not in the vocabulary."""

    def __init__(self, tokenizer: Tokenizer, more: int):
        self.tokenizer, self.more, self.unknown = tokenizer, more, Unknown(tokenizer)

    def __call__(self, texts: Sequence[str]) -> list[int]:
        rows = self.tokenizer.encode_batch(texts)
        for text, ids in zip(texts, rows, strict=True):
            self.unknown.note(text, ids)
        return [len(ids) + self.more for ids in rows]


@dataclass(frozen=True)
class RunJob:
    """What all have in common: a run, and what it is run by."""

    run: str
    engine: str = "auto"
    device: str = "auto"
    dtype: str = "float32"

    kind: ClassVar[type[Pipeline]] = Pipeline
    can_skip: ClassVar[bool] = True
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

    def sizer(self) -> Callable[[Sequence[str]], list[int]]:
        return Sizer(load_tokenizer(self.folder, self.config), self.more_tokens())

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
        allowed = writer.one_of(self.choices or None)
        found = writer.written(wishes, decode, self.form.n_best, allowed, self.form.align)
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
    worth = 5e12

    def __post_init__(self) -> None:
        if self.top < 1:
            raise ConfigError(f"top = {self.top} leaves no label to print. Give at least 1.")

    def lines(self, classifier: Classifier, texts: Sequence[Any], numbers: Sequence[int]) -> list[str]:
        rows = classifier.probabilities(texts, max(1, len(texts)))
        best = [sorted(zip(row, classifier.labels, strict=True), reverse=True)[: self.top] for row in rows]
        if self.json:
            return [json_of_labels(number, row) for number, row in zip(numbers, best, strict=True)]
        return ["\t".join(f"{label}\t{probability:.4f}" for probability, label in row) for row in best]

    def instead_of(self, refused: Refused) -> bytes:
        return json_of_refused(refused).encode() if self.json else b"\n"


def json_of_labels(number: int, best: Sequence[tuple[float, str]]) -> str:
    labels = [{"label": label, "probability": probability} for probability, label in best]
    return json.dumps({"line": number + 1, **labels[0], "labels": labels}, ensure_ascii=False)


@dataclass(frozen=True)
class Tagging(RunJob):
    """A line for each word: word, tab, tag; and a blank line. Or JSON."""

    json: bool = False

    kind = Tagger
    worth = 5e12

    def lines(self, tagger: Tagger, texts: Sequence[str], numbers: Sequence[int]) -> list[str]:
        words = [tagger.words(text) for text in texts]
        found = zip(numbers, words, tagger.tag(words, max(1, len(words))), strict=True)
        if self.json:
            rows = ({"line": number + 1, "words": words, "tags": tags} for number, words, tags in found)
            return [json.dumps(row, ensure_ascii=False) for row in rows]
        return [table(words, tags) for _, words, tags in found]

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

    kind = Embedder
    can_skip = False
    worth = 5e12

    @property
    def layout(self) -> Layout:
        return Array() if self.as_array else Plain()

    @property
    def line_bytes(self) -> int:
        return self.config.model.d_model * (4 if self.as_array else 22)  # a number, and what stands around it

    def work(self, embedder: Embedder, texts: Sequence[str], numbers: Sequence[int]) -> list[bytes]:
        import numpy as np

        vectors = embedder.embed(texts, self.pooling, self.normalize, self.cut, max(1, len(texts)))
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
    written; top of labels; pooling, normalize, cut of vectors (to a .npy file: as an array). The rest is that of
    `carry_out`.
    """
    if Path(out).suffix == ".npy" and "as_array" not in settings:
        settings["as_array"] = True
    job = job_for(run, task, **settings)
    return carry_out(job, source, out, workers, batch_tokens, fresh, skip_errors, tell)
