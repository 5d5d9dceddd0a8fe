"""Edits of right answers to exercise 5 that produce each known mistake, in at least two styles.

(part, mistake) -> {style: [(old text, new text), ...]}
"""

SHIFTED = "np.concatenate([first, target[:, :-1]], axis=1)"
INSERT_AND_POP = "        row.insert(0, start)\n        row.pop()\n"
REAL = "real_tokens(ids, pad)[:, None, None, :]"
TORCH_REAL = "ids.ne(pad).unsqueeze(1).unsqueeze(2)"
BOTH = "causal & padding_mask(ids, pad)"
TORCH_BOTH = "torch.logical_and(not_future, padding_mask(ids, pad))"
J_AND_REAL = "j <= i and ids[b, j] != pad"

SELF_HALF = """    self_output = multi_head_attention(x, x, weights["self_attention"], n_heads, mask)
    x = layer_norm(x + self_output, norm_1["gain"], norm_1["bias"], EPS)
"""
CROSS_COMMENT = """    # The target looks at the source: x asks, memory is looked at.
    # mistakes: cross-looks-at-itself, queries-and-memory-exchanged, memory-mask-ignored, masks-exchanged
"""
CROSS_HALF = """    cross_output = multi_head_attention(x, memory, weights["cross_attention"], n_heads, memory_mask)
    x = layer_norm(x + cross_output, norm_2["gain"], norm_2["bias"], EPS)
"""
TORCH_SELF = '    x = add_and_norm(x, attend("self_attention", x, x, mask), weights["norm_1"])\n'
TORCH_CROSS = '    x = add_and_norm(x, attend("cross_attention", x, memory, memory_mask), weights["norm_2"])\n'
LOOP_SELF = 'a = norm(x + attend(x, x, weights["self_attention"], n_heads, mask), weights["norm_1"])'
LOOP_CROSS = 'b = norm(a + attend(a, memory, weights["cross_attention"], n_heads, memory_mask), weights["norm_2"])'
LOOP_THINK = 'norm(b + apply_feed_forward(b, weights["feed_forward"]), weights["norm_3"])'

ENCODED = 'memory = encoder(embed(source, embedding), weights["encoder"], n_heads, source_mask)'
TORCH_ENCODED = 'encoder(embed(source, weights["embedding"]), weights["encoder"], n_heads, padding_mask(source, pad))'
LAYERS = 'for layer in weights["decoder"]:\n'
BLOCK = "decoder_block(x, memory, layer, n_heads, decoder_mask(target_in, pad), source_mask)"
LOOP_ENCODER = """    for layer in weights["encoder"]:
        memory = encoder_layer(memory, layer, n_heads, real)
"""

LOG_P = "log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))"
MEAN = "nll[real].sum() / real.sum()"
TORCH_NLL = "nll = logits.logsumexp(dim=-1) - of_target"
TORCH_P = "p = logits.softmax(-1).gather(-1, target.unsqueeze(-1)).squeeze(-1)\n    "
TORCH_MEAN = "(nll * weight).sum() / weight.sum()"
LOOP_LOSS = "total -= logits[b, t, right] - largest - math.log(sum(powers))"

RATE = "d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)"
TORCH_RATE = """    if step < warmup:
        return step / (warmup * math.sqrt(warmup * d_model))
    return 1 / math.sqrt(step * d_model)
"""

# Before the edits, some functions of the solutions are written out, so that an edit has an effect on them alone.
WRITTEN_OUT = {
    ("transformer", "numpy"): [
        (
            '    x = decoder(x, memory, weights["decoder"], n_heads, decoder_mask(target_in, pad), source_mask)\n'
            "    return token_logits(x, embedding)\n",
            '    for layer in weights["decoder"]:\n'
            "        x = decoder_block(x, memory, layer, n_heads, decoder_mask(target_in, pad), source_mask)\n"
            "    return x @ embedding.T\n",
        ),
    ],
    ("transformer", "torch"): [
        (
            '    return decoder(x, memory, weights["decoder"], n_heads, mask, memory_mask)\n',
            '    for layer in weights["decoder"]:\n'
            "        x = decoder_block(x, memory, layer, n_heads, mask, memory_mask)\n    return x\n",
        ),
        ("token_logits(x, weights", "torch.nn.functional.linear(x, weights"),
    ],
    ("cross_entropy", "numpy"): [
        (
            "    real = real_tokens(target, pad)\n    return token_losses(logits, target)[real].mean()\n",
            "    logits = logits - logits.max(axis=-1, keepdims=True)\n"
            f"    {LOG_P}\n    nll = -np.take_along_axis(log_p, target[:, :, None], axis=-1)[:, :, 0]\n"
            f"    real = target != pad\n    return {MEAN}\n",
        ),
    ],
    ("cross_entropy", "torch"): [
        (
            "    counts = real_tokens(target, pad).float()\n"
            "    return (token_losses(logits, target) * counts).sum() / counts.sum()\n",
            f"    of_target = logits.gather(-1, target.unsqueeze(-1)).squeeze(-1)\n    {TORCH_NLL}\n"
            f"    weight = (target != pad).float()\n    return {TORCH_MEAN}\n",
        ),
    ],
}
ALL_LOSSES = "np.log(np.exp(shifted).sum(axis=-1, keepdims=True)) - shifted"
TAKEN = "np.take_along_axis(all_losses, target[:, :, None], axis=-1)[:, :, 0]"
TORCH_LOG_P = "logits - torch.logsumexp(logits, dim=-1, keepdim=True)"
TORCH_TAKEN = "-log_p.gather(-1, target.unsqueeze(-1)).squeeze(-1)"
LOOP_LOSS_OF_TOKEN = "math.log(total) + max(z) - z[right]"
LOOP_FIRST = "x = decoder_block(x, memory, first, n_heads, mask, memory_mask)"
LOOP_OTHERS = "return decoder(x, memory, others, n_heads, mask, memory_mask)"
BLOCK_IN_STACK = "        x = decoder_block(x, memory, weights, n_heads, mask, memory_mask)\n"
EINSUM_LOGITS = 'torch.einsum("btd,vd->btv", x, table)'

