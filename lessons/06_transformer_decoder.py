# %% [markdown]
# # 6. The Transformer decoder
#
# An encoder reads a text that is there. A decoder writes one that is not there yet, a token at a time, and may look
# only at what it has written so far. At the end of this lesson you will know
#
# - how one mask turns the attention of an encoder into that of a decoder, and what it makes possible in training,
# - what a decoder layer with cross-attention has that one without has not,
# - how a small GPT is trained, and how to tell whether it has learned anything,
# - how greedy search, temperature, top-k and top-p choose the next token, each in a few lines,
# - what the key-value cache saves, and what it costs.
#
# In the paper this is the decoder of section 3.1 (the right half of figure 1) and section 3.2.3. A decoder that works
# alone, without an encoder, is GPT (Radford et al. 2018).

# %%
import math
import tempfile
import time

import torch
from rich.console import Console
from rich.table import Table

from cutaway.course.lesson import save, shapes
from cutaway.explore.figures import BLUE, GREEN, GREY, ORANGE, WEIGHTS, new_figure

torch.manual_seed(0)

# %% [markdown]
# ## One mask
#
# Here is attention as in lesson 1, softmax(Q Kᵀ / √d_k) V, with the projections of the library's module and our own
# four lines in the middle. The only new thing is the argument `mask`: where it is False, the score becomes -∞, and
# its weight e^-∞ = 0.

# %%
from cutaway import MultiHeadAttention
from cutaway.nn.masks import causal_mask

words = ["the", "cat", "sat", "on", "the", "mat"]
B, T, D, H = 1, len(words), 32, 2
attention = MultiHeadAttention(D, H).eval().requires_grad_(False)
x_BTD = 2 * torch.randn(B, T, D)


