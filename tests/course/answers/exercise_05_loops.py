"""Exercise 5 with loops and lists, without imports from other exercises: slow, but right."""

import math

import numpy as np


def shift_right(target, start):
    rows = []
    for row in target.tolist():
        row.insert(0, start)
        row.pop()
        rows.append(row)
    return np.array(rows)


def padding_mask(ids, pad):
    return np.array([[[[i != pad for i in row]]] for row in ids])


def decoder_mask(ids, pad):
    n_texts, n = ids.shape
    mask = np.zeros((n_texts, 1, n, n), dtype=bool)
    for b in range(n_texts):
        for i in range(n):
            for j in range(n):
                mask[b, 0, i, j] = j <= i and ids[b, j] != pad
    return mask


def norm(x, weights):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return x * weights["gain"] + weights["bias"]


def attend(x, memory, weights, n_heads, mask):
    result = np.zeros(x.shape)
    for h, part in enumerate(np.split(np.arange(x.shape[-1]), n_heads)):
        q, k, v = x @ weights["query"][:, part], memory @ weights["key"][:, part], memory @ weights["value"][:, part]
        scores = np.einsum("bqe,bke->bqk", q, k) / math.sqrt(len(part))
        if mask is not None:
            self_output = np.broadcast_to(mask, (len(x), n_heads, *scores.shape[1:]))[:, h]
            scores[~self_output] = -1e9
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        result += (powers / powers.sum(-1, keepdims=True)) @ v @ weights["output"][part]
    return result


def apply_feed_forward(x, weights):
    return np.clip(x @ weights["w1"] + weights["b1"], 0, None) @ weights["w2"] + weights["b2"]


def decoder_block(x, memory, weights, n_heads, mask, memory_mask):
    a = norm(x + attend(x, x, weights["self_attention"], n_heads, mask), weights["norm_1"])
    b = norm(a + attend(a, memory, weights["cross_attention"], n_heads, memory_mask), weights["norm_2"])
    return norm(b + apply_feed_forward(b, weights["feed_forward"]), weights["norm_3"])


def encoder_layer(x, weights, n_heads, mask):
    a = norm(x + attend(x, x, weights["attention"], n_heads, mask), weights["norm_1"])
    return norm(a + apply_feed_forward(a, weights["feed_forward"]), weights["norm_2"])


def vectors(ids, table):
    d = table.shape[1]
    x = math.sqrt(d) * table[ids]
    for t in range(ids.shape[1]):
        for i in range(0, d, 2):
            angle = t / 10000 ** (i / d)
            x[:, t, i] += math.sin(angle)
            x[:, t, i + 1] += math.cos(angle)
    return x


def transformer(source, target_in, weights, n_heads, pad):
    table = weights["embedding"]
    real, own = padding_mask(source, pad), decoder_mask(target_in, pad)
    memory = vectors(source, table)
    for layer in weights["encoder"]:
        memory = encoder_layer(memory, layer, n_heads, real)
    x = vectors(target_in, table)
    for layer in weights["decoder"]:
        x = decoder_block(x, memory, layer, n_heads, own, real)
    return np.einsum("btd,vd->btv", x, table)


def cross_entropy(logits, target, pad):
    total, count = 0.0, 0
    for b, row in enumerate(target):
        for t, right in enumerate(row):
            if right == pad:
                continue
            largest = max(logits[b, t])
            powers = [math.exp(z - largest) for z in logits[b, t]]
            total -= logits[b, t, right] - largest - math.log(sum(powers))
            count += 1
    return total / count


def learning_rate(step, d_model, warmup):
    falling = 1 / math.sqrt(step)
    climbing = step / warmup / math.sqrt(warmup)
    return sorted([falling, climbing])[0] / math.sqrt(d_model)


def real_tokens(ids, pad):
    result = np.zeros(ids.shape, dtype=bool)
    for place, token in np.ndenumerate(ids):
        result[place] = token != pad
    return result


def decoder(x, memory, layers, n_heads, mask, memory_mask):
    if not layers:
        return x
    first, *others = layers
    x = decoder_block(x, memory, first, n_heads, mask, memory_mask)
    return decoder(x, memory, others, n_heads, mask, memory_mask)


def token_logits(x, table):
    result = np.zeros((*x.shape[:2], len(table)))
    for v, vector in enumerate(table):
        result[:, :, v] = sum(x[:, :, d] * vector[d] for d in range(len(vector)))
    return result


def token_losses(logits, target):
    rows = []
    for text, ids in zip(logits, target, strict=True):
        rows.append([])
        for z, right in zip(text, ids, strict=True):
            total = math.fsum(math.exp(other - max(z)) for other in z)
            rows[-1].append(math.log(total) + max(z) - z[right])
    return np.array(rows)
