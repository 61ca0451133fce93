"""The colours, by name: app.tcss knows only these names."""

from textual.theme import Theme

_OWNERS = (
    *("#3b8eea", "#e5a03b", "#3fb950", "#e0559a", "#a07cf0", "#29b8c8"),
    *("#e8d44d", "#f0604d", "#8fc4ff", "#a6d854", "#e39cf0", "#9fb0a6"),
)
"""Twelve colours that tell requests apart, far from each other also where a terminal has only sixteen."""

THEME = Theme(
    name="inferdbg",
    primary="#4c9df3",
    secondary="#8ba3bd",
    accent="#56c7d6",
    success="#4cc38a",
    warning="#f0a63a",
    error="#f4606a",
    foreground="#d6dde6",
    background="#0f1318",
    surface="#161c23",
    panel="#1e2732",
    variables={f"owner-{index}": colour for index, colour in enumerate(_OWNERS)},
)
