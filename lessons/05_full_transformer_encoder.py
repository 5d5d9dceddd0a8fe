# %% [markdown]
# # 5. A full Transformer encoder
#
# Lesson 4 built one encoder layer, inside out. This lesson puts layers on top of each other and gives the stack work
# to do. At the end you will know
#
# - what a stack of layers keeps, how many numbers it holds, and what each further layer adds to a word,
# - four ways to make one vector out of many (*pooling*), and what they cost and gain when they are trained,
# - how to tag every word of a text, with a syntax highlighter that nobody told the rules of Python,
# - what `B-`, `I-` and `O` mean, and how found spans are scored,
# - how to record what a trained model attends to, and how much to read into it.
#
# In the paper this is section 3.1 (the encoder stack, the left half of figure 1) and the second point of section
# 3.2.3 (self-attention in the encoder). The paper uses its encoder as the reading half of a translator. An encoder
# that works alone, with an answer for the whole text or for each token, is BERT (Devlin et al. 2019).

# %%
import tempfile
from collections import Counter

import torch
from rich.console import Console
from rich.text import Text

from cutaway.course.lesson import save, shapes
from cutaway.explore.figures import BLUE, GREEN, GREY, ORANGE, WEIGHTS, new_figure

torch.manual_seed(0)

# %% [markdown]
# ## Stacking
#
# A layer takes [B,T,D] and gives [B,T,D]: B sentences, T tokens each, D numbers for a token. What goes in and what
# comes out have the same shape, so a layer can stand on a layer:
#
#     ids ─▶ embedding ─▶ layer 0 ─▶ layer 1 ─▶ ... ─▶ layer N-1 ─▶ head ─▶ answer
#     [B,T]   [B,T,D]     [B,T,D]    [B,T,D]           [B,T,D]
#
# The paper has N = 6. Here are three small layers, with fresh weights, and a batch of two sentences. The second one is
# shorter and is filled up with padding (id 0). `is_token` is True at words and False at padding.

# %%
from cutaway import ModelConfig, build_model

small = ModelConfig(
    family="encoder", head="classes", vocab_size=50, n_classes=3, d_model=32, d_ff=128, n_heads=4, encoder_layers=3
)
model = build_model(small).eval()
ids_BT = torch.tensor([[7, 12, 9, 31, 5], [8, 20, 6, 0, 0]])
is_token_BT = ids_BT != 0
x_BTD = model.embedding(ids_BT)
shapes(ids_BT=ids_BT, x_BTD=x_BTD)

# %% [markdown]
# Section 3.1 has one formula for a sub-layer with all that is around it: LayerNorm(x + Sublayer(x)). A layer has two of
# them, attention and feed-forward. We write that down with the library's attention and norms, put it in a loop, and
# compare. (Dropout, which the paper has before the sum, does nothing outside training.) The mask [B,1,1,T] says to
# every head and every query: these keys may be looked at.

# %%
mask_B11T = is_token_BT[:, None, None, :]


def layer_by_hand(x_BTD, layer):
    after_attention = layer.self_attention_residual.norm(x_BTD + layer.self_attention(x_BTD, mask=mask_B11T))
    return layer.feed_forward_residual.norm(after_attention + layer.feed_forward(after_attention))


mine_BTD = x_BTD
for layer in model.encoder.layers:
    mine_BTD = layer_by_hand(mine_BTD, layer)

theirs_BTD = model.encode(ids_BT, is_token_BT)
shapes(mine_BTD=mine_BTD, theirs_BTD=theirs_BTD)
stack_difference = (mine_BTD - theirs_BTD).abs().max().item()
print(f"greatest difference: {stack_difference:.1e}")
assert torch.allclose(mine_BTD, theirs_BTD, atol=1e-6)

# %% [markdown]
# The layers are alike in form, but each has weights of its own. How many? Attention has four matrices D×D with a bias,
# the feed-forward network one D×F and one F×D with their biases, each of the two norms 2·D. With F = 4·D:
#
#     4·(D² + D)  +  (D·4D + 4D) + (4D·D + D)  +  2·2D   =   12·D² + 13·D
#
# So the width counts squared and the depth counts once. Doubling the depth doubles a stack; doubling the width
# makes it about four times as large.

