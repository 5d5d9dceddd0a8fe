"""cutaway data inspect RECIPE, cutaway data cache"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from cutaway.cli.base_command import BaseCommand
from cutaway.cli.console import out, print_json
from cutaway.cli.preparing import PreparingProgress
from cutaway.cli.recipes import base_tokenizer, find_recipe
from cutaway.runs.recipe import read_recipe

if TYPE_CHECKING:
    from cutaway.diagnose.inspect import DataReport, LengthReport, SampleReport, SplitReport

BAR = 30  # characters of the longest bar of a histogram
LABELS = 12  # that are shown; the rest is summed up
NAMES = {"labels": "texts with labels", "tags": "sentences with tags"}

app = typer.Typer(help="Look at the data of a recipe, and at what is kept of it.", no_args_is_help=True)


@app.callback()
def _data() -> None:
    """Look at the data of a recipe, before you train on it; and at what is kept of it."""


@app.command(cls=BaseCommand)
def inspect(
    recipe: Annotated[str, typer.Argument(help="A recipe: a .toml file, or the name of a built-in one.")],
    set: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting, as in --set data.vocab_size=4000.", metavar="T.F=V"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Everything, for programs.")] = False,
) -> None:
    """Say what is in a corpus and what is wrong with it: sizes, lengths, tokens, labels, copies, leaks.

    Examples:  cutaway data inspect reverse

               cutaway data inspect my-recipe.toml --set data.tokenizer=word

               cutaway data inspect my-recipe.toml --json | jq .findings
    """
    from cutaway.diagnose.inspect import inspect_data

    config = read_recipe(find_recipe(recipe), set or ())
    with PreparingProgress() as progress:
        report = inspect_data(config.data, config.model.task, progress, base_tokenizer(config))
    if json:
        print_json(report.to_dict())
        return
    print_overview(report)
    print_lengths(report)
    print_labels(report)
    print_samples(report)
    print_findings(report)


@app.command(cls=BaseCommand)
def cache(
    remove: Annotated[bool, typer.Option("--remove", help="Delete what is listed.")] = False,
    unused_for: Annotated[
        int,
        typer.Option("--unused-for", help="Only what nobody has used for so many days.", min=0, metavar="DAYS"),
    ] = 0,
) -> None:
    """List the large corpora that were prepared and kept, or delete them. They are made again when they are needed.

    Examples:  cutaway data cache

               cutaway data cache --unused-for 30 --remove
    """
    from cutaway.data.cache import A_DAY, cache_folder, entries, remove_entries

    seconds = unused_for * A_DAY
    found = remove_entries(seconds) if remove else [e for e in entries() if time.time() - e.last_used >= seconds]
    for entry in found:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.last_used))
        what = f"{entry.task.replace('_', ' ')}, {entry.examples:,} examples"
        out.print(f"{entry.size / 1e6:10,.1f} MB  {used}  {entry.place.name[:8]}  {what}", highlight=False)
    told = f"{len(found)} prepared {'corpus' if len(found) == 1 else 'corpora'}"
    told += f", {sum(entry.size for entry in found) / 1e6:,.1f} MB"
    out.print(f"{told}, {'deleted from' if remove else 'in'} {cache_folder()}", highlight=False, soft_wrap=True)


def print_overview(report: DataReport) -> None:
    """A row for each figure, a column for each split."""
    rows = {name: figures(report, split) for name, split in report.splits.items()}
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(NAMES.get(report.kind, report.kind))
    for name in rows:
        table.add_column(name, justify="right")
    for figure in dict.fromkeys(figure for row in rows.values() for figure in row):
        table.add_row(figure, *(row.get(figure, "") for row in rows.values()))
    out.print(table)
    if report.tokenizer:
        learned = "from a file" if report.tokenizer == "file" else f"{report.tokenizer}, learned from the training data"
        out.print(f"\nvocabulary: {report.vocab_size:,} tokens ({learned})")


def figures(report: DataReport, split: SplitReport) -> dict[str, str]:
    shown = {"read": f"{split.examples:,}"}
    shown |= {why: f"{n:,}" for why, n in split.left_out.items()}
    if split.cut:
        shown["too long, cut"] = f"{split.cut:,}"
    if split.left_out:
        shown["kept"] = f"{split.kept:,}"
    if split.tokens:
        shown |= {"tokens": f"{split.tokens:,}"}
        if split.lengths and split.examples > 1:
            lengths = split.lengths
            shown |= {"length: median": f"{lengths.median:,}", "  95% are at most": f"{lengths.most:,}"}
            shown |= {"  longest": f"{lengths.longest:,}"}
    ratios = {"characters a token": split.characters_per_token, "tokens a word": split.tokens_per_word}
    shown |= {name: f"{ratio:.2f}" for name, ratio in ratios.items() if ratio is not None}
    if split.unknown is not None:
        shown["unknown tokens"] = f"{split.unknown:.2%}"
    if split.padding is not None:
        shown["padding in batches"] = f"{split.padding:.1%}"
    what = "lines" if report.kind == "texts" else "examples"
    shown[f"repeated {what}"] = f"{split.duplicates:,}"
    if split.overlap:
        shown[f"{what} that train has too"] = f"{split.overlap.exact:,}"
        if report.kind != "images":
            shown["  ignoring case and space"] = f"{split.overlap.alike:,}"
    return shown


def print_lengths(report: DataReport) -> None:
    train = report.splits["train"]
    if train.lengths is None or train.examples < 2:
        return
    title("Lengths of the training data, in tokens")
    limit = f"more than {report.max_tokens} are {'cut' if train.cut else 'left out'}"
    print_histogram(train.lengths, report.max_tokens if report.kind != "texts" else 0, limit)


def print_histogram(lengths: LengthReport, max_tokens: int, said: str) -> None:
    most = max(one.examples for one in lengths.bins)
    for one in lengths.bins:
        bar = "█" * round(BAR * one.examples / most) or ("▏" if one.examples else "")
        limit = f"   {said}" if max_tokens and one.low <= max_tokens < one.high else ""
        out.print(f"{f'{one.low:,}-{one.high:,}':>15}  {bar:{BAR}} {one.examples:>10,}{limit}".rstrip())


def print_labels(report: DataReport) -> None:
    """How often each label occurs, in per cent of a split."""
    if not report.splits["train"].labels:
        return
    title("Labels")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("label")
    for name in report.splits:
        table.add_column(name, justify="right")
    totals = {name: sum(split.labels.values()) for name, split in report.splits.items()}
    everywhere = list(dict.fromkeys(label for split in report.splits.values() for label in split.labels))
    for label in everywhere[:LABELS]:
        shares = (split.labels.get(label, 0) / max(1, totals[name]) for name, split in report.splits.items())
        table.add_row(escape(label), *(f"{share:.1%}" for share in shares))
    out.print(table)
    if len(everywhere) > LABELS:
        out.print(f"and {len(everywhere) - LABELS} more")


def print_samples(report: DataReport) -> None:
    if report.kind == "images":
        return
    for name, split in report.splits.items():
        title(f"Some of the {name} data")
        for sample in split.samples:
            print_sample(sample)


def print_sample(sample: SampleReport) -> None:
    for number, text in enumerate(sample.texts):
        out.print(text, markup=False)
        if number < len(sample.tokens):
            out.print("  " + " ".join(f"[{token}]" for token in sample.tokens[number]), markup=False, style="dim")
    out.print()


def print_findings(report: DataReport) -> None:
    title("What deserves attention")
    for finding in report.findings:
        out.print(f"• {finding}", markup=False)
    if not report.findings:
        out.print("Nothing that I know of.")


def title(text: str) -> None:
    out.print(f"\n[bold]{text}[/]")
