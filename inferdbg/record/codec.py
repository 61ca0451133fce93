"""A Snapshot as three lines of JSON, and back.

    light     {"light": 7, "wall_ns": …, "mono_ns": …, "scheduler": {…}, …}   what a Window keeps of the past
    heavy     {"heavy": 7, "rows": {…}, "ran": […]}                           read for the moment that is looked at
    columns   {"columns": 7, "after": 6, "changed": {…}, "tables": {…}}       what changed in block columns and tables

Light sections that are as in the line before are left out, one that is no longer known is null. The rows of
``requests`` (a list a field) and the work of ``steps`` are heavy and readable without the lines before, but rows that
are carried from an earlier look are those of the line ``rows_back`` lines before. Compression does the rest: lines
resemble each other.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import NODEFAULT, UNSET, Raw, Struct, UnsetType, defstruct
from msgspec.structs import astuple, fields, replace

from inferdbg.facts.sections.events import Event
from inferdbg.facts.sections.kvcache import COLUMN_TYPES
from inferdbg.facts.sections.requests import Request, Requests
from inferdbg.facts.sections.steps import NO_SHARES, Step, Steps
from inferdbg.facts.snapshot import Snapshot

from .block_tables import TableChanges, Tables, table_changes, tables_of
from .block_tables import apply as put
from .columns import ColumnChange, Columns, column_changes, columns_of
from .tables import rows_of, table_of, table_type
from .work import Ran, shares_of, told

_FIELDS = fields(Snapshot)
_TIMES = ("seq", "wall_ns", "mono_ns")
_CARRIED = tuple(field.name for field in _FIELDS if field.name not in _TIMES)
_TARGET = [field.name for field in _FIELDS].index("target")
_BEFORE_THE_FIRST = [UNSET if field.default is NODEFAULT else field.default for field in _FIELDS]
_Light = defstruct(
    "Light",
    [  # the fields of Snapshot, in their order, then what only the line has
        ("light", int),
        ("wall_ns", int),
        ("mono_ns", int),
        *((field.name, field.type | UnsetType, UNSET) for field in _FIELDS if field.name in _CARRIED),
        ("work_count", int, 0),
        ("event_count", int, 0),
        ("happened", Raw, Raw(b"")),
    ],
    gc=False,
)
_Heavy = defstruct(
    "Heavy",
    [
        ("heavy", int),
        ("rows", table_type(Request) | None, None),
        ("rows_back", int, 0),
        ("ran", list[Ran | None], []),
    ],
)


class _Work(Struct):
    """A heavy line of which only the work is wanted."""

    ran: list[Ran | None] = []


class _Columns(Struct, omit_defaults=True):
    """``after``: the line that these changes are against (None: all is here)."""

    columns: int
    changed: dict[str, ColumnChange | None]
    after: int | None = None
    tables: TableChanges | None = None


_encode = msgspec.json.Encoder().encode
_light: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Light)
_heavy: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Heavy)
_work = msgspec.json.Decoder(_Work)
_columns = msgspec.json.Decoder(_Columns)
_happened = msgspec.json.Decoder(tuple[Event, ...])
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
        self._after: int | None = None  # the last line of columns
        self._columns = _NO_COLUMNS
        self._requests: Requests | None = None
        self._tables: Tables = {}
        self._requests_tables: Tables | None = None
        self._rows_back = 0  # lines since the last that told the rows

    def encode(self, snapshot: Snapshot, *, whole_light: bool = False, whole_columns: bool = False) -> Lines:
        """Against the Snapshot before, or ``whole``: readable without it. With ``whole_light`` rows are told anew."""
        light, before = bared(snapshot), None if whole_light else self._light
        line: dict[str, Any] = {"light": light.seq, "wall_ns": light.wall_ns, "mono_ns": light.mono_ns}
        for name in _CARRIED:
            new, old = getattr(light, name), None if before is None else getattr(before, name)
            if new is not old and new != old:
                line[name] = new
        self._light = light
        heavy: dict[str, Any] = {"heavy": snapshot.seq}
        carried = snapshot.requests is not None and snapshot.requests is self._requests
        tables = self._requests_tables if carried else tables_of(snapshot.requests)
        self._requests, self._requests_tables = snapshot.requests, tables
        if carried and not whole_light:
            self._rows_back += 1
            heavy["rows_back"] = self._rows_back
        else:
            self._rows_back = 0
            if snapshot.requests is not None and snapshot.requests.items:
                heavy["rows"] = table_of(Request, snapshot.requests.items)
                if tables is not None:
                    heavy["rows"].pop("blocks", None)
        if snapshot.steps is not None and (count := work_count(snapshot)):
            line["work_count"] = count
            heavy["ran"] = told((step.shares, step.work_lost) for step in _all_steps(snapshot.steps))
        if snapshot.events is not None and snapshot.events.items:
            line["event_count"] = len(snapshot.events.items)
            line["happened"] = snapshot.events.items
        return Lines(
            _encode(line) + b"\n",
            _encode(heavy) + b"\n",
            _encode(self._changes(snapshot, {} if tables is None else tables, whole=whole_columns)) + b"\n",
        )

    def _changes(self, snapshot: Snapshot, tables: Tables, *, whole: bool) -> _Columns:
        after = None if whole else self._after
        columns = columns_of(snapshot.kvcache)
        changed = column_changes(_NO_COLUMNS if after is None else self._columns, columns)
        moved = table_changes({} if after is None else self._tables, tables)
        self._after, self._columns, self._tables = snapshot.seq, columns, tables
        return _Columns(snapshot.seq, changed, after, moved)


class Moment(NamedTuple):
    """A Snapshot as ``bared`` leaves it, how much work was left out, and its events (None: too many to keep)."""

    snapshot: Snapshot
    work_count: int
    event_count: int
    events: tuple[Event, ...] | None


def decode_light(lines: bytes, most_events: int | None = None) -> list[Moment]:
    """The light lines of successive Snapshots, the first whole; msgspec.DecodeError when they are not that.

    ``most_events``: what happened in a Snapshot with more events than that is passed over.
    """
    found: list[Moment] = []
    make: Callable[..., Snapshot] = Snapshot
    values: list[Any] = _BEFORE_THE_FIRST
    for line in _light.decode_lines(lines):
        values = [old if new is UNSET else new for new, old in zip(astuple(line), values, strict=False)]
        if values[_TARGET] is UNSET:
            raise msgspec.DecodeError("the first line is not a whole Snapshot")
        events: tuple[Event, ...] | None = ()
        if line.event_count:
            wanted = most_events is None or line.event_count <= most_events
            events = _happened.decode(line.happened) if wanted else None
        found.append(Moment(make(*values), line.work_count, line.event_count, events))
    return found


def decode_whole(moment: Moment, heavy: Sequence[bytes], columns: Iterable[bytes]) -> Snapshot:
    """All that was recorded of a moment: the heavy lines of its page up to its own, and the lines of columns from the
    last whole one up to its own. msgspec.DecodeError when these do not follow each other."""
    snapshot, line = with_events(moment), _heavy.decode(heavy[-1])
    if not 0 <= line.rows_back < len(heavy):
        raise msgspec.DecodeError("the line with the requests is missing")
    rows = _heavy.decode(heavy[-1 - line.rows_back]).rows if line.rows_back else line.rows
    if snapshot.kvcache is None and snapshot.requests is None:
        return _with_work(snapshot, line.ran)
    held, tables, before = Columns(), dict[int, bytes](), None
    for encoded in columns:
        changes = _columns.decode(encoded)
        if changes.after != before:
            raise msgspec.DecodeError("a line of block columns is missing")
        before = changes.columns
        held.apply(changes.changed)
        if changes.tables is not None:
            put(tables, changes.tables)
    if snapshot.kvcache is not None:
        snapshot = replace(snapshot, kvcache=replace(snapshot.kvcache, **held.values()))
    if snapshot.requests is not None:
        if rows is not None and rows.blocks is UNSET:
            rows.blocks = [tables.get(number, b"") for number in rows.number]
        items = () if rows is None else rows_of(Request, rows)
        snapshot = replace(snapshot, requests=replace(snapshot.requests, items=items))
    return _with_work(snapshot, line.ran)


def begins_group(columns: bytes) -> bool:
    """Whether a columns line needs none before it."""
    return _columns.decode(columns).after is None


def with_work(snapshot: Snapshot, heavy: bytes) -> Snapshot:
    """A Snapshot ``without_work`` with the work that its heavy line tells."""
    return _with_work(snapshot, _work.decode(heavy).ran)


def with_events(moment: Moment) -> Snapshot:
    """The Snapshot with its events, which must have been kept."""
    snapshot, events = moment.snapshot, moment.snapshot.events
    if events is None or not moment.events:
        return snapshot
    dropped = events.dropped - moment.event_count
    return replace(snapshot, events=replace(events, items=moment.events, dropped=dropped))


def _with_work(snapshot: Snapshot, ran: list[Ran | None]) -> Snapshot:
    if snapshot.steps is None or not ran:
        return snapshot
    steps = [
        step if one is None else replace(step, shares=shares, work_lost=one.lost)
        for step, one, shares in zip(_all_steps(snapshot.steps), ran, shares_of(ran), strict=True)
    ]
    return replace(snapshot, steps=_with_steps(snapshot.steps, steps))


def _all_steps(steps: Steps) -> list[Step]:
    return [*steps.items] if steps.running is None else [*steps.items, steps.running]


def _with_steps(steps: Steps, others: list[Step]) -> Steps:
    """The section with other steps in the places of its own."""
    if steps.running is None:
        return replace(steps, items=tuple(others))
    return replace(steps, items=tuple(others[:-1]), running=others[-1])


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
    if snapshot.steps is None or not any(step.shares for step in _all_steps(snapshot.steps)):
        return snapshot
    steps = [
        replace(step, shares=NO_SHARES, work_lost=True) if step.shares else step for step in _all_steps(snapshot.steps)
    ]
    return replace(snapshot, steps=_with_steps(snapshot.steps, steps))


def without_events(snapshot: Snapshot) -> Snapshot:
    """The events left out count as dropped."""
    events = snapshot.events
    if events is None or not events.items:
        return snapshot
    return replace(snapshot, events=replace(events, items=(), dropped=events.dropped + len(events.items)))


def work_count(snapshot: Snapshot) -> int:
    """Scheduled requests in all steps of the Snapshot."""
    return 0 if snapshot.steps is None else sum(len(step.shares) for step in _all_steps(snapshot.steps))


def event_count(snapshot: Snapshot) -> int:
    return 0 if snapshot.events is None else len(snapshot.events.items)
