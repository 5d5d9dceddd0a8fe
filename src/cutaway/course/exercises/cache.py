"""Exercise 7 for the grader: the key-value cache of self-attention and of cross-attention, one step of a decoder."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from cutaway.course.differences import is_same
from cutaway.course.exercise import NO_MISTAKES, Case, Exercise, ExercisePart, Mistake, Property, Switches
from cutaway.course.exercises.encoder_block import (
    NO_RESIDUAL,
    NO_RESIDUAL_FEED_FORWARD,
    NORM_INSIDE,
    PRE_NORM,
    SAME_NORM,
    Weights,
    add_and_norm,
    attention_weights,
    feed_forward,
    norms_of,
    numbers,
)
from cutaway.course.exercises.full_transformer import DECODER_BLOCK_MISTAKES, attentions_of, decoder_weights
from cutaway.course.exercises.multi_head_attention import merge_heads, split_heads
from cutaway.course.exercises.positional_encoding import EMBED_MISTAKES
from cutaway.course.exercises.scaled_dot_product import MASKED_WITH, Array, attention, only_one

Cache = dict[str, Array]
FROM_3 = {mistake.name: mistake for mistake in EMBED_MISTAKES}
FROM_5 = {mistake.name: mistake for mistake in DECODER_BLOCK_MISTAKES}


def vector(array: Any) -> str:
    """Format the numbers of a small array on one line."""
    return f"[{', '.join(f'{number:.4g}' for number in np.asarray(array, np.float64).ravel())}]"


def readable(n_texts: int, n_heads: int, n: int, width: int, first: int = 0) -> Cache:
    """Return numbers that encode their place: key 213.1 is number 1 of token 3 in head 1 of text 2; values are < 0."""
    text, head, token, number = np.ogrid[1 : n_texts + 1, :n_heads, first : first + n, :width]
    k = np.asarray(100.0 * text + 10 * head + token + number / 10)
    return {"k": k, "v": -k}


def empty_cache(n_texts: int, n_heads: int, width: int) -> Cache:
    return {name: np.zeros((n_texts, n_heads, 0, width)) for name in "kv"}


# --- append ----------------------------------------------------------------------------------------------------------


def append(cache: Cache, k: Array, v: Array, wrong: Switches = NO_MISTAKES) -> Any:
    """The cache with k and v [B, H, N, E] behind the T keys and values that it has."""
    only_one(wrong, APPENDED_OTHERWISE)
    if "not-appended" in wrong:
        return cache
    old_k, old_v = cache["k"], cache["v"]
    parts: dict[str, tuple[Array, ...]] = {"k": (old_k, k), "v": (old_v, v)}
    other_values: dict[str, tuple[Array, ...]] = {
        "new-values-from-keys": (old_v, k),
        "old-values-from-keys": (old_k, v),
        "values-from-keys": (old_k, k),
        "only-keys-appended": (old_v,),
    }
    for name, pieces in other_values.items():
        if name in wrong:
            parts["v"] = pieces
    if "only-values-appended" in wrong:
        parts["k"] = (old_k,)
    if "only-new" in wrong:
        parts = {"k": (k,), "v": (v,)}
    if "keys-and-values-exchanged" in wrong:
        parts = {"k": parts["v"], "v": parts["k"]}
    if "new-exchanged" in wrong:
        parts = {"k": (old_k, v), "v": (old_v, k)}
    if "in-front" in wrong:
        parts = {name: pieces[::-1] for name, pieces in parts.items()}
    axis = next((axis for axis in (0, 1, 3) if f"append-axis-{axis}" in wrong), 2)
    joined = {name: np.concatenate(pieces, axis=axis) for name, pieces in parts.items()}
    return tuple(joined.values()) if "append-returns-tuple" in wrong else joined


APPENDED_OTHERWISE = {
    "not-appended",
    "new-values-from-keys",
    "old-values-from-keys",
    "values-from-keys",
    "only-keys-appended",
    "only-values-appended",
    "only-new",
    "keys-and-values-exchanged",
    "new-exchanged",
}

APPEND_MISTAKES = (
    Mistake(
        "in-front",
        "the new keys and values stand in front of the old ones; they should stand behind them",
        "Token 0 came first. Where should its key stand in the cache, and where does it stand in yours?",
        "The order of the two arrays in the concatenation is the order in the result.",
    ),
    Mistake(
        "append-axis",
        "the new keys are appended along the wrong axis",
        "Compare the shapes. Only T grows: [B, H, T, E] becomes [B, H, T + N, E].",
        "T is axis 2 (or -2). Without an axis, np.concatenate and torch.cat use axis 0, which is the one of the texts.",
        ways=("append-axis-0", "append-axis-1", "append-axis-3"),
    ),
    Mistake(
        "only-new",
        "the new cache has only the new keys and values; the old ones are lost",
        "How many keys does the new cache have? It should be T + N.",
        "The old keys are in the argument cache. Join them with the new ones.",
    ),
    Mistake(
        "not-appended",
        "the cache comes back as it was: the new keys and values are not in it",
        "How many keys does the new cache have? It should be T + N.",
        "A concatenation returns a new array. What does your code do with it?",
    ),
    Mistake(
        "only-one-appended",
        "only one of the two is appended: the cache has different numbers of keys and of values",
        "Compare the shapes of the two arrays in your cache.",
        "Each key needs its value. Both arrays grow by N.",
        ways=("only-keys-appended", "only-values-appended"),
    ),
    Mistake(
        "keys-as-values",
        "there are keys in the place of values",
        "In the first example the values are negative. Which of yours are not?",
        "Perhaps a line was copied, and one of its names not changed: 'v' needs cache['v'] and v.",
        ways=("new-values-from-keys", "old-values-from-keys", "values-from-keys"),
    ),
    Mistake(
        "keys-and-values-exchanged",
        "keys and values have changed places",
        "In the first example the keys are positive and the values negative. Which are under 'k' in your result?",
        "k belongs under 'k', behind cache['k']; v belongs under 'v', behind cache['v'].",
        ways=("keys-and-values-exchanged", "new-exchanged"),
    ),
    Mistake(
        "append-returns-tuple",
        "two arrays come back; expected is a dict with the entries 'k' and 'v'",
        "Which type does your function return, and which type is a cache?",
        "Put the two arrays into a new dict of the same form as the argument cache.",
    ),
)


def cache_of(result: Any) -> str | None:
    """Say what is wrong if the result is no cache."""
    if not isinstance(result, dict):
        return f"It returns a {type(result).__name__}; a cache is a dict with the entries 'k' and 'v'."
    if set(result) != {"k", "v"}:
        return f"Its cache has the entries {', '.join(map(repr, result)) or 'none'}; they should be 'k' and 'v'."
    return None


def length_of(result: Any, n_cached: int, n_new: int) -> str | None:
    """Say how many keys or values the new cache has, if it is not T + N."""
    if says := cache_of(result):
        return says
    for name, what in (("k", "keys"), ("v", "values")):
        shape = np.shape(result[name])
        if len(shape) != 4:
            return f"cache[{name!r}] has shape {list(shape)}; it should have the four axes [B, H, T + N, E]."
        if shape[2] != n_cached + n_new:
            return f"The new cache has {shape[2]} {what}, not {n_cached} + {n_new} = {n_cached + n_new}."
    return None


ONE_CACHED = Case(
    "one cached key, one new one",
    (readable(1, 2, 1, 2), *readable(1, 2, 1, 2, first=1).values()),
)


def old_keys_are_kept(result: Any) -> str | None:
    for name, what in (("k", "key"), ("v", "value")):
        old = ONE_CACHED.arguments[0][name]
        mine = np.asarray(result[name])[:, :, :1]
        if not is_same(mine, old):
            return (
                f"{what.capitalize()} 0 of head 0 was {vector(old[0, 0, 0])} in the old cache; in the new one it is "
                f"{vector(mine[0, 0, 0])}."
            )
    return None


APPEND = ExercisePart(
    "append",
    ("cache", "k", "v"),
    ("cache",),
    append,
    cases=(
        # N = T in half of the cases, so that a wrong axis gives a result
        ONE_CACHED,
        Case("an empty cache, two new keys", (empty_cache(2, 2, 2), *readable(2, 2, 2, 2).values())),
        Case("two cached keys, two new ones", (readable(2, 3, 2, 2), *readable(2, 3, 2, 2, first=2).values())),
        Case("three cached keys, one new one", (readable(2, 2, 3, 4), *readable(2, 2, 1, 4, first=3).values())),
    ),
    mistakes=APPEND_MISTAKES,
    properties=(
        Property("the new cache has T + N keys", (ONE_CACHED,), lambda result: length_of(result, 1, 1)),
        Property("the old keys are kept", (ONE_CACHED,), old_keys_are_kept),
    ),
    hint="Only axis 2 grows. Print the shapes of cache['k'], k and your result.",
    strong_hint="Both arrays are joined along axis 2, the old one first, and the result is a new dict.",
    thought="A cache holds T keys and T values of each head. N tokens arrive, each with a key and a value. "
    "A later token needs all of them in the order of the text. So the new ones stand behind the old ones, along the "
    "axis of the tokens. That is axis 2 of [B, H, T, E]. The same happens to keys and values.",
)


# --- reorder ---------------------------------------------------------------------------------------------------------


def reorder(cache: Cache, rows: list[int], wrong: Switches = NO_MISTAKES) -> Any:
    """The texts `rows` of the cache: new row i is the old row rows[i]."""
    only_one(wrong, REORDERED_OTHERWISE)
    result = {name: select_rows(array, rows, wrong) for name, array in cache.items()}
    if "only-keys-reordered" in wrong:
        result["v"] = cache["v"]
    if "only-values-reordered" in wrong:
        result["k"] = cache["k"]
    return tuple(result.values()) if "reorder-returns-tuple" in wrong else result


def select_rows(array: Array, rows: list[int], wrong: Switches) -> Array:
    axis = next((axis for axis in (1, 2, 3) if f"reorder-axis-{axis}" in wrong), 0)
    if {"inverse-zeros", "inverse-copy"} & wrong:
        result = np.zeros_like(array) if "inverse-zeros" in wrong else array.copy()
        for old, new in enumerate(rows):
            result[new] = array[old]
        return result
    if "inverse-assignment" in wrong:
        result = np.zeros_like(array)
        result[rows] = array
        return result
    if {"copy-overwritten", "zeros-overwritten", "read-after-write"} & wrong:
        result = np.zeros_like(array) if "zeros-overwritten" in wrong else array.copy()
        for new, old in enumerate(rows):
            result[new] = (result if "read-after-write" in wrong else array)[old]
        return result
    if "inverse-sorted" in wrong:
        rows = [int(row) for row in np.argsort(rows, kind="stable")]
    if "rows-once" in wrong:
        rows = sorted(set(rows))
    if "rows-once-in-order" in wrong:
        rows = list(dict.fromkeys(rows))
    if "first-rows" in wrong:
        rows = list(range(len(rows)))
    if "not-reordered" in wrong:
        return array
    return np.take(array, rows, axis=axis)


REORDERED_OTHERWISE = {
    *(f"reorder-axis-{axis}" for axis in (1, 2, 3)),
    "inverse-zeros",
    "inverse-copy",
    "inverse-assignment",
    "inverse-sorted",
    "copy-overwritten",
    "zeros-overwritten",
    "read-after-write",
    "rows-once",
    "rows-once-in-order",
    "first-rows",
    "not-reordered",
}

REORDER_MISTAKES = (
    Mistake(
        "reorder-axis",
        "another axis is reordered; the rows (texts) are axis 0",
        "Print the shape of the cache. Which of its axes are the texts?",
        "Beam search drops and repeats whole texts, with all their heads and tokens: that is axis 0 of [B, H, T, E].",
        ways=("reorder-axis-1", "reorder-axis-2", "reorder-axis-3"),
    ),
    Mistake(
        "inverse-order",
        "the order is the inverse one: old row i goes to place rows[i]; instead, new row i is the old row rows[i]",
        "For rows = [1, 2, 0], which old row should be the first one of the new cache?",
        "Read from the place rows[i] and write to the place i, not the other way round.",
        ways=("inverse-zeros", "inverse-copy", "inverse-assignment", "inverse-sorted"),
    ),
    Mistake(
        "rows-once",
        "each row is taken once at most; rows may name a row several times",
        "How many rows does your result have for rows = [2, 0, 2]? It should be three.",
        "Two hypotheses may continue the same one. Then both need a copy of its row.",
        ways=("rows-once", "rows-once-in-order"),
    ),
    Mistake(
        "as-many-rows-as-before",
        "the result has as many rows as the old cache; it should have one row for each entry of rows",
        "How many rows does your result have for rows = [3, 1]? It should be two.",
        "The array that you fill has the size of the old one. Make one with len(rows) rows.",
        ways=("copy-overwritten", "zeros-overwritten"),
    ),
    Mistake(
        "read-after-write",
        "rows are overwritten before they are read: a row that was replaced is read again later",
        "For rows = [1, 2, 0], which numbers are in row 0 when your loop reads it for the last row?",
        "Read from the old cache and write to a new array; do not read and write the same one.",
    ),
    Mistake(
        "not-reordered",
        "the rows stay in their old order",
        "What does your code do with the argument rows?",
        "rows is a list of numbers of rows. Row i of the result is the old row with the number rows[i].",
        ways=("not-reordered", "first-rows"),
    ),
    Mistake(
        "only-one-reordered",
        "only one of the two is reordered: keys and values no longer belong together",
        "Compare row 0 of your keys with row 0 of your values. Are they from the same old row?",
        "The same rows are selected from both arrays.",
        ways=("only-keys-reordered", "only-values-reordered"),
    ),
    Mistake(
        "reorder-returns-tuple",
        "two arrays come back; expected is a dict with the entries 'k' and 'v'",
        "Which type does your function return, and which type is a cache?",
        "Put the two arrays into a new dict of the same form as the argument cache.",
    ),
)

THREE_ROWS = readable(3, 1, 1, 2)
IN_ORDER = Case("rows in their old order", (THREE_ROWS, [0, 1, 2]))
REPEATED = Case("one row dropped, one repeated", (THREE_ROWS, [2, 0, 2]))


def order_is_kept(result: Any) -> str | None:
    if says := cache_of(result):
        return says
    return None if is_same(result, THREE_ROWS) else "rows = [0, 1, 2] of three rows should change nothing, but it does."


def first_row_is_old_row_2(result: Any) -> str | None:
    mine, old = np.asarray(result["k"]), THREE_ROWS["k"]
    if len(mine) != 3:
        return f"rows = [2, 0, 2] asks for 3 rows; the result has {len(mine)}."
    if not is_same(mine[0], old[2]):
        return (
            f"For rows = [2, 0, 2], the first key of row 0 is {mine[0].flat[0]:.1f}; "
            f"it should be {old[2].flat[0]:.1f}, from the old row 2."
        )
    return None


REORDER = ExercisePart(
    "reorder",
    ("cache", "rows"),
    ("cache",),
    reorder,
    cases=(
        REPEATED,
        # all axes are equally long, so that a wrong axis gives a result
        Case("three rows in another order", (readable(3, 3, 3, 3), [1, 2, 0])),
        Case("two of four rows", (readable(4, 4, 4, 4), [3, 1])),
        Case("one row, repeated for four hypotheses", (readable(1, 2, 3, 2), [0, 0, 0, 0])),
    ),
    mistakes=REORDER_MISTAKES,
    properties=(
        Property("rows in their old order change nothing", (IN_ORDER,), order_is_kept),
        Property("row i is the old row rows[i]", (REPEATED,), first_row_is_old_row_2),
    ),
    hint="For rows = [2, 0, 2] the result has three rows: the old rows 2, 0 and 2.",
    strong_hint="An array can be indexed with a list of row numbers; this selects along axis 0. Do so for both arrays.",
    thought="Beam search keeps some hypotheses and drops others; two may continue the same one. Each hypothesis has a "
    "row in the cache. Hypothesis i of the next step continues hypothesis rows[i], so its row is a copy of that one. "
    "This is a selection along axis 0. Keys and values need the same selection.",
)


# --- embed_at --------------------------------------------------------------------------------------------------------


def embed_at(ids: Array, table: Array, start: int, wrong: Switches = NO_MISTAKES) -> Array:
    """sqrt(D) · table[ids] + PE(start), PE(start + 1), ...: ids [B, N], table [V, D] -> [B, N, D]"""
    only_one(wrong, POSITIONED_OTHERWISE)
    (_, n), width = ids.shape, table.shape[1]
    if "start-added-to-ids" in wrong:
        return embed_at(ids + start, table, 0, wrong - {"start-added-to-ids"})
    first = next((first for name, first in first_positions(start, n).items() if name in wrong), start)
    positions = np.full(n, first) if "same-position" in wrong else first + np.arange(n)
    angles = positions[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    sinusoids = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, width)
    vectors = table[ids] if "not-scaled" in wrong else table[ids] * math.sqrt(width)
    if "no-positions" in wrong:
        return vectors
    return vectors + (sinusoids * math.sqrt(width) if "positions-scaled" in wrong else sinusoids)


def first_positions(start: int, n: int) -> dict[str, int]:
    """Where mistakes place the first token."""
    return {
        "start-ignored": 0,
        "one-late": start + 1,
        "one-early": start - 1,
        "ends-at-start": start - n + 1,
        "ends-before-start": start - n,
    }


POSITIONED_OTHERWISE = {*first_positions(0, 0), "start-added-to-ids", "same-position", "no-positions"}

EMBED_AT_MISTAKES = (
    Mistake(
        "start-ignored",
        "the positions count from 0; the first token stands at position start",
        "What does your code do with the argument start?",
        "The positions of the N tokens are start, start + 1, ..., start + N - 1.",
    ),
    Mistake(
        "one-late",
        "all positions are one too large",
        "At which position does your first token stand? The docstring says start.",
        "With T tokens in the cache, at the positions 0 to T - 1, the next one stands at position T = start.",
    ),
    Mistake(
        "one-early",
        "all positions are one too small",
        "At which position does your first token stand? The docstring says start.",
        "With T tokens in the cache, at the positions 0 to T - 1, the next one stands at position T = start.",
    ),
    Mistake(
        "same-position",
        "all N tokens get the position of the first one",
        "Give it a text with the same token twice. Its two vectors should differ.",
        "The second token stands one position after the first: start + 1. You need N rows of the sinusoids, not one.",
    ),
    Mistake(
        "ends-at-start",
        "start is taken for the end of the N tokens; it is the position of the first one",
        "At which position does your first token stand? The docstring says start.",
        "The positions are start, start + 1, ..., start + N - 1. The text is start + N tokens long in the end.",
        ways=("ends-at-start", "ends-before-start"),
    ),
    Mistake(
        "start-added-to-ids",
        "start is added to the ids; it should be added to the positions",
        "Which token is id 1, and which one is id 1 + start?",
        "The vector of a token in the table does not depend on where the token stands. Only its sinusoid does.",
    ),
    replace(FROM_3["not-scaled"], hint="Compare with exercise 3: what happens to a vector of the table first?"),
    replace(FROM_3["no-positions"], strong_hint="The sinusoids of the N positions are added to the vectors."),
    FROM_3["positions-scaled"],
)

TWO_NUMBERS = np.array([[1.0, 0.5], [-1.0, 2.0], [0.0, 1.5]])
WHOLE_TEXT = Case("a whole text", (np.array([[1, 0, 2]]), TWO_NUMBERS, 0))
LAST_TOKEN = Case("its last token alone, start 2", (np.array([[2]]), TWO_NUMBERS, 2))


def last_token_is_the_same(whole: Array, last: Array) -> str | None:
    whole, last = np.asarray(whole), np.asarray(last)
    if is_same(last[:, -1], whole[:, -1]):
        return None
    return (
        f"The token at position 2 becomes {vector(last[:, -1])} if it comes alone (start 2), and "
        f"{vector(whole[:, -1])} if the whole text comes (start 0). Both should be equal."
    )


def position_0_adds_0_and_1(whole: Array) -> str | None:
    mine, right = np.asarray(whole)[0, 0], TWO_NUMBERS[1] * math.sqrt(2) + np.array([0.0, 1.0])
    if is_same(mine, right):
        return None
    return (
        f"The sinusoid of position 0 is [0, 1], so the vector {vector(TWO_NUMBERS[1])} of a token becomes "
        f"sqrt(2) · {vector(TWO_NUMBERS[1])} + [0, 1] = {vector(right)} there. Yours is {vector(mine)}."
    )


EMBED_AT = ExercisePart(
    "embed_at",
    ("ids", "table", "start"),
    ("vectors",),
    embed_at,
    cases=(
        # id + start is a token of the table, too
        Case("one token, start 2", (np.array([[1]]), numbers(4, 4, seed=1), 2)),
        Case("two texts of three tokens, start 0", (np.array([[1, 0, 1], [2, 2, 0]]), numbers(3, 4, seed=2), 0)),
        Case("two texts of two tokens, start 3", (np.array([[4, 1], [0, 0]]), numbers(8, 6, seed=3), 3)),
        Case("four tokens, start 30", (np.array([[2, 2, 0, 1]]), numbers(33, 8, seed=4), 30)),
    ),
    mistakes=EMBED_AT_MISTAKES,
    properties=(
        Property("position 0 adds 0 and 1", (WHOLE_TEXT,), position_0_adds_0_and_1),
        Property("a token alone is as in the whole text", (WHOLE_TEXT, LAST_TOKEN), last_token_is_the_same),
    ),
    hint="Compare with embed: embed_at(ids, table, 0) is embed(ids, table). Only the positions change with start.",
    strong_hint="You need the rows start to start + N - 1 of the table of sinusoids, which therefore has at least "
    "start + N rows. The vectors of the tokens do not depend on start.",
    thought="While a model generates, it gets one token at a time. This token is not the first of the text: T tokens "
    "are in the cache, so it stands at position T. Its sinusoid must be the one of this position. A table with "
    "start + N rows has the rows of all N tokens at its end. Everything else is as in exercise 3.",
)


# --- cached_attention ------------------------------------------------------------------------------------------------


def self_attend(
    x: Array, cache: Cache, weights: Weights, n_heads: int, wrong: Switches = NO_MISTAKES
) -> tuple[Array, Any]:
    """Self-attention of N new tokens to T cached ones and to themselves; returns output and new cache."""
    only_one(wrong, OTHER_KEYS)
    only_one(wrong, OTHER_MASKS | {"cached-keys-only", "cached-keys-only-or-zeros"})
    only_one(wrong, OTHER_CACHES)
    q, k, v = (split_heads(x @ weights[name], n_heads) for name in ("query", "key", "value"))
    if "self-keys-values-exchanged" in wrong:
        k, v = v, k
    new: Any = append(cache, k, v, wrong)
    keys, values, mask = new["k"], new["v"], offset_mask(x.shape[1], cache["k"].shape[2], wrong)
    if {"cached-keys-only", "cached-keys-only-or-zeros"} & wrong:
        keys, values, mask = cache["k"], cache["v"], None
    if SELF_PROJECTED_AGAIN & wrong:
        keys, values = project_again(keys, values, weights, n_heads, "self", wrong)
    if {"new-keys-only", "cache-forgotten"} & wrong:
        keys, values, mask = k, v, None if mask is None else mask[:, cache["k"].shape[2] :]
    if "cached-keys-only-or-zeros" in wrong and not keys.shape[2]:
        output = np.zeros_like(x)  # an empty sum
    else:
        output = attend(q, keys, values, mask, weights, "self", wrong)
    if {"only-new-returned", "cache-forgotten"} & wrong:
        new = {"k": k, "v": v}
    if "appended-twice" in wrong:
        new = append(new, k, v, wrong)
    return x + output if "self-residual-inside" in wrong else output, cache if "old-cache-returned" in wrong else new


SELF_PROJECTED_AGAIN = {"self-projected-again", "self-keys-projected-again", "self-projected-from-keys"}
OTHER_KEYS = {
    *SELF_PROJECTED_AGAIN,
    "cached-keys-only",
    "cached-keys-only-or-zeros",
    "new-keys-only",
    "cache-forgotten",
}
OTHER_CACHES = {"only-new-returned", "cache-forgotten", "appended-twice", "old-cache-returned"}
OTHER_MASKS = {
    "mask-not-shifted",
    "future-leak",
    "not-itself",
    "no-causal-mask",
    "causal-mask-inverted",
    "self-mask-added",
}


def project_again(
    k: Array, v: Array, weights: Weights, n_heads: int, kind: str, wrong: Switches
) -> tuple[Array, Array]:
    """Multiply cached keys and values by their matrices a second time. kind: "self" or "cross"."""
    from_keys = f"{kind}-projected-from-keys" in wrong
    again = split_heads(merge_heads(k) @ weights["key"], n_heads)
    if f"{kind}-keys-projected-again" in wrong:
        return again, v
    return again, split_heads(merge_heads(k if from_keys else v) @ weights["value"], n_heads)


def attend(
    q: Array, k: Array, v: Array, mask: Array | None, weights: Weights, kind: str, wrong: Switches = NO_MISTAKES
) -> Array:
    """Concat(head_1, ..., head_h) W_O of queries, keys and values that are split. kind: "self" or "cross"."""
    switches = wrong & set(MASKED_WITH)
    for switch in ("no-scale", "mask-added"):
        if f"{kind}-{switch}" in wrong:
            switches |= {switch}
    merged = merge_heads(attention(q, k, v, mask, switches)[0])
    return merged if f"{kind}-no-output-projection" in wrong else merged @ weights["output"]


def offset_mask(n_new: int, n_cached: int, wrong: Switches = NO_MISTAKES) -> Array | None:
    """[N, T + N], True if the key is not later than the query: j ≤ T + i."""
    if "no-causal-mask" in wrong:
        return None
    last = n_cached  # the last key that query 0 sees
    if "mask-not-shifted" in wrong:
        last = 0
    if "future-leak" in wrong:
        last = n_cached + 1
    if "not-itself" in wrong:
        last = n_cached - 1
    mask = np.tri(n_new, n_cached + n_new, last, dtype=bool)
    return ~mask if "causal-mask-inverted" in wrong else mask


def cached_attention(x: Array, cache: Cache, weights: Weights, n_heads: int, wrong: Switches = NO_MISTAKES) -> Any:
    return in_another_form(*self_attend(x, cache, weights, n_heads, wrong), wrong)


def in_another_form(output: Array, cache: Any, wrong: Switches) -> Any:
    """Select the return value, which can be wrong too."""
    if "only-output" in wrong:
        return output
    return (cache, output) if "returned-in-other-order" in wrong else (output, cache)


OLD_CACHE_RETURNED = Mistake(
    "old-cache-returned",
    "the cache that comes back is the old one, without the new tokens",
    "How many keys has the cache that you return? It should be T + N.",
    "Two caches occur here, the one you are given and the longer one. The next call needs the longer one.",
)
OTHER_ORDER = Mistake(
    "returned-in-other-order",
    "output and cache come back in the other order",
    "Compare the two things that you return with those that are asked for.",
    "First the output, then the new cache.",
)
ONLY_OUTPUT = Mistake(
    "only-output",
    "only the output comes back; the new cache is asked for, too",
    "How many things should the function return?",
    "Without the new cache, the next call cannot know the keys of these tokens. Return both, with a comma between.",
)

NO_CAUSAL_MASK = Mistake(
    "no-causal-mask",
    "there is no causal mask: the first of several new tokens sees the ones after it",
    "With N = 1 all is right. What may token 0 of a prompt of three tokens see?",
    "All new tokens see all cached keys; among each other they need the triangle. The mask is [N, T + N]. If yours "
    "hides nothing, look at how far its diagonal is shifted.",
)
NEW_KEYS_ONLY = Mistake(
    "new-keys-only",
    "the new tokens see only each other, not the tokens of the cache",
    "How many keys do the scores have? It should be T + N.",
    "Attention gets the keys and values of the new, longer cache; and the mask must not hide the first T columns.",
    ways=("new-keys-only", "cache-forgotten"),
)

CACHED_ATTENTION_MISTAKES = (
    Mistake(
        "mask-not-shifted",
        "the causal mask begins at the first cached key: query i sees only the keys 0 to i, not 0 to T + i",
        "Query 0 is not the first token of the text: T tokens stand before it. How many keys may it see?",
        "The mask is [N, T + N]: the last N rows of the causal mask of all T + N tokens. Yours has the first N. The "
        "diagonal has to move to the right by T.",
    ),
    NO_CAUSAL_MASK,
    NEW_KEYS_ONLY,
    Mistake(
        "cached-keys-only",
        "the new tokens see only the old cache, not themselves",
        "How many keys do the scores have? It should be T + N. (With an empty cache your code has no keys at all.)",
        "First append the new keys and values. Then attend, to the longer cache.",
        ways=("cached-keys-only", "cached-keys-only-or-zeros"),
    ),
    Mistake(
        "future-leak",
        "every token also sees the one after it: the future leaks in by one",
        "How many keys may query 0 see? T cached ones, and how many of the new ones?",
        "The triangle is shifted by one diagonal too many: query i sees the keys 0 to T + i.",
    ),
    Mistake(
        "not-itself",
        "no token sees itself",
        "How many keys may query 0 see? T cached ones, and how many of the new ones?",
        "The triangle is shifted by one diagonal too few: query i sees the keys 0 to T + i, and key T + i is its own.",
    ),
    Mistake(
        "causal-mask-inverted",
        "the mask says the opposite: True stands where a query must not attend",
        "In this course True means: may attend. What may the last new token see? Everything.",
        "Turn the mask around.",
    ),
    Mistake(
        "causal-mask-added",
        "the mask is added to the scores as 0 and 1, which hides nothing",
        "What is the type of your mask: True and False, or numbers?",
        "If numbers are added to the scores, hidden keys need a very large negative one. scaled_dot_product_attention "
        "of PyTorch adds a mask of numbers; it hides keys only if the mask is of type bool.",
        ways=("self-mask-added",),
    ),
    Mistake(
        "self-projected-again",
        "the cached keys or values are multiplied by their matrices a second time",
        "What is in the cache: the tokens x, or their keys and values?",
        "The cached arrays are keys and values already, split into heads. Only the new x is projected.",
        ways=tuple(sorted(SELF_PROJECTED_AGAIN)),
    ),
    OLD_CACHE_RETURNED,
    Mistake(
        "only-new-returned",
        "the output is right, but the cache that comes back has only the new keys and values",
        "How many keys has the cache that you return? It should be T + N.",
        "The next token will need all earlier keys, also the ones that were in the cache before.",
    ),
    Mistake(
        "appended-twice",
        "the new keys and values are in the cache twice",
        "How many keys has the cache that you return? It should be T + N.",
        "How often does your code append? Once is enough.",
    ),
    Mistake(
        "self-keys-values-exchanged",
        "keys and values have changed places",
        "Which of the two is compared with the queries, and which is added up?",
        "Follow weights['key'] through your code, up to the entry of the cache.",
    ),
    Mistake(
        "no-output-projection",
        "the last matrix, W_O, is missing",
        "Which entry of the weights does your code never read?",
        "After the heads are merged, they are multiplied by weights['output'], as in exercise 2.",
        ways=("self-no-output-projection",),
    ),
    Mistake(
        "no-scale",
        "the scores are not divided by the square root of the head width E",
        "Compare your code with equation 1 of the paper.",
        "Something stands under QKᵀ in the equation. d_k is the last axis of the queries, after splitting.",
        ways=("self-no-scale",),
    ),
    Mistake(
        "residual-inside",
        "x is added to the result; that is not asked for here",
        "What does your last line have that multi_head_attention of exercise 2 has not?",
        "The residual connection x + Sublayer(x) belongs to decoder_block_step.",
        ways=("self-residual-inside",),
    ),
    OTHER_ORDER,
    ONLY_OUTPUT,
)


def small_attention(seed: float) -> Weights:
    """Weights with one digit, for cases that are printed."""
    return {name: np.round(matrix, 1) for name, matrix in attention_weights(2, seed).items()}


def random_cache(n_texts: int, n_heads: int, n: int, width: int, seed: float) -> Cache:
    shape = (n_texts, n_heads, n, width)
    return {"k": numbers(*shape, seed=seed, size=1.5), "v": numbers(*shape, seed=seed + 1, size=2.0)}


_WEIGHTS = small_attention(seed=3)
_TOKENS = np.array([[[1.0, 0.0], [0.5, -1.0], [-1.0, 2.0]]])
_OTHER_END = np.concatenate([_TOKENS[:, :2], [[[2.0, 1.0]]]], axis=1)
_OTHER_START = np.concatenate([[[[2.0, 1.0]]], _TOKENS[:, 1:]], axis=1)
_NO_CACHE = empty_cache(1, 1, 2)
_CACHE_OF_2 = self_attend(_TOKENS[:, :2], _NO_CACHE, _WEIGHTS, 1)[1]

PROMPT = Case("a prompt of three tokens, an empty cache", (_TOKENS, _NO_CACHE, _WEIGHTS, 1))
OTHER_START = Case("another first token", (_OTHER_START, _NO_CACHE, _WEIGHTS, 1))
OTHER_PROMPT = Case("another last token", (_OTHER_END, _NO_CACHE, _WEIGHTS, 1))
THIRD_TOKEN = Case("one new token, two in the cache", (_TOKENS[:, 2:], _CACHE_OF_2, _WEIGHTS, 1))


def pair_of(result: Any) -> str | None:
    """Say what is wrong if the result is not (output, cache)."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        return "It should return two things, the output and the new cache."
    return cache_of(result[1])


