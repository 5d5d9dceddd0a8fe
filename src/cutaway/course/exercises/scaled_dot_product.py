"""Exercise 1 for the grader: dot product, weighted average, softmax, the causal mask, attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.course.exercise import NO_MISTAKES, Case, Exercise, ExercisePart, Mistake, Property, Switches
from cutaway.course.exercises.properties import agrees, differs, equal, floats, holds

Array = NDArray[Any]
LOW = -1e9


def only_one(wrong: Switches, of: set[str]) -> None:
    """Reject pairs of mistakes that look like a third one: the grader must not guess such a pair."""
    if len(wrong & of) > 1:
        raise ValueError(f"not together: {', '.join(sorted(wrong & of))}")


def dot(a: Array, b: Array, wrong: Switches = NO_MISTAKES) -> Any:
    """Σ_i a_i b_i"""
    if "not-added" in wrong:
        return a * b
    if "all-pairs" in wrong:
        return np.outer(a, b)
    if "sums-multiplied" in wrong:
        return a.sum() * b.sum()
    if "mean-of-products" in wrong:
        return (a * b).mean()
    product = a @ b
    if "cosine" in wrong:
        return product / math.sqrt((a @ a) * (b @ b))
    return product


DOT_MISTAKES = (
    Mistake(
        "not-added",
        "the products come back one by one; expected is their sum",
        "How many numbers should come back? How many do?",
        "Multiplying two arrays gives one product for each place. One step is missing after that.",
    ),
    Mistake(
        "mean-of-products",
        "this is the mean of the products; expected is their sum",
        "Compute [1, 2] · [3, 4] by hand: 3 + 8. By what do you divide?",
        "A dot product is not divided by the number of products.",
    ),
    Mistake(
        "sums-multiplied",
        "the two vectors are summed first, and then multiplied; each pair of numbers is multiplied first",
        "Compute [1, 2] · [3, 4] by hand: 3 + 8. What do you get on the way?",
        "First multiply place by place, then take one sum.",
    ),
    Mistake(
        "all-pairs",
        "every number of a is multiplied with every number of b; only numbers at the same place belong together",
        "How many products does [1, 2] · [3, 4] have?",
        "The first number of a meets the first of b, the second meets the second, and so on.",
    ),
    Mistake(
        "cosine",
        "this is the cosine: the dot product divided by the lengths of the two vectors",
        "Compute [1, 2] · [3, 4] by hand: 3 + 8. By what do you divide?",
        "Leave out the lengths. In attention a long key may have a large score.",
    ),
)

DOT = ExercisePart(
    "dot",
    ("a", "b"),
    ("product",),
    dot,
    cases=(
        Case("two numbers each", (np.array([1.0, 2.0]), np.array([3.0, 4.0]))),
        Case("three numbers each", (np.array([1.0, -2.0, 0.5]), np.array([3.0, 1.0, 4.0]))),
        Case("four numbers each", (np.array([2.0, 0.0, -1.0, 3.0]), np.array([1.5, 7.0, 2.0, -2.0]))),
        Case("the same vector twice", (np.array([3.0, 4.0]), np.array([3.0, 4.0]))),
    ),
    mistakes=DOT_MISTAKES,
    properties=(
        agrees(dot, ("product",), "for [1, 0] and [0, 1]", np.array([1.0, 0.0]), np.array([0.0, 1.0])),
        agrees(dot, ("product",), "for one number each, [2] and [3]", np.array([2.0]), np.array([3.0])),
    ),
    hint="Compute [1, 2] · [3, 4] by hand: 1·3 + 2·4 = 11. Where does your code do something else?",
    strong_hint="Two steps: multiply the numbers at the same place, then add up all products. One number comes back.",
    thought="Two vectors match well if they are large at the same places. So compare place by place: the product of "
    "two numbers is large if both are large and have the same sign. The sum of these products says how well the "
    "vectors match as a whole. Attention uses this sum as the score of a query and a key.",
)


def weighted_average(weights: Array, values: Array, wrong: Switches = NO_MISTAKES) -> Array:
    """Σ_j weights_j · values_j: weights [K], values [K, E] -> [E]"""
    n_values, width = values.shape
    if {"values-at-weights", "weights-on-columns"} & wrong and n_values != width:
        raise ValueError("these shapes do not fit")
    if "plain-mean" in wrong:
        return values.mean(axis=0)
    if "plain-sum" in wrong:
        return values.sum(axis=0)
    if "values-at-weights" in wrong:
        return values @ weights
    if "weights-on-columns" in wrong:
        return (values * weights).sum(axis=0)
    if "largest-only" in wrong:
        return values[np.argmax(weights)]
    weighted = weights[:, None] * values
    if "not-added" in wrong:
        return weighted
    if "sum-over-width" in wrong:
        return weighted.sum(axis=1)
    return weighted.sum(axis=0) / (n_values if "divided-again" in wrong else 1)


WEIGHTED_AVERAGE = ExercisePart(
    "weighted_average",
    ("weights", "values"),
    ("average",),
    weighted_average,
    cases=(
        # as many values as numbers in a value, so that a product in the wrong order runs and gives wrong numbers
        Case("two values of two numbers", (np.array([0.25, 0.75]), np.array([[0.0, 4.0], [8.0, 1.0]]))),
        Case(
            "three values of two numbers", (np.array([0.5, 0.2, 0.3]), np.array([[2.0, 1.0], [0.0, 5.0], [10, -1.0]]))
        ),
        Case(
            "three values of three numbers",
            (np.array([0.1, 0.6, 0.3]), np.array([[1.0, 2.0, 3.0], [0.0, -4.0, 5.0], [7.0, 1.0, 2.0]])),
        ),
    ),
    mistakes=(
        Mistake(
            "weights-ignored",
            "the weights are not used: all values count the same",
            "Which of the two arguments does your code never read?",
            "Each value is multiplied by its own weight before they are added up.",
            ways=("plain-mean", "plain-sum"),
        ),
        Mistake(
            "wrong-axis",
            "the sum runs over the numbers of a value (or the weights multiply them); it should run over the values",
            "A weight belongs to a value, which is a row. Does weight 0 multiply all of row 0?",
            "The result is as wide as a value: the rows are added up, each times its weight.",
            ways=("values-at-weights", "weights-on-columns", "sum-over-width"),
        ),
        Mistake(
            "not-added",
            "the weighted values come back one by one; expected is their sum",
            "What shape should the result have?",
            "After each value is multiplied by its weight, the rows are added up to one.",
        ),
        Mistake(
            "divided-again",
            "the sum is divided by the number of values, but the weights sum to 1 already",
            "If all values are [5], what should the average be?",
            "Leave out the division: the weights do it.",
        ),
        Mistake(
            "largest-only",
            "only the value with the largest weight comes back",
            "What happens to a value with a weight of 0.25?",
            "All values count, each as much as its weight.",
        ),
    ),
    properties=(
        equal(
            "weights-on-one",
            [(np.array([0.0, 1.0]), np.array([[1.0, 2.0], [3.0, 4.0]]))],
            lambda average: (average, [3.0, 4.0]),
            "With the weights [0, 1] only the second value, [3, 4], counts; but average{at} is {given} and not "
            "{expected}.",
        ),
        equal(
            "equal-values",
            [(np.array([0.5, 0.2, 0.3]), np.full((3, 2), 5.0))],
            lambda average: (average, [5.0, 5.0]),
            "If all values are [5, 5], so is their average, whatever the weights; but average{at} is {given}.",
        ),
        agrees(
            weighted_average, ("average",), "one value, with the weight 1", np.array([1.0]), np.array([[3.0, 4.0, 5.0]])
        ),
        agrees(
            weighted_average, ("average",), "two values of one number", np.array([0.5, 0.5]), np.array([[3.0], [7.0]])
        ),
    ),
    hint="Compute the first case by hand: the first number of each value times its weight, added up. Then the second.",
    strong_hint="A weight multiplies a whole row of values; to line up with the rows it needs a second axis, or a "
    "matrix product whose inner axis is the number of values.",
    thought="A weight says how much of a value to take. So multiply each value, which is a row of numbers, by its "
    "weight. Then add up the rows: number 0 of the result is made of the numbers 0 of all values. The weights sum to "
    "1, so nothing has to be divided. This sum is what attention returns for one query.",
)


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


def check_softmax_sums(weights: Any) -> str | None:
    """The row is [0, 1]."""
    weights = floats(weights)
    total = weights.sum(axis=-1)[0]
    if (weights < -1e-6).any():
        return f"A weight of the row [0, 1] is {weights.min():.4g}: no weight may be negative."
    return f"The weights of the row [0, 1] sum to {total:.4g}, not to 1." if differs(total, 1) else None


def check_softmax_ratio(weights: Any) -> str | None:
    first, second = floats(weights)[0]
    if not differs(second / first, math.e):
        return None
    return f"In the row [0, 1] the second weight is {second / first:.4g} times the first; it should be e = 2.718 times."


ROW = np.array([[0.0, 1.0]])
SOFTMAX_PROPERTIES = (
    holds("rows sum to 1", [(ROW,)], check_softmax_sums),
    equal(
        "equal numbers",
        [(np.array([[2.0, 2.0]]),)],
        lambda weights: (weights, [[0.5, 0.5]]),
        "Equal numbers get equal weights: for the row [2, 2] the weights are 0.5 and 0.5, but weights{at} is {given}.",
    ),
    equal(
        "rows are independent",
        [(np.array([[0.0, 1.0], [0.0, 0.0]]),), (np.array([[0.0, 1.0], [5.0, 0.0]]),)],
        lambda before, after: (floats(after)[0], floats(before)[0]),
        "If only row 1 of x is changed, weights[0]{at} changes from {expected} to {given}. Each row is a softmax of "
        "its own.",
    ),
    holds("ratio of two weights", [(ROW,)], check_softmax_ratio),
    equal(
        "a number added",
        [(np.array([[0.0, 1.0]]),), (np.array([[3.0, 4.0]]),)],
        lambda before, after: (after, before),
        "The rows [0, 1] and [3, 4] have the same softmax, but weights{at} is {expected} for one and {given} for the "
        "other.",
    ),
    agrees(softmax, ("weights",), "x with one axis only, [0, 1, 2]", np.array([0.0, 1.0, 2.0])),
    agrees(softmax, ("weights",), "a row of one number, [[5]]", np.array([[5.0]])),
    agrees(softmax, ("weights",), "a row with minus infinity, [0, -inf, 1]", np.array([[0.0, -np.inf, 1.0]])),
    agrees(softmax, ("weights",), "minus infinity first, in x with one axis, [-inf, 0]", np.array([-np.inf, 0.0])),
    agrees(softmax, ("weights",), "two large numbers and one axis only, [1000, 1000]", np.array([1000.0, 1000.0])),
    agrees(softmax, ("weights",), "very negative numbers, [-1000, -1001]", np.array([[-1000.0, -1001.0]])),
    agrees(softmax, ("weights",), "numbers in single precision, [100, 99]", np.array([[100, 99]], np.float32)),
    agrees(softmax, ("weights",), "a row of 300 numbers", np.sin(np.arange(300.0))[None]),
    agrees(softmax, ("weights",), "four axes", np.sin(np.arange(16.0).reshape(2, 2, 2, 2) * 1.7) * 2),
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
    properties=SOFTMAX_PROPERTIES,
    hint="Compute softmax([0, 1]) by hand: the powers of e are 1 and 2.718, their sum is 3.718, the weights are 0.269 "
    "and 0.731. Which of these steps is different in your code?",
    strong_hint="Print three things for the first case: the powers, the sum of each row (one number for each row), "
    "and the weights. The sum must keep its axis, so that each row is divided by its own sum.",
    thought="A weight must not be negative, so each number first becomes a power of e, which is always positive. The "
    "weights of a row must sum to 1, so each power is divided by the sum of the powers in its row. e^1000 is too "
    "large for a computer. But subtracting the same number from a whole row changes nothing: above and below the "
    "line, all powers become smaller by the same factor. So subtract the largest number of the row, and no power is "
    "above e^0 = 1. All this happens along the last axis, however many axes stand in front.",
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
    "this is a mask of numbers to add (0 and minus infinity); expected is one of True and False",
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


def check_causal_rows(mask: Any) -> str | None:
    """Say what is wrong in the mask of three words."""
    mask = np.asarray(mask).astype(bool)
    for i, row in enumerate(mask):
        if row[i + 1 :].any():
            later = i + 1 + int(np.argmax(row[i + 1 :]))
            return f"In causal_mask(3), word {i} may look at word {later}, which comes later."
        if not row[i]:
            return f"In causal_mask(3), word {i} may not look at itself."
        if not row.all() and not row[:i].all():
            return f"In causal_mask(3), word {i} may not look at word {int(np.argmin(row[:i]))}, which comes before it."
    return None


CAUSAL_MASK = ExercisePart(
    "causal_mask",
    ("n",),
    ("mask",),
    causal_mask,
    cases=(Case("3 positions", (3,)), Case("1 position", (1,)), Case("5 positions", (5,))),
    mistakes=(MASK_INVERTED, MASK_TRANSPOSED, FUTURE_LEAK, NOT_ITSELF, ONLY_ITSELF, MASK_ALL, MASK_ADDITIVE),
    properties=(
        holds("no future", [(3,)], check_causal_rows),
        agrees(causal_mask, ("mask",), "2 positions", 2),
        agrees(causal_mask, ("mask",), "40 positions", 40),
    ),
    hint="Write down the mask of three words by hand: row 0 is True, False, False. What are row 1 and row 2? Compare.",
    strong_hint="Row i may look at column j if j is not larger than i. Compare each entry of yours with this sentence.",
    thought="Row i is the word that looks, column j the word that it looks at. While a text is written, the words "
    "after i do not exist yet, so j must not be larger than i. The word itself is there: j = i is allowed. So row 0 "
    "has one True, row 1 has two, and the last row has only True. Together they are a triangle, with the diagonal.",
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


def check_weights(query: int, sentence: str) -> Any:
    """Check that the weights of a query sum to 1 and that none is negative."""

    def check(result: Any) -> str | None:
        _, weights = result
        row = floats(weights)[query]
        if differs(row.sum(), 1):
            return f"{sentence}, the weights of query {query} sum to {row.sum():.4g}, not to 1."
        if (row < -1e-6).any():
            return f"{sentence}, a weight of query {query} is {row.min():.4g}: no weight may be negative."
        return None

    return check


def check_hidden_weight(result: Any) -> str | None:
    """Key 1 is hidden from query 0."""
    _, weights = result
    weight = floats(weights)[0, 1]
    return f"Query 0 may not see key 1, but gives it the weight {weight:.4g}." if differs(weight, 0) else None


def check_score_ratio(result: Any) -> str | None:
    """The scores are 2 / sqrt(4) = 1 and 0."""
    _, weights = result
    ratio = floats(weights)[0, 0] / floats(weights)[0, 1]
    if not differs(ratio, math.e):
        return None
    return (
        "A query [2, 0, 0, 0] with the keys [1, 0, 0, 0] and [0, 0, 0, 0] has the scores 2 / sqrt(4) = 1 and 0. So the "
        f"first weight should be e = 2.718 times the second; it is {ratio:.4g} times."
    )


KEYS, VALUES = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), np.array([[1.0, 2.0], [3.0, 4.0], [6.0, 5.0]])
QUERIES = np.array([[1.0, 0.5], [-1.0, 0.5]])
SEES_SOME = np.array([[True, False, True], [True, True, False]])
NEW_ORDER = [2, 0, 1]
RESULTS = ("output", "weights")


def changed(array: Array, place: Any, to: float) -> Array:
    """Return a copy with other numbers at this place."""
    copy = array.copy()
    copy[place] = to
    return copy


ATTENTION_PROPERTIES: tuple[Property, ...] = (
    holds("weights sum to 1", [(QUERIES, KEYS, VALUES, None)], check_weights(0, "Without a mask")),
    holds("hidden keys have no weight", [(QUERIES, KEYS, VALUES, SEES_SOME)], check_hidden_weight),
    holds("masked weights sum to 1", [(QUERIES, KEYS, VALUES, SEES_SOME)], check_weights(0, "With a mask")),
    equal(
        "output is the average",
        [(QUERIES, KEYS, VALUES, None)],
        lambda result: (result[0], floats(result[1]) @ VALUES),
        "The output is not the average of the values with the weights that come back: output{at} is {given}, but these "
        "weights give {expected}.",
    ),
    equal(
        "equal keys",
        [(QUERIES, np.ones((3, 2)), VALUES, None)],
        lambda result: (result[1], np.full((2, 3), 1 / 3)),
        "If all three keys are equal, each weight is 1/3; but weights{at} is {given}.",
    ),
    equal(
        "order of the keys",
        [(QUERIES, KEYS, VALUES, None), (QUERIES, KEYS[NEW_ORDER], VALUES[NEW_ORDER], None)],
        lambda before, after: (after[0], before[0]),
        "If keys and values come in another order (the same for both), the output stays the same. But output{at} "
        "changes from {expected} to {given}.",
    ),
    equal(
        "queries are independent",
        [(QUERIES, KEYS, VALUES, None), (changed(QUERIES, 1, 3.0), KEYS, VALUES, None)],
        lambda before, after: (floats(after[0])[0], floats(before[0])[0]),
        "If only query 1 is changed, output[0]{at} changes from {expected} to {given}. Each query has a result of its "
        "own.",
    ),
    equal(
        "hidden values do not matter",
        [(QUERIES, KEYS, VALUES, SEES_SOME), (QUERIES, KEYS, changed(VALUES, 1, 50.0), SEES_SOME)],
        lambda before, after: (floats(after[0])[0], floats(before[0])[0]),
        "Query 0 may not see key 1. If value 1 is changed, output[0]{at} still changes from {expected} to {given}.",
    ),
    holds("scale", [(np.eye(1, 4) * 2, np.eye(2, 4) * [[1.0], [0.0]], np.eye(2), None)], check_score_ratio),
    equal(
        "a mask of True",
        [(QUERIES, KEYS, VALUES, None), (QUERIES, KEYS, VALUES, np.ones((2, 3), bool))],
        lambda without, with_mask: (with_mask[0], without[0]),
        "A mask that is True everywhere hides nothing. But with it output{at} is {given}, and without a mask "
        "{expected}.",
    ),
    agrees(attention, RESULTS, "one query and one key", QUERIES[:1], KEYS[:1], VALUES[:1], None),
    agrees(attention, RESULTS, "one query and three keys", QUERIES[:1], KEYS, VALUES, np.array([[True, False, True]])),
    agrees(attention, RESULTS, "three queries and one key", KEYS, QUERIES[:1], VALUES[:1], None),
    agrees(attention, RESULTS, "queries, keys and values of width 1", QUERIES[:, :1], KEYS[:, 1:], VALUES[:, :1], None),
    agrees(attention, RESULTS, "scores of about 1000", QUERIES * 40, KEYS * 40, VALUES, SEES_SOME),
    agrees(
        attention,
        RESULTS,
        "three axes, with a mask [B, 1, K]",
        numbers(2, 2, 3, seed=7),
        numbers(2, 4, 3, seed=8),
        numbers(2, 4, 2, seed=9),
        np.array([[[True, True, False, False]], [[True, False, True, True]]]),
    ),
    agrees(
        attention,
        RESULTS,
        "one query for each of two texts with two heads, and a mask [B, 1, 1, K]",
        numbers(2, 2, 1, 4, seed=1),
        numbers(2, 2, 3, 4, seed=2),
        numbers(2, 2, 3, 4, seed=3),
        np.array([[True, True, False], [False, True, False]])[:, None, None],
    ),
    agrees(
        attention,
        RESULTS,
        "numbers in single precision",
        *(array.astype(np.float32) for array in (QUERIES, KEYS, VALUES)),
        SEES_SOME,
    ),
    agrees(attention, RESULTS, "a mask [K], the same for all queries", QUERIES, KEYS, VALUES, SEES_SOME[0]),
    agrees(
        attention, RESULTS, "a row of 300 keys", QUERIES, numbers(300, 2, seed=4) / 2, numbers(300, 2, seed=5), None
    ),
)

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
    properties=ATTENTION_PROPERTIES,
    hint="Print the shape after each step for the case above: the scores and the weights are [Q, K], the output is "
    "[Q, d_v]. Then print the sum of each row of the weights.",
    strong_hint="Compute one score by hand: the dot product of query 0 and key 0, divided by the square root of their "
    "length. Compare it with your scores[0, 0]. If it is right, go on with the weights, then with the output.",
    thought="Each query is compared with each key: the dot product says how well they match, and one matrix product "
    "computes all of them. Longer vectors have larger dot products, so the scores are divided by sqrt(d_k). What a "
    "query may not see must get the weight 0, and the softmax gives 0 only to a score of minus infinity (or a very "
    "negative number): so hidden scores are replaced before the softmax. The softmax along the keys turns the scores "
    "of each query into weights that sum to 1. The output is the average of the values with these weights, which is a "
    "matrix product again. Axes in front of the last two never mix: use operations that work on the last two axes "
    "only.",
)

EXERCISE = Exercise(
    1,
    "scaled_dot_product",
    "Scaled dot-product attention",
    parts=(DOT, WEIGHTED_AVERAGE, SOFTMAX, CAUSAL_MASK, ATTENTION),
)
