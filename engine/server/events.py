"""Answers as they leave: JSON objects and server-sent events in the shapes of the two APIs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

Json = dict[str, object]
encode_json = msgspec.json.encode

DONE = b"data: [DONE]\n\n"


def event(body: Json) -> bytes:
    return b"data: " + encode_json(body) + b"\n\n"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one HTTP request. ``cached_tokens``: of the prompts', found in the prefix cache."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    def body(self) -> Json:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


@dataclass(frozen=True, slots=True)
class Shape:
    """The frame of one answer. ``chat`` tells the two APIs apart; ``created`` is in seconds since 1970."""

    chat: bool
    id: str
    model: str
    created: int

    def whole(self, choices: list[Json], usage: Usage) -> Json:
        kind = "chat.completion" if self.chat else "text_completion"
        return self._frame(kind, choices) | {"usage": usage.body()}

    def choice(self, index: int, text: str, logprobs: Json | None, finish_reason: str | None) -> Json:
        """One choice of a whole answer."""
        said: Json = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        return {"index": index, **said, "logprobs": logprobs, "finish_reason": finish_reason}

    def chunk(self, choices: list[Json], *, with_usage: bool) -> Json:
        """``with_usage``: the client asked for usage, which all chunks but the last then carry as null."""
        body = self._frame("chat.completion.chunk" if self.chat else "text_completion", choices)
        if with_usage:
            body["usage"] = None
        return body

    def delta(self, index: int, text: str, logprobs: Json | None, finish_reason: str | None) -> Json:
        """One choice of a chunk."""
        said: Json = {"delta": {"content": text} if text else {}} if self.chat else {"text": text}
        return {"index": index, **said, "logprobs": logprobs, "finish_reason": finish_reason}

    def opening(self, index: int) -> Json:
        """What a chat stream begins with."""
        delta = {"role": "assistant", "content": ""}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def last_chunk(self, usage: Usage) -> Json:
        return self.chunk([], with_usage=False) | {"usage": usage.body()}

    def _frame(self, kind: str, choices: list[Json]) -> Json:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}


Message = dict[str, object]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
