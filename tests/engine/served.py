"""The HTTP application over an engine that says "abc" and does as it is told; and a client that needs no socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from inferdbg.engine.config import Limits
from inferdbg.engine.door import refuse_impossible
from inferdbg.engine.engine import Engine, RequestOutput
from inferdbg.engine.hooks import EngineFacts, Observer
from inferdbg.engine.sampling_params import SamplingParams
from inferdbg.engine.server.app import Api
from inferdbg.engine.server.engine_thread import EngineThread
from inferdbg.engine.server.metrics import EngineCollector, Metrics
from inferdbg.engine.state import Counter, Phase, PoolWord, Pulse, column_specs, plain_memory
from inferdbg.engine.tokenizer import Tokenizer

MODEL = "letters"
VOCABULARY = 256
LIMITS = Limits(
    block_size=16, num_blocks=8, token_budget=64, max_running=4, max_waiting=4, max_model_len=100, max_chunk=64
)


@dataclass
class Logprob:
    """As the sampler gives it."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass
class Running:
    request_id: str
    index: int
    prompt: Sequence[int]
    params: SamplingParams
    said: int = 0


class LettersEngine:
    """Says the letters of the alphabet, one a step. ``gate``: steps wait for it. ``crash``: raised by the next step;
    ``spoil``: ends what runs with this error."""

    def __init__(self) -> None:
        self.columns = plain_memory(column_specs(num_blocks=8, slots=8, rows=4, blocks_per_row=7))
        self.facts = EngineFacts(
            version="9.9",
            model={"name": MODEL, "vocabulary": VOCABULARY, "kv_dtype": "float32"},
            config={
                "block_size": 16,
                "num_blocks": 8,
                "max_model_len": 100,
                "max_running": 4,
                "max_waiting": 4,
                "prefix_caching": True,
            },
            kernels=(),
            blocks_per_row=7,
            started_wall_ns=1_000_000_000,
            started_mono_ns=1,
        )
        self.observer = Observer()
        self.gate = threading.Event()
        self.gate.set()
        self.in_step = threading.Event()
        self.crash: Exception | None = None
        self.spoil = ""
        self.aborted: list[str] = []
        self.closed = threading.Event()
        self.dropped = threading.Event()
        self.sequences: list[Running] = []
        self.columns["pool"][PoolWord.FREE] = 8

    def add_request(self, request_id: str, prompt: Sequence[int], params: SamplingParams) -> None:
        refuse_impossible(LIMITS, prompt, params, waiting=self.columns["counters"][Counter.WAITING])
        for index in range(params.n):
            self.sequences.append(Running(request_id, index, prompt, params))
        self.columns["counters"][Counter.WAITING] += params.n

    def abort(self, request_id: str, why: str = "") -> list[RequestOutput]:
        gone = [each for each in self.sequences if each.request_id == request_id]
        self.sequences = [each for each in self.sequences if each not in gone]
        if gone:
            self.aborted.append(request_id)
            self.dropped.set()
        return [RequestOutput(request_id, each.index, [], finish_reason="abort", failure=why) for each in gone]

    def has_work(self) -> bool:
        return bool(self.sequences)

    def step(self) -> list[RequestOutput]:
        counters, pulse = self.columns["counters"], self.columns["pulse"]
        pulse[Pulse.STEP] += 1
        pulse[Pulse.PHASE] = Phase.FORWARD
        self.in_step.set()
        self.gate.wait()
        if self.crash is not None:
            raise self.crash
        counters[Counter.WAITING] = 0
        counters[Counter.GENERATED_TOKENS] += len(self.sequences)
        outputs = [self._next(each) for each in self.sequences]
        ended = [out.finish_reason is not None for out in outputs]
        self.sequences = [each for each, over in zip(self.sequences, ended, strict=True) if not over]
        return outputs

    def idle(self) -> None:
        self.columns["pulse"][Pulse.PHASE] = Phase.IDLE

    def close(self) -> None:
        self.closed.set()

    def _next(self, sequence: Running) -> RequestOutput:
        token = ord("a") + sequence.said % 26
        sequence.said += 1
        params = sequence.params
        logprob = None
        if params.logprobs is not None:
            top = tuple((token + rank, -0.5 - rank) for rank in range(params.logprobs))
            logprob = [cast(None, Logprob(token, -0.5, top))]
        over = sequence.said >= params.max_tokens
        return RequestOutput(
            sequence.request_id,
            sequence.index,
            [token],
            chr(token),
            logprob,
            "error" if self.spoil else "length" if over else None,
            self.spoil,
            len(sequence.prompt),
            1,
            sequence.said,
        )


