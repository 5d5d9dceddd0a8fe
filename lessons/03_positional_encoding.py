# %% [markdown]
# # 3. Positional encoding
#
# Attention sees a set of tokens. A sentence is a *row* of tokens. This lesson is about the gap between the two.
#
# At the end you will know
#
# - why self-attention without positions cannot tell "dog bites man" from "man bites dog": in words, in algebra, in
#   numbers;
# - how the paper's sines and cosines are made, and why a step of k places is one and the same rotation everywhere;
# - five other ways to tell order: learned, relative (Shaw), T5's buckets, RoPE and ALiBi;
# - what happens to each of them on texts longer than those in training, measured;
# - what a buffer is, and why the table of sines is one.
#
# It goes with section 3.5 of ["Attention Is All You Need"](https://arxiv.org/abs/1706.03762). The code of the library
# is `src/cutaway/nn/positions.py`.

# %%
import math
import random
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from cutaway import Config, DataConfig, ModelConfig, RunFolder, Tokenizer, TrainConfig, build_model, start_training
from cutaway.course.lesson import save, shapes
from cutaway.explore.figures import BLUE, GREEN, GREY, ORANGE, SIGNED, WEIGHTS, new_figure, positional_encodings
from cutaway.nn.attention import MultiHeadAttention

torch.manual_seed(0)

# %% [markdown]
# ## Attention is blind to order
#
# **In words.** A query compares itself with every key, turns the scores into weights, and takes a weighted sum of the
# values. Nowhere does it ask *where* a key stands. Shuffle the tokens, and each query finds the same keys, gives them
# the same weights, and adds up the same values, only in another order. A sum does not care about order.
#
# **In algebra.** Let the rows of X be the tokens, and P a permutation matrix: P X is X with its rows shuffled.
# Shuffling back undoes it, so Pᵀ P = 1. For simplicity write A = W_Q W_Kᵀ / √d_k, so that the scores are X A Xᵀ. Then
#
#     scores of P X      =  (P X) A (P X)ᵀ           =  P (X A Xᵀ) Pᵀ        rows and columns shuffled alike
#     weights of P X     =  softmax(P (X A Xᵀ) Pᵀ)   =  P softmax(X A Xᵀ) Pᵀ
#     attention of P X   =  P softmax(X A Xᵀ) Pᵀ · P X W_V
#                        =  P softmax(X A Xᵀ) X W_V  =  P · (attention of X)
#
# The second line holds because softmax works on each row alone, and a row's sum is the same in any order. So: shuffle
# the input, and the output is shuffled in the same way, *and nothing else happens*. This property is called
# permutation equivariance.
#
# **In numbers.** First our own few lines, with one head:


# %%
def my_attention(x_TD, W_Q, W_K, W_V):
    q, k, v = x_TD @ W_Q, x_TD @ W_K, x_TD @ W_V
    weights_QK = torch.softmax(q @ k.T / math.sqrt(q.size(-1)), dim=-1)
    return weights_QK @ v


T, D = 6, 8
x_TD = torch.randn(T, D)
W_Q, W_K, W_V = torch.randn(3, D, D).unbind()
P = torch.eye(T)[torch.randperm(T)]
shapes(x_TD=x_TD, P_TT=P)

mine_of_shuffled, shuffled_mine = my_attention(P @ x_TD, W_Q, W_K, W_V), P @ my_attention(x_TD, W_Q, W_K, W_V)
print("attention(P X) and P attention(X) differ by", (mine_of_shuffled - shuffled_mine).abs().max().item())
assert torch.allclose(mine_of_shuffled, shuffled_mine, atol=1e-5)

# %% [markdown]
# The library's multi-head attention does more (heads, biases, an output projection), but none of it looks at positions,
# as long as we give it no position scheme.

# %%
attention = MultiHeadAttention(d_model=32, n_heads=4)
x_BTD = torch.randn(1, T, 32)
order = torch.randperm(T)
equivariance_error = (attention(x_BTD[:, order]) - attention(x_BTD)[:, order]).abs().max().item()
print(f"library, shuffled by {order.tolist()}: greatest difference {equivariance_error:.1e}")
assert equivariance_error < 1e-5

# %% [markdown]
# A whole encoder is made of such attention, of norms and of feed-forward networks, and the last two treat each token
# alone. So the whole encoder is blind. If we then average over the tokens to classify a text, even the shuffling is
# gone: what is left is a *bag of words*. Here is a classifier with fresh weights, first without positions, then with
# the paper's.

# %%
words = ["dog", "bites", "man"]
one, other = torch.tensor([[0, 1, 2]]), torch.tensor([[2, 1, 0]])