# %%
from cutaway.models.build import count_parameters

D = small.d_model
by_formula = small.encoder_layers * (12 * D**2 + 13 * D)
counted = count_parameters(model.encoder)
print(f"formula {by_formula:,}, counted {counted:,}")
assert by_formula == counted

# %% [markdown]
# One promise must hold through the whole stack: padding changes nothing. Sentence two alone must give what sentence
# two gives in a batch beside a longer one. If it did not, a model's answer would depend on its neighbours.

# %%
alone_1TD = model.encode(ids_BT[1:, :3])
padding_difference = (alone_1TD[0] - theirs_BTD[1, :3]).abs().max().item()
print(f"alone or in a batch: greatest difference {padding_difference:.1e}")
assert padding_difference < 1e-5

# %% [markdown]
# ## Pooling: one vector for the whole text
#
# The stack gives a vector for every token. To say *what kind of text is this* we need one vector, whatever T is. Four
# ways are common:
#
#     cls         take the first token's vector; it had all layers to gather what it needs from the others
#     mean        the average over the tokens
#     max         for each of the D numbers, the greatest value that occurs anywhere
#     attention   a weighted average; the weights are a softmax over a learned score of each token
#
# All but the first must leave padding out. By hand each is a line or two:

# %%
m_BT1 = is_token_BT[..., None]
question_D = torch.randn(D)  # in a model this is learned


def attention_weights(x_BTD):
    scores_BT = (x_BTD @ question_D).masked_fill(~is_token_BT, float("-inf"))
    return scores_BT.softmax(dim=1)


pooled_by_hand = {
    "cls": theirs_BTD[:, 0],
    "mean": (theirs_BTD * m_BT1).sum(dim=1) / m_BT1.sum(dim=1),
    "max": theirs_BTD.masked_fill(~m_BT1, float("-inf")).amax(dim=1),
    "attention": (attention_weights(theirs_BTD)[..., None] * theirs_BTD).sum(dim=1),
}
shapes(x_BTD=theirs_BTD, m_BT1=m_BT1, weights_BT=attention_weights(theirs_BTD), pooled_BD=pooled_by_hand["mean"])

# %% [markdown]
# The library's poolings are modules in `nn/heads.py`. They must give the same vectors. Only attention pooling has a
# parameter, the question; we put ours into it.

# %%
from cutaway.nn.heads import AttentionPool, FirstPool, MaxPool, MeanPool

attention_pool = AttentionPool(D)
attention_pool.question.weight.data = question_D[None]
pools = {"cls": FirstPool(), "mean": MeanPool(), "max": MaxPool(), "attention": attention_pool}
pooling_differences = {}
for name, pool in pools.items():
    theirs_BD = pool(theirs_BTD, is_token_BT)
    pooling_differences[name] = (theirs_BD - pooled_by_hand[name]).abs().max().item()
    assert torch.allclose(theirs_BD, pooled_by_hand[name], atol=1e-6)
    print(f"{name:10} greatest difference {pooling_differences[name]:.1e}")

# %% [markdown]
# The usual mistake is `x.mean(dim=1)`: it averages the padding in. Row 0 has no padding and does not notice; row 1
# does. Such a model trains, and is quietly worse than it could be.

# %%
careless_BD = theirs_BTD.mean(dim=1)
careless = (careless_BD - pooled_by_hand["mean"]).abs().amax(dim=1)
print(f"mean with padding averaged in: row 0 is off by {careless[0]:.1e}, row 1 by {careless[1]:.1e}")
assert careless[0] < 1e-6 < 1e-2 < careless[1]

# %% [markdown]
# ## Four small classifiers
#
# Which pooling is best? We train one model with each and look. The task needs order: what does a Python expression do
# *last*? `f(x)[0]` takes an item, `f(x[0])` makes a call: the same words. The built-in corpus `python:expressions` has
# its expressions and labels from the standard library of the Python that runs this; nothing is downloaded.

# %%
from cutaway import load_builtin

train_expressions = load_builtin("python:expressions", "train", size=6_000)
test_expressions = load_builtin("python:expressions", "test", size=800)
for example in train_expressions[:6]:
    print(f"{example.label:12} {example.text}")

