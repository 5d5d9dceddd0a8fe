"""Linear attention against loops over all pairs, and as a recurrent network."""

import math

import numpy as np
import pytest
import torch
from helpers import max_difference, tiny_of
from hypothesis import given
from hypothesis import strategies as st

from cutaway.config.model import INPUT_POSITIONS
from cutaway.errors import ConfigError
from cutaway.models.build import POSITIONS
from cutaway.nn.cache import KVCache
from cutaway.nn.linear_attention import CHUNK, LinearAttention
from cutaway.nn.masks import Causal, Mask, causal_mask
from cutaway.nn.recording import record_activations
from cutaway.nn.sparse_masks import SlidingWindow


def phi(x):
    """elu(x) + 1, number by number (Katharopoulos et al. 2020, equation 7)."""
    return np.vectorize(lambda n: n + 1 if n > 0 else math.exp(n))(x)


def by_loops(attention, x, memory, may_attend):
    """Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j), over the j that i may attend to; for one text. -> [Q,D]"""
    H, G, E = attention.n_heads, attention.n_kv_heads, attention.d_head
    q = phi(attention.query(x).detach().numpy().reshape(-1, H, E))
    k, v = (p(memory).detach().numpy().reshape(-1, G, E) for p in (attention.key, attention.value))
    k = phi(k)
    heads = np.zeros((len(q), H * E))
    for i in range(len(q)):
        for h in range(H):
            g = h // (H // G)
            keys = [j for j in range(len(k)) if may_attend(i, j)]
            similar = np.array([q[i, h] @ k[j, g] for j in keys])
            if keys:
                heads[i, h * E : (h + 1) * E] = similar @ v[keys, g] / similar.sum()
    return attention.output(torch.from_numpy(heads)).detach()


def make_module(seed=0, n_heads=4, n_kv_heads=None):
    torch.manual_seed(seed)
    return LinearAttention(8, n_heads, n_kv_heads=n_kv_heads)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_equals_the_loops(causal, padded, n_kv_heads):
    n = 2 * CHUNK + 13  # three chunks; the last one is shorter
    attention, x = make_module(n_kv_heads=n_kv_heads), torch.randn(2, n, 8)
    lengths = (n, CHUNK + 5) if padded else (n, n)
    is_token = torch.arange(n) < torch.tensor(lengths)[:, None]
    mask = Mask(range(n), range(n), (Causal(),) if causal else (), is_token if padded else None)
    out = attention(x, mask=mask)
    with record_activations(attention, "weights") as seen:
        watched = attention(x, mask=mask)
    assert max_difference(watched, out) < 1e-10
    assert max_difference(seen["weights"].sum(-1), torch.ones(2, 4, n)) < 1e-10
    for b, length in enumerate(lengths):
        expected = by_loops(attention, x[b], x[b], lambda i, j, length=length: j < length and (j <= i or not causal))
        assert max_difference(out[b], expected) < 1e-10


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("n_kv_heads", [4, 1])
def test_cached_steps_equal_one_forward(n_kv_heads):
    """The recurrent form, equations 18 to 20: the cache holds two sums, independent of the length."""
    n = CHUNK + 7
    attention, x = make_module(n_kv_heads=n_kv_heads), torch.randn(2, n, 8)
    whole = attention(x, mask=Mask(range(n), range(n), (Causal(),)))
    cache = KVCache(1)
    for t in range(n):
        part = attention(
            x[:, t : t + 1], mask=Mask(range(t, t + 1), range(t + 1), (Causal(),)), cache=cache.layers[0].self_attention
        )
        cache.advance(1)
        assert max_difference(part, whole[:, t : t + 1]) < 1e-10
    assert [tuple(stored.shape) for stored in cache.layers[0].self_attention.stored] == [(2, 4, 2, 2), (2, 4, 2)]


