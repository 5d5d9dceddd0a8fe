"""The book's links to the source: code cut by name, generated source pages, folders, missing files."""

import io
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXTENSIONS = str(ROOT / "book/_ext")


@pytest.fixture(autouse=True)
def extensions_on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(EXTENSIONS)


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("nn.kernels.attend_exact", "def attend_exact(", "    return "),
        ("nn.attention.MultiHeadAttention.forward", "def forward(", "    return "),
        ("nn.masks.Span", "@dataclass(frozen=True)", "    "),
        ("nn.kernels.MAX_DENSE_ENTRIES", "MAX_DENSE_ENTRIES = ", "MAX_DENSE_ENTRIES = "),
    ],
)
def test_cut_finds_code_by_its_name(name, first, last):
    from cutaway_book import cut

    path, line, lines = cut(name, with_docstring=False)
    assert lines[0].startswith(first)
    assert lines[-1].startswith(last)
    assert '"""' not in "".join(lines[:3])
    assert path.read_text("utf-8").splitlines()[line - 1].strip() == lines[0]


def test_cut_keeps_the_docstring_if_asked():
    from cutaway_book import cut

    with_it, without = (len(cut("nn.masks.Span", with_docstring=each)[2]) for each in (True, False))
    assert with_it > without


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nn.kernels.attend_exactly", "kernels.py has no 'attend_exactly'"),
        ("nn.attention.MultiHeadAttention.forwards", "has no 'MultiHeadAttention.forwards'"),
        ("nn.colonels.attend_exact", "there is no module"),
        ("nn.kernels", "is a whole module"),
    ],
)
def test_cut_fails_for_a_name_that_does_not_exist(name, message):
    from cutaway_book import cut

    with pytest.raises(LookupError, match=message):
        cut(name, with_docstring=False)


@pytest.fixture
def build(tmp_path):
    """Build a small repository with the page docs/page.md. Return its HTML, the warnings and the folder of the pages."""

    def run(text, masks="x = 1 < 2\n\n\ndef f():\n    return x\n"):
        from sphinx.application import Sphinx
        from sphinx.util.docutils import docutils_namespace

        files = {
            "docs/page.md": f"# A page\n\n{text}\n",
            "docs/other.md": "---\norphan:\n---\n# Another page\n",
            "src/masks.py": masks,
            "recipes/demo.toml": "[model]\nd_model = 8\n",
            "README.md": "# Read me\n",
        }
        for name, content in files.items():
            path = tmp_path / "repository" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_text("utf-8") != content:
                path.write_text(content, encoding="utf-8")
        settings = {
            "extensions": ["myst_parser", "links"],
            "root_doc": "docs/page",
            "include_patterns": ["docs/*.md"],
            "source_suffix": {".md": "markdown", ".py": "markdown"},
            "html_theme": "basic",
        }
        warnings = io.StringIO()
        folder, out = tmp_path / "repository", tmp_path / "out"
        with docutils_namespace():  # the next build registers its directives again
            app = Sphinx(folder, None, out, tmp_path / "doctrees", "html", settings, status=None, warning=warnings)
            app.build()
        return (out / "docs/page.html").read_text("utf-8"), warnings.getvalue(), out

    return run


def test_a_file_gets_a_source_page_with_line_anchors(build):
    html, warnings, out = build(
        "[masks](../src/masks.py), [line 4](../src/masks.py#L4), [recipe](../recipes/demo.toml), [readme](../README.md)"
    )
    assert not warnings
    for target in ("src/masks.py.html", "src/masks.py.html#L4", "recipes/demo.toml.html", "README.md.html"):
        assert f'href="../source/{target}"' in html
    page = (out / "source/src/masks.py.html").read_text("utf-8")
    assert '<span id="L4"><a class="linenos" href="#L4">' in page
    assert page.count('class="linenos"') == 5
    assert 'href="../../docs/page.html">A page</a>' in page
    assert "d_model" in (out / "source/recipes/demo.toml.html").read_text("utf-8")


def test_a_changed_file_is_shown_by_the_next_build(build):
    build("[masks](../src/masks.py)")
    _, _, out = build("[masks](../src/masks.py)", masks="y = 2\n")
    page = (out / "source/src/masks.py.html").read_text("utf-8")
    assert page.count('class="linenos"') == 1


def test_a_folder_links_to_the_repository(build):
    from cutaway_book import REPOSITORY

    html, warnings, _ = build("[the source](../src), [with a slash](../recipes/)")
    assert not warnings
    assert f'href="{REPOSITORY}src"' in html
    assert f'href="{REPOSITORY}recipes"' in html


def test_a_link_to_a_page_has_no_source_page(build):
    html, warnings, out = build("[another](other.md)")
    assert not warnings
    assert 'href="other.html"' in html
    assert not (out / "source").exists()


@pytest.mark.parametrize(
    "target",
    ["../src/gone.py", "../gone", "gone.md", "../recipes/gone.toml", "../src/masks.py#L6", "../README.md#usage"],
)
def test_a_link_that_leads_nowhere_warns(build, target):
    """`make book` turns warnings into errors."""
    _, warnings, _ = build(f"[gone]({target})")
    assert "page.md" in warnings
    assert target.partition("#")[2] or target in warnings


def test_the_reference_shows_signatures_as_in_the_source():
    from api import describe, read_groups, signature_of

    import cutaway

    groups = dict(read_groups((ROOT / "docs/api.md").read_text("utf-8")))
    assert sorted(name for rows in groups.values() for name, _ in rows) == cutaway.__all__
    assert signature_of(cutaway.read_lines) == "(path: str | Path) -> Iterator[str]"
    entry = describe(cutaway, "Tokenizer", dict(groups["Data"])["Tokenizer"], ROOT / "book/reference")
    assert "````{py:method} encode(text: str, continues: bool = False) -> list[int]" in entry
    assert entry.count(":classmethod:") == 2  # train and open


def test_cut_finds_javascript(tmp_path, monkeypatch):
    import cutaway_book

    code = (
        "/** Adds. */\nexport function add(a,\n                    b) {\n  return a + b;\n}\n\n"
        "export class Box {\n  constructor(x) {\n    this.x = x;\n  }\n\n  /** Opens. */\n  open() {\n    return this.x;\n  }\n}\n"
    )
    (tmp_path / "page").mkdir()
    (tmp_path / "page/box.js").write_text(code)
    monkeypatch.setattr(cutaway_book, "SOURCE", tmp_path)
    monkeypatch.setattr(cutaway_book, "ROOT", tmp_path)
    path, line, lines = cutaway_book.cut("page.box.add", with_docstring=False)
    assert (path.name, line, lines[0], lines[-1], len(lines)) == ("box.js", 2, "export function add(a,", "}", 4)
    assert cutaway_book.cut("page.box.Box.open", with_docstring=True)[1:] == (
        12,
        ["/** Opens. */", "open() {", "  return this.x;", "}"],
    )
    assert len(cutaway_book.cut("page.box.Box", with_docstring=False)[2]) == 10
    with pytest.raises(LookupError, match=r"page/box\.js has no 'Box\.close'"):
        cutaway_book.cut("page.box.Box.close", with_docstring=False)


def test_every_page_of_the_docs_is_in_the_contents():
    """`make book` checks this too, but takes minutes."""
    contents = "\n".join(path.read_text("utf-8") for path in (ROOT / "book").glob("*/index.md")) + (
        ROOT / "book/index.md"
    ).read_text("utf-8")
    assert not [path.name for path in (ROOT / "docs").glob("*.md") if f"docs/{path.stem}\n" not in contents]
