"""The name tables, tested on our own models without transformers: they are complete and invertible."""

import dataclasses
import json
import struct

import numpy as np
import pytest
import torch
from helpers import C, perturbed_model

from cutaway.config import ModelConfig
from cutaway.config.presets import preset
from cutaway.errors import ConfigError, DataError, RunError
from cutaway.interop import names
from cutaway.interop.architecture import UNRESTRICTED, HuggingFaceConfig
from cutaway.interop.huggingface import ARCHITECTURES, choose_architecture
from cutaway.interop.tensors import TensorFiles, read_bytes, read_folder, split_into_shards, write_folder
from cutaway.models.build import build_model
from cutaway.runs.recipe import read_recipe
from cutaway.system.resources import shipped_folder

# preset, changed settings, model_type
CASES = {
    "gpt2": ("tiny-gpt2", {}, "gpt2"),
    "gpt2-untied": ("tiny-gpt2", {"embeddings": "separate", "feed_forward": "silu"}, "gpt2"),
    "gpt2-scaled": ("tiny-gpt2", {"embedding_scale": "sqrt_d"}, "gpt2"),
    "gpt2-scaled-untied": ("tiny-gpt2", {"embedding_scale": "sqrt_d", "embeddings": "separate"}, "gpt2"),
    "bert": ("tiny-bert", {}, "bert"),
    "bert-no-segments": ("tiny-bert", {"segments": 0}, "bert"),
    "bert-classes": ("tiny-bert", {"head": "classes", "n_classes": C, "pooling": "cls_tanh"}, "bert"),
    "bert-tags": ("tiny-bert", {"head": "tags", "n_classes": C, "feed_forward": "gelu_tanh"}, "bert"),
    "bert-vectors": ("tiny-bert", {"head": "vectors", "pooling": "mean"}, "bert"),
    "t5": ("tiny-t5", {}, "t5"),
    "t5-1.1": ("tiny-t5", {"embeddings": "inputs", "embedding_scale": "one", "feed_forward": "geglu_tanh"}, "t5"),
    "t5-1.1-scaled": ("tiny-t5", {"embeddings": "inputs", "feed_forward": "swiglu", "d_head": 6}, "t5"),
    "t5-unscaled": ("tiny-t5", {"embedding_scale": "one", "feed_forward": "geglu"}, "t5"),
    "marian": ("tiny", {"output_bias": True, "feed_forward": "silu"}, "marian"),
    "marian-of-the-paper": ("tiny", {}, "marian"),
    "pegasus": ("tiny", {"norm_placement": "pre", "embedding_scale": "one"}, "pegasus"),
    "llama": ("tiny-llama", {}, "llama"),
    "llama-scaled": ("tiny-llama", {"embedding_scale": "sqrt_d"}, "llama"),
    "llama-with-biases": ("tiny-llama", {"bias": True, "d_head": 6, "embeddings": "separate"}, "llama"),
    "vit": ("tiny-vit", {}, "vit"),
    "vit-in-colour": ("tiny-vit", {"channels": 3, "feed_forward": "gelu_tanh"}, "vit"),
}
every_case = pytest.mark.parametrize("case", CASES)


def config_of(case: str) -> ModelConfig:
    name, changes, _ = CASES[case]
    return dataclasses.replace(preset(name), **changes)


def weights_of(model) -> dict[str, np.ndarray]:
    return {name: p.detach().numpy() for name, p in model.named_parameters()}


def round_trip(case: str):
    config = config_of(case)
    table = choose_architecture(config).table(config)
    ours = weights_of(perturbed_model(config))
    return table, ours, names.write(table, ours, "a run")


@every_case
def test_the_chosen_architecture(case):
    assert choose_architecture(config_of(case)).model_type == CASES[case][2]


