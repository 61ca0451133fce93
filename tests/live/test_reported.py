"""The probe of what servers report, over real sockets: well-behaved servers, ones that end, and ones that do worst."""

import gzip
import socket
import threading
import time
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server

from inferdbg.collect.collector import Collector
from inferdbg.collect.probe import SECOND, Reading
from inferdbg.errors import InferdbgError
from inferdbg.facts.sections.kvcache import KVCache
from inferdbg.facts.sections.metrics import Buckets, Label, Metrics, Series
from inferdbg.facts.sections.requests import Requests
from inferdbg.facts.sections.scheduler import Scheduler
from inferdbg.facts.sections.server import Server
from inferdbg.facts.snapshot import Target
from inferdbg.probes.reported.probe import MOST_SERIES, Reported
from tests.reported.answering import Answer, answering, http
from tests.reported.fixtures import read

pytestmark = pytest.mark.live

MODELS = b'{"object":"list","data":[{"id":"tiny","object":"model","max_model_len":2048}]}'
DEADLINE_S = Reported.deadline_ns / SECOND


def vllm(name: str = "preempt_after") -> dict[str, Answer]:
    return {
        "/metrics": http(read(f"vllm/metrics_{name}.txt")),
        "/health": http(b""),
        "/version": http(b'{"version":"0.32.0"}'),
        "/v1/models": http(MODELS),
    }


def llamacpp(name: str = "busy") -> dict[str, Answer]:
    return {
        "/metrics": http(read(f"llamacpp/{name}_metrics.txt")),
        "/slots": http(read(f"llamacpp/{name}_slots.json")),
        "/props": http(read("llamacpp/busy_props.json")),
        "/v1/models": http(read("llamacpp/busy_v1_models.json")),
        "/health": http(b'{"status":"ok"}'),
    }


def server_of(reading: Reading) -> Server:
    found = reading.sections["server"]
    assert isinstance(found, Server)
    return found


def health_of(reading: Reading) -> str | None:
    health = server_of(reading).health
    return health.answer if health is not None else None


@pytest.mark.parametrize(
    ("rank", "generated", "blocks"), [("DP1", 51_010, 80), (None, 103_479, 160), ("DP7", 103_479, 160)]
)
def test_of_several_data_parallel_ranks_one_is_meant_or_all(rank: str | None, generated: int, blocks: int) -> None:
    """One that the server does not tell apart cannot be."""
    with answering(vllm("data_parallel")) as server:
        probe = Reported(server.url, "vllm", rank)
        found = probe.read(SECOND).sections
        probe.close()
    assert isinstance(found["scheduler"], Scheduler)
    assert isinstance(found["kvcache"], KVCache)
    assert (found["scheduler"].generated_tokens_total, found["kvcache"].num_blocks) == (generated, blocks)
    assert len(found["scheduler"].ranks) == (0 if rank == "DP1" else 2)


def test_a_vllm_server() -> None:
    with answering(vllm()) as server:
        probe = Reported(server.url, "vllm")
        reading = probe.read(SECOND)
        probe.read(3 * SECOND)
        probe.close()
    assert reading.status == "ok"
    assert set(reading.sections) == {"server", "scheduler", "kvcache", "metrics"}
    found = server_of(reading)
    assert (found.engine, found.version, found.state, found.restarts) == ("vllm", "0.32.0", "alive", 0)
    assert found.started_wall_ns == 1_795_985_338_460_000_000
    assert found.model is not None
    assert found.model.name == "tiny"
    assert found.config is not None
    assert (found.config.num_blocks, found.config.max_model_len) == (80, 2048)
    assert health_of(reading) == "200"
    assert reading.message.startswith("each look, every 2 s: ")
    assert "57 KiB, a line in its access log" in reading.message
    assert "scheduler.preempted_total: " in reading.hint
    assert "scheduler.aborted_total: " in reading.hint
    assert all(section.origin.provenance == "reported" for section in reading.sections.values())  # type: ignore[attr-defined]
    once = ["GET /metrics", "GET /health", "GET /version", "GET /v1/models"]
    assert [line.removesuffix(" HTTP/1.1") for line in server.asked] == [*once, "GET /metrics"]
    assert server.connections == 1


