"""The weights in a folder that someone else wrote: safetensors, in one file or in shards. Nothing is unpickled, ever.

    model.safetensors                       one file, or
    model-00001-of-00002.safetensors  ...   shards, and
    model.safetensors.index.json            which tensor is in which

A safetensors file is: the length of its header (8 bytes), the header (JSON: type, shape and place of each tensor), the
tensors. Files are mapped, not loaded: an array is made when it is asked for.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from cutaway.errors import DataError
from cutaway.runs.files import write_json

Array = NDArray[Any]

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD_BYTES = 5_000_000_000  # of a shard, at most, unless one tensor alone is larger

# names of the safetensors format -> NumPy's, to read the bytes with; bfloat16 is the upper half of a float32
FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}

# Weights that can only be read by running what is in them, or with the library that wrote them.
OTHERS = (
    "*.bin",
    "*.bin.index.json",
    "*.pt",
    "*.pth",
    "*.ckpt",
    "*.ckpt.index",
    "*.h5",
    "*.msgpack",
    "*.gguf",
    "*.onnx",
)


@dataclass(frozen=True)
class StoredTensor:
    """A tensor where it lies: its bytes, and how to read them."""

    dtype: str
    shape: tuple[int, ...]
    data: Array  # bytes, as uint8
    where: str


class TensorFiles(Mapping[str, Array]):
    """name -> array. Half precision becomes float32; float64 stays."""

    def __init__(self, stored: Mapping[str, StoredTensor]):
        self.stored = dict(stored)

    def __getitem__(self, name: str) -> Array:
        tensor = self.stored[name]
        if tensor.dtype not in FLOATS:
            raise DataError(
                f"the tensor {name!r} in {tensor.where} is of type {tensor.dtype}; weights are read in the types "
                f"{', '.join(FLOATS)}. If the model was quantized, take its original weights."
            )
        array = tensor.data.view(FLOATS[tensor.dtype]).reshape(tensor.shape)
        if tensor.dtype == "BF16":
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array.astype(np.float32) if tensor.dtype == "F16" else array

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)


def read_folder(folder: Path) -> TensorFiles:
    """All tensors in a folder, whether in one file or in shards."""
    if (folder / SINGLE).is_file():
        return TensorFiles(read_file(folder / SINGLE))
    if (folder / INDEX).is_file():
        return TensorFiles(read_shards(folder))
    raise DataError(no_weights(folder))


def read_file(path: Path) -> dict[str, StoredTensor]:
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty. Copy or download it again.")
    return read_bytes(np.memmap(path, np.uint8, mode="r"), str(path))


def read_bytes(content: Array, where: str) -> dict[str, StoredTensor]:
    """The tensors of a safetensors file, given as uint8."""
    damaged = f"{where} is not a whole safetensors file"
    again = "Copy or download it again."
    header = header_of(content, f"{damaged}: its header is cut off or not readable ({len(content)} bytes). {again}")
    data = content[8 + struct.unpack("<Q", content[:8].tobytes())[0] :]
    try:
        places = {name: entry["data_offsets"] for name, entry in header.items()}
        shapes = {name: tuple(int(n) for n in entry["shape"]) for name, entry in header.items()}
        expected = max((int(end) for _, end in places.values()), default=0)
        if len(data) != expected:
            raise DataError(f"{damaged}: it holds {len(data)} bytes of tensors, and {expected} were written. {again}")
        stored = {
            name: StoredTensor(str(header[name]["dtype"]), shapes[name], data[begin:end], where)
            for name, (begin, end) in places.items()
        }
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{damaged}: its header makes no sense ({error!r}). {again}") from None
    for name, tensor in stored.items():
        width = np.dtype(FLOATS[tensor.dtype]).itemsize if tensor.dtype in FLOATS else None
        if width and len(tensor.data) != math.prod(tensor.shape) * width:
            raise DataError(
                f"{damaged}: the tensor {name!r} of shape {tensor.shape} and type {tensor.dtype} has "
                f"{len(tensor.data)} bytes. {again}"
            )
    return stored


def header_of(content: Array, problem: str) -> dict[str, Any]:
    if len(content) < 8:
        raise DataError(problem)
    (length,) = struct.unpack("<Q", content[:8].tobytes())
    if length > len(content) - 8:
        raise DataError(problem)
    try:
        header = json.loads(content[8 : 8 + length].tobytes())
    except (ValueError, RecursionError):
        raise DataError(problem) from None
    if not isinstance(header, dict) or not all(isinstance(entry, dict) for entry in header.values()):
        raise DataError(problem)
    header.pop("__metadata__", None)
    return header


def read_shards(folder: Path) -> dict[str, StoredTensor]:
    index = read_json(folder / INDEX)
    where = index.get("weight_map")
    if not isinstance(where, dict) or not where:
        raise DataError(
            f"{folder / INDEX} has no weight_map that says which tensor is in which file. Download it again."
        )
    shards = {}
    for file in sorted({str(name) for name in where.values()}):
        if Path(file).name != file:
            raise DataError(f"{folder / INDEX} names {file!r}, which is not a file beside it. Download it again.")
        if not (folder / file).is_file():
            raise DataError(
                f"the shard {file} is missing from {folder}; {INDEX} names it. Copy or download it to that folder."
            )
        shards[file] = read_file(folder / file)
    for name, file in where.items():
        if name not in shards[str(file)]:
            raise DataError(
                f"the tensor {name!r} is not in {folder / file}, where {INDEX} says it is. Download both again."
            )
    return {name: tensor for shard in shards.values() for name, tensor in shard.items()}


def no_weights(folder: Path) -> str:
    """Why a folder without safetensors cannot be read, and what to do about it."""
    if (folder / "adapter_model.safetensors").is_file():
        return (
            f"{folder} holds an adapter (adapter_model.safetensors), not a model. Merge it into its model first, with "
            "peft's merge_and_unload(), and save that."
        )
    others = sorted({path.name for pattern in OTHERS for path in folder.glob(pattern)})
    if not others:
        return (
            f"there are no weights in {folder}: neither {SINGLE} nor {INDEX}. Give the folder into which "
            "save_pretrained wrote, or to which the model was downloaded."
        )
    config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    cls = (config.get("architectures") or ["AutoModel"])[0]
    return (
        f"{folder} has its weights in {', '.join(others)} alone, which is not read: such a file can run code when it "
        "is opened, or needs the library that wrote it. Ask for the model's safetensors revision, or convert the file "
        f"where it is trusted:\n    from transformers import {cls}\n"
        f'    {cls}.from_pretrained("{folder}").save_pretrained("{folder}")'
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"there is no {path.name} in {path.parent}. Give the folder of a Hugging Face model.") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON that can be read: {error}. Download it again.") from None
    if not isinstance(value, dict):
        raise DataError(f"{path} holds a {type(value).__name__}, not an object. Download it again.")
    return value


def write_folder(folder: Path, arrays: Mapping[str, Array], shard_bytes: int = SHARD_BYTES) -> list[str]:
    """Write all arrays, in one file or in shards of at most so many bytes. -> the names of the files"""
    shards = cut(arrays, shard_bytes)
    if len(shards) == 1:
        save(folder / SINGLE, shards[0])
        return [SINGLE]
    files = [f"model-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)]
    for file, shard in zip(files, shards, strict=True):
        save(folder / file, shard)
    total = sum(array.nbytes for array in arrays.values())
    where = {name: file for file, shard in zip(files, shards, strict=True) for name in shard}
    write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": where})
    return [*files, INDEX]


def cut(arrays: Mapping[str, Array], shard_bytes: int) -> list[dict[str, Array]]:
    """One after the other into shards, a new one where the last is full."""
    shards: list[dict[str, Array]] = [{}]
    room = shard_bytes
    for name, array in arrays.items():
        if shards[-1] and array.nbytes > room:
            shards.append({})
            room = shard_bytes
        shards[-1][name] = array
        room -= array.nbytes
    return shards


def save(path: Path, arrays: Mapping[str, Array]) -> None:
    # "pt": the arrays lie as PyTorch's do, without which transformers refuses a file
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    safetensors.numpy.save_file(whole, path, metadata={"format": "pt"})
