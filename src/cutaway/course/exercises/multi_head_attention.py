"""Exercise 2 for the grader: splitting into heads, merging them, attention in heads, multi-head attention."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.course.exercise import NO_MISTAKES, Case, Exercise, ExercisePart, Mistake, Switches
from cutaway.course.exercises import scaled_dot_product as exercise_1
from cutaway.course.exercises.properties import agrees, equal, floats, holds
from cutaway.course.exercises.scaled_dot_product import MASKED_WITH, SQUARE, attention, changed, only_one

Array = NDArray[Any]


def head_columns(d_model: int, n_heads: int, head: int, wrong: Switches = NO_MISTAKES) -> Array:
    """The numbers of a word that belong to a head: h·E ... (h+1)·E-1."""
    width = n_heads if "number-for-width" in wrong else d_model // n_heads
    if "split-like-cards" in wrong:
        return np.arange(head, d_model, n_heads)
    if "heads-reversed" in wrong:
        head = n_heads - 1 - head
    if {"heads-rolled", "heads-rolled-back"} & wrong:
        head = (head + (-1 if "heads-rolled" in wrong else 1)) % n_heads
    if "head-from-1" in wrong:
        head -= 1
    if "first-head-for-all" in wrong:
        head = 0
    start = head if "heads-overlap" in wrong else head * width
    stop = start + width + (1 if "one-too-many" in wrong else -1 if "last-left-out" in wrong else 0)
    if {"only-ends", "only-ends-included"} & wrong:
        return np.array([start, stop - 1 if "only-ends-included" in wrong else stop])
    return np.arange(start, stop)


def split_heads(x: Array, n_heads: int, wrong: Switches = NO_MISTAKES) -> Array:
    """[B, T, D] -> [B, H, T, E]: head h takes the numbers h·E ... (h+1)·E-1 of each word."""
    n_texts, n_words, width = x.shape
    e = width // n_heads
    if "split-by-view" in wrong:
        return x.reshape(n_texts, n_heads, n_words, e)
    if "split-like-cards" in wrong:
        return x.reshape(n_texts, n_words, e, n_heads).transpose(0, 3, 1, 2)
    if "number-for-width" in wrong:
        return x.reshape(n_texts, n_words, e, n_heads).transpose(0, 2, 1, 3)
    if "heads-overlap" in wrong:
        return np.stack([x[..., h : h + e] for h in range(n_heads)], axis=1)
    heads = x.reshape(n_texts, n_words, n_heads, e)
    if "heads-not-moved" in wrong:
        return heads
    if "heads-before-texts" in wrong:
        return heads.transpose(2, 0, 1, 3)
    if "words-last" in wrong:
        return heads.transpose(0, 2, 3, 1)
    heads = heads.transpose(0, 2, 1, 3)
    if "heads-reversed" in wrong:
        return heads[:, ::-1]
    if "heads-rolled" in wrong:
        return np.roll(heads, 1, axis=1)
    if "heads-rolled-back" in wrong:
        return np.roll(heads, -1, axis=1)
    if "first-head-for-all" in wrong:
        return np.repeat(heads[:, :1], n_heads, axis=1)
    return heads


def merge_heads(x: Array, wrong: Switches = NO_MISTAKES) -> Array:
    """[B, H, T, E] -> [B, T, D]: concatenate the heads of each word."""
    n_texts, n_heads, n_words, e = x.shape
    if "merge-by-view" in wrong:
        return x.reshape(n_texts, n_words, n_heads * e)
    if "merge-like-cards" in wrong:
        return x.transpose(0, 2, 3, 1).reshape(n_texts, n_words, e * n_heads)
    if "merged-along-words" in wrong:
        return x.reshape(n_texts, n_heads * n_words, e)
    if "merged-along-texts" in wrong:
        return x.swapaxes(0, 1).reshape(n_heads * n_texts, n_words, e)
    if "heads-added" in wrong:
        return x.sum(axis=1)
    if "heads-averaged" in wrong:
        return x.mean(axis=1)
    if "merge-reversed" in wrong:
        x = x[:, ::-1]
    if {"merge-rolled", "merge-rolled-back"} & wrong:
        x = np.roll(x, 1 if "merge-rolled" in wrong else -1, axis=1)
    words = x.transpose(0, 2, 1, 3)
    if "not-merged" in wrong:
        return words
    return words.reshape(n_texts, n_words, n_heads * e)


def project_heads(x: Array, w: Array, n_heads: int, wrong: Switches = NO_MISTAKES) -> Array:
    """split_heads(x W): [B, T, D] -> [B, H, T, E]"""
    if "inputs-transposed" in wrong:
        w = w.T
    if "each-head-its-own-numbers" in wrong:
        w = w * own_block(len(w), n_heads)
    projected = x if "no-projections" in wrong else x @ w
    return projected if "not-split" in wrong else split_heads(projected, n_heads, wrong)


def own_block(width: int, n_heads: int) -> Array:
    """[D, D], 1 where a head's columns meet the same rows, else 0."""
    e = width // n_heads
    return np.kron(np.eye(n_heads), np.ones((e, e)))


def attend_heads(
    q: Array, k: Array, v: Array, mask: Array | None = None, wrong: Switches = NO_MISTAKES
) -> Array | tuple[Array, Array]:
    """Attention in each head, and the heads side by side: q [B, H, Q, E], k and v [B, H, K, E] -> [B, Q, D]"""
    only_one(wrong, MATRICES_MIXED_UP)
    if "k-v-matrices-exchanged" in wrong:
        k, v = v, k
    if "value-matrix-for-keys" in wrong:
        k = v
    output, shares = attend_and_merge(q, k, v, q.shape[1], mask, wrong)
    return (output, shares) if "weights-returned" in wrong else output


