"""Cutaway: the Transformer with part of its casing removed. Read it, run it, look inside it.

The public names are resolved when they are first used, so that `import cutaway` is instant, needs no torch, and
tells which extra to install when something is missing.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# name -> the module that defines it. The same list stands in docs/api.md, and a test holds the two together.
_HOMES = {
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
    "recording": "cutaway.nn.recording",
    "editing": "cutaway.nn.recording",
    "begin": "cutaway.inference.training.setup",
    "resume": "cutaway.inference.training.setup",
    "Trainer": "cutaway.train.trainer",
    "Translator": "cutaway.inference.pipelines",
    "TextGenerator": "cutaway.inference.pipelines",
    "Classifier": "cutaway.inference.pipelines",
    "Tagger": "cutaway.inference.pipelines",
    "Embedder": "cutaway.inference.pipelines",
    "Wish": "cutaway.search.request",
    "work_file": "cutaway.bulk.jobs",
    "import_folder": "cutaway.interop.huggingface",
    "export_folder": "cutaway.interop.huggingface",
    "export_onnx": "cutaway.interop.onnx",
    "export_ct2": "cutaway.inference.engines.ct2_converter",
    "merge_run": "cutaway.runs.merge",
    "evaluate_run": "cutaway.inference.evaluation",
    "trace": "cutaway.explore.trace",
    "trace_translation": "cutaway.explore.trace",
    "walking": "cutaway.explore.walk",
    "head_statistics": "cutaway.explore.heads",
}
__all__ = sorted(_HOMES)

# What a missing import is called by those who can install it: module -> extra.
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
    if name not in _HOMES:
        raise AttributeError(f"module 'cutaway' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def missing_extra(error: ImportError) -> Exception:
    """The install hint for a missing optional dependency; any other missing module stays what it is."""
    from cutaway.errors import MissingExtra

    package = (error.name or "").partition(".")[0]
    return MissingExtra(package, _EXTRAS[package]) if package in _EXTRAS else error
