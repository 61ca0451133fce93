"""People name objects as Python would, and are told what there is where a name leads nowhere."""

import re
import sys
from collections.abc import Iterator

import pytest

from inferdbg.errors import InferdbgError
from inferdbg.probes.pymem.objects import read, read_attribute
from inferdbg.probes.pymem.path import Key, follow, lines, parse, roots, show
from inferdbg.probes.pymem.reader import Reader
from inferdbg.probes.pymem.values import Limits, Member, Obj, Unread

from .interpreters import held, local, reading
from .trees import Tree

LETTERS = [ord(letter) for letter in "waiting"]
TREE: Tree = [
    "instance",
    "Plain",
    {
        "running": ["list", [["instance", "Data", {name: ["int", "5"] for name in ("first", "second", "third")}, ""]]],
        "requests": ["dict", [[["str", LETTERS], ["int", "4"]], [["int", "7"], ["enum", "Status", "RUNNING"]]]],
        "prompt": ["str", [97] * 500],
    },
    "",
]


@pytest.fixture(scope="module")
def target() -> Iterator[Reader]:
    with held(sys.executable) as process, reading(process.pid) as reader:
        process.hold(TREE)
        yield reader


def test_a_path_is_read_as_python_would() -> None:
    assert parse("scheduler.running[0].status") == ["scheduler", "running", Key(0), "status"]
    assert parse("""a['x]y'][-1][(1, 'b')].c""") == ["a", Key("x]y"), Key(-1), Key((1, "b")), "c"]


@pytest.mark.parametrize("path", ["", "[0]", "a..b", "a[", "a[x]", "a b", "a]", "a[0]b"])
def test_what_is_no_path_says_where(path: str) -> None:
    with pytest.raises(InferdbgError, match="is no path"):
        parse(path)


def test_a_path_leads_to_its_object(target: Reader) -> None:
    known = roots(target, "hold")
    assert read(target, follow(target, known, "tree.running[-1].second")) == 5
    assert read(target, follow(target, known, "tree.requests['waiting']")) == 4
    assert read(target, follow(target, known, "tree.requests[7]")) == Member("Status", "RUNNING", 1000)
    assert read_attribute(target, follow(target, known, "tree.running[0]"), "third") == 5


@pytest.mark.parametrize(
    "path, said, instead",
    [
        ("tre.running", "nothing is called 'tre' here", "there are: tree"),
        ("tree.runing", "tree is a Plain and has no attribute 'runing'", "there are: running, requests, prompt"),
        ("tree.running[3]", "tree.running has 1 item, no 3: 0 to 0", ""),
        ("tree.requests['wait']", "tree.requests has no key 'wait'", "there are: 'waiting', 7"),
        ("tree.requests.waiting", "has no attribute 'waiting'", "it has such a key: tree.requests['waiting']"),
        ("tree.running['a']", "'a' is no place in it", ""),
        ("tree.prompt[0]", "tree.prompt is a str and has no items", ""),
    ],
)
def test_a_path_to_nowhere_says_what_there_is(target: Reader, path: str, said: str, instead: str) -> None:
    with pytest.raises(InferdbgError, match=re.escape(said)) as refused:
        follow(target, roots(target, "hold"), path)
    assert instead in refused.value.hint


def test_a_call_that_is_not_made_says_which_are(target: Reader) -> None:
    with pytest.raises(InferdbgError, match="holt is not being called") as refused:
        roots(target, "holt")
    assert "hold" in refused.value.hint


def test_a_tree_is_drawn(target: Reader) -> None:
    address = follow(target, roots(target), "tree.running[0]")
    assert show(target, "tree") == [
        "tree: Plain",
        "  .running: list of 1",
        "    [0]: Data",
        "      .first: 5",
        "      .second: 5",
        "      .third: 5",
        "  .requests: dict of 2",
        "    ['waiting']: 4",
        "    [7]: Status.RUNNING",
        "  .prompt: <str of 500, hidden>",
    ]
    assert show(target, "tree", limits=Limits(depth=1))[1] == "  .running: <list of 1, not opened>"
    assert address in roots(target).values() or address


def test_what_is_drawn_is_bounded_and_harmless() -> None:
    evil = Obj("Evil\x1b[2J", 1, {"a\x1b[31m": "\x1b]0;title\x07", "b": Unread("x\n", 2, "changing")})
    drawn = lines(evil, "it")
    assert not any("\x1b" in line or "\x07" in line or "\n" in line for line in drawn)
    assert len(lines(["x"] * 1000, "it", most=10)) == 11


def test_text_of_users_is_hidden_unless_asked_for(target: Reader) -> None:
    address = local(target, "tree")
    usual, asked = read(target, address), read(target, address, Limits(text=None))
    named = read(target, address, Limits(text=None, hidden=frozenset({"prompt"})))
    assert isinstance(usual, Obj)
    assert isinstance(asked, Obj)
    assert isinstance(named, Obj)
    assert isinstance(usual.attributes["prompt"], Unread)
    assert usual.attributes["prompt"].size == 500
    assert asked.attributes["prompt"] == "a" * 500
    assert isinstance(named.attributes["prompt"], Unread)
    assert named.attributes["prompt"].why == "hidden"
