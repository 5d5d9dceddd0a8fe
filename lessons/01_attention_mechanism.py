# %% [markdown]
# # 1. The attention mechanism
#
# A word rarely means much by itself. To know who *it* is, or whether a *bank* is near water or full of money, a model
# has to bring information from one place of a text to another. This lesson is about the part of a Transformer that
# does this.
#
# At the end you will know
#
# - why attention is a look-up in a dictionary, made soft so that it can be learned;
# - how to read a picture of attention weights;
# - what makes attention look everywhere or at one place, and why scores are divided by √d_k;
# - the equation of attention as four lines of code, equal to what the library runs;
# - how recurrence, convolution and attention carry information, and what each of them costs.
#
# It goes with sections 3.2.1 (the equation) and 4 (the comparison, table 1) of "Attention Is All You Need". Reading it
# takes about half an hour.
#
# ## At a glance
#
#     queries [Q,E] ──┐
#                     ├─▶ scores = Q Kᵀ / √E ──softmax──▶ weights [Q,K] ──┐
#     keys    [K,E] ──┘          [Q,K]           of each row              ├─▶ output = weights · values [Q,E]
#     values  [K,E] ──────────────────────────────────────────────────────┘
#
# Each query is compared with each key. The comparisons become weights, and the output is the average of the values
# with these weights.
#
# Names in the code end in the axes of an array: `scores_QK` has a row for each query and a column for each key. Q
# counts queries, K keys, E the numbers of a vector; T stands for the words of a text, D for the width of a word, B for
# texts and H for heads.
#
# Before some cells there is a question, marked **Predict**. Answer it before you read on; the answers are at the end.

# %%
import math
import time

import numpy as np
import torch
from torch import nn

from cutaway import MultiHeadAttention
from cutaway.course.lesson import save, shapes
from cutaway.explore.figures import BLUE, GREEN, GREY, ORANGE, SIGNED, WEIGHTS, new_figure
from cutaway.nn.kernels import attend_exact, attend_fused

torch.manual_seed(1)
torch.set_num_threads(1)  # the tensors are small, and the clock below is steadier with one core

# %% [markdown]
# ## A dictionary, made soft
#
# Look-up in a Python dictionary has three parts: *keys* that entries are found by, *values* that they hold, and a
# *query* that says what is wanted.

# %%
legs = {"cat": 4, "sparrow": 2, "trout": 0}  # key -> value
print("sparrow:", legs["sparrow"])
try:
    legs["dog"]
except KeyError as error:
    print("no such key:", error)

# %% [markdown]
# Two things are in the way of learning here. A query must equal a key to the letter: a dog gets nothing, though a cat
# is nearly right. And there is no derivative: move the query a little, and the answer stays, or is gone.
#
# So we replace names by vectors, and "is equal" by "is similar". As a measure of similarity we take the dot product
# q·k = q₁k₁ + q₂k₂ + ..., which is large if both are large in the same places. The vectors say: furry, flies, swims.

# %%
keys_KE = torch.tensor([[4.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 4.0]])  # cat, sparrow, trout
values_KE = torch.tensor([[4.0], [2.0], [0.0]])  # legs
queries_QE = torch.tensor([[1.0, 0.0, 0.3], [0.0, 1.0, 0.0], [0.0, 0.6, 0.6]])  # dog, sparrow, duck
scores_QK = queries_QE @ keys_KE.T
print(scores_QK)
shapes(queries_QE=queries_QE, keys_KE=keys_KE, scores_QK=scores_QK)

# %% [markdown]
# **Predict 1:** the duck is as similar to the sparrow as to the trout. How many legs will it get?
#
# One row for each query, one column for each key. Scores become *weights* by the softmax: take e to the power of each
# score and divide by their sum. The weights of a row are positive and sum to 1. The answer is the average of the
# values with these weights.

# %%
weights_QK = scores_QK.softmax(dim=-1)
answers_QE = weights_QK @ values_KE
for name, weights, answer in zip(("dog", "sparrow", "duck"), weights_QK, answers_QE, strict=True):
    cat, sparrow, trout = weights.tolist()
    print(f"{name:8} cat {cat:.2f}  sparrow {sparrow:.2f}  trout {trout:.2f}    legs: {answer.item():.2f}")

