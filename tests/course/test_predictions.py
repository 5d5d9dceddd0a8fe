"""Predictions of the lab: asked for, kept, and compared with the results."""

from importlib import import_module
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from cutaway.cli import app
from cutaway.course.experiment import find_experiment, read_experiment
from cutaway.course.predictions import (
    MAX_QUESTIONS,
    add_results,
    count_correct,
    parse_prediction,
    questions,
    read_predictions,
    save_predictions,
)
from cutaway.course.verdict import METRICS, compare
from cutaway.errors import ConfigError

command = import_module("cutaway.cli.lab")  # cutaway.cli.lab is the function
MASK, NORMS = (read_experiment(find_experiment(name)) for name in ("no-mask", "norms"))


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("experiment", "text", "expected"),
    [
        (MASK, "worse", ("no mask", "worse")),
        (MASK, "no mask = better", ("no mask", "better")),
        (MASK, "n", ("no mask", "no difference shown")),
        (NORMS, "rms, post=same", ("rms, post", "no difference shown")),
    ],
)
def test_predictions_are_read(experiment, text, expected):
    assert parse_prediction(text, experiment) == expected


@pytest.mark.parametrize(
    ("experiment", "text", "message"),
    [
        (NORMS, "worse", "names no variant. Write it as --predict 'rms, post'=worse"),
        (NORMS, "rms, pst=worse", "there is no variant 'rms, pst'. Did you mean 'rms, post'?"),
        (MASK, "intact=worse", "there is no variant 'intact'"),
        (MASK, "purple", "expected better, worse or same"),
    ],
)
def test_wrong_predictions_are_refused(experiment, text, message):
    with pytest.raises(ConfigError) as error:
        parse_prediction(text, experiment)
    assert message in str(error.value)


def answer(monkeypatch, *answers):
    given = iter(answers)
    monkeypatch.setattr("builtins.input", lambda prompt: next(given))
    monkeypatch.setattr(command.sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(command, "err", SimpleNamespace(is_terminal=True))


def test_a_terminal_asks_once_and_the_answers_are_kept(monkeypatch, capsys):
    answer(monkeypatch, "b", "", "Worse")
    found = command.collect_predictions(NORMS, [])
    assert {name: one["predicted"] for name, one in found.items()} == {
        "rms, post": "better",
        "layer, sandwich": "worse",
    }
    assert "What do you expect of “rms, post”, compared with “layer, post”" in capsys.readouterr().err
    assert command.collect_predictions(NORMS, []) == found  # would fail if it asked again
    assert command.collect_predictions(NORMS, ["layer, pre=better"]).keys() == {"layer, pre"}


def test_a_pipe_is_not_asked():
    assert command.collect_predictions(MASK, []) == {}
    assert read_predictions() == {}


def test_few_questions_are_asked():
    assert len(questions(read_experiment(find_experiment("table-3")))) == MAX_QUESTIONS
    assert questions(read_experiment(find_experiment("scaling-law"))) == []


def test_predictions_are_compared_with_results():
    metric = METRICS["cross-entropy"]
    comparison = compare("no mask", "intact", metric, {1: 2.0, 2: 2.1, 3: 2.2}, {1: 1.0, 2: 1.1, 3: 1.2})
    one = {"metric": metric.name, "predicted": "worse"}
    found = add_results({"no mask": one, "other": one}, [comparison])
    assert found["no mask"]["found"] == "better"
    assert found["other"]["found"] == "no result"
    assert count_correct(found) == (0, 1)
    assert count_correct({"no mask": {**found["no mask"], "predicted": "better"}}) == (1, 1)
    assert count_correct({"no mask": one}) == (0, 0)  # not trained yet


def test_the_list_shows_how_many_came_true():
    save_predictions("no-mask", {"no mask": {"metric": "cross-entropy", "predicted": "better", "found": "better"}})
    assert "1 of 1 right" in CliRunner().invoke(app, ["lab"]).stdout


def test_the_theory_is_not_printed_before_the_training(capsys):
    command.introduce(MASK)
    printed = capsys.readouterr().err
    assert MASK.question in printed
    assert MASK.theory[:30] not in printed
