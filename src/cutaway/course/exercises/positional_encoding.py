"""Exercise 3 for the grader: angles, rotations, sinusoids, embeddings, the shift by k positions, RoPE."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.course.exercise import NO_MISTAKES, Case, Exercise, ExercisePart, Mistake, Switches
from cutaway.course.exercises.properties import agrees, differs, equal, floats, holds
from cutaway.course.exercises.scaled_dot_product import numbers, only_one

Array = NDArray[Any]


def speeds(width: int, wrong: Switches = NO_MISTAKES) -> Array:
    """Frequencies in radians per position: 1 / 10000^(2i/width), for i = 0 ... width/2 - 1. [width/2]"""
    only_one(wrong, ONE_SPEED)
    only_one(wrong, ONE_UNIT)
    pair = np.arange(width // 2)
    exponent: Array = 2 * pair / width
    if "exponent-half" in wrong:
        exponent = pair / width
    if "exponent-twice" in wrong:
        exponent = 4 * pair / width
    if "exponent-to-1" in wrong:
        exponent = pair / max(width // 2 - 1, 1)
    if {"exponent-not-divided", "exponent-not-divided-pair"} & wrong:
        exponent = (1.0 if "exponent-not-divided-pair" in wrong else 2.0) * pair
    if "exponent-sign" in wrong:
        exponent = -exponent
    speed = np.ones(width // 2) if "frequency-forgotten" in wrong else base(wrong) ** -exponent
    if "speeds-reversed" in wrong:
        speed = speed[::-1]
    return speed * (math.pi / 180 if "degrees" in wrong else 2 * math.pi if "full-turns" in wrong else 1.0)


def base(wrong: Switches) -> float:
    return 1e3 if "base-1000" in wrong else 1e5 if "base-100000" in wrong else 1e4


def speeds_of_pair(width: int, wrong: Switches = NO_MISTAKES) -> tuple[Array, Array]:
    """Return the frequencies for the first and the second number of each pair: equal, unless something is wrong."""
    if {"exponent-column", "exponent-column-twice"} & wrong:
        only_one(wrong, ONE_SPEED)
        twice = 2 if "exponent-column-twice" in wrong else 1
        column = np.arange(width)
        speed = base(wrong) ** (-twice * column / width)
        return speed[0::2], speed[1::2]
    return speeds(width, wrong), speeds(width, wrong)


def angles(position: int, width: int, wrong: Switches = NO_MISTAKES) -> Array:
    """The angle of each pair: position / 10000^(2i/width), for i = 0 ... width/2 - 1. [width/2]"""
    result = (1 if "position-ignored" in wrong else position) * speeds(width, wrong)
    if "sines-returned" in wrong:
        return np.sin(result)
    if "angles-repeated" in wrong:
        return np.repeat(result, 2)
    return np.tile(result, 2) if "angles-tiled" in wrong else result


def turn(a: Array, b: Array, angle: Array, wrong: Switches = NO_MISTAKES) -> tuple[Array, Array]:
    """(a cos(angle) - b sin(angle), a sin(angle) + b cos(angle))"""
    if "turned-back" in wrong:
        angle = -angle
    sin, cos = np.sin(angle), np.cos(angle)
    if "turn-sin-cos-swapped" in wrong:
        sin, cos = cos, sin
    turned_a = a * cos + b * sin if "no-minus" in wrong else a * cos - b * sin
    turned_b = (turned_a if "turned-in-place" in wrong else a) * sin + b * cos
    if "two-minuses" in wrong:
        turned_b = b * cos - a * sin
    if "second-not-turned" in wrong:
        turned_b = b
    if "first-not-turned" in wrong:
        turned_a = a
    return turned_a, turned_b


def sinusoidal(n_positions: int, d_model: int, wrong: Switches = NO_MISTAKES) -> Array:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d)). [n_positions, d_model]"""
    position = np.arange(n_positions) + (1 if "positions-from-1" in wrong else 0)
    for_sin, for_cos = (np.outer(position, speed) for speed in speeds_of_pair(d_model, wrong))
    sines, cosines = np.sin(for_sin), np.cos(for_cos)
    if "sines-only" in wrong:
        cosines = np.sin(for_cos)
    if "cosines-missing" in wrong:
        cosines = np.zeros_like(cosines)
    if "sin-cos-swapped" in wrong:
        sines, cosines = cosines, sines
    if "halves" in wrong:
        table = np.concatenate([sines, cosines], axis=1)
    else:
        table = np.stack([sines, cosines], axis=-1).reshape(n_positions, d_model)
    return table.T if "table-transposed" in wrong else table


