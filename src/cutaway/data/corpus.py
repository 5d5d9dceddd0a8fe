"""Reading text: lines, parallel files, whole files. What else there is to read stands in `labels.py`."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path

from cutaway.data.examples import Pair
from cutaway.errors import DataError


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a UTF-8 text file, plain or .gz, without their ends."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r} (looked in {Path.cwd()}).")
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        yield from decoded_lines(file, str(path))


def decoded_lines(file: Iterable[bytes], name: str) -> Iterator[str]:
    """Bytes to lines, without their ends."""
    # Lines end with \n or \r\n and with nothing else: other marks that Unicode calls line ends may stand inside a
    # sentence, and splitting there would shift one side of a parallel text against the other.
    for number, line in enumerate(file, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}, line {number} is not UTF-8 (byte {error.start + 1}: 0x{line[error.start]:02x}). "
                f"Convert the text first, for example: iconv -f latin1 -t utf-8 {Path(name).name}"
            ) from None


def read_pairs(source_path: str | Path, target_path: str | Path) -> list[Pair]:
    """Two files whose lines correspond. Unequal lengths are an error: some pair would be wrong."""
    pairs = []
    for source, target in zip_longest(read_lines(source_path), read_lines(target_path)):
        if source is None or target is None:
            counts = [sum(1 for _ in read_lines(path)) for path in (source_path, target_path)]
            raise DataError(
                f"the files are not parallel: {source_path} has {counts[0]} lines, {target_path} has {counts[1]}. "
                "Line n of one must translate line n of the other."
            )
        pairs.append(Pair(source, target))
    if not pairs:
        raise DataError(f"{source_path} and {target_path} are empty. A corpus needs at least one line.")
    return pairs


def read_texts(*paths: str | Path) -> list[str]:
    """Each file as one text, its lines kept: what a language model reads."""
    texts = ["\n".join(read_lines(path)) for path in paths]
    if not any(texts):
        raise DataError(f"{', '.join(map(str, paths))}: nothing but empty text. A corpus needs at least one line.")
    return texts
