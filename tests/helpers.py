"""Helpers for many tests: tiny models, random ids, a recipe that trains in a second, a fake model for searches."""

from __future__ import annotations

import dataclasses
import io
import itertools
import math
import random
import signal
import sys
from types import SimpleNamespace

import pytest
import torch

from cutaway.config import Config, DataConfig, ModelConfig, TrainConfig
from cutaway.config.presets import preset
from cutaway.data.batching import ImageBatch, LabelBatch, PairBatch, TextBatch
from cutaway.errors import ConfigError
from cutaway.models import build
from cutaway.models.build import build_model
from cutaway.twin import build as twin

V = 11  # the vocabulary of the tiny presets
C = 3  # the number of classes of the tiny presets

# Every row of every table of build.py, so that the tests pick up a new row.
TABLES = {
    "family": build.FAMILIES,
    "position": build.POSITIONS,
    "attention": build.ATTENTIONS,
    "attention_kernel": build.KERNELS,
    "norm": build.NORMS,
    "norm_placement": build.NORM_PLACEMENTS,
    "block": build.BLOCKS,
    "feed_forward": build.FEED_FORWARDS,
}
# Settings without a table.
SWITCHES = {
    "head": build.HEADS,
    "pooling": build.POOLINGS,
    "embeddings": ("shared", "tied", "inputs", "separate"),
    "output_bias": (False, True),
    "embedding_scale": ("sqrt_d", "one"),
    "init": build.INITS,
    "embedding_norm": (False, True),
    "experts": (0, 3),
    "n_kv_heads": (0, 1),
    "d_head": (0, 6),
    "qk_norm": (False, True),
    "attention_softcap": (0.0, 5.0),
    "bias": (True, False),
}
AXES = {name: list(values) for name, values in {**TABLES, **SWITCHES}.items()}


def name_of(choice: dict) -> str:
    """The settings that are not defaults, for the name of a test."""
    defaults = ModelConfig()
    changed = {k: v for k, v in choice.items() if v != getattr(defaults, k)}
    return "-".join(f"{v}" if isinstance(v, str) else f"{k}={v}" for k, v in changed.items()) or "paper"


def twin_choices() -> list[dict]:
    """A few choices that together contain every pair of settings that the twin supports."""
    known = {**twin.SUPPORTED, "experts": (0,), "head": ("language",), "pooling": ("cls",)}
    return all_pairs({name: [v for v in values if v in known.get(name, values)] for name, values in AXES.items()})[0]


def tiny_of(family: str = "encoder_decoder", **changes) -> ModelConfig:
    """A tiny model of any family, with the settings that its other choices require."""
    sizes = {"d_model": 8, "d_ff": 16, "n_heads": 2, "dropout": 0.0}
    if family in ("encoder_decoder", "encoder", "vision"):
        sizes["encoder_layers"] = 2
    if family in ("encoder_decoder", "decoder"):
        sizes["decoder_layers"] = 2
    if family == "vision":
        sizes |= {"head": "classes", "image_size": 4, "patch_size": 2}
    else:
        sizes |= {"vocab_size": V, "max_length": 32}
    if changes.get("attention") in ("window", "sparse"):
        sizes["attention_window"] = 2
    if changes.get("head", sizes.get("head", "language")) in ("classes", "tags"):
        sizes["n_classes"] = C
    return ModelConfig(family=family, **{**sizes, **changes})


def is_possible(choice: dict) -> bool:
    try:
        tiny_of(**choice)
    except ConfigError:
        return False
    return True


def pairs_of(choice: dict) -> set:
    """All pairs of settings in a choice."""
    return set(itertools.combinations(sorted((name, value) for name, value in choice.items()), 2))


def all_pairs(axes: dict, candidates_per_pair: int = 12, tries: int = 150) -> tuple[list[dict], set]:
    """A few choices that together contain every possible pair of settings; and the pairs that are impossible."""
    draw = random.Random(0)
    ordered = [(name, value) for name in sorted(axes) for value in axes[name]]
    open_pairs = {(a, b): None for a, b in itertools.combinations(ordered, 2) if a[0] != b[0]}  # an ordered set
    rows, impossible = [], set()
    while open_pairs:
        pair = next(iter(open_pairs))
        random_choices = (with_pair(pair, axes, draw) for _ in range(tries))
        possible = list(itertools.islice((c for c in random_choices if is_possible(c)), candidates_per_pair))
        if not possible:
            impossible.add(pair)
            del open_pairs[pair]
            continue
        rows.append(max(possible, key=lambda c: sum(p in open_pairs for p in pairs_of(c))))
        for covered in pairs_of(rows[-1]):
            open_pairs.pop(covered, None)
    return rows, impossible


