"""The edges of the screen: what is looked at, through which probe, and where in time we stand."""

import re
from collections.abc import Sequence

from inferdbg import text
from inferdbg.facts.window import Window

from ..frame import Frame
from ..ink import Line, Piece, Span, between, crop, dim, flow, line, value, width_of
from .verdict import verdict

_ANY_PID = re.compile(r"pid \d+")
_TROUBLE = 48
"""Columns that a verdict gets beside the views, where it has so many."""
_KERNEL = "processes"
"""What it tells is told of any process."""
_INFORMATIVE = ("pulse", "kvcache", "scheduler", "requests", "steps", "metrics", "server", "processes")


def header_line(frame: Frame, width: int) -> Line:
    """Engine, model, process and probe at the left; the time and how it moves at the right. What does not fit is
    left out whole, the least telling first."""
    right = line(*moment(frame), " ")
    parts = subject(frame.window, frame.title)
    while len(parts) > 1 and width_of(_joined(parts)) > width - width_of(right) - 1:
        parts.remove(min(parts, key=lambda part: part[0]))
    return between(_joined(parts), right, width)


def _joined(parts: Sequence[tuple[int, Piece]]) -> Line:
    return line(" ", *flow([part for _, part in parts], 10_000, " · "))


def subject(window: Window, title: str) -> list[tuple[int, Piece]]:
    """What is looked at, in order of reading; before each how telling it is."""
    server = window.now.server
    if server is None:
        return [(9, value(text.safe(title))), *_through(window)]
    engine = text.safe(f"{server.engine} {server.version or ''}".strip(), 40)
    parts: list[tuple[int, Piece]] = [(5, value(engine))]
    if server.model is not None:
        parts.append((6, text.safe(server.model.name.rstrip("/").rsplit("/", 1)[-1], 40)))
    if server.pid is not None and not title.startswith(f"pid {server.pid},"):
        parts.append((8, f"pid {server.pid}"))
    if server.state != "alive":
        parts.append((9, Span(server.state, "dead" if server.state == "dead" else "note")))
    if title and not (server.pid is not None and _ANY_PID.fullmatch(title)):  # it may be that of the server before
        parts.append((7, text.safe(title, 60)))
    return [*parts, *_through(window)]


def _through(window: Window) -> list[tuple[int, Piece]]:
    """The probes that tell us most: the depth that is looked from."""
    sections = (getattr(window.now, name) for name in _INFORMATIVE)
    probes = list(dict.fromkeys(section.origin.probe for section in sections if section is not None))
    telling = [probe for probe in probes if probe != _KERNEL] or probes
    return [(1, dim(f"via {text.safe(', '.join(telling), 40)}"))] if telling else []


def moment(frame: Frame) -> list[Piece]:
    """The time of day and its mark: live, paused, playing, or how far back."""
    now = text.clock(frame.window.now.wall_ns)
    behind = f" -{text.duration(frame.behind_ns)}" if frame.behind_ns > 0 else ""
    if frame.mode == "live":
        return [f"{now} ", Span("▶ live", "ok")]
    if frame.mode == "playing":
        return [Span(f"▶ playing {now}", "ok"), dim(behind)]
    if frame.mode == "fixed":
        return [Span(f"■ at {now}", "note")]
    if frame.behind_ns > 1_500_000_000:
        return [Span(f"◀ at {now},{behind}", "slow")]
    return [Span(f"❚❚ paused at {now}", "slow")]


def timeline_line(frame: Frame, width: int) -> Line:
    """Where the shown moment lies in what can be shown."""
    first_ns, last_ns = frame.span
    now = frame.window.now
    start = text.clock(now.wall_ns - (now.mono_ns - first_ns))
    end = text.clock(now.wall_ns + (last_ns - now.mono_ns))
    track = width - len(start) - len(end) - 6
    reached = (now.mono_ns - first_ns) / (last_ns - first_ns) if last_ns > first_ns else 1.0
    at = min(track - 1, max(0, round(reached * (track - 1))))
    return line(
        f" {start} ",
        Span("├" + "─" * at, "accent"),
        Span("●", "slow"),
        Span("─" * (track - 1 - at) + "┤", "dim"),
        f" {end} ",
    )


def problem_line(frame: Frame, width: int) -> Line:
    """Why nothing new could be read, over the last good picture, or what ails the source."""
    hint = dim(f"  {text.safe(frame.hint)}") if frame.hint else ""
    return crop(line(Span(f" {text.safe(frame.problem)}", "stuck"), hint), width)


def tab_words(titles: Sequence[tuple[str, str]], current: str, width: int, trouble: Line = ()) -> list[str]:
    """A word a view. Where all titles leave no room, or too little for ``trouble``, they stand closer; where that does
    not help either, the other views are their keys alone."""
    full = [f" {key} {title} " for key, title in titles]
    close = [word[1:] for word in full]
    wanted = min(width_of(trouble), _TROUBLE) + 3 if trouble else 0
    for words in (full, close):
        if sum(map(len, words)) + 1 + wanted <= width:
            return words
    return [word if title == current else f" {key} " for word, (key, title) in zip(full, titles, strict=True)]


def tabs_line(titles: Sequence[tuple[str, str]], current: str, width: int, trouble: Line = ()) -> Line:
    """Views with their keys; ``titles`` are (key, title) in order. Behind them as much of ``trouble`` as there is room
    for."""
    words = tab_words(titles, current, width, trouble)
    spans = [
        Span(word, "tab-on" if title == current else "tab") for word, (_, title) in zip(words, titles, strict=True)
    ]
    return crop(line(" ", *spans, "  ", *trouble), width) if trouble else line(" ", *spans)


def trouble(frame: Frame) -> Line:
    """The verdict for views that do not show it: nothing while nothing is wrong."""
    if not frame.findings or frame.findings[0].severity == "note":
        return ()
    said = verdict(frame.window, frame.findings)
    return line(Span(f"● {said.word} ", said.ink), said.sentence)


def keys_line(keys: Sequence[tuple[str, str]], always: Sequence[tuple[str, str]], width: int) -> Line:
    """Keys with what they do, as many as fit, and at the right those that must be there."""
    right = _keys(always)
    spans: list[Span] = []
    for pair in keys:
        more = _keys([pair])
        if width_of((*spans, *more)) + width_of(right) > width:
            break
        spans += more
    return between(tuple(spans), right, width)


def _keys(pairs: Sequence[tuple[str, str]]) -> Line:
    return line(*(line(Span(f" {key} ", "key"), Span(f"{description} ", "dim")) for key, description in pairs))
