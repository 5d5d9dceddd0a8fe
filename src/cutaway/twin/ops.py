"""The operations of a Transformer, each with its derivative.

Every operation returns its output and a backward function:

    y, backward = softmax(x)
    dx = backward(dy)

dy stands for ∂L/∂y: how the loss L changes with each number of y. It has the shape of y. The backward function applies
the chain rule: from ∂L/∂y to ∂L/∂x. Each docstring derives the derivative. A dot (·) multiplies element by element;
δᵢⱼ is 1 if i = j, else 0.

Suffixes give the shape of an array: B batch, Q queries, K keys, H heads, G key-value heads, E head width, D width of a
token, F output width, V vocabulary, N rows of any kind.

If an operation has parameters, backward also returns their gradients. Token ids have no gradient, so `embedding`
returns only the gradient of its matrix. The backward pass starts at the loss, so its backward takes no dy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Backward = Callable[[Array], Any]
ProbeFunction = Callable[[str, Array], tuple[Array, Backward]]
Op = Callable[[Array], tuple[Array, Backward]]


def identity(dy: Array) -> Array:
    """The backward function of the identity."""
    return dy


def no_probe(name: str, value: Array) -> tuple[Array, Backward]:
    """A `ProbeFunction` passes a value to a probe (modules.py) by name. This one has no probe."""
    return value, identity


def no_dropout(x: Array) -> tuple[Array, Backward]:
    """A dropout with rate 0."""
    return x, identity


# --- operations on the vector of each token ----------------------------------------------------------------------


def linear(x: Array, weight: Array, bias: Array | None = None) -> tuple[Array, Backward]:
    """y = x Wᵀ + b    x [..., D], W [F, D], b [F] -> y [..., F]

    For one row: y_f = Σ_d x_d W_fd + b_f, so  ∂y_f/∂x_d = W_fd,  ∂y_f/∂W_fd = x_d,  ∂y_f/∂b_f = 1, and

        dx_d = Σ_f dy_f W_fd         dx = dy W
        dW_fd = Σ_rows dy_f x_d      dW = dyᵀ x
        db_f = Σ_rows dy_f

    All rows use the same parameters, so their gradients sum over rows.    backward(dy) -> dx, dW, db (ignore without b)
    """
    x_ND = x.reshape(-1, x.shape[-1])  # all tokens of all texts as rows: one large product
    y_NF = x_ND @ weight.T
    if bias is not None:
        y_NF += bias

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        dy_NF = dy.reshape(y_NF.shape)
        return (dy_NF @ weight).reshape(x.shape), dy_NF.T @ x_ND, dy_NF.sum(axis=0)

    return y_NF.reshape(*x.shape[:-1], len(weight)), backward


def embedding(ids: Array, weight: Array) -> tuple[Array, Backward]:
    """y = W[ids]    ids [...], W [V, D] -> y [..., D]

    Row v of W is copied to every position with id v, so its gradient is the sum over these positions:

        dW_v = Σ_{positions with id v} dy        backward(dy) -> dW
    """

    def backward(dy: Array) -> Array:
        d_weight = np.zeros_like(weight)
        np.add.at(d_weight, ids, dy)
        return d_weight

    return weight[ids], backward


def layer_norm(x: Array, weight: Array, bias: Array, epsilon: float) -> tuple[Array, Backward]:
    """y = x̂ · w + b,    x̂ = (x - μ) / σ,    μ = mean(x),  σ = sqrt(mean((x - μ)²) + ε)    over the D numbers of a token

        dx̂ = dy · w,    dw = Σ_rows dy · x̂,    db = Σ_rows dy

    x̂ depends on x in three ways: directly, through μ and through σ.

        ∂μ/∂x_j = 1/D
        ∂σ/∂x_j = Σ_i (x_i - μ) (δᵢⱼ - 1/D) / (D σ) = (x_j - μ) / (D σ) = x̂_j / D        because the x_i - μ sum to 0
        ∂x̂_i/∂x_j = (δᵢⱼ - 1/D) / σ - (x_i - μ) / σ² · x̂_j / D = (δᵢⱼ - 1/D - x̂_i x̂_j / D) / σ

        dx_j = Σ_i dx̂_i ∂x̂_i/∂x_j:    dx = (dx̂ - mean(dx̂) - x̂ · mean(dx̂ · x̂)) / σ

    In words: shifting or scaling all numbers of a token does not change y (apart from ε). The formula subtracts these
    two directions from the gradient.
    backward(dy) -> dx, dw, db
    """
    centred = x - mean(x)
    sigma = np.sqrt(mean(centred * centred) + epsilon)
    x_hat = centred / sigma

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        dx_hat = dy * weight
        dx = (dx_hat - mean(dx_hat) - x_hat * mean(dx_hat * x_hat)) / sigma
        return dx, sum_over_rows(dy * x_hat), sum_over_rows(dy)

    return x_hat * weight + bias, backward


def rms_norm(x: Array, weight: Array, epsilon: float) -> tuple[Array, Backward]:
    """y = x̂ · w,    x̂ = x / r,    r = sqrt(mean(x²) + ε)    over the D numbers of a token

    As in layer_norm, without μ:    dx̂ = dy · w,    dw = Σ_rows dy · x̂

        ∂r/∂x_j = x_j / (D r) = x̂_j / D,    ∂x̂_i/∂x_j = (δᵢⱼ - x̂_i x̂_j / D) / r
        dx = (dx̂ - x̂ · mean(dx̂ · x̂)) / r        backward(dy) -> dx, dw
    """
    r = np.sqrt(mean(x * x) + epsilon)
    x_hat = x / r

    def backward(dy: Array) -> tuple[Array, Array]:
        dx_hat = dy * weight
        return (dx_hat - x_hat * mean(dx_hat * x_hat)) / r, sum_over_rows(dy * x_hat)

    return x_hat * weight, backward


def dropout(x: Array, rate: float, generator: np.random.Generator) -> tuple[Array, Backward]:
    """y = x · m,    m = 0 with probability p, else 1 / (1 - p), so the expected value of y is x

    m is random, separate for each number, and does not depend on x:    dx = dy · m
    """
    m = (generator.random(x.shape) >= rate).astype(x.dtype) / (1 - rate)
    return x * m, lambda dy: dy * m


# --- activations, element by element: dx = dy · f'(x) ------------------------------------------------------------


def relu(x: Array) -> tuple[Array, Backward]:
    """f(x) = max(0, x),    f'(x) = 1 where x > 0, else 0 (f has no derivative at 0; by convention f'(0) = 0)"""
    return np.maximum(x, 0), lambda dy: dy * (x > 0)


def relu_squared(x: Array) -> tuple[Array, Backward]:
    """f(x) = max(0, x)²,    f'(x) = 2 max(0, x)"""
    positive = np.maximum(x, 0)
    return positive * positive, lambda dy: dy * 2 * positive


