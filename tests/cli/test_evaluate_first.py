"""`train --evaluate`: data that cannot be scored is an error before the first step, and no training is lost."""

import sys

import numpy as np
import pytest
from helpers import run_cutaway

from cutaway.cli.evaluate import check_evaluation
from cutaway.data.prepare import prepare
from cutaway.errors import DataError
from cutaway.runs.recipe import read_recipe

SMALL = "d_model = 8\nd_ff = 16\nn_heads = 2\nencoder_layers = 1\n"
STEPS = "[train]\nsteps = 4\nwarmup = 1\nvalid_every = 2\nsave_every = 2\nlog_every = 1\n"
TEXTS = f'tokenizer = "word"\nmax_tokens = 16\nbatch_tokens = 128\n{STEPS}'
PAIRS = f'[model]\n{SMALL}decoder_layers = 1\nmax_length = 16\n[data]\ntrain = ["a.en", "a.de"]\n{{}}\n{TEXTS}'
LABELS = (
    f'[model]\nfamily = "encoder"\nhead = "classes"\n{SMALL}max_length = 16\n[data]\ntrain = ["a.tsv"]\n{{}}\n{TEXTS}'
)
IMAGES = (
    f'[model]\nfamily = "vision"\nhead = "classes"\n{SMALL}image_size = 4\npatch_size = 2\n[data]\ntrain = ["a.npz"]\n{{}}\n'
    f"batch_tokens = 8\n{STEPS}"
)
# problem of the test data -> recipe, message
REJECTED = {
    "none": (PAIRS.format(""), "the recipe has no test data"),
    "gone": (PAIRS.format('test = ["x.en", "x.de"]'), "there is no file 'x.en'"),
    "too long": (
        PAIRS.format('too_long = "refuse"\ntest = ["long.en", "a.de"]'),
        "1 of 40 examples are longer than the 16 tokens that this model reads. The longest has 18. Shorten them, or train "
        "with a larger model.max_length, or with data.too_long = 'skip'. Or leave --evaluate out.",
    ),
    "all too long": (PAIRS.format('test = ["longer.en", "a.de"]'), "40 of 40 examples are longer than the 16 tokens"),
    "long labels": (
        LABELS.format('too_long = "refuse"\ntest = ["long.tsv"]'),
        "1 of 2 examples are longer than the 16 tokens",
    ),
    "empty": (PAIRS.format('test = ["empty.en", "a.de"]'), "no example is left"),
    "size": (IMAGES.format('test = ["large.npz"]'), "the test images are [1, 8, 8], but this model reads [1, 4, 4]"),
}


@pytest.fixture
def folder(tmp_path):
    lines = [f"one two {i}" for i in range(40)]
    files = {
        "a.en": lines, "a.de": lines, "long.en": [*lines[:39], "one " * 17], "empty.en": [""] * 40,
        "longer.en": ["one " * 17] * 40, "long.tsv": ["one\t0", "one " * 17 + "\t1"],
        "a.tsv": [f"{line}\t{i % 2}" for i, line in enumerate(lines)], "new.tsv": ["one two\t0", "one\tother"],
    }  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).write_text("\n".join(content) + "\n", encoding="utf-8")
    for name, side in (("a.npz", 4), ("large.npz", 8)):
        np.savez(tmp_path / name, images=np.zeros((6, side, side), np.float32), labels=np.arange(6) % 2)
    return tmp_path


def train_and_evaluate(folder, recipe, *more):
    (folder / "r.toml").write_text(recipe, encoding="utf-8")
    return run_cutaway("train", "r.toml", "--evaluate", *more, cwd=folder)


def is_rejected(result, reason):
    assert result.returncode == 1
    lines = [line for line in result.stderr.splitlines() if line and not line.startswith("Export: ")]
    assert len(lines) == 1, lines  # one message, and no step
    assert reason in result.stderr
    return True


@pytest.mark.parametrize("problem", REJECTED)
def test_data_that_cannot_be_scored_is_rejected_before_the_first_step(folder, problem):
    recipe, reason = REJECTED[problem]
    assert is_rejected(train_and_evaluate(folder, recipe), reason)
    assert not (folder / "runs/r").exists()


def test_a_rejected_run_does_not_replace_an_earlier_one(folder):
    earlier = [folder / "runs/r" / name for name in ("config.json", "model.safetensors")]
    earlier[0].parent.mkdir(parents=True)
    for file in earlier:
        file.write_text("mine")
    for more in (("--overwrite",), ("--overwrite", "--engine", "numpy")):
        assert is_rejected(
            train_and_evaluate(folder, PAIRS.format('test = ["longer.en", "a.de"]'), *more), "are longer than"
        )
        assert [file.read_text() for file in earlier] == ["mine", "mine"]


