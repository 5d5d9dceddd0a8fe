"""The trainer: micro-batches, interruptions and resuming do not change the result."""

import dataclasses
import json
import math
import signal
from itertools import pairwise

import pytest
import tokenizers
import torch
from helpers import max_difference, small_recipe
from hypothesis import given
from hypothesis import strategies as st

from cutaway.data.batching import collate_pairs
from cutaway.data.tasks import EncodedPair
from cutaway.errors import ConfigError, Diverged, Interrupted, RunError, TrainingFailed
from cutaway.inference.pipelines import Translator
from cutaway.inference.training.setup import resume, start_training
from cutaway.runs import RunFolder
from cutaway.train import checkpoint
from cutaway.train.loop import snapshot_steps
from cutaway.train.observers import Observer


def weights(trainer):
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_it_learns(tmp_path):
    """A few pairs can be memorized."""
    recipe = small_recipe(schedule="constant", lr=5e-3, warmup=4000, label_smoothing=0.0)
    recipe = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, dropout=0.0))
    training = start_training(recipe, RunFolder(tmp_path / "run"))
    batch = collate_pairs(training.trainer.batches.examples[:8], training.tokenizer)
    losses = [training.trainer.step(batch).nll for _ in range(150)]
    assert losses[0] > 3
    assert losses[-1] < 0.1


def test_run_folder_is_complete_and_loads(tmp_path):
    run = RunFolder(tmp_path / "run")
    training = start_training(small_recipe(snapshots=3), run)
    training.trainer.run()
    files = {str(p.relative_to(run.path)) for p in run.path.rglob("*") if p.is_file()}
    assert {"config.json", "tokenizer.json", "model.safetensors", "data.json", "metrics.jsonl", "latest"} <= files
    assert {f"snapshots/step_{step:06d}.safetensors" for step in (1, 2, 12)} <= files
    assert {
        f"checkpoints/step_000012/{f}" for f in ("model.safetensors", "optimizer.safetensors", "state.json")
    } <= files
    assert not [name for name in files if name.endswith((".pt", ".pth", ".pkl", ".bin"))]
    assert not [name for name in files if "/." in name or name.startswith(".")]  # no temporary file stays
    assert len(list(run.checkpoints.iterdir())) <= 3  # the last two, and the best
    steps = [row["step"] for row in run.read_metrics() if "loss" in row]
    assert steps == [2, 4, 6, 8, 10, 12]
    translator = Translator.load(run.path)
    best = run.pointer("best")
    assert best is not None
    assert Translator.load(run.path, weights=best / "model.safetensors").translate(["a b c"]) == translator.translate(
        ["a b c"]
    )


def test_loaded_equals_trained(tmp_path):
    run = RunFolder(tmp_path / "run")
    training = start_training(small_recipe(valid_every=12), run)
    training.trainer.run()
    assert same(weights(training.trainer), dict(Translator.load(run.path).model.named_parameters()))


@pytest.mark.parametrize("stop", [3, 4, 7])
def test_resumed_equals_uninterrupted_exactly(tmp_path, stop):
    """Dropout, shuffling, optimizer, schedule and metrics continue as without the stop."""
    whole = start_training(small_recipe(), RunFolder(tmp_path / "whole"))
    whole.trainer.run()

    run = RunFolder(tmp_path / "stopped")
    stopped = start_training(small_recipe(), run, [StopAt(stop)])
    with pytest.raises(Interrupted, match=f"stopped at step {stop} of 12; everything is saved"):
        stopped.trainer.run()
    torch.manual_seed(12345)  # a new process starts with other random numbers
    resumed = resume(small_recipe(), run)
    assert resumed.trainer.state.step == stop
    resumed.trainer.run()

    assert same(weights(whole.trainer), weights(resumed.trainer))
    without_times = [
        [
            {k: v for k, v in row.items() if k not in ("seconds", "waiting")}
            for row in RunFolder(tmp_path / name).read_metrics()
        ]
        for name in ("whole", "stopped")
    ]
    assert without_times[0] == without_times[1]
    assert whole.trainer.state.tokens == resumed.trainer.state.tokens


class StopAt(Observer):
    def __init__(self, step):
        self.step = step

    def on_step(self, trainer, report):
        if report.step == self.step:
            signal.raise_signal(signal.SIGINT)  # what Ctrl-C does


