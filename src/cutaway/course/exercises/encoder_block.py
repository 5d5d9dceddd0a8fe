"""Exercise 4 for the grader: center, ReLU, LayerNorm, the feed-forward network, the encoder block, the encoder."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from cutaway.course.exercise import NO_MISTAKES, Case, Exercise, ExercisePart, Mistake, Switches
from cutaway.course.exercises.multi_head_attention import HEAD_MISTAKES, RESIDUAL_INSIDE, multi_head_attention
from cutaway.course.exercises.properties import agrees, differs, equal, floats, holds
from cutaway.course.exercises.scaled_dot_product import Array, changed

Weights = dict[str, Any]
SubLayer = Callable[[Array], Array]
EPS = 1e-5  # of the norms in a block


def numbers(*shape: int, seed: float, size: float = 2.0) -> Array:
    """Return fixed numbers between -size and size with two digits. The square makes all rows different."""
    n = np.arange(1, math.prod(shape) + 1)
    return np.round(size * np.sin(n**2 * (0.7 + 0.13 * seed)), 2).reshape(shape)


def center(x: Array, wrong: Switches = NO_MISTAKES) -> Array:
    """x - mean, the mean over the last axis."""
    mean = x.mean(axis=axis_of(wrong), keepdims=True)
    if "mean-returned" in wrong:
        return mean
    if "mean-returned-flat" in wrong:
        return mean[..., 0]
    if "mean-kept" in wrong:
        return x
    centered = mean - x if "mean-minus-x" in wrong else x - mean
    return centered / x.std(axis=-1, keepdims=True) if "divided-too" in wrong else centered


def relu(x: Array, wrong: Switches = NO_MISTAKES) -> Array:
    """max(0, x), number by number"""
    return activation(x, wrong)


def layer_norm(x: Array, gain: Array, bias: Array, eps: float, wrong: Switches = NO_MISTAKES) -> Array:
    """(x - mean) / sqrt(variance + eps) · gain + bias, mean and variance over the last axis."""
    axis = axis_of(wrong)
    mean = x.mean(axis=axis, keepdims=True)
    variance = x.var(axis=axis, keepdims=True, ddof=1 if "variance-unbiased" in wrong else 0)
    if "rms-norm" in wrong:
        mean, variance = np.zeros_like(mean), (x**2).mean(axis=axis, keepdims=True)
    centred = x if "mean-kept" in wrong else x - mean
    normed = centred / spread_of(variance, eps, wrong)
    if "gain-bias-exchanged" in wrong:
        gain, bias = bias, gain
    if "bias-before-gain" in wrong:
        return (normed + bias) * gain
    if "no-gain" not in wrong:
        normed = normed * gain
    return normed if "no-bias" in wrong else normed + bias


def axis_of(wrong: Switches) -> int | tuple[int, ...] | None:
    return next((axis for name, axis in NORM_AXES.items() if name in wrong), -1)


NORM_AXES: dict[str, int | tuple[int, ...] | None] = {
    "norm-axis-before": -2,
    "norm-axis-0": 0,
    "norm-axis-1": 1,
    "norm-last-two": (-2, -1),
    "norm-everything": None,
}


def spread_of(variance: Array, eps: float, wrong: Switches) -> Array:
    if "no-eps" in wrong:
        eps = 0.0
    if "variance-not-rooted" in wrong:
        return variance + eps
    if "eps-outside-root" in wrong:
        return np.sqrt(variance) + eps
    return np.sqrt(variance + eps)


NORM_AXIS = Mistake(
    "norm-axis",
    "mean and variance are taken over the wrong axis",
    "Each token is normed by itself. Compute the mean of one token's numbers afterwards (with gain 1 and bias 0).",
    "Only the last axis counts, however many there are in front: no other token and no other text may have a say.",
    ways=("norm-axis-before", "norm-axis-0", "norm-axis-1", "norm-last-two", "norm-everything"),
)

# x, gain, bias and eps of one token
NORM_ARGUMENTS = (np.array([1.0, 2.0, 6.0]), np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 0.5]), 0.1)

CENTER = ExercisePart(
    "center",
    ("x",),
    ("result",),
    center,
    cases=(
        Case("two tokens of three numbers", (np.array([[1.0, 2.0, 6.0], [0.0, -1.0, 4.0]]),)),
        Case("two texts of three tokens", (numbers(2, 3, 4, seed=4),)),
        Case("four axes", (numbers(2, 3, 2, 5, seed=7),)),
    ),
    mistakes=(
        replace(
            NORM_AXIS,
            message="the mean is taken over the wrong axis",
            hint="The mean of each token should be 0 afterwards. Compute the sum of each row of your result.",
        ),
        Mistake(
            "mean-returned",
            "the means come back; expected are the numbers of each token minus their mean",
            "What shape should the result have?",
            "Subtract the means from x.",
            ways=("mean-returned", "mean-returned-flat"),
        ),
        Mistake(
            "mean-minus-x",
            "the numbers are subtracted from the mean; it should be the other way round",
            "Which numbers of a token should be positive afterwards, the large ones or the small ones?",
            "It is x - mean.",
        ),
        Mistake(
            "divided-too",
            "the numbers are also divided by their standard deviation; here only the mean is subtracted",
            "What should [1, 2, 6] become? Its mean is 3.",
            "Leave out the division. It comes in layer_norm.",
        ),
        Mistake(
            "mean-kept",
            "x comes back as it was",
            "What is the mean of a token afterwards? It should be 0.",
            "Compute the mean of each token, and subtract it.",
        ),
    ),
    properties=(
        equal(
            "sum of a token",
            [(np.array([[1.0, 3.0]]),)],
            lambda result: (floats(result).sum(-1), [0.0]),
            "The mean of [1, 3] is 2, so its numbers become -1 and 1, and sum to 0. Yours sum to {given}.",
        ),
        equal(
            "tokens are independent",
            [(np.array([[1.0, 3.0], [2.0, 2.0]]),), (np.array([[1.0, 3.0], [9.0, 2.0]]),)],
            lambda before, after: (floats(after)[0], floats(before)[0]),
            "If only token 1 is changed, result[0]{at} changes from {expected} to {given}. Each token has a mean of "
            "its own.",
        ),
        agrees(center, ("result",), "one token without other axes, [1, 2, 6]", np.array([1.0, 2.0, 6.0])),
        agrees(center, ("result",), "tokens of one number, [[5], [7]]", np.array([[5.0], [7.0]])),
    ),
    hint="Do it by hand for the first token, [1, 2, 6]: the mean is 3, and the result is [-2, -1, 3].",
    strong_hint="Print the means: there should be one for each token. To line up with x, they must keep the last "
    "axis, with length 1.",
    thought="Each token is a row of D numbers, on the last axis. The mean along that axis is one number for each "
    "token. It is subtracted from all numbers of its own token. For this the means need the same axes as x, the last "
    "one with length 1: then broadcasting repeats each mean over its token.",
)

LAYER_NORM_MISTAKES = (
    Mistake(
        "eps-outside-root",
        "eps is added to the standard deviation; it belongs to the variance, under the root",
        "Where exactly does eps stand in the equation?",
        "Add eps first and take the square root of the sum, not the other way round.",
    ),
    Mistake(
        "no-eps",
        "the eps that it is given is not used",
        "Which of the arguments does your code never read? What happens to a token whose numbers are all equal?",
        "eps is added to the variance, under the root, so that nothing is ever divided by 0. Take the argument, not a "
        "number of your own.",
    ),
    Mistake(
        "variance-unbiased",
        "the variance is divided by D - 1, one less than the number of numbers",
        "There are two kinds of variance. Which does your function compute, if you do not say anything else?",
        "Here the mean of the squares is meant: divided by D. torch's var and std divide by D - 1 without "
        "correction=0; NumPy's do so if ddof=1.",
    ),
    Mistake(
        "variance-not-rooted",
        "the numbers are divided by the variance, not by its square root",
        "What variance does a token have afterwards, before gain and bias? It should be 1.",
        "A function of the equation is missing around variance + eps.",
    ),
    NORM_AXIS,
    Mistake(
        "mean-kept",
        "the mean is not subtracted",
        "What is the mean of a token afterwards, with gain 1 and bias 0? It should be 0.",
        "The numerator of the equation has two terms. (Without the mean, some models today norm just so, and call it "
        "RMSNorm.)",
        ways=("mean-kept", "rms-norm"),
    ),
    Mistake(
        "no-gain",
        "the gain is not used",
        "Which of the arguments does your code never read?",
        "After dividing, each number is multiplied with its own gain.",
    ),
    Mistake(
        "no-bias",
        "the bias is not used",
        "Which of the arguments does your code never read?",
        "At the very end, each number gets its own bias added.",
    ),
    Mistake(
        "gain-bias-exchanged",
        "gain and bias have changed places",
        "Which of the two multiplies?",
        "The gain multiplies, the bias is added. Look at the order of the arguments.",
    ),
    Mistake(
        "bias-before-gain",
        "the bias is added before the gain multiplies",
        "In which order do gain and bias stand in the equation?",
        "The gain multiplies the normed numbers alone. A bracket is in the wrong place, or two lines are.",
    ),
)

LAYER_NORM = ExercisePart(
    "layer_norm",
    ("x", "gain", "bias", "eps"),
    ("result",),
    layer_norm,
    # eps is large, so that its place matters
    cases=(
        Case("two tokens of three numbers", (numbers(2, 3, seed=1), numbers(3, seed=2), numbers(3, seed=3), 0.1)),
        Case("two texts of three tokens", (numbers(2, 3, 4, seed=4), numbers(4, seed=5), numbers(4, seed=6), 0.5)),
        Case("four axes", (numbers(2, 3, 2, 5, seed=7), numbers(5, seed=8), numbers(5, seed=9), 0.2)),
        Case("a large eps", (numbers(2, 3, seed=10), numbers(3, seed=11), numbers(3, seed=12), 4.0)),
    ),
    mistakes=LAYER_NORM_MISTAKES,
    properties=(
        equal(
            "mean and variance",
            [(np.array([[1.0, 3.0]]), np.ones(2), np.zeros(2), 0.0)],
            lambda result: (result, [[-1.0, 1.0]]),
            "With gain 1, bias 0 and eps 0, [1, 3] becomes [-1, 1]. But result{at} is {given}.",
        ),
        equal(
            "tokens are independent",
            [
                (np.array([[1.0, 3.0], [2.0, 5.0]]), np.ones(2), np.zeros(2), 0.1),
                (np.array([[1.0, 3.0], [9.0, 5.0]]), np.ones(2), np.zeros(2), 0.1),
            ],
            lambda before, after: (floats(after)[0], floats(before)[0]),
            "If only token 1 is changed, result[0]{at} changes from {expected} to {given}. Each token is normed by "
            "itself.",
        ),
        equal(
            "a token of equal numbers",
            [(np.array([[5.0, 5.0]]), np.array([2.0, 3.0]), np.array([0.5, -0.5]), 1e-5)],
            lambda result: (result, [[0.5, -0.5]]),
            "The numbers of [5, 5] are all equal to their mean, so only the bias [0.5, -0.5] is left. But result{at} "
            "is {given}.",
        ),
        equal(
            "the mean of a token",
            [(np.array([[1.0, 2.0, 6.0]]), np.ones(3), np.zeros(3), 0.1)],
            lambda result: (floats(result).sum(), 0.0),
            "With gain 1 and bias 0, the numbers of [1, 2, 6] sum to 0 when they are normed; yours sum to {given}.",
        ),
        equal(
            "eps",
            [(np.array([[1.0, 3.0]]), np.ones(2), np.zeros(2), 3.0)],
            lambda result: (result, [[-0.5, 0.5]]),
            "The variance of [1, 3] is 1. With eps 3 it is divided by sqrt(1 + 3) = 2 and becomes [-0.5, 0.5]; but "
            "result{at} is {given}.",
        ),
        equal(
            "gain and bias",
            [(np.array([[1.0, 3.0]]), np.array([2.0, 3.0]), np.array([10.0, 20.0]), 0.0)],
            lambda result: (result, [[8.0, 23.0]]),
            "[1, 3] becomes [-1, 1], times the gain [2, 3], plus the bias [10, 20]. So result{at} should be "
            "{expected}; it is {given}.",
        ),
        agrees(layer_norm, ("result",), "one token without other axes", *NORM_ARGUMENTS),
        agrees(
            layer_norm,
            ("result",),
            "tokens of one number",
            np.array([[5.0], [7.0]]),
            np.array([2.0]),
            np.array([3.0]),
            0.1,
        ),
        agrees(
            layer_norm, ("result",), "a small eps", numbers(2, 4, seed=4), numbers(4, seed=5), numbers(4, seed=6), 1e-5
        ),
    ),
    hint="Do it by hand for [1, 3] with gain 1, bias 0 and eps 0: the mean is 2, the variance ((1-2)² + (3-2)²) / 2 = "
    "1, the result [-1, 1]. Which step is different in your code?",
    strong_hint="Print the mean and the variance of each token: they keep the last axis, with length 1. Compare the "
    "variance with the mean of the squared distances. Then look at the order: add eps, take the root, divide, gain, "
    "bias.",
    thought="Each token is normed by itself, so mean and variance are taken along the last axis and keep it, to line "
    "up with x. Subtracting the mean makes the mean 0. Dividing by the standard deviation, the root of the variance, "
    "makes the variance 1. If all numbers of a token are equal, the variance is 0: eps under the root prevents a "
    "division by 0. Then gain and bias, one number for each place of a token, let the model undo this where it helps.",
)


def feed_forward(x: Array, weights: Weights, wrong: Switches = NO_MISTAKES) -> Array:
    """max(0, x W1 + b1) W2 + b2"""
    hidden = x @ weights["w1"]
    if not {"no-b1", "b1-after-relu"} & wrong:
        hidden = hidden + weights["b1"]
    hidden = activation(hidden, wrong)
    if "b1-after-relu" in wrong:
        hidden = hidden + weights["b1"]
    y = hidden @ weights["w2"]
    if "no-b2" not in wrong:
        y = y + weights["b2"]
    if "feed-forward-residual" in wrong:
        return x + y
    return np.maximum(y, 0) if {"relu-at-the-end", "relu-only-at-the-end"} & wrong else y


def activation(x: Array, wrong: Switches) -> Array:
    if {"no-relu", "relu-only-at-the-end"} & wrong:
        return x
    if "absolute" in wrong:
        return np.abs(x)
    if "minimum" in wrong:
        return np.minimum(x, 0)
    if {"whole-maximum", "whole-maximum-0"} & wrong:
        return x.max() if "whole-maximum" in wrong else np.maximum(0, x.max())
    if "step" in wrong:
        return (x > 0).astype(float)
    if "gelu" in wrong:
        return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    if "gelu-tanh" in wrong:
        return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    if "tanh" in wrong:
        return np.tanh(x)
    if {"sigmoid", "silu"} & wrong:
        return (x if "silu" in wrong else 1.0) / (1 + np.exp(-x))
    return np.maximum(x, 0)


FEED_FORWARD_MISTAKES = (
    Mistake(
        "no-relu",
        "the max(0, ·) is missing",
        "Without it, two matrices in a row could be replaced by one. What stands between them in the equation?",
        "What is negative after W1 and b1 becomes 0, before W2.",
    ),
    Mistake(
        "relu-at-the-end",
        "max(0, ·) is applied to the result; in the equation it stands between the two matrices only",
        "Can your result be negative? It should be able to.",
        "max(0, ·) belongs around x W1 + b1, and nowhere else.",
        ways=("relu-at-the-end", "relu-only-at-the-end"),
    ),
    Mistake(
        "no-b1",
        "b1 is not added",
        "Four arrays are in the weights. Which of them does your code never read?",
        "b1 is added to x W1, before max(0, ·).",
    ),
    Mistake(
        "b1-after-relu",
        "b1 is added after max(0, ·)",
        "What stands inside the max of the equation?",
        "b1 helps to decide what is negative: add it before max(0, ·).",
    ),
    Mistake(
        "no-b2",
        "b2 is not added",
        "Four arrays are in the weights. Which of them does your code never read?",
        "b2 is added at the very end.",
    ),
    Mistake(
        "gelu",
        "this is GELU; the paper has max(0, ·)",
        "What does your function make of a small negative number? It should make it 0.",
        "GELU came later, with BERT and GPT. Here it is ReLU.",
        ways=("gelu", "gelu-tanh"),
    ),
    Mistake(
        "silu",
        "this is SiLU, also called Swish; the paper has max(0, ·)",
        "What does your function make of a small negative number? It should make it 0.",
        "SiLU came later; Llama has it, for one. Here it is ReLU.",
    ),
    Mistake(
        "sigmoid-or-tanh",
        "a sigmoid or a tanh stands where the paper has max(0, ·)",
        "What does your function make of a large number? It should leave it as it is.",
        "What is negative becomes 0, and the rest stays: that is ReLU.",
        ways=("sigmoid", "tanh"),
    ),
    # Its switch is not that of multi-head attention: a block with this feed-forward network has a right attention.
    replace(
        RESIDUAL_INSIDE,
        strong_hint="The residual connection x + Sublayer(x) belongs to the block around it.",
        ways=("feed-forward-residual",),
    ),
)
FEED_FORWARD_SWITCHES = {switch for mistake in FEED_FORWARD_MISTAKES for switch in mistake.switches}

RELU = ExercisePart(
    "relu",
    ("x",),
    ("result",),
    relu,
    cases=(
        Case("five numbers", (np.array([-2.0, -0.5, 0.0, 0.5, 3.0]),)),
        Case("two rows", (numbers(2, 3, seed=4),)),
        Case("three axes", (numbers(2, 3, 4, seed=5),)),
    ),
    mistakes=(
        Mistake(
            "no-relu",
            "x comes back as it was",
            "What should become of -2?",
            "Negative numbers become 0, all others stay.",
        ),
        Mistake(
            "absolute",
            "this is the absolute value: -2 becomes 2",
            "What should become of -2?",
            "Negative numbers become 0; they do not lose their sign.",
        ),
        Mistake(
            "minimum",
            "the positive numbers become 0, and the negative ones stay",
            "What should become of 3, and what of -2?",
            "It is the maximum of 0 and x, not the minimum.",
        ),
        Mistake(
            "whole-maximum",
            "one number comes back, the largest of all; expected is the maximum of 0 and x at each place",
            "What shape should the result have?",
            "Compare each number with 0. In NumPy, maximum and max are two different functions.",
            ways=("whole-maximum", "whole-maximum-0"),
        ),
        Mistake(
            "step",
            "positive numbers become 1; they should stay as they are",
            "What should become of 3?",
            "A comparison gives True or False. Where it is True, the number itself is asked for.",
        ),
        *(m for m in FEED_FORWARD_MISTAKES if m.name in ("gelu", "silu", "sigmoid-or-tanh")),
    ),
    properties=(
        equal(
            "a negative and a positive number",
            [(np.array([-2.0, 3.0]),)],
            lambda result: (result, [0.0, 3.0]),
            "[-2, 3] should become [0, 3], but result{at} is {given}.",
        ),
        agrees(relu, ("result",), "only negative numbers", np.array([[-1.0, -2.0]])),
    ),
    hint="What becomes of -2, of 0 and of 3? They should become 0, 0 and 3.",
    strong_hint="Each number is compared with 0, and the larger of the two is the result. The shape does not change.",
    thought="max(0, x) is meant number by number. A positive number is larger than 0, so it stays. A negative number "
    "is smaller than 0, so 0 takes its place. NumPy and PyTorch can compare a whole array with one number and take "
    "the larger one at each place.",
)


# One hidden number
SIMPLE: Weights = {
    "w1": np.ones((2, 1)),
    "b1": np.array([3.0]),
    "w2": np.ones((1, 2)),
    "b2": np.array([10.0, 20.0]),
}


def feed_forward_weights(d: int, f: int, seed: float) -> Weights:
    weights = {"w1": numbers(d, f, seed=seed, size=1.0), "b1": numbers(f, seed=seed + 1, size=1.0)}
    return weights | {"w2": numbers(f, d, seed=seed + 2, size=1.0), "b2": numbers(d, seed=seed + 3, size=1.0)}


FEED_FORWARD = ExercisePart(
    "feed_forward",
    ("x", "weights"),
    ("output",),
    feed_forward,
    cases=(
        Case("two tokens", (numbers(2, 2, seed=1), feed_forward_weights(2, 3, seed=2))),
        Case("two texts of three tokens", (numbers(2, 3, 4, seed=4), feed_forward_weights(4, 5, seed=5))),
    ),
    mistakes=FEED_FORWARD_MISTAKES,
    properties=(
        equal(
            "W2 of zeros",
            [(np.array([[1.0, 2.0]]), SIMPLE | {"w2": np.zeros((1, 2))})],
            lambda output: (output, [[10.0, 20.0]]),
            "If W2 is 0, only b2 = [10, 20] is left; but output{at} is {given}.",
        ),
        equal(
            "one hidden number",
            [(np.array([[1.0, 2.0]]), SIMPLE)],
            lambda output: (output, [[16.0, 26.0]]),
            "With one hidden number: max(0, [1, 2] · [1, 1] + 3) = 6, times W2 = [1, 1], plus b2 = [10, 20] is [16, "
            "26]. But output{at} is {given}.",
        ),
        equal(
            "a negative hidden number",
            [(np.array([[-5.0, 1.0]]), SIMPLE)],
            lambda output: (output, [[10.0, 20.0]]),
            "With one hidden number: [-5, 1] · [1, 1] + 3 = -1, which becomes 0, so only b2 = [10, 20] is left. But "
            "output{at} is {given}.",
        ),
        equal(
            "tokens are independent",
            [(np.array([[1.0, 2.0], [0.0, 0.0]]), SIMPLE), (np.array([[1.0, 2.0], [9.0, 0.0]]), SIMPLE)],
            lambda before, after: (floats(after)[0], floats(before)[0]),
            "If only token 1 is changed, output[0]{at} changes from {expected} to {given}. Each token goes through "
            "alone.",
        ),
        agrees(feed_forward, ("output",), "one token without other axes", np.array([1.0, -2.0]), SIMPLE),
        agrees(
            feed_forward,
            ("output",),
            "one text of one token",
            numbers(1, 1, 3, seed=1),
            feed_forward_weights(3, 2, seed=2),
        ),
    ),
    hint="Follow the equation from the inside: x W1, then + b1, then max(0, ·), then W2, then + b2. Print each step "
    "for one token.",
    strong_hint="Take weights so simple that you can compute the result by hand: one hidden number, W1 and W2 of "
    "ones, b1 and b2 of zeros. Then change one of the four at a time.",
    thought="The equation is read from the inside to the outside. x W1 turns the D numbers of each token into F, and "
    "b1 is added to them. max(0, ·) sets the negative ones to 0; without it, the two matrices would be no more than "
    "one. W2 turns the F numbers into D again, and b2 is added at the end. A matrix product works on the last axis, "
    "so all tokens of all texts go through at once and do not meet.",
)


def encoder_block(
    x: Array, weights: Weights, n_heads: int, mask: Array | None = None, wrong: Switches = NO_MISTAKES
) -> Array:
    """Self-attention, then feed-forward; each as LayerNorm(x + Sublayer(x))."""

    def attend(x: Array) -> Array:
        return multi_head_attention(x, x, weights["attention"], n_heads, mask, wrong)

    def apply_feed_forward(x: Array) -> Array:
        return feed_forward(x, weights["feed_forward"], wrong)

    norm_1, norm_2 = norms_of(weights, ("norm_1", "norm_2"), wrong)
    if IN_ANOTHER_ORDER & wrong:
        return block_in_another_order(x, attend, apply_feed_forward, norm_1, norm_2, wrong)
    if {"no-attention", "no-attention-normed"} & wrong:
        middle = norm_1(x) if "no-attention-normed" in wrong else x
    else:
        middle = add_and_norm(x, attend, norm_1, wrong, residual="no-residual-attention" not in wrong)
    if {"no-feed-forward", "no-feed-forward-normed"} & wrong:
        return norm_2(middle) if "no-feed-forward-normed" in wrong else middle
    return add_and_norm(
        middle,
        apply_feed_forward,
        norm_2,
        wrong,
        residual="no-residual-feed-forward" not in wrong,
        added_to=x if "residual-from-input" in wrong else None,
    )


def add_and_norm(
    x: Array,
    sub_layer: SubLayer,
    norm: SubLayer,
    wrong: Switches = NO_MISTAKES,
    residual: bool = True,
    added_to: Array | None = None,
) -> Array:
    """LayerNorm(x + Sublayer(x))"""
    start = x if added_to is None else added_to
    if not residual or "no-residual" in wrong:
        start = np.zeros_like(x)
    if "pre-norm" in wrong:
        return start + sub_layer(norm(x))
    if "norm-inside" in wrong:
        return start + norm(sub_layer(x))
    if "norm-of-input-only" in wrong:
        return norm(start) + sub_layer(x)
    return norm(start + sub_layer(x))


def norms_of(weights: Weights, names: tuple[str, ...], wrong: Switches) -> list[SubLayer]:
    """Return the norms of a block as functions."""
    used = list(names)
    if "always-first-norm" in wrong:
        used = [names[0]] * len(names)
    if "always-last-norm" in wrong:
        used = [names[-1]] * len(names)
    if "norms-exchanged" in wrong:
        used.reverse()

    def norm_of(place: int, name: str) -> SubLayer:
        if "no-norm" in wrong or f"no-norm-{place}" in wrong:
            return lambda x: x
        return lambda x: layer_norm(x, weights[name]["gain"], weights[name]["bias"], EPS, wrong)

    return [norm_of(place, name) for place, name in enumerate(used, start=1)]


IN_ANOTHER_ORDER = {
    "feed-forward-first",
    "feed-forward-first-own-norms",
    "reads-the-input",
    "side-by-side-1",
    "side-by-side-2",
    "side-by-side-sum",
}


def block_in_another_order(
    x: Array, attend: SubLayer, apply_feed_forward: SubLayer, norm_1: SubLayer, norm_2: SubLayer, wrong: Switches
) -> Array:
    if "feed-forward-first" in wrong:
        return add_and_norm(add_and_norm(x, apply_feed_forward, norm_1, wrong), attend, norm_2, wrong)
    if "feed-forward-first-own-norms" in wrong:
        return add_and_norm(add_and_norm(x, apply_feed_forward, norm_2, wrong), attend, norm_1, wrong)
    if "reads-the-input" in wrong:
        return norm_2(norm_1(x + attend(x)) + apply_feed_forward(x))
    if "side-by-side-sum" in wrong:
        return norm_1(x + attend(x)) + norm_2(x + apply_feed_forward(x))
    return (norm_1 if "side-by-side-1" in wrong else norm_2)(x + attend(x) + apply_feed_forward(x))


NO_RESIDUAL_FEED_FORWARD = Mistake(
    "no-residual-feed-forward",
    "there is no residual connection around the feed-forward network",
    "Two arrows of figure 1 lead past the sub-layers of a block. Do you have both?",
    "What goes into the feed-forward network is also added to what comes out of it, before the norm.",
)
NO_RESIDUAL = Mistake(
    "no-residual",
    "there are no residual connections",
    "Arrows of figure 1 lead past the sub-layers. What happens to x there?",
    "What goes into a sub-layer is added to what comes out of it: x + Sublayer(x).",
)
PRE_NORM = Mistake(
    "pre-norm",
    "this is pre-norm, x + Sublayer(LayerNorm(x)); the paper norms after the addition",
    "In figure 1, does the norm stand before the sub-layer, or after the addition?",
    "Most models since 2019 do it your way. The paper: first the sub-layer, then add, then norm, so that the norm is "
    "the last thing that happens.",
)
NORM_INSIDE = Mistake(
    "norm-inside",
    "the sub-layer's output is normed, and then added; the paper adds first and norms the sum",
    "Where are the brackets in LayerNorm(x + Sublayer(x))?",
    "The norm is the last thing that happens in each half of the block.",
)
SAME_NORM = Mistake(
    "same-norm",
    "all norms use the same gain and bias",
    "Which entries of the weights does your code never read?",
    "Each norm of a block has weights of its own.",
    ways=("always-first-norm", "always-last-norm"),
)
NORM_OF_INPUT_ONLY = Mistake(
    "norm-of-input-only",
    "the norm takes x alone, and then the sub-layer's output is added; the paper norms the sum",
    "Where are the brackets in LayerNorm(x + Sublayer(x))?",
    "First the sub-layer, then add, then norm the sum.",
)
NO_FEED_FORWARD = Mistake(
    "no-feed-forward",
    "there is no feed-forward network",
    "Which entries of the weights does your code never read?",
    "After the attention, with its norm, comes another sub-layer, with a norm of its own.",
    ways=("no-feed-forward", "no-feed-forward-normed"),
)
MASK_IGNORED = Mistake(
    "mask-ignored",
    "the mask is not used",
    "What does your code do with the argument mask?",
    "Attention has to be given the mask. Follow it through your functions: somewhere it is not handed on.",
)

ENCODER_BLOCK_MISTAKES = (
    Mistake(
        "no-residual-attention",
        "there is no residual connection around the attention",
        "Two arrows of figure 1 lead past the sub-layers of a block. Do you have both?",
        "The block's input is also added to what comes out of the attention, before the first norm.",
    ),
    NO_RESIDUAL_FEED_FORWARD,
    NO_RESIDUAL,
    PRE_NORM,
    NORM_INSIDE,
    NORM_OF_INPUT_ONLY,
    Mistake(
        "no-attention",
        "there is no attention",
        "Which entries of the weights does your code never read?",
        "The block begins with self-attention: x looks at x. Its residual connection and its norm come right after it.",
        ways=("no-attention", "no-attention-normed"),
    ),
    NO_FEED_FORWARD,
    replace(
        next(m for m in HEAD_MISTAKES if m.name == "one-head"),
        strong_hint="The attention is told how many heads it has. What do you tell it?",
        ways=("one-head",),
    ),
    Mistake(
        "one-norm",
        "one of the two norms is missing",
        "Count the boxes named Add & Norm in a block of figure 1.",
        "There is a norm after the attention's residual connection, and one after that of the feed-forward network.",
        ways=("no-norm-1", "no-norm-2"),
    ),
    Mistake(
        "no-norm",
        "there is no norm",
        "Count the boxes named Add & Norm in a block of figure 1.",
        "After each addition stands a LayerNorm, with its own gain and bias.",
    ),
    SAME_NORM,
    Mistake(
        "norms-exchanged",
        "the two norms have changed places",
        "Which norm comes after the attention?",
        "norm_1 belongs to the attention, norm_2 to the feed-forward network.",
    ),
    Mistake(
        "residual-from-input",
        "the second residual connection starts at the block's input",
        "In figure 1, where does the second arrow begin?",
        "It begins behind the first norm: what goes into the feed-forward network is what is added to its output.",
    ),
    Mistake(
        "side-by-side",
        "attention and feed-forward both read the block's input; the feed-forward network should read what comes after "
        "the attention",
        "Follow figure 1 from below. What does the feed-forward network read?",
        "The two halves come one after the other: finish the first, with its norm, and give the result to the second.",
        ways=("reads-the-input", "side-by-side-1", "side-by-side-2", "side-by-side-sum"),
    ),
    Mistake(
        "feed-forward-first",
        "the feed-forward network comes before the attention",
        "Follow figure 1 from below. Which of the two comes first?",
        "First the tokens look at each other, then each of them thinks about it.",
        ways=("feed-forward-first", "feed-forward-first-own-norms"),
    ),
    MASK_IGNORED,
    Mistake(
        "mask-inverted",
        "the mask is used the wrong way round: what may be seen is hidden, and the reverse",
        "True means: may attend. Is the mask changed on its way to the attention?",
        "Give the attention the mask just as it is.",
    ),
)


def attention_weights(d: int, seed: float) -> Weights:
    # Queries and keys are small: otherwise the softmax would select one key and hide many mistakes.
    sizes = {"query": 0.5, "key": 0.5, "value": 1.0, "output": 1.0}
    return {name: numbers(d, d, seed=seed + i, size=size) for i, (name, size) in enumerate(sizes.items())}


def norm_weights(d: int, seed: float) -> Weights:
    return {"gain": 1 + numbers(d, seed=seed, size=0.5), "bias": numbers(d, seed=seed + 1, size=1.0)}


def block_weights(d: int, f: int, seed: float) -> Weights:
    return {
        "attention": attention_weights(d, seed),
        "norm_1": norm_weights(d, seed + 4),
        "feed_forward": feed_forward_weights(d, f, seed + 6),
        "norm_2": norm_weights(d, seed + 8),
    }


# No row is all True or all False.
SOME_HIDDEN = np.array([[True, False, True], [False, True, True], [True, True, False]])
PADDING = np.array([[True, True, True, False], [True, True, False, False]])[:, None, None, :]

# For the properties: width 3, the smallest at which a norm says more than a sign
TWO_TOKENS, TWO_TEXTS = np.array([[[1.0, -0.5, 0.2], [0.3, 1.2, -1.0]]]), numbers(2, 2, 3, seed=5)
SMALL_BLOCK = block_weights(3, 2, seed=1)
PLAIN_NORM = {"gain": np.ones(3), "bias": np.zeros(3)}
LAST_HIDDEN = np.array([[True, False]])

ENCODER_BLOCK = ExercisePart(
    "encoder_block",
    ("x", "weights", "n_heads", "mask"),
    ("output",),
    encoder_block,
    cases=(
        Case("two texts of two tokens", (numbers(2, 2, 4, seed=1), block_weights(4, 3, seed=1), 2, None)),
        Case("with a mask", (numbers(2, 3, 4, seed=2), block_weights(4, 5, seed=3), 2, SOME_HIDDEN)),
        Case("with padding", (numbers(2, 4, 6, seed=3), block_weights(6, 5, seed=5), 3, PADDING)),
    ),
    mistakes=ENCODER_BLOCK_MISTAKES,
    properties=(
        holds(
            "the mean of each token, with gain 1 and bias 0 in norm_2",
            [(TWO_TOKENS, SMALL_BLOCK | {"norm_2": PLAIN_NORM}, 1, None)],
            lambda output: check_normed(output, "norm_2"),
        ),
        equal(
            "hidden tokens do not matter",
            [
                (TWO_TOKENS, SMALL_BLOCK, 1, LAST_HIDDEN),
                (changed(TWO_TOKENS, (0, 1, 0), 3.0), SMALL_BLOCK, 1, LAST_HIDDEN),
            ],
            lambda before, after: (floats(after)[0, 0], floats(before)[0, 0]),
            "The mask hides token 1. If that token is changed, the output of token 0 changes at {at} from {expected} "
            "to {given}.",
        ),
        equal(
            "order of the tokens",
            [(TWO_TOKENS, SMALL_BLOCK, 1, None), (TWO_TOKENS[:, ::-1], SMALL_BLOCK, 1, None)],
            lambda before, after: (floats(after)[:, ::-1], before),
            "If the tokens of x change places, the outputs change places, too, and nothing else. But a number of token "
            "{at} changes from {expected} to {given}.",
        ),
        equal(
            "texts are independent",
            [(TWO_TEXTS, SMALL_BLOCK, 1, None), (changed(TWO_TEXTS, (1, 0, 0), 3.0), SMALL_BLOCK, 1, None)],
            lambda before, after: (floats(after)[0], floats(before)[0]),
            "If only text 1 is changed, output[0]{at}, a number of text 0, changes from {expected} to {given}.",
        ),
        equal(
            "a mask of True",
            [(TWO_TOKENS, SMALL_BLOCK, 1, None), (TWO_TOKENS, SMALL_BLOCK, 1, np.ones((2, 2), bool))],
            lambda without, with_mask: (with_mask, without),
            "A mask that is True everywhere hides nothing. But with it output{at} is {given}, and without a mask "
            "{expected}.",
        ),
        agrees(encoder_block, ("output",), "one token", TWO_TOKENS[:, :1], SMALL_BLOCK, 1, None),
        agrees(encoder_block, ("output",), "two tokens, one head", TWO_TOKENS, SMALL_BLOCK, 1, None),
        agrees(encoder_block, ("output",), "as many heads as numbers", TWO_TOKENS, SMALL_BLOCK, 3, None),
        agrees(
            encoder_block,
            ("output",),
            "width 2 and two heads",
            np.array([[[1.0, -0.5], [0.3, 1.2]]]),
            block_weights(2, 3, seed=2),
            2,
            None,
        ),
        agrees(
            encoder_block,
            ("output",),
            "a long text of 40 tokens, with a causal mask",
            numbers(1, 40, 4, seed=1),
            block_weights(4, 3, seed=1),
            2,
            np.tril(np.ones((40, 40), bool)),
        ),
    ),
    hint="The block has two halves of the same form: LayerNorm(x + Sublayer(x)). Check them one by one: what goes in, "
    "what the sub-layer makes of it, the sum, the norm.",
    strong_hint="Print the mean and the variance of a token after each norm with gain 1 and bias 0: they should be 0 "
    "and 1. Then print what the second half reads: it should be the normed result of the first.",
    thought="First half: the tokens look at each other, so x is both who asks and what is looked at. The result is "
    "added to x, which is the residual connection, and the sum is normed with norm_1. Second half: what came out goes "
    "through the feed-forward network. Its result is added to what went in (not to the block's input), and the sum is "
    "normed with norm_2. Only the attention needs the mask, because only there tokens meet.",
)


def check_normed(output: Any, name: str) -> str | None:
    """Say if the mean of a token is not 0, or its variance not 1."""
    for i, token in enumerate(floats(output)[0]):
        if differs(token.mean(), 0):
            return (
                f"{name} is the last step. With its gain 1 and bias 0, the numbers of each token have the mean 0; "
                f"those of token {i} have the mean {token.mean():.4g}."
            )
        if abs(token.var() - 1) > 0.02:
            return (
                f"{name} is the last step. With its gain 1 and bias 0, the numbers of each token have the variance "
                f"1; those of token {i} have the variance {token.var():.4g}."
            )
    return None


def encoder(
    x: Array, layers: list[Weights], n_heads: int, mask: Array | None = None, wrong: Switches = NO_MISTAKES
) -> Array:
    """Apply one block after the other, each with its own weights."""
    original, outputs = x, [x] if "all-outputs-and-input" in wrong else list[Array]()
    for weights in select_layers(layers, wrong):
        reads = original if {"reads-original", "outputs-of-original-added"} & wrong else x
        y = encoder_block(reads, weights, n_heads, None if "mask-once" in wrong and outputs else mask, wrong)
        outputs.append(y)
        x = x + y if "added-on-the-way" in wrong else y
    if {"outputs-of-original-added", "outputs-added"} & wrong:
        return np.sum(outputs, axis=0)
    if {"all-outputs", "all-outputs-and-input"} & wrong:
        return np.stack(outputs)
    return x


def select_layers(layers: list[Weights], wrong: Switches) -> list[Weights]:
    if "always-first-layer" in wrong:
        return [layers[0]] * len(layers)
    if "always-last-layer" in wrong:
        return [layers[-1]] * len(layers)
    if "without-last-layer" in wrong:
        return layers[:-1]
    if "without-first-layer" in wrong:
        return layers[1:]
    if "first-layer-only" in wrong:
        return layers[:1]
    return layers[::-1] if "layers-reversed" in wrong else layers


SHARED_WEIGHTS = Mistake(
    "shared-weights",
    "all layers use the weights of one of them",
    "layers is a list. Which of its entries does your code read?",
    "Each layer has weights of its own: take another entry of the list each time, not always the same.",
    ways=("always-first-layer", "always-last-layer"),
)

ENCODER_MISTAKES = (
    SHARED_WEIGHTS,
    Mistake(
        "reads-original",
        "every layer reads the encoder's input, so only the last one counts",
        "What does the second layer read?",
        "Each layer reads what the one before it gave: keep the result under the name that the next one reads.",
    ),
    Mistake(
        "outputs-added",
        "the layers' outputs are added up",
        "What leaves the encoder is what the last layer gives. Where is the plus in your code?",
        "The residual connections are inside the blocks; around and between the blocks nothing is added.",
        ways=("outputs-added", "outputs-of-original-added", "added-on-the-way"),
    ),
    Mistake(
        "one-layer-too-few",
        "one layer is left out",
        "How many layers are in the list, and how many does your loop go through?",
        "Look at where your loop begins and ends: all entries of the list count, from 0 to the last.",
        ways=("without-last-layer", "without-first-layer"),
    ),
    Mistake(
        "first-layer-only",
        "only the first layer is used",
        "How often does your loop run? When does the function return?",
        "Is the return inside the loop? It belongs behind it, one step to the left.",
    ),
    Mistake(
        "layers-reversed",
        "the layers come in the opposite order",
        "Which entry of the list should see x first?",
        "layers[0] is the first layer, next to the input.",
    ),
    Mistake(
        "all-outputs",
        "the outputs of all layers come back; expected is that of the last one",
        "How many axes should the result have?",
        "What leaves the encoder is what the last layer gives, and nothing else.",
        ways=("all-outputs", "all-outputs-and-input"),
    ),
    replace(MASK_IGNORED, strong_hint="Every layer needs the mask, the first and all others."),
    Mistake(
        "mask-once",
        "only the first layer uses the mask",
        "Which mask does the second layer get?",
        "Every layer needs the mask, the first and all others. Is it still there when the second one runs?",
    ),
)

LAYERS = [block_weights(4, 3, seed=seed) for seed in (1, 2, 4)]

ENCODER = ExercisePart(
    "encoder",
    ("x", "layers", "n_heads", "mask"),
    ("output",),
    encoder,
    cases=(
        Case("two layers", (numbers(2, 2, 4, seed=1), LAYERS[:2], 2, None)),
        # of three layers, the second is neither the first nor the last
        Case("three layers, with a mask", (numbers(2, 3, 4, seed=2), LAYERS, 2, SOME_HIDDEN)),
        Case("two layers, with padding", (numbers(2, 4, 4, seed=3), LAYERS[1:], 2, PADDING)),
    ),
    mistakes=ENCODER_MISTAKES,
    properties=(
        equal(
            "one layer",
            [(TWO_TOKENS, [SMALL_BLOCK], 1, None)],
            lambda output: (output, encoder_block(TWO_TOKENS, SMALL_BLOCK, 1)),
            "With one layer, the encoder gives what encoder_block gives: output{at} should be {expected} and is "
            "{given}.",
        ),
        equal(
            "hidden tokens do not matter",
            [
                (TWO_TOKENS, [SMALL_BLOCK] * 2, 1, LAST_HIDDEN),
                (changed(TWO_TOKENS, (0, 1, 0), 3.0), [SMALL_BLOCK] * 2, 1, LAST_HIDDEN),
            ],
            lambda before, after: (floats(after)[0, 0], floats(before)[0, 0]),
            "The mask hides token 1. If that token is changed, the output of token 0 after two layers changes at {at} "
            "from {expected} to {given}.",
        ),
        equal(
            "texts are independent",
            [(TWO_TEXTS, [SMALL_BLOCK] * 2, 1, None), (changed(TWO_TEXTS, (1, 0, 0), 3.0), [SMALL_BLOCK] * 2, 1, None)],
            lambda before, after: (floats(after)[0], floats(before)[0]),
            "If only text 1 is changed, output[0]{at}, a number of text 0, changes from {expected} to {given}.",
        ),
        agrees(encoder, ("output",), "one layer, with a mask", TWO_TOKENS, [SMALL_BLOCK], 1, LAST_HIDDEN),
        agrees(encoder, ("output",), "one token, two layers", TWO_TOKENS[:, :1], [SMALL_BLOCK] * 2, 1, None),
        agrees(encoder, ("output",), "six layers", numbers(1, 2, 4, seed=4), [*LAYERS, *LAYERS], 2, None),
    ),
    hint="Try it with one layer: is the result that of encoder_block? Then with two: is it "
    "encoder_block(encoder_block(x, layers[0]), layers[1])?",
    strong_hint="Write down for each turn of your loop: what does the layer read, which weights does it use, which "
    "mask does it get, and where is its result kept?",
    thought="The first layer reads x. Each further layer reads what the one before it gave, with weights of its own. "
    "So go through the list from the start, and each time put the result in the place of x. All layers get the same "
    "number of heads and the same mask, since the tokens stay at their places. What the last layer gives is returned, "
    "after the loop.",
)

EXERCISE = Exercise(
    4,
    "encoder_block",
    "The encoder",
    parts=(CENTER, RELU, LAYER_NORM, FEED_FORWARD, ENCODER_BLOCK, ENCODER),
)