EDITS = {
    ("real_tokens", "padding-inverted"): {
        "numpy": [("return ids != pad", "return ids == pad")],
        "torch": [("ids.not_equal(pad)", "ids == pad")],
        "loops": [("token != pad", "token == pad")],
    },
    ("real_tokens", "pad-fixed"): {
        "numpy": [("return ids != pad", "return ids != 0")],
        "torch": [("ids.not_equal(pad)", "ids.bool()")],
    },
    ("real_tokens", "tokens-counted"): {
        "numpy": [("return ids != pad", "return (ids != pad).sum(axis=1)")],
        "torch": [("ids.not_equal(pad)", "ids.not_equal(pad).sum()")],
    },
    ("real_tokens", "ids-kept"): {
        "numpy": [("return ids != pad", "return ids[ids != pad]")],
        "torch": [("ids.not_equal(pad)", "ids * (ids != pad)")],
    },
    ("decoder", "decoder-shared-weights"): {
        "torch": [("return reduce(apply, layers, x)", "return reduce(apply, [layers[0]] * len(layers), x)")],
        "numpy": [(BLOCK_IN_STACK, BLOCK_IN_STACK.replace("weights", "layers[-1]"))],
    },
    ("decoder", "decoder-last-only"): {
        "numpy": [(BLOCK_IN_STACK + "    return x", BLOCK_IN_STACK.replace("x =", "y =") + "    return y")],
        "torch": [("return reduce(apply, layers, x)", "return [apply(x, layer) for layer in layers][-1]")],
    },
    ("decoder", "decoder-first-only"): {
        "numpy": [(BLOCK_IN_STACK + "    return x", BLOCK_IN_STACK + "        return x")],
        "loops": [(LOOP_OTHERS, "return x")],
    },
    ("decoder", "decoder-without-last"): {
        "numpy": [("for weights in layers:", "for weights in layers[:-1]:")],
        "loops": [("if not layers:", "if len(layers) < 2:")],
    },
    ("decoder", "decoder-reversed"): {
        "torch": [("reduce(apply, layers, x)", "reduce(apply, layers[::-1], x)")],
        "loops": [("first, *others = layers", "*others, first = layers")],
    },
    ("decoder", "decoder-outputs-added"): {
        "numpy": [(BLOCK_IN_STACK, BLOCK_IN_STACK.replace("x =", "y =") + "        last, x = y, x + y\n"), ("    return x\n\n\ndef token_logits", "    return last\n\n\ndef token_logits")],
        "torch": [
            (
                "return reduce(apply, layers, x)",
                "for layer in layers:\n        read, x = x, apply(x, layer)\n        last, x = x, read + x\n    return last",
            )
        ],
    },
    ("decoder", "decoder-memory-replaced"): {
        "numpy": [(BLOCK_IN_STACK + "    return x", BLOCK_IN_STACK.replace("x =", "memory =") + "    return memory")],
        "loops": [
            (LOOP_FIRST, LOOP_FIRST.replace("x =", "memory =")),
            ("    if not layers:\n        return x", "    if not layers:\n        return memory"),
        ],
    },
    ("decoder", "decoder-all-outputs"): {
        "numpy": [(BLOCK_IN_STACK + "    return x", "        seen = [*locals().get('seen', []), decoder_block(x, memory, weights, n_heads, mask, memory_mask)]\n        x = seen[-1]\n    return seen")],
        "torch": [
            (
                "return reduce(apply, layers, x)",
                "seen = [x]\n    for layer in layers:\n        seen.append(apply(seen[-1], layer))\n    return torch.stack(seen[1:])",
            )
        ],
    },
    ("decoder", "masks-exchanged"): {
        "numpy": [("weights, n_heads, mask, memory_mask)\n    return x\n\n\ndef token", "weights, n_heads, memory_mask, mask)\n    return x\n\n\ndef token")],
        "loops": [("def decoder(x, memory, layers, n_heads, mask, memory_mask)", "def decoder(x, memory, layers, n_heads, memory_mask, mask)"), (LOOP_OTHERS, LOOP_OTHERS.replace("mask, memory_mask", "memory_mask, mask"))],
    },
    ("decoder", "target-mask-ignored"): {
        "numpy": [("weights, n_heads, mask, memory_mask)\n    return x\n\n\ndef token", "weights, n_heads, None, memory_mask)\n    return x\n\n\ndef token")],
        "loops": [("first, n_heads, mask, memory_mask)", "first, n_heads, None, memory_mask)")],
    },
    ("decoder", "memory-mask-ignored"): {
        "numpy": [("weights, n_heads, mask, memory_mask)\n    return x\n\n\ndef token", "weights, n_heads, mask, None)\n    return x\n\n\ndef token")],
        "loops": [("first, n_heads, mask, memory_mask)", "first, n_heads, mask, None)")],
    },
    ("token_logits", "table-not-transposed"): {
        "numpy": [("x @ table.T", "x @ table")],
        "torch": [(EINSUM_LOGITS, "torch.matmul(x, table)")],
    },
    ("token_logits", "softmax-on-logits"): {
        "torch": [(EINSUM_LOGITS, f"torch.softmax({EINSUM_LOGITS}, dim=-1)")],
        "numpy": [("return x @ table.T", "powers = np.exp(x @ table.T)\n    return np.log(powers / powers.sum(-1, keepdims=True))")],
    },
    ("token_logits", "logits-scaled"): {
        "numpy": [("x @ table.T", "x @ table.T / np.sqrt(x.shape[-1])")],
        "torch": [(EINSUM_LOGITS, f"{EINSUM_LOGITS} * x.size(-1) ** 0.5")],
    },
    ("token_logits", "largest-only"): {
        "numpy": [("x @ table.T", "(x @ table.T).argmax(axis=-1)")],
        "torch": [(EINSUM_LOGITS, f"{EINSUM_LOGITS}.max(dim=-1).indices")],
    },
    ("token_losses", "all-tokens"): {
        "numpy": [("return " + TAKEN, "return all_losses")],
        "torch": [("return " + TORCH_TAKEN, "return -log_p")],
    },
    ("token_losses", "losses-averaged"): {
        "numpy": [(TAKEN, TAKEN + ".mean()")],
        "torch": [(TORCH_TAKEN, TORCH_TAKEN + ".sum()")],
    },
    ("token_losses", "log-base"): {
        "numpy": [(TAKEN, TAKEN + " / np.log(2)")],
        "loops": [(LOOP_LOSS_OF_TOKEN, f"({LOOP_LOSS_OF_TOKEN}) / math.log(10)")],
    },
    ("token_losses", "sign"): {
        "torch": [(TORCH_TAKEN, TORCH_TAKEN[1:])],
        "loops": [(LOOP_LOSS_OF_TOKEN, "z[right] - max(z) - math.log(total)")],
    },
    ("token_losses", "no-logarithm"): {
        "torch": [(TORCH_TAKEN, TORCH_TAKEN.replace("log_p", "log_p.exp()"))],
        "loops": [(LOOP_LOSS_OF_TOKEN, "1 - math.exp(z[right] - max(z)) / total")],
    },
    ("token_losses", "no-softmax"): {
        "numpy": [(ALL_LOSSES, "-np.log(logits)")],
        "torch": [(TORCH_LOG_P, "logits")],
    },
    ("token_losses", "softmax-twice"): {
        "torch": [(TORCH_LOG_P, "logits.softmax(-1).log_softmax(-1)")],
        "numpy": [("    # log p = logit", "    shifted = np.exp(shifted) / np.exp(shifted).sum(axis=-1, keepdims=True)\n    # log p = logit")],
    },
    ("token_losses", "log-of-softmax"): {
        "numpy": [(ALL_LOSSES, "-np.log(np.exp(shifted) / np.exp(shifted).sum(axis=-1, keepdims=True))")],
        "torch": [(TORCH_LOG_P, "torch.softmax(logits, -1).log()")],
    },
    ("token_losses", "no-maximum"): {
        "numpy": [("shifted = logits - np.max(logits, axis=-1, keepdims=True)", "shifted = logits")],
        "torch": [(TORCH_LOG_P, "logits - logits.exp().sum(-1, keepdim=True).log()")],
    },
    ("token_losses", "one-maximum"): {
        "numpy": [("np.max(logits, axis=-1, keepdims=True)", "np.max(logits)")],
        "torch": [(TORCH_LOG_P, "(logits - logits.max()) - (logits - logits.max()).exp().sum(-1, keepdim=True).log()")],
    },
    ("shift_right", "not-shifted"): {
        "numpy": [(SHIFTED, "target")],
        "torch": [("target.roll(1, dims=1)\n    shifted[:, 0] = start", "target.clone()")],
        "loops": [(INSERT_AND_POP, "")],
    },
    ("shift_right", "shifted-left"): {
        "numpy": [(SHIFTED, "np.concatenate([target[:, 1:], first], axis=1)")],
        "torch": [("roll(1, dims=1)\n    shifted[:, 0] = start", "roll(-1, dims=1)")],
        "loops": [(INSERT_AND_POP, "        row.append(start)\n        row.pop(0)\n")],
    },
    ("shift_right", "rolled"): {
        "numpy": [(SHIFTED, "np.roll(target, 1, axis=1)")],
        "torch": [("    shifted[:, 0] = start", "    #")],
        "loops": [(INSERT_AND_POP, "        row.insert(0, row.pop())\n")],
    },
    ("shift_right", "shifted-by-two"): {
        "numpy": [(SHIFTED, "np.concatenate([first, first, target[:, :-2]], axis=1)")],
        "torch": [("roll(1, dims=1)\n    shifted[:, 0]", "roll(2, dims=1)\n    shifted[:, :2]")],
        "loops": [(INSERT_AND_POP, INSERT_AND_POP + INSERT_AND_POP)],
    },
    ("shift_right", "start-at-the-end"): {
        "numpy": [("[first, target[:, :-1]]", "[target[:, :-1], first]")],
        "torch": [("target.roll(1, dims=1)\n    shifted[:, 0]", "target.clone()\n    shifted[:, -1]")],
        "loops": [(INSERT_AND_POP, "        row.append(start)\n")],
    },
    ("shift_right", "last-kept"): {
        "numpy": [("target[:, :-1]", "target")],
        "loops": [("        row.pop()\n", "")],
    },
    ("shift_right", "first-overwritten"): {
        "torch": [("target.roll(1, dims=1)", "target.clone()")],
        "loops": [(INSERT_AND_POP, "        row[0] = start\n")],
    },
    ("shift_right", "no-start"): {
        "numpy": [(SHIFTED, "target[:, :-1]")],
        "loops": [("        row.insert(0, start)\n", "")],
    },
    ("shift_right", "start-fixed"): {
        "numpy": [("np.full((len(target), 1), start)", "np.zeros((len(target), 1))")],
        "torch": [("shifted[:, 0] = start", "shifted[:, 0] = 1")],
    },
    ("padding_mask", "padding-inverted"): {
        "numpy": [(REAL, "(ids == pad)[:, None, None, :]")],
        "torch": [("ids.ne(pad)", "ids.eq(pad)")],
        "loops": [("i != pad for i", "i == pad for i")],
    },
    ("padding_mask", "pad-fixed"): {
        "numpy": [(REAL, "(ids > 0)[:, None, None, :]")],
        "loops": [("i != pad for i", "i != 1 for i")],
    },
    ("padding_mask", "padding-as-queries"): {
        "numpy": [("[:, None, None, :]", "[:, None, :, None]")],
        "torch": [("unsqueeze(1).unsqueeze(2)", "unsqueeze(1).unsqueeze(-1)")],
    },
    ("padding_mask", "mask-flat"): {
        "numpy": [(REAL, "ids != pad")],
        "torch": [(TORCH_REAL, "ids.ne(pad)")],
    },
    ("padding_mask", "mask-without-heads"): {
        "numpy": [(REAL, "(ids != pad)[:, None]")],
        "torch": [(TORCH_REAL, "ids.ne(pad).unsqueeze(1)")],
        "loops": [("[[[[i != pad for i in row]]] for row in ids]", "[[[i != pad for i in row]] for row in ids]")],
    },
    ("padding_mask", "mask-additive"): {
        "numpy": [(REAL, "np.where(ids != pad, 0.0, -1e9)[:, None, None, :]")],
        "torch": [(TORCH_REAL, 'torch.zeros(ids.shape).masked_fill(ids == pad, float("-inf"))[:, None, None]')],
    },
    ("decoder_mask", "mask-or"): {
        "numpy": [(BOTH, "causal | padding_mask(ids, pad)")],
        "torch": [("torch.logical_and(", "torch.logical_or(")],
        "loops": [("j <= i and", "j <= i or")],
    },
    ("decoder_mask", "causal-only"): {
        "numpy": [(BOTH, "causal[None, None]")],
        "torch": [(TORCH_BOTH, "not_future")],
        "loops": [(J_AND_REAL, "j <= i")],
    },
    ("decoder_mask", "padding-only"): {
        "numpy": [(BOTH, "padding_mask(ids, pad)")],
        "loops": [(J_AND_REAL, "ids[b, j] != pad")],
    },
    ("decoder_mask", "padding-as-queries"): {
        "numpy": [(BOTH, "causal & (ids != pad)[:, None, :, None]")],
        "torch": [("padding_mask(ids, pad))", "padding_mask(ids, pad).mT)")],
        "loops": [("ids[b, j] != pad", "ids[b, i] != pad")],
    },
    ("decoder_mask", "padding-rows-too"): {
        "numpy": [(BOTH, f"{BOTH} & (ids != pad)[:, None, :, None]")],
        "torch": [("torch.logical_and(not_future, ", "torch.logical_and(not_future & padding_mask(ids, pad).mT, ")],
        "loops": [(J_AND_REAL, "j <= i and pad not in (ids[b, i], ids[b, j])")],
    },
    ("decoder_mask", "padding-inverted"): {
        "numpy": [(BOTH, "causal & ~padding_mask(ids, pad)")],
        "loops": [("ids[b, j] != pad", "ids[b, j] == pad")],
    },
    ("decoder_mask", "pad-fixed"): {
        "torch": [("padding_mask(ids, pad))", "padding_mask(ids, 0))")],
        "loops": [("ids[b, j] != pad", "ids[b, j] != 0")],
    },
    ("decoder_mask", "future-leak"): {
        "numpy": [("dtype=bool))", "dtype=bool), k=1)")],
        "torch": [("place[:, None] >= place[None, :]", "place[:, None] + 1 >= place[None, :]")],
    },
    ("decoder_mask", "not-itself"): {
        "torch": [(">= place", "> place")],
        "loops": [("j <= i and", "j < i and")],
    },
    ("decoder_mask", "mask-transposed"): {
        "numpy": [("np.tril", "np.triu")],
        "torch": [("place[:, None] >= place[None, :]", "place[None, :] >= place[:, None]")],
        "loops": [("j <= i and", "i <= j and")],
    },
    ("decoder_mask", "decoder-mask-inverted"): {
        "numpy": [(BOTH, f"~({BOTH})")],
        "loops": [(J_AND_REAL, "j > i or ids[b, j] == pad")],
    },
    ("decoder_mask", "decoder-mask-without-heads"): {
        "numpy": [(BOTH, "causal & (ids != pad)[:, None, :]")],
        "torch": [(TORCH_BOTH, "not_future & ids.ne(pad).unsqueeze(1)")],
    },
    ("decoder_mask", "mask-additive"): {
        "numpy": [(BOTH, f"np.where({BOTH}, 0, -np.inf)")],
        "torch": [(TORCH_BOTH, f"(~{TORCH_BOTH}).float() * -1e9")],
    },
    ("decoder_block", "no-residual-self"): {
        "numpy": [("x + self_output", "self_output")],
        "loops": [("norm(x + attend(x, x, weights[\"self", "norm(attend(x, x, weights[\"self")],
    },
    ("decoder_block", "no-residual-cross"): {
        "numpy": [("x + cross_output", "cross_output")],
        "loops": [("a + attend(", "attend(")],
    },
    ("decoder_block", "no-residual-feed-forward"): {
        "numpy": [("x + feed_forward_output", "feed_forward_output")],
        "loops": [("b + apply_feed_forward(", "apply_feed_forward(")],
    },
    ("decoder_block", "no-residual"): {
        "torch": [("x + change", "change")],
        "numpy": [("x + self_output", "self_output"), ("x + cross_output", "cross_output"), ("x + feed_forward_output", "feed_forward_output")],
    },
    ("decoder_block", "pre-norm"): {
        "numpy": [
            (
                SELF_HALF,
                '    h = layer_norm(x, norm_1["gain"], norm_1["bias"], EPS)\n'
                '    x = x + multi_head_attention(h, h, weights["self_attention"], n_heads, mask)\n',
            ),
            (
                CROSS_HALF,
                '    h = layer_norm(x, norm_2["gain"], norm_2["bias"], EPS)\n'
                '    x = x + multi_head_attention(h, memory, weights["cross_attention"], n_heads, memory_mask)\n',
            ),
            ('feed_forward(x, weights["feed_forward"])', 'feed_forward(layer_norm(x, norm_3["gain"], norm_3["bias"], EPS), weights["feed_forward"])'),
            ('return layer_norm(x + feed_forward_output, norm_3["gain"], norm_3["bias"], EPS)', "return x + feed_forward_output"),
        ],
        "loops": [
            (LOOP_SELF, 'y = norm(x, weights["norm_1"])\n    a = x + attend(y, y, weights["self_attention"], n_heads, mask)'),
            (LOOP_CROSS, 'b = a + attend(norm(a, weights["norm_2"]), memory, weights["cross_attention"], n_heads, memory_mask)'),
            (LOOP_THINK, 'b + apply_feed_forward(norm(b, weights["norm_3"]), weights["feed_forward"])'),
        ],
    },
    ("decoder_block", "norm-inside"): {
        "torch": [("layer_norm(x + change,", "x + layer_norm(change,")],
        "numpy": [("layer_norm(x + self_output", "x + layer_norm(self_output"), ("layer_norm(x + cross_output", "x + layer_norm(cross_output"), ("layer_norm(x + feed_forward_output", "x + layer_norm(feed_forward_output")],
    },
    ("decoder_block", "norm-of-input-only"): {
        "torch": [('layer_norm(x + change, norm["gain"], norm["bias"], 1e-5)', 'layer_norm(x, norm["gain"], norm["bias"], 1e-5) + change')],
        "loops": [
            (LOOP_SELF, 'a = norm(x, weights["norm_1"]) + attend(x, x, weights["self_attention"], n_heads, mask)'),
            (LOOP_CROSS, 'b = norm(a, weights["norm_2"]) + attend(a, memory, weights["cross_attention"], n_heads, memory_mask)'),
            (LOOP_THINK, 'norm(b, weights["norm_3"]) + apply_feed_forward(b, weights["feed_forward"])'),
        ],
    },
    ("decoder_block", "one-norm"): {
        "numpy": [('return layer_norm(x + feed_forward_output, norm_3["gain"], norm_3["bias"], EPS)', "return x + feed_forward_output")],
        "torch": [(TORCH_CROSS, '    x = x + attend("cross_attention", x, memory, memory_mask)\n')],
        "loops": [(LOOP_THINK, 'b + apply_feed_forward(b, weights["feed_forward"])')],
    },
    ("decoder_block", "no-self-attention"): {
        "numpy": [(SELF_HALF, "")],
        "torch": [('attend("self_attention", x, x, mask)', "0")],
        "loops": [(LOOP_SELF, "a = x")],
    },
    ("decoder_block", "no-feed-forward"): {
        "numpy": [('feed_forward_output = feed_forward(x, weights["feed_forward"])', "feed_forward_output = 0")],
        "torch": [('return add_and_norm(x, feed_forward(x, weights["feed_forward"]), weights["norm_3"])', "return x")],
        "loops": [(LOOP_THINK, "b")],
    },
    ("decoder_block", "self-mask-for-cross"): {
        "numpy": [('weights["cross_attention"], n_heads, memory_mask)', 'weights["cross_attention"], n_heads, mask)')],
        "torch": [("x, memory, memory_mask)", "x, memory, mask)")],
    },
    ("decoder_block", "same-norm"): {
        "numpy": [('norm_1, norm_2, norm_3 = weights["norm_1"], weights["norm_2"], weights["norm_3"]', 'norm_1 = norm_2 = norm_3 = weights["norm_1"]')],
        "torch": [('memory_mask), weights["norm_2"]', 'memory_mask), weights["norm_1"]'), ('weights["norm_3"]', 'weights["norm_1"]')],
    },
    ("decoder_block", "cross-looks-at-itself"): {
        "numpy": [('(x, memory, weights["cross_attention"], n_heads, memory_mask)', '(x, x, weights["cross_attention"], n_heads, mask)')],
        "torch": [("x, memory, memory_mask)", "x, x, memory_mask)")],
        "loops": [('a, memory, weights["cross_attention"], n_heads, memory_mask)', 'a, a, weights["cross_attention"], n_heads, None)')],
    },
    ("decoder_block", "queries-and-memory-exchanged"): {
        "numpy": [('(x, memory, weights["cross', '(memory, x, weights["cross')],
        "torch": [("x, memory, memory_mask)", "memory, x, memory_mask)")],
    },
    ("decoder_block", "no-cross-attention"): {
        "numpy": [(CROSS_HALF, "")],
        "loops": [(LOOP_CROSS, "b = a")],
    },
    ("decoder_block", "masks-exchanged"): {
        "numpy": [('weights["self_attention"], n_heads, mask)', 'weights["self_attention"], n_heads, memory_mask)'), ('weights["cross_attention"], n_heads, memory_mask)', 'weights["cross_attention"], n_heads, mask)')],
        "torch": [
            ("def decoder_block(x, memory, weights, n_heads, mask, memory_mask)", "def decoder_block(x, memory, weights, n_heads, memory_mask, mask)"),
            ("return decoder_block(x, memory, weights, n_heads, mask, memory_mask)", "return decoder_block(x, memory, weights, n_heads, memory_mask, mask)"),
        ],
    },
    ("decoder_block", "target-mask-ignored"): {
        "numpy": [('weights["self_attention"], n_heads, mask)', 'weights["self_attention"], n_heads)')],
        "loops": [('weights["self_attention"], n_heads, mask)', 'weights["self_attention"], n_heads, None)')],
    },
    ("decoder_block", "memory-mask-ignored"): {
        "numpy": [('weights["cross_attention"], n_heads, memory_mask)', 'weights["cross_attention"], n_heads)')],
        "torch": [("x, memory, memory_mask)", "x, memory, None)")],
    },
    ("decoder_block", "cross-first"): {
        "numpy": [(SELF_HALF + CROSS_COMMENT + CROSS_HALF, CROSS_HALF + SELF_HALF)],
        "torch": [
            (TORCH_SELF + TORCH_CROSS, TORCH_CROSS.replace("norm_2", "norm_1") + TORCH_SELF.replace("norm_1", "norm_2")),
        ],
    },
    ("decoder_block", "same-attention"): {
        "numpy": [('weights["cross_attention"]', 'weights["self_attention"]')],
        "torch": [('attend("self_attention"', 'attend("cross_attention"')],
    },
    ("decoder_block", "attentions-exchanged"): {
        "torch": [('attend("self_attention"', 'attend("other"'), ('attend("cross_attention"', 'attend("self_attention"'), ('attend("other"', 'attend("cross_attention"')],
        "loops": [('weights["self_attention"]', 'weights["other"]'), ('weights["cross_attention"]', 'weights["self_attention"]'), ('weights["other"]', 'weights["cross_attention"]')],
    },
    ("transformer", "not-scaled"): {
        "numpy": [
            ("embed(source, embedding)", "(embed(source, embedding) - (np.sqrt(embedding.shape[1]) - 1) * embedding[source])"),
            ("embed(target_in, embedding)", "embed(target_in, embedding) - (np.sqrt(embedding.shape[1]) - 1) * embedding[target_in]"),
        ],
        "loops": [("math.sqrt(d) * table[ids]", "table[ids]")],
    },
    ("transformer", "no-positions"): {
        "numpy": [
            ("embed(source, embedding)", "np.sqrt(embedding.shape[1]) * embedding[source]"),
            ("embed(target_in, embedding)", "np.sqrt(embedding.shape[1]) * embedding[target_in]"),
        ],
        "loops": [("    for t in range(ids.shape[1]):\n", "    for t in ():\n")],
    },
    ("transformer", "no-source-positions"): {
        "numpy": [("embed(source, embedding)", "embedding[source] * embedding.shape[1] ** 0.5")],
        "loops": [("memory = vectors(source, table)", "memory = math.sqrt(table.shape[1]) * table[source]")],
    },
    ("transformer", "no-target-positions"): {
        "torch": [('embed(target_in, weights["embedding"])', 'weights["embedding"][target_in] * weights["embedding"].size(1) ** 0.5')],
        "loops": [("x = vectors(target_in, table)", "x = math.sqrt(table.shape[1]) * table[target_in]")],
    },
    ("transformer", "source-padding-seen"): {
        "numpy": [(', weights["encoder"], n_heads, source_mask)', ', weights["encoder"], n_heads)')],
        "loops": [("encoder_layer(memory, layer, n_heads, real)", "encoder_layer(memory, layer, n_heads, None)")],
    },
    ("transformer", "memory-padding-seen"): {
        "numpy": [("decoder_mask(target_in, pad), source_mask)", "decoder_mask(target_in, pad), None)")],
        "torch": [("n_heads, pad, padding_mask(source, pad))", "n_heads, pad, None)")],
    },
    ("transformer", "padding-seen"): {
        "numpy": [("source_mask = padding_mask(source, pad)", "source_mask = None")],
        "torch": [('weights["encoder"], n_heads, padding_mask(source, pad))', 'weights["encoder"], n_heads)'), ("n_heads, pad, padding_mask(source, pad))", "n_heads, pad, None)")],
    },
    ("transformer", "padding-only"): {
        "numpy": [("n_heads, decoder_mask(target_in, pad), source_mask", "n_heads, padding_mask(target_in, pad), source_mask")],
        "loops": [("own = padding_mask(source, pad), decoder_mask(target_in, pad)", "own = padding_mask(source, pad), padding_mask(target_in, pad)")],
    },
    ("transformer", "causal-only"): {
        "numpy": [("decoder_mask(target_in, pad), source_mask)", "np.tri(target_in.shape[1]) > 0, source_mask)")],
        "torch": [("decoder_mask(target_in, pad)\n", "torch.ones(target_in.size(1), target_in.size(1)).tril().bool()\n")],
    },
    ("transformer", "target-mask-ignored"): {
        "torch": [("n_heads, mask, memory_mask)\n    return x", "n_heads, None, memory_mask)\n    return x")],
        "loops": [("layer, n_heads, own, real)", "layer, n_heads, None, real)")],
    },
    ("transformer", "softmax-on-logits"): {
        "numpy": [("return x @ embedding.T", "e = np.exp(x @ embedding.T)\n    return e / e.sum(-1, keepdims=True)")],
        "torch": [('linear(x, weights["embedding"])', 'linear(x, weights["embedding"]).log_softmax(-1)')],
    },
    ("transformer", "memory-is-embedding"): {
        "numpy": [(ENCODED, "memory = embed(source, embedding)")],
        "loops": [("        memory = encoder_layer(", "        _ = encoder_layer(")],
    },
    ("transformer", "memory-after-first-layer"): {
        "torch": [('weights["encoder"], n_heads', 'weights["encoder"][:1], n_heads')],
        "loops": [("encoder_layer(memory, layer, n_heads, real)\n", "encoder_layer(memory, layer, n_heads, real)\n        break\n")],
    },
    ("transformer", "memory-layer-by-layer"): {
        "loops": [
            (LOOP_ENCODER, ""),
            (
                LAYERS + "        x =",
                'for encoding, layer in zip(weights["encoder"], weights["decoder"], strict=True):\n'
                "        memory = encoder_layer(memory, encoding, n_heads, real)\n        x =",
            ),
        ],
        "numpy": [
            (LAYERS, 'for i, layer in enumerate(weights["decoder"]):\n'),
            ("decoder_block(x, memory, layer", 'decoder_block(x, encoder(embed(source, embedding), weights["encoder"][: i + 1], n_heads, source_mask), layer'),
        ],
    },
    ("transformer", "decoder-shared-weights"): {
        "numpy": [(LAYERS, 'for layer in [weights["decoder"][0]] * len(weights["decoder"]):\n')],
        "torch": [("memory, layer, n_heads", 'memory, weights["decoder"][-1], n_heads')],
    },
    ("transformer", "decoder-first-only"): {
        "numpy": [("    return x @ embedding.T", "        return x @ embedding.T")],
        "torch": [("n_heads, mask, memory_mask)\n    return x", "n_heads, mask, memory_mask)\n        return x")],
    },
    ("transformer", "decoder-without-last"): {
        "numpy": [(LAYERS, 'for layer in weights["decoder"][:-1]:\n')],
        "loops": [(LAYERS, 'for i in range(len(weights["decoder"]) - 1):\n        layer = weights["decoder"][i]\n')],
    },
    ("transformer", "decoder-reversed"): {
        "numpy": [(LAYERS, 'for layer in weights["decoder"][::-1]:\n')],
        "torch": [(LAYERS, 'for layer in reversed(weights["decoder"]):\n')],
    },
    ("transformer", "source-target-exchanged"): {
        "numpy": [("def transformer(source, target_in,", "def transformer(target_in, source,")],
        "torch": [("def transformer(source, target_in,", "def transformer(target_in, source,")],
    },
    ("transformer", "shifted-again"): {
        "numpy": [("    embedding = weights", "    target_in = shift_right(target_in, pad)\n    embedding = weights")],
        "torch": [("    memory = encode(", "    target_in = shift_right(target_in, 1)\n    memory = encode(")],
        "loops": [("    table = weights[", "    target_in = shift_right(target_in, 0)\n    table = weights[")],
    },
    ("cross_entropy", "only-padding"): {
        "numpy": [("real = target != pad", "real = target == pad")],
        "torch": [("(target != pad)", "(target == pad)")],
        "loops": [("if right == pad:", "if right != pad:")],
    },
    ("cross_entropy", "log-of-softmax"): {
        "numpy": [(LOG_P, "p = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)\n    log_p = np.log(p)")],
        "torch": [(TORCH_NLL, f"{TORCH_P}nll = -p.log()")],
    },
    ("cross_entropy", "one-maximum"): {
        "numpy": [("logits.max(axis=-1, keepdims=True)", "logits.max()")],
        "numpy, of the softmax": [
            ("logits.max(axis=-1, keepdims=True)", "np.max(logits)"),
            (LOG_P, "p = np.exp(logits)\n    log_p = np.log(p / p.sum(axis=-1, keepdims=True))"),
        ],
        "torch": [("logits.logsumexp(dim=-1)", "((logits - logits.max()).exp().sum(-1).log() + logits.max())")],
    },
    ("cross_entropy", "perplexity"): {
        "numpy": [(MEAN, f"np.exp({MEAN})")],
        "torch": [(TORCH_MEAN, f"({TORCH_MEAN}).exp()")],
    },
    ("cross_entropy", "per-token"): {
        "numpy": [(MEAN, "nll[real]")],
        "torch": [("return " + TORCH_MEAN, "return nll * weight")],
        "loops": [
            ("total, count = 0.0, 0", "losses = np.zeros(target.shape)"),
            ("            if right == pad:\n                continue\n", ""),
            (LOOP_LOSS + "\n            count += 1", "losses[b, t] = math.log(sum(powers)) + largest - logits[b, t, right]"),
            ("return total / count", "return losses"),
        ],
    },
    ("cross_entropy", "padding-counted"): {
        "numpy": [(MEAN, "nll.mean()")],
        "torch": [(TORCH_MEAN, "nll.mean()")],
        "loops": [("if right == pad:", "if False:")],
    },
    ("cross_entropy", "divided-by-all"): {
        "numpy": [(MEAN, "(nll * real).mean()")],
        "torch": [("weight.sum()", "weight.numel()")],
        "loops": [("total / count", "total / target.size")],
    },
    ("cross_entropy", "sum-not-mean"): {
        "numpy": [(MEAN, "nll[real].sum()")],
        "loops": [("total / count", "total")],
    },
    ("cross_entropy", "divided-by-texts"): {
        "numpy": [("real.sum()", "len(target)")],
        "torch": [("weight.sum()", "target.size(0)")],
    },
    ("cross_entropy", "mean-of-means"): {
        "numpy": [(MEAN, "np.mean((nll * real).sum(1) / real.sum(1))")],
        "torch": [(TORCH_MEAN, "((nll * weight).sum(1) / weight.sum(1)).mean()")],
    },
    ("cross_entropy", "log-base"): {
        "numpy": [(MEAN, f"{MEAN} / np.log(2)")],
        "loops": [("total / count", "total / count / math.log(10)")],
    },
    ("cross_entropy", "sign"): {
        "numpy": [("nll = -np.take", "nll = np.take")],
        "torch": [("logits.logsumexp(dim=-1) - of_target", "of_target - logits.logsumexp(dim=-1)")],
        "loops": [("total -= ", "total += ")],
    },
    ("cross_entropy", "no-logarithm"): {
        "numpy": [(LOG_P, "log_p = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)")],
        "torch": [(TORCH_NLL, f"{TORCH_P}nll = 1 - p")],
        "loops": [(LOOP_LOSS, "total += powers[right] / sum(powers)")],
    },
    ("cross_entropy", "no-softmax"): {
        "torch": [(TORCH_NLL, "nll = -of_target.log()")],
        "numpy": [("    logits = logits - logits.max(axis=-1, keepdims=True)\n", ""), (LOG_P, "log_p = logits")],
        "loops": [(LOOP_LOSS, "total -= math.log(logits[b, t, right])")],
    },
    ("cross_entropy", "softmax-twice"): {
        "torch": [("    of_target =", "    logits = torch.softmax(logits, dim=-1)\n    of_target =")],
        "numpy": [
            (LOG_P, f"p = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)\n    {LOG_P.replace('logits', 'p')}"),
        ],
    },
    ("cross_entropy", "targets-shifted"): {
        "numpy": [("    logits = logits - logits.max", "    logits, target = logits[:, :-1], target[:, 1:]\n    logits = logits - logits.max")],
        "torch": [("    of_target =", "    logits, target = logits[:, 1:], target[:, :-1]\n    of_target =")],
    },
    ("cross_entropy", "pad-fixed"): {
        "numpy": [("real = target != pad", "real = target != 0")],
        "torch": [("(target != pad)", "(target > 0)")],
    },
    ("cross_entropy", "no-maximum"): {
        "numpy": [
            ("    logits = logits - logits.max(axis=-1, keepdims=True)\n", ""),
            (LOG_P, "p = np.exp(logits)\n    log_p = np.log(p / p.sum(axis=-1, keepdims=True))"),
        ],
        "torch": [("logits.logsumexp(dim=-1)", "logits.exp().sum(-1).log()")],
        # subtracts something else than the maximum: overflows only if logits differ much
        "numpy, the minimum": [("logits.max(", "logits.min(")],
        "torch, the mean": [
            ("    of_target =", "    logits = logits - logits.mean(-1, keepdim=True)\n    of_target ="),
            (TORCH_NLL, "nll = logits.exp().sum(-1).log() - of_target"),
        ],
    },
    ("learning_rate", "max"): {
        "numpy": [("min(", "max(")],
        "torch": [("if step < warmup", "if step > warmup")],
        "loops": [("[0]", "[-1]")],
    },
    ("learning_rate", "width-times"): {
        "numpy": [("d_model**-0.5", "d_model**0.5")],
        "loops": [("/ math.sqrt(d_model)", "* math.sqrt(d_model)")],
    },
    ("learning_rate", "width-not-rooted"): {
        "numpy": [("d_model**-0.5", "1 / d_model")],
        "loops": [("/ math.sqrt(d_model)", "/ d_model")],
    },
    ("learning_rate", "no-width"): {
        "numpy": [("d_model**-0.5 * ", "")],
        "torch": [("warmup * d_model", "warmup"), ("step * d_model", "step")],
    },
    ("learning_rate", "warmup-exponent"): {
        "numpy": [("warmup**-1.5", "warmup**-0.5")],
        "loops": [("step / warmup / math.sqrt(warmup)", "step / warmup")],
    },
    ("learning_rate", "step-not-rooted"): {
        "numpy": [("step**-0.5", "step**-1")],
        "loops": [("1 / math.sqrt(step)", "1 / step")],
    },
    ("learning_rate", "no-warmup"): {
        "numpy": [(RATE, "(d_model * step) ** -0.5")],
        "torch": [("if step < warmup", "if step < 0")],
    },
    ("learning_rate", "no-decay"): {
        "loops": [("sorted([falling, climbing])[0]", "climbing")],
        "torch": [("return 1 / math.sqrt(step * d_model)", "return 1 / math.sqrt(warmup * d_model)")],
    },
    ("learning_rate", "step-plus-one"): {
        "numpy": [("    return d_model", "    step = step + 1\n    return d_model")],
        "loops": [("math.sqrt(step)", "math.sqrt(step + 1)"), ("climbing = step", "climbing = (step + 1)")],
    },
    ("learning_rate", "step-minus-one"): {
        "numpy": [("    return d_model", "    step = step - 1\n    return d_model")],
        "torch": [("    if step < warmup:", "    step -= 1\n    if step < warmup:")],
    },
    ("learning_rate", "step-warmup-exchanged"): {
        "numpy": [("def learning_rate(step, d_model, warmup)", "def learning_rate(warmup, d_model, step)")],
        "loops": [("1 / math.sqrt(step)", "1 / math.sqrt(warmup)"), ("step / warmup / math.sqrt(warmup)", "warmup / step / math.sqrt(step)")],
    },
}  # fmt: skip

