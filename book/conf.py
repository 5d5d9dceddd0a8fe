"""The book. Sphinx reads the whole repository, so that docs, lessons and book share their files. Build: make book."""

import hashlib
import logging
import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
# The cells of the pages import book/cells.py.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))

logging.getLogger("traitlets").setLevel(logging.WARNING)  # else a line for each page that runs


def ipython_folder() -> Path:
    """Settings for the kernels that run the pages: those of the reader's own IPython do not count."""
    folder = Path(__file__).parent / "_build/ipython"
    profile = folder / "profile_default/ipython_kernel_config.py"
    profile.parent.mkdir(parents=True, exist_ok=True)
    profile.write_text("c = get_config()\nc.IPKernelApp.log_level = 40\n", encoding="utf-8")
    return folder


os.environ["IPYTHONDIR"] = str(ipython_folder())


def files_read_by_cells(root: Path) -> list[Path]:
    """The source, results of the lab, and the demo's run: cells depend on them."""
    book, demo = root / "book", root / "runs/demo"
    files = [*(root / "src").rglob("*.py"), *(root / "experiments").glob("*.toml"), *(book / "results").rglob("*.json")]
    run = [*demo.glob("*.safetensors"), *demo.glob("*.json"), *demo.glob("*.jsonl")]
    return sorted([*files, *run, book / "cells.py", root / "constraints.txt"])


def cache_folder() -> Path:
    """The cache of executed pages. It is for one state of these files: after a change, all pages run again."""
    book, digest = Path(__file__).parent, hashlib.sha256()
    for file in files_read_by_cells(book.parent):
        digest.update(file.read_bytes())
    caches, name = book / "_build/cache", digest.hexdigest()[:16]
    for old in caches.glob("*"):
        if old.name != name:
            shutil.rmtree(old, ignore_errors=True)
    return caches / name


project = "Cutaway"
author = "The Cutaway authors"
copyright = "The Cutaway authors"
extensions = ["myst_nb", "cutaway_book", "links", "api", "numbers_check", "failed_cells"]
root_doc = "book/index"
include_patterns = ["book/**.md", "docs/*.md", "lessons/*.py", "benchmarks/README.md"]
include_patterns += ["CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
exclude_patterns = ["book/_build/**"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
smartquotes = False  # quotes and dashes stay as in the source, also in docstrings
# Without execution, a page does not say that its cells are Python (lexer). failed_cells.py reports failures (exec).
suppress_warnings = ["myst.header", "myst-nb.lexer", "mystnb.exec"]
if only := os.environ.get("BOOK_ONLY"):  # some pages, to see them quickly: BOOK_ONLY="book/paper/attention.md"
    include_patterns = ["book/index.md", *only.split()]
    suppress_warnings += ["myst.xref_missing", "toc.not_readable"]  # links to the other pages
nb_custom_formats = {".py": ["lesson_reader.read_lesson", {}]}
nb_execution_mode = os.environ.get("BOOK_EXECUTION", "cache")
nb_execution_cache_path = str(cache_folder())
nb_execution_timeout = 600
nb_execution_raise_on_error = False  # failed_cells.py reports them
nb_merge_streams = True
nb_render_markdown_format = "gfm"

html_theme = "furo"
html_title = "Cutaway"
pygments_dark_style = "a11y-high-contrast-dark"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_js_files = ["search_files.js", "print.js"]
python_maximum_signature_line_length = 88
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
