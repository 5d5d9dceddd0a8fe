"""Edits of right answers to exercise 8 that produce each known mistake, in at least two styles.

(part, mistake) -> {style: [(old text, new text), ...]}
"""

COUNT = "(target != pad).sum()"
TORCH_COUNT = "target.ne(pad).sum()"
LOG = "x - np.log(np.exp(x).sum(axis=-1, keepdims=True))"
TORCH_LOG = "logits - logits.logsumexp(dim=-1, keepdim=True)"
LOOP_LOG = "x - largest - math.log(total)"
Q = "(1 - epsilon) * one_hot + epsilon / n_tokens"
Q_ROWS = "return q * (target != pad)[:, :, None]"
TORCH_FULL = "q = torch.full((*target.shape, n_tokens), epsilon / n_tokens)"
TORCH_KEPT = "torch.full((*target.shape, 1), 1 - epsilon)"
LOOP_ROW = "row = [epsilon / n_tokens] * n_tokens"
LOOP_Q = "q = epsilon / len(log_p)"
TOTAL = "total = -(q * log_softmax(logits)).sum()"
MEAN = "return total / count_tokens(target, pad)"
TORCH_LOSS = "((1 - epsilon) * of_right + epsilon * of_all).mean()"
TORCH_TOKENS = "log_p, right_ids = log_softmax(logits[is_token]), target[is_token]"
CLIMB = "return peak * step / warmup"
TORCH_CLIMB = "return peak * (step / warmup)"
PROGRESS = "progress = min(1.0, (step - warmup) / (total - warmup))"
WAVE = "wave = 0.5 * (1 + np.cos(np.pi * progress))"
RATE = "return floor + (peak - floor) * wave"
ANGLE = "angle = math.pi * (step - warmup) / (total - warmup)"
TORCH_RATE = "return middle + half * math.cos(angle)"
LOOP_ANGLE = "angle = (step - warmup) / (total - warmup) * math.pi"
LOOP_FALL = "fall = (1 - math.cos(angle)) / 2"
LOOP_RATE = "return peak - fall * (peak - floor)"
NORM = "norm = np.sqrt(sum((g**2).sum() for g in gradients))"
CLIPPED = "[g * (max_norm / norm) for g in gradients], norm"
TORCH_NORM = "norm = torch.stack([gradient.norm() for gradient in gradients]).norm()"
TORCH_FACTOR = "factor = (max_norm / norm).clamp(max=1.0)"
TORCH_CLIPPED = "return [gradient * factor for gradient in gradients], norm"
LOOP_IF = "    if norm > max_norm:\n        factor = max_norm / norm\n"
M = "m = beta1 * m + (1 - beta1) * gradient\n"
V = "v = beta2 * v + (1 - beta2) * gradient**2"
HATS = "m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)"
WEIGHT = "weight - lr * m_hat / (np.sqrt(v_hat) + eps)"
TORCH_M = "m = torch.lerp(m, gradient, 1 - beta1)"
TORCH_V = "v = torch.lerp(v, gradient.square(), 1 - beta2)"
TORCH_DEVIATION = "deviation = (v / (1 - beta2**step)).sqrt() + eps"
TORCH_CHANGE = "change = m / (1 - beta1**step) / deviation"
LOOP_M = "new_m[i] = beta1 * m[i] + g - beta1 * g"
LOOP_V = "new_v[i] = beta2 * v[i] + g * g - beta2 * g * g"
LOOP_M_HAT = "m_hat = new_m[i] / (1 - beta1**step)"
LOOP_V_HAT = "v_hat = new_v[i] / (1 - beta2**step)"
LOOP_WEIGHT = "weight[i] - lr * m_hat / (math.sqrt(v_hat) + eps)"
DIFFERENCE = "(softmax(logits) - smooth(target, len(table), 0.1, pad)) * (target != pad)[:, :, None]"
ADD_AT = "np.add.at(gradient, target_in, at_positions / count_tokens(target, pad))"
ADAM = "table, m, v = adam(table, gradient, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9)"
TORCH_ADAM = "table, m, v = adam(table, clipped[0], m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9)"
TORCH_GRADIENT = "(gradient,) = torch.autograd.grad(loss, weight)"
LOOP_ADAM = "return loss, *adam(table, clipped[0], m, v, step, lr, 0.9, 0.98, 1e-9)"
LOOP_ADD = "gradient[before] += (p - q) / n"
CLIPPING = "    (gradient,), _ = clip([gradient], 1.0)\n"

