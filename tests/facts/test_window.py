"""Counters become rates here and nowhere else."""

from msgspec.structs import replace

from inferdbg.facts.histogram import Histogram
from inferdbg.facts.provenance import Origin
from inferdbg.facts.sections.scheduler import Scheduler
from inferdbg.facts.snapshot import Snapshot, Target
from inferdbg.facts.window import SECOND, Window

TARGET = Target(kind="process", name="pid 1")


def moment(second: float, generated: int | None, ttft: Histogram | None = None) -> Snapshot:
    now = int(second * SECOND)
    return Snapshot(
        seq=int(second * 10),
        wall_ns=now,
        mono_ns=now,
        target=TARGET,
        scheduler=Scheduler(origin=Origin("test", now), generated_tokens_total=generated, ttft=ttft),
    )


def generated(snapshot: Snapshot) -> int | None:
    return snapshot.scheduler and snapshot.scheduler.generated_tokens_total


def test_a_rate_is_rise_over_time_passed() -> None:
    window = Window([moment(0, 100), moment(1, 150), moment(2, 400)])
    assert window.rate(generated, over_ns=SECOND) == 250.0
    assert window.rate(generated, over_ns=60 * SECOND) == 150.0


def test_a_counter_that_was_read_once_has_no_rate_even_when_two_snapshots_carry_it() -> None:
    first = moment(0, 100)
    carried = replace(first, mono_ns=SECOND)  # the section's own time is still 0
    read_again = replace(moment(2, 300), mono_ns=4 * SECOND)
    assert Window([first, carried]).rate(generated, section="scheduler") is None
    assert Window([first, carried]).rate(generated) == 0.0
    assert Window([first, carried, read_again]).rate(generated, section="scheduler") == 100.0


def test_one_snapshot_has_no_rate() -> None:
    assert Window([moment(0, 100)]).rate(generated) is None


def test_unknown_stays_unknown() -> None:
    assert Window([moment(0, None), moment(1, 5)]).rate(generated) is None


def test_after_a_restart_the_whole_counter_is_the_rise() -> None:
    assert Window([moment(0, 1000), moment(1, 30)]).delta(generated) == 30


def test_a_counter_is_counted_from_where_it_was_first_known() -> None:
    late = Window([moment(0, None), moment(1, 5), moment(3, 25)])
    assert late.delta(generated) == 20
    assert late.rate(generated) == 10.0
    assert Window([moment(0, None), moment(1, 5)]).delta(generated) == 0
    assert Window([moment(0, 5), moment(1, None)]).delta(generated) is None


def test_a_sparkline_has_gaps_where_nothing_was_seen() -> None:
    window = Window([moment(0, 0), moment(1, 10), moment(2, 30)])
    assert window.rates(generated, points=4, over_ns=4 * SECOND) == [None, None, 10.0, 20.0]


def test_a_sparkline_of_what_is_read_seldom_has_the_rate_between_two_readings_in_every_part() -> None:
    """Read every 2 s, looked at every second: not 0, 20, 0, 20 a second but 10."""
    looks = [moment(second, 10 * (second - second % 2)) for second in range(7)]
    read = [replace(look, scheduler=looks[second - second % 2].scheduler) for second, look in enumerate(looks)]
    assert Window(read).rates(generated, 6, 6 * SECOND, "scheduler") == [10.0] * 6
    assert Window(read[:-1]).rates(generated, 5, 5 * SECOND, "scheduler") == [10.0] * 5


def test_percentiles_are_of_the_last_minute_only() -> None:
    slow = Histogram((10, 1000), (0, 100, 0), 50_000)
    then_fast = Histogram((10, 1000), (10, 100, 0), 50_050)
    window = Window([moment(0, 0, slow), moment(60, 1, then_fast)])
    ttft = window.percentile(lambda s: s.scheduler and s.scheduler.ttft, 0.95)
    assert ttft is not None
    assert ttft <= 10
