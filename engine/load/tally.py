"""Gathers what the clients saw, under one lock, until the summary is made of it."""

from __future__ import annotations

import threading
from array import array
from dataclasses import dataclass, field
from itertools import pairwise

from .client import Outcome
from .summary import Summary, percentiles


@dataclass(slots=True)
class Tally:
    """Cumulative; times in seconds. ``pieces``: of text, of the clients that have ended."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    sent: int = 0
    finished: int = 0
    aborted: int = 0
    cut: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    ttft: array[float] = field(default_factory=lambda: array("d"))
    itl: array[float] = field(default_factory=lambda: array("d"))
    e2e: array[float] = field(default_factory=lambda: array("d"))
    pieces: int = 0

    def add(self, outcome: Outcome, *, cut: bool) -> None:
        with self.lock:
            if cut:
                self.cut += 1
            elif outcome.error is not None:
                self.errors[outcome.error] = self.errors.get(outcome.error, 0) + 1
            elif outcome.ending == "aborted":
                self.aborted += 1
            else:
                self.finished += 1
                self.e2e.append(outcome.ended - outcome.sent)
            self.prompt_tokens += outcome.prompt_tokens
            self.cached_tokens += outcome.cached_tokens
            pieces = outcome.pieces
            self.pieces += len(pieces)
            self.output_tokens += len(pieces) if outcome.output_tokens is None else outcome.output_tokens
            if pieces:
                self.ttft.append(pieces[0] - outcome.sent)
                self.itl.extend(later - earlier for earlier, later in pairwise(pieces))

    def refuse(self, kind: str) -> None:
        """Counts a request that was never sent."""
        with self.lock:
            self.errors[kind] = self.errors.get(kind, 0) + 1

    def summary(self, url: str, model: str, mix: str, seed: int, seconds: float) -> Summary:
        return Summary(
            url=url,
            model=model,
            mix=mix,
            seed=seed,
            seconds=seconds,
            sent=self.sent,
            finished=self.finished,
            aborted=self.aborted,
            cut=self.cut,
            errors=dict(self.errors),
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=self.output_tokens,
            output_tokens_per_s=self.output_tokens / seconds if seconds else 0.0,
            requests_per_s=self.finished / seconds if seconds else 0.0,
            ttft=percentiles(self.ttft),
            itl=percentiles(self.itl),
            e2e=percentiles(self.e2e),
        )