# %% [markdown]
# A recipe for each: two layers of width 64, one and the same seed, data and number of steps; only `pooling` differs.
# `rope` tells order by turning queries and keys. `pre` puts the norm before each sub-layer, x + Sublayer(LayerNorm(x)),
# with one more norm at the end of the stack; that trains well with a short warmup.

# %%
from cutaway import Config, DataConfig, TrainConfig

ENCODER = {"family": "encoder", "d_model": 64, "d_ff": 256, "n_heads": 4, "encoder_layers": 2, "dropout": 0.0}
ENCODER |= {"position": "rope", "norm_placement": "pre", "feed_forward": "gelu"}
STEPS = 200


def recipe(pooling):
    corpus = {"corpus": "python:expressions", "size": 6_000, "heldout_size": 300}
    return Config(
        model=ModelConfig(head="classes", pooling=pooling, max_length=128, **ENCODER),
        data=DataConfig(vocab_size=600, max_tokens=64, batch_tokens=1_024, **corpus),
        train=TrainConfig(steps=STEPS, warmup=50, lr=0.4, label_smoothing=0.0, log_every=10),
    )


# %% [markdown]
# Reading the corpus and learning a tokenizer is the same for all four, so it is done once (`prepare`) and handed to
# each training (`start_training`). A run folder is where a training leaves its weights and its losses; ours are
# temporary.

# %%
from cutaway import Classifier, RunFolder, evaluate_run, start_training
from cutaway.data.prepare import prepare

prepared = prepare(recipe("cls").data, "classification")
classifiers, losses, pooling_accuracy = {}, {}, {}
for pooling in pools:
    run = RunFolder(tempfile.mkdtemp())
    training = start_training(recipe(pooling), run, prepared=prepared)
    training.trainer.run()
    classifiers[pooling] = Classifier.load(run.path, device="cpu")
    losses[pooling] = [(row["step"], row["nll"]) for row in run.read_metrics() if "nll" in row]
    pooling_accuracy[pooling] = evaluate_run(classifiers[pooling], test_expressions)["accuracy"]
    seconds = training.trainer.state.seconds
    print(f"{pooling:10} {training.parameters:,} parameters, {seconds:.0f} s, accuracy {pooling_accuracy[pooling]:.1%}")

# %% [markdown]
# A number alone says little. Two things to hold beside it. *Majority class*: always answer the label that is most
# frequent in training. *Bag of words*: logistic regression on how often each word occurs; it sees all the words and
# nothing of their order. What a model has above the first, it learned; what it has above the second, it needed order
# for.

# %%
from cutaway.data.tasks import word_splitter
from cutaway.metrics.baselines import bag_of_words

majority = Counter(example.label for example in train_expressions).most_common(1)[0][0]
majority_accuracy = sum(example.label == majority for example in test_expressions) / len(test_expressions)
given = bag_of_words(
    [example.text for example in train_expressions],
    [example.label for example in train_expressions],
    [example.text for example in test_expressions],
    word_splitter(recipe("mean").data),  # Python's own words
)
bag_accuracy = sum(g == e.label for g, e in zip(given, test_expressions, strict=True)) / len(test_expressions)
print(f"always {majority!r}: {majority_accuracy:.1%}     bag of words: {bag_accuracy:.1%}")
for pooling, accuracy in pooling_accuracy.items():
    print(f"{pooling:10} {accuracy:.1%}")
    assert accuracy > majority_accuracy + 0.3

# %% [markdown]
# In the figure look first at how close the four are, and how far all of them are from the majority class. The bars
# rest on several hundred test expressions and one seed each, so a point or two between them is chance. On the left
# look at how the curves run together. With the same stack below, each pooling finds what it needs: the layers learn to
# put it where the pooling will look.

# %%
colours = dict(zip(pools, (GREY, BLUE, ORANGE, GREEN), strict=True))
figure = new_figure(10, 3.8)
left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
for pooling, points in losses.items():
    left.plot(*zip(*points, strict=True), color=colours[pooling], label=pooling)
