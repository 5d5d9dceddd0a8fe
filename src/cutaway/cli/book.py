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

    In a checkout, build it first: make book.
    """
    page = find_book()
    print(page)
    if open_browser:
        webbrowser.open(page.as_uri())


def find_book() -> Path:
    """The first page of the book that is installed with the package, or that `make book` built in this checkout."""
    folder = shipped_folder("book")
    for page in (folder / START_PAGE, folder / "_build/html" / START_PAGE):
        if page.is_file():
            return page.resolve()
    raise DataError("the book is not built. In a checkout of the repository, run: make book")
