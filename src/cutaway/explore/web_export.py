"""cutaway export --to web: a folder with the model and the JavaScript engine, for pages of any site. No torch here.

index.html                       an example page; opens from a file and from a server
cutaway.js, cutaway.d.ts         the engine as one script, and its types
model.js                         the model as a script, for pages that are opened from files
config.json, tokenizer.json,     the model as separate files, for servers
  labels.json, model.safetensors, checksums.json
engine/                          the engine as modules, to read, or to import on a server
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from cutaway.errors import ConfigError, did_you_mean
from cutaway.explore.bundle import ENGINE, bundle
from cutaway.runs import RunFolder
from cutaway.runs.files import replacing_folder, write_bytes, write_text
from cutaway.runs.folder import check_target

Arrays = Mapping[str, NDArray[Any]]
TEMPLATES = Path(__file__).parent / "web"
DTYPES = ("float32", "float16", "int8")
SCALE = ".scale"  # the name of the row scales of an int8 matrix ends with it
MODEL_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "labels.json")  # those that the run has
WEIGHTS, CHECKSUMS = "model.safetensors", "checksums.json"
PAGE_FILES = ("index.html", "cutaway.js", "cutaway.d.ts", "model.js")
OUR_FILES = {*MODEL_FILES, WEIGHTS, CHECKSUMS, *PAGE_FILES, "engine"}
MODULE_TYPES = 'export * from "../cutaway.js";\n'  # the engine's index.js has the types of cutaway.d.ts
MAX_WEIGHTS = 350_000_000  # bytes; in base64, more does not fit into a script of a browser
PIECE = 750_000  # bytes; a multiple of 3, so that base64 needs no padding in between
LARGEST_FLOAT16 = 65_504.0


@dataclass(frozen=True)
class WebExport:
    """The result of an export for the web."""

    folder: Path
    dtype: str
    parameters: int
    weight_bytes: int
    page_bytes: int  # what a page that is opened from a file loads
    error: float  # largest difference of a stored weight, relative to the largest weight of its row
    files: tuple[str, ...]

    def summary_lines(self) -> list[str]:
        stored = describe_weights(self.dtype, self.error)
        return [
            f"{self.parameters:,} parameters as {stored}: {self.weight_bytes / 1e6:.1f} MB",
            f"the page as files: {self.page_bytes / 1e6:.1f} MB",
        ]


def export_web(path: str | Path, folder: str | Path, dtype: str = "float16", overwrite: bool = False) -> WebExport:
    """Write a run for web pages, completely or not at all.

    `dtype`: float16 halves the size of the file, int8 quarters it. The engine computes with float32.
    `overwrite`: replace an earlier export, if the folder has no other files.
    """
    run, folder = RunFolder(path).require(), Path(folder)
    model = store_model(run, dtype)
    check_page_size(run, model, dtype)
    check_target(folder, overwrite, lambda old: (old / "cutaway.js").is_file(), OUR_FILES.__contains__)
    with replacing_folder(folder) as new:
        for name, content in model.files.items():
            write_bytes(new / name, content)
        write_text(new / "model.js", f"globalThis.CutawayModel = {json.dumps(model.as_json())};\n")
        write_text(new / "cutaway.js", bundle())
        shutil.copyfile(TEMPLATES / "cutaway.d.ts", new / "cutaway.d.ts")
        shutil.copyfile(TEMPLATES / "example.html", new / "index.html")
        shutil.copytree(ENGINE, new / "engine")
        write_text(new / "engine" / "index.d.ts", MODULE_TYPES)
        files = tuple(sorted(path.name for path in new.iterdir()))
        page_bytes = sum((new / name).stat().st_size for name in ("index.html", "cutaway.js", "model.js"))
    return WebExport(folder, dtype, model.parameters, len(model.files[WEIGHTS]), page_bytes, model.error, files)


@dataclass(frozen=True)
class StoredModel:
    """The files of a model as the JavaScript engine reads them: name -> content."""

    files: dict[str, bytes]
    parameters: int
    error: float  # largest difference of a stored weight, relative to the largest weight of its row

    def as_json(self) -> dict[str, str | list[str]]:
        """The files as texts. Weights are in base64, in pieces: browsers read a very long string slowly."""
        texts = {name: content.decode("utf-8") for name, content in self.files.items() if name != WEIGHTS}
        weights = self.files[WEIGHTS]
        pieces = [weights[start : start + PIECE] for start in range(0, len(weights), PIECE)]
        return {**texts, WEIGHTS: [base64.b64encode(piece).decode() for piece in pieces]}


def describe_weights(dtype: str, error: float) -> str:
    """How weights are stored. `error`: the largest difference, relative to the largest weight of its row."""
    kept = f"with a largest error of {error:.2%} of the row's largest weight" if error else "exactly"
    return f"{dtype}, {kept}"


def store_model(run: RunFolder, dtype: str) -> StoredModel:
    """Read a run, with its weights in this dtype, and with a checksum of each file."""
    if dtype not in DTYPES:
        raise ConfigError(f"dtype {dtype!r} is unknown. {did_you_mean(dtype, DTYPES)}")
    config = run.read_config()  # checks the tokenizer and the labels, too
    if config.finetune.is_adapter:
        raise ConfigError(f"{run} is an adapter without the weights of its base. First: cutaway export {run} --to run")
    files = {name: (run.path / name).read_bytes() for name in MODEL_FILES if (run.path / name).is_file()}
    weights, parameters, error = store_weights(run.read_weights(), dtype)
    files[WEIGHTS] = weights
    checksums = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    files[CHECKSUMS] = json.dumps(checksums, indent=2).encode()
    return StoredModel(files, parameters, error)


def check_page_size(run: RunFolder, model: StoredModel, dtype: str, otherwise: str = "") -> None:
    """Raise a ConfigError if a page cannot hold the weights. `otherwise`: what else the user can do."""
    size = len(model.files[WEIGHTS])
    if size <= MAX_WEIGHTS:
        return
    smaller = " or ".join(DTYPES[DTYPES.index(dtype) + 1 :])
    remedies = [remedy for remedy in (f"--dtype {smaller}" if smaller else "a smaller model", otherwise) if remedy]
    raise ConfigError(
        f"the weights of {run} have {size / 1e6:,.0f} MB as {dtype}; a page can have {MAX_WEIGHTS / 1e6:,.0f} MB. "
        f"Use {', or '.join(remedies)}."
    )


def store_weights(weights: bytes, dtype: str) -> tuple[bytes, int, float]:
    """A weights file in another dtype. Also returns the number of parameters and the largest error."""
    arrays = safetensors.numpy.load(weights)
    stored, error = convert(arrays, dtype)
    return safetensors.numpy.save(dict(stored)), sum(array.size for array in arrays.values()), error


def convert(weights: Arrays, dtype: str) -> tuple[Arrays, float]:
    """The arrays in another dtype, and the largest error. Vectors, such as biases and norms, stay float32."""
    stored: dict[str, NDArray[Any]] = {}
    error = 0.0
    for name, array in weights.items():
        array = np.ascontiguousarray(array, dtype=np.float32)
        if dtype == "float32" or array.ndim < 2 or np.abs(array).max(initial=0.0) > LARGEST_FLOAT16:
            stored[name] = array
            continue
        largest = np.abs(array).max(axis=-1, keepdims=True)
        if dtype == "float16":
            stored[name] = array.astype(np.float16)
            restored = stored[name].astype(np.float32)
        else:
            scale = np.where(largest == 0, 1.0, largest / 127).astype(np.float32)
            stored[name] = np.round(array / scale).astype(np.int8)
            stored[name + SCALE] = scale[..., 0]
            restored = stored[name].astype(np.float32) * scale
        relative = np.abs(restored - array) / np.where(largest == 0, 1.0, largest)
        error = max(error, float(relative.max(initial=0.0)))
    return stored, error
