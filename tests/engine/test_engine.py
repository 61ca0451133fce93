"""The promises of the engine: outputs as clients get them, failures that cost only whom they concern, a true pulse."""

from __future__ import annotations

import time

import pytest
import torch

from inferdbg.engine.backend import Batch, EngineMemory
from inferdbg.engine.config import EngineConfig
from inferdbg.engine.engine import Engine, RequestOutput
from inferdbg.engine.errors import BadRequest, ConfigError
from inferdbg.engine.faults import Faults
from inferdbg.engine.hooks import EngineFacts, EventKind, Observer, StepPlan, StepTimes
from inferdbg.engine.loading import LoadedModel
from inferdbg.engine.sampling_params import SamplingParams
from inferdbg.engine.state import KERNELS, Column, ColumnSpec, Counter, Phase, PoolWord, Pulse
from inferdbg.engine.tiny_model import tiny_config, tiny_tokenizer, tiny_weights

from .scheduling import Told

SMALL = tiny_config(layers=1, hidden_size=32, intermediate_size=32, heads=2, kv_heads=1)
MODEL = LoadedModel("tiny", SMALL, tiny_weights(SMALL), tiny_tokenizer())
GREEDY = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)


class Steps(Told):
    """Remembers plans, times and what else an observer is told."""

    def __init__(self) -> None:
        super().__init__()
        self.planned: list[StepPlan] = []
        self.finished: list[tuple[StepPlan, StepTimes]] = []
        self.facts: EngineFacts | None = None
        self.in_flight: int | None = None

    def started(self, facts: EngineFacts) -> None:
        self.facts = facts

    def step_planned(self, plan: StepPlan) -> None:
        self.planned.append(plan)

    def step_finished(self, plan: StepPlan, times: StepTimes) -> None:
        self.finished.append((plan, times))

    def stopped(self, *, requests_in_flight: int) -> None:
        self.in_flight = requests_in_flight


class Alphabet:
    """A backend after whose every token the next one of the vocabulary is certain."""

    name = "alphabet"
    kernels = KERNELS

    def __init__(self) -> None:
        self.fail: Exception | None = None
        self.batches: list[Batch] = []
        self.copied: list[tuple[int, int]] = []

    def attach(self, memory: EngineMemory, *, num_blocks: int, block_size: int) -> None:
        self.pulse = memory.pulse

    def forward(self, batch: Batch) -> torch.Tensor:
        self.batches.append(batch)
        if self.fail is not None:
            error, self.fail = self.fail, None
            raise error
        ends = torch.tensor(batch.query_lengths).cumsum(0) - 1
        last = torch.tensor(list(batch.token_ids))[ends[batch.sampled]]
        return torch.nn.functional.one_hot((last + 1) % SMALL.vocabulary, SMALL.vocabulary).float() * 100

    def copy_block(self, source: int, target: int) -> None:
        self.copied.append((source, target))


def engine(
    observer: Steps | None = None, faults: Faults | None = None, backend: Alphabet | None = None, **settings: int
) -> Engine:
    sizes = {"block_size": 4, "num_blocks": 64, "token_budget": 64, "max_running": 8, "max_waiting": 16, **settings}
    return Engine(MODEL, EngineConfig(**sizes), observer=observer, faults=faults, backend=backend)  # type: ignore[arg-type]


def prompt(text: str) -> list[int]:
    return MODEL.tokenizer.encode(text)


def run(engine: Engine, most: int = 500) -> dict[tuple[str, int], list[RequestOutput]]:
    outputs: dict[tuple[str, int], list[RequestOutput]] = {}
    for _ in range(most):
        if not engine.has_work():
            return outputs
        for output in engine.step():
            outputs.setdefault((output.request_id, output.index), []).append(output)
    raise AssertionError("never finished")


def text(outputs: list[RequestOutput]) -> str:
    return "".join(output.text for output in outputs)


def tokens(outputs: list[RequestOutput]) -> list[int]:
    return [token for output in outputs for token in output.token_ids]


