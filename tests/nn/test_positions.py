"""Positions against their formula, evaluated independently; what a buffer is."""

import math

import pytest
import torch
from helpers import max_difference, tiny_model

from cutaway.nn.positions import LearnedPosition, SinusoidalPosition


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("d_model", [2, 8, 64, 512])
def test_sinusoids_equal_their_formula(d_model):
    table = SinusoidalPosition(d_model, 50).table
    for pos in (0, 1, 7, 49):
        for i in range(d_model // 2):
            angle = pos / 10000 ** (2 * i / d_model)
            assert abs(table[pos, 2 * i].item() - math.sin(angle)) < 1e-10
            assert abs(table[pos, 2 * i + 1].item() - math.cos(angle)) < 1e-10


@pytest.mark.usefixtures("double")
def test_a_step_forward_is_a_linear_map():
    """PE(pos + k) = M_k PE(pos), the same M_k everywhere: why the paper hopes relative positions are easy."""
    table, k = SinusoidalPosition(16, 60).table, 5
    step = torch.linalg.lstsq(table[:40], table[k : 40 + k]).solution
    assert max_difference(table[10:50] @ step, table[10 + k : 50 + k]) < 1e-8


def test_a_buffer_moves_with_the_model_is_not_trained_and_not_stored():
    model = tiny_model()
    position = model.source_embedding.position
    assert "table" in dict(position.named_buffers())
    assert not list(position.parameters())
    assert not any("position" in name for name in model.state_dict())
    assert model.double().source_embedding.position.table.dtype == torch.float64
    assert model.to("meta").source_embedding.position.table.device.type == "meta"


def test_learned_positions_are_trained():
    position = LearnedPosition(4, 6)
    position.embed(torch.zeros(1, 3, 4), torch.tensor([0, 1, 5])).sum().backward()
    assert position.table.grad[:, 0].tolist() == [1, 1, 0, 0, 0, 1]


@pytest.mark.parametrize("scheme", [SinusoidalPosition, LearnedPosition])
def test_positions_are_explicit(scheme):
    """Position 7 alone is what position 7 is in a row: cached decoding is right by construction."""
    position = scheme(8, 20)
    torch.nn.init.normal_(position.table)
    x = torch.randn(2, 10, 8)
    whole = position.embed(x, torch.arange(10))
    assert torch.equal(position.embed(x[:, 7:8], torch.tensor([7])), whole[:, 7:8])
