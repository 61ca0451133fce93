"""Asks a server, once and before the traffic, what it serves and how long its tokens are."""

from __future__ import annotations

import http.client
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from ..errors import EngineError
from .client import Address
from .mix import WORDS

MOST_BYTES = 1 << 20
SURVEY_TIMEOUT_S = 10.0


class LoadError(EngineError):
    """There is nothing that traffic could be sent to."""


@dataclass(frozen=True, slots=True)
class Surveyed:
    """``longest``: most tokens of prompt and answer, None when the server does not say."""

    model: str
    longest: int | None
    words_per_token: float


class _Model(Struct):
    id: str
    max_model_len: int | None = None


class _Models(Struct):
    data: list[_Model]


class _Usage(Struct):
    prompt_tokens: int


class _Answer(Struct):
    usage: _Usage


def survey(address: Address, url: str, model: str | None, timeout_s: float) -> Surveyed:
    """Raises LoadError: unreachable, no such model, or not a server of this API."""
    hint = "is the server up? `inferdbg serve` starts one"
    try:
        status, body = _request(address, "GET", "/v1/models", None, min(timeout_s, SURVEY_TIMEOUT_S))
    except (OSError, http.client.HTTPException) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
        raise LoadError(f"{url} does not answer: {reason}", hint) from None
    try:
        models = msgspec.json.decode(body, type=_Models).data if status == 200 else []
    except msgspec.DecodeError:
        models = []
    if not models:
        raise LoadError(f"{url}/v1/models names no model (HTTP {status})", "is it a server of the OpenAI API?")
    chosen = next((known for known in models if model in (None, known.id)), None)
    if chosen is None:
        raise LoadError(f"{url} does not serve {model}", f"it serves {', '.join(known.id for known in models)}")
    return Surveyed(chosen.id, chosen.max_model_len, _words_per_token(address, chosen.id, timeout_s))


def _words_per_token(address: Address, model: str, timeout_s: float) -> float:
    """Measured with one short request; 1.0 where the server does not answer it."""
    words = 48
    text = " ".join(WORDS[:words])
    request = msgspec.json.encode({"model": model, "prompt": text, "max_tokens": 1})
    try:
        status, body = _request(address, "POST", "/v1/completions", request, timeout_s)
        if status != 200:
            return 1.0
        tokens = msgspec.json.decode(body, type=_Answer).usage.prompt_tokens
    except (OSError, http.client.HTTPException, msgspec.DecodeError):
        return 1.0
    return words / tokens if tokens > 0 else 1.0


def _request(address: Address, method: str, path: str, body: bytes | None, timeout_s: float) -> tuple[int, bytes]:
    connection = address.connect(timeout_s)
    try:
        connection.request(method, address.path + path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read(MOST_BYTES)
    finally:
        connection.close()
