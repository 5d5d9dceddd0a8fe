"""Four corpora from the source code of Python's standard library.

python_texts         whole files, for a language model
python_docstrings    docstrings of modules, classes and functions: English text
python_tags          snippets with a tag for each word (keyword, name, string ...): learn a syntax highlighter
python_expressions   expressions, labelled with their last operation: "f(x)[0]" is an item, "f(x[0])" is a call

The results depend on the version of Python, because another version has another library.
"""

from __future__ import annotations

import ast
import io
import keyword
import os
import random
import re
import sysconfig
import token as token_types
import tokenize
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import accumulate, islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from cutaway.data.collector import pause_garbage_collection
from cutaway.data.examples import LabelledText, TaggedText
from cutaway.errors import DataError, did_you_mean

# A hash of the path decides the split of a file, so the splits are disjoint for all sizes and seeds.
SPLITS = {"test": range(0, 8), "valid": range(8, 16), "train": range(16, 100)}
# Installed packages, tests, generated tables and some applications.
EXCLUDED_FOLDERS = {
    "site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo", "pydoc_data", "ensurepip",
    "encodings", "msilib", "__pycache__",
}  # fmt: skip
GENERATED_PREFIXES = ("config-", "_sysconfigdata")  # files that the build of Python generates


# ---- Files ---------------------------------------------------------------------------------------------------


def python_texts(split: str = "train", size: int = 400, seed: int = 0) -> list[str]:
    """At most `size` whole source files, shuffled with the seed."""
    return list(islice(_sources(split, seed), size))


