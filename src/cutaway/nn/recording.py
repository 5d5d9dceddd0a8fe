"""Record or change the values inside a model while it runs.

with record_activations(model, "*.weights") as recorded:        # record
    model(source, target_in)
recorded["encoder.layers.0.self_attention.weights"]    # [B, H, Q, K]

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
    """Probe name -> its last value, in the order of computation."""

    def record(self, name: str, value: Tensor) -> None:
        self.pop(name, None)  # a probe that runs twice moves to the end
        self[name] = value.detach()

    def _repr_html_(self) -> str:
        """For notebooks: names and shapes."""
        rows = "".join(f"<tr><td>{name}</td><td>{tuple(value.shape)}</td></tr>" for name, value in self.items())
        return f"<table>{rows}</table>"


def probes(model: nn.Module) -> dict[str, Probe]:
    """All probes of a model, by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Probe)}


@contextmanager
def record_activations(model: nn.Module, *patterns: str) -> Iterator[Recording]:
    """Record every probe whose name matches one of `patterns` (default: all) during the `with` statement.

    Attention runs `attend_exact` if its weights are recorded, because the fused kernel does not store them. Calls from
    other threads, such as other requests of a server, are not recorded.
    """
    recorded, this_thread = Recording(), threading.get_ident()

    def recorder(name: str) -> Watcher:
        return lambda value: recorded.record(name, value) if threading.get_ident() == this_thread else None

    with watch_probes(
        {name: (probe, recorder(name)) for name, probe in find_probes(model, patterns or ("*",)).items()}
    ):
        yield recorded


@contextmanager
def edit_activations(model: nn.Module, edits: Mapping[str, Callable[[Tensor], Tensor] | Tensor]) -> Iterator[None]:
    """Change values during the `with` statement: pattern -> a function of the value, or a replacement."""
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
    """The probes that match at least one pattern. A pattern without a match is an error."""
    everything = probes(model)
    found: set[str] = set()
    for pattern in patterns:
        matches = {name for name in everything if fnmatchcase(name, pattern)}
        if not matches:
            raise ConfigError(f"no probe matches {pattern!r}. {did_you_mean(pattern, everything)}")
        found |= matches
    return {name: probe for name, probe in everything.items() if name in found}


def patch(replacement: Tensor) -> Watcher:
    """An edit that replaces the value by a recorded one."""

    def replace_value(value: Tensor) -> Tensor:
        if value.shape != replacement.shape:
            raise ConfigError(
                f"cannot patch a value of shape {tuple(value.shape)} with one of shape {tuple(replacement.shape)}. "
                "Record the replacement on inputs of the same lengths."
            )
        return replacement

    return replace_value


def without_head(*heads: int) -> Callable[[Tensor], Tensor]:
    """An edit for a `heads` probe [B, H, Q, E]: set these heads to 0."""

    def switch_off(value: Tensor) -> Tensor:
        value = value.clone()
        value[:, list(heads)] = 0.0
        return value

    return switch_off
