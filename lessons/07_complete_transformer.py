# %% [markdown]
# # 7. The complete Transformer
#
# The encoder of lesson 5 reads, the decoder of lesson 6 writes. Joined by cross-attention they are the Transformer of
# the paper, and here they learn to translate. At the end you will know
#
# - how the whole model is put together, well enough to write its forward pass from its parts,
# - what is trained, and how a translation is judged: BLEU, worked by hand,
# - what beam search finds that greedy search misses, and what the length penalty is for,
# - whether attention knows which word translates which, and what happens without the head that knows it best,
# - how parameters and cost grow with width, depth and length.
#
# In the paper this is section 3 (figure 1), section 5.4 (label smoothing), section 6.1 (beam search, BLEU) and table 3
# (the sizes).

# %%
import math
import re
import tempfile
from collections import Counter
from dataclasses import replace

import torch
from rich.console import Console
from rich.table import Table

from cutaway.course.lesson import save, shapes
from cutaway.explore.figures import BLUE, GREEN, GREY, ORANGE, new_figure

torch.manual_seed(0)
torch.set_num_threads(1)  # matrices this small gain little from a second core

# %% [markdown]
# ## Figure 1, put together
#
#                                                      logits [B,T,V]
#                                                           ▲
#                                                     embedding matrixᵀ
#                                                           │
#                                                   ┌───────┴────────┐
#          ┌────────────────┐   memory [B,S,D]      │  feed-forward  │
#          │  feed-forward  ├──────────────────────▶│ cross-attention│  × N
#      N × │ self-attention │                       │ self-attention │
#          └───────▲────────┘                       │    (causal)    │
#                  │                                └───────▲────────┘
#           + position                                + position
#                  │                                        │
#          embedding × √D                            embedding × √D
#                  │                                        │
#           source [B,S]                             target so far [B,T]
#        the cat sleeps </s>                         <s> le chat dort
#
# Around every box stands LayerNorm(x + Sublayer(x)), from lesson 4. The source is read once, all of it. The target
# is written token by token. And one matrix [V,D] has three places: it embeds the source, it embeds the target,
# and turned over it makes the logits (section 3.4).
#
# Here is a small one with fresh weights, and a batch of two sentence pairs. The second source is filled up with
# padding (id 0).

# %%
from cutaway import ModelConfig, build_model

small = ModelConfig(vocab_size=60, d_model=32, d_ff=128, n_heads=4, encoder_layers=2, decoder_layers=2)
model = build_model(small).eval().requires_grad_(False)
source_BS = torch.tensor([[7, 12, 9, 31, 5, 3], [8, 20, 6, 3, 0, 0]])
target_BT = torch.tensor([[2, 14, 22, 40, 17], [2, 19, 33, 21, 11]])
source_mask_BS = source_BS != 0
shapes(source_BS=source_BS, target_BT=target_BT)

# %% [markdown]
# Now the drawing as code. The attention, the feed-forward networks and the norms are the library's, each of which an
# earlier lesson has taken apart. What is ours is how they are joined. There are three kinds of attention (section
# 3.2.3), and they differ in two things: where keys and values come from, and what the mask hides.
#
#     encoder self-attention    queries, keys, values from the source          hidden: padding
#     decoder self-attention    queries, keys, values from the target          hidden: the future
#     cross-attention           queries from the target, the rest from memory  hidden: padding of the source

# %%
from cutaway.nn.masks import causal_mask

real_B11S = source_mask_BS[:, None, None, :]
causal_TT = causal_mask(target_BT.size(1))


def encoder_layer(x_BSD, layer):
    x_BSD = layer.self_attention_residual.norm(x_BSD + layer.self_attention(x_BSD, mask=real_B11S))
    return layer.feed_forward_residual.norm(x_BSD + layer.feed_forward(x_BSD))


def decoder_layer(x_BTD, memory_BSD, layer):
    x_BTD = layer.self_attention_residual.norm(x_BTD + layer.self_attention(x_BTD, mask=causal_TT))
    x_BTD = layer.cross_attention_residual.norm(x_BTD + layer.cross_attention(x_BTD, memory_BSD, real_B11S))
    return layer.feed_forward_residual.norm(x_BTD + layer.feed_forward(x_BTD))


# %% [markdown]
# All decoder layers look at the same memory, the output of the *last* encoder layer. That is what the arrow in the
# drawing says, and it is easily got wrong.


# %%
def embed(ids_BT):
    positions_TD = model.source_embedding.position.table[: ids_BT.size(1)]
    return matrix_VD[ids_BT] * math.sqrt(small.d_model) + positions_TD


