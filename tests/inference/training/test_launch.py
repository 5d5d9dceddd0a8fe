"""The number of training processes, how they start, and the errors of a failed training."""

import dataclasses
import errno
import os
import subprocess
import sys

import pytest
import torch
from helpers import small_recipe

from cutaway.errors import RunError, TrainingFailed
from cutaway.inference.training import launch
from cutaway.runs import RunFolder
from cutaway.train import environment
from cutaway.train.failures import explain_failures


@pytest.mark.parametrize(
    ("cores", "batch_tokens", "setting", "expected"),
    [(4, 4096, 0, 4), (4, 2500, 0, 2), (4, 100, 0, 1), (1, 8192, 0, 1), (4, 100, 3, 3), (4, 8192, 1, 1)],
)
def test_process_count(monkeypatch, cores, batch_tokens, setting, expected):
    monkeypatch.setattr(launch, "cores", lambda: cores)
    recipe = small_recipe(processes=setting, device="cpu")
    recipe = dataclasses.replace(
        recipe, data=dataclasses.replace(recipe.data, batch_tokens=batch_tokens, max_tokens=64)
    )
    assert launch.choose_process_count(recipe) == expected


def test_a_distributed_process_starts_no_workers(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert launch.choose_process_count(small_recipe(processes=4, device="cpu")) == 1


def test_no_workers_for_a_gpu():
    assert not launch.is_cpu("cuda:0")
    assert launch.is_cpu("cpu")
    assert launch.choose_process_count(small_recipe(processes=2, device="cuda")) == 1


def test_cores_are_limited_by_the_machine_and_by_omp_num_threads(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert 1 <= environment.cores() <= (os.cpu_count() or 1)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert environment.cores() == 1


def test_the_environment_is_restored(tmp_path):
    before = dict(os.environ)
    with launch.worker_processes(1, small_recipe(), RunFolder(tmp_path)):
        assert dict(os.environ) == before
    assert dict(os.environ) == before


ERRORS = [
    (
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 99"),
        "Raise train.micro_batches (now 1)",
    ),
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "lower data.batch_tokens"),
    (MemoryError(), "out of memory (MemoryError)"),
    (RuntimeError("[pair.cc:534] Connection closed by peer [127.0.0.1]:1"), "another process of this training died"),
    (OSError(errno.ENOSPC, "No space left on device", "model.safetensors"), "the disk is full at model.safetensors"),
]


@pytest.mark.parametrize(("error", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_machine_errors_have_a_clear_message(tmp_path, error, message):
    with (
        pytest.raises(TrainingFailed, match="Nothing has been saved yet") as raised,
        explain_failures(small_recipe().train, RunFolder(tmp_path), processes=2),
    ):
        raise error
    assert message in str(raised.value)


def test_other_errors_are_not_changed(tmp_path):
    for error in (RuntimeError("shapes differ"), OSError(errno.EACCES, "no")):
        with pytest.raises(type(error)), explain_failures(small_recipe().train, RunFolder(tmp_path), processes=1):
            raise error


HOLD = """
import sys, time
from cutaway.runs import RunFolder
with RunFolder(sys.argv[1]).lock():
    print("held", flush=True)
    time.sleep(60)
"""


def test_only_one_process_can_train_into_a_folder(tmp_path):
    run = RunFolder(tmp_path / "run")
    with subprocess.Popen([sys.executable, "-c", HOLD, str(run)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(RunError, match="another process is training into"), run.lock(patience=0):
            pass
        other.kill()
        other.wait()
    with run.lock(patience=5):  # the lock of a killed process is released
        pass
    assert not list(run.path.iterdir())
