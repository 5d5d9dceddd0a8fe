"""Exercise 7. The key-value cache                                   (how a decoder generates text, token by token)

A decoder writes one token at a time. Without a cache, each new token costs a run over the whole text:

    step 3, without a cache                   step 3, with a cache
        x [B, 3, D]  queries, keys, values        x [B, 1, D]  one query, one key, one value
                                                  cache        keys and values of tokens 0 and 1

Token 1 does not see token 2. So its key and its value stay the same when token 2 comes, and can be stored:

    keys:     cached keys     new keys        queries: of the new tokens only
             ■  ■  ■  ■        □  □           mask [N, T + N], here N = 2 and T = 4:
             └── T ──┘        └ N ┘                new token 0   1 1 1 1   1 0
                                                   new token 1   1 1 1 1   1 1

The cache of one attention is a dict {"k": keys [B, H, T, E], "v": values [B, H, T, E]}. An empty cache has T = 0.
All functions return new caches. They never modify the caches that they are given.

Replace each `raise NotImplementedError` and check yourself as often as you like:

    cutaway check 7             which parts are right, and what is wrong with the others
    cutaway check 7 --watch     the same again each time you save this file
    cutaway check 7 --hint      a stronger hint
    cutaway check 7 --think     also the line of thought that leads to a solution

In the shapes below, B is the number of texts, T of cached tokens, N of new tokens, S of source tokens, D the width,
H the number of heads and E = D/H the width of a head. You work with NumPy arrays. If you prefer PyTorch, write
`import torch` instead: you are then given tensors.

Functions of earlier exercises are given. If you solved them (with the same library), you can use your own instead:

    from exercise_02_multi_head_attention import merge_heads, split_heads
"""

import numpy as np

from cutaway.course.given import (
    attention,  # (q, k, v, mask=None) -> output, weights
    feed_forward,  # (x, weights) -> [B, N, D]
    layer_norm,  # (x, gain, bias, eps) -> [B, N, D]
    merge_heads,  # (x [B, H, N, E]) -> [B, N, D]
    sinusoidal,  # (n_positions, d_model) -> [n_positions, d_model]: row pos is PE(pos)
    split_heads,  # (x [B, N, D], n_heads) -> [B, H, N, E]
)


def append(cache, k, v):
    """A warm-up: the cache with new keys and values behind the old ones.

    cache: {"k": [B, H, T, E], "v": [B, H, T, E]}
    k, v: [B, H, N, E]

    -> {"k": [B, H, T + N, E], "v": [B, H, T + N, E]}

    With B = H = E = 1, the cached keys [1, 2] and the new key [3] give the keys [1, 2, 3]. The given cache stays as it
    was.
    """
    raise NotImplementedError


def reorder(cache, rows):
    """A warm-up: some rows (texts) of the cache, in another order.

    cache: {"k": [B, H, T, E], "v": [B, H, T, E]}
    rows: a list of row numbers between 0 and B - 1

    -> a cache whose row i is the old row rows[i]

    reorder(cache, [2, 0, 2]) has three rows: the old rows 2, 0 and 2. Beam search needs this: at each step, some
    hypotheses are dropped, and others are continued in several ways.
    """
    raise NotImplementedError


def embed_at(ids, table, start):
    """Tokens as vectors, as in exercise 3; but the first token stands at position `start`.

    ids: [B, N]      N tokens of each text
    table: [V, D]    a vector for each of the V tokens
    start: how many tokens stand before them: the position of the first one

    -> [B, N, D]

    Each vector of the table is multiplied by sqrt(D), and the sinusoids of the positions start, start + 1, ...,
    start + N - 1 are added. embed_at(ids, table, 0) is `embed` of exercise 3.
    """
    raise NotImplementedError


def cached_attention(x, cache, weights, n_heads):
    """Causal self-attention of N new tokens to all cached tokens and to themselves.

    x: [B, N, D]         the new tokens. N is 1 during generation; for a prompt it is larger.
    cache: {"k": [B, H, T, E], "v": [B, H, T, E]}    keys and values of the T tokens before them; T may be 0
    weights: {"query": W_Q, "key": W_K, "value": W_V, "output": W_O}, each [D, D], used as x @ W

    -> output [B, N, D], and the new cache with T + N keys and values

    New token i is token T + i of the text. It sees the tokens 0 to T + i, so the mask is [N, T + N]. The output equals
    the last N rows of causal multi_head_attention (exercise 2) of all T + N tokens.
    """
    raise NotImplementedError


def memory_cache(memory, weights, n_heads):
    """The keys and values of the memory, for cross-attention. They are computed once, before the first token.

    memory: [B, S, D]    the output of the encoder
    weights: {"query", "key", "value", "output"}, of the cross-attention

    -> {"k": [B, H, S, E], "v": [B, H, S, E]}
    """
    raise NotImplementedError


def attend_memory(x, cache, weights, n_heads, mask=None):
    """Cross-attention with the keys and values that memory_cache has computed.

    x: [B, N, D]         the tokens of the target
    cache: {"k": [B, H, S, E], "v": [B, H, S, E]}    from memory_cache
    weights: {"query", "key", "value", "output"}, of the cross-attention
    mask: None, or what broadcasts to [B, H, N, S], such as [B, 1, 1, S]; True = may attend

    -> [B, N, D], equal to multi_head_attention(x, memory, weights, n_heads, mask). Nothing is appended to this cache.
    """
    raise NotImplementedError


def decoder_block_step(x, cache, memory_keys, weights, n_heads, memory_mask=None):
    """One decoder layer, as in exercise 5, for N new tokens.

    x: [B, N, D]         the new tokens
    cache: the cache of the self-attention, with T tokens
    memory_keys: the cache of the cross-attention, from memory_cache
    weights: {"self_attention": {"query", "key", "value", "output"}, "norm_1": {"gain", "bias"},
              "cross_attention": {"query", "key", "value", "output"}, "norm_2": {"gain", "bias"},
              "feed_forward": {"w1", "b1", "w2", "b2"}, "norm_3": {"gain", "bias"}}
    memory_mask: None, or what broadcasts to [B, H, N, S], for the cross-attention

    -> output [B, N, D], and the new cache of the self-attention, with T + N tokens

    Around each of the three sub-layers stands LayerNorm(x + Sublayer(x)); eps of the norms is 1e-5.
    """
    raise NotImplementedError
