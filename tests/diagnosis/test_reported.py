"""Rules for a server of which only its own reports are seen."""

from msgspec.structs import replace

from inferdbg.facts.provenance import Origin, ProbeReport, ProbeStatus
from inferdbg.facts.sections.metrics import Label, Metrics, Series
from inferdbg.facts.sections.scheduler import Rank
from inferdbg.facts.sections.server import Health
from inferdbg.facts.snapshot import Snapshot

from .moments import SECOND, calm, causes, only, with_section


def reported(seconds: float, *, tokens: int = 700, running: int = 2) -> Snapshot:
    """A server as its metrics tell of it, so long after the first look."""
    first = calm()[0]
    at_ns = first.mono_ns + round(seconds * SECOND)
    origin = Origin("reported", at_ns, "reported")
    assert first.scheduler is not None
    assert first.server is not None
    return Snapshot(
        1 + round(4 * seconds),
        first.wall_ns + at_ns - first.mono_ns,
        at_ns,
        first.target,
        server=replace(first.server, engine="vllm", pid=58, health=Health("200", 3_000_000, at_ns)),
        scheduler=replace(first.scheduler, origin=origin, running=running, waiting=0, generated_tokens_total=tokens),
    )


def test_totals_that_stand_while_requests_run_are_an_engine_that_stands() -> None:
    found = only([reported(second) for second in range(0, 13, 2)], "no_progress")
    assert found.confidence == "likely"
    assert found.summary == (
        "2 requests run, and no token was computed for at least 12 s by the server's own counts: "
        "the engine behind the front end stands"
    )
    assert "/health answers 200" in [evidence.text for evidence in found.evidence]
    assert found.since_ns == reported(0).mono_ns
    assert found.at_least
    assert only([reported(second) for second in range(0, 33, 2)], "no_progress").confidence == "sure"
    worked_at_first = [reported(0, tokens=600), *(reported(second) for second in range(2, 15, 2))]
    assert "computed for 12 s by" in only(worked_at_first, "no_progress").summary


def test_a_server_that_moves_idles_or_was_just_looked_at_stands_not() -> None:
    assert "no_progress" not in causes([reported(second, tokens=700 + second) for second in range(0, 13, 2)])
    assert "no_progress" not in causes([reported(second, running=0) for second in range(0, 13, 2)])
    assert "no_progress" not in causes([reported(second) for second in range(0, 7, 2)])
    moved_lately = [reported(second, tokens=700 + (second > 6)) for second in range(0, 13, 2)]
    assert "no_progress" not in causes(moved_lately)


def of_ranks(seconds: float, *ranks: tuple[int, int]) -> Snapshot:
    """Each: how many run, and tokens that were computed."""
    found = tuple(Rank(f"DP{number}", running, 0, tokens) for number, (running, tokens) in enumerate(ranks))
    tokens = sum(tokens for _, tokens in ranks)
    return with_section(
        reported(seconds, tokens=tokens, running=sum(running for running, _ in ranks)), "scheduler", ranks=found
    )


def test_a_data_parallel_rank_that_stands_is_named_though_the_sum_rises() -> None:
    found = only([of_ranks(second, (3, 900 + second), (2, 700)) for second in range(0, 13, 2)], "rank_stands")
    assert (found.severity, found.confidence) == ("stuck", "likely")
    assert found.summary == (
        "DP1 of 2 data-parallel ranks stands: it has 2 requests running and computed no token for at least 12 s by the "
        "server's own counts"
    )
    assert found.since_ns == reported(0).mono_ns


def test_ranks_that_work_or_idle_stand_not_and_where_all_stand_the_server_does() -> None:
    for looks in (
        [of_ranks(second, (3, 900 + second), (2, 700 + second)) for second in range(0, 13, 2)],
        [of_ranks(second, (3, 900 + second), (0, 700)) for second in range(0, 13, 2)],
        [of_ranks(second, (3, 900 + second), (2 if second > 8 else 0, 700)) for second in range(0, 13, 2)],
    ):
        assert "rank_stands" not in causes(looks)
    both = [of_ranks(second, (3, 900), (2, 700)) for second in range(0, 13, 2)]
    assert causes(both)[0] == "no_progress"
    assert "rank_stands" not in causes(both)
    beside_an_idle_one = [of_ranks(second, (0, 900), (2, 700)) for second in range(0, 13, 2)]
    assert causes(beside_an_idle_one)[:2] == ["rank_stands", "no_progress"]


