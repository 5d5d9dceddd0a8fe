"""Exercise 6 with loops and plain numbers: slow, but right."""

import math

import numpy as np


def apply_temperature(logits, temperature):
    result = np.array(logits, float)
    for place in np.ndindex(result.shape):
        result[place] = result[place] / temperature
    return result


def choose_token(logits):
    if np.ndim(logits) > 1:
        return [choose_token(row) for row in logits]
    best = 0
    for i in range(len(logits)):
        if logits[i] > logits[best]:
            best = i
    return best


def keep_top_k(logits, k):
    result = np.full(np.shape(logits), -math.inf)
    for place in np.ndindex(result.shape[:-1]):
        left = dict(enumerate(logits[place].tolist()))
        for _ in range(k):
            best = max(left, key=left.get)
            result[place][best] = left.pop(best)
    return result


def probabilities_of(row):
    highest = max(row)
    powers = [math.exp(x - highest) for x in row]
    return [x / sum(powers) for x in powers]


def keep_top_p(logits, p):
    result = np.full(np.shape(logits), -math.inf)
    for place in np.ndindex(result.shape[:-1]):
        row = logits[place].tolist()
        probabilities = probabilities_of(row)
        total = 0.0
        for i in sorted(range(len(row)), key=lambda i: -probabilities[i]):
            result[place][i] = row[i]
            total += probabilities[i]
            if total >= p:
                break
    return result


def sample(logits, temperature, top_k, top_p, u):
    logits = apply_temperature(logits, temperature)
    if top_k is not None:
        logits = keep_top_k(logits, top_k)
    if top_p is not None:
        logits = keep_top_p(logits, top_p)
    left = u
    for i, p in enumerate(probabilities_of(logits.tolist())):
        if left < p:
            return i
        left -= p
    return i


def greedy(next_logits, start, end, max_length):
    ids = []
    while len(ids) < max_length:
        logits = next_logits([[start, *ids]])
        ids.append(choose_token(logits[0]))
        if ids[-1] == end:
            return ids
    return ids


def length_penalty(length, alpha):
    return math.exp(alpha * math.log((5 + length) / 6))


def beam_search(next_logits, start, end, beam_size, alpha, max_length):
    beam = [(0.0, [])]
    done = []
    while beam and len(beam[0][1]) < max_length:
        candidates = []
        for log_p, ids in beam:
            logits = next_logits([[start, *ids]])[0].tolist()
            log_sum = math.log(sum(math.exp(x) for x in logits))
            for token, logit in enumerate(logits):
                candidates.append((log_p + logit - log_sum, [*ids, token]))
        candidates.sort(reverse=True)
        beam = []
        for log_p, ids in candidates:
            if ids[-1] == end:
                done.append((log_p, ids))
            else:
                beam.append((log_p, ids))
            if len(beam) >= beam_size:
                break
    best, best_score = None, -math.inf
    for log_p, ids in done + beam:
        score = log_p / length_penalty(len(ids), alpha)
        if score > best_score:
            best, best_score = ids, score
    return best, best_score
