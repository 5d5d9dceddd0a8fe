"""Edits of right answers to exercise 4 that produce each known mistake, in at least two styles.

(part, mistake) -> {style: [(old text, new text), ...]}
"""

NORM = "(x - mean) / np.sqrt(variance + eps) * gain + bias"
TORCH_NORM = "torch.addcmul(bias, centred * torch.rsqrt(variance + eps), gain)"
LOOP_NORM = "gain[d] * (value - mean) / deviation + bias[d]"

ATTENTION_HALF = """    # mistakes: no-residual-attention, pre-norm, norm-inside, one-norm, mask-ignored, side-by-side
    attention_output = multi_head_attention(x, x, weights["attention"], n_heads, mask)
    x = layer_norm(x + attention_output, norm_1["gain"], norm_1["bias"], EPS)
"""
FEED_FORWARD_HALF = """    # The same form again, with weights of its own.
    # mistakes: no-residual-feed-forward, residual-from-input, same-norm, norms-exchanged
    feed_forward_output = feed_forward(x, weights["feed_forward"])
    return layer_norm(x + feed_forward_output, norm_2["gain"], norm_2["bias"], EPS)
"""
TORCH_FIRST = 'x = add_and_norm(x, attend, weights["norm_1"])'
TORCH_SECOND = 'return add_and_norm(x, apply_feed_forward, weights["norm_2"])'
TORCH_FRAME = 'layer_norm(x + sub_layer(x), norm["gain"], norm["bias"], eps=1e-5)'
LOOP_ATTENDED = 'x = np.add(self_attention(x, weights["attention"], n_heads, mask), x)'
LOOP_THOUGHT = 'x = np.add(feed_forward(x, weights["feed_forward"]), x)'
LOOP_BLOCK = f"""    {LOOP_ATTENDED}
    x = layer_norm(x, **first, eps=1e-5)
    {LOOP_THOUGHT}
    return layer_norm(x, **second, eps=1e-5)
"""
TORCH_ENCODER = "return reduce(lambda x, weights: encoder_block(x, weights, n_heads, mask), layers, x)"
FOR_LAYERS = """    for weights in layers:
        x = encoder_block(x, weights, n_heads, mask)
    return x
"""

CENTER, CENTER_TORCH = "x - np.mean(x, axis=-1, keepdims=True)", "x - x.mean(-1, keepdim=True)"
CENTER_LOOPS = "x[place] - sum(x[place]) / len(x[place])"
RELU, RELU_TORCH, RELU_LOOPS = "np.maximum(x, 0)", "torch.where(x > 0, x, 0.0)", "value if value >= 0 else 0"

