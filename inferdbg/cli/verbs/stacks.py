"""`inferdbg stacks`: where every thread of a server stands, what it waits for, and which rank is missing."""

import shutil
import time
from typing import TYPE_CHECKING

import click

from inferdbg.cli.members import Members, members_of
from inferdbg.cli.options import duration, example, json_option
from inferdbg.cli.output import Output
from inferdbg.cli.target import give_way
from inferdbg.errors import Exit, InferdbgError

if TYPE_CHECKING:
    from inferdbg.diagnosis.finding import Finding
    from inferdbg.diagnosis.folding import Fold, Seat
    from inferdbg.facts.sections.stacks import Stacks
    from inferdbg.probes.stack_chain import How

SCHEMA = "inferdbg.stacks.v1"
SECOND = 1_000_000_000
_AGAIN_NS = SECOND
"""After which ranks that seem to wait for another are looked at again: healthy ones have gone on by then."""
_LONGEST_NS = 600 * SECOND
_AT_ONCE = 8
_SIGNALS = ("USR1", "USR2")


def _twice(context: click.Context, option: click.Parameter, value: int | None) -> int | None:
    if value is not None and not 0 < value <= _LONGEST_NS:
        raise click.BadParameter("more than nothing, at most 10min")
    return value


@click.command(
    short_help="Where every thread stands:  inferdbg stacks 58",
    epilog=example(
        "inferdbg stacks 58",
        "inferdbg stacks 58 --twice 2s",
        "inferdbg stacks 58 --all-ranks",
        "inferdbg stacks 58 --native",
        "inferdbg stacks 58 --json | jq .findings",
    ),
)
@click.argument("target_name", metavar="[TARGET]", required=False)
@click.option("--native", is_flag=True, help="With C and C++ calls. Stops each process while it is read: 0.1 to 10 s.")
@click.option("--stop", is_flag=True, help="Stop each process while it is read: calls of one moment; also by gdb.")
@click.option(
    "--twice",
    "twice_ns",
    type=duration,
    callback=_twice,
    metavar="DURATION",
    help="Look again after so long: what moved?",
)
@click.option("--all-ranks", is_flag=True, help="Also the other ranks of its job on this machine.")
@click.option(
    "--faulthandler",
    "signal_name",
    type=click.Choice(_SIGNALS),
    help="Where nothing else can read it: send it this signal, if it has a handler. It then writes its stacks to its "
    "own stderr (faulthandler.register).",
)
@json_option
@click.pass_obj
def command(
    out: Output,
    target_name: str | None,
    native: bool,
    stop: bool,
    twice_ns: int | None,
    all_ranks: bool,
    signal_name: str | None,
    as_json: bool,
) -> int:
    """The stacks of every process of TARGET at once: a server by PID or URL, or any PID with what it started; without
    it the one server that runs here. Identical ones are folded. Nobody is stopped, unless --stop or --native asks for
    it; then how long is measured and said. Where several ranks wait in a collective, the missing one is named.

    Exit code 1 when a rank is missing, 3 when nothing could be seen.
    """
    import signal

    from inferdbg.diagnosis.folding import folds, seats_of
    from inferdbg.diagnosis.movement import movements
    from inferdbg.diagnosis.ranks_apart import ranks_apart
    from inferdbg.probes.stack_chain import How

    give_way()
    members = members_of(target_name, all_ranks=all_ranks)
    how = How(stop, native, signal.Signals[f"SIG{signal_name}"] if signal_name is not None else None)
    stacks, earlier = _look(members, how), None
    seats = seats_of(stacks)
    if twice_ns is not None or ranks_apart(seats):
        time.sleep((twice_ns or _AGAIN_NS) / SECOND)
        again = _look(members, how if twice_ns is not None else How())
        moved = movements(stacks, again)
        earlier, stacks = (stacks, again) if twice_ns is not None or not how.stops else (again, stacks)
        seats = seats_of(stacks, moved)
    findings = ranks_apart(seats, all_here=all_ranks)
    if not any(one.threads for one in stacks.processes):
        raise _nothing_seen(stacks)
    groups = folds(seats)
    if as_json:
        out.show_json(_as_json(members, stacks, earlier, seats, groups, findings))
    else:
        _show(out, members, stacks, groups, findings)
    return Exit.FINDINGS if any(one.confidence != "possible" for one in findings) else Exit.FINE


def _look(members: Members, how: "How") -> "Stacks":
    """At all of them at once, some at a time."""
    from concurrent.futures import ThreadPoolExecutor

    from inferdbg.facts.provenance import Origin
    from inferdbg.facts.sections.stacks import Stacks
    from inferdbg.probes.stack_chain import look_at

    now_ns = time.monotonic_ns()
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="stacks") as pool:
        found = tuple(pool.map(lambda seat: look_at(seat, how), members.seats))
    return Stacks(Origin("stacks", now_ns), found)


def _nothing_seen(stacks: "Stacks") -> InferdbgError:
    why = [f"process {one.pid}: {one.why or 'no thread of it can be seen'}" for one in stacks.processes]
    cures = [refusal.cure for one in stacks.processes for refusal in one.refusals if refusal.cure]
    return InferdbgError(
        f"no stack can be seen. {why[0]}" if why else "no stack can be seen", "\n".join(dict.fromkeys(cures))
    )


def _show(
    out: Output, members: Members, stacks: "Stacks", groups: "tuple[Fold, ...]", findings: "tuple[Finding, ...]"
) -> None:
    from inferdbg.cli.stacks_text import stack_lines

    width = min(max(shutil.get_terminal_size((80, 24)).columns, 40), 160)
    out.show("\n".join([f"stacks of {members.name}", *stack_lines(stacks.processes, groups, findings, width)]))
    for words in members.words:
        out.say(words)


def _as_json(
    members: Members,
    stacks: "Stacks",
    earlier: "Stacks | None",
    seats: "tuple[Seat, ...]",
    groups: "tuple[Fold, ...]",
    findings: "tuple[Finding, ...]",
) -> dict[str, object]:
    """Threads as they were at the last look. ``groups``: each the threads that stand in the same calls, as indices of
    processes and of their threads."""
    places: dict[int, tuple[int, int]] = {}
    objects: list[dict[str, object]] = []
    by_seat = iter(seats)
    for at, process in enumerate(stacks.processes):
        threads: list[dict[str, object]] = []
        for index, thread in enumerate(process.threads):
            seat = next(by_seat)
            places[id(seat)] = (at, index)
            found = _plain(thread) | {"waits": _plain(seat.wait) | {"said": seat.wait.said}}
            threads.append(found | ({"moved": seat.moved._asdict()} if seat.moved is not None else {}))
        objects.append(_plain(process) | {"threads": threads})
    return {
        "schema": SCHEMA,
        "target": members.name,
        "mono_ns": stacks.origin.mono_ns,
        **({"other_look_mono_ns": earlier.origin.mono_ns} if earlier is not None else {}),
        "processes": objects,
        "groups": [
            {"said": group.wait.said, "idle": group.is_idle, "threads": [places[id(seat)] for seat in group.seats]}
            for group in groups
        ],
        "findings": findings,
    }


def _plain(value: object) -> dict[str, object]:
    import msgspec

    found: dict[str, object] = msgspec.to_builtins(value)
    return found
