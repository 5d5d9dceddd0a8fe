"""cutaway lesson [N]"""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from cutaway.cli.completion import complete_lessons
from cutaway.cli.console import command, out, say
from cutaway.course.cells import Cell, find_title, read_cells, to_notebook
from cutaway.course.progress import read_progress, save_progress
from cutaway.errors import DataError
from cutaway.system.resources import shipped_folder

MAX_WIDTH, MAX_CODE_WIDTH = 100, 124  # columns of prose and of code


def lesson(
    number: Annotated[
        int | None,
        typer.Argument(help="The lesson to run. Default: list them.", metavar="N", autocompletion=complete_lessons),
    ] = None,
    all: Annotated[bool, typer.Option("--all", help="Run all lessons without pauses.")] = False,
    notebook: Annotated[bool, typer.Option("--notebook", help="Write a Jupyter notebook instead.")] = False,
    pause: Annotated[
        bool | None, typer.Option("--pause/--no-pause", help="Wait after each cell. Default: on a terminal.")
    ] = None,
    first_cell: Annotated[
        int, typer.Option("--from", help="Start at this cell. Earlier ones run, unseen.", min=1, metavar="CELL")
    ] = 1,
) -> None:
    """Learn how a Transformer works: eight lessons with code that runs.

    Examples:  cutaway lesson
               cutaway lesson 3
               cutaway lesson 3 --notebook

    Figures are saved in lesson-figures/.
    """
    lessons = find_lessons()
    chosen = lessons if all else [find_lesson(lessons, number)] if number is not None else []
    if not chosen and notebook:
        raise DataError("--notebook needs a lesson. Give its number, or --all.")
    if not chosen:
        list_lessons(lessons)
    for path in chosen:
        if notebook:
            write_notebook(path)
        else:
            pauses = sys.stdin.isatty() and out.is_terminal if pause is None else pause
            run_lesson(path, pauses and not all, first_cell)


def find_lessons() -> list[Path]:
    return sorted(shipped_folder("lessons").glob("[0-9][0-9]_*.py"))


def find_lesson(lessons: list[Path], number: int) -> Path:
    for path in lessons:
        if int(path.name[:2]) == number:
            return path
    raise DataError(f"there is no lesson {number}. Choose one of: {', '.join(str(int(p.name[:2])) for p in lessons)}.")


def list_lessons(lessons: list[Path]) -> None:
    progress = read_progress()
    table = Table(box=None, pad_edge=False)
    for column in ("", "lesson", "progress"):
        table.add_column(column)
    for path in lessons:
        cells = read_cells(path)
        done, total = progress.get(path.stem, 0), len(cells)
        state = "done" if done >= total else f"{done} of {total} cells" if done else "new"
        table.add_row(str(int(path.name[:2])), find_title(cells).partition(". ")[2], state)
    out.print(table)
    first_open = next((p for p in lessons if progress.get(p.stem, 0) < len(read_cells(p))), None)
    if first_open is None:
        say(f"All lessons are done. Next:  {command('check')}   or   {command('lab')}")
        return
    number, done = int(first_open.name[:2]), progress.get(first_open.stem, 0)
    start = ("--from", done + 1) if done else ()
    say(f"Next:  {command('lesson', number, *start)}")


def write_notebook(path: Path) -> None:
    from cutaway.runs.files import write_text

    target, notebook = Path(path.with_suffix(".ipynb").name), to_notebook(read_cells(path))
    if target.exists() and target.read_text(encoding="utf-8") != notebook:
        raise DataError(f"{target} exists already and was changed. Rename or remove it first.")
    write_text(target, notebook)
    say(f"Wrote {target}. Open it with Jupyter (pip install jupyterlab) or an editor for notebooks.")


def run_lesson(path: Path, pauses: bool, first_cell: int = 1) -> None:
    """Show each cell and run its code. Cells before `first_cell` run without output."""
    cells, number = read_cells(path), int(path.name[:2])
    if first_cell > len(cells):
        raise DataError(f"--from {first_cell} is too large: lesson {number} has {len(cells)} cells.")
    namespace: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    for i, cell in enumerate(cells, 1):
        is_visible = i >= first_cell
        if is_visible:
            show_cell(cell)
        if cell.kind == "code":
            with nullcontext() if is_visible else redirect_stdout(StringIO()):
                run_cell(cell, path, namespace)
        save_progress(path.stem, i)
        if is_visible and pauses and cell.kind == "code" and i < len(cells) and not wait_for_enter(i, len(cells)):
            say(f"Stopped. Continue with: {command('lesson', number, '--from', i + 1)}")
            return
    say(f"Six questions on this lesson: {command('quiz', number)}")


def show_cell(cell: Cell) -> None:
    """Formatted, within the width of the terminal; in a pipe, as in the file."""
    from rich.markdown import Markdown
    from rich.padding import Padding
    from rich.syntax import Syntax

    if not out.is_terminal:
        sys.stdout.write(f"\n{cell.text}\n\n")
        return
    width = min(out.width, MAX_WIDTH)
    if cell.kind == "markdown":
        out.print(Markdown(cell.text), width=width, soft_wrap=False)
        return
    code = Syntax(cell.text, "python", theme="ansi_dark", background_color="default", word_wrap=True)
    out.print(Padding(code, (1, 0, 1, 2)), width=max(width, min(out.width, MAX_CODE_WIDTH)), soft_wrap=False)


def run_cell(cell: Cell, path: Path, namespace: dict[str, Any]) -> None:
    """Run the code after as many empty lines as precede it, so that a traceback has the line numbers of the file."""
    exec(compile("\n" * cell.line + cell.text, str(path), "exec"), namespace)
    sys.stdout.flush()


def wait_for_enter(done: int, total: int) -> bool:
    """Whether to continue: Enter continues; q, Ctrl-D and Ctrl-C stop."""
    try:
        return input(f"[{done} of {total}]  Enter continues, q stops: ").strip().lower() not in ("q", "quit")
    except (EOFError, KeyboardInterrupt):
        return False
