"""The cores and the memory that this process may use. The limits of a container count."""

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
    """The free memory in bytes; None if it is not known."""
    available = parse_numbers(read_or_empty(MEMORY)).get("MemAvailable")
    known = [available * 1024] if available is not None else []
    return min([*known, *memory_quotas()], default=None)


def core_quotas() -> Iterator[int]:
    """The limits of cpu.max: microseconds of CPU time and of the period; "max" means no limit."""
    for folder in cgroups():
        quota, _, period = read_or_empty(folder / "cpu.max").strip().partition(" ")
        if quota.isdigit() and period.isdigit():
            yield math.ceil(int(quota) / int(period))


def memory_quotas() -> Iterator[int]:
    """The free memory below memory.max. The page cache counts as free: the system can drop it."""
    for folder in cgroups():
        limit, used = (read_or_empty(folder / name).strip() for name in ("memory.max", "memory.current"))
        if limit.isdigit() and used.isdigit():
            cached = parse_numbers(read_or_empty(folder / "memory.stat")).get("file", 0)
            yield max(0, int(limit) - int(used) + cached)


def cgroups() -> Iterator[Path]:
    """The folder of this process's control group (version 2) and its parents, whose limits apply too."""
    for line in read_or_empty(MEMBERSHIP).splitlines():
        if line.startswith("0::/"):
            folder = ROOT / line.removeprefix("0::/")
            yield from (group for group in (folder, *folder.parents) if group.is_relative_to(ROOT))


def parse_numbers(text: str) -> dict[str, int]:
    """ "MemAvailable: 12 kB" and "file 34" -> {"MemAvailable": 12, "file": 34}"""
    rows = (line.replace(":", " ").split() for line in text.splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def read_or_empty(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
