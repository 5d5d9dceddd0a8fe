"""Sphinx directives and renderers of the book.

    ```{source} nn.attention.MultiHeadAttention.forward      the code of an object, cut from the source by its name
    ```
    ```{source} explore.page.engine.kernels.attendExact      the same for JavaScript
    ```

Equations become MathML at build time, so pages need neither JavaScript nor fonts for them.
"""

from __future__ import annotations

import ast
import re
from html import escape
from pathlib import Path
from typing import Any

from diagrams import setup_diagrams
from docutils import nodes
from docutils.parsers.rst import directives
from latex2mathml.converter import convert
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "cutaway"
REPOSITORY = "https://github.com/cutaway-ml/cutaway/blob/main/"


class SourceDirective(SphinxDirective):
    """The source lines of a function, class or method. A name that does not exist fails the build."""

    required_arguments = 1
    option_spec = {"docstring": directives.flag}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        try:
            path, first, lines = cut(self.arguments[0], "docstring" in self.options)
        except LookupError as error:
            raise self.error(f"{error} Rename it in this page too.") from None
        self.env.note_dependency(str(path))
        language = "javascript" if path.suffix == ".js" else "python"
        code = nodes.literal_block("\n".join(lines), "\n".join(lines), language=language)
        caption = nodes.caption("", "")
        caption += source_link(self.env.docname, path, first)
        return [nodes.container("", caption, code, literal_block=True, classes=["source"])]


def cut(name: str, with_docstring: bool) -> tuple[Path, int, list[str]]:
    """Find `package.module.Class.method` below cutaway/. Return the file, the first line number and the lines."""
    parts = name.split(".")
    files = ((count, suffix) for count in range(len(parts), 0, -1) for suffix in (".py", ".js"))
    for count, suffix in files:
        path = SOURCE.joinpath(*parts[:count]).with_suffix(suffix)
        if path.is_file():
            break
    else:
        raise LookupError(f"there is no module for {name!r} in {SOURCE.relative_to(ROOT)}.")
    text = path.read_text("utf-8")
    if count == len(parts):
        raise LookupError(f"{name!r} is a whole module. Name a function, class or variable in it.")
    if suffix == ".js":
        return path, *cut_javascript(path, text.splitlines(), parts[count:], with_docstring)
    node: Any = ast.parse(text)
    for part in parts[count:]:
        node = next((each for each in node.body if getattr(each, "name", target_of(each)) == part), None)
        if node is None:
            raise LookupError(f"{path.relative_to(ROOT)} has no {'.'.join(parts[count:])!r}.")
    start = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    lines = text.splitlines()[start - 1 : node.end_lineno]
    if not with_docstring and isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
        first = node.body[0]
        del lines[first.lineno - start : first.end_lineno - start + 1]
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return path, start, [line[indent:] for line in lines]


def cut_javascript(path: Path, lines: list[str], names: list[str], with_comment: bool) -> tuple[int, list[str]]:
    """A function, a class, or a method of a class: from its first line to the brace that ends it."""
    start, end, indent = 0, len(lines), ""
    for name in names:
        pattern = rf"{indent}((export )?(async )?(function|class) {name}\b|(async |static )?{name}\()"
        start = next((i for i in range(start, end) if re.match(pattern, lines[i])), -1)
        if start < 0:
            raise LookupError(f"{path.relative_to(ROOT)} has no {'.'.join(names)!r}.")
        end = next(i for i in range(start, end) if lines[i] == f"{indent}}}") + 1
        indent += "  "
    if with_comment and lines[start - 1].endswith("*/"):
        start = next(i for i in range(start - 1, -1, -1) if lines[i].lstrip().startswith("/**"))
    cut_off = len(indent) - 2
    return start + 1, [line[cut_off:] for line in lines[start:end]]


def source_link(docname: str, path: Path, line: int) -> addnodes.pending_xref:
    """A link to a line of a Python file, on the page that links.py generates."""
    name = path.relative_to(ROOT)
    text = f"{name.as_posix()}, line {line}"
    return addnodes.pending_xref(
        "",
        nodes.inline("", text),
        refdomain="doc",
        reftype="myst",
        refdoc=docname,
        reftarget=name.with_suffix("").as_posix(),
        reftargetid=f"L{line}",
        refexplicit=True,
    )


def target_of(node: ast.stmt) -> str:
    """The name that an assignment defines."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else ""


def visit_math(self: Any, node: nodes.math) -> None:
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def visit_math_block(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math" role="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def improve_accessibility(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Correct what axe-core reports in the HTML of Sphinx, MyST-NB and the theme."""
    tree = "furo_navigation_tree"
    context[tree] = context.get(tree, "").replace('role="heading"', 'role="heading" aria-level="2"')
    body = context.get("body", "").replace(' aria-label="Toggle hidden content"', "")
    context["body"] = body.replace("<pre>", '<pre tabindex="0">')  # a long line can be scrolled with the keyboard


def write_start_page(app: Sphinx, error: Exception | None) -> None:
    """Open the book at the top of the folder: the pages keep the paths of their files."""
    if error is None and app.builder.format == "html":
        target = escape(app.config.root_doc) + ".html"
        refresh = f'<meta http-equiv="refresh" content="0; url={target}">'
        page = f'<!doctype html><meta charset="utf-8"><title>Cutaway</title>{refresh}<a href="{target}">The book</a>\n'
        Path(app.outdir, "index.html").write_text(page, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    from course import setup_course
    from lab_results import setup_lab
    from live_models import setup_live_models

    setup_course(app)
    setup_lab(app)
    setup_live_models(app)
    app.add_directive("source", SourceDirective)
    setup_diagrams(app)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    app.connect("html-page-context", improve_accessibility, priority=900)  # after the theme
    app.connect("build-finished", write_start_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
