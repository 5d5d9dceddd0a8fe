"""A row is a dictionary: a line of JSONL, or an entry of a Hugging Face dataset. Which of its fields make an example.

    pairs    {"source": "a dog", "target": "ein Hund"}      or {"translation": {"en": "a dog", "de": "ein Hund"}}
    texts    {"text": "..."}
    labels   {"text": "a good film", "label": "positive"}
    tags     {"words": ["a", "dog"], "tags": ["DET", "NOUN"]}

`data.columns` names other fields: columns = ["en", "de"].
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cutaway.data.examples import LabelledText, Pair, TaggedText
from cutaway.data.hub import PREFIX, HubDataset
from cutaway.data.lines import kind_of, read_lines
from cutaway.errors import DataError

Row = Mapping[str, Any]
Columns = Sequence[int | str]
File = Path | HubDataset


def as_file(written: str | File, split: str = "train", root: str | Path = "") -> File:
    """What a recipe names: a file, relative to data.root, or a Hugging Face dataset."""
    if isinstance(written, HubDataset):
        return written
    return HubDataset(str(written), split, root) if str(written).startswith(PREFIX) else Path(root) / written


def has_rows(file: File | str) -> bool:
    return isinstance(file, HubDataset) or kind_of(file) == ".jsonl"


def read_rows(file: File | str) -> Iterator[tuple[str, Row]]:
    """Each row, and where it stands. Blank lines do not count."""
    if isinstance(file, HubDataset):
        yield from ((f"{file}, row {number}", row) for number, row in enumerate(file.rows(), 1))
        return
    for number, line in enumerate(read_lines(file), 1):
        if line.strip():
            place = f"{file}, line {number}"
            yield place, parse_row(line, place)


def parse_row(line: str, place: str) -> Row:
    try:
        row = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        what = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else "nested too deeply"
        raise DataError(f"{place} is not JSON ({what}): {quote(line)}.") from None
    return row if isinstance(row, dict) else {"": row}


def pair_of(row: Row, place: str, columns: Columns = ()) -> Pair:
    """The first of two languages is the source, unless `columns` says otherwise."""
    inner = row.get("translation")
    fields = inner if isinstance(inner, Mapping) else row
    names = column_names(columns, 2, place) or (list(fields) if fields is inner else ["source", "target"])
    texts = [fields.get(name, row.get(name)) for name in names]
    if len(names) != 2 or not all(isinstance(text, str) for text in texts):
        expected = '{"source": ..., "target": ...} or {"translation": {"de": ..., "en": ...}} with two strings'
        raise unexpected_row_error(row, place, columns, expected)
    return Pair(*map(one_line, texts))


def text_of(row: Row, place: str, columns: Columns = ()) -> str:
    [name] = column_names(columns, 1, place) or ["text"]
    text = row.get(name)
    if not isinstance(text, str):
        raise unexpected_row_error(row, place, columns, '{"text": ...} with a string')
    return text


def labelled_of(row: Row, place: str, columns: Columns = ()) -> LabelledText:
    names = column_names(columns, 2, place) or ["text", "label"]
    text, label = (row.get(name) for name in names)
    if not isinstance(text, str) or not text.strip() or not is_label(label):
        expected = '{"text": ..., "label": ...} with a string as text, and a string or a whole number as label'
        raise unexpected_row_error(row, place, columns, expected)
    return LabelledText(text, str(label).strip())


def tagged_of(row: Row, place: str, columns: Columns = ()) -> TaggedText:
    names = column_names(columns, 2, place) or ["words" if "words" in row else "tokens", "tags"]
    words, tags = (row[name] if isinstance(row.get(name), list) else [] for name in names)
    is_right = len(words) == len(tags) > 0 and all(isinstance(word, str) for word in words)
    if not is_right or not all(map(is_label, tags)):
        expected = '{"words": [...], "tags": [...]} with a tag for each word, and at least one word'
        raise unexpected_row_error(row, place, columns, expected)
    return TaggedText(tuple(words), tuple(str(tag).strip() for tag in tags))


FROM_ROW: dict[str, Callable[[Row, str, Columns], Any]] = {
    "pairs": pair_of,
    "texts": text_of,
    "labels": labelled_of,
    "tags": tagged_of,
}


def examples_from_rows(kind: str, file: File | str, columns: Columns = ()) -> Iterator[Any]:
    make = FROM_ROW[kind]
    return (make(row, place, columns) for place, row in read_rows(file))


def column_names(columns: Columns, count: int, place: str) -> list[str]:
    """The fields that data.columns asks for, if it does."""
    if not columns:
        return []
    if len(columns) != count or not all(isinstance(column, str) for column in columns):
        raise DataError(
            f"data.columns = {list(columns)} does not fit {place}: its fields have names. "
            f"Name {'one field' if count == 1 else 'two fields'}, or leave it out."
        )
    return [str(column) for column in columns]


def is_label(label: object) -> bool:
    is_number = isinstance(label, int) and not isinstance(label, bool)
    return is_number or (isinstance(label, str) and bool(label.strip()))


def unexpected_row_error(row: Row, place: str, columns: Columns, expected: str) -> DataError:
    given = row[""] if list(row) == [""] else row
    wanted = f"the fields {' and '.join(map(repr, columns))} of data.columns, as in {expected}" if columns else expected
    other = "" if columns or "" in row else " Other fields are named by data.columns."
    return DataError(
        f"{place} is {quote(json.dumps(given, ensure_ascii=False, default=str))}. Expected {wanted}.{other}"
    )


def one_line(text: str) -> str:
    """A sentence is one line, so that what a model writes can be one."""
    return " ".join(text.splitlines()) if "\n" in text or "\r" in text else text


def quote(line: str) -> str:
    return repr(line if len(line) <= 60 else line[:57] + "...")