@every_case
def test_every_weight_has_a_rule_and_survives_a_round_trip(case):
    table, ours, theirs = round_trip(case)
    assert sorted(table.names) == sorted(ours)  # each exactly once
    back, left_out = names.read(table, theirs, "a file")
    assert not set(left_out) - {*table.written_duplicates, *(name for rule in table.constants for name in rule.theirs)}
    assert {name: array.shape for name, array in back.items()} == {name: array.shape for name, array in ours.items()}
    for name, array in ours.items():
        assert np.allclose(back[name], array, rtol=1e-6, atol=0), name  # scaling rounds some
        assert back[name].dtype == array.dtype == np.float32


@every_case
def test_settings_survive_a_round_trip(case):
    """config_to and config_from are inverse, except for settings with the same meaning."""
    config = config_of(case)
    architecture = choose_architecture(config)
    hf_config = architecture.config_to(config)
    if config.head in ("classes", "tags"):
        hf_config["num_labels"] = config.n_classes
    _, _, theirs = round_trip(case)
    back = architecture.config_from(HuggingFaceConfig(json.loads(json.dumps(hf_config))), theirs)
    normal = {"init": config.init, "attention_kernel": config.attention_kernel}  # not in their config
    if config.embedding_scale == "sqrt_d" and architecture.model_type in ("gpt2", "llama"):
        normal |= {"embeddings": "separate", "embedding_scale": "one"}
    if case == "t5-1.1-scaled":
        normal["embedding_scale"] = "one"
    if architecture.model_type in ("marian", "pegasus"):
        normal["output_bias"] = True
    if case == "bert-no-segments":
        normal["segments"] = 1
    assert dataclasses.replace(back, **normal) == dataclasses.replace(config, **normal)


@every_case
def test_a_round_trip_gives_the_same_outputs(case):
    config = config_of(case)
    architecture = choose_architecture(config)
    torch.manual_seed(0)
    ours = perturbed_model(config)
    theirs = names.write(architecture.table(config), weights_of(ours), "a run")
    hf_config = architecture.config_to(config) | {"num_labels": config.n_classes or 2}
    again = architecture.config_from(HuggingFaceConfig(hf_config), theirs)
    read, _ = names.read(architecture.table(again), theirs, "a file")
    other = build_model(again).eval()
    other.load_state_dict({n: torch.tensor(read[n]) for n, _ in other.named_parameters()}, strict=False)
    inputs = inputs_for(config)
    with torch.no_grad():
        assert torch.allclose(other(*inputs), ours(*inputs), atol=1e-5)


def inputs_for(config):
    if config.family == "vision":
        return (torch.rand(2, config.channels, config.image_size, config.image_size),)
    ids = torch.randint(config.vocab_size, (2, 7))
    return (ids, ids.flip(1)) if config.family == "encoder_decoder" else (ids,)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_setting_has_a_requirement(name):
    """A new setting needs a requirement in every architecture, or belongs to UNRESTRICTED."""
    settings = {field.name for field in dataclasses.fields(ModelConfig)}
    assert settings == UNRESTRICTED | set(ARCHITECTURES[name].requirements)


# Reading: missing, unknown, duplicate tensors, and wrong shapes.


def test_a_missing_tensor():
    table, _, theirs = round_trip("gpt2")
    del theirs["transformer.h.1.mlp.c_fc.weight"]
    with pytest.raises(DataError, match=r"no tensor 'transformer.h.1.mlp.c_fc.weight'.*\(8, 16\).*config.json"):
        names.read(table, theirs, "a file")


def test_a_tensor_of_another_shape():
    table, _, theirs = round_trip("bert")
    theirs["bert.embeddings.LayerNorm.weight"] = np.ones(9, np.float32)
    expected = r"'bert.embeddings.LayerNorm.weight' in a file has the shape \(9,\).*requires \(8,\)"
    with pytest.raises(DataError, match=expected):
        names.read(table, theirs, "a file")


def test_an_unknown_tensor():
    table, _, theirs = round_trip("llama")
    theirs["model.layers.2.mlp.gate_proj.weight"] = np.ones((16, 8), np.float32)
    with pytest.raises(DataError, match=r"does not have: model.layers.2.mlp.gate_proj.weight\..*number of layers"):
        names.read(table, theirs, "a file")


