"""Tokens to text as they come: whole characters only, and nothing decoded twice."""

from __future__ import annotations

import codecs
from collections.abc import Callable


class IncrementalDetokenizer:
    """The text of one sequence. ``piece``: bytes of a token, see Tokenizer.piece.

    A character may spread over several tokens: its text comes with the token that completes it. Bytes that can never
    become a character come as U+FFFD.
    """

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The characters that this token completes."""
        return self._decoder.decode(self._piece(token))

    def finish(self) -> str:
        """What is left when no more tokens come: U+FFFD for half a character, else nothing."""
        return self._decoder.decode(b"", True)
