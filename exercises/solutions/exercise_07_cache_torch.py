"""A solution of exercise 7, in PyTorch. Attention is written out, as a function that both attentions use."""

import torch

from cutaway.course.given import feed_forward, layer_norm


def append(cache, k, v):
    # torch.cat makes new tensors: whoever still holds the old cache (another beam, say) keeps it unchanged.
    # mistakes: append-axis, in-front, keys-as-values, only-new
    return {name: torch.cat((cache[name], new), dim=2) for name, new in (("k", k), ("v", v))}


def reorder(cache, rows):
    index = torch.tensor(rows)
    # New row i is the old row rows[i]; index_select reads from the places in `index`.
    # mistakes: reorder-axis, inverse-order, not-reordered
    return {name: stored.index_select(0, index) for name, stored in cache.items()}


def embed_at(ids, table, start):
    d = table.size(1)
    # The positions themselves, instead of a table from which rows are cut.
    # mistakes: start-ignored, one-late, ends-at-start
    position = start + torch.arange(ids.size(1))
    # Exercise 3: pair i turns by 10000^(-2i/D) from one position to the next.
    speed = 10000.0 ** (-torch.arange(0, d, 2) / d)
    angle = torch.outer(position.float(), speed)
    # Sines and cosines alternate.
    sinusoids = torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)
    # mistakes: not-scaled, no-positions, positions-scaled
    return d**0.5 * table[ids] + sinusoids


def split(x, n_heads):
    """[B, N, D] -> [B, H, N, E]"""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def attend(q, cache, mask, w_o):
    """q [B, H, N, E] to the keys and values of a cache -> [B, N, D]"""
    # mistakes: no-scale, cross-no-scale
    scores = q @ cache["k"].mT / q.size(-1) ** 0.5
    # A hidden key gets the score -inf, and so the weight 0.
    # mistakes: cross-mask-ignored
    scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    heads = scores.softmax(dim=-1) @ cache["v"]
    # Merge the heads, and multiply by W_O.
    # mistakes: no-output-projection, cross-no-output-projection
    return heads.transpose(1, 2).flatten(2) @ w_o


def cached_attention(x, cache, weights, n_heads):
    # memory_cache makes keys and values of any vectors: here, of the new tokens.
    new = memory_cache(x, weights, n_heads)
    longer = append(cache, new["k"], new["v"])
    # Positions in the whole text: the keys are 0 ... T + N - 1, the queries the last N of them.
    key = torch.arange(longer["k"].size(2))
    query = key[cache["k"].size(2) :, None]
    # mistakes: mask-not-shifted, future-leak, not-itself, causal-mask-inverted
    mask = key <= query
    # mistakes: new-keys-only, cached-keys-only, no-causal-mask
    output = attend(split(x @ weights["query"], n_heads), longer, mask, weights["output"])
    # mistakes: old-cache-returned, only-new-returned, returned-in-other-order
    return output, longer


def memory_cache(memory, weights, n_heads):
    # mistakes: matrix-of-something-else, matrices-transposed, heads-not-split
    k, v = (split(memory @ weights[name], n_heads) for name in ("key", "value"))
    return {"k": k, "v": v}


def attend_memory(x, cache, weights, n_heads, mask=None):
    # Only queries are left to compute. `mask` hides the padding of the source.
    # mistakes: cross-no-query-projection, memory-causal, memory-grows
    return attend(split(x @ weights["query"], n_heads), cache, mask, weights["output"])


def add_and_norm(x, change, norm):
    # mistakes: no-residual, norm-inside
    return layer_norm(x + change, norm["gain"], norm["bias"], 1e-5)


def decoder_block_step(x, cache, memory_keys, weights, n_heads, memory_mask=None):
    # The cache of the self-attention grows ...
    # mistakes: caches-exchanged, attentions-exchanged
    change, cache = cached_attention(x, cache, weights["self_attention"], n_heads)
    x = add_and_norm(x, change, weights["norm_1"])
    # ... that of the cross-attention stays as it is.
    # mistakes: cross-first, memory-mask-ignored, cross-to-own-cache
    change = attend_memory(x, memory_keys, weights["cross_attention"], n_heads, memory_mask)
    x = add_and_norm(x, change, weights["norm_2"])
    # mistakes: same-norm
    x = add_and_norm(x, feed_forward(x, weights["feed_forward"]), weights["norm_3"])
    # mistakes: only-output, memory-keys-returned
    return x, cache
