"""Windows for tests of rules: a calm engine, and the same one with something changed."""

from msgspec.structs import replace

from inferdbg.diagnosis.diagnose import diagnose
from inferdbg.diagnosis.finding import Finding
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.events import Event, Events
from inferdbg.facts.sections.steps import Step, Steps
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import Window
from tests.support.snapshots import SECOND, busy

MS = 1_000_000
_CALM = busy(blocks=2048, requests=4, waiting=0, snapshots=12, steps_per_snapshot=16)


def calm() -> list[Snapshot]:
    """Half a second a Snapshot, room for everybody, nobody waits for long."""
    return list(_CALM)


def later(snapshot: Snapshot, by_ns: int) -> Snapshot:
    """The same engine, looked at later, when it had done nothing more."""
    return replace(
        snapshot,
        seq=snapshot.seq + 1,
        mono_ns=snapshot.mono_ns + by_ns,
        wall_ns=snapshot.wall_ns + by_ns,
        steps=Steps(Origin("engine box", snapshot.mono_ns + by_ns)),
        events=Events(Origin("engine box", snapshot.mono_ns + by_ns)),
    )


def with_section(snapshot: Snapshot, section: str, **changed: object) -> Snapshot:
    return replace(snapshot, **{section: replace(getattr(snapshot, section), **changed)})


def with_events(snapshot: Snapshot, *events: tuple[int, str, str]) -> Snapshot:
    """``events``: ns before the Snapshot, kind, text."""
    items = tuple(
        Event(9000 + index, snapshot.mono_ns - ago, 311, kind, request=7, tokens=100, text=words)
        for index, (ago, kind, words) in enumerate(events)
    )
    return with_section(snapshot, "events", items=items)


def steps_before(
    snapshot: Snapshot, *, count: int, total_ms: int, prefill: int = 0, sample_ms: int = 0, every: int = 1
) -> tuple[Step, ...]:
    """``count`` steps that end at the Snapshot, oldest first, four decodes in each, a prefill in every ``every``-th."""
    lone_ms = total_ms if not prefill else 20
    steps = []
    for index in range(count):
        filled = prefill if prefill and index % every == 0 else 0
        step_ns = (total_ms if filled or not prefill else lone_ms) * MS
        steps.append(
            Step(
                step=index + 1,
                start_ns=snapshot.mono_ns - (count - index) * 100 * MS,
                schedule_ns=MS // 10,
                prepare_ns=MS // 10,
                forward_ns=step_ns - sample_ms * MS,
                sample_ns=sample_ms * MS,
                commit_ns=MS // 10,
                idle_ns=0,
                budget=512,
                prefill_tokens=filled,
                decode_tokens=4,
                running=4,
                waiting=0,
            )
        )
    return tuple(steps)


def causes(snapshots: list[Snapshot]) -> list[str]:
    return [finding.cause for finding in diagnose(Window(snapshots))]


def only(snapshots: list[Snapshot], cause: str) -> Finding:
    """The finding of that cause; fails with what was found instead."""
    found = diagnose(Window(snapshots))
    assert cause in [finding.cause for finding in found], found
    return next(finding for finding in found if finding.cause == cause)


__all__ = ["MS", "SECOND", "calm", "causes", "later", "only", "steps_before", "with_events", "with_section"]
