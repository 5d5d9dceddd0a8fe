"""Exercise 2. Multi-head attention                                          (the paper, section 3.2.2; lesson 2)

    MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O
    head_i = Attention(Q W_Qi, K W_Ki, V W_Vi)

Replace each `raise NotImplementedError` and check yourself as often as you like:

    cutaway check 2             which parts are right, and what is wrong with the others
    cutaway check 2 --watch     the same again each time you save this file
    cutaway check 2 --hint      a stronger hint
    cutaway check 2 --think     the line of thought that leads to a solution
    cutaway check 2 --solution  our solution, explained

In the shapes below, B is the number of texts, T of words, D the width of a word (d_model), H the number of heads and
E = D/H the width of a head. You work with NumPy arrays. If you prefer PyTorch, write `import torch` instead: you are
then given tensors.

Later functions can call earlier ones. Return new arrays: do not change those that you are given.

`attention` is what exercise 1 asks for. To use your own instead (if it is written with the same library):

    from exercise_01_scaled_dot_product import attention
"""

import numpy as np

from cutaway.course.given import attention  # (q, k, v, mask=None) -> output, weights


def head_columns(d_model, n_heads, head):
    """Which numbers of a word belong to a head.

    head: 0, 1, ..., n_heads - 1

    -> [E] whole numbers: h·E, h·E + 1, ..., (h+1)·E - 1, as a list or an array

    head_columns(6, 2, 1) is [3, 4, 5].
    """
    raise NotImplementedError


def split_heads(x, n_heads):
    """Cut the width of each word into heads.

    x: [B, T, D]  ->  [B, H, T, E]

    Head h takes the numbers of each word from h·E up to, but not including, (h+1)·E. One text with two words of width
    4, and two heads:

        [[[10, 11, 12, 13],            [[[[10, 11], [20, 21]],         head 0
          [20, 21, 22, 23]]]    ->       [[12, 13], [22, 23]]]]        head 1
    """
    raise NotImplementedError


def merge_heads(x):
    """Put the heads of each word side by side again: the way back.

    x: [B, H, T, E]  ->  [B, T, D]

    merge_heads(split_heads(x, n_heads)) is x.
    """
    raise NotImplementedError


def project_heads(x, w, n_heads):
    """The queries (or keys, or values) of all heads: multiply the words with a matrix, then cut them into heads.

    x: [B, T, D]
    w: [D, D]     used as in the paper, x @ W; its columns belong to the heads, the first E to head 0

    ->  [B, H, T, E]
    """
    raise NotImplementedError


def attend_heads(q, k, v, mask=None):
    """Attention in each head by itself, and the results of the heads side by side.

    q: [B, H, Q, E]
    k, v: [B, H, K, E]
    mask: None, or anything that broadcasts to [B, H, Q, K], such as [Q, K] or [B, 1, 1, K]. True = may attend

    ->  [B, Q, D], without the weights
    """
    raise NotImplementedError


def multi_head_attention(x, memory, weights, n_heads, mask=None):
    """The words of x look at the words of memory, in several heads at once.

    x: [B, Q, D]        who asks: the queries are made from it
    memory: [B, K, D]   what is looked at: keys and values are made from it. In self-attention it is x itself.
    weights: the four matrices, {"query": W_Q, "key": W_K, "value": W_V, "output": W_O}, each [D, D]
    mask: None, or anything that broadcasts to [B, H, Q, K], such as [Q, K] or [B, 1, 1, K]. True = may attend

    ->  [B, Q, D]

    The matrices are used as in the paper, x @ W, and there are no biases. W_Q holds the W_Qi of all heads side by side,
    so one product makes the queries of all heads; W_K and W_V likewise. Each head scales by its own width.
    """
    raise NotImplementedError
