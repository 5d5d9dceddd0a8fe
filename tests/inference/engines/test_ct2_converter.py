"""Export for CTranslate2: each setting gives the same results, or an error that names it."""

import dataclasses
import json
import os
import re
from functools import cache
from pathlib import Path

import ctranslate2
import numpy as np
import pytest
import safetensors.numpy
from helpers import AXES, is_possible, name_of, perturbed_model, run_cutaway, tiny_of

from cutaway.config import Config, DataConfig, DecodeConfig, FinetuneConfig, ModelConfig
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError, RunError
from cutaway.inference.engines import ct2_converter as ct2
from cutaway.inference.engines import ct2_model
from cutaway.inference.engines.ct2_converter import compare_with_twin, export_ct2, write_folder
from cutaway.inference.engines.ct2_model import SUPPORTED, check_supported, model_file, model_variables
from cutaway.inference.pipelines import TextGenerator, Translator
from cutaway.models.weights import weights_to_bytes
from cutaway.runs import RunFolder
from cutaway.runs.files import write_bytes, write_text
from cutaway.runs.weights import seal_weights
from cutaway.twin import build as twin

WORDS = ["a", "b", "c", "d", "e", "f", "g"]
GREEDY = DecodeConfig(strategy="greedy", max_length=9)


@cache
def tokenizer_of_words():
    return Tokenizer.train([" ".join(WORDS)], "word", 100)


def twin_of(config, seed=0):
    model = twin.build_model(config)
    model.load({name: p.detach().numpy() for name, p in perturbed_model(config, seed).named_parameters()}, "float32")
    return model


def random_run(folder, unused=0, **choice):
    """A run folder; with rows of the embedding that no token uses."""
    run, tokenizer = RunFolder(folder), tokenizer_of_words()
    model = tiny_of(vocab_size=tokenizer.vocab_size + unused, **choice)
    data = DataConfig(tokenizer="file", tokenizer_file="tokenizer.json", max_tokens=32)
    write_text(run.config, Config(model=model, data=data).to_json())
    write_text(run.tokenizer, tokenizer.to_json())
    write_bytes(run.weights, seal_weights(weights_to_bytes(perturbed_model(model))))
    return run.path


# supported and unsupported settings


def choices(*families):
    """Every value of every setting, one at a time, with the other settings that it needs."""
    for family in families:
        for name, values in AXES.items():
            for value in values:
                needs = {"attention_kernel": "exact"} if value == "relative" or name == "attention_softcap" else {}
                needs |= {"norm_placement": "pre"} if value == "parallel" else {}
                choice = {"family": family, **needs, name: value}
                is_default = value == getattr(ModelConfig(), name) and name != "attention"
                if is_possible(choice) and name != "family" and not is_default:
                    yield choice


CHOICES = list(choices("encoder_decoder", "decoder"))


def is_supported(choice):
    config = tiny_of(**choice)
    return all(config.family in values.get(getattr(config, name), ()) for name, values in SUPPORTED.items())


@pytest.mark.parametrize("choice", [c for c in CHOICES if is_supported(c)], ids=name_of)
def test_supported_settings_give_the_same_log_probabilities(choice, tmp_path):
    """For random texts of different lengths, compared with the twin."""
    config, tokenizer = Config(tiny_of(**choice), DataConfig(max_tokens=32)), tokenizer_of_words()
    check_supported(config.model)
    model = twin_of(config.model)
    write_folder(tmp_path, model, config, tokenizer, "float32")
    assert compare_with_twin(tmp_path, model, config, tokenizer, "float32") < 2e-5


@pytest.mark.parametrize("choice", [c for c in CHOICES if not is_supported(c)], ids=name_of)
def test_unsupported_settings_are_errors(choice):
    name, value = list(choice.items())[-1]
    with pytest.raises(ConfigError) as error:
        check_supported(tiny_of(**choice))
    assert f"model.{name} = {value!r} with model.family = {choice['family']!r}: " in str(error.value)
    assert "It supports " in str(error.value)
    assert "Use engine 'torch'" in str(error.value)


@pytest.mark.parametrize("family", ["encoder", "vision"])
def test_models_that_do_not_generate_text_are_errors(family):
    with pytest.raises(ConfigError, match=f"model.family = '{family}'.*It supports 'encoder_decoder', 'decoder'"):
        check_supported(tiny_of(family))


def test_parallel_layers_must_be_pre_norm():
    for placement in ("post", "sandwich"):
        with pytest.raises(ConfigError, match=f"'parallel' with model.norm_placement = '{placement}'.*supports 'pre'"):
            check_supported(tiny_of("decoder", block="parallel", norm_placement=placement))


