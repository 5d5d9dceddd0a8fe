"""Tables of the measurements."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .turns import PACKAGES, PEAK, REFERENCE, Entry, Result

Rounds = dict[Entry, list[Result]]  # entry -> its result in every round


def tokens_per_second(turn: Result) -> float:
    return float(turn["tokens"] / turn["seconds"])


def operations_per_second(turn: Result) -> float:
    return float(turn["operations"] / turn["seconds"])


def table(rounds: Rounds, parameters: dict[Entry, int], cores: int) -> str:
    """Return a table with a row for each entry. Ratios are computed within a round."""
    reference, peak = rounds.get(Entry(REFERENCE, 1, cores)), rounds[Entry(PEAK, 1, cores)]
    compared = f"× {REFERENCE}, {Entry(REFERENCE, 1, cores).layout} (spread)"
    lines = [
        f"| | | parameters | target tokens/s | per CPU second | fraction of peak | {compared} |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for entry, turns in rounds.items():
        if entry.name == PEAK:
            continue
        speed = statistics.median(map(tokens_per_second, turns))
        per_cpu_second = statistics.median(turn["tokens"] / turn["cpu_seconds"] for turn in turns)
        share = statistics.median(
            operations_per_second(turn) / operations_per_second(best) for turn, best in zip(turns, peak, strict=True)
        )
        ratio = spread(ratios(turns, reference)) if reference else "–"
        figures = f"{parameters[entry]:,} | {speed:,.0f} | {per_cpu_second:,.0f} | {share:.0%} | {ratio}"
        lines.append(f"| {entry.name} | {entry.layout} | {figures} |")
    return "\n".join(lines)


def ratios(turns: Sequence[Result], reference: Sequence[Result]) -> list[float]:
    return [tokens_per_second(a) / tokens_per_second(b) for a, b in zip(turns, reference, strict=True)]


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def peaks(rounds: Rounds) -> str:
    found = {
        entry.layout: statistics.median(map(operations_per_second, turns)) / 1e9
        for entry, turns in rounds.items()
        if entry.name == PEAK
    }
    return "peak of float32 matrix products: " + ", ".join(f"{v:.0f} GFLOP/s with {k}" for k, v in found.items())


def as_data(rounds: Rounds, parameters: dict[Entry, int]) -> list[dict[str, Any]]:
    """Return all results for --json."""
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
    """Describe the machine and the package versions."""
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
    """Return the name of the processor; Linux has it in /proc/cpuinfo."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
