# %% [markdown]
# # 2. Multi-head attention
#
# Attention answers a query with one average. A word often needs more: a verb wants to know *who* does it, and also
# *to whom*. The paper's remedy is several attentions side by side, called heads. In code that is one matrix, one
# `view` and one `transpose`, and it is easy to get wrong without any error message.
#
# At the end you will know
#
# - what one head cannot do and two heads can;
# - how all heads fit into one matrix, and what `view`, `transpose` and `contiguous` do in memory;
# - how masks hide padding and the future, and why they act before the softmax;
# - that more heads cost no more parameters;
# - how to look at the weights of any attention inside a model.
#
# It goes with sections 3.2.2 (multi-head attention) and 3.2.3 (where it is used, masking) of "Attention Is All You
# Need", and with its figure 2.

# %%
import math

import torch
import torch.nn.functional as F

from cutaway import MultiHeadAttention, build_model, edit_activations, preset, record_activations
from cutaway.course.lesson import save, shapes
from cutaway.explore.figures import BLUE, GREEN, GREY, ORANGE, WEIGHTS, new_figure
from cutaway.nn.kernels import attend_exact, attend_fused
from cutaway.nn.masks import causal_mask, padding_mask
from cutaway.nn.recording import without_head

torch.manual_seed(0)
torch.set_num_threads(1)  # the tensors are small: a second core would only wait

# %% [markdown]
# ## One softmax is one average
#
# Here is a task that needs two looks. A sentence has six words in random order: a verb, its subject, its object, and
# three others. Each word is a vector: four numbers say which of these it is (its role), eight random numbers are its
# meaning, and four are empty. The verb has to report the meaning of the subject *and* the meaning of the object,
# sixteen numbers.
#
#     role     meaning            empty
#     1 0 0 0  m₁ m₂ ... m₈       0 0 0 0


# %%
def sentences(n):
    """x [n,6,16], the number of each word (0 verb, 1 subject, 2 object, 3 to 5 others), and what is to be reported."""
    number_BT = torch.rand(n, 6).argsort(dim=-1)  # six numbers in random order
    role_BT = number_BT.clamp(max=3)
    meaning_BTE = torch.randn(n, 6, 8)
    x_BTD = torch.cat([F.one_hot(role_BT, 4), meaning_BTE, torch.zeros(n, 6, 4)], dim=-1)
    wanted_BD = torch.cat([meaning_BTE[number_BT == 1], meaning_BTE[number_BT == 2]], dim=-1)
    return x_BTD, number_BT, wanted_BD


x_BTD, number_BT, wanted_BD = sentences(2)
print("words of the first sentence:", number_BT[0].tolist())
shapes(x_BTD=x_BTD, wanted_BD=wanted_BD)

# %% [markdown]
# Why should one head fail? Let it give the weight a to the subject and b to the object. Whatever the value matrix
# does, both meanings go through the same one, and what arrives is a·V(subject) + b·V(object): a mixture, from which
# nobody can tell the parts. It is the duck of lesson 1. In the language of matrices: the map from the two meanings to
# the report would have to be of rank 2, and an average with fixed weights has rank 1. The best that it can do is to
# report one of the two, or the mean for both, and the squared error of that is half of the error of saying nothing.
#
# Now let PyTorch try, with one, two and four heads. The width of the layer is 16 each time.


# %%
def learn(n_heads, steps=400):
    torch.manual_seed(1)
    layer = MultiHeadAttention(16, n_heads)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, steps)
    errors = []
    for _ in range(steps):
        x_BTD, number_BT, wanted_BD = sentences(128)
        report_BD = layer(x_BTD)[number_BT == 0]  # what comes out at the verb
        error = (report_BD - wanted_BD).square().mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        schedule.step()
        errors.append(error.item())
    return layer, errors


# %% [markdown]
# The errors are means over the last steps. To say nothing, that is zeros, would give 1, the variance of the meanings.

# %%
learned = {n_heads: learn(n_heads) for n_heads in (1, 2, 4)}
final_error = {n_heads: sum(errors[-20:]) / 20 for n_heads, (_, errors) in learned.items()}
print({n_heads: round(error, 4) for n_heads, error in final_error.items()})
assert final_error[1] > 0.35
assert final_error[2] < 0.01
assert final_error[4] < 0.01

