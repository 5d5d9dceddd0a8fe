"""Several processes train the same adapter as a single process."""

import json
import os
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from safetensors.numpy import load_file

pytestmark = pytest.mark.slow

SCRIPT = """
import json, sys
from cutaway.config import config_from_tables
from cutaway.runs.recipe import complete_from_base
from cutaway.runs import RunFolder
from cutaway.inference.training.setup import start_training, resume

folder, tables, go_on = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:] == ["--resume"]
(resume if go_on else start_training)(config_from_tables(complete_from_base(tables)), RunFolder(folder)).trainer.run()
"""
MODEL = {"d_model": 32, "d_ff": 64, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
DATA = {"corpus": "tinyworld:en-fr", "size": 300, "heldout_size": 20, "max_tokens": 60, "batch_tokens": 300}
TRAIN = {"steps": 8, "precision": "float64", "epsilon": 1e-6, "valid_every": 8, "save_every": 4, "samples": 1}
TRAIN |= {"schedule": "constant", "lr": 1e-2}
METHODS = {
    "lora": {"method": "lora", "train": ["*norm*"]},
    "prefix": {"method": "prefix"},
    "prompt": {"method": "prompt", "target_modules": ["encoder", "decoder"]},
    "freeze": {"method": "full", "freeze": ["encoder.*"]},
}


def train(folder, tables, processes=1, *more):
    (folder.parent / "script.py").write_text(SCRIPT)
    command = [sys.executable]
    if processes > 1:
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command += [str(folder.parent / "script.py"), str(folder), json.dumps(tables), *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    tables = {"model": {**MODEL, "max_length": 64}, "data": {**DATA, "tokenizer": "word"}, "train": TRAIN}
    return train(tmp_path_factory.mktemp("team") / "base", tables)


@pytest.fixture(scope="module")
def alone(base):
    """The result of a single process for each method, trained on first use."""
    return cache(lambda name: train(base.parent / name, tables_of(base, name)))


def tables_of(base, name, **settings):
    return {"data": DATA, "finetune": {"base": str(base), **METHODS[name]}, "train": {**TRAIN, **settings}}


@pytest.mark.parametrize(
    ("name", "parallel"),
    [("lora", "auto"), ("lora", "ddp"), ("lora", "fsdp"), ("prefix", "fsdp"), ("prompt", "fsdp"),
     ("freeze", "fsdp")],
)  # fmt: skip
def test_two_processes_train_the_same_weights(base, alone, tmp_path, name, parallel):
    one, two = alone(name), train(tmp_path / "two", tables_of(base, name, parallel=parallel), 2)
    last = "checkpoints/step_000008"
    for file in (own_file(name), f"{last}/{own_file(name)}", f"{last}/optimizer.safetensors"):
        a, b = load_file(one / file), load_file(two / file)
        assert a.keys() == b.keys()
        assert max(float(np.abs(a[key] - b[key]).max()) for key in a) < 1e-9
    if name == "freeze":
        assert not any(key.startswith("encoder.") for key in a)  # frozen weights are not in the optimizer


def own_file(name):
    return "model.safetensors" if name == "freeze" else "adapter.safetensors"


def test_resuming_with_another_number_of_processes(base, tmp_path):
    whole = train(tmp_path / "whole", tables_of(base, "lora", steps=12))
    parts = train(tmp_path / "parts", tables_of(base, "lora", parallel="fsdp"), 2)
    train(parts, tables_of(base, "lora", steps=12), 1, "--resume")
    a, b = load_file(whole / "adapter.safetensors"), load_file(parts / "adapter.safetensors")
    assert max(float(np.abs(a[key] - b[key]).max()) for key in a) < 1e-9
