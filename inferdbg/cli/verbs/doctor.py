"""`inferdbg doctor`: will the evidence be there when it is needed, and what to type so that it is."""

import os
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from inferdbg import text
from inferdbg.cli.options import example, json_option
from inferdbg.cli.output import Output
from inferdbg.errors import Exit, InferdbgError

if TYPE_CHECKING:
    from inferdbg.probes.doctor import Check, Place

SCHEMA = "inferdbg.doctor.v1"
_WIDTH = 80
_ORDER = ("fail", "warn", "unknown", "ok")
_WORDS = {"fail": "FAIL", "warn": "warn", "unknown": "?", "ok": "ok"}
_MARGIN = " " * 6


@click.command(
    short_help="See whether evidence will be there when it is needed:  inferdbg doctor",
    epilog=example(
        "inferdbg doctor", "inferdbg doctor 58", "inferdbg doctor --json | jq '.checks[] | select(.result == \"fail\")'"
    ),
)
@click.argument("target_name", metavar="[TARGET]", required=False)
@click.option("--all", "everything", is_flag=True, help="Also what is fine, and what could not be tried, a line each.")
@json_option
@click.pass_obj
def command(out: Output, target_name: str | None, everything: bool, as_json: bool) -> int:
    """Tries what one needs after an incident, before it: memory, stacks, cores, the kernel's log, black boxes, versions
    and limits, on this machine and for TARGET. Reads, and looks into a child of its own; changes nothing.

    Exit code 1 when something failed, 4 when nothing could be checked.
    """
    from inferdbg.probes.doctor import examine

    out.progress("trying what evidence comes from …")
    checks = examine(_place(target_name))
    out.progress("")
    failed = sum(check.result == "fail" for check in checks)
    if as_json:
        out.show_json({"schema": SCHEMA, "target": target_name, "failed": failed, "checks": checks})
    else:
        out.show("\n".join(lines(checks, everything=everything)))
    if all(check.result == "unknown" for check in checks):
        return Exit.NOTHING_CHECKED
    return Exit.FINDINGS if failed else Exit.FINE


def _place(target_name: str | None) -> "Place":
    """Of what was named, or of this machine alone. Raises InferdbgError where there is no such thing."""
    from inferdbg.blackbox.writer import default_folders
    from inferdbg.cli.target import engine_of
    from inferdbg.probes.doctor import Place

    folder = os.path.dirname(default_folders(os.geteuid())[0])
    if target_name is None:
        return Place(box_folder=folder, uid=os.geteuid())
    try:
        engine = engine_of(target_name)
    except InferdbgError:
        if not (target_name.isdecimal() and os.path.exists(f"/proc/{target_name}")):
            raise
        return Place(pids=(int(target_name),), box_folder=folder, uid=_owner(int(target_name)))  # any process will do
    members = [member.pid for member in getattr(engine, "members", ())]
    pids = [engine.pid, *members] if engine.pid is not None else []
    if engine.box_path is not None:
        folder = os.path.dirname(engine.box_path)
    uid = _owner(engine.pid)
    return Place(pids=tuple(dict.fromkeys(pids)), box_folder=folder, uid=uid)


def _owner(pid: int | None) -> int:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return os.geteuid()


def lines(checks: Sequence["Check"], *, everything: bool) -> list[str]:
    """At most 80 columns wide: what failed first, each with its cure; what is fine, and what is not known, in one line
    each, unless ``everything``."""
    found: list[str] = []
    for result in _ORDER:
        alike = [check for check in checks if check.result == result]
        if result in ("fail", "warn") or everything:
            for check in alike:
                found += _check_lines(check)
        elif alike:
            named = ", ".join(check.id for check in alike)
            said = "ok" if result == "ok" else "not known"
            found += _wrapped(f"{_WORDS[result]:<6}", f"{len(alike)} {said}: {named}")
    if not everything and any(check.result == "unknown" for check in checks):
        found += ["", "why something is not known: inferdbg doctor --all"]
    return found


def _check_lines(check: "Check") -> list[str]:
    said = _wrapped(f"{_WORDS[check.result]:<6}", f"{check.id}: {text.safe(check.found)}")
    if check.result in ("fail", "warn"):
        said += _wrapped(_MARGIN, check.why)
    if check.cure and check.result != "ok":
        said += _wrapped(f"{_MARGIN}→ ", text.safe(check.cure))
    return said


def _wrapped(label: str, words: str) -> list[str]:
    return textwrap.wrap(
        words, _WIDTH, initial_indent=label, subsequent_indent=" " * len(label), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