assert answers_QE[0] > 3.5  # the dog is looked up, though it is not in the dictionary
assert abs(answers_QE[2] - 1) < 0.15  # the duck is half sparrow, half trout: so are its legs

# %% [markdown]
# The dog finds the cat's entry. The duck shows the price: a soft look-up answers with an *average*, and the average
# of 2 and 0 legs is 1. Keep that duck in mind; the next lesson comes back to it.
#
# Everything here has a derivative, so training can move queries, keys and values until the right things are found.
# And the hard dictionary is still inside: with larger scores the softmax becomes a choice of one.

# %%
hard_QE = (100 * scores_QK[:2]).softmax(dim=-1) @ values_KE
print("with scores a hundred times as large:", hard_QE.flatten().tolist())
assert hard_QE.flatten().tolist() == [legs["cat"], legs["sparrow"]]

# %% [markdown]
# ## A sentence that looks at itself
#
# In *self-attention* the queries, keys and values all come from the same words. Each word asks, and each word is a
# possible answer. In a trained model three matrices W_Q, W_K and W_V make them from the word's vector; here we make
# them by hand, so that we know what each number means.
#
# A word has six features, each 0 or 1. Its key says what it *is*. Its query says what it *looks for*: an article or
# an adjective looks for a noun, a verb for who does it (something alive), a pronoun for a noun and rather a living
# one, a noun for its adjectives.

# %%
words = ["the", "grey", "dog", "saw", "the", "red", "ball", "and", "it", "barked"]
features = ["article", "adjective", "noun", "alive", "verb", "pronoun"]
kinds = ["article", "adjective", "noun", "verb", "article", "adjective", "noun", "", "pronoun", "verb"]
x_TD = torch.tensor([[float(feature == kind) for feature in features] for kind in kinds])
x_TD[words.index("dog"), features.index("alive")] = 1.0

looks_for = torch.zeros(6, 6)  # row: what I am; column: what I look for
for kind, wanted, strength in [
    ("article", "noun", 6), ("adjective", "noun", 6), ("verb", "alive", 6),
    ("pronoun", "noun", 4), ("pronoun", "alive", 6), ("noun", "adjective", 6),
]:  # fmt: skip
    looks_for[features.index(kind), features.index(wanted)] = strength

queries_TD = x_TD @ looks_for  # W_Q is the table of wishes
keys_TD = x_TD  # W_K changes nothing: a word shows what it is
values_TD = x_TD  # W_V neither: a word gives what it is
shapes(x_TD=x_TD, queries_TD=queries_TD, keys_TD=keys_TD)

# %% [markdown]
# **Predict 2:** *and* looks for nothing: its query is zero. Which weights will it have?
#
# Scores are queries times keys, divided by the root of the width (why: below), and the softmax of each row gives the
# weights.

# %%
scores_QK = queries_TD @ keys_TD.T / math.sqrt(6)
weights_QK = scores_QK.softmax(dim=-1)
shapes(scores_QK=scores_QK, weights_QK=weights_QK)
assert torch.allclose(weights_QK.sum(dim=-1), torch.ones(len(words)))


# %% [markdown]
# In the picture each row is a word that looks, each column a word that is looked at. Read along the row of *it*: a
# high score for *ball*, a higher one for *dog*; after the softmax most of the weight is on *dog*.


# %%
def heatmap(axes, matrix, rows, columns, title, **colours):
    image = axes.imshow(matrix, interpolation="nearest", **colours)
    axes.set_xticks(range(len(columns)), columns, rotation=60, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), rows)
    axes.set(xlabel="key: is looked at", ylabel="query: looks")
    axes.set_title(title, loc="left")
    return image


figure = new_figure(10, 4.6)
left, right = figure.subplots(1, 2)
most = scores_QK.abs().max().item()
image = heatmap(left, scores_QK, words, words, "Scores: how well does a key fit?", cmap=SIGNED, vmin=-most, vmax=most)
figure.colorbar(image, ax=left, shrink=0.8)
image = heatmap(right, weights_QK, words, words, "Weights: softmax of each row", cmap=WEIGHTS, vmin=0, vmax=1)
figure.colorbar(image, ax=right, shrink=0.8)
save(figure, "01_sentence")

