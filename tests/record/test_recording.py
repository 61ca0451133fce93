"""A recording is read back as it was written, whatever happened to the recorder or the file."""

import json
import os
import re
import resource
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard

from inferdbg.errors import InferdbgError
from inferdbg.facts.snapshot import Snapshot
from inferdbg.record.frames import frame_at
from inferdbg.record.past import Past
from inferdbg.record.reader import Recording
from inferdbg.record.replay import ReplaySource
from inferdbg.record.writer import RecordingWriter
from tests.support.snapshots import busy

SNAPSHOTS = busy(blocks=512, requests=8, snapshots=21)


def record(path: Path, snapshots: list[Snapshot], *, close: bool = True) -> Path:
    writer = RecordingWriter(path)
    for snapshot in snapshots:
        writer.write(snapshot)
    if close:
        writer.close()
    return path


def read_all(path: Path) -> list[Snapshot]:
    """Every Snapshot that can be read, by its moment."""
    recording = Recording(path)
    past = Past(recording)
    moments = [snapshot.mono_ns for snapshot in SNAPSHOTS if snapshot.mono_ns <= past.span()[1]]
    found = []
    for moment in moments:
        try:
            snapshot = past.snapshot(moment)
        except InferdbgError:
            continue
        if snapshot.mono_ns == moment:
            found.append(snapshot)
    recording.close()
    return found


def frame_ends(data: bytes) -> list[int]:
    ends, at = [], 0
    while at < len(data):
        frame = frame_at(data, at)
        assert frame is not None
        at = frame.end
        ends.append(at)
    return ends


def test_every_snapshot_comes_back_equal(tmp_path: Path) -> None:
    path = record(tmp_path / "run.idbg", SNAPSHOTS)
    assert read_all(path) == SNAPSHOTS
    assert not Recording(path).torn


def test_a_recording_is_lines_of_json_for_any_zstd_tool(tmp_path: Path) -> None:
    path = record(tmp_path / "run.idbg", SNAPSHOTS)
    with path.open("rb") as file:
        text = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines[0]["format"] == "inferdbg recording"
    assert [line["light"] for line in lines if "light" in line] == [snapshot.seq for snapshot in SNAPSHOTS]


def test_a_missing_index_is_rebuilt(tmp_path: Path) -> None:
    path = record(tmp_path / "run.idbg", SNAPSHOTS)
    whole = Recording(path)
    data = path.read_bytes()
    path.write_bytes(data[: frame_ends(data)[-2]])
    assert Recording(path).pages == whole.pages
    assert read_all(path) == SNAPSHOTS


def test_a_killed_recorder_loses_less_than_its_last_second(tmp_path: Path) -> None:
    path = record(tmp_path / "run.idbg", SNAPSHOTS, close=False)
    found = read_all(path)
    assert found == SNAPSHOTS[: len(found)]
    assert SNAPSHOTS[-1].mono_ns - found[-1].mono_ns < 1_000_000_000
    assert Recording(path).torn


def test_a_tail_torn_at_any_byte_is_dropped(tmp_path: Path) -> None:
    snapshots = busy(blocks=64, requests=2, snapshots=9)
    path = record(tmp_path / "run.idbg", snapshots, close=False)
    data = path.read_bytes()
    whole = Recording(path)
    last = whole.pages[-1]
    last_frame = last.end - last.columns
    for cut in (*range(last.start, last_frame, 29), *range(last_frame, last.end)):
        path.write_bytes(data[:cut])
        recording = Recording(path)
        assert recording.pages == whole.pages[:-1]
        assert recording.torn
        assert not recording.lost
        recording.close()
    assert Past(Recording(path)).snapshot(snapshots[-1].mono_ns) == snapshots[4]