def test_a_real_model_says_the_same_alone_and_in_company() -> None:
    prompts = {f"r{number}": prompt(f"{number % 3} once upon a time there was {number}") for number in range(9)}
    alone = {}
    for name, ids in prompts.items():
        one = engine()
        one.add_request(name, ids, GREEDY)
        alone[name] = tokens(run(one)[name, 0])
    crowd = engine(num_blocks=30, token_budget=20, max_chunk=7)
    for name, ids in prompts.items():
        crowd.add_request(name, ids, GREEDY)
    together = {name: tokens(outputs) for (name, _), outputs in run(crowd).items()}
    assert together == alone
    assert crowd.columns["counters"][Counter.PREEMPTED] > 0
    assert crowd.columns["counters"][Counter.PREFIX_HIT_TOKENS] > 0
    assert crowd.scheduler.check() == []


def test_outputs_add_up_to_text_and_end_with_a_reason() -> None:
    one = engine(backend=Alphabet())
    one.add_request("a", prompt("a"), SamplingParams(max_tokens=4, temperature=0.0))
    outputs = run(one)["a", 0]
    assert text(outputs) == "bcde"
    assert [output.finish_reason for output in outputs] == [None, None, None, "length"]
    assert [(output.prompt_tokens, output.output_tokens) for output in outputs] == [(1, n) for n in (1, 2, 3, 4)]


def test_a_stop_string_ends_the_request_and_is_not_in_the_text() -> None:
    one = engine(backend=Alphabet())
    one.add_request("a", prompt("a"), SamplingParams(max_tokens=20, temperature=0.0, stop=("ef",)))
    outputs = run(one)["a", 0]
    assert text(outputs) == "bcd"
    assert outputs[-1].finish_reason == "stop"
    assert outputs[-1].output_tokens == 5


def test_a_stop_string_that_does_not_come_is_not_held_back() -> None:
    one = engine(backend=Alphabet())
    one.add_request("a", prompt("a"), SamplingParams(max_tokens=4, temperature=0.0, stop=("efz",)))
    assert text(run(one)["a", 0]) == "bcde"


def test_an_end_token_stops_and_gives_no_text() -> None:
    stop_id = prompt("d")[0]
    one = engine(backend=Alphabet())
    one.add_request("a", prompt("a"), SamplingParams(max_tokens=9, temperature=0.0, stop_token_ids=(stop_id,)))
    outputs = run(one)["a", 0]
    assert (text(outputs), tokens(outputs)[-1], outputs[-1].finish_reason) == ("bc", stop_id, "stop")


def test_continuations_are_told_apart_and_share_a_seeded_prompt() -> None:
    one = engine()
    one.add_request("a", prompt("tell me more"), SamplingParams(max_tokens=8, n=3, seed=5, ignore_eos=True))
    outputs = run(one)
    assert sorted(outputs) == [("a", 0), ("a", 1), ("a", 2)]
    assert len({tuple(tokens(each)) for each in outputs.values()}) == 3
    assert one.columns["counters"][Counter.PREFILLED_TOKENS] == len(prompt("tell me more"))
    other = engine()
    other.add_request("x", prompt("tell me more"), SamplingParams(max_tokens=8, n=3, seed=5, ignore_eos=True))
    assert [tokens(run_of) for run_of in run(other).values()] == [tokens(run_of) for run_of in outputs.values()]


def test_a_repeated_prompt_reports_its_cached_tokens() -> None:
    one = engine()
    for name in ("a", "b"):
        one.add_request(name, prompt("the very same words"), GREEDY)
        outputs = run(one)[name, 0]
    assert outputs[-1].cached_tokens == 16


def test_a_failed_forward_pass_costs_the_requests_of_its_step_only() -> None:
    told, backend = Steps(), Alphabet()
    one = engine(told, backend=backend, token_budget=8, max_running=4)
    one.add_request("a", prompt("abcd"), GREEDY)
    one.add_request("b", prompt("abcd"), SamplingParams(max_tokens=4, temperature=0.0, n=2))
    one.add_request("c", prompt("later"), SamplingParams(max_tokens=2, temperature=0.0))
    backend.fail = RuntimeError("out of memory")
    outputs = {(output.request_id, output.index): output for output in one.step()}
    assert sorted(outputs) == [("a", 0), ("b", 0), ("b", 1)]
    assert {(output.finish_reason, output.failure) for output in outputs.values()} == {
        ("error", "RuntimeError: out of memory")
    }
    assert told.kinds().count(EventKind.FAILED) == 3
    assert [output.finish_reason for output in run(one)["c", 0]] == [None, "length"]
    assert one.scheduler.check() == []


