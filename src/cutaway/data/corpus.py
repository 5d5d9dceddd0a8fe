"""Read texts and pairs of texts. `labels.py` reads labels and tags, `images.py` reads images."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

from cutaway.data.examples import Pair
from cutaway.data.jsonl import Columns, File, as_file, examples_from_rows, has_rows, quote
from cutaway.data.lines import decoded_lines, file_format, read_lines, read_parts, text_parts
from cutaway.errors import DataError

__all__ = ["TextPart", "decoded_lines", "read_lines", "read_pairs", "read_texts", "stream_pairs", "stream_texts"]

# ---- Pairs ---------------------------------------------------------------------------------------------------


def read_pairs(*paths: str | File, columns: Columns = ()) -> list[Pair]:
    """Pairs from two parallel files, or from files of pairs: .tsv (source<TAB>target) or .jsonl."""
    pairs = list(stream_pairs(*map(as_file, paths), columns=columns))
    if not pairs:
        are = "are" if len(paths) > 1 else "is"
        raise DataError(f"{' and '.join(map(str, paths))} {are} empty. A corpus needs at least one line.")
    return pairs


def stream_pairs(*files: File, columns: Columns = ()) -> Iterator[Pair]:
    if len(files) == 2 and not any(map(is_pair_file, files)):
        yield from _pairs_from_parallel(*files)
        return
    for file in files:
        yield from examples_from_rows("pairs", file, columns) if has_rows(file) else _pairs_from_tsv(file, columns)


def is_pair_file(file: File) -> bool:
    return has_rows(file) or file_format(str(file)) == ".tsv"


def _pairs_from_parallel(source: File, target: File) -> Iterator[Pair]:
    """Pairs from two files whose lines correspond. Different numbers of lines are an error."""
    for left, right in zip_longest(read_lines(str(source)), read_lines(str(target))):
        if left is None or right is None:
            counts = [sum(1 for _ in read_lines(str(path))) for path in (source, target)]
            raise DataError(
                f"the files are not parallel: {source} has {counts[0]} lines, {target} has {counts[1]}. "
                "Line n of the target must be the translation of line n of the source."
            )
        yield Pair(left, right)


def _pairs_from_tsv(file: File, columns: Columns) -> Iterator[Pair]:
    """Pairs from a .tsv file. Blank lines are skipped; lines with one empty side are kept."""
    for number, line in enumerate(read_lines(str(file)), 1):
        if line.strip():
            yield Pair(*tsv_fields(line, f"{file}, line {number}", columns, "a source, a tab and a target"))


def tsv_fields(line: str, location: str, columns: Columns, expected: str) -> list[str]:
    """The two fields of a line, or the two that `columns` selects."""
    fields = line.split("\t")
    if not columns:
        if len(fields) != 2:
            hint = " Select two with data.columns, as in [0, 1]." if len(fields) > 2 else ""
            raise DataError(
                f"{location} is {quote(line)}. Expected {expected}, but it has {len(fields)} columns.{hint}"
            )
        return fields
    try:
        first, second = (fields[int(column)] for column in columns)
    except (IndexError, ValueError):
        raise DataError(
            f"{location} has {len(fields)} columns: {quote(line)}. data.columns = {list(columns)} does not fit. "
            "Give two numbers, counted from 0, or from the end with -1."
        ) from None
    return [first, second]


# ---- Texts ---------------------------------------------------------------------------------------------------


class TextPart(NamedTuple):
    """A part of a text. The whole text may be larger than the memory."""

    text: str
    is_first: bool
    is_last: bool


def read_texts(*paths: str | File, columns: Columns = ()) -> list[str]:
    """Texts for a language model. Each file is one text with its line ends; in a .jsonl file, each row is one text."""
    texts = whole_texts(stream_texts(*map(as_file, paths), columns=columns))
    if not any(texts):
        raise DataError(f"{', '.join(map(str, paths))}: all texts are empty. A corpus needs at least one line.")
    return texts


def stream_texts(*files: File, columns: Columns = ()) -> Iterator[TextPart]:
    for file in files:
        if has_rows(file):
            for text in examples_from_rows("texts", file, columns):
                yield from _mark_parts(text_parts([text]))
        else:
            yield from _mark_parts(read_parts(str(file)))


def _mark_parts(parts: Iterator[str]) -> Iterator[TextPart]:
    """Mark the first and the last part of a text. Empty parts after the first are dropped."""
    part, is_first = next(parts), True
    for next_part in parts:
        if next_part:
            yield TextPart(part, is_first, is_last=False)
            part, is_first = next_part, False
    yield TextPart(part, is_first, is_last=True)


def whole_texts(parts: Iterator[TextPart]) -> list[str]:
    texts: list[str] = []
    current: list[str] = []
    for part in parts:
        current.append(part.text)
        if part.is_last:
            texts.append("".join(current))
            current = []
    return texts
