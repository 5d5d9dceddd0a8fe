"""Child processes that do not outlive their parent, whatever it dies of. No torch here.

A child holds one end of a pipe, its parent the other. The operating system closes the parent's end when the parent
dies, even of SIGKILL; the child then reads the end of the file, and ends.
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

PATIENCE = 3.0  # seconds in which a process may clean up
# What asks a process to stop: Ctrl-C, a cluster or `kill`, a terminal that was closed (Windows has no such signal).
STOP_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def ignore_stop_signals() -> None:
    """For a child process: these reach the whole process group, and the parent decides what becomes of it."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def handling_stop_signals(handler: Any) -> Iterator[dict[int, Any]]:
    """While the block runs, `handler` is told of stop signals, but of none that this process ignores (as with nohup).

    Yields what handled them before. Only the main thread can handle signals; elsewhere nothing changes.
    """
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        heard = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before.update({number: signal.signal(number, handler) for number in heard})
    try:
        yield before
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def forget_closed_terminal() -> None:
    """After SIGHUP: what is still said to a terminal that was closed goes nowhere, instead of being an error."""
    for stream in (1, 2):
        with suppress(OSError):  # a stream may be closed
            if stat.S_ISCHR(os.fstat(stream).st_mode) and not os.isatty(stream):
                with open(os.devnull, "w") as nowhere:
                    os.dup2(nowhere.fileno(), stream)


def end_with_parent() -> None:
    """End this process, started by `multiprocessing`, when its parent dies.

    A handler of SIGTERM gets a few seconds to clean up.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None, "multiprocessing did not start this process"

    def end() -> None:
        if callable(signal.getsignal(signal.SIGTERM)):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(PATIENCE)
        os._exit(1)

    _in_background(parent.join, end)


def lines_from_parent() -> SimpleQueue[str]:
    """Lines of standard input as they come. When it ends, because the parent died or closed it, this process ends.

    If it leads a process group, the whole group ends. Other readers find standard input empty.
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

    _in_background(read, end)
    return lines


def stop_with_launcher(launcher: int) -> None:
    """Send SIGTERM to this process when its parent is no longer `launcher`. For torchrun, which gives us no pipe.

    The thread that watches ends before the interpreter does: one that wakes up in between can end in an abort.
    """
    ending = threading.Event()

    def wait() -> None:
        while os.getppid() == launcher and not ending.wait(0.5):
            pass

    def stop() -> None:
        if not ending.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    thread = _in_background(wait, stop)

    @atexit.register
    def end() -> None:
        ending.set()
        thread.join(2)


def _in_background(wait: Callable[[], None], then: Callable[[], None]) -> threading.Thread:
    def watch() -> None:
        if hasattr(signal, "pthread_sigmask"):  # signals are for the main thread, whose system calls they interrupt
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        wait()
        then()

    thread = threading.Thread(target=watch, name="watch the parent", daemon=True)
    thread.start()
    return thread
