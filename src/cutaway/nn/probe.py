"""Probes: named places in a model where a value can be seen or changed (recording.py says how).

Every interesting activation passes through a `Probe`, an identity module. Its name is its place in the model,
such as `encoder.layers.0.self_attention.weights`. An idle probe runs no operator at all.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

Watcher = Callable[[Tensor], Tensor | None]


class Probe(nn.Module):
    """The identity. A watcher is shown the value; if it returns one, that one goes on instead."""

    def __init__(self) -> None:
        super().__init__()
        self.watchers: list[Watcher] = []

    @property
    def is_watched(self) -> bool:
        return bool(self.watchers)

    def __call__(self, value: Tensor) -> Tensor:
        """A decoder passes dozens of probes a token: one that nobody watches must not cost a module's whole call."""
        return super().__call__(value) if self.watchers or is_hooked(self) else value

    def forward(self, value: Tensor) -> Tensor:
        for watcher in tuple(self.watchers):  # another thread may stop watching meanwhile
            changed = watcher(value)
            value = value if changed is None else changed
        return value


def is_hooked(module: nn.Module) -> bool:
    """Whether somebody wants to know of its calls, so that they must go torch's own way."""
    return bool(module._forward_hooks or module._forward_pre_hooks)
