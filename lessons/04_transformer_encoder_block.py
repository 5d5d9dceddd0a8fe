# %% [markdown]
# # 4. The Transformer encoder block
#
# Attention lets tokens talk to each other. A block wraps it into what makes it trainable and useful: a residual
# connection, a norm, and a small network in which each token works alone. Stack the block, and you have an encoder.
#
# At the end you will know
#
# - what the residual connection does to the gradient, measured over depth with and without it;
# - why the norm is LayerNorm and not BatchNorm, with numbers;
# - every shape on the way through a block of the paper's size, in a few lines that equal the library and `torch.nn`;
# - how blocks are stacked, and the trap in `[layer] * N`;
# - what changes when the norm moves (post, pre), how information mixes over layers, and how one mask turns an encoder
#   block into a decoder block.
#
# It goes with sections 3.1 and 3.3 and the left side of figure 1 of
# ["Attention Is All You Need"](https://arxiv.org/abs/1706.03762). The code of the library is in `src/cutaway/nn/`:
# `layers.py`, `residual.py`, `norms.py`, `feedforward.py`.

# %%
import copy
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn import LayerNorm

from cutaway import ModelConfig, build_model, record_activations
from cutaway.course.lesson import save, shapes
from cutaway.explore.figures import BLUE, ORANGE, WEIGHTS, new_figure
from cutaway.models.build import count_parameters
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.feedforward import FeedForward
from cutaway.nn.layers import Layer, Stack
from cutaway.nn.residual import PostNorm

torch.manual_seed(0)

# %% [markdown]
# ## The map
#
#     x [B,T,D] ──┬──▶ self-attention ──▶ + ──▶ norm ──┬──▶ feed-forward ──▶ + ──▶ norm ──▶ [B,T,D]
#                 │                       ▲            │                     ▲
#                 └───────────────────────┘            └─────────────────────┘
#                      the residual path                  the residual path
#
# Two sub-layers, and around each of them the same frame, LayerNorm(x + Sublayer(x)) (section 3.1). What goes in and
# what comes out has the same shape, so blocks can be stacked without limit. We take the parts one by one.
#
# ## The residual connection
#
# Without it, a layer must pass on everything that later layers need. With it, a layer only has to *add* what it found
# out: y = x + f(x). For the gradient the difference is larger still. By the chain rule, through N layers,
#
#     without    ∂y/∂x = f_N' · ... · f_2' · f_1'                      a product: each factor below 1 shrinks it
#     with       ∂y/∂x = (1 + f_N') · ... · (1 + f_1')  =  1 + ...     multiplied out, one term is 1, whatever N is
#
# (f' is the matrix of derivatives of a layer, and 1 the identity matrix.) The 1 is the residual path: a way from the
# loss to the input on which nothing is multiplied.
#
# We measure it: N feed-forward networks of the library one after the other, with fresh weights, with and without the
# residual path. What is the length of the gradient that arrives at the input?


# %%
def gradient_at_input(depth, residual):
    torch.manual_seed(0)
    layers = [FeedForward(64, 256, F.relu) for _ in range(depth)]
    x_BTD = torch.randn(2, 8, 64, requires_grad=True)
    y_BTD = x_BTD
    for layer in layers:
        y_BTD = y_BTD + layer(y_BTD) if residual else layer(y_BTD)
    y_BTD.sum().backward()
    return x_BTD.grad.norm().item()


depths = [1, 2, 4, 8, 16, 32]
gradient_without = [gradient_at_input(depth, residual=False) for depth in depths]
gradient_with = [gradient_at_input(depth, residual=True) for depth in depths]
for depth, without, with_it in zip(depths, gradient_without, gradient_with, strict=True):
    print(f"{depth:>3} layers     without {without:8.1e}     with {with_it:8.1e}")
assert gradient_without[-1] < 1e-10 * gradient_without[0]
assert gradient_with[-1] > 0.5 * gradient_with[0]

# %% [markdown]
# In the figure, mind the axis: it is logarithmic. Without the residual path each layer divides the gradient by about
# the same factor, so it falls on a straight line, to nothing. With it, the gradient arrives, however deep the stack.