# %% [markdown]
# Three things to see. *and* looks for nothing, so all its scores are 0 and its weights are equal: who does not care,
# averages everything. *grey* cannot decide between *dog* and *ball*, and the two rows of *the* are the same. That is
# no accident: nothing in the equation knows where a word stands. Shuffle the words, and the outputs come out the
# same, shuffled. (Positions have to be added; a later lesson does it.)

# %%
dog, it, and_ = (words.index(word) for word in ("dog", "it", "and"))
assert weights_QK[it].argmax() == dog
assert torch.allclose(weights_QK[and_], torch.full((10,), 0.1))
assert torch.allclose(weights_QK[0], weights_QK[4])  # both "the"

output_TD = weights_QK @ values_TD
order = torch.randperm(len(words))
shuffled_TD = (queries_TD[order] @ keys_TD[order].T / math.sqrt(6)).softmax(dim=-1) @ values_TD[order]
assert torch.allclose(shuffled_TD, output_TD[order], atol=1e-6)

# %% [markdown]
# What has it been good for? Each word now carries an average of what it looked at. *it* came in as "a pronoun" and
# nothing else. It leaves as something that is a noun and alive:

# %%
print("it before:", {feature: round(value, 2) for feature, value in zip(features, x_TD[it].tolist(), strict=True)})
print("it after: ", {feature: round(value, 2) for feature, value in zip(features, output_TD[it].tolist(), strict=True)})
assert x_TD[it, features.index("alive")] == 0
assert output_TD[it, features.index("alive")] > 0.6

# %% [markdown]
# (In a real layer the average is *added* to what the word was, so *it* also stays a pronoun. That is the residual
# connection of a later lesson.)
#
# ## From averaging to choosing
#
# The softmax looks at differences of scores. Multiply all scores by a number β, and all differences grow with it.
# With β = 0 all weights are equal; with a large β the highest score takes everything. (1/β is called the
# *temperature*: hot is vague, cold is sharp.) We follow the row of *it*, and measure in how many places it looks: e
# to the power of the entropy −Σ w · log w. That is 10 if ten weights are equal, and 1 if one weight has everything.
#
# **Predict 3:** *ball* has the second-best score. Does its weight fall from the start, as β grows?

# %%
betas = torch.linspace(0, 4, 81)
focus_NK = (betas[:, None] * scores_QK[it]).softmax(dim=-1)
places_N = torch.special.entr(focus_NK).sum(dim=-1).exp()  # entr(w) = −w log w, and 0 at w = 0
shapes(focus_NK=focus_NK, places_N=places_N)
for beta in (0, 20, 40, 80):
    print(f"beta = {betas[beta]:.0f}    on dog {focus_NK[beta, dog]:.3f}    looks at {places_N[beta]:5.2f} places")

assert abs(places_N[0] - 10) < 1e-3
assert places_N[-1] < 1.1

# %% [markdown]
# Left, the weights of *it*: *dog* rises to 1. *ball*, the second best, even gains at first; then it has to give up
# like all the others. Right, the same in one number.

# %%
figure = new_figure(9, 3.4)
left, right = figure.subplots(1, 2)
ball = words.index("ball")
left.plot(betas, focus_NK, color=GREY, linewidth=1)
left.plot(betas, focus_NK[:, dog], color=BLUE, linewidth=2.5, label="dog")
left.plot(betas, focus_NK[:, ball], color=ORANGE, linewidth=2.5, label="ball")
left.plot([], [], color=GREY, label="each of the other words")
left.set(xlabel="β: factor on the scores", ylabel="weight")
left.set_title('What "it" looks at', loc="left")
left.legend(frameon=False, loc="center right")
right.plot(betas, places_N, color=GREEN, linewidth=2.5)
right.set(xlabel="β: factor on the scores", ylabel="e^entropy", ylim=(0, 10.5))
right.set_title("In how many places", loc="left")
save(figure, "01_focus")

