"""Links to files of the repository that are not pages, such as ../src/cutaway/nn/masks.py.

A .py, .js, .toml or .md file gets a generated page source/PATH.html with an anchor for each line (#L12). A folder
becomes a link to the repository. For a missing file MyST warns, and `make book` fails. The same links work on GitHub.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from cutaway_book import REPOSITORY
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.osutil import relative_uri

LEXERS = {".py": "python", ".js": "javascript", ".toml": "toml", ".md": "markdown"}  # the files that get a page
LINE = re.compile(r'<span id="L-(\d+)"><span class="linenos">( *\d+)</span>')
logger = logging.getLogger(__name__)


class RepositoryLinks(SphinxPostTransform):
    """Resolve links to files and folders of the repository. Links to pages are left for MyST."""

    default_priority = 8  # MyST's resolver has 9

    def run(self, **kwargs: Any) -> None:
        for node, path in list(repository_links(self.document, self.env)):
            name = path.relative_to(self.env.srcdir).as_posix()
            if path.is_dir():
                uri = REPOSITORY + name
            else:
                uri = relative_uri(f"{self.env.docname}.html", f"source/{name}.html") + self.anchor(node, path)
            text = node[0] if node.astext() else nodes.literal("", name)
            node.replace_self(nodes.reference("", "", text, refuri=uri, internal=not path.is_dir()))

    def anchor(self, node: nodes.Element, path: Path) -> str:
        anchor = node.get("reftargetid")
        if not anchor:
            return ""
        lines = len(path.read_text("utf-8").splitlines())
        if not re.fullmatch(r"L\d+", anchor) or not 1 <= int(anchor[1:]) <= lines:
            message = "there is no anchor %r: %s is shown as source, with the anchors L1 to L%d"
            logger.warning(message, anchor, path.name, lines, location=node, type="myst", subtype="xref_missing")
        return f"#{anchor}"


def repository_links(document: nodes.document, env: BuildEnvironment) -> Iterator[tuple[nodes.Element, Path]]:
    """Find the links of a page that lead to a file with a source page, or to a folder."""
    for node in document.findall(nodes.Element):
        if node.get("reftype") == "myst" and (path := linked_path(node, env)):
            yield node, path


def linked_path(node: nodes.Element, env: BuildEnvironment) -> Path | None:
    """The file or folder that a Markdown link leads to; None if it is a page, or if it does not exist.

    MyST makes three kinds of nodes: for a file that could be a page, with its name without suffix; for another file, to
    download; and for everything else, with the text of the link.
    """
    target = node["reftarget"]
    if node.get("refdomain") == "doc":
        if target in env.found_docs:
            return None
        paths = [Path(env.srcdir, target + suffix) for suffix in LEXERS]
        return next((path for path in paths if path.is_file()), None)
    path = Path(env.relfn2path(target, node["refdoc"])[1]).resolve()
    if isinstance(node, addnodes.download_reference):
        return path if path.suffix in LEXERS else None
    return path if path.is_dir() and path.is_relative_to(env.srcdir) and not target.startswith("#") else None


def note_files(app: Sphinx, document: nodes.document) -> None:
    """Read a page again when a file changes that it links to. The dependencies are also the list of source pages."""
    for _, path in repository_links(document, app.env):
        if path.is_file():
            app.env.note_dependency(path)


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Give Sphinx a page for each file that a page links to or shows."""
    if app.builder.format != "html":
        return
    users: dict[Path, list[str]] = {}
    for docname, paths in sorted(app.env.dependencies.items()):
        for path in {Path(app.srcdir, path) for path in paths}:
            users.setdefault(path, []).append(docname)
    for path in sorted(users):
        is_page = app.env.path2doc(path) in app.env.found_docs
        if path.suffix in LEXERS and path.is_relative_to(app.srcdir) and path.is_file() and not is_page:
            name = path.relative_to(app.srcdir).as_posix()
            pagename = f"source/{name}"
            uris = [app.builder.get_relative_uri(pagename, user) for user in users[path]]
            titles = [app.env.titles[user].astext() for user in users[path]]
            pages = ", ".join(
                f'<a href="{escape(uri)}">{escape(title)}</a>' for uri, title in zip(uris, titles, strict=True)
            )
            head = f'<h1 class="source-name"><code>{escape(name)}</code></h1>\n<p>Linked from {pages}.</p>\n'
            yield pagename, {"title": escape(name), "body": head + highlight(app.builder, path)}, "page.html"


def highlight(builder: Any, path: Path) -> str:
    """The lines of a file as HTML. Line 12 has the id L12, and its number links to it."""
    html = builder.highlighter.highlight_block(
        path.read_text("utf-8"), LEXERS[path.suffix], linenos="inline", linespans="L", location=str(path)
    )
    html = LINE.sub(r'<span id="L\1"><a class="linenos" href="#L\1">\2</a>', html)
    return f'<div class="source-page">{html}</div>'


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(RepositoryLinks)
    app.connect("doctree-read", note_files)
    app.connect("html-collect-pages", source_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
