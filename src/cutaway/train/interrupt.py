"""Ctrl-C, SIGTERM and SIGHUP during a training. No torch here."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cutaway.system.processes import forget_closed_terminal, handling_stop_signals


@contextmanager
def interrupt_as_flag() -> Iterator[threading.Event]:
    """A stop signal sets a flag, so that the step at hand can end; the second time it is obeyed at once."""
    flag = threading.Event()

    def on_signal(number: int, frame: object) -> None:
        flag.set()
        forget_closed_terminal()
        signal.signal(number, before[number])

    with handling_stop_signals(on_signal) as before:
        yield flag