@pytest.mark.parametrize("recipe", [PAIRS.format('test = ["a.en", "a.de"]'),
                                    PAIRS.format('valid = ["a.en", "a.de"]') + 'best_by = "bleu"\n'])  # fmt: skip
def test_a_missing_library_is_reported_before_the_first_step(folder, recipe, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    (folder / "r.toml").write_text(recipe, encoding="utf-8")
    evaluate = () if "bleu" in recipe else ("--evaluate",)
    assert is_rejected(run_cutaway("train", "r.toml", *evaluate, cwd=folder), "needs sacrebleu, which is not installed")


NOTED = [
    (
        LABELS.format('test = ["new.tsv"]'),
        "Note: 1 of 2 test examples have labels that the training data does not have ('other'). They will count as wrong.\n",
    ),
    (
        LABELS.format('test = ["long.tsv"]'),
        "Note: 1 of 2 test examples are longer than the 16 tokens that this model reads. They will be truncated or split.\n",
    ),
    (
        PAIRS.format('test = ["long.en", "a.de"]'),
        "Note: 1 of 40 test examples are longer than the 16 tokens that this model reads. They will be left out of the scores.\n",
    ),
    (PAIRS.format('test = ["a.en", "a.de"]'), ""),
]


@pytest.mark.parametrize(("recipe", "note"), NOTED)
def test_notes_about_the_scores_come_before_the_training(folder, recipe, note, capsys):
    """They do not stop the training."""
    (folder / "r.toml").write_text(recipe, encoding="utf-8")
    config = read_recipe(folder / "r.toml", [f"data.root='{folder}'"])
    check_evaluation(config, prepare(config.data, config.model.task))
    assert capsys.readouterr().err == note


@pytest.mark.parametrize(
    "error", [DataError("scoring failed"), pytest.param(MemoryError("scoring failed"), marks=pytest.mark.slow)]
)
def test_a_failed_evaluation_still_leaves_report_and_findings(folder, error, monkeypatch):
    def fails(run):
        raise error

    monkeypatch.setattr(sys.modules["cutaway.cli.train"], "evaluate_run", fails)
    recipe = PAIRS.format('valid = ["a.en", "a.de"]\ntest = ["a.en", "a.de"]')
    if isinstance(error, DataError):
        result = train_and_evaluate(folder, recipe)
        assert result.returncode == 1
        lines = result.stderr.strip().splitlines()
        assert lines[-1] == "error: scoring failed"
        assert "Again:  cutaway evaluate runs/r" in result.stderr
        assert "problem: Held-out examples are in the training data" in result.stderr  # findings
        assert "The report: runs/r/report.html" in result.stderr
    else:
        with pytest.raises(type(error)):
            train_and_evaluate(folder, recipe)
    assert (folder / "runs/r/report.html").is_file()


DEMO = ("train.steps=2", "data.size=100", "data.heldout_size=5", "model.d_model=16", "model.d_ff=16")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (["data.corpus=reverse"], "these settings are for something else"),
        (["model.max_length=9", "data.max_tokens=9"], "the demo could not score this model after the training"),
    ],
)
def test_a_demo_that_cannot_be_scored_is_rejected(tmp_path, settings, reason):
    result = run_cutaway("demo", *(word for setting in (*DEMO, *settings) for word in ("--set", setting)), cwd=tmp_path)
    assert result.returncode == 1
    assert reason in result.stderr
    assert not (tmp_path / "runs/demo").exists()


@pytest.mark.slow
@pytest.mark.parametrize("position", ["sinusoidal", "rope"])
def test_a_failed_demo_leaves_a_report(tmp_path, monkeypatch, position):
    settings = (*DEMO, f"model.position={position}")
    given = [word for setting in settings for word in ("--set", setting)]
    fine = run_cutaway("demo", *given, cwd=tmp_path)
    assert fine.returncode == 0, fine.stderr

    def fails(translator):
        raise DataError("scoring failed")

    monkeypatch.setattr(sys.modules["cutaway.cli.demo"], "translate_splits", fails)
    (tmp_path / "runs/demo/report.html").unlink()
    result = run_cutaway("demo", *given, cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr.strip().splitlines()[-1] == "error: scoring failed"
    assert "The report: runs/demo/report.html" in result.stderr
    assert (tmp_path / "runs/demo/report.html").is_file()
