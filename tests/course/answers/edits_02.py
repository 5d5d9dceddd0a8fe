"""Edits of right answers to exercise 2 that produce each known mistake, in at least two styles.

(part, mistake) -> {style: [(old text, new text), ...]}
"""

SPLIT_CUT = "x.reshape(n_texts, n_words, n_heads, d_model // n_heads)"
SPLIT_MOVE = "return x.swapaxes(1, 2)  # and only then"
MERGE_MOVE = "x = x.swapaxes(1, 2)  # [B, T, H, E]"
MERGE_GLUE = "return x.reshape(n_texts, n_words, n_heads * width)"
STACK = "torch.stack(x.chunk(n_heads, dim=-1), dim=1)"
CAT = "torch.cat(x.unbind(dim=1), dim=-1)"
RANGE_OF_HEAD = "x[:, t, h * width : (h + 1) * width]"
COLUMNS = "columns = slice(h * width, (h + 1) * width)"
HEADS_SIDE_BY_SIDE = "np.concatenate([x[:, h] for h in range(n_heads)], axis=2)"
SPLIT_Q = 'project_heads(x, weights["query"], n_heads)'
SPLIT_K = 'project_heads(memory, weights["key"], n_heads)'
SPLIT_V = 'project_heads(memory, weights["value"], n_heads)'
# multi_head_attention with attend_heads written out
INLINE = (
    "return attend_heads(q, k, v, mask) @",
    "heads, _ = attention(q, k, v, mask)  # written out\n    return merge_heads(heads) @",
)
PROJECT_TORCH = 'torch.einsum("btd,dhe->bhte", x, columns)'
SCORES_OF_HEADS = "q @ k.transpose(-1, -2) / k.size(-1) ** 0.5"
JOINED = "found.transpose(1, 2).flatten(2)"
LOOP_PARTS = "np.concatenate(parts, axis=2)"
LOOP_HIDE = "np.broadcast_to(mask, (n_texts, n_heads, *scores.shape[1:]))[:, h]"
SOFTMAX_TORCH = "torch.softmax(scores, dim=-1)"
SCALE_TORCH = " / math.sqrt(d_model / n_heads)"
OUTPUT_TORCH = 'torch.einsum("bhqe,hed->bqd", heads, w_o)'
MASK_TORCH = 'scores.masked_fill(~mask, float("-inf"))'
POWERS = "np.exp(scores - scores.max()) * seen"

