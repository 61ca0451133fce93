"""Objects of every CPython are read as what they are."""

import pytest
from hypothesis import HealthCheck, given, settings

from inferdbg.probes.pymem.objects import read
from inferdbg.probes.pymem.values import Limits

from .interpreters import Interpreter, each_interpreter, held, local, reading
from .trees import Tree, canonical, plain, trees

EVERYTHING = Limits(depth=60, text=None)


@pytest.mark.parametrize("interpreter", each_interpreter())
def test_random_trees_are_read_equal(interpreter: Interpreter) -> None:
    with held(interpreter.path) as target, reading(target.pid) as reader:

        @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
        @given(trees(msgspec="msgspec" in reader.modules()))
        def is_read_equal(tree: Tree) -> None:
            target.hold(tree)
            for name in ("tree", "closed"):
                assert plain(read(reader, local(reader, name), EVERYTHING)) == canonical(tree)

        is_read_equal()
