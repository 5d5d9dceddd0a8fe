"""A solution of exercise 3, in PyTorch. A pair of numbers is one complex number, and turning it is multiplying it with
cos(angle) + i sin(angle)."""

import math

import torch


def clocks(positions, width):
    """The hands of all clocks at some positions, as complex numbers of length 1. [T, width/2]"""
    even = torch.arange(0, width, 2)
    speed = torch.exp(-math.log(10000.0) * even / width)  # 10000^(-2i/width), by way of logarithms
    angle = torch.outer(positions.float(), speed)
    return torch.polar(torch.ones_like(angle), angle)


def sinusoidal(n_positions, d_model):
    hands = clocks(torch.arange(n_positions), d_model)
    return torch.stack([hands.imag, hands.real], dim=-1).flatten(1)  # the sine is the imaginary part


def embed(ids, table):
    vectors = torch.nn.functional.embedding(ids, table)
    n_words, d_model = vectors.shape[1:]
    return math.sqrt(d_model) * vectors + sinusoidal(n_words, d_model)


def shift_matrix(k, d_model):
    hands = clocks(torch.tensor([k]), d_model)[0]
    blocks = [torch.tensor([[hand.real, hand.imag], [-hand.imag, hand.real]]) for hand in hands]
    return torch.block_diag(*blocks)


def rotate(x, positions):
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * clocks(positions, x.size(-1))).flatten(-2)
