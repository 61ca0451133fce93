"""The edges of the screen: what is looked at, through which probe, and where in time we stand."""

from collections.abc import Sequence

from inferdbg import text
from inferdbg.facts.window import Window

from ..frame import Frame
from ..ink import Line, Piece, Span, between, dim, flow, line, value

_INFORMATIVE = ("pulse", "kvcache", "scheduler", "requests", "steps", "server", "processes")


def header_line(frame: Frame, width: int) -> Line:
    """Engine, model, process and probe at the left; the time and how it moves at the right."""
    left = flow([value(" inferdbg"), *subject(frame.window, frame.title)], 10_000, " · ")[0]
    return between(left, line(*moment(frame), " "), width)


def subject(window: Window, title: str) -> list[Piece]:
    """What is looked at, most telling first."""
    server = window.now.server
    if server is None:
        return [text.safe(title), *_through(window)]
    parts: list[Piece] = [text.safe(f"{server.engine} {server.version or ''}".strip(), 40)]
    if server.model is not None:
        parts.append(text.safe(server.model.name.rstrip("/").rsplit("/", 1)[-1], 40))
    if server.pid is not None:
        parts.append(f"pid {server.pid}")
    if server.state != "alive":
        parts.append(Span(server.state, "dead" if server.state == "dead" else "note"))
    if title and title != f"pid {server.pid}":
        parts.append(text.safe(title, 60))
    return [*parts, *_through(window)]


def _through(window: Window) -> list[Piece]:
    """The probe that tells us most."""
    for name in _INFORMATIVE:
        section = getattr(window.now, name)
        if section is not None:
            return [dim(f"via {text.safe(section.origin.probe, 30)}")]
    return []


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


def tabs_line(titles: Sequence[tuple[str, str]], current: str, width: int) -> Line:
    """Views with their keys; ``titles`` are (key, title) in order."""
    spans: list[Span] = [Span(" ")]
    for key, title in titles:
        spans.append(Span(f" {key} {title} ", "tab-on" if title == current else "tab"))
    return line(*spans)


def keys_line(keys: Sequence[tuple[str, str]], width: int) -> Line:
    """Keys with what they do, as many as fit."""
    spans: list[Span] = []
    used = 1
    for key, description in keys:
        taken = len(key) + len(description) + 3
        if used + taken > width:
            break
        spans += [Span(f" {key} ", "key"), Span(f"{description} ", "dim")]
        used += taken
    return line(*spans)