matrix_VD = model.head.weight
memory_BSD = embed(source_BS)
for layer in model.encoder.layers:
    memory_BSD = encoder_layer(memory_BSD, layer)
x_BTD = embed(target_BT)
for layer in model.decoder.layers:
    x_BTD = decoder_layer(x_BTD, memory_BSD, layer)
mine_BTV = x_BTD @ matrix_VD.T

theirs_BTV = model(source_BS, target_BT, source_mask_BS)
shapes(memory_BSD=memory_BSD, x_BTD=x_BTD, logits_BTV=mine_BTV)
forward_difference = (mine_BTV - theirs_BTV).abs().max().item()
print(f"greatest difference: {forward_difference:.1e}")
assert torch.allclose(mine_BTV, theirs_BTV, atol=1e-5)

# %% [markdown]
# The library's own `forward` (`models/encoder_decoder.py`) has two lines: encode, then the head on what decode gives.
# It is split there because writing needs the halves apart: the source is encoded once, and decoded from many times.
#
# ## Something to translate
#
# `tinyworld:en-fr` is a small world of cats, bakers and boats. A grammar makes each sentence in English and in French,
# so it also knows which word translates which: the *gold alignment*, pairs (English word, French word). The model is
# not told about it; we use it later to look over its shoulder.

# %%
from cutaway import load_builtin

test = load_builtin("tinyworld:en-fr", "test", size=240)
for pair in test[:4]:
    print(f"{pair.source}\n{pair.target}")
    print("   ", "  ".join(f"{pair.source_words[s]}–{pair.target_words[t]}" for s, t in pair.alignment))

# %% [markdown]
# French is not English word by word: adjectives change sides, articles must agree with their nouns, two words may
# become one. So word-for-word translation is a fair thing to beat. It replaces each word by the French word that it
# was most often aligned with in training, and it is even allowed to see the gold alignments for that.

# %%
from cutaway.metrics.baselines import word_for_word

SIZE = 8_000
training_pairs = load_builtin("tinyworld:en-fr", "train", size=SIZE)
references = [pair.target for pair in test]
by_dictionary = word_for_word(training_pairs, [pair.source_words for pair in test])
for pair, found in zip(test[:3], by_dictionary, strict=False):
    print(f"{pair.source}\n    word for word  {found}\n    reference      {pair.target}")

# %% [markdown]
# ## Training
#
# The decoder reads the *right* French words, shifted by one, and must say the next one at each position (*teacher
# forcing*):
#
#     reads     <s>  Le    chat  dort  .
#     must say  Le   chat  dort  .     </s>
#
# The loss is the cross-entropy, with label smoothing 0.1 (section 5.4): a tenth of the weight is spread over all
# words, so that the model does not strive for certainty. The learning rate climbs for `warmup` steps and then falls
# with 1/√step (equation 3); `lr` is a factor on it. The recipe is that of `cutaway demo`, made smaller. Each word is
# one token, so that later a row of the attention is a word.

# %%
from cutaway import Config, DataConfig, DecodeConfig, RunFolder, TrainConfig, Translator, start_training

STEPS = 600
recipe = Config(
    model=ModelConfig(
        d_model=96, d_ff=384, n_heads=4, encoder_layers=2, decoder_layers=2, dropout=0.0, max_length=128,
        norm_placement="pre",
    ),
    data=DataConfig(
        corpus="tinyworld:en-fr", size=SIZE, heldout_size=300, tokenizer="word", vocab_size=4_000, max_tokens=64,
        batch_tokens=768,
    ),
    train=TrainConfig(steps=STEPS, warmup=150, lr=0.4, log_every=10, valid_every=150),
    decode=DecodeConfig(strategy="greedy"),
)  # fmt: skip
run = RunFolder(tempfile.mkdtemp())
training = start_training(recipe, run)
training.trainer.run()
translator = Translator.load(run.path, device="cpu")
print(f"{training.parameters:,} parameters, {training.trainer.state.seconds:.0f} s")

# %% [markdown]
# In the figure look at the two curves together. The orange one is measured on sentences that are not trained on. As
# long as it falls with the blue one, the model learns the language and not the sentences. Look also at the end: still
# falling, so a longer training would be better (`cutaway demo` has one).

# %%
from cutaway.explore.figures import loss_curve

