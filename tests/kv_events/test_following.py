"""Batches are applied in order and once, gaps are asked for, and what is missed is said."""

from collections.abc import Iterable

from inferdbg.facts.window import SECOND
from inferdbg.probes.kv_events.batches import Batch
from inferdbg.probes.kv_events.following import MOST_WAITING, PATIENCE_NS, QUIET_NS, Following


class Told:
    """What a Following told, with what it was fed."""

    def __init__(self, *, replays: bool) -> None:
        self.applied: list[int] = []
        self.gone: list[tuple[int, bool]] = []
        self.restarts = 0
        self.following = Following(self, replays=replays)

    def apply(self, batch: Batch, now_ns: int) -> None:
        self.applied.append(batch.wall_ns)

    def missed(self, count: int, *, at_start: bool) -> None:
        self.gone.append((count, at_start))

    def restarted(self) -> None:
        self.restarts += 1
        self.applied.append(-1)

    def live(self, *numbers: int, age: int = 0, now_ns: int = 0) -> None:
        for seq in numbers:
            self.following.live(seq, told(seq, age), now_ns)

    def asked(self, now_ns: int = 0) -> int | None:
        seq = self.following.wanted(now_ns)
        if seq is not None:
            self.following.asked(now_ns)
        return seq

    def answered(self, numbers: Iterable[int], now_ns: int = 0, *, ended: bool = True) -> None:
        for seq in numbers:
            self.following.replay(seq, told(seq), now_ns)
        if ended:
            self.following.replay_ended(now_ns)


def told(seq: int, age: int = 0) -> Batch:
    """The batch of that number: its time tells it apart. ``age``: which life of the server."""
    return Batch(1000 * (age + 1) + seq, 0, ())


def times(*numbers: int, age: int = 0) -> list[int]:
    return [told(seq, age).wall_ns for seq in numbers]


def test_in_order_is_applied_as_it_comes() -> None:
    one = Told(replays=False)
    one.live(0, 1, 2)
    assert one.applied == times(0, 1, 2)
    assert (one.following.missed, one.gone, one.following.caught_up) == (0, [], True)


def test_without_a_replay_socket_a_late_join_misses_what_came_before() -> None:
    one = Told(replays=False)
    one.live(7, 8)
    assert one.applied == []
    one.following.settle(0)
    assert one.applied == times(7, 8)
    assert (one.following.missed, one.gone) == (7, [(7, True)])
    assert one.following.wanted(100 * SECOND) is None


def test_out_of_order_is_put_in_order_while_all_is_taken_at_once() -> None:
    one = Told(replays=False)
    one.live(0, 3, 2, 1, 4)
    assert one.applied == times(0, 1, 2, 3, 4)
    assert one.gone == []


def test_without_a_replay_socket_a_gap_is_passed_over_and_said() -> None:
    one = Told(replays=False)
    one.live(0, 3, 4, 7)
    one.following.settle(0)
    assert one.applied == times(0, 3, 4, 7)
    assert (one.gone, one.following.missed) == ([(2, False), (2, False)], 4)


def test_repetitions_are_left_out() -> None:
    one = Told(replays=False)
    one.live(0, 1, 1, 0, 2, 5, 5)
    one.following.settle(0)
    assert one.applied == times(0, 1, 2, 5)
    assert (one.following.repeated, one.restarts) == (3, 0)


def test_a_late_join_is_asked_for_from_the_first_batch_on() -> None:
    one = Told(replays=True)
    assert one.asked() == 0
    assert one.asked() is None
    one.live(5, 6)
    assert (one.applied, one.following.caught_up) == ([], False)
    one.answered(range(7))
    assert one.applied == times(*range(7))
    assert (one.following.missed, one.following.caught_up, one.gone) == (0, True, [])
    assert (one.following.replayed, one.following.waiting) == (5, 0)


def test_what_the_buffer_holds_no_more_is_missed() -> None:
    one = Told(replays=True)
    assert one.asked() == 0
    one.answered(range(100, 120))
    assert one.applied == times(*range(100, 120))
    assert (one.gone, one.following.missed, one.following.caught_up) == ([(100, True)], 100, True)


def test_a_gap_is_filled_by_the_replay_socket() -> None:
    one = Told(replays=True)
    one.asked()
    one.answered([0, 1])
    one.live(4, 5)
    one.following.settle(0)
    assert one.applied == times(0, 1)
    assert one.asked() == 2
    one.answered([2, 3, 4, 5])
    assert one.applied == times(0, 1, 2, 3, 4, 5)
    assert one.gone == []


def test_an_answer_given_before_the_gap_decides_nothing() -> None:
    """The end mark of an earlier question may come after a live batch that shows a gap."""
    one = Told(replays=True)
    one.asked()
    one.live(1)
    one.answered([])
    assert one.gone == []
    assert one.asked() == 0
    one.answered([0, 1])
    assert one.applied == times(0, 1)


