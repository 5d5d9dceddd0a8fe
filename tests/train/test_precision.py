"""The choice of the precision, and gradient scaling for float16."""

import pytest
import torch

from cutaway.config import TrainConfig
from cutaway.errors import ConfigError
from cutaway.train.precision import Precision, choose_precision

CPU = torch.device("cpu")


def test_float32_is_the_default_on_a_cpu():
    assert choose_precision("auto", CPU) == "float32"
    assert choose_precision("bfloat16", CPU) == "bfloat16"
    with pytest.raises(ConfigError, match="'float16' is for CUDA, and the device is 'cpu'"):
        choose_precision("float16", CPU)


def test_bfloat16_is_for_matrix_products_only():
    weight = torch.nn.Parameter(torch.randn(3, 3))
    with Precision(TrainConfig(precision="bfloat16"), CPU).autocast():
        assert (torch.ones(2, 3) @ weight).dtype == torch.bfloat16
    assert weight.dtype == torch.float32


def test_gradient_scale_shrinks_after_overflow():
    precision, weight = Precision(TrainConfig(), CPU), torch.nn.Parameter(torch.ones(2))
    precision.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)  # as for float16 on a GPU
    optimizer = torch.optim.SGD([weight], lr=0.1)
    gradients = []
    for factor in (torch.inf, torch.inf, 3.0):
        optimizer.zero_grad()
        precision.backward((weight * factor).sum())
        precision.unscale(optimizer)
        gradients.append(weight.grad[0].item())
        precision.after_step()
    assert gradients[-1] == 3.0  # scaled up and down again
    assert precision.scaler.get_scale() == 2.0**14
