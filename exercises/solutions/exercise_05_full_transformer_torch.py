"""A solution of exercise 5, in PyTorch."""

import math

import torch

from cutaway.course.given import embed, encoder, feed_forward, layer_norm, multi_head_attention


def shift_right(target, start):
    shifted = target.roll(1, dims=1)
    shifted[:, 0] = start  # where the last id has come back
    return shifted


def padding_mask(ids, pad):
    return ids.ne(pad).unsqueeze(1).unsqueeze(2)


def decoder_mask(ids, pad):
    place = torch.arange(ids.size(1))
    not_future = place[:, None] >= place[None, :]  # query i, key j: i >= j
    return torch.logical_and(not_future, padding_mask(ids, pad))


def add_and_norm(x, change, norm):
    return layer_norm(x + change, norm["gain"], norm["bias"], 1e-5)


def decoder_block(x, memory, weights, n_heads, mask, memory_mask):
    def attend(name, x, keys, mask):
        return multi_head_attention(x, keys, weights[name], n_heads, mask)

    x = add_and_norm(x, attend("self_attention", x, x, mask), weights["norm_1"])
    x = add_and_norm(x, attend("cross_attention", x, memory, memory_mask), weights["norm_2"])
    return add_and_norm(x, feed_forward(x, weights["feed_forward"]), weights["norm_3"])


def encode(source, weights, n_heads, pad):
    return encoder(embed(source, weights["embedding"]), weights["encoder"], n_heads, padding_mask(source, pad))


def decode(target_in, memory, weights, n_heads, pad, memory_mask):
    x, mask = embed(target_in, weights["embedding"]), decoder_mask(target_in, pad)
    for layer in weights["decoder"]:
        x = decoder_block(x, memory, layer, n_heads, mask, memory_mask)
    return x


def transformer(source, target_in, weights, n_heads, pad):
    memory = encode(source, weights, n_heads, pad)
    x = decode(target_in, memory, weights, n_heads, pad, padding_mask(source, pad))
    return torch.nn.functional.linear(x, weights["embedding"])  # x @ embedding.T


def cross_entropy(logits, target, pad):
    of_target = logits.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    nll = logits.logsumexp(dim=-1) - of_target
    weight = (target != pad).float()
    return (nll * weight).sum() / weight.sum()


def learning_rate(step, d_model, warmup):
    if step < warmup:
        return step / (warmup * math.sqrt(warmup * d_model))
    return 1 / math.sqrt(step * d_model)
