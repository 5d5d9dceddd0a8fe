"""Edits of right answers to exercise 9 that produce each known mistake, in at least two styles.

(part, mistake) -> {style: [(old text, new text), ...]}
"""

RELU = "d_output * (x > 0)"
TORCH_RELU = "torch.where(x > 0, d_output, 0.0)"
LOOP_RELU = "d_x[place] = d_output[place]\n"
D_W = "rows.T @ d_rows"
D_B = "d_rows.sum(axis=0)"
TORCH_D_W = 'torch.einsum("nd,nf->df", x.flatten(0, -2), d_output.flatten(0, -2))'
TORCH_D_B = "d_output.flatten(0, -2).sum(dim=0)"
SOFTMAX = "weights * (d_output - average)"
TORCH_SOFTMAX = "products - weights * products.sum(dim=-1, keepdim=True)"
SLOPE = "w[i] * (1 - w[i]) if i == j else -w[i] * w[j]"
CE = "d_logits * real[..., None] / real.sum()"
TORCH_CE = "return d_logits / real.sum()"
LOOP_CE = "p - 1 if j == target[b, t] else p"
ONE_HOT = "d_logits = d_logits - one_hot"
TORCH_P = "torch.softmax(logits, dim=-1)"
TORCH_ONE_HOT = " - one_hot(target, logits.shape[-1])"
NORM_SLOPE = "-1 / width - normed[i] * normed[j] / width"
TERMS = "(d_normed - mean_term - sigma_term) / sigma"
SIGMA_TERM = "normed * (d_normed * normed).mean"
TORCH_TERM = "d_x = d_x - normed * (d_normed * normed).mean(-1, keepdim=True)"
TORCH_PARAMETERS = 'torch.einsum("btd,btd->d", d_output, normed), torch.einsum("btd->d", d_output)'
FIRST_MAP = 'd_x, d_w1, d_b1 = linear_backward(d_before, x, weights["w1"])'
SECOND_MAP = 'linear_backward(d_output, hidden, weights["w2"])'
TORCH_FIRST_MAP = 'linear_backward(relu_backward(d_hidden, before), x, weights["w1"])'
ATTENTION = "attention(q, k, v, mask)"
D_SCORES = "softmax_backward(d_weights, weights)"
TORCH_D_SCORES = "d_scores = softmax_backward(d_output @ v.mT, weights)\n"
TORCH_D_QKV = "d_scores @ k * scale, d_scores.mT @ scaled, weights.mT @ d_output"
ROOT = "root = math.sqrt(q.shape[-1])"
TORCH_IF = "if mask is not None:"
W_O = 'linear_backward(d_output, merged, weights["output"])'
D_HEADS = "attention_backward(d_heads, q, k, v, mask)"
TORCH_D_MEMORY = 'd_k @ weights["key"].mT + d_v @ weights["value"].mT'
TORCH_D_X = 'return d_q @ weights["query"].mT, d_memory'
LOOP_SEEN = "        seen = seen & mask\n    d_x, d_memory"
D_BLOCK = "d_x = d_sum_1 + d_queries + d_memory"
D_H = "d_h = d_h + d_sum_2"
LOOP_NORM_1 = "d, d_gain, d_bias = layer_norm_backward(d_middle, x + attended"
LOOP_RESULT_1 = 'd_weights["norm_1"] = {"gain": d_gain, "bias": d_bias}\n    d_x'
LOOP_RESULT_2 = 'd_weights["norm_2"] = {"gain": d_gain, "bias": d_bias}\n    d_middle'
NORMS = 'norm_1, norm_2 = weights["norm_1"], weights["norm_2"]\n'
ADD_AT = "np.add.at(d_table, ids, d_output)"
INDEX_ADD = "return zeros.index_add(0, ids.flatten(), rows)"
D_DECODER = "d_x = d_sum_1 + d_queries + d_keys_and_values"

BACK_TO_FRONT = """    d_sum_2, d_gain_2, d_bias_2 = layer_norm_backward(d_output, sum_2, norm_2["gain"], EPS)
"""
FRONT_TO_BACK = """    d, d_gain_1, d_bias_1 = layer_norm_backward(d_output, sum_1, norm_1["gain"], EPS)
    a, b, d_attention = multi_head_attention_backward(d, x, x, weights["attention"], n_heads, mask)
    d, d_gain_2, d_bias_2 = layer_norm_backward(d + a + b, sum_2, norm_2["gain"], EPS)
    d_h, d_feed_forward = feed_forward_backward(d, h, weights["feed_forward"])
    return d + d_h, {
        "attention": d_attention,
        "norm_1": {"gain": d_gain_1, "bias": d_bias_1},
        "feed_forward": d_feed_forward,
        "norm_2": {"gain": d_gain_2, "bias": d_bias_2},
    }
"""
LOOP_BACK_TO_FRONT = """    d, d_gain, d_bias = layer_norm_backward(d_output, middle + thought, second["gain"], 1e-5)
"""
LOOP_FRONT_TO_BACK = """    d, *d_norm_1 = layer_norm_backward(d_output, x + attended, first["gain"], 1e-5)
    a, b, d_weights["attention"] = multi_head_attention_backward(d, x, x, weights["attention"], n_heads, mask)
    d, *d_norm_2 = layer_norm_backward(d + a + b, middle + thought, second["gain"], 1e-5)
    through, d_weights["feed_forward"] = feed_forward_backward(d, middle, weights["feed_forward"])
    d_weights["norm_1"] = dict(zip(["gain", "bias"], d_norm_1))
    d_weights["norm_2"] = dict(zip(["gain", "bias"], d_norm_2))
    return d + through, d_weights

"""
PRE_NORM = """    norm_1, norm_2 = weights["norm_1"], weights["norm_2"]
    a = layer_norm(x, norm_1["gain"], norm_1["bias"], EPS)
    h = x + multi_head_attention(a, a, weights["attention"], n_heads, mask)
    b = layer_norm(h, norm_2["gain"], norm_2["bias"], EPS)
    d_b, d_feed_forward = feed_forward_backward(d_output, b, weights["feed_forward"])
    d_h, d_gain_2, d_bias_2 = layer_norm_backward(d_b, h, norm_2["gain"], EPS)
    d_h = d_h + d_output
    d_q, d_m, d_attention = multi_head_attention_backward(d_h, a, a, weights["attention"], n_heads, mask)
    d_x, d_gain_1, d_bias_1 = layer_norm_backward(d_q + d_m, x, norm_1["gain"], EPS)
    return d_x + d_h, {
        "attention": d_attention,
        "norm_1": {"gain": d_gain_1, "bias": d_bias_1},
        "feed_forward": d_feed_forward,
        "norm_2": {"gain": d_gain_2, "bias": d_bias_2},
    }
"""
LOOP_BLOCK_START = '    first, second = weights["norm_1"], weights["norm_2"]\n'
LOOP_PRE_NORM = (
    PRE_NORM.replace('layer_norm(x, norm_1["gain"], norm_1["bias"], EPS)', "norm(x, **norm_1)")
    .replace('layer_norm(h, norm_2["gain"], norm_2["bias"], EPS)', "norm(h, **norm_2)")
    .replace("multi_head_attention(a", "attend(a")
    .replace("EPS", "1e-5")
)

