"""Train a tiny run for each task, and write what the explorer in Python answers.

python dump_explorer.py FOLDER

FOLDER/NAME/           a run folder with snapshots
FOLDER/explorer.json   for each run: its info, the description for the browser, and calls with their answers
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import sys
from pathlib import Path
from typing import Any

import torch
from dump_api import RUNS, TRAIN, write_sentence_encoder

from cutaway.config import Config, DataConfig, DecodeConfig, ModelConfig, TrainConfig
from cutaway.data.builtin import load_builtin
from cutaway.errors import CutawayError
from cutaway.explore.explorer import Explorer, ExplorerRequest
from cutaway.explore.live import describe_run, part_names, stored_run
from cutaway.explore.values import dumps
from cutaway.inference.training.setup import start_training
from cutaway.runs import RunFolder

NAMES = ("words", "subwords", "generator", "bytes", "classifier", "tagger", "masked", "digits")
WITH_SNAPSHOTS = ("words", "generator", "tagger")
OFF = {"encoder_decoder": "decoder", "decoder": "decoder", "encoder": "encoder", "vision": "encoder"}


def train(folder: Path, name: str) -> None:
    tables = RUNS[name]
    steps = {"steps": 40, "valid_every": 40, "save_every": 40, "snapshots": 2 if name in WITH_SNAPSHOTS else 0}
    config = Config(ModelConfig(**tables["model"]), DataConfig(**tables["data"]), TrainConfig(**{**TRAIN, **steps}),
                    DecodeConfig(**tables.get("decode", {})))  # fmt: skip
    start_training(config, RunFolder(folder / name)).trainer.run()


def calls_of(explorer: Explorer) -> list[dict[str, Any]]:
    run = explorer.runs[0]
    model, task = run.final.config.model, run.final.config.model.task
    generates = task in ("translation", "language_model")
    texts = ["0", "3"] if run.has_images else [*run.examples[:3], "the zebra\nis 🙂 away", ""]
    layer = f"{OFF[model.family]}.layers.0"
    feed_forward = f"{layer}.block" if model.block == "parallel" else f"{layer}.feed_forward"
    changes: list[dict[str, Any]] = [{"off": [f"{layer}.self_attention.heads.1"]}, {"off": [feed_forward]}]
    if generates:
        changes += [{"prefix": [9, 10]}, {"target": texts[0]}, {"prefix": [10**6]}, {"prefix": [9] * 500}]
    if task == "masked_language_model":
        changes += [{"hidden": [1, 2]}, {"hidden": [999]}]
    changes += [{"off": ["encoder.layers.7.feed_forward"]}, {"text": texts[0] * 400}]
    changes += [{"snapshot": step} for step in run.snapshots]
    requests = [{"text": text} for text in texts] + [{"text": texts[0], **change} for change in changes]
    calls = [{"method": "trace", "request": request} for request in requests]
    if task != "embedding":
        calls += [{"method": "ablations", "request": {"text": texts[0]}}]
    calls += causes_of(explorer, texts, changes[0]["off"])
    if generates:
        calls += [{"method": "beam", "request": {"text": texts[0], "beam_size": size, "length_penalty": penalty}}
                  for size, penalty in ((1, 0.6), (3, 0.0), (4, 1.0))]  # fmt: skip
        calls += [{"method": "beam", "request": {**calls[-1]["request"], "prefix": [9]}}]
    else:
        calls += [{"method": "beam", "request": {"text": texts[0], "beam_size": 2, "length_penalty": 0.6}}]
    parts = part_names(explorer.info()["runs"][0]["parts"])
    calls += [{"method": "part", "request": {"text": texts[0], "name": name}} for name in parts]
    if run.snapshots:
        calls += [{"method": "snapshots", "request": {"text": text}} for text in texts[:2]]
    for call in calls:
        call["answer"] = answer(explorer, call["method"], call["request"])
    return calls


def causes_of(explorer: Explorer, texts: list[str], off: list[str]) -> list[dict[str, Any]]:
    """Calls of `why` and `patching`, without the methods that need gradients."""
    run, methods = explorer.runs[0], {"methods": ["occlusion", "attention", "rollout"]}
    steps = explorer.trace(ExplorerRequest(texts[0]))["steps"]
    last = {"step": len(steps) - 1, "token": steps[-1]["ids"][-1], "rival": steps[-1]["ids"][0]} if steps else {}
    whys = [{"text": texts[0]}, {"text": texts[1], "off": off}, {"text": texts[0], **last}]
    whys += [{"text": texts[0], "snapshot": step} for step in run.snapshots[:1]]
    whys += [{"text": texts[0], **wrong} for wrong in ({"step": 99}, {"step": 0, "rival": 10**6}, {"token": 10**6})]
    if run.final.config.model.task in ("translation", "language_model"):
        whys += [{"text": texts[0], "target": texts[1], "step": len(steps) - 1}]
    others = ["3"] if run.has_images else [*swapped(texts[0]), texts[0][::-1], texts[0], texts[0] * 2]
    calls = [{"method": "why", "request": {**request, **methods}} for request in whys]
    calls += [{"method": "patching", "request": {"text": texts[0], "other": other, **last}} for other in others]
    stack = "decoder" if run.final.config.model.family == "decoder" else "encoder"
    places: list[dict[str, Any]] = [{"place": f"{stack} layer 0", "position": 1}, {"place": off[0]}]
    places += [{"place": "decoder layer 1", "position": 2}, {"place": f"{stack} embedding", "position": 99}]
    patches = [{"other": other, **place} for other in others[:2] for place in (*places, {"place": "no part"})]
    patches += [{"other": others[0], **places[0], "step": len(steps) - 1}] if steps else []
    return calls + [{"method": "patched", "request": {"text": texts[0], **patch}} for patch in patches]


def swapped(text: str) -> list[str]:
    """The text with two neighbours swapped; some of these texts have as many tokens as this one."""
    words = text.split(" ")
    return [" ".join([*words[:i], words[i + 1], words[i], *words[i + 2 :]]) for i in range(len(words) - 1)]


def answer(explorer: Explorer, method: str, given: dict[str, Any]) -> dict[str, Any]:
    fields = {field.name for field in dataclasses.fields(ExplorerRequest)}
    request = ExplorerRequest(**{name: value for name, value in given.items() if name in fields})
    others = {name: value for name, value in given.items() if name not in fields}
    try:
        found = getattr(explorer, method)(request, **others)
        return {"result": list(found) if inspect.isgenerator(found) else found}
    except CutawayError as error:
        return {"error": type(error).__name__, "message": str(error)}


def main(folder: Path) -> None:
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)  # the models are tiny
    torch.manual_seed(0)
    write_sentence_encoder(folder / "encoder", [str(text) for text in load_builtin("python", "valid", 5)])
    found = {}
    for name in NAMES:
        train(folder, name)
    for name in (*NAMES, "encoder"):
        explorer = Explorer([folder / name], "cpu")
        info = explorer.info()["runs"][0]
        description = describe_run(explorer, 0, stored_run(explorer, 0))
        found[name] = {"info": info, "description": description, "calls": calls_of(explorer)}
    (folder / "explorer.json").write_text(dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