metrics = run.read_metrics()
figure = loss_curve(metrics)
figure.axes[0].set_title("The translator learns, and what it learns holds for new sentences", loc="left")
save(figure, "07_training")
valid_losses = [row["valid_loss"] for row in metrics if "valid_loss" in row]
assert valid_losses[-1] < valid_losses[0] / 2

# %% [markdown]
# What has it learned? Three sentences that it has never seen, translated *greedily*: at each step the likeliest word.

# %%
sources = [pair.source for pair in test]
greedy_texts = translator.translate(sources)
for pair, found in zip(test[:3], greedy_texts, strict=False):
    print(f"{pair.source}\n    translated     {found}\n    reference      {pair.target}")

# %% [markdown]
# ## BLEU by hand
#
# How good is a translation that is not quite the reference? BLEU (Papineni et al. 2002) counts *n-grams*, runs of n
# words. For n = 1 to 4, what share of the translation's n-grams also stand in the reference? Take
#
#     reference      Le petit chat dort sous la table .      8 words
#     translation    Le chat dort sous la table .            7 words
#
#     n = 1    7 of 7      every word is in the reference
#     n = 2    5 of 6      all but "Le chat"
#     n = 3    4 of 5      all but "Le chat dort"
#     n = 4    3 of 4      all but "Le chat dort sous"
#
# Two points of care. An n-gram counts at most as often as it stands in the reference (*clipping*), or "le le le le"
# would score well. And precision does not notice what is missing: here a word is. So a translation that is too short is
# multiplied by the *brevity penalty* e^(1 - r/c), with r words in the reference and c in the translation.
#
#     BLEU = 100 · BP · (p₁ · p₂ · p₃ · p₄)^(1/4)
#          = 100 · e^(1 - 8/7) · (7/7 · 5/6 · 4/5 · 3/4)^(1/4)
#
# For many sentences the counts and lengths are added up first; BLEU is not a mean over sentences.


# %%
def words_of_text(text):
    return re.sub(r"([.,?!])", r" \1 ", text).split()


def ngrams(words, n):
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def bleu_by_hand(translations, references):
    found, wanted = [words_of_text(t) for t in translations], [words_of_text(r) for r in references]
    log_precision = 0.0
    for n in (1, 2, 3, 4):
        both = [(ngrams(f, n), ngrams(w, n)) for f, w in zip(found, wanted, strict=True)]
        right = sum((f & w).total() for f, w in both)  # & of Counters takes the smaller count: that is the clipping
        log_precision += math.log(right / sum(f.total() for f, _ in both)) / 4
    c, r = sum(map(len, found)), sum(map(len, wanted))
    return 100 * min(1.0, math.exp(1 - r / c)) * math.exp(log_precision)


# %% [markdown]
# The library leaves this to `sacrebleu`, which everybody uses, so that numbers can be compared. Its *signature*
# says how it was counted. One sentence, then all of our translations:

# %%
from cutaway.metrics.scores import bleu, exact_match

reference, translation = "Le petit chat dort sous la table.", "Le chat dort sous la table."
on_paper = 100 * math.exp(1 - 8 / 7) * (7 / 7 * 5 / 6 * 4 / 5 * 3 / 4) ** (1 / 4)
example_bleu = bleu([translation], [reference])
print(f"on paper {on_paper:.4f}, by hand {bleu_by_hand([translation], [reference]):.4f}", end=", ")
print(f"sacrebleu {example_bleu.value:.4f}\n{example_bleu.signature}")
assert abs(on_paper - example_bleu.value) < 1e-6
assert abs(bleu_by_hand([translation], [reference]) - example_bleu.value) < 1e-6

greedy_bleu = bleu(greedy_texts, references).value
bleu_difference = abs(bleu_by_hand(greedy_texts, references) - greedy_bleu)
print(f"all {len(test)} sentences: greatest difference {bleu_difference:.1e}")
assert bleu_difference < 1e-6

# %% [markdown]
# And what it is for: the model beside the dictionary. *Exact match* is the share of sentences that are right to the
# letter, which is a fair question only in a world as small as this one.

# %%
dictionary_bleu = bleu(by_dictionary, references).value
greedy_exact = exact_match(greedy_texts, references)
print(f"{'':14} {'BLEU':>6} {'exact match':>12}")
print(f"{'word for word':14} {dictionary_bleu:6.1f} {exact_match(by_dictionary, references):12.1%}")
print(f"{'Transformer':14} {greedy_bleu:6.1f} {greedy_exact:12.1%}")
assert greedy_bleu > dictionary_bleu + 20

