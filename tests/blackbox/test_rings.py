"""Steps and events come back as they were written, however often the rings went round between two looks."""

import os
from array import array
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferdbg.blackbox.reader import Box
from inferdbg.blackbox.writer import STEP_BYTES, BlackBox

SMALL = (64, 1024, 8192)
TIMES = (10, 11, 12, 13, 14, 15, 16)
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def plan(box: BlackBox, step: int, scheduled: int) -> None:
    box.steps.plan(
        step,
        (2048, scheduled, 0, scheduled, 3),
        array("I", range(step, step + scheduled)),
        array("B", [1]) * scheduled,
        array("I", [5]) * scheduled,
        array("I", range(scheduled)),
    )


def numbers(column: bytes) -> list[int]:
    return memoryview(column).cast("I").tolist()


@SLOW
@given(looks=st.lists(st.lists(st.integers(0, 300), max_size=90), max_size=8))
def test_every_finished_step_is_read_once_or_counted_as_dropped(tmp_path: Path, looks: list[list[int]]) -> None:
    box = BlackBox.create(str(tmp_path), [], rings=SMALL)
    reader = Box.open(box.path)
    last, step = 0, 0
    for sizes in looks:
        for scheduled in sizes:
            step += 1
            plan(box, step, scheduled)
            box.steps.finish(*TIMES)
        found = reader.steps(last, 1000)
        assert found.running is None
        assert found.last == step
        assert len(found.finished) + found.dropped == len(sizes)
        assert len(found.finished) >= min(len(sizes), 62)
        newest_first = list(zip(reversed(found.finished), range(step, 0, -1), reversed(sizes), strict=False))
        entries = 0
        for record, number, scheduled in newest_first:
            entries += scheduled
            assert record.fields[1:9] == (number, *TIMES)
            assert record.fields[9:15] == (2048, scheduled, 0, scheduled, 3, scheduled)
            if record.work is not None:
                assert numbers(record.work[0]) == list(range(number, number + scheduled))
                assert len(record.work[1]) == scheduled
                assert numbers(record.work[3]) == list(range(scheduled))
            else:
                assert entries > 1024 - 300 - scheduled  # one ring full at most, less the gap at its end
        last = found.last
    reader.close()


def test_a_step_that_is_planned_and_not_over_is_the_running_one(tmp_path: Path) -> None:
    box = BlackBox.create(str(tmp_path), [], rings=SMALL)
    reader = Box.open(box.path)
    plan(box, 1, 2)
    box.steps.finish(*TIMES)
    plan(box, 2, 3)
    found = reader.steps(None, 10)
    assert [record.fields[1] for record in found.finished] == [1]
    assert found.running is not None
    assert found.running.fields[1] == 2
    assert found.running.work is not None
    assert numbers(found.running.work[0]) == [2, 3, 4]
    box.steps.finish(*TIMES)
    later = reader.steps(found.last, 10)
    assert [record.fields[1] for record in later.finished] == [2]
    assert later.running is None
    reader.close()


def test_a_step_of_more_requests_than_entries_loses_its_work_and_nothing_else(tmp_path: Path) -> None:
    box = BlackBox.create(str(tmp_path), [], rings=SMALL)
    reader = Box.open(box.path)
    plan(box, 1, 7)
    plan(box, 2, 2000)
    box.steps.finish(*TIMES)
    first, second = reader.steps(None, 10).finished
    assert first.work is not None
    assert second.work is None
    assert second.fields[14] == 2000
    reader.close()


def test_the_first_look_takes_the_newest_and_counts_nothing_as_dropped(tmp_path: Path) -> None:
    box = BlackBox.create(str(tmp_path), [], rings=SMALL)
    reader = Box.open(box.path)
    for step in range(1, 31):
        plan(box, step, 1)
        box.steps.finish(*TIMES)
        box.events.add(3, step, step, 0, -1, 0, "")
    steps, events = reader.steps(None, 4), reader.events(None, 4)
    assert [record.fields[1] for record in steps.finished] == [27, 28, 29, 30]
    assert [event.step for event in events.events] == [27, 28, 29, 30]
    assert steps.dropped == events.dropped == 0
    reader.close()


