"""Which rank is missing from a collective that the others wait in, from the stacks of all of them."""

from collections.abc import Iterator, Sequence

from inferdbg import text
from inferdbg.diagnosis.finding import Confidence, Evidence, Finding
from inferdbg.diagnosis.folding import Seat
from inferdbg.facts.sections.stacks import ProcessStacks

MISSING = "rank_lost_or_stalled"
DIVERGED = "rank_divergence"
_NAMED = 8
_TELLING = ("stopped", "kernel", "sleep", "disk", "child")
"""What the kernel alone tells well enough of a thread whose calls are not seen."""
_VAGUE = ("gpu", "unknown")
"""Work on a GPU may be that very collective."""


class _Rank:
    """A process that takes part in collectives, by the thread that tells most of it: one in a collective, else its main
    one."""

    def __init__(self, process: ProcessStacks, seats: Sequence[Seat]) -> None:
        self.process = process
        self.seat = next(
            (seat for seat in seats if seat.wait.collective is not None),
            next((seat for seat in seats if seat.is_main), seats[0]),
        )

    @property
    def name(self) -> str:
        return self.process.rank or f"of process {self.process.pid}"

    @property
    def source(self) -> str:
        return f"rank {self.name}, process {self.process.pid}, {self.seat.thread.name}"

    @property
    def place(self) -> str:
        """The innermost call that is no library's: `` (train.py:31)``."""
        calls = [call for call in self.seat.thread.calls if not call.native and call.line]
        own = next((call for call in calls if "/" not in call.file), calls[0] if calls else None)
        return f" ({own.function} {own.file}:{own.line})" if own is not None else ""

    @property
    def is_seen(self) -> bool:
        return bool(self.seat.thread.calls) or self.seat.wait.kind in _TELLING

    @property
    def stood(self) -> bool | None:
        """Whether it stood since an earlier look; None: there was none."""
        return self.seat.moved.stood or self.seat.moved.how == "spins" if self.seat.moved is not None else None


def ranks_apart(seats: Sequence[Seat], *, all_here: bool = False) -> tuple[Finding, ...]:
    """Looks at each job of which some rank waits in a collective. ``possible`` from one look alone: ranks that are
    healthy reach a collective one after the other, too. ``sure`` where two looks show the same and the waiting ones
    slept in between; nothing where they moved. ``all_here``: every rank on this machine was looked at."""
    return tuple(finding for job in _jobs(seats) for finding in _of_job(job, all_here=all_here))


def _jobs(seats: Sequence[Seat]) -> Iterator[list[_Rank]]:
    by_job: dict[str, dict[int, list[Seat]]] = {}
    for seat in seats:
        if seat.process.job is not None:
            by_job.setdefault(seat.process.job, {}).setdefault(seat.process.pid, []).append(seat)
    for processes in by_job.values():
        yield [_Rank(those[0].process, those) for those in processes.values()]


def _of_job(ranks: list[_Rank], *, all_here: bool) -> Iterator[Finding]:
    waiting = [rank for rank in ranks if rank.seat.wait.collective is not None]
    apart = [rank for rank in ranks if rank.seat.wait.collective is None and rank.is_seen]
    gone = _without_process(ranks, all_here=all_here)
    if not waiting or any(rank.stood is False for rank in waiting):
        return
    confidence = _confidence(waiting, apart)
    sides: dict[str, list[_Rank]] = {}
    for rank in waiting:
        sides.setdefault(str(rank.seat.wait.collective), []).append(rank)
    moved, first = waiting[0].seat.moved, waiting[0].process.pid
    over = f" for at least {text.duration(moved.over_ns)}" if moved is not None else ""
    said = "; ".join(f"{_names(those)} wait{'s' * (len(those) == 1)} in {name}" for name, those in sides.items()) + over
    evidence = tuple(Evidence(rank.source, rank.seat.wait.said + rank.place) for rank in (*apart, *waiting)[:_NAMED])
    if len(sides) > 1:
        summary = f"the ranks stand in different collectives: {said}"
        yield Finding(
            DIVERGED, "stuck", confidence, summary, evidence, f"inferdbg stacks {first} --all-ranks --twice 5s"
        )
    if apart:
        where = "; ".join(f"rank {one.name} {one.seat.wait.said}{one.place}" for one in apart[:_NAMED])
        is_are = "is" if len(apart) == 1 else "are"
        summary = f"{_names(apart)} {is_are} missing: {said}; {where}"
        step = f"inferdbg stacks {apart[0].process.pid} --native"
        yield Finding(MISSING, "stuck", confidence, summary, evidence, step)
    elif gone and all_here:
        step = "on the other machines: inferdbg stacks PID --all-ranks"
        yield Finding(MISSING, "stuck", confidence, f"{said}; {gone}", evidence, step)
    elif gone:
        yield Finding(MISSING, "stuck", "possible", f"{said}; {gone}", evidence, f"inferdbg stacks {first} --all-ranks")


def _confidence(waiting: Sequence[_Rank], apart: Sequence[_Rank]) -> Confidence:
    moves = [rank.seat.moved for rank in waiting]
    if any(moved is None for moved in moves) or any(rank.seat.wait.kind in _VAGUE for rank in apart):
        return "possible"
    return "sure" if all(moved is not None and moved.how == "stands" for moved in moves) else "likely"


def _without_process(ranks: Sequence[_Rank], *, all_here: bool) -> str:
    """Ranks of the job that were not seen, in words; empty where all were or that cannot be told."""
    total = ranks[0].process.job_ranks
    names = {rank.process.rank for rank in ranks}
    absent = [str(number) for number in range(total or 0) if str(number) not in names]
    if not absent or not all(name is not None and name.isdecimal() for name in names):
        return ""
    listed = ", ".join(absent[:_NAMED]) + (" …" if len(absent) > _NAMED else "")
    is_one = len(absent) == 1
    where = (
        f"{'has' if is_one else 'have'} no process on this machine"
        if all_here
        else f"{'was' if is_one else 'were'} not looked at"
    )
    return f"rank{'' if is_one else 's'} {listed} {where}"


def _names(ranks: Sequence[_Rank]) -> str:
    """``rank 2``, ``ranks 0, 1, 3``."""
    names = [rank.name for rank in ranks]
    listed = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    return f"rank {listed}" if len(names) == 1 else f"ranks {listed}"
