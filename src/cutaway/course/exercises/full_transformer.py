"""Exercise 5 for the grader: shift, masks, decoder, Transformer, losses and learning rate."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from cutaway.course.exercise import NO_MISTAKES, Case, Exercise, ExercisePart, Mistake, Switches
from cutaway.course.exercises.encoder_block import (
    NO_FEED_FORWARD,
    NO_RESIDUAL,
    NO_RESIDUAL_FEED_FORWARD,
    NORM_INSIDE,
    NORM_OF_INPUT_ONLY,
    PRE_NORM,
    SAME_NORM,
    SHARED_WEIGHTS,
    Weights,
    add_and_norm,
    attention_weights,
    block_weights,
    check_normed,
    encoder,
    feed_forward,
    feed_forward_weights,
    norm_weights,
    norms_of,
    numbers,
)
from cutaway.course.exercises.multi_head_attention import multi_head_attention
from cutaway.course.exercises.positional_encoding import embed
from cutaway.course.exercises.properties import agrees, equal, floats, holds
from cutaway.course.exercises.scaled_dot_product import (
    FUTURE_LEAK,
    LOW,
    MASK_ADDITIVE,
    NO_MAXIMUM,
    NOT_ITSELF,
    ONE_MAXIMUM,
    SOFTMAX_TWICE,
    Array,
    causal_mask,
    changed,
    only_one,
    softmax,
)


def real_tokens(ids: Array, pad: int, wrong: Switches = NO_MISTAKES) -> Array:
    """[B, T], True at tokens, False at padding."""
    pad = next((i for i in range(2) if f"pad-fixed-{i}" in wrong), pad)
    real: Array = ids == pad if "padding-inverted" in wrong else ids != pad
    if "tokens-counted" in wrong:
        return np.asarray(real.sum(axis=1))
    if "all-counted" in wrong:
        return np.asarray(real.sum())
    if "ids-kept" in wrong:
        return ids[real]
    return ids * real if "padding-zeroed" in wrong else real


def shift_right(target: Array, start: int, wrong: Switches = NO_MISTAKES) -> Array:
    """Return the decoder's input: `start`, then the target without its last id."""
    fixed = next((i for i in range(3) if f"start-fixed-{i}" in wrong), start)
    first = np.full_like(target[:, :1], fixed)
    if "not-shifted" in wrong:
        return target
    if "shifted-left" in wrong:
        return np.concatenate([target[:, 1:], first], axis=1)
    if "rolled-left" in wrong:
        return np.concatenate([target[:, 1:], target[:, :1]], axis=1)
    if "rolled" in wrong:
        return np.concatenate([target[:, -1:], target[:, :-1]], axis=1)
    if "shifted-by-two" in wrong:
        return np.concatenate([first, first, target[:, :-2]], axis=1)
    if "start-at-the-end" in wrong:
        return np.concatenate([target[:, :-1], first], axis=1)
    if "start-behind-the-target" in wrong:
        return np.concatenate([target, first], axis=1)
    if "last-kept" in wrong:
        return np.concatenate([first, target], axis=1)
    if "first-overwritten" in wrong:
        return np.concatenate([first, target[:, 1:]], axis=1)
    if "no-start" in wrong:
        return target[:, :-1]
    return np.concatenate([first, target[:, :-1]], axis=1)


START_1 = (np.array([[5, 6, 7]]), 1)

SHIFT_MISTAKES = (
    Mistake(
        "not-shifted",
        "the target comes back as it was",
        "The decoder would read the very token that it is to predict. What should stand in front?",
        "Put start in front, and let the last id fall off at the end.",
    ),
    Mistake(
        "shifted-left",
        "the ids are shifted the other way",
        "At position 1 the decoder should read what it had to say at position 0. What does yours read there?",
        "Every id moves one place to the right, away from the beginning, so that the first place becomes free.",
        ways=("shifted-left", "rolled-left"),
    ),
    Mistake(
        "rolled",
        "the last id has come to the front; there should be start",
        "What does the decoder read first, before it has written anything?",
        "A roll brings back at the front what falls off at the end. Overwrite it with start.",
    ),
    Mistake(
        "shifted-by-two",
        "the ids are shifted by two places",
        "How many starts do you have in a row?",
        "One start in front is enough, and only the last id falls off.",
    ),
    Mistake(
        "start-at-the-end",
        "start stands at the end, not at the beginning",
        "What does the decoder read first, before it has written anything?",
        "Exchange the two pieces that you put together: start comes first.",
        ways=("start-at-the-end", "start-behind-the-target"),
    ),
    Mistake(
        "last-kept",
        "it is one id too long: the last id of the target is still there",
        "Compare the shapes: there should be as many ids as before.",
        "The decoder never reads the last id, for nothing is left to predict after it. Leave it out.",
    ),
    Mistake(
        "first-overwritten",
        "start overwrites the first id, and the others stay where they were",
        "Where has the first id of the target gone? The decoder should read it at position 1.",
        "First move all ids by one place, then put start where a place became free.",
    ),
    Mistake(
        "no-start",
        "start is missing in front",
        "Compare the shapes: there should be as many ids as before.",
        "The last id goes, and a column of start comes in front.",
    ),
    Mistake(
        "start-fixed",
        "the first id is a fixed number, not the start that is given",
        "Which of the arguments does your code never read?",
        "Which id begins a text depends on the vocabulary: take it from the argument start.",
        ways=("start-fixed-0", "start-fixed-1", "start-fixed-2"),
    ),
)

SHIFT_RIGHT = ExercisePart(
    "shift_right",
    ("target", "start"),
    ("result",),
    shift_right,
    cases=(
        Case("two texts of three ids", (np.array([[5, 6, 7], [8, 9, 4]]), 3)),
        Case("three texts of four ids", (np.array([[4, 8, 5, 9], [6, 7, 11, 10], [9, 5, 8, 4]]), 12)),
    ),
    mistakes=SHIFT_MISTAKES,
    properties=(
        equal(
            "the first id",
            [START_1],
            lambda result: (floats(result)[0, 0], 1),
            "The first id of every text is start. For shift_right([[5, 6, 7]], 1) it should be 1; it is {given}.",
        ),
        equal(
            "the other ids",
            [START_1],
            lambda result: (floats(result)[0, 1:], [5, 6]),
            "For shift_right([[5, 6, 7]], 1) start is followed by 5 and 6. But result[0, 1:]{at} is {given} instead of "
            "{expected}.",
        ),
        agrees(shift_right, ("result",), "texts of one id", np.array([[5], [6]]), 1),
        agrees(shift_right, ("result",), "start 0", np.array([[5, 6, 7]]), 0),
        agrees(shift_right, ("result",), "a text of 50 ids", np.arange(50)[None] % 9, 9),
    ),
    hint="Write the target [5, 6, 7] and the result [1, 5, 6] below each other. Which id came in, which fell off, and "
    "where did the others go?",
    strong_hint="There are two pieces, put together along the second axis: a column of start, [B, 1], and the target "
    "without its last column, [B, T - 1].",
    thought="The decoder learns to predict each id from those before it. So at position t it must read the id of "
    "position t - 1: every id moves one place to the right. The first place becomes free, and there the decoder reads "
    "start. The last id would be read at a place that does not exist, so it falls off. The shape stays the same.",
)


def padding_mask(ids: Array, pad: int, wrong: Switches = NO_MISTAKES) -> Array:
    """[B, K] -> [B, 1, 1, K], True at tokens, False at padding."""
    real = real_tokens(ids, pad, wrong)
    if "mask-flat" in wrong:
        return real
    if "mask-without-heads" in wrong:
        return real[:, None, :]
    mask = real[:, None, :, None] if "padding-as-queries" in wrong else real[:, None, None, :]
    return additive(mask, wrong)


def additive(mask: Array, wrong: Switches) -> Array:
    if "mask-additive" in wrong:
        return np.where(mask, 0.0, -np.inf)
    return np.where(mask, 0.0, LOW) if "mask-additive-finite" in wrong else mask


PADDING_INVERTED = Mistake(
    "padding-inverted",
    "the padding is what may be seen, and the tokens are hidden",
    "In this course True means: may attend. Where is your mask True?",
    "You ask whether an id is padding. Ask the opposite.",
)
PAD_FIXED = Mistake(
    "pad-fixed",
    "a fixed id is taken for padding, not the pad that is given",
    "Which of the arguments does your code never read?",
    "Which id means padding depends on the vocabulary; it need not be 0. Take it from the argument pad.",
    ways=("pad-fixed-0", "pad-fixed-1"),
)
PADDING_AS_QUERIES = Mistake(
    "padding-as-queries",
    "the padding is hidden among the queries (rows); it should be hidden among the keys (columns)",
    "Scores are [B, H, queries, keys]. On which of these axes must nobody look at padding?",
    "It does no harm if padding looks at something, only if something looks at padding. The ids belong on the last "
    "axis of the mask.",
)

REAL_TOKENS = ExercisePart(
    "real_tokens",
    ("ids", "pad"),
    ("real",),
    real_tokens,
    # 0 and 1 are ordinary tokens here, to detect a padding id that is not `pad`.
    cases=(
        Case("two texts of three ids", (np.array([[5, 0, 2], [1, 2, 2]]), 2)),
        Case("two texts of four ids", (np.array([[1, 6, 0, 5], [0, 1, 9, 9]]), 9)),
        Case("padding in front and between", (np.array([[7, 3, 7, 5], [2, 7, 7, 4]]), 7)),
    ),
    mistakes=(
        replace(
            PADDING_INVERTED,
            message="True stands at the padding, and False at the tokens",
            hint="Where should True stand?",
        ),
        PAD_FIXED,
        Mistake(
            "tokens-counted",
            "the tokens are counted; expected is True or False for each of them",
            "What shape should the result have?",
            "Leave out the sum.",
            ways=("tokens-counted", "all-counted"),
        ),
        Mistake(
            "ids-kept",
            "the ids of the tokens come back; expected is True or False for each place",
            "What shape should the result have, and which two values can it hold?",
            "The comparison itself is the result. Nothing is selected with it here.",
            ways=("ids-kept", "padding-zeroed"),
        ),
    ),
    properties=(
        equal(
            "one token, one padding",
            [(np.array([[5, 9]]), 9)],
            lambda real: (real, [[True, False]]),
            "real_tokens([[5, 9]], 9) is [[True, False]], but real{at} is {given} (True counts as 1).",
        ),
        agrees(real_tokens, ("real",), "pad 0", np.array([[3, 0, 0]]), 0),
        agrees(real_tokens, ("real",), "a text of padding only", np.array([[4, 4], [1, 4]]), 4),
        agrees(real_tokens, ("real",), "texts of one id", np.array([[4], [1]]), 4),
    ),
    hint="For the ids [5, 9] and pad 9 the result is [True, False]. What is yours?",
    strong_hint="Compare each id with pad. The comparison of an array with a number gives True or False at each place.",
    thought="Texts in a batch must have the same length, so short ones are filled up with the id pad. An id is a real "
    "token if it is not pad. Comparing the whole array with pad answers this for all ids at once. Masks and losses "
    "need it: nobody may look at padding, and padding is not predicted.",
)