left.set(xlabel="step", ylabel="cross-entropy of a batch, nats", ylim=(0, None))
left.set_title("The same encoder learns with four poolings", loc="left")
left.legend(frameon=False)
bars = right.bar(list(pools), list(pooling_accuracy.values()), color=[colours[name] for name in pools])
right.bar_label(bars, fmt="{:.0%}")
for height, name in ((majority_accuracy, "majority class"), (bag_accuracy, "bag of words")):
    right.axhline(height, color="black", linestyle="--", linewidth=1)
    right.text(3.55, height + 0.015, name, fontsize=9)
right.set(xlim=(-0.6, 4.9), ylim=(0, 1.05), ylabel="accuracy on expressions never seen", xlabel="pooling")
right.set_title("... and ends well above the majority class", loc="left")
save(figure, "05_poolings")

# %% [markdown]
# Try them on pairs that have the same words in another order, written to be hard: in library code, few parentheses
# stand around `not a` or `a or b`. `expression_kind` is the truth, from Python's own parser.

# %%
from cutaway.data.builtin.python_source import expression_kind

pairs = ["names(lines[0])", "names(lines)[0]", "not (a.size < b)", "(not a.size) < b"]
pairs += ["(a or b) + len(c)", "a or b + len(c)"]
answers = {pooling: classifier.classify(pairs) for pooling, classifier in classifiers.items()}
print(f"{'expression':20} {'truth':12}" + "".join(f"{pooling:12}" for pooling in answers))
for i, text in enumerate(pairs):
    print(f"{text:20} {expression_kind(text):12}" + "".join(f"{found[i].label:12}" for found in answers.values()))

# %% [markdown]
# Attention pooling can be asked what it took. Its weights pass through a *probe*, a named place in the model where a
# value can be recorded. Look at which tokens are dark in the figure: the answer was made of their vectors.
# These vectors have been through two layers, so a dark token stands for what it has gathered, not for itself alone.
# That is how `<s>` and `</s>`, which mean nothing, can be dark.

# %%
from cutaway import record_activations

pooled = classifiers["attention"]
tokenizer = pooled.tokenizer
figure = new_figure(9, 5.2)
rows = figure.subplots(len(pairs), 1)
for axes, text in zip(rows, pairs, strict=True):
    ids = [tokenizer.bos, *tokenizer.encode(text), tokenizer.eos]
    with record_activations(pooled.model, "head.pool.weights") as seen, torch.no_grad():
        pooled.model(torch.tensor([ids]))
    weights_T = seen["head.pool.weights"][0]
    image = axes.imshow(weights_T[None], cmap=WEIGHTS, vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(ids)), tokenizer.tokens(ids), parse_math=False)
    axes.set_yticks([])
    axes.set_ylabel(expression_kind(text), rotation=0, ha="right", va="center")
    axes.tick_params(length=0)
rows[-1].set_xlabel("token")
title = "What attention pooling takes from an expression (left: what the expression does last)"
figure.suptitle(title, x=0.01, ha="left", fontsize=11)
figure.colorbar(image, ax=list(rows), label="weight", fraction=0.03, pad=0.02)
save(figure, "05_attention_pooling")

# %% [markdown]
# ## A tag for every word
#
# The other use of an encoder asks for an answer at *every* token. No pooling: a linear map from D to the number of tags
# stands on each vector.
#
#     def     area    (      r      )      :
#      │       │      │      │      │      │       the stack: every vector has seen all words
#     [D]     [D]    [D]    [D]    [D]    [D]
#      │       │      │      │      │      │       the same linear map on each
#     keyword  definition  operator  name  operator  operator
#
# The data is again free: the standard module `tokenize` knows of each word of the standard library whether it is a
# keyword, a name, part of a string. `python:tags` holds snippets with these tags. The words are cut roughly: letters
# together, every other character by itself. That a quote opens a string, and how far it goes, is left to be learned.

# %%
train_tags = load_builtin("python:tags", "train", size=4_000)
test_tags = load_builtin("python:tags", "test", size=300)
shown = next(example for example in train_tags if "I-comment" in example.tags and len(example.words) < 40)
for word, tag in zip(shown.words, shown.tags, strict=True):
    print(f"{word!r:16} {tag}")

# %% [markdown]
# The same encoder as before, with `head = "tags"`. It also learns in well under a minute.

# %%
from cutaway import Tagger

