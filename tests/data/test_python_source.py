import ast
import io
import re
import tokenize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.data.builtin import python_source
from cutaway.data.builtin.python_source import (
    KINDS,
    MAX_SNIPPET_LINES,
    code_word_spans,
    code_words,
    expression_kind,
    python_docstrings,
    python_expressions,
    python_tags,
    python_texts,
    tag_code,
)
from cutaway.errors import DataError

READERS = {"texts": python_texts, "docstrings": python_docstrings, "tags": python_tags}
READERS |= {"expressions": python_expressions}


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A temporary folder in place of the standard library."""
    monkeypatch.setattr(python_source, "_stdlib", lambda: tmp_path)
    cached = (python_source._expressions, python_source._docstrings)
    for function in cached:
        function.cache_clear()
    yield tmp_path
    for function in cached:
        function.cache_clear()


def add(library, path, content):
    file = library / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())


def add_many(library, number, content="x = f(a.b[0]) + {0}\n"):
    for i in range(number):
        add(library, f"m{i}.py", content.format(i))


def texts_of_all_splits():
    return [text for split in ("train", "valid", "test") for text in python_texts(split, 10**6)]


# ---- Files ---------------------------------------------------------------------------------------------------


def test_every_file_is_in_exactly_one_split(library):
    add_many(library, 200)
    splits = [python_texts(split, 10**6) for split in ("train", "valid", "test")]
    assert sorted(text for texts in splits for text in texts) == sorted(f"x = f(a.b[0]) + {i}\n" for i in range(200))
    assert len(splits[0]) > 120
    assert min(map(len, splits)) > 3


def test_other_files_are_excluded(library):
    for path in ("site-packages/a.py", "json/tests/b.py", "test/c.py", "config-3.11-x/d.py", "_sysconfigdata_e.py"):
        add(library, path, "left = out\n")
    add(library, "latin.py", "é = 1\n".encode("latin1"))
    add(library, "empty.py", "\n")
    add(library, "notes.txt", "left out\n")
    add(library, "json/kept.py", "kept = 'é'\r\nyes = 1\n")
    assert texts_of_all_splits() == ["kept = 'é'\nyes = 1\n"]


def test_the_real_library_is_there():
    texts = python_texts("train", 20)
    assert len(texts) == 20
    assert all(ast.parse(text).body or text.lstrip().startswith("#") for text in texts)


def test_a_library_without_source(library):
    with pytest.raises(DataError, match=r"has no .py files \(looked in .*Use a Python installed with its source"):
        python_texts("train", 1)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_unknown_split(reader):
    with pytest.raises(DataError, match="'python' has no split 'trian'. Did you mean 'train'"):
        reader("trian", 1, 0)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_the_same_arguments_give_the_same_examples(reader):
    examples = reader("valid", 25, 0)
    assert examples == reader("valid", 25, 0)
    assert examples != reader("valid", 25, 1)
    assert len(examples) == 25
    assert not set(examples) & set(reader("test", 25, 0))


# ---- Docstrings ----------------------------------------------------------------------------------------------

LONG = "This docstring is longer than forty characters, so it is long enough."


def test_docstrings_of_all_modules_classes_and_functions(library):
    """The docstrings of nested functions too. Short docstrings are skipped."""
    source = f'''"""{LONG} module"""
class A:
    """{LONG} class

        indented
    """
    async def f(self):
        """short"""
        if self:
            def g(): "{LONG} inner"
        try:
            pass
        except E:
            def h():
                """{LONG} handler"""
        else:
            with a: \n                def i(): "{LONG} else"
x = "{LONG} no docstring"
'''
    add(library, "m.py", source)
    add(library, "broken.py", "def f(:\n")
    found = [text for split in ("train", "valid", "test") for text in python_docstrings(split, 10**6)]
    expected = {
        text
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and len(text := ast.get_docstring(node) or "") >= 40
    }
    assert len(expected) == 5
    assert sorted(found) == sorted(expected)


def test_a_docstring_is_in_one_split_only(library):
    """A docstring that is in many files belongs to the test data, or else to the validation data."""
    for i in range(100):
        add(library, f"m{i}.py", f'"""{LONG}"""\ndef f():\n    """{LONG} {i}"""\n')
    splits = {split: python_docstrings(split, 10**6) for split in ("test", "valid", "train")}
    assert sorted(text for texts in splits.values() for text in texts) == sorted(
        [LONG, *(f"{LONG} {i}" for i in range(100))]
    )
    assert LONG in splits["test"]


# ---- Words ---------------------------------------------------------------------------------------------------

some_code = st.text(st.sampled_from("ab_1é€ \t\n\f'\"#=!(.\\"), max_size=30) | st.text(max_size=30)


@given(some_code)
def test_words_contain_every_character_except_white_space(code):
    blanks = r"[^\S\n]"
    assert "".join(code_words(code)) == re.sub(blanks, "", code)
    assert [code[start:end] for start, end in code_word_spans(code)] == code_words(code)


def test_words():
    assert code_words("if x_1 != 'é':\n\treturn") == ["if", "x_1", "!", "=", "'", "é", "'", ":", "\n", "return"]


# ---- Tags ----------------------------------------------------------------------------------------------------


def test_tags_of_a_small_class():
    code = "class A:\n  x = 1.5 # no\n  def f(s): return r'''a\nb'''\n"
    words, tags = tag_code(code)
    expected = (
        "class B-keyword, A B-definition, : B-operator, ↵ O, x B-name, = B-operator, 1 B-number, . I-number, "
        "5 I-number, # B-comment, no I-comment, ↵ O, def B-keyword, f B-definition, ( B-operator, s B-name, "
        ") B-operator, : B-operator, return B-keyword, r B-string, ' I-string, ' I-string, ' I-string, a I-string, "
        "↵ I-string, b I-string, ' I-string, ' I-string, ' I-string, ↵ O"
    )
    assert [f"{word} {tag}".replace("\n", "↵") for word, tag in zip(words, tags, strict=True)] == expected.split(", ")


@pytest.mark.parametrize("string", ['f"a{b + 1:>{w}}c"', "f'{x!r}'", "rf'''{a}\n{b[0]}'''", "f''", "b'x'"])
def test_an_f_string_is_one_string(string):
    tags = tag_code(f"x = {string}\n").tags
    inside = len(code_words(string))
    assert tags == ("B-name", "B-operator", "B-string", *["I-string"] * (inside - 1), "O")


def test_code_that_ends_inside_a_string():
    with pytest.raises(DataError, match="not valid Python: .*Give complete statements"):
        tag_code("x = '''never closed\n")


def class_letters(source):
    """The oracle: a letter for the class of each character, upper case at the start of a token."""
    rows = source.split("\n")
    letters = [[" "] * (len(row) + 1) for row in rows]
    before = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        letter = {tokenize.NUMBER: "u", tokenize.STRING: "s", tokenize.COMMENT: "c", tokenize.OP: "o"}.get(token.type)
        if token.type == tokenize.NAME:
            letter = "k" if token.string in KEYWORDS else "d" if before in ("def", "class") else "n"
        if letter:
            row, column = token.start[0] - 1, token.start[1]
            for i, _ in enumerate(token.string):
                letters[row][column] = letter if i else letter.upper()
                row, column = (row, column + 1) if column < len(rows[row]) else (row + 1, 0)
        before = token.string
    return "".join(letter for row in letters for letter in row)


KEYWORDS = [
    "False",
    "None",
    "True",
    "and",
    "as",
    "assert",
    "async",
    "await",
    "break",
    "class",
    "continue",
    "def",
    "del",
    "elif",
    "else",
    "except",
    "finally",
    "for",
    "from",
    "global",
    "if",
    "import",
    "in",
    "is",
    "lambda",
    "nonlocal",
    "not",
    "or",
    "pass",
    "raise",
    "return",
    "try",
    "while",
    "with",
    "yield",
]


def test_tags_agree_with_tokenize_on_real_files():
    letter_of = {"number": "u", "string": "s", "comment": "c", "operator": "o", "keyword": "k", "definition": "d"}
    # Since Python 3.12 an f-string is several tokens, which the oracle does not handle.
    sources = [text for text in python_texts("valid", 20) if not re.search(r"(?i)\b(f|t|rf|fr|rt|tr)['\"]", text)]
    assert len(sources) >= 3
    for source in sources[:6]:
        letters = class_letters(source)
        for (start, _), tag in zip(code_word_spans(source), tag_code(source).tags, strict=True):
            mark, _, kind = tag.partition("-")
            letter = " " if mark == "O" else letter_of.get(kind, "n")
            assert letters[start] == (letter.upper() if mark == "B" else letter), source[start : start + 40]


def test_snippets_are_whole_lines_of_one_statement():
    source = (
        '"""Doc."""\n\n\n# why\n@wrap\ndef f(a,\n      b):\n    return a\n\ntry:\n    x = 1\nexcept E:\n    y = 2\n'
    )
    snippets = [" ".join(snippet.words) for snippet in python_source._snippets(source)]
    assert snippets == [
        '" " " Doc . " " "',
        "# why \n @ wrap \n def f ( a , \n b ) : \n return a",
        "try : \n x = 1 \n except E : \n y = 2",
    ]


def test_long_statements_are_split_between_logical_lines_and_long_lines_skipped():
    body = "".join(f"    x{i} = [{i},\n        0]\n" for i in range(10))
    text = '    """' + "\n" * MAX_SNIPPET_LINES + '"""\n'
    snippets = list(python_source._snippets(f"def f():\n{body}{text}    return 'the end'\n"))
    assert [snippet.words[0] for snippet in snippets] == ["def", "x5", "return"]
    assert all(snippet.words.count("\n") < MAX_SNIPPET_LINES for snippet in snippets)


def test_real_snippets():
    snippets = python_tags("test", 300)
    classes = ("keyword", "definition", "name", "number", "string", "comment", "operator")
    assert len(set(snippets)) == 300
    assert {tag for s in snippets for tag in s.tags} <= {"O", *(f"{mark}-{c}" for mark in "BI" for c in classes)}
    for words, tags in snippets:
        assert len(words) == len(tags)
        assert tags[0].startswith("B-")  # never inside a token
        assert words.count("\n") < MAX_SNIPPET_LINES
        assert {tags[i] for i, word in enumerate(words) if word == "\n"} <= {"O", "I-string"}


def test_a_file_that_is_not_python_is_skipped(library):
    for path in ("a.py", "b.py", "c.py"):
        add(library, path, 'x = """never closed\n')
    for reader in (python_tags, python_expressions):
        assert [reader(split, 10, 0) for split in ("train", "valid", "test")] == [[], [], []]