@given(st.lists(st.integers(1, 90), min_size=1, max_size=4), st.integers(0, 100))
@pytest.mark.usefixtures("double")
def test_cached_steps_of_any_size_with_padding(sizes, seed):
    n = sum(sizes)
    attention, x = make_module(seed), torch.randn(2, n, 8)
    is_token = torch.rand(2, n) < 0.8
    whole = attention(x, mask=Mask(range(n), range(n), (Causal(),), is_token))
    cache, start = KVCache(1), 0
    for size in sizes:
        end = start + size
        mask = Mask(range(start, end), range(end), (Causal(),), is_token[:, :end])
        part = attention(x[:, start:end], mask=mask, cache=cache.layers[0].self_attention)
        cache.advance(size)
        assert max_difference(part, whole[:, start:end]) < 1e-10
        start = end


@pytest.mark.usefixtures("double")
def test_cross_attention_and_its_cache():
    attention, x, memory = make_module(n_kv_heads=2), torch.randn(2, 5, 8), torch.randn(2, 6, 8)
    is_token = torch.arange(6) < torch.tensor([[6], [4]])
    mask = Mask(range(5), range(6), is_token=is_token)
    out = attention(x, memory, mask)
    for b, length in enumerate((6, 4)):
        assert (
            max_difference(out[b], by_loops(attention, x[b], memory[b], lambda i, j, length=length: j < length)) < 1e-10
        )
    cache = KVCache(1).layers[0].cross_attention
    for t in range(5):
        step = attention(x[:, t : t + 1], memory, Mask(range(t, t + 1), range(6), is_token=is_token), cache)
        assert max_difference(step, out[:, t : t + 1]) < 1e-10
    with record_activations(attention, "weights") as seen:
        assert max_difference(attention(x, memory, mask), out) < 1e-10
    assert (seen["weights"][1, :, :, 4:] == 0).all()


@pytest.mark.usefixtures("double")
def test_gradients_equal_the_quadratic_form():
    n = CHUNK + 9
    attention, x = make_module(n_kv_heads=2), torch.randn(2, n, 8)
    mask = Mask(range(n), range(n), (Causal(),), torch.arange(n) < torch.tensor([[n], [30]]))

    def gradients():
        return torch.autograd.grad(attention(x, mask=mask).pow(2).sum(), list(attention.parameters()))

    chunked = gradients()
    with record_activations(attention, "weights"):
        quadratic = gradients()
    for a, b in zip(chunked, quadratic, strict=True):
        assert max_difference(a, b) < 1e-9


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("watched", [False, True])
def test_a_query_without_allowed_keys_gets_zeros_and_no_nan(watched, causal):
    """In single precision, where 1 / tiny is close to the largest number."""
    attention, x = make_module(), torch.randn(2, 6, 8, requires_grad=True)
    is_token = torch.tensor([[True] * 6, [False] * 6])
    mask = Mask(range(6), range(6), (Causal(),) if causal else (), is_token)
    if watched:
        with record_activations(attention, "weights"):
            out = attention(x, mask=mask)
    else:
        out = attention(x, mask=mask)
    (100 * out).pow(2).sum().backward()
    assert max_difference(out[1], attention.output.bias.expand(6, 8)) == 0
    for gradient in (x.grad, *(p.grad for p in attention.parameters())):
        assert gradient.isfinite().all()


@pytest.mark.parametrize(
    "mask", [causal_mask(3), Mask(range(3), range(3), (SlidingWindow(2),))], ids=["tensor", "window"]
)
def test_unsupported_masks_are_refused(mask):
    with pytest.raises(ConfigError, match="linear attention supports only causal and padding masks"):
        make_module()(torch.randn(1, 3, 8), mask=mask)


@pytest.mark.parametrize("name", POSITIONS)
def test_a_position_scheme_that_acts_inside_attention_is_refused(name):
    """It is not ignored silently."""
    scheme = POSITIONS[name](tiny_of(), False)
    assert scheme.acts_in_attention == (name not in INPUT_POSITIONS)
    if scheme.acts_in_attention:
        with pytest.raises(ConfigError, match=f"has no scores, so it cannot use {type(scheme).__name__}"):
            LinearAttention(8, 2, position=scheme)
    else:
        LinearAttention(8, 2, position=scheme)
