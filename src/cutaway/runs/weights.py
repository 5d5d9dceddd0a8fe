"""Weights files: safetensors with a checksum in the header. Also checks whether they fit a model."""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from cutaway.config import ModelConfig
from cutaway.errors import RunError
from cutaway.runs.files import CHECKSUM, damaged_error

LONGEST_HEADER = 100_000_000  # bytes; the limit of the format
Shapes = Mapping[str, tuple[int, ...]]


def seal_weights(safetensors: bytes) -> bytes:
    """Add a checksum of the content to the header of a serialized safetensors file.

    A single file can be replaced by one rename. A file and a separate checksum cannot.
    """
    header, data = _split(safetensors)
    metadata = {**header.get("__metadata__", {}), CHECKSUM: _checksum(header, data)}
    header["__metadata__"] = dict(sorted(metadata.items()))  # the library's order is random
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format aligns tensors to 8 bytes
    return struct.pack("<Q", len(text)) + text + data


def read_sealed(path: Path, must_be_sealed: bool = False) -> bytes:
    """Read a weights file and check its checksum."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise RunError(f"there is no weights file {path}.") from None
    header, data = _split(content, path)
    written = max((entry["data_offsets"][1] for entry in _entries(header)), default=0)
    if len(data) != written:
        raise damaged_error(path, f"it has {len(data)} bytes of weights instead of {written}")
    expected = header.get("__metadata__", {}).get(CHECKSUM)
    if expected is None and must_be_sealed:
        raise damaged_error(path, "it has no checksum, but all other files of this run do")
    if expected is not None and expected not in (_checksum(header, data), _checksum_of_tensors(header, data)):
        raise damaged_error(path, "its checksum differs from the one it was written with")
    return content


def read_metadata(path: Path) -> dict[str, str]:
    """Read the metadata of a weights file: its checksum and, for an adapter, its base."""
    return dict(read_header(path).get("__metadata__", {}))


def read_header(path: Path) -> dict[str, Any]:
    """Read the header of a weights file: type, shape and offsets of each tensor, and the metadata."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            header = _parse_header(file.read(min(length, LONGEST_HEADER)), path)
            end = 8 + length + max((entry["data_offsets"][1] for entry in _entries(header)), default=0)
            if (size := os.fstat(file.fileno()).st_size) != end:
                raise damaged_error(path, f"it has {size} bytes instead of {end}")
            return header
    except FileNotFoundError:
        raise RunError(f"there is no weights file {path}.") from None


def read_shapes(path: Path) -> Shapes:
    """Read the shape of each tensor in a weights file."""
    return {name: tuple(entry["shape"]) for name, entry in read_header(path).items() if name != "__metadata__"}


def weights_checksum(path: Path) -> str:
    """The checksum of a weights file, which identifies its weights."""
    return read_metadata(path).get(CHECKSUM) or _checksum(*_split(path.read_bytes(), path))


def check_fit(expected: Shapes, saved: Shapes, where: str) -> None:
    """Raise an error unless saved weights have exactly the names and shapes of a model's weights."""
    hint = "Check that config.json belongs to these weights."
    missing, unknown = expected.keys() - saved.keys(), saved.keys() - expected.keys()
    if missing or unknown:
        raise RunError(
            f"{where} does not fit the model: missing {_list_some(missing)}, unknown {_list_some(unknown)}. {hint}"
        )
    for name, shape in expected.items():
        if tuple(shape) != tuple(saved[name]):
            found, wanted = tuple(saved[name]), tuple(shape)
            raise RunError(f"{where} does not fit the model: {name} has the shape {found} instead of {wanted}. {hint}")


def check_sizes(model: ModelConfig, shapes: Shapes, where: str) -> None:
    """Raise an error if the configuration needs more weights than the file has, before a huge model is built."""
    layers = sum(getattr(model, f"{side}_layers") for side in model.sides)
    experts, width = max(1, model.experts), model.d_model
    tensors = layers * (4 + 2 * experts)  # at least: four matrices of attention, two of each feed-forward network
    attention = 2 * width * (model.n_heads + model.kv_heads) * model.head_width
    weights = layers * (attention + 2 * experts * width * model.d_ff) + width * (model.vocab_size + model.n_classes)
    found = sum(math.prod(shape) for shape in shapes.values())
    if tensors > len(shapes) or weights > found:
        raise RunError(
            f"{where} does not fit config.json: a model with {layers} layers of width {width} has at least "
            f"{weights:,} weights in {tensors:,} tensors, but the file has {found:,} in {len(shapes):,}. "
            "Restore the file that was changed."
        )


def _list_some(names: Set[str]) -> str:
    """The first three names, for a message."""
    shown = sorted(names)[:3]
    return (", ".join(shown) + (f" and {len(names) - 3} more" if len(names) > 3 else "")) or "nothing"


def _split(content: bytes, path: Path = Path("weights")) -> tuple[dict[str, Any], memoryview]:
    """Split a safetensors file: length of the header (8 bytes), header (JSON), tensors."""
    length = struct.unpack_from("<Q", content)[0] if len(content) >= 8 else 0
    return _parse_header(content[8 : 8 + length], path), memoryview(content)[8 + length :]


def _parse_header(text: bytes, path: Path) -> dict[str, Any]:
    try:
        header = json.loads(text)
        metadata = header.get("__metadata__", {})
        is_valid = all(isinstance(value, str) for value in metadata.values())
        for entry in _entries(header):
            start, end = entry["data_offsets"]
            numbers = [start, end, *entry["shape"]]
            if not all(type(number) is int and number >= 0 for number in numbers) or start > end:
                raise ValueError(entry)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        is_valid = False
    if not is_valid:
        raise damaged_error(path, "its header is incomplete or cannot be read")
    return dict(header)


def _entries(header: Mapping[str, Any]) -> list[Any]:
    return [entry for name, entry in header.items() if name != "__metadata__"]


def _checksum(header: Mapping[str, Any], data: memoryview) -> str:
    """The checksum of the tensors and of the metadata, which names the base of an adapter."""
    metadata = {name: value for name, value in header.get("__metadata__", {}).items() if name != CHECKSUM}
    covered = {name: entry for name, entry in header.items() if name != "__metadata__"}
    covered |= {"__metadata__": metadata} if metadata else {}
    digest = hashlib.sha256(json.dumps(covered, sort_keys=True).encode())
    digest.update(data)
    return digest.hexdigest()


def _checksum_of_tensors(header: Mapping[str, Any], data: memoryview) -> str:
    """The checksum of version 0.1, without the metadata."""
    return _checksum({name: entry for name, entry in header.items() if name != "__metadata__"}, data)
