"""A solution of exercise 9, in PyTorch without autograd. Both blocks go through one function, frame_backward."""

import torch
from torch.nn.functional import one_hot

from cutaway.course.given import feed_forward, layer_norm, multi_head_attention


def relu_backward(d_output, x):
    # Keep d_output where x is positive, and put 0 elsewhere.
    # mistakes: relu-where-d-output, relu-times-output, relu-unchanged, relu-no-d-output, relu-inverted
    return torch.where(x > 0, d_output, 0.0)


def linear_backward(d_output, x, w):
    # einsum names the axes: d is an input, f an output. An axis that is not in the result is summed over.
    # mistakes: linear-w-not-transposed
    d_x = torch.einsum("...f,df->...d", d_output, w)
    # mistakes: linear-d-w-transposed, linear-d-w-per-text, linear-mean, linear-last-row
    d_w = torch.einsum("nd,nf->df", x.flatten(0, -2), d_output.flatten(0, -2))
    # mistakes: linear-d-b-not-summed
    return d_x, d_w, d_output.flatten(0, -2).sum(dim=0)


def softmax_backward(d_output, weights):
    # weights · d_output, minus each weight's share of the sum of these products
    products = weights * d_output
    # mistakes: softmax-no-sum, softmax-like-sigmoid, softmax-plain-sum, softmax-sum-axis, softmax-sign
    return products - weights * products.sum(dim=-1, keepdim=True)


def cross_entropy_backward(logits, target, pad):
    # Probabilities minus 1 at the right token, for each token that is no padding, divided by their number
    # mistakes: ce-padding-counted, ce-pad-fixed
    real = target.ne(pad)
    # mistakes: ce-no-subtraction, ce-sign, ce-target-only, ce-one-over-p, ce-no-softmax
    d_logits = torch.softmax(logits, dim=-1) - one_hot(target, logits.shape[-1])
    # mistakes: ce-padding-not-zeroed
    d_logits[~real] = 0.0
    # mistakes: ce-not-divided, ce-divided-by-all, ce-divided-by-texts, ce-divided-by-vocabulary, ce-mean-of-means
    return d_logits / real.sum()


def layer_norm_backward(d_output, x, gain, eps):
    # mistakes: norm-unbiased, norm-no-eps
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    inverse = torch.rsqrt(variance + eps)
    normed = (x - mean) * inverse
    # mistakes: norm-no-gain, norm-gain-last
    d_normed = d_output * gain
    # Take away from d_normed its mean, and its part along the normed numbers.
    # mistakes: norm-no-mean-term, norm-only-direct
    d_x = d_normed - d_normed.mean(-1, keepdim=True)
    # mistakes: norm-no-variance-term, norm-x-for-normed, norm-sums, norm-axis, norm-term-sign
    d_x = d_x - normed * (d_normed * normed).mean(-1, keepdim=True)
    # mistakes: norm-d-gain-x, norm-parameters-times-gain, norm-parameters-not-summed, norm-parameters-mean
    d_gain, d_bias = torch.einsum("btd,btd->d", d_output, normed), torch.einsum("btd->d", d_output)
    # mistakes: norm-not-divided, norm-divided-by-variance
    return d_x * inverse, d_gain, d_bias


def feed_forward_backward(d_output, x, weights):
    # mistakes: ffn-no-b1
    before = torch.addmm(weights["b1"], x.flatten(0, 1), weights["w1"]).unflatten(0, x.shape[:2])
    # mistakes: ffn-before-relu
    d_hidden, d_w2, d_b2 = linear_backward(d_output, before.relu(), weights["w2"])
    # mistakes: ffn-relu-only-for-x, ffn-residual
    d_x, d_w1, d_b1 = linear_backward(relu_backward(d_hidden, before), x, weights["w1"])
    return d_x, {"w1": d_w1, "b1": d_b1, "w2": d_w2, "b2": d_b2}


def attention_backward(d_output, q, k, v, mask=None):
    # 1/sqrt(d_k) is a factor of q here: scaled = q / sqrt(d_k), scores = scaled kᵀ
    # mistakes: attention-no-scale, attention-scale-times, attention-scale-d, attention-scale-one-side
    scale = q.shape[-1] ** -0.5
    scaled = q * scale
    scores = scaled @ k.mT
    # mistakes: attention-mask-ignored, attention-mask-late, attention-mask-inverted
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = scores.softmax(dim=-1)
    # mistakes: attention-no-softmax, attention-keys-for-values
    d_scores = softmax_backward(d_output @ v.mT, weights)
    # mistakes: attention-exchanged, attention-q-for-k, attention-d-k-not-transposed, attention-d-v-not-transposed
    return d_scores @ k * scale, d_scores.mT @ scaled, weights.mT @ d_output