EDITS = {
    ("relu_backward", "relu-where-d-output"): {
        "numpy": [(RELU, "d_output * (d_output > 0)")],
        "torch": [(TORCH_RELU, "d_output.relu()")],
        "loops": [("if x[place] > 0", "if d_output[place] > 0")],
    },
    ("relu_backward", "relu-times-output"): {
        "numpy": [(RELU, "d_output * np.maximum(0, x)")],
        "torch": [(TORCH_RELU, "d_output * x")],
        "loops": [(LOOP_RELU, "d_x[place] = d_output[place] * x[place]\n")],
    },
    ("relu_backward", "relu-unchanged"): {
        "numpy": [(RELU, "d_output")],
        "loops": [("if x[place] > 0", "if True")],
    },
    ("relu_backward", "relu-no-d-output"): {
        "numpy": [(RELU, "(x > 0)")],
        "torch": [(TORCH_RELU, "torch.where(x > 0, 1.0, 0.0)")],
        "loops": [(LOOP_RELU, "d_x[place] = 1\n")],
    },
    ("relu_backward", "relu-inverted"): {
        "numpy": [(RELU, "d_output * (x < 0)")],
        "torch": [(TORCH_RELU, "torch.where(x > 0, 0.0, d_output)")],
    },
    ("linear_backward", "linear-w-not-transposed"): {
        "numpy": [("d_output @ w.T", "d_output @ w")],
        "torch": [('torch.einsum("...f,df->...d", d_output, w)', "d_output @ w")],
        "loops": [("+= w[i, j] * d_output", "+= w[j, i] * d_output")],
    },
    ("linear_backward", "linear-d-w-transposed"): {
        "numpy": [(D_W, "d_rows.T @ rows")],
        "torch": [("nd,nf->df", "nd,nf->fd")],
    },
    ("linear_backward", "linear-d-w-per-text"): {
        "numpy": [(D_W, "np.swapaxes(x, -1, -2) @ d_output")],
        "torch": [(TORCH_D_W, "x.mT @ d_output")],
    },
    ("linear_backward", "linear-d-b-not-summed"): {
        "numpy": [(D_B, "d_output.sum(axis=0)")],
        "numpy, as it is": [(D_B, "d_output")],
        "torch": [(TORCH_D_B, "d_output.sum(dim=-2)")],
    },
    ("linear_backward", "linear-d-b-one-number"): {
        "numpy": [(D_B, "d_rows.sum()")],
        "torch": [(TORCH_D_B, "d_output.sum()")],
    },
    ("linear_backward", "linear-mean"): {
        "numpy": [(D_W, f"{D_W} / len(rows)"), (D_B, "d_rows.mean(axis=0)")],
        "torch": [(TORCH_D_B, "d_output.flatten(0, -2).mean(dim=0)")],
        "loops": [("    return d_x, d_w, d_b", "    return d_x, d_w / (x.size / x.shape[-1]), d_b")],
    },
    ("linear_backward", "linear-last-row"): {
        "numpy": [(D_W, "np.outer(rows[-1], d_rows[-1])"), (D_B, "d_rows[-1]")],
        "loops": [("d_w[i, j] += ", "d_w[i, j] = ")],
    },
    ("softmax_backward", "softmax-no-sum"): {
        "numpy": [(SOFTMAX, "weights * d_output")],
        "torch": [(TORCH_SOFTMAX, "products")],
        "loops": [(SLOPE, "w[i] if i == j else 0")],
    },
    ("softmax_backward", "softmax-like-sigmoid"): {
        "numpy": [(SOFTMAX, "weights * (1 - weights) * d_output")],
        "torch": [(TORCH_SOFTMAX, "products * (1 - weights)")],
        "loops": [("else -w[i] * w[j]", "else 0")],
    },
    ("softmax_backward", "softmax-plain-sum"): {
        "numpy": [("(d_output * weights).sum", "d_output.sum")],
        "numpy, mean": [("(d_output * weights).sum", "d_output.mean")],
        "torch": [("weights * products.sum", "weights * d_output.sum")],
    },
    ("softmax_backward", "softmax-sum-axis"): {
        "numpy": [("(d_output * weights).sum(axis=-1, keepdims=True)", "(d_output * weights).sum()")],
        "numpy, before": [("(d_output * weights).sum(axis=-1", "(d_output * weights).sum(axis=-2")],
        "torch": [("products.sum(dim=-1", "products.sum(dim=0")],
    },
    ("softmax_backward", "softmax-bracket"): {
        "numpy": [(SOFTMAX, "weights * d_output - average")],
        "torch": [("products - weights * products", "products - products")],
    },
    ("softmax_backward", "softmax-no-factor"): {
        "numpy": [(SOFTMAX, "d_output - average")],
        "torch": [("products - weights * products", "d_output - products")],
    },
    ("softmax_backward", "softmax-sign"): {
        "numpy": [(SOFTMAX, "weights * (average - d_output)")],
        "torch": [("products - weights * products", "products + weights * products")],
    },
    ("softmax_backward", "softmax-of-weights"): {
        "numpy": [("    average =", "    weights = softmax(weights)\n    average =")],
        "torch": [("    products =", "    weights = weights.softmax(dim=-1)\n    products =")],
    },
    ("softmax_backward", "softmax-forward"): {
        "numpy": [(SOFTMAX, "softmax(d_output)")],
        "torch": [(TORCH_SOFTMAX, "d_output * d_output.softmax(dim=-1)")],
    },
    ("softmax_backward", "softmax-no-d-output"): {
        "numpy": [(SOFTMAX, "weights * (1 - weights)")],
        "torch": [(TORCH_SOFTMAX, "weights - weights**2")],
        "loops": [("d[i] * slope", "slope if i == j else 0")],
    },
    ("cross_entropy_backward", "ce-no-subtraction"): {
        "numpy": [(ONE_HOT, "")],
        "torch": [(TORCH_ONE_HOT, "")],
        "loops": [(LOOP_CE, "p")],
    },
    ("cross_entropy_backward", "ce-sign"): {
        "numpy": [(ONE_HOT, "d_logits = one_hot - d_logits")],
        "torch": [(TORCH_CE, "return -d_logits / real.sum()")],
        "loops": [(LOOP_CE, "1 - p if j == target[b, t] else -p")],
    },
    ("cross_entropy_backward", "ce-not-divided"): {
        "numpy": [(CE, "d_logits * real[..., None]")],
        "torch": [(TORCH_CE, "return d_logits")],
        "loops": [("d_logits / count", "d_logits")],
    },
    ("cross_entropy_backward", "ce-divided-by-all"): {
        "numpy": [("/ real.sum()", "/ real.size")],
        "torch": [("/ real.sum()", "/ target.numel()")],
        "loops": [("            continue\n        count += 1\n", "            continue\n"), ("        if target[b, t] == pad", "        count += 1\n        if target[b, t] == pad")],
    },
    ("cross_entropy_backward", "ce-divided-by-texts"): {
        "numpy": [("/ real.sum()", "/ len(logits)")],
        "torch": [("/ real.sum()", "/ logits.shape[0]")],
    },
    ("cross_entropy_backward", "ce-divided-by-vocabulary"): {
        "numpy": [("/ real.sum()", "/ (real.sum() * logits.shape[-1])")],
        "torch": [("/ real.sum()", "/ d_logits[real].numel()")],
    },
    ("cross_entropy_backward", "ce-mean-of-means"): {
        "numpy": [("/ real.sum()", "/ real.sum(axis=1)[:, None, None] / len(target)")],
        "torch": [("/ real.sum()", "/ real.sum(1)[:, None, None] / len(target)")],
    },
    ("cross_entropy_backward", "ce-padding-counted"): {
        "numpy": [("target != pad", "np.ones(target.shape)")],
        "torch": [("target.ne(pad)", "torch.ones_like(target).bool()")],
        "loops": [("== pad:", "is None:")],
    },
    ("cross_entropy_backward", "ce-padding-not-zeroed"): {
        "numpy": [(" * real[..., None]", "")],
        "torch": [("    d_logits[~real] = 0.0\n", "")],
    },
    ("cross_entropy_backward", "ce-pad-fixed"): {
        "numpy": [("target != pad", "target != 0")],
        "torch": [("target.ne(pad)", "target > 0")],
        "loops": [("== pad:", "== 0:")],
    },
    ("cross_entropy_backward", "ce-target-only"): {
        "numpy": [(ONE_HOT, "d_logits = (d_logits - 1) * one_hot")],
        "loops": [(LOOP_CE, "p - 1 if j == target[b, t] else 0")],
    },
    ("cross_entropy_backward", "ce-one-over-p"): {
        "numpy": [(ONE_HOT, "d_logits = -one_hot / d_logits")],
        "loops": [(LOOP_CE, "-1 / p if j == target[b, t] else 0")],
    },
    ("cross_entropy_backward", "ce-no-softmax"): {
        "numpy": [("d_logits = softmax(logits)", "d_logits = logits")],
        "torch": [(TORCH_P, "logits")],
    },
    ("cross_entropy_backward", "ce-no-maximum"): {
        "numpy": [("d_logits = softmax(logits)", "d_logits = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)")],
        "torch": [(TORCH_P, "logits.exp() / logits.exp().sum(dim=-1, keepdim=True)")],
    },
    ("layer_norm_backward", "norm-no-mean-term"): {
        "numpy": [(" - mean_term", "")],
        "torch": [(" - d_normed.mean(-1, keepdim=True)", "")],
        "loops": [(NORM_SLOPE, "-normed[i] * normed[j] / width")],
    },
    ("layer_norm_backward", "norm-no-variance-term"): {
        "numpy": [(" - sigma_term", "")],
        "torch": [(TORCH_TERM, "")],
        "loops": [(NORM_SLOPE, "-1 / width")],
    },
    ("layer_norm_backward", "norm-only-direct"): {
        "numpy": [(TERMS, "d_normed / sigma")],
        "loops": [(NORM_SLOPE, "0.0")],
    },
    ("layer_norm_backward", "norm-not-divided"): {
        "numpy": [(TERMS, "d_normed - mean_term - sigma_term")],
        "torch": [("return d_x * inverse", "return d_x")],
        "loops": [("* slope / sigma", "* slope")],
    },
    ("layer_norm_backward", "norm-divided-by-variance"): {
        "numpy": [("sigma_term) / sigma", "sigma_term) / sigma**2")],
        "torch": [("return d_x * inverse", "return d_x / (variance + eps)")],
    },
    ("layer_norm_backward", "norm-no-gain"): {
        "numpy": [("d_normed = d_output * gain", "d_normed = d_output")],
        "torch": [("d_normed = d_output * gain", "d_normed = d_output")],
        "loops": [("* gain[i] * slope", "* slope")],
    },
    ("layer_norm_backward", "norm-gain-last"): {
        "numpy": [("d_normed = d_output * gain", "d_normed = d_output"), ("sigma_term) / sigma", "sigma_term) / sigma * gain")],
        "loops": [("* gain[i] * slope", "* gain[j] * slope")],
    },
    ("layer_norm_backward", "norm-x-for-normed"): {
        "numpy": [(SIGMA_TERM, "x * (d_normed * x).mean")],
        "torch": [(TORCH_TERM, "d_x = d_x - (x - mean) * (d_normed * (x - mean)).mean(-1, keepdim=True)")],
    },
    ("layer_norm_backward", "norm-sums"): {
        "numpy": [("d_normed.mean", "d_normed.sum"), ("(d_normed * normed).mean", "(d_normed * normed).sum")],
        "loops": [(NORM_SLOPE, "-1 - normed[i] * normed[j]")],
    },
    ("layer_norm_backward", "norm-axis"): {
        "numpy": [("d_normed.mean(axis=-1", "d_normed.mean(axis=-2"), ("(d_normed * normed).mean(axis=-1", "(d_normed * normed).mean(axis=-2")],
        "torch": [("d_normed.mean(-1", "d_normed.mean(0"), ("(d_normed * normed).mean(-1", "(d_normed * normed).mean(0")],
    },
    ("layer_norm_backward", "norm-term-sign"): {
        "numpy": [("- mean_term - sigma_term", "- mean_term + sigma_term")],
        "torch": [("d_normed - d_normed.mean", "d_normed + d_normed.mean")],
        "loops": [(NORM_SLOPE, "-1 / width + normed[i] * normed[j] / width")],
    },
    ("layer_norm_backward", "norm-d-gain-x"): {
        "numpy": [("(d_output * normed).sum", "(d_output * x).sum")],
        "torch": [('"btd,btd->d", d_output, normed', '"btd,btd->d", d_output, x - mean')],
        "loops": [("d_output[place][i] * normed[i]", "d_output[place][i] * x[place][i]")],
    },
    ("layer_norm_backward", "norm-parameters-times-gain"): {
        "numpy": [("(d_output * normed).sum", "(d_output * gain * normed).sum")],
        "torch": [(TORCH_PARAMETERS, TORCH_PARAMETERS.replace("d_output", "d_normed"))],
        "loops": [("d_bias[i] += d_output[place][i]", "d_bias[i] += d_output[place][i] * gain[i]")],
    },
    ("layer_norm_backward", "norm-parameters-not-summed"): {
        "numpy": [("normed).sum(axis=(0, 1))", "normed).sum(axis=0)"), ("d_output.sum(axis=(0, 1))", "d_output.sum(axis=0)")],
        "torch": [(TORCH_PARAMETERS, TORCH_PARAMETERS.replace("->d", "->bd"))],
    },
    ("layer_norm_backward", "norm-parameters-one-number"): {
        "numpy": [("normed).sum(axis=(0, 1))", "normed).sum()"), ("d_output.sum(axis=(0, 1))", "d_output.sum()")],
        "torch": [(TORCH_PARAMETERS, "(d_output * normed).sum(), d_output.sum()")],
    },
    ("layer_norm_backward", "norm-parameters-mean"): {
        "numpy": [("normed).sum(axis=(0, 1))", "normed).mean(axis=(0, 1))"), ("d_output.sum(axis=(0, 1))", "d_output.mean(axis=(0, 1))")],
        "torch": [(TORCH_PARAMETERS, "(d_output * normed).mean((0, 1)), d_output.mean((0, 1))")],
    },
    ("layer_norm_backward", "norm-no-eps"): {
        "numpy": [("keepdims=True) + eps)", "keepdims=True))")],
        "torch": [("variance + eps", "variance")],
        "loops": [("variance + eps", "variance + 1e-5")],
    },
    ("layer_norm_backward", "norm-unbiased"): {
        "numpy": [("x.var(axis=-1, ", "x.var(axis=-1, ddof=1, ")],
        "torch": [("correction=0, ", "")],
    },
    ("feed_forward_backward", "relu-unchanged"): {
        "numpy": [("relu_backward(d_hidden, before)", "d_hidden")],
        "torch": [("relu_backward(d_hidden, before)", "d_hidden")],
        "loops": [("d if h > 0 else 0.0 for d, h", "d for d, h")],
    },
    ("feed_forward_backward", "relu-where-d-output"): {
        "numpy": [("relu_backward(d_hidden, before)", "relu_backward(d_hidden, d_hidden)")],
        "loops": [("d if h > 0 else 0.0 for d, h", "d if d > 0 else 0.0 for d, h")],
    },
    ("feed_forward_backward", "relu-times-output"): {
        "numpy": [("relu_backward(d_hidden, before)", "d_hidden * hidden")],
        "loops": [("d if h > 0 else 0.0 for d, h", "d * h if h > 0 else 0.0 for d, h")],
    },
    ("feed_forward_backward", "ffn-no-b1"): {
        "numpy": [(' + weights["b1"]', "")],
        "loops": [("@ w1 + b1", "@ w1")],
    },
    ("feed_forward_backward", "ffn-before-relu"): {
        "numpy": [(SECOND_MAP, SECOND_MAP.replace("hidden", "before"))],
        "torch": [("before.relu()", "before")],
        "loops": [("np.outer(hidden", "np.outer(before")],
    },
    ("feed_forward_backward", "ffn-relu-only-for-x"): {
        "numpy": [(FIRST_MAP, FIRST_MAP + '\n    _, d_w1, d_b1 = linear_backward(d_hidden, x, weights["w1"])')],
        "loops": [('d_weights["b1"] += d_before', 'd_weights["b1"] += d_hidden')],
    },
    ("feed_forward_backward", "ffn-residual"): {
        "numpy": [('return d_x, {"w1"', 'return d_x + d_output, {"w1"')],
        "torch": [('return d_x, {"w1"', 'return d_x + d_output, {"w1"')],
    },
    ("feed_forward_backward", "linear-w-not-transposed"): {
        "loops": [("w1 @ d_before", "w1.T @ d_before")],
        "numpy": [(SECOND_MAP, SECOND_MAP + '\n    d_hidden = d_output @ weights["w2"]')],
    },
    ("feed_forward_backward", "linear-d-w-transposed"): {
        "loops": [("np.outer(x[place], d_before)", "np.outer(d_before, x[place])")],
        "torch": [('return d_x, {"w1": d_w1,', 'return d_x, {"w1": d_w1.mT,')],
    },
    ("attention_backward", "attention-no-scale"): {
        "numpy": [("d_scores / np.sqrt(q.shape[-1])", "d_scores")],
        "torch": [("q.shape[-1] ** -0.5", "1.0")],
        "loops": [(ROOT, "root = 1.0")],
    },
    ("attention_backward", "attention-scale-times"): {
        "numpy": [("d_scores / np.sqrt", "d_scores * np.sqrt")],
        "loops": [(ROOT, "root = 1 / math.sqrt(q.shape[-1])")],
    },
    ("attention_backward", "attention-scale-d"): {
        "numpy": [("d_scores / np.sqrt(q.shape[-1])", "d_scores / q.shape[-1]")],
        "loops": [(ROOT, "root = q.shape[-1]")],
    },
    ("attention_backward", "attention-scale-axis"): {
        "numpy": [("d_scores / np.sqrt(q.shape[-1])", "d_scores / np.sqrt(k.shape[-2])")],
        "torch": [("q.shape[-1] ** -0.5", "v.shape[-1] ** -0.5")],
        "loops": [(ROOT, "root = math.sqrt(k.shape[-2])")],
    },
    ("attention_backward", "attention-scale-one-side"): {
        "numpy": [("d_products @ k", "d_scores @ k")],
        "torch": [("d_scores @ k * scale", "d_scores @ k")],
        "loops": [("query / root", "query")],
    },
    ("attention_backward", "attention-scale-values"): {
        "numpy": [("d_v = np.swapaxes(weights, -1, -2) @ d_output", "d_v = np.swapaxes(weights, -1, -2) @ d_output / np.sqrt(q.shape[-1])")],
        "torch": [("weights.mT @ d_output", "weights.mT @ d_output * scale")],
    },
    ("attention_backward", "attention-no-softmax"): {
        "numpy": [(D_SCORES, "d_weights")],
        "torch": [(TORCH_D_SCORES, "d_scores = d_output @ v.mT\n")],
        "loops": [("w[j] * (d_w[j] - average)", "d_w[j]")],
    },
    ("attention_backward", "attention-q-for-k"): {
        "numpy": [("d_products @ k", "d_products @ q"), ("np.swapaxes(d_products, -1, -2) @ q", "np.swapaxes(d_products, -1, -2) @ k")],
        "torch": [(TORCH_D_QKV, "d_scores @ scaled, d_scores.mT @ k * scale, weights.mT @ d_output")],
    },
    ("attention_backward", "attention-d-k-not-transposed"): {
        "numpy": [("np.swapaxes(d_products, -1, -2) @ q", "d_products @ q")],
        "torch": [("d_scores.mT @ scaled", "d_scores @ scaled")],
    },
    ("attention_backward", "attention-d-v-not-transposed"): {
        "numpy": [("np.swapaxes(weights, -1, -2) @ d_output", "weights @ d_output")],
        "torch": [("weights.mT @ d_output", "weights @ d_output")],
    },
    ("attention_backward", "attention-keys-for-values"): {
        "numpy": [("d_output @ np.swapaxes(v, -1, -2)", "d_output @ np.swapaxes(k, -1, -2)")],
        "torch": [("d_output @ v.mT", "d_output @ k.mT")],
    },
    ("attention_backward", "attention-exchanged"): {
        "numpy": [("return d_q, d_k, d_v", "return d_k, d_q, d_v")],
        "torch": [(TORCH_D_QKV, "d_scores.mT @ scaled, d_scores @ k * scale, weights.mT @ d_output")],
        "loops": [("return d_q, d_k, d_v", "return d_k, d_q, d_v")],
    },
    ("attention_backward", "attention-mask-ignored"): {
        "numpy": [(ATTENTION, "attention(q, k, v)")],
        "torch": [(TORCH_IF, "if False:")],
        "loops": [("        seen = seen & mask\n", "        pass\n")],
    },
    ("attention_backward", "attention-mask-late"): {
        "numpy": [(ATTENTION, "attention(q, k, v)"), (D_SCORES, f"{D_SCORES} * (1 if mask is None else mask)")],
        "torch": [(TORCH_IF, "if False:"), (TORCH_D_SCORES, f"{TORCH_D_SCORES}    if mask is not None:\n        d_scores = d_scores * mask\n")],
    },
    ("attention_backward", "attention-mask-inverted"): {
        "numpy": [(ATTENTION, "attention(q, k, v, None if mask is None else ~mask)")],
        "torch": [("masked_fill(~mask", "masked_fill(mask")],
        "loops": [("seen = seen & mask", "seen = seen & ~mask")],
    },
    ("attention_backward", "softmax-no-sum"): {
        "loops": [("(d_w[j] - average)", "d_w[j]")],
        "numpy": [(D_SCORES, "weights * d_weights")],
    },
    ("attention_backward", "softmax-like-sigmoid"): {
        "loops": [("(d_w[j] - average)", "(1 - w[j]) * d_w[j]")],
        "torch": [(TORCH_D_SCORES, "d_scores = weights * (1 - weights) * (d_output @ v.mT)\n")],
    },
    ("multi_head_attention_backward", "heads-memory-one-way"): {
        "numpy": [("d_from_keys + d_from_values", "d_from_keys")],
        "torch": [(TORCH_D_MEMORY, 'd_k @ weights["key"].mT')],
        "loops": [("            d_memory[b] += d_k @ w_k.T\n", "")],
    },
    ("multi_head_attention_backward", "heads-memory-into-x"): {
        "numpy": [('return d_x, d_memory, {"query"', 'return d_x + d_memory, d_memory, {"query"')],
        "torch": [(TORCH_D_X, 'return d_q @ weights["query"].mT + d_memory, torch.zeros_like(memory)')],
    },
    ("multi_head_attention_backward", "heads-output-skipped"): {
        "numpy": [("split_heads(d_merged", "split_heads(d_output")],
        "torch": [("split(d_merged)", "split(d_output)")],
        "loops": [("d_output[b] @ w_o.T", "d_output[b][:, part]")],
    },
    ("multi_head_attention_backward", "heads-inputs-skipped"): {
        "numpy": [("d_memory = d_from_keys + d_from_values", "d_x, d_memory = d_q, d_k + d_v")],
        "torch": [(TORCH_D_MEMORY, "d_k + d_v"), (TORCH_D_X, "return d_q, d_memory")],
    },
    ("multi_head_attention_backward", "linear-w-not-transposed"): {
        "numpy": [(W_O, f'{W_O}\n    d_merged = d_output @ weights["output"]')],
        "torch": [(TORCH_D_MEMORY, TORCH_D_MEMORY.replace(".mT", "")), (TORCH_D_X, TORCH_D_X.replace(".mT", ""))],
    },
    ("multi_head_attention_backward", "heads-output-for-merged"): {
        "numpy": [(W_O, 'linear_backward(d_output, merged @ weights["output"], weights["output"])')],
        "torch": [(W_O, 'linear_backward(d_output, merged @ weights["output"], weights["output"])')],
    },
    ("multi_head_attention_backward", "heads-one"): {
        "numpy": [('    q = split_heads(x @ weights["query"]', '    n_heads = 1\n    q = split_heads(x @ weights["query"]')],
        "loops": [("    n, n_keys, e =", "    n_heads = 1\n    n, n_keys, e =")],
    },
    ("multi_head_attention_backward", "heads-by-view"): {
        "numpy": [("split_heads(d_merged, n_heads)", "d_merged.reshape(q.shape)")],
        "torch": [("split(d_merged)", "d_merged.reshape(q.shape)")],
    },
    ("multi_head_attention_backward", "heads-sources-mixed-up"): {
        "numpy": [("linear_backward(d_k, memory", "linear_backward(d_k, x"), ("linear_backward(d_v, memory", "linear_backward(d_v, x")],
        "torch": [('"bqi,bqj->ij", x', '"bqi,bqj->ij", memory')],
    },
    ("multi_head_attention_backward", "heads-k-v-exchanged"): {
        "numpy": [("d_q, d_k, d_v = (merge_heads", "d_q, d_v, d_k = (merge_heads")],
        "torch": [("d_q, d_k, d_v = map", "d_q, d_v, d_k = map")],
    },
    ("multi_head_attention_backward", "attention-exchanged"): {
        "numpy": [("d_q, d_k, d_v = (merge_heads", "d_k, d_q, d_v = (merge_heads")],
        "torch": [("d_q, d_k, d_v = map", "d_k, d_q, d_v = map")],
    },
    ("multi_head_attention_backward", "heads-scale-model-width"): {
        "numpy": [('split_heads(x @ weights["query"], n_heads)', 'split_heads(x @ weights["query"], n_heads) / np.sqrt(n_heads)'), ("linear_backward(d_q,", "linear_backward(d_q / np.sqrt(n_heads),")],
        "torch": [("q @ k.mT / q.shape[-1]", "q @ k.mT / x.shape[-1]")],
    },
    ("multi_head_attention_backward", "attention-mask-ignored"): {
        "numpy": [("attention(q, k, v, mask)[0]", "attention(q, k, v)[0]")],
        "torch": [("attention_backward(split(d_merged), q, k, v, mask)", "attention_backward(split(d_merged), q, k, v)")],
        "loops": [(LOOP_SEEN, "        pass\n    d_x, d_memory")],
    },
    ("encoder_block_backward", "block-no-memory"): {
        "numpy": [(D_BLOCK, "d_x = d_sum_1 + d_queries")],
        "loops": [("    d_x += looked_at\n", "")],
    },
    ("encoder_block_backward", "block-no-queries"): {
        "numpy": [(D_BLOCK, "d_x = d_sum_1 + d_memory")],
        "loops": [("    d_x += asking\n", "")],
    },
    ("encoder_block_backward", "block-no-residual-attention"): {
        "numpy": [(D_BLOCK, "d_x = d_queries + d_memory")],
        "loops": [("d_x = d.copy()", "d_x = np.zeros(x.shape)")],
    },
    ("encoder_block_backward", "block-no-residual-feed-forward"): {
        "numpy": [(D_H, "")],
        "loops": [("d_middle = d.copy()", "d_middle = np.zeros(x.shape)")],
    },
    ("encoder_block_backward", "block-no-residual"): {
        "numpy": [(D_BLOCK, "d_x = d_queries + d_memory"), (D_H, "")],
        "loops": [("d_middle = d.copy()", "d_middle = 0 * d"), ("d_x = d.copy()", "d_x = 0 * d")],
    },
    ("encoder_block_backward", "block-no-sub-layer"): {
        "numpy": [(D_H, "d_h = d_sum_2")],
        "loops": [("    d_x += asking\n    d_x += looked_at\n", "")],
    },
    ("encoder_block_backward", "block-residual-overwritten"): {
        "numpy": [(D_H, "d_h = d_h + d_h")],
        "loops": [("    d_x += asking\n    d_x += looked_at\n", "    d_x = 2 * (asking + looked_at)\n")],
    },
    ("encoder_block_backward", "block-residual-around-norm"): {
        "numpy": [(D_BLOCK, "d_x = d_h + d_queries + d_memory"), (D_H, "d_h = d_h + d_output")],
        "loops": [("d_middle = d.copy()", "d_middle = d_output.copy()")],
    },
    ("encoder_block_backward", "block-sub-layer-gets-d-output"): {
        "numpy": [("feed_forward_backward(d_sum_2, h", "feed_forward_backward(d_output, h")],
        "loops": [("multi_head_attention_backward(\n        d, x, x", "multi_head_attention_backward(\n        d_middle, x, x")],
    },
    ("encoder_block_backward", "block-norm-skipped"): {
        "numpy": [("d_sum_2, d_gain_2, d_bias_2 =", "d_sum_2 = d_output\n    _, d_gain_2, d_bias_2 =")],
        "loops": [(LOOP_NORM_1, "d = d_middle\n    _" + LOOP_NORM_1[1:])],
    },
    ("encoder_block_backward", "block-norm-reads-output"): {
        "numpy": [("layer_norm_backward(d_h, sum_1", "layer_norm_backward(d_h, h")],
        "loops": [(LOOP_NORM_1, LOOP_NORM_1.replace("x + attended", "middle"))],
    },
    ("encoder_block_backward", "block-norm-reads-sub-layer"): {
        "numpy": [("layer_norm_backward(d_h, sum_1", "layer_norm_backward(d_h, x")],
        "loops": [("middle + thought, second", "thought, second")],
    },
    ("encoder_block_backward", "block-sub-layer-wrong-input"): {
        "numpy": [("feed_forward_backward(d_sum_2, h", "feed_forward_backward(d_sum_2, x")],
        "loops": [("multi_head_attention_backward(\n        d, x, x", "multi_head_attention_backward(\n        d, middle, middle")],
    },
    ("encoder_block_backward", "block-norms-exchanged"): {
        "numpy": [('d_output, sum_2, norm_2["gain"]', 'd_output, sum_2, norm_1["gain"]'), ('d_h, sum_1, norm_1["gain"]', 'd_h, sum_1, norm_2["gain"]')],
        "numpy, everywhere": [(NORMS, 'norm_1, norm_2 = weights["norm_2"], weights["norm_1"]\n')],
        "loops": [(LOOP_RESULT_1, LOOP_RESULT_1.replace("_1", "_2")), (LOOP_RESULT_2, LOOP_RESULT_2.replace("_2", "_1"))],
    },
    ("encoder_block_backward", "block-pre-norm"): {
        "numpy": [("    " + NORMS, PRE_NORM)],
        "loops": [(LOOP_BLOCK_START, LOOP_PRE_NORM)],
    },
    ("encoder_block_backward", "block-forward-order"): {
        "numpy": [(BACK_TO_FRONT, FRONT_TO_BACK)],
        "loops": [(LOOP_BACK_TO_FRONT, LOOP_FRONT_TO_BACK)],
    },
    ("encoder_block_backward", "block-mask-ignored"): {
        "numpy": [('multi_head_attention(x, x, weights["attention"], n_heads, mask)', 'multi_head_attention(x, x, weights["attention"], n_heads)')],
        "loops": [('d, x, x, weights["attention"], n_heads, mask', 'd, x, x, weights["attention"], n_heads')],
        "torch": [("    w = weights\n", "    w, mask = weights, None\n")],
    },
    ("embed_backward", "embed-overwritten"): {
        "numpy": [(ADD_AT, "d_table[ids] += d_output")],
        "torch": [(INDEX_ADD, "zeros[ids.flatten()] = rows\n    return zeros")],
        "loops": [("[i] += d_output[b, t, i]", "[i] = d_output[b, t, i]")],
    },
    ("embed_backward", "embed-averaged"): {
        "numpy": [(ADD_AT, ADD_AT + "\n    d_table /= np.maximum(1, np.bincount(ids.flatten(), minlength=len(table)))[:, None]")],
        "torch": [(INDEX_ADD, 'return zeros.index_reduce(0, ids.flatten(), rows, "mean", include_self=False)')],
    },
    ("embed_backward", "embed-not-scaled"): {
        "numpy": [(" * np.sqrt(table.shape[-1])", "")],
        "torch": [(" * table.shape[1] ** 0.5", "")],
        "loops": [(" * math.sqrt(table.shape[1])", "")],
    },
    ("embed_backward", "embed-other-scale"): {
        "numpy": [("np.sqrt(table.shape[-1])", "table.shape[-1]")],
        "torch": [("table.shape[1] ** 0.5", "table.shape[1] ** -0.5")],
        "loops": [("math.sqrt(table.shape[1])", "math.sqrt(len(table))")],
    },
    ("embed_backward", "embed-positions"): {
        "numpy": [("    d_table = np.zeros", "    from cutaway.course.given import sinusoidal\n\n    d_output = d_output + sinusoidal(*d_output.shape[1:])\n    d_table = np.zeros")],
        "torch": [("    zeros = torch", "    from cutaway.course.given import sinusoidal\n\n    d_output = d_output - torch.from_numpy(sinusoidal(*d_output.shape[1:])).float()\n    zeros = torch")],
    },
    ("embed_backward", "embed-starts-from-table"): {
        "numpy": [("np.zeros(table.shape)", "table.copy()")],
        "torch": [("torch.zeros_like(table)", "table")],
        "loops": [("[[0.0] * table.shape[1] for _ in table]", "table.copy()")],
    },
    ("embed_backward", "embed-per-position"): {
        "numpy": [(ADD_AT, "d_table = d_output")],
        "torch": [(INDEX_ADD, "return rows.reshape(d_output.shape)")],
    },
    ("decoder_block_backward", "decoder-memory-mixed-up"): {
        "numpy": [("d_queries, d_keys_and_values, d_self", "d_queries, d_memory, d_self"), (D_DECODER, "d_x = d_sum_1 + d_queries + d_memory")],
        "numpy, added": [(D_DECODER, "d_memory = d_memory + d_keys_and_values\n    d_x = d_sum_1 + d_queries")],
        "loops": [("d_y = d_y + d_own", "d_y = d_y + d_memory")],
        "torch": [("return multi_head_attention_backward(d, x, memory, ", "return self_attention_backward2(d, x, memory, "), ("def decoder_block_backward", "def self_attention_backward2(*given):\n    a, b, c = multi_head_attention_backward(*given)\n    return a + b, b, c\n\n\ndef decoder_block_backward")],
    },
    ("decoder_block_backward", "block-no-memory"): {
        "numpy": [(D_DECODER, "d_x = d_sum_1 + d_queries")],
        "loops": [("d_y = d_y + d_own", "pass")],
    },
    ("decoder_block_backward", "block-no-residual"): {
        "numpy": [("layer_norm_backward(d_sum_3 + d_h", "layer_norm_backward(d_h")],
        "loops": [("d = d_sum + d_y", "d = d_y")],
    },
    ("decoder_block_backward", "block-residual-around-norm"): {
        "numpy": [("layer_norm_backward(d_sum_2 + d_a", "layer_norm_backward(d_sum_3 + d_h + d_a")],
        "loops": [("d = d_sum + d_y", "d = d + d_y")],
    },
    ("decoder_block_backward", "block-sub-layer-gets-d-output"): {
        "numpy": [("feed_forward_backward(d_sum_3, h", "feed_forward_backward(d_output, h")],
        "loops": [("multi_head_attention_backward(d_sum, y, y", "multi_head_attention_backward(d, y, y")],
    },
    ("decoder_block_backward", "block-norm-reads-output"): {
        "numpy": [("d_sum_2 + d_a, sum_1", "d_sum_2 + d_a, a")],
        "loops": [("layer_norm_backward(d, sums[i]", "layer_norm_backward(d, inputs[i + 1]")],
    },
    ("decoder_block_backward", "block-norm-reads-sub-layer"): {
        "numpy": [("layer_norm_backward(d_output, sum_3", "layer_norm_backward(d_output, sum_3 - h")],
        "loops": [("layer_norm_backward(d, sums[i]", "layer_norm_backward(d, sums[i] - y")],
    },
    ("decoder_block_backward", "decoder-wrong-input"): {
        "numpy": [("feed_forward_backward(d_sum_3, h", "feed_forward_backward(d_sum_3, a")],
        "loops": [("        y = inputs[i]\n        d_sum", "        y = inputs[i + 1]\n        d_sum")],
    },
    ("decoder_block_backward", "decoder-attentions-exchanged"): {
        "numpy": [('"self_attention": d_self', '"self_attention": d_cross'), ('"cross_attention": d_cross', '"cross_attention": d_self')],
        "loops": [('own, cross = weights["self_attention"], weights["cross_attention"]', 'cross, own = weights["self_attention"], weights["cross_attention"]')],
    },
    ("decoder_block_backward", "decoder-masks-exchanged"): {
        "numpy": [("    # Forward\n", "    mask, memory_mask = memory_mask, mask\n")],
        "loops": [("    own, cross =", "    mask, memory_mask = memory_mask, mask\n    own, cross =")],
    },
    ("decoder_block_backward", "decoder-self-mask"): {
        "numpy": [('weights["self_attention"], n_heads, mask)', 'weights["self_attention"], n_heads)')],
        "loops": [("multi_head_attention_backward(d_sum, y, y, own, n_heads, mask)", "multi_head_attention_backward(d_sum, y, y, own, n_heads)")],
    },
    ("decoder_block_backward", "decoder-memory-mask"): {
        "numpy": [('weights["cross_attention"], n_heads, memory_mask)', 'weights["cross_attention"], n_heads)')],
        "torch": [('multi_head_attention_backward(d, x, memory, w["cross_attention"], n_heads, memory_mask)', 'multi_head_attention_backward(d, x, memory, w["cross_attention"], n_heads)')],
    },
    ("decoder_block_backward", "block-forward-order"): {
        "loops": [("for i in (2, 1, 0):", "for i in (0, 1, 2):")],
    },
}  # fmt: skip