# %% [markdown]
# ## Greedy and beam search
#
# The model gives p(next word | source, words so far). We want the likeliest *sentence*, the one with the greatest
# product. To take the likeliest word at each step is a shortcut, and it can go wrong:
#
#           ┌─ 0.6  Le ───┬─ 0.4  chat    0.6 · 0.4 = 0.24     greedy ends here
#     <s> ──┤             └─ ...
#           └─ 0.4  La ───┬─ 0.9  souris  0.4 · 0.9 = 0.36     better, but begins worse
#                         └─ ...
#
# *Beam search* follows the k best beginnings side by side. At each step every one is extended by every word, and the
# k best of all extensions live on. With k = 1 it is greedy. Over a table of made-up probabilities it is short:

# %%
NEXT = {"": {"Le": 0.6, "La": 0.4}, "Le": {"chat": 0.4, "chien": 0.35, "pain": 0.25}, "La": {"souris": 0.9, "mer": 0.1}}


def toy_beam(k, steps=2):
    beam = [((), 0.0)]  # (words, ln p)
    for _ in range(steps):
        extended = [
            ((*words, new), log_p + math.log(p))
            for words, log_p in beam
            for new, p in NEXT[words[-1] if words else ""].items()
        ]
        beam = sorted(extended, key=lambda item: -item[1])[:k]
    return beam


for k in (1, 2):
    print(f"k = {k}:", ", ".join(f"{' '.join(words)} {math.exp(log_p):.2f}" for words, log_p in toy_beam(k)))
assert toy_beam(1)[0][0] == ("Le", "chat")
assert toy_beam(2)[0][0] == ("La", "souris")

# %% [markdown]
# ### The length penalty
#
# Each further word makes a sentence less likely, for each factor is below 1. So the plain product prefers short
# translations. Section 6.1 of the paper ranks by score = ln p / lp(n) instead, with lp(n) = ((5 + n) / 6)^α and α = 0.6
# (the formula is from Wu et al. 2016); n counts the tokens, </s> included. Two candidates:
#
#     A    n = 5    ln p = -2.0       lp = (10/6)^0.6 = 1.359      score = -2.0 / 1.359 = -1.472
#     B    n = 8    ln p = -2.3       lp = (13/6)^0.6 = 1.590      score = -2.3 / 1.590 = -1.446
#
# With α = 0, A wins, being likelier. With α = 0.6, B wins: three words more for so little are good words.

# %%
from cutaway.decode.beam import length_penalty

candidates = {"A": (5, -2.0), "B": (8, -2.3)}
winners = {}
for alpha in (0.0, 0.6):
    scores = {name: log_p / ((5 + n) / 6) ** alpha for name, (n, log_p) in candidates.items()}
    assert all(abs(scores[c] - log_p / length_penalty(n, alpha)) < 1e-12 for c, (n, log_p) in candidates.items())
    winners[alpha] = max(scores, key=scores.get)
    print(f"α = {alpha}:", ", ".join(f"{k} {v:.3f}" for k, v in scores.items()), f"-> {winners[alpha]}")
assert winners == {0.0: "A", 0.6: "B"}

# %% [markdown]
# ### On real sentences
#
# We translate the test sentences with beams of several widths, with and without the length penalty. Two things are
# measured: how likely the model finds what the search brought (ln p, mean over the sentences), and how good it is
# (BLEU). The first is about the search, the second about the model as well.

# %%
widths = [1, 2, 4, 8]
found_by_beam, bleu_by_beam = {}, {}
for alpha in (0.0, 0.6):
    for k in widths:
        beam = DecodeConfig("beam", beam_size=k, length_penalty=alpha)
        found = [texts[0] for texts in translator.hypotheses(sources, beam)]
        found_by_beam[alpha, k] = found
        bleu_by_beam[alpha, k] = bleu([translator.tokenizer.decode(h.tokens) for h in found], references).value
log_p_by_beam = {key: sum(h.log_probability for h in found) / len(found) for key, found in found_by_beam.items()}
length_by_beam = {key: sum(len(h.tokens) for h in found) / len(found) for key, found in found_by_beam.items()}
for (alpha, k), value in bleu_by_beam.items():
    mean = f"mean ln p {log_p_by_beam[alpha, k]:.3f}, mean length {length_by_beam[alpha, k]:.2f}"
    print(f"α = {alpha}, k = {k}: {mean}, BLEU {value:.2f}")
assert log_p_by_beam[0.0, 1] < log_p_by_beam[0.0, 4]
assert length_by_beam[0.0, 8] <= length_by_beam[0.6, 8]

