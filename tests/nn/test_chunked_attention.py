"""Attention in chunks against attention without chunks; and no tensor with n×n numbers is created."""

import pytest
import torch
from helpers import max_difference, random_ids, tiny_model
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cutaway.models.build import KERNELS
from cutaway.nn import kernels
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.chunked_attention import CHUNK, attend_in_chunks
from cutaway.nn.kernels import attend_exact, attend_fused, attend_masked
from cutaway.nn.masks import Causal, Mask
from cutaway.nn.sparse_masks import SlidingWindow, Strided

CPU = torch.device("cpu")
RULES = {
    "full": (),
    "causal": (Causal(),),
    "window": (SlidingWindow(9),),
    "causal window": (Causal(), SlidingWindow(9)),
    "strided": (Strided(7),),
    "causal strided": (Causal(), Strided(7)),
}


def random_qkv(Q, K, H=4, G=4, B=2, E=3, seed=0):
    g = torch.Generator().manual_seed(seed)
    sizes = ((H, Q), (G, K), (G, K))
    return [torch.randn(B, heads, n, E, generator=g, dtype=torch.float64, requires_grad=True) for heads, n in sizes]


def value_and_gradients(attend, q, k, v):
    out = attend(q, k, v)
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)  # every output number gets a gradient
    return [out, *torch.autograd.grad((out * weights).sum(), (q, k, v))]


def assert_same(attend, mask, q, k, v):
    dense = mask.dense(CPU)
    in_chunks = value_and_gradients(lambda q, k, v: attend_in_chunks(attend, q, k, v, mask), q, k, v)
    at_once = value_and_gradients(lambda q, k, v: attend(q, k, v, dense), q, k, v)
    for a, b in zip(in_chunks, at_once, strict=True):
        assert a.isfinite().all()
        assert max_difference(a, b) < 1e-10


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("G", [1, 2, 4])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_chunks_equal_attention_without_chunks(rules, padded, G, kernel):
    """A whole text, and queries after a cache; neither length is a multiple of the chunk size."""
    for queries, keys in ((range(77), range(77)), (range(5, 77), range(77)), (range(2 * CHUNK), range(2 * CHUNK))):
        is_token = torch.arange(len(keys)) < torch.tensor([[len(keys)], [50]]) if padded else None
        assert_same(kernel, Mask(queries, keys, rules, is_token), *random_qkv(len(queries), len(keys), G=G))


@pytest.mark.parametrize("length", [1, CHUNK - 1, CHUNK, CHUNK + 1])
def test_short_and_even_lengths(length):
    assert_same(attend_fused, Mask(range(length), range(length), (Causal(),)), *random_qkv(length, length))


