"""The bundled engine, living or dead, read from its black box: nothing is asked of the engine itself."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from inferdbg.blackbox.layout import Layout
from inferdbg.blackbox.reader import Box, Moment
from inferdbg.blackbox.writer import MAX_BOX_BYTES
from inferdbg.collect.probe import SECOND, Reading
from inferdbg.engine.state import BLOCK_COLUMNS, HISTOGRAMS, REQUEST_COLUMNS, REQUEST_ID_BYTES, Typecode
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.events import Events
from inferdbg.facts.sections.kvcache import KVCache
from inferdbg.facts.sections.pulse import Pulse
from inferdbg.facts.sections.requests import Requests
from inferdbg.facts.sections.server import ServerState
from inferdbg.facts.sections.steps import Steps

from . import engine_columns, engine_rings
from .engine_blocks import counted_again, kvcache
from .engine_facts import StaticFacts, parse_facts, server

SECTIONS = ("server", "pulse", "scheduler", "requests", "kvcache", "steps", "kernels", "events")
MAX_SLOTS = 1 << 16
"""A box that claims more request slots has none to show."""
_WORD_COLUMNS: dict[str, Typecode] = {
    "pulse": "Q",
    "counters": "Q",
    "pool": "q",
    **{f"histograms.{name}": "Q" for name in HISTOGRAMS},
    **{f"kernels.{name}": "Q" for name in ("calls", "busy_ns", "flops", "moved_bytes")},
}
_MAX_WORDS = 4096
_EVERY_LOOK_BYTES = 1 << 19
WHOLE_EVERY_NS = SECOND
"""How often requests and blocks are read where they have more than _EVERY_LOOK_BYTES: to read, compare and remember
the 4 MB of 100,000 blocks costs more than all the rest of a look."""


class EngineBox:
    """The box at ``path``. ``history``: steps and events of the past that the first read takes along, so that a screen
    does not begin empty; later reads take what is new. ``whole``: every read takes requests and blocks along, however
    many there are."""

    name = "engine box"
    sections = SECTIONS
    cadence_ns = SECOND // 20
    deadline_ns = SECOND
    isolated = False

    def __init__(self, path: str, *, history: int = 512, whole: bool = False) -> None:
        self._path = path
        self._history = history
        self._always_whole = whole
        self._box: Box | None = None
        self._names: list[str] = []
        self._names_between: list[str] = []
        self._requests: Requests | None = None
        self._kvcache: KVCache | None = None
        self._whole_ns: int | None = None  # when these two were read
        self._encoded_facts: bytes | None = None
        self._static = StaticFacts()
        self._last_step: int | None = None
        self._last_event: int | None = None

    def read(self, now_ns: int) -> Reading:
        """Raises InferdbgError for what is no box, or a broken one."""
        if self._box is None:
            self._box = Box.open(self._path)
            self._names, self._names_between = self._columns_of(self._box.layout)
        box = self._box
        state: ServerState = box.state()
        messages = self._read_facts(box)
        whole = state != "alive" or self._whole_due(now_ns)
        moment = box.read(self._names if whole else self._names_between)
        if whole and not moment.torn and moment.change is None:  # what is carried for a second must fit together
            self._whole_ns = now_ns
        if moment.torn:
            messages.append("the engine changed its tables under every try to read them: numbers may not fit together")
        seen_ns = now_ns if state == "alive" else self._last_sign(moment, now_ns)
        origin = Origin(probe=self.name, mono_ns=seen_ns)
        pid = box.holder() or box.layout.pid
        sections: dict[str, Struct] = {
            "server": server(self._static, origin, pid=pid, state=state, path=self._path),
            **self._parse(moment, origin, whole=whole),
            **self._read_rings(box, origin),
        }
        moment_ns = moment_of(state, newest_ns_of(sections), seen_ns, now_ns)
        return Reading(
            sections=sections,
            status="torn" if moment.torn else "ok",
            message="; ".join(messages),
            mono_ns=moment_ns,
        )

    def close(self) -> None:
        if self._box is not None:
            self._box.close()
            self._box = None

    def _columns_of(self, layout: Layout) -> tuple[list[str], list[str]]:
        """Those of a whole look, and those of the looks between."""
        names = readable_columns(layout)
        many = [name for name in names if name == "tables" or name.startswith(("blocks.", "requests."))]
        if self._always_whole or sum(layout.columns[name].size for name in many) <= _EVERY_LOOK_BYTES:
            return names, names
        return names, [name for name in names if name not in many]

    def _whole_due(self, now_ns: int) -> bool:
        """Looks come a little early, too."""
        since_ns = WHOLE_EVERY_NS if self._whole_ns is None else now_ns - self._whole_ns
        return self._names is self._names_between or since_ns >= WHOLE_EVERY_NS * 9 // 10

    def _parse(self, moment: Moment, origin: Origin, *, whole: bool) -> dict[str, Struct]:
        """Columns of one moment as sections; what the box lacks is left out. Between whole looks requests and blocks
        are those of the last one."""
        columns, config, names = moment.columns, self._static.facts.config, self._static.facts.kernels
        if whole:
            tables = engine_columns.block_tables(columns, self._static.facts.blocks_per_row)
            self._requests = engine_columns.requests(columns, tables, origin)
            items = () if self._requests is None else self._requests.items
            held = [(one.blocks, one.computed_tokens or 0) for one in items if one.blocks]
            cache = kvcache(columns, config.block_size, held, origin)
            if cache is not None and self._names is not self._names_between:
                cache = replace(cache, columns_ns=origin.mono_ns)
            self._kvcache = cache
        elif self._kvcache is not None:
            self._kvcache = counted_again(self._kvcache, columns, origin)
        intent = engine_columns.intent(*moment.change) if moment.change is not None else None
        found: dict[str, Struct | None] = {
            "pulse": engine_columns.pulse(columns, names, origin, moment.generation, intent),
            "scheduler": engine_columns.scheduler(columns, origin),
            "requests": self._requests,
            "kvcache": self._kvcache,
            "kernels": engine_columns.kernels(columns, names, origin),
        }
        return {name: section for name, section in found.items() if section is not None}

    def _read_facts(self, box: Box) -> list[str]:
        """Keeps the engine's static facts; returns what there is to say about them."""
        encoded = box.facts()
        if encoded != self._encoded_facts and encoded is not None:
            self._encoded_facts = encoded
            try:
                self._static = parse_facts(encoded)
            except msgspec.DecodeError as error:
                self._static = StaticFacts(notes=(f"what the box says about model and limits makes no sense: {error}",))
        return list(self._static.notes)

    def _read_rings(self, box: Box, origin: Origin) -> dict[str, Struct]:
        first = self._last_step is None
        limit = self._history if first else 1 << 30
        step_records = box.steps(self._last_step, limit)
        event_records = box.events(self._last_event, limit)
        self._last_step, self._last_event = step_records.last, event_records.last
        return {
            "steps": engine_rings.steps(step_records, origin),
            "events": engine_rings.events(event_records, origin),
        }

    @staticmethod
    def _last_sign(moment: Moment, now_ns: int) -> int:
        """When a dead engine last gave a sign of life: the heartbeat."""
        words = engine_columns.items(moment.columns, "pulse", "Q")
        return min(words[0], now_ns) if words else now_ns


