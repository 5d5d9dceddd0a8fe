"""Reading texts and pairs of texts. Labels and tags stand in `labels.py`, pictures in `pictures.py`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

from cutaway.data.examples import Pair
from cutaway.data.jsonl import Columns, File, as_file, examples_from_rows, has_rows, quote
from cutaway.data.lines import decoded_lines, kind_of, read_lines, read_parts, text_parts
from cutaway.errors import DataError

__all__ = ["TextPart", "decoded_lines", "read_lines", "read_pairs", "read_texts", "stream_pairs", "stream_texts"]

# ---- Pairs ---------------------------------------------------------------------------------------------------


def read_pairs(*paths: str | File, columns: Columns = ()) -> list[Pair]:
    """Two files whose lines correspond; or one of pairs: source<TAB>target in a .tsv, or a .jsonl."""
    pairs = list(stream_pairs(*map(as_file, paths), columns=columns))
    if not pairs:
        are = "are" if len(paths) > 1 else "is"
        raise DataError(f"{' and '.join(map(str, paths))} {are} empty. A corpus needs at least one line.")
    return pairs


def stream_pairs(*files: File, columns: Columns = ()) -> Iterator[Pair]:
    if len(files) == 2 and not any(map(holds_pairs, files)):
        yield from _parallel(*files)
        return
    for file in files:
        yield from examples_from_rows("pairs", file, columns) if has_rows(file) else _from_tsv(file, columns)


def holds_pairs(file: File) -> bool:
    return has_rows(file) or kind_of(str(file)) == ".tsv"


def _parallel(source: File, target: File) -> Iterator[Pair]:
    """Unequal lengths are an error: some pair would be wrong."""
    for left, right in zip_longest(read_lines(str(source)), read_lines(str(target))):
        if left is None or right is None:
            counts = [sum(1 for _ in read_lines(str(path))) for path in (source, target)]
            raise DataError(
                f"the files are not parallel: {source} has {counts[0]} lines, {target} has {counts[1]}. "
                "Line n of one must translate line n of the other."
            )
        yield Pair(left, right)


def _from_tsv(file: File, columns: Columns) -> Iterator[Pair]:
    """Blank lines do not count; a line with one side empty does."""
    for number, line in enumerate(read_lines(str(file)), 1):
        if line.strip():
            yield Pair(*tsv_fields(line, f"{file}, line {number}", columns, "a source, a tab and a target"))


def tsv_fields(line: str, place: str, columns: Columns, expected: str) -> list[str]:
    """The two fields of a line with tabs in it: all that there are, or those that `columns` asks for."""
    fields = line.split("\t")
    if not columns:
        if len(fields) != 2:
            more = " Say which two are meant: data.columns = [0, 1]." if len(fields) > 2 else ""
            raise DataError(f"{place} is {quote(line)}. Expected {expected}, and it has {len(fields)} columns.{more}")
        return fields
    try:
        first, second = (fields[int(column)] for column in columns)
    except (IndexError, ValueError):
        raise DataError(
            f"{place} has {len(fields)} columns: {quote(line)}. data.columns = {list(columns)} asks for others "
            "(two numbers, counted from 0, or from the end with -1)."
        ) from None
    return [first, second]


# ---- Texts ---------------------------------------------------------------------------------------------------


class TextPart(NamedTuple):
    """Some of a text. A text may be larger than the memory."""

    text: str
    is_first: bool
    is_last: bool


def read_texts(*paths: str | File, columns: Columns = ()) -> list[str]:
    """Each file as one text, its lines kept; or from a .jsonl each row: what a language model reads."""
    texts = whole_texts(stream_texts(*map(as_file, paths), columns=columns))
    if not any(texts):
        raise DataError(f"{', '.join(map(str, paths))}: nothing but empty text. A corpus needs at least one line.")
    return texts


def stream_texts(*files: File, columns: Columns = ()) -> Iterator[TextPart]:
    for file in files:
        if has_rows(file):
            for text in examples_from_rows("texts", file, columns):
                yield from _marked(text_parts([text]))
        else:
            yield from _marked(read_parts(str(file)))


def _marked(parts: Iterator[str]) -> Iterator[TextPart]:
    """Say of each part whether one came before, and whether another one follows."""
    part, is_first = next(parts), True
    for following in parts:
        if following:
            yield TextPart(part, is_first, is_last=False)
            part, is_first = following, False
    yield TextPart(part, is_first, is_last=True)


def whole_texts(parts: Iterator[TextPart]) -> list[str]:
    texts: list[str] = []
    so_far: list[str] = []
    for part in parts:
        so_far.append(part.text)
        if part.is_last:
            texts.append("".join(so_far))
            so_far = []
    return texts
