"""Probes of a model that was given a prefix or a prompt: they show the text alone."""

from __future__ import annotations

from torch import Tensor

from cutaway.nn.probe import Probe


class TextProbe(Probe):
    """`hidden` says of an axis how many places at its beginning are not shown, because they are no part of the text."""

    def __init__(self, hidden: dict[int, int]):
        super().__init__()
        self.hidden = hidden

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
