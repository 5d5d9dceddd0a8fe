"""What a server takes, and what is refused: every bound in one place."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from cutaway.errors import ConfigError

MOST_CONNECTIONS = 4_096


def connections_allowed() -> int:
    """Connections that this process may hold: of its file descriptors (ulimit -n), some are left for all else."""
    try:
        import resource
    except ImportError:  # Windows
        return MOST_CONNECTIONS
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if descriptors == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(1, min(MOST_CONNECTIONS, descriptors - max(64, descriptors // 8)))


@dataclass(frozen=True)
class Limits:
    """Each of these is an option of `cutaway serve`, but for the last three."""

    body: int = 1 << 20  # bytes of a request
    characters: int = 20_000  # of one text
    texts: int = 256  # of one request
    new_tokens: int = 1_024  # that may be asked for, a text
    waiting: int = 1_024  # texts of all requests, before new ones are sent away
    seconds: float = 60.0  # until an answer, waiting included
    connections: int = field(default_factory=connections_allowed)  # that are open at a time
    batch_size: int = 64  # texts that are worked on together
    batch_tokens: int = 16_384  # ... and tokens, read and yet to be written, padding and beams included
    upload_seconds: float = 20.0  # until a request has arrived as a whole
    stalled_seconds: float = 20.0  # that a reader of a stream may take for a piece

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            if not getattr(self, one.name) > 0:
                raise ConfigError(f"the limit {one.name} = {getattr(self, one.name)} must be above 0.")
        if self.texts > self.waiting:
            raise ConfigError(
                f"a request may hold {self.texts} texts, but only {self.waiting} may wait: the largest could never be "
                "answered. Lower the first (--max-texts) or raise the second (--max-waiting)."
            )
