"""Edits of right answers to exercise 3 that produce each known mistake, in at least two styles.

(part, mistake) -> {style: [(old text, new text), ...]}
"""

ANGLE = "pos / 10000 ** (2 * pair / d_model)"
ROPE_ANGLE = "positions[place[-1]] * 10000 ** (-2 * i / width)"
EVEN_SIN, ODD_COS = "table[:, 0::2] = np.sin(angle)", "table[:, 1::2] = np.cos(angle)"
STACKED = "torch.stack([hands.imag, hands.real], dim=-1).flatten(1)"
SIN_OR_COS = "math.sin(angle) if column % 2 == 0 else math.cos(angle)"
SUM = "table[ids] * np.sqrt(d_model) + sinusoidal(n_words, d_model)"
SUM_TORCH = "math.sqrt(d_model) * vectors + sinusoidal(n_words, d_model)"
SUM_LOOPS = "vector[d] * d_model**0.5 + positions[place][d]"
BLOCK = "[[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]"
BLOCK_TORCH = "[[hand.real, hand.imag], [-hand.imag, hand.real]]"
FIRST, SECOND = "rotated[..., 0::2] = a * cos - b * sin", "rotated[..., 1::2] = a * sin + b * cos"
TURNED_TORCH = "torch.view_as_real(pairs * clocks(positions, x.size(-1))).flatten(-2)"
BY_HAND = "    # mistakes: halves, halves-one-way\n    a, b ="


def in_sinusoidal(old, new):
    """Change the speeds in one function only, although all functions use the same line."""
    return [
        ("def sinusoidal", f"def my_speeds(width):\n    return {new}\n\n\ndef sinusoidal"),
        (old, old.replace("speeds", "my_speeds")),
    ]


ANGLES_TORCH = "position / 10000**exponents"
ANGLES_LOOPS = "position / 10000.0 ** (even / width)"
TURN_A, TURN_B = "a * np.cos(angle) - b * np.sin(angle)", "a * np.sin(angle) + b * np.cos(angle)"
MOVED = "complex(a[place], b[place]) * cmath.exp(1j * float(angle[place]))"

