"""Models made ready to answer: hooks still work, and 8 bits are nearly as good as 32."""

import copy

import pytest
import torch
import torch.nn.functional as F
from helpers import max_difference, perturbed, random_ids, tiny_of

from cutaway.config import FinetuneConfig
from cutaway.errors import DataError
from cutaway.finetune.adapt import adapt
from cutaway.models import inference
from cutaway.models.inference import as_built, make_ready
from cutaway.nn.int8 import Int8Product
from cutaway.nn.laid import LaidLinear, Product


def test_laid_weights_are_those_weights_in_another_order():
    model, ready = perturbed(tiny_of()), perturbed(tiny_of())
    make_ready(ready)
    names = [name for name, part in ready.named_modules() if isinstance(part, LaidLinear)]
    assert len(names) == 2 * (4 + 2) + 2 * (8 + 2)
    for name in names:
        weight = ready.get_submodule(name).weight
        assert weight.stride(0) == 1  # a column after the other
        assert torch.equal(weight, model.get_submodule(name).weight)


def test_queries_keys_and_values_share_one_matrix():
    model = perturbed(tiny_of("decoder", n_kv_heads=1))
    make_ready(model)
    attention = model.decoder.layers[0].self_attention
    parts = (attention.query.weight, attention.key.weight, attention.value.weight)
    assert len({part.untyped_storage().data_ptr() for part in parts}) == 1
    x = torch.randn(2, 3, 8)
    with torch.no_grad():
        apart = torch.cat([attention.query(x), attention.key(x), attention.value(x)], dim=-1)
        assert max_difference(attention.side_by_side(x), apart) < 1e-6


@pytest.mark.parametrize("name", ["query", "key", "value", "output", "q"])
def test_who_hooks_a_part_is_called(name):
    model, calls = perturbed(tiny_of("decoder")), []
    make_ready(model)
    part = getattr(model.decoder.layers[0].self_attention, name)
    part.register_forward_hook(lambda part, given, got: calls.append(got.shape))
    with torch.no_grad():
        model(random_ids(2, 3))
    assert len(calls) == 1


def test_a_ready_model_can_still_be_changed_copied_converted_and_trained():
    """The quick ways are left as soon as they would not give the same."""
    plain, ready, ids = perturbed(tiny_of()), perturbed(tiny_of()), (random_ids(5, 4, seed=1), random_ids(5, 1))
    make_ready(ready)

    def difference(one, other, given=ids):
        with torch.no_grad():
            return max_difference(one(*given), other(*given))

    assert difference(ready, plain) < 1e-5  # and now the head has packed its weights
    assert difference(copy.deepcopy(ready), plain) < 1e-5
    assert difference(copy.deepcopy(ready).double(), copy.deepcopy(plain).double()) < 1e-12
    assert difference(as_built(ready), plain) < 1e-5
    for model in (plain, ready):
        with torch.no_grad():
            model.head.weight.mul_(2)
            model.decoder.layers[0].self_attention.key.weight.mul_(3)
    assert difference(ready, plain) < 1e-5
    for model in (plain, ready):
        torch.manual_seed(0)
        adapt(model, FinetuneConfig(base="x", method="lora"))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith((".up", ".down")):
                    parameter.normal_()
    assert difference(ready, plain) < 1e-4
    for model in (plain, as_built(ready), ready):
        model(*ids).sum().backward()
    ours, theirs = (dict(m.named_parameters()) for m in (ready, plain))
    assert [n for n, p in ours.items() if p.grad is not None] == [n for n, p in theirs.items() if p.grad is not None]
    assert all(max_difference(p.grad, theirs[n].grad) < 1e-3 for n, p in ours.items() if p.grad is not None)


def test_a_broken_model_in_8_bits_says_so():
    with pytest.raises(DataError, match="not finite"):
        Int8Product(torch.ones(3, 16))(torch.full((4, 16), float("nan")))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 16), (5, 16), (2, 3, 16), (0, 16)])
