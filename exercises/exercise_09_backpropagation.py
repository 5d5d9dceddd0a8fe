"""Exercise 9. Backpropagation by hand                                              (lesson 8; src/cutaway/twin/ops.py)

Training needs the derivative of the loss with respect to every weight. Autograd computes it; here you write it
yourself, with the chain rule, from single steps up to a whole block of the Transformer.

    loss  ◀──  output  ◀──  f  ◀──  x           forward: from x to the loss
          d_output ──▶  f_backward  ──▶ d_x     backward: from the derivative of the output to that of the input

    d_x[i] = Σ_j d_output[j] · ∂output[j] / ∂x[i]

d_output is the derivative of the loss with respect to the output of f: it has the shape of the output, and says by how
much the loss changes for each unit that a number of the output changes. Each function here takes d_output and returns
the derivatives of the loss with respect to the inputs of f. A derivative always has the shape of what it belongs to:
d_x that of x, d_w that of w.

Most derivatives need numbers of the forward, such as the weights of a softmax. Nobody saved them for you: recompute
them from the inputs. The functions of earlier exercises are there for that. Later functions of this file can call
earlier ones. Begin on paper: write out the forward for two or three numbers, and differentiate that.

Replace each `raise NotImplementedError` and check yourself as often as you like:

    cutaway check 9             which parts are right, and what is wrong with the others
    cutaway check 9 --watch     the same again each time you save this file
    cutaway check 9 --hint      a stronger hint
    cutaway check 9 --think     the line of thought

You work with NumPy arrays. If you prefer PyTorch, write `import torch` instead: you are then given tensors (float32).
The shapes: B texts, T tokens, Q queries, K keys, D width, H heads, E = D/H width of a head, F hidden width, V
vocabulary.
"""

import numpy as np

from cutaway.course.given import (
    attention,  # (q, k, v, mask=None) -> output, weights
    feed_forward,  # (x, weights) -> [B, T, D]
    layer_norm,  # (x, gain, bias, eps) -> [B, T, D]
    merge_heads,  # (x [B, H, T, E]) -> [B, T, D]
    multi_head_attention,  # (x, memory, weights, n_heads, mask=None) -> [B, T, D]
    softmax,  # (x) -> the same shape, along the last axis; large numbers do it no harm
    split_heads,  # (x [B, T, D], n_heads) -> [B, H, T, E]
)


def numerical_gradient(f, x, step=1e-3):
    """Ready made: the derivative of f at x by finite differences. Slow and not exact, but always right.

    f: takes an array like x and returns one number
    -> an array like x: by how much f changes for each unit of each number of x, measured with small steps

    With it you can test your own functions. The loss whose derivative is d_output is (d_output * output).sum():

        x, d_output = np.array([2.0, -1.0, 0.5]), np.array([3.0, 4.0, -1.0])
        print(numerical_gradient(lambda x: (d_output * np.maximum(0, x)).sum(), x))
        print(relu_backward(d_output, x))

    The two lines should agree to about three digits. (Tensors have fewer digits than arrays: use step=1e-2.)
    """
    gradient = x * 0.0
    for place in np.ndindex(*x.shape):
        higher, lower = x + 0.0, x + 0.0  # copies
        higher[place] += step
        lower[place] -= step
        gradient[place] = (f(higher) - f(lower)) / (2 * step)
    return gradient


def relu_backward(d_output, x):
    """The derivative of max(0, x).

    d_output, x: arrays of the same shape, any number of axes

    -> d_x, the same shape

    For x = [2, -1] and d_output = [3, 4], d_x is [3, 0]. (No x is exactly 0 in the tests.)
    """
    raise NotImplementedError


def linear_backward(d_output, x, w):
    """The derivatives of y = x @ w + b.

    d_output: [..., F]     the derivative of the loss with respect to y
    x: [..., D]            one or more axes in front, the same as those of d_output
    w: [D, F]

    -> d_x [..., D], d_w [D, F], d_b [F]

    All rows of x use the same w and b. For the one row x = [[2, 1]], w = [[1], [3]] and d_output = [[10]]:
    d_x = [[10, 30]], d_w = [[20], [10]], d_b = [10]. The values of b are not needed.
    """
    raise NotImplementedError


def softmax_backward(d_output, weights):
    """The derivative of weights = softmax(scores) along the last axis.

    d_output: [..., K]     the derivative of the loss with respect to the weights
    weights: [..., K]      what came out of the softmax; the scores are not needed

    -> d_scores [..., K]

    There may be any number of axes in front, as in [B, H, Q, K]: each row along the last axis is a softmax of its own.
    With two equal scores the weights are [0.5, 0.5]. For d_output = [1, 0], d_scores is [0.25, -0.25].
    """
    raise NotImplementedError