def test_killed_run_resumes_from_its_last_checkpoint(tmp_path):
    """The steps after the last checkpoint are repeated, and their metrics are written once."""
    whole = start_training(small_recipe(), RunFolder(tmp_path / "whole"))
    whole.trainer.run()
    run = RunFolder(tmp_path / "killed")
    with pytest.raises(KeyError):
        start_training(small_recipe(), run, [KillAt(7)]).trainer.run()
    resumed = resume(small_recipe(), run)
    assert resumed.trainer.state.step == 4
    resumed.trainer.run()
    assert same(weights(whole.trainer), weights(resumed.trainer))
    steps = [row["step"] for row in run.read_metrics() if "loss" in row]
    assert steps == [2, 4, 6, 8, 10, 12]


class KillAt(StopAt):
    def on_step(self, trainer, report):
        if report.step == self.step:
            raise KeyError("power cut")


def test_training_can_be_extended(tmp_path):
    run = RunFolder(tmp_path / "run")
    start_training(small_recipe(steps=8), run).trainer.run()
    longer = resume(small_recipe(steps=12), run)
    longer.trainer.run()
    whole = start_training(small_recipe(steps=12), RunFolder(tmp_path / "whole"))
    whole.trainer.run()
    assert same(weights(whole.trainer), weights(longer.trainer))


def test_training_with_a_cosine_cannot_be_extended(tmp_path):
    run = RunFolder(tmp_path / "run")
    cosine = {"schedule": "cosine", "lr": 1e-3}
    start_training(small_recipe(**cosine), run).trainer.run()
    with pytest.raises(ConfigError, match="train.steps was 12, now 20"):
        resume(small_recipe(**cosine, steps=20), run)


def test_other_recipe_or_data_cannot_be_resumed(tmp_path):
    run = RunFolder(tmp_path / "run")
    recipe = small_recipe()
    start_training(recipe, run).trainer.run()
    other = dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, lr=0.5))
    with pytest.raises(ConfigError, match=r"train.lr was 1.0, now 0.5"):
        resume(other, run)
    (run.path / "data.json").write_text(json.dumps({"fingerprint": "0", "examples": 200}))
    run.seal()
    with pytest.raises(RunError, match="the training data differs from"):
        resume(recipe, run)
    with pytest.raises(RunError, match="there is no run in"):
        resume(recipe, RunFolder(tmp_path / "nowhere"))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("count", [2, 3, 8, 100])
def test_micro_batches_give_the_gradient_of_the_batch(tmp_path, count):
    """Sums are divided once by the number of all target tokens, so that unequal parts give the same gradient."""
    results = []
    pairs = [EncodedPair([5] * n, [6 + n % 3] * (2 * n)) for n in range(1, 9)]
    for micro_batches in (1, count):
        recipe = small_recipe(micro_batches=micro_batches)
        recipe = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, dropout=0.0))
        training = start_training(recipe, RunFolder(tmp_path / str(micro_batches)))
        report = training.trainer.step(collate_pairs(pairs, training.tokenizer))
        gradients = {name: p.grad for name, p in training.trainer.model.named_parameters()}
        results.append((report.loss, gradients, weights(training.trainer)))
    assert results[0][0] == pytest.approx(results[1][0], abs=1e-12)
    for name in results[0][1]:
        assert max_difference(results[0][1][name], results[1][1][name]) < 1e-12
        assert max_difference(results[0][2][name], results[1][2][name]) < 1e-9


def test_gradients_are_clipped_by_their_total_norm(tmp_path):
    training = start_training(small_recipe(clip_norm=0.01), RunFolder(tmp_path / "run"))
    report = training.trainer.step(next(training.trainer.batches))
    after = math.sqrt(sum(p.grad.pow(2).sum().item() for p in training.trainer.model.parameters()))
    assert report.gradient_norm > 0.1
    assert after == pytest.approx(0.01, rel=1e-3)


def test_nan_loss_raises_an_error_and_does_not_change_the_weights(tmp_path):
    training = start_training(small_recipe(), RunFolder(tmp_path / "run"))
    with torch.no_grad():
        training.trainer.model.head.weight[5] = math.nan
    before = weights(training.trainer)
    with pytest.raises(Diverged, match="the loss was nan at step 10 and at the 9 steps before it. Lower train.lr"):
        training.trainer.run()
    after = weights(training.trainer)
    assert all(torch.equal(before[n].nan_to_num(), after[n].nan_to_num()) for n in before)


