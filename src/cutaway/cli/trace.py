"""cutaway trace RUN TEXT"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from cutaway.cli.console import out, print_json, say
from cutaway.cli.texts import Device
from cutaway.errors import ConfigError, DataError

if TYPE_CHECKING:
    from cutaway.explore.steps import StepRecord
    from cutaway.explore.trace import Trace
    from cutaway.explore.traced_example import TracedExample
    from cutaway.inference.pipelines import Pipeline

UNBOUNDED = 1_000  # columns of a pipe, which cuts nothing off
RIVALS = 4  # candidates that are shown beside the one that was taken


def trace(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/demo.")],
    text: Annotated[
        str | None,
        typer.Argument(help="What the model reads; <mask> hides a token; of pictures, a number. None: an example."),
    ] = None,
    target: Annotated[str | None, typer.Option(help="Lead the model through this answer, not its own.")] = None,
    only: Annotated[
        str | None, typer.Option(help="Only steps whose name fits, as in --only 'decoder.layers.0.*'.", metavar="NAME")
    ] = None,
    off: Annotated[
        list[str] | None, typer.Option(help="Switch this off first, as in --off decoder.layers.1.feed_forward.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Everything, attention and candidates too.")] = False,
    device: Device = "auto",
) -> None:
    """Print every step of a forward pass in reading order: name, equation, axes, mean, spread, range, what is wrong.

    Examples:  cutaway trace runs/demo "The small cat sleeps."

               cutaway trace runs/demo "The small cat sleeps." --only "decoder.layers.1.*"

               cutaway trace runs/demo "The small cat sleeps." --json > trace.json
    """
    from cutaway.explore.ablation import ablate
    from cutaway.explore.steps import record_steps
    from cutaway.explore.traced_example import prepare_example
    from cutaway.explore.values import without_nan
    from cutaway.inference.pipelines import load_pipeline

    pipeline = load_pipeline(run, device)
    with ablate(pipeline.model, off or ()):
        example = prepare_example(pipeline, content(pipeline, text), target)
        with record_steps(pipeline.model) as steps:
            example.logits(pipeline.model)
        found, trouble = traced(pipeline, example)
    chosen = [step for step in steps if only is None or fnmatchcase(step.name, only)]
    if not chosen:
        raise ConfigError(f"no step fits --only {only!r}. There are: {', '.join(step.name for step in steps[:8])}, ...")
    told = vars(found) if found else {"error": str(trouble)}
    if json:
        print_json(without_nan({**told, "walk": [step.as_json() for step in chosen]}))
    else:
        say(" ".join(example.source or example.target_in))
        for id in off or ():
            say(f"Switched off: {id}")
        print_walk(chosen)
        if found:
            print_answers(found)
    if trouble:
        raise trouble


def traced(pipeline: Pipeline, example: TracedExample) -> tuple[Trace | None, DataError | None]:
    """What the model made of it; or, of a model that has diverged, why there is nothing. The walk is shown anyway."""
    from cutaway.explore.trace import beam_search_tree, trace_example

    try:
        found = trace_example(pipeline, example)
    except DataError as error:
        return None, error
    return dataclasses.replace(found, beam=beam_search_tree(pipeline, example.text)), None


def content(pipeline: Pipeline, text: str | None) -> Any:
    """The text, or an example of the run's own; of a classifier of images, the example of that number."""
    from cutaway.explore.examples import NO_IMAGES, example_texts, image_example

    has_images = pipeline.config.model.family == "vision"
    if text is not None and not has_images:
        return text
    examples = example_texts(pipeline)
    if not examples and has_images:
        raise DataError(NO_IMAGES)
    if not examples:
        raise DataError("the data of this run is not at hand, so there is no example to take. Give a text.")
    return image_example(examples, text or "0").pixels if has_images else examples[0]


def print_walk(steps: Sequence[StepRecord]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold" if out.is_terminal else "")
    for name in ("step", "equation", "axes"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for name in ("mean", "spread", "range"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=not out.is_terminal)
    for indented, step in outlined(steps):
        if step is None:
            table.add_row(f"[bold]{escape(indented)}[/]")
            continue
        s = step.summary
        flags = "; ".join(s.flags)
        table.add_row(
            escape(indented), escape(step.equation), s.shape, digits(s.mean), digits(s.std),
            f"{digits(s.min)} … {digits(s.max)}", f"[bold red]! {escape(flags)}[/]" if flags else "",
        )  # fmt: skip
    out.print(table, width=None if out.is_terminal else UNBOUNDED)


def outlined(steps: Sequence[StepRecord]) -> Iterator[tuple[str, StepRecord | None]]:
    """A pipe gets whole names; on a terminal each layer gets a heading, and its steps are named within it."""
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


def digits(value: float) -> str:
    return f"{value:.3g}"


def print_answers(found: Trace) -> None:
    """What was said, and what else was considered."""
    table = Table(box=None, pad_edge=False, header_style="bold" if out.is_terminal else "")
    names = found.target_out or [tag["word"] for tag in found.tags or []] or [str(place) for place in found.hidden]
    for name in ("answer", "p", "instead of"):
        table.add_column(name, justify="right" if name == "p" else "left")
    is_named = bool(found.tags or found.hidden)
    for number, step in enumerate(found.steps):
        if number < found.prompt:
            continue
        token = f"{names[number]} → {step['token']}" if is_named else step["token"]
        table.add_row(escape(token), f"{step['p']:.1%}", escape(rivals(step)))
    out.print()
    if found.steps:
        out.print(table)
        out.print()
    sure = "" if found.log_p is None else f"    (log p = {found.log_p:.3f})"
    out.print(escape(found.output + sure), markup=True)
    for word in found.unknown:
        say(f"Note: not in this model's vocabulary: {word}")


def rivals(step: dict[str, Any]) -> str:
    """The likeliest others, with how much likelier the answer was."""
    others = [(t, v) for t, v, i in zip(step["tokens"], step["logits"], step["ids"], strict=True) if i != step["id"]]
    return "  ".join(token for token, _ in others[:RIVALS])