def cross_entropy_backward(logits, target, pad):
    """The derivative of the loss of exercise 5: the mean of -log p(target) over all tokens that are not padding.

    logits: [B, T, V]
    target: [B, T], the right ids
    pad: the id of padding

    -> d_logits [B, T, V]

    This is where the backward pass begins, so there is no d_output. Positions whose target is pad are no part of the
    loss. For the logits [[[0, 0]]] and the target [[1]], d_logits is [[[0.5, -0.5]]]. It has to work for large logits.
    """
    raise NotImplementedError


def layer_norm_backward(d_output, x, gain, eps):
    """The derivatives of y = (x - mean) / sqrt(variance + eps) · gain + bias.

    d_output, x: [B, T, D]
    gain: [D]
    eps: a number

    -> d_x [B, T, D], d_gain [D], d_bias [D]

    Mean and variance are those of each token, and they depend on x, too. The values of the bias are not needed.
    """
    raise NotImplementedError


def feed_forward_backward(d_output, x, weights):
    """The derivatives of FFN(x) = max(0, x W1 + b1) W2 + b2.

    d_output, x: [B, T, D]
    weights: {"w1": [D, F], "b1": [F], "w2": [F, D], "b2": [D]}

    -> d_x [B, T, D], d_weights: a dict with the same keys and shapes as weights
    """
    raise NotImplementedError


def attention_backward(d_output, q, k, v, mask=None):
    """The derivatives of Attention(Q, K, V) = softmax(Q Kᵀ / sqrt(d_k)) V.

    d_output: [..., Q, Dv]    the derivative with respect to the output. The loss does not depend on the weights.
    q: [..., Q, E], k: [..., K, E], v: [..., K, Dv]
    mask: None, or what broadcasts to [..., Q, K], True = may attend

    -> d_q, d_k, d_v, with the shapes of q, k and v

    A key that no query may attend to has the derivative 0.
    """
    raise NotImplementedError


def multi_head_attention_backward(d_output, x, memory, weights, n_heads, mask=None):
    """The derivatives of multi-head attention, as in exercise 2.

        q = x W_Q,  k = memory W_K,  v = memory W_V                    then split into heads
        output = (the heads' attention(q, k, v, mask), merged) W_O

    d_output, x: [B, Q, D], memory: [B, K, D]
    weights: {"query": W_Q, "key": W_K, "value": W_V, "output": W_O}, each [D, D]
    mask: None, or what broadcasts to [B, H, Q, K]

    -> d_x [B, Q, D], d_memory [B, K, D], d_weights: a dict with the same keys and shapes as weights

    d_x and d_memory stay apart, even if x and memory are the same array (self-attention): the caller adds them.
    """
    raise NotImplementedError


def encoder_block_backward(d_output, x, weights, n_heads, mask=None):
    """The derivatives of the encoder block of exercise 4.

        h = LayerNorm(x + Attention(x))              norm_1
        output = LayerNorm(h + FFN(h))               norm_2, eps is 1e-5 in both

    d_output, x: [B, T, D]
    weights: {"attention": {"query", "key", "value", "output"},
              "norm_1": {"gain", "bias"},
              "feed_forward": {"w1", "b1", "w2", "b2"},
              "norm_2": {"gain", "bias"}}
    n_heads, mask: of the self-attention

    -> d_x [B, T, D], d_weights: nested dicts with the same keys and shapes as weights
    """
    raise NotImplementedError


def embed_backward(d_output, ids, table):
    """The derivative of embed of exercise 3, sqrt(D) · table[ids] + positions, with respect to the table.

    d_output: [B, T, D]
    ids: [B, T]
    table: [V, D]

    -> d_table [V, D]

    An id may occur at several positions; then all of them count. Ids have no derivative.
    """
    raise NotImplementedError


def decoder_block_backward(d_output, x, memory, weights, n_heads, mask, memory_mask):
    """The derivatives of the decoder block of exercise 5.

        a = LayerNorm(x + SelfAttention(x))                    norm_1
        h = LayerNorm(a + CrossAttention(a, memory))           norm_2
        output = LayerNorm(h + FFN(h))                         norm_3, eps is 1e-5 in all

    d_output, x: [B, T, D], memory: [B, S, D]
    weights: {"self_attention": {"query", "key", "value", "output"}, "norm_1": {"gain", "bias"},
              "cross_attention": {"query", "key", "value", "output"}, "norm_2": {"gain", "bias"},
              "feed_forward": {"w1", "b1", "w2", "b2"}, "norm_3": {"gain", "bias"}}
    mask: for the self-attention; memory_mask: for the cross-attention; each may be None

    -> d_x [B, T, D], d_memory [B, S, D], d_weights: nested dicts with the same keys and shapes as weights
    """
    raise NotImplementedError
