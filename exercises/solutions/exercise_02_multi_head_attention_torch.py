"""A solution of exercise 2, in PyTorch. Here the heads are never put side by side: each goes through its own rows of
W_O, and the results are added up. Concat(head_1, ..., head_h) W_O is the same, written as one product."""

import math

import torch


def split_heads(x, n_heads):
    return torch.stack(x.chunk(n_heads, dim=-1), dim=1)


def merge_heads(x):
    return torch.cat(x.unbind(dim=1), dim=-1)


def multi_head_attention(x, memory, weights, n_heads, mask=None):
    d_model = x.size(-1)
    # the columns of each matrix belong to the heads: [D, D] -> [D, H, E]; of W_O it is the rows: [H, E, D]
    w_q, w_k, w_v = (weights[name].view(d_model, n_heads, -1) for name in ("query", "key", "value"))
    w_o = weights["output"].view(n_heads, -1, d_model)
    q = torch.einsum("bqd,dhe->bhqe", x, w_q)
    k = torch.einsum("bkd,dhe->bhke", memory, w_k)
    v = torch.einsum("bkd,dhe->bhke", memory, w_v)
    scores = torch.einsum("bhqe,bhke->bhqk", q, k) / math.sqrt(d_model / n_heads)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    heads = torch.einsum("bhqk,bhke->bhqe", torch.softmax(scores, dim=-1), v)
    return torch.einsum("bhqe,hed->bqd", heads, w_o)