def by_hand(x_BTD, mask_QK):
    q_BHQE = attention.split(attention.query(x_BTD))
    k_BHKE, v_BHKE = attention.split(attention.key(x_BTD)), attention.split(attention.value(x_BTD))
    scores_BHQK = q_BHQE @ k_BHKE.mT / math.sqrt(D // H)
    weights_BHQK = scores_BHQK.masked_fill(~mask_QK, float("-inf")).softmax(dim=-1)
    return attention.output(attention.merge(weights_BHQK @ v_BHKE)), weights_BHQK


# %% [markdown]
# For an encoder the mask is True everywhere: each word sees each. For a decoder it is True on and below the diagonal:
# query i sees key j only if j ≤ i. `causal_mask` makes that matrix. Same weights, same input, one mask apart:

# %%
everything_QK = torch.ones(T, T, dtype=torch.bool)
causal_QK = causal_mask(T)
print(causal_QK.int())
encoded_BTD, encoder_weights_BHQK = by_hand(x_BTD, everything_QK)
decoded_BTD, decoder_weights_BHQK = by_hand(x_BTD, causal_QK)
shapes(x_BTD=x_BTD, weights_BHQK=decoder_weights_BHQK, decoded_BTD=decoded_BTD)

encoder_difference = (attention(x_BTD) - encoded_BTD).abs().max().item()
decoder_difference = (attention(x_BTD, mask=causal_QK) - decoded_BTD).abs().max().item()
print(f"greatest difference: without mask {encoder_difference:.1e}, causal {decoder_difference:.1e}")
assert torch.allclose(attention(x_BTD), encoded_BTD, atol=1e-6)
assert torch.allclose(attention(x_BTD, mask=causal_QK), decoded_BTD, atol=1e-6)

# %% [markdown]
# In the figure look at the first row: in the encoder "the" looks at all six words, in the decoder it has nobody but
# itself. The last row is the same in both, for "mat" comes last and the mask takes nothing from it. In between,
# what was to the right of the diagonal is spread over the rest: each row still sums to 1.

# %%
figure = new_figure(9, 4)
panels = {"Encoder: everybody sees everybody": encoder_weights_BHQK, "Decoder: nobody sees ahead": decoder_weights_BHQK}
for axes, (title, weights_BHQK) in zip(figure.subplots(1, 2), panels.items(), strict=True):
    image = axes.imshow(weights_BHQK[0, 0], cmap=WEIGHTS, vmin=0, vmax=1)
    axes.set_xticks(range(T), words)
    axes.set_yticks(range(T), words)
    axes.tick_params(length=0)
    axes.set(xlabel="word that is looked at", ylabel="word that looks")
    axes.set_title(title, loc="left")
figure.colorbar(image, ax=figure.axes, label="weight", fraction=0.025, pad=0.02)
save(figure, "06_one_mask")
assert torch.allclose(encoder_weights_BHQK[:, :, -1], decoder_weights_BHQK[:, :, -1])
assert decoder_weights_BHQK.triu(1).abs().max() == 0

# %% [markdown]
# What it buys: the future cannot change the past. We replace the last word and look at which outputs move.

# %%
changed_BTD = x_BTD.clone()
changed_BTD[:, -1] = torch.randn(D)
for name, mask_QK in (("encoder", everything_QK), ("decoder", causal_QK)):
    moved_T = (by_hand(changed_BTD, mask_QK)[0] - by_hand(x_BTD, mask_QK)[0]).abs().amax(dim=-1)[0]
    print(f"{name}:", "  ".join(f"{word} {moved:.2f}" for word, moved in zip(words, moved_T.tolist(), strict=True)))
assert moved_T[:-1].max() == 0 < moved_T[-1]

# %% [markdown]
# This is why a decoder trains fast. Because position i knows nothing of what follows, its output is an honest
# prediction of word i + 1, and one pass over a text of T tokens gives T exercises at once:
#
#     reads     <s>  the  cat  sat  on   the
#     must say  the  cat  sat  on   the  mat
#
# Without the mask position 1 could read the answer off position 2, and would learn to copy.
#
# ## With and without cross-attention
#
# The paper's decoder is the writing half of a translator. Between its two sub-layers it has a third one (section 3.1),
# which looks at the *memory*, the encoder's vectors of the source text. A GPT has no source, and goes without.
#
#     decoder layer of the paper           decoder layer of a GPT
#
#         feed-forward                         feed-forward
#         cross-attention ◀── memory [B,S,D]
#         self-attention, causal               self-attention, causal
#               x [B,T,D]                            x [B,T,D]
#
# The library builds both from one class, `Layer`; `cross_attention` is a part or None.

# %%
from cutaway import ModelConfig, build_model, record_activations
from cutaway.models.build import count_parameters

SMALL = {"family": "decoder", "vocab_size": 50, "d_model": D, "d_ff": 4 * D, "n_heads": H, "decoder_layers": 1}
gpt = build_model(ModelConfig(**SMALL)).eval()
crossing = build_model(ModelConfig(cross_attention=True, **SMALL)).eval()
print("GPT:     ", [name for name, part in gpt.decoder.layers[0].named_children() if part is not None])
print("crossing:", [name for name, part in crossing.decoder.layers[0].named_children() if part is not None])
extra = count_parameters(crossing) - count_parameters(gpt)
print(f"cross-attention adds {extra:,} parameters = 4·(D² + D) for its projections + 2·D for its norm")
assert extra == 4 * (D**2 + D) + 2 * D

# %% [markdown]
# The layer by hand. Queries come from x, what is being written; keys and values from the memory. So the weights are
# [B,H,T,S]: T rows that write, S columns that are read. There is no causal mask in cross-attention: the source is known
# from the start, all of it.

# %%
S = 9
memory_BSD = torch.randn(B, S, D)
layer = crossing.decoder.layers[0]


def layer_by_hand(x_BTD):
    x_BTD = layer.self_attention_residual.norm(x_BTD + layer.self_attention(x_BTD, mask=causal_QK))
    x_BTD = layer.cross_attention_residual.norm(x_BTD + layer.cross_attention(x_BTD, memory_BSD))
    return layer.feed_forward_residual.norm(x_BTD + layer.feed_forward(x_BTD))


ids_BT = torch.randint(0, 50, (B, T))
with record_activations(crossing, "*.weights") as seen, torch.no_grad():
    theirs_BTD = crossing.decode(ids_BT, memory=memory_BSD)
    mine_BTD = layer_by_hand(crossing.embedding(ids_BT))
for name, weights in seen.items():
    print(f"{name:45} {tuple(weights.shape)}")
layer_difference = (mine_BTD - theirs_BTD).abs().max().item()
print(f"greatest difference: {layer_difference:.1e}")
assert torch.allclose(mine_BTD, theirs_BTD, atol=1e-6)
assert seen["decoder.layers.0.cross_attention.weights"].shape == (B, H, T, S)

# %% [markdown]
# ## A small GPT
#
# Now one that really learns. It reads source files of the standard library, cut into tokens by byte-pair encoding (BPE:
# frequent strings of characters become one token), and learns to say the next token. Two layers of width 96; the
# warmup and the learning rate are those of a short training.

# %%
from cutaway import Config, DataConfig, RunFolder, TextGenerator, TrainConfig, start_training

recipe = Config(
    model=ModelConfig(
        family="decoder", d_model=96, d_ff=384, n_heads=4, decoder_layers=2, dropout=0.0, max_length=1_024,
        position="rope", norm_placement="pre", feed_forward="gelu",
    ),
    data=DataConfig(
        corpus="python", size=80, heldout_size=6, tokenizer="bpe", vocab_size=512, max_tokens=96, batch_tokens=768
    ),
    train=TrainConfig(steps=700, warmup=50, lr=0.8, label_smoothing=0.0, log_every=10),
)  # fmt: skip
run = RunFolder(tempfile.mkdtemp())
training = start_training(recipe, run)
training.trainer.run()
writer = TextGenerator.load(run.path, device="cpu")
print(f"{training.parameters:,} parameters, {training.trainer.state.seconds:.0f} s")

# %% [markdown]
# ### Perplexity
#
# How good is it? For each token of a text that it has never seen we ask what probability it gave to the right one.
# The mean of -ln p is the loss, and
#
#     perplexity = e^(mean of -ln p)
#
# is easier to picture: the model is as unsure as if it had to choose among that many equally likely tokens. Knowing
# nothing, it would have the size of the vocabulary. By hand, on a few lines:

# %%
from cutaway import evaluate_run

model, tokenizer = writer.model, writer.tokenizer
text = "import os\n\n\ndef size(path):\n    return os.stat(path).st_size\n"
ids = [tokenizer.bos, *tokenizer.encode(text), tokenizer.eos]
with torch.no_grad():
    logits_BTV = model(torch.tensor([ids[:-1]]))
log_p_TV = logits_BTV.log_softmax(dim=-1)[0]
nll_T = -log_p_TV[range(len(ids) - 1), ids[1:]]
shapes(logits_BTV=logits_BTV, nll_T=nll_T)
perplexity_by_hand = nll_T.mean().exp().item()
perplexity_by_library = evaluate_run(writer, [text])["perplexity"]
print(f"by hand {perplexity_by_hand:.3f}, library {perplexity_by_library:.3f}")
assert abs(perplexity_by_hand / perplexity_by_library - 1) < 1e-4

# %% [markdown]
# The number needs something beside it. A *bigram* model counts, in the same training files and the same tokens, which
# token follows which; it looks back one token, we look back up to 96. What we gain over it is what the context
# beyond the last token is worth, as far as a short training can find it.

# %%
from cutaway import load_builtin
from cutaway.inference.evaluation import baseline

test_files = load_builtin("python", "test", size=6)
gpt_scores = evaluate_run(writer, test_files)
bigram_scores = baseline(writer, test_files).figures
gpt_perplexity, bigram_perplexity = gpt_scores["perplexity"], bigram_scores["perplexity"]
print(f"{'':14} {'perplexity':>10} {'bits a character':>17} {'next token right':>17}")
print(f"{'knows nothing':14} {tokenizer.vocab_size:10.1f}")
for name, scores in (("bigram", bigram_scores), ("our GPT", gpt_scores)):
    print(f"{name:14} {scores['perplexity']:10.1f} {scores['bits_per_character']:17.2f} {scores['accuracy']:17.1%}")
assert gpt_perplexity < 0.8 * bigram_perplexity < tokenizer.vocab_size / 5

# %% [markdown]
# The figure shows the training. The dashed line is the bigram model on the test files. Look at where the curve crosses
# it. Above the line, counting pairs would do better; below it, the GPT must be using more than the last token. The
# curve is of training batches; the fair comparison is the orange dot, on the same files as the line.

# %%
points = [(row["step"], math.exp(row["nll"])) for row in run.read_metrics() if "nll" in row]
figure = new_figure(7, 3.4)
axes = figure.add_subplot()
axes.plot(*zip(*points, strict=True), color=BLUE, label="our GPT, training batches")
axes.axhline(bigram_perplexity, color=GREY, linestyle="--", label="bigram model, test files")
axes.plot([points[-1][0]], [gpt_perplexity], "o", color=ORANGE, label="our GPT, test files", zorder=3)
axes.set(xlabel="step", ylabel="perplexity (log scale)", yscale="log")
axes.set_yticks([20, 50, 100, 200, 500], ["20", "50", "100", "200", "500"])
axes.minorticks_off()
axes.set_title("In training the GPT soon passes what counting pairs can do", loc="left")
axes.legend(frameon=False)
save(figure, "06_learning")

# %% [markdown]
# ### What it attends to
#
# We record the trained heads on two lines of code. Tokens of white space are shown as ␣, or as ⏎ if they hold a line
# break; the space before a word belongs to its token and is not shown.


# %%
def visible(i):
    return "⏎" if "\n" in tokenizer.decode([i]) else tokenizer.tokens([i])[0]


line_ids = [tokenizer.bos, *tokenizer.encode("    for name in names:\n        print(name)")]
labels = [visible(i) for i in line_ids]
with record_activations(model, "*.self_attention.weights") as seen, torch.no_grad():
    model(torch.tensor([line_ids]))
print(labels)
assert all(weights.triu(1).abs().max() == 0 for weights in seen.values())

# %% [markdown]
# Look at the white upper triangle, which the mask keeps empty: the encoder of lesson 5 had weights there. Then look at
# how the heads share out the work. A dark line just below the diagonal is a head that looks at the token before. A
# dark column is a token that many others look at: find out whether there is a head for the last line break, which
# knows how far the line is indented.

# %%
figure = new_figure(13, 6.6)
grid = figure.subplots(2, 4, sharex=True, sharey=True)
for i, weights_BHQK in enumerate(seen.values()):
    for head, axes in enumerate(grid[i]):
        image = axes.imshow(weights_BHQK[0, head], cmap=WEIGHTS, vmin=0, vmax=1)
        axes.set_title(f"layer {i}, head {head}", loc="left", fontsize=9)
        axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=8, parse_math=False)
        axes.set_yticks(range(len(labels)), labels, fontsize=8, parse_math=False)
        axes.tick_params(length=0)
