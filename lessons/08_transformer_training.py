# %% [markdown]
# # 8. Training a Transformer
#
# The earlier lessons built the model. This one is about everything around it that makes it learn. At the end you will
# know
#
# - how text becomes tokens, and tokens become batches that waste little,
# - why the target is shifted by one place, and what a model learns if somebody forgets it,
# - what label smoothing, warmup, clipping and Adam do, each built in a few lines,
# - how a training can stop and go on as if nothing had happened,
# - how to tell a model that has learned from one that has learned by heart.
#
# In the paper this is section 5: data and batches (5.1), optimizer and schedule (5.3), regularization (5.4). The shift
# is in section 3.1.

# %%
import dataclasses
import json
import math
import tempfile
from collections import Counter
from itertools import pairwise

import torch

from cutaway.course.lesson import save, shapes
from cutaway.explore.figures import BLUE, GREEN, GREY, ORANGE, WEIGHTS, new_figure

torch.manual_seed(0)

# %% [markdown]
# ## Tokens
#
# A model has a table with a vector for each token, so the tokens must be a fixed list. Two simple lists: all
# characters (short list, long texts) or all words (long list, and never all of them). *Byte-pair encoding* (BPE;
# Sennrich et al. 2016, which the paper uses) goes between. Begin with characters. Count which two neighbours meet most
# often. Make them one token. Repeat. A word brings along the space before it, written Ġ: so it is the same token
# wherever it stands, and gluing tokens together gives the text again. Here are five words, with how often each is seen:

# %%
WORDS = ["low"] * 5 + ["lower"] * 2 + ["lowest"] + ["newest"] * 6 + ["widest"] * 3


def merge(parts, pair):
    """The parts of a word, with each occurrence of the pair glued together."""
    glued = []
    for part in parts:
        if glued and (glued[-1], part) == pair:
            glued[-1] += part
        else:
            glued.append(part)
    return glued


# %% [markdown]
# The rest is the loop. If two pairs are equally frequent somebody must decide: the pair whose parts became tokens
# earlier wins, as in the library that we shall compare with.

# %%
N_MERGES = 9
words = {word: ["Ġ", *word] for word in Counter(WORDS)}  # each word, as its parts
tokens = sorted({"Ġ", *"".join(WORDS)})  # the vocabulary, oldest first
my_merges = []
for _ in range(N_MERGES):
    pairs = Counter()
    for word, parts in words.items():
        for pair in pairwise(parts):
            pairs[pair] += WORDS.count(word)
    best = min(pairs, key=lambda pair: (-pairs[pair], tokens.index(pair[0]), tokens.index(pair[1])))
    my_merges.append(best)
    tokens.append("".join(best))
    words = {word: merge(parts, best) for word, parts in words.items()}
    print(f"{'+'.join(best):9} met {pairs[best]} times:  ", "   ".join("·".join(parts) for parts in words.values()))

# %% [markdown]
# Look at "est": an ending that three words share has become a token, though nobody said what an ending is. "Ġlow" is
# whole, for it is frequent. Now the library, which begins with the 256 bytes instead of our letters. That makes no
# difference here: these letters are one byte each.

# %%
from cutaway import Tokenizer

bpe = Tokenizer.train(WORDS, "bpe", vocab_size=4 + 256 + N_MERGES)  # 4 special tokens, 256 bytes, the merges
their_merges = [tuple(pair) for pair in json.loads(bpe.to_json())["model"]["merges"]]
print("the library:", *("+".join(pair) for pair in their_merges))
assert their_merges == my_merges
for word in ("lowest", "slowest", "brow"):
    print(f"{word:8} ->", "·".join(bpe.tokens(bpe.encode(word))))

# %% [markdown]
# "slowest" was never seen and is written all the same. A word vocabulary cannot do that. What it does not know becomes
# `<unk>`, and what was there is lost. How much does that cost? The built-in corpus `tinyworld:en-fr` has
# short English sentences with their French translations. We train vocabularies on it and send test sentences there
# and back.

# %%
from cutaway import load_builtin

train_pairs = load_builtin("tinyworld:en-fr", "train", size=4_000)
test_pairs = load_builtin("tinyworld:en-fr", "test", size=150)
train_texts = [text for pair in train_pairs for text in (pair.source, pair.target)]
test_texts = [text for pair in test_pairs for text in (pair.source, pair.target)]
intact = {}
print(f"{'scheme':6} {'vocabulary':>10} {'tokens a text':>14} {'of them <unk>':>14} {'texts intact':>13}")
for scheme, size in (("word", 300), ("word", 1_000), ("word", 4_000), ("bpe", 400), ("bpe", 1_000)):
    tokenizer = Tokenizer.train(train_texts, scheme, size)
    ids = tokenizer.encode_batch(test_texts)
    n_tokens, n_unknown = sum(map(len, ids)), sum(row.count(tokenizer.unk) for row in ids)
    intact[scheme, size] = sum(tokenizer.decode(row) == text for row, text in zip(ids, test_texts, strict=True)) / len(
        ids
    )
    mean, lost = n_tokens / len(ids), n_unknown / n_tokens
    print(f"{scheme:6} {tokenizer.vocab_size:10} {mean:14.1f} {lost:14.1%} {intact[scheme, size]:13.0%}")
    if (scheme, size) == ("word", 1_000):
        print("       for example:", next(tokenizer.decode(row) for row in ids if tokenizer.unk in row))