def moment_of(state: ServerState, newest_ns: int, seen_ns: int, now_ns: int) -> int | None:
    """The moment that the facts speak of, so that none of them is younger; None: that of the question. Times of long
    after the question are a broken box's."""
    if state != "alive":
        return min(now_ns, max(seen_ns, newest_ns))
    return newest_ns if now_ns < newest_ns < now_ns + SECOND else None


def newest_ns_of(sections: Mapping[str, Struct]) -> int:
    """When the last thing happened that they tell of; 0 when they tell of none. A busy engine does more between the
    question and the answer, and no time since then may come out negative."""
    pulse, steps, events = sections.get("pulse"), sections.get("steps"), sections.get("events")
    times = [0]
    if isinstance(pulse, Pulse):
        times += [pulse.heartbeat_ns or 0, pulse.phase_since_ns]
    if isinstance(steps, Steps):
        times += [step.start_ns + (step.total_ns or 0) for step in steps.items[-1:]]
        times += [steps.running.start_ns] if steps.running is not None else []
    if isinstance(events, Events):
        times += [event.mono_ns for event in events.items[-1:]]
    return max(times)


def readable_columns(layout: Layout) -> list[str]:
    """Names of the columns that are what their name promises: of the right type, and as long as their neighbours."""
    places = layout.columns
    blocks = places["blocks.state"].length if "blocks.state" in places else 0
    slots = places["requests.stage"].length if "requests.stage" in places else 0
    wanted: dict[str, tuple[Typecode, range]] = {
        **{name: (code, range(1, _MAX_WORDS + 1)) for name, code in _WORD_COLUMNS.items()},
        **{f"blocks.{name}": (code, range(blocks, blocks + 1)) for name, code in BLOCK_COLUMNS.items()},
    }
    if slots <= MAX_SLOTS:
        wanted["tables"] = ("i", range(MAX_BOX_BYTES))
        wanted |= {f"requests.{name}": (code, range(slots, slots + 1)) for name, code in REQUEST_COLUMNS.items()}
        wanted["requests.id"] = ("B", range(slots * REQUEST_ID_BYTES, slots * REQUEST_ID_BYTES + 1))
    wanted.pop("blocks.previous_free")
    return [
        name
        for name, (typecode, lengths) in wanted.items()
        if name in places and places[name].typecode == typecode and places[name].length in lengths
    ]
