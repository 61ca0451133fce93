"""From the records of a box's rings to the sections ``steps`` and ``events``: pure."""

from inferdbg.blackbox.reader import EventRecord, EventsRead, StepRecord, StepsRead
from inferdbg.engine import hooks
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.events import Event, Events
from inferdbg.facts.sections.steps import DECODE, NO_SHARES, PREFILL, Shares, Step, Steps

_WORK_KINDS = bytes([hooks.WorkKind.PREFILL, hooks.WorkKind.DECODE])
_TO_OURS = bytes.maketrans(_WORK_KINDS, bytes([PREFILL, DECODE]))
_EVENT_KINDS: dict[int, str] = {
    hooks.EventKind.REJECTED: "rejected",
    hooks.EventKind.SCHEDULED: "scheduled",
    hooks.EventKind.FIRST_TOKEN: "first token",
    hooks.EventKind.PREEMPTED: "preempted",
    hooks.EventKind.EVICTED: "evicted",
    hooks.EventKind.COPIED: "copied on write",
    hooks.EventKind.FINISHED: "finished",
    hooks.EventKind.ABORTED: "aborted",
    hooks.EventKind.FAILED: "failed",
    hooks.EventKind.FAULT: "fault",
    hooks.EventKind.LOGGED: "logged",
}
_COUNTS_TOKENS = frozenset[int](
    {hooks.EventKind.SCHEDULED, hooks.EventKind.PREEMPTED, hooks.EventKind.FINISHED, hooks.EventKind.ABORTED}
)
_COPIED = int(hooks.EventKind.COPIED)


def steps(read: StepsRead, origin: Origin) -> Steps:
    return Steps(
        origin=origin,
        items=tuple(map(_step, read.finished)),
        dropped=read.dropped,
        running=_step(read.running) if read.running is not None else None,
    )


def _step(record: StepRecord) -> Step:
    (
        _, step, start, schedule, prepare, forward, sample, commit, idle, budget, prefill, decode, running, waiting,
        scheduled, _, _,
    ) = record.fields  # fmt: skip
    shares = _shares(record)
    return Step(
        step=step,
        start_ns=start,
        schedule_ns=schedule,
        prepare_ns=prepare,
        forward_ns=forward,
        sample_ns=sample,
        commit_ns=commit,
        idle_ns=idle,
        budget=budget,
        prefill_tokens=prefill,
        decode_tokens=decode,
        running=running,
        waiting=waiting,
        shares=shares,
        work_lost=len(shares) != scheduled,
    )


def _shares(record: StepRecord) -> Shares:
    """None of them when one is of a kind that no engine writes."""
    if record.work is None:
        return NO_SHARES
    numbers, kinds, tokens, contexts = record.work
    return Shares(numbers, kinds.translate(_TO_OURS), tokens, contexts) if not kinds.strip(_WORK_KINDS) else NO_SHARES


def events(read: EventsRead, origin: Origin) -> Events:
    return Events(origin=origin, items=tuple(map(_event, read.events)), dropped=read.dropped)


def _event(record: EventRecord) -> Event:
    kind = record.kind
    copied = kind == _COPIED  # then ``other`` is the block copied from
    return Event(
        record.sequence,
        record.mono_ns,
        record.step,
        _EVENT_KINDS.get(kind) or f"kind {kind}",
        record.request or None,
        None if copied else record.other or None,
        record.block if record.block >= 0 else None,
        record.tokens if kind in _COUNTS_TOKENS else None,
        f"from block {record.other}" if copied else record.text,
    )
