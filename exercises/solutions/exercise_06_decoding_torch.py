"""A solution of exercise 6, in PyTorch. The beam is a pair of tensors here, and most steps have no loop."""

import torch


def apply_temperature(logits, temperature):
    # mistakes: temperature-multiplied, temperature-ignored, temperature-on-probabilities, temperature-then-softmax
    return logits / temperature


def choose_token(logits):
    # mistakes: smallest-logit, largest-value, token-axis, largest-magnitude
    return logits.argmax(dim=-1)


def keep_top_k(logits, k):
    # topk returns the k largest numbers and their ids
    # mistakes: k-values, k-ids, k-axis, k-one-fewer, k-one-more, k-smallest
    values, ids = logits.topk(k, dim=-1)
    # begin with minus infinity everywhere, and put the k largest back at their ids
    # mistakes: k-first-ids, k-inverted, excluded-zero, excluded-low
    return torch.full_like(logits, float("-inf")).scatter(-1, ids, values)


def keep_top_p(logits, p):
    # mistakes: p-not-sorted, p-ascending, p-axis
    values, ids = logits.sort(dim=-1, descending=True)
    probabilities = values.softmax(dim=-1)
    # the sum before each token, without its own probability
    before = probabilities.cumsum(dim=-1) - probabilities
    # mistakes: crossing-excluded, p-one-more, p-each, p-remaining, p-inverted, excluded-zero, excluded-low
    values = values.masked_fill(before >= p, float("-inf"))
    # scatter undoes the sorting: values[j] goes to the id ids[j]
    # mistakes: p-places, p-sorted-result, p-probabilities
    return torch.empty_like(logits).scatter(-1, ids, values)


def sample(logits, temperature, top_k, top_p, u):
    # the filters in their order; a filter that is None is left out
    filters = [(apply_temperature, temperature), (keep_top_k, top_k), (keep_top_p, top_p)]
    # mistakes: temperature-ignored, top-k-ignored, top-p-ignored, temperature-last, top-p-before-top-k
    for apply, setting in filters:
        if setting is not None:
            logits = apply(logits, setting)
    # mistakes: not-renormalised, not-cumulative, u-sorted
    cumulative = logits.softmax(dim=-1).cumsum(dim=-1)
    # each id before the right one has a cumulative probability of u or less. So their number is the id.
    # mistakes: u-reached, id-before, id-after, u-from-the-end, most-probable
    return int((cumulative <= u).sum())


def greedy(next_logits, start, end, max_length):
    ids = torch.tensor([[start]])  # [1, T]
    # mistakes: end-passed, max-length, end-added, filled-with-end
    while ids.size(1) <= max_length and (ids.size(1) == 1 or ids[0, -1] != end):
        # mistakes: last-id-only, start-not-read
        token = choose_token(next_logits(ids))  # [1]
        ids = torch.cat([ids, token[:, None]], dim=1)
    # mistakes: start-included, end-left-out
    return ids[0, 1:].tolist()


def length_penalty(length, alpha):
    # mistakes: penalty-brackets, penalty-exponent, penalty-length-only, penalty-times-alpha, penalty-inverse
    return ((5 + length) / 6) ** alpha


def beam_search(next_logits, start, end, beam_size, alpha, max_length):
    # mistakes: one-hypothesis
    live, log_p = torch.tensor([[start]]), torch.zeros(1)  # [N, T] and [N]
    best_ids, best_score = [], float("-inf")
    # mistakes: max-length
    for length in range(1, max_length + 1):
        # [N, V]: the log-probability of each hypothesis extended by each token
        # mistakes: logits-added, no-logarithm, not-added-up, last-id-only, start-not-read
        totals = log_p[:, None] + next_logits(live).log_softmax(dim=-1)
        # The candidates with the end are a column. Without it, topk finds those that go on.
        ended = totals[:, end].clone()
        # mistakes: end-extended, finished-take-places
        totals[:, end] = float("-inf")
        # mistakes: no-competition
        log_p, places = totals.flatten().topk(min(beam_size, live.size(0) * (totals.size(1) - 1)))
        # mistakes: parents-mixed
        rows, tokens = places // totals.size(1), places % totals.size(1)
        parents, live = live, torch.cat([live[rows], tokens[:, None]], dim=1)
        # A candidate with the end comes before the list is full, if it is above the last that goes on.
        # mistakes: every-end-counts
        is_finished = ended >= log_p[-1] if len(log_p) == beam_size else torch.ones_like(ended, dtype=torch.bool)
        new = [(ended[n], [*parents[n].tolist(), end]) for n in is_finished.nonzero()[:, 0]]
        # mistakes: cut-off-ignored
        if length == max_length:
            new += zip(log_p, live.tolist(), strict=True)
        for total, ids in new:
            # mistakes: no-penalty, penalty-multiplied, length-wrong, best-by-log-p, log-p-returned
            score = total.item() / length_penalty(length, alpha)
            if score > best_score:
                # mistakes: start-included, end-left-out
                best_ids, best_score = ids[1:], score
        # mistakes: bound-too-low, first-finished, enough-finished
        if log_p[0] / length_penalty(max_length, alpha) <= best_score:
            break
    # mistakes: score-first
    return best_ids, best_score