def multi_head_attention_backward(d_output, x, memory, weights, n_heads, mask=None):
    def split(y):
        return y.unflatten(-1, (n_heads, -1)).transpose(1, 2)

    def merge(y):
        return y.transpose(1, 2).flatten(2)

    # mistakes: heads-one, heads-scale-model-width
    q, k, v = split(x @ weights["query"]), split(memory @ weights["key"]), split(memory @ weights["value"])
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    merged = merge(scores.softmax(dim=-1) @ v)
    # mistakes: heads-output-for-merged, heads-output-skipped
    d_merged, d_w_o, _ = linear_backward(d_output, merged, weights["output"])
    # mistakes: heads-by-view, heads-k-v-exchanged, attention-mask-ignored
    d_q, d_k, d_v = map(merge, attention_backward(split(d_merged), q, k, v, mask))
    # The matrices: what went in, times the derivative of what came out
    # mistakes: heads-sources-mixed-up
    d_weights = {
        "query": torch.einsum("bqi,bqj->ij", x, d_q),
        "key": torch.einsum("bki,bkj->ij", memory, d_k),
        "value": torch.einsum("bki,bkj->ij", memory, d_v),
        "output": d_w_o,
    }
    # mistakes: heads-memory-one-way, heads-memory-into-x, heads-inputs-skipped
    d_memory = d_k @ weights["key"].mT + d_v @ weights["value"].mT
    return d_q @ weights["query"].mT, d_memory, d_weights


def frame_backward(d_output, x, sub_layer, sub_layer_backward, norm):
    """The derivatives of LayerNorm(x + Sublayer(x)): of x, of the norm, and what the sub-layer's backward adds."""
    # mistakes: block-norm-reads-output, block-norm-reads-sub-layer
    added = x + sub_layer(x)
    # mistakes: block-norm-skipped, block-norms-exchanged
    d_added, d_gain, d_bias = layer_norm_backward(d_output, added, norm["gain"], 1e-5)
    # mistakes: block-sub-layer-gets-d-output, block-sub-layer-wrong-input
    d_through, *others = sub_layer_backward(d_added, x)
    # x is used twice: by the residual connection, and by the sub-layer.
    # mistakes: block-no-residual, block-no-sub-layer, block-residual-around-norm
    return d_added + d_through, {"gain": d_gain, "bias": d_bias}, *others


def self_attention_backward(d_output, x, weights, n_heads, mask):
    # x asks, and x is looked at: two derivatives of the same array
    # mistakes: block-no-memory, block-no-queries
    d_x, d_memory, d_weights = multi_head_attention_backward(d_output, x, x, weights, n_heads, mask)
    return d_x + d_memory, d_weights


def encoder_block_backward(d_output, x, weights, n_heads, mask=None):
    w = weights

    # mistakes: block-mask-ignored
    def attend(x):
        return multi_head_attention(x, x, w["attention"], n_heads, mask)

    h = layer_norm(x + attend(x), w["norm_1"]["gain"], w["norm_1"]["bias"], 1e-5)
    # From the end to the beginning: first norm_2 and the feed-forward network, then norm_1 and the attention
    d_h, d_norm_2, d_feed_forward = frame_backward(
        d_output,
        h,
        lambda h: feed_forward(h, w["feed_forward"]),
        lambda d, h: feed_forward_backward(d, h, w["feed_forward"]),
        w["norm_2"],
    )
    d_x, d_norm_1, d_attention = frame_backward(
        d_h,
        x,
        attend,
        lambda d, x: self_attention_backward(d, x, w["attention"], n_heads, mask),
        w["norm_1"],
    )
    return d_x, {"attention": d_attention, "norm_1": d_norm_1, "feed_forward": d_feed_forward, "norm_2": d_norm_2}


def embed_backward(d_output, ids, table):
    # index_add adds up rows with the same index. Everything begins with 0.
    # mistakes: embed-starts-from-table
    zeros = torch.zeros_like(table)
    # mistakes: embed-not-scaled, embed-other-scale, embed-positions
    rows = d_output.flatten(0, 1) * table.shape[1] ** 0.5
    # mistakes: embed-overwritten, embed-averaged, embed-per-position
    return zeros.index_add(0, ids.flatten(), rows)


def decoder_block_backward(d_output, x, memory, weights, n_heads, mask, memory_mask):
    w = weights

    # mistakes: decoder-self-mask, decoder-masks-exchanged, decoder-attentions-exchanged
    def self_attend(x):
        return multi_head_attention(x, x, w["self_attention"], n_heads, mask)

    # mistakes: decoder-memory-mask
    def cross_attend(x):
        return multi_head_attention(x, memory, w["cross_attention"], n_heads, memory_mask)

    def cross_backward(d, x):
        return multi_head_attention_backward(d, x, memory, w["cross_attention"], n_heads, memory_mask)

    a = layer_norm(x + self_attend(x), w["norm_1"]["gain"], w["norm_1"]["bias"], 1e-5)
    h = layer_norm(a + cross_attend(a), w["norm_2"]["gain"], w["norm_2"]["bias"], 1e-5)
    # mistakes: decoder-wrong-input
    d_h, d_norm_3, d_feed_forward = frame_backward(
        d_output,
        h,
        lambda h: feed_forward(h, w["feed_forward"]),
        lambda d, h: feed_forward_backward(d, h, w["feed_forward"]),
        w["norm_3"],
    )
    # mistakes: decoder-memory-mixed-up
    d_a, d_norm_2, d_memory, d_cross = frame_backward(d_h, a, cross_attend, cross_backward, w["norm_2"])
    d_x, d_norm_1, d_self = frame_backward(
        d_a,
        x,
        self_attend,
        lambda d, x: self_attention_backward(d, x, w["self_attention"], n_heads, mask),
        w["norm_1"],
    )
    d_weights = {"self_attention": d_self, "norm_1": d_norm_1, "cross_attention": d_cross, "norm_2": d_norm_2}
    return d_x, d_memory, {**d_weights, "feed_forward": d_feed_forward, "norm_3": d_norm_3}
