"""docs/adding-a-variant.md is followed to the letter, on a copy of the source."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "adding-a-variant.md").read_text("utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def edit(folder, block):
    """A block names a file, then says what stands there and, after +++, what is to stand there instead."""
    header, rest = block.split("\n", 1)
    old, new = ("".join(line[1:] + "\n" for line in part.splitlines()) for part in rest.split("+++\n"))
    old, new = old.rstrip("\n"), new.rstrip("\n")
    file = folder / header.removeprefix("--- ")
    text = file.read_text("utf-8")
    assert text.count(old) == 1, f"{file.name} has {text.count(old)} places like: {old}"
    file.write_text(text.replace(old, new), "utf-8")


@pytest.fixture(scope="module")
def variant(tmp_path_factory):
    folder = tmp_path_factory.mktemp("variant")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for block in blocks("diff"):
        edit(folder, block)
    return folder


def run(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_three_files_are_touched_and_no_more():
    assert {block.split("\n")[0] for block in blocks("diff")} == {
        "--- src/cutaway/nn/relative_positions.py",
        "--- src/cutaway/models/build.py",
        "--- src/cutaway/config/model.py",
    }


def test_the_variant_can_be_used_and_agrees_with_its_formula(variant):
    assert "torch.Size([2, 4])" in run(variant, "-c", "\n".join(blocks("python")))


@pytest.mark.slow
def test_the_tests_of_all_variants_try_it_at_once(variant):
    tests = str(ROOT / "tests" / "models" / "test_properties.py")
    out = run(variant, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), tests,
              "-k", "kerple", "--no-header")  # fmt: skip
    assert int(re.search(r"(\d+) passed", out + "0 passed")[1]) > 20 or out.count(".") > 20
