"""A thread changes what is read as fast as it can: nothing of a wrong type or an impossible value goes unlabelled."""

import re
import signal
import sys
import time

import numpy as np
import pytest

from inferdbg.probes.pymem.bulk import table
from inferdbg.probes.pymem.frames import threads
from inferdbg.probes.pymem.memory import Unreadable
from inferdbg.probes.pymem.objects import read, read_attribute
from inferdbg.probes.pymem.reader import Reader
from inferdbg.probes.pymem.reading import take
from inferdbg.probes.pymem.values import Limits, Member, Obj, Unread, Value

from .interpreters import Interpreter, each_interpreter, held, local, reading

READINGS = 2_000
READINGS_OF_OTHERS = 100  # under interpreters that are not ours
LIMITS = Limits(depth=3)
FIRST = 1_000_000_000  # more than there are changes, so that each attribute has numbers of its own
WHOLE = {
    "count": lambda value: isinstance(value, int) and FIRST <= value < 2 * FIRST,
    "label": lambda value: isinstance(value, str) and re.fullmatch(r"label-\d+", value),
    "ratio": lambda value: isinstance(value, float) and 0 < value <= 0.5,
    "pair": lambda value: (
        isinstance(value, tuple)
        and _all_of(value, lambda one: abs(one) >= FIRST, int)
        and (_labelled(value) or (len(value) == 2 and value[0] == -value[1]))
    ),
    "grows": lambda value: isinstance(value, list) and _all_of(value, lambda one: re.fullmatch(r"item-\d+", one), str),
    "table": lambda value: (
        isinstance(value, dict)
        and _all_of(list(value), lambda key: re.fullmatch(r"key-\d+", key), str)
        and _all_of(list(value.values()), lambda one: one <= -FIRST, int)
        and (_labelled([*value, *value.values()]) or all(int(key[4:]) == -FIRST - one for key, one in value.items()))
    ),
    "queue": lambda value: _all_of(value, lambda one: one >= 2 and one == int(one), float),
    "members": lambda value: isinstance(value, set) and _all_of(value, lambda one: one >= 2 * FIRST, int),
    "status": lambda value: isinstance(value, Member) and value.name in ("WAITING", "RUNNING", "FINISHED"),
}


def _readings(interpreter: Interpreter) -> int:
    return READINGS if interpreter.path == sys.executable else READINGS_OF_OTHERS


def _labelled(values: object) -> bool:
    assert isinstance(values, list | tuple)
    return any(isinstance(value, Unread) for value in values)


def _all_of(values: object, fits: object, kind: type) -> bool:
    assert callable(fits)
    assert hasattr(values, "__iter__")
    return all(
        (isinstance(value, kind) and fits(value)) or (isinstance(value, Unread) and value.why in LABELS)
        for value in values
    )


LABELS = ("changing", "unreadable", "budget")


def _count_labels(values: dict[str, Value]) -> int:
    """Attributes that are labelled, after all others were found to be possible."""
    labelled = 0
    for name, fits in WHOLE.items():
        value = values.get(name)
        if isinstance(value, Unread):
            assert value.why in LABELS, (name, value)
            labelled += 1
        elif name in values:
            assert fits(value), (name, value)
        else:
            labelled += 1
    return labelled


@pytest.mark.parametrize("interpreter", each_interpreter())
def test_what_changes_while_it_is_read_is_possible_or_labelled(interpreter: Interpreter) -> None:
    with held(interpreter.path) as target, reading(target.pid) as reader:
        address = local(reader, "changing")
        target.say("change")
        labelled = whole = 0
        readings = _readings(interpreter)
        for _ in range(readings):
            try:
                found = read(reader, address, LIMITS)
            except Unreadable:
                labelled += len(WHOLE)
                continue
            if isinstance(found, Unread):
                assert found.why in LABELS
                labelled += len(WHOLE)
                continue
            assert isinstance(found, Obj)
            assert found.type == "Mutable"
            lost = _count_labels(found.attributes)
            labelled += lost
            whole += len(WHOLE) - lost
        assert whole > readings, labelled  # it is not all called changing


