"""Operations and positions of the NumPy twin: values equal PyTorch's, gradients equal finite differences."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cutaway.nn import learned_positions, relative_positions, rotary
from cutaway.nn import positions as torch_positions
from cutaway.twin import ops, positions

TORCH_SCHEMES = {**vars(torch_positions), **vars(learned_positions), **vars(relative_positions), **vars(rotary)}
some = np.random.default_rng(0).standard_normal


class Case(NamedTuple):
    twin: Callable[..., Any]  # inputs -> output, backward
    torch: Callable[..., Any]  # the same inputs as tensors -> the expected output
    inputs: tuple[np.ndarray, ...]  # in the order of the gradients


def case(twin, other, *inputs):
    return Case(twin, other, inputs)


# --- attention, written out in torch -------------------------------------------------------------------------------

B, H, Q, K, E = 2, 3, 3, 4, 2
q, k, v, bias = some((B, H, Q, E)), some((B, H, K, E)), some((B, H, K, E)), some((B, H, Q, K))
no_bias = np.zeros((B, H, Q, K))  # its gradient is the gradient of the scores
q6, bias6 = some((B, 2 * H, Q, E)), some((B, 2 * H, Q, K))
k2, v2 = some((B, 2, K, E)), some((B, 2, K, E))  # 6 / 2: three heads share one

MASK = np.array([[[[1, 0, 0, 1], [1, 1, 1, 1], [0, 1, 1, 0]]], [[[0, 0, 0, 0], [0, 0, 1, 0], [1, 1, 0, 1]]]]) > 0
FAR = some((K, E))  # relative values: one vector for each key, the same for all queries
PROBE_FACTORS = {"scores": 1.5, "weights": 0.75}


def drop(x):
    return ops.dropout(x, 0.4, np.random.default_rng(5))


def relative(weights):
    far = FAR.astype(weights.dtype)
    return weights @ far, lambda dy: dy @ far.T


def probe(name, x):
    return x * PROBE_FACTORS[name], lambda dy: dy * PROBE_FACTORS[name]


def twin_attention(**options):
    """Pass no bias if it is all zeros. The returned gradient must still be the gradient of that bias."""
    return lambda q, k, v, b: ops.attention(q, k, v, bias=b if b.any() else None, **options)


def repeat_heads(x, like):
    """Repeat keys or values for each query head that shares them."""
    return x.repeat_interleave(like.shape[1] // x.shape[1], dim=1)


def scaled_products(q, k):
    return torch.einsum("bhqe,bhke->bhqk", q, repeat_heads(k, q)) / math.sqrt(E)


def weighted_sums(w, v):
    return torch.einsum("bhqk,bhke->bhqe", w, repeat_heads(v, w))


def torch_attention(mask=None, cap=0.0, drop=None, relative_values=None, probe=None):
    def attention(q, k, v, bias):
        scores = scaled_products(q, k)
        scores = (cap * torch.tanh(scores / cap) if cap else scores) + bias
        weights = torch_softmax(scores * (PROBE_FACTORS["scores"] if probe else 1), mask) * (
            PROBE_FACTORS["weights"] if probe else 1
        )
        weights = weights * torch.from_numpy(drop(np.ones(weights.shape))[0]) if drop else weights
        y = weighted_sums(weights, v)
        return y + torch.einsum("bhqk,ke->bhqe", weights, torch.from_numpy(FAR)) if relative_values else y

    return attention


def torch_softmax(x, mask=None):
    x = x if mask is None else x.masked_fill(~torch.from_numpy(mask), -math.inf)
    return x.softmax(-1).nan_to_num(0.0)


def attention(*inputs, **options):
    return case(twin_attention(**options), torch_attention(**options), *inputs)


def fused(q, k, v, bias):
    hidden = torch.zeros(MASK.shape).masked_fill(~torch.from_numpy(MASK), -math.inf)
    y = F.scaled_dot_product_attention(q, k, v, bias + hidden, enable_gqa=q.shape[1] != k.shape[1])
    return y.nan_to_num(0.0)


def one_bias_for_all_texts(q, k, v, bias_HQK):
    """`backward` returns the gradient of the scores. The gradient of a shared bias is its sum over the texts."""
    y, backward = ops.attention(q, k, v, bias=bias_HQK)
    return y, lambda dy: (*backward(dy)[:3], backward(dy)[3].sum(axis=0))


# --- positions -----------------------------------------------------------------------------------------------------

HERE = np.array([0, 1, 7, 2, 30])  # near and far, not in order
LATE, ALL = np.arange(3, 5), np.arange(5)  # the last queries of a text and all of its keys, as in cached decoding


def position_case(name, act, where, x, *tables, **settings):
    """A position scheme as a function of its input and of its parameters."""

    def twin(x, *tables):
        scheme = getattr(positions, name)(**settings)
        scheme.to(x.dtype)
        parameters = list(scheme.parameters().values())
        for parameter, table in zip(parameters, tables, strict=True):
            parameter.value = table
        y, back = getattr(scheme, act)(x, *where)

        def backward(dy):
            scheme.zero_gradients()
            return back(dy), *(0.0 if p.gradient is None else p.gradient for p in parameters)

        return broadcast_bias(act, x, y, where, np.broadcast_to), backward

    def other(x, *tables):
        scheme = TORCH_SCHEMES[name](**{"max_length": 40, **settings})
        for parameter, table in zip(scheme.parameters(), tables, strict=True):
            parameter.data = table
        y = getattr(scheme, act)(x, *map(torch.from_numpy, where))
        return broadcast_bias(act, x, y.detach(), where, torch.broadcast_to)

    return case(twin, other, x, *tables)


def broadcast_bias(act, x, y, where, broadcast_to):
    """Broadcast a bias to the shape of the scores, because its backward takes the gradient of the scores."""
    return broadcast_to(y, (*x.shape[:-1], len(where[1]))) if act == "bias" else y


# --- the table -------------------------------------------------------------------------------------------------------

IDS = np.array([[3, 0, 3], [1, 3, 0]])
TARGET = np.array([2, 0, 2, 4])
wide = 3 * some((4, 9))
allowed = np.array([[1, 1, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]]) > 0


def gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


def torch_dropout(x):
    """Dropout with the random numbers of NumPy's generator."""
    kept = torch.from_numpy(np.random.default_rng(5).random(tuple(x.shape)) >= 0.4)
    return torch.where(kept, x / 0.6, 0.0)


