"""Feed-forward networks against their formulas in NumPy, one token at a time."""

import math

import numpy as np
import pytest
import torch
from helpers import tiny_config

from cutaway.models.build import FEED_FORWARDS
from cutaway.nn.recording import record_activations

# activations of a single number
ACTIVATIONS = {
    "relu": lambda x: max(0.0, x),
    "relu2": lambda x: max(0.0, x) ** 2,  # So et al. 2021
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),  # Hendrycks & Gimpel 2016: x Φ(x)
    "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + math.exp(-x)),  # Elfwing et al. 2018: x sigmoid(x)
    "swiglu": lambda x: x / (1 + math.exp(-x)),  # Shazeer 2020, equation 6: Swish₁(xW) ⊙ xV
    "geglu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),  # GELU(xW) ⊙ xV
    "geglu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


def apply_linear(linear, x):
    """W x + b, row by row."""
    weight = linear.weight.detach().numpy()
    bias = np.zeros(len(weight)) if linear.bias is None else linear.bias.detach().numpy()
    return np.array([row @ x + b for row, b in zip(weight, bias, strict=True)])


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", FEED_FORWARDS)
def test_feed_forward_equals_its_formula(name, bias):
    torch.manual_seed(0)
    network = FEED_FORWARDS[name](tiny_config(feed_forward=name, bias=bias))
    x = 2 * torch.randn(2, 3, 8)
    with record_activations(network, "hidden") as seen:
        out = network(x)
    for b, t in np.ndindex(2, 3):
        token = x[b, t].numpy()
        if "glu" in name:
            opened = np.array([ACTIVATIONS[name](n) for n in apply_linear(network.gate, token)])
            hidden = opened * apply_linear(network.expand, token)
        else:
            hidden = np.array([ACTIVATIONS[name](n) for n in apply_linear(network.expand, token)])
        assert np.abs(seen["hidden"][b, t].numpy() - hidden).max() < 1e-10
        assert np.abs(out[b, t].detach().numpy() - apply_linear(network.contract, hidden)).max() < 1e-10


def test_without_bias():
    for name, make in FEED_FORWARDS.items():
        assert not any("bias" in p for p, _ in make(tiny_config(feed_forward=name, bias=False)).named_parameters())