# %%
figure = new_figure(6.5, 3.6)
axes = figure.add_subplot()
axes.plot(depths, gradient_with, color=BLUE, marker="o", label="x + f(x)")
axes.plot(depths, gradient_without, color=ORANGE, marker="o", label="f(x)")
axes.set(xlabel="number of layers", ylabel="norm of the gradient at the input", yscale="log")
axes.set_title("Only with a residual path does the gradient reach the input", loc="left")
axes.grid(alpha=0.25)
axes.legend(frameon=False)
save(figure, "04_residual")

# %% [markdown]
# It also grows a little: every layer adds something. In the forward direction that is the same, the numbers in x + f(x)
# get larger from layer to layer. Something must keep them in range.
#
# ## LayerNorm
#
# LayerNorm takes the D numbers of *one token*, moves their mean to 0 and their variance to 1, and then lets a learned
# weight and bias scale and shift each dimension:
#
#     y = (x - mean(x)) / √(var(x) + ε) · weight + bias          mean and var over the D numbers of the token


# %%
def my_layer_norm(x_BTD, weight, bias, epsilon=1e-5):
    mean = x_BTD.mean(dim=-1, keepdim=True)
    variance = ((x_BTD - mean) ** 2).mean(dim=-1, keepdim=True)
    return (x_BTD - mean) / torch.sqrt(variance + epsilon) * weight + bias


D = 16
x_BTD = 3 * torch.randn(2, 5, D) + 1
layer_norm = LayerNorm(D)
mine, theirs, torchs = (
    my_layer_norm(x_BTD, layer_norm.weight, layer_norm.bias),
    layer_norm(x_BTD),
    nn.LayerNorm(D)(x_BTD),
)
print("greatest difference to the library:", (mine - theirs).abs().max().item())
assert torch.allclose(mine, theirs, atol=1e-5)
assert torch.allclose(theirs, torchs, atol=1e-6)

# %% [markdown]
# BatchNorm, which came first and rules in vision, norms the other way: for *each dimension*, over all tokens of the
# batch.
#
#                 dimension ▶                          dimension ▶
#     token 1   ■ ■ ■ ■ ■ ■ ■                token 1   ■ · · · · · ·
#     token 2   · · · · · · ·                token 2   ■ · · · · · ·
#     token 3   · · · · · · ·                token 3   ■ · · · · · ·
#               LayerNorm                              BatchNorm
#
# So what BatchNorm makes of a token depends on which other sentences happen to be in the batch, and on the padding
# that fills up the shorter ones. To have an answer for a single sentence at all, it keeps running averages and uses
# those in `eval()`: in use it computes something else than in training. We try all three on the same first sentence.

# %%
sentence, another, longer = torch.randn(1, 5, D), 2 * torch.randn(1, 5, D) + 1, torch.randn(1, 9, D)
padded = torch.cat([sentence, torch.zeros(1, 4, D)], dim=1)  # filled up with zeros to the length of `longer`
batch_norm = nn.BatchNorm1d(D)
for _ in range(100):
    batch_norm(torch.randn(40, D))  # a hundred batches of a training, so that the running averages are settled


def by_batch_norm(x_BTD):
    return batch_norm(x_BTD.flatten(0, 1)).view_as(x_BTD)  # it wants [tokens, dimensions]


def first_sentence(norm, training, *sentences):
    batch_norm.train(training)
    layer_norm.train(training)
    with torch.no_grad():
        return norm(torch.cat(sentences))[0, :5]


# %% [markdown]
# `first_sentence` gives what a norm makes of the first sentence of a batch. Alone is what we compare with:

# %%
norm_change = {}
for name, norm in (("LayerNorm", layer_norm), ("BatchNorm", by_batch_norm)):
    alone = first_sentence(norm, True, sentence)
    company = first_sentence(norm, True, sentence, another)
    padding = first_sentence(norm, True, padded, longer)
    in_eval = first_sentence(norm, False, sentence)
    norm_change[name] = [(other - alone).abs().max().item() for other in (company, padding, in_eval)]
    print(f"{name}: changed by company {norm_change[name][0]:.2f}, ", end="")
    print(f"by padding {norm_change[name][1]:.2f}, by eval {norm_change[name][2]:.2f}")

