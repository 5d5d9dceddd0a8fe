"""Edits of right answers to exercise 6 that produce each known mistake, in at least two styles.

(part, mistake) -> {style: [(old text, new text), ...]}
"""

TOP_K = "np.where(logits >= kth_largest, logits, -np.inf)"
TORCH_TOP_K = 'torch.full_like(logits, float("-inf")).scatter(-1, ids, values)'
TOP_P = "np.where(stays, logits, -np.inf)"
TORCH_TOP_P = "torch.empty_like(logits).scatter(-1, ids, values)"
BEFORE = "before = np.cumsum(probabilities, axis=-1) - probabilities"
TORCH_BEFORE = "before = probabilities.cumsum(dim=-1) - probabilities"
LOOP_TOP_P = """            result[place][i] = row[i]
            total += probabilities[i]
            if total >= p:
                break
"""
LOOP_RESULT = "    result = np.full(np.shape(logits), -math.inf)\n"
MAPPED_BACK = "np.put_along_axis(stays, order, stays_sorted, axis=-1)"
TEMPERATURE = "    logits = apply_temperature(logits, temperature)\n"
IF_TOP_K = "    if top_k is not None:\n        logits = keep_top_k(logits, top_k)\n"
IF_TOP_P = "    if top_p is not None:\n        logits = keep_top_p(logits, top_p)\n"
NOTE_P = "    # mistakes: top-p-ignored\n"
FILTERS = "[(apply_temperature, temperature), (keep_top_k, top_k), (keep_top_p, top_p)]"
CUMULATIVE = "cumulative = np.cumsum(softmax(logits))"
TORCH_CUMULATIVE = "cumulative = logits.softmax(dim=-1).cumsum(dim=-1)"
CHOSEN = "int(np.argmax(cumulative > u))"
TORCH_CHOSEN = "int((cumulative <= u).sum())"
LOOP_CHOSEN = """        if left < p:
            return i
        left -= p
"""
STOP = "        if ids[-1] == end:\n            break\n"
LOOP_STOP = "        if ids[-1] == end:\n            return ids\n"
TORCH_WHILE = "while ids.size(1) <= max_length and (ids.size(1) == 1 or ids[0, -1] != end):"
TORCH_IDS = "ids[0, 1:].tolist()"
LP = "((5 + length) / 6) ** alpha"
LOOP_LP = "math.exp(alpha * math.log((5 + length) / 6))"

FINISHED = "finished.append((totals[n, token] / penalty, ids))"
AT_LIMIT = """        if length == max_length:
            finished += [(total / penalty, ids) for total, ids in zip(log_p, live, strict=True)]
"""
BOUND = "elif finished and log_p[0] / length_penalty(max_length, alpha) <= max(finished)[0]:"
TORCH_BOUND = "if log_p[0] / length_penalty(max_length, alpha) <= best_score:"
TORCH_SCORE = "score = total.item() / length_penalty(length, alpha)"
TORCH_TOTALS = "totals = log_p[:, None] + next_logits(live).log_softmax(dim=-1)"
PENALTY = "penalty = length_penalty(length, alpha)"
LOOP_SCORE = "score = log_p / length_penalty(len(ids), alpha)"
LOOP_GAIN = "log_p + logit - log_sum"
LOOP_FULL = """            if len(beam) >= beam_size:
                break
"""
LOOP_IS_END = "if ids[-1] == end:\n                done"
LOOP_FOR = "for log_p, ids in candidates:"
LOOP_BEST = "        if score > best_score:\n            best, best_score = ids, score\n    return best, best_score"
LOOP_STEP = "    while beam and len(beam[0][1]) < max_length:\n"