def test_its_health_is_asked_less_often() -> None:
    with answering(vllm()) as server:
        probe = Reported(server.url, "vllm")
        for second in range(1, 24, 2):
            probe.read(second * SECOND)
        probe.close()
    assert server.asked.count("GET /health HTTP/1.1") == 3


def test_while_requests_run_and_nothing_is_counted_it_is_asked_at_every_look() -> None:
    with answering(vllm("load8")) as server:
        probe = Reported(server.url, "vllm")
        probe.read(SECOND)
        server.answers["/health"] = http(b"", "503 Service Unavailable")
        reading = probe.read(3 * SECOND)
        probe.close()
    assert health_of(reading) == "503"


def test_a_restart_is_noticed() -> None:
    with answering(vllm("preempt_after")) as server:
        probe = Reported(server.url, "vllm")
        probe.read(SECOND)
        server.answers["/metrics"] = http(read("vllm/metrics_idle.txt"))
        server.answers["/version"] = http(b'{"version":"0.33.0"}')
        reading = probe.read(3 * SECOND)
        later = probe.read(5 * SECOND)
        probe.close()
    assert (server_of(reading).restarts, server_of(reading).version) == (1, "0.33.0")
    assert server_of(later).restarts == 1
    assert "the server began anew 2 s ago" in later.message


def test_a_restart_of_one_that_tells_no_start_time_is_noticed_by_its_counters() -> None:
    with answering(llamacpp("after")) as server:
        probe = Reported(server.url, "llama.cpp")
        probe.read(SECOND)
        server.answers["/metrics"] = http(read("llamacpp/idle_metrics.txt"))
        reading = probe.read(3 * SECOND)
        probe.close()
    assert server_of(reading).restarts == 1
    scheduler = reading.sections["scheduler"]
    assert isinstance(scheduler, Scheduler)
    assert scheduler.generated_tokens_total == 0


def test_a_llamacpp_server() -> None:
    with answering(llamacpp()) as server:
        probe = Reported(server.url, "llama.cpp")
        reading = probe.read(SECOND)
        probe.close()
    assert set(reading.sections) == {"server", "scheduler", "requests", "metrics"}
    requests, scheduler = reading.sections["requests"], reading.sections["scheduler"]
    assert isinstance(requests, Requests)
    assert [item.number for item in requests.items] == [8, 5, 7, 4]
    assert isinstance(scheduler, Scheduler)
    assert (scheduler.running, scheduler.waiting, scheduler.generated_tokens_total) == (4, 2, 2097)
    assert server_of(reading).version == "b0-unknown"
    assert "access log" not in reading.message


def test_a_llamacpp_server_without_metrics_still_tells_its_slots() -> None:
    off = http(b'{"error":{"code":501}}', "501 Not Implemented")
    with answering({**llamacpp(), "/metrics": off}) as server:
        probe = Reported(server.url, "llama.cpp")
        reading = probe.read(SECOND)
        probe.close()
    assert reading.status == "ok"
    assert reading.sections["scheduler"] == Scheduler(server_of(reading).origin, running=4)
    assert reading.hint == "start llama-server with --metrics to see its queue and totals"


def test_a_sleeping_llamacpp_server_is_let_sleep() -> None:
    props = read("llamacpp/busy_props.json").replace(b'"is_sleeping":false', b'"is_sleeping":true')
    with answering({**llamacpp(), "/props": http(props)}) as server:
        probe = Reported(server.url, "llama.cpp")
        reading = probe.read(SECOND)
        probe.read(3 * SECOND)
        server.answers["/props"] = http(read("llamacpp/busy_props.json"))
        woken = probe.read(5 * SECOND)
        probe.close()
    assert "sleeps" in reading.message
    assert {line.split()[1] for line in server.asked[:4]} == {"/props", "/v1/models"}
    assert "scheduler" in woken.sections


