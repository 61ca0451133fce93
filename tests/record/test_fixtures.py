"""Recordings of every version open for ever, and say what they said when they were written."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from inferdbg.facts.sections.kvcache import USED
from inferdbg.record.header import VERSION
from inferdbg.record.replay import ReplaySource

PATHS = sorted((Path(__file__).resolve().parents[2] / "fixtures" / "recordings").glob("v*.idbg"))


def test_there_is_one_of_every_version() -> None:
    assert [path.stem for path in PATHS] == [f"v{version}" for version in range(1, VERSION + 1)]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_version_opens_for_ever(path: Path) -> None:
    source = ReplaySource(path)
    window = source.window()
    now = window.now
    assert (source.recording.torn, source.recording.lost) == (False, [])
    assert [snapshot.seq for snapshot in window.snapshots] == list(range(1, 41))
    assert now.server is not None
    assert now.server.model is not None
    assert now.server.model.name == "SmolLM2-135M-Instruct"
    assert now.scheduler is not None
    assert (now.scheduler.generated_tokens_total, now.scheduler.preempted_total) == (2485, 14)
    assert now.kvcache is not None
    assert now.kvcache.state is not None
    assert (now.kvcache.state.count(USED), now.kvcache.used_blocks) == (254, 254)
    assert now.requests is not None
    assert len(now.requests.items) == 15
    first = now.requests.items[0]
    assert (first.number, first.id, first.stage, first.block_count) == (7, "cmpl-00000007", "decode", 70)
    assert list(first.block_table()[:3]) == [127, 128, 130]
    assert now.steps is not None
    share = now.steps.items[-1].work[0]
    assert (share.request, share.kind, share.tokens, share.context) == (7, "decode", 1, 1106)
    assert sum(len(snapshot.events.items) for snapshot in window.snapshots if snapshot.events is not None) == 425
    early = source.window(window.snapshots[10].mono_ns)
    assert early.now.seq == 11
    assert early.now.kvcache is not None
    assert early.now.kvcache.hash is not None
    source.close()


@pytest.mark.skipif(shutil.which("zstdcat") is None, reason="needs zstdcat")
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_zstdcat_gives_lines_of_json(path: Path) -> None:
    text = subprocess.run(["zstdcat", path], capture_output=True, check=True).stdout
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines[0] == {"format": "inferdbg recording", "version": int(path.stem[1:]), "target": lines[0]["target"]}
    assert [line["light"] for line in lines if "light" in line] == list(range(1, 41))