@pytest.mark.parametrize("cap", [0.0, 0.5])
def test_options_reach_the_kernel(cap):
    mask = Mask(range(77), range(77), (Causal(), SlidingWindow(9)))
    assert_same(lambda q, k, v, m: attend_exact(q, k, v, m, cap=cap), mask, *random_qkv(77, 77))


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_rows_without_allowed_keys(kernel):
    """Padding before the text and a row with only padding give zeros, and no NaN in backward."""
    is_token = torch.ones(2, 77, dtype=torch.bool)
    is_token[0, :40], is_token[1] = False, False
    mask = Mask(range(77), range(77), (Causal(), SlidingWindow(5)), is_token)
    out, *gradients = value_and_gradients(lambda q, k, v: attend_in_chunks(kernel, q, k, v, mask), *random_qkv(77, 77))
    assert (out[0, :, :40] == 0).all()
    assert (out[1] == 0).all()
    assert all(g.isfinite().all() and (g[1] == 0).all() for g in gradients)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_chunk_that_reaches_no_key(kernel):
    mask = Mask(range(40, 117), range(77), (SlidingWindow(9),))  # the last queries are far after the last key
    out, *gradients = value_and_gradients(lambda q, k, v: attend_in_chunks(kernel, q, k, v, mask), *random_qkv(77, 77))
    assert (out[:, :, 77 + 8 - 40 :] == 0).all()
    assert all(g.isfinite().all() for g in gradients)
    assert_same(kernel, mask, *random_qkv(77, 77))


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_backward_uses_the_same_dropout_as_forward(kernel):
    """With the same dropout, the output is linear in v, so <d, out(v)> = <v, gradient of v>; otherwise not."""
    q, k, v = random_qkv(77, 77)
    mask = Mask(range(77), range(77), (Causal(),))
    torch.manual_seed(3)
    out = attend_in_chunks(lambda q, k, v, m: kernel(q, k, v, m, dropout=0.4), q, k, v, mask)
    d = torch.randn_like(out)
    state = torch.get_rng_state()
    torch.randn(1000)  # other random numbers between forward and backward
    drawn = torch.get_rng_state()
    (gradient,) = torch.autograd.grad(out, v, d)
    assert max_difference(out, attend_in_chunks(kernel, q, k, v, mask)) > 1e-2  # something was dropped
    assert abs((d * out).sum() - (v * gradient).sum()) < 1e-9
    assert torch.equal(torch.get_rng_state(), drawn)  # backward restores the random state
    assert not torch.equal(state, drawn)


def test_dropout_gradients_of_queries_and_keys_by_finite_differences():
    q, k, v = random_qkv(40, 40, H=1, G=1, B=1)
    mask = Mask(range(40), range(40), (Causal(),))

    def out(q, k):
        torch.manual_seed(5)
        return attend_in_chunks(lambda q, k, v, m: attend_exact(q, k, v, m, dropout=0.3), q, k, v, mask).pow(2).sum()

    for which in (0, 1):
        x = (q, k)[which]
        direction = torch.randn_like(x)
        (gradient,) = torch.autograd.grad(out(q, k), x)
        ends = [out(*(x + s * direction if i == which else y for i, y in enumerate((q, k)))) for s in (1e-5, -1e-5)]
        assert abs((ends[0] - ends[1]).item() / 2e-5 - (gradient * direction).sum().item()) < 1e-5


def test_gradients_only_for_inputs_that_require_them():
    q, k, v = random_qkv(77, 77)
    mask = Mask(range(77), range(77), (Causal(),))
    attend_in_chunks(attend_fused, q, k.detach(), v.detach(), mask).sum().backward()
    assert q.grad is not None
    with torch.no_grad():
        assert not attend_in_chunks(attend_fused, q, k, v, mask).requires_grad


# in the module and in whole models


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_through_multi_head_attention(rules, kernel, monkeypatch):
    torch.manual_seed(0)
    attention, x = MultiHeadAttention(8, 4, kernel, n_kv_heads=2), torch.randn(2, 77, 8)
    is_token = torch.arange(77) < torch.tensor([[77], [60]])
    mask = Mask(range(77), range(77), rules, is_token)
    at_once = results(attention, x, mask)
    used = force_chunks(monkeypatch)
    for a, b in zip(results(attention, x, mask), at_once, strict=True):
        assert max_difference(a, b) < 1e-10
    # without rules, the fused kernel needs no chunks
    assert len(used) == (0 if kernel is attend_fused and not rules else 1)


def results(module, x, mask):
    out = module(x, mask=mask)
    return [out, *torch.autograd.grad(out.pow(2).sum(), list(module.parameters()))]


