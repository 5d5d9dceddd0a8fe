"""Prepare a corpus that is too large for memory: encode it once, in parallel, to arrays in the cache. No torch here.

    files ──stream──▶ tokenizer, labels ──▶ groups ──workers──▶ ids ──▶ columns in the cache ──memmap──▶ examples

The result is the same as in prepare.py: the same examples in the same order, with the same fingerprint.
"""

from __future__ import annotations

import json
import math
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cutaway.config import DataConfig
from cutaway.data.cache import ABOUT, build_entry, cache_entry_path, file_digest, read_entry
from cutaway.data.chunks import MaskedTextChunks, TextChunks
from cutaway.data.corpus import TextPart
from cutaway.data.filtering import raise_no_examples
from cutaway.data.hub import HubDataset
from cutaway.data.jsonl import File
from cutaway.data.memmap import (
    LAYOUTS,
    TEXT,
    ColumnWriter,
    RaggedArray,
    StoredExamples,
    column_types,
    file_checksum,
    open_memmap,
)
from cutaway.data.parallel_encoding import Encoder, encode_groups, group_examples
from cutaway.data.prepared import PreparedData, ProgressCallback, as_bytes, ignore_progress, merge_counts
from cutaway.data.tasks import (
    TASKS,
    bos_and_eos,
    files_of,
    has_split,
    inner_length,
    known_labels,
    order_labels,
    stream_split,
)
from cutaway.data.tokenizer import LIBRARY, Tokenizer, make_tokenizer
from cutaway.errors import DataError

IN_MEMORY = 4_000_000  # bytes; a corpus up to this size is prepared in memory, without the cache
SAMPLE_BYTES = 100_000_000  # bytes that a tokenizer is trained on; for a larger corpus, every n-th example
GZIP_FACTOR = 4  # approximate size of a text / size of its .gz file
FORMAT = 2  # increase it when the same ingredients give other files


def is_large(config: DataConfig, task: str) -> bool:
    return not config.corpus and TASKS[task].kind != "images" and size_of_corpus(config, task) > IN_MEMORY


def size_of_corpus(config: DataConfig, task: str, splits: tuple[str, ...] = ("train", "valid")) -> int:
    return sum(
        size_of_file(file) for split in splits if getattr(config, split) for file in files_of(config, task, split)
    )


def size_of_file(file: File) -> int:
    if isinstance(file, HubDataset):
        return file.size
    with suppress(OSError):  # reading the file will raise a better error
        return file.stat().st_size * (GZIP_FACTOR if file.suffix == ".gz" else 1)
    return 0


def prepare_large(
    config: DataConfig, task: str, tokenizer_file: Path | None = None, on_progress: ProgressCallback = ignore_progress
) -> PreparedData:
    """Open a corpus in the cache. Build the cache entry first if it is missing."""
    ingredients = cache_ingredients(config, task, tokenizer_file)
    folder = cache_entry_path(ingredients)
    found = read_entry(folder)
    if tokenizer_file and (found is None or not has_tokenizer(folder, tokenizer_file)):
        ingredients |= {"tokenizer": file_digest(tokenizer_file)}
        folder = cache_entry_path(ingredients)
        found = read_entry(folder)
    if found is None:
        learned = learn_tokenizer(config, task, tokenizer_file, on_progress)
        with build_entry(folder) as temporary:
            build(temporary, config, task, *learned, ingredients, on_progress)
        found = read_entry(folder)
    if found is None:
        raise DataError(f"the prepared corpus in {folder} was just written, but it is missing or damaged. Try again.")
    return open_prepared(folder, found, config, task)


