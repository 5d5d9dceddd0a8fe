"""Use the other core while torch is being imported: prepare the data in a process of its own."""

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
from cutaway.system.processes import PATIENCE, end_with_parent, ignore_stop_signals


@contextmanager
def preparing(
    config: DataConfig, task: str, tokenizer_file: Path | None = None
) -> Iterator[Callable[[], PreparedData]]:
    """Start `prepare` in another process; call what this yields to wait for its result, or its error."""
    # A fork is instant, and safe where no thread runs yet; elsewhere a fresh interpreter is started.
    context: Any = get_context("fork" if sys.platform == "linux" else "spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_prepare, args=(ours, theirs, config, task, tokenizer_file))
    process.start()
    theirs.close()
    try:
        yield lambda: _wait_for(ours, process)
    finally:
        process.terminate()  # if it is still at work, nobody waits for it any more
        process.join(PATIENCE)
        if process.is_alive():  # deep in a library, where it hears nothing
            process.kill()
            process.join()
        ours.close()


def _wait_for(news: Connection, process: Any) -> PreparedData:
    """The last of the news; the others say how far it is."""
    with PreparingProgress() as progress:
        while True:
            try:
                kind, content = news.recv()
            except EOFError:
                process.join()
                raise DataError(
                    f"the process that prepares the data ended without a word (exit code {process.exitcode}). If "
                    "the machine was out of memory, close other programs and try again."
                ) from None
            if kind == "progress":
                progress(*content)
            elif kind == "done":
                return content
            else:
                raise content


def _prepare(
    parents_end: Connection, news: Connection, config: DataConfig, task: str, tokenizer_file: Path | None
) -> None:
    parents_end.close()  # or we would never learn that nobody reads
    ignore_stop_signals()
    signal.signal(signal.SIGTERM, _end)
    end_with_parent()
    try:
        news.send(("done", prepare(config, task, tokenizer_file, lambda *far: news.send(("progress", far)))))
    except BrokenPipeError:
        return  # the parent is gone
    except Exception as error:
        error.add_note(traceback.format_exc())
        news.send(("error", error))


def _end(number: int, frame: Any) -> None:
    """The parent, or its death, ends us: the workers of a pool end, and half a cache entry is removed."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(143)