# %% [markdown]
# In the figure look first at the left: a wider beam finds likelier sentences, and most of the gain comes early. (The
# orange line is a little lower, for with α = 0.6 the search does not look for the likeliest sentence.) Then the right:
# a likelier sentence is not always a better one. Look at what a wide beam does with and without the length penalty, but
# mind the scale: on so few sentences, a few tenths of a point are chance.

# %%
figure = new_figure(9.5, 3.4)
left, right = figure.subplots(1, 2)
for alpha, colour in ((0.0, BLUE), (0.6, ORANGE)):
    left.plot([log_p_by_beam[alpha, k] for k in widths], marker="o", color=colour, label=f"α = {alpha}")
    right.plot([bleu_by_beam[alpha, k] for k in widths], marker="o", color=colour, label=f"α = {alpha}")
left.set(ylabel="ln p of a sentence, mean")
left.set_title("A wider beam finds likelier sentences", loc="left")
right.set(ylabel="BLEU")
right.set_title("... which are not always better ones", loc="left")
for axes in (left, right):
    axes.set_xticks(range(len(widths)), [str(k) for k in widths])
    axes.set_xlabel("beam size k")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, title="length penalty")
save(figure, "07_beam")

# %% [markdown]
# So when does a beam help? With the paper's setting, k = 4 and α = 0.6, we count the sentences in which it changed
# anything, and in which it made a wrong sentence right or a right one wrong.

# %%
beam_bleu = bleu_by_beam[0.6, 4]
greedy_found, beam_found = found_by_beam[0.6, 1], found_by_beam[0.6, 4]
beam_texts = [translator.tokenizer.decode(h.tokens) for h in beam_found]
assert [translator.tokenizer.decode(h.tokens) for h in greedy_found] == greedy_texts  # k = 1 is greedy
changed = [i for i, text in enumerate(beam_texts) if text != greedy_texts[i]]
mended = [i for i in changed if beam_texts[i] == references[i]]
spoiled = [i for i in changed if greedy_texts[i] == references[i]]
improved = sum(beam_found[i].score > greedy_found[i].score for i in changed)
print(f"of {len(test)} sentences k = 4 changed {len(changed)}: {len(mended)} became right, {len(spoiled)} wrong;")
print(f"in {improved} of the {len(changed)} the beam's sentence has the better score")
assert improved >= 0.8 * len(changed)

# %% [markdown]
# One of them in full: the *n-best list* of the beam, its best texts in order, with α = 0.6 as in the paper. Greedy's
# text is marked, if it is among them. Look for the first word in which it differs from the best one: there greedy took
# the likelier word, and paid for it later.

# %%
shown = (mended or changed or [0])[0]
paper_beam = DecodeConfig("beam", beam_size=4, length_penalty=0.6)
n_best = translator.hypotheses([sources[shown]], paper_beam, n_best=4)[0]
table = Table("", "text", "tokens", "ln p", "score", title=f"{sources[shown]}\n{references[shown]}")
for rank, hypothesis in enumerate(n_best, 1):
    text = translator.tokenizer.decode(hypothesis.tokens)
    n = len(hypothesis.tokens) + 1  # and </s>
    assert abs(hypothesis.score - hypothesis.log_probability / length_penalty(n, 0.6)) < 1e-6
    mark = "  (greedy)" if text == greedy_texts[shown] else ""
    table.add_row(str(rank), text + mark, str(n), f"{hypothesis.log_probability:.3f}", f"{hypothesis.score:.3f}")
Console(width=110, markup=False, emoji=False).print(table)

# %% [markdown]
# Beam search is worth its price (about k times the work) when the model hesitates at the *beginning* of something that
# is settled later, such as the article before a noun. Where the model is sure there is nothing for a beam to find, and
# where it is wrong, the likeliest sentence is wrong as well.
#
# ## Does attention know which word translates which?
#
# Cross-attention gives each French word, while it is written, weights over the English words. Link it to the word with
# the greatest weight, and we have an alignment to hold against the gold one. The measure is the *alignment error
# rate*:
#
#     AER = 1 - 2 · |found ∩ gold| / (|found| + |gold|)        0 is perfect, 1 is no link right
#
# It is one minus the F1 of lesson 5, counted over links. We choose the best head on other sentences than those we
# measure it on: the best of eight on the same ones would flatter itself. Beside it stands the simplest alignment,
# word i to word i.

# %%
from cutaway.explore.alignment import alignment_by_head, best_head
from cutaway.metrics.alignment import alignment_error_rate

