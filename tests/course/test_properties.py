"""Properties find wrong programs that no known mistake explains, also those that are wrong in one special case only."""

import sys
from pathlib import Path

import pytest

from cutaway.course.feedback import FEW, feedback, numbers_in

sys.path.insert(0, str(Path(__file__).parent))
from test_grader import EXERCISES, edited_answer, grade_text

# (number, part, style, edits, what is said)
EXAMPLES = [
    # results that cannot be
    (1, "softmax", "numpy", [("return powers /", "return 0.56 * powers /")], "The weights of the row [0, 1] sum to 0.56, not to 1."),
    (1, "softmax", "numpy", [("np.exp(x)", "2.0**x")], "the second weight is 2 times the first; it should be e = 2.718 times"),
    (1, "weighted_average", "numpy", [("weights @ values", "2 * weights @ values")], "With the weights [0, 1] only the second value, [3, 4], counts; but average[0] is 6"),
    (1, "causal_mask", "loops", [("if j <= i:", "if j <= i and j >= i - 1:")], "In causal_mask(3), word 2 may not look at word 0"),
    (1, "attention", "numpy", [("-np.inf", "-2.0")], "Query 0 may not see key 1, but gives it the weight"),
    (1, "attention", "torch", [("softmax(scores)", "torch.sigmoid(scores)")], "Without a mask, the weights of query 0 sum to"),
    (1, "attention", "numpy", [("np.sqrt(d_k)", "np.log(d_k)")], "So the first weight should be e = 2.718 times the second; it is"),
    (1, "attention", "torch", [("weights, v), weights", "weights, v) + v.mean(), weights")], "The output is not the average of the values"),
    (2, "split_heads", "loops", [("h * width : (h + 1) * width]", "h * width : (h + 1) * width][:, ::-1]")], "Of word 0, [110, 111, 112, 113], head 0 gets [110, 111]"),
    (2, "attend_heads", "loops", [("q[:, h], k", "q[:, h] + q[:, h - 1], k")], "One head"),
    (2, "multi_head_attention", "numpy", [('@ weights["output"]', '@ weights["output"] + memory[:, :1]')], "in another order, output[0, 0, 0] changes"),
    (2, "multi_head_attention", "loops", [("x[b] @", "x[0] @")], "A mask [B, 1, Q, K], another for each text"),
    (3, "sinusoidal", "loops", [("math.sin(angle) if", "math.tan(angle) if")], "sin² + cos² is 1 for every pair"),
    (3, "shift_matrix", "numpy", [("k * speeds(d_model)", "(k + 1) * speeds(d_model)")], "For k = 2, M @ PE(1) should be PE(3)"),
    (3, "rotate", "numpy", [("return rotated", "return 2 * rotated")], "At position 0 every angle is 0, so nothing moves. But [1, 2, 3, 4] becomes 2"),
    (3, "embed", "numpy", [("np.sqrt(d_model)", "np.log(d_model)")], "they differ by sqrt(4) times that"),
    (4, "layer_norm", "numpy", [("np.sqrt(variance + eps)", "np.cbrt(variance + eps)")], "The variance of [1, 3] is 1. With eps 3 it is divided by"),
    (4, "layer_norm", "numpy", [("mean = x.mean(axis=-1, keepdims=True)", "mean = np.median(x, axis=-1, keepdims=True)")], "the numbers of [1, 2, 6] sum to 0"),
    (4, "feed_forward", "loops", [("else 0.0", "else 0.5 * total")], "[-5, 1] · [1, 1] + 3 = -1, which becomes 0"),
    (4, "encoder_block", "numpy", [("return layer_norm(x + feed_forward_output,", "return 3 * layer_norm(x + feed_forward_output,")], "have the variance 1; those of token 0 have the variance"),
    (5, "decoder_mask", "loops", [("j <= i and ids[b, j] != pad", "j in (i, i - 1) and ids[b, j] != pad")], "position 2 may look at position 0, which is a token before it"),
    (5, "decoder_block", "numpy", [("return layer_norm(x + feed_forward_output,", "return x.mean(axis=1, keepdims=True) + layer_norm(x + feed_forward_output,")], "the future changes the past"),
    (5, "transformer", "numpy", [("return token_logits(x, embedding)", "return token_logits(x + x.mean(axis=1, keepdims=True), embedding)")], "the future changes the past"),
    (5, "transformer", "numpy", [("return token_logits(x, embedding)", "return token_logits(x + embedding[source].mean(axis=1, keepdims=True), embedding)")], "The source [2, 1] and the source [2, 1, pad] say the same"),
    (5, "cross_entropy", "numpy", [(".mean()\n", ".mean() * len(target)\n")], "the same text twice has the same loss as once"),
    (5, "learning_rate", "numpy", [("step**-0.5", "step**-0.25")], "With a warmup of 4 steps the rate is largest at step 4. But it is 0.25 there and 0.3125 at step 5."),
    # right in all compared cases
    (1, "softmax", "numpy", [("axis=-1, keepdims=True)\n    # mistakes: no-p", "axis=-1, keepdims=x.ndim > 1)\n    if x.ndim == 1:\n        x = x * 2\n    # mistakes: no-p")], "X with one axis only, [0, 1, 2]"),
    (1, "softmax", "numpy", [("def softmax(x):", "def softmax(x):\n    x = np.nan_to_num(x, neginf=0.0)")], "A row with minus infinity, [0, -inf, 1]"),
    (1, "attention", "numpy", [("if mask is not None:", "if mask is not None and q.ndim != 3:")], "Three axes, with a mask [B, 1, K]"),
    (1, "attention", "numpy", [("np.where(mask, scores, -np.inf)", "np.where(mask, scores, -1e9) * (scores.shape[-2] > 1)")], "One query"),
    (2, "multi_head_attention", "numpy", [('@ weights["output"]', '@ weights["output"] * (n_heads > 1)')], "One head"),
    (2, "split_heads", "numpy", [("    x = x.reshape", "    n_heads = 1 if d_model == 3 else n_heads\n    x = x.reshape")], "As many heads as numbers in a word"),
    (3, "sinusoidal", "numpy", [("np.arange(n_positions)", "np.minimum(np.arange(n_positions), 99)")], "300 positions, width 8"),
    (3, "embed", "numpy", [("sinusoidal(n_words, d_model)", "(n_words > 1) * sinusoidal(n_words, d_model)")], "One text of one token"),
    (4, "layer_norm", "numpy", [("* gain + bias", "* gain + bias * (x.shape[-1] > 1)")], "Tokens of one number"),
    (4, "encoder", "numpy", [("in layers:", "in layers[len(layers) == 1 :]:")], "With one layer, the encoder gives what encoder_block gives"),
    (5, "shift_right", "numpy", [("(len(target), 1), start)", "(len(target), 1), start or 1)")], "Start 0"),
    (5, "padding_mask", "numpy", [("real_tokens(ids, pad)[", "real_tokens(ids, pad or -1)[")], "Pad 0"),
    (5, "decoder", "loops", [("if not layers:", "if not layers or x.shape[1] == 1:")], "One target token, one source token, two layers"),
    (5, "transformer", "numpy", [("source_mask = padding_mask(source, pad)", "source_mask = padding_mask(source, pad or -1)")], "pad] say the same"),
    (5, "cross_entropy", "numpy", [("[real].mean()", "[real | ~real.any(axis=1, keepdims=True)].mean()")], "One of two texts is padding only"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "part", "style", "edits", "says"), EXAMPLES, ids=[f"{e[0]}-{e[1]}-{i}" for i, e in enumerate(EXAMPLES)]
)
def test_a_violated_property_is_reported_with_numbers(number, part, style, edits, says, tmp_path):
    result = grade_text(number, edited_answer(number, style, edits), tmp_path)
    mark = next(mark for mark in result.marks if mark.part.name == part)
    assert mark.state == "wrong"
    assert not mark.explanations
    assert says in mark.violation
    assert any(letter.isdigit() for letter in mark.violation)
    assert mark.violation in feedback(mark)
    assert any(line.startswith("Hint: ") for line in feedback(mark))


def test_the_cases_of_a_property_are_small():
    """The first property of a part is the one that is read most: at most 40 numbers in each case."""
    for number in range(1, 6):
        for part in EXERCISES[number].parts:
            for case in part.properties[0].cases:
                sizes = [numbers_in(argument) for argument in case.arguments if not isinstance(argument, (dict, list))]
                assert sum(sizes) <= FEW, (part.name, case.description)