def test_nan_fails_its_requests_and_later_ones_are_sound() -> None:
    told = Steps()
    one = engine(told, Faults.parse(["nan:step=1,layer=0"]))
    one.add_request("a", prompt("hello there"), GREEDY)
    (output,) = one.step()
    assert output.finish_reason == "error"
    assert "not numbers" in output.failure
    assert output.token_ids == []
    assert [event for event in told.events if event[0] is EventKind.FAULT]
    one.add_request("b", prompt("hello there"), GREEDY)
    clean = engine()
    clean.add_request("b", prompt("hello there"), GREEDY)
    assert tokens(run(one)["b", 0]) == tokens(run(clean)["b", 0])


def test_an_abort_returns_the_last_outputs_and_frees_everything() -> None:
    one = engine(backend=Alphabet())
    one.add_request("a", prompt("a"), SamplingParams(max_tokens=40, temperature=0.0, n=2, stop=("cx",)))
    one.step()
    one.step()
    ended = one.abort("a", "the client left")
    assert [(each.index, each.text, each.finish_reason, each.failure) for each in ended] == [
        (0, "c", "abort", "the client left"),
        (1, "c", "abort", "the client left"),
    ]
    assert one.abort("a") == []
    assert not one.has_work()
    assert one.columns["pool"][PoolWord.USED] == 0


def test_siblings_that_write_get_a_copy_before_the_forward_pass() -> None:
    backend = Alphabet()
    one = engine(backend=backend)
    one.add_request("a", prompt("abcdef"), SamplingParams(max_tokens=4, temperature=0.0, n=3))
    outputs = run(one)
    assert [text(each) for each in outputs.values()] == ["ghij"] * 3
    assert backend.copied == [(1, 2), (1, 3)]


@pytest.mark.parametrize("wrong", [-1, SMALL.vocabulary])
def test_tokens_outside_the_vocabulary_are_refused(wrong: int) -> None:
    one = engine(backend=Alphabet())
    with pytest.raises(BadRequest, match="outside the vocabulary"):
        one.add_request("a", [1, wrong], GREEDY)
    assert one.columns["counters"][Counter.REJECTED] == 1


def test_the_pulse_and_the_times_follow_the_step() -> None:
    told = Steps()
    before = time.monotonic_ns()
    one = engine(told, backend=Alphabet())
    one.add_request("a", prompt("abc"), SamplingParams(max_tokens=3, temperature=0.0))
    run(one)
    pulse = one.columns["pulse"]
    assert pulse[Pulse.STEP] == 3
    assert pulse[Pulse.PHASE] == Phase.COMMIT
    assert before < pulse[Pulse.PHASE_SINCE_NS] <= pulse[Pulse.HEARTBEAT_NS] <= time.monotonic_ns()
    one.idle()
    assert pulse[Pulse.PHASE] == Phase.IDLE
    assert [plan.step for plan in told.planned] == [1, 2, 3]
    for _, times in told.finished:
        assert min(times.schedule_ns, times.prepare_ns, times.forward_ns, times.sample_ns, times.commit_ns) > 0
    (_, first), (_, second) = told.finished[:2]
    phases = first.schedule_ns + first.prepare_ns + first.forward_ns + first.sample_ns + first.commit_ns
    assert second.start_ns - first.start_ns == phases + second.idle_ns


def test_the_facts_name_model_and_limits() -> None:
    told = Steps()
    one = engine(told, backend=Alphabet(), max_model_len=100)
    assert told.facts is one.facts
    assert one.facts.model["kv_bytes_per_token"] == 2 * 16 * 4
    assert (one.facts.config["max_model_len"], one.facts.config["backend"]) == (100, "alphabet")
    assert one.facts.blocks_per_row == 25


