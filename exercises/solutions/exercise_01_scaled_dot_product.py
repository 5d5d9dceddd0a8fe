"""A solution of exercise 1, in NumPy. There are other ways to write it that are just as right."""

import numpy as np


def dot(a, b):
    # mistakes: all-pairs, sums-multiplied
    products = a * b  # [d]: numbers at the same place are multiplied
    # mistakes: not-added, mean-of-products
    return products.sum()  # one number


def weighted_average(weights, values):
    # [K] @ [K, E] -> [E]: a matrix product multiplies and adds up in one step. It sums over K, the axis that both
    # have: each row of values times its weight.
    # mistakes: weights-ignored, wrong-axis, not-added, divided-again
    return weights @ values


def softmax(x):
    # Subtract the largest number of each row. The softmax stays the same, because every power is divided by e^max,
    # and so is their sum. But now the largest power is e^0 = 1, and nothing can overflow. keepdims keeps the axis as
    # one of length 1, so that the maximum lines up with its row.
    # mistakes: no-maximum, one-maximum
    x = x - x.max(axis=-1, keepdims=True)
    # mistakes: no-powers, minus
    powers = np.exp(x)  # positive, and e^(-inf) = 0
    # mistakes: softmax-axis, softmax-over-everything, not-normalised
    return powers / powers.sum(axis=-1, keepdims=True)  # each row by its own sum


def causal_mask(n):
    # tril keeps the lower triangle with the diagonal: row i is True in the columns 0 to i, and False after them.
    # mistakes: mask-inverted, mask-transposed, future-leak, not-itself
    return np.tril(np.ones((n, n), dtype=bool))


def attention(q, k, v, mask=None):
    d_k = q.shape[-1]
    # [..., Q, d_k] @ [..., d_k, K] -> [..., Q, K]: the dot product of each query with each key. swapaxes exchanges the
    # last two axes only; .T would also turn round the axes in front.
    # mistakes: no-scale, scale-d, scale-length, q-k-exchanged
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(d_k)
    if mask is not None:
        # Hidden scores become minus infinity before the softmax, so that the other keys share the whole weight.
        # mistakes: mask-inverted, mask-after-softmax, masked-to-zero, mask-added
        scores = np.where(mask, scores, -np.inf)  # e^(-inf) = 0: a hidden key gets no weight
    # mistakes: no-softmax, softmax-twice
    weights = softmax(scores)
    # [..., Q, K] @ [..., K, d_v] -> [..., Q, d_v]: for each query, the weighted average of all values.
    # mistakes: weights-transposed, keys-for-values, scores-returned, returned-in-other-order
    return weights @ v, weights