def attend_and_merge(
    q: Array, k: Array, v: Array, n_heads: int, mask: Array | None, wrong: Switches
) -> tuple[Array, Array]:
    q = q * scale_change(n_heads, wrong)
    if mask is not None and "mask-first-head" in wrong:
        mask = np.broadcast_to(mask, (*q.shape[:-1], k.shape[-2])).copy()
        mask[:, 1:] = True
    output, shares = attention(q, q if "queries-as-keys" in wrong else k, v, mask, wrong)
    if "attends-over-heads" in wrong:
        return output.reshape(*output.shape[:2], -1), shares
    return merge_heads(output, wrong), shares


def multi_head_attention(
    x: Array,
    memory: Array,
    weights: dict[str, Array],
    n_heads: int,
    mask: Array | None = None,
    wrong: Switches = NO_MISTAKES,
) -> Array:
    """Concat(head_1, ..., head_h) W_O with head_i = Attention(Q W_Q, K W_K, V W_V) on its slice of the width.

    x [B, Q, D] asks, memory [B, K, D] is looked at. -> [B, Q, D]
    """
    return output_and_weights(x, memory, weights, n_heads, mask, wrong)[0]


def output_and_weights(
    x: Array, memory: Array, weights: dict[str, Array], n_heads: int, mask: Array | None, wrong: Switches
) -> tuple[Array, Array]:
    only_one(wrong, MATRICES_MIXED_UP)
    q, k, v = projections(x, memory, weights, n_heads, wrong)
    if "attends-over-heads" in wrong:
        wrong = wrong - SPLIT_SWITCHES | {"heads-not-moved"}
    parts = 1 if {"one-head", "one-head-narrow-scale"} & wrong else n_heads
    q, k, v = (split_heads(part, parts, wrong) for part in (q, k, v))
    merged, shares = attend_and_merge(q, k, v, n_heads, mask, wrong)
    if "no-output-projection" not in wrong:
        transposed = {"matrices-transposed", "output-transposed"} & wrong
        merged = merged @ (weights["output"].T if transposed else weights["output"])
    return x + merged if "residual-inside" in wrong else merged, shares


def multi_head_attention_returns(
    x: Array,
    memory: Array,
    weights: dict[str, Array],
    n_heads: int,
    mask: Array | None = None,
    wrong: Switches = NO_MISTAKES,
) -> Array | tuple[Array, Array]:
    """Select the return value, which can be wrong too."""
    output, shares = output_and_weights(x, memory, weights, n_heads, mask, wrong)
    return (output, shares) if "weights-returned" in wrong else output


def projections(
    x: Array, memory: Array, weights: dict[str, Array], n_heads: int, wrong: Switches
) -> tuple[Array, Array, Array]:
    """Return queries from x, and keys and values from the memory."""
    if "each-head-its-own-numbers" in wrong:
        weights = {name: w * own_block(len(w), n_heads) for name, w in weights.items()}
    if "x-memory-exchanged" in wrong:
        x, memory = memory, x
    asks = memory if "queries-from-memory" in wrong else x
    keys_from = x if {"memory-ignored", "keys-from-x"} & wrong else memory
    values_from = x if {"memory-ignored", "values-from-x"} & wrong else memory
    for_q, for_k, for_v = "query", "key", "value"
    if "q-k-matrices-exchanged" in wrong:
        for_q, for_k = "key", "query"
    if "k-v-matrices-exchanged" in wrong:
        for_k, for_v = "value", "key"
    if "value-matrix-for-keys" in wrong:
        for_k = "value"
    if {"key-by-query-matrix", "all-by-query-matrix"} & wrong:
        for_k = "query"
    if {"value-by-query-matrix", "all-by-query-matrix"} & wrong:
        for_v = "query"
    q, k, v = (
        part @ (weights[name].T if {"matrices-transposed", "inputs-transposed"} & wrong else weights[name])
        for part, name in ((asks, for_q), (keys_from, for_k), (values_from, for_v))
    )
    if {"no-query-projection", "no-projections"} & wrong:
        q = asks
    if {"no-key-projection", "no-projections"} & wrong:
        k = keys_from
    if {"no-value-projection", "no-projections"} & wrong:
        v = values_from
    return q, k, v


# Two of these at once are another permutation of the matrices.
MATRICES_MIXED_UP = {
    "q-k-matrices-exchanged",
    "k-v-matrices-exchanged",
    "key-by-query-matrix",
    "value-by-query-matrix",
    "all-by-query-matrix",
    "value-matrix-for-keys",
    "queries-as-keys",
    "keys-for-values",
}


def scale_change(n_heads: int, wrong: Switches) -> float:
    """Return the factor for queries that turns the right scale of attention into the wrong one."""
    if OTHER_SCALES & wrong:
        return 1.0  # there is only one scale to get wrong
    if "scale-model-width" in wrong:
        return math.sqrt(1 / n_heads)
    if "one-head-narrow-scale" in wrong:
        return math.sqrt(n_heads)
    return 1.0


OTHER_SCALES = {"no-scale", "scale-d", "scale-times", "scale-length", "scale-after-softmax"}

VIEW_ALONE = Mistake(
    "split-by-view",
    "the words are mixed up: a head got pieces of several words, because the axes were cut in the wrong order",
    "Follow one word through your code. Are its numbers still together afterwards?",
    "A reshape never changes the order of numbers in memory. Cut D into (H, E) where D stands, at the end, and only "
    "then move the axis of the heads.",
)
LIKE_CARDS = Mistake(
    "split-like-cards",
    "the numbers of a word are dealt out to the heads like cards; each head should get a range of neighbours",
    "With two heads, which numbers of a word does head 0 have? It should be the first half.",
    "You cut D into (E, H). The axis that changes more slowly has to be the one of the heads.",
)
NUMBER_FOR_WIDTH = Mistake(
    "number-for-width",
    "n_heads is taken for the width of a head: there are D / n_heads heads, and each is n_heads wide",
    "How many heads come out? Try a width of 6 with 2 heads.",
    "Of the two axes that D is cut into, the first is n_heads long, and the second is what is left.",
)
OUT_OF_ORDER = Mistake(
    "heads-out-of-order",
    "the heads are not in order: head 0 does not have the first numbers of each word",
    "Which numbers of a word are in head 0? And in the last one?",
    "Head h begins at number h·E. Something reversed or shifted the order of the heads.",
    ways=("heads-reversed", "heads-rolled", "heads-rolled-back"),
)
FIRST_HEAD = Mistake(
    "first-head-for-all",
    "every head has the same numbers, those of the first one",
    "Compare head 0 and head 1. They should have nothing in common.",
    "Where a head begins has to depend on its number.",
)
OVERLAP = Mistake(
    "heads-overlap",
    "the heads overlap: each begins one number after the one before, instead of E numbers",
    "Which is the first number of head 1? It should be the one after the last of head 0.",
    "Head h does not begin at h. How wide are the h heads before it together?",
)
SPLIT_MISTAKES = (VIEW_ALONE, LIKE_CARDS, NUMBER_FOR_WIDTH, OUT_OF_ORDER, FIRST_HEAD, OVERLAP)
SPLIT_SWITCHES = {switch for mistake in SPLIT_MISTAKES for switch in mistake.switches}


