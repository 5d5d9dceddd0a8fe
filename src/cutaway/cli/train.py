"""cutaway train RECIPE"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.ahead import preparing
from cutaway.cli.console import clock, command, say
from cutaway.cli.evaluate import evaluate as evaluate_run
from cutaway.cli.recipes import find_recipe
from cutaway.config import Config, read_recipe
from cutaway.errors import Interrupted, RunError
from cutaway.runs import RunFolder

if TYPE_CHECKING:
    from cutaway.cli.progress import TrainingProgress
    from cutaway.train.begin import Training
    from cutaway.train.trainer import TrainState


def train(
    recipe: Annotated[str, typer.Argument(help="A recipe: a .toml file, or the name of a built-in one.")],
    set: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting, as in --set train.steps=500.", metavar="T.F=V")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="The run folder. Default: runs/ and the recipe's name.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run in this folder stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run that is in this folder.")] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write tensorboard/ into the run as well.")
    ] = False,
    evaluate: Annotated[bool, typer.Option("--evaluate", help="When trained, score it on the test data.")] = False,
) -> None:
    """Train a model from a recipe.

    Examples:  cutaway train reverse --set train.steps=1000

               cutaway train python-tagger --evaluate

    Ctrl-C saves and stops; the same command with --resume goes on.
    """
    path = find_recipe(recipe)
    config = read_recipe(path, set or ())
    folder = RunFolder(run or Path("runs") / path.stem)
    if folder.config.is_file() and not (resume or overwrite):
        raise RunError(
            f"there is a run in {str(folder)!r} already. Go on with --resume, replace it with --overwrite, "
            "or choose another folder with --run."
        )

    training, progress = make_training(config, folder, resume, tensorboard)
    again = command(
        "train", recipe, "--resume", *(("--run", run) if run else ()), *(w for s in set or () for w in ("--set", s))
    )
    state = run_training(training, progress, again)
    say(f"Trained {state.step:,} steps in {clock(state.seconds)}; the run is in {folder}.")
    if state.best_step:
        say(f"Best validation loss {state.best_loss:.4f}, at step {state.best_step:,}: these weights are kept.")
    if evaluate:
        evaluate_run(folder.path)
    say(f"Next:  {command('evaluate', folder)}" + next_use(config.model.task, folder))


def next_use(task: str, folder: RunFolder) -> str:
    from cutaway.pipeline import COMMANDS

    use = COMMANDS[task]
    return "" if use == "evaluate" or task == "image_classification" else f"   or   {command(use, folder, 'TEXT')}"


def make_training(
    config: Config, folder: RunFolder, resume: bool = False, tensorboard: bool = False
) -> tuple[Training, TrainingProgress]:
    """Everything up to the first step, with the data prepared while torch is imported."""
    tokenizer_file = folder.require_started().tokenizer if resume else None
    with preparing(config.data, config.model.task, tokenizer_file) as prepared:
        from cutaway.cli.progress import TrainingProgress
        from cutaway.cli.tensorboard import TensorBoard
        from cutaway.train import begin as start

        progress = TrainingProgress(config.model.task)
        observers = [progress, TensorBoard(folder)] if tensorboard else [progress]
        begin_or_resume = start.resume if resume else start.begin
        return begin_or_resume(config, folder, observers, prepared()), progress


def run_training(training: Training, progress: TrainingProgress, again: str) -> TrainState:
    """Train to the end; if the user stops it, say with which command it goes on."""
    describe(training)
    try:
        return training.trainer.run()
    except Interrupted as interrupted:
        raise Interrupted(f"{interrupted} Go on with: {again}") from None
    finally:
        progress.close()


def describe(training: Training) -> None:
    """Say what is going to be trained, before it takes time."""
    from cutaway.models.build import count_parameters

    trainer, model = training.trainer, training.config.model
    left_out = ", ".join(f"{n:,} {why}" for why, n in training.left_out.items())
    sizes = {"vocabulary": model.vocab_size, "classes": model.n_classes}
    named = "".join(f", {name} {size:,}" for name, size in sizes.items() if size)
    say(f"Data:  {training.examples:,} examples" + (f" (left out: {left_out})" if left_out else ""))
    say(f"Model: {count_parameters(trainer.model):,} parameters{named}, on {trainer.device}")
    if trainer.state.step:
        say(f"Resuming at step {trainer.state.step:,}.")
