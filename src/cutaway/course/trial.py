"""Worker process for the trainings of an experiment:  python -m cutaway.course.trial

It reads jobs from standard input and writes messages to standard output, one line of JSON each. It runs one job after
the other, so it imports torch and prepares the data once. It uses one thread: two processes train small models faster
than two threads.

    {"folder": ..., "config": ..., "first": ..., "ablations": [...], "attention": "cross"}
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
from cutaway.course.ablations import apply_ablations
from cutaway.data.prepare import PreparedData, prepare
from cutaway.data.tasks import has_split, load_split
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import CutawayError, Diverged, Interrupted
from cutaway.explore.trace import trace_translation
from cutaway.inference.engines.torch_engine import TorchEngine
from cutaway.inference.pipelines import Translator
from cutaway.inference.training.new_run import Training, with_sizes
from cutaway.inference.training.setup import start_training
from cutaway.metrics.scores import exact_match
from cutaway.models.build import build_model
from cutaway.models.weights import weights_to_bytes
from cutaway.nn.embedding import TokenEmbedding
from cutaway.runs import RunFolder
from cutaway.runs.files import write_bytes, write_json, write_text
from cutaway.runs.weights import seal_weights
from cutaway.system.processes import lines_from_parent
from cutaway.train.observers import Observer, StepReport, TrainerView

MAX_DECODED = 500  # held-out texts to decode for each trained translator
MAX_SAMPLES = 6  # of them are printed on the page
REPORT_SECONDS = 0.5

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class TrialJob:
    """One training: configuration, run folder, and initial weights."""

    folder: str
    config: Config
    first: Config  # of the baseline variant: parameters of equal name and shape start with its weights
    ablations: tuple[str, ...] = ()
    attention: str = "none"  # "none": no trace

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> TrialJob:
        table = json.loads(line)
        config, first = (Config.from_json(json.dumps(table[name])) for name in ("config", "first"))
        return cls(table["folder"], config, first, tuple(table["ablations"]), table["attention"])


def main() -> None:
    torch.set_num_threads(1)
    messages, sys.stdout = sys.stdout, sys.stderr  # other output must not mix with the messages

    def report(message: dict[str, Any]) -> None:
        messages.write(json.dumps(message) + "\n")
        messages.flush()

    jobs = lines_from_parent()
    while True:
        try:
            result = run_trial(TrialJob.from_json(jobs.get()), report)
        except Interrupted:
            raise
        except CutawayError as error:
            result = {"failed": str(error)}
        report({"event": "done", "result": result})


def run_trial(job: TrialJob, report: Report) -> dict[str, Any]:
    """Train, measure, and write result.json into the run folder. A diverged training has a result too."""
    run, config = RunFolder(job.folder), job.config
    started, cpu = time.monotonic(), time.process_time()
    prepared = prepare_cached(config.data, config.model.task)
    training = start_training(
        config, run, [StepReporter(report)], prepared, lambda model: prepare_model(model, job, prepared)
    )
    diverged_at = run_training(training)
    curve = read_curve(run)
    result: dict[str, Any] = {
        "diverged_at": diverged_at,
        "parameters": training.parameters,
        "parameters_without_embeddings": count_without_embeddings(training.trainer.model),
        "curve": curve,
        "measures": {},
    }
    if not diverged_at:
        result["measures"] = {name: curve[-1][name] for name in ("cross-entropy", "accuracy")}
        if config.model.task == "translation":
            measure_decoding(result, make_translator(training))
        if job.attention != "none":
            write_text(run.path / "trace.json", trace_heldout(training))
    save_last_weights(run, training.trainer.model, job.ablations)
    result |= {"seconds": time.monotonic() - started, "cpu_seconds": time.process_time() - cpu}
    write_json(run.path / "result.json", result)  # last: its existence marks the run as finished
    return result


@cache
def prepare_cached(data: DataConfig, task: str) -> PreparedData:
    """Prepare the data once per process: all variants share it."""
    return prepare(data, task)


def prepare_model(model: nn.Module, job: TrialJob, prepared: PreparedData) -> None:
    """Apply the ablations, copy the baseline's initial weights where shapes agree, and reset the seed for dropout."""
    apply_ablations(model, job.ablations)
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


