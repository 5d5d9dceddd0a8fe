"""Prepared models: same results, hooks still work, and int8 is close to float32."""

import copy
import inspect

import pytest
import torch
import torch.nn.functional as F
from helpers import max_difference, perturbed_model, random_ids, tiny_of

from cutaway.config import FinetuneConfig
from cutaway.errors import DataError
from cutaway.finetune.adapt import adapt
from cutaway.inference.engines.torch_engine import TorchEngine
from cutaway.inference.fast import int8
from cutaway.inference.fast import prepare as inference
from cutaway.inference.fast.packed_linear import LinearProduct, PackedLinear
from cutaway.inference.fast.prepare import modules_with_outliers, prepare_model, undo_replacements
from cutaway.models.build import build_model
from cutaway.models.samples import sample_inputs


def test_packed_weights_are_the_same_weights():
    model, fast = perturbed_model(tiny_of()), perturbed_model(tiny_of())
    prepare_model(fast)
    names = [name for name, part in fast.named_modules() if isinstance(part, PackedLinear)]
    assert len(names) == 2 * (4 + 2) + 2 * (8 + 2)
    for name in names:
        weight = fast.get_submodule(name).weight
        assert weight.stride(0) == 1  # column-major
        assert torch.equal(weight, model.get_submodule(name).weight)


def test_queries_keys_and_values_share_one_matrix():
    model = perturbed_model(tiny_of("decoder", n_kv_heads=1))
    prepare_model(model)
    attention = model.decoder.layers[0].self_attention
    parts = (attention.query.weight, attention.key.weight, attention.value.weight)
    assert len({part.untyped_storage().data_ptr() for part in parts}) == 1
    x = torch.randn(2, 3, 8)
    with torch.no_grad():
        apart = torch.cat([attention.query(x), attention.key(x), attention.value(x)], dim=-1)
        assert max_difference(attention.qkv(x), apart) < 1e-6


@pytest.mark.parametrize("name", ["query", "key", "value", "output", "q"])
def test_forward_hooks_are_called(name):
    model, calls = perturbed_model(tiny_of("decoder")), []
    prepare_model(model)
    part = getattr(model.decoder.layers[0].self_attention, name)
    part.register_forward_hook(lambda module, inputs, output: calls.append(output.shape))
    with torch.no_grad():
        model(random_ids(2, 3))
    assert len(calls) == 1


def test_a_prepared_model_can_be_changed_copied_converted_and_trained():
    """The fast computation is skipped when it would give another result."""
    plain, fast, ids = (
        perturbed_model(tiny_of()),
        perturbed_model(tiny_of()),
        (random_ids(5, 4, seed=1), random_ids(5, 1)),
    )
    prepare_model(fast)

    def difference(one, other, inputs=ids):
        with torch.no_grad():
            return max_difference(one(*inputs), other(*inputs))

    assert difference(fast, plain) < 1e-5  # the head has packed its weights now
    assert difference(copy.deepcopy(fast), plain) < 1e-5
    assert difference(copy.deepcopy(fast).double(), copy.deepcopy(plain).double()) < 1e-12
    assert difference(undo_replacements(fast), plain) < 1e-5
    for model in (plain, fast):
        with torch.no_grad():
            model.head.weight.mul_(2)
            model.decoder.layers[0].self_attention.key.weight.mul_(3)
    assert difference(fast, plain) < 1e-5
    for model in (plain, fast):
        torch.manual_seed(0)
        adapt(model, FinetuneConfig(base="x", method="lora"))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith((".up", ".down")):
                    parameter.normal_()
    assert difference(fast, plain) < 1e-4
    for model in (plain, undo_replacements(fast), fast):
        model(*ids).sum().backward()
    ours, theirs = (dict(m.named_parameters()) for m in (fast, plain))
    assert [n for n, p in ours.items() if p.grad is not None] == [n for n, p in theirs.items() if p.grad is not None]
    assert all(max_difference(p.grad, theirs[n].grad) < 1e-3 for n, p in ours.items() if p.grad is not None)


FAMILIES = {
    "encoder_decoder": {},
    "decoder": {},
    "encoder": {"head": "tags"},
    "vision": {},
    "llama": {"norm": "rms", "position": "rope", "feed_forward": "swiglu", "bias": False, "n_kv_heads": 2},
    "t5": {"norm": "rms", "position": "relative_bias", "feed_forward": "geglu", "bias": False, "embeddings": "inputs"},
    "marian": {"output_bias": True},
    "experts": {"experts": 3},
    "parallel": {"block": "parallel"},
}


def wide_config(name):
    family = {"llama": "decoder", "experts": "decoder", "parallel": "decoder"}.get(name, name)
    family = family if family in ("encoder_decoder", "decoder", "encoder", "vision") else "encoder_decoder"
    return tiny_of(family, d_model=64, d_ff=128, n_heads=4, **FAMILIES[name])