def readable(n_texts: int, n_words: int, width: int) -> Array:
    """Return numbers that encode their place: 123 is number 3 of word 2 of text 1."""
    text, word, number = np.ogrid[1 : n_texts + 1, 1 : n_words + 1, 0:width]
    return np.asarray(100.0 * text + 10 * word + number)


HEAD_COLUMNS = ExercisePart(
    "head_columns",
    ("d_model", "n_heads", "head"),
    ("columns",),
    head_columns,
    cases=(
        Case("width 4, two heads, head 1", (4, 2, 1)),
        Case("width 6, two heads, head 1", (6, 2, 1)),
        Case("width 6, two heads, head 0", (6, 2, 0)),
        Case("width 12, three heads, head 2", (12, 3, 2)),
        Case("width 12, four heads, head 1", (12, 4, 1)),
    ),
    mistakes=(
        replace(
            OVERLAP,
            message="the heads overlap: head 1 begins one number after head 0, instead of E numbers after it",
        ),
        replace(
            LIKE_CARDS,
            message="the numbers are dealt out to the heads like cards; each head should get a range of neighbours",
            strong_hint="The numbers of a head follow each other: h·E, h·E + 1, h·E + 2, ...",
        ),
        replace(NUMBER_FOR_WIDTH, strong_hint="E, the width of a head, is d_model / n_heads."),
        replace(
            OUT_OF_ORDER,
            message="the heads are not in order: head 0 should have the first numbers",
            hint="Which numbers should head 0 have? And the last head?",
            strong_hint="Head h begins at number h·E.",
        ),
        replace(
            FIRST_HEAD,
            message="the argument head is not used: every head gets the first numbers",
            hint="Which of the arguments does your code never read?",
        ),
        Mistake(
            "head-from-1",
            "the heads are counted from 1; the first one is head 0",
            "Where does head 0 begin?",
            "Head h begins at number h·E, so head 0 begins at number 0.",
        ),
        Mistake(
            "wrong-end",
            "the range has one number too many or too few at its end",
            "How many numbers does a head have? It should be E = d_model / n_heads.",
            "Is the last number of your range included? In Python the end of a range is not.",
            ways=("last-left-out", "one-too-many"),
        ),
        Mistake(
            "only-ends",
            "only the first and the last number of the range come back; expected are all numbers of the head",
            "How many numbers should come back for width 6 and two heads?",
            "Return the whole range, from h·E up to (but not including) (h+1)·E.",
            ways=("only-ends", "only-ends-included"),
        ),
    ),
    properties=(
        agrees(head_columns, ("columns",), "one head, width 3", 3, 1, 0),
        agrees(head_columns, ("columns",), "as many heads as numbers, head 2 of 4", 4, 4, 2),
        agrees(head_columns, ("columns",), "width 512, eight heads, head 7", 512, 8, 7),
    ),
    hint="Write the numbers 0 to 5 in a row and cut them into two heads: head 0 has 0, 1, 2 and head 1 has 3, 4, 5.",
    strong_hint="Each head has E = d_model / n_heads numbers. Where does head h begin, if the h heads before it have E "
    "numbers each?",
    thought="All heads together are as wide as a word, so each of them has E = d_model / n_heads numbers. Head 0 takes "
    "the first E numbers, head 1 the next E. Before head h stand h other heads with E numbers each, so it begins at "
    "number h·E. It ends where head h+1 begins.",
)


def check_words_stay_together(heads: Any) -> str | None:
    """The words are [110, 111, 112, 113] and [120, 121, 122, 123]."""
    heads = floats(heads)
    for t, word in enumerate(readable(1, 2, 4)[0]):
        numbers = np.sort(heads[0, :, t].ravel())
        if not np.array_equal(numbers, word):
            shown = ", ".join(f"{number:g}" for number in numbers)
            return f"Word {t} is {[int(number) for number in word]}, but the heads have [{shown}] at word {t}."
    return None


def check_first_head(heads: Any) -> str | None:
    heads = floats(heads)
    if np.array_equal(heads[0, 0, 0], [110, 111]):
        return None
    shown = ", ".join(f"{number:g}" for number in heads[0, 0, 0])
    return f"Of word 0, [110, 111, 112, 113], head 0 gets [110, 111]; yours gets [{shown}]."


