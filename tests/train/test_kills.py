"""A training that is killed, at any moment and without warning, goes on as if nothing had happened."""

import random
import signal
import subprocess
import sys
import time

import pytest

RECIPE = [
    "train", "reverse", "--set", "model.d_model=32", "--set", "model.d_ff=64", "--set", "model.dropout=0.1",
    "--set", "data.size=400", "--set", "data.heldout_size=40", "--set", "data.batch_tokens=256",
    "--set", "train.steps=300", "--set", "train.valid_every=50", "--set", "train.save_every=7",
    "--set", "train.keep=2", "--set", "train.snapshots=5",
]  # fmt: skip


def start(folder, *more):
    command = [sys.executable, "-c", "from cutaway.cli import main; main()", *RECIPE, *more]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)


def train_to_the_end(folder, *more):
    process = start(folder, *more)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr
    return folder / "runs/reverse"


def kill_again_and_again(folder, kills, seed):
    """Kill the training `kills` times, a random while after its first new checkpoint."""
    draw, latest = random.Random(seed), folder / "runs/reverse/latest"
    for number in range(kills):
        before = latest.read_text() if latest.exists() else None
        process = start(folder, *(["--resume"] if before else []))
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            if latest.exists() and latest.read_text() != before:
                break
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.4))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        assert latest.exists(), f"nothing was saved before kill {number}"


def assert_killed_equals_whole(tmp_path, kills, seed):
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    whole = train_to_the_end(tmp_path / "whole")
    kill_again_and_again(tmp_path / "killed", kills, seed)
    killed = train_to_the_end(tmp_path / "killed", "--resume")
    for name in ("model.safetensors", "checkpoints/step_000300/optimizer.safetensors", "best", "latest"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes(), name
    for snapshot in (whole / "snapshots").iterdir():
        assert snapshot.read_bytes() == (killed / "snapshots" / snapshot.name).read_bytes()


@pytest.mark.slow
def test_killed_equals_whole(tmp_path):
    assert_killed_equals_whole(tmp_path, kills=4, seed=0)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6))
def test_killed_many_times_equals_whole(tmp_path, seed):
    assert_killed_equals_whole(tmp_path, kills=15, seed=seed)
