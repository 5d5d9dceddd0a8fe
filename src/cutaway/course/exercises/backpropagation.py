"""Exercise 9 for the grader: the derivatives of a Transformer by hand.

The derivative of the loss with respect to an array has the shape of that array, and is called d_ and its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cutaway.course.differences import is_same
from cutaway.course.exercise import NO_MISTAKES, Case, Exercise, ExercisePart, Mistake, Property, Switches
from cutaway.course.exercises.encoder_block import (
    EPS,
    Weights,
    attention_weights,
    block_weights,
    encoder_block,
    feed_forward,
    feed_forward_weights,
    layer_norm,
    numbers,
)
from cutaway.course.exercises.full_transformer import CAUSAL, PADDING_3, cross_entropy, decoder_block, decoder_weights
from cutaway.course.exercises.multi_head_attention import merge_heads, multi_head_attention, split_heads
from cutaway.course.exercises.positional_encoding import embed, sinusoidal
from cutaway.course.exercises.scaled_dot_product import Array, attention, only_one, softmax

Values = dict[str, Any]  # the arguments of a case, by name
STEP = 0.001  # how far a property moves a number to compare the change of the loss with a derivative


# --- properties --------------------------------------------------------------------------------------------------


def walk_arrays(mine: Any, right: Any, path: str) -> Iterator[tuple[str, Any, Array]]:
    """Yield (path, given, expected) for each array of a result, in the order of the expected one."""
    if isinstance(right, dict):
        for key, inner in right.items():
            yield from walk_arrays(mine.get(key) if isinstance(mine, dict) else None, inner, f"{path}[{key!r}]")
    else:
        yield path, mine, right


def predicts_the_loss(
    part_name: str,
    backward: Callable[..., Any],
    case: Case,
    arguments: tuple[str, ...],
    returns: tuple[str, ...],
    loss: Callable[[Values], float],
    inputs: Callable[[Values], Values] = lambda values: {},
    names: Sequence[str] = (),
) -> Property:
    """Moving a number of an input changes the loss by as much as its derivative says.

    loss: computes the loss from the arguments; inputs: further inputs of the loss, such as the scores of a softmax
    names: the results in the order in which they are compared: the first that a learner computes comes first
    """

    def check(given: Any) -> str | None:
        values = dict(zip(arguments, case.arguments, strict=True))
        values |= inputs(values)
        right = backward(*case.arguments)
        both = [(given, right)] if len(returns) == 1 else list(zip(given, right, strict=True))
        pairs = dict(zip(returns, both, strict=True))
        for name in names or returns:
            for path, mine, theirs in walk_arrays(*pairs[name], name):
                if np.shape(mine) == theirs.shape and not is_same(mine, theirs):
                    return describe_change(path, np.asarray(mine, np.float64), theirs, values, loss)
        return None

    return Property(f"{part_name}: derivatives predict the loss", (case,), check)


def describe_change(
    path: str, mine: Array, right: Array, values: Values, loss: Callable[[Values], float]
) -> str | None:
    """Say how the loss changes where a derivative is most wrong, and what the derivative says."""
    place = np.unravel_index(np.argmax(np.abs(mine - right)), right.shape)
    at = f"[{', '.join(map(str, place))}]"
    target = path.removeprefix("d_")
    change = loss(moved(values, target, place)) - loss(values)
    predicted = STEP * float(mine[place])
    if abs(predicted - change) < 3 * abs(STEP * float(right[place]) - change):
        return None  # the step is too large to show it
    of = "For the loss (d_output * output).sum(): adding" if "d_output" in values else "Adding"
    return (
        f"{of} {STEP} to {target}{at} changes the loss by {plain(change)}; "
        f"your {path}{at} says {plain(predicted)} ({plain(float(mine[place]))} · {STEP})."
    )


def moved(values: Values, target: str, place: Any) -> Values:
    """Return a copy of the values with STEP added to one number; target: such as weights['norm_1']['gain']."""
    name, *keys = target.replace("]", "").replace("'", "").split("[")
    if not keys:
        array = np.array(values[name], np.float64)
        array[place] += STEP
        return {**values, name: array}
    return {**values, name: moved(values[name], "[".join(keys), place)}


def in_order(keys: Sequence[str], backward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that gives the weights, its last result, in this order."""

    def function(*arguments: Any) -> Any:
        *first, d_weights = backward(*arguments)
        return (*first, {key: d_weights[key] for key in keys})

    return function


def plain(number: float) -> str:
    """Format a number without an exponent: 0.00042."""
    if abs(number) < 1e-9:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(number))))
    return f"{number:.{digits}f}" if abs(number) >= 1e-9 else "0"


def sums_to_zero(values: Array, axis: int) -> tuple[tuple[int, ...], float] | None:
    """Return the place and the size of the largest sum along an axis, if it is not 0."""
    sums = np.atleast_1d(np.asarray(values, np.float64).sum(axis=axis))
    place = np.unravel_index(np.argmax(np.abs(sums)), sums.shape)
    if abs(sums[place]) <= 1e-3 * max(1.0, float(np.abs(values).max())):
        return None
    return tuple(int(i) for i in place), float(sums[place])


def weighted(output: Array, values: Values) -> float:
    """The loss of which d_output is the derivative: the sum of d_output · output."""
    return float((values["d_output"] * output).sum())


LOSS_HINT = (
    "Compare with finite differences: numerical_gradient of the loss (d_output * f(x)).sum() shows which numbers of "
    "the derivative are wrong."
)

# --- max(0, x) ---------------------------------------------------------------------------------------------------


def relu_backward(d_output: Array, x: Array, wrong: Switches = NO_MISTAKES) -> Array:
    """y = max(0, x):  d_x = d_output where x > 0, else 0"""
    only_one(wrong, {name for name in wrong if name.startswith("relu-")})
    if "relu-where-d-output" in wrong:
        return d_output * (d_output > 0)
    if "relu-times-x" in wrong:
        return d_output * x
    if "relu-times-output" in wrong:
        return d_output * np.maximum(x, 0)
    if "relu-no-d-output" in wrong:
        return (x > 0).astype(np.float64)
    if "relu-inverted" in wrong:
        return d_output * (x < 0)
    if "relu-unchanged" in wrong:
        return d_output * 1.0
    return np.where(x > 0, d_output, 0.0)


RELU_WHERE_D_OUTPUT = Mistake(
    "relu-where-d-output",
    "it asks where d_output is positive; what counts is where x is positive",
    "Which numbers did max(0, x) let through in the forward pass? Does that depend on d_output?",
    "d_output may have any sign. It passes wherever x was positive, and nowhere else.",
)
RELU_TIMES_OUTPUT = Mistake(
    "relu-times-output",
    "d_output is multiplied by x or by max(0, x); the derivative of max(0, x) is 1 there, not x",
    "If x = 5 grows by 0.1, by how much does max(0, x) grow?",
    "The slope of max(0, x) is 1 for positive x and 0 for negative x. How large x is does not matter.",
    ways=("relu-times-output", "relu-times-x"),
)
RELU_UNCHANGED = Mistake(
    "relu-unchanged",
    "d_output is returned as it is, also where x is negative",
    "If x = -2 grows by 0.1, does max(0, x) change?",
    "Where x is negative the output stays 0, so the derivative is 0 there.",
)
RELU_MISTAKES = (
    RELU_WHERE_D_OUTPUT,
    RELU_TIMES_OUTPUT,
    RELU_UNCHANGED,
    Mistake(
        "relu-no-d-output",
        "this is the slope of max(0, x) alone; it is not multiplied by d_output",
        "What does your code do with d_output?",
        "The chain rule: the derivative of the loss is d_output times the slope.",
    ),
    Mistake(
        "relu-inverted",
        "the derivative passes where x is negative, and is 0 where x is positive; it should be the opposite",
        "For which x does max(0, x) change if x changes?",
        "Look at the direction of your comparison.",
    ),
)

RELU_CASES = (
    Case("four numbers", (np.array([0.5, -3.0, -1.0, 2.0]), np.array([2.0, -1.0, 0.3, -4.0]))),
    Case("two rows", (np.array([[3.0, -2.0, 1.0], [-1.5, 4.0, -0.5]]), np.array([[-0.2, 1.0, 3.0], [0.4, 0.7, -2.0]]))),
    Case("three axes", (numbers(2, 2, 3, seed=1), numbers(2, 2, 3, seed=5))),
    Case("one negative number", (np.array([3.0]), np.array([-2.0]))),
)

RELU_BACKWARD = ExercisePart(
    "relu_backward",
    ("d_output", "x"),
    ("d_x",),
    relu_backward,
    cases=RELU_CASES,
    mistakes=RELU_MISTAKES,
    properties=(
        predicts_the_loss(
            "relu_backward",
            relu_backward,
            RELU_CASES[0],
            ("d_output", "x"),
            ("d_x",),
            lambda values: weighted(np.maximum(values["x"], 0), values),
        ),
    ),
    hint="For each number of x: by how much does max(0, x) change if x grows a little?",
    strong_hint="The slope is 1 where x is positive and 0 where it is negative. Multiply it with d_output.",
    thought="The output is x itself where x is positive, and 0 elsewhere. So a small change of x changes the output by "
    "the same amount, or not at all: the slope is 1 or 0. The loss changes by d_output for each unit of the output. "
    "The chain rule multiplies the two, number by number.",
)

# --- linear map --------------------------------------------------------------------------------------------------

LINEAR_D_W = {"linear-d-w-per-text", "linear-last-row", "linear-last-row-d-w", "linear-d-w-transposed"}
LINEAR_D_B = {
    "linear-d-b-one-number",
    "linear-d-b-as-it-is",
    "linear-d-b-first-axis",
    "linear-d-b-last-but-one-axis",
    "linear-last-row",
}
LINEAR_MEANS = {"linear-mean", "linear-mean-d-w", "linear-mean-d-b"}


def linear_backward(
    d_output: Array, x: Array, w: Array, wrong: Switches = NO_MISTAKES
) -> tuple[Array, Array, Array | np.float64]:
    """y = x W + b:  d_x = d_output Wᵀ,  d_w = Σ_rows xᵀ d_output,  d_b = Σ_rows d_output"""
    only_one(wrong, LINEAR_D_W | LINEAR_MEANS)
    only_one(wrong, LINEAR_D_B | LINEAR_MEANS)
    d_x = d_output @ (w if "linear-w-not-transposed" in wrong else w.T)
    rows, d_rows = x.reshape(-1, x.shape[-1]), d_output.reshape(-1, d_output.shape[-1])
    d_w, d_b = rows.T @ d_rows, d_rows.sum(axis=0)
    if "linear-d-w-per-text" in wrong:
        d_w = np.swapaxes(x, -1, -2) @ d_output
    if {"linear-last-row", "linear-last-row-d-w"} & wrong:
        d_w = np.outer(rows[-1], d_rows[-1])
    if "linear-d-w-transposed" in wrong:
        d_w = d_w.T
    if "linear-d-b-as-it-is" in wrong:
        d_b = d_output
    if "linear-d-b-one-number" in wrong:
        d_b = d_output.sum()
    if "linear-d-b-first-axis" in wrong:
        d_b = d_output.sum(axis=0)
    if "linear-d-b-last-but-one-axis" in wrong:
        d_b = d_output.sum(axis=-2)
    if "linear-last-row" in wrong:
        d_b = d_rows[-1]
    if {"linear-mean", "linear-mean-d-w"} & wrong:
        d_w = d_w / len(rows)
    if {"linear-mean", "linear-mean-d-b"} & wrong:
        d_b = d_b / len(rows)
    return d_x, d_w, d_b


LINEAR_W_NOT_TRANSPOSED = Mistake(
    "linear-w-not-transposed",
    "d_x is made with the matrix itself; it should be made with the transposed matrix",
    "x[i] reaches all outputs through row i of the matrix. Which numbers of the matrix does your d_x[i] use?",
    "Check the shapes with a matrix that is not square: [..., D] has to come from [..., F] and [D, F].",
)
LINEAR_D_W_TRANSPOSED = Mistake(
    "linear-d-w-transposed",
    "the derivative of the matrix is transposed: its rows should belong to the inputs, its columns to the outputs",
    "A derivative has the shape of what it belongs to. Try a matrix that is not square.",
    "The number in row i and column j is input i times the derivative of output j.",
)
LINEAR_D_W_PER_TEXT = Mistake(
    "linear-d-w-per-text",
    "the derivative of the matrix still has the axes of the texts; all rows share one matrix, so they add up",
    "A derivative has the shape of what it belongs to. How many axes does the matrix have?",
    "Add up over all axes in front, not only over the tokens of one text. One way: make one long list of rows first.",
)
LINEAR_D_B_NOT_SUMMED = Mistake(
    "linear-d-b-not-summed",
    "d_b is not summed over all rows",
    "b is added to every row. If b[0] grows, how many outputs change?",
    "Add up d_output over all axes except the last, however many there are.",
    ways=("linear-d-b-as-it-is", "linear-d-b-first-axis", "linear-d-b-last-but-one-axis"),
)
LINEAR_D_B_ONE_NUMBER = Mistake(
    "linear-d-b-one-number",
    "d_b is one number, the sum of everything; each output has a bias of its own",
    "A derivative has the shape of what it belongs to. Which shape has b?",
    "Add up d_output over all axes except the last.",
)
LINEAR_MEAN = Mistake(
    "linear-mean",
    "the derivatives of the matrix or of the bias are means over the rows; they should be sums",
    "If a weight changes, every row of the output changes. Do these effects on the loss add up?",
    "Sum over the rows. Only the loss divides by the number of tokens, and that is in d_output already.",
    ways=("linear-mean", "linear-mean-d-w", "linear-mean-d-b"),
)
LINEAR_LAST_ROW = Mistake(
    "linear-last-row",
    "only the last row counts in the derivative of the matrix: each row overwrites the one before it",
    "What does your loop keep of the first row, after the second?",
    "All rows share the matrix, so their derivatives are added up, from 0 on.",
    ways=("linear-last-row", "linear-last-row-d-w"),
)
LINEAR_MISTAKES = (
    LINEAR_W_NOT_TRANSPOSED,
    LINEAR_D_W_TRANSPOSED,
    LINEAR_D_W_PER_TEXT,
    LINEAR_D_B_NOT_SUMMED,
    LINEAR_D_B_ONE_NUMBER,
    LINEAR_MEAN,
    LINEAR_LAST_ROW,
)