def grows(n_cached: int, n_new: int) -> Callable[[Any], str | None]:
    return lambda result: pair_of(result) or length_of(result[1], n_cached, n_new)


def cached_equals_uncached(all_at_once: Any, alone: Any) -> str | None:
    together, single = np.asarray(all_at_once[0])[:, -1], np.asarray(alone[0])[:, -1]
    if is_same(single, together):
        return None
    return (
        f"The output of the third token is {vector(single)} if it comes alone, with the two others in the cache, but "
        f"{vector(together)} if all three come at once. Both should be equal."
    )


def future_changes_nothing(one: Any, other: Any) -> str | None:
    a, b = np.asarray(one[0])[:, 0], np.asarray(other[0])[:, 0]
    if is_same(a, b):
        return None
    return (
        f"The output of the first of three tokens is {vector(a)}; if only the third one changes, it becomes "
        f"{vector(b)}. A token must not see later ones."
    )


def past_changes_the_future(one: Any, other: Any) -> str | None:
    a, b = np.asarray(one[0])[:, -1], np.asarray(other[0])[:, -1]
    if not is_same(a, b):
        return None
    return f"The output of the third token is {vector(a)}, whatever the first one is. It should see all earlier tokens."


def first_sees_itself(result: Any) -> str | None:
    own, mine = _TOKENS[:, 0] @ _WEIGHTS["value"] @ _WEIGHTS["output"], np.asarray(result[0])[:, 0]
    if is_same(mine, own):
        return None
    return (
        f"With an empty cache the first token sees only itself, so its output is x W_V W_O = {vector(own)}. "
        f"Yours is {vector(mine)}."
    )


