"""The one thread that owns the engine; the event loop hands it commands and gets back what each step produced.

event loop ──add, abort, call, stop──► inbox ──► engine thread: commands, step, commands, step …
           ◄──one call_soon_threadsafe a step──  the outputs of all requests in it
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from ..engine import Engine, RequestOutput
from ..errors import EngineError
from ..hooks import EventKind
from ..sampling_params import SamplingParams
from ..state import Counter
from .health import Health, PulseWatch, Vitals, judge
from .refusal import Refusal, from_engine, queue_full

log = logging.getLogger(__name__)

IDLE_WAIT_S = 0.1  # the heartbeat promises 0.2
LOOK_S = 0.2  # between two looks at the pulse
PROGRESS = (Counter.PREFILLED_TOKENS, Counter.GENERATED_TOKENS, Counter.FINISHED, Counter.ABORTED, Counter.FAILED)


class Stream:
    """What one HTTP request waits for: the outputs of its prompts, in batches. Owned by the event loop."""

    def __init__(self, prompts: Sequence[tuple[str, list[int]]], params: SamplingParams) -> None:
        self.prompts = prompts
        self.params = params
        self.admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.unfinished = len(prompts) * params.n
        self._ready: list[RequestOutput] = []
        self._failure: Refusal | None = None
        self._wake = asyncio.Event()

    @property
    def ids(self) -> list[str]:
        return [request_id for request_id, _ in self.prompts]

    def put(self, output: RequestOutput) -> None:
        self._ready.append(output)
        if output.finish_reason is not None:
            self.unfinished -= 1
        self._wake.set()

    def fail(self, refusal: Refusal) -> None:
        """Before admission the handler gets it from ``admitted``, later from ``batches``."""
        self._failure = refusal
        if not self.admitted.done():
            self.admitted.set_exception(refusal)
        self._wake.set()

    async def batches(self) -> AsyncIterator[list[RequestOutput]]:
        """What has come since the last batch, until every continuation is finished. Raises Refusal."""
        while self.unfinished or self._ready:
            await self._wake.wait()
            self._wake.clear()
            ready, self._ready = self._ready, []
            if ready:
                yield ready
            if self._failure is not None:
                raise self._failure


class EngineThread:
    """Every method is for the event loop's thread; those with _on_engine in the name run on the engine's.
    ``most_undecided``: sequences that may pile up while the engine is in a step, beyond which clients are sent away
    without asking it."""

    def __init__(self, engine: Engine, *, most_undecided: int) -> None:
        self.vitals = Vitals()
        self.finished: dict[str, int] = {"stop": 0, "length": 0, "abort": 0, "error": 0}
        self._engine = engine
        self._columns = engine.columns
        self._counters = engine.columns["counters"]
        self._watch = PulseWatch(engine.columns["pulse"])
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._streams: dict[str, Stream] = {}
        self._most_undecided = most_undecided
        self._handed = 0  # sequences, counted on the event loop
        self._decided = 0  # of them, taken or refused: counted on the engine's thread
        self._owed_since_ns: int | None = None
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run_on_engine, name="engine", daemon=True)

    def start(self) -> None:
        """Called once, from inside the running loop that gets the outputs."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        self._look()

    def health(self) -> Health:
        return judge(
            self.vitals,
            self._columns["pulse"],
            now_ns=time.monotonic_ns(),
            owed_since_ns=self._owed_since_ns,
            pulse_moved_ns=self._watch.moved_ns,
        )

    @property
    def requests_in_flight(self) -> int:
        """HTTP requests that wait for the engine."""
        return len(set(map(id, self._streams.values())))

    async def admit(self, prompts: Sequence[tuple[str, list[int]]], params: SamplingParams) -> Stream:
        """Hands prompts (id, token ids) to the engine, all or none. Raises Refusal: bad request, queue full, engine
        dead. Whoever stops reading the stream early calls ``abandon``."""
        if self.vitals.failure is not None:
            raise _engine_failed(f"the engine died: {self.vitals.failure}")
        stream = Stream(prompts, params)
        undecided = self._handed - self._decided
        if undecided >= self._most_undecided:
            raise queue_full(f"{undecided} requests wait for the engine to look at them: try again later")
        if not self._streams:
            self._owed_since_ns = time.monotonic_ns()
        for request_id in stream.ids:
            self._streams[request_id] = stream
        self._handed += stream.unfinished
        self._inbox.put(partial(self._add_on_engine, stream))
        try:
            await stream.admitted
        except BaseException:
            self.abandon(stream)
            raise
        return stream

    def abandon(self, stream: Stream) -> None:
        """Aborts what of it still runs; its blocks are free at the engine's next step."""
        known = [request_id for request_id in stream.ids if self._streams.pop(request_id, None)]
        if known:
            self._inbox.put(partial(self._abort_on_engine, known))
        self._settle_debt()

    def call(self, action: Callable[[], None]) -> asyncio.Future[None]:
        """Runs ``action`` on the engine's thread, between two steps; the future is done when it has returned."""
        returned: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def call_on_engine() -> None:
            action()
            self._post(returned.set_result, None)

        self._inbox.put(call_on_engine)
        return returned

    def stop(self) -> None:
        """Aborts what runs, closes the engine and ends its thread, once the step that it is in is over."""
        self._inbox.put(partial(self._stop_on_engine, list(self._streams)))

    def fail_all(self, why: str) -> None:
        """Tells every client that its answer will not come."""
        for stream in set(self._streams.values()):
            stream.fail(_engine_failed(why))
        self._streams.clear()
        self._settle_debt()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _look(self) -> None:
        """Again and again, for as long as the event loop and the engine's thread live."""
        self._watch.look(time.monotonic_ns())
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_later(LOOK_S, self._look)

    def _run_on_engine(self) -> None:
        engine, vitals = self._engine, self.vitals
        try:
            while not self._stopping:
                if engine.has_work():
                    self._obey_on_engine(wait_s=0.0)
                    self._step_on_engine()
                else:
                    vitals.busy = False
                    engine.idle()
                    self._obey_on_engine(wait_s=IDLE_WAIT_S)
            engine.close()
        except Exception as error:  # whatever it is, clients and /health must learn of it
            log.exception("the engine died")
            vitals.failure = f"{type(error).__name__}: {error}"
            engine.observer.event(EventKind.LOGGED, text=f"the engine's thread ended: {vitals.failure}")
            self._post(self.fail_all, f"the engine died: {vitals.failure}")

    def _obey_on_engine(self, wait_s: float) -> None:
        """Every command in the inbox; waits for the first one at most ``wait_s``."""
        try:
            self._inbox.get(block=wait_s > 0, timeout=wait_s or None)()
            while True:
                self._inbox.get_nowait()()
        except queue.Empty:
            return

    def _step_on_engine(self) -> None:
        vitals, counters = self.vitals, self._counters
        begun_ns = time.monotonic_ns()
        if not vitals.busy:
            vitals.moved_ns = begun_ns
            vitals.busy = True
        before = [counters[word] for word in PROGRESS]
        outputs = self._engine.step()
        ended_ns = time.monotonic_ns()
        after = [counters[word] for word in PROGRESS]
        if after != before:
            vitals.moved_ns = ended_ns
        vitals.stepped(ended_ns - begun_ns, after[0] + after[1] - before[0] - before[1])
        if outputs:
            self._post(self._deliver, outputs)

    def _add_on_engine(self, stream: Stream) -> None:
        added: list[str] = []
        refusal: Refusal | None = None
        try:
            for request_id, tokens in stream.prompts:
                self._engine.add_request(request_id, tokens, stream.params)
                added.append(request_id)
        except EngineError as error:
            refusal = from_engine(error)
            self._abort_on_engine(added)
        self._decided += stream.unfinished
        self._post(self._admitted, stream, refusal)

    def _abort_on_engine(self, request_ids: list[str]) -> None:
        outputs = list(itertools.chain.from_iterable(self._engine.abort(request_id) for request_id in request_ids))
        if outputs:
            self._post(self._deliver, outputs)

    def _stop_on_engine(self, request_ids: list[str]) -> None:
        self._abort_on_engine(request_ids)
        self._stopping = True

    def _post(self, action: Callable[..., None], *arguments: object) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(action, *arguments)

    def _admitted(self, stream: Stream, refusal: Refusal | None) -> None:
        if refusal is not None:
            stream.fail(refusal)
        elif not stream.admitted.done():
            stream.admitted.set_result(None)

    def _deliver(self, outputs: list[RequestOutput]) -> None:
        for output in outputs:
            if output.finish_reason is not None:
                self.finished[output.finish_reason] += 1
            stream = self._streams.get(output.request_id)
            if stream is None:
                continue
            stream.put(output)
            if stream.unfinished == 0:
                for request_id in stream.ids:
                    self._streams.pop(request_id, None)
        self._settle_debt()

    def _settle_debt(self) -> None:
        if not self._streams:
            self._owed_since_ns = None


def _engine_failed(why: str) -> Refusal:
    return Refusal(500, why, kind="server_error", code="engine_failed")
