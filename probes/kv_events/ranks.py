"""Messages of one publisher's address, its data-parallel ranks told apart: everything but the sockets."""

from inferdbg import text

from .batches import Batch, parse
from .following import Following
from .rebuilt import Rebuilt

MOST_RANKS = 64
_END = (1 << 64) - 1


class _Rank:
    """Batches of one data-parallel rank on their way to ``Rebuilt``."""

    def __init__(self, rank: int, rebuilt: Rebuilt, *, replays: bool) -> None:
        self.rank = rank
        self.rebuilt = rebuilt
        self.topic: bytes | None = None
        self.following = Following(self, replays=replays)

    def apply(self, batch: Batch, now_ns: int) -> None:
        self.rebuilt.apply(batch, now_ns)

    def missed(self, count: int, *, at_start: bool) -> None:
        self.rebuilt.doubt(self.rank, f"batch, {'published before we joined' if at_start else 'lost'}", count)

    def restarted(self) -> None:
        self.rebuilt.restart(self.rank)


class Ranks:
    """Messages in, blocks out: everything but the sockets. Not for two threads at once."""

    def __init__(self, *, replays: bool) -> None:
        self.rebuilt = Rebuilt()
        self.ranks: dict[int, _Rank] = {}
        self.foreign = 0
        self._replays = replays
        self._replay_rank = 0

    def live(self, frames: list[bytes], now_ns: int) -> None:
        """A message of the subscription: topic, number (8 bytes, big-endian), batch."""
        if len(frames) != 3 or len(frames[1]) != 8:
            self.rebuilt.unreadable += 1
            return
        topic, seq = frames[0].partition(b"\0")[0], int.from_bytes(frames[1], "big")
        batch = self._parsed(frames[2])
        rank = self._rank(batch.rank)
        if rank is None or seq == _END:
            self.rebuilt.unreadable += 1
            return
        if rank.topic not in (None, topic):
            self.foreign += 1
            return
        rank.topic = topic
        rank.following.live(seq, batch, now_ns)

    def replay(self, frames: list[bytes], now_ns: int) -> None:
        """A message of the replay socket: nothing, perhaps the topic, number, batch; at the end the number is -1."""
        if len(frames) not in (3, 4) or frames[0] or len(frames[-2]) != 8:
            self.rebuilt.unreadable += 1
            return
        seq = int.from_bytes(frames[-2], "big")
        if seq == _END and not frames[-1]:
            self._replaying().replay_ended(now_ns)
            return
        batch = self._parsed(frames[-1])
        rank = self._rank(batch.rank)
        if rank is not None:
            rank.following.replay(seq, batch, now_ns)

    def wanted(self, now_ns: int) -> int | None:
        """The number from which to ask the replay socket, when it is to be asked."""
        return self._replaying().wanted(now_ns) if self._replays else None

    def asked(self, now_ns: int) -> None:
        """It was asked."""
        self._replaying().asked(now_ns)

    def settle(self, now_ns: int) -> None:
        """Everything that had come is fed."""
        for rank in self.ranks.values():
            rank.following.settle(now_ns)

    @property
    def caught_up(self) -> bool:
        """What was published before we joined is here, or is not to be had."""
        known = [rank.following.caught_up for rank in self.ranks.values()]
        return all(known) and bool(known or not self._replays)

    def doubts(self) -> list[str]:
        """Why blocks are not certain just now."""
        if not self.caught_up:
            return ["what was published before we joined is still to come"]
        waiting = sum(rank.following.waiting for rank in self.ranks.values())
        return [f"what lies before {_batches(waiting)} is still to come"] if waiting else []

    @property
    def missed(self) -> int | None:
        known = [rank.following.missed for rank in self.ranks.values()]
        return None if not known or None in known else sum(count for count in known if count is not None)

    @property
    def replayed(self) -> int:
        return sum(rank.following.replayed for rank in self.ranks.values())

    def _parsed(self, payload: bytes) -> Batch:
        try:
            return parse(payload)
        except ValueError:
            self.rebuilt.unreadable += 1
            return Batch(0, next(iter(self.ranks)) if len(self.ranks) == 1 else self._replay_rank, (), readable=False)

    def _rank(self, number: int) -> _Rank | None:
        """A replay socket speaks for one rank: for the first one that was heard of."""
        if number in self.ranks:
            return self.ranks[number]
        asked = self.ranks.get(self._replay_rank)
        if self._replays and (asked is None or asked.following.untouched):
            self.ranks.pop(self._replay_rank, None)
            self._replay_rank = number
            rank = asked or _Rank(number, self.rebuilt, replays=True)
            rank.rank = number
        elif len(self.ranks) < MOST_RANKS:
            rank = _Rank(number, self.rebuilt, replays=False)
        else:
            return None
        self.ranks[number] = rank
        return rank

    def _replaying(self) -> Following:
        rank = self._rank(self._replay_rank)
        assert rank is not None
        return rank.following


def _batches(count: int) -> str:
    return f"{text.count(count)} batch{'' if count == 1 else 'es'}"