# %% [markdown]
# LayerNorm does not notice any of it. For BatchNorm the same sentence is three different things.

# %%
assert max(norm_change["LayerNorm"]) < 1e-6
assert min(norm_change["BatchNorm"]) > 0.1

figure = new_figure(7, 3.4)
axes = figure.add_subplot()
cases = ["another sentence\nin the batch", "padding\nand a longer one", "eval() instead\nof train()"]
for offset, (name, colour) in zip((-0.18, 0.18), (("LayerNorm", BLUE), ("BatchNorm", ORANGE)), strict=True):
    bars = axes.bar([i + offset for i in range(3)], norm_change[name], width=0.36, color=colour, label=name)
    axes.bar_label(bars, fmt="%.2f", fontsize=8)
axes.set_xticks(range(3), cases)
axes.set(xlabel="what is different", ylabel="greatest change of a number")
axes.set_title("How much the same sentence changes when something else does", loc="left")
axes.legend(frameon=False)
save(figure, "04_norms")

# %% [markdown]
# In the figure, look for the blue bars: they have no height.
#
# ## The feed-forward network
#
# After attention has brought information together, each token works on it by itself (section 3.3, equation 2):
#
#     FFN(x) = max(0, x W₁ + b₁) W₂ + b₂          D = 512 ─▶ F = 2048 ─▶ D = 512
#
# "Position-wise" means two things: the same weights at every position, and no position sees another. Both are easy to
# show. Take one token out and feed it alone: the same result. Change one token: no other output moves. And an operation
# that treats every position of a row alike and alone has another name, a convolution of width 1.

# %%
feed_forward = FeedForward(d_model=16, d_ff=64, activation=F.relu)
x_BTD = torch.randn(2, 5, 16)
changed_BTD = x_BTD.clone()
changed_BTD[:, 2] += 1.0

first, second = nn.Conv1d(16, 64, kernel_size=1), nn.Conv1d(64, 16, kernel_size=1)
for convolution, linear in ((first, feed_forward.expand), (second, feed_forward.contract)):
    convolution.weight.data, convolution.bias.data = linear.weight.data[:, :, None], linear.bias.data

with torch.no_grad():
    y_BTD = feed_forward(x_BTD)
    one_token = feed_forward(x_BTD[:, 3:4])
    moved = (feed_forward(changed_BTD) - y_BTD).abs().amax(dim=(0, 2))
    convolved_BTD = second(first(x_BTD.mT).relu()).mT  # a convolution wants [batch, channels, positions]
print("change at each position when token 2 changes:", [round(m, 3) for m in moved.tolist()])
print("greatest difference to a convolution of width 1:", (y_BTD - convolved_BTD).abs().max().item())

# %% [markdown]
# The claims once more, as assertions:

# %%
assert torch.allclose(one_token, y_BTD[:, 3:4], atol=1e-6)
assert torch.allclose(y_BTD, convolved_BTD, atol=1e-6)
assert [m > 1e-6 for m in moved.tolist()] == [False, False, True, False, False]

# %% [markdown]
# ## The walk
#
# Now the whole block at the paper's size: D = 512, H = 8 heads of E = 64, F = 2048. Two sentences of four tokens. In
# the library a layer is put together from finished parts:

# %%
block = Layer(
    self_attention=MultiHeadAttention(d_model=512, n_heads=8),
    self_attention_residual=PostNorm(lambda: LayerNorm(512), dropout=0.1),
    feed_forward=FeedForward(512, 2048, F.relu),
    feed_forward_residual=PostNorm(lambda: LayerNorm(512), dropout=0.1),
).eval()  # no dropout from here on
for norm in (block.self_attention_residual.norm, block.feed_forward_residual.norm):
    nn.init.normal_(norm.weight, 1.0, 0.1)  # fresh norms are all ones and zeros: an error there would not show
    nn.init.normal_(norm.bias, 0.0, 0.1)
block_parameters = count_parameters(block)
print(f"{block_parameters:,} parameters")
assert block_parameters == 4 * (512 * 512 + 512) + (512 * 2048 + 2048) + (2048 * 512 + 512) + 2 * (512 + 512)

