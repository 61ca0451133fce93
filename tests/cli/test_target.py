"""What a person names is found, and what is not found is said so that they can go on."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from inferdbg.cli import here
from inferdbg.cli.depth import Wanted
from inferdbg.cli.here import joined, nothing_found, the_only_one
from inferdbg.cli.naming import line_of, name_of
from inferdbg.cli.target import brief_source, engine_of, probes_of, source_of, source_of_file
from inferdbg.errors import Exit, InferdbgError
from inferdbg.probes import nvml
from inferdbg.probes.discovery import Found, FoundEngine
from inferdbg.probes.servers import FoundServer, Member

MINUTE = 60_000_000_000
MEMBERS = (Member(70, "vllm", "front end"), Member(72, "VLLM::EngineCore", "engine core"))
SERVER = FoundServer("vllm", MEMBERS, 12 * MINUTE, "http://127.0.0.1:8100", model="/m/tiny", uid=os.geteuid())
ORPHANS = FoundServer("vllm", MEMBERS[1:], MINUTE, orphaned=True, memory_bytes=3 << 20, uid=os.geteuid())
LIVING = FoundEngine("/dev/shm/b/58.box", "alive", 12 * MINUTE, 58, "SmolLM2-135M", "http://127.0.0.1:8000")
OTHER = FoundEngine("/dev/shm/b/61.box", "alive", 3 * MINUTE, 61)
DEAD = FoundEngine("/dev/shm/b/40.box", "dead", 2 * MINUTE, 40, "SmolLM2-135M")


def test_an_engine_is_described_in_a_line() -> None:
    assert line_of(LIVING) == "pid 58 · SmolLM2-135M · http://127.0.0.1:8000 · up 12 min"
    assert line_of(DEAD) == "pid 40 · SmolLM2-135M · dead for 2 min"
    assert (name_of(LIVING), name_of(DEAD)) == ("pid 58", "40.box")


def test_of_one_living_engine_nothing_need_be_named() -> None:
    assert the_only_one(Found((LIVING, DEAD))) is LIVING


def test_of_several_living_engines_one_must_be_named() -> None:
    with pytest.raises(InferdbgError) as caught:
        the_only_one(Found((LIVING, OTHER, DEAD)))
    assert caught.value.code == Exit.USAGE
    assert caught.value.message == "2 engines run here: name one"
    assert caught.value.hint.splitlines()[1] == "inferdbg attach 61   pid 61 · up 3 min"


def test_where_nothing_lives_the_dead_are_named_and_a_demo_is_offered() -> None:
    with pytest.raises(InferdbgError) as caught:
        the_only_one(Found((DEAD,), unseen=("/x is another user's: run inferdbg with sudo",)))
    assert caught.value.code == Exit.NOTHING_CHECKED
    assert caught.value.hint.splitlines() == [
        "inferdbg attach /dev/shm/b/40.box   pid 40 · SmolLM2-135M · dead for 2 min",
        "/x is another user's: run inferdbg with sudo",
        "inferdbg top --demo   starts a small engine under traffic and shows it",
    ]


def test_many_dead_are_counted_not_listed() -> None:
    hint = nothing_found(Found((DEAD,) * 20)).hint.splitlines()
    assert len(hint) == 7
    assert hint[5] == "and 15 more in /dev/shm/b"


def test_processes_are_looked_at_while_they_live_and_the_kernels_log_also_later() -> None:
    assert [probe.name for probe in probes_of(LIVING)] == ["engine box", "processes", "stacks", "kernel log", "nvml"]
    assert [probe.name for probe in probes_of(DEAD)] == ["engine box", "kernel log"]


def test_one_look_starts_no_child() -> None:
    assert [probe.isolated for probe in probes_of(LIVING)[:4]] == [False, True, False, True]
    assert not any(probe.isolated for probe in probes_of(LIVING, brief=True)[:4])


def test_gpus_are_read_in_a_child_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARY", "libc.so.6")  # one that is there
    for brief in (False, True):
        assert probes_of(LIVING, brief=brief)[-1].isolated
    monkeypatch.setattr(nvml, "LIBRARY", "libnvidia-ml.so.none")
    for brief in (False, True):
        probe = probes_of(LIVING, brief=brief)[-1]
        assert not probe.isolated
        assert probe.read(0).message == "no NVML: there is no libnvidia-ml.so.none"


def test_depth_reported_of_a_bundled_engine_reads_no_box_and_the_others_are_refused() -> None:
    probes = probes_of(LIVING, Wanted("reported"))
    assert [probe.name for probe in probes] == ["processes", "reported", "kernel log", "nvml"]
    with pytest.raises(InferdbgError, match="depth memory is for other people's servers"):
        probes_of(LIVING, Wanted("memory"))
    with pytest.raises(InferdbgError, match="does not answer HTTP"):
        probes_of(DEAD, Wanted("reported"))


def test_stacks_that_nobody_asked_for_say_how_to_see_them() -> None:
    stacks = next(probe for probe in probes_of(LIVING) if probe.name == "stacks").read(0)
    assert (stacks.status, stacks.hint) == ("absent", f"inferdbg attach {LIVING.pid} --depth stacks")


def test_a_server_is_described_in_a_line() -> None:
    assert line_of(SERVER) == "pid 70 · vllm · tiny · http://127.0.0.1:8100 · up 12 min"
    assert line_of(replace(SERVER, url=None, starting=True, container="0a1b", uid=4321)) == (
        "pid 70 · vllm · tiny · starting for 12 min · in container 0a1b · of uid 4321"
    )
    assert line_of(ORPHANS) == "orphans of vllm: pid 72 (engine core) holds 3 MiB; to free it: kill 72"


def test_a_foreign_server_counts_as_an_engine_and_orphans_do_not() -> None:
    assert the_only_one(Found((DEAD,), servers=(SERVER, ORPHANS))) is SERVER
    with pytest.raises(InferdbgError, match="2 servers run here"):
        the_only_one(Found((LIVING,), servers=(SERVER,)))
    with pytest.raises(InferdbgError) as caught:
        the_only_one(Found(servers=(ORPHANS,)))
    assert caught.value.hint.startswith("inferdbg attach 72   orphans of vllm")


RANKS = tuple(
    replace(SERVER, members=(Member(72 + rank, "VLLM::EngineCore"),), ranks=2, rank=f"DP{rank}", served_by=70)
    for rank in range(2)
)
GROUP = replace(SERVER, ranks=2, members=(SERVER.members[0], *(one for rank in RANKS for one in rank.members)))


def test_data_parallel_ranks_are_named_one_by_one_and_their_server_by_its_own_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box = FoundEngine("/dev/shm/b/73.box", "alive", MINUTE, 73)
    found = joined(Found((box,), servers=(GROUP, *RANKS)))
    assert [one.box_path for one in found.servers] == [None, None, "/dev/shm/b/73.box"]
    with pytest.raises(InferdbgError, match="2 servers run here") as caught:
        the_only_one(found)
    assert caught.value.hint.splitlines() == [
        "inferdbg attach 72   pid 72 · vllm · DP0 of 2 · tiny · http://127.0.0.1:8100 · up 12 min",
        "inferdbg attach 73   pid 73 · vllm · DP1 of 2 · tiny · http://127.0.0.1:8100 · up 12 min",
    ]
    monkeypatch.setattr(here, "discovered", lambda: found)
    monkeypatch.setattr(here, "with_boxes", lambda: Found((), servers=()))
    assert [name_of(engine_of(word)) for word in ("70", "72", "73", ":8100")] == [
        "pid 70, 2 ranks",
        "pid 72, DP0 of 2",
        "pid 73, DP1 of 2",
        "pid 70, 2 ranks",
    ]


def test_a_rank_whose_others_run_elsewhere_is_named_as_one() -> None:
    alone = replace(SERVER, members=(MEMBERS[0], replace(MEMBERS[1], rank="DP3")))
    assert (name_of(alone), name_of(SERVER)) == ("pid 70, DP3", "pid 70")


def test_a_plug_ins_box_belongs_to_the_server_that_it_is_in() -> None:
    box = FoundEngine("/dev/shm/b/72.box", "alive", MINUTE, 72)
    found = joined(Found((LIVING, box), servers=(SERVER,)))
    assert found.engines == (LIVING,)
    assert found.servers == (replace(SERVER, box_path="/dev/shm/b/72.box"),)
    assert [probe.name for probe in probes_of(found.servers[0])][:2] == ["engine box", "processes"]


@pytest.mark.parametrize("read", [engine_of, source_of, source_of_file])
@pytest.mark.parametrize("kind", ["fifo", "socket", "device"])
def test_what_is_no_regular_file_is_refused_before_it_is_opened(
    read: Callable[[str], object], kind: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "58.box")
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        os.symlink("/dev/tty", path)
    with socket.socket(socket.AF_UNIX) as listening:
        if kind == "socket":
            listening.bind(path)
        with pytest.raises(InferdbgError, match="is not a regular file") as caught:
            read(path)
    assert caught.value.code == Exit.USAGE


@pytest.mark.parametrize("typed", ["²", "٣٤", "9" * 5000, "-1", "1.5"])
def test_only_plain_digits_are_a_pid(typed: str) -> None:
    with pytest.raises(InferdbgError, match="there is no file"):
        engine_of(typed)


def test_who_looks_gives_way_to_the_server() -> None:
    try:
        brief_source(LIVING)
        assert os.sched_getscheduler(0) == os.SCHED_BATCH
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@pytest.mark.parametrize(
    ("code", "said"), [("os.kill(os.getpid(), 9)", "by signal 9 (Killed)"), ("sys.exit(3)", "with exit status 3")]
)
def test_a_process_that_ended_and_is_not_collected_yet_is_said_to_have_ended(code: str, said: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", f"import os, sys; {code}"])
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(InferdbgError, match=f"process {child.pid} .* has ended {re.escape(said)}"):
            engine_of(str(child.pid))
    finally:
        child.wait()
