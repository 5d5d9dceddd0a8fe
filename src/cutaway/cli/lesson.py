"""cutaway lesson [N]"""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from cutaway.cli.console import command, out, say
from cutaway.course.cells import Cell, find_title, read_cells, to_notebook
from cutaway.course.progress import note_progress, read_progress
from cutaway.errors import DataError
from cutaway.system.resources import shipped

WIDEST, CODE = 100, 124  # columns that prose is set in, and that code may take


def lesson(
    number: Annotated[int | None, typer.Argument(help="Which lesson to run. None: list them.", metavar="[N]")] = None,
    all: Annotated[bool, typer.Option("--all", help="Run all of them, without pauses.")] = False,
    notebook: Annotated[bool, typer.Option("--notebook", help="Write it as a Jupyter notebook instead.")] = False,
    pause: Annotated[
        bool | None, typer.Option("--pause/--no-pause", help="Wait after each cell. Default: on a terminal.")
    ] = None,
    begin: Annotated[
        int, typer.Option("--from", help="Go on at this cell; those before it are run, but not shown.", min=1)
    ] = 1,
) -> None:
    """Learn how a Transformer works: eight lessons that run while you read them.

    Examples:  cutaway lesson

               cutaway lesson 3

               cutaway lesson 3 --notebook

    Figures are saved in lesson-figures/.
    """
    lessons = find_lessons()
    chosen = lessons if all else [lesson_of(lessons, number)] if number is not None else []
    if not chosen and notebook:
        raise DataError("--notebook of which lesson? Give its number, or --all.")
    if not chosen:
        list_lessons(lessons)
    for path in chosen:
        if notebook:
            write_notebook(path)
        else:
            waits = sys.stdin.isatty() and out.is_terminal if pause is None else pause
            run_lesson(path, waits and not all, begin)


def find_lessons() -> list[Path]:
    return sorted(shipped("lessons").glob("[0-9][0-9]_*.py"))


def lesson_of(lessons: list[Path], number: int) -> Path:
    for path in lessons:
        if int(path.name[:2]) == number:
            return path
    raise DataError(f"there is no lesson {number}. There are: {', '.join(str(int(p.name[:2])) for p in lessons)}.")


def list_lessons(lessons: list[Path]) -> None:
    progress = read_progress()
    table = Table(box=None, pad_edge=False)
    for column in ("", "lesson", "progress"):
        table.add_column(column)
    for path in lessons:
        cells = read_cells(path)
        done, whole = progress.get(path.stem, 0), len(cells)
        shown = "done" if done >= whole else f"{done} of {whole} cells" if done else "new"
        table.add_row(str(int(path.name[:2])), find_title(cells).partition(". ")[2], shown)
    out.print(table)
    first_open = next((p for p in lessons if progress.get(p.stem, 0) < len(read_cells(p))), None)
    if first_open is None:
        say(f"All are read. Next:  {command('check')}   or   {command('lab')}")
        return
    number, done = int(first_open.name[:2]), progress.get(first_open.stem, 0)
    go_on = ("--from", done + 1) if done else ()
    say(f"Next:  {command('lesson', number, *go_on)}")


def write_notebook(path: Path) -> None:
    from cutaway.runs.files import write_text

    target, notebook = Path(path.with_suffix(".ipynb").name), to_notebook(read_cells(path))
    if target.exists() and target.read_text(encoding="utf-8") != notebook:
        raise DataError(f"there is a {target} here already, and it is not as it was written. Rename it, or remove it.")
    write_text(target, notebook)
    say(f"Written: {target}. Open it with Jupyter (pip install jupyterlab), or an editor that knows notebooks.")


def run_lesson(path: Path, waits: bool, begin: int = 1) -> None:
    """Cell after cell: prose is shown, code is shown and run."""
    cells, number = read_cells(path), int(path.name[:2])
    if begin > len(cells):
        raise DataError(f"lesson {number} has {len(cells)} cells; --from {begin} is beyond its end.")
    namespace: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    for i, cell in enumerate(cells, 1):
        shown = i >= begin
        if shown:
            show_cell(cell)
        if cell.kind == "code":
            with nullcontext() if shown else redirect_stdout(StringIO()):
                run_cell(cell, path, namespace)
        note_progress(path.stem, i)
        if shown and waits and cell.kind == "code" and i < len(cells) and not goes_on(i, len(cells)):
            say(f"Stopped. Go on with: {command('lesson', number, '--from', i + 1)}")
            return


def show_cell(cell: Cell) -> None:
    """On a terminal as it is meant to look, within its width; in a pipe or a file as it is written."""
    from rich.markdown import Markdown
    from rich.padding import Padding
    from rich.syntax import Syntax

    if not out.is_terminal:
        sys.stdout.write(f"\n{cell.text}\n\n")
        return
    width = min(out.width, WIDEST)
    if cell.kind == "markdown":
        out.print(Markdown(cell.text), width=width, soft_wrap=False)
        return
    code = Syntax(cell.text, "python", theme="ansi_dark", background_color="default", word_wrap=True)
    out.print(Padding(code, (1, 0, 1, 2)), width=max(width, min(out.width, CODE)), soft_wrap=False)


def run_cell(cell: Cell, path: Path, namespace: dict[str, Any]) -> None:
    """Empty lines in front, so that an error names the line of the file."""
    exec(compile("\n" * cell.line + cell.text, str(path), "exec"), namespace)
    sys.stdout.flush()


def goes_on(done: int, whole: int) -> bool:
    """Wait for Enter; q, Ctrl-D or Ctrl-C ends."""
    try:
        return input(f"[{done} of {whole}]  Enter goes on, q stops: ").strip().lower() not in ("q", "quit")
    except (EOFError, KeyboardInterrupt):
        return False
