"""Fast attention gives the same results as the attention of nn/."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from helpers import max_difference, perturbed_model, random_ids, tiny_of

from cutaway.inference.fast.attention import FusedSelfAttention, SharedMemoryAttention
from cutaway.inference.fast.prepare import original_class, prepare_model, undo_replacements
from cutaway.models.build import POSITIONS
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.cache import KVCache
from cutaway.nn.kernels import attend_exact, attend_fused
from cutaway.nn.masks import Mask
from cutaway.nn.recording import record_activations


@pytest.mark.parametrize("kernel", [attend_exact, attend_fused])
@pytest.mark.parametrize("is_watched", [False, True])
@pytest.mark.usefixtures("double")
def test_a_shared_memory_equals_one_memory_per_row(kernel, is_watched):
    """Two memories of different lengths, with three rows each; one token, and two tokens in one call."""
    torch.manual_seed(0)
    plain = MultiHeadAttention(8, 4, kernel, n_kv_heads=2)
    attention = SharedMemoryAttention(plain)
    x, memory = torch.randn(6, 2, 8), torch.randn(2, 5, 8)
    is_token = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    with record_activations(attention, "weights") if is_watched else nullcontext():
        for new in (x[:, :1], x):
            cache, rows = KVCache(1).layers[0].cross_attention, torch.tensor([0, 0, 0, 1, 1, 1])
            mask = Mask(range(new.size(1)), range(5), is_token=is_token)
            alone = plain(new, memory[rows], replace(mask, is_token=is_token[rows]))
            attention(new[::3], memory, mask, cache)  # the first step of a beam has one row for each memory
            assert max_difference(attention(new, memory, mask, cache), alone) < 1e-12


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("choice", [{}, {"n_kv_heads": 1, "qk_norm": True}, {"bias": False}])
@pytest.mark.parametrize("is_watched", [False, True])
@pytest.mark.usefixtures("double")
def test_fused_self_attention_equals_plain_attention(position, choice, is_watched):
    choice = {"position": position, "attention_kernel": "exact", **choice}
    plain, fast = (perturbed_model(tiny_of("decoder", **choice)) for _ in range(2))
    prepare_model(fast)
    attention = fast.decoder.layers[0].self_attention
    assert type(attention) is FusedSelfAttention
    assert (
        original_class(attention)
        is type(undo_replacements(fast).decoder.layers[0].self_attention)
        is MultiHeadAttention
    )
    ids, caches = random_ids(2, 7), [plain.new_cache(), fast.new_cache()]
    with torch.inference_mode(), record_activations(fast, "*.q", "*.weights") if is_watched else nullcontext() as seen:
        for part in ids.split([3, 1, 1, 2], dim=1):
            theirs, ours = (model.decode(part, cache=cache) for model, cache in zip((plain, fast), caches, strict=True))
            assert max_difference(ours, theirs) < 1e-12
    assert not is_watched or seen["decoder.layers.0.self_attention.weights"].shape == (2, 2, 2, 7)