def gelu(x: Array) -> tuple[Array, Backward]:
    """f(x) = x Φ(x),    Φ(x) = (1 + erf(x / √2)) / 2: the cumulative standard normal distribution

    f'(x) = Φ(x) + x φ(x),    φ(x) = Φ'(x) = exp(-x²/2) / sqrt(2π)
    """
    cdf = 0.5 * (1 + erf(x / math.sqrt(2)))
    return x * cdf, lambda dy: dy * (cdf + x * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi))


def gelu_tanh(x: Array) -> tuple[Array, Backward]:
    """f(x) = x (1 + tanh u) / 2,    u = sqrt(2/π) (x + 0.044715 x³): an approximation of GELU

    tanh' = 1 - tanh²:    f'(x) = (1 + tanh u) / 2 + x (1 - tanh² u) / 2 · sqrt(2/π) (1 + 3 · 0.044715 x²)
    """
    c, a = math.sqrt(2 / math.pi), 0.044715
    t = np.tanh(c * (x + a * x * x * x))
    return 0.5 * x * (1 + t), lambda dy: dy * 0.5 * (1 + t + x * (1 - t * t) * c * (1 + 3 * a * x * x))


def silu(x: Array) -> tuple[Array, Backward]:
    """f(x) = x s,    s = sigmoid(x) = 1 / (1 + exp(-x)),    s' = s (1 - s)

    f'(x) = s + x s (1 - s)
    """
    s = 0.5 * (1 + np.tanh(0.5 * x))  # the sigmoid, in a form that cannot overflow
    return x * s, lambda dy: dy * (s + x * s * (1 - s))


def soft_cap(x: Array, cap: float) -> tuple[Array, Backward]:
    """f(x) = c tanh(x / c),    f'(x) = 1 - tanh²(x / c)"""
    t = np.tanh(x / cap)
    return cap * t, lambda dy: dy * (1 - t * t)