# %% [markdown]
# We walk through it with its weights and nothing but elementary operations. First half: attention.
#
#     [2,4,512] ──W_Q, W_K, W_V──▶ [2,4,512] ──cut D into 8×64──▶ [2,4,8,64] ──swap──▶ [2,8,4,64]
#                                                                                         │
#     [2,4,512] ◀──W_O── [2,4,512] ◀──glue the heads── [2,8,4,64] ◀── softmax(Q Kᵀ/√64) V ┘
#
# The swap puts the heads beside the batch: each of 2·8 little attentions then sees a matrix of 4 tokens by 64 numbers.

# %%
x_BTD = torch.randn(2, 4, 512)
shapes(x_BTD=x_BTD)
part = block.self_attention
with torch.no_grad():
    q_BHTE, k_BHTE, v_BHTE = (
        linear(x_BTD).view(2, 4, 8, 64).transpose(1, 2) for linear in (part.query, part.key, part.value)
    )
    shapes(q_BHTE=q_BHTE, k_BHTE=k_BHTE, v_BHTE=v_BHTE)
    scores_BHQK = q_BHTE @ k_BHTE.mT / math.sqrt(64)
    weights_BHQK = scores_BHQK.softmax(dim=-1)
    heads_BHTE = weights_BHQK @ v_BHTE
    shapes(scores_BHQK=scores_BHQK, weights_BHQK=weights_BHQK, heads_BHTE=heads_BHTE)
    glued_BTD = heads_BHTE.transpose(1, 2).reshape(2, 4, 512)
    attended_BTD = part.output(glued_BTD)
shapes(glued_BTD=glued_BTD, attended_BTD=attended_BTD)

# %% [markdown]
# Second half: add and norm, then out to 2048 and back, then add and norm once more.
#
#     [2,4,512] ──(+ x, norm)──▶ [2,4,512] ──W₁, max(0, ·)──▶ [2,4,2048] ──W₂──▶ [2,4,512] ──(+, norm)──▶ [2,4,512]

# %%
with torch.no_grad():
    norm = block.self_attention_residual.norm
    middle_BTD = my_layer_norm(x_BTD + attended_BTD, norm.weight, norm.bias)
    hidden_BTF = block.feed_forward.expand(middle_BTD).clamp(min=0)
    thought_BTD = block.feed_forward.contract(hidden_BTF)
    norm = block.feed_forward_residual.norm
    mine_BTD = my_layer_norm(middle_BTD + thought_BTD, norm.weight, norm.bias)
    theirs_BTD = block(x_BTD)
shapes(middle_BTD=middle_BTD, hidden_BTF=hidden_BTF, thought_BTD=thought_BTD, mine_BTD=mine_BTD)
walk_error = (mine_BTD - theirs_BTD).abs().max().item()
print(f"greatest difference to the library's Layer: {walk_error:.1e}")
assert torch.allclose(mine_BTD, theirs_BTD, atol=1e-5)

# %% [markdown]
# PyTorch has the same block as `nn.TransformerEncoderLayer`. It keeps W_Q, W_K and W_V in one matrix of 1536 rows.
# With the weights copied it must give the same numbers.

# %%
torchs = nn.TransformerEncoderLayer(512, 8, 2048, activation="relu", batch_first=True).eval()
a, f = block.self_attention, block.feed_forward
copied = {
    "self_attn.in_proj_weight": torch.cat([a.query.weight, a.key.weight, a.value.weight]),
    "self_attn.in_proj_bias": torch.cat([a.query.bias, a.key.bias, a.value.bias]),
}
modules = {"self_attn.out_proj": a.output, "linear1": f.expand, "linear2": f.contract}
modules |= {"norm1": block.self_attention_residual.norm, "norm2": block.feed_forward_residual.norm}
for name, module in modules.items():
    copied |= {f"{name}.weight": module.weight, f"{name}.bias": module.bias}
torchs.load_state_dict(copied)

with torch.no_grad():
    torch_error = (torchs(x_BTD) - block(x_BTD)).abs().max().item()
print(f"greatest difference to torch.nn.TransformerEncoderLayer: {torch_error:.1e}")
assert torch_error < 1e-5