valid = load_builtin("tinyworld:en-fr", "valid", size=300)
chosen = best_head(translator, valid)
aer = alignment_by_head(translator, test)
diagonal = [[(i, i) for i in range(min(len(p.source_words), len(p.target_words)))] for p in test]
diagonal_aer = alignment_error_rate(diagonal, [pair.alignment for pair in test])
for head, rate in aer.items():
    print(f"layer {head.layer}, head {head.head}: AER {rate:.1%}{'   <- chosen' if head == chosen else ''}")
print(f"word i to word i: AER {diagonal_aer:.1%}")
best_aer, worst_aer = aer[chosen], max(aer.values())
assert best_aer < 0.45
assert best_aer < worst_aer - 0.05

# %% [markdown]
# Now one sentence, of those in which the words change places most. Rows are French words while they are
# written, columns are English words. An orange frame is a link of the gold alignment. Look at whether the dark cells
# leave the diagonal where the frames do.

# %%
from cutaway import trace_translation
from cutaway.explore.alignment import crossings, gold_cells, words_of
from cutaway.explore.figures import attention_heatmap

right_ones = [p for p, text in zip(test, greedy_texts, strict=True) if text == p.target and len(p.source_words) < 12]
example = max(right_ones, key=lambda pair: crossings(pair.alignment))  # in which most words change places
gold = gold_cells(words_of(translator, example), example.alignment)
figure = attention_heatmap(trace_translation(translator, example.source, example.target), "cross", *chosen, gold)
figure.axes[0].set(xlabel="English word that is looked at", ylabel="French word while it is written")
figure.axes[0].set_title(f"Cross-attention, layer {chosen.layer}, head {chosen.head}\nframed: gold links", loc="left")
save(figure, "07_alignment")

# %% [markdown]
# Nobody told the model about alignments. It found that the word to look at is the word to translate. But it need not
# be so: the encoder's vectors have heard their neighbours (lesson 5), so a head may well fetch what it needs from the
# word beside, or from `</s>`.
#
# ## Switching heads off
#
# Does the model *use* that head? Weights cannot tell; an experiment can. `edit_activations` changes values while the
# model runs, and `without_head` puts zeros in the place of what a head fetched. We translate once without each head of
# the cross-attention, and once without any of them.

# %%
from cutaway import edit_activations
from cutaway.nn.recording import without_head


def translate_without(*heads):
    place = "decoder.layers.{}.cross_attention.heads"
    layers = {layer for layer, _ in heads}
    edits = {place.format(i): without_head(*(head for layer, head in heads if layer == i)) for i in layers}
    with edit_activations(translator.model, edits):
        return translator.translate(sources)


ablated_texts = {head: translate_without(head) for head in aer}
ablated_bleu = {head: bleu(texts, references).value for head, texts in ablated_texts.items()}
blind_texts = translate_without(*aer)
blind_bleu = bleu(blind_texts, references).value
for head, value in ablated_bleu.items():
    print(f"without layer {head.layer}, head {head.head}: BLEU {value:5.1f} (AER of the head {aer[head]:.1%})")
print(f"without all of them:     BLEU {blind_bleu:5.1f}")
print(f"with all of them:        BLEU {greedy_bleu:5.1f}")

# %% [markdown]
# In the figure each dot is a head. To the left are heads that agree with the gold alignment, at the bottom are heads
# that the model needs most. Look at whether the two go together, and at how far below the dashed line the dots are:
# without one head the model is still a translator.

# %%
figure = new_figure(7, 3.8)
axes = figure.add_subplot()
for head in aer:
    colour = ORANGE if head == chosen else BLUE
    axes.plot(aer[head], ablated_bleu[head], "o", color=colour, markersize=8)
    label = f"{head.layer}.{head.head}"
    above = (0, 8 if head.layer else -17)  # the two layers apart, for dots that are close
    axes.annotate(label, (aer[head], ablated_bleu[head]), xytext=above, textcoords="offset points", ha="center")
axes.margins(0.08, 0.2)
axes.axhline(greedy_bleu, color=GREY, linestyle="--", label="nothing switched off")
axes.set(xlabel="alignment error rate of the head (left: agrees with gold)", ylabel="BLEU without that head")
axes.set_title("What each cross-attention head (layer.head) is worth; orange: the best aligned", loc="left")
axes.legend(frameon=False)
save(figure, "07_ablation")
best_head_loss = greedy_bleu - ablated_bleu[chosen]
assert best_head_loss > 1
assert blind_bleu < 10 < dictionary_bleu