# --- attention ---------------------------------------------------------------------------------------------------


def softmax(x: Array, mask: Array | None = None) -> tuple[Array, Backward]:
    """y_i = exp(x_i) / Σ_j exp(x_j) along the last axis, over the positions that the mask allows (True = allowed)

        ∂y_i/∂x_j = y_i (δᵢⱼ - y_j)
        dx_j = Σ_i dy_i y_i (δᵢⱼ - y_j) = y_j (dy_j - Σ_i dy_i y_i)

    A masked position has y = 0, so its gradient is 0 too. In a row where all positions are masked, y and dx are 0.
    """
    if mask is not None:
        x = np.where(mask, x, lowest(x))
    # exp(x - c) / Σ exp(x - c): the factor exp(-c) cancels, and with c = max(x) nothing overflows
    y = np.exp(x - np.maximum.reduce(x, axis=-1, keepdims=True))
    y /= np.add.reduce(y, axis=-1, keepdims=True)
    if mask is not None:
        y *= mask  # for rows where all positions are masked: exp gave equal weights there
    return y, lambda dy: y * (dy - np.add.reduce(dy * y, axis=-1, keepdims=True))


def similarity(q: Array, k: Array) -> tuple[Array, Backward]:
    """s = q kᵀ / sqrt(E)    q [B,H,Q,E], k [B,G,K,E] -> s [B,H,Q,K]

        s_ij = Σ_e q_ie k_je / sqrt(E):    dq = ds k / sqrt(E),    dk = dsᵀ q / sqrt(E)        backward(ds) -> dq, dk

    If H/G query heads share one key head, their queries are stacked as rows of one product with these keys. In the
    backward pass, that product also sums dk over the query heads that share it.
    """
    scale = 1 / math.sqrt(q.shape[-1])
    q_BGNE = group_heads(q, k)
    s_BGNK = q_BGNE @ transpose(k)
    s_BGNK *= scale

    def backward(ds: Array) -> tuple[Array, Array]:
        ds_BGNK = group_heads(ds, k) * scale
        return (ds_BGNK @ k).reshape(q.shape), transpose(ds_BGNK) @ q_BGNE

    return s_BGNK.reshape(*q.shape[:3], -1), backward


def weighted_sum(weights: Array, v: Array) -> tuple[Array, Backward]:
    """y = w v    w [B,H,Q,K], v [B,G,K,E] -> y [B,H,Q,E]

    y_ie = Σ_j w_ij v_je:    dw = dy vᵀ,    dv = wᵀ dy        backward(dy) -> dw, dv
    """
    w_BGNK = group_heads(weights, v)

    def backward(dy: Array) -> tuple[Array, Array]:
        dy_BGNE = group_heads(dy, v)
        return (dy_BGNE @ transpose(v)).reshape(weights.shape), transpose(w_BGNK) @ dy_BGNE

    return (w_BGNK @ v).reshape(*weights.shape[:3], -1), backward


def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    bias: Array | None = None,
    cap: float = 0.0,
    drop: Op = no_dropout,
    relative_values: Op | None = None,
    probe: ProbeFunction = no_probe,
) -> tuple[Array, Backward]:
    """Attention(Q, K, V) = softmax(Q Kᵀ / sqrt(d_k)) V    (the paper, equation 1)

    q [B,H,Q,E], k and v [B,G,K,E], mask and bias broadcastable to [B,H,Q,K] -> [B,H,Q,E]

    A soft cap (cap > 0) is applied before the bias. `drop` and `relative_values` (Shaw's term of y) take the weights.
    `probe` receives the scores and the weights. The backward pass runs the same steps in reverse order. The gradient of
    the bias equals d_scores; the position scheme sums it where several scores share one bias.
    backward(dy) -> dq, dk, dv, d_scores [B,H,Q,K]
    """
    scores, back_similarity = similarity(q, k)
    scores, back_cap = soft_cap(scores, cap) if cap else (scores, identity)
    scores, back_scores = probe("scores", scores if bias is None else scores + bias)
    weights, back_softmax = softmax(scores, mask)
    weights, back_weights = probe("weights", weights)
    weights, back_drop = drop(weights)
    y, back_sum = weighted_sum(weights, v)
    if relative_values is not None:
        relative, back_relative = relative_values(weights)
        y = y + relative

    def backward(dy: Array) -> tuple[Array, Array, Array, Array]:
        d_weights, dv = back_sum(dy)
        if relative_values is not None:
            d_weights = d_weights + back_relative(dy)
        d_scores = back_scores(back_softmax(back_weights(back_drop(d_weights))))
        dq, dk = back_similarity(back_cap(d_scores))
        return dq, dk, dv, d_scores

    return y, backward


