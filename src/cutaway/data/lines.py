"""Reading UTF-8 text, plain or .gz: by lines, or a whole file in parts. Memory stays bounded, whatever the file."""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from cutaway.errors import DataError

LONGEST_LINE = 10_000_000  # bytes: no sentence is so long, and a file without line ends is not to fill the memory
PART = 200_000  # characters that a long text is handed on in
LOOK_BACK = 20_000  # so far before its end a part may be cut, at white space


@contextmanager
def open_file(path: str | Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked if its name ends in .gz."""
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path} is a folder. Give the name of a file in it.")
    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r} (looked in {Path.cwd()}).")
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            yield file  # type: ignore[misc]
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is not a whole gzip file ({error}). Pack it again, or name it without .gz.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None


def kind_of(path: str | Path) -> str:
    """How a file is written, by the end of its name: ".tsv", ".jsonl", ".npz", ...; .gz does not count."""
    return Path(str(path).removesuffix(".gz")).suffix.lower()


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a UTF-8 text file, plain or .gz, without their ends."""
    with open_file(path) as file:
        yield from decoded_lines(_short_lines(file, str(path)), str(path))


def decoded_lines(file: Iterable[bytes], name: str) -> Iterator[str]:
    """Bytes to lines, without their ends."""
    # Lines end with \n or \r\n and with nothing else: other marks that Unicode calls line ends may stand inside a
    # sentence, and splitting there would shift one side of a parallel text against the other.
    for number, line in enumerate(file, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            is_utf_16 = number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            raise DataError(
                f"{name}, line {number} is not UTF-8 (byte {error.start + 1}: 0x{line[error.start]:02x}). Convert the "
                f"text first, for example: iconv -f {'utf-16' if is_utf_16 else 'latin1'} -t utf-8 {Path(name).name}"
            ) from None


def _short_lines(file: IO[bytes], name: str) -> Iterator[bytes]:
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise DataError(
                f"{name}, line {number} has more than {LONGEST_LINE / 1e6:.0f} MB without a line end. Is this the "
                "right file? Break it into lines of a sentence or a paragraph each."
            )
        yield line


def read_parts(path: str | Path) -> Iterator[str]:
    """A whole text file, in parts that give the text when they are put together; its last line end does not count.

    It need not have lines: some corpora are one line of 100 MB.
    """
    yield from text_parts(_without_returns(_decoded_blocks(path)))


def _decoded_blocks(path: str | Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    try:
        with open_file(path) as file:
            while block := file.read(1 << 20):
                yield decoder.decode(block)
            yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        for _ in read_lines(path):  # it knows in which line
            pass
        raise DataError(f"{path} is not UTF-8: {error}.") from None


def _without_returns(blocks: Iterable[str]) -> Iterator[str]:
    r"""Line ends \r\n become \n, and the one at the very end goes."""
    ends = ""  # held back until we know what follows
    for block in blocks:
        text = ends + block
        body = text.rstrip("\r\n")
        ends = text[len(body) :]
        yield re.sub("\r+\n", "\n", body)
    ends = re.sub("\r+\n", "\n", ends)
    yield ends[:-1] if ends.endswith("\n") else ends.rstrip("\r")


def text_parts(blocks: Iterable[str]) -> Iterator[str]:
    """The same text in parts of PART characters, cut so that a part is tokenised as it would be within the whole.

    That is before the last of the white space that stands before a word: a word and its space go together. Only where
    there is none far and wide is the cut made anywhere.
    """
    rest = ""
    for block in blocks:
        rest += block
        while len(rest) > PART:
            cut = _last_space(rest)
            yield rest[:cut]
            rest = rest[cut:]
    yield rest


def _last_space(text: str) -> int:
    start = max(1, PART - LOOK_BACK)
    places = [match.start() for match in re.finditer(r"\s(?=\S)", text[start : PART + 1])]
    return start + places[-1] if places else PART
