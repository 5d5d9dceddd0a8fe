"""Prepare the data in another process while this one imports torch."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from cutaway.cli.preparing import PreparingProgress
from cutaway.config import DataConfig
from cutaway.data.prepare import PreparedData, prepare
from cutaway.errors import DataError
from cutaway.system.processes import CLEANUP_SECONDS, end_with_parent, ignore_stop_signals


@contextmanager
def prefetch_data(
    config: DataConfig, task: str, tokenizer_file: Path | None = None
) -> Iterator[Callable[[], PreparedData]]:
    """Start `prepare` in another process. Yields a function that waits for the result, or raises its error."""
    # fork is fast, and safe because no thread runs yet
    context: Any = get_context("fork" if sys.platform == "linux" else "spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_prepare, args=(receiver, sender, config, task, tokenizer_file))
    process.start()
    sender.close()
    try:
        yield lambda: _wait_for_data(receiver, process)
    finally:
        process.terminate()  # it may still run after an error in this process
        process.join(CLEANUP_SECONDS)
        if process.is_alive():  # a library blocks the signal
            process.kill()
            process.join()
        receiver.close()


def _wait_for_data(receiver: Connection, process: Any) -> PreparedData:
    """Show the progress messages until the result or an error arrives."""
    with PreparingProgress() as progress:
        while True:
            try:
                kind, content = receiver.recv()
            except EOFError:
                process.join()
                raise DataError(
                    f"the process that prepares the data died (exit code {process.exitcode}). If the machine was out "
                    "of memory, close other programs and try again."
                ) from None
            if kind == "progress":
                progress(*content)
            elif kind == "done":
                return content
            else:
                raise content


def _prepare(
    receiver: Connection, sender: Connection, config: DataConfig, task: str, tokenizer_file: Path | None
) -> None:
    receiver.close()  # the parent's end; an open copy would hide that the parent died
    ignore_stop_signals()
    signal.signal(signal.SIGTERM, _exit)
    end_with_parent()
    try:
        data = prepare(config, task, tokenizer_file, lambda *progress: sender.send(("progress", progress)))
        sender.send(("done", data))
    except BrokenPipeError:
        return  # the parent died
    except Exception as error:
        error.add_note(traceback.format_exc())
        sender.send(("error", error))


def _exit(number: int, frame: Any) -> None:
    """Exit with cleanup: worker processes end, and a partial cache entry is removed."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(143)
