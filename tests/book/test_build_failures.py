"""What makes `make book` fail: a renamed function, a changed default, a number that no longer comes out.

Each test changes a copy of the repository and builds one page of the book.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture
def copy(tmp_path):
    """A copy of what the book reads, without results of earlier builds."""
    for name in ("src", "book", "experiments", "exercises", "lessons", "recipes"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("_build", "__pycache__"))
    shutil.copy(ROOT / "constraints.txt", tmp_path)
    return tmp_path


def build(copy, page, execute=False):
    """Build one page of the copy, with the copy's own source. Return the exit code and the messages."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy / "src"),
        "BOOK_ONLY": page,
        "BOOK_EXECUTION": "force" if execute else "off",
        "OMP_NUM_THREADS": "1",
    }
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "-c",
        "book",
        "-d",
        "doctrees",
        ".",
        "html",
    ]
    result = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=300)
    return result.returncode, result.stderr


def line_of(copy, page, text):
    lines = (copy / page).read_text("utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def change(path, old, new):
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_an_unchanged_page_builds(copy):
    code, messages = build(copy, "book/paper/attention.md")
    assert code == 0, messages


def test_a_renamed_function_fails_the_build(copy):
    page = "book/paper/attention.md"
    for path in (copy / "src").rglob("*.py"):
        text = path.read_text("utf-8")
        path.write_text(re.sub(r"\battend_exact\b", "attend_precisely", text), encoding="utf-8")
    code, messages = build(copy, page)
    line = line_of(copy, page, "{source} nn.kernels.attend_exact")
    assert code == 1
    assert f"{page}:{line}: " in messages
    assert "src/cutaway/nn/kernels.py has no 'attend_exact'. Rename it in this page too." in messages


def test_a_changed_default_fails_the_build(copy):
    page = "book/paper/training.md"
    change(copy / "src/cutaway/config/train.py", "warmup: int = 4_000", "warmup: int = 2_000")
    code, messages = build(copy, page)
    line = line_of(copy, page, "<!-- source: default train.beta1") + 1
    assert code == 1
    assert f"{page}:{line}: " in messages
    assert "the default of train.warmup is 2000, which is not in this text." in messages


def test_a_number_that_no_longer_comes_out_fails_the_build(copy):
    page = "book/paper/attention.md"
    change(copy / "src/cutaway/nn/kernels.py", "/ math.sqrt(q.size(-1))", "/ q.size(-1)")
    code, messages = build(copy, page, execute=True)
    line = line_of(copy, page, "assert torch.allclose(exact, fused, atol=1e-5)")
    assert code == 1
    assert f"{page}:{line}: " in messages
    assert "this cell fails: AssertionError at `assert torch.allclose(exact, fused, atol=1e-5)`." in messages


def test_a_result_of_another_experiment_fails_the_build(copy):
    page = "book/beyond/norms.md"
    change(copy / "experiments/norms.toml", "seeds = [1, 2, 3]", "seeds = [1, 2, 3, 4]")
    code, messages = build(copy, page)
    assert code == 1
    assert "norms.json has other seeds than experiments/norms.toml. Run: cutaway lab norms" in messages


@pytest.mark.parametrize("file", ["book/results/lab/no-mask.json", "src/cutaway/nn/kernels.py", "book/cells.py"])
def test_cells_run_again_when_a_file_that_they_read_changes(copy, file):
    def cache():
        code = "import runpy; print(runpy.run_path('book/conf.py')['nb_execution_cache_path'])"
        return subprocess.run([sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, check=True).stdout

    before = cache()
    assert cache() == before
    (copy / file).write_text((copy / file).read_text("utf-8") + "\n", encoding="utf-8")
    assert cache() != before