PADDING_ANYWHERE = np.array([[7, 3, 7, 5], [2, 7, 7, 4]])  # 7 is padding

PADDING_MASK = ExercisePart(
    "padding_mask",
    ("ids", "pad"),
    ("mask",),
    padding_mask,
    # 0 and 1 are ordinary tokens here, to detect a padding id that is not `pad`.
    cases=(
        Case("two texts of three ids", (np.array([[5, 0, 2], [1, 2, 2]]), 2)),
        Case("two texts of four ids", (np.array([[1, 6, 0, 5], [0, 1, 9, 9]]), 9)),
        Case("padding in front and between", (PADDING_ANYWHERE, 7)),
    ),
    mistakes=(
        PADDING_INVERTED,
        PAD_FIXED,
        PADDING_AS_QUERIES,
        Mistake(
            "mask-flat",
            "two axes are missing, those of the heads and of the queries: [B, K] instead of [B, 1, 1, K]",
            "Compare the shapes. The mask has to broadcast against scores of shape [B, H, Q, K].",
            "Two axes of length 1 belong between B and K. None in an index makes one.",
        ),
        Mistake(
            "mask-without-heads",
            "one axis is missing: [B, 1, K] instead of [B, 1, 1, K]",
            "Compare the shapes. The mask has to broadcast against scores of shape [B, H, Q, K].",
            "Heads and queries each need an axis of length 1, between B and K. None in an index makes one.",
        ),
        MASK_ADDITIVE,
    ),
    properties=(
        holds(
            "broadcasts to the scores",
            [(np.array([[5, 0, 2], [1, 2, 2]]), 2)],
            lambda mask: check_broadcast(mask, (2, 4, 3, 3)),
        ),
        equal(
            "one token, one padding",
            [(np.array([[5, 9]]), 9)],
            lambda mask: (np.ravel(mask), [True, False]),
            "For the ids [5, 9] and pad 9 the mask holds True, False. But number {at} of yours is {given} (True "
            "counts as 1).",
        ),
        equal(
            "padding in front",
            [(np.array([[9, 5]]), 9)],
            lambda mask: (np.ravel(mask), [False, True]),
            "For the ids [9, 5] and pad 9 the mask holds False, True. But number {at} of yours is {given} (True "
            "counts as 1).",
        ),
        agrees(padding_mask, ("mask",), "pad 0", np.array([[3, 0, 0]]), 0),
        agrees(padding_mask, ("mask",), "a text of padding only", np.array([[4, 4], [1, 4]]), 4),
        agrees(padding_mask, ("mask",), "texts of one id", np.array([[4], [1]]), 4),
    ),
    hint="Two things have to be right: which places are True, and the shape [B, 1, 1, K]. Check them one by one.",
    strong_hint="For the ids [[5, 9]] and pad 9 the mask is [[[[True, False]]]]. Count the brackets of yours.",
    thought="real_tokens says which keys are tokens: [B, K]. Scores have the shape [B, H, Q, K]: for each text, each "
    "head and each query, a number for each key. Whether a key is padding depends on the text and the key only. So "
    "the mask needs axes of length 1 for the heads and the queries, between B and K, and broadcasting repeats it "
    "there.",
)


def check_broadcast(mask: Any, scores: tuple[int, ...]) -> str | None:
    """Say if a mask does not broadcast to the shape of the scores."""
    try:
        fits = np.broadcast_shapes(np.shape(mask), scores) == scores
    except ValueError:
        fits = False
    if fits:
        return None
    return (
        f"Scores of this batch have the shape {list(scores)}; a mask of shape {list(np.shape(mask))} does not fit them."
    )


def decoder_mask(ids: Array, pad: int, wrong: Switches = NO_MISTAKES) -> Array:
    """[B, T] -> [B, 1, T, T], True if the key is neither later than the query nor padding."""
    n_texts, n = ids.shape
    causal = causal_mask(n, wrong & {"mask-transposed", "future-leak", "not-itself"})
    real = padding_mask(ids, pad, wrong - {"mask-additive", "mask-additive-finite"})
    if "causal-only" in wrong:
        mask = np.broadcast_to(causal, (n_texts, 1, n, n))
    elif "causal-only-flat" in wrong:
        return causal
    elif "causal-only-four-axes" in wrong:
        return causal[None, None]
    elif "padding-only-flat" in wrong:
        return real
    elif "padding-only" in wrong:
        mask = np.broadcast_to(real, (n_texts, 1, n, n))
    else:
        mask = causal | real if "mask-or" in wrong else causal & real
    if "padding-rows-too" in wrong:
        only_one(wrong, {"padding-rows-too", "padding-as-queries"})
        mask = mask & np.swapaxes(real, -1, -2)
    if "decoder-mask-inverted" in wrong:
        mask = ~mask
    return mask[:, 0] if "decoder-mask-without-heads" in wrong else additive(mask, wrong)


CAUSAL_ONLY = Mistake(
    "causal-only",
    "padding is not hidden, only the future is",
    "Look at the rows of a text that ends in padding. May the last token see it?",
    "Two conditions have to hold at once: the key is not in the future, and it is not padding.",
    ways=("causal-only", "causal-only-flat", "causal-only-four-axes"),
)
PADDING_ONLY = Mistake(
    "padding-only",
    "the future is not hidden, only padding is",
    "Look at row 0. The first position may see itself and nothing else.",
    "Two conditions have to hold at once: the key is not in the future, and it is not padding.",
    ways=("padding-only", "padding-only-flat"),
)

DECODER_MASK = ExercisePart(
    "decoder_mask",
    ("ids", "pad"),
    ("mask",),
    decoder_mask,
    cases=(
        Case("two texts of three ids", (np.array([[5, 0, 2], [1, 2, 2]]), 2)),
        Case("two texts of four ids", (np.array([[1, 6, 0, 5], [0, 1, 9, 9]]), 9)),
        Case("padding in front and between", (PADDING_ANYWHERE, 7)),
    ),
    mistakes=(
        Mistake(
            "mask-or",
            "it is enough that one of the two conditions holds; both have to",
            "May a token be seen that lies in the future, but is no padding?",
            "A key may be seen if it is not in the future AND not padding.",
        ),
        CAUSAL_ONLY,
        PADDING_ONLY,
        PADDING_AS_QUERIES,
        Mistake(
            "padding-rows-too",
            "the rows of padding are hidden, too; only its columns should be",
            "What may padding look at? Look at the last row of a text that ends in padding.",
            "It does no harm if padding looks at something, only if something looks at padding.",
        ),
        PADDING_INVERTED,
        PAD_FIXED,
        FUTURE_LEAK,
        NOT_ITSELF,
        Mistake(
            "mask-transposed",
            "the wrong triangle: every position sees itself and the future, instead of itself and the past",
            "Rows are who looks, columns are what is looked at. What may the first row see?",
            "It is the other triangle that is asked for.",
        ),
        Mistake(
            "decoder-mask-inverted",
            "the mask says the opposite: True stands where one must not look",
            "In this course True means: may attend. Read row 0 of yours: what may the first position see?",
            "Turn the finished mask around.",
        ),
        Mistake(
            "decoder-mask-without-heads",
            "one axis is missing, that of the heads: [B, T, T] instead of [B, 1, T, T]",
            "Compare the shapes. The mask has to broadcast against scores of shape [B, H, Q, K].",
            "An axis of length 1 belongs behind B. None in an index makes one.",
        ),
        MASK_ADDITIVE,
    ),
    properties=(
        holds("the ids [5, 6, pad]", [(np.array([[5, 6, 9]]), 9)], lambda mask: check_both_conditions(mask)),
        holds(
            "broadcasts to the scores",
            [(np.array([[5, 0, 2], [1, 2, 2]]), 2)],
            lambda mask: check_broadcast(mask, (2, 4, 3, 3)),
        ),
        agrees(decoder_mask, ("mask",), "pad 0", np.array([[3, 1, 0]]), 0),
        agrees(decoder_mask, ("mask",), "a text of padding only", np.array([[4, 4], [1, 4]]), 4),
        agrees(decoder_mask, ("mask",), "texts of one id", np.array([[4], [1]]), 4),
        agrees(decoder_mask, ("mask",), "a text of 30 ids", np.arange(30)[None] % 7, 6),
    ),
    hint="Write down the mask for the ids [5, 6, pad] by hand: it is in the docstring. Which row of yours differs, "
    "and is it because of the future or because of padding?",
    strong_hint="Print the two masks that you combine: one says which keys are not in the future, [T, T]; the other "
    "says which keys are tokens, [B, 1, 1, T]. An entry is True if both are.",
    thought="There are two reasons why a query may not look at a key: the key comes later, or it is padding. The "
    "first depends on the two positions only: it is the lower triangle, [T, T]. The second depends on the text and "
    "the key: it is padding_mask, [B, 1, 1, T]. A key may be seen if neither reason holds, so both masks must be "
    "True. Broadcasting combines them to [B, 1, T, T].",
)


def check_both_conditions(mask: Any) -> str | None:
    """Say what is wrong in the mask of [5, 6, pad]."""
    rows = np.broadcast_to(np.asarray(mask).astype(bool), (1, 1, 3, 3))[0, 0]
    for query, key in np.ndindex(3, 3):
        may = key <= query and key < 2
        if rows[query, key] != may:
            why = (
                "which is padding" if key == 2 else "which comes later" if key > query else "which is a token before it"
            )
            why = "which is itself" if key == query < 2 else why
            return (
                f"For the ids [5, 6, pad], position {query} {'may' if may else 'may not'} look at position {key}, "
                f"{why}. Your mask says {bool(rows[query, key])} there."
            )
    return None


