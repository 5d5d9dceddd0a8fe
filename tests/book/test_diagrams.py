"""The diagrams of the book: the drawing itself, and its names and shapes, which are compared with the real modules."""

import subprocess
import sys
from dataclasses import replace
from functools import cache, partial
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

from cutaway import build_model, preset
from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.feedforward import FeedForward
from cutaway.nn.layers import Layer
from cutaway.nn.residual import PostNorm

EXTENSIONS = Path(__file__).parents[2] / "book" / "_ext"
sys.path.append(str(EXTENSIONS))
from diagrams import DIAGRAMS, draw, lay_out  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
every_diagram = pytest.mark.parametrize("name", list(DIAGRAMS))


@every_diagram
def test_figure_is_well_formed_and_accessible(name):
    figure = ElementTree.fromstring(draw(DIAGRAMS[name], name))
    svg = figure.find(f"{SVG}svg")
    ids = [element.get("id") for element in figure.iter() if element.get("id")]
    assert svg.get("role") == "img"
    assert set(svg.get("aria-labelledby").split()) < set(ids)
    assert len(ids) == len(set(ids))
    assert svg.find(f"{SVG}title").text in figure.find("figcaption").text
    for label in {box.label for box in lay_out(DIAGRAMS[name])[1]}:
        assert label in svg.find(f"{SVG}desc").text


@every_diagram
def test_everything_is_inside_the_picture(name):
    figure = ElementTree.fromstring(draw(DIAGRAMS[name], name))
    left, top, width, height = map(float, figure.find(f"{SVG}svg").get("viewBox").split())
    _, boxes, edges = lay_out(DIAGRAMS[name])
    corners = [point for box in boxes for point in ((box.left, box.top), (box.right, box.bottom))]
    for x, y in corners + [point for edge in edges for point in edge.points]:
        assert left < x < left + width
        assert top < y < top + height
    assert width <= 390, "too wide for a phone: the text would be too small"


@every_diagram
def test_boxes_do_not_overlap_and_hold_their_text(name):
    _, boxes, _ = lay_out(DIAGRAMS[name])
    for a, b in combinations(boxes, 2):
        assert a.right < b.left or b.right < a.left or a.bottom < b.top or b.bottom < a.top, (a.label, b.label)
    for box in boxes:
        assert 7.3 * max(len(box.label), len(box.code)) < box.right - box.left, box.label


@every_diagram
def test_edges_connect_boxes_and_cross_none(name):
    _, boxes, edges = lay_out(DIAGRAMS[name])
    for edge in edges:
        if edge.kind == "}":
            continue
        assert is_on_border(edge.points[0], edge.source)
        assert is_on_border(edge.points[-1], edge.target)
        for (x0, y0), (x1, y1) in pairwise(edge.points):
            assert x0 == x1 or y0 == y1, "a slanted line"
            for box in boxes:
                beside = max(x0, x1) <= box.left or min(x0, x1) >= box.right
                assert beside or max(y0, y1) <= box.top or min(y0, y1) >= box.bottom, (edge.label, box.label)
    assert {id(box) for edge in edges for box in (edge.source, edge.target)} == {id(box) for box in boxes}


def is_on_border(point, box):
    x, y = point
    on_side = x in (box.left, box.right) and box.top <= y <= box.bottom
    return on_side or (y in (box.top, box.bottom) and box.left <= x <= box.right)


@cache
def modules():
    """The module that each diagram shows, and a call of it: batch 2, length 4, source length 5, width 512."""
    attention, residual = partial(MultiHeadAttention, 512, 8), partial(PostNorm, partial(nn.LayerNorm, 512), 0.1)
    feed_forward = partial(FeedForward, 512, 2048, nn.ReLU())
    encoder_layer = Layer(attention(), feed_forward(), residual(), residual())
    decoder_layer = Layer(attention(), feed_forward(), residual(), residual(), attention(), residual())
    x, memory = torch.zeros(2, 4, 512), torch.zeros(2, 5, 512)
    transformer = build_model(replace(preset("paper-base"), encoder_layers=1, decoder_layers=1))
    return {
        "transformer": (transformer, (torch.zeros(2, 5).long(), torch.zeros(2, 4).long())),
        "encoder-layer": (encoder_layer, (x,)),
        "decoder-layer": (decoder_layer, (x, None, memory)),
        "multi-head-attention": (attention(), (x,)),
        "add-and-norm": (residual(), (x, nn.Identity())),
        "feed-forward": (feed_forward(), (x,)),
    }


@every_diagram
def test_names_and_shapes_are_those_of_the_module(name):
    """A box with a code name is a part of the module, and the edges that leave it have the shape of its output."""
    module, arguments = modules()[name]
    shapes = {}
    for part, child in module.named_children():
        child.register_forward_hook(lambda _m, _i, output, part=part: shapes.update({part: list(output.shape)}))
    if name == "multi-head-attention":
        module.scores.watchers.append(lambda _: None)  # otherwise the fused kernel runs, which shows no weights
    module(*arguments)
    _, boxes, edges = lay_out(DIAGRAMS[name])
    for box in boxes:
        assert not box.code or box.code == "sublayer" or hasattr(module, box.code), box.code
        has_weights = any(True for _ in getattr(getattr(module, box.code, None), "parameters", list)())
        assert box.code == "sublayer" or has_weights == (box.bracket == "[["), box.label
    for edge in edges:
        if edge.source.code in shapes and edge.kind != "}":
            assert edge.label.split()[-1] == str(shapes[edge.source.code]).replace(" ", ""), edge.label
    compared = {box.code for box in boxes} & set(shapes)
    assert len(compared) >= 2


def test_an_unknown_name_fails_the_build(tmp_path):
    (tmp_path / "conf.py").write_text(
        f"import sys\nsys.path.append({str(EXTENSIONS)!r})\nfrom diagrams import setup_diagrams as setup\n"
        "extensions = ['myst_parser']\n"
    )
    (tmp_path / "index.md").write_text("# Page\n\n```{flow} feed-forward\n```\n")
    build = [sys.executable, "-m", "sphinx", "-q", "-b", "html", tmp_path, tmp_path / "out"]
    result = subprocess.run(build, capture_output=True, text=True, timeout=100)
    assert (result.returncode, result.stderr) == (0, "")
    assert '<figure class="flow">' in (tmp_path / "out/index.html").read_text("utf-8")
    (tmp_path / "index.md").write_text("# Page\n\n```{flow} feed-backward\n```\n")
    result = subprocess.run(build, capture_output=True, text=True, timeout=100)
    assert result.returncode != 0
    assert "index.md:3: no diagram is named 'feed-backward'. Use transformer, encoder-layer, " in result.stderr
