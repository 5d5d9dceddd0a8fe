"""cutaway train RECIPE"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.console import clock, command, err, out, say
from cutaway.cli.evaluate import check_evaluation
from cutaway.cli.evaluate import evaluate as evaluate_run
from cutaway.cli.prefetch import preparing
from cutaway.cli.recipes import base_tokenizer, find_recipe
from cutaway.cli.summary import look_back
from cutaway.config import Config, read_tables
from cutaway.errors import ConfigError, Diverged, Interrupted, MissingExtra, RunError, did_you_mean
from cutaway.inference.training.launch import processes_for, team_of
from cutaway.interop.obstacles import export_note
from cutaway.runs import RunFolder
from cutaway.runs.recipe import base_folders, base_of_tables, is_run, read_recipe
from cutaway.runs.resuming import check_resumable
from cutaway.system.resources import shipped_names
from cutaway.train.environment import in_a_team, is_first_here, is_leader, is_restarted

if TYPE_CHECKING:
    from collections.abc import Callable

    from cutaway.cli.progress import TrainingProgress
    from cutaway.data.prepare import PreparedData
    from cutaway.inference.training.new_run import Training
    from cutaway.train.observers import TrainState


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
    if resume and overwrite:
        raise ConfigError("--resume goes on with the run in the folder, and --overwrite replaces it. Choose one.")
    path = find_recipe(recipe)
    tables = read_tables(path, set or ())
    folder = RunFolder(run or Path("runs") / path.stem)
    if not is_leader():
        err.quiet = out.quiet = True
    if is_restarted(folder):
        resume, overwrite = folder.pointer("latest") is not None, True
        go_on = "It goes on from the newest checkpoint." if resume else "Nothing was saved yet, so it begins anew."
        say(f"An earlier try of this torchrun job began the run in {folder}. {go_on}")
    if is_leader():
        refuse_to_overwrite(folder, resume or overwrite, engine)
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
    if note := export_note(config):
        say(note)
    with team_of(processes_for(config) if engine == "torch" else 1, config, folder, resume):
        check = partial(check_evaluation, config) if evaluate else nothing
        training, progress = MAKE_TRAINING[engine](config, folder, resume, tensorboard, check)
        state = run_training(training, progress, again)
    if not is_leader():  # of the processes that torchrun started, one speaks
        return
    say(f"Trained {state.step:,} steps in {clock(state.seconds)}; the run is in {folder}.")
    if state.best_step:
        by = {"loss": "loss", "accuracy": "accuracy", "bleu": "BLEU"}[config.train.best_by]
        loss = f"{state.best_loss:.4f}" if by == "loss" else f"at loss {state.best_loss:.4f}"
        say(f"Best validation {by} {loss}, at step {state.best_step:,}: these weights are kept.")
    try:
        if evaluate:
            evaluate_run(folder.path)
    except BaseException:
        say(f"The run is trained and saved; only its evaluation did not end. Again:  {command('evaluate', folder)}")
        raise
    finally:  # report and findings are of the training, whatever became of its evaluation
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
    from cutaway.runs.summary import summarize

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
    from cutaway.inference.pipelines import COMMANDS

    evaluate = [command("evaluate", folder)] if find_spec("torch") else []
    use = COMMANDS[task]
    return evaluate + ([] if use == "evaluate" or task == "image_classification" else [command(use, folder, "TEXT")])


def nothing(prepared: PreparedData) -> None:
    """There is nothing to check."""


def make_training(
    config: Config,
    folder: RunFolder,
    resume: bool = False,
    tensorboard: bool = False,
    check: Callable[[PreparedData], None] = nothing,
) -> tuple[Training, TrainingProgress]:
    """Everything up to the first step, with the data prepared while torch is imported.

    `check` may refuse the data. It is asked before an earlier run in the folder is replaced.
    """
    if resume:
        check_resumable(config, folder)
    tokenizer_file = folder.tokenizer if resume else base_tokenizer(config)
    ahead: AbstractContextManager[Callable[[], PreparedData | None]]
    if is_first_here():
        ahead = preparing(config.data, config.model.task, tokenizer_file)
    else:  # of the processes that torchrun started: it may find in the cache what the first one prepares
        ahead = nullcontext(lambda: None)
    with ahead as prepared:
        from cutaway.cli.progress import TrainingProgress
        from cutaway.cli.tensorboard import TensorBoard
        from cutaway.inference.training import setup as start

        progress = TrainingProgress(config.model.task)
        observers = [progress, TensorBoard(folder)] if tensorboard else [progress]
        begin_or_resume = start.resume if resume else start.start_training
        data = prepared()
        if data:
            check(data)
        return begin_or_resume(config, folder, observers, data), progress


def make_numpy_training(
    config: Config,
    folder: RunFolder,
    resume: bool = False,
    tensorboard: bool = False,
    check: Callable[[PreparedData], None] = nothing,
) -> tuple[Training, TrainingProgress]:
    """The same on the NumPy twin."""
    if resume:
        raise ConfigError(
            "engine 'numpy' keeps no checkpoints to resume from. Begin anew with --overwrite, or use --engine torch."
        )
    if tensorboard:
        raise ConfigError("--tensorboard writes with torch's own writer. Leave it out, or use --engine torch.")
    from cutaway.cli.preparing import PreparingProgress
    from cutaway.cli.progress import TrainingProgress
    from cutaway.data.prepare import prepare
    from cutaway.inference.training.numpy_trainer import refuse_unsupported, start_training

    refuse_unsupported(config)  # before the data is prepared, which takes a while
    progress = TrainingProgress(config.model.task)
    with PreparingProgress() as tell:
        prepared = prepare(config.data, config.model.task, on_progress=tell)
    check(prepared)
    return start_training(config, folder, [progress], prepared), progress


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
    sizes = {"vocabulary": model.vocab_size, "classes": model.n_classes}
    named = "".join(f", {name} {size:,}" for name, size in sizes.items() if size)
    counts = {"left out": training.left_out, "cut": training.cut}
    told = [f"{what}: {', '.join(f'{n:,} {why}' for why, n in c.items())}" for what, c in counts.items() if c]
    say(f"Data:  {training.examples:,} examples" + (f" ({'; '.join(told)})" if told else ""))
    say(f"Model: {training.parameters:,} parameters{named}, {training.place}")
    if training.share:
        say(f"Base:  {training.config.finetune.base}")
        say(f"Trained: {training.share}")
    if trainer.state.step:
        say(f"Resuming at step {trainer.state.step:,}.")
