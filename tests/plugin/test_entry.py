"""The plug-in is off unless asked for, acts only where a Scheduler is made, and lets nothing of its own reach vLLM."""

import logging
from pathlib import Path

import pytest

from inferdbg.blackbox.reader import is_locked
from inferdbg.probes.vllm_plugin import entry
from inferdbg.probes.vllm_plugin.facts import url_of

from . import fakes


def a_class() -> type[fakes.Scheduler]:
    class Scheduler(fakes.Scheduler):
        pass

    return Scheduler


@pytest.mark.parametrize("value", [None, "0", "yes"])
def test_without_being_asked_it_does_not_even_look_for_vllm(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, value: str | None
) -> None:
    monkeypatch.delenv(entry.SWITCH, raising=False)
    if value is not None:
        monkeypatch.setenv(entry.SWITCH, value)
    entry.register()
    assert caplog.records == []


def test_a_process_without_this_vllm_gets_a_line_and_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(entry.SWITCH, "1")
    entry.register()
    assert "cannot watch this vLLM: ModuleNotFoundError" in caplog.text


def test_every_scheduler_that_is_made_gets_one_box(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv(entry.FOLDER, str(tmp_path))
    kind = a_class()
    entry.watch(kind)
    entry.watch(kind)  # vLLM may load a plug-in more than once
    scheduler = kind()
    boxes = list(tmp_path.glob("*.box"))
    assert len(boxes) == 1
    assert f"the black box of this engine is {boxes[0]}" in caplog.text
    scheduler.shutdown()
    assert list(tmp_path.glob("*.box")) == []


def test_where_no_box_can_be_made_vllm_starts_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv(entry.FOLDER, str(tmp_path / "file" / "box"))
    (tmp_path / "file").write_text("")
    kind = a_class()
    entry.watch(kind)
    scheduler = kind()
    scheduler.add_request(fakes.Request("a", 4, 4))
    scheduler.update_from_output(scheduler.schedule())
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert entry.FOLDER in caplog.text


def test_a_scheduler_that_cannot_be_watched_leaves_no_box_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(entry.FOLDER, str(tmp_path))
    scheduler = fakes.Scheduler()
    scheduler.update_from_output = None  # type: ignore[assignment,method-assign]
    assert entry.attach(scheduler) is None
    assert list(tmp_path.glob("*.box")) == []
    assert "cannot watch" in caplog.text


def test_the_truth_is_written_a_line_a_half_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import json

    monkeypatch.setenv(entry.FOLDER, str(tmp_path))
    monkeypatch.setenv(entry.TRUTH, str(tmp_path / "truth"))
    kind = a_class()
    entry.watch(kind)
    scheduler = kind()
    scheduler.add_request(fakes.Request("a", 6, 4))
    scheduler.update_from_output(scheduler.schedule())
    scheduler.shutdown()
    lines = [json.loads(line) for line in (tmp_path / "truth").read_text().splitlines()]
    assert [(line["at"], line["step"], line.get("scheduled")) for line in lines] == [
        ("scheduled", 1, {"a": 6}),
        ("updated", 1, None),
    ]
    assert lines[1]["requests"] == {"a": ["RUNNING", 6, 0, 6, 1, 0, [1, 2]]}
    assert lines[1]["free"] == 21


def test_a_living_box_is_locked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Seen from another process: see tests/plugin/test_carry.py."""
    monkeypatch.setenv(entry.FOLDER, str(tmp_path))
    scheduler = fakes.Scheduler()
    watcher = entry.attach(scheduler)
    assert watcher is not None
    assert not is_locked(watcher.path)  # one's own lock is never in one's way
    scheduler.shutdown()


@pytest.mark.parametrize(
    "argv, url",
    [
        (["vllm", "serve", "m", "--port", "8123", "--host", "127.0.0.1"], "http://127.0.0.1:8123"),
        (["vllm", "serve", "m", "--port=81", "--host=::1", "--ssl-certfile=x"], "https://[::1]:81"),
        (["vllm", "serve", "m", "--host", "0.0.0.0"], "http://127.0.0.1:8000"),
        (["/x/vllm/entrypoints/openai/api_server.py", "--port", "9"], "http://127.0.0.1:9"),
        (["python", "offline.py"], None),
    ],
)
def test_the_address_is_what_the_front_ends_command_line_says(argv: list[str], url: str | None) -> None:
    assert url_of(argv) == url
