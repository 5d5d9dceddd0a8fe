"""The references of exercises 2 and 3 against PyTorch and against Cutaway's modules."""

import numpy as np
import pytest
import torch
from torch import nn

from cutaway.course.exercises.multi_head_attention import (
    MULTI_HEAD_ATTENTION,
    merge_heads,
    multi_head_attention,
    split_heads,
)
from cutaway.course.exercises.positional_encoding import embed, rotate, shift_matrix, sinusoidal
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.embedding import InputEmbedding, TokenEmbedding
from cutaway.nn.positions import SinusoidalPosition, sinusoids
from cutaway.nn.rotary import RotaryPosition

rng = np.random.default_rng(0)


def tensor(array):
    return torch.from_numpy(array).float()


def assert_close(ours, theirs):
    np.testing.assert_allclose(ours, theirs.detach().numpy(), atol=2e-5)


@pytest.mark.parametrize("n_heads", [1, 2, 3, 6])
def test_splitting_and_merging_agree_with_the_library(n_heads):
    x = rng.normal(size=(2, 5, 6))
    layer = MultiHeadAttention(6, n_heads)
    assert_close(split_heads(x, n_heads), layer.split(tensor(x)))
    np.testing.assert_array_equal(merge_heads(split_heads(x, n_heads)), x)


@pytest.mark.parametrize("case", MULTI_HEAD_ATTENTION.cases, ids=lambda case: case.description)
def test_multi_head_attention_agrees_with_torch(case):
    x, memory, weights, n_heads, mask = case.arguments
    width = x.shape[-1]
    layer = nn.MultiheadAttention(width, n_heads, bias=False, batch_first=True)
    stacked = np.concatenate(
        [weights[name].T for name in ("query", "key", "value")]
    )  # nn.Linear stores the transposed matrix
    with torch.no_grad():
        layer.in_proj_weight.copy_(tensor(stacked))
        layer.out_proj.weight.copy_(tensor(weights["output"].T))
    hidden = None
    if mask is not None:
        full = np.broadcast_to(mask, (len(x), n_heads, x.shape[1], memory.shape[1]))
        hidden = torch.from_numpy(~full.reshape(-1, *full.shape[2:]))  # in PyTorch, True is masked
    theirs, _ = layer(tensor(x), tensor(memory), tensor(memory), attn_mask=hidden)
    assert_close(multi_head_attention(x, memory, weights, n_heads, mask), theirs)


@pytest.mark.parametrize(("n_positions", "d_model"), [(1, 2), (7, 4), (50, 6), (20, 64)])
def test_sinusoids_agree_with_the_library(n_positions, d_model):
    assert_close(sinusoidal(n_positions, d_model), sinusoids(n_positions, d_model))


def test_embedding_agrees_with_the_library():
    ids, table = rng.integers(0, 11, size=(3, 5)), rng.normal(size=(11, 8))
    layer = InputEmbedding(TokenEmbedding(11, 8), SinusoidalPosition(8, max_length=5), dropout=0.0)
    with torch.no_grad():
        layer.tokens.weight.copy_(tensor(table))
    assert_close(embed(ids, table), layer(torch.from_numpy(ids)))


@pytest.mark.parametrize(("k", "d_model"), [(0, 4), (1, 2), (5, 6), (-3, 8), (40, 16)])
def test_the_shift_matrix_moves_any_position_by_k(k, d_model):
    table = sinusoidal(200, d_model)
    for pos in (50, 77, 120):
        np.testing.assert_allclose(shift_matrix(k, d_model) @ table[pos], table[pos + k], atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 2), (4, 6), (2, 3, 5, 8)])
def test_rotary_positions_agree_with_the_library(shape):
    x, positions = rng.normal(size=shape), rng.permutation(30)[: shape[-2]]
    assert_close(
        rotate(x, positions), RotaryPosition(shape[-1], max_length=30).rotate(tensor(x), torch.from_numpy(positions))
    )
