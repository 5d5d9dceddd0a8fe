"""Fine-tuned runs: started from a base, stopped, resumed, saved, loaded with the base, merged."""

import dataclasses
import json
import math
import shutil

import pytest
import safetensors.torch
import torch
from helpers import max_difference, small_recipe

from cutaway.config import Config, DataConfig, FinetuneConfig, TrainConfig, config_from_tables
from cutaway.errors import ConfigError, Interrupted, RunError
from cutaway.inference.pipelines import Classifier, TextGenerator, Translator
from cutaway.inference.training.setup import resume, start_training
from cutaway.models.weights import trainable_parameters
from cutaway.runs import RunFolder
from cutaway.runs.merge import merge_run
from cutaway.runs.recipe import complete_from_base
from cutaway.runs.summary import summarize
from cutaway.runs.weights import read_metadata, read_sealed, weights_checksum
from cutaway.train.observers import Observer

TEXTS = ["a b c d", "c a", "b", ""]
METHODS = {
    "lora": {"method": "lora", "rank": 2, "target_modules": ("*_attention.*",)},
    "prefix": {"method": "prefix", "prompt_length": 3},
    "prompt": {"method": "prompt", "prompt_length": 3, "target_modules": ("*coder",)},
    "full": {"method": "full"},
    "freeze": {"method": "full", "freeze": ("encoder.*", "*norm*")},
}
ADAPTERS = ["lora", "prefix", "prompt"]
SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with a base, and a short fine-tuned run of each method."""
    folder = tmp_path_factory.mktemp("runs")
    start_training(small_recipe(steps=8, samples=0, valid_every=8), RunFolder(folder / "base")).trainer.run()
    for name in METHODS:
        start_training(recipe(folder / "base", name), RunFolder(folder / name)).trainer.run()
    return folder


def recipe(base, name, **train) -> Config:
    """On the same corpus, with fewer sentences and a high learning rate."""
    settings = {"steps": 8, "valid_every": 4, "save_every": 4, "log_every": 4, **train}
    small = small_recipe(schedule="constant", lr=3e-2, warmup=4_000, snapshots=2, samples=0, **settings)
    tables = {
        "data": {"corpus": "reverse", "size": 100, "heldout_size": 20, "max_tokens": 64, "batch_tokens": 256},
        "train": dataclasses.asdict(small.train),
        "model": {"dropout": 0.1},
        "decode": {"strategy": "greedy"},
        "finetune": {"base": str(base), **METHODS[name]},
    }
    return config_from_tables(complete_from_base(tables))


def weights_of(run, device="cpu"):
    return dict(Translator.load(run).model.named_parameters())


def best_loss(run):
    return min(row["valid_loss"] for row in run.read_metrics() if "valid_loss" in row)


def logits(run, **options):
    translator = Translator.load(run, dtype="float64", **options)
    ids = torch.tensor([[5, 6, 7, 8, 3]])
    with torch.no_grad():
        return translator.model(ids, ids)


@pytest.mark.parametrize("name", METHODS)
def test_fine_tuning_learns_and_the_run_loads(runs, name):
    run = RunFolder(runs / name)
    before, after = logits(runs / "base"), logits(run.path)
    assert max_difference(before, after) > 1e-4
    # on the same held-out sentences; a base with so little training hardly attends to a prompt
    assert best_loss(run) < best_loss(RunFolder(runs / "base")) or name == "prompt"
    assert Translator.load(run.path).translate(TEXTS)[-1] == ""


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_is_saved_without_the_base(runs, name):
    run, base = RunFolder(runs / name), RunFolder(runs / "base")
    assert run.weights == run.adapter == run.path / "adapter.safetensors"
    assert not run.model.exists()
    about = read_metadata(run.adapter)
    assert about["base"] == weights_checksum(base.weights)
    saved = safetensors.torch.load(read_sealed(run.adapter))
    of_base = safetensors.torch.load(read_sealed(base.weights))
    assert not saved.keys() & of_base.keys()
    assert run.adapter.stat().st_size < base.weights.stat().st_size
    assert int(about["parameters"]) == sum(t.numel() for t in (*saved.values(), *of_base.values()))
    assert summarize(run).parameters == int(about["parameters"])
    latest = run.pointer("latest")
    assert {file.name for file in latest.iterdir()} == {"adapter.safetensors", "optimizer.safetensors", "state.json"}


@pytest.mark.parametrize("name", METHODS)
def test_frozen_weights_stay_bitwise_equal(runs, name):
    before, after = weights_of(runs / "base"), weights_of(runs / name)
    changed = {n for n, weight in before.items() if not torch.equal(weight, after[n])}
    if name in ADAPTERS:
        assert not changed
    elif name == "freeze":
        assert changed == {n for n in before if not n.startswith("encoder.") and "norm" not in n}
    else:
        assert changed == before.keys()


@pytest.mark.parametrize("name", METHODS)
def test_checkpoints_and_snapshots_load(runs, name):
    run = RunFolder(runs / name)
    file = "adapter.safetensors" if name in ADAPTERS else "model.safetensors"
    assert torch.equal(logits(run.path, weights=run.pointer("best") / file), logits(run.path))
    young = logits(run.path, weights=min(run.snapshots.glob("*.safetensors")))
    assert max_difference(young, logits(runs / "base")) > 1e-4


@pytest.mark.parametrize(
    "name", ["lora", "freeze", *(pytest.param(n, marks=SLOW) for n in ("prefix", "prompt", "full"))]
)
def test_resumed_equals_uninterrupted_bit_by_bit(runs, tmp_path, name):
    """Both with EMA, so that these weights are saved, too."""
    settings = recipe(runs / "base", name, ema=0.9, steps=6, save_every=6, valid_every=6)
    whole = start_training(settings, RunFolder(tmp_path / "whole")).trainer
    whole.run()
    run = RunFolder(tmp_path / "stopped")
    stopped = start_training(settings, run, [StopAt(3)])
    with pytest.raises(Interrupted):
        stopped.trainer.run()
    torch.manual_seed(99)
    going_on = resume(settings, run).trainer
    going_on.run()
    for one, other in zip(whole.model.named_parameters(), going_on.model.named_parameters(), strict=True):
        assert one[0] == other[0]
        assert torch.equal(one[1], other[1]), one[0]
    assert RunFolder(tmp_path / "whole").weights.read_bytes() == run.weights.read_bytes()


class StopAt(Observer):
    def __init__(self, step):
        self.step = step

    def on_step(self, trainer, report):
        if report.step == self.step:
            import signal

            signal.raise_signal(signal.SIGINT)


def test_the_average_of_checkpoints_is_an_adapter(runs, tmp_path):
    run = RunFolder(tmp_path / "run")
    start_training(
        recipe(runs / "base", "lora", steps=6, save_every=2, keep_checkpoints=2, average_checkpoints=2), run
    ).trainer.run()
    kept, *others = (
        safetensors.torch.load(read_sealed(path / "adapter.safetensors"))
        for path in (run.path, run.checkpoint(4), run.checkpoint(6))
    )
    for name, weight in kept.items():
        assert max_difference(weight, (others[0][name] + others[1][name]) / 2) < 1e-7
    assert read_metadata(run.adapter)["base"] == weights_checksum(RunFolder(runs / "base").weights)


# ---- The base --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_for_another_base_is_refused(runs, tmp_path, name):
    shutil.copytree(runs, tmp_path / "runs")
    run, base = RunFolder(tmp_path / "runs" / name), RunFolder(tmp_path / "runs/base")
    config = json.loads(run.config.read_text())
    config["finetune"]["base"] = str(base)
    run.config.write_text(json.dumps(config))
    run.seal()
    logits(run.path)
    expected = weights_checksum(base.weights)
    shutil.copyfile(tmp_path / "runs/full/model.safetensors", base.weights)  # of the same shape
    message = (
        rf"{name}/adapter.safetensors belongs to a base whose weights have the checksum {expected[:12]}, but "
        "the weights of "
    )
    with pytest.raises(
        RunError, match=message + rf".*base have {weights_checksum(base.weights)[:12]}.*fine-tune again"
    ):
        logits(run.path)
    with pytest.raises(RunError, match=f"belongs to a base whose weights have the checksum {expected[:12]}"):
        resume(dataclasses.replace(recipe(base.path, name)), run)


def test_a_base_is_found_next_to_its_adapter(runs, tmp_path, monkeypatch):
    shutil.copytree(runs / "base", tmp_path / "elsewhere/base")
    shutil.copytree(runs / "lora", tmp_path / "elsewhere/lora")
    run = RunFolder(tmp_path / "elsewhere/lora")
    config = json.loads(run.config.read_text())
    config["finetune"]["base"] = "base"
    run.config.write_text(json.dumps(config))
    run.seal()
    monkeypatch.chdir(tmp_path)
    expected = logits(runs / "lora")
    assert torch.equal(logits(run.path), expected)
    (tmp_path / "base").mkdir()  # another run with that name: the checksum decides
    shutil.copytree(runs / "full", tmp_path / "base", dirs_exist_ok=True)
    assert torch.equal(logits(run.path), expected)
    shutil.rmtree(tmp_path / "elsewhere/base")
    shutil.rmtree(tmp_path / "base")
    with pytest.raises(RunError, match=r"is an adapter for the run 'base', which was not found.*elsewhere/base"):
        logits(run.path)


def test_an_adapter_cannot_be_a_base(runs, tmp_path):
    with pytest.raises(ConfigError, match=r"is an adapter itself \(finetune.method = 'lora'\).*FOLDER --to run"):
        recipe(runs / "lora", "lora")


def test_a_model_other_than_that_of_the_base_is_refused(runs, tmp_path):
    """The shapes are not enough: another number of heads has the same shapes."""
    settings = recipe(runs / "base", "lora")
    other = dataclasses.replace(settings, model=dataclasses.replace(settings.model, n_heads=4))
    with pytest.raises(ConfigError, match=r"model.n_heads = 4, but the base .* was trained with 2. Remove it"):
        start_training(other, RunFolder(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_damaged_adapter_is_named(runs, tmp_path):
    shutil.copytree(runs / "lora", tmp_path / "lora")
    file = tmp_path / "lora/adapter.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    with pytest.raises(RunError, match=r"adapter.safetensors is damaged: its checksum differs"):
        logits(tmp_path / "lora")


def test_a_full_fine_tuning_does_not_need_its_base_afterwards(runs, tmp_path):
    shutil.copytree(runs, tmp_path / "runs")
    settings = recipe(tmp_path / "runs/base", "freeze", steps=14)
    run = RunFolder(tmp_path / "runs/freeze")
    config = json.loads(run.config.read_text())
    config["finetune"]["base"] = settings.finetune.base
    run.config.write_text(json.dumps(config))
    run.seal()
    shutil.rmtree(tmp_path / "runs/base")
    logits(run.path)
    trainer = resume(settings, run).trainer
    assert {n.partition(".")[0] for n in trainable_parameters(trainer.model)} & {"encoder"} == set()
    trainer.run()


# ---- Merging and the NumPy engine -------------------------------------------------------------------------------


def test_a_merged_run_computes_the_same_without_its_base(runs, tmp_path):
    folder = merge_run(runs / "lora", tmp_path / "merged")
    merged = RunFolder(folder)
    assert merged.read_config().finetune == FinetuneConfig()
    assert merged.weights == merged.model
    assert max_difference(logits(folder), logits(runs / "lora")) < 1e-5
    assert Translator.load(folder).translate(TEXTS) == Translator.load(runs / "lora").translate(TEXTS)
    of_base = safetensors.torch.load(read_sealed(RunFolder(runs / "base").weights))
    saved = safetensors.torch.load(read_sealed(merged.weights))
    assert {n: (t.shape, t.dtype) for n, t in saved.items()} == {n: (t.shape, t.dtype) for n, t in of_base.items()}
    with pytest.raises(RunError, match="merged is not empty. Name another one, or replace it"):
        merge_run(runs / "lora", folder)
    merge_run(runs / "lora", folder, overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes").write_text("mine")
    with pytest.raises(RunError, match="mine was not written by this command, so it is not replaced"):
        merge_run(runs / "lora", tmp_path / "mine", overwrite=True)


@pytest.mark.parametrize("name", ["prefix", "prompt", "full"])
def test_the_error_for_a_run_that_cannot_be_merged(runs, tmp_path, name):
    message = "is not an adapter" if name == "full" else f"finetune.method = '{name}' adds vectors"
    with pytest.raises(RunError, match=message):
        merge_run(runs / name, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_the_numpy_engine_reads_lora(runs):
    texts = ["a b c d e", "e d", "c"]
    torch_engine = Translator.load(runs / "lora", dtype="float64")
    numpy_engine = Translator.load(runs / "lora", engine="numpy", dtype="float64")
    one, other = torch_engine.hypotheses(texts), numpy_engine.hypotheses(texts)
    for (a,), (b,) in zip(one, other, strict=True):
        assert a.tokens == b.tokens
        assert a.log_probability == pytest.approx(b.log_probability, abs=1e-9)
    for name in ("prefix", "prompt"):
        with pytest.raises(
            RunError, match=rf"engine 'numpy' needs one set of weights, and .*'{name}'.* Use engine 'torch'"
        ):
            Translator.load(runs / name, engine="numpy")


# ---- New heads and other families --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A small masked language model, and labelled texts for fine-tuning."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "texts.txt").write_text("a b c d\n\nb c d a\n\nd d c a\n\n" * 12)
    (folder / "labels.tsv").write_text(
        "".join(f"{t}\t{'yes' if 'd' in t else 'no'}\n" for t in ("a b", "d a", "c") * 20)
    )
    model = small_recipe().model
    model = dataclasses.replace(model, family="encoder", decoder_layers=6, embeddings="separate")
    data = DataConfig(
        root=str(folder), train=("texts.txt",), valid=("texts.txt",), tokenizer="word", max_tokens=32, batch_tokens=128
    )
    start_training(Config(model, data, small_recipe(steps=4).train), RunFolder(folder / "base")).trainer.run()
    return folder


def classifying(folder, head="classes", **finetune) -> Config:
    data = {
        "root": str(folder),
        "train": ["labels.tsv"],
        "valid": ["labels.tsv"],
        "max_tokens": 32,
        "batch_tokens": 128,
    }
    train = dataclasses.asdict(
        small_recipe(steps=16, schedule="constant", lr=1e-2, warmup=4_000, valid_every=8, save_every=8).train
    )
    model = {"head": head, "pooling": "mean"} if head == "classes" else {"head": head}
    given = {"base": str(folder / "base"), **finetune}
    return config_from_tables(complete_from_base({"model": model, "data": data, "train": train, "finetune": given}))


@pytest.mark.parametrize("method", ["lora", *(pytest.param(m, marks=SLOW) for m in ("prefix", "prompt", "full"))])
def test_a_new_head_is_trained_and_saved(reader, tmp_path, method):
    run = RunFolder(tmp_path / method)
    training = start_training(classifying(reader, method=method), run)
    training.trainer.run()
    assert training.config.model.n_classes == 2
    ids, classifier = torch.tensor([[1, 5, 6, 2]]), Classifier.load(run.path)
    assert best_loss(run) < math.log(2)  # the loss of guessing
    if training.trainer.is_best:
        trained, loaded = (
            training.trainer.model.eval(),
            classifier.model,
        )  # a prepared model rounds differently
        assert max_difference(loaded(ids), trained(ids)) < 1e-5
        for (name, ours), (_, theirs) in zip(loaded.named_parameters(), trained.named_parameters(), strict=True):
            assert torch.equal(ours, theirs), name
    if method == "lora":
        names = safetensors.torch.load(read_sealed(run.weights)).keys()
        assert {"head.classify.weight", "head.classify.bias"} <= names
        folder = merge_run(run.path, tmp_path / "merged")
        with torch.no_grad():
            one, other = (Classifier.load(path).model(ids) for path in (run.path, folder))
        assert max_difference(one, other) < 1e-5


def test_other_labels_make_a_new_head(reader, tmp_path):
    """A classifier fine-tuned on other classes gets a new head."""
    start_training(classifying(reader), RunFolder(tmp_path / "base")).trainer.run()
    for labels, is_new in (("yes no", False), ("left right up", True)):
        words = labels.split()
        (tmp_path / "more.tsv").write_text("".join(f"a b\t{word}\n" for word in words * 10))
        data = {"root": str(tmp_path), "train": ["more.tsv"], "max_tokens": 32, "batch_tokens": 128}
        tables = {"data": data, "finetune": {"base": str(tmp_path / "base"), "method": "lora"}}
        training = start_training(
            config_from_tables(complete_from_base({**tables, "train": {"steps": 2}})),
            RunFolder(tmp_path / f"tuned {labels}"),
        )
        assert any(name.startswith("head.") for name in trainable_parameters(training.trainer.model)) == is_new
        assert training.config.model.n_classes == len(words)


def test_a_prompt_shortens_the_longest_text_of_a_rotary_generator(tmp_path):
    """The prompt takes some of the positions; the rest are for the text."""
    (tmp_path / "texts.txt").write_text("a b c d\n\n" * 30)
    data = {"root": str(tmp_path), "train": ("texts.txt",), "max_tokens": 8, "batch_tokens": 64}
    model = dataclasses.replace(
        small_recipe().model, family="decoder", encoder_layers=6, position="rope", max_length=16, d_model=16
    )
    train = TrainConfig(steps=2, warmup=2, valid_every=2)
    start_training(
        Config(model, DataConfig(**data, tokenizer="word"), train), RunFolder(tmp_path / "base")
    ).trainer.run()
    tables = {"data": {**data, "train": ["texts.txt"]}, "train": {"steps": 2, "warmup": 2}}
    tables["finetune"] = {"base": str(tmp_path / "base"), "method": "prompt", "prompt_length": 5}
    start_training(config_from_tables(complete_from_base(tables)), RunFolder(tmp_path / "run")).trainer.run()
    generator = TextGenerator.load(tmp_path / "run")
    assert generator.config.longest_text == 11
    decode = dataclasses.replace(generator.config.decode, strategy="greedy", max_length=100)
    assert len(generator.hypotheses(["a b"], decode)[0][0].tokens) <= 11 - 3 + 1
    tables["data"]["max_tokens"] = 12
    with pytest.raises(
        ConfigError, match=r"finetune.prompt_length = 5 vectors before data.max_tokens = 12 do not fit into the 16"
    ):
        config_from_tables(complete_from_base(tables))
