"""A served run: its abilities, the length check for texts, and how a batch of jobs is run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cutaway.config import Config
from cutaway.data.tasks import encode_words
from cutaway.errors import ConfigError
from cutaway.inference.engines import ENGINES
from cutaway.inference.pipelines import KINDS, Classifier, Embedder, GenerationPipeline, Pipeline, Tagger
from cutaway.runs import RunFolder
from cutaway.search.request import Request
from cutaway.serve.errors import ApiError
from cutaway.serve.generation import generate
from cutaway.serve.limits import Limits
from cutaway.serve.queue import TextJob

# task -> abilities; embed and trace need engine torch
ABILITIES = {
    "translation": ("translate", "embed", "trace"),
    "language_model": ("generate", "embed", "trace"),
    "classification": ("classify", "embed", "trace"),
    "tagging": ("tag", "embed", "trace"),
    "masked_language_model": ("embed", "trace"),
    "embedding": ("embed", "trace"),
}


@dataclass(frozen=True)
class ServedRun:
    """A run folder and the options to load its model."""

    name: str
    folder: Path
    config: Config
    device: str = "auto"
    engine: str = "auto"
    dtype: str = "float32"

    @property
    def task(self) -> str:
        return self.config.model.task

    @property
    def kind(self) -> type[Pipeline]:
        return next(kind for kind in KINDS if self.task in kind.tasks)

    def load(self) -> LoadedModel:
        return LoadedModel(self.name, self.kind.load(self.folder, self.device, engine=self.engine, dtype=self.dtype))


def read_runs(folders: Sequence[Path], **options: str) -> list[ServedRun]:
    """Read the configs of the runs, each named after its folder. A run that cannot be served raises."""
    found: dict[str, ServedRun] = {}
    for path in folders:
        folder = RunFolder(path).require()
        name, config = Path(path).resolve().name, folder.read_config()
        if config.model.task not in ABILITIES:
            raise ConfigError(
                f"the run {str(path)!r} classifies images; the server takes only texts. Use: cutaway classify {path}"
            )
        if name in found:
            raise ConfigError(
                f"two runs have the name {name!r}: {found[name].folder} and {path}. Requests choose a run by its name, "
                "so rename one folder, or serve only one of them."
            )
        found[name] = ServedRun(name, Path(path), config, **options)
    return choose_engines(list(found.values()))


def choose_engines(runs: Sequence[ServedRun]) -> list[ServedRun]:
    """Use engine torch for the runs that the chosen engine cannot serve, if it can serve others."""
    able = [run.engine == "auto" or run.engine in run.kind.engines for run in runs]
    if not any(able):
        return list(runs)  # loading raises the error
    return [run if is_able else replace(run, engine="torch") for run, is_able in zip(runs, able, strict=True)]


class LoadedModel:
    """A loaded run. Only the worker's thread may call `run` and `warm_up`: they use the model."""

    def __init__(self, name: str, pipeline: Pipeline):
        self.name, self.pipeline, self.config = name, pipeline, pipeline.config
        has_vectors = hasattr(pipeline.engine, "vectors")
        self.abilities = tuple(
            one for one in ABILITIES[self.config.model.task] if has_vectors or one not in ("embed", "trace")
        )
        self.embedder = Embedder(pipeline.engine, pipeline.tokenizer, self.config, pipeline.labels)

    @property
    def engine(self) -> str:
        """The name of the engine that runs the model."""
        return next((n for n, (_, kind) in ENGINES.items() if kind == type(self.pipeline.engine).__name__), "other")

    @property
    def tokenizer(self) -> Any:
        return self.pipeline.tokenizer

    def check_length(self, text: str, ability: str, limits: Limits, cut: bool = False) -> int:
        """Return how many tokens the model reads of this text. A text that is too long raises.

        `cut`: the request allows cutting long texts. For classifiers and taggers the run's config decides.
        """
        if len(text) > limits.characters:
            raise ApiError(
                422,
                f"the text has {len(text):,} characters; the limit is {limits.characters:,}. Shorten it.",
                "text",
            )
        tokens, max_tokens = self.count_tokens(text, ability), self.max_tokens(ability)
        if tokens <= max_tokens:
            return tokens
        if ability == "tag" and self.config.long_texts == "cut":
            return tokens  # tagged in overlapping parts, so in fact a few more
        if cut or (ability == "classify" and self.config.long_texts == "cut"):
            return max_tokens
        raise ApiError(
            422,
            f"the text has {tokens:,} tokens; the limit of the model {self.name!r} is {max_tokens:,}. Shorten it.",
            "text",
        )

    def count_tokens(self, text: str, ability: str) -> int:
        """Count the tokens of a text, special tokens included. (Batch encoding would start threads.)"""
        if isinstance(self.pipeline, Tagger) and ability == "tag":
            return len(encode_words(self.tokenizer, [self.pipeline.words(text)])[0].ids)
        ids = self.tokenizer.encode(text)
        if self.config.model.family == "decoder":
            return len(self.tokenizer.add_bos(ids))
        return len(ids) + (1 if self.config.model.family == "encoder_decoder" else 2)

    def default_length(self, tokens: int) -> int:
        """The default output length for an input of this many tokens."""
        assert isinstance(self.pipeline, GenerationPipeline)
        return self.pipeline.default_length(range(tokens))

    def max_tokens(self, ability: str) -> int:
        return self.embedder.max_tokens if ability == "embed" else self.config.longest_text

    def run(self, jobs: Sequence[TextJob]) -> Sequence[Any]:
        """Return a result for each job. All jobs have the same kind and settings."""
        return HANDLERS[jobs[0].kind](self, jobs)

    def warm_up(self) -> None:
        """Run the model once, because its first call is slower than the others."""
        if isinstance(self.pipeline, GenerationPipeline):
            self.pipeline.search([Request("a")], replace(self.config.decode, strategy="greedy", max_length=4))
        else:
            self.embedder.embed(["a"])