def loss(smoothing):
    def twin(logits):
        found, backward = ops.cross_entropy(logits, TARGET, smoothing)
        return np.asarray(found.smoothed, logits.dtype), lambda dy: float(dy) * backward()

    def other(logits):
        return F.cross_entropy(logits, torch.from_numpy(TARGET), label_smoothing=smoothing, reduction="sum")

    return case(twin, other, wide)


CASES = {
    "linear": case(ops.linear, F.linear, some((2, 3, 4)), some((5, 4)), some(5)),
    "linear of a single row": case(ops.linear, F.linear, some(4), some((5, 4)), some(5)),
    "linear without bias": case(
        lambda x, w: (ops.linear(x, w)[0], lambda dy: ops.linear(x, w)[1](dy)[:2]),
        F.linear,
        some((2, 3, 4)),
        some((5, 4)),
    ),
    "embedding": case(lambda w: ops.embedding(IDS, w), lambda w: F.embedding(torch.from_numpy(IDS), w), some((5, 2))),
    "layer_norm": case(
        lambda x, w, b: ops.layer_norm(x, w, b, 0.1),  # a large ε, so that a misplaced ε fails the test
        lambda x, w, b: F.layer_norm(x, (5,), w, b, 0.1),
        some((2, 3, 5)),
        some(5),
        some(5),
    ),
    "rms_norm": case(
        lambda x, w: ops.rms_norm(x, w, 0.1),
        lambda x, w: F.rms_norm(x, (5,), w, 0.1),
        some((2, 3, 5)) + 1,
        some(5),
    ),
    "dropout": case(drop, torch_dropout, wide),
    "relu": case(ops.relu, F.relu, wide),
    "relu_squared": case(ops.relu_squared, lambda x: F.relu(x) ** 2, wide),
    "gelu": case(ops.gelu, F.gelu, wide),
    "gelu_tanh": case(ops.gelu_tanh, gelu_tanh, wide),
    "silu": case(ops.silu, F.silu, wide),
    "soft_cap": case(lambda x: ops.soft_cap(x, 2.5), lambda x: 2.5 * torch.tanh(x / 2.5), wide),
    "softmax": case(ops.softmax, torch_softmax, wide),
    "softmax, masked": case(
        lambda x: ops.softmax(x, allowed), lambda x: torch_softmax(x, allowed), 2 * some((2, 3, 4))
    ),
    "similarity": case(ops.similarity, scaled_products, q, k),
    "similarity, shared": case(ops.similarity, scaled_products, q6, k2),
    "weighted_sum": case(ops.weighted_sum, weighted_sums, bias, v),
    "weighted_sum, shared": case(ops.weighted_sum, weighted_sums, bias6, v2),
    "attention": attention(q, k, v, no_bias),
    "attention, mask": attention(q, k, v, no_bias, mask=MASK),
    "attention, bias": attention(q, k, v, bias),
    "attention, one bias for all texts": case(one_bias_for_all_texts, torch_attention(), q, k, v, bias[0]),
    "attention, cap": attention(q, k, v, no_bias, cap=0.5),
    "attention, shared": attention(q6, k2, v2, np.zeros_like(bias6)),
    "attention, relative values": attention(q, k, v, no_bias, relative_values=relative),
    "attention, dropout": attention(q, k, v, no_bias, drop=drop),
    "attention, probe": attention(q, k, v, bias, probe=probe),
    "attention, all": attention(
        q6, k2, v2, bias6, mask=MASK, cap=0.5, relative_values=relative, drop=drop, probe=probe
    ),
    "attention, fused": case(twin_attention(mask=MASK), fused, q, k, v, bias),
    "attention, fused, shared": case(twin_attention(mask=MASK), fused, q6, k2, v2, bias6),
    "cross_entropy": loss(0.0),
    "cross_entropy, smoothed": loss(0.1),
    "sinusoidal": position_case("SinusoidalPosition", "embed", [HERE], some((2, 5, 6)), d_model=6, max_length=40),
    "learned": position_case(
        "LearnedPosition", "embed", [HERE], some((2, 5, 6)), some((31, 6)), d_model=6, max_length=31
    ),
    "rope": position_case("RotaryPosition", "rotate", [HERE], some((2, 3, 5, 6)), d_head=6, max_length=40, base=50.0),
    "alibi": position_case("AlibiPosition", "bias", [HERE, HERE], some((2, 3, 5, 4)), n_heads=3),
    "alibi, late": position_case("AlibiPosition", "bias", [LATE, ALL], some((2, 3, 2, 4)), n_heads=3),
    "relative_bias": position_case(
        "RelativeBiasPosition",
        "bias",
        [HERE, HERE],
        some((2, 3, 5, 4)),
        some((8, 3)),
        n_heads=3,
        buckets=8,
        max_distance=16,
        causal=False,
    ),
    "relative_bias, causal": position_case(
        "RelativeBiasPosition",
        "bias",
        [LATE, ALL],
        some((2, 3, 2, 4)),
        some((8, 3)),
        n_heads=3,
        buckets=8,
        max_distance=16,
        causal=True,
    ),
    **{
        f"relative, {act}, {which}": position_case(
            "RelativePosition",
            act,
            [query, key],
            some((2, 3, len(query), 4 if act == "bias" else len(key))),
            some((5, 4)),
            some((5, 4)),
            d_head=4,
            clip=2,
        )
        for act in ("bias", "values")
        for which, query, key in (("here", HERE, HERE), ("late", LATE, ALL))
    },
}

