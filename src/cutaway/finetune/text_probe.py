"""Probes of a model that was given a prefix or a prompt: they show the text alone."""

from __future__ import annotations

from contextvars import ContextVar

from torch import Tensor

from cutaway.nn.probe import Probe

PROMPT_ROWS = ContextVar("PROMPT_ROWS", default=0)  # of a prompt in the forward that this thread is in


class TextProbe(Probe):
    """What is no part of the text is not shown: along the axis `rows` the prompt, and the first `columns` of axis 3."""

    def __init__(self, rows: int | None = None, columns: int = 0):
        super().__init__()
        self.rows, self.columns = rows, columns

    @property
    def hidden(self) -> dict[int, int]:
        """Axis -> how many places at its beginning are not shown."""
        rows = {} if self.rows is None else {self.rows: PROMPT_ROWS.get()}
        return {**rows, 3: self.columns} if self.columns else rows

    def forward(self, value: Tensor) -> Tensor:
        text = self.text(value)
        seen = super().forward(text)
        if seen is text:
            return value
        value = value.clone()
        self.text(value).copy_(seen)
        return value

    def text(self, value: Tensor) -> Tensor:
        for axis, count in self.hidden.items():
            value = value.narrow(axis, count, value.size(axis) - count)
        return value