# %% [markdown]
# ## Clone and stack
#
# The encoder of the paper is N = 6 such layers, "identical" in form, each with weights of its own. In Python a list
# with six entries is quickly written, and the quickest way is wrong. A small layer to try it with:


# %%
def small_layer():
    return Layer(
        self_attention=MultiHeadAttention(d_model=32, n_heads=4),
        self_attention_residual=PostNorm(lambda: LayerNorm(32), dropout=0.0),
        feed_forward=FeedForward(32, 64, F.relu),
        feed_forward_residual=PostNorm(lambda: LayerNorm(32), dropout=0.0),
    )


# %% [markdown]
# Here are the quick way, a careful copy, and six layers made one by one:

# %%
one = small_layer()
stacks = {
    "[layer] * 6": Stack([one] * 6, nn.Identity()),
    "deepcopy": Stack([copy.deepcopy(one) for _ in range(6)], nn.Identity()),
    "made anew": Stack([small_layer() for _ in range(6)], nn.Identity()),
}
stack_parameters = {}
for name, stack in stacks.items():
    first, last = stack.layers[0].feed_forward.expand.weight, stack.layers[5].feed_forward.expand.weight
    stack_parameters[name] = count_parameters(stack)
    relation = "one object" if first is last else "equal" if torch.equal(first, last) else "different"
    print(f"{name:<12} {stack_parameters[name]:>7,} parameters; weights of first and last layer: {relation}")

# %% [markdown]
# `[layer] * 6` is a list of six references to *one* layer. It runs, the loss falls, and nobody complains, but the
# stack has a sixth of the parameters. (Some models share weights over depth on purpose, such as ALBERT. Then it
# should be said.) `copy.deepcopy` makes six layers, but all six begin with the same numbers. They drift apart in
# training, since their gradients differ. The library makes each layer anew. One step of gradient descent shows who is
# who:

# %%
assert 6 * stack_parameters["[layer] * 6"] == stack_parameters["deepcopy"] == stack_parameters["made anew"]
x_BTD, wanted_BTD = torch.randn(2, 2, 8, 32).unbind()
apart = {}
for name, stack in stacks.items():
    F.mse_loss(stack(x_BTD), wanted_BTD).backward()
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter -= 0.1 * parameter.grad
    first, last = stack.layers[0].feed_forward.expand.weight, stack.layers[5].feed_forward.expand.weight
    apart[name] = (first - last).abs().max().item()
    print(f"{name:<12} first and last layer differ by {apart[name]:.4f} after one step")
assert apart["[layer] * 6"] == 0 < apart["deepcopy"] < apart["made anew"]

# %% [markdown]
# ## Where the norm stands
#
# The paper norms *after* the addition, most models since 2019 *inside* the branch:
#
#     post-norm     x ─▶ norm(x + f(x))          the residual path itself is normed, again and again
#     pre-norm      x ─▶ x + f(norm(x))          the residual path runs free from the input to the end
#
# We build stacks of both kinds with the library, a tagger of 24 small layers with fresh weights, and look at the
# gradient of each layer's weights for one random batch. A single draw of the weights is noisy, so we take the
# geometric mean over eight.


# %%
def layer_gradients(placement, n_layers, seed):
    torch.manual_seed(seed)
    shape = {"d_model": 32, "d_ff": 128, "n_heads": 4, "max_length": 16, "dropout": 0.0, "encoder_layers": n_layers}
    config = ModelConfig(family="encoder", head="tags", n_classes=10, vocab_size=50, norm_placement=placement, **shape)
    model = build_model(config)
    ids, tags = torch.randint(0, 50, (8, 12)), torch.randint(0, 10, (8, 12))
    F.cross_entropy(model(ids).flatten(0, 1), tags.flatten()).backward()
    return [nn.utils.get_total_norm([p.grad for p in layer.parameters()]).item() for layer in model.encoder.layers]


def mean_gradients(placement, n_layers, seeds=8):
    logs = torch.tensor([layer_gradients(placement, n_layers, seed) for seed in range(seeds)]).log()
    return logs.mean(dim=0).exp()


