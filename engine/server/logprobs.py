"""Log-probabilities in the shapes of the two APIs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .events import Json

if TYPE_CHECKING:
    from ..sampler import TokenLogprobs

LEAST = -9999.0  # JSON has no infinity


class LogprobsWriter:
    """Those of one choice. ``piece``: the bytes of a token id. A token that is not text by itself (a part of a
    character) is named by its bytes, as in ``bytes:\\xf0\\x9f``."""

    def __init__(self, piece: Callable[[int], bytes], *, chat: bool) -> None:
        self._piece = piece
        self._chat = chat
        self._offset = 0  # characters of text before the next token
        self._written: list[Json] = []

    def write(self, tokens: Sequence[TokenLogprobs]) -> Json:
        """The next tokens, as a chunk carries them."""
        written = self._chat_shape(tokens) if self._chat else self._completion_shape(tokens)
        self._written.append(written)
        return written

    def whole(self) -> Json:
        """All tokens so far, as a whole answer carries them."""
        keys = ("content",) if self._chat else ("tokens", "token_logprobs", "top_logprobs", "text_offset")
        joined: dict[str, list[object]] = {key: [] for key in keys}
        for part in self._written:
            for key, values in joined.items():
                entries = part[key]
                values += entries if isinstance(entries, list) else []
        return dict(joined)

    def _chat_shape(self, tokens: Sequence[TokenLogprobs]) -> Json:
        return {
            "content": [
                self._entry(token.token_id, token.logprob)
                | {"top_logprobs": [self._entry(token_id, logprob) for token_id, logprob in token.top]}
                for token in tokens
            ]
        }

    def _entry(self, token_id: int, logprob: float) -> Json:
        piece = self._piece(token_id)
        return {"token": _name(piece), "logprob": max(logprob, LEAST), "bytes": list(piece)}

    def _completion_shape(self, tokens: Sequence[TokenLogprobs]) -> Json:
        names = [_name(self._piece(token.token_id)) for token in tokens]
        offsets: list[int] = []
        for name in names:
            offsets.append(self._offset)
            self._offset += len(name)
        return {
            "tokens": names,
            "token_logprobs": [max(token.logprob, LEAST) for token in tokens],
            "top_logprobs": [
                {_name(self._piece(token_id)): max(logprob, LEAST) for token_id, logprob in token.top}
                for token in tokens
            ],
            "text_offset": offsets,
        }


def _name(piece: bytes) -> str:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)