def run_training(training: Training) -> int | None:
    """Train to the end. Return the step at which the loss became non-finite, or None."""
    trainer = training.trainer
    with suppress(Diverged):
        trainer.run()
    if unusable := int(trainer.state.skipped_in_a_row):
        return int(trainer.state.step) - unusable + 1
    last = read_curve(trainer.run_folder)[-1:]  # the last update may have made the weights non-finite
    return None if last and last[0]["step"] == trainer.config.steps else int(trainer.state.step)


def read_curve(run: RunFolder) -> list[dict[str, float]]:
    """Return the finite validation results of each step."""
    return [
        {"step": row["step"], "cross-entropy": row["valid_loss"], "accuracy": row["valid_accuracy"]}
        for row in run.read_metrics()
        if "valid_loss" in row and math.isfinite(row["valid_loss"])
    ]


def make_translator(training: Training) -> Translator:
    return Translator(TorchEngine(training.trainer.model), training.tokenizer, training.config)


def load_heldout(config: Config) -> list[Any]:
    """Load the test split, or the validation split if there is none."""
    split = "test" if has_split(config.data, "test") else "valid"
    return list(load_split(config.data, config.model.task, split))[:MAX_DECODED]


def measure_decoding(result: dict[str, Any], translator: Translator) -> None:
    """Decode held-out texts greedily; add exact match, token accuracy and some samples to the result."""
    pairs = load_heldout(translator.config)
    references = [pair.target for pair in pairs]
    longest = max(len(ids) for ids in translator.tokenizer.encode_batch(references))
    decode = with_given(translator.config.decode, max_length=longest + 5)
    written = translator.translate([pair.source for pair in pairs], decode)
    result["measures"]["exact match"] = exact_match(written, references)
    result["measures"]["token accuracy"] = token_accuracy(written, references)
    result["written"] = [
        {"source": pair.source, "reference": pair.target, "written": text}
        for pair, text in zip(pairs[:MAX_SAMPLES], written, strict=False)
    ]


def token_accuracy(written: list[str], references: list[str]) -> float:
    """Return the fraction of words at the right position; missing and extra words count as wrong."""
    right = total = 0
    for text, reference in zip(written, references, strict=True):
        words, wanted = text.split(), reference.split()
        right += sum(a == b for a, b in zip(words, wanted, strict=False))
        total += max(len(words), len(wanted))
    return right / total


def trace_heldout(training: Training) -> str:
    """Trace one held-out sentence of 6 to 8 words, the same for every variant."""
    pairs = load_heldout(training.config)
    chosen = next((pair for pair in pairs if 6 <= len(pair.source.split()) <= 8), pairs[0])
    return trace_translation(make_translator(training), chosen.source, chosen.target).to_json()


def count_without_embeddings(model: nn.Module) -> int:
    """Count the parameters without token embeddings, as scaling laws do (Kaplan et al. 2020)."""
    tables = {id(p) for part in model.modules() if isinstance(part, TokenEmbedding) for p in part.parameters()}
    return sum(p.numel() for p in model.parameters() if id(p) not in tables)


def save_last_weights(run: RunFolder, model: nn.Module, ablations: tuple[str, ...]) -> None:
    """Save the measured weights and delete the checkpoints: a finished training is not resumed.

    After an ablation the weights do not fit the model in config.json. A different file name keeps other commands from
    loading them.
    """
    shutil.rmtree(run.checkpoints, ignore_errors=True)
    for left_over in (run.weights, run.path / "latest", run.path / "best"):
        left_over.unlink(missing_ok=True)
    write_bytes(run.path / "operated.safetensors" if ablations else run.weights, seal_weights(weights_to_bytes(model)))


class StepReporter(Observer):
    """Reports the current step at most every REPORT_SECONDS."""

    def __init__(self, report: Report):
        self.report, self.last = report, 0.0

    def on_step(self, trainer: TrainerView, report: StepReport) -> None:
        if time.monotonic() - self.last > REPORT_SECONDS:
            self.last = time.monotonic()
            self.report({"event": "step", "step": report.step, "steps": trainer.config.steps, "loss": report.nll})


if __name__ == "__main__":
    try:
        main()
    except (KeyboardInterrupt, Interrupted, BrokenPipeError):  # the parent ended, or Ctrl-C
        os._exit(130)
