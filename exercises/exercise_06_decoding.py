"""Exercise 6. Decoding                                                             (the paper, section 6.1; lesson 7)

    A model gives logits, one number for each token of the vocabulary. Decoding makes a text of them.

    logits ──▶ temperature ──▶ top-k ──▶ top-p ──▶ softmax ──▶ u ──▶ one token               sampling
    text ──▶ model ──▶ largest logit ──▶ longer text ──▶ model ──▶ ...                       greedy search
    N texts ──▶ model ──▶ N·V longer texts ──▶ the most probable ──▶ model ──▶ ...           beam search

Replace each `raise NotImplementedError` and check yourself as often as you like:

    cutaway check 6             which parts are right, and what is wrong with the others
    cutaway check 6 --watch     the same again each time you save this file
    cutaway check 6 --hint      a stronger hint
    cutaway check 6 --think     the line of thought

You work with NumPy arrays. If you prefer PyTorch, write `import torch` instead: you are then given tensors.

Letters of the shapes: V tokens in the vocabulary, N texts, T ids in a text. A token's id is its place on the axis V;
the first id is 0. The softmax comes from exercise 1, ready made. You can use your own instead:

    from exercise_01_scaled_dot_product import softmax


The example of greedy search and beam search. There are four tokens: 0 is the start, 1 the end, 2 the word "a" and 3
the word "b". Here the probabilities of the next token depend only on the last token, to keep it simple:

                      end     a      b
    after the start   0.1    0.5    0.4
    after a           0.4    0.35   0.25
    after b           0.9    0.06   0.04

You can try your functions with this model. It takes arrays, tensors or lists of ids and returns logits:

    from cutaway.course.exercises.decoding import example_model
    print(beam_search(example_model, start=0, end=1, beam_size=2, alpha=0.6, max_length=3))

The grader also uses early_end_model and repeating_model. They are in the same module.
"""

import numpy as np

from cutaway.course.given import softmax  # (x) -> probabilities along the last axis


def apply_temperature(logits, temperature):
    """Warm-up. Divide the logits by the temperature.

    logits: any shape [..., V]
    temperature: a number above 0

    -> logits, the same shape

    [2, 1] with the temperature 0.5 becomes [4, 2]. Below 1 the most probable token gets more probable, above 1 less.
    """
    raise NotImplementedError


def choose_token(logits):
    """Warm-up. The index of the largest logit along the last axis.

    logits: any shape [..., V]  ->  ids [...]; for logits [V] a single id

    [-1, 0.5, 2, -3] gives 2. You need not care about equal logits.
    """
    raise NotImplementedError


def keep_top_k(logits, k):
    """Top-k: the k largest logits stay as they are, all others become minus infinity.

    logits: any shape [..., V]; each row of the last axis by itself
    k: a whole number from 1 to V

    -> logits, the same shape

    [1, 4, 2, 3] with k = 2 becomes [-inf, 4, -inf, 3]. After a softmax, minus infinity is the probability 0. You need
    not care about equal logits.
    """
    raise NotImplementedError


def keep_top_p(logits, p):
    """Top-p: the fewest tokens stay whose probabilities sum to at least p, beginning with the most probable.

    logits: any shape [..., V]; each row of the last axis by itself. Some may be minus infinity.
    p: a number between 0 and 1

    -> logits, the same shape. What stays does not change; all others become minus infinity.

    Go from the most probable token downwards and add up the probabilities. The token with which the sum reaches p is
    the last that stays. So at least one token stays.

    Probabilities 0.2, 0.5, 0.3 and p = 0.6: the sums are 0.5, then 0.8. The tokens 1 and 2 stay, token 0 does not.
    The same with p = 0.4: only token 1 stays.
    """
    raise NotImplementedError


def sample(logits, temperature, top_k, top_p, u):
    """Choose a token at random. The random number u is given, so there is only one right answer.

    logits: [V]
    temperature: a number above 0
    top_k: for keep_top_k, or None: no top-k
    top_p: for keep_top_p, or None: no top-p
    u: a number from 0 up to, but not including, 1

    -> one id

    1. The filters, in this order: temperature, top-k, top-p. Each takes the result of the one before.
    2. The softmax of what is left. An excluded token gets the probability 0, the others sum to 1.
    3. The cumulative probability of an id is the sum of its own probability and those of all smaller ids. The token is
       the first id whose cumulative probability exceeds u (is larger than u, not equal).

    Probabilities 0.2, 0.5, 0.3 have the cumulative probabilities 0.2, 0.7, 1.0. With u = 0.1 it is token 0, with
    u = 0.6 token 1, with u = 0.9 token 2. If token 0 is excluded, its cumulative probability is 0. That does not
    exceed u = 0, so it is never chosen.
    """
    raise NotImplementedError


