"""The references of exercises 4 and 5 against torch.nn and against Cutaway's modules."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from cutaway import ModelConfig, build_model
from cutaway.course.exercises import encoder_block as exercise_4
from cutaway.course.exercises import full_transformer as exercise_5
from cutaway.nn.masks import causal_mask
from cutaway.train.schedules import noam

B, S, T, D, F_, V, H, PAD = 3, 5, 4, 6, 7, 9, 2, 8
RNG = np.random.default_rng(0)


def random(*shape):
    return RNG.normal(size=shape)


def tensor(array):
    return torch.from_numpy(np.asarray(array, np.float64))


def random_attention():
    return {name: random(D, D) / 2 for name in ("query", "key", "value", "output")}


def random_norm():
    return {"gain": random(D), "bias": random(D)}


def random_feed_forward():
    return {"w1": random(D, F_), "b1": random(F_), "w2": random(F_, D), "b2": random(D)}


def random_encoder_layer():
    parts = {"attention": random_attention(), "norm_1": random_norm()}
    return parts | {"feed_forward": random_feed_forward(), "norm_2": random_norm()}


def random_decoder_layer():
    parts = {"self_attention": random_attention(), "norm_1": random_norm(), "cross_attention": random_attention()}
    return parts | {"norm_2": random_norm(), "feed_forward": random_feed_forward(), "norm_3": random_norm()}


def torch_attention(weights, name):
    return {
        f"{name}.in_proj_weight": tensor(np.concatenate([weights[n].T for n in ("query", "key", "value")])),
        f"{name}.in_proj_bias": torch.zeros(3 * D),
        f"{name}.out_proj.weight": tensor(weights["output"].T),
        f"{name}.out_proj.bias": torch.zeros(D),
    }


def torch_rest(weights, n_norms):
    state = {}
    for i, (w, b) in enumerate((("w1", "b1"), ("w2", "b2")), start=1):
        state |= {f"linear{i}.weight": tensor(weights["feed_forward"][w].T)}
        state |= {f"linear{i}.bias": tensor(weights["feed_forward"][b])}
    for i in range(1, n_norms + 1):
        state |= {f"norm{i}.weight": tensor(weights[f"norm_{i}"]["gain"])}
        state |= {f"norm{i}.bias": tensor(weights[f"norm_{i}"]["bias"])}
    return state


def torch_encoder_layer(weights):
    layer = nn.TransformerEncoderLayer(D, H, F_, dropout=0.0, batch_first=True, dtype=torch.float64)
    layer.load_state_dict(torch_attention(weights["attention"], "self_attn") | torch_rest(weights, 2))
    return layer


def torch_decoder_layer(weights):
    layer = nn.TransformerDecoderLayer(D, H, F_, dropout=0.0, batch_first=True, dtype=torch.float64)
    attentions = torch_attention(weights["self_attention"], "self_attn")
    attentions |= torch_attention(weights["cross_attention"], "multihead_attn")
    layer.load_state_dict(attentions | torch_rest(weights, 3))
    return layer


def some_ids(length):
    """Return random ids. All texts except the first end with padding."""
    ids = RNG.integers(0, PAD, size=(B, length))
    for row in range(1, B):
        ids[row, length - row :] = PAD
    return ids


def test_layer_norm_agrees_with_torch():
    x, gain, bias = random(B, T, D), random(D), random(D)
    theirs = F.layer_norm(tensor(x), (D,), tensor(gain), tensor(bias), eps=0.1)
    np.testing.assert_allclose(exercise_4.layer_norm(x, gain, bias, 0.1), theirs)


def test_center_and_relu_agree_with_torch():
    x, unit = random(B, T, D), torch.ones(D, dtype=torch.float64)
    deviation = x.std(axis=-1, keepdims=True)
    theirs = F.layer_norm(tensor(x), (D,), unit, eps=0.0)
    np.testing.assert_allclose(exercise_4.center(x) / deviation, theirs)
    np.testing.assert_array_equal(exercise_4.relu(x), F.relu(tensor(x)))


def test_feed_forward_agrees_with_torch():
    x, w = random(B, T, D), random_feed_forward()
    hidden = F.linear(tensor(x), tensor(w["w1"].T), tensor(w["b1"])).relu()
    theirs = F.linear(hidden, tensor(w["w2"].T), tensor(w["b2"]))
    np.testing.assert_allclose(exercise_4.feed_forward(x, w), theirs)


@pytest.mark.parametrize("masked", [False, True])
def test_the_encoder_agrees_with_torch(masked):
    x, layers = random(B, T, D), [random_encoder_layer() for _ in range(3)]
    mask = exercise_5.padding_mask(some_ids(T), PAD) if masked else None
    y = tensor(x)
    for weights in layers:
        y = torch_encoder_layer(weights)(y, src_key_padding_mask=torch.from_numpy(~mask[:, 0, 0]) if masked else None)
    np.testing.assert_allclose(exercise_4.encoder(x, layers, H, mask), y.detach(), atol=1e-9)


def test_an_encoder_block_with_a_causal_mask_agrees_with_torch():
    x, weights, mask = random(B, T, D), random_encoder_layer(), np.tri(T, dtype=bool)
    theirs = torch_encoder_layer(weights)(tensor(x), src_mask=torch.from_numpy(~mask))
    np.testing.assert_allclose(exercise_4.encoder_block(x, weights, H, mask), theirs.detach(), atol=1e-9)


def test_the_decoder_block_agrees_with_torch():
    x, memory, weights, source = random(B, T, D), random(B, S, D), random_decoder_layer(), some_ids(S)
    mask = np.tri(T, dtype=bool)
    mine = exercise_5.decoder_block(x, memory, weights, H, mask, exercise_5.padding_mask(source, PAD))
    theirs = torch_decoder_layer(weights)(
        tensor(x),
        tensor(memory),
        tgt_mask=torch.from_numpy(~mask),
        memory_key_padding_mask=torch.from_numpy(source == PAD),
    )
    np.testing.assert_allclose(mine, theirs.detach(), atol=1e-9)


def test_the_decoder_agrees_with_torch():
    x, memory, layers, source = (
        random(B, T, D),
        random(B, S, D),
        [random_decoder_layer() for _ in range(3)],
        some_ids(S),
    )
    mask = np.tri(T, dtype=bool)
    y = tensor(x)
    for weights in layers:
        layer = torch_decoder_layer(weights)
        hidden = {"tgt_mask": torch.from_numpy(~mask), "memory_key_padding_mask": torch.from_numpy(source == PAD)}
        y = layer(y, tensor(memory), **hidden)
    mine = exercise_5.decoder(x, memory, layers, H, mask, exercise_5.padding_mask(source, PAD))
    np.testing.assert_allclose(mine, y.detach(), atol=1e-9)


def test_token_logits_agree_with_torch():
    x, table = random(B, T, D), random(V, D)
    np.testing.assert_allclose(exercise_5.token_logits(x, table), F.linear(tensor(x), tensor(table)))


def library_state(model, weights):
    """Return the exercise's weights as a state dict of the library; attention biases are zero."""
    state = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    for name in ("source_embedding.tokens", "target_embedding.tokens", "head"):
        state[f"{name}.weight"] = tensor(weights["embedding"])
    names = {"attention": "self_attention", "self_attention": "self_attention", "cross_attention": "cross_attention"}
    for side in ("encoder", "decoder"):
        for i, layer in enumerate(weights[side]):
            place = f"{side}.layers.{i}"
            sub_layers = [names[part] for part in layer if part in names] + ["feed_forward"]
            for part in set(layer) & set(names):
                for matrix, value in layer[part].items():
                    state[f"{place}.{names[part]}.{matrix}.weight"] = tensor(value.T)
            for linear, (w, b) in {"expand": ("w1", "b1"), "contract": ("w2", "b2")}.items():
                state[f"{place}.feed_forward.{linear}.weight"] = tensor(layer["feed_forward"][w].T)
                state[f"{place}.feed_forward.{linear}.bias"] = tensor(layer["feed_forward"][b])
            for n, part in enumerate(sub_layers, start=1):
                state[f"{place}.{part}_residual.norm.weight"] = tensor(layer[f"norm_{n}"]["gain"])
                state[f"{place}.{part}_residual.norm.bias"] = tensor(layer[f"norm_{n}"]["bias"])
    return state


