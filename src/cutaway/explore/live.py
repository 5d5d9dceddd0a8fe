"""What a browser needs to answer the explorer's requests by itself (page/live): the model, and facts about its parts.

The engine in the page computes all values. Python writes down what it cannot know: equations, source code and axes of
the parts, gold alignments, and the files of the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cutaway.explore.explorer import Explorer, ExplorerRequest, LoadedRun
from cutaway.explore.parts import describe_parts, part_tree
from cutaway.explore.web_export import WEIGHTS, StoredModel, store_model, store_weights
from cutaway.runs.weights import seal_weights

PLAIN_TEXT = "a"  # for a run without examples


def describe_run(explorer: Explorer, number: int, model: StoredModel) -> dict[str, Any]:
    """The run without its weights: {files, parts, gold}. page/live/explorer.js reads it."""
    run = explorer.run(ExplorerRequest(run=number))
    files = {name: content.decode("utf-8") for name, content in model.files.items() if name != WEIGHTS}
    return {"files": files, "parts": parts_of_run(explorer, number), "gold": gold_alignments(run)}


def stored_run(explorer: Explorer, number: int, dtype: str = "float32") -> StoredModel:
    """The files of a run, with its weights in this dtype."""
    return store_model(explorer.run(ExplorerRequest(run=number)).folder, dtype)


def stored_snapshot(explorer: Explorer, number: int, step: int, dtype: str = "float32") -> bytes:
    """The weights of a snapshot in this dtype, with a checksum."""
    run = explorer.run(ExplorerRequest(run=number))
    return seal_weights(store_weights(run.folder.read_weights(run.snapshot_file(step)), dtype)[0])


def parts_of_run(explorer: Explorer, number: int) -> dict[str, Any]:
    """The details of each part without values, which are the same for any text."""
    run = explorer.runs[number]
    text = "0" if run.has_images else next((text for text in run.examples if text), PLAIN_TEXT)
    request = ExplorerRequest(text, run=number)
    with explorer.ablated_model(request) as pipeline:
        names = list(part_names(part_tree(pipeline.model)))
        return describe_parts(pipeline.model, explorer.prepare(pipeline, request), names)


def part_names(tree: dict[str, Any]) -> Iterator[str]:
    yield tree["name"]
    for part in tree["parts"]:
        yield from part_names(part)


def gold_alignments(run: LoadedRun) -> dict[str, Any]:
    """Source sentence -> what is known of its correct translation."""
    return {source: run.gold.of(run.final, source, pair.target) for source, pair in run.gold.pairs.items()}
