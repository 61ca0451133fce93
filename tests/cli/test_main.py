"""Every error becomes a line, a hint and the documented exit code; every verb says how it is used."""

import importlib.abc
import shlex
import sys

import click
import pytest

from inferdbg.__main__ import main as begin
from inferdbg.cli.main import Verbs, cli, main
from inferdbg.cli.options import writer
from inferdbg.cli.output import Output
from inferdbg.engine.errors import BadRequest, ConfigError, ModelError
from inferdbg.errors import Exit, InferdbgError

VERBS = cli.list_commands(click.Context(cli))


def verb(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def run_raising(error: BaseException) -> int:
    @click.command()
    def broken() -> None:
        raise error

    return main(["broken"], Verbs(commands={"broken": broken}))


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_has_one_line_of_help_with_an_example(name: str) -> None:
    line = verb(name).short_help
    assert line is not None
    assert f"inferdbg {name}" in line
    assert len(line) <= 100


@pytest.mark.parametrize("name", VERBS)
def test_the_examples_in_the_help_are_understood(name: str) -> None:
    epilog = verb(name).epilog or ""
    examples = [line.strip() for line in epilog.splitlines() if line.startswith("  inferdbg ")]
    assert examples
    for line in examples:
        words = shlex.split(line.partition(" | ")[0])[1:]
        assert words[0] == name
        verb(name).make_context(name, words[1:])  # raises UsageError where an option is not known


@pytest.mark.parametrize("name", VERBS)
def test_every_option_says_what_it_is_for(name: str) -> None:
    for option in verb(name).params:
        if isinstance(option, click.Option):
            assert option.help, option.name


def test_without_a_verb_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == Exit.FINE
    assert "inferdbg top --demo" in capsys.readouterr().out


def test_an_unknown_verb_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["frobnicate"]) == Exit.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "error: No such command 'frobnicate'.\n  see: inferdbg --help\n"


def test_a_bad_duration_is_a_usage_error_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["load", "http://127.0.0.1:1", "--for", "60"]) == Exit.USAGE
    assert "'60' is not a duration: write a number and a unit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InferdbgError("gone", "look there"), Exit.UNREACHABLE, "error: gone\n  look there\n"),
        (InferdbgError("nothing", code=Exit.NOTHING_CHECKED), Exit.NOTHING_CHECKED, "error: nothing\n"),
        (ModelError("cut short", "fetch it again"), Exit.UNREACHABLE, "error: cut short\n  fetch it again\n"),
        (ConfigError("0 blocks"), Exit.USAGE, "error: 0 blocks\n"),
        (BadRequest("too long"), Exit.USAGE, "error: too long\n"),
        (OSError(28, "No space left on device", "/x"), Exit.UNREACHABLE, "error: /x: No space left on device\n"),
        (
            KeyError("seq"),
            Exit.BUG,
            "error: KeyError: 'seq' (this is a bug in inferdbg)\n  to see where: INFERDBG_DEBUG=1",
        ),
        (KeyboardInterrupt(), Exit.INTERRUPTED, ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_an_error_becomes_a_line_a_hint_and_a_code(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_raising(error) == code
    assert capsys.readouterr().err.strip().startswith(said.strip())


def test_what_a_verb_returns_is_the_exit_code() -> None:
    @click.command()
    @click.pass_obj
    def finds(out: Output) -> int:
        return Exit.FINDINGS

    assert main(["finds"], Verbs(commands={"finds": finds})) == Exit.FINDINGS


def test_an_interval_that_would_only_burn_the_processor_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", "1", "--interval", "1ms"]) == Exit.USAGE
    assert "at least 10ms" in capsys.readouterr().err


def test_an_option_that_would_do_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--model", "tiny"]) == Exit.USAGE
    assert "give both" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("record", "1", "-o", "x", "--max-bytes", "0"), "at least 1 MiB"),
        (("record", "1", "-o", "x", "--max-bytes", "1k"), "at least 1 MiB"),
        (("record", "1", "-o", "x", "--keep", "0s"), "at least 10 s"),
        (("record", "1", "-o", "x", "--interval", "1000000h"), "is too long: at most 3650d"),
        (("record", "1", "-o", "x", "--interval", "2h"), "at most 1h"),
        (("load", "http://127.0.0.1:1", "--rate", "nan"), "nan is not in the range"),
        (("load", "http://127.0.0.1:1", "--rate", "inf"), "inf is not in the range"),
        (("load", "http://127.0.0.1:1", "--abort", "nan"), "nan is not in the range"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_value_out_of_bounds_is_refused_with_the_bound(
    argv: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == Exit.USAGE
    assert said in capsys.readouterr().err


def test_a_recording_without_a_name_is_refused() -> None:
    with pytest.raises(InferdbgError, match="has no name") as caught:
        writer("", force=False)
    assert (caught.value.code, caught.value.hint) == (Exit.USAGE, "name a file, like run.idbg")


def test_an_interrupt_during_the_imports_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, *_: object) -> None:
            if name == "inferdbg.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "inferdbg.cli.main")
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    assert begin() == Exit.INTERRUPTED