CACHED_ATTENTION = ExercisePart(
    "cached_attention",
    ("x", "cache", "weights", "n_heads"),
    ("output", "cache"),
    cached_attention,
    cases=(
        THIRD_TOKEN,
        PROMPT,
        Case(
            "two new tokens, three in the cache, two heads",
            (numbers(2, 2, 4, seed=1), random_cache(2, 2, 3, 2, seed=2), attention_weights(4, seed=3), 2),
        ),
        Case(
            "as many new tokens as in the cache, three heads",
            (numbers(2, 3, 6, seed=4), random_cache(2, 3, 3, 2, seed=5), attention_weights(6, seed=6), 3),
        ),
        Case(
            "the first token of two texts",
            (numbers(2, 1, 4, seed=7), empty_cache(2, 2, 2), attention_weights(4, seed=8), 2),
        ),
    ),
    mistakes=CACHED_ATTENTION_MISTAKES,
    free_choices=MASKED_WITH,
    properties=(
        Property("the new cache has T + N keys", (THIRD_TOKEN,), grows(2, 1)),
        Property("the first token sees only itself", (PROMPT,), first_sees_itself),
        Property("the future does not change the past", (PROMPT, OTHER_PROMPT), future_changes_nothing),
        Property("the past changes the future", (PROMPT, OTHER_START), past_changes_the_future),
        Property("cached equals uncached", (PROMPT, THIRD_TOKEN), cached_equals_uncached),
    ),
    hint="Print the shapes: queries [B, H, N, E], keys and values [B, H, T + N, E], mask [N, T + N]. Which differs?",
    strong_hint="The order: project x three times and split; append k and v to the cache; attend with the queries of "
    "the new tokens to the keys and values of the longer cache, with the mask; merge; multiply by W_O.",
    thought="In causal attention the keys and values of earlier tokens never change, because these tokens do not see "
    "later ones. So they are computed once and stored. Only the N new tokens need queries, keys and values. Their "
    "queries meet all T + N keys. New token i stands at position T + i, so it may see the keys 0 to T + i: these are "
    "the last N rows of the causal mask of all tokens. The longer cache is returned for the next call.",
)


