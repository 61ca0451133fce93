"""What is recorded is what was seen: decode(encode(x)) == x, for anything, in any order."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import integers
from msgspec.structs import replace

from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import lightened
from inferdbg.record.codec import Encoder, Lines, bared, decode_light, decode_whole, with_events, with_work
from inferdbg.record.columns import ColumnChange, Columns, column_changes
from tests.support.arbitrary import stretches
from tests.support.snapshots import busy

SLOW = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


def encoded(snapshots: list[Snapshot]) -> list[Lines]:
    encoder = Encoder()
    return [
        encoder.encode(snapshot, whole_light=index == 0, whole_columns=index == 0)
        for index, snapshot in enumerate(snapshots)
    ]


def assert_comes_back(snapshots: list[Snapshot]) -> None:
    lines = encoded(snapshots)
    moments = decode_light(b"".join(line.light for line in lines))
    for index, snapshot in enumerate(snapshots):
        moment, heavy = moments[index], [line.heavy for line in lines[: index + 1]]
        assert moment.snapshot == bared(snapshot)
        assert decode_whole(moment, heavy, (line.columns for line in lines[: index + 1])) == snapshot
        assert with_work(with_events(moment), heavy[-1]) == lightened(snapshot)


@SLOW
@given(stretches())
def test_any_stretch_of_snapshots_comes_back_equal(snapshots: list[Snapshot]) -> None:
    assert_comes_back(snapshots)


@SLOW
@given(stretches(), integers(1, 4))
def test_requests_that_are_carried_come_back_equal(snapshots: list[Snapshot], looks: int) -> None:
    carried = [
        replace(snapshot, requests=snapshots[index - index % looks].requests)
        for index, snapshot in enumerate(snapshots)
    ]
    assert_comes_back(carried)


def test_requests_that_are_carried_are_not_written_again() -> None:
    first, second = busy(snapshots=2)
    lines = encoded([first, replace(second, requests=first.requests)])
    assert b'"rows":' in lines[0].heavy
    assert b'"rows":' not in lines[1].heavy
    moments = decode_light(lines[0].light + lines[1].light)
    with pytest.raises(msgspec.DecodeError, match="missing"):
        decode_whole(moments[1], [lines[1].heavy], [line.columns for line in lines])


@pytest.mark.parametrize("blocks", [256, 2048])
def test_a_busy_engine_comes_back_equal(blocks: int) -> None:
    assert_comes_back(busy(blocks=blocks, snapshots=40))


def test_sections_that_do_not_change_are_not_written_again() -> None:
    first, second = busy(snapshots=2)
    lines = [line.light for line in encoded([first, second])]
    assert b'"model"' in lines[0]
    assert b'"model"' not in lines[1]


def test_a_section_that_is_no_longer_known_is_none() -> None:
    (snapshot,) = busy(snapshots=1)
    nothing = Snapshot(2, 0, 0, snapshot.target)
    assert_comes_back([snapshot, nothing, snapshot])


def test_only_block_columns_that_changed_are_written() -> None:
    first, second = busy(blocks=2048, snapshots=2, warm_steps=200)
    whole, changed = (len(line.columns) for line in encoded([first, second]))
    assert changed < whole / 5


def test_unknown_fields_and_sections_are_passed_over() -> None:
    (snapshot,) = busy(snapshots=1)
    (lines,) = encoded([snapshot])
    light, heavy, columns = (msgspec.json.decode(line) for line in lines)
    light["weather"] = {"rain": True}
    light["scheduler"]["mood"] = "good"
    heavy["rows"]["colour"] = [3]
    columns["changed"]["temperature"] = {"at": "AQ==", "to": "KA=="}
    (moment,) = decode_light(msgspec.json.encode(light))
    assert decode_whole(moment, [msgspec.json.encode(heavy)], [msgspec.json.encode(columns)]) == snapshot


def test_changes_of_columns_are_never_put_on_others_than_they_were_made_for() -> None:
    snapshots = busy(snapshots=3)
    lines = encoded(snapshots)
    moments = decode_light(b"".join(line.light for line in lines))
    with pytest.raises(msgspec.DecodeError, match="missing"):
        decode_whole(moments[2], [line.heavy for line in lines], [lines[0].columns, lines[2].columns])


@pytest.mark.parametrize(
    "change",
    [
        {"at": "/w==", "to": "KA=="},  # beyond the end
        {"at": "AQ==", "to": "KAAA"},  # three for one
        {"at": "AQE=", "to": "KA==", "wide": 4},  # half a position
        {"at": "AQ==", "to": "KA==", "wide": 3},
        {"at": "AQ==", "to": "KA==", "size": 1 << 62},
        {"at": [1 << 40], "to": [1]},
    ],
    ids=str,
)
def test_a_change_that_fits_no_column_is_damage_and_no_crash(change: dict[str, object]) -> None:
    (snapshot,) = busy(blocks=64, requests=2, snapshots=1)
    (lines,) = encoded([snapshot])
    columns = msgspec.json.decode(lines.columns)
    following = {"columns": 2, "after": columns["columns"], "changed": {"state": change}}
    (moment,) = decode_light(lines.light)
    with pytest.raises(msgspec.DecodeError):
        decode_whole(moment, [lines.heavy], [lines.columns, msgspec.json.encode(following)])


def test_positions_far_apart_take_more_bytes_each() -> None:
    before, after = bytearray(300_000), bytearray(300_000)
    after[7] = after[8] = after[299_999] = 1
    (change,) = column_changes({"state": bytes(before)}, {"state": bytes(after)}).values()
    assert change is not None
    assert (change.wide, len(change.at), len(change.to)) == (4, 12, 3)
    held = Columns()
    held.apply({"state": ColumnChange(size=300_000)})
    held.apply({"state": change})
    assert held.values()["state"] == after
