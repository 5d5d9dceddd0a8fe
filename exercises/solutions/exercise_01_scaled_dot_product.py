"""A solution of exercise 1, in NumPy. There are other ways to write it that are just as right."""

import numpy as np


def softmax(x):
    x = x - x.max(axis=-1, keepdims=True)  # the softmax does not notice, and e^x cannot overflow
    powers = np.exp(x)
    return powers / powers.sum(axis=-1, keepdims=True)


def causal_mask(n):
    return np.tril(np.ones((n, n), dtype=bool))


def attention(q, k, v, mask=None):
    d_k = q.shape[-1]
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(d_k)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)  # e^(-inf) = 0: a hidden key gets no weight
    weights = softmax(scores)
    return weights @ v, weights