# --- the loss ----------------------------------------------------------------------------------------------------


class Loss(NamedTuple):
    smoothed: float  # minimized by training
    plain: float  # the same with ε = 0: exp(plain / N) is the perplexity


def cross_entropy(logits: Array, target: Array, smoothing: float = 0.0) -> tuple[Loss, Callable[[], Array]]:
    """L = -Σ_rows Σ_v q_v log p_v,    p = softmax(logits),    q = (1-ε)·one-hot(target) + ε/V

    With x for the logits, log p_v = x_v - log Σ_u exp(x_u), so ∂log p_v/∂x_u = δᵤᵥ - p_u. The q_v sum to 1:

        dx_u = -Σ_v q_v (δᵤᵥ - p_u) = p_u - q_u

    In words: the predicted probabilities minus the target probabilities.
    logits [N, V], target [N] -> sums over the rows.    backward() -> dx [N, V], of the smoothed loss
    """
    log_p = log_softmax(logits)
    rows = np.arange(len(target))
    plain = -float(log_p[rows, target].sum())
    smoothed = (1 - smoothing) * plain - smoothing * float(mean(log_p).sum()) if smoothing else plain

    def backward() -> Array:
        dx = np.exp(log_p) - smoothing / logits.shape[-1]
        dx[rows, target] -= 1 - smoothing
        return dx

    return Loss(smoothed, plain), backward


# --- helper functions --------------------------------------------------------------------------------------------


def mean(x: Array) -> Array:
    """The mean over the last axis, which is kept with length 1. Faster than np.mean."""
    return np.add.reduce(x, axis=-1, keepdims=True) / x.shape[-1]


def sum_over_rows(x: Array) -> Array:
    """The sum over all axes except the last."""
    return x.reshape(-1, x.shape[-1]).sum(axis=0)


def transpose(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


def group_heads(x: Array, shared: Array) -> Array:
    """[B,H,Q,X] -> [B,G,N,X], N = H/G·Q: stack the query heads that share one key-value head."""
    return x.reshape(len(x), shared.shape[1], -1, x.shape[-1])


def log_softmax(x: Array) -> Array:
    shifted = x - np.maximum.reduce(x, axis=-1, keepdims=True)
    return shifted - np.log(np.add.reduce(np.exp(shifted), axis=-1, keepdims=True))


def lowest(x: Array) -> float:
    """A score whose exponential is 0 next to any other score, but whose differences do not overflow."""
    return float(np.finfo(x.dtype).min) / 2


POINTS_PER_UNIT = 1024  # of the erf table
MAX_ERF_INPUT = 6  # above, erf is 1 in double precision


@cache
def erf_table() -> Array:
    return np.array(
        [
            math.erf(i / POINTS_PER_UNIT)
            for i in range(-MAX_ERF_INPUT * POINTS_PER_UNIT, MAX_ERF_INPUT * POINTS_PER_UNIT + 1)
        ]
    )


def erf(x: Array) -> Array:
    """The error function, which NumPy lacks: a Taylor series around the nearest point p of a table, with d = x - p.

        erf(p + d) ≈ erf(p) + g · (d - p d² + (2p² - 1) d³ / 3),    g = erf'(p) = 2/√π · exp(-p²)

    |d| is at most 1/2048, so the remaining terms, g · p (3 - 2p²) / 6 · d⁴ and smaller, are below 1e-13.
    """
    x = np.clip(x, -MAX_ERF_INPUT, MAX_ERF_INPUT)
    nearest = np.rint(np.nan_to_num(x) * POINTS_PER_UNIT)
    p = nearest / POINTS_PER_UNIT
    d = x - p  # NaN where x is NaN, and so is the result
    g = 2 / math.sqrt(math.pi) * np.exp(-p * p)
    at_p = erf_table()[nearest.astype(np.intp) + MAX_ERF_INPUT * POINTS_PER_UNIT].astype(x.dtype)
    return at_p + g * d * (1 - p * d + (2 * p * p - 1) * d * d / 3)
