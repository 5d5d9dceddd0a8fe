"""cutaway why RUN [TEXT]"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from cutaway.cli.console import err, out, print_json, print_text, say
from cutaway.cli.mask import FORMATS
from cutaway.cli.options import Device, Json, Plot, Run
from cutaway.cli.trace import load_input
from cutaway.errors import ConfigError, DataError

if TYPE_CHECKING:
    from cutaway.explore.causes.patching import PatchedPath, Patching
    from cutaway.explore.causes.why import Part, Why
    from cutaway.inference.pipelines import Pipeline

MAX_PARTS = 8  # heads and sub-layers in the table
MEAN_TEXTS = 100  # for --mean


def why(
    run: Run,
    text: Annotated[
        str | None,
        typer.Argument(help="The input. For images, a number. Default: an example.", metavar="TEXT"),
    ] = None,
    token: Annotated[
        list[str] | None,
        typer.Option(
            help="The output token to explain. Default: the least certain one. Repeat it for a sum.", metavar="TOKEN"
        ),
    ] = None,
    rival: Annotated[
        list[str] | None, typer.Option("--not", help="Why not this one? Default: the next best.", metavar="TOKEN")
    ] = None,
    step: Annotated[
        list[int] | None, typer.Option(help="Its place in the output, from 0, if the token is there several times.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Use this output instead of the model's own.", metavar="TEXT")
    ] = None,
    other: Annotated[
        str | None,
        typer.Option(help="A text with equally many tokens: where is the difference stored?", metavar="TEXT"),
    ] = None,
    path: Annotated[
        tuple[str, str] | None,
        typer.Option(help="With --other: how much moves directly from one part to a later one?", metavar="PART PART"),
    ] = None,
    mean: Annotated[
        bool, typer.Option("--mean", help="Also replace each part by its mean over test texts, not only by zeros.")
    ] = False,
    heads: Annotated[
        bool, typer.Option("--heads", help="Instead of a text: test tokens that are lost without each head.")
    ] = False,
    benchmark: Annotated[
        bool, typer.Option("--benchmark", help="Instead of a text: which methods name true causes (tinyworld).")
    ] = False,
    probes: Annotated[
        bool, typer.Option("--probes", help="Instead of a text: what each layer knows of the grammar (tinyworld).")
    ] = False,
    size: Annotated[
        int,
        typer.Option(help="Test examples of --heads and --probes, predictions of --benchmark.", min=10, metavar="N"),
    ] = 300,
    plot: Plot = None,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Explain why the model wrote one token and not another.

    Examples:  cutaway why runs/demo "He dances on the small beach." --token la --not le
               cutaway why runs/demo "He sees the cat." --other "He sees the box."
               cutaway why runs/demo --heads

    Prints how much each input token, head and sub-layer adds to the margin: logit(token) - logit(rival).
    """
    if plot and plot.suffix.lower() not in FORMATS:
        raise ConfigError(f"--plot {plot} has no known format. Use {', '.join(FORMATS)}.")
    if heads + benchmark + probes + (text is not None or plot is not None) > 1:
        raise ConfigError("--heads, --benchmark and --probes stand alone. Give one of them, without TEXT and --plot.")
    if path and other is None:
        raise ConfigError("--path compares two texts. Give the second one with --other.")
    if heads:
        measure_heads(run, size, json, device)
    elif benchmark:
        measure_methods(run, size, json, device)
    elif probes:
        probe_layers(run, size, json, device)
    else:
        prediction = {"token": token, "rival": rival, "step": step, "target": target}
        explain_text(run, text, other, path, mean, plot, json, device, **prediction)


def explain_text(
    run: Path,
    text: str | None,
    other: str | None,
    path: tuple[str, str] | None,
    mean: bool,
    plot: Path | None,
    json: bool,
    device: str,
    **prediction: Any,
) -> None:
    from cutaway.explore.causes import patch_texts, trace_path
    from cutaway.explore.causes import why as explain
    from cutaway.explore.values import without_nan
    from cutaway.inference.pipelines import load_pipeline

    pipeline = load_pipeline(run, device)
    content = load_input(pipeline, text)
    found = explain(pipeline, content, means=mean_parts(pipeline) if mean else None, **prediction)
    patching = moved = None
    if other is not None:
        both = content, load_input(pipeline, other)
        patching = patch_texts(pipeline, *both, found)
        moved = trace_path(pipeline, *both, found, *path) if path else None
    if json:
        more = {"patching": patching.as_json()} if patching else {}
        more |= {"path": moved.as_json()} if moved else {}
        print_json(without_nan({"run": str(run), **found.as_json(), **more}))
    else:
        print_why(found)
        if patching:
            print_patching(patching)
        if patching and moved:
            print_path(moved, patching)
    if plot:
        from cutaway.explore.causes.figure import patching_figure, why_figure
        from cutaway.explore.figures import save

        say(f"Wrote {save(patching_figure(patching) if patching else why_figure(found), plot)}")


def mean_parts(pipeline: Pipeline) -> dict[str, Any]:
    """The mean output of each part over some test texts."""
    from cutaway.explore.causes.effects import mean_outputs
    from cutaway.explore.examples import example_texts

    texts = example_texts(pipeline, MEAN_TEXTS)
    if not texts:
        raise DataError("this run has no data for a mean. Leave --mean out.")
    return mean_outputs(pipeline, [getattr(text, "pixels", text) for text in texts])


