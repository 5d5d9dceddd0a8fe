"""The references of exercise 9 against autograd in double precision and against finite differences."""

import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cutaway.course.differences import is_same
from cutaway.course.exercises import backpropagation as exercise_9
from cutaway.course.exercises import encoder_block as exercise_4
from cutaway.course.exercises import full_transformer as exercise_5
from cutaway.course.exercises.multi_head_attention import multi_head_attention
from cutaway.course.exercises.positional_encoding import embed, sinusoidal
from cutaway.course.exercises.scaled_dot_product import attention, softmax
from cutaway.course.values import as_tensors, map_arrays, pack, unpack
from cutaway.system.resources import shipped_folder

EPS = 1e-5


def tensors(value):
    """Convert arrays to tensors in double precision that record their derivatives."""

    def tensor(array):
        made = torch.from_numpy(np.array(array))
        return made.requires_grad_() if made.is_floating_point() else made

    return map_arrays(value, tensor)


def torch_softmax(scores):
    return scores.softmax(-1)


def torch_attention(q, k, v, mask=None):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def torch_heads(x, memory, weights, n_heads, mask=None):
    def split(y):
        return y.unflatten(-1, (n_heads, -1)).transpose(-2, -3)

    q, k, v = split(x @ weights["query"]), split(memory @ weights["key"]), split(memory @ weights["value"])
    return torch_attention(q, k, v, mask).transpose(1, 2).flatten(-2) @ weights["output"]


def torch_feed_forward(x, weights):
    return F.relu(x @ weights["w1"] + weights["b1"]) @ weights["w2"] + weights["b2"]


def torch_norm(x, gain, bias, eps=EPS):
    return F.layer_norm(x, gain.shape, gain, bias, eps)


def torch_encoder_block(x, weights, n_heads, mask=None):
    h = torch_norm(x + torch_heads(x, x, weights["attention"], n_heads, mask), **weights["norm_1"])
    return torch_norm(h + torch_feed_forward(h, weights["feed_forward"]), **weights["norm_2"])


def torch_decoder_block(x, memory, weights, n_heads, mask, memory_mask):
    a = torch_norm(x + torch_heads(x, x, weights["self_attention"], n_heads, mask), **weights["norm_1"])
    b = torch_heads(a, memory, weights["cross_attention"], n_heads, memory_mask)
    b = torch_norm(a + b, **weights["norm_2"])
    return torch_norm(b + torch_feed_forward(b, weights["feed_forward"]), **weights["norm_3"])


def torch_embed(ids, table):
    positions = torch.from_numpy(sinusoidal(ids.shape[1], table.shape[1]))
    return F.embedding(ids, table) * math.sqrt(table.shape[1]) + positions


def torch_cross_entropy(logits, target, pad):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=pad)


# part -> (forward of torch, forward of the course, names of the inputs: the results are their derivatives)
FORWARDS = {
    "relu_backward": (F.relu, lambda x: np.maximum(x, 0), ["x"]),
    "linear_backward": (lambda x, w, b: x @ w + b, lambda x, w, b: x @ w + b, ["x", "w", "b"]),
    "softmax_backward": (torch_softmax, softmax, ["scores"]),
    "cross_entropy_backward": (torch_cross_entropy, exercise_5.cross_entropy, ["logits"]),
    "layer_norm_backward": (torch_norm, exercise_4.layer_norm, ["x", "gain", "bias"]),
    "feed_forward_backward": (torch_feed_forward, exercise_4.feed_forward, ["x", "weights"]),
    "attention_backward": (torch_attention, lambda *given: attention(*given)[0], ["q", "k", "v"]),
    "multi_head_attention_backward": (torch_heads, multi_head_attention, ["x", "memory", "weights"]),
    "encoder_block_backward": (torch_encoder_block, exercise_4.encoder_block, ["x", "weights"]),
    "embed_backward": (torch_embed, embed, ["table"]),
    "decoder_block_backward": (torch_decoder_block, exercise_5.decoder_block, ["x", "memory", "weights"]),
}
CASES = [
    pytest.param(part, case, id=f"{part.name}-{case.description}")
    for part in exercise_9.EXERCISE.parts
    for case in part.cases
]