# %% [markdown]
# A model needs no knob for β: if W_Q grows, scores grow. So it learns for each word and each layer how sharp to look.
# What it needs is a good place to *start* from, somewhere in the middle. That is what the root is for.
#
# ## Why divide by √d_k
#
# d_k is the width of queries and keys. Say that their numbers are independent, with mean 0 and variance 1, about as
# in a fresh model. The dot product is a sum of d_k products. A product of two such numbers has mean 0 and variance 1
# as well, and the variances of independent numbers add up:
#
#     q · k = q₁k₁ + q₂k₂ + ... + q_d k_d
#     Var(q · k) = 1 + 1 + ... + 1 = d_k          so q · k is of the size of √d_k
#
# (The paper says so in a footnote of section 3.2.1.) With d_k = 64 the scores are of size 8. Differences of 8 or 16
# are a lot for a softmax: e⁸ is about 3000. Divided by √d_k, their variance is 1 whatever the width. Let us measure
# it.
#
# **Predict 4:** without the root and with d_k = 1024, how much of the weight does the best of 16 random keys get?

# %%
widths = [1, 4, 16, 64, 256, 1024]
dots = {d_k: (torch.randn(20_000, d_k) * torch.randn(20_000, d_k)).sum(dim=-1) for d_k in widths}
variances = {d_k: dot.var().item() for d_k, dot in dots.items()}
for d_k, variance in variances.items():
    print(f"d_k = {d_k:4}    variance of q·k {variance:8.2f}    of q·k/√d_k {(dots[d_k] / math.sqrt(d_k)).var():.2f}")
assert all(0.85 * d_k < variance < 1.15 * d_k for d_k, variance in variances.items())

# %% [markdown]
# Now what the softmax makes of them. A query meets 16 keys; how large is the largest of the 16 weights? And how does
# it learn? The softmax has the derivative
#
#     ∂w_i/∂s_j = w_i (δᵢⱼ − w_j)                 δᵢⱼ is 1 if i = j, else 0
#
# Put a weight of 1 in: 1 · (1 − 1) = 0. Put a weight of 0 in: 0. If the softmax has already chosen, *all* its
# derivatives vanish. It does not matter whether the choice was right. We measure the size of this matrix for many
# queries and take the median.


# %%
def choice_and_slope(d_k, scale, n_queries=2000, n_keys=16):
    """Medians over random queries: the largest weight, and the size of the derivative of the weights by the scores."""
    q_QE, k_QKE = torch.randn(n_queries, d_k), torch.randn(n_queries, n_keys, d_k)
    w_QK = ((k_QKE @ q_QE[:, :, None])[:, :, 0] * scale).softmax(dim=-1)
    slopes_QKK = torch.diag_embed(w_QK) - w_QK[:, :, None] * w_QK[:, None, :]
    return w_QK.amax(dim=-1).median().item(), slopes_QKK.flatten(1).norm(dim=-1).median().item()


unscaled = [choice_and_slope(d_k, 1.0) for d_k in widths]
scaled = [choice_and_slope(d_k, 1 / math.sqrt(d_k)) for d_k in widths]
print("           without the root              with the root")
for d_k, (choice, slope), (scaled_choice, scaled_slope) in zip(widths, unscaled, scaled, strict=True):
    print(f"d_k {d_k:5}  largest {choice:.2f} slope {slope:.4f}", end="    ")
    print(f"largest {scaled_choice:.2f} slope {scaled_slope:.4f}")
lost = scaled[-1][1] / unscaled[-1][1]
print(f"For d_k = 1024 the slope without the root is smaller by a factor of {lost:.0f}.")
assert unscaled[-1][0] > 0.95
assert scaled[-1][0] < 0.5
assert lost > 10

# %% [markdown]
# In the picture, orange is without the root, blue with it. Left: the variance. Middle: the largest weight goes to 1
# as the width grows, so a fresh model would look at one random word and at nothing else. Right: the derivative goes
# to 0 with it.

