"""One look: the moment that was meant, twice where once does not tell, and never an empty screen."""

import time
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from inferdbg.cli.looking import (
    LONGER_LOOK_S,
    as_object,
    as_text,
    has_answered,
    look,
    moment_of,
    on_screen,
    refuse_blindness,
)
from inferdbg.cli.output import standard
from inferdbg.config import Moment
from inferdbg.errors import Exit, InferdbgError
from inferdbg.facts.provenance import Origin, ProbeReport
from inferdbg.facts.sections.gpus import Gpus
from inferdbg.facts.sections.steps import Steps
from inferdbg.facts.snapshot import Snapshot, Target
from inferdbg.facts.window import Window
from tests.support.snapshots import busy

SECOND = 1_000_000_000
_BUSY = busy(blocks=2048, requests=4, waiting=0, snapshots=12, steps_per_snapshot=32)


class Given:
    """A Source of Snapshots that are there already; a live one shows one more of them at each look."""

    def __init__(self, snapshots: Sequence[Snapshot], *, live: bool = False) -> None:
        self.live = live
        self.title = "given"
        self.problem: InferdbgError | None = None
        self.looks = 0
        self._snapshots = snapshots

    def advance(self) -> bool:
        self.looks += 1
        return True

    def span(self) -> tuple[int, int]:
        seen = self._seen()
        return seen[0].mono_ns, seen[-1].mono_ns

    def window(self, at_ns: int | None = None) -> Window:
        return Window([s for s in self._seen() if at_ns is None or s.mono_ns <= at_ns] or self._seen()[:1])

    def close(self) -> None: ...

    def _seen(self) -> Sequence[Snapshot]:
        return self._snapshots[: self.looks] if self.live else self._snapshots


def stuck(snapshot: Snapshot) -> Snapshot:
    pulse = replace(snapshot.pulse, phase_since_ns=snapshot.mono_ns - 3 * SECOND)
    return replace(snapshot, pulse=pulse)


def no_pause(_: float) -> None: ...


def test_a_healthy_engine_is_looked_at_once() -> None:
    source = Given(_BUSY, live=True)
    window, findings = look(source, rates=False, pause=no_pause)
    assert (source.looks, window.now, findings) == (1, _BUSY[0], [])


def test_a_text_takes_two_looks_for_its_rates() -> None:
    source = Given(_BUSY, live=True)
    window, _ = look(source, rates=True, pause=no_pause)
    assert source.looks == 2
    assert window.rate(lambda s: s.scheduler.generated_tokens_total if s.scheduler else None)


