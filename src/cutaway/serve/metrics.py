"""Counters and histograms in Prometheus' text format. They are few, so no library is needed for them."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """What a server counts. Its workers count too, so there is a lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.counts: Counter[tuple[str, Labels]] = Counter()
        self.histograms: dict[tuple[str, Labels], Histogram] = {}
        self.gauges: list[tuple[str, Labels, Callable[[], float]]] = []
        self.in_flight = 0

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        with self.lock:
            self.counts[name, tuple(labels.items())] += amount

    def observe(self, name: str, value: float, bounds: Sequence[float], **labels: str) -> None:
        with self.lock:
            key = name, tuple(labels.items())
            self.histograms.setdefault(key, Histogram(bounds)).add(value)

    def gauge(self, name: str, value: Callable[[], float], **labels: str) -> None:
        """A number that is asked for when somebody looks."""
        self.gauges.append((name, tuple(labels.items()), value))

    def text(self) -> str:
        with self.lock:
            lines = [f"{name}{shown(labels)} {value}" for (name, labels), value in self.counts.items()]
            for (name, labels), histogram in self.histograms.items():
                lines += histogram.lines(name, labels)
        lines += [f"{name}{shown(labels)} {value():g}" for name, labels, value in self.gauges]
        told = []
        for name, (kind, meaning) in KNOWN.items():
            told += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
            told += sorted((line for line in lines if is_of(line, name)), key=without_bounds)
        return "\n".join(told) + "\n"


class Histogram:
    """How many values were at most as large as each bound."""

    def __init__(self, bounds: Sequence[float]):
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: Labels) -> list[str]:
        found, total = [], 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            found.append(f"{name}_bucket{shown((*labels, ('le', bound)))} {total}")
        return [*found, f"{name}_sum{shown(labels)} {self.sum:.6g}", f"{name}_count{shown(labels)} {total}"]


KNOWN = {
    "cutaway_requests_total": ("counter", "Requests by path and status."),
    "cutaway_request_seconds": ("histogram", "From a request to the end of its answer."),
    "cutaway_requests_in_flight": ("gauge", "Requests that are being answered."),
    "cutaway_texts_waiting": ("gauge", "Texts that wait for their model."),
    "cutaway_batch_texts": ("histogram", "Texts that were worked on together."),
    "cutaway_batch_seconds": ("histogram", "How long a batch took."),
    "cutaway_tokens_total": ("counter", "Tokens that were read and written."),
    "cutaway_texts_given_up_total": ("counter", "Texts whose client left, or whose time was over."),
}


def shown(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in labels) + "}"


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def is_of(line: str, name: str) -> bool:
    return line.startswith(tuple(name + rest for rest in ("{", " ", "_bucket{", "_sum", "_count")))


def without_bounds(line: str) -> tuple[str, int]:
    """Sorted by labels, the buckets of a histogram staying in their order (sorting is stable), then sum and count."""
    labels = line.partition("{")[2].rpartition("}")[0]
    series = ",".join(part for part in labels.split(",") if not part.startswith("le="))
    return series, int("_sum" in line) + 2 * int("_count" in line)
