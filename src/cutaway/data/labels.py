"""Reading labelled texts (a text and its class a line) and tagged words (a word and its tag a line)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from cutaway.data.corpus import read_lines
from cutaway.data.examples import Labelled, Tagged
from cutaway.errors import DataError

# ---- Labelled texts ------------------------------------------------------------------------------------------


def read_labels(path: str | Path) -> list[Labelled]:
    """text<TAB>label on each line; or, from .jsonl, {"text": ..., "label": ...}. Also .gz. Blank lines do not count."""
    read = _from_json if str(path).removesuffix(".gz").endswith(".jsonl") else _from_tsv
    lines = enumerate(read_lines(path), 1)
    examples = [read(line, f"{path}, line {number}") for number, line in lines if line.strip()]
    if not examples:
        raise DataError(f"{path} is empty. A corpus needs at least one text with its label.")
    return examples


def _from_tsv(line: str, place: str) -> Labelled:
    text, tab, label = line.rpartition("\t")  # the last one: a text may hold a tab, a label may not
    if not tab or not text.strip() or not label.strip():
        raise DataError(f"{place} is {_shown(line)}. Expected a text, a tab and a label.")
    return Labelled(text, label.strip())


def _from_json(line: str, place: str) -> Labelled:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{place} is not JSON ({error.msg}, column {error.colno}): {_shown(line)}.") from None
    text, label = (entry.get("text"), entry.get("label")) if isinstance(entry, dict) else (None, None)
    if not isinstance(text, str) or not text.strip() or not _is_label(label):
        raise DataError(
            f'{place} is {_shown(line)}. Expected {{"text": ..., "label": ...}} with a string as text, and a string '
            "or a whole number as label."
        )
    return Labelled(text, str(label).strip())


def _is_label(label: object) -> bool:
    is_number = isinstance(label, int) and not isinstance(label, bool)
    return is_number or (isinstance(label, str) and bool(label.strip()))


# ---- Tagged words --------------------------------------------------------------------------------------------

NO_WORD = re.compile(r"\d+[-.]\d+")  # an id of CoNLL-U: 1-2 is a contraction of two words, 8.1 a word left unsaid
DOCUMENT = "-DOCSTART-"


def read_tags(path: str | Path, columns: tuple[int, int] = (0, -1)) -> list[Tagged]:
    """A word and its tag on each line, an empty line between sentences (CoNLL). `columns` says where the two stand.

    Columns are separated by tabs, or by blanks in a file without tabs; their number is that of the first line. A line
    that begins with "#" is a comment unless it has as many columns, for "#" may be a word too. CoNLL-U is read with
    columns (1, 3), and its lines that are no word of their own (ids such as 1-2 and 8.1) are passed over.
    """
    lines = list(read_lines(path))
    body = [line for line in lines if line.strip() and not line.startswith(("#", DOCUMENT))]
    separator = re.compile("\t" if any("\t" in line for line in body) else " +")
    if not body:
        raise DataError(f"{path} holds no tagged words. Expected a word and its tag on each line.")
    width = len(_fields(body[0], separator))
    _check_columns(columns, width, f"{path}: {_shown(body[0])}")
    table = [_fields(line, separator) for line in lines]
    return list(_sentences(table, columns, width, str(path)))


def _fields(line: str, separator: re.Pattern[str]) -> list[str]:
    """No field at all for an empty line, and for one that only marks where a document begins."""
    if not line.strip() or line.startswith(DOCUMENT):
        return []
    return separator.split(line if separator.pattern == "\t" else line.strip(" "))


def _sentences(table: list[list[str]], columns: tuple[int, int], width: int, name: str) -> Iterator[Tagged]:
    word, tag = columns
    rows: list[list[str]] = []
    for number, fields in enumerate([*table, []], 1):
        if not fields and rows:
            yield Tagged(tuple(row[word] for row in rows), tuple(row[tag] for row in rows))
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
    found = _shown(" ".join(fields))
    if len(fields) != width:
        raise DataError(f"{place} has {len(fields)} columns, the lines before have {width}: {found}.")
    if not all(fields[column].strip() for column in columns):
        raise DataError(f"{place} lacks the word or its tag: {found}. Expected them in columns {columns}.")


def _shown(line: str) -> str:
    return repr(line if len(line) <= 60 else line[:57] + "...")
