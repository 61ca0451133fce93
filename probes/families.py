"""Which processes are one server: by marks that engines leave, by parents, and who is left when a front end is gone."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from .process_table import Stat, descendants
from .roles import FRONT_END, LAUNCHER, Part, part_of_title

_REAPERS = re.compile(
    r"systemd|init$|tini|dumb-init|docker-init|catatonit|containerd-shim|conmon|supervisord|s6-|runit"
)


class Known(NamedTuple):
    """A process that belongs to an engine, by its title or its arguments. ``name``: its title, whole where known."""

    part: Part
    name: str
    argv: tuple[str, ...] = ()


class Family(Struct, frozen=True):
    """``root``: its front end; None when that is gone. ``pids``: all, the root first."""

    engine: str
    root: int | None
    pids: tuple[int, ...]


def families(table: Mapping[int, Stat], known: Mapping[int, Known]) -> list[Family]:
    """Processes of the same server together. The front end is the topmost that carries an engine's mark, or the program
    that started an engine core: that is in the same session, which whoever takes over orphans is not."""
    parents = {stat.pid: stat.parent for stat in table.values()}
    found: dict[int, Family] = {}
    orphans: dict[tuple[str, int], list[int]] = {}
    for pid in sorted(known):
        engine, top = known[pid].part.engine, _topmost(pid, table, known)
        if known[top].part.role not in (FRONT_END, LAUNCHER):
            above = _program_above(top, table)
            if above is None:
                alone = orphans.setdefault((engine, table[top].group), [])
                alone += [one for one in (top, *descendants(top, parents)) if one not in alone]
                continue
            top = above
        if top not in found:
            found[top] = Family(engine, top, (top, *descendants(top, parents)))
    return [*found.values(), *(Family(engine, None, tuple(pids)) for (engine, _), pids in orphans.items())]


def by_titles(table: Mapping[int, Stat]) -> dict[int, Known]:
    """Those that an engine has given a title: what can be known without reading any arguments."""
    parts = ((stat, part_of_title(stat.comm)) for stat in table.values())
    return {stat.pid: Known(part, stat.comm) for stat, part in parts if part is not None}


def _topmost(pid: int, table: Mapping[int, Stat], known: Mapping[int, Known]) -> int:
    """The highest ancestor of the same engine, whatever stands between."""
    engine, top, above = known[pid].part.engine, pid, table[pid].parent
    seen = {pid}
    while above in table and above not in seen:
        seen.add(above)
        if above in known and known[above].part.engine == engine:
            top = above
        above = table[above].parent
    return top


def _program_above(pid: int, table: Mapping[int, Stat]) -> int | None:
    """The program that started an engine core or a worker; None when somebody has taken it over."""
    own, parent = table[pid], table.get(table[pid].parent)
    if parent is None or _REAPERS.search(parent.comm):
        return None
    return parent.pid if parent.session == own.session and parent.start_ticks <= own.start_ticks else None
