"""Rules for an engine that goes on and does badly: too few blocks, leaks, failures, stutter, planted faults."""

from array import array

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from inferdbg.diagnosis.diagnose import diagnose
from inferdbg.diagnosis.rules import block_leak
from inferdbg.facts.histogram import Histogram
from inferdbg.facts.provenance import Origin, ProbeReport
from inferdbg.facts.sections.events import Event
from inferdbg.facts.sections.kvcache import FREE, USED
from inferdbg.facts.sections.pulse import Intent
from inferdbg.facts.sections.requests import Request, Wait
from inferdbg.facts.snapshot import Snapshot
from inferdbg.facts.window import Window
from tests.support.snapshots import busy

from .moments import MS, SECOND, calm, causes, later, only, steps_before, with_events, with_section

# too few blocks


def test_preemptions_are_told_with_their_cost_and_the_numbers_to_change() -> None:
    found = only(busy(blocks=300, requests=16, snapshots=60), "kv_pressure")
    assert found.severity == "slow"
    assert "preemptions in" in found.summary
    assert "recomputed tokens" in found.summary
    assert "of all work" in found.summary
    assert found.next_step.startswith("lower --max-running to ")
    assert " or add " in found.next_step


def test_advice_speaks_of_the_options_that_the_engine_has() -> None:
    looks = busy(blocks=300, requests=16, snapshots=60)
    found = only([with_section(look, "server", engine="vllm") for look in looks], "kv_pressure")
    assert found.next_step.startswith("lower --max-num-seqs to ")
    assert "(--num-gpu-blocks-override " in found.next_step
    found = only([with_section(look, "server", engine="somebody's own") for look in looks], "kv_pressure")
    assert found.next_step.startswith("lower the limit of running requests to ")


def test_what_a_preemption_cost_is_not_told_where_the_engine_does_not_tell_it() -> None:
    looks = [
        with_section(look, "scheduler", recomputed_tokens_total=None)
        for look in busy(blocks=300, requests=16, snapshots=60)
    ]
    assert "threw away" in only(looks, "kv_pressure").summary, "its events tell"
    mute = [
        with_section(look, "events", items=tuple(replace(event, tokens=None) for event in look.events.items))
        for look in looks
        if look.events is not None
    ]
    found = only(mute, "kv_pressure")
    assert "preemptions in" in found.summary
    assert "token" not in found.summary


def test_one_look_counts_the_preemptions_that_the_engine_remembers() -> None:
    now = calm()[-1]
    events = [(30 * SECOND - i * SECOND, "preempted", "") for i in range(5)]
    now = with_section(with_events(now, *events), "steps", items=steps_before(now, count=400, total_ms=31))
    found = only([now], "kv_pressure")
    assert "5 preemptions in 30 s threw away 500 computed tokens (31 % of the work" in found.summary


def test_work_between_the_steps_that_were_seen_counts_too() -> None:
    now = calm()[-1]
    events = [(30 * SECOND - i * SECOND, "preempted", "") for i in range(5)]
    seen = steps_before(now, count=401, total_ms=31)[::4]
    found = only([with_section(with_events(now, *events), "steps", items=seen)], "kv_pressure")
    assert "threw away 500 computed tokens (31 % of the work" in found.summary


def test_a_long_prompt_that_was_seen_is_not_taken_for_those_that_were_not() -> None:
    now = calm()[-1]
    events = [(30 * SECOND - i * SECOND, "preempted", "") for i in range(5)]
    seen = (
        *steps_before(now, count=401, total_ms=31)[:-1:4],
        *steps_before(now, count=401, total_ms=31, prefill=512)[-1:],
    )
    found = only([with_section(with_events(now, *events), "steps", items=seen)], "kv_pressure")
    assert "threw away 500 computed tokens (24 % of the work of the last steps)" in found.summary  # of 1,604 + 512


def test_what_the_server_counted_is_the_work_however_few_steps_were_seen() -> None:
    before, now = calm()[0], later(calm()[-1], 20 * SECOND)
    before = with_section(
        before, "scheduler", prefilled_tokens_total=100, generated_tokens_total=0, recomputed_tokens_total=None
    )
    now = with_section(
        now,
        "scheduler",
        prefilled_tokens_total=3_100,
        generated_tokens_total=1_500,
        recomputed_tokens_total=None,
        preempted_total=5,
    )
    events = [(15 * SECOND - i * SECOND, "preempted", "") for i in range(5)]
    now = with_section(with_events(now, *events), "steps", items=steps_before(now, count=401, total_ms=31)[::100])
    found = only([before, now], "kv_pressure")
    assert "threw away 500 computed tokens (10 % of all work)" in found.summary  # of 3,000 + 1,500 + 500


