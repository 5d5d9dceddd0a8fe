"""Small things that many tests need: tiny models, random ids, a run that takes a second to train."""

from __future__ import annotations

import dataclasses
import itertools
import math

import torch

from cutaway.config import Config, DataConfig, ModelConfig, TrainConfig
from cutaway.models.build import FEED_FORWARDS, KERNELS, NORM_PLACEMENTS, NORMS, POSITIONS, build_model
from cutaway.models.presets import preset

V = 11  # the vocabulary of the tiny preset

# Every combination of the choices that build.py offers; a new row in a table is tested the moment it is there.
ALL_CHOICES = [
    dict(zip(("position", "norm", "norm_placement", "feed_forward", "attention_kernel"), combination, strict=True))
    for combination in itertools.product(POSITIONS, NORMS, NORM_PLACEMENTS, FEED_FORWARDS, KERNELS)
]


def tiny_config(**changes) -> ModelConfig:
    return dataclasses.replace(preset("tiny"), **changes)


def tiny_model(seed: int = 0, **changes):
    torch.manual_seed(seed)
    model = build_model(tiny_config(**changes)).eval()
    with torch.no_grad():  # biases and norms that are not 0 and 1, so that a forgotten one is noticed
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def random_ids(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(4, V, shape, generator=torch.Generator().manual_seed(seed))


def small_recipe(**train) -> Config:
    """Learns something about `reverse` in a second or two."""
    settings = {"steps": 12, "warmup": 10, "valid_every": 4, "save_every": 4, "log_every": 2, "keep": 2, **train}
    return Config(
        model=tiny_config(vocab_size=0, d_model=16, d_ff=32, max_length=64, dropout=0.1),
        data=DataConfig(corpus="reverse", size=200, heldout_size=20, tokenizer="word", vocab_size=100, batch_tokens=256,
                        max_tokens=64),
        train=TrainConfig(**settings),
    )  # fmt: skip


class TableModel:
    """A model of 20 lines: the next token's logits depend on the prefix through a table of random numbers."""

    def __init__(self, vocab: int, seed: int, rows: int = 1, sharpness: float = 2.0):
        self.vocab, self.seed, self.sharpness = vocab, seed, sharpness
        self.prefixes: list[tuple[int, ...]] = [()] * rows
        self.sentence = list(range(rows))

    def logits(self, sentence: int, prefix: tuple[int, ...]) -> torch.Tensor:
        key = hash((self.seed, sentence, prefix)) % (2**31)
        return self.sharpness * torch.randn(
            self.vocab, generator=torch.Generator().manual_seed(key), dtype=torch.float64
        )

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        self.prefixes = [(*p, t) for p, t in zip(self.prefixes, tokens.tolist(), strict=True)]
        return torch.stack([self.logits(s, p) for s, p in zip(self.sentence, self.prefixes, strict=True)])

    def keep(self, rows: torch.Tensor) -> None:
        self.prefixes = [self.prefixes[i] for i in rows.tolist()]
        self.sentence = [self.sentence[i] for i in rows.tolist()]


def exhaustive_search(model: TableModel, sentence: int, bos: int, eos: int, max_length: int, alpha: float):
    """Every text there is, with its score: (score, tokens, log p), best first."""
    found = []

    def extend(tokens: tuple[int, ...], log_p: float) -> None:
        logits = model.logits(sentence, (bos, *tokens)).log_softmax(-1).tolist()
        for token in range(model.vocab):
            total, length = log_p + logits[token], len(tokens) + 1
            score = total / ((5 + length) / 6) ** alpha
            if token == eos:
                found.append((score, list(tokens), total))
            elif length == max_length:
                found.append((score, [*tokens, token], total))
            else:
                extend((*tokens, token), total)

    extend((), 0.0)
    return sorted(found, reverse=True)


def max_difference(a: torch.Tensor, b: torch.Tensor) -> float:
    assert a.shape == b.shape, f"{tuple(a.shape)} is not {tuple(b.shape)}"
    return (a - b).abs().max().item() if a.numel() else 0.0


def is_close(a: float, b: float, tolerance: float = 1e-9) -> bool:
    return math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)
