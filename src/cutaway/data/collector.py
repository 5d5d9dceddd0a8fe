"""Python's cyclic garbage collector, and when it is in the way."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """For work that makes many lasting objects and no cycles, such as reading a corpus.

    The collector would walk through all that is there already, again and again, and find nothing: it can cost half of
    the time. Objects without cycles are freed at once all the same.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
