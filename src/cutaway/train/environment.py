"""The environment variables that torchrun sets, and the cores that this process may use. No torch here."""

from __future__ import annotations

import os
from pathlib import Path

from cutaway.runs import RunFolder

LAUNCHER = os.getppid()  # read at import: if the parent dies, the operating system assigns another parent


def is_distributed() -> bool:
    """Whether this process is one of several that train together."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_main_process() -> bool:
    """Whether this process writes files and prints."""
    return os.environ.get("RANK", "0") == "0"


def is_local_main_process() -> bool:
    """Whether this process is the first on its machine."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def torchrun_job() -> str:
    """The name of the torchrun job, which restarts do not change; "" without torchrun."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "")
    return f"torchrun {LAUNCHER}" if name == "none" else name  # without a name: the process id of torchrun


def is_restarted(run: RunFolder) -> bool:
    """Whether the same torchrun job has already started this run, and `torchrun --max-restarts N` restarted it.

    A process id alone does not identify a job: in a container it may always be the same.
    """
    is_named = os.environ.get("TORCHELASTIC_RUN_ID", "none") != "none"
    is_restart = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    return (is_named or is_restart) and run.config.is_file() and run.read_job() == torchrun_job()


def cores() -> int:
    """The number of cores to use: what the machine or container allows, or less if OMP_NUM_THREADS is set.

    Hardware threads of one core count once.
    """
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(usable_cores(), max(1, int(limit))) if limit.isdecimal() else usable_cores()


def usable_cores() -> int:
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    usable = os.sched_getaffinity(0)
    siblings = {_read_text(f"/sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list") or str(n) for n in usable}
    quota, _, period = _read_text("/sys/fs/cgroup/cpu.max").partition(" ")
    allowed = max(1, int(quota) // int(period)) if quota.isdecimal() and period.isdecimal() else len(siblings)
    return min(len(siblings), allowed)


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""
