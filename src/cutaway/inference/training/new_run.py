"""The first steps of a new run, for all engines: its folder and its final configuration. No torch here."""

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
    """A trainer, and what is printed before it starts."""

    trainer: Any  # a Trainer, or a NumpyTrainer
    config: Config
    tokenizer: Tokenizer | None
    examples: int
    left_out: dict[str, int]
    cut: dict[str, int]  # too long, so only the start is read
    parameters: int
    place: str  # for example "on cpu, 2 processes"
    share: str = ""  # for fine-tuning: the share of the model that is trained


def start_folder(run: RunFolder, config: Config, prepared: PreparedData) -> None:
    """Clear the folder and write the files that a run has before its first step.

    Call it after all other checks, so that a mistake in a recipe does not delete an earlier run.
    """
    with run.lock(patience=1):
        run.clear()
    # First the data record, by which a restarted job recognizes its run. Last config.json, which makes it a run.
    job = {"job": torchrun_job()} if torchrun_job() else {}
    write_sealed_json(run.data, {"fingerprint": prepared.fingerprint, "examples": prepared.examples, **job})
    if prepared.tokenizer:
        write_text(run.tokenizer, prepared.tokenizer)
    if prepared.labels:
        write_json(run.labels, prepared.labels)
    if config.data.tokenizer == "file":  # its special tokens may have any names
        write_json(run.tokenizer_roles, {ROLE_SETTINGS[role]: name for role, name in prepared.roles.items()})
    run.write_config(config)  # last, because it seals the other files


def with_sizes(config: Config, tokenizer: Tokenizer | None, labels: list[str]) -> Config:
    """Add the sizes that depend on the data: the vocabulary size and the number of labels."""
    sizes = {"vocab_size": tokenizer.vocab_size if tokenizer else 0, "n_classes": len(labels)}
    if config.data.tokenizer == "file" and config.model.vocab_size > sizes["vocab_size"]:
        sizes["vocab_size"] = config.model.vocab_size  # an imported model may have rows that no token uses
    for name, size in sizes.items():
        given = getattr(config.model, name)
        if given not in (0, size):
            raise ConfigError(
                f"model.{name} = {given}, but the data has {size}. Remove it from the recipe; it is set from the data."
            )
    return dataclasses.replace(config, model=with_given(config.model, **sizes))
