"""A solution of exercise 4, in NumPy. There are other ways to write it that are just as right."""

import numpy as np

from cutaway.course.given import multi_head_attention

EPS = 1e-5


def center(x):
    # keepdims keeps the last axis, with length 1: each mean is subtracted from the numbers of its own token.
    # mistakes: norm-axis, mean-minus-x
    return x - np.mean(x, axis=-1, keepdims=True)


def relu(x):
    # maximum compares place by place. (max would look for the largest number of one array.)
    # mistakes: whole-maximum, absolute, minimum
    return np.maximum(x, 0)


def layer_norm(x, gain, bias, eps):
    # One mean and one variance for each token: [..., 1].
    # mistakes: norm-axis
    mean = x.mean(axis=-1, keepdims=True)
    # mistakes: variance-unbiased
    variance = x.var(axis=-1, keepdims=True)
    # First norm to mean 0 and variance 1, then the gain, and at the very end the bias.
    # mistakes: eps-outside-root, no-eps, variance-not-rooted, mean-kept, bias-before-gain
    return (x - mean) / np.sqrt(variance + eps) * gain + bias


def feed_forward(x, weights):
    # [..., D] -> [..., F]. b1 belongs inside the max: it helps to decide what is negative.
    # mistakes: no-relu, no-b1, b1-after-relu, gelu
    hidden = np.maximum(0, x @ weights["w1"] + weights["b1"])
    # [..., F] -> [..., D]. No max here, and no residual connection: that is up to the block.
    # mistakes: relu-at-the-end, no-b2, residual-inside
    return hidden @ weights["w2"] + weights["b2"]


def encoder_block(x, weights, n_heads, mask=None):
    norm_1, norm_2 = weights["norm_1"], weights["norm_2"]
    # Self-attention, x looks at x; then add and norm. The result takes the place of x: the second half reads it.
    # mistakes: no-residual-attention, pre-norm, norm-inside, one-norm, mask-ignored, side-by-side
    attention_output = multi_head_attention(x, x, weights["attention"], n_heads, mask)
    x = layer_norm(x + attention_output, norm_1["gain"], norm_1["bias"], EPS)
    # The same form again, with weights of its own.
    # mistakes: no-residual-feed-forward, residual-from-input, same-norm, norms-exchanged
    feed_forward_output = feed_forward(x, weights["feed_forward"])
    return layer_norm(x + feed_forward_output, norm_2["gain"], norm_2["bias"], EPS)


def encoder(x, layers, n_heads, mask=None):
    # Each layer reads what the one before it gave: its result is kept under the same name, x.
    # mistakes: reads-original, shared-weights, first-layer-only, outputs-added, mask-once
    for weights in layers:
        x = encoder_block(x, weights, n_heads, mask)
    return x
