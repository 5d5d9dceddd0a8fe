"""Use the other core while torch is being imported: prepare the data in a process of its own."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from cutaway.config import DataConfig
from cutaway.data.prepare import PreparedData, prepare


@contextmanager
def preparing(
    config: DataConfig, task: str, tokenizer_file: Path | None = None
) -> Iterator[Callable[[], PreparedData]]:
    """Start `prepare` in another process; call what this yields to wait for its result, or its error."""
    # A fork is instant, and safe where no thread runs yet; elsewhere a fresh interpreter is started.
    context = get_context("fork" if sys.platform == "linux" else "spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=_leave_ctrl_c_to_the_parent) as pool:
        yield pool.submit(prepare, config, task, tokenizer_file).result


def _leave_ctrl_c_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
