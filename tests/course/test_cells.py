"""Lessons as cells: parsing, display in a terminal, notebooks, and progress."""

import base64
import io
import json
import re
import subprocess
import sys
from itertools import pairwise

import jupytext
import nbformat
import pytest
from rich.console import Console

from cutaway.cli.lesson import find_lessons, show_cell, write_notebook
from cutaway.course.cells import Cell, find_title, read_cells, to_notebook
from cutaway.course.lesson import save, shapes
from cutaway.course.progress import progress_file, read_progress, save_progress
from cutaway.errors import DataError

LESSONS = find_lessons()
every_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


@every_lesson
def test_cells_agree_with_jupytext(path):
    theirs = jupytext.read(path).cells
    assert [(cell.kind, cell.text) for cell in read_cells(path)] == [(c.cell_type, c.source) for c in theirs]


@every_lesson
def test_the_notebook_is_valid(path):
    notebook = nbformat.reads(to_notebook(read_cells(path)), as_version=4)
    nbformat.validate(notebook)
    assert len(notebook.cells) == len(read_cells(path))


@every_lesson
def test_a_lesson_has_the_usual_structure(path):
    cells = read_cells(path)
    assert cells[0].kind == "markdown"
    assert find_title(cells).startswith(f"{int(path.name[:2])}. ")
    prose = "\n".join(cell.text for cell in cells if cell.kind == "markdown")
    for heading in ("## What to remember", "## Try it yourself"):
        assert heading in prose
    for before, cell in pairwise(cells):
        assert "markdown" in (before.kind, cell.kind), f"two code cells in a row, at line {cell.line}"
    assert max(len(cell.text.splitlines()) for cell in cells if cell.kind == "code") <= 45


def test_cells_have_their_line_numbers(tmp_path):
    file = tmp_path / "lesson.py"
    file.write_text(
        "# %% [markdown]\n# # 1. A\n#\n# text\n\n# %%\n\nx = 1\n\n\ny = 2\n\n# %%\n# %%\nz = 3  # %% no mark\n"
    )
    cells = read_cells(file)
    assert [(c.kind, c.line) for c in cells] == [("markdown", 1), ("code", 7), ("code", 14)]
    assert cells[0].text == "# 1. A\n\ntext"
    assert cells[1].text == "x = 1\n\n\ny = 2"
    assert find_title(cells) == "1. A"
    file.write_text("x = 1\n# %%\ny = 2\n")
    with pytest.raises(DataError, match="found text before the first cell"):
        read_cells(file)


def test_shapes_are_printed_with_axis_names(capsys):
    import numpy as np

    shapes(scores_BHQK=np.zeros((2, 8, 4, 5)), plain=np.zeros((3, 2)), wrong_BT=np.zeros(3))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["scores_BHQK", "B=2", "H=8", "Q=4", "K=5"], ["plain", "3", "2"], ["wrong_BT", "3"]]


def test_figures_are_saved_in_the_figure_folder(tmp_path, monkeypatch, capsys):
    from cutaway.explore.figures import new_figure

    monkeypatch.setenv("CUTAWAY_FIGURES", str(tmp_path / "figures"))
    save(new_figure(2, 2), "one")
    assert (tmp_path / "figures/one.png").read_bytes().startswith(b"\x89PNG")
    assert "one.png" in capsys.readouterr().out


def test_a_jupyter_kernel_displays_figures_instead_of_saving_them(tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("CUTAWAY_FIGURES", str(tmp_path / "figures"))
    code = "from cutaway.course.lesson import save\nfrom cutaway.explore.figures import new_figure\nsave(new_figure(2, 2), 'one')"
    notebook = nbformat.reads(to_notebook([Cell("code", code, 0)]), as_version=4)
    nbclient.NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()
    (output,) = notebook.cells[0].outputs  # once, and without its path
    assert base64.b64decode(output["data"]["image/png"]).startswith(b"\x89PNG")
    assert list(tmp_path.iterdir()) == []


def test_progress_only_increases_and_a_damaged_file_is_ignored(tmp_path, monkeypatch):
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path / "home"))
    assert read_progress() == {}
    save_progress("01_a", 5)
    save_progress("01_a", 3)
    save_progress("02_b", 1)
    assert read_progress() == {"01_a": 5, "02_b": 1}
    progress_file().write_text("{ damaged")
    assert read_progress() == {}
    save_progress("01_a", 1)
    assert read_progress() == {"01_a": 1}


