"""A model's weights as bytes in the safetensors format, and back. A matrix that several parts share is kept once."""

from __future__ import annotations

import safetensors.torch
import torch
from torch import Tensor, nn

from cutaway.errors import RunError


def weights_to_bytes(model: nn.Module) -> bytes:
    # named_parameters names a shared matrix once, where it occurs first
    return safetensors.torch.save({name: p.detach().contiguous() for name, p in model.named_parameters()})


def load_weights(model: nn.Module, data: bytes, where: str = "the weights") -> None:
    """Put saved weights into `model`: no name may be missing, none left over, and every shape must agree."""
    copy_tensors(dict(model.named_parameters()), safetensors.torch.load(data), where)


@torch.no_grad()
def copy_tensors(into: dict[str, Tensor], saved: dict[str, Tensor], where: str) -> None:
    missing, surplus = into.keys() - saved.keys(), saved.keys() - into.keys()
    if missing or surplus:
        raise RunError(
            f"{where} and the model do not fit: missing {some(missing)}, unknown {some(surplus)}. "
            "Is config.json the one that they were trained with?"
        )
    for name, tensor in into.items():
        if tensor.shape != saved[name].shape:
            raise RunError(
                f"{where} and the model do not fit: {name} is {tuple(saved[name].shape)} there and "
                f"{tuple(tensor.shape)} here. Is config.json the one that they were trained with?"
            )
    for name, tensor in into.items():
        tensor.copy_(saved[name])


def some(names: set[str]) -> str:
    """A few of many names, for a message."""
    shown = sorted(names)[:3]
    return (", ".join(shown) + (f" and {len(names) - 3} more" if len(names) > 3 else "")) or "nothing"
