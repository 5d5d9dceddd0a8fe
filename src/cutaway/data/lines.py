"""Read UTF-8 text, plain or .gz: by lines, or a whole file in parts. The memory use is bounded for any file."""

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

MAX_LINE_BYTES = 10_000_000  # a file without line ends must not fill the memory
PART_CHARACTERS = 200_000  # the size of a part of a long text
MAX_LOOK_BACK = 20_000  # a part may be this much shorter, to end at white space


@contextmanager
def open_file(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file in binary mode, decompressed if its name ends in .gz."""
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path} is a folder. Give the name of a file in it.")
    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r} (looked in {Path.cwd()}).")
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            yield file  # type: ignore[misc]
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path} is not a complete gzip file ({error}). Compress it again, or remove .gz from its name."
        ) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None


def file_format(path: str | Path) -> str:
    """The format of a file by its name: ".tsv", ".jsonl", ".npz", ..., without .gz."""
    return Path(str(path).removesuffix(".gz")).suffix.lower()


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a UTF-8 text file, plain or .gz, without line ends."""
    with open_file(path) as file:
        yield from decoded_lines(_bounded_lines(file, str(path)), str(path))


def decoded_lines(file: Iterable[bytes], name: str) -> Iterator[str]:
    """Decode lines of bytes and remove the line ends."""
    # A line ends with \n or \r\n only. Unicode has other line separators, but these can occur inside a sentence.
    # Splitting there would misalign parallel files.
    for number, line in enumerate(file, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            is_utf_16 = number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            raise DataError(
                f"{name}, line {number} is not UTF-8 (byte {error.start + 1}: 0x{line[error.start]:02x}). Convert the "
                f"file, for example: iconv -f {'utf-16' if is_utf_16 else 'latin1'} -t utf-8 {Path(name).name}"
            ) from None


def _bounded_lines(file: IO[bytes], name: str) -> Iterator[bytes]:
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise DataError(
                f"{name}, line {number} has more than {MAX_LINE_BYTES / 1e6:.0f} MB without a line end. Check that "
                "this is the right file, and put each sentence or paragraph on its own line."
            )
        yield line


def read_parts(path: str | Path) -> Iterator[str]:
    """A whole text file in parts, without its last line end. The concatenation of the parts is the text.

    The file may have no line ends: some corpora are one line of 100 MB.
    """
    yield from text_parts(_normalize_line_ends(_decoded_blocks(path)))


def _decoded_blocks(path: str | Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    try:
        with open_file(path) as file:
            while block := file.read(1 << 20):
                yield decoder.decode(block)
            yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        for _ in read_lines(path):  # raises an error that names the line
            pass
        raise DataError(f"{path} is not UTF-8: {error}.") from None


def _normalize_line_ends(blocks: Iterable[str]) -> Iterator[str]:
    r"""Replace \r\n by \n, and remove the last line end."""
    ends = ""  # line ends that may be the last of the file
    for block in blocks:
        text = ends + block
        body = text.rstrip("\r\n")
        ends = text[len(body) :]
        yield re.sub("\r+\n", "\n", body)
    ends = re.sub("\r+\n", "\n", ends)
    yield ends[:-1] if ends.endswith("\n") else ends.rstrip("\r")


def text_parts(blocks: Iterable[str]) -> Iterator[str]:
    """The text in parts of at most PART_CHARACTERS. A part is tokenised in the same way as inside the whole text.

    A part ends before the last white space character in front of a word, because a word and its space are one token.
    If there is no white space within MAX_LOOK_BACK characters, the cut is arbitrary.
    """
    rest = ""
    for block in blocks:
        rest += block
        while len(rest) > PART_CHARACTERS:
            cut = _cut_position(rest)
            yield rest[:cut]
            rest = rest[cut:]
    yield rest


def _cut_position(text: str) -> int:
    start = max(1, PART_CHARACTERS - MAX_LOOK_BACK)
    positions = [match.start() for match in re.finditer(r"\s(?=\S)", text[start : PART_CHARACTERS + 1])]
    return start + positions[-1] if positions else PART_CHARACTERS
