"""What steps ran, as lines of JSON: a step that ran what the one before did, a token further, is written as {}.

    {"requests": [7, 9, 12], "prefills": [2], "tokens": [1, 1, 256], "contexts": [1106, 40, 0]}
    {"prefills": []}                          the same three, all decodes of one token, contexts longer by those tokens
    {}                                        the same again
    {"requests": [7, 9], "contexts": [1109, 43]}                                         others, decodes of one token
    null                                      nothing

``prefills``: places of the prefill chunks, the others are decodes.
"""

import struct
from collections.abc import Iterable, Sequence

from msgspec import DecodeError, Struct

from inferdbg.facts.sections.steps import DECODE, NO_SHARES, PREFILL, Shares, unpacked


class Ran(Struct, omit_defaults=True, gc=False):
    """One step. None is, for ``requests``: as in the step before. ``prefills``: likewise, or none when the requests are
    others. ``tokens``: one each. ``contexts``: those of the step before and the tokens it computed. ``lost``: the
    step's own ``work_lost``."""

    requests: list[int] | None = None
    prefills: list[int] | None = None
    tokens: list[int] | None = None
    contexts: list[int] | None = None
    lost: bool = False


def told(steps: Iterable[tuple[Shares, bool]]) -> list[Ran | None]:
    """``steps``: what each ran and whether work was lost. None for those that ran nothing."""
    found: list[Ran | None] = []
    before = NO_SHARES
    for shares, lost in steps:
        found.append(_against(before, shares, lost) if shares else None)
        before = shares
    return found


def shares_of(ran: Sequence[Ran | None]) -> list[Shares]:
    """The inverse of ``told``; msgspec.DecodeError when the lists do not fit together."""
    found: list[Shares] = []
    before = NO_SHARES
    for one in ran:
        try:
            before = NO_SHARES if one is None else _after(before, one)
        except (IndexError, struct.error) as error:
            raise DecodeError(f"what a step ran makes no sense: {error}") from error
        if not 4 * len(before.kinds) == len(before.requests) == len(before.tokens) == len(before.contexts):
            raise DecodeError("what a step ran is told in lists of different lengths")
        found.append(before)
    return found


def _against(before: Shares, shares: Shares, lost: bool) -> Ran:
    same = shares.requests == before.requests
    return Ran(
        None if same else unpacked(shares.requests).tolist(),
        None if shares.kinds == (before.kinds if same else _decodes(len(shares))) else shares.prefill_places(),
        None if shares.tokens == _ones(len(shares)) else unpacked(shares.tokens).tolist(),
        None if same and shares.contexts == _expected(before) else unpacked(shares.contexts).tolist(),
        lost,
    )


def _after(before: Shares, ran: Ran) -> Shares:
    requests = before.requests if ran.requests is None else _column(ran.requests)
    count = len(requests) // 4
    if ran.prefills is not None:
        kinds = bytearray(_decodes(count))
        for place in ran.prefills:
            kinds[place] = PREFILL
    else:
        kinds = bytearray(before.kinds if ran.requests is None else _decodes(count))
    return Shares(
        requests,
        bytes(kinds),
        _ones(count) if ran.tokens is None else _column(ran.tokens),
        _expected(before) if ran.contexts is None else _column(ran.contexts),
    )


def _expected(before: Shares) -> bytes:
    """The contexts of a step that runs the same requests after that one."""
    import numpy as np

    after: bytes = (np.frombuffer(before.contexts, "<u4") + np.frombuffer(before.tokens, "<u4")).tobytes()
    return after


def _decodes(count: int) -> bytes:
    return bytes([DECODE]) * count


def _ones(count: int) -> bytes:
    return b"\1\0\0\0" * count


def _column(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)
