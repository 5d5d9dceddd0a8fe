"""Check that a stopped training can be resumed. No torch here.

A resumed training ends with exactly the weights that it would have had without the stop. So everything that the earlier
steps depended on must be the same: settings, data, vocabulary and, for an adapter, the weights of its base.
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

# Settings that may change when a training is resumed: the earlier steps do not depend on them.
BUDGETS = {"train.steps", "train.epochs", "train.tokens", "train.minutes", "train.patience"}
MAY_CHANGE = BUDGETS | {"train.device", "train.log_every", "train.valid_every", "train.save_every", "data.root"}
MAY_CHANGE |= {"train.keep_checkpoints", "train.snapshots", "train.samples", "train.micro_batches", "train.compile"}
MAY_CHANGE |= {"train.processes", "train.parallel"}

# table -> why its other settings must not change
WHY = {
    "model": "the saved weights have the old shape",
    "data": "the earlier steps used the old data",
    "train": "the earlier steps used the old value",
    "finetune": "the earlier steps used the old value",
}
ANOTHER_FOLDER = "To start again, use another folder (--run), or --overwrite instead of --resume."


def check_resumable(config: Config, run: RunFolder) -> Config:
    """The checks that need no data. Return the configuration that the run was started with."""
    saved = run.require_started().read_config()
    require_checkpoint(run)
    refuse_differences(saved, config, run)
    return saved


def require_checkpoint(run: RunFolder) -> None:
    if run.list_checkpoints():
        return
    every = run.read_config().train.save_every
    use = f" To train its weights further, fine-tune it: finetune.base = {str(run)!r}." if run.weights.is_file() else ""
    raise RunError(
        f"there is no checkpoint to resume from in {str(run)!r}. The training stopped before the first one "
        f"(train.save_every = {every} steps), or the run was imported, merged or trained by engine 'numpy', which "
        f"saves none.{use} {ANOTHER_FOLDER}"
    )


def refuse_differences(saved: Config, given: Config, run: RunFolder) -> None:
    """Raise an error that lists the changed settings, each with both values and the reason."""
    before, now = flatten(saved), flatten(given)
    for size in ("model.vocab_size", "model.n_classes"):
        now[size] = now[size] or before[size]
    before["data.too_long"], now["data.too_long"] = saved_long_texts(saved, run), given.long_texts
    uses_length = saved.train.schedule in ("cosine", "wsd")
    may_change = MAY_CHANGE - BUDGETS if uses_length else MAY_CHANGE
    if saved.finetune.is_adapter:
        may_change = may_change | {"finetune.base"}  # it may be in another folder; a checksum identifies it
    differing = [
        key for key in before if before[key] != now[key] and key not in may_change and not key.startswith("decode.")
    ]
    if not differing:
        return
    by_schedule = f"train.schedule = {saved.train.schedule!r} depends on the length of the training"
    reasons = {key: by_schedule if key in BUDGETS else WHY[key.partition(".")[0]] for key in differing}
    listed = [f"  {key} was {toml(before[key])}, now {toml(now[key])}: {reasons[key]}" for key in differing]
    back = " ".join(f"--set {shlex.quote(f'{key}={toml(before[key])}')}" for key in differing)
    raise ConfigError(
        "\n".join(
            [
                f"these settings differ from those that {str(run)!r} was started with:",
                *listed,
                f"To resume, set {'it' if len(differing) == 1 else 'them'} back: {back}",
                ANOTHER_FOLDER,
            ]
        )
    )


def saved_long_texts(saved: Config, run: RunFolder) -> str:
    """How the run handled long texts. Before the setting existed, they were skipped."""
    has_setting = "too_long" in read_json(run.config)["data"]
    return saved.long_texts if has_setting or saved.long_texts != "cut" else "skip"


def refuse_other_data(run: RunFolder, prepared: PreparedData) -> None:
    record = run.read_data()
    if record.get("fingerprint") == prepared.fingerprint:
        return
    before, now = record.get("examples"), prepared.examples
    counts = f"{before} examples before, {now} now" if before != now else f"{now} examples as before, but other ones"
    raise RunError(
        f"the training data differs from the data that {str(run)!r} was started with: {counts}. "
        f"Restore it to resume. {ANOTHER_FOLDER}"
    )


def refuse_other_vocabulary(run: RunFolder, saved: Config, prepared: PreparedData) -> None:
    """Raise an error if tokenizer.json was replaced. (Since version 0.2 its checksum is checked before.)"""
    if not prepared.tokenizer:
        return
    tokens, rows = Tokenizer.from_json(prepared.tokenizer, prepared.roles).vocab_size, saved.model.vocab_size
    if tokens > rows or (tokens < rows and saved.data.tokenizer != "file"):  # imported models may have unused rows
        raise RunError(
            f"{run.tokenizer} has {tokens} tokens, but the saved embeddings have {rows} rows. The file was replaced "
            f"after {str(run)!r} was started. Restore it to resume. {ANOTHER_FOLDER}"
        )


def flatten(config: Config) -> dict[str, Any]:
    return {f"{table}.{key}": v for table, values in dataclasses.asdict(config).items() for key, v in values.items()}


def toml(value: Any) -> str:
    """A value as it is written in a recipe or after --set."""
    return json.dumps(value, ensure_ascii=False)
