"""Traces have the numbers of the model; figures and reports show them."""

import base64
import re

import numpy as np
import pytest
import torch
from helpers import small_recipe
from hypothesis import given
from hypothesis import strategies as st

from cutaway.explore import figures
from cutaway.explore.alignment import alignment_by_head, has_alignments
from cutaway.explore.parts import part_tree
from cutaway.explore.report import HtmlReport
from cutaway.explore.trace import Trace, trace_translation
from cutaway.inference.pipelines import Translator
from cutaway.inference.training.setup import start_training
from cutaway.runs import RunFolder


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    run = RunFolder(tmp_path_factory.mktemp("run"))
    start_training(small_recipe(), run).trainer.run()
    return Translator.load(run.path)


@pytest.fixture(scope="module")
def trace(translator):
    return trace_translation(translator, "a b c", "c b a")


def test_a_trace_has_tokens_and_weights(trace):
    assert trace.source == ["a", "b", "c", "</s>"]
    assert trace.target_in == ["<s>", "c", "b", "a"]
    assert trace.target_out == ["c", "b", "a", "</s>"]
    assert trace.n_layers("cross") == 2
    assert trace.weights("encoder", 1).shape == (2, 4, 4)
    for kind in ("encoder", "decoder", "cross"):
        rows, columns = trace.axes(kind)
        weights = trace.weights(kind, 0)
        assert weights.shape == (2, len(rows), len(columns))
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-3)  # weights are rounded to four digits
    assert np.triu(trace.weights("decoder", 0), 1).max() == 0


def test_a_trace_can_be_saved_as_json(trace):
    assert Trace.from_json(trace.to_json()) == trace


def test_without_a_target_the_trace_has_the_models_translation(translator):
    own = trace_translation(translator, "a b c")
    expected = translator.tokenizer.tokens(translator.tokenizer.encode(translator.translate(["a b c"])[0]))
    assert own.target_out == [*expected, "</s>"]


def drawn_matrix(figure, axes=0):
    return np.asarray(figure.axes[axes].images[0].get_array())


def test_heatmaps_draw_the_recorded_weights(trace, tmp_path):
    figure = figures.attention_heatmap(trace, "cross", layer=1, head=1, gold=[(0, 2)])
    np.testing.assert_allclose(drawn_matrix(figure), trace.weights("cross", 1)[1])
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == trace.source
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == trace.target_out
    assert figures.save(figure, tmp_path / "a" / "b.png").stat().st_size > 1000

    colours = figure.axes[0].images[0].cmap
    assert min(colours(0.0)[:3]) > 0.9 > 0.5 > max(colours(1.0)[:3])  # as in the explorer: no weight is like the paper

    grid = figures.attention_grid(trace, "decoder")
    assert len([axes for axes in grid.axes if axes.images]) >= 4
    np.testing.assert_allclose(drawn_matrix(grid, 3), trace.weights("decoder", 1)[1])


def test_tokens_that_look_like_formulas_are_text(trace, tmp_path):
    strange = Trace(["$x", "a$b$", "\\frac", "</s>"], trace.target_in, trace.target_out, trace.attention)
    figure = figures.attention_heatmap(strange, "cross")
    assert figures.save(figure, tmp_path / "x.png").stat().st_size > 1000  # as a formula, "$x" would not parse
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == strange.source


def test_a_notebook_needs_no_style_sheet_for_the_matrix(trace):
    """Without a fill, a rectangle would be black and cover the weights."""
    drawn = trace._repr_html_()
    rectangles = re.findall("<rect [^>]*>", drawn)
    assert len(rectangles) > 4
    assert all('fill="#' in rectangle and "fill-opacity" in rectangle for rectangle in rectangles)
    assert 'fill="currentColor"' in re.search("<svg [^>]*>", drawn)[0]


def test_the_parameters_of_the_parts_add_up(translator):
    """The matrix that both embeddings and the output share counts once."""
    tree = part_tree(translator.model)
    parts = {part["name"]: part for part in tree["parts"]}
    assert tree["parameters"] == sum(p.numel() for p in translator.model.parameters())
    assert sum(part["parameters"] for part in parts.values()) == tree["parameters"]
    shared = translator.model.head.weight.numel()
    assert (parts["head"]["parameters"], parts["head"]["shared"]) == (0, shared)
    assert parts["head"]["shared_with"] == parts["target_embedding"]["shared_with"] == ["Source embedding"]
    assert parts["source_embedding"]["parameters"] == shared


def test_curves(tmp_path):
    metrics = [{"step": 1, "nll": 3.0}, {"step": 2, "nll": 2.0}, {"step": 2, "valid_loss": 2.5}]
    lines = figures.loss_curve(metrics).axes[0].lines
    assert lines[0].get_xydata().tolist() == [[1, 3], [2, 2]]
    assert lines[1].get_xydata().tolist() == [[2, 2.5]]
    figures.save(figures.loss_curve([]), tmp_path / "empty.png")
    curve = figures.schedule_curve(lambda step, done: 1 / step, 40).axes[0].lines[0].get_xydata()
    assert curve[-1].tolist() == [40, 1 / 40]
    table = np.random.default_rng(0).normal(size=(100, 6))
    figure = figures.positional_encodings(table, shown=10)
    np.testing.assert_allclose(drawn_matrix(figure), table[:10])
    similarity = drawn_matrix(figure, 1)
    np.testing.assert_allclose(np.diag(similarity), 1)


@given(st.text(max_size=30))
def test_a_report_escapes_text(text):
    report = HtmlReport(text, text)
    report.heading(text)
    report.text(text)
    report.numbers([(text, text)])
    report.translations([(text, text, "x")])
    report.code(text)
    report.details(text, text)
    page = report.html()
    inside = page.partition("<main>")[2].partition("</main>")[0]
    allowed = {"h1", "h2", "p", "dl", "dd", "dt", "div", "table", "tr", "th", "td", "pre", "details", "summary"}
    assert set(re.findall(r"</?(\w+)", inside)) <= allowed


def test_a_report_is_self_contained(trace, tmp_path):
    png = figures.save(figures.attention_heatmap(trace), tmp_path / "f.png")
    report = HtmlReport("<script>alert(1)</script>", "lead")
    report.figure(png, 'a "caption" & more')
    page = report.write(tmp_path / "report.html").read_text("utf-8")
    assert "<script>" not in page
    assert not re.search(r"""(src|href)=["'](?!data:)""", page)
    assert base64.b64encode(png.read_bytes()).decode() in page


def test_alignment_by_head_finds_the_head_that_aligns(translator):
    """A cross-attention that attends to the aligned word has an error rate of 0."""

    class Aligned:
        source, target = "a b c", "c b a"
        source_words, target_words = ("a", "b", "c"), ("c", "b", "a")
        alignment = ((0, 2), (1, 1), (2, 0))

    right = torch.zeros(1, 2, 4, 4)
    right[:, 0, [0, 1, 2, 3], [2, 1, 0, 3]] = 1  # head 0: row t attends to source 2 - t
    right[:, 1, :, 3] = 1  # head 1 attends to </s>
    from cutaway.nn.recording import edit_activations

    assert has_alignments([Aligned()])
    assert not has_alignments([object()])
    with edit_activations(translator.model, {"decoder.layers.1.cross_attention.weights": right}):
        rates = alignment_by_head(translator, [Aligned()])
    assert rates[1, 0] == 0
    assert rates[1, 1] == 1
    assert len(rates) == 4
