"""Messages for failures that are not the user's mistake: no memory, no disk space, another process that died."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from cutaway.config import TrainConfig
from cutaway.errors import TrainingFailed
from cutaway.runs import RunFolder

NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
NO_PEER = ("closed by peer", "reset by peer", "broken pipe", "connectfullmesh", "nccl", "timed out")


@contextmanager
def explain_failures(config: TrainConfig, run: RunFolder, processes: int) -> Iterator[None]:
    """Turn errors of torch and of the operating system into TrainingFailed, with advice."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        text = str(error).lower()
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(sign in text for sign in NO_MEMORY):
            raise TrainingFailed(
                f"out of memory ({first_line(error)}). Raise train.micro_batches (now {config.micro_batches}), which "
                f"does not change the result; or lower data.batch_tokens or data.max_tokens. {resume_hint(run)}"
            ) from error
        if processes > 1 and any(sign in text for sign in NO_PEER):
            raise TrainingFailed(
                f"another process of this training died ({first_line(error)}). {resume_hint(run)}"
            ) from error
        raise
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise TrainingFailed(
            f"the disk is full at {error.filename or run}. Free some space, or lower train.keep_checkpoints (now "
            f"{config.keep_checkpoints}). {resume_hint(run)}"
        ) from error


def resume_hint(run: RunFolder) -> str:
    latest = run.pointer("latest")
    return f"Resume from {latest} with --resume." if latest else "Nothing has been saved yet."


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
