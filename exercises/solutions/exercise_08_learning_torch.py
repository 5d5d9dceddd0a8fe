"""A solution of exercise 8, in PyTorch. The loss needs no q here, and autograd computes the gradient."""

import math

import torch

from cutaway.course.given import shift_right


def count_tokens(target, pad):
    # ne is "not equal", number by number; True counts as 1 in the sum.
    # mistakes: padding-counted, counted-per-text, pad-fixed
    return target.ne(pad).sum()


def log_softmax(logits):
    # logsumexp is log Σ e^x. It subtracts the largest logit itself, so large logits are safe.
    # mistakes: log-of-softmax, no-maximum, softmax-axis, maximum-only
    return logits - logits.logsumexp(dim=-1, keepdim=True)


def smooth(target, n_tokens, epsilon, pad):
    # Every id begins with its share of epsilon.
    # mistakes: others-only, without-padding-id, epsilon-not-divided
    q = torch.full((*target.shape, n_tokens), epsilon / n_tokens)
    # The right id has 1 - epsilon in addition. It is added at the places that target names.
    # mistakes: target-without-share, nothing-given-up
    q.scatter_add_(-1, target[..., None], torch.full((*target.shape, 1), 1 - epsilon))
    # The rows where the target is padding become 0.
    # mistakes: padding-row-not-zero, pad-inverted, pad-fixed
    return q.masked_fill(target[..., None] == pad, 0.0)


def smoothed_loss(logits, target, epsilon, pad):
    # Only the positions of tokens, one after the other: [N, V] and [N]
    # mistakes: padding-as-tokens, padding-in-the-sum
    is_token = target != pad
    log_p, right_ids = log_softmax(logits[is_token]), target[is_token]
    # -Σ q log p has two terms: that of the right id, and that of the share which all ids get.
    of_right = -log_p.gather(-1, right_ids[:, None]).squeeze(-1)
    of_all = -log_p.mean(dim=-1)
    # Both have one number for each token, so the mean is over tokens.
    # mistakes: no-smoothing, epsilon-exchanged, nothing-given-up, sum-not-mean, divided-by-all
    return ((1 - epsilon) * of_right + epsilon * of_all).mean()


def warmup_cosine(step, peak, warmup, total, floor):
    # A straight line through 0 at step 0 and peak at step = warmup.
    # mistakes: no-warmup, step-minus-one, warmup-from-floor
    if step <= warmup:
        return peak * (step / warmup)
    # mistakes: climbs-again, zero-after-end
    if step >= total:
        return floor
    # From 0 at the end of the warmup to π at step = total.
    # mistakes: progress-from-start, whole-wave, no-pi
    angle = math.pi * (step - warmup) / (total - warmup)
    # The middle between peak and floor, plus or minus half their distance.
    # mistakes: floor-ignored, not-halved, only-cosine
    middle, half = (peak + floor) / 2, (peak - floor) / 2
    return middle + half * math.cos(angle)


def clip(gradients, max_norm):
    # The norm of the norms is the norm of all numbers.
    # mistakes: each-array, norm-of-one-array, sum-of-norms, largest-norm
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    # clamp keeps the factor at 1 for short gradients. (If norm is 0, the quotient is inf, and the factor is 1.)
    # mistakes: always-scaled, below-scaled, factor-inverted
    factor = (max_norm / norm).clamp(max=1.0)
    # mistakes: norm-after-clipping, norm-first, only-gradients
    return [gradient * factor for gradient in gradients], norm


def adam(weight, gradient, m, v, step, lr, beta1, beta2, eps):
    # lerp goes from the old mean towards the new value, by a share of 1 - beta.
    # mistakes: shares-exchanged, betas-exchanged
    m = torch.lerp(m, gradient, 1 - beta1)
    # mistakes: v-not-squared, v-from-m
    v = torch.lerp(v, gradient.square(), 1 - beta2)
    # The corrected v, its root, and eps: in this order.
    # mistakes: eps-inside-root, eps-before-correction, v-not-rooted, no-eps
    deviation = (v / (1 - beta2**step)).sqrt() + eps
    # mistakes: no-correction, half-correction, power-missing, gradient-for-m
    change = m / (1 - beta1**step) / deviation
    # mistakes: ascent, corrected-returned
    return weight - lr * change, m, v


def training_step(table, target, start, pad, m, v, step, lr):
    # A copy that autograd watches. Indexing it adds up the gradients of repeated ids.
    weight = table.clone().requires_grad_()
    # mistakes: not-shifted
    logits = weight[shift_right(target, start)]
    # mistakes: epsilon-is-0
    loss = smoothed_loss(logits, target, 0.1, pad)
    # mistakes: ascent, gradient-not-divided, padding-in-gradient
    (gradient,) = torch.autograd.grad(loss, weight)
    # mistakes: no-clip
    clipped, _ = clip([gradient], 1.0)
    # mistakes: step-ignored, moments-not-used, moments-not-returned, table-not-returned
    table, m, v = adam(table, clipped[0], m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9)
    # The loss was computed before the step. item() makes it a plain number, without its history.
    # mistakes: loss-after-step
    return loss.item(), table, m, v
