"""An experiment: a question, and model variants that answer it. A TOML file; no torch here.

    title = "Without residual connections"
    question = "Can a stack of layers learn without residual connections?"
    theory = "No: ..."                             # the expected result, written before the training
    recipe = "reverse"                             # the settings that all variants share: a built-in recipe, or a path
    seeds = [1, 2, 3]                              # at least three
    variant = [{ name = "intact" }, { name = "no residual", ablations = ["no-residual"] }]

The first variant is the baseline. Variants differ in their model and training settings,
but not in their data: every variant gets the same batches in the same order.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cutaway.config import Config, apply_overrides, config_from_tables, with_given
from cutaway.config.renames import old_names, rename_table, warn_of_old_names
from cutaway.course.verdict import METRICS
from cutaway.errors import ConfigError, did_you_mean
from cutaway.runs.recipe import base_name
from cutaway.system.resources import find_toml, shipped_names

MIN_SEEDS = 3  # with fewer, the confidence interval is too wide to be useful
CURVE_POINTS = 12  # validations per training, unless the experiment sets train.valid_every
ATTENTION_CHOICES = ("encoder", "decoder", "cross", "none")
FIT_CHOICES = ("", "scaling-law")

Settings = dict[str, Any]  # "model.n_heads" -> 1


@dataclass(frozen=True)
class Variant:
    """One way to build and train the model: other settings, or `ablations` of the built model."""

    name: str
    ablations: tuple[str, ...] = ()
    settings: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    question: str
    theory: str
    recipe: Path
    seeds: tuple[int, ...]
    variants: tuple[Variant, ...]
    settings: Settings = field(default_factory=dict)
    judge_by: tuple[str, ...] = ()  # metrics of the verdict; empty: the default of the task
    attention: str = ""  # the attention to draw: one of ATTENTION_CHOICES; empty: the default of the task
    fit: str = ""  # "scaling-law": fit the loss as a function of the number of parameters
    minutes: float = 0.0  # measured time on two cores; 0: unknown
    text: str = ""  # the content of the TOML file
    overrides: tuple[str, ...] = ()  # changes from the command line

    def config(self, variant: Variant, seed: int) -> Config:
        """Return the recipe with the settings of the experiment, of the variant and of the lab, and the seed."""
        tables = read_toml(self.recipe, "the recipe")
        given = {**self.settings, **variant.settings}
        for name, value in {**given, "train.seed": seed}.items():
            table, _, key = name.partition(".")
            tables.setdefault(table, {})[key] = value
        if base_name(tables):
            raise ConfigError(
                f"the recipe of this experiment fine-tunes the run {base_name(tables)!r}. The lab trains all "
                "variants from new weights. Choose a recipe without [finetune]."
            )
        config = config_from_tables(tables)
        steps = config.train.steps
        curve = None if "train.valid_every" in given else max(1, steps // CURVE_POINTS)
        return dataclasses.replace(
            config,
            train=with_given(config.train, valid_every=curve, save_every=steps, keep_checkpoints=1, snapshots=0),
            decode=with_given(config.decode, strategy="greedy"),
        )

    @property
    def task(self) -> str:
        return self.config(self.variants[0], self.seeds[0]).model.task

    @property
    def trainings(self) -> int:
        return len(self.variants) * len(self.seeds)


KEYS = ("title", "question", "theory", "recipe", "seeds", "variant", "set", "judge_by", "attention", "fit", "minutes")
REQUIRED_KEYS = ("title", "question", "theory", "recipe", "seeds", "variant")
VARIANT_KEYS = ("name", "ablations", "set")


def built_in_experiments() -> list[str]:
    return shipped_names("experiments")


def find_experiment(name: str) -> Path:
    return find_toml("experiments", "experiment", name)


def read_experiment(path: Path, overrides: Iterable[str] = (), seeds: tuple[int, ...] = ()) -> Experiment:
    """Read and check a TOML file. `seeds` and `overrides` ("train.steps=50") replace values of the file.

    Ablations are checked later, in `lab.check_buildable`: they need a built model.
    """
    overrides = tuple(overrides)
    table = use_current_names(read_toml(path, "the experiment"))
    where = f"the experiment {str(path)!r}"
    check_keys(table, KEYS, where)
    for key in REQUIRED_KEYS:
        if not table.get(key):
            raise ConfigError(f"{where} has no {key}. Required: {', '.join(REQUIRED_KEYS)}.")
    experiment = Experiment(
        name=path.stem,
        **{key: read_text(table, key, where) for key in ("title", "question", "theory")},
        recipe=find_toml("recipes", "recipe", read_text(table, "recipe", where), path.parent),
        seeds=validate_seeds(seeds or table["seeds"], where),
        variants=tuple(read_variant(one, where) for one in read_list(table["variant"], "variant", where)),
        settings={
            **flatten_settings(table.get("set", {}), "set", where),
            **flatten_settings(apply_overrides({}, overrides), "set", where),
        },
        judge_by=tuple(read_list(table.get("judge_by", []), "judge_by", where)),
        attention=table.get("attention", ""),
        fit=table.get("fit", ""),
        minutes=table.get("minutes", 0),
        text=path.read_text(encoding="utf-8"),
        overrides=(*overrides, *([f"seeds={list(seeds)}"] if seeds else [])),
    )
    check_variants(experiment, where)
    return fill_defaults(experiment, where)


def use_current_names(table: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the keys of version 0.1, with one notice."""
    current = rename_table("experiment", table)
    found = old_names({"experiment": table})
    if isinstance(variants := current.get("variant"), list):
        found += [name for variant in variants for name in old_names({"variant": variant})]
        current["variant"] = [rename_table("variant", v) if isinstance(v, Mapping) else v for v in variants]
    warn_of_old_names(found)
    return current


