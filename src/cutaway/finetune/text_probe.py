"""Probes of a model with a prefix or prompt: they see only the text."""

from __future__ import annotations

from contextvars import ContextVar

from torch import Tensor

from cutaway.nn.probe import Probe

PROMPT_ROWS = ContextVar("PROMPT_ROWS", default=0)  # prompt rows in the current forward of this thread


class TextProbe(Probe):
    """Hides the prompt along the axis `rows`, and the first `columns` of axis 3."""

    def __init__(self, rows: int | None = None, columns: int = 0):
        super().__init__()
        self.rows, self.columns = rows, columns

    @property
    def hidden(self) -> dict[int, int]:
        """Axis -> how many entries at its start are hidden."""
        rows = {} if self.rows is None else {self.rows: PROMPT_ROWS.get()}
        return {**rows, 3: self.columns} if self.columns else rows

    def forward(self, value: Tensor) -> Tensor:
        text = self.text(value)
        changed = super().forward(text)
        if changed is text:
            return value
        value = value.clone()
        self.text(value).copy_(changed)
        return value

    def text(self, value: Tensor) -> Tensor:
        for axis, count in self.hidden.items():
            value = value.narrow(axis, count, value.size(axis) - count)
        return value