tagger_run = RunFolder(tempfile.mkdtemp())
tagger_recipe = Config(
    model=ModelConfig(head="tags", max_length=512, **ENCODER),
    data=DataConfig(
        corpus="python:tags", size=4_000, heldout_size=200, vocab_size=1_000, max_tokens=256, batch_tokens=1_024
    ),
    train=TrainConfig(steps=350, warmup=50, lr=0.4, label_smoothing=0.0, log_every=10),
)
training = start_training(tagger_recipe, tagger_run)
training.trainer.run()
tagger = Tagger.load(tagger_run.path, device="cpu")
print(f"{training.parameters:,} parameters, {training.trainer.state.seconds:.0f} s")

# %% [markdown]
# What must it beat? *The most frequent tag*: each word gets the tag that it had most often in training. That is right
# for `def` and for `(`, and it cannot know that the `in` of "done in time" is part of a string.

# %%
from cutaway.inference.evaluation import baseline

tagger_scores = evaluate_run(tagger, test_tags)
tag_baseline = baseline(tagger, test_tags)
print(f"{'':20} {'accuracy':>9} {'span F1':>9}")
for name, scores in (("trained tagger", tagger_scores), (tag_baseline.name, tag_baseline.figures)):
    print(f"{name:20} {scores['accuracy']:9.1%} {scores['span_f1']:9.1%}")
assert tagger_scores["accuracy"] > tag_baseline.figures["accuracy"] + 0.1

# %% [markdown]
# Where does the difference come from? We ask by kind of word: of all words that are truly part of a string, how many
# got the right tag?

# %%
from cutaway.metrics.baselines import most_frequent_tags

words_list = [example.words for example in test_tags]
tagged = {"trained tagger": tagger.tag(words_list), "most frequent tag": most_frequent_tags(train_tags, words_list)}
gold = [tag for example in test_tags for tag in example.tags]
kinds = sorted({tag[2:] for tag in gold if tag != "O"})
by_kind = {}
for name, predicted in tagged.items():
    guesses = [tag for tags in predicted for tag in tags]
    of_kind = {kind: [g == p for g, p in zip(gold, guesses, strict=True) if g[2:] == kind] for kind in kinds}
    by_kind[name] = {kind: sum(hits) / len(hits) for kind, hits in of_kind.items()}
for kind in ("string", "comment", "definition"):
    assert by_kind["trained tagger"][kind] > by_kind["most frequent tag"][kind] + 0.2

# %% [markdown]
# In the figure compare the pairs of bars. For keywords, numbers and operators a table of words does as well as a model.
# Strings, comments and definitions are where one must look at the neighbours.

# %%
figure = new_figure(8, 3.4)
axes = figure.add_subplot()
for shift, (name, colour) in zip((-0.2, 0.2), (("trained tagger", BLUE), ("most frequent tag", GREY)), strict=True):
    axes.bar([i + shift for i in range(len(kinds))], by_kind[name].values(), width=0.38, color=colour, label=name)
axes.set_xticks(range(len(kinds)), kinds)
axes.set(ylabel="share of its words tagged right", xlabel="kind of word", ylim=(0, 1))
axes.set_title("Context is worth most in strings, comments and definitions", loc="left", pad=24)
axes.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 0.99))
save(figure, "05_by_kind")

# %% [markdown]
# ## The highlighter at work
#
# Now the model colours code that it has never seen. `rich` writes ANSI colours when it talks to a terminal and plain
# text when its output is piped into a file; so that both can be read, a second line says the kind of each word by its
# first letter (a number by a 9).

# %%
SNIPPET = """def greet(name, times=3):
    # for each guest, not only in class
    for i in range(times):
        print("hello in there", name, i + 1)
    return "done in time"  # not a return"""
COLOURS = {"keyword": "bold blue", "name": "default", "definition": "bold yellow", "string": "green"}
COLOURS |= {"comment": "bright_black italic", "number": "red", "operator": "magenta"}


def highlight(code, tags):
    """The code in colours, and a row of letters for each of its lines."""
    coloured, letters, place = Text(code), list(" " * len(code)), 0
    for word, tag in zip(tagger.words(code), tags, strict=True):
        start = code.index(word, place)
        place = start + len(word)
        if tag != "O":
            coloured.stylize(COLOURS[tag[2:]], start, place)
            letters[start:place] = ("9" if tag[2:] == "number" else tag[2]) * len(word)
    for i, character in enumerate(code):
        letters[i] = "\n" if character == "\n" else letters[i]
    return coloured, "".join(letters).split("\n")


