"""The socket that a server listens at."""

from __future__ import annotations

import errno
import socket

from cutaway.errors import ConfigError


def listen(host: str, port: int) -> socket.socket:
    """The socket, taken before anything is said about it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # TCP by name: only then does asyncio switch off Nagle's algorithm, which would hold an answer back for 40 ms
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(1024)
    except OverflowError:
        listening.close()
        raise ConfigError(f"--port {port} is no port: they go from 0 to 65535.") from None
    except OSError as error:
        listening.close()
        other = "--port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--host"
        raise ConfigError(f"cannot listen at {host}:{port} ({error.strerror}). Choose another with {other}.") from None
    return listening


def names_of(host: str) -> frozenset[str]:
    """The names that a server on this machine alone answers to; one for a network has names that we cannot know."""
    host = host.lower()
    at_home = host in ("localhost", "::1") or host.startswith("127.")
    return frozenset((host, f"[{host}]", "127.0.0.1", "localhost")) if at_home else frozenset()