def make_inputs(model):
    torch.manual_seed(1)
    return tuple(torch.cat([x, x.flip(-1)]) for x in sample_inputs(model, 12))


@pytest.mark.parametrize("bits", [8, 7])
@pytest.mark.parametrize("name", FAMILIES)
def test_an_int8_model_is_close_to_float32(name, bits, monkeypatch):
    monkeypatch.setattr(int8, "exact_bits", lambda: bits)
    model, small = perturbed_model(wide_config(name)), perturbed_model(wide_config(name))
    prepare_model(small, int8=True)
    inputs = make_inputs(model)
    with torch.inference_mode():
        exact, near = model(*inputs), small(*inputs)
    assert 0 < max_difference(near, exact) < 0.05 * exact.abs().max()


@pytest.mark.parametrize("method", ["lora", "prefix", "prompt"])
@pytest.mark.parametrize("position", ["sinusoidal", "rope"])
def test_an_int8_model_with_an_adapter_is_close_to_float32(method, position):
    models = []
    for _ in range(2):
        model = perturbed_model(tiny_of("decoder", d_model=64, d_ff=128, n_heads=4, position=position))
        torch.manual_seed(0)
        adapt(model, FinetuneConfig(base="x", method=method))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith((".up", ".down")):
                    parameter.normal_(0, 0.1)
        models.append(model.eval())
    prepare_model(models[1], int8=True)
    ids = random_ids(4, 8)
    with torch.inference_mode():
        exact, near = models[0](ids), models[1](ids)
    assert 0 < max_difference(near, exact) < 0.05 * exact.abs().max()


def add_outliers(model, factor=60.0, shift=40.0):
    """Add outlier channels, as trained models have them, without changing the function.

    Multiply a gain of a norm by a factor, and divide the columns that read it. Add an offset, and subtract it later.
    """
    with torch.no_grad():
        for layer in model.decoder.layers:
            attention = layer.self_attention
            for norm, readers in (
                (layer.self_attention_residual.norm, (attention.query, attention.key, attention.value)),
                (layer.feed_forward_residual.norm, (layer.feed_forward.expand,)),
            ):
                norm.weight[3] *= factor
                norm.bias[3] *= factor
                norm.bias[5] += shift
                for reader in readers:
                    reader.weight[:, 3] /= factor
                    reader.bias -= shift * reader.weight[:, 5]
            layer.feed_forward.expand.weight[7] *= factor  # ReLU(f x) = f ReLU(x)
            layer.feed_forward.expand.bias[7] *= factor
            layer.feed_forward.contract.weight[:, 7] /= factor
    return model


@pytest.mark.parametrize("bits", [8, 7])
def test_int8_is_accurate_with_outliers(bits, monkeypatch):
    """Outliers are detected and get a second digit. With one digit, the error is large."""
    monkeypatch.setattr(int8, "exact_bits", lambda: bits)
    config, ids = tiny_of("decoder", d_model=64, d_ff=128, n_heads=4, norm_placement="pre"), random_ids(8, 12)
    plain, model, small, one_digit = (perturbed_model(config) for _ in range(4))
    for one in (model, small, one_digit):
        add_outliers(one)
    prepare_model(small, int8=True)
    monkeypatch.setattr(inference, "has_outliers", lambda x: False)
    prepare_model(one_digit, int8=True)
    with torch.inference_mode():
        exact, near, far = model(ids), small(ids), one_digit(ids)
        assert max_difference(exact, plain(ids)) < 1e-3 * exact.abs().max()  # the same function
    assert max_difference(near, exact) < 0.05 * exact.abs().max() < max_difference(far, exact)


def test_the_search_for_outliers_does_not_change_the_model():
    model = perturbed_model(tiny_of("decoder", d_model=64, norm_placement="pre")).train()
    torch.manual_seed(3)
    state = torch.get_rng_state()
    assert modules_with_outliers(add_outliers(model)) > {model.decoder.layers[0].self_attention.query}
    assert torch.equal(torch.get_rng_state(), state)
    assert all(part.training and not part._forward_pre_hooks for part in model.modules())


