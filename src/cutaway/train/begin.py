"""From a configuration to a Trainer that is ready to run, in a new run folder or an old one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from cutaway.config import Config, with_given
from cutaway.data.batching import BatchStream, plain_batches
from cutaway.data.prepare import PreparedData, prepare
from cutaway.data.tokenizer import ROLE_SETTINGS, Tokenizer
from cutaway.errors import ConfigError, RunError
from cutaway.models.build import build_model
from cutaway.models.device import choose_device
from cutaway.runs import RunFolder, write_json, write_text
from cutaway.train.objectives import OBJECTIVES
from cutaway.train.schedules import make_schedule
from cutaway.train.trainer import Observer, Trainer

# What may differ between a run and its resumption without changing what has been computed so far.
MAY_CHANGE = {"train.steps", "train.device", "train.log_every", "train.valid_every", "train.save_every"}
MAY_CHANGE |= {"train.keep", "train.snapshots", "data.root"}


@dataclass(frozen=True)
class Training:
    """A trainer, and what one may want to print before it starts."""

    trainer: Trainer
    config: Config
    tokenizer: Tokenizer | None
    examples: int
    left_out: dict[str, int]


def begin(
    config: Config, run: RunFolder, observers: Iterable[Observer] = (), prepared: PreparedData | None = None
) -> Training:
    """Start a new run: train the tokenizer, build the model, write config.json and tokenizer.json.

    `prepared` is what `prepare(config.data)` gave, if that has been done already.
    """
    prepared = prepared or prepare(config.data, config.model.task)
    training = assemble(config, run, prepared, observers)
    run.clear()  # not before all of the above went well: an earlier run must not be lost to a typing error
    if prepared.tokenizer:
        write_text(run.tokenizer, prepared.tokenizer)
    if prepared.labels:
        write_json(run.labels, prepared.labels)
    if config.data.tokenizer == "file":  # its special tokens may have names that nobody could guess
        write_json(run.tokenizer_roles, {ROLE_SETTINGS[role]: name for role, name in prepared.roles.items()})
    write_text(run.config, training.config.to_json())
    write_json(run.data, {"fingerprint": prepared.fingerprint, "examples": prepared.examples})
    return training


def resume(
    config: Config, run: RunFolder, observers: Iterable[Observer] = (), prepared: PreparedData | None = None
) -> Training:
    """Go on where the run in this folder stopped. The recipe must be the one that it was started with."""
    refuse_differences(run.require_started().read_config(), config, run)
    prepared = prepared or prepare(config.data, config.model.task, run.tokenizer)
    refuse_other_data(run, prepared)
    training = assemble(config, run, prepared, observers)
    training.trainer.resume()
    write_text(run.config, training.config.to_json())
    return training


def assemble(config: Config, run: RunFolder, prepared: PreparedData, observers: Iterable[Observer]) -> Training:
    tokenizer = Tokenizer.from_json(prepared.tokenizer, prepared.roles) if prepared.tokenizer else None
    config = with_sizes(config, tokenizer, prepared.labels)
    task, budget = config.model.task, config.data.batch_tokens
    torch.manual_seed(config.train.seed)
    model = build_model(config.model).to(choose_device(config.train.device))
    trainer = Trainer(
        model=model,
        objective=OBJECTIVES[task],
        batches=BatchStream(prepared.train, task, tokenizer, budget, config.train.seed, config.data.distortion),
        valid_batches=plain_batches(prepared.valid, task, tokenizer, budget),
        schedule=make_schedule(config.train, config.model.d_model),
        config=config.train,
        run=run,
        observers=observers,
    )
    return Training(trainer, config, tokenizer, len(prepared.train), prepared.left_out)


def with_sizes(config: Config, tokenizer: Tokenizer | None, labels: list[str]) -> Config:
    """The configuration with what only the data can tell: the sizes of the vocabulary and of the set of labels."""
    sizes = {"vocab_size": tokenizer.vocab_size if tokenizer else 0, "n_classes": len(labels)}
    for name, size in sizes.items():
        given = getattr(config.model, name)
        if given not in (0, size):
            raise ConfigError(
                f"model.{name} = {given}, but the data has {size}. Leave it out of the recipe: it is taken from there."
            )
    return dataclasses.replace(config, model=with_given(config.model, **sizes))


def refuse_differences(saved: Config, given: Config, run: RunFolder) -> None:
    before, now = flat(saved), flat(given)
    for size in ("model.vocab_size", "model.n_classes"):
        now[size] = now[size] or before[size]
    # a cosine is drawn out to the last step, so another number of steps is another schedule
    may_change = MAY_CHANGE - {"train.steps"} if saved.train.schedule == "cosine" else MAY_CHANGE
    differing = [key for key in before if before[key] != now.get(key) and key not in may_change]
    differing = [key for key in differing if not key.startswith("decode.")]
    if differing:
        shown = "; ".join(f"{key} was {before[key]!r}, now {now[key]!r}" for key in differing)
        raise ConfigError(
            f"the recipe is not the one that {str(run)!r} was started with: {shown}. "
            "Set it back to resume, or train into another folder with --run."
        )


def refuse_other_data(run: RunFolder, prepared: PreparedData) -> None:
    record = json.loads(run.data.read_text(encoding="utf-8"))
    if record["fingerprint"] != prepared.fingerprint:
        raise RunError(
            f"the training data is not what {str(run)!r} was started with ({record['examples']} examples then, "
            f"{prepared.examples} now). Restore it to resume, or train into another folder with --run."
        )


def flat(config: Config) -> dict[str, object]:
    return {f"{table}.{key}": v for table, values in dataclasses.asdict(config).items() for key, v in values.items()}
