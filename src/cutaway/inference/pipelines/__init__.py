"""Text in, text out: a trained run put to work. `load` is the one way back from a run folder.

translator = Translator.load("runs/demo")
translator.translate(["The small cat sleeps."])

What happens between the texts and their tokens is here; what happens between tokens is an engine's work.
No torch here: a translator on the NumPy engine never imports it.

base.py              a model on an engine, its tokenizer and labels: what all kinds have in common
writer.py            from texts to a search over tokens and back: what those that write have in common
translator.py        text_generator.py        those that write
readers.py           embedder.py              those that read: labels, tags, vectors
"""

from __future__ import annotations

from pathlib import Path

from cutaway.inference.pipelines.base import COMMANDS, Pipeline, load_tokenizer
from cutaway.inference.pipelines.embedder import Embedder
from cutaway.inference.pipelines.readers import Classifier, MaskedModel, Prediction, Tagger
from cutaway.inference.pipelines.text_generator import GENERATED_LENGTH, TextGenerator
from cutaway.inference.pipelines.translator import Translator
from cutaway.inference.pipelines.writer import Writer
from cutaway.runs import RunFolder

__all__ = [
    "COMMANDS", "GENERATED_LENGTH", "KINDS", "Classifier", "Embedder", "MaskedModel", "Pipeline", "Prediction",
    "Tagger", "TextGenerator", "Translator", "Writer", "load_pipeline", "load_tokenizer",
]  # fmt: skip

KINDS: tuple[type[Pipeline], ...] = (Translator, TextGenerator, Classifier, Tagger, MaskedModel, Embedder)


def load_pipeline(run: str | Path, device: str = "auto") -> Pipeline:
    """Whatever this run was trained for, ready for it."""
    task = RunFolder(run).require().read_config().model.task
    return next(kind for kind in KINDS if task in kind.tasks).load(run, device)
