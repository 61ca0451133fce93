"""The promises of the scheduler: who runs, who waits and why, who gives way, and that nothing changes the output."""

import pytest

from inferdbg.engine.errors import BadRequest, Overloaded
from inferdbg.engine.hooks import EventKind, WorkKind
from inferdbg.engine.request import Request
from inferdbg.engine.sampling_params import SamplingParams
from inferdbg.engine.state import Counter, Stage, WaitReason

from .scheduling import Bench, Told, alone, limits


def output(request: Request) -> list[int]:
    return request.output.tolist()


def expected(request: Request) -> list[int]:
    return alone(request.tokens[: request.prompt_tokens], request.params, request.index)


def stage(bench: Bench, request: Request) -> Stage:
    return Stage(bench.scheduler.table.stage[request.slot])


def long_prompt(start: int, size: int) -> list[int]:
    return [(start * 31 + place * 7) % 49 + 1 for place in range(size)]


def talkative(bench: Bench, size: int, wanted: int, start: int = 0) -> list[int]:
    """A prompt after which the model goes on for ``wanted`` tokens."""
    while len(alone(long_prompt(start, size), SamplingParams(max_tokens=wanted))) < wanted:
        start += 1
    return long_prompt(start, size)


def test_a_request_alone_gets_its_tokens() -> None:
    bench = Bench(limits())
    (request,) = bench.add("a", [5, 6, 7, 8, 9])
    bench.finish()
    assert output(request) == expected(request)
    assert request.finish_reason in ("stop", "length")
    assert bench.used() == 0


@pytest.mark.parametrize("max_chunk", [1, 7, 64])
@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("num_blocks", [16, 40])
def test_outputs_do_not_depend_on_the_company(max_chunk: int, prefix_caching: bool, num_blocks: int) -> None:
    bench = Bench(limits(max_chunk=max_chunk, prefix_caching=prefix_caching, num_blocks=num_blocks))
    for number in range(12):
        bench.add(f"r{number}", [*long_prompt(number % 3, 9 + number % 3), number], max_tokens=30, n=1 + number % 2)
        bench.step()
        bench.assert_sound()
    bench.finish()
    for request in (request for group in bench.requests.values() for request in group):
        assert output(request) == expected(request)
    assert bench.used() == 0
    bench.assert_sound()


def test_decodes_come_first_and_chunks_fill_the_budget() -> None:
    bench = Bench(limits(token_budget=10, num_blocks=40))
    for name in ("a", "b"):
        bench.add(name, talkative(bench, 4, 6), max_tokens=6)
    bench.step()
    bench.add("c", long_prompt(5, 30), max_tokens=2)
    plan = bench.step().plan
    assert list(plan.kinds) == [WorkKind.DECODE, WorkKind.DECODE, WorkKind.PREFILL]
    assert list(plan.tokens) == [1, 1, 8]
    assert list(plan.contexts) == [4, 4, 0]
    assert (plan.decode_tokens, plan.prefill_tokens, plan.running, plan.waiting) == (2, 8, 3, 0)


def test_no_chunk_is_longer_than_max_chunk() -> None:
    bench = Bench(limits(max_chunk=3))
    bench.add("a", long_prompt(1, 10))
    assert [bench.step().chunks[0] for _ in range(4)] == [3, 3, 3, 1]


def test_a_request_that_lacks_blocks_says_how_many() -> None:
    bench = Bench(limits(num_blocks=10, token_budget=64))
    bench.add("a", long_prompt(1, 28), max_tokens=4)
    (waits,) = bench.add("b", long_prompt(2, 20), max_tokens=4)
    (behind,) = bench.add("c", [1], max_tokens=1)
    bench.plan()
    assert bench.scheduler.table.waiting_for(waits) == (WaitReason.BLOCKS, 5, 3)
    assert bench.scheduler.table.waiting_for(behind) == (WaitReason.BEHIND, waits.number, 0)


def test_blocks_owed_to_a_running_prompt_are_not_given_away() -> None:
    bench = Bench(limits(num_blocks=10, token_budget=8, max_chunk=4))
    bench.add("a", long_prompt(1, 28), max_tokens=4)
    (waits,) = bench.add("b", long_prompt(2, 16), max_tokens=4)
    bench.step()
    assert bench.used() == 1
    assert bench.scheduler.table.waiting_for(waits) == (WaitReason.BLOCKS, 4, 3)


def test_a_full_house_says_so() -> None:
    bench = Bench(limits(max_running=2))
    for name in ("a", "b", "c"):
        (last,) = bench.add(name, [1, 2, 3])
    bench.plan()
    assert bench.scheduler.table.waiting_for(last) == (WaitReason.MAX_RUNNING, 2, 2)