def decoder_block(
    x: Array,
    memory: Array,
    weights: Weights,
    n_heads: int,
    mask: Array | None,
    memory_mask: Array | None,
    wrong: Switches = NO_MISTAKES,
) -> Array:
    """Self-attention, cross-attention to the memory, feed-forward; each as LayerNorm(x + Sublayer(x))."""
    for_self, for_cross = attentions_of(weights, wrong)
    if "masks-exchanged" in wrong:
        mask, memory_mask = memory_mask, mask

    def self_attend(x: Array) -> Array:
        return multi_head_attention(x, x, for_self, n_heads, None if "target-mask-ignored" in wrong else mask, wrong)

    def cross_attend(x: Array) -> Array:
        keys_from, used_mask = memory, mask if "self-mask-for-cross" in wrong else memory_mask
        if CROSS_TO_ITSELF & wrong:
            keys_from = x
            used_mask = mask if "to-itself-own-mask" in wrong else None if "to-itself-no-mask" in wrong else memory_mask
        if "queries-and-memory-exchanged" in wrong:
            x, keys_from = keys_from, x
        return multi_head_attention(
            x, keys_from, for_cross, n_heads, None if "memory-mask-ignored" in wrong else used_mask, wrong
        )

    def apply_feed_forward(x: Array) -> Array:
        return feed_forward(x, weights["feed_forward"], wrong)

    norm_1, norm_2, norm_3 = norms_of(weights, ("norm_1", "norm_2", "norm_3"), wrong)
    if "cross-first" in wrong:
        x = add_and_norm(x, cross_attend, norm_1, wrong)
        x = add_and_norm(x, self_attend, norm_2, wrong)
    elif "cross-first-own-norms" in wrong:
        x = add_and_norm(x, cross_attend, norm_2, wrong)
        x = add_and_norm(x, self_attend, norm_1, wrong)
    else:
        if not {"no-self-attention", "no-self-attention-normed"} & wrong:
            x = add_and_norm(x, self_attend, norm_1, wrong, residual="no-residual-self" not in wrong)
        elif "no-self-attention-normed" in wrong:
            x = norm_1(x)
        if "no-cross-attention" not in wrong:
            x = add_and_norm(x, cross_attend, norm_2, wrong, residual="no-residual-cross" not in wrong)
    if {"no-feed-forward", "no-feed-forward-normed"} & wrong:
        return norm_3(x) if "no-feed-forward-normed" in wrong else x
    return add_and_norm(x, apply_feed_forward, norm_3, wrong, residual="no-residual-feed-forward" not in wrong)


CROSS_TO_ITSELF = {"to-itself-own-mask", "to-itself-no-mask", "to-itself-memory-mask"}


def attentions_of(weights: Weights, wrong: Switches) -> tuple[Weights, Weights]:
    """Return the weights of self-attention and of cross-attention."""
    both = weights["self_attention"], weights["cross_attention"]
    if "always-self-weights" in wrong:
        return both[0], both[0]
    if "always-cross-weights" in wrong:
        return both[1], both[1]
    return both[::-1] if "attentions-exchanged" in wrong else both


DECODER_BLOCK_MISTAKES = (
    Mistake(
        "no-residual-self",
        "there is no residual connection around the self-attention",
        "Three arrows of figure 1 lead past the sub-layers of a decoder block. Do you have all of them?",
        "The block's input is also added to what comes out of the self-attention, before the first norm.",
    ),
    Mistake(
        "no-residual-cross",
        "there is no residual connection around the cross-attention",
        "Three arrows of figure 1 lead past the sub-layers of a decoder block. Do you have all of them?",
        "What asks the memory is also added to the answer, before the second norm.",
    ),
    replace(
        NO_RESIDUAL_FEED_FORWARD,
        hint="Three arrows of figure 1 lead past the sub-layers of a decoder block. Do you have all of them?",
    ),
    NO_RESIDUAL,
    PRE_NORM,
    NORM_INSIDE,
    NORM_OF_INPUT_ONLY,
    Mistake(
        "one-norm",
        "one of the three norms is missing",
        "Count the boxes named Add & Norm in a decoder block of figure 1.",
        "After each of the three additions stands a norm, the last one included.",
        ways=("no-norm-1", "no-norm-2", "no-norm-3"),
    ),
    SAME_NORM,
    Mistake(
        "no-self-attention",
        "there is no self-attention",
        "Which entries of the weights does your code never read?",
        "Before the target looks at the memory, it looks at itself: that is the first sub-layer, with norm_1.",
        ways=("no-self-attention", "no-self-attention-normed"),
    ),
    replace(
        NO_FEED_FORWARD,
        strong_hint="After the cross-attention, with its norm, comes a third sub-layer, "
        "with a norm of its own (norm_3).",
    ),
    Mistake(
        "cross-looks-at-itself",
        "the second attention looks at the target once more; it should look at the memory",
        "What does your code do with the argument memory?",
        "In cross-attention x asks the questions, and keys and values are made from the memory.",
        ways=("to-itself-no-mask", "to-itself-own-mask", "to-itself-memory-mask"),
    ),
    Mistake(
        "queries-and-memory-exchanged",
        "in the cross-attention the memory asks and the target answers; it should be the other way round",
        "Which of the two needs an answer for each of its positions? (Your code only runs if both are equally long.)",
        "x asks, the memory is looked at. Look at the order of the arguments.",
    ),
    Mistake(
        "no-cross-attention",
        "there is no cross-attention",
        "What does your code do with the argument memory?",
        "Between self-attention and feed-forward stands a third sub-layer, with a norm of its own (norm_2).",
    ),
    Mistake(
        "masks-exchanged",
        "the two masks have changed places",
        "Which keys does each mask speak of, those of the target, or those of the memory?",
        "mask belongs to the self-attention, memory_mask to the cross-attention.",
    ),
    Mistake(
        "target-mask-ignored",
        "the self-attention does not use its mask, so it sees the future",
        "Change the last token of the target. May the first output move?",
        "Hand mask on to the self-attention.",
    ),
    Mistake(
        "memory-mask-ignored",
        "the cross-attention does not use its mask, so it looks at the padding of the source",
        "What does your code do with the argument memory_mask?",
        "Hand memory_mask on to the cross-attention.",
    ),
    Mistake(
        "self-mask-for-cross",
        "the cross-attention is given the mask of the self-attention",
        "Which keys does each mask speak of, those of the target, or those of the memory? (With masks, your code only "
        "runs if both are equally long.)",
        "mask belongs to the self-attention, memory_mask to the cross-attention.",
    ),
    Mistake(
        "cross-first",
        "the cross-attention comes before the self-attention; it should come after it",
        "Follow the right half of figure 1 from below. Which of the two comes first?",
        "First the target looks at itself, then at the memory, then comes the feed-forward network.",
        ways=("cross-first", "cross-first-own-norms"),
    ),
    Mistake(
        "same-attention",
        "both attentions use the same weights",
        "Which entry of the weights does your code never read?",
        "self_attention and cross_attention have weights of their own.",
        ways=("always-self-weights", "always-cross-weights"),
    ),
    Mistake(
        "attentions-exchanged",
        "the weights of self-attention and cross-attention have changed places",
        "Which entry of the weights goes with which attention?",
        "self_attention is the one where x looks at itself, and it comes first.",
    ),
)


def decoder_weights(d: int, f: int, seed: float) -> Weights:
    return {
        "self_attention": attention_weights(d, seed),
        "norm_1": norm_weights(d, seed + 4),
        "cross_attention": attention_weights(d, seed + 1.5),
        "norm_2": norm_weights(d, seed + 5),
        "feed_forward": feed_forward_weights(d, f, seed + 6),
        "norm_3": norm_weights(d, seed + 8),
    }


CAUSAL = np.tril(np.ones((3, 3), bool))
PADDING_3 = np.array([[True, True, False], [True, False, False]])[:, None, None, :]
PADDING_4 = np.array([[True, True, True, False], [True, True, False, False]])[:, None, None, :]

# For the properties: width 3, the smallest at which a norm says more than a sign
TARGET_2 = np.array([[[1.0, -0.5, 0.2], [0.3, 1.2, -1.0]]])
MEMORY_2 = np.array([[[0.4, 0.9, -0.6], [-1.1, 0.2, 0.8]]])
SMALL_DECODER = decoder_weights(3, 2, seed=2)
CAUSAL_2, LAST_HIDDEN_2 = np.tril(np.ones((2, 2), bool)), np.array([[True, False]])