# %% [markdown]
# Read the last column. One unknown word spoils a text, so a small share of them spoils many texts. BPE spoils
# none, and pays in length. The large word vocabulary does well here, because the world of this corpus is
# small; real text always has one more name. (For the lesson we take it: a token is then a word, which reads better.)

# %%
assert intact["bpe", 400] == intact["bpe", 1_000] == 1
assert intact["word", 300] < intact["word", 1_000] < 0.95

# %% [markdown]
# ## Batches
#
# A processor is fast if it has many numbers to work on, so sentences go through the model together. A tensor is a
# rectangle, and sentences are not equally long: the short ones are filled up with padding. A *mask* says what is token
# and what is padding, so that attention and loss leave it out. But it is computed, all the same. Here is the recipe of
# the small translator that most of this lesson uses. `prepare` reads the corpus and turns it into ids.

# %%
from cutaway import Config, DataConfig, DecodeConfig, ModelConfig, TrainConfig
from cutaway.data.prepare import prepare

MODEL = {"d_model": 64, "d_ff": 256, "n_heads": 4, "encoder_layers": 1, "decoder_layers": 1, "max_length": 128}
DATA = {"corpus": "tinyworld:en-fr", "size": 4_000, "heldout_size": 120, "tokenizer": "word", "vocab_size": 4_000}


def recipe(dropout=0.0, **train):
    return Config(
        model=ModelConfig(norm_placement="pre", dropout=dropout, **MODEL),
        data=DataConfig(max_tokens=64, batch_tokens=512, **DATA),
        train=TrainConfig(**({"warmup": 60, "lr": 0.5, "log_every": 10} | train)),
        decode=DecodeConfig(strategy="greedy"),
    )


prepared = prepare(recipe().data, "translation")
tokenizer = Tokenizer.from_json(prepared.tokenizer)
print(prepared.train[0])
print(tokenizer.tokens(prepared.train[0].target))

# %% [markdown]
# Which sentences should share a batch? If they are drawn at random, each batch is as wide as its longest sentence. So
# the library sorts by length first, cuts the row into batches of at most `batch_tokens` tokens, and shuffles the
# *batches*. `batches_by_tokens` says which sentences go together, `BatchStream` makes the tensors. For comparison we
# fill batches of the same budget with sentences as they come, in random order.

# %%
from cutaway.data.batching import BatchStream, collate_pairs
from cutaway.data.sampler import batches_by_tokens

BUDGET = 512
order = batches_by_tokens(prepared.train, BUDGET, seed=1, epoch=0)
stream = BatchStream(prepared.train, "translation", tokenizer, BUDGET, seed=1)
by_length = [next(stream) for _ in order]
groups = [[]]
for i in torch.randperm(len(prepared.train)).tolist():
    longest = max(len(prepared.train[j].target) + 1 for j in [*groups[-1], i])
    if (len(groups[-1]) + 1) * longest > BUDGET:
        groups.append([])
    groups[-1].append(i)
at_random = [collate_pairs([prepared.train[i] for i in group], tokenizer) for group in groups]
assert sum(len(group) for group in order) == sum(len(group) for group in groups) == len(prepared.train)

# %% [markdown]
# How much of all rectangles, of source and target, is padding?


# %%
def padding_share(batches):
    masks = [mask for batch in batches for mask in (batch.source_mask, batch.target_mask)]
    return 1 - sum(mask.sum().item() for mask in masks) / sum(mask.numel() for mask in masks)


waste_random, waste_by_length = padding_share(at_random), padding_share(by_length)
print(f"{len(at_random)} random batches, {len(by_length)} batches by length for the same sentences")
print(f"padding: {waste_random:.1%} of random batches, {waste_by_length:.1%} of batches by length")
assert waste_by_length < waste_random / 3

# %% [markdown]
# In the figure every row is a sentence and white is padding. Look at the ragged edge on the left: one long sentence
# makes all others wide. On the right it is nearly gone.

