"""Edits of right answers to exercise 1 that produce each known mistake, in at least two styles.

(part, mistake) -> {style: [(old text, new text), ...]}
"""

DIVIDE_BY_SUM = "powers / powers.sum(axis=-1, keepdims=True)"
EINSUM_DOT = 'torch.einsum("d,d->", a, b)'
ADD_ROWS = "(weights[:, None] * values).sum(dim=0)"
LOOP_AVERAGE = "sum(weight * value[e] for weight, value in zip(weights, values, strict=True))"

EDITS = {
    ("dot", "not-added"): {
        "numpy": [("return products.sum()", "return products")],
        "torch": [(EINSUM_DOT, "a * b")],
    },
    ("dot", "mean-of-products"): {
        "numpy": [("products.sum()", "products.mean()")],
        "loops": [("    return total\n", "    return total / len(a)\n")],
    },
    ("dot", "sums-multiplied"): {
        "torch": [(EINSUM_DOT, "a.sum() * b.sum()")],
        "loops": [("    return total\n", "    return sum(a) * sum(b)\n")],
    },
    ("dot", "all-pairs"): {
        "numpy": [("return products.sum()", "return a[:, None] * b")],
        "torch": [('"d,d->"', '"d,e->de"')],
    },
    ("dot", "cosine"): {
        "numpy": [("return products.sum()", "return products.sum() / np.linalg.norm(a) / np.linalg.norm(b)")],
        "torch": [(EINSUM_DOT, "torch.nn.functional.cosine_similarity(a, b, dim=0)")],
    },
    ("weighted_average", "weights-ignored"): {
        "numpy": [("return weights @ values", "return values.mean(axis=0)")],
        "torch": [(ADD_ROWS, "values.sum(dim=0)")],
        "loops": [(LOOP_AVERAGE, "sum(value[e] for value in values) / len(values)")],
    },
    ("weighted_average", "wrong-axis"): {
        "numpy": [("weights @ values", "values @ weights")],
        "torch": [(ADD_ROWS, "(weights * values).sum(dim=0)")],
        "torch, the sum": [("values).sum(dim=0)", "values).sum(dim=1)")],
    },
    ("weighted_average", "not-added"): {
        "numpy": [("weights @ values", "weights[:, None] * values")],
        "torch": [("values).sum(dim=0)", "values)")],
    },
    ("weighted_average", "divided-again"): {
        "numpy": [("weights @ values", "weights @ values / len(weights)")],
        "torch": [("values).sum(dim=0)", "values).mean(dim=0)")],
        "loops": [(LOOP_AVERAGE, LOOP_AVERAGE + " / len(weights)")],
    },
    ("weighted_average", "largest-only"): {
        "numpy": [("weights @ values", "values[weights.argmax()]")],
        "torch": [(ADD_ROWS, "values[weights.topk(1).indices[0]]")],
    },
    ("softmax", "softmax-axis"): {
        "numpy": [("axis=-1", "axis=0"), ("axis=-1", "axis=0")],
        "torch": [("dim=-1", "dim=-2"), ("dim=-1", "dim=-2")],
        "loops": [
            (
                "def softmax(x):\n",
                "def softmax(x):\n    return _softmax(x.swapaxes(-1, -2)).swapaxes(-1, -2)\n\n\ndef _softmax(x):\n",
            ),
        ],
    },
    ("softmax", "softmax-over-everything"): {
        "numpy": [("x.max(axis=-1, keepdims=True)", "x.max()"), (DIVIDE_BY_SUM, "powers / np.sum(powers)")],
        "torch": [("x.amax(dim=-1, keepdim=True)", "x.max()"), ("powers.sum(dim=-1, keepdim=True)", "powers.sum()")],
    },
    ("softmax", "no-maximum"): {
        "numpy": [("x = x - x.max(axis=-1, keepdims=True)", "pass")],
        "torch": [("torch.exp(x - x.amax(dim=-1, keepdim=True))", "x.exp()")],
        "loops": [("np.e ** (value - largest)", "np.exp(value)")],
        "numpy, the minimum": [("x.max(axis=-1, keepdims=True)", "x.min(axis=-1, keepdims=True)")],
        "torch, the mean": [("x.amax(dim=-1, keepdim=True)", "x.mean(dim=-1, keepdim=True)")],
    },
    ("softmax", "not-normalised"): {
        "numpy": [(DIVIDE_BY_SUM, "powers")],
        "loops": [("power / sum(powers)", "power")],
    },
    ("softmax", "log-softmax"): {
        "numpy": [(DIVIDE_BY_SUM, "x - np.log(powers.sum(axis=-1, keepdims=True))")],
        "torch": [("powers / powers.sum(dim=-1, keepdim=True)", "torch.log_softmax(x, -1)")],
    },
    ("softmax", "one-maximum"): {
        "numpy": [("x.max(axis=-1, keepdims=True)", "x.max()")],
        "torch": [("x.amax(dim=-1, keepdim=True)", "torch.max(x)")],
        "loops": [("largest = max(x[row])", "largest = x.max()")],
    },
    ("softmax", "no-powers"): {
        "numpy": [("powers = np.exp(x)", "powers = x")],
        "torch": [("torch.exp(x - x.amax(dim=-1, keepdim=True))", "x")],
        "loops": [("np.e ** (value - largest)", "value")],
    },
    ("softmax", "minus"): {
        "numpy": [("def softmax(x):\n", "def softmax(x):\n    x = -x\n")],
        "torch": [("x - x.amax(dim=-1, keepdim=True)", "x.amax(dim=-1, keepdim=True) - x")],
        "loops": [("np.e ** (value - largest)", "np.exp(largest - value)")],
    },
    ("causal_mask", "only-itself"): {
        "numpy": [("np.tril(np.ones((n, n), dtype=bool))", "np.eye(n, dtype=bool)")],
        "torch": [("<=", "==")],
        "loops": [("if j <= i:", "if j == i:")],
    },
    ("causal_mask", "mask-inverted"): {
        "numpy": [("np.tril(np.ones((n, n), dtype=bool))", "np.triu(np.ones((n, n)), k=1)")],
        "torch": [("positions[None, :] <= positions[:, None]", "positions[None, :] > positions[:, None]")],
        "loops": [("if j <= i:", "if not j <= i:")],
    },
    ("causal_mask", "mask-transposed"): {
        "numpy": [("np.tril", "np.triu")],
        "torch": [("positions[None, :] <= positions[:, None]", "positions[:, None] <= positions[None, :]")],
    },
    ("causal_mask", "future-leak"): {
        "numpy": [("np.tril(np.ones((n, n), dtype=bool))", "np.tril(np.ones((n, n), dtype=bool), k=1)")],
        "loops": [("if j <= i:", "if j <= i + 1:")],
    },
    ("causal_mask", "not-itself"): {
        "torch": [("<=", "<")],
        "loops": [("j <= i", "j < i")],
    },
    ("causal_mask", "mask-all"): {
        "numpy": [("np.tril(np.ones((n, n), dtype=bool))", "np.full((n, n), True)")],
        "loops": [("            if j <= i:\n                mask[i, j] = 1", "            mask[i, j] = 1")],
    },
    ("causal_mask", "mask-additive"): {
        "numpy": [("np.tril(np.ones((n, n), dtype=bool))", "np.triu(np.full((n, n), -np.inf), k=1)")],
        "torch": [("return positions[None, :] <= positions[:, None]", "return torch.triu(torch.ones(n, n), 1) * -1e9")],
    },
    ("attention", "no-scale"): {
        "numpy": [(" / np.sqrt(d_k)", "")],
        "torch": [(" / math.sqrt(k.size(-1))", "")],
        "loops": [("dot * d_k**-0.5", "dot")],
    },
    ("attention", "scale-d"): {
        "numpy": [("np.sqrt(d_k)", "d_k")],
        "loops": [("dot * d_k**-0.5", "dot / d_k")],
    },
    ("attention", "scale-times"): {
        "torch": [("/ math.sqrt(k.size(-1))", "* math.sqrt(k.size(-1))")],
        "loops": [("**-0.5", "**0.5")],
    },
    ("attention", "scale-length"): {
        "numpy": [("d_k = q.shape[-1]", "d_k = k.shape[-2]")],
        "torch": [("k.size(-1)", "k.size(-2)")],
    },
    ("attention", "scale-value-width"): {
        "numpy": [("np.sqrt(d_k)", "np.sqrt(v.shape[-1])")],
        "torch": [("k.size(-1)", "v.size(-1)")],
    },
    ("attention", "scale-after-softmax"): {
        "numpy": [(" / np.sqrt(d_k)", ""), ("softmax(scores)", "softmax(scores) / np.sqrt(d_k)")],
        "loops": [("dot * d_k**-0.5", "dot"), ("weights = softmax(scores)", "weights = softmax(scores) / d_k**0.5")],
    },
    ("attention", "softmax-axis"): {
        "numpy": [("softmax(scores)", "softmax(scores.swapaxes(-1, -2)).swapaxes(-1, -2)")],
        "torch": [("softmax(scores)", "torch.softmax(scores, dim=-2)")],
        # adds to masked scores, so fully masked keys keep different scores
        "loops": [("softmax(scores)", "softmax(scores.swapaxes(-1, -2)).swapaxes(-1, -2)")],
    },
    ("attention", "softmax-over-everything"): {
        "numpy": [("softmax(scores)", "softmax(scores.reshape(-1)).reshape(scores.shape)")],
        "torch": [("softmax(scores)", "scores.exp() / scores.exp().sum()")],
    },
    ("attention", "log-softmax"): {
        "numpy": [("-np.inf)", "-1e9)"), ("softmax(scores)", "scores - np.log(np.exp(scores).sum(-1, keepdims=True))")],
        "torch": [('float("-inf")', "-1e9"), ("softmax(scores)", "torch.log_softmax(scores, -1)")],
    },
    ("attention", "not-normalised"): {
        "numpy": [("softmax(scores)", "np.exp(scores - np.max(scores, axis=-1, keepdims=True))")],
        "loops": [("softmax(scores)", "np.exp(scores - scores.max(-1)[..., None])")],
    },
    ("attention", "no-softmax"): {
        "numpy": [("weights = softmax(scores)", "weights = scores"), ("-np.inf", "-1e9")],
        "loops": [("weights = softmax(scores)", "weights = scores")],
    },
    ("attention", "mask-inverted"): {
        "numpy": [("np.where(mask, scores, -np.inf)", "np.where(mask, -np.inf, scores)")],
        "torch": [("~mask", "mask")],
        "loops": [("(1 - mask.astype(float))", "mask.astype(float)")],
    },
    ("attention", "mask-ignored"): {
        "numpy": [("if mask is not None:", "if False:")],
        "torch": [("scores = scores.masked_fill", "scores.masked_fill")],
    },
    ("attention", "mask-after-softmax"): {
        "numpy": [
            ("        scores = np.where(mask, scores, -np.inf)", "        pass"),
            (
                "weights = softmax(scores)",
                "weights = softmax(scores)\n    if mask is not None:\n        weights = np.where(mask, weights, 0)",
            ),
        ],
        "torch": [
            (
                'scores = scores.masked_fill(~mask, float("-inf"))',
                "return (softmax(scores) * mask) @ v, softmax(scores) * mask",
            ),
        ],
    },
    ("attention", "masked-to-zero"): {
        "numpy": [("np.where(mask, scores, -np.inf)", "np.where(mask, scores, 0.0)")],
        "loops": [("scores + (1 - mask.astype(float)) * -1e9", "scores * mask")],
    },
    ("attention", "mask-added"): {
        "numpy": [("np.where(mask, scores, -np.inf)", "scores + mask")],
        "torch": [('scores.masked_fill(~mask, float("-inf"))', "scores + mask.float()")],
    },
    ("attention", "q-k-exchanged"): {
        "numpy": [("q @ k.swapaxes(-1, -2)", "k @ q.swapaxes(-1, -2)")],
        "torch": [('einsum("...qe,...ke->...qk"', 'einsum("...ke,...qe->...qk"')],
    },
    ("attention", "weights-transposed"): {
        "numpy": [("weights @ v,", "weights.swapaxes(-1, -2) @ v,")],
        "torch": [('"...qk,...kv->...qv"', '"...kq,...kv->...qv"')],
    },
    ("attention", "keys-for-values"): {
        "numpy": [("weights @ v,", "weights @ k,")],
        "loops": [("weights, v)", "weights, k)")],
    },
    ("attention", "scores-returned"): {
        "numpy": [("return weights @ v, weights", "return weights @ v, scores"), ("-np.inf", "-1e9")],
        "torch": [("weights, v), weights", "weights, v), scores"), ('float("-inf")', "-1e9")],
    },
    ("attention", "softmax-twice"): {
        "numpy": [("return weights @ v, weights", "weights = softmax(weights)\n    return weights @ v, weights")],
        "torch": [("weights = softmax(scores)", "weights = softmax(torch.softmax(scores, -1))")],
    },
    ("attention", "returned-in-other-order"): {
        "numpy": [("return weights @ v, weights", "return weights, weights @ v")],
        "loops": [('return np.einsum("...qk,...kv->...qv", weights, v), weights', "return weights, weights @ v")],
    },
    ("attention", "only-output"): {
        "numpy": [("return weights @ v, weights", "return weights @ v")],
        "torch": [("weights, v), weights", "weights, v)")],
    },
}

