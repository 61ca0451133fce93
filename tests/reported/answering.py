"""A server on loopback that answers each path as it is told, or worse."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping

Answer = bytes | Callable[[socket.socket], None]


def http(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    """A whole answer; the connection is kept."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


class Answering:
    """``asked``: the request lines so far; ``connections``: how many were opened. ``answers`` may be changed."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = dict(answers)
        self.asked: list[str] = []
        self.connections = 0
        self.closing = threading.Event()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, name="answering", daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        self.closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()

    def hang_up(self) -> None:
        """Closes what is open."""
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._open.append(connection)
                threading.Thread(target=self._talk, args=(connection,), name="answering", daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            received = b""
            while chunk := connection.recv(65536):
                received += chunk
                if received[:1] == b"\x16":  # the hello of TLS
                    connection.sendall(http(b"", "400 Bad Request"))
                    return
                while b"\r\n\r\n" in received:
                    request, _, received = received.partition(b"\r\n\r\n")
                    line = request.partition(b"\r\n")[0].decode()
                    self.asked.append(line)
                    answer = self.answers.get(line.split()[1], http(b'{"detail":"Not Found"}', "404 Not Found"))
                    if callable(answer):
                        answer(connection)
                        return
                    connection.sendall(answer)


@contextlib.contextmanager
def answering(answers: Mapping[str, Answer]) -> Iterator[Answering]:
    server = Answering(answers)
    try:
        yield server
    finally:
        server.close()