def test_every_setting_of_a_model_is_considered():
    """A new setting must be added to the table, or to one of the sets below."""
    always = {"vocab_size", "d_model", "d_ff", "encoder_layers", "decoder_layers", "bias", "max_length", "n_heads"}
    always |= {"n_kv_heads", "d_head", "norm_epsilon", "embeddings", "output_bias", "embedding_scale", "embedding_norm"}
    always |= {"rope_base", "rope_factor", "rope_low_freq_factor", "rope_high_freq_factor", "rope_original_length"}
    always |= {"relative_buckets", "relative_distance", "relative_clip"}
    training_only = {"dropout", "attention_dropout", "init", "attention_kernel", "expert_capacity", "experts_per_token"}
    other_families = {
        "head",
        "n_classes",
        "pooling",
        "segments",
        "image_size",
        "patch_size",
        "channels",
        "attention_window",
    }
    other_families |= {"pixels", "resize"}
    fields = {field.name for field in dataclasses.fields(ModelConfig)}
    assert fields == SUPPORTED.keys() | always | training_only | other_families


SETTINGS = [
    {"norm_epsilon": 0.1},
    {"position": "rope", "rope_base": 50.0},
    {"position": "rope", "rope_scaling": "linear", "rope_factor": 4.0},
    {"position": "rope", "rope_scaling": "llama3", "rope_factor": 8.0, "rope_low_freq_factor": 1.5, "rope_high_freq_factor": 3.0,
     "rope_original_length": 16},
    {"position": "relative", "attention_kernel": "exact", "relative_clip": 3},
    {"n_heads": 6, "d_head": 2, "n_kv_heads": 3},
]  # fmt: skip
DECODER_SETTINGS = [{"family": "decoder", "position": "alibi", "n_heads": 6, "d_head": 2}]
# buckets whose bounds depend on the rounding of a logarithm
TRANSLATOR_SETTINGS = [
    {"position": "relative_bias", "relative_buckets": buckets, "relative_distance": distance}
    for buckets, distance in ((32, 128), (8, 16), (20, 37), (4, 5))
]


@pytest.mark.parametrize(
    "choice",
    [*SETTINGS, *({"family": "decoder", **s} for s in SETTINGS), *DECODER_SETTINGS, *TRANSLATOR_SETTINGS],
    ids=name_of,
)
def test_numeric_settings_give_the_same_log_probabilities(choice, tmp_path):
    test_supported_settings_give_the_same_log_probabilities(choice, tmp_path)


# exported folders


def run_ctranslate2(folder, family, texts, **options):
    """Use an exported folder with CTranslate2 alone."""
    tokenizer = tokenizer_of_words()
    tokens = [tokenizer.backend.encode(text).tokens for text in texts]
    if family == "encoder_decoder":
        found = ctranslate2.Translator(str(folder)).translate_batch(
            [[*row, "</s>"] for row in tokens],
            max_decoding_length=9,
            length_penalty=0,
            min_decoding_length=0,
            **options,
        )
        return [one.hypotheses[0] for one in found]
    found = ctranslate2.Generator(str(folder)).generate_batch(
        [["<s>", *row] for row in tokens], max_length=9, length_penalty=0, include_prompt_in_result=False, **options
    )
    return [one.sequences[0] for one in found]


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("family", ["encoder_decoder", "decoder"])
def test_a_folder_works_with_ctranslate2_alone(family, dtype, tmp_path):
    run = random_run(tmp_path / "run", unused=5, family=family, d_model=32)
    written = export_ct2(run, tmp_path / "folder", dtype)
    assert sorted(written.files) == sorted(path.name for path in (tmp_path / "folder").iterdir())
    assert set(written.files) <= ct2.OUR_FILES
    assert written.difference < (2e-5 if dtype == "float32" else 0.3)
    assert ctranslate2.contains_model(str(tmp_path / "folder"))
    texts = ["a b c d", "g f", "c c a"]
    pipeline = (Translator if family == "encoder_decoder" else TextGenerator).load(run, engine="ct2", dtype=dtype)
    backend = pipeline.tokenizer.backend
    for decode, options in (
        (GREEDY, {"beam_size": 1}),
        (DecodeConfig("beam", length_penalty=0, max_length=9), {"beam_size": 4}),
    ):
        ours = [h.tokens for [h] in pipeline.hypotheses(texts, decode)]
        expected = [[backend.id_to_token(id) or f"<unused {id}>" for id in tokens] for tokens in ours]
        assert run_ctranslate2(tmp_path / "folder", family, texts, **options) == expected


def test_shared_matrices_are_stored_once():
    sizes = {}
    for embeddings in ("shared", "tied", "inputs", "separate"):
        config = tiny_of(embeddings=embeddings, vocab_size=500)
        sizes[embeddings] = len(model_file(config, model_variables(twin_of(config), config))) // (500 * 8 * 4)
    assert sizes["shared"] + 1 == sizes["tied"] == sizes["inputs"] == sizes["separate"] - 1


