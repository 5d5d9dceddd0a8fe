"""Runs of earlier versions load, generate the same text and can be resumed. These fixtures are never regenerated."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import safetensors.numpy
from numpy.testing import assert_allclose

import cutaway
from cutaway.runs import RunFolder

OLD = Path(__file__).parents[1] / "fixtures/v0.1"


@pytest.fixture
def old(tmp_path):
    """A copy of all old runs that a test may change."""
    return Path(shutil.copytree(OLD, tmp_path / "old"))


@pytest.mark.parametrize("engine", ["torch", "numpy"])
def test_translator_gives_the_same_text(old, engine):
    translator = cutaway.Translator.load(old / "translator", engine=engine)
    texts = ["red numbers: three one nine.", "old numbers: ten ten two six five.", "big numbers: eight four."]
    assert translator.translate(texts) == [
        "Zahlen, drei eins neun, rot.",
        "Zahlen, zehn zehn zwei sechs fünf, alt.",
        "Zahlen, acht vier, groß.",
    ]


def test_language_model_and_its_adapter_give_the_same_text(old):
    base = cutaway.TextGenerator.load(old / "base")
    assert base.generate(["the "]) == ["the cat bird.\nthe cat bird bird.\nthe cat bir"]
    adapted = cutaway.TextGenerator.load(old / "adapter")
    assert adapted.generate(["does the"]) == ["does the the the the the the the the the the the"]


def test_training_resumes_to_the_same_weights(old):
    from cutaway.inference.training.setup import resume

    run = RunFolder(old / "resume")
    config = run.read_config()
    config = dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, root=str(old / "texts")),
        train=dataclasses.replace(config.train, steps=40),
    )
    resume(config, run).trainer.run()
    expected = safetensors.numpy.load_file(old / "resumed.safetensors")
    weights = safetensors.numpy.load_file(run.model)
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():  # not to the bit: another processor rounds differently
        assert_allclose(weight, expected[name], rtol=1e-3, atol=1e-5, err_msg=name)
    assert [row["step"] for row in run.read_metrics() if "valid_loss" in row] == [20, 40]


def test_config_of_old_runs_is_complete():
    """An old run does not depend on defaults, which may change: its config.json has every setting."""
    for file in OLD.glob("*/config.json"):
        tables = json.loads(file.read_text())
        assert {"model", "data", "train", "decode", "finetune"} == tables.keys(), file
        assert tables["decode"]["strategy"] in ("greedy", "beam", "sample")
