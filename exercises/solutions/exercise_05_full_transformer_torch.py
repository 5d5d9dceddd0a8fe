"""A solution of exercise 5, in PyTorch."""

import math
from functools import reduce

import torch

from cutaway.course.given import embed, encoder, feed_forward, layer_norm, multi_head_attention


def real_tokens(ids, pad):
    # mistakes: padding-inverted
    return ids.not_equal(pad)


def shift_right(target, start):
    # roll returns a new tensor in which every id has moved one place; the last one has come to the front.
    # mistakes: rolled, shifted-left, first-overwritten
    shifted = target.roll(1, dims=1)
    shifted[:, 0] = start  # where the last id has come back
    return shifted


def padding_mask(ids, pad):
    # mistakes: padding-as-queries, mask-without-heads
    return ids.ne(pad).unsqueeze(1).unsqueeze(2)


def decoder_mask(ids, pad):
    place = torch.arange(ids.size(1))
    # mistakes: mask-transposed, not-itself
    not_future = place[:, None] >= place[None, :]  # query i, key j: i >= j
    return torch.logical_and(not_future, padding_mask(ids, pad))


def add_and_norm(x, change, norm):
    # mistakes: no-residual, pre-norm, norm-inside
    return layer_norm(x + change, norm["gain"], norm["bias"], 1e-5)


def decoder_block(x, memory, weights, n_heads, mask, memory_mask):
    def attend(name, x, keys, mask):
        return multi_head_attention(x, keys, weights[name], n_heads, mask)

    # mistakes: no-residual-self, cross-first, attentions-exchanged, masks-exchanged
    x = add_and_norm(x, attend("self_attention", x, x, mask), weights["norm_1"])
    x = add_and_norm(x, attend("cross_attention", x, memory, memory_mask), weights["norm_2"])
    return add_and_norm(x, feed_forward(x, weights["feed_forward"]), weights["norm_3"])


def decoder(x, memory, layers, n_heads, mask, memory_mask):
    def apply(x, weights):
        return decoder_block(x, memory, weights, n_heads, mask, memory_mask)

    # apply(apply(x, layers[0]), layers[1]) and so on
    # mistakes: decoder-last-only, decoder-reversed, decoder-without-last
    return reduce(apply, layers, x)


def token_logits(x, table):
    # d is summed over: for each token v, the dot product of x with its row of the table.
    # mistakes: table-not-transposed, logits-scaled
    return torch.einsum("btd,vd->btv", x, table)


def encode(source, weights, n_heads, pad):
    # mistakes: source-padding-seen, memory-after-first-layer
    return encoder(embed(source, weights["embedding"]), weights["encoder"], n_heads, padding_mask(source, pad))


def decode(target_in, memory, weights, n_heads, pad, memory_mask):
    # mistakes: causal-only, padding-only
    x, mask = embed(target_in, weights["embedding"]), decoder_mask(target_in, pad)
    return decoder(x, memory, weights["decoder"], n_heads, mask, memory_mask)


def transformer(source, target_in, weights, n_heads, pad):
    # mistakes: memory-padding-seen, shifted-again
    memory = encode(source, weights, n_heads, pad)
    x = decode(target_in, memory, weights, n_heads, pad, padding_mask(source, pad))
    return token_logits(x, weights["embedding"])


def token_losses(logits, target):
    # logsumexp is log(sum of e^logit), and subtracts the largest logit on its own.
    # mistakes: log-of-softmax, no-maximum, softmax-twice
    log_p = logits - torch.logsumexp(logits, dim=-1, keepdim=True)
    # mistakes: all-tokens, sign
    return -log_p.gather(-1, target.unsqueeze(-1)).squeeze(-1)


def cross_entropy(logits, target, pad):
    # Weights of 1 and 0: padding counts neither above nor below the line.
    # mistakes: padding-counted, divided-by-all, divided-by-texts, per-token
    counts = real_tokens(target, pad).float()
    return (token_losses(logits, target) * counts).sum() / counts.sum()


def learning_rate(step, d_model, warmup):
    # The two terms are equal at step = warmup, so this is their minimum.
    # mistakes: max, no-warmup, no-decay
    if step < warmup:
        return step / (warmup * math.sqrt(warmup * d_model))
    return 1 / math.sqrt(step * d_model)