LINEAR_ARGUMENTS = ("d_output", "x", "w")
LINEAR_RETURNS = ("d_x", "d_w", "d_b")
# Mostly square matrices, so that a missing .T runs and gives wrong numbers
LINEAR_CASES = (
    Case(
        "two rows",
        (np.array([[1.0, -2.0], [3.0, 0.5]]), np.array([[2.0, 1.0], [-1.0, 4.0]]), np.array([[1.0, 3.0], [2.0, -1.0]])),
    ),
    Case(
        "three rows, two inputs, three outputs", (numbers(3, 3, seed=1), numbers(3, 2, seed=2), numbers(2, 3, seed=3))
    ),
    Case("two texts of three tokens", (numbers(2, 3, 3, seed=4), numbers(2, 3, 3, seed=5), numbers(3, 3, seed=6))),
    Case("four axes", (numbers(2, 3, 2, 4, seed=7), numbers(2, 3, 2, 4, seed=8), numbers(4, 4, seed=9))),
    Case("one row", (numbers(1, 2, seed=10), numbers(1, 3, seed=11), numbers(3, 2, seed=12))),
)

LINEAR_BACKWARD = ExercisePart(
    "linear_backward",
    LINEAR_ARGUMENTS,
    LINEAR_RETURNS,
    linear_backward,
    cases=LINEAR_CASES,
    mistakes=LINEAR_MISTAKES,
    properties=(
        predicts_the_loss(
            "linear_backward",
            linear_backward,
            LINEAR_CASES[0],
            LINEAR_ARGUMENTS,
            LINEAR_RETURNS,
            lambda values: weighted(values["x"] @ values["w"] + values["b"], values),
            lambda values: {"b": np.zeros(values["w"].shape[-1])},
        ),
        predicts_the_loss(
            "linear_backward, three axes",
            linear_backward,
            LINEAR_CASES[2],
            LINEAR_ARGUMENTS,
            LINEAR_RETURNS,
            lambda values: weighted(values["x"] @ values["w"] + values["b"], values),
            lambda values: {"b": np.zeros(values["w"].shape[-1])},
        ),
    ),
    hint="Write y[j] = Σ_i x[i] w[i, j] + b[j] for one row. What is the derivative of y[j] with respect to each of "
    "x[i], w[i, j] and b[j]?",
    strong_hint="Each result has the shape of its input, so the shapes almost decide which matrix is transposed. "
    "w and b are shared by all rows: sum over the rows.",
    thought="For one row, y[j] = Σ_i x[i] w[i, j] + b[j]. x[i] reaches every y[j] with the factor w[i, j], so d_x[i] "
    "sums d_output[j] w[i, j] over j. w[i, j] reaches only y[j], with the factor x[i]; b[j] reaches y[j] with the "
    "factor 1. All rows share w and b, so their derivatives are sums over all rows. As matrices: two products, in "
    "which the other factor is transposed, and a sum.",
)

# --- softmax -----------------------------------------------------------------------------------------------------

SOFTMAX_SUMS = {
    "softmax-no-sum",
    "softmax-like-sigmoid",
    "softmax-plain-sum",
    "softmax-mean",
    "softmax-sum-everything",
    "softmax-sum-axis",
    "softmax-sum-axis-0",
    "softmax-no-d-output",
    "softmax-forward",
    "softmax-forward-times-weights",
}


def softmax_backward(d_output: Array, weights: Array, wrong: Switches = NO_MISTAKES) -> Array:
    """weights = softmax(scores):  d_scores = weights · (d_output - Σ d_output · weights)"""
    only_one(wrong, SOFTMAX_SUMS)
    only_one(wrong, {"softmax-no-factor", "softmax-bracket"})
    if "softmax-of-weights" in wrong:
        weights = softmax(weights)
    if "softmax-no-d-output" in wrong:
        return weights * (1 - weights)
    if {"softmax-forward", "softmax-forward-times-weights"} & wrong:
        return softmax(d_output) * (1.0 if "softmax-forward" in wrong else d_output)
    if "softmax-no-sum" in wrong:
        return weights * d_output
    if "softmax-like-sigmoid" in wrong:
        return weights * (1 - weights) * d_output
    axis: int | None = -2 if "softmax-sum-axis" in wrong else 0 if "softmax-sum-axis-0" in wrong else -1
    if "softmax-sum-everything" in wrong:
        axis = None
    products = d_output if {"softmax-plain-sum", "softmax-mean"} & wrong else d_output * weights
    total = (np.mean if "softmax-mean" in wrong else np.sum)(products, axis=axis, keepdims=True)
    if "softmax-bracket" in wrong:
        return weights * d_output - total
    difference = d_output + total if "softmax-plus" in wrong else d_output - total
    if "softmax-minus" in wrong:
        difference = -difference
    return difference if "softmax-no-factor" in wrong else weights * difference


SOFTMAX_NO_SUM = Mistake(
    "softmax-no-sum",
    "the sum is missing in the derivative of the softmax: a score changes its own weight, and all other weights too",
    "If one score grows, what happens to the other weights of the row?",
    "From each d_output of a row, the weighted sum of the row's d_output is subtracted before you multiply.",
)
SOFTMAX_LIKE_SIGMOID = Mistake(
    "softmax-like-sigmoid",
    "w (1 - w) is only how a score changes its own weight; its effect on the other weights of the row is missing",
    "If one score grows, what happens to the other weights of the row?",
    "Weight i changes with score j by w[i] (1 - w[i]) if i = j, and by -w[i] w[j] if not. Add up all of them.",
)
SOFTMAX_PLAIN_SUM = Mistake(
    "softmax-plain-sum",
    "the sum over d_output, or its mean, is not weighted with the softmax weights",
    "Do your d_scores of a row sum to 0? They have to.",
    "It is the average of d_output in which each number counts as much as its weight.",
    ways=("softmax-plain-sum", "softmax-mean"),
)
SOFTMAX_SUM_AXIS = Mistake(
    "softmax-sum-axis",
    "in the derivative of the softmax, the sum runs over the wrong axis",
    "Which numbers share one softmax? The sum belongs to the same ones.",
    "Each row has its own sum, along the last axis, and keeps that axis so that it lines up with the row (keepdims).",
    ways=("softmax-sum-axis", "softmax-sum-axis-0", "softmax-sum-everything"),
)
SOFTMAX_BRACKET = Mistake(
    "softmax-bracket",
    "the weight multiplies only d_output; it has to multiply the difference of d_output and the sum",
    "Does your derivative become 0 where the weight is 0?",
    "A bracket is missing: first subtract the sum, then multiply by the weight.",
)
SOFTMAX_NO_FACTOR = Mistake(
    "softmax-no-factor",
    "the difference of d_output and the sum is not multiplied by the weight",
    "A score with weight 0 has no effect. Is your derivative 0 there?",
    "One factor of w[i] (δ[i, j] - w[j]) is used in the sum. Where is the other?",
)
SOFTMAX_SIGN = Mistake(
    "softmax-sign",
    "a sign is wrong in the derivative of the softmax",
    "If the largest d_output belongs to a score, should the loss grow or fall with that score?",
    "The weighted sum is subtracted from d_output, not added, and not the other way round.",
    ways=("softmax-plus", "softmax-minus"),
)
SOFTMAX_MISTAKES = (
    SOFTMAX_NO_SUM,
    SOFTMAX_LIKE_SIGMOID,
    SOFTMAX_PLAIN_SUM,
    SOFTMAX_SUM_AXIS,
    SOFTMAX_BRACKET,
    SOFTMAX_NO_FACTOR,
    SOFTMAX_SIGN,
    Mistake(
        "softmax-of-weights",
        "a softmax is applied to the weights; they have been through it already",
        "Does your code compute a softmax? The argument is named weights, not scores.",
        "Use the weights as they are given.",
    ),
    Mistake(
        "softmax-forward",
        "the softmax itself is applied to d_output; its derivative is asked for",
        "Is your result linear in d_output? Twice the d_output should give twice the d_scores.",
        "No power of e is needed here: the derivative is made of weights and d_output by products and a sum.",
        ways=("softmax-forward", "softmax-forward-times-weights"),
    ),
    Mistake(
        "softmax-no-d-output",
        "this is the slope w (1 - w) alone: d_output is not used",
        "What does your code do with d_output?",
        "The chain rule: each weight of the row passes on its own d_output, and they add up.",
    ),
)


def rows_of_scores_sum_to_zero(d_scores: Any) -> str | None:
    if found := sums_to_zero(d_scores, -1):
        return (
            "Adding the same number to all scores of a row changes no weight, so the d_scores of a row sum to 0. "
            f"Yours sum to {plain(found[1])}."
        )
    return None


def hidden_scores_get_zero(d_scores: Any) -> str | None:
    row = np.asarray(d_scores, np.float64)
    if abs(row[0, 1]) > 1e-6:
        return f"The score with weight 0 has no effect, so d_scores[0, 1] is 0. Yours is {plain(row[0, 1])}."
    return None


SOFTMAX_ARGUMENTS = ("d_output", "weights")
SOFTMAX_HIDDEN = Case(
    "two rows, one weight is 0",
    (np.array([[4.0, 3.0, -2.0], [1.0, 0.0, 3.0]]), np.array([[0.5, 0.0, 0.5], [0.125, 0.25, 0.625]])),
)
SOFTMAX_CASES = (
    Case("one row", (np.array([4.0, 0.0, 2.0]), np.array([0.5, 0.25, 0.25]))),
    SOFTMAX_HIDDEN,
    Case("as many rows as columns", (numbers(3, 3, seed=1), softmax(numbers(3, 3, seed=2)))),
    Case("two texts, two heads", (numbers(2, 2, 3, 4, seed=3), softmax(numbers(2, 2, 3, 4, seed=4)))),
    Case("one weight in each row", (np.array([[3.0], [-2.0]]), np.array([[1.0], [1.0]]))),
)

SOFTMAX_BACKWARD = ExercisePart(
    "softmax_backward",
    SOFTMAX_ARGUMENTS,
    ("d_scores",),
    softmax_backward,
    cases=SOFTMAX_CASES,
    mistakes=SOFTMAX_MISTAKES,
    properties=(
        Property("the d_scores of a row sum to 0", (SOFTMAX_CASES[0],), rows_of_scores_sum_to_zero),
        Property("a score with weight 0 has derivative 0", (SOFTMAX_HIDDEN,), hidden_scores_get_zero),
        predicts_the_loss(
            "softmax_backward",
            softmax_backward,
            SOFTMAX_CASES[0],
            SOFTMAX_ARGUMENTS,
            ("d_scores",),
            lambda values: weighted(softmax(values["scores"]), values),
            lambda values: {"scores": np.log(values["weights"])},
        ),
    ),
    hint="If score j grows, its own weight grows and all other weights of the row shrink. Which of these effects does "
    "your code contain?",
    strong_hint="The derivative of w[i] with respect to score j is w[i] (δ[i, j] - w[j]), where δ[i, j] is 1 if i = j, "
    "else 0. Multiply by d_output[i] and sum over i; the sum falls apart into two terms.",
    thought="w[i] = e^s[i] / Σ e^s. Its derivative with respect to s[j] is w[i] (1 - w[i]) if i = j and -w[i] w[j] if "
    "not; in one formula, w[i] (δ[i, j] - w[j]). The loss depends on s[j] through all weights of the row, so "
    "d_scores[j] = Σ_i d_output[i] w[i] (δ[i, j] - w[j]). The term with δ leaves d_output[j] w[j]; the other one is "
    "-w[j] times the weighted sum of d_output. Factor out w[j]. No matrix of derivatives is needed.",
)

# --- cross-entropy -----------------------------------------------------------------------------------------------

CE_NUMERATORS = {
    "ce-no-subtraction",
    "ce-sign",
    "ce-target-only",
    "ce-one-over-p",
    "ce-no-softmax",
    "ce-of-probability",
}
CE_DIVISORS = {
    "ce-not-divided",
    "ce-divided-by-all",
    "ce-divided-by-texts",
    "ce-divided-by-vocabulary",
    "ce-mean-of-means",
    "ce-padding-counted",
}


def cross_entropy_backward(logits: Array, target: Array, pad: int, wrong: Switches = NO_MISTAKES) -> Array:
    """d_logits = (softmax(logits) - 1 at the target) / n for the n tokens that are no padding, else 0"""
    only_one(wrong, CE_NUMERATORS)
    only_one(wrong, CE_DIVISORS)
    only_one(wrong, {"ce-padding-counted", "ce-padding-not-zeroed"})
    right = target[..., None] == np.arange(logits.shape[-1])
    if "ce-no-maximum" in wrong:
        p = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    else:
        p = softmax(logits)
    d_logits = p - right
    if "ce-no-subtraction" in wrong:
        d_logits = p
    if "ce-sign" in wrong:
        d_logits = right - p
    if "ce-target-only" in wrong:
        d_logits = right * (p - 1)
    if "ce-one-over-p" in wrong:
        d_logits = np.where(right, -1 / p, 0.0)
    if "ce-no-softmax" in wrong:
        d_logits = logits - right
    real = target != (0 if "ce-pad-fixed" in wrong else pad)
    count: Any = real.sum()
    if {"ce-divided-by-all", "ce-padding-counted"} & wrong:
        count = real.size
    if "ce-divided-by-texts" in wrong:
        count = len(target)
    if "ce-divided-by-vocabulary" in wrong:
        count = count * logits.shape[-1]
    if "ce-mean-of-means" in wrong:
        count = (real.sum(axis=1) * len(target))[:, None, None]
    if "ce-not-divided" in wrong:
        count = 1
    if not {"ce-padding-counted", "ce-padding-not-zeroed"} & wrong:
        d_logits = np.where(real[..., None], d_logits, 0.0)
    return d_logits / count