@dataclass(frozen=True)
class TraceInput:
    """The input of /trace."""

    text: str
    target: str | None = None


def generate_texts(model: LoadedModel, jobs: Sequence[TextJob]) -> Sequence[Any]:
    assert isinstance(model.pipeline, GenerationPipeline)
    return generate(model.pipeline, jobs)


def classify(model: LoadedModel, jobs: Sequence[TextJob]) -> Sequence[Any]:
    assert isinstance(model.pipeline, Classifier)
    inputs, is_cut = model.pipeline.read([job.content for job in jobs])
    rows = model.pipeline.score(inputs, len(jobs))
    ranked = [sorted(zip(model.pipeline.labels, row, strict=True), key=lambda one: -one[1]) for row in rows]
    return list(zip(ranked, is_cut, strict=True))


def tag(model: LoadedModel, jobs: Sequence[TextJob]) -> Sequence[Any]:
    assert isinstance(model.pipeline, Tagger)
    words = [model.pipeline.words(job.content) for job in jobs]
    parts = model.pipeline.parts(words)
    counts = Counter(part.sentence for part in parts)
    tags = model.pipeline.label(parts, len(words), len(jobs))
    return [(*one, counts[i]) for i, one in enumerate(zip(words, tags, strict=True))]


def embed(model: LoadedModel, jobs: Sequence[TextJob]) -> Sequence[Any]:
    pooling, normalize, cut = jobs[0].settings
    # the texts already start with their prompt
    return model.embedder.embed([job.content for job in jobs], pooling, normalize, cut, len(jobs), prompt="")


def trace_texts(model: LoadedModel, jobs: Sequence[TextJob]) -> Sequence[Any]:
    from cutaway.explore.trace import trace

    return [trace(model.pipeline, job.content.text, job.content.target).to_json() for job in jobs]


HANDLERS: dict[str, Callable[[LoadedModel, Sequence[TextJob]], Sequence[Any]]] = {
    "generate": generate_texts,
    "classify": classify,
    "tag": tag,
    "embed": embed,
    "trace": trace_texts,
}
