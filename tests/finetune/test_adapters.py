"""LoRA, prefix and prompt tuning in a model: what they compute, and that nothing else changes."""

import itertools
import math
import threading

import pytest
import torch
from helpers import V, batch_for, max_difference, perturbed_model, random_ids, tiny_of
from helpers import is_possible as can_be_built
from torch import nn

from cutaway.config import FinetuneConfig
from cutaway.config.presets import preset
from cutaway.decode.beam import beam_search
from cutaway.decode.sampling import greedy
from cutaway.decode.stepper import TextStepper, TranslationStepper
from cutaway.errors import ConfigError, DataError
from cutaway.finetune.adapt import adapt
from cutaway.finetune.lora import LoRALinear, merge, unmerge
from cutaway.finetune.prefix import PrefixedAttention
from cutaway.models import build
from cutaway.models.build import build_model
from cutaway.models.weights import trainable_parameters
from cutaway.nn import kernels
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.cache import KVCache
from cutaway.nn.masks import Causal, Mask
from cutaway.nn.recording import edit_activations, record_activations
from cutaway.train.objectives import OBJECTIVES

FAMILIES = [{"family": "encoder_decoder"}, {"family": "decoder"}, {"family": "encoder"}, {"family": "vision"}]
METHODS = ["lora", "prefix", "prompt"]
# settings that prefixes and prompts must work with: every position scheme, every attention, and changed shapes
CHOICES = [
    {"position": "sinusoidal", "n_kv_heads": 1, "norm_placement": "pre"},
    {"position": "learned", "attention": "window"},
    {"position": "rope", "block": "parallel", "qk_norm": True},
    {"position": "alibi", "attention": "sparse"},
    {"position": "relative_bias", "attention_kernel": "exact", "attention_softcap": 5.0},
    {"position": "relative", "attention_kernel": "exact"},
    {"position": "none", "experts": 3},
    {"position": "sinusoidal", "attention": "linear"},
]
VECTORS = ["prefix", "prompt"]


def test_every_choice_is_covered():
    assert {choice["position"] for choice in CHOICES} == set(build.POSITIONS)
    assert {choice.get("attention", "full") for choice in CHOICES} == set(build.ATTENTIONS)


def finetune(method, **changes):
    return FinetuneConfig(base="somewhere", method=method, **changes)


def adapted_model(config, method, seed=0, **changes):
    """A model with a perturbed adapter, in double precision."""
    model = perturbed_model(config, seed).double()
    settings = {"prompt_length": 3} if method in ("prefix", "prompt") else {"rank": 2}
    adapt(model, finetune(method, **{**settings, **changes}))
    with torch.no_grad():
        for weight in trainable_parameters(model).values():
            weight.add_(0.3 * torch.randn_like(weight))
    return model.eval()


def forward(model, config, seed=0):
    batch = batch_for(config, seed)
    if config.family == "vision":
        return model(batch.images.to(next(model.parameters()).dtype))
    return OBJECTIVES[config.task](model, batch).logits


def is_possible(method, choice):
    return method != "prefix" or choice.get("attention") != "linear"


def cases(*families, choices=CHOICES):
    return [
        pytest.param(
            method, {"family": family, **choice}, id=f"{method}-{family}-{'-'.join(map(str, choice.values()))}"
        )
        for method in VECTORS
        for family in families
        for choice in choices
        if is_possible(method, choice)
    ]


# ---- LoRA ----------------------------------------------------------------------------------------------------


def test_lora_linear_equals_the_equation():
    torch.manual_seed(0)
    linear = nn.Linear(5, 7).double()
    part = LoRALinear(linear, rank=2, alpha=3.0)
    x = torch.randn(4, 5, dtype=torch.float64)
    assert torch.equal(part(x), linear(x))  # B is zero at the start
    with torch.no_grad():
        part.up.normal_()
    expected = x @ linear.weight.T + linear.bias + 3.0 / 2 * (x @ part.down.T) @ part.up.T
    assert max_difference(part(x), expected) < 1e-12
    assert part.weight is linear.weight
    assert list(dict(part.named_parameters())) == ["weight", "bias", "down", "up"]


