"""A file that never answers keeps nobody, and the others are read."""

import os
from pathlib import Path

from inferdbg.probes.slow_files import MOST_STUCK, read_slow


def test_files_are_read_and_missing_ones_left_out(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    (tmp_path / "b").write_bytes(b"")
    found = read_slow([str(tmp_path / name) for name in "abc"], limit=70_000)
    assert found.contents == {str(tmp_path / "a"): b"x" * 70_000, str(tmp_path / "b"): b""}
    assert found.stuck == ()


def test_one_that_hangs_is_named_and_those_behind_it_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hangs")
    (tmp_path / "z").write_bytes(b"z")
    found = read_slow([str(tmp_path / "hangs"), str(tmp_path / "z")], patience_s=0.05)
    assert found.stuck == (str(tmp_path / "hangs"),)
    assert found.contents == {str(tmp_path / "z"): b"z"}


def test_after_some_that_hang_no_more_are_tried(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}" for number in range(MOST_STUCK + 2)]
    for path in paths:
        os.mkfifo(path)
    assert len(read_slow([str(path) for path in paths], patience_s=0.01).stuck) == MOST_STUCK