def class_logits(position):
    torch.manual_seed(0)
    shape = {"d_model": 32, "d_ff": 64, "n_heads": 4, "encoder_layers": 2, "max_length": 16}
    config = ModelConfig(
        family="encoder", head="classes", n_classes=2, pooling="mean", vocab_size=3, position=position, **shape
    )
    model = build_model(config).eval()
    with torch.no_grad():
        return model(one)[0], model(other)[0]


bag_difference = {}
for position in ("none", "sinusoidal"):
    a, b = class_logits(position)
    bag_difference[position] = (a - b).abs().max().item()
    for ids, logits in ((one, a), (other, b)):
        text = " ".join(words[i] for i in ids[0].tolist())
        print(f"{position:<12} {text:<16} {[round(v, 4) for v in logits.tolist()]}")
assert bag_difference["none"] < 1e-5 < 1e-2 < bag_difference["sinusoidal"]

# %% [markdown]
# A decoder is a special case. Its mask lets token t see t tokens and no more, and that breaks the symmetry: order
# leaks in through *how many* tokens are visible. We shall see below how far that gets it.
#
# ## Sines and cosines
#
# The paper adds a vector PE(pos) to the embedding of the token at position pos. Its D numbers come in pairs, and each
# pair is the hand of a clock:
#
#     PE(pos, 2i)   = sin(pos · ω_i)
#     PE(pos, 2i+1) = cos(pos · ω_i)        ω_i = 1 / 10000^(2i/D)
#
# The first clock (i = 0) turns by one radian a token and is round after 2π ≈ 6.3 tokens. Each next one is slower; the
# last needs almost 10000 · 2π tokens. A second hand cannot tell 5 seconds from 65, an hour hand cannot tell 5 seconds
# from 6; together they tell both. So it is here: fast pairs separate neighbours, slow pairs separate regions.


