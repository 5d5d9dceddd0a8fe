"""Read labelled texts (a text and its label in each line) and tagged words (a word and its tag in each line)."""

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
    """Each line is text<TAB>label, or in .jsonl {"text": ..., "label": ...}. Blank lines are skipped."""
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
            yield _parse_labelled(line, f"{file}, line {number}", columns)


def _parse_labelled(line: str, location: str, columns: Columns) -> LabelledText:
    if columns:
        text, label = tsv_fields(line, location, columns, "a text, a tab and a label")
    else:
        text, _, label = line.rpartition("\t")  # the last tab: a text may contain tabs
    if not text.strip() or not label.strip():
        raise DataError(f"{location} is {quote(line)}. Expected a text, a tab and a label.")
    return LabelledText(text, label.strip())


# ---- Tagged words --------------------------------------------------------------------------------------------

NON_WORD_ID = re.compile(r"\d+[-.]\d+")  # ids of CoNLL-U: 1-2 is a contraction of two words, 8.1 an empty node
DOCUMENT = "-DOCSTART-"


def read_tags(path: str | File, columns: Columns = ()) -> list[TaggedText]:
    """CoNLL: a word and its tag in each line, and an empty line between sentences. `columns`: the word and the tag.

    Columns are separated by tabs, or by spaces in a file without tabs. All lines must have the same number of columns.
    A line that begins with "#" is a comment, unless it has that number of columns: "#" can be a word. For CoNLL-U, use
    columns (1, 3); lines with ids such as 1-2 and 8.1 are skipped. In .jsonl: {"words": [...], "tags": [...]}.
    """
    examples = list(stream_tags(as_file(path), columns=columns))
    if not examples:
        raise no_tags_error(path)
    return examples


def stream_tags(file: File, columns: Columns = ()) -> Iterator[TaggedText]:
    if has_rows(file):
        yield from examples_from_rows("tags", file, columns)
        return
    word_and_tag = _column_numbers(columns or (0, -1), str(file))
    first = next(_word_lines(file), None)
    if first is None:
        raise no_tags_error(file)
    separator = re.compile("\t" if any("\t" in line for line in _word_lines(file)) else " +")
    width = len(_fields(first, separator))
    _check_columns(word_and_tag, width, f"{file}: {quote(first)}")
    table = (_fields(line, separator) for line in read_lines(str(file)))
    yield from _sentences(table, word_and_tag, width, str(file))


def no_tags_error(file: object) -> DataError:
    return DataError(f"{file} contains no tagged words. Expected a word and its tag in each line.")


def _column_numbers(columns: Columns, file: str) -> tuple[int, int]:
    if len(columns) != 2 or not all(isinstance(column, int) for column in columns):
        raise DataError(
            f"data.columns = {list(columns)} does not fit {file}, because its columns have no names. Give the numbers "
            "of the word column and the tag column, as in [0, -1]."
        )
    return int(columns[0]), int(columns[1])


def _word_lines(file: File) -> Iterator[str]:
    """Lines that contain a word. Comments are guessed, because the number of columns is not known yet."""
    return (line for line in read_lines(str(file)) if line.strip() and not line.startswith(("#", DOCUMENT)))


def _fields(line: str, separator: re.Pattern[str]) -> list[str]:
    """The fields of a line; none for an empty line or the start of a document."""
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
        elif fields and _is_word_row(fields, columns, width):
            _check_row(fields, columns, width, f"{name}, line {number}")
            rows.append(fields)


def _is_word_row(fields: list[str], columns: tuple[int, int], width: int) -> bool:
    is_comment = fields[0].startswith("#") and len(fields) != width
    has_ids = columns[0] not in (0, -width)
    return not is_comment and not (has_ids and NON_WORD_ID.fullmatch(fields[0]))


def _check_columns(columns: tuple[int, int], width: int, location: str) -> None:
    if any(not -width <= column < width for column in columns) or columns[0] % width == columns[1] % width:
        raise DataError(
            f"{location} has {width} column{'s' * (width != 1)}, so the word and its tag cannot be in columns "
            f"{columns} (counted from 0, or from the end with -1). Separate them by a tab or a space, or change "
            "data.columns."
        )


def _check_row(fields: list[str], columns: tuple[int, int], width: int, location: str) -> None:
    found = quote(" ".join(fields))
    if len(fields) != width:
        raise DataError(f"{location} has {len(fields)} columns, the lines before have {width}: {found}.")
    if not all(fields[column].strip() for column in columns):
        raise DataError(f"{location} has no word or no tag: {found}. Expected them in columns {columns}.")
