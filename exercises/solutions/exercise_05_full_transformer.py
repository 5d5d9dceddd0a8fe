"""A solution of exercise 5, in NumPy. There are other ways to write it that are just as right."""

import numpy as np

from cutaway.course.given import embed, encoder, feed_forward, layer_norm, multi_head_attention

EPS = 1e-5


def real_tokens(ids, pad):
    # mistakes: padding-inverted, pad-fixed
    return ids != pad  # compares each id with pad


def shift_right(target, start):
    # mistakes: start-fixed
    first = np.full((len(target), 1), start)  # a column [B, 1]
    # mistakes: last-kept, start-at-the-end, shifted-left
    return np.concatenate([first, target[:, :-1]], axis=1)  # the last id falls off


def padding_mask(ids, pad):
    # Two new axes of length 1, for heads and queries: [B, K] -> [B, 1, 1, K].
    # mistakes: mask-flat, mask-without-heads, padding-as-queries
    return real_tokens(ids, pad)[:, None, None, :]


def decoder_mask(ids, pad):
    n = ids.shape[1]
    # mistakes: mask-transposed, future-leak, not-itself
    causal = np.tril(np.ones((n, n), dtype=bool))
    # [T, T] and [B, 1, 1, T] broadcast to [B, 1, T, T]. Both conditions have to hold.
    # mistakes: mask-or, causal-only, padding-only
    return causal & padding_mask(ids, pad)


def decoder_block(x, memory, weights, n_heads, mask, memory_mask):
    norm_1, norm_2, norm_3 = weights["norm_1"], weights["norm_2"], weights["norm_3"]
    # The target looks at itself.
    # mistakes: no-self-attention, target-mask-ignored, cross-first, same-attention, no-residual-self
    self_output = multi_head_attention(x, x, weights["self_attention"], n_heads, mask)
    x = layer_norm(x + self_output, norm_1["gain"], norm_1["bias"], EPS)
    # The target looks at the source: x asks, memory is looked at.
    # mistakes: cross-looks-at-itself, queries-and-memory-exchanged, memory-mask-ignored, masks-exchanged
    cross_output = multi_head_attention(x, memory, weights["cross_attention"], n_heads, memory_mask)
    x = layer_norm(x + cross_output, norm_2["gain"], norm_2["bias"], EPS)
    # mistakes: no-feed-forward, one-norm, same-norm, no-residual-feed-forward
    feed_forward_output = feed_forward(x, weights["feed_forward"])
    return layer_norm(x + feed_forward_output, norm_3["gain"], norm_3["bias"], EPS)


def decoder(x, memory, layers, n_heads, mask, memory_mask):
    # x is replaced by what the layer gives; memory and the masks stay.
    # mistakes: decoder-last-only, decoder-first-only, decoder-shared-weights, decoder-memory-replaced
    for weights in layers:
        x = decoder_block(x, memory, weights, n_heads, mask, memory_mask)
    return x


def token_logits(x, table):
    # [B, T, D] @ [D, V]: a dot product with each row of the table.
    # mistakes: table-not-transposed, softmax-on-logits
    return x @ table.T


def transformer(source, target_in, weights, n_heads, pad):
    embedding = weights["embedding"]
    # mistakes: padding-seen
    source_mask = padding_mask(source, pad)
    # All layers of the encoder first: what the last one gives is the memory.
    # mistakes: source-padding-seen, memory-is-embedding, source-target-exchanged
    memory = encoder(embed(source, embedding), weights["encoder"], n_heads, source_mask)
    # The same table embeds the target. It is shifted already.
    # mistakes: shifted-again, no-target-positions
    x = embed(target_in, embedding)
    # mistakes: padding-only, causal-only, target-mask-ignored, memory-padding-seen
    x = decoder(x, memory, weights["decoder"], n_heads, decoder_mask(target_in, pad), source_mask)
    return token_logits(x, embedding)


def token_losses(logits, target):
    # mistakes: no-maximum, one-maximum
    shifted = logits - np.max(logits, axis=-1, keepdims=True)  # p stays the same, and e^ cannot overflow
    # log p = logit - log(sum of e^logit). The division is a difference here, and p itself is never computed: it
    # could become 0, and log 0 is minus infinity.
    # mistakes: log-of-softmax, no-softmax, log-base
    all_losses = np.log(np.exp(shifted).sum(axis=-1, keepdims=True)) - shifted  # [B, T, V]
    # Of the V numbers at each position take that of the target.
    # mistakes: all-tokens, sign
    return np.take_along_axis(all_losses, target[:, :, None], axis=-1)[:, :, 0]


def cross_entropy(logits, target, pad):
    # Padding is left out of the sum and of the count; then all tokens of all texts count the same.
    # mistakes: padding-counted, divided-by-all, mean-of-means, targets-shifted
    real = real_tokens(target, pad)
    return token_losses(logits, target)[real].mean()


def learning_rate(step, d_model, warmup):
    # mistakes: max, width-times, warmup-exponent, step-not-rooted
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
