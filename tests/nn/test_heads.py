"""Heads and poolings against their formulas, with and without padding."""

import math

import numpy as np
import pytest
import torch
from helpers import max_difference, tiny_config
from torch import nn
from torch.nn import LayerNorm

from cutaway.models.build import POOLINGS
from cutaway.nn.embedding import LanguageHead
from cutaway.nn.heads import AttentionPool, ClassHead, MaskedLanguageHead, TagHead, VectorHead
from cutaway.nn.recording import record_activations


def pool_by_loops(name, x, pool):
    """One text [T,D] without padding -> [D]"""
    if name == "cls":
        return x[0]
    if name == "cls_tanh":
        weight, bias = pool.dense.weight.detach().numpy(), pool.dense.bias.detach().numpy()
        return np.array([math.tanh(row @ x[0] + b) for row, b in zip(weight, bias, strict=True)])
    if name == "mean":
        return sum(x) / len(x)
    if name == "max":
        return np.array([max(token[d] for token in x) for d in range(x.shape[1])])
    question = pool.question.weight[0].detach().numpy()
    scores = np.array([math.exp(token @ question) for token in x])
    return sum(w * token for w, token in zip(scores / scores.sum(), x, strict=True))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", POOLINGS)
def test_poolings_equal_loops_over_the_tokens(name, padded):
    torch.manual_seed(0)
    # mostly negative, so a 0 for padding would be noticed
    pool, x = (POOLINGS[name](tiny_config()), torch.randn(3, 5, 8) - 3)
    lengths = (5, 3, 1) if padded else (5, 5, 5)
    is_token = torch.arange(5) < torch.tensor(lengths)[:, None] if padded else None
    if padded:
        x[~is_token] = 1e6
    out = pool(x, is_token)
    for b, length in enumerate(lengths):
        expected = pool_by_loops(name, x[b, :length].numpy(), pool)
        assert np.abs(out[b].detach().numpy() - expected).max() < 1e-10


def test_attention_pool_has_a_probe_for_its_weights():
    pool, x = AttentionPool(4), torch.randn(2, 3, 4)
    is_token = torch.tensor([[True] * 3, [True, False, False]])
    with record_activations(pool, "weights") as seen:
        pool(x, is_token)
    assert max_difference(seen["weights"].sum(1), torch.ones(2)) < 1e-6
    assert seen["weights"][1].tolist() == [1, 0, 0]


@pytest.mark.usefixtures("double")
def test_masked_language_head_formula():
    """norm(gelu(x W₁ + b₁)) Wᵀ + b, with the embedding's matrix as W."""
    torch.manual_seed(0)
    shared = nn.Parameter(torch.randn(11, 8))
    head = MaskedLanguageHead(11, 8, LayerNorm(8, 1e-12), shared)
    for parameter in head.parameters():
        nn.init.normal_(parameter)
    assert head.weight is shared
    x = torch.randn(2, 3, 8)
    w1, b1, g, n, w, b = (
        p.detach().numpy()
        for p in (head.transform.weight, head.transform.bias, head.norm.weight, head.norm.bias, head.weight, head.bias)
    )
    for i, t in np.ndindex(2, 3):
        y = w1 @ x[i, t].numpy() + b1
        y = np.array([v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in y])
        y = (y - y.mean()) / np.sqrt(((y - y.mean()) ** 2).mean() + 1e-12) * g + n
        assert np.abs(head(x)[i, t].detach().numpy() - (w @ y + b)).max() < 1e-10


@pytest.mark.usefixtures("double")
def test_language_head_is_the_transposed_embedding():
    shared = nn.Parameter(torch.randn(11, 8))
    head, x = LanguageHead(11, 8, shared), torch.randn(2, 3, 8)
    assert max_difference(head(x), x @ shared.T) < 1e-12
    assert LanguageHead(11, 8).weight.shape == (11, 8)
    biased = LanguageHead(11, 8, shared, bias=True)
    nn.init.normal_(biased.bias)
    assert max_difference(biased(x), x @ shared.T + biased.bias) < 1e-12


@pytest.mark.usefixtures("double")
def test_a_vector_head_is_its_pooling():
    head, x = VectorHead(POOLINGS["mean"](tiny_config())), torch.randn(2, 4, 8)
    is_token = torch.arange(4) < torch.tensor([[4], [2]])
    with record_activations(head, "pooled") as seen:
        vectors = head(x, is_token)
    assert torch.equal(vectors, seen["pooled"])
    assert max_difference(vectors, torch.stack([x[0].mean(0), x[1, :2].mean(0)])) < 1e-12


@pytest.mark.usefixtures("double")
def test_tag_and_class_heads():
    tags, classes = TagHead(3, 8), ClassHead(POOLINGS["mean"](tiny_config()), 3, 8)
    x, is_token = torch.randn(2, 4, 8), torch.arange(4) < torch.tensor([[4], [2]])
    assert max_difference(tags(x), x @ tags.classify.weight.T + tags.classify.bias) < 1e-12
    with record_activations(classes) as seen:
        logits = classes(x, is_token)
    means = torch.stack([x[0].mean(0), x[1, :2].mean(0)])
    assert max_difference(seen["pooled"], means) < 1e-12
    assert max_difference(logits, means @ classes.classify.weight.T + classes.classify.bias) < 1e-12


def test_dropout_of_heads_only_in_training():
    x = torch.randn(2, 4, 8)
    for head in (TagHead(3, 8, dropout=0.5), ClassHead(POOLINGS["max"](tiny_config()), 3, 8, dropout=0.5)):
        assert not torch.equal(head.train()(x), head(x))
        assert torch.equal(head.eval()(x), head(x))
