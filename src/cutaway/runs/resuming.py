"""What must be as it was for a stopped training to go on. No torch here.

A resumed training ends with the weights that it would have had without the stop, to the bit. So whatever the steps so
far have followed from must be the same: settings, data, vocabulary, and of an adapter the weights of its base.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from typing import Any

from cutaway.config import Config
from cutaway.data.prepared import PreparedData
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError, RunError
from cutaway.runs import RunFolder
from cutaway.runs.files import read_json

# What may differ between a run and its resumption without changing what has been computed so far.
BUDGETS = {"train.steps", "train.epochs", "train.tokens", "train.minutes", "train.patience"}
MAY_CHANGE = BUDGETS | {"train.device", "train.log_every", "train.valid_every", "train.save_every", "data.root"}
MAY_CHANGE |= {"train.keep_checkpoints", "train.snapshots", "train.samples", "train.micro_batches", "train.compile"}
MAY_CHANGE |= {"train.processes", "train.parallel"}

# table -> why nothing else of it may change
WHY = {
    "model": "the saved weights are those of the former model",
    "data": "the steps so far read the data in the former way",
    "train": "the steps so far were done with the former",
    "finetune": "what has been learned so far began with the former",
}
ANOTHER_FOLDER = "To begin anew: another folder with --run, or --overwrite instead of --resume."


def check_resumable(config: Config, run: RunFolder) -> Config:
    """Refuse what can be refused before the data is prepared. -> the configuration that the run was started with"""
    saved = run.require_started().read_config()
    require_checkpoint(run)
    refuse_differences(saved, config, run)
    return saved


def require_checkpoint(run: RunFolder) -> None:
    if run.saved():
        return
    every = run.read_config().train.save_every
    use = f" To train on with its weights, fine-tune it: finetune.base = {str(run)!r}." if run.weights.is_file() else ""
    raise RunError(
        f"there is no checkpoint to resume from in {str(run)!r}. The training stopped before the first one "
        f"(train.save_every = {every} steps), or the run was imported, merged or trained by engine 'numpy', which keep "
        f"none.{use} {ANOTHER_FOLDER}"
    )


def refuse_differences(saved: Config, given: Config, run: RunFolder) -> None:
    """Settings that the steps so far have followed from, each with both values and the reason."""
    before, now = flat(saved), flat(given)
    for size in ("model.vocab_size", "model.n_classes"):
        now[size] = now[size] or before[size]
    before["data.too_long"], now["data.too_long"] = long_texts_of(saved, run), given.long_texts
    knows_its_end = saved.train.schedule in ("cosine", "wsd")
    may_change = MAY_CHANGE - BUDGETS if knows_its_end else MAY_CHANGE
    if saved.finetune.is_adapter:
        may_change = may_change | {"finetune.base"}  # wherever it is now: it is known by the checksum of its weights
    differing = [
        key for key in before if before[key] != now[key] and key not in may_change and not key.startswith("decode.")
    ]
    if not differing:
        return
    of_the_end = f"train.schedule = {saved.train.schedule!r} has followed from the former end of the training"
    reasons = {key: of_the_end if key in BUDGETS else WHY[key.partition(".")[0]] for key in differing}
    listed = [f"  {key} was {toml(before[key])}, now {toml(now[key])}: {reasons[key]}" for key in differing]
    back = " ".join(f"--set {shlex.quote(f'{key}={toml(before[key])}')}" for key in differing)
    raise ConfigError(
        "\n".join(
            [
                f"the recipe is not the one that {str(run)!r} was started with:",
                *listed,
                f"To resume, set {'it' if len(differing) == 1 else 'them'} back: {back}",
                ANOTHER_FOLDER,
            ]
        )
    )


def long_texts_of(saved: Config, run: RunFolder) -> str:
    """What the training has done with long texts. Before there was a setting for it, they were left out."""
    knows_it = "too_long" in read_json(run.config)["data"]
    return saved.long_texts if knows_it or saved.long_texts != "cut" else "skip"


def refuse_other_data(run: RunFolder, prepared: PreparedData) -> None:
    record = run.read_data()
    if record.get("fingerprint") == prepared.fingerprint:
        return
    then, now = record.get("examples"), prepared.examples
    counts = f"{then} examples then, {now} now" if then != now else f"{now} examples, as then, but other ones"
    raise RunError(
        f"the training data is not what {str(run)!r} was started with: {counts}. The steps so far were done on the "
        f"former, and the place where they stopped means nothing in the latter. Restore it to resume. {ANOTHER_FOLDER}"
    )


def refuse_other_vocabulary(run: RunFolder, saved: Config, prepared: PreparedData) -> None:
    """A tokenizer.json that was replaced. (Runs since version 0.2 have a checksum of it, which says so before.)"""
    if not prepared.tokenizer:
        return
    there, rows = Tokenizer.from_json(prepared.tokenizer, prepared.roles).vocab_size, saved.model.vocab_size
    if there > rows or (there < rows and saved.data.tokenizer != "file"):  # a model from elsewhere may have unused rows
        raise RunError(
            f"{run.tokenizer} has {there} tokens, and the saved embeddings have {rows} rows, one for each token that "
            f"{str(run)!r} was started with. It was replaced since: restore it to resume. {ANOTHER_FOLDER}"
        )


def flat(config: Config) -> dict[str, Any]:
    return {f"{table}.{key}": v for table, values in dataclasses.asdict(config).items() for key, v in values.items()}


def toml(value: Any) -> str:
    """A value as a recipe, or --set, has it."""
    return json.dumps(value, ensure_ascii=False)
