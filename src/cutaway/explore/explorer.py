"""The explorer's backend: answers to the page's requests as plain data. serve/ adds HTTP, export.py stores answers.

explorer = Explorer([Path("runs/demo")])
explorer.trace(ExplorerRequest(text="The small cat sleeps."))
explorer.beam(ExplorerRequest(text=...), beam_size=4, length_penalty=0.6)
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
from cutaway.explore.ablation import ablate, ablation_targets, measure_ablations
from cutaway.explore.beam_tree import beam_tree
from cutaway.explore.causes.attribution import GRADIENT, MAX_PARTS, METHODS, POINTS
from cutaway.explore.causes.margin import find_margin
from cutaway.explore.causes.patching import check_same_lengths, patch_all, patched_output, prepare_other
from cutaway.explore.causes.why import explain
from cutaway.explore.examples import GoldAlignments, example_texts, has_data, image_example, plain_examples
from cutaway.explore.heads import head_statistics
from cutaway.explore.parts import describe_part, part_tree
from cutaway.explore.trace import KINDS, trace_attention, trace_example
from cutaway.explore.traced_example import TracedExample, prepare_example
from cutaway.inference.evaluation import evaluate_run
from cutaway.inference.pipelines import GenerationPipeline, Pipeline, load_pipeline
from cutaway.runs import RunFolder

CHARACTERS = 20_000  # longest text
MODELS_IN_MEMORY = 12  # least recently used snapshots are dropped
SENTENCES = 200  # for head statistics
MAX_WORK = 1e12  # multiplications of one answer about causes; about a minute on a laptop
TITLES = {"encoder": "Encoder self-attention", "decoder": "Decoder self-attention", "cross": "Cross-attention"}


@dataclass(frozen=True)
class ExplorerRequest:
    """A text and the settings of the model that reads it. `snapshot` is a training step; None: the final weights."""

    text: str = ""
    run: int = 0
    snapshot: int | None = None
    target: str | None = None
    prefix: Sequence[int] = ()
    off: Sequence[str] = ()
    hidden: Sequence[int] = ()


class LoadedRun:
    """One run folder: its pipeline, its snapshots, and the metadata that the page shows."""

    def __init__(self, path: Path, device: str):
        self.folder, self.device = RunFolder(path).require(), device
        self.final: Pipeline = load_pipeline(path, device)
        self.models: OrderedDict[int, Pipeline] = OrderedDict()

    def model(self, snapshot: int | None) -> Pipeline:
        """The pipeline with the weights of that step, from a least-recently-used cache."""
        if snapshot is None:
            return self.final
        if snapshot not in self.models:
            self.models[snapshot] = type(self.final).load(self.folder.path, self.device, self.snapshot_file(snapshot))
        self.models.move_to_end(snapshot)
        while len(self.models) > MODELS_IN_MEMORY:
            self.models.popitem(last=False)
        return self.models[snapshot]

    def snapshot_file(self, step: int) -> Path:
        if step not in self.snapshots:
            available = ", ".join(map(str, self.snapshots)) or "none"
            raise RunError(f"{self.folder} has no snapshot of step {step}. Available: {available}.")
        return self.folder.snapshot(step)

    @cached_property
    def snapshots(self) -> list[int]:
        return sorted(int(file.stem.split("_")[1]) for file in self.folder.snapshots.glob("step_*.safetensors"))

    @cached_property
    def gold(self) -> GoldAlignments:
        return GoldAlignments(self.final)

    @cached_property
    def examples(self) -> list[Any]:
        return example_texts(self.final)

    @cached_property
    def heads(self) -> dict[str, Any]:
        examples = self.held_out(SENTENCES) if has_data(self.final) else plain_examples(self.final)
        return {"sentences": len(examples), "rows": [row.as_json() for row in head_statistics(self.final, examples)]}

    def held_out(self, count: int) -> Sequence[Any]:
        data, task = self.final.config.data, self.final.config.model.task
        if not has_data(self.final):
            if task.endswith("language_model"):  # scored on the text itself
                return plain_examples(self.final)[:count]
            raise DataError(
                "this run was imported and has no labelled data to score. Fine-tune it on your data and explore "
                "that run."
            )
        split = next((split for split in ("test", "valid") if has_split(data, split)), None)
        if split is None:
            raise DataError("this run has no held-out data. Set data.test or data.valid.")
        return load_split(data, task, split)[:count]

    @property
    def has_images(self) -> bool:
        return self.final.config.model.family == "vision"

    def content(self, text: str) -> Any:
        """The model's input: the text, or the image example with that number."""
        if len(text) > CHARACTERS:
            raise DataError(
                f"the text has {len(text):,} characters; the explorer takes at most {CHARACTERS:,}. Shorten it."
            )
        if not self.has_images:
            return text
        return image_example(self.examples, text).pixels

    def info(self) -> dict[str, Any]:
        config, model = self.final.config, self.final.model
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
            "examples": self.examples if not self.has_images else self.image_examples(),
            "labels": list(self.final.labels),
            "decode": dataclasses.asdict(config.decode),
            "parts": part_tree(model),
            "switches": [target.as_json() for target in ablation_targets(model).values()],
            "has_gold": bool(self.gold.pairs),
        }

    def image_examples(self) -> list[dict[str, Any]]:
        return [
            {"number": number, "label": image.label, "pixels": image.pixels.round(6).tolist()}
            for number, image in enumerate(self.examples)
        ]


