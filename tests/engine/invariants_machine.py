"""Random lives of a scheduler: everything that may happen between two steps, with all books checked after each."""

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from inferdbg.engine.errors import BadRequest, Overloaded
from inferdbg.engine.request import Request
from inferdbg.engine.state import Counter as Word

from .scheduling import Bench, alone, limits

TALLY: Counter[str] = Counter()
"""What all machines of this process did, for whoever wants to print it."""

TOLD = {
    "preemptions": Word.PREEMPTED,
    "evictions": Word.EVICTED_BLOCKS,
    "copies": Word.COPIED_BLOCKS,
    "prefix hit tokens": Word.PREFIX_HIT_TOKENS,
    "finished": Word.FINISHED,
    "aborted": Word.ABORTED,
    "failed": Word.FAILED,
    "rejected": Word.REJECTED,
}
TOKENS = st.lists(st.integers(1, 3), min_size=1, max_size=24)


class SchedulerLife(RuleBasedStateMachine):
    """Requests with fresh and with shared prompts come, step by step, are aborted, fail; at the end everyone is served
    and has exactly what it would have got alone."""

    @initialize(
        block_size=st.sampled_from([1, 2, 4]),
        num_blocks=st.integers(10, 24),
        token_budget=st.sampled_from([4, 8, 32]),
        max_chunk=st.sampled_from([1, 3, 32]),
        prefix_caching=st.booleans(),
    )
    def begin(self, block_size: int, num_blocks: int, token_budget: int, max_chunk: int, prefix_caching: bool) -> None:
        self.bench = Bench(
            limits(
                block_size=block_size,
                num_blocks=num_blocks,
                token_budget=token_budget,
                max_chunk=max_chunk,
                max_running=4,
                max_waiting=8,
                max_model_len=40,
                prefix_caching=prefix_caching,
            )
        )
        self.prompts: list[list[int]] = []
        self.requests: list[Request] = []
        self.last_id = 0

    @rule(prompt=TOKENS, max_tokens=st.integers(1, 16), n=st.sampled_from([1, 1, 1, 2, 4]))
    def add(self, prompt: list[int], max_tokens: int, n: int) -> None:
        self.last_id += 1
        try:
            self.requests += self.bench.add(str(self.last_id), prompt, max_tokens, n)
        except (BadRequest, Overloaded):
            return
        self.prompts.append(prompt)

    @precondition(lambda self: self.prompts)
    @rule(data=st.data(), rest=TOKENS, n=st.sampled_from([1, 2]))
    def add_with_a_shared_prefix(self, data: st.DataObject, rest: list[int], n: int) -> None:
        known = data.draw(st.sampled_from(self.prompts))
        self.add([*known, *rest][:32], 8, n)

    @rule(times=st.integers(1, 12))
    def step(self, times: int) -> None:
        for _ in range(times):
            if not self.bench.scheduler.has_work:
                return
            first = min(request.number for request in self.bench.scheduler.requests())
            step = self.bench.plan()
            self.bench.assert_sound()
            assert first in step.plan.numbers, "the first to arrive was left out"
            assert sum(step.chunks) <= self.bench.limits.token_budget
            self.bench.commit(step)
            self.bench.assert_sound()
            TALLY["engine steps"] += 1

    @precondition(lambda self: self.bench.scheduler.has_work)
    @rule(data=st.data(), luck=st.integers(0, 3))
    def step_with_a_wrong_result(self, data: st.DataObject, luck: int) -> None:
        step = self.bench.plan()
        failed: set[int] = set()
        if step.samples and luck == 0:
            failed = data.draw(st.sets(st.integers(0, len(step.samples) - 1), min_size=1, max_size=2))
        self.bench.commit(step, dict.fromkeys(failed, "NaN"))

    @precondition(lambda self: self.bench.scheduler.has_work)
    @rule(luck=st.integers(0, 9))
    def step_that_fails(self, luck: int) -> None:
        if luck:
            self.step(1)
            return
        for request in self.bench.plan().requests:
            self.bench.scheduler.end(request, "error", self.bench.now_ns, "out of memory")

    @precondition(lambda self: self.bench.scheduler.has_work)
    @rule(data=st.data(), luck=st.integers(0, 2))
    def abort(self, data: st.DataObject, luck: int) -> None:
        if luck:
            return
        alive = sorted({request.id for request in self.bench.scheduler.requests()})
        self.bench.abort(data.draw(st.sampled_from(alive)))

    @invariant()
    def books_balance(self) -> None:
        if hasattr(self, "bench"):
            TALLY["checked rules"] += 1
            self.bench.assert_sound()

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.bench.finish()
        self.bench.assert_sound()
        assert self.bench.used() == 0, "blocks are left over"
        for request in self.requests:
            got = request.output.tolist()
            want = alone(request.tokens[: request.prompt_tokens], request.params, request.index)
            if request.finish_reason in ("stop", "length"):
                assert got == want
            else:
                assert got == want[: len(got)]
        for name, word in TOLD.items():
            TALLY[name] += self.bench.columns["counters"][word]
