"""The HTTP routes: OpenAI's completions and chat completions, and what operators ask (/health, /metrics, /version)."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ..errors import EngineError
from ..hooks import EngineFacts
from ..tokenizer import Tokenizer
from .answer import Answer, EventStream, whole_answer
from .bodies import (
    DEFAULT_COMPLETION_TOKENS,
    ChatBody,
    CompletionBody,
    parse,
    prompts_of,
    sampling_params,
    texts_of,
)
from .body_limit import read_body
from .engine_thread import EngineThread
from .events import Json, Shape, encode_json
from .gone import ClientGone, unless_gone
from .metrics import CONTENT_TYPE, Metrics
from .refusal import Refusal, from_engine, unavailable

LONG_TEXT = 4096  # characters from which on tokenizing leaves the event loop
MOST_TEXT = 1 << 20  # characters that are tokenized in one go: some 0.4 s of a processor
CLIENT_CLOSED_REQUEST = 499


class Api:
    """One engine behind HTTP. ``stopping``: refuses new work, finishes what it has."""

    def __init__(
        self, thread: EngineThread, tokenizer: Tokenizer, facts: EngineFacts, metrics: Metrics, model_name: str
    ) -> None:
        self.stopping = False
        self._thread = thread
        self._tokenizer = tokenizer
        self._facts = facts
        self._metrics = metrics
        self._model_name = model_name
        self._longest = _longest(facts)
        self._started_s = facts.started_wall_ns // 10**9

    def app(self) -> ASGIApp:
        routes = [
            Route("/v1/completions", self._guarded(self.completions), methods=["POST"]),
            Route("/v1/chat/completions", self._guarded(self.chat_completions), methods=["POST"]),
            Route("/v1/models", self.models, methods=["GET"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/version", self.version, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: _http_error, Exception: _own_error})

    async def completions(self, request: Request) -> Response | EventStream:
        body = parse(await read_body(request), CompletionBody)
        self._admissible(body.model)
        prompts = [await self._tokens(prompt, "prompt") for prompt in prompts_of(body.prompt)]
        return await self._answer(request, body, prompts)

    async def chat_completions(self, request: Request) -> Response | EventStream:
        body = parse(await read_body(request), ChatBody)
        self._admissible(body.model)
        messages = texts_of(body.messages)
        text = await asyncio.to_thread(self._tokenizer.render_chat, messages)
        tokens = await self._tokens(text, "messages", add_special_tokens=False)
        return await self._answer(request, body, [tokens])

    async def models(self, request: Request) -> Response:
        model: Json = {
            "id": self._model_name,
            "object": "model",
            "created": self._started_s,
            "owned_by": "inferdbg",
            "max_model_len": self._facts.config["max_model_len"],
        }
        return _json({"object": "list", "data": [model]})

    async def health(self, request: Request) -> Response:
        health = self._thread.health()
        if health.ok and self.stopping:
            return _json(health.body() | {"status": "stopping"}, 503)
        return _json(health.body(), 200 if health.ok else 503)

    async def version(self, request: Request) -> Response:
        return _json({"version": self._facts.version})

    async def metrics(self, request: Request) -> Response:
        return Response(self._metrics.render(), headers={"content-type": CONTENT_TYPE})

    def _guarded(
        self, handler: Callable[[Request], Awaitable[Response | EventStream]]
    ) -> Callable[[Request], Awaitable[Response | EventStream]]:
        async def guarded(request: Request) -> Response | EventStream:
            try:
                return await handler(request)
            except Refusal as refusal:
                return refusal.response()
            except EngineError as error:
                return from_engine(error).response()
            except (ClientGone, ClientDisconnect):
                return Response(status_code=CLIENT_CLOSED_REQUEST)  # nobody reads it

        return guarded

    def _admissible(self, model: str | None) -> None:
        """Raises Refusal: a wrong model, or an engine that cannot take requests now."""
        if model is not None and model != self._model_name:
            raise Refusal(
                404,
                f"the model {model!r} does not exist; this server has {self._model_name!r}",
                param="model",
                code="model_not_found",
            )
        if self.stopping:
            raise unavailable("the server is stopping and takes no new requests", "stopping")
        health = self._thread.health()
        if not health.ok:
            raise unavailable(health.detail, f"engine_{health.state}")

    async def _tokens(self, prompt: str | list[int], param: str, *, add_special_tokens: bool = True) -> list[int]:
        """Raises Refusal for what can never fit, before the work of tokenizing it."""
        if isinstance(prompt, list):
            if len(prompt) >= self._longest:
                raise self._too_long(f"{len(prompt)} tokens", param)
            vocabulary = int(self._facts.model["vocabulary"] or 0)
            wrong = next((token for token in prompt if not 0 <= token < vocabulary), None)
            if wrong is not None:
                raise Refusal(400, f"token id {wrong} is not one of 0 to {vocabulary - 1}", param="prompt")
            return prompt
        if len(prompt) <= LONG_TEXT:
            return self._tokenizer.encode(prompt, add_special_tokens=add_special_tokens)
        if (least := self._tokenizer.least_tokens(prompt)) >= self._longest:
            raise self._too_long(f"{len(prompt):,} characters and so at least {least} tokens", param)
        if len(prompt) > MOST_TEXT:
            raise Refusal(
                400,
                f"the text has {len(prompt):,} characters; at most {MOST_TEXT:,} are tokenized here: send token ids",
                param=param,
                code="context_length_exceeded",
            )
        return await asyncio.to_thread(self._tokenizer.encode, prompt, add_special_tokens=add_special_tokens)

    def _too_long(self, has: str, param: str) -> Refusal:
        return Refusal(
            400,
            f"the prompt has {has}; prompt and answer together may have {self._longest} here",
            param=param,
            code="context_length_exceeded",
        )

    async def _answer(
        self, request: Request, body: CompletionBody | ChatBody, prompts: list[list[int]]
    ) -> Response | EventStream:
        chat = isinstance(body, ChatBody)
        longest = max(map(len, prompts))
        if longest >= self._longest:
            raise self._too_long(f"{longest} tokens", "messages" if chat else "prompt")
        room = self._longest - longest
        params = sampling_params(body, room=room, default_max_tokens=room if chat else DEFAULT_COMPLETION_TOKENS)
        most = int(self._facts.config["max_waiting"] or 0)
        if len(prompts) > 1 and len(prompts) * params.n > most:
            raise Refusal(
                400, f"{len(prompts)} prompts of n={params.n} each are more than the queue's {most}", param="prompt"
            )
        name = f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex[:20]}"
        ids = [name if len(prompts) == 1 else f"{name}-{place}" for place in range(len(prompts))]
        stream = await unless_gone(request.receive, self._thread.admit(list(zip(ids, prompts, strict=True)), params))
        answer = Answer(
            Shape(chat, name, self._model_name, int(time.time())),
            stream,
            piece=None if params.logprobs is None else self._tokenizer.token_bytes,
            include_usage=bool(body.stream_options and body.stream_options.include_usage),
        )
        if body.stream:
            return EventStream(answer, self._thread)
        try:
            return _json(await unless_gone(request.receive, whole_answer(answer)))
        finally:
            self._thread.abandon(stream)


def _longest(facts: EngineFacts) -> int:
    """Most tokens of one sequence: as long as the model and the whole cache allow."""
    config = facts.config
    cached = int(config["num_blocks"] or 0) * int(config["block_size"] or 0)
    return min(int(config["max_model_len"] or 0), cached + 1)  # nothing is computed on top of the last token


def _json(body: Json, status: int = 200) -> Response:
    return Response(encode_json(body), status, media_type="application/json")


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    detail = error.detail if isinstance(error, HTTPException) else ""
    return Refusal(status, f"{request.method} {request.url.path}: {detail}").response()


async def _own_error(request: Request, error: Exception) -> Response:
    return Refusal(500, "the server made a mistake; its log says more", kind="server_error").response()
