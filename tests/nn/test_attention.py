"""Multi-head attention against torch.nn.MultiheadAttention, and its own promises."""

import pytest
import torch
from helpers import max_difference
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.cache import KVCache
from cutaway.nn.kernels import attend_exact
from cutaway.nn.masks import causal_mask
from cutaway.nn.probe import recording


def copy_to_torch(ours: MultiHeadAttention, d_model: int, n_heads: int) -> nn.MultiheadAttention:
    theirs = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
    with torch.no_grad():
        projections = (ours.query, ours.key, ours.value)
        theirs.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        theirs.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
        theirs.out_proj.weight.copy_(ours.output.weight)
        theirs.out_proj.bias.copy_(ours.output.bias)
    return theirs


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 4]), st.booleans(), st.booleans())
@pytest.mark.usefixtures("double")
def test_equals_torch(seed, n_heads, cross, masked):
    torch.manual_seed(seed)
    ours = MultiHeadAttention(8, n_heads)
    theirs = copy_to_torch(ours, 8, n_heads)
    x, memory = torch.randn(3, 5, 8), torch.randn(3, 6 if cross else 5, 8)
    keys = memory if cross else x
    mask = torch.rand(5, keys.size(1)) < 0.6 if masked else None
    if mask is not None:
        mask[:, 0] = True  # torch gives NaN where a row may attend to nothing; ours gives zeros, tested elsewhere
    with recording(ours, "weights") as seen:
        exact = ours(x, memory if cross else None, mask)
    fused = ours(x, memory if cross else None, mask)
    # torch's mask means the opposite of ours: True = may NOT attend
    expected, weights = theirs(x, keys, keys, attn_mask=None if mask is None else ~mask, average_attn_weights=False)
    assert max_difference(fused, expected) < 1e-10
    assert max_difference(exact, expected) < 1e-10
    assert max_difference(seen["weights"], weights) < 1e-10


@pytest.mark.usefixtures("double")
def test_cached_steps_equal_one_forward():
    torch.manual_seed(0)
    attention = MultiHeadAttention(8, 2)
    x = torch.randn(2, 40, 8)  # longer than the cache's first buffer, so that it must grow
    whole = attention(x, mask=causal_mask(torch.arange(40), torch.arange(40)))
    cache = KVCache(1)
    for start, end in [(0, 3), (3, 4), (4, 20), (20, 21), (21, 40)]:
        mask = causal_mask(torch.arange(start, end), torch.arange(end))
        part = attention(x[:, start:end], mask=mask, cache=cache.layers[0].self_attention)
        cache.advance(end - start)
        assert max_difference(part, whole[:, start:end]) < 1e-12


def test_split_gives_each_head_its_own_columns():
    attention = MultiHeadAttention(6, 3)
    x = torch.arange(2 * 4 * 6.0).view(2, 4, 6)
    heads = attention.split(x)
    for head in range(3):
        assert torch.equal(heads[:, head], x[:, :, 2 * head : 2 * head + 2])
    assert torch.equal(attention.merge(heads), x)


def test_kernel_is_exact_only_while_watched():
    attention = MultiHeadAttention(4, 2)
    fused = attention.kernel
    with recording(attention, "weights"):
        assert attention.kernel is attend_exact
    assert attention.kernel is fused


def test_attention_dropout_only_in_training():
    torch.manual_seed(0)
    attention = MultiHeadAttention(8, 2, dropout=0.5)
    x = torch.randn(1, 6, 8)
    attention.train()
    assert not torch.equal(attention(x), attention(x))
    attention.eval()
    assert torch.equal(attention(x), attention(x))


def test_cache_reorder_repeats_and_drops_rows():
    cache = KVCache(1)
    k = torch.arange(3.0).view(3, 1, 1, 1)
    cache.layers[0].self_attention.append(k, 10 * k)
    cache.layers[0].cross_attention.once(lambda: (k, k))
    cache.advance(1)
    cache.reorder(torch.tensor([2, 0, 0, 2]))
    keys, values = cache.layers[0].self_attention.append(torch.full((4, 1, 1, 1), 7.0), torch.full((4, 1, 1, 1), 9.0))
    assert keys[:, 0, :, 0].tolist() == [[2, 7], [0, 7], [0, 7], [2, 7]]
    assert values[:, 0, :, 0].tolist() == [[20, 9], [0, 9], [0, 9], [20, 9]]
    assert cache.layers[0].cross_attention.keys.flatten().tolist() == [2, 0, 0, 2]