EDITS = {
    ("count_tokens", "padding-counted"): {
        "numpy": [(COUNT, "target.size")],
        "torch": [(TORCH_COUNT, "target.numel()")],
        "loops": [("            if token != pad:\n                count += 1\n", "            count += 1\n")],
    },
    ("count_tokens", "padding-only-counted"): {
        "numpy": [(COUNT, "(target == pad).sum()")],
        "torch": [(TORCH_COUNT, "target.eq(pad).sum()")],
        "loops": [("token != pad", "token == pad")],
    },
    ("count_tokens", "counted-per-text"): {
        "numpy": [(COUNT, "(target != pad).sum(axis=1)")],
        "torch": [(TORCH_COUNT, "target.ne(pad).sum(dim=-1)")],
        "loops": [("    return count\n", "    return [sum(token != pad for token in text) for text in target]\n")],
    },
    ("count_tokens", "pad-fixed"): {
        "numpy": [(COUNT, "np.count_nonzero(target)")],
        "torch": [(TORCH_COUNT, "target.ne(1).sum()")],
        "loops": [("token != pad", "token")],
    },
    ("count_tokens", "until-padding"): {
        "numpy": [("(target != pad).sum()", "np.logical_and.accumulate(target != pad, axis=1).sum()")],
        "torch": [(TORCH_COUNT, "target.ne(pad).int().cumprod(dim=1).sum()")],
        "loops": [("            if token != pad:\n                count += 1\n", "            if token == pad:\n                break\n            count += 1\n")],
    },
    ("count_tokens", "mask-returned"): {
        "numpy": [(COUNT, "target != pad")],
        "torch": [(TORCH_COUNT, "target.ne(pad)")],
    },
    ("log_softmax", "log-of-softmax"): {
        "numpy": [(LOG, "np.log(np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True))")],
        "torch": [(TORCH_LOG, "logits.softmax(dim=-1).log()")],
        "loops": [(LOOP_LOG, "np.log(math.exp(x - largest) / total)")],
    },
    ("log_softmax", "small-number-in-log"): {
        "numpy": [(LOG, "np.log(softmax(x) + 1e-12)")],
        "torch": [(TORCH_LOG, "(logits.softmax(dim=-1) + 1e-9).log()")],
        "torch, cut off": [(TORCH_LOG, "logits.softmax(dim=-1).clamp(min=1e-8).log()")],
        "loops": [(LOOP_LOG, "math.log(math.exp(x - largest) / total + 1e-7)")],
    },
    ("log_softmax", "no-maximum"): {
        "numpy": [("x = logits - logits.max(axis=-1, keepdims=True)", "x = logits")],
        "numpy, the minimum": [("logits.max(", "logits.min(")],
        "numpy, of the softmax": [("logits.max(", "0 * logits.max("), (LOG, "np.log(np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True))")],
        "torch": [(TORCH_LOG, "logits - logits.exp().sum(dim=-1, keepdim=True).log()")],
    },
    ("log_softmax", "one-maximum"): {
        "numpy": [("logits.max(axis=-1, keepdims=True)", "logits.max()")],
        "torch": [(TORCH_LOG, "(logits - logits.max()) - (logits - logits.max()).exp().sum(-1, keepdim=True).log()")],
    },
    ("log_softmax", "softmax-axis"): {
        "numpy": [("axis=-1", "axis=0"), ("axis=-1", "axis=0")],
        "torch": [("logsumexp(dim=-1", "logsumexp(dim=0")],
    },
    ("log_softmax", "softmax-over-everything"): {
        "numpy": [(LOG, "x - x.max() - np.log(np.exp(x - x.max()).sum())"), ("logits - logits.max(axis=-1, keepdims=True)", "logits")],
        "torch": [(TORCH_LOG, "logits - logits.flatten().logsumexp(dim=0)")],
    },
    ("log_softmax", "softmax-not-log"): {
        "numpy": [(LOG, "np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)")],
        "torch": [(TORCH_LOG, "logits.softmax(dim=-1)")],
        "loops": [(LOOP_LOG, "math.exp(x - largest) / total")],
    },
    ("log_softmax", "total-not-logged"): {
        "numpy": [("np.log(np.exp(x).sum(axis=-1, keepdims=True))", "np.exp(x).sum(axis=-1, keepdims=True)")],
        "loops": [("math.log(total)", "total")],
    },
    ("log_softmax", "maximum-only"): {
        "numpy": [(LOG, "x")],
        "torch": [(TORCH_LOG, "logits - logits.max(dim=-1, keepdim=True).values")],
        "loops": [(LOOP_LOG, "x - largest")],
    },
    ("log_softmax", "log-base"): {
        "torch": [(TORCH_LOG, f"({TORCH_LOG}) / math.log(10)")],
        "loops": [(LOOP_LOG, f"({LOOP_LOG}) / math.log(2)")],
    },
    ("log_softmax", "sign"): {
        "numpy": [(LOG, "np.log(np.exp(x).sum(axis=-1, keepdims=True)) - x")],
        "loops": [(LOOP_LOG, "math.log(total) - (x - largest)")],
    },
    ("smooth", "others-only"): {
        "numpy": [(Q, "np.where(one_hot == 1, 1 - epsilon, epsilon / (n_tokens - 1))")],
        "torch": [("epsilon / n_tokens)", "epsilon / (n_tokens - 1))"), ("scatter_add_", "scatter_")],
        "loops": [("[epsilon / n_tokens]", "[epsilon / (n_tokens - 1)]"), ("row[token] += 1 - epsilon", "row[token] = 1 - epsilon")],
    },
    ("smooth", "without-padding-id"): {
        "numpy": [(Q_ROWS, "q[..., pad] = 0\n    " + Q_ROWS)],
        "numpy, spread over the rest": [(Q, "(1 - epsilon) * one_hot + epsilon / (n_tokens - 1) * (np.arange(n_tokens) != pad)")],
        "torch": [("    q.scatter_add_", "    q[..., pad] = 0\n    q.scatter_add_")],
        "loops": [("row[token] += 1 - epsilon", "row[token] += 1 - epsilon\n            row[pad] = 0.0")],
    },
    ("smooth", "others-without-padding-id"): {
        "numpy": [(Q, "np.where(one_hot == 1, 1 - epsilon, epsilon / (n_tokens - 2))"), (Q_ROWS, "q[..., pad] = 0\n    " + Q_ROWS)],
        "torch": [("epsilon / n_tokens)", "epsilon / (n_tokens - 2))"), ("scatter_add_", "scatter_"), ("    return q.masked", "    q[..., pad] = 0\n    return q.masked")],
    },
    ("smooth", "target-without-share"): {
        "numpy": [(Q, "np.where(one_hot == 1, 1 - epsilon, epsilon / n_tokens)")],
        "torch": [("scatter_add_", "scatter_")],
        "loops": [("row[token] += 1", "row[token] = 1")],
    },
    ("smooth", "nothing-given-up"): {
        "numpy": [(Q, "one_hot + epsilon / n_tokens")],
        "torch": [(TORCH_KEPT, "torch.ones((*target.shape, 1))")],
        "loops": [("row[token] += 1 - epsilon", "row[token] += 1")],
    },
    ("smooth", "epsilon-not-divided"): {
        "numpy": [(Q, "(1 - epsilon) * one_hot + epsilon")],
        "torch": [(TORCH_FULL, "q = torch.full((*target.shape, n_tokens), epsilon)")],
        "loops": [("[epsilon / n_tokens]", "[epsilon]")],
    },
    ("smooth", "epsilon-exchanged"): {
        "numpy": [(Q, "epsilon * one_hot + (1 - epsilon) / n_tokens")],
        "loops": [("[epsilon / n_tokens]", "[(1 - epsilon) / n_tokens]"), ("row[token] += 1 - epsilon", "row[token] += epsilon")],
    },
    ("smooth", "no-smoothing"): {
        "numpy": [(Q, "one_hot")],
        "torch": [(TORCH_FULL, "epsilon = 0.0\n    " + TORCH_FULL)],
    },
    ("smooth", "padding-row-not-zero"): {
        "numpy": [(Q_ROWS, "return q")],
        "numpy, uniform": [("np.eye(n_tokens)[target]", "np.eye(n_tokens)[target] * (target != pad)[:, :, None]"), (Q_ROWS, "return q")],
        "torch": [("return q.masked_fill(target[..., None] == pad, 0.0)", "return q")],
        "loops": [("[0.0] * n_tokens", "[epsilon / n_tokens] * n_tokens")],
    },
    ("smooth", "pad-inverted"): {
        "numpy": [(Q_ROWS, "return q * (target == pad)[:, :, None]")],
        "torch": [("[..., None] == pad, 0.0", "[..., None] != pad, 0.0")],
    },
    ("smooth", "pad-fixed"): {
        "numpy": [(Q_ROWS, "return q * (target != 0)[:, :, None]")],
        "torch": [("[..., None] == pad, 0.0", "[..., None] == 1, 0.0")],
    },
    ("smoothed_loss", "others-only"): {
        "torch": [("epsilon * of_all", "epsilon * (-log_p.sum(dim=-1) - of_right) / (log_p.size(-1) - 1)")],
        "loops": [(LOOP_Q, "q = epsilon / (len(log_p) - 1)"), ("q += 1 - epsilon", "q = 1 - epsilon")],
    },
    ("smoothed_loss", "nothing-given-up"): {
        "torch": [("(1 - epsilon) * of_right", "of_right")],
        "loops": [("q += 1 - epsilon", "q += 1")],
    },
    ("smoothed_loss", "epsilon-not-divided"): {
        "torch": [("of_all = -log_p.mean(dim=-1)", "of_all = -log_p.sum(dim=-1)")],
        "loops": [(LOOP_Q, "q = epsilon")],
    },
    ("smoothed_loss", "epsilon-exchanged"): {
        "torch": [(TORCH_LOSS, "(epsilon * of_right + (1 - epsilon) * of_all).mean()")],
        "loops": [(LOOP_Q, "q = (1 - epsilon) / len(log_p)"), ("q += 1 - epsilon", "q += epsilon")],
    },
    ("smoothed_loss", "no-smoothing"): {
        "numpy": [("q = smooth(target, logits.shape[-1], epsilon, pad)", "q = smooth(target, logits.shape[-1], 0, pad)")],
        "torch": [(TORCH_LOSS, "of_right.mean()")],
    },
    ("smoothed_loss", "pad-fixed"): {
        "torch": [("is_token = target != pad", "is_token = target != 0")],
        "loops": [("            if token == pad:\n                continue\n            log_p", "            if token == 1:\n                continue\n            log_p")],
    },
    ("smoothed_loss", "padding-as-tokens"): {
        "numpy": [("q = smooth(target, logits.shape[-1], epsilon, pad)", "q = smooth(target, logits.shape[-1], epsilon, -1)"), (MEAN, "return total / target.size")],
        "torch": [(TORCH_TOKENS, "log_p, right_ids = log_softmax(logits).flatten(0, 1), target.flatten()")],
        "loops": [("            if token == pad:\n                continue\n            log_p", "            log_p")],
    },
    ("smoothed_loss", "padding-in-the-sum"): {
        "numpy": [("q = smooth(target, logits.shape[-1], epsilon, pad)", "q = smooth(target, logits.shape[-1], epsilon, -1)")],
        "torch": [(TORCH_LOSS, "((1 - epsilon) * of_right.sum() - epsilon * log_softmax(logits).mean(dim=-1).sum()) / count_tokens(target, pad)")],
        "torch, two means": [(TORCH_LOSS, "(1 - epsilon) * of_right.mean() - epsilon * log_softmax(logits).mean()")],
    },
    ("smoothed_loss", "divided-by-all"): {
        "numpy": [(MEAN, "return total / target.size")],
        "torch": [(TORCH_LOSS, "((1 - epsilon) * of_right + epsilon * of_all).sum() / target.numel()")],
        "loops": [("    return total / n\n", "    return total / target.size\n")],
    },
    ("smoothed_loss", "sum-not-mean"): {
        "numpy": [(MEAN, "return total")],
        "torch": [(TORCH_LOSS, "((1 - epsilon) * of_right + epsilon * of_all).sum()")],
        "loops": [("    return total / n\n", "    return total\n")],
    },
    ("smoothed_loss", "divided-by-texts"): {
        "numpy": [(MEAN, "return total / len(target)")],
        "torch": [(TORCH_LOSS, "((1 - epsilon) * of_right + epsilon * of_all).sum() / target.size(0)")],
    },
    ("smoothed_loss", "mean-of-means"): {
        "numpy": [(TOTAL, "total = -(q * log_softmax(logits)).sum(axis=(1, 2))"), (MEAN, "return (total / (target != pad).sum(axis=1)).mean()")],
        "loops": [("    total, n = 0.0, 0\n    for b,", "    whole, total, n = 0.0, 0.0, 0\n    for b,"), ("            n += 1\n", "            n += 1\n        whole, total, n = whole + total / n, 0.0, 0\n"), ("    return total / n\n", "    return whole / len(target)\n")],
    },
    ("smoothed_loss", "mean-over-vocabulary"): {
        "numpy": [("total = -(q * log_softmax(logits)).sum()", "return -(q * log_softmax(logits)).mean()")],
        "loops": [("    return total / n\n", "    return total / n / logits.shape[-1]\n")],
    },
    ("smoothed_loss", "per-token"): {
        "numpy": [(TOTAL, "return -(q * log_softmax(logits)).sum(axis=-1)")],
        "torch": [(TORCH_LOSS, "(1 - epsilon) * of_right + epsilon * of_all")],
    },
    ("smoothed_loss", "kl-divergence"): {
        "numpy": [(TOTAL, TOTAL + " + (q * np.log(np.maximum(q, 1e-30))).sum()")],
        "torch": [("((1 - epsilon) * of_right + epsilon * of_all).mean()", 'torch.nn.functional.kl_div(log_p, smooth(target, logits.size(-1), epsilon, pad)[is_token], reduction="batchmean")')],
    },
    ("smoothed_loss", "probabilities-smoothed"): {
        "torch": [(TORCH_LOSS, "-((1 - epsilon) * (-of_right).exp() + epsilon / log_p.size(-1)).log().mean()")],
        "numpy": [(TOTAL, "p = np.take_along_axis(np.exp(log_softmax(logits)), target[..., None], -1)[..., 0]\n    total = -(np.log((1 - epsilon) * p + epsilon / logits.shape[-1]) * (target != pad)).sum()")],
    },
    ("smoothed_loss", "loss-sign"): {
        "numpy": [(TOTAL, "total = (q * log_softmax(logits)).sum()")],
        "torch": [("return ((1 - eps", "return -((1 - eps")],
        "loops": [("total -= q * value", "total += q * value")],
    },
    ("smoothed_loss", "no-softmax"): {
        "numpy": [("q * log_softmax(logits)", "q * logits")],
        "torch": [("log_softmax(logits[is_token])", "logits[is_token]")],
    },
    ("smoothed_loss", "softmax-twice"): {
        "numpy": [("q * log_softmax(logits)", "q * log_softmax(softmax(logits))")],
        "torch": [("log_softmax(logits[is_token])", "log_softmax(logits[is_token].softmax(dim=-1))")],
    },
    ("smoothed_loss", "softmax-not-log"): {
        "numpy": [("q * log_softmax(logits)", "q * softmax(logits)")],
        "torch": [("log_softmax(logits[is_token])", "logits[is_token].softmax(dim=-1)")],
    },
    ("smoothed_loss", "log-of-softmax"): {
        "numpy": [("q * log_softmax(logits)", "q * np.log(softmax(logits))")],
        "torch": [("log_softmax(logits[is_token])", "logits[is_token].softmax(dim=-1).log()")],
    },
    ("smoothed_loss", "small-number-in-log"): {
        "numpy": [("q * log_softmax(logits)", "q * np.log(softmax(logits) + 1e-10)")],
        "torch": [("log_softmax(logits[is_token])", "(logits[is_token].softmax(dim=-1) + 1e-9).log()")],
    },
    ("smoothed_loss", "no-maximum"): {
        "numpy": [("q * log_softmax(logits)", "q * np.log(np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True))")],
        "torch": [("log_softmax(logits[is_token])", "logits[is_token] - logits[is_token].exp().sum(dim=-1, keepdim=True).log()")],
    },
    ("smoothed_loss", "one-maximum"): {
        "torch": [("log_softmax(logits[is_token])", "torch.log((logits - logits.max()).exp() / (logits - logits.max()).exp().sum(-1, keepdim=True))[is_token]")],
        "numpy": [(TOTAL, "x = logits - logits.max()\n    total = -(q * (x - np.log(np.exp(x).sum(axis=-1, keepdims=True)))).sum()")],
    },
    ("smoothed_loss", "softmax-axis"): {
        "numpy": [("log_softmax(logits)).sum()", "log_softmax(logits.swapaxes(1, 2)).swapaxes(1, 2)).sum()")],
        "torch": [("log_softmax(logits[is_token])", "torch.log_softmax(logits, dim=1)[is_token]")],
    },
    ("smoothed_loss", "log-base"): {
        "numpy": [(MEAN, MEAN + " / np.log(2)")],
        "loops": [("    return total / n\n", "    return total / n / math.log(10)\n")],
    },
    ("warmup_cosine", "no-warmup"): {
        "numpy": [(CLIMB, "return peak")],
        "torch": [("    if step <= warmup:\n        return peak * (step / warmup)\n", "")],
        "loops": [("return climb * peak", "return peak")],
    },
    ("warmup_cosine", "step-plus-one"): {
        "numpy": [("    if step < warmup:", "    step = step + 1\n    if step < warmup:")],
        "loops": [("    climb = step / warmup", "    step += 1\n    climb = step / warmup")],
    },
    ("warmup_cosine", "step-minus-one"): {
        "numpy": [(CLIMB, "return peak * (step - 1) / warmup")],
        "torch": [("    if step <= warmup:", "    step = step - 1\n    if step <= warmup:")],
    },
    ("warmup_cosine", "warmup-from-floor"): {
        "numpy": [(CLIMB, "return floor + (peak - floor) * step / warmup")],
        "torch": [(TORCH_CLIMB, "return floor + (peak - floor) * (step / warmup)")],
    },
    ("warmup_cosine", "progress-from-start"): {
        "numpy": [(PROGRESS, "progress = min(1.0, step / total)")],
        "torch": [(ANGLE, "angle = math.pi * (step - warmup) / total")],
        "loops": [(LOOP_ANGLE, "angle = step / total * math.pi")],
    },
    ("warmup_cosine", "linear"): {
        "numpy": [(WAVE, "wave = 1 - progress")],
        "loops": [(LOOP_FALL, "fall = angle / math.pi")],
    },
    ("warmup_cosine", "whole-wave"): {
        "numpy": [("np.pi * progress", "2 * np.pi * progress")],
        "torch": [(ANGLE, ANGLE.replace("math.pi", "math.tau"))],
        "loops": [(LOOP_ANGLE, LOOP_ANGLE + " * 2")],
    },
    ("warmup_cosine", "quarter-wave"): {
        "numpy": [(WAVE, "wave = np.cos(np.pi / 2 * progress)")],
        "loops": [(LOOP_FALL, "fall = 1 - math.cos(angle / 2)")],
    },
    ("warmup_cosine", "no-pi"): {
        "numpy": [("np.pi * progress", "progress")],
        "torch": [(ANGLE, ANGLE.replace("math.pi * ", ""))],
    },
    ("warmup_cosine", "not-halved"): {
        "numpy": [("0.5 * (1 + np", "(1 + np")],
        "torch": [(TORCH_RATE, "return floor + (peak - floor) * (1 + math.cos(angle))")],
    },
    ("warmup_cosine", "only-cosine"): {
        "numpy": [(WAVE, "wave = np.cos(np.pi * progress)")],
        "torch": [(TORCH_RATE, "return floor + (peak - floor) * math.cos(angle)")],
    },
    ("warmup_cosine", "rises"): {
        "numpy": [("(1 + np.cos", "(1 - np.cos")],
        "torch": [(TORCH_RATE, "return middle - half * math.cos(angle)")],
        "loops": [(LOOP_RATE, "return floor + fall * (peak - floor)")],
    },
    ("warmup_cosine", "floor-ignored"): {
        "numpy": [(RATE, "return peak * wave")],
        "torch": [(TORCH_RATE, "return peak / 2 * (1 + math.cos(angle))")],
        "loops": [(LOOP_RATE, "return peak - fall * peak")],
    },
    ("warmup_cosine", "floor-added"): {
        "numpy": [(RATE, "return floor + peak * wave")],
        "loops": [(LOOP_RATE, "return floor + peak - fall * peak")],
    },
    ("warmup_cosine", "floor-as-minimum"): {
        "numpy": [(RATE, "return max(floor, peak * wave)")],
        "torch": [(TORCH_RATE, "return max(floor, peak / 2 * (1 + math.cos(angle)))")],
    },
    ("warmup_cosine", "floor-as-fraction"): {
        "numpy": [(RATE, "return peak * (floor + (1 - floor) * wave)")],
        "torch": [("        return floor\n", "        return floor\n    floor = floor * peak\n")],
    },
    ("warmup_cosine", "climbs-again"): {
        "numpy": [(PROGRESS, "progress = (step - warmup) / (total - warmup)")],
        "torch": [("    if step >= total:\n        return floor\n", "")],
        "loops": [("    if step > total:\n        return floor\n", "")],
    },
    ("warmup_cosine", "zero-after-end"): {
        "numpy": [(PROGRESS, "if step > total:\n        return 0.0\n    " + PROGRESS)],
        "loops": [("        return floor\n", "        return 0\n")],
    },
    ("clip", "each-array"): {
        "numpy": [(CLIPPED, "[g * min(1, max_norm / np.sqrt((g**2).sum())) for g in gradients], norm")],
        "torch": [(TORCH_CLIPPED, "return [g * (max_norm / g.norm()).clamp(max=1) for g in gradients], norm")],
    },
    ("clip", "each-number"): {
        "numpy": [(CLIPPED, "[np.clip(g, -max_norm, max_norm) for g in gradients], norm")],
        "torch": [(TORCH_CLIPPED, "return [g.clamp(-max_norm, max_norm) for g in gradients], norm")],
    },
    ("clip", "always-scaled"): {
        "numpy": [("    if norm <= max_norm:", "    if False:")],
        "torch": [(TORCH_FACTOR, "factor = max_norm / (norm + 1e-6)")],
        "loops": [("    if norm > max_norm:\n", "    if norm != 0:\n")],
    },
    ("clip", "below-scaled"): {
        "numpy": [("norm <= max_norm", "norm >= max_norm")],
        "torch": [("clamp(max=1.0)", "clamp(min=1.0)")],
        "loops": [("norm > max_norm", "norm < max_norm")],
    },
    ("clip", "not-clipped"): {
        "numpy": [(CLIPPED, "gradients, norm")],
        "loops": [(LOOP_IF, "")],
    },
    ("clip", "norm-after-clipping"): {
        "numpy": [(CLIPPED, "[g * (max_norm / norm) for g in gradients], max_norm")],
        "torch": [("for gradient in gradients], norm\n", "for gradient in gradients], norm * factor\n")],
    },
    ("clip", "norm-not-rooted"): {
        "numpy": [(NORM, "norm = sum((g**2).sum() for g in gradients)")],
        "loops": [("math.sqrt(squares)", "squares")],
    },
    ("clip", "norm-of-one-array"): {
        "numpy": [(NORM, "norm = np.sqrt((gradients[0] ** 2).sum())")],
        "loops": [("    for gradient in gradients:\n        for", "    for gradient in gradients:\n        squares = 0.0\n        for")],
    },
    ("clip", "sum-of-norms"): {
        "numpy": [(NORM, "norm = sum(np.linalg.norm(g) for g in gradients)")],
        "torch": [(TORCH_NORM, TORCH_NORM.replace("]).norm()", "]).sum()"))],
    },
    ("clip", "largest-norm"): {
        "numpy": [(NORM, "norm = max(np.linalg.norm(g) for g in gradients)")],
        "torch": [(TORCH_NORM, TORCH_NORM.replace("]).norm()", "]).max()"))],
    },
    ("clip", "other-norm"): {
        "numpy": [(NORM, "norm = max(np.abs(g).max() for g in gradients)")],
        "torch": [(TORCH_NORM, "norm = sum(gradient.abs().sum() for gradient in gradients)")],
        "loops": [("squares += float(number) ** 2", "squares += abs(float(number))"), ("math.sqrt(squares)", "squares")],
    },
    ("clip", "root-of-mean"): {
        "numpy": [(NORM, "norm = np.sqrt(np.mean(np.concatenate([g.ravel() for g in gradients]) ** 2))")],
        "loops": [("math.sqrt(squares)", "math.sqrt(squares / sum(g.size for g in gradients))")],
    },
    ("clip", "max-norm-ignored"): {
        "numpy": [("g * (max_norm / norm)", "g / norm")],
        "loops": [("factor = max_norm / norm", "factor = 1 / norm")],
    },
    ("clip", "factor-inverted"): {
        "numpy": [("max_norm / norm", "norm / max_norm")],
        "torch": [(TORCH_FACTOR, "factor = (norm / max_norm).clamp(min=1.0)")],
    },
    ("clip", "norm-first"): {
        "numpy": [("return gradients, norm", "return norm, gradients"), ("return [g * (max_norm / norm) for g in gradients], norm", "return norm, [g * (max_norm / norm) for g in gradients]")],
        "loops": [("return result, norm", "return norm, result")],
    },
    ("clip", "only-gradients"): {
        "torch": [("for gradient in gradients], norm\n", "for gradient in gradients]\n")],
        "loops": [("return result, norm", "return result")],
    },
    ("adam", "no-correction"): {
        "numpy": [(HATS, "m_hat, v_hat = m, v")],
        "loops": [(LOOP_M_HAT, "m_hat = new_m[i]"), (LOOP_V_HAT, "v_hat = new_v[i]")],
    },
    ("adam", "half-correction"): {
        "numpy": [(HATS, "m_hat, v_hat = m / (1 - beta1**step), v")],
        "torch": [(TORCH_CHANGE, "change = m / deviation")],
    },
    ("adam", "power-missing"): {
        "numpy": [("beta1**step", "beta1"), ("beta2**step", "beta2")],
        "torch": [("beta2**step", "beta2"), ("beta1**step", "beta1")],
    },
    ("adam", "power-of-share"): {
        "numpy": [("(1 - beta1**step)", "(1 - beta1) ** step"), ("(1 - beta2**step)", "(1 - beta2) ** step")],
        "loops": [("(1 - beta1**step)", "(1 - beta1) ** step"), ("(1 - beta2**step)", "(1 - beta2) ** step")],
    },
    ("adam", "multiplied-by-correction"): {
        "numpy": [(HATS, "m_hat, v_hat = m * (1 - beta1**step), v * (1 - beta2**step)")],
        "loops": [(LOOP_M_HAT, LOOP_M_HAT.replace("/", "*")), (LOOP_V_HAT, LOOP_V_HAT.replace("/", "*"))],
    },
    ("adam", "other-step"): {
        "numpy": [(HATS, "m_hat, v_hat = m / (1 - beta1 ** (step - 1)), v / (1 - beta2 ** (step - 1))")],
        "torch": [(TORCH_M, "step = step + 1\n    " + TORCH_M)],
    },
    ("adam", "corrected-returned"): {
        "numpy": [("return weight, m, v", "return weight, m_hat, v_hat")],
        "torch": [("return weight - lr * change, m, v", "return weight - lr * change, m / (1 - beta1**step), v / (1 - beta2**step)")],
    },
    ("adam", "moments-not-returned"): {
        "numpy": [("    " + M, "    given = m, v\n    " + M), ("return weight, m, v", "return weight, *given")],
        "loops": [("return new_weight, new_m, new_v", "return new_weight, m, v")],
    },
    ("adam", "old-moments-used"): {
        "numpy": [("    " + M, "    old_m, old_v = m, v\n    " + M), (HATS, HATS.replace("m /", "old_m /").replace("v /", "old_v /"))],
        "torch": [(TORCH_M, "old_m, old_v = m, v\n    " + TORCH_M), ("deviation = (v", "deviation = (old_v"), ("change = m", "change = old_m")],
    },
    ("adam", "betas-exchanged"): {
        "numpy": [("lr, beta1, beta2, eps):\n", "lr, beta2, beta1, eps):\n")],
        "torch": [(TORCH_M, "beta1, beta2 = beta2, beta1\n    " + TORCH_M)],
    },
    ("adam", "shares-exchanged"): {
        "torch": [(TORCH_M, "m = torch.lerp(m, gradient, beta1)"), (TORCH_V, "v = torch.lerp(v, gradient.square(), beta2)")],
        "numpy": [(M, "m = (1 - beta1) * m + beta1 * gradient\n"), (V, "v = (1 - beta2) * v + beta2 * gradient**2")],
    },
    ("adam", "share-missing"): {
        "numpy": [("(1 - beta1) * gradient\n", "gradient\n")],
        "loops": [(" - beta1 * g\n", "\n"), (" - beta2 * g * g", "")],
    },
    ("adam", "v-not-squared"): {
        "numpy": [("(1 - beta2) * gradient**2", "(1 - beta2) * gradient")],
        "torch": [("gradient.square()", "gradient.abs()")],
    },
    ("adam", "v-from-m"): {
        "numpy": [("(1 - beta2) * gradient**2", "(1 - beta2) * m**2")],
        "torch": [("gradient.square()", "m.square()")],
    },
    ("adam", "v-not-rooted"): {
        "numpy": [("np.sqrt(v_hat) + eps", "v_hat + eps")],
        "torch": [("(v / (1 - beta2**step)).sqrt() + eps", "v / (1 - beta2**step) + eps")],
    },
    ("adam", "eps-inside-root"): {
        "numpy": [("np.sqrt(v_hat) + eps", "np.sqrt(v_hat + eps)")],
        "loops": [("math.sqrt(v_hat) + eps", "math.sqrt(v_hat + eps)")],
    },
    ("adam", "eps-before-correction"): {
        "numpy": [(WEIGHT, "weight - lr * np.sqrt(1 - beta2**step) / (1 - beta1**step) * m / (np.sqrt(v) + eps)")],
        "torch": [(TORCH_DEVIATION, "deviation = (v.sqrt() + eps) / math.sqrt(1 - beta2**step)")],
    },
    ("adam", "no-eps"): {
        "numpy": [("(np.sqrt(v_hat) + eps)", "np.sqrt(v_hat)")],
        "torch": [(".sqrt() + eps", ".sqrt()")],
    },
    ("adam", "gradient-for-m"): {
        "numpy": [("lr * m_hat /", "lr * gradient /")],
        "torch": [(TORCH_CHANGE, "change = gradient / deviation")],
        "loops": [("lr * m_hat /", "lr * g /")],
    },
    ("adam", "ascent"): {
        "numpy": [("weight - lr", "weight + lr")],
        "torch": [("weight - lr", "weight + lr")],
        "loops": [("weight[i] - lr", "weight[i] + lr")],
    },
    ("adam", "only-weight"): {
        "torch": [("return weight - lr * change, m, v", "return weight - lr * change")],
        "loops": [("return new_weight, new_m, new_v", "return new_weight")],
    },
    ("training_step", "not-shifted"): {
        "numpy": [("target_in = shift_right(target, start)", "target_in = target")],
        "torch": [("weight[shift_right(target, start)]", "weight[target]")],
        "loops": [("        for token in text:\n            if token != pad:\n                row", "        for token in text:\n            before = token\n            if token != pad:\n                row")],
    },
    ("training_step", "gradient-at-targets"): {
        "numpy": [("np.add.at(gradient, target_in,", "np.add.at(gradient, target,")],
        "loops": [(LOOP_ADD, "gradient[token] += (p - q) / n")],
    },
    ("training_step", "repeated-ids"): {
        "numpy": [(ADD_AT, "gradient[target_in] += at_positions / count_tokens(target, pad)")],
        "loops": [(LOOP_ADD, "gradient[before] = (p - q) / n")],
    },
    ("training_step", "mean-of-repeated"): {
        "numpy": [(ADD_AT, ADD_AT + "\n    times = np.array([((target_in == i) & (target != pad)).sum() for i in range(len(table))])\n    gradient /= np.maximum(times, 1)[:, None]")],
        "torch": [(TORCH_GRADIENT, TORCH_GRADIENT + "\n    times = torch.bincount(shift_right(target, start)[target != pad], minlength=len(table))\n    gradient = gradient / times.clamp(min=1)[:, None]")],
    },
    ("training_step", "gradient-not-divided"): {
        "numpy": [(" / count_tokens(target, pad))", ")")],
        "numpy, by all": [("at_positions / count_tokens(target, pad)", "at_positions / target.size")],
        "torch": [("autograd.grad(loss, weight)", "autograd.grad(loss * count_tokens(target, pad), weight)")],
        "loops": [("(p - q) / n", "(p - q) / len(target)")],
    },
    ("training_step", "padding-in-gradient"): {
        "numpy": [(" * (target != pad)[:, :, None]\n    gradient", "\n    gradient")],
        "numpy, smoothed": [(DIFFERENCE, "softmax(logits) - smooth(target, len(table), 0.1, -1)")],
        "torch": [("autograd.grad(loss, weight)", "autograd.grad(smoothed_loss(logits, target, 0.1, -1) * target.numel() / count_tokens(target, pad), weight)")],
    },
    ("training_step", "gradient-not-smoothed"): {
        "numpy": [("smooth(target, len(table), 0.1, pad)", "smooth(target, len(table), 0.0, pad)")],
        "torch": [("autograd.grad(loss, weight)", "autograd.grad(smoothed_loss(logits, target, 0, pad), weight)")],
    },
    ("training_step", "epsilon-is-0"): {
        "torch": [("smoothed_loss(logits, target, 0.1, pad)", "smoothed_loss(logits, target, 0.0, pad)")],
        "loops": [("np.array([[token]]), 0.1, pad)", "np.array([[token]]), 0, pad)"), ("len(row), 0.1, pad)", "len(row), 0, pad)")],
    },
    ("training_step", "loss-not-smoothed"): {
        "numpy": [("smoothed_loss(logits, target, 0.1, pad)", "smoothed_loss(logits, target, 0.0, pad)")],
        "loops": [("np.array([[token]]), 0.1, pad)", "np.array([[token]]), 0, pad)")],
    },
    ("training_step", "no-clip"): {
        "numpy": [(CLIPPING, "")],
        "torch": [("clipped, _ = clip([gradient], 1.0)", "clipped = [gradient]")],
    },
    ("training_step", "loss-after-step"): {
        "numpy": [("return loss, table, m, v", "return smoothed_loss(table[target_in], target, 0.1, pad), table, m, v")],
        "torch": [("return loss.item(), table", "return smoothed_loss(table[shift_right(target, start)], target, 0.1, pad), table")],
    },
    ("training_step", "ascent"): {
        "numpy": [(DIFFERENCE, "-" + DIFFERENCE)],
        "torch": [("autograd.grad(loss, weight)", "autograd.grad(-loss, weight)")],
        "loops": [("(p - q) / n", "(q - p) / n")],
    },
    ("training_step", "other-betas"): {
        "numpy": [("beta2=0.98", "beta2=0.999")],
        "torch": [("beta2=0.98", "beta2=0.999")],
        "loops": [("0.9, 0.98", "0.9, 0.99")],
    },
    ("training_step", "step-ignored"): {
        "numpy": [("m, v, step, lr, beta1=0.9", "m, v, 1, lr, beta1=0.9")],
        "loops": [("m, v, step, lr, 0.9", "m, v, 1, lr, 0.9")],
    },
    ("training_step", "moments-not-used"): {
        "numpy": [(ADAM, ADAM.replace(" m, v, step", " 0 * m, 0 * v, step"))],
        "torch": [("table, m, v = adam", "m, v, step = torch.zeros_like(m), torch.zeros_like(v), 1\n    table, m, v = adam")],
    },
    ("training_step", "moments-not-returned"): {
        "numpy": [(ADAM, ADAM.replace("table, m, v = ", "table, _, _ = "))],
        "torch": [(TORCH_ADAM, TORCH_ADAM.replace("table, m, v = ", "table, new_m, new_v = "))],
    },
    ("training_step", "table-not-returned"): {
        "numpy": [(ADAM, ADAM.replace("table, m, v = ", "new_table, m, v = "))],
        "torch": [(TORCH_ADAM, TORCH_ADAM.replace("table, m, v = ", "weight, m, v = "))],
    },
    ("training_step", "plain-descent"): {
        "numpy": [(ADAM, "table = table - lr * gradient")],
        "loops": [(LOOP_ADAM, "return loss, table - lr * clipped[0], m, v")],
    },
}  # fmt: skip