# %%
figure = new_figure(11, 3.3)
left, middle, right = figure.subplots(1, 3)
left.plot(widths, list(variances.values()), color=ORANGE, marker="o", label="q·k")
left.plot(widths, [variances[d_k] / d_k for d_k in widths], color=BLUE, marker="o", label="q·k/√d_k")
left.set(yscale="log", ylabel="variance")
left.set_title("Size of the scores", loc="left")
left.legend(frameon=False)
for axes, part, title, label in (
    (middle, 0, "How much one key gets", "largest of 16 weights"),
    (right, 1, "What is left to learn from", "size of ∂weights/∂scores"),
):
    axes.plot(widths, [both[part] for both in unscaled], color=ORANGE, marker="o")
    axes.plot(widths, [both[part] for both in scaled], color=BLUE, marker="o")
    axes.set(ylabel=label, ylim=(0, None))
    axes.set_title(title, loc="left")
for axes in (left, middle, right):
    axes.set(xscale="log", xlabel="width d_k")
    axes.set_xticks(widths, [str(d_k) for d_k in widths])
    axes.minorticks_off()
save(figure, "01_root")

# %% [markdown]
# ## The equation
#
# Now everything has been said, and equation 1 of the paper can be written down:
#
#     Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V


# %%
def attention(q, k, v):
    scores_BHQK = q @ k.mT / math.sqrt(q.size(-1))  # how well does each key fit each query?
    weights_BHQK = scores_BHQK.softmax(dim=-1)  # as shares of 1
    return weights_BHQK @ v  # the average of the values, with these shares


# %% [markdown]
# Four lines. (`.mT` swaps the last two axes.) The library has the same equation twice: `attend_exact` in
# [nn/kernels.py](../src/cutaway/nn/kernels.py) spells it out, with masks and more; `attend_fused` hands it to
# PyTorch's fused kernel. B texts and H heads go through side by side; heads come in the next lesson.

# %%
q_BHQE, k_BHKE, v_BHKE = torch.randn(2, 1, 5, 8), torch.randn(2, 1, 7, 8), torch.randn(2, 1, 7, 8)
mine = attention(q_BHQE, k_BHKE, v_BHKE)
shapes(q_BHQE=q_BHQE, k_BHKE=k_BHKE, v_BHKE=v_BHKE, output_BHQE=mine)

exact_difference = (mine - attend_exact(q_BHQE, k_BHKE, v_BHKE)).abs().max().item()
fused_difference = (mine - attend_fused(q_BHQE, k_BHKE, v_BHKE)).abs().max().item()
print(f"greatest difference to attend_exact: {exact_difference:.1e}, to attend_fused: {fused_difference:.1e}")
assert torch.allclose(mine, attend_exact(q_BHQE, k_BHKE, v_BHKE), atol=1e-6)
assert torch.allclose(mine, attend_fused(q_BHQE, k_BHKE, v_BHKE), atol=1e-6)

# %% [markdown]
# There is a third writing: [the NumPy twin](../docs/twin.md), where every operation returns its output *and* its
# derivative, written by hand. So it can confirm not only our output, but also PyTorch's gradients.

# %%
from cutaway.twin import ops

inputs = [torch.randn(2, 1, n, 8, dtype=torch.float64, requires_grad=True) for n in (5, 7, 7)]
mine = attention(*inputs)
mine.sum().backward()

theirs, backward = ops.attention(*(x.detach().numpy() for x in inputs))
d_q, d_k, d_v, _ = backward(np.ones_like(theirs))
twin_difference = np.abs(mine.detach().numpy() - theirs).max()
gradient_difference = max(
    np.abs(x.grad.numpy() - gradient).max() for x, gradient in zip(inputs, (d_q, d_k, d_v), strict=True)
)
print(f"greatest difference to the twin: output {twin_difference:.1e}, gradients {gradient_difference:.1e}")
assert twin_difference < 1e-12
assert gradient_difference < 1e-12

