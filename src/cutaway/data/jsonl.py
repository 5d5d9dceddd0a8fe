"""Examples from rows. A row is a dictionary: a line of JSONL, or a row of a Hugging Face dataset.

    pairs    {"source": "a dog", "target": "ein Hund"}      or {"translation": {"en": "a dog", "de": "ein Hund"}}
    texts    {"text": "..."}
    labels   {"text": "a good film", "label": "positive"}
    tags     {"words": ["a", "dog"], "tags": ["DET", "NOUN"]}

`data.columns` selects other fields: columns = ["en", "de"].
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cutaway.data.examples import LabelledText, Pair, TaggedText
from cutaway.data.hub import PREFIX, HubDataset
from cutaway.data.lines import file_format, read_lines
from cutaway.errors import DataError

Row = Mapping[str, Any]
Columns = Sequence[int | str]
File = Path | HubDataset


def as_file(name: str | File, split: str = "train", root: str | Path = "") -> File:
    """A file name of a recipe -> a path under data.root, or a Hugging Face dataset."""
    if isinstance(name, HubDataset):
        return name
    return HubDataset(str(name), split, root) if str(name).startswith(PREFIX) else Path(root) / name


def has_rows(file: File | str) -> bool:
    return isinstance(file, HubDataset) or file_format(file) == ".jsonl"


def read_rows(file: File | str) -> Iterator[tuple[str, Row]]:
    """Each row with its location for error messages. Blank lines are skipped."""
    if isinstance(file, HubDataset):
        yield from ((f"{file}, row {number}", row) for number, row in enumerate(file.rows(), 1))
        return
    for number, line in enumerate(read_lines(file), 1):
        if line.strip():
            location = f"{file}, line {number}"
            yield location, parse_row(line, location)


def parse_row(line: str, location: str) -> Row:
    try:
        row = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        what = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else "nested too deeply"
        raise DataError(f"{location} is not JSON ({what}): {quote(line)}.") from None
    return row if isinstance(row, dict) else {"": row}


def pair_from_row(row: Row, location: str, columns: Columns = ()) -> Pair:
    """A pair. Without `columns`, the first language of a "translation" is the source."""
    inner = row.get("translation")
    fields = inner if isinstance(inner, Mapping) else row
    names = column_names(columns, 2, location) or (list(fields) if fields is inner else ["source", "target"])
    texts = [fields.get(name, row.get(name)) for name in names]
    if len(names) != 2 or not all(isinstance(text, str) for text in texts):
        expected = '{"source": ..., "target": ...} or {"translation": {"de": ..., "en": ...}} with two strings'
        raise unexpected_row_error(row, location, columns, expected)
    return Pair(*map(one_line, texts))


def text_from_row(row: Row, location: str, columns: Columns = ()) -> str:
    [name] = column_names(columns, 1, location) or ["text"]
    text = row.get(name)
    if not isinstance(text, str):
        raise unexpected_row_error(row, location, columns, '{"text": ...} with a string')
    return text


def labelled_from_row(row: Row, location: str, columns: Columns = ()) -> LabelledText:
    names = column_names(columns, 2, location) or ["text", "label"]
    text, label = (row.get(name) for name in names)
    if not isinstance(text, str) or not text.strip() or not is_label(label):
        expected = '{"text": ..., "label": ...} with a string as text, and a string or a whole number as label'
        raise unexpected_row_error(row, location, columns, expected)
    return LabelledText(text, str(label).strip())


def tagged_from_row(row: Row, location: str, columns: Columns = ()) -> TaggedText:
    names = column_names(columns, 2, location) or ["words" if "words" in row else "tokens", "tags"]
    words, tags = (row[name] if isinstance(row.get(name), list) else [] for name in names)
    is_valid = len(words) == len(tags) > 0 and all(isinstance(word, str) for word in words)
    if not is_valid or not all(map(is_label, tags)):
        expected = '{"words": [...], "tags": [...]} with at least one word, and a tag for each word'
        raise unexpected_row_error(row, location, columns, expected)
    return TaggedText(tuple(words), tuple(str(tag).strip() for tag in tags))


PARSERS: dict[str, Callable[[Row, str, Columns], Any]] = {
    "pairs": pair_from_row,
    "texts": text_from_row,
    "labels": labelled_from_row,
    "tags": tagged_from_row,
}


def examples_from_rows(kind: str, file: File | str, columns: Columns = ()) -> Iterator[Any]:
    parse = PARSERS[kind]
    return (parse(row, location, columns) for location, row in read_rows(file))


def column_names(columns: Columns, count: int, location: str) -> list[str]:
    """The field names in data.columns, or an empty list."""
    if not columns:
        return []
    if len(columns) != count or not all(isinstance(column, str) for column in columns):
        raise DataError(
            f"data.columns = {list(columns)} does not fit {location}, because its fields have names. "
            f"Give the {'name of one field' if count == 1 else 'names of two fields'}, or remove data.columns."
        )
    return [str(column) for column in columns]


def is_label(label: object) -> bool:
    is_number = isinstance(label, int) and not isinstance(label, bool)
    return is_number or (isinstance(label, str) and bool(label.strip()))


def unexpected_row_error(row: Row, location: str, columns: Columns, expected: str) -> DataError:
    given = row[""] if list(row) == [""] else row
    if columns:
        expected = f"the fields {' and '.join(map(repr, columns))} of data.columns, as in {expected}"
    hint = "" if columns or "" in row else " For other field names, set data.columns."
    return DataError(
        f"{location} is {quote(json.dumps(given, ensure_ascii=False, default=str))}. Expected {expected}.{hint}"
    )


def one_line(text: str) -> str:
    """Join the lines of a sentence with spaces, so that outputs have one line each."""
    return " ".join(text.splitlines()) if "\n" in text or "\r" in text else text


def quote(line: str) -> str:
    return repr(line if len(line) <= 60 else line[:57] + "...")
