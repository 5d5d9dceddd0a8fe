"""A whole training on one page: a Transformer learns to write a row of letters backwards.

python examples/minimal_training.py
"""

import torch

from cutaway import ModelConfig, Tokenizer, build_model, load_builtin
from cutaway.data.batching import BatchStream
from cutaway.data.tasks import EncodedPair
from cutaway.decode.sampling import greedy
from cutaway.decode.stepper import TranslationStepper
from cutaway.train.losses import smoothed_cross_entropy
from cutaway.train.schedules import noam

torch.manual_seed(0)
torch.set_num_threads(1)  # for so small a model a second one only gets in the way

# What is to be learned: "d a c b" becomes "b c a d". No row of letters is in both lists.
train, heldout = load_builtin("reverse", "train", size=20_000), load_builtin("reverse", "test", size=100)
tokenizer = Tokenizer.train([pair.source for pair in train], "word", vocab_size=100)
examples = [EncodedPair(tokenizer.encode(pair.source), tokenizer.encode(pair.target)) for pair in train]
batches = BatchStream(examples, "translation", tokenizer, budget=1_024, seed=0)

# Who learns it: the paper's model, made small; norms stand first, which forgives a short warmup.
shape = {"d_model": 64, "d_ff": 256, "n_heads": 4, "encoder_layers": 1, "decoder_layers": 1}
model = build_model(ModelConfig(vocab_size=tokenizer.vocab_size, norm_placement="pre", dropout=0.0, **shape))
optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
learning_rate = noam(factor=1.5, d_model=64, warmup=200)

# How it learns: it guesses every next letter, is told which was right, and changes its weights a little.
for step in range(1, 701):
    batch = next(batches)
    logits = model(batch.source, batch.target_in, batch.source_mask, batch.target_mask)
    said, right = logits[batch.target_mask], batch.target_out[batch.target_mask]
    loss, surprise = smoothed_cross_entropy(said, right, epsilon=0.1)
    optimizer.zero_grad()
    (loss / batch.tokens).backward()
    optimizer.param_groups[0]["lr"] = learning_rate(step)
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step}   loss {loss / batch.tokens:.2f}   without smoothing {surprise / batch.tokens:.2f}")


@torch.no_grad()
def translate(text: str) -> str:
    """Read once; then write the likeliest letter, one after the other, until it is </s>."""
    source = torch.tensor([[*tokenizer.encode(text), tokenizer.eos]])
    [found] = greedy(TranslationStepper(model, source), torch.tensor([tokenizer.bos]), [50], tokenizer.eos)
    return tokenizer.decode(found.tokens)


# What it has learned, tried on rows that it has never seen.
model.eval()
answers = [translate(pair.source) for pair in heldout]
for pair, answer in zip(heldout[:3], answers, strict=False):
    print(f"{pair.source}  ->  {answer}  ({'right' if answer == pair.target else 'wrong'})")
n_right = sum(answer == pair.target for pair, answer in zip(heldout, answers, strict=True))
print(f"{n_right} of {len(heldout)} held-out rows are right")
