"""Each refusal to resume says what differs, why that matters, and what to do; what it says to do works."""

import dataclasses
import json
import re
import shlex
import shutil

import pytest
from helpers import cutaway_here

from cutaway.config import Config, FinetuneConfig
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError
from cutaway.runs import RunFolder
from cutaway.runs.recipe import read_recipe
from cutaway.runs.resuming import MAY_CHANGE, WHY, flat, refuse_differences

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
ANEW = "To begin anew: another folder with --run, or --overwrite instead of --resume."


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a recipe, its data, and a run of two steps."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "r.toml").write_text(RECIPE)
    (folder / "train.tsv").write_text("".join(f"a b {c}\t{c} b a\n" for c in "cdefgh" * 3))
    assert cutaway_here("train", "r.toml", cwd=folder).returncode == 0
    return folder


@pytest.fixture
def home(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "home")


def refused(home, *settings):
    found = cutaway_here("train", "r.toml", "--resume", *settings, cwd=home)
    assert found.returncode == 1, found.stderr
    assert "Traceback" not in found.stderr
    return " ".join(found.stderr.split())


def test_each_setting_is_named_with_both_values_a_reason_and_the_way_back(home):
    changes = {"model.d_ff": "16", "data.batch_tokens": "99", "train.lr": "0.5", "train.seed": "7"}
    given = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    said = refused(home, *given)
    assert "the recipe is not the one that 'runs/r' was started with" in said
    for key, before in (("model.d_ff", 8), ("data.batch_tokens", 64), ("train.lr", 1.0), ("train.seed", 1)):
        assert f"{key} was {before}, now {changes[key]}: {WHY[key.partition('.')[0]]}" in said
    assert ANEW in said
    back = shlex.split(re.search("set them back: (.*) To begin", said)[1])
    longer = cutaway_here("train", "r.toml", "--resume", *given, *back, "--set", "train.steps=3", cwd=home)
    assert longer.returncode == 0, longer.stderr
    assert "Resuming at step 2." in longer.stderr


def test_texts_and_lists_can_be_set_back_as_they_are_shown(trained):
    said = refused(trained, "--set", """data.train=["other's.tsv"]""", "--set", "model.norm=rms")
    assert """model.norm was "layer", now "rms": the saved weights are those of the former model""" in said
    back = shlex.split(re.search("set them back: (.*) To begin", said)[1])
    assert back == ["--set", 'model.norm="layer"', "--set", 'data.train=["train.tsv"]']
    read_back = read_recipe(trained / "r.toml", ["model.norm=rms", "data.train=[]", *back[1::2]])
    assert read_back == read_recipe(trained / "r.toml")


def test_a_schedule_that_knows_its_end_says_so(trained):
    run = RunFolder(trained / "runs/r")
    saved = run.read_config()
    cosine = dataclasses.replace(saved, train=dataclasses.replace(saved.train, schedule="cosine", lr=1e-3))
    longer = dataclasses.replace(cosine, train=dataclasses.replace(cosine.train, steps=5))
    with pytest.raises(ConfigError, match=r"train.steps was 2, now 5: train.schedule = 'cosine' has followed from the "
                                          r"former end(?s:.*)set it back: --set train.steps=2"):  # fmt: skip
        refuse_differences(cosine, longer, run)


def test_every_setting_is_either_free_or_has_a_reason():
    for key in flat(Config()):
        assert key in MAY_CHANGE or key.startswith("decode.") or key.partition(".")[0] in WHY, key


def test_where_the_base_of_an_adapter_is_may_change(trained):
    run, saved = RunFolder(trained / "runs/r"), RunFolder(trained / "runs/r").read_config()
    here, there = (
        dataclasses.replace(saved, finetune=FinetuneConfig(base=base, method="lora")) for base in ("runs/a", "/old/a")
    )
    refuse_differences(here, there, run)
    full = [dataclasses.replace(saved, finetune=FinetuneConfig(base=base)) for base in ("runs/a", "runs/b")]
    with pytest.raises(ConfigError, match='finetune.base was "runs/a", now "runs/b": what has been learned so far'):
        refuse_differences(*full, run)


@pytest.mark.parametrize("same_number", [True, False])
def test_other_data(home, same_number):
    lines = (home / "train.tsv").read_text().splitlines(keepends=True)
    (home / "train.tsv").write_text("".join(lines[1:] + lines[1:2] * same_number))
    said = refused(home)
    counts = "18 examples, as then, but other ones" if same_number else "18 examples then, 17 now"
    assert f"the training data is not what 'runs/r' was started with: {counts}. The steps so far" in said
    assert f"Restore it to resume. {ANEW}" in said


def test_another_tokenizer(home):
    run = RunFolder(home / "runs/r")
    run.tokenizer.write_text(Tokenizer.train(["a b c d"], "word", 90).to_json())
    tables = json.loads(run.config.read_text())
    run.config.write_text(json.dumps({name: tables[name] for name in dataclasses.asdict(Config())}))  # as version 0.1
    said = refused(home)
    assert "runs/r/tokenizer.json has 8 tokens, and the saved embeddings have 12 rows" in said
    assert f"It was replaced since: restore it to resume. {ANEW}" in said


def test_no_checkpoint_and_no_run(home):
    shutil.rmtree(home / "runs/r/checkpoints")
    (home / "train.tsv").unlink()  # said before any data is read
    said = refused(home)
    assert "there is no checkpoint to resume from in 'runs/r'. The training stopped before the first one" in said
    assert "(train.save_every = 1 steps)" in said
    assert "fine-tune it: finetune.base = 'runs/r'" in said
    assert ANEW in said
    said = refused(home, "--run", "runs/nowhere")
    assert "there is no run in 'runs/nowhere' to resume. In 'runs' there are: r. Train without --resume" in said


def test_not_both_at_once(trained):
    assert "--resume goes on with the run in the folder, and --overwrite replaces it. Choose one." in refused(
        trained, "--overwrite"
    )
