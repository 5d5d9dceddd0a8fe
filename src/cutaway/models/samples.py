"""Random inputs for a model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.models.vision import VisionTransformer
from cutaway.nn.embedding import InputEmbedding


def sample_inputs(model: nn.Module, length: int) -> tuple[Tensor, ...]:
    """Random texts of `length` tokens (or of the model's longest length), or a random image, for `model(*inputs)`."""
    if isinstance(model, VisionTransformer):
        size, like = model.embedding.image_size, model.embedding.project.weight
        return (torch.rand(1, model.embedding.channels, size, size, device=like.device, dtype=like.dtype),)
    if isinstance(model, EncoderDecoder):
        return sample_ids(model.source_embedding, length), sample_ids(model.target_embedding, length)
    embedding = model.embedding
    assert isinstance(embedding, InputEmbedding)
    return (sample_ids(embedding, length),)


def sample_ids(embedding: InputEmbedding, length: int) -> Tensor:
    """Random token ids [1,T]"""
    weight = embedding.tokens.weight
    return torch.randint(weight.size(0), (1, min(length, embedding.position.max_length)), device=weight.device)