figure.supxlabel("token that is looked at", fontsize=10)
figure.supylabel("token that looks", fontsize=10)
figure.suptitle("Self-attention of the trained decoder: nothing above the diagonal", x=0.01, ha="left", fontsize=11)
figure.colorbar(image, ax=grid, label="weight", fraction=0.015, pad=0.01)
save(figure, "06_gpt_attention")

# %% [markdown]
# ## Choosing the next token
#
# The model gives logits, one number for each token of the vocabulary; softmax makes probabilities of them. Which token
# do we write? The simplest answer is *greedy*: the likeliest one. Write it, read it, go on:

# %%
PROMPT = "def read(self,"  # no space at the end: in BPE a space belongs to the word after it
LENGTH = 80


@torch.no_grad()
def next_logits(ids):
    return model(torch.tensor([ids]))[0, -1]


def write(ids, choose, length=LENGTH):
    ids = list(ids)
    for _ in range(length):
        ids.append(choose(next_logits(ids)))
        if ids[-1] == tokenizer.eos:
            break
    return tokenizer.decode(ids)


prompt_ids = [tokenizer.bos, *tokenizer.encode(PROMPT)]
greedy_text = write(prompt_ids, lambda logits_V: logits_V.argmax().item())
print(greedy_text)

# %% [markdown]
# The library's greedy search must write the same.

