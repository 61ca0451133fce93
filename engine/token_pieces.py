"""The bytes that each token stands for, worked out from the vocabulary, so that text needs no re-decoding.

Byte-level vocabularies (GPT-2's) spell each byte as a printable character; SentencePiece ones write ``▁`` for a space
and ``<0x0A>`` for a byte that has no token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte in a byte-level vocabulary: printable ones for themselves, the others
    from U+0100 on (https://github.com/openai/gpt-2/blob/master/src/encoder.py)."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in kept]
    return {chr(byte): byte for byte in kept} | {chr(0x100 + place): byte for place, byte in enumerate(others)}


_ALPHABET = byte_alphabet()


def byte_level_piece(token: str) -> bytes:
    """Bytes of a token of a byte-level vocabulary; one that holds other characters stands for itself."""
    try:
        return bytes([_ALPHABET[character] for character in token])
    except KeyError:
        return token.encode("utf-8")


def sentencepiece_piece(token: str) -> bytes:
    """Bytes of a token of a SentencePiece vocabulary, with its leading space."""
    if byte := _BYTE_TOKEN.fullmatch(token):
        return bytes([int(byte[1], 16)])
    return token.replace("▁", " ").encode("utf-8")


def piece_function(decoder: object) -> Callable[[str], bytes] | None:
    """The rule for a tokenizer.json whose ``decoder`` that is; None for a decoder that has no such rule."""
    kinds = set(_kinds(decoder))
    if kinds == {"ByteLevel"}:
        return byte_level_piece
    if kinds and kinds <= {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}:
        return sentencepiece_piece
    return None


def _kinds(decoder: object) -> Iterator[str]:
    if isinstance(decoder, dict):
        if decoder.get("type") == "Sequence":
            for part in decoder.get("decoders", ()):
                yield from _kinds(part)
        else:
            yield str(decoder.get("type"))
