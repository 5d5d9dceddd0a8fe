"""cutaway mask, on untrained models."""

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
    """A function that runs the command with this pipeline instead of a loaded one."""

    def invoke(pipeline, *arguments, code=0):
        monkeypatch.setattr("cutaway.inference.pipelines.load_pipeline", lambda run, device: pipeline)
        result = CliRunner().invoke(app, ["mask", "runs/some", *map(str, arguments)])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    return invoke


def test_masks_are_printed_with_a_description(run):
    text = run(untrained_pipeline("decoder", attention="window"), "a b c").stdout
    assert "Decoder self-attention (2 layers): Causal: a token attends to itself" in text
    assert "fewer than 2 positions away" in text
    assert "3 c    · · ■ ■ · ·" in text
    assert "No position may attend to it" in text
    assert text.rstrip().endswith("Nothing leaks.")


def test_without_a_text_an_example_of_the_data_is_used(run):
    found = json.loads(run(untrained_pipeline(), "--json").stdout)
    assert [view["kind"] for view in found["masks"]] == ["encoder", "decoder", "cross"]
    assert found["leaks"]["ok"]
    assert found["leaks"]["forbidden_pairs"] > 10
    mask = found["masks"][0]
    assert len(mask["allowed"]) == len(mask["rows"]) == len(mask["columns"]) - 2


def test_a_leak_is_reported_and_the_exit_code_is_1(run):
    pipeline = untrained_pipeline("decoder")
    apply_ablations(pipeline.model, ["no-mask"])
    result = run(pipeline, "a b c", code=1)
    assert "LEAK: the output at '<s>' (position 0) depends on 'a' (position 1), which comes later" in result.stdout
    assert "Something leaks: 12 outputs changed that must not." in result.stderr
    assert not json.loads(run(pipeline, "a b c", "--json", code=1).stdout)["leaks"]["ok"]


def test_plot(run, tmp_path):
    result = run(untrained_pipeline("encoder"), "a b", "--plot", tmp_path / "mask.svg")
    assert "Wrote " in result.stderr
    assert "<svg" in (tmp_path / "mask.svg").read_text("utf-8")


def test_a_long_text_is_not_printed(run):
    result = run(untrained_pipeline("encoder", max_length=64), " ".join("abcdefgh" * 5))
    assert "■" not in result.stdout
    assert "Draw them with --plot FILE" in result.stderr


def test_images(run, monkeypatch):
    pictures = np.random.default_rng(0).random((2, 1, 4, 4), dtype=np.float32)
    monkeypatch.setattr("cutaway.explore.inputs.some_examples", lambda pipeline: pictures)
    text = run(untrained_pipeline("vision")).stdout
    assert "4 1,1" in text  # the class token comes first, the last patch is the second of the second row
    assert "Encoder self-attention" in text
    assert text.rstrip().endswith("Nothing leaks.")


def test_errors(run):
    with pytest.raises(ConfigError, match=r"Use .png, .svg, .pdf"):
        run(untrained_pipeline("decoder"), "a", "--plot", "x.docx")
    with pytest.raises(ConfigError, match="this run reads images"):
        run(untrained_pipeline("vision"), "a")
    with pytest.raises(DataError, match="the text has 36 tokens; this model has positions for 32"):
        run(untrained_pipeline("decoder"), " ".join("abcdefg" * 5))
