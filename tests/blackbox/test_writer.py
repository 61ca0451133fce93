"""The box is reserved whole, private, in memory where nothing is said, and says where it came out otherwise."""

import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from inferdbg.blackbox import writer
from inferdbg.blackbox.reader import Box
from inferdbg.blackbox.writer import BlackBox, BoxError

COLUMNS: list[tuple[str, writer.Typecode, int]] = [("pulse", "Q", 8), ("odd", "B", 13), ("blocks.owner", "I", 1000)]


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As on a full file system: nothing larger can be reserved."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_only_its_owner_may_read_it_and_all_bytes_are_reserved(tmp_path: Path) -> None:
    box = BlackBox.create(str(tmp_path / "boxes"), COLUMNS)
    found = os.stat(box.path)
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "boxes").st_mode) == 0o700
    assert found.st_blocks * 512 >= found.st_size


def test_a_box_larger_than_readers_take_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    for folder in (str(tmp_path), None):
        with pytest.raises(BoxError, match="more than the 536,870,912 that one may have") as caught:
            BlackBox.create(folder, [*COLUMNS, ("tables", "I", writer.MAX_BOX_BYTES // 4)])
        assert "--num-blocks" in caught.value.hint
    assert not list(tmp_path.iterdir())


def test_its_name_is_pid_and_start_time_and_a_second_one_gets_a_number(tmp_path: Path) -> None:
    own = f"{os.getpid()}-{writer.start_ticks()}"
    names = [os.path.basename(BlackBox.create(str(tmp_path), COLUMNS).path) for _ in range(2)]
    assert names == [f"{own}.box", f"{own}.2.box"]


def test_columns_begin_with_zeros_and_a_store_is_in_the_file(tmp_path: Path) -> None:
    box = BlackBox.create(str(tmp_path), COLUMNS)
    assert {name: (column.format, len(column)) for name, column in box.columns.items()} == {
        name: (code, length) for name, code, length in COLUMNS
    }
    assert not any(any(column) for column in box.columns.values())
    box.columns["odd"][12] = 7
    box.columns["blocks.owner"][999] = 4_000_000_000
    reader = Box.open(box.path)
    columns = reader.read([name for name, _, _ in COLUMNS]).columns
    assert columns["odd"] == bytes(12) + b"\7"
    assert memoryview(columns["blocks.owner"]).cast("I")[999] == 4_000_000_000
    reader.close()


def test_a_clean_stop_with_nothing_in_flight_removes_it(tmp_path: Path) -> None:
    box = BlackBox.create(str(tmp_path), COLUMNS)
    box.stop(0)
    assert not os.path.exists(box.path)


def test_a_clean_stop_with_requests_in_flight_leaves_it_and_says_so(tmp_path: Path) -> None:
    box = BlackBox.create(str(tmp_path), COLUMNS)
    box.stop(3)
    reader = Box.open(box.path)
    assert reader.requests_left() == 3
    reader.close()


def test_what_took_its_place_is_not_removed(tmp_path: Path) -> None:
    box = BlackBox.create(str(tmp_path), COLUMNS)
    os.unlink(box.path)
    Path(box.path).write_text("somebody else's")
    box.stop(0)
    assert os.path.exists(box.path)


def test_a_folder_that_is_swapped_for_a_link_is_refused_where_it_must_be_private(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(BoxError):
        writer._enter(str(tmp_path / "link"), private=True)


def test_a_private_folder_open_to_others_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "inferdbg"
    folder.mkdir()
    folder.chmod(0o777)
    os.close(writer._enter(str(folder), private=True))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_cannot_be_made_is_one_clear_line_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BoxError, match="cannot be made: Not a directory") as raised:
        BlackBox.create(str(tmp_path / "file" / "below"), COLUMNS)
    assert "--blackbox-dir" in raised.value.hint
    with pytest.raises(BoxError, match="cannot be opened as a folder"):
        BlackBox.create(str(tmp_path / "file"), COLUMNS)


def test_where_space_is_short_the_rings_shrink_and_it_says_so(tmp_path: Path) -> None:
    with files_of_at_most(300_000):
        box = BlackBox.create(str(tmp_path), COLUMNS)
    assert os.stat(box.path).st_size <= 300_000
    assert any("space is short" in note for note in box.notes)
    box.events.add(11, 1, 0, 0, -1, 0, "still there")
    reader = Box.open(box.path)
    assert [event.text for event in reader.events(None, 10).events] == ["still there"]
    reader.close()


def test_where_not_even_the_columns_fit_it_fails_at_start_and_leaves_nothing(tmp_path: Path) -> None:
    with files_of_at_most(100_000), pytest.raises(BoxError, match="has no room for the black box") as raised:
        BlackBox.create(str(tmp_path), COLUMNS)
    assert "fewer KV blocks" in raised.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_folder_on_a_disk_is_taken_when_named_and_noted(tmp_path: Path) -> None:
    on_disk = not _in_memory(tmp_path)
    box = BlackBox.create(str(tmp_path), COLUMNS)
    assert any("not in memory" in note for note in box.notes) == on_disk


def test_facts_are_replaced_whole_and_too_many_are_refused(tmp_path: Path) -> None:
    box = BlackBox.create(str(tmp_path), COLUMNS)
    reader = Box.open(box.path)
    assert reader.facts() is None
    for count in range(5):
        box.update_static({"count": count})
        assert reader.facts() == b'{"count": %d}' % count
    with pytest.raises(BoxError, match="the box keeps"):
        box.update_static({"much": "x" * 40_000})
    assert reader.facts() == b'{"count": 4}'
    reader.close()


def test_the_writer_needs_the_standard_library_only(tmp_path: Path) -> None:
    program = (
        "import sys; before = set(sys.modules)\n"
        f"exec(compile(open({writer.__file__!r}).read(), 'writer.py', 'exec'), {{'__name__': 'carried'}})\n"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names))\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def _in_memory(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        return writer._in_memory(descriptor)
    finally:
        os.close(descriptor)


def test_with_nothing_said_it_lies_in_memory_or_nowhere() -> None:
    try:
        box = BlackBox.create(None, COLUMNS)
    except BoxError as error:
        why = error
    else:
        descriptor = os.open(os.path.dirname(box.path), os.O_RDONLY)
        assert writer._in_memory(descriptor)
        os.close(descriptor)
        box.stop(0)
        assert not os.path.exists(box.path)
        return
    assert "--blackbox-dir" in why.hint
