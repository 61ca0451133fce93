"""`inferdbg top` where several servers run: which comes after which."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from inferdbg.cli import here
from inferdbg.cli.main import main
from inferdbg.cli.verbs import top
from inferdbg.probes.discovery import Found
from inferdbg.probes.servers import FoundServer

ONE, TWO, THREE = (FoundServer("vllm", (), 0, url=f"http://127.0.0.1:{port}") for port in (8001, 8002, 8003))


def shown_of(monkeypatch: pytest.MonkeyPatch, looks: Sequence[Sequence[FoundServer]], *options: str) -> list[str]:
    """What top shows of servers that are there at each look for them, when the person goes on as long as that works."""
    found, shown = iter(looks), list[str]()

    def show(out: object, engine: FoundServer, interval_ns: int, keep: object, *, place: str, once: bool) -> bool:
        shown.append(f"{engine.url} {place}".rstrip())
        return bool(place) and len(shown) < len(looks)

    monkeypatch.setattr(here, "discovered", lambda folders: Found((), (), servers=tuple(next(found))))
    monkeypatch.setattr(top, "_show", show)
    monkeypatch.setattr(top, "_load", lambda engine: (1 if engine is TWO else 0, 0))
    assert main(["top", *options]) == 0
    return [line.removeprefix("http://127.0.0.1:") for line in shown]


def test_the_busiest_comes_first_and_then_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    all_three = [ONE, TWO, THREE]
    assert shown_of(monkeypatch, [all_three] * 4) == ["8002 2/3", "8003 3/3", "8001 1/3", "8002 2/3"]


def test_one_that_went_away_is_passed_over_and_one_that_came_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [[ONE, TWO], [ONE, THREE], [ONE, THREE]]
    assert shown_of(monkeypatch, looks) == ["8002 2/2", "8001 1/2", "8003 2/2"]


def test_one_alone_has_no_place_and_a_recording_is_of_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert shown_of(monkeypatch, [[ONE]]) == ["8001"]
    assert shown_of(monkeypatch, [[ONE, TWO]], "--record", str(tmp_path / "run.idbg")) == ["8002"]
