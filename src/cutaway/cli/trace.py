"""cutaway trace RUN TEXT"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from cutaway.cli.console import out, print_json, print_text, say
from cutaway.cli.options import Device, Json, Run
from cutaway.errors import ConfigError, DataError

if TYPE_CHECKING:
    from cutaway.explore.steps import StepRecord
    from cutaway.explore.trace import Trace
    from cutaway.explore.traced_example import TracedExample
    from cutaway.inference.pipelines import Pipeline

PIPE_WIDTH = 1_000  # wide enough for every table, so that a pipe gets all of it
MAX_ALTERNATIVES = 4  # other candidates shown for each token


def trace(
    run: Run,
    text: Annotated[
        str | None,
        typer.Argument(
            help="The input; <mask> hides a token. For images, a number. Default: an example.", metavar="TEXT"
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Use this output instead of the model's own.", metavar="TEXT")
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Only steps with this name, as in --only 'decoder.layers.0.*'.", metavar="NAME")
    ] = None,
    off: Annotated[
        list[str] | None,
        typer.Option(help="Switch a part off, as in --off decoder.layers.1.feed_forward.", metavar="NAME"),
    ] = None,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Print every step of a forward pass with its statistics.

    Examples:  cutaway trace runs/demo "The small cat sleeps."
               cutaway trace runs/demo "The cat sleeps." --only "decoder.layers.1.*"
               cutaway trace runs/demo "The small cat sleeps." --json > trace.json

    Prints the equation, the shape, the mean, the standard deviation and the range of each step.
    """
    from cutaway.explore.ablation import ablate
    from cutaway.explore.steps import record_steps
    from cutaway.explore.traced_example import prepare_example
    from cutaway.explore.values import without_nan
    from cutaway.inference.pipelines import load_pipeline

    pipeline = load_pipeline(run, device)
    with ablate(pipeline.model, off or ()):
        example = prepare_example(pipeline, load_input(pipeline, text), target)
        with record_steps(pipeline.model) as steps:
            example.logits(pipeline.model)
        found, failure = trace_output(pipeline, example)
    chosen = [step for step in steps if only is None or fnmatchcase(step.name, only)]
    if not chosen:
        names = ", ".join(step.name for step in steps[:8])
        raise ConfigError(f"no step matches --only {only!r}. The steps are: {names}, ...")
    result = vars(found) if found else {"error": str(failure)}
    if json:
        print_json(without_nan({**result, "walk": [step.as_json() for step in chosen]}))
    else:
        say(" ".join(example.source or example.target_in))
        for name in off or ():
            say(f"Switched off: {name}")
        print_steps(chosen)
        if found:
            print_output(found)
    if failure:
        raise failure


def trace_output(pipeline: Pipeline, example: TracedExample) -> tuple[Trace | None, DataError | None]:
    """The trace with the beam search tree, or the error of a diverged model. The steps are printed in both cases."""
    from cutaway.explore.trace import beam_search_tree, trace_example

    try:
        found = trace_example(pipeline, example)
    except DataError as error:
        return None, error
    return dataclasses.replace(found, beam=beam_search_tree(pipeline, example.text)), None


def load_input(pipeline: Pipeline, text: str | None) -> Any:
    """The text, or an example of the run; for an image classifier, the example image with that number."""
    from cutaway.explore.examples import NO_IMAGES, example_texts, image_example

    has_images = pipeline.config.model.family == "vision"
    if text is not None and not has_images:
        return text
    examples = example_texts(pipeline)
    if not examples and has_images:
        raise DataError(NO_IMAGES)
    if not examples:
        raise DataError("this run has no data to take an example from. Give a text.")
    return image_example(examples, text or "0").pixels if has_images else examples[0]