DEPTHS = [6, 12, 24]
gradients = {(placement, n): mean_gradients(placement, n) for placement in ("post", "pre") for n in DEPTHS}
for placement in ("post", "pre"):
    first, last = gradients[placement, 24][0], gradients[placement, 24][-1]
    print(f"{placement:<5} 24 layers: gradient in the first layer {first:.2f}, in the last {last:.2f}")

# %% [markdown]
# Look at the left picture: with post-norm the gradient is largest in the last layers, next to the loss, and falls
# towards the input. With pre-norm it is the other way round, and smaller at the end. Look at the right picture: the
# deeper a pre-norm stack, the gentler the gradient of its last layer, because the sum that it adds to has grown, and
# the norm at the end of the stack divides by it. With post-norm the last layer gets its full gradient at any depth.

# %%
figure = new_figure(10, 3.8)
left, right = figure.subplots(1, 2)
for placement, colour in (("post", ORANGE), ("pre", BLUE)):
    left.plot(range(1, 25), gradients[placement, 24], color=colour, marker="o", markersize=3, label=f"{placement}-norm")
    ends = [gradients[placement, n][-1] for n in DEPTHS]
    right.plot(DEPTHS, ends, color=colour, marker="o", label=f"{placement}-norm")
left.set(xlabel="layer", ylabel="norm of the gradient", yscale="log", xticks=range(4, 25, 4))
left.set_title("Gradient of each layer in a stack of 24", loc="left")
right.set(xlabel="layers in the stack", ylabel="norm of the gradient", yscale="log", xticks=DEPTHS)
right.set_title("Gradient of the last layer, by depth", loc="left")
for axes in (left, right):
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.tick_params(axis="y", which="minor", labelsize=8)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
save(figure, "04_gradients")

# %% [markdown]
# As claims:

# %%
post, pre = gradients["post", 24], gradients["pre", 24]
last_layer_ratio = (post[-1] / pre[-1]).item()
print(f"in the last of 24 layers the gradient with post-norm is {last_layer_ratio:.1f} times that with pre-norm")
assert last_layer_ratio > 2
assert post[-1] > post[0]
assert pre[-1] < pre[0]
assert gradients["pre", 24][-1] < 0.8 * gradients["pre", 6][-1]
assert gradients["post", 24][-1] > 0.7 * gradients["post", 6][-1]

# %% [markdown]
# Large steps in the last layers while the weights are still random do damage. That is the usual explanation for why
# the paper's post-norm model needs a learning rate that starts low and *warms up* (section 5.3), and why pre-norm
# models can do with less of it (Xiong et al. 2020). The price of pre-norm: the residual path is never normed, so the
# stack needs one more norm at its end. `Stack` in `layers.py` has it.
#
# ## Attention over layers
#
# One layer of attention mixes tokens once. What does token 9 know of token 2 after six layers? To see something, we
# narrow attention: each token may look at itself and its direct neighbours only (`attention="window"`). Information
# that is to go farther must be handed on from layer to layer.
#
# First we record the attention weights of each layer. *Attention rollout* (Abnar and Zuidema 2020) estimates from
# them how much of token j is in position i: in each layer one half stays (the residual path), one half is mixed (the
# weights, averaged over heads), and layers multiply:
#
#     R_0 = 1          R_l = (½ · 1 + ½ · W_l) R_(l-1)

# %%
torch.manual_seed(1)
shape = {"d_model": 32, "d_ff": 64, "n_heads": 4, "encoder_layers": 6, "max_length": 16, "dropout": 0.0}
narrow = build_model(
    ModelConfig(family="encoder", vocab_size=50, attention="window", attention_window=2, **shape)
).eval()
T = 12
ids = torch.randint(0, 50, (1, T))
with torch.no_grad(), record_activations(narrow, "encoder.layers.*.self_attention.weights") as seen:
    narrow(ids)

rollout = [torch.eye(T)]
for weights_BHQK in seen.values():
    mixed_QK = weights_BHQK[0].mean(dim=0)
    rollout.append((0.5 * torch.eye(T) + 0.5 * mixed_QK) @ rollout[-1])
