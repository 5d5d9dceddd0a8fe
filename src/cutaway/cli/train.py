"""cutaway train RECIPE"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.ahead import preparing
from cutaway.cli.console import clock, command, err, out, say
from cutaway.cli.evaluate import evaluate as evaluate_run
from cutaway.cli.look_back import look_back
from cutaway.cli.recipes import base_tokenizer, find_recipe
from cutaway.config import Config, base_folders, base_of_tables, is_run, read_recipe, read_tables
from cutaway.errors import ConfigError, Diverged, Interrupted, MissingExtra, RunError, did_you_mean
from cutaway.runs import RunFolder
from cutaway.shipped import shipped_names
from cutaway.train.launch import in_a_team, is_first_here, is_leader, processes_for, team_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from cutaway.cli.progress import TrainingProgress
    from cutaway.data.prepare import PreparedData
    from cutaway.train.observers import TrainState
    from cutaway.train.start import Training


def train(
    recipe: Annotated[str, typer.Argument(help="A recipe: a .toml file, or the name of a built-in one.")],
    set: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting, as in --set train.steps=500.", metavar="T.F=V")
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option("--run", "--folder", help="The run folder. Default: runs/ and the recipe's name."),
    ] = None,  # two names, because torchrun would take --run for its own --run-path
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run in this folder stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run that is in this folder.")] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write tensorboard/ into the run as well.")
    ] = False,
    evaluate: Annotated[bool, typer.Option("--evaluate", help="When trained, score it on the test data.")] = False,
    engine: Annotated[
        str, typer.Option(help="torch, or numpy: translators and text generators, with no torch.")
    ] = "torch",
) -> None:
    """Train a model from a recipe.

    Examples:  cutaway train reverse --set train.steps=1000

               cutaway train python-tagger --evaluate

               cutaway train reverse --engine numpy

    Ctrl-C saves and stops; the same command with --resume goes on (with engine torch).
    """
    path = find_recipe(recipe)
    tables = read_tables(path, set or ())
    folder = RunFolder(run or Path("runs") / path.stem)
    if is_leader():
        refuse_to_overwrite(folder, resume or overwrite, engine)
    else:
        err.quiet = out.quiet = True
    if not find_spec("torch"):  # said now, rather than when all is prepared or even trained
        if engine == "torch":
            raise MissingExtra("torch", "torch", instead="\nOr train with what there is: --engine numpy")
        if evaluate:
            raise MissingExtra("torch", "torch", what="--evaluate")
    if engine not in MAKE_TRAINING:
        raise ConfigError(f"there is no engine {engine!r} to train with. {did_you_mean(engine, MAKE_TRAINING)}")
    if engine == "torch" and not resume:
        train_base_first(base_of_tables(tables))
    config = read_recipe(path, set or (), started=folder.path if resume else None)
    again = command(
        "train", recipe, "--resume", *(("--run", run) if run else ()), *(w for s in set or () for w in ("--set", s))
    )
    with team_of(processes_for(config) if engine == "torch" else 1, config, folder, resume):
        training, progress = MAKE_TRAINING[engine](config, folder, resume, tensorboard)
        state = run_training(training, progress, again)
    if not is_leader():  # of the processes that torchrun started, one speaks
        return
    say(f"Trained {state.step:,} steps in {clock(state.seconds)}; the run is in {folder}.")
    if state.best_step:
        by = {"loss": "loss", "accuracy": "accuracy", "bleu": "BLEU"}[config.train.best_by]
        loss = f"{state.best_loss:.4f}" if by == "loss" else f"at loss {state.best_loss:.4f}"
        say(f"Best validation {by} {loss}, at step {state.best_step:,}: these weights are kept.")
    if evaluate:
        evaluate_run(folder.path)
    look_back(folder)
    say("Next:  " + "   or   ".join(next_uses(config.model.task, folder)))


def train_base_first(base: str) -> None:
    """A recipe may begin with a built-in one's run: if nobody has trained that yet, it is done now."""
    if not base:
        return
    folders = [RunFolder(folder) for folder in base_folders(base) if is_run(folder)]
    if folders:
        warn_if_unfinished(folders[0])
    elif base in shipped_names("recipes"):
        folder = Path("runs") / base
        if in_a_team():
            raise RunError(f"there is no run {base!r} to begin with. Train it first: {command('train', base)}")
        say(f"This begins with a run of the recipe {base!r}, and there is none yet. It comes first, into {folder}:")
        train(base, run=folder)
        say()


