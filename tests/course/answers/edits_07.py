"""Edits of right answers to exercise 7 that produce each known mistake, in at least two styles.

(part, mistake) -> {style: [(old text, new text), ...]}
"""

NUMPY_APPEND = 'return {"k": np.concatenate([cache["k"], k], axis=2), "v": np.concatenate([cache["v"], v], axis=2)}'
TORCH_APPEND = 'return {name: torch.cat((cache[name], new), dim=2) for name, new in (("k", k), ("v", v))}'
LOOP_OLD = "            result[name][:, :, j] = cache[name][:, :, j]\n"
LOOP_NEW = "            result[name][:, :, t + j] = new[:, :, j]\n"
NUMPY_REORDER = 'return {"k": cache["k"][rows], "v": cache["v"][rows]}'
TORCH_REORDER = "return {name: stored.index_select(0, index) for name, stored in cache.items()}"
POSITIONS = "positions = sinusoidal(start + n, d)[start:]"
TORCH_POSITION = "position = start + torch.arange(ids.size(1))"
NUMPY_MASK = "mask = np.tri(n, total, total - n, dtype=bool)"
NUMPY_ATTENTION = 'output, _ = attention(q, cache["k"], cache["v"], mask)'
SELF_RETURN = 'return merge_heads(output) @ weights["output"], cache'
CROSS_RETURN = 'return merge_heads(output) @ weights["output"]\n'
TORCH_ATTEND = 'output = attend(split(x @ weights["query"], n_heads), longer, mask, weights["output"])'
TORCH_MERGE = "return heads.transpose(1, 2).flatten(2) @ w_o"
TORCH_MEMORY = 'k, v = (split(memory @ weights[name], n_heads) for name in ("key", "value"))'
TORCH_CROSS = 'return attend(split(x @ weights["query"], n_heads), cache, mask, weights["output"])'
NUMPY_MEMORY = (
    'return {"k": split_heads(memory @ weights["key"], n_heads), "v": split_heads(memory @ weights["value"], n_heads)}'
)
LOOP_PAIRS = '(("k", "key"), ("v", "value"))'
LOOP_SEEN = "seen = slice(0, before + i + 1)"
LOOP_KEYS = 'keys, values = cache["k"][b, h, seen[b, h, i]], cache["v"][b, h, seen[b, h, i]]'
LOOP_SUM = 'joined[b, i, part] = weighted_sum(query, new["k"][b, h, seen], new["v"][b, h, seen])'
TORCH_SELF_CALL = 'change, cache = cached_attention(x, cache, weights["self_attention"], n_heads)'
TORCH_CROSS_CALL = 'change = attend_memory(x, memory_keys, weights["cross_attention"], n_heads, memory_mask)'
NUMPY_SELF_CALL = 'self_output, cache = cached_attention(x, cache, weights["self_attention"], n_heads)'
NUMPY_CROSS_CALL = 'cross_output = attend_memory(x, memory_keys, weights["cross_attention"], n_heads, memory_mask)'
LOOP_SELF_CALL = 'change, new = cached_attention(x, cache, weights["self_attention"], n_heads)'
LOOP_CROSS_CALL = TORCH_CROSS_CALL
TORCH_HALVES = f"""    {TORCH_SELF_CALL}
    x = add_and_norm(x, change, weights["norm_1"])
"""
APPENDED_TO_MEMORY = (
    '    more = memory_cache(x, weights["cross_attention"], n_heads)\n'
    '    memory_keys = append(memory_keys, more["k"], more["v"])\n'
)

