"""The load-balancing losses of a model's experts, recorded through their probes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from cutaway.nn.experts import Experts
from cutaway.nn.recording import watch_probes


@contextmanager
def balance_losses(model: nn.Module) -> Iterator[list[Tensor]]:
    """A list that each forward in the `with` statement fills with one loss for each mixture of experts."""
    losses: list[Tensor] = []
    mixtures = [module for module in model.modules() if isinstance(module, Experts)]
    with watch_probes({str(i): (mixture.balance, losses.append) for i, mixture in enumerate(mixtures)}):
        yield losses
