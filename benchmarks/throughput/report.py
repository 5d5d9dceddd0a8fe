"""From what was measured to tables."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .turns import PACKAGES, PEAK, REFERENCE, Answer, Entry

Rounds = dict[Entry, list[Answer]]  # of each entry, its turn in every round


def tokens_per_second(turn: Answer) -> float:
    return float(turn["tokens"] / turn["seconds"])


def operations_per_second(turn: Answer) -> float:
    return float(turn["operations"] / turn["seconds"])


def table(rounds: Rounds, parameters: dict[Entry, int], cores: int) -> str:
    """A row an entry. Ratios and shares are taken within a round, against what was measured in the same minute."""
    reference, peak = rounds.get(Entry(REFERENCE, 1, cores)), rounds[Entry(PEAK, 1, cores)]
    compared = f"× {REFERENCE}, {Entry(REFERENCE, 1, cores).layout} (spread)"
    lines = [
        f"| | | parameters | target tokens/s | a CPU second | share of peak | {compared} |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for entry, turns in rounds.items():
        if entry.name == PEAK:
            continue
        speed = statistics.median(map(tokens_per_second, turns))
        work = statistics.median(turn["tokens"] / turn["cpu_seconds"] for turn in turns)
        share = statistics.median(
            operations_per_second(turn) / operations_per_second(best) for turn, best in zip(turns, peak, strict=True)
        )
        ratio = spread(ratios(turns, reference)) if reference else "–"
        figures = f"{parameters[entry]:,} | {speed:,.0f} | {work:,.0f} | {share:.0%} | {ratio}"
        lines.append(f"| {entry.name} | {entry.layout} | {figures} |")
    return "\n".join(lines)


def ratios(turns: Sequence[Answer], reference: Sequence[Answer]) -> list[float]:
    return [tokens_per_second(a) / tokens_per_second(b) for a, b in zip(turns, reference, strict=True)]


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def peaks(rounds: Rounds) -> str:
    found = {
        entry.layout: statistics.median(map(operations_per_second, turns)) / 1e9
        for entry, turns in rounds.items()
        if entry.name == PEAK
    }
    return "peak of a float32 matrix product: " + ", ".join(f"{v:.0f} GFLOP/s with {k}" for k, v in found.items())


def as_data(rounds: Rounds, parameters: dict[Entry, int]) -> list[dict[str, Any]]:
    """For --json: everything, turn by turn."""
    return [
        {
            "name": entry.name,
            "processes": entry.processes,
            "threads": entry.threads,
            "parameters": parameters[entry],
            "turns": turns,
        }
        for entry, turns in rounds.items()
    ]


def machine() -> dict[str, Any]:
    """What the figures belong to."""
    packages = ["cutaway", "torch", *PACKAGES.values()]
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: installed for name in packages if (installed := installed_version(name))},
    }


def installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def processor() -> str:
    """Linux tells the model in a file of its own."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
