"""What a model is made of: parts within parts, parameters, probes; and how they get their names.

A part is called like a function and, like the operations, returns its output and the way back. Whatever has parameters
adds to their gradients on that way. A parameter's or probe's name is the path of attributes that leads to it, such as
`encoder.layers.0.self_attention.query.weight`: the same as in the PyTorch model, because the attributes are called
the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from cutaway.runs.weights import check_fit
from cutaway.twin.ops import Array, Backward, dropout, identity

ForwardResult = tuple[Array, Backward]
Kind = TypeVar("Kind")


class Variable:
    """A value that several parts may read, and the sum of what they send back."""

    def __init__(self, value: Array):
        self.value = value
        self.gradient: Array | None = None

    def add(self, gradient: Array) -> None:
        self.gradient = gradient if self.gradient is None else self.gradient + gradient


class Parameter(Variable):
    """What training changes."""

    def __init__(self, *shape: int, fill: float = 0.0):
        super().__init__(np.full(shape, fill) if fill else np.zeros(shape))  # zeros take no memory until written to


class Buffer:
    """A table that goes with a model and its precision, but that nothing trains and no file stores."""

    def __init__(self, value: Array):
        self.value = value


class Module:
    """Anything with attributes that may be parts, parameters, buffers or probes, or lists of them."""

    def named(self, kind: type[Kind]) -> dict[str, Kind]:
        """All of a kind in this part, by name. What occurs twice has the name under which it occurs first."""
        found: dict[int, tuple[str, Kind]] = {}
        for name, value in self.walk(""):
            if isinstance(value, kind):
                found.setdefault(id(value), (name, value))
        return dict(found.values())

    def walk(self, prefix: str) -> Iterator[tuple[str, Any]]:
        """Whatever can be reached by attributes, with the path to it."""
        for name, value in vars(self).items():
            several = isinstance(value, list)
            for path, child in [(f"{name}.{i}", v) for i, v in enumerate(value)] if several else [(name, value)]:
                yield prefix + path, child
                if isinstance(child, Module):
                    yield from child.walk(f"{prefix}{path}.")

    def parameters(self) -> dict[str, Parameter]:
        return self.named(Parameter)

    def zero_gradients(self) -> None:
        for parameter in self.parameters().values():
            parameter.gradient = None

    def to(self, dtype: Any) -> None:
        for parameter in self.parameters().values():
            parameter.value = parameter.value.astype(dtype, copy=False)
        for buffer in self.named(Buffer).values():
            buffer.value = buffer.value.astype(dtype, copy=False)

    def load(self, weights: Mapping[str, Array], dtype: Any = None, where: str = "the weights") -> None:
        """Take over copies of these values, by name, in a precision (None: their own)."""
        parameters = self.parameters()
        shapes = {name: parameter.value.shape for name, parameter in parameters.items()}
        check_fit(shapes, {name: array.shape for name, array in weights.items()}, where)
        for name, parameter in parameters.items():
            parameter.value = np.array(weights[name], dtype)
            dtype = parameter.value.dtype
        self.to(dtype)  # the buffers too

    def set_dropout(self, generator: np.random.Generator | None) -> None:
        """Switch dropout on, with this source of chance, or off."""
        for part in self.named(Dropout).values():
            part.generator = generator


class Dropout(Module):
    def __init__(self, rate: float):
        self.rate = rate
        self.generator: np.random.Generator | None = None  # None: switched off

    def __call__(self, x: Array) -> ForwardResult:
        return dropout(x, self.rate, self.generator) if self.generator and self.rate else (x, identity)


class Probe(Module):
    """The identity, with eyes: what passes is shown to the recording, on the way forward and on the way back."""

    def __init__(self) -> None:
        self.note: Callable[[str, Array], None] | None = None  # None: nobody looks

    def __call__(self, x: Array) -> ForwardResult:
        if self.note is None:
            return x, identity
        note = self.note
        note("value", x)

        def backward(dx: Array) -> Array:
            note("gradient", dx)
            return dx

        return x, backward


@dataclass
class Recording:
    """Probe name -> what passed there, the last time."""

    values: dict[str, Array] = field(default_factory=dict)
    gradients: dict[str, Array] = field(default_factory=dict)


@contextmanager
def record_activations(model: Module) -> Iterator[Recording]:
    """Record every probe of a model, forward and backward, while the block runs."""
    seen = Recording()
    probes = model.named(Probe)

    def noting(name: str) -> Callable[[str, Array], None]:
        def note(which: str, x: Array) -> None:
            (seen.values if which == "value" else seen.gradients)[name] = x

        return note

    for name, probe in probes.items():
        probe.note = noting(name)
    try:
        yield seen
    finally:
        for probe in probes.values():
            probe.note = None


def xavier(model: Module, generator: np.random.Generator) -> None:
    """Every matrix uniform in ±sqrt(6 / (fan_in + fan_out)) (Glorot & Bengio 2010); biases and norms stay 0 and 1."""
    for parameter in model.parameters().values():
        if parameter.value.ndim == 2:
            limit = math.sqrt(6 / sum(parameter.value.shape))
            parameter.value = generator.uniform(-limit, limit, parameter.value.shape).astype(parameter.value.dtype)
