"""Probes: named places in a model where a value can be recorded or changed (see recording.py).

Every interesting activation passes through a `Probe`, an identity module. Its name is its module path, such as
`encoder.layers.0.self_attention.weights`. A probe without watchers computes nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

Watcher = Callable[[Tensor], Tensor | None]


class Probe(nn.Module):
    """The identity function. Each watcher is called with the value; if it returns a tensor, that replaces the value."""

    def __init__(self) -> None:
        super().__init__()
        self.watchers: list[Watcher] = []

    @property
    def is_watched(self) -> bool:
        return bool(self.watchers)

    def __call__(self, value: Tensor) -> Tensor:
        """Skip nn.Module.__call__ for a probe without watchers: a decoder calls dozens of probes for each token."""
        return super().__call__(value) if self.watchers or is_hooked(self) else value

    def forward(self, value: Tensor) -> Tensor:
        for watcher in tuple(self.watchers):  # a copy, because another thread may remove a watcher
            changed = watcher(value)
            value = value if changed is None else changed
        return value


def is_hooked(module: nn.Module) -> bool:
    """Whether the module has torch hooks, which only nn.Module.__call__ runs."""
    return bool(module._forward_hooks or module._forward_pre_hooks)
