"""Cutaway: the Transformer with part of its casing removed. Read it, run it, look inside it.

Public names are imported on first use. So `import cutaway` is fast, needs no torch, and a missing dependency raises an
error that names the extra to install.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

__version__ = "0.2.0"

# On Apple's MPS, run missing operations on the CPU. PyTorch reads this when it is imported (models/device.py).
if sys.platform == "darwin" and "torch" not in sys.modules:
    os.environ.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")

# name -> the module that defines it. docs/api.md describes each one; a test compares the two lists.
_MODULES = {
    "Config": "cutaway.config",
    "ModelConfig": "cutaway.config",
    "DataConfig": "cutaway.config",
    "TrainConfig": "cutaway.config",
    "DecodeConfig": "cutaway.config",
    "FinetuneConfig": "cutaway.config",
    "read_recipe": "cutaway.runs.recipe",
    "CutawayError": "cutaway.errors",
    "RunFolder": "cutaway.runs",
    "Tokenizer": "cutaway.data.tokenizer",
    "read_lines": "cutaway.data.corpus",
    "read_pairs": "cutaway.data.corpus",
    "read_labels": "cutaway.data.labels",
    "read_tags": "cutaway.data.labels",
    "load_builtin": "cutaway.data.builtin",
    "Batch": "cutaway.data.batching",
    "build_model": "cutaway.models.build",
    "preset": "cutaway.config.presets",
    "MultiHeadAttention": "cutaway.nn.attention",
    "record_activations": "cutaway.nn.recording",
    "edit_activations": "cutaway.nn.recording",
    "start_training": "cutaway.inference.training.setup",
    "resume": "cutaway.inference.training.setup",
    "Trainer": "cutaway.train.trainer",
    "Translator": "cutaway.inference.pipelines",
    "TextGenerator": "cutaway.inference.pipelines",
    "Classifier": "cutaway.inference.pipelines",
    "Tagger": "cutaway.inference.pipelines",
    "Embedder": "cutaway.inference.pipelines",
    "Request": "cutaway.search.request",
    "process_file": "cutaway.bulk.jobs",
    "import_folder": "cutaway.interop.huggingface",
    "export_folder": "cutaway.interop.huggingface",
    "export_onnx": "cutaway.interop.onnx",
    "export_ct2": "cutaway.inference.engines.ct2_converter",
    "merge_run": "cutaway.runs.merge",
    "evaluate_run": "cutaway.inference.evaluation",
    "trace": "cutaway.explore.trace",
    "trace_translation": "cutaway.explore.trace",
    "record_steps": "cutaway.explore.steps",
    "head_statistics": "cutaway.explore.heads",
}
__all__ = sorted(_MODULES)

# optional dependency -> the extra that installs it
_EXTRAS = {
    "torch": "torch",
    "sacrebleu": "torch",
    "matplotlib": "show",
    "fastapi": "serve",
    "uvicorn": "serve",
    "sklearn": "data",
    "datasets": "hub",
    "huggingface_hub": "hub",
    "onnx": "onnx",
    "onnxscript": "onnx",
    "onnxruntime": "onnx",
    "ctranslate2": "ct2",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'cutaway' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def missing_extra(error: ImportError) -> Exception:
    """Return the install hint for a missing optional dependency, or `error` itself if it is another module."""
    from cutaway.errors import MissingExtra

    package = (error.name or "").partition(".")[0]
    return MissingExtra(package, _EXTRAS[package]) if package in _EXTRAS else error
