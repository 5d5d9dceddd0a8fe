"""A solution of exercise 6, in NumPy. There are other ways to write it that are just as right."""

import numpy as np

from cutaway.course.given import softmax


def apply_temperature(logits, temperature):
    # mistakes: temperature-multiplied, temperature-ignored, temperature-on-probabilities, temperature-then-softmax
    return logits / temperature


def choose_token(logits):
    # the softmax keeps the order, so the largest logit has the largest probability
    # mistakes: smallest-logit, largest-value, token-axis, largest-magnitude
    return np.argmax(logits, axis=-1)


def keep_top_k(logits, k):
    # np.sort sorts upwards: the k-th largest is at index -k. The None keeps its axis, so it broadcasts: [..., 1]
    # mistakes: k-axis, k-one-more
    kth_largest = np.sort(logits, axis=-1)[..., -k, None]
    # >= and not >, because the k-th largest itself stays
    # mistakes: k-one-fewer, k-smallest, k-inverted, excluded-zero, excluded-low
    return np.where(logits >= kth_largest, logits, -np.inf)


def keep_top_p(logits, p):
    # order[..., 0] is the id of the most probable token, order[..., 1] of the second, ...
    # mistakes: p-not-sorted, p-ascending
    order = np.argsort(-logits, axis=-1)
    probabilities = np.take_along_axis(softmax(logits), order, axis=-1)
    # the sum of the probabilities before each token: 0 for the first, so it always stays
    before = np.cumsum(probabilities, axis=-1) - probabilities
    # a token stays if p is not reached without it; so the token that crosses p stays
    # mistakes: crossing-excluded, p-one-more, p-each, p-remaining
    stays_sorted = before < p
    # from sorted places back to ids: the decision at place j belongs to the id order[j]
    stays = np.empty_like(stays_sorted)
    # mistakes: p-places, p-sorted-result
    np.put_along_axis(stays, order, stays_sorted, axis=-1)
    # mistakes: p-inverted, p-probabilities, excluded-zero, excluded-low
    return np.where(stays, logits, -np.inf)


def sample(logits, temperature, top_k, top_p, u):
    # mistakes: temperature-ignored, temperature-last
    logits = apply_temperature(logits, temperature)
    # mistakes: top-k-ignored, top-p-before-top-k
    if top_k is not None:
        logits = keep_top_k(logits, top_k)
    # mistakes: top-p-ignored
    if top_p is not None:
        logits = keep_top_p(logits, top_p)
    # the softmax comes after the filters, so the probabilities of the tokens that stay sum to 1
    # mistakes: not-renormalised, not-cumulative, u-sorted
    cumulative = np.cumsum(softmax(logits))
    # argmax of True and False is the first True
    # mistakes: u-reached, id-before, id-after, u-from-the-end, most-probable
    return int(np.argmax(cumulative > u))


def greedy(next_logits, start, end, max_length):
    ids = [start]
    # the start does not count: each step adds one id
    # mistakes: max-length
    for _ in range(max_length):
        # [ids] has the shape [1, T]: one text, with the start and all ids so far
        # mistakes: last-id-only, start-not-read
        logits = next_logits(np.array([ids]))
        ids.append(int(choose_token(logits[0])))
        # mistakes: end-passed, end-left-out, end-added, filled-with-end
        if ids[-1] == end:
            break
    # mistakes: start-included
    return ids[1:]


def length_penalty(length, alpha):
    # mistakes: penalty-brackets, penalty-exponent, penalty-length-only, penalty-times-alpha, penalty-inverse
    return ((5 + length) / 6) ** alpha


def beam_search(next_logits, start, end, beam_size, alpha, max_length):
    # one hypothesis, not beam_size copies of it: copies would all be extended in the same way
    # mistakes: one-hypothesis
    live, log_p = [[start]], np.zeros(1)
    finished = []  # pairs (score, ids)
    # mistakes: max-length
    for length in range(1, max_length + 1):
        # mistakes: last-id-only, start-not-read
        logits = next_logits(np.array(live))
        # the log-probability of each token, [N, V]
        # mistakes: logits-added, no-logarithm
        log_p_next = np.log(softmax(logits))
        # candidate (n, v) is hypothesis n extended by token v; [N, 1] + [N, V] -> [N, V]
        # mistakes: not-added-up, penalty-each-step
        totals = log_p[:, None] + log_p_next
        # all hypotheses have length ids now
        # mistakes: length-wrong
        penalty = length_penalty(length, alpha)
        # all candidates in one row, the most probable first
        # mistakes: no-competition
        order = np.argsort(-totals, axis=None)
        parents, going_on = live, []
        live = []
        for place in order:
            # place in the flattened row -> hypothesis and token
            # mistakes: parents-mixed
            n, token = divmod(int(place), totals.shape[1])
            ids = [*parents[n], token]
            # mistakes: end-extended, finished-take-places
            if token == end:
                # mistakes: no-penalty, penalty-multiplied, best-by-log-p, log-p-returned, end-left-out
                finished.append((totals[n, token] / penalty, ids))
            else:
                live.append(ids)
                going_on.append(totals[n, token])
            # mistakes: every-end-counts
            if len(live) == beam_size:
                break
        log_p = np.array(going_on)
        # at the limit the others count as finished, as they are
        # mistakes: cut-off-ignored
        if length == max_length:
            finished += [(total / penalty, ids) for total, ids in zip(log_p, live, strict=True)]
        # log_p[0] is the best of those that go on. It can only fall, and the penalty is largest at max_length.
        # mistakes: bound-too-low, first-finished, enough-finished
        elif finished and log_p[0] / length_penalty(max_length, alpha) <= max(finished)[0]:
            break
    score, ids = max(finished)
    # mistakes: start-included, score-first
    return ids[1:], float(score)
