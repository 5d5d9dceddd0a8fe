"""Multi-head attention against torch.nn.MultiheadAttention, with caches, probes and options."""

import pytest
import torch
from helpers import max_difference
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import LayerNorm, RMSNorm

from cutaway.errors import ConfigError
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.cache import KVCache
from cutaway.nn.kernels import attend_exact, attend_fused
from cutaway.nn.masks import Causal, Mask, causal_mask
from cutaway.nn.recording import record_activations
from cutaway.nn.relative_positions import RelativePosition
from cutaway.nn.sparse_masks import SlidingWindow, Strided


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
        mask[:, 0] = True  # torch returns NaN for a row without any allowed key; ours returns zeros, tested elsewhere
    with record_activations(ours, "weights") as seen:
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
    x = torch.randn(2, 40, 8)  # longer than the first buffer of the cache, so it must grow
    whole = attention(x, mask=causal_mask(40))
    cache = KVCache(1)
    for start, end in [(0, 3), (3, 4), (4, 20), (20, 21), (21, 40)]:
        mask = Mask(range(start, end), range(end), (Causal(),))
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


def test_the_exact_kernel_runs_only_while_probes_are_watched():
    calls = []

    def count_calls(*args, **options):
        calls.append(args)
        return attend_fused(*args, **options)

    attention, x = MultiHeadAttention(4, 2, kernel=count_calls), torch.randn(1, 3, 4)
    with record_activations(attention, "weights") as seen:
        attention(x)
    assert not calls
    assert seen["weights"].shape == (1, 2, 3, 3)
    attention(x)
    assert len(calls) == 1


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
    cache.layers[0].cross_attention.stored = k, k
    cache.advance(1)
    cache.padding = torch.tensor([0, 5, 6])
    cache.reorder(torch.tensor([2, 0, 0, 2]))
    keys, values = cache.layers[0].self_attention.append(torch.full((4, 1, 1, 1), 7.0), torch.full((4, 1, 1, 1), 9.0))
    assert keys[:, 0, :, 0].tolist() == [[2, 7], [0, 7], [0, 7], [2, 7]]
    assert values[:, 0, :, 0].tolist() == [[20, 9], [0, 9], [0, 9], [20, 9]]
    assert cache.layers[0].cross_attention.stored[0].flatten().tolist() == [2, 0, 0, 2]
    assert cache.padding.tolist() == [6, 0, 0, 6]


@pytest.mark.parametrize("n_kv_heads", [1, 2, 3, 6])
@pytest.mark.parametrize("attend", [attend_exact, attend_fused])
@pytest.mark.usefixtures("double")
def test_grouped_queries_are_full_attention_with_repeated_weights(attend, n_kv_heads):
    """One key-value head is multi-query attention (Shazeer 2019)."""
    torch.manual_seed(0)
    grouped = MultiHeadAttention(12, 6, attend, n_kv_heads=n_kv_heads)
    full = MultiHeadAttention(12, 6, attend)
    assert grouped.key.weight.shape == (n_kv_heads * 2, 12)
    state = grouped.state_dict()
    for name in ("key.weight", "key.bias", "value.weight", "value.bias"):
        heads = state[name].unflatten(0, (n_kv_heads, 2))
        state[name] = torch.cat([heads[h // (6 // n_kv_heads)] for h in range(6)])
    full.load_state_dict(state)
    x, memory = torch.randn(2, 5, 12), torch.randn(2, 4, 12)
    for given_memory, mask in ((None, causal_mask(5)), (None, Mask(range(5), range(5), (Causal(),))), (memory, None)):
        assert max_difference(grouped(x, given_memory, mask), full(x, given_memory, mask)) < 1e-10


@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
@pytest.mark.usefixtures("double")
def test_qk_norm_equals_formula(norm):
    """norm(q)·norm(k)/sqrt(E) for each head, with separate weights for queries and keys; values are not normed."""
    torch.manual_seed(0)
    attention = MultiHeadAttention(8, 2, head_norm=lambda: norm(4, eps=1e-5))
    for side in (attention.query_norm, attention.key_norm):
        torch.nn.init.normal_(side.weight)
    x = torch.randn(1, 5, 8)
    heads = []
    for h in range(2):
        q, k, v = (p(x)[0, :, 4 * h : 4 * h + 4] for p in (attention.query, attention.key, attention.value))
        q, k = (apply_norm(y, side.weight, norm) for y, side in ((q, attention.query_norm), (k, attention.key_norm)))
        heads.append((q @ k.T / 2).softmax(-1) @ v)
    assert max_difference(attention(x), attention.output(torch.cat(heads, -1))[None]) < 1e-10


def apply_norm(y, weight, kind):
    y = y - y.mean(-1, keepdim=True) if kind is LayerNorm else y
    return y / (y.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight


@pytest.mark.usefixtures("double")
def test_qk_norm_bounds_the_scores():
    attention = MultiHeadAttention(8, 2, head_norm=lambda: RMSNorm(4))
    with record_activations(attention, "scores") as seen:
        attention(1e6 * torch.randn(1, 5, 8))
    assert seen["scores"].abs().max() <= 2 + 1e-9  # |q| = |k| = sqrt(E), so a score is at most sqrt(E)


@pytest.mark.usefixtures("double")
def test_cap_bounds_the_recorded_scores():
    attention = MultiHeadAttention(8, 2, attend_exact, cap=3.0)
    with record_activations(attention, "scores") as seen:
        attention(1e3 * torch.randn(1, 5, 8))
    assert 2.9 < seen["scores"].abs().max() <= 3.0


@pytest.mark.parametrize("option", [{"cap": 1.0}, {"position": RelativePosition(4, 9)}])
def test_the_fused_kernel_refuses_what_it_cannot_compute(option):
    attention = MultiHeadAttention(8, 2, attend_fused, **option)
    with pytest.raises(ConfigError, match="Use attend_exact"):
        attention(torch.randn(1, 3, 8))


@pytest.mark.parametrize("rules", [(), (Causal(),), (Causal(), SlidingWindow(3)), (Strided(3),)])
@pytest.mark.parametrize("attend", [attend_exact, attend_fused])
@pytest.mark.usefixtures("double")
def test_a_mask_of_rules_equals_its_matrix(attend, rules):
    torch.manual_seed(0)
    attention, x = MultiHeadAttention(8, 2, attend), torch.randn(2, 7, 8)
    for is_token in (None, torch.arange(7) < torch.tensor([[7], [4]])):
        mask = Mask(range(7), range(7), rules, is_token)
        spelled_out = attention(x, mask=mask.dense(x.device))
        assert max_difference(attention(x, mask=mask), spelled_out) < 1e-10
        with record_activations(attention, "weights"):
            assert max_difference(attention(x, mask=mask), spelled_out) < 1e-10


@pytest.mark.usefixtures("double")
def test_heads_can_have_any_width_and_no_bias():
    attention = MultiHeadAttention(6, 2, d_head=5, bias=False)
    assert attention.output.weight.shape == (6, 10)
    assert not any("bias" in name for name, _ in attention.named_parameters())
    x = torch.randn(1, 4, 6)
    q, k, v = (p(x)[0].view(4, 2, 5).transpose(0, 1) for p in (attention.query, attention.key, attention.value))
    heads = (q @ k.mT / 5**0.5).softmax(-1) @ v
    assert max_difference(attention(x)[0], attention.output(torch.cat([*heads], -1))) < 1e-10
