"""A server of any engine as it reports itself: /health, /metrics, and the few further GETs of its engine's table.

Only what is named here is ever asked, by GET: no generation, nothing that changes the server. A look costs it 5 to 9 ms
(vLLM) and a line in its access log, so it is asked every two seconds; for its health every ten, and at every look while
it is ill, or requests run and nothing is counted. (llama.cpp's averages of the last while, predicted_tokens_seconds and
the like, are since anybody's last look: who graphs them sees ours. Totals are not touched.)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from inferdbg import text
from inferdbg.collect.probe import SECOND, Reading
from inferdbg.facts.provenance import Origin, ProbeStatus
from inferdbg.facts.sections.metrics import Caveat, Metrics
from inferdbg.facts.sections.requests import Requests
from inferdbg.facts.sections.scheduler import Scheduler
from inferdbg.facts.sections.server import EngineConfig, Health, ModelFacts, Server

from . import bundled, llamacpp, sglang, vllm
from .exposition import Exposition, parse
from .fetch import Connection, Reply, Unanswered
from .tables import Scrape, Table, ranks_in, scheduler, table_of

MOST_SERIES = 2000
"""Kept in a Snapshot: a vLLM server with one engine has 80."""
HEALTH_EVERY_NS = 10 * SECOND
_LOOK_NS = 2 * SECOND
_REQUEST_NS = 3 * SECOND // 2
_RESTART_TOLD_NS = 300 * SECOND
_TABLES = (vllm.TABLE, llamacpp.TABLE, sglang.TABLE, bundled.TABLE)
_STATUS: dict[int, ProbeStatus] = {200: "ok", 401: "denied", 403: "denied", 404: "absent", 501: "absent"}
_OF_OPENAI = ("vllm", "sglang")
T = TypeVar("T")


class _Version(Struct):
    version: llamacpp.Words | None = None


class _Card(Struct):
    id: llamacpp.Words = ""
    max_model_len: llamacpp.Number | None = None


class _Cards(Struct):
    data: list[_Card] = []


class _Lasting(Struct, frozen=True):
    """What changes only when the server starts anew."""

    version: str | None = None
    model: ModelFacts | None = None
    config: EngineConfig | None = None
    sleeping: bool = False


@dataclass
class Reported:
    """The server at ``url``. ``engine``: what it is taken for; its metrics may say otherwise. ``rank``: which of its
    data-parallel ranks is meant (``DP1``); None: all together."""

    url: str
    engine: str
    rank: str | None = None

    name = "reported"
    sections = ("server", "scheduler", "requests", "kvcache", "metrics")
    cadence_ns = 2 * SECOND
    deadline_ns = 3 * SECOND
    isolated = True

    def __post_init__(self) -> None:
        self._connection: Connection | None = None
        self._lasting: _Lasting | None = None
        self._health: Health | None = None
        self._kept: dict[str, Struct] = {}
        self._live = llamacpp.LiveTotals()
        self._started_wall_ns: int | None = None
        self._life: tuple[float | None, ...] = ()  # changes when the server begins anew
        self._before: Scheduler | None = None
        self._restarts = 0
        self._restarted_ns: int | None = None
        self._left_ns = 0

    def read(self, now_ns: int) -> Reading:
        """Raises InferdbgError for what is no address. A server that does not answer is a reading, too: what it said
        before stands with the age that it has, unless nobody listens any more."""
        if self._connection is None:
            self._connection = Connection(self.url)
        self._left_ns = _LOOK_NS
        if self._asleep():
            return self._sleeping(now_ns)
        try:
            reply = self._get("/metrics")
        except Unanswered as error:
            return self._unanswered(error, now_ns)
        exposition = parse(reply.body) if reply.status == 200 else Exposition()
        if reply.status == 200 and reply.body.strip() and not exposition.series:
            self._ask_health(now_ns)
            return self._failed(
                f"GET /metrics: {text.size(len(reply.body))} that are no metrics",
                "is this the address of a server?",
                now_ns,
            )
        return self._answered(reply, exposition, now_ns)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # asking -------------------------------------------------------------------------------------------------------

    def _get(self, path: str) -> Reply:
        """Within what is left of this look's time. Raises Unanswered."""
        assert self._connection is not None
        limit_ns = min(_REQUEST_NS, self._left_ns)
        if limit_ns <= 0:
            raise Unanswered("no answer", f"GET {path}: not asked, the others took all the time", 0)
        try:
            reply = self._connection.get(path, limit_ns)
        except Unanswered as error:
            self._left_ns -= error.took_ns
            raise
        self._left_ns -= reply.took_ns
        return reply

    def _body(self, path: str) -> bytes | None:
        """The body of a further answer; None without one."""
        try:
            reply = self._get(path)
        except Unanswered:
            return None
        return reply.body if reply.status == 200 else None

    def _parsed(self, path: str, parser: Callable[[bytes], T]) -> T | None:
        """What a further endpoint says; None where it says nothing, or nothing that makes sense."""
        body = self._body(path)
        try:
            return None if body is None else parser(body)
        except msgspec.DecodeError:
            return None

    def _health_due(self, now_ns: int) -> bool:
        """Ill servers are asked at every look."""
        known = self._health
        return known is None or known.answer != "200" or now_ns - known.mono_ns >= HEALTH_EVERY_NS

    def _ask_health(self, now_ns: int) -> None:
        try:
            reply = self._get("/health")
            self._health = Health(str(reply.status), reply.took_ns, now_ns)
        except Unanswered as error:
            self._health = Health(error.kind, error.took_ns, now_ns)

    def _asleep(self) -> bool:
        """Whether a llama.cpp server has put its model away: any question but this one could wake it."""
        if self.engine != "llama.cpp" or not (self._lasting is None or self._lasting.sleeping):
            return False
        self._lasting = self._ask_lasting(self.engine)
        return self._lasting.sleeping

    # answers ------------------------------------------------------------------------------------------------------

    def _answered(self, reply: Reply, exposition: Exposition, now_ns: int) -> Reading:
        origin = Origin(self.name, now_ns, "reported")
        table = table_of(_TABLES, exposition, self.engine)
        scrape = self._scrape(table, exposition)
        found, caveats = scheduler(table, scrape, origin) if table is not None else (None, ())
        if self._health_due(now_ns) or reply.status >= 500 or stands_still(self._before, found):
            self._ask_health(now_ns)
        self._notice_restart(exposition, found, now_ns)
        engine = table.engine if table is not None else self.engine
        unknown = self._lasting is None or self._lasting.model is None
        if self._lasting is None or (unknown and self._health is not None and self._health.mono_ns == now_ns):
            self._lasting = self._ask_lasting(engine)
        requests = None
        if engine == "llama.cpp":
            found, requests, caveats = self._with_slots(found, origin)
        sections: dict[str, Struct | None] = {
            "server": self._server(engine, table, scrape, now_ns),
            "scheduler": found,
            "requests": requests,
            "kvcache": table.kvcache(scrape, origin) if table is not None else None,
            "metrics": self._metrics(exposition, caveats, origin) if exposition.series else None,
        }
        self._kept = {name: section for name, section in sections.items() if section is not None}
        status: ProbeStatus = "ok" if found is not None else _STATUS.get(reply.status, "failed")
        message, hint = self._words(table, reply, exposition, caveats, now_ns)
        return Reading(dict(self._kept), status, message, hint)

    def _scrape(self, table: Table | None, exposition: Exposition) -> Scrape:
        if table is None:
            return Scrape(exposition)
        scrape = Scrape(exposition, table.same)
        rank = (self.rank or "").removeprefix("DP")
        return scrape.of_rank(table.rank, rank) if rank in ranks_in(table, scrape) else scrape

    def _sleeping(self, now_ns: int) -> Reading:
        self._kept = {"server": self._server(self.engine, None, Scrape(Exposition()), now_ns)}
        return Reading(
            dict(self._kept),
            message="the server sleeps: its model is put away; it is asked no more, so as not to wake it",
        )

    def _with_slots(
        self, found: Scheduler | None, origin: Origin
    ) -> tuple[Scheduler | None, Requests | None, tuple[Caveat, ...]]:
        slots = self._parsed("/slots", llamacpp.parse_slots)
        if slots is None:
            return found, None, llamacpp.LATE if found is not None else ()
        live = self._live.of(found, slots) if found is not None else llamacpp.of_slots(slots, origin)
        return live, llamacpp.requests(slots, origin), llamacpp.LIVE if found is not None else ()

    def _notice_restart(self, exposition: Exposition, found: Scheduler | None, now_ns: int) -> None:
        """By the start times that it tells, or by counters that fell."""
        started = next((s.value for s in exposition.series if s.name == "process_start_time_seconds"), None)
        life = (started, min(exposition.created.values(), default=None))
        if another(self._life, life) or fell(self._before, found):
            self._restarts += 1
            self._restarted_ns = now_ns
            self._lasting = None
        if exposition.series:
            self._life, self._before = life, found
            plausible = started is not None and 0 < started < 1e11
            self._started_wall_ns = round(started * SECOND) if plausible and started is not None else None

    def _ask_lasting(self, engine: str) -> _Lasting:
        if engine == "llama.cpp":
            props = self._parsed("/props", llamacpp.parse_props)
            model = self._parsed("/v1/models", lambda body: llamacpp.model(props, body))
            if props is None:
                return _Lasting(model=model)
            return _Lasting(props.build_info, model, llamacpp.limits(props), bool(props.is_sleeping))
        if engine not in _OF_OPENAI:
            return _Lasting()
        version = self._parsed("/version", _version.decode) if engine == "vllm" else None
        cards = self._parsed("/v1/models", _cards.decode) or _Cards()
        card = cards.data[0] if cards.data else _Card()
        return _Lasting(
            version.version if version is not None else None,
            ModelFacts(card.id) if card.id else None,
            EngineConfig(max_model_len=card.max_model_len) if card.max_model_len else None,
        )

    def _server(self, engine: str, table: Table | None, scrape: Scrape, now_ns: int) -> Server:
        lasting = self._lasting or _Lasting()
        model, config = lasting.model, lasting.config
        read = table.config(scrape) if table is not None else None
        if read is not None:
            config = replace(read, max_model_len=config.max_model_len) if config is not None else read
        if engine == "vllm" and model is not None:
            model = replace(model, kv_dtype=vllm.kv_dtype(scrape))
        return Server(
            Origin(self.name, now_ns, "reported"),
            engine,
            version=lasting.version,
            started_wall_ns=self._started_wall_ns,
            url=self.url,
            model=model,
            config=config,
            health=self._health,
            restarts=self._restarts,
        )

    def _metrics(self, exposition: Exposition, caveats: tuple[Caveat, ...], origin: Origin) -> Metrics:
        kept = exposition.series[:MOST_SERIES]
        return Metrics(origin, kept, len(exposition.series) - len(kept) + exposition.unread, caveats)

    def _words(
        self, table: Table | None, reply: Reply, exposition: Exposition, caveats: tuple[Caveat, ...], now_ns: int
    ) -> tuple[str, str]:
        """Message and hint: what a look costs, what is odd, and the catches of its numbers."""
        said = []
        if self._restarted_ns is not None and now_ns - self._restarted_ns < _RESTART_TOLD_NS:
            said.append(f"the server began anew {text.duration(now_ns - self._restarted_ns)} ago")
        if reply.status == 200:
            line = ", a line in its access log" if table is not None and table.logged else ""
            every = text.duration(self.cadence_ns)
            said.append(f"each look, every {every}: {text.duration(reply.took_ns)}, {text.size(len(reply.body))}{line}")
        else:
            led_away = ", which leads elsewhere: that is not followed" if 300 <= reply.status < 400 else ""
            said.append(f"GET /metrics: HTTP {reply.status}{led_away}")
        if exposition.bad_lines:
            said.append(f"{text.counted(exposition.bad_lines, 'line')} made no sense")
        if exposition.repeated:
            said.append(f"{exposition.repeated} series came twice, the first was taken")
        if (left_out := len(exposition.series) + exposition.unread - MOST_SERIES) > 0:
            said.append(f"{text.count(left_out)} of its series were left out")
        hints = [f"{caveat.field}: {caveat.words}" for caveat in caveats]
        if reply.status in (401, 403):
            hints.insert(0, "its /metrics asks for a key, which inferdbg does not send")
        elif reply.status != 200 and table is not None and table.switch:
            hints.insert(0, table.switch)
        return "; ".join(said), "\n".join(hints)

    # no answers ---------------------------------------------------------------------------------------------------

    def _unanswered(self, error: Unanswered, now_ns: int) -> Reading:
        if error.kind == "refused":
            self._health = Health("refused", error.took_ns, now_ns)
            before = self._kept.get("server")
            self._kept = {"server": replace(before, state="dead")} if isinstance(before, Server) else {}
            return self._without(now_ns, "absent", error.message, "has the server ended, or not begun to listen?")
        self._ask_health(now_ns)
        if error.kind == "no answer":
            return self._without(now_ns, "not answering", error.message, f"curl -m 5 -sv {self.url}/health")
        return self._failed(error.message, "", now_ns)

    def _failed(self, message: str, hint: str, now_ns: int) -> Reading:
        return self._without(now_ns, "failed", message, hint)

    def _without(self, now_ns: int, status: ProbeStatus, message: str, hint: str) -> Reading:
        """What it said before, and how its health is now."""
        before = self._kept.get("server")
        server = before if isinstance(before, Server) else self._server(self.engine, None, Scrape(Exposition()), now_ns)
        return Reading({**self._kept, "server": replace(server, health=self._health)}, status, message, hint)


_version = msgspec.json.Decoder(_Version)
_cards = msgspec.json.Decoder(_Cards)


def another(before: Sequence[float | None], after: Sequence[float | None]) -> bool:
    """Whether a start time is not what it was."""
    return any(old is not None and new is not None and new != old for old, new in zip(before, after, strict=False))


def fell(before: Scheduler | None, after: Scheduler | None) -> bool:
    """Whether a total is smaller than it was."""
    pairs = zip(_totals(before), _totals(after), strict=True)
    return any(old is not None and new is not None and new < old for old, new in pairs)


def stands_still(before: Scheduler | None, after: Scheduler | None) -> bool:
    """Whether requests run and nothing was counted since."""
    return after is not None and bool(after.running) and _totals(before) == _totals(after)


def _totals(found: Scheduler | None) -> list[int | None]:
    return [getattr(found, name, None) for name in Scheduler.__struct_fields__ if name.endswith("_total")]