DECODER_BLOCK = ExercisePart(
    "decoder_block",
    ("x", "memory", "weights", "n_heads", "mask", "memory_mask"),
    ("output",),
    decoder_block,
    cases=(
        Case(
            "two target tokens, three source tokens",
            (numbers(2, 2, 4, seed=1), numbers(2, 3, 4, seed=2), decoder_weights(4, 3, seed=1), 2, None, None),
        ),
        # equal lengths, so that exchanged arguments run and give wrong numbers
        Case(
            "as many target tokens as source tokens, masked",
            (numbers(2, 3, 4, seed=3), numbers(2, 3, 4, seed=4), decoder_weights(4, 5, seed=3), 2, CAUSAL, PADDING_3),
        ),
        Case(
            "three target tokens, four source tokens, masked",
            (numbers(2, 3, 6, seed=5), numbers(2, 4, 6, seed=6), decoder_weights(6, 5, seed=5), 3, CAUSAL, PADDING_4),
        ),
        Case(
            "as many target tokens as source tokens, without masks",
            (numbers(2, 2, 6, seed=7), numbers(2, 2, 6, seed=8), decoder_weights(6, 5, seed=7), 2, None, None),
        ),
    ),
    mistakes=DECODER_BLOCK_MISTAKES,
    properties=(
        equal(
            "the future does not change the past",
            [
                (TARGET_2, MEMORY_2, SMALL_DECODER, 1, CAUSAL_2, None),
                (changed(TARGET_2, (0, 1, 0), 3.0), MEMORY_2, SMALL_DECODER, 1, CAUSAL_2, None),
            ],
            lambda before, after: (floats(after)[0, 0], floats(before)[0, 0]),
            "The mask hides the future. If only the last token of x is changed, the output of the first one still "
            "changes at {at} from {expected} to {given}: the future changes the past.",
        ),
        equal(
            "padding in the memory does not matter",
            [
                (TARGET_2, MEMORY_2, SMALL_DECODER, 1, None, LAST_HIDDEN_2),
                (TARGET_2, changed(MEMORY_2, (0, 1, 0), 3.0), SMALL_DECODER, 1, None, LAST_HIDDEN_2),
            ],
            lambda before, after: (after, before),
            "memory_mask hides token 1 of memory. If that token is changed, output{at} still changes from {expected} "
            "to {given}.",
        ),
        holds(
            "the mean of each token, with gain 1 and bias 0 in norm_3",
            [
                (
                    TARGET_2,
                    MEMORY_2,
                    SMALL_DECODER | {"norm_3": {"gain": np.ones(3), "bias": np.zeros(3)}},
                    1,
                    None,
                    None,
                )
            ],
            lambda output: check_normed(output, "norm_3"),
        ),
        holds(
            "memory matters",
            [
                (TARGET_2, MEMORY_2, SMALL_DECODER, 1, None, None),
                (TARGET_2, changed(MEMORY_2, (0, 1, 0), 3.0), SMALL_DECODER, 1, None, None),
            ],
            lambda before, after: (
                "If memory is changed, nothing changes in the output: the target never looks at the source."
                if not np.any(abs(floats(after) - floats(before)) > 1e-4)
                else None
            ),
        ),
        equal(
            "order of the memory",
            [
                (TARGET_2, MEMORY_2, SMALL_DECODER, 1, None, None),
                (TARGET_2, MEMORY_2[:, ::-1], SMALL_DECODER, 1, None, None),
            ],
            lambda before, after: (after, before),
            "If the tokens of memory come in another order, output{at} changes from {expected} to {given}. Attention "
            "does not see the order, so it should not.",
        ),
        equal(
            "texts are independent",
            [
                (np.tile(TARGET_2, (2, 1, 1)), np.tile(MEMORY_2, (2, 1, 1)), SMALL_DECODER, 1, None, None),
                (
                    changed(np.tile(TARGET_2, (2, 1, 1)), (1, 0, 0), 3.0),
                    np.tile(MEMORY_2, (2, 1, 1)),
                    SMALL_DECODER,
                    1,
                    None,
                    None,
                ),
            ],
            lambda before, after: (floats(after)[0], floats(before)[0]),
            "If only text 1 is changed, output[0]{at}, a number of text 0, changes from {expected} to {given}.",
        ),
        agrees(
            decoder_block,
            ("output",),
            "one target token, one source token",
            TARGET_2[:, :1],
            MEMORY_2[:, :1],
            SMALL_DECODER,
            1,
            None,
            None,
        ),
        agrees(
            decoder_block,
            ("output",),
            "as many heads as numbers, with masks",
            TARGET_2,
            MEMORY_2,
            SMALL_DECODER,
            3,
            CAUSAL_2,
            LAST_HIDDEN_2,
        ),
        agrees(
            decoder_block,
            ("output",),
            "only the target is masked",
            TARGET_2,
            numbers(1, 4, 3, seed=4),
            SMALL_DECODER,
            1,
            CAUSAL_2,
            None,
        ),
    ),
    hint="The block has three parts of the same form: LayerNorm(x + Sublayer(x)). Go through them from below. For "
    "each: what asks, what is looked at, which weights, which mask, which norm?",
    strong_hint="Print the result after each of the three norms. Take weights with gain 1 and bias 0: the mean of "
    "each token should be 0 after each norm.",
    thought="A decoder block is an encoder block with one more part in the middle. First the target looks at itself, "
    "with the mask that hides the future. Then it looks at the source: x asks, and keys and values come from the "
    "memory, with the mask of the memory. Then the feed-forward network. Each result is added to what went into that "
    "part, and each sum has a norm of its own. Each part reads what the one before it gave.",
)

DECODER_FROM_BLOCK = {mistake.name: mistake for mistake in DECODER_BLOCK_MISTAKES}


def decoder(
    x: Array,
    memory: Array,
    layers: list[Weights],
    n_heads: int,
    mask: Array | None,
    memory_mask: Array | None,
    wrong: Switches = NO_MISTAKES,
) -> Array:
    """Apply one decoder block after the other, all to the same memory."""
    outputs = []
    for layer in decoder_layers(layers, wrong):
        y = decoder_block(x, memory, layer, n_heads, mask, memory_mask, wrong)
        if "decoder-memory-replaced" in wrong:
            memory = y
        else:
            x = x + y if "decoder-outputs-added" in wrong else y
        outputs.append(y)
    return np.stack(outputs) if "decoder-all-outputs" in wrong else outputs[-1]


def token_logits(x: Array, table: Array, wrong: Switches = NO_MISTAKES) -> Array:
    """x tableᵀ: [B, T, D] -> [B, T, V]"""
    logits = x @ (table if "table-not-transposed" in wrong else table.T)
    if "logits-times-sqrt" in wrong:
        logits = logits * math.sqrt(x.shape[-1])
    if "logits-by-sqrt" in wrong:
        logits = logits / math.sqrt(x.shape[-1])
    if "largest-only" in wrong:
        return np.asarray(logits.argmax(axis=-1))
    if "log-softmax-on-logits" in wrong:
        return softmax(logits, NO_MISTAKES | {"log-softmax"})
    return softmax(logits) if "softmax-on-logits" in wrong else logits


def transformer(
    source: Array, target_in: Array, weights: Weights, n_heads: int, pad: int, wrong: Switches = NO_MISTAKES
) -> Array:
    """Figure 1: source [B, S], decoder input [B, T] -> logits of the next token [B, T, V]"""
    table = weights["embedding"]
    if "source-target-exchanged" in wrong:
        source, target_in = target_in, source
    if SHIFTED_AGAIN & wrong:
        target_in = shift_right(target_in, pad if "shifted-again-pad" in wrong else int("shifted-again-1" in wrong))
    source_mask, mask = padding_mask(source, pad, wrong), decoder_mask(target_in, pad, wrong)
    memories = encode(source, weights, n_heads, source_mask, wrong)
    x = embed(target_in, table, wrong | missing_positions("target", wrong))
    memory_mask = None if {"memory-padding-seen", "padding-seen"} & wrong else source_mask
    for i, layer in enumerate(decoder_layers(weights["decoder"], wrong)):
        memory = memories[min(i + 1, len(memories) - 1)] if "memory-layer-by-layer" in wrong else memories[-1]
        x = decoder_block(x, memory, layer, n_heads, mask, memory_mask, wrong)
    return token_logits(x, table, wrong)


SHIFTED_AGAIN = {"shifted-again-0", "shifted-again-1", "shifted-again-pad"}


def encode(source: Array, weights: Weights, n_heads: int, mask: Array | None, wrong: Switches) -> list[Array]:
    """Return the memory as the last element, after intermediate outputs if a mistake uses them.

    The layers of the encoder are right: it is given, and a mistake of a decoder block is not in it.
    """
    x = embed(source, weights["embedding"], wrong | missing_positions("source", wrong))
    layers = weights["encoder"]
    if {"source-padding-seen", "padding-seen"} & wrong:
        mask = None
    if "memory-is-embedding" in wrong:
        return [x]
    if "memory-after-first-layer" in wrong:
        layers = layers[:1]
    if "memory-layer-by-layer" in wrong:
        return [x, *(encoder(x, layers[: i + 1], n_heads, mask) for i in range(len(layers)))]
    return [encoder(x, layers, n_heads, mask)]


def missing_positions(side: str, wrong: Switches) -> Switches:
    return frozenset({"no-positions"}) if f"no-{side}-positions" in wrong else NO_MISTAKES


def decoder_layers(layers: list[Weights], wrong: Switches) -> list[Weights]:
    if "decoder-always-first" in wrong:
        return [layers[0]] * len(layers)
    if "decoder-always-last" in wrong:
        return [layers[-1]] * len(layers)
    if "decoder-without-last" in wrong:
        return layers[:-1]
    if "decoder-reversed" in wrong:
        return layers[::-1]
    if "decoder-last-only" in wrong:
        return layers[-1:]
    return layers[:1] if "decoder-first-only" in wrong else layers


TRANSFORMER_MISTAKES = (
    Mistake(
        "not-scaled",
        "the embeddings are not multiplied by sqrt(D)",
        "Section 3.4 has a sentence about the embedding matrix, after the one about sharing it.",
        "Before positions are added, the vectors are multiplied by the square root of their width. embed does both.",
    ),
    Mistake(
        "no-positions",
        "no positions are added",
        "What is done with the ids before the first layer? Compare with figure 1.",
        "Source and target both get positions, where they are embedded. embed does it.",
    ),
    Mistake(
        "no-source-positions",
        "the source gets no positions",
        "Exchange two words of the source. May the result stay the same?",
        "In figure 1 both sides have the circle with the wave. Embed the source just as you embed the target.",
    ),
    Mistake(
        "no-target-positions",
        "the target gets no positions",
        "In figure 1 a circle with a wave stands on both sides. Do you have both?",
        "Embed the target just as you embed the source.",
    ),
    Mistake(
        "source-padding-seen",
        "the encoder looks at the padding of the source",
        "There are three kinds of attention. Which of them may see the padding of the source?",
        "The encoder takes a mask, too: that of the source's padding.",
    ),
    Mistake(
        "memory-padding-seen",
        "the cross-attention looks at the padding of the source",
        "There are three kinds of attention. Which of them may see the padding of the source?",
        "The decoder block takes two masks. The second is that of the source's padding.",
    ),
    Mistake(
        "padding-seen",
        "the padding of the source is not hidden at all",
        "Who may look at the padding of the source?",
        "Nobody may: neither the encoder nor the cross-attention. Both need its mask.",
    ),
    Mistake(
        PADDING_ONLY.name,
        "the decoder sees the future",
        "Change the last token of the target. May the logits of the first position move?",
        "The self-attention of the decoder needs the mask that hides the future and padding: decoder_mask.",
        ways=("padding-only",),
    ),
    Mistake(
        CAUSAL_ONLY.name,
        "the decoder looks at the padding of the target",
        "Take a text that ends in padding. What may its last positions look at?",
        "The self-attention of the decoder needs the mask that hides both the future and padding: decoder_mask.",
        ways=("causal-only",),
    ),
    Mistake(
        "target-mask-ignored",
        "the self-attention of the decoder has no mask: it sees the future, and padding",
        "Change the last token of the target. May the logits of the first position move?",
        "It needs the mask that hides the future and padding: decoder_mask.",
    ),
    Mistake(
        "softmax-on-logits",
        "what comes back are probabilities, or their logarithms; expected are logits",
        "Do your numbers add up to 1 along the last axis, or their powers? Logits need not.",
        "Leave out the softmax at the end: the loss does it.",
        ways=("softmax-on-logits", "log-softmax-on-logits"),
    ),
    Mistake(
        "memory-is-embedding",
        "the decoder looks at the embedded source; it should look at what the encoder made of it",
        "What does your code do with the encoder's output?",
        "The memory is the output of the last encoder layer. Is it kept under the name that the decoder reads?",
    ),
    Mistake(
        "memory-after-first-layer",
        "the memory is what the first encoder layer gives, not the last",
        "How many layers does the source go through?",
        "All layers of the encoder come first, and only then the decoder.",
    ),
    Mistake(
        "memory-layer-by-layer",
        "decoder layer i looks at the output of encoder layer i; all should look at that of the last one",
        "In figure 1, where does the arrow from the encoder to the decoder begin?",
        "Finish the encoder first. Then every decoder layer gets the same memory.",
    ),
    Mistake(
        "decoder-shared-weights",
        "all decoder layers use the weights of one of them",
        SHARED_WEIGHTS.hint.replace("layers is a list", 'weights["decoder"] is a list'),
        SHARED_WEIGHTS.strong_hint,
        ways=("decoder-always-first", "decoder-always-last"),
    ),
    Mistake(
        "decoder-first-only",
        "only the first layer of the decoder is used",
        "How often does your loop over the decoder's layers run? When does the function return?",
        "Is the return inside the loop, or does every layer read the same x? Each reads what the one before it gave.",
    ),
    Mistake(
        "decoder-last-only",
        "every layer of the decoder reads the embedded target, so only the last one counts",
        "What does the second layer of the decoder read?",
        "Each layer reads what the one before it gave: keep the result under the name that the next one reads.",
    ),
    Mistake(
        "decoder-without-last",
        "the last layer of the decoder is left out",
        'How many layers are in weights["decoder"], and how many does your loop go through?',
        "Look at where your loop ends: all entries of the list count, the last one included.",
    ),
    Mistake(
        "decoder-reversed",
        "the layers of the decoder come in the opposite order",
        "Which entry of the list should see the embedded target first?",
        'weights["decoder"][0] is the first layer, next to the embedding.',
    ),
    Mistake(
        "source-target-exchanged",
        "source and target have changed places: the encoder reads the target, and the decoder the source",
        "For whose positions are the logits? Compare their shape with the one that is asked for.",
        "The encoder reads source, the decoder reads target_in. Look at the order of the arguments.",
    ),
    Mistake(
        "shifted-again",
        "the target is shifted once more; target_in is shifted already",
        "What does the decoder read at its first position? And what is asked for?",
        "Leave out shift_right here: who calls the function has done it.",
        ways=("shifted-again-pad", "shifted-again-0", "shifted-again-1"),
    ),
)


