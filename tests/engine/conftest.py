"""Arithmetic in tests of the engine runs on one thread: models this small gain nothing from two, and where other work
runs beside the tests, threads that wait for each other lose much."""

import os
import sys
from collections.abc import Iterator

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read once, when torch loads


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    torch = sys.modules.get("torch")
    if torch is None:  # the scheduler's tests do without
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