EDITS = {
    # --- append
    ("append", "in-front"): {
        "numpy": [('[cache["k"], k], axis=2', '[k, cache["k"]], axis=2'), ('[cache["v"], v], axis=2', '[v, cache["v"]], axis=2')],
        "torch": [("(cache[name], new)", "(new, cache[name])")],
        "loops": [("result[name][:, :, j] = cache", "result[name][:, :, n + j] = cache"), ("result[name][:, :, t + j] = new", "result[name][:, :, j] = new")],
    },
    ("append", "append-axis"): {
        "numpy": [("axis=2", "axis=0"), ("axis=2", "axis=0")],
        "numpy, no axis": [(", axis=2", ""), (", axis=2", "")],
        "numpy, last axis": [("axis=2", "axis=-1"), ("axis=2", "axis=-1")],
        "torch": [("dim=2) for", "dim=1) for")],
    },
    ("append", "only-new"): {
        "numpy": [(NUMPY_APPEND, 'return {"k": k, "v": v}')],
        "torch": [("torch.cat((cache[name], new), dim=2)", "new")],
    },
    ("append", "not-appended"): {
        "numpy": [(NUMPY_APPEND, 'np.concatenate([cache["k"], k], axis=2)\n    np.concatenate([cache["v"], v], axis=2)\n    return cache')],
        "torch": [(TORCH_APPEND, "return dict(cache)")],
    },
    ("append", "only-one-appended"): {
        "numpy": [('np.concatenate([cache["v"], v], axis=2)', 'cache["v"]')],
        "torch": [(TORCH_APPEND, 'return {**cache, "v": torch.cat((cache["v"], v), dim=2)}')],
    },
    ("append", "keys-as-values"): {
        "numpy": [('np.concatenate([cache["v"], v]', 'np.concatenate([cache["v"], k]')],
        "numpy, old": [('np.concatenate([cache["v"], v]', 'np.concatenate([cache["k"], v]')],
        "torch": [('("v", v)', '("v", k)')],
        "loops": [("cache[name][:, :, j]", 'cache["k"][:, :, j]')],
    },
    ("append", "keys-and-values-exchanged"): {
        "numpy": [('{"k": np', '{"v": np'), (', "v": np.conc', ', "k": np.conc')],
        "torch": [('(("k", k), ("v", v))', '(("k", v), ("v", k))')],
        "loops": [('{"k": k, "v": v}', '{"k": v, "v": k}')],
    },
    ("append", "append-returns-tuple"): {
        "numpy": [(NUMPY_APPEND, 'return np.concatenate([cache["k"], k], axis=2), np.concatenate([cache["v"], v], axis=2)')],
        "torch": [(TORCH_APPEND, 'return [torch.cat((cache["k"], k), dim=2), torch.cat((cache["v"], v), dim=2)]')],
        "loops": [("    return result\n", '    return result["k"], result["v"]\n')],
    },
    # --- reorder
    ("reorder", "reorder-axis"): {
        "numpy": [(NUMPY_REORDER, 'return {"k": cache["k"][:, rows], "v": cache["v"][:, rows]}')],
        "numpy, last": [(NUMPY_REORDER, "return {name: stored[..., rows] for name, stored in cache.items()}")],
        "torch": [("index_select(0, index)", "index_select(2, index)")],
        "loops": [('cache["k"][row]', 'cache["k"][:, row]'), ('cache["v"][row]', 'cache["v"][:, row]'), ('{"k": np.array(result["k"]), "v": np.array(result["v"])}', '{"k": np.stack(result["k"], 1), "v": np.stack(result["v"], 1)}')],
    },
    ("reorder", "inverse-order"): {
        "numpy": [(NUMPY_REORDER, 'order = np.argsort(rows, kind="stable")\n    return {"k": cache["k"][order], "v": cache["v"][order]}')],
        "numpy, assignment": [(NUMPY_REORDER, 'k, v = np.zeros_like(cache["k"]), np.zeros_like(cache["v"])\n    k[rows], v[rows] = cache["k"], cache["v"]\n    return {"k": k, "v": v}')],
        "torch": [(TORCH_REORDER, "result = {name: stored.clone() for name, stored in cache.items()}\n    for old, new in enumerate(rows):\n        for name in result:\n            result[name][new] = cache[name][old]\n    return result")],
        "loops": [('    result = {"k": [], "v": []}\n    for row in rows:\n        result["k"].append(cache["k"][row])\n        result["v"].append(cache["v"][row])\n', '    result = {"k": 0 * cache["k"], "v": 0 * cache["v"]}\n    for i, row in enumerate(rows):\n        result["k"][row], result["v"][row] = cache["k"][i], cache["v"][i]\n')],
    },
    ("reorder", "rows-once"): {
        "numpy": [(NUMPY_REORDER, 'chosen = [i in rows for i in range(len(cache["k"]))]\n    return {"k": cache["k"][chosen], "v": cache["v"][chosen]}')],
        "torch": [("torch.tensor(rows)", "torch.unique(torch.tensor(rows))")],
        "loops": [("for row in rows:", "for row in dict.fromkeys(rows):")],
    },
    ("reorder", "as-many-rows-as-before"): {
        "numpy": [(NUMPY_REORDER, 'k, v = cache["k"].copy(), cache["v"].copy()\n    for i in range(len(rows)):\n        k[i], v[i] = cache["k"][rows[i]], cache["v"][rows[i]]\n    return {"k": k, "v": v}')],
        "torch": [(TORCH_REORDER, "result = {name: torch.zeros_like(stored) for name, stored in cache.items()}\n    for name in result:\n        for i, row in enumerate(rows):\n            result[name][i] = cache[name][row]\n    return result")],
    },
    ("reorder", "read-after-write"): {
        "numpy": [(NUMPY_REORDER, 'k, v = cache["k"].copy(), cache["v"].copy()\n    for i in range(len(rows)):\n        k[i], v[i] = k[rows[i]], v[rows[i]]\n    return {"k": k, "v": v}')],
        "torch": [(TORCH_REORDER, "for name in cache:\n        for i, row in enumerate(rows):\n            cache[name][i] = cache[name][row]\n    return cache")],
    },
    ("reorder", "not-reordered"): {
        "numpy": [(NUMPY_REORDER, "return dict(cache)")],
        "torch": [("torch.tensor(rows)", "torch.arange(len(rows))")],
        "loops": [("for row in rows:", "for row in range(len(rows)):")],
    },
    ("reorder", "only-one-reordered"): {
        "numpy": [('"v": cache["v"][rows]', '"v": cache["v"]')],
        "torch": [(TORCH_REORDER, 'return {"k": cache["k"], "v": cache["v"][index]}')],
    },
    ("reorder", "reorder-returns-tuple"): {
        "numpy": [(NUMPY_REORDER, 'return cache["k"][rows], cache["v"][rows]')],
        "torch": [(TORCH_REORDER, 'return cache["k"][index], cache["v"][index]')],
    },
    # --- embed_at
    ("embed_at", "start-ignored"): {
        "numpy": [(POSITIONS, "positions = sinusoidal(n, d)")],
        "torch": [("position = start + ", "position = ")],
        "loops": [("position = start + i", "position = i")],
    },
    ("embed_at", "one-late"): {
        "numpy": [(POSITIONS, "positions = sinusoidal(start + n + 1, d)[start + 1 :]")],
        "torch": [("position = start + ", "position = 1 + start + ")],
        "loops": [("position = start + i", "position = start + i + 1")],
    },
    ("embed_at", "one-early"): {
        "torch": [("position = start + ", "position = start - 1 + ")],
        "loops": [("position = start + i", "position = start - 1 + i")],
    },
    ("embed_at", "same-position"): {
        "numpy": [(POSITIONS, "positions = sinusoidal(start + 1, d)[start]")],
        "torch": [(TORCH_POSITION, "position = torch.full((ids.size(1),), start)")],
        "loops": [("position = start + i", "position = start")],
    },
    ("embed_at", "ends-at-start"): {
        "torch": [(TORCH_POSITION, "position = start - ids.size(1) + torch.arange(ids.size(1))")],
        "loops": [("position = start + i", "position = start - (n - 1) + i")],
    },
    ("embed_at", "start-added-to-ids"): {
        "numpy": [(POSITIONS, "ids, positions = ids + start, sinusoidal(n, d)")],
        "torch": [("position = start + ", "position = "), ("* table[ids] +", "* table[ids + start] +")],
    },
    ("embed_at", "not-scaled"): {
        "numpy": [("table[ids] * np.sqrt(d)", "table[ids]")],
        "torch": [("d**0.5 * table[ids]", "table[ids]")],
        "loops": [("math.sqrt(d) * table", "table")],
    },
    ("embed_at", "no-positions"): {
        "numpy": [("np.sqrt(d) + positions", "np.sqrt(d)")],
        "torch": [("table[ids] + sinusoids", "table[ids]")],
        "loops": [(" + wave", "")],
    },
    ("embed_at", "positions-scaled"): {
        "numpy": [("table[ids] * np.sqrt(d) + positions", "(table[ids] + positions) * np.sqrt(d)")],
        "torch": [("d**0.5 * table[ids] + sinusoids", "d**0.5 * (table[ids] + sinusoids)")],
        "loops": [("table[ids[b, i], c] + wave", "(table[ids[b, i], c] + wave)")],
    },
    # --- cached_attention
    ("cached_attention", "mask-not-shifted"): {
        "numpy": [(NUMPY_MASK, "mask = np.tri(n, total, dtype=bool)")],
        "torch": [("query = key[cache[\"k\"].size(2) :, None]", "query = torch.arange(x.size(1))[:, None]")],
        "loops": [(LOOP_SEEN, "seen = slice(0, i + 1)")],
    },
    ("cached_attention", "no-causal-mask"): {
        "numpy": [(NUMPY_ATTENTION, NUMPY_ATTENTION.replace(", mask", ""))],
        "numpy, shifted by T + N": [(NUMPY_MASK, "mask = np.tri(n, total, total, dtype=bool)")],
        "torch": [("longer, mask, weights", "longer, None, weights")],
        "loops": [(LOOP_SEEN, "seen = slice(None)")],
    },
    ("cached_attention", "new-keys-only"): {
        "numpy": [(NUMPY_ATTENTION, "output, _ = attention(q, k, v, np.tri(n, dtype=bool))")],
        "numpy, by the mask": [(NUMPY_MASK, 'mask = np.tri(n, total, total - n, dtype=bool) & (np.arange(total) >= total - n)')],
        "numpy, cache forgotten": [('cache = append(cache, k, v)\n', 'cache = {"k": k, "v": v}\n')],
        "torch": [("longer, mask, weights", "new, mask[:, -x.size(1) :], weights")],
        "loops": [(LOOP_SEEN, "seen = slice(before, before + i + 1)")],
    },
    ("cached_attention", "cached-keys-only"): {
        "numpy": [('    cache = append(cache, k, v)\n', '    old, cache = cache, append(cache, k, v)\n'), (NUMPY_ATTENTION, 'output, _ = attention(q, old["k"], old["v"])')],
        "torch": [("longer, mask, weights", "cache, None, weights")],
        "loops": [(LOOP_SEEN, "seen = slice(0, before)")],
    },
    ("cached_attention", "future-leak"): {
        "numpy": [(NUMPY_MASK, "mask = np.tri(n, total, total - n + 1, dtype=bool)")],
        "torch": [("mask = key <= query", "mask = key <= query + 1")],
        "loops": [(LOOP_SEEN, "seen = slice(0, before + i + 2)")],
    },
    ("cached_attention", "not-itself"): {
        "numpy": [(NUMPY_MASK, "mask = np.tri(n, total, total - n - 1, dtype=bool)")],
        "torch": [("mask = key <= query", "mask = key < query")],
    },
    ("cached_attention", "causal-mask-inverted"): {
        "numpy": [(NUMPY_MASK, "mask = ~np.tri(n, total, total - n, dtype=bool)")],
        "torch": [("mask = key <= query", "mask = key > query")],
    },
    ("cached_attention", "causal-mask-added"): {
        "numpy": [(NUMPY_ATTENTION, 'scores = q @ cache["k"].swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + mask\n    powers = np.exp(scores)\n    output = powers / powers.sum(-1, keepdims=True) @ cache["v"]')],
        "torch": [("longer, mask, weights", "longer, mask.float(), weights"), ("scores.masked_fill(~mask, -torch.inf)", "scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask")],
    },
    ("cached_attention", "self-projected-again"): {
        "numpy": [(NUMPY_ATTENTION, 'again = {n: split_heads(merge_heads(cache[n]) @ weights[w], n_heads) for n, w in (("k", "key"), ("v", "value"))}\n    output, _ = attention(q, again["k"], again["v"], mask)')],
        "numpy, from keys": [(NUMPY_ATTENTION, 'again = {n: split_heads(merge_heads(cache["k"]) @ weights[w], n_heads) for n, w in (("k", "key"), ("v", "value"))}\n    output, _ = attention(q, again["k"], again["v"], mask)')],
        "torch": [("longer, mask, weights", "longer | {'k': split(longer['k'].transpose(1, 2).flatten(2) @ weights['key'], n_heads)}, mask, weights")],
    },
    ("cached_attention", "old-cache-returned"): {
        "numpy": [('    cache = append(cache, k, v)\n', '    old, cache = cache, append(cache, k, v)\n'), (SELF_RETURN, SELF_RETURN.replace("cache", "old"))],
        "torch": [("return output, longer", "return output, cache")],
        "loops": [("return output, new", "return output, cache")],
    },
    ("cached_attention", "only-new-returned"): {
        "numpy": [(SELF_RETURN, SELF_RETURN.replace("cache", '{"k": k, "v": v}'))],
        "torch": [("return output, longer", "return output, new")],
        "loops": [("return output, new", 'return output, {"k": k, "v": v}')],
    },
    ("cached_attention", "appended-twice"): {
        "numpy": [(SELF_RETURN, SELF_RETURN.replace("cache", "append(cache, k, v)"))],
        "torch": [("return output, longer", 'return output, append(longer, new["k"], new["v"])')],
    },
    ("cached_attention", "self-keys-values-exchanged"): {
        "numpy": [("cache = append(cache, k, v)", "cache = append(cache, v, k)")],
        "loops": [("new = append(cache, k, v)", "new = append(cache, v, k)")],
        "torch": [('append(cache, new["k"], new["v"])', 'append(cache, new["v"], new["k"])')],
    },
    ("cached_attention", "no-output-projection"): {
        "numpy": [(SELF_RETURN, "return merge_heads(output), cache")],
        "torch": [("longer, mask, weights[\"output\"])", "longer, mask, torch.eye(x.size(-1)))")],
        "loops": [('output = joined @ weights["output"]', "output = joined")],
    },
    ("cached_attention", "no-scale"): {
        "numpy": [(NUMPY_ATTENTION, 'output, _ = attention(q * np.sqrt(q.shape[-1]), cache["k"], cache["v"], mask)')],
        "torch": [("attend(split(x @ weights[\"query\"], n_heads), longer", "attend(split(x @ weights[\"query\"], n_heads) * (x.size(-1) / n_heads) ** 0.5, longer")],
        "loops": [('new["k"][b, h, seen],', 'math.sqrt(e) * new["k"][b, h, seen],')],
    },
    ("cached_attention", "residual-inside"): {
        "numpy": [(SELF_RETURN, SELF_RETURN.replace("return", "return x +"))],
        "torch": [("return output, longer", "return x + output, longer")],
        "loops": [("return output, new", "return output + x, new")],
    },
    ("cached_attention", "returned-in-other-order"): {
        "numpy": [(SELF_RETURN, 'return cache, merge_heads(output) @ weights["output"]')],
        "torch": [("return output, longer", "return longer, output")],
    },
    ("cached_attention", "only-output"): {
        "numpy": [(SELF_RETURN, 'return merge_heads(output) @ weights["output"]')],
        "torch": [("return output, longer", "return output")],
        "loops": [("return output, new", "return output")],
    },
    # --- memory_cache
    ("memory_cache", "k-v-matrices-exchanged"): {
        "numpy": [(NUMPY_MEMORY, NUMPY_MEMORY.replace('"k"', '"x"').replace('"v"', '"k"').replace('"x"', '"v"'))],
        "loops": [(LOOP_PAIRS, '(("k", "value"), ("v", "key"))')],
    },
    ("memory_cache", "one-matrix-for-both"): {
        "numpy": [('memory @ weights["value"]', 'memory @ weights["key"]')],
        "loops": [(LOOP_PAIRS, '(("k", "value"), ("v", "value"))')],
    },
    ("memory_cache", "matrix-of-something-else"): {
        "numpy": [('memory @ weights["key"]', 'memory @ weights["query"]')],
        "loops": [(LOOP_PAIRS, '(("k", "query"), ("v", "key"))')],
        "loops, output": [(LOOP_PAIRS, '(("k", "key"), ("v", "output"))')],
    },
    ("memory_cache", "not-projected"): {
        "numpy": [('memory @ weights["key"]', "memory"), ('memory @ weights["value"]', "memory")],
        "loops": [("everything = memory @ weights[name]", "everything = memory")],
        "numpy, values": [('memory @ weights["value"]', "memory")],
    },
    ("memory_cache", "matrices-transposed"): {
        "numpy": [('memory @ weights["key"]', 'memory @ weights["key"].T'), ('memory @ weights["value"]', 'memory @ weights["value"].T')],
        "loops": [("everything = memory @ weights[name]", "everything = memory @ weights[name].T")],
    },
    ("memory_cache", "heads-not-split"): {
        "numpy": [(NUMPY_MEMORY, 'return {"k": memory @ weights["key"], "v": memory @ weights["value"]}')],
        "loops": [("cache[letter] = array", "cache[letter] = everything")],
    },
    ("memory_cache", "heads-not-moved"): {
        "numpy": [(NUMPY_MEMORY, 'shape = (*memory.shape[:2], n_heads, -1)\n    return {"k": (memory @ weights["key"]).reshape(shape), "v": (memory @ weights["value"]).reshape(shape)}')],
        "loops": [("cache[letter] = array", "cache[letter] = np.stack([array[:, h] for h in range(n_heads)], axis=2)")],
    },
    ("memory_cache", "split-by-view"): {
        "numpy": [(NUMPY_MEMORY, 'shape = (len(memory), n_heads, memory.shape[1], -1)\n    return {"k": (memory @ weights["key"]).reshape(shape), "v": (memory @ weights["value"]).reshape(shape)}')],
        "loops": [("cache[letter] = array", "cache[letter] = everything.reshape(array.shape)")],
    },
    ("memory_cache", "memory-cache-returns-tuple"): {
        "numpy": [(NUMPY_MEMORY, 'return split_heads(memory @ weights["key"], n_heads), split_heads(memory @ weights["value"], n_heads)')],
        "loops": [("    return cache\n", '    return cache["k"], cache["v"]\n')],
    },
    # --- attend_memory
    ("attend_memory", "cross-mask-ignored"): {
        "numpy": [(f'{NUMPY_ATTENTION}\n    # mistakes: cross-no-out', 'output, _ = attention(q, cache["k"], cache["v"])\n    # mistakes: cross-no-out')],
        "torch": [(TORCH_CROSS, TORCH_CROSS.replace("mask", "None"))],
        "loops": [("        seen = seen & mask", "        pass")],
    },
    ("attend_memory", "cross-mask-inverted"): {
        "torch": [(TORCH_CROSS, TORCH_CROSS.replace("mask", "None if mask is None else ~mask"))],
        "loops": [("seen & mask", "seen & ~mask")],
    },
    ("attend_memory", "cross-mask-added"): {
        "numpy": [(f'{NUMPY_ATTENTION}\n    # mistakes: cross-no-out', 'scores = q @ cache["k"].swapaxes(-1, -2) / np.sqrt(q.shape[-1])\n    powers = np.exp(scores if mask is None else scores + mask)\n    output = powers / powers.sum(-1, keepdims=True) @ cache["v"]\n    # mistakes: cross-no-out')],
        "torch": [(TORCH_CROSS, TORCH_CROSS.replace("mask", "None if mask is None else mask.float()")), ("scores.masked_fill(~mask, -torch.inf)", "scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask")],
    },
    ("attend_memory", "memory-causal"): {
        "numpy": [(f'{NUMPY_ATTENTION}\n    # mistakes: cross-no-out', 'causal = np.tri(x.shape[1], cache["k"].shape[2], dtype=bool)\n    output, _ = attention(q, cache["k"], cache["v"], causal if mask is None else causal & mask)\n    # mistakes: cross-no-out')],
        "torch": [(TORCH_CROSS, 'n, s = x.size(1), cache["k"].size(2)\n    mask = torch.ones(n, s, dtype=torch.bool).tril(s - n) & (True if mask is None else mask)\n    ' + TORCH_CROSS)],
        "loops": [(f"{LOOP_KEYS}", f"seen[b, h, i, i + 1 :] = False\n                {LOOP_KEYS}")],
    },
    ("attend_memory", "memory-grows"): {
        "numpy": [('    # The cache has keys', '    return cached_attention(x, cache, weights, n_heads)[0]\n    # The cache has keys')],
        "torch": [(TORCH_CROSS, 'own = memory_cache(x, weights, n_heads)\n    return attend(split(x @ weights["query"], n_heads), append(cache, own["k"], own["v"]), None, weights["output"])')],
    },
    ("attend_memory", "cross-projected-again"): {
        "numpy": [(f'{NUMPY_ATTENTION}\n    # mistakes: cross-no-out', 'k = split_heads(merge_heads(cache["k"]) @ weights["key"], n_heads)\n    output, _ = attention(q, k, cache["v"], mask)\n    # mistakes: cross-no-out')],
        "torch": [(TORCH_CROSS, 'cache = {n: split(cache[n].transpose(1, 2).flatten(2) @ weights[w], n_heads) for n, w in (("k", "key"), ("v", "value"))}\n    ' + TORCH_CROSS)],
    },
    ("attend_memory", "cross-keys-values-exchanged"): {
        "numpy": [(f'{NUMPY_ATTENTION}\n    # mistakes: cross-no-out', 'output, _ = attention(q, cache["v"], cache["k"], mask)\n    # mistakes: cross-no-out')],
        "loops": [(LOOP_KEYS, LOOP_KEYS.replace("keys, values", "values, keys"))],
    },
    ("attend_memory", "cross-keys-as-values"): {
        "numpy": [(f'{NUMPY_ATTENTION}\n    # mistakes: cross-no-out', 'output, _ = attention(q, cache["k"], cache["k"], mask)\n    # mistakes: cross-no-out')],
        "loops": [(LOOP_KEYS, f"{LOOP_KEYS}\n                values = keys")],
    },
    ("attend_memory", "cross-no-query-projection"): {
        "torch": [(TORCH_CROSS, TORCH_CROSS.replace('x @ weights["query"]', "x"))],
        "numpy": [('    q = split_heads(x @ weights["query"], n_heads)\n    # The cache', "    q = split_heads(x, n_heads)\n    # The cache")],
    },
    ("attend_memory", "cross-no-output-projection"): {
        "numpy": [(CROSS_RETURN, "return merge_heads(output)\n")],
        "torch": [(TORCH_CROSS, TORCH_CROSS.replace('weights["output"]', "torch.eye(x.size(-1))"))],
        "loops": [('return joined @ weights["output"]', "return joined")],
    },
    ("attend_memory", "cross-no-scale"): {
        "numpy": [(f'{NUMPY_ATTENTION}\n    # mistakes: cross-no-out', 'output, _ = attention(q * q.shape[-1] ** 0.5, cache["k"], cache["v"], mask)\n    # mistakes: cross-no-out')],
        "loops": [(LOOP_KEYS, f"{LOOP_KEYS}\n                query = query * math.sqrt(e)")],
    },
    ("attend_memory", "cross-residual-inside"): {
        "numpy": [(CROSS_RETURN, "return x + " + CROSS_RETURN.removeprefix("return "))],
        "torch": [(TORCH_CROSS, TORCH_CROSS.replace("return", "return x +"))],
    },
    ("attend_memory", "cross-two-returned"): {
        "numpy": [(CROSS_RETURN, CROSS_RETURN.replace("\n", ", cache\n"))],
        "loops": [('return joined @ weights["output"]', 'return joined @ weights["output"], cache')],
    },
    # --- decoder_block_step
    ("decoder_block_step", "old-cache-returned"): {
        "numpy": [(NUMPY_SELF_CALL, NUMPY_SELF_CALL.replace("self_output, cache", "self_output, new"))],
        "loops": [("return x, new", "return x, cache")],
    },
    ("decoder_block_step", "memory-keys-returned"): {
        "numpy": [("    return x, cache\n", "    return x, memory_keys\n")],
        "torch": [("    return x, cache\n", "    return x, memory_keys\n")],
    },
    ("decoder_block_step", "cross-to-own-cache"): {
        "torch": [(TORCH_CROSS_CALL, TORCH_CROSS_CALL.replace("memory_keys", "cache"))],
        "loops": [(LOOP_CROSS_CALL, LOOP_CROSS_CALL.replace("memory_keys", "cache"))],
    },
    ("decoder_block_step", "caches-exchanged"): {
        "numpy": [("def decoder_block_step(x, cache, memory_keys,", "def decoder_block_step(x, memory_keys, cache,")],
        "torch": [(TORCH_SELF_CALL, TORCH_SELF_CALL.replace("change, cache = cached_attention(x, cache", "change, new = cached_attention(x, memory_keys")), (TORCH_CROSS_CALL, TORCH_CROSS_CALL.replace("memory_keys", "cache")), ("return x, cache", "return x, new")],
    },
    ("decoder_block_step", "memory-grows"): {
        "numpy": [(NUMPY_CROSS_CALL, 'cross_output, _ = cached_attention(x, memory_keys, weights["cross_attention"], n_heads)')],
        "loops": [(LOOP_CROSS_CALL, 'change, _ = cached_attention(x, memory_keys, weights["cross_attention"], n_heads)')],
        "torch": [(TORCH_CROSS_CALL, APPENDED_TO_MEMORY.lstrip() + "    " + TORCH_CROSS_CALL.replace("memory_mask", "None"))],
    },
    ("decoder_block_step", "no-causal-mask"): {
        "torch": [(TORCH_SELF_CALL, 'w = weights["self_attention"]\n    new = memory_cache(x, w, n_heads)\n    cache = append(cache, new["k"], new["v"])\n    change = attend_memory(x, cache, w, n_heads)')],
        "numpy": [(NUMPY_SELF_CALL, 'w = weights["self_attention"]\n    new = memory_cache(x, w, n_heads)\n    cache = append(cache, new["k"], new["v"])\n    self_output = attend_memory(x, cache, w, n_heads)')],
    },
    ("decoder_block_step", "new-keys-only"): {
        "numpy": [(NUMPY_SELF_CALL, NUMPY_SELF_CALL.replace("self_output,", "_,") + '\n    empty = {name: array[:, :, :0] for name, array in cache.items()}\n    self_output, _ = cached_attention(x, empty, weights["self_attention"], n_heads)')],
        "torch": [(TORCH_SELF_CALL, 'empty = {name: array[:, :, :0] for name, array in cache.items()}\n    change, cache = cached_attention(x, empty, weights["self_attention"], n_heads)')],
    },
    ("decoder_block_step", "memory-mask-ignored"): {
        "numpy": [("n_heads, memory_mask)", "n_heads)")],
        "torch": [("n_heads, memory_mask)", "n_heads)")],
    },
    ("decoder_block_step", "cross-first"): {
        "torch": [
            (TORCH_HALVES, ""),
            ('x = add_and_norm(x, change, weights["norm_2"])', 'x = add_and_norm(x, change, weights["norm_1"])\n    ' + TORCH_SELF_CALL + '\n    x = add_and_norm(x, change, weights["norm_2"])'),
        ],
        "loops": [
            (LOOP_SELF_CALL, LOOP_CROSS_CALL + "  #"),
            (f"    {LOOP_CROSS_CALL}\n", f"    {LOOP_SELF_CALL}\n"),
            ("**first", "**x"),
            ("**second", "**first"),
            ("**x", "**second"),
        ],
    },
    ("decoder_block_step", "same-attention"): {
        "numpy": [('memory_keys, weights["cross_attention"]', 'memory_keys, weights["self_attention"]')],
        "loops": [('cached_attention(x, cache, weights["self_attention"]', 'cached_attention(x, cache, weights["cross_attention"]')],
    },
    ("decoder_block_step", "attentions-exchanged"): {
        "numpy": [('memory_keys, weights["cross_attention"]', 'memory_keys, weights["self_attention"]'), ('cache, weights["self_attention"]', 'cache, weights["cross_attention"]')],
        "torch": [('memory_keys, weights["cross_attention"]', 'memory_keys, weights["self_attention"]'), ('cache, weights["self_attention"]', 'cache, weights["cross_attention"]')],
    },
    ("decoder_block_step", "no-residual-self"): {
        "numpy": [("x + self_output", "self_output")],
        "torch": [('x = add_and_norm(x, change, weights["norm_1"])', 'x = add_and_norm(0, change, weights["norm_1"])')],
    },
    ("decoder_block_step", "no-residual-cross"): {
        "numpy": [("x + cross_output", "cross_output")],
        "torch": [('x = add_and_norm(x, change, weights["norm_2"])', 'x = add_and_norm(0, change, weights["norm_2"])')],
    },
    ("decoder_block_step", "no-residual-feed-forward"): {
        "numpy": [("x + feed_forward_output", "feed_forward_output")],
        "loops": [("layer_norm(np.add(x, change), **third", "layer_norm(change, **third")],
    },
    ("decoder_block_step", "no-residual"): {
        "numpy": [("x + self_output", "self_output"), ("x + cross_output", "cross_output"), ("x + feed_forward_output", "feed_forward_output")],
        "torch": [("layer_norm(x + change", "layer_norm(change")],
    },
    ("decoder_block_step", "pre-norm"): {
        "numpy": [
            (NUMPY_SELF_CALL, 'h = layer_norm(x, norm_1["gain"], norm_1["bias"], EPS)\n    ' + NUMPY_SELF_CALL.replace("(x,", "(h,")),
            ('layer_norm(x + self_output, norm_1["gain"], norm_1["bias"], EPS)', "x + self_output"),
            (NUMPY_CROSS_CALL, 'h = layer_norm(x, norm_2["gain"], norm_2["bias"], EPS)\n    ' + NUMPY_CROSS_CALL.replace("(x,", "(h,")),
            ('layer_norm(x + cross_output, norm_2["gain"], norm_2["bias"], EPS)', "x + cross_output"),
            ('feed_forward(x, weights["feed_forward"])', 'feed_forward(layer_norm(x, norm_3["gain"], norm_3["bias"], EPS), weights["feed_forward"])'),
            ('layer_norm(x + feed_forward_output, norm_3["gain"], norm_3["bias"], EPS)', "x + feed_forward_output"),
        ],
        "loops": [
            (LOOP_SELF_CALL, "h = layer_norm(x, **first, eps=1e-5)\n    " + LOOP_SELF_CALL.replace("(x,", "(h,")),
            ("layer_norm(np.add(x, change), **first, eps=1e-5)", "x + change"),
            (LOOP_CROSS_CALL, "h = layer_norm(x, **second, eps=1e-5)\n    " + LOOP_CROSS_CALL.replace("(x,", "(h,")),
            ("layer_norm(np.add(x, change), **second, eps=1e-5)", "x + change"),
            ('feed_forward(x, weights["feed_forward"])', 'feed_forward(layer_norm(x, **third, eps=1e-5), weights["feed_forward"])'),
            ("layer_norm(np.add(x, change), **third, eps=1e-5)", "x + change"),
        ],
    },
    ("decoder_block_step", "norm-inside"): {
        "numpy": [("layer_norm(x + self_output", "x + layer_norm(self_output"), ("layer_norm(x + cross_output", "x + layer_norm(cross_output"), ("layer_norm(x + feed_forward_output", "x + layer_norm(feed_forward_output")],
        "torch": [("return layer_norm(x + change", "return x + layer_norm(change")],
    },
    ("decoder_block_step", "one-norm"): {
        "numpy": [('layer_norm(x + cross_output, norm_2["gain"], norm_2["bias"], EPS)', "x + cross_output")],
        "torch": [('x = add_and_norm(x, feed_forward(x, weights["feed_forward"]), weights["norm_3"])', 'x = x + feed_forward(x, weights["feed_forward"])')],
    },
    ("decoder_block_step", "same-norm"): {
        "numpy": [('weights["norm_1"], weights["norm_2"], weights["norm_3"]', '*3 * [weights["norm_1"]],')],
        "torch": [('weights["norm_1"]', 'weights["norm_3"]'), ('weights["norm_2"]', 'weights["norm_3"]')],
    },
    ("decoder_block_step", "returned-in-other-order"): {
        "numpy": [("    return x, cache\n", "    return cache, x\n")],
        "loops": [("    return x, new\n", "    return new, x\n")],
    },
    ("decoder_block_step", "only-output"): {
        "torch": [("    return x, cache\n", "    return x\n")],
        "loops": [("    return x, new\n", "    return x\n")],
    },
}  # fmt: skip

