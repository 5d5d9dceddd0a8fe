"""Weights files: safetensors that carry a checksum of themselves, their headers, and whether they fit a model."""

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
from cutaway.runs.files import CHECKSUM, damaged

LONGEST_HEADER = 100_000_000  # bytes: the format allows no more
Shapes = Mapping[str, tuple[int, ...]]


def sealed(safetensors: bytes) -> bytes:
    """A serialised safetensors file with a checksum of its content added to its own header.

    One file that checks itself can be replaced in one rename; a file and its checksum cannot.
    """
    header, data = _split(safetensors)
    metadata = {**header.get("__metadata__", {}), CHECKSUM: _checksum(header, data)}
    header["__metadata__"] = dict(sorted(metadata.items()))  # the library gives them in any order
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format wants the tensors aligned
    return struct.pack("<Q", len(text)) + text + data


def read_sealed(path: Path, must_be_sealed: bool = False) -> bytes:
    """The bytes of a weights file, after checking that they are those that were written."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise RunError(f"there is no weights file {path}.") from None
    header, data = _split(content, path)
    written = max((entry["data_offsets"][1] for entry in _entries(header)), default=0)
    if len(data) != written:
        raise damaged(path, f"it holds {len(data)} bytes of weights, {written} were written")
    expected = header.get("__metadata__", {}).get(CHECKSUM)
    if expected is None and must_be_sealed:
        raise damaged(path, "it carries no checksum, and all files of this run do")
    if expected is not None and expected not in (_checksum(header, data), _checksum_of_tensors(header, data)):
        raise damaged(path, "its checksum differs from the one it was written with")
    return content


def metadata_of(path: Path) -> dict[str, str]:
    """What the header of a weights file says beside its tensors: its checksum, and of an adapter what it is for."""
    return dict(read_header(path).get("__metadata__", {}))


def read_header(path: Path) -> dict[str, Any]:
    """The header of a weights file, without its tensors: type, shape and place of each, and the metadata."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            header = _header(file.read(min(length, LONGEST_HEADER)), path)
            end = 8 + length + max((entry["data_offsets"][1] for entry in _entries(header)), default=0)
            if (size := os.fstat(file.fileno()).st_size) != end:
                raise damaged(path, f"it has {size} bytes, {end} were written")
            return header
    except FileNotFoundError:
        raise RunError(f"there is no weights file {path}.") from None


def shapes_of(path: Path) -> Shapes:
    """The shape of each tensor in a weights file."""
    return {name: tuple(entry["shape"]) for name, entry in read_header(path).items() if name != "__metadata__"}


def identity_of(path: Path) -> str:
    """By which weights are known again: the checksum that they were sealed with."""
    return metadata_of(path).get(CHECKSUM) or _checksum(*_split(path.read_bytes(), path))


def check_fit(expected: Shapes, saved: Shapes, where: str) -> None:
    """Saved weights fit a model if no name is missing, none is left over, and every shape agrees."""
    question = "Is config.json the one that they were trained with?"
    missing, surplus = expected.keys() - saved.keys(), saved.keys() - expected.keys()
    if missing or surplus:
        raise RunError(
            f"{where} and the model do not fit: missing {_some(missing)}, unknown {_some(surplus)}. {question}"
        )
    for name, shape in expected.items():
        if tuple(shape) != tuple(saved[name]):
            there, here = tuple(saved[name]), tuple(shape)
            raise RunError(f"{where} and the model do not fit: {name} is {there} there and {here} here. {question}")


def check_sizes(model: ModelConfig, shapes: Shapes, where: str) -> None:
    """Refuse a configuration that asks for more than the weights hold, before anything of that size is built."""
    layers = sum(getattr(model, f"{side}_layers") for side in model.sides)
    experts, width = max(1, model.experts), model.d_model
    tensors = layers * (4 + 2 * experts)  # at least: four projections of attention, two matrices of each network
    attention = 2 * width * (model.n_heads + model.kv_heads) * model.head_width
    weights = layers * (attention + 2 * experts * width * model.d_ff) + width * (model.vocab_size + model.n_classes)
    held = sum(math.prod(shape) for shape in shapes.values())
    if tensors > len(shapes) or weights > held:
        raise RunError(
            f"{where} and config.json do not fit: a model of {layers} layers and width {width} has at least "
            f"{weights:,} weights in {tensors:,} tensors, and the file holds {held:,} in {len(shapes):,}. "
            "Restore the one that was changed."
        )


def _some(names: Set[str]) -> str:
    """A few of many names, for a message."""
    shown = sorted(names)[:3]
    return (", ".join(shown) + (f" and {len(names) - 3} more" if len(names) > 3 else "")) or "nothing"


def _split(content: bytes, path: Path = Path("weights")) -> tuple[dict[str, Any], memoryview]:
    """A safetensors file is: length of the header (8 bytes), header (JSON), tensors."""
    length = struct.unpack_from("<Q", content)[0] if len(content) >= 8 else 0
    return _header(content[8 : 8 + length], path), memoryview(content)[8 + length :]


def _header(text: bytes, path: Path) -> dict[str, Any]:
    try:
        header = json.loads(text)
        metadata = header.get("__metadata__", {})
        are_texts = all(isinstance(value, str) for value in metadata.values())
        for entry in _entries(header):
            begin, end = entry["data_offsets"]
            numbers = [begin, end, *entry["shape"]]
            if not all(type(number) is int and number >= 0 for number in numbers) or begin > end:
                raise ValueError(entry)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        are_texts = False
    if not are_texts:
        raise damaged(path, "its header is cut off or not readable")
    return dict(header)


def _entries(header: Mapping[str, Any]) -> list[Any]:
    return [entry for name, entry in header.items() if name != "__metadata__"]


def _checksum(header: Mapping[str, Any], data: memoryview) -> str:
    """Of the tensors, and of the metadata if there is any: an adapter's says which base it is for."""
    metadata = {name: value for name, value in header.get("__metadata__", {}).items() if name != CHECKSUM}
    covered = {name: entry for name, entry in header.items() if name != "__metadata__"}
    covered |= {"__metadata__": metadata} if metadata else {}
    digest = hashlib.sha256(json.dumps(covered, sort_keys=True).encode())
    digest.update(data)
    return digest.hexdigest()


def _checksum_of_tensors(header: Mapping[str, Any], data: memoryview) -> str:
    """As version 0.1 computed it."""
    return _checksum({name: entry for name, entry in header.items() if name != "__metadata__"}, data)