def test_step_with_an_infinite_gradient_is_skipped_and_counted(tmp_path):
    """The second of three steps has an infinite gradient and changes nothing."""
    trainer = start_training(small_recipe(), RunFolder(tmp_path / "run")).trainer
    objective, calls = trainer.model_with_loss.objective, []

    def infinite_at_step_2(model, batch):
        predictions = objective(model, batch)
        calls.append(1)
        return predictions._replace(logits=predictions.logits * math.inf) if len(calls) == 2 else predictions

    trainer.model_with_loss.objective = infinite_at_step_2
    trainer.next_step()
    before = weights(trainer)
    report = trainer.next_step()
    assert not math.isfinite(report.loss)
    assert same(before, weights(trainer))
    assert (trainer.state.skipped, trainer.state.skipped_in_a_row) == (1, 1)
    trainer.next_step()
    assert (trainer.state.skipped, trainer.state.skipped_in_a_row) == (1, 0)
    assert not same(before, weights(trainer))


def test_invalid_recipe_does_not_delete_an_existing_run(tmp_path):
    run = RunFolder(tmp_path / "run")
    start_training(small_recipe(), run).trainer.run()
    recipe = small_recipe()
    with pytest.raises(ConfigError, match="vocab_size = 7, but the data has 30"):
        start_training(dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, vocab_size=7)), run)
    with pytest.raises(ConfigError, match=r"the device 'gpu9' cannot be used here"):
        start_training(dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, device="gpu9")), run)
    assert Translator.load(run.path).translate([""]) == [""]


def test_the_same_seed_gives_the_same_run(tmp_path):
    results = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        training = start_training(small_recipe(steps=3, seed=seed), RunFolder(tmp_path / name))
        training.trainer.run()
        results.append(weights(training.trainer))
    assert same(results[0], results[1])
    assert not same(results[0], results[2])


@pytest.mark.parametrize("budget", [{"epochs": 2.5}, {"tokens": 3_000}, {"minutes": 0.02}])
def test_budget(tmp_path, budget):
    """The training and its cosine schedule end after these epochs, tokens or minutes."""
    run = RunFolder(tmp_path / "run")
    trainer = start_training(
        small_recipe(**budget, steps=100_000, schedule="cosine", lr=1e-3, warmup=2, snapshots=3), run
    ).trainer
    state = trainer.run()
    (name, limit), used = next(iter(budget.items())), {"epochs": state.epochs, "tokens": state.tokens}
    if name == "minutes":
        assert limit * 60 <= state.seconds < limit * 60 + 5
    else:
        assert limit <= used[name] < limit * 1.3
        assert run.read_metrics()[-2]["lr"] < 1e-6
    assert trainer.progress == 1
    snapshots = len(list(run.snapshots.iterdir()))
    assert snapshots == 3 or (name == "minutes" and 1 <= snapshots < 3)  # a busy machine does few steps in that time


@given(st.integers(1, 5_000), st.integers(1, 40))
def test_snapshots_are_denser_at_the_start_and_include_the_last_step(steps, count):
    found = snapshot_steps(steps, count)
    assert len(found) == min(steps, count)
    assert found == sorted(set(found))
    assert found[0] > 0
    assert found[-1] == steps
    ratios = [b / a for a, b in pairwise(snapshot_steps(100_000, 9))]
    assert ratios == pytest.approx([100 ** (1 / 8)] * 8, rel=1e-3)  # from 1 % of the steps to all of them


def test_patience_ends_a_training_that_does_not_improve(tmp_path):
    run = RunFolder(tmp_path / "run")
    trainer = start_training(
        small_recipe(steps=500, schedule="constant", lr=0.09, warmup=4_000, valid_every=2, patience=2), run
    ).trainer
    state = trainer.run()
    assert state.step < 500
    assert state.validations_since_best == 2
    assert state.step == state.best_step + 4


