"""Former names of settings and of their values. Recipes, `--set` and old run folders may still use them.

A run folder is sealed by a checksum of its tables, so its tables are renamed after the checksum is verified.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from cutaway.errors import ConfigError, CutawayWarning

# table -> former name -> current name
RENAMED_SETTINGS = {
    "model": {
        "attention_cap": "attention_softcap",
        "rope_slow": "rope_low_freq_factor",
        "rope_fast": "rope_high_freq_factor",
    },
    "train": {"average": "average_checkpoints", "keep": "keep_checkpoints", "decay": "decay_fraction"},
    "finetune": {"parts": "target_modules", "length": "prompt_length", "train": "also_train"},
}
# (table, current name) -> former value -> current value
RENAMED_VALUES = {("train", "parallel"): {"replicas": "ddp", "shards": "fsdp"}}


def rename_setting(table: str, name: str, value: Any) -> tuple[str, Any]:
    """The current name and value of one setting."""
    name = RENAMED_SETTINGS.get(table, {}).get(name, name)
    values = RENAMED_VALUES.get((table, name), {})
    return name, values.get(value, value) if isinstance(value, str) else value


def rename_settings(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The same tables with current names and values. What is not a table stays as it is."""
    return {name: _rename_table(name, table) if isinstance(table, Mapping) else table for name, table in tables.items()}


def _rename_table(table: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for former, given in settings.items():
        name, value = rename_setting(table, former, given)
        if name != former and name in settings:
            raise ConfigError(
                f"{table}.{former} and {table}.{name} are both given, and they are the same setting. "
                f"Remove {table}.{former}: it is the former name."
            )
        renamed[name] = value
    return renamed


def former_names(tables: Mapping[str, Any]) -> list[str]:
    """A sentence part for each former name or value in these tables: "train.keep is now train.keep_checkpoints"."""
    found = []
    for table, settings in tables.items():
        for former, given in settings.items() if isinstance(settings, Mapping) else ():
            name, value = rename_setting(table, former, given)
            if name != former:
                found.append(f"{table}.{former} is now {table}.{name}")
            if value != given:
                found.append(f"{table}.{name} = {given!r} is now {value!r}")
    return found


def warn_of_former_names(found: list[str]) -> None:
    """One notice for all former names in a recipe and its overrides."""
    if found:
        warnings.warn(
            f"{'; '.join(dict.fromkeys(found))}. The former names still work. Use the new ones.",
            CutawayWarning,
            stacklevel=1,  # always this line, so that the same notice is shown once
        )
