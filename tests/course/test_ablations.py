"""Each ablation against an independent computation, and what it must not change."""

import math

import pytest
import torch
from helpers import V, max_difference, random_ids, tiny_model, tiny_of

from cutaway.course.ablations import ABLATIONS, StackWithoutCausalMask, apply_ablations
from cutaway.errors import ConfigError
from cutaway.explore.lens import stream_probes
from cutaway.inference.engines.torch_engine import TorchEngine
from cutaway.models.build import build_model
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.kernels import attend_exact
from cutaway.nn.masks import Span
from cutaway.nn.recording import probes, record_activations

SOURCE, TARGET = random_ids(2, 6, seed=1), random_ids(2, 5, seed=2)
PLACEMENTS = ("post", "pre", "sandwich")


def ablated_model(*ablations, **choices):
    model = tiny_model(**choices)
    apply_ablations(model, ablations)
    return model


def outputs(model, source=SOURCE, target=TARGET, **masks):
    with torch.no_grad():
        return model(source, target, **masks)


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_changes_only_its_model(name):
    intact, other = tiny_model(), tiny_model()
    before = outputs(intact)
    apply_ablations(other, [name])
    assert torch.equal(outputs(intact), before)
    assert max_difference(outputs(other), before) > 1e-4
    assert torch.equal(outputs(tiny_model()), before)  # models built later are intact


@pytest.mark.parametrize("name", ABLATIONS)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_remaining_parameters_keep_their_names_and_get_gradients(name, placement):
    intact, model = tiny_model(norm_placement=placement), ablated_model(name, norm_placement=placement)
    whole = dict(intact.named_parameters())
    model(SOURCE, TARGET).sum().backward()
    for parameter_name, parameter in model.named_parameters():
        assert torch.equal(parameter, whole[parameter_name])
        assert parameter.grad is not None
    if name != "share-layers":
        assert probes(model).keys() == probes(intact).keys()


def without_residual(placement, residual, x, f):
    """Compute a residual connection without `x +`."""
    if placement == "post":
        return residual.norm(f(x))
    inner = f(residual.norm(x))
    return inner if placement == "pre" else residual.norm_after(inner)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_no_residual_leaves_only_the_sub_layer(placement):
    intact, model = tiny_model(norm_placement=placement), ablated_model("no-residual", norm_placement=placement)
    x = torch.randn(2, 6, 8)
    for whole, changed in zip(intact.encoder.layers, model.encoder.layers, strict=True):
        y = without_residual(placement, whole.self_attention_residual, x, whole.self_attention)
        y = without_residual(placement, whole.feed_forward_residual, y, whole.feed_forward)
        assert max_difference(changed(x), y) < 1e-5
        assert max_difference(changed(x), whole(x)) > 1e-3


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_no_norm_leaves_only_the_sums(placement, norm):
    intact, model = (
        tiny_model(norm_placement=placement, norm=norm),
        ablated_model("no-norm", norm_placement=placement, norm=norm),
    )
    x = torch.randn(2, 6, 8)
    y = x
    for whole in intact.encoder.layers:
        y = y + whole.self_attention(y)
        y = y + whole.feed_forward(y)
    assert max_difference(model.encoder(x), y) < 1e-4
    assert not [name for name, _ in model.named_parameters() if "norm" in name]


@pytest.mark.parametrize("kernel", ["fused", "exact"])
@pytest.mark.parametrize("choices", [{}, {"n_kv_heads": 1}, {"qk_norm": True}, {"position": "rope"}])
def test_no_scaling_multiplies_the_scores_by_sqrt_e(kernel, choices):
    intact, model = (
        make(attention_kernel=kernel, **choices) for make in (tiny_model, lambda **c: ablated_model("no-scaling", **c))
    )
    whole, changed = intact.encoder.layers[0].self_attention, model.encoder.layers[0].self_attention
    x = torch.randn(2, 6, 8)

    places = Span(0, 6)
    q, k, v = (whole.split(part(x)) for part in (whole.query, whole.key, whole.value))
    q, k = (whole.position.rotate(norm(y), places) for norm, y in ((whole.query_norm, q), (whole.key_norm, k)))
    heads = attend_exact(q, k, v, probe_scores=lambda scores: scores * math.sqrt(whole.d_head))
    expected = whole.output(whole.merge(heads))
    assert max_difference(changed(x), expected) < 1e-5
    assert max_difference(changed(x), whole(x)) > 1e-4


def test_no_scaling_changes_every_attention_and_its_recorded_weights():
    model = ablated_model("no-scaling")
    assert all(
        isinstance(part.query_norm, torch.nn.Sequential)
        for part in model.modules()
        if isinstance(part, MultiHeadAttention)
    )
    with record_activations(model, "encoder.layers.0.self_attention.weights") as recorded_activations:
        recorded = outputs(model)
    assert max_difference(recorded, outputs(model)) < 1e-5  # recording uses another kernel with the same result
    assert recorded_activations["encoder.layers.0.self_attention.weights"].shape == (2, 2, 6, 6)


