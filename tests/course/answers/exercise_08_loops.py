"""Exercise 8 with loops, number by number: slow, but right."""

import math

import numpy as np


def count_tokens(target, pad):
    count = 0
    for text in target:
        for token in text:
            if token != pad:
                count += 1
    return count


def log_softmax(logits):
    result = np.empty(logits.shape)
    for place in np.ndindex(logits.shape[:-1]):
        row = [float(x) for x in logits[place]]
        largest = max(row)
        total = math.fsum(math.exp(x - largest) for x in row)
        for i, x in enumerate(row):
            result[(*place, i)] = x - largest - math.log(total)
    return result


def smooth(target, n_tokens, epsilon, pad):
    rows = []
    for text in target:
        rows.append([])
        for token in text:
            if token == pad:
                rows[-1].append([0.0] * n_tokens)
                continue
            row = [epsilon / n_tokens] * n_tokens
            row[token] += 1 - epsilon
            rows[-1].append(row)
    return rows


def smoothed_loss(logits, target, epsilon, pad):
    total, n = 0.0, 0
    for b, text in enumerate(target):
        for t, token in enumerate(text):
            if token == pad:
                continue
            log_p = log_softmax(logits[b, t])
            for i, value in enumerate(log_p):
                q = epsilon / len(log_p)
                if i == token:
                    q += 1 - epsilon
                total -= q * value
            n += 1
    return total / n


def warmup_cosine(step, peak, warmup, total, floor):
    climb = step / warmup
    if climb < 1:
        return climb * peak
    if step > total:
        return floor
    angle = (step - warmup) / (total - warmup) * math.pi
    fall = (1 - math.cos(angle)) / 2
    return peak - fall * (peak - floor)


def clip(gradients, max_norm):
    squares = 0.0
    for gradient in gradients:
        for number in gradient.flat:
            squares += float(number) ** 2
    norm = math.sqrt(squares)
    factor = 1.0
    if norm > max_norm:
        factor = max_norm / norm
    result = []
    for gradient in gradients:
        result.append(factor * gradient)
    return result, norm


def adam(weight, gradient, m, v, step, lr, beta1, beta2, eps):
    new_weight, new_m, new_v = np.empty(weight.shape), np.empty(weight.shape), np.empty(weight.shape)
    for i in np.ndindex(weight.shape):
        g = gradient[i]
        new_m[i] = beta1 * m[i] + g - beta1 * g
        new_v[i] = beta2 * v[i] + g * g - beta2 * g * g
        m_hat = new_m[i] / (1 - beta1**step)
        v_hat = new_v[i] / (1 - beta2**step)
        new_weight[i] = weight[i] - lr * m_hat / (math.sqrt(v_hat) + eps)
    return new_weight, new_m, new_v


def training_step(table, target, start, pad, m, v, step, lr):
    n = count_tokens(target, pad)
    loss, gradient = 0.0, np.zeros(table.shape)
    for text in target:
        before = start
        for token in text:
            if token != pad:
                row = table[before]
                loss += smoothed_loss(row[None, None], np.array([[token]]), 0.1, pad) / n
                p = np.exp(log_softmax(row))
                q = np.array(smooth([[token]], len(row), 0.1, pad)[0][0])
                gradient[before] += (p - q) / n
            before = token
    clipped, _ = clip([gradient], 1)
    return loss, *adam(table, clipped[0], m, v, step, lr, 0.9, 0.98, 1e-9)