EDITS = {
    ("angles", "exponent-half"): {
        "numpy": [("position * speeds(width)", "position * np.sqrt(speeds(width))")],
        "loops": [(ANGLES_LOOPS, "position / 100 ** (even / width)")],
    },
    ("angles", "exponent-twice"): {
        "torch": [(ANGLES_TORCH, "position / 10000 ** (2 * exponents)")],
        "loops": [(ANGLES_LOOPS, "position / 10000 ** (2 * even / width)")],
    },
    ("angles", "exponent-to-1"): {
        "numpy": [("position * speeds(width)", "position * np.logspace(0, -4, width // 2)")],
        "torch": [(ANGLES_TORCH, "position / 10000 ** torch.linspace(0, 1, width // 2)")],
    },
    ("angles", "exponent-sign"): {
        "numpy": [("position * speeds(width)", "position / speeds(width)")],
        "torch": [(ANGLES_TORCH, "position * 10000**exponents")],
    },
    ("angles", "exponent-not-divided"): {
        "torch": [("torch.arange(0, width, 2) / width", "torch.arange(0.0, width, 2)")],
        "loops": [(ANGLES_LOOPS, "position / 10000.0**even")],
    },
    ("angles", "base"): {
        "torch": [(ANGLES_TORCH, "position / 1000**exponents")],
        "loops": [("10000.0", "1000")],
    },
    ("angles", "frequency-forgotten"): {
        "numpy": [("position * speeds(width)", "np.full(width // 2, position)")],
        "loops": [(ANGLES_LOOPS, "position")],
    },
    ("angles", "speeds-reversed"): {
        "numpy": [("position * speeds(width)", "position * speeds(width)[::-1]")],
        "loops": [("return found", "return found[::-1]")],
    },
    ("angles", "degrees"): {
        "torch": [(ANGLES_TORCH, f"torch.deg2rad({ANGLES_TORCH})")],
        "loops": [(ANGLES_LOOPS, f"math.radians({ANGLES_LOOPS})")],
    },
    ("angles", "full-turns"): {
        "numpy": [("position * speeds(width)", "2 * np.pi * position * speeds(width)")],
        "loops": [(ANGLES_LOOPS, f"math.tau * {ANGLES_LOOPS}")],
    },
    ("angles", "position-ignored"): {
        "numpy": [("position * speeds(width)", "speeds(width)")],
        "torch": [(ANGLES_TORCH, "1 / 10000**exponents")],
    },
    ("angles", "angles-twice"): {
        "numpy": [("position * speeds(width)", "np.repeat(position * speeds(width), 2)")],
        "torch": [(ANGLES_TORCH, f"({ANGLES_TORCH}).repeat(2)")],
    },
    ("angles", "sines-returned"): {
        "numpy": [("position * speeds(width)", "np.sin(position * speeds(width))")],
        "torch": [(ANGLES_TORCH, f"({ANGLES_TORCH}).sin()")],
    },
    ("turn", "turned-back"): {
        "torch": [
            (
                "torch.polar(torch.ones_like(angle), angle)\n    return turned",
                "torch.polar(torch.ones_like(angle), -angle)\n    return turned",
            )
        ],
        "loops": [(MOVED, MOVED.replace("1j", "-1j"))],
    },
    ("turn", "turn-sin-cos-swapped"): {
        "numpy": [(TURN_A, "a * np.sin(angle) - b * np.cos(angle)"), (TURN_B, "a * np.cos(angle) + b * np.sin(angle)")],
        "loops": [(MOVED, "complex(a[place], b[place]) * complex(math.sin(angle[place]), math.cos(angle[place]))")],
    },
    ("turn", "sines-same-sign"): {
        "numpy": [(TURN_A, TURN_A.replace("-", "+"))],
        "torch": [("return turned.real, turned.imag", "return turned.real, b * angle.cos() - a * angle.sin()")],
    },
    ("turn", "turned-in-place"): {
        "numpy": [(f"return {TURN_A}, {TURN_B}", f"a = {TURN_A}\n    return a, {TURN_B}")],
        "torch": [
            ("return turned.real, turned.imag", "return turned.real, turned.real * angle.sin() + b * angle.cos()")
        ],
    },
    ("turn", "half-turned"): {
        "numpy": [(TURN_B, "b")],
        "torch": [("return turned.real, turned.imag", "return a, turned.imag")],
    },
    # the table; in NumPy and PyTorch the other parts use the same speeds and are wrong too
    ("sinusoidal", "sin-cos-swapped"): {
        "numpy": [(EVEN_SIN, "table[:, 0::2] = np.cos(angle)"), (ODD_COS, "table[:, 1::2] = np.sin(angle)")],
        "torch": [("[hands.imag, hands.real]", "[hands.real, hands.imag]")],
        "loops": [("column % 2 == 0", "column % 2 == 1")],
    },
    ("sinusoidal", "halves"): {
        "numpy": [
            (EVEN_SIN, "table[:, : d_model // 2] = np.sin(angle)"),
            (ODD_COS, "table[:, d_model // 2 :] = np.cos(angle)"),
        ],
        "torch": [(STACKED, "torch.cat([hands.imag, hands.real], dim=-1)")],
        "loops": [
            ("pair = column // 2", "pair = column % (d_model // 2)"),
            ("column % 2 == 0", "column < d_model // 2"),
        ],
    },
    ("sinusoidal", "exponent-half"): {
        "numpy": in_sinusoidal("* speeds(d_model)", "1 / 10000 ** (np.arange(width // 2) / width)"),
        "loops": [("10000 ** (2 * pair / d_model)", "10000 ** (pair / d_model)")],
    },
    ("sinusoidal", "exponent-twice"): {
        "numpy": in_sinusoidal("* speeds(d_model)", "10000.0 ** (-2 * np.arange(0, width, 2) / width)"),
        "loops": [("2 * pair", "4 * pair")],
    },
    ("sinusoidal", "exponent-to-1"): {
        "numpy": in_sinusoidal("* speeds(d_model)", "np.logspace(0, -4, width // 2)"),
        "loops": [("(2 * pair / d_model)", "(pair / (d_model // 2 - 1))")],
    },
    ("sinusoidal", "exponent-column"): {
        "numpy": [
            ("[:, None] * speeds(d_model)", "[:, None] / 10000 ** (np.arange(d_model) / d_model)"),
            ("= np.sin(angle)", "= np.sin(angle[:, 0::2])"),
            ("= np.cos(angle)", "= np.cos(angle[:, 1::2])"),
        ],
        "loops": [("2 * pair", "2 * column")],
        "torch": [
            (
                "    hands = clocks(torch.arange(n_positions), d_model)",
                "    i = torch.arange(d_model)\n    angle = torch.arange(n_positions)[:, None] / 10000 ** (i / d_model)",
            ),
            ("return " + STACKED, "return torch.where(i % 2 == 0, angle.sin(), angle.cos())"),
        ],
    },
    ("sinusoidal", "exponent-sign"): {
        "numpy": in_sinusoidal("* speeds(d_model)", "10000 ** (np.arange(0, width, 2) / width)"),
        "torch": [
            (
                "    hands = clocks(torch.arange(n_positions), d_model)",
                "    angle = torch.arange(n_positions)[:, None] * 10000 ** (torch.arange(0, d_model, 2) / d_model)",
            ),
            ("return " + STACKED, "return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)"),
        ],
        "loops": [("pos / 10000", "pos * 10000")],
    },
    ("sinusoidal", "base"): {
        "numpy": in_sinusoidal("* speeds(d_model)", "1 / 1000 ** (np.arange(0, width, 2) / width)"),
        "loops": [("10000 **", "100000 **")],
    },
    ("sinusoidal", "frequency-forgotten"): {
        "numpy": [("* speeds(d_model)", "* np.ones(d_model // 2)")],
        "loops": [(ANGLE, "pos")],
    },
    ("sinusoidal", "degrees"): {
        "numpy": [
            ("= np.sin(angle)", "= np.sin(np.deg2rad(angle))"),
            ("= np.cos(angle)", "= np.cos(np.deg2rad(angle))"),
        ],
        "loops": [(ANGLE, f"math.radians({ANGLE})")],
    },
    ("sinusoidal", "exponent-not-divided"): {
        "numpy": in_sinusoidal("* speeds(d_model)", "1 / 10000.0 ** np.arange(0, width, 2)"),
        "loops": [("10000 ** (2 * pair / d_model)", "10000 ** pair")],
    },
    ("sinusoidal", "speeds-reversed"): {
        "numpy": [("* speeds(d_model)", "* speeds(d_model)[::-1]")],
        "torch": [
            (
                "    hands = clocks(torch.arange(n_positions), d_model)",
                "    hands = clocks(torch.arange(n_positions), d_model).flip(-1)",
            )
        ],
        "loops": [("pair = column // 2", "pair = (d_model - 1 - column) // 2")],
    },
    ("sinusoidal", "full-turns"): {
        "numpy": [
            ("= np.sin(angle)", "= np.sin(2 * np.pi * angle)"),
            ("= np.cos(angle)", "= np.cos(2 * np.pi * angle)"),
        ],
        "loops": [(ANGLE, f"2 * math.pi * {ANGLE}")],
    },
    ("sinusoidal", "positions-from-1"): {
        "numpy": [("np.arange(n_positions)", "np.arange(1, n_positions + 1)")],
        "torch": [("torch.arange(n_positions)", "torch.arange(n_positions) + 1")],
        "loops": [("range(n_positions)", "range(1, n_positions + 1)")],
    },
    ("sinusoidal", "sines-only"): {
        "numpy": [(ODD_COS, "pass")],
        "torch": [("[hands.imag, hands.real]", "[hands.imag, hands.imag]")],
        "loops": [(SIN_OR_COS, "math.sin(angle)")],
    },
    ("sinusoidal", "table-transposed"): {
        "numpy": [("return table\n", "return table.T\n")],
        "torch": [(STACKED, STACKED + ".T")],
        "loops": [("return rows", "return list(zip(*rows, strict=True))")],
    },
    # tokens and positions
    ("embed", "not-scaled"): {
        "numpy": [(" * np.sqrt(d_model)", "")],
        "torch": [("math.sqrt(d_model) * vectors", "vectors")],
        "loops": [(" * d_model**0.5", "")],
    },
    ("embed", "scaled-by-width"): {
        "numpy": [("np.sqrt(d_model)", "d_model")],
        "loops": [("d_model**0.5", "d_model")],
    },
    ("embed", "scaled-down"): {
        "numpy": [("* np.sqrt(d_model)", "/ np.sqrt(d_model)")],
        "loops": [("d_model**0.5", "d_model**-0.5")],
    },
    ("embed", "scaled-by-vocabulary"): {
        "numpy": [("np.sqrt(d_model)", "np.sqrt(len(table))")],
        "torch": [("math.sqrt(d_model)", "math.sqrt(table.size(0))")],
    },
    ("embed", "scaled-by-length"): {
        "numpy": [("np.sqrt(d_model)", "np.sqrt(n_words)")],
        "loops": [("d_model**0.5", "len(ids[0]) ** 0.5")],
    },
    ("embed", "scale-at-positions"): {
        "numpy": [(SUM, "table[ids] + np.sqrt(d_model) * sinusoidal(n_words, d_model)")],
        "loops": [(SUM_LOOPS, "vector[d] + positions[place][d] * d_model**0.5")],
    },
    ("embed", "positions-concatenated"): {
        "numpy": [
            (SUM, "np.dstack([table[ids] * np.sqrt(d_model), [sinusoidal(n_words, d_model)] * len(ids)])"),
        ],
        "torch": [
            (
                SUM_TORCH,
                "torch.cat([math.sqrt(d_model) * vectors, sinusoidal(n_words, d_model).expand_as(vectors)], -1)",
            )
        ],
    },
    ("embed", "no-positions"): {
        "numpy": [(" + sinusoidal(n_words, d_model)", "")],
        "loops": [(" + positions[place][d]", "")],
    },
    ("embed", "positions-scaled"): {
        "numpy": [(SUM, "(table[ids] + sinusoidal(n_words, d_model)) * np.sqrt(d_model)")],
        "torch": [(SUM_TORCH, "math.sqrt(d_model) * (vectors + sinusoidal(n_words, d_model))")],
    },
    ("embed", "positions-multiplied"): {
        "torch": [("vectors + sinusoidal", "vectors * sinusoidal")],
        "loops": [("0.5 + positions", "0.5 * positions")],
    },
    ("embed", "positions-along-batch"): {
        "numpy": [("sinusoidal(n_words, d_model)", "sinusoidal(len(ids), d_model)[:, None]")],
        "loops": [("positions[place][d]", "positions[text][d]"), ("sinusoidal(n_words", "sinusoidal(n_texts")],
    },
    ("embed", "positions-by-id"): {
        "numpy": [("sinusoidal(n_words, d_model)", "sinusoidal(len(table), d_model)[ids]")],
        "loops": [("positions[place][d]", "positions[ids[text, place]][d]"), ("sinusoidal(n_words", "sinusoidal(100")],
    },
    # the shift by k positions
    ("shift_matrix", "turned-back"): {
        "numpy": [(BLOCK, "[[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]")],
        "torch": [("torch.block_diag(*blocks)", "torch.block_diag(*blocks).T")],
        "loops": [("return solution.T", "return solution")],
    },
    ("shift_matrix", "turn-sin-cos-swapped"): {
        "numpy": [(BLOCK, "[[np.sin(angle), np.cos(angle)], [-np.cos(angle), np.sin(angle)]]")],
        "torch": [(BLOCK_TORCH, "[[hand.imag, hand.real], [-hand.real, hand.imag]]")],
    },
    ("shift_matrix", "sines-same-sign"): {
        "numpy": [("[-np.sin(angle), np.cos(angle)]", "[np.sin(angle), np.cos(angle)]")],
        "torch": [("[-hand.imag, hand.real]", "[hand.imag, hand.real]")],
    },
    ("shift_matrix", "k-ignored"): {
        "numpy": [("k * speeds(d_model)", "speeds(d_model)")],
        "torch": [("torch.tensor([k])", "torch.tensor([1])")],
    },
    ("shift_matrix", "k-sign-ignored"): {
        "numpy": [("k * speeds(d_model)", "abs(k) * speeds(d_model)")],
        "torch": [("torch.tensor([k])", "torch.tensor([k]).abs()")],
        "loops": [("    table = np.array", "    k = abs(k)\n    table = np.array")],
    },
    ("shift_matrix", "speeds-reversed"): {
        "numpy": [("k * speeds(d_model)", "k * speeds(d_model)[::-1]")],
        "torch": [("clocks(torch.tensor([k]), d_model)[0]", "clocks(torch.tensor([k]), d_model)[0].flip(0)")],
    },
    ("shift_matrix", "full-turns"): {
        "numpy": [("k * speeds(d_model)", "2 * np.pi * k * speeds(d_model)")],
        "torch": [("torch.tensor([k])", "torch.tensor([2 * math.pi * k])")],
    },
    ("shift_matrix", "exponent-not-divided"): {
        "numpy": [("k * speeds(d_model)", "k / 10000.0 ** np.arange(0, d_model, 2)")],
        "torch": [
            (
                "clocks(torch.tensor([k]), d_model)[0]",
                "torch.exp(1j * k / 10000.0 ** torch.arange(d_model // 2))",
            )
        ],
    },
    ("shift_matrix", "halves"): {
        "numpy": [("slice(2 * i, 2 * i + 2)", "slice(i, None, d_model // 2)")],
        "torch": [
            (
                "return torch.block_diag(*blocks)",
                "c, s = torch.diag(hands.real), torch.diag(hands.imag)\n    return torch.cat([torch.cat([c, s], 1), torch.cat([-s, c], 1)])",
            )
        ],
    },
    ("shift_matrix", "exponent-half"): {
        "numpy": [("k * speeds(d_model)", "k * np.sqrt(speeds(d_model))")],
        "loops": [
            ("np.array(sinusoidal(2000, d_model))", "waves(2000, d_model)"),
            (
                "def shift",
                "def waves(n, d):\n    angle = np.arange(n)[:, None] / 100 ** (np.arange(0, d, 2) / d)\n    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(n, d)\n\n\ndef shift",
            ),
        ],
    },
    ("shift_matrix", "exponent-twice"): {
        "numpy": [("k * speeds(d_model)", "k * speeds(d_model) ** 2")],
        "torch": [
            (
                "clocks(torch.tensor([k]), d_model)[0]",
                "torch.exp(1j * k * 10000 ** (-2 * torch.arange(0, d_model, 2) / d_model))",
            )
        ],
    },
    ("shift_matrix", "exponent-to-1"): {
        "numpy": [("k * speeds(d_model)", "k * np.logspace(0, -4, d_model // 2)")],
        "torch": [("clocks(torch.tensor([k]), d_model)[0]", "torch.exp(1j * k * torch.logspace(0, -4, d_model // 2))")],
    },
    ("shift_matrix", "exponent-column"): {
        "numpy": [
            ("k * speeds(d_model)", "k / 10000 ** (np.arange(0, d_model, 2) / d_model)"),
            ("        pair = slice", "        next = k / 10000 ** ((2 * i + 1) / d_model)\n        pair = slice"),
            ("[-np.sin(angle), np.cos(angle)]", "[-np.sin(next), np.cos(next)]"),
        ],
        "torch": [
            (
                "d_model)[0]\n",
                "d_model)[0]\n    angle = k * 10000 ** (-torch.arange(d_model) / d_model)\n"
                "    matrix = torch.diag(angle.cos())\n    for j in range(d_model):\n"
                "        matrix[j, j + 1 - 2 * (j % 2)] = angle[j].sin() * (1 - 2 * (j % 2))\n    return matrix\n",
            ),
        ],
    },
    ("shift_matrix", "base"): {
        "numpy": [("k * speeds(d_model)", "k / 1000 ** (np.arange(0, d_model, 2) / d_model)")],
        "torch": [
            (
                "clocks(torch.tensor([k]), d_model)[0]",
                "torch.exp(1j * k * 1e5 ** (-torch.arange(0, d_model, 2) / d_model))",
            )
        ],
    },
    ("shift_matrix", "exponent-sign"): {
        "numpy": [("k * speeds(d_model)", "k / speeds(d_model)")],
        "torch": [
            (
                "    hands = clocks(torch.tensor([k]), d_model)[0]",
                "    angle = k * 10000 ** (torch.arange(0, d_model, 2) / d_model)\n    hands = torch.polar(torch.ones_like(angle), angle)",
            )
        ],
    },
    ("shift_matrix", "frequency-forgotten"): {
        "numpy": [("k * speeds(d_model)", "[k] * (d_model // 2)")],
        "torch": [("clocks(torch.tensor([k]), d_model)[0]", "clocks(torch.tensor([k]), 2)[0].expand(d_model // 2)")],
    },
    ("shift_matrix", "degrees"): {
        "numpy": [("k * speeds(d_model)", "np.radians(k * speeds(d_model))")],
        "torch": [("torch.tensor([k])", "torch.deg2rad(torch.tensor([float(k)]))")],
    },
    # RoPE
    ("rotate", "halves"): {
        "numpy": [
            ("x[..., 0::2], x[..., 1::2]", "x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]"),
            (FIRST, ""),
            (SECOND, "rotated = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)"),
        ],
        "torch": [
            ("x.unflatten(-1, (-1, 2)).contiguous()", "torch.stack(x.chunk(2, dim=-1), dim=-1)"),
            (TURNED_TORCH, "torch.cat(torch.view_as_real(pairs * clocks(positions, x.size(-1))).unbind(-1), dim=-1)"),
        ],
        "loops": [
            (
                "complex(x[(*place, 2 * i)], x[(*place, 2 * i + 1)])",
                "complex(x[(*place, i)], x[(*place, i + width // 2)])",
            ),
            ("result[(*place, 2 * i)]", "result[(*place, i)]"),
            ("result[(*place, 2 * i + 1)]", "result[(*place, i + width // 2)]"),
        ],
    },
    ("rotate", "conventions-mixed"): {
        "numpy": [
            (
                BY_HAND,
                "    sin, cos = np.repeat(np.sin(angle), 2, -1), np.repeat(np.cos(angle), 2, -1)\n    half = x.shape[-1] // 2\n"
                "    return x * cos + np.concatenate([-x[..., half:], x[..., :half]], axis=-1) * sin\n    a, b =",
            ),
        ],
        "torch": [
            (
                "return " + TURNED_TORCH,
                "hands = clocks(positions, x.size(-1)).repeat(1, 2)\n"
                "    return x * hands.real + torch.view_as_real(pairs * 1j).flatten(-2) * hands.imag",
            ),
        ],
    },
    ("rotate", "halves-one-way"): {
        "numpy": [("x[..., 0::2], x[..., 1::2]", "np.split(x, 2, axis=-1)")],
        "torch": [("x.size(-1))).flatten(-2)", "x.size(-1))).mT.flatten(-2)")],
        "loops": [
            ("result[(*place, 2 * i)]", "result[(*place, i)]"),
            ("result[(*place, 2 * i + 1)]", "result[(*place, i + width // 2)]"),
        ],
    },
    ("rotate", "speeds-reversed"): {
        "numpy": [("* speeds(x.shape[-1])", "* speeds(x.shape[-1])[::-1]")],
        "loops": [("(-2 * i / width)", "(2 * (i + 1) / width - 1)")],
    },
    ("rotate", "exponent-not-divided"): {
        "numpy": [("* speeds(x.shape[-1])", "/ 10000.0 ** np.arange(0, x.shape[-1], 2)")],
        "loops": [("10000 ** (-2 * i / width)", "10000.0 ** (-2 * i)")],
    },
    ("rotate", "full-turns"): {
        "numpy": [("angle = positions[:, None]", "angle = 2 * np.pi * positions[:, None]")],
        "loops": [(ROPE_ANGLE, f"math.tau * {ROPE_ANGLE}")],
    },
    ("rotate", "turned-back"): {
        "numpy": [(FIRST, FIRST.replace("-", "+")), (SECOND, "rotated[..., 1::2] = b * cos - a * sin")],
        "torch": [("pairs * clocks(positions, x.size(-1))", "pairs * clocks(positions, x.size(-1)).conj()")],
        "loops": [("cmath.exp(1j * angle)", "cmath.exp(-1j * angle)")],
    },
    ("rotate", "turn-sin-cos-swapped"): {
        "numpy": [("    sin, cos = np.sin(angle), np.cos(angle)", "    cos, sin = np.sin(angle), np.cos(angle)")],
        "loops": [("cmath.exp(1j * angle)", "complex(math.sin(angle), math.cos(angle))")],
    },
    ("rotate", "sines-same-sign"): {
        "numpy": [(FIRST, FIRST.replace("-", "+"))],
        "loops": [("rotated.imag", "pair.imag * math.cos(angle) - pair.real * math.sin(angle)")],
    },
    ("rotate", "positions-ignored"): {
        "numpy": [("positions[:, None]", "np.arange(x.shape[-2])[:, None]")],
        "torch": [("clocks(positions, x", "clocks(torch.arange(len(positions)), x")],
        "loops": [("positions[place[-1]] *", "place[-1] *")],
    },
    ("rotate", "turned-in-place"): {
        "numpy": [
            ("rotated = np.zeros(x.shape)", "rotated = x.copy()\n    a, b = rotated[..., 0::2], rotated[..., 1::2]")
        ],
        "loops": [("rotated.imag", "rotated.real * math.sin(angle) + pair.imag * math.cos(angle)")],
    },
    ("rotate", "half-turned"): {
        "numpy": [(SECOND, "rotated[..., 1::2] = b")],
        "loops": [("            result[(*place, 2 * i)] = rotated.real\n", "")],
    },
    ("rotate", "exponent-half"): {
        "numpy": [
            (
                "positions[:, None] * speeds(x.shape[-1])",
                "positions[:, None] * 10000 ** (-np.arange(x.shape[-1] // 2) / x.shape[-1])",
            )
        ],
        "loops": [("(-2 * i / width)", "(-i / width)")],
    },
    ("rotate", "exponent-twice"): {
        "numpy": [
            (
                "positions[:, None] * speeds(x.shape[-1])",
                "positions[:, None] / 10000 ** (2 * np.arange(0, x.shape[-1], 2) / x.shape[-1])",
            )
        ],
        "loops": [("(-2 * i / width)", "(-2 * i / (width // 2))")],
    },
    ("rotate", "exponent-to-1"): {
        "numpy": [
            (
                "positions[:, None] * speeds(x.shape[-1])",
                "positions[:, None] * 10000 ** -np.linspace(0, 1, x.shape[-1] // 2)",
            )
        ],
        "loops": [("(-2 * i / width)", "(-i / (width / 2 - 1))")],
    },
    ("rotate", "exponent-column"): {
        "numpy": [
            (
                "positions[:, None] * speeds(x.shape[-1])",
                "positions[:, None] / 10000 ** (np.arange(x.shape[-1]) / x.shape[-1])",
            ),
            (FIRST, "rotated[..., 0::2] = a * cos[:, 0::2] - b * sin[:, 0::2]"),
            (SECOND, "rotated[..., 1::2] = a * sin[:, 1::2] + b * cos[:, 1::2]"),
        ],
        "torch": [
            (
                "return " + TURNED_TORCH,
                "angle = positions[:, None] * 10000 ** (-torch.arange(x.size(-1)) / x.size(-1))\n"
                "    return x * angle.cos() + torch.view_as_real(pairs * 1j).flatten(-2) * angle.sin()",
            ),
        ],
    },
    ("rotate", "exponent-sign"): {
        "numpy": [("positions[:, None] * speeds(x.shape[-1])", "positions[:, None] / speeds(x.shape[-1])")],
        "loops": [("(-2 * i / width)", "(2 * i / width)")],
    },
    ("rotate", "base"): {
        "numpy": [("* speeds(x.shape[-1])", "* speeds(x.shape[-1]) ** 0.75")],
        "loops": [("* 10000 **", "* 1000 **")],
    },
    ("rotate", "frequency-forgotten"): {
        "numpy": [("positions[:, None] * speeds(x.shape[-1])", "positions[:, None]")],
        "loops": [(ROPE_ANGLE, "positions[place[-1]]")],
    },
    ("rotate", "degrees"): {
        "numpy": [
            (
                "    sin, cos = np.sin(angle), np.cos(angle)",
                "    angle = angle / 180 * np.pi\n    sin, cos = np.sin(angle), np.cos(angle)",
            )
        ],
        "loops": [(ROPE_ANGLE, f"math.radians({ROPE_ANGLE})")],
    },
}


