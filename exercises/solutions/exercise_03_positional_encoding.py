"""A solution of exercise 3, in NumPy. There are other ways to write it that are just as right."""

import numpy as np


def speeds(width):
    """How far each pair turns in one step."""
    return 1 / 10000 ** (np.arange(0, width, 2) / width)  # 0, 2, 4, ... is 2i already


def angles(position, width):
    # mistakes: exponent-half, exponent-twice, exponent-sign, position-ignored
    return position * speeds(width)  # one for each pair


def turn(a, b, angle):
    # Both new numbers are made of both old ones. The one minus makes it a rotation.
    # mistakes: turned-back, sines-same-sign, turned-in-place
    return a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)


def sinusoidal(n_positions, d_model):
    # The positions are a column [n, 1] and the speeds a row [d/2]; their product is a table of all angles.
    # mistakes: positions-from-1, exponent-half, exponent-to-1, frequency-forgotten
    angle = np.arange(n_positions)[:, None] * speeds(d_model)  # [n, d/2]: a row for each position
    table = np.zeros((n_positions, d_model))
    # mistakes: sin-cos-swapped, halves
    table[:, 0::2] = np.sin(angle)
    # mistakes: sines-only
    table[:, 1::2] = np.cos(angle)
    return table


def embed(ids, table):
    n_words, d_model = ids.shape[1], table.shape[1]
    # table[ids] is [B, T, D]: a row of the table for each id. The positions [T, D] are the same for all texts.
    # mistakes: not-scaled, scaled-by-width, positions-scaled, positions-along-batch, positions-by-id
    return table[ids] * np.sqrt(d_model) + sinusoidal(n_words, d_model)


def shift_matrix(k, d_model):
    matrix = np.zeros((d_model, d_model))
    # mistakes: k-ignored, k-sign-ignored
    for i, angle in enumerate(k * speeds(d_model)):  # how far pair i turns in k steps
        pair = slice(2 * i, 2 * i + 2)
        # Row 0 makes sin(a + b) of sin(a) and cos(a), row 1 makes cos(a + b).
        # mistakes: turned-back, turn-sin-cos-swapped, halves
        matrix[pair, pair] = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
    return matrix


def rotate(x, positions):
    # mistakes: positions-ignored, exponent-half
    angle = positions[:, None] * speeds(x.shape[-1])  # [T, E/2]
    sin, cos = np.sin(angle), np.cos(angle)
    # mistakes: halves, halves-one-way
    a, b = x[..., 0::2], x[..., 1::2]  # the first and the second numbers of all pairs, [..., T, E/2]
    rotated = np.zeros(x.shape)
    # mistakes: turned-back, sines-same-sign, half-turned, turned-in-place
    rotated[..., 0::2] = a * cos - b * sin
    rotated[..., 1::2] = a * sin + b * cos
    return rotated
