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


class TableModel:
    """A next-token model for tests. Its logits depend on the last two ids of a text and slightly on all of it.

    table [V, V, V]: the logits after the ids i, j are about table[i, j]; after the first id i, table[i, i]
    """

    def __init__(self, table: Any):
        self.table = table

    def __repr__(self) -> str:
        return f"a model with {len(self.table)} tokens"

    def __call__(self, ids: Any) -> Any:
        """ids [B, T] -> logits [B, V] of the same library; for a list, of the library of the table"""
        array, table = np.asarray(to_array(ids) if is_tensor(ids) else ids), np.asarray(to_array(self.table))
        if array.ndim != 2 or not array.size or array.dtype.kind not in "iu":
            raise ValueError(f"the model takes integers [N, T], but got {array.dtype} {list(array.shape)}")
        logits = table[array[:, -2:][:, 0], array[:, -1]] + self.text_effect(array, len(table))
        is_array = isinstance(ids, np.ndarray)
        return as_tensors(logits) if is_tensor(ids) or (is_tensor(self.table) and not is_array) else logits

    @staticmethod
    def text_effect(ids: np.ndarray[Any, Any], vocabulary: int) -> np.ndarray[Any, Any]:
        """A small number for each text and next token. It makes exact ties between texts unlikely."""
        places = np.arange(ids.shape[1])
        phase = (ids * (1 + 0.37 * places)).sum(axis=1, keepdims=True) + len(places)
        return 0.1 * np.sin(phase + np.arange(vocabulary))


def pack(value: Any) -> Any:
    """Encode numbers, texts, arrays, tensors, models, and lists, tuples and dicts of them for JSON."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, range):
        value = list(value)
    if isinstance(value, (list, tuple)):
        return {"tuple" if isinstance(value, tuple) else "list": [pack(v) for v in value]}
    if isinstance(value, dict):
        return {"dict": {str(k): pack(v) for k, v in value.items()}}
    if isinstance(value, TableModel):
        return {"model": pack(value.table)}
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
    if kind == "model":
        return TableModel(unpack(inner))
    if kind == "other":
        return UnsupportedValue(inner)
    return (tuple if kind == "tuple" else list)(unpack(v) for v in inner)


def map_arrays(value: Any, change: Any) -> Any:
    """Apply `change` to each array in a nested structure."""
    if isinstance(value, (list, tuple)):
        return type(value)(map_arrays(v, change) for v in value)
    if isinstance(value, dict):
        return {k: map_arrays(v, change) for k, v in value.items()}
    if isinstance(value, TableModel):
        return TableModel(map_arrays(value.table, change))
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
