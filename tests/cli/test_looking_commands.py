"""cutaway trace and cutaway explore from the command line."""

import json

import pytest
import safetensors.torch
import torch
from helpers import run_cutaway as cutaway
from helpers import small_recipe

from cutaway.inference.pipelines import Translator
from cutaway.inference.training.setup import start_training
from cutaway.runs import RunFolder
from cutaway.runs.files import write_bytes
from cutaway.runs.weights import seal_weights


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    start_training(small_recipe(steps=4, snapshots=1), RunFolder(folder / "runs/reverse")).trainer.run()
    return folder


def test_trace_prints_every_step_and_the_answer(home):
    result = cutaway("trace", "runs/reverse", "a b c", cwd=home)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["step", "equation", "axes", "mean", "std", "range"]
    names = [line.split()[0] for line in lines[1:] if "." in line.split(" ")[0]]
    assert names[0] == "source_embedding.embedded"
    assert "decoder.layers.1.cross_attention.weights" in names
    scores = next(line for line in lines if line.startswith("encoder.layers.0.self_attention.scores"))
    assert "scores = q kᵀ / √E" in scores
    assert "B 1 × H 2 × Q 4 × K 4" in scores
    assert Translator.load(home / "runs/reverse", "cpu").translate(["a b c"])[0] in lines[-1]
    assert "\x1b" not in result.stdout


def test_trace_some_steps_with_a_part_off_and_as_json(home):
    found = json.loads(cutaway("trace", "runs/reverse", "a b c", "--json", "--only", "head.*", cwd=home).stdout)
    assert [step["name"] for step in found["walk"]] == ["head.logits"]
    assert found["beam"]["nodes"][0]["token"] == "<s>"
    assert found["lens"]["rows"] == ["embedding", "layer 0", "layer 1"]
    off = cutaway(
        "trace",
        "runs/reverse",
        "a b c",
        "--target",
        "c b a",
        "--json",
        "--off",
        "decoder.layers.1.feed_forward",
        cwd=home,
    )
    on = cutaway("trace", "runs/reverse", "a b c", "--target", "c b a", "--json", cwd=home)
    assert json.loads(off.stdout)["log_p"] != json.loads(on.stdout)["log_p"]
    assert cutaway("trace", "runs/reverse", cwd=home).returncode == 0  # with an example of the data


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "--only", "nothing"], "no step matches --only 'nothing'"),
        (["a", "--off", "decoder.layers.1.feed_forwards"], "Did you mean 'decoder.layers.1.feed_forward'?"),
        (["a " * 100], "this model has positions for 64"),
        ([""], "there is nothing to translate"),
    ],
)
def test_trace_errors(home, arguments, message):
    result = cutaway("trace", "runs/reverse", *arguments, cwd=home)
    assert result.returncode == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_trace_shows_where_a_diverged_model_breaks(home, tmp_path):
    run = RunFolder(tmp_path / "broken")
    run.path.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (run.path / name).write_bytes((home / "runs/reverse" / name).read_bytes())
    weights = safetensors.torch.load((home / "runs/reverse/model.safetensors").read_bytes())
    weights["decoder.layers.0.feed_forward.expand.weight"] = torch.full((32, 16), torch.nan)
    write_bytes(run.weights, seal_weights(safetensors.torch.save(weights)))
    result = cutaway("trace", run.path, "a b c", cwd=home)
    assert result.returncode == 1
    flagged = [line for line in result.stdout.splitlines() if "NaN in" in line]
    assert flagged[0].startswith("decoder.layers.0.feed_forward.hidden")
    assert "its training diverged" in result.stderr
    text = cutaway("trace", run.path, "a b c", "--json", cwd=home).stdout
    assert "NaN in" in text
    assert ": NaN" not in text
    assert "diverged" in json.loads(text)["error"]


def test_explore_writes_a_page(home):
    result = cutaway("explore", "runs/reverse", "--export", "page.html", "--text", "a b c", cwd=home)
    assert result.returncode == 0, result.stderr
    assert "Wrote page.html" in result.stderr
    assert (home / "page.html").read_text("utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs/nothing"], "there is no run folder 'runs/nothing'"),
        (["runs/reverse", "--text", "a"], "--text needs --export"),
        (["runs/reverse", "--export", "runs"], "--export runs is a folder"),
        (["runs/reverse", "--export", "p.html", "--text", "a " * 100], "this model has positions for 64"),
    ],
)
def test_explore_errors(home, arguments, message):
    result = cutaway("explore", *arguments, cwd=home)
    assert result.returncode == 1
    assert message in result.stderr
    assert not (home / "p.html").exists()
