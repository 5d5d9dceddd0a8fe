"""A solution of exercise 9, in NumPy. There are other ways to write it that are just as right."""

import numpy as np

from cutaway.course.given import (
    attention,
    feed_forward,
    layer_norm,
    merge_heads,
    multi_head_attention,
    softmax,
    split_heads,
)

EPS = 1e-5


def relu_backward(d_output, x):
    # max(0, x) has the slope 1 where x is positive, else 0.
    # mistakes: relu-where-d-output, relu-times-output, relu-unchanged, relu-no-d-output, relu-inverted
    return d_output * (x > 0)


def linear_backward(d_output, x, w):
    # All tokens of all texts as one list of rows: the axes in front make no difference.
    rows = x.reshape(-1, x.shape[-1])
    d_rows = d_output.reshape(-1, d_output.shape[-1])
    # y[j] = Σ_i x[i] w[i, j] + b[j]. So x[i] reaches y[j] with the factor w[i, j],
    # mistakes: linear-w-not-transposed
    d_x = d_output @ w.T
    # w[i, j] reaches y[j] with the factor x[i] (the product sums over the rows),
    # mistakes: linear-d-w-transposed, linear-d-w-per-text, linear-mean, linear-last-row
    d_w = rows.T @ d_rows
    # and b[j] reaches y[j] with the factor 1, in every row.
    # mistakes: linear-d-b-not-summed, linear-d-b-one-number
    d_b = d_rows.sum(axis=0)
    return d_x, d_w, d_b


def softmax_backward(d_output, weights):
    # The derivative of weights[i] with respect to scores[j] is weights[i] (δ[i, j] - weights[j]).
    # Multiply by d_output[i] and sum over i. The part with weights[j] leaves a weighted sum of d_output:
    # mistakes: softmax-plain-sum, softmax-sum-axis, softmax-of-weights
    average = (d_output * weights).sum(axis=-1, keepdims=True)
    # mistakes: softmax-no-sum, softmax-like-sigmoid, softmax-bracket, softmax-no-factor, softmax-sign
    return weights * (d_output - average)


def cross_entropy_backward(logits, target, pad):
    # The loss of a token is log(Σ e^logits) - logits[target]. The derivative of the first term is the softmax,
    # mistakes: ce-no-softmax, ce-no-maximum
    d_logits = softmax(logits)
    # and the second term subtracts 1 at the target.
    one_hot = np.eye(logits.shape[-1])[target]
    # mistakes: ce-no-subtraction, ce-sign, ce-target-only, ce-one-over-p
    d_logits = d_logits - one_hot
    # Padding is no part of the loss, and the loss is a mean over the tokens that are left.
    # mistakes: ce-pad-fixed
    real = target != pad
    # mistakes: ce-not-divided, ce-divided-by-all, ce-divided-by-texts, ce-padding-counted, ce-padding-not-zeroed
    return d_logits * real[..., None] / real.sum()


def layer_norm_backward(d_output, x, gain, eps):
    # Recompute the forward: normed = (x - mean) / sigma, output = normed · gain + bias.
    centred = x - x.mean(axis=-1, keepdims=True)
    # mistakes: norm-no-eps, norm-unbiased
    sigma = np.sqrt(x.var(axis=-1, keepdims=True) + eps)
    normed = centred / sigma
    # gain and bias are shared by all tokens: sum over all axes but the last.
    # mistakes: norm-d-gain-x, norm-parameters-times-gain, norm-parameters-not-summed, norm-parameters-one-number
    d_gain = (d_output * normed).sum(axis=(0, 1))
    d_bias = d_output.sum(axis=(0, 1))
    # mistakes: norm-no-gain, norm-gain-last
    d_normed = d_output * gain
    # x reaches the normed numbers directly, through the mean, and through sigma.
    mean_term = d_normed.mean(axis=-1, keepdims=True)
    # mistakes: norm-x-for-normed, norm-sums, norm-axis
    sigma_term = normed * (d_normed * normed).mean(axis=-1, keepdims=True)
    # mistakes: norm-no-mean-term, norm-no-variance-term, norm-only-direct, norm-not-divided, norm-term-sign
    d_x = (d_normed - mean_term - sigma_term) / sigma
    return d_x, d_gain, d_bias