def forward_arguments(part, case):
    """Return d_output and the arguments of the forward, by name."""
    values = dict(zip(part.arguments, case.arguments, strict=True))
    d_output = values.pop("d_output", np.ones(()))
    if part.name == "linear_backward":
        values["b"] = np.zeros(values["w"].shape[1])
    if part.name == "softmax_backward":
        values = {"scores": np.log(np.maximum(values["weights"], 1e-300))}
    if part.name == "layer_norm_backward":
        values = {name: values.get(name, np.zeros(values["x"].shape[-1])) for name in ("x", "gain", "bias", "eps")}
    return d_output, values


def derivatives(value):
    if isinstance(value, dict):
        return {key: derivatives(inner) for key, inner in value.items()}
    return value.grad.numpy()


@pytest.mark.parametrize(("part", "case"), CASES)
def test_the_reference_agrees_with_autograd(part, case):
    forward, _, names = FORWARDS[part.name]
    d_output, values = forward_arguments(part, case)
    values = tensors(values)
    output = forward(*values.values())
    output.backward(torch.from_numpy(d_output).expand_as(output).double())
    right = tuple(derivatives(values[name]) for name in names)
    given = part.reference(*case.arguments)
    assert_close(given if len(names) > 1 else (given,), right)


def assert_close(given, right):
    if isinstance(right, dict):
        assert given.keys() == right.keys()
        given, right = list(given.values()), [right[key] for key in given]
    if isinstance(right, (list, tuple)):
        assert len(given) == len(right)
        for a, b in zip(given, right, strict=True):
            assert_close(a, b)
    else:
        assert given.shape == right.shape
        np.testing.assert_allclose(given, right, atol=1e-9)


@pytest.mark.parametrize(("part", "case"), CASES)
def test_the_reference_agrees_with_finite_differences_along_one_direction(part, case):
    _, forward, names = FORWARDS[part.name]
    d_output, values = forward_arguments(part, case)
    rng = np.random.default_rng(0)
    directions = {name: map_arrays(values[name], lambda array: rng.normal(size=array.shape)) for name in names}

    def loss(step):
        moved = {name: add(values[name], directions[name], step) if name in names else values[name] for name in values}
        return float((d_output * forward(*moved.values())).sum())

    given = part.reference(*case.arguments)
    pairs = zip(given if len(names) > 1 else (given,), directions.values(), strict=True)
    expected = sum(inner_product(d, direction) for d, direction in pairs)
    assert (loss(1e-5) - loss(-1e-5)) / 2e-5 == pytest.approx(expected, rel=1e-4, abs=1e-4)


def add(value, direction, step):
    if isinstance(value, dict):
        return {key: add(value[key], direction[key], step) for key in value}
    return value + step * direction


def inner_product(a, b):
    return sum(inner_product(a[key], b[key]) for key in b) if isinstance(b, dict) else float((a * b).sum())


@pytest.mark.parametrize(("part", "case"), CASES)
def test_no_case_is_near_the_kink_of_relu(part, case):
    """There the derivative is a matter of taste, and single precision may decide otherwise."""
    values = dict(zip(part.arguments, case.arguments, strict=True))
    hidden = []
    if part.name == "relu_backward":
        hidden = [values["x"]]
    elif part.name == "feed_forward_backward":
        hidden = [values["x"] @ values["weights"]["w1"] + values["weights"]["b1"]]
    elif part.name.endswith("block_backward"):
        inner = []
        exercise_9.sub_layers_backward, kept = record_inputs(inner), exercise_9.sub_layers_backward
        try:
            part.reference(*case.arguments)
        finally:
            exercise_9.sub_layers_backward = kept
        hidden = [inner[0] @ values["weights"]["feed_forward"]["w1"] + values["weights"]["feed_forward"]["b1"]]
    assert all(np.abs(array).min() > 0.01 for array in hidden)