@pytest.mark.parametrize("choice", FAMILIES, ids=lambda choice: choice["family"])
def test_merging_and_unmerging(choice):
    config = tiny_of(**choice)
    model = adapted_model(config, "lora", target_modules=("*_attention.*", "*.feed_forward.*"), alpha=5.0)
    weights = {name: weight.clone() for name, weight in model.named_parameters()}
    apart = forward(model, config)
    merge(model)
    together = forward(model, config)
    assert not torch.equal(apart, together)  # the sums are rounded in another order
    assert max_difference(apart, together) < 1e-10
    changed = [name for name, weight in model.named_parameters() if not torch.equal(weight, weights[name])]
    assert len(changed) == sum(isinstance(part, LoRALinear) for part in model.modules())
    merge(model)  # a second merge changes nothing
    assert torch.equal(forward(model, config), together)
    unmerge(model)
    assert all(torch.equal(weight, weights[name]) for name, weight in model.named_parameters())
    assert torch.equal(forward(model, config), apart)


def test_the_merged_weight():
    """The merged weight is W + α/r · up · down, computed in another way."""
    model = adapted_model(tiny_of("decoder"), "lora", alpha=6.0)
    part = model.decoder.layers[0].self_attention.query
    expected = [
        [w + 3.0 * sum(part.up[i, r].item() * part.down[r, j].item() for r in range(2)) for j, w in enumerate(row)]
        for i, row in enumerate(part.weight.tolist())
    ]
    merge(model)
    assert max_difference(part.weight, torch.tensor(expected, dtype=torch.float64)) < 1e-12


def test_lora_of_rank_8_trains_less_than_one_percent_of_gpt2():
    with torch.device("meta"):
        model = build_model(preset("gpt2"))
        before = sum(p.numel() for p in model.parameters())
        share = adapt(model, finetune("lora", rank=8))
    assert before == 124_439_808
    assert (share.trained, share.total) == (12 * 2 * 2 * 8 * 768, before + 12 * 2 * 2 * 8 * 768)
    assert share.trained / share.total < 0.01
    assert str(share) == "294,912 of 124,734,720 parameters (0.24 %): lora on 24 modules"


def test_modules_are_selected_by_pattern():
    model = build_model(tiny_of("decoder"))
    adapt(model, finetune("lora", target_modules=("decoder.layers.1.*", "*.0.feed_forward.expand")))
    chosen = [name for name, part in model.named_modules() if isinstance(part, LoRALinear)]
    of_layer = ["self_attention.query", "self_attention.key", "self_attention.value", "self_attention.output"]
    of_layer += ["feed_forward.expand", "feed_forward.contract"]
    expected = ["decoder.layers.0.feed_forward.expand", *(f"decoder.layers.1.{name}" for name in of_layer)]
    assert sorted(chosen) == sorted(expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"method": "lora", "target_modules": ("decoder.layers.*.self_attention.qury",)},
            r"finetune.target_modules: 'decoder.layers.\*.self_attention.qury' matches nothing. Did you mean "
            r"'decoder.layers.\*.self_attention.query'\? Allowed: decoder.layers.\*.self_attention.query, ",
        ),
        ({"method": "prefix", "target_modules": ("encoder*",)}, r"'encoder\*' matches nothing. .*Allowed: decoder.layers"),
        ({"method": "prompt", "target_modules": ("encoder",)}, r"'encoder' matches nothing. .*Allowed: decoder\."),
        ({"method": "lora", "also_train": ("haed.*",)}, r"finetune.also_train: 'haed.\*' matches nothing"),
        ({"freeze": ("embeding.*",)}, r"finetune.freeze: 'embeding.\*' matches nothing"),
        ({"freeze": ("*",)}, r"finetune.freeze = \['\*'\] freezes all weights"),
    ],
)  # fmt: skip
def test_the_error_for_a_pattern_without_a_match(settings, message):
    with pytest.raises(ConfigError, match=message):
        adapt(build_model(tiny_of("decoder")), FinetuneConfig(base="x", **settings))