def model_weights(v: int, d: int, f: int, layers: int, seed: float) -> Weights:
    return {
        "embedding": numbers(v, d, seed=seed, size=1.0),
        "encoder": [block_weights(d, f, seed=seed + i) for i in range(layers)],
        "decoder": [decoder_weights(d, f, seed=seed + 0.5 + i) for i in range(layers)],
    }


FROM_TRANSFORMER = {mistake.name: mistake for mistake in TRANSFORMER_MISTAKES}
DECODER_STACK = [decoder_weights(4, 3, seed=seed) for seed in (1.5, 2.5, 4.5)]

DECODER = ExercisePart(
    "decoder",
    ("x", "memory", "layers", "n_heads", "mask", "memory_mask"),
    ("output",),
    decoder,
    cases=(
        Case(
            "two layers, two target tokens, three source tokens",
            (numbers(2, 2, 4, seed=1), numbers(2, 3, 4, seed=2), DECODER_STACK[:2], 2, None, None),
        ),
        # as many target tokens as source tokens, so that exchanged masks run and give wrong numbers
        Case(
            "three layers, with masks",
            (numbers(2, 3, 4, seed=3), numbers(2, 3, 4, seed=4), DECODER_STACK, 2, CAUSAL, PADDING_3),
        ),
        Case(
            "two layers, with masks",
            (numbers(2, 3, 4, seed=5), numbers(2, 3, 4, seed=6), DECODER_STACK[1:], 2, CAUSAL, PADDING_3),
        ),
    ),
    mistakes=(
        replace(
            FROM_TRANSFORMER["decoder-shared-weights"],
            message="all layers use the weights of one of them",
            hint=SHARED_WEIGHTS.hint,
        ),
        replace(FROM_TRANSFORMER["decoder-last-only"], message="every layer reads x, so only the last one counts"),
        replace(FROM_TRANSFORMER["decoder-first-only"], message="only the first layer is used"),
        replace(
            FROM_TRANSFORMER["decoder-without-last"],
            message="the last layer is left out",
            hint="How many layers are in the list, and how many does your loop go through?",
        ),
        replace(
            FROM_TRANSFORMER["decoder-reversed"],
            message="the layers come in the opposite order",
            hint="Which entry of the list should see x first?",
            strong_hint="layers[0] is the first layer, next to the embedding.",
        ),
        Mistake(
            "decoder-outputs-added",
            "what a layer gives is added to what it read; it should replace it",
            "Where is the plus in your code?",
            "The residual connections are inside the blocks; between the blocks nothing is added.",
        ),
        Mistake(
            "decoder-memory-replaced",
            "the output of a layer becomes the memory of the next; all layers should look at the same memory",
            "Which of the arguments changes from layer to layer, and which stays?",
            "x is replaced by what the layer gives. memory stays what the encoder made.",
        ),
        Mistake(
            "decoder-all-outputs",
            "the outputs of all layers come back; expected is that of the last one",
            "How many axes should the result have?",
            "What leaves the decoder is what the last layer gives, and nothing else.",
        ),
        *(DECODER_FROM_BLOCK[name] for name in ("masks-exchanged", "target-mask-ignored", "memory-mask-ignored")),
    ),
    properties=(
        equal(
            "one layer",
            [(TARGET_2, MEMORY_2, [SMALL_DECODER], 1, CAUSAL_2, None)],
            lambda output: (output, decoder_block(TARGET_2, MEMORY_2, SMALL_DECODER, 1, CAUSAL_2, None)),
            "With one layer, the decoder gives what decoder_block gives: output{at} should be {expected} and is "
            "{given}.",
        ),
        equal(
            "the future does not change the past",
            [
                (TARGET_2, MEMORY_2, [SMALL_DECODER] * 2, 1, CAUSAL_2, None),
                (changed(TARGET_2, (0, 1, 0), 3.0), MEMORY_2, [SMALL_DECODER] * 2, 1, CAUSAL_2, None),
            ],
            lambda before, after: (floats(after)[0, 0], floats(before)[0, 0]),
            "If only the last token of x is changed, the output of the first one changes after two layers at {at} from "
            "{expected} to {given}: the future changes the past.",
        ),
        agrees(
            decoder,
            ("output",),
            "one target token, one source token, two layers",
            TARGET_2[:, :1],
            MEMORY_2[:, :1],
            [SMALL_DECODER] * 2,
            1,
            None,
            None,
        ),
        agrees(
            decoder,
            ("output",),
            "six layers",
            numbers(1, 2, 4, seed=4),
            numbers(1, 3, 4, seed=5),
            [*DECODER_STACK, *DECODER_STACK],
            2,
            CAUSAL_2,
            None,
        ),
    ),
    hint="Try it with one layer: is the result that of decoder_block? Then with two: the second reads what the first "
    "gave, and the same memory.",
    strong_hint="Write down for each turn of your loop: what does the layer read, which weights does it use, which "
    "memory and masks does it get, and where is its result kept?",
    thought="This is the encoder's loop once more: each layer reads what the one before it gave, with weights of its "
    "own. Only x changes on the way. The memory is finished before the decoder begins, so all layers look at the same "
    "memory, and the masks stay the same as well. After the loop the last result is returned.",
)

TOKEN_LOGITS = ExercisePart(
    "token_logits",
    ("x", "table"),
    ("logits",),
    token_logits,
    cases=(
        # as many tokens as numbers in a vector, so that the table as it is runs and gives wrong numbers
        Case("one text of two places, two tokens", (numbers(1, 2, 2, seed=1), numbers(2, 2, seed=2))),
        Case("two texts of three places, five tokens", (numbers(2, 3, 4, seed=3), numbers(5, 4, seed=4))),
        Case("as many tokens as numbers in a vector", (numbers(2, 3, 4, seed=5), numbers(4, 4, seed=6))),
    ),
    mistakes=(
        Mistake(
            "table-not-transposed",
            "the table is used as it is; it has to be transposed",
            "A logit belongs to a token, and a token is a row of the table. What do you multiply x with?",
            "Each logit is the dot product of x and one row of the table.",
        ),
        FROM_TRANSFORMER["softmax-on-logits"],
        Mistake(
            "logits-scaled",
            "the logits are multiplied or divided by sqrt(D); they should stay as they are",
            "Where does sqrt(D) stand in section 3.4?",
            "sqrt(D) belongs to the embedding of the tokens, at the other end of the model.",
            ways=("logits-times-sqrt", "logits-by-sqrt"),
        ),
        Mistake(
            "largest-only",
            "the number of the most probable token comes back; expected is a logit for each token",
            "What shape should the result have?",
            "Leave out the argmax. Which token is chosen is decided later.",
        ),
    ),
    properties=(
        equal(
            "a table of unit vectors",
            [(np.array([[[3.0, -2.0]]]), np.eye(2))],
            lambda logits: (logits, [[[3.0, -2.0]]]),
            "With the table [[1, 0], [0, 1]] the logits of x = [3, -2] are 3 and -2; but logits{at} is {given}.",
        ),
        agrees(token_logits, ("logits",), "one token in the table", numbers(1, 2, 3, seed=1), numbers(1, 3, seed=2)),
        agrees(token_logits, ("logits",), "width 1", numbers(2, 1, 1, seed=1), numbers(3, 1, seed=2)),
    ),
    hint="There is one logit for each token: the dot product of x and that token's row of the table. Compute one by "
    "hand.",
    strong_hint="Compare the shapes: x is [B, T, D], the table [V, D], the result [B, T, V]. Over which axis is "
    "summed?",
    thought="What leaves the decoder is a vector for each place. A token fits there if its own vector in the table "
    "points the same way, and a dot product measures that. So each logit is the dot product of x with one row of the "
    "table. All of them together are one matrix product, with the table transposed.",
)

FIGURE_1 = model_weights(4, 4, 3, 2, seed=6)
SOURCE_2, TARGET_IN_2 = np.array([[2, 1]]), np.array([[1, 2]])

