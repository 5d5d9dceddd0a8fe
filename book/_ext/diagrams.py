"""The directive `flow`: a data-flow diagram as SVG, drawn when the book is built. Data flows upwards, as in the paper.

    ```{flow} encoder-layer
    ```

A description starts with a caption and the width of a column. Each further line is a box, or edges between boxes:

    name  [[Label | code]]  @-1..0      a box; after @ its column, or its first and last column (0 without it)
          [[...]] has learned weights, [...] has none, (...) is an input or output, ((+)) is an operation
    a -> b -> c  [2,4,512]              edges with a label: the shape of the tensor
    a ~> b  [2,4,512]                   a residual connection, at the right side
    a } b  label                        a brace at the right side, from box a to box b

A row holds the boxes with the same longest path from an input.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

DIAGRAMS = {
    "transformer": """
        The Transformer for a batch of 2, source length 5, target length 4, width 512 and 37,000 tokens. | 168
        source   (source ids)
        target   (target ids)  @1
        embed_s  [[Embed + positions | source_embedding]]
        embed_t  [[Embed + positions | target_embedding]]  @1
        encoder  [[6 encoder layers | encoder]]
        decoder  [[6 decoder layers | decoder]]  @1
        head     [[Linear | head]]  @1
        output   (logits)  @1
        source -> embed_s  [2,5]
        target -> embed_t  [2,4]
        embed_s -> encoder  [2,5,512]
        embed_t -> decoder  [2,4,512]
        encoder -> decoder  memory [2,5,512]
        decoder -> head  [2,4,512]
        head -> output  [2,4,37000]
    """,
    "encoder-layer": """
        An encoder layer for a batch of 2, length 4 and width 512. | 196
        x          (x)
        attention  [[Self-attention | self_attention]]
        norm1      [[Add and norm | self_attention_residual]]
        forward    [[Feed-forward | feed_forward]]
        norm2      [[Add and norm | feed_forward_residual]]
        output     (output)
        x -> attention -> norm1 -> forward -> norm2 -> output  [2,4,512]
        x ~> norm1  [2,4,512]
        norm1 ~> norm2  [2,4,512]
    """,
    "decoder-layer": """
        A decoder layer for a batch of 2, target length 4, source length 5 and width 512. | 196
        x          (x)
        memory     (memory)  @-0.8
        masked     [[Masked self-attention | self_attention]]
        norm1      [[Add and norm | self_attention_residual]]
        cross      [[Cross-attention | cross_attention]]
        norm2      [[Add and norm | cross_attention_residual]]
        forward    [[Feed-forward | feed_forward]]
        norm3      [[Add and norm | feed_forward_residual]]
        output     (output)
        x -> masked -> norm1  [2,4,512]
        norm1 -> cross  queries [2,4,512]
        memory -> cross  keys and values [2,5,512]
        cross -> norm2 -> forward -> norm3 -> output  [2,4,512]
        x ~> norm1  [2,4,512]
        norm1 ~> norm2  [2,4,512]
        norm2 ~> norm3  [2,4,512]
    """,
    "multi-head-attention": """
        Multi-head self-attention with 8 heads of width 64, for a batch of 2, length 4 and width 512. | 106
        x        (x)  @-1..1
        query    [[Linear | query]]  @-1
        key      [[Linear | key]]  @0
        value    [[Linear | value]]  @1
        q        [Split heads | q]  @-1
        k        [Split heads | k]  @0
        v        [Split heads | v]  @1
        scores   [q kᵀ / √64 | scores]  @-1..0
        weights  [Mask and softmax | weights]  @-1..0
        heads    [weights · v | heads]  @-1..1
        merge    [Merge heads | merge]  @-1..1
        linear   [[Linear | output]]  @-1..1
        output   (output)  @-1..1
        x -> query -> q  [2,4,512]
        x -> key -> k  [2,4,512]
        x -> value -> v  [2,4,512]
        q -> scores  [2,8,4,64]
        k -> scores  [2,8,4,64]
        v -> heads  [2,8,4,64]
        scores -> weights -> heads  [2,8,4,4]
        heads -> merge  [2,8,4,64]
        merge -> linear -> output  [2,4,512]
        scores } heads  equation 1, for each head
    """,
    "add-and-norm": """
        Post-norm around a sub-layer (attention or feed-forward), for a batch of 2, length 4 and width 512. | 196
        x        (x)
        f        [[Sub-layer | sublayer]]
        dropout  [Dropout | dropout]
        add      ((+))
        norm     [[LayerNorm | norm]]
        output   (output)
        x -> f -> dropout -> add -> norm -> output  [2,4,512]
        x ~> add  residual [2,4,512]
    """,
    "feed-forward": """
        The feed-forward network with hidden width 2048, for a batch of 2, length 4 and width 512. | 196
        x           (x)
        expand      [[Linear, 512 to 2048 | expand]]
        activation  [ReLU | activation]
        contract    [[Linear, 2048 to 512 | contract]]
        output      (output)
        x -> expand  [2,4,512]
        expand -> activation -> contract  [2,4,2048]
        contract -> output  [2,4,512]
    """,
}

LEGEND = "Data flows upwards. Shaded boxes have learned weights."
GAP = 36  # between two rows
FORK = 11  # from a box to the corner of the residual connection that starts there
SIDE = 18  # from the boxes to a residual connection or brace
STYLE = """
.flow { margin: 1.5rem 0; break-inside: avoid }
.flow figcaption { margin-top: .75rem; text-align: center; text-wrap: balance; font-size: .875em }
.flow svg { display: block; width: 100%; height: auto; margin: 0 auto }
.flow :is(rect, polyline) { fill: none; stroke: currentColor; stroke-width: 1.2; stroke-linejoin: round }
.flow .learned { color: var(--color-brand-content, #2757dd); fill: currentColor; fill-opacity: .12 }
.flow :is(text, marker) { fill: currentColor; font: 14px var(--font-stack, sans-serif); text-anchor: middle }
.flow .code { fill: var(--color-foreground-secondary, #5a5c63); font: 12px var(--font-stack--monospace, monospace) }
.flow .beside { text-anchor: end }
"""


@dataclass
class Box:
    bracket: str
    label: str
    code: str
    first: float  # column
    last: float
    row: int = 0
    left: float = 0
    right: float = 0
    top: float = 0
    bottom: float = 0

    @property
    def centre(self) -> tuple[float, float]:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2


@dataclass
class Edge:
    source: Box
    target: Box
    kind: str  # "->", "~>" or "}"
    label: str
    points: list[tuple[float, float]] = field(default_factory=list)


def lay_out(description: str) -> tuple[str, list[Box], list[Edge]]:
    """Return the caption, and boxes and edges with their coordinates."""
    heading, *lines = description.strip().splitlines()
    caption, pitch = heading.split(" | ")
    boxes: dict[str, Box] = {}
    edges = []
    for line in map(str.strip, lines):
        if match := re.fullmatch(r"(\w+) +([\[(]+)(.+?)(?: \| (\w+))?[\])]+(?: +@([-\d.]+?)(?:\.\.(.+))?)?", line):
            name, bracket, label, code, first, last = match.groups()
            boxes[name] = Box(bracket, label, code or "", float(first or 0), float(last or first or 0))
        else:
            chain, label = re.split("  +", line)
            kind = chain.split()[1]
            edges += [Edge(boxes[a], boxes[b], kind, label) for a, b in pairwise(chain.split(f" {kind} "))]
    place(list(boxes.values()), edges, float(pitch))
    route(list(boxes.values()), edges, float(pitch))
    return caption, list(boxes.values()), edges


def place(boxes: list[Box], edges: list[Edge], pitch: float) -> None:
    """Set the rows and sides of the boxes. The lowest row ends at y = 0."""
    for _ in boxes:  # long enough for the longest path
        for edge in edges:
            edge.target.row = max(edge.target.row, edge.source.row + 1)
    bottom = 0.0
    for row in range(max(box.row for box in boxes) + 1):
        for box in (inside := [box for box in boxes if box.row == row]):
            width, height = (box.last - box.first + 1) * pitch - 12, 44
            if box.bracket in ("(", "(("):
                width, height = 24 + 8 * len(box.label) if box.first == box.last else width, 28
            x = (box.first + box.last) / 2 * pitch
            box.left, box.right, box.top, box.bottom = x - width / 2, x + width / 2, bottom - height, bottom
        bottom = min(box.top for box in inside) - GAP


def route(boxes: list[Box], edges: list[Edge], pitch: float) -> None:
    """Set the points of the edges: straight up if both boxes share a column, otherwise to a side of the target."""
    side = max(box.right for box in boxes) + SIDE
    for edge in edges:
        a, b = edge.source, edge.target
        first, last = max(a.first, b.first), min(a.last, b.last)
        x, y = (first + last) / 2 * pitch, b.centre[1]
        if edge.kind == "}":
            edge.points = [(side - 6, a.bottom), (side, a.bottom), (side, b.top), (side - 6, b.top)]
        elif edge.kind == "~>":
            edge.points = [(x, a.top), (x, a.top - FORK), (side, a.top - FORK), (side, y), (b.right, y)]
        elif first <= last:
            edge.points = [(x, a.top), (x, b.bottom)]
        else:
            x = a.centre[0]
            edge.points = [(x, a.top), (x, y), (b.left if x < b.left else b.right, y)]


def draw(description: str, name: str) -> str:
    """A figure with the diagram as SVG. A screen reader reads the caption and the steps."""
    caption, boxes, edges = lay_out(description)
    xs = [x for edge in edges for x, _ in edge.points] + [x for box in boxes for x in (box.left, box.right)]
    beside = [edge.points[0][0] - 8 - 7.3 * len(edge.label) for edge in edges if len(edge.points) == 2]
    left, right, top = min(xs + beside) - 2, max(xs) + 2, min(box.top for box in boxes) - 2
    if right > max(box.right for box in boxes) + 2:  # a turned label is there
        right += SIDE
    steps = "; ".join(f"{e.source.label} to {e.target.label} {e.label}" for e in edges if e.kind != "}")
    drawn = "\n".join([*(draw_edge(edge, f"{name}-tip") for edge in edges), *map(draw_box, boxes)])
    return f"""<figure class="flow">
<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:g} {top:g} {right - left:g} {2 - top:g}"
  style="max-width: {right - left:g}px" role="img" aria-labelledby="{name}-title {name}-desc">
<title id="{name}-title">{escape(caption)}</title>
<desc id="{name}-desc">Data flows from {escape(steps)}.</desc>
<style>{STYLE}</style>
<marker id="{name}-tip" markerWidth="8" markerHeight="8" refX="8" refY="4" markerUnits="userSpaceOnUse" orient="auto">
<path d="M0 0L8 4L0 8z"/></marker>
{drawn}
</svg>
<figcaption>{escape(caption)} {LEGEND}</figcaption></figure>"""


def draw_box(box: Box) -> str:
    """A rectangle with the label and, below it, the name in the code."""
    x, y = box.centre
    width, height = box.right - box.left, box.bottom - box.top
    style, radius = "learned" if box.bracket == "[[" else "plain", 5 if box.bracket[0] == "[" else height / 2
    size = f'x="{box.left:g}" y="{box.top:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"'
    code = draw_text(box.code, x, y + 14, "code") if box.code else ""
    return f'<rect class="{style}" {size}/>' + draw_text(box.label, x, y - 3 if code else y + 5) + code


def draw_edge(edge: Edge, tip: str) -> str:
    """A line and its label: at the left of a straight line, otherwise turned, along the vertical part if it fits."""
    points = " ".join(f"{x:g},{y:g}" for x, y in edge.points)
    arrow = f' marker-end="url(#{tip})"' if edge.kind != "}" else ""
    if len(edge.points) == 2:
        x, y = edge.points[0]
        label = draw_text(edge.label, x - 8, y - GAP / 2 + 4, "code beside")
    else:
        (x, y), (_, end) = edge.points[-3:-1]
        if 7.3 * len(edge.label) > abs(end - y) + 44:  # too long for the vertical part: above the last one
            label = draw_text(edge.label, edge.points[-1][0] - 10, end - 7, "code beside")
        else:
            label = draw_text(edge.label, x + (14 if len(edge.points) > 3 else -7), (y + end) / 2, "code", turned=True)
    return f'<polyline points="{points}"{arrow}/>{label}'


def draw_text(text: str, x: float, y: float, style: str = "label", turned: bool = False) -> str:
    turn = f' transform="rotate(-90 {x:g} {y:g})"' if turned else ""
    return f'<text class="{style}" x="{x:g}" y="{y:g}"{turn}>{escape(text)}</text>'


class FlowDirective(SphinxDirective):
    """Draw a diagram of DIAGRAMS. A name that does not exist fails the build."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if name not in DIAGRAMS:
            raise ExtensionError(f"{self.get_location()}: no diagram is named {name!r}. Use {', '.join(DIAGRAMS)}.")
        self.env.note_dependency(__file__)
        figure = draw(DIAGRAMS[name], f"flow{self.env.new_serialno('flow')}-{name}")
        return [nodes.raw("", figure, format="html")]


def setup_diagrams(app: Sphinx) -> None:
    app.add_directive("flow", FlowDirective)