EDITS = {
    ("apply_temperature", "temperature-multiplied"): {
        "numpy": [("return logits / temperature", "return logits * temperature")],
        "torch": [("return logits / temperature", "return temperature * logits")],
        "loops": [("result[place] / temperature", "result[place] * temperature")],
    },
    ("apply_temperature", "temperature-ignored"): {
        "numpy": [("return logits / temperature", "return logits")],
        "loops": [("result[place] / temperature", "result[place]")],
    },
    ("apply_temperature", "temperature-on-probabilities"): {
        "numpy": [("return logits / temperature", "return softmax(logits) / temperature")],
        "torch": [("return logits / temperature", "return logits.softmax(-1) / temperature")],
    },
    ("apply_temperature", "temperature-then-softmax"): {
        "numpy": [("return logits / temperature", "return softmax(logits / temperature)")],
        "torch": [("return logits / temperature", "return (logits / temperature).softmax(-1)")],
    },
    ("choose_token", "smallest-logit"): {
        "numpy": [("np.argmax(logits, axis=-1)", "np.argsort(logits, axis=-1)[..., 0]")],
        "torch": [("logits.argmax(dim=-1)", "logits.argmin(dim=-1)")],
        "loops": [("logits[i] > logits[best]", "logits[i] < logits[best]")],
    },
    ("choose_token", "largest-value"): {
        "numpy": [("np.argmax(logits, axis=-1)", "np.max(logits, axis=-1)")],
        "torch": [("logits.argmax(dim=-1)", "logits.max(dim=-1).values")],
        "loops": [("    return best\n", "    return logits[best]\n")],
    },
    ("choose_token", "token-axis"): {
        "numpy": [("np.argmax(logits, axis=-1)", "np.argmax(logits)")],
        "numpy, axis 0": [("np.argmax(logits, axis=-1)", "np.argmax(logits, axis=0)")],
        "torch": [("logits.argmax(dim=-1)", "logits.argmax()")],
    },
    ("choose_token", "largest-magnitude"): {
        "numpy": [("np.argmax(logits, axis=-1)", "np.argmax(np.abs(logits), axis=-1)")],
        "loops": [("logits[i] > logits[best]", "abs(logits[i]) > abs(logits[best])")],
    },
    ("keep_top_k", "excluded-zero"): {
        "numpy": [(TOP_K, "logits * (logits >= kth_largest)")],
        "torch": [(TORCH_TOP_K, "torch.zeros_like(logits).scatter(-1, ids, values)")],
        "loops": [(LOOP_RESULT, "    result = np.zeros(np.shape(logits))\n")],
    },
    ("keep_top_p", "excluded-zero"): {
        "numpy": [(TOP_P, "np.where(stays, logits, 0)")],
        "torch": [('values.masked_fill(before >= p, float("-inf"))', "values.masked_fill(before >= p, 0)")],
    },
    ("keep_top_k", "excluded-low"): {
        "numpy": [(TOP_K, "np.where(logits >= kth_largest, logits, -1e9)")],
        "loops": [(LOOP_RESULT, "    result = np.full(np.shape(logits), -1e9)\n")],
    },
    ("keep_top_p", "excluded-low"): {
        "numpy": [(TOP_P, "np.where(stays, logits, -1e9)")],
        "torch": [('values.masked_fill(before >= p, float("-inf"))', "values.masked_fill(before >= p, -1e9)")],
    },
    ("keep_top_k", "k-one-fewer"): {
        "numpy": [("logits >= kth_largest", "logits > kth_largest")],
        "numpy, an index": [("[..., -k, None]", "[..., -k + 1, None]")],
        "torch": [("logits.topk(k, dim=-1)", "logits.topk(k - 1, dim=-1)")],
        "loops": [("for _ in range(k):", "for _ in range(1, k):")],
    },
    ("keep_top_k", "k-one-more"): {
        "numpy": [("[..., -k, None]", "[..., -min(k + 1, logits.shape[-1]), None]")],
        "numpy, crashes": [("[..., -k, None]", "[..., -k - 1, None]")],
        "torch": [("logits.topk(k, dim=-1)", "logits.topk(k + 1, dim=-1)")],
    },
    ("keep_top_k", "k-smallest"): {
        "numpy": [("[..., -k, None]", "[..., k - 1, None]"), ("logits >= kth_largest", "logits <= kth_largest")],
        "torch": [("logits.topk(k, dim=-1)", "logits.topk(k, dim=-1, largest=False)")],
        "loops": [("max(left, key=left.get)", "min(left, key=left.get)")],
    },
    ("keep_top_k", "k-inverted"): {
        "numpy": [(TOP_K, "np.where(logits >= kth_largest, -np.inf, logits)")],
        "torch": [(TORCH_TOP_K, 'logits.scatter(-1, ids, float("-inf"))')],
    },
    ("keep_top_k", "k-first-ids"): {
        "numpy": [(TOP_K, "np.where(np.arange(logits.shape[-1]) < k, logits, -np.inf)")],
        "torch": [(TORCH_TOP_K, 'logits.masked_fill(torch.arange(logits.size(-1)) >= k, float("-inf"))')],
    },
    ("keep_top_k", "k-axis"): {
        "numpy": [("np.sort(logits, axis=-1)[..., -k, None]", "np.sort(logits, axis=None)[-k]")],
        "torch": [("logits.topk(k, dim=-1)", "logits.topk(k, dim=0)"), (TORCH_TOP_K, TORCH_TOP_K.replace("-1", "0"))],
    },
    ("keep_top_k", "k-values"): {
        "numpy": [(TOP_K, "np.sort(logits, axis=-1)[..., -k:]")],
        "torch": [(TORCH_TOP_K, "values")],
    },
    ("keep_top_k", "k-ids"): {
        "numpy": [(TOP_K, "np.argsort(logits, axis=-1)[..., -k:]")],
        "torch": [(TORCH_TOP_K, "ids.float()")],
    },
    ("keep_top_p", "crossing-excluded"): {
        "numpy": [(BEFORE, "before = np.cumsum(probabilities, axis=-1)")],
        "torch, the first stays": [(TORCH_BEFORE, "before = probabilities.cumsum(dim=-1)\n    before[..., 0] = 0")],
        "loops": [
            (
                LOOP_TOP_P,
                "            total += probabilities[i]\n            if total >= p:\n                break\n            result[place][i] = row[i]\n",
            )
        ],
    },
    ("keep_top_p", "p-one-more"): {
        "numpy": [
            (
                "stays_sorted = before < p",
                "stays_sorted = before - np.roll(probabilities, 1, axis=-1) < p\n    stays_sorted[..., 0] = True",
            )
        ],
        "loops": [("            if total >= p:\n", "            if total - probabilities[i] >= p:\n")],
    },
    ("keep_top_p", "p-not-sorted"): {
        "numpy": [
            (
                "order = np.argsort(-logits, axis=-1)",
                "order = np.broadcast_to(np.arange(logits.shape[-1]), logits.shape)",
            )
        ],
        "loops": [("sorted(range(len(row)), key=lambda i: -probabilities[i])", "range(len(row))")],
    },
    ("keep_top_p", "p-ascending"): {
        "numpy": [("np.argsort(-logits, axis=-1)", "np.argsort(logits, axis=-1)")],
        "torch": [(", descending=True", "")],
        "loops": [("key=lambda i: -probabilities[i]", "key=lambda i: probabilities[i]")],
    },
    ("keep_top_p", "p-places"): {
        "numpy": [(MAPPED_BACK, "stays = stays_sorted")],
        "numpy, permuted": [(MAPPED_BACK, "stays = np.take_along_axis(stays_sorted, order, axis=-1)")],
        "torch": [(TORCH_TOP_P, 'logits.masked_fill((before >= p).gather(-1, ids), float("-inf"))')],
    },
    ("keep_top_p", "p-sorted-result"): {
        "numpy": [(TOP_P, "np.where(stays_sorted, np.take_along_axis(logits, order, axis=-1), -np.inf)")],
        "torch": [(TORCH_TOP_P, "values")],
    },
    ("keep_top_p", "p-each"): {
        "numpy": [(TOP_P, "np.where(softmax(logits) >= p, logits, -np.inf)")],
        "torch, of the largest": [("before >= p", "probabilities < p * probabilities[..., :1]")],
        "loops": [
            (LOOP_TOP_P, "            if probabilities[i] > 1 - p:\n                result[place][i] = row[i]\n")
        ],
    },
    ("keep_top_p", "p-remaining"): {
        "numpy": [("before < p", "before < 1 - p")],
        "loops": [("total >= p", "total >= 1 - p")],
    },
    ("keep_top_p", "p-inverted"): {
        "numpy": [(TOP_P, "np.where(stays, -np.inf, logits)")],
        "torch": [("before >= p", "before < p")],
    },
    ("keep_top_p", "p-axis"): {
        "numpy": [
            (
                "    order = np.argsort(-logits",
                "    shape, logits = logits.shape, logits.reshape(-1)\n    order = np.argsort(-logits",
            ),
            (TOP_P, f"{TOP_P}.reshape(shape)"),
        ],
        "torch": [
            ("logits.sort(dim=-1", "logits.sort(dim=0"),
            ("values.softmax(dim=-1)", "values.softmax(dim=0)"),
            ("probabilities.cumsum(dim=-1)", "probabilities.cumsum(dim=0)"),
            (TORCH_TOP_P, TORCH_TOP_P.replace("-1", "0")),
        ],
    },
    ("keep_top_p", "p-probabilities"): {
        "numpy": [(TOP_P, "np.where(stays, softmax(logits), 0)")],
        "numpy, again": [(TOP_P, f"softmax({TOP_P})")],
        "torch": [
            (
                'values = values.masked_fill(before >= p, float("-inf"))',
                'values = probabilities.masked_fill(before >= p, float("-inf"))',
            )
        ],
    },
    ("sample", "temperature-last"): {
        "numpy": [(TEMPERATURE, ""), (IF_TOP_P, IF_TOP_P + TEMPERATURE)],
        "torch": [(FILTERS, "[(keep_top_k, top_k), (keep_top_p, top_p), (apply_temperature, temperature)]")],
    },
    ("sample", "top-p-before-top-k"): {
        "numpy": [(IF_TOP_K + NOTE_P + IF_TOP_P, IF_TOP_P + IF_TOP_K)],
        "torch": [(FILTERS, "[(apply_temperature, temperature), (keep_top_p, top_p), (keep_top_k, top_k)]")],
        "loops": [(IF_TOP_K + IF_TOP_P, IF_TOP_P + IF_TOP_K)],
    },
    ("sample", "filters-on-probabilities"): {
        "numpy": [(TEMPERATURE, "    logits = softmax(apply_temperature(logits, temperature))\n")],
        "numpy, softmax again": [
            (TEMPERATURE, "    logits = softmax(apply_temperature(logits, temperature))\n"),
            ("logits = keep_top_k(logits, top_k)", "logits = softmax(keep_top_k(logits, top_k))"),
            ("logits = keep_top_p(logits, top_p)", "logits = softmax(keep_top_p(logits, top_p))"),
            (CUMULATIVE, "cumulative = np.cumsum(logits)"),
        ],
        "torch": [
            (
                FILTERS,
                FILTERS.replace("[", "[(lambda x, t: (x / t).softmax(-1), temperature), ").replace(
                    "(apply_temperature, temperature), ", ""
                ),
            )
        ],
    },
    ("sample", "temperature-ignored"): {
        "numpy": [(TEMPERATURE, "")],
        "torch": [("(apply_temperature, temperature), ", "")],
    },
    ("sample", "top-k-ignored"): {
        "numpy": [("logits = keep_top_k(logits, top_k)", "keep_top_k(logits, top_k)")],
        "torch": [("(keep_top_k, top_k), ", "")],
    },
    ("sample", "top-p-ignored"): {
        "numpy": [("logits = keep_top_p(logits, top_p)", "keep_top_p(logits, top_p)")],
        "loops": [(IF_TOP_P, "")],
    },
    ("sample", "u-reached"): {
        "numpy": [("cumulative > u", "cumulative >= u")],
        "numpy, searchsorted": [(CHOSEN, "int(np.searchsorted(cumulative, u))")],
        "torch": [("cumulative <= u", "cumulative < u")],
        "loops": [("left < p", "left <= p")],
    },
    ("sample", "u-sorted"): {
        "numpy": [
            (CUMULATIVE, "order = np.argsort(-softmax(logits))\n    cumulative = np.cumsum(softmax(logits)[order])"),
            (CHOSEN, "int(order[np.argmax(cumulative > u)])"),
        ],
        "torch": [
            (TORCH_CUMULATIVE, "cumulative = logits.softmax(dim=-1).sort(descending=True).values.cumsum(dim=-1)")
        ],
    },
    ("sample", "most-probable"): {
        "numpy": [(CHOSEN, "int(choose_token(logits))")],
        "torch": [(TORCH_CHOSEN, "int(logits.argmax())")],
    },
    ("sample", "not-renormalised"): {
        "numpy": [
            (TEMPERATURE, TEMPERATURE + "    unfiltered = softmax(logits)\n"),
            (CUMULATIVE, "cumulative = np.cumsum(unfiltered * np.isfinite(logits))"),
        ],
        "torch": [
            (
                "    for apply, setting",
                "    unfiltered = (logits / temperature).softmax(dim=-1)\n    for apply, setting",
            ),
            (TORCH_CUMULATIVE, "cumulative = (unfiltered * logits.isfinite()).cumsum(dim=-1)"),
        ],
        "loops": [
            (IF_TOP_K, "    unfiltered = probabilities_of(logits.tolist())\n" + IF_TOP_K),
            (
                "enumerate(probabilities_of(logits.tolist())):\n",
                "enumerate(unfiltered):\n        p = p if logits[i] > -math.inf else 0.0\n",
            ),
        ],
    },
    ("sample", "not-cumulative"): {
        "numpy": [(CUMULATIVE, "cumulative = softmax(logits)")],
        "loops": [("        left -= p\n", "")],
    },
    ("sample", "id-before"): {
        "numpy": [(CHOSEN, "int(np.sum(cumulative <= u)) - 1")],
        "torch": [(TORCH_CHOSEN, f"max({TORCH_CHOSEN} - 1, 0)")],
        "loops": [("            return i\n", "            return max(i - 1, 0)\n")],
    },
    ("sample", "id-after"): {
        "numpy": [(CHOSEN, "int(np.sum(cumulative <= u)) + 1")],
        "loops": [("            return i\n", "            return i + 1\n")],
    },
    ("sample", "u-from-the-end"): {
        "numpy": [("cumulative > u", "cumulative > 1 - u")],
        "loops": [
            (
                "in enumerate(probabilities_of(logits.tolist())):",
                "in reversed(list(enumerate(probabilities_of(logits.tolist())))):",
            )
        ],
    },
    ("greedy", "end-passed"): {
        "numpy": [(STOP, "")],
        "torch": [(" and (ids.size(1) == 1 or ids[0, -1] != end)", "")],
        "loops": [(LOOP_STOP, "")],
    },
    ("greedy", "end-left-out"): {
        "numpy": [(STOP, "        if ids[-1] == end:\n            return ids[1:-1]\n")],
        "loops": [(LOOP_STOP, "        if ids[-1] == end:\n            return ids[:-1]\n")],
    },
    ("greedy", "start-included"): {
        "numpy": [("return ids[1:]\n\n\ndef length_penalty", "return ids\n\n\ndef length_penalty")],
        "torch": [(TORCH_IDS, "ids[0].tolist()")],
    },
    ("greedy", "max-length"): {
        "numpy": [("    for _ in range(max_length):", "    for _ in range(1, max_length):")],
        "torch": [("while ids.size(1) <= max_length", "while ids.size(1) <= max_length + 1")],
        "loops": [("while len(ids) < max_length", "while len(ids) <= max_length")],
    },
    ("greedy", "last-id-only"): {
        "numpy": [("np.array([ids])", "np.array([ids[-1:]])")],
        "torch": [("choose_token(next_logits(ids))", "choose_token(next_logits(ids[:, -1:]))")],
    },
    ("greedy", "start-not-read"): {
        "numpy": [("np.array([ids])", "np.array([ids[1:] or [start]])")],
        "loops": [
            ("next_logits([[start, *ids]])\n        ids.append", "next_logits([ids or [start]])\n        ids.append")
        ],
    },
    ("greedy", "end-added"): {
        "numpy": [
            (
                "    return ids[1:]\n\n\ndef length_penalty",
                "    if ids[-1] != end:\n        ids.append(end)\n    return ids[1:]\n\n\ndef length_penalty",
            )
        ],
        "torch, the last is replaced": [(TORCH_IDS, "[*ids[0, 1:-1].tolist(), end]")],
        "loops": [(LOOP_STOP + "    return ids\n", LOOP_STOP + "    return ids + [end]\n")],
    },
    ("greedy", "filled-with-end"): {
        "torch": [
            (TORCH_IDS, "torch.nn.functional.pad(ids[0, 1:], (0, max_length + 1 - ids.size(1)), value=end).tolist()")
        ],
        "loops": [
            (LOOP_STOP, "        if ids[-1] == end:\n            return ids + [end] * (max_length - len(ids))\n")
        ],
    },
    ("length_penalty", "penalty-brackets"): {
        "numpy": [(LP, "(5 + length / 6) ** alpha")],
        "loops": [(LOOP_LP, "math.pow(5 + length / 6, alpha)")],
    },
    ("length_penalty", "penalty-exponent"): {
        "numpy": [(LP, "(5 + length) / 6**alpha")],
        "torch": [(LP, "(5 + length) ** alpha / 6")],
    },
    ("length_penalty", "penalty-length-only"): {
        "numpy": [(LP, "length**alpha")],
        "loops": [(LOOP_LP, "math.exp(alpha * math.log(length))")],
    },
    ("length_penalty", "penalty-times-alpha"): {
        "numpy": [(LP, "((5 + length) / 6) * alpha")],
        "loops": [(LOOP_LP, "alpha * (5 + length) / 6")],
    },
    ("length_penalty", "penalty-inverse"): {
        "torch": [(LP, "(6 / (5 + length)) ** alpha")],
        "loops": [(LOOP_LP, "math.exp(-alpha * math.log((5 + length) / 6))")],
    },
    ("beam_search", "logits-added"): {
        "numpy": [("np.log(softmax(logits))", "logits")],
        "torch": [(TORCH_TOTALS, "totals = log_p[:, None] + next_logits(live)")],
        "loops": [(LOOP_GAIN, "log_p + logit")],
    },
    ("beam_search", "no-logarithm"): {
        "numpy": [("np.log(softmax(logits))", "softmax(logits)")],
        "torch": [(".log_softmax(dim=-1)", ".softmax(dim=-1)")],
        "loops": [("beam = [(0.0, [])]", "beam = [(1.0, [])]"), (LOOP_GAIN, "log_p * math.exp(logit - log_sum)")],
    },
    ("beam_search", "not-added-up"): {
        "numpy": [("totals = log_p[:, None] + log_p_next", "totals = log_p_next")],
        "loops": [(LOOP_GAIN, "logit - log_sum")],
    },
    ("beam_search", "one-hypothesis"): {
        "numpy": [("live, log_p = [[start]], np.zeros(1)", "live, log_p = [[start]] * beam_size, np.zeros(beam_size)")],
        "torch": [
            (
                "torch.tensor([[start]]), torch.zeros(1)  #",
                "torch.tensor([[start]] * beam_size), torch.zeros(beam_size)  #",
            )
        ],
        "loops": [("beam = [(0.0, [])]", "beam = [(0.0, [])] * beam_size")],
    },
    ("beam_search", "no-competition"): {
        "loops": [
            ("        candidates = []\n", "        candidates, first = [], not beam[0][1]\n"),
            (
                "        candidates.sort(reverse=True)\n",
                "        candidates.sort(reverse=True)\n        V = len(logits)\n        if not first:\n            candidates = [max(c for c in candidates if c[1][:-1] == ids) for _, ids in beam]\n            candidates.sort(reverse=True)\n",
            ),
        ],
        "numpy": [
            (
                "order = np.argsort(-totals, axis=None)\n",
                "order = np.argsort(-totals, axis=None)\n        if length > 1:\n            best = np.full_like(totals, 0, dtype=bool)\n            best[np.arange(len(totals)), totals.argmax(-1)] = True\n            order = [i for i in order if best.flat[i]]\n",
            ),
        ],
    },
    ("beam_search", "parents-mixed"): {
        "numpy": [
            (
                "ids = [*parents[n], token]",
                "ids = [*parents[n if token == end else min(len(live), len(parents) - 1)], token]",
            )
        ],
        "numpy, remainder": [
            (
                "n, token = divmod(int(place), totals.shape[1])",
                "token, n = divmod(int(place), totals.shape[0])\n            total = totals.flat[place]",
            ),
            ("totals[n, token] / penalty", "total / penalty"),
            ("going_on.append(totals[n, token])", "going_on.append(total)"),
        ],
        "torch, remainder": [
            ("places // totals.size(1), places % totals.size(1)", "places % len(totals), places // len(totals)")
        ],
        "torch": [
            (
                "torch.cat([live[rows], tokens",
                "torch.cat([live.expand(len(rows), -1) if length == 1 else live[: len(rows)] if len(rows) <= len(live) else torch.cat([live, live[-1:].expand(len(rows) - len(live), -1)]), tokens",
            )
        ],
        "loops": [
            (LOOP_FOR, "for i, (log_p, ids) in enumerate(candidates):"),
            (
                f"            {LOOP_IS_END}",
                f"            ids = old[min(i, len(old) - 1)][1] + ids[-1:]\n            {LOOP_IS_END}",
            ),
            ("        candidates.sort(reverse=True)\n", "        candidates.sort(reverse=True)\n        old = beam\n"),
        ],
    },
    ("beam_search", "finished-take-places"): {
        "numpy": [
            ("for place in order:", "for place in order[:beam_size]:"),
            (AT_LIMIT, "        if not live:\n            break\n" + AT_LIMIT),
        ],
        "loops": [(LOOP_FOR, "for log_p, ids in candidates[:beam_size]:")],
        "loops, they stay": [
            (
                "            logits = next_logits([[start, *ids]])[0]",
                "            if ids and ids[-1] == end:\n                candidates.append((log_p, ids))\n                continue\n            logits = next_logits([[start, *ids]])[0]",
            ),
            (LOOP_STEP, "    for _ in range(max_length):\n"),
            (LOOP_FOR, "for log_p, ids in candidates[:beam_size]:"),
            ("                done.append((log_p, ids))", "                beam.append((log_p, ids))"),
        ],
        "loops, they stay by score": [
            (
                "            logits = next_logits([[start, *ids]])[0]",
                "            if ids and ids[-1] == end:\n                candidates.append((log_p, ids))\n                continue\n            logits = next_logits([[start, *ids]])[0]",
            ),
            (LOOP_STEP, "    for _ in range(max_length):\n"),
            (
                "candidates.sort(reverse=True)",
                "candidates.sort(key=lambda c: c[0] / length_penalty(len(c[1]), alpha), reverse=True)",
            ),
            (LOOP_FOR, "for log_p, ids in candidates[:beam_size]:"),
            ("                done.append((log_p, ids))", "                beam.append((log_p, ids))"),
        ],
        "loops, for good": [(LOOP_FOR, "for log_p, ids in candidates[: beam_size - len(done)]:")],
    },
    ("beam_search", "end-extended"): {
        "numpy": [("            if token == end:", "            if False:")],
        "loops": [(LOOP_IS_END, "if False:\n                done")],
    },
    ("beam_search", "every-end-counts"): {
        "torch": [
            (
                "ended >= log_p[-1] if len(log_p) == beam_size else torch.ones_like(ended, dtype=torch.bool)",
                "torch.ones_like(ended, dtype=torch.bool)",
            )
        ],
        "loops": [
            (LOOP_FULL, ""),
            (
                "            else:\n                beam.append((log_p, ids))",
                "            elif len(beam) < beam_size:\n                beam.append((log_p, ids))",
            ),
        ],
        "loops, of twice as many": [
            (LOOP_FULL, ""),
            (LOOP_FOR, "for log_p, ids in candidates[: 2 * beam_size]:"),
            (
                "            else:\n                beam.append((log_p, ids))",
                "            elif len(beam) < beam_size:\n                beam.append((log_p, ids))",
            ),
        ],
    },
    ("beam_search", "first-finished"): {
        "numpy": [(BOUND, "if finished:")],
        "loops": [("    best, best_score", "        if done:\n            beam = []\n    best, best_score")],
    },
    ("beam_search", "enough-finished"): {
        "numpy": [(BOUND, "elif len(finished) >= beam_size:")],
        "loops": [
            ("    best, best_score", "        if len(done) >= beam_size:\n            beam = []\n    best, best_score")
        ],
    },
    ("beam_search", "bound-too-low"): {
        "numpy": [(BOUND, BOUND.replace("length_penalty(max_length, alpha)", "penalty"))],
        "torch": [(TORCH_BOUND, "if log_p[0] <= best_score:")],
        "torch, the next": [(TORCH_BOUND, "if log_p[0] / length_penalty(length + 1, alpha) <= best_score:")],
    },
    ("beam_search", "cut-off-ignored"): {
        "numpy": [("        if length == max_length:\n", "        if length == max_length and not finished:\n")],
        "loops": [("for log_p, ids in done + beam:", "for log_p, ids in done or beam:")],
    },
    ("beam_search", "no-penalty"): {
        "numpy": [(PENALTY, "penalty = 1")],
        "torch": [(TORCH_SCORE, "score = total.item()")],
        "loops": [(LOOP_SCORE, "score = log_p")],
    },
    ("beam_search", "penalty-multiplied"): {
        "torch": [(TORCH_SCORE, "score = total.item() * length_penalty(length, alpha)"), (TORCH_BOUND, "if False:")],
        "loops": [(LOOP_SCORE, "score = log_p * length_penalty(len(ids), alpha)")],
    },
    ("beam_search", "penalty-each-step"): {
        "numpy": [
            (
                "totals = log_p[:, None] + log_p_next",
                "totals = (log_p[:, None] + log_p_next) / length_penalty(length, alpha)",
            ),
            (PENALTY, "penalty = 1"),
        ],
        "loops, and at the end": [(LOOP_GAIN, "(log_p + logit - log_sum) / length_penalty(len(ids) + 1, alpha)")],
    },
    ("beam_search", "length-wrong"): {
        "numpy": [(PENALTY, "penalty = length_penalty(length + 1, alpha)")],
        "torch": [
            (TORCH_SCORE, "score = total.item() / length_penalty(length - 1, alpha)"),
            (TORCH_BOUND, "if False:"),
        ],
        "loops": [(LOOP_SCORE, "score = log_p / length_penalty(len(ids) - (ids[-1] == end), alpha)")],
    },
    ("beam_search", "best-by-log-p"): {
        "loops": [
            (
                LOOP_BEST,
                "        if log_p > best_score:\n            best, best_score = ids, log_p\n    return best, best_score / length_penalty(len(best), alpha)",
            ),
        ],
        "numpy": [
            (FINISHED, "finished.append((totals[n, token], ids))"),
            ("(total / penalty, ids)", "(total, ids)"),
            (BOUND, "elif False:"),
            ("return ids[1:], float(score)", "return ids[1:], float(score) / length_penalty(len(ids) - 1, alpha)"),
        ],
    },
    ("beam_search", "log-p-returned"): {
        "numpy": [
            ("return ids[1:], float(score)", "return ids[1:], float(score) * length_penalty(len(ids) - 1, alpha)")
        ],
        "loops": [
            ("    best, best_score = None", "    best_total, best, best_score = 0, None"),
            (
                LOOP_BEST,
                "        if score > best_score:\n            best_total, best, best_score = log_p, ids, score\n    return best, best_total",
            ),
        ],
    },
    ("beam_search", "end-left-out"): {
        "numpy": [("return ids[1:], float(score)", "return [i for i in ids[1:] if i != end], float(score)")],
        "loops": [("return best, best_score", "return (best[:-1] if best[-1] == end else best), best_score")],
    },
    ("beam_search", "start-included"): {
        "numpy": [("return ids[1:], float(score)", "return ids, float(score)")],
        "torch": [("best_ids, best_score = ids[1:], score", "best_ids, best_score = ids, score")],
    },
    ("beam_search", "max-length"): {
        "numpy": [
            ("for length in range(1, max_length + 1):", "for length in range(1, max_length):"),
            ("length == max_length", "length == max_length - 1"),
            ("    score, ids = max(finished)", "    score, ids = max(finished or [(0, [start])])"),
        ],
        "loops": [(LOOP_STEP, LOOP_STEP.replace("<", "<="))],
    },
    ("beam_search", "last-id-only"): {
        "numpy": [("next_logits(np.array(live))", "next_logits(np.array(live)[:, -1:])")],
        "loops": [("logits = next_logits([[start, *ids]])[0]", "logits = next_logits([(ids or [start])[-1:]])[0]")],
    },
    ("beam_search", "start-not-read"): {
        "torch": [("next_logits(live)", "next_logits(live[:, 1:] if length > 1 else live)")],
        "loops": [("logits = next_logits([[start, *ids]])[0]", "logits = next_logits([ids or [start]])[0]")],
    },
    ("beam_search", "score-first"): {
        "numpy": [("return ids[1:], float(score)", "return float(score), ids[1:]")],
        "torch": [("return best_ids, best_score", "return best_score, best_ids")],
    },
}

