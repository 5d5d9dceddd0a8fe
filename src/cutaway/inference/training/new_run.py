"""What every run begins with, whichever engine trains it. No torch here."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from cutaway.config import Config, with_given
from cutaway.data.prepare import PreparedData
from cutaway.data.tokenizer import ROLE_SETTINGS, Tokenizer
from cutaway.errors import ConfigError
from cutaway.runs import RunFolder
from cutaway.runs.files import write_json, write_sealed_json, write_text
from cutaway.train.environment import torchrun_job


@dataclass(frozen=True)
class Training:
    """A trainer, and what one may want to print before it starts."""

    trainer: Any  # a Trainer, or a NumpyTrainer
    config: Config
    tokenizer: Tokenizer | None
    examples: int
    left_out: dict[str, int]
    cut: dict[str, int]  # too long, and not read to their end
    parameters: int
    place: str  # where it will run
    share: str = ""  # of a fine-tuning: how much of the model is trained


def start_folder(run: RunFolder, config: Config, prepared: PreparedData) -> None:
    """Clear the folder and write what a new run has before its first step.

    To be called when nothing can go wrong any more: an earlier run must not be lost to a typing error.
    """
    with run.locked(patience=1):
        run.clear()
    # The record comes first, so that a restarted job knows the run as its own; config.json, which makes it one, last.
    job = {"job": torchrun_job()} if torchrun_job() else {}
    write_sealed_json(run.data, {"fingerprint": prepared.fingerprint, "examples": prepared.examples, **job})
    if prepared.tokenizer:
        write_text(run.tokenizer, prepared.tokenizer)
    if prepared.labels:
        write_json(run.labels, prepared.labels)
    if config.data.tokenizer == "file":  # its special tokens may have names that nobody could guess
        write_json(run.tokenizer_roles, {ROLE_SETTINGS[role]: name for role, name in prepared.roles.items()})
    run.write_config(config)  # the last one: it seals the others


def with_sizes(config: Config, tokenizer: Tokenizer | None, labels: list[str]) -> Config:
    """The configuration with what only the data can tell: the sizes of the vocabulary and of the set of labels."""
    sizes = {"vocab_size": tokenizer.vocab_size if tokenizer else 0, "n_classes": len(labels)}
    if config.data.tokenizer == "file" and config.model.vocab_size > sizes["vocab_size"]:
        sizes["vocab_size"] = config.model.vocab_size  # a model from elsewhere may have rows that no token uses
    for name, size in sizes.items():
        given = getattr(config.model, name)
        if given not in (0, size):
            raise ConfigError(
                f"model.{name} = {given}, but the data has {size}. Leave it out of the recipe: it is taken from there."
            )
    return dataclasses.replace(config, model=with_given(config.model, **sizes))