TRANSFORMER = ExercisePart(
    "transformer",
    ("source", "target_in", "weights", "n_heads", "pad"),
    ("logits",),
    transformer,
    cases=(
        Case(
            "one layer on each side, no padding",
            (np.array([[4, 1, 3], [0, 2, 4]]), np.array([[1, 3], [1, 0]]), model_weights(6, 4, 3, 1, seed=1), 2, 5),
        ),
        Case(
            "two layers, with padding",
            (
                np.array([[6, 0, 3, 5], [4, 1, 2, 2]]),
                np.array([[1, 3, 0], [1, 6, 2]]),
                model_weights(7, 4, 5, 2, seed=4.5),
                2,
                2,
            ),
        ),
        Case(
            "three layers, with padding",
            (
                np.array([[0, 5, 4], [3, 6, 6]]),
                np.array([[1, 4, 2, 6], [1, 6, 6, 6]]),
                model_weights(7, 6, 5, 3, seed=8.5),
                3,
                6,
            ),
        ),
    ),
    mistakes=TRANSFORMER_MISTAKES,
    properties=(
        equal(
            "the future does not change the past",
            [(SOURCE_2, TARGET_IN_2, FIGURE_1, 1, 0), (SOURCE_2, np.array([[1, 3]]), FIGURE_1, 1, 0)],
            lambda before, after: (floats(after)[0, 0], floats(before)[0, 0]),
            "If only the last id of target_in is changed, the logits of the first position change at {at} from "
            "{expected} to {given}: the future changes the past.",
        ),
        equal(
            "padding of the source does not matter",
            [(SOURCE_2, TARGET_IN_2, FIGURE_1, 1, 0), (np.array([[2, 1, 0]]), TARGET_IN_2, FIGURE_1, 1, 0)],
            lambda before, after: (after, before),
            "The source [2, 1] and the source [2, 1, pad] say the same. But with the padding logits{at} changes from "
            "{expected} to {given}.",
        ),
        holds(
            "order of the source",
            [(SOURCE_2, TARGET_IN_2, FIGURE_1, 1, 0), (SOURCE_2[:, ::-1], TARGET_IN_2, FIGURE_1, 1, 0)],
            lambda before, after: (
                "The sources [2, 1] and [1, 2] are different texts, but the logits are the same: the order of the "
                "source is lost."
                if not np.any(abs(floats(after) - floats(before)) > 1e-4)
                else None
            ),
        ),
        holds(
            "order of the target",
            [
                (SOURCE_2, TARGET_IN_2[:, [0, 1, 0]], FIGURE_1, 1, 0),
                (SOURCE_2, TARGET_IN_2[:, [1, 0, 0]], FIGURE_1, 1, 0),
            ],
            lambda before, after: (
                "The targets [1, 2, 1] and [2, 1, 1] are different texts, but the last logits are the same: the order "
                "of the target is lost."
                if not np.any(abs(floats(after)[0, 2] - floats(before)[0, 2]) > 1e-4)
                else None
            ),
        ),
        equal(
            "texts are independent",
            [
                (np.array([[2, 1], [3, 3]]), np.array([[1, 2], [1, 1]]), FIGURE_1, 1, 0),
                (np.array([[2, 1], [1, 3]]), np.array([[1, 2], [3, 1]]), FIGURE_1, 1, 0),
            ],
            lambda before, after: (floats(after)[0], floats(before)[0]),
            "If only text 1 is changed, logits[0]{at}, a number of text 0, changes from {expected} to {given}.",
        ),
        agrees(
            transformer, ("logits",), "one id on each side, pad 0", np.array([[2]]), np.array([[1]]), FIGURE_1, 2, 0
        ),
        agrees(
            transformer,
            ("logits",),
            "one layer on each side, with padding, pad 0",
            np.array([[3, 2, 0], [1, 2, 3]]),
            np.array([[1, 2], [1, 0]]),
            model_weights(4, 4, 3, 1, seed=3),
            2,
            0,
        ),
        agrees(
            transformer,
            ("logits",),
            "a long source and a longer target",
            np.arange(12)[None] % 4 + 1,
            np.arange(15)[None] % 3 + 1,
            model_weights(5, 4, 3, 1, seed=3),
            2,
            0,
        ),
    ),
    hint="Follow figure 1 and check each step by itself: embed the source, encoder, embed the target, decoder, "
    "logits. Which mask does each attention get?",
    strong_hint="Two masks are needed: padding_mask of the source, for the encoder and for the cross-attention; "
    "decoder_mask of the target, for the decoder's self-attention. Is one of them missing or in another place?",
    thought="The source is embedded and goes through all layers of the encoder; the result is the memory. Its padding "
    "is hidden from everyone: in the encoder, and when the decoder looks at the memory. The target is embedded with "
    "the same table and goes through all layers of the decoder. Its own mask hides the future and its padding. What "
    "comes out is compared with each row of the table, and that gives the logits. target_in is shifted already, and "
    "the softmax is part of the loss.",
)


def token_losses(logits: Array, target: Array, wrong: Switches = NO_MISTAKES) -> Array:
    """-log p(target) of each token, [B, T]"""
    log_p = log_p_of(logits, wrong)
    if "all-tokens" in wrong:
        return compute_loss(log_p, wrong)
    losses = compute_loss(np.take_along_axis(log_p, target[..., None], axis=-1)[..., 0], wrong)
    if "losses-averaged" in wrong:
        return np.asarray(losses.mean())
    return np.asarray(losses.sum()) if "losses-summed" in wrong else losses


def cross_entropy(logits: Array, target: Array, pad: int, wrong: Switches = NO_MISTAKES) -> float | Array:
    """The mean of -log p(target) over all tokens without padding."""
    if "shifted-once-more" in wrong:
        logits, target = logits[:, :-1], target[:, 1:]
    if "shifted-back" in wrong:
        logits, target = logits[:, 1:], target[:, :-1]
    loss = compute_loss(np.take_along_axis(log_p_of(logits, wrong), target[..., None], axis=-1)[..., 0], wrong)
    real = target != (0 if "pad-fixed-0" in wrong else 1 if "pad-fixed-1" in wrong else pad)
    if "padding-counted" in wrong:
        real = np.ones_like(real)
    if {"only-padding", "padding-inverted"} & wrong:
        real = ~real
    if PER_TOKEN & wrong:
        return loss[real] if "per-real-token" in wrong else loss * real if "per-token-zeroed" in wrong else loss
    if "mean-of-means" in wrong:
        return float(np.mean(np.where(real, loss, 0).sum(axis=1) / real.sum(axis=1)))
    total = (loss * real).sum() if "padding-times-zero" in wrong else loss[real].sum()
    if "sum-not-mean" in wrong:
        return float(total)
    if "divided-by-texts" in wrong:
        return float(total / len(target))
    mean = float(total / (real.size if "divided-by-all" in wrong else real.sum()))
    return float(np.exp(mean)) if "perplexity" in wrong else mean


PER_TOKEN = {"per-token", "per-token-zeroed", "per-real-token"}


def log_p_of(logits: Array, wrong: Switches) -> Array:
    """log(softmax(logits)), computed without the softmax, which underflows to 0 for improbable tokens."""
    if "no-softmax" in wrong:
        return np.log(logits)
    if "no-softmax-no-log" in wrong:
        return logits
    if "softmax-twice" in wrong:
        logits = softmax(logits)
    logits = logits - stabilizer(logits, wrong)
    total = np.exp(logits).sum(axis=-1, keepdims=True)
    if {"log-of-softmax", "no-maximum", "one-maximum-p", "minimum-subtracted", "mean-subtracted"} & wrong:
        return np.log(np.exp(logits) / total)
    return logits - np.log(total)


def stabilizer(logits: Array, wrong: Switches) -> Array | float:
    """Return the number to subtract so that e^x does not overflow: the maximum, unless something is wrong."""
    if {"no-maximum", "overflow-to-infinity"} & wrong:
        return 0.0
    if {"minimum-subtracted", "minimum-to-infinity"} & wrong:
        return np.asarray(logits.min(axis=-1, keepdims=True))
    if {"mean-subtracted", "mean-to-infinity"} & wrong:
        return np.asarray(logits.mean(axis=-1, keepdims=True))
    return np.asarray(logits.max(axis=None if {"one-maximum", "one-maximum-p"} & wrong else -1, keepdims=True))


def compute_loss(log_p: Array, wrong: Switches) -> Array:
    """-log p of the right token"""
    if "no-logarithm" in wrong:
        return -np.exp(log_p)
    if "one-minus-p" in wrong:
        return 1 - np.exp(log_p)
    if "positive-p" in wrong:
        return np.exp(log_p)
    loss = -log_p / (np.log(2) if "log-2" in wrong else np.log(10) if "log-10" in wrong else 1.0)
    return -loss if "sign" in wrong else loss


