"""The first line of a recording: what it is, and which version."""

import msgspec
from msgspec import Struct

from inferdbg.errors import InferdbgError
from inferdbg.facts.snapshot import Target

FORMAT = "inferdbg recording"
VERSION = 2
"""Rises only when a reader of the version before could not read the file: never for a new field or section."""
SUFFIX = ".idbg"


class Header(Struct, omit_defaults=True):
    format: str
    version: int
    target: Target | None = None


def header_line(target: Target) -> bytes:
    return msgspec.json.encode(Header(FORMAT, VERSION, target)) + b"\n"


def parse_header(line: bytes, path: str) -> Header:
    """InferdbgError when this is no recording, or one of a later version."""
    try:
        header = msgspec.json.decode(line, type=Header)
    except msgspec.DecodeError:
        raise not_ours(path) from None
    if header.format != FORMAT:
        raise not_ours(path)
    if header.version > VERSION:
        raise InferdbgError(
            f"{path} was written by a later inferdbg (recording version {header.version}, this one reads {VERSION})",
            "pip install --upgrade inferdbg",
        )
    return header


def not_ours(path: str) -> InferdbgError:
    return InferdbgError(f"{path} is not an inferdbg recording", "inferdbg record TARGET -o run.idbg makes one")
