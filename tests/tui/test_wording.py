"""Numbers in words: truthful where something is unknown or did not happen, and never cut."""

import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from inferdbg.facts.histogram import Histogram
from inferdbg.facts.provenance import Origin, ProbeReport
from inferdbg.facts.sections.kvcache import USED, KVCache
from inferdbg.facts.sections.requests import Request, Requests, Reuse, Wait
from inferdbg.facts.sections.scheduler import Rank, Scheduler
from inferdbg.facts.sections.steps import Shares, Step, Steps, Work
from inferdbg.facts.snapshot import Snapshot, Target
from inferdbg.facts.window import SECOND, Window
from inferdbg.tui.drawing.batch import batch_lines, scale_ns, step_line, time_lines
from inferdbg.tui.drawing.blocks import block_lines
from inferdbg.tui.drawing.flow import draft_lines, latency_lines, tokens_lines
from inferdbg.tui.drawing.holdings import holder_lines
from inferdbg.tui.drawing.names import names_of
from inferdbg.tui.drawing.overview import overview_lines
from inferdbg.tui.drawing.pulse import now_lines
from inferdbg.tui.drawing.queue import queue_lines, wait_text
from inferdbg.tui.drawing.request import request_lines, reuse_text
from inferdbg.tui.drawing.request_table import fitting, row
from inferdbg.tui.drawing.verdict import verdict_lines
from inferdbg.tui.frame import Frame
from inferdbg.tui.ink import Line, plain
from inferdbg.tui.views.batch import Batch
from inferdbg.tui.views.kvmap import KVMap
from tests.support import scenes

NOW = 100 * SECOND
ORIGIN = Origin("test", NOW)
CUT_NUMBER = re.compile(r"\d[\d.,]*…|\d [a-zµ]{0,2}…")


def said(lines: list[Line]) -> str:
    return "\n".join(map(plain, lines))


