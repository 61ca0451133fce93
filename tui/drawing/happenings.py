"""What happened lately: who was preempted by whom, evicted for whom, and why."""

from collections.abc import Sequence

from inferdbg import text
from inferdbg.facts.sections.events import Event
from inferdbg.facts.window import SECOND, Window

from ..ink import Line, Span, dim, fit_text, line
from .marks import missing
from .names import Names, names_of

_INKS = {"preempted": "slow", "rejected": "slow", "failed": "stuck", "fault": "stuck", "aborted": "note"}


def happening_lines(window: Window, width: int, rows: int) -> list[Line]:
    """What happened last, newest first, in ``rows`` lines; a run of evictions is one line."""
    if window.now.events is None:
        return missing(window.now, "events", width, "events")
    told = story_lines(
        window.events(rows * 40)[::-1],
        names_of(window.now),
        window.now.mono_ns,
        rows,
        seen_in_passing=window.now.events.origin.probe == "memory",
    )
    return told or [(dim("none seen in the time looked at"),)]


def story_lines(
    events: Sequence[Event], names: Names, now_ns: int, most: int, *, seen_in_passing: bool = False
) -> list[Line]:
    """These events in their order, each run of evictions in one line; at most ``most`` lines. ``seen_in_passing``: what
    was lost is what was there at the look before."""
    return [_run_line(run, names, now_ns, seen_in_passing=seen_in_passing) for run in _runs(events, most)]


def _runs(events: Sequence[Event], most: int) -> list[list[Event]]:
    """Evictions that follow each other within a second stay together: one of them says little, and hides the rest."""
    runs: list[list[Event]] = []
    for event in events:
        evicted = event.kind == "evicted" and runs and runs[-1][0].kind == "evicted"
        if evicted and abs(event.mono_ns - runs[-1][0].mono_ns) < SECOND:
            runs[-1].append(event)
        elif len(runs) == most:
            break
        else:
            runs.append([event])
    return runs


def _run_line(run: Sequence[Event], names: Names, now_ns: int, *, seen_in_passing: bool) -> Line:
    event = run[0]
    ago_ns = now_ns - event.mono_ns
    ago = fit_text(f"-{text.duration(ago_ns)}" if ago_ns > 0 else "now", 8, right=True)
    said = _evictions(run, names) if len(run) > 1 else event_text(event, names)
    if seen_in_passing and event.kind == "preempted" and event.tokens:
        said = f"{said}~"
    return line(dim(f"{ago}  "), Span(f"{event.kind:<11} ", _INKS.get(event.kind, "")), said)


def _evictions(run: Sequence[Event], names: Names) -> str:
    """``8 blocks of r-91 for r-104``; of several requests it says how many."""
    of, taker = (_together(numbers, names) for numbers in ([e.request for e in run], [e.other for e in run]))
    return f"{len(run)} blocks{f' of {of}' if of else ''}{f' for {taker}' if taker else ''}"


def _together(numbers: Sequence[int | None], names: Names) -> str:
    known = {number for number in numbers if number}
    return names(known.pop()) if len(known) == 1 else text.counted(len(known), "request") if known else ""


def event_text(event: Event, names: Names) -> str:
    """What befell whom, without the kind, as far as it is known: ``r-91 for r-104, 768 tokens lost``."""
    who = names(event.request) if event.request else ""
    taker = f"for {names(event.other)}" if event.other else ""
    tokens = text.counted(event.tokens, "token") if event.tokens else ""
    block = f"block {event.block}" if event.block is not None else ""
    said = text.safe(event.text, 200)
    if event.kind == "preempted":
        lost = f"{tokens} lost" if tokens else ""
        if event.other and event.other == event.request:
            return _listed(who, "by itself", lost)
        return _listed(_said(who, taker), lost)
    if event.kind == "evicted":
        return _said(block or "a block", f"of {who}" if who else "", taker)
    if event.kind == "copied on write":
        return _said(said, f"to {block}" if block else "", f"by {who}" if who else "")
    if event.kind == "scheduled":
        return _listed(who, f"{tokens} from the prefix cache" if tokens else "")
    return _listed(who, block, tokens, said)


def _said(*words: str) -> str:
    return " ".join(filter(None, words))


def _listed(*words: str) -> str:
    return ", ".join(filter(None, words))
