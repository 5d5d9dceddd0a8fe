"""A model's weights as bytes in the safetensors format, and back. A shared matrix is stored once."""

from __future__ import annotations

from collections.abc import Mapping

import safetensors.torch
import torch
from torch import Tensor, nn

from cutaway.runs.weights import check_fit


def weights_to_bytes(model: nn.Module) -> bytes:
    # named_parameters lists a shared matrix once, under its first name
    return safetensors.torch.save({name: p.detach().contiguous() for name, p in model.named_parameters()})


def load_weights(model: nn.Module, data: bytes, where: str = "the weights file") -> None:
    """Load saved weights into `model`. All names and shapes must be the same."""
    copy_tensors(dict(model.named_parameters()), safetensors.torch.load(data), where)


def trainable_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The trainable weights, by name."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


@torch.no_grad()
def copy_tensors(into: Mapping[str, Tensor], saved: Mapping[str, Tensor], where: str) -> None:
    check_fit({name: tensor.shape for name, tensor in into.items()}, {n: t.shape for n, t in saved.items()}, where)
    for name, tensor in into.items():
        tensor.copy_(distribute_like(tensor, saved[name]))


def distribute_like(tensor: Tensor, whole: Tensor) -> Tensor:
    """`whole` on the device of `tensor`. If `tensor` is sharded over processes (FSDP2), the shard of this process."""
    if not hasattr(tensor, "placements"):
        return whole.to(tensor.device)
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(tensor, DTensor)
    whole = whole.to(tensor.device, tensor.dtype)
    # every process has read the whole tensor, so nothing is sent
    return distribute_tensor(whole, tensor.device_mesh, tensor.placements, src_data_rank=None)
