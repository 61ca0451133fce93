"""The rule for requests that wait long while the engine works."""

from collections.abc import Sequence

from msgspec.structs import replace

from inferdbg.diagnosis.diagnose import diagnose
from inferdbg.facts.histogram import Histogram
from inferdbg.facts.sections.requests import Wait
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import Window
from tests.support.snapshots import busy

from .moments import SECOND, calm, causes, only, with_section

CALM = calm()


def with_waiting(look: Snapshot, *ages_s: float, reason: str = "max running") -> Snapshot:
    """Further requests that came so many seconds ago and have not begun."""
    assert look.requests is not None
    one = look.requests.items[0]
    waiting = tuple(
        replace(
            one,
            number=one.number + 100 + index,
            stage="waiting",
            blocks=b"",
            arrived_ns=look.mono_ns - round(age * SECOND),
            scheduled_ns=None,
            first_token_ns=None,
            wait=Wait(reason, 4, 4),  # type: ignore[arg-type]
        )
        for index, age in enumerate(ages_s)
    )
    running = tuple(request for request in look.requests.items if request.stage != "waiting")
    look = with_section(look, "scheduler", waiting=len(waiting))
    return with_section(look, "requests", items=(*running, *waiting))


def limited(looks: Sequence[Snapshot], limit: int) -> list[Snapshot]:
    found = []
    for look in looks:
        assert look.server is not None
        assert look.server.config is not None
        config = replace(look.server.config, max_running=limit)
        found.append(with_section(with_section(look, "server", config=config), "scheduler", running=limit))
    return found


def test_requests_that_wait_long_for_a_free_place_are_told_with_the_limit() -> None:
    looks = limited(CALM, 8)
    found = only([*looks[:-1], with_waiting(looks[-1], 72, 30, 4)], "long_queue")
    assert found.severity == "slow"
    assert found.summary == ("3 requests wait for a turn, the longest for 72 s: 8 run already, as many as may")
    assert found.next_step.startswith("raise --max-running: the KV cache has room")


def test_where_the_cache_is_full_or_no_limit_is_reached_a_higher_one_is_not_advised() -> None:
    full = limited(busy(blocks=300, requests=8, waiting=0, snapshots=12, steps_per_snapshot=16), 8)
    held = with_section(full[-1], "kvcache", used_blocks=290)
    found = only([*full[:-1], with_waiting(held, 60)], "long_queue")
    assert found.next_step == "send less at a time, or add a replica"
    free = with_section(CALM[-1], "scheduler", running=3)
    found = only([*CALM[:-1], with_waiting(free, 61, reason="token budget")], "long_queue")
    assert found.summary == "1 request waits for a turn, the longest for 61 s"
    assert found.next_step == "send less at a time, or add a replica"


def test_a_short_wait_and_an_engine_that_does_nothing_are_not_meant() -> None:
    assert "long_queue" not in causes([*CALM[:-1], with_waiting(CALM[-1], 4.5)])
    still = with_waiting(with_section(CALM[-1], "steps", items=()), 60)
    assert "long_queue" not in causes([still])


def test_the_verdict_stays_slow_when_the_first_in_line_waits_for_something_else() -> None:
    looks = busy(blocks=300, requests=16, snapshots=60)
    for reason in ("blocks", "token budget", "behind"):
        found = diagnose(Window([*looks[:-1], with_waiting(looks[-1], 39, reason=reason)]))
        assert found[0].severity == "slow"


def test_without_requests_the_times_in_the_queue_tell() -> None:
    looks = [replace(look, requests=None) for look in CALM]
    assert causes(looks) == []
    slow = Histogram((SECOND, 5 * SECOND, 20 * SECOND), (0, 0, 40, 0), 600 * SECOND)
    now = with_section(looks[-1], "scheduler", waiting=12, queue_time=slow)
    assert "12 requests wait for a turn, p95 " in only([*looks[:-1], now], "long_queue").summary
    assert "long_queue" not in causes([*looks[:-1], with_section(now, "scheduler", waiting=0)])