def test_last_weights_are_saved_without_validation_data(tmp_path):
    (tmp_path / "a").write_text("a b c\nb c a\n" * 20)
    (tmp_path / "b").write_text("c b a\na c b\n" * 20)
    recipe = small_recipe(steps=4, save_every=2)
    data = {"root": str(tmp_path), "train": ("a", "b"), "tokenizer": "word", "max_tokens": 64, "batch_tokens": 64}
    recipe = dataclasses.replace(recipe, data=type(recipe.data)(**data))
    training = start_training(recipe, RunFolder(tmp_path / "run"))
    training.trainer.run()
    assert same(weights(training.trainer), dict(Translator.load(tmp_path / "run").model.named_parameters()))


def test_imported_tokenizer_keeps_its_special_tokens(tmp_path):
    """Special tokens from tokenizer_config.json are kept in training, loading and resuming."""
    vocabulary = {"P": 0, "B": 1, "E": 2, "U": 3, "a": 4, "b": 5, "c": 6}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, "U"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    backend.save(str(tmp_path / "tokenizer.json"))
    roles = {"pad_token": "P", "bos_token": "B", "eos_token": "E", "unk_token": "U"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(roles))
    (tmp_path / "s").write_text("a b c\nb c\n" * 10)
    (tmp_path / "t").write_text("c b a\nc b\n" * 10)
    recipe = small_recipe(steps=2, save_every=1)
    files = {"root": str(tmp_path), "train": ("s", "t"), "tokenizer": "file", "tokenizer_file": "tokenizer.json"}
    recipe = dataclasses.replace(recipe, data=type(recipe.data)(**files, max_tokens=64))
    run = RunFolder(tmp_path / "run")
    start_training(recipe, run).trainer.run()
    assert Translator.load(run.path).tokenizer.eos == 2
    assert resume(recipe, run).tokenizer.pad == 0


def test_left_out_validation_pairs_are_counted(tmp_path):
    for name, text in {"s": "a b\n" * 9, "vs": "a\n\n" + "a " * 80 + "\n", "vt": "b\nb\nb\n"}.items():
        (tmp_path / name).write_text(text)
    recipe = small_recipe(steps=2)
    data = type(recipe.data)(root=str(tmp_path), train=("s", "s"), valid=("vs", "vt"), tokenizer="word", max_tokens=64)
    training = start_training(dataclasses.replace(recipe, data=data), RunFolder(tmp_path / "run"))
    assert training.left_out == {"empty for validation": 1, "too long for validation": 1}
    training.trainer.run()


def cut_in_half(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def change_a_byte(file):
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(bytes(content))


@pytest.mark.parametrize("damage", [cut_in_half, change_a_byte])
@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_damaged_checkpoint_is_replaced_by_the_one_before(tmp_path, name, damage):
    run, whole = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "whole")
    start_training(small_recipe(steps=8, save_every=2, keep_checkpoints=3), run).trainer.run()
    trained = start_training(small_recipe(steps=12, save_every=2, keep_checkpoints=3), whole).trainer
    trained.run()
    damage(run.checkpoint(8) / name)
    if name == "state.json" and damage is change_a_byte:
        (run.checkpoint(8) / name).write_text('{"step": 8}', encoding="utf-8")  # valid JSON with another content
    with pytest.warns(UserWarning, match=r"step_000008 cannot be used: .* Resuming from the one before, step_000006"):
        resumed = resume(small_recipe(steps=12, save_every=2, keep_checkpoints=3), run).trainer
    assert resumed.state.step == 6
    resumed.run()
    assert same(weights(resumed), weights(trained))


def test_checkpoint_that_was_loaded_is_kept_until_the_next_is_saved(tmp_path, monkeypatch):
    """Old checkpoints are deleted before the new one is written. If that fails, an intact one must be left."""
    run = RunFolder(tmp_path / "run")
    start_training(small_recipe(steps=8, save_every=2, keep_checkpoints=2), run).trainer.run()
    cut_in_half(run.checkpoint(8) / "model.safetensors")
    with pytest.warns(UserWarning, match="Resuming from the one before, step_000006"):
        resumed = resume(small_recipe(steps=12, save_every=1, keep_checkpoints=2), run).trainer

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_sealed_json", fail)
        with pytest.raises(TrainingFailed, match="disk is full"):
            resumed.run()
    with pytest.warns(UserWarning, match="Resuming from the one before, step_000006"):
        assert resume(small_recipe(steps=12, save_every=1, keep_checkpoints=2), run).trainer.state.step == 6
