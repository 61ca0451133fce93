"""What clients may send: the two request bodies, checked field by field, turned into sampling parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct

from ..errors import BadRequest
from ..sampling_params import SamplingParams
from .refusal import Refusal

MAX_STOPS = 16
DEFAULT_COMPLETION_TOKENS = 16


class StreamOptions(Struct):
    include_usage: bool | None = None


class SamplingFields(Struct, kw_only=True):
    """Fields of both bodies; null means default. Fields that are not named here are ignored, as servers of this API
    do; those typed ``object`` are known but not supported, see NEUTRAL."""

    model: str | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    max_tokens: int | None = None

    best_of: object = None
    presence_penalty: object = None
    frequency_penalty: object = None
    repetition_penalty: object = None
    min_p: object = None
    min_tokens: object = None
    logit_bias: object = None
    use_beam_search: object = None
    prompt_logprobs: object = None


class CompletionBody(SamplingFields, kw_only=True):
    """POST /v1/completions. ``prompt``: text, texts, token ids, or lists of token ids."""

    prompt: str | list[str | int | list[int]]
    logprobs: int | None = None

    echo: object = None
    suffix: object = None


class ContentPart(Struct):
    type: str
    text: str | None = None


class Message(Struct):
    role: str
    content: str | list[ContentPart] | None = None


class ChatBody(SamplingFields, kw_only=True):
    """POST /v1/chat/completions."""

    messages: list[Message]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None

    tools: object = None
    tool_choice: object = None
    functions: object = None
    response_format: object = None
    modalities: object = None


NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "best_of": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "min_p": (0,),
    "min_tokens": (0,),
    "logit_bias": ({},),
    "use_beam_search": (False,),
    "prompt_logprobs": (),
    "echo": (False,),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}
"""Known fields that this server cannot honour, and the values with which they change nothing (null is one always).
Any other value is refused: ignoring it would answer another question than the one asked."""

Body = TypeVar("Body", CompletionBody, ChatBody)


def parse(raw: bytes, shape: type[Body]) -> Body:
    """Raises Refusal (400) that names the guilty field."""
    try:
        body = msgspec.json.decode(raw, type=shape)
    except msgspec.ValidationError as error:
        raise Refusal(400, str(error), param=_guilty_field(raw, shape)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        why = "invalid Unicode, half a surrogate pair" if _has_half_a_pair(raw) else error
        raise Refusal(400, f"the body is not valid JSON: {why}", code="invalid_json") from None
    for name, neutral in NEUTRAL.items():
        value = getattr(body, name, None)
        if value is not None and value not in neutral:
            shown = msgspec.json.encode(value).decode()[:80]
            raise Refusal(400, f"{name}={shown} is not supported by this server", param=name, code="unsupported")
    return body


def sampling_params(body: CompletionBody | ChatBody, *, room: int, default_max_tokens: int) -> SamplingParams:
    """``room``: tokens that fit behind the longest prompt of the request. Raises Refusal (400)."""
    max_tokens = body.max_tokens
    name = "max_tokens"
    if isinstance(body, ChatBody) and body.max_completion_tokens is not None:
        max_tokens, name = body.max_completion_tokens, "max_completion_tokens"
    if max_tokens is None:
        max_tokens = min(default_max_tokens, room)
    elif max_tokens > room:
        raise Refusal(
            400,
            f"{name}={max_tokens} is more than the {room} tokens that fit behind the prompt",
            param=name,
            code="context_length_exceeded",
        )
    if body.max_tokens is not None and body.max_tokens < 1:
        max_tokens = body.max_tokens  # refused below, also where the other name is used instead
    try:
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=_or(body.temperature, 1.0),
            top_k=0 if body.top_k == -1 else _or(body.top_k, 0),  # -1 is off, as in vLLM
            top_p=_or(body.top_p, 1.0),
            seed=body.seed,
            stop=_stops(body),
            stop_token_ids=tuple(body.stop_token_ids or ()),
            ignore_eos=bool(body.ignore_eos),
            logprobs=_logprobs(body),
            n=_or(body.n, 1),
        )
    except BadRequest as error:
        raise Refusal(400, error.message, param=error.param) from None


def texts_of(messages: list[Message]) -> list[dict[str, str]]:
    """The messages as the chat template takes them: role and content. Raises Refusal (400) for what is not text."""
    if not messages:
        raise Refusal(400, "messages must not be empty", param="messages")
    plain: list[dict[str, str]] = []
    for index, message in enumerate(messages):
        if isinstance(message.content, list):
            for part in message.content:
                if part.type != "text" or part.text is None:
                    raise Refusal(
                        400,
                        f"messages[{index}] holds a part of type {part.type!r}; this server reads text only",
                        param="messages",
                        code="unsupported",
                    )
            content = "".join(part.text or "" for part in message.content)
        elif message.content is None and message.role != "assistant":  # an assistant's may be a call of a tool
            raise Refusal(400, f"messages[{index}] has no content", param="messages")
        else:
            content = message.content or ""
        plain.append({"role": message.role, "content": content})
    return plain


def prompts_of(prompt: str | list[str | int | list[int]]) -> list[str] | list[list[int]]:
    """One entry a prompt: all text, or all token ids. Raises Refusal (400) for a mixture or nothing."""
    if isinstance(prompt, str):
        return [prompt]
    texts = [item for item in prompt if isinstance(item, str)]
    ids = [item for item in prompt if isinstance(item, int)]
    lists = [item for item in prompt if isinstance(item, list)]
    if not prompt or len(prompt) not in (len(texts), len(ids), len(lists)):
        raise Refusal(
            400, "prompt must be text, a list of texts, token ids, or a list of lists of token ids", param="prompt"
        )
    if ids:
        return [ids]
    return texts or lists


def _or(value: Value | None, default: Value) -> Value:
    return default if value is None else value


Value = TypeVar("Value", int, float)


def _stops(body: SamplingFields) -> tuple[str, ...]:
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    if len(stops) > MAX_STOPS:
        raise Refusal(400, f"stop holds {len(stops)} strings; at most {MAX_STOPS} are allowed", param="stop")
    return stops


def _logprobs(body: CompletionBody | ChatBody) -> int | None:
    if isinstance(body, CompletionBody):
        return body.logprobs
    if body.top_logprobs is not None and not body.logprobs:
        raise Refusal(400, "top_logprobs needs logprobs: true", param="top_logprobs")
    return _or(body.top_logprobs, 0) if body.logprobs else None


def _has_half_a_pair(raw: bytes) -> bool:
    """A ``\\ud800`` without its other half, which the decoder may call a truncated body."""
    try:
        json.dumps(json.loads(raw), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _guilty_field(raw: bytes, shape: type[Struct]) -> str | None:
    try:
        plain = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # wrong before it is broken: no field can be named
    if not isinstance(plain, dict):
        return None
    for field in msgspec.structs.fields(shape):
        if field.encode_name not in plain:
            if field.required:
                return field.encode_name
            continue
        try:
            msgspec.convert(plain[field.encode_name], field.type)
        except msgspec.ValidationError:
            return field.encode_name
    return None
