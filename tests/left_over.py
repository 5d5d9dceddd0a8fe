"""Processes that outlive the one that started them: all that descend from a marked one carry its mark."""

import os
import time
import uuid
from pathlib import Path

VARIABLE = "CUTAWAY_TEST_MARK"


def marked(**more):
    """An environment with a mark of its own, and the mark."""
    mark = uuid.uuid4().hex
    return {**os.environ, **more, VARIABLE: mark}, mark


def alive_with(mark):
    """What is alive and has the mark: {process id: command line}. A zombie is not alive."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{VARIABLE}={mark}".encode() not in (folder / "environ").read_bytes():
                continue
            if (folder / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
        except OSError:  # it has just ended, or is another user's
            continue
    return found


def left_with(mark, seconds=10):
    """What is still alive after so long; empty as soon as nothing is."""
    ends = time.monotonic() + seconds
    while (found := alive_with(mark)) and time.monotonic() < ends:
        time.sleep(0.05)
    return found
