"""Real processes read by real tools, each refusal with what cures it; nobody stays stopped, nobody is ended."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferdbg.facts.sections.stacks import ProcessStacks
from inferdbg.probes import stacks as py_spy_module
from inferdbg.probes import tools
from inferdbg.probes.stack_chain import How, handles, look_at
from inferdbg.probes.tools import Unread, run

PYTHON = "import time\ndef innermost(): print('in', flush=True); time.sleep(60)\ninnermost()"
WITH_HANDLER = f"import faulthandler, signal\nfaulthandler.register(signal.SIGUSR1)\n{PYTHON}"


@contextlib.contextmanager
def running(program: str, stderr: object = None) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=stderr) as process:  # type: ignore[call-overload]
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine where nothing is installed."""
    monkeypatch.setattr(tools, "program", lambda name: None)
    monkeypatch.setattr(py_spy_module, "program", lambda name: None)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def test_a_live_look_has_calls_and_the_kernels_word_and_stops_nobody() -> None:
    with running(PYTHON) as process:
        found = look_at(ProcessStacks(process.pid, "worker", rank="1"), How())
    (thread,) = found.threads
    assert (found.tool, found.role, found.rank, found.paused_ns, found.refusals) == ("py-spy", "worker", "1", None, ())
    assert (thread.calls[0].function, thread.state, thread.kernel_wait) == ("innermost", "S", "hrtimer_nanosleep")


def test_a_stop_is_measured_and_over_afterwards() -> None:
    with running(PYTHON) as process:
        found = look_at(ProcessStacks(process.pid), How(native=True))
        assert state(process.pid) == "S"
    assert found.tool == "py-spy"
    assert found.paused_ns is not None
    assert any(call.native for call in found.threads[0].calls)


def test_what_runs_no_python_is_shown_by_the_kernel_and_by_gdb_where_a_stop_is_asked_for() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        live = look_at(ProcessStacks(process.pid), How())
        stopped = look_at(ProcessStacks(process.pid), How(stop=True))
        assert state(process.pid) == "S"
        process.kill()
    assert (live.tool, live.threads[0].kernel_wait) == ("/proc", "hrtimer_nanosleep")
    assert live.why == "it runs no Python that py-spy knows"
    assert stopped.tool == "gdb"
    assert [refusal.tool for refusal in stopped.refusals] == ["py-spy", "pystack"]
    assert any("nanosleep" in call.function for call in stopped.threads[0].calls)


@pytest.mark.usefixtures("no_tools")
def test_each_missing_tool_says_what_to_type() -> None:
    with running(PYTHON) as process:
        found = look_at(ProcessStacks(process.pid), How())
        asked = look_at(ProcessStacks(process.pid), How(stop=True))
    assert [(one.tool, one.cure) for one in found.refusals] == [
        ("py-spy", "pip install py-spy"),
        ("pystack", "pip install pystack"),
        ("gdb", f"inferdbg stacks {process.pid} --stop"),
    ]
    assert [one.cure for one in asked.refusals][-1].startswith("install gdb")
    assert (found.tool, found.threads[0].state) == ("/proc", "S")


@pytest.mark.usefixtures("no_tools")
def test_faulthandler_is_asked_only_where_it_listens(tmp_path: Path) -> None:
    with (tmp_path / "stderr").open("wb") as stderr, running(WITH_HANDLER, stderr) as process:
        found = look_at(ProcessStacks(process.pid), How(ask=signal.SIGUSR1))
        assert found.tool == "faulthandler"
        assert found.threads[0].calls[0].function == "innermost"
        unasked = look_at(ProcessStacks(process.pid), How())
        assert "faulthandler" not in [one.tool for one in unasked.refusals]
    with running(PYTHON) as process:
        found = look_at(ProcessStacks(process.pid), How(ask=signal.SIGUSR1))
        assert process.poll() is None
        assert state(process.pid) == "S"
    assert found.refusals[-1].why == "it has no handler for SIGUSR1, which would end it"


@pytest.mark.usefixtures("no_tools")
def test_what_faulthandler_writes_elsewhere_is_said() -> None:
    with running(WITH_HANDLER, subprocess.DEVNULL) as process:
        found = look_at(ProcessStacks(process.pid), How(ask=signal.SIGUSR1))
    assert "goes to its stderr, /dev/null" in found.refusals[-1].why


def test_handlers_are_read_from_the_mask() -> None:
    assert handles(b"SigCgt:\t0000000100000200\n", signal.SIGUSR1)
    assert not handles(b"SigCgt:\t0000000100000200\n", signal.SIGUSR2)
    assert not handles(b"SigCgt:\tnonsense\n", signal.SIGUSR1)
    assert not handles(b"", signal.SIGUSR1)


def test_a_process_that_is_gone_says_so() -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    assert look_at(ProcessStacks(ended.pid), How(stop=True)).why == "it has ended"


def test_a_tool_that_hangs_is_given_up() -> None:
    with pytest.raises(Unread, match="did not finish"):
        run("sleep", ["60"], 0.1)
