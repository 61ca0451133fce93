"""Data goes to stdout, words for people to stderr, and foreign text cannot drive the terminal."""

import io

import pytest

from inferdbg.cli.output import Output
from inferdbg.diagnosis.finding import Finding


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_data_and_words_do_not_mix() -> None:
    out = Output(io.StringIO(), io.StringIO())
    out.show("data")
    out.say("words")
    assert (out.data.getvalue(), out.people.getvalue()) == ("data\n", "words\n")  # type: ignore[attr-defined]


def test_json_is_one_line_that_leaves_defaults_out() -> None:
    out = Output(io.StringIO(), io.StringIO())
    out.show_json({"findings": [Finding("kv_pressure", "slow", "sure", "too\nfew")]})
    assert out.data.getvalue() == (  # type: ignore[attr-defined]
        '{"findings":[{"cause":"kv_pressure","severity":"slow","confidence":"sure","summary":"too\\nfew"}]}\n'
    )


def test_an_error_is_a_line_and_its_hint_another() -> None:
    people = io.StringIO()
    Output(io.StringIO(), people).complain("no such \x1b[31mmodel\n", "fetch it:\n  make setup")
    assert people.getvalue() == "error: no such model \n  fetch it:\n    make setup\n"


def test_an_error_that_nobody_can_read_raises_no_other() -> None:
    full = open("/dev/full", "w")  # noqa: SIM115  closed below, which raises
    Output(io.StringIO(), full).complain("gone", "look there")
    with pytest.raises(OSError, match="No space left"):  # it was not because there was room
        full.close()


def test_errors_are_red_on_a_terminal_only_and_not_with_no_color() -> None:
    for people, colour, expected in (
        (Terminal(), True, "\x1b[31m\x1b[1merror:\x1b[0m x\n"),
        (Terminal(), False, "error: x\n"),
        (io.StringIO(), True, "error: x\n"),
    ):
        Output(io.StringIO(), people, colour).complain("x")
        assert people.getvalue() == expected


def test_progress_is_replaced_on_a_terminal_and_left_before_other_words() -> None:
    people = Terminal()
    out = Output(io.StringIO(), people)
    out.progress("10 s of 60 s")
    out.progress("done")
    out.say("saved")
    assert people.getvalue() == "\r10 s of 60 s\rdone        \nsaved\n"


def test_progress_is_silent_elsewhere() -> None:
    people = io.StringIO()
    Output(io.StringIO(), people).progress("10 s")
    assert people.getvalue() == ""
