"""A wheel, and a base install of it in a fresh environment: light, without torch, with the recipes inside."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]


def run(*command, **kwargs):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600, **kwargs)
    assert result.returncode == 0, result.stdout + result.stderr
    return result


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-c", ROOT / "constraints.txt", "-w", folder, ROOT
    )
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_what_a_user_needs(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for needed in (
        "py.typed",
        "recipes/demo.toml",
        "lessons/01_attention_mechanism.py",
        "exercises/exercise_05_full_transformer.py",
        "exercises/solutions/exercise_05_full_transformer.py",
        "experiments/no-residual.toml",
        "explore/report.css",
        "runs/__init__.py",
        "data/builtin/tinyworld/__init__.py",
    ):
        assert f"cutaway/{needed}" in names
    assert not [name for name in names if name.startswith(("tests", "docs"))]


def test_the_base_install_is_light_and_says_what_is_missing(wheel, tmp_path):
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt", wheel)
    size = sum(f.stat().st_size for f in (tmp_path / "venv/lib").rglob("*") if f.is_file() and not f.is_symlink())
    pip = sum(
        f.stat().st_size
        for f in (tmp_path / "venv/lib").rglob("*")
        if {"pip", "setuptools"} & set(f.parts) and f.is_file()
    )
    assert (size - pip) / 1e6 < 155  # numpy and tokenizers are most of it; exercises and their grader add 2 MB
    installed = run(python, "-m", "pip", "list", "--format=freeze").stdout
    assert "torch" not in installed
    cutaway = tmp_path / "venv/bin/cutaway"
    assert "translate" in run(cutaway, "--help").stdout
    code = (
        "from cutaway import Tokenizer, load_builtin, read_recipe; from cutaway.cli.recipes import find_recipe;"
        "read_recipe(find_recipe('demo')); pairs = load_builtin('tinyworld:en-fr', 'train', 50);"
        "t = Tokenizer.train([p.target for p in pairs], 'word', 500); assert t.decode(t.encode(pairs[0].target)) == pairs[0].target"
    )
    run(python, "-c", code)
    # it trains and runs translators and text generators, on the NumPy engine
    small = ("model.d_model=16", "model.d_ff=32", "data.size=300", "data.heldout_size=30", "train.steps=20")
    settings = [word for setting in small for word in ("--set", setting)]
    run(cutaway, "train", "reverse", "--engine", "numpy", "--run", "mine", *settings, cwd=tmp_path)
    assert run(cutaway, "translate", "mine", "a b c", cwd=tmp_path).stdout.strip()
    for arguments in (["translate", "mine", "hi", "--engine", "torch"], ["demo"]):
        result = subprocess.run([cutaway, *arguments], capture_output=True, text=True, timeout=60, cwd=tmp_path)
        assert result.returncode == 1
        assert (
            "this needs torch, which is not installed. Install it with: pip install 'cutaway[torch]'" in result.stderr
        )
        assert "Traceback" not in result.stderr
    assert not (tmp_path / "runs").exists()
