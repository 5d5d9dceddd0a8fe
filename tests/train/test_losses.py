"""The loss, the schedules and the optimizers against torch and their formulas."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from helpers import random_ids, tiny_model
from hypothesis import given
from hypothesis import strategies as st

from cutaway.config import TrainConfig
from cutaway.config.checks import choices
from cutaway.data.batching import collate_pairs
from cutaway.data.tasks import EncodedPair
from cutaway.data.tokenizer import Tokenizer
from cutaway.train.losses import smoothed_cross_entropy
from cutaway.train.objectives import compute_loss, translation
from cutaway.train.optimizers import OPTIMIZERS
from cutaway.train.schedules import SCHEDULES, make_schedule


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(2, 30), st.sampled_from([0.0, 0.1, 0.5, 0.9]))
def test_loss_equals_torch_and_the_definition(seed, N, vocab, epsilon):
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(N, vocab, generator=g, dtype=torch.float64) * 5
    target = torch.randint(vocab, (N,), generator=g)
    ours, plain = smoothed_cross_entropy(logits, target, epsilon)
    assert abs(ours - F.cross_entropy(logits, target, reduction="sum", label_smoothing=epsilon)) < 1e-10
    assert abs(plain - F.cross_entropy(logits, target, reduction="sum")) < 1e-10
    q = (1 - epsilon) * F.one_hot(target, vocab).double() + epsilon / vocab
    assert abs(ours - -(q * logits.log_softmax(-1)).sum()) < 1e-10


def test_the_smallest_smoothed_loss():
    """It is the entropy of the smoothed target: about 1.4 with the paper's 37,000 tokens."""
    q = torch.full((1, 37_000), 0.1 / 37_000, dtype=torch.float64)
    q[0, 3] += 0.9
    smallest = smoothed_cross_entropy(q.log(), torch.tensor([3]), 0.1)[0]
    assert abs(smallest - -(q * q.log()).sum()) < 1e-10
    assert round(smallest.item(), 1) == 1.4


@pytest.mark.usefixtures("double")
def test_padding_does_not_change_the_loss():
    tokenizer = Tokenizer.train(["a b c d e f g"], "word", 11)
    model = tiny_model(vocab_size=tokenizer.vocab_size)
    pairs = [EncodedPair([4, 5, 6, 7], [5, 6]), EncodedPair([8], [9, 8, 7, 6, 5])]
    together = compute_loss(model, translation, collate_pairs(pairs, tokenizer), 0.1)
    separate = [compute_loss(model, translation, collate_pairs([pair], tokenizer), 0.1) for pair in pairs]
    assert abs(together.loss - sum(a.loss for a in separate)) < 1e-10
    assert together.tokens == sum(a.tokens for a in separate) == 9


@given(st.integers(1, 200_000), st.sampled_from([128, 512, 1024]), st.sampled_from([1, 100, 4000]))
def test_noam_equals_its_formula(step, d_model, warmup):
    rate = make_schedule(TrainConfig(lr=2.0, warmup=warmup), d_model)(step, 0.5)
    expected = 2.0 / math.sqrt(d_model) * min(1 / math.sqrt(step), step / math.sqrt(warmup) ** 3)
    assert rate == pytest.approx(expected, abs=1e-10, rel=1e-12)


def test_noam_peaks_at_the_end_of_the_warmup():
    schedule = make_schedule(TrainConfig(warmup=40), 64)
    assert max(range(1, 500), key=lambda step: schedule(step, 0.5)) == 40


@given(st.integers(1, 1_000), st.integers(0, 400))
def test_cosine_rises_then_falls_to_zero(step, warmup):
    schedule = make_schedule(TrainConfig(schedule="cosine", lr=0.01, warmup=warmup, steps=1_000), 64)
    if step < warmup:
        expected = 0.01 * step / warmup
    else:
        expected = 0.01 * math.cos(math.pi / 2 * (step - warmup) / (1_000 - warmup)) ** 2  # half angle
    assert schedule(step, step / 1_000) == pytest.approx(expected, abs=1e-12)
    assert schedule(1_000, 1.0) == pytest.approx(0, abs=1e-12)


def test_constant():
    assert make_schedule(TrainConfig(schedule="constant", lr=0.002), 64)(77, 0.5) == 0.002


def test_config_and_tables_have_the_same_choices():
    assert set(choices(TrainConfig, "schedule")) == set(SCHEDULES)
    assert set(choices(TrainConfig, "optimizer")) == set(OPTIMIZERS)


def test_adam_has_the_papers_settings():
    optimizer = OPTIMIZERS["adam"](tiny_model(), TrainConfig())
    assert optimizer.defaults["betas"] == (0.9, 0.98)
    assert optimizer.defaults["eps"] == 1e-9


@pytest.mark.usefixtures("double")
def test_adamw_decays_matrices_only():
    """Without a gradient, a matrix shrinks by lr · decay at each step, and a bias does not change."""
    model = tiny_model()
    optimizer = OPTIMIZERS["adamw"](model, TrainConfig(optimizer="adamw", weight_decay=0.5))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, p in model.named_parameters():
        assert torch.allclose(p, before[name] * (0.95 if p.dim() > 1 else 1.0), atol=1e-12), name


@pytest.mark.usefixtures("double")
def test_eager_optimizer_equals_torch():
    models = [tiny_model(), tiny_model()]
    optimizers = [
        OPTIMIZERS["adam"](models[0], TrainConfig()),
        torch.optim.Adam(models[1].parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9),
    ]
    for step in range(1, 6):
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.param_groups[0]["lr"] = 0.01 * step
            optimizer.zero_grad()
            model(random_ids(2, 5, seed=step), random_ids(2, 4, seed=step)).pow(2).mean().backward()
            optimizer.step()
    for ours, theirs in zip(*(model.parameters() for model in models), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-10)


def test_training_does_not_import_the_compiler():
    """Importing torch._dynamo would double the time until the first step."""
    code = (
        "import sys, torch; from helpers import random_ids, tiny_model; from cutaway.config import TrainConfig;"
        "from cutaway.train.optimizers import make_optimizer; model = tiny_model();"
        "optimizer = make_optimizer(model, TrainConfig()); optimizer.zero_grad();"
        "model(torch.tensor([[4]]), torch.tensor([[4]])).sum().backward();"
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0); optimizer.step();"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1]).returncode == 0


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 63, 64, 200])
def test_fused_loss_and_gradient_equal_the_formula(rows, epsilon):
    """On a CPU, FusedCrossEntropy computes logits that need a gradient; others use the formula."""
    torch.manual_seed(rows)
    logits = (torch.randn(rows, 50, dtype=torch.float64) * 5).requires_grad_()
    target = torch.randint(50, (rows,))
    loss, plain = smoothed_cross_entropy(logits, target, epsilon)
    by_formula = smoothed_cross_entropy(logits.detach(), target, epsilon)
    assert (loss.item(), plain.item()) == pytest.approx([value.item() for value in by_formula], rel=1e-12)
    (3 * loss).backward()
    expected = logits.detach().requires_grad_()
    (3 * F.cross_entropy(expected, target, reduction="sum", label_smoothing=epsilon)).backward()
    assert torch.allclose(logits.grad, expected.grad, rtol=0, atol=1e-12)
    assert not plain.requires_grad