each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def forward_and_backward(case, dtype=np.float64):
    """-> inputs, output, dy, gradients. Inputs are read-only arrays, so an in-index change fails."""
    inputs = [read_only(x.astype(dtype)) for x in case.inputs]
    y, backward = case.twin(*inputs)
    before = y.copy()
    dy = read_only(np.random.default_rng(1).standard_normal(y.shape).astype(dtype))
    gradients, again = as_tuple(backward(dy)), as_tuple(backward(dy))
    assert np.array_equal(y, before)  # backward does not change the output
    assert all(np.array_equal(*pair) for pair in zip(gradients, again, strict=True))
    return inputs, y, dy, gradients


def read_only(x):
    x = np.array(x)
    x.flags.writeable = False
    return x


def as_tuple(x):
    return x if isinstance(x, tuple) else (x,)


def numeric_gradient(f, x, step=1e-6):
    """The gradient of f at x by central differences, one element at a time: (f(x + h) - f(x - h)) / 2h"""
    gradient = np.empty(x.shape)
    for index in np.ndindex(x.shape):
        h = np.zeros(x.shape)
        h[index] = step
        gradient[index] = (f(x + h) - f(x - h)) / (2 * step)
    return gradient


@each_case
def test_gradients_equal_finite_differences(case):
    inputs, _, dy, gradients = forward_and_backward(case)
    for i, (x, gradient) in enumerate(zip(inputs, gradients, strict=True)):
        found = numeric_gradient(lambda x, i=i: np.sum(case.twin(*inputs[:i], x, *inputs[i + 1 :])[0] * dy), x)
        assert isinstance(gradient, float) or gradient.shape == x.shape
        np.testing.assert_allclose(gradient, found, rtol=1e-7, atol=1e-7)


