"""The run that a fine-tuning begins with: found, and known again by the checksum of its weights. No torch here.

base/model.safetensors          tuned/adapter.safetensors
    sha256: 1f0a...    ◀─────       base: 1f0a...            an adapter means nothing on other weights
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cutaway.config import Config, FinetuneConfig
from cutaway.errors import RunError
from cutaway.runs import RunFolder
from cutaway.runs.recipe import base_folders, find_base, is_run, read_base, refuse_other_model
from cutaway.runs.weights import Shapes, identity_of, metadata_of, shapes_of

SHOWN = 12  # letters of a checksum that people compare


@dataclass(frozen=True)
class Base:
    """A trained run, its configuration and the checksum of its weights."""

    run: RunFolder
    config: Config
    identity: str

    def read(self) -> bytes:
        """Its weights, if they are still those that it was opened with."""
        content = self.run.read_weights()
        if identity_of(self.run.weights) != self.identity:
            raise RunError(f"the weights of the base {self.run} have just been replaced by others. Begin again.")
        return content


def opened(folder: Path) -> Base:
    run, config = RunFolder(folder), read_base(folder)
    return Base(run, config, identity_of(run.require().weights))


def open_base(config: Config, run: RunFolder) -> Base:
    """The run that a recipe begins with, if its model is one that this recipe can go on with."""
    base = opened(find_base(config.finetune.base, run.path))
    if config.finetune.is_adapter and base.run.is_being_trained:
        raise RunError(
            f"the base {base.run} is being trained right now: an adapter for its weights of this moment would fit no "
            "others. Wait until it is done."
        )
    refuse_other_model(vars(config.model), vars(base.config.model), config.finetune.base)
    return base


def base_of(adapter: Path, finetune: FinetuneConfig, run: RunFolder) -> Base:
    """The base that an adapter was made for: where the recipe said, in runs/, or beside the adapter's own run."""
    wanted = metadata_of(adapter).get("base", "")
    found = [folder for folder in base_folders(finetune.base, run.path) if is_run(folder)]
    for folder in found:
        if (base := opened(folder)).identity == wanted:
            return base
    if not found:
        raise RunError(
            f"{run} is an adapter for {finetune.base!r}, and there is no such run, neither here nor beside it. "
            f"Put the base into {run.path.parent / Path(finetune.base).name}."
        )
    raise RunError(
        f"{adapter} was made for a base whose weights have the checksum {wanted[:SHOWN]}; those of {found[0]} have "
        f"{identity_of(RunFolder(found[0]).weights)[:SHOWN]}. An adapter means nothing on other weights: restore that "
        "base, or fine-tune again from this one."
    )


def shapes_of_model(run: RunFolder, config: Config, weights: Path) -> Shapes:
    """The tensors that a model is loaded from: its own, and of an adapter those of its base."""
    if not config.finetune.is_adapter:
        return shapes_of(weights)
    return {**shapes_of(base_of(weights, config.finetune, run).run.weights), **shapes_of(weights)}


def has_new_head(config: Config, labels: list[str], base: Base) -> bool:
    """Whether the model answers something that its base could not: its head then begins anew."""
    model, before = config.model, base.config.model
    return (model.head, model.pooling) != (before.head, before.pooling) or labels != base.run.read_labels()


def about_adapter(base: Base, method: str, new_head: bool, parameters: int) -> dict[str, str]:
    """What stands in the header of an adapter's file: enough to know what it needs."""
    head = "new" if new_head else "base"
    return {"base": base.identity, "method": method, "head": head, "parameters": str(parameters)}