def own_table(library, angle="pos / 10000 ** (2 * i / d)", table="stack([np.sin(angle), np.cos(angle)], -1)"):
    """Compute the table inside embed, and make it wrong only there."""
    body = (
        f"    pos, i, j = np.arange(n)[:, None], np.arange(d // 2), np.arange(d)\n"
        f"    angle = {angle}\n    return np.{table}.reshape(n, d)"
    ).replace("np.", f"{library}.")
    return [("def embed", f"def own_table(n, d):\n{body}\n\n\ndef embed"), ("sinusoidal(n_words", "own_table(n_words")]


OWN_TABLES = {
    "sin-cos-swapped": {"table": "stack([np.cos(angle), np.sin(angle)], -1)"},
    "halves": {"table": "concatenate([np.sin(angle), np.cos(angle)], -1)"},
    "exponent-half": {"angle": "pos / 10000 ** (i / d)"},
    "exponent-twice": {"angle": "pos / 10000 ** (2 * j[::2] / d)"},
    "exponent-to-1": {"angle": "pos / 10000 ** (i / (len(i) - 1))"},
    "exponent-column": {"angle": "pos / 10000 ** (j / d)", "table": "where(j % 2 == 0, np.sin(angle), np.cos(angle))"},
    "exponent-sign": {"angle": "pos * 10000 ** (2 * i / d)"},
    "base": {"angle": "pos / 1000 ** (2 * i / d)"},
    "frequency-forgotten": {"angle": "pos + 0.0 * i"},
    "exponent-not-divided": {"angle": "pos / 10000.0 ** (2 * i)"},
    "speeds-reversed": {"angle": "pos / 10000 ** (2 * (d // 2 - 1 - i) / d)"},
    "full-turns": {"angle": "2 * np.pi * pos / 10000 ** (2 * i / d)"},
    "degrees": {"angle": "np.deg2rad(pos / 10000 ** (2 * i / d))"},
    "positions-from-1": {"angle": "(pos + 1) / 10000 ** (2 * i / d)"},
    "sines-only": {"table": "stack([np.sin(angle), 0 * angle], -1)"},
}
for name, change in OWN_TABLES.items():
    EDITS["embed", name] = {"numpy": own_table("np", **change), "torch": own_table("torch", **change)}