# ---- Trainable weights -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("choice", FAMILIES, ids=lambda choice: choice["family"])
def test_all_weights_of_the_adapter_and_no_others_get_gradients(method, choice):
    config = tiny_of(**choice)
    model = build_model(config)
    base = {name: id(weight) for name, weight in model.named_parameters()}
    share = adapt(model, finetune(method))
    with torch.no_grad():
        for weight in trainable_parameters(model).values():
            # `up` of LoRA starts with zeros, and then `down` has no gradient
            weight.add_(0.1 * torch.randn_like(weight))
    forward(model, config).square().sum().backward()
    for name, weight in model.named_parameters():
        assert (weight.grad is None) == (name in base), name
        if name in base:
            assert id(weight) == base[name]  # the same object under the same name
        else:
            assert weight.grad.abs().sum() > 0, name
    assert share.trained == sum(p.numel() for n, p in model.named_parameters() if n not in base)


def test_a_new_head_and_also_train_are_trained_with_an_adapter():
    model = build_model(tiny_of("encoder", head="classes"))
    share = adapt(model, finetune("lora", rank=1, also_train=("*norm*",)), new_head=True)
    names = set(trainable_parameters(model))
    assert {"head.classify.weight", "head.classify.bias"} <= names
    assert all("norm" in name or name.startswith("head.") or name.endswith((".up", ".down")) for name in names)
    assert any("norm" in name for name in names)
    assert "and a new head" in str(share)


def test_freeze_by_pattern():
    model = build_model(tiny_of("encoder", head="classes"))
    share = adapt(model, FinetuneConfig(base="x", freeze=("embedding.*", "encoder.layers.0.*")))
    frozen = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    assert frozen == {n for n, _ in model.named_parameters() if n.startswith(("embedding.", "encoder.layers.0."))}
    assert share.total - share.trained == sum(dict(model.named_parameters())[name].numel() for name in frozen)


# ---- Prefix and prompt: cached = uncached, padding, batches ------------------------------------------------------


def both_sides(method, family):
    """A prompt in encoder and decoder."""
    return {"target_modules": ("encoder", "decoder")} if method == "prompt" and family == "encoder_decoder" else {}


@pytest.mark.parametrize(("method", "choice"), cases("encoder_decoder", "decoder"))
def test_cached_equals_uncached(method, choice):
    """Token by token, in chunks and at once give the same, also after reordering rows."""
    model = adapted_model(tiny_of(**choice), method, **both_sides(method, choice["family"]))
    ids, source = random_ids(3, 7), random_ids(3, 5, seed=1)
    source_mask = torch.arange(5)[None] < torch.tensor([5, 3, 4])[:, None]
    with torch.no_grad():
        memory = (model.encode(source, source_mask), source_mask) if choice["family"] == "encoder_decoder" else ()
        whole = model.decode(ids, *memory)
        for pieces in ([1] * 7, [3, 1, 3]):
            cache, parts = model.new_cache(), []
            for part in ids.split(pieces, dim=1):
                parts.append(model.decode(part, *memory, cache=cache))
            assert max_difference(torch.cat(parts, dim=1), whole) < 1e-12
            assert cache.length == 7
            rows = torch.tensor([2, 0, 0])
            cache.reorder(rows)
            memory_now = tuple(x[rows] for x in memory)
            last = model.decode(ids[rows][:, :1], *memory_now, cache=cache)
            longer = model.decode(torch.cat([ids[rows], ids[rows][:, :1]], dim=1), *memory_now)
            assert max_difference(last[:, 0], longer[:, -1]) < 1e-12


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("position", ["sinusoidal", "rope"])
def test_searches_find_the_same_without_a_cache(method, position):
    """Greedy and beam search, with a step function that reads the whole text at each step."""
    config = tiny_of("decoder", position=position)
    model = adapted_model(config, method)
    prompt, eos = random_ids(2, 3), 2
    for search in (lambda s: greedy(s, prompt[:, -1], [6, 6], eos),
                   lambda s: [b[0] for b in beam_search(s, prompt[:, -1], [6, 6], eos, 3, 0.6, 1)]):  # fmt: skip
        with torch.no_grad():
            cached, again = search(TextStepper(model, prompt)), search(UncachedStepper(model, prompt))
        assert [h.tokens for h in cached] == [h.tokens for h in again]
        assert all(math.isclose(a.score, b.score, abs_tol=1e-9) for a, b in zip(cached, again, strict=True))