# %% [markdown]
# Look at where the curves end. One head gets stuck a little below one half. (A little below, because the weights can
# depend on the meanings, and so a clever head smuggles a bit more out. See "Try it yourself".)

# %%
figure = new_figure(7, 3.4)
axes = figure.add_subplot()
for (n_heads, (_, errors)), colour in zip(learned.items(), (ORANGE, BLUE, GREEN), strict=True):
    axes.plot(errors, color=colour, label=f"{n_heads} head{'s' if n_heads > 1 else ''}")
axes.axhline(0.5, color=GREY, linestyle=":")
axes.text(400, 0.53, "the best average", color=GREY, ha="right")
axes.set(xlabel="step", ylabel="mean squared error", ylim=(0, 1.3))
axes.legend(frameon=False)
axes.set_title("Who, and to whom? One head cannot report two words", loc="left")
save(figure, "02_learning")

# %% [markdown]
# What do the heads do? `record_activations` shows any value that has a name inside a module; `weights` is the one we
# want. We take the row of the verb, and put the columns of all sentences into the same order, verb first.


# %%
def verb_weights(layer, n=200):
    """The mean weights of the verb over n sentences: [H, 6], the columns in the order of `role_names`."""
    x_BTD, number_BT, _ = sentences(n)
    with record_activations(layer, "weights") as seen, torch.no_grad():
        layer(x_BTD)
    weights_BHQK = seen["weights"]
    row_BHK = weights_BHQK.transpose(1, 2)[number_BT == 0]
    order_BHK = number_BT.argsort(dim=-1)[:, None].expand_as(row_BHK)
    return row_BHK.gather(-1, order_BHK).mean(dim=0)


role_names = ["verb", "subject", "object", "other", "other", "other"]
patterns = {n_heads: verb_weights(layer) for n_heads, (layer, _) in learned.items()}
shapes(one_HK=patterns[1], two_HK=patterns[2], four_HK=patterns[4])

# %% [markdown]
# Each row is a head. One head has to divide its look. Two heads can part: look for a row in which *subject* is
# dark, and one in which *object* is.