# Mistakes that the grader does not know. It must describe them without a name. (part, style, edits)
UNLISTED = [
    ("dot", "numpy", [("products.sum()", "products.max()")]),
    ("dot", "torch", [(EINSUM_DOT, "((a - b) ** 2).sum()")]),
    ("dot", "loops", [("a[i] * b[i]", "a[i] * b[-1 - i]")]),
    ("dot", "loops", [("total = 0.0", "total = 1.0")]),
    ("weighted_average", "numpy", [("weights @ values", "weights**2 @ values")]),
    ("weighted_average", "loops", [("range(values.shape[1])", "range(values.shape[1] - 1)")]),
    ("weighted_average", "torch", [("weights[:, None]", "weights.flip(0)[:, None]")]),
    ("softmax", "numpy", [("return powers /", "powers = powers * (x < 0)\n    return powers /")]),
    ("softmax", "torch", [("powers /", "0.9 * powers /")]),
    ("softmax", "numpy", [("np.exp(x)", "2.0**x")]),
    ("softmax", "numpy", [("powers / powers.sum", "powers / powers.mean")]),
    ("softmax", "torch", [("powers / powers.sum(dim=-1, keepdim=True)", "torch.relu(x) / 3")]),
    ("causal_mask", "numpy", [("np.tril(np.ones((n, n), dtype=bool))", "np.fliplr(np.tri(n, dtype=bool))")]),
    ("causal_mask", "loops", [("j <= i", "j <= i and j >= i - 1")]),
    (
        "causal_mask",
        "loops",
        [("(n, n), dtype=int)", "(1, n, n), dtype=int)[0, :, :, None]"), ("mask[i, j]", "mask[i, j, 0]")],
    ),
    ("attention", "numpy", [("np.sqrt(d_k)", "np.log(d_k)")]),
    ("attention", "numpy", [("np.sqrt(d_k)", "d_k**2")]),
    ("attention", "torch", [("softmax(scores)", "torch.sigmoid(scores)")]),
    ("attention", "numpy", [("-np.inf", "-1.0")]),
    ("attention", "torch", [("weights, v), weights", "weights, v) + v.mean(), weights")]),
    ("attention", "loops", [("for e in range(d_k)", "for e in range(d_k - 1)")]),
    ("attention", "numpy", [("np.where(mask, scores, -np.inf)", "np.full(scores.shape, np.nan)")]),
    # masks of more than two axes, and masks that are not the same for all queries
    ("attention", "numpy", [("if mask is not None:", "if mask is not None and mask.ndim == 2:")]),
    ("attention", "torch", [("masked_fill(~mask", "masked_fill(~mask.any(-2, keepdim=True)")]),
    ("attention", "numpy", [("np.where(mask, scores", "np.where(mask.any(-2, keepdims=True), scores")]),
    ("attention", "torch", [("masked_fill(~mask", "masked_fill(~(mask[0] if mask.ndim == 4 else mask)")]),
]
