"""The same weights, the same answers: ours against Hugging Face, on tiny random models that are made here.

Each architecture has three small functions: their model for our configuration, their weights under our names, and
inputs in both tongues. Nothing is downloaded, ever.
"""

import contextlib
import dataclasses
import math
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before transformers is imported

import pytest
import torch
from helpers import max_difference
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from cutaway.models.build import build_model, count_parameters
from cutaway.models.presets import preset
from cutaway.nn.positions import t5_bucket

# transformers takes seconds to import, so only the functions that need it do, and the quick tier never pays for it.

pytestmark = pytest.mark.slow

CLOSE = {torch.float64: 1e-8, torch.float32: 1e-5}
EAGER = {"attn_implementation": "eager"}


class StayDouble(TorchFunctionMode):
    """Their norms, rotations and softmaxes go through float32 even in a double-precision model; here they may not.

    Otherwise Llama and T5 would agree with nobody to more than seven digits, and a small mistake could hide there.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        args = tuple(torch.float64 if a is torch.float32 else a for a in args)
        return func(*args, **{k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()})


def their_precision():
    """What to build and run a model of theirs in, such that it has the default precision throughout."""
    return StayDouble() if torch.get_default_dtype() == torch.float64 else contextlib.nullcontext()


# Their models, for a configuration of ours.


def gpt2(c):
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=c.vocab_size, n_embd=c.d_model, n_inner=c.d_ff, n_layer=c.decoder_layers, n_head=c.n_heads,
            n_positions=c.max_length, layer_norm_epsilon=c.norm_epsilon, resid_pdrop=0.0, embd_pdrop=0.0,
            attn_pdrop=0.0, bos_token_id=None, eos_token_id=None, pad_token_id=0, **EAGER,
        )
    )  # fmt: skip


def bert(c):
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(
        BertConfig(
            vocab_size=c.vocab_size, hidden_size=c.d_model, intermediate_size=c.d_ff, num_attention_heads=c.n_heads,
            num_hidden_layers=c.encoder_layers, max_position_embeddings=c.max_length, type_vocab_size=c.segments,
            layer_norm_eps=c.norm_epsilon, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            pad_token_id=None, **EAGER,
        )
    )  # fmt: skip


def t5(c):
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=c.vocab_size, d_model=c.d_model, d_kv=c.head_width, d_ff=c.d_ff, num_heads=c.n_heads,
            num_layers=c.encoder_layers, num_decoder_layers=c.decoder_layers, layer_norm_epsilon=c.norm_epsilon,
            relative_attention_num_buckets=c.relative_buckets, relative_attention_max_distance=c.relative_distance,
            dropout_rate=0.0, eos_token_id=None, pad_token_id=0, decoder_start_token_id=0, **EAGER,
        )
    )  # fmt: skip


def llama(c):
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=c.vocab_size, hidden_size=c.d_model, intermediate_size=c.d_ff, head_dim=c.head_width,
            num_attention_heads=c.n_heads, num_key_value_heads=c.kv_heads, num_hidden_layers=c.decoder_layers,
            max_position_embeddings=c.max_length, rms_norm_eps=c.norm_epsilon,
            rope_parameters={"rope_type": "default", "rope_theta": c.rope_base},
            tie_word_embeddings=c.embeddings != "separate", bos_token_id=None, eos_token_id=None, **EAGER,
        )
    )  # fmt: skip


def vit(c):
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(
        ViTConfig(
            num_labels=c.n_classes, hidden_size=c.d_model, intermediate_size=c.d_ff, num_attention_heads=c.n_heads,
            num_hidden_layers=c.encoder_layers, image_size=c.image_size, patch_size=c.patch_size,
            num_channels=c.channels, layer_norm_eps=c.norm_epsilon, **EAGER,
        )
    )  # fmt: skip


# Their weights under our names. Each is taken out of `w`, so none is used twice and a forgotten one is left over.


def renamed(w, names):
    """{our part: their part} -> {our name: tensor}, the weight of each part, and the bias if it has one."""
    return {
        f"{ours}.{kind}": w.pop(f"{theirs}.{kind}")
        for ours, theirs in names.items()
        for kind in ("weight", "bias")
        if f"{theirs}.{kind}" in w
    }


def in_each_layer(ours, theirs, n_layers, names):
    """{part of a layer of ours: of theirs} -> the same for all layers of a stack."""
    return {f"{ours}.{i}.{a}": f"{theirs}.{i}.{b}" for i in range(n_layers) for a, b in names.items()}


def gpt2_weights(w, c):
    """Their Conv1D is a Linear whose matrix lies on its side; one of them makes queries, keys and values at once."""
    for name in [n for n in w if ".c_" in n and n.endswith("weight")]:
        w[name] = w[name].T
    for name in [n for n in w if "c_attn" in n]:
        for part, tensor in zip("qkv", w.pop(name).chunk(3), strict=True):
            w[name.replace("c_attn", part)] = tensor
    layer = {
        "self_attention.query": "attn.q",
        "self_attention.key": "attn.k",
        "self_attention.value": "attn.v",
        "self_attention.output": "attn.c_proj",
        "self_attention_residual.norm": "ln_1",
        "feed_forward.expand": "mlp.c_fc",
        "feed_forward.contract": "mlp.c_proj",
        "feed_forward_residual.norm": "ln_2",
    }
    names = {"embedding.tokens": "transformer.wte", "decoder.norm": "transformer.ln_f"}
    names |= in_each_layer("decoder.layers", "transformer.h", c.decoder_layers, layer)
    return {"embedding.position.table": w.pop("transformer.wpe.weight"), **renamed(w, names)}


def bert_weights(w, c):
    layer = {
        "self_attention.query": "attention.self.query",
        "self_attention.key": "attention.self.key",
        "self_attention.value": "attention.self.value",
        "self_attention.output": "attention.output.dense",
        "self_attention_residual.norm": "attention.output.LayerNorm",
        "feed_forward.expand": "intermediate.dense",
        "feed_forward.contract": "output.dense",
        "feed_forward_residual.norm": "output.LayerNorm",
    }
    names = {
        "embedding.tokens": "bert.embeddings.word_embeddings",
        "embedding.segments": "bert.embeddings.token_type_embeddings",
        "embedding.norm": "bert.embeddings.LayerNorm",
        "head.transform": "cls.predictions.transform.dense",
        "head.norm": "cls.predictions.transform.LayerNorm",
        "head": "cls.predictions",
    }
    names |= in_each_layer("encoder.layers", "bert.encoder.layer", c.encoder_layers, layer)
    return {
        "embedding.position.table": w.pop("bert.embeddings.position_embeddings.weight"),
        **renamed(w, names),
    }


def t5_weights(w, c):
    """T5 does not divide its scores by sqrt(E), so our queries must be so much larger.

    It scales its output by 1/sqrt(D) before the shared matrix, where we scale the embeddings by sqrt(D).
    """
    for name in [n for n in w if n.endswith("Attention.q.weight")]:
        w[name] = w[name] * math.sqrt(c.head_width)
    table = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"  # in the first layer, but all use it
    return {
        "source_embedding.tokens.weight": w.pop("shared.weight") / math.sqrt(c.d_model),
        "source_embedding.position.table": w.pop(f"encoder.{table}"),
        "target_embedding.position.table": w.pop(f"decoder.{table}"),
        **t5_stack(w, "encoder", c.encoder_layers, ["self_attention", "feed_forward"]),
        **t5_stack(w, "decoder", c.decoder_layers, ["self_attention", "cross_attention", "feed_forward"]),
    }


def t5_stack(w, stack, n_layers, sublayers):
    """They number the sub-layers of a layer, where we name them."""
    attention = {"query": "q", "key": "k", "value": "v", "output": "o"}
    modules = {
        "self_attention": ("SelfAttention", attention),
        "cross_attention": ("EncDecAttention", attention),
        "feed_forward": ("DenseReluDense", {"expand": "wi", "contract": "wo"}),
    }
    layer = {}
    for i, name in enumerate(sublayers):
        module, parts = modules[name]
        layer |= {f"{name}.{ours}": f"layer.{i}.{module}.{theirs}" for ours, theirs in parts.items()}
        layer[f"{name}_residual.norm"] = f"layer.{i}.layer_norm"
    names = in_each_layer(f"{stack}.layers", f"{stack}.block", n_layers, layer)
    return renamed(w, {f"{stack}.norm": f"{stack}.final_layer_norm", **names})


def llama_weights(w, c):
    for name in [n for n in w if "q_proj" in n or "k_proj" in n]:
        w[name] = pairs_side_by_side(w[name], c.head_width)
    layer = {
        "self_attention.query": "self_attn.q_proj",
        "self_attention.key": "self_attn.k_proj",
        "self_attention.value": "self_attn.v_proj",
        "self_attention.output": "self_attn.o_proj",
        "self_attention_residual.norm": "input_layernorm",
        "feed_forward.gate": "mlp.gate_proj",
        "feed_forward.expand": "mlp.up_proj",
        "feed_forward.contract": "mlp.down_proj",
        "feed_forward_residual.norm": "post_attention_layernorm",
    }
    names = {"embedding.tokens": "model.embed_tokens", "decoder.norm": "model.norm", "head": "lm_head"}
    return renamed(w, names | in_each_layer("decoder.layers", "model.layers", c.decoder_layers, layer))


def pairs_side_by_side(weight, d_head):
    """Their RoPE turns the pairs (i, i + E/2) of a head, ours (2i, 2i+1): its rows, halves interleaved."""
    halves = weight.view(-1, 2, d_head // 2, weight.size(1))
    return halves.transpose(1, 2).reshape(weight.shape)


def vit_weights(w, c):
    """Their patches go through a convolution whose stride is its width: a Linear on each patch laid out flat."""
    layer = {
        "self_attention.query": "attention.q_proj",
        "self_attention.key": "attention.k_proj",
        "self_attention.value": "attention.v_proj",
        "self_attention.output": "attention.o_proj",
        "self_attention_residual.norm": "layernorm_before",
        "feed_forward.expand": "mlp.fc1",
        "feed_forward.contract": "mlp.fc2",
        "feed_forward_residual.norm": "layernorm_after",
    }
    patches = "vit.embeddings.patch_embeddings.projection"
    w[f"{patches}.weight"] = w[f"{patches}.weight"].flatten(1)
    names = {"embedding.project": patches, "encoder.norm": "vit.layernorm", "head.classify": "classifier"}
    names |= in_each_layer("encoder.layers", "vit.layers", c.encoder_layers, layer)
    return {
        "embedding.class_token": w.pop("vit.embeddings.cls_token")[0],
        "embedding.position.table": w.pop("vit.embeddings.position_embeddings")[0],
        **renamed(w, names),
    }


# The same inputs in our words and in theirs, and where the answers are compared.


def random_tokens(c, *shape):
    return torch.randint(c.vocab_size, shape)


def is_token(*lengths):
    """[B,T], True at the first so many of each row. What stands in the padding is random: it must not matter."""
    return torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]


def decoder_batch(c, length, padded):
    ids = random_tokens(c, 3, length)
    if not padded:
        return {"ids": ids}, {"input_ids": ids}, ...
    mask = is_token(length, length // 2, 1)
    return {"ids": ids, "mask": mask}, {"input_ids": ids, "attention_mask": mask.long()}, mask


def encoder_batch(c, length, padded):
    """Padded, the tokens are of several segments; otherwise neither model is told, and all are of the first."""
    ours, theirs, real = decoder_batch(c, length, padded)
    if padded:
        ours["segments"] = theirs["token_type_ids"] = torch.randint(c.segments, (3, length))
    return ours, theirs, real


def encoder_decoder_batch(c, length, padded):
    source, target = random_tokens(c, 3, length + 1), random_tokens(c, 3, length)
    ours = {"source": source, "target_in": target}
    theirs = {"input_ids": source, "decoder_input_ids": target}
    if not padded:
        return ours, theirs, ...
    source_mask, target_mask = is_token(3, length + 1, length // 2), is_token(length // 2, length, 1)
    ours |= {"source_mask": source_mask, "target_mask": target_mask}
    theirs |= {"attention_mask": source_mask.long(), "decoder_attention_mask": target_mask.long()}
    return ours, theirs, target_mask


def vision_batch(c, length, padded):
    images = torch.randn(3, c.channels, c.image_size, c.image_size)
    return {"images": images}, {"pixel_values": images}, ...


BATCHES = {
    "decoder": decoder_batch,
    "encoder": encoder_batch,
    "encoder_decoder": encoder_decoder_batch,
    "vision": vision_batch,
}


# The models side by side.

ARCHITECTURES = {
    "tiny-gpt2": (gpt2, gpt2_weights),
    "tiny-bert": (bert, bert_weights),
    "tiny-t5": (t5, t5_weights),
    "tiny-llama": (llama, llama_weights),
    "tiny-vit": (vit, vit_weights),
}

# the preset, what is different, and how long the texts are
CASES = {
    "gpt2": ("tiny-gpt2", {}, 12),
    "gpt2-one-head": ("tiny-gpt2", {"n_heads": 1}, 12),
    "gpt2-eight-heads": ("tiny-gpt2", {"n_heads": 8, "d_ff": 24, "norm_epsilon": 1e-3}, 40),
    "bert": ("tiny-bert", {}, 12),
    "bert-three-segments": ("tiny-bert", {"segments": 3, "n_heads": 2}, 40),
    "t5": ("tiny-t5", {}, 48),
    "t5-as-published": ("tiny-t5", {"relative_buckets": 32, "relative_distance": 128}, 150),
    "t5-odd-buckets": ("tiny-t5", {"relative_buckets": 20, "relative_distance": 37, "n_heads": 2}, 60),
    "t5-wide-heads": ("tiny-t5", {"d_head": 6, "encoder_layers": 1}, 12),
    "llama-multi-query": ("tiny-llama", {"n_kv_heads": 1}, 12),
    "llama-grouped": ("tiny-llama", {"n_kv_heads": 2}, 12),
    "llama-full": ("tiny-llama", {"n_kv_heads": 4}, 12),
    "llama-untied": ("tiny-llama", {"n_kv_heads": 2, "embeddings": "separate", "rope_base": 500_000.0}, 60),
    "llama-wide-heads": ("tiny-llama", {"n_kv_heads": 2, "d_head": 6}, 12),
    "vit": ("tiny-vit", {"image_size": 8, "patch_size": 4}, 0),
    "vit-in-colour": ("tiny-vit", {"image_size": 12, "patch_size": 3, "channels": 3, "n_heads": 2, "n_classes": 7}, 0),
}
every_case = pytest.mark.parametrize("case", CASES)
double = pytest.mark.usefixtures("double")


def sized(name, **changes):
    """The preset, a little larger, so that heads, layers and widths cannot be taken for one another."""
    tiny = preset(name)
    sizes = {"d_model": 16, "d_ff": 40, "n_heads": 4}
    sizes |= {n: 3 for n in ("encoder_layers", "decoder_layers") if getattr(tiny, n) == 2}
    if tiny.family != "vision":
        sizes |= {"vocab_size": 61, "max_length": 160}
    return dataclasses.replace(tiny, **sizes | changes)


def both(case, spread=0.2):
    """(our configuration, our model, theirs), of the same weights, whose matrices have this standard deviation."""
    name, changes, _ = CASES[case]
    config = sized(name, **changes)
    torch.manual_seed(0)
    with their_precision():
        theirs = ARCHITECTURES[name][0](config).eval()
    randomize(theirs, spread)
    ours = build_model(config).eval()
    load(ours, translated(case, config, theirs))
    return config, ours, theirs


@torch.no_grad()
def randomize(model, spread):
    """Biases that are not 0, norms that are not 1, attention that is not even: a forgotten weight is noticed.

    Norms of either sign, since otherwise a model whose matrices are tied says its last token over and over.
    """
    for parameter in model.parameters():
        noise = torch.randn_like(parameter)
        parameter.copy_(noise.sign() * parameter + 0.3 * noise if parameter.dim() == 1 else spread * noise)


def translated(case, config, theirs):
    weights = dict(theirs.named_parameters())
    ours = ARCHITECTURES[CASES[case][0]][1](weights, config)
    assert not weights, f"not used: {sorted(weights)}"
    return ours


@torch.no_grad()
def load(model, weights):
    """Every parameter, exactly once, in its very shape."""
    parameters = dict(model.named_parameters())
    assert weights.keys() == parameters.keys()
    for name, parameter in parameters.items():
        assert parameter.shape == weights[name].shape, name
        parameter.copy_(weights[name])


def batch_for(case, config, padded):
    return BATCHES[config.family](config, CASES[case][2], padded)


def their_logits(model, inputs):
    with their_precision():
        return model(**inputs).logits


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])  # an image has no padding either way
@pytest.mark.parametrize("precision", [torch.float64, torch.float32], ids=["double", "single"])
@every_case
@torch.no_grad()
def test_logits(case, precision, padded, request):
    if precision == torch.float64:
        request.getfixturevalue("double")
    config, ours, theirs = both(case)
    our_inputs, their_inputs, real = batch_for(case, config, padded)
    expected = their_logits(theirs, their_inputs)[real]
    assert expected.dtype == precision
    assert expected.std() > 0.1  # else there would be little to agree on
    assert max_difference(ours(**our_inputs)[real], expected) < CLOSE[precision]


@double
@every_case
def test_gradients(case):
    """With respect to each of their weights: through their model, and through our names for them and our model."""
    config, ours, theirs = both(case)
    our_inputs, their_inputs, real = batch_for(case, config, padded=True)
    expected = their_logits(theirs, their_inputs)[real]
    found = functional_call(ours, translated(case, config, theirs), kwargs=our_inputs)[real]
    direction = torch.randn_like(expected)
    names, weights = zip(*theirs.named_parameters(), strict=True)
    gradients = [torch.autograd.grad(logits, weights, direction) for logits in (found, expected)]
    for name, one, other in zip(names, *gradients, strict=True):
        assert max_difference(one, other) < 1e-8, name
        # what adds the same to all scores of a query, as a bias of the keys does, has no influence at all
        assert other.abs().max() > 1e-6 or is_key_bias(name), f"{name} does not matter, so agreement says nothing"


def is_key_bias(name):
    return name.endswith(("key.bias", "k_proj.bias"))


@double
@pytest.mark.parametrize("case", [c for c in CASES if "gpt2" in c or "llama" in c])
@torch.no_grad()
def test_greedy_text_of_a_decoder(case):
    config, ours, theirs = both(case, spread=0.6)
    prompt, cache = random_tokens(config, 8, 5), ours.new_cache()
    written = greedy(lambda new: ours.head(ours.decode(new, cache=cache)), prompt)
    assert_same_text(written, their_greedy(theirs, input_ids=prompt))


@double
@pytest.mark.parametrize("case", [c for c in CASES if "t5" in c])
@torch.no_grad()
def test_greedy_text_of_an_encoder_decoder(case):
    """Sources of different lengths, so that a mask forgotten in a cached step is noticed."""
    config, ours, theirs = both(case, spread=0.6)
    source, mask = random_tokens(config, 8, 30), is_token(30, 25, 22, 17, 9, 4, 2, 1)
    memory, cache = ours.encode(source, mask), ours.new_cache()
    start = torch.zeros(8, 1, dtype=torch.long)
    written = greedy(lambda new: ours.head(ours.decode(new, memory, mask, cache=cache)), start)
    assert_same_text(written, their_greedy(theirs, input_ids=source, attention_mask=mask.long()))


def greedy(logits, text, n_new=12):
    """The likeliest token, again and again; the cache remembers all but the new one. -> tokens [B,12], logits"""
    seen = [logits(text)[:, -1]]
    for _ in range(n_new - 1):
        seen.append(logits(seen[-1].argmax(-1, keepdim=True))[:, -1])
    seen = torch.stack(seen, dim=1)
    return seen.argmax(-1), seen


def their_greedy(model, **inputs):
    """Without a cache, so that ours, which has one, is held against the whole computation at each step."""
    inputs.setdefault("attention_mask", torch.ones_like(inputs["input_ids"]))
    how = {"max_new_tokens": 12, "do_sample": False, "num_beams": 1, "use_cache": False}
    with their_precision():
        out = model.generate(**inputs, **how, return_dict_in_generate=True, output_logits=True)
    return out.sequences[:, -12:], torch.stack(out.logits, dim=1)


def assert_same_text(ours, theirs):
    """Token for token; and the logits too, since tiny models repeat themselves."""
    assert ours[0].tolist() == theirs[0].tolist()
    assert max_difference(ours[1], theirs[1]) < 1e-8
    assert len(ours[0].unique()) > 4


@pytest.mark.parametrize("precision", [torch.float64, torch.float32], ids=["double", "single"])
@pytest.mark.parametrize("causal", [False, True], ids=["both-ways", "causal"])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 16), (16, 40), (20, 37), (64, 1000), (4, 3)])
def test_t5_buckets(buckets, max_distance, causal, precision, request):
    """Every distance that there could be: no text is long enough to meet them all."""
    from transformers.models.t5.modeling_t5 import T5Attention

    if precision == torch.float64:
        request.getfixturevalue("double")
    distance = torch.arange(-1200, 1201)
    with their_precision():
        expected = T5Attention._relative_position_bucket(distance, not causal, buckets, max_distance)
    assert torch.equal(t5_bucket(distance, buckets, max_distance, causal), expected)


def test_t5_buckets_do_not_depend_on_the_precision(request):
    """A far distance may fall right on an edge, where single and double precision could round to either side."""
    distance = torch.arange(-1200, 1201)
    single = [t5_bucket(distance, 32, 128, causal) for causal in (False, True)]
    request.getfixturevalue("double")
    double = [t5_bucket(distance, 32, 128, causal) for causal in (False, True)]
    assert torch.equal(torch.stack(single), torch.stack(double))


def published(name):
    """Their model of a preset, from their own default sizes wherever those are the published ones."""
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
    """To the unit, of models without memory for their weights."""
    with torch.device("meta"):
        ours, theirs = build_model(preset(name)), published(name)
    assert count_parameters(ours) == theirs.num_parameters() == count
