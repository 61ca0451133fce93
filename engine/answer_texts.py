"""The text of every running sequence, token by token: whole characters, cut at stop strings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from .request import Request
from .stop_strings import StopStrings

if TYPE_CHECKING:
    from .detokenizer import IncrementalDetokenizer
    from .tokenizer import Tokenizer


class AnswerTexts:
    """``tokenizer`` None: there is no text, and stop strings are never found. Texts are kept by request number from
    the first token until ``finish``."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._texts: dict[int, tuple[IncrementalDetokenizer, StopStrings]] = {}

    def advance(
        self, requests: Sequence[Request], tokens: Sequence[int], failed: Collection[int]
    ) -> tuple[list[str], set[int]]:
        """The text that each token makes certain, and the indices where a stop string was found. End tokens and those
        at the indices ``failed`` give no text."""
        if self._tokenizer is None:
            return [""] * len(requests), set()
        pieces: list[str] = []
        stopped: set[int] = set()
        for index, (request, token) in enumerate(zip(requests, tokens, strict=True)):
            if index in failed or token in request.stop_ids:
                pieces.append("")
                continue
            text = self._texts.get(request.number)
            if text is None:
                text = self._texts[request.number] = (self._tokenizer.detokenizer(), StopStrings(request.params.stop))
            detokenizer, stops = text
            pieces.append(stops.push(detokenizer.push(token)))
            if stops.found is not None:
                stopped.add(index)
        return pieces, stopped

    def finish(self, request: Request) -> str:
        """What was held back of a sequence that has ended."""
        text = self._texts.pop(request.number, None)
        if text is None:
            return ""
        detokenizer, stops = text
        return stops.push(detokenizer.finish()) + stops.finish()
