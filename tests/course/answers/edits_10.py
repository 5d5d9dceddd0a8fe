"""Edits of right answers to exercise 10 that produce each known mistake, in at least two styles.

(part, mistake) -> {style: [(old text, new text), ...]}
"""

COUNT_LOOP = """        for pair in pairwise(symbols):
"""
TORCH_COUNT = "counts[pair] = counts.get(pair, 0) + count"
LOOP_COUNT = """        for i in range(len(symbols) - 1):
            pair = symbols[i], symbols[i + 1]
"""
MERGE_START = "    merged, i = [], 0\n"
TORCH_MERGE = "    left, right = pair\n"
LOOP_MERGE = "    merged, i = list(symbols), 0\n"
BEST = "min(counts, key=lambda pair: (-counts[pair], pair))"
TORCH_BEST = "min(pair for pair, count in counts.items() if count == most)"
LOOP_BEST = "sorted(count_pairs(split_words).items()):\n            if count > most:"
LOOP_LETTERS = 'symbols = list(word)\n        symbols.append("</w>")'
LOOP_TOKENS = 'tokens = list(word)\n    tokens.append("</w>")'
APPLY_LOOP = """    for pair in merges:
        tokens = merge_pair(tokens, pair)
    return tokens
"""
LOOP_APPLY = """    for left, right in merges:
        i = 0
"""
TORCH_APPLY_START = '    tokens = [*word, "</w>"]\n    while found'
TORCH_LOOK_UP = "vocabulary.get(token, unknown) for token in tokens"
LOOP_LOOK_UP = """            if token in vocabulary:
                ids.append(vocabulary[token])
            else:
                ids.append(unknown)
"""
EXTEND = "ids.extend(vocabulary.get(token, unknown) for token in tokens)"
TORCH_TOKENS = "[token for word in text.split() for token in apply_merges(word, merges)]"
TORCH_TEXT = 'token.removesuffix("</w>") + " " if token.endswith("</w>") else token'
PADDED = "return pad_sequence(rows, batch_first=True, padding_value=pad)"
ROW = "row[: len(text)] = text"
LOOP_ROW = "list(text) + [pad] * (longest - len(text))"
SORTED = "sorted(range(len(lengths)), key=lambda i: lengths[i])"
TORCH_SORTED = "sorted(range(len(lengths)), key=lengths.__getitem__)"
FITS = "batch and (len(batch) + 1) * lengths[i] > budget"
TORCH_FITS = "(end + 1 - start) * lengths[order[end]] <= budget"
LOOP_FITS = "(len(batches[-1]) + 1) * lengths[i] <= budget"
TORCH_LAST = "    return batches\n"
LAST = "return [*batches, batch] if batch else batches"
LOOP_LAST = "            batches.append([i])\n    return batches"
LONGEST_TOKENS = """    known = {left + right for left, right in merges}
    symbols, tokens = [*word, "</w>"], []
    while symbols:
        n = len(symbols)
        while n > 1 and "".join(symbols[:n]) not in known:
            n -= 1
        tokens.append("".join(symbols[:n]))
        symbols = symbols[n:]
    return tokens
"""
LEFTMOST = """    pairs, tokens, i = set(merges), [*word, "</w>"], 0
    while i < len(tokens) - 1:
        if (tokens[i], tokens[i + 1]) in pairs:
            tokens[i : i + 2] = [tokens[i] + tokens[i + 1]]
            i = 0
        else:
            i += 1
    return tokens
"""
USED_TWICE = """    for i, symbol in enumerate(symbols):
        if symbols[i : i + 2] == list(pair):
            merged.append("".join(pair))
        elif i == 0 or symbols[i - 1 : i + 1] != list(pair):
            merged.append(symbol)
    return merged
"""
REPLACED = 'return " ".join(symbols).replace(" ".join(pair), "".join(pair)).split(" ")'
APPLY_REPLACED = """    text = " ".join([*word, "</w>"])
    for left, right in merges:
        text = text.replace(left + " " + right, left + right)
    return text.split()
"""
CUT = "    rows = [row[:{}] for row in rows]\n    return rows\n"