CROSS_ENTROPY_MISTAKES = (
    Mistake(
        "ce-no-subtraction",
        "these are the probabilities; 1 has to be subtracted at the right token",
        "If the logit of the right token grows, the loss falls. Is your derivative negative there?",
        "At the right token, the derivative is the probability minus 1.",
    ),
    Mistake(
        "ce-sign",
        "the sign is wrong: the derivative is positive at the right token and negative elsewhere",
        "If the logit of the right token grows, does the loss grow?",
        "Probability minus 1 at the right token, not 1 minus probability. (The optimizer turns the sign round later.)",
    ),
    Mistake(
        "ce-not-divided",
        "the derivative is not divided by the number of tokens; the loss is a mean",
        "The loss is the mean over the tokens. Where is that in your derivative?",
        "Divide by the number of tokens that are no padding.",
    ),
    Mistake(
        "ce-divided-by-all",
        "the derivative is divided by the number of all positions, padding included",
        "How many tokens is the mean of the loss taken over?",
        "Count only the positions whose target is not pad.",
    ),
    Mistake(
        "ce-divided-by-texts",
        "the derivative is divided by the number of texts; the loss is a mean over tokens",
        "What is the mean of the loss taken over?",
        "Count the tokens of all texts that are no padding, and divide by their number.",
    ),
    Mistake(
        "ce-divided-by-vocabulary",
        "the derivative is also divided by the size of the vocabulary",
        "What is the mean of the loss taken over? Are the logits of one token part of it?",
        "Each token has one loss, however many logits it has. Divide by the number of tokens only. (A mean over the "
        "whole array of logits takes in one axis too many.)",
    ),
    Mistake(
        "ce-mean-of-means",
        "each text is divided by its own number of tokens; the loss is one mean over the tokens of all texts",
        "Do tokens of a short text count more than those of a long one? They should not.",
        "Count the tokens of all texts together, and divide everything by this one number.",
    ),
    Mistake(
        "ce-padding-counted",
        "padding is treated like any other token",
        "What does your code do with the argument pad?",
        "Rows with the target pad get 0, and they are not counted in the number of tokens.",
    ),
    Mistake(
        "ce-padding-not-zeroed",
        "rows of padding have a derivative; it should be 0 there, because they are no part of the loss",
        "If a logit at a position with padding changes, does the loss change?",
        "Set all numbers of these rows to 0. (The number of tokens that you divide by is right.)",
    ),
    Mistake(
        "ce-pad-fixed",
        "padding is taken to have the id 0; the argument pad says which id it has",
        "What does your code do with the argument pad?",
        "Compare the target with pad.",
    ),
    Mistake(
        "ce-target-only",
        "only the right token has a derivative; all other logits of the row should have one, too",
        "If the logit of a wrong token grows, what happens to the probability of the right one?",
        "The logits of the wrong tokens are part of the sum in the softmax. Their derivative is their probability.",
    ),
    Mistake(
        "ce-one-over-p",
        "-1/p is the derivative with respect to the probability; expected is that with respect to the logits",
        "Which step lies between the logits and the probabilities?",
        "Apply the derivative of the softmax, too, and simplify on paper: almost everything cancels.",
    ),
    Mistake(
        "ce-no-softmax",
        "1 is subtracted from the logits; it has to be subtracted from the probabilities",
        "Which function turns logits into probabilities?",
        "The softmax of the logits comes first.",
    ),
    Mistake(
        "ce-no-maximum",
        "large logits overflow: e^1000 is infinite",
        "What is e^1000 for the computer? Exercise 1 solved this.",
        "Take the softmax that is imported at the top, or subtract the largest logit of each row first.",
        shows_as_nan=True,
    ),
)


def padding_rows_get_zero(d_logits: Any) -> str | None:
    row = np.asarray(d_logits, np.float64)[1, 2]
    if np.abs(row).max() > 1e-6:
        return (
            "target[1, 2] is padding and no part of the loss, so all of d_logits[1, 2] is 0. "
            f"Yours has the number {plain(float(row[np.argmax(np.abs(row))]))}."
        )
    return None


def rows_of_logits_sum_to_zero(d_logits: Any) -> str | None:
    if found := sums_to_zero(d_logits, -1):
        return (
            "Adding the same number to all logits of a position changes no probability, so d_logits sums to 0 there. "
            f"Yours sums to {plain(found[1])} at position {list(found[0])}."
        )
    return None


CE_ARGUMENTS = ("logits", "target", "pad")
CE_PADDED = Case(
    "two texts, one ends in padding",
    (numbers(2, 3, 4, seed=3), np.array([[1, 0, 2], [2, 1, 3]]), 3),
)
CE_CASES = (
    Case("two tokens, no padding", (np.array([[[1.0, 2.0, 0.0], [0.5, -1.0, 1.0]]]), np.array([[1, 0]]), 2)),
    CE_PADDED,
    Case(
        "three texts, padding in front and at the end",
        (numbers(3, 4, 5, seed=4), np.array([[2, 2, 0, 4], [1, 3, 2, 2], [4, 0, 1, 2]]), 2),
    ),
    Case(
        "large logits",
        (
            np.array(
                [
                    [[1000.0, 999.0, 998.0, 1000.5], [0.0, 1.0, 2.0, 0.5]],
                    [[4000.0, 3998.0, 3999.0, 3997.0], [7, 8, 9, 5]],
                ]
            ),
            np.array([[1, 3], [2, 0]]),
            3,
        ),
    ),
    Case("one token", (np.array([[[0.5, 1.5, -1.0]]]), np.array([[2]]), 0)),
)

CROSS_ENTROPY_BACKWARD = ExercisePart(
    "cross_entropy_backward",
    CE_ARGUMENTS,
    ("d_logits",),
    cross_entropy_backward,
    cases=CE_CASES,
    mistakes=CROSS_ENTROPY_MISTAKES,
    properties=(
        Property("rows of d_logits sum to 0", (CE_CASES[0],), rows_of_logits_sum_to_zero),
        Property("padding has derivative 0", (CE_PADDED,), padding_rows_get_zero),
        *(
            predicts_the_loss(
                f"cross_entropy_backward, {case.description}",
                cross_entropy_backward,
                case,
                CE_ARGUMENTS,
                ("d_logits",),
                lambda values: float(cross_entropy(values["logits"], values["target"], values["pad"])),
            )
            for case in CE_CASES[:2]
        ),
    ),
    hint="Take one token first: its loss is log(Σ e^logits) minus the logit of the right token. What is the derivative "
    "of each of the two terms?",
    strong_hint="The derivative of log(Σ e^logits) is the softmax. Then think of the mean over the tokens that are no "
    "padding: what is divided by what, and which rows are 0?",
    thought="-log p[target] is log(Σ e^z) - z[target]. The derivative of the first term with respect to z[j] is "
    "e^z[j] / Σ e^z, the probability of j. The second term subtracts 1 at the target. So each row is the "
    "probabilities with 1 subtracted at the right token; it sums to 0. The loss is the mean over n tokens that are "
    "no padding: divide by n, and set the rows of padding to 0.",
)

# --- LayerNorm ---------------------------------------------------------------------------------------------------

NORM_TERMS = {
    "norm-no-mean-term",
    "norm-no-variance-term",
    "norm-only-direct",
    "norm-sums",
    "norm-axis",
    "norm-axis-0",
    "norm-axis-everything",
    "norm-x-in-term",
    "norm-centred-in-term",
    "norm-plus-mean",
    "norm-plus-variance",
}
NORM_PARAMETERS = {
    "norm-parameters-as-they-are",
    "norm-parameters-first-axis",
    "norm-parameters-second-axis",
    "norm-parameters-mean",
    "norm-parameters-one-number",
}


def layer_norm_backward(
    d_output: Array, x: Array, gain: Array, eps: float, wrong: Switches = NO_MISTAKES
) -> tuple[Array, Array, Array]:
    """y = n · gain + bias,  n = (x - mean) / σ:

    d_x = (d_n - mean(d_n) - n · mean(d_n · n)) / σ,  d_n = d_output · gain
    d_gain = Σ_rows d_output · n,  d_bias = Σ_rows d_output
    """
    only_one(wrong, NORM_TERMS)
    only_one(wrong, NORM_PARAMETERS)
    only_one(wrong, {"norm-no-gain", "norm-gain-last"})
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = x.var(axis=-1, keepdims=True, ddof=1 if "norm-unbiased" in wrong else 0)
    sigma = np.sqrt(variance + (0.0 if "norm-no-eps" in wrong else eps))
    normed = centred / sigma
    d_normed = d_output if {"norm-no-gain", "norm-gain-last"} & wrong else d_output * gain
    d_x = norm_terms(d_normed, x, centred, normed, wrong)
    if "norm-not-divided" not in wrong:
        d_x = d_x / (sigma**2 if "norm-divided-by-variance" in wrong else sigma)
    if "norm-gain-last" in wrong:
        d_x = d_x * gain
    factor = x if "norm-d-gain-x" in wrong else centred if "norm-d-gain-centred" in wrong else normed
    through_gain = d_output * gain
    d_gain = (through_gain if {"norm-d-gain-times-gain", "norm-both-times-gain"} & wrong else d_output) * factor
    d_bias = through_gain if {"norm-d-bias-times-gain", "norm-both-times-gain"} & wrong else d_output
    return d_x, *(sum_of_rows(part, wrong) for part in (d_gain, d_bias))  # type: ignore[return-value]


def norm_terms(d_normed: Array, x: Array, centred: Array, normed: Array, wrong: Switches) -> Array:
    """d_n - mean(d_n) - n · mean(d_n · n)"""
    axis: int | None = -2 if "norm-axis" in wrong else 0 if "norm-axis-0" in wrong else -1
    if "norm-axis-everything" in wrong:
        axis = None
    average = np.sum if "norm-sums" in wrong else np.mean
    factor = x if "norm-x-in-term" in wrong else centred if "norm-centred-in-term" in wrong else normed
    mean_term = average(d_normed, axis=axis, keepdims=True)
    variance_term = factor * average(d_normed * factor, axis=axis, keepdims=True)
    if {"norm-no-mean-term", "norm-only-direct"} & wrong:
        mean_term = np.zeros_like(mean_term)
    if {"norm-no-variance-term", "norm-only-direct"} & wrong:
        variance_term = np.zeros_like(variance_term)
    if "norm-plus-mean" in wrong:
        mean_term = -mean_term
    if "norm-plus-variance" in wrong:
        variance_term = -variance_term
    return d_normed - mean_term - variance_term


def sum_of_rows(part: Array, wrong: Switches) -> Array:
    if "norm-parameters-as-they-are" in wrong:
        return part * 1.0
    if "norm-parameters-one-number" in wrong:
        return np.asarray(part.sum())
    if "norm-parameters-first-axis" in wrong:
        return part.sum(axis=0)
    if "norm-parameters-second-axis" in wrong:
        return part.sum(axis=1)
    rows = part.reshape(-1, part.shape[-1])
    return rows.mean(axis=0) if "norm-parameters-mean" in wrong else rows.sum(axis=0)


LAYER_NORM_MISTAKES = (
    Mistake(
        "norm-no-mean-term",
        "in d_x the term of the mean is missing: every number of a token changes the mean, and so all results",
        "Adding the same number to all of a token changes nothing. Does your d_x of a token sum to 0?",
        "Subtract from the derivatives of the normed numbers their mean over the token.",
    ),
    Mistake(
        "norm-no-variance-term",
        "in d_x the term of the variance is missing: every number of a token changes the variance, and so all results",
        "If you double all numbers of a token, the result stays (but for eps). What does your d_x say about that?",
        "x appears three times: in the numerator, in the mean and in the variance. The last one is missing.",
    ),
    Mistake(
        "norm-only-direct",
        "d_x treats mean and variance as constants; both depend on x",
        "How often does x appear in (x - mean) / sqrt(variance + eps), if you write out mean and variance?",
        "Each number of a token changes the mean and the variance too. Two more terms belong to d_x.",
    ),
    Mistake(
        "norm-not-divided",
        "d_x is not divided by sqrt(variance + eps)",
        "The forward divides by the standard deviation. What does that do to a derivative?",
        "All three terms of d_x are divided by sqrt(variance + eps).",
    ),
    Mistake(
        "norm-divided-by-variance",
        "d_x is divided by variance + eps, not by its square root",
        "What does the forward divide by?",
        "Divide by sqrt(variance + eps), once.",
    ),
    Mistake(
        "norm-no-gain",
        "the gain is missing in d_x",
        "Between the normed numbers and the output stands a factor. Where is it in your d_x?",
        "The derivative of the normed numbers is d_output times gain.",
    ),
    Mistake(
        "norm-gain-last",
        "the gain multiplies d_x at the end; it has to come first, before the means are taken",
        "Backwards, the last step of the forward comes first. Which one is that?",
        "The means are those of d_output times gain, since that is the derivative of the normed numbers.",
    ),
    Mistake(
        "norm-x-for-normed",
        "the term of the variance is made with x, or x - mean; it takes the normed numbers, (x - mean) / σ",
        "Which numbers does the output depend on: x, or the normed ones?",
        "In that term the normed numbers occur twice: inside the mean, and as the factor of it.",
        ways=("norm-x-in-term", "norm-centred-in-term"),
    ),
    Mistake(
        "norm-sums",
        "the two terms in d_x are made with sums over the token; they should be means",
        "The mean and the variance both divide by D. Where is that in your derivative?",
        "The derivative of the mean with respect to one number is 1/D.",
    ),
    Mistake(
        "norm-axis",
        "the means in d_x run over the wrong axis",
        "The forward takes mean and variance over the numbers of one token. What do your means run over?",
        "Both means run over the last axis and keep it (keepdims).",
        ways=("norm-axis", "norm-axis-0", "norm-axis-everything"),
    ),
    Mistake(
        "norm-term-sign",
        "one of the two terms in d_x is added; both should be subtracted",
        "Does your d_x of a token sum to 0?",
        "mean and σ both stand where they make the result smaller: a minus, and a denominator.",
        ways=("norm-plus-mean", "norm-plus-variance"),
    ),
    Mistake(
        "norm-d-gain-x",
        "d_gain is made with x or x - mean; the gain multiplies the normed numbers",
        "What does the gain multiply in the forward?",
        "d_gain sums d_output times (x - mean) / sqrt(variance + eps).",
        ways=("norm-d-gain-x", "norm-d-gain-centred"),
    ),
    Mistake(
        "norm-parameters-times-gain",
        "d_gain or d_bias is made with d_output times gain; it takes d_output alone",
        "If bias[0] grows by 0.1, by how much does the output grow? Does the gain matter?",
        "The gain is a factor on the way to x, not on the way to the gain itself or to the bias.",
        ways=("norm-d-gain-times-gain", "norm-d-bias-times-gain", "norm-both-times-gain"),
    ),
    Mistake(
        "norm-parameters-not-summed",
        "d_gain and d_bias are not summed over all tokens of all texts",
        "gain and bias are shared by all tokens. Which shape should their derivatives have?",
        "Add up over all axes except the last.",
        ways=("norm-parameters-as-they-are", "norm-parameters-first-axis", "norm-parameters-second-axis"),
    ),
    Mistake(
        "norm-parameters-one-number",
        "d_gain and d_bias are one number each, the sum of everything; each of the D places has its own gain and bias",
        "A derivative has the shape of what it belongs to. Which shape has gain?",
        "Add up over all axes except the last.",
    ),
    Mistake(
        "norm-parameters-mean",
        "d_gain and d_bias are means over the tokens; they should be sums",
        "If gain[0] changes, every token changes. Do these effects on the loss add up?",
        "Sum over the tokens. Only the loss takes a mean, and that is in d_output already.",
    ),
    Mistake(
        "norm-no-eps",
        "eps is missing under the square root",
        "Which of the arguments does your code never read?",
        "The forward divides by sqrt(variance + eps); recompute it in the same way.",
    ),
    Mistake(
        "norm-unbiased",
        "the variance is divided by D - 1; the forward divides by D",
        "There are two kinds of variance. Which does your function compute if you do not say anything else?",
        "torch's var and std divide by D - 1 without correction=0; NumPy's do so if ddof=1.",
    ),
)


