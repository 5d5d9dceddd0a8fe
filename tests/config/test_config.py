import dataclasses
from pathlib import Path

import pytest

from cutaway.cli.recipes import find_recipe
from cutaway.config import Config, DataConfig, DecodeConfig, ModelConfig, TrainConfig, apply_overrides, read_tables
from cutaway.config.checks import choices
from cutaway.errors import ConfigError
from cutaway.runs.recipe import base_name, read_recipe
from cutaway.system.resources import shipped_names


def recipe(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "r.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_toml_in_json_out(tmp_path):
    path = recipe(tmp_path, '[model]\nd_model = 64\n[data]\ntrain = ["a", "b"]\n[train]\nlr = 2\n')
    config = read_recipe(path, ["train.steps=7", "data.corpus=", "model.norm_placement=pre"])
    assert config.model.d_model == 64
    assert config.data.train == ("a", "b")
    assert config.train.lr == 2.0
    assert config.train.steps == 7
    assert config.model.norm_placement == "pre"
    assert Config.from_json(config.to_json()) == config


def test_language_models_sample_by_default(tmp_path):
    writer = recipe(tmp_path, '[model]\nfamily = "decoder"\n[decode]\nmax_length = 9\n')
    decode = read_recipe(writer).decode
    assert (decode.strategy, decode.temperature, decode.top_p) == ("sample", 0.8, 0.95)
    assert Config(model=ModelConfig(family="decoder")).decode.strategy == "sample"
    assert read_recipe(writer, ["decode.strategy=greedy"]).decode.strategy == "greedy"
    assert read_recipe(writer, ["decode.temperature=1.0"]).decode.temperature == 1.0
    assert Config().decode.strategy == "beam"
    for config in (Config(), read_recipe(writer)):
        assert '"auto"' not in config.to_json().partition('"decode"')[2]
        assert Config.from_json(config.to_json()) == config


def test_configuration_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ModelConfig().d_model = 3


@pytest.mark.parametrize(
    ("table", "settings", "message"),
    [
        (
            ModelConfig,
            {"d_model": 10, "n_heads": 4},
            r"d_model = 10 is not divisible by model.n_heads = 4.*\[1, 2, 5, 10\]",
        ),
        (ModelConfig, {"d_model": 9, "n_heads": 3}, "'sinusoidal' pairs a sine with a cosine.*Choose 10"),
        (ModelConfig, {"norm_placement": "per"}, "norm_placement = 'per' is not a choice. Did you mean 'pre'"),
        (ModelConfig, {"n_heads": 8.0}, "n_heads = 8.0 is of type float; expected int"),
        (ModelConfig, {"encoder_layers": True}, "of type bool; expected int"),
        (ModelConfig, {"decoder_layers": 0}, "model.decoder_layers = 0 must be at least 1"),
        (ModelConfig, {"dropout": 1.0}, "model.dropout = 1.0 must be at least 0 and below 1"),
        (DataConfig, {"corpus": "reverse", "train": ("a", "b")}, "both given"),
        (DataConfig, {"tokenizer_file": "x"}, "cannot be combined"),
        (DataConfig, {"train": ("a", "b"), "size": 5}, "data.size = 5 would have no effect, because no built-in"),
        (DataConfig, {"tokenizer": "byte", "vocab_size": 5}, "data.vocab_size = 5 would have no effect"),
        (
            ModelConfig,
            {"n_heads": 8, "n_kv_heads": 3},
            r"n_heads = 8 is not divisible by model.n_kv_heads = 3.*\[1, 2, 4, 8\]",
        ),
        (ModelConfig, {"position": "rope", "d_head": 3}, "'rope' rotates pairs of numbers.*, 3, must be even"),
        (ModelConfig, {"family": "vision", "head": "classes"}, "image_size = 0 cannot be cut into patches"),
        (
            ModelConfig,
            {"rope_base": 5.0},
            "rope_base = 5.0 would have no effect, because model.position = 'sinusoidal'",
        ),
        (ModelConfig, {"attention_window": 5}, "attention_window = 5 would have no effect.*'full' has no window"),
        (ModelConfig, {"experts": 1}, "experts = 1 is not a mixture"),
        (ModelConfig, {"experts": 4, "experts_per_token": 1}, "experts_per_token = 1 must be at least 2.*experts = 4"),
        (ModelConfig, {"experts_per_token": 3}, "experts_per_token = 3 would have no effect.*experts = 0"),
        (
            ModelConfig,
            {"family": "decoder", "encoder_layers": 2},
            "encoder_layers = 2 would have no effect.*no encoder",
        ),
        (ModelConfig, {"cross_attention": True}, "cross_attention = True would have no effect.*'encoder_decoder'"),
        (ModelConfig, {"relative_buckets": 6}, "relative_buckets = 6 must be a multiple of 4"),
        (TrainConfig, {"schedule": "constant", "lr": 1e-3, "warmup": 5}, "warmup = 5 would have no effect"),
        (TrainConfig, {"schedule": "constant"}, "lr = 1.0 as the learning rate itself"),
        (TrainConfig, {"warmup": 0}, "'noam' divides by train.warmup"),
        (TrainConfig, {"lr": 0.0}, "train.lr = 0.0 must be positive"),
        (DecodeConfig, {"temperature": 0.0}, "must be positive; for no randomness use greedy"),
        (DecodeConfig, {"top_p": 0.0}, "decode.top_p = 0.0 must be above 0"),
    ],
)
def test_impossible_settings_raise_an_error_with_the_reason(table, settings, message):
    with pytest.raises(ConfigError, match=message):
        table(**settings)


@pytest.mark.parametrize(
    ("text", "overrides", "message"),
    [
        ("[model]\nd_modle = 3", [], "unknown setting model.d_modle. Did you mean 'd_model'"),
        ("[modle]\nx = 3", [], r"unknown table \[modle\]. Did you mean 'model'"),
        ("steps = 3", [], "steps = 3 is outside a table|unknown table"),
        ("model = 3", [], "model = 3 is outside a table"),
        ("[model", [], "is not valid TOML"),
        ("", ["train.step=3"], "unknown setting train.step. Did you mean 'steps'"),
        ("", ["steps=3"], "not of the form table.field=value"),
        ("", ["train.steps"], "not of the form table.field=value"),
        ("", ["train.steps=many"], "train.steps = 'many' is of type str; expected int"),
    ],
)
def test_invalid_recipes(tmp_path, text, overrides, message):
    with pytest.raises(ConfigError, match=message):
        read_recipe(recipe(tmp_path, text), overrides)


def test_texts_must_fit_the_model(tmp_path):
    with pytest.raises(ConfigError, match=r"data.max_tokens = 256 .* model.max_length = 64"):
        read_recipe(recipe(tmp_path, "[model]\nmax_length = 64\n"))


def test_missing_recipe():
    with pytest.raises(ConfigError, match=r"there is no recipe 'none\.toml'"):
        read_recipe("none.toml")
    with pytest.raises(ConfigError, match="Did you mean 'reverse'"):
        find_recipe("revers")


@pytest.mark.parametrize("name", shipped_names("recipes"))
def test_built_in_recipes_are_valid(name, tmp_path, monkeypatch):
    """A fine-tuning recipe starts from the run of another built-in recipe."""
    monkeypatch.chdir(tmp_path)
    base = base_name(read_tables(find_recipe(name)))
    if base:
        assert base in shipped_names("recipes")
        (tmp_path / "runs" / base).mkdir(parents=True)
        (tmp_path / "runs" / base / "config.json").write_text(read_recipe(find_recipe(base)).to_json())
    config = read_recipe(find_recipe(name))
    assert isinstance(config, Config)
    assert Config.from_json(config.to_json()) == config


def test_overrides_do_not_change_the_given_tables():
    tables = {"train": {"steps": 1}}
    assert apply_overrides(tables, ["train.steps=2"])["train"]["steps"] == 2
    assert tables == {"train": {"steps": 1}}


def test_budget_on_the_command_line_replaces_the_recipes(tmp_path):
    path = recipe(tmp_path, "[train]\nsteps = 900\n")
    assert read_recipe(path, ["train.minutes=1"]).train.budget == "minutes"
    assert read_recipe(path, ["train.epochs=2"]).train.steps == TrainConfig().steps
    assert read_recipe(path, ["train.lr=0.1"]).train.steps == 900
    with pytest.raises(ConfigError, match="train.steps = 5 would have no effect"):
        read_recipe(path, ["train.minutes=1", "train.steps=5"])
    with pytest.raises(ConfigError, match="both given"):
        read_recipe(path, ["train.minutes=1", "train.epochs=5"])


VISION = ModelConfig(family="vision", head="classes", image_size=4, patch_size=2)
ENCODER = ModelConfig(family="encoder", head="tags")


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"data": DataConfig(train=("a",))}, "data.train = .* must name two files"),
        ({"data": DataConfig(train=("a", "b")), "model": ENCODER}, "data.train = .* must name one file for tagging"),
        (
            {"data": DataConfig(corpus="copy", max_tokens=300, batch_tokens=200)},
            "300 is more than data.batch_tokens = 200",
        ),
        (
            {"data": DataConfig(corpus="digits", tokenizer="char"), "model": VISION},
            "data.tokenizer = 'char'.*reads images",
        ),
        ({"train": TrainConfig(balance_loss=0.5)}, "balance_loss = 0.5 would have no effect.*experts = 0"),
    ],
)
def test_conflicts_between_tables(tables, message):
    with pytest.raises(ConfigError, match=message):
        Config(**tables)


def test_choices():
    assert choices(ModelConfig, "norm_placement") == ("post", "pre", "sandwich")