@pytest.mark.parametrize(
    ("case", "first", "second"),
    [
        ("gpt2", "transformer.wte.weight", "lm_head.weight"),
        ("bert", "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),
        ("bert", "cls.predictions.bias", "cls.predictions.decoder.bias"),
        ("t5", "shared.weight", "decoder.embed_tokens.weight"),
        ("marian", "model.shared.weight", "lm_head.weight"),
        ("llama", "model.embed_tokens.weight", "lm_head.weight"),
    ],
)
def test_a_duplicate_tensor(case, first, second):
    """An equal duplicate is left out; another one raises; the second name alone is enough."""
    table, ours, theirs = round_trip(case)
    back, left_out = names.read(table, {**theirs, second: theirs[first].copy()}, "a file")
    assert left_out[second] == f"the same as {first}"
    assert back.keys() == ours.keys()
    with pytest.raises(DataError, match=rf"'{first}' and '{second}' in a file should be equal.*tie_word_embeddings"):
        names.read(table, {**theirs, second: theirs[first] + 1}, "a file")
    alone = {second if name == first else name: array for name, array in theirs.items()}
    again, _ = names.read(table, alone, "a file")
    assert all(np.array_equal(again[name], back[name]) for name in back)


@pytest.mark.parametrize(
    ("case", "extra"),
    [
        ("gpt2", {"transformer.h.0.attn.bias": (1, 1, 32, 32), "transformer.h.1.attn.masked_bias": ()}),
        ("bert", {"bert.embeddings.position_ids": (1, 32), "bert.pooler.dense.weight": (8, 8),
                  "cls.seq_relationship.weight": (2, 8)}),
        ("t5", {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": (8, 2)}),
        ("llama", {"model.layers.0.self_attn.rotary_emb.inv_freq": (2,)}),
        ("vit", {"vit.pooler.dense.bias": (8,)}),
    ],
)  # fmt: skip
def test_unused_tensors_are_left_out_with_a_reason(case, extra):
    table, ours, theirs = round_trip(case)
    back, left_out = names.read(table, {**theirs, **{n: np.ones(s, np.float32) for n, s in extra.items()}}, "a file")
    assert left_out.keys() == extra.keys()
    assert all(left_out.values())
    assert back.keys() == ours.keys()


@pytest.mark.parametrize("case", ["marian", "pegasus"])
def test_sinusoids_in_a_file_are_checked(case):
    table, ours, theirs = round_trip(case)
    name = "model.decoder.embed_positions.weight"
    known = {rule.theirs[0]: rule.write([])[0] for rule in (*table.constants, *table.unwritten_constants)}
    assert (name in theirs) == (case == "pegasus")
    back, left_out = names.read(table, {**theirs, name: known[name]}, "a file")
    assert name in left_out
    assert back.keys() == ours.keys()
    with pytest.raises(
        DataError, match=rf"'{name}' differs by up to .* from the constant that its architecture defines"
    ):
        names.read(table, {**theirs, name: known[name][:, ::-1].copy()}, "a file")


def test_other_spellings():
    """Without a prefix, and with the names of norms from TensorFlow."""
    table, ours, theirs = round_trip("bert")
    old = {
        name.removeprefix("bert.").replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): array
        for name, array in theirs.items()
    }
    assert not old.keys() & {name for name in theirs if "LayerNorm" in name}
    back, left_out = names.read(table, old, "a file")
    assert not left_out
    assert all(np.array_equal(back[name], ours[name]) for name in ours)
    table, ours, theirs = round_trip("gpt2")
    back, _ = names.read(table, {n.removeprefix("transformer."): array for n, array in theirs.items()}, "a file")
    assert all(np.array_equal(back[name], ours[name]) for name in ours)


def test_weights_of_another_run():
    table, ours, _ = round_trip("gpt2")
    with pytest.raises(RunError, match=r"missing \['decoder.norm.weight'\], unknown \['other'\]"):
        names.write(table, {**{n: a for n, a in ours.items() if n != "decoder.norm.weight"}, "other": ours["decoder.norm.bias"]}, "a run")  # fmt: skip
    with pytest.raises(RunError, match=r"decoder.norm.weight in a run.*requires \(8,\)"):
        names.write(table, {**ours, "decoder.norm.weight": np.ones(9, np.float32)}, "a run")


# Which of our models can be exported.


@pytest.mark.parametrize(
    ("recipe", "model_type"),
    [("demo", "pegasus"), ("tinyworld-en-de", "pegasus"), ("reverse", "marian"), ("paper-base-wmt14", "marian"),
     ("python-gpt", "llama")],
)  # fmt: skip
def test_recipes_that_can_be_exported(recipe, model_type):
    config = read_recipe(shipped_folder("recipes") / f"{recipe}.toml").model
    assert choose_architecture(config).model_type == model_type


@pytest.mark.parametrize(
    ("recipe", "nearest", "setting"),
    [
        ("digits-vit", "ViT", "model.pooling = 'mean' (ViT has 'cls')"),
        ("shakespeare", "Llama", "model.qk_norm = True (Llama has False)"),
        ("multi30k-en-de", "T5", "model.position = 'rope' (T5 has 'relative_bias')"),
        ("python-bert", "BERT", "model.position = 'rope' (BERT has 'learned')"),
    ],
)
def test_recipes_that_cannot_be_exported(recipe, nearest, setting):
    config = read_recipe(shipped_folder("recipes") / f"{recipe}.toml").model
    with pytest.raises(ConfigError) as error:
        choose_architecture(config)
    assert f"{nearest} is nearest" in str(error.value)
    assert setting in str(error.value)


# Settings of Hugging Face that Cutaway does not support.


@pytest.mark.parametrize(
    ("model_type", "setting", "message"),
    [
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True"),
        ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights = False"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention = True"),
        ("gpt2", {"activation_function": "quick_gelu"}, "activation_function = 'quick_gelu'.*gelu_new"),
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key'.*'absolute'"),
        ("bert", {"is_decoder": True}, "is_decoder = True"),
        ("bert", {"hidden_act": "relu"}, "hidden_act = 'relu'"),
        ("bert", {"tie_word_embeddings": False}, "tie_word_embeddings = False"),
        ("bert", {"architectures": ["BertForSequenceClassification"], "problem_type": "regression"},
         "problem_type = 'regression'"),
        ("bert", {"architectures": ["BertForSequenceClassification"], "num_labels": 1}, "num_labels = 1"),
        ("t5", {"feed_forward_proj": "gated-relu"}, "feed_forward_proj = 'gated-relu'.*gated-gelu"),
        ("t5", {"relative_attention_num_buckets": 30}, "relative_buckets = 30"),
        ("marian", {"decoder_vocab_size": 99}, "decoder_vocab_size = 99"),
        ("marian", {"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings = False"),
        ("marian", {"normalize_embedding": True}, "normalize_embedding = True"),
        ("marian", {"normalize_before": True}, "normalize_before = True"),
        ("marian", {"static_position_embeddings": False}, "static_position_embeddings = False"),
        ("marian", {"decoder_ffn_dim": 99}, "decoder_ffn_dim = 99"),
        ("marian", {"d_model": 9, "encoder_attention_heads": 3, "decoder_attention_heads": 3}, "d_model = 9"),
        ("pegasus", {"normalize_before": False}, "normalize_before = False"),
        ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "no low_freq_factor"),
        ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope type = 'dynamic'"),
        ("llama", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope type = 'yarn'"),
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
         "partial_rotary_factor = 0.5"),
        ("llama", {"attention_bias": True}, "attention_bias = True and mlp_bias = False"),
        ("llama", {"hidden_act": "relu"}, "hidden_act = 'relu'"),
        ("vit", {"qkv_bias": False}, "qkv_bias = False"),
        ("vit", {"image_size": [224, 192]}, r"image_size = \[224, 192\]"),
        ("vit", {"id2label": {"0": "a", "2": "b"}}, "id2label"),
    ],
)  # fmt: skip
def test_unsupported_settings(model_type, setting, message):
    architecture = ARCHITECTURES[model_type]
    settings = HuggingFaceConfig({"architectures": [architecture.classes[0]], **setting}, "the model in FOLDER")
    with pytest.raises(ConfigError, match=message):
        architecture.config_from(settings, {"final_logits_bias": np.zeros(1)})
    architecture.config_from(
        HuggingFaceConfig({"architectures": [architecture.classes[0]]}), {}
    )  # without the setting it works


def test_both_formats_of_rope_settings():
    config_from = ARCHITECTURES["llama"].config_from
    assert config_from(HuggingFaceConfig({"rope_theta": 500_000.0, "rope_scaling": None}), {}).rope_base == 500_000.0
    assert (
        config_from(HuggingFaceConfig({"rope_parameters": {"rope_type": "default", "rope_theta": 3e5}}), {}).rope_base
        == 3e5
    )
    assert config_from(HuggingFaceConfig({"rope_scaling": {"rope_type": "default"}}), {}).rope_base == 10_000.0
    scaled = config_from(HuggingFaceConfig({"rope_theta": 3e5, "rope_scaling": {"type": "linear", "factor": 2}}), {})
    assert (scaled.rope_base, scaled.rope_scaling, scaled.rope_factor) == (3e5, "linear", 2.0)


def test_formats_of_t5_without_scaling():
    """T5 1.1 as published, and as transformers 5 writes it, which always sets tie_word_embeddings."""
    config_from = ARCHITECTURES["t5"].config_from
    one, other = np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)
    files = {
        "tied": {"shared.weight": one},
        "twice": {"shared.weight": one, "lm_head.weight": one.copy()},
        "own": {"shared.weight": one, "lm_head.weight": other},
    }

    def read(file, **settings):
        config = config_from(HuggingFaceConfig(settings), files[file])
        return config.embeddings, config.embedding_scale

    assert read("tied") == read("twice") == read("tied", scale_decoder_outputs=True) == ("shared", "sqrt_d")
    assert read("own", tie_word_embeddings=False) == ("inputs", "one")
    assert read("own", tie_word_embeddings=True, scale_decoder_outputs=False) == ("inputs", "one")
    assert read("tied", tie_word_embeddings=True, scale_decoder_outputs=False) == ("shared", "one")
    with pytest.raises(ConfigError, match=r'lm_head.weight.*"tie_word_embeddings": false'):
        read("own", tie_word_embeddings=True, scale_decoder_outputs=True)


