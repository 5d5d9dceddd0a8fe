"""Folders for CTranslate2: every choice says there what it says here, or is refused by name."""

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
from helpers import AXES, cutaway_here, is_possible, name_of, perturbed, tiny_of

from cutaway.config import Config, DataConfig, DecodeConfig, FinetuneConfig, ModelConfig
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError, RunError
from cutaway.inference.engines import ct2_converter as ct2
from cutaway.inference.engines import ct2_model
from cutaway.inference.engines.ct2_converter import compared, export_ct2, write_folder
from cutaway.inference.engines.ct2_model import SAYS, model_file, refuse, variables
from cutaway.inference.pipelines import TextGenerator, Translator
from cutaway.models.weights import weights_to_bytes
from cutaway.runs import RunFolder
from cutaway.runs.files import write_bytes, write_text
from cutaway.runs.weights import sealed
from cutaway.twin import build as twin

WORDS = ["a", "b", "c", "d", "e", "f", "g"]
GREEDY = DecodeConfig(strategy="greedy", max_length=9)


@cache
def tokenizer_of_words():
    return Tokenizer.train([" ".join(WORDS)], "word", 100)


def twin_of(config, seed=0):
    model = twin.build_model(config)
    model.load({name: p.detach().numpy() for name, p in perturbed(config, seed).named_parameters()}, "float32")
    return model


def random_run(folder, unused=0, **choice):
    """A run folder; with rows of the embedding that no token uses."""
    run, tokenizer = RunFolder(folder), tokenizer_of_words()
    model = tiny_of(vocab_size=tokenizer.vocab_size + unused, **choice)
    data = DataConfig(tokenizer="file", tokenizer_file="tokenizer.json", max_tokens=32)
    write_text(run.config, Config(model=model, data=data).to_json())
    write_text(run.tokenizer, tokenizer.to_json())
    write_bytes(run.weights, sealed(weights_to_bytes(perturbed(model))))
    return run.path


# what can be said, and what cannot


def choices(*families):
    """Every row of every table, one at a time, with what it needs."""
    for family in families:
        for name, values in AXES.items():
            for value in values:
                needs = {"attention_kernel": "exact"} if value == "relative" or name == "attention_softcap" else {}
                needs |= {"norm_placement": "pre"} if value == "parallel" else {}
                choice = {"family": family, **needs, name: value}
                is_default = value == getattr(ModelConfig(), name) and name != "attention"
                if is_possible(choice) and name != "family" and not is_default:
                    yield choice


WRITERS = list(choices("encoder_decoder", "decoder"))


def can_be_said(choice):
    config = tiny_of(**choice)
    return all(config.family in says.get(getattr(config, name), ()) for name, says in SAYS.items())


@pytest.mark.parametrize("choice", [c for c in WRITERS if can_be_said(c)], ids=name_of)
def test_what_can_be_said_is_said_exactly(choice, tmp_path):
    """Log-probabilities of random texts, in rows of different lengths, as the twin has them."""
    config, tokenizer = Config(tiny_of(**choice), DataConfig(max_tokens=32)), tokenizer_of_words()
    refuse(config.model)
    model = twin_of(config.model)
    write_folder(tmp_path, model, config, tokenizer, "float32")
    assert compared(tmp_path, model, config, tokenizer, "float32") < 2e-5


@pytest.mark.parametrize("choice", [c for c in WRITERS if not can_be_said(c)], ids=name_of)
def test_what_cannot_be_said_is_refused_by_name(choice):
    name, value = list(choice.items())[-1]
    with pytest.raises(ConfigError) as refused:
        refuse(tiny_of(**choice))
    assert f"model.{name} = {value!r} with model.family = {choice['family']!r}: " in str(refused.value)
    assert "It can express " in str(refused.value)
    assert "Use engine 'torch'" in str(refused.value)


