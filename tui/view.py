"""What a view is: it gets a Frame, draws it as lines, and keeps nothing but its cursor and its order."""

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding
from textual.message import Message

from .frame import Frame
from .ink import Line
from .lineview import LineView


def bound(
    id: str, keys: str, action: str, description: str, tooltip: str = "", *, shown: str = "", first: bool = False
) -> Binding:
    """A binding. ``shown`` is how the line of keys writes it, without it only the help tells of it; ``first``: it is
    asked before those of Textual's own."""
    return Binding(
        keys,
        action,
        description,
        show=bool(shown),
        key_display=shown or None,
        tooltip=tooltip or description,
        id=id,
        priority=first,
    )


class View(LineView, can_focus=True):
    """One picture of a Frame. To add one: a file in views/ and its class in views/__init__.py; its place there is its
    key, its BINDINGS are its help."""

    title: ClassVar[str]
    about: ClassVar[str]
    """The sentence that help says of it."""
    finds: ClassVar[str] = ""
    """What ``/`` looks for here; empty when it looks for nothing."""

    class Jump(Message):
        """Another view should show this request."""

        def __init__(self, view: str, request: int) -> None:
            super().__init__()
            self.view = view
            self.request = request

    def __init__(self) -> None:
        super().__init__(id=self.view_name())
        self.frame: Frame | None = None

    @classmethod
    def view_name(cls) -> str:
        """Named like its file."""
        return cls.__module__.rsplit(".", 1)[-1]

    def show(self, frame: Frame) -> None:
        self.frame = frame
        self.redraw()

    def redraw(self) -> None:
        """Draws the last Frame again, after a key or a new size."""
        if self.frame is not None and self.size.width > 0:
            self.put(self.draw(self.frame, self.size.width, self.size.height))

    def draw(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        """At most ``height`` lines of at most ``width`` columns."""
        return ()

    def find(self, wanted: str) -> str:
        """Goes to what is wanted, to nothing when that is empty; what to say when it is not there."""
        return ""

    def show_request(self, number: int) -> None:
        """Another view sent us here to look at this request."""

    def on_resize(self, event: events.Resize) -> None:
        self.redraw()
