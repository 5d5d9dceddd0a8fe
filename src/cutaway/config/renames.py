"""Old names of settings and of their values. Recipes, experiments, `--set` and old run folders may still use them.

A run folder is sealed by a checksum of its tables, so its tables are renamed after the checksum is verified.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from cutaway.errors import ConfigError, CutawayWarning

# table -> old name -> current name
RENAMED_SETTINGS = {
    "model": {
        "attention_cap": "attention_softcap",
        "rope_slow": "rope_low_freq_factor",
        "rope_fast": "rope_high_freq_factor",
    },
    "train": {"average": "average_checkpoints", "keep": "keep_checkpoints", "decay": "decay_fraction"},
    "finetune": {"parts": "target_modules", "length": "prompt_length", "train": "also_train"},
    # experiments of the lab (course/experiment.py)
    "experiment": {"arm": "variant", "look": "attention"},
    "variant": {"surgery": "ablations"},
}
# (table, current name) -> old value -> current value
RENAMED_VALUES = {("train", "parallel"): {"replicas": "ddp", "shards": "fsdp"}}


def rename_setting(table: str, name: str, value: Any) -> tuple[str, Any]:
    """The current name and value of one setting."""
    name = RENAMED_SETTINGS.get(table, {}).get(name, name)
    values = RENAMED_VALUES.get((table, name), {})
    return name, values.get(value, value) if isinstance(value, str) else value


def rename_settings(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The same tables with current names and values. Other values are not changed."""
    return {name: rename_table(name, table) if isinstance(table, Mapping) else table for name, table in tables.items()}


def rename_table(table: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for old_name, given in settings.items():
        name, value = rename_setting(table, old_name, given)
        if name != old_name and name in settings:
            raise ConfigError(
                f"{table}.{old_name} and {table}.{name} are both given, and they are the same setting. "
                f"Remove {table}.{old_name}, the old name."
            )
        renamed[name] = value
    return renamed


def old_names(tables: Mapping[str, Any]) -> list[str]:
    """A phrase for each old name or value in these tables: "train.keep is now train.keep_checkpoints"."""
    found = []
    for table, settings in tables.items():
        for old_name, given in settings.items() if isinstance(settings, Mapping) else ():
            name, value = rename_setting(table, old_name, given)
            if name != old_name:
                found.append(f"{table}.{old_name} is now {table}.{name}")
            if value != given:
                found.append(f"{table}.{name} = {given!r} is now {value!r}")
    return found


def warn_of_old_names(found: list[str]) -> None:
    """Show one notice for all old names in a recipe and its overrides."""
    if found:
        warnings.warn(
            f"{'; '.join(dict.fromkeys(found))}. The old names still work. Use the new ones.",
            CutawayWarning,
            stacklevel=1,  # always this line, so that the same notice is shown once
        )
