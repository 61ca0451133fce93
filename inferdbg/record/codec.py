"""A Snapshot as three lines of JSON, and back.

    light     {"seq": 7, "wall_ns": …, "mono_ns": …, "scheduler": {…}, …}   what a Window keeps of the past
    heavy     {"seq": 7, "rows": […], "work": […], "happened": […]}         read for the moment that is looked at
    columns   {"seq": 7, "columns": {…}}                                    what changed in the block columns

Light sections that are as in the line before are left out, one that is no longer known is null. Heavy are the rows of
``requests``, the work of ``steps`` and the items of ``events``, always whole. Compression does the rest: lines
resemble each other.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Struct, UnsetType, defstruct
from msgspec.structs import replace

from inferdbg.facts.provenance import ProbeReport
from inferdbg.facts.sections.events import Event
from inferdbg.facts.sections.kvcache import COLUMN_TYPES
from inferdbg.facts.sections.requests import Request
from inferdbg.facts.sections.steps import Step, Work
from inferdbg.facts.snapshot import SECTIONS, Snapshot, Target

from .columns import ColumnChange, Columns, column_changes, columns_of


class StepWork(Struct, array_like=True):
    """What one step ran, apart from the step; ``lost``: its own ``work_lost``."""

    work: tuple[Work, ...]
    lost: bool


def _type_of(name: str) -> type[Struct]:
    wanted: Any = next(field.type for field in msgspec.structs.fields(Snapshot) if field.name == name)
    found: type[Struct] = next(part for part in wanted.__args__ if part is not type(None))
    return found


SECTION_TYPES: dict[str, type[Struct]] = {name: _type_of(name) for name in SECTIONS}
"""The Struct of each section, by its name in Snapshot."""

_CARRIED = ("target", *SECTIONS, "probes")
_Light = defstruct(
    "Light",
    [
        ("seq", int),
        ("wall_ns", int),
        ("mono_ns", int),
        ("target", Target | UnsetType, UNSET),
        *((name, cls | None | UnsetType, UNSET) for name, cls in SECTION_TYPES.items()),
        ("probes", tuple[ProbeReport, ...] | UnsetType, UNSET),
        ("work_count", int, 0),
        ("event_count", int, 0),
    ],
)


class _Heavy(Struct, omit_defaults=True):
    seq: int
    rows: tuple[Request, ...] = ()
    work: tuple[StepWork, ...] = ()
    happened: tuple[Event, ...] = ()


class _Columns(Struct):
    seq: int
    columns: dict[str, ColumnChange | None]


_encode = msgspec.json.Encoder().encode
_light: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Light)
_heavy = msgspec.json.Decoder(_Heavy)
_columns = msgspec.json.Decoder(_Columns)
_NO_COLUMNS: dict[str, bytes | None] = dict.fromkeys(COLUMN_TYPES)


class Lines(NamedTuple):
    """One Snapshot, each line with its newline."""

    light: bytes
    heavy: bytes
    columns: bytes


class Encoder:
    """Turns Snapshots, oldest first, into lines."""

    def __init__(self) -> None:
        self._light: Snapshot | None = None
        self._columns = _NO_COLUMNS

    def encode(self, snapshot: Snapshot, *, whole_light: bool = False, whole_columns: bool = False) -> Lines:
        """Against the Snapshot before, or ``whole``: readable without it."""
        light, before = bared(snapshot), None if whole_light else self._light
        line: dict[str, Any] = {"seq": light.seq, "wall_ns": light.wall_ns, "mono_ns": light.mono_ns}
        for name in _CARRIED:
            new, old = getattr(light, name), None if before is None else getattr(before, name)
            if new is not old and new != old:
                line[name] = new
        heavy = _Heavy(snapshot.seq)
        if snapshot.requests is not None:
            heavy.rows = snapshot.requests.items
        if snapshot.steps is not None and (count := work_count(snapshot)):
            line["work_count"] = count
            heavy.work = tuple(StepWork(step.work, step.work_lost) for step in snapshot.steps.items)
        if snapshot.events is not None and snapshot.events.items:
            line["event_count"] = len(snapshot.events.items)
            heavy.happened = snapshot.events.items
        columns = columns_of(snapshot.kvcache)
        changed = column_changes(_NO_COLUMNS if whole_columns else self._columns, columns)
        self._light, self._columns = light, columns
        return Lines(
            _encode(line) + b"\n",
            _encode(heavy) + b"\n",
            _encode(_Columns(snapshot.seq, changed)) + b"\n",
        )


class Moment(NamedTuple):
    """A Snapshot as ``bared`` leaves it, and how much work and how many events were left out."""

    snapshot: Snapshot
    work_count: int
    event_count: int


def decode_light(lines: bytes) -> list[Moment]:
    """The light lines of successive Snapshots, the first whole; msgspec.DecodeError when they are not that."""
    found: list[Moment] = []
    values: dict[str, Any] = {}
    for line in _light.decode_lines(lines):
        values["seq"], values["wall_ns"], values["mono_ns"] = line.seq, line.wall_ns, line.mono_ns
        for name in _CARRIED:
            section = getattr(line, name)
            if section is not UNSET:
                values[name] = section
        found.append(Moment(Snapshot(**values), line.work_count, line.event_count))
    return found


def decode_whole(snapshot: Snapshot, heavy: bytes, columns: Iterable[bytes]) -> Snapshot:
    """A ``bared`` Snapshot with all that was recorded of it: its own heavy line, and the lines of columns from the
    last whole one up to its own."""
    line = _heavy.decode(heavy)
    if snapshot.kvcache is not None:
        held = Columns()
        for changed in columns:
            held.apply(_columns.decode(changed).columns)
        snapshot = replace(snapshot, kvcache=replace(snapshot.kvcache, **held.values()))
    if snapshot.requests is not None:
        snapshot = replace(snapshot, requests=replace(snapshot.requests, items=line.rows))
    return _with_events(_with_work(snapshot, line), line)


def with_work(snapshot: Snapshot, heavy: bytes) -> Snapshot:
    """A Snapshot ``without_work`` with the work that its heavy line tells."""
    return _with_work(snapshot, _heavy.decode(heavy))


def with_events(snapshot: Snapshot, heavy: bytes) -> Snapshot:
    """A Snapshot ``without_events`` with the events that its heavy line tells."""
    return _with_events(snapshot, _heavy.decode(heavy))


def _with_work(snapshot: Snapshot, line: _Heavy) -> Snapshot:
    if snapshot.steps is None or not line.work:
        return snapshot
    items = tuple(
        replace(step, work=entry.work, work_lost=entry.lost)
        for step, entry in zip(snapshot.steps.items, line.work, strict=True)
    )
    return replace(snapshot, steps=replace(snapshot.steps, items=items))


def _with_events(snapshot: Snapshot, line: _Heavy) -> Snapshot:
    events = snapshot.events
    if events is None or not line.happened:
        return snapshot
    dropped = events.dropped - len(line.happened)
    return replace(snapshot, events=replace(events, items=line.happened, dropped=dropped))


# what is left out of the past ---------------------------------------------------------------------------------


def bared(snapshot: Snapshot) -> Snapshot:
    """The Snapshot without all that is heavy."""
    kvcache, requests = snapshot.kvcache, snapshot.requests
    if kvcache is not None:
        kvcache = replace(kvcache, **_NO_COLUMNS)
    if requests is not None:
        requests = replace(requests, items=())
    return without_events(without_work(replace(snapshot, kvcache=kvcache, requests=requests)))


def without_work(snapshot: Snapshot) -> Snapshot:
    """Steps that ran something say ``work_lost``."""
    if snapshot.steps is None or not any(step.work for step in snapshot.steps.items):
        return snapshot
    items = tuple(_idle(step) for step in snapshot.steps.items)
    return replace(snapshot, steps=replace(snapshot.steps, items=items))


def without_events(snapshot: Snapshot) -> Snapshot:
    """The events left out count as dropped."""
    events = snapshot.events
    if events is None or not events.items:
        return snapshot
    return replace(snapshot, events=replace(events, items=(), dropped=events.dropped + len(events.items)))


def work_count(snapshot: Snapshot) -> int:
    """Scheduled requests in all steps of the Snapshot."""
    return 0 if snapshot.steps is None else sum(len(step.work) for step in snapshot.steps.items)


def event_count(snapshot: Snapshot) -> int:
    return 0 if snapshot.events is None else len(snapshot.events.items)


def _idle(step: Step) -> Step:
    return replace(step, work=(), work_lost=True) if step.work else step
