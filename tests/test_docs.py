"""Whatever a reader may run is run: every Python snippet of the README and the docs, in a folder of its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from cutaway.cli import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


OF_ITS_OWN = {"adding-a-variant"}  # runs on a changed copy of the source: test_adding_a_variant.py


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p, "python") and p.stem not in OF_ITS_OWN], ids=lambda page: page.stem
)
def test_python_snippets_run(page, tmp_path):
    """From top to bottom, as a reader would type them."""
    code = "\n".join(blocks(page, "python"))
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stderr


def commands():
    for page in PAGES:
        for line in "\n".join(blocks(page, "bash")).splitlines():
            for words in re.findall(r"(?:^|\| )cutaway ([\w-]+)([^|>#\n]*)", line):
                yield pytest.param(*words, id=f"{page.stem}: {words[0]}")


@pytest.mark.parametrize(("command", "rest"), list(commands()))
def test_commands_in_the_docs_exist_with_their_options(command, rest):
    """That they do what they say is tested in tests/cli and by the demo; here: no option that is not there."""
    known = get_command(app).commands
    assert command in known, f"there is no command {command!r}"
    if hasattr(known[command], "commands"):  # a group: the next word says which of it
        known, command = known[command].commands, rest.split()[0]
        assert command in known, f"there is no command {command!r}"
    options = {name for p in known[command].params for name in (*p.opts, *p.secondary_opts)}
    for option in re.findall(r"(?<!\S)(--[\w-]+)", rest):
        assert option in options, f"{command} has no option {option}"


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
