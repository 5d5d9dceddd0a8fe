"""Hugging Face datasets, by name or from a folder. `datasets` is imported only when it is needed.

    hf:NAME[:CONFIG][@SPLIT]

    hf:stanfordnlp/imdb                    the split with the same name: train, validation, test
    hf:wmt/wmt14:de-en@train[:10%]         a configuration, and a part of a split
    hf:./my-dataset@train                  a folder written by `save_to_disk`; the name begins with . / or ~

No code from the hub is run: `datasets` 4 cannot do it any more, and older versions are refused.
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
SPLITS = {"valid": "validation"}  # our name -> their name
SAFE_SINCE = 4  # since this major version, `datasets` does not run code from the hub


class HubDataset:
    """A named dataset. It is loaded at the first access."""

    def __init__(self, name: str, split: str = "train", root: str | Path = ""):
        """`split`: our name of the split, used if `name` has no @SPLIT."""
        match = PATTERN.fullmatch(name)
        if match is None:
            raise DataError(
                f"{name!r} is not the name of a dataset. Expected hf:NAME, hf:NAME:CONFIG, hf:NAME@SPLIT or "
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
        except Exception as error:  # the library raises many types of errors
            raise DataError(f"{self} cannot be loaded: {type(error).__name__}: {error}") from None

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each row, with class names instead of class numbers."""
        names = class_names(getattr(self.dataset, "features", None) or {})
        for row in self.dataset:
            yield {**row, **{field: replace_class_ids(row[field], names[field]) for field in names}}

    @property
    def size(self) -> int:
        """The size in bytes, or 0 if it is not known."""
        return int(getattr(getattr(self.dataset, "data", None), "nbytes", 0))

    @property
    def identity(self) -> str:
        """The fingerprint of `datasets`, which changes with the contents."""
        return str(getattr(self.dataset, "_fingerprint", ""))


@cache
def load_named(name: str, config: str | None, split: str) -> Any:
    return import_datasets().load_dataset(name, config, split=split)


@cache
def load_saved(folder: Path, split: str) -> Any:
    saved = import_datasets().load_from_disk(str(folder))
    if not isinstance(saved, Mapping):  # the folder contains a single split
        return saved
    if split not in saved:
        raise DataError(f"{folder} has no split {split!r}. {did_you_mean(split, saved)}")
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
            f"Install version {SAFE_SINCE} or newer: pip install -U 'datasets>={SAFE_SINCE}'"
        )
    return datasets


def class_names(features: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """field -> its class names, for fields of classes or of lists of classes."""
    found = {field: getattr(f, "names", None) or getattr(getattr(f, "feature", None), "names", None)
             for field, f in features.items()}  # fmt: skip
    return {field: names for field, names in found.items() if names}


def replace_class_ids(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [replace_class_ids(one, names) for one in value]
    # -1 is an unknown class
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else value
