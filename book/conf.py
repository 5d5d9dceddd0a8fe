"""The book. Sphinx reads the whole repository, so that docs, lessons and book share their files. Build: make book."""

import hashlib
import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))


def cache_folder() -> Path:
    """The cache of executed pages. It is for one state of the source: after a change, all pages run again."""
    book, digest = Path(__file__).parent, hashlib.sha256()
    for file in sorted([*(book.parent / "src").rglob("*.py"), *(book / "results").rglob("*.json")]):
        digest.update(file.read_bytes())
    caches, name = book / "_build/cache", digest.hexdigest()[:16]
    for old in caches.glob("*"):
        if old.name != name:
            shutil.rmtree(old, ignore_errors=True)
    return caches / name


project = "Cutaway"
author = "The Cutaway authors"
copyright = "The Cutaway authors"
extensions = ["myst_nb", "cutaway_book", "links", "api"]
root_doc = "book/index"
include_patterns = ["book/**.md", "docs/*.md", "lessons/*.py", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
exclude_patterns = ["book/_build/**"]
if only := os.environ.get("BOOK_ONLY"):  # some pages, to see them quickly: BOOK_ONLY="book/paper/attention.md"
    include_patterns = ["book/index.md", *only.split()]

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
smartquotes = False  # quotes and dashes stay as in the source, also in docstrings
suppress_warnings = ["myst.header", "myst-nb.lexer"]  # without execution, a page does not say that its cells are Python
nb_custom_formats = {".py": ["lesson_reader.read_lesson", {}]}
nb_execution_mode = os.environ.get("BOOK_EXECUTION", "cache")
nb_execution_cache_path = str(cache_folder())
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_render_markdown_format = "gfm"

html_theme = "furo"
html_title = "Cutaway"
pygments_dark_style = "a11y-high-contrast-dark"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_js_files = ["search_files.js"]
python_maximum_signature_line_length = 88
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
