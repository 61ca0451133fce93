"""The doctor's answer: what failed first, with its cure, 80 columns wide; and its exit codes."""

import io
import json
import os
import subprocess
import sys

import pytest

from inferdbg.cli.main import main
from inferdbg.cli.verbs import doctor as verb
from inferdbg.cli.verbs.doctor import lines
from inferdbg.errors import Exit
from inferdbg.probes import doctor
from inferdbg.probes.doctor import Check

FINE = Check("gdb", "ok", "GNU gdb 13.1", "C and C++ stacks")
OPEN = Check("driver", "unknown", "there is no NVIDIA driver", "NVML needs it")
WARNED = Check("clock", "warn", "nobody synchronises it", "logs are put in order by it", "timedatectl set-ntp true")
FAILED = Check(
    "yama", "fail", "ptrace_scope 1: \x1b[31monly children", "it decides", "sudo sysctl " + "x" * 60 + " and more words"
)


def run(monkeypatch: pytest.MonkeyPatch, checks: list[Check], *argv: str) -> tuple[int, str]:
    shown = io.StringIO()
    monkeypatch.setattr(doctor, "examine", lambda _: checks)
    monkeypatch.setattr(sys, "stdout", shown)
    return main(["doctor", *argv]), shown.getvalue()


def test_what_failed_comes_first_and_what_is_fine_is_one_line() -> None:
    said = lines([FINE, OPEN, WARNED, FAILED], everything=False)
    assert said == [
        "FAIL  yama: ptrace_scope 1: only children",
        "      it decides",
        "      → sudo sysctl " + "x" * 60,
        "        and more words",
        "warn  clock: nobody synchronises it",
        "      logs are put in order by it",
        "      → timedatectl set-ntp true",
        "?     1 not known: driver",
        "ok    1 ok: gdb",
        "",
        "why something is not known: inferdbg doctor --all",
    ]
    assert lines([FINE, OPEN], everything=True) == [
        "?     driver: there is no NVIDIA driver",
        "ok    gdb: GNU gdb 13.1",
    ]


def test_no_line_is_wider_than_a_terminal() -> None:
    for everything in (False, True):
        real = doctor.examine(verb._place(None))
        assert max(map(len, lines(real, everything=everything))) <= 80


@pytest.mark.parametrize(
    ("checks", "code"),
    [
        ([FINE, OPEN, WARNED], Exit.FINE),
        ([FINE, FAILED], Exit.FINDINGS),
        ([OPEN], Exit.NOTHING_CHECKED),
    ],
)
def test_the_exit_code_says_how_it_went(monkeypatch: pytest.MonkeyPatch, checks: list[Check], code: Exit) -> None:
    assert run(monkeypatch, checks)[0] == code


def test_programs_get_every_check(monkeypatch: pytest.MonkeyPatch) -> None:
    code, shown = run(monkeypatch, [FINE, FAILED], "--json")
    said = json.loads(shown)
    assert (code, said["schema"], said["failed"], said["target"]) == (1, "inferdbg.doctor.v1", 1, None)
    assert [set(check) for check in said["checks"]] == [{"id", "result", "found", "why", "cure"}] * 2


def test_a_target_that_is_not_there_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, [FINE], str(1 << 30))[0] == Exit.UNREACHABLE


def test_a_target_is_its_processes_and_its_owner() -> None:
    with subprocess.Popen([sys.executable, "-c", "print(1, flush=True); input()"], stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        process.stdout.readline()
        place = verb._place(str(process.pid))
        process.kill()
    assert (place.pids, place.uid) == ((process.pid,), os.geteuid())
