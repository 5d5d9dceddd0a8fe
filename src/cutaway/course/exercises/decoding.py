"""Exercise 6 for the grader: temperature, top-k, top-p, sampling, greedy search, beam search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cutaway.course.exercise import NO_MISTAKES, Case, Exercise, ExercisePart, Mistake, Property, Switches
from cutaway.course.exercises.encoder_block import numbers
from cutaway.course.exercises.scaled_dot_product import LOW, Array, softmax
from cutaway.course.values import TableModel

Model = Callable[[Array], Array]  # ids [N, T] -> logits of the next token [N, V]


# --- apply_temperature ---------------------------------------------------------------------------------------------


def apply_temperature(logits: Array, temperature: float, wrong: Switches = NO_MISTAKES) -> Array:
    """logits / temperature"""
    if "temperature-ignored" in wrong:
        return logits
    if "temperature-multiplied" in wrong:
        return logits * temperature
    if "temperature-on-probabilities" in wrong:
        return softmax(logits) / temperature
    return softmax(logits / temperature) if "temperature-then-softmax" in wrong else logits / temperature


TEMPERATURE_IGNORED = Mistake(
    "temperature-ignored",
    "the temperature is not used",
    "Which of the arguments does your code never read?",
    "Each logit is divided by the temperature.",
)
TEMPERATURE_MULTIPLIED = Mistake(
    "temperature-multiplied",
    "the logits are multiplied by the temperature instead of divided",
    "A temperature below 1 must make the differences between the logits larger. Does yours?",
    "With temperature 0.5 each logit doubles. Which operation does that?",
)

TWO_LOGITS = np.array([1.0, 3.0])
FOUR_ROWS = numbers(2, 2, 3, seed=3)


def check_doubled_difference(logits: Any) -> str | None:
    difference = float(logits[1] - logits[0])
    says = f"With temperature 0.5 the difference of the logits 1 and 3 is {difference:.4g}, not 4."
    return None if abs(difference - 4) < 1e-3 else says


APPLY_TEMPERATURE = ExercisePart(
    "apply_temperature",
    ("logits", "temperature"),
    ("logits",),
    apply_temperature,
    cases=(
        Case("three logits, temperature 0.5", (np.array([2.0, 1.0, -1.0]), 0.5)),
        Case("two rows, temperature 2", (numbers(2, 3, seed=1), 2.0)),
        Case("temperature 1", (np.array([0.3, -1.2]), 1.0)),
        Case("four rows, temperature 0.7", (FOUR_ROWS, 0.7)),
    ),
    mistakes=(
        TEMPERATURE_MULTIPLIED,
        TEMPERATURE_IGNORED,
        Mistake(
            "temperature-on-probabilities",
            "the probabilities are divided by the temperature, not the logits",
            "Where does the temperature belong: before the softmax or after it?",
            "This function has no softmax. It takes logits and returns logits.",
        ),
        Mistake(
            "temperature-then-softmax",
            "the result is probabilities; the function returns logits",
            "Which functions use this result? Do they expect probabilities?",
            "Leave out the softmax. It comes later, in sample.",
        ),
    ),
    properties=(
        Property(
            "temperature 0.5 doubles differences",
            (Case("two logits, temperature 0.5", (TWO_LOGITS, 0.5)),),
            check_doubled_difference,
        ),
    ),
    hint="Take the logits [2, 1] and the temperature 0.5. The result is [4, 2].",
    strong_hint="One division is enough, for all logits at once.",
    thought="The softmax sees only the differences between logits. If all logits are divided by 0.5, the differences "
    "double, and the most probable token gets even more probable. If they are divided by 2, the differences are "
    "halved, and the probabilities become more equal. So the function is a single division.",
)


# --- choose_token --------------------------------------------------------------------------------------------------


def choose_token(logits: Array, wrong: Switches = NO_MISTAKES) -> Array:
    """The index of the largest logit along the last axis."""
    if "token-of-all-rows" in wrong:
        return np.asarray(np.argmax(logits))
    axis = 0 if "token-axis-0" in wrong else -2 if "token-axis-before" in wrong else -1
    if axis == -2 and logits.ndim < 2:
        raise ValueError("there is no such axis")
    if "largest-value" in wrong:
        return np.max(logits, axis=axis)
    if "largest-magnitude" in wrong:
        logits = np.abs(logits)
    return np.asarray((np.argmin if "smallest-logit" in wrong else np.argmax)(logits, axis=axis))


def check_largest(token: Any) -> str | None:
    if int(token) == 1:
        return None
    return f"Of the logits 0.5, 2 and -3 it chooses {int(token)}, but the largest is at index 1."


CHOOSE_TOKEN = ExercisePart(
    "choose_token",
    ("logits",),
    ("token",),
    choose_token,
    cases=(
        Case("four logits", (np.array([-1.0, 0.5, 2.0, -3.0]),)),
        Case("two rows", (np.array([[-1.0, 0.5, -2.0], [3.0, -4.0, 1.0]]),)),
        Case("one row", (np.array([[-0.5, -2.0, -0.1, -1.0]]),)),
        Case("minus infinity among the logits", (np.array([-np.inf, -2.0, -np.inf, -1.0]),)),
        Case("three axes", (numbers(2, 4, 3, seed=2),)),
    ),
    mistakes=(
        Mistake(
            "smallest-logit",
            "the smallest logit is chosen",
            "Which token has the highest probability: the one with the smallest logit or with the largest?",
            "The softmax keeps the order: the largest logit has the highest probability.",
        ),
        Mistake(
            "largest-value",
            "the result is the largest logit itself; expected is its index",
            "The id of a token is a whole number. Is your result one?",
            "The id of a token is the place of its logit. You need the place of the maximum, not the maximum.",
        ),
        Mistake(
            "token-axis",
            "the maximum runs over the wrong axis",
            "For logits [B, V], how many ids should come back?",
            "The vocabulary is on the last axis. For each place on the other axes there is one id.",
            ways=("token-of-all-rows", "token-axis-0", "token-axis-before"),
        ),
        Mistake(
            "largest-magnitude",
            "the sign of the logits is ignored: a large negative logit is chosen",
            "Which of the logits 1 and -3 has the higher probability?",
            "Compare the logits themselves, not their absolute values.",
        ),
    ),
    properties=(Property("the largest", (Case("three logits", (np.array([0.5, 2.0, -3.0]),)),), check_largest),),
    hint="Of the logits [0.5, 2, -3] the second is the largest. The result is 1, because ids start at 0.",
    strong_hint="NumPy and PyTorch have a function for the index of the maximum. It needs to know the axis.",
    thought="The softmax keeps the order of the logits. So the most probable token is the one with the largest logit, "
    "and no softmax is needed. The id of a token is its place on the last axis.",
)


# --- keep_top_k ----------------------------------------------------------------------------------------------------


def keep_top_k(logits: Array, k: int, wrong: Switches = NO_MISTAKES) -> Array:
    """The k largest logits; the others are -inf."""
    if {"k-over-all-rows", "k-axis-0", "k-axis-before"} & wrong:
        return on_other_axis(logits, wrong, "k", lambda x, rest: keep_top_k(x, k, rest))
    order = np.argsort(-logits, axis=-1)
    if {"k-values", "k-values-ascending", "k-ids", "k-ids-ascending"} & wrong:
        best = order[..., :k]
        best = best[..., ::-1] if {"k-values-ascending", "k-ids-ascending"} & wrong else best
        return best if {"k-ids", "k-ids-ascending"} & wrong else np.take_along_axis(logits, best, axis=-1)
    rank, size = np.argsort(order, axis=-1), logits.shape[-1]
    kept = rank < k
    if "k-one-fewer" in wrong:
        kept = rank < k - 1
    elif "k-one-fewer-or-all" in wrong:
        kept = (rank < k - 1) | (k == 1)
    elif "k-one-more" in wrong:
        kept = rank < k + 1
    elif "k-smallest" in wrong:
        kept = rank >= size - k
    elif "k-first-ids" in wrong:
        kept = np.broadcast_to(np.arange(size) < k, logits.shape)
    elif "k-inverted" in wrong:
        kept = ~kept
    return exclude(logits, kept, wrong)


def exclude(logits: Array, kept: Array, wrong: Switches) -> Array:
    return np.where(kept, logits, 0.0 if "excluded-zero" in wrong else LOW if "excluded-low" in wrong else -np.inf)


def on_other_axis(logits: Array, wrong: Switches, name: str, keep: Callable[[Array, Switches], Array]) -> Array:
    """Apply a filter to all numbers at once, or along another axis."""
    rest = frozenset(switch for switch in wrong if not switch.startswith((f"{name}-over", f"{name}-axis")))
    if f"{name}-over-all-rows" in wrong:
        return keep(logits.reshape(-1), rest).reshape(logits.shape)
    axis = 0 if f"{name}-axis-0" in wrong else -2
    if logits.ndim < -axis:
        raise ValueError("there is no such axis")
    return keep(logits.swapaxes(axis, -1), rest).swapaxes(axis, -1)


EXCLUDED_ZERO = Mistake(
    "excluded-zero",
    "excluded logits are set to 0, and e^0 = 1 is not nothing",
    "What probability does the softmax give to a logit of 0?",
    "Which logit gives the probability 0? It is minus infinity.",
    shows_as_nan=True,
)
EXCLUDED_LOW = Mistake(
    "excluded-low",
    "excluded logits get a large negative number; expected is minus infinity",
    "What is excluded must have probability 0, however small the other logits are.",
    'Python writes it float("-inf"), NumPy -np.inf.',
)

K_ROWS = np.array([[0.5, -1.0, 2.0, 1.0, -3.0], [-2.5, 1.5, -0.5, -1.5, 2.5]])


def check_number_kept(result: Any) -> str | None:
    logits, kept = np.array([1.0, 4.0, 2.0, 3.0]), np.isfinite(result)
    if kept.sum() != 2:
        return f"With k = 2, {kept.sum()} of the logits [1, 4, 2, 3] stay, not 2."
    if not kept[[1, 3]].all():
        stay = ", ".join(f"{x:g}" for x in logits[kept])
        return f"Of the logits [1, 4, 2, 3], with k = 2, the logits {stay} stay. The two largest are 4 and 3."
    if not np.allclose(np.asarray(result)[kept], logits[kept]):
        return "The logits that stay must not change."
    return None


KEEP_TOP_K = ExercisePart(
    "keep_top_k",
    ("logits", "k"),
    ("logits",),
    keep_top_k,
    cases=(
        Case("five logits, k = 2", (np.array([0.5, -1.0, 2.0, 1.0, -3.0]), 2)),
        Case("two rows, k = 3", (K_ROWS, 3)),
        Case("k = 1", (np.array([[1.0, -0.5, 0.0], [-2.0, -1.0, -3.0]]), 1)),
        Case("as many as there are, k = 4", (np.array([0.0, 2.0, -1.0, 1.0]), 4)),
        Case("three axes, k = 2", (numbers(2, 3, 5, seed=1), 2)),
        Case("one logit, k = 1", (np.array([-1.5]), 1)),
    ),
    mistakes=(
        EXCLUDED_ZERO,
        EXCLUDED_LOW,
        Mistake(
            "k-one-fewer",
            "one logit too few stays: k - 1 instead of k",
            "Count the logits that stay. Is the k-th largest among them?",
            "The k-th largest logit itself stays: check the comparison (> or >=), or the index into the sorted logits.",
            ways=("k-one-fewer", "k-one-fewer-or-all"),
            shows_as_nan=True,
        ),
        Mistake(
            "k-one-more",
            "one logit too many stays: k + 1 instead of k",
            "Count the logits that stay.",
            "Sorted upwards, the k-th largest is at index -k. Sorted downwards, it is at index k - 1.",
        ),
        Mistake(
            "k-smallest",
            "the k smallest logits stay instead of the k largest",
            "In which direction does your sorting go?",
            "NumPy sorts upwards: the largest logits are at the end.",
            shows_as_nan=True,
        ),
        Mistake(
            "k-inverted",
            "the k largest logits are excluded, and the others stay",
            "What becomes of the largest logit?",
            "The two cases of your where, or your comparison, are exchanged.",
            shows_as_nan=True,
        ),
        Mistake(
            "k-first-ids",
            "the first k ids stay, whatever their logits are",
            "Which logits stay, those at the front or the largest?",
            "Order is needed twice: find which logits are the largest, then keep these at their own places.",
            shows_as_nan=True,
        ),
        Mistake(
            "k-axis",
            "the k largest are counted over the wrong axis",
            "Give it two rows. How many logits stay in each?",
            "The vocabulary is on the last axis. Each row keeps its own k largest.",
            ways=("k-over-all-rows", "k-axis-0", "k-axis-before"),
            shows_as_nan=True,
        ),
        Mistake(
            "k-values",
            "only the k largest logits come back; their places are lost",
            "The result has the shape of the logits. How does sample know which id a logit belongs to?",
            "Keep all places: put minus infinity where a logit is excluded.",
            ways=("k-values", "k-values-ascending"),
        ),
        Mistake(
            "k-ids",
            "the ids of the k largest logits come back; expected are the logits",
            "The result has the shape of the logits.",
            "Use the ids to decide which logits stay. All others become minus infinity.",
            ways=("k-ids", "k-ids-ascending"),
        ),
    ),
    properties=(
        Property(
            "k logits stay", (Case("four logits, k = 2", (np.array([1.0, 4.0, 2.0, 3.0]), 2)),), check_number_kept
        ),
    ),
    hint="Find the k-th largest logit of each row. Which logits stay if you compare each with it?",
    strong_hint="Sort along the last axis to get the k-th largest, keep that axis with length 1, and compare.",
    thought="Sort a row: the k-th largest logit is the border. Every logit that is at least as large stays where it "
    "is. All others become minus infinity, because e^(-inf) = 0, so the softmax gives them the probability 0. The "
    "places do not change: place i still belongs to token i. With several rows, each has its own border.",
)


# --- keep_top_p ----------------------------------------------------------------------------------------------------


def keep_top_p(logits: Array, p: float, wrong: Switches = NO_MISTAKES) -> Array:
    """The fewest most probable tokens whose probabilities sum to p or more; the others are -inf."""
    if {"p-over-all-rows", "p-axis-0", "p-axis-before"} & wrong:
        return on_other_axis(logits, wrong, "p", lambda x, rest: keep_top_p(x, p, rest))
    probabilities = softmax(logits)
    p = 1 - p if "p-remaining" in wrong else p
    order = np.argsort(-probabilities, axis=-1, kind="stable")
    if "p-ascending" in wrong:
        order = order[..., ::-1]
    if "p-not-sorted" in wrong:
        order = np.broadcast_to(np.arange(logits.shape[-1]), logits.shape)
    kept_sorted = reach_p(np.take_along_axis(np.asarray(probabilities), order, axis=-1), p, wrong)
    if "p-sorted-result" in wrong:
        return exclude(np.take_along_axis(logits, order, axis=-1), kept_sorted, wrong)
    kept = np.take_along_axis(kept_sorted, np.argsort(order, axis=-1), axis=-1)
    if "p-places-sorted" in wrong:
        kept = kept_sorted
    elif "p-places-permuted" in wrong:
        kept = np.take_along_axis(kept_sorted, order, axis=-1)
    elif "p-each" in wrong:
        kept = probabilities >= p
    elif "p-each-remaining" in wrong:
        kept = probabilities >= 1 - p
    elif "p-of-largest" in wrong:
        kept = probabilities >= p * probabilities.max(axis=-1, keepdims=True)
    elif "p-inverted" in wrong:
        kept = ~kept
    if "p-probabilities-or-0" in wrong:
        return np.where(kept, probabilities, 0)
    if "p-probabilities-again" in wrong:
        return softmax(np.where(kept, logits, -np.inf))
    return exclude(probabilities if "p-probabilities" in wrong else logits, kept, wrong)


def reach_p(probabilities: Array, p: float, wrong: Switches) -> Array:
    """Return which of the sorted probabilities stay: those before which the sum is below p."""
    total = np.cumsum(probabilities, axis=-1)
    kept = total - probabilities < p
    if {"crossing-excluded", "crossing-excluded-but-first"} & wrong:
        kept = total <= p
        if "crossing-excluded-but-first" in wrong:
            kept[..., 0] = True
    if "p-one-more" in wrong:
        kept[..., 1:] |= kept[..., :-1].copy()
    return kept


CROSSING_EXCLUDED = Mistake(
    "crossing-excluded",
    "the token that crosses p is excluded, so the sum stays below p",
    "Add up the probabilities that stay. Is the sum at least p?",
    "A token is excluded only if the sum of those before it, without its own probability, is already p or more.",
    ways=("crossing-excluded", "crossing-excluded-but-first"),
    shows_as_nan=True,
)

THREE = np.log([0.2, 0.5, 0.3])
# The most probable tokens of the rows are nearly the same, so that a wrong filter does not exclude everything.
P_ROWS = np.array([[2.0, 1.2, 0.3, -1.0, 0.5], [1.5, 1.8, -0.5, 0.2, -1.0]])


def check_kept_sum(result: Any) -> str | None:
    kept = np.isfinite(result)
    if kept.tolist() == [False, True, True] and np.allclose(np.asarray(result)[kept], THREE[kept], atol=1e-4):
        return None
    if kept.tolist() == [False, True, True]:
        return "The logits that stay must not change."
    total = np.exp(THREE)[kept].sum()
    if total < 0.6:
        return f"Of the probabilities 0.2, 0.5, 0.3 those that stay sum to {total:.1f}, less than p = 0.6."
    return f"Of the probabilities 0.2, 0.5, 0.3 those that stay sum to {total:.1f}; 0.5 + 0.3 reaches p = 0.6 already."


def check_first_kept(result: Any) -> str | None:
    kept = np.isfinite(result).tolist()
    if kept == [False, True, False]:
        return None
    return f"With p = 0.1 and the probabilities 0.2, 0.5, 0.3 only the most probable stays, not {sum(kept)} of them."


KEEP_TOP_P = ExercisePart(
    "keep_top_p",
    ("logits", "p"),
    ("logits",),
    keep_top_p,
    cases=(
        Case("probabilities 0.2, 0.5, 0.3 and p = 0.6", (np.round(THREE, 4), 0.6)),
        Case("five logits, p = 0.7", (np.array([0.5, 1.5, -1.0, 1.0, 0.0]), 0.7)),
        Case("two rows, p = 0.8", (P_ROWS, 0.8)),
        Case("the first reaches p = 0.1", (np.array([0.0, 1.0, 1.5, -1.0]), 0.1)),
        Case("all are needed for p = 0.99", (np.array([0.2, 0.7, -0.4, 0.1]), 0.99)),
        Case("minus infinity among the logits", (np.array([-np.inf, 0.3, 1.2, -np.inf, 0.8]), 0.65)),
        Case("three axes, p = 0.5", (numbers(2, 3, 5, seed=5) * 0.3 + P_ROWS[0], 0.7)),
        Case("one logit, p = 0.5", (np.array([2.0]), 0.5)),
    ),
    mistakes=(
        CROSSING_EXCLUDED,
        Mistake(
            "p-one-more",
            "one token too many stays: the sum reaches p without it",
            "Leave out the least probable token that stays. Is the sum still at least p?",
            "The token that crosses p stays; the one after it is excluded.",
        ),
        EXCLUDED_ZERO,
        EXCLUDED_LOW,
        Mistake(
            "p-not-sorted",
            "the probabilities are added up in the order of the ids, not from the most probable",
            "Which token comes first in your sum?",
            "Sort first. The most probable token comes first, then the second, until the sum reaches p.",
            shows_as_nan=True,
        ),
        Mistake(
            "p-ascending",
            "the sum begins with the least probable token",
            "Which token must stay in any case? Does yours?",
            "NumPy sorts upwards. Here the order has to go downwards.",
            shows_as_nan=True,
        ),
        Mistake(
            "p-places",
            "the right number of tokens stays, but not at the right places: the order of sorting is not undone",
            "After sorting, place 0 is the most probable token. Is it place 0 of the logits, too?",
            "order[j] is the id of the token at place j after sorting. Use it to bring each decision back to its id. "
            "Indexing the decisions with order does the opposite.",
            ways=("p-places-sorted", "p-places-permuted"),
            shows_as_nan=True,
        ),
        Mistake(
            "p-sorted-result",
            "the logits come back sorted",
            "Place i of the result belongs to token i. Does it in yours?",
            "Bring each logit back to its own place, or decide with the sorted ones and change the original ones.",
            shows_as_nan=True,
        ),
        Mistake(
            "p-each",
            "each probability is compared with p on its own; p is about their sum",
            "For the probabilities 0.2, 0.5, 0.3 and p = 0.6, two tokens stay. Why?",
            "Go from the most probable token downwards and add up, until the sum is p or more.",
            ways=("p-each", "p-each-remaining", "p-of-largest"),
            shows_as_nan=True,
        ),
        Mistake(
            "p-remaining",
            "the sum reaches 1 - p, not p",
            "With p = 0.9, should few tokens stay, or almost all?",
            "What stays has the probability p or more; what is excluded has 1 - p or less.",
            shows_as_nan=True,
        ),
        Mistake(
            "p-inverted",
            "the most probable tokens are excluded, and the others stay",
            "What becomes of the largest logit?",
            "The two cases of your where, or your comparison, are exchanged.",
            shows_as_nan=True,
        ),
        Mistake(
            "p-axis",
            "the sum runs over the wrong axis",
            "Give it two rows. Do the probabilities of each row that stay sum to p or more?",
            "The vocabulary is on the last axis: softmax, order and sum all run along it.",
            ways=("p-over-all-rows", "p-axis-0", "p-axis-before"),
            shows_as_nan=True,
        ),
        Mistake(
            "p-probabilities",
            "probabilities come back; the function returns logits",
            "Compare the numbers that stay with those that you were given.",
            "Use the probabilities to decide which tokens stay. What stays is the logit, unchanged.",
            ways=("p-probabilities", "p-probabilities-or-0", "p-probabilities-again"),
            shows_as_nan=True,
        ),
    ),
    properties=(
        Property("the sum reaches p", (Case("three tokens, p = 0.6", (THREE, 0.6)),), check_kept_sum),
        Property("one stays", (Case("three tokens, p = 0.1", (THREE, 0.1)),), check_first_kept),
    ),
    hint="Do it on paper for the probabilities 0.2, 0.5, 0.3 and p = 0.6: sort, add up, stop.",
    strong_hint="For each sorted token compute the sum of the probabilities before it. The token stays if this sum is "
    "below p. Then bring the decisions back to the order of the ids.",
    thought="The softmax turns logits into probabilities. Sort them from the most probable: 0.5, 0.3, 0.2. The sums "
    "are 0.5, 0.8, 1.0, and the sums before each token are 0, 0.5, 0.8. With p = 0.6 the first two tokens stay, "
    "because before them the sum was still below 0.6. Nothing is before the first token, so it always stays. At the "
    "end each decision has to go back from the sorted place to the id.",
)


# --- sample --------------------------------------------------------------------------------------------------------


def sample(
    logits: Array,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    u: float,
    wrong: Switches = NO_MISTAKES,
) -> int:
    """Temperature, top-k, top-p; then the first id whose cumulative probability exceeds u."""
    tempered = apply_temperature(logits, temperature, wrong)
    if {"filters-on-probabilities", "softmax-after-each-filter"} & wrong:
        filtered = filter_probabilities(softmax(tempered), top_k, top_p, wrong)
    else:
        filtered = filter_logits(logits, temperature, top_k, top_p, wrong)
    probabilities = softmax(filtered)
    if {"not-renormalised-first", "not-renormalised-last", "not-renormalised-beyond"} & wrong:
        probabilities = np.where(np.isfinite(filtered), softmax(tempered), 0)
    if "most-probable" in wrong:
        return int(np.argmax(probabilities))
    order = np.argsort(-probabilities, kind="stable") if {"u-sorted", "u-rank"} & wrong else np.arange(len(logits))
    cumulative = probabilities[order]
    if not {"not-cumulative-first", "not-cumulative-last"} & wrong:
        cumulative = np.cumsum(cumulative)
    u = 1 - u if "u-from-the-end" in wrong else u
    if "u-from-the-end-reversed" in wrong:
        return len(logits) - 1 - int(np.argmax(np.cumsum(probabilities[::-1]) > u))
    exceeds = cumulative >= u if "u-reached" in wrong else cumulative > u
    place = int(np.argmax(exceeds))
    if not exceeds.any():
        size = len(logits)
        place = size if "not-renormalised-beyond" in wrong else 0
        place = size - 1 if {"not-renormalised-last", "not-cumulative-last"} & wrong else place
    if "id-before" in wrong:
        return max(place - 1, 0)
    if "id-before-or-minus-1" in wrong:
        return place - 1
    if "id-after" in wrong:
        return place + 1
    return int(order[place]) if "u-sorted" in wrong else place


def filter_logits(logits: Array, temperature: float, top_k: int | None, top_p: float | None, wrong: Switches) -> Array:
    order = ["temperature", "top-k", "top-p"]
    if "top-p-before-top-k" in wrong:
        order = ["temperature", "top-p", "top-k"]
    if "temperature-last" in wrong:
        order = [*order[1:], "temperature"]
    for name in order:
        if name == "temperature":
            logits = apply_temperature(logits, temperature, wrong)
        elif name == "top-k" and top_k is not None and "top-k-ignored" not in wrong:
            logits = keep_top_k(logits, top_k, wrong)
        elif name == "top-p" and top_p is not None and "top-p-ignored" not in wrong:
            logits = keep_top_p(logits, top_p, wrong)
    return logits


def filter_probabilities(probabilities: Array, top_k: int | None, top_p: float | None, wrong: Switches) -> Array:
    """Give the filters probabilities as if they were logits. Return what a softmax makes the result of."""
    again = softmax if "softmax-after-each-filter" in wrong else np.asarray
    if top_k is not None:
        probabilities = again(keep_top_k(probabilities, top_k, wrong))
    if top_p is not None:
        probabilities = again(keep_top_p(probabilities, top_p, wrong))
    return np.log(probabilities) if "softmax-after-each-filter" in wrong else probabilities


SHARES = np.array([0.2, 0.5, 0.3])
POINTS = [round(0.05 + 0.1 * i, 2) for i in range(10)]


def check_shares(*tokens: Any) -> str | None:
    """Ten equally spaced u give each token ten times its probability, in whatever order the tokens are."""
    counts = [sum(int(token) == i for token in tokens) for i in range(len(SHARES))]
    for i, (count, share) in enumerate(zip(counts, SHARES, strict=True)):
        if count != round(10 * share):
            return (
                f"Token {i} has the probability {share:g}. For the ten u from 0.05 to 0.95, it comes {count} times, "
                f"not {round(10 * share)} times."
            )
    return None


def check_excluded(token: Any) -> str | None:
    if int(token) == 0:
        return "With top_k = 1 and u = 0 it chooses token 0, which is excluded: its probability is 0."
    return None


def sample_case(logits: Array, temperature: float, top_k: int | None, top_p: float | None, u: float) -> Case:
    parts = [f"temperature {temperature:g}" if temperature != 1 else "", f"top_k {top_k}" if top_k else ""]
    parts += [f"top_p {top_p:g}" if top_p else "", f"u = {u:g}"]
    return Case(", ".join(filter(None, parts)), (logits, temperature, top_k, top_p, u))


SAMPLE_LOGITS = np.array([0.4, 1.6, -0.5, 1.0, 0.1])
MORE_LOGITS = np.array([-1.2, 0.3, 0.9, -0.4, 1.5, 0.6])

SAMPLE = ExercisePart(
    "sample",
    ("logits", "temperature", "top_k", "top_p", "u"),
    ("token",),
    sample,
    cases=(
        Case("probabilities 0.2, 0.5, 0.3 and u = 0.6", (np.round(THREE, 4), 1.0, None, None, 0.6)),
        Case("probabilities 0.4, 0.25, 0.35 and u = 0.9", (np.log([0.4, 0.25, 0.35]).round(4), 1.0, None, None, 0.9)),
        sample_case(SAMPLE_LOGITS, 0.5, None, None, 0.84),
        sample_case(SAMPLE_LOGITS, 1.0, 2, None, 0.7),
        sample_case(SAMPLE_LOGITS, 1.0, None, 0.6, 0.75),
        sample_case(SAMPLE_LOGITS, 1.5, 4, 0.8, 0.95),
        sample_case(SAMPLE_LOGITS, 1.5, 3, 0.7, 0.63),
        sample_case(SAMPLE_LOGITS, 0.5, 2, 0.7, 0.92),
        sample_case(SAMPLE_LOGITS, 0.5, 4, 0.8, 0.0),
        sample_case(MORE_LOGITS, 0.5, 4, 0.8, 0.93),
        sample_case(MORE_LOGITS, 2.0, 3, 0.8, 0.77),
        sample_case(MORE_LOGITS, 0.5, 2, 0.7, 0.22),
        sample_case(MORE_LOGITS, 0.5, 4, None, 0.0),
        sample_case(MORE_LOGITS, 1.0, 4, 0.6, 0.0),
        sample_case(MORE_LOGITS, 1.5, None, 0.5, 0.0),
    ),
    mistakes=(
        Mistake(
            "temperature-last",
            "the temperature comes after the filters; it should come before them",
            "top_p adds up probabilities. Does the temperature change them?",
            "The order is: temperature, top-k, top-p.",
        ),
        Mistake(
            "top-p-before-top-k",
            "top-p comes before top-k; it should come after it",
            "After top-k the probabilities of the tokens that stay are larger. Which of the filters notices that?",
            "The order is: temperature, top-k, top-p.",
        ),
        Mistake(
            "filters-on-probabilities",
            "the filters get probabilities; they take logits",
            "Where is your first softmax: before or after the filters?",
            "Temperature, top-k and top-p all take logits and return logits. One softmax comes after all of them.",
            ways=("filters-on-probabilities", "softmax-after-each-filter"),
        ),
        TEMPERATURE_IGNORED,
        Mistake(
            "top-k-ignored",
            "top_k is not used",
            "Which of the arguments does your code never read?",
            "If top_k is not None, keep_top_k comes after the temperature.",
        ),
        Mistake(
            "top-p-ignored",
            "top_p is not used",
            "Which of the arguments does your code never read?",
            "If top_p is not None, keep_top_p comes last.",
        ),
        Mistake(
            "u-reached",
            "the cumulative probability only has to reach u; it should exceed it",
            "Let token 0 be excluded and u be 0. Which token does your code choose?",
            "The cumulative probability of an excluded first token is 0. It must not count as more than u = 0: > is "
            "not >=. (The same choice has np.searchsorted, by its argument side.)",
        ),
        Mistake(
            "u-sorted",
            "the probabilities are added up in sorted order; they belong in the order of the ids",
            "Probabilities 0.2, 0.5, 0.3: which are the cumulative ones?",
            "No sorting is needed here: 0.2, 0.7, 1.0.",
            ways=("u-sorted", "u-rank"),
        ),
        Mistake(
            "most-probable",
            "the most probable token is chosen, whatever u is",
            "For different u different tokens have to come.",
            "Add up the probabilities in the order of the ids and compare the sums with u.",
        ),
        Mistake(
            "not-renormalised",
            "the probabilities of the tokens that stay do not sum to 1",
            "Add up your probabilities after the filters. What happens if u is larger than their sum?",
            "Take the softmax after the filters: it gives an excluded logit the probability 0 and shares the whole "
            "probability among the others.",
            ways=("not-renormalised-first", "not-renormalised-last", "not-renormalised-beyond"),
        ),
        Mistake(
            "not-cumulative",
            "u is compared with each probability on its own, not with the cumulative ones",
            "Probabilities 0.2, 0.5, 0.3 and u = 0.6: no single one exceeds u. Which token is it?",
            "The cumulative probability of an id is the sum of its own probability and of all before it.",
            ways=("not-cumulative-first", "not-cumulative-last"),
        ),
        Mistake(
            "id-before",
            "the id is one too small: its cumulative probability does not exceed u yet",
            "Probabilities 0.2, 0.5, 0.3 and u = 0.1. Which token is it?",
            "Take the first id whose cumulative probability exceeds u, not the last that does not.",
            ways=("id-before", "id-before-or-minus-1"),
        ),
        Mistake(
            "id-after",
            "the id is one too large",
            "Probabilities 0.2, 0.5, 0.3 and u = 0.1. Which token is it?",
            "Ids start at 0. If no cumulative probability is u or less, it is token 0.",
        ),
        Mistake(
            "u-from-the-end",
            "u counts from the end: the last token gets the small u",
            "Probabilities 0.2, 0.5, 0.3 and u = 0.1. Which token is it?",
            "The first token owns the u from 0 to its probability, the second the u after that.",
            ways=("u-from-the-end", "u-from-the-end-reversed"),
        ),
    ),
    properties=(
        Property(
            "each token comes as often as its probability says",
            tuple(Case(f"probabilities 0.2, 0.5, 0.3 and u = {u:g}", (THREE, 1.0, None, None, u)) for u in POINTS),
            check_shares,
        ),
        Property(
            "an excluded token never comes",
            (Case("top_k 1, u = 0", (THREE, 1.0, 1, None, 0.0)),),
            check_excluded,
        ),
    ),
    hint="Print the cumulative probabilities of the smallest case. At which id do they exceed u for the first time?",
    strong_hint="Three steps: the filters in their order, a softmax, a cumulative sum. Then find the first id that "
    "exceeds u.",
    thought="Put the tokens next to each other on a line from 0 to 1, each as long as its probability: 0.2, 0.5, 0.3. "
    "The borders are 0.2, 0.7 and 1.0, the cumulative sums. The number u is a point on this line, and the token that "
    "lies there is chosen. So a token is chosen as often as its probability says. An excluded token has length 0, so "
    "no point lies on it.",
)


# --- greedy --------------------------------------------------------------------------------------------------------


def greedy(next_logits: Model, start: int, end: int, max_length: int, wrong: Switches = NO_MISTAKES) -> Array:
    """The most probable token again and again, until `end` or `max_length` ids."""
    ids = [start]
    for _ in range(max_length + max_length_error(wrong)):
        logits = next_logits(np.array([context_of(ids, wrong)]))
        token = int(np.ravel(choose_token(logits, wrong))[0])
        ids.append(token)
        if token == end and "end-passed" not in wrong:
            break
    new = ids[1:]
    if "end-appended" in wrong and new[-1] != end:
        new.append(end)
    if "end-forced" in wrong and new[-1] != end:
        new[-1] = end
    if "filled-with-end" in wrong:
        new += [end] * (max_length - len(new))
    return as_ids(trim(new, start, end, wrong))


def context_of(ids: list[int], wrong: Switches) -> list[int]:
    if "last-id-only" in wrong:
        return ids[-1:]
    return ids[1:] if "start-not-read" in wrong and len(ids) > 1 else ids


def max_length_error(wrong: Switches) -> int:
    return 1 if "one-id-more" in wrong else -1 if "one-id-fewer" in wrong else 0


def as_ids(ids: list[int]) -> Any:
    """Return an array, so that both lists and arrays are accepted; an empty list stays a list."""
    return np.array(ids) if ids else ids


def trim(ids: list[int], start: int, end: int, wrong: Switches) -> list[int]:
    if "end-left-out" in wrong and ids and ids[-1] == end:
        ids = ids[:-1]
    return [start, *ids] if "start-included" in wrong else ids


MAX_LENGTH = Mistake(
    "max-length",
    "the limit max_length is off by one",
    "Count the ids that you return if the end never comes. It should be max_length.",
    "The start does not count. Each step adds one id, so there are at most max_length steps.",
    ways=("one-id-more", "one-id-fewer"),
)
END_LEFT_OUT = Mistake(
    "end-left-out",
    "the end is missing in the ids that come back",
    "If the model produces the end, it is the last id of the result.",
    "Keep the end as the last id, and then stop.",
)
START_INCLUDED = Mistake(
    "start-included",
    "the start is among the ids that come back",
    "What does the first id of your result say? It should be the first id that the model produced.",
    "The model has to read the start, but the result begins after it.",
)
LAST_ID_ONLY = Mistake(
    "last-id-only",
    "the model gets only the last id, not the whole text so far",
    "What is the shape of the ids that you give to next_logits in the third step?",
    "The probability of a token depends on all ids before it: give all of them, the start first.",
)
START_NOT_READ = Mistake(
    "start-not-read",
    "after the first step the model no longer gets the start",
    "What is the shape of the ids that you give to next_logits in the second step?",
    "Give the start and all ids after it, at each step.",
)


NEVER = -20.0  # the logit of the start


def word_model(probabilities: dict[int, tuple[float, ...]], offsets: dict[int, float]) -> TableModel:
    """A model for learners to follow on paper: 0 is the start, 1 the end, 2 the word "a" and 3 the word "b".

    probabilities: of the ids 1, 2 and 3 after each last id; exact for texts of up to three ids
    offsets: what is added to the log-probabilities of a row, to make logits of them
    """
    table = np.zeros((4, 4, 4))
    for last, row in probabilities.items():
        for before in range(4):
            text = [0] if last == 0 else [0, last] if before == 0 else [0, before, last]
            logits = np.array([NEVER, *np.log(row)]) + offsets[last]
            table[before, last] = logits - TableModel.text_effect(np.array([text]), 4)[0]
    return TableModel(table)


OFFSETS = {0: 1.0, 2: 3.0, 3: 0.5}
example_model = word_model({0: (0.1, 0.5, 0.4), 2: (0.4, 0.35, 0.25), 3: (0.9, 0.06, 0.04)}, OFFSETS)
# One hypothesis has a low probability at first and hardly loses any later, so its score rises for long.
repeating_model = word_model({0: (0.6, 0.35, 0.05), 2: (0.02, 0.95, 0.03), 3: (0.5, 0.3, 0.2)}, OFFSETS)
# The end is the most probable first token, and the third-best begins the text that wins.
early_end_model = word_model({0: (0.4, 0.35, 0.25), 2: (0.5, 0.3, 0.2), 3: (0.05, 0.02, 0.93)}, OFFSETS)


def random_model(size: int, seed: float, spread: float, end: int, end_logit: float = 0.0) -> TableModel:
    table = numbers(size, size, size, seed=seed, size=spread)
    table[..., end] += end_logit
    return TableModel(table)


def check_greedy_ids(result: Any) -> str | None:
    return check_each_is_best(result, example_model, start=0, end=1, max_length=3)


def check_each_is_best(result: Any, model: Model, start: int, end: int, max_length: int) -> str | None:
    ids = [int(i) for i in result]
    if not 1 <= len(ids) <= max_length:
        return f"It returns {len(ids)} ids; max_length is {max_length}."
    if end in ids[:-1]:
        return f"In your ids {ids} the end, {end}, is not the last one."
    for i, token in enumerate(ids):
        probabilities = softmax(model(np.array([[start, *ids[:i]]])))[0]
        best = int(np.argmax(probabilities))
        if token != best:
            return (
                f"After the ids {[start, *ids[:i]]} comes {token} with the probability {probabilities[token]:.2f}; "
                f"{best} has {probabilities[best]:.2f}."
            )
    if ids[-1] != end and len(ids) < max_length:
        return f"Your ids {ids} neither end with the end, {end}, nor are there max_length = {max_length} of them."
    return None


def greedy_case(what: str, model: TableModel, start: int, end: int, max_length: int) -> Case:
    return Case(f"{what}: start {start}, end {end}, max_length {max_length}", (model, start, end, max_length))


GREEDY = ExercisePart(
    "greedy",
    ("next_logits", "start", "end", "max_length"),
    ("ids",),
    greedy,
    cases=(
        greedy_case("the example", example_model, 0, 1, 3),
        greedy_case("the example", example_model, 0, 1, 1),
        greedy_case("5 tokens", random_model(5, 25, 1.5, 1), 0, 1, 7),
        greedy_case("6 tokens", random_model(6, 14, 2.0, 0), 4, 0, 4),
        greedy_case("no end before max_length", random_model(6, 28, 2.0, 1, -2.0), 5, 1, 6),
    ),
    mistakes=(
        Mistake(
            "end-passed",
            "it does not stop at the end",
            "Where is the end in your result? Nothing may come after it.",
            "As soon as the chosen id is the end, the text is finished.",
        ),
        END_LEFT_OUT,
        START_INCLUDED,
        MAX_LENGTH,
        LAST_ID_ONLY,
        START_NOT_READ,
        Mistake(
            "end-added",
            "the result ends with the end although the model did not produce it",
            "What should the last id be if max_length is reached?",
            "A text that is cut off at max_length has no end. Return what the model chose.",
            ways=("end-appended", "end-forced"),
        ),
        Mistake(
            "filled-with-end",
            "after the end the result goes on with more ends, up to max_length",
            "The result may be shorter than max_length.",
            "The end comes once.",
        ),
    ),
    properties=(
        Property(
            "each id is the most probable",
            (Case("the example: start 0, end 1, max_length 3", (example_model, 0, 1, 3)),),
            check_greedy_ids,
        ),
    ),
    hint="Write down by hand what happens in the example: which ids does the model get at each step?",
    strong_hint="A loop of max_length steps. Each gives the start and all ids so far to next_logits, as an array "
    "[1, T], chooses an id, keeps it, and stops if it is the end.",
    thought="The text so far is only the start. The model reads it and gives the logits of the next token. The largest "
    "one is chosen and joins the text. The model reads the longer text, and so on. It is over when the chosen id is "
    "the end, or after max_length ids. The start was only there to be read, so it is not part of the result.",
)


# --- length_penalty ------------------------------------------------------------------------------------------------


def length_penalty(length: int, alpha: float, wrong: Switches = NO_MISTAKES) -> float:
    """((5 + length) / 6)^alpha"""
    if "penalty-brackets" in wrong:
        return float((5 + length / 6) ** alpha)
    if "penalty-numerator" in wrong:
        return float((5 + length) ** alpha / 6)
    if "penalty-denominator" in wrong:
        return float((5 + length) / 6**alpha)
    if "penalty-length-only" in wrong:
        return float(length**alpha)
    if "penalty-times-alpha" in wrong:
        return float((5 + length) / 6 * alpha)
    return float(((5 + length) / 6) ** (-alpha if "penalty-inverse" in wrong else alpha))


def check_penalty_of_1(penalty: Any) -> str | None:
    value = float(penalty)
    return None if abs(value - 1) < 1e-4 else f"For length 1 it is {value:.4g}, not 1: (5 + 1) / 6 = 1."


def check_penalty_of_7(penalty: Any) -> str | None:
    value = float(penalty)
    return None if abs(value - 2) < 1e-3 else f"For length 7 and alpha 1 it is {value:.4g}, not (5 + 7) / 6 = 2."


LENGTH_PENALTY = ExercisePart(
    "length_penalty",
    ("length", "alpha"),
    ("penalty",),
    length_penalty,
    cases=tuple(
        Case(f"length {length}, alpha {alpha:g}", (length, alpha))
        for length, alpha in ((7, 1.0), (7, 2.0), (1, 0.6), (4, 0.6), (10, 0.0), (25, 0.6), (60, 0.5))
    ),
    mistakes=(
        Mistake(
            "penalty-brackets",
            "only the length is divided by 6; the 5 belongs to the fraction",
            "What is your result for length 7 and alpha 1? It should be 2.",
            "Division comes before addition: brackets are missing around 5 + length.",
        ),
        Mistake(
            "penalty-exponent",
            "alpha is the exponent of only one half of the fraction",
            "What is your result for length 1? It should be 1, whatever alpha is.",
            "The whole fraction is raised to the power alpha: it needs brackets.",
            ways=("penalty-numerator", "penalty-denominator"),
        ),
        Mistake(
            "penalty-length-only",
            "this is length^alpha; the 5 and the 6 are missing",
            "Compare your code with the equation.",
            "5 is added to the length, and the sum is divided by 6, before the power.",
        ),
        Mistake(
            "penalty-times-alpha",
            "alpha multiplies; it should be an exponent",
            "What is your result for alpha 0? It should be 1.",
            "Python writes x to the power y as x**y.",
        ),
        Mistake(
            "penalty-inverse",
            "this is 1 divided by the penalty",
            "What is your result for length 7 and alpha 1? It should be 2.",
            "The exponent is alpha, not minus alpha. The division of the log-probability by the penalty comes later.",
        ),
    ),
    properties=(
        Property("length 1 gives 1", (Case("length 1, alpha 2", (1, 2.0)),), check_penalty_of_1),
        Property("alpha 1", (Case("length 7, alpha 1", (7, 1.0)),), check_penalty_of_7),
    ),
    hint="Compute it by hand for length 7 and alpha 1: 12 / 6 = 2.",
    strong_hint="First the sum, then the fraction, then the power. Brackets keep this order.",
    thought="Read the equation from the inside: 5 + length, divided by 6, to the power alpha. For length 1 the "
    "fraction is 1, so the penalty is 1. For longer texts it grows. With alpha 0 it is always 1: no penalty.",
)


# --- beam_search ---------------------------------------------------------------------------------------------------


PENALTY_EACH_STEP = {"penalty-each-step", "penalty-each-step-and-at-the-end"}


class BeamRow(NamedTuple):
    log_p: float
    ids: list[int]  # with the start


class Candidate(NamedTuple):
    log_p: float
    parent: int  # its place in the beam
    token: int


def beam_search(
    next_logits: Model,
    start: int,
    end: int,
    beam_size: int,
    alpha: float,
    max_length: int,
    wrong: Switches = NO_MISTAKES,
) -> tuple[Any, Any]:
    """Go on with the `beam_size` most probable hypotheses; return the finished one with the best score."""
    size = 1 if "one-hypothesis" in wrong else beam_size
    live, finished = [BeamRow(0.0, [start])], list[BeamRow]()
    limit = max_length + max_length_error(wrong)
    compared: list[BeamRow] = []
    for length in range(1, limit + 1):
        candidates = list_candidates(live, next_logits, alpha, wrong)
        if {"finished-stay", "finished-stay-by-score"} & wrong:
            live, finished = keep_best(live, finished, candidates, end, size, alpha, wrong)
        else:
            live, new = select(live, candidates, end, size, len(finished), wrong)
            finished += new
        compared = list(finished)
        if not live:
            break
        if finished and stops(live, finished, end, beam_size, alpha, length, max_length, wrong):
            includes_live = "stop-with-live" in wrong or ("stop-before-limit" in wrong and length == limit)
            compared += live if includes_live else []
            break
    else:
        if not ("cut-off-ignored" in wrong and finished):
            compared += live

    def score(hypothesis: BeamRow) -> float:
        return score_of(hypothesis, end, alpha, wrong)

    best = max(compared, key=(lambda h: h.log_p) if "best-by-log-p" in wrong else score)
    result = best.log_p if "log-p-returned" in wrong else score(best)
    ids = as_ids(trim(best.ids[1:], start, end, wrong))
    return (result, ids) if "score-first" in wrong else (ids, result)


def list_candidates(live: list[BeamRow], next_logits: Model, alpha: float, wrong: Switches) -> list[Candidate]:
    """Each hypothesis with each token, the most probable first."""
    logits = next_logits(np.array([context_of(h.ids, wrong) for h in live]))
    gains = logits - logits.max(axis=-1, keepdims=True)
    gains = gains - np.log(np.exp(gains).sum(axis=-1, keepdims=True))
    if "logits-added" in wrong:
        gains = logits
    elif {"probabilities-added", "probabilities-multiplied"} & wrong:
        gains = np.exp(gains)
    candidates = []
    for parent, (hypothesis, row) in enumerate(zip(live, gains.tolist(), strict=True)):
        before = 0.0 if "not-added-up" in wrong else hypothesis.log_p
        is_product = "probabilities-multiplied" in wrong
        factor = hypothesis.log_p if len(hypothesis.ids) > 1 else 1.0
        candidates += [Candidate(factor * g if is_product else before + g, parent, v) for v, g in enumerate(row)]
    if PENALTY_EACH_STEP & wrong:
        penalty = length_penalty(len(live[0].ids), alpha, wrong)
        candidates = [c._replace(log_p=c.log_p / penalty) for c in candidates]
    if "parents-by-remainder" in wrong:
        candidates = [by_remainder(c, len(live), logits.shape[-1]) for c in candidates]
    return sorted(candidates, key=lambda c: -c.log_p)


def by_remainder(candidate: Candidate, n: int, vocabulary: int) -> Candidate:
    """Exchange the hypothesis and the token when a place in the flattened array [N·V] is taken apart."""
    place = candidate.parent * vocabulary + candidate.token
    return Candidate(candidate.log_p, place % n, place // n)


def select(
    live: list[BeamRow], candidates: list[Candidate], end: int, size: int, n_finished: int, wrong: Switches
) -> tuple[list[BeamRow], list[BeamRow]]:
    """Go through the candidates: those with `end` are finished; of the others `size` go on."""
    limit = len(candidates)
    if "finished-take-places" in wrong:
        limit = size
    elif "finished-take-places-for-good" in wrong:
        limit = max(size - n_finished, 0)
    elif "ends-of-2k" in wrong:
        limit = 2 * size
    later_ends = bool({"every-end-counts", "ends-of-2k"} & wrong)
    if "no-competition" in wrong and len(live[0].ids) > 1:
        candidates = [next(c for c in candidates if c.parent == i) for i in range(len(live))]
    goes_on, finished = list[BeamRow](), list[BeamRow]()
    for i, candidate in enumerate(candidates[:limit]):
        is_end = candidate.token == end and "end-extended" not in wrong
        if "parents-by-remainder-live" in wrong and not is_end:
            candidate = by_remainder(candidate, len(live), len(candidates) // len(live))
        if len(goes_on) == size and not (is_end and later_ends):
            if later_ends:
                continue
            break
        place = i if "parents-mixed" in wrong else len(goes_on)
        mixed = "parents-mixed" in wrong or ("parents-mixed-live" in wrong and not is_end)
        parent = live[min(place, len(live) - 1)] if mixed else live[candidate.parent]
        (finished if is_end else goes_on).append(BeamRow(candidate.log_p, [*parent.ids, candidate.token]))
    return goes_on, finished


def keep_best(
    live: list[BeamRow],
    finished: list[BeamRow],
    candidates: list[Candidate],
    end: int,
    size: int,
    alpha: float,
    wrong: Switches,
) -> tuple[list[BeamRow], list[BeamRow]]:
    """Let finished hypotheses stay in the beam and compete with the candidates."""
    pool = finished + [BeamRow(c.log_p, [*live[c.parent].ids, c.token]) for c in candidates]
    by_score = "finished-stay-by-score" in wrong
    pool.sort(key=lambda h: -(score_of(h, end, alpha, wrong) if by_score else h.log_p))
    return [h for h in pool[:size] if h.ids[-1] != end], [h for h in pool[:size] if h.ids[-1] == end]


def score_of(hypothesis: BeamRow, end: int, alpha: float, wrong: Switches) -> float:
    length = len(hypothesis.ids) - 1
    if "length-with-start" in wrong:
        length += 1
    if "length-minus-1" in wrong or ("length-without-end" in wrong and hypothesis.ids[-1] == end):
        length -= 1
    if {"no-penalty", "penalty-each-step"} & wrong:
        return hypothesis.log_p
    penalty = length_penalty(length, alpha, wrong)
    if not penalty:
        raise ValueError("division by 0")
    return hypothesis.log_p * penalty if "penalty-multiplied" in wrong else hypothesis.log_p / penalty


def stops(
    live: list[BeamRow],
    finished: list[BeamRow],
    end: int,
    beam_size: int,
    alpha: float,
    length: int,
    max_length: int,
    wrong: Switches,
) -> bool:
    """The rules to stop. Without a mistake they do not change the result."""
    if "first-finished" in wrong:
        return True
    if "enough-finished" in wrong:
        return len(finished) >= beam_size
    if not (BOUNDS | set(STOPS)) & wrong:
        return False
    best = max(score_of(h, end, alpha, wrong) for h in finished)
    if "bound-of-now" in wrong:
        return score_of(live[0], end, alpha, wrong) <= best
    if "bound-without-penalty" in wrong:
        return live[0].log_p <= best
    penalised_length = length + 1 if "bound-of-next" in wrong else max_length
    return live[0].log_p / length_penalty(penalised_length, alpha, wrong) <= best


BOUNDS = {"bound-of-now", "bound-of-next", "bound-without-penalty"}
# Ways to stop early: without the hypotheses that would go on, with them, or without them except at max_length. All are
# right, but together with a mistake they give different results.
STOPS = ("stop-without-live", "stop-with-live", "stop-before-limit")


BEAM_MISTAKES = (
    Mistake(
        "logits-added",
        "the logits themselves are added up, not the log-probabilities",
        "Can your sums be positive? A log-probability cannot.",
        "Logits become log-probabilities by the logarithm of the softmax, row by row.",
    ),
    Mistake(
        "no-logarithm",
        "the score is made of probabilities, not of their logarithms",
        "What is the log-probability of a text with the probability 0.36? Is it positive?",
        "Take the logarithm of each probability. What would be multiplied is then added.",
        ways=("probabilities-added", "probabilities-multiplied"),
    ),
    Mistake(
        "not-added-up",
        "only the log-probability of the last token counts",
        "What is the log-probability of a text of three tokens?",
        "A candidate has the log-probability of its hypothesis plus that of its new token.",
    ),
    Mistake(
        "one-hypothesis",
        "the search goes on with one hypothesis only, or with copies of one",
        "How many different hypotheses are in your beam after the first step?",
        "Begin with a single hypothesis, the start. Copies of it have the same candidates, so the beam would be filled "
        "with the same text again and again.",
    ),
    Mistake(
        "no-competition",
        "each hypothesis goes on with its own best token",
        "How many candidates are there in the second step? Which of them may belong to the same hypothesis?",
        "All candidates of all hypotheses compete: two that go on may extend the same hypothesis, and none another.",
    ),
    Mistake(
        "parents-mixed",
        "tokens are appended to the wrong hypotheses",
        "A candidate is a hypothesis and a token. Does each token that goes on still know its hypothesis?",
        "The hypothesis at place i of the new beam extends any of the old beam, not the one at place i. For a place in "
        "the flattened array [N·V], the hypothesis is the place divided by V, rounded down, and the token is the rest.",
        ways=("parents-mixed", "parents-mixed-live", "parents-by-remainder", "parents-by-remainder-live"),
    ),
    Mistake(
        "finished-take-places",
        "finished hypotheses take places in the beam, so fewer than beam_size go on",
        "Suppose beam_size is 2 and the most probable candidate ends. How many hypotheses should go on?",
        "Finished candidates leave. Go further down the list until beam_size others go on.",
        ways=("finished-take-places", "finished-take-places-for-good", "finished-stay", "finished-stay-by-score"),
    ),
    Mistake(
        "end-extended",
        "hypotheses go on after the end",
        "What should happen to a candidate whose new token is the end?",
        "It is finished: keep it aside, and do not extend it again.",
    ),
    Mistake(
        "every-end-counts",
        "candidates with the end count as finished even if they are not probable enough",
        "In the first step of the example the candidate with the end has the probability 0.1. Is it finished?",
        "Go through the candidates from the most probable. As soon as beam_size go on, ignore the rest.",
        ways=("every-end-counts", "ends-of-2k"),
    ),
    Mistake(
        "first-finished",
        "the first finished hypothesis is the result; a later one can have a higher score",
        "Can a longer hypothesis still get a better score?",
        "Go on while the bound of the best unfinished hypothesis, log p / lp(max_length), is above the best score.",
    ),
    Mistake(
        "enough-finished",
        "the search stops when beam_size hypotheses are finished; it should go on",
        "Can an unfinished hypothesis still get a better score?",
        "The number of finished hypotheses does not matter, only whether an unfinished one can still win.",
    ),
    Mistake(
        "bound-too-low",
        "the search stops too early: the score of an unfinished hypothesis can still rise",
        "What happens to log p / lp(n) if a hypothesis gets longer and its log p hardly falls?",
        "The penalty is largest at max_length. So log p / lp(max_length) is the best that a hypothesis can reach. Only "
        "if that is no better than the best finished score, the search may stop.",
        ways=("bound-of-now", "bound-of-next", "bound-without-penalty"),
    ),
    Mistake(
        "cut-off-ignored",
        "at max_length the hypotheses without end are not compared with the finished ones",
        "At max_length, which hypotheses can win?",
        "At max_length the hypotheses that would go on count as finished, too, just as they are.",
    ),
    Mistake(
        "no-penalty",
        "the score is not divided by the length penalty",
        "What is alpha for?",
        "score = log p / lp(number of ids).",
    ),
    Mistake(
        "penalty-multiplied",
        "the log-probability is multiplied by the length penalty instead of divided",
        "Log-probabilities are negative. Does your penalty help long texts or hurt them?",
        "score = log p / lp(number of ids). A larger penalty brings a negative number closer to 0.",
    ),
    Mistake(
        "penalty-each-step",
        "the penalty is applied again at each step, to a sum that it has already divided",
        "Which number does a hypothesis carry on to the next step: its log p or its score?",
        "The sum of the log-probabilities is carried on without a penalty. Only a finished hypothesis gets a score.",
        ways=tuple(sorted(PENALTY_EACH_STEP)),
    ),
    Mistake(
        "length-wrong",
        "the length in the penalty is off by one",
        "Count the ids of [start, 3, end] that matter for the length: there are 2.",
        "The start does not count. The end counts.",
        ways=("length-with-start", "length-minus-1", "length-without-end"),
    ),
    Mistake(
        "best-by-log-p",
        "the winner is the finished hypothesis with the highest log-probability, not with the best score",
        "Which of the finished hypotheses wins if a short one has the higher log p and a long one the better score?",
        "Compute the score of each finished hypothesis first, then compare the scores.",
    ),
    Mistake(
        "log-p-returned",
        "the log-probability comes back; expected is the score",
        "What is missing in the second thing that you return?",
        "Return the log-probability divided by the length penalty.",
    ),
    END_LEFT_OUT,
    START_INCLUDED,
    MAX_LENGTH,
    LAST_ID_ONLY,
    START_NOT_READ,
    Mistake(
        "score-first",
        "score and ids come back in the other order",
        "In which order should the two come back?",
        "First the ids, then the score.",
    ),
)


def beam_case(
    what: str, model: TableModel, start: int, end: int, beam_size: int, alpha: float, max_length: int
) -> Case:
    text = f"{what}: start {start}, end {end}, beam_size {beam_size}, alpha {alpha:g}, max_length {max_length}"
    return Case(text, (model, start, end, beam_size, alpha, max_length))


def log_probability(model: Model, start: int, ids: list[int]) -> float:
    texts = [[start, *ids[:i]] for i in range(len(ids))]
    return float(sum(np.log(softmax(model(np.array([text])))[0, i]) for text, i in zip(texts, ids, strict=True)))


def all_texts(end: int, vocabulary: int, max_length: int) -> list[list[int]]:
    """Every text that ends with `end`, and every one of max_length ids without it."""
    texts = [[]] if max_length == 0 else [[end]]
    others = [i for i in range(vocabulary) if i != end] if max_length else []
    return texts + [[i, *rest] for i in others for rest in all_texts(end, vocabulary, max_length - 1)]


def check_score(result: Any) -> str | None:
    """For the example with alpha 0.6."""
    ids, score = [int(i) for i in result[0]], float(result[1])
    if 1 in ids[:-1]:
        return f"In your ids {ids} the end, 1, is not the last one."
    if not 1 <= len(ids) <= 3:
        return f"It returns {len(ids)} ids; max_length is 3."
    log_p, penalty = log_probability(example_model, 0, ids), length_penalty(len(ids), 0.6)
    if abs(score - log_p / penalty) < 1e-3:
        return None
    return (
        f"Your ids {ids} have the log-probability {log_p:.4f}. Divided by the penalty {penalty:.4f} for the length "
        f"{len(ids)} that is {log_p / penalty:.4f}, not {score:.4f}."
    )


def check_same_as_greedy(result: Any) -> str | None:
    ids = [int(i) for i in result[0]]
    if ids == [2, 1]:
        return None
    return f"With beam_size 1 and alpha 0 it should return the ids [2, 1] of greedy, but it returns {ids}."


def check_best_of_all(result: Any) -> str | None:
    """With a beam that holds everything, the search must find the best of all texts."""
    ids, score = [int(i) for i in result[0]], float(result[1])
    scores = {
        tuple(text): log_probability(example_model, 0, text) / length_penalty(len(text), 0.6)
        for text in all_texts(1, 4, 3)
    }
    best = max(scores, key=scores.__getitem__)
    if tuple(ids) == best and abs(score - scores[best]) < 1e-3:
        return None
    return (
        f"With beam_size 30 no text can be missed. The best is {list(best)} with the score {scores[best]:.4f}; "
        f"yours is {ids} with {score:.4f}."
    )


BEAM_SEARCH = ExercisePart(
    "beam_search",
    ("next_logits", "start", "end", "beam_size", "alpha", "max_length"),
    ("ids", "score"),
    beam_search,
    cases=(
        beam_case("the example", example_model, 0, 1, 2, 0.6, 3),
        beam_case("the example", example_model, 0, 1, 2, 0.6, 1),
        beam_case("the example", example_model, 0, 1, 1, 0.0, 3),
        beam_case("early_end_model", early_end_model, 0, 1, 2, 2.0, 4),
        beam_case("repeating_model", repeating_model, 0, 1, 2, 2.0, 6),
        # chosen by a search among random models, so that together they distinguish the mistakes
        beam_case("alpha is 0", random_model(4, 188, 2.5, 3, -1.0), 1, 3, 4, 0.0, 4),
        beam_case("two go on", random_model(4, 269, 2.0, 1, 1.0), 0, 1, 2, 0.6, 5),
        beam_case("three go on", random_model(4, 22, 2.0, 0, 1.0), 1, 0, 3, 1.5, 5),
        beam_case("four go on", random_model(4, 75, 2.0, 1, 1.0), 0, 1, 4, 2.0, 5),
        beam_case("fewer candidates than places", random_model(4, 105, 2.5, 0, -2.0), 1, 0, 6, 1.5, 4),
        beam_case("six go on", random_model(4, 275, 2.0, 1, -1.0), 3, 1, 6, 1.0, 5),
        beam_case("the end comes late", random_model(4, 262, 2.0, 3, -2.0), 0, 3, 2, 0.6, 5),
        beam_case("the end never comes", random_model(4, 3, 1.0, 2, -9.0), 0, 2, 2, 0.6, 4),
        beam_case("many steps", random_model(6, 7, 1.5, 1), 0, 1, 4, 0.6, 8),
    ),
    mistakes=BEAM_MISTAKES,
    free_choices=STOPS,
    properties=(
        Property("the score", (beam_case("the example", example_model, 0, 1, 2, 0.6, 3),), check_score),
        Property("beam_size 1", (beam_case("the example", example_model, 0, 1, 1, 0.0, 3),), check_same_as_greedy),
        Property("a large beam", (beam_case("the example", example_model, 0, 1, 30, 0.6, 3),), check_best_of_all),
    ),
    hint="Follow the example by hand: its steps are in the description of beam_search. At which step does yours "
    "differ? Print the candidates of each step.",
    strong_hint="Keep two lists: hypotheses that go on, each with its ids and its log-probability, and finished ones. "
    "A step makes all candidates, sorts them by log-probability, and goes through them from the top.",
    thought="Greedy search cannot take back its first choice. A beam keeps several hypotheses, each with the "
    "log-probability of all its tokens. A step extends each by each token, which gives N·V candidates. They are "
    "sorted, and one list says all: a candidate with the end is finished, any other goes on, and it stops when "
    "beam_size go on. In a step all candidates have the same length, so their log-probabilities are comparable. Texts "
    "of different lengths are not: each token costs probability. Therefore the finished ones are compared by their "
    "score, which is divided by the length penalty.",
)

EXERCISE = Exercise(
    6,
    "decoding",
    "Decoding",
    parts=(APPLY_TEMPERATURE, CHOOSE_TOKEN, KEEP_TOP_K, KEEP_TOP_P, SAMPLE, GREEDY, LENGTH_PENALTY, BEAM_SEARCH),
)