# --- memory_cache ----------------------------------------------------------------------------------------------------


def memory_cache(memory: Array, weights: Weights, n_heads: int, wrong: Switches = NO_MISTAKES) -> Any:
    """The keys and values of the memory, split into heads: {"k": [B, H, S, E], "v": [B, H, S, E]}"""
    only_one(wrong, OTHER_MATRICES)
    names = next((names for switch, names in MATRICES.items() if switch in wrong), ("key", "value"))
    arrays = []
    for place, name in enumerate(names):
        array = memory @ (weights[name].T if "matrices-transposed" in wrong else weights[name])
        if {"no-projections", ("no-key-projection", "no-value-projection")[place]} & wrong:
            array = memory
        if "heads-not-split" not in wrong:
            array = split_heads(array, n_heads, wrong & {"heads-not-moved", "split-by-view"})
        arrays.append(array)
    k, v = arrays
    return (k, v) if "memory-cache-returns-tuple" in wrong else {"k": k, "v": v}


MATRICES = {
    "k-v-matrices-exchanged": ("value", "key"),
    "key-by-query-matrix": ("query", "value"),
    "value-by-query-matrix": ("key", "query"),
    "both-by-key-matrix": ("key", "key"),
    "both-by-value-matrix": ("value", "value"),
    "query-and-key-matrices": ("query", "key"),
    "value-by-output-matrix": ("key", "output"),
}
OTHER_MATRICES = {*MATRICES, "no-projections", "no-key-projection", "no-value-projection"}