# %%
from dataclasses import replace

from cutaway import DecodeConfig

greedy = DecodeConfig(strategy="greedy", max_length=LENGTH)
assert writer.generate([PROMPT], greedy)[0] == greedy_text
print("the same, token for token")

# %% [markdown]
# Greedy text tends to run in circles: what was written makes itself likelier. So one draws tokens at random, by
# their probabilities. But the vocabulary has a long tail of unlikely tokens, which together are not so unlikely, and
# one bad token leads to others. Three remedies, each a function from logits to logits. A token that may not be drawn
# gets -∞.
#
#     temperature t   logits / t         t < 1 sharpens, t > 1 flattens; t → 0 is greedy
#     top-k           keep the k likeliest tokens
#     top-p           keep the fewest likeliest tokens whose probabilities add up to p (the *nucleus*)


# %%
def my_temperature(logits_V, t):
    return logits_V / t


def my_top_k(logits_V, k):
    kth = logits_V.sort(descending=True).values[k - 1]
    return torch.where(logits_V >= kth, logits_V, float("-inf"))


def my_top_p(logits_V, p):
    order_V = logits_V.argsort(descending=True)
    kept, total = torch.full_like(logits_V, float("-inf")), 0.0
    for i in order_V.tolist():
        if total >= p:
            break
        kept[i] = logits_V[i]
        total += logits_V.softmax(dim=0)[i].item()
    return kept


