"""Figures show the numbers that they are made of."""

import math

import numpy as np
import pytest
import torch
from helpers import tiny_of
from untrained import AlignedExample, untrained_pipeline

from cutaway.errors import DataError
from cutaway.explore import figures, model_figures, training_figures
from cutaway.explore.budget import Budget, PartCost
from cutaway.explore.heads import head_statistics
from cutaway.explore.inputs import encode_examples
from cutaway.explore.masks import mask_views
from cutaway.explore.trace import trace, trace_translation
from cutaway.models.build import POSITIONS
from cutaway.nn.positions import SinusoidalPosition
from cutaway.nn.relative_positions import AlibiPosition, RelativeBiasPosition
from cutaway.nn.rotary import RotaryPosition
from cutaway.train.losses import smoothed_cross_entropy
from cutaway.train.schedules import constant, cosine


def image_of(figure, axes=0):
    return np.asarray(figure.axes[axes].images[0].get_array())


def texts(axes):
    return [text.get_text() for text in axes.texts]


@pytest.fixture(scope="module")
def translator():
    return untrained_pipeline()


def test_one_layer_and_all_layers(translator):
    pair = AlignedExample()
    seen = trace_translation(translator, pair.source, pair.target)
    layer = figures.layer_grid(seen, "cross", 1)
    np.testing.assert_allclose(image_of(layer, 1), seen.weights("cross", 1)[1])
    assert layer.get_suptitle().endswith("layer 1")
    grid = figures.attention_grid(seen, "encoder")
    np.testing.assert_allclose(image_of(grid, 2), seen.weights("encoder", 1)[0])


@pytest.mark.parametrize(("family", "kind"), [("decoder", "decoder"), ("encoder", "encoder")])
def test_a_model_of_one_stack(family, kind):
    seen = trace(untrained_pipeline(family), "a b c d", *([""] if family == "decoder" else []))
    figure = figures.attention_grid(seen, kind)
    assert figure.get_suptitle().startswith("Self-attention: from each token to ")
    np.testing.assert_allclose(image_of(figure), seen.weights(kind, 0)[0])


def test_five_heads_leave_three_places_empty():
    pipeline = untrained_pipeline("encoder", n_heads=5, d_model=10)
    figure = figures.layer_grid(trace(pipeline, "a b"), "encoder", 0)
    assert [axes.get_visible() for axes in figure.axes[:8]] == [True] * 5 + [False] * 3


def test_labels_are_skipped_and_cut():
    places, names = figures.select_labels([f"token{i}" for i in range(100)], max_labels=30)
    assert places == list(range(0, 100, 4))
    assert names[1] == "token4"
    assert figures.select_labels(["a", "b"], max_labels=30) == ([0, 1], ["a", "b"])
    assert figures.select_labels(["extraordinarily-long"], max_labels=3)[1] == ["extraordinari…"]


@pytest.mark.parametrize("size", [4, 70])
def test_a_mask_can_be_read_without_colours(size):
    allowed = np.tril(np.ones((size, size), dtype=bool))
    figure = model_figures.mask_figure(allowed, ["$x"] * size, list(map(str, range(size))), "who $may$")
    axes = figure.axes[0]
    if size == 4:
        may, may_not = (collection.get_offsets() for collection in axes.collections)
        assert {tuple(map(int, place)) for place in may} == {(k, q) for q in range(4) for k in range(q + 1)}
        assert len(may_not) == 6
        shapes = [len(collection.get_paths()[0].vertices) for collection in axes.collections]
        assert shapes[0] != shapes[1]  # a square, a dot
    else:
        np.testing.assert_array_equal(image_of(figure), ~allowed)


def test_all_masks_of_a_model_side_by_side(translator, tmp_path):
    views = mask_views(translator, encode_examples(translator, [AlignedExample()])[0])
    figure = model_figures.mask_panel(views)
    assert [len(axes.collections[0].get_offsets()) for axes in figure.axes] == [
        int(view.allowed.sum()) for view in views
    ]
    assert [view.kind for view in views] == ["encoder", "decoder", "cross"]
    assert figures.save(figure, tmp_path / "masks.svg").read_text("utf-8").startswith("<?xml")


