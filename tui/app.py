"""The application: one header, one view at a time, and a hand on the time that all of them show."""

import gc
import select
import signal
import sys
from asyncio import get_running_loop
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import ClassVar

from textual import events
from textual.app import App as TextualApp
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen

from inferdbg import text
from inferdbg.errors import InferdbgError
from inferdbg.facts.source import Source
from inferdbg.facts.window import SECOND

from .drawing.header import header_line, keys_line, problem_line, tab_words, tabs_line, timeline_line, trouble
from .driver import Driver
from .feed import Diagnose, Feed, FeedThread, Wish
from .frame import Frame
from .ink import Line, dim, line
from .lineview import LineView, drawn_at_once
from .theme import THEME
from .view import View, bound
from .views import VIEWS

_COLLECT_AFTER = 4_000
"""Objects; seconds of a busy server."""
_M_MMAP_THRESHOLD = -3  # malloc.h of glibc
_LARGE = 1 << 20
"""Bytes, as what all columns of a large pool take together: that comes and goes, and among small things that stay it
would leave holes, ten megabytes of them after minutes."""
TERMINAL_EVERY_S = 2.0
"""How often it is asked whether the terminal is still there."""


_NEXT = "server.next"
_TABS = [(str(index + 1), view.title) for index, view in enumerate(VIEWS)]
_EDGES = ("header", "problem", "timeline", "keys")


class Tabs(LineView):
    """The line of views; a click changes to one."""

    widths: Sequence[int] = ()
    """Of each view's word, as they stand now."""

    def on_click(self, event: events.Click) -> None:
        edge = 1
        for index, width in enumerate(self.widths):
            edge += width
            if event.x < edge:
                self.app.run_worker(self.app.run_action(f"view({index})"), exclusive=False)
                return