def feed_forward_backward(d_output, x, weights):
    # Forward: x -> before -> hidden -> output
    # mistakes: ffn-no-b1
    before = x @ weights["w1"] + weights["b1"]
    hidden = np.maximum(0, before)
    # Backward: the same three steps in the opposite order. Each takes what went into it in the forward.
    # mistakes: ffn-before-relu
    d_hidden, d_w2, d_b2 = linear_backward(d_output, hidden, weights["w2"])
    d_before = relu_backward(d_hidden, before)
    # mistakes: ffn-relu-only-for-x, ffn-residual
    d_x, d_w1, d_b1 = linear_backward(d_before, x, weights["w1"])
    return d_x, {"w1": d_w1, "b1": d_b1, "w2": d_w2, "b2": d_b2}


def attention_backward(d_output, q, k, v, mask=None):
    # Forward: scores = q kᵀ / sqrt(d_k), weights = softmax(scores), output = weights v
    # mistakes: attention-mask-ignored, attention-mask-late, attention-mask-inverted
    _, weights = attention(q, k, v, mask)
    # The output is a product of two matrices. Each factor's derivative is made with the other factor.
    # mistakes: attention-d-v-not-transposed, attention-scale-values
    d_v = np.swapaxes(weights, -1, -2) @ d_output
    # mistakes: attention-keys-for-values
    d_weights = d_output @ np.swapaxes(v, -1, -2)
    # Hidden keys have the weight 0, so their scores get the derivative 0 here. The mask needs no step of its own.
    # mistakes: attention-no-softmax
    d_scores = softmax_backward(d_weights, weights)
    # The scores are again a product, with a constant factor.
    # mistakes: attention-no-scale, attention-scale-times, attention-scale-one-side, attention-scale-axis
    d_products = d_scores / np.sqrt(q.shape[-1])
    # mistakes: attention-q-for-k, attention-exchanged
    d_q = d_products @ k
    # mistakes: attention-d-k-not-transposed
    d_k = np.swapaxes(d_products, -1, -2) @ q
    return d_q, d_k, d_v


def multi_head_attention_backward(d_output, x, memory, weights, n_heads, mask=None):
    # Forward: three linear maps, heads, attention, merge, a linear map
    # mistakes: heads-one, heads-scale-model-width
    q = split_heads(x @ weights["query"], n_heads)
    k = split_heads(memory @ weights["key"], n_heads)
    v = split_heads(memory @ weights["value"], n_heads)
    merged = merge_heads(attention(q, k, v, mask)[0])
    # Backward, last step first: output = merged @ W_O
    # mistakes: heads-output-for-merged, heads-output-skipped
    d_merged, d_w_o, _ = linear_backward(d_output, merged, weights["output"])
    # Merging only moves numbers to other places; the derivatives move back.
    # mistakes: heads-by-view
    d_heads = split_heads(d_merged, n_heads)
    # mistakes: heads-k-v-exchanged, attention-mask-ignored
    d_q, d_k, d_v = (merge_heads(d) for d in attention_backward(d_heads, q, k, v, mask))
    # Queries come from x, keys and values from the memory.
    # mistakes: heads-inputs-skipped, heads-sources-mixed-up
    d_x, d_w_q, _ = linear_backward(d_q, x, weights["query"])
    d_from_keys, d_w_k, _ = linear_backward(d_k, memory, weights["key"])
    d_from_values, d_w_v, _ = linear_backward(d_v, memory, weights["value"])
    # The memory is used twice, so it has two derivatives, and they add up.
    # mistakes: heads-memory-one-way, heads-memory-into-x
    d_memory = d_from_keys + d_from_values
    return d_x, d_memory, {"query": d_w_q, "key": d_w_k, "value": d_w_v, "output": d_w_o}


