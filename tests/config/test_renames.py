"""Old names of settings: recipes, `--set` and old run folders can still use them, and a user gets one notice."""

import json
import warnings

import pytest

from cutaway.config import Config, FinetuneConfig, ModelConfig, TrainConfig, config_from_tables
from cutaway.config.renames import RENAMED_SETTINGS, RENAMED_VALUES
from cutaway.errors import ConfigError, CutawayWarning
from cutaway.runs import RunFolder
from cutaway.runs.files import checksum
from cutaway.runs.recipe import read_recipe

# Settings, without the renamed one, in which its value has an effect; and the value.
CASES = {
    "model.attention_softcap": ({"model": {"attention_kernel": "exact"}}, 30.0),
    "model.rope_low_freq_factor": ({"model": {"position": "rope", "rope_scaling": "llama3", "rope_factor": 2.0}}, 2.0),
    "model.rope_high_freq_factor": ({"model": {"position": "rope", "rope_scaling": "llama3", "rope_factor": 2.0}}, 8.0),
    "train.average_checkpoints": ({}, 2),
    "train.keep_checkpoints": ({}, 7),
    "train.decay_fraction": ({"train": {"schedule": "wsd", "lr": 1e-3}}, 0.3),
    "finetune.target_modules": ({"finetune": {"base": "b", "method": "lora"}}, ["*.q"]),
    "finetune.prompt_length": ({"finetune": {"base": "b", "method": "prompt"}}, 5),
    "finetune.also_train": ({"finetune": {"base": "b", "method": "lora"}}, ["head.*"]),
}
RECIPE_TABLES = {table: names for table, names in RENAMED_SETTINGS.items() if hasattr(Config(), table)}
SETTINGS = [(table, old, new) for table, names in RECIPE_TABLES.items() for old, new in names.items()]
VALUES = [(table, name, old, new) for (table, name), values in RENAMED_VALUES.items() for old, new in values.items()]


def toml(tables):
    lines = []
    for table, settings in tables.items():
        lines += [f"[{table}]", *(f"{name} = {json.dumps(value)}" for name, value in settings.items())]
    return "\n".join(lines)


def with_setting(tables, table, name, value):
    return {**tables, table: {**tables.get(table, {}), name: value}}


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Read tables as a recipe, with overrides. A base is a run in this folder."""
    monkeypatch.chdir(tmp_path)
    RunFolder(tmp_path / "b").path.mkdir()
    (tmp_path / "b/config.json").write_text(Config().to_json())
    (tmp_path / "b/tokenizer.json").write_text("{}")

    def read(tables, overrides=()):
        (tmp_path / "r.toml").write_text(toml(tables), encoding="utf-8")
        with warnings.catch_warnings(record=True) as notices:
            warnings.simplefilter("always")
            return read_recipe(tmp_path / "r.toml", overrides), [str(notice.message) for notice in notices]

    return read


def test_every_renamed_setting_has_a_case_and_exists():
    assert {f"{table}.{new}" for table, _, new in SETTINGS} == CASES.keys()
    classes = {"model": ModelConfig, "train": TrainConfig, "finetune": FinetuneConfig}
    for table, old, new in SETTINGS:
        assert hasattr(classes[table](), new)
        assert not hasattr(classes[table](), old)


@pytest.mark.parametrize(("table", "old", "new"), SETTINGS)
@pytest.mark.parametrize("by_override", [False, True], ids=["recipe", "--set"])
def test_old_name_in_a_recipe_or_override(read, table, old, new, by_override):
    tables, value = CASES[f"{table}.{new}"]
    if by_override:
        config, notices = read(tables, [f"{table}.{old}={json.dumps(value)}"])
    else:
        config, notices = read(with_setting(tables, table, old, value))
    found = getattr(getattr(config, table), new)
    assert (list(found) if isinstance(value, list) else found) == value
    assert notices == [f"{table}.{old} is now {table}.{new}. The old names still work. Use the new ones."]
    assert read(with_setting(tables, table, new, value)) == (config, [])


@pytest.mark.parametrize(("table", "name", "old", "new"), VALUES)
@pytest.mark.parametrize("by_override", [False, True], ids=["recipe", "--set"])
def test_old_value(read, table, name, old, new, by_override):
    config, notices = read({}, [f"{table}.{name}={old}"]) if by_override else read({table: {name: old}})
    assert getattr(getattr(config, table), name) == new
    assert notices == [f"{table}.{name} = {old!r} is now {new!r}. The old names still work. Use the new ones."]


def test_one_notice_for_all_old_names(read):
    config, notices = read({"train": {"keep": 7, "parallel": "shards"}}, ["train.average=2", "train.keep=8"])
    assert (config.train.keep_checkpoints, config.train.average_checkpoints, config.train.parallel) == (8, 2, "fsdp")
    assert notices == [
        "train.keep is now train.keep_checkpoints; train.parallel = 'shards' is now 'fsdp'; "
        "train.average is now train.average_checkpoints. The old names still work. Use the new ones."
    ]


def test_both_names_at_once_are_an_error(read):
    with pytest.raises(ConfigError, match="train.keep and train.keep_checkpoints are both given.*Remove train.keep"):
        read({"train": {"keep": 7, "keep_checkpoints": 8}})


def old_tables(config):
    """The tables of a config.json as an earlier version wrote them: with the old names and values."""
    tables = json.loads(config.to_json())
    for table, old, new in SETTINGS:
        tables[table][old] = tables[table].pop(new)
    for table, name, old, new in VALUES:
        if tables[table][name] == new:
            tables[table][name] = old
    return tables


@pytest.mark.parametrize(("table", "old", "new"), SETTINGS)
def test_old_name_in_an_old_run_folder(tmp_path, table, old, new):
    """The checksum covers the old names. There is no notice: nobody edits a run folder."""
    tables, value = CASES[f"{table}.{new}"]
    config = config_from_tables(with_setting(with_setting(tables, table, new, value), "train", "parallel", "fsdp"))
    old_config = old_tables(config)
    assert old in old_config[table]
    run = RunFolder(tmp_path)
    seal = {run.config.name: checksum({**old_config, "seal": {}})}
    run.config.write_text(json.dumps({**old_config, "seal": seal}))
    with warnings.catch_warnings():
        warnings.simplefilter("error", CutawayWarning)
        assert run.read_config() == config


def test_resumed_fine_tuning_reads_its_old_run_folder(tmp_path, read):
    """The settings of a started fine-tuning come from its config.json, with the old names."""
    config, _ = read({"finetune": {"base": "b", "method": "lora"}, "model": {"dropout": 0.2}})
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.json").write_text(json.dumps(old_tables(config)))
    assert read_recipe(tmp_path / "r.toml", started=tmp_path / "run") == config