EDITS = {
    ("count_pairs", "counts-ignored"): {
        "numpy": [("counts[pair] += count", "counts[pair] += 1")],
        "torch": [(TORCH_COUNT, "counts[pair] = counts.get(pair, 0) + 1")],
    },
    ("count_pairs", "counts-overwritten"): {
        "numpy": [("counts[pair] += count", "counts[pair] = count")],
        "loops": [("counts[pair] += count", "counts[pair] = count")],
    },
    ("count_pairs", "pairs-across-words"): {
        "numpy": [
            ("    for symbols, count in split_words:\n", "    all_symbols = [s for symbols, _ in split_words for s in symbols]\n    for symbols, count in [(all_symbols, 1)]:\n"),
        ],
        "loops": [
            ("    for symbols, count in split_words:\n", "    last = None\n    for symbols, count in split_words:\n        if last: symbols = [last] + symbols\n        last = symbols[-1]\n"),
        ],
        "torch": [
            ("    for symbols, count in split_words:\n", "    for symbols, count in [(sum((s * n for s, n in split_words), []), 1)]:\n"),
        ],
    },
    ("count_pairs", "every-second-pair"): {
        "numpy": [("pairwise(symbols)", "zip(symbols[::2], symbols[1::2])")],
        "loops": [("range(len(symbols) - 1)", "range(0, len(symbols) - 1, 2)")],
    },
    ("count_pairs", "once-per-word"): {
        "numpy": [("in pairwise(symbols):", "in set(zip(symbols, symbols[1:])):")],
        "torch": [("in pairwise(symbols):", "in {*pairwise(symbols)}:")],
    },
    ("count_pairs", "overlaps-once"): {
        "numpy": [
            (COUNT_LOOP, '        text = " " + "  ".join(symbols) + " "\n        for pair in set(zip(symbols, symbols[1:])):\n'),
            ("counts[pair] += count", 'counts[pair] += count * text.count(" " + "  ".join(pair) + " ")'),
        ],
        "loops": [
            (LOOP_COUNT, "        last = None\n" + LOOP_COUNT + "            if pair == last:\n                last = None\n                continue\n            last = pair\n"),
        ],
    },
    ("merge_pair", "first-only"): {
        "numpy": [("            i += 2\n", "            return merged + symbols[i + 2 :]\n")],
        "loops": [("[merged[i] + merged[i + 1]]\n", "[merged[i] + merged[i + 1]]\n            break\n")],
    },
    ("merge_pair", "right-symbol-kept"): {
        "numpy": [("            i += 2\n", "            i += 1\n")],
        "torch": [("            is_used = False\n            continue\n", "            is_used = False\n")],
    },
    ("merge_pair", "last-symbol-lost"): {
        "numpy": [("while i < len(symbols):", "while i < len(symbols) - 1:")],
        "torch": [("        merged.append(left", "        if is_used or i + 1 < len(symbols):\n            merged.append(left")],
    },
    ("merge_pair", "text-replaced"): {
        "numpy": [(MERGE_START, f"    {REPLACED}\n{MERGE_START}")],
        "loops": [(LOOP_MERGE, f"    {REPLACED}\n{LOOP_MERGE}")],
    },
    ("merge_pair", "symbol-used-twice"): {
        "numpy": [(MERGE_START, MERGE_START + USED_TWICE)],
        "torch": [("        if is_used:\n            is_used = False\n            continue\n", ""), ("        merged.append(left + right if is_used else symbol)", "        if is_used or i == 0 or (symbols[i - 1], symbol) != (left, right):\n            merged.append(left + right if is_used else symbol)")],
    },
    ("merge_pair", "merged-from-the-right"): {
        "loops": [("merged, i = list(symbols), 0", "merged, i = list(symbols), len(symbols) - 2"), ("while i < len(merged) - 1:\n        if merged[i]", "while i >= 0:\n        if i + 1 < len(merged) and merged[i]"), ("        i += 1\n    return merged", "        i -= 1\n    return merged")],
        "numpy": [
            (MERGE_START, "    symbols, merged = list(symbols), []\n    while symbols:\n        last = symbols.pop()\n        if (symbols[-1:], last) == ([pair[0]], pair[1]):\n"
             "            last = symbols.pop() + last\n        merged.insert(0, last)\n    return merged\n" + MERGE_START),
        ],
    },
    ("learn_merges", "counts-ignored"): {
        "numpy": [("counts = count_pairs(split_words)", "counts = count_pairs([(symbols, 1) for symbols, _ in split_words])")],
        "loops": [("split_words.append([symbols, words[word]])", "split_words.append([symbols, 1])")],
    },
    ("learn_merges", "no-end-mark"): {
        "numpy": [("[([*word, END], count)", "[(list(word), count)")],
        "torch": [('{word: [*word, "</w>"]', "{word: [*word]")],
    },
    ("learn_merges", "end-mark-split"): {
        "numpy": [("[([*word, END], count)", "[(list(word + END), count)")],
        "loops": [(LOOP_LETTERS, 'symbols = list(word + "</w>")')],
    },
    ("learn_merges", "end-mark-glued"): {
        "numpy": [("[([*word, END], count)", "[([*word[:-1], word[-1] + END], count)")],
        "loops": [(LOOP_LETTERS, 'symbols = list(word)\n        symbols[-1] += "</w>"')],
    },
    ("learn_merges", "words-not-updated"): {
        "numpy": [("        split_words = [(merge_pair(", "        _ = [(merge_pair(")],
        "torch": [("        symbols = {word: merge_pair(", "        _ = {word: merge_pair(")],
    },
    ("learn_merges", "counted-once"): {
        "numpy": [("    merges = []\n", "    counts = count_pairs(split_words)\n    return sorted(counts, key=lambda pair: (-counts[pair], pair))[:n_merges]\n    merges = []\n")],
        "torch": [
            ("    while len(merges) < n_merges:\n        counts = count_pairs([(symbols[word], count) for word, count in words.items()])", "    counts = count_pairs([(symbols[word], count) for word, count in words.items()])\n    while len(merges) < n_merges:"),
            ("        merges.append(best)\n", "        merges.append(best)\n        del counts[best]\n"),
        ],
    },
    ("learn_merges", "ties-broken"): {
        "numpy": [(BEST, "max(counts, key=counts.get)")],
        "torch": [(TORCH_BEST, "[pair for pair, count in counts.items() if count == most][-1]")],
        "loops": [("sorted(count_pairs(split_words).items())", "count_pairs(split_words).items()")],
    },
    ("learn_merges", "ties-largest"): {
        "numpy": [(BEST, "max(counts, key=lambda pair: (counts[pair], pair))")],
        "torch": [(TORCH_BEST, TORCH_BEST.replace("min", "max"))],
        "loops": [("count > most:", "count >= most:")],
    },
    ("learn_merges", "rarest-pair"): {
        "numpy": [("(-counts[pair], pair)", "(counts[pair], pair)")],
        "torch": [("max(counts.values())", "min(counts.values())")],
    },
    ("learn_merges", "one-merge-too-few"): {
        "numpy": [("range(n_merges)", "range(1, n_merges)")],
        "torch": [("len(merges) < n_merges", "len(merges) + 1 < n_merges")],
    },
    ("learn_merges", "one-merge-too-many"): {
        "numpy": [("range(n_merges)", "range(n_merges + 1)")],
        "torch": [("len(merges) < n_merges", "len(merges) <= n_merges")],
    },
    ("learn_merges", "stops-at-one"): {
        "numpy": [("if not counts:", "if max(counts.values(), default=0) < 2:")],
        "loops": [("best, most = None, 0", "best, most = None, 1")],
    },
    ("learn_merges", "merged-strings"): {
        "numpy": [("merges.append(best)", "merges.append(best[0] + best[1])")],
        "loops": [("merges.append(list(best))", 'merges.append("".join(best))')],
    },
    ("apply_merges", "no-end-mark"): {
        "numpy": [("tokens = [*word, END]", "tokens = list(word)")],
        "loops": [(LOOP_TOKENS, "tokens = list(word)")],
    },
    ("apply_merges", "end-mark-split"): {
        "numpy": [("tokens = [*word, END]", "tokens = list(word + END)")],
        "torch": [(TORCH_APPLY_START, '    tokens = [*word, *"</w>"]\n    while found')],
    },
    ("apply_merges", "end-mark-glued"): {
        "torch": [(TORCH_APPLY_START, '    tokens = [*word[:-1], word[-1] + "</w>"]\n    while found')],
        "loops": [(LOOP_TOKENS, 'tokens = list(word)\n    tokens[-1] += "</w>"')],
    },
    ("apply_merges", "end-mark-dropped"): {
        "numpy": [("tokens = merge_pair(tokens, pair)\n    return tokens", 'tokens = merge_pair(tokens, pair)\n    return [t.replace(END, "") for t in tokens if t != END]')],
        "loops": [("            i += 1\n    return tokens\n", "            i += 1\n    tokens[-1] = tokens[-1][:-4]\n    return tokens if tokens[-1] else tokens[:-1]\n")],
    },
    ("apply_merges", "merges-reversed"): {
        "numpy": [("for pair in merges:", "for pair in merges[::-1]:")],
        "loops": [("for left, right in merges:", "for left, right in reversed(merges):")],
    },
    ("apply_merges", "leftmost-first"): {
        "numpy": [("    tokens = [*word, END]\n", LEFTMOST)],
        "torch": [("merge_pair(tokens, min(found, key=ranks.__getitem__))", "(lambda i: tokens[:i] + [tokens[i] + tokens[i + 1]] + tokens[i + 2 :])([p in ranks for p in pairwise(tokens)].index(True))")],
    },
    ("apply_merges", "longest-first"): {
        "numpy": [("    tokens = [*word, END]\n", LONGEST_TOKENS)],
        "loops": [("    tokens = list(word)\n", LONGEST_TOKENS)],
    },
    ("apply_merges", "first-merge-only"): {
        "numpy": [("        tokens = merge_pair(tokens, pair)\n", "        if (new := merge_pair(tokens, pair)) != tokens:\n            return new\n")],
        "torch": [("while found := [pair for pair in pairwise(tokens) if pair in ranks]:", "if found := [pair for pair in pairwise(tokens) if pair in ranks]:")],
    },
    ("apply_merges", "first-only"): {
        "loops": [("                del tokens[i + 1]\n", "                del tokens[i + 1]\n                break\n")],
        "numpy": [("        tokens = merge_pair(tokens, pair)\n", "        at = [i for i in range(len(tokens) - 1) if (tokens[i], tokens[i + 1]) == pair]\n        if at:\n            tokens[at[0] : at[0] + 2] = [pair[0] + pair[1]]\n")],
    },
    ("apply_merges", "text-replaced"): {
        "numpy": [("    tokens = [*word, END]\n", APPLY_REPLACED)],
        "loops": [("    tokens = list(word)\n", APPLY_REPLACED)],
    },
    ("encode", "text-not-split"): {
        "numpy": [("for word in text.split():", "for word in [text]:")],
        "torch": [("for word in text.split()", 'for word in ["".join(text.split())]')],
    },
    ("encode", "split-at-one-space"): {
        "numpy": [("text.split()", 'text.split(" ")')],
        "loops": [("text.split()", 'text.split(" ")')],
    },
    ("encode", "one-word"): {
        "numpy": [(f"        {EXTEND}\n", f"        {EXTEND}\n        return ids\n")],
        "loops": [("    for word in text.split():\n", "    for word in text.split():\n        ids = []\n")],
    },
    ("encode", "merges-ignored"): {
        "numpy": [("        tokens = apply_merges(word, merges)\n", "        tokens = [*word, END]\n")],
        "torch": [("for token in apply_merges(word, merges)]", 'for token in [*word, "</w>"]]')],
    },
    ("encode", "lower-case"): {
        "numpy": [("text.split()", "text.lower().split()")],
        "torch": [("apply_merges(word, merges)]", "apply_merges(word.lower(), merges)]")],
    },
    ("encode", "zero-is-unknown"): {
        "numpy": [("vocabulary.get(token, unknown)", "vocabulary.get(token) or unknown")],
        "loops": [("if token in vocabulary:", "if vocabulary.get(token):")],
    },
    ("encode", "unknown-ignored"): {
        "numpy": [("vocabulary.get(token, unknown)", "vocabulary.get(token)")],
        "loops": [("ids.append(unknown)", "ids.append(0)")],
    },
    ("encode", "unknown-dropped"): {
        "torch": [(TORCH_LOOK_UP, "vocabulary[token] for token in tokens if token in vocabulary")],
        "loops": [(LOOP_LOOK_UP, LOOP_LOOK_UP.replace("ids.append(unknown)", "continue"))],
    },
    ("encode", "whole-word-unknown"): {
        "numpy": [(f"        {EXTEND}", f"        if not set(tokens) <= set(vocabulary):\n            ids.append(unknown)\n            continue\n        {EXTEND}")],
        "loops": [("        for token in apply_merges(word, merges):\n", "        parts = apply_merges(word, merges)\n        for token in parts if all(p in vocabulary for p in parts) else [None]:\n")],
    },
    ("encode", "list-for-each-word"): {
        "numpy": [(EXTEND, "ids.append([vocabulary.get(token, unknown) for token in tokens])")],
        "torch": [("    tokens = " + TORCH_TOKENS, "    words = [apply_merges(word, merges) for word in text.split()]"), (f"[{TORCH_LOOK_UP}]", f"[[{TORCH_LOOK_UP}] for tokens in words]")],
    },
    ("encode", "tokens-returned"): {
        "numpy": [(EXTEND, "ids.extend(tokens)")],
        "torch": [(f"[{TORCH_LOOK_UP}]", "tokens")],
    },
    ("decode", "mark-kept"): {
        "numpy": [('text.replace(END, " ").rstrip()', "text")],
        "torch": [('token.removesuffix("</w>") + " " if', 'token + " " if')],
    },
    ("decode", "no-spaces"): {
        "numpy": [('text.replace(END, " ").rstrip()', 'text.replace(END, "")')],
        "loops": [('return " ".join(words)', 'return "".join(words)')],
    },
    ("decode", "spaces-between-tokens"): {
        "numpy": [('text = "".join(', 'text = " ".join(')],
        "torch": [(TORCH_TEXT, 'token.removesuffix("</w>") + " "')],
        "loops": [("        if word.endswith", '        words += [tokens[i].replace("</w>", "")]\n        word = ""\n        if word.endswith')],
    },
    ("decode", "space-at-end"): {
        "numpy": [('.replace(END, " ").rstrip()', '.replace(END, " ")')],
        "torch": [("return text.strip()", "return text")],
    },
    ("decode", "characters-stripped"): {
        "numpy": [("    return text.replace(END", '    text = "".join(tokens[i].strip(END) + END * tokens[i].endswith(END) for i in ids)\n    return text.replace(END')],
        "torch": [('token.removesuffix("</w>") + " " if', 'token.rstrip("</w>") + " " if')],
        "torch, strip": [(TORCH_TEXT, 'token.strip("</w>") + " " if token.endswith("</w>") else token')],
    },
    ("decode", "last-character-removed"): {
        "numpy": [(".rstrip()", "[:-1]")],
        "torch": [("return text.strip()", "return text[:-1]")],
    },
    ("decode", "unfinished-word-lost"): {
        "loops": [("    if word:\n        words.append(word)\n", "")],
        "numpy": [('text.replace(END, " ").rstrip()', '" ".join(text.split(END)[:-1])')],
    },
    ("pad_batch", "padded-on-the-left"): {
        "numpy": [(ROW, "row[longest - len(text) :] = text")],
        "torch": [(PADDED, 'return pad_sequence(rows, batch_first=True, padding_value=pad, padding_side="left")')],
        "loops": [(LOOP_ROW, "[pad] * (longest - len(text)) + list(text)")],
    },
    ("pad_batch", "pad-ignored"): {
        "numpy": [("np.full((len(texts), longest), pad)", "np.zeros((len(texts), longest))")],
        "torch": [(", padding_value=pad", "")],
    },
    ("pad_batch", "batch-transposed"): {
        "torch": [("batch_first=True, ", "")],
        "numpy": [("    return batch\n", "    return batch.T\n")],
    },
    ("pad_batch", "cut-to-shortest"): {
        "numpy": [("longest = max(", "longest = min("), (ROW, "row[:] = text[:longest]")],
        "loops": [("    return rows\n", CUT.format("min(map(len, texts))"))],
        "torch": [(PADDED, "return torch.stack([row[: min(map(len, rows))] for row in rows])")],
    },
    ("pad_batch", "width-of-first"): {
        "numpy": [("max(len(text) for text in texts)", "len(texts[0])"), (ROW, "row[: len(text)] = text[:longest]")],
        "loops": [("        if len(text) > longest:\n", "        if longest == 0:\n")],
        "torch": [("padding_value=pad)", "padding_value=pad)[:, : len(texts[0])]")],
    },
    ("pad_batch", "one-column-too-many"): {
        "numpy": [("for text in texts)\n", "for text in texts) + 1\n")],
        "loops": [("(longest - len(text))", "(longest + 1 - len(text))")],
    },
    ("make_batches", "not-sorted"): {
        "numpy": [(SORTED, "range(len(lengths))"), ("* lengths[i] > budget", "* max(lengths[j] for j in [*batch, i]) > budget")],
        "torch": [(TORCH_SORTED, "list(range(len(lengths)))"), ("* lengths[order[end]] <= budget", "* max(lengths[i] for i in order[start : end + 1]) <= budget")],
    },
    ("make_batches", "longest-first"): {
        "numpy": [(SORTED, SORTED.replace("lengths[i]", "-lengths[i]")), ("* lengths[i] > budget", "* lengths[batch[0]] > budget")],
        "torch": [(TORCH_SORTED, TORCH_SORTED + "[::-1]"), ("* lengths[order[end]] <= budget", "* lengths[order[start]] <= budget")],
    },
    ("make_batches", "ties-reversed"): {
        "numpy": [(SORTED, "sorted(reversed(range(len(lengths))), key=lambda i: lengths[i])")],
        "loops": [("(lengths[i], i)", "(lengths[i], -i)")],
    },
    ("make_batches", "padding-not-counted"): {
        "numpy": [(FITS, "batch and sum(lengths[j] for j in batch) + lengths[i] > budget")],
        "loops": [(LOOP_FITS, "sum(lengths[j] for j in batches[-1] + [i]) <= budget")],
    },
    ("make_batches", "longest-not-updated"): {
        "numpy": [("* lengths[i] > budget", "* lengths[batch[-1]] > budget")],
        "torch": [("lengths[order[end]] <=", "lengths[order[end - 1]] <=")],
    },
    ("make_batches", "texts-counted"): {
        "numpy": [("(len(batch) + 1) * lengths[i] > budget", "len(batch) == budget")],
        "loops": [(LOOP_FITS, "len(batches[-1]) + 1 <= budget")],
    },
    ("make_batches", "budget-not-reached"): {
        "numpy": [("> budget", ">= budget")],
        "torch": [("<= budget", "< budget")],
    },
    ("make_batches", "closed-too-late"): {
        "numpy": [(FITS, "batch and len(batch) * lengths[batch[-1]] >= budget")],
        "loops": [(LOOP_FITS, "len(batches[-1]) * lengths[batches[-1][-1]] <= budget")],
    },
    ("make_batches", "text-lost"): {
        "numpy": [("            batch = []\n        batch.append(i)", "            batch = []\n        else:\n            batch.append(i)")],
        "torch": [("        start = end\n", "        start = end + 1\n")],
    },
    ("make_batches", "last-batch-lost"): {
        "numpy": [(LAST, "return batches")],
        "torch": [(TORCH_LAST, "    return batches[:-1]\n")],
    },
    ("make_batches", "too-long-dropped"): {
        "numpy": [(f"        if {FITS}", f"        if lengths[i] > budget:\n            continue\n        if {FITS}")],
        "torch": [(TORCH_SORTED, "[i for i in " + TORCH_SORTED + " if lengths[i] <= budget]")],
    },
    ("make_batches", "empty-batch"): {
        "numpy": [(FITS, FITS.removeprefix("batch and "))],
        "numpy, at the end": [(LAST, "return [*batches, batch]")],
        "numpy, around long texts": [
            (f"        if {FITS}", f"        if lengths[i] > budget:\n            batches += [batch, [i]]\n            batch = []\n            continue\n        if {FITS}"),
            (LAST, "return [*batches, batch]"),
        ],
        "loops": [("    batches = []\n", "    batches = [[]]\n")],
    },
    ("make_batches", "lengths-returned"): {
        "numpy": [("batch.append(i)", "batch.append(lengths[i])")],
        "torch": [("batches.append(order[start:end])", "batches.append([lengths[i] for i in order[start:end]])")],
    },
    ("make_batches", "places-returned"): {
        "numpy": [("    # The last batch is not yet", "    places, rest = [], iter(range(len(lengths)))\n    if batch:\n        batches = [[next(rest) for _ in b] for b in [*batches, batch]]\n        return batches\n    # The last batch is not yet")],
        "torch": [("batches.append(order[start:end])", "batches.append(list(range(start, end)))")],
    },
}  # fmt: skip

