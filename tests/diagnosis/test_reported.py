"""Rules for a server of which only its own reports are seen."""

from msgspec.structs import replace

from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.server import Health
from inferdbg.facts.snapshot import Snapshot

from .moments import SECOND, calm, causes, only


def reported(seconds: float, *, tokens: int = 700, running: int = 2) -> Snapshot:
    """A server as its metrics tell of it, so long after the first look."""
    first = calm()[0]
    at_ns = first.mono_ns + round(seconds * SECOND)
    origin = Origin("reported", at_ns, "reported")
    assert first.scheduler is not None
    assert first.server is not None
    return Snapshot(
        1 + round(4 * seconds),
        first.wall_ns + at_ns - first.mono_ns,
        at_ns,
        first.target,
        server=replace(first.server, engine="vllm", pid=58, health=Health("200", 3_000_000, at_ns)),
        scheduler=replace(first.scheduler, origin=origin, running=running, waiting=0, generated_tokens_total=tokens),
    )


def test_totals_that_stand_while_requests_run_are_an_engine_that_stands() -> None:
    found = only([reported(second) for second in range(0, 13, 2)], "no_progress")
    assert found.confidence == "likely"
    assert found.summary == (
        "2 requests run, and no token was computed for 12 s by the server's own counts: "
        "the engine behind the front end stands"
    )
    assert "/health answers 200" in [evidence.text for evidence in found.evidence]
    assert found.since_ns == reported(0).mono_ns
    assert only([reported(second) for second in range(0, 33, 2)], "no_progress").confidence == "sure"


def test_a_server_that_moves_idles_or_was_just_looked_at_stands_not() -> None:
    assert "no_progress" not in causes([reported(second, tokens=700 + second) for second in range(0, 13, 2)])
    assert "no_progress" not in causes([reported(second, running=0) for second in range(0, 13, 2)])
    assert "no_progress" not in causes([reported(second) for second in range(0, 7, 2)])
    moved_lately = [reported(second, tokens=700 + (second > 6)) for second in range(0, 13, 2)]
    assert "no_progress" not in causes(moved_lately)
