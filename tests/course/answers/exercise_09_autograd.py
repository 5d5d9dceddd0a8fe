"""Exercise 9 with autograd: PyTorch records the forward and computes every derivative. A right answer, too."""

import math

import torch
import torch.nn.functional as F


def derivatives(forward, d_output, *inputs):
    """Return the derivatives of the loss sum(d_output · forward(*inputs)) with respect to the inputs."""
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    with torch.enable_grad():
        loss = (d_output * forward(*inputs)).sum()
    return torch.autograd.grad(loss, inputs)


def flatten(weights):
    """Return the arrays of nested dicts, and a function that puts others in their places."""
    arrays = []

    def visit(value):
        if isinstance(value, dict):
            return {key: visit(inner) for key, inner in value.items()}
        arrays.append(value)
        return len(arrays) - 1

    places = visit(weights)

    def restore(values, part=places):
        return {k: restore(values, v) for k, v in part.items()} if isinstance(part, dict) else values[part]

    return arrays, restore


def with_weights(forward, d_output, inputs, weights):
    arrays, restore = flatten(weights)
    n = len(inputs)
    found = derivatives(lambda *given: forward(*given[:n], restore(given[n:])), d_output, *inputs, *arrays)
    return *found[:n], restore(found[n:])


def relu_backward(d_output, x):
    return derivatives(torch.relu, d_output, x)[0]


def linear_backward(d_output, x, w):
    return derivatives(lambda x, w, b: x @ w + b, d_output, x, w, torch.zeros(w.shape[1]))


def softmax_backward(d_output, weights):
    return derivatives(lambda scores: scores.softmax(-1), d_output, weights.log())[0]


def cross_entropy_backward(logits, target, pad):
    def loss(logits):
        return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=pad)

    return derivatives(loss, torch.ones(()), logits)[0]


def layer_norm_backward(d_output, x, gain, eps):
    return derivatives(lambda x, g, b: F.layer_norm(x, g.shape, g, b, eps), d_output, x, gain, torch.zeros_like(gain))


def attend(q, k, v, mask=None):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def attention_backward(d_output, q, k, v, mask=None):
    return derivatives(lambda q, k, v: attend(q, k, v, mask), d_output, q, k, v)


def heads(x, memory, weights, n_heads, mask=None):
    def split(y):
        return y.unflatten(-1, (n_heads, -1)).transpose(1, 2)

    q, k, v = split(x @ weights["query"]), split(memory @ weights["key"]), split(memory @ weights["value"])
    return attend(q, k, v, mask).transpose(1, 2).flatten(2) @ weights["output"]


def multi_head_attention_backward(d_output, x, memory, weights, n_heads, mask=None):
    return with_weights(lambda x, m, w: heads(x, m, w, n_heads, mask), d_output, [x, memory], weights)


def feed_forward(x, weights):
    return torch.relu(x @ weights["w1"] + weights["b1"]) @ weights["w2"] + weights["b2"]


def feed_forward_backward(d_output, x, weights):
    return with_weights(feed_forward, d_output, [x], weights)


def norm(x, weights):
    return F.layer_norm(x, x.shape[-1:], weights["gain"], weights["bias"], 1e-5)


def encoder_block_backward(d_output, x, weights, n_heads, mask=None):
    def block(x, w):
        h = norm(x + heads(x, x, w["attention"], n_heads, mask), w["norm_1"])
        return norm(h + feed_forward(h, w["feed_forward"]), w["norm_2"])

    return with_weights(block, d_output, [x], weights)


def embed_backward(d_output, ids, table):
    def embed(table):
        return table[ids] * math.sqrt(table.shape[1])  # the positions are constants

    return derivatives(embed, d_output, table)[0]


def decoder_block_backward(d_output, x, memory, weights, n_heads, mask, memory_mask):
    def block(x, memory, w):
        x = norm(x + heads(x, x, w["self_attention"], n_heads, mask), w["norm_1"])
        x = norm(x + heads(x, memory, w["cross_attention"], n_heads, memory_mask), w["norm_2"])
        return norm(x + feed_forward(x, w["feed_forward"]), w["norm_3"])

    return with_weights(block, d_output, [x, memory], weights)
