"""Errors of --resume say what differs, why it matters and what to do. The advice works."""

import dataclasses
import json
import re
import shlex
import shutil

import pytest
from helpers import run_cutaway

from cutaway.config import Config, FinetuneConfig
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError
from cutaway.runs import RunFolder
from cutaway.runs.recipe import read_recipe
from cutaway.runs.resuming import MAY_CHANGE, WHY, flatten, refuse_differences

RECIPE = """
[model]
d_model = 8
d_ff = 8
n_heads = 1
encoder_layers = 1
decoder_layers = 1
max_length = 32
[data]
train = ["train.tsv"]
tokenizer = "word"
max_tokens = 32
batch_tokens = 64
[train]
steps = 2
warmup = 1
save_every = 1
samples = 0
"""
RESTART = "To start again, use another folder (--run), or --overwrite instead of --resume."


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a recipe, its data, and a run of two steps."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "r.toml").write_text(RECIPE)
    (folder / "train.tsv").write_text("".join(f"a b {c}\t{c} b a\n" for c in "cdefgh" * 3))
    assert run_cutaway("train", "r.toml", cwd=folder).returncode == 0
    return folder


@pytest.fixture
def home(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "home")


def resume_error(home, *settings):
    found = run_cutaway("train", "r.toml", "--resume", *settings, cwd=home)
    assert found.returncode == 1, found.stderr
    assert "Traceback" not in found.stderr
    return " ".join(found.stderr.split())


def test_error_lists_settings_with_both_values_a_reason_and_the_remedy(home):
    changes = {"model.d_ff": "16", "data.batch_tokens": "99", "train.lr": "0.5", "train.seed": "7"}
    given = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    error = resume_error(home, *given)
    assert "these settings differ from those that 'runs/r' was started with" in error
    for key, before in (("model.d_ff", 8), ("data.batch_tokens", 64), ("train.lr", 1.0), ("train.seed", 1)):
        assert f"{key} was {before}, now {changes[key]}: {WHY[key.partition('.')[0]]}" in error
    assert RESTART in error
    back = shlex.split(re.search("set them back: (.*) To start again", error)[1])
    longer = run_cutaway("train", "r.toml", "--resume", *given, *back, "--set", "train.steps=3", cwd=home)
    assert longer.returncode == 0, longer.stderr
    assert "Resuming at step 2." in longer.stderr


def test_strings_and_lists_in_the_remedy_can_be_parsed(trained):
    error = resume_error(trained, "--set", """data.train=["other's.tsv"]""", "--set", "model.norm=rms")
    assert """model.norm was "layer", now "rms": the saved weights have the old shape""" in error
    back = shlex.split(re.search("set them back: (.*) To start again", error)[1])
    assert back == ["--set", 'model.norm="layer"', "--set", 'data.train=["train.tsv"]']
    read_back = read_recipe(trained / "r.toml", ["model.norm=rms", "data.train=[]", *back[1::2]])
    assert read_back == read_recipe(trained / "r.toml")


def test_schedule_that_depends_on_the_length(trained):
    run = RunFolder(trained / "runs/r")
    saved = run.read_config()
    cosine = dataclasses.replace(saved, train=dataclasses.replace(saved.train, schedule="cosine", lr=1e-3))
    longer = dataclasses.replace(cosine, train=dataclasses.replace(cosine.train, steps=5))
    with pytest.raises(ConfigError, match=r"train.steps was 2, now 5: train.schedule = 'cosine' depends on the length of "
                                          r"the training(?s:.*)set it back: --set train.steps=2"):  # fmt: skip
        refuse_differences(cosine, longer, run)


def test_every_setting_may_change_or_has_a_reason():
    for key in flatten(Config()):
        assert key in MAY_CHANGE or key.startswith("decode.") or key.partition(".")[0] in WHY, key


def test_folder_of_the_base_may_change_for_an_adapter(trained):
    run, saved = RunFolder(trained / "runs/r"), RunFolder(trained / "runs/r").read_config()
    here, there = (
        dataclasses.replace(saved, finetune=FinetuneConfig(base=base, method="lora")) for base in ("runs/a", "/old/a")
    )
    refuse_differences(here, there, run)
    full = [dataclasses.replace(saved, finetune=FinetuneConfig(base=base)) for base in ("runs/a", "runs/b")]
    with pytest.raises(
        ConfigError, match='finetune.base was "runs/a", now "runs/b": the earlier steps used the old value'
    ):
        refuse_differences(*full, run)


@pytest.mark.parametrize("same_number", [True, False])
def test_other_data(home, same_number):
    lines = (home / "train.tsv").read_text().splitlines(keepends=True)
    (home / "train.tsv").write_text("".join(lines[1:] + lines[1:2] * same_number))
    error = resume_error(home)
    counts = "18 examples as before, but other ones" if same_number else "18 examples before, 17 now"
    assert f"the training data differs from the data that 'runs/r' was started with: {counts}." in error
    assert f"Restore it to resume. {RESTART}" in error


def test_another_tokenizer(home):
    run = RunFolder(home / "runs/r")
    run.tokenizer.write_text(Tokenizer.train(["a b c d"], "word", 90).to_json())
    tables = json.loads(run.config.read_text())
    run.config.write_text(json.dumps({name: tables[name] for name in dataclasses.asdict(Config())}))  # as version 0.1
    error = resume_error(home)
    assert "runs/r/tokenizer.json has 8 tokens, but the saved embeddings have 12 rows" in error
    assert f"after 'runs/r' was started. Restore it to resume. {RESTART}" in error


def test_no_checkpoint_and_no_run(home):
    shutil.rmtree(home / "runs/r/checkpoints")
    (home / "train.tsv").unlink()  # the error comes before any data is read
    error = resume_error(home)
    assert "there is no checkpoint to resume from in 'runs/r'. The training stopped before the first one" in error
    assert "(train.save_every = 1 steps)" in error
    assert "fine-tune it: finetune.base = 'runs/r'" in error
    assert RESTART in error
    error = resume_error(home, "--run", "runs/nowhere")
    assert "there is no run in 'runs/nowhere' to resume. Runs in 'runs': r. Train without --resume" in error


def test_resume_and_overwrite_exclude_each_other(trained):
    assert "--resume continues the run in the folder, and --overwrite replaces it. Choose one." in resume_error(
        trained, "--overwrite"
    )