@pytest.mark.usefixtures("double")
@each_case
def test_values_equal_torch(case):
    y, expected = case.twin(*case.inputs)[0], case.torch(*map(torch.from_numpy, case.inputs)).numpy()
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)


@each_case
def test_float32_inputs_give_float32_results(case):
    _, y, _, gradients = forward_and_backward(case)
    _, y32, _, gradients32 = forward_and_backward(case, np.float32)
    for x, expected in zip([y32, *gradients32], [y, *gradients], strict=True):
        assert isinstance(x, float) or x.dtype == np.float32
        np.testing.assert_allclose(x, expected, rtol=1e-4, atol=1e-5)


# --- cases that are not in the table -------------------------------------------------------------------------------------

both_precisions = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-13), (np.float32, 3e-7)])
def test_erf(dtype, tolerance):
    grid = np.linspace(-7, 7, 100_001)
    halves = (np.arange(-6 * 1024, 6 * 1024) + 0.5) / 1024  # farthest from the points of the table
    x = np.concatenate([grid, halves, [-1e30, -6.0, -1e-30, 0.0, 1e-30, 6.0, 1e30]]).astype(dtype)
    y = ops.erf(x)
    assert y.dtype == dtype
    assert np.abs(y - [math.erf(a) for a in x.tolist()]).max() < tolerance


