"""Replaced attention against the attention of nn/: the same numbers."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from helpers import max_difference, perturbed, random_ids, tiny_of

from cutaway.inference.fast.attention import FusedSelfAttention, SharedMemoryAttention
from cutaway.inference.fast.prepare import as_built, built_as, prepare_model
from cutaway.models.build import POSITIONS
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.cache import KVCache
from cutaway.nn.kernels import attend_exact, attend_fused
from cutaway.nn.masks import Mask
from cutaway.nn.recording import record_activations


@pytest.mark.parametrize("kernel", [attend_exact, attend_fused])
@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.usefixtures("double")
def test_rows_that_share_a_memory_are_as_rows_with_a_memory_each(kernel, watched):
    """Two memories of three rows each, of different lengths; one token, and two at once."""
    torch.manual_seed(0)
    plain = MultiHeadAttention(8, 4, kernel, n_kv_heads=2)
    attention = SharedMemoryAttention(plain)
    x, memory = torch.randn(6, 2, 8), torch.randn(2, 5, 8)
    is_token = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    with record_activations(attention, "weights") if watched else nullcontext():
        for new in (x[:, :1], x):
            cache, rows = KVCache(1).layers[0].cross_attention, torch.tensor([0, 0, 0, 1, 1, 1])
            mask = Mask(range(new.size(1)), range(5), is_token=is_token)
            alone = plain(new, memory[rows], replace(mask, is_token=is_token[rows]))
            attention(new[::3], memory, mask, cache)  # the first step of a beam has a row a memory
            assert max_difference(attention(new, memory, mask, cache), alone) < 1e-12


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("choice", [{}, {"n_kv_heads": 1, "qk_norm": True}, {"bias": False}])
@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.usefixtures("double")
def test_one_product_for_queries_keys_and_values_gives_the_same(position, choice, watched):
    choice = {"position": position, "attention_kernel": "exact", **choice}
    plain, fast = (perturbed(tiny_of("decoder", **choice)) for _ in range(2))
    prepare_model(fast)
    attention = fast.decoder.layers[0].self_attention
    assert type(attention) is FusedSelfAttention
    assert built_as(attention) is type(as_built(fast).decoder.layers[0].self_attention) is MultiHeadAttention
    ids, caches = random_ids(2, 7), [plain.new_cache(), fast.new_cache()]
    with torch.inference_mode(), record_activations(fast, "*.q", "*.weights") if watched else nullcontext() as seen:
        for part in ids.split([3, 1, 1, 2], dim=1):
            theirs, ours = (model.decode(part, cache=cache) for model, cache in zip((plain, fast), caches, strict=True))
            assert max_difference(ours, theirs) < 1e-12
    assert not watched or seen["decoder.layers.0.self_attention.weights"].shape == (2, 2, 2, 7)