def test_a_gap_that_nobody_can_fill_is_missed() -> None:
    one = Told(replays=True)
    one.asked()
    one.answered([0])
    one.live(5)
    assert one.asked() == 1
    one.answered([5])
    assert (one.applied, one.gone) == (times(0, 5), [(4, False)])


def test_an_answer_with_a_hole_is_asked_for_again_and_not_for_ever() -> None:
    one = Told(replays=True)
    one.asked()
    one.answered([0, 1, 5, 6])
    assert one.applied == times(0, 1)
    questions = 0
    while one.asked() == 2:
        questions += 1
        one.answered([2, 3, 5] if questions == 1 else [])
        if questions == 1:
            assert one.applied == times(0, 1, 2, 3)
            break
    while one.asked() == 4:
        questions += 1
        one.answered([3, 5])
    assert questions <= 4
    assert one.applied == times(0, 1, 2, 3, 5, 6)
    assert one.gone == [(1, False)]


def test_an_answer_without_an_end_is_continued() -> None:
    one = Told(replays=True)
    one.asked()
    one.answered(range(300), ended=False)
    assert not one.following.caught_up
    one.following.settle(PATIENCE_NS)
    assert one.asked(PATIENCE_NS) == 300
    one.answered(range(300, 310), PATIENCE_NS)
    assert one.applied == times(*range(310))
    assert one.following.caught_up


def test_a_long_answer_is_asked_for_its_continuation() -> None:
    """A ROUTER that cannot send fast enough drops what it was to send last, and may still send the end."""
    one = Told(replays=True)
    one.asked()
    one.answered(range(1000))
    assert not one.following.caught_up
    assert one.asked() == 1000
    one.answered(range(1000, 1400))
    assert one.following.caught_up
    assert one.asked() is None


def test_a_silent_replay_socket_is_given_up_and_tried_again_for_a_later_gap() -> None:
    one = Told(replays=True)
    one.asked()
    one.live(3)
    one.following.settle(PATIENCE_NS - 1)
    assert one.applied == []
    one.following.settle(PATIENCE_NS)
    assert (one.applied, one.gone, one.following.caught_up) == (times(3), [(3, True)], True)
    later = PATIENCE_NS + QUIET_NS
    one.live(6, now_ns=later)
    one.following.settle(later)
    assert one.applied == times(3)
    assert one.asked(later) == 4


def test_a_replay_socket_that_cannot_be_asked_is_given_up() -> None:
    one = Told(replays=True)
    assert one.following.wanted(0) == 0
    one.live(3)
    assert one.following.wanted(PATIENCE_NS - 1) == 0
    one.following.settle(PATIENCE_NS)
    assert one.gone == [(3, True)]


def test_after_quiet_seconds_a_lost_last_batch_is_asked_for() -> None:
    one = Told(replays=True)
    one.asked()
    one.answered([0, 1])
    assert one.asked(QUIET_NS - 1) is None
    assert one.asked(QUIET_NS) == 2
    one.answered([2], QUIET_NS)
    assert one.applied == times(0, 1, 2)
    assert one.asked(QUIET_NS + 1) is None


def test_a_server_that_starts_again_is_noticed() -> None:
    for replays in (False, True):
        one = Told(replays=replays)
        one.asked()
        one.answered([0, 1, 2])
        one.live(3)
        one.live(0, 1, age=1)
        assert one.applied == [*times(0, 1, 2, 3), -1, *times(0, 1, age=1)]
        assert (one.restarts, one.following.missed) == (1, 0)


def test_a_new_start_of_which_the_beginning_is_missed() -> None:
    one = Told(replays=False)
    one.live(0, 1, 2, 3, 4)
    one.live(2, 3, age=1)
    one.following.settle(0)
    assert one.applied == [*times(0, 1, 2, 3, 4), -1, *times(2, 3, age=1)]
    assert (one.restarts, one.gone) == (1, [(2, True)])


def test_a_new_start_with_the_clock_set_back_is_noticed_by_its_first_batch() -> None:
    one = Told(replays=False)
    one.live(0, 1, 2, age=3)
    one.live(0, 1, age=0)
    assert one.restarts == 1
    assert one.applied[-2:] == times(0, 1)


def test_what_cannot_be_read_is_no_new_start() -> None:
    one = Told(replays=False)
    one.live(0, 1)
    one.following.live(0, Batch(0, 0, (), readable=False), 0)
    assert (one.restarts, one.following.repeated) == (0, 1)


def test_what_waits_is_bounded() -> None:
    one = Told(replays=True)
    one.asked()
    one.live(*range(1, MOST_WAITING + 2))
    assert one.following.waiting == 0
    assert len(one.applied) == MOST_WAITING + 1
    assert one.gone == [(1, True)]
