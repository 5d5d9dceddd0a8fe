"""Python's cyclic garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Pause the collector while many objects without cycles are made, for example when a corpus is read.

    The collector would scan all objects again and again and find nothing, which can take half of the time. Reference
    counting still frees objects.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
