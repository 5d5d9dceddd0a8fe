"""Exercise 1. Scaled dot-product attention                                  (the paper, section 3.2.1; lesson 1)

    Attention(Q, K, V) = softmax(Q Kᵀ / sqrt(d_k)) V                                                 equation 1

Replace each `raise NotImplementedError` and check yourself as often as you like:

    cutaway check 1             which parts are right, and what is wrong with the others
    cutaway check 1 --watch     the same again each time you save this file
    cutaway check 1 --hint      a stronger hint
    cutaway check 1 --think     the line of thought that leads to a solution
    cutaway check 1 --solution  our solution, explained

You work with NumPy arrays. If you prefer PyTorch, write `import torch` instead: you are then given tensors. Write the
functions yourself: calling a ready-made softmax or attention would be right, and teach you nothing. Return new arrays:
do not change those that you are given. The first two functions are warm-ups of about three lines.
"""

import numpy as np


def dot(a, b):
    """How well two vectors match: multiply them place by place, and add up.

    a, b: [d]  ->  one number

    dot([1, 2], [3, 4]) is 1·3 + 2·4 = 11.
    """
    raise NotImplementedError


def weighted_average(weights, values):
    """The average of some values, of which some count more than others.

    weights: [K]        how much each value counts; they are positive and sum to 1
    values: [K, E]      K values, each a row of E numbers

    -> [E]

    weighted_average([0.25, 0.75], [[0, 4], [8, 1]]) is [0.25·0 + 0.75·8, 0.25·4 + 0.75·1] = [6, 1.75].
    """
    raise NotImplementedError


def softmax(x):
    """Turn numbers into weights, along the last axis: positive, and adding up to 1.

        softmax(x)_j = e^(x_j) / Σ_i e^(x_i)

    x: any shape [..., n]  ->  the same shape

    It has to work for large numbers too, where e^1000 is infinite: softmax([1000, 1000]) is [0.5, 0.5]. And a number
    may be minus infinity, as long as not all numbers of a row are: softmax([0, -inf]) is [1, 0].
    """
    raise NotImplementedError


def causal_mask(n):
    """Who may look at whom in a text that is being written: a word sees itself and the words before it.

    n: how many positions  ->  [n, n], True where row i may look at column j

    Here and everywhere in Cutaway, True means: may attend.
    """
    raise NotImplementedError


def attention(q, k, v, mask=None):
    """Look up values by how well their keys match a query.

    q: [..., Q, d_k]   Q queries
    k: [..., K, d_k]   K keys
    v: [..., K, d_v]   a value for each key
    mask: None, or [Q, K] (or anything that broadcasts to [..., Q, K], such as [K]), True = may attend

    -> output [..., Q, d_v], weights [..., Q, K]

    The dots stand for any number of axes in front (texts, heads), which are only carried along. Every row of the
    weights adds up to 1; a key that may not be seen gets a weight of 0. Scores may be large, as in softmax. You need
    not care about rows where nothing may be seen.
    """
    raise NotImplementedError
