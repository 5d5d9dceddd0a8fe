"""Use a trained run: text in, text out. `load` reads a run folder.

translator = Translator.load("runs/demo")
translator.translate(["The small cat sleeps."])

Pipelines convert between texts and tokens; engines compute on tokens. No file here imports torch, so the NumPy engine
works without it.

base.py              Pipeline: a model on an engine, its tokenizer and labels
generation.py        GenerationPipeline: from texts to a search over tokens, and back
translator.py        text_generator.py        pipelines that generate text
classification.py    embedder.py              pipelines that return labels, tags, vectors
"""

from __future__ import annotations

from pathlib import Path

from cutaway.inference.pipelines.base import COMMANDS, Pipeline, load_tokenizer
from cutaway.inference.pipelines.classification import Classifier, MaskedModel, Prediction, Tagger
from cutaway.inference.pipelines.embedder import Embedder
from cutaway.inference.pipelines.generation import GenerationPipeline
from cutaway.inference.pipelines.text_generator import GENERATED_LENGTH, TextGenerator
from cutaway.inference.pipelines.translator import Translator
from cutaway.runs import RunFolder

__all__ = [
    "COMMANDS",
    "GENERATED_LENGTH",
    "KINDS",
    "Classifier",
    "Embedder",
    "GenerationPipeline",
    "MaskedModel",
    "Pipeline",
    "Prediction",
    "Tagger",
    "TextGenerator",
    "Translator",
    "load_pipeline",
    "load_tokenizer",
]  # fmt: skip

KINDS: tuple[type[Pipeline], ...] = (Translator, TextGenerator, Classifier, Tagger, MaskedModel, Embedder)


def load_pipeline(run: str | Path, device: str = "auto") -> Pipeline:
    """Load the pipeline for the task that a run was trained for."""
    task = RunFolder(run).require().read_config().model.task
    return next(kind for kind in KINDS if task in kind.tasks).load(run, device)