def test_a_prompt_without_budget_says_so() -> None:
    bench = Bench(limits(token_budget=8, num_blocks=40))
    bench.add("a", long_prompt(1, 30))
    (last,) = bench.add("b", [1, 2, 3])
    bench.plan()
    assert bench.scheduler.table.waiting_for(last) == (WaitReason.TOKEN_BUDGET, 3, 0)


def test_the_last_to_arrive_gives_way_and_comes_back_first() -> None:
    told = Told()
    bench = Bench(limits(num_blocks=6, token_budget=64), told)
    (first,) = bench.add("a", talkative(bench, 8, 14), max_tokens=14)
    (second,) = bench.add("b", talkative(bench, 8, 14, start=9), max_tokens=14)
    (third,) = bench.add("c", long_prompt(4, 12), max_tokens=1)
    while stage(bench, second) is not Stage.PREEMPTED:
        bench.step()
        bench.assert_sound()
    kind, victim, for_whom, _, lost, _ = next(event for event in told.events if event[0] is EventKind.PREEMPTED)
    assert (kind, victim, for_whom) == (EventKind.PREEMPTED, second.number, first.number)
    assert lost >= 8
    assert [request.number for request in bench.scheduler.waiting] == [second.number, third.number]
    bench.finish()
    for request in (first, second, third):
        assert output(request) == expected(request)


def test_a_preempted_request_keeps_its_output_and_finds_its_blocks_again() -> None:
    bench = Bench(limits(num_blocks=10, token_budget=64))
    bench.add("a", talkative(bench, 8, 24), max_tokens=24)
    (second,) = bench.add("b", talkative(bench, 8, 24, start=9), max_tokens=24)
    while stage(bench, second) is not Stage.PREEMPTED:
        bench.step()
    produced = output(second)
    assert produced
    while stage(bench, second) is Stage.PREEMPTED:
        bench.step()
    assert output(second)[: len(produced)] == produced
    table, slot = bench.scheduler.table, second.slot
    assert table.preemptions[slot] == 1
    assert table.cached_tokens[slot] + table.recomputed_tokens[slot] > 0


def test_the_first_to_arrive_is_in_every_step() -> None:
    bench = Bench(limits(num_blocks=8))
    for number in range(6):
        bench.add(f"r{number}", long_prompt(number, 10), max_tokens=20)
    while bench.scheduler.has_work:
        first = min(request.number for request in bench.scheduler.requests())
        assert first in bench.step().plan.numbers


def test_a_shared_prompt_is_computed_once() -> None:
    bench = Bench(limits(num_blocks=40, token_budget=64))
    prompt = long_prompt(3, 18)
    bench.add("a", prompt)
    bench.step()
    (second,) = bench.add("b", [*prompt, 9])
    step = bench.step()
    assert step.contexts[step.requests.index(second)] == 16
    assert bench.scheduler.table.cached_tokens[second.slot] == 16
    assert bench.columns["counters"][Counter.PREFIX_HIT_TOKENS] == 16


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    bench = Bench(limits(token_budget=64))
    bench.add("a", long_prompt(3, 16))
    bench.finish()
    (second,) = bench.add("b", long_prompt(3, 16))
    step = bench.step()
    assert (step.contexts, step.chunks) == ([12], [4])
    bench.finish()
    assert output(second) == expected(second)


def test_siblings_share_the_prompt_until_they_write() -> None:
    told = Told()
    bench = Bench(limits(token_budget=64, num_blocks=40), told)
    group = bench.add("a", talkative(bench, 10, 1), max_tokens=6, n=3)
    assert [stage(bench, request) for request in group] == [Stage.WAITING] * 3
    step = bench.step()
    assert step.samples == group
    assert step.logit_rows == [0, 0, 0]
    alive = [request for request in group if request.slot >= 0]
    assert len({tuple(bench.scheduler.pool.table(request)) for request in alive}) == 1
    assert bench.used() == 3
    copies = bench.step().copies
    assert len(copies) == len(alive) - 1
    assert told.kinds().count(EventKind.COPIED) == len(copies)
    bench.assert_sound()
    bench.finish()
    for request in group:
        assert output(request) == expected(request)
    assert len({tuple(output(request)) for request in group}) > 1


