"""The encoder's and the decoder's stack against torch.nn.TransformerEncoder/Decoder, on the same weights."""

import pytest
import torch
from helpers import max_difference, tiny_model
from torch import nn

from cutaway.nn.masks import causal_mask, padding_mask


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
    if hasattr(ours, "cross_attention"):
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
    causal = causal_mask(torch.arange(5), torch.arange(5))

    memory = model.encoder(x, padding_mask(is_token))
    expected = encoder(x, src_key_padding_mask=~is_token)  # torch: True = may not attend
    assert max_difference(memory[is_token], expected[is_token]) < 1e-10

    out = model.decoder(y, memory, causal, padding_mask(is_token))
    expected = decoder(y, memory, tgt_mask=~causal, memory_key_padding_mask=~is_token)
    assert max_difference(out, expected) < 1e-10

    # and the way back: gradients at the inputs
    for ours, theirs, inputs in ((model.encoder, encoder, (x,)), (model.decoder, decoder, (y, memory.detach()))):
        gradients = []
        for stack in (ours, theirs):
            leaf = inputs[0].clone().requires_grad_()
            stack(leaf, *inputs[1:]).pow(2).sum().backward()
            gradients.append(leaf.grad)
        assert max_difference(*gradients) < 1e-9


def test_layers_are_independent():
    """N layers with weights of their own, never one layer N times."""
    model = tiny_model()
    for stack in (model.encoder, model.decoder):
        seen = [id(p) for layer in stack.layers for p in layer.parameters()]
        assert len(seen) == len(set(seen))
        first, second = (layer.self_attention.query.weight for layer in stack.layers)
        assert not torch.equal(first, second)
