"""Which precision is chosen, and how float16 finds the scale that its gradients need."""

import pytest
import torch

from cutaway.config import TrainConfig
from cutaway.errors import ConfigError
from cutaway.train.precision import Precision, chosen

CPU = torch.device("cpu")


def test_a_cpu_computes_in_float32_unless_told_otherwise():
    assert chosen("auto", CPU) == "float32"
    assert chosen("bfloat16", CPU) == "bfloat16"
    with pytest.raises(ConfigError, match="'float16' is for GPUs"):
        chosen("float16", CPU)


def test_bfloat16_is_for_products_alone():
    weight = torch.nn.Parameter(torch.randn(3, 3))
    with Precision(TrainConfig(precision="bfloat16"), CPU).computing():
        assert (torch.ones(2, 3) @ weight).dtype == torch.bfloat16
    assert weight.dtype == torch.float32


def test_a_scale_that_is_too_large_shrinks_with_each_step_that_is_skipped():
    precision, weight = Precision(TrainConfig(), CPU), torch.nn.Parameter(torch.ones(2))
    precision.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)  # as float16 has on a GPU
    optimizer = torch.optim.SGD([weight], lr=0.1)
    gradients = []
    for factor in (torch.inf, torch.inf, 3.0):
        optimizer.zero_grad()
        precision.backward((weight * factor).sum())
        precision.unscale(optimizer)
        gradients.append(weight.grad[0].item())
        precision.after_step()
    assert gradients[-1] == 3.0  # scaled up, and down again
    assert precision.scaler.get_scale() == 2.0**14