SPLIT_HEADS = ExercisePart(
    "split_heads",
    ("x", "n_heads"),
    ("heads",),
    split_heads,
    cases=(
        Case("two texts of three words, width 4, two heads", (readable(2, 3, 4), 2)),
        Case("width 6, three heads", (readable(2, 4, 6), 3)),
        Case("as many words as heads", (readable(3, 2, 6), 2)),
    ),
    mistakes=(
        *SPLIT_MISTAKES,
        Mistake(
            "heads-not-moved",
            "the axis of the heads stands behind that of the words: [B, T, H, E] instead of [B, H, T, E]",
            "Compare the shape with the one that is asked for.",
            "Two axes have to change places, so that all words of a head stand together.",
        ),
        Mistake(
            "heads-before-texts",
            "the axis of the heads stands before that of the texts: [H, B, T, E] instead of [B, H, T, E]",
            "Compare the shape with the one that is asked for.",
            "A stack puts its new axis first, unless it is told where it belongs.",
        ),
        Mistake(
            "words-last",
            "the words are on the last axis: [B, H, E, T] instead of [B, H, T, E]",
            "Compare the shape with the one that is asked for.",
            "Only the axes of words and heads change places. The last axis stays the last.",
        ),
    ),
    properties=(
        holds("one text of two words, width 4, two heads", [(readable(1, 2, 4), 2)], check_words_stay_together),
        holds("one text of two words, width 4, two heads", [(readable(1, 2, 4), 2)], check_first_head),
        agrees(split_heads, ("heads",), "one head", readable(1, 2, 3), 1),
        agrees(split_heads, ("heads",), "as many heads as numbers in a word", readable(1, 2, 3), 3),
        agrees(split_heads, ("heads",), "one text of one word", readable(1, 1, 4), 2),
        agrees(split_heads, ("heads",), "five texts of one word", readable(5, 1, 2), 2),
    ),
    hint="In the first case, 123 is number 3 of word 2 of text 1. Which numbers should stand in heads[0, 0, 0]? Which "
    "do you have there?",
    strong_hint="Print the shape and the first row after each step. After cutting, the axes are [B, T, H, E], and row "
    "[0, 0] has the numbers of one word. Only then do two axes change places.",
    thought="A word is a row of D numbers, and each head gets E = D / H of them that are neighbours. Cutting the last "
    "axis into H pieces of E does this: [B, T, D] becomes [B, T, H, E], and no number moves in memory. Attention works "
    "on the last two axes, and there the words of one head should stand: [T, E]. So the axis of the heads has to go in "
    "front of that of the words: [B, H, T, E]. Now B and H are only carried along.",
)

MERGE_BY_VIEW = Mistake(
    "merge-by-view",
    "the words are mixed up: the heads were glued together without moving their axis back first",
    "Follow one word through your code. Are its numbers, and only those, in one row at the end?",
    "What is glued together has to stand side by side: first bring the axis of the heads next to the last one.",
)
MERGE_LIKE_CARDS = Mistake(
    "merge-like-cards",
    "the numbers of the heads alternate; the heads should stand side by side as wholes",
    "What follows the first number of head 0? It should be its second number, not the first of head 1.",
    "Before gluing, the last axis has to be E, and the one before it H.",
)
MERGE_HEADS = ExercisePart(
    "merge_heads",
    ("x",),
    ("words",),
    merge_heads,
    cases=(
        Case("two texts, two heads, three words", (split_heads(readable(2, 3, 4), 2),)),
        Case("three heads", (split_heads(readable(2, 4, 6), 3),)),
        Case("as many words as heads", (split_heads(readable(3, 2, 6), 2),)),
    ),
    mistakes=(
        MERGE_BY_VIEW,
        MERGE_LIKE_CARDS,
        Mistake(
            "merge-out-of-order",
            "the heads are put together in another order",
            "Which head do the first numbers of a word come from?",
            "Head 0 comes first. Merging what was split has to give back what was there.",
            ways=("merge-reversed", "merge-rolled", "merge-rolled-back"),
        ),
        Mistake(
            "heads-added",
            "the heads are added up (or averaged); they should stand side by side",
            "How wide is the result? It should be as wide as all heads together.",
            "The paper says Concat: no number is lost. A sum would mix what the heads have found.",
            ways=("heads-added", "heads-averaged"),
        ),
        Mistake(
            "merged-along-other-axis",
            "the heads are put one after the other along another axis; they should stand side by side",
            "How many words does the result have? There should be as many as before.",
            "It is the width that grows: put the heads together along the last axis.",
            ways=("merged-along-words", "merged-along-texts"),
        ),
        Mistake(
            "not-merged",
            "the axis of the heads is not glued to the last one yet",
            "How many axes does the result have, and how many are asked for?",
            "One reshape is missing, from [B, T, H, E] to [B, T, D].",
        ),
    ),
    properties=(
        holds(
            "one text, two heads, two words",
            [(split_heads(readable(1, 2, 4), 2),)],
            lambda words: compare_words(words, readable(1, 2, 4)),
        ),
        agrees(merge_heads, ("words",), "one head", split_heads(readable(1, 2, 3), 1)),
        agrees(merge_heads, ("words",), "heads of one number", split_heads(readable(1, 2, 3), 3)),
        agrees(merge_heads, ("words",), "one text of one word", split_heads(readable(1, 1, 4), 2)),
        agrees(merge_heads, ("words",), "five texts of one word", split_heads(readable(5, 1, 2), 2)),
    ),
    hint="In the first case, 123 is number 3 of word 2 of text 1. Row [0, 0] of the result should have 110, 111, 112 "
    "and 113. What is in yours?",
    strong_hint="The way back has the same two steps as the way there, in the opposite order. Print the shapes: "
    "[B, H, T, E], [B, T, H, E], [B, T, D].",
    thought="This undoes split_heads, so take its steps back in the opposite order. A reshape joins axes that are "
    "neighbours, and it never moves numbers. So first the axis of the heads goes back next to the width: [B, T, H, E]. "
    "Then the last two axes become one: [B, T, D]. Without the first step, a row would get numbers of several words.",
)


def compare_words(words: Any, right: Array) -> str | None:
    """Check that each word has its own numbers, in order."""
    words = floats(words)
    for t, word in enumerate(right[0]):
        if not np.array_equal(words[0, t], word):
            shown = ", ".join(f"{number:g}" for number in words[0, t])
            return f"Word {t} should be {[int(number) for number in word]} again; yours is [{shown}]."
    return None