@pytest.mark.parametrize(
    ("op", "other"), [(ops.relu, F.relu), (ops.gelu, F.gelu), (ops.gelu_tanh, gelu_tanh), (ops.silu, F.silu)]
)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-13), (np.float32, 2e-6)])
def test_activations_from_far_left_to_far_right(op, other, dtype, tolerance):
    x = np.concatenate([np.linspace(-12, 12, 10_001), [-1e4, -100, 0, 100, 1e4]]).astype(dtype)
    y, backward = op(x)
    tensor = torch.tensor(x, requires_grad=True)
    expected = other(tensor)
    expected.sum().backward()
    np.testing.assert_allclose(y, expected.detach(), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(backward(np.ones_like(x)), tensor.grad, rtol=tolerance, atol=tolerance)


def test_relu_has_gradient_0_at_0_as_in_torch():
    assert ops.relu(np.zeros(1))[1](np.ones(1)) == ops.relu_squared(np.zeros(1))[1](np.ones(1)) == 0


HUGE, INF = 1e30, np.inf


@both_precisions
@pytest.mark.parametrize(
    ("x", "mask", "expected"),
    [
        ([HUGE, -HUGE, HUGE], None, [0.5, 0, 0.5]),
        ([-HUGE, -HUGE, -HUGE], None, [1 / 3, 1 / 3, 1 / 3]),
        ([HUGE, 0, -HUGE], [0, 1, 1], [0, 1, 0]),
        ([HUGE, -HUGE, -HUGE], [0, 1, 1], [0, 0.5, 0.5]),
        ([-INF, 0, 0], None, [0, 0.5, 0.5]),
        ([INF, 0, -INF], [0, 1, 1], [0, 1, 0]),
        ([INF, -INF, HUGE], [0, 0, 0], [0, 0, 0]),
    ],
)
def test_softmax_of_huge_numbers(x, mask, expected, dtype):
    y, backward = ops.softmax(np.array([x], dtype), None if mask is None else np.array([mask]) > 0)
    np.testing.assert_allclose(y, [expected], rtol=1e-6)
    assert np.isfinite(backward(np.ones((1, 3), dtype))).all()


@both_precisions
def test_masked_softmax_does_not_overflow(dtype):
    x = np.array([[0.25, 0, -0.25]], dtype) * np.finfo(dtype).max
    assert ops.softmax(x, np.array([[True, False, True]]))[0].tolist() == [[1, 0, 0]]


@both_precisions
def test_cross_entropy_of_huge_numbers(dtype):
    found, backward = ops.cross_entropy(np.array([[HUGE, 0, -HUGE]] * 2, dtype), np.array([0, 1]), 0.1)
    assert found.plain == pytest.approx(HUGE)
    assert found.smoothed == pytest.approx(0.9 * HUGE + 0.1 * 2 * HUGE)  # the mean of 0, 1 and 2 HUGE is 1 HUGE
    p, q = [[1, 0, 0], [1, 0, 0]], [[0.9 + 0.1 / 3, 0.1 / 3, 0.1 / 3], [0.1 / 3, 0.9 + 0.1 / 3, 0.1 / 3]]
    np.testing.assert_allclose(backward(), np.subtract(p, q), rtol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_both_losses_equal_torch(smoothing):
    found, _ = ops.cross_entropy(wide, TARGET, smoothing)
    logits, target = torch.from_numpy(wide), torch.from_numpy(TARGET)
    assert isinstance(found.smoothed, float)
    assert isinstance(found.plain, float)
    for value, epsilon in ((found.smoothed, smoothing), (found.plain, 0.0)):
        expected = F.cross_entropy(logits, target, label_smoothing=epsilon, reduction="sum")
        assert abs(value - expected.item()) < 1e-12


def test_dropout_has_the_right_rate_and_mean():
    y, _ = ops.dropout(np.ones((500, 400)), 0.2, np.random.default_rng(2))
    assert set(np.unique(y)) == {0.0, 1 / 0.8}
    assert abs((y == 0).mean() - 0.2) < 0.005
    assert abs(y.mean() - 1) < 0.005


def test_no_dropout_and_no_probe_are_the_identity():
    x = some((2, 3))
    for y, backward in (ops.no_dropout(x), ops.no_probe("scores", x)):
        assert y is x
        assert backward(x) is x


# --- formulas of the position schemes -------------------------------------------------------------------------------------


@pytest.fixture(params=[torch.float32, torch.float64], ids=str)
def _either_default(request):
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("_either_default")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 16), (16, 20), (64, 256), (20, 160), (48, 81)])
def test_buckets_equal_torch(buckets, max_distance, causal):
    distance = np.arange(-300, 301)
    found = positions.t5_bucket(distance, buckets, max_distance, causal)
    expected = relative_positions.t5_bucket(torch.from_numpy(distance), buckets, max_distance, causal)
    assert found.tolist() == expected.tolist()
    assert set(found) == set(range(buckets)) - (
        {buckets // 2} if not causal else set()
    )  # the distance 0 is never in the buckets of later keys


def test_slopes():
    assert positions.alibi_slopes(8) == [2.0**-n for n in range(1, 9)]  # as in the paper (Press et al. 2022)
    for n in range(1, 130):
        assert positions.alibi_slopes(n) == relative_positions.alibi_slopes(n)


@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
@pytest.mark.parametrize("width", [2, 6, 64])
def test_angles(width, base):
    found = positions.angles(300, width, base)
    assert found.shape == (300, width // 2)
    np.testing.assert_allclose(found, torch_positions.angles(300, torch_positions.frequencies(width, base)), rtol=1e-13)
    np.testing.assert_allclose(
        positions.angles(300, width), torch_positions.angles(300, torch_positions.frequencies(width)), rtol=1e-13
    )


def test_position_none_is_the_identity():
    x, none = some((2, 3, 5, 4)), positions.Position()
    for y, backward in (none.embed(x, HERE), none.rotate(x, HERE)):
        assert y is x
        assert backward(x) is x
    bias, backward = none.bias(x, HERE, HERE)
    assert bias is None
    assert backward(x) == 0
    with pytest.raises(NotImplementedError):
        none.values(x, HERE, HERE)


def test_gradients_of_a_shared_table_add_up():
    """Two uses of one table, as in two layers."""
    uses = [
        (positions.LearnedPosition(6, 40), "embed", (some((2, 5, 6)), HERE)),
        (positions.RelativeBiasPosition(3, 8, 16, False), "bias", (some((2, 3, 5, 4)), HERE, HERE)),
        (positions.RelativePosition(4, 2), "bias", (some((2, 3, 5, 4)), HERE, HERE)),
        (positions.RelativePosition(4, 2), "values", (some((2, 3, 5, 5)), HERE, HERE)),
    ]
    for scheme, act, arguments in uses:
        y, backward = getattr(scheme, act)(*arguments)
        dy = some((2, *y.shape[-3:])) if act == "bias" else some(y.shape)
        backward(dy)
        once = [p.gradient for p in scheme.parameters().values()]
        backward(dy)
        for first, p in zip(once, scheme.parameters().values(), strict=True):
            assert first is None or np.array_equal(p.gradient, 2 * first)


def test_gelu_of_nan_is_nan():
    """A diverged training must end with a loss of NaN, not with an index error."""
    y, _ = ops.gelu(np.array([np.nan, 1.0]))
    assert np.isnan(y[0])
    assert y[1] == pytest.approx(F.gelu(torch.tensor(1.0, dtype=torch.float64)).item())


def test_linear_accepts_zero_rows():
    y, backward = ops.linear(np.zeros((0, 3, 4)), np.ones((5, 4)), np.ones(5))
    assert y.shape == (0, 3, 5)
    assert backward(y)[0].shape == (0, 3, 4)
