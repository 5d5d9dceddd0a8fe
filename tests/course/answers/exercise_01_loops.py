"""Exercise 1 with loops, number by number: slow, but right."""

import itertools

import numpy as np


def dot(a, b):
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


def weighted_average(weights, values):
    result = []
    for e in range(values.shape[1]):
        result.append(sum(weight * value[e] for weight, value in zip(weights, values, strict=True)))
    return result


def softmax(x):
    result = np.zeros(x.shape)
    for row in np.ndindex(x.shape[:-1]):
        largest = max(x[row])
        powers = [np.e ** (value - largest) for value in x[row]]
        result[row] = [power / sum(powers) for power in powers]
    return result


def causal_mask(n):
    mask = np.zeros((n, n), dtype=int)
    for i in range(n):
        for j in range(n):
            if j <= i:
                mask[i, j] = 1
    return mask


def attention(q, k, v, mask=None):
    front, (n_queries, d_k) = q.shape[:-2], q.shape[-2:]
    n_keys = k.shape[-2]
    scores = np.zeros((*front, n_queries, n_keys))
    for place in np.ndindex(front):
        for i, j in itertools.product(range(n_queries), range(n_keys)):
            dot = 0.0
            for e in range(d_k):
                dot += q[(*place, i, e)] * k[(*place, j, e)]
            scores[(*place, i, j)] = dot * d_k**-0.5
    if mask is not None:
        scores = scores + (1 - mask.astype(float)) * -1e9
    weights = softmax(scores)
    return np.einsum("...qk,...kv->...qv", weights, v), weights
