"""A solution of exercise 3, in PyTorch.

A pair of numbers is one complex number, and turning it is multiplying it with cos(angle) + i sin(angle).
"""

import math

import torch


def angles(position, width):
    exponents = torch.arange(0, width, 2) / width  # 2i/width: 0, 2/width, 4/width, ...
    # mistakes: exponent-not-divided, exponent-half, exponent-sign
    return position / 10000**exponents


def turn(a, b, angle):
    # (a + ib)(cos + i sin) = (a cos - b sin) + i (a sin + b cos)
    # mistakes: turned-back, turn-sin-cos-swapped
    turned = torch.complex(a, b) * torch.polar(torch.ones_like(angle), angle)
    return turned.real, turned.imag


def clocks(positions, width):
    """The hands of all clocks at some positions, as complex numbers of length 1. [T, width/2]"""
    even = torch.arange(0, width, 2)
    speed = torch.exp(-math.log(10000.0) * even / width)  # 10000^(-2i/width), by way of logarithms
    angle = torch.outer(positions.float(), speed)
    return torch.polar(torch.ones_like(angle), angle)


def sinusoidal(n_positions, d_model):
    # mistakes: positions-from-1
    hands = clocks(torch.arange(n_positions), d_model)
    # stack puts sine and cosine side by side on a new last axis, and flatten joins it with the pairs: they alternate.
    # mistakes: sin-cos-swapped, halves
    return torch.stack([hands.imag, hands.real], dim=-1).flatten(1)  # the sine is the imaginary part


def embed(ids, table):
    vectors = torch.nn.functional.embedding(ids, table)
    n_words, d_model = vectors.shape[1:]
    # mistakes: not-scaled, scale-at-positions, positions-concatenated
    return math.sqrt(d_model) * vectors + sinusoidal(n_words, d_model)


def shift_matrix(k, d_model):
    # mistakes: k-ignored
    hands = clocks(torch.tensor([k]), d_model)[0]
    # mistakes: turned-back, sines-same-sign
    blocks = [torch.tensor([[hand.real, hand.imag], [-hand.imag, hand.real]]) for hand in hands]
    return torch.block_diag(*blocks)


def rotate(x, positions):
    # Neighbours become one complex number: [..., E] -> [..., E/2, 2] -> complex [..., E/2].
    # mistakes: halves, conventions-mixed
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    # mistakes: turned-back, positions-ignored
    return torch.view_as_real(pairs * clocks(positions, x.size(-1))).flatten(-2)
