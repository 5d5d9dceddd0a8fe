"""Micro-batches, data-parallel processes and sharded processes give the same result as one process."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

from cutaway.runs import RunFolder

SCRIPT = """
import json, sys
from cutaway.config import config_from_tables
from cutaway.runs import RunFolder
from cutaway.inference.training.setup import start_training, resume

folder, tables, resumes = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:] == ["--resume"]
(resume if resumes else start_training)(config_from_tables(tables), RunFolder(folder)).trainer.run()
"""
MODEL = {"d_model": 32, "d_ff": 64, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
DATA = {"corpus": "tinyworld:en-fr", "size": 300, "heldout_size": 20, "tokenizer": "word", "vocab_size": 1000}
# Gradients that should be 0, as those of key biases, are rounding errors. This epsilon is larger than they are.
TRAIN = {"steps": 20, "warmup": 10, "precision": "float64", "epsilon": 1e-6, "valid_every": 10, "save_every": 10}


def tables(**settings):
    return {
        "model": {**MODEL, "max_length": 64},
        "data": {**DATA, "max_tokens": 64, "batch_tokens": 300},
        "train": {**TRAIN, "log_every": 1, "samples": 1, "keep_checkpoints": 2, **settings},
    }


def train(folder, processes=1, *more, expect=0, **settings):
    (folder.parent / "script.py").write_text(SCRIPT)
    command = [sys.executable]
    if processes > 1:
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command += [str(folder.parent / "script.py"), str(folder), json.dumps(tables(**settings)), *more]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
    )
    assert (done.returncode == 0) == (expect == 0), done.stderr
    return folder if expect == 0 else done.stderr


def difference(one, other, name="model.safetensors"):
    a, b = load_file(one / name), load_file(other / name)
    assert a.keys() == b.keys()
    return max(float(np.abs(a[key].astype(float) - b[key].astype(float)).max()) for key in a)


def losses(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row.get("loss", row.get("valid_loss")) for row in rows]


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """A training with one process and whole batches."""
    return train(tmp_path_factory.mktemp("single") / "run")


SPLITS = {
    "2 micro-batches": (1, {"micro_batches": 2}),
    "8 micro-batches": (1, {"micro_batches": 8}),
    "2 processes that share memory": (2, {"parallel": "auto"}),
    "2 processes with DDP": (2, {"parallel": "ddp"}),
    "2 processes with FSDP2": (2, {"parallel": "fsdp"}),
    "2 processes with 4 micro-batches each": (2, {"micro_batches": 4}),
}


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
def test_every_split_gives_the_same_result(single, tmp_path, split):
    processes, settings = SPLITS[split]
    divided = train(tmp_path / "run", processes, **settings)
    assert {str(weight.dtype) for weight in load_file(divided / "model.safetensors").values()} == {"float64"}
    assert difference(single, divided) < 1e-10
    assert difference(single, divided, "checkpoints/step_000020/optimizer.safetensors") < 1e-10
    assert losses(divided) == pytest.approx(losses(single), abs=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "parallel"), [("adamw", "fsdp"), ("muon", "ddp"), ("muon", "auto")])
def test_other_optimizers_and_ema(tmp_path, optimizer, parallel):
    settings = {"optimizer": optimizer, "ema": 0.9, "schedule": "wsd", "lr": 1e-2}
    one = train(tmp_path / "one", **settings)
    two = train(tmp_path / "two", 2, **settings, parallel=parallel)
    assert difference(one, two) < 1e-9
    assert difference(one, two, "checkpoints/step_000020/ema.safetensors") < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["auto", "fsdp"])
def test_processes_agree_on_best_checkpoint_and_average(tmp_path, parallel):
    """The best checkpoint by BLEU, and the mean of the last two checkpoints."""
    for settings in ({"best_by": "bleu", "lr": 3.0}, {"average_checkpoints": 2}):
        one = train(tmp_path / f"one{len(settings)}", **settings)
        two = train(tmp_path / f"two{len(settings)}", 2, **settings, parallel=parallel)
        assert difference(one, two) < 1e-9
        for name in ("best", "latest"):
            assert RunFolder(one).pointer(name).name == RunFolder(two).pointer(name).name
        assert losses(two) == pytest.approx(losses(one), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "parallel"), [(1, "auto"), (2, "fsdp"), (2, "auto")])
def test_checkpoint_can_be_resumed_with_any_number_of_processes(single, tmp_path, processes, parallel):
    half = train(tmp_path / "run", 2, parallel="fsdp", steps=10)
    whole = train(half, processes, "--resume", parallel=parallel, steps=20)
    assert difference(single, whole) < 1e-10
    assert losses(whole) == pytest.approx(losses(single), abs=1e-10)


@pytest.mark.slow
def test_fsdp_and_muon_cannot_be_combined(tmp_path):
    error = train(tmp_path / "run", 2, expect=1, parallel="fsdp", optimizer="muon", schedule="wsd", lr=1e-2)
    assert "train.parallel = 'fsdp' and train.optimizer = 'muon' cannot be combined" in error
