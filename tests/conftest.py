"""Shared set-up: quiet threads, and no test that is skipped in silence."""

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

# What a shell starts in the background ignores Ctrl-C, nohup ignores SIGHUP, and both are handed on; some tests send
# them to their processes.
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


# These only compute. Of what is slow, they use both cores in `make test-slow`; the others have the machine to themselves.
SHARING = (
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
ALONE = ("finetune/test_team.py",)  # two processes as it is


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config, items):
    """A GPU cannot be installed by a script, so its tests are deselected, not skipped."""
    for item in items:
        inside = item.path.relative_to(Path(__file__).parent).as_posix()
        if inside.startswith(SHARING) and inside not in ALONE:
            item.add_marker("shares")
    if HAS_GPU:
        return
    wanted = [item for item in items if "gpu" not in item.keywords]
    config.hook.pytest_deselected(items=[item for item in items if "gpu" in item.keywords])
    items[:] = wanted


def pytest_sessionfinish(session):
    """Whatever a test lacks, a script can install: a run with a skipped test, or a skipped file, has failed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and reporter.stats.get("skipped") and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    for report in terminalreporter.stats.get("skipped", ()):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        terminalreporter.write_line(f"SKIPPED, so this run fails: {report.nodeid}: {reason}", red=True)


@pytest.fixture
def double():
    """Double precision for the whole test."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """A folder in which `cutaway demo` was run, with both cores to itself."""
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
