"""Ctrl-C, SIGTERM and SIGHUP during a training. No torch here."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cutaway.system.processes import handling_stop_signals, redirect_closed_terminal


@contextmanager
def interrupt_as_flag() -> Iterator[threading.Event]:
    """The first stop signal sets a flag, so that the current step can end. The second one stops the process at once."""
    flag = threading.Event()

    def on_signal(number: int, frame: object) -> None:
        flag.set()
        redirect_closed_terminal()
        signal.signal(number, before[number])

    with handling_stop_signals(on_signal) as before:
        yield flag
