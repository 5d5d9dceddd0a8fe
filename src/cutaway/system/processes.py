"""Child processes that end when their parent dies, however it dies. No torch here.

A child has one end of a pipe and its parent the other. When the parent dies, even by SIGKILL, the operating system
closes its end. The child then reads the end of the file, and ends.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

CLEANUP_SECONDS = 3.0
# Ctrl-C; `kill` or a cluster; a closed terminal (Windows has no SIGHUP)
STOP_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def ignore_stop_signals() -> None:
    """Ignore stop signals in a child process. They reach the whole process group, and the parent handles them."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def handling_stop_signals(handler: Any) -> Iterator[dict[int, Any]]:
    """A context in which `handler` gets stop signals, except those that this process ignores (as with nohup).

    Yields the handlers from before. Only the main thread can handle signals; in other threads nothing changes.
    """
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        handled = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before.update({number: signal.signal(number, handler) for number in handled})
    try:
        yield before
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def redirect_closed_terminal() -> None:
    """After SIGHUP: redirect output from the closed terminal to /dev/null, so that printing is not an error."""
    for stream in (1, 2):
        with suppress(OSError):  # a stream may be closed
            if stat.S_ISCHR(os.fstat(stream).st_mode) and not os.isatty(stream):
                with open(os.devnull, "w") as null:
                    os.dup2(null.fileno(), stream)


def end_with_parent() -> None:
    """End this process, which `multiprocessing` started, when its parent dies.

    A handler of SIGTERM gets a few seconds to clean up.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None, "multiprocessing did not start this process"

    def end() -> None:
        if callable(signal.getsignal(signal.SIGTERM)):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(CLEANUP_SECONDS)
        os._exit(1)

    _start_thread(parent.join, end)


def lines_from_parent() -> SimpleQueue[str]:
    """A queue of the lines of standard input. When the input ends, because the parent died, this process ends.

    If it leads a process group, the whole group ends. Standard input is empty for all other code.
    """
    pipe = os.fdopen(os.dup(0), encoding="utf-8")
    with open(os.devnull) as empty:
        os.dup2(empty.fileno(), 0)
    lines: SimpleQueue[str] = SimpleQueue()

    def read() -> None:
        for line in pipe:
            lines.put(line)

    def end() -> None:
        if hasattr(os, "getpgrp") and os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    _start_thread(read, end)
    return lines


def stop_with_launcher(launcher: int) -> None:
    """Send SIGTERM to this process when its parent is no longer `launcher`. For torchrun, which gives us no pipe.

    The thread ends before the interpreter does. Otherwise it could wake up during shutdown and abort the process.
    """
    ending = threading.Event()

    def wait() -> None:
        while os.getppid() == launcher and not ending.wait(0.5):
            pass

    def stop() -> None:
        if not ending.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    thread = _start_thread(wait, stop)

    @atexit.register
    def end() -> None:
        ending.set()
        thread.join(2)


def _start_thread(wait: Callable[[], None], then: Callable[[], None]) -> threading.Thread:
    """Run wait() and then() in a daemon thread."""

    def watch() -> None:
        if hasattr(signal, "pthread_sigmask"):  # signals should interrupt system calls of the main thread
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        wait()
        then()

    thread = threading.Thread(target=watch, name="watch the parent", daemon=True)
    thread.start()
    return thread