def attention_kinds(model: Any) -> list[dict[str, Any]]:
    """The kinds of attention in the model, with the number of layers and heads."""
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
    """Answers requests about one or more runs. A lock serializes them: recording hooks must not overlap."""

    def __init__(self, paths: Sequence[Path], device: str = "auto"):
        self.runs = [LoadedRun(path, device) for path in paths]
        self.lock = threading.Lock()

    def run(self, request: ExplorerRequest) -> LoadedRun:
        if not 0 <= request.run < len(self.runs):
            raise DataError(f"there is no run {request.run}. Choose one from 0 to {len(self.runs) - 1}.")
        return self.runs[request.run]

    def info(self) -> dict[str, Any]:
        with self.lock:
            runs = [run.info() for run in self.runs]
        title = " and ".join(run["name"] for run in runs)
        limits = {"characters": CHARACTERS}
        return {"title": title, "version": __version__, "recorded": False, "limits": limits, "runs": runs}

    @contextmanager
    def ablated_model(self, request: ExplorerRequest) -> Iterator[Pipeline]:
        """The requested model, with the requested heads and sub-layers switched off."""
        with self.lock:
            pipeline = self.run(request).model(request.snapshot)
            with torch.no_grad(), ablate(pipeline.model, request.off):
                yield pipeline

    def prepare(self, pipeline: Pipeline, request: ExplorerRequest) -> TracedExample:
        content = self.run(request).content(request.text)
        return prepare_example(pipeline, content, request.target, request.prefix, request.hidden)

    def require_readable(self, request: ExplorerRequest) -> None:
        """Raise the error of a text that this model cannot read, such as one that is too long."""
        with self.ablated_model(request) as pipeline:
            self.prepare(pipeline, request)

    def trace(self, request: ExplorerRequest) -> dict[str, Any]:
        """The trace of one text, with reference and gold alignment where they are known."""
        started, run = time.perf_counter(), self.run(request)
        with self.ablated_model(request) as pipeline:
            example = self.prepare(pipeline, request)
            found = dict(vars(trace_example(pipeline, example)))
        if run.has_images:
            found |= {"text": request.text, "reference": run.examples[int(request.text)].label}
        elif request.text:
            found |= run.gold.of(pipeline, request.text, example.output)
        return {**found, "milliseconds": round(1000 * (time.perf_counter() - started), 1)}

    def beam(self, request: ExplorerRequest, beam_size: int, length_penalty: float) -> dict[str, Any]:
        """The beam search tree."""
        with self.ablated_model(request) as pipeline:
            if not isinstance(pipeline, GenerationPipeline):
                task = pipeline.config.model.task.replace("_", " ")
                raise DataError(f"a model for {task} generates no text, so it has no beam search.")
            content = self.run(request).content(request.text)
            return beam_tree(pipeline, content, beam_size, length_penalty, request.prefix)

    def part(self, request: ExplorerRequest, name: str) -> dict[str, Any]:
        """One part of the model, with its values for this text."""
        with self.ablated_model(request) as pipeline:
            return describe_part(pipeline.model, self.prepare(pipeline, request), name)

    def ablations(self, request: ExplorerRequest) -> dict[str, Any]:
        """The log-probability of the same output with each head and sub-layer switched off alone."""
        with self.ablated_model(request) as pipeline:
            example = self.prepare(pipeline, request)
            before = example.total_log_p(example.logits(pipeline.model))
            found = measure_ablations(pipeline.model, example)
        rows = [{"id": id, "log_p": log_p} for id, log_p in found.items() if id not in request.off]
        return {"output": example.output, "log_p": before, "rows": rows}

    def why(
        self,
        request: ExplorerRequest,
        step: int | None = None,
        token: int | None = None,
        rival: int | None = None,
        methods: Sequence[str] = tuple(METHODS),
    ) -> dict[str, Any]:
        """The causes of one prediction (causes/why.py). Token and rival are ids, with the defaults of `find_margin`."""
        with self.ablated_model(request) as pipeline:
            example = self.prepare(pipeline, request)
            passes = len(example.source) + len(example.target_in) + len(ablation_targets(pipeline.model))
            if "integrated_gradients" in methods:
                # gradients, and the margin at both ends of each part; few texts need more than half of the parts
                passes += (GRADIENT * POINTS + 2) * MAX_PARTS // 2
            check_work(pipeline.model, example, passes)
            margin = find_margin(pipeline, example, token, rival, step)
            return explain(pipeline, example, margin, methods).as_json()

    def patching(
        self,
        request: ExplorerRequest,
        other: str,
        step: int | None = None,
        token: int | None = None,
        rival: int | None = None,
    ) -> dict[str, Any]:
        """How much of the difference to another text each value carries (causes/patching.py)."""
        with self.ablated_model(request) as pipeline:
            example = self.prepare(pipeline, request)
            stacks = [getattr(pipeline.model, name, None) for name in ("encoder", "decoder")]
            rows = sum(len(stack.layers) + 1 for stack in stacks if stack is not None)
            passes = rows * longest(example) + len(ablation_targets(pipeline.model))
            check_work(pipeline.model, example, passes)
            other_example = prepare_other(pipeline, example, self.run(request).content(other))
            margin = find_margin(pipeline, example, token, rival, step)
            return patch_all(pipeline.model, example, other_example, margin).as_json()

    def patched(
        self, request: ExplorerRequest, other: str, place: str, position: int | None = None, step: int | None = None
    ) -> dict[str, Any]:
        """The output of the model itself with one value of another text (`patched_output` of causes/patching.py)."""
        with self.ablated_model(request) as pipeline:
            content, example = self.run(request).content(request.text), self.prepare(pipeline, request)
            other_example = prepare_other(pipeline, example, self.run(request).content(other))
            check_same_lengths(example, other_example)
            if step is not None:
                example, other_example = example.until(step), other_example.until(step)
            return {"output": patched_output(pipeline, content, example, other_example, place, position)}

    def snapshots(self, request: ExplorerRequest) -> Iterator[dict[str, Any]]:
        """The same text at each snapshot of the training. The first item has the tokens and the steps."""
        run = self.run(request)
        steps: list[int | None] = [*run.snapshots, None]
        last = dataclasses.replace(request, snapshot=None)
        with self.ablated_model(last) as pipeline:
            final = self.prepare(pipeline, last)
        axes = {"source": final.source, "target_in": final.target_in, "target_out": final.target_out}
        yield {**axes, "steps": steps}
        for step in steps:
            earlier = dataclasses.replace(request, snapshot=step)
            with self.ablated_model(earlier) as pipeline:
                own = self.prepare(pipeline, earlier)
                attention, kept, log_p = trace_attention(pipeline, final)
            p = [round(math.exp(value), 6) for value in log_p]
            scores = {"step": step, "output": own.output, "log_p": sum(log_p[final.prompt :]), "p": p}
            yield {**scores, "attention": attention, "kept": kept}

    def score(self, request: ExplorerRequest, sentences: int) -> Iterator[dict[str, Any]]:
        """The scores on held-out data, before and after the ablation."""
        run = self.run(request)
        examples, found = run.held_out(sentences), []
        for number, off in enumerate(((), request.off)):
            yield {"done": number * len(examples), "of": 2 * len(examples)}
            with self.ablated_model(dataclasses.replace(request, off=off)) as pipeline:
                found.append(evaluate_run(pipeline, examples))
        figures = [{k.replace("_", " "): v for k, v in one.items() if isinstance(v, int | float)} for one in found]
        note = next((value for one in found for key, value in one.items() if key == "bleu_signature"), "")
        yield {"before": figures[0], "after": figures[1], "sentences": len(examples), "note": note}

    def heads(self, run: int) -> dict[str, Any]:
        """The statistics and role of each head."""
        with self.lock:
            return self.run(ExplorerRequest(run=run)).heads


def longest(example: TracedExample) -> int:
    return max(len(example.source), len(example.target_in))


def check_work(model: Any, example: TracedExample, passes: int) -> None:
    """Raise DataError if so many forward passes would block the explorer for minutes."""
    tokens = longest(example)
    if passes * tokens * sum(p.numel() for p in model.parameters()) > MAX_WORK:
        raise DataError(
            f"the causes for a text with {tokens} tokens need {passes:,} forward passes, too many for this model here. "
            "Shorten the text, or use cutaway why."
        )