# Mistakes that the grader does not know. It must describe them without a name. (part, style, edits)
UNLISTED = [
    ("angles", "numpy", [("position * speeds(width)", "(position + 1) * speeds(width)")]),
    ("angles", "torch", [(ANGLES_TORCH, "position - 10000**exponents")]),
    ("angles", "loops", [("range(0, width, 2)", "range(2, width + 2, 2)")]),
    ("turn", "numpy", [(TURN_A, "a * np.cos(angle) - a * np.sin(angle)")]),
    ("turn", "torch", [("return turned.real, turned.imag", "return turned.imag, turned.real")]),
    ("turn", "loops", [("complex(a[place], b[place]) *", "complex(a[place], b[place]) +")]),
    # a wrong exponent with a wrong base, and three mistakes at once
    ("sinusoidal", "loops", [("10000 ** (2 * pair / d_model)", "1000 ** (pair / d_model)")]),
    ("sinusoidal", "loops", [("10000 ** (2 * pair / d_model)", "10000 ** (-pair / d_model)")]),
    ("sinusoidal", "loops", [("10000 ** (2 * pair / d_model)", "1000 ** (2 * column / d_model)")]),
    ("embed", "loops", [("10000 ** (2 * pair / d_model)", "1000 ** (pair / d_model)")]),
    ("embed", "numpy", [("sinusoidal(n_words, d_model)", "sinusoidal(n_words, d_model) / 2")]),
    ("sinusoidal", "numpy", [(EVEN_SIN, "table[:, 0::2] = np.cos(angle)")]),
    ("sinusoidal", "torch", [("return " + STACKED, "return " + STACKED + ".roll(1, dims=-1)")]),
    ("sinusoidal", "loops", [("math.sin(angle) if", "math.tan(angle) if")]),
    ("sinusoidal", "loops", [("range(n_positions)", "reversed(range(n_positions))")]),
    ("embed", "numpy", [("return table[ids]", "return table[ids.T].swapaxes(0, 1)[:, ::-1]")]),
    ("embed", "numpy", [("np.sqrt(d_model)", "np.log(d_model)")]),
    ("embed", "torch", [("vectors + sinusoidal", "vectors - sinusoidal")]),
    ("embed", "loops", [("table[ids[text, place]]", "table[ids[text, place] - 1]")]),
    ("shift_matrix", "numpy", [(BLOCK, "[[np.cos(angle), 0], [0, np.cos(angle)]]")]),
    ("shift_matrix", "numpy", [("np.zeros((d_model, d_model))", "np.ones((d_model, d_model))")]),
    ("shift_matrix", "numpy", [("k * speeds(d_model)", "(k + 1) * speeds(d_model)")]),
    ("shift_matrix", "torch", [("return torch.block_diag(*blocks)", "return torch.stack(blocks)")]),
    ("rotate", "numpy", [(SECOND, "rotated[..., 1::2] = a * sin + b")]),
    ("rotate", "numpy", [("return rotated", "return rotated + x")]),
    ("rotate", "torch", [("pairs * clocks(positions, x.size(-1))", "pairs + clocks(positions, x.size(-1))")]),
    ("rotate", "torch", [("clocks(positions, x", "clocks(positions + 1, x")]),
    ("rotate", "loops", [("x[(*place, 2 * i)], x", "x[(*place, 0)], x")]),
    ("rotate", "loops", [("range(width // 2)", "range(width // 2 - 1)")]),
]