def tokens_sum_to_zero(result: Any) -> str | None:
    if found := sums_to_zero(result[0], -1):
        return (
            "Adding the same number to all of a token changes nothing, so d_x of each token sums to 0. "
            f"Yours sums to {plain(found[1])} for token {list(found[0])}."
        )
    return None


def scale_does_not_matter(result: Any) -> str | None:
    d_x = np.asarray(result[0], np.float64)
    total = float((d_x * NORM_NO_EPS.arguments[1]).sum())
    if abs(total) > 1e-3 * max(1.0, float(np.abs(d_x).max())):
        return (
            "With so small an eps, multiplying all numbers of a token by 1.001 changes nothing, so the sum of d_x · x "
            f"over a token is 0. Yours is {plain(total)}."
        )
    return None


NORM_ARGUMENTS = ("d_output", "x", "gain", "eps")
NORM_RETURNS = ("d_x", "d_gain", "d_bias")
NORM_CASES = (
    # eps is large, so that it matters
    Case("two tokens of three numbers", (numbers(1, 2, 3, seed=1), numbers(1, 2, 3, seed=4), numbers(3, seed=2), 0.1)),
    Case("two texts of three tokens", (numbers(2, 3, 4, seed=5), numbers(2, 3, 4, seed=6), numbers(4, seed=7), 0.5)),
    Case("three texts of two tokens", (numbers(3, 2, 5, seed=8), numbers(3, 2, 5, seed=9), numbers(5, seed=10), 0.2)),
    Case("one token", (numbers(1, 1, 4, seed=11), numbers(1, 1, 4, seed=12), numbers(4, seed=13), 0.3)),
)
NORM_NO_EPS = Case(
    "one token, gain 1, a tiny eps",
    (np.array([[[1.0, -2.0, 0.5]]]), np.array([[[0.0, 1.0, 2.0]]]), np.ones(3), 1e-12),
)

LAYER_NORM_BACKWARD = ExercisePart(
    "layer_norm_backward",
    NORM_ARGUMENTS,
    NORM_RETURNS,
    layer_norm_backward,
    cases=NORM_CASES,
    mistakes=LAYER_NORM_MISTAKES,
    properties=(
        Property("d_x of a token sums to 0", (NORM_NO_EPS,), tokens_sum_to_zero),
        Property("d_x · x of a token sums to 0", (NORM_NO_EPS,), scale_does_not_matter),
        predicts_the_loss(
            "layer_norm_backward",
            layer_norm_backward,
            NORM_CASES[0],
            NORM_ARGUMENTS,
            NORM_RETURNS,
            lambda values: weighted(
                layer_norm(values["x"], values["gain"], values["bias"], values["eps"]),
                values,
            ),
            lambda values: {"bias": np.zeros_like(values["gain"])},
            names=("d_bias", "d_gain", "d_x"),
        ),
    ),
    hint="Recompute the normed numbers n = (x - mean) / σ with σ = sqrt(variance + eps). The output is n · gain + "
    "bias: begin with d_bias, d_gain and the derivative of n.",
    strong_hint="x reaches n in three ways: directly, through the mean and through σ. The derivative of the mean with "
    "respect to x[j] is 1/D, that of σ is n[j]/D. Sum the three for all n[i].",
    thought="Name the steps: n = (x - mean) / σ, output = n · gain + bias. Then d_bias sums d_output over all tokens, "
    "d_gain sums d_output · n, and d_n = d_output · gain. x[j] changes n[i] directly by 1/σ if i = j, through the mean "
    "by -1/(Dσ), and through σ by -n[i] n[j] / (Dσ). Sum d_n[i] times these over i: d_n[j], minus the mean of d_n, "
    "minus n[j] times the mean of d_n · n, all divided by σ. So d_x has no part along which x is only shifted or "
    "stretched.",
)

# --- feed-forward network ----------------------------------------------------------------------------------------


def feed_forward_backward(
    d_output: Array, x: Array, weights: Weights, wrong: Switches = NO_MISTAKES
) -> tuple[Array, Weights]:
    """y = max(0, x W1 + b1) W2 + b2"""
    before = x @ weights["w1"]
    if "ffn-no-b1" not in wrong:
        before = before + weights["b1"]
    hidden = np.maximum(before, 0)
    d_hidden, d_w2, d_b2 = linear_backward(
        d_output, before if "ffn-before-relu" in wrong else hidden, weights["w2"], wrong
    )
    if "ffn-w2-not-transposed" in wrong:
        d_hidden = d_output @ weights["w2"]
    d_before = relu_backward(d_hidden, before, wrong)
    d_x, d_w1, d_b1 = linear_backward(d_before, x, weights["w1"], wrong)
    if "ffn-w1-not-transposed" in wrong:
        d_x = d_before @ weights["w1"]
    if {"ffn-relu-only-for-x", "ffn-b1-before-relu"} & wrong:
        _, without_relu, d_b1 = linear_backward(d_hidden, x, weights["w1"], wrong)
        d_w1 = without_relu if "ffn-relu-only-for-x" in wrong else d_w1
    if "ffn-residual" in wrong:
        d_x = d_x + d_output
    if "ffn-d-w1-transposed" in wrong:
        d_w1 = d_w1.T
    if "ffn-d-w2-transposed" in wrong:
        d_w2 = d_w2.T
    return d_x, {"w1": d_w1, "b1": d_b1, "w2": d_w2, "b2": d_b2}


FEED_FORWARD_MISTAKES = (
    replace(
        RELU_UNCHANGED,
        message="the derivative of max(0, ·) is skipped: hidden numbers that were negative pass a derivative on",
        strong_hint="Between the two matrices, the derivative becomes 0 where x W1 + b1 is negative.",
    ),
    replace(
        RELU_WHERE_D_OUTPUT,
        message="at max(0, ·), it asks where the derivative is positive; what counts is where x W1 + b1 is positive",
    ),
    replace(
        RELU_TIMES_OUTPUT,
        message="at max(0, ·), the derivative is multiplied by the hidden numbers; it is multiplied by 1 or by 0",
    ),
    Mistake(
        "ffn-no-b1",
        "b1 is missing when the hidden numbers are recomputed",
        "Four arrays are in the weights. Which of them does your code never read?",
        "b1 helps to decide which hidden numbers are negative, so the derivative needs it.",
    ),
    Mistake(
        "ffn-before-relu",
        "d_w2 is made with the hidden numbers before max(0, ·); W2 is applied to those after it",
        "What does W2 multiply in the forward?",
        "For d_w2, the input of the second linear map is max(0, x W1 + b1).",
    ),
    Mistake(
        "ffn-relu-only-for-x",
        "d_w1 or d_b1 is made with the derivative after max(0, ·); it takes the one before it, as d_x does",
        "Backwards, what lies between W2 and W1? Does that hold for d_w1 and d_b1, too?",
        "Go back through W2, then through max(0, ·), and only then compute d_x, d_w1 and d_b1, all from the same "
        "array.",
        ways=("ffn-relu-only-for-x", "ffn-b1-before-relu"),
    ),
    Mistake(
        "ffn-residual",
        "d_output is added to d_x; the residual connection belongs to the block, not to this function",
        "Is there a plus x in the feed-forward network's equation?",
        "Leave it out here: encoder_block_backward adds it.",
    ),
    replace(
        LINEAR_W_NOT_TRANSPOSED,
        message="a matrix is not transposed on the way back",
        ways=("linear-w-not-transposed", "ffn-w1-not-transposed", "ffn-w2-not-transposed"),
    ),
    replace(LINEAR_D_W_TRANSPOSED, ways=("linear-d-w-transposed", "ffn-d-w1-transposed", "ffn-d-w2-transposed")),
    LINEAR_D_W_PER_TEXT,
    LINEAR_D_B_NOT_SUMMED,
    LINEAR_MEAN,
)

FFN_ARGUMENTS = ("d_output", "x", "weights")
FFN_RETURNS = ("d_x", "d_weights")
# F = D in two of three cases, so that a missing .T runs and gives wrong numbers
FFN_CASES = (
    Case("two tokens", (numbers(1, 2, 2, seed=1), numbers(1, 2, 2, seed=2), feed_forward_weights(2, 2, seed=3))),
    Case(
        "two texts of three tokens", (numbers(2, 3, 3, seed=4), numbers(2, 3, 3, seed=5), feed_forward_weights(3, 3, 6))
    ),
    Case("five hidden numbers", (numbers(2, 2, 4, seed=7), numbers(2, 2, 4, seed=8), feed_forward_weights(4, 5, 9))),
)

FEED_FORWARD_BACKWARD = ExercisePart(
    "feed_forward_backward",
    FFN_ARGUMENTS,
    FFN_RETURNS,
    feed_forward_backward,
    cases=FFN_CASES,
    mistakes=FEED_FORWARD_MISTAKES,
    properties=(
        predicts_the_loss(
            "feed_forward_backward",
            in_order(("b2", "w2", "b1", "w1"), feed_forward_backward),
            FFN_CASES[0],
            FFN_ARGUMENTS,
            FFN_RETURNS,
            lambda values: weighted(feed_forward(values["x"], values["weights"]), values),
            names=("d_weights", "d_x"),
        ),
    ),
    hint="Recompute the hidden numbers, then go backwards: W2 and b2, max(0, ·), W1 and b1. " + LOSS_HINT,
    strong_hint="linear_backward twice, with relu_backward between them. The first one gets the hidden numbers after "
    "max(0, ·), relu_backward those before it, and the last one x.",
    thought="The forward has three steps: before = x W1 + b1, hidden = max(0, before), output = hidden W2 + b2. "
    "Backwards they come in the opposite order. Each step needs what went into it in the forward, so recompute before "
    "and hidden. The linear step gives d_hidden, d_w2 and d_b2; relu_backward makes d_before of d_hidden; the first "
    "linear step gives d_x, d_w1 and d_b1.",
)

# --- attention ---------------------------------------------------------------------------------------------------


def attention_backward(
    d_output: Array, q: Array, k: Array, v: Array, mask: Array | None = None, wrong: Switches = NO_MISTAKES
) -> tuple[Array, Array, Array]:
    """y = w v,  w = softmax(s),  s = q kᵀ / sqrt(d_k):

    d_v = wᵀ d_output,  d_w = d_output vᵀ,  d_q = d_s k / sqrt(d_k),  d_k = d_sᵀ q / sqrt(d_k)
    """
    only_one(wrong, ATTENTION_SCALES)
    only_one(wrong, {"attention-mask-ignored", "attention-mask-late", "attention-mask-inverted"})
    d_width = q.shape[-1]
    if mask is not None and "attention-mask-inverted" in wrong:
        mask = ~mask
    forward_scale = math.sqrt(d_width) if {"attention-no-scale-forward", "attention-no-scale-both"} & wrong else 1.0
    if "attention-scale-length-both" in wrong:
        forward_scale = math.sqrt(d_width / k.shape[-2])
    if "attention-scale-value-width-both" in wrong:
        forward_scale = math.sqrt(d_width / v.shape[-1])
    hidden = None if {"attention-mask-ignored", "attention-mask-late"} & wrong else mask
    weights = attention(q * forward_scale, k, v, hidden)[1]
    d_v = (weights if "attention-d-v-not-transposed" in wrong else np.swapaxes(weights, -1, -2)) @ d_output
    d_weights = d_output @ np.swapaxes(k if "attention-keys-for-values" in wrong else v, -1, -2)
    d_scores = d_weights if "attention-no-softmax" in wrong else softmax_backward(d_weights, weights, wrong)
    if mask is not None and "attention-mask-late" in wrong:
        d_scores = np.where(mask, d_scores, 0.0)
    for_q, for_k = (q, k) if "attention-q-for-k" in wrong else (k, q)
    turned = d_scores if "attention-d-k-not-transposed" in wrong else np.swapaxes(d_scores, -1, -2)
    if {"attention-scale-length", "attention-scale-length-both"} & wrong:
        d_width = k.shape[-2]
    if {"attention-scale-value-width", "attention-scale-value-width-both"} & wrong:
        d_width = v.shape[-1]
    scale_q, scale_k, scale_v = scales_of(d_width, wrong)
    d_q, d_k, d_v = d_scores @ for_q * scale_q, turned @ for_k * scale_k, d_v * scale_v
    return (d_k, d_q, d_v) if "attention-exchanged" in wrong else (d_q, d_k, d_v)


