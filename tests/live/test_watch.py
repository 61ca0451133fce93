"""`inferdbg watch` over a real engine that stands: what is left for whoever comes later."""

import json
import os
import signal
import subprocess
from pathlib import Path

from .commands import DEADLINE_S, INFERDBG, inferdbg, serving, traffic


def watching(*argv: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([*INFERDBG, "watch", *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_an_incident_leaves_a_recording_of_before_and_after_stacks_and_what_was_to_be_run(tmp_path: Path) -> None:
    into = tmp_path / "evidence"
    into.mkdir()
    told = into / "told.json"
    tell = f'{INFERDBG[0]} -c \'import json, os; json.dump(dict(os.environ), open("{told}", "w"))\''
    with serving(tmp_path, "--fault", "wedge:step=200,layer=2") as served, traffic(served.url):
        process = watching(
            str(served.pid), "--on", "kv>99.9% | stall>2s", "--do", "record", "--do", "stacks", "--exec", tell,
            "--into", str(into), "--after", "2s", "--once",
        )  # fmt: skip
        out, err = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 1, err
        assert out == ""
        assert "watching" in err
        assert "stall>2s: 2." in err or "stall>2s: 3" in err
        served.kill()
    env = json.loads(told.read_text())
    assert env["INFERDBG_CONDITION"].startswith("stall>2s: ")
    assert "has not moved" in env["INFERDBG_VERDICT"]
    recording, stacks = env["INFERDBG_FILES"].split(os.pathsep)
    threads = json.loads(Path(stacks).read_text())["snapshot"]["stacks"]["processes"][0]["threads"]
    assert any(call["function"] for thread in threads for call in thread["calls"])
    opened = json.loads(inferdbg("open", recording, "--json").out)
    assert opened["findings"][0]["cause"] == "kernel_wedged"
    before = json.loads(inferdbg("open", recording, "--json", "--at", "+0s").out)
    assert before["findings"] == [], "the time before the incident is in it, too"


def test_where_nothing_happens_nothing_is_left(tmp_path: Path) -> None:
    into = tmp_path / "evidence"
    into.mkdir()
    with serving(tmp_path) as served:
        process = watching(str(served.pid), "--on", "stall>10s | ttft.p95>1h", "--do", "record", "--into", str(into))
        assert process.stderr is not None
        while "watching" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0
    assert list(into.iterdir()) == []


def test_what_cannot_be_watched_is_refused_before_anything_begins(tmp_path: Path) -> None:
    refused = inferdbg("watch", "--on", "weather>3")
    assert (refused.code, "write stall, oldest, kv" in refused.err) == (2, True)
    with serving(tmp_path) as served:
        nowhere = inferdbg("watch", str(served.pid), "--on", "dead", "--into", str(tmp_path / "nowhere"))
        assert (nowhere.code, "is no folder" in nowhere.err) == (2, True)