LESSON = """# %% [markdown]
# # 7. A trial
#
# Some prose.

# %%
print("six times seven:", 6 * 7)

# %% [markdown]
# More prose.

# %%
raise ValueError("on line 13")
"""


def run(home, lessons, *arguments, stdin=""):
    """Run the command with other lessons."""
    code = "import sys, pathlib; from cutaway.cli import main\n"
    code += f"sys.modules['cutaway.cli.lesson'].shipped_folder = lambda name: pathlib.Path({str(lessons)!r})\nmain()"
    return subprocess.run(
        [sys.executable, "-c", code, "lesson", *arguments], cwd=home, input=stdin, capture_output=True, text=True,
        timeout=60, encoding="utf-8", env={"CUTAWAY_HOME": str(home / "home"), "PATH": ""},
    )  # fmt: skip


def test_the_command_lists_runs_and_writes_notebooks(tmp_path):
    lessons = tmp_path / "lessons"
    lessons.mkdir()
    (lessons / "07_trial.py").write_text(LESSON)
    assert "A trial" in run(tmp_path, lessons).stdout
    broken = run(tmp_path, lessons, "7")
    assert "six times seven: 42" in broken.stdout
    assert "line 13" in broken.stderr  # of the file, not of the cell
    assert "3 of 4 cells" in run(tmp_path, lessons).stdout
    paused = run(tmp_path, lessons, "7", "--pause", stdin="q\n")
    assert paused.returncode == 0
    assert "More prose" not in paused.stdout
    assert "Stopped" in paused.stderr
    assert run(tmp_path, lessons, "7", "--notebook").returncode == 0
    assert len(json.loads((tmp_path / "07_trial.ipynb").read_text())["cells"]) == 4
    for arguments, message in (
        (["9"], "there is no lesson 9. Choose one of: 7."),
        (["--notebook"], "--notebook needs a lesson"),
    ):
        refused = run(tmp_path, lessons, *arguments)
        assert refused.returncode == 1
        assert message in refused.stderr


@every_lesson
def test_a_narrow_terminal_shows_everything(path, monkeypatch):
    """Every word of the prose and the code is in the output, in 80 columns."""
    page = io.StringIO()
    console = Console(file=page, force_terminal=True, color_system=None, width=80, soft_wrap=True, highlight=False)
    monkeypatch.setattr(sys.modules["cutaway.cli.lesson"], "out", console)
    cells = read_cells(path)
    for cell in cells:
        show_cell(cell)
    assert max(len(line) for line in page.getvalue().splitlines()) <= 80
    shown = re.sub(r"\s+", "", page.getvalue())
    assert all(re.sub(r"\s+", "", cell.text) in shown for cell in cells if cell.kind == "code")
    prose = " ".join(cell.text for cell in cells if cell.kind == "markdown")
    words = set(re.findall(r"(?<![\w/.(\[])[a-z]{5,}(?![\w/.)\]])", prose))
    assert len(words) > 200
    assert not [word for word in words if word not in shown]


def test_a_notebook_that_was_changed_is_not_overwritten(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_notebook(LESSONS[0])
    write_notebook(LESSONS[0])  # writing the same again is allowed
    written = tmp_path / LESSONS[0].with_suffix(".ipynb").name
    written.write_text(written.read_text(encoding="utf-8") + " ", encoding="utf-8")
    with pytest.raises(DataError, match="exists already and was changed"):
        write_notebook(LESSONS[0])
