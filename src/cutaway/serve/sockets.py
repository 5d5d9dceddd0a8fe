"""The listening socket, and the host names of this machine."""

from __future__ import annotations

import errno
import socket

from cutaway.errors import ConfigError


def listen(host: str, port: int) -> socket.socket:
    """Bind a socket and listen."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # name TCP explicitly: only then does asyncio switch off Nagle's algorithm, which would delay a response by 40 ms
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(1024)
    except OverflowError:
        listening.close()
        raise ConfigError(f"--port {port} is not a port. Give a number from 0 to 65535.") from None
    except OSError as error:
        listening.close()
        other = "--port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--host"
        raise ConfigError(
            f"cannot listen at {host}:{port} ({error.strerror}). Choose another address with {other}."
        ) from None
    return listening


def local_host_names(host: str) -> frozenset[str]:
    """The host names of a local server. Empty for a public one, whose names are unknown here."""
    host = host.lower()
    is_local = host in ("localhost", "::1") or host.startswith("127.")
    return frozenset((host, f"[{host}]", "127.0.0.1", "localhost")) if is_local else frozenset()
