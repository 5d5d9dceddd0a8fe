"""Which weights of a model are trained: all that are not frozen, or an adapter while the base stays fixed.

full      all weights, except those that `freeze` matches
lora      two low-rank matrices for each linear map that `target_modules` matches    finetune/lora.py
prefix    keys and values before those of the text, in each attention                finetune/prefix.py
prompt    vectors before the embedded text                                           finetune/prompt.py
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
from cutaway.runs.base import Base, adapter_metadata, find_adapter_base, has_new_head
from cutaway.runs.weights import read_metadata

# method -> a function that adds the adapter to a model and returns the names of the changed modules
METHODS: dict[str, Callable[[nn.Module, FinetuneConfig], list[str]]] = {
    "lora": add_lora,
    "prefix": add_prefix,
    "prompt": add_prompt,
}


@dataclass(frozen=True)
class TrainableShare:
    """How many parameters of a model are trained."""

    trained: int
    total: int
    how: str

    def __str__(self) -> str:
        return f"{self.trained:,} of {self.total:,} parameters ({100 * self.trained / self.total:.2f} %): {self.how}"


def adapt(model: nn.Module, finetune: FinetuneConfig, new_head: bool = False) -> TrainableShare:
    """Add an adapter to `model` and freeze all other weights. With method "full", freeze what `freeze` matches.

    A new head is always trained, because the base has no weights for it.
    """
    how = (
        add_adapter(model, finetune, new_head) if finetune.is_adapter else freeze_parameters(model, finetune, new_head)
    )
    share = TrainableShare(count(trainable_parameters(model).values()), count(model.parameters()), how)
    if not share.trained:
        raise ConfigError(f"finetune.freeze = {list(finetune.freeze)} freezes all weights. Match fewer of them.")
    return share


def freeze_parameters(model: nn.Module, finetune: FinetuneConfig, new_head: bool) -> str:
    weights = dict(model.named_parameters())
    frozen = match_names(finetune.freeze, weights, "finetune.freeze")
    if new_head and (random := [name for name in frozen if name.startswith("head.")]):
        raise ConfigError(
            f"finetune.freeze = {list(finetune.freeze)} freezes {random[0]}, which is new and would keep its random "
            "values. Exclude the head."
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
    changed = METHODS[finetune.method](model, finetune)
    how = f"{finetune.method} on {len(changed)} {'module' if len(changed) == 1 else 'modules'}"
    return how + (" and a new head" if new_head else f" and {len(also)} weights" if also else "")


def count(weights: Iterable[nn.Parameter]) -> int:
    return sum(weight.numel() for weight in weights)


def init_from_base(
    model: nn.Module, base: Base, config: Config, labels: list[str]
) -> tuple[TrainableShare, dict[str, str] | None]:
    """Load the weights of a base into a new model and adapt it. The second result is the metadata of an adapter."""
    new_head = has_new_head(config, labels, base)
    load_base(model, base, new_head)
    share = adapt(model, config.finetune, new_head)
    about = adapter_metadata(base, config.finetune.method, new_head, share.total)
    return share, about if config.finetune.is_adapter else None


def load_base(model: nn.Module, base: Base, new_head: bool) -> None:
    """Load the weights of the base, without its head if the model has a new one."""
    into: dict[str, Tensor] = {**dict(model.named_parameters())}
    saved = safetensors.torch.load(base.read())
    if new_head:
        into, saved = drop_head(into), drop_head(saved)
    copy_tensors(into, saved, str(base.run.weights))


def drop_head(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if not name.startswith("head.")}


def load_with_adapter(model: nn.Module, finetune: FinetuneConfig, weights: Path, run: RunFolder) -> None:
    """Load the base into a new model, add the adapter, and load its trained weights."""
    saved, about = safetensors.torch.load(run.read_weights(weights)), read_metadata(weights)
    new_head = about.get("head") == "new"
    load_base(model, find_adapter_base(weights, finetune, run), new_head)
    adapt(model, finetune, new_head)
    copy_tensors(dict(trainable_parameters(model)), saved, str(weights))
