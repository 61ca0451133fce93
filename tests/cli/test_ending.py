"""A signal ends a wait at once, and any number of them end it once."""

import os
import signal
from collections.abc import Iterator

import pytest

from inferdbg.cli.ending import Ending, interrupted_by_signals

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def handlers() -> Iterator[None]:
    """Gives the signals back afterwards."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may have it ignored
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def ending(handlers: None) -> Ending:
    return Ending()


def test_without_a_signal_nothing_ends(ending: Ending) -> None:
    assert not ending.wait(0)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_came_before_ends_the_wait(ending: Ending, number: int) -> None:
    os.kill(os.getpid(), number)
    assert ending.wait(None)
    assert ending.wait(None)


def test_a_flood_of_signals_does_no_harm(ending: Ending) -> None:
    for _ in range(70_000):  # more than a pipe holds
        ending._noted(signal.SIGTERM, None)
    assert ending.wait(None)


def test_an_event_is_set_by_a_signal(ending: Ending) -> None:
    event = ending.event()
    os.kill(os.getpid(), signal.SIGTERM)
    assert event.wait(30)


def test_a_hangup_that_is_ignored_stays_ignored(handlers: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    ending = Ending()
    interrupted_by_signals()
    os.kill(os.getpid(), signal.SIGHUP)
    assert not ending.wait(0)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_interrupts_a_screen(number: int, handlers: None) -> None:
    interrupted_by_signals()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
