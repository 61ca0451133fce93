"""The live memory of the past stays within its bytes and gives back what it took."""

from inferdbg.record.history import History
from inferdbg.record.past import Past
from tests.support.snapshots import busy

SNAPSHOTS = busy(blocks=512, requests=8, snapshots=120)


def test_every_moment_comes_back_equal_also_the_newest() -> None:
    history = History()
    past = Past(history)
    for snapshot in SNAPSHOTS[:30]:
        history.append(snapshot)
        assert past.snapshot(snapshot.mono_ns) == snapshot
    assert [past.snapshot(snapshot.mono_ns) for snapshot in SNAPSHOTS[:30]] == SNAPSHOTS[:30]
    assert past.span() == (SNAPSHOTS[0].mono_ns, SNAPSHOTS[29].mono_ns)


def test_the_oldest_is_forgotten_when_it_has_too_many_bytes() -> None:
    history = History(max_bytes=60_000)
    for snapshot in SNAPSHOTS:
        history.append(snapshot)
        assert history.bytes_held <= 60_000 * 1.25  # a group is a quarter
    past = Past(history)
    first, last = past.span()
    assert SNAPSHOTS[0].mono_ns < first < last == SNAPSHOTS[-1].mono_ns
    kept = [snapshot for snapshot in SNAPSHOTS if snapshot.mono_ns >= first]
    assert [past.snapshot(snapshot.mono_ns) for snapshot in kept] == kept


def test_the_oldest_is_forgotten_when_it_is_too_old() -> None:
    history = History(max_bytes=100_000, keep_ns=5_000_000_000)
    for snapshot in SNAPSHOTS:
        history.append(snapshot)
    first, last = Past(history).span()
    assert 5_000_000_000 <= last - first <= 15_000_000_000


def test_a_moment_before_the_first_shows_the_first() -> None:
    history = History()
    for snapshot in SNAPSHOTS[:5]:
        history.append(snapshot)
    assert Past(history).window(0).now == SNAPSHOTS[0]