CROSS_ENTROPY_MISTAKES = (
    Mistake(
        "padding-counted",
        "the padding counts as if it were tokens",
        "How many tokens of the example are no padding? Over how many does your mean go?",
        "Where the target is pad, there is nothing to be predicted: leave those places out, above and below the line.",
    ),
    Mistake(
        "only-padding",
        "the padding is what counts, and the tokens are left out",
        "Over which places does your mean go?",
        "You keep the places where the target is pad. Ask the opposite.",
    ),
    Mistake(
        "divided-by-all",
        "padding is left out of the sum, but still counts in what it is divided by",
        "How many tokens of the example are no padding? By what do you divide?",
        "Divide by the number of tokens that you added up, not by all places.",
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
        "this is the mean of each text's mean, so the tokens of short texts count for more",
        "Do all tokens of the example count the same?",
        "Add up the tokens of all texts first, and divide once.",
    ),
    Mistake(
        "log-base",
        "this is a logarithm to another base; meant is the natural one",
        "If p is 1/2, the loss of a token should be 0.693.",
        "Bits are log2, and some tables use log10. np.log, torch.log and math.log are natural.",
        ways=("log-2", "log-10"),
    ),
    Mistake(
        "sign",
        "the sign is wrong",
        "Should the loss become smaller or larger when the model becomes better?",
        "The logarithm of a probability is negative; the loss is its opposite.",
    ),
    Mistake(
        "no-logarithm",
        "the probability itself is used, without the logarithm",
        "What is the loss of a token to which the model gives the probability 1? And 0.0001?",
        "Between the softmax and the mean stands a logarithm.",
        ways=("no-logarithm", "one-minus-p", "positive-p"),
    ),
    Mistake(
        "no-softmax",
        "the logits are used as if they were probabilities (or their logarithms)",
        "What is p in the formula, and what do you have in its place?",
        "First make probabilities of the logits, along the last axis.",
        ways=("no-softmax", "no-softmax-no-log"),
    ),
    replace(
        SOFTMAX_TWICE,
        hint="Is there a softmax in a function that you call?",
        strong_hint="torch's cross_entropy and log_softmax take logits, not probabilities.",
    ),
    Mistake(
        "log-of-softmax",
        "for a very unlikely token the softmax is 0, and the logarithm of 0 is minus infinity",
        "What is your loss for the logits [0, 1000] and the target 0? It should be 1000.",
        "The logarithm of e^a / s is a - log(s). Written like that, nothing can become 0 on the way. (Subtract the "
        "largest logit first, as in exercise 1.)",
        shows_as_nan=True,
    ),
    Mistake(
        "perplexity",
        "this is the perplexity, e to the power of the loss; expected is the loss",
        "If the model gives each of four tokens the probability 1/4, do you get 4, or log 4?",
        "Leave out the last exp.",
    ),
    Mistake(
        "per-token",
        "the losses of the single tokens come back; expected is their mean, one number",
        "What shape does your result have?",
        "Add up the losses of all tokens that are not padding, and divide by how many they are.",
        ways=("per-token", "per-token-zeroed", "per-real-token"),
    ),
    Mistake(
        "targets-shifted",
        "the targets are shifted against the logits",
        "The logits at position t speak of target[:, t]. With which target do you compare them?",
        "The shift is done already, in what the decoder reads. Here both stand side by side.",
        ways=("shifted-once-more", "shifted-back"),
    ),
    PAD_FIXED,
    replace(
        NO_MAXIMUM,
        ways=(
            "no-maximum",
            "overflow-to-infinity",
            "minimum-subtracted",
            "minimum-to-infinity",
            "mean-subtracted",
            "mean-to-infinity",
        ),
    ),
    replace(
        ONE_MAXIMUM,
        message="from all rows the same number is subtracted, the largest logit of all; in a row far below it all "
        "powers of e become 0",
        ways=("one-maximum", "one-maximum-p"),
    ),
)


def logits(*shape: int, seed: float, above: tuple[float, ...] = (5.0,)) -> Array:
    """Return positive logits (their logarithm is not nan), multiples of 1/4 (exact even if large).

    `above` is added: one number for all texts, or one for each.
    """
    return np.round(4 * numbers(*shape, seed=seed)) / 4 + np.reshape(above, (-1, 1, 1))


def far_above(logits: Array, tokens: Array) -> Array:
    """Make one token at each position so probable that all others have a probability of 0."""
    return logits + 1000.0 * (tokens[..., None] == np.arange(logits.shape[-1]))


TARGETS = (
    np.array([[1, 0], [2, 3]]),
    np.array([[4, 0, 1], [2, 3, 3]]),
    np.array([[0, 4, 1, 2], [1, 4, 4, 4]]),
    np.array([[1, 4, 0], [0, 2, 2], [1, 3, 2]]),
)

CROSS_ENTROPY = ExercisePart(
    "cross_entropy",
    ("logits", "target", "pad"),
    ("loss",),
    cross_entropy,
    # A loss is one number, so it takes several cases to recognise a mistake.
    cases=(
        Case("two texts, two ids", (logits(2, 2, 4, seed=1), TARGETS[0], 3)),
        Case("two texts, three ids", (logits(2, 3, 5, seed=2), TARGETS[1], 3)),
        Case("two texts, four ids", (logits(2, 4, 5, seed=3), TARGETS[2], 4)),
        Case("three texts, three ids", (logits(3, 3, 5, seed=4), TARGETS[3], 2)),
        # much larger in one text than in another, so that one maximum for all is not enough
        Case("large logits", (logits(2, 3, 5, seed=5, above=(1000.0, 3000.0)), TARGETS[1], 3)),
        Case("larger logits", (logits(2, 4, 5, seed=6, above=(4000.0, 2000.0)), TARGETS[2], 4)),
        Case("large logits, three texts", (logits(3, 3, 5, seed=7, above=(1500.0, 4500.0, 3000.0)), TARGETS[3], 2)),
        # first another token is by far the most probable, then the right one
        Case("no chance for the target", (far_above(logits(2, 2, 4, seed=8), (TARGETS[0] + 1) % 3), TARGETS[0], 3)),
        Case("no chance, longer texts", (far_above(logits(2, 3, 5, seed=9), (TARGETS[1] + 1) % 5), TARGETS[1], 3)),
        Case("no chance, three texts", (far_above(logits(3, 3, 5, seed=10), (TARGETS[3] + 2) % 5), TARGETS[3], 2)),
        Case("no chance for any other token", (far_above(logits(2, 4, 5, seed=11), TARGETS[2]), TARGETS[2], 4)),
    ),
    mistakes=CROSS_ENTROPY_MISTAKES,
    # Padding may be removed or multiplied by 0, and 0 times infinity is nan.
    free_choices=("padding-times-zero",),
    properties=(
        equal(
            "equal logits",
            [(np.zeros((1, 2, 4)), np.array([[1, 2]]), 3)],
            lambda loss: (loss, math.log(4)),
            "With equal logits each of four tokens has the probability 1/4, and the loss is log 4 = {expected}; yours "
            "is {given}.",
        ),
        equal(
            "the logits of padding do not matter",
            [
                (np.array([[[0.0, 1.0, 2.0], [1.0, 0.0, 0.0]]]), np.array([[1, 2]]), 2),
                (np.array([[[0.0, 1.0, 2.0], [5.0, 0.0, 0.0]]]), np.array([[1, 2]]), 2),
            ],
            lambda before, after: (after, before),
            "The second target is padding. If only the logits there are changed, the loss changes from {expected} to "
            "{given}.",
        ),
        equal(
            "the same text twice",
            [
                (np.array([[[0.0, 1.0, 2.0]]]), np.array([[1]]), 2),
                (np.array([[[0.0, 1.0, 2.0]], [[0.0, 1.0, 2.0]]]), np.array([[1], [1]]), 2),
            ],
            lambda once, twice: (twice, once),
            "It is a mean, so the same text twice has the same loss as once. Yours is {expected} once and {given} "
            "twice.",
        ),
        equal(
            "a number added to the logits",
            [
                (np.array([[[0.0, 1.0, 2.0]]]), np.array([[1]]), 2),
                (np.array([[[3.0, 4.0, 5.0]]]), np.array([[1]]), 2),
            ],
            lambda before, after: (after, before),
            "The logits [0, 1, 2] and [3, 4, 5] have the same softmax. But the loss is {expected} for one and {given} "
            "for the other.",
        ),
        holds(
            "no loss is negative",
            [(np.array([[[0.0, 1.0]]]), np.array([[0]]), 1)],
            lambda loss: f"The loss is {float(loss):.4g}: it can never be negative." if float(loss) < -1e-6 else None,
        ),
        equal(
            "a token without a chance",
            [(np.array([[[0.0, 1000.0]]]), np.array([[0]]), 1)],
            lambda loss: (loss, 1000.0),
            "For the logits [0, 1000] and the target 0 the loss is 1000; yours is {given}.",
        ),
        agrees(cross_entropy, ("loss",), "pad 0", logits(2, 2, 4, seed=1, above=(0.0,)), np.array([[1, 0], [2, 3]]), 0),
        agrees(
            cross_entropy,
            ("loss",),
            "one of two texts is padding only",
            logits(2, 2, 4, seed=2, above=(0.0,)),
            np.array([[1, 0], [3, 3]]),
            3,
        ),
        agrees(cross_entropy, ("loss",), "one text of one id", np.array([[[0.0, 1.0, 2.0]]]), np.array([[1]]), 0),
        agrees(
            cross_entropy,
            ("loss",),
            "negative logits",
            logits(2, 2, 4, seed=3, above=(-9.0,)),
            np.array([[1, 0], [2, 2]]),
            3,
        ),
        agrees(
            cross_entropy,
            ("loss",),
            "no padding",
            logits(2, 3, 5, seed=4, above=(0.0,)),
            np.array([[1, 0, 2], [3, 3, 1]]),
            4,
        ),
    ),
    hint="Compute it by hand for one text of two tokens, of which one is padding. Then the loss is that of the other "
    "token.",
    strong_hint="Three steps, to be checked one by one: the losses of all tokens, [B, T]; which of them are not "
    "padding; their mean. Over how many numbers does your mean go?",
    thought="The loss of each token is -log p of the right id: token_losses. Where the target is padding, there is "
    "nothing to predict, so these losses must neither be in the sum nor be counted. What is left are all real tokens "
    "of all texts, and each counts the same: add them all up and divide by their number.",
)

FROM_LOSS = {mistake.name: mistake for mistake in CROSS_ENTROPY_MISTAKES}

