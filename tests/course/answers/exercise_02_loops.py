"""Exercise 2 with loops, head by head and query by query: slow, but right."""

import numpy as np


def head_columns(d_model, n_heads, head):
    found = []
    for column in range(d_model):
        if column // (d_model // n_heads) == head:
            found.append(column)
    return found


def split_heads(x, n_heads):
    n_texts, n_words, d_model = x.shape
    width = d_model // n_heads
    result = np.zeros((n_texts, n_heads, n_words, width))
    for h in range(n_heads):
        for t in range(n_words):
            result[:, h, t] = x[:, t, h * width : (h + 1) * width]
    return result


def merge_heads(x):
    n_heads = x.shape[1]
    return np.concatenate([x[:, h] for h in range(n_heads)], axis=2)


def project_heads(x, w, n_heads):
    n_texts, n_words, d_model = x.shape
    heads = np.zeros((n_texts, n_heads, n_words, d_model // n_heads))
    for h in range(n_heads):
        for e, column in enumerate(head_columns(d_model, n_heads, h)):
            heads[:, h, :, e] = sum(x[:, :, d] * w[d, column] for d in range(d_model))
    return heads


def attend_heads(q, k, v, mask=None):
    n_texts, n_heads, _, e = q.shape
    parts = []
    for h in range(n_heads):
        scores = np.matmul(q[:, h], k[:, h].transpose(0, 2, 1)) / e**0.5
        if mask is not None:
            scores[~np.broadcast_to(mask, (n_texts, n_heads, *scores.shape[1:]))[:, h]] = -1e9
        grown = np.exp(scores - scores.max(axis=2, keepdims=True))
        parts.append(np.matmul(grown / grown.sum(axis=2, keepdims=True), v[:, h]))
    return np.concatenate(parts, axis=2)


def multi_head_attention(x, memory, weights, n_heads, mask=None):
    (n_texts, n_queries, d_model), n_keys = x.shape, memory.shape[1]
    width = d_model // n_heads
    if mask is None:
        mask = np.ones((n_queries, n_keys), dtype=bool)
    mask = np.broadcast_to(mask, (n_texts, n_heads, n_queries, n_keys))
    result = np.zeros((n_texts, n_queries, d_model))
    for b in range(n_texts):
        for h in range(n_heads):
            columns = slice(h * width, (h + 1) * width)
            queries = x[b] @ weights["query"][:, columns]
            keys = memory[b] @ weights["key"][:, columns]
            values = memory[b] @ weights["value"][:, columns]
            for i in range(n_queries):
                seen = mask[b, h, i]
                scores = np.array([queries[i] @ keys[j] for j in range(n_keys)]) / width**0.5
                powers = np.exp(scores - scores.max()) * seen
                shares = powers / powers.sum()
                result[b, i, columns] = shares @ values
    return result @ weights["output"]
