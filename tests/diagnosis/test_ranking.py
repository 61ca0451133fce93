"""The order of findings is causal."""

from inferdbg.diagnosis.diagnose import diagnose, ranked
from inferdbg.diagnosis.finding import Finding, Severity
from inferdbg.facts.snapshot import Snapshot, Target
from inferdbg.facts.window import Window

from .moments import calm


def finding(cause: str, severity: Severity, *, since_ns: int | None = None, explains: tuple[str, ...] = ()) -> Finding:
    return Finding(cause, severity, "sure", cause, since_ns=since_ns, explains=explains)


def order(*findings: Finding) -> list[str]:
    return [each.cause for each in ranked(list(findings))]


def test_the_worst_comes_first() -> None:
    assert order(
        finding("e", "note"), finding("d", "slow"), finding("c", "wrong"), finding("b", "stuck"), finding("a", "dead")
    ) == ["a", "b", "c", "d", "e"]


def test_among_equals_what_began_first_comes_first() -> None:
    assert order(
        finding("late", "slow", since_ns=9), finding("early", "slow", since_ns=3), finding("unknown", "slow")
    ) == ["early", "late", "unknown"]


def test_what_is_explained_stands_right_below_its_cause_however_bad_it_looks() -> None:
    root = finding("leak", "wrong", explains=("pressure",))
    assert order(
        finding("pressure", "stuck", explains=("queue",)), finding("other", "slow"), finding("queue", "slow"), root
    ) == [
        "leak",
        "pressure",
        "queue",
        "other",
    ]


def test_a_circle_of_explanations_loses_nothing() -> None:
    assert order(finding("a", "slow", explains=("b",)), finding("b", "slow", explains=("a",))) == ["a", "b"]


def test_nothing_is_said_of_a_calm_engine() -> None:
    for count in range(1, len(calm()) + 1):
        assert diagnose(Window(calm()[:count])) == []


def test_nothing_is_said_of_a_target_that_shows_nothing() -> None:
    assert diagnose(Window([Snapshot(1, 0, 0, Target("process", "pid 58"))])) == []
