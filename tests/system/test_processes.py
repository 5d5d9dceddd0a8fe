"""When a process is killed, all processes that it started end, too."""

import signal
import subprocess
import sys

import pytest
from left_over import alive_with, left_with, marked

from cutaway.data import cache

PREPARING = """
import cutaway.cli.prefetch as prefetch, time
from cutaway.config import DataConfig
prefetch.prepare = lambda *_: print("at work", flush=True) or time.sleep(60)
with prefetch.prefetch_data(DataConfig(), "translation") as prepared:
    prepared()
"""
POOL = """
from concurrent.futures import wait
from cutaway.data.parallel_encoding import Encoder, worker_pool
from cutaway.data.tokenizer import Tokenizer
import time
tokenizer = Tokenizer.train(["a b"], "word", 10)
with worker_pool(Encoder("translation", tokenizer.to_json(), tokenizer.roles, (), 8, "skip"), 2) as pool:
    jobs = [pool.submit(time.sleep, 60) for _ in range(2)]
    while len(pool._processes) < 2 or not all(job.running() for job in jobs):
        time.sleep(0.01)
    print("at work", flush=True)
    wait(jobs)
"""
# a child that starts another process, as a learner's file may
LINES = """
import subprocess, sys, time
child = '''
import subprocess, sys, time
from cutaway.system.processes import lines_from_parent
lines = lines_from_parent()
assert lines.get() == "first\\\\n"
assert sys.stdin.read() == ""
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("at work", flush=True)
time.sleep(60)
'''
process = subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE, start_new_session=True)
process.stdin.write(b"first\\n")
process.stdin.flush()
time.sleep(60)
"""
LEARNERS = """
import sys
from pathlib import Path
from cutaway.course.sandbox import run_file
run_file(Path(sys.argv[1]), [])
"""
LEARNERS_FILE = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "print('at work', flush=True); import time; time.sleep(60)"],
                 stdout=open("/proc/" + str(subprocess.os.getppid()) + "/fd/1", "w")).wait()
"""
PROGRAMS = {"preparing": PREPARING, "pool": POOL, "lines": LINES, "learner's file": LEARNERS}


@pytest.mark.parametrize("name", PROGRAMS)
def test_child_processes_end_with_a_killed_parent(name, tmp_path):
    environment, mark = marked()
    (tmp_path / "file.py").write_text(LEARNERS_FILE)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAMS[name], tmp_path / "file.py"], stdout=subprocess.PIPE, env=environment, text=True
    )
    assert process.stdout.readline() == "at work\n"
    assert len(alive_with(mark)) > 1
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=10)  # its output is closed
    assert not left_with(mark)


BUILDING = """
import sys, time
from pathlib import Path
from cutaway.data.cache import build_entry
with build_entry(Path(sys.argv[1])) as folder:
    (folder / "train.bin").write_bytes(b"half")
    print("at work", flush=True)
    time.sleep(60)
"""


def test_incomplete_cache_entry_is_removed_after_its_builder_died(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "LOCK_SECONDS", 0)
    one, two = (
        subprocess.Popen([sys.executable, "-c", BUILDING, tmp_path / name], stdout=subprocess.PIPE, text=True)
        for name in ("one", "two")
    )
    assert one.stdout.readline() == two.stdout.readline() == "at work\n"
    one.kill()
    one.communicate()
    with cache.build_entry(tmp_path / "three"):
        assert [path.name[1:4] for path in tmp_path.iterdir() if path.name[1:4] != "thr"] == ["two"]
    two.kill()
    two.communicate()
    cache.remove_abandoned(tmp_path / "any")
    assert [path.name for path in tmp_path.iterdir()] == ["three"]


def test_children_ignore_stop_signals():
    """Ctrl-C and a closed terminal reach the whole process group. The parent handles them for its children."""
    code = """
import signal
from cutaway.system.processes import STOP_SIGNALS, ignore_stop_signals, handling_stop_signals
ignore_stop_signals()
with handling_stop_signals(signal.SIG_DFL):  # ignored signals stay ignored, as with nohup
    for number in STOP_SIGNALS:
        signal.raise_signal(number)
print("alive")
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "alive\n"