# %% [markdown]
# ## Three ways to carry information
#
# Why attention, and not a layer that was known before? A text of n words comes in as n vectors of d numbers. A layer
# gives n new vectors. How does what the first word says get into the vector of the last one?
#
#     recurrence                 convolution, kernel 3          attention
#
#                                 ○   ○   ○   ○   ●
#                                         ┌───┬───┤
#     h₁─▶h₂─▶h₃─▶h₄─▶h₅          ○   ○   ●   ●   ●              ○   ○   ○   ○   ●
#     ▲   ▲   ▲   ▲   ▲           ┌───┬───┼───┬───┤              ┌───┬───┬───┬───┤
#     x₁  x₂  x₃  x₄  x₅          x₁  x₂  x₃  x₄  x₅             x₁  x₂  x₃  x₄  x₅
#
# - **Recurrence** (an LSTM) reads word by word and keeps a state. The first word reaches the last through every state
#   in between: n steps, one after the other.
# - **Convolution** looks at k neighbours. All places at once, but one layer sees only k words, so far words need many
#   layers.
# - **Attention** compares each word with each other word directly. One step, whatever the distance.
#
# Section 4 of the paper puts this into its table 1 (without the row for restricted attention, which looks at
# neighbours only):
#
# | layer | operations | steps one after the other | longest path between two words |
# |---|---|---|---|
# | self-attention | n² · d | 1 | 1 |
# | recurrent | n · d² | n | n |
# | convolutional | k · n · d² | 1 | log_k(n) |
#
# The longest path matters because of learning. A gradient has to travel the same path backwards, and on each step it
# may get smaller. We do not have to believe the table: each column can be measured.

# %% [markdown]
# ### The path, measured
#
# We ask by how much the *last* output moves when *one* input moves a little. That is a derivative, so PyTorch can say
# it: ∂output_last/∂x_t, a d×d matrix for each t, of which we take the size (the root of the sum of its squares).
# First a helper, and a convolution that looks back: its output at t sees t, t−1, ..., t−(k−1).


# %%
def influence(layer, n, d=16):
    """How much each of n inputs moves the last output: [n] numbers, the sizes of ∂output_last/∂x_t."""
    x_TD = torch.randn(n, d, dtype=torch.float64)
    jacobian_DTD = torch.autograd.functional.jacobian(lambda x_TD: layer(x_TD[None])[0, -1], x_TD)
    return jacobian_DTD.square().sum(dim=(0, 2)).sqrt()


class LookBack(nn.Module):
    """A convolution over the k words up to this one; with a dilation, over every dilation-th word."""

    def __init__(self, d, k=3, dilation=1):
        super().__init__()
        self.before = (k - 1) * dilation
        self.conv = nn.Conv1d(d, d, k, dilation=dilation, dtype=torch.float64)

    def forward(self, x_BTD):
        x_BDT = nn.functional.pad(x_BTD.mT, (self.before, 0))  # nn.Conv1d wants the words last
        return self.conv(x_BDT).mT


# %% [markdown]
# Now a text of 64 vectors through an LSTM, through four convolutions, and through one layer of attention. All have
# fresh random weights: what we see is how the layers are *built*, before any learning. (`MultiHeadAttention` is the
# library's attention with its projections, which the next lesson explains.)
#
# **Predict 5:** which of the three layers lets the first word influence the last one as much as a neighbour does?

# %%
n, d = 64, 16
lstm = nn.LSTM(d, d, batch_first=True).double()
convolutions = nn.Sequential(*(LookBack(d) for _ in range(4)))
attention_layer = MultiHeadAttention(d, n_heads=1, kernel=attend_exact).double()

reach = {
    "LSTM": influence(lambda x_BTD: lstm(x_BTD)[0], n),
    "4 convolutions, kernel 3": influence(convolutions, n),
    "attention": influence(attention_layer, n),
}
for name, sizes in reach.items():
    print(f"{name:26} first word {sizes[0]:8.1e}    middle {sizes[n // 2]:8.1e}    last but one {sizes[-2]:8.1e}")

assert reach["LSTM"][0] < 1e-6 * reach["LSTM"][-2]
assert reach["4 convolutions, kernel 3"][0] == 0
assert reach["attention"][0] > 0.1 * reach["attention"][-2]

# %% [markdown]
# Look at the shapes of the three curves. The scale is logarithmic: each line of the grid is a factor.

