"""One GET at a time over one kept connection: bounded in time and size, whatever the other end does.

Nothing is followed, unpacked, retried or sent but the request: an answer that redirects or is packed is an answer of
another kind than was asked for, and is said to be that. The limit of time holds for the whole answer: a server that
sends a byte a second keeps nobody. (Plain http.client: urllib3 would bring 5 MB and 70 ms for what is not wanted here,
and its timeouts start anew with every byte.)
"""

import contextlib
import errno
import http.client
import socket
import ssl
import threading
import time
from types import TracebackType
from typing import NamedTuple
from urllib.parse import urlsplit

from inferdbg.errors import Exit, InferdbgError

MAX_BODY_BYTES = 4 << 20
"""A vLLM server says 50 to 58 KB an engine."""
_MAX_PARTS = 1 << 16
_NO_WAY = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL)


class Reply(NamedTuple):
    """An answer, whatever its status. ``took_ns``: from the request to its last byte."""

    status: int
    body: bytes
    took_ns: int


class Where(NamedTuple):
    """``prefix``: what stands before the paths of the server, behind a proxy; without a slash at its end."""

    secure: bool
    host: str
    port: int | None
    prefix: str


class Unanswered(Exception):
    """There was no whole answer. ``kind``: ``refused`` (nobody listens), ``no answer`` (in time), ``broken`` (it is no
    answer, or ended too early, or is too long)."""

    def __init__(self, kind: str, message: str, took_ns: int) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.took_ns = took_ns


class Connection:
    """To the server at ``url``. Raises InferdbgError when that is no address."""

    def __init__(self, url: str) -> None:
        self._where = where(url)
        self._kept: http.client.HTTPConnection | None = None

    def get(self, path: str, limit_ns: int) -> Reply:
        """Raises Unanswered."""
        kept = self._kept is not None
        started = time.monotonic_ns()
        try:
            return self._get(path, limit_ns)
        except Unanswered as error:
            if not kept or error.kind != "broken" or error.took_ns > limit_ns // 2:
                raise
        return self._get(path, limit_ns - (time.monotonic_ns() - started))  # it had closed what we kept open

    def close(self) -> None:
        connection, self._kept = self._kept, None
        if connection is not None:
            connection.close()

    def _get(self, path: str, limit_ns: int) -> Reply:
        started = time.monotonic_ns()
        connection = self._kept or self._new(limit_ns)
        self._kept = None
        late = False
        try:
            if connection.sock is None:
                connection.connect()
            with _Guillotine(connection.sock, limit_ns - (time.monotonic_ns() - started)) as guillotine:
                try:
                    connection.request(
                        "GET", self._where.prefix + path, headers={"Accept": "text/plain, application/json"}
                    )
                    answer = connection.getresponse()
                    body = _body(answer, path)
                finally:
                    late = guillotine.fell
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            raise _unanswered(error, path, limit_ns, time.monotonic_ns() - started, late=late) from None
        if late or answer.will_close:
            connection.close()
        else:
            self._kept = connection
        if late:
            raise _unanswered(TimeoutError(), path, limit_ns, time.monotonic_ns() - started, late=True)
        return Reply(answer.status, body, time.monotonic_ns() - started)

    def _new(self, limit_ns: int) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._where.secure else http.client.HTTPConnection
        return kind(self._where.host, self._where.port, timeout=max(0.001, limit_ns / 1e9))


class _Guillotine:
    """Ends what a socket is waiting for when the time is over, however busy it looks."""

    def __init__(self, sock: socket.socket, left_ns: int) -> None:
        self.fell = False
        self._sock = sock
        self._timer = threading.Timer(max(0.0, left_ns / 1e9), self._fall)
        self._timer.name, self._timer.daemon = "answer in time", True

    def __enter__(self) -> "_Guillotine":
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()

    def _fall(self) -> None:
        self.fell = True
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


def where(url: str) -> Where:
    """Of an address as people write it: of the server, of its /v1 or of its /metrics. Raises InferdbgError."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _not_an_address(url, str(error)) from None
    if parts.scheme not in ("http", "https") or not host:
        raise _not_an_address(url, f"{parts.scheme} is not spoken here" if host else "it names no host")
    prefix = parts.path.rstrip("/").removesuffix("/metrics").removesuffix("/v1")
    if not prefix.isascii() or any(character <= " " or character == "\x7f" for character in prefix):
        raise _not_an_address(url, "its path holds characters that no path has")
    return Where(parts.scheme == "https", host, port, prefix)


def _not_an_address(url: str, why: str) -> InferdbgError:
    return InferdbgError(f"{url} is not an address: {why}", "write it like http://127.0.0.1:8000", Exit.USAGE)


class _Bad(ValueError):
    """An answer that is none."""


def _body(answer: http.client.HTTPResponse, path: str) -> bytes:
    packed = answer.getheader("Content-Encoding", "identity")
    if packed not in ("identity", ""):
        answer.close()
        raise _Bad(f"packed ({packed[:40]}), which was not asked for")
    body = bytearray()
    for _ in range(_MAX_PARTS):
        part = answer.read1(1 << 16)
        body += part
        if len(body) > MAX_BODY_BYTES:
            answer.close()
            raise _Bad(f"longer than {MAX_BODY_BYTES >> 20} MiB")
        if not part:
            break
    else:
        answer.close()
        raise _Bad("in too many pieces")
    unread = answer.length
    answer.close()  # read1 leaves one open that was read to its end; the connection stays
    if unread:  # what Content-Length promised and did not come
        raise _Bad(f"cut off after {len(body)} bytes, {unread} before its end")
    return bytes(body)


def _unanswered(error: Exception, path: str, limit_ns: int, took_ns: int, *, late: bool) -> Unanswered:
    """By what went wrong; the words say it to a person."""
    if late or isinstance(error, TimeoutError):
        return Unanswered("no answer", f"GET {path}: no whole answer within {limit_ns / 1e9:.1f} s", took_ns)
    if isinstance(error, ConnectionRefusedError):
        return Unanswered("refused", f"GET {path}: refused, nobody listens there", took_ns)
    if isinstance(error, socket.gaierror):
        return Unanswered("refused", f"GET {path}: there is no such host", took_ns)
    if isinstance(error, ssl.SSLError):
        return Unanswered("broken", f"GET {path}: its certificate or TLS does not hold ({error.reason})", took_ns)
    if isinstance(error, _Bad):
        return Unanswered("broken", f"GET {path}: the answer is {error}", took_ns)
    if isinstance(error, OSError):
        kind = "refused" if error.errno in _NO_WAY else "broken"
        return Unanswered(kind, f"GET {path}: {error.strerror or 'the connection was closed'}", took_ns)
    if isinstance(error, http.client.IncompleteRead):
        return Unanswered("broken", f"GET {path}: the answer is cut off", took_ns)
    return Unanswered("broken", f"GET {path}: the answer is not HTTP ({type(error).__name__})", took_ns)