@pytest.mark.parametrize("kernel", ["fused", "exact"])
@pytest.mark.parametrize("family", ["encoder_decoder", "decoder"])
def test_no_mask_lets_later_tokens_change_earlier_logits(kernel, family):
    ids, changed_ids = TARGET, TARGET.clone()
    changed_ids[:, -1] = (changed_ids[:, -1] + 1) % V

    def logits(model, ids):
        with torch.no_grad():
            return model(SOURCE, ids) if family == "encoder_decoder" else model(ids)

    intact, model = (
        make(family=family, attention_kernel=kernel) for make in (tiny_model, lambda **c: ablated_model("no-mask", **c))
    )
    assert max_difference(logits(intact, ids)[:, :-1], logits(intact, changed_ids)[:, :-1]) < 1e-6
    assert max_difference(logits(model, ids)[:, :-1], logits(model, changed_ids)[:, :-1]) > 1e-4


@pytest.mark.parametrize("kernel", ["fused", "exact"])
def test_no_mask_keeps_padding_invisible(kernel):
    model = ablated_model("no-mask", attention_kernel=kernel)
    is_token = torch.tensor([[True, True, True, False, False], [True] * 5])
    other = TARGET.clone()
    other[0, 3:] = (other[0, 3:] + 1) % V
    a, b = (outputs(model, target=target, target_mask=is_token) for target in (TARGET, other))
    assert max_difference(a[0, :3], b[0, :3]) < 1e-6
    without_padding = outputs(model, SOURCE[:1], TARGET[:1, :3])
    assert max_difference(a[:1, :3], without_padding) < 1e-5


def test_no_mask_keeps_other_rules():
    """A window of 2 stays a window of 2, now in both directions."""
    model = ablated_model("no-mask", family="decoder", attention="window", decoder_layers=1)
    changed = TARGET.clone()
    changed[:, -1] = (changed[:, -1] + 1) % V
    with torch.no_grad():
        differs = (model(TARGET) - model(changed)).abs().amax(dim=(0, 2)) > 1e-5
    assert differs.tolist() == [False, False, False, True, True]


def test_without_a_mask_decoding_with_a_cache_works():
    model = ablated_model("no-mask")
    assert isinstance(model.decoder, StackWithoutCausalMask)
    cache = model.new_cache()
    memory = model.encode(SOURCE)
    first = model.decode(TARGET[:, :1], memory, cache=cache)
    assert max_difference(first, model.decode(TARGET[:, :1], memory)) < 1e-6
    model.decode(TARGET[:, 1:2], memory, cache=cache)
    assert cache.length == 2
    assert TorchEngine(model).device.type == "cpu"


def test_shared_layers_apply_the_first_layer_repeatedly():
    intact, model = tiny_model(), ablated_model("share-layers")
    x = torch.randn(2, 6, 8)
    first = intact.encoder.layers[0]
    assert max_difference(model.encoder(x), first(first(x))) < 1e-5
    names = {name for name, _ in model.named_parameters()}
    assert [name for name in names if ".layers.0." in name]
    assert not [name for name in names if ".layers.1." in name]


def test_without_positions_a_shuffled_source_gives_the_same_output():
    """The theory of `lab no-positions`: the decoder cannot see the order of the source."""
    without_positions, with_positions = tiny_model(position="none"), tiny_model()
    shuffled = SOURCE[:, torch.tensor([3, 0, 5, 1, 4, 2])]
    assert max_difference(outputs(without_positions), outputs(without_positions, shuffled)) < 1e-5
    assert max_difference(outputs(with_positions), outputs(with_positions, shuffled)) > 1e-3


@pytest.mark.parametrize(
    ("name", "choices", "what"),
    [
        ("no-mask", {"family": "encoder"}, "decoder with a causal mask"),
        ("no-scaling", {"attention": "linear", "position": "learned"}, "attention with scores"),
        ("share-layers", {"encoder_layers": 1, "decoder_layers": 1}, "stack of several layers"),
    ],
)
def test_an_ablation_with_nothing_to_change_is_an_error(name, choices, what):
    model = build_model(tiny_of(**choices))
    with pytest.raises(ConfigError, match=f"the ablation '{name}' has nothing to change: this model has no {what}"):
        apply_ablations(model, [name])


@pytest.mark.parametrize("name", ["no-residual", "no-norm"])
def test_the_same_ablation_twice_is_an_error(name):
    with pytest.raises(ConfigError, match="has nothing to change"):
        ablated_model(name, name)


def test_no_mask_rejects_linear_attention():
    with pytest.raises(ConfigError, match="does not work with linear attention"):
        ablated_model("no-mask", attention="linear", position="learned")


def test_an_unknown_ablation_is_rejected_with_a_suggestion():
    with pytest.raises(ConfigError, match="unknown ablation 'no-resdual'. Did you mean 'no-residual'?"):
        ablated_model("no-resdual")


@pytest.mark.parametrize("name", ABLATIONS)
def test_a_changed_model_has_a_residual_stream_at_each_depth(name):
    """The lab traces every variant. Layers that share their weights have one name."""
    model = ablated_model(name)
    streams = stream_probes(model)
    layers = 1 if name == "share-layers" else len(model.decoder.layers)
    assert list(streams) == ["embedding", *(f"layer {i}" for i in range(layers))]
    with record_activations(model, *streams.values()) as seen:
        outputs(model)
    assert set(seen) == set(streams.values())