def force_chunks(monkeypatch):
    """Treat every mask as too large for a matrix. Return the list of masks that were computed in chunks."""
    used, work = [], kernels.attend_in_chunks
    monkeypatch.setattr(kernels, "MAX_DENSE_ENTRIES", 0)
    monkeypatch.setattr(
        kernels, "attend_in_chunks", lambda attend, q, k, v, mask: used.append(mask) or work(attend, q, k, v, mask)
    )
    return used


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("attention", ["full", "window", "sparse"])
def test_through_a_whole_model(attention, kernel, monkeypatch):
    window = {} if attention == "full" else {"attention_window": 6}
    model = tiny_model(attention=attention, attention_kernel=kernel, max_length=80, **window)
    source, target = random_ids(2, 70), random_ids(2, 45, seed=1)
    tokens = [torch.arange(n) < torch.tensor([[n], [n - 20]]) for n in (70, 45)]

    def logits_and_gradients():
        logits = model(source, target, *tokens)
        return [logits, *torch.autograd.grad(logits.log_softmax(-1)[..., 5].sum(), list(model.parameters()))]

    at_once = logits_and_gradients()
    used = force_chunks(monkeypatch)
    for a, b in zip(logits_and_gradients(), at_once, strict=True):
        assert max_difference(a, b) < 1e-9
    assert used


# memory


class LargestTensor(TorchDispatchMode):
    """Record the size of the largest tensor that any operator allocates, forward and backward."""

    numbers = 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        out = operator(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // tensor.element_size())
        return out


def largest_tensor(mask, n, n_kv_heads=2, attend=attend_fused, dropout=0.0):
    attention, x = MultiHeadAttention(8, 2, attend, dropout, n_kv_heads), torch.randn(1, n, 8, requires_grad=True)
    with LargestTensor() as seen:
        attention(x, mask=mask).sum().backward()
    return seen.numbers


LONG = 4096
TOKENS = torch.arange(LONG)[None] < LONG - 100
LONG_MASKS = {
    "full": Mask(range(LONG), range(LONG)),
    "padding": Mask(range(LONG), range(LONG), (), TOKENS),
    "causal": Mask(range(LONG), range(LONG), (Causal(),)),
    "causal, padding": Mask(range(LONG), range(LONG), (Causal(),), TOKENS),
    "window": Mask(range(LONG), range(LONG), (Causal(), SlidingWindow(128))),
    "sparse": Mask(range(LONG), range(LONG), (Causal(), Strided(128))),
}


@pytest.mark.parametrize("n_kv_heads", [2, 1])
@pytest.mark.parametrize("mask", LONG_MASKS.values(), ids=LONG_MASKS)
def test_no_matrix_of_all_queries_and_keys(mask, n_kv_heads):
    assert largest_tensor(mask, LONG, n_kv_heads) < LONG**2 / 8


@pytest.mark.parametrize("options", [{"attend": attend_exact}, {"dropout": 0.1}], ids=["exact", "dropout"])
def test_no_matrix_with_the_exact_kernel_or_with_dropout(options):
    assert largest_tensor(LONG_MASKS["window"], LONG, **options) < LONG**2 / 8


def test_largest_tensor_notices_a_matrix():
    n = 512
    assert largest_tensor(torch.ones(n, n, dtype=torch.bool), n, attend=attend_exact) >= 2 * n**2  # two heads


WAYS = {"at once, by is_causal": (Causal(),), "spelled out": (SlidingWindow(3),), "in chunks": (SlidingWindow(3),)}


@pytest.mark.parametrize("way", WAYS)
def test_the_cheapest_method_is_used(way, monkeypatch):
    calls = []

    def record_call(q, k, v, mask=None, causal=False):
        calls.append((q.size(2), causal, mask is not None))
        return attend_fused(q, k, v, mask, causal=causal)

    monkeypatch.setattr(kernels, "attend_fused", record_call)
    if way == "in chunks":
        monkeypatch.setattr(kernels, "MAX_DENSE_ENTRIES", 0)
    attend_masked(record_call, *random_qkv(64, 64), Mask(range(64), range(64), WAYS[way]))
    expected = {"at once, by is_causal": [(64, True, False)], "spelled out": [(64, False, True)]}
    assert calls == expected.get(way, [(CHUNK, False, True)] * 2)
