"""cutaway mask, on models that nobody trained."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner
from untrained import untrained_pipeline

from cutaway.cli import app
from cutaway.course.ablations import apply_ablations
from cutaway.errors import ConfigError, DataError


@pytest.fixture
def run(monkeypatch):
    """A function that runs the command on a pipeline, as if it had been loaded."""

    def invoke(pipeline, *arguments, code=0):
        monkeypatch.setattr("cutaway.inference.pipelines.load_pipeline", lambda run, device: pipeline)
        result = CliRunner().invoke(app, ["mask", "runs/some", *map(str, arguments)])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    return invoke


def test_in_words_and_letters(run):
    said = run(untrained_pipeline("decoder", attention="window"), "a b c").stdout
    assert "Decoder self-attention (2 layers): Causal: a token attends to itself" in said
    assert "a window of width 2" in said
    assert "3 c    · · ■ ■ · ·" in said
    assert "Nobody may look at it" in said
    assert said.rstrip().endswith("Nothing leaks.")


def test_without_a_text_an_example_of_the_data_is_taken(run):
    found = json.loads(run(untrained_pipeline(), "--json").stdout)
    assert [view["kind"] for view in found["masks"]] == ["encoder", "decoder", "cross"]
    assert found["leaks"]["ok"]
    assert found["leaks"]["forbidden_pairs"] > 10
    shown = found["masks"][0]
    assert len(shown["allowed"]) == len(shown["rows"]) == len(shown["columns"]) - 2


def test_a_leak_is_told_and_the_exit_code_is_1(run):
    pipeline = untrained_pipeline("decoder")
    apply_ablations(pipeline.model, ["no-mask"])
    result = run(pipeline, "a b c", code=1)
    assert "LEAK: the output at '<s>' (position 0) depends on 'a' (position 1), which comes later" in result.stdout
    assert "Something leaks: 12 outputs changed that must not." in result.stderr
    assert not json.loads(run(pipeline, "a b c", "--json", code=1).stdout)["leaks"]["ok"]


def test_drawn(run, tmp_path):
    result = run(untrained_pipeline("encoder"), "a b", "--plot", tmp_path / "mask.svg")
    assert "Drawn:" in result.stderr
    assert "<svg" in (tmp_path / "mask.svg").read_text("utf-8")


def test_a_long_text_is_not_printed(run):
    result = run(untrained_pipeline("encoder", max_length=64), " ".join("abcdefgh" * 5))
    assert "■" not in result.stdout
    assert "draw them with --plot FILE" in result.stderr


def test_images(run, monkeypatch):
    pictures = np.random.default_rng(0).random((2, 1, 4, 4), dtype=np.float32)
    monkeypatch.setattr("cutaway.explore.inputs.some_examples", lambda pipeline: pictures)
    said = run(untrained_pipeline("vision")).stdout
    assert "4 1,1" in said  # the class token comes first, the last patch is the second of the second row
    assert "Encoder self-attention" in said
    assert said.rstrip().endswith("Nothing leaks.")


def test_mistakes(run):
    with pytest.raises(ConfigError, match=r"Use .png, .svg, .pdf"):
        run(untrained_pipeline("decoder"), "a", "--plot", "x.docx")
    with pytest.raises(ConfigError, match="this run reads images"):
        run(untrained_pipeline("vision"), "a")
    with pytest.raises(DataError, match="the text has 36 tokens; this model has positions for 32"):
        run(untrained_pipeline("decoder"), " ".join("abcdefg" * 5))
