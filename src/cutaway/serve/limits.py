"""All limits of the server."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from cutaway.errors import ConfigError

MAX_CONNECTIONS = 4_096


def default_connections() -> int:
    """Number of connections that fit into ulimit -n, with some file descriptors left for everything else."""
    try:
        import resource
    except ImportError:  # Windows
        return MAX_CONNECTIONS
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if descriptors == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, descriptors - max(64, descriptors // 8)))


@dataclass(frozen=True)
class Limits:
    """The limits of a server. All but the last three are options of `cutaway serve`."""

    body: int = 1 << 20  # bytes per request
    characters: int = 20_000  # per text
    texts: int = 256  # texts per request
    new_tokens: int = 1_024  # generated tokens per text
    waiting: int = 1_024  # texts in a model's queue; beyond it, 429
    seconds: float = 60.0  # per request, time in the queue included
    connections: int = field(default_factory=default_connections)  # open at the same time
    batch_size: int = 64  # texts per batch
    batch_tokens: int = 16_384  # input and output tokens per batch, padding and beams included
    upload_seconds: float = 20.0  # until a request has arrived completely
    stalled_seconds: float = 20.0  # that a client may take to read one event of a stream

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            if not getattr(self, one.name) > 0:
                raise ConfigError(
                    f"the limit {one.name} = {getattr(self, one.name)} must be above 0. Give a larger number."
                )
        if self.texts > self.waiting:
            raise ConfigError(
                f"--max-texts {self.texts} is larger than --max-waiting {self.waiting}: a full request could never "
                "wait in the queue. Lower --max-texts or raise --max-waiting."
            )
