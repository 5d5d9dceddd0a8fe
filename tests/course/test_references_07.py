"""The references of exercise 7 against uncached functions, torch.nn and the library's own cache."""

import numpy as np
import pytest
import torch
from torch import nn

from cutaway.course.exercises import cache as exercise_7
from cutaway.course.exercises.multi_head_attention import multi_head_attention
from cutaway.course.exercises.positional_encoding import embed
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.cache import KVCache
from cutaway.nn.kernels import attend_exact
from cutaway.nn.masks import causal_mask

B, S, T, D, F_, V, H = 3, 5, 6, 8, 7, 9, 2
E = D // H
RNG = np.random.default_rng(7)
CHUNKS = [(6,), (1, 1, 1, 1, 1, 1), (3, 1, 2), (2, 4), (5, 1)]


def random(*shape):
    return RNG.normal(size=shape)


def tensor(array):
    return torch.from_numpy(np.asarray(array, np.float64))


def random_attention():
    return {name: random(D, D) / 2 for name in ("query", "key", "value", "output")}


def random_layer():
    layer = {f"norm_{i}": {"gain": random(D), "bias": random(D)} for i in (1, 2, 3)}
    layer |= {"feed_forward": {"w1": random(D, F_), "b1": random(F_), "w2": random(F_, D), "b2": random(D)}}
    return layer | {"self_attention": random_attention(), "cross_attention": random_attention()}


def library_attention(weights):
    module = MultiHeadAttention(D, H, kernel=attend_exact, bias=False).double()
    module.load_state_dict({f"{name}.weight": tensor(matrix.T) for name, matrix in weights.items()})
    return module


def torch_layer(weights):
    layer = nn.TransformerDecoderLayer(D, H, F_, dropout=0.0, batch_first=True, dtype=torch.float64)
    state = {}
    for mine, theirs in (("self_attention", "self_attn"), ("cross_attention", "multihead_attn")):
        projections = [weights[mine][name].T for name in ("query", "key", "value")]
        state |= {f"{theirs}.in_proj_weight": np.concatenate(projections), f"{theirs}.in_proj_bias": np.zeros(3 * D)}
        state |= {f"{theirs}.out_proj.weight": weights[mine]["output"].T, f"{theirs}.out_proj.bias": np.zeros(D)}
    for i in (1, 2):
        state |= {f"linear{i}.weight": weights["feed_forward"][f"w{i}"].T}
        state |= {f"linear{i}.bias": weights["feed_forward"][f"b{i}"]}
    for i in (1, 2, 3):
        state |= {f"norm{i}.weight": weights[f"norm_{i}"]["gain"], f"norm{i}.bias": weights[f"norm_{i}"]["bias"]}
    layer.load_state_dict({name: tensor(value) for name, value in state.items()})
    return layer


def in_chunks(x, sizes):
    return np.split(x, np.cumsum(sizes)[:-1], axis=1)


def empty_cache():
    return exercise_7.empty_cache(B, H, E)


def test_append_and_reorder_agree_with_the_library():
    library, mine, rows = KVCache(1), empty_cache(), [2, 0, 2, 1]
    theirs = library.layers[0].self_attention
    for n in (2, 1, 3):
        k, v = random(B, H, n, E), random(B, H, n, E)
        keys, values = theirs.append(tensor(k), tensor(v))
        library.advance(n)
        mine = exercise_7.append(mine, k, v)
        np.testing.assert_array_equal(mine["k"], keys)
        np.testing.assert_array_equal(mine["v"], values)
    library.reorder(torch.tensor(rows))
    for mine_array, buffer in zip(exercise_7.reorder(mine, rows).values(), theirs.stored, strict=True):
        np.testing.assert_array_equal(mine_array, buffer[:, :, : library.length])


@pytest.mark.parametrize("start", [0, 1, 4, 50])
def test_embed_at_is_a_part_of_the_embedded_text(start):
    ids, table = RNG.integers(0, V, size=(B, start + 3)), random(V, D)
    mine = exercise_7.embed_at(ids[:, start:], table, start)
    np.testing.assert_allclose(mine, embed(ids, table)[:, start:], atol=1e-9)