ATTENTION_SCALES = {
    "attention-no-scale",
    "attention-no-scale-forward",
    "attention-no-scale-both",
    "attention-scale-times",
    "attention-scale-d",
    "attention-scale-q-only",
    "attention-scale-k-only",
    "attention-scale-values",
    "attention-scale-length",
    "attention-scale-length-both",
    "attention-scale-value-width",
    "attention-scale-value-width-both",
    "heads-scale-model-width",
}


def scales_of(d_width: int, wrong: Switches) -> tuple[float, float, float]:
    """Return the factors of d_q, d_k and d_v."""
    root = math.sqrt(d_width)
    if {"attention-no-scale", "attention-no-scale-both"} & wrong:
        return 1.0, 1.0, 1.0
    if "attention-scale-times" in wrong:
        return root, root, 1.0
    if "attention-scale-d" in wrong:
        return 1 / d_width, 1 / d_width, 1.0
    for_q = 1.0 if "attention-scale-k-only" in wrong else 1 / root
    for_k = 1.0 if "attention-scale-q-only" in wrong else 1 / root
    return for_q, for_k, 1 / root if "attention-scale-values" in wrong else 1.0


ATTENTION_MASK_IGNORED = Mistake(
    "attention-mask-ignored",
    "the mask is not used when the weights are recomputed: hidden keys get a weight and a derivative",
    "What does your code do with the argument mask?",
    "Recompute the weights with the mask, as in the forward. The weight of a hidden key is 0, so its derivative is 0.",
)
ATTENTION_EXCHANGED = Mistake(
    "attention-exchanged",
    "d_q and d_k have changed places",
    "In which order does the function return its results?",
    "First d_q, then d_k, then d_v. Each has the shape of its argument.",
)
ATTENTION_MISTAKES = (
    Mistake(
        "attention-no-scale",
        "1/sqrt(d_k) is missing",
        "Compare with the equation: the scores are q kᵀ / sqrt(d_k). What does that factor do to d_q and d_k?",
        "The factor is needed when the weights are recomputed, and again in both d_q and d_k.",
        ways=("attention-no-scale", "attention-no-scale-forward", "attention-no-scale-both"),
    ),
    Mistake(
        "attention-scale-times",
        "d_q and d_k are multiplied by sqrt(d_k); they should be divided by it, as the scores are",
        "If the scores are divided by 2, what happens to their derivatives with respect to q?",
        "A constant factor of the forward is the same factor in the backward.",
    ),
    Mistake(
        "attention-scale-d",
        "d_q and d_k are divided by d_k; they should be divided by its square root, once",
        "How often is sqrt(d_k) in the equation?",
        "Divide the derivative of the scores once by sqrt(d_k), before or after the products, but not both.",
    ),
    Mistake(
        "attention-scale-axis",
        "it divides by the square root of the number of keys, or of the width of a value; d_k is the width of a key",
        "Which axis of q or k is d_k?",
        "d_k is the last axis of q and of k.",
        ways=(
            "attention-scale-length",
            "attention-scale-length-both",
            "attention-scale-value-width",
            "attention-scale-value-width-both",
        ),
    ),
    Mistake(
        "attention-scale-one-side",
        "only one of d_q and d_k is divided by sqrt(d_k); both should be",
        "The scores are q kᵀ / sqrt(d_k). For which of the two is the factor there?",
        "Divide the derivative of the scores, before you compute d_q and d_k from it.",
        ways=("attention-scale-q-only", "attention-scale-k-only"),
    ),
    Mistake(
        "attention-scale-values",
        "d_v is divided by sqrt(d_k); only the scores are",
        "Does 1/sqrt(d_k) stand between the values and the output?",
        "The output is weights times v, without a factor.",
    ),
    Mistake(
        "attention-no-softmax",
        "the softmax is skipped: the derivative of the weights is used as that of the scores",
        "Which step lies between the scores and the weights?",
        "softmax_backward makes the derivative of the scores from that of the weights.",
    ),
    Mistake(
        "attention-q-for-k",
        "d_q is made with q and d_k with k; each takes the other one",
        "The derivative of a product a·b with respect to a is b. What is the product here?",
        "A score is a query times a key: d_q needs the keys, d_k the queries.",
    ),
    Mistake(
        "attention-d-k-not-transposed",
        "for d_k, the derivative of the scores is not transposed: its rows are queries, but a row is needed for each "
        "key",
        "d_k has a row for each key. Which axis of the scores belongs to the keys?",
        "Key j is reached through column j of the scores. Try as many queries as keys, and then one more.",
    ),
    Mistake(
        "attention-d-v-not-transposed",
        "for d_v, the weights are not transposed: their rows are queries, but a row is needed for each value",
        "d_v has a row for each key. Which axis of the weights belongs to the keys?",
        "Value j reaches output i with the factor weights[i, j]: sum over i.",
    ),
    Mistake(
        "attention-keys-for-values",
        "the derivative of the weights is made with the keys; it takes the values",
        "What do the weights multiply in the forward?",
        "The output is weights times v, so the derivative of the weights is made of d_output and v.",
    ),
    ATTENTION_EXCHANGED,
    ATTENTION_MASK_IGNORED,
    Mistake(
        "attention-mask-late",
        "the weights are recomputed without the mask; setting the derivative of hidden scores to 0 is too late",
        "Do the recomputed weights of the visible keys sum to 1?",
        "Recompute the weights with the mask. Then the derivative of a hidden score is 0 all by itself.",
    ),
    Mistake(
        "attention-mask-inverted",
        "the mask is used the wrong way round: what may be seen is hidden, and the reverse",
        "True means: may attend. Which keys have a derivative in your result?",
        "Recompute the weights with the mask just as it is.",
    ),
    SOFTMAX_NO_SUM,
    SOFTMAX_LIKE_SIGMOID,
    SOFTMAX_PLAIN_SUM,
    SOFTMAX_SUM_AXIS,
    SOFTMAX_BRACKET,
    SOFTMAX_NO_FACTOR,
    SOFTMAX_SIGN,
)


def hidden_keys_get_zero(result: Any) -> str | None:
    for name, array in zip(("d_q", "d_k", "d_v"), result, strict=True):
        if name != "d_q" and np.abs(array[HIDDEN_KEY]).max() > 1e-6:
            row = np.asarray(array[HIDDEN_KEY], np.float64)
            return (
                f"No query may attend to key {HIDDEN_KEY}, so {name}[{HIDDEN_KEY}] is 0. "
                f"Yours is {plain(row[np.argmax(np.abs(row))])}."
            )
    return None


def keys_sum_to_zero(result: Any) -> str | None:
    if found := sums_to_zero(result[1], -2):
        return (
            "Adding the same vector to all keys adds the same number to all scores of a query, which changes no "
            "weight. "
            f"So d_k sums to 0 over the keys. Your column {found[0][-1]} sums to {plain(found[1])}."
        )
    return None


def values_sum_to_d_output(result: Any) -> str | None:
    given = np.asarray(result[2], np.float64).sum(axis=0)
    right = ATTENTION_CASES[0].arguments[0].sum(axis=0)
    if is_same(given, right):
        return None
    return (
        "The weights of a query sum to 1, so the rows of d_v sum to the same as those of d_output: "
        f"{[round(float(n), 3) for n in right]}. Yours sum to {[round(float(n), 3) for n in given]}."
    )


ATTENTION_ARGUMENTS = ("d_output", "q", "k", "v", "mask")
ATTENTION_RETURNS = ("d_q", "d_k", "d_v")
HIDDEN_KEY = 2
# No row is all True or all False, and no query sees key 2.
SQUARE_MASK = np.array(
    [[True, True, False, False], [True, False, False, True], [False, True, False, True], [True, True, False, True]]
)
KEY_PADDING = np.array([[True, False, True], [True, True, False]])[:, None, None, :]
# Mostly as many queries as keys, so that exchanged arrays run and give wrong numbers
ATTENTION_CASES = (
    Case(
        "two queries, two keys",
        (
            np.array([[1.0, -1.0], [2.0, 0.5]]),
            np.array([[1.0, 0.0], [0.5, 2.0]]),
            np.array([[0.0, 1.0], [1.0, -1.0]]),
            np.array([[2.0, 1.0], [0.0, 3.0]]),
            None,
        ),
    ),
    Case(
        "three queries, three keys, wider values",
        (numbers(3, 5, seed=1), numbers(3, 4, seed=2), numbers(3, 4, seed=3, size=1.0), numbers(3, 5, seed=4), None),
    ),
    Case(
        "with a mask",
        (
            numbers(4, 3, seed=5),
            numbers(4, 3, seed=6),
            numbers(4, 3, seed=7, size=1.0),
            numbers(4, 3, seed=8),
            SQUARE_MASK,
        ),
    ),
    Case(
        "two texts, two heads, with padding",
        (
            numbers(2, 2, 2, 4, seed=1),
            numbers(2, 2, 2, 4, seed=2, size=1.0),
            numbers(2, 2, 3, 4, seed=3, size=1.0),
            numbers(2, 2, 3, 4, seed=4),
            KEY_PADDING,
        ),
    ),
    Case(
        "one query, one key",
        (np.array([[2.0, -1.0]]), np.array([[1.0, 3.0]]), np.array([[0.5, 1.0]]), np.array([[1.0, 4.0]]), None),
    ),
)


def attention_loss(values: Values) -> float:
    return weighted(attention(values["q"], values["k"], values["v"], values["mask"])[0], values)


ATTENTION_BACKWARD = ExercisePart(
    "attention_backward",
    ATTENTION_ARGUMENTS,
    ATTENTION_RETURNS,
    attention_backward,
    cases=ATTENTION_CASES,
    mistakes=ATTENTION_MISTAKES,
    properties=(
        Property("d_v sums to d_output", (ATTENTION_CASES[0],), values_sum_to_d_output),
        Property("d_k sums to 0 over the keys", (ATTENTION_CASES[0],), keys_sum_to_zero),
        Property("hidden keys have derivative 0", (ATTENTION_CASES[2],), hidden_keys_get_zero),
        *(
            predicts_the_loss(
                f"attention_backward, {case.description}",
                attention_backward,
                case,
                ATTENTION_ARGUMENTS,
                ATTENTION_RETURNS,
                attention_loss,
                names=("d_v", "d_q", "d_k"),
            )
            for case in (ATTENTION_CASES[0], ATTENTION_CASES[2])
        ),
    ),
    hint="Write the forward in three steps: scores, weights, output. Then go backwards, one step at a time. "
    + LOSS_HINT,
    strong_hint="output = weights v gives the derivatives of v and of the weights; softmax_backward that of the "
    "scores; scores = q kᵀ / sqrt(d_k) those of q and k. attention returns the weights, too.",
    thought="The forward is scores = q kᵀ / sqrt(d_k), weights = softmax(scores), output = weights v. The last step "
    "is a product of two matrices: the derivative of each factor is made of d_output and the other factor, transposed "
    "so that the shapes fit. Then softmax_backward. The scores are again a product, now with the factor 1/sqrt(d_k). "
    "The mask needs no step of its own: a hidden key has the weight 0, and softmax_backward multiplies by the weight.",
)

# --- multi-head attention ----------------------------------------------------------------------------------------

HEADS_MEMORY = {"heads-keys-only", "heads-values-only", "heads-memory-into-x", "heads-memory-moved"}


def multi_head_attention_backward(
    d_output: Array,
    x: Array,
    memory: Array,
    weights: Weights,
    n_heads: int,
    mask: Array | None = None,
    wrong: Switches = NO_MISTAKES,
) -> tuple[Array, Array, Weights]:
    """Through W_O, the heads, and W_Q, W_K, W_V. The memory is reached through keys and values: two terms."""
    only_one(wrong, HEADS_MEMORY)
    heads = 1 if "heads-one" in wrong else n_heads
    narrow = math.sqrt(heads) if "heads-scale-model-width" in wrong else 1.0
    sources = {"query": x, "key": memory, "value": memory}
    q, k, v = (split_heads(sources[name] @ weights[name], heads) for name in sources)
    forward_q, q = q / (math.sqrt(heads) if "heads-scale-forward" in wrong else narrow), q / narrow
    forward_mask = None if {"heads-mask-forward", "heads-mask-ignored"} & wrong else mask
    merged = merge_heads(attention(forward_q, k, v, forward_mask)[0])
    for_output = merged @ weights["output"] if "heads-output-for-merged" in wrong else merged
    d_merged, d_w_output, _ = linear_backward(d_output, for_output, weights["output"], wrong)
    if "heads-output-skipped" in wrong:
        d_merged = d_output
    if "heads-output-not-transposed" in wrong:
        d_merged = d_output @ weights["output"]
    if "heads-by-view" in wrong:
        d_heads = d_merged.reshape(q.shape)
    else:
        d_heads = split_heads(d_merged, heads)
    backward_mask = None if "heads-mask-ignored" in wrong else mask
    d_parts = [merge_heads(part) for part in attention_backward(d_heads, q, k, v, backward_mask, wrong)]
    d_parts[0] = d_parts[0] / narrow
    if "heads-k-v-exchanged" in wrong:
        d_parts[1:] = d_parts[:0:-1]
    d_inputs, d_weights = backward_of_projections(d_parts, x, memory, weights, wrong)
    d_memory = d_inputs["key"] + d_inputs["value"]
    if "heads-keys-only" in wrong:
        d_memory = d_inputs["key"]
    if "heads-values-only" in wrong:
        d_memory = d_inputs["value"]
    d_x = d_inputs["query"]
    if {"heads-memory-into-x", "heads-memory-moved"} & wrong:
        d_x = d_x + d_memory
        d_memory = np.zeros_like(memory) if "heads-memory-moved" in wrong else d_memory
    return d_x, d_memory, {**d_weights, "output": d_w_output}