# Mistakes that the grader does not know. It must describe them without a name. (part, style, edits)
UNLISTED = [
    ("count_tokens", "numpy", [(COUNT, "(target > pad).sum()")]),
    ("count_tokens", "loops", [("    return count\n", "    return count + 1\n")]),
    ("count_tokens", "torch", [(TORCH_COUNT, "target.unique().numel()")]),
    ("log_softmax", "numpy", [("np.log(np.exp(x)", "np.log(1 + np.exp(x)")]),
    ("log_softmax", "torch", [(TORCH_LOG, "torch.nn.functional.logsigmoid(logits)")]),
    ("smooth", "numpy", [(Q, "(1 - epsilon) * one_hot + epsilon / 10")]),
    ("smooth", "loops", [("row[token] += 1 - epsilon", "row[0] += 1 - epsilon")]),
    ("smooth", "torch", [("epsilon / n_tokens)", "epsilon / count_tokens(target, pad).item())")]),
    ("smoothed_loss", "numpy", [(TOTAL, TOTAL + " + epsilon")]),
    ("smoothed_loss", "torch", [(TORCH_LOSS, TORCH_LOSS.replace("mean()", "median()"))]),
    ("smoothed_loss", "torch", [(TORCH_LOSS, TORCH_LOSS.replace("mean()", "max()"))]),
    ("smoothed_loss", "loops", [("total -= q * value", "total -= q * value**2")]),
    ("warmup_cosine", "numpy", [(WAVE, "wave = np.exp(-progress)")]),
    ("warmup_cosine", "torch", [(TORCH_CLIMB, "return peak * (step / warmup) ** 2")]),
    ("warmup_cosine", "numpy", [("if step < warmup", "if step <= warmup - 2")]),
    ("warmup_cosine", "loops", [("return climb * peak", "return climb")]),
    ("clip", "numpy", [(CLIPPED, "[g - g * (norm - max_norm) / 2 for g in gradients], norm")]),
    ("clip", "torch", [(TORCH_FACTOR, "factor = (max_norm / norm).sqrt().clamp(max=1.0)")]),
    ("clip", "loops", [("        for number in gradient.flat:", "        for number in gradient.flat[1:]:")]),
    ("clip", "loops", [("        result.append(factor * gradient)", "        gradient *= factor\n        result.append(gradient)")]),  # in place
    ("adam", "numpy", [(WEIGHT, WEIGHT + " - lr * 0.01 * weight")]),
    ("adam", "torch", [(TORCH_V, "v = torch.maximum(v, gradient.square())")]),
    ("adam", "loops", [("math.sqrt(v_hat) + eps", "max(math.sqrt(v_hat), eps)")]),
    ("adam", "numpy", [(V, "v = beta2 * v + (1 - beta2) * (gradient - m) ** 2")]),
    ("training_step", "numpy", [("softmax(logits) - smooth", "logits - smooth")]),
    ("training_step", "numpy", [("table, m, v = adam(table,", "read = np.zeros(len(table), bool)\n    read[target_in] = True\n    old = table\n    table, m, v = adam(table,"), ("    return loss, table, m, v", "    return loss, np.where(read[:, None], table, old), m, v")]),
    ("training_step", "torch", [("smoothed_loss(logits, target, 0.1, pad)", "smoothed_loss(logits, target, 0.2, pad)")]),
    ("training_step", "loops", [("            before = token\n", "            before = 0\n")]),
]  # fmt: skip