class App(TextualApp[bool]):
    """Shows a Source. Everything in it that reads or thinks runs on the feed's thread; this one only draws. Its result
    is True when the person wants to see the next server. ``place``: which of several this one is, ``1/3``."""

    CSS_PATH = "app.tcss"
    TITLE = "inferdbg"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        bound("time.pause", "space", "pause", "pause", "Stop here or go on; a recording plays", shown="space"),
        bound(
            "time.back", "left,comma", "scrub(-1)", "1 s", "A second back; where arrows select: , and .", shown="← →"
        ),
        bound("time.forward", "right,full_stop", "scrub(1)", "a second forward"),
        bound("time.back-10", "shift+left,less_than_sign", "scrub(-10)", "ten seconds back"),
        bound("time.forward-10", "shift+right,greater_than_sign", "scrub(10)", "ten seconds forward"),
        bound("time.step-back", "left_square_bracket", "step(-1)", "snapshot", "The snapshot before", shown="[ ]"),
        bound("time.step", "right_square_bracket", "step(1)", "the next snapshot"),
        bound("time.first", "home", "first", "the beginning", "The first moment that can be shown"),
        bound("time.last", "end", "last", "newest", "The last moment; a live target is followed again", shown="end"),
        *(
            bound(f"view.{view.view_name()}", str(index + 1), f"view({index})", view.title, view.about)
            for index, view in enumerate(VIEWS)
        ),
        bound("view.next", "tab", "next_view(1)", "view", "The next view", shown="tab", first=True),
        bound("view.previous", "shift+tab", "next_view(-1)", "the view before", first=True),
        bound(_NEXT, "e", "next_server", "server", "The next server, where top found several", shown="e"),
        bound("find", "slash", "find", "find", "Look for something in this view", shown="/"),
        bound("help", "question_mark,f1", "help", "help", "All keys and what the marks mean", shown="?"),
        bound("suspend", "ctrl+z", "suspend_process", "to the background", "Back to the shell; fg returns", first=True),
        bound("quit", "q,ctrl+c", "quit", "quit", "Leave; the target goes on as before", shown="q"),
    ]

    class Ended(Message):
        """The feed came to its end by an error."""

        def __init__(self, error: Exception) -> None:
            super().__init__()
            self.error = error

    def __init__(
        self,
        source: Source,
        diagnose: Diagnose,
        interval_s: float = 0.25,
        at_ns: int | None = None,
        place: str = "",
    ) -> None:
        super().__init__(driver_class=Driver)
        self._place = place
        self.register_theme(THEME)
        self.theme = THEME.name
        self.frame: Frame | None = None
        self.failure: InferdbgError | None = None
        self.current: type[View] = VIEWS[0]
        self.starting = False
        """Whether garbage collection waits for the first picture."""
        self._built = False
        self._coming: deque[Frame] = deque(maxlen=1)
        self._views = {self.current: self.current()}
        self._edges = {"tabs": Tabs(id="tabs"), **{id: LineView(id=id) for id in _EDGES}}
        feed = Feed(source, diagnose, round(interval_s * SECOND), at_ns)
        self._subject = source.title
        self._feed = FeedThread(
            feed,
            interval_s,
            self._deliver,
            lambda error: self.post_message(self.Ended(error)),
        )

    def compose(self) -> ComposeResult:
        yield self._edges["header"]
        yield self._edges["tabs"]
        yield self.view
        yield self._edges["problem"]
        yield self._edges["timeline"]
        yield self._edges["keys"]

    def on_load(self) -> None:
        self._wake = partial(get_running_loop().call_soon_threadsafe, self._draw_coming, context=copy_context())
        self._feed.start()  # the first Snapshot is read while the screen is being built

    def on_mount(self) -> None:
        self._built = True
        self._draw_edges()
        self.view.focus()
        if self.frame is not None:
            self.view.show(self.frame)
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))  # back from the shell
        if sys.__stdin__ is not None and sys.__stdin__.isatty():
            self.set_interval(TERMINAL_EVERY_S, self._end_without_a_terminal)

    def _end_without_a_terminal(self) -> None:
        if sys.__stdin__ is not None and _hung_up(sys.__stdin__.fileno()):
            self.exit()

    def on_unmount(self) -> None:
        self._feed.stop()

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._draw_edges)

    def _deliver(self, frame: Frame) -> None:
        """From the feed's thread. No message: to send one four times a second costs a tenth of all that we do."""
        self._coming.append(frame)
        with suppress(RuntimeError):  # the loop is closed: nobody looks any more
            self._wake()

    def _draw_coming(self) -> None:
        """Draws the last Frame; those that were not drawn in time gave way to it."""
        try:
            if self._coming:
                self.frame = self._coming.pop()
                if self._built and self.screen_stack:  # none is left while the app ends
                    self._draw_frame(self.frame)
        except Exception as error:  # noqa: BLE001  as Textual does for what its messages bring about
            self._handle_exception(error)

    def _draw_frame(self, frame: Frame) -> None:
        with drawn_at_once(self):
            self.view.show(frame)
            self._draw_moment(frame)
        if self.starting:
            self.starting = False
            self.call_after_refresh(_settled)

    def on_app_ended(self, message: Ended) -> None:
        if not isinstance(message.error, InferdbgError):
            raise message.error
        self.failure = message.error
        self.exit()

    def on_view_jump(self, message: View.Jump) -> None:
        self._change_to(next(view for view in VIEWS if view.view_name() == message.view))
        self.view.show_request(message.request)

    @property
    def view(self) -> View:
        """The view that is shown."""
        return self._views[self.current]

    def _change_to(self, view: type[View]) -> None:
        if view is not self.current:
            self.view.display = False
            self.view.frame = None  # a large one holds megabytes
            self.current = view
            if view in self._views:
                self.view.display = True
            else:
                self._views[view] = view()
                self.screen_stack[0].mount(self.view, before=self._edges["problem"])
        self.view.focus()
        if self.frame is not None:
            self.view.show(self.frame)
        self._draw_edges()

    def _draw_edges(self) -> None:
        """What changes with the view and the size."""
        width = self.size.width
        self._edge("keys", keys_line(*self._keys(), width))
        if self.frame is not None:
            self._draw_moment(self.frame)
        else:
            self._draw_tabs(())
            self._edge("header", line(" inferdbg ", dim(f"looking at {text.safe(self._subject)} …")))

    def _draw_tabs(self, ails: Line) -> None:
        asked = (_TABS, self.current.title, self.size.width, ails)
        self._edge("tabs", tabs_line(*asked))
        self.query_one(Tabs).widths = [len(word) for word in tab_words(*asked)]

    def _draw_moment(self, frame: Frame) -> None:
        """What changes with every Frame."""
        width = self.size.width
        self._edge("header", header_line(frame, width))
        self._draw_tabs(() if self.current is VIEWS[0] else trouble(frame))
        for id, shown, draw in (
            ("problem", bool(frame.problem), problem_line),
            ("timeline", frame.mode in ("paused", "playing"), timeline_line),
        ):
            self._edges[id].display = shown
            if shown:
                self._edge(id, draw(frame, width))

    def _edge(self, id: str, drawn: Line) -> None:
        self._edges[id].put([drawn])

    def _keys(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Keys of the view and of the application, and those that are always named. Where the view takes the arrows
        for itself, time has its other keys."""
        own = [binding for binding in self.current.BINDINGS if isinstance(binding, Binding)]
        taken = {key for binding in own for key in binding.key.split(",")}
        keys: list[tuple[str, str]] = []
        always: list[tuple[str, str]] = []
        for binding in (*own, *(binding for binding in self.BINDINGS if isinstance(binding, Binding))):
            if not binding.key_display or (binding.id == "find" and not self.current.finds):
                continue
            if binding.id == _NEXT:
                if self._place:
                    always.append((binding.key_display, f"{binding.description} {self._place}"))
                continue
            shown = ", ." if binding.id == "time.back" and "left" in taken else binding.key_display
            (always if binding.id in ("help", "quit") else keys).append((shown, binding.description))
        return keys, always

    def action_pause(self) -> None:
        self._feed.wish(Wish("pause"))

    def action_scrub(self, seconds: int) -> None:
        self._feed.wish(Wish("scrub", seconds * SECOND))

    def action_step(self, steps: int) -> None:
        self._feed.wish(Wish("step", steps))

    def action_first(self) -> None:
        self._feed.wish(Wish("first"))

    def action_last(self) -> None:
        self._feed.wish(Wish("last"))

    def action_view(self, index: int) -> None:
        self._change_to(VIEWS[index])

    def action_next_view(self, step: int) -> None:
        if len(self.screen_stack) == 1:  # else help or the search has the keys
            self._change_to(VIEWS[(VIEWS.index(self.current) + step) % len(VIEWS)])

    def action_next_server(self) -> None:
        if self._place:
            self.exit(True)

    def action_find(self) -> None:
        if self.current.finds:
            from .prompt import Prompt  # as is this, with its text field

            self.push_screen(Prompt(self.view))

    def action_help(self) -> None:
        from .help import Help  # what most never open is not loaded

        self.push_screen(Help(self.current, VIEWS, self.BINDINGS))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[object]:  # type: ignore[override]
        """None: there is no command palette."""
        return ()


def run(
    source: Source, diagnose: Diagnose, interval_s: float = 0.25, at_ns: int | None = None, place: str = ""
) -> bool:
    """Shows the source until the person leaves; ``at_ns``: paused there at first. Gives the result of App. Raises
    InferdbgError when it could not be read at all."""
    app = App(source, diagnose, interval_s, at_ns, place)
    app.starting = True
    to_next = app.run()
    for number in (signal.SIGTSTP, signal.SIGCONT):
        signal.signal(number, signal.SIG_DFL)  # Textual's would hold the screen and all it showed, for ever
    if app.failure is not None:
        raise app.failure
    return to_next is True


def _hung_up(terminal: int) -> bool:
    """Its other end is closed (a connection broke, and no signal told): textual would read from it for ever."""
    poll = select.poll()
    poll.register(terminal, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def _settled() -> None:
    """What was loaded stays until the end: from now on the collector only looks at what came after it, and seldom:
    what is read and drawn has no cycles. And what is large is kept apart."""
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER)
    gc.enable()
    import ctypes  # what takes time to load, after the first picture

    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_MMAP_THRESHOLD, _LARGE)  # pages of their own, given back when free
