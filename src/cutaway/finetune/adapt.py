"""What of a model is trained: all but what is frozen, or an adapter beside a base that stays as it is.

full      the weights themselves, but for those that `freeze` names
lora      thin matrices beside the linear maps that `parts` names        finetune/lora.py
prefix    keys and values before those of the text, in each attention    finetune/prefix.py
prompt    vectors before the embedded text                               finetune/prompt.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
from torch import Tensor, nn

from cutaway.config import Config, FinetuneConfig
from cutaway.errors import ConfigError
from cutaway.finetune.lora import add_lora
from cutaway.finetune.patterns import match_names
from cutaway.finetune.prefix import add_prefix
from cutaway.finetune.prompt import add_prompt
from cutaway.models.weights import copy_tensors, trainable_parameters
from cutaway.runs import RunFolder
from cutaway.runs.base import Base, about_adapter, base_of, has_new_head
from cutaway.runs.weights import metadata_of

# method -> what puts it into a model and says which parts have it
METHODS: dict[str, Callable[[nn.Module, FinetuneConfig], list[str]]] = {
    "lora": add_lora,
    "prefix": add_prefix,
    "prompt": add_prompt,
}


@dataclass(frozen=True)
class TrainableShare:
    """How much of a model is trained."""

    trained: int
    total: int
    how: str

    def __str__(self) -> str:
        return f"{self.trained:,} of {self.total:,} parameters ({100 * self.trained / self.total:.2f} %): {self.how}"


def adapt(model: nn.Module, finetune: FinetuneConfig, new_head: bool = False) -> TrainableShare:
    """Put an adapter into `model` and freeze the rest of it; with method "full", freeze what is to be frozen.

    A head that is new is trained in any case: a base has nothing for it.
    """
    how = (
        add_adapter(model, finetune, new_head) if finetune.is_adapter else freeze_parameters(model, finetune, new_head)
    )
    share = TrainableShare(count(trainable_parameters(model).values()), count(model.parameters()), how)
    if not share.trained:
        raise ConfigError(f"finetune.freeze = {list(finetune.freeze)} leaves nothing to train. Name less.")
    return share


def freeze_parameters(model: nn.Module, finetune: FinetuneConfig, new_head: bool) -> str:
    weights = dict(model.named_parameters())
    frozen = match_names(finetune.freeze, weights, "finetune.freeze")
    if new_head and (random := [name for name in frozen if name.startswith("head.")]):
        raise ConfigError(
            f"finetune.freeze = {list(finetune.freeze)} would freeze {random[0]}, which is new: the base has nothing "
            "for it, and it would stay as chance made it. Name less."
        )
    for name in frozen:
        weights[name].requires_grad_(False)
    how = f"all but {len(frozen)} of {len(weights)} weights" if frozen else "all"
    return how + (", with a new head" if new_head else "")


def add_adapter(model: nn.Module, finetune: FinetuneConfig, new_head: bool) -> str:
    weights = dict(model.named_parameters())
    also = {*match_names(finetune.also_train, weights, "finetune.also_train")}
    also |= {name for name in weights if new_head and name.startswith("head.")}
    for name, weight in weights.items():
        weight.requires_grad_(name in also)
    parts = METHODS[finetune.method](model, finetune)
    how = f"{finetune.method} on {len(parts)} {'part' if len(parts) == 1 else 'parts'}"
    return how + (" and a new head" if new_head else f" and {len(also)} weights" if also else "")


def count(weights: Iterable[nn.Parameter]) -> int:
    return sum(weight.numel() for weight in weights)


def init_from_base(
    model: nn.Module, base: Base, config: Config, labels: list[str]
) -> tuple[TrainableShare, dict[str, str] | None]:
    """Put the weights of a base into a new model, and say what of it is trained; of an adapter also what it is for."""
    new_head = has_new_head(config, labels, base)
    load_base(model, base, new_head)
    share = adapt(model, config.finetune, new_head)
    about = about_adapter(base, config.finetune.method, new_head, share.total)
    return share, about if config.finetune.is_adapter else None


def load_base(model: nn.Module, base: Base, new_head: bool) -> None:
    """All of it; but not the head, if the model has another one."""
    into: dict[str, Tensor] = {**dict(model.named_parameters())}
    saved = safetensors.torch.load(base.read())
    if new_head:
        into, saved = without_head(into), without_head(saved)
    copy_tensors(into, saved, str(base.run.weights))


def without_head(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if not name.startswith("head.")}


def load_with_adapter(model: nn.Module, finetune: FinetuneConfig, weights: Path, run: RunFolder) -> None:
    """Into a new model: the weights of the base, the adapter beside them, and what that has learned."""
    saved, about = safetensors.torch.load(run.read_weights(weights)), metadata_of(weights)
    new_head = about.get("head") == "new"
    load_base(model, base_of(weights, finetune, run), new_head)
    adapt(model, finetune, new_head)
    copy_tensors(dict(trainable_parameters(model)), saved, str(weights))