def answering(seconds: float, **counts: int) -> Snapshot:
    """A server that has answered so often: ``s2xx=3``. Strangers try paths that it does not have."""
    now = reported(seconds, running=0)
    strangers = Series("http_requests_total", "counter", labels("none", "4xx"), value=1000 * seconds)
    items = [
        Series("http_requests_total", "counter", labels("/v1/completions", status[1:]), value=float(count))
        for status, count in counts.items()
    ]
    return replace(now, metrics=Metrics(Origin("reported", now.mono_ns, "reported"), (*items, strangers)))


def labels(path: str, status: str) -> tuple[Label, ...]:
    return Label("handler", path), Label("method", "POST"), Label("status", status)


def test_a_server_that_refuses_everything_is_not_idle() -> None:
    found = only([answering(0, s2xx=900, s4xx=3), answering(30, s2xx=900, s4xx=123)], "requests_refused")
    assert found.severity == "wrong"
    assert found.summary == "all of 120 requests in 30 s were refused: POST /v1/completions answers 4xx"
    some = only([answering(0, s2xx=900, s4xx=3), answering(30, s2xx=960, s4xx=33)], "requests_refused")
    assert (some.severity, some.summary[:37]) == ("note", "30 of 90 requests in 30 s were refuse")
    first = only([answering(0), answering(30, s4xx=6)], "requests_refused")
    assert first.summary.startswith("all of 6 requests")


def test_a_few_refusals_long_ago_or_among_many_answers_are_none_of_our_business() -> None:
    assert "requests_refused" not in causes([answering(0, s2xx=9, s4xx=0), answering(30, s2xx=9, s4xx=4)])
    assert "requests_refused" not in causes([answering(0, s2xx=9, s4xx=0), answering(30, s2xx=900, s4xx=50)])
    assert "requests_refused" not in causes([answering(0, s4xx=50), answering(30, s4xx=50)])
    assert "requests_refused" not in causes([answering(30, s4xx=500)])
    assert "requests_refused" not in causes([reported(0), answering(1, s4xx=500), answering(3, s4xx=500)])


def test_counts_that_began_anew_are_counted_from_zero() -> None:
    found = only([answering(0, s4xx=500), answering(30, s4xx=7)], "requests_refused")
    assert found.summary.startswith("all of 7 requests")


def asked(seconds: float, status: ProbeStatus, health: str, answered: float | None = 0) -> Snapshot:
    """A server that was asked then, and answered last so long after the first look."""
    now = reported(seconds)
    assert now.server is not None
    answered_ns = None if answered is None else calm()[0].mono_ns + round(answered * SECOND)
    report = ProbeReport("reported", status, answered_ns=answered_ns, message="GET /metrics: no answer in 1.5 s")
    return replace(now, probes=(report,), server=replace(now.server, health=Health(health, 1, now.mono_ns)))


def test_a_front_end_that_answers_nothing_is_stuck_however_well_its_last_numbers_look() -> None:
    found = only([asked(0, "ok", "200"), asked(9, "not answering", "no answer")], "not_answering")
    assert (found.severity, found.confidence) == ("stuck", "likely")
    assert "has answered nothing for 9 s: its numbers here are that old" in found.summary
    assert only([asked(0, "ok", "200"), asked(31, "not answering", "no answer")], "not_answering").confidence == "sure"
    never = [asked(0, "not answering", "no answer", None), asked(6, "not answering", "no answer", None)]
    assert only(never, "not_answering").severity == "stuck"
    assert "has answered nothing for at least 6 s" in only(never, "not_answering").summary


def test_metrics_that_cannot_be_read_any_more_are_no_sign_of_health() -> None:
    found = only([asked(0, "ok", "200"), asked(9, "failed", "200")], "not_answering")
    assert (found.severity, found.confidence) == ("wrong", "likely")
    assert "has told no metrics that can be read for 9 s" in found.summary


def test_who_is_well_and_slow_with_its_metrics_may_have_a_long_prompt() -> None:
    found = only([asked(0, "ok", "200"), asked(9, "not answering", "200")], "not_answering")
    assert (found.severity, found.confidence) == ("slow", "likely")


def test_one_slow_answer_is_no_silence() -> None:
    assert "not_answering" not in causes([asked(0, "ok", "200"), asked(4, "not answering", "no answer")])
    assert "not_answering" not in causes([asked(0, "ok", "200"), asked(40, "ok", "200", 40)])
    assert "not_answering" not in causes([asked(0, "absent", "refused"), asked(40, "absent", "404", None)])


def test_who_says_that_it_cannot_serve_is_believed() -> None:
    found = only([asked(0, "ok", "503")], "not_answering")
    assert found.summary == "/health answers 503: the server itself says that it cannot serve"
    loads = asked(0, "ok", "503")
    assert loads.server is not None
    assert "not_answering" not in causes([replace(loads, server=replace(loads.server, engine="llama.cpp"))])
