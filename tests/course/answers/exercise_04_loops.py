"""Exercise 4 with loops, token by token, with attention written out: slow, but right."""

import math

import numpy as np


def center(x):
    result = np.empty(x.shape)
    for place in np.ndindex(x.shape[:-1]):
        result[place] = x[place] - sum(x[place]) / len(x[place])
    return result


def relu(x):
    result = np.empty(x.shape)
    for place, value in np.ndenumerate(x):
        result[place] = value if value >= 0 else 0
    return result


def layer_norm(x, gain, bias, eps):
    result = np.empty(x.shape)
    for place in np.ndindex(x.shape[:-1]):
        token = [float(value) for value in x[place]]
        mean = math.fsum(token) / len(token)
        variance = math.fsum((value - mean) ** 2 for value in token) / len(token)
        deviation = math.sqrt(variance + eps)
        for d, value in enumerate(token):
            result[(*place, d)] = gain[d] * (value - mean) / deviation + bias[d]
    return result


def feed_forward(x, weights):
    (d, f), result = weights["w1"].shape, np.empty(x.shape)
    for place in np.ndindex(x.shape[:-1]):
        hidden = []
        for j in range(f):
            total = sum(x[place][i] * weights["w1"][i, j] for i in range(d)) + weights["b1"][j]
            hidden.append(total if total > 0 else 0.0)
        for i in range(d):
            out = sum(hidden[j] * weights["w2"][j, i] for j in range(f)) + weights["b2"][i]
            result[(*place, i)] = out
    return result


def self_attention(x, weights, n_heads, mask):
    n_texts, n, d = x.shape
    e = d // n_heads
    seen = np.ones((n_texts, n_heads, n, n), bool)
    if mask is not None:
        seen = seen & mask
    joined = np.zeros(x.shape)
    for b in range(n_texts):
        for h in range(n_heads):
            part = slice(h * e, (h + 1) * e)
            q, k, v = (x[b] @ weights[name][:, part] for name in ("query", "key", "value"))
            for i in range(n):
                powers = [math.exp(q[i] @ k[j] / math.sqrt(e)) if seen[b, h, i, j] else 0.0 for j in range(n)]
                joined[b, i, part] = sum(p / sum(powers) * v[j] for j, p in enumerate(powers))
    return joined @ weights["output"]


def encoder_block(x, weights, n_heads, mask=None):
    first, second = weights["norm_1"], weights["norm_2"]
    x = np.add(self_attention(x, weights["attention"], n_heads, mask), x)
    x = layer_norm(x, **first, eps=1e-5)
    x = np.add(feed_forward(x, weights["feed_forward"]), x)
    return layer_norm(x, **second, eps=1e-5)


def encoder(x, layers, n_heads, mask=None):
    i = 0
    while i < len(layers):
        x = encoder_block(x, layers[i], n_heads, mask)
        i += 1
    return x
