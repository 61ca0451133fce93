"""Columns say what the objects say one by one."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferdbg.errors import InferdbgError
from inferdbg.probes.pymem.bulk import items, table
from inferdbg.probes.pymem.objects import read
from inferdbg.probes.pymem.values import Limits, Obj, Unread

from .interpreters import Interpreter, each_interpreter, held, local, reading
from .trees import FIELDS, Tree, leaves, plain

CLASSES = ["Slots", "Data", "Plain", "Named", "SlotsAndDict"]


def rows() -> st.SearchStrategy[Tree]:
    """Instances of one class with the same attributes; sometimes more than a shared table of keys holds."""

    def instances(chosen: tuple[str, str, int]) -> st.SearchStrategy[list[Tree]]:
        kind, treatment, more = chosen
        fields = {name: leaves() for name in FIELDS}
        if kind == "Plain":
            fields.update({f"more_{number}": st.just(["none", None]) for number in range(more)})
        made = st.fixed_dictionaries(fields)
        treated = st.just(treatment if kind == "Plain" else "")
        return st.lists(st.tuples(st.just("instance"), st.just(kind), made, treated).map(list), min_size=1, max_size=9)

    kinds = st.tuples(st.sampled_from(CLASSES), st.sampled_from(["", "dict taken"]), st.sampled_from([0, 20, 40]))
    return kinds.flatmap(instances).map(lambda made: ["list", made])


@pytest.mark.parametrize("interpreter", each_interpreter())
def test_columns_equal_the_objects(interpreter: Interpreter) -> None:
    with held(interpreter.path) as target, reading(target.pid) as reader:

        @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
        @given(rows())
        def are_equal(tree: Tree) -> None:
            target.hold(tree)
            address = local(reader, "tree")
            if tree[1][0][1] == "Named":
                return
            singly = read(reader, address, Limits(depth=3, text=None))
            found = table(reader, items(reader, address), dict.fromkeys(FIELDS, "value"), Limits(text=None))
            numbers = table(reader, items(reader, address), dict.fromkeys(FIELDS, "integer"))
            assert isinstance(singly, list)
            assert not (found.changing | found.foreign).any()
            for row, one in enumerate(singly):
                assert isinstance(one, Obj)
                for name in FIELDS:
                    value = one.attributes[name]
                    assert plain(found.values[name][row]) == plain(value)
                    known = bool(numbers.known[name][row])
                    if isinstance(value, int) and abs(value) < 1 << 60:
                        assert known
                        assert numbers.integers[name][row] == value
                    else:
                        assert not known

        are_equal()


@pytest.mark.parametrize("interpreter", each_interpreter())
def test_rows_that_are_something_else_are_told_apart(interpreter: Interpreter) -> None:
    with held(interpreter.path) as target, reading(target.pid) as reader:
        fields = {name: ["int", "70000"] for name in FIELDS}
        target.hold(["list", [["instance", "Slots", fields, ""], ["int", "99999"], ["instance", "Slots", {}, ""]]])
        addresses = np.concatenate([items(reader, local(reader, "tree")), np.array([0, 4096, 1 << 46], np.uint64)])
        found = table(reader, addresses, {"first": "integer", "second": "value", "third": "pointer"})
        assert found.type == "Slots"
        assert found.foreign.tolist() == [False, True, False, True, True, True]
        assert found.integers["first"].tolist()[0] == 70000
        assert found.known["first"].tolist() == [True, False, False, False, False, False]
        missing = found.values["second"][2]
        assert isinstance(missing, Unread)
        assert missing.why == "absent"
        assert found.pointers["third"][2] == 0
        with pytest.raises(InferdbgError, match="Slots has no attribute nothing"):
            table(reader, addresses, {"nothing": "integer"})
