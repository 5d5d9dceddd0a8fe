"""`cutaway train`, killed at any time after 0.2 seconds: no process is left, and --resume gives the same weights."""

import fcntl
import itertools
import os
import pty
import random
import re
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from left_over import left_with, marked

STOPPED = 130
SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP]
STEPS = 400
SETTINGS = ["model.d_model=32", "model.d_ff=64", "train.valid_every=40", "train.save_every=9", "train.log_every=5"]
SETTINGS += ["train.keep_checkpoints=2", "train.snapshots=3", f"train.steps={STEPS}"]
SMALL = [*SETTINGS, "data.size=400", "data.heldout_size=40", "data.batch_tokens=256"]
LARGE_CORPUS = """
[model]
n_heads = 4
encoder_layers = 1
decoder_layers = 1
[data]
train = ["train.tsv"]
valid_share = 0.001
tokenizer = "bpe"
vocab_size = 400
max_tokens = 40
batch_tokens = 256
[train]
samples = 0
"""
VARIANTS = {
    "one process": ("reverse", [*SMALL, "train.processes=1"]),
    "two processes": ("reverse", [*SMALL, "train.processes=2"]),
    "a large corpus": ("large.toml", [*SETTINGS, "train.processes=1"]),  # worker processes prepare it into a cache
}


class KilledTraining:
    """A training in a folder that is started and killed repeatedly."""

    def __init__(self, folder, variant, seed):
        self.folder, self.run, self.variant = folder, folder / "run", variant
        self.draw = random.Random(seed)
        folder.mkdir()
        if variant == "a large corpus":
            write_large_corpus(folder)

    def start(self, *more, **streams):
        recipe, settings = VARIANTS[self.variant]
        begin = "--resume" if self.latest() else "--overwrite"
        command = [sys.executable, "-m", "cutaway", "train", recipe, "--run", self.run, begin]
        command += [word for setting in [*settings, *more] for word in ("--set", setting)]
        environment, self.mark = marked(CUTAWAY_CACHE=str(self.folder / "cache"))
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **streams}
        return subprocess.Popen(command, cwd=self.folder, env=environment, text=True, start_new_session=True, **streams)

    def kill(self, number):
        """Start it and send a signal, early or while it trains and saves. -> whether it was still running"""
        process = self.start()
        before = self.latest()
        if self.draw.random() < 0.5:
            time.sleep(self.draw.uniform(0.2, 4))
        else:
            while process.poll() is None and self.latest() == before:
                time.sleep(0.01)
            time.sleep(self.draw.uniform(0, 0.2))
        if process.poll() is None:
            (os.kill if self.draw.random() < 0.5 else os.killpg)(process.pid, number)
        output, _ = process.communicate(timeout=60)  # until all processes have closed the output
        assert not left_with(self.mark), f"{signal.Signals(number).name} left processes behind"
        assert process.returncode in (0, -number, STOPPED), output
        assert "Traceback" not in output, output
        return process.returncode != 0

    def latest(self):
        file = self.run / "latest"
        return file.read_text() if file.exists() else None

    def finish(self):
        process = self.start()
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
        assert not left_with(self.mark)

    def temporary_files(self):
        """Files of an unfinished save or preparation."""
        hidden = list(self.folder.rglob(".*"))
        return hidden + list(Path("/dev/shm").glob("cutaway-*"))

    def weights(self):
        return {
            name: (self.run / name).read_bytes()
            for name in (
                "model.safetensors",
                f"checkpoints/step_{STEPS:06d}/model.safetensors",
                f"checkpoints/step_{STEPS:06d}/optimizer.safetensors",
            )
        }


def write_large_corpus(folder):
    """5 MB: too large to be prepared in memory."""
    draw, words = random.Random(0), ["ab", "cde", "fgh", "ijkl", "mno", "pqr"]
    lines = (" ".join(draw.choices(words, k=12)) for _ in range(65_000))
    (folder / "train.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines))
    (folder / "large.toml").write_text(LARGE_CORPUS)


def kill_from_the_start(tmp_path, kills, seed):
    """Kill trainings of every variant. Each one ends with the weights of an uninterrupted training."""
    expected = {}
    for variant in VARIANTS:
        whole = KilledTraining(tmp_path / f"whole {variant}", variant, seed)
        whole.finish()
        expected[variant] = whole.weights()
    done, variants = 0, itertools.cycle(VARIANTS)
    for turn in itertools.count():
        variant = next(variants)
        training = KilledTraining(tmp_path / f"turn {turn}", variant, seed + turn)
        for _ in range(3):
            done += training.kill(SIGNALS[done % len(SIGNALS)])
        training.finish()
        assert training.weights() == expected[variant], variant
        assert not training.temporary_files()
        if done >= kills:
            return


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_stop_signal_saves_and_stops(tmp_path, number):
    training = KilledTraining(tmp_path / "training", "two processes", seed=0)
    process = training.start("train.steps=100000", "train.save_every=20", "train.valid_every=100000")
    wait_until(training.latest)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == STOPPED
    assert not left_with(training.mark)
    step = int(
        re.search(r"stopped at step (\d+) of 100000; everything is saved. Resume with: cutaway train", output)[1]
    )
    assert training.latest() == f"step_{step:06d}\n"


@pytest.mark.slow
def test_a_closed_terminal_saves_and_stops(tmp_path):
    """All processes of the command get SIGHUP, and can no longer write to the terminal."""
    training = KilledTraining(tmp_path / "training", "two processes", seed=0)
    ours, theirs = pty.openpty()
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = training.start("train.steps=100000", "train.save_every=20", **streams, preexec_fn=take_terminal)
    os.close(theirs)
    wait_until(lambda: select.select([ours], [], [], 0)[0] and os.read(ours, 4096) and training.latest())
    os.close(ours)
    assert process.wait(timeout=60) == STOPPED
    assert not left_with(training.mark)
    assert not training.latest().startswith("step_000020")  # a later one was saved


def take_terminal():
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def wait_until(holds, seconds=120):
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, "timeout"
        time.sleep(0.01)


@pytest.mark.slow
def test_killed_from_the_start(tmp_path):
    kill_from_the_start(tmp_path, 7, seed=1)


@pytest.mark.soak
def test_killed_fifty_times_from_the_start(tmp_path):
    kill_from_the_start(tmp_path, 50, seed=100)
