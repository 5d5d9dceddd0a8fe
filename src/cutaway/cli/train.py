"""cutaway train RECIPE"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.completion import complete_runs
from cutaway.cli.console import clock, command, err, out, say
from cutaway.cli.evaluate import check_evaluation
from cutaway.cli.evaluate import evaluate as evaluate_run
from cutaway.cli.options import Recipe, Set
from cutaway.cli.prefetch import prefetch_data
from cutaway.cli.recipes import base_tokenizer, find_recipe
from cutaway.cli.summary import summarize_training
from cutaway.config import Config, read_tables
from cutaway.errors import ConfigError, Diverged, Interrupted, MissingExtra, RunError, did_you_mean
from cutaway.inference.training.launch import choose_process_count, worker_processes
from cutaway.interop.obstacles import export_note
from cutaway.runs import RunFolder
from cutaway.runs.recipe import base_folders, base_name, is_run, read_recipe
from cutaway.runs.resuming import check_resumable
from cutaway.system.resources import shipped_names
from cutaway.train.environment import is_distributed, is_local_main_process, is_main_process, is_restarted

if TYPE_CHECKING:
    from collections.abc import Callable

    from cutaway.cli.progress import TrainingProgress
    from cutaway.data.prepare import PreparedData
    from cutaway.inference.training.new_run import Training
    from cutaway.train.observers import TrainState


def train(
    recipe: Recipe,
    set: Set = None,
    run: Annotated[
        Path | None,
        typer.Option(
            *("--run", "--folder"),
            help="The run folder. Default: runs/RECIPE.",
            metavar="FOLDER",
            autocompletion=complete_runs,
        ),
    ] = None,  # --folder: torchrun reads --run as an abbreviation of its own --run-path
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in the run folder.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in the run folder.")] = False,
    evaluate: Annotated[bool, typer.Option("--evaluate", help="Score the model on the test data.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write logs for TensorBoard.")] = False,
    engine: Annotated[
        str, typer.Option(help="torch, or numpy for translation and language models.", metavar="ENGINE")
    ] = "torch",
) -> None:
    """Train a model from a recipe.

    Examples:  cutaway train reverse --set train.steps=1000
               cutaway train python-tagger --evaluate
               cutaway train reverse --engine numpy

    Ctrl-C saves a checkpoint and stops. The same command with --resume continues (not with numpy).
    """
    if resume and overwrite:
        raise ConfigError("--resume continues the run in the folder, and --overwrite replaces it. Choose one.")
    path = find_recipe(recipe)
    tables = read_tables(path, set or ())
    folder = RunFolder(run or Path("runs") / path.stem)
    if not is_main_process():
        err.quiet = out.quiet = True
    if is_restarted(folder):
        resume, overwrite = folder.pointer("latest") is not None, True
        action = "Resuming from its newest checkpoint." if resume else "It saved no checkpoint, so it starts over."
        say(f"torchrun restarted this job; the run in {folder} exists already. {action}")
    if is_main_process():
        reject_existing_run(folder, resume or overwrite, engine)
    if not find_spec("torch"):  # before the data is prepared
        if engine == "torch":
            raise MissingExtra("torch", "torch", instead="\nOr train without it: --engine numpy")
        if evaluate:
            raise MissingExtra("torch", "torch", what="--evaluate")
    if engine not in MAKE_TRAINING:
        raise ConfigError(f"--engine {engine} cannot train. {did_you_mean(engine, MAKE_TRAINING)}")
    if engine == "torch" and not resume:
        train_base_first(base_name(tables))
    config = read_recipe(path, set or (), started=folder.path if resume else None)
    settings = [word for setting in set or () for word in ("--set", setting)]
    resume_command = command("train", recipe, "--resume", *(("--run", run) if run else ()), *settings)
    if note := export_note(config):
        say(note)
    with worker_processes(choose_process_count(config) if engine == "torch" else 1, config, folder, resume):
        check = partial(check_evaluation, config) if evaluate else no_check
        training, progress = MAKE_TRAINING[engine](config, folder, resume, tensorboard, check)
        state = run_training(training, progress, resume_command)
    if not is_main_process():
        return
    say(f"Trained {state.step:,} steps in {clock(state.seconds)}; the run is in {folder}.")
    if state.best_step:
        by = {"loss": "loss", "accuracy": "accuracy", "bleu": "BLEU"}[config.train.best_by]
        loss = f"{state.best_loss:.4f}" if by == "loss" else f"at loss {state.best_loss:.4f}"
        say(f"Best validation {by} {loss}, at step {state.best_step:,}. These weights are saved as the model.")
    try:
        if evaluate:
            evaluate_run(folder.path)
    except BaseException:
        say(f"The run is trained and saved, but its evaluation failed. Again:  {command('evaluate', folder)}")
        raise
    finally:  # also if the evaluation failed
        summarize_training(folder)
        say("Next:  " + "\n       ".join(next_commands(config.model.task, folder)))


def train_base_first(base: str) -> None:
    """Train the base of a fine-tuning recipe if it is a built-in recipe that has no run yet."""
    if not base:
        return
    folders = [RunFolder(folder) for folder in base_folders(base) if is_run(folder)]
    if folders:
        warn_if_unfinished(folders[0])
    elif base in shipped_names("recipes"):
        folder = Path("runs") / base
        if is_distributed():
            raise RunError(f"the base {base!r} is not trained yet. Train it first: {command('train', base)}")
        say(f"The base {base!r} is not trained yet. Training it first, in {folder}:")
        train(base, run=folder)
        say()


def warn_if_unfinished(base: RunFolder) -> None:
    from cutaway.runs.summary import summarize

    summary = summarize(base)
    if summary.can_resume and summary.state in ("stopped", "running"):
        say(f"Note: the base {base} is not finished ({summary.state_text}). Its best weights so far are used.")


def reject_existing_run(folder: RunFolder, allowed: bool, engine: str) -> None:
    if folder.config.is_file() and not allowed:
        actions = "Continue it with --resume, replace" if engine == "torch" else "Replace"
        raise RunError(
            f"there is a run in {str(folder)!r} already. {actions} it with --overwrite, "
            "or choose another folder with --run."
        )


def next_commands(task: str, folder: RunFolder) -> list[str]:
    """Commands for the trained run."""
    from cutaway.inference.pipelines import COMMANDS

    commands = [command("explore", folder), command("evaluate", folder)] if find_spec("torch") else []
    if COMMANDS[task] != "evaluate" and task != "image_classification":
        commands.append(command(COMMANDS[task], folder, "TEXT"))
    return commands


def no_check(prepared: PreparedData) -> None:
    pass


def make_training(
    config: Config,
    folder: RunFolder,
    resume: bool = False,
    tensorboard: bool = False,
    check: Callable[[PreparedData], None] = no_check,
) -> tuple[Training, TrainingProgress]:
    """Prepare a training up to its first step. The data is prepared in another process while torch is imported.

    `check` may raise an error about the data. It is called before an earlier run in the folder is replaced.
    """
    if resume:
        check_resumable(config, folder)
    tokenizer_file = folder.tokenizer if resume else base_tokenizer(config)
    prefetching: AbstractContextManager[Callable[[], PreparedData | None]]
    if is_local_main_process():
        prefetching = prefetch_data(config.data, config.model.task, tokenizer_file)
    else:  # another process of torchrun on this machine: it can use the cache of the first one
        prefetching = nullcontext(lambda: None)
    with prefetching as wait_for_data:
        from cutaway.cli.progress import TrainingProgress
        from cutaway.cli.tensorboard import TensorBoard
        from cutaway.inference.training import setup

        progress = TrainingProgress(config.model.task)
        observers = [progress, TensorBoard(folder)] if tensorboard else [progress]
        start = setup.resume if resume else setup.start_training
        data = wait_for_data()
        if data:
            check(data)
        return start(config, folder, observers, data), progress


def make_numpy_training(
    config: Config,
    folder: RunFolder,
    resume: bool = False,
    tensorboard: bool = False,
    check: Callable[[PreparedData], None] = no_check,
) -> tuple[Training, TrainingProgress]:
    """The same with the NumPy twin."""
    if resume:
        raise ConfigError(
            "--engine numpy saves no checkpoints to resume from. Start over with --overwrite, or use --engine torch."
        )
    if tensorboard:
        raise ConfigError("--tensorboard needs torch. Leave it out, or use --engine torch.")
    from cutaway.cli.preparing import PreparingProgress
    from cutaway.cli.progress import TrainingProgress
    from cutaway.data.prepare import prepare
    from cutaway.inference.training.numpy_trainer import check_numpy_support, start_training

    check_numpy_support(config)  # before the data is prepared
    progress = TrainingProgress(config.model.task)
    with PreparingProgress() as on_progress:
        prepared = prepare(config.data, config.model.task, on_progress=on_progress)
    check(prepared)
    return start_training(config, folder, [progress], prepared), progress


MAKE_TRAINING = {"torch": make_training, "numpy": make_numpy_training}


def run_training(training: Training, progress: TrainingProgress, resume_command: str) -> TrainState:
    """Train to the end. If the user stops it, the error names the command that resumes it."""
    describe(training)
    try:
        return training.trainer.run()
    except Diverged as diverged:
        raise Diverged(f"{diverged} More: {command('doctor', training.trainer.run_folder)}") from None
    except Interrupted as interrupted:
        if not training.trainer.can_resume:
            raise
        raise Interrupted(f"{interrupted} Resume with: {resume_command}") from None
    finally:
        progress.close()


def describe(training: Training) -> None:
    """Print the size of the data and the model."""
    trainer, model = training.trainer, training.config.model
    sizes = {"vocabulary": model.vocab_size, "classes": model.n_classes}
    sizes_text = "".join(f", {name} {size:,}" for name, size in sizes.items() if size)
    counts = {"left out": training.left_out, "cut": training.cut}
    notes = [f"{name}: {', '.join(f'{n:,} {reason}' for reason, n in c.items())}" for name, c in counts.items() if c]
    say(f"Data:  {training.examples:,} examples" + (f" ({'; '.join(notes)})" if notes else ""))
    say(f"Model: {training.parameters:,} parameters{sizes_text}, {training.place}")
    if training.share:
        say(f"Base:  {training.config.finetune.base}")
        say(f"Trained: {training.share}")
    if trainer.state.step:
        say(f"Resuming at step {trainer.state.step:,}.")