# %%
figure = new_figure(8, 3.8)
axes = figure.add_subplot()
for (name, sizes), colour in zip(reach.items(), (ORANGE, GREEN, BLUE), strict=True):
    seen = sizes > 0
    axes.plot(torch.arange(n)[seen] + 1, sizes[seen], color=colour, marker=".", label=name)
axes.axvspan(1, n - 8.5, color=GREEN, alpha=0.08, linewidth=0)
axes.text(3, 1e-5, "here the convolutions\nsee exactly nothing", color=GREEN, va="top")
axes.set(yscale="log", xlabel="position t of the input that moves", ylabel="size of ∂output_last/∂x_t", xlim=(0, n + 1))
axes.set_title("How strongly the last output feels each word: only attention feels all alike", loc="left")
axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(0.88, 0.0))
axes.grid(alpha=0.25)
save(figure, "01_path")

# %% [markdown]
# The LSTM forgets by a constant factor a step, which makes a straight line here and nothing at all after a long text.
# The convolutions are cut off: beyond 4·(3−1) = 8 words back there is no path. Attention is low, as each word is one
# of 64, but it is *flat*: the first word counts as much as a neighbour.
#
# To be fair: an LSTM can learn to keep its forget gate open, and then forgets more slowly (try it below). That makes
# each step better. It does not make the path shorter.

# %% [markdown]
# ### The price, measured
#
# Nothing is free. If each of n words looks at each of n words, there are n² comparisons. PyTorch can count the
# multiplications and additions of a piece of code, on any machine with the same result. We count those of attention
# with d = 256, and write beside it what an LSTM needs: four gates, each of them a d×d matrix for the word and one for
# the state, which makes 16 · n · d² operations (a multiplication and an addition for each number of a matrix).

# %%
from torch.utils.flop_counter import FlopCounterMode


def operations(n, d):
    q = k = v = torch.randn(1, 1, n, d)
    with FlopCounterMode(display=False) as counter:
        attend_exact(q, k, v)
    return counter.get_total_flops()


d = 256
counts = {n: operations(n, d) for n in (128, 256, 512, 1024, 2048)}
for n, count in counts.items():
    print(f"n = {n:4}    attention {count / 1e6:7.1f} million    LSTM {16 * n * d * d / 1e6:7.1f} million")
assert all(counts[2 * n] == 4 * counts[n] for n in (128, 256, 512, 1024))  # twice the words, four times the work

# %% [markdown]
# Attention does 4 · n² · d operations and the LSTM 16 · n · d². The two are equal at n = 4d. Sentences have a few
# dozen words and models have a width of some hundreds, so for sentences the square is the cheaper one. For books it
# is not.
#
# Operations are not time. An LSTM cannot begin with word t before it has finished word t−1, so a processor that could
# do a thousand things at once has to wait. Now the clock, with a whole layer of attention, projections included: once
# with the equation spelled out, once with PyTorch's fused kernel, which computes the same without ever storing the n²
# numbers. (It saves memory. It cannot save the n² operations.)


# %%
def seconds(run, times=4):
    """The best of several tries: what other programs on the machine take away is not what we want to know."""
    run()
    tries = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        tries.append(time.perf_counter() - start)
    return min(tries)


# %% [markdown]
# Each layer gets the same random texts, from a short sentence to several pages.

# %%
timed_lstm = nn.LSTM(d, d, batch_first=True)
exact = MultiHeadAttention(d, n_heads=1, kernel=attend_exact)
fused = MultiHeadAttention(d, n_heads=1, kernel=attend_fused)
long_lengths = [32, 64, 128, 256, 512, 1024, 2048]
clock = {"LSTM": [], "attention, spelled out": [], "attention, fused": []}
with torch.inference_mode():
    for n in long_lengths:
        x_BTD = torch.randn(1, n, d)
        for times, layer in zip(clock.values(), (timed_lstm, exact, fused), strict=True):
            times.append(seconds(lambda layer=layer, x_BTD=x_BTD: layer(x_BTD)))

