"""One training of an experiment, in a process of its own:  python -m cutaway.course.trial

Jobs come on standard input and news of them go to standard output, a line of JSON each. A process takes one job after
the other, so torch is imported and the data prepared once. It has one thread: small models are trained faster by two
processes than by two threads.

    {"folder": ..., "config": ..., "first": ..., "surgery": [...], "look": "cross"}
    {"event": "step", "step": 40, "steps": 600, "loss": 2.1}
    {"event": "done", "result": {...}}
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

from cutaway.config import Config, DataConfig, with_given
from cutaway.course.ablations import operate
from cutaway.data.prepare import PreparedData, prepare
from cutaway.data.tasks import has_split, load_split
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import CutawayError, Diverged, Interrupted
from cutaway.explore.trace import trace_translation
from cutaway.inference.engines.torch_engine import TorchEngine
from cutaway.inference.pipelines import Translator
from cutaway.inference.training.new_run import Training, with_sizes
from cutaway.inference.training.setup import begin
from cutaway.metrics.scores import exact_match
from cutaway.models.build import build_model
from cutaway.models.weights import weights_to_bytes
from cutaway.nn.embedding import TokenEmbedding
from cutaway.runs import RunFolder
from cutaway.runs.files import write_bytes, write_json, write_text
from cutaway.runs.weights import sealed
from cutaway.system.processes import lines_from_parent
from cutaway.train.observers import Observer, StepReport, Watched

DECODED = 500  # held-out texts that each trained translator writes
SHOWN = 6  # of them on the page
NEWS_EVERY = 0.5  # seconds

News = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Job:
    """What to train, where, and what to begin with."""

    folder: str
    config: Config
    first: Config  # of the arm that all others are held against: where shapes agree, its weights are begun with
    surgery: tuple[str, ...] = ()
    look: str = "none"  # whose attention to keep a trace of

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Job:
        table = json.loads(line)
        config, first = (Config.from_json(json.dumps(table[name])) for name in ("config", "first"))
        return cls(table["folder"], config, first, tuple(table["surgery"]), table["look"])


def main() -> None:
    torch.set_num_threads(1)
    news, sys.stdout = sys.stdout, sys.stderr  # whatever else prints shall not get between the lines

    def tell(message: dict[str, Any]) -> None:
        news.write(json.dumps(message) + "\n")
        news.flush()

    jobs = lines_from_parent()
    while True:
        try:
            result = train_arm(Job.from_json(jobs.get()), tell)
        except Interrupted:
            raise
        except CutawayError as error:
            result = {"failed": str(error)}
        tell({"event": "done", "result": result})


def train_arm(job: Job, tell: News) -> dict[str, Any]:
    """Train, measure, and leave result.json in the run folder. A training that diverges has a result, too."""
    run, config = RunFolder(job.folder), job.config
    started, cpu = time.monotonic(), time.process_time()
    prepared = prepared_data(config.data, config.model.task)
    training = begin(config, run, [StepNews(tell)], prepared, lambda model: make_ready(model, job, prepared))
    diverged_at = trained(training)
    curve = curve_of(run)
    result: dict[str, Any] = {
        "diverged_at": diverged_at,
        "parameters": training.parameters,
        "parameters_without_embeddings": without_embeddings(training.trainer.model),
        "curve": curve,
        "measures": {},
    }
    if not diverged_at:
        result["measures"] = {name: curve[-1][name] for name in ("cross-entropy", "accuracy")}
        if config.model.task == "translation":
            add_what_is_written(result, translator_of(training))
        if job.look != "none":
            write_text(run.path / "trace.json", trace_of(training))
    keep_last_weights(run, training.trainer.model, job.surgery)
    result |= {"seconds": time.monotonic() - started, "cpu_seconds": time.process_time() - cpu}
    write_json(run.path / "result.json", result)  # last: it says that the run is finished
    return result


@cache
def prepared_data(data: DataConfig, task: str) -> PreparedData:
    """Every arm has the same data, so one preparation serves all jobs of a process."""
    return prepare(data, task)


def make_ready(model: nn.Module, job: Job, prepared: PreparedData) -> None:
    """Operate; then begin with the weights of the first arm wherever shapes agree, and with the same dropout."""
    operate(model, job.surgery)
    tokenizer = Tokenizer.from_json(prepared.tokenizer, prepared.roles) if prepared.tokenizer else None
    torch.manual_seed(job.first.train.seed)
    first = build_model(with_sizes(job.first, tokenizer, prepared.labels).model)
    copy_where_shapes_agree(first, model)
    torch.manual_seed(job.config.train.seed)


@torch.no_grad()
def copy_where_shapes_agree(source: nn.Module, into: nn.Module) -> None:
    weights = dict(source.named_parameters())
    for name, parameter in into.named_parameters():
        if name in weights and weights[name].shape == parameter.shape:
            parameter.copy_(weights[name])


def trained(training: Training) -> int | None:
    """Train to the end; the step at which the loss stopped being a number, if it did."""
    trainer = training.trainer
    with suppress(Diverged):
        trainer.run()
    if unusable := int(trainer.state.skipped_in_a_row):
        return int(trainer.state.step) - unusable + 1
    last = curve_of(trainer.run_folder)[-1:]  # the last update may have spoilt the weights unnoticed
    return None if last and last[0]["step"] == trainer.config.steps else int(trainer.state.step)


def curve_of(run: RunFolder) -> list[dict[str, float]]:
    """Step by step what validation gave, as far as it is a number."""
    return [
        {"step": row["step"], "cross-entropy": row["valid_loss"], "accuracy": row["valid_accuracy"]}
        for row in run.read_metrics()
        if "valid_loss" in row and math.isfinite(row["valid_loss"])
    ]


def translator_of(training: Training) -> Translator:
    return Translator(TorchEngine(training.trainer.model), training.tokenizer, training.config)


def held_out(config: Config) -> list[Any]:
    """The test data; the validation data where there is none."""
    split = "test" if has_split(config.data, "test") else "valid"
    return list(load_split(config.data, config.model.task, split))[:DECODED]


def add_what_is_written(result: dict[str, Any], translator: Translator) -> None:
    """Let the translator write, with nobody to tell it the right tokens so far: how much is right, and some of it."""
    pairs = held_out(translator.config)
    references = [pair.target for pair in pairs]
    longest = max(len(ids) for ids in translator.tokenizer.encode_batch(references))
    decode = with_given(translator.config.decode, max_length=longest + 5)
    written = translator.translate([pair.source for pair in pairs], decode)
    result["measures"]["exact match"] = exact_match(written, references)
    result["measures"]["token accuracy"] = in_place(written, references)
    result["written"] = [
        {"source": pair.source, "reference": pair.target, "written": text}
        for pair, text in zip(pairs[:SHOWN], written, strict=False)
    ]


def in_place(written: list[str], references: list[str]) -> float:
    """The share of words at their right place; what is missing or too much counts as wrong."""
    right = total = 0
    for text, reference in zip(written, references, strict=True):
        words, wanted = text.split(), reference.split()
        right += sum(a == b for a, b in zip(words, wanted, strict=False))
        total += max(len(words), len(wanted))
    return right / total


def trace_of(training: Training) -> str:
    """Attention on a held-out sentence: the first of middling length, the same for every arm."""
    pairs = held_out(training.config)
    chosen = next((pair for pair in pairs if 6 <= len(pair.source.split()) <= 8), pairs[0])
    return trace_translation(translator_of(training), chosen.source, chosen.target).to_json()


def without_embeddings(model: nn.Module) -> int:
    """The parameters that do work on a token, wherever it came from: what scaling laws count (Kaplan et al. 2020)."""
    tables = {id(p) for part in model.modules() if isinstance(part, TokenEmbedding) for p in part.parameters()}
    return sum(p.numel() for p in model.parameters() if id(p) not in tables)


def keep_last_weights(run: RunFolder, model: nn.Module, surgery: tuple[str, ...]) -> None:
    """The weights that were measured, and no checkpoints: a finished training is not resumed.

    After a surgery they fit no model that config.json describes. Under another name, no command can mistake them.
    """
    shutil.rmtree(run.checkpoints, ignore_errors=True)
    for left_over in (run.weights, run.path / "latest", run.path / "best"):
        left_over.unlink(missing_ok=True)
    write_bytes(run.path / "operated.safetensors" if surgery else run.weights, sealed(weights_to_bytes(model)))


class StepNews(Observer):
    """Tells now and then how far it is."""

    def __init__(self, tell: News):
        self.tell, self.last = tell, 0.0

    def on_step(self, trainer: Watched, report: StepReport) -> None:
        if time.monotonic() - self.last > NEWS_EVERY:
            self.last = time.monotonic()
            self.tell({"event": "step", "step": report.step, "steps": trainer.config.steps, "loss": report.nll})


if __name__ == "__main__":
    try:
        main()
    except (KeyboardInterrupt, Interrupted, BrokenPipeError):  # whoever started this is gone, or wants it gone
        os._exit(130)