def read_variant(table: Any, where: str) -> Variant:
    if not isinstance(table, Mapping):
        raise ConfigError(f'{where} has variant = {table!r}; expected a table such as {{ name = "..." }}.')
    check_keys(table, VARIANT_KEYS, f"a variant in {where}")
    if not table.get("name"):
        raise ConfigError(f'{where} has a variant without a name: {dict(table)}. Add one, for example name = "intact".')
    here = f"the variant {table['name']!r} of {where}"
    return Variant(
        name=read_text(table, "name", here),
        ablations=tuple(read_list(table.get("ablations", []), "ablations", here)),
        settings=flatten_settings(table.get("set", {}), "set", here),
    )


def check_variants(experiment: Experiment, where: str) -> None:
    """Check that there are two variants with different names, valid settings and the same data."""
    if len(experiment.variants) < 2:
        raise ConfigError(
            f"{where} has {len(experiment.variants)} variant; a comparison needs at least 2. Add another to "
            "variant = [...]."
        )
    names = [slug(variant.name) for variant in experiment.variants]
    for variant, name in zip(experiment.variants, names, strict=True):
        if names.count(name) > 1:
            raise ConfigError(f"{where} has several variants with the name {variant.name!r}. Rename all but one.")
        for setting in variant.settings:
            if setting.startswith("data."):
                raise ConfigError(
                    f"the variant {variant.name!r} of {where} changes {setting}, but all variants must have the same "
                    "data. Move it to [set], which applies to all of them."
                )
    for setting in (
        s for settings in (experiment.settings, *(a.settings for a in experiment.variants)) for s in settings
    ):
        if setting == "train.seed":
            raise ConfigError(f"{where} sets train.seed, but the lab takes it from `seeds`. Change seeds = [1, 2, 3].")
    for variant in experiment.variants:
        try:
            experiment.config(variant, experiment.seeds[0])
        except ConfigError as error:
            raise ConfigError(f"cannot build the variant {variant.name!r} of {where}: {error}") from None


def fill_defaults(experiment: Experiment, where: str) -> Experiment:
    """Check judge_by, attention, fit and minutes, and fill in the defaults of the task."""
    translates = experiment.task == "translation"
    measures = [name for name, metric in METRICS.items() if translates or not metric.needs_decoding]
    for name in experiment.judge_by:
        if name not in measures:
            raise ConfigError(f"{where} has judge_by = [{name!r}]. {did_you_mean(str(name), measures)}")
    for key, allowed in (("attention", ATTENTION_CHOICES), ("fit", FIT_CHOICES)):
        value = getattr(experiment, key)
        if value and value not in allowed:
            raise ConfigError(f"{where} has {key} = {value!r}. {did_you_mean(str(value), filter(None, allowed))}")
    if experiment.attention not in ("", "none") and not translates:
        raise ConfigError(
            f"{where} has attention = {experiment.attention!r}, but the lab draws attention for translation only; its "
            f"task is {experiment.task.replace('_', ' ')}. Remove `attention`."
        )
    if type(experiment.minutes) not in (int, float):
        raise ConfigError(f"{where} has minutes = {experiment.minutes!r}; expected a number.")
    return dataclasses.replace(
        experiment,
        judge_by=experiment.judge_by or (("cross-entropy", "exact match") if translates else ("cross-entropy",)),
        attention=experiment.attention or ("cross" if translates else "none"),
    )


def validate_seeds(seeds: Any, where: str) -> tuple[int, ...]:
    seeds = tuple(read_list(seeds, "seeds", where))
    if any(type(seed) is not int or seed < 0 for seed in seeds) or len(set(seeds)) < len(seeds):
        raise ConfigError(f"{where} has seeds = {list(seeds)}; expected different integers >= 0, such as [1, 2, 3].")
    if len(seeds) < MIN_SEEDS:
        raise ConfigError(
            f"{where} has {len(seeds)} seeds; a verdict needs at least {MIN_SEEDS}. Add more, for example [1, 2, 3]."
        )
    return seeds


def flatten_settings(table: Any, key: str, where: str) -> Settings:
    """Flatten {"train": {"steps": 50}} to {"train.steps": 50}; a flat table stays as it is."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} has {key} = {table!r}; expected a table such as {{ train.steps = 50 }}.")
    settings: Settings = {}
    for name, value in table.items():
        inner = flatten_settings(value, key, where) if isinstance(value, Mapping) else {"": value}
        settings |= {f"{name}.{rest}" if rest else name: v for rest, v in inner.items()}
    return settings


def read_toml(path: Path, what: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{what} {str(path)!r} does not exist. Check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what} {str(path)!r} is not valid TOML: {error}") from None


def check_keys(table: Mapping[str, Any], allowed: Iterable[str], where: str) -> None:
    for key in table:
        if key not in allowed:
            raise ConfigError(f"{where} has an unknown key {key!r}. {did_you_mean(key, allowed)}")


def read_text(table: Mapping[str, Any], key: str, where: str) -> str:
    if not isinstance(table[key], str):
        raise ConfigError(f"{where} has {key} = {table[key]!r}; expected a text.")
    return " ".join(table[key].split())


def read_list(value: Any, key: str, where: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{where} has {key} = {value!r}; expected a list, {key} = [...].")
    return list(value)


def slug(name: str) -> str:
    """Return the name in lowercase letters, digits and hyphens, for a folder name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "variant"