# Other settings that a setting requires.
NEEDS = {
    "pooling": lambda value: {} if value == "cls" else {"head": "classes", "family": "encoder"},
    "head": lambda value: {} if value == "language" else {"family": "encoder"},
    "attention_softcap": lambda value: {"attention_kernel": "exact"} if value else {},
    "position": lambda value: {"attention_kernel": "exact"} if value == "relative" else {},
    "attention": lambda value: (
        {"attention_kernel": "fused", "attention_softcap": 0.0, "position": "learned"} if value == "linear" else {}
    ),
}


def with_pair(pair, axes: dict, draw: random.Random) -> dict:
    """A random choice with the pair and what it requires. Half of the rest are defaults, or few would be possible."""
    defaults = {f.name: f.default for f in dataclasses.fields(ModelConfig)}
    chosen = {name: draw.choice(values) if draw.random() < 0.5 else defaults[name] for name, values in axes.items()}
    needed = {k: v for setting in pair for k, v in NEEDS.get(setting[0], lambda value: {})(setting[1]).items()}
    return chosen | needed | dict(pair)


def batch_for(config: ModelConfig, seed: int = 0):
    """A training batch with padding for a model of this configuration."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([6, 4, 5])
    mask = torch.arange(6)[None] < lengths[:, None]
    classes = torch.randint(0, C, (3,), generator=draw)
    if config.family == "vision":
        return ImageBatch(tokens=3, images=torch.rand(3, 1, 4, 4, generator=draw), targets=classes)
    ids = random_ids(3, 6, seed=seed)
    if config.family == "encoder_decoder":
        other = random_ids(3, 6, seed=seed + 1)
        return PairBatch(
            tokens=15, source=other, target_in=ids, target_out=ids.roll(-1, 1), source_mask=mask, target_mask=mask
        )
    if config.head == "classes":
        return LabelBatch(tokens=3, ids=ids, mask=mask, targets=classes)
    targets = ids.roll(-1, 1) if config.head == "language" else ids % C
    return TextBatch(tokens=15, ids=ids, mask=mask, targets=targets, target_mask=mask)


def tiny_config(**changes) -> ModelConfig:
    return dataclasses.replace(preset("tiny"), **changes)


def tiny_model(seed: int = 0, **changes):
    return perturbed_model(tiny_of(**changes), seed)


def perturbed_model(config: ModelConfig, seed: int = 0):
    torch.manual_seed(seed)
    model = build_model(config).eval()
    with torch.no_grad():  # biases other than 0 and norm weights other than 1, so that a forgotten one is noticed
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def random_ids(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(4, V, shape, generator=torch.Generator().manual_seed(seed))


def small_recipe(**train) -> Config:
    """A recipe that learns something about `reverse` in a second or two."""
    settings = {
        "steps": 12,
        "warmup": 10,
        "valid_every": 4,
        "save_every": 4,
        "log_every": 2,
        "keep_checkpoints": 2,
        **train,
    }
    return Config(
        model=tiny_config(vocab_size=0, d_model=16, d_ff=32, max_length=64, dropout=0.1),
        data=DataConfig(corpus="reverse", size=200, heldout_size=20, tokenizer="word", vocab_size=100, batch_tokens=256,
                        max_tokens=64),
        train=TrainConfig(**settings),
    )  # fmt: skip


def run_cutaway(*arguments, cwd, stdin: str = "") -> SimpleNamespace:
    """Run a command in this process. torch is already loaded, so it takes a twentieth of the time of a new process."""
    from cutaway.cli import main

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    before = signal.getsignal(signal.SIGINT)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(cwd)
        patched.setattr(sys, "argv", ["cutaway", *map(str, arguments)])
        patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        patched.setattr(sys, "stdout", out)
        patched.setattr(sys, "stderr", err)
        try:
            main()
        except SystemExit as error:
            code = error.code or 0
        finally:
            signal.signal(signal.SIGINT, before)
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return SimpleNamespace(returncode=code, stdout=texts[0], stderr=texts[1])


class TableModel:
    """A fake model: the logits of the next token are random numbers, seeded by the prefix."""

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
    """All possible texts as (score, tokens, log p), best first."""
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


def logit_gap_at_first_difference(pipeline, source: str, one: list[int], other: list[int]) -> float:
    """The difference of the logits of the first two tokens that differ, in the precision of `pipeline`."""
    tokenizer = pipeline.tokenizer
    one, other = [*one, tokenizer.eos], [*other, tokenizer.eos]
    place = next(i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    ids = torch.tensor([[*tokenizer.encode(source), tokenizer.eos]])
    logits = pipeline.model(ids, torch.tensor([[tokenizer.bos, *one[:place]]]))[0, -1]
    return (logits[one[place]] - logits[other[place]]).abs().item()