@pytest.mark.parametrize("family", ["encoder", "vision"])
def test_what_does_not_write_is_refused(family):
    with pytest.raises(ConfigError, match=f"model.family = '{family}'.*It can express 'encoder_decoder', 'decoder'"):
        refuse(tiny_of(family))


def test_parallel_layers_are_normed_before():
    for placement in ("post", "sandwich"):
        with pytest.raises(ConfigError, match=f"'parallel' with model.norm_placement = '{placement}'.*express 'pre'"):
            refuse(tiny_of("decoder", block="parallel", norm_placement=placement))


def test_no_setting_of_a_model_is_overlooked():
    """A new setting must be put into the table, or here among those that are said as they are."""
    said = {"vocab_size", "d_model", "d_ff", "encoder_layers", "decoder_layers", "bias", "max_length", "n_heads"}
    said |= {"n_kv_heads", "d_head", "norm_epsilon", "embeddings", "output_bias", "embedding_scale", "embedding_norm"}
    said |= {"rope_base", "rope_factor", "rope_low_freq_factor", "rope_high_freq_factor", "rope_original_length"}
    said |= {"relative_buckets", "relative_distance", "relative_clip"}
    of_training = {"dropout", "attention_dropout", "init", "attention_kernel", "expert_capacity", "experts_per_token"}
    of_others = {"head", "n_classes", "pooling", "segments", "image_size", "patch_size", "channels", "attention_window"}
    of_others |= {"pixels", "resize"}
    fields = {field.name for field in dataclasses.fields(ModelConfig)}
    assert fields == SAYS.keys() | said | of_training | of_others


SETTINGS = [
    {"norm_epsilon": 0.1},
    {"position": "rope", "rope_base": 50.0},
    {"position": "rope", "rope_scaling": "linear", "rope_factor": 4.0},
    {"position": "rope", "rope_scaling": "llama3", "rope_factor": 8.0, "rope_low_freq_factor": 1.5, "rope_high_freq_factor": 3.0,
     "rope_original_length": 16},
    {"position": "relative", "attention_kernel": "exact", "relative_clip": 3},
    {"n_heads": 6, "d_head": 2, "n_kv_heads": 3},
]  # fmt: skip
OF_DECODERS = [{"family": "decoder", "position": "alibi", "n_heads": 6, "d_head": 2}]
# whatever the rounding of a logarithm says
OF_TRANSLATORS = [
    {"position": "relative_bias", "relative_buckets": buckets, "relative_distance": distance}
    for buckets, distance in ((32, 128), (8, 16), (20, 37), (4, 5))
]


@pytest.mark.parametrize(
    "choice", [*SETTINGS, *({"family": "decoder", **s} for s in SETTINGS), *OF_DECODERS, *OF_TRANSLATORS], ids=name_of
)
def test_numbers_are_said_exactly(choice, tmp_path):
    test_what_can_be_said_is_said_exactly(choice, tmp_path)


# folders


def by_hand(folder, family, texts, **options):
    """What somebody does who has CTranslate2 and the folder, and nothing of ours."""
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
def test_a_folder_can_be_used_by_hand(family, dtype, tmp_path):
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
        assert by_hand(tmp_path / "folder", family, texts, **options) == expected


def test_what_is_shared_stands_there_once():
    sizes = {}
    for embeddings in ("shared", "tied", "inputs", "separate"):
        config = tiny_of(embeddings=embeddings, vocab_size=500)
        sizes[embeddings] = len(model_file(config, variables(twin_of(config), config))) // (500 * 8 * 4)
    assert sizes["shared"] + 1 == sizes["tied"] == sizes["inputs"] == sizes["separate"] - 1


def test_int8_is_a_quarter_and_what_is_rounded_is_close():
    config = tiny_of(d_model=64, d_ff=256, max_length=4)
    found = variables(twin_of(config), config)
    assert len(model_file(config, found, "int8")) < 0.3 * len(model_file(config, found))
    found["decoder/embeddings/weight"][3] = 0  # a row of zeros has a scale, too
    rounded = dict(ct2_model.quantized(found))
    for name, value in found.items():
        if name.endswith("/weight"):
            assert np.abs(rounded[name]).max() == ct2_model.LARGEST
            back = rounded[name] / rounded[f"{name}_scale"][:, None]
            step = np.abs(value).max(axis=1, keepdims=True) / ct2_model.LARGEST
            assert (np.abs(back - value) <= 0.5001 * step).all()


