"""Opens the listening socket, before the model is loaded, so that a port in use is told at once."""

from __future__ import annotations

import errno
import ipaddress
import socket

from ..errors import EngineError

MOST_PORT = 65535
BACKLOG = 512


class ListenError(EngineError):
    """The server cannot listen where it was told to."""


def bind(host: str, port: int) -> socket.socket:
    """A bound socket for serve(listener=...); ``port`` 0 takes any free one. Raises ListenError."""
    if not 0 <= port <= MOST_PORT:
        raise ListenError(f"there is no port {port}", f"choose one from 0 (any that is free) to {MOST_PORT}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError):
        raise ListenError(f"{host!r} is not an address of a host", "try --host 127.0.0.1") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise why_not(error, host, port) from None
    return listener


def url_of(listener: socket.socket) -> str:
    """Where a client on this machine reaches it."""
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def why_not(error: OSError, host: str, port: int) -> ListenError:
    """What an operating system's refusal means to a person."""
    if error.errno == errno.EADDRINUSE:
        return ListenError(
            f"port {port} on {host} is in use",
            f"choose another with --port (0: any that is free); `ss -ltnp 'sport = :{port}'` says who has it",
        )
    if error.errno == errno.EACCES:
        return ListenError(f"port {port} needs root", "choose a port of 1024 or above with --port")
    if error.errno == errno.EADDRNOTAVAIL:
        return ListenError(f"{host} is not an address of this machine", "try --host 127.0.0.1, or 0.0.0.0 for all")
    return ListenError(f"cannot listen on {host} port {port}: {error.strerror}", "try --host 127.0.0.1 --port 0")