# %% [markdown]
# The tags come from `tagger.tag`, which takes sentences as lists of words. Every colour below is the
# model's opinion; `tag_code` (the standard `tokenize`) then says how many were right. The model is small and young:
# if something is wrong, it is likely to be near the end of a string, where one must know which quote closes it.

# %%
from cutaway.data.builtin.python_source import tag_code

words = tagger.words(SNIPPET)
snippet_tags = tagger.tag([words])[0]
console = Console()
coloured, letters = highlight(SNIPPET, snippet_tags)
for line, below in zip(coloured.split("\n"), letters, strict=True):
    console.print(line, soft_wrap=True)
    console.print(below, style="dim", soft_wrap=True, highlight=False)
console.print(Text("  ").join(Text(kind, COLOURS[kind]) for kind in kinds))

# %% [markdown]
# And against the truth, word for word:

# %%
snippet_gold = tag_code(SNIPPET).tags
wrong = [(w, t, g) for w, t, g in zip(words, snippet_tags, snippet_gold, strict=True) if t != g]
snippet_accuracy = 1 - len(wrong) / len(words)
print(f"{snippet_accuracy:.0%} of {len(words)} words are right", *(f"\n  {w!r}: {t}, truly {g}" for w, t, g in wrong))
assert snippet_accuracy > 0.6

# %% [markdown]
# ## Named entities: B, I and O
#
# The tags had prefixes. They come from *named entity recognition*, the search for persons, places and dates in a text.
# There an answer is not a word but a *span* of words:
#
#     Ada    Lovelace  met  Charles  Babbage   in  London  .
#     B-PER  I-PER     O    B-PER    I-PER     O   B-LOC   O
#
# `B-PER` begins a person, `I-PER` goes on inside one, `O` is outside. Why both B and I? Two persons may stand side by
# side: in "He gave Ada Babbage 's letter", `B-PER B-PER` are two people, `B-PER I-PER` is one. So spans can be found by
# a model that does nothing but tag words. Back from tags to spans:

# %%
from cutaway.metrics.classes import span_f1, spans_of

sentence = ["Ada", "Lovelace", "met", "Charles", "Babbage", "in", "London", "."]
true_tags = ["B-PER", "I-PER", "O", "B-PER", "I-PER", "O", "B-LOC", "O"]


def spans_by_hand(tags):
    spans = []
    for i, tag in enumerate(tags):
        if tag.startswith("B-"):
            spans.append([i, i + 1, tag[2:]])  # first word, one beyond the last, label
        elif tag.startswith("I-"):
            spans[-1][1] = i + 1
    return [tuple(span) for span in spans]


for start, end, label in spans_by_hand(true_tags):
    print(f"{label}  {' '.join(sentence[start:end])}")
assert spans_by_hand(true_tags) == spans_of(true_tags)

# %% [markdown]
# (The library's `spans_of` also knows what to do with tags that make no sense, such as an `I-PER` after an `O`: it
# begins a span there.) Now suppose that a tagger says this:

# %%
guessed_tags = ["B-PER", "I-PER", "O", "B-PER", "O", "O", "B-LOC", "O"]
for word, truth, guess in zip(sentence, true_tags, guessed_tags, strict=True):
    print(f"{word:10} {truth:6} {guess:6} {'' if truth == guess else '<- wrong'}")

# %% [markdown]
# One word of eight is wrong: an accuracy of 7/8. But somebody who asked for persons got "Ada Lovelace" and a "Charles"
# who does not exist. So spans are counted, and a span is right only if its start, its end and its label are:
#
#     wanted   (0,2,PER)  (3,5,PER)  (6,7,LOC)      3
#     found    (0,2,PER)  (3,4,PER)  (6,7,LOC)      3
#     right    (0,2,PER)             (6,7,LOC)      2
#
#     precision = right / found = 2/3      how much of what was found is right
#     recall    = right / wanted = 2/3     how much of what was wanted is found
#     F1 = 2 · precision · recall / (precision + recall) = 2 · right / (found + wanted) = 4/6