TOKEN_LOSSES = ExercisePart(
    "token_losses",
    ("logits", "target"),
    ("losses",),
    token_losses,
    cases=(
        Case("two texts, two ids", (logits(2, 2, 4, seed=1), TARGETS[0])),
        Case("two texts, three ids", (logits(2, 3, 5, seed=2), TARGETS[1])),
        # much larger in one text than in another, so that one maximum for all is not enough
        Case("large logits", (logits(2, 3, 5, seed=5, above=(1000.0, 3000.0)), TARGETS[1])),
        Case("no chance for the target", (far_above(logits(2, 3, 5, seed=9), (TARGETS[1] + 1) % 5), TARGETS[1])),
        Case("no chance for any other token", (far_above(logits(2, 4, 5, seed=11), TARGETS[2]), TARGETS[2])),
    ),
    mistakes=(
        Mistake(
            "all-tokens",
            "a loss for every id of the vocabulary comes back; expected is that of the target only",
            "What shape should the result have?",
            "Of the V numbers at each position, only the one at the place of the target is wanted.",
        ),
        Mistake(
            "losses-averaged",
            "one number comes back; expected is the loss of each token",
            "What shape should the result have?",
            "Leave out the mean or the sum. It comes in cross_entropy.",
            ways=("losses-averaged", "losses-summed"),
        ),
        *(
            FROM_LOSS[name]
            for name in (
                "log-base",
                "sign",
                "no-logarithm",
                "no-softmax",
                "softmax-twice",
                "log-of-softmax",
                "no-maximum",
                "one-maximum",
            )
        ),
    ),
    properties=(
        equal(
            "equal logits",
            [(np.zeros((1, 1, 4)), np.array([[2]]))],
            lambda losses: (losses, [[math.log(4)]]),
            "With equal logits each of four tokens has the probability 1/4, and the loss is log 4 = {expected}; yours "
            "is {given}.",
        ),
        equal(
            "a number added to the logits",
            [(np.array([[[0.0, 1.0, 2.0]]]), np.array([[1]])), (np.array([[[3.0, 4.0, 5.0]]]), np.array([[1]]))],
            lambda before, after: (after, before),
            "The logits [0, 1, 2] and [3, 4, 5] have the same softmax. But the loss is {expected} for one and {given} "
            "for the other.",
        ),
        equal(
            "probabilities of all tokens",
            [(np.array([[[0.0, 1.0], [0.0, 1.0]]]), np.array([[0, 1]]))],
            lambda losses: (np.exp(-floats(losses)).sum(), 1.0),
            "The logits [0, 1] stand at two positions, and the targets are 0 and 1. The probabilities e^-loss of the "
            "two should sum to 1; they sum to {given}.",
        ),
        equal(
            "positions are independent",
            [
                (np.zeros((1, 2, 3)), np.array([[1, 2]])),
                (changed(np.zeros((1, 2, 3)), (0, 1, 0), 3.0), np.array([[1, 2]])),
            ],
            lambda before, after: (floats(after)[0, 0], floats(before)[0, 0]),
            "If only the logits at position 1 are changed, the loss at position 0 changes from {expected} to {given}.",
        ),
        equal(
            "a token without a chance",
            [(np.array([[[0.0, 1000.0]]]), np.array([[0]]))],
            lambda losses: (losses, [[1000.0]]),
            "For the logits [0, 1000] and the target 0 the loss is 1000; yours is {given}.",
        ),
        agrees(token_losses, ("losses",), "one token in the vocabulary", np.array([[[3.0]]]), np.array([[0]])),
        agrees(
            token_losses,
            ("losses",),
            "negative logits",
            logits(2, 2, 4, seed=3, above=(-9.0,)),
            np.array([[1, 0], [2, 2]]),
        ),
    ),
    hint="Take the logits [0, 0] and the target 0: p is 1/2 and the loss 0.693. Then [0, 1] and the target 1: p is "
    "0.731 and the loss 0.313.",
    strong_hint="log p of a token is its logit minus the logarithm of the sum of all powers of e. Print both terms "
    "for one position. For large logits, subtract the largest logit first, as in exercise 1.",
    thought="p is the softmax of the logits, and the loss is -log p of the target. The logarithm of a fraction is a "
    "difference: log p = logit - log(sum of all e^logit). Written so, p is never computed, so it cannot become 0. "
    "Subtract the largest logit first, so that e^ cannot overflow. At each position only the number at the place of "
    "the target is wanted.",
)


def learning_rate(step: int, d_model: int, warmup: int, wrong: Switches = NO_MISTAKES) -> float:
    """d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)"""
    only_one(wrong, {"step-plus-one", "step-minus-one", "step-warmup-exchanged"})
    if "step-warmup-exchanged" in wrong:
        step, warmup = warmup, step
    step += 1 if "step-plus-one" in wrong else -1 if "step-minus-one" in wrong else 0
    falls: float = step ** (-1.0 if "step-not-rooted" in wrong else -0.5) if step else math.inf
    climbs: float = step * warmup ** warmup_exponent(wrong)
    if "flat-after-warmup" in wrong:
        falls = warmup**-0.5
    rate = max(falls, climbs) if "max" in wrong else min(falls, climbs)
    if "no-warmup" in wrong:
        rate = falls
    if "no-decay" in wrong:
        rate = climbs
    return d_model ** width_exponent(wrong) * rate


def warmup_exponent(wrong: Switches) -> float:
    exponents = {"warmup-0.5": -0.5, "warmup-1": -1.0, "warmup-2": -2.0}
    return next((e for name, e in exponents.items() if name in wrong), -1.5)


def width_exponent(wrong: Switches) -> float:
    exponents = {"width-times": 0.5, "width-not-rooted": -1.0, "no-width": 0.0}
    return next((e for name, e in exponents.items() if name in wrong), -0.5)


LEARNING_RATE_MISTAKES = (
    Mistake(
        "max",
        "the larger of the two is taken; the paper takes the smaller",
        "Which of the two is smaller at step 1? The rate should start there.",
        "Two lines cross at step = warmup, one climbs and one falls. The rate is always the lower one.",
    ),
    Mistake(
        "width-times",
        "the rate is multiplied by sqrt(d_model); it has to be divided",
        "Should a wider model learn with larger steps, or with smaller ones?",
        "Look at the sign of the first exponent.",
    ),
    Mistake(
        "width-not-rooted",
        "the rate is divided by d_model; the paper divides by its square root",
        "What is the first exponent of equation 3?",
        "x^-0.5 is 1 / sqrt(x).",
    ),
    Mistake(
        "no-width",
        "d_model is not used",
        "Which of the arguments does your code never read?",
        "The equation begins with a power of d_model.",
    ),
    Mistake(
        "warmup-exponent",
        "the exponent of warmup is wrong",
        "At step = warmup both terms of the minimum should be equal. Are they?",
        "step · warmup^e should be step^-0.5 when step is warmup. Which e makes it so?",
        ways=("warmup-0.5", "warmup-1", "warmup-2"),
    ),
    Mistake(
        "step-not-rooted",
        "the rate falls with the step; in the paper it falls with its square root",
        "How does the rate fall after the warmup, when the step becomes four times as large?",
        "It should fall to a half. Look at the exponent of the first term in the minimum.",
    ),
    Mistake(
        "no-warmup",
        "there is no warmup: the rate falls from the first step on",
        "Is the rate at step 1 small, or the largest of all?",
        "The second term of the minimum, which climbs with the step, is missing, or is never the smaller one: look at "
        "its exponent.",
    ),
    Mistake(
        "no-decay",
        "the rate does not fall after the warmup",
        "What is the rate at a very late step?",
        "The first term of the minimum, which falls with the square root of the step, is missing, or is never the "
        "smaller one: look at its exponent.",
        ways=("no-decay", "flat-after-warmup"),
    ),
    Mistake(
        "step-plus-one",
        "the rate is that of the next step",
        "Does the first step have number 0 or 1?",
        "Steps are counted from 1 here, so nothing has to be added.",
    ),
    Mistake(
        "step-minus-one",
        "the rate is that of the step before",
        "Does the first step have number 0 or 1?",
        "Steps are counted from 1 here, so nothing has to be subtracted.",
    ),
    Mistake(
        "step-warmup-exchanged",
        "step and warmup have changed places",
        "Which of the two stands in both terms of the minimum?",
        "Compare with equation 3, term by term. Or look at the order of the arguments.",
    ),
)

LEARNING_RATE = ExercisePart(
    "learning_rate",
    ("step", "d_model", "warmup"),
    ("rate",),
    learning_rate,
    # Small models and short warmups, where rates are large: three steps in the warmup and three after it.
    cases=(
        Case("before the warmup's end", (1, 4, 4)),
        Case("after the warmup's end", (9, 4, 4)),
        Case("before the warmup's end, another width", (3, 2, 5)),
        Case("after the warmup's end, another width", (8, 2, 3)),
        Case("just before the warmup's end", (5, 3, 7)),
        Case("just after the warmup's end", (5, 2, 4)),
        Case("long after the warmup's end", (25, 3, 2)),
        Case("at the warmup's end", (4, 2, 4)),
        Case("the paper's model, at its 100th step", (100, 512, 4000)),
    ),
    mistakes=LEARNING_RATE_MISTAKES,
    properties=(
        equal(
            "the docstring's example",
            [(1, 4, 4)],
            lambda rate: (rate, 0.0625),
            "learning_rate(1, 4, 4) is 4^-0.5 · min(1, 1 · 4^-1.5) = 0.5 · 0.125 = 0.0625; yours is {given}.",
        ),
        equal(
            "twice the step, in the warmup",
            [(1, 4, 8), (2, 4, 8)],
            lambda one, two: (two, 2 * float(one)),
            "In the warmup the rate grows with the step: at step 2 it should be {expected}, twice that of step 1; it "
            "is {given}.",
        ),
        holds(
            "the end of the warmup",
            [(4, 4, 4), (5, 4, 4)],
            lambda fourth, fifth: (
                f"With a warmup of 4 steps the rate is largest at step 4. But it is {float(fourth):.4g} there and "
                f"{float(fifth):.4g} at step 5."
                if float(fifth) >= float(fourth)
                else None
            ),
        ),
        equal(
            "four times the step, after the warmup",
            [(4, 4, 4), (16, 4, 4)],
            lambda four, sixteen: (sixteen, float(four) / 2),
            "After a warmup of 4 steps the rate falls with the square root of the step: at step 16 it should be half "
            "of that at step 4, {expected}; it is {given}.",
        ),
        equal(
            "four times the width",
            [(1, 4, 4), (1, 16, 4)],
            lambda narrow, wide: (wide, float(narrow) / 2),
            "Four times the width halves the rate: it should be {expected} and is {given}.",
        ),
        agrees(learning_rate, ("rate",), "a warmup of one step, step 3", 3, 4, 1),
        agrees(learning_rate, ("rate",), "a late step, 10000", 10_000, 2, 3),
    ),
    hint="Compute learning_rate(1, 4, 4) by hand: 4^-0.5 = 0.5, 1^-0.5 = 1, 4^-1.5 = 0.125, so 0.5 · min(1, 0.125) = "
    "0.0625.",
    strong_hint="Print the two terms of the minimum for steps 1, 4 and 16 with a warmup of 4: they are 1, 0.5, 0.25 "
    "and 0.125, 0.5, 2. At step 4 they are equal.",
    thought="The minimum has two terms. step · warmup^-1.5 grows in a straight line; step^-0.5 falls. While step is "
    "smaller than warmup, the first is smaller; they meet at step = warmup, and from then on the second is smaller. "
    "So the minimum first grows and then falls. The factor before it makes the rate smaller for wider models. x^-0.5 "
    "is 1 / sqrt(x).",
)

EXERCISE = Exercise(
    5,
    "full_transformer",
    "The whole Transformer",
    parts=(
        REAL_TOKENS,
        SHIFT_RIGHT,
        PADDING_MASK,
        DECODER_MASK,
        DECODER_BLOCK,
        DECODER,
        TOKEN_LOGITS,
        TRANSFORMER,
        TOKEN_LOSSES,
        CROSS_ENTROPY,
        LEARNING_RATE,
    ),
)
