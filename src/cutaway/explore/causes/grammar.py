"""Translators of tinyworld, for which the grammar knows the causes and features of words."""

from __future__ import annotations

from collections.abc import Sequence

from cutaway.data.builtin.tinyworld import AlignedPair
from cutaway.data.tasks import load_split
from cutaway.errors import DataError
from cutaway.inference.pipelines import Pipeline, Translator


def require_tinyworld(pipeline: Pipeline) -> tuple[Translator, str]:
    """The translator and its direction, such as "en-fr". Any other model is an error."""
    corpus = pipeline.config.data.corpus
    if not isinstance(pipeline, Translator) or not corpus.startswith("tinyworld:"):
        given = f"the task {pipeline.config.model.task!r} and " + (f"the corpus {corpus!r}" if corpus else "own data")
        raise DataError(f"the grammar is known for translators of tinyworld only. This run has {given}.")
    return pipeline, corpus.removeprefix("tinyworld:")


def tinyworld_pairs(pipeline: Pipeline) -> Sequence[AlignedPair]:
    """The test sentences of such a translator."""
    translator, _ = require_tinyworld(pipeline)
    pairs: Sequence[AlignedPair] = load_split(translator.config.data, "translation", "test")
    return pairs