@pytest.mark.parametrize("interpreter", each_interpreter())
def test_columns_of_what_changes_are_possible_or_labelled(interpreter: Interpreter) -> None:
    with held(interpreter.path) as target, reading(target.pid) as reader:
        rows = _addresses(reader, local(reader, "slots"))
        mutable = np.array([local(reader, "changing")], np.uint64)
        target.say("change")
        certain = 0
        for _ in range(_readings(interpreter) // 4):
            found = table(reader, rows, {"count": "integer", "label": "value", "ratio": "value"})
            assert not found.foreign.any()
            for row in np.flatnonzero(~found.changing).tolist():
                certain += 1
                assert found.known["count"][row]
                assert FIRST <= found.integers["count"][row] < 2 * FIRST
                label, ratio = found.values["label"][row], found.values["ratio"][row]
                assert WHOLE["label"](label) or (isinstance(label, Unread) and label.why in LABELS), label
                assert WHOLE["ratio"](ratio) or (isinstance(ratio, Unread) and ratio.why in LABELS), ratio
            one = table(reader, mutable, {"count": "integer", "status": "value", "grows": "value"})
            if not one.changing[0]:
                assert FIRST <= one.integers["count"][0] < 2 * FIRST
                assert WHOLE["status"](one.values["status"][0])
        assert certain


def _addresses(reader: Reader, address: int) -> "np.typing.NDArray[np.uint64]":
    from inferdbg.probes.pymem.bulk import items

    return items(reader, address)


@pytest.mark.parametrize("interpreter", each_interpreter())
def test_a_reading_says_where_the_changing_thread_stood(interpreter: Interpreter) -> None:
    with held(interpreter.path) as target, reading(target.pid) as reader:
        address = local(reader, "changing")
        target.say("change")
        by_name = {}
        while "changer" not in by_name:
            by_name = {thread.name: thread for thread in threads(reader)}
        changer, waiting = by_name["changer"], by_name["MainThread"]

        def count() -> int:
            found = read_attribute(reader, address, "count")
            assert isinstance(found, int)
            assert FIRST <= found < 2 * FIRST
            return found

        calm = take(reader, waiting.address, lambda: 1, changing=["change_for_ever"], loop="hold")
        assert str(calm) == "consistent"
        inside = take(reader, changer.address, lambda: 1, changing=["change_for_ever"])
        assert (inside.label, inside.function) == ("mid", "change_for_ever")
        # Without a counter a loop may stand where it stood, by chance; with one it may not.
        moved = [
            take(reader, changer.address, _wait, changing=["up"], loop="change_for_ever", tries=1) for _ in range(60)
        ]
        assert sum(one.label == "spans" for one in moved) > 12  # of 60; 0.44 to 0.99 of them by interpreter
        target.process.send_signal(signal.SIGSTOP)
        _until_stopped(target.pid)
        stopped = take(reader, changer.address, count, changing=["change_for_ever"], counter=count)
        assert str(stopped) == "mid change_for_ever"  # equal twice, and half-changed all the same
        elsewhere = take(reader, changer.address, count, changing=["update"], loop="change_for_ever", counter=count)
        assert elsewhere.label == "consistent"
        target.process.send_signal(signal.SIGCONT)
        counted = take(
            reader,
            changer.address,
            lambda: time.sleep(0.05),
            changing=["update"],
            loop="change_for_ever",
            counter=count,
        )
        assert counted.steps is None or counted.steps > 0


def _wait() -> None:
    time.sleep(0.05)


def _until_stopped(pid: int) -> None:
    deadline = time.monotonic() + 10
    while True:
        with open(f"/proc/{pid}/stat") as stat:
            if stat.read().rpartition(")")[2].split()[0] == "T":
                return
        assert time.monotonic() < deadline