@pytest.mark.slow
@pytest.mark.parametrize(("bits", "allowed"), [(8, 1.02), (7, 1.05)])
def test_a_trained_int8_model_with_outliers_has_nearly_the_same_loss(bits, allowed, monkeypatch):
    monkeypatch.setattr(int8, "exact_bits", lambda: bits)
    text = torch.tensor([ord(c) % 64 for c in inspect.getsource(torch.nn.functional)[:60_000]])
    rows = text[: len(text) // 64 * 64].view(-1, 64)
    torch.manual_seed(0)
    sizes = {"d_model": 64, "d_ff": 256, "n_heads": 4, "vocab_size": 64, "max_length": 64}
    model = build_model(tiny_of("decoder", norm_placement="pre", **sizes))
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)

    def nll(one, batch):
        return F.cross_entropy(one(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())

    for _ in range(300):
        loss = nll(model, rows[torch.randint(len(rows), (16,))])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    small = add_outliers(copy.deepcopy(model))
    prepare_model(small, int8=True)
    with torch.inference_mode():
        exact, near = nll(model, rows[:200]), nll(small, rows[:200])
    assert exact < 2.5  # trained: log 64 is 4.16
    assert near < allowed * exact


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [True, False])
def test_a_product_is_right_for_any_number_of_rows(dtype, bias):
    torch.manual_seed(0)
    weight, b = torch.randn(50, 8, dtype=dtype), torch.randn(50, dtype=dtype) if bias else None
    product = LinearProduct()
    for rows in (0, 1, 2, 3, 5, 16, 17):
        for x in (
            torch.randn(rows, 8, dtype=dtype),
            torch.randn(rows, 1, 8, dtype=dtype),
            torch.randn(8, 2, rows, dtype=dtype).permute(2, 1, 0),
        ):
            with torch.no_grad():
                difference = max_difference(product(x, weight, b), F.linear(x, weight, b))
            assert difference < (1e-5 if dtype == torch.float32 else 1e-12)
    assert ("packed" in vars(product.layouts)) == (dtype == torch.float32)


def test_a_product_detects_changed_weights():
    weight, x, product = torch.randn(50, 8), torch.randn(5, 8), LinearProduct()
    for change in (lambda: weight.mul_(2), lambda: weight[3:7].zero_(), lambda: weight.detach().fill_(1.0)):
        with torch.no_grad():
            product(x, weight, None)
            change()
            assert max_difference(product(x, weight, None), F.linear(x, weight)) < 1e-5


def test_a_large_model_keeps_no_packed_weights(monkeypatch):
    model = perturbed_model(tiny_of("decoder"))
    monkeypatch.setattr(inference, "MAX_PACKED_BYTES", 1)
    prepare_model(model)
    with torch.no_grad():
        model(random_ids(5, 4))
    products = [part.product for part in model.modules() if isinstance(part, PackedLinear)]
    products += [model.head.product, model.decoder.layers[0].self_attention.qkv.product.func]
    assert not any("packed" in vars(product.layouts) for product in products if product.layouts)


@pytest.mark.parametrize("name", ["query", "key", "value"])
@pytest.mark.parametrize("what", ["weight", "bias"])
def test_a_replaced_parameter_is_used(name, what):
    plain, fast = perturbed_model(tiny_of("decoder")), perturbed_model(tiny_of("decoder"))
    prepare_model(fast)
    ids = random_ids(3, 4)
    for model in (plain, fast):
        part = getattr(model.decoder.layers[0].self_attention, name)
        torch.manual_seed(1)
        setattr(part, what, torch.nn.Parameter(torch.randn(getattr(part, what).shape)))
    with torch.no_grad():
        assert max_difference(fast(ids), plain(ids)) < 1e-5


def test_hooks_registered_before_can_be_removed_after():
    model, calls = perturbed_model(tiny_of("decoder")), []
    parts = model.head, model.decoder.layers[0].self_attention
    hooks = [part.register_forward_hook(lambda *_: calls.append(1)) for part in parts]
    prepare_model(model)
    with torch.no_grad():
        model(random_ids(1, 3))
        assert len(calls) == 2
        for hook in hooks:
            hook.remove()
        model(random_ids(1, 3))
    assert len(calls) == 2


def test_frozen_parameters_stay_frozen_after_undo():
    model = perturbed_model(tiny_of("decoder"))
    model.decoder.requires_grad_(False)
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    prepare_model(model)
    assert {name for name, p in undo_replacements(model).named_parameters() if not p.requires_grad} == frozen


def test_modules_that_the_sample_does_not_reach_may_have_outliers():
    model = perturbed_model(tiny_of("decoder", experts=40))
    reached = set()
    for name, part in model.named_modules():
        part.register_forward_hook(lambda *_, name=name: reached.add(name))
    found = modules_with_outliers(model)
    idle = {p for n, p in model.named_modules() if isinstance(p, torch.nn.Linear) and n not in reached}
    assert idle  # a short text does not use all of the 40 experts
    assert idle <= found


@pytest.mark.parametrize("int8", [False, True])
def test_a_classifier_with_nan_weights_is_an_error(int8):
    """Values that are not finite are not returned as probabilities."""
    config = tiny_of("encoder", head="classes", n_classes=3)
    model = perturbed_model(config)
    with torch.no_grad():
        model.embedding.tokens.weight.fill_(float("nan"))
    prepare_model(model, int8)
    with pytest.raises(DataError, match="not finite"):
        TorchEngine(model).probabilities([[4, 5, 6]])