EDITS = {
    ("head_columns", "heads-overlap"): {
        "numpy": [("np.arange(head * width, (head + 1) * width)", "np.arange(head, head + width)")],
        "torch": [("torch.arange(d_model).chunk(n_heads)[head]", "torch.arange(d_model // n_heads) + head")],
    },
    ("head_columns", "split-like-cards"): {
        "numpy": [("np.arange(head * width, (head + 1) * width)", "np.arange(head, d_model, n_heads)")],
        "torch": [(".chunk(n_heads)[head]", "[head::n_heads]")],
        "loops": [("column // (d_model // n_heads) == head", "column % n_heads == head")],
    },
    ("head_columns", "number-for-width"): {
        "numpy": [("width = d_model // n_heads", "width = n_heads")],
        "torch": [("arange(d_model).chunk(n_heads)[head]", "arange(d_model).split(n_heads)[head]")],
    },
    ("head_columns", "heads-out-of-order"): {
        "numpy": [("return np.arange(head", "head = n_heads - 1 - head\n    return np.arange(head")],
        "torch": [("chunk(n_heads)[head]", "chunk(n_heads)[::-1][head]")],
    },
    ("head_columns", "first-head-for-all"): {
        "torch": [("chunk(n_heads)[head]", "chunk(n_heads)[0]")],
        "loops": [("== head:", "== 0:")],
    },
    ("head_columns", "head-from-1"): {
        "numpy": [("np.arange(head * width, (head + 1) * width)", "np.arange((head - 1) * width, head * width)")],
        "torch": [
            (
                "torch.arange(d_model).chunk(n_heads)[head]",
                "torch.arange(d_model // n_heads) + d_model // n_heads * (head - 1)",
            )
        ],
    },
    ("head_columns", "wrong-end"): {
        "numpy": [("(head + 1) * width)", "(head + 1) * width - 1)")],
        "torch": [
            (
                "torch.arange(d_model).chunk(n_heads)[head]",
                "torch.arange(head * d_model // n_heads, (head + 1) * d_model // n_heads + 1)",
            )
        ],
    },
    ("head_columns", "only-ends"): {
        "numpy": [("np.arange(head * width, (head + 1) * width)", "head * width, (head + 1) * width")],
        "torch": [("chunk(n_heads)[head]", "chunk(n_heads)[head][[0, -1]]")],
    },
    ("project_heads", "inputs-transposed"): {
        "numpy": [("projected = x @ w", "projected = x @ w.T")],
        "torch": [("w.view(w.size(0)", "w.T.reshape(w.size(0)")],
    },
    ("project_heads", "no-projections"): {
        "numpy": [("projected = x @ w", "projected = x")],
        "torch": [(PROJECT_TORCH, "split_heads(x, n_heads)")],
    },
    ("project_heads", "each-head-its-own-numbers"): {
        "torch": [
            (
                PROJECT_TORCH,
                'torch.einsum("bhte,hed->bhtd", split_heads(x, n_heads), '
                "torch.stack([part[i * len(part[0]) :][: len(part[0])] for i, part in enumerate([c.T.reshape(-1, len(w)).T for c in columns.unbind(1)])])"
                ")",
            )
        ],
        "numpy": [
            (
                "return split_heads(projected, n_heads)",
                "heads, e = split_heads(x, n_heads), x.shape[-1] // n_heads\n"
                "    return np.stack([heads[:, h] @ w[h * e : (h + 1) * e, h * e : (h + 1) * e] for h in range(n_heads)], axis=1)",
            )
        ],
    },
    ("project_heads", "not-split"): {
        "numpy": [("return split_heads(projected, n_heads)", "return projected")],
        "torch": [(PROJECT_TORCH, "x @ w")],
    },
    ("attend_heads", "no-scale"): {
        "torch": [(" / k.size(-1) ** 0.5", "")],
        "loops": [(" / e**0.5", "")],
    },
    ("attend_heads", "scale-model-width"): {
        "torch": [("/ k.size(-1) ** 0.5", "/ (k.size(-1) * k.size(1)) ** 0.5")],
        "loops": [("/ e**0.5", "/ (n_heads * e) ** 0.5")],
    },
    ("attend_heads", "mask-ignored"): {
        "numpy": [("attention(q, k, v, mask=mask)", "attention(q, k, v)")],
        "loops": [("        if mask is not None:\n            scores[", "        if False:\n            scores[")],
    },
    ("attend_heads", "mask-inverted"): {
        "numpy": [("mask=mask)", "mask=mask if mask is None else ~mask)")],
        "torch": [("mask.logical_not()", "mask")],
    },
    ("attend_heads", "mask-first-head"): {
        "torch": [("match = match.masked_fill(mask", "match[:, 0] = match[:, 0].masked_fill(mask")],
        "loops": [
            (
                "        if mask is not None:\n            scores[",
                "        if mask is not None and h == 0:\n            scores[",
            )
        ],
    },
    ("attend_heads", "q-k-exchanged"): {
        "numpy": [("attention(q, k, v, mask=mask)", "attention(k, q, v, mask=mask)")],
        "torch": [("q @ k.transpose(-1, -2)", "k @ q.transpose(-1, -2)")],
    },
    ("attend_heads", "queries-as-keys"): {
        "numpy": [("attention(q, k, v, mask=mask)", "attention(q, q, v, mask=mask)")],
        "torch": [("q @ k.transpose(-1, -2)", "q @ q.transpose(-1, -2)")],
    },
    ("attend_heads", "k-v-matrices-exchanged"): {
        "numpy": [("attention(q, k, v, mask=mask)", "attention(q, v, k, mask=mask)")],
        "torch": [("    # mistakes: no-scale, scale", "    k, v = v, k\n    #")],
    },
    ("attend_heads", "value-matrix-for-keys"): {
        "numpy": [("attention(q, k, v, mask=mask)", "attention(q, v, v, mask=mask)")],
        "loops": [("k[:, h].transpose", "v[:, h].transpose")],
    },
    ("attend_heads", "keys-for-values"): {
        "numpy": [("attention(q, k, v, mask=mask)", "attention(q, k, k, mask=mask)")],
        "loops": [("v[:, h]))", "k[:, h]))")],
    },
    ("attend_heads", "merge-by-view"): {
        "numpy": [("merge_heads(attended)", "attended.reshape(len(q), q.shape[2], -1)")],
        "torch": [(JOINED, "found.reshape(len(q), q.size(2), -1)")],
    },
    ("attend_heads", "merge-like-cards"): {
        "torch": [(JOINED, "found.permute(0, 2, 3, 1).flatten(2)")],
        "loops": [(LOOP_PARTS, "np.stack(parts, axis=-1).reshape(n_texts, q.shape[2], -1)")],
    },
    ("attend_heads", "merge-out-of-order"): {
        "torch": [(JOINED, "found.flip(1).transpose(1, 2).flatten(2)")],
        "loops": [(LOOP_PARTS, "np.concatenate(parts[::-1], axis=2)")],
    },
    ("attend_heads", "heads-added"): {
        "torch": [(JOINED, "found.sum(1)")],
        "loops": [(LOOP_PARTS, "sum(parts)")],
    },
    ("attend_heads", "not-merged"): {
        "torch": [(JOINED, "found.transpose(1, 2)")],
        "loops": [(LOOP_PARTS, "np.stack(parts, axis=2)")],
    },
    ("attend_heads", "weights-returned"): {
        "numpy": [
            ("attended, _ =", "attended, shares ="),
            ("return merge_heads(attended)", "return merge_heads(attended), shares"),
        ],
        "torch": [(JOINED, JOINED + ", match.softmax(dim=-1)")],
    },
    # splitting
    ("split_heads", "split-by-view"): {
        "numpy": [(SPLIT_CUT, "x.reshape(n_texts, n_heads, n_words, d_model // n_heads)"), (SPLIT_MOVE, "return x  #")],
        "torch": [(STACK, "x.view(x.size(0), n_heads, x.size(1), -1)")],
        "loops": [
            (
                "    return result\n\n\ndef merge",
                "    return np.array(list(x.flat)).reshape(result.shape)\n\n\ndef merge",
            )
        ],
    },
    ("split_heads", "split-like-cards"): {
        "numpy": [
            (SPLIT_CUT, "x.reshape(n_texts, n_words, -1, n_heads)"),
            (SPLIT_MOVE, "return x.transpose(0, 3, 1, 2)  #"),
        ],
        "torch": [(STACK, "torch.stack([x[:, :, h::n_heads] for h in range(n_heads)], 1)")],
        "loops": [(RANGE_OF_HEAD, "x[:, t, h::n_heads]")],
    },
    ("split_heads", "number-for-width"): {
        "numpy": [(SPLIT_CUT, "x.reshape(n_texts, n_words, d_model // n_heads, n_heads)")],
        "torch": [(STACK, "torch.stack(x.split(n_heads, dim=-1), dim=1)")],
    },
    ("split_heads", "heads-out-of-order"): {
        "numpy": [(SPLIT_MOVE, "return x[:, :, ::-1].swapaxes(1, 2)  #")],
        "torch": [("x.chunk(n_heads, dim=-1)", "list(reversed(x.chunk(n_heads, dim=-1)))")],
        "loops": [("result[:, h, t] =", "result[:, h - 1, t] =")],
    },
    ("split_heads", "first-head-for-all"): {
        "torch": [(STACK, "torch.stack([x.chunk(n_heads, dim=-1)[0]] * n_heads, dim=1)")],
        "loops": [(RANGE_OF_HEAD, "x[:, t, :width]")],
    },
    ("split_heads", "heads-overlap"): {
        "torch": [(STACK, "x.unfold(-1, x.size(-1) // n_heads, 1)[:, :, :n_heads].transpose(1, 2)")],
        "loops": [(RANGE_OF_HEAD, "x[:, t, h : h + width]")],
    },
    ("split_heads", "heads-not-moved"): {
        "numpy": [(SPLIT_MOVE, "return x  #")],
        "torch": [(STACK, "x.unflatten(-1, (n_heads, -1))")],
    },
    ("split_heads", "heads-before-texts"): {
        "numpy": [(SPLIT_MOVE, "return x.transpose(2, 0, 1, 3)  #")],
        "torch": [(STACK, "torch.stack(x.chunk(n_heads, dim=-1))")],
    },
    ("split_heads", "words-last"): {
        "numpy": [(SPLIT_MOVE, "return x.transpose(0, 2, 3, 1)  #")],
        "torch": [(STACK, STACK + ".mT")],
    },
    # merging
    ("merge_heads", "merge-by-view"): {
        "numpy": [(MERGE_MOVE, "#")],
        "torch": [(CAT, "x.reshape(x.size(0), x.size(2), -1)")],
    },
    ("merge_heads", "merge-like-cards"): {
        "numpy": [(MERGE_MOVE, "x = np.moveaxis(x, 1, -1)  #")],
        "torch": [(CAT, "torch.stack(x.unbind(dim=1), dim=-1).flatten(2)")],
        "loops": [
            (HEADS_SIDE_BY_SIDE, "np.concatenate([x[..., e].swapaxes(1, 2) for e in range(x.shape[3])], axis=2)")
        ],
    },
    ("merge_heads", "merge-out-of-order"): {
        "numpy": [(MERGE_MOVE, "x = x[:, ::-1].swapaxes(1, 2)  #")],
        "torch": [("torch.cat(x.unbind(dim=1)", "torch.cat(x.roll(1, dims=1).unbind(dim=1)")],
        "loops": [("for h in range(n_heads)], axis=2)", "for h in reversed(range(n_heads))], axis=2)")],
    },
    ("merge_heads", "heads-added"): {
        "numpy": [(MERGE_GLUE, "return x.sum(axis=2)")],
        "torch": [(CAT, "x.mean(dim=1)")],
        "loops": [(HEADS_SIDE_BY_SIDE, "sum(x[:, h] for h in range(n_heads))")],
    },
    ("merge_heads", "merged-along-other-axis"): {
        "torch": [(CAT, "torch.cat(x.unbind(dim=1))")],
        "loops": [("for h in range(n_heads)], axis=2)", "for h in range(n_heads)], axis=1)")],
    },
    ("merge_heads", "not-merged"): {
        "numpy": [(MERGE_GLUE, "return x")],
        "torch": [(CAT, "x.transpose(1, 2).contiguous()")],
    },
    # matrices, and what they are multiplied with
    ("multi_head_attention", "matrices-transposed"): {
        "numpy": [(f'weights["{name}"]', f'weights["{name}"].T') for name in ("query", "key", "value", "output")],
        "torch": [
            ("(weights[name].view", "(weights[name].T.reshape"),
            ('weights["output"].view', 'weights["output"].T.reshape'),
        ],
    },
    ("multi_head_attention", "inputs-transposed"): {
        "numpy": [(f'weights["{name}"]', f'weights["{name}"].T') for name in ("query", "key", "value")],
        "torch": [("(weights[name].view", "(weights[name].T.reshape")],
        "loops": [(f'weights["{name}"][:', f'weights["{name}"].T[:') for name in ("query", "key", "value")],
    },
    ("multi_head_attention", "output-transposed"): {
        "numpy": [('weights["output"]', 'weights["output"].T')],
        "loops": [('weights["output"]', 'weights["output"].T')],
    },
    ("multi_head_attention", "memory-ignored"): {
        "numpy": [("project_heads(memory", "project_heads(x"), ("project_heads(memory", "project_heads(x")],
        "torch": [("    d_model = x.size(-1)", "    d_model, memory = x.size(-1), x")],
    },
    ("multi_head_attention", "keys-from-x"): {
        "numpy": [(SPLIT_K, 'split_heads(x @ weights["key"], n_heads)')],
        "torch": [('"bkd,dhe->bhke", memory, w_k', '"bkd,dhe->bhke", x, w_k')],
    },
    ("multi_head_attention", "values-from-x"): {
        "numpy": [(SPLIT_V, 'split_heads(x @ weights["value"], n_heads)')],
        "torch": [('"bkd,dhe->bhke", memory, w_v', '"bkd,dhe->bhke", x, w_v')],
    },
    ("multi_head_attention", "queries-from-memory"): {
        "numpy": [(SPLIT_Q, 'split_heads(memory @ weights["query"], n_heads)')],
        "torch": [('"bqd,dhe->bhqe", x, w_q', '"bqd,dhe->bhqe", memory, w_q')],
    },
    ("multi_head_attention", "x-memory-exchanged"): {
        "numpy": [("attention(x, memory, weights", "attention(memory, x, weights")],
        "loops": [("attention(x, memory, weights", "attention(memory, x, weights")],
    },
    ("multi_head_attention", "q-k-matrices-exchanged"): {
        "numpy": [('weights["query"]', 'weights["KEY"]'), ('weights["key"]', 'weights["query"]'), ("KEY", "key")],
        "torch": [("w_q, w_k, w_v = (", "w_k, w_q, w_v = (")],
    },
    ("multi_head_attention", "k-v-matrices-exchanged"): {
        "torch": [('("query", "key", "value")', '("query", "value", "key")')],
        "loops": [('weights["key"]', 'weights["VALUE"]'), ('weights["value"]', 'weights["key"]'), ("VALUE", "value")],
        "numpy": [INLINE, ("attention(q, k, v, mask)", "attention(q, v, k, mask)")],
    },
    ("multi_head_attention", "value-matrix-for-keys"): {
        "numpy": [('memory, weights["key"]', 'memory, weights["value"]')],
        "torch": [('einsum("bhqe,bhke->bhqk", q, k)', 'einsum("bhqe,bhke->bhqk", q, v)')],
        "loops": [("queries[i] @ keys[j]", "queries[i] @ values[j]")],
    },
    ("multi_head_attention", "queries-as-keys"): {
        "numpy": [INLINE, ("attention(q, k, v, mask)", "attention(q, q, v, mask)")],
        "torch": [('einsum("bhqe,bhke->bhqk", q, k)', "matmul(q, q.mT)")],
    },
    ("multi_head_attention", "query-matrix-again"): {
        "numpy": [('weights["key"]', 'weights["query"]')],
        "torch": [("weights[name].view(d_model, n_heads, -1)", 'weights["query"].view(d_model, n_heads, -1)')],
        "loops": [('weights["value"]', 'weights["query"]')],
    },
    ("multi_head_attention", "no-query-projection"): {
        "numpy": [(SPLIT_Q, "split_heads(x, n_heads)")],
        "loops": [('x[b] @ weights["query"][:, columns]', "x[b][:, columns]")],
    },
    ("multi_head_attention", "no-key-projection"): {
        "numpy": [(SPLIT_K, "split_heads(memory, n_heads)")],
        "torch": [('torch.einsum("bkd,dhe->bhke", memory, w_k)', "split_heads(memory, n_heads)")],
    },
    ("multi_head_attention", "no-value-projection"): {
        "numpy": [(SPLIT_V, "split_heads(memory, n_heads)")],
        "loops": [('memory[b] @ weights["value"][:, columns]', "memory[b, :, columns]")],
    },
    ("multi_head_attention", "no-projections"): {
        "numpy": [
            (SPLIT_Q, "split_heads(x, n_heads)"),
            (SPLIT_K, "split_heads(memory, n_heads)"),
            (SPLIT_V, "split_heads(memory, n_heads)"),
        ],
        "torch": [("weights[name].view(d_model, n_heads, -1)", "torch.eye(d_model).view(d_model, n_heads, -1)")],
    },
    ("multi_head_attention", "no-output-projection"): {
        "numpy": [(' @ weights["output"]', "")],
        "torch": [(OUTPUT_TORCH, "merge_heads(heads)")],
        "loops": [('return result @ weights["output"]', "return result")],
    },
    ("multi_head_attention", "residual-inside"): {
        "numpy": [('@ weights["output"]', '@ weights["output"] + x')],
        "torch": [("return " + OUTPUT_TORCH, "return x + " + OUTPUT_TORCH)],
    },
    ("multi_head_attention", "weights-returned"): {
        "numpy": [INLINE, ("heads, _ =", "heads, shares ="), ('@ weights["output"]', '@ weights["output"], shares')],
        "torch": [("return " + OUTPUT_TORCH, f"return {OUTPUT_TORCH}, {SOFTMAX_TORCH}")],
    },
    # heads, inside multi-head attention
    ("multi_head_attention", "one-head"): {
        "numpy": [
            (SPLIT_Q, 'x @ weights["query"]'),
            (SPLIT_K, 'memory @ weights["key"]'),
            (SPLIT_V, 'memory @ weights["value"]'),
            INLINE,
            ("attention(q, k, v, mask)", "attention(q[:, None], k[:, None], v[:, None], mask)"),
        ],
        "torch": [('einsum("bhqe,bhke->bhqk", q, k)', 'einsum("bhqe,bhke->bqk", q, k)[:, None]')],
        "loops": [("    width = d_model // n_heads\n    if", "    n_heads, width = 1, d_model\n    if")],
    },
    ("multi_head_attention", "attends-over-heads"): {
        "numpy": [
            (SPLIT_Q, '(x @ weights["query"]).reshape(*x.shape[:2], n_heads, -1)'),
            (SPLIT_K, '(memory @ weights["key"]).reshape(*memory.shape[:2], n_heads, -1)'),
            (SPLIT_V, '(memory @ weights["value"]).reshape(*memory.shape[:2], n_heads, -1)'),
            INLINE,
            ("merge_heads(heads)", "heads.reshape(x.shape)"),
        ],
        "torch": [
            ('"bqd,dhe->bhqe"', '"bqd,dhe->bqhe"'),
            ('"bkd,dhe->bhke"', '"bkd,dhe->bkhe"'),
            ('"bkd,dhe->bhke"', '"bkd,dhe->bkhe"'),
            (OUTPUT_TORCH, 'heads.flatten(2) @ weights["output"]'),
        ],
    },
    ("multi_head_attention", "scale-model-width"): {
        "numpy": [INLINE, ("attention(q, k, v, mask)", "attention(q / n_heads**0.5, k, v, mask)")],
        "torch": [("math.sqrt(d_model / n_heads)", "math.sqrt(d_model)")],
        "loops": [("width**0.5", "d_model**0.5")],
    },
    ("multi_head_attention", "mask-first-head"): {
        "torch": [("scores = " + MASK_TORCH, 'scores[:, :1] = scores[:, :1].masked_fill(~mask, float("-inf"))')],
        "loops": [("seen = mask[b, h, i]", "seen = mask[b, h, i] if h == 0 else True")],
    },
    ("multi_head_attention", "split-by-view"): {
        "numpy": [
            (SPLIT_Q, '(x @ weights["query"]).reshape(len(x), n_heads, x.shape[1], -1)'),
            (SPLIT_K, '(memory @ weights["key"]).reshape(len(x), n_heads, memory.shape[1], -1)'),
            (SPLIT_V, '(memory @ weights["value"]).reshape(len(x), n_heads, memory.shape[1], -1)'),
        ],
        "torch": [
            ('torch.einsum("bqd,dhe->bhqe", x, w_q)', '(x @ weights["query"]).view(len(x), n_heads, x.size(1), -1)'),
            (
                'torch.einsum("bkd,dhe->bhke", memory, w_k)',
                '(memory @ weights["key"]).view(len(x), n_heads, memory.size(1), -1)',
            ),
            (
                'torch.einsum("bkd,dhe->bhke", memory, w_v)',
                '(memory @ weights["value"]).view(len(x), n_heads, memory.size(1), -1)',
            ),
        ],
    },
    ("multi_head_attention", "split-like-cards"): {
        "torch": [
            ("view(d_model, n_heads, -1)", "view(d_model, -1, n_heads)"),
            ("dhe->bhqe", "deh->bhqe"),
            ("dhe->bhke", "deh->bhke"),
            ("dhe->bhke", "deh->bhke"),
        ],
        "loops": [
            (COLUMNS, "columns = slice(h, None, n_heads)"),
            ("result[b, i, columns]", "result[b, i, h * width : (h + 1) * width]"),
        ],
    },
    ("multi_head_attention", "number-for-width"): {
        "numpy": [("    q = project", "    n_heads = x.shape[-1] // n_heads\n    q = project")],
        "loops": [
            ("    width = d_model // n_heads\n    if", "    n_heads, width = d_model // n_heads, n_heads\n    if")
        ],
    },
    ("multi_head_attention", "heads-out-of-order"): {
        "torch": [
            ('weights["output"].view(n_heads, -1, d_model)', 'weights["output"].view(n_heads, -1, d_model).flip(0)')
        ],
        "loops": [
            (COLUMNS, COLUMNS + "\n            place = slice((n_heads - 1 - h) * width, (n_heads - h) * width)"),
            ("result[b, i, columns]", "result[b, i, place]"),
        ],
    },
    ("multi_head_attention", "first-head-for-all"): {
        "torch": [("    scores =", "    q, k, v = (t[:, :1].expand_as(t) for t in (q, k, v))\n    scores =")],
        "loops": [
            (COLUMNS, "columns = slice(0, width)"),
            ("result[b, i, columns]", "result[b, i, h * width : (h + 1) * width]"),
        ],
    },
    ("multi_head_attention", "heads-overlap"): {
        "numpy": [
            (SPLIT_Q, 'split_badly(x @ weights["query"], n_heads)'),
            (SPLIT_K, 'split_badly(memory @ weights["key"], n_heads)'),
            (SPLIT_V, 'split_badly(memory @ weights["value"], n_heads)'),
            (
                "def multi_head",
                "def split_badly(x, n):\n    e = x.shape[-1] // n\n    return np.stack([x[..., h : h + e] for h in range(n)], axis=1)\n\n\ndef multi_head",
            ),
        ],
        "loops": [
            (COLUMNS, "columns = slice(h, h + width)"),
            ("result[b, i, columns]", "result[b, i, h * width : (h + 1) * width]"),
        ],
    },
    ("multi_head_attention", "merge-by-view"): {
        "numpy": [INLINE, ("merge_heads(heads)", "heads.reshape(x.shape)")],
        "torch": [(OUTPUT_TORCH, 'heads.reshape(x.shape) @ weights["output"]')],
    },
    ("multi_head_attention", "merge-like-cards"): {
        "numpy": [INLINE, ("merge_heads(heads)", "heads.transpose(0, 2, 3, 1).reshape(x.shape)")],
        "torch": [
            ('"bhqe,hed->bqd", heads, w_o', '"bhqe,ehd->bqd", heads, weights["output"].view(-1, n_heads, d_model)')
        ],
        "loops": [("result[b, i, columns]", "result[b, i, h::n_heads]")],
    },
    # the attention inside
    ("multi_head_attention", "no-scale"): {
        "torch": [(SCALE_TORCH, "")],
        "loops": [(" / width**0.5", "")],
    },
    ("multi_head_attention", "scale-d"): {
        "torch": [(SCALE_TORCH, " / q.size(-1)")],
        "loops": [("width**0.5", "width")],
    },
    ("multi_head_attention", "scale-times"): {
        "torch": [(SCALE_TORCH, SCALE_TORCH.replace("/ math", "* math"))],
        "loops": [("/ width**0.5", "* width**0.5")],
    },
    ("multi_head_attention", "scale-length"): {
        "torch": [(SCALE_TORCH, " / math.sqrt(k.size(-2))")],
        "loops": [("width**0.5", "n_keys**0.5")],
    },
    ("multi_head_attention", "scale-after-softmax"): {
        "torch": [(SCALE_TORCH, ""), (SOFTMAX_TORCH, SOFTMAX_TORCH + SCALE_TORCH)],
        "loops": [(" / width**0.5", ""), ("shares @ values", "shares @ values / width**0.5")],
    },
    ("multi_head_attention", "softmax-axis"): {
        "numpy": [
            INLINE,
            ("heads, _ = attention(q, k, v, mask)", "heads = softmax_over_heads(q, k, v, mask)"),
            (
                "def multi_head",
                "def softmax_over_heads(q, k, v, mask):\n    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5\n    if mask is not None:\n"
                "        scores = np.where(mask, scores, -1e9)\n    powers = np.exp(scores - scores.max(axis=1, keepdims=True))\n"
                "    return powers / powers.sum(axis=1, keepdims=True) @ v\n\n\ndef multi_head",
            ),
        ],
        "torch": [('float("-inf")', "-1e9"), (SOFTMAX_TORCH, "torch.softmax(scores, dim=2)")],
    },
    ("multi_head_attention", "not-normalised"): {
        "torch": [(SOFTMAX_TORCH, "(scores - scores.amax(-1, keepdim=True)).exp()")],
        "loops": [("scores - scores.max()", "scores - np.max(scores[seen])"), ("powers / powers.sum()", "powers")],
    },
    ("multi_head_attention", "no-softmax"): {
        "torch": [('float("-inf")', "-1e9"), (SOFTMAX_TORCH, "scores")],
        "loops": [
            ("powers = " + POWERS, "scores = np.where(seen, scores, -1e9)"),
            ("shares = powers / powers.sum()", "shares = scores"),
        ],
    },
    ("multi_head_attention", "mask-ignored"): {
        "numpy": [INLINE, ("attention(q, k, v, mask)", "attention(q, k, v)")],
        "torch": [("if mask is not None:\n        scores", "if mask is None and mask:\n        scores")],
        "loops": [("seen = mask[b, h, i]", "seen = 1.0")],
    },
    ("multi_head_attention", "mask-inverted"): {
        "numpy": [INLINE, ("attention(q, k, v, mask)", "attention(q, k, v, None if mask is None else ~mask)")],
        "torch": [("masked_fill(~mask", "masked_fill(mask")],
    },
    ("multi_head_attention", "mask-after-softmax"): {
        "torch": [
            ("scores = " + MASK_TORCH, "pass"),
            (SOFTMAX_TORCH, SOFTMAX_TORCH + " * (1.0 if mask is None else mask)"),
        ],
        "loops": [("scores.max()) * seen", "scores.max())"), ("powers / powers.sum()", "powers / powers.sum() * seen")],
    },
    ("multi_head_attention", "masked-to-zero"): {
        "torch": [(MASK_TORCH, "scores.masked_fill(~mask, 0.0)")],
        "loops": [(POWERS, "np.exp(scores * seen)")],
    },
    ("multi_head_attention", "mask-added"): {
        "torch": [(MASK_TORCH, "scores + mask")],
        "loops": [(POWERS, "np.exp(scores + seen)")],
    },
    ("multi_head_attention", "q-k-exchanged"): {
        "numpy": [INLINE, ("attention(q, k, v, mask)", "attention(k, q, v, mask)")],
        "torch": [('einsum("bhqe,bhke->bhqk", q, k)', "matmul(k, q.mT)")],
    },
    ("multi_head_attention", "weights-transposed"): {
        "torch": [('torch.einsum("bhqk,bhke->bhqe", torch', 'torch.einsum("bhkq,bhke->bhqe", torch')],
        "numpy": [
            INLINE,
            (
                "heads, _ = attention(q, k, v, mask)",
                "_, shares = attention(q, k, v, mask)\n    heads = shares.swapaxes(2, 3) @ v",
            ),
        ],
    },
    ("multi_head_attention", "keys-for-values"): {
        "numpy": [INLINE, ("attention(q, k, v, mask)", "attention(q, k, k, mask)")],
        "loops": [('weights["value"]', 'weights["key"]')],
    },
}