shapes(weights_BHQK=weights_BHQK, rollout_QK=rollout[-1])
print("rows still sum to 1:", torch.allclose(rollout[-1].sum(dim=-1), torch.ones(T)))

# %% [markdown]
# Rollout is an estimate: it ignores what values, norms and feed-forward networks do. So we also measure. We move the
# input vector of token j a little, run the encoder, and see at each layer how far each position i has moved. The
# probe `stream` holds what goes on after a sub-layer. The nudge goes in a random direction: had we added the same to
# all numbers of a token, LayerNorm would have taken it off again.


# %%
def influence(encoder, x_BTD, mask=None):
    """How far position i moves after each layer, if token j does. -> [layers, i, j]"""

    def streams(x_BTD):
        with torch.no_grad(), record_activations(encoder, "layers.*.feed_forward_residual.stream") as seen:
            encoder(x_BTD, mask)
        return torch.stack([stream[0] for stream in seen.values()])

    before, columns = streams(x_BTD), []
    nudge_D = 0.1 * torch.randn(x_BTD.size(-1), generator=torch.Generator().manual_seed(0))
    for j in range(x_BTD.size(1)):
        moved_BTD = x_BTD.clone()
        moved_BTD[:, j] += nudge_D
        columns.append((streams(moved_BTD) - before).norm(dim=-1))
    return torch.stack(columns, dim=-1)


# %% [markdown]
# The window is a rule of the mask. In `SlidingWindow(2)` a key is in sight if it is less than 2 places away.

# %%
from cutaway.nn.masks import Mask
from cutaway.nn.sparse_masks import SlidingWindow

x_BTD = narrow.embedding(ids).detach()
measured_LQK = influence(narrow.encoder, x_BTD, Mask(range(T), range(T), (SlidingWindow(2),)))
reach = [int((measured_LQK[layer, 0] > 0).sum()) for layer in range(6)]
print("how many tokens the first position knows of, after each layer:", reach)

# %% [markdown]
# With each layer the view widens by exactly one token to each side. That is the receptive field of a convolution, and
# it holds in rollout and in the measurement alike: where one is zero, the other is. Where they are not zero, they agree
# roughly, not exactly.

# %%
assert reach == [2, 3, 4, 5, 6, 7]
for layer in range(6):
    assert torch.equal(rollout[layer + 1] > 0, measured_LQK[layer] > 0)
share_LQK = measured_LQK / measured_LQK.sum(dim=-1, keepdim=True)  # of all that moves position i
rollout_agreement = torch.corrcoef(torch.stack([rollout[6].flatten(), share_LQK[5].flatten()]))[0, 1].item()
print(f"correlation of rollout and measurement after layer 6: {rollout_agreement:.2f}")
assert rollout_agreement > 0.7

# %% [markdown]
# Both as pictures, rollout above and measurement below. Look along a row: the band around the diagonal widens, and its
# colour gets more even.

# %%
figure = new_figure(10, 5.6)
panels = figure.subplots(2, 4, sharex=True, sharey=True)
for column, layer in enumerate((0, 1, 3, 5)):
    for axes, matrix, how in zip(
        panels[:, column], (rollout[layer + 1], share_LQK[layer]), ("rollout", "measured"), strict=True
    ):
        image = axes.imshow(matrix, cmap=WEIGHTS, vmin=0, vmax=0.6)
        axes.set_title(f"{how}, after layer {layer + 1}", loc="left", fontsize=9)
for axes in panels[1]:
    axes.set_xlabel("token j")
for axes in panels[:, 0]:
    axes.set_ylabel("position i")
figure.colorbar(image, ax=panels, fraction=0.02, label="share of token j in position i")
figure.suptitle(
    "With neighbours only in sight, information spreads by one token a layer", x=0.01, ha="left", fontsize=11
)
save(figure, "04_mixing")

# %% [markdown]
# With full attention every token reaches every other in the first layer; what later layers change is only *how much*.
#
# ## One mask makes a decoder block
#
# An encoder reads a finished text, so each token may look at all of it. A model that writes must not look at what it
# has not written yet. The block stays the same; the mask says `key ≤ query`. This is the *causal* mask, and with it
# an encoder block is the block of a decoder alone, such as GPT.