def test_a_damaged_page_costs_its_own_second_and_says_which(tmp_path: Path) -> None:
    path = record(tmp_path / "run.idbg", SNAPSHOTS)
    data = bytearray(path.read_bytes())
    page = Recording(path).pages[2]
    data[page.start + page.light // 2] ^= 0xFF
    path.write_bytes(data)
    source = ReplaySource(path)
    assert source.window(page.last_ns).now == SNAPSHOTS[4]
    assert re.match(r"what was recorded from \d\d:\d\d:\d\d to \d\d:\d\d:\d\d is damaged", said(source))
    after = [snapshot for snapshot in SNAPSHOTS if snapshot.mono_ns > page.last_ns]
    before = [snapshot for snapshot in SNAPSHOTS if snapshot.mono_ns < page.first_ns]
    assert [source.window(snapshot.mono_ns).now for snapshot in before + after] == before + after
    assert source.problem is None
    seen = {snapshot.seq for snapshot in source.window().snapshots}
    assert seen == {snapshot.seq for snapshot in before + after}
    source.close()


@pytest.mark.parametrize("part", ["heavy", "columns"])
def test_a_moment_whose_blocks_are_damaged_is_shown_without_and_says_so(tmp_path: Path, part: str) -> None:
    path = record(tmp_path / "run.idbg", SNAPSHOTS)
    data = bytearray(path.read_bytes())
    page = Recording(path).pages[2]
    at = page.start + page.light + (page.heavy if part == "columns" else 0)
    data[at + (page.columns if part == "columns" else page.heavy) // 2] ^= 0xFF
    path.write_bytes(data)
    source = ReplaySource(path)
    there = next(snapshot for snapshot in SNAPSHOTS if snapshot.mono_ns == page.last_ns)
    shown = source.window(there.mono_ns).now
    assert said(source).startswith("without blocks and requests: what was recorded from")
    assert (shown.requests, shown.scheduler, shown.pulse) == (None, there.scheduler, there.pulse)
    assert shown.kvcache is not None
    assert shown.kvcache.state is None
    assert shown.kvcache.used_blocks is not None
    source.close()


def test_the_first_moments_may_be_damaged_too(tmp_path: Path) -> None:
    path = record(tmp_path / "run.idbg", SNAPSHOTS)
    data = bytearray(path.read_bytes())
    first, second = Recording(path).pages[:2]
    data[first.start + first.light // 2] ^= 0xFF
    path.write_bytes(data)
    source = ReplaySource(path)
    assert source.window(first.first_ns).now.mono_ns == second.first_ns
    assert "is damaged" in said(source)
    source.close()


def test_what_is_cut_off_says_so_at_its_end(tmp_path: Path) -> None:
    path = record(tmp_path / "run.idbg", SNAPSHOTS, close=False)
    source = ReplaySource(path)
    first_ns, last_ns = source.span()
    source.window()
    assert "cut off here" in said(source)
    source.window((first_ns + last_ns) // 2)
    assert source.problem is None
    source.window(last_ns)
    assert "cut off here" in said(source)
    source.close()


def said(source: ReplaySource) -> str:
    assert source.problem is not None
    return source.problem.message


@pytest.mark.parametrize("part", ["light", "heavy", "columns"])
@pytest.mark.parametrize("where", ["header", "middle", "end"])
def test_damage_without_an_index_is_stepped_over(tmp_path: Path, part: str, where: str) -> None:
    path = record(tmp_path / "run.idbg", SNAPSHOTS, close=False)
    recording = Recording(path)
    page = recording.pages[2]
    sizes = {"light": page.light, "heavy": page.heavy, "columns": page.columns}
    start = page.start + {"light": 0, "heavy": page.light, "columns": page.light + page.heavy}[part]
    at = start + {"header": 0, "middle": sizes[part] // 2, "end": sizes[part] - 1}[where]
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)
    harmed = Recording(path)
    assert harmed.pages == [other for other in recording.pages if other != page]
    assert harmed.lost == [(recording.pages[1].last_ns, recording.pages[3].first_ns)]
    source = ReplaySource(path)
    assert source.window(page.first_ns).now.mono_ns == recording.pages[1].last_ns
    assert said(source).startswith("what was recorded between")
    source.close()
    for snapshot in read_all(path):
        assert snapshot in SNAPSHOTS


def test_no_byte_of_damage_makes_a_wrong_snapshot(tmp_path: Path) -> None:
    path = record(tmp_path / "run.idbg", SNAPSHOTS[:9])
    data = path.read_bytes()
    for at in range(0, len(data), 97):
        harmed = bytearray(data)
        harmed[at] ^= 0x55
        path.write_bytes(harmed)
        try:
            found = read_all(path)
        except InferdbgError:
            continue
        assert all(snapshot in SNAPSHOTS for snapshot in found)


def test_a_file_that_holds_nothing_says_so(tmp_path: Path) -> None:
    path = record(tmp_path / "empty.idbg", [])
    with pytest.raises(InferdbgError, match="no readable Snapshot"):
        Recording(path)


@pytest.mark.parametrize("content", [b"hello, world\n" * 9, b"PK\x03\x04", zstandard.compress(b'{"a": 1}\n')])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.idbg"
    path.write_bytes(content)
    with pytest.raises(InferdbgError, match="not an inferdbg recording"):
        Recording(path)
    with pytest.raises(InferdbgError, match="not an inferdbg recording"):
        Recording(tmp_path)


def test_a_part_that_is_a_fifo_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.000001.idbg")
    with pytest.raises(InferdbgError, match="not an inferdbg recording"):
        Recording(tmp_path / "run.idbg")


def test_a_later_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "new.idbg"
    path.write_bytes(zstandard.compress(b'{"format": "inferdbg recording", "version": 3}\n'))
    with pytest.raises(InferdbgError, match="later inferdbg") as raised:
        Recording(path)
    assert "upgrade" in raised.value.hint


def test_a_missing_file_and_an_existing_one_are_named(tmp_path: Path) -> None:
    with pytest.raises(InferdbgError, match="does not exist"):
        Recording(tmp_path / "none.idbg")
    path = record(tmp_path / "run.idbg", SNAPSHOTS[:1])
    with pytest.raises(InferdbgError, match="exists already"):
        RecordingWriter(path)
    with pytest.raises(InferdbgError, match="cannot be written"):
        RecordingWriter(tmp_path / "no" / "folder" / "run.idbg")


def test_a_recording_is_for_its_owner_only(tmp_path: Path) -> None:
    path = record(tmp_path / "run.idbg", SNAPSHOTS[:1])
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may grow beyond 30 kB: what a full disk looks like to one process."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def write_all(writer: RecordingWriter, snapshots: list[Snapshot]) -> None:
    for snapshot in snapshots:
        writer.write(snapshot)


def test_when_no_more_fits_it_says_until_when_all_is_there(tmp_path: Path, small_files: None) -> None:
    path = tmp_path / "run.idbg"
    writer = RecordingWriter(path)
    with pytest.raises(InferdbgError, match=r"until \d\d:\d\d:\d\d all is there"):
        write_all(writer, SNAPSHOTS)
    found = read_all(path)
    assert len(found) >= 4
    assert found == SNAPSHOTS[: len(found)]
    with pytest.raises(InferdbgError, match="closed"):
        writer.write(SNAPSHOTS[-1])
    writer.close()


def test_a_file_that_is_deleted_meanwhile_is_not_said_to_be_there(tmp_path: Path) -> None:
    path = tmp_path / "run.idbg"
    writer = RecordingWriter(path)
    write_all(writer, SNAPSHOTS)
    path.unlink()
    with pytest.raises(InferdbgError, match="was deleted while it was written"):
        writer.close()


def test_a_rotating_recording_keeps_the_newest_within_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "run.idbg"
    writer = RecordingWriter(path, max_bytes=100_000)
    snapshots = busy(blocks=512, requests=8, snapshots=200)
    for snapshot in snapshots:
        writer.write(snapshot)
        assert sum(part.stat().st_size for part in tmp_path.iterdir()) <= 100_000
    writer.close()
    recording = Recording(path)
    assert len(list(tmp_path.iterdir())) > 3
    assert not recording.torn
    assert recording.pages[-1].last_ns == snapshots[-1].mono_ns
    assert all(before.last_ns < after.first_ns for before, after in pairwise(recording.pages))
    past = Past(recording)
    first, _ = past.span()
    kept = [snapshot for snapshot in snapshots if snapshot.mono_ns >= first]
    assert [past.snapshot(snapshot.mono_ns) for snapshot in kept] == kept
    recording.close()


def test_the_newest_part_stays_however_little_was_allowed(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "run.idbg", max_bytes=1, keep_ns=1)
    for snapshot in SNAPSHOTS:
        writer.write(snapshot)
    writer.close()
    assert list(tmp_path.iterdir()) == [writer.part_path]
    assert read_all(tmp_path / "run.idbg")[-1] == SNAPSHOTS[-1]


def test_a_rotating_recording_keeps_what_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "run.idbg"
    keep_ns = 10_000_000_000
    writer = RecordingWriter(path, keep_ns=keep_ns)
    snapshots = busy(blocks=512, requests=8, snapshots=200)
    for snapshot in snapshots:
        writer.write(snapshot)
    writer.close()
    first, last = Past(Recording(path)).span()
    assert keep_ns <= last - first <= keep_ns * 1.5


def test_a_rotating_recorder_that_starts_again_goes_on_with_the_next_part(tmp_path: Path) -> None:
    path = tmp_path / "run.idbg"
    for part in (SNAPSHOTS[:10], SNAPSHOTS[10:]):
        writer = RecordingWriter(path, max_bytes=1 << 30)
        for snapshot in part:
            writer.write(snapshot)
        writer.close()
    assert len(list(tmp_path.iterdir())) == 2
    assert read_all(path) == SNAPSHOTS
