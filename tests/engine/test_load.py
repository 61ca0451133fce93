"""Traffic: the same seed draws the same requests, arrivals obey the mix, and numbers are those of the clients."""

from __future__ import annotations

import random
import statistics
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferdbg.engine.load import MIXES, Lengths, LoadError, Mix, run
from inferdbg.engine.load.client import Address, body_of
from inferdbg.engine.load.mix import Asks
from inferdbg.engine.load.schedule import NEVER, Schedule
from inferdbg.engine.load.summary import Summary, percentiles

CLOSED = Mix("closed", "", concurrency=3)
OPEN = Mix("open", "", rate=50.0, concurrency=10)


def test_the_same_seed_draws_the_same_requests() -> None:
    for mix in MIXES.values():
        first, again = Asks(mix, 7), Asks(mix, 7)
        assert [first.draw() for _ in range(40)] == [again.draw() for _ in range(40)]


def test_another_seed_draws_others() -> None:
    assert Asks(MIXES["demo"], 1).draw() != Asks(MIXES["demo"], 2).draw()


@given(st.integers(0, 2**32), st.integers(1, 5000), st.floats(0, 2))
def test_lengths_stay_within_their_ends(seed: int, median: int, spread: float) -> None:
    lengths = Lengths(median, spread, 1, 10_000)
    assert 1 <= lengths.draw(random.Random(seed)) <= 10_000


def test_half_of_the_lengths_lie_below_the_median() -> None:
    chance = random.Random(3)
    drawn = [Lengths(100, 0.6, 1, 10_000).draw(chance) for _ in range(2000)]
    assert 92 <= statistics.median(drawn) <= 108


def test_shares_of_the_mix_are_kept() -> None:
    mix = replace(CLOSED, shared=0.7, chat=0.3, abort=0.2)
    asks = Asks(mix, 5)
    drawn = [asks.draw() for _ in range(3000)]
    assert sum(bool(ask.prefix) for ask in drawn) / 3000 == pytest.approx(0.7, abs=0.03)
    assert sum(ask.chat for ask in drawn) / 3000 == pytest.approx(0.3, abs=0.03)
    assert sum(ask.abort_after is not None for ask in drawn) / 3000 == pytest.approx(0.2, abs=0.03)
    assert len({ask.prefix for ask in drawn} - {""}) == mix.prefixes


def test_prompt_and_answer_fit_into_the_longest_sequence() -> None:
    asks = Asks(replace(MIXES["long"], shared=1.0), 1, longest=256)
    for _ in range(200):
        ask = asks.draw()
        words = len(ask.prefix.split()) + len(ask.text.split())
        assert words + ask.max_tokens <= 256 * 7 // 8


def test_words_follow_the_servers_tokens() -> None:
    mix = replace(CLOSED, shared=0.0, prompt=Lengths(100, 0.0, 1, 1000))
    assert len(Asks(mix, 1, words_per_token=0.25).draw().text.split()) == 25


def test_a_body_asks_for_a_stream_and_its_usage() -> None:
    asks = Asks(replace(CLOSED, chat=1.0, shared=1.0), 1)
    path, raw = body_of(asks.draw(), "m")
    body = msgspec.json.decode(raw)
    assert path == "/v1/chat/completions"
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}


def test_a_closed_loop_keeps_its_clients_busy() -> None:
    schedule = Schedule(CLOSED, 0, began=0.0, until=10.0, requests=None)
    assert len(schedule.due(0.0, 0)) == 3
    assert len(schedule.due(0.1, 2)) == 1
    assert schedule.due(0.2, 3) == []


def test_nothing_is_due_after_the_end_or_the_last_request() -> None:
    ended = Schedule(CLOSED, 0, began=0.0, until=10.0, requests=None)
    assert ended.due(10.0, 0) == []
    assert ended.over(10.0)
    counted = Schedule(CLOSED, 0, began=0.0, until=NEVER, requests=2)
    assert len(counted.due(0.0, 0)) == 2
    assert counted.over(0.0)
    assert counted.next_at(0.0) == NEVER


def test_arrivals_come_at_their_rate_whatever_is_open() -> None:
    schedule = Schedule(OPEN, 1, began=0.0, until=100.0, requests=None)
    arrived = sum(len(schedule.due(tick / 10, 1000)) for tick in range(1000))
    assert arrived == pytest.approx(5000, rel=0.05)


def test_each_arrival_is_told_once() -> None:
    schedule = Schedule(OPEN, 1, began=0.0, until=100.0, requests=None)
    schedule.due(5.0, 0)
    assert schedule.due(5.0, 0) == []
    assert schedule.next_at(5.0) > 5.0


def test_bursts_come_on_top() -> None:
    mix = replace(OPEN, rate=0.001, burst_every_s=10.0, burst_size=4)
    schedule = Schedule(mix, 1, began=0.0, until=100.0, requests=None)
    assert schedule.due(2.4, 0) == []
    assert schedule.due(2.5, 0) == ["burst"] * 4
    assert schedule.due(12.4, 0) == []
    assert schedule.due(12.5, 0) == ["burst"] * 4


def test_percentiles_are_values_that_were_seen() -> None:
    found = percentiles([float(value) for value in range(100, 0, -1)])
    assert (found.count, found.p50, found.p90, found.p95, found.p99, found.worst) == (100, 50, 90, 95, 99, 100)
    assert percentiles([3.0]).p99 == 3.0
    assert percentiles([]).p50 is None


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8000", Address(False, "127.0.0.1", 8000, "")),
        ("http://h:1/v1/", Address(False, "h", 1, "")),
        ("https://h/proxy/v1", Address(True, "h", 443, "/proxy")),
        ("localhost:8000", Address(False, "localhost", 8000, "")),
        ("http://[::1]:8000", Address(False, "::1", 8000, "")),
    ],
)
def test_addresses_are_read_as_people_type_them(url: str, address: Address) -> None:
    assert Address.of(url) == address


@pytest.mark.parametrize("url", ["ftp://h", "", "http://", "http://h:port"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(LoadError):
        run(url, CLOSED, duration_s=0.1)


def test_a_summary_is_written_as_json() -> None:
    nothing = percentiles([])
    summary = Summary(
        "u", "m", "demo", 0, 1.0, 0, 0, 0, 0, {"refused": 2}, 0, 0, 0, 0.0, 0.0, nothing, nothing, nothing
    )
    assert msgspec.json.decode(msgspec.json.encode(summary), type=Summary) == summary