# %%
from cutaway.nn.masks import Causal

torch.manual_seed(0)
stack = Stack([small_layer() for _ in range(4)], nn.Identity()).eval()
T = 8
x_BTD = torch.randn(1, T, 32)
causal = Mask(range(T), range(T), (Causal(),))
print(causal.dense(x_BTD.device).int())

with_future, without_future = influence(stack, x_BTD)[-1], influence(stack, x_BTD, causal)[-1]
future = torch.ones(T, T).triu(1).bool()  # above the diagonal: token j stands after position i
future_leak = without_future[future].abs().max().item()
print("greatest influence of the future on the past: without a mask", with_future[future].max().item())
print("                                              with the mask ", future_leak)
assert future_leak == 0
assert with_future[future].min() > 0

# %% [markdown]
# Not small: zero. The past is computed from other numbers, and the future is not among them. In the figure, look at
# the upper right triangle. (The dark diagonal is the residual path: a token moves itself most.)

# %%
figure = new_figure(9, 3.9)
panels = figure.subplots(1, 2, sharey=True)
titles = ("Encoder block: all tokens see all", "With the causal mask: the past stands still")
for axes, matrix, title in zip(panels, (with_future, without_future), titles, strict=True):
    image = axes.imshow(matrix.log10().clamp(min=-2.5), cmap=WEIGHTS, vmin=-2.5, vmax=0)
    axes.set(xlabel="token j that is moved", ylabel="position i")
    axes.set_title(title, loc="left")
figure.colorbar(image, ax=panels, fraction=0.03, label="how far i moves (log₁₀; lightest: 0)")
save(figure, "04_causal")

# %% [markdown]
# PyTorch's block can be masked as well, but beware: there, in a mask of booleans, True means "may *not* attend". In
# Cutaway True means "may attend", everywhere. The two blocks from the walk, each with its own sort of mask:

# %%
x_BTD = torch.randn(2, 4, 512)
may_attend = Mask(range(4), range(4), (Causal(),))
may_not_attend = ~may_attend.dense(x_BTD.device)
with torch.no_grad():
    masked_error = (torchs(x_BTD, src_mask=may_not_attend) - block(x_BTD, may_attend)).abs().max().item()
print(f"greatest difference of the two masked blocks: {masked_error:.1e}")
assert masked_error < 1e-5

# %% [markdown]
# The decoder of the paper has one sub-layer more, between the two: cross-attention, which looks at what the encoder has
# left. It sits in the same frame, x + f(x) and a norm.
#
# ## What to remember
#
# - A block is two sub-layers, attention (tokens talk) and feed-forward (each token alone), each framed by a residual
#   connection and a norm. The shape [B,T,D] never changes, so blocks stack.
# - x + f(x) has the derivative 1 + f'(x): the gradient reaches the input through any number of layers.
# - LayerNorm looks at one token. Company, padding and `eval()` change nothing. BatchNorm fails on all three.
# - Feed-forward is a convolution of width 1.
# - `[layer] * N` is one layer N times.
# - Post-norm gives the last layers large gradients at the start; pre-norm leaves the residual path free and needs a
#   norm at the end.
# - The causal mask alone makes a decoder block of an encoder block: the influence of the future is exactly zero.
#
# ## Try it yourself
#
# 1. In `gradient_at_input`, multiply `layer(y_BTD)` by 3 in both cases. Does the gradient now vanish, explode, or
#    neither? What would a norm do about it?
# 2. Add `"sandwich"` to the placements in `gradients` (it norms before and after the sub-layer). Where do its lines
#    lie?
# 3. In the section on mixing, use `attention_window=3` (and `SlidingWindow(3)`). By how many tokens a layer does
#    `reach` grow? Then try `attention="sparse"` with `Strided(3)` of `cutaway.nn.sparse_masks`. (The `assert` on
#    `reach` will stop you: change it to what you expect.)
#
# ## Next
#
# Build it yourself: `cutaway check 4`. Or take a part out: `cutaway lab no-residual`, or `no-norm`. Then:
#
# Lesson 5 stacks the blocks and puts them to work: [a full Transformer encoder](05_full_transformer_encoder.py) that is
# trained and used.