def warn_if_unfinished(base: RunFolder) -> None:
    from cutaway.summary import summarize

    summary = summarize(base)
    if summary.can_resume and summary.state in ("stopped", "going on"):
        say(f"Note: the base {base} {summary.told_state}; this begins with its best weights so far.")


def refuse_to_overwrite(folder: RunFolder, allowed: bool, engine: str) -> None:
    if folder.config.is_file() and not allowed:
        go_on = "Go on with --resume, replace" if engine == "torch" else "Replace"
        raise RunError(
            f"there is a run in {str(folder)!r} already. {go_on} it with --overwrite, "
            "or choose another folder with --run."
        )


def next_uses(task: str, folder: RunFolder) -> list[str]:
    """Commands that can be typed now."""
    from cutaway.pipeline import COMMANDS

    evaluate = [command("evaluate", folder)] if find_spec("torch") else []
    use = COMMANDS[task]
    return evaluate + ([] if use == "evaluate" or task == "image_classification" else [command(use, folder, "TEXT")])


def make_training(
    config: Config, folder: RunFolder, resume: bool = False, tensorboard: bool = False
) -> tuple[Training, TrainingProgress]:
    """Everything up to the first step, with the data prepared while torch is imported."""
    tokenizer_file = folder.require_started().tokenizer if resume else base_tokenizer(config)
    ahead: AbstractContextManager[Callable[[], PreparedData | None]]
    if is_first_here():
        ahead = preparing(config.data, config.model.task, tokenizer_file)
    else:  # of the processes that torchrun started: it may find in the cache what the first one prepares
        ahead = nullcontext(lambda: None)
    with ahead as prepared:
        from cutaway.cli.progress import TrainingProgress
        from cutaway.cli.tensorboard import TensorBoard
        from cutaway.train import begin as start

        progress = TrainingProgress(config.model.task)
        observers = [progress, TensorBoard(folder)] if tensorboard else [progress]
        begin_or_resume = start.resume if resume else start.begin
        return begin_or_resume(config, folder, observers, prepared()), progress


def make_numpy_training(
    config: Config, folder: RunFolder, resume: bool = False, tensorboard: bool = False
) -> tuple[Training, TrainingProgress]:
    """The same on the NumPy twin."""
    if resume:
        raise ConfigError("engine 'numpy' keeps no checkpoints to resume from. Train anew, or with --engine torch.")
    if tensorboard:
        raise ConfigError("--tensorboard writes with torch's own writer. Leave it out, or use --engine torch.")
    from cutaway.cli.preparing import PreparingProgress
    from cutaway.cli.progress import TrainingProgress
    from cutaway.data.prepare import prepare
    from cutaway.train.numpy_trainer import begin, refuse_unsupported

    refuse_unsupported(config)  # before the data is prepared, which takes a while
    progress = TrainingProgress(config.model.task)
    with PreparingProgress() as tell:
        prepared = prepare(config.data, config.model.task, tell=tell)
    return begin(config, folder, [progress], prepared), progress


MAKE_TRAINING = {"torch": make_training, "numpy": make_numpy_training}


def run_training(training: Training, progress: TrainingProgress, again: str) -> TrainState:
    """Train to the end; if the user stops it, say with which command it goes on."""
    describe(training)
    try:
        return training.trainer.run()
    except Diverged as diverged:
        raise Diverged(f"{diverged} More: {command('doctor', training.trainer.run_folder)}") from None
    except Interrupted as interrupted:
        if not training.trainer.can_resume:
            raise
        raise Interrupted(f"{interrupted} Go on with: {again}") from None
    finally:
        progress.close()


def describe(training: Training) -> None:
    """Say what is going to be trained, before it takes time."""
    trainer, model = training.trainer, training.config.model
    left_out = ", ".join(f"{n:,} {why}" for why, n in training.left_out.items())
    sizes = {"vocabulary": model.vocab_size, "classes": model.n_classes}
    named = "".join(f", {name} {size:,}" for name, size in sizes.items() if size)
    say(f"Data:  {training.examples:,} examples" + (f" (left out: {left_out})" if left_out else ""))
    say(f"Model: {training.parameters:,} parameters{named}, {training.place}")
    if training.share:
        say(f"Base:  {training.config.finetune.base}")
        say(f"Trained: {training.share}")
    if trainer.state.step:
        say(f"Resuming at step {trainer.state.step:,}.")
