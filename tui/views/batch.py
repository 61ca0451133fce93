"""The last steps, one bar each: whose tokens filled the budget, and which phase took the time."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from inferdbg import text
from inferdbg.facts.sections.events import Event
from inferdbg.facts.sections.steps import Step
from inferdbg.facts.window import Window

from ..drawing.batch import PHASES, bar_widths, scale_ns, step_line, time_lines
from ..drawing.happenings import story_lines
from ..drawing.marks import missing
from ..drawing.names import Names, names_of, owner_ink
from ..frame import Frame
from ..ink import NOTHING, Line, Piece, Span, beside, boxed, dim, fit_text, flow, line
from ..view import View, bound

PANEL = 8
MOST = 2000


class Batch(View):
    title = "batch"
    about = "what each step ran against its token budget, and where its time went"
    finds = "a step number"
    BINDINGS: ClassVar[list[BindingType]] = [
        bound("batch.up", "up", "move(-1)", "select step", "Select the step before", shown="↑↓"),
        bound("batch.down", "down", "move(1)", "step after"),
        bound("batch.page-up", "pageup", "page(-1)", "a page up"),
        bound("batch.page-down", "pagedown", "page(1)", "a page down"),
        bound("batch.clear", "escape", "clear", "the last step", "Select nothing, follow the newest step"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.selected: int | None = None
        self._shown: list[Step] = []
        self._top = 0
        self._rows = 1

    def draw(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        window = frame.window
        if window.now.steps is None:
            return [NOTHING, *missing(window.now, "steps", width - 1, "what each step ran")]
        self._rows = max(1, height - 2 - PANEL)
        self._shown = window.steps(MOST if self.selected is not None else self._rows)
        if not self._shown:
            return [NOTHING, (dim(" no step in the time looked at: the engine has had nothing to do"),)]
        at = self._index()
        if self.selected is not None and at is None:
            at = 0 if self.selected < self._shown[0].step else None
        last = len(self._shown) - self._rows
        self._top = max(0, last) if at is None else min(max(self._top, at - self._rows + 1), at, max(0, last))
        seen = self._shown[self._top : self._top + self._rows]
        longest = scale_ns(seen)
        happened = _by_step(window, seen[0].step)
        rows = [self._row(step, width, longest, happened.get(step.step, [])) for step in seen]
        rows = [NOTHING] * (self._rows - len(rows)) + rows
        chosen = self._shown[at] if at is not None else self._shown[-1]
        panel = self._panel(window, chosen, happened.get(chosen.step, []), width)
        return [*self._head(width, longest), *rows, *panel][:height]

    def _head(self, width: int, longest_ns: int) -> list[Line]:
        tokens, times = bar_widths(width - 8, longest_ns)
        legend = flow(
            [
                line(Span("▓▒", "prefill"), dim(" prefill")),
                line(Span("█", "decode"), dim(" decode")),
                dim("│"),
                *(line(Span(glyph, phase), dim(f" {phase}")) for phase, glyph in PHASES),
                dim("│  E evicted  P preempted"),
            ],
            width - 1,
        )
        timed = fit_text(f"time, full width {text.duration(longest_ns)}", times + 7) if times else ""
        titles = line(
            Span(fit_text(" step", 10), "label"),
            Span(fit_text("tokens against the budget", tokens + (14 if times else 12)), "label"),
            Span(f"{timed} events", "label"),
        )
        return [line(" ", legend[0]), titles]

    def _row(self, step: Step, width: int, longest_ns: int, happened: Sequence[Event]) -> Line:
        ink = "cursor" if step.step == self.selected else ""
        return (Span("▶" if ink else " ", ink), *step_line(step, width - 8, longest_ns, ink), *_marks(happened))

    def _panel(self, window: Window, step: Step, happened: Sequence[Event], width: int) -> list[Line]:
        names = names_of(window.now)
        title = line(f"step {text.count(step.step)}", dim("" if self.selected is not None else " the last one"))
        half = width * 3 // 5 if width >= 110 else width
        times = time_lines(window, step, half - 4)[:2]
        story = story_lines(happened, names, window.now.mono_ns, len(happened))
        room = PANEL - 2 - len(times) - (min(len(story), 2) if half == width else 0)
        lines = [*times, *_work(step, names, half - 4, room)]
        if half == width:
            return boxed(title, _filled([*lines, *story]), width)
        unseen = window.now.events is None
        beside_it = story or [(dim("events are not seen" if unseen else "nobody was preempted, evicted or finished"),)]
        return beside(
            boxed(title, _filled(lines), half), boxed("events of this step", _filled(beside_it), width - half), half, ""
        )

    def _index(self) -> int | None:
        return next((index for index, step in enumerate(self._shown) if step.step == self.selected), None)

    def action_move(self, steps: int) -> None:
        if not self._shown or self.frame is None:
            return
        everything = self.frame.window.steps(MOST)
        numbers = [step.step for step in everything]
        at = numbers.index(self.selected) if self.selected in numbers else len(numbers) - 1 - steps
        at = min(max(0, at + steps), len(numbers) - 1)
        self.selected = numbers[at]
        self.redraw()

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self._rows - 1))

    def action_clear(self) -> None:
        self.selected = None
        self.redraw()

    def find(self, wanted: str) -> str:
        if not wanted:
            return ""
        digits = wanted.replace(",", "")
        steps = self.frame.window.steps(MOST) if self.frame is not None else []
        if digits.isdecimal() and int(digits) in {step.step for step in steps}:
            self.selected = int(digits)
            self.redraw()
            return ""
        return f"step {text.safe(wanted, 40)} is not among the {text.count(len(steps))} seen here"

    def on_click(self, event: events.Click) -> None:
        at = event.y - 2 - (self._rows - len(self._shown[self._top : self._top + self._rows]))
        if 0 <= at < self._rows and self._top + at < len(self._shown):
            self.selected = self._shown[self._top + at].step
            self.redraw()


def _by_step(window: Window, first: int) -> dict[int, list[Event]]:
    """Events of the steps from ``first`` on, oldest first."""
    found = defaultdict[int, list[Event]](list)
    for snapshot in reversed(window.snapshots):
        items = snapshot.events.items if snapshot.events is not None else ()
        for event in reversed(items):
            if event.step is not None and event.step >= first:
                found[event.step].append(event)
        if items and items[0].step is not None and items[0].step < first:
            break
    return {step: events[::-1] for step, events in found.items()}


def _marks(happened: Sequence[Event]) -> list[Span]:
    """Letters at the end of a row: how many were preempted and evicted in it."""
    kinds = [event.kind for event in happened]
    marks: list[Span] = []
    if "preempted" in kinds:
        marks.append(Span(f" P{kinds.count('preempted')}", "slow"))
    if "evicted" in kinds:
        marks.append(Span(f" E{kinds.count('evicted')}", "note"))
    return marks


def _work(step: Step, names: Names, width: int, rows: int) -> list[Line]:
    """Prefill chunks first, the largest first, then the decodes, as many as there is room for; the others are
    counted."""
    if step.work_lost:
        return [(dim("who was in it was overwritten before we looked"),)]
    chunks = sorted(step.shares.prefills(), key=lambda work: -work.tokens)
    decodes = step.shares.decodes
    most = rows * max(1, width // 8)
    parts: list[Piece] = []
    for work in chunks[:most]:
        who = Span(names(work.request), owner_ink(work.request))
        tokens, context = text.count(work.tokens), text.count(work.context)
        parts.append(line(dim("prefill "), who, f" {tokens}", dim(f" on {context}{'' if parts else ' tokens'}")))
    for index, work in enumerate(step.shares.first_decodes(most - len(parts))):
        who = Span(names(work.request), owner_ink(work.request))
        unit = "" if parts else " tokens"
        context = f" on {text.count(work.context)}{unit}"
        parts.append(line(dim("" if index else f"decode {decodes}: "), who, dim(context)))
    if not parts:
        return [(dim("nothing ran in it"),)]

    def drawn(shown: int) -> list[Line]:
        others = len(chunks) + decodes - shown
        return flow([*parts[:shown], *([dim(f"and {others} more")] if others else [])], width, " · ")

    fitting = bisect_right(range(1, len(parts) + 1), rows, key=lambda shown: len(drawn(shown)))
    return drawn(max(1, fitting))[:rows]


def _filled(lines: Sequence[Line]) -> list[Line]:
    inner = PANEL - 2
    if len(lines) > inner:
        return [*lines[: inner - 1], (dim(f"and {len(lines) - inner + 1} lines more"),)]
    return [*lines, *[NOTHING] * (inner - len(lines))]
