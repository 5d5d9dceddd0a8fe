"""A complete training in 60 lines: a Transformer learns to reverse a sequence of letters.

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
torch.set_num_threads(1)  # faster for such a small model

# Data: "d a c b" -> "b c a d". No sequence is in both lists.
train, heldout = load_builtin("reverse", "train", size=20_000), load_builtin("reverse", "test", size=100)
tokenizer = Tokenizer.train([pair.source for pair in train], "word", vocab_size=100)
examples = [EncodedPair(tokenizer.encode(pair.source), tokenizer.encode(pair.target)) for pair in train]
batches = BatchStream(examples, "translation", tokenizer, budget=1_024, seed=0)

# Model: a small version of the paper's, with pre-norm, which needs less warmup.
shape = {"d_model": 64, "d_ff": 256, "n_heads": 4, "encoder_layers": 1, "decoder_layers": 1}
model = build_model(ModelConfig(vocab_size=tokenizer.vocab_size, norm_placement="pre", dropout=0.0, **shape))
optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
learning_rate = noam(factor=1.5, d_model=64, warmup=200)

# Training: predict every next letter, compute the loss, update the weights.
for step in range(1, 701):
    batch = next(batches)
    logits = model(batch.source, batch.target_in, batch.source_mask, batch.target_mask)
    predicted, expected = logits[batch.target_mask], batch.target_out[batch.target_mask]
    loss, nll = smoothed_cross_entropy(predicted, expected, epsilon=0.1)
    optimizer.zero_grad()
    (loss / batch.tokens).backward()
    optimizer.param_groups[0]["lr"] = learning_rate(step)
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step}   loss {loss / batch.tokens:.2f}   without smoothing {nll / batch.tokens:.2f}")


@torch.no_grad()
def translate(text: str) -> str:
    """Encode the source; then append the most probable letter until </s>."""
    source = torch.tensor([[*tokenizer.encode(text), tokenizer.eos]])
    [hypothesis] = greedy(TranslationStepper(model, source), torch.tensor([tokenizer.bos]), [50], tokenizer.eos)
    return tokenizer.decode(hypothesis.tokens)


# Evaluation on held-out sequences.
model.eval()
answers = [translate(pair.source) for pair in heldout]
for pair, answer in zip(heldout[:3], answers, strict=False):
    print(f"{pair.source}  ->  {answer}  ({'right' if answer == pair.target else 'wrong'})")
n_right = sum(answer == pair.target for pair, answer in zip(heldout, answers, strict=True))
print(f"{n_right} of {len(heldout)} held-out sequences are right")
