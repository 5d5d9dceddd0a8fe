"""Read and write safetensors, in one file or in shards. Nothing is ever unpickled.

    model.safetensors                       one file, or
    model-00001-of-00002.safetensors  ...   shards, and
    model.safetensors.index.json            tensor -> shard

A safetensors file has three parts: the length of the header (8 bytes), the header (JSON: type, shape and offsets of
each tensor), and the tensors. Files are memory-mapped; an array is created on access.
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
SHARD_BYTES = 5_000_000_000  # largest shard, unless one tensor is larger

# type in safetensors -> NumPy type of the bytes; bfloat16 is the upper half of a float32
FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}

# formats that are not read: they can run code, or need the library that wrote them
OTHER_FORMATS = (
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
    """A tensor in a file: its bytes, type and shape."""

    dtype: str
    shape: tuple[int, ...]
    data: Array  # bytes, as uint8
    where: str


class TensorFiles(Mapping[str, Array]):
    """name -> array. Half precision becomes float32; float64 is kept."""

    def __init__(self, stored: Mapping[str, StoredTensor]):
        self.stored = dict(stored)

    def __getitem__(self, name: str) -> Array:
        tensor = self.stored[name]
        if tensor.dtype not in FLOATS:
            raise DataError(
                f"the tensor {name!r} in {tensor.where} has the type {tensor.dtype}. Supported: {', '.join(FLOATS)}. "
                "If the model is quantized, use its original weights."
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
    """Read all tensors of a folder, from one file or from shards."""
    if (folder / SINGLE).is_file():
        return TensorFiles(read_file(folder / SINGLE))
    if (folder / INDEX).is_file():
        return TensorFiles(read_shards(folder))
    raise DataError(no_weights_message(folder))


def read_file(path: Path) -> dict[str, StoredTensor]:
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty. Copy or download it again.")
    return read_bytes(np.memmap(path, np.uint8, mode="r"), str(path))


def read_bytes(content: Array, where: str) -> dict[str, StoredTensor]:
    """Read the tensors from the content of a safetensors file, an array of uint8."""
    damaged = f"{where} is not a complete safetensors file"
    again = "Copy or download it again."
    header = read_header(content, f"{damaged}: its header is cut off or damaged ({len(content)} bytes). {again}")
    data = content[8 + struct.unpack("<Q", content[:8].tobytes())[0] :]
    try:
        offsets = {name: entry["data_offsets"] for name, entry in header.items()}
        shapes = {name: tuple(int(n) for n in entry["shape"]) for name, entry in header.items()}
        expected = max((int(end) for _, end in offsets.values()), default=0)
        if len(data) != expected:
            raise DataError(f"{damaged}: it has {len(data)} bytes of tensors; its header requires {expected}. {again}")
        stored = {
            name: StoredTensor(str(header[name]["dtype"]), shapes[name], data[begin:end], where)
            for name, (begin, end) in offsets.items()
        }
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{damaged}: its header is invalid ({error!r}). {again}") from None
    for name, tensor in stored.items():
        width = np.dtype(FLOATS[tensor.dtype]).itemsize if tensor.dtype in FLOATS else None
        if width and len(tensor.data) != math.prod(tensor.shape) * width:
            raise DataError(
                f"{damaged}: the tensor {name!r} of shape {tensor.shape} and type {tensor.dtype} has "
                f"{len(tensor.data)} bytes. {again}"
            )
    return stored


def read_header(content: Array, problem: str) -> dict[str, Any]:
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
        raise DataError(f"{folder / INDEX} has no weight_map (tensor -> file). Download it again.")
    shards = {}
    for file in sorted({str(name) for name in where.values()}):
        if Path(file).name != file:
            raise DataError(
                f"{folder / INDEX} names {file!r}, which is not a file in the same folder. Download it again."
            )
        if not (folder / file).is_file():
            raise DataError(
                f"the shard {file} is missing from {folder}; {INDEX} names it. Copy or download it into that folder."
            )
        shards[file] = read_file(folder / file)
    for name, file in where.items():
        if name not in shards[str(file)]:
            raise DataError(
                f"the tensor {name!r} is not in {folder / file}, although {INDEX} names it. Download both again."
            )
    return {name: tensor for shard in shards.values() for name, tensor in shard.items()}


def no_weights_message(folder: Path) -> str:
    """Why a folder without safetensors cannot be read, and what to do."""
    if (folder / "adapter_model.safetensors").is_file():
        return (
            f"{folder} has an adapter (adapter_model.safetensors), not a model. Merge it into its base model with "
            "peft's merge_and_unload(), and save the result."
        )
    others = sorted({path.name for pattern in OTHER_FORMATS for path in folder.glob(pattern)})
    if not others:
        return (
            f"there are no weights in {folder}: neither {SINGLE} nor {INDEX}. Give a folder that save_pretrained "
            "wrote, or the folder of a downloaded model."
        )
    config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    cls = (config.get("architectures") or ["AutoModel"])[0]
    return (
        f"{folder} has weights only in {', '.join(others)}, which Cutaway does not read: such a file can run code when "
        "it is opened, or needs the library that wrote it. Use the model's safetensors revision. If you trust the "
        f"file, convert it:\n    from transformers import {cls}\n"
        f'    {cls}.from_pretrained("{folder}").save_pretrained("{folder}")'
    )


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that contains an object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"there is no {path.name} in {path.parent}. Give the folder of a Hugging Face model.") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON: {error}. Download it again.") from None
    if not isinstance(value, dict):
        raise DataError(f"{path} contains a {type(value).__name__}, not an object. Download it again.")
    return value


def write_folder(folder: Path, arrays: Mapping[str, Array], shard_bytes: int = SHARD_BYTES) -> list[str]:
    """Write all arrays, in one file or in shards of at most `shard_bytes`. Return the file names."""
    shards = split_into_shards(arrays, shard_bytes)
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


def split_into_shards(arrays: Mapping[str, Array], shard_bytes: int) -> list[dict[str, Array]]:
    """Fill one shard after the other, in order."""
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
    # transformers requires the format "pt": arrays are laid out as in PyTorch
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    safetensors.numpy.save_file(whole, path, metadata={"format": "pt"})
