"""The box is what the scheduler holds, after every half step; what befell a request is told when it happens."""

import random
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from inferdbg.blackbox.reader import Box
from inferdbg.diagnosis.rules import engine_thread_gone
from inferdbg.probes.vllm_plugin.truth import state_of
from inferdbg.probes.vllm_plugin.watcher import LAST_WORDS

from . import fakes
from .comparing import differences
from .watched import Watched, watched


def check(one: Watched) -> None:
    assert differences(state_of(one.scheduler, "", 0), one.box.columns, one.width) == []


def core_loop(scheduler: fakes.Scheduler) -> None:
    """As EngineCore's: it shuts down on its way out."""
    try:
        scheduler.schedule()
    finally:
        scheduler.shutdown()


@pytest.mark.parametrize("ahead", [0, 1], ids=["step by step", "one step ahead"])
@pytest.mark.parametrize("seed", range(6))
def test_the_box_is_what_the_scheduler_holds_after_every_half_step(tmp_path: Path, seed: int, ahead: int) -> None:
    pick = random.Random(seed)
    with watched(tmp_path, blocks=20 + seed) as one:
        flying: list[Any] = []
        for turn in range(300):
            if pick.random() < 0.4 and len(one.scheduler.requests) < 12:
                one.add(f"r-{turn}", pick.randrange(1, 40), pick.randrange(1, 30), pick.randrange(3))
                check(one)
            if pick.random() < 0.1 and one.scheduler.requests:
                victim = pick.choice(list(one.scheduler.requests.values()))
                one.scheduler.finish(victim, fakes.RequestStatus.FINISHED_ABORTED)
                check(one)
            if pick.random() < 0.02:
                one.scheduler.kv_cache_manager.block_pool.reset_prefix_cache()
                check(one)
            flying.append(one.scheduler.schedule())
            check(one)
            if len(flying) > ahead:
                one.scheduler.update_from_output(flying.pop(0))
                check(one)
        found = one.sections()
        assert one.said == []
    scheduler = found["scheduler"]
    assert scheduler.preempted_total > 0
    assert scheduler.finished_total > 0
    assert scheduler.aborted_total > 0
    assert scheduler.evicted_blocks_total > 0
    assert scheduler.prefix_hit_tokens_total > 0
    assert (scheduler.running, scheduler.waiting) == (len(one.scheduler.running), len(one.scheduler.waiting))
    assert scheduler.added_total == scheduler.finished_total + scheduler.aborted_total + len(one.scheduler.requests)


def test_a_preemption_is_told_at_once_with_whom_it_made_room_for_and_what_it_lost(tmp_path: Path) -> None:
    with watched(tmp_path, blocks=7) as one:  # six to give
        one.add("first", 8, 20, family=1)
        one.add("second", 8, 20, family=2)
        while not any(event.kind == "preempted" for event in one.events()):
            one.step()
        event = next(event for event in one.events() if event.kind == "preempted")
        request = next(item for item in one.sections()["requests"].items if item.number == event.request)
        assert (request.id, request.stage, request.preemptions) == ("second", "preempted", 1)
        assert one.scheduler.requests["second"].num_preemptions == 1  # vLLM's metric will tell when it runs again
        assert event.other == 1
        assert event.tokens == 12
        assert event.step == one.scheduler.current_step
        assert request.block_count == 0
        assert request.wait is not None
        assert (request.wait.reason, request.wait.needs) == ("blocks", 4)  # for 13 tokens


def test_the_head_of_the_queue_says_what_it_lacks_and_the_others_whom_they_are_behind(tmp_path: Path) -> None:
    with watched(tmp_path, blocks=9) as one:
        one.add("runs", 20, 4, family=1)
        one.step()
        one.add("large", 30, 4, family=2)
        one.add("small", 4, 4, family=3)
        one.step()
        waits = {item.id: item.wait for item in one.sections()["requests"].items}
    assert waits["runs"] is None
    assert (waits["large"].reason, waits["large"].needs, waits["large"].available) == ("blocks", 8, 2)
    assert (waits["small"].reason, waits["small"].behind) == ("behind", 2)


def test_a_full_batch_and_a_spent_budget_are_reasons_too(tmp_path: Path) -> None:
    with watched(tmp_path, blocks=40, seats=1) as one:
        one.add("runs", 8, 8)
        one.add("waits", 8, 8)
        one.step()
        assert [item.wait.reason for item in one.sections()["requests"].items if item.wait] == ["max running"]
    with watched(tmp_path, blocks=40, budget=16) as one:
        one.add("long", 40, 8)
        one.add("waits", 8, 8)
        one.step()
        waits = [item.wait for item in one.sections()["requests"].items if item.wait]
    assert [(wait.reason, wait.needs) for wait in waits] == [("token budget", 8)]


