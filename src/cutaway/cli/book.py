"""cutaway book"""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from cutaway.errors import DataError
from cutaway.system.resources import shipped_folder

START_PAGE = "index.html"


def book(
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the browser. Default: on.")] = True,
) -> None:
    """Open the book: the paper, the code and its numbers on one page.

    Example:  cutaway book

    Build it first, in a checkout of the repository: make book.
    """
    page = find_book()
    print(page)
    if open_browser:
        webbrowser.open(page.as_uri())


def find_book() -> Path:
    """The first page of the book, built in this checkout or installed with the package."""
    folder = shipped_folder("book")
    for page in (folder / START_PAGE, folder / "_build/html" / START_PAGE):
        if page.is_file():
            return page.resolve()
    if (folder / "conf.py").is_file():
        raise DataError("the book is not built. Build it with: make book")
    raise DataError(
        "this installation has no book. Clone https://github.com/cutaway-ml/cutaway, and run there: make book"
    )
