"""Nothing is lost or ignored silently: folders of other programs, moved bases, new heads."""

import json
import os
import shutil

import pytest
import safetensors.numpy
import torch
from helpers import max_difference, run_cutaway, small_recipe

from cutaway.config import FinetuneConfig, config_from_tables
from cutaway.config.presets import preset
from cutaway.data.prepare import prepare
from cutaway.data.tasks import order_labels
from cutaway.errors import ConfigError, RunError
from cutaway.finetune.adapt import adapt
from cutaway.inference.pipelines import Translator
from cutaway.inference.training.setup import start_training
from cutaway.models.build import build_model
from cutaway.runs import RunFolder
from cutaway.runs.base import Base, open_folder
from cutaway.runs.files import replacing_folder, write_bytes
from cutaway.runs.merge import merge_run
from cutaway.runs.recipe import complete_from_base, find_base
from cutaway.runs.weights import seal_weights

RECIPE = """
[finetune]
base = "base"
method = "{method}"
{more}
[data]
corpus = "reverse"
size = 100
heldout_size = 20
max_tokens = 64
batch_tokens = 256
[train]
steps = {steps}
valid_every = 2
save_every = 2
schedule = "constant"
lr = 1e-2
samples = 0
processes = 1
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("care") / "runs/base"
    start_training(small_recipe(steps=4, samples=0), RunFolder(folder)).trainer.run()
    return folder


@pytest.fixture
def place(base, tmp_path):
    """A folder with runs/base and recipes that use it."""
    shutil.copytree(base, tmp_path / "runs/base")
    write_recipe(tmp_path, "full", "full")
    write_recipe(tmp_path, "lora", "lora", 'parts = ["*_attention.*"]\ntrain = ["*.query.weight"]\nrank = 2\n')
    return tmp_path


def write_recipe(folder, name, method, more="", steps=2):
    (folder / f"{name}.toml").write_text(RECIPE.format(method=method, more=more, steps=steps), encoding="utf-8")


def run_ok(folder, *arguments):
    result = run_cutaway(*arguments, cwd=folder)
    assert result.returncode == 0, result.stderr
    return result


def answers(run):
    ids = torch.tensor([[5, 6, 7, 8, 3]])
    with torch.no_grad():
        return Translator.load(run, dtype="float64").model(ids, ids)


def test_merging_a_weight_that_has_lora_and_is_also_trained(place, monkeypatch):
    monkeypatch.chdir(place)
    run_ok(place, "train", "lora.toml")
    merge_run("runs/lora", "merged")
    assert max_difference(answers("merged"), answers("runs/lora")) < 1e-6
    assert max_difference(answers("merged"), answers("runs/base")) > 1e-4
    # its own base and folders of other programs are never replaced
    (place / "mine/src").mkdir(parents=True)
    shutil.copy(place / "runs/base/config.json", place / "mine/config.json")
    for target, why in {
        "mine": "contains other files",
        "runs/base": "is one of the runs to merge",
        "runs/lora": "is one of the runs to merge",
    }.items():
        with pytest.raises(RunError, match=why):
            merge_run("runs/lora", target, overwrite=True)
    assert (place / "mine/src").is_dir()
    assert (place / "runs/base/checkpoints").is_dir()


@pytest.mark.slow
def test_a_fine_tuning_resumes_without_its_base_or_with_a_moved_one(place):
    run_ok(place, "train", "full.toml")
    run_ok(place, "train", "lora.toml", "--run", "else/lora")
    shutil.copytree(place / "runs/base", place / "else/base")
    shutil.rmtree(place / "runs/base")
    write_recipe(place, "full", "full", steps=4)
    write_recipe(place, "lora", "lora", 'parts = ["*_attention.*"]\ntrain = ["*.query.weight"]\nrank = 2\n', steps=4)
    assert "Resuming at step 2" in run_ok(place, "train", "full.toml", "--resume").stderr
    assert "Resuming at step 2" in run_ok(place, "train", "lora.toml", "--run", "else/lora", "--resume").stderr
    result = run_cutaway("train", "full.toml", "--run", "runs/new", cwd=place)
    assert (result.returncode, "finetune.base = 'base' is not a run folder" in result.stderr) == (1, True)


def test_another_folder_with_the_name_of_the_base_is_ignored(place, monkeypatch):
    monkeypatch.chdir(place)
    run_ok(place, "train", "lora.toml")
    (place / "base").mkdir()
    (place / "base/config.json").write_text(json.dumps({"model_type": "marian"}), encoding="utf-8")
    assert find_base("base") == RunFolder("runs/base").path
    assert Translator.load("runs/lora").translate(["a b"])


def test_a_new_head_is_not_frozen():
    model = build_model(preset("tiny-bert"))
    config = FinetuneConfig(base="a run", freeze=("head.*",))
    with pytest.raises(ConfigError, match=r"freezes head\.\w+, which is new"):
        adapt(model, config, new_head=True)
    assert adapt(model, config).trained > 0
    result = adapt(build_model(preset("tiny-bert")), FinetuneConfig(base="a run"), new_head=True)
    assert result.how == "all, with a new head"


def test_labels_keep_the_order_of_the_base(tmp_path):
    """The classes of a head have the order of `labels.json`, which may not be alphabetical."""
    tokenizer = tmp_path / "tokenizer.json"
    assert order_labels(["a", "b"], None) == ["a", "b"]
    assert order_labels(["a", "b"], tokenizer) == ["a", "b"]
    (tmp_path / "labels.json").write_text(json.dumps(["b", "c", "a"]), encoding="utf-8")
    assert order_labels(["a", "b"], tokenizer) == ["b", "c", "a"]
    assert order_labels(["a", "z"], tokenizer) == ["a", "z"]
    assert order_labels([], tokenizer) == []


def test_a_classifier_keeps_its_head(tmp_path):
    """The labels are not in alphabetical order, and one is not in the new data: the head is kept."""
    (tmp_path / "a.tsv").write_text(
        "".join(f"{t}\t{label}\n" for t, label in (("a b", "yes"), ("c", "no"), ("d", "maybe")) * 20)
    )
    (tmp_path / "b.tsv").write_text("".join(f"{t}\t{label}\n" for t, label in (("a b", "yes"), ("c", "no")) * 20))
    first = RECIPE.replace(
        '[finetune]\nbase = "base"\nmethod = "{method}"\n{more}',
        '[model]\nfamily = "encoder"\nhead = "classes"\nd_model = 16\nd_ff = 32\nn_heads = 2\nencoder_layers = 1\nmax_length = 64',
    )
    for name, text, data in (("base", first, "a"), ("tuned", RECIPE, "b")):
        text = text.format(method="full", more="", steps=2).replace(
            'corpus = "reverse"\nsize = 100\nheldout_size = 20', f'train = ["{data}.tsv"]\nvalid = ["{data}.tsv"]'
        )
        (tmp_path / f"{name}.toml").write_text(
            text.replace("[data]\n", "[data]\n" + ('tokenizer = "word"\n' if name == "base" else "")), encoding="utf-8"
        )
    run_ok(tmp_path, "train", "base.toml")
    run = RunFolder(tmp_path / "runs/base")
    permuted = [1, 2, 0]  # as if it had been published so
    labels = run.read_labels()
    weights = safetensors.numpy.load(run.model.read_bytes())
    for name in ("head.classify.weight", "head.classify.bias"):
        weights[name] = weights[name][permuted].copy()
    write_bytes(run.model, seal_weights(safetensors.numpy.save(weights)))
    run.labels.write_text(json.dumps([labels[i] for i in permuted]), encoding="utf-8")
    result = run_ok(tmp_path, "train", "tuned.toml")
    assert "a new head" not in result.stderr
    assert RunFolder(tmp_path / "runs/tuned").read_labels() == [labels[i] for i in permuted]


def test_data_prepared_with_another_tokenizer_is_refused(place, monkeypatch):
    monkeypatch.chdir(place)
    tables = {
        "finetune": {"base": "base"},
        "data": {"corpus": "reverse", "size": 50, "heldout_size": 10, "max_tokens": 64},
    }
    config = config_from_tables(complete_from_base(tables))
    other = prepare(
        small_recipe().data.__class__(corpus="copy", size=20, heldout_size=5, tokenizer="char", max_tokens=64),
        "translation",
    )
    with pytest.raises(ConfigError, match="prepared with another tokenizer than the base"):
        start_training(config, RunFolder(place / "runs/new"), prepared=other)


def test_a_base_that_changes_during_loading_is_noticed(place):
    found = open_folder(place / "runs/base")
    assert found.read()
    with pytest.raises(RunError, match="were replaced just now"):
        Base(found.run, found.config, "0" * 64).read()


def test_no_adapter_for_a_base_that_is_being_trained(place):
    with RunFolder(place / "runs/base").lock():
        result = run_cutaway("train", "lora.toml", cwd=place)
    assert result.returncode == 1
    assert "is being trained" in result.stderr


# ---- Folders are replaced completely or not at all -------------------------------------------------------------------


def test_the_current_folder_is_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/kept").write_text("here")
    monkeypatch.chdir(tmp_path / "inner")
    for path in (".", "..", "../inner"):
        with (
            pytest.raises(RunError, match="is the current folder or contains it"),
            replacing_folder(RunFolder(path).path),
        ):
            raise AssertionError("not reached")
    assert (tmp_path / "inner/kept").read_text() == "here"


def test_the_old_folder_is_restored_if_replacing_fails(tmp_path, monkeypatch):
    (tmp_path / "target").mkdir()
    (tmp_path / "target/old").write_text("old")
    real, moves = os.replace, []

    def failing(source, target):
        moves.append(target)
        if len(moves) == 2:
            raise OSError("the disk is gone")
        real(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="the disk is gone"), replacing_folder(tmp_path / "target") as new:
        (new / "new").write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert (tmp_path / "target/old").read_text() == "old"


def test_the_target_of_a_link_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real/old").write_text("old")
    (tmp_path / "link").symlink_to("real")
    with replacing_folder(tmp_path / "link") as new:
        (new / "new").write_text("new")
    assert sorted(path.name for path in (tmp_path / "real").iterdir()) == ["new"]
    assert (tmp_path / "link").is_symlink()