# %% [markdown]
# On two logarithmic axes a power of n is a straight line, and its power is the slope. The grey lines have the slopes
# 1 and 2: compare with them. The LSTM runs parallel to n. Attention begins like that too, while its projections,
# which grow with n, are most of the work; then it bends towards n². Then look at the left end, where sentences are,
# and at the right end.

# %%
figure = new_figure(7.5, 4.2)
axes = figure.add_subplot()
for (name, times), colour in zip(clock.items(), (ORANGE, BLUE, GREEN), strict=True):
    axes.plot(long_lengths, [1000 * t for t in times], color=colour, marker="o", label=name)
highest = 3000 * max(times[-1] for times in clock.values())
for power in (1, 2):
    guide = [highest * (n / 2048) ** power for n in long_lengths[-4:]]
    axes.plot(long_lengths[-4:], guide, color=GREY, linestyle=":")
    axes.text(256, guide[0], "n² " if power == 2 else "n ", color=GREY, ha="right", va="center")
axes.set(xscale="log", yscale="log", xlabel="words n", ylabel="milliseconds for one text")
axes.set_xticks(long_lengths, [str(n) for n in long_lengths])
axes.minorticks_off()
axes.grid(alpha=0.25)
axes.legend(frameon=False)
axes.set_title(f"Time of one layer of width {d} on this machine", loc="left")
save(figure, "01_time")

# %% [markdown]
# The same in numbers: by what factor does the time grow from n = 128 to n = 2048, sixteen times the words?

# %%
growth = {name: times[-1] / times[2] for name, times in clock.items()}
for name, times in clock.items():
    short, long = 1000 * times[0], 1000 * times[-1]
    print(f"{name:24} n = 32: {short:6.2f} ms    n = 2048: {long:6.1f} ms    16 times the words: x {growth[name]:.0f}")
slower = clock["LSTM"][0] / clock["attention, fused"][0]
print(f"For 32 words the LSTM takes {slower:.1f} times as long as fused attention.")
assert growth["attention, spelled out"] > 1.5 * growth["LSTM"]

# %% [markdown]
# So this is what the paper proposes: n² operations, which can all be done at the same time, for a path of length 1.
# [The book](../book/paper/why-self-attention.md) also counts the steps of the paths, for dilated convolutions and
# windows too.

# %% [markdown]
# ## What to remember
#
# - Attention connects any two words in one step. An LSTM needs n steps one after the other, a stack of convolutions
#   log_k(n) layers or more.
# - The price is n² comparisons. They are independent of each other, so they can all be made at once.
# - Query, key, value: a dictionary whose keys need not fit exactly, and whose answer is an average of all values.
# - Weights are positive and sum to 1 in each row. Large differences of scores choose, small ones average.
# - Scores of width d_k have variance d_k. Without division by √d_k the softmax is saturated from the start, and its
#   derivatives vanish.
# - The equation does not know about order.
#
# ## Answers
#
# 1. One leg: the average of 2 and 0. A soft look-up cannot answer "one or the other".
# 2. Ten equal weights of 0.1: all its scores are 0, and the softmax of equal scores is uniform.
# 3. No. It rises at first, because it gains on the worse words, and falls when *dog* takes everything.
# 4. Nearly all of it: the largest weight is above 0.95. With the root it is below 0.5.
# 5. Only attention. The LSTM's influence falls with each step, the convolutions reach eight words back.
#
# ## Try it yourself
#
# 1. Open the LSTM's forget gate: before `influence`, set `lstm.bias_ih_l0.data[d : 2 * d] = 3` (with d = 16). Does
#    its line become flatter? Is it flat?
# 2. Let verbs look for articles instead of living things: change one row of the table of wishes. Which weights
#    change, and which stay exactly as they were?
# 3. Repeat the measurement of √d_k with numbers of variance 4 instead of 1. What would you have to divide by now? (A
#    norm before attention takes care of this; see the lesson about layers.)
#
# ## Next
#
# Build it yourself: `cutaway check --start my-exercises` copies the exercises out, `cutaway check 1` looks at
# your work. Or break it: `cutaway lab no-scaling`. Then:
#
# [2. Multi-head attention](02_multi_head_attention.py): the duck again. One softmax gives one average. What if a word
# needs two things?
