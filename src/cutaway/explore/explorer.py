"""All that the explorer's page can ask, answered as plain data. No HTTP here: serve/ carries it, export.py keeps it.

explorer = Explorer([Path("runs/demo")])
explorer.trace(Asked(text="The small cat sleeps."))       # what the page draws
explorer.beam(Asked(text=...), beam_size=4, length_penalty=0.6)
"""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from cutaway import __version__
from cutaway.data.tasks import has_split, load_split
from cutaway.errors import DataError, RunError
from cutaway.explore.beam_tree import beam_tree
from cutaway.explore.examples import Gold, examples_of, names_data, picture, plain_examples
from cutaway.explore.heads import head_statistics
from cutaway.explore.parts import part, part_tree
from cutaway.explore.question import Question, ask
from cutaway.explore.switches import ablations, switched_off, switches
from cutaway.explore.trace import KINDS, attention_of, trace_question
from cutaway.inference.evaluation import evaluate_run
from cutaway.inference.pipelines import Pipeline, Writer, load_pipeline
from cutaway.runs import RunFolder

CHARACTERS = 20_000  # of a text: more than a page can show
AT_HAND = 12  # models that are kept in memory: more than a run usually keeps snapshots
SENTENCES = 200  # that head statistics are counted over
TITLES = {"encoder": "Encoder self-attention", "decoder": "Decoder self-attention", "cross": "Cross-attention"}


@dataclass(frozen=True)
class Asked:
    """One question about one text. `snapshot` is a step of the training; None: the kept weights."""

    text: str = ""
    run: int = 0
    snapshot: int | None = None
    target: str | None = None
    prefix: Sequence[int] = ()
    off: Sequence[str] = ()
    hidden: Sequence[int] = ()


class OpenRun:
    """One run folder, and what the page needs to know about it."""

    def __init__(self, path: Path, device: str):
        self.folder, self.device = RunFolder(path).require(), device
        self.kept: Pipeline = load_pipeline(path, device)
        self.models: OrderedDict[int, Pipeline] = OrderedDict()

    def model(self, snapshot: int | None) -> Pipeline:
        """The pipeline with the weights of that step; those used last stay in memory."""
        if snapshot is None:
            return self.kept
        if snapshot not in self.models:
            if snapshot not in self.snapshots:
                there = ", ".join(map(str, self.snapshots)) or "none"
                raise RunError(f"{self.folder} keeps no snapshot of step {snapshot}. There are: {there}.")
            weights = self.folder.snapshot(snapshot)
            self.models[snapshot] = type(self.kept).load(self.folder.path, self.device, weights)
        self.models.move_to_end(snapshot)
        while len(self.models) > AT_HAND:
            self.models.popitem(last=False)
        return self.models[snapshot]

    @cached_property
    def snapshots(self) -> list[int]:
        return sorted(int(file.stem.split("_")[1]) for file in self.folder.snapshots.glob("step_*.safetensors"))

    @cached_property
    def gold(self) -> Gold:
        return Gold(self.kept)

    @cached_property
    def examples(self) -> list[Any]:
        return examples_of(self.kept)

    @cached_property
    def heads(self) -> dict[str, Any]:
        examples = self.held_out(SENTENCES) if names_data(self.kept) else plain_examples(self.kept)
        return {"sentences": len(examples), "rows": [row.as_json() for row in head_statistics(self.kept, examples)]}

    def held_out(self, count: int) -> Sequence[Any]:
        data, task = self.kept.config.data, self.kept.config.model.task
        if not names_data(self.kept):
            if task.endswith("language_model"):  # a text is its own right answer
                return plain_examples(self.kept)[:count]
            raise DataError(
                "this run was imported: it has no data with right answers to be scored on. Fine-tune it on data of "
                "yours, and explore that run."
            )
        split = next((split for split in ("test", "valid") if has_split(data, split)), None)
        if split is None:
            raise DataError("this run names no held-out data: neither data.test nor data.valid is set.")
        return load_split(data, task, split)[:count]

    @property
    def is_of_images(self) -> bool:
        return self.kept.config.model.family == "vision"

    def content(self, text: str) -> Any:
        """What the model reads: the text, or the example of that number."""
        if len(text) > CHARACTERS:
            raise DataError(
                f"the text has {len(text):,} characters; the explorer takes {CHARACTERS:,} at the most. Shorten it."
            )
        if not self.is_of_images:
            return text
        return picture(self.examples, text).pixels

    def info(self) -> dict[str, Any]:
        config, model = self.kept.config, self.kept.model
        return {
            "name": self.folder.path.resolve().name,
            "path": str(self.folder),
            "task": config.model.task,
            "parameters": sum(p.numel() for p in model.parameters()),
            "vocab_size": config.model.vocab_size,
            "max_length": config.longest_text,
            "snapshots": self.snapshots,
            "config": dataclasses.asdict(config.model),
            "attention": attention_kinds(model),
            "examples": self.examples if not self.is_of_images else self.pictures(),
            "labels": list(self.kept.labels),
            "decode": dataclasses.asdict(config.decode),
            "parts": part_tree(model),
            "switches": [switch.as_json() for switch in switches(model).values()],
            "has_gold": bool(self.gold.pairs),
        }

    def pictures(self) -> list[dict[str, Any]]:
        return [
            {"number": number, "label": picture.label, "pixels": picture.pixels.round(3).tolist()}
            for number, picture in enumerate(self.examples)
        ]


