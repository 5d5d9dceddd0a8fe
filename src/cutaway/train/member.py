"""One more process of a team on this machine; `train/launch.py` starts it. It computes and says nothing."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from cutaway.config import Config
from cutaway.errors import CutawayError
from cutaway.runs import RunFolder


def main() -> None:
    end_with_parent(signal.SIGKILL)  # without its leader it would only wait
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the leader, who tells the others
    run, *options = sys.argv[1:]
    config = Config.from_json(sys.stdin.read())
    try:
        from cutaway.train.begin import begin, resume

        training = (resume if "--resume" in options else begin)(config, RunFolder(run))
        training.trainer.run()
    except CutawayError as error:
        sys.exit(f"{type(error).__name__}: {error}")


def end_with_parent(number: int) -> None:
    """On Linux: get this signal when the parent process dies, whatever it dies of."""
    if sys.platform == "linux":
        parent = os.getppid()
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it was too late
            os.kill(os.getpid(), number)


if __name__ == "__main__":
    main()
