"""Reading text: parallel files, or a built-in corpus, by what the configuration names."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from cutaway.config import DataConfig
from cutaway.data.builtin import SentencePair, load_builtin
from cutaway.errors import DataError


class Pair(NamedTuple):
    source: str
    target: str


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


def load_pairs(config: DataConfig, split: str, seed: int = 0) -> Sequence[SentencePair]:
    """The pairs of one split ("train", "valid", "test"; tinyworld has "unseen" too)."""
    if config.corpus:
        size = config.size if split == "train" else config.heldout_size
        return load_builtin(config.corpus, split, size, seed)
    files = getattr(config, split, ())
    if not files:
        raise DataError(
            f"the recipe names no {split} data. Set data.corpus to a built-in corpus, or data.{split} to two files."
        )
    return read_pairs(*(Path(config.root) / file for file in files))


def has_split(config: DataConfig, split: str) -> bool:
    return bool(config.corpus or getattr(config, split))
