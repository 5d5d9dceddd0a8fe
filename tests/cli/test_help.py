"""Help, shell completion, old option names, and output in 80 columns."""

import io
import re
import sys
from types import SimpleNamespace

import pytest
from helpers import run_cutaway
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner

from cutaway.cli import app
from cutaway.cli.base_command import OLD_NAMES, name_options
from cutaway.cli.check import all_exercises
from cutaway.cli.console import print_text
from cutaway.cli.lesson import find_lessons
from cutaway.cli.trace import print_steps
from cutaway.explore.steps import StepRecord
from cutaway.explore.values import Summary
from cutaway.system.resources import shipped_names

ROOT = get_command(app)
COMMANDS = {
    " ".join((name, *sub)): command
    for name, group in ROOT.commands.items()
    for sub, command in ([((sub,), c) for sub, c in getattr(group, "commands", {}).items()] or [((), group)])
}


def show_help(*arguments):
    result = CliRunner().invoke(app, [*arguments], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_on_a_screen_and_starts_with_an_example(name):
    text = show_help(*name.split(), "--help")
    lines = text.splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 80
    assert text.index("Example") < text.index("\nOptions:")
    assert f"cutaway {name}" in text


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.advanced_options])
def test_help_all_shows_every_option(name):
    text = show_help(*name.split(), "--help-all")
    for param in COMMANDS[name].params:
        if param.param_type_name == "option" and param.name != "help":
            shown = param.opts[0].replace("--", "--[no-]") if param.secondary_opts else param.opts[0]
            assert re.search(rf"^  {re.escape(shown)}\b", text, re.MULTILINE)


def test_old_option_names_are_accepted_and_not_shown(tmp_path):
    for name in COMMANDS:
        words = re.findall(r"--[a-z-]+", show_help(*name.split(), "--help"))
        assert not set(words) & set(OLD_NAMES)
    assert "'--max-length'" in run_cutaway("generate", "x", "y", "--max-tokens", "0", cwd=tmp_path).stderr


def complete(monkeypatch, line, shell="bash"):
    monkeypatch.setenv("_CUTAWAY_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    result = CliRunner().invoke(app, [], prog_name="cutaway")
    assert result.exit_code == 0, result.output
    return result.stdout


def test_completion(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/mine").mkdir(parents=True)
    (tmp_path / "runs/mine/config.json").write_text("{}")
    (tmp_path / "own.toml").write_text("")
    assert complete(monkeypatch, "cutaway translate ").split() == ["runs/mine"]
    assert complete(monkeypatch, "cutaway explore runs/mine runs/").split() == ["runs/mine"]
    assert complete(monkeypatch, "cutaway train demo --run r").split() == ["runs/mine"]
    assert complete(monkeypatch, "cutaway train rev").split() == ["reverse"]
    assert set(shipped_names("recipes")) < set(complete(monkeypatch, "cutaway data inspect ").split())
    assert "own.toml" in complete(monkeypatch, "cutaway train o").split()
    assert set(complete(monkeypatch, "cutaway lab no-m").split()) == {"no-mask"}
    assert complete(monkeypatch, "cutaway lesson ").split() == [str(i + 1) for i in range(len(find_lessons()))]
    assert complete(monkeypatch, "cutaway check ").split() == [str(exercise.number) for exercise in all_exercises()]
    assert complete(monkeypatch, "cutaway export runs/mine x --to o").split() == ["onnx"]
    assert '"3":"positional encoding"' in complete(monkeypatch, "cutaway lesson ", "zsh")
    assert "3\tpositional encoding" in complete(monkeypatch, "cutaway lesson ", "fish")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell, monkeypatch):
    monkeypatch.setenv("_CUTAWAY_COMPLETE", f"source_{shell}")
    result = CliRunner().invoke(app, [], prog_name="cutaway")
    assert result.exit_code == 0
    assert f"_CUTAWAY_COMPLETE=complete_{shell}" in result.stdout


def option(name):
    return SimpleNamespace(param_type_name="option", name=name, opts=["--" + name.replace("_", "-")])


@pytest.mark.parametrize(
    ("name", "value", "message", "expected"),
    [
        ("top_p", 2.0, "decode.top_p = 2.0 must be at most 1.", "--top-p 2.0 must be at most 1."),
        ("beam_size", 3, "4 is more than beam_size = 3. Raise beam_size.", "4 is more than --beam-size 3. Raise --beam-size."),
        ("seed", -4, "decode.seed = -4 is negative, and a seed is not.", "--seed -4 is negative, and a seed is not."),
        ("dtype", "x", "there is no dtype 'x'. Use another dtype.", "there is no --dtype x. Use another dtype."),
        ("device", "x", "the device 'x' cannot be used.", "--device x cannot be used."),
        ("strategy", "beam", "the run has strategy 'greedy'.", "the run has strategy 'greedy'."),
        ("max_length", 5, "model.max_length = 5 is too small.", "model.max_length = 5 is too small."),
    ],
)  # fmt: skip
def test_errors_name_the_typed_option(name, value, message, expected):
    assert name_options(message, [option(name)], {name: value}) == expected


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of 80 columns instead of standard output."""
    page = io.StringIO()
    console = Console(file=page, force_terminal=True, color_system=None, width=80, soft_wrap=True, highlight=False)
    for module in ("console", "trace"):
        monkeypatch.setattr(sys.modules[f"cutaway.cli.{module}"], "out", console)
    return page


def test_text_breaks_between_words_on_a_terminal(terminal):
    print_text("words " * 40, indent=6)
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert all(line.startswith("      words") and set(line.split()) == {"words"} for line in lines)


def test_trace_shows_everything_in_80_columns(terminal):
    axes = [("B", 1), ("H", 4), ("Q", 6), ("K", 6)]
    summary = Summary(axes, -0.00664, 1.36, -10.5, 1e-20, ["NaN in 3 of 144 values"])
    names = ("weights", "scores")
    equation = "weights = softmax(scores), 0 where masked"
    print_steps([StepRecord(f"decoder.layers.0.cross_attention.{name}", equation, summary) for name in names])
    text = terminal.getvalue()
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    for part in (
        "decoder.layers.0\n",
        "  cross_attention.scores",
        equation,
        "B 1 × H 4 × Q 6 × K 6",
        "-0.00664",
        "1.36",
    ):
        assert part in re.sub(" +\n", "\n", text)
    assert "-10.5 … 1e-20" in text
    assert "! NaN in 3 of 144 values" in text
