"""Build a Trainer from a configuration, for a new run or to resume one."""

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
from cutaway.inference.training.launch import watch_workers
from cutaway.inference.training.new_run import Training, start_folder, with_sizes
from cutaway.inference.training.samples import ValidationSamples
from cutaway.models.build import build_model
from cutaway.runs import RunFolder
from cutaway.runs.base import Base, open_base
from cutaway.runs.resuming import check_resumable, refuse_other_data, refuse_other_vocabulary
from cutaway.train.distributed import ProcessGroup, join_process_group
from cutaway.train.environment import is_local_main_process
from cutaway.train.objectives import OBJECTIVES, Objective
from cutaway.train.observers import Observer
from cutaway.train.schedules import make_schedule
from cutaway.train.trainer import Trainer


def start_training(
    config: Config,
    run: RunFolder,
    observers: Iterable[Observer] = (),
    prepared: PreparedData | None = None,
    modify_model: Callable[[nn.Module], None] | None = None,
    objective: Objective | None = None,
) -> Training:
    """Start a new run: train the tokenizer, build the model, write config.json and tokenizer.json.

    `prepared` is the result of `prepare(config.data)`, if the data is already prepared. `modify_model` may change the
    built model in place, before the optimizer is created. `objective` replaces the objective of the task
    (train/objectives.py). config.json records neither of the two.
    """
    base = open_base(config, run) if config.finetune.base else None
    if base and prepared:
        check_same_tokenizer(base, prepared)
    process_group = join_process_group(config.train, watch_workers())
    process_group.require_same("begin", "run folder")
    prepared = prepare_once_per_machine(process_group, config, prepared, base.run.tokenizer if base else None)
    training = assemble(config, run, prepared, observers, process_group, base, modify_model, objective)
    if training.trainer.process_group.is_main_process:
        start_folder(run, training.config, prepared)  # last: it deletes an earlier run
    return training


def resume(
    config: Config, run: RunFolder, observers: Iterable[Observer] = (), prepared: PreparedData | None = None
) -> Training:
    """Resume the run in this folder. The recipe must be the one that it was started with."""
    saved = check_resumable(config, run)
    base = open_base(config, run) if config.finetune.is_adapter else None  # otherwise the checkpoint has all weights
    process_group = join_process_group(config.train, watch_workers())
    process_group.require_same("resume", "run folder")
    prepared = prepare_once_per_machine(process_group, config, prepared, run.tokenizer)
    refuse_other_data(run, prepared)
    refuse_other_vocabulary(run, saved, prepared)
    training = assemble(config, run, prepared, observers, process_group, base)
    training.trainer.resume()
    if training.trainer.process_group.is_main_process:
        run.write_config(training.config)
    return training


def prepare_once_per_machine(
    process_group: ProcessGroup, config: Config, prepared: PreparedData | None, tokenizer_file: Path | None = None
) -> PreparedData:
    """Prepare the data. For a large corpus, one process of each machine prepares it; the others read its cache."""
    task, use_cache = config.model.task, is_large(config.data, config.model.task)
    if use_cache and not is_local_main_process():
        process_group.barrier()
    prepared = prepared or prepare(config.data, task, tokenizer_file)
    if use_cache and is_local_main_process():
        process_group.barrier()
    return prepared


def assemble(
    config: Config,
    run: RunFolder,
    prepared: PreparedData,
    observers: Iterable[Observer],
    process_group: ProcessGroup,
    base: Base | None = None,
    modify_model: Callable[[nn.Module], None] | None = None,
    objective: Objective | None = None,
) -> Training:
    process_group.require_same(prepared.fingerprint + prepared.tokenizer, "training data")
    tokenizer = Tokenizer.from_json(prepared.tokenizer, prepared.roles) if prepared.tokenizer else None
    config = with_sizes(config, tokenizer, prepared.labels)
    task, budget = config.model.task, config.data.batch_tokens
    torch.manual_seed(config.train.seed)
    model = build_model(config.model)
    share, adapter = (
        init_from_base(model, base, config, prepared.labels) if base else (adapt(model, config.finetune), None)
    )
    model = model.to(process_group.device)
    if config.train.precision == "float64":
        model = model.double()
    if modify_model:
        modify_model(model)
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
        add_samples=ValidationSamples(config, tokenizer, prepared.valid),
        process_group=process_group,
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
        place=f"on {process_group.device}" + (f", {process_group.size} processes" if process_group.size > 1 else ""),
        share=str(share) if config.finetune.base else "",
    )


def check_same_tokenizer(base: Base, prepared: PreparedData) -> None:
    """Raise an error if the data was prepared with another tokenizer than the base has."""
    if prepared.tokenizer and prepared.tokenizer != Tokenizer.open(base.run.tokenizer).to_json():
        raise ConfigError(
            f"the data was prepared with another tokenizer than the base {base.run}. Prepare it with the base's "
            "tokenizer: prepare(config.data, task, base / 'tokenizer.json')."
        )
