"""Bulk jobs in separate processes: killed at any moment, on a full disk, and in bounded memory."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bulk_jobs import LARGE

HELPERS = Path(__file__).parents[1]
CODE = """
import sys
from bulk_jobs import Backwards, Large, Lengths
from cutaway.bulk.runner import run_job
if __name__ == "__main__":
    source, out, seconds, workers, budget, log, job = sys.argv[1:]
    run_job(globals()[job](float(seconds), log=log), source, out, int(workers), int(budget))
    # not ru_maxrss, which a process inherits from its parent if that was larger
    print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")))
"""


def start_job(source, out, seconds=0.0, workers=2, budget=700, log="", job="Backwards"):
    arguments = [source, out, seconds, workers, budget, log, job]
    return subprocess.Popen(
        [sys.executable, "-c", CODE, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(HELPERS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def write_lines(file, count):
    draw = random.Random(0)
    with file.open("w") as stream:
        for number in range(count):
            stream.write(f"{'x' * draw.randint(0, 40)}{number}\n")


def is_alive(pid):
    """A zombie process is not alive."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def read_log(log):
    return log.read_text().splitlines() if log.exists() else []


def wait_until(holds, seconds):
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_job_that_is_killed_often_has_the_same_result(tmp_path, number):
    source, out, log = tmp_path / "in", tmp_path / "out", tmp_path / "log"
    write_lines(source, 6_000)
    whole = start_job(source, tmp_path / "whole", workers=0)
    assert whole.wait() == 0, whole.stderr.read()
    draw, kills = random.Random(number), 0
    while not out.exists():
        before = len(read_log(log))
        process = start_job(source, out, seconds=0.03, log=log)
        if kills % 2:  # every second time, wait until a batch is done
            wait_until(lambda: process.poll() is not None or len(read_log(log)) > before, 60)  # noqa: B023
        try:
            assert process.wait(draw.uniform(0.1, 1.5)) == 0, process.stderr.read()
            assert out.exists()
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            process.wait()
            kills += 1
        workers = {int(line.split()[0]) for line in read_log(log)[before:]}
        assert wait_until(lambda: not any(map(is_alive, workers)), 10), "a worker outlived its parent"  # noqa: B023
        assert kills < 60
    assert kills >= 2
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()
    batches = [line.split()[1] for line in read_log(log)]
    assert len(batches) <= len(set(batches)) + 4 * kills  # only batches in progress are lost
    left = {path.name for path in tmp_path.iterdir()} - {"in", "log", "out", "whole"}
    assert not left or (process.returncode and left == {"out.journal"})  # killed between the last two steps


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_memory_does_not_grow_with_the_file(tmp_path, workers):
    peaks = []
    for count in (50_000, 400_000):
        write_lines(tmp_path / "in", count)
        process = start_job(tmp_path / "in", tmp_path / "out", workers=workers, budget=4_000)
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        peaks.append(int(output) / 1024)
        with (tmp_path / "out").open() as file:
            assert sum(1 for _ in file) == count
    assert peaks[1] < peaks[0] + 10, f"from {peaks[0]:.0f} MB to {peaks[1]:.0f} MB"


@pytest.mark.slow
def test_memory_does_not_grow_with_large_results(tmp_path):
    """The results of a window of 16,384 lines would be 130 MB."""
    peaks = []
    for count in (300, 33_000):
        write_lines(tmp_path / "in", count)
        process = start_job(tmp_path / "in", tmp_path / "out", workers=0, budget=4_000, job="Large")
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        assert (tmp_path / "out").stat().st_size == count * LARGE
        peaks.append(int(output) / 1024)
    assert peaks[1] < peaks[0] + 70, f"from {peaks[0]:.0f} MB to {peaks[1]:.0f} MB"


FULL = """
import resource, sys
from bulk_jobs import Backwards, Lengths
from cutaway.bulk.runner import run_job
from cutaway.errors import BulkFailed
source, out, limit, job = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), -1))
try:
    run_job(globals()[job](), source, out, 0, 700)
except BulkFailed as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("job", ["Backwards", "Lengths"])
def test_a_full_disk_is_reported_at_every_stage(tmp_path, job):
    """At the start, in the journal, in OUT.part, at the end. Then the job continues."""
    source, out, whole = tmp_path / "in", tmp_path / "out", tmp_path / "whole"
    write_lines(source, 3_000)
    assert start_job(source, whole, workers=0, job=job).wait() == 0
    for limit in (0, 50, 3_000, 20_000, whole.stat().st_size - 1):
        environment = {**os.environ, "PYTHONPATH": str(HELPERS)}
        command = [sys.executable, "-c", FULL, *map(str, (source, out, limit, job))]
        result = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert not result.stderr
        assert "out.part cannot be written: File too large." in result.stdout
        assert not out.exists()
        assert limit > 50 or sorted(os.listdir(tmp_path)) == ["in", "whole"]
    again = start_job(source, out, workers=0, job=job)
    assert again.wait() == 0, again.stderr.read()
    assert out.read_bytes() == whole.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["in", "out", "whole"]
