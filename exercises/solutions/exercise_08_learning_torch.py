"""A solution of exercise 8, in PyTorch. The loss needs no q here, and autograd computes the gradient."""

import math

import torch

from cutaway.course.given import shift_right


def count_tokens(target, pad):
    return target.ne(pad).sum()


def log_softmax(logits):
    # logsumexp subtracts the largest logit itself.
    return logits - logits.logsumexp(dim=-1, keepdim=True)


def smooth(target, n_tokens, epsilon, pad):
    # Start with everyone's share of epsilon, then add what the right id keeps for itself.
    q = torch.full((*target.shape, n_tokens), epsilon / n_tokens)
    q.scatter_add_(-1, target[..., None], torch.full((*target.shape, 1), 1 - epsilon))
    return q.masked_fill(target[..., None] == pad, 0.0)


def smoothed_loss(logits, target, epsilon, pad):
    # Only the positions of tokens, in one long row: [N, V] and [N]
    is_token = target != pad
    log_p, right_ids = log_softmax(logits[is_token]), target[is_token]
    # -Σ q log p has two terms: that of the right id, and that of the share which all ids get.
    of_right = -log_p.gather(-1, right_ids[:, None]).squeeze(-1)
    of_all = -log_p.mean(dim=-1)
    # Both have one number for each token, so the mean is over tokens.
    return ((1 - epsilon) * of_right + epsilon * of_all).mean()


def warmup_cosine(step, peak, warmup, total, floor):
    if step <= warmup:
        return peak * (step / warmup)
    if step >= total:
        return floor
    angle = math.pi * (step - warmup) / (total - warmup)
    # The middle between peak and floor, plus or minus half their distance.
    middle, half = (peak + floor) / 2, (peak - floor) / 2
    return middle + half * math.cos(angle)


def clip(gradients, max_norm):
    # The norm of the norms is the norm of all numbers.
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    # clamp keeps the factor at 1 for short gradients. (If norm is 0, the quotient is inf, and the factor is 1.)
    factor = (max_norm / norm).clamp(max=1.0)
    return [gradient * factor for gradient in gradients], norm


def adam(weight, gradient, m, v, step, lr, beta1, beta2, eps):
    # lerp goes from the old mean towards the new value, by a share of 1 - beta.
    m = torch.lerp(m, gradient, 1 - beta1)
    v = torch.lerp(v, gradient.square(), 1 - beta2)
    deviation = (v / (1 - beta2**step)).sqrt() + eps
    change = m / (1 - beta1**step) / deviation
    return weight - lr * change, m, v


def training_step(table, target, start, pad, m, v, step, lr):
    # A copy that autograd watches. Indexing it adds up the gradients of repeated ids.
    weight = table.clone().requires_grad_()
    logits = weight[shift_right(target, start)]
    loss = smoothed_loss(logits, target, 0.1, pad)
    (gradient,) = torch.autograd.grad(loss, weight)
    clipped, _ = clip([gradient], 1.0)
    table, m, v = adam(table, clipped[0], m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9)
    return loss.item(), table, m, v
