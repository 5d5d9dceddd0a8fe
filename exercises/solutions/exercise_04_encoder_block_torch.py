"""A solution of exercise 4, in PyTorch. The frame around a sub-layer is a function of its own here."""

from functools import reduce

import torch

from cutaway.course.given import multi_head_attention


def center(x):
    # mistakes: norm-axis, divided-too
    return x - x.mean(-1, keepdim=True)


def relu(x):
    # Where x is positive, x itself; elsewhere 0.
    # mistakes: step, absolute
    return torch.where(x > 0, x, 0.0)


def layer_norm(x, gain, bias, eps):
    centred = x - x.mean(dim=-1, keepdim=True)
    # mistakes: variance-unbiased, norm-axis
    variance = centred.square().mean(dim=-1, keepdim=True)
    # rsqrt is 1 / sqrt, and addcmul is bias + (the second) · (the third).
    # mistakes: eps-outside-root, variance-not-rooted, gain-bias-exchanged
    return torch.addcmul(bias, centred * torch.rsqrt(variance + eps), gain)


def feed_forward(x, weights):
    # mistakes: no-relu, b1-after-relu, gelu, silu
    hidden = torch.relu(torch.einsum("...d,df->...f", x, weights["w1"]) + weights["b1"])
    # mistakes: no-b2, relu-at-the-end, residual-inside
    return torch.einsum("...f,fd->...d", hidden, weights["w2"]) + weights["b2"]


def add_and_norm(x, sub_layer, norm):
    # mistakes: no-residual, pre-norm, norm-inside, norm-of-input-only
    return layer_norm(x + sub_layer(x), norm["gain"], norm["bias"], eps=1e-5)


def encoder_block(x, weights, n_heads, mask=None):
    def attend(x):
        return multi_head_attention(x, x, weights["attention"], n_heads, mask)

    def apply_feed_forward(x):
        return feed_forward(x, weights["feed_forward"])

    # mistakes: no-attention, same-norm
    x = add_and_norm(x, attend, weights["norm_1"])
    # mistakes: no-feed-forward, feed-forward-first, norms-exchanged
    return add_and_norm(x, apply_feed_forward, weights["norm_2"])


def encoder(x, layers, n_heads, mask=None):
    # reduce begins with x and applies the function once for each entry of layers: f(f(f(x, l0), l1), l2).
    # mistakes: reads-original, layers-reversed, one-layer-too-few, mask-ignored
    return reduce(lambda x, weights: encoder_block(x, weights, n_heads, mask), layers, x)
