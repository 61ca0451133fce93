"""The colours by name, and which of them each ink has."""

from collections.abc import Mapping
from typing import NamedTuple

from rich.style import Style
from textual.color import Color
from textual.theme import Theme

_OWNERS = (
    *("#5c7cfa", "#c58b1b", "#2ea043", "#ff79e1", "#a63dbf", "#17a2b8"),
    *("#f5d547", "#ff6b6b", "#7ee8fa", "#8bea5a", "#e6e9ef", "#9fb0c0"),
)
"""Twelve colours that tell requests apart, far from each other also where a terminal has only sixteen."""

THEME = Theme(
    name="inferdbg",
    primary="#4c9df3",
    secondary="#8ba3bd",
    accent="#56c7d6",
    success="#3fd17f",
    warning="#f2c14e",
    error="#f4606a",
    foreground="#d6dde6",
    background="#0f1318",
    surface="#161c23",
    panel="#1e2732",
    variables={f"owner-{index}": colour for index, colour in enumerate(_OWNERS)},
)


class Look(NamedTuple):
    """An ink by names of the theme. ``alpha``: how far it stands out from its background; ``on``: its background,
    empty for that of the widget."""

    colour: str = "foreground"
    alpha: float = 1.0
    bold: bool = False
    reverse: bool = False
    on: str = ""


LOOKS: Mapping[str, Look] = {
    "": Look(),
    "dim": Look(alpha=0.55),
    "label": Look("secondary"),
    "value": Look(bold=True),
    "accent": Look("accent"),
    "key": Look("accent", bold=True),
    "tab": Look(alpha=0.7),
    "tab-on": Look(bold=True, reverse=True),
    "border": Look(alpha=0.4),
    "cursor": Look(bold=True, reverse=True),
    "ok": Look("success", bold=True),
    "note": Look("secondary"),
    "slow": Look("warning", bold=True),
    "wrong": Look("error", bold=True),
    "stuck": Look("error", bold=True),
    "dead": Look("error", bold=True),
    "unseen": Look("warning"),
    "free": Look(alpha=0.3),
    "cached": Look(alpha=0.5),
    "used": Look("primary"),
    "shared": Look("accent"),
    "hot": Look(bold=True),
    "lit": Look("background", bold=True, on="warning"),
    "lit-first": Look("background", bold=True, on="success"),
    "unlit": Look(alpha=0.22),
    "empty": Look(),
    "prefill": Look("warning"),
    "prefill-other": Look("warning", alpha=0.7),
    "decode": Look("success"),
    "schedule": Look("secondary"),
    "prepare": Look("accent"),
    "forward": Look("primary"),
    "sample": Look("warning"),
    "commit": Look("success"),
    **{f"owner-{index}": Look(f"owner-{index}") for index in range(12)},
    **{f"shared-{index}": Look(f"owner-{index}") for index in range(12)},
    **{f"hot-{index}": Look("background", bold=True, on=f"owner-{index}") for index in range(12)},
}
"""Every ink that a Span may name."""


def style_of(ink: str, variables: Mapping[str, str], background: Color) -> Style:
    """The ink in the theme's present colours, on a widget's background."""
    look = LOOKS[ink]
    under = Color.parse(variables[look.on]) if look.on else background
    over = under.blend(Color.parse(variables[look.colour]), look.alpha)
    return Style(color=over.rich_color, bgcolor=under.rich_color, bold=look.bold or None, reverse=look.reverse or None)