# %% [markdown]
# The library's filters work on a whole batch, [N,V], without loops. They must leave the same tokens with the same
# probabilities.

# %%
from cutaway.decode.filters import temperature, top_k, top_p

logits_V = next_logits(prompt_ids)
shapes(logits_V=logits_V)
both = {
    "temperature 0.5": (my_temperature(logits_V, 0.5), temperature(0.5)),
    "top-k, k = 5": (my_top_k(logits_V, 5), top_k(5)),
    "top-p, p = 0.8": (my_top_p(logits_V, 0.8), top_p(0.8)),
}
filtered = {"the model's own": logits_V.softmax(dim=0)}
for name, (mine_V, theirs) in both.items():
    filtered[name] = mine_V.softmax(dim=0)
    theirs_V = theirs(logits_V[None])[0].softmax(dim=0)
    difference = (filtered[name] - theirs_V).abs().max().item()
    kept = (filtered[name] > 0).sum()
    print(f"{name:16} keeps {kept:4} of {len(logits_V)} tokens, greatest difference {difference:.1e}")
    assert torch.allclose(filtered[name], theirs_V, atol=1e-6)

# %% [markdown]
# The figure shows what each of them does to one and the same distribution: the next token after the prompt, likeliest
# first. Look at how temperature makes the tall bars taller and keeps them all, while the other two cut the tail off
# and share its probability among the rest.

# %%
order_V = filtered["the model's own"].argsort(descending=True)[:30]
names = [visible(i) for i in order_V.tolist()]
figure = new_figure(10, 6)
for axes, (name, p_V), colour in zip(
    figure.subplots(4, 1, sharex=True, sharey=True), filtered.items(), (GREY, BLUE, ORANGE, GREEN), strict=True
):
    axes.bar(range(len(order_V)), p_V[order_V], color=colour)
    shown = p_V[order_V].sum().item()
    axes.text(
        0.99, 0.9, f"{name}\nthese {len(order_V)} tokens: {shown:.0%}", transform=axes.transAxes, ha="right", va="top"
    )
    axes.grid(axis="y", alpha=0.25)
