"""Modules, parameters and probes, and how they get their names.

A module is called like a function. Like an operation, it returns its output and a backward function; calling that
function also adds to the gradients of the module's parameters. The name of a parameter or probe is its attribute path,
such as `encoder.layers.0.self_attention.query.weight`. The PyTorch model has the same attribute names, so the paths are
equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np

from cutaway.runs.weights import check_fit
from cutaway.twin.ops import Array, Backward, dropout, identity

ForwardResult = tuple[Array, Backward]
Kind = TypeVar("Kind")


class Variable:
    """A value that several modules may read, and the sum of the gradients that they return."""

    def __init__(self, value: Array):
        self.value = value
        self.gradient: Array | None = None

    def add(self, gradient: Array) -> None:
        self.gradient = gradient if self.gradient is None else self.gradient + gradient


class Parameter(Variable):
    """A trained array."""

    def __init__(self, *shape: int, fill: float = 0.0):
        # np.zeros takes no memory until the array is written to
        super().__init__(np.full(shape, fill) if fill else np.zeros(shape))


class Buffer:
    """A constant array in the precision of the model. It is not trained and not saved."""

    def __init__(self, value: Array):
        self.value = value


class Module:
    """A class with modules, parameters, buffers or probes as attributes, or lists of them."""

    def find_all(self, kind: type[Kind]) -> dict[str, Kind]:
        """All objects of a class in this module, by name. A shared object has the name of its first occurrence."""
        found: dict[int, tuple[str, Kind]] = {}
        for name, value in self.walk(""):
            if isinstance(value, kind):
                found.setdefault(id(value), (name, value))
        return dict(found.values())

    def walk(self, prefix: str) -> Iterator[tuple[str, Any]]:
        """All attributes of this module and its child modules, each with its path."""
        for name, value in vars(self).items():
            is_list = isinstance(value, list)
            for path, child in [(f"{name}.{i}", v) for i, v in enumerate(value)] if is_list else [(name, value)]:
                yield prefix + path, child
                if isinstance(child, Module):
                    yield from child.walk(f"{prefix}{path}.")

    def parameters(self) -> dict[str, Parameter]:
        return self.find_all(Parameter)

    def zero_gradients(self) -> None:
        for parameter in self.parameters().values():
            parameter.gradient = None

    def to(self, dtype: Any) -> None:
        for parameter in self.parameters().values():
            parameter.value = parameter.value.astype(dtype, copy=False)
        for buffer in self.find_all(Buffer).values():
            buffer.value = buffer.value.astype(dtype, copy=False)

    def load(self, weights: Mapping[str, Array], dtype: Any = None, where: str = "the weights") -> None:
        """Copy these weights, by name, as `dtype` (None: keep theirs)."""
        parameters = self.parameters()
        shapes = {name: parameter.value.shape for name, parameter in parameters.items()}
        check_fit(shapes, {name: array.shape for name, array in weights.items()}, where)
        for name, parameter in parameters.items():
            parameter.value = np.array(weights[name], dtype)
            dtype = parameter.value.dtype
        self.to(dtype)  # the buffers too

    def set_dropout(self, generator: np.random.Generator | None) -> None:
        """Switch dropout on, with this random generator, or off (None)."""
        for module in self.find_all(Dropout).values():
            module.generator = generator


class Dropout(Module):
    def __init__(self, rate: float):
        self.rate = rate
        self.generator: np.random.Generator | None = None  # None: off

    def __call__(self, x: Array) -> ForwardResult:
        return dropout(x, self.rate, self.generator) if self.generator and self.rate else (x, identity)


class Probe(Module):
    """The identity. It passes the value and, in the backward pass, the gradient to a callback."""

    def __init__(self) -> None:
        self.callback: Callable[[str, Array], None] | None = None  # called with "value" or "gradient", and the array

    def __call__(self, x: Array) -> ForwardResult:
        if self.callback is None:
            return x, identity
        callback = self.callback
        callback("value", x)

        def backward(dx: Array) -> Array:
            callback("gradient", dx)
            return dx

        return x, backward


@dataclass
class Recording:
    """Probe name -> the last value and gradient there."""

    values: dict[str, Array] = field(default_factory=dict)
    gradients: dict[str, Array] = field(default_factory=dict)


@contextmanager
def record_activations(model: Module) -> Iterator[Recording]:
    """Record every probe of a model, forward and backward, inside the `with` block."""
    recording = Recording()
    probes = model.find_all(Probe)

    def record(name: str, kind: str, x: Array) -> None:
        (recording.values if kind == "value" else recording.gradients)[name] = x

    for name, probe in probes.items():
        probe.callback = partial(record, name)
    try:
        yield recording
    finally:
        for probe in probes.values():
            probe.callback = None


def xavier(model: Module, generator: np.random.Generator) -> None:
    """Every matrix uniform in ±sqrt(6 / (fan_in + fan_out)) (Glorot & Bengio 2010); biases stay 0, norms stay 1."""
    for parameter in model.parameters().values():
        if parameter.value.ndim == 2:
            limit = math.sqrt(6 / sum(parameter.value.shape))
            parameter.value = generator.uniform(-limit, limit, parameter.value.shape).astype(parameter.value.dtype)
