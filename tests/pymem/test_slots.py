"""Attributes read again and again are what they are now, also while they change; coroutines show what they await."""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from inferdbg.probes.maps.vllm_v1 import MAP
from inferdbg.probes.memory.front import Front
from inferdbg.probes.pymem.bulk import items, items_of_many, table
from inferdbg.probes.pymem.memory import Unreadable
from inferdbg.probes.pymem.path import follow, object_lines
from inferdbg.probes.pymem.slots import Slots

from .interpreters import Interpreter, each_interpreter, held, local, reading

FRONT = Path(__file__).parents[2] / "fixtures" / "vllm_shapes" / "engine_core.py"
FIRST = 1_000_000_000


@pytest.mark.parametrize("interpreter", each_interpreter())
def test_a_number_that_changes_all_the_time_only_rises(interpreter: Interpreter) -> None:
    with held(interpreter.path) as target, reading(target.pid) as reader:
        for address in (local(reader, "changing"), items(reader, local(reader, "slots"))[0]):
            slots = Slots(reader, int(address), ["count", "ratio", "nothing"])
            assert slots.missing == ("nothing",)
            assert slots.number("count") == FIRST
        target.say("change")
        slots = Slots(reader, local(reader, "changing"), ["count"])
        seen: list[int] = []
        for _ in range(200_000):  # a busy machine lets it run now and then
            if len(set(seen)) > 5:
                break
            with suppress(Unreadable):  # it changed in every try
                seen.append(slots.number("count"))
    assert seen
    assert seen == sorted(seen)
    assert len(set(seen)) > 5
    assert seen[0] >= FIRST
    assert seen[-1] < FIRST + 10**9


@pytest.mark.parametrize("interpreter", each_interpreter())
def test_what_is_no_number_is_not_called_one(interpreter: Interpreter) -> None:
    with held(interpreter.path) as target, reading(target.pid) as reader:
        slots = Slots(reader, local(reader, "changing"), ["grows", "ratio"])
        assert slots.value("ratio") == 0.5
        assert slots.pointers()["grows"] == follow(reader, {"changing": local(reader, "changing")}, "changing.grows")
        with pytest.raises(Unreadable):
            slots.number("grows")
        with pytest.raises(Unreadable):
            slots.number("label")


@pytest.mark.parametrize("interpreter", each_interpreter())
def test_lists_and_the_first_bytes_of_bytes_are_read_together(interpreter: Interpreter) -> None:
    contents = [[["int", n] for n in range(size)] for size in (0, 3, 90)]
    with held(interpreter.path) as target, reading(target.pid) as reader:
        target.hold(["list", [["list", content] for content in contents]])
        lists = items(reader, local(reader, "tree")).tolist()
        found, sizes = items_of_many(reader, lists)
        assert sizes == [0, 3, 90]
        assert found.tolist() == [*items(reader, lists[1]).tolist(), *items(reader, lists[2]).tolist()]
        assert items_of_many(reader, [])[1] == []
        values = [
            ["bytes", b"01234567rest".hex()],
            ["none", None],
            ["bytes", b"ab".hex()],
            ["bytes", b"89abcdef".hex()],
        ]
        target.hold(["list", [["instance", "Slots", {"first": value}, ""] for value in values]])
        objects = items(reader, local(reader, "tree"))
        digests = table(reader, objects, {"first": "digest"}).pointers["first"]
        pointers = table(reader, objects, {"first": "pointer"}).pointers["first"]
    assert digests[0] == int.from_bytes(b"01234567", "little")
    assert digests[3] == int.from_bytes(b"89abcdef", "little")
    assert digests[1] == 0
    assert digests[2] == pointers[2]  # too short: told apart by where it stands
    assert digests.dtype == np.uint64


@pytest.mark.parametrize("interpreter", each_interpreter())
def test_what_a_waiting_coroutine_awaits_is_found(interpreter: Interpreter) -> None:
    process = subprocess.Popen(
        [interpreter.path, str(FRONT), "front"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(["cmpl-1", "cmpl-2"]) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n"
        with reading(process.pid) as reader:
            if interpreter.version == (3, 10):
                with pytest.raises(Unreadable, match="AsyncLLM"):
                    Front(reader, MAP)
                return
            found = Front(reader, MAP).requests()
        assert [one.id for one in found.values()] == ["cmpl-1", "cmpl-2"]
        assert found["cmpl-1"].first_token_ns == 13_000_000_000
    finally:
        process.kill()
        process.communicate()


def test_an_object_is_drawn_without_what_users_wrote_unless_named() -> None:
    process = subprocess.Popen(
        [sys.executable, str(FRONT), "front"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(["cmpl-1"]) + "\n")
        process.stdin.flush()
        process.stdout.readline()
        path = "client.output_processor.request_states['cmpl-1']"
        lines = object_lines(process.pid, path)
        assert f"{path}: RequestState" in lines
        assert "  .request_id: 'cmpl-1'" in lines
        assert not any("private" in line for line in lines)
        assert object_lines(process.pid, f"{path}.prompt")[0].endswith("'private'")
    finally:
        process.kill()
        process.communicate()
