"""cutaway figures: the figures of each kind of run, and the errors."""

import sys

import numpy as np
import pytest
from helpers import small_recipe
from typer.testing import CliRunner
from untrained import untrained_pipeline

from cutaway.cli import app
from cutaway.errors import ConfigError, RunError
from cutaway.inference.training.setup import start_training
from cutaway.runs import RunFolder

command = sys.modules["cutaway.cli.figures"]  # the package attribute is the function


def figures(*arguments):
    result = CliRunner().invoke(app, ["figures", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run = RunFolder(tmp_path_factory.mktemp("run"))
    start_training(small_recipe(steps=4), run).trainer.run()
    return run


def test_every_figure_that_a_translator_has(trained, monkeypatch):
    """Drawn but not saved, because saving takes longer."""
    saved = []
    monkeypatch.setattr(command, "save_figure", lambda figure, path, shows: saved.append((path, figure)))
    figures(trained.path)
    without_gold = set(command.FIGURES) - {"alignment", "confusion"}
    assert {path.name for path, _ in saved} == {f"{name}.png" for name in without_gold}
    assert {path.parent for path, _ in saved} == {trained.figures}
    assert all(figure.axes for _, figure in saved)


def test_files_are_written_and_listed(trained, tmp_path):
    text = figures(trained.path, "a b c", "--only", "cross", "--format", "svg", "--out", tmp_path / "here").stdout
    assert text == f"{tmp_path / 'here' / 'cross.svg'}  cross-attention, all heads\n"
    assert "<svg" in (tmp_path / "here" / "cross.svg").read_text("utf-8")


@pytest.mark.parametrize(
    ("family", "changes", "missing"),
    [
        ("decoder", {"position": "rope"}, {"encoder", "cross", "alignment"}),
        ("encoder", {"head": "tags", "position": "none"}, {"decoder", "cross", "alignment", "positions"}),
        ("vision", {}, {"decoder", "cross", "alignment"}),
    ],
)
def test_which_figures_other_tasks_have(family, changes, missing, tmp_path):
    pipeline = untrained_pipeline(family, **changes)
    subject = command.Subject(RunFolder(tmp_path), pipeline, None if family == "vision" else "a b c")
    pictures = np.random.default_rng(0).random((2, 1, 4, 4), dtype=np.float32)
    subject.examples = pictures if family == "vision" else ["a b c", "d e f g"]
    names = ("encoder", "decoder", "cross", "alignment", "positions", "masks", "roles", "heads", "parameters", "time")
    assert {name for name in names if command.draw(subject, name) is None} == missing
    for name in ("loss", "schedule", "schedules", "smoothing"):  # a run without metrics was imported
        assert command.draw(subject, name) is None
    subject.run.append_metrics({"step": 100, "nll": 3.0})
    trained = command.Subject(subject.run, pipeline, subject.text)
    assert command.draw(trained, "schedules").axes[0].lines


def test_errors(trained, tmp_path):
    with pytest.raises(ConfigError, match="--only crosss is not a figure. Did you mean 'cross'"):
        figures(trained.path, "--only", "crosss")
    with pytest.raises(ConfigError, match="--format gif is not a choice"):
        figures(trained.path, "--format", "gif")
    with pytest.raises(ConfigError, match="cannot be drawn for this run. It needs an example with a gold alignment"):
        figures(trained.path, "a b", "--only", "alignment")
    with pytest.raises(RunError, match="there is no run folder"):
        figures(tmp_path / "no")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written.*Choose another folder with --out"):
        figures(trained.path, "a b", "--only", "schedule", "--out", tmp_path / "file")