UNLISTED = [
    ("apply_temperature", "numpy", [("return logits / temperature", "return logits / temperature**2")]),
    ("apply_temperature", "torch", [("return logits / temperature", "return logits - temperature")]),
    (
        "choose_token",
        "numpy",
        [("np.argmax(logits, axis=-1)", "np.argsort(-logits, axis=-1)[..., min(1, logits.shape[-1] - 1)]")],
    ),
    ("choose_token", "loops", [("    return best\n", "    return best + 1\n")]),
    ("keep_top_k", "numpy", [("logits >= kth_largest", "np.abs(logits) >= kth_largest")]),
    ("keep_top_k", "torch", [(TORCH_TOP_K, f"{TORCH_TOP_K} - 1")]),
    ("keep_top_k", "loops", [("for _ in range(k):", "for _ in range(2):\n            if not left: break")]),
    ("keep_top_p", "numpy", [("before < p", "before < p * p")]),
    ("keep_top_p", "torch", [("before >= p", "before > 0")]),
    ("keep_top_p", "torch", [(TORCH_TOP_P, 'logits.index_fill(-1, ids[before >= p], float("-inf"))')]),
    (
        "keep_top_p",
        "torch",
        [
            (TORCH_BEFORE, "before = probabilities.cumsum(dim=-1)"),
            (TORCH_TOP_P, 'logits.index_fill(-1, ids[before >= p], float("-inf"))'),
        ],
    ),
    ("keep_top_p", "loops", [("total += probabilities[i]", "total += probabilities[i] ** 2")]),
    ("sample", "numpy", [("cumulative > u", "cumulative > u * u")]),
    ("sample", "torch", [("cumulative <= u", "cumulative <= 0.5")]),
    ("sample", "loops", [("left -= p", "left -= p / 2")]),
    ("greedy", "numpy", [("np.array([ids])", "np.array([ids[::-1]])")]),
    ("greedy", "torch", [("token = choose_token(next_logits(ids))", "token = next_logits(ids).topk(2).indices[:, 1]")]),
    ("greedy", "loops", [("while len(ids) < max_length", "while len(ids) < 3")]),
    ("length_penalty", "numpy", [(LP, "((6 + length) / 7) ** alpha")]),
    ("length_penalty", "loops", [(LOOP_LP, "math.exp(alpha * math.log((5 + length) / 6)) + 1")]),
    ("beam_search", "numpy", [("len(live) == beam_size", "len(live) == beam_size + 1")]),
    ("beam_search", "torch", [(TORCH_SCORE, "score = -total.item() / length_penalty(length, alpha)")]),
    ("beam_search", "loops", [("candidates.sort(reverse=True)", "candidates.sort()")]),
    ("beam_search", "loops", [(LOOP_SCORE, "score = log_p / len(ids)")]),
    ("beam_search", "numpy", [("score, ids = max(finished)", "score, ids = min(finished)")]),
    (
        "beam_search",
        "loops",
        [("math.log(sum(math.exp(x) for x in logits))", "math.log2(sum(math.exp(x) for x in logits))")],
    ),
]