def cache_ingredients(config: DataConfig, task: str, tokenizer_file: Path | None = None) -> dict[str, Any]:
    """Everything that a prepared corpus depends on. The names and folders of files are not part of it."""
    file = tokenizer_file or Path(config.root) / config.tokenizer_file
    files = {split: list(map(identity, files_of(config, task, split))) for split in ("train", "valid")
             if getattr(config, split)}  # fmt: skip
    is_trained = config.tokenizer not in ("byte", "file")
    known = known_labels(tokenizer_file) if config.tokenizer == "file" else []
    is_cut = task in LAYOUTS and config.long_texts(task) == "cut"
    return {
        **({"labels": known} if known else {}),
        **({"too_long": "cut"} if is_cut else {}),
        "format": FORMAT,
        "library": LIBRARY,
        "task": task,
        **files,
        "valid_share": config.valid_share,
        "columns": list(config.columns),
        "tokenizer": file_digest(file) if config.tokenizer == "file" else config.tokenizer,
        "vocab_size": config.vocab_size if is_trained else 0,
        "max_tokens": config.max_tokens if task in LAYOUTS else 0,  # texts are divided into chunks later
    }


def identity(file: File) -> str:
    if isinstance(file, HubDataset):
        return f"{file}: {file.identity}"
    return f"{''.join(file.suffixes[-2:])}: {file_digest(file)}"


def has_tokenizer(folder: Path, tokenizer_file: Path) -> bool:
    return (folder / "tokenizer.json").read_bytes() == tokenizer_file.read_bytes()


# ---- Writing -------------------------------------------------------------------------------------------------


class ReadProgress:
    """Counts the bytes of examples, reports the progress and updates the fingerprint."""

    def __init__(self, what: str, total: int, on_progress: ProgressCallback):
        self.what, self.total, self.on_progress = what, total, on_progress
        self.bytes, self.checksum, self.last_report = 0, 0, 0.0

    def __call__(self, example: Any) -> int:
        """Count an example. Return its size in bytes."""
        data = as_bytes(example)
        self.bytes += len(data)
        self.checksum = zlib.crc32(data, self.checksum)
        if time.monotonic() - self.last_report > 0.25:
            self.last_report = time.monotonic()
            self.on_progress(self.what, min(1.0, self.bytes / max(1, self.total)))
        return len(data)


class WrittenSplit(NamedTuple):
    """Counts, fingerprint and files of a split."""

    examples: int
    kept: int
    left_out: Counter[str]
    cut: Counter[str]
    fingerprint: str
    files: dict[str, tuple[int, int]]


def build(
    folder: Path,
    config: DataConfig,
    task: str,
    tokenizer: Tokenizer,
    labels: list[str],
    ingredients: dict[str, Any],
    on_progress: ProgressCallback,
) -> None:
    encoder = Encoder(
        task, tokenizer.to_json(), tokenizer.roles, tuple(labels), config.max_tokens, config.long_texts(task)
    )
    types = column_types(task, tokenizer.vocab_size, len(labels))
    splits = {
        split: write_split(folder, config, split, encoder, types, on_progress)
        for split in ("train", "valid")
        if has_split(config, split)
    }
    (folder / "tokenizer.json").write_text(encoder.tokenizer, encoding="utf-8", newline="\n")
    files = {"tokenizer.json": ((folder / "tokenizer.json").stat().st_size, file_checksum(folder / "tokenizer.json"))}
    about = {
        "made of": ingredients,
        "roles": tokenizer.roles,
        "labels": labels,
        "types": types,
        "splits": list(splits),
        "examples": splits["train"].examples,
        "left_out": merge_counts(splits["train"].left_out, splits["valid"].left_out if "valid" in splits else {}),
        "cut": merge_counts(splits["train"].cut, splits["valid"].cut if "valid" in splits else {}),
        "fingerprint": splits["train"].fingerprint,
        "files": files | {name: entry for split in splits.values() for name, entry in split.files.items()},
    }
    (folder / ABOUT).write_text(json.dumps(about, indent=2), encoding="utf-8")


