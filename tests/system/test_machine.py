"""Limits of a container, as files of Linux describe them."""

import os

import pytest

from cutaway.system import machine

GB = 1_000_000_000


@pytest.fixture
def container(tmp_path, monkeypatch):
    """A process in the group /outer/inner, on a machine with 8 cores and 16 GB of free memory."""
    inner = tmp_path / "cgroup" / "outer" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "membership").write_text("1:cpu:/old\n0::/outer/inner\n")
    (tmp_path / "meminfo").write_text("MemTotal:       20000000 kB\nMemAvailable:   16000000 kB\n")
    monkeypatch.setattr(machine, "ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(machine, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(machine, "MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    return inner


@pytest.mark.parametrize(
    ("inner", "outer", "wanted"),
    [
        (None, None, 8),
        ("max 100000", None, 8),
        ("200000 100000", None, 2),
        ("150000 100000", None, 2),  # a core and a half
        ("10000 100000", None, 1),
        ("1600000 100000", None, 8),
        ("max 100000", "300000 100000", 3),
        ("500000 100000", "300000 100000", 3),
        ("nonsense", None, 8),
    ],
)
def test_cores(container, inner, outer, wanted):
    for folder, quota in ((container, inner), (container.parent, outer)):
        if quota:
            (folder / "cpu.max").write_text(f"{quota}\n")
    assert machine.cores() == wanted


@pytest.mark.parametrize(
    ("limit", "used", "cached", "wanted"),
    [
        ("max", 3 * GB, 0, 16_000_000 * 1024),
        (4 * GB, 3 * GB, 0, GB),
        (4 * GB, 4 * GB, 2 * GB, 2 * GB),  # the page cache counts as free
        (4 * GB, 5 * GB, 0, 0),
        (90 * GB, GB, 0, 16_000_000 * 1024),
    ],
)
def test_memory(container, limit, used, cached, wanted):
    (container / "memory.max").write_text(f"{limit}\n")
    (container / "memory.current").write_text(f"{used}\n")
    (container / "memory.stat").write_text(f"anon {used - cached}\nfile {cached}\ninactive_file {cached}\n")
    assert machine.free_memory() == wanted


def test_system_without_these_files(container, tmp_path):
    for name in ("membership", "meminfo"):
        (tmp_path / name).unlink()
    assert machine.free_memory() is None
    assert machine.cores() == 8