def print_steps(steps: Sequence[StepRecord]) -> None:
    """One row for each step if the terminal is wide enough, else two."""
    rows = [(name, step) for name, step in step_names(steps)]
    widths = [max(len(cells[i]) for cells in (HEADER, *(step_cells(*row) for row in rows))) for i in range(6)]
    if out.is_terminal and sum(widths) + 2 * len(widths) > out.width:
        print_narrow_steps(rows)
        return
    table = Table(box=None, pad_edge=False, header_style="bold" if out.is_terminal else "")
    for i, name in enumerate(HEADER):
        table.add_column(name, no_wrap=True, justify="left" if i < 3 else "right")
    table.add_column("", no_wrap=not out.is_terminal)
    for name, step in rows:
        if step is None:
            table.add_row(f"[bold]{escape(name)}[/]")
            continue
        flags = "; ".join(step.summary.flags)
        table.add_row(*map(escape, step_cells(name, step)), f"[bold red]! {escape(flags)}[/]" if flags else "")
    out.print(table, width=None if out.is_terminal else PIPE_WIDTH)


def print_narrow_steps(rows: Sequence[tuple[str, StepRecord | None]]) -> None:
    """Two lines for each step: name and equation, then shape and statistics."""
    width = max(len(name) for name, _ in rows)
    layout = "    {:24}{:>10}{:>9}{:>20}"
    print_text(f"{HEADER[0]:{width}}  {HEADER[1]}", style="bold")
    print_text(layout.format(*HEADER[2:]), style="bold")
    for name, step in rows:
        if step is None:
            print_text(name, style="bold")
            continue
        cells = step_cells(name, step)
        print_text(
            f"{cells[0]:{width}}  {cells[1]}" if len(cells[1]) + width + 2 <= out.width else "  ".join(cells[:2])
        )
        print_text(layout.format(*cells[2:]), style="dim")
        if step.summary.flags:
            print_text("! " + "; ".join(step.summary.flags), indent=4, style="bold red")


HEADER = ("step", "equation", "axes", "mean", "std", "range")


def step_cells(name: str, step: StepRecord | None) -> tuple[str, ...]:
    if step is None:
        return (name, "", "", "", "", "")
    s = step.summary
    return name, step.equation, s.shape, f"{s.mean:.3g}", f"{s.std:.3g}", f"{s.min:.3g} … {s.max:.3g}"


def step_names(steps: Sequence[StepRecord]) -> Iterator[tuple[str, StepRecord | None]]:
    """Full names in a pipe. On a terminal, each layer has a heading (None), and its steps have short names."""
    before = ""
    for step in steps:
        layer = ".".join(step.name.split(".")[:3]) if ".layers." in step.name else ""
        if not out.is_terminal or not layer:
            yield step.name, step
        else:
            if layer != before:
                yield layer, None
            yield "  " + step.name.removeprefix(layer + "."), step
        before = layer


def print_output(found: Trace) -> None:
    """Each output token with its probability and the next best candidates, then the whole output."""
    table = Table(box=None, pad_edge=False, header_style="bold" if out.is_terminal else "")
    names = found.target_out or [tag["word"] for tag in found.tags or []] or [str(place) for place in found.hidden]
    for name in ("output", "p", "instead of"):
        table.add_column(name, justify="right" if name == "p" else "left")
    is_named = bool(found.tags or found.hidden)
    for number, step in enumerate(found.steps):
        if number < found.prompt:
            continue
        token = f"{names[number]} → {step['token']}" if is_named else step["token"]
        table.add_row(escape(token), f"{step['p']:.1%}", escape(alternatives(step)))
    out.print()
    if found.steps:
        out.print(table)
        out.print()
    log_p = "" if found.log_p is None else f"    (log p = {found.log_p:.3f})"
    print_text(found.output + log_p)
    for word in found.unknown:
        say(f"Note: not in this model's vocabulary: {word}")


def alternatives(step: dict[str, Any]) -> str:
    """The most probable tokens other than the output token."""
    others = [token for token, i in zip(step["tokens"], step["ids"], strict=True) if i != step["id"]]
    return "  ".join(others[:MAX_ALTERNATIVES])