def backward_of_projections(
    d_parts: list[Array], x: Array, memory: Array, weights: Weights, wrong: Switches
) -> tuple[dict[str, Array], Weights]:
    """Return the derivatives of the inputs and of the matrices of queries, keys and values."""
    asks = memory if {"heads-query-from-memory", "heads-sources-exchanged"} & wrong else x
    looked_at = x if {"heads-keys-values-from-x", "heads-sources-exchanged"} & wrong else memory
    d_inputs, d_weights = {}, {}
    for name, source, part in zip(("query", "key", "value"), (asks, looked_at, looked_at), d_parts, strict=True):
        if source.shape[:-1] != part.shape[:-1]:
            raise ValueError("the rows do not fit")
        d_inputs[name], d_weights[name], _ = linear_backward(part, source, weights[name], wrong)
        if "heads-inputs-skipped" in wrong:
            d_inputs[name] = part
        if "heads-inputs-not-transposed" in wrong:
            d_inputs[name] = part @ weights[name]
    return d_inputs, d_weights


MULTI_HEAD_MISTAKES = (
    Mistake(
        "heads-memory-one-way",
        "d_memory has only one of two terms: the memory is reached through the keys and through the values",
        "Which two arrays of the forward are made from the memory?",
        "Add up what comes back through the keys' matrix and what comes back through the values' matrix.",
        ways=("heads-keys-only", "heads-values-only"),
    ),
    Mistake(
        "heads-memory-into-x",
        "the derivative of the memory is added to d_x; the caller does that in self-attention, not this function",
        "In cross-attention, x and the memory are different arrays. What is d_x then?",
        "d_x comes from the queries alone, d_memory from keys and values. Return them separately.",
        ways=("heads-memory-into-x", "heads-memory-moved"),
    ),
    Mistake(
        "heads-output-skipped",
        "the matrix W_O is skipped: d_output is given to the heads as it is",
        "Backwards, which step comes first?",
        "The derivative of the merged heads is that of a linear map with the matrix W_O.",
    ),
    Mistake(
        "heads-inputs-skipped",
        "the matrices W_Q, W_K and W_V are skipped on the way to d_x and d_memory",
        "q is made from x by a matrix. Which step leads from the derivative of q to that of x?",
        "Three more linear maps, backwards: one each for queries, keys and values.",
    ),
    replace(
        LINEAR_W_NOT_TRANSPOSED,
        message="a matrix is not transposed on the way back",
        hint="Which matrix leads from [B, T, D] back to [B, T, D], if the forward is x @ W? All are square here, so "
        "the shapes do not tell.",
        strong_hint="Every d_... of an input takes the transposed matrix: that of W_O, and those of W_Q, W_K and W_V.",
        ways=("linear-w-not-transposed", "heads-output-not-transposed", "heads-inputs-not-transposed"),
    ),
    Mistake(
        "heads-output-for-merged",
        'd_weights["output"] is made with the output; it takes the input of W_O, the merged heads',
        "The derivative of a matrix is made with what the matrix multiplies. What does W_O multiply?",
        "Recompute the merged heads, and use them before they go through W_O.",
    ),
    Mistake(
        "heads-one",
        "the heads are not separated: attention runs once over the whole width",
        "What does your code do with n_heads?",
        "Split q, k, v and the derivative of the merged heads into heads, as the forward does.",
    ),
    Mistake(
        "heads-by-view",
        "the derivative is cut into heads by a reshape alone, which mixes up the tokens",
        "Follow the derivative of one token. Are its numbers still together afterwards?",
        "Cut D into (H, E) at the end, and then move the axis of the heads: split_heads does it.",
    ),
    Mistake(
        "heads-sources-mixed-up",
        "the derivatives of W_Q, W_K and W_V take x and the memory the wrong way",
        "Which array does W_Q multiply in the forward, and which do W_K and W_V?",
        "d_weights['query'] is made with x, d_weights['key'] and d_weights['value'] with the memory.",
        ways=("heads-keys-values-from-x", "heads-query-from-memory", "heads-sources-exchanged"),
    ),
    Mistake(
        "heads-k-v-exchanged",
        "the derivatives of keys and values have changed places",
        "In which order does attention_backward return its results?",
        "First queries, then keys, then values. Each goes through its own matrix.",
    ),
    replace(
        ATTENTION_EXCHANGED,
        message="the derivatives of queries and keys have changed places",
        strong_hint="attention_backward returns d_q, d_k, d_v in this order.",
    ),
    Mistake(
        "heads-scale-model-width",
        "the scores are divided by sqrt(D); each head divides by the square root of its own width",
        "How wide is the query of one head?",
        "d_k is E = D/H here, the last axis after splitting.",
        ways=("heads-scale-model-width", "heads-scale-forward"),
    ),
    replace(
        ATTENTION_MASK_IGNORED,
        message="the mask is not handed on to attention, or to its derivative",
        strong_hint="Both need the mask: attention when you recompute the heads, and attention_backward.",
        ways=("attention-mask-ignored", "heads-mask-forward", "heads-mask-ignored"),
    ),
    LINEAR_D_W_TRANSPOSED,
    LINEAR_D_W_PER_TEXT,
    replace(
        LINEAR_MEAN,
        message="the derivatives of the matrices are means over the rows; they should be sums",
        ways=("linear-mean",),
    ),
)

HEADS_ARGUMENTS = ("d_output", "x", "memory", "weights", "n_heads", "mask")
HEADS_RETURNS = ("d_x", "d_memory", "d_weights")
HEADS_CASES = (
    Case(
        "two tokens, one head",
        (
            np.array([[[1.0, -2.0], [0.5, 1.0]]]),
            np.array([[[1.0, 0.5], [-1.0, 2.0]]]),
            np.array([[[0.5, -1.0], [2.0, 1.0]]]),
            attention_weights(2, seed=1),
            1,
            None,
        ),
    ),
    Case(
        "two texts, two heads, with a mask",
        (
            numbers(2, 3, 4, seed=1),
            numbers(2, 3, 4, seed=2),
            numbers(2, 3, 4, seed=3),
            attention_weights(4, seed=4),
            2,
            CAUSAL,
        ),
    ),
    Case(
        "two texts, three heads, no mask",
        (
            numbers(2, 2, 6, seed=4),
            numbers(2, 2, 6, seed=5),
            numbers(2, 2, 6, seed=6),
            attention_weights(6, seed=5),
            3,
            None,
        ),
    ),
    Case(
        "two queries, three keys, with padding",
        (
            numbers(2, 2, 4, seed=7),
            numbers(2, 2, 4, seed=8),
            numbers(2, 3, 4, seed=9),
            attention_weights(4, seed=6),
            2,
            PADDING_3,
        ),
    ),
)


def heads_loss(values: Values) -> float:
    return weighted(multi_head_attention(*(values[name] for name in HEADS_ARGUMENTS[1:])), values)


MULTI_HEAD_ATTENTION_BACKWARD = ExercisePart(
    "multi_head_attention_backward",
    HEADS_ARGUMENTS,
    HEADS_RETURNS,
    multi_head_attention_backward,
    cases=HEADS_CASES,
    mistakes=MULTI_HEAD_MISTAKES,
    properties=tuple(
        predicts_the_loss(
            f"multi_head_attention_backward, {case.description}",
            in_order(("output", "value", "query", "key"), multi_head_attention_backward),
            case,
            HEADS_ARGUMENTS,
            HEADS_RETURNS,
            heads_loss,
            names=("d_weights", "d_x", "d_memory"),
        )
        for case in HEADS_CASES[:2]
    ),
    hint="Recompute q, k, v and the merged heads. Then go backwards: W_O, the heads, attention, and the three "
    "matrices. " + LOSS_HINT,
    strong_hint="Merging heads and splitting them are inverses: the derivative of merge_heads is split_heads, and the "
    "reverse. The four matrices are linear maps without a bias. The memory gets two terms.",
    thought="The forward: q, k, v are products with W_Q, W_K, W_V; split_heads; attention; merge_heads; W_O. Recompute "
    "q, k, v of the heads and the merged heads, because the derivatives need them. Backwards: linear_backward with "
    "W_O, split_heads (merging only moves numbers, so backwards they are moved back), attention_backward, "
    "merge_heads, and linear_backward with each of W_Q, W_K, W_V. x is reached through the queries only; the memory "
    "through keys and values, and these two add up.",
)

# --- blocks ------------------------------------------------------------------------------------------------------

Backward = Callable[[Array, Array], Array]  # d_output, the sub-layer's input -> the derivative of that input


def is_on(wrong: Switches, name: str, place: int) -> bool:
    """Check for a mistake that is made everywhere, or at one of the sub-layers (1, 2, 3) only."""
    return name in wrong or f"{name}-{place}" in wrong


def sub_layers_backward(
    d_output: Array,
    x: Array,
    sub_layers: Sequence[Callable[[Array], Array]],
    backwards: Sequence[Backward],
    norms: Sequence[Weights],
    wrong: Switches,
) -> tuple[Array, Weights]:
    """Go back through x = LayerNorm(x + Sublayer(x)) for each sub-layer; also return the derivatives of the norms."""
    for names in BLOCK_ALTERNATIVES:
        only_one(wrong, {switch for switch in wrong if switch.rstrip("-123") in names})
    inputs, sums, count = [x], [], len(norms)
    forward_norms = (
        norms[::-1] if {"block-norms-exchanged-forward", "block-norms-exchanged-everywhere"} & wrong else norms
    )
    for sub_layer, norm in zip(sub_layers, forward_norms, strict=True):
        sums.append(inputs[-1] + sub_layer(inputs[-1]))
        inputs.append(layer_norm(sums[-1], norm["gain"], norm["bias"], EPS))
    d, d_norms = d_output, {}
    for i in range(count) if "block-forward-order" in wrong else reversed(range(count)):
        place = i + 1
        gain_of = count - 1 - i if GAINS_EXCHANGED & wrong else i
        reads = sums[i]
        if is_on(wrong, "block-norm-reads-output", place):
            reads = inputs[i + 1]
        if is_on(wrong, "block-norm-reads-sub-layer", place):
            reads = sums[i] - inputs[i]
        if is_on(wrong, "block-norm-reads-input", place):
            reads = inputs[i]
        d_sum, d_gain, d_bias = layer_norm_backward(d, reads, norms[gain_of]["gain"], EPS, wrong)
        named = count - i if NORM_RESULTS_EXCHANGED & wrong else place
        d_norms[f"norm_{named}"] = {"gain": d_gain, "bias": d_bias}
        if is_on(wrong, "block-norm-skipped", place):
            d_sum = d
        through = backwards[i](
            d if is_on(wrong, "block-sub-layer-gets-d-output", place) else d_sum, sub_layer_input(inputs, i, wrong)
        )
        around = d if is_on(wrong, "block-residual-around-norm", place) else d_sum
        if is_on(wrong, "block-no-residual", place):
            around = np.zeros_like(d)
        if is_on(wrong, "block-residual-overwritten", place):
            around = through
        if is_on(wrong, "block-no-sub-layer", place):
            through = np.zeros_like(d)
        d = around + through
    return d, d_norms


GAINS_EXCHANGED = {
    "block-norms-exchanged",
    "block-norms-exchanged-forward",
    "block-norms-exchanged-everywhere",
    "block-gains-exchanged",
}
NORM_RESULTS_EXCHANGED = {
    "block-norms-exchanged",
    "block-norms-exchanged-everywhere",
    "block-norm-results-exchanged",
}
BLOCK_ALTERNATIVES = (
    {
        "block-no-residual",
        "block-residual-around-norm",
        "block-residual-overwritten",
        "block-no-sub-layer",
        "block-norm-skipped",
    },
    {"block-sub-layer-gets-d-output", "block-norm-skipped", "block-no-sub-layer"},
    {"block-norm-reads-output", "block-norm-reads-sub-layer", "block-norm-reads-input"},
    GAINS_EXCHANGED | NORM_RESULTS_EXCHANGED,
)


def sub_layer_input(inputs: list[Array], i: int, wrong: Switches) -> Array:
    """Return the input of sub-layer i, or another array if something is wrong."""
    if is_on(wrong, "block-sub-layer-reads-x", i + 1):
        return inputs[0]
    if is_on(wrong, "block-sub-layer-reads-earlier", i + 1):
        return inputs[max(i - 1, 0)]
    if is_on(wrong, "block-sub-layer-reads-output", i + 1):
        return inputs[i + 1]
    return inputs[i]


def encoder_block_backward(
    d_output: Array, x: Array, weights: Weights, n_heads: int, mask: Array | None = None, wrong: Switches = NO_MISTAKES
) -> tuple[Array, Weights]:
    """h = LayerNorm(x + Attention(x)),  y = LayerNorm(h + FFN(h))"""
    if "block-pre-norm" in wrong:
        return pre_norm_backward(d_output, x, weights, n_heads, mask, wrong)
    found: Weights = {}
    forward_mask = None if {"block-mask-forward", "block-mask-ignored"} & wrong else mask

    def attend_backward(d: Array, x: Array) -> Array:
        d_x, found["attention"] = self_attention_backward(d, x, weights["attention"], n_heads, mask, wrong)
        return d_x

    def think_backward(d: Array, x: Array) -> Array:
        d_x, found["feed_forward"] = feed_forward_backward(d, x, weights["feed_forward"], wrong)
        return d_x

    d_x, d_norms = sub_layers_backward(
        d_output,
        x,
        (
            lambda x: multi_head_attention(x, x, weights["attention"], n_heads, forward_mask),
            lambda x: feed_forward(x, weights["feed_forward"]),
        ),
        (attend_backward, think_backward),
        (weights["norm_1"], weights["norm_2"]),
        wrong,
    )
    return d_x, {key: {**found, **d_norms}[key] for key in BLOCK_KEYS}


BLOCK_KEYS = ("attention", "norm_1", "feed_forward", "norm_2")


def self_attention_backward(
    d: Array, x: Array, weights: Weights, n_heads: int, mask: Array | None, wrong: Switches
) -> tuple[Array, Weights]:
    """In self-attention x is also the memory: its two derivatives add up."""
    only_one(wrong, {"block-no-memory", "block-no-queries"})
    used = None if {"block-mask-backward", "block-mask-ignored"} & wrong else mask
    d_x, d_memory, d_weights = multi_head_attention_backward(d, x, x, weights, n_heads, used, wrong)
    if "block-no-memory" in wrong:
        return d_x, d_weights
    return d_memory if "block-no-queries" in wrong else d_x + d_memory, d_weights


