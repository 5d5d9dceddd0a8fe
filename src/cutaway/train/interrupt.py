"""Ctrl-C and SIGTERM during a training. No torch here."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interrupt_as_flag() -> Iterator[threading.Event]:
    """Ctrl-C, or a cluster's SIGTERM, sets a flag, so that the step at hand can end; the second time it is obeyed."""
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag  # only the main thread may handle signals
        return

    def on_signal(number: int, frame: Any) -> None:
        flag.set()
        signal.signal(number, previous[number])

    previous: dict[int, Any] = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