def test_a_step_that_looks_stuck_is_looked_at_again() -> None:
    first = stuck(_BUSY[-1])
    still = replace(first, mono_ns=first.mono_ns + SECOND // 4)
    source = Given([first, still], live=True)
    _, findings = look(source, rates=False, pause=no_pause)
    assert (source.looks, findings[0].cause, findings[0].confidence) == (2, "kernel_wedged", "likely")


def test_a_long_step_that_moves_is_cleared_by_the_second_look() -> None:
    first = stuck(_BUSY[-1])
    pulse = replace(first.pulse, kernels_launched=900, kernels_completed=899)
    moved = replace(first, mono_ns=first.mono_ns + SECOND // 4, pulse=pulse)
    _, findings = look(Given([first, moved], live=True), rates=False, pause=no_pause)
    assert findings == []


def test_a_first_step_whose_layers_take_long_is_given_a_longer_look() -> None:
    fresh = replace(stuck(_BUSY[-1]), steps=Steps(Origin("engine box", 0)))
    still = replace(fresh, mono_ns=fresh.mono_ns + SECOND // 2)
    moved = replace(still, mono_ns=still.mono_ns + SECOND, pulse=replace(fresh.pulse, layer=3))
    for rates, snapshots in ((True, [fresh, still, moved]), (False, [fresh, moved])):
        pauses: list[float] = []
        _, findings = look(Given(snapshots, live=True), rates=rates, pause=pauses.append)
        assert (pauses[-1], findings) == (LONGER_LOOK_S, [])


def test_what_is_not_live_is_looked_at_once_however_it_looks() -> None:
    source = Given([stuck(_BUSY[-1])])
    _, findings = look(source, rates=True, pause=no_pause)
    assert (source.looks, findings[0].confidence) == (1, "possible")


def test_moments_are_counted_from_either_end() -> None:
    source = Given(_BUSY)
    first_ns, last_ns = source.span()
    assert moment_of(source, None) is None
    assert moment_of(source, Moment.parse("+2s")) == first_ns + 2 * SECOND
    assert moment_of(source, Moment.parse("-500ms")) == last_ns - SECOND // 2


def test_a_time_of_day_means_what_the_screen_shows_for_it() -> None:
    source = Given(_BUSY)
    wanted = _BUSY[6]
    shown = time.strftime("%H:%M:%S", time.localtime(wanted.wall_ns / 1e9))
    at_ns = moment_of(source, Moment.parse(shown))
    assert at_ns is not None
    assert 0 <= wanted.mono_ns - at_ns < SECOND


@pytest.mark.parametrize("typed", ["+1h", "-1h", "03:00"])
def test_a_moment_outside_is_refused_with_what_there_is(typed: str) -> None:
    first = time.localtime(_BUSY[0].wall_ns / 1e9)
    if typed == "03:00" and first.tm_hour == 3:
        typed = "05:00"
    with pytest.raises(InferdbgError, match="that moment is not in given") as caught:
        moment_of(Given(_BUSY), Moment.parse(typed))
    assert caught.value.code == Exit.USAGE
    assert caught.value.hint.startswith("it goes from ")


def test_nothing_seen_is_an_error_that_says_why() -> None:
    report = ProbeReport("engine box", "failed", message="it was cut short", hint="look elsewhere")
    gpus = Gpus(Origin("nvml", 3))  # of the machine, not of the server
    blind = Snapshot(1, 2, 3, Target("process", "pid 58"), gpus=gpus, probes=(report,))
    with pytest.raises(InferdbgError, match="nothing of pid 58 can be read: it was cut short") as caught:
        refuse_blindness(Window([blind]))
    assert caught.value.hint == "look elsewhere"


def test_a_server_that_is_asked_every_two_seconds_is_looked_at_until_it_was_asked_twice() -> None:
    fresh = busy(snapshots=1)[0]
    assert fresh.scheduler is not None
    reported = Origin("reported", fresh.mono_ns, "reported")
    first = replace(fresh, scheduler=replace(fresh.scheduler, origin=reported))
    carried = [replace(first, seq=2 + n, mono_ns=first.mono_ns + n * SECOND // 2) for n in range(3)]
    again = replace(reported, mono_ns=first.mono_ns + 2 * SECOND)
    asked = replace(first, mono_ns=again.mono_ns, scheduler=replace(fresh.scheduler, origin=again))
    pauses: list[float] = []
    window, _ = look(Given([first, *carried, asked], live=True), rates=True, pause=pauses.append)
    assert window.now is asked
    assert len(pauses) == 4


def test_a_step_that_only_we_have_timed_is_looked_at_until_it_moves_or_is_called_stuck() -> None:
    """Of a foreign engine's memory one look tells in which phase it is, not since when."""
    fresh = busy(snapshots=1)[0]
    assert fresh.pulse is not None
    pulse = replace(
        fresh.pulse, phase="forward", phase_since_ns=fresh.mono_ns, layer=None, kernel=None, kernels_launched=None,
        kernels_completed=None,
    )  # fmt: skip
    first = replace(fresh, pulse=pulse, steps=None, requests=None, kvcache=None, kernels=None)
    looks = [replace(first, seq=1 + n, mono_ns=first.mono_ns + n * SECOND) for n in range(9)]
    moved = replace(looks[1], pulse=replace(pulse, step=pulse.step + 3))
    pauses: list[float] = []
    _, findings = look(Given([first, moved], live=True), rates=False, pause=pauses.append)
    assert (len(pauses), [finding for finding in findings if finding.severity == "stuck"]) == (1, [])
    pauses.clear()
    _, findings = look(Given(looks, live=True), rates=False, pause=pauses.append)
    assert "step_stalled" in [finding.cause for finding in findings]
    assert 3 <= len(pauses) <= 5


def test_a_recording_that_was_lost_ends_the_screen_with_an_error_of_the_dead_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("inferdbg.tui.app.run", lambda *args: False)
    source = Given(_BUSY)
    source.problem = InferdbgError("not recorded any more: no space")
    with pytest.raises(InferdbgError, match="no space"):
        on_screen(source, SECOND, recorded=True)
    assert not on_screen(source, SECOND)


def test_one_look_waits_for_first_answers() -> None:
    snapshot = busy(snapshots=1)[0]
    coming = ProbeReport("memory", "stale", ("requests",), message="its first answer is on the way")
    assert not has_answered(Window([replace(snapshot, probes=(*snapshot.probes, coming))]))
    assert has_answered(Window([replace(snapshot, probes=(replace(coming, answered_ns=1),))]))
    assert has_answered(Window([replace(snapshot, probes=(replace(coming, status="failed"),))]))


def test_what_somebody_only_said_to_be_there_was_not_checked(capsys: pytest.CaptureFixture[str]) -> None:
    """A URL that answers nothing: exit code 4, and not 0."""
    snapshot = busy(snapshots=1)[0]
    mute = ProbeReport("reported", "not answering", ("scheduler",), message="GET /metrics: no answer within 1.5 s")
    blind = Snapshot(1, snapshot.wall_ns, snapshot.mono_ns, snapshot.target, server=snapshot.server, probes=(mute,))
    blind = replace(blind, gpus=Gpus(Origin("nvml", snapshot.mono_ns)))
    out = standard(colour=False)
    assert as_text(out, Given([blind])) == Exit.NOTHING_CHECKED
    assert as_object(out, Given([blind]), blocks=False) == Exit.NOTHING_CHECKED
    assert "UNSEEN" in capsys.readouterr().out
    assert as_object(out, Given([snapshot]), blocks=False) in (Exit.FINE, Exit.FINDINGS)
