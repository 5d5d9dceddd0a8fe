"""Exercise 1 for the grader: softmax, the causal mask, attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.course.exercise import NO_MISTAKES, Case, Exercise, ExercisePart, Mistake, Switches

Array = NDArray[Any]
LOW = -1e9


def only_one(wrong: Switches, of: set[str]) -> None:
    """Reject pairs of mistakes that look like a third one: the grader must not guess such a pair."""
    if len(wrong & of) > 1:
        raise ValueError(f"not together: {', '.join(sorted(wrong & of))}")


def softmax(x: Array, wrong: Switches = NO_MISTAKES) -> Array:
    """e^x / Σ e^x along the last axis"""
    axis: int | None = -1
    for name, other in SOFTMAX_AXES.items():
        if name in wrong:
            axis = other
    if axis is not None and axis >= x.ndim:
        raise ValueError("there is no such axis")
    if "minus" in wrong:
        x = -x
    if not {"no-maximum", "no-powers"} & wrong:
        extreme = x.min if "minimum-subtracted" in wrong else x.max
        x = x - extreme(axis=None if "one-maximum" in wrong else axis, keepdims=True)
    if "minus-after-maximum" in wrong:
        x = -x
    powers = x if {"no-powers", "no-powers-after-maximum"} & wrong else np.exp(x)
    if "not-normalised" in wrong:
        return powers
    total = powers.sum(axis=axis, keepdims=True)
    if "log-softmax" in wrong:
        return x - np.log(total)
    return powers / total


SOFTMAX_AXES: dict[str, int | None] = {
    "axis-before": -2,
    "axis-0": 0,
    "axis-1": 1,
    "axis-all": None,
}

WRONG_AXIS = Mistake(
    "softmax-axis",
    "the softmax runs over the wrong axis",
    "Add up the weights of one query, over all keys. What should come out?",
    "The keys are on the last axis of the scores. Which axis does your sum run over, for arrays with 2, 3 and 4 axes?",
    ways=("axis-before", "axis-0", "axis-1"),
)
OVER_EVERYTHING = Mistake(
    "softmax-over-everything",
    "the softmax divides by the sum over the whole array, not row by row",
    "Give it two rows. Does each row add up to 1?",
    "The sum needs an axis, and has to keep it (keepdims) so that it still lines up with the rows.",
    ways=("axis-all",),
)
NO_MAXIMUM = Mistake(
    "no-maximum",
    "large numbers overflow: e^1000 is infinite",
    "softmax(x) is the same if a number is subtracted from all of x. Which number makes e^x safe?",
    "Subtract the largest number of each row before taking e^x. Then the largest power is e^0 = 1.",
    ways=("no-maximum", "minimum-subtracted"),
    shows_as_nan=True,
)
NOT_NORMALISED = Mistake(
    "not-normalised",
    "the powers are not divided by their sum",
    "Do the weights of a row add up to 1?",
    "e^x alone is not a softmax yet: divide by the sum of the row.",
)
LOG_SOFTMAX = Mistake(
    "log-softmax",
    "this is the logarithm of the softmax",
    "Weights lie between 0 and 1. Do yours?",
    "Leave out the logarithm (or, in PyTorch, use softmax where you used log_softmax).",
)
ONE_MAXIMUM = Mistake(
    "one-maximum",
    "from all rows the same number is subtracted, the largest of all; a row far below it becomes 0 / 0",
    "Give it two rows, one with numbers near 0 and one with numbers near 1000. What becomes of the first?",
    "Each row needs its own largest number: the maximum, like the sum, runs over the last axis only.",
    shows_as_nan=True,
)
NO_POWERS = Mistake(
    "no-powers",
    "the numbers themselves are divided by their sum; they should become powers of e first",
    "What would a negative number become? A weight must not be negative.",
    "Compare your numerator with that of the equation: the x stands in an exponent there.",
    ways=("no-powers", "no-powers-after-maximum"),
)
MINUS = Mistake(
    "minus",
    "the largest number gets the smallest weight: there is a minus too much",
    "Which of the three numbers 0, 1 and 2 should get the largest weight?",
    "It is e^x. If you subtract the largest number, mind which of the two is subtracted from which.",
    ways=("minus", "minus-after-maximum"),
)
SOFTMAX_MISTAKES = (
    WRONG_AXIS,
    OVER_EVERYTHING,
    NO_MAXIMUM,
    ONE_MAXIMUM,
    NOT_NORMALISED,
    NO_POWERS,
    MINUS,
    LOG_SOFTMAX,
)

SOFTMAX = ExercisePart(
    "softmax",
    ("x",),
    ("weights",),
    softmax,
    cases=(
        Case("two rows of three", (np.array([[0.0, 1.0, 2.0], [3.0, 1.0, 0.0]]),)),
        # so large and so different that subtracting the minimum or the mean overflows
        Case("large numbers", (np.array([[1000.0, 999.0, 0.0, -1000.0], [4000.0, 3999.0, 3998.0, 0.0]]),)),
        Case("three axes", (np.sin(np.arange(24.0).reshape(2, 3, 4) * 1.7) * 2,)),
    ),
    mistakes=SOFTMAX_MISTAKES,
)


def causal_mask(n: int, wrong: Switches = NO_MISTAKES) -> Array:
    """[n, n], True if query i may attend to key j: j ≤ i."""
    if "mask-inverted" in wrong:
        return np.triu(np.ones((n, n), bool), 1)
    if "mask-transposed" in wrong:
        return np.triu(np.ones((n, n), bool))
    if "mask-all" in wrong:
        return np.ones((n, n), bool)
    if "only-itself" in wrong:
        return np.eye(n, dtype=bool)
    offset = 1 if "future-leak" in wrong else -1 if "not-itself" in wrong else 0
    mask = np.tril(np.ones((n, n), bool), offset)
    if "mask-additive" in wrong:
        return np.where(mask, 0.0, -np.inf)
    if "mask-additive-finite" in wrong:
        return np.where(mask, 0.0, LOW)
    return mask


MASK_INVERTED = Mistake(
    "mask-inverted",
    "the mask says the opposite: True stands where one must not look",
    "In this course True means: may attend. Read row 0 of yours: what may the first word see?",
    "torch.nn.MultiheadAttention marks what is hidden; here, as in scaled_dot_product_attention, True marks what may "
    "be seen. Turn it around.",
)
MASK_TRANSPOSED = Mistake(
    "mask-transposed",
    "every position sees itself and the future, instead of itself and the past",
    "Rows are who looks, columns are what is looked at. What may the first row see?",
    "It is the other triangle that is asked for.",
)
FUTURE_LEAK = Mistake(
    "future-leak",
    "every position also sees the one after it: the future leaks in by one",
    "Look at row 0. The first word may see itself and nothing else.",
    "The triangle is shifted by one diagonal.",
)
NOT_ITSELF = Mistake(
    "not-itself",
    "no position sees itself",
    "Look at the diagonal. The input at a position is already shifted by one, so seeing oneself betrays nothing.",
    "The triangle is shifted by one diagonal: the main one belongs to it. Row 0 must not be empty.",
)
MASK_ALL = Mistake(
    "mask-all",
    "nothing is hidden",
    "Row 0 may see only column 0.",
    "NumPy and PyTorch have a function that keeps the lower triangle of a matrix.",
)
MASK_ADDITIVE = Mistake(
    "mask-additive",
    "this is a mask of numbers to add (0 and minus infinity); asked for is one of True and False",
    "What type do its entries have?",
    "Compare: which entries are 0? Those are the ones that should be True.",
    ways=("mask-additive", "mask-additive-finite"),
    shows_as_nan=True,
)

ONLY_ITSELF = Mistake(
    "only-itself",
    "every position sees itself and nothing else",
    "Look at the last row. The last word may see all words before it, too.",
    "The diagonal is not enough: everything below it belongs to the mask as well.",
)

CAUSAL_MASK = ExercisePart(
    "causal_mask",
    ("n",),
    ("mask",),
    causal_mask,
    cases=(Case("3 positions", (3,)), Case("1 position", (1,)), Case("5 positions", (5,))),
    mistakes=(MASK_INVERTED, MASK_TRANSPOSED, FUTURE_LEAK, NOT_ITSELF, ONLY_ITSELF, MASK_ALL, MASK_ADDITIVE),
)


def attention(
    q: Array, k: Array, v: Array, mask: Array | None = None, wrong: Switches = NO_MISTAKES
) -> tuple[Array, Array]:
    """Attention(Q, K, V) = softmax(Q Kᵀ / sqrt(d_k)) V; returns the output and the weights."""
    if "q-k-exchanged" in wrong:
        q, k = k, q
    scores = q @ np.swapaxes(k, -1, -2)
    scores = scores * scale_of(q, k, v, wrong)
    if mask is not None and not {"mask-ignored", "mask-after-softmax"} & wrong:
        seen = ~mask if "mask-inverted" in wrong else mask
        if "masked-to-zero" in wrong:
            scores = scores * seen
        elif "mask-added" in wrong:
            scores = scores + mask
        else:
            scores = np.where(seen, scores, hidden_score(scores, wrong))
    weights = scores if "no-softmax" in wrong else softmax(scores, wrong)
    if "softmax-twice" in wrong:
        weights = softmax(weights, wrong)
    if mask is not None and "mask-after-softmax" in wrong:
        weights = weights * mask
    if "scale-after-softmax" in wrong:
        weights = weights / math.sqrt(q.shape[-1])
    looked_at = np.swapaxes(weights, -1, -2) if "weights-transposed" in wrong else weights
    output = looked_at @ (k if "keys-for-values" in wrong else v)
    return output, scores if "scores-returned" in wrong else weights


def hidden_score(scores: Array, wrong: Switches) -> Array | float:
    """Return the value of masked scores, which the exercise leaves open."""
    if "low-added" in wrong:
        return scores + LOW
    return -np.inf if "minus-infinity" in wrong else LOW


def attention_returns(
    q: Array, k: Array, v: Array, mask: Array | None = None, wrong: Switches = NO_MISTAKES
) -> tuple[Array, Array] | Array:
    """Select the return value, which can be wrong too."""
    output, weights = attention(q, k, v, mask, wrong)
    if "only-output" in wrong:
        return output
    return (weights, output) if "returned-in-other-order" in wrong else (output, weights)


def scale_of(q: Array, k: Array, v: Array, wrong: Switches) -> float:
    d_k = q.shape[-1]
    if {"no-scale", "scale-after-softmax"} & wrong:
        return 1.0
    if "scale-d" in wrong:
        return 1 / d_k
    if "scale-times" in wrong:
        return math.sqrt(d_k)
    if "scale-length" in wrong:
        return 1 / math.sqrt(k.shape[-2])
    if "scale-value-width" in wrong:
        return 1 / math.sqrt(v.shape[-1])
    return 1 / math.sqrt(d_k)


SOFTMAX_TWICE = Mistake(
    "softmax-twice",
    "there are two softmaxes, one after the other",
    "How often does a score go through a softmax on its way to a weight?",
    "Is there another softmax in a function that you call?",
)
ATTENTION_MISTAKES = (
    Mistake(
        "no-scale",
        "the scores are not divided by sqrt(d_k)",
        "Compare your code with equation 1 of the paper, sign by sign.",
        "Something stands under QKᵀ in the equation. d_k is the width of a query: its last axis.",
    ),
    Mistake(
        "scale-d",
        "the scores are divided by d_k; the paper divides by its square root",
        "Compare your code with equation 1 of the paper, sign by sign.",
        "Lesson 1 measures the variance of a score: it is d_k, so the spread is the square root of d_k.",
    ),
    Mistake(
        "scale-times",
        "the scores are multiplied by sqrt(d_k) instead of divided",
        "Should scaling make the softmax sharper, or softer?",
        "The operator between QKᵀ and sqrt(d_k) is the wrong one.",
    ),
    Mistake(
        "scale-length",
        "the scores are divided by the square root of the number of keys, not of d_k",
        "Which axis of q or k is d_k?",
        "d_k is the last axis: how many numbers a query has, not how many keys there are.",
    ),
    Mistake(
        "scale-value-width",
        "the scores are divided by the square root of the width of a value, not of a key",
        "d_k and d_v may differ. Which one does the equation name?",
        "Take the last axis of q or of k, not of v.",
    ),
    Mistake(
        "scale-after-softmax",
        "sqrt(d_k) divides the weights; it has to divide the scores",
        "Do your weights add up to 1?",
        "Scale before the softmax: after it, dividing only makes the answer smaller.",
    ),
    WRONG_AXIS,
    OVER_EVERYTHING,
    LOG_SOFTMAX,
    NOT_NORMALISED,
    Mistake(
        "no-softmax",
        "there is no softmax: the scores themselves are used as weights",
        "Do your weights add up to 1? Is any of them negative?",
        "One function of the equation is missing between the scores and V.",
    ),
    Mistake(
        "mask-inverted",
        "the mask is used the wrong way round: what may be seen is hidden, and the reverse",
        "True means: may attend. Which scores does your code make small?",
        "Where the mask is False, the score must become very small. Look at the order of what you give to where, or at "
        "a missing ~ before the mask.",
    ),
    Mistake(
        "mask-ignored",
        "the mask is not used",
        "The weights of hidden keys should be 0.",
        "Before the softmax, the scores of hidden keys must become very small.",
    ),
    Mistake(
        "mask-after-softmax",
        "the mask comes after the softmax: the weights that are left no longer add up to 1",
        "Add up the weights of a row with hidden keys.",
        "Hide the scores, before the softmax. It then shares the whole weight among the keys that are left.",
    ),
    Mistake(
        "masked-to-zero",
        "hidden scores are set to 0, and e^0 = 1 is not nothing",
        "What does the softmax make of a score of 0?",
        "Which score gives a weight of 0? It is a very large negative one.",
    ),
    Mistake(
        "mask-added",
        "the mask is added to the scores as 0 and 1, which hides nothing",
        "What does a score get that is hidden? And one that is not?",
        "Adding works if hidden keys get a very large negative number, and the others 0.",
    ),
    Mistake(
        "q-k-exchanged",
        "queries and keys have changed places: the rows of the weights are keys",
        "The weights should have a row for each query. What do you multiply with what?",
        "It is QKᵀ, not KQᵀ.",
    ),
    Mistake(
        "weights-transposed",
        "the values are added up with the weights of the wrong axis",
        "Output row i is made with row i of the weights.",
        "You transposed the weights before multiplying with V, or named the axes of an einsum the wrong way.",
    ),
    Mistake(
        "keys-for-values",
        "the keys are added up instead of the values",
        "What do the weights multiply at the end?",
        "The last factor of the equation is V.",
    ),
    Mistake(
        "scores-returned",
        "what is returned as weights are the scores, before the softmax",
        "Look at the second thing that you return. Do its rows add up to 1?",
        "Return what came out of the softmax.",
    ),
    SOFTMAX_TWICE,
    Mistake(
        "returned-in-other-order",
        "output and weights come back in the other order",
        "Compare the shapes of the two things that you return with those that are asked for.",
        "First the output, then the weights.",
    ),
    Mistake(
        "only-output",
        "only the output comes back; the weights are asked for, too",
        "How many things should the function return?",
        "Return two things, with a comma between them: the output, and what came out of the softmax.",
    ),
)


def numbers(*shape: int, seed: float = 0.0) -> Array:
    """Return fixed pseudo-random numbers with few digits, for printing."""
    n = math.prod(shape)
    return np.round(2.2 * np.sin((np.arange(n) + 1 + seed) * (1.37 + 0.29 * seed)), 2).reshape(shape)


# The value of masked scores is free: a very low number; minus infinity, which some mistakes turn into nan; or the
# score plus a very low number, which matters if a softmax over the wrong axis gets only masked scores.
MASKED_WITH = ("minus-infinity", "low-added")

# No row is all True or all False, so that an inverted mask does not give nan. One key is masked for all queries, to
# detect code that only checks whether any query may attend to a key.
SOME_HIDDEN = np.array([[True, False, True, False], [True, False, False, True], [False, False, True, True]])
SQUARE = np.array([[True, False, False], [True, False, True], [False, False, True]])
IN_EACH_TEXT = np.stack([SQUARE, np.array([[False, True, False], [False, True, True], [False, False, True]])])[:, None]

ATTENTION = ExercisePart(
    "attention",
    ("q", "k", "v", "mask"),
    ("output", "weights"),
    attention_returns,
    cases=(
        # Mostly as many queries as keys, so that exchanged arguments run and give wrong numbers; no axis of
        # length 1, because it would broadcast
        Case("two queries, three keys", (numbers(2, 2, seed=1), numbers(3, 2, seed=2), numbers(3, 2, seed=3), None)),
        Case("as many queries as keys", (numbers(3, 5, seed=4), numbers(3, 5, seed=5), numbers(3, 5, seed=6), None)),
        Case("with a mask", (numbers(3, 4, seed=7), numbers(4, 4, seed=8), numbers(4, 2, seed=9), SOME_HIDDEN)),
        Case(
            "two texts, two heads, with a mask [Q, K]",
            (numbers(2, 2, 3, 4, seed=1), numbers(2, 2, 3, 4, seed=2), numbers(2, 2, 3, 5, seed=3), SQUARE),
        ),
        Case(
            "two texts, two heads, with a mask [B, 1, Q, K], another for each text",
            (numbers(2, 2, 3, 4, seed=4), numbers(2, 2, 3, 4, seed=5), numbers(2, 2, 3, 5, seed=6), IN_EACH_TEXT),
        ),
    ),
    mistakes=ATTENTION_MISTAKES,
    free_choices=MASKED_WITH,
)

EXERCISE = Exercise(1, "scaled_dot_product", "Scaled dot-product attention", parts=(SOFTMAX, CAUSAL_MASK, ATTENTION))
