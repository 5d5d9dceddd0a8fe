"""From a configuration to a Trainer that is ready to run, in a new run folder or an old one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import nn

from cutaway.config import Config
from cutaway.data.augmentation import augmentation_for
from cutaway.data.batching import BatchStream, evaluation_batches
from cutaway.data.prepare import PreparedData, prepare
from cutaway.data.store import is_large
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError
from cutaway.finetune.adapt import adapt, count, init_from_base
from cutaway.inference.training.launch import watching_members
from cutaway.inference.training.new_run import Training, start_folder, with_sizes
from cutaway.inference.training.samples import Look
from cutaway.models.build import build_model
from cutaway.runs import RunFolder
from cutaway.runs.base import Base, open_base
from cutaway.runs.resuming import check_resumable, refuse_other_data, refuse_other_vocabulary
from cutaway.train.distributed import Team, join_team
from cutaway.train.environment import is_first_here
from cutaway.train.objectives import OBJECTIVES, Objective
from cutaway.train.observers import Observer
from cutaway.train.schedules import make_schedule
from cutaway.train.trainer import Trainer


def start_training(
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
    team = join_team(config.train, watching_members())
    team.require_same("begin", "run folder")
    prepared = prepared_in_turn(team, config, prepared, base.run.tokenizer if base else None)
    training = assemble(config, run, prepared, observers, team, base, surgery, objective)
    if training.trainer.team.is_leader:
        start_folder(run, training.config, prepared)  # not before all of the above went well: see there
    return training


def resume(
    config: Config, run: RunFolder, observers: Iterable[Observer] = (), prepared: PreparedData | None = None
) -> Training:
    """Go on where the run in this folder stopped. The recipe must be the one that it was started with."""
    saved = check_resumable(config, run)
    base = open_base(config, run) if config.finetune.is_adapter else None  # else all weights are in the checkpoint
    team = join_team(config.train, watching_members())
    team.require_same("resume", "run folder")
    prepared = prepared_in_turn(team, config, prepared, run.tokenizer)
    refuse_other_data(run, prepared)
    refuse_other_vocabulary(run, saved, prepared)
    training = assemble(config, run, prepared, observers, team, base)
    training.trainer.resume()
    if training.trainer.team.is_leader:
        run.write_config(training.config)
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
    share, adapter = (
        init_from_base(model, base, config, prepared.labels) if base else (adapt(model, config.finetune), None)
    )
    model = model.to(team.device)
    if config.train.precision == "float64":
        model = model.double()
    if surgery:
        surgery(model)
    trainer = Trainer(
        model=model,
        objective=objective or OBJECTIVES[task],
        batches=BatchStream(
            prepared.train, task, tokenizer, budget, config.train.seed, augmentation_for(config.data, tokenizer)
        ),
        valid_batches=evaluation_batches(prepared.valid, task, tokenizer, budget),
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
        cut=prepared.cut,
        parameters=count(model.parameters()),
        place=f"on {team.device}" + (f", {team.size} processes" if team.size > 1 else ""),
        share=str(share) if config.finetune.base else "",
    )


def refuse_other_tokenizer(base: Base, prepared: PreparedData) -> None:
    """The same ids must mean the same words."""
    if prepared.tokenizer and prepared.tokenizer != Tokenizer.open(base.run.tokenizer).to_json():
        raise ConfigError(
            f"the data was prepared with another tokenizer than that of the base {base.run}. Prepare it with that one: "
            "prepare(config.data, task, base / 'tokenizer.json')."
        )