def latencies(*seen: tuple[int, int] | None, generated: int | None = 9, counted_ns: tuple[int, ...] = ()) -> str:
    """Latencies of one bucket: how many first tokens and how many further ones there were at each second; when these
    were counted, if not then."""
    snapshots = []
    for index, counts in enumerate(seen):
        ttft, itl = (
            None if counts is None else Histogram((SECOND,), (count, 0), count * SECOND // 2)
            for count in counts or (0, 0)
        )
        at_ns = NOW + index * SECOND
        counted = Origin("server", counted_ns[index], "reported") if counted_ns else None
        scheduler = Scheduler(
            Origin("test", at_ns), generated_tokens_total=generated, ttft=ttft, itl=itl, counted=counted
        )
        snapshots.append(Snapshot(index, at_ns, at_ns, Target("process", "x", 1), scheduler=scheduler))
    return said(latency_lines(Window(snapshots), 100))


def test_that_no_first_token_came_lately_is_not_that_none_ever_came() -> None:
    assert re.fullmatch(r"TTFT no first token   ITL p50 \S+ ms .* last 1 s", latencies((3, 50), (3, 90)))
    assert latencies((3, 50), (3, 50)) == "TTFT no first token   ITL no further token   last 1 s"
    assert latencies((0, 0), (0, 0)) == "TTFT no first token yet   ITL no further token yet   last 1 s"
    assert latencies((0, 0)) == "TTFT no first token yet   ITL no further token yet   since the start"


def test_of_counts_that_were_read_once_nothing_is_said_of_what_came_since() -> None:
    """Another probe may have read the rest of the section anew."""
    assert latencies((3, 50), (3, 50), counted_ns=(NOW, NOW)) == "TTFT -   ITL -"
    twice = latencies((3, 50), (3, 90), counted_ns=(NOW - 2 * SECOND, NOW))
    assert re.fullmatch(r"TTFT no first token   ITL p50 \S+ ms p95 \S+ ms  r   last 2 s", twice)


def test_what_was_done_before_it_stood_is_no_rate() -> None:
    snapshots = []
    for second, total in enumerate([0, 100, 200, 300, *[300] * 6]):
        at_ns = NOW + second * SECOND
        scheduler = Scheduler(Origin("test", at_ns), generated_tokens_total=total, prefilled_tokens_total=total)
        snapshots.append(Snapshot(second, at_ns, at_ns, Target("process", "x", 1), scheduler=scheduler))
    assert said(tokens_lines(Window(snapshots[:-2]), 80)).startswith("out   43")
    assert said(tokens_lines(Window(snapshots), 80)).startswith("out    0")


def drafts(*counts: tuple[int, int, int]) -> str:
    snapshots = []
    for index, (made, drafted, accepted) in enumerate(counts):
        scheduler = Scheduler(
            Origin("test", NOW), drafts_total=made, drafted_tokens_total=drafted, accepted_tokens_total=accepted
        )
        at_ns = NOW + index * SECOND
        snapshots.append(Snapshot(index, at_ns, at_ns, Target("process", "x", 1), scheduler=scheduler))
    return said(draft_lines(Window(snapshots), 100))


def test_what_drafts_brought() -> None:
    """By the counters of a real vLLM: 396 drafts of 1,444 tokens, 1,104 of them accepted."""
    said = "76 % accepted · 3.6 tokens a draft · 3.8 tokens a step with one, 1 without"
    assert drafts((396, 1444, 1104)) == drafts((0, 0, 0), (396, 1444, 1104)) == said
    assert drafts((396, 1444, 1104), (396, 1444, 1104)) == drafts((0, 0, 0)) == ""


def test_what_comes_later_than_the_first_look_is_counted_from_there() -> None:
    """Metrics are fetched while memory has been read already."""
    late = latencies(None, None, (3, 50), (3, 90), counted_ns=(NOW, NOW, NOW + 2 * SECOND, NOW + 3 * SECOND))
    assert re.fullmatch(r"TTFT no first token  .* ITL p50 \S+ ms .* last 1 s", late)
    once = latencies(None, (3, 50), counted_ns=(NOW, NOW + SECOND))
    assert once.startswith("TTFT p50")
    assert once.endswith("since the start")


def test_latencies_that_a_source_does_not_know_are_unknown() -> None:
    assert latencies(None, None) == "TTFT -   ITL -   last 1 s"
    assert latencies(None, None, generated=0).startswith("TTFT no first token yet")


NOTHING_RAN = Step(7, 0, 0, 0, 0, 0, 0, 0, 512, 0, 0, 0, 0)


def moment(*items: Request, steps: tuple[Step, ...] = ()) -> Snapshot:
    return Snapshot(
        1, NOW, NOW, Target("process", "x", 1), requests=Requests(ORIGIN, items), steps=Steps(ORIGIN, steps)
    )


def test_a_phase_that_took_no_time_is_not_listed_and_usual_stands_beside_what_it_is_usual_for() -> None:
    ran = replace(NOTHING_RAN, schedule_ns=117_000, forward_ns=23_000, commit_ns=113_000)
    window = Window([moment(steps=(ran,))])
    expected = "253 µs a step, usually 253 µs · schedule 117 µs · commit 113 µs · forward 23 µs"
    assert said(time_lines(window, ran, 120)) == expected
    idle = replace(ran, idle_ns=146_000)
    assert said(time_lines(window, idle, 120)) == f"{expected} · idle before 146 µs"


@pytest.mark.parametrize("width", [70, 80, 120, 200])
@pytest.mark.parametrize("factor", [1, 33, 1_200, 50_000])
def test_no_number_is_cut_however_large(width: int, factor: int) -> None:
    blocks = bytes(4 * 20 * factor)
    large = Request(
        number=20 * factor,
        id="",
        stage="decode",
        prompt_tokens=131 * factor,
        output_tokens=77 * factor,
        max_output_tokens=99 * factor,
        cached_tokens=5 * factor,
        preemptions=factor,
        arrived_ns=NOW - factor * 1_700_000,
        scheduled_ns=NOW - factor * 1_600_000,
        first_token_ns=NOW - factor * 1_500_000,
        last_token_ns=NOW,
        worst_itl_ns=factor * 900_000,
        blocks=blocks,
    )
    ran = replace(
        NOTHING_RAN, step=20 * factor, budget=64 * factor, prefill_tokens=63 * factor, forward_ns=777_000 * factor
    )
    now = moment(large, steps=(ran,))
    cache = KVCache(ORIGIN, 20 * factor, 16)
    drawn = [
        row(large, fitting(width - 1), now.mono_ns, names_of(now), selected=False),
        step_line(ran, width, ran.total_ns),
        *holder_lines(now.requests, cache.num_blocks, width, 5),
        *batch_lines(Window([now]), width),
    ]
    assert not CUT_NUMBER.search(said(drawn)), said(drawn)


def test_what_a_request_waits_for() -> None:
    names = names_of(moment())
    waits = {
        Wait("blocks", 37, 12): "needs 37 blocks, 12 left",  # of which some are cached and not free
        Wait("blocks", 1, 0): "needs 1 block, 0 left",
        Wait("blocks"): "needs more blocks",
        Wait("token budget", 256, 0): "needs 256 tokens, 0 left",
        Wait("token budget", 256): "needs 256 tokens",
        Wait("max running", 48, 48): "48 of 48 run already",
        Wait("max running", 47, 48): "needs more than the 1 place left",  # two continuations start together
        Wait("max running"): "as many run as may",
        Wait("behind", behind=7): "behind #7",
        Wait("behind"): "behind another",
    }
    assert {wait: wait_text(wait, names) for wait in waits} == waits


def test_what_became_of_requests_says_in_which_time() -> None:
    first = scenes.pressed(1)[0]
    assert first.scheduler is not None
    later_ns = first.mono_ns + 12 * SECOND
    ended = replace(first.scheduler, finished_total=(first.scheduler.finished_total or 0) + 6, aborted_total=1)
    window = Window([first, replace(first, mono_ns=later_ns, scheduler=ended)])
    assert "last 12 s: finished 6 · aborted 1" in said(queue_lines(window, 120, 0))


@pytest.mark.parametrize("scene", [scenes.pressed, scenes.healthy])
def test_a_wide_overview_tells_of_the_queue_once(scene: Callable[[], list[Snapshot]]) -> None:
    window = scenes.Stored(scene()).window()
    assert len(re.findall(r" queue +\d+ of \d+ running", said(overview_lines(window, (), 200, 50)))) == 1


def panel(request: Request) -> str:
    snapshot = scenes.pressed(1)[0]
    assert snapshot.requests is not None
    read = replace(snapshot.requests, origin=replace(snapshot.requests.origin, mono_ns=NOW))
    snapshot = replace(snapshot, mono_ns=NOW, requests=read)
    return said(request_lines(snapshot, request, 120, 9))


def test_a_request_in_words_leaves_out_what_is_not_known() -> None:
    assert re.match(r"stage +decode · prompt - · out -\n", panel(Request(1, "a", "decode")))
    assert re.search(r"times +-\n?$", panel(Request(1, "a", "decode", output_tokens=5)))
    assert re.search(r"times +no token yet$", panel(Request(1, "a", "waiting", output_tokens=0)))
    known = Request(1, "a", "decode", 20, 5, 9, arrived_ns=NOW - 38 * SECOND, preemptions=2)
    assert re.match(r"stage +decode · arrived 38 s ago · prompt 20 · out 5 of 9\n", panel(known))
    assert re.search(r"lost +preempted 2 times$", panel(known))


def test_blocks_that_are_given_before_their_tokens_are_computed() -> None:
    blocks = bytes(4 * 16)
    assert "16 blocks, last 5/16 full" in panel(Request(1, "a", "prefill", computed_tokens=245, blocks=blocks))
    assert "16 blocks, 64 of 256 slots full" in panel(Request(1, "a", "prefill", computed_tokens=64, blocks=blocks))
    assert "16 blocks\n" in panel(Request(1, "a", "prefill", computed_tokens=300, blocks=blocks))  # the table is older


def test_a_block_without_a_token_holds_none() -> None:
    snapshot = scenes.pressed(1)[0]
    assert snapshot.requests is not None
    assert snapshot.kvcache is not None
    holder = next(request for request in snapshot.requests.items if request.block_count)
    block = holder.block_table()[0]
    filled = bytearray(snapshot.kvcache.filled or b"")
    filled[2 * block : 2 * block + 2] = bytes(2)
    cache = replace(snapshot.kvcache, filled=bytes(filled))
    assert memoryview(cache.state or b"")[block] == USED
    assert "no token yet of" in said(block_lines(replace(snapshot, kvcache=cache), block, 120, 9))


def test_what_was_looked_at_is_counted_where_not_all_of_it_fits() -> None:
    window = scenes.Stored(scenes.healthy(2)).window()
    assert "looked at pulse, counters, requests, KV cache, steps and 3 more " in said(verdict_lines(window, (), 80))
    assert "kernels, events, processes " in said(verdict_lines(window, (), 120))


def test_a_phase_that_began_this_very_moment_has_no_duration() -> None:
    now = scenes.healthy(2)[-1]
    assert now.pulse is not None
    now = replace(now, pulse=replace(now.pulse, phase_since_ns=now.mono_ns))
    assert " · for " not in said(now_lines(Window([now]), (), 100))


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_panel_of_a_step_counts_whom_it_has_no_room_for(width: int) -> None:
    work = tuple(Work(number, "decode", 1, 4_000 + number) for number in range(1, 257))
    ran = replace(NOTHING_RAN, decode_tokens=256, forward_ns=9, shares=Shares.of(work))
    window = Window([moment(steps=(ran,))])
    drawn = said(Batch()._panel(window, ran, [], width))
    assert "decode 256: #1 on 4,001 tokens · #2 on 4,002 · " in drawn
    named, more = re.findall(r"#\d+ on", drawn), re.search(r"and (\d+) more", drawn)
    assert more is not None
    assert len(named) + int(more[1]) == 256
    if width > 80:
        assert "events are not seen" in drawn


def test_of_steps_seen_in_passing_no_times_are_drawn() -> None:
    """The bar of tokens takes their place."""
    passing = replace(NOTHING_RAN, decode_tokens=9, forward_ns=None)
    timed = replace(NOTHING_RAN, decode_tokens=9, forward_ns=7_000_000)
    drawn = {
        step: said([*Batch()._head(80, step.total_ns or 0), Batch()._row(step, 80, step.total_ns or 0, [])])
        for step in (passing, timed)
    }
    assert "full width 7" in drawn[timed]
    assert "full width" not in drawn[passing]
    assert drawn[timed].count("▕") == drawn[timed].count("▏") == 2
    assert drawn[passing].count("▕") == drawn[passing].count("▏") == 1


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_head_of_the_map_leaves_out_whole_what_does_not_fit(width: int) -> None:
    cache = KVCache(ORIGIN, 262_144, 16, state=bytes(262_144))
    window = Window([replace(moment(), kvcache=cache)])
    view = KVMap()
    view.zoom = 16
    head = plain(view.draw(Frame(window, (), "live", True, "x", (NOW, NOW)), width, 20)[0])
    assert re.fullmatch(
        r" 262,144 blocks × 16 tokens( {2}one cell 16 blocks( {2}order physical( {2}rows 1–\d+ of \d+)?)?)?", head
    )
    assert len(head) <= width


@pytest.mark.parametrize(
    ("reuse", "words"),
    [
        (Reuse("ab", 4, 2, "never seen"), "~2 of 4 blocks cached, then never seen"),
        (
            Reuse("ab", 4, 1, "evicted", ("salt", "images")),
            "~1 of 4 blocks cached, then evicted under its salt and images",
        ),
        (Reuse("ab", 1, 1, "partial block"), "~1 of 1 block cached, the rest is no full block"),
        (Reuse("ab", 2, 2), "~2 of 2 blocks cached"),
        (Reuse("ab", 2), ""),
        (Reuse(missed="caching off"), "no prefix caching"),
        (Reuse("ab", 2, 0, "skipped"), "~0 of 2 blocks cached: it wants none"),
    ],
)
def test_what_was_cached_of_a_prompt_in_words(reuse: Reuse, words: str) -> None:
    assert reuse_text(reuse) == words


@pytest.mark.parametrize(
    "longest, filled",
    [(0, 0), (1, 1), (10, 10), (11, 15), (1_400_000, 1_500_000), (2_000_001, 3_000_000), (81, 100), (999, 1000)],
)
def test_bars_of_time_keep_their_scale(longest: int, filled: int) -> None:
    assert scale_ns([replace(NOTHING_RAN, forward_ns=longest)] if longest else []) == filled


def test_what_each_data_parallel_rank_has_to_do_is_told_as_far_as_there_is_room() -> None:
    def queue(*ranks: Rank) -> str:
        scheduler = Scheduler(ORIGIN, running=15, waiting=2, ranks=ranks)
        return said(queue_lines(Window([Snapshot(1, NOW, NOW, Target("process", "x", 1), scheduler=scheduler)]), 76))

    assert queue(Rank("DP0", 12, 0), Rank("DP1", 3, 2)).splitlines()[1] == "DP0 12 · DP1 3 + 2 waiting"
    assert len(queue().splitlines()) == 1
    lines = queue(*(Rank(f"DP{number}", 1_000, 0) for number in range(64))).splitlines()
    assert (len(lines), lines[-1]) == (4, "…")


def test_before_the_first_answer_nothing_is_unseen_yet() -> None:
    (blind,) = scenes.unseen()
    coming = ProbeReport("reported", "stale", ("scheduler",), message="its first answer is on the way")
    shown = said(verdict_lines(Window([replace(blind, probes=(*blind.probes, coming))]), (), 80))
    assert "● LOOKING  reported: its first answer is on the way" in shown
    late = replace(coming, answered_ns=1)
    assert "UNSEEN" in said(verdict_lines(Window([replace(blind, probes=(*blind.probes, late))]), (), 80))


def test_a_phase_that_lasted_at_the_first_look_is_for_at_least_so_long() -> None:
    now = scenes.hung()[-1]
    assert now.pulse is not None
    first_ns = now.pulse.phase_since_ns
    for seen_from_ns, at_least in ((first_ns, True), (first_ns - 1, False), (None, False)):
        look = replace(now, pulse=replace(now.pulse, seen_from_ns=seen_from_ns))
        assert (" for at least " in said(now_lines(Window([look]), (), 120))) is at_least
