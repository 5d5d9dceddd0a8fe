"""Exercise 7 with loops, head by head and query by query, without any mask: slow, but right."""

import math

import numpy as np

from cutaway.course.given import feed_forward, layer_norm


def append(cache, k, v):
    n_texts, n_heads, t, e = cache["k"].shape
    n = k.shape[2]
    result = {"k": np.zeros((n_texts, n_heads, t + n, e)), "v": np.zeros((n_texts, n_heads, t + n, e))}
    for name, new in {"k": k, "v": v}.items():
        for j in range(t):
            result[name][:, :, j] = cache[name][:, :, j]
        for j in range(n):
            result[name][:, :, t + j] = new[:, :, j]
    return result


def reorder(cache, rows):
    result = {"k": [], "v": []}
    for row in rows:
        result["k"].append(cache["k"][row])
        result["v"].append(cache["v"][row])
    return {"k": np.array(result["k"]), "v": np.array(result["v"])}


def embed_at(ids, table, start):
    (n_texts, n), d = ids.shape, table.shape[1]
    result = np.empty((n_texts, n, d))
    for b in range(n_texts):
        for i in range(n):
            position = start + i
            for c in range(d):
                angle = position / 10000 ** ((c - c % 2) / d)
                wave = math.cos(angle) if c % 2 else math.sin(angle)
                result[b, i, c] = math.sqrt(d) * table[ids[b, i], c] + wave
    return result


def weighted_sum(query, keys, values):
    scores = [float(query @ key) / math.sqrt(len(query)) for key in keys]
    powers = [math.exp(score) for score in scores]
    total = np.zeros(len(query))
    for power, value in zip(powers, values, strict=True):
        total = total + power / sum(powers) * value
    return total


def cached_attention(x, cache, weights, n_heads):
    n_texts, n, d = x.shape
    e = d // n_heads
    k, v = np.zeros((n_texts, n_heads, n, e)), np.zeros((n_texts, n_heads, n, e))
    for h in range(n_heads):
        part = slice(h * e, (h + 1) * e)
        k[:, h] = x @ weights["key"][:, part]
        v[:, h] = x @ weights["value"][:, part]
    new = append(cache, k, v)
    before = cache["k"].shape[2]
    joined = np.zeros(x.shape)
    for b in range(n_texts):
        for h in range(n_heads):
            part = slice(h * e, (h + 1) * e)
            for i in range(n):
                seen = slice(0, before + i + 1)
                query = x[b, i] @ weights["query"][:, part]
                joined[b, i, part] = weighted_sum(query, new["k"][b, h, seen], new["v"][b, h, seen])
    output = joined @ weights["output"]
    return output, new


def memory_cache(memory, weights, n_heads):
    n_texts, n, d = memory.shape
    e = d // n_heads
    cache = {}
    for letter, name in (("k", "key"), ("v", "value")):
        everything = memory @ weights[name]
        array = np.zeros((n_texts, n_heads, n, e))
        for h in range(n_heads):
            array[:, h] = everything[:, :, h * e : (h + 1) * e]
        cache[letter] = array
    return cache


def attend_memory(x, cache, weights, n_heads, mask=None):
    n_texts, n, d = x.shape
    e, length = d // n_heads, cache["k"].shape[2]
    seen = np.ones((n_texts, n_heads, n, length), bool)
    if mask is not None:
        seen = seen & mask
    joined = np.zeros(x.shape)
    for b in range(n_texts):
        for h in range(n_heads):
            part = slice(h * e, (h + 1) * e)
            for i in range(n):
                query = x[b, i] @ weights["query"][:, part]
                keys, values = cache["k"][b, h, seen[b, h, i]], cache["v"][b, h, seen[b, h, i]]
                joined[b, i, part] = weighted_sum(query, keys, values)
    return joined @ weights["output"]


def decoder_block_step(x, cache, memory_keys, weights, n_heads, memory_mask=None):
    first, second, third = weights["norm_1"], weights["norm_2"], weights["norm_3"]
    change, new = cached_attention(x, cache, weights["self_attention"], n_heads)
    x = layer_norm(np.add(x, change), **first, eps=1e-5)
    change = attend_memory(x, memory_keys, weights["cross_attention"], n_heads, memory_mask)
    x = layer_norm(np.add(x, change), **second, eps=1e-5)
    change = feed_forward(x, weights["feed_forward"])
    x = layer_norm(np.add(x, change), **third, eps=1e-5)
    return x, new
