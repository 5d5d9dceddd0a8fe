"""Reading labelled texts (a text and its class a line) and tagged words (a word and its tag a line)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from cutaway.data.corpus import tsv_fields
from cutaway.data.examples import LabelledText, TaggedText
from cutaway.data.jsonl import Columns, File, as_file, examples_from_rows, has_rows, quote
from cutaway.data.lines import read_lines
from cutaway.errors import DataError

# ---- Labelled texts ------------------------------------------------------------------------------------------


def read_labels(path: str | File, columns: Columns = ()) -> list[LabelledText]:
    """text<TAB>label on each line; or, from .jsonl, {"text": ..., "label": ...}. Also .gz. Blank lines do not count."""
    examples = list(stream_labels(as_file(path), columns=columns))
    if not examples:
        raise DataError(f"{path} is empty. A corpus needs at least one text with its label.")
    return examples


def stream_labels(file: File, columns: Columns = ()) -> Iterator[LabelledText]:
    if has_rows(file):
        yield from examples_from_rows("labels", file, columns)
        return
    for number, line in enumerate(read_lines(str(file)), 1):
        if line.strip():
            yield _labelled(line, f"{file}, line {number}", columns)


def _labelled(line: str, place: str, columns: Columns) -> LabelledText:
    if columns:
        text, label = tsv_fields(line, place, columns, "a text, a tab and a label")
    else:
        text, _, label = line.rpartition("\t")  # the last one: a text may hold a tab, a label may not
    if not text.strip() or not label.strip():
        raise DataError(f"{place} is {quote(line)}. Expected a text, a tab and a label.")
    return LabelledText(text, label.strip())


# ---- Tagged words --------------------------------------------------------------------------------------------

NO_WORD = re.compile(r"\d+[-.]\d+")  # an id of CoNLL-U: 1-2 is a contraction of two words, 8.1 a word left unsaid
DOCUMENT = "-DOCSTART-"


def read_tags(path: str | File, columns: Columns = ()) -> list[TaggedText]:
    """A word and its tag on each line, an empty line between sentences (CoNLL). `columns` says where the two stand.

    Columns are separated by tabs, or by blanks in a file without tabs; their number is that of the first line. A line
    that begins with "#" is a comment unless it has as many columns, for "#" may be a word too. CoNLL-U is read with
    columns (1, 3), and its lines that are no word of their own (ids such as 1-2 and 8.1) are passed over. From .jsonl:
    {"words": [...], "tags": [...]}.
    """
    examples = list(stream_tags(as_file(path), columns=columns))
    if not examples:
        raise nothing_in(path)
    return examples


def stream_tags(file: File, columns: Columns = ()) -> Iterator[TaggedText]:
    if has_rows(file):
        yield from examples_from_rows("tags", file, columns)
        return
    word_and_tag = _numbers(columns or (0, -1), str(file))
    first = next(_body(file), None)
    if first is None:
        raise nothing_in(file)
    separator = re.compile("\t" if any("\t" in line for line in _body(file)) else " +")
    width = len(_fields(first, separator))
    _check_columns(word_and_tag, width, f"{file}: {quote(first)}")
    table = (_fields(line, separator) for line in read_lines(str(file)))
    yield from _sentences(table, word_and_tag, width, str(file))


def nothing_in(file: object) -> DataError:
    return DataError(f"{file} holds no tagged words. Expected a word and its tag on each line.")


def _numbers(columns: Columns, file: str) -> tuple[int, int]:
    if len(columns) != 2 or not all(isinstance(column, int) for column in columns):
        raise DataError(
            f"data.columns = {list(columns)} does not fit {file}, whose columns have no names. Give two numbers, as in "
            "[0, -1]: where the word stands, and where its tag."
        )
    return int(columns[0]), int(columns[1])


def _body(file: File) -> Iterator[str]:
    """The lines that hold words, as far as can be told before the number of columns is known."""
    return (line for line in read_lines(str(file)) if line.strip() and not line.startswith(("#", DOCUMENT)))


def _fields(line: str, separator: re.Pattern[str]) -> list[str]:
    """No field at all for an empty line, and for one that only marks where a document begins."""
    if not line.strip() or line.startswith(DOCUMENT):
        return []
    return separator.split(line if separator.pattern == "\t" else line.strip(" "))


def _sentences(table: Iterable[list[str]], columns: tuple[int, int], width: int, name: str) -> Iterator[TaggedText]:
    word, tag = columns
    rows: list[list[str]] = []
    for number, fields in enumerate(chain(table, [[]]), 1):
        if not fields and rows:
            yield TaggedText(tuple(row[word] for row in rows), tuple(row[tag] for row in rows))
            rows = []
        elif fields and _is_word(fields, columns, width):
            _check_row(fields, columns, width, f"{name}, line {number}")
            rows.append(fields)


def _is_word(fields: list[str], columns: tuple[int, int], width: int) -> bool:
    is_comment = fields[0].startswith("#") and len(fields) != width
    has_ids = columns[0] not in (0, -width)
    return not is_comment and not (has_ids and NO_WORD.fullmatch(fields[0]))


def _check_columns(columns: tuple[int, int], width: int, place: str) -> None:
    if any(not -width <= column < width for column in columns) or columns[0] % width == columns[1] % width:
        raise DataError(
            f"{place} has {width} column{'s' * (width != 1)}, so the word and its tag cannot be in columns {columns} "
            "(counted from 0, or from the end with -1). Separate them by a tab or a blank, or choose other columns."
        )


def _check_row(fields: list[str], columns: tuple[int, int], width: int, place: str) -> None:
    found = quote(" ".join(fields))
    if len(fields) != width:
        raise DataError(f"{place} has {len(fields)} columns, the lines before have {width}: {found}.")
    if not all(fields[column].strip() for column in columns):
        raise DataError(f"{place} lacks the word or its tag: {found}. Expected them in columns {columns}.")