def test_where_more_was_lost_than_done_no_share_is_told() -> None:
    now = with_events(calm()[-1], *((SECOND - i * SECOND // 10, "preempted", "") for i in range(5)))
    found = only([with_section(now, "steps", items=steps_before(now, count=40, total_ms=31))], "kv_pressure")
    assert found.summary.endswith("threw away 500 computed tokens")


def test_one_preemption_just_now_is_no_rate_and_no_verdict() -> None:
    now = with_events(calm()[-1], (SECOND // 4, "preempted", ""))
    found = only([with_section(now, "steps", items=steps_before(now, count=8, total_ms=31))], "kv_pressure")
    assert (found.severity, found.confidence) == ("note", "likely")
    assert found.summary.startswith(
        "KV cache runs short at times: 1 preemption just now threw away 100 computed tokens"
    )


def test_a_preemption_that_costs_little_is_a_note_and_no_bottleneck() -> None:
    now = with_events(calm()[-1], (9 * SECOND, "preempted", ""))
    steps = steps_before(now, count=90, total_ms=31, prefill=100)
    found = only([with_section(now, "steps", items=steps)], "kv_pressure")
    assert found.severity == "note"
    assert found.summary.startswith("KV cache runs short at times: 1 preemption in 9 s threw away 100 computed tokens")


def waiting_for_blocks(snapshot: Snapshot, *, for_ns: int) -> Snapshot:
    first = replace(
        snapshot.requests.items[0],
        stage="waiting",
        wait=Wait("blocks", needs=37, available=12),
        arrived_ns=snapshot.mono_ns - for_ns,
        last_token_ns=None,
    )
    return with_section(snapshot, "requests", items=(first, *snapshot.requests.items[1:]))


def test_a_request_that_waits_long_for_blocks_is_told_with_its_numbers() -> None:
    found = next(
        f for f in diagnose(Window([waiting_for_blocks(calm()[-1], for_ns=5 * SECOND)])) if f.cause == "kv_pressure"
    )
    assert "1 of 2 waiting requests needs more blocks than are free" in found.summary
    assert any("needs 37 blocks, 12 free, for 5 s" in evidence.text for evidence in found.evidence)


def test_a_victim_waits_since_its_preemption_and_not_since_it_came() -> None:
    looks = [waiting_for_blocks(look, for_ns=83 * SECOND) for look in (calm()[-1], later(calm()[-1], 4 * SECOND))]
    victims = [with_section(look, "requests", items=_preempted(look)) for look in looks]
    found = only(victims, "kv_pressure")
    assert any("free, for 4 s" in evidence.text for evidence in found.evidence)
    assert found.since_ns == looks[0].mono_ns
    told = with_section(
        victims[-1],
        "events",
        items=(Event(9, looks[-1].mono_ns - 2 * SECOND, 3, "preempted", request=_preempted(looks[0])[0].number),),
    )
    found = only([victims[0], told], "kv_pressure")
    assert any("free, for 2 s" in evidence.text for evidence in found.evidence)


def _preempted(snapshot: Snapshot) -> tuple[Request, ...]:
    """As vLLM's memory tells of a victim: nothing says when its last token came."""
    assert snapshot.requests is not None
    first, *others = snapshot.requests.items
    return replace(first, stage="preempted"), *others


def test_what_is_over_is_told_in_the_past() -> None:
    dead = with_section(waiting_for_blocks(calm()[-1], for_ns=5 * SECOND), "server", state="dead")
    assert only([dead], "kv_pressure").summary.startswith(
        "KV cache was the bottleneck: 1 of 2 waiting requests needed more blocks than were free"
    )


def test_a_short_wait_for_blocks_is_normal() -> None:
    assert "kv_pressure" not in causes([waiting_for_blocks(calm()[-1], for_ns=300 * MS)])


def test_advice_never_asks_for_more_than_helps() -> None:
    roomy = with_events(calm()[-1], (SECOND, "preempted", ""))
    assert only([roomy], "kv_pressure").next_step == "at full length all of them fit: it passes by itself"


# the books of the pool


def leaking(snapshot: Snapshot, blocks: int) -> Snapshot:
    kvcache = snapshot.kvcache
    state, refcount = bytearray(kvcache.state), array("H", kvcache.refcount)
    free = [block for block, value in enumerate(state) if value == FREE][:blocks]
    for block in free:
        state[block], refcount[block] = USED, 1
    return with_section(snapshot, "kvcache", state=bytes(state), refcount=refcount.tobytes())


def test_leaked_blocks_are_counted_and_named() -> None:
    found = only([leaking(calm()[-1], 5)], "block_leak")
    assert found.summary == "5 blocks (<1 % of the pool) held by no request: leaked"
    assert found.confidence == "likely"


def test_a_hold_too_many_is_told_while_the_request_still_lives() -> None:
    now = calm()[-1]
    refcount = array("H", now.kvcache.refcount)
    block = now.requests.items[0].block_table()[0]
    refcount[block] += 1
    found = only([with_section(now, "kvcache", refcount=refcount.tobytes())], "block_leak")
    assert found.summary == "1 hold of blocks counted that no request has: they will not come back"
    assert found.evidence[0].text == f"counts too many holds of block {block}"


def test_a_leak_of_an_earlier_look_is_told_until_the_next_when_its_tables_are_as_old() -> None:
    """Blocks and requests of a large pool are read together, once a second, and carried in between."""
    now = leaking(calm()[-1], 5)
    assert now.kvcache is not None
    read_ns = now.kvcache.origin.mono_ns
    between = later(with_section(now, "kvcache", columns_ns=read_ns), SECOND // 4)
    between = with_section(between, "kvcache", origin=Origin("engine box", between.mono_ns))
    assert between.kvcache is not None
    assert between.kvcache.columns_are_old
    assert only([between], "block_leak").summary == "5 blocks (<1 % of the pool) held by no request: leaked"
    fresh_tables = with_section(between, "requests", origin=Origin("engine box", between.mono_ns))
    assert "block_leak" not in causes([fresh_tables])


def test_a_leak_is_sure_when_the_look_before_is_younger_than_the_blocks() -> None:
    now = leaking(calm()[-1], 5)
    assert only([now, later(now, SECOND)], "block_leak").confidence == "sure"


def test_a_large_leak_explains_the_pressure() -> None:
    now = waiting_for_blocks(leaking(calm()[-1], 900), for_ns=5 * SECOND)
    now = with_section(now, "requests", items=(replace(now.requests.items[0], blocks=b""), *now.requests.items[1:]))
    found = causes([now])
    assert found.index("block_leak") < found.index("kv_pressure")


def test_books_are_not_checked_in_the_middle_of_a_change() -> None:
    now = with_section(leaking(calm()[-1], 5), "pulse", intent=Intent("free", block=3))
    assert causes([now]) == []


def test_books_are_not_checked_when_they_changed_under_every_try_to_read_them() -> None:
    assert causes([replace(leaking(calm()[-1], 5), probes=(ProbeReport("engine box", "torn"),))]) == []


def test_a_block_freed_while_held_is_told() -> None:
    now = calm()[-1]
    refcount = array("H", now.kvcache.refcount)
    refcount[now.requests.items[0].block_table()[0]] -= 1
    found = only([with_section(now, "kvcache", refcount=refcount.tobytes())], "block_double_free")
    assert "1 hold given back while held" in found.summary


# failures and refusals


def test_failing_requests_are_told_with_the_error() -> None:
    now = with_events(calm()[-1], (3 * SECOND, "failed", "index out of range"))
    found = only([now], "requests_failing")
    assert found.summary == "1 request failed in 3 s: index out of range"


def test_a_nan_is_told_from_other_failures() -> None:
    now = with_events(calm()[-1], (3 * SECOND, "failed", "the model's logits are not numbers (NaN or infinite)"))
    assert causes([now]) == ["numeric_nan"]


def test_failures_count_by_counter_in_a_long_window() -> None:
    snapshots = [with_section(s, "scheduler", failed_total=i * 2) for i, s in enumerate(busy(snapshots=60))]
    assert "118 requests failed in" in only(snapshots, "requests_failing").summary


def test_refusals_with_a_full_queue_are_told() -> None:
    now = with_section(with_events(calm()[-1], (SECOND, "rejected", "")), "scheduler", waiting=1024)
    assert "1,024 wait already" in only([now], "queue_full").summary


def test_a_refusal_with_room_in_the_queue_is_the_clients_own_fault() -> None:
    assert causes([with_events(calm()[-1], (SECOND, "rejected", "max_tokens must be at least 1"))]) == []


# stutter


def stuttering(*, total_ms: int) -> Snapshot:
    now = calm()[-1]
    now = with_section(now, "steps", items=steps_before(now, count=60, total_ms=total_ms, prefill=508, every=4))
    edges = (20 * MS, 50 * MS, 1000 * MS)
    return with_section(now, "scheduler", itl=Histogram(edges, (80, 10, 30, 0), 0))


def test_prefills_that_make_decodes_stutter_are_told_with_a_better_budget() -> None:
    found = only([stuttering(total_ms=420)], "scheduler_starvation")
    assert "a step takes 420 ms when prefill fills the budget and 20 ms otherwise" in found.summary
    assert found.next_step.startswith("lower --token-budget to 30:")  # 4 decodes, 508 * 20.3 / 400 prefill tokens


def test_prefills_that_cost_little_are_fine() -> None:
    assert causes([stuttering(total_ms=45)]) == []


def test_a_slow_sampler_is_told_from_a_slow_model() -> None:
    now = calm()[-1]
    slow = with_section(now, "steps", items=steps_before(now, count=20, total_ms=100, sample_ms=70))
    assert "70 % of a step goes into sample" in only([slow], "slow_sample").summary
    quick = with_section(now, "steps", items=steps_before(now, count=20, total_ms=100, sample_ms=20))
    assert causes([quick]) == []


# planted


def test_a_planted_fault_is_labelled_as_such() -> None:
    now = with_events(calm()[-1], (4 * SECOND, "fault", "stall a step"))
    found = only([now], "planted_fault")
    assert found.severity == "note"
    assert found.summary == "a fault planted with --fault fired at step 311, 4 s ago: stall a step"


@given(counts=st.lists(st.one_of(st.integers(0, 3), st.integers(0, 65535)), max_size=40))
def test_holds_are_added_up_exactly(counts: list[int]) -> None:
    assert block_leak._total(array("H", counts).tobytes()) == sum(counts)
