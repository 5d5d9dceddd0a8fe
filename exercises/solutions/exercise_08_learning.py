"""A solution of exercise 8, in NumPy. There are other ways to write it that are just as right."""

import numpy as np

from cutaway.course.given import shift_right, softmax


def count_tokens(target, pad):
    # True counts as 1, so the sum over all texts is the number of tokens.
    # mistakes: padding-counted, padding-only-counted, counted-per-text, pad-fixed, mask-returned
    return (target != pad).sum()


def log_softmax(logits):
    # Subtracting the largest logit does not change the result: now no power of e is larger than 1.
    # mistakes: no-maximum, one-maximum
    x = logits - logits.max(axis=-1, keepdims=True)
    # The logarithm of e^x / total is x - log(total). In this form nothing can become log 0.
    # mistakes: log-of-softmax, softmax-axis, total-not-logged, softmax-not-log, log-base
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def smooth(target, n_tokens, epsilon, pad):
    # Row i of the identity matrix is the one-hot vector of id i: [B, T, V]
    one_hot = np.eye(n_tokens)[target]
    # The right id gives up epsilon, and all ids share it, the right one too.
    # mistakes: others-only, without-padding-id, target-without-share, nothing-given-up, epsilon-not-divided
    q = (1 - epsilon) * one_hot + epsilon / n_tokens
    # Rows of padding become 0. The new axis lets [B, T, 1] broadcast over V.
    # mistakes: padding-row-not-zero, pad-inverted
    return q * (target != pad)[:, :, None]


def smoothed_loss(logits, target, epsilon, pad):
    q = smooth(target, logits.shape[-1], epsilon, pad)
    # Each token costs -Σ q log p. Rows of padding are 0 in q, so they cost nothing.
    # mistakes: loss-sign, kl-divergence, no-smoothing, probabilities-smoothed
    total = -(q * log_softmax(logits)).sum()
    # The mean over tokens: padding does not count here either.
    # mistakes: divided-by-all, sum-not-mean, divided-by-texts, mean-of-means, mean-over-vocabulary
    return total / count_tokens(target, pad)


def warmup_cosine(step, peak, warmup, total, floor):
    if step < warmup:
        # A straight line through 0 at step 0 and peak at step = warmup.
        # mistakes: no-warmup, step-minus-one, step-plus-one, warmup-from-floor
        return peak * step / warmup
    # From 0 at the end of the warmup to 1 at the last step; it stays 1 after that.
    # mistakes: progress-from-start, climbs-again, zero-after-end
    progress = min(1.0, (step - warmup) / (total - warmup))
    # cos falls from 1 to -1 here. Adding 1 and halving makes it fall from 1 to 0.
    # mistakes: whole-wave, quarter-wave, not-halved, linear
    wave = 0.5 * (1 + np.cos(np.pi * progress))
    # mistakes: floor-ignored, floor-added, floor-as-minimum, floor-as-fraction
    return floor + (peak - floor) * wave


def clip(gradients, max_norm):
    # One norm for all arrays: the squares of all numbers are added up before the root.
    # mistakes: norm-not-rooted, norm-of-one-array, sum-of-norms, other-norm
    norm = np.sqrt(sum((g**2).sum() for g in gradients))
    if norm <= max_norm:
        # Short gradients stay as they are.
        # mistakes: always-scaled, below-scaled
        return gradients, norm
    # The same factor for all numbers keeps the direction.
    # mistakes: each-array, each-number, max-norm-ignored, norm-after-clipping
    return [g * (max_norm / norm) for g in gradients], norm


def adam(weight, gradient, m, v, step, lr, beta1, beta2, eps):
    # Two running means: a share of beta stays, a share of 1 - beta is new.
    # mistakes: betas-exchanged, shares-exchanged, share-missing
    m = beta1 * m + (1 - beta1) * gradient
    # mistakes: v-not-squared, v-from-m
    v = beta2 * v + (1 - beta2) * gradient**2
    # Both begin at 0 and are too small at first. Their shares add up to 1 - beta^step so far: divide by that.
    # mistakes: no-correction, half-correction, power-missing, other-step
    m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
    # Dividing by the root of v makes all weights move about lr per step. eps keeps 0 / 0 away.
    # mistakes: v-not-rooted, eps-inside-root, no-eps, gradient-for-m, ascent
    weight = weight - lr * m_hat / (np.sqrt(v_hat) + eps)
    # mistakes: corrected-returned
    return weight, m, v


def training_step(table, target, start, pad, m, v, step, lr):
    # The model predicts each token from the one before it.
    # mistakes: not-shifted
    target_in = shift_right(target, start)
    logits = table[target_in]
    # The loss is computed with the table as it was given.
    # mistakes: loss-after-step
    loss = smoothed_loss(logits, target, 0.1, pad)
    # The gradient of the logits, [B, T, V], is p - q for every token. q is 0 at padding, but p is not.
    # mistakes: padding-in-gradient, gradient-not-smoothed
    at_positions = (softmax(logits) - smooth(target, len(table), 0.1, pad)) * (target != pad)[:, :, None]
    gradient = np.zeros_like(table)
    # add.at adds once for every position; gradient[target_in] += ... would keep one position for each id.
    # mistakes: repeated-ids, gradient-at-targets, gradient-not-divided
    np.add.at(gradient, target_in, at_positions / count_tokens(target, pad))
    # mistakes: no-clip
    (gradient,), _ = clip([gradient], 1.0)
    # mistakes: step-ignored, moments-not-used, moments-not-returned, other-betas
    table, m, v = adam(table, gradient, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9)
    return loss, table, m, v
