"""The texts of the explorer's page."""

import re
from pathlib import Path

import cutaway

PAGE = Path(cutaway.__file__).parent / "explore/page"


def test_no_text_says_that_large_values_are_dark():
    """In the dark theme they are light."""
    texts = {path.name: path.read_text("utf-8") for path in PAGE.rglob("*.js")}
    assert "tour.js" in texts
    assert [name for name, text in texts.items() if re.search(r"dark(er)? cells?\b|\bdarker\b", text)] == []