def embed(ids: Array, table: Array, wrong: Switches = NO_MISTAKES) -> Array:
    """sqrt(D) · table[ids] + PE: ids [B, T], table [V, D] -> [B, T, D]"""
    (n_texts, n_words), (n_tokens, width) = ids.shape, table.shape
    vectors = table[ids] * embedding_scale(n_tokens, width, n_words, wrong)
    if "no-positions" in wrong:
        return vectors
    if "positions-along-batch" in wrong:
        positions = sinusoidal(n_texts, width, wrong)[:, None]
    elif "positions-by-id" in wrong:
        positions = sinusoidal(n_tokens, width, wrong)[ids]
    else:
        positions = sinusoidal(n_words, width, wrong)
    if {"positions-scaled", "scale-at-positions"} & wrong:
        positions = positions * math.sqrt(width)
    if "positions-concatenated" in wrong:
        return np.concatenate([vectors, np.broadcast_to(positions, vectors.shape)], axis=-1)
    return vectors * positions if "positions-multiplied" in wrong else vectors + positions


def embedding_scale(n_tokens: int, width: int, n_words: int, wrong: Switches) -> float:
    only_one(wrong, {"positions-scaled", "scale-at-positions"})
    if {"not-scaled", "scale-at-positions"} & wrong:
        return 1.0
    if "scaled-by-width" in wrong:
        return float(width)
    if "scaled-down" in wrong:
        return 1 / math.sqrt(width)
    if "scaled-by-vocabulary" in wrong:
        return math.sqrt(n_tokens)
    if "scaled-by-length" in wrong:
        return math.sqrt(n_words)
    return math.sqrt(width)


