"""Train with the NumPy twin, into a run folder that every engine can load. No torch here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from cutaway.config import Config
from cutaway.data.prepare import PreparedData
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError
from cutaway.inference.engines.numpy_engine import weights_to_bytes
from cutaway.inference.training.new_run import Training, start_folder, with_sizes
from cutaway.runs import RunFolder
from cutaway.runs.files import write_bytes
from cutaway.runs.weights import seal_weights
from cutaway.train.loop import Loop
from cutaway.train.observers import Observer, StepReport, ValidationResult
from cutaway.twin.batch import BATCHES, Batch, batches
from cutaway.twin.build import build_model, check_model_config
from cutaway.twin.modules import xavier
from cutaway.twin.train import check_train_config, measure, train


def start_training(config: Config, run: RunFolder, observers: Iterable[Observer], prepared: PreparedData) -> Training:
    """Start a new run with the twin. setup.py has the same function for PyTorch."""
    trainer = NumpyTrainer(config, run, prepared, observers)
    start_folder(run, trainer.full_config, prepared)
    return Training(
        trainer=trainer,
        config=trainer.full_config,
        tokenizer=trainer.tokenizer,
        examples=len(prepared.train),
        left_out=prepared.left_out,
        cut=prepared.cut,
        parameters=sum(p.value.size for p in trainer.model.parameters().values()),
        place="in NumPy",
    )


class NumpyTrainer(Loop):
    """The twin's training loop, with validation and saved weights. It saves no checkpoints, so it cannot be resumed."""

    can_resume = False

    def __init__(self, config: Config, run: RunFolder, prepared: PreparedData, observers: Iterable[Observer] = ()):
        check_numpy_support(config)
        super().__init__(config.train, run, observers, can_validate=bool(prepared.valid))
        self.tokenizer = Tokenizer.from_json(prepared.tokenizer, prepared.roles)
        self.full_config, self.prepared = with_sizes(config, self.tokenizer, []), prepared
        self.model = build_model(self.full_config.model)
        xavier(self.model, np.random.default_rng(config.train.seed))
        self.model.to("float32")
        self.steps = train(self.model, self.make_batches(prepared.train, config.train.seed), config.train)

    def make_batches(self, examples: Sequence[Any], seed: int, epochs: int | None = None) -> Iterator[Batch]:
        task, budget = self.full_config.model.task, self.full_config.data.batch_tokens
        return batches(examples, task, self.tokenizer.bos, self.tokenizer.eos, budget, seed, epochs)

    def next_step(self) -> StepReport:
        report = StepReport(**next(self.steps)._asdict())
        self.state.step = report.step
        self.state.tokens += report.tokens
        return report

    def validate(self) -> ValidationResult:
        return ValidationResult(*measure(self.model, self.make_batches(self.prepared.valid, seed=0, epochs=1)))

    def save(self) -> None:
        if self.is_best or not self.state.best_step:  # before the first validation, save the latest weights
            write_bytes(self.run_folder.weights, seal_weights(weights_to_bytes(self.model)))

    def save_snapshot(self) -> None:
        write_bytes(self.run_folder.snapshot(self.state.step), seal_weights(weights_to_bytes(self.model)))


def check_numpy_support(config: Config) -> None:
    """Raise an error for a recipe that the twin cannot train."""
    if config.model.task not in BATCHES:
        raise ConfigError(
            f"engine 'numpy' trains for {' and '.join(BATCHES).replace('_', ' ')}; this recipe is for "
            f"{config.model.task.replace('_', ' ')}. Use engine 'torch'."
        )
    if config.finetune.base:
        raise ConfigError(
            f"engine 'numpy' cannot fine-tune; finetune.base is {config.finetune.base!r}. Use engine 'torch'."
        )
    if config.model.init != "xavier":
        raise ConfigError(
            f"engine 'numpy' supports model.init = 'xavier', not {config.model.init!r}. Use engine 'torch'."
        )
    check_model_config(config.model)
    check_train_config(config.train)
