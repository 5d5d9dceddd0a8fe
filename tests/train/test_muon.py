"""Muon against torch.optim's Muon and against the singular value decomposition."""

from dataclasses import replace

import pytest
import torch
import torch.optim._muon as theirs

from cutaway import build_model, preset
from cutaway.models.build import POSITIONS
from cutaway.train.muon import Muon, orthogonalize
from cutaway.train.optimizers import layer_matrices

SHAPES = [(8, 8), (8, 8), (16, 8), (8, 20), (16, 8)]


def in_double(gradient, coefficients, rounds, epsilon):
    """torch's iteration in double precision instead of bfloat16."""
    a, b, c = coefficients
    x = gradient.T if gradient.size(0) > gradient.size(1) else gradient
    x = x / x.norm().clamp(min=epsilon)
    for _ in range(rounds):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if gradient.size(0) > gradient.size(1) else x


def test_muon_equals_torch(monkeypatch):
    monkeypatch.setattr(theirs, "_zeropower_via_newtonschulz", in_double)
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in SHAPES]
    copies = [torch.nn.Parameter(p.detach().clone()) for p in ours]
    one = Muon(ours, lr=0.01, momentum=0.95, weight_decay=0.1)
    other = torch.optim.Muon(copies, lr=0.01, momentum=0.95, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for _ in range(4):
        for p, copy in zip(ours, copies, strict=True):
            p.grad = torch.randn_like(p)
            copy.grad = p.grad.clone()
        one.step()
        other.step()
    for p, copy in zip(ours, copies, strict=True):
        assert torch.allclose(p, copy, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 12, 12), (2, 20, 8), (2, 8, 20)])
def test_singular_values_become_about_equal(shape):
    torch.manual_seed(1)
    matrices = torch.randn(shape, dtype=torch.float64)
    u, _, vh = torch.linalg.svd(matrices, full_matrices=False)
    strengths = torch.linalg.svdvals(orthogonalize(matrices))
    assert strengths.max() < 1.3
    assert strengths.quantile(0.2) > 0.6
    assert (u.mT @ orthogonalize(matrices) @ vh.mT).diagonal(dim1=1, dim2=2).min() > 0  # the same directions


def test_matrix_without_gradient_is_not_changed():
    p = torch.nn.Parameter(torch.ones(2, 2))
    Muon([p], lr=0.1, momentum=0.9, weight_decay=0.1).step()
    assert torch.equal(p, torch.ones(2, 2))


@pytest.mark.parametrize("position", POSITIONS)
def test_muon_gets_each_matrix_once_and_no_table_of_positions(position):
    config = replace(preset("tiny"), position=position, attention_kernel="exact", encoder_layers=3, decoder_layers=3)
    model = build_model(config)
    matrices = layer_matrices(model)
    assert len({id(matrix) for matrix in matrices}) == len(matrices)
    names = {name for name, p in model.named_parameters() if any(p is matrix for matrix in matrices)}
    parts = {name.split(".")[-2] for name in names}
    assert parts == {"query", "key", "value", "output", "expand", "contract"}
    assert len(names) == 3 * (4 + 2) + 3 * (8 + 2)
