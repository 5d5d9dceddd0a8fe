"""Position schemes against their formulas, written again in NumPy."""

import math

import numpy as np
import pytest
import torch
from helpers import max_difference, tiny_model
from hypothesis import given
from hypothesis import strategies as st

from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.kernels import attend_exact
from cutaway.nn.learned_positions import LearnedPosition
from cutaway.nn.masks import Causal, Mask
from cutaway.nn.positions import Position, SinusoidalPosition
from cutaway.nn.relative_positions import AlibiPosition, RelativeBiasPosition, RelativePosition, alibi_slopes, t5_bucket
from cutaway.nn.rotary import RotaryPosition, linear_scaling, llama3_scaling


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("d_model", [2, 8, 64, 512])
def test_sinusoids_equal_their_formula(d_model):
    table = SinusoidalPosition(d_model, 50).table
    for pos in (0, 1, 7, 49):
        for i in range(d_model // 2):
            angle = pos / 10000 ** (2 * i / d_model)
            assert abs(table[pos, 2 * i].item() - math.sin(angle)) < 1e-10
            assert abs(table[pos, 2 * i + 1].item() - math.cos(angle)) < 1e-10


@pytest.mark.usefixtures("double")
def test_a_shift_of_positions_is_a_linear_map():
    """PE(pos + k) = M_k PE(pos) with the same M_k for all pos: the paper's argument for sinusoids."""
    table, k = SinusoidalPosition(16, 60).table, 5
    step = torch.zeros(16, 16)  # rotates each pair (sine, cosine) by k times its frequency
    for i in range(0, 16, 2):
        sin, cos = math.sin(k / 10000 ** (i / 16)), math.cos(k / 10000 ** (i / 16))
        step[i : i + 2, i : i + 2] = torch.tensor([[cos, sin], [-sin, cos]])
    assert max_difference(table[:55] @ step.T, table[k : 55 + k]) < 1e-10


def test_a_buffer_moves_with_the_model_is_not_trained_and_not_stored():
    model = tiny_model()
    position = model.source_embedding.position
    assert "table" in dict(position.named_buffers())
    assert not list(position.parameters())
    assert not any("position" in name for name in model.state_dict())
    assert model.double().source_embedding.position.table.dtype == torch.float64
    assert model.to("meta").source_embedding.position.table.device.type == "meta"


def test_learned_positions_are_trained():
    position = LearnedPosition(4, 6)
    position.embed(torch.zeros(1, 3, 4), torch.tensor([0, 1, 5])).sum().backward()
    assert position.table.grad[:, 0].tolist() == [1, 1, 0, 0, 0, 1]


@pytest.mark.parametrize("scheme", [SinusoidalPosition, LearnedPosition])
def test_positions_are_explicit(scheme):
    """Position 7 alone gives the same as position 7 in a sequence, as cached decoding needs."""
    position = scheme(8, 20)
    torch.nn.init.normal_(position.table)
    x = torch.randn(2, 10, 8)
    whole = position.embed(x, torch.arange(10))
    assert torch.equal(position.embed(x[:, 7:8], torch.tensor([7])), whole[:, 7:8])


def test_the_scheme_none_does_nothing():
    x, positions = torch.randn(1, 2, 3, 4), torch.arange(3)
    assert Position(9).embed(x, positions) is x
    assert Position(9).rotate(x, positions) is x
    assert Position(9).kernel_arguments(x, positions, positions) == {}


# RoPE


def rotate(x: np.ndarray, pos: int, base: float) -> np.ndarray:
    """RoFormer, equation 34, for one vector: rotate each pair (2i, 2i+1) by pos · base^(-2i/E)."""
    out = np.zeros_like(x)
    for i in range(len(x) // 2):
        angle = pos * base ** (-2 * i / len(x))
        matrix = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        out[2 * i : 2 * i + 2] = matrix @ x[2 * i : 2 * i + 2]
    return out


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("base", [10_000.0, 500.0])
def test_rope_equals_its_formula(base):
    positions = torch.tensor([0, 1, 5, 40])
    x = torch.randn(2, 3, 4, 8)
    out = RotaryPosition(8, 50, base).rotate(x, positions)
    for b, h, t in np.ndindex(2, 3, 4):
        expected = rotate(x[b, h, t].numpy(), positions[t].item(), base)
        assert np.abs(out[b, h, t].numpy() - expected).max() < 1e-10


@pytest.mark.usefixtures("double")
def test_scaled_rope_equals_its_formula():
    """For each pair, by its wavelength. The pairs here cover all three cases: kept, scaled, interpolated."""
    factor, slow, fast, length, base, width = 8.0, 1.0, 4.0, 64, 100.0, 16
    scaled = RotaryPosition(width, 50, base, llama3_scaling(factor, slow, fast, length))
    evenly = RotaryPosition(width, 50, base, linear_scaling(factor))
    kinds = set()
    for i in range(width // 2):
        speed = base ** (-2 * i / width)
        wave = 2 * math.pi / speed
        if wave < length / fast:
            kind, expected = "kept", speed
        elif wave > length / slow:
            kind, expected = "scaled", speed / factor
        else:
            share = (length / wave - slow) / (fast - slow)
            kind, expected = "interpolated", (1 - share) * speed / factor + share * speed
        kinds.add(kind)
        for position in (1, 49):
            assert abs(scaled.cos[position, i].item() - math.cos(position * expected)) < 1e-12
            assert abs(evenly.sin[position, i].item() - math.sin(position * speed / factor)) < 1e-12
    assert kinds == {"kept", "interpolated", "scaled"}


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 39))
@pytest.mark.usefixtures("double")
def test_rope_depends_on_differences_only(i, j, shift):
    position = RotaryPosition(6, 100)
    q, k = torch.randn(2, 1, 1, 1, 6)

    def dot(at_q, at_k):
        return (position.rotate(q, torch.tensor([at_q])) * position.rotate(k, torch.tensor([at_k]))).sum().item()

    assert abs(dot(i, j) - dot(i + shift, j + shift)) < 1e-10


@pytest.mark.usefixtures("double")
def test_rope_rotates_queries_and_keys_but_not_values():
    attention = MultiHeadAttention(8, 2, position=RotaryPosition(4, 10))
    x = torch.randn(1, 6, 8)
    q, k, v = (
        p(x).view(1, 6, 2, 4).transpose(1, 2).detach().numpy()
        for p in (attention.query, attention.key, attention.value)
    )
    heads = np.zeros((2, 6, 4))
    for h, i in np.ndindex(2, 6):
        scores = np.array([rotate(q[0, h, i], i, 1e4) @ rotate(k[0, h, j], j, 1e4) / 2 for j in range(6)])
        heads[h, i] = softmax(scores) @ v[0, h]
    assert max_difference(attention(x), apply_output(attention, heads)) < 1e-10


# ALiBi


def released_slopes(n: int) -> list[float]:
    """Copied from the repository of the authors (ofirpress/attention_with_linear_biases, get_slopes)."""

    def get_slopes_power_of_2(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(n).is_integer():
        return get_slopes_power_of_2(n)
    closest = 2 ** math.floor(math.log2(n))
    return get_slopes_power_of_2(closest) + released_slopes(2 * closest)[0::2][: n - closest]


@pytest.mark.parametrize("n", [1, 2, 4, 8, 16, 64])
def test_alibi_slopes_of_a_power_of_two(n):
    assert np.allclose(alibi_slopes(n), [2 ** (-8 * h / n) for h in range(1, n + 1)], rtol=0, atol=1e-15)


@pytest.mark.parametrize("n", [*range(1, 34), 40, 71, 112])
def test_alibi_slopes_as_released(n):
    assert len(alibi_slopes(n)) == n
    assert np.allclose(alibi_slopes(n), released_slopes(n), rtol=0, atol=1e-15)


def test_alibi_slopes_of_twelve_heads():
    eight, sixteen = ([2 ** (-8 * h / n) for h in range(1, n + 1)] for n in (8, 16))
    assert np.allclose(alibi_slopes(12), [*eight, sixteen[0], sixteen[2], sixteen[4], sixteen[6]], atol=1e-15)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("kernel", ["exact", "fused"])
@pytest.mark.parametrize("causal", [True, False])
def test_alibi_in_attention(kernel, causal):
    options = {"kernel": attend_exact} if kernel == "exact" else {}
    attention = MultiHeadAttention(12, 3, position=AlibiPosition(3, 10), **options)
    x = torch.randn(1, 7, 12)
    q, k, v = (
        p(x).view(7, 3, 4).transpose(0, 1).detach().numpy() for p in (attention.query, attention.key, attention.value)
    )
    heads = np.zeros((3, 7, 4))
    for h, i in np.ndindex(3, 7):
        keys = range(i + 1) if causal else range(7)
        scores = np.array([q[h, i] @ k[h, j] / 2 - released_slopes(3)[h] * abs(i - j) for j in keys])
        heads[h, i] = softmax(scores) @ v[h, : len(keys)]
    mask = Mask(range(7), range(7), (Causal(),)) if causal else None
    assert max_difference(attention(x, mask=mask), apply_output(attention, heads)) < 1e-10


# T5


def bucket_by_definition(distance: int, buckets: int, max_distance: int, causal: bool) -> int:
    """In integers, so that no logarithm is rounded.

    The far buckets begin where n · log(d/e) / log(M/e) passes m = 0, 1, 2, ...; that is, at (M/e)^m ≤ (d/e)^n.
    """
    offset = 0
    if causal:
        d = max(-distance, 0)
    else:
        buckets //= 2
        offset, d = (buckets if distance > 0 else 0), abs(distance)
    e = buckets // 2
    if d < e:
        return offset + d
    n = buckets - e
    m = max(m for m in range(n + 1) if max_distance**m * e ** (n - m) <= d**n)
    return offset + min(e + m, buckets - 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    ("buckets", "max_distance"),
    [(32, 128), (8, 16), (16, 64), (4, 3), (12, 100), (64, 256), (20, 50), (20, 160), (36, 32), (48, 81)],
)
def test_t5_buckets(buckets, max_distance, causal, dtype, double):
    """In both precisions. A rounded logarithm could put 64/8 = 16^(3/4) into the bucket below."""
    torch.set_default_dtype(dtype)
    distance = torch.arange(-300, 301)
    expected = [bucket_by_definition(d, buckets, max_distance, causal) for d in distance.tolist()]
    assert t5_bucket(distance, buckets, max_distance, causal).tolist() == expected


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("causal", [True, False])
def test_t5_bias_is_the_table_by_bucket_of_key_minus_query(causal):
    position = RelativeBiasPosition(3, 50, buckets=8, max_distance=16, causal=causal)
    torch.nn.init.normal_(position.table)
    query, key = torch.arange(20, 25), torch.arange(45)  # beyond the last bucket on both sides
    bias = position.bias(torch.zeros(1, 3, 5, 2), query, key)
    for h, i, j in np.ndindex(3, 5, 45):
        bucket = bucket_by_definition(int(key[j] - query[i]), 8, 16, causal)
        assert bias[h, i, j] == position.table[bucket, h]


# Shaw


def shaw(q, k, v, a_k, a_v, clip, allowed):
    """Shaw et al. 2018, equations 3 and 4, for one head: a triple loop over i, j and the numbers of a vector."""
    T, E = q.shape
    out = np.zeros((T, E))
    for i in range(T):
        keys = [j for j in range(T) if allowed(i, j)]
        at = {j: max(-clip, min(clip, j - i)) + clip for j in keys}
        e = [sum(q[i, d] * (k[j, d] + a_k[at[j], d]) for d in range(E)) / math.sqrt(E) for j in keys]
        for weight, j in zip(softmax(np.array(e)), keys, strict=True):
            for d in range(E):
                out[i, d] += weight * (v[j, d] + a_v[at[j], d])
    return out


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("clip", [1, 3, 20])
def test_shaw_in_attention(clip, causal):
    attention = MultiHeadAttention(8, 2, kernel=attend_exact, position=RelativePosition(4, 10, clip))
    for table in (attention.position.for_keys, attention.position.for_values):
        torch.nn.init.normal_(table)
    x = torch.randn(2, 7, 8)
    is_token = torch.arange(7) < torch.tensor([[7], [5]])
    out = attention(x, mask=Mask(range(7), range(7), (Causal(),) if causal else (), is_token))
    for b in range(2):
        q, k, v = (
            p(x[b]).view(7, 2, 4).transpose(0, 1).detach().numpy()
            for p in (attention.query, attention.key, attention.value)
        )
        tables = [t.detach().numpy() for t in (attention.position.for_keys, attention.position.for_values)]
        may = lambda i, j, b=b: is_token[b, j] and (j <= i or not causal)  # noqa: E731
        heads = np.stack([shaw(q[h], k[h], v[h], *tables, clip, may) for h in range(2)])
        assert max_difference(out[b : b + 1], apply_output(attention, heads)) < 1e-10


def test_shaw_tables_have_gradients():
    attention = MultiHeadAttention(8, 2, kernel=attend_exact, position=RelativePosition(4, 10, clip=2))
    attention(torch.randn(1, 6, 8)).pow(2).sum().backward()
    for table in (attention.position.for_keys, attention.position.for_values):
        assert (table.grad.abs().sum(1) > 0).all()


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("scheme", ["rope", "alibi", "relative_bias", "relative"])
def test_cross_attention_does_not_use_positions(scheme):
    """With and without a position scheme, the numbers are the same."""
    made = {
        "rope": RotaryPosition(4, 10),
        "alibi": AlibiPosition(2, 10),
        "relative_bias": RelativeBiasPosition(2, 10),
        "relative": RelativePosition(4, 10),
    }[scheme]
    with_scheme = MultiHeadAttention(8, 2, kernel=attend_exact, position=made)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    without = MultiHeadAttention(8, 2, kernel=attend_exact)
    without.load_state_dict({n: p for n, p in with_scheme.state_dict().items() if not n.startswith("position")})
    x, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    assert torch.equal(with_scheme(x, memory), without(x, memory))
    assert max_difference(with_scheme(x), without(x)) > 1e-3  # self-attention does use them


def softmax(scores: np.ndarray) -> np.ndarray:
    return np.exp(scores) / np.exp(scores).sum()


def apply_output(attention: MultiHeadAttention, heads_HTE: np.ndarray) -> torch.Tensor:
    """Concatenate the heads and apply the output matrix. -> [1,T,D]"""
    side_by_side = np.concatenate(list(heads_HTE), axis=-1)
    return torch.from_numpy(
        side_by_side @ attention.output.weight.detach().numpy().T + attention.output.bias.detach().numpy()
    )[None]