def encoder_block_backward(d_output, x, weights, n_heads, mask=None):
    # Forward. Every array that a backward needs keeps a name of its own.
    norm_1, norm_2 = weights["norm_1"], weights["norm_2"]
    # mistakes: block-mask-ignored
    sum_1 = x + multi_head_attention(x, x, weights["attention"], n_heads, mask)
    h = layer_norm(sum_1, norm_1["gain"], norm_1["bias"], EPS)
    sum_2 = h + feed_forward(h, weights["feed_forward"])
    # Backward, from the last norm to x. The norm is given its input, the sum.
    # mistakes: block-norm-reads-output, block-norm-reads-sub-layer, block-norms-exchanged, block-norm-skipped
    d_sum_2, d_gain_2, d_bias_2 = layer_norm_backward(d_output, sum_2, norm_2["gain"], EPS)
    # sum_2 = h + FFN(h): its derivative goes to h directly, and to h through the feed-forward network.
    # mistakes: block-sub-layer-wrong-input, block-sub-layer-gets-d-output
    d_h, d_feed_forward = feed_forward_backward(d_sum_2, h, weights["feed_forward"])
    # mistakes: block-no-residual-feed-forward, block-residual-overwritten, block-residual-around-norm
    d_h = d_h + d_sum_2
    d_sum_1, d_gain_1, d_bias_1 = layer_norm_backward(d_h, sum_1, norm_1["gain"], EPS)
    d_queries, d_memory, d_attention = multi_head_attention_backward(d_sum_1, x, x, weights["attention"], n_heads, mask)
    # sum_1 uses x three times: directly, to make queries, and to make keys and values.
    # mistakes: block-no-residual-attention, block-no-memory, block-no-queries
    d_x = d_sum_1 + d_queries + d_memory
    return d_x, {
        "attention": d_attention,
        "norm_1": {"gain": d_gain_1, "bias": d_bias_1},
        "feed_forward": d_feed_forward,
        "norm_2": {"gain": d_gain_2, "bias": d_bias_2},
    }


def embed_backward(d_output, ids, table):
    # Row i of the table is copied to all positions with the id i, so their derivatives add up.
    # mistakes: embed-starts-from-table
    d_table = np.zeros(table.shape)
    # mistakes: embed-overwritten, embed-averaged, embed-per-position, embed-positions
    np.add.at(d_table, ids, d_output)
    # The forward multiplies the rows by sqrt(D), and so does the backward. The sinusoids are constants.
    # mistakes: embed-not-scaled, embed-other-scale
    return d_table * np.sqrt(table.shape[-1])


def decoder_block_backward(d_output, x, memory, weights, n_heads, mask, memory_mask):
    norm_1, norm_2, norm_3 = weights["norm_1"], weights["norm_2"], weights["norm_3"]
    # Forward
    # mistakes: decoder-self-mask, decoder-masks-exchanged, decoder-attentions-exchanged
    sum_1 = x + multi_head_attention(x, x, weights["self_attention"], n_heads, mask)
    a = layer_norm(sum_1, norm_1["gain"], norm_1["bias"], EPS)
    # mistakes: decoder-memory-mask
    sum_2 = a + multi_head_attention(a, memory, weights["cross_attention"], n_heads, memory_mask)
    h = layer_norm(sum_2, norm_2["gain"], norm_2["bias"], EPS)
    sum_3 = h + feed_forward(h, weights["feed_forward"])
    # Backward: norm_3 and the feed-forward network
    d_sum_3, d_gain_3, d_bias_3 = layer_norm_backward(d_output, sum_3, norm_3["gain"], EPS)
    # mistakes: decoder-wrong-input
    d_h, d_feed_forward = feed_forward_backward(d_sum_3, h, weights["feed_forward"])
    # norm_2 and the cross-attention: its memory is an input of the block, so d_memory is a result
    # mistakes: block-no-residual
    d_sum_2, d_gain_2, d_bias_2 = layer_norm_backward(d_sum_3 + d_h, sum_2, norm_2["gain"], EPS)
    d_a, d_memory, d_cross = multi_head_attention_backward(
        d_sum_2, a, memory, weights["cross_attention"], n_heads, memory_mask
    )
    # norm_1 and the self-attention: its memory is x
    d_sum_1, d_gain_1, d_bias_1 = layer_norm_backward(d_sum_2 + d_a, sum_1, norm_1["gain"], EPS)
    d_queries, d_keys_and_values, d_self = multi_head_attention_backward(
        d_sum_1, x, x, weights["self_attention"], n_heads, mask
    )
    # mistakes: decoder-memory-mixed-up, block-no-memory
    d_x = d_sum_1 + d_queries + d_keys_and_values
    d_weights = {
        "self_attention": d_self,
        "norm_1": {"gain": d_gain_1, "bias": d_bias_1},
        "cross_attention": d_cross,
        "norm_2": {"gain": d_gain_2, "bias": d_bias_2},
        "feed_forward": d_feed_forward,
        "norm_3": {"gain": d_gain_3, "bias": d_bias_3},
    }
    return d_x, d_memory, d_weights