# %%
found, wanted = set(spans_by_hand(guessed_tags)), set(spans_by_hand(true_tags))
n_right = len(found & wanted)
f1_by_hand = 2 * n_right / (len(found) + len(wanted))
score = span_f1([guessed_tags], [true_tags])
print(f"by hand {f1_by_hand:.4f}, library {score.f1:.4f} (precision {score.precision:.4f}, recall {score.recall:.4f})")
assert abs(score.f1 - f1_by_hand) < 1e-12
assert abs(score.f1 - 2 / 3) < 1e-12

# %% [markdown]
# The tags of our highlighter are of this kind. `"done in time"` is five words (a quote, three words, a quote) and one
# span: `B-string I-string I-string I-string I-string`. One wrong word in a long comment spoils its span, which is why
# the F1 of the tagger above is below its accuracy. With entity tags in a CoNLL file (a word and a tag a line), the
# same recipe trains a recognizer of names; nothing else would change.

# %%
for start, end, label in spans_of(snippet_tags)[:12]:
    print(f"{label:11} {' '.join(words[start:end])}")
assert tagger_scores["span_f1"] < tagger_scores["accuracy"]

# %% [markdown]
# ## What the layers add
#
# In the line of code below the word `in` stands three times: as a keyword, in a string and in a comment. At the input
# all three have the same vector, for it is looked up in a table (with `rope`, order comes in only inside
# attention). After each layer they have heard more of their neighbours. We record the *stream*, what goes on from
# layer to layer, and measure how alike the three are: the cosine is 1 for the same direction, 0 for unrelated ones.

# %%
from cutaway.data.tasks import encode_words

LINE = 'for word in text: print("done in time")  # not in here'
line_words = tagger.words(LINE)
row = encode_words(tagger.tokenizer, [line_words])[0]
with record_activations(tagger.model, "*.weights", "*.stream", "embedding.embedded") as seen, torch.no_grad():
    tagger.model(torch.tensor([row.ids]))
streams = [seen["embedding.embedded"]]
streams += [seen[f"encoder.layers.{i}.feed_forward_residual.stream"] for i in range(2)]
three_ins = [place for place, word in zip(row.first, line_words, strict=True) if word == "in"]
tags_of_in = [tag for word, tag in zip(line_words, tagger.tag([line_words])[0], strict=True) if word == "in"]
print("the three are tagged", tags_of_in)
shapes(stream_BTD=streams[0], weights_BHQK=seen["encoder.layers.0.self_attention.weights"])

# %% [markdown]
# Look at how the lines fall from 1: that is context entering the vector of a word. This is all that "contextual
# embedding" means.

# %%
contrasts = {"keyword and string": (0, 1), "keyword and comment": (0, 2), "string and comment": (1, 2)}
cosines = {}
for name, (a, b) in contrasts.items():
    cosines[name] = [torch.cosine_similarity(x[0, three_ins[a]], x[0, three_ins[b]], dim=0).item() for x in streams]
figure = new_figure(6.5, 3.4)
axes = figure.add_subplot()
for (name, values), colour in zip(cosines.items(), (BLUE, ORANGE, GREEN), strict=True):
    axes.plot(values, color=colour, marker="o", label=name)
axes.set_xticks(range(3), ["embedding", "after layer 0", "after layer 1"])
axes.set(ylabel="cosine of two occurrences", xlabel="depth", ylim=(min(map(min, cosines.values())) - 0.1, 1.05))
axes.set_title("The same word drifts apart as it hears its neighbours", loc="left")
axes.legend(frameon=False, title="the word `in` as")
save(figure, "05_depth")
assert all(values[0] > 0.999 and values[-1] < 0.95 for values in cosines.values())

# %% [markdown]
# ## Who looks at whom
#
# The same recording holds the attention weights, [B,H,Q,K] for each layer. Rows look, columns are looked at, and each
# row sums to 1. What could a word inside a string look for? The quotes. So we measure how much weight the words
# between the two quotes put on the quotes, head by head, beside what they would if they looked everywhere alike.

