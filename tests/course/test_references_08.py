"""The references of exercise 8 against torch, against Cutaway's training, and against finite differences."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cutaway.course.exercises import full_transformer as exercise_5
from cutaway.course.exercises import learning as exercise_8
from cutaway.course.exercises.learning import EXERCISE
from cutaway.train.losses import smoothed_cross_entropy
from cutaway.train.optimizers import eager
from cutaway.train.schedules import cosine

pytestmark = pytest.mark.filterwarnings("ignore")  # wrong references may divide by 0
B, T, V, PAD, START = 3, 5, 7, 4, 2
RNG = np.random.default_rng(0)


def random(*shape):
    return RNG.normal(size=shape)


def tensor(array):
    return torch.from_numpy(np.asarray(array, np.float64))


def some_ids():
    """Random ids, with padding anywhere."""
    ids = RNG.integers(0, V, size=(B, T))
    ids[0, -2:] = ids[1, 0] = PAD
    return ids


def torch_loss(logits, target, epsilon):
    return F.cross_entropy(
        logits.flatten(0, 1), torch.from_numpy(target).flatten(), ignore_index=PAD, label_smoothing=epsilon
    )


def test_count_tokens_counts_what_torch_does_not_ignore():
    target = some_ids()
    total = F.cross_entropy(
        torch.zeros(B * T, V), torch.from_numpy(target).flatten(), ignore_index=PAD, reduction="sum"
    )
    assert exercise_8.count_tokens(target, PAD) == pytest.approx(total.item() / math.log(V))


def test_log_softmax_agrees_with_torch():
    x = random(B, T, V) * 500
    np.testing.assert_allclose(exercise_8.log_softmax(x), F.log_softmax(tensor(x), dim=-1))


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.7])
def test_the_loss_agrees_with_torch_and_with_the_library(epsilon):
    logits, target = random(B, T, V), some_ids()
    mine = exercise_8.smoothed_loss(logits, target, epsilon, PAD)
    assert mine == pytest.approx(torch_loss(tensor(logits), target, epsilon).item())
    kept = target != PAD
    total, _ = smoothed_cross_entropy(tensor(logits[kept]), torch.from_numpy(target[kept]), epsilon)
    assert mine == pytest.approx(total.item() / kept.sum())


def test_the_loss_without_smoothing_is_the_cross_entropy_of_exercise_5():
    logits, target = random(B, T, V), some_ids()
    mine = exercise_8.smoothed_loss(logits, target, 0.0, PAD)
    assert mine == pytest.approx(exercise_5.cross_entropy(logits, target, PAD))


def test_smooth_is_the_gradient_of_torchs_loss_by_the_log_probabilities():
    log_p, target = torch.zeros(B, T, V, dtype=torch.float64, requires_grad=True), some_ids()
    n = exercise_8.count_tokens(target, PAD)
    # log_softmax(log_p) has the gradient q - p, and p is 1 / V here
    (gradient,) = torch.autograd.grad(-n * torch_loss(log_p, target, 0.2), log_p)
    p = (target != PAD)[..., None] / V
    np.testing.assert_allclose(exercise_8.smooth(target, V, 0.2, PAD), gradient.numpy() + p, atol=1e-12)


@pytest.mark.parametrize("step", range(1, 13))
def test_the_schedule_agrees_with_the_library(step):
    peak, warmup, total, floor = 0.3, 4, 10, 0.06
    mine = exercise_8.warmup_cosine(step, peak, warmup, total, floor)
    theirs = cosine(peak, warmup, end=floor / peak)(step, min(1.0, step / total)) if step <= total else floor
    assert mine == pytest.approx(theirs)


@pytest.mark.parametrize("max_norm", [0.5, 2.0, 100.0])
def test_clip_agrees_with_torch(max_norm):
    gradients = [random(2, 3), random(4), random(1, 2, 2)]
    parameters = [torch.nn.Parameter(torch.zeros(g.shape, dtype=torch.float64)) for g in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = tensor(gradient.copy())
    theirs = torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    clipped, norm = exercise_8.clip(gradients, max_norm)
    assert norm == pytest.approx(theirs.item())
    for mine, parameter in zip(clipped, parameters, strict=True):
        np.testing.assert_allclose(mine, parameter.grad, rtol=1e-5)


@pytest.mark.parametrize("eps", [1e-9, 0.1])
def test_adam_agrees_with_torch(eps):
    weight = random(3, 4)
    parameter = torch.nn.Parameter(tensor(weight.copy()))
    optimizer = eager(torch.optim.Adam)([parameter], lr=0.1, betas=(0.8, 0.95), eps=eps)
    m = v = np.zeros_like(weight)
    for step in range(1, 6):
        gradient = random(3, 4)
        parameter.grad = tensor(gradient)
        optimizer.step()
        weight, m, v = exercise_8.adam(weight, gradient, m, v, step, 0.1, 0.8, 0.95, eps)
        np.testing.assert_allclose(weight, parameter.detach(), atol=1e-9)
        np.testing.assert_allclose(m, optimizer.state[parameter]["exp_avg"], atol=1e-12)
        np.testing.assert_allclose(v, optimizer.state[parameter]["exp_avg_sq"], atol=1e-12)


def test_training_steps_agree_with_autograd_and_torchs_adam():
    table, target = 3 * random(V, V), some_ids()
    weight = torch.nn.Parameter(tensor(table.copy()))
    optimizer = eager(torch.optim.Adam)([weight], lr=0.1, betas=(0.9, 0.98), eps=1e-9)
    m = v = np.zeros_like(table)
    losses = []
    for step in range(1, 30):
        loss = torch_loss(weight[exercise_5.shift_right(target, START)], target, 0.1)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([weight], 1.0)
        optimizer.step()
        mine, table, m, v = exercise_8.training_step(table, target, START, PAD, m, v, step, 0.1)
        assert mine == pytest.approx(loss.item(), rel=1e-5)
        np.testing.assert_allclose(table, weight.detach(), atol=1e-4)
        losses.append(mine)
    assert all(later < earlier for earlier, later in pairwise(losses))
    assert losses[-1] < 0.6 * losses[0]


def test_the_gradient_of_the_table_agrees_with_finite_differences():
    table, target, h = random(V, V), some_ids(), 1e-6
    target_in = exercise_5.shift_right(target, START)
    gradient = exercise_8.table_gradient(table, target_in, target, PAD, frozenset())
    for i, j in np.ndindex(table.shape):
        change = h * np.outer(np.arange(V) == i, np.arange(V) == j)
        losses = [exercise_8.smoothed_loss((table + d)[target_in], target, 0.1, PAD) for d in (change, -change)]
        assert gradient[i, j] == pytest.approx((losses[0] - losses[1]) / (2 * h), abs=1e-7)


def test_a_long_gradient_is_clipped_in_a_training_step():
    table, nothing = np.array([[0.0, 50.0, 0.0]]).repeat(3, axis=0), np.zeros((3, 3))
    _, _, m, _ = exercise_8.training_step(table, np.array([[2]]), 0, 1, nothing, nothing, 1, 0.1)
    assert np.linalg.norm(m) == pytest.approx(0.1)  # a share of 0.1 of a gradient of norm 1


@pytest.mark.parametrize("part", [part for part in EXERCISE.parts if part.properties], ids=lambda part: part.name)
def test_properties_hold_for_the_reference_and_fail_for_a_mistake(part):
    def answers(each, wrong):
        return [part.reference(*case.arguments, wrong=wrong) for case in each.cases]

    for each in part.properties:
        assert each.check(*answers(each, frozenset())) is None, each.name
        said = []
        for switch in (switch for mistake in part.mistakes for switch in mistake.switches):
            try:
                said.append(each.check(*answers(each, frozenset([switch]))))
            except (ValueError, IndexError, TypeError, ZeroDivisionError):
                continue  # another shape or type: the grader takes no notice
        # no known mistake of the loss depends on the order of the texts
        assert any(said) or each.check(1.0, 2.0), f"no mistake violates: {each.name}"
