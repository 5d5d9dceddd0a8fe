"""Helpers for tests of searches: a fake model for both engines, and an exhaustive search."""

from __future__ import annotations

import math

import numpy as np
import torch
from helpers import TableModel

from cutaway.config import DecodeConfig
from cutaway.decode.alignment import Coverage
from cutaway.inference.engines.numpy_engine import run_search as numpy_search
from cutaway.inference.engines.torch_engine import run_search as torch_search
from cutaway.search.request import Search, Start

BOS, EOS = 0, 1
SOURCE = 4  # tokens of the longest source


class Fake(TableModel):
    """A TableModel with random but reproducible attention weights over a source."""

    def __init__(self, vocab, seed, sentences=(0,), lengths=(), as_arrays=False):
        super().__init__(vocab, seed, len(sentences))
        self.sentence, self.lengths, self.as_arrays = list(sentences), lengths, as_arrays
        self.source_weights, self.known = None, {}

    def logits(self, sentence, prefix):
        if (sentence, prefix) not in self.known:
            self.known[sentence, prefix] = super().logits(sentence, prefix)
        return self.known[sentence, prefix]

    def attend(self, sentence, prefix):
        """[S]: the attention weight of each source token; 0 for padding."""
        length = self.lengths[sentence]
        x = np.random.default_rng([self.seed, sentence, *prefix]).normal(0, 3, length)
        return np.pad(np.exp(x) / np.exp(x).sum(), (0, SOURCE - length))

    def step(self, tokens):
        logits = super().step(torch.as_tensor(tokens))
        if self.lengths:
            rows = zip(self.sentence, self.prefixes, strict=True)
            self.source_weights = np.stack([self.attend(sentence, prefix) for sentence, prefix in rows])
            self.source_weights = self.source_weights if self.as_arrays else torch.from_numpy(self.source_weights)
        return logits.numpy() if self.as_arrays else logits

    def keep(self, rows):
        super().keep(torch.as_tensor(rows))


def search_for(
    limits, n_best=1, prefixes=(), allowed=None, on_token=None, with_alignment=False, numbers=None, **settings
):
    numbers = range(len(limits)) if numbers is None else numbers
    decode = DecodeConfig(**{"strategy": "beam", "temperature": 1.0, "top_p": 1.0, **settings})
    return Search(decode, limits, numbers, BOS, EOS, n_best, prefixes, (), allowed, on_token, with_alignment)


def start_of(search, prompts=None):
    """A translation starts with <s>. A text generator starts with its prompt, which is part of the history."""
    return Start.of(prompts or [[BOS]] * len(search.limits), search.prefixes, is_history=prompts is not None)


def by_torch(search, vocab, seed, prompts=None, sentences=None, lengths=()):
    start = start_of(search, prompts)
    model = read_prompts(Fake(vocab, seed, sentences or range(len(search.limits)), lengths), start)
    coverage = search.decode.coverage_penalty if search.has_coverage else 0.0
    own = [lengths[s] for s in model.sentence] if lengths else []
    return torch_search(
        model, start, search, coverage=Coverage(own, search.with_alignment, coverage) if lengths else None
    )


def by_numpy(search, vocab, seed, prompts=None, sentences=None, lengths=()):
    start = start_of(search, prompts)
    model = read_prompts(Fake(vocab, seed, sentences or range(len(search.limits)), lengths, as_arrays=True), start)
    return numpy_search(model, start, search, [lengths[s] for s in model.sentence] if lengths else ())


def read_prompts(model, start):
    """Let the model read the prompts without their last token."""
    model.prefixes = [tuple(prompt[:-1]) for prompt in start.prompts]
    return model


BOTH = {"torch": by_torch, "numpy": by_numpy}


def with_rules(logits, history, written, decode, allowed=None):
    """The probabilities after the rules, computed one token at a time."""
    scores = []
    for token, x in enumerate(logits):
        if token in history:
            x = x / decode.repetition_penalty if x > 0 else x * decode.repetition_penalty
        n = decode.no_repeat_ngram
        grams = {tuple(history[i : i + n]) for i in range(len(history) - n + 1)} if n else set()
        forbidden = n and (*history, token)[-n:] in grams and len(history) >= n - 1
        forbidden = forbidden or token in decode.suppress or (token == EOS and len(written) < decode.min_length)
        forbidden = forbidden or (allowed is not None and token not in allowed)
        scores.append(-math.inf if forbidden else x)
    total = sum(math.exp(x) for x in scores)
    return [math.exp(x) / total if total else 0.0 for x in scores]


def every_text(search, vocab, seed, row=0, prompts=None, lengths=()):
    """All texts that a model can generate, best first: (score, tokens, log p)."""
    decode, model, limit = search.decode, Fake(vocab, seed, (row,), lengths), search.limits[row]
    prefix, prompt = list(search.prefixes[row]) if search.prefixes else [], prompts[row] if prompts else [BOS]
    texts = []

    def add_text(tokens, log_p, length):
        score = log_p / ((5 + length) / 6) ** decode.length_penalty
        if decode.coverage_penalty:
            reads = [*prompt, *prefix, *tokens]
            weights = [model.attend(row, tuple(reads[: n + 1])) for n in range(len(prompt) - 1, len(prefix) + length)]
            sums = [min(sum(w[i] for w in weights), 1) for i in range(lengths[row])]
            score += decode.coverage_penalty * sum(math.log(s) for s in sums)
        texts.append((score, tokens, log_p))

    def extend(tokens, log_p):
        logits = model.logits(row, (*prompt, *prefix, *tokens)).tolist()
        history = [*(prompt if prompts else []), *prefix, *tokens]
        allowed = search.allowed(row, [*prefix, *tokens]) if search.allowed else None
        for token, p in enumerate(with_rules(logits, history, tokens, decode, allowed)):
            if p == 0:
                continue
            total, length = log_p + math.log(p), len(tokens) + 1
            if token == EOS:
                add_text(tokens, total, length)
            elif length == limit:
                add_text([*tokens, token], total, length)
            else:
                extend([*tokens, token], total)

    extend([], 0.0)
    return sorted(texts, reverse=True)