EDITS = {
    ("center", "norm-axis"): {
        "numpy": [(CENTER, "x - x.mean()")],
        "numpy, axis 0": [(CENTER, "x - np.mean(x, axis=0)")],
        "torch": [(CENTER_TORCH, "x - x.mean(-2, keepdim=True)")],
    },
    ("center", "mean-returned"): {
        "numpy": [("return " + CENTER, "return np.mean(x, axis=-1)")],
        "torch": [("return " + CENTER_TORCH, "return x.mean(-1, keepdim=True)")],
    },
    ("center", "mean-minus-x"): {
        "numpy": [(CENTER, "np.mean(x, axis=-1, keepdims=True) - x")],
        "loops": [(CENTER_LOOPS, "sum(x[place]) / len(x[place]) - x[place]")],
    },
    ("center", "divided-too"): {
        "torch": [(CENTER_TORCH, "torch.nn.functional.layer_norm(x, x.shape[-1:])")],
        "loops": [(CENTER_LOOPS, f"({CENTER_LOOPS}) / np.std(x[place])")],
    },
    ("center", "mean-kept"): {
        "numpy": [(CENTER, "x")],
        "torch": [(CENTER_TORCH, "x.clone()")],
    },
    ("relu", "no-relu"): {
        "numpy": [(RELU, "x")],
        "loops": [(RELU_LOOPS, "value")],
    },
    ("relu", "absolute"): {
        "numpy": [(RELU, "np.abs(x)")],
        "loops": [(RELU_LOOPS, "value if value >= 0 else -value")],
    },
    ("relu", "minimum"): {
        "numpy": [(RELU, "np.minimum(x, 0)")],
        "torch": [(RELU_TORCH, "torch.where(x < 0, x, 0.0)")],
    },
    ("relu", "whole-maximum"): {
        "numpy": [(RELU, "np.max(x)")],
        "torch": [(RELU_TORCH, "torch.max(x)")],
        "loops": [("    return result\n\n\ndef layer_norm", "    return max(0, max(x.ravel()))\n\n\ndef layer_norm")],
    },
    ("relu", "step"): {
        "numpy": [(RELU, "x > 0")],
        "torch": [(RELU_TORCH, "torch.where(x > 0, 1.0, 0.0)")],
    },
    ("relu", "gelu"): {
        "torch": [(RELU_TORCH, "torch.nn.functional.gelu(x)")],
        "numpy": [(RELU, "0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))")],
    },
    ("relu", "silu"): {
        "torch": [(RELU_TORCH, "x * torch.sigmoid(x)")],
        "loops": [(RELU_LOOPS, "value / (1 + math.exp(-value))")],
    },
    ("relu", "sigmoid-or-tanh"): {
        "torch": [(RELU_TORCH, "x.sigmoid()")],
        "loops": [(RELU_LOOPS, "math.tanh(value)")],
    },
    ("layer_norm", "eps-outside-root"): {
        "numpy": [("np.sqrt(variance + eps)", "(x.std(axis=-1, keepdims=True) + eps)")],
        "torch": [("centred * torch.rsqrt(variance + eps)", "centred / (variance.sqrt() + eps)")],
        "loops": [("math.sqrt(variance + eps)", "math.sqrt(variance) + eps")],
    },
    ("layer_norm", "no-eps"): {
        "numpy": [("np.sqrt(variance + eps)", "np.sqrt(variance)")],
        "torch": [("variance + eps", "variance + 1e-6")],
        "loops": [("math.sqrt(variance + eps)", "variance**0.5")],
    },
    ("layer_norm", "variance-unbiased"): {
        "numpy": [("x.var(axis=-1, keepdims=True)", "x.var(axis=-1, ddof=1, keepdims=True)")],
        "torch": [("centred.square().mean(dim=-1, keepdim=True)", "x.var(-1, keepdim=True)")],
        "loops": [("for value in token) / len(token)", "for value in token) / (len(token) - 1)")],
    },
    ("layer_norm", "variance-not-rooted"): {
        "numpy": [("np.sqrt(variance + eps)", "(variance + eps)")],
        "torch": [("centred * torch.rsqrt(variance + eps)", "centred / (variance + eps)")],
    },
    ("layer_norm", "norm-axis"): {
        "numpy": [("mean(axis=-1", "mean(axis=0"), ("var(axis=-1", "var(axis=0")],
        "numpy, axis 1": [("mean(axis=-1", "mean(axis=1"), ("var(axis=-1", "var(axis=1")],
        "torch": [("dim=-1", "dim=-2"), ("dim=-1", "dim=-2")],
        "loops": [
            (
                "    result = np.empty(x.shape)\n    for place in np.ndindex(x.shape[:-1]):\n        token",
                "    if x.ndim > 1:\n        y = (x - x.mean((-2, -1), keepdims=True)) / (x.var((-2, -1), keepdims=True) + eps) ** 0.5\n"
                "        return y * gain + bias\n"
                "    result = np.empty(x.shape)\n    for place in np.ndindex(x.shape[:-1]):\n        token",
            ),
        ],
    },
    ("layer_norm", "mean-kept"): {
        "numpy": [("(x - mean) / np.sqrt", "x / np.sqrt")],
        "torch": [("centred = x - x.mean(dim=-1, keepdim=True)", "centred = x")],
        "loops": [("gain[d] * (value - mean)", "gain[d] * value")],
    },
    ("layer_norm", "no-gain"): {
        "numpy": [(" * gain + bias", " + bias")],
        "loops": [("gain[d] * (value - mean)", "(value - mean)")],
    },
    ("layer_norm", "no-bias"): {
        "numpy": [(" * gain + bias", " * gain")],
        "torch": [(TORCH_NORM, "centred * torch.rsqrt(variance + eps) * gain")],
    },
    ("layer_norm", "gain-bias-exchanged"): {
        "numpy": [("* gain + bias", "* bias + gain")],
        "torch": [("def layer_norm(x, gain, bias, eps)", "def layer_norm(x, bias, gain, eps)"), ('norm["gain"], norm["bias"]', 'norm["bias"], norm["gain"]')],
    },
    ("layer_norm", "bias-before-gain"): {
        "numpy": [(NORM, "((x - mean) / np.sqrt(variance + eps) + bias) * gain")],
        "loops": [(LOOP_NORM, "gain[d] * ((value - mean) / deviation + bias[d])")],
    },
    ("feed_forward", "no-relu"): {
        "numpy": [('np.maximum(0, x @ weights["w1"] + weights["b1"])', 'x @ weights["w1"] + weights["b1"]')],
        "torch": [("torch.relu(", "(")],
        "loops": [("total if total > 0 else 0.0", "total")],
    },
    ("feed_forward", "relu-at-the-end"): {
        "numpy": [('hidden @ weights["w2"] + weights["b2"]', 'np.maximum(hidden @ weights["w2"] + weights["b2"], 0)')],
        "torch": [("torch.relu(", "("), ('weights["w2"]) + weights["b2"]', 'weights["w2"]).add(weights["b2"]).relu()')],
        "loops": [("= out", "= max(out, 0)")],
    },
    ("feed_forward", "no-b1"): {
        "numpy": [(' + weights["b1"]', "")],
        "loops": [(' + weights["b1"][j]', "")],
    },
    ("feed_forward", "b1-after-relu"): {
        "numpy": [('np.maximum(0, x @ weights["w1"] + weights["b1"])', 'np.maximum(0, x @ weights["w1"]) + weights["b1"]')],
        "torch": [('weights["w1"]) + weights["b1"])', 'weights["w1"])) + weights["b1"]')],
    },
    ("feed_forward", "no-b2"): {
        "numpy": [(' + weights["b2"]', "")],
        "torch": [(' + weights["b2"]', "")],
    },
    ("feed_forward", "gelu"): {
        "torch": [("torch.relu(", "torch.nn.functional.gelu(")],
        "numpy": [
            ("hidden = np.maximum(0, ", "hidden = ("),
            ("    return hidden @", "    hidden = 0.5 * hidden * (1 + np.tanh(np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden**3)))\n    return hidden @"),
        ],
        "loops": [("total if total > 0 else 0.0", "total * (1 + math.erf(total / 2**0.5)) / 2")],
    },
    ("feed_forward", "silu"): {
        "torch": [("torch.relu(", "torch.nn.functional.silu(")],
        "loops": [("total if total > 0 else 0.0", "total / (1 + math.exp(-total))")],
    },
    ("feed_forward", "sigmoid-or-tanh"): {
        "torch": [("torch.relu(", "torch.sigmoid(")],
        "numpy": [("np.maximum(0, ", "np.tanh(")],
        "loops": [("total if total > 0 else 0.0", "math.tanh(total)")],
    },
    ("feed_forward", "residual-inside"): {
        "torch": [("return torch.einsum", "return x + torch.einsum")],
        "numpy": [('return hidden @ weights["w2"] + weights["b2"]', 'return hidden @ weights["w2"] + weights["b2"] + x')],
    },
    ("encoder_block", "no-residual-attention"): {
        "numpy": [("layer_norm(x + attention_output", "layer_norm(attention_output")],
        "loops": [(LOOP_ATTENDED, 'x = self_attention(x, weights["attention"], n_heads, mask)')],
    },
    ("encoder_block", "no-residual-feed-forward"): {
        "numpy": [("layer_norm(x + feed_forward_output", "layer_norm(feed_forward_output")],
        "loops": [(LOOP_THOUGHT, 'x = feed_forward(x, weights["feed_forward"])')],
    },
    ("encoder_block", "no-residual"): {
        "numpy": [("x + attention_output", "attention_output"), ("x + feed_forward_output", "feed_forward_output")],
        "torch": [("x + sub_layer(x)", "sub_layer(x)")],
    },
    ("encoder_block", "pre-norm"): {
        "torch": [(TORCH_FRAME, 'x + sub_layer(layer_norm(x, norm["gain"], norm["bias"], eps=1e-5))')],
        "numpy": [
            (
                ATTENTION_HALF + FEED_FORWARD_HALF,
                '    h = layer_norm(x, norm_1["gain"], norm_1["bias"], EPS)\n'
                '    x = x + multi_head_attention(h, h, weights["attention"], n_heads, mask)\n'
                '    h = layer_norm(x, norm_2["gain"], norm_2["bias"], EPS)\n'
                '    return x + feed_forward(h, weights["feed_forward"])\n',
            ),
        ],
    },
    ("encoder_block", "norm-inside"): {
        "torch": [("layer_norm(x + sub_layer(x)", "x + layer_norm(sub_layer(x)")],
        "numpy": [("layer_norm(x + attention_output", "x + layer_norm(attention_output"), ("layer_norm(x + feed_forward_output", "x + layer_norm(feed_forward_output")],
    },
    ("encoder_block", "norm-of-input-only"): {
        "torch": [(TORCH_FRAME, 'layer_norm(x, norm["gain"], norm["bias"], eps=1e-5) + sub_layer(x)')],
        "numpy": [
            ('layer_norm(x + attention_output, norm_1["gain"], norm_1["bias"], EPS)', 'layer_norm(x, norm_1["gain"], norm_1["bias"], EPS) + attention_output'),
            ('layer_norm(x + feed_forward_output, norm_2["gain"], norm_2["bias"], EPS)', 'layer_norm(x, norm_2["gain"], norm_2["bias"], EPS) + feed_forward_output'),
        ],
    },
    ("encoder_block", "no-attention"): {
        "numpy": [(ATTENTION_HALF, "")],
        "torch": [(TORCH_FIRST, "")],
        "loops": [(LOOP_ATTENDED, "")],
    },
    ("encoder_block", "no-feed-forward"): {
        "numpy": [(FEED_FORWARD_HALF, "    return x\n")],
        "torch": [(TORCH_SECOND, "return x")],
        "loops": [(LOOP_THOUGHT, "")],
    },
    ("encoder_block", "one-head"): {
        "numpy": [('weights["attention"], n_heads, mask)', 'weights["attention"], 1, mask)')],
        "loops": [("    n_texts, n, d = x.shape", "    n_heads = 1\n    n_texts, n, d = x.shape")],
    },
    ("encoder_block", "one-norm"): {
        "numpy": [('x = layer_norm(x + attention_output, norm_1["gain"], norm_1["bias"], EPS)', "x = x + attention_output")],
        "torch": [(TORCH_SECOND, "return x + apply_feed_forward(x)")],
        "loops": [("layer_norm(x, **second, eps=1e-5)", "x")],
    },
    ("encoder_block", "no-norm"): {
        "torch": [(TORCH_FRAME, "x + sub_layer(x)")],
        "loops": [("    x = layer_norm(x, **first, eps=1e-5)\n", ""), ("layer_norm(x, **second, eps=1e-5)", "x")],
    },
    ("encoder_block", "same-norm"): {
        "numpy": [('norm_1, norm_2 = weights["norm_1"], weights["norm_2"]', 'norm_1 = norm_2 = weights["norm_1"]')],
        "torch": [('attend, weights["norm_1"]', 'attend, weights["norm_2"]')],
    },
    ("encoder_block", "norms-exchanged"): {
        "torch": [('attend, weights["norm_1"]', 'attend, weights["norm_2"]'), ('apply_feed_forward, weights["norm_2"]', 'apply_feed_forward, weights["norm_1"]')],
        "loops": [("first, second =", "second, first =")],
    },
    ("encoder_block", "residual-from-input"): {
        "numpy": [
            ('x = layer_norm(x + attention_output', 'y = layer_norm(x + attention_output'),
            ('feed_forward(x, weights["feed_forward"])', 'feed_forward(y, weights["feed_forward"])'),
        ],
        "loops": [("    first, second =", "    x_in = x\n    first, second ="), (LOOP_THOUGHT, 'x = feed_forward(x, weights["feed_forward"]) + x_in')],
    },
    ("encoder_block", "side-by-side"): {
        "numpy": [
            (
                ATTENTION_HALF + FEED_FORWARD_HALF,
                '    attention_output = multi_head_attention(x, x, weights["attention"], n_heads, mask)\n'
                '    feed_forward_output = feed_forward(x, weights["feed_forward"])\n'
                '    return layer_norm(x + attention_output + feed_forward_output, norm_2["gain"], norm_2["bias"], EPS)\n',
            ),
        ],
        "torch": [(TORCH_FIRST, 'y = add_and_norm(x, attend, weights["norm_1"])'), (TORCH_SECOND, 'return y + add_and_norm(x, apply_feed_forward, weights["norm_2"])')],
        "loops": [("    first, second =", '    feed_forward_output = feed_forward(x, weights["feed_forward"])\n    first, second ='), (LOOP_THOUGHT, "x = x + feed_forward_output")],
    },
    ("encoder_block", "feed-forward-first"): {
        "torch": [(TORCH_FIRST, 'x = add_and_norm(x, apply_feed_forward, weights["norm_1"])'), (TORCH_SECOND, 'return add_and_norm(x, attend, weights["norm_2"])')],
        "loops": [
            (
                LOOP_BLOCK,
                f"    {LOOP_THOUGHT}\n    x = layer_norm(x, **second, eps=1e-5)\n"
                f"    {LOOP_ATTENDED}\n    return layer_norm(x, **first, eps=1e-5)\n",
            ),
        ],
    },
    ("encoder_block", "mask-ignored"): {
        "numpy": [('weights["attention"], n_heads, mask)', 'weights["attention"], n_heads)')],
        "loops": [("        seen = seen & mask", "        pass")],
    },
    ("encoder_block", "mask-inverted"): {
        "torch": [('weights["attention"], n_heads, mask)', 'weights["attention"], n_heads, None if mask is None else ~mask)')],
        "loops": [("seen & mask", "seen & ~mask")],
    },
    ("encoder", "shared-weights"): {
        "numpy": [("x = encoder_block(x, weights", "x = encoder_block(x, layers[0]")],
        "torch": [(", layers, x)", ", [layers[-1]] * len(layers), x)")],
        "loops": [("layers[i]", "layers[0]")],
    },
    ("encoder", "reads-original"): {
        "numpy": [("        x = encoder_block(x, weights, n_heads, mask)\n    return x", "        y = encoder_block(x, weights, n_heads, mask)\n    return y")],
        "torch": [("lambda x, weights: encoder_block(x", "lambda _, weights: encoder_block(x")],
    },
    ("encoder", "outputs-added"): {
        "numpy": [("        x = encoder_block(x,", "        x = x + encoder_block(x,")],
        "torch": [(TORCH_ENCODER, "return sum(encoder_block(x, weights, n_heads, mask) for weights in layers)")],
        "loops": [
            ("    i = 0\n", "    i = total = 0\n"),
            ("        i += 1\n    return x", "        total = total + x\n        i += 1\n    return total"),
        ],
    },
    ("encoder", "one-layer-too-few"): {
        "numpy": [("in layers:", "in layers[1:]:")],
        "loops": [("while i < len(layers):", "while i < len(layers) - 1:")],
    },
    ("encoder", "first-layer-only"): {
        "numpy": [("mask)\n    return x\n", "mask)\n        return x\n")],
        "loops": [("        i += 1\n    return x", "        i += 1\n        return x")],
    },
    ("encoder", "layers-reversed"): {
        "numpy": [("in layers:", "in reversed(layers):")],
        "torch": [(", layers, x)", ", layers[::-1], x)")],
        "loops": [("layers[i]", "layers[-1 - i]")],
    },
    ("encoder", "mask-ignored"): {
        "numpy": [("encoder_block(x, weights, n_heads, mask)", "encoder_block(x, weights, n_heads)")],
        "torch": [(TORCH_ENCODER, "return reduce(lambda x, weights: encoder_block(x, weights, n_heads), layers, x)")],
    },
    ("encoder", "mask-once"): {
        "numpy": [(FOR_LAYERS, FOR_LAYERS.replace("    return x", "        mask = None\n    return x"))],
        "loops": [("        i += 1\n", "        i, mask = i + 1, None\n")],
    },
    ("encoder", "all-outputs"): {
        "numpy": [(FOR_LAYERS, "    seen = []\n" + FOR_LAYERS.replace("    return x", "        seen.append(x)\n    return seen"))],
        "torch": [(TORCH_ENCODER, "seen = [x]\n    for weights in layers:\n        seen += [encoder_block(seen[-1], weights, n_heads, mask)]\n    return torch.stack(seen)")],
    },
}  # fmt: skip