def test_a_folder_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    run, folder = random_run(tmp_path / "run"), tmp_path / "folder"
    export_ct2(run, folder)
    with pytest.raises(RunError, match="is not empty"):
        export_ct2(run, folder)
    before = (folder / "model.bin").read_bytes()
    monkeypatch.setattr(ct2, "TOLERANCE", -1.0)
    with pytest.raises(RunError, match="does not say what the model says.*Nothing was written"):
        export_ct2(run, folder, overwrite=True)
    assert (folder / "model.bin").read_bytes() == before
    assert export_ct2(run, folder, overwrite=True, check=False).difference is None
    (folder / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match="holds other files too"):
        export_ct2(run, folder, overwrite=True)
    with pytest.raises(RunError, match="not what would be written there"):
        export_ct2(run, run, overwrite=True)
    assert not list(tmp_path.glob(".*"))


def test_damaged_and_strange_runs(tmp_path):
    run = random_run(tmp_path / "run")
    whole = RunFolder(run).weights.read_bytes()
    RunFolder(run).weights.write_bytes(whole[:-100])
    with pytest.raises(RunError):
        export_ct2(run, tmp_path / "folder")
    tensors = safetensors.numpy.load(whole)
    tensors.popitem()
    write_bytes(RunFolder(run).weights, sealed(safetensors.numpy.save(tensors)))
    with pytest.raises(RunError):
        export_ct2(run, tmp_path / "folder")
    with pytest.raises(ConfigError, match="dtype 'int4' is not a choice for CTranslate2"):
        export_ct2(run, tmp_path / "folder", "int4")
    assert not (tmp_path / "folder").exists()


def test_without_ctranslate2_it_is_written_and_nobody_runs_it(tmp_path, monkeypatch):
    run = random_run(tmp_path / "run")
    monkeypatch.setattr(ct2, "find_spec", lambda name: None)
    written = export_ct2(run, tmp_path / "folder")
    assert written.difference is None
    assert "pip install 'cutaway[ct2]'" in written.notes[0]


def test_vectors_beside_the_weights_cannot_be_merged(tmp_path):
    run = RunFolder(random_run(tmp_path / "run"))
    config = dataclasses.replace(
        run.read_config(), finetune=FinetuneConfig(base="base", method="prefix", prompt_length=3)
    )
    write_text(run.config, config.to_json())
    os.rename(run.model, run.adapter)
    with pytest.raises(RunError, match="CTranslate2 needs plain weights. What finetune.method = 'prefix' learned"):
        export_ct2(run.path, tmp_path / "folder")


def test_the_snippet_of_the_docs_translates_as_the_translator_does(tmp_path, monkeypatch):
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
    told = cutaway_here("export", run, "folder", "--to", "ct2", "--dtype", "int8", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert "TransformerSpec: " in told.stdout
    assert "int8 is rounded" in told.stdout
    assert "model.bin" in told.stderr
    assert "ctranslate2.Translator(" in told.stderr
    about = json.loads((tmp_path / "folder/cutaway.json").read_text("utf-8"))
    assert about["dtype"] == "int8"
    assert about["reads"] == ["text", "eos"]
    for options, message in [
        (("--to", "hf", "--dtype", "int8"), "--dtype int8 has no effect with --to hf"),
        (("--to", "hf", "--no-check"), "--no-check has no effect with --to hf"),
        (("--to", "ct3"), "Did you mean 'ct2'"),
    ]:
        told = cutaway_here("export", run, "other", *options, cwd=tmp_path)
        assert told.returncode == 1
        assert message in told.stderr
        assert not (tmp_path / "other").exists()