# %%
figure = new_figure(9, 3.4)
typical = min(at_random, key=lambda batch: abs(padding_share([batch]) - waste_random))
closest = min(by_length, key=lambda batch: abs(batch.target_mask.size(0) - typical.target_mask.size(0)))
panels = {"At random: much of the batch is padding": typical, "By length: hardly any of it is": closest}
for axes, (title, batch) in zip(figure.subplots(1, 2, sharex=True), panels.items(), strict=True):
    axes.imshow(batch.target_mask, cmap=WEIGHTS, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.set(xlabel="place in the sentence (white: padding)", ylabel="sentence of the batch")
    axes.set_xticks(range(0, batch.target_mask.size(1), 5))
    axes.set_title(title, loc="left")
save(figure, "08_padding")

# %% [markdown]
# ### Micro-batches
#
# The paper's batches have about 25,000 tokens a side (section 5.1). If that does not fit into memory, one cuts a batch
# into *micro-batches*, computes their gradients one after another and adds them up. There is a trap: the loss is a mean
# over tokens, and a mean of means weighs a token more if it happens to be in a small micro-batch. Right is: add the
# *sums*, divide once by *all* tokens. We compare three gradients of one model.

# %%
from cutaway import build_model
from cutaway.train.objectives import OBJECTIVES, compute_loss

torch.manual_seed(0)
config = dataclasses.replace(recipe().model, vocab_size=tokenizer.vocab_size)
model = build_model(config)
by_size = sorted(prepared.train[:40], key=lambda pair: len(pair.target))
whole = collate_pairs(by_size, tokenizer)
micro = [collate_pairs(by_size[:20], tokenizer), collate_pairs(by_size[20:], tokenizer)]


def gradient(*weighted):
    """The gradient of the sum of (batch, weight of its loss sum), as one long vector."""
    model.zero_grad()
    for batch, weight in weighted:
        (compute_loss(model, OBJECTIVES["translation"], batch, 0.0).loss * weight).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


# %% [markdown]
# Both micro-batches have twenty sentences, the first one the short ones.

# %%
print("tokens:", [batch.tokens for batch in micro], "together", whole.tokens)
at_once = gradient((whole, 1 / whole.tokens))
sums = gradient(*((batch, 1 / whole.tokens) for batch in micro))
mean_of_means = gradient(*((batch, 1 / batch.tokens / 2) for batch in micro))
sums_error = ((sums - at_once).norm() / at_once.norm()).item()
means_error = ((mean_of_means - at_once).norm() / at_once.norm()).item()
print(f"sums / all tokens is off by {sums_error:.1e} of the gradient, the mean of means by {means_error:.1e}")
assert sums_error < 1e-4
assert means_error > 1e-2

# %% [markdown]
# ## Teacher forcing
#
# At every place of the target the decoder must say the next word. It is given the *right* words before it, not those
# that it would have said itself: a teacher who corrects each word at once. So one pass asks for all words together.
# The decoder reads the target *shifted right* (section 3.1): `<s>` in front, one place behind what it must say.

# %%
from rich.console import Console
from rich.table import Table

one = collate_pairs(prepared.train[2:4], tokenizer)
shapes(source_BS=one.source, target_in_BT=one.target_in, target_out_BT=one.target_out, target_mask_BT=one.target_mask)
table = Table("place", *map(str, range(one.target_in.size(1))))
row = min(range(2), key=lambda i: one.target_mask[i].sum())  # the shorter one, to see the padding
for name, ids_BT in (("target_in", one.target_in), ("target_out", one.target_out)):
    table.add_row(name, *tokenizer.tokens(ids_BT[row].tolist()))
table.add_row("counts", *("yes" if counts else "no" for counts in one.target_mask[row].tolist()))
Console(width=118).print(table)

# %% [markdown]
# Each column: what was read last, and what must be said. The causal mask lets place i see `target_in` up to i, which is
# `target_out` up to i - 1. Now forget the shift: give the decoder `target_out` to read as well. Nothing complains; the
# shapes are right. `start_training` makes a training ready in a run folder, and we give it another objective.

# %%
from cutaway import RunFolder, Translator, evaluate_run, start_training
from cutaway.train.objectives import measure, translation


def without_shift(model, batch):
    return translation(model, dataclasses.replace(batch, target_in=batch.target_out))


copier_run = RunFolder(tempfile.mkdtemp())
training = start_training(
    recipe(steps=120, label_smoothing=0.0), copier_run, prepared=prepared, objective=without_shift
)
training.trainer.run()
copier_losses = [row["nll"] for row in copier_run.read_metrics() if "nll" in row]
print("training loss:", "  ".join(f"{loss:.3f}" for loss in copier_losses))

# %% [markdown]
# A wonderful curve, and far too good: no translator has a loss of nearly nothing. Let it translate. Then it has to read
# its own words, one place behind, and all that it ever learned is to repeat what it has just read. It begins with
# `<s>`, which it has never met there, says some word or other, and is caught in it.

# %%
copier = Translator.load(copier_run.path, device="cpu")
copier_scores = evaluate_run(copier, test_pairs[:50])
with_shift = measure(copier.model, translation, training.trainer.valid_batches)
for pair, said in zip(test_pairs[:3], copier.translate([pair.source for pair in test_pairs[:3]]), strict=True):
    print(f"{pair.source}\n    should be  {pair.target}\n    says       {said[:60]}")
print(f"loss as it was trained {copier_losses[-1]:.3f}, with the shift {with_shift.nll:.1f} nats a token")
print(f"BLEU {copier_scores['bleu']:.1f}, sentences right: {copier_scores['exact_match']:.0%}")
assert copier_losses[-1] < 0.1
assert copier_scores["exact_match"] == 0
assert with_shift.nll > 30 * copier_losses[-1]

# %% [markdown]
# Remember it as a rule: if a loss is too good to be true, something has seen the answer.
#
# ## Label smoothing
#
# Cross-entropy asks that the right token have probability 1. No finite logits give that; training drives them apart
# for ever. Label smoothing (section 5.4, ε = 0.1) asks for less: 1 - ε goes to the right token, and ε is spread evenly
# over all V of them.
#
#     q = (1 - ε) · one-hot + ε / V        loss = -Σ q ln p
#
# The loss is smallest where p = q, and there it is not zero but the *entropy* of q, -Σ q ln q. We check that with the
# library's loss: of a thousand other p, none is better than q.

# %%
from cutaway.train.losses import smoothed_cross_entropy

V, epsilon, right = 10, 0.1, 3
q_V = torch.full((V,), epsilon / V)
q_V[right] += 1 - epsilon
entropy = -(q_V * q_V.log()).sum().item()
answer = torch.tensor([right])
at_q = smoothed_cross_entropy(q_V.log()[None], answer, epsilon)[0].item()
others = [smoothed_cross_entropy((q_V.log() + 0.3 * torch.randn(V))[None], answer, epsilon)[0] for _ in range(1_000)]
print(f"entropy of q {entropy:.6f}, library's loss at p = q {at_q:.6f}, best of 1000 others {min(others):.6f}")
assert abs(at_q - entropy) < 1e-6
assert min(others) > at_q

# %% [markdown]
# On the left of the figure is q, beside the one-hot target. On the right is the loss as the right token gets more and
# more probability (the rest shared evenly). Look at the end of the curves: without smoothing, more is always better.
# With smoothing there is a lowest point, and to be *too* sure costs.

# %%
p_P = torch.linspace(0.3, 0.9999, 400)
figure = new_figure(10, 3.6)
left, axes = figure.subplots(1, 2)
left.bar([v - 0.2 for v in range(V)], torch.eye(V)[right], width=0.4, color=GREY, label="one-hot")
left.bar([v + 0.2 for v in range(V)], q_V, width=0.4, color=BLUE, label=f"smoothed, ε = {epsilon}")
left.set(xlabel="token", ylabel="target probability", xticks=range(V))
left.set_title("What is asked for", loc="left")
left.legend(frameon=False)
for e, colour in ((0.0, GREY), (epsilon, BLUE)):
    loss_P = -(1 - e + e / V) * p_P.log() - e / V * (V - 1) * ((1 - p_P) / (V - 1)).log()
    axes.plot(p_P, loss_P, color=colour, label=f"ε = {e}")
axes.plot([q_V[right]], [entropy], "o", color=ORANGE, label="p = q: the best possible")
axes.set(xlabel="probability of the right token", ylabel="loss, nats", ylim=(0, 1.7))
axes.set_title("What it costs: being too sure is not free", loc="left")
axes.legend(frameon=False)
save(figure, "08_smoothing")

# %% [markdown]
# So a training with smoothing never shows a loss of zero, and its loss must not be compared with one without. That
# is why the library logs both: `loss`, which it makes small, and `nll`, the plain cross-entropy, whose exponential is
# the perplexity. The paper remarks that smoothing hurts the perplexity and helps accuracy and BLEU. What it does to the
# model's confidence we shall see below.
#
# ## The learning rate
#
# How far to go at each step? The paper's schedule (equation 3), often called *noam*, climbs in a straight line for
# `warmup` steps and then falls with the square root of the step:
#
#     lrate = d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)

# %%
from cutaway.train.schedules import constant, cosine, noam

steps = range(1, 20_001)
mine = [512**-0.5 * min(step**-0.5, step * 4_000**-1.5) for step in steps]
theirs = [noam(1.0, d_model=512, warmup=4_000)(step) for step in steps]
noam_difference = max(abs(a - b) for a, b in zip(mine, theirs, strict=True))
peak = max(mine)
print(f"greatest difference {noam_difference:.1e}; the peak is {peak:.5f} at step {1 + mine.index(peak)}")
assert noam_difference < 1e-12
assert mine.index(peak) + 1 == 4_000

# %% [markdown]
# In the figure it stands beside two others with the same peak. Look at the two ends: *cosine* comes down to nothing at
# a last step that one has to know in advance; noam can go on for ever. *Constant* has neither a beginning nor an end.

# %%
figure = new_figure(7.5, 3.2)
axes = figure.add_subplot()
axes.plot(steps, mine, color=BLUE, label="noam (the paper's base model)")
with_cosine = [cosine(peak, 4_000)(step, step / 20_000) for step in steps]
axes.plot(steps, with_cosine, color=ORANGE, label="cosine with warmup")
axes.plot(steps, list(map(constant(peak), steps)), color=GREY, linestyle="--", label="constant")
axes.set(xlabel="step", ylabel="learning rate", ylim=(0, 1.45 * peak))
axes.set_title("Three schedules with one peak", loc="left")
axes.legend(frameon=False, ncols=3, loc="upper right", fontsize=9)
save(figure, "08_schedules")

# %% [markdown]
# ### Why warm up?
#
# At the first steps the weights are random and Adam (below) knows little yet of how large gradients usually are; a
# full step then goes far in a bad direction. The paper's norm stands *after* each residual sum (post-norm), and deep
# post-norm stacks are sensitive to that. We train six such layers as a language model on the characters of Python
# source, with three seeds, with a warmup and without. Nothing else differs. An *observer* is told what happens in a
# training; ours keeps the report of each step.

# %%
from cutaway.train.observers import Observer

CODE = {"corpus": "python", "size": 40, "heldout_size": 3, "max_tokens": 64}
CHARACTERS = DataConfig(tokenizer="char", vocab_size=200, batch_tokens=256, **CODE)
GPT = {"family": "decoder", "d_model": 64, "n_heads": 4, "max_length": 256, "dropout": 0.0, "position": "rope"}
prepared_characters = prepare(CHARACTERS, "language_model")


class Watch(Observer):
    """Keeps what every step reports."""

    def __init__(self):
        self.reports = []

    def on_step(self, trainer, report):
        self.reports.append(report)


# %% [markdown]
# The learning rate is high on purpose (cosine with a peak of 0.004), and clipping is switched off, so that we see
# gradients as they are.

# %%
WARMUP_STEPS, WARMUP, SEEDS = 100, 30, (1, 2, 3)


def watched(warmup, seed):
    model = ModelConfig(decoder_layers=6, d_ff=256, norm_placement="post", **GPT)
    rate = {"schedule": "cosine", "lr": 4e-3, "warmup": warmup, "clip_norm": 0.0}
    train = TrainConfig(steps=WARMUP_STEPS, label_smoothing=0.0, seed=seed, **rate)
    watch = Watch()
    run = RunFolder(tempfile.mkdtemp())
    start_training(Config(model, CHARACTERS, train), run, [watch], prepared_characters).trainer.run()
    return watch.reports


reports = {(warmup, seed): watched(warmup, seed) for warmup in (0, WARMUP) for seed in SEEDS}
final_loss = {}
for warmup in (0, WARMUP):
    ends = [sum(report.nll for report in reports[warmup, seed][-20:]) / 20 for seed in SEEDS]
    final_loss[warmup] = sum(ends) / len(ends)
    print(f"warmup {warmup:2}: mean loss of the last twenty steps", "  ".join(f"{end:.2f}" for end in ends))
assert final_loss[WARMUP] < final_loss[0]

# %% [markdown]
# In the figure the lines are means over the three seeds. On the left look at who is ahead at first, and who at the end:
# without warmup the loss falls at once, and then it stays higher. The dashed line is what one gets by knowing
# how frequent each character is, and nothing of the context. On the right look at the first steps: there the gradients
# are many times as long as later, which is where a full step can do its harm. After that nothing explodes; the norm
# alone would not have told.

# %%
seen = Counter(i for piece in prepared_characters.train for i in piece.ids)
frequencies = [count / seen.total() for count in seen.values()]
frequency_loss = -sum(f * math.log(f) for f in frequencies)
figure = new_figure(10, 3.6)
left, axes = figure.subplots(1, 2)
for warmup, colour in ((0, ORANGE), (WARMUP, BLUE)):
    by_step = list(zip(*(reports[warmup, seed] for seed in SEEDS), strict=True))
    label = f"warmup of {warmup} steps" if warmup else "no warmup"
    left.plot([sum(r.nll for r in row) / len(row) for row in by_step], color=colour, label=label)
    axes.plot([sum(r.gradient_norm for r in row) / len(row) for row in by_step], color=colour, label=label)
left.axhline(frequency_loss, color=GREY, linestyle="--", label="character frequencies alone")
left.set(xlabel="step", ylabel="cross-entropy of a batch, nats")
left.set_title("Six post-norm layers with and without warmup", loc="left")
left.legend(frameon=False, fontsize=9)
axes.set(xlabel="step", ylabel="norm of the gradient (log scale)", yscale="log")
axes.set_title("The first gradients are the longest", loc="left")
save(figure, "08_warmup")
assert all(found[0].gradient_norm > 3 * found[-1].gradient_norm for found in reports.values())

# %% [markdown]
# An honest remark. This is a small model, three seeds and a short training, and the setting was picked because it shows
# the effect. While this lesson was written, some other settings (a lower rate, other depths, other tokens) showed no
# difference in so few steps, or no run learned much at all. What speaks for warmup is not this figure but wide
# experience with large models; Xiong et al. (2020) explain it by the large gradients of post-norm stacks at the start,
# and find that with the norm before each sub-layer (pre-norm) one can do without.
#
# ## Adam
#
# Plain descent takes the same rate for every weight. Adam (Kingma & Ba 2015) keeps two running means for each: m of the
# gradient, v of its square. It steps along m / √v, so a weight whose gradients are always small still moves. Both means
# begin at zero, so that they are too small at first; the divisions by 1 - βᵗ undo that. Five lines:


# %%
def adam_step(w, g, m, v, t, lr, beta1=0.9, beta2=0.98, eps=1e-9):  # the paper's numbers (section 5.3)
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    m_hat = m / (1 - beta1**t)
    v_hat = v / (1 - beta2**t)
    return w - lr * m_hat / (v_hat.sqrt() + eps), m, v


# %% [markdown]
# Against `torch.optim.Adam`, fitting y = 3x₁ - 2x₂ for thirty steps:

# %%
x_N2 = torch.randn(50, 2)
y_N = x_N2 @ torch.tensor([3.0, -2.0])
w, m, v = torch.zeros(2), torch.zeros(2), torch.zeros(2)
w_torch = torch.zeros(2, requires_grad=True)
optimizer = torch.optim.Adam([w_torch], lr=0.1, betas=(0.9, 0.98), eps=1e-9)
for t in range(1, 31):
    g = 2 * x_N2.T @ (x_N2 @ w - y_N) / len(y_N)  # the derivative of the mean squared error
    w, m, v = adam_step(w, g, m, v, t, lr=0.1)
    optimizer.zero_grad()
    ((x_N2 @ w_torch - y_N) ** 2).mean().backward()
    optimizer.step()
adam_difference = (w - w_torch).abs().max().item()
print(f"mine {w.tolist()}, torch {w_torch.tolist()}, greatest difference {adam_difference:.1e}")
assert torch.allclose(w, w_torch, atol=1e-5)

# %% [markdown]
# ## Clipping
#
# Now and then one batch has a gradient many times as long as usual. Clipping scales it down to a given length c and
# keeps its direction: g · min(1, c / ‖g‖), where the norm is over *all* weights together. In a line, and by torch:

# %%
g = torch.tensor([30.0, -40.0])  # of length 50
mine = g * min(1.0, 1.0 / g.norm().item())
w_torch.grad = g.clone()
torch.nn.utils.clip_grad_norm_([w_torch], 1.0)
print(f"mine {mine.tolist()}, torch {w_torch.grad.tolist()}")
assert torch.allclose(mine, w_torch.grad, atol=1e-5)

# %% [markdown]
# What does one exploding step do? We feed Adam gradients of about 1, so that the weight should go down steadily, and a
# single one of -1,000 at step 40. For plain descent that would be a jump of a thousand steps back. Adam divides by √v,
# so there is no such jump. But m and v *remember*: the next steps follow the one bad gradient, and long after that
# every step is divided by the memory of the explosion.

# %%
torch.manual_seed(0)
gradients = (1 + 0.3 * torch.randn(120)).tolist()
gradients[39] = -1_000.0


def path(limit):
    w, m, v = torch.zeros(3)
    places = []
    for t, g in enumerate(gradients, start=1):
        w, m, v = adam_step(w, g * min(1.0, limit / abs(g)), m, v, t, lr=0.01)
        places.append(w.item())
    return places


path_plain, path_clipped = path(math.inf), path(2.0)
moved_plain, moved_clipped = (p[39 - 1] - p[-1] for p in (path_plain, path_clipped))
print(f"from the explosion to the end: {moved_clipped:.2f} down with clipping, {moved_plain:.2f} without")
assert moved_clipped > 0.4
assert moved_plain < moved_clipped / 4

# %% [markdown]
# In the figure look first at the dent, then at what follows: the unclipped weight hardly moves any more. One bad batch
# has cost not one step but all that are left. With clipping it has cost a few.

# %%
figure = new_figure(7.5, 3.2)
axes = figure.add_subplot()
axes.plot(range(1, 121), path_plain, color=ORANGE, label="not clipped")
axes.plot(range(1, 121), path_clipped, color=BLUE, label="clipped at 2")
axes.axvline(40, color=GREY, linestyle=":", label="one gradient of -1,000")
axes.set(xlabel="step", ylabel="the weight")
axes.set_title("One exploding gradient, and how long Adam remembers it", loc="left")
axes.legend(frameon=False, loc="lower left")
save(figure, "08_clipping")

# %% [markdown]
# ## Stop and go on
#
# A training of days must survive a power cut. To go on as if nothing had happened, one needs more than the weights:
# Adam's m and v, the number of the step (it sets the learning rate) and the place in the data. All that is a
# *checkpoint*. What dropout draws has to be the same, too: here it follows from the seed and the step, so there is no
# state of a random generator to be saved. We train 20 steps in one go; then 10, stop, and 10 more.

# %%
from cutaway import resume

straight = start_training(recipe(dropout=0.1, steps=20), RunFolder(tempfile.mkdtemp()), prepared=prepared).trainer
straight.run()
stopped_run = RunFolder(tempfile.mkdtemp())
start_training(recipe(dropout=0.1, steps=10), stopped_run, prepared=prepared).trainer.run()
print("in the checkpoint:", *sorted(path.name for path in stopped_run.pointer("latest").iterdir()))
resumed = resume(recipe(dropout=0.1, steps=20), stopped_run, prepared=prepared).trainer
print("resumed at step", resumed.state.step, "batch", resumed.batches.position())
resumed.run()


# %% [markdown]
# Not nearly equal: equal to the bit. And for comparison somebody who kept the weights, the step and the place in the
# data, but not the optimizer:


# %%
def furthest(one, other):
    return max((a - b).abs().max().item() for a, b in zip(one.parameters(), other.parameters(), strict=True))


forgetful = start_training(recipe(dropout=0.1, steps=10), RunFolder(tempfile.mkdtemp()), prepared=prepared).trainer
forgetful.run()
forgetful.optimizer = type(forgetful.optimizer)(forgetful.model.parameters(), betas=(0.9, 0.98), eps=1e-9)
forgetful.config = dataclasses.replace(forgetful.config, steps=20)
forgetful.run()
resume_difference = furthest(straight.model, resumed.model)
forgetful_difference = furthest(straight.model, forgetful.model)
print(f"greatest difference: resumed {resume_difference}, forgetful {forgetful_difference:.1e}")
assert all(torch.equal(a, b) for a, b in zip(straight.model.parameters(), resumed.model.parameters(), strict=True))
assert forgetful_difference > 1e-4

# %% [markdown]
# ## First, overfit one batch
#
# Before any long training: can the model learn *one batch* by heart? If it cannot, more data will not help. The loss
# runs to no gradient, the mask hides what is needed, the answers belong to other questions: nearly every bug shows
# here, in seconds. We know where it must end, too: with label smoothing, at the entropy of the smoothed target.

# %%
overfit = start_training(recipe(steps=1, warmup=30, lr=1.0), RunFolder(tempfile.mkdtemp()), prepared=prepared).trainer
one_batch = collate_pairs(prepared.train[:12], tokenizer)
one_batch_losses = [overfit.step(one_batch).loss for _ in range(150)]
V, e = tokenizer.vocab_size, 0.1
one_batch_floor = -(1 - e + e / V) * math.log(1 - e + e / V) - (V - 1) * e / V * math.log(e / V)
for step in (1, 25, 50, 100, 150):
    print(f"step {step:3}: loss {one_batch_losses[step - 1]:.3f}")
print(f"the best possible: {one_batch_floor:.3f}")
assert one_batch_floor < one_batch_losses[-1] < one_batch_floor + 0.1

# %% [markdown]
# ## Evaluation: learned, or learned by heart?
#
# What is wanted from one batch is a disaster for a whole training. So some data is *held out*: never trained on, only
# measured. We overfit on purpose, on 120 sentences, and measure both sets as we go. Three figures:
#
#     cross-entropy   the mean of -ln p(right token)
#     perplexity      e^cross-entropy: among how many equally likely tokens the model seems to choose
#     accuracy        how often the likeliest token is the right one
#
# We do it twice, without and with label smoothing.

# %%
few = dataclasses.replace(prepared, train=prepared.train[:120])
curves, overfitted = {}, {}
for smoothing in (0.0, 0.1):
    settings = {"steps": 160, "lr": 1.0, "label_smoothing": smoothing, "log_every": 20, "valid_every": 20}
    run = RunFolder(tempfile.mkdtemp())
    overfitted[smoothing] = start_training(recipe(save_every=1_000, **settings), run, prepared=few).trainer
    overfitted[smoothing].run()
    rows = run.read_metrics()
    curves[smoothing] = {name: [(r["step"], r[name]) for r in rows if name in r] for name in ("nll", "valid_loss")}
    best_step = overfitted[smoothing].state.best_step
    last = rows[-1]
    print(f"ε = {smoothing}: best held-out loss at step {best_step}; at the end", end=" ")
    print(f"perplexity {last['valid_perplexity']:.0f}, accuracy {last['valid_accuracy']:.1%}")

# %% [markdown]
# Accuracy says how often it is right. *Calibration* asks whether it knows: where it says 90 %, is it right nine times
# in ten? The simplest check is to compare the mean confidence (the probability of its likeliest token)
# with the accuracy.


# %%
@torch.no_grad()
def confidence_and_accuracy(trainer):
    found = [translation(trainer.model.eval(), batch) for batch in trainer.valid_batches]
    p_NV = torch.cat([answers.logits.softmax(dim=-1) for answers in found])
    right_N = torch.cat([answers.targets for answers in found])
    return p_NV.amax(dim=-1).mean().item(), (p_NV.argmax(dim=-1) == right_N).float().mean().item()


calibration = {smoothing: confidence_and_accuracy(trainer) for smoothing, trainer in overfitted.items()}
for smoothing, (sure, right) in calibration.items():
    print(f"ε = {smoothing}: on held-out tokens {sure:.1%} sure, {right:.1%} right")
overconfidence = {smoothing: sure - right for smoothing, (sure, right) in calibration.items()}
assert overconfidence[0.1] < overconfidence[0.0]

# %% [markdown]
# On the left of the figure look at where the curves part. The training loss goes on falling; the held-out loss turns
# and rises. What comes after the turn is learning by heart. The library keeps the weights of the best validation (the
# dots), so that training too long costs time but not quality. On the right look at the gap between being sure
# and being right, and how smoothing makes it smaller. It also
# keeps the held-out loss from running away.

# %%
figure = new_figure(10, 3.8)
left, axes = figure.subplots(1, 2, width_ratios=(1.4, 1))
for smoothing, colour in ((0.0, ORANGE), (0.1, BLUE)):
    left.plot(
        *zip(*curves[smoothing]["nll"], strict=True), color=colour, linestyle="--", label=f"training, ε = {smoothing}"
    )
    left.plot(*zip(*curves[smoothing]["valid_loss"], strict=True), color=colour, label=f"held out, ε = {smoothing}")
    left.plot(*min(curves[smoothing]["valid_loss"], key=lambda point: point[1]), "o", color=colour)
left.set(xlabel="step", ylabel="plain cross-entropy, nats", ylim=(0, None))
left.set_title("Learning 120 sentences by heart", loc="left")
left.legend(frameon=False, fontsize=9)
for shift, name, colour, which in ((-0.2, "sure", GREY, 0), (0.2, "right", GREEN, 1)):
    bars = axes.bar(
        [i + shift for i in range(2)], [pair[which] for pair in calibration.values()], 0.38, color=colour, label=name
    )
    axes.bar_label(bars, fmt="{:.0%}")
axes.set_xticks(range(2), ["ε = 0", "ε = 0.1"])
axes.set(xlabel="label smoothing", ylabel="share of held-out tokens", ylim=(0, 1.1))
axes.set_title("Surer than right, less so with smoothing", loc="left")
axes.legend(frameon=False, loc="upper right")
save(figure, "08_overfitting")

# %% [markdown]
# In numbers: how far the held-out loss has risen above its best, and what the training loss says meanwhile.

# %%
heldout_rise = {s: c["valid_loss"][-1][1] - min(loss for _, loss in c["valid_loss"]) for s, c in curves.items()}
for smoothing, rise in heldout_rise.items():
    print(f"ε = {smoothing}: held out {rise:+.2f} nats, training loss {curves[smoothing]['nll'][-1][1]:.3f}")
assert curves[0.0]["nll"][-1][1] < 0.3
assert heldout_rise[0.0] > 0.2

# %% [markdown]
# ## One loop, two models
#
# Now both kinds in earnest, as far as seconds go: a translator on all 4,000 sentences, and a small GPT on Python source
# (smaller versions of the recipes `tinyworld-en-de` and `python-gpt`). The loop, the optimizer, the schedule, the
# checkpoints are the same; the objective comes from the model's family. We measure before and after.

# %%
from cutaway import TextGenerator

gpt_model = ModelConfig(
    decoder_layers=2, d_ff=192, n_kv_heads=2, bias=False, norm="rms", norm_placement="pre",
    feed_forward="swiglu", **GPT,
)  # fmt: skip
gpt_data = DataConfig(vocab_size=400, batch_tokens=512, **CODE)
gpt_train = TrainConfig(steps=300, warmup=50, lr=0.7, label_smoothing=0.0)
two = {
    "translator": (recipe(steps=350, warmup=100, lr=0.3), prepared),
    "GPT": (Config(gpt_model, gpt_data, gpt_train), prepare(gpt_data, "language_model")),
}
before, after, runs = {}, {}, {}
for name, (config, data) in two.items():
    runs[name] = RunFolder(tempfile.mkdtemp())
    training = start_training(config, runs[name], prepared=data)
    before[name] = training.trainer.validate()
    training.trainer.run()
    after[name] = training.trainer.validate()

# %% [markdown]
# An untrained model is about as good as drawing tokens by lot: its perplexity is at least about the size of the
# vocabulary. (Above it, if it is surely wrong rather than unsure.)

# %%
print(f"{'held-out data':14} {'vocabulary':>10} {'perplexity before, after':>26} {'accuracy before, after':>24}")
for name in two:
    was, now = before[name], after[name]
    size = runs[name].read_config().model.vocab_size
    perplexities = f"{math.exp(was.nll):17.0f} {math.exp(now.nll):8.1f}"
    print(f"{name:14} {size:10} {perplexities:>26} {was.accuracy:15.1%} {now.accuracy:8.1%}")
    assert math.exp(was.nll) > 5 * math.exp(now.nll)
translator = Translator.load(runs["translator"].path, device="cpu")
translator_scores = evaluate_run(translator, test_pairs[:50])
print(
    f"the translator on test sentences: BLEU {translator_scores['bleu']:.1f} (the copier: {copier_scores['bleu']:.1f})"
)
assert translator_scores["bleu"] > copier_scores["bleu"] + 10

# %% [markdown]
# Figures first, then read what it writes: a number does not say *what* is wrong. The translator is unfinished, and you
# can see what it has learned already and what not yet. (Lesson 6 puts a bigram model beside its GPT; without such a
# neighbour no perplexity means much.)

# %%
for pair, said in zip(test_pairs[:4], translator.translate([pair.source for pair in test_pairs[:4]]), strict=True):
    print(f"{pair.source}\n    should be  {pair.target}\n    says       {said}")
writer = TextGenerator.load(runs["GPT"].path, device="cpu")
drawn = writer.generate(["def read(self,"], DecodeConfig(strategy="sample", temperature=0.7, top_p=0.9, max_length=60))
print(f"\nthe GPT writes:\n{drawn[0]}")

# %% [markdown]
# ## Good practice
#
# 1. **Overfit one batch first.** It takes seconds and finds most bugs.
# 2. **Look at the data**, as the model sees it: ids back to text, masks, the shift. Print a batch.
# 3. **Know what a loss should be.** At the start about ln V; at the end not below the entropy. Too good is a bug, too.
# 4. **Fix the seeds**, and run more than one before you believe a small difference.
# 5. **Watch held-out data**, and keep the best checkpoint. Look at the test data once, at the end.
# 6. **Change one thing at a time**, and write down what came of it, failures as well.
# 7. **Put something simple beside every figure**: a baseline, a majority, chance.
# 8. **Log the norm of the gradient.** A sudden jump names the batch to look at.
#
# ## What to remember
#
# - BPE merges the most frequent neighbours; it knows no unknown words. Batches by length waste little.
# - Losses are summed and divided once by all tokens.
# - The decoder reads the target shifted right. Without the shift it learns to copy, with a beautiful loss.
# - With label smoothing the best loss is the entropy of the target, not zero, and the model is less overconfident.
# - Warmup protects the first steps, clipping protects Adam's memory from one bad batch.
# - A checkpoint is weights, optimizer, step, place in the data, and what chance follows from. Then resuming is exact.
#
# ## Try it yourself
#
# 1. Set `norm_placement` to `"pre"` in `watched`. Look at whether warmup still matters.
# 2. Set `dropout=0.3` in the overfitting experiment (`recipe(dropout=0.3, ...)`). Look at where the held-out loss
#    turns, and at how far it rises.
# 3. In "overfit one batch", shuffle the rows of `source` and `source_mask` against the targets. It can still be learned
#    by heart: look at whether it takes longer, and think about why this test does not catch such a bug.
#
# ## Next
#
# Break the training: `cutaway lab no-warmup`, `no-label-smoothing`, `learning-rate`.
#
# You have built, trained and looked inside every part of the paper's model. From here, train one for longer:
# `cutaway train tinyworld-en-de`, or a recipe of your own.
