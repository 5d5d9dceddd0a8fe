"""How many processes, how they are started, and what is said when one is lost."""

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
from cutaway.train.failures import explained


@pytest.mark.parametrize(
    ("cores", "batch_tokens", "asked", "expected"),
    [(4, 4096, 0, 4), (4, 2500, 0, 2), (4, 100, 0, 1), (1, 8192, 0, 1), (4, 100, 3, 3), (4, 8192, 1, 1)],
)
def test_as_many_processes_as_pay(monkeypatch, cores, batch_tokens, asked, expected):
    monkeypatch.setattr(launch, "cores", lambda: cores)
    recipe = small_recipe(processes=asked, device="cpu")
    recipe = dataclasses.replace(
        recipe, data=dataclasses.replace(recipe.data, batch_tokens=batch_tokens, max_tokens=64)
    )
    assert launch.processes_for(recipe) == expected


def test_who_is_in_a_team_starts_no_other(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert launch.processes_for(small_recipe(processes=4, device="cpu")) == 1


def test_no_process_is_started_for_a_gpu():
    assert not launch.is_surely_cpu("cuda:0")
    assert launch.is_surely_cpu("cpu")
    assert launch.processes_for(small_recipe(processes=2, device="cuda")) == 1


def test_cores_are_at_most_the_threads_there_are_and_those_that_the_user_allows(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert 1 <= environment.cores() <= (os.cpu_count() or 1)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert environment.cores() == 1


def test_the_environment_is_as_before(tmp_path):
    before = dict(os.environ)
    with launch.team_of(1, small_recipe(), RunFolder(tmp_path)):
        assert dict(os.environ) == before
    assert dict(os.environ) == before


TROUBLES = [
    (
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 99"),
        "train.micro_batches is 1",
    ),
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "lower data.batch_tokens"),
    (MemoryError(), "out of memory (MemoryError)"),
    (RuntimeError("[pair.cc:534] Connection closed by peer [127.0.0.1]:1"), "another process of this training is gone"),
    (OSError(errno.ENOSPC, "No space left on device", "model.safetensors"), "the disk is full, at model.safetensors"),
]


@pytest.mark.parametrize(("trouble", "said"), TROUBLES, ids=[said for _, said in TROUBLES])
def test_what_the_machine_lacks_is_told_in_a_sentence(tmp_path, trouble, said):
    with (
        pytest.raises(TrainingFailed, match="Nothing has been saved yet") as told,
        explained(small_recipe().train, RunFolder(tmp_path), processes=2),
    ):
        raise trouble
    assert said in str(told.value)


def test_other_errors_stay_what_they_are(tmp_path):
    for error in (RuntimeError("shapes differ"), OSError(errno.EACCES, "no")):
        with pytest.raises(type(error)), explained(small_recipe().train, RunFolder(tmp_path), processes=1):
            raise error


HOLD = """
import sys, time
from cutaway.runs import RunFolder
with RunFolder(sys.argv[1]).locked():
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_is_trained_into_by_one_at_a_time(tmp_path):
    run = RunFolder(tmp_path / "run")
    with subprocess.Popen([sys.executable, "-c", HOLD, str(run)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(RunError, match="another process is training into"), run.locked(patience=0):
            pass
        other.kill()
        other.wait()
    with run.locked(patience=5):  # what a killed process held is free
        pass
    assert not list(run.path.iterdir())