FROM_1 = {mistake.name: mistake for mistake in exercise_1.ATTENTION_MISTAKES}
PROJECTION_MISTAKES = (
    Mistake(
        "matrices-transposed",
        "all four matrices are used transposed: x @ W.T",
        "In this exercise, what does a matrix stand for: x W, as in the paper, or nn.Linear's way?",
        "nn.Linear keeps its matrix transposed, so there it is x @ W.T. Here the matrices are as in the paper.",
    ),
    Mistake(
        "inputs-transposed",
        "W_Q, W_K and W_V are used transposed: x @ W.T",
        "How does x meet the first three matrices? Compare with the equation.",
        "nn.Linear keeps its matrix transposed, so there it is x @ W.T. Here the matrices are as in the paper.",
    ),
    Mistake(
        "output-transposed",
        "W_O is used transposed",
        "How do the heads, side by side, meet the last matrix? Compare with the equation.",
        "nn.Linear keeps its matrix transposed, so there it is x @ W.T. Here W_O is as in the paper.",
    ),
    Mistake(
        "memory-ignored",
        "keys and values are made from x; they should be made from memory",
        "Who asks, and who is looked at? Two different texts may meet here.",
        "x makes the queries and nothing else.",
    ),
    Mistake(
        "keys-from-x",
        "the keys are made from x; they should be made from memory",
        "Keys belong to what is looked at.",
        "Keys and values come from the same place.",
    ),
    Mistake(
        "values-from-x",
        "the values are made from x; they should be made from memory",
        "A value is the answer that belongs to a key. Where do the keys come from?",
        "Keys and values come from the same place.",
    ),
    Mistake(
        "queries-from-memory",
        "the queries are made from memory; they should be made from x",
        "How many rows should come out? One for each word that asks.",
        "x asks, memory is looked at.",
    ),
    Mistake(
        "x-memory-exchanged",
        "x and memory have changed places: memory asks, and x is looked at",
        "How many rows should come out? One for each word that asks.",
        "x makes the queries; memory makes the keys and the values.",
    ),
    Mistake(
        "q-k-matrices-exchanged",
        "the matrices of queries and keys have changed places",
        "Which matrix does x meet, and which one does memory meet?",
        "weights['query'] is for the queries, which come from x.",
    ),
    Mistake(
        "k-v-matrices-exchanged",
        "the matrices of keys and values have changed places (or k and v have changed places where attention is "
        "called)",
        "Two things are made from memory. Which of them is compared with the queries, and which is added up?",
        "Keys are compared with queries, values are added up: see which matrix makes which.",
    ),
    Mistake(
        "value-matrix-for-keys",
        "the value matrix makes the keys, too (or v stands in the place of k where attention is called)",
        "Which matrix makes what is compared with the queries?",
        "Each of the three has a matrix of its own. What becomes of weights['key'] in your code?",
    ),
    Mistake(
        "queries-as-keys",
        "the queries are used as keys: x is compared with itself",
        "What is compared with the queries? (Your code only runs if x and memory are equally long.)",
        "Look at what you give to attention: q, k and v are three different things.",
    ),
    Mistake(
        "query-matrix-again",
        "the matrix of the queries is used for keys or values too",
        "Each of the three has a matrix of its own.",
        "Perhaps a line was copied, and one word in it not changed.",
        ways=("key-by-query-matrix", "value-by-query-matrix", "all-by-query-matrix"),
    ),
    Mistake(
        "no-query-projection",
        "the queries are not multiplied with their matrix",
        "What happens to x before it is cut into heads?",
        "One of the four matrices is never used.",
    ),
    Mistake(
        "no-key-projection",
        "the keys are not multiplied with their matrix",
        "What happens to memory before it is cut into heads?",
        "One of the four matrices is never used.",
    ),
    Mistake(
        "no-value-projection",
        "the values are not multiplied with their matrix",
        "What happens to memory before it is cut into heads?",
        "One of the four matrices is never used.",
    ),
    Mistake(
        "no-projections",
        "queries, keys and values are x and memory themselves: three of the matrices are never used",
        "What makes a head look from its own side?",
        "Before the heads are cut, x and memory are multiplied with W_Q, W_K and W_V.",
    ),
    Mistake(
        "no-output-projection",
        "the last matrix, W_O, is missing",
        "Compare your code with the equation, from left to right.",
        "After Concat, one more product is written in the equation.",
    ),
)
IN_CALL = {
    "k-v-matrices-exchanged": "k and v have changed places where attention is called",
    "value-matrix-for-keys": "v stands in the place of k where attention is called",
    "queries-as-keys": "q stands in the place of k where attention is called",
}
IN_CALL_HINT = "Queries are compared with keys, and values are added up. What do you give to attention, in which order?"
IN_CALL_STRONG_HINT = "attention takes q, k, v and mask, in this order. They are three different things."

HEAD_MISTAKES = (
    Mistake(
        "one-head",
        "n_heads has no effect: this is the result with one head of the full width",
        "Try it with one head and with two. Does anything change?",
        "Attention has to run in each head alone, on its own range of the width.",
        ways=("one-head", "one-head-narrow-scale"),
    ),
    Mistake(
        "attends-over-heads",
        "the heads of a word look at each other; the words should look at each other, in each head",
        "What shape do the queries have when attention gets them? It works on the last two axes.",
        "The last two axes have to be words and width. The axis of the heads belongs in front of them.",
    ),
    Mistake(
        "scale-model-width",
        "the scores are divided by the square root of D; it should be that of the width of a head",
        "How many numbers has a query in one head?",
        "d_k is D / n_heads: after splitting, the last axis.",
    ),
    Mistake(
        "mask-first-head",
        "the mask hides keys from the first head only",
        "Every head has to obey the mask.",
        "The mask has an axis for the heads, or none. It has to broadcast over all of them.",
    ),
)
RESIDUAL_INSIDE = Mistake(
    "residual-inside",
    "x is added to the result; that is not asked for here",
    "Compare your last line with the equation. What does it have that the equation has not?",
    "The residual connection x + Sublayer(x) belongs to the block around it, which comes in exercise 4.",
)
RETURN_MISTAKES = (
    RESIDUAL_INSIDE,
    Mistake(
        "weights-returned",
        "two things come back, the output and the weights; expected is the output alone",
        "How many things should the function return?",
        "attention gives two things, but here the weights of the heads are not handed on.",
    ),
)