# ---- Expressions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("f(x)[0]", "item"), ("f(x[0])", "call"), ("f(x).y", "attribute"), ("a.b + c", "arithmetic"),
        ("not x.y", "not"), ("not a == b or c", "logic"), ("not (a == b or c)", "not"), ("a + b in c", "comparison"),
        ("(a.b, c)", "collection"), ("{a: b[0]}", "collection"), (" x.y() ", "call"),
        ("f(x)", None), ("-x.y", None), ("a if b.c else d()", None), ("x =", None), ("", None),
    ],
)  # fmt: skip
def test_the_last_operation_of_an_expression(text, kind):
    assert expression_kind(text) == kind


def test_real_expressions():
    examples = python_expressions("test", 400)
    assert len({example.text for example in examples}) == 400
    assert {example.label for example in examples} == set(KINDS.values())
    assert all(expression_kind(example.text) == example.label for example in examples)
    counts = sorted(sum(example.label == kind for example in examples) for kind in set(KINDS.values()))
    assert counts[0] > 400 / len(counts) / 2  # the labels are about equally frequent


def test_an_expression_that_many_files_share_is_in_one_split_only(library):
    add_many(library, 100, "x = f(a.b, c[0])\ny = g(a.b{0}, 0)\n")
    texts = [[e.text for e in python_expressions(split, 10**6)] for split in ("train", "valid", "test")]
    assert len({t for split in texts for t in split}) == sum(map(len, texts)) == 101
    assert "f(a.b, c[0])" in texts[2]


def test_columns_are_correct_after_multi_byte_characters(library):
    add_many(library, 100, "é = 'ü', f(a.b, {0})\n")
    assert {"f(a.b, 7)", "'ü', f(a.b, 7)"} <= {
        e.text for s in ("train", "valid", "test") for e in python_expressions(s)
    }