@pytest.mark.parametrize("name", POSITIONS)
def test_every_position_scheme_is_drawn(name):
    position = POSITIONS[name](
        tiny_of(position=name, **({"attention_kernel": "exact"} if name == "relative" else {})), True
    )
    if name == "none":
        with pytest.raises(DataError, match="has no position scheme"):
            model_figures.position_figure(position)
        return
    for parameter in position.parameters():
        torch.nn.init.normal_(parameter)
    figure = model_figures.position_figure(position, shown=12)
    assert any(axes.images or axes.lines for axes in figure.axes)


def test_position_figures_show_the_scheme():
    sinusoids = SinusoidalPosition(8, 40)
    np.testing.assert_allclose(image_of(model_figures.position_figure(sinusoids, 20)), sinusoids.table[:20], rtol=1e-6)
    line = model_figures.position_figure(RotaryPosition(8, 40), 20).axes[1].lines[0].get_ydata()
    expected = [np.mean([math.cos(d * 10_000 ** (-2 * i / 8)) for i in range(4)]) for d in range(20)]
    np.testing.assert_allclose(line, expected, atol=1e-6)
    alibi = AlibiPosition(4, 40)
    for slope, line in zip(alibi.slopes, model_figures.position_figure(alibi, 10).axes[0].lines, strict=True):
        x, y = line.get_data()
        assert list(x) == list(range(-9, 10))
        np.testing.assert_allclose(y, -float(slope) * np.abs(x))
    past_only = model_figures.position_figure(RelativeBiasPosition(2, 40, causal=True), 10).axes[0].lines[0]
    assert list(past_only.get_xdata()) == list(range(-9, 1))


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.3])
def test_the_target_comes_from_the_loss(epsilon):
    target = training_figures.target_of(smoothed_cross_entropy, 5, 2, epsilon)
    np.testing.assert_allclose(target, (1 - epsilon) * np.eye(5)[2] + epsilon / 5, atol=1e-12)


def test_smoothing():
    figure = training_figures.smoothing_targets(smoothed_cross_entropy, ["a", "$b", "c", "d"], 1, 0.2)
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    np.testing.assert_allclose(heights, [0, 1, 0, 0, 0.05, 0.85, 0.05, 0.05], atol=1e-12)
    plain, smoothed, best = (line.get_xydata() for line in figure.axes[1].lines)
    np.testing.assert_allclose(plain[:, 1], -np.log(plain[:, 0]))
    assert best[0, 0] == pytest.approx(0.85, abs=0.01)  # p equals the target there
    assert smoothed[-1, 1] > best[0, 1]


def test_schedules_by_name():
    figure = training_figures.schedules({"cosine": cosine(1.0, 10), "constant": constant(0.5)}, 100, chosen="cosine")
    first, second = figure.axes[0].lines
    assert [line.get_label() for line in (first, second)] == ["cosine (this run)", "constant"]
    assert first.get_linewidth() > second.get_linewidth()
    assert first.get_xydata()[-1].tolist() == [100, pytest.approx(0, abs=1e-9)]
    assert set(second.get_ydata()) == {0.5}


def test_heads(translator):
    heads = head_statistics(translator, [AlignedExample(), AlignedExample("d e f", "f e d")])
    board = model_figures.head_roles(heads)
    assert len(board.axes) == 3
    found = [text for axes in board.axes for text in texts(axes)]
    assert [text.split("\n")[0] for text in found] == [head.role for head in heads]
    table = model_figures.head_statistics_figure(heads)
    assert f"{heads[0].statistics['entropy'].value:.2f}" == texts(table.axes[0])[0]
    assert len(texts(table.axes[0])) == sum(len(head.statistics) for head in heads)


def test_budgets_are_bars():
    budget = Budget((PartCost("a", 30, 0.001), PartCost("b", 10, 0.003), PartCost("c", 0, 0.0)), tokens=12)
    bars = model_figures.parameter_budget(budget).axes[0]
    assert [bar.get_width() for bar in bars.patches] == [30, 10]
    assert texts(bars) == ["30  75.0%", "10  25.0%"]
    timed = model_figures.time_budget(budget).axes[0]
    assert texts(timed) == ["1.0 ms  25.0%", "3.0 ms  75.0%"]
    assert timed.get_title(loc="left") == "4.0 ms for a forward pass over 12 tokens"
