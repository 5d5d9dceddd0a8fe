"""A run that is served: what it can be asked, whether a text suits it, and how a batch of texts is worked on."""

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
from cutaway.inference.pipelines import KINDS, Classifier, Embedder, Pipeline, Tagger, Writer
from cutaway.runs import RunFolder
from cutaway.search.request import Wish
from cutaway.serve.limits import Limits
from cutaway.serve.queue import Job
from cutaway.serve.refusals import Refusal
from cutaway.serve.writing import write

# task -> what a model for it can be asked; embed and trace need the torch engine
ABILITIES = {
    "translation": ("translate", "embed", "trace"),
    "language_model": ("generate", "embed", "trace"),
    "classification": ("classify", "embed", "trace"),
    "tagging": ("tag", "embed", "trace"),
    "masked_language_model": ("embed", "trace"),
    "embedding": ("embed", "trace"),
}


@dataclass(frozen=True)
class RunToServe:
    """A run folder that is there, and how its model is to be loaded."""

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

    def load(self) -> Served:
        return Served(self.name, self.kind.load(self.folder, self.device, engine=self.engine, dtype=self.dtype))


def runs_to_serve(folders: Sequence[Path], **how: str) -> list[RunToServe]:
    """The runs, each under the name of its folder; refused, if there is anything that cannot be served."""
    found: dict[str, RunToServe] = {}
    for path in folders:
        folder = RunFolder(path).require()
        name, config = Path(path).resolve().name, folder.read_config()
        if config.model.task not in ABILITIES:
            raise ConfigError(
                f"the run {str(path)!r} reads images, and the server takes texts. Use it with: cutaway classify {path}"
            )
        if name in found:
            raise ConfigError(
                f"two of the runs are called {name!r}, and requests choose a run by its name: {found[name].folder} "
                f"and {path}. Serve one of them, or rename its folder."
            )
        found[name] = RunToServe(name, Path(path), config, **how)
    return with_engines(list(found.values()))


def with_engines(runs: Sequence[RunToServe]) -> list[RunToServe]:
    """An engine that is chosen for some of the runs cannot do the work of the others: PyTorch does that."""
    able = [run.engine == "auto" or run.engine in run.kind.engines for run in runs]
    if not any(able):
        return list(runs)  # refused when they are loaded
    return [run if is_able else replace(run, engine="torch") for run, is_able in zip(runs, able, strict=True)]


class Served:
    """A loaded run. What is below `work` touches the model and happens in the worker's thread alone."""

    def __init__(self, name: str, pipeline: Pipeline):
        self.name, self.pipeline, self.config = name, pipeline, pipeline.config
        has_vectors = hasattr(pipeline.engine, "vectors")
        asked = ABILITIES[self.config.model.task]
        self.abilities = tuple(one for one in asked if has_vectors or one not in ("embed", "trace"))
        self.embedder = Embedder(pipeline.engine, pipeline.tokenizer, self.config, pipeline.labels)

    @property
    def engine(self) -> str:
        """The name of what runs the model."""
        return next((n for n, (_, kind) in ENGINES.items() if kind == type(self.pipeline.engine).__name__), "other")

    @property
    def tokenizer(self) -> Any:
        return self.pipeline.tokenizer

    def tokens_of(self, text: str, ability: str, limits: Limits, cut: bool = False) -> int:
        """How many tokens the model reads of this text; refused, if it is too long. Asked before a text waits.

        `cut`: whoever asks has said that a text may be too long; of classifiers and taggers, the run says it.
        """
        if len(text) > limits.characters:
            raise Refusal(
                422,
                f"the text has {len(text):,} characters, and the server takes {limits.characters:,}. Cut it.",
                "text",
            )
        count, room = self.count(text, ability), self.room(ability)
        if count <= room:
            return count
        if ability == "tag" and self.config.long_texts == "cut":
            return count  # in parts that overlap, so rather more
        if cut or (ability == "classify" and self.config.long_texts == "cut"):
            return room
        raise Refusal(
            422,
            f"the text has {count:,} tokens, and the model {self.name!r} has room for {room:,}. Shorten it.",
            "text",
        )

    def count(self, text: str, ability: str) -> int:
        """Tokens that the model reads, those around a text included. (Not as a batch: that would start threads.)"""
        if isinstance(self.pipeline, Tagger) and ability == "tag":
            return len(encode_words(self.tokenizer, [self.pipeline.words(text)])[0].ids)
        ids = self.tokenizer.encode(text)
        if self.config.model.family == "decoder":
            return len(self.tokenizer.begun(ids))
        return len(ids) + (1 if self.config.model.family == "encoder_decoder" else 2)

    def usual_length(self, tokens: int) -> int:
        """How many tokens are written at most after so many, if nobody says how many."""
        assert isinstance(self.pipeline, Writer)
        return self.pipeline.usual_length(range(tokens))

    def room(self, ability: str) -> int:
        return self.embedder.room if ability == "embed" else self.config.longest_text

    def work(self, jobs: Sequence[Job]) -> Sequence[Any]:
        """A result for each job. They are of one kind and have equal settings."""
        return WORK[jobs[0].kind](self, jobs)

    def warm_up(self) -> None:
        """Ask once: the first answer of a model takes longer than the others."""
        if isinstance(self.pipeline, Writer):
            self.pipeline.written([Wish("a")], replace(self.config.decode, strategy="greedy", max_length=4))
        else:
            self.embedder.embed(["a"])


@dataclass(frozen=True)
class Looking:
    """What /trace is asked."""

    text: str
    target: str | None = None


def write_texts(served: Served, jobs: Sequence[Job]) -> Sequence[Any]:
    assert isinstance(served.pipeline, Writer)
    return write(served.pipeline, jobs)


def classify(served: Served, jobs: Sequence[Job]) -> Sequence[Any]:
    assert isinstance(served.pipeline, Classifier)
    inputs, is_cut = served.pipeline.read([job.content for job in jobs])
    rows = served.pipeline.score(inputs, len(jobs))
    ranked = [sorted(zip(served.pipeline.labels, row, strict=True), key=lambda one: -one[1]) for row in rows]
    return list(zip(ranked, is_cut, strict=True))


def tag(served: Served, jobs: Sequence[Job]) -> Sequence[Any]:
    assert isinstance(served.pipeline, Tagger)
    words = [served.pipeline.words(job.content) for job in jobs]
    parts = served.pipeline.parts(words)
    counts = Counter(part.sentence for part in parts)
    tags = served.pipeline.label(parts, len(words), len(jobs))
    return [(*one, counts[i]) for i, one in enumerate(zip(words, tags, strict=True))]


def embed(served: Served, jobs: Sequence[Job]) -> Sequence[Any]:
    pooling, normalize, cut = jobs[0].settings
    # what is put before a text is there already
    return served.embedder.embed([job.content for job in jobs], pooling, normalize, cut, len(jobs), prompt="")


def look(served: Served, jobs: Sequence[Job]) -> Sequence[Any]:
    from cutaway.explore.trace import trace

    return [trace(served.pipeline, job.content.text, job.content.target).to_json() for job in jobs]


WORK: dict[str, Callable[[Served, Sequence[Job]], Sequence[Any]]] = {
    "write": write_texts,
    "classify": classify,
    "tag": tag,
    "embed": embed,
    "trace": look,
}