# %%
labels = tagger.tokenizer.tokens(row.ids)
quotes = [place for place, word in zip(row.first, line_words, strict=True) if word == '"']
inside = list(range(quotes[0] + 1, quotes[1]))
everywhere_alike = len(quotes) / len(row.ids)
on_quotes = {}
for layer in range(2):
    weights_HQK = seen[f"encoder.layers.{layer}.self_attention.weights"][0]
    assert torch.allclose(weights_HQK.sum(dim=-1), torch.ones(4, len(row.ids)), atol=1e-5)
    for head, share in enumerate(weights_HQK[:, inside][:, :, quotes].sum(dim=-1).mean(dim=-1).tolist()):
        on_quotes[layer, head] = share
print(f"everywhere alike: {everywhere_alike:.2f}")
print("  ".join(f"layer {layer} head {head}: {share:.2f}" for (layer, head), share in on_quotes.items()))
best_layer, best_head = max(on_quotes, key=on_quotes.get)
assert on_quotes[best_layer, best_head] > 2 * everywhere_alike

# %% [markdown]
# In the figure, on the left is the head that looks at quotes most. The orange frame holds the rows of the tokens
# between the quotes; look at the columns marked `"`, and at where the tokens after the string look. (The tokenizer
# cuts a rare word into pieces, and the tag is asked of its first piece.) On the right is the mean of all heads of that
# layer: it is blurred, for heads share out the work, and a mean hides it. Look there at both sides of the
# diagonal, too: an encoder looks back and ahead. Lesson 6 takes one of the two away.

# %%
from matplotlib.patches import Rectangle

weights_HQK = seen[f"encoder.layers.{best_layer}.self_attention.weights"][0]
panels = {f"Layer {best_layer}, head {best_head}: looks for quotes": weights_HQK[best_head]}
panels[f"Layer {best_layer}: mean of its heads"] = weights_HQK.mean(dim=0)
figure = new_figure(12, 5.6)
for axes, (title, weights_QK) in zip(figure.subplots(1, 2), panels.items(), strict=True):
    image = axes.imshow(weights_QK, cmap=WEIGHTS, vmin=0, vmax=1)
    axes.set_xticks(range(len(labels)), labels, rotation=60, ha="right", rotation_mode="anchor", parse_math=False)
    axes.set_yticks(range(len(labels)), labels, parse_math=False)
    axes.tick_params(length=0, labelsize=9)
    frame = (-0.5, inside[0] - 0.5), len(labels), len(inside)
    axes.add_patch(Rectangle(*frame, fill=False, edgecolor=ORANGE, linewidth=1.8))
    axes.set(xlabel="token that is looked at", ylabel="token that looks")
    axes.set_title(title, loc="left")
figure.colorbar(image, ax=figure.axes, label="weight", fraction=0.02, pad=0.01)
save(figure, "05_tagger_attention")

# %% [markdown]
# A warning: weights say where a head looked, not what it took along, nor whether the answer would have been
# another without it. To find that out, one must switch the head off and see (`cutaway.edit_activations` does that).
#
# ## What to remember
#
# - A layer keeps the shape [B,T,D], so layers stack; each has weights of its own, 12·D² + 13·D of them if F = 4·D.
# - Padding must be masked in attention and once more in pooling.
# - cls, mean, max and attention make one vector out of T. With the same encoder below they end close to each other:
#   the stack does the work.
# - A tagger is the same encoder with a linear map on each token. BIO tags make spans out of tagged words.
# - Accuracy counts words, span F1 counts whole answers. And a figure means little without a baseline beside it.
#
# ## Try it yourself
#
# 1. Set `encoder_layers` to 1 and run again. Look at which kinds of word in `05_by_kind` suffer most, and whether the
#    order of the poolings stays.
# 2. Set `position` to `"none"` in `ENCODER`. The classifiers become bags of tokens: look at how close they come to
#    the dashed line. (Not quite bags of words: a BPE token such as `)[` keeps two neighbours together.)
# 3. Put a snippet of your own into `SNIPPET`, with a quote inside a comment or a `#` inside a string. Look at how far
#    the mistake spreads.
#
# ## Next
#
# Try other norms and feed-forward networks in the lab: `cutaway lab norms`, `cutaway lab feed-forwards`. Then:
#
# [Lesson 6](06_transformer_decoder.py): one mask turns this encoder into a decoder, and a decoder can write.
