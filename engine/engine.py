"""The engine: requests in, tokens out, one step at a time. Single-threaded; whoever loops over ``step`` owns it.

step:  SCHEDULE ──► PREPARE ──► FORWARD ──► SAMPLE ──► COMMIT
       who runs     copies,     logits      tokens     text, ends, freed blocks, outputs
                    inputs
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .answer_texts import AnswerTexts
from .backend import Batch, EngineMemory
from .config import EngineConfig, Limits
from .consistency import described
from .describe import engine_facts
from .errors import BadRequest
from .faults import Faults
from .hooks import EventKind, Observer, StepPlan, StepTimes
from .request import FinishReason, Request
from .sampling_params import SamplingParams
from .scheduled_step import ScheduledStep
from .scheduler import Scheduler
from .state import Phase, Pulse, column_specs

if TYPE_CHECKING:
    from .backend import Backend
    from .loading import LoadedModel
    from .sampler import Sampled, Sampler, TokenLogprobs

HEARTBEAT, STEP, PHASE, SINCE = (int(Pulse[name]) for name in ("HEARTBEAT_NS", "STEP", "PHASE", "PHASE_SINCE_NS"))
CHECK_AFTER_NS = 1_000_000_000  # of idleness, so that no burst waits for it
LONGEST_PAUSE_S = 0.02


@dataclass(slots=True)
class RequestOutput:
    """What one step, or an abort, brought for one sequence. ``index``: which of the n continuations. ``text`` may lag
    behind ``token_ids`` (half a character, the beginning of a stop string) until ``finish_reason`` is given.
    ``failure``: why, for ``abort`` and ``error``. ``cached_tokens``: of the prompt, found in the prefix cache;
    ``output_tokens``: so far."""

    request_id: str
    index: int
    token_ids: list[int]
    text: str = ""
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: FinishReason | None = None
    failure: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class Engine:
    """``add_request`` and ``abort`` come between steps; ``idle`` at least every 200 ms while there is no work.

    ``columns``: the engine's numbers (state.py), which anybody may read. ``facts``: what never changes."""

    def __init__(
        self,
        model: LoadedModel,
        config: EngineConfig | None = None,
        observer: Observer | None = None,
        faults: Faults | None = None,
        backend: Backend | None = None,
        sampler: Sampler | None = None,
    ) -> None:
        """Raises ConfigError when limits, model and memory do not go together."""
        from .sampler import Sampler, sampling_cost  # torch comes with it

        started_ns = time.monotonic_ns()
        config = config or EngineConfig()
        self.model = model
        self.observer = observer or Observer()
        self.limits = config.limits(
            model_len=model.config.max_positions,
            kv_bytes_per_token=model.config.kv_bytes_per_token(model.weights.item_size),
        )
        self._faults = faults or Faults()
        self._backend = backend or _backend(config.backend, model, self._faults, self.limits)
        self._sampler = sampler or Sampler()
        self._sampling_cost = sampling_cost
        try:
            self._set_up(model, config, started_ns)
        except BaseException:  # also a signal: what the observer has laid out must not stay behind
            self.observer.stopped(requests_in_flight=0)
            raise

    def _set_up(self, model: LoadedModel, config: EngineConfig, started_ns: int) -> None:
        self.columns = self.observer.allocate(
            column_specs(
                num_blocks=self.limits.num_blocks,
                slots=self.limits.slots,
                rows=self.limits.max_running,
                blocks_per_row=self.limits.blocks_per_row,
                kernels=len(self._backend.kernels),
            )
        )
        self._pulse = self.columns["pulse"]
        watched, watching = self._faults.attach(self.columns, self.observer)
        self.scheduler = Scheduler(watched, self.limits, watching)
        self._backend.attach(
            EngineMemory(
                tables=self.columns["tables"],
                blocks_per_row=self.limits.blocks_per_row,
                pulse=self._pulse,
                kernel_calls=self.columns["kernels.calls"],
                kernel_busy_ns=self.columns["kernels.busy_ns"],
                kernel_flops=self.columns["kernels.flops"],
                kernel_moved_bytes=self.columns["kernels.moved_bytes"],
            ),
            num_blocks=self.limits.num_blocks,
            block_size=self.limits.block_size,
        )
        self.facts = engine_facts(model, config, self.limits, self._backend, started_mono_ns=started_ns)
        self._texts = AnswerTexts(model.tokenizer)
        self._step = 0
        self._ended_ns = time.monotonic_ns()
        self._idle_since_ns = 0
        self._checked = False
        self._pause_s = 0.0
        self._closed = False
        self._enter(Phase.IDLE)
        self.observer.started(self.facts)

    def add_request(self, request_id: str, prompt_token_ids: Sequence[int], params: SamplingParams) -> None:
        """Queues it. Raises BadRequest when it makes no sense or can never fit, Overloaded when the queue is full."""
        if prompt_token_ids and not 0 <= min(prompt_token_ids) <= max(prompt_token_ids) < self.model.config.vocabulary:
            refusal = BadRequest(
                f"the prompt has tokens outside the vocabulary of {self.model.config.vocabulary}", param="prompt"
            )
            self.scheduler.count_refusal(refusal)
            raise refusal
        stop_ids = {*params.stop_token_ids, *(() if params.ignore_eos else self.model.config.eos_ids)}
        self.scheduler.add(request_id, prompt_token_ids, params, time.monotonic_ns(), frozenset(stop_ids))

    def abort(self, request_id: str, why: str = "the client went away") -> list[RequestOutput]:
        """Ends every sequence of it that still lives and frees what they hold; nothing when it is unknown."""
        return [self._last_output(r) for r in self.scheduler.abort(request_id, why, time.monotonic_ns())]

    def has_work(self) -> bool:
        return self.scheduler.has_work

    def step(self) -> list[RequestOutput]:
        """Runs one step. A forward pass or a sampler that fails costs the requests of that step (finish_reason
        ``error``); an exception from here means that the engine cannot go on."""
        times = StepTimes()
        self._step += 1
        self._pulse[STEP] = self._step
        times.start_ns = begun = self._enter(Phase.SCHEDULE)
        times.idle_ns = begun - self._ended_ns
        self._faults.begin_step(self._step)
        scheduled = self._schedule(begun)
        self.observer.step_planned(scheduled.plan)
        now = self._enter(Phase.PREPARE)
        times.schedule_ns = now - begun
        outputs = self._compute(scheduled, times, now) if scheduled.requests else self._pause(scheduled, now)
        self._ended_ns = now = time.monotonic_ns()
        times.commit_ns = now - begun - times.schedule_ns - times.prepare_ns - times.forward_ns - times.sample_ns
        self.observer.step_finished(scheduled.plan, times)
        return outputs

    def idle(self) -> None:
        """Beats the heart. The first time that a spell without work lasts a second, also checks the books."""
        if self._pulse[PHASE] != Phase.IDLE:
            self._idle_since_ns = self._enter(Phase.IDLE)
            self._checked = False
            return
        now = self._pulse[HEARTBEAT] = time.monotonic_ns()
        if not self._checked and now - self._idle_since_ns > CHECK_AFTER_NS:
            self._checked = True
            for line in described(self.scheduler.check()[:10]):
                self.observer.event(EventKind.LOGGED, text=f"the books do not balance: {line}")
            self._pulse[HEARTBEAT] = time.monotonic_ns()  # a check of 100,000 blocks takes 0.1 s

    def close(self) -> None:
        """The last word; requests in flight are counted, not finished."""
        if not self._closed:
            self._closed = True
            self._enter(Phase.STOPPING)
            self.observer.stopped(requests_in_flight=len(self.scheduler.requests()))

    def _schedule(self, now_ns: int) -> ScheduledStep:
        if self._faults.livelock():
            return ScheduledStep(StepPlan(self._step, self.limits.token_budget))
        return self.scheduler.plan(self._step, now_ns)

    def _compute(self, scheduled: ScheduledStep, times: StepTimes, prepared_ns: int) -> list[RequestOutput]:
        self._pause_s = 0.0
        for source, target in scheduled.copies:
            self._backend.copy_block(source, target)
        batch = _batch(scheduled)
        forward_ns = self._enter(Phase.FORWARD)
        times.prepare_ns = forward_ns - prepared_ns
        sample_ns = forward_ns
        try:
            self._faults.before_forward(self.scheduler.pool, self.scheduler.running, self._backend)
            logits = self._backend.forward(batch)
            sample_ns = self._enter(Phase.SAMPLE)
            times.forward_ns = sample_ns - forward_ns
            sampled = None
            if scheduled.samples:
                self._faults.before_sampling()
                rows = logits[scheduled.logit_rows] if scheduled.forks else logits
                sampled = self._sampler.sample(rows, scheduled.samples)
        except Exception as error:  # noqa: BLE001  whatever a backend raises: its requests learn of it, the rest go on
            failed_ns = self._enter(Phase.COMMIT)
            if self._pulse[Pulse.KERNEL]:
                self._pulse[Pulse.COMPLETED] = self._pulse[Pulse.LAUNCHED]
                self._pulse[Pulse.KERNEL] = self._pulse[Pulse.LAYER] = 0
            return self._fail(scheduled, error, failed_ns)
        commit_ns = self._enter(Phase.COMMIT)
        times.sample_ns = commit_ns - sample_ns
        if sampled is not None:
            self._count_sampling(len(scheduled.samples), times.sample_ns)
        return self._commit(scheduled, sampled, commit_ns)

    def _commit(self, scheduled: ScheduledStep, sampled: Sampled | None, now_ns: int) -> list[RequestOutput]:
        if sampled is None:  # only chunks of prompts
            self.scheduler.commit(scheduled, [], now_ns)
            return []
        requests, tokens, failed = scheduled.samples, sampled.token_ids, sampled.failures
        texts, stopped = self._texts.advance(requests, tokens, failed)
        cached = [self.scheduler.table.cached_tokens[request.slot] for request in requests]
        self.scheduler.commit(scheduled, tokens, now_ns, stopped=stopped, failed=failed)
        outputs: list[RequestOutput] = []
        for index, request in enumerate(requests):
            output = RequestOutput(
                request.id,
                request.index,
                [] if index in failed else [tokens[index]],
                texts[index],
                None if (logprobs := sampled.logprobs[index]) is None else [logprobs],
                prompt_tokens=request.prompt_tokens,
                cached_tokens=cached[index],
                output_tokens=len(request.tokens) - request.prompt_tokens,
            )
            if request.finish_reason is not None:
                output.finish_reason = request.finish_reason
                output.failure = request.failure
                output.text += self._texts.finish(request)
            outputs.append(output)
        return outputs

    def _fail(self, scheduled: ScheduledStep, error: Exception, now_ns: int) -> list[RequestOutput]:
        text = f"{type(error).__name__}: {error}"
        lost = [member for request in scheduled.requests for member in (request, *request.parked)]
        for request in scheduled.requests:
            self.scheduler.end(request, "error", now_ns, text)
        return [self._last_output(request) for request in lost]

    def _last_output(self, request: Request) -> RequestOutput:
        return RequestOutput(
            request.id,
            request.index,
            [],
            self._texts.finish(request),
            finish_reason=request.finish_reason,
            failure=request.failure,
            prompt_tokens=request.prompt_tokens,
            output_tokens=len(request.tokens) - request.prompt_tokens,
        )

    def _pause(self, scheduled: ScheduledStep, now_ns: int) -> list[RequestOutput]:
        """Nobody could go on: waits a little, and longer each time, so that a stuck engine does not burn a core."""
        self.scheduler.commit(scheduled, [], now_ns)
        self._pause_s = min(self._pause_s * 2 + 0.001, LONGEST_PAUSE_S)
        time.sleep(self._pause_s)
        return []

    def _count_sampling(self, rows: int, busy_ns: int) -> None:
        """The kernel ``sample``, which is not the backend's."""
        if "sample" not in self._backend.kernels:
            return
        kernel = self._backend.kernels.index("sample")
        flops, moved_bytes = self._sampling_cost(rows, self.model.config.vocabulary)
        for name, amount in (("calls", 1), ("busy_ns", busy_ns), ("flops", flops), ("moved_bytes", moved_bytes)):
            self.columns[f"kernels.{name}"][kernel] += amount

    def _enter(self, phase: Phase) -> int:
        """Says so in the pulse; returns time.monotonic_ns()."""
        pulse = self._pulse
        now = time.monotonic_ns()
        pulse[PHASE] = phase
        pulse[SINCE] = now
        pulse[HEARTBEAT] = now
        return now


def _batch(scheduled: ScheduledStep) -> Batch:
    token_ids = array("q")
    for request, context, chunk in zip(scheduled.requests, scheduled.contexts, scheduled.chunks, strict=True):
        token_ids.extend(request.tokens[context : context + chunk])
    return Batch(
        token_ids,
        scheduled.chunks,
        scheduled.contexts,
        [request.row for request in scheduled.requests],
        scheduled.sampled,
    )


def _backend(name: str, model: LoadedModel, faults: Faults, limits: Limits) -> Backend:
    """Raises ConfigError when its cache does not fit into memory."""
    from .reference_backend import ReferenceBackend

    backends = {"reference": ReferenceBackend}
    made = backends[name](model, faults=faults if faults.in_layers else None)
    made.refuse_what_does_not_fit(limits.num_blocks, limits.block_size)
    return made
