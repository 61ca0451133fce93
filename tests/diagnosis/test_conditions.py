"""Conditions that a person writes, and when an incident begins."""

import pytest
from msgspec.structs import replace

from inferdbg.diagnosis.conditions import Incidents, parse
from inferdbg.diagnosis.diagnose import diagnose
from inferdbg.diagnosis.finding import Finding
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import SECOND, Window

from .moments import calm, later, with_section

STOPPED = Finding("process_stopped", "stuck", "sure", "engine core 62 is stopped", since_ns=0)


def holds(said: str, *snapshots: Snapshot, findings: tuple[Finding, ...] = ()) -> bool | None:
    (alternative,) = parse(said).alternatives
    return alternative.holds(Window(snapshots), findings)


def test_alternatives_stand_side_by_side_and_are_said_as_they_were_written() -> None:
    found = parse("stall>10s | itl.p95 > 200ms|kv>95% | preemptions>5/s | memory<1GiB | slow")
    assert [one.said for one in found.alternatives] == [
        "stall>10s", "itl.p95 > 200ms", "kv>95%", "preemptions>5/s", "memory<1GiB", "slow",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("", "is no condition"),
        ("stall>10s |", "'' is no condition"),
        ("stall>10", "is not a duration"),
        ("kv>95", "is no share"),
        ("kv=1", "is no condition"),
        ("tokens<fast", "is no number"),
        ("itl.p100>1s", "is no condition"),
        ("finding=rm -rf", "a cause is a word"),
        ("weather>3", "write stall, oldest, kv"),
    ],
)
def test_what_is_no_condition_is_refused_with_what_could_stand_there(said: str, why: str) -> None:
    with pytest.raises(ValueError, match=why.replace("(", r"\(")):
        parse(said)


def test_a_measure_is_compared_with_its_value() -> None:
    now = calm()[-1]
    assert now.kvcache is not None
    full = with_section(now, "kvcache", used_blocks=now.kvcache.num_blocks * 96 // 100)
    assert (holds("kv>0.95", now), holds("kv>95%", full), holds("kv<0.95", now)) == (False, True, True)
    assert holds("kv>0.95", replace(now, kvcache=None)) is None, "not known is neither"
    waiting = with_section(now, "scheduler", waiting=12)
    assert (holds("waiting>11", waiting), holds("waiting>12", waiting)) == (True, False)


def test_rates_and_percentiles_are_those_of_the_last_seconds() -> None:
    first, now = calm()[0], later(calm()[-1], 8 * SECOND)
    before = with_section(first, "scheduler", preempted_total=0, generated_tokens_total=0)
    after = with_section(now, "scheduler", preempted_total=100, generated_tokens_total=0)
    assert holds("preemptions>5/s", before, after)
    assert holds("tokens<1", before, after)
    assert holds("preemptions>5/s", after) is None, "one look tells no rate"
    assert holds("itl.p95>1ms", *calm())
    assert not holds("itl.p95>10s", *calm())


def test_how_long_it_has_stood_is_told_by_the_findings_that_say_so() -> None:
    now = calm()[-1]
    since = replace_since(STOPPED, now.mono_ns - 12 * SECOND)
    assert holds("stall>10s", now, findings=(since,))
    assert not holds("stall>15s", now, findings=(since,))
    assert not holds("stall>10s", now)
    (alternative,) = parse("stall>10s").alternatives
    assert alternative.now(Window([now]), (since,)) == "12 s"


def replace_since(finding: Finding, since_ns: int) -> Finding:
    return replace(finding, since_ns=since_ns)


def test_a_finding_at_least_so_bad_or_of_one_cause() -> None:
    now = calm()[-1]
    assert diagnose(Window([now])) == []
    assert (holds("dead", now, findings=(STOPPED,)), holds("wrong", now, findings=(STOPPED,))) == (False, True)
    assert holds("finding=process_stopped", now, findings=(STOPPED,))
    assert not holds("finding=kv_pressure", now, findings=(STOPPED,))
    (alternative,) = parse("stuck").alternatives
    assert alternative.now(Window([now]), (STOPPED,)) == "engine core 62 is stopped"


def test_an_incident_begins_once_and_again_after_a_calm() -> None:
    incidents = Incidents(hold_ns=2, calm_ns=10)
    seen = [incidents.begins(at, holds=holds) for at, holds in (
        (0, True), (1, False), (2, True), (3, True), (4, True), (5, True), (6, False), (7, True), (8, False),
        (17, False), (18, True), (20, True),
    )]  # fmt: skip
    assert [at for at, began in zip((0, 1, 2, 3, 4, 5, 6, 7, 8, 17, 18, 20), seen, strict=True) if began] == [4, 20]