def _sources(split: str, seed: int = 0) -> Iterator[str]:
    """The files of one split, one by one. Files that are empty, not UTF-8 or a duplicate are skipped."""
    paths, seen = _paths_of(split), set()
    random.Random(f"python {split} {seed}").shuffle(paths)
    for path in paths:
        try:
            text = (_stdlib() / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if text.strip() and text not in seen:
            seen.add(text)
            yield text


def _paths_of(split: str) -> list[str]:
    if split not in SPLITS:
        raise DataError(f"'python' has no split {split!r}. {did_you_mean(split, SPLITS)}")
    return [path for path in _library_files() if zlib.crc32(path.encode()) % 100 in SPLITS[split]]


def _stdlib() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _library_files() -> list[str]:
    """The paths of the library's modules, relative to its folder, with forward slashes on every machine."""
    root = _stdlib()
    found = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [
            name for name in subfolders if name not in EXCLUDED_FOLDERS and not name.startswith(GENERATED_PREFIXES)
        ]
        modules = [name for name in names if name.endswith(".py") and not name.startswith(GENERATED_PREFIXES)]
        found += [(Path(folder) / name).relative_to(root).as_posix() for name in modules]
    if not found:
        raise DataError(
            f"the standard library of this Python has no .py files (looked in {root}; it may be zipped). "
            "Use a Python installed with its source, or choose another data.corpus."
        )
    return sorted(found)


# ---- Docstrings ----------------------------------------------------------------------------------------------

DOCUMENTED_NODES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
MIN_DOCSTRING = 40  # characters; shorter docstrings mostly repeat the name


def python_docstrings(split: str = "train", size: int = 4_000, seed: int = 0) -> list[str]:
    """At most `size` distinct docstrings, without the indentation of the code."""
    heldout = ("test", "valid")
    before = heldout[: heldout.index(split)] if split in heldout else heldout
    # The same docstring may be in several files. It belongs to the first of test, valid and train.
    texts = [text for text in _docstrings(split) if not any(text in _docstrings(other) for other in before)]
    random.Random(f"python {split} {seed}").shuffle(texts)
    return texts[:size]


@cache
def _docstrings(split: str) -> dict[str, None]:
    """All docstrings of a split that are long enough, in the order of the files: an ordered set."""
    with pause_garbage_collection():
        found = (text for source in _sources(split) for text in _docstrings_in(source))
        return dict.fromkeys(text for text in found if len(text) >= MIN_DOCSTRING)


def _docstrings_in(source: str) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    for node in _documented_nodes(tree):
        yield ast.get_docstring(node) or ""


def _documented_nodes(node: ast.AST) -> Iterator[Any]:
    """Modules, classes and functions. Expressions, most of a syntax tree, are not visited."""
    if isinstance(node, DOCUMENTED_NODES):
        yield node
    for name in ("body", "orelse", "handlers", "finalbody"):
        inner = getattr(node, name, ())
        for child in inner if isinstance(inner, list) else ():
            yield from _documented_nodes(child)


# ---- Words ---------------------------------------------------------------------------------------------------

# No knowledge of Python: a model has to learn which quote closes a string, or that "!=" is one operator.
CODE_WORD = re.compile(r"\w+|\n|[^\w\s]")


def code_words(code: str) -> list[str]:
    """Split code into runs of word characters, line ends, and single other characters. White space is dropped."""
    return CODE_WORD.findall(code)


def code_word_spans(code: str) -> list[tuple[int, int]]:
    """The start and end in the code of each of the `code_words`."""
    return [match.span() for match in CODE_WORD.finditer(code)]


# ---- Tags ----------------------------------------------------------------------------------------------------

MAX_SNIPPET_LINES = 12
MIN_SNIPPET_WORDS = 4
CLASS_OF_TYPE = {
    token_types.NUMBER: "number",
    token_types.STRING: "string",
    tokenize.COMMENT: "comment",
    token_types.OP: "operator",
}
CONTINUATIONS = {"elif", "else", "except", "finally"}  # not indented, but inside a statement


class Token(NamedTuple):
    """A Python token: its start and end in the code, and its class."""

    start: int
    end: int
    kind: str


class LogicalLine(NamedTuple):
    """The rows of one simple statement or header, with the comments above it."""

    first_row: int
    last_row: int
    is_top_level: bool  # whether a top-level statement of the file begins here


def python_tags(split: str = "train", size: int = 8_000, seed: int = 0) -> list[TaggedText]:
    """At most `size` distinct snippets: parts of top-level statements, of at most MAX_SNIPPET_LINES lines."""
    snippets: dict[TaggedText, None] = {}
    for source in _sources(split, seed):
        for snippet in _snippets(source):
            if len(snippets) >= size:
                return list(snippets)
            snippets.setdefault(snippet)
    return list(snippets)


def tag_code(code: str) -> TaggedText:
    """The `code_words` of complete Python statements, with BIO tags from the standard module `tokenize`."""
    return _tag_words(code, _tokens(code))


def _tokens(code: str) -> list[tokenize.TokenInfo]:
    try:
        return list(tokenize.generate_tokens(io.StringIO(code).readline))
    except (tokenize.TokenError, SyntaxError) as error:
        raise DataError(f"this is not valid Python: {error.args[0]}. Give complete statements.") from None


def _snippets(source: str) -> Iterator[TaggedText]:
    try:
        tokens = _tokens(source)
    except DataError:
        return
    words, tags = _tag_words(source, tokens)
    word_starts = [start for start, _ in code_word_spans(source)]
    rows = _row_starts(source)
    for first_row, last_row in _snippet_rows(_logical_lines(tokens)):
        # without the line end of the last row
        begin, end = (bisect_left(word_starts, position) for position in (rows[first_row], rows[last_row + 1] - 1))
        if end - begin >= MIN_SNIPPET_WORDS:
            yield TaggedText(words[begin:end], tags[begin:end])


def _tag_words(code: str, tokens: list[tokenize.TokenInfo]) -> TaggedText:
    """B- for the first word of a token, I- for the others, O for words outside of tokens, such as line ends."""
    spans = code_word_spans(code)
    starts = [start for start, _ in spans]
    tags = ["O"] * len(spans)
    for start, end, kind in _classify_tokens(tokens, _row_starts(code)):
        first, beyond = bisect_left(starts, start), bisect_left(starts, end)
        if first < beyond:  # a word such as "1if" contains two tokens; the first one decides
            tags[first:beyond] = [f"B-{kind}"] + [f"I-{kind}"] * (beyond - first - 1)
    return TaggedText(tuple(code[start:end] for start, end in spans), tuple(tags))


def _row_starts(code: str) -> list[int]:
    """The start of each row, with row numbers from 1 as in `tokenize`, and of one row after the last."""
    lengths = (len(line) + 1 for line in code.split("\n"))
    return [0, *accumulate(lengths, initial=0)]


def _classify_tokens(tokens: Iterable[tokenize.TokenInfo], rows: list[int]) -> Iterator[Token]:
    """Tokens that have a class, in order. Since Python 3.12 an f-string is several tokens; here it is one string."""
    depth = opened = 0
    before = ""
    for token in tokens:
        start, end = (rows[row] + column for row, column in (token.start, token.end))
        part = token_types.tok_name[token.type].partition("STRING_")[2]  # START or END of FSTRING_START, FSTRING_END
        if part == "START":
            opened = opened if depth else start
            depth += 1
        elif part == "END":
            depth -= 1
        if depth == 0:
            kind = "string" if part == "END" else _class_of(token, before)
            if kind:
                yield Token(opened if part == "END" else start, end, kind)
        before = token.string


def _class_of(token: tokenize.TokenInfo, before: str) -> str | None:
    if token.type != token_types.NAME:
        return CLASS_OF_TYPE.get(token.type)
    if keyword.iskeyword(token.string):
        return "keyword"
    return "definition" if before in ("def", "class") else "name"


def _logical_lines(tokens: Iterable[tokenize.TokenInfo]) -> Iterator[LogicalLine]:
    first_row, head, decorated = 0, None, False
    for token in tokens:
        if token.type in (token_types.INDENT, token_types.DEDENT, tokenize.NL):
            continue
        first_row = first_row or token.start[0]
        if token.type == token_types.NEWLINE and head:
            is_top_level = head.start[1] == 0 and head.string not in CONTINUATIONS and not decorated
            yield LogicalLine(first_row, token.start[0], is_top_level)
            decorated = head.string == "@"
            first_row, head = 0, None
        elif token.type != tokenize.COMMENT:
            head = head or token


def _snippet_rows(lines: Iterable[LogicalLine]) -> Iterator[tuple[int, int]]:
    """(first, last) row of each snippet: as many logical lines of one top-level statement as fit.

    A logical line that is too long is skipped.
    """
    first = last = 0
    for line in lines:
        if first and (line.is_top_level or line.last_row - first >= MAX_SNIPPET_LINES):
            yield first, last
            first = 0
        if line.last_row - line.first_row < MAX_SNIPPET_LINES:
            first, last = first or line.first_row, line.last_row
    if first:
        yield first, last


# ---- Expressions ---------------------------------------------------------------------------------------------

EXPRESSION_WORDS = range(5, 31)
TRIVIAL_NODES = (ast.Name, ast.Constant)  # most nodes of a syntax tree; skipping them saves time
KINDS: dict[type[ast.AST], str] = {
    ast.Call: "call",  # f(x)
    ast.Attribute: "attribute",  # x.name
    ast.Subscript: "item",  # x[0]
    ast.BinOp: "arithmetic",  # x + y, x % y, x | y
    ast.Compare: "comparison",  # x < y, x in y, x is y
    ast.BoolOp: "logic",  # x and y, x or y
    ast.Not: "not",  # not x
    ast.Tuple: "collection",  # (x, y)
    ast.List: "collection",  # [x, y]
    ast.Set: "collection",  # {x, y}
    ast.Dict: "collection",  # {x: y}
}


def python_expressions(split: str = "train", size: int = 12_000, seed: int = 0) -> list[LabelledText]:
    """At most `size` distinct expressions, labelled with their last operation. The labels are roughly balanced.

    The label depends on the order of the words, so a model that only counts words cannot do well. Every expression
    contains at least two kinds of operations.
    """
    texts = dict(_expressions(split))
    for heldout in ("test", "valid"):
        if heldout == split:
            break
        # The same expression may be in several files. It belongs to the first of test, valid and train.
        texts = {text: kind for text, kind in texts.items() if text not in _expressions(heldout)}
    rng = random.Random(f"python {split} {seed}")
    by_kind: dict[str, list[LabelledText]] = {kind: [] for kind in KINDS.values()}
    for text, kind in texts.items():
        by_kind[kind].append(LabelledText(text, kind))
    for examples in by_kind.values():
        rng.shuffle(examples)
    chosen = _balance(by_kind.values(), size)
    rng.shuffle(chosen)
    return chosen


def expression_kind(text: str) -> str | None:
    """The last operation of an expression: the root of its syntax tree. None if it has fewer than two kinds."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None
    if isinstance(tree, ast.UnaryOp):
        top = KINDS.get(type(tree.op))
    else:
        top = KINDS.get(type(tree))
    inside = {KINDS[type(node)] for node in ast.walk(tree) if type(node) in KINDS}
    return top if len(inside) > 1 else None


@cache  # balancing needs all expressions, and a training loads several splits
def _expressions(split: str) -> dict[str, str]:
    """All one-line expressions of a split, with their kinds."""
    found: dict[str, str] = {}
    with pause_garbage_collection():
        for text in (text for source in _sources(split) for text in _one_line_expressions(source)):
            if text not in found and len(code_words(text)) in EXPRESSION_WORDS and (kind := expression_kind(text)):
                found[text] = kind
    return found


def _one_line_expressions(source: str) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    rows = source.encode().split(b"\n")  # ast counts columns in bytes
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and not isinstance(node, TRIVIAL_NODES) and node.lineno == node.end_lineno:
            yield rows[node.lineno - 1][node.col_offset : node.end_col_offset].decode(errors="replace")


def _balance(groups: Iterable[list[LabelledText]], size: int) -> list[LabelledText]:
    """Equal shares of each group. Larger groups fill up for small ones, up to twice the median size."""
    chosen: list[LabelledText] = []
    ascending = sorted(filter(None, groups), key=len)
    most = 2 * int(median(map(len, ascending))) if ascending else 0
    for i, group in enumerate(ascending):
        share = -(-(size - len(chosen)) // (len(ascending) - i))
        chosen += group[: min(share, most)]
    return chosen
