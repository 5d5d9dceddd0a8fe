"""[train]: how the weights are found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cutaway.config.checks import check_types, refuse_unread, require
from cutaway.errors import ConfigError

BUDGETS = ("steps", "epochs", "tokens", "minutes")


@dataclass(frozen=True)
class TrainConfig:
    """How the weights are found."""

    # How long: one of these. What is not 0 counts; if all others are 0, `steps` does.
    steps: int = 100_000
    epochs: float = 0.0  # times that every training example is seen
    tokens: int = 0  # answers asked for: target tokens, labels, tags
    minutes: float = 0.0  # of training; what comes out then depends on the machine
    patience: int = 0  # stop after so many validations without a better one; 0: never

    seed: int = 1
    device: str = "auto"  # "auto": CUDA if there is one, else the CPU
    precision: Literal["auto", "float32", "float64", "bfloat16", "float16"] = "auto"  # of the matrix products
    compile: Literal["auto", "yes", "no"] = "auto"  # torch.compile; "auto": on GPUs
    processes: int = 0  # to train with on this machine's CPU; 0: one a core, if the batches are large enough
    # Several processes: whole models (DDP), or shares of one (FSDP2). "auto": whole ones, which on the cores of one
    # machine meet in memory that they share
    parallel: Literal["auto", "replicas", "shards"] = "auto"
    micro_batches: int = 1  # parts that a batch is computed in, one after the other, to save memory: the same result

    label_smoothing: float = 0.1
    balance_loss: float = 0.01  # with model.experts: how much an uneven load of the experts counts
    optimizer: Literal["adam", "adamw", "muon"] = "adam"
    weight_decay: float = 0.01  # adamw, muon: how much of each matrix is taken off a step, times the learning rate
    momentum: float = 0.95  # muon
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-9
    schedule: Literal["noam", "inverse_sqrt", "cosine", "wsd", "constant"] = "noam"
    lr: float = 1.0  # noam: a factor on the paper's schedule; constant: the learning rate itself; else its peak
    lr_end: float = 0.0  # cosine, wsd: the share of it that is left at the end
    warmup: int = 4_000  # steps
    decay: float = 0.2  # wsd: the share of the training during which it falls
    clip_norm: float = 1.0  # 0: no clipping
    ema: float = 0.0  # above 0: weights are kept that follow the trained ones slowly, by 1 - ema a step; they are used
    average: int = 0  # above 0: at the end, the mean of the last so many checkpoints is kept

    log_every: int = 50
    valid_every: int = 1_000
    best_by: Literal["loss", "accuracy", "bleu"] = "loss"  # by which validation chooses the weights that are kept
    samples: int = 3  # texts written at each validation, to look at
    save_every: int = 1_000
    keep: int = 3  # checkpoints to keep, the best one beside them
    snapshots: int = 0  # weights only, spread evenly over the run, to look at how it learned

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("steps", "log_every", "valid_every", "save_every", "keep", "micro_batches"):
            require(getattr(self, name) >= 1, self, name, "must be at least 1")
        not_negative = ("epochs", "tokens", "minutes", "patience", "weight_decay", "warmup", "clip_norm")
        for name in (*not_negative, "balance_loss", "snapshots", "seed", "average", "samples", "processes"):
            require(getattr(self, name) >= 0, self, name, "must not be negative")
        for name in ("label_smoothing", "beta1", "beta2", "momentum", "ema"):
            require(0 <= getattr(self, name) < 1, self, name, "must be at least 0 and below 1")
        for name in ("lr_end", "decay"):
            require(0 <= getattr(self, name) <= 1, self, name, "must be between 0 and 1")
        require(self.lr > 0, self, "lr", "must be positive")
        require(self.epsilon > 0, self, "epsilon", "must be positive")
        check_budget(self)
        check_optimizer(self)
        check_schedule(self)

    @property
    def budget(self) -> str:
        """What says how long the training is: the name of a setting."""
        return next((name for name in BUDGETS[1:] if getattr(self, name)), "steps")


def check_budget(c: TrainConfig) -> None:
    given = [name for name in BUDGETS[1:] if getattr(c, name)]
    if len(given) > 1:
        shown = " and ".join(f"train.{name} = {getattr(c, name)}" for name in given)
        raise ConfigError(f"{shown} are both given; one thing says how long a training is. Remove the others.")
    if given:
        refuse_unread(c, ("steps",), f"train.{given[0]} = {getattr(c, given[0])} says how long the training is")
    if c.ema and c.average:
        raise ConfigError(
            f"train.ema = {c.ema} and train.average = {c.average} are two ways to the same end, a mean over steps. "
            "Choose one."
        )
    if c.average > c.keep:
        raise ConfigError(
            f"train.average = {c.average} needs as many checkpoints, and train.keep = {c.keep} are kept. Raise keep."
        )


def check_optimizer(c: TrainConfig) -> None:
    if c.optimizer == "adam":
        refuse_unread(c, ("weight_decay",), "train.optimizer = 'adam' has none; use 'adamw'")
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
        refuse_unread(c, ("lr_end",), f"train.schedule = {c.schedule!r} does not look at it")
    if c.schedule != "wsd":
        refuse_unread(c, ("decay",), f"train.schedule = {c.schedule!r} does not look at it")
    if c.schedule != "noam" and c.lr >= 0.1:
        raise ConfigError(
            f"train.schedule = {c.schedule!r} takes train.lr = {c.lr} as the learning rate itself, and Adam "
            "diverges at such a rate. Set lr to about 1e-3, or schedule = 'noam', where lr is a factor."
        )