MEMORY_CACHE_MISTAKES = (
    Mistake(
        "k-v-matrices-exchanged",
        "the matrices of keys and values have changed places",
        "Which matrix makes what is stored under 'k'?",
        "weights['key'] is for the keys, weights['value'] for the values.",
    ),
    Mistake(
        "one-matrix-for-both",
        "keys and values are made with the same matrix",
        "Which entries of the weights does your code read? It should be two different ones.",
        "Perhaps a line was copied, and one word in it not changed.",
        ways=("both-by-key-matrix", "both-by-value-matrix"),
    ),
    Mistake(
        "matrix-of-something-else",
        "the matrix of the queries or of the output is used for the keys or values",
        "Which entries of the weights make keys and values?",
        "Queries come from the decoder, in attend_memory. The memory needs only weights['key'] and weights['value'].",
        ways=("key-by-query-matrix", "value-by-query-matrix", "query-and-key-matrices", "value-by-output-matrix"),
    ),
    Mistake(
        "not-projected",
        "the memory itself is stored as keys or values; it should be multiplied by their matrices first",
        "What turns a vector of the memory into a key?",
        "The point of this cache is that the products memory @ W_K and memory @ W_V are computed once. Compute both.",
        ways=("no-projections", "no-key-projection", "no-value-projection"),
    ),
    Mistake(
        "matrices-transposed",
        "the matrices are used transposed: x @ W.T",
        "How does multi_head_attention of exercise 2 use its matrices?",
        "nn.Linear stores its matrix transposed. Here the matrices are as in the paper: x @ W.",
    ),
    Mistake(
        "heads-not-split",
        "keys and values are not split into heads: [B, S, D] instead of [B, H, S, E]",
        "Compare the shapes of your arrays with those of a cache.",
        "split_heads brings [B, S, D] into the shape [B, H, S, E].",
    ),
    Mistake(
        "heads-not-moved",
        "the axis of the heads stands behind that of the tokens: [B, S, H, E] instead of [B, H, S, E]",
        "Compare the shapes of your arrays with those of a cache.",
        "After the reshape, two axes have to change places.",
    ),
    Mistake(
        "split-by-view",
        "the tokens are mixed up: a head has pieces of several tokens, because of a reshape without a transpose",
        "Follow one token through your code. Are its numbers still together?",
        "A reshape does not change the order of numbers in memory: first [B, S, H, E], then exchange two axes.",
    ),
    Mistake(
        "memory-cache-returns-tuple",
        "two arrays come back; expected is a dict with the entries 'k' and 'v'",
        "Which type does your function return, and which type is a cache?",
        "Put the two arrays into a dict.",
    ),
)

