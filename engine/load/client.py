"""One client: sends one request, reads the stream of its answer, tells when each piece came."""

from __future__ import annotations

import http.client
import socket
import time
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from .mix import Ask

PIECE_BYTES = 65536
Ending = Literal["finished", "aborted", "error"]


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is. ``path``: what stands before /v1."""

    https: bool
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Raises ValueError for what is not http://HOST[:PORT][/path]."""
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"not an http address: {url!r}")
        https = parts.scheme == "https"
        path = parts.path.rstrip("/").removesuffix("/v1")
        return cls(https, parts.hostname, parts.port or (443 if https else 80), path)

    def connect(self, timeout_s: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self.https else http.client.HTTPConnection
        connection = kind(self.host, self.port, timeout=timeout_s)
        connection.connect()
        return connection


@dataclass(slots=True)
class Outcome:
    """Times are time.monotonic() seconds. ``pieces``: when each piece of text came. ``error``: its kind, such as
    "refused", "timeout", "http 429", "cut short"."""

    sent: float
    ending: Ending = "finished"
    ended: float = 0.0
    error: str | None = None
    pieces: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int | None = None


class _Text(Struct):
    content: str | None = None


class _Choice(Struct):
    text: str | None = None
    delta: _Text | None = None


class _PromptDetails(Struct):
    cached_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _PromptDetails | None = None


class _Event(Struct):
    """What matters of a chunk of either API."""

    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: object = None


_decode_event = msgspec.json.Decoder(_Event).decode


def body_of(ask: Ask, model: str) -> tuple[str, bytes]:
    """Path and body of the request."""
    common: dict[str, object] = {
        "model": model,
        "max_tokens": ask.max_tokens,
        "temperature": ask.temperature,
        "seed": ask.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if not ask.chat:
        prompt = f"{ask.prefix} {ask.text}" if ask.prefix else ask.text
        return "/v1/completions", msgspec.json.encode(common | {"prompt": prompt})
    messages = [{"role": "system", "content": ask.prefix}] if ask.prefix else []
    messages.append({"role": "user", "content": ask.text})
    return "/v1/chat/completions", msgspec.json.encode(common | {"messages": messages})


class Client:
    """``cut()`` may be called from another thread: it ends a blocked read at once."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._outcome: Outcome | None = None
        self.was_cut = False

    @property
    def pieces(self) -> int:
        """Pieces of text received so far."""
        return 0 if self._outcome is None else len(self._outcome.pieces)

    def cut(self) -> None:
        self.was_cut = True
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it has just been closed by its own thread: nothing is left to end

    def ask(self, ask: Ask, model: str) -> Outcome:
        """Sends, reads to the end or to the piece after which this client goes away. Raises nothing."""
        path, body = body_of(ask, model)
        outcome = self._outcome = Outcome(sent=time.monotonic())
        connection: http.client.HTTPConnection | None = None
        try:
            connection = self._address.connect(self._timeout_s)
            self._socket = connection.sock
            connection.request("POST", self._address.path + path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                response.read(PIECE_BYTES)
                outcome.ending, outcome.error = "error", f"http {response.status}"
            else:
                self._read(response, ask.abort_after, outcome)
        except (OSError, http.client.HTTPException) as error:
            outcome.ending, outcome.error = "error", _kind(error)
        finally:
            if connection is not None:
                connection.close()
        outcome.ended = time.monotonic()
        return outcome

    def _read(self, response: http.client.HTTPResponse, abort_after: int | None, outcome: Outcome) -> None:
        buffered = b""
        while piece := response.read1(PIECE_BYTES):
            now = time.monotonic()
            *events, buffered = (buffered + piece).replace(b"\r\n", b"\n").split(b"\n\n")
            for event in events:
                data = event.removeprefix(b"data:").strip()
                if data == b"[DONE]":
                    return
                if not event.startswith(b"data:"):
                    continue
                if not self._take(data, now, outcome):
                    return
                if abort_after is not None and len(outcome.pieces) >= abort_after:
                    outcome.ending = "aborted"
                    return
        outcome.ending, outcome.error = "error", "cut short"

    def _take(self, data: bytes, now: float, outcome: Outcome) -> bool:
        """False when the event says that the request failed."""
        try:
            event = _decode_event(data)
        except msgspec.DecodeError:
            outcome.ending, outcome.error = "error", "malformed event"
            return False
        if event.error is not None:
            outcome.ending, outcome.error = "error", "failed while streaming"
            return False
        if any(choice.text or (choice.delta and choice.delta.content) for choice in event.choices):
            outcome.pieces.append(now)
        if event.usage is not None:
            outcome.prompt_tokens = event.usage.prompt_tokens
            outcome.output_tokens = event.usage.completion_tokens
            details = event.usage.prompt_tokens_details
            outcome.cached_tokens = (details.cached_tokens or 0) if details else 0
        return True


def _kind(error: OSError | http.client.HTTPException) -> str:
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, ConnectionError | http.client.HTTPException):
        return "connection lost"
    if isinstance(error, socket.gaierror):
        return "unknown host"
    return error.__class__.__name__