def test_a_product_in_8_bits_is_the_product_but_for_what_8_bits_cannot_say(shape, bias):
    torch.manual_seed(0)
    weight = torch.randn(24, 16) * torch.logspace(-2, 2, 24)[:, None]  # rows of very different sizes
    weight[7] = 0
    x, b = torch.randn(shape), torch.randn(24) if bias else None
    y, exact = Int8Product(weight, b)(x), F.linear(x, weight, b)
    assert y.shape == exact.shape
    if not x.numel():
        return
    # a weight is off by at most half a step of 1/127 of its row's largest, a number of x by half a step of its range
    step_x = (x.max().clamp(min=0) - x.min().clamp(max=0)) / 127
    largest = weight.abs().amax(dim=1)
    bound = x.abs().sum(dim=-1, keepdim=True) * largest / 254 + weight.abs().sum(dim=1) * step_x
    assert ((y - exact).abs() <= bound + 1e-5).all()
    assert ((y - exact).abs()[..., torch.arange(24) != 7].amax(dim=-1) > 0).all()  # and it is not the exact product


@pytest.mark.parametrize("family", ["encoder_decoder", "decoder"])
def test_a_model_in_8_bits_says_nearly_the_same(family):
    config = tiny_of(family, d_model=64, d_ff=128, n_heads=4)
    model, small, ids = perturbed(config), perturbed(config), random_ids(4, 8)
    make_ready(small, int8=True)
    given = (random_ids(4, 6, seed=1), ids) if family == "encoder_decoder" else (ids,)
    with torch.inference_mode():
        exact, near = model(*given), small(*given)
    assert 0 < max_difference(near, exact) < 0.05 * exact.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [True, False])
def test_a_product_is_the_product_however_many_rows(dtype, bias):
    torch.manual_seed(0)
    weight, b = torch.randn(50, 8, dtype=dtype), torch.randn(50, dtype=dtype) if bias else None
    product = Product()
    for rows in (0, 1, 2, 3, 5, 16, 17):
        for x in (
            torch.randn(rows, 8, dtype=dtype),
            torch.randn(rows, 1, 8, dtype=dtype),
            torch.randn(8, 2, rows, dtype=dtype).permute(2, 1, 0),
        ):
            with torch.no_grad():
                difference = max_difference(product(x, weight, b), F.linear(x, weight, b))
            assert difference < (1e-5 if dtype == torch.float32 else 1e-12)
    assert ("packed" in vars(product.forms)) == (dtype == torch.float32)


def test_a_product_notices_that_a_weight_has_changed():
    weight, x, product = torch.randn(50, 8), torch.randn(5, 8), Product()
    for change in (lambda: weight.mul_(2), lambda: weight[3:7].zero_(), lambda: weight.detach().fill_(1.0)):
        with torch.no_grad():
            product(x, weight, None)
            change()
            assert max_difference(product(x, weight, None), F.linear(x, weight)) < 1e-5


def test_a_large_model_gets_no_copies_of_its_weights(monkeypatch):
    model = perturbed(tiny_of("decoder"))
    monkeypatch.setattr(inference, "LARGE", 1)
    make_ready(model)
    with torch.no_grad():
        model(random_ids(5, 4))
    products = [part.product for part in model.modules() if isinstance(part, LaidLinear)]
    products += [model.head.project, model.decoder.layers[0].self_attention.side_by_side.product.func]
    assert not any("packed" in vars(product.forms) for product in products if product.forms)


@pytest.mark.parametrize("name", ["query", "key", "value"])
@pytest.mark.parametrize("what", ["weight", "bias"])
def test_a_matrix_that_was_replaced_is_used(name, what):
    plain, ready = perturbed(tiny_of("decoder")), perturbed(tiny_of("decoder"))
    make_ready(ready)
    ids = random_ids(3, 4)
    for model in (plain, ready):
        part = getattr(model.decoder.layers[0].self_attention, name)
        torch.manual_seed(1)
        setattr(part, what, torch.nn.Parameter(torch.randn(getattr(part, what).shape)))
    with torch.no_grad():
        assert max_difference(ready(ids), plain(ids)) < 1e-5
