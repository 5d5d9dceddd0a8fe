"""What is looked at before any command runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from cutaway.errors import DataError


def careful(command: Callable[..., None]) -> Callable[..., None]:
    """The command, which gets no texts that nothing could write."""

    @functools.wraps(command)
    def called(**given: Any) -> None:
        refuse_bytes(given)
        command(**given)

    return called


def refuse_bytes(given: Mapping[str, Any]) -> None:
    """What the shell hands on that is not UTF-8: Python has it as halves of characters. (Names of files may be so.)"""
    for name, value in given.items():
        texts = value if isinstance(value, list) else [value]
        for text in (text for text in texts if isinstance(text, str)):
            if any("\ud800" <= character <= "\udfff" for character in text):
                where = "an argument" if name == "text" else f"--{name.replace('_', '-')}"
                raise DataError(f"{where} is not UTF-8: {text!r}. Convert it first, for example with iconv.")
