"""Any bytes may lie where a box is expected: the reader explains, or reads what is sound, and never more."""

import json
import os
import shutil
import struct
import zlib
from array import array
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferdbg.blackbox import writer
from inferdbg.blackbox.reader import Box, Change, is_locked
from inferdbg.blackbox.writer import BlackBox
from inferdbg.errors import InferdbgError
from tests.support.boxes import living_engine, make_box

SLOW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
WORDS = st.sampled_from([0, 1, 2, 0x7F, 0xFF, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1])


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small box with something everywhere."""
    box = BlackBox.create(
        str(tmp_path_factory.mktemp("sound")), [("pulse", "Q", 8), ("tables", "i", 64)], rings=(64, 1024, 8192)
    )
    box.update_static({"engine": "inferdbg", "facts": {"version": "1", "kernels": ["a", "b"]}})
    for step in range(70):
        one = array("I", [step, step + 1])
        box.steps.plan(step, (1, 2, 3, 4, 5), one, array("B", [1, 2]), one, one)
        box.steps.finish(1, 2, 3, 4, 5, 6, 7)
        box.events.add(1 + step % 11, step, 1, 2, 3, 4, "text" * (step % 40))
    return Path(box.path).read_bytes()


def everything(path: str) -> None:
    box = Box.open(path)
    try:
        box.alive()
        box.holder()
        box.requests_left()
        box.facts()
        moment = box.read(["pulse", "tables"])
        assert sum(map(len, moment.columns.values())) < 10_000
        for last in (None, 0, 5, 1 << 70):
            steps, events = box.steps(last, 1000), box.events(last, 1000)
            assert len(steps.finished) <= 64
            assert len(events.events) <= 200
            assert steps.dropped >= 0
            assert events.dropped >= 0
    finally:
        box.close()


def says_something_or_reads(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    complaint = None
    try:
        everything(str(path))
    except InferdbgError as error:
        complaint = error
    if complaint is not None:
        assert str(path) in complaint.message
        assert "\n" not in complaint.message
        assert complaint.hint


def test_a_sound_box_reads(tmp_path: Path, sound: bytes) -> None:
    path = tmp_path / "sound.box"
    path.write_bytes(sound)
    everything(str(path))


@SLOW
@given(content=st.binary(max_size=2000), keep_magic=st.booleans())
def test_any_bytes(tmp_path: Path, content: bytes, keep_magic: bool) -> None:
    says_something_or_reads(tmp_path / "any.box", (writer.MAGIC if keep_magic else b"") + content)


@SLOW
@given(data=st.data())
def test_any_flipped_bits(tmp_path: Path, sound: bytes, data: st.DataObject) -> None:
    content = bytearray(sound)
    header = st.integers(0, writer.TABLE_OFFSET + 700)
    for at in data.draw(st.lists(st.one_of(header, st.integers(0, len(sound) - 1)), min_size=1, max_size=20)):
        content[at] ^= data.draw(st.integers(1, 255))
    says_something_or_reads(tmp_path / "flipped.box", bytes(content))


@SLOW
@given(data=st.data())
def test_any_words_in_the_header(tmp_path: Path, sound: bytes, data: st.DataObject) -> None:
    content = bytearray(sound)
    for at in data.draw(st.lists(st.integers(2, 44), min_size=1, max_size=12)):  # behind the magic, version and order
        struct.pack_into("=Q", content, at * 8, data.draw(st.one_of(WORDS, st.integers(0, (1 << 64) - 1))))
    says_something_or_reads(tmp_path / "words.box", bytes(content))


@SLOW
@given(data=st.data())
def test_any_table_with_a_right_checksum(tmp_path: Path, sound: bytes, data: st.DataObject) -> None:
    header = list(writer.HEADER.unpack_from(sound))
    table = json.loads(sound[writer.TABLE_OFFSET : writer.TABLE_OFFSET + header[11]])
    rows = [row for part in ("columns", "rings", "entries") for row in table[part]]
    row = rows[data.draw(st.integers(0, len(rows) - 1))]
    value: st.SearchStrategy[object] = st.one_of(WORDS, WORDS.map(lambda word: -word), st.text(max_size=3), st.none())
    row[data.draw(st.integers(0, 3))] = data.draw(value)
    if data.draw(st.booleans()):
        table["static"] = data.draw(value)
    encoded = json.dumps(table).encode()
    header[11:13] = len(encoded), zlib.crc32(encoded)
    content = bytearray(sound)
    content[: writer.HEADER.size] = writer.HEADER.pack(*header)
    content[writer.TABLE_OFFSET : writer.TABLE_OFFSET + len(encoded)] = encoded
    says_something_or_reads(tmp_path / "table.box", bytes(content))


@SLOW
@given(length=st.integers(0, 300_000))
def test_any_truncation(tmp_path: Path, sound: bytes, length: int) -> None:
    says_something_or_reads(tmp_path / "short.box", sound[:length])


def test_bytes_that_were_put_in_are_noticed(tmp_path: Path, sound: bytes) -> None:
    path = tmp_path / "long.box"
    path.write_bytes(sound[:5000] + b"x" * 333 + sound[5000:])
    with pytest.raises(InferdbgError, match="longer than it was made"):
        Box.open(str(path))


def test_a_copy_of_the_box_of_one_that_runs_is_not_called_dead(tmp_path: Path) -> None:
    copy = tmp_path / "copy.box"

    def state(path: str) -> str:
        with closing(Box.open(path)) as box:
            return box.state()

    with living_engine(tmp_path) as engine:
        shutil.copyfile(engine.path, copy)
        assert (state(engine.path), state(str(copy))) == ("alive", "copied")
        engine.process.kill()
        engine.process.wait()
        assert (state(engine.path), state(str(copy))) == ("dead", "dead")


def test_a_file_cut_short_while_it_is_open_is_an_error_and_no_crash(tmp_path: Path, sound: bytes) -> None:
    path = tmp_path / "cut.box"
    path.write_bytes(sound)
    box = Box.open(str(path))
    os.truncate(path, 4096)
    actions: list[Callable[[], object]] = [
        lambda: box.read(["pulse"]),
        lambda: box.steps(None, 10),
        lambda: box.events(None, 10),
        box.facts,
    ]
    for action in actions:
        with pytest.raises(InferdbgError, match="cut short"):
            action()
    box.close()


def test_what_is_no_file_is_refused_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.box")
    for path in (tmp_path, tmp_path / "pipe.box", tmp_path / "missing.box", Path("/dev/zero"), tmp_path / "nul\0.box"):
        with pytest.raises(InferdbgError):
            Box.open(str(path))


def test_a_box_that_is_still_being_made_says_so(tmp_path: Path) -> None:
    path = tmp_path / "new.box"
    path.write_bytes(bytes(100_000))
    with pytest.raises(InferdbgError, match="while making it, or is making it now"):
        Box.open(str(path))


def test_a_later_version_is_refused_by_name(tmp_path: Path, sound: bytes) -> None:
    path = tmp_path / "later.box"
    path.write_bytes(sound[:8] + struct.pack("=I", 7) + sound[12:])
    with pytest.raises(InferdbgError, match="is a black box of version 7"):
        Box.open(str(path))


def test_an_odd_generation_names_the_change_that_was_half_done(tmp_path: Path) -> None:
    box = BlackBox.create(str(tmp_path), [("pulse", "Q", 8)])
    reader = Box.open(box.path)
    assert reader.read(["pulse"]).change is None
    box.intent[1:4] = memoryview(struct.pack("=3q", 6, 17, 3)).cast("q")
    assert reader.read(["pulse"]).change is None
    box.intent[0] = 1
    moment = reader.read(["pulse", "no such column"])
    assert moment.change == Change(operation=6, block=17, request=3)
    assert not moment.torn
    assert list(moment.columns) == ["pulse"]
    reader.close()


class Restless(Box):
    """A box whose engine makes a change between any two reads of it."""

    engine: BlackBox

    def _pread(self, size: int, offset: int) -> bytes:
        self.engine.intent[0] += 2
        return super()._pread(size, offset)


def test_columns_that_change_under_every_try_are_torn(tmp_path: Path) -> None:
    box = BlackBox.create(str(tmp_path), [("pulse", "Q", 8)])
    reader = Restless.open(box.path)
    assert isinstance(reader, Restless)
    reader.engine = box
    moment = reader.read(["pulse"])
    assert moment.torn
    assert moment.change is None
    reader.close()


def test_a_box_whose_writer_let_go_is_dead(tmp_path: Path) -> None:
    path = make_box(tmp_path)
    box = Box.open(path)
    assert not box.alive()
    assert box.holder() is None
    assert box.requests_left() is None
    assert not is_locked(path)
    box.close()
