"""Exercise 3 with loops, number by number; the matrix of a shift by k is fitted to data, without trigonometry."""

import cmath
import math

import numpy as np


def angles(position, width):
    found = []
    for even in range(0, width, 2):
        found.append(position / 10000.0 ** (even / width))
    return found


def turn(a, b, angle):
    first, second = np.zeros(a.shape), np.zeros(a.shape)
    for place in np.ndindex(a.shape):
        moved = complex(a[place], b[place]) * cmath.exp(1j * float(angle[place]))
        first[place], second[place] = moved.real, moved.imag
    return first, second


def sinusoidal(n_positions, d_model):
    rows = []
    for pos in range(n_positions):
        row = []
        for column in range(d_model):
            pair = column // 2
            angle = pos / 10000 ** (2 * pair / d_model)
            row.append(math.sin(angle) if column % 2 == 0 else math.cos(angle))
        rows.append(row)
    return rows


def embed(ids, table):
    n_texts, n_words = ids.shape
    d_model = len(table[0])
    positions = sinusoidal(n_words, d_model)
    result = np.zeros((n_texts, n_words, d_model))
    for text in range(n_texts):
        for place in range(n_words):
            vector = table[ids[text, place]]
            for d in range(d_model):
                result[text, place, d] = vector[d] * d_model**0.5 + positions[place][d]
    return result


def shift_matrix(k, d_model):
    table = np.array(sinusoidal(2000, d_model))
    if k == 0:
        return np.eye(d_model)
    before, after = (table[:-k], table[k:]) if k > 0 else (table[-k:], table[:k])
    solution, *_ = np.linalg.lstsq(before, after, rcond=None)
    return solution.T  # it solves before @ X = after, row by row


def rotate(x, positions):
    width = x.shape[-1]
    result = x.copy()
    for place in np.ndindex(x.shape[:-1]):
        for i in range(width // 2):
            angle = positions[place[-1]] * 10000 ** (-2 * i / width)
            pair = complex(x[(*place, 2 * i)], x[(*place, 2 * i + 1)])
            rotated = pair * cmath.exp(1j * angle)
            result[(*place, 2 * i)] = rotated.real
            result[(*place, 2 * i + 1)] = rotated.imag
    return result
