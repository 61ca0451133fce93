"""Boxes are found wherever they lie, living ones first; only our own dead ones are ever cleared."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from inferdbg.blackbox import writer
from inferdbg.blackbox.reader import Box
from inferdbg.probes.discovery import DAY_NS, Found, clear_old, discover
from tests.support.boxes import make_box

WALL, MONO = 10**18, 1 << 62


def place(source: str, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    return target


@pytest.fixture
def dead(tmp_path: Path) -> str:
    return make_box(tmp_path / "made", steps=3)


def look(tmp_path: Path, *folders: Path) -> Found:
    proc, root = tmp_path / "proc", tmp_path / "root"
    proc.mkdir(exist_ok=True)
    root.mkdir(exist_ok=True)
    return discover(
        now_wall_ns=WALL, now_mono_ns=MONO, folders=[str(folder) for folder in folders], proc=str(proc), root=str(root)
    )


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    assert look(tmp_path, tmp_path / "no such folder") == Found()


def test_boxes_of_every_user_and_of_every_mount_namespace_are_found(tmp_path: Path, dead: str) -> None:
    own = place(dead, tmp_path / "root/dev/shm/inferdbg-1000/1-2.box")
    other = place(dead, tmp_path / "root/run/user/7/inferdbg-7/3-4.box")
    contained = place(dead, tmp_path / "proc/55/root/dev/shm/inferdbg-0/1-9.box")
    for pid, namespace in (("self", "mnt:[1]"), ("12", "mnt:[1]"), ("55", "mnt:[2]"), ("56", "mnt:[2]")):
        (tmp_path / "proc" / pid / "ns").mkdir(parents=True)
        (tmp_path / "proc" / pid / "ns/mnt").symlink_to(namespace)
    found = look(tmp_path)
    assert {engine.box_path for engine in found.engines} == {str(own), str(other), str(contained)}
    assert all(engine.state == "dead" and engine.model == "no model" for engine in found.engines)


def test_what_an_engine_holds_locked_is_found_wherever_it_lies(tmp_path: Path, dead: str) -> None:
    box = place(dead, tmp_path / "elsewhere/8-8.box")
    (tmp_path / "proc/8/fd").mkdir(parents=True)
    (tmp_path / "proc/8/fd/3").symlink_to(box)
    (tmp_path / "proc/locks").write_text(
        "1: POSIX  ADVISORY  WRITE 8 00:1a:55 0 0\n2: FLOCK  ADVISORY  WRITE 9 00:1a:56 0 EOF\nnonsense\n"
    )
    assert [engine.box_path for engine in look(tmp_path).engines] == [str(box)]


def test_a_box_that_two_ways_lead_to_is_one(tmp_path: Path, dead: str) -> None:
    folder = place(dead, tmp_path / "there/1-2.box").parent
    assert len(look(tmp_path, folder, folder).engines) == 1


def test_a_broken_box_and_a_crowded_folder_are_said(tmp_path: Path, dead: str) -> None:
    folder = tmp_path / "crowd"
    folder.mkdir()
    (folder / "0.box").write_text("no box")
    for count in range(200):
        os.link(dead, folder / f"1-{count:03}.box")
    found = look(tmp_path, folder)
    assert len(found.engines) == 1
    assert [(box.path, box.pid) for box in found.broken] == [(str(folder / "0.box"), None)]
    assert any("has 201 boxes" in line for line in found.unseen)


def test_a_broken_box_is_that_of_the_engine_in_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "58-123.box").write_bytes(bytes(5000))
    (broken,) = look(tmp_path, folder).broken
    assert broken.pid == 58
    assert str(folder / "58-123.box") in broken.why


def test_a_broken_box_is_that_of_the_engine_that_holds_it_whatever_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    path = folder / "7-123.box"
    path.write_bytes(bytes(5000))
    code = (
        "import fcntl, sys; fcntl.lockf(file := open(sys.argv[1], 'r+b'), fcntl.LOCK_EX, 1); print(flush=True); input()"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert [box.pid for box in look(tmp_path, folder).broken] == [holder.pid]
        holder.communicate(b"\n")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_box_that_we_may_not_read_is_unseen_and_not_broken(tmp_path: Path, dead: str) -> None:
    box = place(dead, tmp_path / "own/58-1.box")
    box.chmod(0)
    found = look(tmp_path, box.parent)
    assert found.broken == ()
    assert any(f"{box} may be read only by its engine's user: run" in line for line in found.unseen)


def test_links_are_not_followed_and_our_own_box_is_left_alone(tmp_path: Path, dead: str) -> None:
    folder = tmp_path / "links"
    folder.mkdir()
    (folder / "1-1.box").symlink_to(dead)
    shutil.copy(dead, folder / f"{os.getpid()}-{writer.start_ticks()}.box")
    assert look(tmp_path, folder).engines == ()


def test_old_boxes_go_by_age_and_number_and_living_folders_stay(tmp_path: Path, dead: str) -> None:
    folder = tmp_path / "own"
    boxes = [place(dead, folder / f"{number}-1.box") for number in range(4)]
    stray = folder / "notes.txt"
    stray.write_text("mine")
    mono = _heartbeat(dead)

    def clear(mono_ns: int, keep: int) -> int:
        return len(
            clear_old(now_wall_ns=WALL, now_mono_ns=mono_ns, folders=[str(folder)], max_age_ns=DAY_NS, keep=keep)
        )

    assert clear(mono + DAY_NS - 1, keep=4) == 0
    assert clear(mono + 5, keep=3) == 1
    assert clear(mono + DAY_NS + 10**12, keep=4) == 3
    assert not any(box.exists() for box in boxes)
    assert stray.exists()


def test_a_broken_box_is_cleared_by_its_date_alone(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    broken = folder / "1-1.box"
    broken.write_bytes(bytes(1000))
    os.utime(broken, ns=(WALL, WALL))
    arguments = {"now_mono_ns": 1, "folders": [str(folder)], "max_age_ns": DAY_NS}
    assert clear_old(now_wall_ns=WALL + DAY_NS, **arguments) == []  # type: ignore[arg-type]
    assert clear_old(now_wall_ns=WALL + DAY_NS + 1, **arguments) == [str(broken)]  # type: ignore[arg-type]


def _heartbeat(path: str) -> int:
    box = Box.open(path)
    heartbeat = memoryview(box.read(["pulse"]).columns["pulse"]).cast("Q")[0]
    box.close()
    return heartbeat
