"""Exercise 3. Positional encoding                                      (the paper, sections 3.4 and 3.5; lesson 3)

    PE(pos, 2i)   = sin(pos / 10000^(2i/d_model))
    PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model))

Attention does not see the order of words; these numbers tell it. Each pair of columns is the hand of a clock: pair i
turns by 1 / 10000^(2i/d_model) a step. The first is the fastest.

Replace each `raise NotImplementedError` and check yourself as often as you like:

    cutaway check 3             which parts are right, and what is wrong with the others
    cutaway check 3 --watch     the same again each time you save this file
    cutaway check 3 --hint      a stronger hint
    cutaway check 3 --think     the line of thought that leads to a solution
    cutaway check 3 --solution  our solution, explained

You work with NumPy arrays. If you prefer PyTorch, write `import torch` instead: you are then given tensors. All widths
are even, and all positions are counted from 0. Return new arrays: do not change those that you are given. Later
functions can call earlier ones; the first two are warm-ups of about three lines.
"""

import numpy as np


def angles(position, width):
    """By what angle each pair has turned at a position: pos / 10000^(2i/width), for i = 0, 1, ..., width/2 - 1.

    position: a whole number

    ->  [width/2], in radians

    angles(3, 4) is [3 / 10000^(0/4), 3 / 10000^(2/4)] = [3, 0.03].
    """
    raise NotImplementedError


def turn(a, b, angle):
    """Rotate pairs of numbers (a, b) by an angle.

        (a, b)  ->  (a cos(angle) - b sin(angle),  a sin(angle) + b cos(angle))

    a, b, angle: arrays of the same shape: many first numbers, the second numbers, and an angle for each pair

    ->  the new first numbers, the new second numbers, each of the same shape

    With an angle of π/2, (1, 0) becomes (0, 1).
    """
    raise NotImplementedError


def sinusoidal(n_positions, d_model):
    """The table of positions.

    ->  [n_positions, d_model], row pos is PE(pos)

    Sines and cosines alternate. sinusoidal(2, 4) is

        [[0,      1,      0,      1     ],      sin(0), cos(0), sin(0),    cos(0)
         [0.8415, 0.5403, 0.0100, 0.9999]]      sin(1), cos(1), sin(0.01), cos(0.01)
    """
    raise NotImplementedError


def embed(ids, table):
    """Tokens as vectors that know where they stand: what the first layer of a Transformer gets.

    ids: [B, T]      the numbers of the tokens, for B texts
    table: [V, D]    a vector for each of the V tokens

    ->  [B, T, D]

    The vector of each token is multiplied by sqrt(D) (section 3.4, its last sentence), and then PE of its place in the
    text is added. Every text begins at position 0.
    """
    raise NotImplementedError


def shift_matrix(k, d_model):
    """The matrix that goes k places on, from anywhere: PE(pos + k) = M @ PE(pos), for every pos.

    k: a whole number, may be negative or 0  ->  M [d_model, d_model]

    That there is such a matrix is why the authors chose sines (section 3.5). Each pair of numbers turns by an angle of
    its own, so M has a block of 2 × 2 for each pair on its diagonal, and is 0 elsewhere. The addition theorems:

        sin(a + b) = sin(a) cos(b) + cos(a) sin(b)
        cos(a + b) = cos(a) cos(b) - sin(a) sin(b)
    """
    raise NotImplementedError


def rotate(x, positions):
    """Rotary positions (RoPE): turn each pair of numbers by an angle that grows with the position.

    x: [..., T, E]     queries or keys, T words of width E; the dots stand for any number of axes in front
    positions: [T]     where the words stand; not always 0, 1, 2, ...

    ->  [..., T, E]

    Pair i of the word at position pos turns by the angle pos · 10000^(-2i/E). To turn a pair (a, b) by an angle:

        (a, b)  ->  (a cos(angle) - b sin(angle),  a sin(angle) + b cos(angle))

    Here neighbours are a pair: (x_0, x_1), (x_2, x_3), ..., as in the paper on RoPE (Su et al. 2021). There is another
    convention, (x_0, x_(E/2)), (x_1, x_(E/2+1)), ..., in Llama as Hugging Face has it.
    """
    raise NotImplementedError