class UncachedStepper:
    """A stepper without a cache."""

    def __init__(self, model, prompt):
        self.model, self.ids = model, prompt[:, :-1]

    def step(self, tokens):
        self.ids = torch.cat([self.ids, tokens[:, None]], dim=1)
        return self.model(self.ids)[:, -1]

    def keep(self, rows):
        self.ids = self.ids[rows]


@pytest.mark.parametrize("method", METHODS)
def test_beam_search_finds_the_same_translation_alone_and_in_a_batch(method):
    model = adapted_model(tiny_of(), method, **both_sides(method, "encoder_decoder"))
    rows = [random_ids(1, n, seed=n)[0].tolist() for n in (5, 3, 4)]

    def search(some):
        length = max(map(len, some))
        ids = torch.tensor([row + [0] * (length - len(row)) for row in some])
        mask = torch.arange(length)[None] < torch.tensor([len(row) for row in some])[:, None]
        with torch.no_grad():
            stepper = TranslationStepper(model, ids, mask)
            return beam_search(stepper, torch.ones(len(some), dtype=torch.long), [7] * len(some), 2, 3, 0.6, 1)

    together, alone = search(rows), [search([row])[0] for row in rows]
    assert [h[0].tokens for h in together] == [h[0].tokens for h in alone]
    assert all(math.isclose(a[0].score, b[0].score, abs_tol=1e-9) for a, b in zip(together, alone, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("method", "choice"), cases("encoder_decoder", "decoder", choices=[
    {"position": p, "attention": a, "attention_kernel": k, "n_kv_heads": n}
    for p, a, k, n in itertools.product(build.POSITIONS, build.ATTENTIONS, build.KERNELS, (0, 1))
    if can_be_built({"position": p, "attention": a, "attention_kernel": k, "n_kv_heads": n})
]))  # fmt: skip
def test_prefix_and_prompt_with_every_choice(method, choice):
    """The tests above and below, with the full product of the tables."""
    test_cached_equals_uncached(method, choice)
    test_padding_and_other_texts_in_the_batch_change_nothing(method, choice)
    test_probes_see_only_the_text(method, choice)


@pytest.mark.parametrize(("method", "choice"), cases("encoder", "decoder"))
def test_padding_and_other_texts_in_the_batch_change_nothing(method, choice):
    config = tiny_of(**choice)
    model = adapted_model(config, method, **both_sides(method, choice["family"]))
    ids, lengths = random_ids(3, 6), (6, 4, 5)
    mask = torch.arange(6)[None] < torch.tensor(lengths)[:, None]

    def run(ids, mask):
        if config.family == "encoder_decoder":
            return model(ids, ids, mask, mask)
        return model(ids, mask)

    with torch.no_grad():
        together = run(ids, mask)
        for row, length in enumerate(lengths):
            alone = run(ids[row : row + 1, :length], None)
            assert max_difference(together[row : row + 1, :length], alone) < 1e-12


@pytest.mark.parametrize(("method", "choice"), cases("decoder"))
def test_the_future_cannot_change_the_past(method, choice):
    model = adapted_model(tiny_of(**choice), method)
    ids = random_ids(1, 7)
    other = ids.clone()
    other[0, 4] = (ids[0, 4] + 1) % V
    with torch.no_grad():
        before, after = model(ids)[0], model(other)[0]
    assert max_difference(before[:4], after[:4]) < 1e-12
    assert max_difference(before[4], after[4]) > 1e-3


# ---- Oracles for prefix and prompt -----------------------------------------------------------------------


def test_a_prefix_adds_keys_and_values_to_the_softmax():
    """Computed step by step for one causal attention: no position, no mask, no rotation for the prefix."""
    torch.manual_seed(0)
    attention = MultiHeadAttention(8, 2).double()
    keys, values = torch.randn(2, 3, 4).double(), torch.randn(2, 3, 4).double()
    prefixed = PrefixedAttention(attention, keys, values).eval()
    x = torch.randn(1, 5, 8).double()
    q, k, v = (getattr(attention, name)(x).view(5, 2, 4).transpose(0, 1) for name in ("query", "key", "value"))
    rows = []
    for head in range(2):
        for t in range(5):
            all_k = torch.cat([keys[head], k[head, : t + 1]])
            all_v = torch.cat([values[head], v[head, : t + 1]])
            rows.append((q[head, t] @ all_k.T / 2).softmax(-1) @ all_v)
    expected = attention.output(torch.stack(rows).view(2, 5, 4).transpose(0, 1).reshape(1, 5, 8))
    for mask in (Mask(range(5), range(5), (Causal(),)), torch.ones(5, 5).tril().bool()):
        assert max_difference(prefixed(x, mask=mask), expected) < 1e-12


@pytest.mark.parametrize("method", VECTORS)
@pytest.mark.parametrize("attention", ["full", "window", "sparse"])
def test_long_texts_are_computed_in_chunks(method, attention, monkeypatch):
    """Attention in chunks gives the same as attention with a mask matrix."""
    model = adapted_model(tiny_of("decoder", attention=attention, position="alibi", max_length=128), method)
    plain = adapted_model(tiny_of("decoder", attention=attention, position="none", max_length=128), method)
    ids = random_ids(2, 90)
    for one in (model, plain):
        with torch.no_grad():
            whole = one(ids)
            with monkeypatch.context() as patch:
                patch.setattr(kernels, "MAX_DENSE_ENTRIES", 0)
                assert max_difference(one(ids), whole) < 1e-12


@pytest.mark.parametrize("position", ["none", "rope", "alibi", "relative_bias"])
def test_a_prompt_of_embedded_tokens_equals_these_tokens(position):
    """With a prompt of embedded tokens, a decoder predicts the same as the base model after these tokens."""
    config = tiny_of("decoder", position=position)
    plain = perturbed_model(config).double()
    words, ids = random_ids(1, 3, seed=5), random_ids(2, 6)
    with torch.no_grad():
        expected = plain(torch.cat([words.expand(2, -1), ids], dim=1))[:, 3:]
        vectors = plain.embedding(words)[0].clone()
    model = perturbed_model(config).double()
    adapt(model, finetune("prompt", prompt_length=3))
    with torch.no_grad():
        model.decoder.prompt.copy_(vectors)
        assert max_difference(model(ids), expected) < 1e-12


def test_a_prompt_does_not_change_the_positions_at_the_input():
    """Learned and sinusoidal positions are added before the prompt, so the longest text stays as long."""
    for position in ("learned", "sinusoidal"):
        config = tiny_of("decoder", position=position, max_length=8)
        model = adapted_model(config, "prompt", prompt_length=5)
        with record_activations(model, "embedding.embedded") as seen:
            model(random_ids(1, 8))
        plain = perturbed_model(config).double()
        assert torch.equal(seen["embedding.embedded"], plain.embedding(random_ids(1, 8)))


def test_a_prompt_and_text_longer_than_the_rotary_table_are_refused():
    model = adapted_model(tiny_of("decoder", position="rope", max_length=8), "prompt", prompt_length=3)
    model(random_ids(1, 5))
    with pytest.raises(DataError, match=r"the text has 6 tokens and the learned prompt 3; this model has 8 positions"):
        model(random_ids(1, 6))
    cache = model.new_cache()
    model.decode(random_ids(1, 5), cache=cache)
    with pytest.raises(DataError, match="the text has 6 tokens and the learned prompt 3"):
        model.decode(random_ids(1, 1), cache=cache)


def test_linear_attention_refuses_a_prefix():
    with pytest.raises(ConfigError, match="is linear attention"):
        adapt(build_model(tiny_of("decoder", attention="linear")), finetune("prefix"))


# ---- Probes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "choice"), cases("encoder_decoder", "decoder"))
def test_probes_see_only_the_text(method, choice):
    """Every recorded value has the same shape as in the base, so figures need no special case."""
    config = tiny_of(**choice)
    model, plain = (
        adapted_model(config, method, **both_sides(method, choice["family"])),
        perturbed_model(config).double(),
    )
    with torch.no_grad(), record_activations(model) as seen, record_activations(plain) as before:
        out = forward(model, config)
        forward(plain, config)
    assert max_difference(out, forward(model, config)) < 1e-12  # recording changes nothing
    # experts may get another number of tokens
    shapes, shapes_before = (
        {name: tuple(value.shape) for name, value in some.items() if ".experts." not in name} for some in (seen, before)
    )
    assert list(shapes.items()) == list(shapes_before.items())
    if method == "prefix":
        weights = [value for name, value in seen.items() if name.endswith("_attention.weights")]
        assert all((value.sum(-1) < 1 + 1e-9).all() for value in weights)
        assert any((value.sum(-1) < 0.999).any() for value in weights)  # the rest of the row belongs to the prefix


@pytest.mark.parametrize("method", VECTORS)
def test_edits_change_only_the_text(method):
    """An edit takes effect; an edit that returns the same value changes nothing."""
    config = tiny_of("decoder")
    model, ids = adapted_model(config, method), random_ids(1, 6)
    with torch.no_grad():
        before = model(ids)
        for probe in ("*.weights", "*.heads", "*.stream", "*.hidden", "*.k"):
            with edit_activations(model, {probe: lambda value: value.clone()}):
                assert max_difference(model(ids), before) < 1e-12
            with edit_activations(model, {probe: lambda value: value * 0}), record_activations(model, probe) as seen:
                assert max_difference(model(ids), before) > 1e-3
            assert all(value.abs().max() == 0 for value in seen.values())


@pytest.mark.parametrize("method", METHODS)
def test_an_adapter_without_watchers_uses_the_fused_kernel(method, monkeypatch):
    fused, calls = torch.nn.functional.scaled_dot_product_attention, []
    monkeypatch.setattr(
        torch.nn.functional, "scaled_dot_product_attention", lambda *a, **k: calls.append(1) or fused(*a, **k)
    )
    model = adapted_model(tiny_of("decoder"), method)
    calls.clear()
    model(random_ids(1, 6))
    assert len(calls) == 2


@pytest.mark.parametrize("position", ["sinusoidal", "rope", "alibi", "relative_bias"])
def test_padding_on_the_left(position):
    """A prefix supports it. A prompt does not, because padding would be between prompt and text."""
    model = adapted_model(tiny_of("decoder", position=position), "prefix")
    ids = random_ids(2, 6)
    with torch.no_grad():
        together = model.decode(ids, cache=model.new_cache(torch.tensor([0, 3])))
        assert max_difference(together[1:, 3:], model.decode(ids[1:, 3:])) < 1e-12
    prompted = adapted_model(tiny_of("decoder", position=position), "prompt")
    with pytest.raises(DataError, match="Use texts of the same length"):
        prompted.new_cache(torch.tensor([0, 3]))
    with pytest.raises(DataError, match="model.new_cache"):
        prompted.decode(ids, cache=KVCache(2))


def test_threads_do_not_disturb_each_other():
    """One thread records a whole forward during a cached step of another thread."""
    model, ids = adapted_model(tiny_of("decoder"), "prompt"), random_ids(2, 4)
    with torch.no_grad():
        cache = model.new_cache()
        model.decode(ids, cache=cache)
        held, go = threading.Event(), threading.Event()

        def wait(value):
            if threading.current_thread() is other:
                held.set()
                go.wait(10)

        def step():
            with torch.no_grad():
                model.decode(ids[:, :1], cache=cache)

        other = threading.Thread(target=step)
        with edit_activations(model, {"decoder.layers.0.self_attention_residual.update": wait}):
            other.start()
            assert held.wait(10)
            with record_activations(model, "*.stream") as seen:
                model.decode(ids)
            go.set()
            other.join()
    assert {tuple(value.shape[:2]) for value in seen.values()} == {(2, 4)}
    assert cache.length == 5