# Mistakes that the grader does not know. It must describe them without a name. (part, style, edits)
UNLISTED = [
    ("append", "numpy", [('[cache["k"], k]', '[cache["k"], 2 * k]')]),
    ("append", "torch", [("dim=2) for", "dim=2).flip(2) for")]),
    ("append", "loops", [(LOOP_OLD, LOOP_OLD.replace("= cache[name][:, :, j]", "= cache[name][:, :, 0]"))]),
    ("reorder", "numpy", [('"v": cache["v"][rows]', '"v": cache["v"][rows[::-1]]')]),
    ("reorder", "torch", [("torch.tensor(rows)", "torch.tensor(rows).roll(1)")]),
    ("embed_at", "torch", [("10000.0 **", "1000.0 **")]),
    ("embed_at", "numpy", [(POSITIONS, "positions = sinusoidal(2 * start + n, d)[2 * start :]")]),
    ("embed_at", "loops", [("math.sqrt(d) * table", "d * table")]),
    ("cached_attention", "numpy", [(NUMPY_MASK, "mask = np.tri(n, total, total - n, dtype=bool) & (np.arange(total) != 1)")]),
    ("cached_attention", "torch", [("mask = key <= query", "mask = (key <= query) & (key > query - 2)")]),
    ("cached_attention", "loops", [('weights["query"][:, part]', 'weights["query"].T[:, part]')]),
    ("cached_attention", "numpy", [(SELF_RETURN, 'return np.tanh(merge_heads(output) @ weights["output"]), cache')]),
    ("memory_cache", "numpy", [('memory @ weights["key"]', '-memory @ weights["key"]')]),
    ("memory_cache", "loops", [("everything = memory @ weights[name]", "everything = memory @ weights[name] @ weights[name]")]),
    ("attend_memory", "numpy", [(CROSS_RETURN, "return np.tanh(" + CROSS_RETURN.removeprefix("return ").replace("\n", ")\n"))]),
    ("attend_memory", "torch", [(TORCH_CROSS, TORCH_CROSS.replace('x @ weights["query"]', 'x @ weights["key"]'))]),
    ("decoder_block_step", "numpy", [("EPS = 1e-5", "EPS = 1.0")]),
    ("decoder_block_step", "torch", [("layer_norm(x + change", "layer_norm(x - change")]),
    ("decoder_block_step", "loops", [("layer_norm(np.add(x, change), **third", "layer_norm(np.add(x, 2 * change), **third")]),
    ("decoder_block_step", "numpy", [("    return x, cache\n", "    return x, reorder(cache, list(range(len(x)))[::-1])\n")]),
]  # fmt: skip
