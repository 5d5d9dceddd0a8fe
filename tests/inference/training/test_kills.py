"""A training that is killed at any moment and resumed has the same weights as an uninterrupted one."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SMALL = ["model.d_model=32", "model.d_ff=64", "model.dropout=0.1", "data.size=400", "data.heldout_size=40"]
OFTEN = [
    "train.valid_every=50",
    "train.save_every=7",
    "train.log_every=3",
    "train.keep_checkpoints=2",
    "train.snapshots=5",
]
STEPS = 300
RECIPES = {
    "translation": ("reverse", ["data.batch_tokens=256"]),
    "language_model": ("python-gpt", ["data.batch_tokens=256", "data.max_tokens=64"]),
    "masked_language_model": ("python-bert", ["data.batch_tokens=256", "data.max_tokens=64"]),
    "classification": ("python-expressions", ["data.batch_tokens=256", "data.max_tokens=64"]),
    "tagging": ("python-tagger", ["data.batch_tokens=256", "data.max_tokens=64"]),
    "image_classification": ("digits-vit", ["data.batch_tokens=16", "data.distortion=0.5"]),
}


def start(folder, task, processes, *more):
    recipe, settings = RECIPES[task]
    settings = [*SMALL, *OFTEN, *settings, f"train.steps={STEPS}", f"train.processes={processes}"]
    command = [sys.executable, "-m", "cutaway", "train", recipe, "--run", str(folder / "run")]
    command += [word for setting in settings for word in ("--set", setting)]
    return subprocess.Popen([*command, *more], cwd=folder, stderr=subprocess.PIPE, text=True)


def train_to_the_end(folder, task, processes, *more):
    process = start(folder, task, processes, *more)
    _, stderr = process.communicate(timeout=600)
    assert process.returncode == 0, stderr
    return folder / "run"


def kill_repeatedly(folder, task, processes, kills, seed):
    """Kill the command or one of its workers `kills` times, at a random time after a new checkpoint."""
    generator, latest = random.Random(seed), folder / "run/latest"
    for number in range(kills):
        before = latest.read_text() if latest.exists() else None
        process = start(folder, task, processes, *(["--resume"] if before else []))
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if latest.exists() and latest.read_text() != before:
                break
            time.sleep(0.01)
        time.sleep(generator.uniform(0, 0.4))
        victims = [process.pid, *(worker_pids(process.pid) if processes > 1 else [])]
        os.kill(generator.choice(victims), signal.SIGKILL)
        _, stderr = process.communicate(timeout=60)
        assert process.returncode != 0 or is_finished(folder), stderr
        assert latest.exists(), f"nothing was saved before kill {number}: {stderr}"


def worker_pids(pid):
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(c) for c in children if b"cutaway.inference.training.worker" in Path(f"/proc/{c}/cmdline").read_bytes()]


def is_finished(folder):
    return (folder / f"run/checkpoints/step_{STEPS:06d}").is_dir()


def assert_killed_equals_whole(tmp_path, task, processes, kills, seed):
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    whole = train_to_the_end(tmp_path / "whole", task, processes)
    kill_repeatedly(tmp_path / "killed", task, processes, kills, seed)
    killed = train_to_the_end(tmp_path / "killed", task, processes, "--resume")
    last = f"checkpoints/step_{STEPS:06d}"
    for name in ("model.safetensors", f"{last}/model.safetensors", f"{last}/optimizer.safetensors", "best", "latest"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes(), name
    for snapshot in (whole / "snapshots").iterdir():
        assert snapshot.read_bytes() == (killed / "snapshots" / snapshot.name).read_bytes()
    assert metrics_without_times(whole) == metrics_without_times(
        killed
    )  # a line every three steps, so the batches were in the same order


def metrics_without_times(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in ("seconds", "waiting")} for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_killed_equals_whole(tmp_path, processes):
    assert_killed_equals_whole(tmp_path, "translation", processes, kills=3, seed=processes)


@pytest.mark.soak
@pytest.mark.parametrize("processes", [1, 2])
def test_killed_ten_times_equals_whole(tmp_path, processes):
    assert_killed_equals_whole(tmp_path, "translation", processes, kills=10, seed=processes)


@pytest.mark.soak
@pytest.mark.parametrize("task", [task for task in RECIPES if task != "translation"])
def test_every_objective_killed_twice_equals_whole(tmp_path, task):
    assert_killed_equals_whole(tmp_path, task, processes=1, kills=2, seed=len(task))