class Letters:
    """Bytes are tokens."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        assert len(text) < 5_000, "nobody tokenizes what can never fit"
        return list(text.encode())

    def least_tokens(self, text: str) -> int:
        return len(text.encode())

    def render_chat(self, messages: Sequence[dict[str, str]]) -> str:
        return "".join(f"{message['role']}:{message['content']}\n" for message in messages)

    def token_bytes(self, token: int) -> bytes:
        return bytes([token])


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> dict[str, Any]:
        return json.loads(self.body)

    def error(self) -> dict[str, Any]:
        return self.json()["error"]

    def events(self) -> list[dict[str, Any]]:
        """All but [DONE], which must be the last."""
        *events, done, rest = self.body.split(b"\n\n")
        assert (done, rest) == (b"data: [DONE]", b"")
        return [json.loads(event.removeprefix(b"data: ")) for event in events]


class Served:
    """``engine`` behind its application; ``post`` and ``get`` are one client each."""

    def __init__(self, engine: LettersEngine) -> None:
        self.engine = engine
        self.thread = EngineThread(cast(Engine, engine), most_undecided=LIMITS.max_waiting)
        collector = EngineCollector(engine.columns, engine.facts, self.thread.vitals, self.thread.finished, MODEL)
        self.api = Api(self.thread, cast(Tokenizer, Letters()), engine.facts, Metrics(collector), MODEL)
        self._app = self.api.app()

    async def get(self, path: str) -> Answer:
        return await self.ask("GET", path, b"")

    async def post(self, path: str, gone: asyncio.Event | None = None, **body: object) -> Answer:
        """``gone``: when set, the client has closed its connection."""
        return await self.ask("POST", path, json.dumps(body).encode(), gone=gone)

    async def ask(
        self, method: str, path: str, *parts: bytes, gone: asyncio.Event | None = None, declare: bool = True
    ) -> Answer:
        """``parts``: of the body, as they arrive; ``declare``: with a Content-Length."""
        answer = Answer()
        waiting = list(parts)
        closed = gone or asyncio.Event()

        async def receive() -> dict[str, object]:
            if waiting:
                part = waiting.pop(0)
                return {"type": "http.request", "body": part, "more_body": bool(waiting)}
            await closed.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                answer.status = cast(int, message["status"])
                pairs = cast("list[tuple[bytes, bytes]]", message.get("headers", []))
                answer.headers = {name.decode().lower(): value.decode() for name, value in pairs}
            else:
                answer.body += cast(bytes, message.get("body", b""))

        headers = [(b"content-length", str(sum(map(len, parts))).encode())] if declare else []
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        await self._app(scope, receive, send)  # type: ignore[arg-type]
        return answer


@contextlib.asynccontextmanager
async def serving(engine: LettersEngine | None = None) -> AsyncIterator[Served]:
    served = Served(engine or LettersEngine())
    served.thread.start()
    try:
        yield served
    finally:
        served.engine.gate.set()
        served.thread.stop()
        if served.thread.vitals.failure is None:
            await happens(served.engine.closed)


async def happens(event: threading.Event) -> None:
    """Waits for what another thread does."""
    assert await asyncio.to_thread(event.wait, 10)