ATTENTION_MISTAKES = (
    *(FROM_1[name] for name in ("no-scale", "scale-d", "scale-times", "scale-length", "scale-after-softmax")),
    exercise_1.WRONG_AXIS,
    *(FROM_1[name] for name in ("not-normalised", "no-softmax")),
    *(FROM_1[name] for name in ("mask-ignored", "mask-inverted", "mask-after-softmax", "masked-to-zero", "mask-added")),
    *(FROM_1[name] for name in ("q-k-exchanged", "weights-transposed")),
    replace(
        FROM_1["keys-for-values"],
        hint="What do the weights multiply at the end, and which matrix made it?",
        strong_hint="What is added up at the end is V W_V.",
    ),
)


def numbers(*shape: int, seed: int, most: float = 1.5) -> Array:
    """Return fixed numbers with one digit and full rank, so that no product of matrices hides a mistake."""
    n = np.arange(1, math.prod(shape) + 1)
    return np.round(most * np.sin(0.731 * n**2 + 1.3 * seed * n + seed), 1).reshape(shape)


def matrices(width: int, seed: int) -> dict[str, Array]:
    names = ("query", "key", "value", "output")
    return {name: numbers(width, width, seed=seed + i, most=0.9) for i, name in enumerate(names)}


IDENTITY = np.eye(4)
PROJECT_HEADS = ExercisePart(
    "project_heads",
    ("x", "w", "n_heads"),
    ("heads",),
    project_heads,
    cases=(
        Case("one text of two words, width 4, two heads", (numbers(1, 2, 4, seed=3), numbers(4, 4, seed=4), 2)),
        Case("two texts of three words, width 6, three heads", (numbers(2, 3, 6, seed=5), numbers(6, 6, seed=6), 3)),
        Case("as many words as heads", (numbers(3, 2, 6, seed=7), numbers(6, 6, seed=8), 2)),
    ),
    mistakes=(
        Mistake(
            "inputs-transposed",
            "the matrix is used transposed: x @ W.T",
            "How does x meet the matrix in the paper?",
            "nn.Linear keeps its matrix transposed, so there it is x @ W.T. Here the matrix is as in the paper.",
        ),
        Mistake(
            "no-projections",
            "the words are not multiplied with the matrix",
            "Which of the arguments does your code never read?",
            "First the product x W, then the heads.",
        ),
        Mistake(
            "each-head-its-own-numbers",
            "each head is made of its own numbers of x alone; it should be made of all numbers of the word",
            "How many numbers of x has number 0 of head 0 to be made of?",
            "Multiply the whole words with the whole matrix first, and only then cut the result into heads.",
        ),
        Mistake(
            "not-split",
            "the result is not cut into heads",
            "Compare the shapes: asked for is [B, H, T, E].",
            "split_heads is one of your own functions. It is used here.",
        ),
        *(m for m in SPLIT_MISTAKES if m not in (FIRST_HEAD, OVERLAP)),
    ),
    properties=(
        equal(
            "the identity matrix",
            [(readable(1, 2, 4), IDENTITY, 2)],
            lambda heads: (heads, split_heads(readable(1, 2, 4), 2)),
            "With the identity matrix, the result is what split_heads makes of x: {expected} at heads{at}, but yours "
            "is {given}.",
        ),
        equal(
            "words are independent",
            [
                (np.eye(2, 4)[None], numbers(4, 4, seed=4), 2),
                (np.eye(2, 4)[None] * [[1.0], [5.0]], numbers(4, 4, seed=4), 2),
            ],
            lambda before, after: (floats(after)[0, :, 0], floats(before)[0, :, 0]),
            "If only word 1 is changed, word 0 changes in the heads: from {expected} to {given}.",
        ),
        agrees(project_heads, ("heads",), "one head", numbers(1, 2, 4, seed=3), numbers(4, 4, seed=4), 1),
        agrees(project_heads, ("heads",), "width 2, two heads", numbers(1, 3, 2, seed=3), numbers(2, 2, seed=4), 2),
        agrees(project_heads, ("heads",), "one text of one word", numbers(1, 1, 4, seed=3), numbers(4, 4, seed=4), 2),
    ),
    hint="There are two steps. Check each by itself: first the shape [B, T, D] and the numbers of x W, then the heads.",
    strong_hint="Number 0 of head 0 of a word is the dot product of the whole word with column 0 of the matrix. "
    "Compute it by hand for the first word.",
    thought="The matrix W holds the small matrices of all heads side by side: the first E columns belong to head 0, "
    "the next E to head 1. A product with the whole W therefore makes the numbers of all heads in one step. They "
    "stand in the order of the columns, head after head. That is the order in which split_heads cuts them.",
)

ATTENTION_IN_HEADS = ("no-scale", "mask-ignored", "mask-inverted", "q-k-exchanged", "keys-for-values")
HEADS_Q, HEADS_K, HEADS_V = (numbers(1, 2, 2, 2, seed=seed) for seed in (51, 52, 53))
ONE_KEY_HIDDEN = np.array([[True, False], [True, True]])