def test_any_prometheus_endpoint_is_kept_name_by_name() -> None:
    registry = CollectorRegistry()
    Counter("pages_total", "Pages.", ("kind",), registry=registry).labels(kind='a "b"').inc(3)
    Histogram("turn_seconds", "", registry=registry, buckets=(0.5, 1.0)).observe(0.7)
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        probe = Reported(f"http://127.0.0.1:{server.server_port}/metrics", "unknown")
        reading = probe.read(SECOND)
        probe.close()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert reading.status == "ok"
    assert set(reading.sections) == {"server", "metrics"}
    metrics = reading.sections["metrics"]
    assert isinstance(metrics, Metrics)
    assert metrics.items == (
        Series("pages_total", "counter", (Label("kind", 'a "b"'),), 3.0),
        Series("turn_seconds", "histogram", (), None, Buckets((0.5, 1.0), (0, 1, 0), 0.7)),
    )
    assert server_of(reading).engine == "unknown"


def test_more_series_than_there_is_room_for_are_counted() -> None:
    body = b"".join(b'a_total{n="%d"} 1\n' % index for index in range(MOST_SERIES + 7))
    with answering({"/metrics": http(body)}) as server:
        probe = Reported(server.url, "unknown")
        metrics = probe.read(SECOND).sections["metrics"]
        probe.close()
    assert isinstance(metrics, Metrics)
    assert (len(metrics.items), metrics.left_out) == (MOST_SERIES, 7)


def test_a_server_that_ends() -> None:
    with answering(vllm()) as server:
        probe = Reported(server.url, "vllm")
        probe.read(SECOND)
    gone = probe.read(3 * SECOND)
    probe.close()
    assert (gone.status, health_of(gone)) == ("absent", "refused")
    assert set(gone.sections) == {"server"}
    assert (server_of(gone).state, server_of(gone).version) == ("dead", "0.32.0")


def test_the_health_of_one_that_recovers_is_told_at_once() -> None:
    with answering({**vllm(), "/health": http(b"", "503 Service Unavailable")}) as server:
        probe = Reported(server.url, "vllm")
        ill = probe.read(SECOND)
        server.answers["/health"] = http(b"")
        well = probe.read(3 * SECOND)
        probe.close()
    assert (health_of(ill), health_of(well)) == ("503", "200")


def test_a_kept_connection_that_was_closed_is_opened_again() -> None:
    with answering(vllm()) as server:
        probe = Reported(server.url, "vllm")
        probe.read(SECOND)
        server.hang_up()
        reading = probe.read(3 * SECOND)
        probe.close()
    assert reading.status == "ok"
    assert server.connections == 2


def test_what_a_hanging_server_said_stands_with_its_age() -> None:
    with answering(vllm()) as server:
        probe = Reported(server.url, "vllm")
        probe.read(SECOND)
        server.answers["/metrics"] = silent
        reading = probe.read(13 * SECOND)
        probe.close()
        url = server.url
    assert (reading.status, health_of(reading)) == ("not answering", "200")
    cache = reading.sections["kvcache"]
    assert isinstance(cache, KVCache)
    assert cache.origin.mono_ns == SECOND
    assert reading.message == "GET /metrics: no whole answer within 1.5 s"
    assert reading.hint == f"curl -m 5 -sv {url}/health"


def silent(connection: socket.socket) -> None:
    connection.recv(1)


