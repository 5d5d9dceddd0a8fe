"""From a configuration to a Trainer that is ready to run, in a new run folder or an old one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import nn

from cutaway.config import Config
from cutaway.data.batching import BatchStream, plain_batches
from cutaway.data.changes import change_for
from cutaway.data.large import is_large
from cutaway.data.prepare import PreparedData, prepare
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError, RunError
from cutaway.finetune.adapt import adapt, begin_with, count
from cutaway.finetune.base import Base, open_base
from cutaway.models.build import build_model
from cutaway.runs import RunFolder, write_text
from cutaway.train.launch import is_first_here
from cutaway.train.look import Look
from cutaway.train.objectives import OBJECTIVES, Objective
from cutaway.train.observers import Observer
from cutaway.train.schedules import make_schedule
from cutaway.train.start import Training, start_folder, with_sizes
from cutaway.train.team import Team, join_team
from cutaway.train.trainer import Trainer

# What may differ between a run and its resumption without changing what has been computed so far.
BUDGETS = {"train.steps", "train.epochs", "train.tokens", "train.minutes", "train.patience"}
MAY_CHANGE = BUDGETS | {"train.device", "train.log_every", "train.valid_every", "train.save_every", "data.root"}
MAY_CHANGE |= {"train.keep", "train.snapshots", "train.samples", "train.micro_batches", "train.compile"}
MAY_CHANGE |= {"train.processes", "train.parallel"}


def begin(
    config: Config,
    run: RunFolder,
    observers: Iterable[Observer] = (),
    prepared: PreparedData | None = None,
    surgery: Callable[[nn.Module], None] | None = None,
    objective: Objective | None = None,
) -> Training:
    """Start a new run: train the tokenizer, build the model, write config.json and tokenizer.json.

    `prepared` is what `prepare(config.data)` gave, if that has been done already. `surgery` may change the built model
    in place, before the optimizer is given its parameters, and `objective` asks something else of it than its task does
    (train/objectives.py); config.json knows nothing of either.
    """
    base = open_base(config, run) if config.finetune.base else None
    if base and prepared:
        refuse_other_tokenizer(base, prepared)
    team = join_team(config.train)
    prepared = prepared_in_turn(team, config, prepared, base.run.tokenizer if base else None)
    training = assemble(config, run, prepared, observers, team, base, surgery, objective)
    if training.trainer.team.is_leader:
        start_folder(run, training.config, prepared)  # not before all of the above went well: see there
    return training


def resume(
    config: Config, run: RunFolder, observers: Iterable[Observer] = (), prepared: PreparedData | None = None
) -> Training:
    """Go on where the run in this folder stopped. The recipe must be the one that it was started with."""
    refuse_differences(run.require_started().read_config(), config, run)
    base = open_base(config, run) if config.finetune.is_adapter else None  # else all weights are in the checkpoint
    team = join_team(config.train)
    prepared = prepared_in_turn(team, config, prepared, run.tokenizer)
    refuse_other_data(run, prepared)
    training = assemble(config, run, prepared, observers, team, base)
    training.trainer.resume()
    if training.trainer.team.is_leader:
        write_text(run.config, training.config.to_json())
    return training


def prepared_in_turn(
    team: Team, config: Config, prepared: PreparedData | None, tokenizer_file: Path | None = None
) -> PreparedData:
    """A large corpus is prepared by one process of each machine; the others then find it in the cache."""
    task, in_turn = config.model.task, is_large(config.data, config.model.task)
    if in_turn and not is_first_here():
        team.wait()
    prepared = prepared or prepare(config.data, task, tokenizer_file)
    if in_turn and is_first_here():
        team.wait()
    return prepared


def assemble(
    config: Config,
    run: RunFolder,
    prepared: PreparedData,
    observers: Iterable[Observer],
    team: Team,
    base: Base | None = None,
    surgery: Callable[[nn.Module], None] | None = None,
    objective: Objective | None = None,
) -> Training:
    team.require_same(prepared.fingerprint + prepared.tokenizer, "training data")
    tokenizer = Tokenizer.from_json(prepared.tokenizer, prepared.roles) if prepared.tokenizer else None
    config = with_sizes(config, tokenizer, prepared.labels)
    task, budget = config.model.task, config.data.batch_tokens
    torch.manual_seed(config.train.seed)
    model = build_model(config.model)
    share, adapter = begin_with(model, base, config, prepared.labels) if base else (adapt(model, config.finetune), None)
    model = model.to(team.device)
    if config.train.precision == "float64":
        model = model.double()
    if surgery:
        surgery(model)
    trainer = Trainer(
        model=model,
        objective=objective or OBJECTIVES[task],
        batches=BatchStream(
            prepared.train, task, tokenizer, budget, config.train.seed, change_for(config.data, tokenizer)
        ),
        valid_batches=plain_batches(prepared.valid, task, tokenizer, budget),
        schedule=make_schedule(config.train, config.model.d_model),
        config=config.train,
        run=run,
        observers=observers,
        look=Look(config, tokenizer, prepared.valid),
        team=team,
        adapter=adapter,
    )
    return Training(
        trainer=trainer,
        config=config,
        tokenizer=tokenizer,
        examples=len(prepared.train),
        left_out=prepared.left_out,
        parameters=count(model.parameters()),
        place=f"on {team.device}" + (f", {team.size} processes" if team.size > 1 else ""),
        share=str(share) if config.finetune.base else "",
    )


def refuse_differences(saved: Config, given: Config, run: RunFolder) -> None:
    before, now = flat(saved), flat(given)
    for size in ("model.vocab_size", "model.n_classes"):
        now[size] = now[size] or before[size]
    # a schedule that knows its end is another one if the end is
    may_change = MAY_CHANGE - BUDGETS if saved.train.schedule in ("cosine", "wsd") else MAY_CHANGE
    differing = [key for key in before if before[key] != now.get(key) and key not in may_change]
    differing = [key for key in differing if not key.startswith("decode.")]
    if differing:
        shown = "; ".join(f"{key} was {before[key]!r}, now {now[key]!r}" for key in differing)
        raise ConfigError(
            f"the recipe is not the one that {str(run)!r} was started with: {shown}. "
            "Set it back to resume, or train into another folder with --run."
        )


def refuse_other_tokenizer(base: Base, prepared: PreparedData) -> None:
    """The same ids must mean the same words."""
    if prepared.tokenizer and prepared.tokenizer != Tokenizer.open(base.run.tokenizer).to_json():
        raise ConfigError(
            f"the data was prepared with another tokenizer than that of the base {base.run}. Prepare it with that one: "
            "prepare(config.data, task, base / 'tokenizer.json')."
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