ATTEND_HEADS = ExercisePart(
    "attend_heads",
    ("q", "k", "v", "mask"),
    ("output",),
    attend_heads,
    cases=(
        Case("one text, two heads, two queries, two keys", (HEADS_Q, HEADS_K, HEADS_V, None)),
        Case(
            "two texts, two heads, three queries, four keys",
            (numbers(2, 2, 3, 2, seed=61), numbers(2, 2, 4, 2, seed=62), numbers(2, 2, 4, 2, seed=63), None),
        ),
        Case(
            "three heads, with a mask [Q, K]",
            (numbers(2, 3, 3, 2, seed=71), numbers(2, 3, 3, 2, seed=72), numbers(2, 3, 3, 2, seed=73), SQUARE),
        ),
        Case(
            "two heads of three numbers, as many queries as heads",
            (numbers(3, 2, 2, 3, seed=81), numbers(3, 2, 2, 3, seed=82), numbers(3, 2, 2, 3, seed=83), None),
        ),
    ),
    mistakes=(
        *(FROM_1[name] for name in ATTENTION_IN_HEADS),
        *(m for m in HEAD_MISTAKES if m.name in ("scale-model-width", "mask-first-head")),
        *(
            replace(m, message=IN_CALL[m.name], hint=IN_CALL_HINT, strong_hint=IN_CALL_STRONG_HINT)
            for m in PROJECTION_MISTAKES
            if m.name in IN_CALL
        ),
        MERGE_BY_VIEW,
        MERGE_LIKE_CARDS,
        *(m for m in MERGE_HEADS.mistakes if m.name in ("merge-out-of-order", "not-merged", "heads-added")),
        Mistake(
            "weights-returned",
            "two things come back, the output and the weights; expected is the output alone",
            "How many things should the function return?",
            "attention gives two things, but here the weights of the heads are not handed on.",
        ),
    ),
    free_choices=MASKED_WITH,
    properties=(
        equal(
            "heads are independent",
            [(HEADS_Q, HEADS_K, HEADS_V, None), (HEADS_Q, HEADS_K, changed(HEADS_V, (0, 1), 9.0), None)],
            lambda before, after: (floats(after)[0, :, :2], floats(before)[0, :, :2]),
            "If only the values of head 1 are changed, output[0]{at}, a number of head 0, changes from {expected} to "
            "{given}.",
        ),
        equal(
            "hidden keys do not matter",
            [
                (HEADS_Q, HEADS_K, HEADS_V, ONE_KEY_HIDDEN),
                (HEADS_Q, HEADS_K, changed(HEADS_V, (0, slice(None), 1), 9.0), ONE_KEY_HIDDEN),
            ],
            lambda before, after: (floats(after)[0, 0], floats(before)[0, 0]),
            "Query 0 may not see key 1. If the values of key 1 are changed, output[0, 0]{at} still changes from "
            "{expected} to {given}.",
        ),
        equal(
            "order of the keys",
            [(HEADS_Q, HEADS_K, HEADS_V, None), (HEADS_Q, HEADS_K[:, :, ::-1], HEADS_V[:, :, ::-1], None)],
            lambda before, after: (after, before),
            "If keys and values come in another order (the same for both), output{at} changes from {expected} to "
            "{given}. It should not.",
        ),
        equal(
            "one key",
            [(HEADS_Q, HEADS_K[:, :, :1], HEADS_V[:, :, :1], None)],
            lambda output: (output, np.tile(HEADS_V[0, :, 0].ravel(), (1, 2, 1))),
            "With one key only, the output of each query is its value, the heads side by side: output{at} should be "
            "{expected} and is {given}.",
        ),
        agrees(attend_heads, ("output",), "one head", HEADS_Q[:, :1], HEADS_K[:, :1], HEADS_V[:, :1], None),
        agrees(attend_heads, ("output",), "one query", HEADS_Q[:, :, :1], HEADS_K, HEADS_V, ONE_KEY_HIDDEN[:1]),
        agrees(
            attend_heads, ("output",), "heads of one number", HEADS_Q[..., :1], HEADS_K[..., :1], HEADS_V[..., 1:], None
        ),
        agrees(
            attend_heads,
            ("output",),
            "a mask [B, 1, 1, K] that hides padding",
            numbers(2, 2, 2, 2, seed=91),
            numbers(2, 2, 5, 2, seed=92),
            numbers(2, 2, 5, 2, seed=93),
            np.array([[True, True, False, False, False], [True, True, True, True, False]])[:, None, None],
        ),
    ),
    hint="There are two steps. Check each by itself: the attention gives [B, H, Q, E], and merge_heads makes [B, Q, "
    "D].",
    strong_hint="Take the first case and one head only: q[:, :1], k[:, :1], v[:, :1]. Is the result right? Then the "
    "attention is, and the heads are put together in a wrong way. Else look at what you give to attention.",
    thought="attention works on the last two axes and carries all others along. So the axes of texts and heads need "
    "no loop: one call computes all heads of all texts, each alone. A mask [Q, K] or [B, 1, 1, K] broadcasts over the "
    "heads. The result is [B, H, Q, E], and merge_heads puts the heads of each word side by side.",
)

# In each text some keys are real and some are padding.
SOME_PADDING = np.array([[True, True, False, False, False], [True, True, True, True, False]])[:, None, None, :]

