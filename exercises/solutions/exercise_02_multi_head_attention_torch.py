"""A solution of exercise 2, in PyTorch.

In multi_head_attention the heads are never put side by side: each goes through its own rows of W_O, and the results are
added up. Concat(head_1, ..., head_h) W_O is the same, written as one product.
"""

import math

import torch


def head_columns(d_model, n_heads, head):
    # Cut the numbers 0 ... D-1 into n_heads equal pieces, and take one of them.
    # mistakes: number-for-width, split-like-cards, heads-out-of-order
    return torch.arange(d_model).chunk(n_heads)[head]


def split_heads(x, n_heads):
    # chunk cuts the last axis into n_heads pieces [B, T, E]; stack puts them on a new axis, the second: [B, H, T, E].
    # mistakes: heads-before-texts, heads-not-moved
    return torch.stack(x.chunk(n_heads, dim=-1), dim=1)


def merge_heads(x):
    # unbind takes the axis of the heads apart, into pieces [B, T, E]; cat puts them side by side: [B, T, D].
    # mistakes: merged-along-other-axis, merge-by-view
    return torch.cat(x.unbind(dim=1), dim=-1)


def project_heads(x, w, n_heads):
    # The columns of W belong to the heads: [D, D] -> [D, H, E]. d is summed over; b, t, h and e stay.
    # mistakes: inputs-transposed, split-like-cards
    columns = w.view(w.size(0), n_heads, -1)
    return torch.einsum("btd,dhe->bhte", x, columns)


def attend_heads(q, k, v, mask=None):
    # mistakes: no-scale, scale-model-width
    match = q @ k.transpose(-1, -2) / k.size(-1) ** 0.5  # [B, H, Q, K]; the width is that of a head
    if mask is not None:
        # mistakes: mask-inverted, mask-first-head
        match = match.masked_fill(mask.logical_not(), -torch.inf)  # broadcasts over texts and heads
    # mistakes: keys-for-values
    found = match.softmax(dim=-1) @ v  # [B, H, Q, E]
    # mistakes: merge-by-view, merge-like-cards
    return found.transpose(1, 2).flatten(2)  # [B, Q, H, E] -> [B, Q, D]


def multi_head_attention(x, memory, weights, n_heads, mask=None):
    d_model = x.size(-1)
    # the columns of each matrix belong to the heads: [D, D] -> [D, H, E]; of W_O it is the rows: [H, E, D]
    # mistakes: inputs-transposed, split-like-cards
    w_q, w_k, w_v = (weights[name].view(d_model, n_heads, -1) for name in ("query", "key", "value"))
    w_o = weights["output"].view(n_heads, -1, d_model)
    # mistakes: no-query-projection, queries-from-memory
    q = torch.einsum("bqd,dhe->bhqe", x, w_q)
    # mistakes: keys-from-x
    k = torch.einsum("bkd,dhe->bhke", memory, w_k)
    v = torch.einsum("bkd,dhe->bhke", memory, w_v)
    # mistakes: scale-model-width
    scores = torch.einsum("bhqe,bhke->bhqk", q, k) / math.sqrt(d_model / n_heads)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    heads = torch.einsum("bhqk,bhke->bhqe", torch.softmax(scores, dim=-1), v)
    # h and e are summed over: each head meets its own E rows of W_O, and the heads are added up.
    # mistakes: no-output-projection, residual-inside
    return torch.einsum("bhqe,hed->bqd", heads, w_o)
