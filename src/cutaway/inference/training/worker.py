"""A worker process of a training, started by launch.py. It prints nothing."""

from __future__ import annotations

import sys

from cutaway.config import Config
from cutaway.errors import CutawayError
from cutaway.runs import RunFolder
from cutaway.system.processes import ignore_stop_signals, lines_from_parent


def main() -> None:
    ignore_stop_signals()  # the main process handles them and stops the workers
    run, *options = sys.argv[1:]
    config = Config.from_json(lines_from_parent().get())
    try:
        from cutaway.inference.training.setup import resume, start_training

        training = (resume if "--resume" in options else start_training)(config, RunFolder(run))
        training.trainer.run()
    except CutawayError as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
