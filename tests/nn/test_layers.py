"""Encoder and decoder stacks against torch.nn.TransformerEncoder and TransformerDecoder, with the same weights."""

import pytest
import torch
from helpers import max_difference, random_ids, tiny_model
from torch import nn
from torch.nn import LayerNorm, RMSNorm

from cutaway.errors import CutawayError
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.feedforward import FeedForward
from cutaway.nn.layers import token_mask
from cutaway.nn.masks import Causal, Mask, causal_mask
from cutaway.nn.parallel_layer import ParallelLayer
from cutaway.nn.residual import PostNorm, PreNorm
from cutaway.nn.sandwich_norm import SandwichNorm


def copy_attention(ours, theirs):
    projections = (ours.query, ours.key, ours.value)
    theirs.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
    theirs.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
    copy_linear(ours.output, theirs.out_proj)


def copy_linear(ours, theirs):
    theirs.weight.copy_(ours.weight)
    theirs.bias.copy_(ours.bias)


@torch.no_grad()
def copy_layer(ours, theirs):
    copy_attention(ours.self_attention, theirs.self_attn)
    copy_linear(ours.self_attention_residual.norm, theirs.norm1)
    copy_linear(ours.feed_forward.expand, theirs.linear1)
    copy_linear(ours.feed_forward.contract, theirs.linear2)
    if ours.cross_attention is not None:
        copy_attention(ours.cross_attention, theirs.multihead_attn)
        copy_linear(ours.cross_attention_residual.norm, theirs.norm2)
        copy_linear(ours.feed_forward_residual.norm, theirs.norm3)
    else:
        copy_linear(ours.feed_forward_residual.norm, theirs.norm2)


def torch_stack(ours, layer_class, stack_class, pre, activation):
    layer = layer_class(8, 2, 16, dropout=0.0, activation=activation, batch_first=True, norm_first=pre)
    extra = {"enable_nested_tensor": False} if stack_class is nn.TransformerEncoder else {}
    theirs = stack_class(layer, len(ours.layers), norm=nn.LayerNorm(8) if pre else None, **extra)
    for our_layer, their_layer in zip(ours.layers, theirs.layers, strict=True):
        copy_layer(our_layer, their_layer)
    if pre:
        with torch.no_grad():
            copy_linear(ours.norm, theirs.norm)
    return theirs


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.usefixtures("double")
def test_stacks_equal_torch(placement, activation):
    model = tiny_model(norm_placement=placement, feed_forward=activation)
    pre = placement == "pre"
    encoder = torch_stack(model.encoder, nn.TransformerEncoderLayer, nn.TransformerEncoder, pre, activation)
    decoder = torch_stack(model.decoder, nn.TransformerDecoderLayer, nn.TransformerDecoder, pre, activation)
    x, y = torch.randn(3, 6, 8), torch.randn(3, 5, 8)
    is_token = torch.arange(6)[None] < torch.tensor([6, 4, 1])[:, None]

    memory = model.encoder(x, Mask(range(6), range(6), is_token=is_token))
    expected = encoder(x, src_key_padding_mask=~is_token)  # torch: True = may not attend
    assert max_difference(memory[is_token], expected[is_token]) < 1e-10

    out = model.decoder(y, Mask(range(5), range(5), (Causal(),)), memory, Mask(range(5), range(6), is_token=is_token))
    expected = decoder(y, memory, tgt_mask=~causal_mask(5), memory_key_padding_mask=~is_token)
    assert max_difference(out, expected) < 1e-10

    # gradients of the inputs
    memory = memory.detach()
    for pair, start in (
        ((model.encoder, encoder), x),
        ((lambda y: model.decoder(y, memory=memory), lambda y: decoder(y, memory)), y),
    ):
        gradients = []
        for stack in pair:
            leaf = start.clone().requires_grad_()
            stack(leaf).pow(2).sum().backward()
            gradients.append(leaf.grad)
        assert max_difference(*gradients) < 1e-9


