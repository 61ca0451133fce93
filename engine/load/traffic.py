"""Runs a mix against a server: arrivals on time, a thread a client, one report a second, and the summary."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from .client import Address, Client
from .mix import Ask, Asks, Mix
from .schedule import NEVER, Schedule
from .summary import Progress, Summary
from .survey import LoadError, survey
from .tally import Tally

REPORT_EVERY_S = 1.0
LONGEST_NAP_S = 0.2
PAUSE_AFTER_ERROR_S = 0.25
CLIENT_LIMIT = "client limit"


def run(
    url: str,
    mix: Mix,
    *,
    seed: int = 0,
    model: str | None = None,
    duration_s: float | None = None,
    requests: int | None = None,
    timeout_s: float = 120.0,
    report: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> Summary:
    """Blocks until ``duration_s`` is over or ``requests`` were sent (whichever is first; neither: until ``stop``) and
    the last answer is there; ``stop`` ends it at once and cuts what is open. Never sends anything twice.

    ``model``: None takes the first that the server names. ``timeout_s``: of a connection that stays silent.
    ``report`` is called once a second on the calling thread. Raises LoadError when the server cannot be asked for its
    models or does not serve ``model``.
    """
    try:
        address = Address.of(url)
    except ValueError as error:
        raise LoadError(str(error), "give an address like http://127.0.0.1:8000") from None
    server = survey(address, url, model, timeout_s)
    asks = Asks(mix, seed, words_per_token=server.words_per_token, longest=server.longest)
    traffic = Traffic(address, mix, asks, server.model, timeout_s)
    began = time.monotonic()
    until = NEVER if duration_s is None else began + duration_s
    schedule = Schedule(mix, seed, began=began, until=until, requests=requests)
    traffic.drive(schedule, began, report, stop or threading.Event())
    return traffic.tally.summary(url, server.model, mix.name, seed, time.monotonic() - began)


class Traffic:
    """Owned by the thread that calls ``drive``; each client runs on a thread of its own and reports to the tally."""

    def __init__(self, address: Address, mix: Mix, asks: Asks, model: str, timeout_s: float) -> None:
        self.tally = Tally()
        self._address = address
        self._mix = mix
        self._closed_loop = mix.rate is None
        self._asks = asks
        self._model = model
        self._timeout_s = timeout_s
        self._open: set[Client] = set()
        self._changed = threading.Condition()

    def drive(
        self,
        schedule: Schedule,
        began: float,
        report: Callable[[Progress], None] | None,
        stop: threading.Event,
    ) -> None:
        """Until the schedule is over and every client has ended, or ``stop``."""
        report_at, reported = began + REPORT_EVERY_S, 0
        while not stop.is_set():
            now = time.monotonic()
            if schedule.over(now) and not self._open:
                return
            for kind in schedule.due(now, len(self._open)):
                self._send(self._asks.draw(burst=kind == "burst"), stop)
            if report is not None and now >= report_at:
                reported = self._report(report, now - began, now - report_at + REPORT_EVERY_S, reported)
                report_at = now + REPORT_EVERY_S
            wake = min(schedule.next_at(now), report_at, now + LONGEST_NAP_S)
            with self._changed:
                if self._closed_loop and len(self._open) < self._mix.concurrency and not schedule.over(now):
                    continue
                self._changed.wait(max(0.001, wake - time.monotonic()))
        self._cut_all()

    def _send(self, ask: Ask, stop: threading.Event) -> None:
        self.tally.sent += 1
        if not self._closed_loop and len(self._open) >= self._mix.concurrency:
            self.tally.refuse(CLIENT_LIMIT)
            return
        client = Client(self._address, self._timeout_s)
        with self._changed:
            self._open.add(client)
        name = f"client-{self.tally.sent}"
        threading.Thread(target=self._run, args=(client, ask, stop), name=name, daemon=True).start()

    def _run(self, client: Client, ask: Ask, stop: threading.Event) -> None:
        outcome = client.ask(ask, self._model)
        self.tally.add(outcome, cut=client.was_cut)
        if outcome.error is not None and self._closed_loop:
            stop.wait(PAUSE_AFTER_ERROR_S)  # a closed loop against a dead server must not spin
        with self._changed:
            self._open.discard(client)
            self._changed.notify()

    def _report(self, report: Callable[[Progress], None], elapsed: float, interval: float, reported: int) -> int:
        with self._changed:
            clients = list(self._open)
        with self.tally.lock:
            tally = self.tally
            pieces = tally.pieces + sum(client.pieces for client in clients)
            progress = Progress(
                elapsed_s=elapsed,
                sent=tally.sent,
                open=len(clients),
                silent=sum(client.pieces == 0 for client in clients),
                finished=tally.finished,
                aborted=tally.aborted,
                errors=sum(tally.errors.values()),
                pieces_per_s=max(0, pieces - reported) / interval,
            )
        report(progress)
        return max(pieces, reported)

    def _cut_all(self) -> None:
        with self._changed:
            clients = list(self._open)
        for client in clients:
            client.cut()
        with self._changed:
            self._changed.wait_for(lambda: not self._open, timeout=5.0)