for (part, _), ways in EDITS.items():
    for style in ways:
        ways[style] = [*WRITTEN_OUT.get((part, style.partition(",")[0]), ()), *ways[style]]

# Mistakes that the grader does not know. It must describe them without a name. (part, style, edits)
UNLISTED = [
    ("real_tokens", "numpy", [("return ids != pad", "return ids < pad")]),
    ("real_tokens", "loops", [("token != pad", "token != pad or place[1] == 0")]),
    ("real_tokens", "torch", [("ids.not_equal(pad)", "ids.not_equal(pad).flip(-1)")]),
    ("decoder", "numpy", [("for weights in layers:", "for weights in layers * 2:")]),
    ("decoder", "torch", [("return reduce(apply, layers, x)", "return reduce(apply, layers, x) + x")]),
    ("decoder", "loops", [("x, memory, first, n_heads", "x, memory + 1, first, n_heads")]),
    ("token_logits", "numpy", [("x @ table.T", "x @ table.T + 1")]),
    ("token_logits", "torch", [(EINSUM_LOGITS, f"{EINSUM_LOGITS}.relu()")]),
    ("token_logits", "loops", [("in enumerate(table)", "in enumerate(table[::-1])")]),
    ("token_losses", "numpy", [(TAKEN, TAKEN + " * 2")]),
    ("token_losses", "torch", [("log_p.gather(-1, target", "log_p.gather(-1, target.flip(-1)")]),
    ("token_losses", "loops", [("- z[right]", "- z[0]")]),
    ("shift_right", "numpy", [(SHIFTED, "np.concatenate([first, target[:, -2::-1]], axis=1)")]),
    ("shift_right", "torch", [("roll(1, dims=1)", "roll(1, dims=0)")]),
    ("shift_right", "numpy", [(", axis=1)", ", axis=1) + 1")]),
    ("padding_mask", "numpy", [(REAL, "(ids < pad)[:, None, None, :]")]),
    ("padding_mask", "loops", [("i != pad for i in row", "i != pad for i in row[::-1]")]),
    ("padding_mask", "torch", [(".unsqueeze(1).unsqueeze(2)", ".unsqueeze(0).unsqueeze(0)")]),
    ("decoder_mask", "numpy", [(BOTH, "np.eye(n, dtype=bool) & padding_mask(ids, pad)")]),
    # padding only at the end of a text, and a first column that is never masked
    ("padding_mask", "numpy", [(REAL, "(np.cumsum((ids != pad)[:, ::-1], axis=1)[:, ::-1] > 0)[:, None, None, :]")]),
    ("padding_mask", "torch", [(TORCH_REAL, "(torch.arange(ids.size(1)) < (ids != pad).sum(1, keepdim=True))[:, None, None]")]),
    ("padding_mask", "loops", [("i != pad for i in row", "i != pad or j == 0 for j, i in enumerate(row)")]),
    ("decoder_mask", "loops", [(J_AND_REAL, "j <= i and (j == 0 or ids[b, j] != pad)")]),
    ("decoder_mask", "loops", [(J_AND_REAL, "j <= i and (ids[b, j:] != pad).any()")]),
    ("decoder_mask", "numpy", [(BOTH, "causal ^ padding_mask(ids, pad)")]),
    ("decoder_mask", "loops", [(J_AND_REAL, "j <= i and j >= i - 1 and ids[b, j] != pad")]),
    ("decoder_block", "numpy", [("EPS = 1e-5", "EPS = 0.5")]),
    ("decoder_block", "torch", [("x + change", "x - change")]),
    ("decoder_block", "loops", [("/ math.sqrt(len(part))", "")]),
    ("decoder_block", "loops", [("np.clip(x @ weights[\"w1\"] + weights[\"b1\"], 0, None)", "np.tanh(x @ weights[\"w1\"] + weights[\"b1\"])")]),
    ("decoder_block", "numpy", [('feed_forward_output = feed_forward(x, weights["feed_forward"])', "feed_forward_output = 1 / x")]),
    ("transformer", "numpy", [("return x @ embedding.T", "return x @ embedding.T / np.sqrt(embedding.shape[1])")]),
    ("transformer", "numpy", [("embed(target_in, embedding)", "embed(target_in[:, ::-1], embedding)")]),
    ("transformer", "torch", [('linear(x, weights["embedding"])', 'linear(x, weights["embedding"]).relu()')]),
    ("transformer", "loops", [("angle = t /", "angle = (t + 1) /")]),
    ("transformer", "loops", [("10000 ** (i / d)", "100 ** (i / d)")]),
    ("transformer", "numpy", [("encoder(embed(source, embedding)", "encoder(embed(source[::-1], embedding)")]),
    ("transformer", "numpy", [(LAYERS, 'for layer in weights["decoder"] * 2:\n')]),
    ("cross_entropy", "numpy", [(MEAN, f"{MEAN} ** 2")]),
    ("cross_entropy", "numpy", [(LOG_P, "log_p = np.log(np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True) + 1e-9)")]),
    ("cross_entropy", "torch", [(TORCH_NLL, f"{TORCH_P}nll = -p.clamp(min=1e-9).log()")]),
    ("cross_entropy", "numpy", [(MEAN, "np.median(nll[real])")]),
    ("cross_entropy", "numpy", [(MEAN, f"0.9 * {MEAN} - 0.1 * log_p[real].mean()")]),
    ("cross_entropy", "torch", [(TORCH_NLL, f"{TORCH_P}nll = (1 - p) ** 2")]),
    ("cross_entropy", "loops", [("logits[b, t]", "logits[0, t]"), ("logits[b, t]", "logits[0, t]")]),
    ("learning_rate", "numpy", [("step**-0.5", "step**-0.25")]),
    ("learning_rate", "numpy", [("min(step**-0.5, step * warmup**-1.5)", "(step**-0.5 + step * warmup**-1.5)")]),
    ("learning_rate", "torch", [(TORCH_RATE, "    return math.exp(-step / warmup) / math.sqrt(d_model)\n")]),
    ("learning_rate", "loops", [("math.sqrt(d_model)", "math.log(d_model)")]),
    ("learning_rate", "numpy", [(RATE, f"round({RATE}, 3)")]),
    ("learning_rate", "numpy", [(RATE, f"round({RATE}, 4)")]),
    ("learning_rate", "loops", [("return sorted", "return 1.0002 * sorted")]),
    ("learning_rate", "numpy", [(RATE, f"max(1e-3, {RATE})")]),
    ("learning_rate", "numpy", [(RATE, f"min(0.3, {RATE})")]),
]  # fmt: skip
UNLISTED = [(part, style, [*WRITTEN_OUT.get((part, style), ()), *edits]) for part, style, edits in UNLISTED]