@pytest.mark.parametrize("sizes", CHUNKS)
def test_cached_attention_agrees_with_the_library_and_without_cache(sizes):
    x, weights = random(B, T, D), random_attention()
    whole = multi_head_attention(x, x, weights, H, np.tri(T, dtype=bool))
    module, library, cache, start = library_attention(weights), KVCache(1), empty_cache(), 0
    for part in in_chunks(x, sizes):
        before, end = {name: array.copy() for name, array in cache.items()}, start + part.shape[1]
        given = cache
        output, cache = exercise_7.cached_attention(part, cache, weights, H)
        with torch.no_grad():
            mask = causal_mask(end)[start:]
            theirs = module(tensor(part), mask=mask, cache=library.layers[0].self_attention)
        library.advance(part.shape[1])
        np.testing.assert_allclose(output, theirs, atol=1e-9)
        np.testing.assert_allclose(output, whole[:, start:end], atol=1e-9)
        np.testing.assert_allclose(cache["k"], library.layers[0].self_attention.stored[0][:, :, :end], atol=1e-9)
        np.testing.assert_allclose(cache["v"], library.layers[0].self_attention.stored[1][:, :, :end], atol=1e-9)
        for name in before:
            np.testing.assert_array_equal(given[name], before[name])
        start = end


@pytest.mark.parametrize("masked", [False, True])
def test_the_memory_cache_agrees_with_torch(masked):
    x, memory, weights = random(B, T, D), random(B, S, D), random_attention()
    padding = np.arange(S) >= np.array([5, 3, 1])[:, None]
    mask = ~padding[:, None, None] if masked else None
    module = torch_layer(random_layer() | {"cross_attention": weights}).multihead_attn
    with torch.no_grad():
        theirs = module(
            tensor(x), tensor(memory), tensor(memory), key_padding_mask=torch.from_numpy(padding) if masked else None
        )[0]
    cache = exercise_7.memory_cache(memory, weights, H)
    assert cache["k"].shape == cache["v"].shape == (B, H, S, E)
    np.testing.assert_allclose(exercise_7.attend_memory(x, cache, weights, H, mask), theirs, atol=1e-9)


@pytest.mark.parametrize("sizes", CHUNKS)
def test_the_decoder_block_agrees_with_torch(sizes):
    x, memory, weights = random(B, T, D), random(B, S, D), random_layer()
    padding = np.arange(S) >= np.array([5, 3, 1])[:, None]
    with torch.no_grad():
        theirs = torch_layer(weights)(
            tensor(x),
            tensor(memory),
            tgt_mask=torch.from_numpy(~np.tri(T, dtype=bool)),
            memory_key_padding_mask=torch.from_numpy(padding),
        )
    cache, outputs = empty_cache(), []
    memory_keys = exercise_7.memory_cache(memory, weights["cross_attention"], H)
    for part in in_chunks(x, sizes):
        output, cache = exercise_7.decoder_block_step(part, cache, memory_keys, weights, H, ~padding[:, None, None])
        outputs.append(output)
    assert cache["k"].shape == (B, H, T, E)
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), theirs, atol=1e-9)


@pytest.mark.parametrize("part", exercise_7.EXERCISE.parts, ids=lambda part: part.name)
def test_all_properties_hold_for_the_reference(part):
    for each in part.properties:
        assert each.check(*(part.reference(*case.arguments) for case in each.cases)) is None, each.name


@pytest.mark.parametrize("part", exercise_7.EXERCISE.parts, ids=lambda part: part.name)
def test_mistakes_differ_by_far_more_than_rounding(part):
    right = [part.reference(*case.arguments) for case in part.cases]
    for mistake in part.mistakes:
        for switch in mistake.switches:
            with np.errstate(all="ignore"):
                assert largest_difference(part, right, frozenset({switch})) > 1e-2, switch


def largest_difference(part, right, wrong):
    sizes = []
    for case, answer in zip(part.cases, right, strict=True):
        try:
            sizes.append(difference(part.reference(*case.arguments, wrong=wrong), answer))
        except (ValueError, IndexError, TypeError):
            continue
    return max(sizes)


def difference(given, right):
    """The largest difference of two numbers; infinity for another type or shape."""
    if type(given) is not type(right):
        return np.inf
    if isinstance(right, dict):
        return max(difference(given[name], right[name]) for name in right)
    if isinstance(right, tuple):
        return max(difference(a, b) for a, b in zip(given, right, strict=True))
    if given.shape != right.shape:
        return np.inf
    return np.nan_to_num(np.abs(given - right), nan=np.inf).max(initial=0.0)