def test_siblings_run_only_when_all_have_a_seat() -> None:
    bench = Bench(limits(max_running=3))
    bench.add("a", [1, 2, 3])
    group = bench.add("b", [4, 5, 6], n=3)
    bench.plan()
    assert bench.scheduler.table.waiting_for(group[0]) == (WaitReason.MAX_RUNNING, 1, 3)


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_an_abort_at_any_stage_frees_everything(steps: int) -> None:
    told = Told()
    bench = Bench(limits(token_budget=6, num_blocks=40), told)
    bench.add("a", long_prompt(1, 10), max_tokens=20, n=2)
    bench.add("b", long_prompt(2, 10), max_tokens=20, n=3)
    for _ in range(steps):
        bench.step()
    ended = [*bench.abort("a"), *bench.abort("b")]
    assert {request.finish_reason for request in ended} <= {"abort"}
    assert not bench.scheduler.has_work
    assert bench.used() == 0
    assert told.kinds().count(EventKind.ABORTED) == len(ended)
    bench.assert_sound()


def test_a_wrong_result_fails_its_request_and_is_not_reused() -> None:
    told = Told()
    bench = Bench(limits(token_budget=64, num_blocks=40), told)
    (bad,) = bench.add("a", long_prompt(1, 12))
    (good,) = bench.add("b", long_prompt(2, 12))
    bench.commit(bench.plan(), failed={0: "NaN in its logits"})
    assert (bad.finish_reason, bad.failure) == ("error", "NaN in its logits")
    assert (EventKind.FAILED, bad.number, 0, -1, 0, "NaN in its logits") in told.events
    bench.assert_sound()
    (again,) = bench.add("c", long_prompt(1, 12))
    step = bench.step()
    assert step.contexts[step.requests.index(again)] == 0
    bench.finish()
    assert [output(request) for request in (good, again)] == [expected(good), expected(again)]


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "n", "message"),
    [
        (0, 4, 1, "no tokens"),
        (60, 5, 1, "make 65, and a sequence may have 64"),
        (30, 12, 1, "needs 11 blocks of 4 tokens and the whole cache has 10"),
        (3, 4, 7, "n is 7 and at most 6"),
    ],
)
def test_what_can_never_run_is_refused_with_the_numbers(prompt: int, max_tokens: int, n: int, message: str) -> None:
    told = Told()
    bench = Bench(limits(num_blocks=10), told)
    with pytest.raises(BadRequest, match=message):
        bench.add("a", long_prompt(1, prompt), max_tokens, n)
    assert told.kinds() == [EventKind.REJECTED]
    assert bench.columns["counters"][Counter.REJECTED] == 1
    assert not bench.scheduler.has_work


def test_what_just_fits_runs() -> None:
    bench = Bench(limits(num_blocks=10))
    (request,) = bench.add("a", long_prompt(1, 30), max_tokens=11)
    bench.finish()
    assert output(request) == expected(request)


def test_a_full_queue_refuses() -> None:
    bench = Bench(limits(max_waiting=2))
    bench.add("a", [1])
    bench.add("b", [1])
    with pytest.raises(Overloaded, match="2 requests wait and at most 2 may"):
        bench.add("c", [1])
    bench.step()
    bench.add("c", [1])


def test_an_id_serves_once_at_a_time() -> None:
    bench = Bench(limits())
    bench.add("a", [1, 2])
    with pytest.raises(BadRequest, match="'a' already"):
        bench.add("a", [3])
    bench.finish()
    bench.add("a", [3])


def test_times_and_counters_are_kept() -> None:
    bench = Bench(limits(token_budget=64))
    (request,) = bench.add("a", talkative(bench, 6, 3), max_tokens=3)
    arrived = bench.now_ns
    bench.step()
    table, slot = bench.scheduler.table, request.slot
    assert table.arrived_ns[slot] == arrived
    assert table.scheduled_ns[slot] == arrived + 1_000
    assert table.first_token_ns[slot] == arrived + 1_500
    bench.step()
    assert table.last_token_ns[slot] == arrived + 2_500
    assert table.worst_itl_ns[slot] == 1_000
    bench.step()
    counters = bench.columns["counters"]
    words = (Counter.ADDED, Counter.FINISHED, Counter.PREFILLED_TOKENS, Counter.GENERATED_TOKENS, Counter.STEPS)
    assert [counters[word] for word in words] == [1, 1, 6, 3, 3]
    for name, count, total in (("ttft", 1, 1_500), ("itl", 2, 2_000), ("queue_time", 1, 1_000), ("e2e", 1, 3_500)):
        histogram = bench.columns[f"histograms.{name}"].tolist()
        assert (sum(histogram[:-1]), histogram[-1]) == (count, total)