def measure_heads(run: Path, size: int, json: bool, device: str) -> None:
    from cutaway.explore.causes.head_effects import HEADER, cells_of, head_effects
    from cutaway.explore.explorer import LoadedRun

    loaded = LoadedRun(run, device)
    with progress_bar("switching heads off") as show:
        found = head_effects(loaded.final, loaded.held_out(size), on_progress=show)
    if json:
        print_json({"run": str(run), "sentence": found.sentence, "heads": found.as_json()})
        return
    print_text(found.sentence)
    out.print()
    print_table(HEADER, map(cells_of, found), texts=2)


def measure_methods(run: Path, size: int, json: bool, device: str) -> None:
    from cutaway.explore.causes.benchmark import benchmark
    from cutaway.explore.causes.grammar import tinyworld_pairs
    from cutaway.inference.pipelines import load_pipeline

    pipeline = load_pipeline(run, device)
    with progress_bar("explaining predictions") as show:
        found = benchmark(pipeline, tinyworld_pairs(pipeline), size, on_progress=show)
    if json:
        print_json({"run": str(run), **found.as_json()})
        return
    means, by_feature = found.tables()
    print_text(f"{len(found.features):,} predictions with known causes; {found.skipped:,} others were left out.")
    out.print()
    print_table(*means)
    say("Deletion: share of the margin that is left while words (or heads) are removed, strongest first; low is good.")
    say("Insertion: the same while they are added, strongest first; high is good.")
    out.print()
    print_table(*by_feature)


def probe_layers(run: Path, size: int, json: bool, device: str) -> None:
    from cutaway.explore.causes.grammar import tinyworld_pairs
    from cutaway.explore.causes.probing import probe_grammar
    from cutaway.inference.pipelines import load_pipeline

    pipeline = load_pipeline(run, device)
    with err.status("training linear probes ..."):
        found = probe_grammar(pipeline, tinyworld_pairs(pipeline)[:size])
    if json:
        print_json({"run": str(run), "probes": found.as_json()})
        return
    if not found:
        raise DataError(f"{size} sentences are too few to test a probe. Set a larger --size.")
    print_text("How often a linear probe reads a feature of the grammar at a source word, after each layer.\n")
    print_table(found.header, found.rows(), texts=2)
    say("A probe for random labels of the words reaches what words alone explain: see --json.")


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """-> show(done, total)"""
    with Progress(console=err, transient=True, disable=not err.is_terminal) as progress:
        bar = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


def print_why(found: Why) -> None:
    from cutaway.explore.causes.attribution import LARGE_GAP, SHARES, SHORT_NAMES

    print_text(found.sentence)
    out.print()
    header = ["input token", *(SHORT_NAMES[each.method] for each in found.attributions)]
    sides = [(name, [each.source for each in found.attributions]) for name in ("",) if found.source]
    sides += [("output so far", [each.target for each in found.attributions])] if found.target else []
    signs = ["" if each.method in SHARES else "+" for each in found.attributions]
    rows: list[list[str]] = []
    for (title, columns), names in zip(sides, filter(None, (found.source, found.target)), strict=True):
        rows += [[f"[dim]{title}[/]"]] if title and found.source else []
        for i, name in enumerate(names):
            cells = (f"{column[i]:{sign}.2f}" for column, sign in zip(columns, signs, strict=True))
            rows.append([escape(name), *cells])
    print_table(header, rows)
    gap = found.attribution("integrated_gradients").gap or 0.0
    say(f"Occlusion and gradients are in nats. The sum of the integrated gradients misses its target by {gap:.1g}.")
    if gap > LARGE_GAP:
        say("Warning: this is too much, so do not trust the column of the integrated gradients here.")
    out.print()
    strongest = sorted(found.parts, key=lambda part: -abs(part.effect))[:MAX_PARTS]
    has_means = any(part.mean_effect is not None for part in strongest)
    header = ["head or sub-layer", "margin without it", *(["with its mean"] if has_means else []), "direct"]
    print_table(header, [part_row(part, found) for part in strongest])
    out.print()
    print_table(["read after", "margin"], [[depth, f"{value:+.2f}"] for depth, value in found.lens])


def part_row(part: Part, found: Why) -> list[str]:
    mean = [] if part.mean_effect is None else [f"{found.margin + part.mean_effect:+.2f}"]
    direct = "" if part.direct is None else f"{part.direct:+.2f}"
    return [part.title, f"{found.margin + part.effect:+.2f}", *mean, direct]


def print_patching(found: Patching) -> None:
    from cutaway.explore.causes.patching import percent

    out.print()
    print_text(found.sentence)
    for grid in found.grids:
        out.print()
        print_table(grid.header, grid.rows_of_cells())
    out.print()
    strongest = sorted(found.parts, key=lambda part: -abs(part.share))[:MAX_PARTS]
    rows = [[part.title, percent(part.share)] for part in strongest]
    print_table(["head or sub-layer", "share restored"], rows)


def print_path(found: PatchedPath, patching: Patching) -> None:
    from cutaway.explore.causes.patching import percent

    shares = {part.title: part.share for part in patching.parts}
    rows = [(found.sender, shares[found.sender]), (found.receiver, shares[found.receiver])]
    out.print()
    print_text(found.sentence)
    out.print()
    rows.append(("only from the first to the second", found.share))
    print_table(["path", "share restored"], [[name, percent(share)] for name, share in rows])


def print_table(header: list[str], rows: Iterable[Iterable[str]], texts: int = 1) -> None:
    """The first columns are texts, the others numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold" if out.is_terminal else "")
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i < texts else "right", no_wrap=i > 0)
    for row in rows:
        table.add_row(*row)
    out.print(table)
