"""Shared set-up: one thread per process, signals, and the rule that a skipped test fails the run."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two pytest workers on two cores
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch
from hypothesis import settings

# A shell's background job ignores Ctrl-C, nohup ignores SIGHUP, and child processes inherit this. Some tests send these
# signals to their processes, so restore the defaults.
if threading.current_thread() is threading.main_thread():
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (getattr(signal, "SIGHUP", None), signal.SIG_DFL),
    ):
        if number and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)

torch.set_num_threads(1)
settings.register_profile("cutaway", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("cutaway")

HAS_GPU = torch.cuda.is_available()


def pytest_report_header(config):
    return None if HAS_GPU else "no GPU here: tests marked `gpu` are deselected"


# These tests only compute, so `make test-slow` runs them in parallel on both cores. All other slow tests run alone.
PARALLEL = (
    "interop",
    "finetune",
    "decode",
    "models",
    "nn",
    "data",
    "inference/engines",
    "inference/fast",
    "test_batches",
)
ALONE = ("finetune/test_distributed.py",)  # starts two processes itself


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(config, items):
    """Mark parallel tests. Deselect GPU tests on a machine without one (a skipped test would fail the run)."""
    for item in items:
        path = item.path.relative_to(Path(__file__).parent).as_posix()
        if path.startswith(PARALLEL) and path not in ALONE:
            item.add_marker("shares")
    if HAS_GPU:
        return
    selected = [item for item in items if "gpu" not in item.keywords]
    config.hook.pytest_deselected(items=[item for item in items if "gpu" in item.keywords])
    items[:] = selected


def pytest_sessionfinish(session):
    """A run with a skipped test or file fails, because every missing dependency can be installed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and reporter.stats.get("skipped") and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    for report in terminalreporter.stats.get("skipped", ()):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        terminalreporter.write_line(f"SKIPPED, so this run fails: {report.nodeid}: {reason}", red=True)


@pytest.fixture
def double():
    """Use double precision during the test."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """A folder with the result of `cutaway demo`, run on both cores."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "runs/demo").mkdir(parents=True)
    (folder / "runs/demo/notes.txt").write_text("mine")
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    started = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-c", "from cutaway.cli import main; main()", "demo"],
        cwd=folder, capture_output=True, text=True, timeout=900, encoding="utf-8", env=environment,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    (folder / "stdout").write_text(result.stdout, encoding="utf-8")
    (folder / "stderr").write_text(result.stderr, encoding="utf-8")
    (folder / "seconds").write_text(str(time.monotonic() - started))
    return folder
