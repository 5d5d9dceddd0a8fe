"""Exercise 9 with loops, number by number and text by text: slow, but right."""

import math

import numpy as np


def relu_backward(d_output, x):
    d_x = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        if x[place] > 0:
            d_x[place] = d_output[place]
    return d_x


def linear_backward(d_output, x, w):
    d_x, d_w, d_b = np.zeros(x.shape), np.zeros(w.shape), np.zeros(w.shape[1])
    for place in np.ndindex(x.shape[:-1]):
        for i in range(w.shape[0]):
            for j in range(w.shape[1]):
                d_x[place][i] += w[i, j] * d_output[place][j]
                d_w[i, j] += x[place][i] * d_output[place][j]
        for j in range(w.shape[1]):
            d_b[j] += d_output[place][j]
    return d_x, d_w, d_b


def softmax_backward(d_output, weights):
    d_scores = np.zeros(weights.shape)
    for place in np.ndindex(weights.shape[:-1]):
        w, d = weights[place], d_output[place]
        n = len(w)
        for j in range(n):
            for i in range(n):
                slope = w[i] * (1 - w[i]) if i == j else -w[i] * w[j]
                d_scores[place][j] += d[i] * slope
    return d_scores


def cross_entropy_backward(logits, target, pad):
    d_logits, count = np.zeros(logits.shape), 0
    for b, t in np.ndindex(target.shape):
        if target[b, t] == pad:
            continue
        count += 1
        largest = max(logits[b, t])
        powers = [math.exp(z - largest) for z in logits[b, t]]
        for j, power in enumerate(powers):
            p = power / sum(powers)
            d_logits[b, t, j] = p - 1 if j == target[b, t] else p
    return d_logits / count


def layer_norm_backward(d_output, x, gain, eps):
    width = len(gain)
    d_x, d_gain, d_bias = np.zeros(x.shape), [0.0] * width, [0.0] * width
    for place in np.ndindex(x.shape[:-1]):
        mean = sum(x[place]) / width
        variance = sum((value - mean) ** 2 for value in x[place]) / width
        sigma = math.sqrt(variance + eps)
        normed = [(value - mean) / sigma for value in x[place]]
        for i in range(width):
            d_gain[i] += d_output[place][i] * normed[i]
            d_bias[i] += d_output[place][i]
            for j in range(width):
                slope = -1 / width - normed[i] * normed[j] / width
                if i == j:
                    slope += 1
                d_x[place][j] += d_output[place][i] * gain[i] * slope / sigma
    return d_x, np.array(d_gain), np.array(d_bias)


def feed_forward_backward(d_output, x, weights):
    w1, b1, w2 = weights["w1"], weights["b1"], weights["w2"]
    d_x, d_weights = np.zeros(x.shape), {name: np.zeros(w.shape) for name, w in weights.items()}
    for place in np.ndindex(x.shape[:-1]):
        before = x[place] @ w1 + b1
        hidden = np.array([h if h > 0 else 0.0 for h in before])
        d_weights["w2"] += np.outer(hidden, d_output[place])
        d_weights["b2"] += d_output[place]
        d_hidden = [w2[f] @ d_output[place] for f in range(len(b1))]
        d_before = np.array([d if h > 0 else 0.0 for d, h in zip(d_hidden, before, strict=True)])
        d_weights["w1"] += np.outer(x[place], d_before)
        d_weights["b1"] += d_before
        d_x[place] = w1 @ d_before
    return d_x, d_weights


def shares(q, keys, seen):
    """The softmax weights of one query q over the keys that it may see."""
    powers = [math.exp(q @ key / math.sqrt(len(q))) if see else 0.0 for key, see in zip(keys, seen, strict=True)]
    return [power / sum(powers) for power in powers]


def attention_backward(d_output, q, k, v, mask=None):
    seen = np.ones((*q.shape[:-1], k.shape[-2]), bool)
    if mask is not None:
        seen = seen & mask
    d_q, d_k, d_v = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    root = math.sqrt(q.shape[-1])
    for *place, i in np.ndindex(q.shape[:-1]):
        place = tuple(place)
        query, keys, values, d = q[place][i], k[place], v[place], d_output[place][i]
        w = shares(query, keys, seen[place][i])
        d_w = [value @ d for value in values]
        average = sum(a * b for a, b in zip(w, d_w, strict=True))
        for j in range(len(keys)):
            d_score = w[j] * (d_w[j] - average)
            d_q[place][i] += d_score * keys[j] / root
            d_k[place][j] += d_score * query / root
            d_v[place][j] += w[j] * d
    return d_q, d_k, d_v


