"""Exercise 3 for the grader: sinusoids, embeddings with positions, the shift by k positions, RoPE."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.course.exercise import NO_MISTAKES, Case, Exercise, ExercisePart, Mistake, Switches
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
    angles = [steps * speed for speed in speeds_of_pair(d_model, wrong)]
    sin, cos = np.sin(angles), np.cos(angles)
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
    angles = [np.outer(positions, speed) for speed in speeds_of_pair(x.shape[-1], wrong)]
    sin, cos = np.sin(angles), np.cos(angles)
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
)

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
            "the pairs are (x_i, x_(i+E/2)), one number from each half; asked for are neighbours, (x_2i, x_2i+1)",
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
)

EXERCISE = Exercise(3, "positional_encoding", "Positional encoding", parts=(SINUSOIDAL, EMBED, SHIFT_MATRIX, ROTATE))