# Mistakes that the grader does not know. It must describe them without a name. (part, style, edits)
UNLISTED = [
    ("head_columns", "numpy", [("np.arange(head * width, (head + 1) * width)", "np.arange(width) * (head + 1)")]),
    ("head_columns", "torch", [("chunk(n_heads)[head]", "chunk(n_heads)[head].flip(0)")]),
    ("head_columns", "loops", [("== head:", "<= head:")]),
    ("project_heads", "numpy", [("x @ w", "x @ w + x")]),
    ("project_heads", "loops", [("w[d, column]", "w[d, 0]")]),
    ("project_heads", "torch", [("return " + PROJECT_TORCH, "return torch.relu(" + PROJECT_TORCH + ")")]),
    ("attend_heads", "numpy", [("merge_heads(attended)", "merge_heads(attended + q)")]),
    ("attend_heads", "torch", [("match.softmax(dim=-1)", "match.mean(1, keepdim=True).softmax(dim=-1)")]),
    ("attend_heads", "loops", [("q[:, h], k", "q[:, 0], k")]),
    ("split_heads", "numpy", [(SPLIT_MOVE, "return x.transpose(0, 3, 2, 1)  #")]),
    ("split_heads", "numpy", [(SPLIT_MOVE, "return x[:, ::-1].swapaxes(1, 2)  #")]),
    ("split_heads", "torch", [(STACK, STACK + " / n_heads")]),
    ("split_heads", "loops", [("for t in range(n_words)", "for t in range(n_words - 1)")]),
    ("merge_heads", "numpy", [(MERGE_GLUE, "return x.reshape(n_texts * n_words, n_heads * width)")]),
    ("merge_heads", "torch", [(CAT, CAT + ".mT")]),
    ("merge_heads", "torch", [(CAT, "x.amax(dim=1)")]),
    ("merge_heads", "loops", [("x[:, h] for h", "x[:, h - h % 2] for h")]),
    ("multi_head_attention", "numpy", [('@ weights["output"]', '@ weights["output"] + memory.mean()')]),
    ("multi_head_attention", "numpy", [('x, weights["query"]', 'x, weights["key"]')]),
    ("multi_head_attention", "numpy", [('@ weights["output"]', '@ weights["output"] / n_heads')]),
    (
        "multi_head_attention",
        "numpy",
        [INLINE, ("attention(q, k, v, mask)", "attention(q, k, v, None if mask is None else mask[..., ::-1])")],
    ),
    ("multi_head_attention", "numpy", [('@ weights["output"]', '@ weights["query"]')]),
    ("multi_head_attention", "torch", [("math.sqrt(d_model / n_heads)", "math.sqrt(n_heads)")]),
    ("multi_head_attention", "torch", [(SOFTMAX_TORCH, "torch.sigmoid(scores)")]),
    (
        "multi_head_attention",
        "torch",
        [('"bhqe,hed->bqd"', '"bhqe,hed->bhqd"'), ("heads, w_o)", "heads, w_o).mean(1)")],
    ),
    ("multi_head_attention", "torch", [('float("-inf")', "-1.0")]),
    ("multi_head_attention", "loops", [("x[b] @", "x[0] @")]),
    ("multi_head_attention", "loops", [("for j in range(n_keys)", "for j in reversed(range(n_keys))")]),
    ("multi_head_attention", "loops", [('weights["query"][:, columns]', 'weights["query"][columns].T')]),
]
