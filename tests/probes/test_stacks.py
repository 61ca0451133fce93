"""Stacks of a process that runs, of one that is no Python, of one that is gone; and of a py-spy that says anything."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferdbg.facts.sections.stacks import Stacks as Section
from inferdbg.probes import stacks
from inferdbg.probes.stacks import MOST_CALLS, Stacks, parse, refusal

PROGRAM = "import time\ndef innermost(): print('in', flush=True); time.sleep(60)\ndef outer(): innermost()\nouter()"


@pytest.fixture
def sleeper() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def test_the_calls_of_a_running_process_are_seen_innermost_first(sleeper: int) -> None:
    reading = Stacks((sleeper,), ("engine",)).read(7)
    section = reading.sections["stacks"]
    assert reading.status == "ok"
    assert isinstance(section, Section)
    (process,) = section.processes
    (thread,) = process.threads
    assert (process.pid, process.role, section.origin.mono_ns) == (sleeper, "engine", 7)
    assert [call.function for call in thread.calls] == ["innermost", "outer", "<module>"]
    assert [call.line for call in thread.calls] == [2, 3, 4]
    assert thread.native_id == sleeper


def switches(pid: int) -> list[str]:
    return [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "ctxt_switches" in line]


def test_looking_stops_nobody(sleeper: int) -> None:
    """A stop for tracing is a context switch that the kernel counts and that this one, asleep, does not make itself."""
    look = Stacks((sleeper,), ("",))
    look.read(0)  # by then it sleeps
    before = switches(sleeper)
    look.read(0)
    assert switches(sleeper) == before


def test_what_runs_no_python_says_so_and_the_others_are_shown(sleeper: int) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        alone = Stacks((other.pid,), ("server",)).read(0)
        both = Stacks((other.pid, sleeper), ("", "worker")).read(0)
        other.kill()
    assert (alone.status, alone.sections) == ("absent", {})
    assert alone.message == f"server {other.pid}: it runs no Python that py-spy knows"
    assert both.status == "ok"
    assert both.message.startswith(f"process {other.pid}: ")
    section = both.sections["stacks"]
    assert isinstance(section, Section)
    assert [bool(process.threads) for process in section.processes] == [False, True]


def test_a_process_that_is_gone_says_so() -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    reading = Stacks((ended.pid,), ("",)).read(0)
    assert (reading.status, reading.message) == ("failed", f"process {ended.pid}: it has ended")


def test_without_py_spy_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "program", lambda name: None)
    reading = Stacks((1,), ("",)).read(0)
    assert (reading.status, reading.hint) == ("absent", "pip install py-spy")


def test_names_from_the_target_are_made_safe_and_long_stacks_are_cut() -> None:
    frame = {"name": "f\x1b[2J\n", "filename": "/a/\x07b.py", "short_filename": None, "line": 0}
    encoded = msgspec.json.encode([{"thread_name": "\x1b]0;x", "frames": [frame] * 99, "more": {"than": "we know"}}])
    (thread,) = parse(encoded)
    assert len(thread.calls) == MOST_CALLS
    shown = (thread.name, thread.calls[0].function, thread.calls[0].file)
    assert all(part.isprintable() for part in shown)
    assert thread.calls[0].line == 0
    with pytest.raises(msgspec.DecodeError):
        parse(b'[{"os_thread_id": 1180591620717411303424}]')


@given(st.binary(max_size=200) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(msgspec.json.encode))
def test_whatever_py_spy_prints_is_stacks_or_a_decode_error(printed: bytes) -> None:
    with contextlib.suppress(msgspec.DecodeError):
        assert isinstance(parse(printed), tuple)


def test_a_refusal_is_one_safe_line() -> None:
    assert refusal("Error: it broke\n\nCaused by: \x1b[31mx\n\nStack backtrace:\n 0: a").startswith(
        "it broke Caused by: "
    )
    assert "backtrace" not in refusal("Error: it broke\n\nStack backtrace:\n 0: a")
    assert refusal("") == "py-spy failed and does not say why"
