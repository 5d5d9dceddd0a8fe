"""[train]: how a model is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cutaway.config.checks import check_types, refuse_unread, require
from cutaway.errors import ConfigError

BUDGETS = ("steps", "epochs", "tokens", "minutes")


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained."""

    steps: int = 100_000  # The number of updates; epochs, tokens or minutes replace it if they are not 0.
    epochs: float = 0.0  # The number of passes over the training data.
    tokens: int = 0  # The number of predictions to train on: target tokens, labels, tags.
    minutes: float = 0.0  # The training time; the result then depends on the machine.
    patience: int = 0  # Stop after this number of validations without improvement; 0: never.

    seed: int = 1  # The seed of initialisation, data order and dropout.
    device: str = "auto"  # The device: "cpu", "cuda" or "mps" (Apple); "auto": CUDA, else MPS, else the CPU.
    # The number format of matrix products; "auto": bfloat16 or float16 on CUDA, float32 elsewhere; MPS has no float64.
    precision: Literal["auto", "float32", "float64", "bfloat16", "float16"] = "auto"
    compile: Literal["auto", "yes", "no"] = "auto"  # Use torch.compile; "auto": on CUDA only.
    processes: int = 0  # The number of CPU processes; 0: one for each core, if batches are large enough.
    # Data parallelism: a whole model per process (DDP) or a shard (FSDP2); "auto": DDP, on CPUs in shared memory.
    parallel: Literal["auto", "ddp", "fsdp"] = "auto"
    micro_batches: int = 1  # Compute each batch in this number of parts to save memory; the result is the same.

    label_smoothing: float = 0.1  # The share of the target probability that is spread over all tokens.
    balance_loss: float = 0.01  # The weight of the loss for uneven load of experts (model.experts).
    optimizer: Literal["adam", "adamw", "muon"] = "adam"  # The optimizer.
    weight_decay: float = 0.01  # adamw, muon: the weight decay of matrices, multiplied by the learning rate.
    momentum: float = 0.95  # muon: the momentum.
    beta1: float = 0.9  # Adam's decay rate of the mean gradient.
    beta2: float = 0.98  # Adam's decay rate of the mean squared gradient.
    epsilon: float = 1e-9  # Adam's constant in the denominator.
    # The learning-rate schedule.
    schedule: Literal["noam", "inverse_sqrt", "cosine", "wsd", "constant"] = "noam"
    lr: float = 1.0  # The peak learning rate; noam: a factor on the paper's schedule.
    lr_end: float = 0.0  # cosine, wsd: the final learning rate as a fraction of the peak.
    warmup: int = 4_000  # The steps in which the learning rate rises.
    decay_fraction: float = 0.2  # wsd: the fraction of the training in which the learning rate falls.
    clip_norm: float = 1.0  # The largest gradient norm; 0: no clipping.
    ema: float = 0.0  # Above 0: save an exponential moving average of the weights with this decay.
    average_checkpoints: int = 0  # Above 0: at the end, save the mean of this number of last checkpoints.

    log_every: int = 50  # Steps between two lines of metrics.jsonl.
    valid_every: int = 1_000  # Steps between two validations.
    best_by: Literal["loss", "accuracy", "bleu"] = "loss"  # The validation score that selects the best weights.
    samples: int = 3  # The number of texts generated at each validation.
    save_every: int = 1_000  # Steps between two checkpoints.
    keep_checkpoints: int = 3  # The number of last checkpoints to keep, in addition to the best one.
    snapshots: int = 0  # The number of weight files saved, denser at the start, to show how the model learned.

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("steps", "log_every", "valid_every", "save_every", "keep_checkpoints", "micro_batches"):
            require(getattr(self, name) >= 1, self, name, "must be at least 1")
        not_negative = ("epochs", "tokens", "minutes", "patience", "weight_decay", "warmup", "clip_norm")
        for name in (*not_negative, "balance_loss", "snapshots", "seed", "average_checkpoints", "samples", "processes"):
            require(getattr(self, name) >= 0, self, name, "must not be negative")
        for name in ("label_smoothing", "beta1", "beta2", "momentum", "ema"):
            require(0 <= getattr(self, name) < 1, self, name, "must be at least 0 and below 1")
        for name in ("lr_end", "decay_fraction"):
            require(0 <= getattr(self, name) <= 1, self, name, "must be between 0 and 1")
        require(self.lr > 0, self, "lr", "must be positive")
        require(self.epsilon > 0, self, "epsilon", "must be positive")
        check_budget(self)
        check_optimizer(self)
        check_schedule(self)

    @property
    def budget(self) -> str:
        """The name of the setting that limits the training."""
        return next((name for name in BUDGETS[1:] if getattr(self, name)), "steps")


def check_budget(c: TrainConfig) -> None:
    given = [name for name in BUDGETS[1:] if getattr(c, name)]
    if len(given) > 1:
        shown = " and ".join(f"train.{name} = {getattr(c, name)}" for name in given)
        raise ConfigError(f"{shown} are both given; a training has one budget. Remove the others.")
    if given:
        refuse_unread(c, ("steps",), f"train.{given[0]} = {getattr(c, given[0])} sets the length of the training")
    if c.ema and c.average_checkpoints:
        raise ConfigError(
            f"train.ema = {c.ema} and train.average_checkpoints = {c.average_checkpoints} both average weights over "
            "steps. Choose one."
        )
    if c.average_checkpoints > c.keep_checkpoints:
        raise ConfigError(
            f"train.average_checkpoints = {c.average_checkpoints} is above train.keep_checkpoints = "
            f"{c.keep_checkpoints}. Raise keep_checkpoints."
        )


def check_optimizer(c: TrainConfig) -> None:
    if c.optimizer == "adam":
        refuse_unread(c, ("weight_decay",), "train.optimizer = 'adam' has no weight decay; use 'adamw'")
    if c.optimizer != "muon":
        refuse_unread(c, ("momentum",), f"train.optimizer = {c.optimizer!r} has beta1 instead")


def check_schedule(c: TrainConfig) -> None:
    if c.schedule == "noam" and c.warmup < 1:
        raise ConfigError(
            f"train.schedule = 'noam' divides by train.warmup, which is {c.warmup}. "
            "Set warmup to at least 1, or schedule = 'constant'."
        )
    if c.schedule == "constant":
        refuse_unread(c, ("warmup",), "train.schedule = 'constant' has no warmup")
    if c.schedule not in ("cosine", "wsd"):
        refuse_unread(c, ("lr_end",), f"train.schedule = {c.schedule!r} does not use it")
    if c.schedule != "wsd":
        refuse_unread(c, ("decay_fraction",), f"train.schedule = {c.schedule!r} does not use it")
    if c.schedule != "noam" and c.lr >= 0.1:
        raise ConfigError(
            f"train.schedule = {c.schedule!r} uses train.lr = {c.lr} as the learning rate itself, and Adam "
            "diverges at this rate. Set lr to about 1e-3, or schedule = 'noam', where lr is a factor."
        )
