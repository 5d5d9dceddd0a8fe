"""`import cutaway`: instant, complete, documented, and helpful when something is missing."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import cutaway

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("name", cutaway.__all__)
def test_every_public_name_resolves(name):
    assert getattr(cutaway, name).__name__ == name


def test_the_docs_list_exactly_the_public_names():
    listed = re.findall(r"^\| `(\w+)", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == cutaway.__all__


def test_unknown_name():
    with pytest.raises(AttributeError, match="has no attribute 'Transfomer'"):
        cutaway.Transfomer


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_nothing_heavy_is_imported_before_it_is_used():
    code = (
        "import sys, cutaway, cutaway.cli; cutaway.ModelConfig; cutaway.Tokenizer; cutaway.RunFolder; "
        "print([m for m in ('torch', 'matplotlib', 'sacrebleu', 'fastapi') if m in sys.modules])"
    )
    result = run_python(code)
    assert result.stdout.strip() == "[]", result.stderr


@pytest.mark.parametrize(
    ("package", "code", "extra"),
    [
        ("torch", "import cutaway; cutaway.build_model", "cutaway[torch]"),
        ("torch", "import sys; sys.argv = ['cutaway', 'train', 'reverse', '--run', 'runs/never', '--set', 'data.size=50']; import cutaway.cli; cutaway.cli.main()", "cutaway[torch]"),
        ("sacrebleu", "from cutaway.metrics.scores import bleu; bleu(['a'], ['a'])", "cutaway[torch]"),
        ("matplotlib", "from cutaway.explore.figures import new_figure; new_figure(1, 1)", "cutaway[show]"),
    ],
)  # fmt: skip
def test_a_missing_extra_gives_an_install_hint(package, code, extra):
    """The package is hidden from the import system, as if it were not installed."""
    hide = (
        "import sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {package!r}:\n"
        f"            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)\n"
        "sys.meta_path.insert(0, Hide())\n"
    )
    result = run_python(hide + code)
    assert result.returncode != 0
    assert f"pip install '{extra}'" in result.stderr
    if "main()" in code:
        assert "Traceback" not in result.stderr
