"""Base class of all pipelines: a trained model on an engine, its tokenizer and its labels."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

from cutaway.config import Config
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import CutawayWarning, DataError, RunError
from cutaway.inference.engines import load_engine, resolve_engine
from cutaway.runs import RunFolder
from cutaway.search.request import Rows


class Pipeline:
    """A trained model on an engine, its tokenizer and labels. Each subclass does one kind of task."""

    tasks: ClassVar[tuple[str, ...]] = ()
    engines: ClassVar[tuple[str, ...]] = ("torch",)  # engines that support the task

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
        """Load a run folder. `weights`: a snapshot or a checkpoint's weights instead of the best ones."""
        folder = RunFolder(run).require()
        config = folder.read_config()
        if not folder.is_sealed:
            warnings.warn(
                f"{folder} was written by an older version, without checksums of its config.json and tokenizer.json. "
                f"Add them with: cutaway runs {folder} --seal",
                CutawayWarning,
                stacklevel=2,
            )
        if config.model.task not in cls.tasks:
            raise RunError(wrong_task_message(run, config.model.task, cls.tasks))
        loaded = load_engine(engine, cls.engines, folder, config, weights or folder.weights, device, dtype)
        tokenizer = None if config.model.family == "vision" else load_tokenizer(folder, config)
        return cls(loaded, tokenizer, config, folder.read_labels())

    @classmethod
    def engine_for(cls, name: str) -> str:
        """The engine that `name` selects; "auto" selects one that is installed."""
        return resolve_engine(name, cls.engines)

    @property
    def model(self) -> Any:
        return self.engine.model

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            raise RunError("this run reads images, so it has no tokenizer. Use classify().")
        return self._tokenizer

    @property
    def device(self) -> Any:
        """The device of a PyTorch model."""
        if not hasattr(self.engine, "device"):
            raise RunError('this needs the PyTorch model. Load the run with engine="torch".')
        return self.engine.device


def require_list(texts: Any, what: str = "a list of texts") -> None:
    """Raise for a single string, whose characters would otherwise count as texts."""
    if isinstance(texts, str):
        raise DataError(f"got one text, {texts[:40]!r}; expected {what}. Put it into a list: [text].")


def load_tokenizer(folder: RunFolder, config: Config) -> Tokenizer:
    tokenizer = Tokenizer.open(folder.tokenizer)
    unused = config.model.vocab_size - tokenizer.vocab_size
    # an imported model may have rows that no token uses: T5's vocabulary is rounded up to a multiple of 128
    if unused < 0 or (unused and config.data.tokenizer != "file"):
        raise RunError(
            f"{folder.tokenizer} has {tokenizer.vocab_size} tokens, but the model was trained with "
            f"{config.model.vocab_size}. Restore the original tokenizer."
        )
    return tokenizer


# task -> command
COMMANDS = {
    "translation": "translate",
    "language_model": "generate",
    "classification": "classify",
    "image_classification": "classify",
    "tagging": "tag",
    "masked_language_model": "evaluate",
    "embedding": "embed",
}


def wrong_task_message(run: str | Path, task: str, expected: Sequence[str]) -> str:
    return (
        f"the run {str(run)!r} was trained for {task.replace('_', ' ')}; expected one trained for "
        f"{' or '.join(expected).replace('_', ' ')}. Use it with: cutaway {COMMANDS[task]} {run}"
    )


def raise_too_long(text: str, tokens: int, max_tokens: int, remedy: str = "Shorten it.") -> NoReturn:
    shown = text if len(text) <= 40 else text[:40] + "..."
    raise DataError(f"the text {shown!r} has {tokens:,} tokens; the model reads at most {max_tokens:,}. {remedy}")


def batch_by_length(rows: Rows, batch_size: int, spread: int | None = None) -> Iterator[list[int]]:
    """Yield the indices of rows of similar length, at most `spread` apart if given. Empty rows are left out."""
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