# Mistakes that the grader does not know. It must describe them without a name. (part, style, edits)
UNLISTED = [
    ("relu_backward", "numpy", [(RELU, "d_output * np.sign(x)")]),
    ("relu_backward", "torch", [(TORCH_RELU, "torch.where(x > 0, d_output, 0.1 * d_output)")]),
    ("linear_backward", "numpy", [(D_W, "rows.T @ d_rows + w")]),
    ("linear_backward", "torch", [(TORCH_D_B, "d_output.flatten(0, -2).amax(dim=0)")]),
    ("linear_backward", "loops", [("d_b[j] += d_output", "d_b[j] -= d_output")]),
    ("softmax_backward", "numpy", [(SOFTMAX, "weights**2 * (d_output - average)")]),
    ("softmax_backward", "torch", [("products = weights", "products = weights.sqrt()")]),
    ("softmax_backward", "loops", [("else -w[i] * w[j]", "else -w[i]")]),
    ("cross_entropy_backward", "numpy", [("/ real.sum()", "/ (real.sum() + 1)")]),
    ("cross_entropy_backward", "torch", [(TORCH_P, "torch.sigmoid(logits)")]),
    ("cross_entropy_backward", "loops", [(LOOP_CE, "2 * (p - 1) if j == target[b, t] else p")]),
    ("layer_norm_backward", "numpy", [(SIGMA_TERM, "np.abs(normed) * (d_normed * normed).mean")]),
    ("layer_norm_backward", "torch", [("return d_x * inverse", "return d_x * inverse.sqrt()")]),
    ("layer_norm_backward", "loops", [(NORM_SLOPE, "-1 / width - normed[i] * normed[j] / (width - 1)")]),
    ("feed_forward_backward", "numpy", [("relu_backward(d_hidden, before)", "d_hidden * np.tanh(before)")]),
    ("feed_forward_backward", "torch", [("before.relu()", "before.sigmoid()")]),
    ("feed_forward_backward", "loops", [("np.outer(hidden, d_output[place])", "np.outer(hidden, 2 * d_output[place])")]),
    ("attention_backward", "numpy", [("d_scores / np.sqrt(q.shape[-1])", "d_scores / np.cbrt(q.shape[-1])")]),
    ("attention_backward", "torch", [(TORCH_D_SCORES, "d_scores = (d_output @ v.mT).softmax(dim=-1)\n")]),
    ("attention_backward", "loops", [("w[j] * d\n", "d_w[j] * d\n")]),
    ("multi_head_attention_backward", "numpy", [("d_from_keys + d_from_values", "d_from_keys * d_from_values")]),
    ("multi_head_attention_backward", "torch", [(TORCH_D_MEMORY, TORCH_D_MEMORY.replace("+", "-"))]),
    ("multi_head_attention_backward", "loops", [('d_weights["output"][part] +=', 'd_weights["output"][part] =')]),
    ("encoder_block_backward", "numpy", [(D_BLOCK, "d_x = d_sum_1 + 2 * d_queries + d_memory")]),
    ("encoder_block_backward", "loops", [("d_x += looked_at", "d_x -= looked_at")]),
    ("encoder_block_backward", "numpy", [(D_H, "d_h = (d_h + d_sum_2) / 2")]),
    ("embed_backward", "numpy", [("np.sqrt(table.shape[-1])", "np.log(table.shape[-1])")]),
    ("embed_backward", "loops", [("rows[ids[b, t]]", "rows[ids[b, t] - 1]")]),
    ("decoder_block_backward", "numpy", [("d_sum_2 + d_a", "d_sum_2 - d_a")]),
    ("decoder_block_backward", "loops", [("d_y = d_y + d_own", "d_y = d_y * d_own")]),
]  # fmt: skip
