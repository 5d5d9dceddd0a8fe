"""The base run of a fine-tuning, identified by the checksum of its weights. No torch here.

base/model.safetensors          tuned/adapter.safetensors
    sha256: 1f0a...    ◀─────       base: 1f0a...            an adapter is useless with other weights
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cutaway.config import Config, FinetuneConfig
from cutaway.errors import RunError
from cutaway.runs import RunFolder
from cutaway.runs.recipe import base_folders, find_base, is_run, read_base, refuse_other_model
from cutaway.runs.weights import Shapes, read_metadata, read_shapes, weights_checksum

SHOWN = 12  # characters of a checksum in a message


@dataclass(frozen=True)
class Base:
    """A trained run, its configuration and the checksum of its weights."""

    run: RunFolder
    config: Config
    checksum: str

    def read(self) -> bytes:
        """The bytes of its weights. An error if they have changed since the base was opened."""
        content = self.run.read_weights()
        if weights_checksum(self.run.weights) != self.checksum:
            raise RunError(f"the weights of the base {self.run} were replaced just now. Start again.")
        return content


def open_folder(folder: Path) -> Base:
    run, config = RunFolder(folder), read_base(folder)
    return Base(run, config, weights_checksum(run.require().weights))


def open_base(config: Config, run: RunFolder) -> Base:
    """Open the base of a recipe. An error if its model does not fit the recipe."""
    base = open_folder(find_base(config.finetune.base, run.path))
    if config.finetune.is_adapter and base.run.is_being_trained:
        raise RunError(
            f"the base {base.run} is being trained, and an adapter fits only the weights that it was trained with. "
            "Wait until the training has finished."
        )
    refuse_other_model(vars(config.model), vars(base.config.model), config.finetune.base)
    return base


def find_adapter_base(adapter: Path, finetune: FinetuneConfig, run: RunFolder) -> Base:
    """Find the base of an adapter: at the path in the recipe, in runs/, or in the folder that contains its run."""
    wanted = read_metadata(adapter).get("base", "")
    found = [folder for folder in base_folders(finetune.base, run.path) if is_run(folder)]
    for folder in found:
        if (base := open_folder(folder)).checksum == wanted:
            return base
    if not found:
        raise RunError(
            f"{run} is an adapter for the run {finetune.base!r}, which was not found. "
            f"Put it into {run.path.parent / Path(finetune.base).name}."
        )
    raise RunError(
        f"{adapter} belongs to a base whose weights have the checksum {wanted[:SHOWN]}, but the weights of {found[0]} "
        f"have {weights_checksum(RunFolder(found[0]).weights)[:SHOWN]}. An adapter is useless with other weights. "
        "Restore that base, or fine-tune again from this one."
    )


def model_shapes(run: RunFolder, config: Config, weights: Path) -> Shapes:
    """The shapes of all tensors of a model. For an adapter, this includes its base."""
    if not config.finetune.is_adapter:
        return read_shapes(weights)
    return {**read_shapes(find_adapter_base(weights, config.finetune, run).run.weights), **read_shapes(weights)}


def has_new_head(config: Config, labels: list[str], base: Base) -> bool:
    """Whether the model has another head, pooling or labels than its base. Its head then starts at random."""
    model, before = config.model, base.config.model
    return (model.head, model.pooling) != (before.head, before.pooling) or labels != base.run.read_labels()


def adapter_metadata(base: Base, method: str, new_head: bool, parameters: int) -> dict[str, str]:
    """The metadata in the header of an adapter's file."""
    head = "new" if new_head else "base"
    return {"base": base.checksum, "method": method, "head": head, "parameters": str(parameters)}
