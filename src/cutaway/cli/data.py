"""cutaway data inspect RECIPE, cutaway data cache"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from cutaway.cli.base_command import BaseCommand, CommandGroup
from cutaway.cli.console import out, print_json, print_text
from cutaway.cli.options import Json, Recipe, Set
from cutaway.cli.preparing import PreparingProgress
from cutaway.cli.recipes import base_tokenizer, find_recipe
from cutaway.runs.recipe import read_recipe

if TYPE_CHECKING:
    from cutaway.diagnose.inspect import DataReport, LengthReport, SampleReport, SplitReport

BAR_WIDTH = 20  # of a histogram
MAX_LABELS = 12
NAMES = {"labels": "texts with labels", "tags": "sentences with tags"}

app = typer.Typer(
    help="Inspect the data of a recipe, or manage the data cache.\n\nExample:  cutaway data inspect reverse",
    cls=CommandGroup,
    rich_markup_mode=None,
)


@app.command(cls=BaseCommand)
def inspect(
    recipe: Recipe,
    set: Set = None,
    json: Json = False,
) -> None:
    """Describe a corpus: sizes, lengths, labels, duplicates, leaks.

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
    remove: Annotated[bool, typer.Option("--remove", help="Delete the listed corpora.")] = False,
    unused_for: Annotated[
        int,
        typer.Option("--unused-for", help="Only corpora that were not used for N days.", min=0, metavar="N"),
    ] = 0,
) -> None:
    """List or delete prepared corpora.

    Examples:  cutaway data cache
               cutaway data cache --unused-for 30 --remove

    Only large corpora are cached. A deleted one is prepared again when it is needed.
    """
    from cutaway.data.cache import DAY_SECONDS, cache_folder, list_entries, remove_entries

    seconds = unused_for * DAY_SECONDS
    found = remove_entries(seconds) if remove else [e for e in list_entries() if time.time() - e.last_used >= seconds]
    for entry in found:
        used = time.strftime("%Y-%m-%d", time.localtime(entry.last_used))
        content = f"{entry.task.replace('_', ' ')}, {entry.examples:,} examples"
        out.print(f"{entry.size / 1e6:10,.1f} MB  {used}  {entry.path.name[:8]}  {content}", highlight=False)
    corpora = f"{len(found)} prepared {'corpus' if len(found) == 1 else 'corpora'}"
    size = f"{sum(entry.size for entry in found) / 1e6:,.1f} MB"
    out.print(f"{corpora}, {size}, {'deleted from' if remove else 'in'} {cache_folder()}", highlight=False)


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
    rows = {"read": f"{split.examples:,}"}
    rows |= {reason: f"{n:,}" for reason, n in split.left_out.items()}
    if split.cut:
        rows["too long, cut"] = f"{split.cut:,}"
    if split.left_out:
        rows["kept"] = f"{split.kept:,}"
    if split.tokens:
        rows |= {"tokens": f"{split.tokens:,}"}
        if split.lengths and split.examples > 1:
            lengths = split.lengths
            rows |= {"length: median": f"{lengths.median:,}", "  95th percentile": f"{lengths.most:,}"}
            rows |= {"  longest": f"{lengths.longest:,}"}
    ratios = {"characters per token": split.characters_per_token, "tokens per word": split.tokens_per_word}
    rows |= {name: f"{ratio:.2f}" for name, ratio in ratios.items() if ratio is not None}
    if split.unknown is not None:
        rows["unknown tokens"] = f"{split.unknown:.2%}"
    if split.padding is not None:
        rows["padding in batches"] = f"{split.padding:.1%}"
    unit = "lines" if report.kind == "texts" else "examples"
    rows[f"repeated {unit}"] = f"{split.duplicates:,}"
    if split.overlap:
        rows[f"{unit} also in train"] = f"{split.overlap.exact:,}"
        if report.kind != "images":
            rows["  ignoring case, space"] = f"{split.overlap.alike:,}"
    return rows


def print_lengths(report: DataReport) -> None:
    train = report.splits["train"]
    if train.lengths is None or train.examples < 2:
        return
    print_title("Lengths of the training data, in tokens")
    note = f"more than {report.max_tokens}: {'cut' if train.cut else 'left out'}"
    print_histogram(train.lengths, report.max_tokens if report.kind != "texts" else 0, note)


def print_histogram(lengths: LengthReport, max_tokens: int, note: str) -> None:
    """`note` is printed beside the bin that contains `max_tokens`."""
    most = max(one.examples for one in lengths.bins)
    for one in lengths.bins:
        bar = "█" * round(BAR_WIDTH * one.examples / most) or ("▏" if one.examples else "")
        limit = f"   {note}" if max_tokens and one.low <= max_tokens < one.high else ""
        out.print(f"{f'{one.low:,}-{one.high:,}':>15}  {bar:{BAR_WIDTH}} {one.examples:>10,}{limit}".rstrip())


def print_labels(report: DataReport) -> None:
    """The share of each label in each split."""
    if not report.splits["train"].labels:
        return
    print_title("Labels")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("label")
    for name in report.splits:
        table.add_column(name, justify="right")
    totals = {name: sum(split.labels.values()) for name, split in report.splits.items()}
    labels = list(dict.fromkeys(label for split in report.splits.values() for label in split.labels))
    for label in labels[:MAX_LABELS]:
        shares = (split.labels.get(label, 0) / max(1, totals[name]) for name, split in report.splits.items())
        table.add_row(escape(label), *(f"{share:.1%}" for share in shares))
    out.print(table)
    if len(labels) > MAX_LABELS:
        out.print(f"and {len(labels) - MAX_LABELS} more")


def print_samples(report: DataReport) -> None:
    if report.kind == "images":
        return
    for name, split in report.splits.items():
        print_title(f"Examples of the {name} data")
        for sample in split.samples:
            print_sample(sample)


def print_sample(sample: SampleReport) -> None:
    for number, text in enumerate(sample.texts):
        print_text(text)
        if number < len(sample.tokens):
            print_text(" ".join(f"[{token}]" for token in sample.tokens[number]), indent=2, style="dim")
    out.print()


def print_findings(report: DataReport) -> None:
    print_title("Findings")
    for finding in report.findings:
        print_text(f"• {finding}")
    if not report.findings:
        out.print("No problem was found.")


def print_title(text: str) -> None:
    out.print(f"\n[bold]{text}[/]")
