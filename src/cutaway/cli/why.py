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
from cutaway.errors import ConfigError

if TYPE_CHECKING:
    from cutaway.explore.causes.patching import Patching
    from cutaway.explore.causes.why import Part, Why

MAX_PARTS = 8  # heads and sub-layers in the table


def why(
    run: Run,
    text: Annotated[
        str | None,
        typer.Argument(help="The input. For images, a number. Default: an example.", metavar="TEXT"),
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="The output token to explain. Default: the least certain one.", metavar="TOKEN")
    ] = None,
    rival: Annotated[
        str | None, typer.Option("--not", help="Why not this one? Default: the next best.", metavar="TOKEN")
    ] = None,
    step: Annotated[
        int | None, typer.Option(help="Its place in the output, from 0, if the token is there several times.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Use this output instead of the model's own.", metavar="TEXT")
    ] = None,
    other: Annotated[
        str | None,
        typer.Option(help="A text with equally many tokens: where is the difference stored?", metavar="TEXT"),
    ] = None,
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
    if heads:
        measure_heads(run, size, json, device)
    elif benchmark:
        measure_methods(run, size, json, device)
    elif probes:
        probe_layers(run, size, json, device)
    else:
        explain_text(run, text, other, plot, json, device, token=token, rival=rival, step=step, target=target)


def explain_text(
    run: Path, text: str | None, other: str | None, plot: Path | None, json: bool, device: str, **prediction: Any
) -> None:
    from cutaway.explore.causes import patch_texts
    from cutaway.explore.causes import why as explain
    from cutaway.explore.values import without_nan
    from cutaway.inference.pipelines import load_pipeline

    pipeline = load_pipeline(run, device)
    content = load_input(pipeline, text)
    found = explain(pipeline, content, **prediction)
    patching = patch_texts(pipeline, content, other, found) if other is not None else None
    if json:
        more = {"patching": patching.as_json()} if patching else {}
        print_json(without_nan({"run": str(run), **found.as_json(), **more}))
    else:
        print_why(found)
        if patching:
            print_patching(patching)
    if plot:
        from cutaway.explore.causes.figure import patching_figure, why_figure
        from cutaway.explore.figures import save

        say(f"Wrote {save(patching_figure(patching) if patching else why_figure(found), plot)}")


def measure_heads(run: Path, size: int, json: bool, device: str) -> None:
    from cutaway.explore.causes.head_effects import cells_of, head_effects
    from cutaway.explore.explorer import LoadedRun

    loaded = LoadedRun(run, device)
    with progress_bar("switching heads off") as show:
        found = head_effects(loaded.final, loaded.held_out(size), on_progress=show)
    if json:
        print_json({"run": str(run), "sentence": found.sentence, "heads": found.as_json()})
        return
    print_text(found.sentence)
    out.print()
    header = ["head", "looks at", "tokens lost", "95 % interval", "copying", "induction"]
    print_table(header, [list(cells_of(row)) for row in found], texts=2)


def measure_methods(run: Path, size: int, json: bool, device: str) -> None:
    from cutaway.data.tasks import load_split
    from cutaway.explore.causes.benchmark import benchmark
    from cutaway.inference.pipelines import load_pipeline

    pipeline = load_pipeline(run, device)
    with progress_bar("explaining predictions") as show:
        pairs = load_split(pipeline.config.data, "translation", "test")
        found = benchmark(pipeline, pairs, size, on_progress=show)
    if json:
        print_json({"run": str(run), **found.as_json()})
        return
    print_text(f"{len(found.features):,} predictions with known causes; {found.skipped:,} others were left out.")
    out.print()
    columns = ("top", "precision", "deletion", "insertion")
    means = found.means()
    rows = [
        [name.replace("_", " "), *(f"{row[each]:.1%}" if each in row else "" for each in columns)]
        for name, row in means.items()
    ]
    print_table(["method", "top word is a cause", "average precision", "deletion", "insertion"], rows)
    say("Deletion: share of the margin that is left while words (or heads) are removed, strongest first; low is good.")
    say("Insertion: the same while words are added, strongest first; high is good.")
    out.print()
    features = found.top_by_feature()
    methods = next(iter(features.values()), {})
    header = ["top word is a cause", *(f"{name} ({found.features.count(name)})" for name in features)]
    rows = [[name.replace("_", " "), *(f"{by[name]:.0%}" for by in features.values())] for name in methods]
    print_table(header, rows)


def probe_layers(run: Path, size: int, json: bool, device: str) -> None:
    from cutaway.data.tasks import load_split
    from cutaway.explore.causes.probing import probe_grammar
    from cutaway.inference.pipelines import load_pipeline

    pipeline = load_pipeline(run, device)
    with err.status("training linear probes ..."):
        found = probe_grammar(pipeline, load_split(pipeline.config.data, "translation", "test")[:size])
    if json:
        print_json({"run": str(run), "probes": [vars(result) for result in found]})
        return
    print_text("How often a linear probe reads a feature of the grammar at a source word, after each layer.\n")
    depths = list(found[0].accuracy) if found else []
    header = ["word", "feature", *depths, "most frequent value", "test words"]
    rows = [
        [each.role, each.feature, *(f"{each.accuracy[depth]:.0%}" for depth in depths), f"{each.majority:.0%}",
         f"{each.count:,}"]
        for each in found
    ]  # fmt: skip
    print_table(header, rows, texts=2)
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
    print_table(["head or sub-layer", "margin without it", "direct"], [part_row(part, found) for part in strongest])
    out.print()
    print_table(["read after", "margin"], [[depth, f"{value:+.2f}"] for depth, value in found.lens])


def part_row(part: Part, found: Why) -> list[str]:
    direct = "" if part.direct is None else f"{part.direct:+.2f}"
    return [part.title, f"{found.margin + part.effect:+.2f}", direct]


def print_patching(found: Patching) -> None:
    out.print()
    print_text(found.sentence)
    for grid in found.grids:
        out.print()
        tokens = [a if a == b else f"{a}→{b}" for a, b in zip(grid.tokens, grid.others, strict=True)]
        columns = zip(*grid.shares, strict=True)
        cells = [[token, *map(percent, column)] for token, column in zip(tokens, columns, strict=True)]
        print_table([f"{grid.stack}: share restored", *grid.rows], cells)
    out.print()
    strongest = sorted(found.parts.items(), key=lambda part: -abs(part[1]))[:MAX_PARTS]
    rows = [[found.titles[id], percent(share)] for id, share in strongest]
    print_table(["head or sub-layer", "share restored"], rows)


def percent(share: float) -> str:
    return f"{round(share, 2) + 0.0:.0%}"  # + 0.0: no "-0%"


def print_table(header: list[str], rows: Iterable[list[Any]], texts: int = 1) -> None:
    """The first columns are texts, the others numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold" if out.is_terminal else "")
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i < texts else "right", no_wrap=i > 0)
    for row in rows:
        table.add_row(*row)
    out.print(table)