# Mistakes that the grader does not know. It must describe them without a name. (part, style, edits)
UNLISTED = [
    ("center", "numpy", [(CENTER, "x - np.median(x, axis=-1, keepdims=True)")]),
    ("center", "torch", [(CENTER_TORCH, "x + x.mean(-1, keepdim=True)")]),
    ("center", "loops", [(CENTER_LOOPS, "x[place] - max(x[place])")]),
    ("center", "loops", [("/ len(x[place])", "/ 3")]),
    ("relu", "numpy", [(RELU, "np.clip(x, 0, 1)")]),
    ("relu", "loops", [(RELU_LOOPS, "value if value >= 0 else 0.01 * value")]),
    ("relu", "torch", [(RELU_TORCH, "x**2")]),
    ("layer_norm", "numpy", [("np.sqrt(variance + eps)", "np.cbrt(variance + eps)")]),
    ("layer_norm", "numpy", [("np.sqrt(variance + eps)", "np.sqrt(variance - eps)")]),
    ("layer_norm", "torch", [("variance + eps", "variance + eps**2")]),
    ("layer_norm", "numpy", [("variance = x.var(axis=-1, keepdims=True)", "variance = np.abs(x - mean).mean(axis=-1, keepdims=True) ** 2")]),
    ("layer_norm", "torch", [("centred.square()", "x.square()")]),
    ("layer_norm", "numpy", [("mean = x.mean(axis=-1, keepdims=True)", "mean = np.median(x, axis=-1, keepdims=True)")]),
    ("layer_norm", "loops", [("gain[d] * ", "(1 + gain[d]) * ")]),
    ("feed_forward", "torch", [("torch.relu(", "torch.sin(")]),
    ("feed_forward", "loops", [("else 0.0", "else 0.01 * total")]),
    ("feed_forward", "numpy", [("np.maximum(0, ", "np.minimum(0, ")]),
    ("feed_forward", "torch", [("return torch.einsum", "return x - torch.einsum")]),
    ("feed_forward", "numpy", [('np.maximum(0, x @ weights["w1"] + weights["b1"])', 'np.maximum(0, x) @ weights["w1"] + weights["b1"]')]),
    ("encoder_block", "numpy", [("x + attention_output", "x + 2 * attention_output")]),
    ("encoder_block", "numpy", [("EPS = 1e-5", "EPS = 1.0")]),
    ("encoder_block", "torch", [(TORCH_SECOND, "return x - apply_feed_forward(x)")]),
    ("encoder_block", "loops", [("weights[name][:, part]", "weights[name].T[:, part]")]),
    ("encoder_block", "loops", [("/ math.sqrt(e)", "/ math.sqrt(d)")]),
    ("encoder_block", "torch", [("x + sub_layer(x)", "x * sub_layer(x)")]),
    ("encoder", "numpy", [("    return x\n", "    return x / len(layers)\n")]),
    ("encoder", "loops", [("        i += 1\n    return x", "        i += 1\n    return encoder_block(x, layers[-1], n_heads, mask)")]),
    ("encoder", "torch", [(", layers, x)", ", layers[::2], x)")]),
    ("encoder", "numpy", [("    return x\n", "    return (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)\n")]),
]  # fmt: skip