def test_layers_are_independent():
    """N layers with different weights, not one layer N times."""
    model = tiny_model()
    for stack in (model.encoder, model.decoder):
        seen = [id(p) for layer in stack.layers for p in layer.parameters()]
        assert len(seen) == len(set(seen))
        first, second = (layer.self_attention.query.weight for layer in stack.layers)
        assert not torch.equal(first, second)


@pytest.mark.parametrize("with_cross_attention", [False, True])
@pytest.mark.usefixtures("double")
def test_parallel_layer_formula(with_cross_attention):
    """x + attention(norm(x)) + feed_forward(norm(x)), with the same norm(x), and optionally cross-attention."""
    torch.manual_seed(0)
    layer = ParallelLayer(
        self_attention=MultiHeadAttention(8, 2),
        feed_forward=FeedForward(8, 16, torch.relu),
        residual=PreNorm(lambda: LayerNorm(8), 0.0),
        cross_attention=MultiHeadAttention(8, 2) if with_cross_attention else None,
    )
    x, memory, mask = torch.randn(2, 5, 8), torch.randn(2, 4, 8), Mask(range(5), range(5), (Causal(),))
    normed = layer.residual.norm(x)
    expected = x + layer.self_attention(normed, mask=causal_mask(5)) + layer.feed_forward(normed)
    if with_cross_attention:
        expected = expected + layer.cross_attention(normed, memory)
    assert max_difference(layer(x, mask, memory), expected) < 1e-10
    assert sum(isinstance(m, LayerNorm) for m in layer.modules()) == 1


@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
@pytest.mark.usefixtures("double")
def test_residual_formulas(norm):
    """The norms before and after have different weights, so that swapping them would be noticed."""
    torch.manual_seed(0)
    x, f = torch.randn(2, 3, 4), nn.Linear(4, 4)

    def make(kind):
        residual = kind(lambda: norm(4), 0.0)
        for parameter in residual.parameters():
            nn.init.normal_(parameter)
        return residual

    post, pre, sandwich = make(PostNorm), make(PreNorm), make(SandwichNorm)
    assert max_difference(post(x, f), post.norm(x + f(x))) < 1e-10
    assert max_difference(pre(x, f), x + f(pre.norm(x))) < 1e-10
    assert max_difference(sandwich(x, f), x + sandwich.norm_after(f(sandwich.norm(x)))) < 1e-10
    assert [kind.has_normed_output for kind in (PostNorm, PreNorm, SandwichNorm)] == [True, False, False]


def test_dropout_is_on_the_branch_and_not_on_the_residual_stream():
    torch.manual_seed(0)
    for kind in (PreNorm, SandwichNorm):
        residual = kind(lambda: LayerNorm(4), 0.999999).train()
        x = torch.randn(2, 3, 4)
        assert torch.equal(residual(x, lambda y: 5 + y), x)


@pytest.mark.parametrize("placement", ["post", "pre", "sandwich"])
def test_the_output_of_a_stack_is_normed_for_every_placement(placement):
    model = tiny_model(norm_placement=placement)
    assert isinstance(model.encoder.norm, nn.Identity) == (placement == "post")


def test_the_token_mask_of_new_positions_only():
    is_token = torch.tensor([[True, True, False, True]])
    mask = Mask(range(2, 4), range(4), (Causal(),), is_token)
    assert token_mask(torch.zeros(1, 2, 3), mask).tolist() == [[False, True]]
    assert token_mask(torch.zeros(1, 2, 3), Mask(range(2), range(2))) is None
    assert token_mask(torch.zeros(1, 2, 3), None) is None


@pytest.mark.parametrize("block", ["sequential", "parallel"])
def test_cross_attention_without_a_memory_is_refused(block):
    """If it used x instead, without a mask, it would attend to the future."""
    model = tiny_model(family="decoder", encoder_layers=6, cross_attention=True, block=block)
    with pytest.raises(CutawayError, match="memory"):
        model(random_ids(1, 5))