def multi_head_attention_backward(d_output, x, memory, weights, n_heads, mask=None):
    n, n_keys, e = x.shape[1], memory.shape[1], x.shape[2] // n_heads
    seen = np.ones((len(x), n_heads, n, n_keys), bool)
    if mask is not None:
        seen = seen & mask
    d_x, d_memory = np.zeros(x.shape), np.zeros(memory.shape)
    d_weights = {name: np.zeros(w.shape) for name, w in weights.items()}
    for b in range(len(x)):
        for h in range(n_heads):
            part = slice(h * e, (h + 1) * e)
            w_q, w_k, w_v = (weights[name][:, part] for name in ("query", "key", "value"))
            w_o = weights["output"][part]
            q, k, v = x[b] @ w_q, memory[b] @ w_k, memory[b] @ w_v
            d_head = d_output[b] @ w_o.T
            head = np.array([shares(q[i], k, seen[b, h, i]) @ v for i in range(n)])
            d_weights["output"][part] += head.T @ d_output[b]
            d_q, d_k, d_v = attention_backward(d_head, q, k, v, seen[b, h])
            d_weights["query"][:, part] += x[b].T @ d_q
            d_weights["key"][:, part] += memory[b].T @ d_k
            d_weights["value"][:, part] += memory[b].T @ d_v
            d_x[b] += d_q @ w_q.T
            d_memory[b] += d_k @ w_k.T
            d_memory[b] += d_v @ w_v.T
    return d_x, d_memory, d_weights


def attend(x, memory, weights, n_heads, mask):
    e = x.shape[2] // n_heads
    seen = np.ones((len(x), n_heads, x.shape[1], memory.shape[1]), bool)
    if mask is not None:
        seen = seen & mask
    output = np.zeros(x.shape)
    for b in range(len(x)):
        for h in range(n_heads):
            part = slice(h * e, (h + 1) * e)
            q, k, v = (
                x[b] @ weights["query"][:, part],
                memory[b] @ weights["key"][:, part],
                memory[b] @ weights["value"][:, part],
            )
            for i in range(len(q)):
                output[b, i] += shares(q[i], k, seen[b, h, i]) @ v @ weights["output"][part]
    return output


def norm(x, gain, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain + bias


def think(x, weights):
    return np.maximum(x @ weights["w1"] + weights["b1"], 0) @ weights["w2"] + weights["b2"]


def encoder_block_backward(d_output, x, weights, n_heads, mask=None):
    first, second = weights["norm_1"], weights["norm_2"]
    attended = attend(x, x, weights["attention"], n_heads, mask)
    middle = norm(x + attended, **first)
    thought = think(middle, weights["feed_forward"])
    d_weights = {}

    d, d_gain, d_bias = layer_norm_backward(d_output, middle + thought, second["gain"], 1e-5)
    d_weights["norm_2"] = {"gain": d_gain, "bias": d_bias}
    d_middle = d.copy()
    through, d_weights["feed_forward"] = feed_forward_backward(d, middle, weights["feed_forward"])
    d_middle += through

    d, d_gain, d_bias = layer_norm_backward(d_middle, x + attended, first["gain"], 1e-5)
    d_weights["norm_1"] = {"gain": d_gain, "bias": d_bias}
    d_x = d.copy()
    asking, looked_at, d_weights["attention"] = multi_head_attention_backward(
        d, x, x, weights["attention"], n_heads, mask
    )
    d_x += asking
    d_x += looked_at
    return d_x, d_weights


def embed_backward(d_output, ids, table):
    rows = [[0.0] * table.shape[1] for _ in table]
    for b, t in np.ndindex(ids.shape):
        for i in range(table.shape[1]):
            rows[ids[b, t]][i] += d_output[b, t, i] * math.sqrt(table.shape[1])
    return rows


def decoder_block_backward(d_output, x, memory, weights, n_heads, mask, memory_mask):
    own, cross = weights["self_attention"], weights["cross_attention"]
    norms = [weights["norm_1"], weights["norm_2"], weights["norm_3"]]
    inputs, sums = [x], []
    for i in range(3):
        y = inputs[i]
        if i == 0:
            y = y + attend(y, y, own, n_heads, mask)
        elif i == 1:
            y = y + attend(y, memory, cross, n_heads, memory_mask)
        else:
            y = y + think(y, weights["feed_forward"])
        sums.append(y)
        inputs.append(norm(y, **norms[i]))

    d, d_weights = d_output, {}
    for i in (2, 1, 0):
        y = inputs[i]
        d_sum, d_gain, d_bias = layer_norm_backward(d, sums[i], norms[i]["gain"], 1e-5)
        d_weights[f"norm_{i + 1}"] = {"gain": d_gain, "bias": d_bias}
        if i == 2:
            d_y, d_weights["feed_forward"] = feed_forward_backward(d_sum, y, weights["feed_forward"])
        elif i == 1:
            d_y, d_memory, d_weights["cross_attention"] = multi_head_attention_backward(
                d_sum, y, memory, cross, n_heads, memory_mask
            )
        else:
            d_y, d_own, d_weights["self_attention"] = multi_head_attention_backward(d_sum, y, y, own, n_heads, mask)
            d_y = d_y + d_own
        d = d_sum + d_y
    return d, d_memory, d_weights