def record_inputs(inner):
    """Return a function like sub_layers_backward that also records the input of the last sub-layer."""
    original = exercise_9.sub_layers_backward

    def function(d_output, x, sub_layers, backwards, norms, wrong):
        def last(y):
            inner.append(y)
            return sub_layers[-1](y)

        return original(d_output, x, (*sub_layers[:-1], last), backwards, norms, wrong)

    return function


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_helper_of_the_stub_computes_derivatives():
    stub = load(shipped_folder("exercises") / exercise_9.EXERCISE.file)
    d_output, x, gain, eps = exercise_9.NORM_CASES[1].arguments
    right = exercise_9.layer_norm_backward(d_output, x, gain, eps)[0]
    given = stub.numerical_gradient(lambda x: (d_output * exercise_4.layer_norm(x, gain, 0, eps)).sum(), x)
    np.testing.assert_allclose(given, right, atol=1e-4)
    d_output, x, gain = as_tensors([d_output, x, gain])
    given = stub.numerical_gradient(
        lambda x: (d_output * F.layer_norm(x, gain.shape, gain, None, eps)).sum(), x, step=1e-2
    )
    np.testing.assert_allclose(given, right, atol=2e-3)


@pytest.mark.parametrize("part", exercise_9.EXERCISE.parts, ids=lambda part: part.name)
def test_the_reference_has_all_properties(part):
    for each in part.properties:
        assert each.check(*(part.reference(*case.arguments) for case in each.cases)) is None, each.name


@pytest.mark.parametrize("part", exercise_9.EXERCISE.parts, ids=lambda part: part.name)
def test_mistakes_violate_a_property(part):
    """Most mistakes that do not change shapes violate one, and what it says has numbers."""
    violations = []
    for switch in (switch for mistake in part.mistakes for switch in mistake.switches):
        said = ""
        for each in part.properties:
            with np.errstate(all="ignore"):
                try:
                    results = [part.reference(*case.arguments, wrong=frozenset({switch})) for case in each.cases]
                    said = said or each.check(*results) or ""
                except (ValueError, TypeError, IndexError):
                    pass
        violations.append(said)
    assert all(any(letter.isdigit() for letter in said) for said in violations if said)
    assert sum(map(bool, violations)) >= 0.5 * len(violations), violations


def test_autograd_is_a_right_answer():
    module = load(Path(__file__).parent / "answers" / "exercise_09_autograd.py")
    for part in exercise_9.EXERCISE.parts:
        for case in part.cases:
            given = unpack(pack(getattr(module, part.name)(*as_tensors(unpack(pack(case.arguments))))))
            assert is_same(given, part.reference(*case.arguments)), (part.name, case.description)


@pytest.mark.parametrize("part", exercise_9.EXERCISE.parts, ids=lambda part: part.name)
def test_mistakes_differ_by_far_more_than_rounding(part):
    right = [part.reference(*case.arguments) for case in part.cases]
    for mistake in part.mistakes:
        for switch in mistake.switches:
            assert max(differences(part, right, frozenset({switch}))) > 5e-3, switch


def differences(part, right, wrong):
    """Yield for each case the largest difference, relative to the largest number of its array."""
    for case, answer in zip(part.cases, right, strict=True):
        with np.errstate(all="ignore"):
            try:
                yield largest_difference(part.reference(*case.arguments, wrong=wrong), answer)
            except ValueError:
                yield 0.0


def largest_difference(given, right):
    if isinstance(right, dict):
        given, right = list(given.values()), [right[key] for key in given]
    if isinstance(right, (list, tuple)):
        return max(largest_difference(a, b) for a, b in zip(given, right, strict=True))
    if np.shape(given) != np.shape(right):
        return math.inf
    scale = max(1e-2, float(np.abs(right).max()))
    return float(np.nan_to_num(np.abs(given - right), nan=np.inf).max()) / scale
