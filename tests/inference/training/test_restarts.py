"""`torchrun --max-restarts`: after a worker is killed, the training resumes from its newest checkpoint."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from left_over import alive_with, left_with, marked

from cutaway.inference.training import launch
from cutaway.runs import RunFolder
from cutaway.train import environment

SETTINGS = ["model.d_model=32", "model.d_ff=64", "data.size=400", "data.heldout_size=40", "data.batch_tokens=256"]
SETTINGS += [
    "train.valid_every=40",
    "train.save_every=10",
    "train.log_every=5",
    "train.keep_checkpoints=2",
    "train.steps=400",
]
FILES = [
    "model.safetensors",
    "checkpoints/step_000400/model.safetensors",
    "checkpoints/step_000400/optimizer.safetensors",
]


class Torchrun:
    def __init__(self, folder, *more, torchrun=("--standalone",)):
        folder.mkdir(exist_ok=True)
        self.run, (environment, self.mark) = folder / "run", marked(OMP_NUM_THREADS="1")
        command = [sys.executable, "-m", "torch.distributed.run", *torchrun, "--nproc-per-node", "2"]
        command += ["--max-restarts", "3", "-m", "cutaway", "train", "reverse", "--folder", str(self.run), *more]
        command += [word for setting in SETTINGS for word in ("--set", setting)]
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stdout), daemon=True)
        self.reader.start()

    @property
    def output(self):
        return "".join(self.lines)

    def worker(self, rank):
        """The process id of this rank; None if it has not started."""
        for pid in alive_with(self.mark):
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
            if f"RANK={rank}".encode() in environment and int(parent) == self.process.pid:
                return pid
        return None

    def kill(self, rank, when):
        wait_until(lambda: self.process.poll() is not None or (when() and self.worker(rank)))
        assert self.process.poll() is None, self.output
        os.kill(self.worker(rank), signal.SIGKILL)

    def finish(self, code=0):
        assert self.process.wait(timeout=300) == code, self.output
        self.reader.join(10)
        assert not left_with(self.mark)
        return {name: (self.run / name).read_bytes() for name in FILES} if code == 0 else None

    @property
    def latest(self):
        pointer = RunFolder(self.run).pointer("latest")
        return pointer.name if pointer else ""


def wait_until(holds, seconds=120):
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, "timeout"
        time.sleep(0.01)


@pytest.mark.slow
def test_a_job_whose_workers_are_killed_ends_with_the_same_weights(tmp_path):
    """Killed before the first save, then either process. --overwrite does not delete the job's own run."""
    expected = Torchrun(tmp_path / "whole").finish()
    job = Torchrun(tmp_path / "killed", "--overwrite")
    job.kill(0, lambda: (job.run / "config.json").is_file())
    job.kill(1, lambda: job.latest)
    before = job.latest
    job.kill(0, lambda: job.latest != before)
    assert job.finish() == expected
    assert job.output.count("torchrun restarted this job") == 3, job.output
    assert "Resuming from its newest checkpoint" in job.output


@pytest.mark.slow
def test_the_run_of_another_job_is_an_error_at_every_try(tmp_path):
    """A restarted job must not resume a run that another job started."""
    first = Torchrun(tmp_path)
    expected = first.finish()
    for torchrun in (("--standalone",), ("--master-port", str(launch.free_port()))):
        other = Torchrun(tmp_path, torchrun=torchrun)
        other.finish(code=1)
        assert other.output.count("there is a run in") >= 2
        assert {name: (other.run / name).read_bytes() for name in FILES} == expected


@pytest.mark.parametrize(
    ("record", "variables", "expected"),
    [
        ({"job": "abc"}, {"TORCHELASTIC_RUN_ID": "abc"}, True),  # restarted because of another machine
        ({"job": "abc"}, {"TORCHELASTIC_RUN_ID": "abc", "TORCHELASTIC_RESTART_COUNT": "1"}, True),
        ({"job": "abc"}, {"TORCHELASTIC_RUN_ID": "def", "TORCHELASTIC_RESTART_COUNT": "1"}, False),
        ({"job": f"torchrun {environment.LAUNCHER}"}, {"TORCHELASTIC_RUN_ID": "none"}, False),
        (
            {"job": f"torchrun {environment.LAUNCHER}"},
            {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "2"},
            True,
        ),
        ({}, {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "1"}, False),
        ({}, {}, False),
        ([], {"TORCHELASTIC_RUN_ID": "abc", "TORCHELASTIC_RESTART_COUNT": "1"}, False),
    ],
)
def test_a_job_recognizes_its_own_run(tmp_path, monkeypatch, record, variables, expected):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    run = RunFolder(tmp_path)
    run.data.write_text(json.dumps(record))
    assert not environment.is_restarted(run)  # without config.json, there is no run yet
    run.config.write_text("{}")
    assert environment.is_restarted(run) == expected


@pytest.mark.slow
def test_no_process_outlives_torchrun(tmp_path):
    """Killed when its workers have just started, and when they train."""
    for number in range(2):
        job = Torchrun(tmp_path / str(number))
        wait_until(lambda: job.worker(0) if number == 0 else job.latest)  # noqa: B023
        job.process.kill()
        assert not left_with(job.mark, 60)
