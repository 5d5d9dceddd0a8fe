"""A solution of exercise 2, in NumPy. There are other ways to write it that are just as right."""

import numpy as np

from cutaway.course.given import attention


def head_columns(d_model, n_heads, head):
    # mistakes: number-for-width
    width = d_model // n_heads  # E: all heads together are as wide as a word
    # mistakes: heads-overlap, split-like-cards, head-from-1, wrong-end
    return np.arange(head * width, (head + 1) * width)  # the end is not included: there the next head begins


def split_heads(x, n_heads):
    n_texts, n_words, d_model = x.shape
    # mistakes: split-by-view, split-like-cards, number-for-width
    x = x.reshape(n_texts, n_words, n_heads, d_model // n_heads)  # cut D where it stands: [B, T, H, E]
    # mistakes: heads-not-moved, words-last
    return x.swapaxes(1, 2)  # and only then move the heads: [B, H, T, E]


def merge_heads(x):
    n_texts, n_heads, n_words, width = x.shape
    # mistakes: merge-by-view, merge-like-cards
    x = x.swapaxes(1, 2)  # [B, T, H, E]: the heads of a word are neighbours again
    # mistakes: not-merged, heads-added
    return x.reshape(n_texts, n_words, n_heads * width)


def project_heads(x, w, n_heads):
    # [B, T, D] @ [D, D]: the matrix holds those of all heads side by side, so one product serves all heads.
    # mistakes: inputs-transposed, no-projections, each-head-its-own-numbers
    projected = x @ w
    # mistakes: not-split
    return split_heads(projected, n_heads)


def attend_heads(q, k, v, mask=None):
    # attention works on the last two axes, [T, E], and carries the others along: each head of each text is alone.
    # mistakes: scale-model-width, mask-first-head, k-v-matrices-exchanged
    attended, _ = attention(q, k, v, mask=mask)  # _: the weights are not needed
    # mistakes: merge-by-view, weights-returned
    return merge_heads(attended)


def multi_head_attention(x, memory, weights, n_heads, mask=None):
    # mistakes: queries-from-memory, no-query-projection
    q = project_heads(x, weights["query"], n_heads)  # x asks
    # mistakes: keys-from-x, query-matrix-again
    k = project_heads(memory, weights["key"], n_heads)  # memory is looked at: it makes the keys
    # mistakes: values-from-x, query-matrix-again
    v = project_heads(memory, weights["value"], n_heads)  # and the values
    # [B, Q, D] @ [D, D]: W_O mixes what the heads have found. Nothing is added: that is up to the block around it.
    # mistakes: no-output-projection, output-transposed, residual-inside
    return attend_heads(q, k, v, mask) @ weights["output"]