# Files.


def make_file(arrays, kinds=None) -> bytes:
    """A safetensors file, built without the library."""
    header, data = {}, b""
    for name, array in arrays.items():
        kind = (kinds or {}).get(name) or {"f4": "F32", "f8": "F64", "f2": "F16", "i8": "I64"}[array.dtype.str[1:]]
        end = len(data) + array.nbytes
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), end]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def read_raw(content: bytes) -> TensorFiles:
    return TensorFiles(read_bytes(np.frombuffer(content, np.uint8), "a file"))


def test_number_types():
    numbers = np.array([[1.5, -2.25], [0.0, 3e38], [1e-40, -0.0]], np.float32)
    brain = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    tensors = read_raw(
        make_file(
            {"single": numbers, "double": numbers.astype(np.float64), "half": numbers[:2, :1].astype(np.float16),
             "brain": brain, "ids": np.arange(3)},
            {"brain": "BF16"},
        )
    )  # fmt: skip
    assert tensors["double"].dtype == np.float64
    assert np.array_equal(tensors["single"], numbers)
    assert np.array_equal(tensors["half"], numbers[:2, :1])
    assert np.array_equal(tensors["brain"], torch.tensor(brain.view(np.int16)).view(torch.bfloat16).float().numpy())
    assert {tensors[name].dtype for name in ("single", "half", "brain")} == {np.dtype(np.float32)}
    with pytest.raises(DataError, match=r"'ids' in a file has the type I64"):
        tensors["ids"]


