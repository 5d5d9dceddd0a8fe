"""The references of exercises 1, 2 and 3 against PyTorch and against Cutaway's modules."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from cutaway.course.exercises.multi_head_attention import (
    MULTI_HEAD_ATTENTION,
    attend_heads,
    head_columns,
    merge_heads,
    multi_head_attention,
    project_heads,
    split_heads,
)
from cutaway.course.exercises.positional_encoding import angles, embed, rotate, shift_matrix, sinusoidal, turn
from cutaway.course.exercises.scaled_dot_product import attention, causal_mask, dot, softmax, weighted_average
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.embedding import InputEmbedding, TokenEmbedding
from cutaway.nn.positions import SinusoidalPosition, sinusoids
from cutaway.nn.rotary import RotaryPosition

rng = np.random.default_rng(0)


def tensor(array):
    return torch.from_numpy(array).float()


def assert_close(ours, theirs):
    np.testing.assert_allclose(ours, theirs.detach().numpy(), atol=2e-5)


def test_dot_products_and_averages_agree_with_torch():
    a, b, weights, values = rng.normal(size=5), rng.normal(size=5), rng.dirichlet(np.ones(4)), rng.normal(size=(4, 3))
    assert_close(dot(a, b), torch.dot(tensor(a), tensor(b)))
    assert_close(weighted_average(weights, values), torch.mv(tensor(values).T, tensor(weights)))
    np.testing.assert_allclose(weighted_average(weights, values), np.average(values, axis=0, weights=weights))


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 1, 3, 5)])
def test_softmax_agrees_with_torch(shape):
    x = 300 * rng.normal(size=shape)
    x[..., 0] = -np.inf
    assert_close(softmax(x), F.softmax(tensor(x), dim=-1))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("front", [(), (2,), (2, 3)])
def test_attention_agrees_with_torch(front, masked):
    q, k, v = (rng.normal(size=(*front, n, e)) for n, e in ((4, 6), (4, 6), (4, 5)))
    mask = causal_mask(4) if masked else None
    theirs = F.scaled_dot_product_attention(tensor(q), tensor(k), tensor(v), is_causal=masked)
    assert_close(attention(q, k, v, mask)[0], theirs)


@pytest.mark.parametrize(("d_model", "n_heads"), [(4, 1), (6, 2), (12, 4), (5, 5)])
def test_head_columns_are_equal_pieces(d_model, n_heads):
    for head, piece in enumerate(torch.arange(d_model).chunk(n_heads)):
        np.testing.assert_array_equal(head_columns(d_model, n_heads, head), piece)


@pytest.mark.parametrize("n_heads", [1, 2, 3, 6])
def test_heads_are_projected_and_attend_as_in_torch(n_heads):
    x, memory, matrices = rng.normal(size=(2, 4, 6)), rng.normal(size=(2, 5, 6)), rng.normal(size=(3, 6, 6))
    q, k, v = (project_heads(a, w, n_heads) for a, w in zip((x, memory, memory), matrices, strict=True))
    first = x @ matrices[0][:, head_columns(6, n_heads, n_heads - 1)]  # of the last head
    np.testing.assert_allclose(q[:, -1], first)
    mask = rng.random((2, 1, 1, 5)) < 0.5
    mask[..., 0] = True
    theirs = F.scaled_dot_product_attention(*map(tensor, (q, k, v)), attn_mask=torch.from_numpy(mask))
    assert_close(attend_heads(q, k, v, mask), theirs.transpose(1, 2).flatten(2))


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


@pytest.mark.parametrize(("position", "width"), [(0, 2), (3, 4), (41, 16)])
def test_angles_are_those_of_the_sinusoids(position, width):
    row = sinusoids(position + 1, width)[position]
    assert_close(np.sin(angles(position, width)), row[0::2])
    assert_close(np.cos(angles(position, width)), row[1::2])


def test_turning_is_a_product_of_complex_numbers():
    a, b, angle = rng.normal(size=(3, 2, 5))
    turned = (a + 1j * b) * np.exp(1j * angle)
    np.testing.assert_allclose(turn(a, b, angle), (turned.real, turned.imag))


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