def attention_kinds(model: Any) -> list[dict[str, Any]]:
    """Which attention there is, and how much of it."""
    names = dict(model.named_modules())
    found = []
    for kind, pattern in KINDS.items():
        layers = [
            names[name] for i in range(len(names)) if (name := pattern.format(i).removesuffix(".weights")) in names
        ]
        if layers:
            found.append({"kind": kind, "title": TITLES[kind], "layers": len(layers), "heads": layers[0].n_heads})
    if not any(row["kind"] == "cross" for row in found):
        found = [{**row, "title": "Self-attention"} for row in found]
    return found


class Explorer:
    """Several runs, laid open. One question at a time: a recorded model is not to be disturbed."""

    def __init__(self, paths: Sequence[Path], device: str = "auto"):
        self.runs = [OpenRun(path, device) for path in paths]
        self.lock = threading.Lock()

    def run(self, asked: Asked) -> OpenRun:
        if not 0 <= asked.run < len(self.runs):
            raise DataError(f"there is no run {asked.run}; there are {len(self.runs)}, counted from 0.")
        return self.runs[asked.run]

    def info(self) -> dict[str, Any]:
        with self.lock:
            runs = [run.info() for run in self.runs]
        title = " and ".join(run["name"] for run in runs)
        limits = {"characters": CHARACTERS}
        return {"title": title, "version": __version__, "recorded": False, "limits": limits, "runs": runs}

    @contextmanager
    def at_work(self, asked: Asked) -> Iterator[Pipeline]:
        """The model that is asked for, with what is to be off switched off, for this one question."""
        with self.lock:
            pipeline = self.run(asked).model(asked.snapshot)
            with torch.no_grad(), switched_off(pipeline.model, asked.off):
                yield pipeline

    def question(self, pipeline: Pipeline, asked: Asked) -> Question:
        content = self.run(asked).content(asked.text)
        return ask(pipeline, content, asked.target, asked.prefix, asked.hidden)

    def trace(self, asked: Asked) -> dict[str, Any]:
        """Everything that the views of one text draw."""
        started, run = time.perf_counter(), self.run(asked)
        with self.at_work(asked) as pipeline:
            question = self.question(pipeline, asked)
            told = dict(vars(trace_question(pipeline, question)))
        if run.is_of_images:
            told |= {"text": asked.text, "reference": run.examples[int(asked.text)].label}
        elif asked.text:
            told |= run.gold.of(pipeline, asked.text, question.output)
        return {**told, "milliseconds": round(1000 * (time.perf_counter() - started), 1)}

    def beam(self, asked: Asked, beam_size: int, length_penalty: float) -> dict[str, Any]:
        """The tree of a beam search."""
        with self.at_work(asked) as pipeline:
            if not isinstance(pipeline, Writer):
                task = pipeline.config.model.task.replace("_", " ")
                raise DataError(f"a model for {task} writes nothing to search for.")
            content = self.run(asked).content(asked.text)
            return beam_tree(pipeline, content, beam_size, length_penalty, asked.prefix)

    def part(self, asked: Asked, name: str) -> dict[str, Any]:
        """One part of the model, while it works on this text."""
        with self.at_work(asked) as pipeline:
            return part(pipeline.model, self.question(pipeline, asked), name)

    def ablations(self, asked: Asked) -> dict[str, Any]:
        """How likely the same output stays when each switch alone is off."""
        with self.at_work(asked) as pipeline:
            question = self.question(pipeline, asked)
            before = question.total_log_p(question.logits(pipeline.model))
            found = ablations(pipeline.model, question)
        rows = [{"id": id, "log_p": log_p} for id, log_p in found.items() if id not in asked.off]
        return {"output": question.output, "log_p": before, "rows": rows}

    def snapshots(self, asked: Asked) -> Iterator[dict[str, Any]]:
        """The same text at each step of the training that weights were kept of; first a line about all of them."""
        run = self.run(asked)
        steps: list[int | None] = [*run.snapshots, None]
        last = dataclasses.replace(asked, snapshot=None)
        with self.at_work(last) as pipeline:
            final = self.question(pipeline, last)
        axes = {"source": final.source, "target_in": final.target_in, "target_out": final.target_out}
        yield {**axes, "steps": steps}
        for step in steps:
            young = dataclasses.replace(asked, snapshot=step)
            with self.at_work(young) as pipeline:
                own = self.question(pipeline, young)
                attention, kept, log_p = attention_of(pipeline, final)
            p = [round(math.exp(value), 6) for value in log_p]
            told = {"step": step, "output": own.output, "log_p": sum(log_p[final.prompt :]), "p": p}
            yield {**told, "attention": attention, "kept": kept}

    def score(self, asked: Asked, sentences: int) -> Iterator[dict[str, Any]]:
        """The figures of the run on held-out data, before and after switching off."""
        run = self.run(asked)
        examples, found = run.held_out(sentences), []
        for number, off in enumerate(((), asked.off)):
            yield {"done": number * len(examples), "of": 2 * len(examples)}
            with self.at_work(dataclasses.replace(asked, off=off)) as pipeline:
                found.append(evaluate_run(pipeline, examples))
        figures = [{k.replace("_", " "): v for k, v in one.items() if isinstance(v, int | float)} for one in found]
        note = next((value for one in found for key, value in one.items() if key == "bleu_signature"), "")
        yield {"before": figures[0], "after": figures[1], "sentences": len(examples), "note": note}

    def heads(self, run: int) -> dict[str, Any]:
        """What each head seems to do."""
        with self.lock:
            return self.run(Asked(run=run)).heads