def test_a_livelock_steps_on_and_nothing_moves() -> None:
    told = Steps()
    one = engine(told, Faults.parse(["livelock:step=2"]), Alphabet())
    one.add_request("a", prompt("abc"), GREEDY)
    one.step()
    generated = one.columns["counters"][Counter.GENERATED_TOKENS]
    for _ in range(3):
        assert one.step() == []
    assert one.columns["counters"][Counter.GENERATED_TOKENS] == generated
    assert one.columns["pulse"][Pulse.STEP] == 4
    assert one.has_work()


def test_a_leaked_block_never_comes_back_and_the_books_name_it() -> None:
    one = engine(faults=Faults.parse(["leak:step=2"]), backend=Alphabet())
    one.add_request("a", prompt("abcde"), GREEDY)
    run(one)
    assert one.columns["pool"][PoolWord.USED] == 1
    (found,) = one.scheduler.check()
    assert (found.block, found.request) == (0, 1)
    assert "1 references and 0 tables" in found.what


def test_corrupted_content_changes_an_answer() -> None:
    answers = []
    for specs in ([], ["corrupt:step=4"]):
        one = engine(faults=Faults.parse(specs))
        one.add_request("a", prompt("once upon a time"), SamplingParams(max_tokens=30, temperature=0.0, logprobs=0))
        answers.append([logprob.logprob for each in run(one)["a", 0] for logprob in each.logprobs or ()])
    assert answers[0][:3] == answers[1][:3]
    assert answers[0] != answers[1]


def test_a_lost_reference_is_found_by_the_books() -> None:
    one = engine(faults=Faults.parse(["corrupt:step=2,what=refcount"]), backend=Alphabet())
    one.add_request("a", prompt("abcde"), GREEDY)
    one.step()
    one.step()
    assert any("has 0 references and 1 tables" in found.what for found in one.scheduler.check())


def test_closing_tells_how_many_were_in_flight() -> None:
    told = Steps()
    one = engine(told, backend=Alphabet())
    one.add_request("a", prompt("abc"), SamplingParams(n=2))
    one.close()
    one.close()
    assert told.in_flight == 2
    assert one.columns["pulse"][Pulse.PHASE] == Phase.STOPPING


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"block_size": 0}, "block_size must be at least 1, not 0"),
        ({"num_blocks": 10**20}, "num_blocks must be at most 2147483647, not 100000000000000000000"),
        ({"max_waiting": 10**9}, "max_waiting must be at most 1048576, not 1000000000"),
        ({"token_budget": 4}, "token_budget 4 cannot give each of 8 running requests a token"),
        ({"max_model_len": 5000}, "max_model_len 5000 is more than the 2048 tokens this model can read"),
        ({"num_blocks": None, "cache_bytes": 100}, "a cache of 100 bytes does not hold one block of 512"),
        ({"policy": "lifo"}, "unknown policy 'lifo'"),
    ],
)
def test_limits_that_contradict_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        engine(**settings)


class Allocating(Observer):
    """Remembers what it was asked to lay out, and whether it was told to let go of it."""

    laid_out, let_go = 0, False

    def allocate(self, specs: list[ColumnSpec]) -> dict[str, Column]:
        self.laid_out += 1
        return super().allocate(specs)

    def stopped(self, *, requests_in_flight: int) -> None:
        self.let_go = requests_in_flight == 0


def test_a_cache_beyond_memory_is_refused_before_the_observer_lays_anything_out() -> None:
    told = Allocating()
    with pytest.raises(ConfigError, match="a KV cache of 100000000 blocks needs"):
        Engine(MODEL, EngineConfig(num_blocks=100_000_000), observer=told)
    assert told.laid_out == 0


def test_a_start_that_fails_lets_go_of_what_the_observer_laid_out() -> None:
    class Broken(Alphabet):
        def attach(self, memory: EngineMemory, *, num_blocks: int, block_size: int) -> None:
            raise ConfigError("no room")

    told = Allocating()
    with pytest.raises(ConfigError, match="no room"):
        engine(told, backend=Broken())
    assert (told.laid_out, told.let_go) == (1, True)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown backend 'abacus'"):
        EngineConfig(backend="abacus")


def test_the_cache_budget_gives_the_number_of_blocks() -> None:
    one = Engine(MODEL, EngineConfig(block_size=4, cache_bytes=5 * 512 + 100), backend=Alphabet())
    assert one.limits.num_blocks == 5
    assert one.limits.max_model_len == 20
