"""What can end a training from outside, told in a sentence: no memory, no disk, another process that is gone."""

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
def explained(config: TrainConfig, run: RunFolder, processes: int) -> Iterator[None]:
    """The errors of torch and of the system that a user can do something about, with what that is."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        text = str(error).lower()
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(sign in text for sign in NO_MEMORY):
            raise TrainingFailed(
                f"out of memory ({first_line(error)}). Compute each batch in more parts, which changes nothing else: "
                f"train.micro_batches is {config.micro_batches}; or lower data.batch_tokens or data.max_tokens. "
                f"{what_is_left(run)}"
            ) from error
        if processes > 1 and any(sign in text for sign in NO_PEER):
            raise TrainingFailed(
                f"another process of this training is gone ({first_line(error)}). {what_is_left(run)}"
            ) from error
        raise
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise TrainingFailed(
            f"the disk is full, at {error.filename or run}. Free some of it, or keep fewer checkpoints: train.keep_checkpoints is "
            f"{config.keep_checkpoints}. {what_is_left(run)}"
        ) from error


def what_is_left(run: RunFolder) -> str:
    latest = run.pointer("latest")
    return f"Go on with --resume from {latest}." if latest else "Nothing has been saved yet."


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
