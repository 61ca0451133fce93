"""Turns the engine's outputs into one answer, whole or as a stream of events; ends the request when nobody reads on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.types import Receive, Scope, Send

from ..engine import RequestOutput
from .engine_thread import EngineThread, Stream
from .events import DONE, Json, Shape, Usage, event
from .gone import ClientGone, unless_gone
from .logprobs import LogprobsWriter
from .refusal import Refusal

EVENT_STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # or nginx would gather the pieces
)


@dataclass(slots=True)
class _Choice:
    """One continuation so far."""

    index: int
    logprobs: LogprobsWriter | None
    texts: list[str] = field(default_factory=list)
    finish_reason: str | None = None


class Answer:
    """What has come of the engine's stream so far. ``piece``: the text of one token id, None when the client wants no
    logprobs. Choices are numbered prompt by prompt, then continuation by continuation."""

    def __init__(
        self, shape: Shape, stream: Stream, *, piece: Callable[[int], bytes] | None, include_usage: bool
    ) -> None:
        self.shape = shape
        self.stream = stream
        self.include_usage = include_usage
        continuations = stream.params.n
        self._first_choice = {request_id: place * continuations for place, request_id in enumerate(stream.ids)}
        self.choices = [
            _Choice(index, None if piece is None else LogprobsWriter(piece, chat=shape.chat))
            for index in range(len(stream.prompts) * continuations)
        ]
        self._completion_tokens = 0
        self._cached_tokens: dict[str, int] = {}

    def take(self, output: RequestOutput) -> tuple[_Choice, Json | None]:
        """Adds an output; returns its choice and the log-probabilities of its tokens. Raises Refusal (500) when the
        engine gave the request up."""
        if output.finish_reason == "error":
            reason = output.failure or "unknown"
            raise Refusal(500, f"the engine gave this request up: {reason}", kind="server_error", code="request_failed")
        choice = self.choices[self._first_choice[output.request_id] + output.index]
        choice.finish_reason = output.finish_reason
        self._completion_tokens += len(output.token_ids)
        self._cached_tokens.setdefault(output.request_id, output.cached_tokens)  # a recomputed prompt finds itself
        written = None
        if choice.logprobs is not None and output.logprobs:
            written = choice.logprobs.write(output.logprobs)
        return choice, written

    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=sum(len(tokens) for _, tokens in self.stream.prompts),
            completion_tokens=self._completion_tokens,
            cached_tokens=sum(self._cached_tokens.values()),
        )


async def whole_answer(answer: Answer) -> Json:
    """Waits for the last token. Raises Refusal."""
    async for batch in answer.stream.batches():
        for output in batch:
            choice, _ = answer.take(output)
            choice.texts.append(output.text)
    shape = answer.shape
    choices = [
        shape.choice(
            choice.index,
            "".join(choice.texts),
            None if choice.logprobs is None else choice.logprobs.whole(),
            choice.finish_reason,
        )
        for choice in answer.choices
    ]
    return shape.whole(choices, answer.usage())


class EventStream:
    """An ASGI response: server-sent events, one send a batch. Abandons the request when the client goes away."""

    def __init__(self, answer: Answer, thread: EngineThread) -> None:
        self._answer = answer
        self._thread = thread

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_gone(receive, self._stream(send))
        except ClientGone:
            return  # what it asked for is abandoned below
        finally:
            self._thread.abandon(self._answer.stream)

    async def _stream(self, send: Send) -> None:
        answer, shape = self._answer, self._answer.shape
        await send({"type": "http.response.start", "status": 200, "headers": list(EVENT_STREAM_HEADERS)})
        if shape.chat:
            opening = [shape.opening(choice.index) for choice in answer.choices]
            await self._send(send, event(shape.chunk(opening, with_usage=answer.include_usage)))
        try:
            async for batch in answer.stream.batches():
                await self._send(send, b"".join(map(self._event, batch)))
            if answer.include_usage:
                await self._send(send, event(shape.last_chunk(answer.usage())))
        except Refusal as refusal:  # the status is out already: say it as an event
            await self._send(send, event(refusal.body()))
        await send({"type": "http.response.body", "body": DONE, "more_body": False})

    def _event(self, output: RequestOutput) -> bytes:
        """Nothing for a token whose text is not complete yet, unless it is the last."""
        choice, logprobs = self._answer.take(output)
        if not output.text and logprobs is None and output.finish_reason is None:
            return b""
        shape = self._answer.shape
        delta = shape.delta(choice.index, output.text, logprobs, output.finish_reason)
        return event(shape.chunk([delta], with_usage=self._answer.include_usage))

    @staticmethod
    async def _send(send: Send, body: bytes) -> None:
        if body:
            await send({"type": "http.response.body", "body": body, "more_body": True})
