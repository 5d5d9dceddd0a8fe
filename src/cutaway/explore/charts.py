"""Line charts and attention matrices as inline SVG, without matplotlib.

In a report the charts take the colours of its style sheet, so they follow its light and dark mode. An attention matrix
has attributes for its colours too, because a notebook has no such style sheet. The charts scale without loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 480, 230  # small, so that the text is legible on a phone
LEFT, RIGHT, TOP, BOTTOM = 54, 12, 14, 34
MAX_POINTS = 400  # per line
TEXT = 'fill="currentColor" font-family="sans-serif" font-size="12"'  # where no style sheet says it


@dataclass(frozen=True)
class ChartLine:
    name: str
    points: Points
    style: str = "a"  # a, b, c: colours of report.css
    dots: bool = False


def line_chart(lines: Sequence[ChartLine], what: str, logarithmic: bool = False, level: float | None = None) -> str:
    """Lines over training steps. `level` draws a dashed horizontal line, such as a limit."""
    lines = [line for line in lines if line.points]
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points] + ([level] if level is not None else [])
    logarithmic = logarithmic and bool(ys) and min(ys) > 0
    x_scale, y_scale = Scale([0, *xs], LEFT, WIDTH - RIGHT), Scale(ys, HEIGHT - BOTTOM, TOP, logarithmic)
    if not logarithmic:
        y_scale = Scale([*ys, *y_scale.ticks()], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_scale(y):.1f}" y2="{y_scale(y):.1f}"/>'
        f'<text x="{LEFT - 6}" y="{y_scale(y) + 4:.1f}" text-anchor="end">{format_number(y)}</text>'
        for y in y_scale.ticks()
    ]
    parts += [
        f'<text x="{x_scale(x):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{format_number(x)}</text>'
        for x in x_scale.ticks(4)
        if x == int(x)
    ]
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">step</text>')
    if level is not None:
        y = y_scale(level)
        parts.append(f'<line class="level" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    for line in lines:
        points = [(x_scale(x), y_scale(y)) for x, y in downsample(line.points)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline class="line {line.style}" points="{path}"/>')
        if line.dots or len(points) == 1:
            parts += [f'<circle class="dot {line.style}" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>' for x, y in points]
    return svg(parts + legend(lines), WIDTH, HEIGHT, what)


def legend(lines: Sequence[ChartLine]) -> list[str]:
    """The names of the lines at the upper right, where falling curves leave space. None for a single line."""
    if len(lines) < 2:
        return []
    return [
        f'<text class="legend {line.style}" x="{WIDTH - RIGHT}" y="{TOP + 12 + 16 * i}" text-anchor="end">'
        f"{escape(line.name)}</text>"
        for i, line in enumerate(lines)
    ]


class Scale:
    """Maps values to coordinates."""

    def __init__(self, values: Sequence[float], start: float, end: float, logarithmic: bool = False):
        self.low, self.high = (min(values), max(values)) if values else (0.0, 1.0)
        if self.low == self.high:
            self.low, self.high = (self.low / 2, self.high * 2) if logarithmic else (self.low - 0.5, self.high + 0.5)
        self.start, self.end, self.logarithmic = start, end, logarithmic

    def __call__(self, value: float) -> float:
        low, high = self._transform(self.low), self._transform(self.high)
        return self.start + (self._transform(value) - low) / (high - low) * (self.end - self.start)

    def _transform(self, value: float) -> float:
        return math.log(value) if self.logarithmic else value

    def ticks(self, count: int = 5) -> list[float]:
        """Round numbers within the range."""
        if self.logarithmic:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
                candidates = [digit * 10.0**decade for decade in decades for digit in digits]
                found = [value for value in candidates if self.low <= value <= self.high]
                if len(found) >= 3:
                    return found
        step = round_step((self.high - self.low) / count)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [i * step for i in range(first, last + 1)]


def round_step(minimum: float) -> float:
    """The smallest of 1, 2 or 5 times a power of ten that is at least `minimum`."""
    power = 10.0 ** math.floor(math.log10(minimum))
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= minimum * (1 - 1e-9))


def format_number(value: float) -> str:
    if value and abs(value) < 1e-3:
        return f"{value:.0e}".replace("e-0", "e-")
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def downsample(points: Points) -> Points:
    """At most MAX_POINTS points: the minimum and the maximum of each interval, so that peaks stay visible."""
    if len(points) <= MAX_POINTS:
        return points
    edges = [round(i * len(points) / (MAX_POINTS // 2)) for i in range(MAX_POINTS // 2 + 1)]
    intervals = [points[a:b] for a, b in pairwise(edges)]
    return [point for s in intervals for point in sorted({min(s, key=lambda p: p[1]), max(s, key=lambda p: p[1])})]


CELL = 22
WEIGHT, NO_WEIGHT = 'fill="#0072b2"', 'fill="#808080" fill-opacity="0.12"'  # where no style sheet says it


def attention_chart(weights_QK: NDArray[np.floating], rows: Sequence[str], columns: Sequence[str], what: str) -> str:
    """A matrix with rows (queries) and columns (keys). A stronger colour means more weight."""
    left, top = 12 + 8 * max(map(len, rows)), 12 + 6 * max(map(len, columns))
    width, height = left + CELL * len(columns) + 6 * max(map(len, columns)), top + CELL * len(rows) + 6
    parts = [
        f'<text x="{left - 6}" y="{top + CELL * i + 15}" text-anchor="end">{escape(name)}</text>'
        for i, name in enumerate(rows)
    ]
    for i, name in enumerate(columns):
        x, y = left + CELL * i + 15, top - 6
        parts.append(f'<text x="{x}" y="{y}" transform="rotate(-50 {x} {y})">{escape(name)}</text>')
    size = f'width="{CELL * len(columns)}" height="{CELL * len(rows)}"'
    parts.append(f'<rect class="cell none" {NO_WEIGHT} x="{left}" y="{top}" {size}/>')
    for q, k in np.ndindex(weights_QK.shape):
        weight = float(weights_QK[q, k])
        if weight >= 0.01:
            place = f'x="{left + CELL * k}" y="{top + CELL * q}" width="{CELL - 1}" height="{CELL - 1}"'
            shade = f'{WEIGHT} fill-opacity="{weight:.2f}"'
            parts.append(f'<rect class="cell" {place} {shade}><title>{weight:.0%}</title></rect>')
    return svg(parts, width, height, what, keep_size=True)


def svg(parts: Sequence[str], width: float, height: float, what: str, keep_size: bool = False) -> str:
    """An SVG element that fills its container. `keep_size`: do not enlarge it beyond `width` pixels."""
    limit = f' style="max-width:{width}px"' if keep_size else ""
    return (
        f'<svg viewBox="0 0 {width} {height}"{limit} role="img" aria-label="{escape(what)}" {TEXT}>'
        f"<title>{escape(what)}</title>{''.join(parts)}</svg>"
    )
