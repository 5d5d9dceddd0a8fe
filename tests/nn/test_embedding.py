"""Embeddings: scale, positions, segments and the norm; patches against a convolution."""

import math

import pytest
import torch
from helpers import max_difference
from torch import nn
from torch.nn import LayerNorm

from cutaway.errors import DataError
from cutaway.nn.embedding import InputEmbedding, TokenEmbedding
from cutaway.nn.learned_positions import LearnedPosition
from cutaway.nn.patches import PatchEmbedding
from cutaway.nn.positions import Position, SinusoidalPosition

IDS = torch.tensor([[3, 1, 4], [1, 5, 9]])


def random_parameters(module):
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("scaled", [True, False])
def test_tokens_are_rows_of_the_matrix_times_sqrt_d(scaled):
    tokens = random_parameters(TokenEmbedding(11, 8, scaled))
    for b in range(2):
        for t in range(3):
            expected = tokens.weight[IDS[b, t]] * (math.sqrt(8) if scaled else 1)
            assert max_difference(tokens(IDS)[b, t], expected) < 1e-12


@pytest.mark.usefixtures("double")
def test_segments_positions_and_norm_in_the_order_of_bert():
    embedding = InputEmbedding(
        TokenEmbedding(11, 8, scaled=False),
        LearnedPosition(8, 20),
        0.0,
        LayerNorm(8),
        TokenEmbedding(2, 8, scaled=False),
    )
    random_parameters(embedding)
    segments = torch.tensor([[0, 0, 1], [0, 1, 1]])
    for start in (0, 7):
        for given_segments in (None, segments):
            out = embedding(IDS, start, given_segments)
            used = torch.zeros_like(IDS) if given_segments is None else given_segments
            summed = (
                embedding.tokens.weight[IDS]
                + embedding.segments.weight[used]
                + embedding.position.table[start : start + 3]
            )
            assert max_difference(out, embedding.norm(summed)) < 1e-12


def test_start_shifts_the_positions():
    embedding = InputEmbedding(random_parameters(TokenEmbedding(11, 8)), SinusoidalPosition(8, 20), 0.0)
    whole = embedding(IDS)
    for t in range(3):
        assert torch.equal(embedding(IDS[:, t : t + 1], start=t), whole[:, t : t + 1])


def test_a_text_that_is_too_long_names_both_lengths():
    embedding = InputEmbedding(TokenEmbedding(11, 8), Position(4), 0.0)
    embedding(IDS, start=1)
    with pytest.raises(DataError, match="the text has 5 tokens; this model has positions for 4"):
        embedding(IDS, start=2)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(("channels", "image", "patch"), [(1, 4, 2), (3, 12, 4), (3, 6, 6), (2, 5, 1)])
def test_patches_are_a_convolution_with_its_stride(channels, image, patch):
    embedding = PatchEmbedding(image, patch, channels, 8, Position(99), 0.0, class_token=False)
    convolution = nn.Conv2d(channels, 8, kernel_size=patch, stride=patch)
    with torch.no_grad():
        convolution.weight.copy_(embedding.project.weight.view(8, channels, patch, patch))
        convolution.bias.copy_(embedding.project.bias)
    images = torch.randn(2, channels, image, image)
    assert max_difference(embedding(images), convolution(images).flatten(2).mT) < 1e-10


@pytest.mark.usefixtures("double")
def test_the_class_token_comes_first_and_has_position_0():
    embedding = random_parameters(PatchEmbedding(4, 2, 1, 8, LearnedPosition(8, 5), 0.0, class_token=True))
    images = torch.randn(2, 1, 4, 4)
    out, table = embedding(images), embedding.position.table
    assert out.shape == (2, 5, 8)
    assert max_difference(out[:, 0], (embedding.class_token + table[0]).expand(2, 8)) < 1e-12
    assert max_difference(out[:, 1:], embedding.project(embedding.patches(images)) + table[1:]) < 1e-12
    assert embedding.patches(images)[1, 2].tolist() == images[1, 0, 2:, :2].flatten().tolist()  # row by row


def test_images_of_another_size_are_refused_with_both_sizes():
    embedding = PatchEmbedding(4, 2, 1, 8, Position(5), 0.0, class_token=True)
    with pytest.raises(DataError, match=r"the images have shape \[2, 3, 4, 4\]; this model expects \[batch, 1, 4, 4\]"):
        embedding(torch.zeros(2, 3, 4, 4))
