"""What this process may use of the machine: a container's limits count, not what is built in."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
MEMORY = Path("/proc/meminfo")


def cores() -> int:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *core_quotas()]))


def free_memory() -> int | None:
    """Bytes, where it is known."""
    available = numbers(read(MEMORY)).get("MemAvailable")
    known = [available * 1024] if available is not None else []
    return min([*known, *memory_quotas()], default=None)


def core_quotas() -> Iterator[int]:
    """cpu.max: microseconds of work in each period, "max" if there is no limit."""
    for folder in cgroups():
        quota, _, period = read(folder / "cpu.max").strip().partition(" ")
        if quota.isdigit() and period.isdigit():
            yield math.ceil(int(quota) / int(period))


def memory_quotas() -> Iterator[int]:
    """What is left below memory.max. Files that the system remembers count as left: it can forget them."""
    for folder in cgroups():
        most, used = (read(folder / name).strip() for name in ("memory.max", "memory.current"))
        if most.isdigit() and used.isdigit():
            files = numbers(read(folder / "memory.stat")).get("file", 0)
            yield max(0, int(most) - int(used) + files)


def cgroups() -> Iterator[Path]:
    """The folder of this process's control group (version 2), and those around it, whose limits hold for it too."""
    for line in read(MEMBERSHIP).splitlines():
        if line.startswith("0::/"):
            folder = ROOT / line.removeprefix("0::/")
            yield from (place for place in (folder, *folder.parents) if place.is_relative_to(ROOT))


def numbers(text: str) -> dict[str, int]:
    """ "MemAvailable: 12 kB" and "file 34" -> {"MemAvailable": 12, "file": 34}"""
    rows = (line.replace(":", " ").split() for line in text.splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
