"""Exercise 4. The encoder                                            (the paper, sections 3.1 and 3.3; lesson 4)

    LayerNorm(x + Sublayer(x))                                                                  section 3.1
    FFN(x) = max(0, x W1 + b1) W2 + b2                                                          equation 2

    x [B,T,D] ──┬──▶ self-attention ──▶ + ──▶ norm_1 ──┬──▶ feed-forward ──▶ + ──▶ norm_2 ──▶ [B,T,D]
                └───────────────────────┘              └─────────────────────┘

Replace each `raise NotImplementedError` and check yourself as often as you like:

    cutaway check 4             which parts are right, and what is wrong with the others
    cutaway check 4 --watch     the same again each time you save this file
    cutaway check 4 --hint      a stronger hint
    cutaway check 4 --think     the line of thought that leads to a solution
    cutaway check 4 --solution  our solution, explained

You work with NumPy arrays. If you prefer PyTorch, write `import torch` instead: you are then given tensors. Return new
arrays: do not change those that you are given. Later functions can call earlier ones; the first two are warm-ups of
about three lines.

Multi-head attention comes from exercise 2, ready made. If you solved it (with the same library), you can use your own
instead:

    from exercise_02_multi_head_attention import multi_head_attention
"""

import numpy as np

from cutaway.course.given import multi_head_attention  # (x, memory, weights, n_heads, mask=None) -> [B, T, D]


def center(x):
    """Subtract from each token the mean of its numbers.

    x: [..., D]  ->  the same shape

    The mean is that of the last axis, for each token by itself. center([[1, 2, 6]]) is [[-2, -1, 3]].
    """
    raise NotImplementedError


def relu(x):
    """max(0, x), number by number: negative numbers become 0, all others stay.

    x: any shape  ->  the same shape

    relu([-2, 0, 3]) is [0, 0, 3].
    """
    raise NotImplementedError


def layer_norm(x, gain, bias, eps):
    """Bring the numbers of each token to mean 0 and variance 1, then let gain and bias move them.

        y = (x - mean) / sqrt(variance + eps) · gain + bias

    x: [..., D]          any number of axes in front
    gain, bias: [D]      one number for each place of a token
    eps: a small number, so that nothing is divided by 0

    -> the same shape as x

    Mean and variance are those of the last axis: each token by itself. The variance is the mean of the squared
    distances from the mean, divided by D. With gain 1, bias 0 and eps 0, [1, 3] becomes [-1, 1].
    """
    raise NotImplementedError


def feed_forward(x, weights):
    """A small network in which each token thinks for itself.

        FFN(x) = max(0, x W1 + b1) W2 + b2

    x: [..., D]
    weights: {"w1": [D, F], "b1": [F], "w2": [F, D], "b2": [D]}

    -> [..., D]
    """
    raise NotImplementedError


def encoder_block(x, weights, n_heads, mask=None):
    """One layer of the encoder: the tokens look at each other, then each thinks about it.

    x: [B, T, D]
    weights: {"attention": {"query", "key", "value", "output"},
              "norm_1": {"gain", "bias"},
              "feed_forward": {"w1", "b1", "w2", "b2"},
              "norm_2": {"gain", "bias"}}
    n_heads: how many heads the attention has
    mask: None, or what broadcasts to [B, H, T, T], True = may attend

    -> [B, T, D]

    Around each of the two sub-layers stands LayerNorm(x + Sublayer(x)), as in the drawing above. eps of the norms is
    1e-5. There is no dropout.
    """
    raise NotImplementedError


def encoder(x, layers, n_heads, mask=None):
    """Layers on top of each other.

    x: [B, T, D]
    layers: a list with the weights of each layer, as encoder_block takes them; layers[0] comes first
    n_heads, mask: the same for all layers

    -> [B, T, D], what the last layer gives
    """
    raise NotImplementedError
