"""Look at the values inside a model, or change them, while it runs.

with record_activations(model, "*.weights") as seen:        # look
    model(source, target_in)
seen["encoder.layers.0.self_attention.weights"]    # [B, H, Q, K]

with edit_activations(model, {"decoder.layers.1.cross_attention.heads": without_head(2)}):   # change
    model(source, target_in)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase

from torch import Tensor, nn

from cutaway.errors import ConfigError, did_you_mean
from cutaway.nn.probe import Probe, Watcher


class Recording(dict[str, Tensor]):
    """Probe name -> the value last seen there, in the order in which the model computed them."""

    def record(self, name: str, value: Tensor) -> None:
        self.pop(name, None)  # so that a probe passed twice takes its latest place in the order
        self[name] = value.detach()

    def _repr_html_(self) -> str:
        """How a notebook shows it: names and shapes."""
        rows = "".join(f"<tr><td>{name}</td><td>{tuple(value.shape)}</td></tr>" for name, value in self.items())
        return f"<table>{rows}</table>"


def probes(model: nn.Module) -> dict[str, Probe]:
    """All probes of a model, by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Probe)}


@contextmanager
def record_activations(model: nn.Module, *patterns: str) -> Iterator[Recording]:
    """Record every probe whose name matches one of `patterns` (all, if none is given) while the block runs.

    Watched attention runs `attend_exact` meanwhile, so that there are weights to see. What other threads do with the
    model meanwhile is not recorded: a server may be answering somebody else.
    """
    seen, mine = Recording(), threading.get_ident()

    def recorder(name: str) -> Watcher:
        return lambda value: seen.record(name, value) if threading.get_ident() == mine else None

    with watch_probes(
        {name: (probe, recorder(name)) for name, probe in find_probes(model, patterns or ("*",)).items()}
    ):
        yield seen


@contextmanager
def edit_activations(model: nn.Module, edits: Mapping[str, Callable[[Tensor], Tensor] | Tensor]) -> Iterator[None]:
    """Change values while the block runs: pattern -> a function of the value, or a value to put in its place."""
    chosen: dict[str, tuple[Probe, Watcher]] = {}
    for pattern, edit in edits.items():
        for name, probe in find_probes(model, (pattern,)).items():
            chosen[f"{pattern} {name}"] = (probe, edit if callable(edit) else patch(edit))
    with watch_probes(chosen):
        yield


@contextmanager
def watch_probes(chosen: Mapping[str, tuple[Probe, Watcher]]) -> Iterator[None]:
    for probe, watcher in chosen.values():
        probe.watchers.append(watcher)
    try:
        yield
    finally:
        for probe, watcher in chosen.values():
            probe.watchers.remove(watcher)


def find_probes(model: nn.Module, patterns: tuple[str, ...]) -> dict[str, Probe]:
    """The probes that match; a pattern that matches none is an error, not an empty recording."""
    everything = probes(model)
    found: set[str] = set()
    for pattern in patterns:
        matches = {name for name in everything if fnmatchcase(name, pattern)}
        if not matches:
            raise ConfigError(f"no probe matches {pattern!r}. {did_you_mean(pattern, everything)}")
        found |= matches
    return {name: probe for name, probe in everything.items() if name in found}


def patch(replacement: Tensor) -> Watcher:
    """An edit that puts in a value recorded elsewhere."""

    def put_in(value: Tensor) -> Tensor:
        if value.shape != replacement.shape:
            raise ConfigError(
                f"cannot patch a value of shape {tuple(value.shape)} with one of shape {tuple(replacement.shape)}. "
                "Record the replacement on inputs of the same lengths."
            )
        return replacement

    return put_in


def without_head(*heads: int) -> Callable[[Tensor], Tensor]:
    """An edit for a `heads` probe [B, H, Q, E]: switch heads off."""

    def switch_off(value: Tensor) -> Tensor:
        value = value.clone()
        value[:, list(heads)] = 0.0
        return value

    return switch_off