def test_a_step_says_who_got_how_many_tokens_on_top_of_what(tmp_path: Path) -> None:
    with watched(tmp_path, blocks=40, budget=16) as one:
        one.add("a", 20, 4, family=1)
        for _ in range(3):
            one.step()
        steps = one.sections()["steps"].items
        one.scheduler.schedule()
        running = one.sections()["steps"].running
        assert one.sections()["pulse"].phase == "forward"
    assert [[(w.request, w.kind, w.tokens, w.context) for w in step.work] for step in steps] == [
        [(1, "prefill", 16, 0)],
        [(1, "prefill", 4, 16)],
        [(1, "decode", 1, 20)],
    ]
    assert [(step.step, step.budget, step.prefill_tokens, step.decode_tokens) for step in steps] == [
        (1, 16, 16, 0),
        (2, 16, 4, 0),
        (3, 16, 0, 1),
    ]
    assert running is not None
    assert running.step == 4


def test_of_two_steps_under_way_the_older_is_the_running_one_and_no_time_counts_twice(tmp_path: Path) -> None:
    with watched(tmp_path, blocks=40) as one:
        one.add("a", 8, 20)
        outputs = [one.scheduler.schedule(), one.scheduler.schedule()]
        assert one.sections()["steps"].running.step == 1
        for turn in range(4):
            one.scheduler.update_from_output(outputs.pop(0))
            assert one.sections()["steps"].running.step == turn + 2
            outputs.append(one.scheduler.schedule())
        steps = one.sections()["steps"].items
    assert [step.step for step in steps] == [1, 2, 3, 4]
    for before, after in pairwise(steps):
        assert after.start_ns == before.start_ns + before.total_ns + after.idle_ns


def test_times_and_lengths_of_a_request_are_kept(tmp_path: Path) -> None:
    with watched(tmp_path) as one:
        one.add("a", 8, 20)
        one.step()
        one.step()
        found = one.sections()
        request = found["requests"].items[0]
        kinds = [event.kind for event in one.events()]
    assert (request.prompt_tokens, request.output_tokens, request.max_output_tokens) == (8, 2, 20)
    assert request.arrived_ns < request.scheduled_ns < request.first_token_ns < request.last_token_ns
    assert request.worst_itl_ns == request.last_token_ns - request.first_token_ns
    assert kinds == ["scheduled", "first token"]
    scheduler = found["scheduler"]
    assert [sum(one.counts) for one in (scheduler.ttft, scheduler.itl, scheduler.queue_time)] == [1, 1, 1]
    assert scheduler.generated_tokens_total == 2


def test_ends_are_told_with_their_reason(tmp_path: Path) -> None:
    with watched(tmp_path) as one:
        one.add("short", 4, 2)
        gone = one.add("gone", 4, 50)
        one.step()
        one.scheduler.finish(gone, fakes.RequestStatus.FINISHED_ABORTED)
        one.step()
        ends = [
            (event.kind, event.tokens, event.text) for event in one.events() if event.kind in ("finished", "aborted")
        ]
        assert one.sections()["requests"].items == ()
        assert one.sections()["pulse"].phase == "idle"
    assert ends == [("aborted", 1, "aborted by the front end"), ("finished", 2, "length")]


def test_an_error_of_ours_ends_the_watching_and_nothing_else(tmp_path: Path) -> None:
    plain = fakes.Scheduler(blocks=20)
    with watched(tmp_path, blocks=20) as one:
        for scheduler in (plain, one.scheduler):
            scheduler.add_request(fakes.Request("a", 8, 30))
        one.step()
        plain.update_from_output(plain.schedule())
        one.watcher._requests._output = None  # type: ignore[assignment]  # as if a version of vLLM surprised us
        for _ in range(3):
            outputs = [scheduler.schedule() for scheduler in (plain, one.scheduler)]
            assert outputs[0] == outputs[1]
            plain.update_from_output(outputs[0])
            assert one.scheduler.update_from_output(outputs[1]) == {"a": 1}
        assert len(one.said) == 1
        assert "stops watching" in one.said[0]
        assert "requests.py:" in one.said[0]
        assert not Path(one.box.path).exists()  # it would say for ever that vLLM hangs
        manager = one.scheduler.kv_cache_manager
        assert not {"schedule", "add_request", "free", "get_new_blocks"} & (
            vars(one.scheduler).keys() | vars(manager).keys() | vars(manager.block_pool).keys()
        )