def greedy(next_logits, start, end, max_length):
    """Greedy search: the most probable token again and again.

    next_logits: a function, the model. It takes ids, an array of whole numbers [N, T], and returns an array of logits
                 [N, V]: for each of the N texts those of its next token. Here N is 1.
    start: the id that each text begins with. The model has to read it.
    end: the id that ends a text
    max_length: how many ids the result has at most

    -> a list of the ids that the model produced. The start is not among them. If the model produced the end, the end is
       the last.

    The model reads the whole text so far, from the start. The search stops at the end, or after max_length ids.

    In the example: the model reads [[0]] and the largest probability is 0.5, for a. It reads [[0, 2]] and the largest
    is 0.4, for the end. The result is [2, 1], with the probability 0.5 · 0.4 = 0.2. With max_length 1 it is [2].
    """
    raise NotImplementedError


def length_penalty(length, alpha):
    """The length penalty of beam search.

        lp(length) = ((5 + length) / 6)^alpha

    length: how many ids, at least 1
    alpha: a number, 0 or more. The paper takes 0.6.

    -> a number. Length 7 and alpha 1 give 12 / 6 = 2. Length 1 always gives 1, and so does alpha 0.
    """
    raise NotImplementedError


def beam_search(next_logits, start, end, beam_size, alpha, max_length):
    """Beam search: several texts grow side by side, and the one with the best score wins.

    next_logits, start, end: as for greedy. Here next_logits takes the ids [N, T] of all N hypotheses at once.
    beam_size: how many hypotheses go on after each step
    alpha: for length_penalty
    max_length: how many ids the result has at most

    -> ids, score: a list of ids as from greedy (without the start, with the end if there is one), and a number

    A hypothesis is a text with its log-probability log p: the sum of the logarithms of the probabilities of all its
    ids after the start. Its score is

        score = log p / length_penalty(number of ids without the start, alpha)            the end counts as an id

    The search begins with one hypothesis, the start, with log p = 0. Then it repeats this step:

    1. Extend each of the N hypotheses by each of the V tokens. That gives N·V candidates, each with its log p.
    2. Go through the candidates, the highest log p first. A candidate whose new token is the end is finished: keep it
       aside, it is not extended again. Any other goes on. As soon as beam_size of them go on, ignore the rest. (In the
       first steps there may be fewer candidates than beam_size. Then all go on.)

    The search is over after max_length steps. The hypotheses that would go on then count as finished too, as they are.
    The finished hypothesis with the best score is the result.

    The search may stop earlier, if no hypothesis that goes on can win any more. Its log p can only fall, and the
    penalty is at most length_penalty(max_length, alpha). So if the best log p of those that go on, divided by
    length_penalty(max_length, alpha), is not above the best score of the finished ones, it is over. This only saves
    time. The result is the same.

    In the example, with beam_size 2, alpha 0.6 and max_length 3, in probabilities:

        step 1   a 0.5 goes on, b 0.4 goes on. Two go on, so the end with 0.1 is ignored.
        step 2   b end 0.4 · 0.9 = 0.36 is finished.
                 a end 0.5 · 0.4 = 0.2 is finished.
                 a a 0.5 · 0.35 = 0.175 goes on, a b 0.5 · 0.25 = 0.125 goes on. Two go on, so the rest is ignored.
        scores   b end: log 0.36 / lp(2) = -1.0217 / 1.0969 = -0.9314
                 a end: log 0.2 / lp(2) = -1.6094 / 1.0969 = -1.4673
        bound    a a: log 0.175 / lp(3) = -1.7430 / 1.1884 = -1.4666. This is below -0.9314, so the search is over.

    The result is [3, 1] with the score -0.9314. It is more probable than [2, 1], the text of greedy search.
    """
    raise NotImplementedError