def test_the_transformer_agrees_with_the_library():
    shape = {"vocab_size": V, "d_model": D, "d_ff": F_, "n_heads": H, "encoder_layers": 2, "decoder_layers": 2}
    model = build_model(ModelConfig(**shape)).eval().double()
    encoder, decoder = [random_encoder_layer() for _ in range(2)], [random_decoder_layer() for _ in range(2)]
    weights = {"embedding": random(V, D), "encoder": encoder, "decoder": decoder}
    model.load_state_dict(library_state(model, weights))
    source, target_in = some_ids(S), some_ids(T)
    real, target_real = torch.from_numpy(source != PAD), torch.from_numpy(target_in != PAD)
    with torch.no_grad():
        theirs = model(torch.from_numpy(source), torch.from_numpy(target_in), real, target_real)
    mine = exercise_5.transformer(source, target_in, weights, H, PAD)
    np.testing.assert_allclose(mine[target_in != PAD], theirs[target_real], atol=1e-5)


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)], ids=["at the end", "in front"])
def test_the_masks_hide_padding_and_the_future(order):
    ids = some_ids(T)[:, order]
    real = exercise_5.padding_mask(ids, PAD)
    assert real.shape == (B, 1, 1, T)
    np.testing.assert_array_equal(real[:, 0, 0], ids != PAD)
    both = exercise_5.decoder_mask(ids, PAD)
    assert both.shape == (B, 1, T, T)
    np.testing.assert_array_equal(both, causal_mask(T).numpy() & real)