_MEMORY = np.array([[[1.0, 2.0], [-1.0, 0.5]]])
TWO_SOURCE_TOKENS = Case("two source tokens", (_MEMORY, _WEIGHTS, 1))
ONE_SOURCE_TOKEN = Case("the first of them alone", (_MEMORY[:, :1], _WEIGHTS, 1))


def memory_shape(result: Any) -> str | None:
    if says := cache_of(result):
        return says
    for name in ("k", "v"):
        shape = list(np.shape(result[name]))
        if shape != [1, 1, 2, 2]:
            return (
                f"cache[{name!r}] has shape {shape}; for 1 text, 1 head, 2 tokens and E = 2 it should be [1, 1, 2, 2]."
            )
    return None


def tokens_are_independent(both: Any, alone: Any) -> str | None:
    for name, what in (("k", "key"), ("v", "value")):
        one, other = np.asarray(both[name])[:, :, 0], np.asarray(alone[name])[:, :, 0]
        if not is_same(one, other):
            return (
                f"The {what} of the first source token is {vector(other)} if it is alone, and {vector(one)} if another "
                "token follows. Each token has its own key and value."
            )
    return None


def projected_once(both: Any) -> str | None:
    for name, what, matrix in (("k", "key", "key"), ("v", "value", "value")):
        mine, right = np.asarray(both[name])[:, 0, 0], _MEMORY[:, 0] @ _WEIGHTS[matrix]
        if not is_same(mine, right):
            return (
                f"With one head, the {what} of the source token {vector(_MEMORY[:, 0])} is its product with "
                f"weights[{matrix!r}], {vector(right)}. Yours is {vector(mine)}."
            )
    return None


MEMORY_CACHE = ExercisePart(
    "memory_cache",
    ("memory", "weights", "n_heads"),
    ("cache",),
    memory_cache,
    cases=(
        TWO_SOURCE_TOKENS,
        Case("two texts of three tokens, two heads", (numbers(2, 3, 4, seed=2), attention_weights(4, seed=3), 2)),
        # as many tokens as heads: [B, S, H, E] has the right shape
        Case("as many tokens as heads", (numbers(2, 3, 6, seed=4), attention_weights(6, seed=5), 3)),
    ),
    mistakes=MEMORY_CACHE_MISTAKES,
    properties=(
        Property("the shape is [B, H, S, E]", (TWO_SOURCE_TOKENS,), memory_shape),
        Property("keys and values are products with the memory", (TWO_SOURCE_TOKENS,), projected_once),
        Property("tokens are independent", (TWO_SOURCE_TOKENS, ONE_SOURCE_TOKEN), tokens_are_independent),
    ),
    hint="What does multi_head_attention do with memory before attention? That part, and only that, belongs here.",
    strong_hint="Multiply the memory by W_K and by W_V, and split both products into heads.",
    thought="In cross-attention, keys and values come from the memory. The encoder has run once, and the memory does "
    "not change while the text is generated. So its keys and values are the same at each step. Compute them once, in "
    "the form in which attention needs them: projected and split into heads.",
)


# --- attend_memory ---------------------------------------------------------------------------------------------------


def attend_memory(
    x: Array,
    cache: Cache,
    weights: Weights,
    n_heads: int,
    mask: Array | None = None,
    wrong: Switches = NO_MISTAKES,
) -> Any:
    output = cross_attend(x, cache, weights, n_heads, mask, wrong)
    return (output, cache) if "cross-two-returned" in wrong else output


def cross_attend(
    x: Array, cache: Cache, weights: Weights, n_heads: int, mask: Array | None, wrong: Switches = NO_MISTAKES
) -> Array:
    """Cross-attention of x [B, N, D] to cached keys and values [B, H, S, E]."""
    only_one(wrong, OTHER_MEMORY_MASKS | APPENDED_TO_MEMORY)
    only_one(wrong, OTHER_MEMORY_KEYS | APPENDED_TO_MEMORY)
    k, v, n = cache["k"], cache["v"], x.shape[1]
    if APPENDED_TO_MEMORY & wrong:
        own = self_attend(x, cache, weights, n_heads)[1]
        mask = offset_mask(n, k.shape[2]) if "memory-grows-causal" in wrong else None
        k, v = own["k"], own["v"]
    if CROSS_PROJECTED_AGAIN & wrong:
        k, v = project_again(k, v, weights, n_heads, "cross", wrong)
    if "cross-keys-values-exchanged" in wrong:
        k, v = v, k
    if "cross-keys-as-values" in wrong:
        v = k
    if "cross-mask-ignored" in wrong:
        mask = None
    if mask is not None and "cross-mask-inverted" in wrong:
        mask = ~mask
    if {"memory-causal", "memory-causal-from-the-end"} & wrong:
        diagonal = k.shape[2] - n if "memory-causal-from-the-end" in wrong else 0
        causal = np.tri(n, k.shape[2], diagonal, dtype=bool)
        mask = causal if mask is None else mask & causal
    if "memory-causal-only" in wrong:
        mask = np.tri(n, k.shape[2], dtype=bool)
    asks = x if "cross-no-query-projection" in wrong else x @ weights["query"]
    output = attend(split_heads(asks, n_heads), k, v, mask, weights, "cross", wrong)
    return x + output if "cross-residual-inside" in wrong else output


CROSS_PROJECTED_AGAIN = {"cross-projected-again", "cross-keys-projected-again", "cross-projected-from-keys"}
OTHER_MEMORY_MASKS = {
    "cross-mask-added",
    "cross-mask-ignored",
    "cross-mask-inverted",
    "memory-causal",
    "memory-causal-from-the-end",
    "memory-causal-only",
}
OTHER_MEMORY_KEYS = {
    *CROSS_PROJECTED_AGAIN,
    "cross-keys-values-exchanged",
    "cross-keys-as-values",
}
APPENDED_TO_MEMORY = {"memory-grows", "memory-grows-causal"}

MEMORY_GROWS = Mistake(
    "memory-grows",
    "keys and values of x are appended to those of the memory; cross-attention has only the ones of the memory",
    "How many keys do the scores have? It should be S, however many tokens x has.",
    "cached_attention appends; cross-attention does not. It needs only queries from x.",
    ways=("memory-grows", "memory-grows-causal"),
)

