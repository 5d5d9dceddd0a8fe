"""Which process of a training this is, by the environment that torchrun sets. No torch here."""

from __future__ import annotations

import os
from pathlib import Path

from cutaway.runs import RunFolder

LAUNCHER = os.getppid()  # read early: a process whose parent dies gets another


def in_a_team() -> bool:
    """Whether this process was started as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_leader() -> bool:
    """Whether this process is the one that writes and speaks for all."""
    return os.environ.get("RANK", "0") == "0"


def is_first_here() -> bool:
    """Whether this process is the first one on its machine."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def torchrun_job() -> str:
    """The name of the job that torchrun runs, restarts included; "" without torchrun."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "")
    return f"torchrun {LAUNCHER}" if name == "none" else name  # nobody gave it one: then by its process


def is_restarted(run: RunFolder) -> bool:
    """Whether an earlier try of the same torchrun job began this run: `torchrun --max-restarts N` starts it again.

    A process number alone does not tell one job from another (in a container it may always be the same).
    """
    is_named = os.environ.get("TORCHELASTIC_RUN_ID", "none") != "none"
    is_again = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    return (is_named or is_again) and run.config.is_file() and run.read_job() == torchrun_job()


def cores() -> int:
    """Cores that this process may use. Hardware threads of one core count once; a container may allow fewer, and so
    may the user, with OMP_NUM_THREADS."""
    wished = os.environ.get("OMP_NUM_THREADS", "")
    return min(usable_cores(), max(1, int(wished))) if wished.isdecimal() else usable_cores()


def usable_cores() -> int:
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    usable = os.sched_getaffinity(0)
    siblings = {_text(f"/sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list") or str(n) for n in usable}
    quota, _, period = _text("/sys/fs/cgroup/cpu.max").partition(" ")
    allowed = max(1, int(quota) // int(period)) if quota.isdecimal() and period.isdecimal() else len(siblings)
    return min(len(siblings), allowed)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""
