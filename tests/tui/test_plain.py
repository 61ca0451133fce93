"""The overview where there is no terminal: golden text, and nothing of Textual."""

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from inferdbg.diagnosis.diagnose import diagnose
from inferdbg.diagnosis.finding import Finding, Severity
from inferdbg.facts.snapshot import Snapshot
from inferdbg.tui.drawing.pulse import now_lines
from inferdbg.tui.plain import overview_text
from tests.support import scenes

GOLDEN = Path(__file__).parent / "plain"


@pytest.mark.parametrize(
    ("name", "scene", "findings"),
    [
        ("healthy", scenes.healthy, None),
        ("pressed", scenes.pressed, (scenes.PRESSURE, scenes.SLOW_FIRST_TOKEN)),
        ("hung", scenes.hung, None),
        ("dead", scenes.dead, None),
        ("unseen", scenes.unseen, None),
        ("empty", scenes.empty, None),
    ],
)
def test_overview_as_text(
    name: str,
    scene: Callable[[], list[Snapshot]],
    findings: Sequence[Finding] | None,
    request: pytest.FixtureRequest,
) -> None:
    window = scenes.Stored(scene()).window()
    said = "\n".join(overview_text(window, diagnose(window) if findings is None else findings)) + "\n"
    golden = GOLDEN / f"{name}.txt"
    if request.config.getoption("--snapshot-update"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(said, encoding="utf-8")
    assert said == golden.read_text(encoding="utf-8")


def test_no_line_is_wider_than_asked() -> None:
    for width in (60, 80, 132, 200):
        for scene in (scenes.pressed(10), scenes.hung(), scenes.unseen()):
            lines = overview_text(scenes.Stored(scene).window(), [scenes.PRESSURE], width=width)
            assert max(map(len, lines)) <= width


def test_foreign_text_reaches_no_terminal_as_control_characters_or_markup() -> None:
    now = scenes.pressed(2)[-1]
    assert now.requests is not None
    evil = tuple(replace(r, id=f"\x1b[31m[bold]{r.number}\x07\n\u202e") for r in now.requests.items)
    now = replace(now, requests=replace(now.requests, items=evil))
    said = "\n".join(overview_text(scenes.Stored([now]).window(), [replace(scenes.PRESSURE, summary="a\x1b]0;x\x07b")]))
    assert "\x1b" not in said
    assert "\x07" not in said
    assert "\u202e" not in said
    assert "[bold]" in said


def test_plain_text_needs_neither_textual_nor_numpy() -> None:
    loaded = (
        "import sys, inferdbg.tui.plain; sys.exit(any(name in sys.modules for name in ('textual', 'rich', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", loaded], check=False).returncode == 0


def test_a_long_step_is_only_stuck_when_a_finding_says_so() -> None:
    window = scenes.Stored(scenes.hung()).window()
    assert "● OK" in "\n".join(overview_text(window, ()))
    for findings, ink in (((), "value"), ((scenes.HANG,), "stuck")):
        inks = {span.ink for found in now_lines(window, findings, 100) for span in found if span.text == "forward"}
        assert inks == {ink}


@pytest.mark.parametrize("first", ["dead", "stuck", "wrong", "slow", "note"])
def test_labels_of_the_verdict_stand_apart_from_what_they_label(first: Severity) -> None:
    others: tuple[Severity, ...] = ("stuck", "wrong", "slow", "note")
    findings = [replace(scenes.PRESSURE, severity=one, summary=f"summary {one}") for one in (first, *others)]
    said = "\n".join(
        overview_text(scenes.Stored(scenes.healthy()).window(), findings[:1] if first == "note" else findings)
    )
    for label, content in (("next", "lower"), ("seen", "scheduler"), *((one, "summary") for one in ("note", first))):
        assert re.search(rf"  {label} +{content}", said, re.IGNORECASE) or re.search(
            rf"● {label} +{content}", said, re.IGNORECASE
        )
        assert not re.search(rf"\b{label}{content}", said, re.IGNORECASE)


def test_a_note_stands_below_the_sentence_that_all_is_well() -> None:
    note = replace(scenes.PRESSURE, severity="note", summary="a planted fault fired", next_step="start it without")
    said = overview_text(scenes.Stored(scenes.healthy()).window(), [note])
    assert re.match(r"│ ● OK +16 running at .* tokens/s, nobody waits", said[2])
    assert re.match(r"│ +looked at pulse, counters", said[3])
    assert re.match(r"│   note  a planted fault fired", said[4])
    assert re.match(r"│   next  start it without", said[5])