ATTEND_MEMORY_MISTAKES = (
    Mistake(
        "cross-mask-ignored",
        "the mask is not used",
        "What does your code do with the argument mask?",
        "Give the mask to attention. It may be None.",
    ),
    Mistake(
        "cross-mask-inverted",
        "the mask is used the wrong way round: padding is seen and tokens are hidden",
        "True means: may attend. Is the mask changed on its way to attention?",
        "Give the mask to attention just as it is.",
    ),
    Mistake(
        "cross-mask-added",
        "the mask is added to the scores as 0 and 1, which hides nothing",
        "What does a score get that is hidden? And one that is not?",
        "If numbers are added to the scores, hidden keys need a very large negative one. scaled_dot_product_attention "
        "of PyTorch adds a mask of numbers; it hides keys only if the mask is of type bool.",
    ),
    Mistake(
        "memory-causal",
        "a causal mask hides a part of the memory; every target token may see the whole source",
        "Which source tokens may the first target token see?",
        "The memory is complete before decoding begins, so it has no future. Only padding is hidden in it.",
        ways=("memory-causal", "memory-causal-from-the-end", "memory-causal-only"),
    ),
    MEMORY_GROWS,
    Mistake(
        "cross-projected-again",
        "the cached keys or values are multiplied by their matrices a second time",
        "What does memory_cache store: the memory, or its keys and values?",
        "The cached arrays are keys and values already, split into heads. Use them as they are.",
        ways=tuple(sorted(CROSS_PROJECTED_AGAIN)),
    ),
    Mistake(
        "cross-keys-values-exchanged",
        "keys and values have changed places",
        "Which of the two is compared with the queries, and which is added up?",
        "Look at the order of the arguments of attention: queries, keys, values.",
    ),
    Mistake(
        "cross-keys-as-values",
        "the keys are added up; it should be the values",
        "Which entry of the cache does your code never read?",
        "The third argument of attention is the values.",
    ),
    Mistake(
        "cross-no-query-projection",
        "the queries are not multiplied by their matrix",
        "Which entry of the weights does your code never read?",
        "Keys and values are projected already, but x is not: its queries are x W_Q.",
    ),
    Mistake(
        "cross-no-output-projection",
        "the last matrix, W_O, is missing",
        "Which entry of the weights does your code never read?",
        "After the heads are merged, they are multiplied by weights['output'], as in exercise 2.",
    ),
    Mistake(
        "cross-no-scale",
        "the scores are not divided by the square root of the head width E",
        "Compare your code with equation 1 of the paper.",
        "Something stands under QKᵀ in the equation. d_k is the last axis of the queries, after splitting.",
    ),
    Mistake(
        "cross-residual-inside",
        "x is added to the result; that is not asked for here",
        "What does your last line have that multi_head_attention of exercise 2 has not?",
        "The residual connection x + Sublayer(x) belongs to decoder_block_step.",
    ),
    Mistake(
        "cross-two-returned",
        "two things come back, the output and the cache; expected is the output alone",
        "How many things should the function return?",
        "The cache of the memory never changes, so there is no new one to return.",
    ),
)

_MEMORY_KEYS = memory_cache(_MEMORY, _WEIGHTS, 1)
_REVERSED_KEYS = {name: array[:, :, ::-1].copy() for name, array in _MEMORY_KEYS.items()}
ONE_TARGET_TOKEN = Case("one target token, two source tokens", (_TOKENS[:, 1:2], _MEMORY_KEYS, _WEIGHTS, 1, None))
SOURCE_REVERSED = Case("the source tokens reversed", (_TOKENS[:, 1:2], _REVERSED_KEYS, _WEIGHTS, 1, None))
TWO_TARGET_TOKENS = Case("two target tokens", (_TOKENS[:, :2], _MEMORY_KEYS, _WEIGHTS, 1, None))
HIDDEN_SOURCE = Case(
    "the second source token hidden", (_TOKENS[:, 1:2], _MEMORY_KEYS, _WEIGHTS, 1, np.array([[True, False]]))
)


def order_of_keys_is_irrelevant(one: Any, other: Any) -> str | None:
    if is_same(other, np.asarray(one)):
        return None
    return (
        f"The output is {vector(one)}; if keys and values are both reversed, it is {vector(other)}. The order of "
        "cached keys should not matter."
    )


def targets_are_independent(both: Any, alone: Any) -> str | None:
    one, other = np.asarray(both)[:, 1], np.asarray(alone)[:, 0]
    if is_same(one, other):
        return None
    return (
        f"The output of a target token is {vector(other)} if it is alone, and {vector(one)} if another stands before "
        "it. Target tokens do not see each other here."
    )


def one_key_is_its_value(result: Any) -> str | None:
    own, mine = _MEMORY[:, :1] @ _WEIGHTS["value"] @ _WEIGHTS["output"], np.asarray(result)
    if is_same(mine, own):
        return None
    return (
        "If only the first source token may be seen, its weight is 1, and the output is its value times W_O, "
        f"{vector(own)}. Yours is {vector(mine)}."
    )


# In each text some keys are real and some are padding.
PADDING_3 = np.array([[True, True, False], [True, False, False]])[:, None, None, :]
PADDING_4 = np.array([[True, True, True, False], [True, True, False, False]])[:, None, None, :]
SOME_HIDDEN = np.array([[True, False, True, False], [True, True, False, False], [False, True, True, False]])

ATTEND_MEMORY = ExercisePart(
    "attend_memory",
    ("x", "cache", "weights", "n_heads", "mask"),
    ("output",),
    attend_memory,
    cases=(
        ONE_TARGET_TOKEN,
        Case(
            "two target tokens, four source tokens, two heads",
            (numbers(2, 2, 4, seed=1), random_cache(2, 2, 4, 2, seed=2), attention_weights(4, seed=3), 2, None),
        ),
        Case(
            "as many target tokens as source tokens, three heads",
            (numbers(2, 3, 6, seed=4), random_cache(2, 3, 3, 2, seed=5), attention_weights(6, seed=6), 3, None),
        ),
        Case(
            "one target token, with padding in the source",
            (numbers(2, 1, 4, seed=7), random_cache(2, 2, 4, 2, seed=8), attention_weights(4, seed=9), 2, PADDING_4),
        ),
        Case(
            "three target tokens, with a mask [N, S]",
            (
                numbers(2, 3, 4, seed=10),
                random_cache(2, 2, 4, 2, seed=11),
                attention_weights(4, seed=12),
                2,
                SOME_HIDDEN,
            ),
        ),
    ),
    mistakes=ATTEND_MEMORY_MISTAKES,
    free_choices=MASKED_WITH,
    properties=(
        Property("one visible key gives its value", (HIDDEN_SOURCE,), one_key_is_its_value),
        Property(
            "the order of the keys is irrelevant", (ONE_TARGET_TOKEN, SOURCE_REVERSED), order_of_keys_is_irrelevant
        ),
        Property("target tokens are independent", (TWO_TARGET_TOKENS, ONE_TARGET_TOKEN), targets_are_independent),
    ),
    hint="Print the shapes: queries [B, H, N, E], keys and values [B, H, S, E]. Which of the four matrices are needed?",
    strong_hint="The order: multiply x by W_Q and split; attend to cache['k'] and cache['v'] with the mask; merge; "
    "multiply by W_O. W_K and W_V have done their work in memory_cache.",
    thought="This is multi_head_attention without the part that memory_cache has done. The queries come from x. Keys "
    "and values are in the cache already. The mask hides padding of the source and nothing else, because the source "
    "is complete. Nothing is appended, so there is no new cache to return.",
)


# --- decoder_block_step ----------------------------------------------------------------------------------------------