# %%
def my_sinusoids(length, width):
    table = torch.zeros(length, width, dtype=torch.float64)
    for pos in range(length):
        for i in range(width // 2):
            angle = pos / 10000 ** (2 * i / width)
            table[pos, 2 * i] = math.sin(angle)
            table[pos, 2 * i + 1] = math.cos(angle)
    return table


# %% [markdown]
# The library computes the same without loops. We compare the two, and print the first positions of a very narrow table.

# %%
from cutaway.nn.positions import SinusoidalPosition, sinusoids

mine_TD, theirs_TD = my_sinusoids(64, 64).float(), sinusoids(64, 64)
shapes(theirs_TD=theirs_TD)
sinusoid_error = (mine_TD - theirs_TD).abs().max().item()
print(f"greatest difference: {sinusoid_error:.1e}")
assert torch.allclose(mine_TD, theirs_TD, atol=1e-6)
print(sinusoids(4, 6))

# %% [markdown]
# The figure shows the table of 64 positions (rows) and 64 dimensions (columns), and beside it how alike the vectors
# of two positions are. Look at the left: fast stripes on the left side, almost constant columns on the right side.
# Look at the right: the colour depends on the distance from the diagonal alone. That is no accident:
#
#     PE(p) · PE(q) = Σ_i sin(pω_i) sin(qω_i) + cos(pω_i) cos(qω_i) = Σ_i cos((p - q) ω_i)

# %%
figure = positional_encodings(sinusoids(64, 64).numpy())
save(figure, "03_sinusoids")

# %% [markdown]
# ## A step of k places is a linear map
#
# The authors chose this form because they supposed that it would let the model attend by *relative* positions: for a
# fixed offset k, PE(pos + k) is a linear function of PE(pos) (section 3.5). The addition theorems say which one. For
# one pair:
#
#     sin(ω(p + k)) =  cos(ωk) · sin(ωp) + sin(ωk) · cos(ωp)
#     cos(ω(p + k)) = -sin(ωk) · sin(ωp) + cos(ωk) · cos(ωp)
#
#     ┌ sin(ω(p+k)) ┐   ┌  cos ωk   sin ωk ┐ ┌ sin ωp ┐
#     │             │ = │                  │ │        │
#     └ cos(ω(p+k)) ┘   └ -sin ωk   cos ωk ┘ └ cos ωp ┘
#
# This is a rotation, and p does not occur in it: from 3 to 8 the hand turns by the same angle as from 103 to 108. For
# all pairs together the rotations stand on the diagonal of one D×D matrix M_k. First way to find it: write it down.

# %%
D, k = 16, 5
M_by_theorem = torch.zeros(D, D, dtype=torch.float64)
for i in range(D // 2):
    angle = k / 10000 ** (2 * i / D)
    pair = slice(2 * i, 2 * i + 2)
    turn = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
    M_by_theorem[pair, pair] = torch.tensor(turn, dtype=torch.float64)

# %% [markdown]
# Second way: forget all trigonometry. Take the table as data, pair each row with the row k places on, and ask least
# squares for the matrix that leads best from one to the other. If PE(pos + k) were no linear function of PE(pos), the
# best matrix would still leave an error. We fit on the first 3000 positions and check on later ones.

# %%
pe = my_sinusoids(5000, D)
before, after = pe[:-k], pe[k:]
seen = slice(0, 3000)  # the fit sees these positions; the rest is for checking
M_from_data = torch.linalg.lstsq(before[seen], after[seen]).solution.T  # it solves before @ X = after: X is Mᵀ

map_difference = (M_by_theorem - M_from_data).abs().max().item()
unseen_error = (before[3000:] @ M_from_data.T - after[3000:]).abs().max().item()
print(f"theorem against data: {map_difference:.1e}; error at positions that the fit did not see: {unseen_error:.1e}")
assert map_difference < 1e-9
assert unseen_error < 1e-9

# %% [markdown]
# In the figure, look at the 2×2 blocks: the first pairs turn far in five steps, the last hardly at all, so their
# blocks are almost the identity. Both ways give the same picture.

# %%
figure = new_figure(9, 3.9)
panels = figure.subplots(1, 2)
for axes, matrix, how in zip(panels, (M_by_theorem, M_from_data), ("addition theorems", "least squares"), strict=True):
    image = axes.imshow(matrix, cmap=SIGNED, vmin=-1, vmax=1)
    axes.set(xlabel="dimension of PE(pos)", ylabel="dimension of PE(pos + 5)")
    axes.set_title(f"5 places on, by {how}", loc="left")
    axes.set(xticks=range(0, D, 2), yticks=range(0, D, 2))
figure.colorbar(image, ax=panels, fraction=0.03, label="entry of the matrix")
save(figure, "03_shift_map")

# %% [markdown]
# A learned matrix W_Q or W_K can hold such a rotation, so a head *can* learn "look five places back". It is not
# forced to: token and position are added into one vector, and the score of two such vectors has four parts,
#
#     (x_i + p_i) A (x_j + p_j)ᵀ = x_i A x_jᵀ + x_i A p_jᵀ + p_i A x_jᵀ + p_i A p_jᵀ
#
# of which only the last speaks of two positions, and A may spoil its dependence on the distance. The schemes that
# came later give up the addition and act inside attention, where positions meet. There are three places to act:
#
#     ids ─▶ embedding ─▶ (+) ─▶ x ─┬─▶ W_Q ─▶ q ─▶ (turn) ─┐
#                          ▲        │                       ├─▶ q · k / √E ─▶ (+) ─▶ softmax ─▶ ...
#              sinusoidal, learned  └─▶ W_K ─▶ k ─▶ (turn) ─┘                  ▲
#                                                 RoPE          Shaw, T5's buckets, ALiBi
#
# ## Learned positions
#
# The simplest alternative: a table of D numbers for each position, trained like an embedding. In the paper it does as
# well as the sines (table 3, row E). BERT and GPT-2 have it. Its weak point is the end of the table: the vector of a
# position that training never reached is still what it was at the beginning, and beyond the table there is nothing.
# The library refuses such a text rather than guess:

# %%
from cutaway import CutawayError

shape = {"d_model": 32, "d_ff": 64, "n_heads": 4, "decoder_layers": 1}
learned_model = build_model(ModelConfig(family="decoder", vocab_size=11, max_length=16, position="learned", **shape))
shapes(table_TD=learned_model.embedding.position.table)
try:
    learned_model(torch.zeros(1, 17, dtype=torch.long))
    refused = False
except CutawayError as error:
    refused = True
    print(error)
assert refused

# %% [markdown]
# ## Relative positions: Shaw
#
# Shaw, Uszkoreit and Vaswani (2018) let attention see distances directly. For each distance j - i there are two learned
# vectors, one that is added to the key and one that is added to the value:
#
#     score(i, j) = q_i · (k_j + a^K[j - i]) / √E        output_i = Σ_j weight(i, j) · (v_j + a^V[j - i])
#
# Distances beyond a limit share the vector of the limit, so a longer text brings no new parameters. Naively, for one
# head:


# %%
def my_shaw(q, k, v, a_K, a_V, clip):
    T, E = q.shape
    rows = []
    for i in range(T):
        distance = [max(-clip, min(clip, j - i)) + clip for j in range(T)]  # an index from 0 to 2 clip
        scores = torch.stack([q[i] @ (k[j] + a_K[distance[j]]) / math.sqrt(E) for j in range(T)])
        weights = scores.softmax(dim=0)
        rows.append(sum(weights[j] * (v[j] + a_V[distance[j]]) for j in range(T)))
    return torch.stack(rows)


# %% [markdown]
# The library computes q · a^K once for each *distance* and deals the numbers out to the keys; for the values it first
# adds up the weights of equal distance. That saves the large [Q,K,E] tensor and gives the same result.

# %%
from cutaway.nn.kernels import attend_exact
from cutaway.nn.relative_positions import RelativePosition

T, E, clip = 7, 8, 3
q_BHTE, k_BHTE, v_BHTE = torch.randn(3, 1, 1, T, E).unbind()
shaw = RelativePosition(E, max_length=T, clip=clip)
nn.init.normal_(shaw.for_keys)
nn.init.normal_(shaw.for_values)
at = torch.arange(T)
with torch.no_grad():
    bias_BHQK = shaw.bias(q_BHTE, at, at)
    theirs = attend_exact(q_BHTE, k_BHTE, v_BHTE, bias=bias_BHQK, relative_values=lambda w: shaw.values(w, at, at))
    mine = my_shaw(q_BHTE[0, 0], k_BHTE[0, 0], v_BHTE[0, 0], shaw.for_keys, shaw.for_values, clip)
shapes(bias_BHQK=bias_BHQK)
print("greatest difference:", (mine - theirs[0, 0]).abs().max().item())
assert torch.allclose(mine, theirs[0, 0], atol=1e-5)

# %% [markdown]
# ## T5's buckets
#
# T5 (Raffel et al. 2020) keeps only a *number* for each head and distance, added to the score. Near distances get a
# number each. Far ones share, in buckets that widen like a logarithm: it matters whether a word is 2 or 3 places
# back, but hardly whether it is 70 or 71. In a decoder, which sees only the past:


# %%
def my_bucket(distance_back, buckets=32, max_distance=128):
    exact = buckets // 2  # one half for distances that have a bucket of their own
    if distance_back < exact:
        return distance_back
    share = math.log(distance_back / exact) / math.log(max_distance / exact)  # 0 at `exact`, 1 at `max_distance`
    return min(buckets - 1, exact + int(share * (buckets - exact)))


from cutaway.nn.relative_positions import t5_bucket

back = torch.arange(300)
# the library counts key minus query, so the past is below 0
theirs_bucket = t5_bucket(-back, 32, 128, causal=True).tolist()
assert [my_bucket(d) for d in back.tolist()] == theirs_bucket
print("distance back   bucket")
for first in (0, 1, 2, 15, 16, 20, 30, 50, 80, 127, 128, 299):
    print(f"{first:>9}         {theirs_bucket[first]}")

# %% [markdown]
# ## ALiBi
#
# Press, Smith and Lewis (2022) learn nothing at all: from each score they take off the distance times a slope. Each
# head has its own slope, 2^(-8/H), 2^(-16/H), ..., so some heads are near-sighted and some see far. It was made so
# that a model could be trained on short texts and used on long ones.

# %%
from cutaway.nn.relative_positions import AlibiPosition

H, T = 4, 32
slopes = [2 ** (-8 * (h + 1) / H) for h in range(H)]
mine_HQK = torch.tensor([[[-m * abs(i - j) for j in range(T)] for i in range(T)] for m in slopes])
alibi_HQK = AlibiPosition(H, max_length=T).bias(torch.zeros(1, H, T, 8), torch.arange(T), torch.arange(T))
shapes(alibi_HQK=alibi_HQK)
print("slopes:", slopes, "  greatest difference:", (mine_HQK - alibi_HQK).abs().max().item())
assert torch.allclose(mine_HQK, alibi_HQK, atol=1e-6)

# %% [markdown]
# ## RoPE
#
# Rotary positions (Su et al. 2021) take the clocks out of the input and put them where they are needed. Each query and
# each key is cut into pairs, and each pair is *turned* by an angle that grows with its position. A pair is a complex
# number, and turning is multiplication by e^(iθ), which makes the naive version short:


# %%
def my_rope(x_TE, positions):
    T, E = x_TE.shape
    speed = torch.tensor([10000 ** (-2 * i / E) for i in range(E // 2)])
    angle = positions[:, None] * speed
    pairs = torch.view_as_complex(x_TE.reshape(T, E // 2, 2).contiguous())
    return torch.view_as_real(pairs * torch.exp(1j * angle)).reshape(T, E)


from cutaway.nn.rotary import RotaryPosition

rope = RotaryPosition(d_head=16, max_length=200)
x_TE, at = torch.randn(32, 16), torch.arange(32)
rope_error = (my_rope(x_TE, at) - rope.rotate(x_TE, at)).abs().max().item()
print(f"greatest difference: {rope_error:.1e}")
assert rope_error < 1e-5

# %% [markdown]
# Why does that give distances? Let R(m) be the turn at position m. Turns are orthogonal, R(m)ᵀ = R(-m), and turns add
# up:
#
#     (R(m) q) · (R(n) k) = qᵀ R(m)ᵀ R(n) k = qᵀ R(n - m) k
#
# Only n - m is left. To see it in numbers, we put the *same* query vector at every position and the *same* key vector
# at every position. Then the scores can differ by position alone. All entries along a diagonal, where the distance is
# the same, must be equal, and moving everything by 100 places must change nothing.

# %%
one_query, one_key = torch.randn(2, 16).unbind()
q_TE, k_TE = one_query.expand(32, 16), one_key.expand(32, 16)
scores_QK = rope.rotate(q_TE, at) @ rope.rotate(k_TE, at).T
moved_QK = rope.rotate(q_TE, at + 100) @ rope.rotate(k_TE, at + 100).T

along_diagonals = max(scores_QK.diagonal(d).max() - scores_QK.diagonal(d).min() for d in range(-31, 32)).item()
moved_by_100 = (scores_QK - moved_QK).abs().max().item()
print(f"standard deviation of all scores: {scores_QK.std():.2f}")
print(f"greatest difference within a diagonal: {along_diagonals:.1e}; after moving by 100 places: {moved_by_100:.1e}")
assert along_diagonals < 1e-3 < scores_QK.std()
assert moved_by_100 < 1e-3

# %% [markdown]
# RoPE has no parameters, adds nothing to the values, and fits every fast kernel, since it is over before the scores are
# computed. Many language models since then use it.
#
# The next figure shows what a query (row) hears about each key (column) from its position alone. Look along the
# diagonals: each picture is constant there, so each of these scores speaks of distance. Then look at how: the sines
# fade and ripple, RoPE ripples around a value that depends on what is turned (here all ones), ALiBi falls on a
# straight line for ever, and T5 cuts distances into classes, wider and wider, here in an encoder, where past and
# future have buckets of their own.

# %%
N = 48
ones, at = torch.ones(N, 16), torch.arange(N)
turned = rope.rotate(ones, at)
alibi = AlibiPosition(4, max_length=N).bias(torch.zeros(1, 4, N, 8), at, at)
patterns = {
    "Sinusoidal: PE(i) · PE(j)": sinusoids(N, 64) @ sinusoids(N, 64).T,
    "RoPE: a turned vector of ones": turned @ turned.T,
    "ALiBi: what the second of 4 heads adds": alibi[1],
    "T5: the number of the bucket": t5_bucket(at[None, :] - at[:, None], 32, 64, causal=False),
}
figure = new_figure(9, 7.4)
for axes, (title, pattern) in zip(figure.subplots(2, 2).flat, patterns.items(), strict=True):
    image = axes.imshow(pattern, cmap=WEIGHTS, interpolation="nearest")
    axes.set(xlabel="position of the key", ylabel="position of the query")
    axes.set_title(title, loc="left")
    figure.colorbar(image, ax=axes, fraction=0.046)
save(figure, "03_patterns")

# %% [markdown]
# ## What a buffer is
#
# The table of sines is part of the model, but nothing trains it. A tensor can be kept in a module in four ways:
#
#     self.table = nn.Parameter(...)                             trained; moves with the model; saved
#     self.register_buffer("table", ...)                         not trained; moves with the model; saved
#     self.register_buffer("table", ..., persistent=False)       not trained; moves with the model; not saved
#     self.table = torch.tensor(...)                             a plain attribute: PyTorch does not know of it
#
# "Saved" means: it is in `state_dict()`, which checkpoints are made of. "Moves" means: `model.to(device)` and
# `model.to(dtype)` take it along. Here is a module with all four, moved to double precision and then to the device
# "meta", which every machine has (tensors there have a shape and no numbers).


# %%
class FourTables(nn.Module):
    def __init__(self):
        super().__init__()
        self.parameter = nn.Parameter(torch.zeros(2))
        self.register_buffer("persistent", torch.zeros(2))
        self.register_buffer("not_persistent", torch.zeros(2), persistent=False)
        self.plain = torch.zeros(2)


four = FourTables()
print("trained:", [name for name, _ in four.named_parameters()], "  saved:", list(four.state_dict()))
four.to(torch.float64).to("meta")
for name in ("parameter", "persistent", "not_persistent", "plain"):
    tensor = getattr(four, name)
    print(f"{name:<16} {tensor.dtype}    {tensor.device}")
assert list(four.state_dict()) == ["parameter", "persistent"]
assert four.not_persistent.device.type == "meta"
assert four.plain.device.type == "cpu"

# %% [markdown]
# The plain attribute stayed behind, and the next forward on a GPU would fail with "expected all tensors to be on the
# same device". The library's table is a buffer that is not persistent: it must move, but it can be computed again
# from two numbers, so there is no reason to store it. A useful consequence: a checkpoint does not fix the length of
# the table.

# %%
short, long = SinusoidalPosition(d_model=32, max_length=16), SinusoidalPosition(d_model=32, max_length=64)
print("parameters:", list(short.parameters()), "  buffers:", [name for name, _ in short.named_buffers()])
print("state_dict:", dict(short.state_dict()), "  after .to(float64):", short.to(torch.float64).table.dtype)
long.load_state_dict(short.state_dict())  # nothing to load, so nothing that does not fit
assert not short.state_dict()
assert len(long.table) == 64

# %% [markdown]
# ## Longer texts than in training
#
# The authors hoped that sines "may allow the model to extrapolate to sequence lengths longer than the ones
# encountered during training" (section 3.5), and did not test it. We do. We need a text in which order matters and of
# which we know how well it can be predicted at all. So we make one: a letter follows from the *two* before it by a
# fixed table, except that one time in ten it is drawn at random. For each last letter, the letter before it decides
# among all eight, each of which comes up once. So the last letter alone says nothing about the next, and a model must
# know which letter came last and which one before. A bag of letters is not enough.

# %%
LETTERS, NOISE = "abcdefgh", 0.1
draw = random.Random(0)
FOLLOWS = {}
for last in LETTERS:
    for before_last, follows in zip(LETTERS, draw.sample(LETTERS, 8), strict=True):
        FOLLOWS[before_last, last] = follows


def synthetic_text(length, seed):
    draw = random.Random(seed)
    text = ["a", "b"]
    while len(text) < length:
        text.append(draw.choice(LETTERS) if draw.random() < NOISE else FOLLOWS[text[-2], text[-1]])
    return "".join(text)


print(synthetic_text(60, seed=1))
chance = NOISE / len(LETTERS)  # of each letter that is not the expected one
expected = 1 - NOISE + chance
best_loss = -(expected * math.log(expected) + 7 * chance * math.log(chance))
print(f"best possible loss {best_loss:.3f} nats a letter; guessing blindly {math.log(8):.3f}")

# %% [markdown]
# The data goes the library's way: a text file, a tokenizer of characters, and pieces of 16 tokens. No model ever sees a
# longer piece in training. But each has a table for 64 positions, so that nothing is refused later.

# %%
from cutaway.data.prepare import prepare

TRAINED, LONGEST = 16, 64
folder = Path(tempfile.mkdtemp())
(folder / "train.txt").write_text(synthetic_text(150_000, seed=1), encoding="utf-8")
data = DataConfig(root=str(folder), train=("train.txt",), tokenizer="char", max_tokens=TRAINED, batch_tokens=512)
prepared = prepare(data, "language_model")
tokenizer = Tokenizer.from_json(prepared.tokenizer, prepared.roles)
ids = torch.tensor(tokenizer.encode(synthetic_text(500 * LONGEST + 1, seed=2)))
test_in_BT, test_out_BT = ids[:-1].view(-1, LONGEST), ids[1:].view(-1, LONGEST)
shapes(test_in_BT=test_in_BT, test_out_BT=test_out_BT)

# %% [markdown]
# Seven small decoders that differ in one setting, `position`. The rest is the same for all: two layers, four heads,
# width 32, 240 steps.

# %%
SCHEMES = {
    "sinusoidal": {},
    "learned": {},
    "none": {},
    "rope": {},
    "alibi": {},
    "relative_bias": {"relative_buckets": 8, "relative_distance": 8},  # T5: from 7 places back on, one bucket
    "relative": {"relative_clip": 8, "attention_kernel": "exact"},  # Shaw: it needs to see the weights
}


def trained_decoder(scheme):
    shape = {"d_model": 32, "d_ff": 64, "n_heads": 4, "decoder_layers": 2, "dropout": 0.0, "norm_placement": "pre"}
    model = ModelConfig(family="decoder", max_length=LONGEST, position=scheme, **shape, **SCHEMES[scheme])
    train = TrainConfig(steps=240, schedule="cosine", lr=1e-2, warmup=20, label_smoothing=0.0, device="cpu")
    training = start_training(Config(model, data, train), RunFolder(folder / scheme), prepared=prepared)
    training.trainer.run()
    return training.trainer.model.eval()


models = {scheme: trained_decoder(scheme) for scheme in SCHEMES}

# %% [markdown]
# To measure, one pass over new pieces of 64 tokens is enough. The models are causal: at position 10 of a long piece
# they know nothing of what follows, so their loss there is what it would be in a short piece. The loss *at each
# position* therefore holds all lengths. The very first position is left out: there only one letter is in sight.

# %%
loss_by_position = {}
for scheme, model in models.items():
    with torch.no_grad():
        logits_BTV = model(test_in_BT)
    loss_BT = F.cross_entropy(logits_BTV.transpose(1, 2), test_out_BT, reduction="none")
    loss_by_position[scheme] = loss_BT.mean(dim=0)

print(f"best possible {best_loss:.2f}\n\nscheme          up to 1x   up to 2x   up to 4x the training length")
extrapolation = {}
for scheme, loss_T in loss_by_position.items():
    spans = (loss_T[1:TRAINED], loss_T[TRAINED : 2 * TRAINED], loss_T[2 * TRAINED :])
    extrapolation[scheme] = tuple(span.mean().item() for span in spans)
    print(f"{scheme:<15}" + "".join(f"{loss:8.2f}   " for loss in extrapolation[scheme]))

# %% [markdown]
# Each column is the loss in the part that this length adds: tokens 1 to 15, tokens 16 to 31, tokens 32 to 63. What the
# table says, as claims that must hold:

# %%
rise = {scheme: (b - a, c - a) for scheme, (a, b, c) in extrapolation.items()}  # against 1x: at 2x, at 4x
for scheme in ("sinusoidal", "learned"):
    assert rise[scheme][0] > 1, "a vector added at the input fails as soon as positions are new"
for scheme in ("alibi", "relative_bias", "relative"):
    assert rise[scheme][1] < 0.8, "schemes that lump far distances together, or fade them out, hold at four times"
assert rise["rope"][0] < 0.6, "RoPE holds at twice the length ..."
assert rise["rope"][1] > 1, "... and not at four times"
assert extrapolation["none"][0] > extrapolation["rope"][0] + 0.3, "without positions it is worse from the start"

# %% [markdown]
# In the figure, look at the dotted line, where training ended. To its left every scheme has learned something of the
# rule, some more than others. To its right the paths part.

# %%
groups = [
    ("Added at the input, or nothing", {"sinusoidal": BLUE, "learned": ORANGE, "none": GREY}),
    ("Inside attention", {"rope": BLUE, "alibi": ORANGE, "relative_bias": GREEN, "relative": GREY}),
]
names = {"none": "no positions", "rope": "RoPE", "alibi": "ALiBi", "relative_bias": "T5's buckets", "relative": "Shaw"}
figure = new_figure(10, 4.4)
top = 1.1 * max(loss_T[1:].max().item() for loss_T in loss_by_position.values())
for axes, (title, members) in zip(figure.subplots(1, 2), groups, strict=True):
    for scheme, colour in members.items():
        axes.plot(range(1, LONGEST), loss_by_position[scheme][1:], color=colour, label=names.get(scheme, scheme))
    axes.axvline(TRAINED - 0.5, color="black", linestyle=":", linewidth=1, label="end of training length")
    axes.axhline(best_loss, color="black", linewidth=0.8, linestyle="--", label="best possible")
    axes.set(xlabel="position in the text", ylabel="loss, nats a letter", ylim=(0, top))
    axes.set_title(title, loc="left")
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.17))
figure.suptitle("Loss at each position: what happens beyond the training length", x=0.01, ha="left", fontsize=11)
save(figure, "03_extrapolation")

# %% [markdown]
# Why?
#
# - **Learned**: the vectors from position 16 on were never trained. They are noise, added to every token.
# - **Sinusoidal**: each vector is well defined, but W_Q and W_K have met only the first 16. For the slow pairs, that
#   is a tiny piece of their circle. The linear map exists; nothing made the model find it for all positions.
# - **None**: a decoder can count what it sees, a little. It is worse from the start, and gets worse as the count grows.
# - **RoPE** sees distances, so *new positions* are no problem, but *new distances* are: at position 50 there are keys
#   at distances that never occurred, whose scores nobody kept low. That is why large models that use RoPE slow down
#   its clocks before they are given longer texts.
# - **T5's buckets** and **Shaw** put all far distances into one class, whose number or vector training has set. What is
#   left of the rise is dilution: more and more keys share the softmax.
# - **ALiBi** pushes far keys down more the farther they are, without end. In heads with a steep slope, the keys that
#   a longer text adds have hardly any weight. The price: it cannot point sharply at one distance, so within the
#   training length it lags behind.
#
# These are explanations; can we test one? If new *distances* are what breaks RoPE, hiding them must mend it. We let
# each query see only keys that are less than 16 places away, without any further training. Schemes that fail because
# of new *positions* must stay broken.

# %%
from cutaway.nn.sparse_masks import SlidingWindow

windowed = {}
for scheme, model in models.items():
    model.rules = (SlidingWindow(TRAINED),)
    with torch.no_grad():
        loss_BT = F.cross_entropy(model(test_in_BT).transpose(1, 2), test_out_BT, reduction="none")
    model.rules = ()
    windowed[scheme] = loss_BT[:, 2 * TRAINED :].mean().item()
    print(f"{scheme:<15} up to 4x: {extrapolation[scheme][2]:.2f}, in a window of {TRAINED}: {windowed[scheme]:.2f}")
assert windowed["rope"] < extrapolation["rope"][0] + 0.2, "RoPE is mended"
assert windowed["relative_bias"] < extrapolation["relative_bias"][2], "fewer keys share the softmax"
for scheme in ("sinusoidal", "learned"):
    assert windowed[scheme] > extrapolation[scheme][0] + 1, "a position that is new stays new"

# %% [markdown]
# The explanation holds: with distances that it knows, RoPE is back where it was in training. T5's buckets gain too,
# since fewer keys share the softmax. The sines and the learned vectors stay broken.
#
# One small text is no verdict on the schemes. It rewards looking one place back and nothing else, which suits Shaw's
# vectors best. But Press et al. found much of this pattern in large language models as well: sines fail at once, RoPE
# a little later, T5's buckets hold longer, and ALiBi longest.
#
# ## What they have learned
#
# Look at the left: among the first 16 positions neighbours have become alike (red blocks along the diagonal), though
# nobody told the model that 3 lies between 2 and 4. After position 15 there is noise, as on the first day. Look at
# the right: a query knows its own letter already, so what it needs is the letter one place back, and that is the
# distance that the heads of the T5 model have come to like best, taken together. The flat part is the bucket of all
# that is far.

# %%
table_TD = models["learned"].embedding.position.table.detach()
unit_TD = F.normalize(table_TD[: 2 * TRAINED], dim=-1)
at = torch.arange(TRAINED)
with torch.no_grad():
    bias_HQK = models["relative_bias"].embedding.position.bias(torch.zeros(1, 4, 1, 8), at[-1:], at)
bias_HT = bias_HQK[:, 0].flip(-1)  # by distance back from the last query
favourite_distance = int(bias_HT.mean(dim=0).argmax())
print("the favourite distance of the heads, on average:", favourite_distance)
assert favourite_distance == 1

# %% [markdown]
# The same as a picture:

# %%
figure = new_figure(10, 3.9)
left, right = figure.subplots(1, 2)
image = left.imshow(unit_TD @ unit_TD.T, cmap=SIGNED, vmin=-1, vmax=1, interpolation="nearest")
left.set(xlabel="position", ylabel="position")
left.set_title("Learned positions: cosine similarity", loc="left")
figure.colorbar(image, ax=left, fraction=0.046)
for head, colour in enumerate((BLUE, ORANGE, GREEN, GREY)):
    right.plot(at, bias_HT[head], color=colour, marker="o", markersize=3, label=f"head {head}")
right.set(xlabel="distance back from the query", ylabel="added to the score")
right.set_title("T5's numbers: on average, one place back is liked best", loc="left")
right.legend(frameon=False)
save(figure, "03_learned")

# %% [markdown]
# The length of the vectors tells the same: what training has touched has grown.

# %%
norm_T = table_TD.norm(dim=-1)
trained_norm, untrained_norm = norm_T[:TRAINED].mean().item(), norm_T[TRAINED:].mean().item()
learned_growth = trained_norm / untrained_norm
print(f"mean length of a learned vector: {trained_norm:.2f} within 16 positions, {untrained_norm:.2f} after")
assert learned_growth > 1.2

# %% [markdown]
# ## What to remember
#
# - Self-attention is permutation equivariant: shuffle the input, and the output is shuffled, nothing else. Without
#   positions an encoder reads a bag of words.
# - Sinusoidal encodings are clocks of many speeds. A step of k places turns each hand by an angle that does not
#   depend on where it stands: PE(pos + k) = M_k PE(pos).
# - Schemes act at the input (sinusoidal, learned), on queries and keys (RoPE), or on the scores (Shaw, T5, ALiBi).
# - With RoPE the score of two vectors depends on their distance alone, because turns add up.
# - "It can be computed for any length" is not "it works at any length". Measure it.
# - A buffer moves with the model and is not trained; if it is not persistent, it is not saved either.
#
# ## Try it yourself
#
# 1. Let the text depend on a letter farther back: `FOLLOWS[text[-3], text[-1]]`, and begin with `["a", "b", "c"]`.
#    Which schemes still come close to `best_loss` within 16 positions? Watch ALiBi, which cannot point sharply.
# 2. Give RoPE slower clocks: add `{"rope_base": 100_000.0}` to its row in `SCHEMES`, then try 100. Look at positions
#    32 to 63.
# 3. Set `TRAINED, LONGEST = 32, 128`. Do the absolute schemes now hold up to 32, and where do they break? And RoPE?
#
# An `assert` may stop you on the way: it states what holds for the settings of the lesson. Then it has told you
# something.
#
# ## Next
#
# Build it yourself: `cutaway check 3`. Or see what order is worth: `cutaway lab no-positions`. Then:
#
# Lesson 4 puts attention into its place: [the Transformer encoder block](04_transformer_encoder_block.py), with
# residual connections, norms and the feed-forward network.
