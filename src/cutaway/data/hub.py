"""Hugging Face datasets, by name or from a folder: rows as dictionaries. `datasets` is imported when one is named.

    hf:NAME[:CONFIG][@SPLIT]

    hf:stanfordnlp/imdb                    the split of the same name: train, validation, test
    hf:wmt/wmt14:de-en@train[:10%]         a configuration, and a part of a split
    hf:./my-dataset@train                  a folder that `save_to_disk` wrote: a name that begins with . / or ~

No code from the hub is run: `datasets` 4 does not know how to any more, and older ones are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from cutaway.errors import CutawayError, DataError, MissingExtra, did_you_mean

PREFIX = "hf:"
PATTERN = re.compile(r"hf:(?P<name>[^:@]+)(?::(?P<config>[^@]+))?(?:@(?P<split>.+))?")
SPLITS = {"valid": "validation"}  # what ours is called there
SAFE_SINCE = 4  # the version that stopped running code from the hub


class HubDataset:
    """A dataset by its name; it is loaded when its rows are first asked for."""

    def __init__(self, written: str, split: str = "train", root: str | Path = ""):
        """`split` is ours: which one is meant if none is written."""
        match = PATTERN.fullmatch(written)
        if match is None:
            raise DataError(
                f"{written!r} does not name a dataset. Write hf:NAME, hf:NAME:CONFIG, hf:NAME@SPLIT or "
                "hf:NAME:CONFIG@SPLIT, as in hf:wmt/wmt14:de-en@train."
            )
        self.name, self.config = match["name"], match["config"]
        self.split = match["split"] or SPLITS.get(split, split)
        self.folder = Path(root) / Path(self.name).expanduser() if self.name[0] in "./~" else None

    def __str__(self) -> str:
        return f"{PREFIX}{self.name}{f':{self.config}' if self.config else ''}@{self.split}"

    @property
    def dataset(self) -> Any:
        try:
            return (
                load_saved(self.folder, self.split) if self.folder else load_named(self.name, self.config, self.split)
            )
        except CutawayError:
            raise
        except Exception as error:  # the library has many kinds, from a missing name to a missing network
            raise DataError(f"{self} cannot be loaded: {type(error).__name__}: {error}") from None

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each row, with the names of classes in place of their numbers."""
        names = class_names(getattr(self.dataset, "features", None) or {})
        for row in self.dataset:
            yield {**row, **{field: replace_class_ids(row[field], names[field]) for field in names}}

    @property
    def size(self) -> int:
        """Bytes, as far as that is known."""
        return int(getattr(getattr(self.dataset, "data", None), "nbytes", 0))

    @property
    def identity(self) -> str:
        """Another one for other contents: `datasets` has a fingerprint that follows from where the data came from."""
        return str(getattr(self.dataset, "_fingerprint", ""))


@cache
def load_named(name: str, config: str | None, split: str) -> Any:
    return import_datasets().load_dataset(name, config, split=split)


@cache
def load_saved(folder: Path, split: str) -> Any:
    saved = import_datasets().load_from_disk(str(folder))
    if not isinstance(saved, Mapping):  # a folder may hold one split or several
        return saved
    if split not in saved:
        raise DataError(f"{folder} holds no split {split!r}. {did_you_mean(split, saved)}")
    return saved[split]


def import_datasets() -> Any:
    try:
        import datasets
    except ImportError:
        raise MissingExtra("datasets", "hub", what="a data file that begins with hf:") from None
    version = str(datasets.__version__)
    if int(version.partition(".")[0]) < SAFE_SINCE:
        raise DataError(
            f"datasets {version} is installed, which may run code from the hub. "
            f"Install {SAFE_SINCE}.0 or newer: pip install -U 'datasets>={SAFE_SINCE}'"
        )
    return datasets


def class_names(features: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """field -> the names of its classes, for a field of classes or of rows of them."""
    found = {field: getattr(f, "names", None) or getattr(getattr(f, "feature", None), "names", None)
             for field, f in features.items()}  # fmt: skip
    return {field: names for field, names in found.items() if names}


def replace_class_ids(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [replace_class_ids(one, names) for one in value]
    # -1 is how an unknown class is written there
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else value
