"""Exercise 2 for the grader: splitting into heads, merging them, multi-head attention."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.course.exercise import NO_MISTAKES, Case, Exercise, ExercisePart, Mistake, Switches
from cutaway.course.exercises import scaled_dot_product as exercise_1
from cutaway.course.exercises.scaled_dot_product import MASKED_WITH, SQUARE, attention, only_one

Array = NDArray[Any]


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
    q, k, v = projections(x, memory, weights, wrong)
    if "attends-over-heads" in wrong:
        wrong = wrong - SPLIT_SWITCHES | {"heads-not-moved"}
    parts = 1 if {"one-head", "one-head-narrow-scale"} & wrong else n_heads
    q, k, v = (split_heads(part, parts, wrong) for part in (q, k, v))
    q = q * scale_change(n_heads, wrong)
    if mask is not None and "mask-first-head" in wrong:
        mask = np.broadcast_to(mask, (*q.shape[:-1], k.shape[-2])).copy()
        mask[:, 1:] = True
    output, shares = attention(q, q if "queries-as-keys" in wrong else k, v, mask, wrong)
    merged = output.reshape(x.shape) if "attends-over-heads" in wrong else merge_heads(output, wrong)
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


def projections(x: Array, memory: Array, weights: dict[str, Array], wrong: Switches) -> tuple[Array, Array, Array]:
    """Return queries from x, and keys and values from the memory."""
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
)

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
        "two things come back, the output and the weights; asked for is the output alone",
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


# In each text some keys are real and some are padding.
SOME_PADDING = np.array([[True, True, False, False, False], [True, True, True, True, False]])[:, None, None, :]

_self = numbers(2, 4, 6, seed=12)
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
)

EXERCISE = Exercise(
    2, "multi_head_attention", "Multi-head attention", parts=(SPLIT_HEADS, MERGE_HEADS, MULTI_HEAD_ATTENTION)
)
