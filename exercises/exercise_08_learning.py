"""Exercise 8. Learning                                     (the paper, sections 5.3 and 5.4; lesson 8)

    table ──▶ logits ──▶ smoothed_loss ──▶ gradient ──▶ clip ──▶ adam ──▶ new table
                              ▲
                smooth(target): what the model should say

    q = (1 - ε) · one-hot + ε / V                              label smoothing, section 5.4
    loss = -Σ q · log p,    p = softmax(logits)                mean over the tokens
    m, v ──▶ weight - lr · m̂ / (sqrt(v̂) + eps)                 Adam, section 5.3

Replace each `raise NotImplementedError` and check yourself as often as you like:

    cutaway check 8             which parts are right, and what is wrong with the others
    cutaway check 8 --watch     the same again each time you save this file
    cutaway check 8 --hint      a stronger hint
    cutaway check 8 --think     also the line of thought

You work with NumPy arrays. If you prefer PyTorch, write `import torch` instead: you are then given tensors. Return new
arrays: do not change those that you are given. Write Adam yourself: torch.optim takes
longer to start than the check may take.

The paper's learning rate was part of exercise 5. This exercise has the other usual one.
"""

import numpy as np

from cutaway.course.given import (
    shift_right,  # (target [B, T], start) -> [B, T]: start, then the target without its last id
    softmax,  # (x) -> the same shape, along the last axis
)


def count_tokens(target, pad):
    """Count the tokens that are not padding.

    target: [B, T], ids of tokens
    pad: the id of padding

    -> one number, for all texts together

    count_tokens([[5, 6, 0], [7, 0, 0]], 0) is 3. Padding may stand anywhere, not only at the end of a text.
    """
    raise NotImplementedError


def log_softmax(logits):
    """Return the logarithm of the softmax along the last axis.

        log p_i = x_i - log Σ_j e^(x_j)

    logits: any shape

    -> the same shape

    log_softmax([0, 0]) is [-0.693, -0.693], which is log 1/2 twice. It has to work for large logits:
    log_softmax([0, 1000]) is [-1000, 0].
    """
    raise NotImplementedError


def smooth(target, n_tokens, epsilon, pad):
    """Return the target distribution of label smoothing: what the model should say at each position.

        q = (1 - ε) · one-hot + ε / V

    target: [B, T], the right ids
    n_tokens: V, the size of the vocabulary (not the number of tokens in the texts)
    epsilon: ε, the probability that is spread evenly over all V ids. The right id and padding get their share, too.
    pad: the id of padding. Where the target is pad, nothing is to be said: that row is all 0.

    -> [B, T, V]

    smooth([[2, 0]], 4, 0.2, 0) is [[[0.05, 0.05, 0.85, 0.05], [0, 0, 0, 0]]].
    """
    raise NotImplementedError


def smoothed_loss(logits, target, epsilon, pad):
    """Return the cross-entropy with the smoothed target, the mean over all tokens that are not padding.

        loss of one token = -Σ q · log p    (the sum over the V ids),    p = softmax(logits)

    logits: [B, T, V]
    target: [B, T], the right ids (logits[:, t] belongs to target[:, t])
    epsilon, pad: as in smooth

    -> one number

    With epsilon 0 this is the ordinary cross-entropy of exercise 5. If all logits are equal, the loss is log V with any
    epsilon. For the logits [[[0, 0, log 2]]], the target [[2]], epsilon 0.3 and another id as pad, p is
    [1/4, 1/4, 1/2], q is [0.1, 0.1, 0.8], and the loss is 0.832. It has to work for large logits, too.
    """
    raise NotImplementedError


def warmup_cosine(step, peak, warmup, total, floor):
    """Return the learning rate: it climbs in a straight line, then falls along half a cosine.

    step: 1, 2, 3, ...
    peak: the rate at step = warmup. Up to there, the rate grows by the same amount at each step; step 0 would have 0.
    warmup: at least 1
    total: the step at which the rate reaches `floor`; larger than warmup
    floor: the rate at step = total, and at all steps after it

    -> one number

    From warmup to total the rate follows the cosine from its top (angle 0) to its bottom (angle π), stretched so that
    the top is peak and the bottom is floor. With peak 1, warmup 2, total 6 and floor 0.2, the rates of the steps 1 to 7
    are 0.5, 1, 0.883, 0.6, 0.317, 0.2, 0.2.
    """
    raise NotImplementedError


def clip(gradients, max_norm):
    """Make the gradients shorter if together they are too long.

    gradients: a list of arrays of any shapes, one for each array of weights
    max_norm: how long they may be

    -> (a list of arrays of the same shapes, norm)

    norm is the length of all gradients together, as they were given: the square root of the sum of the squares of all
    their numbers, over all arrays. If norm is larger than max_norm, all numbers are multiplied by the same factor, such
    that the new norm is max_norm. If not, they stay as they are. For [[3, 0], [4]] and max_norm 1, the result is
    ([[0.6, 0], [0.8]], 5).
    """
    raise NotImplementedError


def adam(weight, gradient, m, v, step, lr, beta1, beta2, eps):
    """Make one step of Adam.

        m = beta1 · m + (1 - beta1) · gradient              a running mean of the gradients
        v = beta2 · v + (1 - beta2) · gradient²             a running mean of their squares
        m̂ = m / (1 - beta1^step),   v̂ = v / (1 - beta2^step)
        weight = weight - lr · m̂ / (sqrt(v̂) + eps)

    weight, gradient, m, v: arrays of the same shape; m and v from the step before (zeros before the first)
    step: 1, 2, 3, ...
    lr, beta1, beta2, eps: numbers

    -> (weight, m, v), all three after this step. m̂ and v̂ are used for the weight only.

    m and v begin at 0, so the first means are too small; m̂ and v̂ correct that. At step 1, m̂ is the gradient itself.
    """
    raise NotImplementedError


def training_step(table, target, start, pad, m, v, step, lr):
    """Train the smallest language model for one step.

    table: [V, V]. Row i holds the logits of the token that follows id i.
    target: [B, T], the ids that the model should say
    start: the id before every text
    pad: the id of padding
    m, v: [V, V], of Adam
    step: 1, 2, 3, ...
    lr: the learning rate

    -> (loss, table, m, v): the loss of the table that was given, then table, m and v after the step

    The model reads target_in = shift_right(target, start), and its logits at position t are table[target_in[:, t]].
    The loss is smoothed_loss with epsilon 0.1. Clip the gradient to the norm 1. Adam has beta1 0.9, beta2 0.98 and
    eps 1e-9.

    The gradient of the table has the table's shape. A position that is not padding in the target has the gradient
    (softmax of its logits - its smoothed target) / (number of tokens that are not padding); a padding position has 0.
    Add this vector to the row of the id that the position reads. If several positions read the same id, its row is the
    sum of their vectors. (In PyTorch, autograd can compute all this from the loss.)
    """
    raise NotImplementedError
