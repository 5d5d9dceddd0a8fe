"""A solution of exercise 1, in PyTorch, with einsum: the letters name the axes, and an axis that is missing after the
arrow is summed over."""

import math

import torch


def dot(a, b):
    # d is on both sides and not in the result: multiply, and sum over d.
    # mistakes: not-added, all-pairs
    return torch.einsum("d,d->", a, b)


def weighted_average(weights, values):
    # Each weight gets a second axis, [K, 1], so that it multiplies its whole row. Then the rows are added up.
    # mistakes: wrong-axis, not-added
    return (weights[:, None] * values).sum(dim=0)


def softmax(x):
    # amax returns only the maximum (max would also return its index); keepdim lets it line up with its row.
    # mistakes: no-maximum, one-maximum, minus
    powers = torch.exp(x - x.amax(dim=-1, keepdim=True))
    # mistakes: softmax-axis, softmax-over-everything, not-normalised
    return powers / powers.sum(dim=-1, keepdim=True)


def causal_mask(n):
    positions = torch.arange(n)
    # One row [1, n] and one column [n, 1] are compared: broadcasting makes all pairs, [n, n].
    # mistakes: mask-transposed, not-itself, only-itself
    return positions[None, :] <= positions[:, None]  # column j, row i: j <= i


def attention(q, k, v, mask=None):
    # e, the width, is summed over; q and k stay: one score for each pair of a query and a key.
    # mistakes: no-scale, scale-d, scale-value-width
    scores = torch.einsum("...qe,...ke->...qk", q, k) / math.sqrt(k.size(-1))
    if mask is not None:
        # masked_fill writes where it is True, and the mask is True at what may be seen: so it needs a ~ (not).
        # mistakes: mask-inverted, masked-to-zero
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = softmax(scores)
    # k, the keys, is summed over: the values of all keys, each times its weight.
    # mistakes: weights-transposed, keys-for-values
    return torch.einsum("...qk,...kv->...qv", weights, v), weights