# %% [markdown]
# And what breaks? Some sentences that were right, without the best aligned head and without any cross-attention. Read
# the last line of each.

# %%
broken = [i for i, text in enumerate(ablated_texts[chosen]) if greedy_texts[i] == references[i] != text]
for i in broken[:4]:
    print(f"{sources[i]}\n    whole          {greedy_texts[i]}")
    print(f"    without head   {ablated_texts[chosen][i]}\n    without all    {blind_texts[i]}")
print(f"{len(broken)} sentences that were right are wrong without layer {chosen.layer}, head {chosen.head}")
print(f"{len(set(blind_texts))} different text(s) for {len(test)} sentences without any cross-attention")
assert broken
assert len({text[:10] for text in blind_texts}) == 1  # all begin alike, whatever the source

# %% [markdown]
# Without one head the sentence mostly keeps its frame, and here and there a word is wrong or missing. The other heads
# know much of what this one knew. Without any of them the decoder cannot know the source: whatever it is asked, it says
# the same. What is left is a small language model of French that was never trained to work alone.
#
# ## How it scales
#
# Count the numbers in a layer, as in lesson 5. An attention has 4·(D² + D), a feed-forward network with F = 4·D has
# 8·D² + 5·D, a norm 2·D:
#
#     encoder layer    1 attention,  feed-forward, 2 norms      12·D² + 13·D
#     decoder layer    2 attentions, feed-forward, 3 norms      16·D² + 19·D
#     N of each                                                N·(28·D² + 32·D)
#     one matrix for the embeddings and the logits             V·D
#
# Held against the paper's two models. They are built on the device "meta", where tensors have shapes and no
# numbers: the big one would need most of a gigabyte otherwise.

# %%
from cutaway import preset
from cutaway.models.build import count_parameters

sizes = {"this lesson": translator.config.model, "paper-base": preset("paper-base"), "paper-big": preset("paper-big")}


def on_paper_only(config):
    with torch.device("meta"):
        return build_model(config).eval()


parameters = {name: count_parameters(on_paper_only(config)) for name, config in sizes.items()}
for name, config in sizes.items():
    D, V, N = config.d_model, config.vocab_size, config.encoder_layers
    by_formula = N * (28 * D**2 + 32 * D) + V * D + (4 * D if config.norm_placement == "pre" else 0)
    print(f"{name:12} D={D:5} N={N} V={V:6,}  formula {by_formula:12,}  counted {parameters[name]:12,}")
    assert by_formula == parameters[name]

# %% [markdown]
# (Our model has the norm before each sub-layer, so each of its two stacks ends with one more: 4·D.) Table 3 of the
# paper says 65 and 213 million. It does not say how it counted, and its vocabulary is *about* 37,000 (section 5.1); the
# formula comes within a few percent. The width counts squared, the depth and the vocabulary once. So of two models
# with the same vocabulary, the wider one has the smaller share of its numbers in the embedding.
#
# What does it cost to run? A matrix of m numbers takes 2·m operations (*FLOPs*) for each token: m products, m
# sums. So the weights of a layer pair cost 2·28·D² for a token of the source and one of the target. But attention also
# has products that belong to no weight: Q Kᵀ and the weighted sum of V. For a query and n keys that is 2·n·D each,
# and there are three attentions in a layer pair.
#
#     FLOPs for a token pair, forward = N·(2·28·D² + 3·4·n·D) + 2·V·D
#
# `FlopCounterMode` of PyTorch counts what really runs, matrix product by matrix product.

# %%
from torch.utils.flop_counter import FlopCounterMode