def decoder_block_step(
    x: Array,
    cache: Cache,
    memory_keys: Cache,
    weights: Weights,
    n_heads: int,
    memory_mask: Array | None = None,
    wrong: Switches = NO_MISTAKES,
) -> Any:
    """Cached self-attention, cross-attention, feed-forward; each as LayerNorm(x + Sublayer(x))."""
    only_one(wrong, {*CROSS_TO_OWN_CACHE, "caches-exchanged", "memory-keys-returned", "old-cache-returned"})
    for_self, for_cross = attentions_of(weights, wrong)
    grown = cache, memory_keys = (memory_keys, cache) if "caches-exchanged" in wrong else (cache, memory_keys)
    new: Any = cache

    def attend_to_text(x: Array) -> Array:
        nonlocal new
        output, new = self_attend(x, grown[0], for_self, n_heads, wrong)
        return output

    def attend_to_memory(x: Array) -> Array:
        keys = new if "cross-to-new-cache" in wrong else cache if "cross-to-old-cache" in wrong else memory_keys
        mask = None if "memory-mask-ignored" in wrong else memory_mask
        return cross_attend(x, keys, for_cross, n_heads, mask, wrong)

    def apply_feed_forward(x: Array) -> Array:
        return feed_forward(x, weights["feed_forward"], wrong)

    norm_1, norm_2, norm_3 = norms_of(weights, ("norm_1", "norm_2", "norm_3"), wrong)
    if "cross-first" in wrong:
        x = add_and_norm(x, attend_to_memory, norm_1, wrong)
        x = add_and_norm(x, attend_to_text, norm_2, wrong)
    elif "cross-first-own-norms" in wrong:
        x = add_and_norm(x, attend_to_memory, norm_2, wrong)
        x = add_and_norm(x, attend_to_text, norm_1, wrong)
    else:
        x = add_and_norm(x, attend_to_text, norm_1, wrong, residual="no-residual-self" not in wrong)
        x = add_and_norm(x, attend_to_memory, norm_2, wrong, residual="no-residual-cross" not in wrong)
    x = add_and_norm(x, apply_feed_forward, norm_3, wrong, residual="no-residual-feed-forward" not in wrong)
    return in_another_form(x, memory_keys if "memory-keys-returned" in wrong else new, wrong)


CROSS_TO_OWN_CACHE = {"cross-to-new-cache", "cross-to-old-cache"}

DECODER_BLOCK_STEP_MISTAKES = (
    OLD_CACHE_RETURNED,
    Mistake(
        "memory-keys-returned",
        "what comes back as the new cache is memory_keys",
        "Which of the two caches grows with each token?",
        "memory_keys never change. Return the new cache of the self-attention.",
    ),
    Mistake(
        "cross-to-own-cache",
        "the cross-attention uses the cache of the self-attention; it should use memory_keys",
        "What does your code do with the argument memory_keys?",
        "There are two caches: the one of the text so far, for the self-attention, and the one of the memory.",
        ways=("cross-to-new-cache", "cross-to-old-cache"),
    ),
    Mistake(
        "caches-exchanged",
        "the two caches have changed places",
        "Which cache belongs to which attention?",
        "cache has the keys of the text so far, for the self-attention; memory_keys those of the memory.",
    ),
    replace(
        MEMORY_GROWS,
        message="the cross-attention appends keys and values of x to those of the memory",
        hint="How many keys does your cross-attention have? It should be S, however many tokens x has.",
        strong_hint="cached_attention is for the self-attention; the memory has attend_memory.",
    ),
    NO_CAUSAL_MASK,
    NEW_KEYS_ONLY,
    FROM_5["memory-mask-ignored"],
    FROM_5["cross-first"],
    FROM_5["same-attention"],
    FROM_5["attentions-exchanged"],
    FROM_5["no-residual-self"],
    FROM_5["no-residual-cross"],
    replace(NO_RESIDUAL_FEED_FORWARD, hint=FROM_5["no-residual-cross"].hint),
    NO_RESIDUAL,
    PRE_NORM,
    NORM_INSIDE,
    FROM_5["one-norm"],
    SAME_NORM,
    OTHER_ORDER,
    ONLY_OUTPUT,
)


def plain_norms(weights: Weights) -> Weights:
    """The same weights with a last norm without gain and bias."""
    width = len(weights["norm_3"]["gain"])
    return weights | {"norm_3": {"gain": np.ones(width), "bias": np.zeros(width)}}


_LAYER = plain_norms(decoder_weights(4, 3, seed=1))
_TEXT = numbers(1, 3, 4, seed=1)
_OTHER_TEXT = np.concatenate([_TEXT[:, :2], numbers(1, 1, 4, seed=2)], axis=1)
_SOURCE_KEYS = memory_cache(numbers(1, 2, 4, seed=3), _LAYER["cross_attention"], 2)
_TEXT_CACHE = self_attend(_TEXT[:, :2], empty_cache(1, 2, 2), _LAYER["self_attention"], 2)[1]

STEP_PROMPT = Case("three tokens at once", (_TEXT, empty_cache(1, 2, 2), _SOURCE_KEYS, _LAYER, 2, None))
STEP_OTHER_PROMPT = Case("another last token", (_OTHER_TEXT, empty_cache(1, 2, 2), _SOURCE_KEYS, _LAYER, 2, None))
STEP_THIRD = Case(
    "one new token, two in the cache, two source tokens", (_TEXT[:, 2:], _TEXT_CACHE, _SOURCE_KEYS, _LAYER, 2, None)
)


def output_is_normed(result: Any) -> str | None:
    vector = np.asarray(result[0])[0, 0]
    mean, variance = float(vector.mean()), float(vector.var())
    if abs(mean) < 1e-2 and abs(variance - 1) < 1e-2:
        return None
    return (
        f"The last step is a LayerNorm (here with gain 1 and bias 0), so an output vector has mean 0 and variance 1. "
        f"Yours has mean {mean:.2f} and variance {variance:.2f}."
    )


def step_case(description: str, n: int, n_cached: int, n_source: int, heads: int, seed: float, mask: Any) -> Case:
    width = 2 * heads
    x, weights = numbers(2, n, width, seed=seed), decoder_weights(width, 3, seed=seed)
    cache = random_cache(2, heads, n_cached, 2, seed=seed + 1) if n_cached else empty_cache(2, heads, 2)
    memory_keys = random_cache(2, heads, n_source, 2, seed=seed + 2)
    return Case(description, (x, cache, memory_keys, weights, heads, mask))


DECODER_BLOCK_STEP = ExercisePart(
    "decoder_block_step",
    ("x", "cache", "memory_keys", "weights", "n_heads", "memory_mask"),
    ("output", "cache"),
    decoder_block_step,
    cases=(
        STEP_THIRD,
        step_case("a prompt of three tokens, with padding in the source", 3, 0, 3, 2, seed=3, mask=PADDING_3),
        # equally long caches, so that exchanged ones run and give wrong numbers
        step_case("one new token, three in each cache", 1, 3, 3, 2, seed=5, mask=PADDING_3),
        step_case("two new tokens, two in the cache, four source tokens", 2, 2, 4, 3, seed=7, mask=PADDING_4),
        step_case("two new tokens, two in each cache, without a mask", 2, 2, 2, 2, seed=9, mask=None),
    ),
    mistakes=DECODER_BLOCK_STEP_MISTAKES,
    free_choices=MASKED_WITH,
    properties=(
        Property("the new cache has T + N keys", (STEP_THIRD,), grows(2, 1)),
        Property("the output is normed", (STEP_THIRD,), output_is_normed),
        Property("the future does not change the past", (STEP_PROMPT, STEP_OTHER_PROMPT), future_changes_nothing),
        Property("cached equals uncached", (STEP_PROMPT, STEP_THIRD), cached_equals_uncached),
    ),
    hint="Take decoder_block of exercise 5 and replace its two attentions by the cached ones.",
    strong_hint="Three sub-layers, each as LayerNorm(x + Sublayer(x)): cached_attention with cache, attend_memory with "
    "memory_keys, feed_forward. Use the same eps, 1e-5. Only the first sub-layer changes a cache.",
    thought="A decoder layer has three sub-layers. Norms and the feed-forward network work on each token alone, so "
    "they need no cache. The self-attention needs the keys of earlier tokens: that is cached_attention, and its new "
    "cache is the one to return. The cross-attention needs the keys of the memory, which do not change: that is "
    "attend_memory. Residual connections and norms are as in exercise 5.",
)

EXERCISE = Exercise(
    7,
    "cache",
    "The key-value cache",
    parts=(APPEND, REORDER, EMBED_AT, CACHED_ATTENTION, MEMORY_CACHE, ATTEND_MEMORY, DECODER_BLOCK_STEP),
)
