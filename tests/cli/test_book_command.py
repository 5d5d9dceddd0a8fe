"""cutaway book: opens the built book, or says how to build it."""

from importlib import import_module

import pytest
from typer.testing import CliRunner

from cutaway.cli import app

command = import_module("cutaway.cli.book")  # cutaway.cli.book is the function


@pytest.fixture
def opened(monkeypatch):
    pages = []
    monkeypatch.setattr("webbrowser.open", pages.append)
    return pages


@pytest.mark.parametrize("place", ["", "_build/html"], ids=["installed", "built"])
def test_it_opens_the_first_page(tmp_path, monkeypatch, opened, place):
    page = tmp_path / place / "index.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("<!doctype html>")
    monkeypatch.setattr(command, "shipped_folder", lambda name: tmp_path)
    result = CliRunner().invoke(app, ["book"])
    assert result.stdout.strip() == str(page.resolve())
    assert opened == [page.resolve().as_uri()]
    CliRunner().invoke(app, ["book", "--no-open"])
    assert len(opened) == 1


@pytest.mark.parametrize(
    ("files", "advice"),
    [(["conf.py"], "Build it with: make book"), ([], "Clone https")],
    ids=["checkout", "installed"],
)
def test_a_missing_book_says_how_to_build_it(tmp_path, monkeypatch, opened, files, advice):
    for name in files:
        (tmp_path / name).touch()
    monkeypatch.setattr(command, "shipped_folder", lambda name: tmp_path)
    result = CliRunner().invoke(app, ["book"])
    assert advice in str(result.exception)
    assert not opened
