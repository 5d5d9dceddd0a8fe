"""One job class per task. A job is data: it is sent to the workers, and they load the run."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from cutaway.bulk.formats import OutputFormat, failure_to_json
from cutaway.bulk.journal import Description, FileHeader, NoHeader, NpyHeader
from cutaway.bulk.runner import BATCH_TOKENS, BulkReport, OnProgress, run_job
from cutaway.bulk.unknown_words import UnknownWords
from cutaway.bulk.windows import FailedLine
from cutaway.bulk.workers import LineProcessor
from cutaway.config import Config, DecodeConfig
from cutaway.data.builtin import WordSplitter
from cutaway.data.tasks import encode_words, word_splitter
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError, did_you_mean
from cutaway.inference.pipelines import (
    GENERATED_LENGTH,
    Classifier,
    Embedder,
    GenerationPipeline,
    Pipeline,
    Tagger,
    TextGenerator,
    Translator,
    load_tokenizer,
)
from cutaway.runs import RunFolder
from cutaway.runs.weights import weights_checksum
from cutaway.search.request import Request
from cutaway.system.machine import cores, free_memory

PROCESS_BYTES = 500_000_000  # memory of a worker without a model


class TokenCounter:
    """Count the tokens of texts. Also collects unknown words and counts texts that are too long."""

    def __init__(self, tokenizer: Tokenizer, extra: int, max_tokens: int, words: WordSplitter | None = None):
        """`extra`: tokens of a text in a batch in addition to its own; `max_tokens`: the model's context; `words`:
        splits a text into words, if they are encoded one by one."""
        self.tokenizer, self.extra, self.max_tokens, self.words = tokenizer, extra, max_tokens, words
        self.unknown, self.long = UnknownWords(tokenizer), 0

    def __call__(self, texts: Sequence[str]) -> list[int]:
        rows = self.encode(texts)
        for text, ids in zip(texts, rows, strict=True):
            self.unknown.add(text, ids)
        sizes = [len(ids) + self.extra for ids in rows]
        self.long += sum(size > self.max_tokens for size in sizes)
        return sizes

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        if not self.words:
            return self.tokenizer.encode_batch(texts)
        return [row.ids[1:-1] for row in encode_words(self.tokenizer, [self.words(text) for text in texts])]


@dataclass(frozen=True)
class RunJob:
    """Base of all jobs: a run, and the engine, device and dtype that run it."""

    run: str
    engine: str = "auto"
    device: str = "auto"
    dtype: str = "float32"

    journal_task: ClassVar[str]  # stored in journals
    kind: ClassVar[type[Pipeline]] = Pipeline
    can_skip: ClassVar[bool] = True
    long_text_note: ClassVar[str] = ""  # how a too long text was read, for tasks with data.too_long = "cut"
    parallel_threshold: ClassVar[float] = 5e11  # characters x bytes of weights from which on workers pay off

    @property
    def header(self) -> FileHeader:
        return NoHeader()

    @property
    def result_bytes(self) -> int:
        return 1_000

    def placeholder(self, failed: FailedLine) -> bytes:
        return b"\n"

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.run).require()

    @property
    def config(self) -> Config:
        return self.folder.read_config()

    def load(self) -> LineProcessor:
        return partial(self.work, self.pipeline())

    def pipeline(self) -> Any:
        return self.kind.load(self.run, self.device, engine=self.engine, dtype=self.dtype)

    def work(self, pipeline: Any, texts: Sequence[Any], numbers: Sequence[int]) -> list[bytes]:
        return [f"{line}\n".encode() for line in self.lines(pipeline, texts, numbers)]

    def lines(self, pipeline: Any, texts: Sequence[Any], numbers: Sequence[int]) -> list[str]:
        raise NotImplementedError

    @property
    def skips_by_default(self) -> bool:
        """Whether failed lines are skipped without skip_errors."""
        return bool(self.long_text_note) and self.config.long_texts == "skip"

    @property
    def words(self) -> WordSplitter | None:
        return None

    def token_counter(self) -> TokenCounter:
        tokenizer, config = load_tokenizer(self.folder, self.config), self.config
        return TokenCounter(tokenizer, self.extra_tokens(), config.longest_text, self.words)

    def describe_long_texts(self, count: int) -> str:
        """A note about `count` texts that were too long; empty if the task does not cut texts."""
        if not count or not self.long_text_note or self.config.long_texts != "cut":
            return ""
        many = "1 text is" if count == 1 else f"{count:,} texts are"
        limit = f"{many} longer than the {self.config.longest_text:,} tokens that this model reads at once"
        return f"{limit}: {self.long_text_note}"

    def extra_tokens(self) -> int:
        """Tokens of a text in a batch in addition to its own."""
        return 2

    def description(self) -> Description:
        """All settings except the run folder and the device, and a checksum of the weights."""
        settings = asdict(self)
        settings |= settings.pop("decode", {}) | settings.pop("output_format", {})
        settings["engine"] = self.kind.engine_for(self.engine)
        del settings["run"], settings["device"]
        settings.pop("batch_size", None)
        weights = {"weights": weights_checksum(self.folder.weights)}
        return json.loads(json.dumps({"task": self.journal_task, **weights, **settings}))

    def default_workers(self, lines: int, characters: int) -> int:
        weights = self.folder.weights.stat().st_size
        if self.is_on_gpu() or characters * weights < self.parallel_threshold:
            return 0
        memory = free_memory()
        fitting = cores() if memory is None else memory // (PROCESS_BYTES + 4 * weights)
        return max(1, min(cores(), fitting, lines // 8))

    def is_on_gpu(self) -> bool:
        """A guess that does not load torch."""
        if self.engine == "numpy" or self.device == "cpu":
            return False
        return self.device != "auto" or Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi") is not None


@dataclass(frozen=True)
class GenerationJob(RunJob):
    """Translate or continue texts.

    prefix         every output starts with this
    choices        the output is one of these
    stops          the output ends before the first of these
    output_format  the printed columns, or JSON
    lines_in       each text is a line, so its output is one line too
    """

    decode: DecodeConfig = field(default_factory=DecodeConfig)
    prefix: str = ""
    choices: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    output_format: OutputFormat = field(default_factory=OutputFormat)
    lines_in: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "decode", self.decode.for_task(self.kind.tasks[0]))
        n_best, decode = self.output_format.n_best, self.decode
        if n_best > 1 and decode.strategy != "beam":
            raise ConfigError(f"n_best = {n_best}: strategy {decode.strategy!r} returns one text. Use beam search.")
        if n_best > 1 and n_best > decode.beam_size:
            raise ConfigError(f"n_best = {n_best} is more than beam_size = {decode.beam_size}. Raise beam_size.")

    @property
    def result_bytes(self) -> int:
        return (self.decode.max_length or GENERATED_LENGTH) * self.output_format.token_bytes

    def placeholder(self, failed: FailedLine) -> bytes:
        return self.output_format.format_failure(failed).encode()

    def work(self, pipeline: GenerationPipeline, texts: Sequence[str], numbers: Sequence[int]) -> list[bytes]:
        requests = [self.request(pipeline, text, number) for text, number in zip(texts, numbers, strict=True)]
        decode = replace(self.decode, batch_size=max(1, len(texts)))
        found = pipeline.search(
            requests, decode, self.output_format.n_best, None, self.output_format.align, self.choices or None
        )
        outputs = (
            self.output_format.format_result(pipeline, request, hypotheses, self.stops, self.lines_in)
            for request, hypotheses in zip(requests, found, strict=True)
        )
        return [text.encode() for text in outputs]

    def request(self, pipeline: GenerationPipeline, text: str, number: int) -> Request:
        request = Request(text, self.prefix, number)
        if not self.stops or self.decode.strategy == "beam":  # beam search has no text before its end
            return request
        return replace(request, on_token=pipeline.stop_callback(request, self.stops))


@dataclass(frozen=True)
class TranslationJob(GenerationJob):
    journal_task = "translating"
    kind = Translator


@dataclass(frozen=True)
class TextGenerationJob(GenerationJob):
    journal_task = "generating"
    kind = TextGenerator

    def extra_tokens(self) -> int:
        """The generated tokens, which are in memory together with the prompt."""
        return self.decode.max_length or GENERATED_LENGTH


@dataclass(frozen=True)
class ClassificationJob(RunJob):
    """Print `top` times label, tab, probability; or JSON."""

    top: int = 1
    json: bool = False

    journal_task = "classifying"
    kind = Classifier
    long_text_note = "only the beginning was classified."
    parallel_threshold = 5e12

    def __post_init__(self) -> None:
        if self.top < 1:
            raise ConfigError(f"top = {self.top} leaves no label to print. Give at least 1.")

    def lines(self, classifier: Classifier, texts: Sequence[Any], numbers: Sequence[int]) -> list[str]:
        inputs, is_cut = classifier.read(texts)
        rows = classifier.score(inputs, max(1, len(texts)))
        best = [sorted(zip(row, classifier.labels, strict=True), reverse=True)[: self.top] for row in rows]
        if self.json:
            return [labels_to_json(*row) for row in zip(numbers, best, is_cut, strict=True)]
        return ["\t".join(f"{label}\t{probability:.4f}" for probability, label in row) for row in best]

    def placeholder(self, failed: FailedLine) -> bytes:
        return failure_to_json(failed).encode() if self.json else b"\n"


def labels_to_json(number: int, best: Sequence[tuple[float, str]], is_cut: bool) -> str:
    labels = [{"label": label, "probability": probability} for probability, label in best]
    row = {"line": number + 1, **labels[0], "labels": labels}
    return json.dumps({**row, "cut": True} if is_cut else row, ensure_ascii=False)


@dataclass(frozen=True)
class TaggingJob(RunJob):
    """Print word, tab, tag for each word, then a blank line; or JSON."""

    json: bool = False

    journal_task = "tagging"
    kind = Tagger
    long_text_note = "tagged in overlapping chunks."
    parallel_threshold = 5e12

    @property
    def words(self) -> WordSplitter | None:
        return word_splitter(self.config.data)

    def lines(self, tagger: Tagger, texts: Sequence[str], numbers: Sequence[int]) -> list[str]:
        words = [tagger.words(text) for text in texts]
        parts = tagger.parts(words)
        tags = tagger.label(parts, len(words), max(1, len(words)))
        if not self.json:
            return list(map(format_tags, words, tags))
        counts = Counter(part.sentence for part in parts)
        rows = [{"line": n + 1, "words": w, "tags": t} for n, w, t in zip(numbers, words, tags, strict=True)]
        rows = [{**row, "parts": counts[i]} if counts[i] > 1 else row for i, row in enumerate(rows)]
        return [json.dumps(row, ensure_ascii=False) for row in rows]

    def placeholder(self, failed: FailedLine) -> bytes:
        return failure_to_json(failed).encode() if self.json else b"\n"


def format_tags(words: Sequence[str], tags: Sequence[str]) -> str:
    """One line per word. White space, such as a line break, is escaped."""
    return "".join(f"{word.encode('unicode_escape').decode() if word.isspace() else word}\t{tag}\n"
                   for word, tag in zip(words, tags, strict=True))  # fmt: skip


@dataclass(frozen=True)
class EmbeddingJob(RunJob):
    """Print a vector for each text: a row of an array, or a line of JSON."""

    pooling: str = "auto"
    normalize: bool = True
    cut: bool = False
    as_array: bool = False
    prompt: str | None = None

    journal_task = "embedding"
    kind = Embedder
    can_skip = False
    parallel_threshold = 5e12

    def __post_init__(self) -> None:
        if self.prompt:
            self.config.data.prompt_text(self.prompt)  # raises if there is no such prompt

    @property
    def header(self) -> FileHeader:
        return NpyHeader() if self.as_array else NoHeader()

    @property
    def result_bytes(self) -> int:
        return self.config.model.d_model * (4 if self.as_array else 22)  # bytes of a number, in JSON with its separator

    def work(self, embedder: Embedder, texts: Sequence[str], numbers: Sequence[int]) -> list[bytes]:
        import numpy as np

        vectors = embedder.embed(texts, self.pooling, self.normalize, self.cut, max(1, len(texts)), self.prompt)
        if self.as_array:
            return [np.array(vector, "<f4").tobytes() for vector in vectors]
        return [json.dumps(vector).encode() + b"\n" for vector in vectors]


# task -> job
JOBS: dict[str, type[RunJob]] = {
    "translation": TranslationJob,
    "language_model": TextGenerationJob,
    "classification": ClassificationJob,
    "tagging": TaggingJob,
    "embedding": EmbeddingJob,
    "masked_language_model": EmbeddingJob,
}


def make_job(run: str | Path, task: str | None = None, **settings: Any) -> RunJob:
    """The job for the task that a run was trained for, or for another `task` in JOBS, such as "embedding"."""
    config = RunFolder(run).require().read_config()
    task = task or config.model.task
    if task not in JOBS:
        raise ConfigError(f"task {task!r} cannot process a text file. {did_you_mean(task, JOBS)}")
    known = [setting.name for setting in fields(JOBS[task])]
    for name in settings.keys() - known:
        raise ConfigError(f"unknown setting {name!r} of task {task!r}. {did_you_mean(name, known)}")
    if "decode" in known:
        settings["decode"] = settings.get("decode") or config.decode
    return JOBS[task](str(run), **settings)


def process_file(
    run: str | Path,
    source: str | Path,
    out: str | Path,
    task: str | None = None,
    workers: int | None = None,
    batch_tokens: int = BATCH_TOKENS,
    fresh: bool = False,
    skip_errors: bool = False,
    on_progress: OnProgress | None = None,
    **settings: Any,
) -> BulkReport:
    """Translate, continue, classify, tag or embed every line of a file, as the run was trained to.

        process_file("runs/demo", "in.txt", "out.txt", workers=8, engine="ct2", decode=DecodeConfig(beam_size=2))

    `settings` of the job: engine, device, dtype for all tasks; decode, prefix, choices, stops, output_format for
    translation and generation; top for labels; pooling, normalize, cut, prompt for vectors (an array if `out` is a
    .npy file). `run_job` describes the other arguments.
    """
    if Path(out).suffix == ".npy" and "as_array" not in settings:
        settings["as_array"] = True
    job = make_job(run, task, **settings)
    return run_job(job, source, out, workers, batch_tokens, fresh, skip_errors, on_progress)