def drip(head: bytes, byte: bytes) -> Callable[[socket.socket], None]:
    """A byte every 50 ms, without an end."""

    def send(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(byte)
            time.sleep(0.05)

    return send


def endless(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    much = b"a 1\n" * (1 << 20)
    while True:
        connection.sendall(much)


def bomb() -> bytes:
    return http(gzip.compress(b"a 1\n" * 1_000_000), "200 OK", "Content-Encoding: gzip")


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"


@pytest.mark.parametrize(
    "answer, status, said",
    [
        (silent, "not answering", "no whole answer within 1.5 s"),
        (drip(b"HTTP/1.1 200 OK\r\n", b"X"), "not answering", "no whole answer within 1.5 s"),
        (drip(HEAD, b"a"), "not answering", "no whole answer within 1.5 s"),
        (endless, "failed", "the answer is longer than 4 MiB"),
        (bomb(), "failed", "the answer is packed (gzip), which was not asked for"),
        (
            http(b"", "302 Found", "Location: http://127.0.0.1:1/"),
            "failed",
            "which leads elsewhere: that is not followed",
        ),
        (lambda connection: connection.sendall(HEAD + b"a 1\n"), "failed", "cut off after 4 bytes, 996 before its end"),
        (lambda connection: connection.sendall(b"\x00\xff" * 50), "failed", "the answer is not HTTP"),
        (lambda connection: connection.sendall(HEAD.replace(b"200", b"abc")), "failed", "the answer is not HTTP"),
        (lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200), "failed", "not HTTP"),
        (lambda connection: None, "failed", "GET /metrics"),
        (http(b"<html><body>Welcome</body></html>"), "failed", "33 B that are no metrics"),
        (http(bytes(range(256)) * 40), "failed", "10 KiB that are no metrics"),
        (http(b"", "404 Not Found"), "absent", "GET /metrics: HTTP 404"),
        (http(b"", "401 Unauthorized"), "denied", "GET /metrics: HTTP 401"),
        (http(b"", "503 Service Unavailable"), "failed", "GET /metrics: HTTP 503"),
    ],
)
def test_a_hostile_answer_is_named_in_time(answer: Answer, status: str, said: str) -> None:
    with answering({**vllm(), "/metrics": answer}) as server:
        before = set(threading.enumerate())
        probe = Reported(server.url, "vllm")
        started = time.monotonic()
        reading = probe.read(SECOND)
        took = time.monotonic() - started
        probe.close()
        ours = [one for one in set(threading.enumerate()) - before if one.name != "answering"]
        for thread in ours:
            thread.join(DEADLINE_S)
    assert not any(thread.is_alive() for thread in ours)
    assert reading.status == status
    assert said in f"{reading.message}\n{reading.hint}"
    assert took < DEADLINE_S
    assert not any(line for line in server.asked if not line.startswith("GET /"))


def test_a_server_that_speaks_no_tls() -> None:
    with answering(vllm()) as server:
        probe = Reported(server.url.replace("http:", "https:"), "vllm")
        reading = probe.read(SECOND)
        probe.close()
    assert (reading.status, health_of(reading)) == ("failed", "broken")
    assert "certificate or TLS" in reading.message


@pytest.mark.parametrize("url", ["", "ftp://a", "http://", "http://a:b", "http://127.0.0.1:99999", "http://a/\x7f"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InferdbgError, match="is not an address"):
        Reported(url, "vllm").read(0)


def test_the_collector_reads_it_in_a_child() -> None:
    with answering(vllm("load8")) as server:
        collector = Collector(Target("process", "vllm"), [Reported(server.url, "vllm")])
        try:
            deadline = time.monotonic() + 20
            snapshot = collector.round(5 * SECOND)
            while snapshot.metrics is None and time.monotonic() < deadline:
                snapshot = collector.round(5 * SECOND)
        finally:
            collector.close()
    assert snapshot.scheduler is not None
    assert snapshot.scheduler.running == 8
    assert snapshot.metrics is not None
    assert len(snapshot.metrics.items) == 76
    assert snapshot.probes[0].status == "ok"