axes.set_xticks(range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor", parse_math=False)
axes.set_xlabel("token, likeliest first")
figure.supylabel("probability", fontsize=10)
figure.suptitle(f"The next token after {PROMPT!r}: how the distribution is cut", x=0.01, ha="left", fontsize=11)
save(figure, "06_distribution")

# %% [markdown]
# Top-k always keeps k tokens; top-p keeps as many as the model is unsure among. Over the positions of the short text
# from above:

# %%
nucleus_T = (top_p(0.8)(logits_BTV[0]) > float("-inf")).sum(dim=-1)
surest, unsurest = nucleus_T.argmin().item(), nucleus_T.argmax().item()
for place in (surest, unsurest):
    print(f"after {tokenizer.decode(ids[max(1, place - 5) : place + 1])!r}: tokens in the nucleus {nucleus_T[place]}")
nucleus_smallest, nucleus_largest = nucleus_T.min().item(), nucleus_T.max().item()
assert nucleus_largest > 5 * nucleus_smallest

# %% [markdown]
# And the text? The same prompt, the same seed, six ways to choose. Read down the table: which one repeats itself,
# which one falls apart? No way to choose makes a model of this size write good code; the differences are in how it
# fails. The last column counts in eight such texts how many of the tokens are different ones: low means going in
# circles.

# %%
as_it_is = DecodeConfig(strategy="sample", temperature=1.0, top_p=1.0, max_length=LENGTH)
ways = {
    "greedy": greedy,
    "drawn as it is": as_it_is,
    "temperature 0.5": replace(as_it_is, temperature=0.5),
    "temperature 1.5": replace(as_it_is, temperature=1.5),
    "top-k, k = 5": replace(as_it_is, top_k=5),
    "top-p, p = 0.8": replace(as_it_is, top_p=0.8),
}
table = Table("way", "text", "different", show_lines=True)
different = {}
for name, way in ways.items():
    drawn = [found[0].tokens for found in writer.hypotheses([PROMPT] * 8, way)]  # eight texts, to count
    different[name] = sum(len(set(tokens)) / len(tokens) for tokens in drawn) / len(drawn)
    table.add_row(name, PROMPT + writer.continuation(PROMPT, drawn[0]), f"{different[name]:.0%}")
Console(width=110, markup=False, emoji=False).print(table)
assert different["greedy"] < different["drawn as it is"]
assert different["temperature 0.5"] < different["temperature 1.5"]

# %% [markdown]
# ## The key-value cache
#
# Our `write` reads the whole text again for each new token. That is a waste, and the mask is what makes it one:
# since the future cannot change the past, the keys and values of old tokens are the same at every step. So keep them,
# and compute only the new token's query, key and value:
#
#     step 4    q₄ · [k₁ k₂ k₃ k₄]      k₁ k₂ k₃ are from the steps before
#     step 5    q₅ · [k₁ k₂ k₃ k₄ k₅]
#
# With the attention from the beginning of this lesson, word by word, and no mask at all: what is not in the cache
# yet cannot be seen.

# %%
keys, values, outputs = [], [], []
for t in range(T):
    new_B1D = x_BTD[:, t : t + 1]
    q_BH1E = attention.split(attention.query(new_B1D))
    k_BH1E, v_BH1E = attention.split(attention.key(new_B1D)), attention.split(attention.value(new_B1D))
    keys.append(k_BH1E)
    values.append(v_BH1E)
    weights_BH1K = (q_BH1E @ torch.cat(keys, dim=2).mT / math.sqrt(D // H)).softmax(dim=-1)
    outputs.append(attention.output(attention.merge(weights_BH1K @ torch.cat(values, dim=2))))
stepwise_BTD = torch.cat(outputs, dim=1)
shapes(q_BH1E=q_BH1E, weights_BH1K=weights_BH1K, stepwise_BTD=stepwise_BTD)
print(f"word by word against all at once: greatest difference {(stepwise_BTD - decoded_BTD).abs().max():.1e}")
assert torch.allclose(stepwise_BTD, decoded_BTD, atol=1e-6)

# %% [markdown]
# The library's cache does this for every layer of a model. It belongs to the caller: `new_cache` makes one, and
# `decode` fills it. The whole GPT, token by token with the cache, against one pass without:

# %%
long_ids = [tokenizer.bos, *tokenizer.encode(test_files[0])][:96]
with torch.inference_mode():
    uncached_TV = model(torch.tensor([long_ids]))[0]
    cache = model.new_cache()
    cached_TV = torch.cat([model.head(model.decode(torch.tensor([[i]]), cache=cache))[0] for i in long_ids])
cache_difference = (cached_TV - uncached_TV).abs().max().item()
print(f"{len(long_ids)} tokens, logits up to {uncached_TV.abs().max():.0f}: greatest difference {cache_difference:.1e}")
assert torch.allclose(cached_TV, uncached_TV, atol=1e-3)

# %% [markdown]
# ### What it saves
#
# We time one more token when n are there already. Without a cache all n pass through the model; with one, a single
# token does, and it looks back at n keys. Each figure is the best of several tries.


# %%
def best_of(tries, action):
    times = []
    for _ in range(tries):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times) * 1_000


lengths = [32, 64, 128, 256, 512, 1_000]
without_cache, with_cache = [], []
for n in lengths:
    row = torch.randint(4, tokenizer.vocab_size, (1, n))
    with torch.inference_mode():
        without_cache.append(best_of(6, lambda row=row: model.head(model.decode(row)[:, -1])))
        cache = model.new_cache()
        model.decode(row[:, :-9], cache=cache)
        with_cache.append(best_of(9, lambda row=row, cache=cache: model.head(model.decode(row[:, -1:], cache=cache))))
    print(f"{n:5} tokens: {without_cache[-1]:7.2f} ms without, {with_cache[-1]:6.2f} ms with a cache")
speedup = without_cache[-1] / with_cache[-1]
assert speedup > 4

# %% [markdown]
# Look at the slopes in the figure. Both axes are logarithmic, so a straight line that climbs as the dotted one does
# means: time in proportion to the length. Without a cache the time of a token grows with what is written (at first
# slowly: a short text keeps the processor busier with calls than with numbers). With one it hardly grows at these
# lengths. A whole text of n tokens then costs about n² without, and about n with.

# %%
figure = new_figure(7, 3.8)
axes = figure.add_subplot()
axes.plot(lengths, without_cache, marker="o", color=ORANGE, label="without cache")
axes.plot(lengths, with_cache, marker="o", color=BLUE, label="with cache")
proportional = [without_cache[-1] * n / lengths[-1] for n in lengths[2:]]
axes.plot(lengths[2:], proportional, color=GREY, linestyle=":", label="in proportion to the length")
axes.set(xscale="log", yscale="log", xlabel="tokens already there", ylabel="milliseconds for the next token")
axes.set_xticks(lengths, [str(n) for n in lengths])
ticks = [t for t in (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200) if min(with_cache) / 2 < t < 2 * max(without_cache)]
axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
axes.minorticks_off()
axes.grid(alpha=0.25)
axes.set_title("The cache makes the next token cheap, however long the text", loc="left")
axes.legend(frameon=False)
save(figure, "06_cache")

# %% [markdown]
# ### What it costs
#
# Memory. Each layer keeps a key and a value of width E for each of its G key-value heads and each token:
#
#     numbers = 2 · layers · G · E · tokens
#
# We count what the cache really holds. (Its buffers grow by a quarter at a time, so that not every token needs a copy
# of all; only the filled part is counted here.)

# %%
held = [layer.self_attention.stored for layer in cache.layers]
shapes(keys_BGKE=held[0][0][:, :, : cache.length])
counted = sum(part[:, :, : cache.length].numel() for pair in held for part in pair)
config = writer.config.model
by_formula = 2 * config.decoder_layers * config.kv_heads * config.head_width * cache.length
print(
    f"{cache.length:,} tokens: {counted:,} numbers counted, {by_formula:,} by the formula, {counted * 4 / 1e6:.1f} MB"
)
assert counted == by_formula

# %% [markdown]
# That is little here. In a larger model it is not: the same formula for GPT-2 with its full context, and for SmolLM,
# in which several query heads share one head of keys and values (*grouped-query attention*: G < H).

# %%
from cutaway import preset

for name in ("gpt2", "smollm-135m"):
    c = preset(name)
    a_token = 2 * c.decoder_layers * c.kv_heads * c.head_width * 2  # bytes, with 2 a number
    heads = f"H = {c.n_heads}, G = {c.kv_heads}"
    whole = f"{a_token * c.max_length / 1e6:5.1f} MB for {c.max_length:,}"
    print(f"{name:12} {heads:15} {a_token / 1e3:5.1f} kB a token, {whole}")

# %% [markdown]
# And that is for one text. A server that writes a hundred texts at once needs a hundred caches, which is often
# more than the weights. So the cache is where much of the work on large models goes: fewer key-value heads, shorter
# windows, fewer bits a number.
#
# ## What to remember
#
# - Causal attention is attention with one mask. The future cannot change the past; so one pass trains T predictions,
#   and what was computed once need not be computed again.
# - Cross-attention is a third sub-layer: queries from the text, keys and values from the memory, weights [B,H,T,S], no
#   causal mask. A GPT is a decoder without it.
# - Perplexity is e to the mean of -ln p. It means something beside a baseline in the same tokens.
# - Greedy goes in circles, plain drawing stumbles over the tail. Temperature reshapes, top-k and top-p cut.
# - The cache turns the cost of a token from growing with the text to nearly constant, for 2 · layers · G · E numbers a
#   token.
#
# ## Try it yourself
#
# 1. Draw with `top_p=0.3` and with `temperature=0.1`. Look at how both come to resemble greedy, and in what
#    they differ.
# 2. Add `n_kv_heads=1` to the recipe (multi-query attention). Look at the memory of the cache and at the perplexity.
# 3. Set `tokenizer="char"` and `vocab_size=200`. The perplexity drops by much, for there are fewer tokens to choose
#    from: look at the bits a character instead, which can be compared.
#
# ## Next
#
# Take the mask away and see what becomes of the loss, and of the text: `cutaway lab no-mask`. Then:
#
# Lesson 7 joins the encoder of lesson 5 and the decoder of this one by cross-attention: the whole Transformer of the
# paper.
