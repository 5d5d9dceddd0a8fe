"""Encode arguments and results as JSON for the learner's process. Not pickle: it can run code."""

from __future__ import annotations

import base64
import sys
from typing import Any

import numpy as np

MAX_NUMBERS = 100_000  # per array; exercises return a few dozen


class UnsupportedValue:
    """A returned value of an unsupported type. Only the name of the type is stored."""

    def __init__(self, kind: str):
        self.kind = kind


def pack(value: Any) -> Any:
    """Encode numbers, texts, arrays, tensors, and lists, tuples and dicts of them for JSON."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return {"tuple" if isinstance(value, tuple) else "list": [pack(v) for v in value]}
    if isinstance(value, dict):
        return {"dict": {str(k): pack(v) for k, v in value.items()}}
    array = to_array(value)
    if array is not None and array.dtype.kind in "biuf" and array.size <= MAX_NUMBERS:
        data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
        return {"array": [array.dtype.str, list(array.shape), data]}
    kind = type(value).__name__
    return {"other": kind if array is None else f"{kind} of {array.dtype}, shape {list(array.shape)}"}


def to_array(value: Any) -> np.ndarray[Any, Any] | None:
    if is_tensor(value):
        value = value.detach().cpu()
        return value.float().numpy() if value.is_floating_point() and value.itemsize < 4 else value.numpy()  # bfloat16
    return np.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else None


def unpack(packed: Any) -> Any:
    if not isinstance(packed, dict):
        return packed
    ((kind, inner),) = packed.items()
    if kind == "array":
        dtype, shape, data = inner
        return np.frombuffer(base64.b64decode(data), dtype=dtype).reshape(shape).copy()
    if kind == "dict":
        return {k: unpack(v) for k, v in inner.items()}
    if kind == "other":
        return UnsupportedValue(inner)
    return (tuple if kind == "tuple" else list)(unpack(v) for v in inner)


def map_arrays(value: Any, change: Any) -> Any:
    """Apply `change` to each array in a nested structure."""
    if isinstance(value, (list, tuple)):
        return type(value)(map_arrays(v, change) for v in value)
    if isinstance(value, dict):
        return {k: map_arrays(v, change) for k, v in value.items()}
    return change(value) if isinstance(value, np.ndarray) else value


def as_tensors(value: Any) -> Any:
    """Convert arrays to tensors, floats to PyTorch's default float32."""
    import torch

    def tensor(array: np.ndarray[Any, Any]) -> Any:
        return torch.from_numpy(array.astype(np.float32) if array.dtype.kind == "f" else array.copy())

    return map_arrays(value, tensor)


def as_arrays(value: Any) -> Any:
    return map_arrays(value, np.copy)


def is_tensor(value: Any) -> bool:
    """Check without importing torch: a tensor can exist only if torch is imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)
