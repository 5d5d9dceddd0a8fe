"""Exercise 8 for the grader: label smoothing, the loss, learning rate, clipping, Adam, and a training step."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from cutaway.course.exercise import NO_MISTAKES, Case, Exercise, ExercisePart, Mistake, Property, Switches
from cutaway.course.exercises.full_transformer import far_above, logits, shift_right
from cutaway.course.exercises.scaled_dot_product import (
    NO_MAXIMUM,
    ONE_MAXIMUM,
    SOFTMAX_AXES,
    WRONG_AXIS,
    Array,
    numbers,
    only_one,
    softmax,
)


def number(value: Any) -> str:
    return f"{float(value):.4g}"


def is_near(a: Any, b: Any) -> bool:
    return bool(np.allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=1e-3, atol=1e-5))


# --- count_tokens ------------------------------------------------------------------------------------------------


def count_tokens(target: Array, pad: int, wrong: Switches = NO_MISTAKES) -> Any:
    """The number of ids that are not padding."""
    fixed = next((i for i in range(2) if f"counted-pad-{i}" in wrong), pad)
    is_token = target != fixed
    if "until-padding" in wrong:
        is_token = np.logical_and.accumulate(is_token, axis=1)
    if "padding-counted" in wrong:
        is_token = np.ones_like(is_token)
    if "padding-only-counted" in wrong:
        is_token = ~is_token
    if "mask-returned" in wrong:
        return is_token
    if "per-text" in wrong:
        return is_token.sum(axis=1)
    return is_token.sum(axis=0) if "per-position" in wrong else int(is_token.sum())


COUNT_TOKENS = ExercisePart(
    "count_tokens",
    ("target", "pad"),
    ("count",),
    count_tokens,
    # 0 and 1 are ordinary tokens in most cases, to detect a padding id that is not `pad`.
    cases=(
        Case("two texts of three ids", (np.array([[5, 0, 2], [1, 2, 2]]), 2)),
        Case("three texts of four ids", (np.array([[1, 6, 0, 5], [0, 1, 9, 0], [1, 0, 9, 9]]), 9)),
        Case("padding in front and between", (np.array([[7, 3, 7, 5, 0], [0, 7, 7, 4, 1], [0, 1, 7, 0, 7]]), 7)),
        Case("pad is 0", (np.array([[5, 0, 3, 0], [1, 1, 8, 0]]), 0)),
        Case("one text of one id", (np.array([[4]]), 2)),
        Case("a text that is all padding", (np.array([[3, 3], [1, 3]]), 3)),
    ),
    mistakes=(
        Mistake(
            "padding-counted",
            "the padding is counted, too",
            "How many ids of the example are equal to pad? They are no tokens.",
            "Compare every id with pad first, and count only those that differ from it.",
        ),
        Mistake(
            "padding-only-counted",
            "the padding is counted; expected are the tokens",
            "How many ids of the example differ from pad?",
            "You count the ids that are equal to pad. Count the others.",
        ),
        Mistake(
            "counted-per-text",
            "this is a count for each text (or for each position); expected is one number for all",
            "What shape does your result have? It should be a single number.",
            "The sum should run over all axes, so it needs no axis.",
            ways=("per-text", "per-position"),
        ),
        Mistake(
            "pad-fixed",
            "a fixed id is taken for padding, not the pad that is given",
            "Which of the arguments does your code never read?",
            "Which id means padding depends on the vocabulary; it need not be 0. Take it from the argument pad.",
            ways=("counted-pad-0", "counted-pad-1"),
        ),
        Mistake(
            "until-padding",
            "counting stops at the first padding of a text; tokens after it are missing",
            "Is there a text in the example with a token after padding?",
            "Padding may stand anywhere: look at every id, also after a padding.",
        ),
        Mistake(
            "mask-returned",
            "this says for each id whether it is a token; expected is how many are",
            "What shape does your result have? It should be a single number.",
            "True counts as 1 in a sum.",
        ),
    ),
    hint="Write down for the example which ids are padding. How many are left?",
    strong_hint="Compare all ids with pad at once. The result has True and False; how many are True?",
    thought="An id is a token if it differs from pad. The comparison of the whole array with pad gives True or False "
    "for each id. True counts as 1 and False as 0. So the sum of the comparison, over all axes, is the count.",
)


# --- log_softmax -------------------------------------------------------------------------------------------------


def log_softmax(x: Array, wrong: Switches = NO_MISTAKES) -> Array:
    """x - log Σ e^x along the last axis"""
    axis = next((other for name, other in SOFTMAX_AXES.items() if name in wrong), -1)
    if axis is not None and axis >= x.ndim:
        raise ValueError("there is no such axis")
    x = x - subtracted(x, axis, wrong)
    powers = np.exp(x)
    total = powers.sum(axis=axis, keepdims=True)
    if "maximum-only" in wrong:
        return x
    if "softmax-not-log" in wrong:
        return powers / total
    if "total-not-logged" in wrong:
        return x - total
    small = next((value for name, value in SMALL.items() if name in wrong), 0.0)
    if small or {"log-of-softmax", "no-maximum", "one-maximum-p", "minimum-subtracted"} & wrong:
        log_p = np.log(powers / total + small)
    else:
        log_p = x - np.log(total)
    log_p = log_p / (np.log(2) if "log-2" in wrong else np.log(10) if "log-10" in wrong else 1.0)
    return -log_p if "sign" in wrong else log_p


SMALL = {f"plus-1e-{digits}": 10.0**-digits for digits in (7, 8, 9, 10, 12)}


def subtracted(x: Array, axis: int | None, wrong: Switches) -> Array | float:
    """Return the number to subtract so that e^x does not overflow: the maximum, unless something is wrong."""
    if {"no-maximum", "overflow-to-infinity"} & wrong:
        return 0.0
    if {"minimum-subtracted", "minimum-to-infinity"} & wrong:
        return np.asarray(x.min(axis=axis, keepdims=True))
    return np.asarray(x.max(axis=None if {"one-maximum", "one-maximum-p"} & wrong else axis, keepdims=True))


LOG_OF_SOFTMAX = Mistake(
    "log-of-softmax",
    "for a very unlikely token the softmax is 0, and the logarithm of 0 is minus infinity",
    "What do you get for [0, 1000]? It should be [-1000, 0].",
    "The logarithm of e^x / total is x - log(total). In this form nothing becomes 0 on the way. (Subtract the largest "
    "logit of the row first.)",
    shows_as_nan=True,
)
SMALL_NUMBER = Mistake(
    "small-number-in-log",
    "a small number is added to the softmax before the logarithm, so very unlikely tokens get a wrong result",
    "What do you get for [0, 1000]? It should be [-1000, 0].",
    "Do not compute the softmax first. The logarithm of e^x / total is x - log(total), which needs no small number.",
    ways=tuple(SMALL),
)
LOG_NO_MAXIMUM = replace(
    NO_MAXIMUM,
    hint="The result is the same if a number is subtracted from all logits of a row. Which number makes e^x safe?",
    ways=("no-maximum", "overflow-to-infinity", "minimum-subtracted", "minimum-to-infinity"),
)
LOG_ONE_MAXIMUM = replace(
    ONE_MAXIMUM,
    message="from all rows the same number is subtracted, the largest of all; in a row far below it all powers of e "
    "become 0",
    ways=("one-maximum", "one-maximum-p"),
)
LOG_BASE = Mistake(
    "log-base",
    "this is a logarithm to another base; meant is the natural one",
    "The logarithm of 1/2 should be -0.693.",
    "Bits are log2, and some tables use log10. np.log, torch.log and math.log are natural.",
    ways=("log-2", "log-10"),
)
SOFTMAX_NOT_LOG = Mistake(
    "softmax-not-log",
    "these are the probabilities, without the logarithm",
    "The logarithm of a probability is never above 0. Is yours?",
    "Take the logarithm of the softmax; but not as log(softmax(x)), which fails for large logits.",
)


def powers_sum_to_1(result: Any) -> str | None:
    sums = np.exp(np.asarray(result, np.float64)).sum(axis=-1)
    wrong = sums[~np.isclose(sums, 1, atol=1e-3)]
    if not wrong.size:
        return None
    return f"e to the power of a row of the result sums to {number(wrong.flat[0])}, not to 1."


LOG_SOFTMAX = ExercisePart(
    "log_softmax",
    ("logits",),
    ("result",),
    log_softmax,
    cases=(
        Case("two rows of three", (np.array([[0.0, 1.0, 2.0], [3.0, 1.0, 0.0]]),)),
        Case("large logits", (np.array([[0.0, 1000.0, 999.0, -1000.0], [4000.0, 3999.0, 3998.0, 0.0]]),)),
        Case("three axes", (numbers(2, 3, 4, seed=1),)),
        Case("one row, without other axes", (np.array([0.0, 1.0, 3.0, 2.0]),)),
    ),
    mistakes=(
        LOG_OF_SOFTMAX,
        SMALL_NUMBER,
        LOG_NO_MAXIMUM,
        LOG_ONE_MAXIMUM,
        WRONG_AXIS,
        Mistake(
            "softmax-over-everything",
            "the sum runs over the whole array, not over each row",
            "Give it two rows. Do the powers of e of each row add up to 1?",
            "The sum needs an axis, and has to keep it (keepdims), so that it fits the rows again.",
            ways=("axis-all",),
        ),
        SOFTMAX_NOT_LOG,
        Mistake(
            "total-not-logged",
            "the sum of the powers is subtracted without its logarithm",
            "What is the logarithm of e^x / total?",
            "The logarithm of a quotient is a difference of two logarithms: x - log(total).",
        ),
        Mistake(
            "maximum-only",
            "only the largest logit is subtracted; the logarithm of the sum is missing",
            "Do the powers of e of a row add up to 1?",
            "Subtracting the largest logit is only for safety. After it comes: minus the logarithm of the sum of e^x.",
        ),
        LOG_BASE,
        Mistake(
            "sign",
            "the sign is wrong",
            "A probability is at most 1. What sign does its logarithm have?",
            "The result is x - log(total), not the opposite.",
        ),
    ),
    properties=(
        Property(
            "the powers of e sum to 1", (Case("one row of two", (np.array([[0.0, math.log(3.0)]]),)),), powers_sum_to_1
        ),
    ),
    hint="Try [0, 0] with pencil and paper, then [0, 1000].",
    strong_hint="First subtract the largest logit of each row. Then apply the formula as it stands, with the logarithm "
    "of the sum.",
    thought="The softmax is e^x / total, where total is the sum of the powers of the row. Its logarithm is "
    "x - log(total): the logarithm undoes the power above the line. e^1000 is too large for a computer. But adding "
    "the same number to all logits of a row does not change the softmax, so subtract the largest one first. Then the "
    "largest power is e^0 = 1, and total is at least 1, so its logarithm is safe.",
)


# --- smooth ------------------------------------------------------------------------------------------------------


def smooth(target: Array, n_tokens: int, epsilon: float, pad: int, wrong: Switches = NO_MISTAKES) -> Array:
    """q = (1 - ε) · one-hot + ε / V, and 0 where the target is padding"""
    only_one(wrong, SPREAD)
    fixed = next((i for i in range(2) if f"pad-fixed-{i}" in wrong), pad)
    is_token = (target != fixed)[..., None]
    if "pad-inverted" in wrong:
        is_token = ~is_token
    one_hot = (target[..., None] == np.arange(n_tokens)).astype(np.float64)
    if "padding-uniform" in wrong:
        one_hot = one_hot * is_token
    q = spread(one_hot, n_tokens, epsilon, pad, wrong)
    return q if {"padding-smoothed", "padding-uniform"} & wrong else q * is_token


SPREAD = {
    "no-smoothing",
    "others-only",
    "without-padding-id",
    "padding-id-zeroed",
    "others-without-padding-id",
    "target-without-share",
    "nothing-given-up",
    "epsilon-not-divided",
    "epsilon-exchanged",
}


def spread(one_hot: Array, v: int, epsilon: float, pad: int, wrong: Switches) -> Array:
    """Give the right id 1 - ε, and spread ε over all ids."""
    others, is_real_id = 1 - one_hot, (np.arange(v) != pad).astype(np.float64)
    if "no-smoothing" in wrong:
        return one_hot
    if "others-only" in wrong:
        return (1 - epsilon) * one_hot + epsilon / (v - 1) * others
    if "without-padding-id" in wrong:
        return (1 - epsilon) * one_hot + epsilon / (v - 1) * is_real_id
    if "padding-id-zeroed" in wrong:
        return ((1 - epsilon) * one_hot + epsilon / v) * is_real_id
    if "others-without-padding-id" in wrong:
        return (1 - epsilon) * one_hot + epsilon / (v - 2) * others * is_real_id
    if "target-without-share" in wrong:
        return (1 - epsilon) * one_hot + epsilon / v * others
    if "nothing-given-up" in wrong:
        return one_hot + epsilon / v
    if "epsilon-not-divided" in wrong:
        return (1 - epsilon) * one_hot + epsilon
    if "epsilon-exchanged" in wrong:
        return epsilon * one_hot + (1 - epsilon) / v
    return (1 - epsilon) * one_hot + epsilon / v


SPREAD_MISTAKES = (
    Mistake(
        "others-only",
        "epsilon is spread over the V - 1 wrong ids; here all V ids share it, the right one too",
        "How large is the probability of the right id in the example of the stub? And in yours?",
        "Both ways are in use. Here the share of each id is epsilon / V, and the right id gets it on top of "
        "1 - epsilon.",
    ),
    Mistake(
        "without-padding-id",
        "the id of padding gets no share of epsilon; here it gets the same as every other id",
        "What should the row of a token have at the id of padding? Look at the example of the stub.",
        "Only where the target itself is padding is a row 0. In the other rows, nothing is special about the column "
        "pad.",
        ways=("without-padding-id", "padding-id-zeroed"),
    ),
    Mistake(
        "others-without-padding-id",
        "epsilon is spread over V - 2 ids, without the right one and without padding (as in The Annotated "
        "Transformer); here all V ids share it",
        "By what number is epsilon divided in the formula of the stub?",
        "Every id gets epsilon / V, the right one and padding too.",
    ),
    Mistake(
        "target-without-share",
        "the right id gets 1 - epsilon, without its own share of epsilon",
        "Add up the row of a token. Is it 1?",
        "The two terms of the formula are added, also at the right id: 1 - epsilon + epsilon / V.",
    ),
    Mistake(
        "nothing-given-up",
        "the right id keeps its full 1 and gets its share in addition; it should first give up epsilon",
        "Add up the row of a token. Is it 1?",
        "The one-hot row has a factor in the formula.",
    ),
    Mistake(
        "epsilon-not-divided",
        "every id gets the whole epsilon; it should be divided among the V ids",
        "Add up the row of a token. Is it 1?",
        "Each id gets the same share of epsilon. How many ids are there?",
    ),
    Mistake(
        "epsilon-exchanged",
        "epsilon and 1 - epsilon have changed places",
        "With epsilon 0, q should be the one-hot row. What is yours?",
        "Which of the two is the factor of the one-hot row?",
    ),
    Mistake(
        "no-smoothing",
        "there is no smoothing: the right id has probability 1",
        "Which of the arguments does your code never read?",
        "The formula has two terms. The second does not depend on the target.",
    ),
)
PAD_FIXED = Mistake(
    "pad-fixed",
    "a fixed id is taken for padding, not the pad that is given",
    "Which of the arguments does your code never read?",
    "Which id means padding depends on the vocabulary; it need not be 0. Take it from the argument pad.",
    ways=("pad-fixed-0", "pad-fixed-1"),
)


def rows_sum_to_1(q: Any) -> str | None:
    of_token, of_padding = np.asarray(q, np.float64)[0].sum(axis=-1)
    if not is_near(of_token, 1):
        return f"The probabilities of a token sum to {number(of_token)}, not to 1."
    if not is_near(of_padding, 0):
        return f"The row of padding sums to {number(of_padding)}, not to 0."
    return None


def wrong_ids_are_equal(q: Any) -> str | None:
    wrong = np.asarray(q, np.float64)[0, 0, [0, 1, 3]]
    if is_near(wrong, wrong[0]):
        return None
    return (
        f"The wrong ids get different probabilities, from {number(wrong.min())} to {number(wrong.max())}. "
        "They should be equal."
    )


ONE_TOKEN_ONE_PADDING = (Case("one token, one padding", (np.array([[2, 0]]), 4, 0.2, 0)),)

SMOOTH = ExercisePart(
    "smooth",
    ("target", "n_tokens", "epsilon", "pad"),
    ("q",),
    smooth,
    # 0 and 1 are ordinary tokens in most cases, to detect a padding id that is not `pad`.
    cases=(
        Case("one token, one padding", (np.array([[1, 3]]), 4, 0.2, 3)),
        Case("two texts of three ids, five ids in the vocabulary", (np.array([[4, 0, 2], [1, 2, 2]]), 5, 0.1, 2)),
        Case("padding in front and between", (np.array([[3, 1, 3, 0], [0, 3, 3, 2]]), 6, 0.3, 3)),
        Case("epsilon is 0", (np.array([[0, 1], [1, 2]]), 3, 0.0, 2)),
        Case("one token", (np.array([[2]]), 4, 0.4, 1)),
        Case("a text that is all padding", (np.array([[0, 0], [3, 0]]), 5, 0.5, 0)),
    ),
    mistakes=(
        *SPREAD_MISTAKES,
        Mistake(
            "padding-row-not-zero",
            "the rows of padding are not 0",
            "Where the target is pad, the model has nothing to say. What does your row have there?",
            "Set the rows of padding to 0 at the end, all V numbers of each.",
            ways=("padding-smoothed", "padding-uniform"),
        ),
        Mistake(
            "pad-inverted",
            "the rows of tokens are 0, and those of padding are not",
            "Which rows should be 0?",
            "You keep the rows where the target is pad. Keep the others.",
        ),
        PAD_FIXED,
    ),
    properties=(
        Property("rows sum to 1, or to 0 at padding", ONE_TOKEN_ONE_PADDING, rows_sum_to_1),
        Property("all wrong ids are equal", ONE_TOKEN_ONE_PADDING, wrong_ids_are_equal),
    ),
    hint="Compute one row with pencil and paper, for V = 4 and epsilon 0.2. What does it add up to?",
    strong_hint="Three steps: the one-hot rows, the formula, then 0 in all rows where the target is pad.",
    thought="Without smoothing, q has 1 at the right id and 0 elsewhere. Smoothing takes epsilon away from the right "
    "id and divides it among all V ids. So every id gets epsilon / V, and the right one has 1 - epsilon in addition. "
    "Such a row sums to 1. A padding position has no right id; a row of zeros makes sure that it adds nothing to "
    "the loss.",
)


# --- smoothed_loss -----------------------------------------------------------------------------------------------


def smoothed_loss(x: Array, target: Array, epsilon: float, pad: int, wrong: Switches = NO_MISTAKES) -> Any:
    """The mean of -Σ q log p over all tokens that are not padding."""
    v = x.shape[-1]
    pad = next((i for i in range(2) if f"loss-pad-{i}" in wrong), pad)
    q = smooth(target, v, epsilon, pad, wrong | ({"padding-smoothed"} if "padding-as-tokens" in wrong else set()))
    losses = losses_at_positions(x, target, q, epsilon, wrong)
    if "padding-times-zero" not in wrong:
        losses = np.where(q.any(axis=-1), losses, 0.0)
    if "per-token" in wrong:
        return losses
    if "per-real-token" in wrong:
        return losses[target != pad]
    n = target.size if "padding-as-tokens" in wrong else count_tokens(target, pad, wrong)
    if "uniform-over-positions" in wrong:  # the term with epsilon is a mean over all positions
        of_right = losses_at_positions(x, target, smooth(target, v, 0.0, pad, wrong), 0.0, wrong)
        of_all = losses_at_positions(x, target, np.full(x.shape, 1 / v), epsilon, wrong)
        return (1 - epsilon) * of_right[target != pad].mean() + epsilon * of_all.mean()
    if "mean-of-means" in wrong:
        return np.mean(losses.sum(axis=1) / (target != pad).sum(axis=1))
    divisors = {
        "sum-not-mean": 1,
        "divided-by-texts": len(target),
        "mean-over-everything": target.size * v,
        "mean-over-tokens-and-ids": n * v,
    }
    return losses.sum() / next((by for name, by in divisors.items() if name in wrong), n)


def losses_at_positions(x: Array, target: Array, q: Array, epsilon: float, wrong: Switches) -> Array:
    """-Σ q log p at each position"""
    only_one(wrong, {"probabilities-smoothed", "no-softmax", "softmax-twice", "softmax-not-log"})
    if "probabilities-smoothed" in wrong:
        p = np.take_along_axis(softmax(x), target[..., None], axis=-1)[..., 0]
        return -np.log((1 - epsilon) * p + epsilon / x.shape[-1])
    log_p = x if "no-softmax" in wrong else log_softmax(softmax(x) if "softmax-twice" in wrong else x, wrong)
    if "kl-divergence" in wrong:
        log_p = log_p - np.log(np.where(q > 0, q, 1.0))
    losses: Array = -(q * log_p).sum(axis=-1)
    return -losses if "loss-sign" in wrong else losses


def same_with_padding(short: Any, long: Any) -> str | None:
    if is_near(short, long):
        return None
    return f"With one more padding position the loss changes from {number(short)} to {number(long)}. It should not."


def log_v_if_equal(*losses: Any) -> str | None:
    return next(
        (
            f"If all logits of 4 ids are equal, the loss is {number(loss)}, not log 4 = 1.386."
            for loss in losses
            if not is_near(loss, math.log(4))
        ),
        None,
    )


def same_in_other_order(one: Any, other: Any) -> str | None:
    if is_near(one, other):
        return None
    return (
        f"If the two texts change places, the loss changes from {number(one)} to {number(other)}. "
        "The order of the texts should not matter."
    )


TARGETS = (
    np.array([[4, 0, 1], [2, 3, 3]]),
    np.array([[0, 4, 1, 2], [1, 4, 4, 4]]),
    np.array([[1, 4, 0], [0, 2, 2], [1, 3, 2]]),
    np.array([[3, 1, 3, 0], [0, 3, 2, 2]]),
)
TWO_TEXTS = numbers(2, 2, 3, seed=4)
LONGER = np.concatenate([numbers(1, 2, 3, seed=4), numbers(1, 1, 3, seed=5)], axis=1)

SMOOTHED_LOSS = ExercisePart(
    "smoothed_loss",
    ("logits", "target", "epsilon", "pad"),
    ("loss",),
    smoothed_loss,
    # A loss is one number, so it takes several cases to recognise a mistake.
    cases=(
        Case("two tokens", (np.array([[[0.0, 1.0, 2.0], [1.5, 0.0, 0.5]]]), np.array([[2, 1]]), 0.3, 0)),
        Case("two texts, with padding", (logits(2, 3, 5, seed=2, above=(0.0,)), TARGETS[0], 0.2, 3)),
        Case("much padding", (logits(2, 4, 5, seed=3, above=(0.0,)), TARGETS[1], 0.4, 4)),
        Case("three texts", (logits(3, 3, 5, seed=4, above=(0.0,)), TARGETS[2], 0.1, 2)),
        Case("padding in front and between", (logits(2, 4, 6, seed=6, above=(0.0,)), TARGETS[3], 0.5, 3)),
        Case("epsilon is 0", (logits(2, 4, 5, seed=5, above=(0.0,)), TARGETS[1], 0.0, 4)),
        # much larger in one text than in another, so that one maximum for all is not enough
        Case("large logits", (logits(2, 3, 5, seed=5, above=(1000.0, 3000.0)), TARGETS[0], 0.1, 3)),
        Case("large logits, one text", (logits(1, 2, 5, seed=8, above=(2000.0,)), np.array([[1, 3]]), 0.2, 0)),
        Case("larger logits", (logits(2, 4, 5, seed=6, above=(4000.0, 2000.0)), TARGETS[1], 0.2, 4)),
        Case(
            "large logits, three texts", (logits(3, 3, 5, seed=7, above=(1500.0, 4500.0, 3000.0)), TARGETS[2], 0.1, 2)
        ),
        Case(
            "no chance for the right ids",
            (far_above(logits(2, 3, 5, seed=9), (TARGETS[0] + 1) % 5), TARGETS[0], 0.1, 3),
        ),
        Case("no chance, three texts", (far_above(logits(3, 3, 5, seed=10), (TARGETS[2] + 2) % 5), TARGETS[2], 0.1, 2)),
        Case("no chance for all other ids", (far_above(logits(2, 4, 5, seed=11), TARGETS[1]), TARGETS[1], 0.2, 4)),
    ),
    mistakes=(
        *SPREAD_MISTAKES,
        replace(PAD_FIXED, ways=("loss-pad-0", "loss-pad-1")),
        Mistake(
            "padding-as-tokens",
            "the padding counts as if it were tokens",
            "How many tokens of the example are no padding? Over how many does your mean go?",
            "Where the target is pad, nothing is to be predicted: leave those positions out, above and below the line.",
        ),
        Mistake(
            "padding-in-the-sum",
            "padding adds to the loss; it should add nothing",
            "What does a position cost whose target is pad? It should be 0.",
            "Leave the padding positions out of all terms of the sum, also out of the term with epsilon.",
            ways=("padding-smoothed", "padding-uniform", "uniform-over-positions"),
        ),
        Mistake(
            "divided-by-all",
            "padding is left out of the sum, but counted in the number that divides it",
            "How many tokens of the example are no padding? By what do you divide?",
            "Divide by the number of tokens whose losses you added up, not by the number of all positions.",
            ways=("padding-counted",),
        ),
        Mistake(
            "sum-not-mean",
            "this is the sum; expected is the mean",
            "Does your loss grow when the same texts are given twice? It should not.",
            "Divide by the number of tokens that are not padding.",
        ),
        Mistake(
            "divided-by-texts",
            "the sum is divided by the number of texts, not of tokens",
            "By what do you divide?",
            "Each token counts the same: divide by the number of tokens that are not padding.",
        ),
        Mistake(
            "mean-of-means",
            "this is the mean of each text's mean, so a token of a short text counts for more",
            "Do all tokens of the example count the same?",
            "Add up the losses of the tokens of all texts first, and divide once.",
        ),
        Mistake(
            "mean-over-vocabulary",
            "the loss is also divided by the size of the vocabulary",
            "Which axes does your mean have? The loss of one token is a sum over the V ids.",
            "Sum over the last axis, and take the mean over tokens only.",
            ways=("mean-over-everything", "mean-over-tokens-and-ids"),
        ),
        Mistake(
            "per-token",
            "these are the losses of the single tokens; expected is their mean, one number",
            "What shape does your result have?",
            "Add up the losses of all tokens that are not padding, and divide by how many they are.",
            ways=("per-token", "per-real-token"),
        ),
        Mistake(
            "kl-divergence",
            "this is the Kullback-Leibler divergence from q to p: the entropy of q is subtracted",
            "If all logits are equal, is your loss log V? It should be, with any epsilon.",
            "The divergence has Σ q (log q - log p). The cross-entropy has only -Σ q log p. (Their gradients are "
            "equal, so both train the same model.)",
        ),
        Mistake(
            "probabilities-smoothed",
            "the model's probability is smoothed, and then comes the logarithm; smoothed should be the target",
            "Which of the two distributions in -Σ q log p has epsilon in it?",
            "q is smoothed, p is not. The logarithms of all p are weighted with q.",
        ),
        Mistake(
            "loss-sign",
            "the sign is wrong",
            "Should the loss become smaller or larger when the model becomes better?",
            "The logarithm of a probability is negative; the loss is its opposite.",
            ways=("loss-sign", "sign"),
        ),
        Mistake(
            "no-softmax",
            "the logits themselves are used for log p",
            "What is p in the formula, and what do you have in its place?",
            "First the logarithms of the probabilities, from the logits, along the last axis.",
        ),
        Mistake(
            "softmax-twice",
            "there are two softmaxes, one after the other",
            "Is there a softmax in a function that you call?",
            "log_softmax, and cross_entropy of torch, take logits, not probabilities.",
        ),
        replace(
            SOFTMAX_NOT_LOG,
            message="the probabilities are used without the logarithm",
            hint="What does a token cost to which the model gives the probability 1? It should be 0 without smoothing.",
        ),
        replace(
            LOG_OF_SOFTMAX,
            hint="What is your loss for the logits [0, 1000], the target 0 and epsilon 0? It should be 1000.",
        ),
        replace(
            SMALL_NUMBER,
            hint="What is your loss for the logits [0, 1000], the target 0 and epsilon 0? It should be 1000.",
        ),
        replace(LOG_NO_MAXIMUM, ways=("no-maximum", "overflow-to-infinity")),
        LOG_ONE_MAXIMUM,
        WRONG_AXIS,
        LOG_BASE,
    ),
    # Padding may be removed or multiplied by 0, and 0 times infinity is nan.
    free_choices=("padding-times-zero",),
    properties=(
        Property(
            "padding does not change the loss",
            (
                Case("two tokens", (LONGER[:, :2], np.array([[1, 2]]), 0.2, 0)),
                Case("the same with one padding", (LONGER, np.array([[1, 2, 0]]), 0.2, 0)),
            ),
            same_with_padding,
        ),
        Property(
            "equal logits cost log V",
            (
                Case("equal logits, epsilon is 0", (np.zeros((1, 1, 4)), np.array([[1]]), 0.0, 0)),
                Case("equal logits, epsilon is 0.2", (np.ones((1, 1, 4)), np.array([[1]]), 0.2, 0)),
            ),
            log_v_if_equal,
        ),
        Property(
            "the order of the texts does not matter",
            (
                Case("two texts", (TWO_TEXTS, np.array([[1, 2], [2, 0]]), 0.2, 0)),
                Case("two texts in the other order", (TWO_TEXTS[::-1].copy(), np.array([[2, 0], [1, 2]]), 0.2, 0)),
            ),
            same_in_other_order,
        ),
    ),
    hint="Compute the small example of the stub with pencil and paper, step by step. Where does your code differ?",
    strong_hint="You have written the three pieces: smooth gives q, log_softmax gives log p, and count_tokens gives "
    "the number to divide by.",
    thought="The loss of one token is -Σ q log p over the V ids: the smoothed target q weights the logarithms of the "
    "model's probabilities. smooth gives q for all positions, and log_softmax gives log p, both of shape [B, T, V]. "
    "Multiply them number by number and add everything up. Padding rows of q are 0, so padding adds nothing. The mean "
    "is this sum divided by the number of tokens that are not padding.",
)


# --- warmup_cosine -----------------------------------------------------------------------------------------------


def warmup_cosine(
    step: int, peak: float, warmup: int, total: int, floor: float, wrong: Switches = NO_MISTAKES
) -> float:
    """A line from 0 to peak at step = warmup, then half a cosine to floor at step = total, then floor."""
    step += 1 if "step-plus-one" in wrong else -1 if "step-minus-one" in wrong else 0
    if step < warmup and "cosine-for-warmup" not in wrong:
        climb = 1.0 if "peak-from-start" in wrong else (step - ("climb-minus-one" in wrong)) / warmup
        return floor + (peak - floor) * climb if "warmup-from-floor" in wrong else peak * climb
    progress = (step - warmup) / (total - warmup)
    if "progress-of-total" in wrong:
        progress = step / total
    if "divided-by-total" in wrong:
        progress = (step - warmup) / total
    if step > total and "climbs-again" not in wrong:
        if "zero-after-end" in wrong:
            return 0.0
        if not {"end-clamped", "floor-ignored"} & wrong:
            return floor
        progress = 1.0
    return above_floor(peak, floor, wave(progress, wrong), wrong)


def wave(progress: float, wrong: Switches) -> float:
    """Half a cosine, from 1 at progress 0 to 0 at progress 1."""
    only_one(wrong, {"linear", "whole-wave", "quarter-wave", "not-halved", "only-cosine", "rises", "no-pi"})
    if "linear" in wrong:
        return 1 - progress
    if "quarter-wave" in wrong:
        return math.cos(math.pi / 2 * progress)
    if "rises" in wrong:
        return 0.5 * (1 - math.cos(math.pi * progress))
    angle = progress if "no-pi" in wrong else (2 if "whole-wave" in wrong else 1) * math.pi * progress
    if "only-cosine" in wrong:
        return math.cos(angle)
    return (1.0 if "not-halved" in wrong else 0.5) * (1 + math.cos(angle))


def above_floor(peak: float, floor: float, height: float, wrong: Switches) -> float:
    """Stretch a height between 0 and 1 to a rate between floor and peak."""
    if {"floor-ignored", "floor-only-after-end"} & wrong:
        return peak * height
    if "floor-added" in wrong:
        return floor + peak * height
    if "floor-as-minimum" in wrong:
        return max(floor, peak * height)
    if "floor-as-fraction" in wrong:
        return peak * (floor + (1 - floor) * height)
    return floor + (peak - floor) * height


def peak_at_warmup(*rates: Any) -> str | None:
    if not is_near(rates[0], 3):
        return f"At step = warmup = 4 the rate is {number(rates[0])}, not the peak 3."
    return (
        None if is_near(rates[1], 2) else f"With warmup = 1 the rate of step 1 is {number(rates[1])}, not the peak 2."
    )


def floor_at_total(at_total: Any, later: Any) -> str | None:
    if not is_near(at_total, 1):
        return f"At step = total = 8 the rate is {number(at_total)}, not the floor 1."
    return None if is_near(later, 1) else f"After step = total = 8 the rate is {number(later)}, not the floor 1."


def mean_half_way(rate: Any) -> str | None:
    if is_near(rate, 2):
        return None
    return f"Half way between warmup and total the rate is {number(rate)}, not 2, the mean of peak 3 and floor 1."


WARMUP_COSINE = ExercisePart(
    "warmup_cosine",
    ("step", "peak", "warmup", "total", "floor"),
    ("rate",),
    warmup_cosine,
    # Steps at exactly warmup or total are among the properties: what a mistake does there depends on < or <=.
    cases=(
        Case("in the warmup", (1, 1.0, 4, 12, 0.2)),
        Case("after the warmup", (6, 1.0, 4, 12, 0.2)),
        Case("shortly before the end", (11, 1.0, 4, 12, 0.2)),
        Case("after the end", (15, 1.0, 4, 12, 0.2)),
        Case("in the warmup, with other numbers", (3, 2.0, 5, 9, 0.5)),
        Case("after the warmup, with other numbers", (6, 2.0, 5, 9, 0.5)),
        Case("after the end, with other numbers", (26, 2.0, 5, 9, 0.5)),
        Case("at the end of a longer warmup", (7, 3.0, 8, 13, 0.75)),
        Case("after a longer warmup", (10, 3.0, 8, 13, 0.75)),
        Case("far from the peak", (12, 3.0, 8, 13, 0.75)),
        Case("after the end of a longer warmup", (14, 3.0, 8, 13, 0.75)),
        Case("floor is 0", (5, 2.0, 2, 11, 0.0)),
    ),
    mistakes=(
        Mistake(
            "no-warmup",
            "there is no warmup: the rate is not on the line from 0 to peak",
            "What should the rate at step 1 be, with peak 1 and warmup 4?",
            "As long as step is smaller than warmup, the rate is a part of peak: step / warmup.",
            ways=("peak-from-start", "cosine-for-warmup"),
        ),
        Mistake(
            "step-plus-one",
            "the rate is that of the next step",
            "Does the first step have number 0 or 1?",
            "Steps are counted from 1 here, so nothing has to be added.",
        ),
        Mistake(
            "step-minus-one",
            "1 is subtracted from step",
            "Does the first step have number 0 or 1? Is your rate at step 1 larger than 0?",
            "Steps are counted from 1 here, so nothing has to be subtracted.",
            ways=("step-minus-one", "climb-minus-one"),
        ),
        Mistake(
            "warmup-from-floor",
            "the warmup begins at floor; it should begin at 0",
            "Which line goes through 0 at step 0, and through peak at step = warmup?",
            "floor has no part in the warmup.",
        ),
        Mistake(
            "progress-from-start",
            "the cosine does not run from warmup to total, but over another number of steps",
            "How far has the cosine come at step = warmup? And at step = total?",
            "It has come 0 at step = warmup, and 1 at step = total. Both the steps that are done and all steps are "
            "counted from warmup on.",
            ways=("progress-of-total", "divided-by-total"),
        ),
        Mistake(
            "linear",
            "the rate falls along a straight line, not along a cosine",
            "What is the rate a quarter of the way down? A cosine has hardly fallen there.",
            "Put the progress, from 0 to 1, through a cosine: its angle goes from 0 to π.",
        ),
        Mistake(
            "whole-wave",
            "this is a whole wave of the cosine: the rate falls, and climbs again before the end",
            "Where is the rate lowest? It should be at step = total.",
            "From top to bottom is half a wave: an angle from 0 to π, not to 2π.",
        ),
        Mistake(
            "quarter-wave",
            "this is a quarter of a wave: the cosine from angle 0 to π/2",
            "How steep is the curve at the end? It should be flat there.",
            "From top to bottom is half a wave, an angle from 0 to π, where the cosine goes from 1 to -1.",
        ),
        Mistake(
            "no-pi",
            "the angle goes from 0 to 1; it should go from 0 to π",
            "What is the rate just before step = total?",
            "cos(1) is 0.54, and cos(π) is -1. Something is missing in the angle.",
        ),
        Mistake(
            "not-halved",
            "the cosine plus 1 goes from 2 to 0, so the rate begins at about twice the peak",
            "What is your rate just after the warmup?",
            "1 + cos goes from 2 to 0. A half is missing.",
        ),
        Mistake(
            "only-cosine",
            "the cosine goes from 1 to -1; it should be moved and stretched to go from 1 to 0",
            "What is your rate just before the end? Is it below the floor?",
            "Add 1 to the cosine, and halve the result.",
        ),
        Mistake(
            "rises",
            "the rate climbs after the warmup; it should fall",
            "What is your rate just after the warmup, and just before the end?",
            "Look at the sign of the cosine.",
        ),
        Mistake(
            "floor-ignored",
            "the cosine falls to 0; it should fall to floor",
            "What does your code do with the argument floor before the end?",
            "Only the distance from floor to peak shrinks with the cosine. floor itself is always there.",
            ways=("floor-ignored", "floor-only-after-end"),
        ),
        Mistake(
            "floor-added",
            "the floor is added to the whole curve, so it begins above the peak",
            "What is your rate just after the warmup? Compare it with peak.",
            "Stretch the cosine by the distance from floor to peak, not by peak.",
        ),
        Mistake(
            "floor-as-minimum",
            "the cosine falls to 0 and is cut off at floor; it should reach floor only at the end",
            "What is the rate half way down? It should be the mean of peak and floor.",
            "Stretch the curve so that its lowest point is floor.",
        ),
        Mistake(
            "floor-as-fraction",
            "the floor is taken for a fraction of peak; here it is a rate itself",
            "What should the rate at the end be, with peak 2 and floor 0.5?",
            "The lowest rate is floor, not floor · peak.",
        ),
        Mistake(
            "climbs-again",
            "after step = total the cosine goes on, and the rate climbs again",
            "What is the rate at a step after total?",
            "Let the progress be at most 1.",
        ),
        Mistake(
            "zero-after-end",
            "after step = total the rate is 0; it should stay at floor",
            "What is the rate at a step after total?",
            "The training may go on after total, with the rate floor.",
        ),
    ),
    # After the end: return floor, or go on with the progress 1
    free_choices=("end-clamped",),
    properties=(
        Property(
            "peak at step = warmup",
            (Case("at the peak", (4, 3.0, 4, 8, 1.0)), Case("a warmup of one step", (1, 2.0, 1, 8, 1.0))),
            peak_at_warmup,
        ),
        Property(
            "floor at step = total",
            (Case("at the end", (8, 3.0, 4, 8, 1.0)), Case("just after the end", (9, 3.0, 4, 8, 1.0))),
            floor_at_total,
        ),
        Property("the mean half way", (Case("half way down", (6, 3.0, 4, 8, 1.0)),), mean_half_way),
    ),
    hint="Draw the curve for peak 1, warmup 4, total 12 and floor 0.2. Which piece of it does your code get wrong?",
    strong_hint="There are three pieces: a line up to warmup, half a cosine from warmup to total, and floor after it. "
    "For the cosine you need a progress that is 0 at warmup and 1 at total.",
    thought="Before warmup, the rate is on a line through 0: peak · step / warmup. After it, measure how far the "
    "training has come: (step - warmup) / (total - warmup) goes from 0 to 1. The cosine of π times that goes from 1 "
    "to -1; plus 1, and halved, it goes from 1 to 0. Multiplied by the distance from floor to peak, and added to "
    "floor, it goes from peak to floor. A progress above 1 is held at 1.",
)


# --- clip --------------------------------------------------------------------------------------------------------


def clip_gradients(gradients: list[Array], max_norm: float, wrong: Switches = NO_MISTAKES) -> tuple[list[Array], Any]:
    """Multiply all gradients by max_norm / norm if their norm is larger."""
    only_one(wrong, OTHER_FACTORS)
    norm = global_norm(gradients, wrong)
    return rescale(gradients, max_norm, norm, wrong), min(norm, max_norm) if "norm-after-clipping" in wrong else norm


OTHER_FACTORS = {
    "not-clipped",
    "each-array",
    "each-number",
    "always-scaled",
    "below-scaled",
    "max-norm-ignored",
    "factor-inverted",
}


def rescale(gradients: list[Array], max_norm: float, norm: Any, wrong: Switches) -> list[Array]:
    if "not-clipped" in wrong:
        return gradients
    if "each-array" in wrong:
        return [g * min(1.0, max_norm / max(1e-12, np.sqrt((g**2).sum()))) for g in gradients]
    if "each-number" in wrong:
        return [g.clip(-max_norm, max_norm) for g in gradients]
    if "always-scaled" in wrong:
        return [g * max_norm / (norm + ("small-number-added" in wrong) * 1e-6) for g in gradients]
    is_scaled = norm < max_norm if "below-scaled" in wrong else norm > max_norm
    if not is_scaled:
        return gradients
    factor = max_norm / norm
    if "max-norm-ignored" in wrong:
        factor = 1 / norm
    if "factor-inverted" in wrong:
        factor = norm / max_norm
    return [g * factor for g in gradients]


def global_norm(gradients: list[Array], wrong: Switches) -> Any:
    norms = [np.sqrt((g**2).sum()) for g in gradients]
    everything = np.concatenate([g.ravel() for g in gradients])
    if "norm-not-rooted" in wrong:
        return (everything**2).sum()
    if "norm-of-last" in wrong:
        return norms[-1]
    if "norm-of-first" in wrong:
        return norms[0]
    if "sum-of-norms" in wrong:
        return sum(norms)
    if "largest-norm" in wrong:
        return max(norms)
    if "sum-of-sizes" in wrong:
        return np.abs(everything).sum()
    if "largest-number" in wrong:
        return np.abs(everything).max()
    if "root-of-mean" in wrong:
        return np.sqrt((everything**2).mean())
    return np.sqrt((everything**2).sum())


def clip(gradients: list[Array], max_norm: float, wrong: Switches = NO_MISTAKES) -> Any:
    """Select the return value, which can be wrong too."""
    clipped, norm = clip_gradients(gradients, max_norm, wrong)
    if "only-gradients" in wrong:
        return clipped
    return (norm, clipped) if "norm-first" in wrong else (clipped, norm)


def norm_is_limited(long: Any, short: Any) -> str | None:
    norm = np.sqrt(sum((np.asarray(g, np.float64) ** 2).sum() for g in long[0]))
    if not is_near(norm, 2):
        return f"After clipping to the norm 2, the norm of all numbers together is {number(norm)}."
    if not is_near(np.concatenate([np.ravel(g) for g in short[0]]), [0.3, 0.4]):
        return "Gradients of norm 0.5 are changed, though max_norm is 2. They should stay as they are."
    return None


def direction_is_kept(result: Any, _: Any) -> str | None:
    (a, b), (c,) = (np.asarray(g, np.float64).ravel() for g in result[0])
    if is_near(a / b, 1 / 2) and is_near(b / c, 1):
        return None
    return (
        f"The gradients 1, 2, 2 have the ratios 1 : 2 : 2; after clipping they are {number(a)}, {number(b)}, "
        f"{number(c)}. The direction should not change."
    )


CLIPPED_AND_NOT = (
    Case("a norm of 3, at most 2", ([np.array([1.0, 2.0]), np.array([[2.0]])], 2.0)),
    Case("a norm of 0.5, at most 2", ([np.array([0.3]), np.array([[0.4]])], 2.0)),
)
TWO_SHAPES = [numbers(2, 3, seed=1), numbers(3, seed=2)]

CLIP = ExercisePart(
    "clip",
    ("gradients", "max_norm"),
    ("gradients", "norm"),
    clip,
    cases=(
        Case("two arrays, too long", ([np.array([2.0, -1.0]), np.array([4.0, 2.0])], 1.0)),
        Case("two arrays, not too long", ([np.array([2.0, -1.0]), np.array([4.0, 2.0])], 8.0)),
        Case("arrays of different shapes", (TWO_SHAPES, 3.0)),
        Case(
            "three arrays, one of them short",
            ([numbers(2, 2, seed=3), numbers(3, seed=4) / 8, numbers(4, seed=5)], 2.0),
        ),
        Case("one array of one number", ([np.array([-6.0])], 4.0)),
        Case("a little too long", ([np.array([[0.6, 0.8], [1.0, 1.0]]), np.array([1.0])], 1.5)),
        Case("all numbers are 0", ([np.zeros(2), np.zeros((1, 2))], 1.0)),
        Case(
            "three arrays, not too long",
            ([numbers(2, 2, seed=6) / 4, numbers(3, seed=7) / 4, numbers(1, seed=8) / 4], 5.0),
        ),
        Case("many numbers", ([numbers(20, 15, seed=9), numbers(15, seed=10)], 5.0)),
    ),
    mistakes=(
        Mistake(
            "each-array",
            "each array is clipped by its own norm; all of them together have one norm and one factor",
            "By which factor does your code multiply the first array? And the second?",
            "Compute the norm over all arrays first, before you change any of them.",
        ),
        Mistake(
            "each-number",
            "each number is cut off at max_norm; all numbers should be multiplied by the same factor",
            "Is a number that is twice another still twice as large after clipping?",
            "Multiply all numbers by max_norm / norm, if the norm is too large.",
        ),
        Mistake(
            "always-scaled",
            "gradients that are short enough are made longer",
            "What should become of gradients whose norm is below max_norm?",
            "Compare norm with max_norm first: the factor is at most 1.",
        ),
        Mistake(
            "below-scaled",
            "the comparison is the wrong way round: short gradients are scaled, and long ones are not",
            "Which gradients should be changed, those with a norm above max_norm, or below?",
            "Look at the sign < or > in your condition, or at min and max.",
        ),
        Mistake(
            "not-clipped",
            "the gradients stay as they were, though they are too long",
            "Compute the norm of what you return. Is it at most max_norm?",
            "If norm is larger than max_norm, multiply all numbers by max_norm / norm.",
        ),
        Mistake(
            "norm-after-clipping",
            "the norm is that after clipping; expected is that of the gradients as they were given",
            "What is the norm of the gradients that the function was given?",
            "Keep the norm that you computed first, and return it.",
        ),
        Mistake(
            "norm-not-rooted",
            "the norm is the sum of the squares, without the root",
            "How long is a vector with the numbers 3 and 4? It should be 5.",
            "After adding up the squares comes a square root.",
        ),
        Mistake(
            "norm-of-one-array",
            "the norm is that of one array of the list, not of all",
            "Which arrays of the list does your norm depend on?",
            "Add up the squares of all arrays. In a loop, the sum must not begin again with each array.",
            ways=("norm-of-last", "norm-of-first"),
        ),
        Mistake(
            "sum-of-norms",
            "the norms of the arrays are added up; it should be their squares, with a root at the end",
            "How long are two arrays together whose lengths are 3 and 4? It should be 5.",
            "Add up the squares of all numbers first, and take the root once.",
        ),
        Mistake(
            "largest-norm",
            "the norm is the largest norm of an array; expected is the norm of all numbers together",
            "How long are two arrays together whose lengths are 3 and 4? It should be 5.",
            "Add up the squares of all numbers of all arrays, and take the root.",
        ),
        Mistake(
            "other-norm",
            "this is another norm: the sum (or the largest) of the absolute values",
            "How long is a vector with the numbers 3 and 4? It should be 5.",
            "The norm is the square root of the sum of the squares.",
            ways=("sum-of-sizes", "largest-number"),
        ),
        Mistake(
            "root-of-mean",
            "the norm has the mean of the squares under the root; it should be their sum",
            "How long is a vector with the numbers 3 and 4? It should be 5.",
            "Longer lists have larger norms: add up the squares, without dividing.",
        ),
        Mistake(
            "max-norm-ignored",
            "the gradients are brought to the norm 1, not to max_norm",
            "What is the norm of what you return, if max_norm is 2?",
            "Divided by their norm, the gradients have norm 1. A factor is missing.",
        ),
        Mistake(
            "factor-inverted",
            "the factor is norm / max_norm, so long gradients become longer",
            "Is the factor below 1 if the norm is too large?",
            "Exchange what is above and below the line.",
        ),
        Mistake(
            "norm-first",
            "the gradients and the norm come back in the other order",
            "Which of the two is asked for first?",
            "First the list of gradients, then the norm.",
        ),
        Mistake(
            "only-gradients",
            "only the gradients come back; the norm is asked for, too",
            "How many things should the function return?",
            "Return two things, with a comma between them: the list of gradients, and the norm.",
        ),
    ),
    free_choices=("small-number-added",),  # as in torch; only always-scaled shows it
    properties=(
        Property("the norm is at most max_norm", CLIPPED_AND_NOT, norm_is_limited),
        Property("the direction is kept", CLIPPED_AND_NOT, direction_is_kept),
    ),
    hint="Take the gradients [[3, 0], [4]] and max_norm 1. What is the norm, and what should come out?",
    strong_hint="Two steps: one norm from all numbers of all arrays, then one factor for all. The factor is 1 if the "
    "norm is small enough.",
    thought="Think of all numbers of all arrays as one long vector. Its length is the root of the sum of the squares. "
    "If it is too long, it should become max_norm long and keep its direction. So all numbers are multiplied by "
    "max_norm / norm. If it is short enough, nothing changes. Return the norm before clipping: it shows how the "
    "training goes.",
)


# --- adam --------------------------------------------------------------------------------------------------------


def adam_step(
    weight: Array,
    gradient: Array,
    m: Array,
    v: Array,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    wrong: Switches = NO_MISTAKES,
) -> tuple[Array, Array, Array]:
    """One step of Adam: the new weight, m and v"""
    if "betas-exchanged" in wrong:
        beta1, beta2 = beta2, beta1
    new_m = running_mean(m, gradient, beta1, wrong, {"share-missing", "share-of-m-missing"})
    new_v = running_mean(v, squares(gradient, new_m, wrong), beta2, wrong, {"share-missing", "share-of-v-missing"})
    used_m, used_v = (m, v) if "old-moments-used" in wrong else (new_m, new_v)
    m_hat, v_hat = correct(used_m, used_v, step, beta1, beta2, wrong)
    if "gradient-for-m" in wrong:
        m_hat = gradient
    deviation = root(v_hat, used_v, eps, wrong)
    change = lr * m_hat / deviation
    new_weight = weight + change if "ascent" in wrong else weight - change
    if "corrected-returned" in wrong:
        return new_weight, m_hat, v_hat
    return (new_weight, m, v) if "old-moments-returned" in wrong else (new_weight, new_m, new_v)


def running_mean(old: Array, new: Array, beta: float, wrong: Switches, missing: set[str]) -> Array:
    if "shares-exchanged" in wrong:
        beta = 1 - beta
    return beta * old + (1.0 if missing & wrong else 1 - beta) * new


def squares(gradient: Array, m: Array, wrong: Switches) -> Array:
    if "v-not-squared" in wrong:
        return gradient
    if "v-of-sizes" in wrong:
        return np.abs(gradient)
    return m**2 if "v-from-m" in wrong else gradient**2


def correct(m: Array, v: Array, step: int, beta1: float, beta2: float, wrong: Switches) -> tuple[Array, Array]:
    """Divide by what the shares sum to so far."""
    step += 1 if "adam-step-plus-one" in wrong else -1 if "adam-step-minus-one" in wrong else 0
    if "power-missing" in wrong:
        step = 1
    sums = np.float64(1 - beta1**step), np.float64(1 - beta2**step)
    if "power-of-share" in wrong:
        sums = np.float64((1 - beta1) ** step), np.float64((1 - beta2) ** step)
    if "multiplied-by-correction" in wrong:
        sums = 1 / sums[0], 1 / sums[1]
    m_hat = m if {"no-correction", "only-v-corrected"} & wrong else m / sums[0]
    v_hat = v if {"no-correction", "only-m-corrected"} & wrong else v / sums[1]
    return m_hat, v_hat


def root(v_hat: Array, v: Array, eps: float, wrong: Switches) -> Array:
    only_one(wrong, {"v-not-rooted", "eps-inside-root", "eps-before-correction", "no-eps"})
    if "v-not-rooted" in wrong:
        return v_hat + eps
    if "eps-inside-root" in wrong:
        return np.sqrt(v_hat + eps)
    if "eps-before-correction" in wrong:
        with np.errstate(all="ignore"):
            return np.sqrt(v_hat) + eps * np.sqrt(np.where(v > 0, v_hat / v, 1.0))
    return np.sqrt(v_hat) + (0.0 if "no-eps" in wrong else eps)


def adam(
    weight: Array,
    gradient: Array,
    m: Array,
    v: Array,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    wrong: Switches = NO_MISTAKES,
) -> Any:
    """Select the return value, which can be wrong too."""
    result = adam_step(weight, gradient, m, v, step, lr, beta1, beta2, eps, wrong)
    return result[0] if "only-weight" in wrong else result


def first_step_is_lr(result: Any) -> str | None:
    moved = np.asarray(result[0], np.float64) - np.array([2.0, -3.0])
    if is_near(np.abs(moved), 0.5):
        return None if is_near(moved, [-0.5, 0.5]) else "At the first step the weights move in the wrong direction."
    return (
        "At the first step every weight should move by lr = 0.5, whatever its gradient is; "
        f"yours move by {number(abs(moved[0]))} and {number(abs(moved[1]))}."
    )


def still_without_gradient(result: Any) -> str | None:
    weight = np.asarray(result[0], np.float64)
    if is_near(weight, [1.5]):
        return None
    return f"A weight whose gradients were always 0 changes from 1.5 to {number(weight[0])}. It should stay."


def zeros(*shape: int) -> Array:
    return np.zeros(shape)


ADAM = ExercisePart(
    "adam",
    ("weight", "gradient", "m", "v", "step", "lr", "beta1", "beta2", "eps"),
    ("weight", "m", "v"),
    adam,
    # eps is large in some cases, so that its place shows. v is large enough for errors to be larger than rounding.
    cases=(
        Case(
            "the first step",
            (np.array([1.0, -2.0, 0.5]), np.array([0.5, -1.0, 2.0]), zeros(3), zeros(3), 1, 0.1, 0.9, 0.8, 0.001),
        ),
        Case(
            "the second step",
            (
                np.array([1.0, -2.0, 0.5]),
                np.array([2.0, -1.0, -1.5]),
                np.array([0.2, 0.1, -0.3]),
                np.array([1.0, 0.5, 0.25]),
                2,
                0.1,
                0.9,
                0.8,
                0.001,
            ),
        ),
        Case(
            "a large eps",
            (
                numbers(3, seed=1),
                numbers(3, seed=2),
                numbers(3, seed=3) / 4,
                np.array([0.5, 2.0, 1.0]),
                3,
                0.5,
                0.8,
                0.95,
                0.5,
            ),
        ),
        Case(
            "a gradient of 0 at the first step",
            (np.array([3.0, 1.0, 2.0]), np.array([0.0, 1.0, 0.0]), zeros(3), zeros(3), 1, 0.5, 0.9, 0.98, 0.001),
        ),
        Case(
            "a matrix, at step 10",
            (
                numbers(2, 3, seed=4),
                numbers(2, 3, seed=5),
                numbers(2, 3, seed=6) / 4,
                np.abs(numbers(2, 3, seed=7)) + 0.5,
                10,
                0.25,
                0.9,
                0.98,
                0.25,
            ),
        ),
        Case(
            "a gradient of 0 at step 4",
            (
                np.array([1.0, 2.0, 3.0]),
                zeros(3),
                np.array([0.5, -0.4, 1.0]),
                np.array([1.0, 2.0, 0.5]),
                4,
                0.2,
                0.7,
                0.9,
                0.1,
            ),
        ),
        Case(
            "step 2000",
            (
                numbers(4, seed=8),
                numbers(4, seed=9),
                numbers(4, seed=10) / 4,
                np.abs(numbers(4, seed=11)) + 0.5,
                2000,
                0.3,
                0.9,
                0.98,
                0.01,
            ),
        ),
    ),
    mistakes=(
        Mistake(
            "no-correction",
            "m and v are used without the correction",
            "How large is the first step of a weight? It should be lr.",
            "m̂ and v̂ are m and v, each divided by 1 minus a power of its beta.",
        ),
        Mistake(
            "half-correction",
            "only one of m and v is corrected",
            "How large is the first step of a weight? It should be lr.",
            "Both m and v begin at 0, and both are divided by 1 minus a power of their beta.",
            ways=("only-m-corrected", "only-v-corrected"),
        ),
        Mistake(
            "power-missing",
            "the correction divides by 1 - beta at each step; the power with the step is missing",
            "By what is m divided at a very late step? It should be about 1.",
            "The exponent of beta in the correction is step.",
        ),
        Mistake(
            "power-of-share",
            "the correction divides by (1 - beta)^step; it should be 1 - beta^step",
            "By what is m divided at a very late step? It should be about 1.",
            "Only beta gets the exponent. Look at the brackets.",
        ),
        Mistake(
            "multiplied-by-correction",
            "m and v are multiplied by the correction instead of divided",
            "Does the correction make m larger at the first step? It should.",
            "1 - beta^step is below 1. To make m larger, divide by it.",
        ),
        Mistake(
            "other-step",
            "the correction uses another number than step",
            "Does the first step have number 0 or 1 here?",
            "Steps are counted from 1, so nothing has to be added to step or subtracted.",
            ways=("adam-step-plus-one", "adam-step-minus-one"),
            shows_as_nan=True,
        ),
        Mistake(
            "corrected-returned",
            "what comes back are m̂ and v̂; expected are m and v without the correction",
            "What does the next step need: the running means, or their corrected values?",
            "Give m̂ and v̂ names of their own, and return m and v.",
        ),
        Mistake(
            "moments-not-returned",
            "m and v come back as they were given, without this step's gradient",
            "Compare the m that you return with the one that you were given.",
            "Return the new m and v.",
            ways=("old-moments-returned",),
        ),
        Mistake(
            "old-moments-used",
            "the weight is changed with the m and v of the step before",
            "Which m is in the formula of m̂, the one before this step, or the one after?",
            "First update m and v with the gradient, then correct them, then change the weight.",
            shows_as_nan=True,
        ),
        Mistake(
            "betas-exchanged",
            "beta1 and beta2 have changed places",
            "Which beta belongs to m, and which to v?",
            "beta1 is for the gradients (m), beta2 for their squares (v).",
        ),
        Mistake(
            "shares-exchanged",
            "the shares beta and 1 - beta have changed places: the new gradient gets the large share",
            "With beta1 = 0.9, how much of the old m should remain?",
            "The old mean is multiplied by beta, the new number by 1 - beta.",
        ),
        Mistake(
            "share-missing",
            "the new number is added without its share 1 - beta",
            "If the gradient is always 1, what should m become in the end? It should be 1.",
            "In both running means, the two shares add up to 1: beta and 1 - beta.",
            ways=("share-missing", "share-of-m-missing", "share-of-v-missing"),
        ),
        Mistake(
            "v-not-squared",
            "v is a running mean of the gradients, not of their squares",
            "Can v be negative? It should not, because a root is taken of it.",
            "In the formula of v the gradient has an exponent.",
            ways=("v-not-squared", "v-of-sizes"),
        ),
        Mistake(
            "v-from-m",
            "v is made with the square of m; it should be the square of the gradient",
            "What do you square for v?",
            "m and v are independent: both are running means, one of the gradient, one of its square.",
        ),
        Mistake(
            "v-not-rooted",
            "the divisor of m̂ is v̂; it should be the square root of v̂",
            "If all gradients were 10 times as large, should the step be different? It should not.",
            "v̂ has the unit of a squared gradient. What is done with it in the last formula?",
        ),
        Mistake(
            "eps-inside-root",
            "eps is added under the root; it should be added after it",
            "Where does the bracket of the root end in the formula?",
            "The root is of v̂ alone. eps comes after that.",
        ),
        Mistake(
            "eps-before-correction",
            "eps is added to the root before the correction of v; here it is added to the root of v̂",
            "Is eps in your formula divided by something?",
            "Some libraries correct lr instead of m and v, which moves eps. Here: correct v, take the root, add eps.",
        ),
        Mistake(
            "no-eps",
            "eps is missing",
            "What does your code do with a weight whose gradients were all 0? And which argument does it never read?",
            "In the last formula eps is added to the root.",
            shows_as_nan=True,
        ),
        Mistake(
            "gradient-for-m",
            "the weight moves along the gradient itself; it should move along m̂",
            "What is m used for in your code?",
            "Above the line of the last formula is m̂, the corrected running mean.",
        ),
        Mistake(
            "ascent",
            "the weight goes uphill: the change is added, not subtracted",
            "The gradient points to where the loss grows. Where should the weight go?",
            "Look at the sign in the last formula.",
        ),
        Mistake(
            "only-weight",
            "only the weight comes back; m and v are asked for, too",
            "How many things should the function return?",
            "Return three things: weight, m, v.",
        ),
    ),
    properties=(
        Property(
            "the first step has the size lr",
            (
                Case(
                    "the first step, two weights",
                    (np.array([2.0, -3.0]), np.array([4.0, -1.0]), zeros(2), zeros(2), 1, 0.5, 0.9, 0.98, 1e-9),
                ),
            ),
            first_step_is_lr,
        ),
        Property(
            "no gradient, no change",
            (
                Case(
                    "a gradient of 0, one weight",
                    (np.array([1.5]), zeros(1), zeros(1), zeros(1), 1, 0.5, 0.9, 0.98, 1e-8),
                ),
            ),
            still_without_gradient,
        ),
    ),
    hint="Follow one weight through the five formulas with pencil and paper: gradient 2, m = v = 0, step 1.",
    strong_hint="First m and v, then m̂ and v̂ under names of their own, then the weight. At step 1 m̂ is the gradient "
    "and v̂ is its square.",
    thought="m remembers the direction of the last gradients, and v their size. Each new value keeps a share beta of "
    "the old one and takes a share 1 - beta of the new number. Because both begin at 0, divide them by 1 - beta^step: "
    "that is the sum of all shares so far. The quotient of m̂ and the root of v̂ has about the size 1, so each weight "
    "moves by about lr. The next step needs m and v without the correction.",
)


# --- training_step -----------------------------------------------------------------------------------------------

EPSILON, MAX_NORM, BETA1, BETA2, EPS = 0.1, 1.0, 0.9, 0.98, 1e-9


def training_step(
    table: Array,
    target: Array,
    start: int,
    pad: int,
    m: Array,
    v: Array,
    step: int,
    lr: float,
    wrong: Switches = NO_MISTAKES,
) -> tuple[Any, Array, Array, Array]:
    """The loss of the table, and the table, m and v after one step of Adam."""
    target_in = target if "not-shifted" in wrong else shift_right(target, start)
    epsilon = 0.0 if "loss-not-smoothed" in wrong else EPSILON
    loss = smoothed_loss(table[target_in], target, epsilon, pad, wrong)
    gradient = table_gradient(table, target_in, target, pad, wrong)
    if "no-clip" not in wrong:
        ((gradient,), _) = clip_gradients([gradient], MAX_NORM, wrong)
    if {"moments-not-used", "new-optimizer"} & wrong:
        m, v = np.zeros_like(m), np.zeros_like(v)
    if {"step-always-1", "new-optimizer"} & wrong:
        step = 1
    if "plain-descent" in wrong:
        return loss, table - lr * gradient, m, v
    beta2 = 0.999 if "beta2-0.999" in wrong else 0.99 if "beta2-0.99" in wrong else BETA2
    new_table, m, v = adam_step(table, gradient, m, v, step, lr, BETA1, beta2, EPS, wrong)
    if "loss-after-step" in wrong:
        loss = smoothed_loss(new_table[target_in], target, epsilon, pad, wrong)
    return loss, table if "table-not-returned" in wrong else new_table, m, v


def table_gradient(table: Array, target_in: Array, target: Array, pad: int, wrong: Switches) -> Array:
    """Add up p - q, divided by the number of tokens, in the row of the id that each position reads."""
    p, v = softmax(table[target_in]), len(table)
    q = smooth(target, v, 0.0 if {"gradient-not-smoothed", "plain-gradient"} & wrong else EPSILON, pad, wrong)
    if "padding-smoothed-in-gradient" in wrong:
        q = smooth(target, v, EPSILON, pad, wrong | {"padding-smoothed"})
    is_token = target != pad
    mass = q.sum(axis=-1, keepdims=True) if "through-autograd" in wrong else 1.0
    at_positions = p * mass - q
    if not {"padding-in-gradient", "padding-smoothed-in-gradient"} & wrong:
        at_positions = at_positions * is_token[..., None]
    n = count_tokens(target, pad, wrong)
    for name, other in (("gradient-summed", 1), ("gradient-by-all", target.size), ("gradient-by-texts", len(target))):
        if name in wrong:
            n = other
    rows = target if "gradient-at-targets" in wrong else target_in
    gradient = np.zeros_like(table)
    if "last-position-only" in wrong:
        gradient[rows.ravel()] = (at_positions / n).reshape(-1, v)
    elif "last-token-only" in wrong:
        gradient[rows[is_token]] = (at_positions / n)[is_token]
    else:
        np.add.at(gradient, rows, at_positions / n)
    if "mean-of-repeated" in wrong:
        times = np.bincount(rows[is_token], minlength=v)
        gradient /= np.maximum(times, 1)[:, None]
    return -gradient if "uphill" in wrong else gradient


# It reads the ids 0 and 1.
UNREAD = (numbers(4, 4, seed=1), np.array([[1, 3]]), 0, 2, zeros(4, 4), zeros(4, 4), 1, 0.5)


def table_loss(table: Any, target: Array, start: int, pad: int) -> float:
    return float(smoothed_loss(np.asarray(table, np.float64)[shift_right(target, start)], target, EPSILON, pad))


ONE_TEXT = (
    np.array([[2.0, -1.0, 0.0], [0.0, 1.0, 2.0], [0.5, 0.5, 1.0]]),
    np.array([[1, 1, 0]]),
    0,
    2,
    zeros(3, 3),
    zeros(3, 3),
    1,
    0.1,
)


def loss_falls(result: Any) -> str | None:
    before, after = (table_loss(table, *ONE_TEXT[1:4]) for table in (ONE_TEXT[0], result[1]))
    if after < before:
        return None
    return (
        f"After the step the loss on the same text is {number(after)}; before it was {number(before)}. It should fall."
    )


def unread_rows_stay(result: Any) -> str | None:
    rows = np.asarray(result[1], np.float64)[2:]
    changed = np.flatnonzero(~np.isclose(rows, UNREAD[0][2:], atol=1e-4).all(axis=1))
    if not changed.size:
        return None
    row = 2 + changed[0]
    return f"Row {row} of the table changes at the first step, though no position reads the id {row}."


def step_ignores_padding(short: Any, long: Any) -> str | None:
    if is_near(short[0], long[0]) and is_near(short[2], long[2]):
        return None
    what = "m" if is_near(short[0], long[0]) else "loss"
    return f"With one more padding position, the {what} is different. It should not be."


def step_ignores_order(one: Any, other: Any) -> str | None:
    if is_near(one[2], other[2]):
        return None
    return "If the two texts change places, the new m is different. The order of the texts should not matter."


def step_case(
    description: str,
    v: int,
    target: list[list[int]],
    start: int,
    pad: int,
    step: int,
    lr: float,
    seed: float,
    size: float,
) -> Case:
    """A case at a later step (or the first), with m and v of the right size."""
    table = np.round(size * numbers(v, v, seed=seed), 2)
    m = zeros(v, v) if step == 1 else np.round(numbers(v, v, seed=seed + 1) / 10, 2)
    squares = zeros(v, v) if step == 1 else np.round(np.abs(numbers(v, v, seed=seed + 2)) / 20 + 0.01, 3)
    return Case(description, (table, np.array(target), start, pad, m, squares, step, lr))


def with_target(target: list[list[int]]) -> tuple[Any, ...]:
    return (ONE_TEXT[0], np.array(target), *ONE_TEXT[2:])


TRAINING_STEP = ExercisePart(
    "training_step",
    ("table", "target", "start", "pad", "m", "v", "step", "lr"),
    ("loss", "table", "m", "v"),
    training_step,
    cases=(
        Case("one text of three tokens, the first step", ONE_TEXT),
        step_case("two texts with padding, the first step", 4, [[1, 3, 0], [1, 2, 2]], 0, 2, 1, 0.1, 3, 1),
        step_case("one token, a long gradient, the first step", 3, [[1]], 0, 2, 1, 0.2, 3, 3),
        step_case("two texts with padding, step 4", 5, [[4, 0, 4, 1], [4, 2, 3, 3]], 1, 3, 4, 0.1, 2, 1),
        step_case("long gradients, step 2", 4, [[3, 3, 3], [3, 3, 3]], 3, 0, 2, 0.2, 2, 3),
        step_case(
            "three texts, padding in front and between, step 3",
            6,
            [[5, 1, 3, 3, 2, 5], [1, 3, 5, 5, 2, 0], [2, 2, 5, 1, 4, 5]],
            0,
            5,
            3,
            0.3,
            4,
            1,
        ),
        step_case("two texts, step 30", 5, [[0, 2, 2], [4, 0, 3]], 1, 3, 30, 0.2, 6, 1),
    ),
    mistakes=(
        Mistake(
            "not-shifted",
            "the model reads the token that it should predict: the target is not shifted",
            "Which id does the model read at the first position? No token is known there yet.",
            "The logits are rows of the table for target_in, which comes from shift_right.",
        ),
        Mistake(
            "gradient-at-targets",
            "the gradients are added to the rows of the target ids; they belong to the rows of the ids that were read",
            "From which row of the table did the logits of a position come? Which row should change?",
            "Use the same ids for the gradient as for the logits: target_in.",
        ),
        Mistake(
            "repeated-ids",
            "if several positions read the same id, only one of their gradients arrives",
            "Which id is read twice in the example? Look at its row of the gradient.",
            "gradient[ids] += ... keeps one position for each id, in NumPy and in PyTorch. Look for np.add.at, "
            "index_add_ or a loop, or multiply with one-hot rows.",
            ways=("last-position-only", "last-token-only"),
        ),
        Mistake(
            "mean-of-repeated",
            "if several positions read the same id, the row gets the mean of their gradients; it should be the sum",
            "The loss is a mean over all tokens. What is its derivative, if two terms depend on the same row?",
            "Divide by the number of all tokens only, and add up the positions of an id.",
        ),
        Mistake(
            "gradient-not-divided",
            "the gradient is divided by another number than the loss; both belong to the mean over the tokens",
            "By what is the loss divided? The gradient is divided by the same number.",
            "Divide the gradient by the number of tokens that are not padding.",
            ways=("gradient-summed", "gradient-by-all", "gradient-by-texts"),
        ),
        Mistake(
            "padding-in-gradient",
            "padding positions add to the gradient",
            "What is your gradient at a position whose target is pad? It should be 0.",
            "The smoothed target is 0 at padding, but the softmax is not. Set the difference to 0 there.",
            ways=("padding-in-gradient", "padding-smoothed-in-gradient"),
        ),
        Mistake(
            "gradient-not-smoothed",
            "the gradient is that of the loss without smoothing",
            "Which target is in the gradient: the one-hot row, or the smoothed one?",
            "The loss has epsilon 0.1, so its gradient is the softmax minus the smoothed target.",
        ),
        Mistake(
            "epsilon-is-0",
            "there is no smoothing, neither in the loss nor in the gradient",
            "Which epsilon does the loss of the stub have?",
            "Epsilon is 0.1, in the loss and in its gradient.",
            ways=("no-smoothing",),
        ),
        Mistake(
            "loss-not-smoothed",
            "the loss is that without smoothing; the gradient is right",
            "Which epsilon does the loss of the stub have?",
            "Epsilon is 0.1, also in the loss that comes back.",
        ),
        Mistake(
            "no-clip",
            "the gradient is not clipped",
            "What is the norm of your gradient, if the model is sure of a wrong token?",
            "Before Adam, clip the gradient to the norm 1. clip takes a list: here it has one array.",
        ),
        Mistake(
            "loss-after-step",
            "the loss is that of the new table; expected is that of the table before the step",
            "In which order does your code compute the loss and change the table?",
            "Keep the loss that belongs to the gradient.",
        ),
        Mistake(
            "ascent",
            "the loss grows: the table moves along the gradient, not against it",
            "Is the loss of the new table smaller than that of the old one?",
            "The gradient is the softmax minus the target, and Adam subtracts.",
            ways=("uphill", "ascent"),
        ),
        Mistake(
            "other-betas",
            "Adam has another beta2; the paper has 0.98",
            "Compare your v with the one that is expected.",
            "beta2 is 0.98 here. (The default of torch.optim.Adam is 0.999.)",
            ways=("beta2-0.999", "beta2-0.99"),
        ),
        Mistake(
            "step-ignored",
            "Adam always gets step 1, not the number of this step",
            "Which of the arguments does your code never read?",
            "The correction of m and v depends on step: hand it on.",
            ways=("step-always-1",),
        ),
        Mistake(
            "moments-not-used",
            "m and v begin at 0 again at every step; those that are given are not used",
            "Where do m and v of the step before enter your code?",
            "Hand m and v on to adam. (A new torch.optim.Adam begins with zeros.)",
            ways=("moments-not-used", "new-optimizer"),
        ),
        Mistake(
            "moments-not-returned",
            "m and v come back as they were given",
            "Which m and v does the next step need?",
            "Return the m and v that adam returned.",
            ways=("old-moments-returned",),
        ),
        Mistake(
            "table-not-returned",
            "the table comes back as it was given",
            "Compare the table that you return with the one that you were given.",
            "Return the table that adam returned.",
        ),
        Mistake(
            "plain-descent",
            "this is a step of plain gradient descent, without Adam",
            "What does your code do with m and v?",
            "Give the clipped gradient to adam, with table as the weight.",
        ),
    ),
    free_choices=("through-autograd",),  # the gradient of a wrong q, computed from the loss
    properties=(
        Property("the loss falls", (Case("one text of three tokens, the first step", ONE_TEXT),), loss_falls),
        Property(
            "rows that no position reads stay as they are",
            (Case("two tokens, the first step", UNREAD),),
            unread_rows_stay,
        ),
        Property(
            "padding does not change the step",
            (
                Case("one text of three tokens", with_target([[1, 1, 0]])),
                Case("the same with one padding", with_target([[1, 1, 0, 2]])),
            ),
            step_ignores_padding,
        ),
        Property(
            "the order of the texts does not matter",
            (
                Case("two texts", with_target([[1, 1], [1, 0]])),
                Case("two texts in the other order", with_target([[1, 0], [1, 1]])),
            ),
            step_ignores_order,
        ),
    ),
    hint="The loss, the gradient, m and v are computed one after the other. Which is the first that is wrong? If m "
    "was 0, the gradient is 10 times the new m.",
    strong_hint="Five steps: the ids that are read, the logits, the loss, the gradient of the table, then clip and "
    "adam. For the gradient, compute [B, T, V] numbers first. Then add each vector of V numbers to the row of the "
    "table that the position reads.",
    thought="The logits of a position are a copy of one row of the table, so their gradient is added to that row. "
    "For the cross-entropy, the gradient of the logits is what the model says minus what it should say: "
    "softmax - q. The loss is a mean over tokens, so divide by their number, and padding has the gradient 0. Rows that "
    "are read several times get several gradients, all added up. Then clip and adam change the table.",
)

EXERCISE = Exercise(
    8,
    "learning",
    "Learning",
    parts=(COUNT_TOKENS, LOG_SOFTMAX, SMOOTH, SMOOTHED_LOSS, WARMUP_COSINE, CLIP, ADAM, TRAINING_STEP),
)
