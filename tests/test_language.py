"""The language of names and texts: ordinary technical English, one word for one thing (CONTRIBUTING.md, Style)."""

import ast
import io
import re
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "cutaway"

# Words of a private language that the project once had. They are not allowed in names, strings, comments or pages.
BANNED = re.compile(
    r"(?<![a-z])(?:"
    r"told|mourn\w*|farewell\w*|wish(?:es|ed)?|mend(?:s|ed|ing)?|so-many-th|hearken\w*|of which there|"
    r"stands? still|for ever|move_in|move_out|turned_vectors|look_around|hands_for|by hands|"
    r"could not be worked|the former|such a one|a stranger"
    r")(?![a-z])",
    re.IGNORECASE,
)
# Parts of names ("is_told", "WishList") that describe nothing a reader could search for.
BANNED_IN_NAMES = re.compile(
    r"(?:^|_)(?:told|mourn|farewell|wish|sight|hands|crew|house|misfits?|heard|deaf|asked|gathered|laid|begun|harvest|"
    r"walking|stranger|somebody|nobody|everybody)(?:_|$)",
    re.IGNORECASE,
)
# Tinyworld's words are data, the changelog lists old names, and the fairy tale keeps its story. Lessons and the grader's
# texts are rewritten with the course.
EXEMPT = (
    "CHANGELOG.md",
    "data/builtin/tinyworld/",
    "docs/eli5.md",
    "lessons/",
    "exercises/",
    "course/exercises/",
    "course/feedback.py",
)
# The NumPy twin mirrors the names of the PyTorch model on purpose.
MIRROR = "twin"


def is_exempt(path):
    return any(part in path.as_posix() for part in EXEMPT)


def texts():
    """Every name, string and comment of the source, and every line of a page: (path, line number, text)."""
    for path in sorted(SOURCE.rglob("*.py")):
        for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
            if token.type in (tokenize.NAME, tokenize.STRING, tokenize.COMMENT):
                yield path, token.start[0], token.string
    pages = [*SOURCE.rglob("*.js"), *SOURCE.rglob("*.html"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]
    pages += [
        path for folder in ("paper", "course", "beyond", "reference") for path in (ROOT / "book" / folder).glob("*.md")
    ]
    pages += [*(ROOT / "recipes").glob("*.toml"), *(ROOT / "experiments").glob("*.toml"), ROOT / "benchmarks/README.md"]
    for path in pages:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            yield path, number, line


def test_no_banned_word_is_left():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path, number, text in texts()
        if not is_exempt(path) and (match := BANNED.search(text))
    ]
    assert not found, "\n".join(found)


def test_no_name_has_a_banned_part():
    found = [
        f"{path.relative_to(ROOT)}:{token.start[0]}: {token.string}"
        for path in sorted(SOURCE.rglob("*.py"))
        if not is_exempt(path)
        for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline)
        if token.type == tokenize.NAME and BANNED_IN_NAMES.search(split_camel_case(token.string))
    ]
    assert not found, "\n".join(found)


def split_camel_case(name):
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)


def test_the_banned_list_finds_what_it_should():
    for text in ("told", "is_told", "Told", "What is told here", "a wish", "mended"):
        assert BANNED.search(text), text
    for text in ("toldi", "amended", "handsome", "recommend", "Wishart"):
        assert not BANNED.search(text), text
    for name in ("told", "is_told", "WishList", "all_hands"):
        assert BANNED_IN_NAMES.search(split_camel_case(name)), name
    for name in ("household", "insight", "second_handle", "wishart"):
        assert not BANNED_IN_NAMES.search(split_camel_case(name)), name


def classes():
    """Class name -> the modules that define it."""
    found = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(SOURCE)))
    return found


def test_no_class_name_exists_twice():
    twice = {
        name: files
        for name, files in classes().items()
        if len([file for file in files if not file.startswith(f"{MIRROR}/")]) > 1
    }
    assert not twice


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_the_index_links_to_every_page(page):
    if page.stem != "index":
        assert f"({page.name})" in (ROOT / "docs/index.md").read_text("utf-8")


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 160


def test_generated_pages_are_complete_and_up_to_date():
    import importlib.util

    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "docs/make_reference.py")
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    for name, make in reference.PAGES.items():
        assert (ROOT / "docs" / name).read_text("utf-8") == make().rstrip() + "\n", "run: make reference"
    settings = reference.settings_page()
    for line in settings.splitlines():
        if line.startswith("| `"):
            assert all(cell.strip() for cell in line.strip("|").split(" | ")), f"a setting without a meaning: {line}"