def test_shift_right_inserts_the_start_token():
    target = some_ids(T)
    shifted = exercise_5.shift_right(target, 42)
    np.testing.assert_array_equal(shifted[:, 0], 42)
    np.testing.assert_array_equal(shifted[:, 1:], target[:, :-1])


@pytest.mark.parametrize(("above", "spread"), [(0, 1), (1000, 1), (0, 1000)])
def test_the_loss_agrees_with_torch(above, spread):
    logits, target = spread * random(B, T, V) + above, some_ids(T)
    theirs = F.cross_entropy(tensor(logits).flatten(0, 1), torch.from_numpy(target).flatten(), ignore_index=PAD)
    assert exercise_5.cross_entropy(logits, target, PAD) == pytest.approx(theirs.item())
    for_each = F.cross_entropy(tensor(logits).flatten(0, 1), torch.from_numpy(target).flatten(), reduction="none")
    losses = exercise_5.token_losses(logits, target)
    np.testing.assert_allclose(losses.ravel(), for_each)
    assert losses[exercise_5.real_tokens(target, PAD)].mean() == pytest.approx(theirs.item())


def test_the_learning_rate_agrees_with_the_library():
    for step in (1, 10, 3_999, 4_000, 4_001, 100_000):
        assert exercise_5.learning_rate(step, 512, 4_000) == pytest.approx(noam(1.0, 512, 4_000)(step))


@pytest.mark.parametrize("exercise", [exercise_4.EXERCISE, exercise_5.EXERCISE])
def test_mistakes_differ_by_far_more_than_rounding(exercise):
    for part in exercise.parts:
        right = [part.reference(*case.arguments) for case in part.cases]
        for mistake in part.mistakes:
            for switch in mistake.switches:
                with np.errstate(all="ignore"):
                    assert difference(part, right, frozenset({switch})) > 1e-2, (part.name, switch)


def difference(part, right, wrong):
    sizes = []
    for case, answer in zip(part.cases, right, strict=True):
        try:
            given = np.asarray(part.reference(*case.arguments, wrong=wrong), np.float64)
        except ValueError:
            continue
        same_shape = given.shape == np.shape(answer)
        sizes.append(np.nan_to_num(np.abs(given - answer), nan=np.inf).max() if same_shape else np.inf)
    return max(sizes)