def test_an_error_of_vllm_goes_through_and_is_the_last_word(tmp_path: Path) -> None:
    with watched(tmp_path) as one:
        one.add("a")
        one.step()
        one.scheduler.fails = "the scheduler fails"
        with pytest.raises(RuntimeError, match=r"^the scheduler fails$"):
            core_loop(one.scheduler)
        assert one.said == []
        assert LAST_WORDS == engine_thread_gone.LAST_WORDS
        assert one.events()[-1].text == f"{LAST_WORDS}RuntimeError: the scheduler fails"
        assert one.sections()["server"].state == "dead"
        assert one.sections()["pulse"].phase == "schedule"


def test_a_clean_end_marks_the_box_and_removes_it_when_nothing_was_left(tmp_path: Path) -> None:
    with watched(tmp_path) as one:
        one.add("a")
        one.step()
        one.scheduler.shutdown()
        box = Box.open(one.box.path)
        assert box.requests_left() == 1
        box.close()
    with watched(tmp_path) as one:
        one.scheduler.shutdown()
        assert not Path(one.box.path).exists()


@pytest.mark.parametrize("left", [0, 1])
def test_a_request_to_stop_marks_the_box_before_the_kill_that_follows_at_once(tmp_path: Path, left: int) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))  # vLLM's own
    try:
        with watched(tmp_path) as one:
            for number in range(left):
                one.add(f"r-{number}")
            signal.raise_signal(signal.SIGTERM)
            assert heard == [signal.SIGTERM]
            assert Path(one.box.path).exists() == bool(left)
            if left:
                assert one.sections()["server"].state == "stopped cleanly"
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_vllm_that_lacks_things_is_watched_without_them_and_the_box_says_which(tmp_path: Path) -> None:
    class OlderPool(fakes.BlockPool):
        reset_prefix_cache = None  # type: ignore[assignment]

    scheduler = fakes.Scheduler()
    scheduler.kv_cache_manager.block_pool.__class__ = OlderPool
    with watched(tmp_path, scheduler) as one:
        one.add("a")
        one.step()
        check(one)
        facts = one.facts().decode()
    assert "lacks BlockPool.reset_prefix_cache" in facts
    assert "does not tell" in facts
    assert "kv_cache_config.kv_cache_groups" in facts


def test_what_fails_at_the_very_start_leaves_vllm_as_it_was(tmp_path: Path) -> None:
    scheduler = fakes.Scheduler()
    scheduler.requests["odd"] = object()  # type: ignore[assignment]
    with pytest.raises(AttributeError, match="request_id"):
        Watched(tmp_path, scheduler)
    assert not {"schedule", "add_request"} & vars(scheduler).keys()
    assert "free_blocks" not in vars(scheduler.kv_cache_manager.block_pool)


def test_a_vllm_without_steps_is_not_touched(tmp_path: Path) -> None:
    scheduler = fakes.Scheduler()
    scheduler.update_from_output = None  # type: ignore[assignment,method-assign]
    with pytest.raises(AttributeError, match="no schedule and update_from_output"):
        Watched(tmp_path, scheduler)
    assert "schedule" not in vars(scheduler)


def test_reference_counts_stay_out_where_tables_do_not_explain_them(tmp_path: Path) -> None:
    """They would look like a leak."""
    scheduler = fakes.Scheduler()
    coordinator = scheduler.kv_cache_manager.coordinator
    coordinator.single_type_managers = (*coordinator.single_type_managers, fakes.Coordinator)
    with watched(tmp_path, scheduler) as one:
        one.add("a")
        one.step()
        assert one.sections()["kvcache"].refcount is None
        assert len(one.sections()["requests"].items[0].block_table()) == 2
        assert "2 groups" in one.facts().decode()


def test_those_that_wait_beyond_what_is_shown_are_counted_and_shown_when_they_run(tmp_path: Path) -> None:
    with watched(tmp_path, blocks=200, seats=4) as one:
        for number in range(1100):
            one.add(f"r-{number}", 4, 2, family=number)
        found = one.sections()
        assert found["scheduler"].waiting == 1100
        assert len(found["requests"].items) == 1024
        for _ in range(1300):
            one.step()
        assert one.scheduler.requests == {}
        assert one.sections()["scheduler"].finished_total == 1100
        assert one.sections()["requests"].items == ()


def test_half_done_is_named_when_vllm_fails_in_the_middle(tmp_path: Path) -> None:
    with watched(tmp_path) as one:
        one.add("a")
        manager = one.scheduler.kv_cache_manager

        def fails(*_: object, **__: object) -> None:
            raise RuntimeError("in the middle")

        manager.block_pool.cache_full_blocks = fails
        with pytest.raises(RuntimeError):
            one.scheduler.schedule()
        intent = one.sections()["pulse"].intent
    assert intent is not None
    assert (intent.operation, intent.request) == ("allocate", 1)