def learn_tokenizer(
    config: DataConfig, task: str, tokenizer_file: Path | None = None, on_progress: ProgressCallback = ignore_progress
) -> tuple[Tokenizer, list[str]]:
    """The tokenizer and the labels. The training data is read at most once."""
    labels: set[str] = set()
    total = size_of_corpus(config, task, ("train",))
    step = math.ceil(max(1, total) / SAMPLE_BYTES)
    progress = ReadProgress("learning the vocabulary", total, on_progress)

    def texts() -> Iterator[str]:
        for number, example in enumerate(stream_split(config, task, "train")):
            progress(example)
            labels.update(TASKS[task].labels(example))
            if number % step == 0:
                yield from texts_of(task, example)

    source = texts()
    tokenizer = make_tokenizer(config, source, TASKS[task].has_mask, tokenizer_file)
    if TASKS[task].kind in ("labels", "tags"):
        for _ in source:  # collect all labels, also if the tokenizer has not read the texts
            pass
    return tokenizer, order_labels(sorted(labels), tokenizer_file)


def texts_of(task: str, example: Any) -> Any:
    return (example.text,) if isinstance(example, TextPart) else TASKS[task].texts(example)


def write_split(
    folder: Path, config: DataConfig, split: str, encoder: Encoder, types: dict[str, str], on_progress: ProgressCallback
) -> WrittenSplit:
    file_split = split if getattr(config, split) else "train"  # valid_share: a part of the training files
    total = size_of_corpus(config, encoder.task, (file_split,))
    progress = ReadProgress(f"tokenising the {split} data", total, on_progress)
    rows = LAYOUTS[encoder.task].rows if encoder.task in LAYOUTS else (TEXT,)
    writer = ColumnWriter(folder, split, types, rows)
    left_out: Counter[str] = Counter()
    cut: Counter[str] = Counter()
    examples = kept = 0
    for group in encode_groups(encoder, group_examples(stream_split(config, encoder.task, split), progress)):
        for name, (values, lengths) in group.columns.items():
            writer.append(name, values)
            if name in rows:
                writer.end_rows(name, lengths, group.ends)
        examples += group.examples
        kept += sum(len(values) for values, _ in group.columns.values())
        left_out.update(group.left_out)
        cut.update(group.cut)
    if not kept:
        raise_no_examples(examples, left_out, config.max_tokens)
    return WrittenSplit(examples, kept, left_out, cut, f"{progress.checksum:08x}", writer.close())


# ---- Reading -------------------------------------------------------------------------------------------------


def open_prepared(folder: Path, about: dict[str, Any], config: DataConfig, task: str) -> PreparedData:
    text = (folder / "tokenizer.json").read_text(encoding="utf-8")
    tokenizer = Tokenizer.from_json(text, about["roles"])
    splits = {split: open_split(folder, about["types"], split, config, task, tokenizer) for split in about["splits"]}
    train = splits["train"]
    return PreparedData(
        tokenizer=text,
        roles=about["roles"],
        labels=about["labels"],
        train=train.with_shifts() if isinstance(train, TextChunks | MaskedTextChunks) else train,
        valid=splits.get("valid", []),
        examples=about["examples"],
        left_out=about["left_out"],
        cut=about.get("cut", {}),
        fingerprint=about["fingerprint"],
    )


def open_split(
    folder: Path, types: dict[str, str], split: str, config: DataConfig, task: str, tokenizer: Tokenizer
) -> Any:
    columns = {name: open_memmap(folder / f"{split}.{name}.bin", dtype) for name, dtype in types.items()}

    def starts(name: str) -> Any:
        return open_memmap(folder / f"{split}.{name}.starts.bin", np.dtype(np.int64).str)

    if task == "language_model":
        return TextChunks(columns[TEXT], config.max_tokens)
    if task == "masked_language_model":
        return MaskedTextChunks(columns[TEXT], starts(TEXT), inner_length(config.max_tokens), bos_and_eos(tokenizer))
    layout = LAYOUTS[task]
    rows = {name: RaggedArray(columns[name], starts(name)) for name in layout.rows}
    return StoredExamples(task, rows, {name: columns[name] for name in layout.numbers})
