"""Serves one engine over HTTP until a signal: start, drain, stop, and the engine's clean end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial

import uvicorn

from ..engine import Engine
from ..errors import EngineError
from .app import Api
from .engine_thread import EngineThread
from .listen import bind, url_of
from .metrics import EngineCollector, Metrics

KEEP_ALIVE_S = 30
CLOSE_CONNECTIONS_S = 2
STOP_ENGINE_S = 5.0
STOP_ENGINE_AT_ONCE_S = 1.0
OBSERVER_S = 2.0
POLL_S = 0.02


class EngineStopped(EngineError):
    """The engine died while serving, or could not be stopped: its black box, if any, stays."""


def serve(
    engine: Engine,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    listener: socket.socket | None = None,
    model_name: str | None = None,
    drain_s: float = 10.0,
    access_log: bool = False,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Blocks until SIGTERM, SIGINT or SIGHUP, which it takes over: the first lets running requests finish within
    ``drain_s`` (new ones get 503) and aborts the rest; a second one aborts at once. Closes the engine. Call from the
    main thread.

    ``listener``: from bind(), in place of ``host`` and ``port``. ``model_name``: default the model's own.
    ``ready(url)`` is called once requests are taken and the observer knows. Raises ListenError when it cannot listen,
    EngineStopped when the engine died (until the signal /health has said so) or is stuck and had to be left behind.
    """
    sock = bind(host, port) if listener is None else listener
    with contextlib.closing(sock):
        asyncio.run(_Service(engine, sock, model_name, drain_s).run(ready, access_log=access_log))


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: it would raise the signal again once it has stopped."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Service:
    def __init__(self, engine: Engine, sock: socket.socket, model_name: str | None, drain_s: float) -> None:
        name = model_name or str(engine.facts.model["name"])
        self._engine = engine
        self._sock = sock
        self._drain_s = drain_s
        self._thread = EngineThread(engine, most_undecided=int(engine.facts.config["max_waiting"] or 0))
        vitals, finished = self._thread.vitals, self._thread.finished
        metrics = Metrics(EngineCollector(engine.columns, engine.facts, vitals, finished, name))
        self._api = Api(self._thread, engine.model.tokenizer, engine.facts, metrics, name)
        self._signals = 0
        self._signalled = asyncio.Event()

    async def run(self, ready: Callable[[str], None] | None, *, access_log: bool) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
                loop.add_signal_handler(number, self._signal)
        server = _Server(_config(self._api, access_log=access_log))
        self._thread.start()
        serving = asyncio.create_task(server.serve(sockets=[self._sock]))
        while not server.started and not serving.done():
            await asyncio.sleep(POLL_S)
        url = url_of(self._sock)
        await asyncio.wait([self._thread.call(partial(self._engine.observer.serving, url))], timeout=OBSERVER_S)
        if ready is not None:
            ready(url)
        await self._signalled.wait()
        await self._drain()
        await self._stop_engine()
        server.should_exit = True
        await serving
        failure = self._thread.vitals.failure
        if failure is not None:
            raise EngineStopped(f"the engine died: {failure}", "its traceback stands above")
        if self._thread.alive:
            health = self._thread.health()
            raise EngineStopped(f"the engine does not stop: {health.detail or health.phase}", "see `inferdbg top`")

    def _signal(self) -> None:
        self._signals += 1
        self._api.stopping = True
        self._signalled.set()

    async def _drain(self) -> None:
        """Until nobody waits any more, the time is over, a second signal comes or the engine is gone."""
        until = time.monotonic() + self._drain_s
        while self._thread.requests_in_flight and self._signals < 2 and time.monotonic() < until:
            if self._thread.vitals.failure is not None:
                return
            await asyncio.sleep(POLL_S)

    async def _stop_engine(self) -> None:
        """Until its thread has ended, or it takes too long: then it is stuck in a step."""
        self._thread.stop()
        began = time.monotonic()
        while self._thread.alive:
            patience_s = STOP_ENGINE_S if self._signals < 2 else STOP_ENGINE_AT_ONCE_S
            if time.monotonic() - began > patience_s:
                self._thread.fail_all("the server has stopped and its engine is stuck")
                return
            await asyncio.sleep(POLL_S)


def _config(api: Api, *, access_log: bool) -> uvicorn.Config:
    """Quiet: warnings and errors go to stderr through logging's last resort, requests only when asked for."""
    if access_log:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        requests = logging.getLogger("uvicorn.access")
        requests.addHandler(handler)
        requests.setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").addFilter(_worth_a_line)
    return uvicorn.Config(
        api.app(),
        loop="asyncio",
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=access_log,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=CLOSE_CONNECTIONS_S,
    )


def _worth_a_line(record: logging.LogRecord) -> bool:
    """Whoever sends garbage gets a 400; a line of the log for each would let anybody fill it."""
    return not str(record.msg).startswith("Invalid HTTP request")