@SLOW
@given(looks=st.lists(st.lists(st.text(max_size=400), max_size=60), max_size=6))
def test_every_event_is_read_once_or_counted_as_dropped(tmp_path: Path, looks: list[list[str]]) -> None:
    box = BlackBox.create(str(tmp_path), [], rings=SMALL)
    reader = Box.open(box.path)
    last, written = 0, 0
    for texts in looks:
        for text in texts:
            written += 1
            box.events.add(11, 2, 3, 4, -5, 6, text)
        found = reader.events(last, 1000)
        assert found.last == written
        assert len(found.events) + found.dropped == len(texts)
        assert [event.sequence for event in found.events] == list(range(written - len(found.events) + 1, written + 1))
        kept = texts[len(texts) - len(found.events) :]
        for event, text in zip(found.events, kept, strict=True):
            encoded = text.encode("utf-8", "replace")[:1024]
            assert event.text == encoded.decode("utf-8", "replace")
            assert (event.step, event.request, event.other, event.block, event.tokens) == (2, 3, 4, -5, 6)
        if sum(len(text) * 4 + 64 for text in texts) < 6000:
            assert found.dropped == 0
        last = found.last
    reader.close()


def test_a_long_text_is_cut(tmp_path: Path) -> None:
    box = BlackBox.create(str(tmp_path), [], rings=SMALL)
    reader = Box.open(box.path)
    box.events.add(11, 1, 0, 0, -1, 0, "ä" * 5000)
    assert reader.events(None, 10).events[0].text == "ä" * 512
    reader.close()


def test_events_of_all_lengths_follow_each_other_round_the_ring(tmp_path: Path) -> None:
    box = BlackBox.create(str(tmp_path), [], rings=SMALL)
    reader = Box.open(box.path)
    for count in range(1, 2000):
        box.events.add(11, 1, 0, 0, -1, 0, "x" * (count * 7 % 300))
        found = reader.events(count - 1, 10)
        assert [(event.sequence, len(event.text)) for event in found.events] == [(count, count * 7 % 300)]
    assert 20 < len(reader.events(None, 1000).events) < 8192 // 56
    reader.close()


def test_a_look_reads_of_a_full_ring_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = BlackBox.create(str(tmp_path), [], rings=SMALL)
    reader = Box.open(box.path)
    for count in range(1, 1000):
        box.events.add(11, count, 0, 0, -1, 0, "")
    last, sizes, pread = reader.events(None, 10).last, list[int](), os.pread

    def counted(descriptor: int, size: int, offset: int) -> bytes:
        sizes.append(size)
        return pread(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", counted)
    for count in range(1000, 1003):
        box.events.add(11, count, 0, 0, -1, 0, "")
    assert [event.step for event in reader.events(last, 10).events] == [1000, 1001, 1002]
    assert sum(sizes) < 500
    reader.close()


def test_a_damaged_event_ends_the_walk_and_the_next_ones_wait_until_it_is_overwritten(tmp_path: Path) -> None:
    box = BlackBox.create(str(tmp_path), [], rings=SMALL)
    reader = Box.open(box.path)
    for count in range(1, 6):
        box.events.add(11, count, 0, 0, -1, 0, "")
    with open(box.path, "r+b") as file:
        file.seek(reader.layout.events.offset + 2 * 56 + 30)
        file.write(b"\xff")
    assert [event.step for event in reader.events(0, 10).events] == [1, 2]
    for count in range(6, 300):
        box.events.add(11, count, 0, 0, -1, 0, "")
    found = reader.events(2, 1000)
    assert [event.step for event in found.events] == list(range(299 - len(found.events) + 1, 300))
    assert found.dropped == 297 - len(found.events)
    reader.close()


def test_a_step_that_is_being_written_is_not_shown(tmp_path: Path) -> None:
    box = BlackBox.create(str(tmp_path), [], rings=SMALL)
    reader = Box.open(box.path)
    for step in range(1, 4):
        plan(box, step, 1)
        box.steps.finish(*TIMES)
    with open(box.path, "r+b") as file:
        file.seek(reader.layout.steps.offset + STEP_BYTES)
        file.write(bytes(8))
    found = reader.steps(0, 10)
    assert [record.fields[1] for record in found.finished] == [1, 3]
    assert found.dropped == 1
    reader.close()