def flops_per_token_pair(config, n):
    model = on_paper_only(replace(config, attention_kernel="exact", max_length=n))
    ids_1n = torch.zeros(1, n, dtype=torch.long, device="meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(ids_1n, ids_1n)
    return counter.get_total_flops() / n


def flops_by_formula(config, n):
    D, V, N = config.d_model, config.vocab_size, config.encoder_layers
    return N * (2 * 28 * D**2 + 3 * 4 * n * D) + 2 * V * D


flops = {name: flops_per_token_pair(config, 32) for name, config in sizes.items()}
for name, config in sizes.items():
    ratio = flops[name] / parameters[name]
    print(
        f"{name:12} formula {flops_by_formula(config, 32):13,}  counted {flops[name]:13,.0f}  a parameter {ratio:.2f}"
    )
    assert flops_by_formula(config, 32) == flops[name]
    assert 1.9 < ratio < 2.3

# %% [markdown]
# So there is a rule of thumb: forward costs two FLOPs for each parameter and token (here a token on each side).
# Training costs about three times that, for the backward pass has two products for each one of the forward pass. The
# rule holds while the text is short. The term with n grows: it equals that of the weights when 12·n·D = 56·D², at
# n ≈ 4.7·D.

# %%
lengths = [2**i for i in range(4, 15)]
counted = {name: [flops_per_token_pair(config, n) for n in lengths if n <= 1_024] for name, config in sizes.items()}
curves = {name: [flops_by_formula(config, n) for n in lengths] for name, config in sizes.items()}
for name in sizes:
    assert counted[name] == curves[name][: len(counted[name])]
base_ratios = [value / (2 * parameters["paper-base"]) for value in curves["paper-base"]]
print("paper-base, how many times two FLOPs a parameter:")
print("  ".join(f"n={n:,}: {ratio:.2f}" for n, ratio in list(zip(lengths, base_ratios, strict=True))[::2]))
assert base_ratios[1] < 1.05
assert base_ratios[-1] > 4

# %% [markdown]
# In the figure, on the left, look at the share of the embedding (grey): it shrinks from base to big. (Ours is between
# them only because our world has so few words.) On the right both axes are logarithmic; dots are counted, lines are the
# formula. Look at where each line leaves its dotted one, two FLOPs a parameter: the wider the model, the later. That
# attention costs n² for a text is true, and for sentences of a few dozen words it hardly matters.

# %%
figure = new_figure(11, 4)
left, right = figure.subplots(1, 2, width_ratios=(1, 1.3))
below = dict.fromkeys(sizes, 0.0)
for part, colour in (("embedding", GREY), ("encoder", BLUE), ("decoder", ORANGE)):
    for name, config in sizes.items():
        built = on_paper_only(config)
        count = count_parameters(built.head if part == "embedding" else getattr(built, part)) / parameters[name]
        left.bar(name, count, bottom=below[name], color=colour, label=part if name == "this lesson" else None)
        below[name] += count
for i, count in enumerate(parameters.values()):
    left.text(i, 1.02, f"{count / 1e6:.1f} M", ha="center")
left.set(ylim=(0, 1.3), ylabel="share of the parameters")
left.set_yticks([0, 0.5, 1])
left.set_title("Where the parameters are", loc="left")
left.legend(frameon=False, ncols=3, loc="upper left", fontsize=9)
for (name, values), colour in zip(curves.items(), (GREEN, BLUE, ORANGE), strict=True):
    right.plot(lengths, values, color=colour, label=name)
    right.plot(lengths[: len(counted[name])], counted[name], "o", markersize=4, color=colour)
    right.axhline(2 * parameters[name], color=colour, linestyle=":", linewidth=1)
right.set(xscale="log", yscale="log", xlabel="tokens n on each side", ylabel="FLOPs for a token pair, forward")
right.set_xticks(lengths[::2], [f"{n:,}" for n in lengths[::2]])
right.minorticks_off()
right.set_title("Weights first, attention later (dotted: 2 a parameter)", loc="left")
right.legend(frameon=False)
save(figure, "07_scaling")

# %% [markdown]
# ## What to remember
#
# - The Transformer is two stacks and one bridge: the memory of the last encoder layer is read by every decoder layer.
#   One matrix embeds both sides and makes the logits.
# - It trains on the right target shifted by one, all positions at once. It writes one token after the other.
# - BLEU: clipped n-gram precision for n = 1 to 4, geometric mean, times a brevity penalty; counts are added up over the
#   corpus.
# - Beam search looks for a likelier sentence, not a better one; the length penalty keeps it from being a shorter one.
# - A head of the cross-attention comes to align words untold. Whether the model needs it, only switching it off says.
# - Parameters: N·28·D² + V·D. Cost: two FLOPs a parameter and token while n is well below 4.7·D.
#
# ## Try it yourself
#
# 1. Set `STEPS` to 1,400 and `SIZE` to 16,000 (a few minutes). Look at the exact match, at the best AER, and at how
#    little is left for the beam to do.
# 2. Switch off all heads of one layer's cross-attention, `translate_without(*((0, h) for h in range(4)))`, then those
#    of the other. Look at which layer the translation depends on more.
# 3. Set `length_penalty` to 0 and to 3 in `paper_beam` with a beam of 8. Look at the lengths in the n-best list.
#
# ## Next
#
# Build all of it yourself: `cutaway check 5`. Or measure how the loss falls with size: `cutaway lab scaling-law`. Then:
#
# [Lesson 8](08_transformer_training.py): how such a model is trained.