def test_int8_is_a_quarter_of_the_size_and_rounds_to_the_nearest_step():
    config = tiny_of(d_model=64, d_ff=256, max_length=4)
    found = model_variables(twin_of(config), config)
    assert len(model_file(config, found, "int8")) < 0.3 * len(model_file(config, found))
    found["decoder/embeddings/weight"][3] = 0  # a row of zeros has a scale too
    rounded = dict(ct2_model.quantize(found))
    for name, value in found.items():
        if name.endswith("/weight"):
            assert np.abs(rounded[name]).max() == ct2_model.INT8_MAX
            back = rounded[name] / rounded[f"{name}_scale"][:, None]
            step = np.abs(value).max(axis=1, keepdims=True) / ct2_model.INT8_MAX
            assert (np.abs(back - value) <= 0.5001 * step).all()


def test_a_failed_export_writes_nothing(tmp_path, monkeypatch):
    run, folder = random_run(tmp_path / "run"), tmp_path / "folder"
    export_ct2(run, folder)
    with pytest.raises(RunError, match="is not empty"):
        export_ct2(run, folder)
    before = (folder / "model.bin").read_bytes()
    monkeypatch.setattr(ct2, "TOLERANCE", -1.0)
    with pytest.raises(RunError, match="CTranslate2 disagrees with the model.*Nothing was written"):
        export_ct2(run, folder, overwrite=True)
    assert (folder / "model.bin").read_bytes() == before
    assert export_ct2(run, folder, overwrite=True, check=False).difference is None
    (folder / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match="contains other files"):
        export_ct2(run, folder, overwrite=True)
    with pytest.raises(RunError, match="was not written by this command"):
        export_ct2(run, run, overwrite=True)
    assert not list(tmp_path.glob(".*"))


def test_damaged_runs_and_unknown_dtypes_are_errors(tmp_path):
    run = random_run(tmp_path / "run")
    whole = RunFolder(run).weights.read_bytes()
    RunFolder(run).weights.write_bytes(whole[:-100])
    with pytest.raises(RunError):
        export_ct2(run, tmp_path / "folder")
    tensors = safetensors.numpy.load(whole)
    tensors.popitem()
    write_bytes(RunFolder(run).weights, seal_weights(safetensors.numpy.save(tensors)))
    with pytest.raises(RunError):
        export_ct2(run, tmp_path / "folder")
    with pytest.raises(ConfigError, match="CTranslate2 has no dtype 'int4'"):
        export_ct2(run, tmp_path / "folder", "int4")
    assert not (tmp_path / "folder").exists()


def test_without_ctranslate2_the_export_is_not_checked(tmp_path, monkeypatch):
    run = random_run(tmp_path / "run")
    monkeypatch.setattr(ct2, "find_spec", lambda name: None)
    written = export_ct2(run, tmp_path / "folder")
    assert written.difference is None
    assert "pip install 'cutaway[ct2]'" in written.notes[0]


def test_a_prefix_adapter_cannot_be_exported(tmp_path):
    run = RunFolder(random_run(tmp_path / "run"))
    config = dataclasses.replace(
        run.read_config(), finetune=FinetuneConfig(base="base", method="prefix", prompt_length=3)
    )
    write_text(run.config, config.to_json())
    os.rename(run.model, run.adapter)
    with pytest.raises(
        RunError, match="CTranslate2 needs one set of weights, and finetune.method = 'prefix' adds vectors"
    ):
        export_ct2(run.path, tmp_path / "folder")


def test_the_snippet_of_the_docs_translates_like_the_translator(tmp_path, monkeypatch):
    page = (Path(__file__).parents[3] / "docs/ctranslate2.md").read_text("utf-8")
    [snippet] = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    run = RunFolder(random_run(tmp_path / "run"))
    never = DecodeConfig(strategy="greedy", suppress=(0, 1, 3))  # <pad>, <s>, <unk>
    write_text(run.config, dataclasses.replace(run.read_config(), decode=never).to_json())
    export_ct2(run.path, tmp_path / "exported/ct2")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(snippet, names)
    texts = ["a b c d", "g f", "c c a"]
    assert names["translate"](texts) == Translator.load(run.path, "cpu", engine="torch").translate(texts)


def test_the_command(tmp_path):
    run = random_run(tmp_path / "run")
    result = run_cutaway("export", run, "folder", "--to", "ct2", "--dtype", "int8", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "TransformerSpec: " in result.stdout
    assert "int8 rounds the weights" in result.stdout
    assert "model.bin" in result.stderr
    assert "ctranslate2.Translator(" in result.stderr
    about = json.loads((tmp_path / "folder/cutaway.json").read_text("utf-8"))
    assert about["dtype"] == "int8"
    assert about["reads"] == ["text", "eos"]
    for options, message in [
        (("--to", "hf", "--dtype", "int8"), "--dtype int8 has no effect with --to hf"),
        (("--to", "hf", "--no-check"), "--no-check has no effect with --to hf"),
        (("--to", "ct3"), "Did you mean 'ct2'"),
    ]:
        result = run_cutaway("export", run, "other", *options, cwd=tmp_path)
        assert result.returncode == 1
        assert message in result.stderr
        assert not (tmp_path / "other").exists()
