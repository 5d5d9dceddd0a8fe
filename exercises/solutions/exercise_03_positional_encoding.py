"""A solution of exercise 3, in NumPy. There are other ways to write it that are just as right."""

import numpy as np


def speeds(width):
    """How far each pair turns in one step."""
    return 1 / 10000 ** (np.arange(0, width, 2) / width)  # 0, 2, 4, ... is 2i already


def sinusoidal(n_positions, d_model):
    angle = np.arange(n_positions)[:, None] * speeds(d_model)  # [n, d/2]: a row for each position
    table = np.zeros((n_positions, d_model))
    table[:, 0::2] = np.sin(angle)
    table[:, 1::2] = np.cos(angle)
    return table


def embed(ids, table):
    n_words, d_model = ids.shape[1], table.shape[1]
    return table[ids] * np.sqrt(d_model) + sinusoidal(n_words, d_model)


def shift_matrix(k, d_model):
    matrix = np.zeros((d_model, d_model))
    for i, angle in enumerate(k * speeds(d_model)):
        pair = slice(2 * i, 2 * i + 2)
        matrix[pair, pair] = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
    return matrix


def rotate(x, positions):
    angle = positions[:, None] * speeds(x.shape[-1])
    sin, cos = np.sin(angle), np.cos(angle)
    a, b = x[..., 0::2], x[..., 1::2]
    rotated = np.zeros(x.shape)
    rotated[..., 0::2] = a * cos - b * sin
    rotated[..., 1::2] = a * sin + b * cos
    return rotated
