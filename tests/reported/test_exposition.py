"""The Prometheus text format: every line means what the format says, and nothing hostile does harm."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from inferdbg.facts.sections.metrics import Buckets, Label, Series
from inferdbg.probes.reported.exposition import labels_of, parse

from .fixtures import VLLM, read

NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,12}", fullmatch=True)
VALUES = st.floats(allow_nan=False, allow_infinity=False)


def only(text: str) -> Series:
    found = parse(text.encode())
    assert found.bad_lines == 0
    assert len(found.series) == 1
    return found.series[0]


def test_a_counter_with_labels() -> None:
    text = '# TYPE hits_total counter\nhits_total{engine="0",model_name="tiny"} 2.003451904e+09 1795985338\n'
    assert only(text) == Series(
        "hits_total", "counter", (Label("engine", "0"), Label("model_name", "tiny")), 2003451904.0
    )


def test_label_values_may_hold_anything() -> None:
    series = only('a{b="} 7 \\" \\\\ \\n",c="",} 1\n')
    assert series.labels == (Label("b", '} 7 " \\ \n'), Label("c", ""))


def test_a_histogram_becomes_what_fell_between_its_bounds() -> None:
    text = """# TYPE wait_seconds histogram
wait_seconds_bucket{le="0.5",engine="0"} 2
wait_seconds_bucket{le="1.0",engine="0"} 5
wait_seconds_bucket{le="+Inf",engine="0"} 6
wait_seconds_count{engine="0"} 6
wait_seconds_sum{engine="0"} 4.5
"""
    assert only(text) == Series(
        "wait_seconds", "histogram", (Label("engine", "0"),), None, Buckets((0.5, 1.0), (2, 3, 1), 4.5)
    )


def test_a_histogram_that_sinks_is_none() -> None:
    text = '# TYPE w histogram\nw_bucket{le="1"} 5\nw_bucket{le="2"} 3\nw_bucket{le="+Inf"} 6\nw_sum 1\nw_count 6\n'
    assert only(text).buckets is None


def test_a_summary_keeps_its_parts_under_their_names() -> None:
    found = parse(b'# TYPE s summary\ns{quantile="0.5"} 1\ns_sum 4\ns_count 2\n')
    assert [(series.name, series.kind, series.value) for series in found.series] == [
        ("s", "summary", 1.0),
        ("s_sum", "summary", 4.0),
        ("s_count", "summary", 2.0),
    ]


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "1e999"])
def test_what_is_no_number_is_unknown(value: str) -> None:
    assert only(f"a {value}\n").value is None


@pytest.mark.parametrize(
    "line",
    [
        "a1",
        "a",
        "a{} ",
        "a b",
        'a{b="c" 1',
        "a{b=c} 1",
        'a{b="c",b="d"} 1',
        'a{b="c"} 1 2 3',
        "a 0x10",
        "a 1_000",
        "1a 1",
        "<html><body>not found</body></html>",
        "a{" + "}" * 19_000,
        "a" + " " * 30_000,
        "\x00\x01\x02",
        "a" * 400 + " 1",
        "a 1e9999999",
    ],
)
def test_a_line_that_makes_no_sense_is_counted_and_passed_over(line: str) -> None:
    found = parse(f"x 1\n{line}\ny 2\n".encode())
    assert found.bad_lines == 1
    assert [series.name for series in found.series] == ["x", "y"]


def test_the_first_of_two_that_are_the_same_counts() -> None:
    found = parse(b'a{b="c"} 1\na{b="c"} 2\na{b="d"} 3\n')
    assert [series.value for series in found.series] == [1.0, 3.0]
    assert found.repeated == 1


def test_start_times_are_kept_apart() -> None:
    registry = CollectorRegistry()
    Counter("served", "", registry=registry).inc()
    found = parse(generate_latest(registry))
    assert [series.name for series in found.series] == ["served_total"]
    assert list(found.created) == ["served_created"]


def test_a_gauge_may_be_called_created() -> None:
    assert only("files_created 3\n").value == 3.0


def test_lines_beyond_the_most_are_counted() -> None:
    found = parse(b"\n" * 99_999 + b"a 1\nb 1\nc 1\n")
    assert [series.name for series in found.series] == ["a"]
    assert found.unread == 3  # b, c and the empty end


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_survived(body: bytes) -> None:
    found = parse(body)
    assert len(found.series) + found.bad_lines <= body.count(b"\n") + 1


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["a", "a_bucket", "a_sum", '{le="', "1", '"}', " ", "\n", "# TYPE a histogram\n", "NaN", "{", "}"]
        ),
        max_size=40,
    )
)
def test_any_words_of_the_format_are_survived(words: list[str]) -> None:
    for series in parse("".join(words).encode()).series:
        if series.buckets is not None:
            assert len(series.buckets.counts) == len(series.buckets.bounds) + 1
            assert min(series.buckets.counts) >= 0


@settings(deadline=None)
@given(
    st.dictionaries(
        NAMES.filter(lambda name: not name.startswith("__") and ":" not in name), st.text(max_size=8), max_size=4
    )
)
def test_labels_come_back_as_they_were(labels: dict[str, str]) -> None:
    registry = CollectorRegistry()
    Gauge("a", "", tuple(labels), registry=registry).labels(**labels).set(1) if labels else None
    body = generate_latest(registry)
    if labels:
        assert {label.name: label.value for label in only(body.decode()).labels} == labels


@settings(deadline=None)
@given(st.lists(VALUES, max_size=20), st.floats(0, 1e6))
def test_it_reads_what_the_client_library_writes(observed: list[float], total: float) -> None:
    registry = CollectorRegistry()
    Counter("c", "", registry=registry).inc(total)
    histogram = Histogram("h", "", registry=registry, buckets=(-1.0, 0.5, 1e3))
    summary = Summary("s", "", registry=registry)
    for value in observed:
        histogram.observe(value)
        summary.observe(value)
    found = {series.name: series for series in parse(generate_latest(registry)).series}
    assert found["c_total"].value == total
    assert found["s_count"].value == len(observed)
    buckets = found["h"].buckets
    assert buckets is not None
    edges = [-math.inf, -1.0, 0.5, 1e3, math.inf]
    assert buckets.counts == tuple(sum(low < value <= high for value in observed) for low, high in pairwise(edges))


@pytest.mark.parametrize("name", VLLM)
def test_it_reads_a_real_server_as_the_client_library_does(name: str) -> None:
    body = read(f"vllm/{name}")
    theirs = {
        (sample.name, tuple(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }
    ours: dict[tuple[str, tuple[tuple[str, str], ...]], float | None] = {}
    found = parse(body)
    for series in found.series:
        labels = [(label.name, label.value) for label in series.labels]
        if series.buckets is None:
            ours[series.name, tuple(labels)] = series.value
            continue
        seen = 0
        for bound, count in zip((*series.buckets.bounds, math.inf), series.buckets.counts, strict=True):
            seen += count
            ours[f"{series.name}_bucket", _with_bound(labels, theirs, series.name, bound)] = seen
        ours[f"{series.name}_count", tuple(labels)] = series.buckets.count
        ours[f"{series.name}_sum", tuple(labels)] = series.buckets.sum
    assert found.bad_lines == found.repeated == 0
    assert {key: value for key, value in theirs.items() if not math.isnan(value)} == ours


def _with_bound(
    labels: list[tuple[str, str]],
    theirs: dict[tuple[str, tuple[tuple[str, str], ...]], float],
    name: str,
    bound: float,
) -> tuple[tuple[str, str], ...]:
    """The labels of a bucket in the order and with the digits of the server."""
    for key, found in theirs:
        if key == f"{name}_bucket" and float(dict(found)["le"]) == bound:
            rest = [pair for pair in found if pair[0] != "le"]
            if rest == labels:
                return found
    raise AssertionError(f"{name} has no bucket {bound}")


def test_labels_are_strict() -> None:
    assert labels_of("") == ()
    assert labels_of("a") is None
    assert labels_of('a="1"b="2"') is None
    assert labels_of(",".join(f'a{index}="1"' for index in range(65))) is None