# Mistakes that the grader does not know. It must describe them without a name. (part, style, edits)
UNLISTED = [
    ("pad_batch", "numpy", [("np.full((len(texts), longest), pad)", "np.zeros((len(texts), longest)) + pad")]),
    ("count_pairs", "numpy", [("counts[pair] += count", "counts[tuple(sorted(pair))] += count")]),
    ("count_pairs", "loops", [("counts[pair] += count", "counts[pair] += count + 1")]),
    ("count_pairs", "numpy", [("counts[pair] += count", "counts[pair[0] + pair[1]] += count")]),
    ("count_pairs", "torch", [("    return counts\n", "    return list(counts.items())\n")]),
    ("merge_pair", "numpy", [("merged.append(pair[0] + pair[1])", "merged.append(pair)")]),
    ("merge_pair", "loops", [("    return merged\n", '    return " ".join(merged)\n')]),
    ("merge_pair", "torch", [("left + right if is_used", "right + left if is_used")]),
    ("merge_pair", "numpy", [("    return merged\n", "    return list(symbols)\n")]),
    ("merge_pair", "loops", [("        i += 1\n    return merged", "        elif merged[i] == pair[0]:\n            break\n        i += 1\n    return merged")]),
    ("learn_merges", "numpy", [("    return merges\n", "    return merges[::-1]\n")]),
    ("learn_merges", "numpy", [("[([*word, END], count)", "[([END, *word], count)")]),
    ("learn_merges", "loops", [("entry[0] = merge_pair(entry[0], best)", "entry[0] = merge_pair(entry[0], best) if entry[1] > 2 else entry[0]")]),
    ("learn_merges", "torch", [(TORCH_BEST, "min((pair for pair, count in counts.items() if count == most), key=lambda p: (len(p[0] + p[1]), p))")]),
    ("learn_merges", "numpy", [("(-counts[pair], pair)", "(-counts[pair], pair[1], pair[0])")]),
    ("apply_merges", "numpy", [("for pair in merges:", "for pair in sorted(merges):")]),
    ("apply_merges", "numpy", [("    return tokens\n", '    return " ".join(tokens)\n')]),
    ("apply_merges", "numpy", [("for pair in merges:", "for pair in merges[:-1]:")]),
    ("apply_merges", "loops", [(LOOP_TOKENS, 'tokens = ["</w>", *word]')]),
    ("encode", "numpy", [("text.split()", "sorted(set(text.split()))")]),
    ("encode", "torch", [("(token, unknown)", "(token, -1)")]),
    ("encode", "loops", [("text.split()", "text.split()[::-1]")]),
    ("encode", "numpy", [("vocabulary.get(token, unknown)", "vocabulary.get(token.removesuffix(END), unknown)")]),
    ("decode", "numpy", [("    return text.replace(END", "    return text.upper().replace(END.upper()")]),
    ("decode", "loops", [('" ".join(words)', "words")]),
    ("decode", "torch", [("for i in ids:", "for i in ids[:-1]:")]),
    ("pad_batch", "numpy", [("    return batch\n", "    return batch[:, ::-1]\n")]),
    ("pad_batch", "loops", [(LOOP_ROW, "(list(text) * longest + [pad] * longest)[:longest]")]),
    ("pad_batch", "torch", [("padding_value=pad", "padding_value=-100")]),
    ("pad_batch", "torch", [(PADDED, "return torch.cat(rows)")]),
    ("make_batches", "numpy", [(SORTED, "sorted(range(len(lengths)), key=lambda i: lengths[i] % 3)")]),
    ("make_batches", "loops", [("<= budget", "<= budget + 1")]),
    ("make_batches", "torch", [(TORCH_LAST, "    return batches[::-1]\n")]),
    ("make_batches", "numpy", [(LAST, "return [[i + 1 for i in b] for b in [*batches, batch]]")]),
]  # fmt: skip
