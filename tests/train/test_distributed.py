"""One training, however it is divided: into micro-batches, among processes that hold the model or shares of it."""

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

folder, tables, go_on = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:] == ["--resume"]
(resume if go_on else start_training)(config_from_tables(tables), RunFolder(folder)).trainer.run()
"""
MODEL = {"d_model": 32, "d_ff": 64, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
DATA = {"corpus": "tinyworld:en-fr", "size": 300, "heldout_size": 20, "tokenizer": "word", "vocab_size": 1000}
# An epsilon that is not lost beside the rounding of gradients that ought to be 0, such as those of key biases.
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
def alone(tmp_path_factory):
    return train(tmp_path_factory.mktemp("alone") / "run")


WAYS = {
    "2 micro-batches": (1, {"micro_batches": 2}),
    "8 micro-batches": (1, {"micro_batches": 8}),
    "2 processes that share memory": (2, {"parallel": "auto"}),
    "2 processes with DDP": (2, {"parallel": "ddp"}),
    "2 processes with FSDP2": (2, {"parallel": "fsdp"}),
    "2 processes with 4 micro-batches each": (2, {"micro_batches": 4}),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_divided_in_any_way_it_is_the_same_training(alone, tmp_path, way):
    processes, settings = WAYS[way]
    divided = train(tmp_path / "run", processes, **settings)
    assert {str(weight.dtype) for weight in load_file(divided / "model.safetensors").values()} == {"float64"}
    assert difference(alone, divided) < 1e-10
    assert difference(alone, divided, "checkpoints/step_000020/optimizer.safetensors") < 1e-10
    assert losses(divided) == pytest.approx(losses(alone), abs=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "parallel"), [("adamw", "fsdp"), ("muon", "ddp"), ("muon", "auto")])
def test_so_it_is_with_other_optimizers_and_slow_weights(tmp_path, optimizer, parallel):
    settings = {"optimizer": optimizer, "ema": 0.9, "schedule": "wsd", "lr": 1e-2}
    one = train(tmp_path / "one", **settings)
    two = train(tmp_path / "two", 2, **settings, parallel=parallel)
    assert difference(one, two) < 1e-9
    assert difference(one, two, "checkpoints/step_000020/ema.safetensors") < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["auto", "fsdp"])
def test_all_choose_the_same_checkpoint_and_average_the_same(tmp_path, parallel):
    """The best by BLEU, for which all translate; and the mean of the last two, which one reads and all hold."""
    for settings in ({"best_by": "bleu", "lr": 3.0}, {"average_checkpoints": 2}):
        one = train(tmp_path / f"one{len(settings)}", **settings)
        two = train(tmp_path / f"two{len(settings)}", 2, **settings, parallel=parallel)
        assert difference(one, two) < 1e-9
        for name in ("best", "latest"):
            assert RunFolder(one).pointer(name).name == RunFolder(two).pointer(name).name
        assert losses(two) == pytest.approx(losses(one), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "parallel"), [(1, "auto"), (2, "fsdp"), (2, "auto")])
def test_what_several_saved_any_number_can_go_on_with(alone, tmp_path, processes, parallel):
    half = train(tmp_path / "run", 2, parallel="fsdp", steps=10)
    whole = train(half, processes, "--resume", parallel=parallel, steps=20)
    assert difference(alone, whole) < 1e-10
    assert losses(whole) == pytest.approx(losses(alone), abs=1e-10)


@pytest.mark.slow
def test_what_cannot_combine_is_refused_by_name(tmp_path):
    said = train(tmp_path / "run", 2, expect=1, parallel="fsdp", optimizer="muon", schedule="wsd", lr=1e-2)
    assert "train.parallel = 'shards' and train.optimizer = 'muon' cannot go together" in said