# %%
figure = new_figure(10, 2.9)
for axes, (n_heads, pattern_HK) in zip(figure.subplots(1, 3), patterns.items(), strict=True):
    image = axes.imshow(pattern_HK, cmap=WEIGHTS, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    for head in range(n_heads):
        for role in (1, 2):
            weight = pattern_HK[head, role].item()
            axes.text(role, head, f"{weight:.2f}", ha="center", va="center", color="white" if weight > 0.5 else "black")
    axes.set_xticks(range(6), role_names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(n_heads), [f"head {head}" for head in range(n_heads)])
    axes.set_title(f"{n_heads} head{'s' if n_heads > 1 else ''}", loc="left")
    axes.set(xlabel="key: is looked at")
figure.axes[0].set_ylabel("query: the verb")
figure.colorbar(image, ax=figure.axes, label="weight", fraction=0.03)
figure.suptitle("What the verb looks at: the mean over 200 sentences", x=0.01, ha="left", fontsize=11)
save(figure, "02_heads")

# %% [markdown]
# The same as numbers: which of the two heads is for the subject, and which for the object?

# %%
who, whom = patterns[2][:, 1].argmax().item(), patterns[2][:, 2].argmax().item()
assert who != whom  # one head for the subject, another for the object
assert patterns[1][0, 1:3].min() > 0.25  # the single head is torn
print(f"subject: head {who}, object: head {whom}")

# %% [markdown]
# Do the heads really share the work like that? We can switch one off: `edit_activations` changes a value inside a
# module while it runs. Without the head that looks at subjects, the first eight numbers of the report should suffer,
# and the last eight much less. (Less, not nothing: two heads must look *differently* to be of use, but nothing forces
# them to be pure.)

# %%
two_heads, _ = learned[2]
x_BTD, number_BT, wanted_BD = sentences(500)
damage = {}
for name, edits in {
    "both heads": {},
    "without the subject head": {"heads": without_head(who)},
    "without the object head": {"heads": without_head(whom)},
}.items():
    with edit_activations(two_heads, edits), torch.no_grad():
        error_BD = (two_heads(x_BTD)[number_BT == 0] - wanted_BD).square()
    damage[name] = error_BD[:, :8].mean().item(), error_BD[:, 8:].mean().item()
    print(f"{name:26} error of the subject {damage[name][0]:.3f}, of the object {damage[name][1]:.3f}")

assert damage["without the subject head"][0] > 3 * damage["without the subject head"][1]
assert damage["without the object head"][1] > 3 * damage["without the object head"][0]

# %% [markdown]
# ## The projections
#
# The paper writes multi-head attention like this (section 3.2.2):
#
#     MultiHead(Q, K, V) = Concat(head₁, ..., head_h) W_O
#     head_i = Attention(Q W_Qi, K W_Ki, V W_Vi)
#
# Each head has projections of its own from the width D to a smaller width E = D/H (the paper: 512 to 64, with 8
# heads), so it looks at the words from its own side. Nobody computes H small products, though. The H matrices are put
# side by side into one of size D×D; one large product gives all heads at once, and a head is a range of E columns of
# the result.

# %%
layer = MultiHeadAttention(d_model=16, n_heads=4)
x_TD = torch.randn(5, 16)  # five words
all_heads_TD = layer.query(x_TD)
head_2_TE = x_TD @ layer.query.weight[8:12].T + layer.query.bias[8:12]  # nn.Linear keeps its matrix transposed
shapes(all_heads_TD=all_heads_TD, head_2_TE=head_2_TE)
print("greatest difference:", (all_heads_TD[:, 8:12] - head_2_TE).abs().max().item())
assert torch.allclose(all_heads_TD[:, 8:12], head_2_TE, atol=1e-6)

# %% [markdown]
# ## Splitting into heads: view, then transpose
#
# The attention of lesson 1 wants a tensor [B, H, T, E]: for each text and each head, T vectors of width E. What we
# have is [B, T, D] with D = H·E. It is easy to go wrong on the way from one to the other. So we take numbers that can
# be followed. Three words, width 4, two heads. The tens say which word a number belongs to, the ones which dimension.

# %%
x_TD = torch.tensor([[10, 11, 12, 13], [20, 21, 22, 23], [30, 31, 32, 33]])
right_HTE = x_TD.view(3, 2, 2).transpose(0, 1)  # T, H, E, then H to the front
wrong_HTE = x_TD.view(2, 3, 2)  # straight to H, T, E
shapes(x_TD=x_TD, right_HTE=right_HTE, wrong_HTE=wrong_HTE)
print("view, transpose:", right_HTE.tolist())
print("view alone:     ", wrong_HTE.tolist())

# %% [markdown]
# The shapes are the same, so nothing complains. But in the right one head 0 has dimensions 0 and 1 of every word. In
# the wrong one head 0 has both halves of word 1 and one half of word 2, as if they were three words. Words are mixed
# up.
#
# To see why, look at the memory. A tensor is a row of numbers in memory, and a *stride* for each axis: how far to
# jump to get to the next entry along that axis. `view` and `transpose` never move a number; they return new strides
# for the same row.

# %%
print("memory:", x_TD.flatten().tolist())
for name, tensor in {
    "x_TD": x_TD,
    "view_THE": x_TD.view(3, 2, 2),
    "right_HTE": right_HTE,
    "wrong_HTE": wrong_HTE,
}.items():
    same = tensor.data_ptr() == x_TD.data_ptr()
    print(f"{name:10} shape {tuple(tensor.shape)!s:10} strides {tensor.stride()!s:10} same memory: {same}")
assert right_HTE.stride() == (2, 4, 1)
assert wrong_HTE.stride() == (6, 2, 1)

# %% [markdown]
# Read the strides (2, 4, 1) of the right one: to the next head jump 2, which is to the other half of the same word;
# to the next word jump 4, a whole word. Now the wrong one, (6, 2, 1): "to the next word" jumps 2, and that is not a
# word, it is half of one. `view` can cut an axis into pieces or glue neighbouring axes together, always in the order
# of memory. Only `transpose` changes the order of axes. So: first cut D into (H, E), where it belongs, then move H.
#
# In the picture the colour is the word. On the right way each row of a head has one colour, and each head has all
# three.


# %%
def draw_boxes(axes, numbers, title):
    """Numbers in boxes; the colour says which word a number came from."""
    colours = {1: BLUE, 2: ORANGE, 3: GREEN}
    for row, line in enumerate(numbers):
        for column, number in enumerate(line):
            axes.fill_between([column, column + 0.94], -row, -row - 0.92, color=colours[number // 10], linewidth=0)
            axes.text(column + 0.47, -row - 0.46, str(number), color="white", ha="center", va="center")
    axes.set(xlim=(0, len(numbers[0])), ylim=(-len(numbers), 0.05), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.set_title(title, loc="left", fontsize=10)


# %% [markdown]
# Above, the row in memory; below, what the two ways make of it. A line of boxes is what attention takes for a word.

# %%
figure = new_figure(8, 3.7)
grid = figure.add_gridspec(2, 5, height_ratios=(1, 3), width_ratios=(1, 1, 0.4, 1, 1))
draw_boxes(figure.add_subplot(grid[0, :]), [x_TD.flatten().tolist()], "In memory: word 1, word 2, word 3")
for column, name, heads_HTE in ((0, "Right", right_HTE), (3, "Wrong", wrong_HTE)):
    for head in range(2):
        axes = figure.add_subplot(grid[1, column + head])
        draw_boxes(axes, heads_HTE[head].tolist(), f"{name}: head {head}")
        axes.set(xlabel="width E", ylabel="words T" if head == 0 else "")
figure.suptitle("view, then transpose keeps words apart; view alone mixes them", x=0.01, ha="left", fontsize=11)
save(figure, "02_layout")

words_in_line = [{number // 10 for number in line} for line in right_HTE[0].tolist()]
assert words_in_line == [{1}, {2}, {3}]
assert [line[0] // 10 for line in wrong_HTE[0].tolist()] == [1, 1, 2]  # "three words" of head 0: 1, 1 and 2

# %% [markdown]
# ### The way back, and contiguous
#
# After attention the heads have to be put side by side again: [H, T, E] to [T, H·E]. First `transpose` back, then
# glue H and E together. For the result of `weights @ v` this is a problem: a product is a new tensor, in whose memory
# the heads lie one after the other. The numbers of head 0 and those of head 1 of the same word are no longer
# neighbours. No strides can describe the glued axis, and `view` refuses. (Good: an error is better than a mixture.)

# %%
heads_HTE = right_HTE.contiguous()  # as attention returns it: a new tensor, its heads one after the other
back_THE = heads_HTE.transpose(0, 1)
print("strides", back_THE.stride(), "contiguous:", back_THE.is_contiguous())
try:
    back_THE.view(3, 4)
except RuntimeError as error:
    print("view says:", str(error).split(".")[0])

merged_TD = back_THE.contiguous().view(3, 4)
print(merged_TD.tolist())
assert torch.equal(merged_TD, x_TD)
assert merged_TD.data_ptr() != heads_HTE.data_ptr()  # this time numbers were moved

# %% [markdown]
# `contiguous` copies the numbers into the order that the shape promises; then `view` has nothing against it.
# `reshape` and `flatten` do the same in one: a view if possible, a copy if not. The library's `split` and `merge` in
# [nn/attention.py](../src/cutaway/nn/attention.py) are these two lines.

# %%
layer = MultiHeadAttention(d_model=4, n_heads=2)
x_BTD = x_TD[None]  # a batch of one text
assert torch.equal(layer.split(x_BTD)[0], right_HTE)
assert torch.equal(layer.merge(layer.split(x_BTD)), x_BTD)
shapes(x_BTD=x_BTD, split_BHTE=layer.split(x_BTD), merged_BTD=layer.merge(layer.split(x_BTD)))

# %% [markdown]
# ## Masks: who may look where
#
# Two kinds of keys must not be looked at. Texts of a batch have different lengths and are filled up with *padding*,
# which means nothing. And a decoder that learns to predict the next word must not see it, so a word may look only at
# itself and at what came before: a *causal* mask. Spelled out, a mask is a matrix of booleans, and in Cutaway it has
# one meaning everywhere: **True = may attend**. So masks are joined with `&`. (Inside its models the library keeps
# masks as rules, and spells out only what is needed: see [nn/masks.py](../src/cutaway/nn/masks.py).)

# %%
lengths_B = torch.tensor([5, 3])  # the second text is shorter
is_token_BK = torch.arange(5) < lengths_B[:, None]
padding_B11K = padding_mask(is_token_BK)
causal_QK = causal_mask(5)
both_B1QK = padding_B11K & causal_QK
shapes(padding=padding_B11K, causal_QK=causal_QK, both=both_B1QK)
print(both_B1QK[1, 0].int())

# %% [markdown]
# The axes of length 1 stand for "the same for all": padding is the same for all heads and all queries, causality for
# all texts and all heads. PyTorch stretches them when they meet (*broadcasting*), so nothing is stored twice.
#
# ### Before the softmax, not after
#
# There are two ways to take a key out: set its *score* to −∞ before the softmax, or its *weight* to 0 after it. They
# are not the same. We hide the last of three keys.

# %%
scores_K = torch.tensor([1.0, 2.0, 4.0])
allowed_K = torch.tensor([True, True, False])
before_K = scores_K.masked_fill(~allowed_K, -math.inf).softmax(dim=-1)
after_K = scores_K.softmax(dim=-1).masked_fill(~allowed_K, 0.0)
print("−∞ before:", before_K.tolist(), "sum", before_K.sum().item())
print("0 after:  ", after_K.tolist(), "sum", after_K.sum().item())
assert abs(before_K.sum() - 1) < 1e-6
assert after_K.sum() < 0.5

# %% [markdown]
# e^(−∞) = 0: with −∞ before, the hidden key adds nothing to the sum that everything is divided by. With 0 after it,
# the hidden key has already taken its share. The other weights are too small, and worse: how small they are depends
# on the hidden key. The future has leaked into the past. We move the hidden score and see who notices.

# %%
hidden = torch.linspace(-4, 8, 61)
many_NK = torch.stack([torch.full_like(hidden, 1.0), torch.full_like(hidden, 2.0), hidden], dim=-1)
before_NK = many_NK.masked_fill(~allowed_K, -math.inf).softmax(dim=-1)
after_NK = many_NK.softmax(dim=-1).masked_fill(~allowed_K, 0.0)
leak, no_leak = ((weights_NK[:, 1].max() - weights_NK[:, 1].min()).item() for weights_NK in (after_NK, before_NK))
print(f"the weight of key 1 moves by {leak:.2f} with zeros after, by {no_leak:.2f} with −∞ before")
assert no_leak < 1e-6
assert leak > 0.5

# %% [markdown]
# Left to right: the mask of the padded text, causality, both together (dark may be looked at). On the far right the
# leak: the flat line does not know the hidden score, the falling one does.

# %%
figure = new_figure(12, 3.2)
*three, last = figure.subplots(1, 4, width_ratios=(1, 1, 1, 1.5))
for axes, mask_QK, title in zip(
    three,
    (padding_B11K[1, 0].expand(5, 5), causal_QK, both_B1QK[1, 0]),
    ("Padding: 3 tokens of 5", "Causal", "Both, joined with &"),
    strict=True,
):
    axes.imshow(mask_QK, cmap=WEIGHTS, vmin=0, vmax=1, interpolation="nearest")
    axes.set(xlabel="key", ylabel="query", xticks=range(5), yticks=range(5))
    axes.set_title(title, loc="left")
last.plot(hidden, before_NK[:, 1], color=BLUE, label="−∞ before the softmax")
last.plot(hidden, after_NK[:, 1], color=ORANGE, label="0 after the softmax")
last.set(xlabel="score of the hidden key", ylabel="weight of a visible key", ylim=(0, 1.1))
last.set_title("Zeros after the softmax leak", loc="left")
last.legend(frameon=False, loc="upper right")
save(figure, "02_masks")

# %% [markdown]
# ### A row that may look at nothing
#
# What if a query may not look at any key, as in a text that is all padding? Then every score is −∞, and the softmax
# divides 0 by 0. That gives NaN ("not a number"), and NaN spreads: one such row makes the loss NaN, and then all
# gradients. The library settles it in one place. It writes the lowest *finite* number instead of −∞, so that the
# softmax has a result, and then sets the weights of forbidden keys to 0. A query that may see nothing gets zeros: no
# weights, no output, no gradient. For all other rows nothing changes.

# %%
nothing_K = torch.tensor([False, False, False])
naive_K = scores_K.masked_fill(~nothing_K, -math.inf).softmax(dim=-1)
print("−∞ everywhere:", naive_K.tolist())
assert naive_K.isnan().all()

q_BHQE, k_BHKE, v_BHKE = (torch.randn(1, 1, 3, 4, requires_grad=True) for _ in range(3))
rows_QK = torch.tensor([[True, True, True], [True, False, True], [False, False, False]])
exact_BHQE, fused_BHQE = (attend(q_BHQE, k_BHKE, v_BHKE, rows_QK) for attend in (attend_exact, attend_fused))
exact_BHQE.sum().backward()
print("output of the row that sees nothing:", exact_BHQE[0, 0, 2].tolist())
print("greatest difference of the kernels:", (exact_BHQE - fused_BHQE).abs().max().item())
assert exact_BHQE[0, 0, 2].eq(0).all()
assert torch.allclose(exact_BHQE, fused_BHQE, atol=1e-6)
assert q_BHQE.grad[0, 0, 2].eq(0).all()
assert not any(x.grad.isnan().any() for x in (q_BHQE, k_BHKE, v_BHKE))

# %% [markdown]
# ## All together
#
# Now multi-head attention is a matter of a few lines: project, split, attend under a mask, merge, project.
#
#     x [B,T,D] ──▶ query, key, value [B,T,D] ──split──▶ [B,H,T,E] ──attend──▶ [B,H,T,E] ──merge──▶ [B,T,D] ──▶ output


# %%
def multi_head_attention(x_BTD, layer, n_heads, mask):
    B, T, D = x_BTD.shape
    projected = (linear(x_BTD) for linear in (layer.query, layer.key, layer.value))
    q, k, v = (p_BTD.view(B, T, n_heads, D // n_heads).transpose(1, 2) for p_BTD in projected)
    scores_BHQK = q @ k.mT / math.sqrt(D // n_heads)
    weights_BHQK = scores_BHQK.masked_fill(~mask, -math.inf).softmax(dim=-1)
    return layer.output((weights_BHQK @ v).transpose(1, 2).flatten(2))


layer = MultiHeadAttention(d_model=32, n_heads=4)
x_BTD = torch.randn(2, 5, 32)
mine_BTD = multi_head_attention(x_BTD, layer, n_heads=4, mask=both_B1QK)
theirs_BTD = layer(x_BTD, mask=both_B1QK)
shapes(x_BTD=x_BTD, output_BTD=mine_BTD)
library_difference = (mine_BTD - theirs_BTD).abs().max().item()
print("greatest difference to the library:", library_difference)
assert torch.allclose(mine_BTD, theirs_BTD, atol=1e-6)

# %% [markdown]
# The weights were the library's own. And PyTorch? `nn.MultiheadAttention` keeps its three projections in one matrix
# of size 3D×D, so we copy them there, one below the other. Beware of its masks: there, **True = may *not* attend**,
# the opposite of ours (and, confusingly, of PyTorch's own `scaled_dot_product_attention`). Hence the `~`.

# %%
torch_layer = torch.nn.MultiheadAttention(32, 4, batch_first=True)
with torch.no_grad():
    parts = (layer.query, layer.key, layer.value)
    torch_layer.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
    torch_layer.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    torch_layer.out_proj.weight.copy_(layer.output.weight)
    torch_layer.out_proj.bias.copy_(layer.output.bias)

torch_BTD, _ = torch_layer(x_BTD, x_BTD, x_BTD, key_padding_mask=~is_token_BK, attn_mask=~causal_QK)
torch_difference = (mine_BTD - torch_BTD).abs().max().item()
print("greatest difference to torch.nn.MultiheadAttention:", torch_difference)
assert torch.allclose(mine_BTD, torch_BTD, atol=1e-6)

# %% [markdown]
# A test that would have found the wrong `view`: under a causal mask, a change of the last word must not change any
# output before it. Here it is with both ways to split; the way to merge stays the right one.


# %%
def past_moves(split):
    """How much the outputs before the last one move when the last word does."""
    changed_BTD = x_BTD.clone()
    changed_BTD[:, -1] += 1.0
    outputs = []
    for y_BTD in (x_BTD, changed_BTD):
        q, k, v = (split(linear(y_BTD)) for linear in (layer.query, layer.key, layer.value))
        outputs.append(layer.merge(attend_exact(q, k, v, causal_QK)))
    return (outputs[0] - outputs[1])[:, :-1].abs().max().item()


right_leak = past_moves(layer.split)
wrong_leak = past_moves(lambda y_BTD: y_BTD.view(2, 4, 5, 8))
print(f"the past moves by {right_leak:.2f} with view and transpose, by {wrong_leak:.2f} with view alone")
assert right_leak < 1e-6
assert wrong_leak > 0.01

# %% [markdown]
# ## What more heads cost
#
# More heads are narrower heads: H·E stays D. So the matrices keep their size, and the number of parameters is
# 4·(D²+D), whatever H is. What becomes smaller is the width E that each head has for its comparisons, and what
# becomes larger is the number of softmaxes. The paper tries it out in rows (A) of its table 3: one head is worse than
# eight, and too many are worse again.


# %%
def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


parameters = {n_heads: count(MultiHeadAttention(512, n_heads)) for n_heads in (1, 2, 4, 8, 16, 32)}
for n_heads, number in parameters.items():
    print(
        f"H = {n_heads:2}  E = {512 // n_heads:3}    {number:,} parameters    100 words: {n_heads * 10_000:7,} weights"
    )
assert set(parameters.values()) == {4 * (512 * 512 + 512)}

# %% [markdown]
# ### Heads that share keys and values
#
# While a decoder writes, it keeps the keys and values of all words so far, so as not to compute them again. In long
# texts this memory becomes the bottleneck. *Grouped-query attention* (Ainslie et al. 2023, not in the paper) keeps H
# heads of queries, but only G heads of keys and values; each of them serves H/G heads.
#
#     H = 4, G = 4 (the paper)      H = 4, G = 2 (grouped)        H = 4, G = 1 (multi-query)
#
#     q₀  q₁  q₂  q₃                q₀  q₁  q₂  q₃                q₀  q₁  q₂  q₃
#     │   │   │   │                 └─┬─┘   └─┬─┘                 └───┴─┬─┴───┘
#     k₀  k₁  k₂  k₃                  k₀      k₁                        k₀
#
# It is the same as full attention in which some heads happen to have equal keys and values. We check that: a full
# layer gets the grouped layer's matrices, each of them twice.

# %%
grouped = MultiHeadAttention(32, n_heads=4, n_kv_heads=2)
full = MultiHeadAttention(32, n_heads=4)
state = grouped.state_dict()
for name in ("key.weight", "key.bias", "value.weight", "value.bias"):
    heads_GE = state[name].unflatten(0, (2, 8))  # cut into 2 heads of width 8
    state[name] = heads_GE.repeat_interleave(2, dim=0).flatten(0, 1)  # k₀ k₀ k₁ k₁
full.load_state_dict(state)
grouped_difference = (grouped(x_BTD, mask=both_B1QK) - full(x_BTD, mask=both_B1QK)).abs().max().item()
print("greatest difference:", grouped_difference)
assert torch.allclose(grouped(x_BTD, mask=both_B1QK), full(x_BTD, mask=both_B1QK), atol=1e-6)

kept = {G: 2 * G * 64 for G in (8, 2, 1)}  # numbers kept for each word and layer, with E = 64
for G, numbers in kept.items():
    print(
        f"G = {G}    kept for each word: {numbers:4}    parameters: {count(MultiHeadAttention(512, 8, n_kv_heads=G)):,}"
    )

# %% [markdown]
# ## Looking inside a model
#
# A whole Transformer has many attentions. `record_activations` takes a pattern of names and keeps what passes there.
# The ordinary fused kernel never has the weights in memory; while somebody looks, the library runs `attend_exact`
# instead. Here is a tiny encoder-decoder with fresh weights, and a batch of two: the second source is shorter by two
# tokens.

# %%
model = build_model(preset("tiny")).eval()
source_BS = torch.tensor([[4, 5, 6, 7, 8], [4, 5, 6, 0, 0]])
target_BT = torch.tensor([[1, 8, 7, 6], [1, 6, 5, 4]])
with record_activations(model, "*.weights") as seen, torch.no_grad():
    model(source_BS, target_BT, source_mask=is_token_BK)
for name, weights_BHQK in seen.items():
    print(f"{name:42} {tuple(weights_BHQK.shape)}")
assert len(seen) == 6  # two layers: encoder self-attention, decoder self-attention, cross-attention

# %% [markdown]
# The three kinds of attention of section 3.2.3. In all of them a row sums to 1, and the masks can be seen at work:
# look for the columns of padding, which are white in the encoder and in cross-attention, and for the white triangle of
# the future in the decoder. (Target tokens have no padding here.)

# %%
figure = new_figure(10, 5.2)
kinds = {
    "encoder.layers.0.self_attention.weights": "Encoder looks at the source",
    "decoder.layers.0.self_attention.weights": "Decoder looks back",
    "decoder.layers.0.cross_attention.weights": "Decoder looks at the source",
}
for row, panels in enumerate(figure.subplots(2, 3)):
    for axes, (name, title) in zip(panels, kinds.items(), strict=True):
        weights_QK = seen[name][1, row]  # the second text, head 0 or 1
        image = axes.imshow(weights_QK, cmap=WEIGHTS, vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(f"{title}, head {row}", loc="left", fontsize=10)
        axes.set(xlabel="key", ylabel="query", xticks=range(weights_QK.size(1)), yticks=range(weights_QK.size(0)))
figure.colorbar(image, ax=figure.axes, label="weight", fraction=0.03)
figure.suptitle(
    "Layer 0 of a tiny model that has learned nothing: the masks are already there", x=0.01, ha="left", fontsize=11
)
save(figure, "02_recorded")

# %% [markdown]
# And as asserts: not nearly zero, exactly zero.

# %%
encoder_BHQK, decoder_BHQK, cross_BHQK = (seen[name] for name in kinds)
assert encoder_BHQK[1, :, :, 3:].eq(0).all()
assert cross_BHQK[1, :, :, 3:].eq(0).all()
assert decoder_BHQK.triu(1).eq(0).all()
assert all(torch.allclose(weights.sum(dim=-1), torch.ones(())) for weights in seen.values())

# %% [markdown]
# ## What to remember
#
# - One softmax gives one average. Two things that must stay apart need two heads.
# - All heads live in one D×D matrix; a head is a range of its columns. More heads are narrower heads; the number of
#   parameters stays the same.
# - `view` cuts and glues in the order of memory, `transpose` changes the order of axes, neither moves a number.
#   Split: view, then transpose. Merge: transpose, then contiguous and view (or flatten).
# - A wrong `view` has the right shape. Test what must not change: the past, when the future does.
# - True = may attend. Masks act on scores, before the softmax. A row that may see nothing gives zeros.
#
# ## Try it yourself
#
# 1. In a copy of `sentences` and `learn`, let the meaning of a word be 1 number instead of 8 (and 11 numbers empty;
#    compare only the first 2 numbers of the report). Now a single head learns the task after all! Look at how its
#    weights change with the two meanings, and find out what it smuggles through them.
# 2. Call `learn(16)`. Each head has width 1 now, and can carry a single number of a meaning. How many heads have to
#    look at the subject? Does it still work?
# 3. In `multi_head_attention`, move the mask behind the softmax (fill the weights with 0). Which asserts fail? Which
#    words of the first text still get the right output, and why just these?
#
# ## Next
#
# Build it yourself: `cutaway check 2`. Or take heads away: `cutaway lab one-head`. Then:
#
# [3. Positional encoding](03_positional_encoding.py): attention does not know the order of words. How it is told.
