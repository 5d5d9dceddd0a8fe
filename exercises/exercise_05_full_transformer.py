"""Exercise 5. The whole Transformer          (the paper, figure 1 and sections 3.2.3, 3.4, 5.3; lessons 7 and 8)

                                                     logits [B,T,V]
                                                          ▲
                                                   embedding matrixᵀ
                                                          │
              memory [B,S,D]                       ┌──────┴──────────┐
          ┌────────────────┐                       │  feed-forward   │
      N × │    encoder     ├──────────────────────▶│ cross-attention │ × N
          └───────▲────────┘                       │ self-attention  │
                  │                                └──────▲──────────┘
            embed(source)                          embed(target, shifted right)

    lrate = d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)                                    equation 3

Replace each `raise NotImplementedError` and check yourself as often as you like:

    cutaway check 5             which parts are right, and what is wrong with the others
    cutaway check 5 --watch     the same again each time you save this file
    cutaway check 5 --hint      a stronger hint
    cutaway check 5 --think     the line of thought that leads to a solution
    cutaway check 5 --solution  our solution, explained

You work with NumPy arrays. If you prefer PyTorch, write `import torch` instead: you are then given tensors. Return new
arrays: do not change those that you are given. Later functions can call earlier ones.

What earlier exercises built is here, ready made. If you solved them (with the same library), you can use your own
instead:

    from exercise_04_encoder_block import encoder, feed_forward, layer_norm
"""

import numpy as np

from cutaway.course.given import (
    embed,  # (ids [B, T], table [V, D]) -> [B, T, D]: scaled, with positions
    encoder,  # (x, layers, n_heads, mask=None) -> [B, S, D]
    feed_forward,  # (x, weights) -> [B, T, D]
    layer_norm,  # (x, gain, bias, eps) -> [B, T, D]
    multi_head_attention,  # (x, memory, weights, n_heads, mask=None) -> [B, T, D]
    softmax,  # (x) -> the same shape, along the last axis; large numbers do it no harm
)


def real_tokens(ids, pad):
    """Which ids are tokens, and which only fill up a text that is shorter than the others. (A warm-up.)

    ids: [B, T]
    pad: the id of padding

    -> [B, T], True where there is a token

    real_tokens([[5, 9]], 9) is [[True, False]].
    """
    raise NotImplementedError


def shift_right(target, start):
    """What the decoder reads while it learns: at each position the token before the one that it has to say.

    target: [B, T], ids of tokens
    start: the id that stands before every text

    -> [B, T]: start, then the target without its last id

    shift_right([[5, 6, 7]], 1) is [[1, 5, 6]]: it reads 1 and has to say 5, reads 5 and has to say 6, and so on.
    """
    raise NotImplementedError


def padding_mask(ids, pad):
    """Which keys are tokens, and which only fill up a text that is shorter than the others.

    ids: [B, K]
    pad: the id of padding

    -> [B, 1, 1, K], True where there is a token: True = may attend

    The axes of length 1 stand for all heads and all queries: the mask broadcasts to scores of shape [B, H, Q, K].
    Padding may stand anywhere, not only at the end of a text.
    """
    raise NotImplementedError


def decoder_mask(ids, pad):
    """What the decoder may look at in its own text: neither the future nor padding.

    ids: [B, T]
    pad: the id of padding

    -> [B, 1, T, T], True where the query (row) may look at the key (column)

    For the ids [5, 6, pad] the rows are [True, False, False], [True, True, False], [True, True, False]. Padding may
    stand anywhere, not only at the end of a text.
    """
    raise NotImplementedError


def decoder_block(x, memory, weights, n_heads, mask, memory_mask):
    """One layer of the decoder, from below: self-attention, cross-attention to the memory, feed-forward.

    x: [B, T, D]         the target so far
    memory: [B, S, D]    what the encoder made of the source
    weights: {"self_attention": {"query", "key", "value", "output"}, "norm_1": {"gain", "bias"},
              "cross_attention": {"query", "key", "value", "output"}, "norm_2": {"gain", "bias"},
              "feed_forward": {"w1", "b1", "w2", "b2"}, "norm_3": {"gain", "bias"}}
    mask: None, or what broadcasts to [B, H, T, T], for the self-attention
    memory_mask: None, or what broadcasts to [B, H, T, S], for the cross-attention

    -> [B, T, D]

    Around each of the three sub-layers stands LayerNorm(x + Sublayer(x)); eps of the norms is 1e-5. In the
    cross-attention x asks, and the memory is looked at.
    """
    raise NotImplementedError


def decoder(x, memory, layers, n_heads, mask, memory_mask):
    """Decoder blocks on top of each other.

    x: [B, T, D], memory: [B, S, D]
    layers: a list with the weights of each layer, as decoder_block takes them; layers[0] comes first
    n_heads, mask, memory_mask: the same for all layers

    -> [B, T, D], what the last layer gives
    """
    raise NotImplementedError


def token_logits(x, table):
    """How well each token of the vocabulary would fit at each place.

    x: [B, T, D]     what leaves the decoder
    table: [V, D]    the vectors of all tokens

    -> [B, T, V]: for each token, the dot product of x and its vector. No softmax.
    """
    raise NotImplementedError


def transformer(source, target_in, weights, n_heads, pad):
    """Figure 1, from ids to logits.

    source: [B, S]       ids of the text to be read
    target_in: [B, T]    ids that the decoder reads: the target, shifted right already
    weights: {"embedding": [V, D], "encoder": [weights of each layer], "decoder": [weights of each layer]}
    pad: the id of padding, in source and target_in

    -> logits [B, T, V]: one number for each token that could follow each position. No softmax: the loss does that.

    One matrix has three places (section 3.4): it embeds the source, it embeds the target, and transposed it turns the
    decoder's output into logits. No attention may look at padding, and the decoder's self-attention not at the future
    either. All decoder layers look at the same memory, what the last encoder layer gives.
    """
    raise NotImplementedError


def token_losses(logits, target):
    """How surprised the model is by each of the right tokens.

        -log p(target),    p = softmax(logits)

    logits: [B, T, V]
    target: [B, T], the right ids (not shifted: logits[:, t] speaks of target[:, t])

    -> [B, T]

    The logarithm is the natural one. If the model gives each of four tokens the probability 1/4, each loss is log 4 =
    1.386. It has to work for large logits too, as in exercise 1, and for tokens that the model thinks impossible: for
    the logits [0, 1000] and the target 0 the loss is 1000.
    """
    raise NotImplementedError


def cross_entropy(logits, target, pad):
    """How surprised the model is by the right tokens, on average.

        -log p(target),    p = softmax(logits)

    logits: [B, T, V]
    target: [B, T], the right ids (not shifted: logits[:, t] speaks of target[:, t])
    pad: the id of padding

    -> one number: the mean over all tokens of all texts that are not padding

    The logarithm is the natural one. If the model gives each of four tokens the probability 1/4, the loss is log 4 =
    1.386. It has to work for large logits too, as in exercise 1, and for tokens that the model thinks impossible: for
    the logits [0, 1000] and the target 0 the loss is 1000.
    """
    raise NotImplementedError


def learning_rate(step, d_model, warmup):
    """How large a step the paper's training takes: climbing at first, then falling (equation 3).

    step: 1, 2, 3, ...
    d_model: the width D of the model
    warmup: for how many steps it climbs

    -> one number. learning_rate(1, 4, 4) is 0.0625.
    """
    raise NotImplementedError