WHOLE = make_file({"a": np.ones((2, 3), np.float32), "b": np.zeros(4, np.float32)})


@pytest.mark.parametrize(
    "content",
    [b"", WHOLE[:5], WHOLE[:40], WHOLE[:-1], WHOLE[:-4], WHOLE + b"\0", b"\xff" * 64,
     WHOLE.replace(b"[2, 3]", b"[2, 4]"), WHOLE.replace(b'"shape"', b'"sharp"'), struct.pack("<Q", 2) + b"[]"],
)  # fmt: skip
def test_an_incomplete_file(content, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(DataError, match=r"model.safetensors is (not a complete safetensors file|empty).*again"):
        read_folder(tmp_path)


def some_arrays():
    draw = np.random.default_rng(0)
    return {f"tensor.{i}": draw.normal(size=(i + 1, 5)).astype(np.float32) for i in range(6)}


@pytest.mark.parametrize("shard_bytes", [1, 60, 100, 10**9])
def test_shards(tmp_path, shard_bytes):
    """Read what was written. No shard is larger than `shard_bytes`, unless it has only one tensor."""
    arrays = some_arrays()
    files = write_folder(tmp_path, arrays, shard_bytes)
    assert (len(files) == 1) == (shard_bytes == 10**9)
    found = read_folder(tmp_path)
    assert found.keys() == arrays.keys()
    assert all(np.array_equal(found[name], array) for name, array in arrays.items())
    for shard in split_into_shards(arrays, shard_bytes):
        assert len(shard) == 1 or sum(array.nbytes for array in shard.values()) <= shard_bytes


def test_a_missing_shard(tmp_path):
    files = write_folder(tmp_path, some_arrays(), 60)
    (tmp_path / files[1]).unlink()
    with pytest.raises(DataError, match=rf"the shard {files[1]} is missing.*download"):
        read_folder(tmp_path)


def test_a_wrong_index(tmp_path):
    write_folder(tmp_path, some_arrays(), 60)
    path = tmp_path / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    wrong = {**index["weight_map"], "tensor.9": index["weight_map"]["tensor.0"]}
    path.write_text(json.dumps({"weight_map": wrong}))
    with pytest.raises(DataError, match=r"'tensor.9' is not in .*model-00001.*index"):
        read_folder(tmp_path)
    path.write_text(json.dumps({"weight_map": {"tensor.0": "../../elsewhere.safetensors"}}))
    with pytest.raises(DataError, match=r"elsewhere.safetensors', which is not a file in the same folder"):
        read_folder(tmp_path)
    path.write_text("{}")
    with pytest.raises(DataError, match="weight_map"):
        read_folder(tmp_path)
    path.write_text("{")
    with pytest.raises(DataError, match="not valid JSON"):
        read_folder(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "model.pt", "model.ckpt",
                                  "tf_model.h5", "flax_model.msgpack"])  # fmt: skip
def test_nothing_is_unpickled(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x80\x04cos\nsystem\n")
    (tmp_path / "config.json").write_text('{"architectures": ["GPT2LMHeadModel"]}')
    with pytest.raises(DataError) as error:
        read_folder(tmp_path)
    assert name in str(error.value)
    assert f'GPT2LMHeadModel.from_pretrained("{tmp_path}").save_pretrained("{tmp_path}")' in str(error.value)


def test_no_weights(tmp_path):
    with pytest.raises(DataError, match=r"no weights in .*save_pretrained"):
        read_folder(tmp_path)
    (tmp_path / "adapter_model.safetensors").write_bytes(WHOLE)
    with pytest.raises(DataError, match=r"an adapter.*merge_and_unload"):
        read_folder(tmp_path)