def pre_norm_backward(
    d_output: Array, x: Array, weights: Weights, n_heads: int, mask: Array | None, wrong: Switches
) -> tuple[Array, Weights]:
    """h = x + Attention(LayerNorm(x)),  y = h + FFN(LayerNorm(h))"""
    norm_1, norm_2 = weights["norm_1"], weights["norm_2"]
    normed_1 = layer_norm(x, norm_1["gain"], norm_1["bias"], EPS)
    h = x + multi_head_attention(normed_1, normed_1, weights["attention"], n_heads, mask)
    normed_2 = layer_norm(h, norm_2["gain"], norm_2["bias"], EPS)
    d_normed, d_feed_forward = feed_forward_backward(d_output, normed_2, weights["feed_forward"], wrong)
    d_through, *d_norm_2 = layer_norm_backward(d_normed, h, norm_2["gain"], EPS, wrong)
    d_h = d_output + d_through
    d_normed, d_attention = self_attention_backward(d_h, normed_1, weights["attention"], n_heads, mask, wrong)
    d_through, *d_norm_1 = layer_norm_backward(d_normed, x, norm_1["gain"], EPS, wrong)
    d_norms = {
        name: dict(zip(("gain", "bias"), d, strict=True)) for name, d in (("norm_1", d_norm_1), ("norm_2", d_norm_2))
    }
    found = {"attention": d_attention, "feed_forward": d_feed_forward, **d_norms}
    return d_h + d_through, {key: found[key] for key in BLOCK_KEYS}


def at_places(name: str, *places: int) -> tuple[str, ...]:
    """Return the switches of a mistake that is made everywhere, or at one place."""
    return (name, *(f"{name}-{place}" for place in places))


NO_RESIDUAL = Mistake(
    "block-no-residual",
    "the derivative does not pass the residual connections",
    "x is added to what the sub-layer gives. On which two ways does a derivative come back to x?",
    "Where the forward adds two arrays, the derivative goes to both of them; where it uses an array twice, two "
    "derivatives add up.",
)
RESIDUAL_OVERWRITTEN = Mistake(
    "block-residual-overwritten",
    "what the sub-layer's backward returns is added twice; on the residual way comes the derivative of the sum",
    "Which two arrays do you add behind the sub-layer's backward? Is one of them overwritten before?",
    "The derivative of the sum x + Sublayer(x) is needed twice. Give the result of the sub-layer's backward a name of "
    "its own.",
)
RESIDUAL_AROUND_NORM = Mistake(
    "block-residual-around-norm",
    "the derivative on the residual way skips the norm; in the post-norm block the norm stands behind the addition",
    "In LayerNorm(x + Sublayer(x)), does x go through the norm?",
    "Go back through the norm first. What comes out of that goes both to the residual way and to the sub-layer.",
)
SUB_LAYER_GETS_D_OUTPUT = Mistake(
    "block-sub-layer-gets-d-output",
    "a sub-layer gets the derivative from behind the norm; it has to go back through the norm first",
    "In LayerNorm(x + Sublayer(x)), what stands between the sub-layer and the result?",
    "What layer_norm_backward returns as d_x is the derivative of the sum, and so that of the sub-layer's output.",
)
NORM_SKIPPED = Mistake(
    "block-norm-skipped",
    "the derivative does not go back through a norm",
    "Which of the values that layer_norm_backward returns does your code go on with?",
    "The derivative of the sum is the d_x of layer_norm_backward, not what you gave to it.",
)
NORM_READS_OUTPUT = Mistake(
    "block-norm-reads-output",
    "layer_norm_backward is given the norm's output; it needs the norm's input, x + Sublayer(x)",
    "What did the norm get in the forward? Do you still have it under a name of its own?",
    "Keep the sum before it goes through the norm. If you overwrite x in the forward, it is lost.",
)
NORM_READS_SUB_LAYER = Mistake(
    "block-norm-reads-sub-layer",
    "layer_norm_backward is given only one of the two arrays that the forward adds; it needs x + Sublayer(x)",
    "What did the norm get in the forward?",
    "The norm's input is the sum of the sub-layer's input and its output. Recompute it in full.",
)
FORWARD_ORDER = Mistake(
    "block-forward-order",
    "the sub-layers come in the order of the forward; backwards, the last one comes first",
    "d_output belongs to what the block returns. Which step of the forward made that?",
    "Begin with the last norm and the feed-forward network, and end with the first sub-layer.",
)
NO_MEMORY = Mistake(
    "block-no-memory",
    "the d_memory of the self-attention is not used; x is the memory there, so it is added to d_x",
    "In self-attention, keys and values are made from x, too. Where is their derivative?",
    "multi_head_attention_backward returns two derivatives that both belong to x here.",
)

ENCODER_BLOCK_MISTAKES = (
    NO_MEMORY,
    Mistake(
        "block-no-queries",
        "only the d_memory of the self-attention is used; the derivative through the queries is missing",
        "In self-attention, queries, keys and values are all made from x. Where is the derivative of the queries?",
        "multi_head_attention_backward returns two derivatives that both belong to x here. Add them up.",
    ),
    replace(
        NO_RESIDUAL,
        name="block-no-residual-attention",
        message="the residual connection around the attention is missing in d_x",
        ways=("block-no-residual-1",),
    ),
    replace(
        NO_RESIDUAL,
        name="block-no-residual-feed-forward",
        message="the residual connection around the feed-forward network is missing",
        ways=("block-no-residual-2",),
    ),
    replace(NO_RESIDUAL, ways=("block-no-residual",)),
    Mistake(
        "block-no-sub-layer",
        "the derivative passes only the residual connection of a sub-layer; the one through the sub-layer is missing",
        "x reaches the sum on two ways. Which one does your code follow back?",
        "Add what the sub-layer's backward returns to the derivative of the sum.",
        ways=at_places("block-no-sub-layer", 1, 2),
    ),
    replace(RESIDUAL_OVERWRITTEN, ways=at_places("block-residual-overwritten", 1, 2)),
    replace(RESIDUAL_AROUND_NORM, ways=at_places("block-residual-around-norm", 1, 2)),
    replace(SUB_LAYER_GETS_D_OUTPUT, ways=at_places("block-sub-layer-gets-d-output", 1, 2)),
    replace(NORM_SKIPPED, ways=at_places("block-norm-skipped", 1, 2)),
    replace(NORM_READS_OUTPUT, ways=at_places("block-norm-reads-output", 1, 2)),
    replace(
        NORM_READS_SUB_LAYER,
        ways=(*at_places("block-norm-reads-sub-layer", 1, 2), *at_places("block-norm-reads-input", 1, 2)),
    ),
    Mistake(
        "block-sub-layer-wrong-input",
        "the derivative of a sub-layer is computed with another array than the one that it got in the forward",
        "What goes into the attention, and what goes into the feed-forward network? Is x overwritten in between?",
        "The attention got the block's input x; the feed-forward network got what the first norm gave. Give each array "
        "a name of its own.",
        ways=("block-sub-layer-reads-x-2", *at_places("block-sub-layer-reads-output", 1, 2)),
    ),
    Mistake(
        "block-norms-exchanged",
        "the two norms have changed places",
        "Which norm comes after the attention?",
        "norm_1 belongs to the attention, norm_2 to the feed-forward network: their gains, and their derivatives.",
        ways=tuple(sorted(GAINS_EXCHANGED | NORM_RESULTS_EXCHANGED)),
    ),
    Mistake(
        "block-pre-norm",
        "this is the derivative of the pre-norm block, x + Sublayer(LayerNorm(x)); exercise 4 norms after the addition",
        "Which is the last step of the forward: an addition, or a norm?",
        "The forward is LayerNorm(x + Sublayer(x)), so the norm is the first that you meet on the way back.",
    ),
    FORWARD_ORDER,
    Mistake(
        "block-mask-ignored",
        "the mask is not handed on: to the attention of the forward, or to its derivative",
        "What does your code do with the argument mask?",
        "Both multi_head_attention, when you recompute the forward, and multi_head_attention_backward need it.",
        ways=("block-mask-ignored", "block-mask-forward", "block-mask-backward"),
    ),
)

BLOCK_ARGUMENTS = ("d_output", "x", "weights", "n_heads", "mask")
BLOCK_RETURNS = ("d_x", "d_weights")
SOME_HIDDEN = np.array([[True, False, True], [False, True, True], [True, True, False]])
BLOCK_CASES = (
    Case("two tokens", (numbers(1, 2, 4, seed=1), numbers(1, 2, 4, seed=2), block_weights(4, 2, seed=3), 2, None)),
    Case(
        "two texts of three tokens, with a mask",
        (numbers(2, 3, 4, seed=4), numbers(2, 3, 4, seed=5), block_weights(4, 5, seed=6), 2, SOME_HIDDEN),
    ),
    Case(
        "with padding",
        (numbers(2, 3, 6, seed=7), numbers(2, 3, 6, seed=8), block_weights(6, 4, seed=9), 3, PADDING_3),
    ),
)


def block_loss(values: Values) -> float:
    return weighted(encoder_block(*(values[name] for name in BLOCK_ARGUMENTS[1:])), values)


ENCODER_BLOCK_BACKWARD = ExercisePart(
    "encoder_block_backward",
    BLOCK_ARGUMENTS,
    BLOCK_RETURNS,
    encoder_block_backward,
    cases=BLOCK_CASES,
    mistakes=ENCODER_BLOCK_MISTAKES,
    properties=tuple(
        predicts_the_loss(
            f"encoder_block_backward, {case.description}",
            in_order(("norm_2", "feed_forward", "norm_1", "attention"), encoder_block_backward),
            case,
            BLOCK_ARGUMENTS,
            BLOCK_RETURNS,
            block_loss,
            names=("d_weights", "d_x"),
        )
        for case in BLOCK_CASES[:2]
    ),
    hint="Recompute the input of every step and give each a name of its own. Then go backwards: norm_2, feed-forward "
    "and its residual connection, norm_1, attention and its residual connection. " + LOSS_HINT,
    strong_hint="Behind each norm lies a sum x + Sublayer(x). Its derivative goes to both terms; the two results "
    "belong to the same x and add up. In self-attention even three add up.",
    thought="The forward: a = x + attention(x), h = norm_1(a), f = h + feed_forward(h), output = norm_2(f). Recompute "
    "a, h and f. Backwards: layer_norm_backward makes d_f of d_output. f is a sum, so d_f goes to h directly and "
    "through feed_forward_backward: d_h is the sum of both. The same again with norm_1, a and the attention; there x "
    "is asked and looked at, so d_x has three terms.",
)

# --- embedding ---------------------------------------------------------------------------------------------------

EMBED_SCALES = {"embed-not-scaled", "embed-scaled-by-width", "embed-scaled-down", "embed-scaled-by-vocabulary"}
EMBED_SUMS = {"embed-overwritten", "embed-overwritten-by-first", "embed-averaged", "embed-per-position"}


def embed_backward(d_output: Array, ids: Array, table: Array, wrong: Switches = NO_MISTAKES) -> Array:
    """y = sqrt(D) table[ids] + positions:  row i of d_table = sqrt(D) Σ d_output where ids is i"""
    only_one(wrong, EMBED_SCALES)
    only_one(wrong, EMBED_SUMS)
    width = table.shape[-1]
    scale = math.sqrt(width)
    if "embed-not-scaled" in wrong:
        scale = 1.0
    if "embed-scaled-by-width" in wrong:
        scale = float(width)
    if "embed-scaled-down" in wrong:
        scale = 1 / math.sqrt(width)
    if "embed-scaled-by-vocabulary" in wrong:
        scale = math.sqrt(len(table))
    d_vectors = d_output * scale
    if "embed-positions" in wrong:
        d_vectors = d_vectors + sinusoidal(ids.shape[1], width)
    if "embed-positions-scaled" in wrong:
        d_vectors = (d_output + sinusoidal(ids.shape[1], width)) * scale
    if "embed-positions-subtracted" in wrong:
        d_vectors = (d_output - sinusoidal(ids.shape[1], width)) * scale
    if "embed-per-position" in wrong:
        return d_vectors
    d_table = np.zeros(table.shape)
    if {"embed-starts-from-table", "embed-starts-from-scaled-table"} & wrong:
        d_table = table * (scale if "embed-starts-from-scaled-table" in wrong else 1.0)
    rows, d_rows = ids.reshape(-1), d_vectors.reshape(-1, width)
    if "embed-overwritten" in wrong:
        d_table[rows] += d_rows
    elif "embed-overwritten-by-first" in wrong:
        d_table[rows[::-1]] += d_rows[::-1]
    else:
        np.add.at(d_table, rows, d_rows)
    if "embed-averaged" in wrong:
        d_table = d_table / np.maximum(np.bincount(rows, minlength=len(table)), 1)[:, None]
    return d_table


EMBED_MISTAKES = (
    Mistake(
        "embed-overwritten",
        "equal ids overwrite each other: only one of their derivatives is left",
        "A token occurs twice. How many outputs change if its row of the table changes?",
        "d_table[ids] += d adds only once for each row, even if an id occurs twice. NumPy has np.add.at, PyTorch "
        "index_add_, and a loop works too.",
        ways=("embed-overwritten", "embed-overwritten-by-first"),
    ),
    Mistake(
        "embed-averaged",
        "the derivatives of equal ids are averaged; they should be added",
        "A token occurs twice. If its row of the table changes, both outputs change. Do the effects add up?",
        "Leave out the division by how often the id occurs.",
    ),
    Mistake(
        "embed-not-scaled",
        "sqrt(D) is missing",
        "What does embed multiply the vectors of the table with?",
        "A constant factor of the forward is the same factor in the derivative.",
    ),
    Mistake(
        "embed-other-scale",
        "the factor is not sqrt(D)",
        "What does embed multiply the vectors of the table with?",
        "It is the square root of the width of a vector, and the derivative is multiplied by it, too.",
        ways=("embed-scaled-by-width", "embed-scaled-down", "embed-scaled-by-vocabulary"),
    ),
    Mistake(
        "embed-positions",
        "the sinusoids occur in the derivative; they are added in the forward and do not depend on the table",
        "What is the derivative of a constant?",
        "Leave them out: y = sqrt(D) · vector + constant.",
        ways=("embed-positions", "embed-positions-scaled", "embed-positions-subtracted"),
    ),
    Mistake(
        "embed-starts-from-table",
        "the derivatives are added to the table itself; the sum begins with 0",
        "What does your result have for a token that does not occur?",
        "Begin with zeros in the shape of the table.",
        ways=("embed-starts-from-table", "embed-starts-from-scaled-table"),
    ),
    Mistake(
        "embed-per-position",
        "there is a vector for each position; expected is a row for each token of the vocabulary",
        "A derivative has the shape of what it belongs to. Which shape has the table?",
        "Begin with zeros in the shape of the table, and add the vector of each position to the row of its id.",
    ),
)


