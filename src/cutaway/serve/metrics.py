"""Counters, gauges and histograms in Prometheus text format. They are few, so no library is needed."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """The metrics of a server. Worker threads update them too, so there is a lock."""

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
        """Register a gauge: `value` is called for each /metrics request."""
        self.gauges.append((name, tuple(labels.items()), value))

    def text(self) -> str:
        with self.lock:
            lines = [f"{name}{format_labels(labels)} {value}" for (name, labels), value in self.counts.items()]
            for (name, labels), histogram in self.histograms.items():
                lines += histogram.lines(name, labels)
        lines += [f"{name}{format_labels(labels)} {value():g}" for name, labels, value in self.gauges]
        output = []
        for name, (kind, meaning) in METRICS.items():
            output += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
            output += sorted((line for line in lines if belongs_to(line, name)), key=sort_key)
        return "\n".join(output) + "\n"


class Histogram:
    """Counts of values by upper bound."""

    def __init__(self, bounds: Sequence[float]):
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: Labels) -> list[str]:
        found, total = [], 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            found.append(f"{name}_bucket{format_labels((*labels, ('le', bound)))} {total}")
        return [
            *found,
            f"{name}_sum{format_labels(labels)} {self.sum:.6g}",
            f"{name}_count{format_labels(labels)} {total}",
        ]


METRICS = {
    "cutaway_requests_total": ("counter", "Requests by path and status."),
    "cutaway_request_seconds": ("histogram", "Seconds from a request to the end of its response."),
    "cutaway_requests_in_flight": ("gauge", "Requests in progress."),
    "cutaway_texts_waiting": ("gauge", "Texts in the queue."),
    "cutaway_batch_texts": ("histogram", "Texts per batch."),
    "cutaway_batch_seconds": ("histogram", "Seconds per batch."),
    "cutaway_tokens_total": ("counter", "Tokens read and generated."),
    "cutaway_texts_given_up_total": ("counter", "Texts cancelled by a disconnect or a timeout."),
}


def format_labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{escape_label(value)}"' for name, value in labels) + "}"


def escape_label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def belongs_to(line: str, name: str) -> bool:
    return line.startswith(tuple(name + rest for rest in ("{", " ", "_bucket{", "_sum", "_count")))


def sort_key(line: str) -> tuple[str, int]:
    """Sort by labels, then buckets, sum, count. Buckets keep their order, because sorting is stable."""
    labels = line.partition("{")[2].rpartition("}")[0]
    series = ",".join(part for part in labels.split(",") if not part.startswith("le="))
    return series, int("_sum" in line) + 2 * int("_count" in line)