def shift_matrix(k: int, d_model: int, wrong: Switches = NO_MISTAKES) -> Array:
    """M [D, D] with PE(pos + k) = M @ PE(pos) for every pos: block-diagonal, a rotation for each pair."""
    steps = 1 if "k-ignored" in wrong else abs(k) if "k-sign-ignored" in wrong else k
    if {"turned-back", "sin-cos-swapped"} & wrong:  # with (cos, sin) for (sin, cos), it is a turn the other way
        steps = -steps
    turned_by = [steps * speed for speed in speeds_of_pair(d_model, wrong)]
    sin, cos = np.sin(turned_by), np.cos(turned_by)
    if "turn-sin-cos-swapped" in wrong:
        sin, cos = cos, sin
    first, second = np.arange(0, d_model, 2), np.arange(1, d_model, 2)
    if "halves" in wrong:
        first, second = np.arange(d_model // 2), np.arange(d_model // 2) + d_model // 2
    matrix = np.zeros((d_model, d_model))
    matrix[first, first], matrix[first, second] = cos[0], -sin[0] if "two-minuses" in wrong else sin[0]
    matrix[second, first], matrix[second, second] = sin[1] if "no-minus" in wrong else -sin[1], cos[1]
    return matrix


def rotate(x: Array, positions: Array, wrong: Switches = NO_MISTAKES) -> Array:
    """RoPE: rotate each pair (x_2i, x_2i+1) of the word at pos by the angle pos · 10000^(-2i/E). x [..., T, E]"""
    if "positions-ignored" in wrong:
        positions = np.arange(len(positions))
    if "turned-back" in wrong:
        positions = -positions
    turned_by = [np.outer(positions, speed) for speed in speeds_of_pair(x.shape[-1], wrong)]
    sin, cos = np.sin(turned_by), np.cos(turned_by)
    if "turn-sin-cos-swapped" in wrong:
        sin, cos = cos, sin
    if {"halves-by-neighbours", "neighbours-by-halves"} & wrong:
        return rotate_mixed(x, sin[0], cos[0], wrong)
    a, b = np.split(x, 2, axis=-1) if {"halves", "read-as-halves"} & wrong else (x[..., 0::2], x[..., 1::2])
    turned_a = a * cos[0] + b * sin[0] if "no-minus" in wrong else a * cos[0] - b * sin[0]
    turned_b = (turned_a if "turned-in-place" in wrong else a) * sin[1] + b * cos[1]
    if "two-minuses" in wrong:
        turned_b = b * cos[1] - a * sin[1]
    if "second-not-turned" in wrong:
        turned_b = b
    if "first-not-turned" in wrong:
        turned_a = a
    if {"halves", "written-as-halves"} & wrong:
        return np.concatenate([turned_a, turned_b], axis=-1)
    return np.stack([turned_a, turned_b], axis=-1).reshape(x.shape)


def rotate_mixed(x: Array, sin: Array, cos: Array, wrong: Switches) -> Array:
    """Rotate the pairs of one convention by the angles of the other."""
    if "halves-by-neighbours" in wrong:
        a, b = np.split(x, 2, axis=-1)
        partner = np.concatenate([-b, a], axis=-1)
        return x * np.repeat(cos, 2, axis=-1) + partner * np.repeat(sin, 2, axis=-1)
    partner = np.stack([-x[..., 1::2], x[..., 0::2]], axis=-1).reshape(x.shape)
    return x * np.concatenate([cos, cos], axis=-1) + partner * np.concatenate([sin, sin], axis=-1)


EXPONENT_HALF = Mistake(
    "exponent-half",
    "the speeds fall too little from pair to pair: by 10000^(i/d) instead of 10000^(2i/d) (or by a base of 100, which "
    "is the same)",
    "What does your i count, pairs or columns? And is the base 10000?",
    "If your i counts pairs (0, 1, 2, ...), a factor of 2 is missing in the exponent.",
)
EXPONENT_TWICE = Mistake(
    "exponent-twice",
    "the speeds fall too much from pair to pair: by 10000^(4i/d) instead of 10000^(2i/d)",
    "If you count 0, 2, 4, ..., then that is 2i already.",
    "There is a factor of 2 too many in the exponent.",
)
EXPONENT_TO_1 = Mistake(
    "exponent-to-1",
    "the speeds run down to exactly 1/10000, by 10000^(i/(d/2 - 1)); in the paper the exponent is 2i/d",
    "What is the exponent of the last pair? In the paper it stays a little below 1.",
    "The first published code did it like this (tensor2tensor), and so do libraries that follow it. Divide by d/2, not "
    "by d/2 - 1.",
)
EXPONENT_COLUMN = Mistake(
    "exponent-column",
    "the two numbers of a pair have different speeds: the exponent uses the column, not the pair",
    "Columns 2i and 2i+1 share their speed. Which exponent do columns 2 and 3 have in your code?",
    "Both columns of a pair use the even number 2i: round the column down to an even one.",
    ways=("exponent-column", "exponent-column-twice"),
)
EXPONENT_SIGN = Mistake(
    "exponent-sign",
    "the pairs get faster and faster; they should get slower: it is pos divided by 10000^(2i/d)",
    "Which pair should turn fastest, the first or the last?",
    "The sign of the exponent is wrong, or a division has become a product.",
)
BASE = Mistake(
    "base",
    "the base is not 10000",
    "Compare the large number in your code with the paper's.",
    "Count the zeros.",
    ways=("base-1000", "base-100000"),
)
FREQUENCY_FORGOTTEN = Mistake(
    "frequency-forgotten",
    "all pairs turn at the same speed",
    "Which pairs are fast, which are slow? Look at the last columns.",
    "The angle has to be divided by 10000^(2i/d), which is different for each pair.",
)
DEGREES = Mistake(
    "degrees",
    "the angles are turned from degrees into radians, but they are radians already",
    "The first pair turns by 1 a step. 1 what?",
    "Leave out the conversion: sin and cos take radians, and the paper's angles are meant like that.",
)
EXPONENT_NOT_DIVIDED = Mistake(
    "exponent-not-divided",
    "the exponent is not divided by d: the speeds fall by 10000^(2i) instead of 10000^(2i/d)",
    "What is the exponent of the last pair? In the paper it stays a little below 1.",
    "Something stands under 2i in the equation.",
    ways=("exponent-not-divided", "exponent-not-divided-pair"),
)
SPEEDS_REVERSED = Mistake(
    "speeds-reversed",
    "the speeds stand in the opposite order: the slowest pair comes first",
    "Which pair should turn fastest, the first or the last?",
    "In the first pair i is 0, and 10000^0 = 1. So its speed is 1.",
)
FULL_TURNS = Mistake(
    "full-turns",
    "the angles are multiplied by 2π, as if they were counted in full turns",
    "The first pair turns by 1 a step. 1 what?",
    "Leave out the 2π: sin and cos take radians, and the paper's angles are meant like that.",
)
SPEED_MISTAKES = (
    EXPONENT_NOT_DIVIDED,
    SPEEDS_REVERSED,
    FULL_TURNS,
    EXPONENT_HALF,
    EXPONENT_TWICE,
    EXPONENT_TO_1,
    EXPONENT_COLUMN,
    EXPONENT_SIGN,
    BASE,
    FREQUENCY_FORGOTTEN,
    DEGREES,
)
# A wrong exponent with a wrong base equals another exponent. So does half of twice.
ONE_SPEED = {switch for m in SPEED_MISTAKES if m not in (DEGREES, FULL_TURNS) for switch in m.switches}
ONE_UNIT = {"degrees", "full-turns"}

ANGLES = ExercisePart(
    "angles",
    ("position", "width"),
    ("angles",),
    angles,
    cases=(
        Case("position 3, width 4", (3, 4)),
        Case("position 2, width 6", (2, 6)),
        Case("position 5, width 8", (5, 8)),
        Case("position 1, width 6", (1, 6)),
    ),
    mistakes=(
        *(m for m in SPEED_MISTAKES if m is not EXPONENT_COLUMN),
        Mistake(
            "position-ignored",
            "the position is not used: these are the angles of position 1",
            "Which of the arguments does your code never read?",
            "At position 2, every angle is twice as large as at position 1.",
        ),
        Mistake(
            "angles-twice",
            "each angle comes back twice; expected is one for each pair",
            "How many pairs does a width of 6 have?",
            "i counts pairs: 0, 1, ..., width/2 - 1.",
            ways=("angles-repeated", "angles-tiled"),
        ),
        Mistake(
            "sines-returned",
            "these are the sines of the angles; expected are the angles",
            "What is the angle of the first pair at position 3? It is 3.",
            "Leave out the sine. It comes in the next functions.",
        ),
    ),
    properties=(
        equal(
            "position 0",
            [(0, 4)],
            lambda result: (result, np.zeros(2)),
            "At position 0 all angles are 0, but angles{at} is {given}.",
        ),
        equal(
            "twice the position",
            [(1, 4), (2, 4)],
            lambda one, two: (two, 2 * floats(one)),
            "At position 2 each angle is twice as large as at position 1. So angles{at} should be {expected}; it is "
            "{given}.",
        ),
        equal(
            "the fastest pair",
            [(3, 4)],
            lambda result: (floats(result)[0], 3.0),
            "For pair 0 the divisor is 10000^0 = 1: at position 3 its angle is {expected}; yours is {given}.",
        ),
        agrees(angles, ("angles",), "one pair, position 7 and width 2", 7, 2),
        agrees(angles, ("angles",), "position 300, width 8", 300, 8),
    ),
    hint="Compute angles(3, 4) by hand. There are two pairs: 3 / 10000^(0/4) = 3 and 3 / 10000^(2/4) = 0.03.",
    strong_hint="Print the exponents 2i/width for a width of 4: they are 0 and 0.5. Then print 10000 to these powers: "
    "1 and 100.",
    thought="A width of d_model has d_model/2 pairs, counted by i. The divisor 10000^(2i/d_model) is 1 for the first "
    "pair and comes close to 10000 for the last. So first make the exponents 0, 2/d, 4/d, ...; then the divisors; "
    "then divide the position by each of them. One division of a number by an array does all pairs.",
)


def check_unit_circle(table: Any) -> str | None:
    """Row 1 of width 2 is (sin 1, cos 1)."""
    first, second = floats(table)[1]
    squares = first**2 + second**2
    if not differs(squares, 1):
        return None
    return (
        f"sin² + cos² is 1 for every pair. But the first pair of row 1 is ({first:.4g}, {second:.4g}), and the sum of "
        f"its squares is {squares:.4g}."
    )


SINUSOIDAL_MISTAKES = (
    Mistake(
        "sin-cos-swapped",
        "sine and cosine have changed places: the even columns have the cosines",
        "At position 0 every angle is 0. What should the first two columns be there?",
        "sin(0) = 0 comes first, cos(0) = 1 second.",
    ),
    Mistake(
        "halves",
        "first come all sines, then all cosines; in the paper they alternate",
        "Which columns hold sines? In the paper: 0, 2, 4, ...",
        "A model could learn with either, but not with both. Put the sines into every second column, beginning with 0.",
    ),
    *SPEED_MISTAKES,
    Mistake(
        "positions-from-1",
        "the positions start at 1; the first one is 0",
        "In the first row all angles should be 0.",
        "Count from 0: the row of position pos is row pos.",
    ),
    Mistake(
        "sines-only",
        "the cosines are missing",
        "At position 0, every second number should be 1.",
        "One sine alone cannot tell whether its hand moves up or down. The odd columns are cosines.",
        ways=("sines-only", "cosines-missing"),
    ),
)

SINUSOIDAL = ExercisePart(
    "sinusoidal",
    ("n_positions", "d_model"),
    ("table",),
    sinusoidal,
    cases=(
        # Few positions: with a wrong sign of the exponent, angles grow beyond single precision.
        Case("3 positions, width 4", (3, 4)),
        Case("2 positions, width 6", (2, 6)),
        Case("7 positions, width 4", (7, 4)),
    ),
    mistakes=(
        *SINUSOIDAL_MISTAKES,
        Mistake(
            "table-transposed",
            "rows and columns are exchanged: a row should be a position",
            "What is the shape? It should be [n_positions, d_model].",
            "pos runs down the rows, the pairs run along the columns.",
        ),
    ),
    properties=(
        equal(
            "row 0",
            [(1, 4)],
            lambda table: (floats(table)[0], [0, 1, 0, 1]),
            "At position 0 all angles are 0. So the row is sin(0), cos(0), ... = 0, 1, 0, 1; but table[0]{at} is "
            "{given}.",
        ),
        holds("sines and cosines", [(2, 2)], check_unit_circle),
        equal(
            "row 1",
            [(2, 2)],
            lambda table: (floats(table)[1], [math.sin(1), math.cos(1)]),
            "At position 1 the angle of the first pair is 1: sin(1) = 0.8415 and cos(1) = 0.5403. But table[1]{at} is "
            "{given}.",
        ),
        equal(
            "more positions",
            [(2, 4), (3, 4)],
            lambda two, three: (floats(three)[:2], two),
            "With 3 positions instead of 2, a row more should come back, and the others should stay. But table{at} "
            "changes from {expected} to {given}.",
        ),
        agrees(sinusoidal, ("table",), "one position, width 2", 1, 2),
        agrees(sinusoidal, ("table",), "300 positions, width 8", 300, 8),
        agrees(sinusoidal, ("table",), "3 positions, width 64", 3, 64),
    ),
    hint="Compare with sinusoidal(2, 4) in the docstring, number by number. Which is the first that differs? Which "
    "row and which pair is it in?",
    strong_hint="Print the angles before the sine: for two positions and width 4 they are [[0, 0], [1, 0.01]]. If "
    "they are right, look at which columns the sines and cosines go to.",
    thought="Every number of the table is the sine or the cosine of an angle. So first make the angles: a row for each "
    "position and a column for each pair, which is the position divided by 10000^(2i/d). Then each angle gives two "
    "numbers that stand side by side: the sine in column 2i, the cosine in column 2i+1. So the sines fill the even "
    "columns, the cosines the odd ones.",
)

EMBED_MISTAKES = (
    Mistake(
        "not-scaled",
        "the vectors of the table are not multiplied by sqrt(D)",
        "Read the last sentence of section 3.4.",
        "Before the positions are added, the embedding is multiplied with the square root of d_model.",
    ),
    Mistake(
        "scaled-by-width",
        "the vectors of the table are multiplied by D; it should be its square root",
        "Read the last sentence of section 3.4 once more. By what are the vectors multiplied there?",
        "It is sqrt(d_model), in section 3.4.",
    ),
    Mistake(
        "scaled-down",
        "the vectors of the table are divided by sqrt(D); they should be multiplied",
        "Attention divides. What does section 3.4 do?",
        "The operator before sqrt(d_model) is the wrong one.",
    ),
    Mistake(
        "scaled-by-vocabulary",
        "the vectors of the table are multiplied by the square root of the number of tokens in it, not of D",
        "The table has two axes. Which one is d_model?",
        "d_model is how many numbers a vector has: the last axis of the table.",
    ),
    Mistake(
        "scaled-by-length",
        "the vectors of the table are multiplied by the square root of the number of words in a text, not of D",
        "Three numbers could stand under the root: how many tokens, how many words, how wide. Which one is d_model?",
        "d_model is how many numbers a vector has: the last axis of the table.",
    ),
    Mistake(
        "no-positions",
        "the positions are not added",
        "Compare your code with the docstring, sentence by sentence.",
        "sinusoidal is one of your own functions. It is used here.",
    ),
    Mistake(
        "positions-scaled",
        "the positions are multiplied by sqrt(D); only the vectors of the table should be",
        "In which order do you multiply and add?",
        "First multiply, then add the positions.",
    ),
    Mistake(
        "scale-at-positions",
        "sqrt(D) stands at the positions; it belongs to the vectors of the table",
        "Which of the two is multiplied, in the last sentence of section 3.4?",
        "The factor has to change places: the vectors are multiplied, and the positions are added as they are.",
    ),
    Mistake(
        "positions-concatenated",
        "the positions are put beside the vectors; they should be added to them",
        "How wide is your result? It should be as wide as the table.",
        "Section 3.5: the two have the same width, so that they can be summed.",
    ),
    Mistake(
        "positions-multiplied",
        "the positions are multiplied with the vectors instead of added",
        "Where the sine is 0, what is left of the token?",
        "Section 3.5: the two can be summed.",
    ),
    Mistake(
        "positions-along-batch",
        "the positions count the texts of the batch, not the words of a text",
        "Do all texts of the batch begin at the same position?",
        "ids is [B, T], and the position runs along T.",
    ),
    Mistake(
        "positions-by-id",
        "the positions are looked up by the id of the token, not by where it stands",
        "Give the same token twice in one text. Its two vectors should differ.",
        "The row of the table of positions is the place in the text: 0, 1, 2, ... for every text.",
    ),
)

EMBED = ExercisePart(
    "embed",
    ("ids", "table"),
    ("vectors",),
    embed,
    cases=(
        Case("two texts of three tokens, width 4", (np.array([[1, 0, 1], [2, 2, 0]]), numbers(3, 4, seed=1))),
        Case("three texts of two tokens, width 6", (np.array([[4, 1], [0, 3], [2, 2]]), numbers(5, 6, seed=2))),
        # As long as the longest position table, with small vectors, so that the same mistakes are visible.
        Case("two texts of seven tokens", (np.array([[1, 0, 1, 2, 2, 0, 1], [2] * 7]), numbers(3, 4, seed=3) / 10)),
    ),
    mistakes=(*EMBED_MISTAKES, *SINUSOIDAL_MISTAKES),
    properties=(
        equal(
            "a table of zeros",
            [(np.array([[0, 0]]), np.zeros((1, 2)))],
            lambda vectors: (vectors, sinusoidal(2, 2)[None]),
            "With a table of zeros only the positions are left: vectors{at} should be {expected} and is {given}.",
        ),
        equal(
            "two tokens at one place",
            [(np.array([[0], [1]]), np.eye(2, 4))],
            lambda vectors: (floats(vectors)[1, 0] - floats(vectors)[0, 0], [-2.0, 2.0, 0.0, 0.0]),
            "The vectors of tokens 0 and 1 are [1, 0, 0, 0] and [0, 1, 0, 0]. At the same place, after embedding, they "
            "differ by sqrt(4) times that; but the difference{at} is {given} instead of {expected}.",
        ),
        equal(
            "one token at two places",
            [(np.array([[0, 0]]), np.ones((1, 2)))],
            lambda vectors: (
                floats(vectors)[0, 1] - floats(vectors)[0, 0],
                sinusoidal(2, 2)[1] - sinusoidal(2, 2)[0],
            ),
            "The same token stands at positions 0 and 1. Its two vectors should differ by PE(1) - PE(0) = {expected} "
            "in number {at}; they differ by {given}.",
        ),
        equal(
            "the same text twice",
            [(np.array([[1, 0], [1, 0]]), np.eye(2))],
            lambda vectors: (floats(vectors)[1], floats(vectors)[0]),
            "Both texts are [1, 0], so their vectors are the same. But vectors[0]{at} is {expected} and "
            "vectors[1]{at} is {given}.",
        ),
        equal(
            "another next token",
            [(np.array([[0, 0]]), np.eye(2)), (np.array([[0, 1]]), np.eye(2))],
            lambda before, after: (floats(after)[0, 0], floats(before)[0, 0]),
            "If only the second token is changed, the vector of the first changes from {expected} to {given}.",
        ),
        agrees(embed, ("vectors",), "one text of one token", np.array([[2]]), numbers(3, 4, seed=1)),
        agrees(
            embed,
            ("vectors",),
            "five texts of one token, width 2",
            np.array([[2], [0], [1], [1], [0]]),
            numbers(3, 2, seed=1),
        ),
        agrees(embed, ("vectors",), "a text of 300 tokens", np.arange(300)[None] % 3, numbers(3, 4, seed=1)),
    ),
    hint="There are three steps: look up the vectors, multiply, add the positions. Do each by hand for the first "
    "token of the case above: the row of the table, times 2, plus 0, 1, 0, 1.",
    strong_hint="Print the shapes: the vectors are [B, T, D] and the positions [T, D], so that they line up along the "
    "last two axes and are the same for all texts.",
    thought="An array as an index looks up a row for each id: table[ids] is [B, T, D]. The vectors are multiplied by "
    "sqrt(D), so that they are not small beside the positions, whose numbers reach 1. The positions are a table [T, D] "
    "for the T places of a text. Adding them broadcasts over the texts: place 0 of every text gets PE(0).",
)

TURN_SWAPPED = Mistake(
    "turn-sin-cos-swapped",
    "sine and cosine have changed places in the turn",
    "With an angle of 0 nothing should move. What does yours do then?",
    "What stays where it is comes with cos, since cos(0) = 1; what comes over from the partner comes with sin.",
)
SAME_SIGN = Mistake(
    "sines-same-sign",
    "both sines of a pair have the same sign, so this is no turn",
    "A turn does not change the length of a pair. Does yours?",
    "Of the two sines, just one has a minus before it. Which one is it?",
    ways=("no-minus", "two-minuses"),
)

SHIFT_MATRIX = ExercisePart(
    "shift_matrix",
    ("k", "d_model"),
    ("matrix",),
    shift_matrix,
    cases=(
        Case("2 places on, width 4", (2, 4)),
        Case("3 places back, width 4", (-3, 4)),
        Case("1 place on, width 6", (1, 6)),
    ),
    mistakes=(
        Mistake(
            "turned-back",
            "this goes k places in the other direction (or is the transposed matrix, which is the same)",
            "Multiply it with PE(0). Do you get PE(k), or PE(-k)?",
            "The minus stands before the other sine. With sines first, the upper right number of a block is +sin.",
        ),
        TURN_SWAPPED,
        SAME_SIGN,
        Mistake(
            "k-ignored",
            "this is the step by one place, whatever k is",
            "Compare the matrices for k = 1 and k = 2.",
            "The angle of a pair is k times its speed.",
        ),
        Mistake(
            "k-sign-ignored",
            "a negative k is treated like a positive one",
            "Compare the matrices for k = 3 and k = -3. They should differ.",
            "k may be negative, and then the way leads back: keep its sign.",
        ),
        Mistake(
            "halves",
            "this is for a vector with all sines first, then all cosines; ours alternate",
            "Which two numbers of PE(pos) are a pair?",
            "The numbers 2i and 2i+1 turn together, so each turn is a block of 2 × 2 on the diagonal.",
        ),
        *SPEED_MISTAKES,
    ),
    properties=(
        equal(
            "M @ PE(1)",
            [(2, 4)],
            lambda matrix: (floats(matrix) @ sinusoidal(2, 4)[1], sinusoidal(4, 4)[3]),
            "For k = 2, M @ PE(1) should be PE(3). But number {at} of it is {given} instead of {expected}.",
        ),
        equal(
            "M @ PE(0)",
            [(2, 4)],
            lambda matrix: (floats(matrix) @ sinusoidal(1, 4)[0], sinusoidal(3, 4)[2]),
            "For k = 2, M @ PE(0) should be PE(2). But number {at} of it is {given} instead of {expected}.",
        ),
        equal(
            "0 places on",
            [(0, 4)],
            lambda matrix: (matrix, np.eye(4)),
            "For k = 0 nothing moves, so M is the identity matrix. But matrix{at} is {given} instead of {expected}.",
        ),
        equal(
            "there and back",
            [(2, 4), (-2, 4)],
            lambda there, back: (floats(back) @ floats(there), np.eye(4)),
            "2 places on and 2 places back lead to where one was. But the product of the two matrices is {given} "
            "instead of {expected} at {at}.",
        ),
        agrees(shift_matrix, ("matrix",), "1 place on, width 2", 1, 2),
        agrees(shift_matrix, ("matrix",), "7 places back, width 8", -7, 8),
        agrees(shift_matrix, ("matrix",), "300 places on, width 8", 300, 8),
    ),
    hint="Multiply your matrix for k = 1 with PE(0) = [0, 1, 0, 1]. The result should be PE(1) = [0.84, 0.54, 0.01, "
    "1.00]. Which number differs?",
    strong_hint="With a = pos and b = k, the first equation makes sin(pos + k) from sin(pos) and cos(pos). What stands "
    "before these two is the first row of a block; the second equation gives the second row.",
    thought="Take one pair, with the angle a at position pos. At pos + k its angle is a + b, where b is k times the "
    "speed of the pair. The addition theorems write sin(a + b) and cos(a + b) as sums of sin(a) and cos(a), with "
    "numbers that depend on b alone. These numbers are a block of 2 × 2: its first row makes the new sine, its second "
    "row the new cosine. Every pair has its own b, so M has such a block for each pair, and zeros elsewhere.",
)


def check_pair_length(result: Any) -> str | None:
    """The pair is (3, 4), at position 1."""
    a, b = floats(result)[0]
    length = math.hypot(a, b)
    if not differs(length, 5):
        return None
    return (
        f"A rotation keeps the length of a pair. But (3, 4) at position 1 becomes ({a:.4g}, {b:.4g}): its length was 5 "
        f"and is now {length:.4g}."
    )


QUERY_WORD, KEY_WORD = np.array([[1.0, 0.5]]), np.array([[2.0, -1.0]])


def at(*positions: int) -> Array:
    return np.array(positions)


ROTATE = ExercisePart(
    "rotate",
    ("x", "positions"),
    ("result",),
    rotate,
    cases=(
        Case("two words at positions 3 and 1, width 4", (numbers(2, 4, seed=1), np.array([3, 1]))),
        Case("at positions 1 and 0, width 6", (numbers(2, 6, seed=2), np.array([1, 0]))),
        Case("two texts, two heads, three words", (numbers(2, 2, 3, 4, seed=3), np.array([0, 2, 5]))),
    ),
    mistakes=(
        Mistake(
            "halves",
            "the pairs are (x_i, x_(i+E/2)), one number from each half; expected are neighbours, (x_2i, x_2i+1)",
            "Which two numbers turn together? There are two conventions.",
            "This is how Llama in Hugging Face does it. It is just as good, if the weights were trained with it. Here "
            "it is x[..., 0::2] and x[..., 1::2] that meet.",
        ),
        Mistake(
            "conventions-mixed",
            "the pairs follow one convention and the angles the other: neighbours here, halves there",
            "For one number, see which partner it meets and which angle it gets. Does its partner get the same angle?",
            "With neighbours as pairs, each angle stands twice in a row: a, a, b, b. With halves it is a, b, a, b.",
            ways=("halves-by-neighbours", "neighbours-by-halves"),
        ),
        Mistake(
            "halves-one-way",
            "the pairs are taken apart by one convention and put together by the other: neighbours here, halves there",
            "With positions of 0 nothing should move. Where do the numbers of x end up in your code then?",
            "What was taken from x[..., 0::2] and x[..., 1::2] has to go back to the same places.",
            ways=("read-as-halves", "written-as-halves"),
        ),
        Mistake(
            "turned-back",
            "the pairs turn in the other direction",
            "Turn (1, 0) by a small angle. Its second number should become positive.",
            "The minus stands before the other sine.",
        ),
        TURN_SWAPPED,
        SAME_SIGN,
        Mistake(
            "positions-ignored",
            "the angles are made from 0, 1, 2, ... instead of the positions that were given",
            "What do you use the argument positions for?",
            "While a text is being written, its next word comes alone, and is not at position 0. So the positions are "
            "given.",
        ),
        Mistake(
            "turned-in-place",
            "the second number of a pair is made from the first one after that was turned; it needs the old one",
            "Did you write over a number that is still needed?",
            "Keep both old numbers of a pair until both new ones are made. A slice of an array is no copy.",
        ),
        Mistake(
            "half-turned",
            "only one number of each pair is turned",
            "Compare x with what comes out. Which columns never change?",
            "Both numbers of a pair are new: each is made from both old ones.",
            ways=("second-not-turned", "first-not-turned"),
        ),
        *SPEED_MISTAKES,
    ),
    properties=(
        equal(
            "position 0",
            [(np.array([[1.0, 2.0, 3.0, 4.0]]), at(0))],
            lambda result: (result, [[1.0, 2.0, 3.0, 4.0]]),
            "At position 0 every angle is 0, so nothing moves. But [1, 2, 3, 4] becomes {given} at {at}.",
        ),
        holds("length of a pair", [(np.array([[3.0, 4.0]]), at(1))], check_pair_length),
        equal(
            "(1, 0) at position 1",
            [(np.array([[1.0, 0.0]]), at(1))],
            lambda result: (result, [[math.cos(1), math.sin(1)]]),
            "At position 1 the first pair turns by 1: (1, 0) becomes (cos(1), sin(1)) = (0.5403, 0.8415). Yours has "
            "{given} at {at}.",
        ),
        equal(
            "pairs are independent",
            [(np.array([[1.0, 2.0, 0.0, 0.0]]), at(3))],
            lambda result: (floats(result)[0, 2:], [0.0, 0.0]),
            "In [1, 2, 0, 0] the second pair is 0 and stays 0. But number {at} of it becomes {given}.",
        ),
        equal(
            "words are independent",
            [(np.ones((2, 2)), at(1, 2)), (np.array([[1.0, 1.0], [5.0, 1.0]]), at(1, 2))],
            lambda before, after: (floats(after)[0], floats(before)[0]),
            "If only word 1 is changed, word 0 changes at {at} from {expected} to {given}.",
        ),
        equal(
            "only the distance counts",
            [(QUERY_WORD, at(5)), (KEY_WORD, at(3)), (QUERY_WORD, at(2)), (KEY_WORD, at(0))],
            lambda q5, k3, q2, k0: ((floats(q5) * floats(k3)).sum(), (floats(q2) * floats(k0)).sum()),
            "The dot product of a query and a key should depend on their distance only. At positions 5 and 3 it is "
            "{given}, at positions 2 and 0 it is {expected}.",
        ),
        agrees(rotate, ("result",), "one word of width 2", np.array([[1.0, 2.0]]), at(4)),
        agrees(rotate, ("result",), "positions 300 and 7", numbers(2, 8, seed=3), at(300, 7)),
        agrees(rotate, ("result",), "three axes, one word for each of two texts", numbers(2, 1, 4, seed=4), at(9)),
    ),
    hint="Take one word of width 2 at position 1: (1, 0) should become (cos(1), sin(1)) = (0.5403, 0.8415). Then one "
    "word of width 4, whose second pair turns by 0.01.",
    strong_hint="Print the angles: [T, E/2], the position times the speed of each pair. They line up with the first "
    "numbers of all pairs, and with the second numbers. Check both by their shapes.",
    thought="Each pair (a, b) turns by its own angle: the position times 10000^(-2i/E). So first make the angles, a "
    "row for each position and a column for each pair: [T, E/2]. Take the first numbers of all pairs, and the second "
    "numbers: both are [..., T, E/2] and line up with the angles. The two new numbers of a pair are both made of both "
    "old ones. At the end they go back to the places where the old ones were.",
)

FROM_ROTATE = {mistake.name: mistake for mistake in ROTATE.mistakes}
TURN = ExercisePart(
    "turn",
    ("a", "b", "angle"),
    ("new_a", "new_b"),
    turn,
    cases=(
        Case("two pairs", (np.array([1.0, 3.0]), np.array([0.5, 4.0]), np.array([1.0, 2.0]))),
        Case("three pairs", (np.array([2.0, -1.0, 0.5]), np.array([1.0, 3.0, -2.0]), np.array([0.5, 1.5, -1.0]))),
        Case("two rows of two pairs", (numbers(2, 2, seed=1), numbers(2, 2, seed=2), numbers(2, 2, seed=3))),
    ),
    mistakes=tuple(
        FROM_ROTATE[name]
        for name in ("turned-back", "turn-sin-cos-swapped", "sines-same-sign", "turned-in-place", "half-turned")
    ),
    properties=(
        equal(
            "an angle of 0",
            [(np.array([3.0]), np.array([4.0]), np.array([0.0]))],
            lambda result: (np.ravel(result), [3.0, 4.0]),
            "An angle of 0 changes nothing: (3, 4) stays (3, 4). But number {at} becomes {given}.",
        ),
        holds(
            "length of a pair",
            [(np.array([3.0]), np.array([4.0]), np.array([1.0]))],
            lambda result: check_pair_length(np.reshape(result, (1, 2))),
        ),
        equal(
            "a quarter turn",
            [(np.array([1.0]), np.array([0.0]), np.array([math.pi / 2]))],
            lambda result: (np.ravel(result), [0.0, 1.0]),
            "A quarter turn, by π/2, takes (1, 0) to (0, 1). But number {at} is {given} instead of {expected}.",
        ),
    ),
    hint="Turn (1, 0) by an angle of 1 by hand: it becomes (cos(1), sin(1)) = (0.5403, 0.8415). Then (0, 1): it "
    "becomes (-sin(1), cos(1)).",
    strong_hint="There are four products: a and b, each with the sine and with the cosine. Which two belong to the "
    "new a, which to the new b? One of the four has a minus.",
    thought="A pair (a, b) is a point in the plane. A rotation takes (1, 0) to (cos, sin), and (0, 1) to (-sin, cos). "
    "The point (a, b) is a times the first plus b times the second, and stays so after the rotation. Its first "
    "coordinate is then a cos - b sin, its second a sin + b cos. Both need the old a and the old b.",
)

EXERCISE = Exercise(
    3, "positional_encoding", "Positional encoding", parts=(ANGLES, TURN, SINUSOIDAL, EMBED, SHIFT_MATRIX, ROTATE)
)
