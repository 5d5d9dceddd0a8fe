"""A solution of exercise 7, in NumPy. There are other ways to write it that are just as right."""

import numpy as np

from cutaway.course.given import attention, feed_forward, layer_norm, merge_heads, sinusoidal, split_heads

EPS = 1e-5


def append(cache, k, v):
    # [B, H, T, E] and [B, H, N, E] become [B, H, T + N, E]: the tokens are axis 2, and the older ones come first.
    # np.concatenate makes a new array, so the given cache stays as it was.
    # mistakes: append-axis, in-front, keys-as-values
    return {"k": np.concatenate([cache["k"], k], axis=2), "v": np.concatenate([cache["v"], v], axis=2)}


def reorder(cache, rows):
    # A list as an index selects along axis 0, which is the axis of the texts. A row may occur several times.
    # mistakes: reorder-axis, inverse-order, only-one-reordered
    return {"k": cache["k"][rows], "v": cache["v"][rows]}


def embed_at(ids, table, start):
    n, d = ids.shape[1], table.shape[1]
    # The table of sinusoids needs start + N rows; the last N of them are those of our tokens.
    # mistakes: start-ignored, one-early, same-position
    positions = sinusoidal(start + n, d)[start:]
    # Scale first, then add: only the vectors of the tokens are scaled.
    # mistakes: not-scaled, positions-scaled
    return table[ids] * np.sqrt(d) + positions


def cached_attention(x, cache, weights, n_heads):
    # Only the new tokens are projected. All three become [B, H, N, E].
    q = split_heads(x @ weights["query"], n_heads)
    k = split_heads(x @ weights["key"], n_heads)
    v = split_heads(x @ weights["value"], n_heads)
    # The new keys belong to the cache before the attention: a token also sees itself.
    # mistakes: only-new-returned, appended-twice
    cache = append(cache, k, v)
    # The mask of all T + N tokens is a triangle. Its last N rows have T + N columns and begin with T times True.
    n, total = x.shape[1], cache["k"].shape[2]
    # mistakes: mask-not-shifted, no-causal-mask, future-leak, not-itself
    mask = np.tri(n, total, total - n, dtype=bool)
    # N queries meet T + N keys.
    # mistakes: new-keys-only, cached-keys-only
    output, _ = attention(q, cache["k"], cache["v"], mask)
    # The heads side by side, times W_O. The new cache is for the next call.
    # mistakes: no-output-projection, residual-inside, only-output
    return merge_heads(output) @ weights["output"], cache


def memory_cache(memory, weights, n_heads):
    # As in multi_head_attention, but without queries: those come later, from the decoder.
    # mistakes: k-v-matrices-exchanged, not-projected, heads-not-split
    return {"k": split_heads(memory @ weights["key"], n_heads), "v": split_heads(memory @ weights["value"], n_heads)}


def attend_memory(x, cache, weights, n_heads, mask=None):
    # The queries are the only thing that depends on x.
    # mistakes: cross-no-query-projection
    q = split_heads(x @ weights["query"], n_heads)
    # The cache has keys and values, already projected. The memory has no future: no causal mask.
    # mistakes: cross-projected-again, memory-causal, memory-grows, cross-mask-ignored
    output, _ = attention(q, cache["k"], cache["v"], mask)
    # mistakes: cross-no-output-projection, cross-two-returned
    return merge_heads(output) @ weights["output"]


def decoder_block_step(x, cache, memory_keys, weights, n_heads, memory_mask=None):
    norm_1, norm_2, norm_3 = weights["norm_1"], weights["norm_2"], weights["norm_3"]
    # 1. Self-attention: the new tokens see the earlier ones through the cache.
    # mistakes: old-cache-returned, same-attention
    self_output, cache = cached_attention(x, cache, weights["self_attention"], n_heads)
    # mistakes: no-residual-self, pre-norm
    x = layer_norm(x + self_output, norm_1["gain"], norm_1["bias"], EPS)
    # 2. Cross-attention: its keys and values are the same at every step.
    # mistakes: cross-to-own-cache, memory-grows, memory-mask-ignored
    cross_output = attend_memory(x, memory_keys, weights["cross_attention"], n_heads, memory_mask)
    # mistakes: no-residual-cross, norm-inside
    x = layer_norm(x + cross_output, norm_2["gain"], norm_2["bias"], EPS)
    # 3. Feed-forward: each token alone, so there is nothing to cache.
    feed_forward_output = feed_forward(x, weights["feed_forward"])
    # mistakes: no-residual-feed-forward, one-norm, same-norm
    x = layer_norm(x + feed_forward_output, norm_3["gain"], norm_3["bias"], EPS)
    # mistakes: returned-in-other-order, memory-keys-returned
    return x, cache
