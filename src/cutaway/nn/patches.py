"""From pixels to vectors: an image is split into patches, which serve as tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cutaway.errors import DataError
from cutaway.nn.dropout import Dropout
from cutaway.nn.positions import Position
from cutaway.nn.probe import Probe


class PatchEmbedding(nn.Module):
    """Patches of P×P pixels as tokens (ViT, Dosovitskiy et al. 2021).    [B,C,H,W] -> [B,N,D]

    ┌──┬──┐
    │ 0│ 1│      N = H/P · W/P patches, row by row. Each is flattened (C·P·P numbers) and projected to D.
    ├──┼──┤      With `class_token`, a learned vector comes first; a head can read the class there.
    │ 2│ 3│
    └──┴──┘
    """

    def __init__(
        self,
        image_size: int,
        patch_size: int,
        channels: int,
        d_model: int,
        position: Position,
        dropout: float,
        class_token: bool,
    ):
        super().__init__()
        self.image_size, self.patch_size, self.channels = image_size, patch_size, channels
        self.project = nn.Linear(channels * patch_size**2, d_model)
        # a matrix with one row, so that it is initialised like other matrices: zeros would give a norm huge gradients
        self.class_token = nn.Parameter(torch.zeros(1, d_model)) if class_token else None
        self.position = position
        self.dropout = Dropout(dropout)
        self.embedded = Probe()

    def forward(self, images: Tensor) -> Tensor:
        self.check(images)
        x_BND = self.project(self.patches(images))
        if self.class_token is not None:
            x_BND = torch.cat([self.class_token.expand(x_BND.size(0), 1, -1), x_BND], dim=1)
        x_BND = self.position.embed(x_BND, torch.arange(x_BND.size(1), device=x_BND.device))
        return self.embedded(self.dropout(x_BND))

    def patches(self, images: Tensor) -> Tensor:
        """[B,C,H,W] -> [B,N,C·P·P]"""
        B, C, P = images.size(0), self.channels, self.patch_size
        grid = images.unflatten(3, (-1, P)).unflatten(2, (-1, P))  # [B, C, rows, P, columns, P]
        return grid.permute(0, 2, 4, 1, 3, 5).reshape(B, -1, C * P * P)

    def check(self, images: Tensor) -> None:
        expected = (self.channels, self.image_size, self.image_size)
        if tuple(images.shape[1:]) != expected:
            raise DataError(
                f"the images have shape {list(images.shape)}; this model expects "
                f"[batch, {', '.join(map(str, expected))}]. Resize them first."
            )
