"""The JSON of a look is stable, plain, and small unless blocks are asked for."""

import msgspec

from inferdbg.cli.snapshot_json import as_json
from inferdbg.diagnosis.finding import Evidence, Finding
from inferdbg.facts.snapshot import Snapshot, Target
from tests.support.snapshots import busy

FINDING = Finding("kv_pressure", "slow", "sure", "too few", (Evidence("kvcache", "full"),), since_ns=7)


def encoded(snapshot: Snapshot, *, blocks: bool = False) -> dict[str, dict[str, dict[str, object]]]:
    """As a program reads it."""
    found: dict[str, dict[str, dict[str, object]]] = msgspec.json.decode(
        msgspec.json.encode(as_json(snapshot, [FINDING], blocks=blocks))
    )
    return found


def test_it_names_its_schema_and_carries_snapshot_and_findings() -> None:
    snapshot = busy(snapshots=1)[0]
    found = encoded(snapshot)
    assert list(found) == ["schema", "snapshot", "findings"]
    assert found["schema"] == "inferdbg.snapshot.v1"
    assert found["snapshot"]["scheduler"]["running"] == snapshot.scheduler.running
    assert found["snapshot"]["server"]["state"] == "alive"
    assert found["snapshot"]["steps"]["items"][-1]["work"][0]["kind"] in ("prefill", "decode")
    assert found["findings"] == [
        {
            "cause": "kv_pressure",
            "severity": "slow",
            "confidence": "sure",
            "summary": "too few",
            "evidence": [{"source": "kvcache", "text": "full"}],
            "next_step": "",
            "since_ns": 7,
            "explains": [],
            "at_least": False,
        }
    ]


def test_blocks_are_left_out_but_counted() -> None:
    snapshot = busy(snapshots=1)[0]
    found = encoded(snapshot)["snapshot"]
    assert "state" not in found["kvcache"]
    assert found["kvcache"]["used_blocks"] == snapshot.kvcache.used_blocks
    first = found["requests"]["items"][0]
    assert "blocks" not in first
    assert first["block_count"] == snapshot.requests.items[0].block_count


def test_blocks_are_numbers_when_asked_for() -> None:
    snapshot = busy(snapshots=1)[0]
    found = encoded(snapshot, blocks=True)["snapshot"]
    assert found["kvcache"]["state"] == list(snapshot.kvcache.state)
    assert found["kvcache"]["next_free"] == list(memoryview(snapshot.kvcache.next_free).cast("i"))
    assert found["requests"]["items"][0]["blocks"] == list(snapshot.requests.items[0].block_table())


def test_a_target_that_shows_nothing_is_still_an_object() -> None:
    found = encoded(Snapshot(1, 2, 3, Target("process", "pid 58")))
    assert found["snapshot"] == {
        "seq": 1,
        "wall_ns": 2,
        "mono_ns": 3,
        "target": {"kind": "process", "name": "pid 58"},
        "probes": [],
    }