def unused_rows_get_zero(d_table: Any) -> str | None:
    row = np.asarray(d_table, np.float64)[1]
    if np.abs(row).max() > 1e-6:
        return f"Token 1 does not occur, so d_table[1] is 0. Yours is {[round(float(n), 3) for n in row]}."
    return None


EMBED_ARGUMENTS = ("d_output", "ids", "table")
EMBED_CASES = (
    Case(
        "three positions, one token twice",
        (
            np.array([[[1.0, 2.0], [0.5, -1.0], [3.0, 0.0]]]),
            np.array([[2, 0, 2]]),
            np.array([[1.0, 0.5], [-1.0, 2.0], [0.0, 3.0]]),
        ),
    ),
    Case(
        "two texts that share tokens",
        (numbers(2, 3, 4, seed=1), np.array([[4, 1, 3], [1, 1, 0]]), numbers(5, 4, seed=2)),
    ),
    Case("one position", (numbers(1, 1, 6, seed=3), np.array([[1]]), numbers(3, 6, seed=4))),
)

EMBED_BACKWARD = ExercisePart(
    "embed_backward",
    EMBED_ARGUMENTS,
    ("d_table",),
    embed_backward,
    cases=EMBED_CASES,
    mistakes=EMBED_MISTAKES,
    properties=(
        Property("rows of tokens that do not occur are 0", (EMBED_CASES[0],), unused_rows_get_zero),
        predicts_the_loss(
            "embed_backward",
            embed_backward,
            EMBED_CASES[0],
            EMBED_ARGUMENTS,
            ("d_table",),
            lambda values: weighted(embed(values["ids"], values["table"]), values),
        ),
    ),
    hint="Row i of the table is copied to every position whose id is i. What becomes of the derivatives of these "
    "copies?",
    strong_hint="Begin with zeros in the shape of the table. Each position adds its derivative, times the factor of "
    "the forward, to the row of its id.",
    thought="The output at a position is sqrt(D) · table[id] plus a constant. So a change of the row changes the "
    "output at that position by sqrt(D) times as much. The row is copied to all positions with its id, so their "
    "derivatives add up. Rows of tokens that do not occur get 0. The sinusoids are constants and have no derivative.",
)

# --- decoder block -----------------------------------------------------------------------------------------------

DECODER_KEYS = ("self_attention", "norm_1", "cross_attention", "norm_2", "feed_forward", "norm_3")


def decoder_block_backward(
    d_output: Array,
    x: Array,
    memory: Array,
    weights: Weights,
    n_heads: int,
    mask: Array | None,
    memory_mask: Array | None,
    wrong: Switches = NO_MISTAKES,
) -> tuple[Array, Array, Weights]:
    """LayerNorm(x + ·) around self-attention, cross-attention to the memory, and the feed-forward network"""
    only_one(wrong, DECODER_MASKS)
    only_one(wrong, DECODER_MEMORIES | {"block-no-memory"})
    # in the forward order, the self-attention comes before the cross-attention
    only_one(wrong, {"block-forward-order", "decoder-memory-into-x-late", "decoder-cross-for-own"})
    found: Weights = {}
    d_memories: dict[str, Array] = {}
    for_self, for_cross = (mask, memory_mask) if "decoder-masks-exchanged" not in wrong else (memory_mask, mask)
    self_masks = masks_of(for_self, "decoder-self-mask", wrong)
    cross_masks = masks_of(for_cross, "decoder-memory-mask", wrong)
    names = ("self_attention", "cross_attention")
    self_name, cross_name = (
        names[::-1] if {"decoder-attentions-exchanged", "decoder-attention-weights-exchanged"} & wrong else names
    )
    self_result, cross_result = (
        names[::-1] if {"decoder-attentions-exchanged", "decoder-attention-results-exchanged"} & wrong else names
    )

    def self_backward(d: Array, x: Array) -> Array:
        d_x, d_own, found[self_result] = multi_head_attention_backward(
            d, x, x, weights[self_name], n_heads, self_masks[1], wrong
        )
        d_memories["self"] = d_own
        if {"decoder-memory-into-x-late", "decoder-cross-for-own"} & wrong:
            if d_own.shape != d_memories["cross"].shape:
                raise ValueError("the shapes do not fit")
            return d_x + d_memories["cross"] + (0 if "decoder-cross-for-own" in wrong else d_own)
        return d_x if {"block-no-memory", "decoder-own-memory-returned"} & wrong else d_x + d_own

    def cross_backward(d: Array, x: Array) -> Array:
        d_x, d_memories["cross"], found[cross_result] = multi_head_attention_backward(
            d, x, memory, weights[cross_name], n_heads, cross_masks[1], wrong
        )
        return d_x + d_memories["cross"] if "decoder-memory-into-x" in wrong else d_x

    def think_backward(d: Array, x: Array) -> Array:
        d_x, found["feed_forward"] = feed_forward_backward(d, x, weights["feed_forward"], wrong)
        return d_x

    d_x, d_norms = sub_layers_backward(
        d_output,
        x,
        (
            lambda x: multi_head_attention(x, x, weights[self_name], n_heads, self_masks[0]),
            lambda x: multi_head_attention(x, memory, weights[cross_name], n_heads, cross_masks[0]),
            lambda x: feed_forward(x, weights["feed_forward"]),
        ),
        (self_backward, cross_backward, think_backward),
        (weights["norm_1"], weights["norm_2"], weights["norm_3"]),
        wrong,
    )
    d_memory = d_memories["cross"]
    if {"decoder-memory-both", "decoder-own-memory-returned"} & wrong:
        if d_memory.shape != d_memories["self"].shape:
            raise ValueError("the shapes do not fit")
        d_memory = d_memory + d_memories["self"]
    if "decoder-memory-of-self" in wrong:
        d_memory = d_memories["self"]
    return d_x, d_memory, {key: {**found, **d_norms}[key] for key in DECODER_KEYS}


DECODER_MASKS = {
    f"decoder-{which}-mask-{where}" for which in ("self", "memory") for where in ("ignored", "forward", "backward")
} | {"decoder-masks-exchanged"}
DECODER_MEMORIES = {
    "decoder-own-memory-returned",
    "decoder-memory-into-x",
    "decoder-memory-into-x-late",
    "decoder-cross-for-own",
    "decoder-memory-both",
    "decoder-memory-of-self",
}


def masks_of(mask: Array | None, name: str, wrong: Switches) -> tuple[Array | None, Array | None]:
    """Return the mask for the recomputed forward and the one for the backward."""
    return (
        None if {f"{name}-ignored", f"{name}-forward"} & wrong else mask,
        None if {f"{name}-ignored", f"{name}-backward"} & wrong else mask,
    )


DECODER_BLOCK_MISTAKES = (
    NO_MEMORY,
    Mistake(
        "decoder-memory-mixed-up",
        "the d_memory of self-attention and that of cross-attention are mixed up",
        "Whose memory is x, and whose is the array memory?",
        "In self-attention, x is the memory: its d_memory belongs to d_x. In cross-attention, d_memory is a result of "
        "its own and no part of d_x.",
        ways=tuple(sorted(DECODER_MEMORIES)),
    ),
    replace(NO_RESIDUAL, ways=at_places("block-no-residual", 1, 2, 3)),
    replace(RESIDUAL_OVERWRITTEN, ways=at_places("block-residual-overwritten", 1, 2, 3)),
    replace(RESIDUAL_AROUND_NORM, ways=at_places("block-residual-around-norm", 1, 2, 3)),
    replace(SUB_LAYER_GETS_D_OUTPUT, ways=at_places("block-sub-layer-gets-d-output", 1, 2, 3)),
    replace(NORM_READS_OUTPUT, ways=at_places("block-norm-reads-output", 1, 2, 3)),
    replace(NORM_READS_SUB_LAYER, ways=at_places("block-norm-reads-sub-layer", 1, 2, 3)),
    Mistake(
        "decoder-wrong-input",
        "the derivative of a sub-layer is computed with another array than the one that it got in the forward",
        "What goes into each of the three sub-layers? Is x overwritten in between?",
        "Each sub-layer got what the norm before it gave. Give every array of the forward a name of its own.",
        ways=(
            "block-sub-layer-reads-x-2",
            "block-sub-layer-reads-x-3",
            "block-sub-layer-reads-x",
            "block-sub-layer-reads-earlier-3",
            "block-sub-layer-reads-output",
            "block-sub-layer-reads-output-1",
            "block-sub-layer-reads-output-2",
            "block-sub-layer-reads-output-3",
        ),
    ),
    Mistake(
        "decoder-attentions-exchanged",
        "self-attention and cross-attention use each other's weights",
        "Which weights belong to the attention that looks at the memory?",
        "Self-attention comes first. Look at which entries of the weights you read, and under which you store.",
        ways=(
            "decoder-attentions-exchanged",
            "decoder-attention-weights-exchanged",
            "decoder-attention-results-exchanged",
        ),
    ),
    Mistake(
        "decoder-masks-exchanged",
        "the two masks have changed places",
        "Which mask is for the memory?",
        "mask is for the self-attention, memory_mask for the cross-attention.",
    ),
    Mistake(
        "decoder-self-mask",
        "the mask is not handed on: to the self-attention of the forward, or to its derivative",
        "What does your code do with the argument mask?",
        "Both multi_head_attention, when you recompute the forward, and multi_head_attention_backward need it.",
        ways=("decoder-self-mask-ignored", "decoder-self-mask-forward", "decoder-self-mask-backward"),
    ),
    Mistake(
        "decoder-memory-mask",
        "memory_mask is not handed on: to the cross-attention of the forward, or to its derivative",
        "What does your code do with the argument memory_mask?",
        "Both multi_head_attention, when you recompute the forward, and multi_head_attention_backward need it.",
        ways=("decoder-memory-mask-ignored", "decoder-memory-mask-forward", "decoder-memory-mask-backward"),
    ),
    FORWARD_ORDER,
)

DECODER_ARGUMENTS = ("d_output", "x", "memory", "weights", "n_heads", "mask", "memory_mask")
DECODER_RETURNS = ("d_x", "d_memory", "d_weights")
DECODER_CASES = (
    Case(
        "two target tokens, two source tokens",
        (
            numbers(1, 2, 4, seed=1),
            numbers(1, 2, 4, seed=2),
            numbers(1, 2, 4, seed=3),
            decoder_weights(4, 2, seed=1),
            2,
            None,
            None,
        ),
    ),
    Case(
        "three target tokens, three source tokens, masked",
        (
            numbers(2, 3, 4, seed=4),
            numbers(2, 3, 4, seed=5),
            numbers(2, 3, 4, seed=6),
            decoder_weights(4, 5, seed=3),
            2,
            CAUSAL,
            PADDING_3,
        ),
    ),
    Case(
        "two target tokens, three source tokens, masked",
        (
            numbers(2, 2, 6, seed=7),
            numbers(2, 2, 6, seed=8),
            numbers(2, 3, 6, seed=9),
            decoder_weights(6, 4, seed=5),
            3,
            CAUSAL[:2, :2],
            PADDING_3,
        ),
    ),
)


def decoder_loss(values: Values) -> float:
    return weighted(decoder_block(*(values[name] for name in DECODER_ARGUMENTS[1:])), values)


DECODER_BLOCK_BACKWARD = ExercisePart(
    "decoder_block_backward",
    DECODER_ARGUMENTS,
    DECODER_RETURNS,
    decoder_block_backward,
    cases=DECODER_CASES,
    mistakes=DECODER_BLOCK_MISTAKES,
    properties=tuple(
        predicts_the_loss(
            f"decoder_block_backward, {case.description}",
            in_order(DECODER_KEYS[::-1], decoder_block_backward),
            case,
            DECODER_ARGUMENTS,
            DECODER_RETURNS,
            decoder_loss,
            names=("d_weights", "d_memory", "d_x"),
        )
        for case in DECODER_CASES[:2]
    ),
    hint="It is the encoder block with one more sub-layer. Recompute the input of every step, then go backwards: "
    "norm_3, feed-forward, norm_2, cross-attention, norm_1, self-attention. " + LOSS_HINT,
    strong_hint="In cross-attention, d_memory is a result of its own. In self-attention x is the memory, so its "
    "d_memory belongs to d_x.",
    thought="The forward has three halves of the same kind, LayerNorm(x + Sublayer(x)). Recompute what goes into each "
    "sub-layer and into each norm. Backwards, each half first goes through its norm; the result goes to the residual "
    "way and through the sub-layer, and the two add up. The cross-attention also gives d_memory, which is returned. "
    "The self-attention's d_memory belongs to x.",
)

EXERCISE = Exercise(
    9,
    "backpropagation",
    "Backpropagation by hand",
    parts=(
        RELU_BACKWARD,
        LINEAR_BACKWARD,
        SOFTMAX_BACKWARD,
        CROSS_ENTROPY_BACKWARD,
        LAYER_NORM_BACKWARD,
        FEED_FORWARD_BACKWARD,
        ATTENTION_BACKWARD,
        MULTI_HEAD_ATTENTION_BACKWARD,
        ENCODER_BLOCK_BACKWARD,
        EMBED_BACKWARD,
        DECODER_BLOCK_BACKWARD,
    ),
)