_self = numbers(2, 4, 6, seed=12)
_long = numbers(1, 60, 4, seed=71)
# For the properties: as few and as small numbers as possible
ASKS, SEEN = numbers(1, 2, 2, seed=14), numbers(1, 3, 2, seed=15)
TWO_ASK, TWO_SEEN = numbers(2, 1, 2, seed=16), numbers(2, 2, 2, seed=17)
SMALL = matrices(2, seed=18)
ONE_WORD_HIDDEN = np.array([[True, False, True]])
MULTI_HEAD_ATTENTION = ExercisePart(
    "multi_head_attention",
    ("x", "memory", "weights", "n_heads", "mask"),
    ("output",),
    multi_head_attention_returns,
    cases=(
        Case(
            "two texts, two words that look at three, width 4, two heads",
            (numbers(2, 2, 4, seed=1), numbers(2, 3, 4, seed=2), matrices(4, seed=3), 2, None),
        ),
        Case("self-attention: x and memory are the same; three heads", (_self, _self, matrices(6, seed=13), 3, None)),
        Case(
            "as many words in x as in memory",
            (numbers(2, 3, 6, seed=21), numbers(2, 3, 6, seed=22), matrices(6, seed=23), 2, None),
        ),
        Case(
            "with a mask [Q, K]",
            (numbers(2, 3, 6, seed=31), numbers(2, 3, 6, seed=32), matrices(6, seed=33), 3, SQUARE),
        ),
        Case(
            "with a mask [B, 1, 1, K] that hides padding",
            (numbers(2, 3, 8, seed=41), numbers(2, 5, 8, seed=42), matrices(8, seed=43), 4, SOME_PADDING),
        ),
    ),
    mistakes=(
        *PROJECTION_MISTAKES,
        *HEAD_MISTAKES,
        *(m for m in SPLIT_MISTAKES if m is not OUT_OF_ORDER),
        replace(
            OUT_OF_ORDER,
            message="the heads are split or put together in another order",
            hint="Which numbers of a word does head 0 get, and where does its result stand at the end?",
            strong_hint="Head h begins at number h·E, before the attention and after it. "
            "Something reversed or moved it.",
        ),
        MERGE_BY_VIEW,
        MERGE_LIKE_CARDS,
        *ATTENTION_MISTAKES,
        *RETURN_MISTAKES,
    ),
    free_choices=MASKED_WITH,
    properties=(
        equal(
            "hidden words do not matter",
            [(ASKS, SEEN, SMALL, 1, ONE_WORD_HIDDEN), (ASKS, changed(SEEN, (0, 1), 5.0), SMALL, 1, ONE_WORD_HIDDEN)],
            lambda before, after: (after, before),
            "The mask hides word 1 of memory. If that word is changed, output{at} still changes from {expected} to "
            "{given}.",
        ),
        equal(
            "order of the memory",
            [(ASKS, SEEN, SMALL, 1, None), (ASKS, SEEN[:, ::-1], SMALL, 1, None)],
            lambda before, after: (after, before),
            "If the words of memory come in another order, output{at} changes from {expected} to {given}. Attention "
            "does not see the order, so it should not.",
        ),
        equal(
            "words of x are independent",
            [(ASKS, SEEN, SMALL, 1, None), (changed(ASKS, (0, 1), 5.0), SEEN, SMALL, 1, None)],
            lambda before, after: (floats(after)[0, 0], floats(before)[0, 0]),
            "If only word 1 of x is changed, output[0, 0]{at} changes from {expected} to {given}. Each word asks "
            "alone.",
        ),
        equal(
            "one word in the memory",
            [(ASKS, SEEN[:, :1], SMALL, 1, None)],
            lambda output: (floats(output)[0, 1], floats(output)[0, 0]),
            "If memory has one word only, all words of x get the same: its value. But output[0, 0]{at} is {expected} "
            "and output[0, 1]{at} is {given}.",
        ),
        equal(
            "texts are independent",
            [(TWO_ASK, TWO_SEEN, SMALL, 1, None), (TWO_ASK, changed(TWO_SEEN, 1, 5.0), SMALL, 1, None)],
            lambda before, after: (floats(after)[0], floats(before)[0]),
            "If only text 1 of memory is changed, output[0]{at}, a number of text 0, changes from {expected} to "
            "{given}.",
        ),
        equal(
            "a mask of True",
            [(ASKS, SEEN, SMALL, 1, None), (ASKS, SEEN, SMALL, 1, np.ones((2, 3), bool))],
            lambda without, with_mask: (with_mask, without),
            "A mask that is True everywhere hides nothing. But with it output{at} is {given}, and without a mask "
            "{expected}.",
        ),
        agrees(multi_head_attention, ("output",), "one head", ASKS, SEEN, SMALL, 1, None),
        agrees(multi_head_attention, ("output",), "width 2 and two heads", ASKS, SEEN, SMALL, 2, None),
        agrees(
            multi_head_attention,
            ("output",),
            "one word of x, one word of memory",
            ASKS[:, :1],
            SEEN[:, :1],
            SMALL,
            2,
            None,
        ),
        agrees(
            multi_head_attention,
            ("output",),
            "one word of x, with a mask [1, K]",
            ASKS[:, :1],
            SEEN,
            SMALL,
            2,
            ONE_WORD_HIDDEN,
        ),
        agrees(
            multi_head_attention,
            ("output",),
            "more words in x than in memory",
            numbers(1, 4, 4, seed=51),
            numbers(1, 2, 4, seed=52),
            matrices(4, seed=53),
            2,
            None,
        ),
        agrees(
            multi_head_attention,
            ("output",),
            "a mask [B, 1, Q, K], another for each text",
            numbers(2, 2, 4, seed=61),
            numbers(2, 3, 4, seed=62),
            matrices(4, seed=63),
            2,
            np.array([[[True, False, True], [False, True, True]], [[True, True, False], [False, False, True]]])[
                :, None
            ],
        ),
        agrees(
            multi_head_attention,
            ("output",),
            "a long text of 60 words",
            _long,
            _long,
            matrices(4, seed=73),
            2,
            np.tril(np.ones((60, 60), bool)),
        ),
    ),
    hint="Follow the shapes: x and memory are multiplied with matrices, [B, Q, D] and [B, K, D]; the heads are [B, H, "
    "Q, E]; their results side by side are [B, Q, D] again; and one last matrix follows.",
    strong_hint="Try it with one head first: then it is attention(x W_Q, memory W_K, memory W_V) W_O. Is that right? "
    "If so, look at how the heads are cut and put together. If not, look at which matrix meets what.",
    thought="Each head looks for something else, so each has its own W_Q, W_K and W_V. Side by side they are one "
    "matrix each, and one product makes the queries of all heads from x. Keys and values are made from memory, "
    "because that is what is looked at. Each head then attends by itself, on its own range of the width and with its "
    "own scale. The results of the heads stand side by side again, and W_O mixes them. There is nothing after W_O: "
    "the residual connection belongs to the block of exercise 4.",
)

EXERCISE = Exercise(
    2,
    "multi_head_attention",
    "Multi-head attention",
    parts=(HEAD_COLUMNS, SPLIT_HEADS, MERGE_HEADS, PROJECT_HEADS, ATTEND_HEADS, MULTI_HEAD_ATTENTION),
)
