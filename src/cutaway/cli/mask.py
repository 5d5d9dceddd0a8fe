"""cutaway mask RUN [TEXT]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress

from cutaway.cli.console import err, out, print_json, print_text, say
from cutaway.cli.options import Device, Json, Plot, Run
from cutaway.errors import ConfigError

if TYPE_CHECKING:
    from cutaway.explore.leaks import LeakReport
    from cutaway.explore.masks import MaskView
    from cutaway.inference.pipelines import Pipeline

MAX_COLUMNS = 40  # of a printed mask
FORMATS = (".png", ".svg", ".pdf")


def mask(
    run: Run,
    text: Annotated[str | None, typer.Argument(help="A text. Default: a short example.", metavar="TEXT")] = None,
    plot: Plot = None,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Show the attention masks, and prove that nothing leaks.

    Examples:  cutaway mask runs/demo "The small cat sleeps."
               cutaway mask runs/python-gpt --plot mask.png

    Prints which position may attend to which, as the model computes it. Then changes each position: outputs that must
    not depend on it must not change. The exit code is 1 if one does.
    """
    if plot and plot.suffix.lower() not in FORMATS:
        raise ConfigError(f"--plot {plot} has no known format. Use {', '.join(FORMATS)}.")
    from cutaway.explore.masks import mask_views
    from cutaway.inference.pipelines import load_pipeline

    pipeline = load_pipeline(run, device)
    example = load_example(pipeline, text)
    views = mask_views(pipeline, example)
    report = check_leaks(pipeline, example)
    if json:
        print_json({"run": str(run), "masks": [view.as_json() for view in views], "leaks": report.as_json()})
    else:
        print_masks(views)
        for sentence in report.sentences():
            print_text(sentence)
    if plot:
        from cutaway.explore import figures, model_figures

        say(f"Wrote {figures.save(model_figures.mask_panel(views), plot)}")
    if not report.ok:
        say(f"Something leaks: {len(report.leaks):,} outputs changed that must not.", "bold red")
        raise typer.Exit(1)


def load_example(pipeline: Pipeline, text: str | None) -> Any:
    """The encoded text, or an example of the run's data; for an image classifier, an image."""
    from cutaway.explore.inputs import encode_examples, short_example, some_examples

    is_vision = pipeline.config.model.family == "vision"
    if text is not None and is_vision:
        raise ConfigError("this run reads images. Leave TEXT out: an example image is used.")
    example = short_example(pipeline, some_examples(pipeline)) if text is None else text
    return example if is_vision else encode_examples(pipeline, [example])[0]


def check_leaks(pipeline: Pipeline, example: Any) -> LeakReport:
    from cutaway.explore.leaks import find_leaks

    with Progress(console=err, transient=True, disable=not err.is_terminal) as progress:
        bar = progress.add_task("changing each position", total=1.0)
        return find_leaks(pipeline, example, lambda done: progress.update(bar, completed=done))


def print_masks(views: list[MaskView]) -> None:
    if any("<pad>" in view.columns for view in views):
        print_text("<pad> fills a text up to the longest of its batch. No position may attend to it.\n")
    for view in views:
        print_text(f"{view.title}: {view.words}")
        lines = view.text_lines()
        is_too_wide = out.is_terminal and len(lines[0]) > out.width
        if len(view.columns) <= MAX_COLUMNS and not is_too_wide:
            for line in ["", *lines, ""]:
                print_text(line)
        else:
            say(f"({len(view.columns)} columns are too many to print. Draw them with --plot FILE.)")
