"""cutaway mask RUN [TEXT]"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress

from cutaway.cli.console import err, out, print_json, say
from cutaway.cli.texts import Device
from cutaway.errors import ConfigError

if TYPE_CHECKING:
    from cutaway.explore.leaks import LeakReport
    from cutaway.explore.masks import MaskView
    from cutaway.inference.pipelines import Pipeline

WIDEST = 40  # columns of a mask that is printed
ENDINGS = (".png", ".svg", ".pdf")


def mask(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/demo.")],
    text: Annotated[str | None, typer.Argument(help="A text; default: a short one of the run's data.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the masks into a file: .png, .svg, .pdf.", metavar="FILE")
    ] = None,
    device: Device = "auto",
    json: Annotated[bool, typer.Option("--json", help="Masks and numbers for programs.")] = False,
) -> None:
    """Show who may attend to whom in a model, and prove that nothing else gets through.

    The masks are those that the model really hands to its attention. Then every position is changed in turn, in double
    precision: no output may change that must not depend on it. If one does, the exit code is 1.

    Examples:  cutaway mask runs/demo "The small cat sleeps."

               cutaway mask runs/python-gpt --plot mask.png
    """
    if plot and plot.suffix.lower() not in ENDINGS:
        raise ConfigError(f"--plot {plot} has no ending that says what it is to be. Use {', '.join(ENDINGS)}.")
    from cutaway.explore.masks import mask_views
    from cutaway.inference.pipelines import load_pipeline

    pipeline = load_pipeline(run, device)
    example = example_of(pipeline, text)
    views = mask_views(pipeline, example)
    report = checked(pipeline, example)
    if json:
        print_json({"run": str(run), "masks": [view.as_json() for view in views], "leaks": report.as_json()})
    else:
        print_masks(views)
        for sentence in report.sentences():
            out.print(sentence, markup=False)
    if plot:
        from cutaway.explore import figures, model_figures

        say(f"Drawn: {figures.save(model_figures.mask_panel(views), plot)}")
    if not report.ok:
        say(f"Something leaks: {len(report.leaks):,} outputs changed that must not.", "bold red")
        raise typer.Exit(1)


def example_of(pipeline: Pipeline, text: str | None) -> Any:
    """The text as a Row of ids, or without one an example of the run's data; a picture is what it is."""
    from cutaway.explore.inputs import encode_examples, short_example, some_examples

    is_vision = pipeline.config.model.family == "vision"
    if text is not None and is_vision:
        raise ConfigError("this run reads images: leave the text out, and one of its own images is taken.")
    example = short_example(pipeline, some_examples(pipeline)) if text is None else text
    return example if is_vision else encode_examples(pipeline, [example])[0]


def checked(pipeline: Pipeline, example: Any) -> LeakReport:
    from cutaway.explore.leaks import find_leaks

    with Progress(console=err, transient=True, disable=not err.is_terminal) as progress:
        bar = progress.add_task("changing one position after the other", total=1.0)
        return find_leaks(pipeline, example, lambda done: progress.update(bar, completed=done))


def print_masks(views: list[MaskView]) -> None:
    if any("<pad>" in view.columns for view in views):
        out.print("Padding fills a text up to the length of the longest in its batch. Nobody may look at it.\n")
    for view in views:
        out.print(f"{view.title}: {view.words}", markup=False)
        if len(view.columns) <= WIDEST:
            out.print("\n".join(["", *view.text_lines(), ""]), markup=False)
        else:
            say(f"({len(view.columns)} columns are too many to print: draw them with --plot FILE.)")
