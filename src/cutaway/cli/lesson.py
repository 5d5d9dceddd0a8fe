"""cutaway lesson [N]"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from cutaway.cli.console import command, out, say
from cutaway.errors import DataError
from cutaway.learn.cells import Cell, read_cells, title_of, to_notebook
from cutaway.learn.progress import note_progress, read_progress
from cutaway.shipped import shipped


def lesson(
    number: Annotated[int | None, typer.Argument(help="Which lesson to run. None: list them.", metavar="[N]")] = None,
    all: Annotated[bool, typer.Option("--all", help="Run all of them, without pauses.")] = False,
    notebook: Annotated[bool, typer.Option("--notebook", help="Write it as a Jupyter notebook instead.")] = False,
    pause: Annotated[
        bool | None, typer.Option("--pause/--no-pause", help="Wait after each cell. Default: on a terminal.")
    ] = None,
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
            run_lesson(path, waits and not all)


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
        table.add_row(str(int(path.name[:2])), title_of(cells).partition(". ")[2], shown)
    out.print(table)
    first_open = next((p for p in lessons if progress.get(p.stem, 0) < len(read_cells(p))), lessons[0])
    say(f"Next:  {command('lesson', int(first_open.name[:2]))}")


def write_notebook(path: Path) -> None:
    from cutaway.runs import write_text

    target = Path(path.with_suffix(".ipynb").name)
    write_text(target, to_notebook(read_cells(path)))
    say(f"Written: {target}. Open it with Jupyter, or an editor that knows notebooks.")


def run_lesson(path: Path, waits: bool) -> None:
    """Cell after cell: prose is shown, code is shown and run."""
    from rich.markdown import Markdown
    from rich.padding import Padding
    from rich.syntax import Syntax

    cells = read_cells(path)
    namespace: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    for i, cell in enumerate(cells):
        if cell.kind == "markdown":
            out.print(Markdown(cell.text))
        else:
            out.print(Padding(Syntax(cell.text, "python", theme="ansi_dark", background_color="default"), (1, 0, 1, 2)))
            run_cell(cell, path, namespace)
        note_progress(path.stem, i + 1)
        if waits and cell.kind == "code" and i + 1 < len(cells) and not goes_on(i + 1, len(cells)):
            say(f"Stopped. Begin again with: {command('lesson', int(path.name[:2]))}")
            return


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
